"""Running a method on a system, and what comes out of it."""

from dalembert.simulate.ensemble import ensemble
from dalembert.simulate.run import simulate
from dalembert.simulate.storage import load
from dalembert.simulate.trajectory import MotionWarning, SimulationError, Status, Trajectory

__all__ = ["MotionWarning", "SimulationError", "Status", "Trajectory", "ensemble", "load", "simulate"]
