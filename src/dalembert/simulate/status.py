"""What a run that did not go well raises, or warns of."""

from typing import Any

from dalembert.methods import Status


class SimulationError(RuntimeError):
    """A run that could not reach its end. `trajectory` holds everything up to the last good state."""

    def __init__(self, message: str, trajectory: Any):
        super().__init__(message)
        self.trajectory = trajectory
        self.status: Status = trajectory.status
        self.step = int(trajectory.steps) + 1
        self.time = trajectory.reached + float(trajectory.h)
        self.residual = float(trajectory.residual)


class MotionWarning(UserWarning):
    """A run reached its end, but its method says that the motion is not to be trusted."""
