"""Methods from the text a user types: dla:0.5, leapfrog:momentum, dd:average, frame@4."""

from collections.abc import Callable

from dalembert.methods.base import Method
from dalembert.methods.composition import Composition
from dalembert.methods.discrete_gradient import DiscreteGradient
from dalembert.methods.dla import DLA, DLA01
from dalembert.methods.frame_gradient import FrameGradient
from dalembert.methods.leapfrog import LeapFrog
from dalembert.methods.reference import Reference


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"expected a number after the colon, as in dla:0.5 or reference:1e-9,1e-9; got {text!r}"
        ) from None


# Name: (what makes it from the text after the colon, what may stand there, one line about it).
METHODS: dict[str, tuple[Callable[[str], Method], str, str]] = {
    "dla": (lambda x: DLA(_number(x) if x else 0.5), "alpha in [0, 1]", "discrete Lagrange-d'Alembert"),
    "dla01": (lambda x: DLA01(), "", "discrete Lagrange-d'Alembert, explicit in the potential"),
    "leapfrog": (
        lambda x: LeapFrog(x or "half-kick"),  # pyright: ignore[reportArgumentType]
        "half-kick, momentum",
        "nonholonomic leap-frog; explicit",
    ),
    "dd": (
        lambda x: DiscreteGradient(x or "gonzalez"),  # pyright: ignore[reportArgumentType]
        "gonzalez, average, itoh-abe",
        "discrete gradient on TQ; exact energy",
    ),
    "frame": (
        lambda x: FrameGradient(x or "average"),  # pyright: ignore[reportArgumentType]
        "average, gonzalez, itoh-abe",
        "frame discrete gradient: exact energy, stays on the constraint, any metric",
    ),
    "reference": (
        lambda x: Reference(*map(_number, x.split(","))) if x else Reference(),
        "rtol,atol",
        "adaptive Runge-Kutta of order 8 at tight tolerance",
    ),
}


def method_from_text(text: str) -> Method:
    """The method spelled NAME[:OPTION][@ORDER], such as frame, dla:0.4, dd:average or frame@4."""
    body, _, order = text.strip().partition("@")
    name, _, option = body.partition(":")
    if name not in METHODS:
        raise ValueError(f"no method {name!r}; choose one of: {', '.join(METHODS)}")
    make, options, _ = METHODS[name]
    if option and not options:
        raise ValueError(f"{name} takes no option, got {option!r}")
    method = make(option)
    if not order:
        return method
    if not order.isdigit():
        raise ValueError(f"expected an order after @, as in frame@4; got {order!r}")
    return Composition(method, int(order))
