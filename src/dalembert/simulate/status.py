"""How a run ended."""

import enum
from typing import Any


class Status(enum.Enum):
    """How a run ended; the value is the sentence, `code` the number that compiled code uses."""

    OK = "the run reached its end"
    NOT_SOLVED = "the equations of a step were not solved: the iteration did not converge"
    NOT_FINITE = "the state became NaN or infinite"
    INTERRUPTED = "the run was interrupted"

    @property
    def code(self) -> int:
        """The position in the list above; zero is success."""
        return list(Status).index(self)

    @classmethod
    def from_code(cls, code: int) -> "Status":
        """The status with this number."""
        return list(cls)[int(code)]


class SimulationError(RuntimeError):
    """A run that could not reach its end. `trajectory` holds everything up to the last good state."""

    def __init__(self, message: str, trajectory: Any):
        super().__init__(message)
        self.trajectory = trajectory
        self.status: Status = trajectory.status
        self.step = int(trajectory.steps) + 1
        self.time = float(trajectory.t[0]) + self.step * float(trajectory.h)
        self.residual = float(trajectory.residual)


class MotionWarning(UserWarning):
    """A run reached its end, but its method says that the motion is not to be trusted."""
