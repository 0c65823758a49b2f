"""Run a method on a system, and work with the result."""

from dalembert.simulation.boundary import BoundaryError, BoundarySolution, solve_boundary
from dalembert.simulation.ensembles import ensemble
from dalembert.simulation.run import simulate
from dalembert.simulation.storage import load
from dalembert.simulation.trajectory import (
    ConstraintWarning,
    MotionWarning,
    SimulationError,
    Status,
    Trajectory,
)

__all__ = [
    "BoundaryError",
    "BoundarySolution",
    "ConstraintWarning",
    "MotionWarning",
    "SimulationError",
    "Status",
    "Trajectory",
    "ensemble",
    "load",
    "simulate",
    "solve_boundary",
]
