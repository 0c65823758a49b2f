"""How a run ended."""

import enum


class Status(enum.Enum):
    """How a run ended; the value is the sentence, `code` the number that compiled code uses."""

    OK = "the run reached its end"
    NOT_SOLVED = "the equations of a step were not solved: the iteration did not converge"
    NOT_FINITE = "the state became NaN or infinite"
    INTERRUPTED = "the run was interrupted"
    NO_ROOT = "no step size keeps the energy: its equation has no root near the last step"
    NONPOSITIVE_H = "no step forward keeps the energy: the root of its equation is a negative step size"
    STEP_LOST = "the energy no longer determines the step size: rounding is all that is left of its equation"
    OFF_CONSTRAINT = "the start velocity violates the constraint"
    NOT_DEFINITE = "the mass matrix at the start is not positive definite"
    NO_ELEMENT = "the start is not an element of the group"

    @property
    def code(self) -> int:
        """The position in the list above; zero is success."""
        return list(Status).index(self)

    @property
    def remedy(self) -> str:
        """What to try."""
        return _REMEDIES[self]

    @classmethod
    def from_code(cls, code: int) -> "Status":
        """The status with this number."""
        return list(cls)[int(code)]


_EQUAL = "try FrameGradient(), which keeps the energy with equal steps"
_REMEDIES = {
    Status.OK: "nothing",
    Status.NOT_SOLVED: "try a smaller h, or another method",
    Status.NOT_FINITE: "the potential, the metric, the constraints or a discrete Lagrangian may be undefined or "
    "singular just ahead (a rank drop of the one-forms shows like this); look there, or try a smaller h",
    Status.INTERRUPTED: "run it again",
    Status.NO_ROOT: _EQUAL,
    Status.NONPOSITIVE_H: _EQUAL,
    Status.STEP_LOST: _EQUAL,
    Status.OFF_CONSTRAINT: "start with a velocity that the constraint allows, or say project=True",
    Status.NOT_DEFINITE: "check that masses and moments of inertia are positive",
    Status.NO_ELEMENT: "start with an element of the group",
}
