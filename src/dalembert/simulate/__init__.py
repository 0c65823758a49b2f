"""Running a method on a system, and what comes out of it."""

from dalembert.simulate.ensemble import ensemble
from dalembert.simulate.run import simulate
from dalembert.simulate.status import MotionWarning, SimulationError, Status
from dalembert.simulate.storage import load
from dalembert.simulate.trajectory import Trajectory

__all__ = ["MotionWarning", "SimulationError", "Status", "Trajectory", "ensemble", "load", "simulate"]
