"""Methods from the text a user types: dla:0.5, leapfrog:momentum, dd:average, frame@4."""

from collections.abc import Callable
from typing import Any

from dalembert.discrete import (
    AlphaRule,
    DiscreteLagrangian,
    Gauss,
    Midpoint,
    PointConstraint,
    Trapezoidal,
)
from dalembert.methods.base import Method
from dalembert.methods.composition import Composition
from dalembert.methods.discrete_gradient import DiscreteGradient
from dalembert.methods.dla import DLA, DLA01
from dalembert.methods.frame_gradient import FrameGradient
from dalembert.methods.gni import GNI
from dalembert.methods.leapfrog import LeapFrog
from dalembert.methods.lie_gni import LieGNI
from dalembert.methods.reference import Reference
from dalembert.methods.reflecting import STARTS
from dalembert.methods.variational import VariationalDLA


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"expected a number after the colon, as in dla:0.5 or reference:1e-9,1e-9; got {text!r}"
        ) from None


_LAGRANGIANS: dict[str, Callable[[str], DiscreteLagrangian]] = {
    "midpoint": lambda x: Midpoint(),
    "trapezoidal": lambda x: Trapezoidal(),
    "alpha": lambda x: AlphaRule(_number(x)),
    "gauss": lambda x: Gauss(int(_number(x))),
}


def _options(name: str, text: str, choices: dict[str, Callable[[str], dict]]) -> dict[str, Any]:
    """Keyword arguments from options such as trapezoidal,momentum,restart=20."""
    found: dict[str, Any] = {}
    for option in filter(None, text.split(",")):
        key, _, value = option.partition("=")
        if key not in choices:
            raise ValueError(f"{name} has no option {option!r}; choose from: {', '.join(choices)}")
        found |= choices[key](value)
    return found


def _reflecting(maps: dict[str, Callable[[str], dict]]) -> dict[str, Callable[[str], dict]]:
    starts = {x: (lambda value, x=x: {"start": x}) for x in STARTS}
    return {**maps, **starts, "restart": lambda value: {"restart_every": int(_number(value))}}


def _lagrangians() -> dict[str, Callable[[str], dict]]:
    return {
        key: (lambda value, make=make: {"discrete_lagrangian": make(value)})
        for key, make in _LAGRANGIANS.items()
    }


def _gni(text: str) -> Method:
    return GNI(**_options("gni", text, _reflecting(_lagrangians())))


def _lie_gni(text: str) -> Method:
    maps = {x: (lambda value, x=x: {"retraction": x}) for x in ("exp", "cayley", "mid")}
    return LieGNI(**_options("lie-gni", text, _reflecting(maps)))


def _variational(text: str) -> Method:
    points = {
        "left": lambda value: {"discrete_constraint": PointConstraint(0.0)},
        "point": lambda value: {"discrete_constraint": PointConstraint(_number(value))},
    }
    return VariationalDLA(**_options("dla-variational", text, {**_lagrangians(), **points}))


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
    "gni": (
        _gni,
        "midpoint, trapezoidal, alpha=A, gauss=S; half-kick, momentum, exact; restart=N",
        "geometric nonholonomic integrator, any metric",
    ),
    "lie-gni": (
        _lie_gni,
        "exp, cayley, mid; half-kick, momentum, exact; restart=N",
        "geometric nonholonomic integrator on Lie groups",
    ),
    "dla-variational": (
        _variational,
        "midpoint, trapezoidal, alpha=A, gauss=S; left, point=A",
        "discrete Lagrange-d'Alembert, any metric",
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
