"""Make methods from the text that a user types, such as dla:0.5, leapfrog:momentum, dd:average or frame@4."""

from collections.abc import Callable
from functools import cache
from typing import Any

from dalembert.discrete import (
    AlphaRule,
    Gauss,
    Midpoint,
    PointConstraint,
    Retraction,
    Trapezoidal,
)
from dalembert.methods.base import REMEDIES, Method
from dalembert.methods.chetaev import ChetaevGradient
from dalembert.methods.composition import Composition
from dalembert.methods.discrete_gradient import DiscreteGradient
from dalembert.methods.dla import DLA, DLA01
from dalembert.methods.edla import EDLA
from dalembert.methods.frame_collocation import FrameCollocation
from dalembert.methods.frame_gradient import FrameGradient
from dalembert.methods.frame_integrals import FrameIntegrals, parts, read_names
from dalembert.methods.gni import GNI, STARTS, LieGNI
from dalembert.methods.leapfrog import LeapFrog
from dalembert.methods.reference import Reference
from dalembert.methods.taylor import Taylor
from dalembert.methods.variational import VariationalDLA
from dalembert.model import Mechanics, System, Trait, kind_from_module, wrong


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"expected a number after the colon, as in dla:0.5 or reference:1e-9,1e-9; got {text!r}"
        ) from None


def _tolerances(text: str) -> list[float]:
    found = [_number(x) for x in text.split(",")]
    if len(found) > 2:
        raise ValueError(f"reference takes two tolerances, as in reference:1e-9,1e-9; got {text!r}")
    return found


Choice = tuple[str, Callable[[Any], Any], Callable[[str, str], Any] | None]
"""A keyword argument, a function that makes its value, and a function that reads the text after = (None if the option
takes no value)."""


def _real(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{key} needs a number, as in {key}=0.3; got {text!r}") from None


def _whole(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{key} needs a whole number, as in {key}=20; got {text!r}") from None


_LAGRANGIANS: dict[str, Choice] = {
    "midpoint": ("discrete_lagrangian", lambda _: Midpoint(), None),
    "trapezoidal": ("discrete_lagrangian", lambda _: Trapezoidal(), None),
    "alpha": ("discrete_lagrangian", AlphaRule, _real),
    "gauss": ("discrete_lagrangian", Gauss, _whole),
}
_BODIES: dict[str, Choice] = {
    **{x: ("discrete_lagrangian", lambda _, x=x: Retraction(x), None) for x in ("exp", "cayley", "mid")},
    "map": ("discrete_lagrangian", Retraction, lambda _, text: text),
}
_POINTS: dict[str, Choice] = {
    "left": ("discrete_constraint", lambda _: PointConstraint(0.0), None),
    "point": ("discrete_constraint", PointConstraint, _real),
}
_STEPS: dict[str, Choice] = {
    "continuation": ("continuation", lambda _: True, None),
    "unpinned": ("pin", lambda _: False, None),
}
_MAPS: dict[str, Choice] = {
    **{x: ("retraction", lambda _, x=x: x, None) for x in ("exp", "cayley", "mid")},
    "map": ("retraction", str, lambda _, text: text),
}
_FLIGHTS: dict[str, Choice] = {
    **{x: ("start", lambda _, x=x: x, None) for x in STARTS},
    "restart": ("restart_every", lambda n: n, _whole),
}


def _maker(method: Callable[..., Method], name: str, choices: dict[str, Choice]) -> Callable[[str], Method]:
    """A function that makes the method from options such as trapezoidal,momentum,restart=20."""

    def make(text: str) -> Method:
        found: dict[str, Any] = {}
        for option in filter(None, text.split(",")):
            key, equals, value = option.partition("=")
            if key not in choices:
                raise ValueError(f"{name} has no option {option!r}; choose from: {', '.join(choices)}")
            keyword, build, read = choices[key]
            if keyword in found:
                raise ValueError(f"{name}:{text} says its {keyword.replace('_', ' ')} twice; keep one")
            if read is None and equals:
                raise ValueError(f"{name}: {key} takes no value, got {option!r}")
            found[keyword] = build(read(key, value) if read else None)
        return method(**found)

    return make


def _frame(text: str) -> Method:
    """FrameGradient with the named gradient, FrameCollocation with gauss=S, or FrameIntegrals with integrals."""
    key, equals, value = text.partition("=")
    if key == "gauss":
        if not equals:
            raise ValueError("frame:gauss needs its number of stages, as in frame:gauss=4, which has order 8")
        return FrameCollocation(_whole(key, value))
    if key == "integrals":
        if equals and not all(read_names(value)):
            raise ValueError(
                "frame:integrals= needs names of the system's integrals, as in frame:integrals=NAME+NAME; "
                f"frame:integrals keeps all of them; got {text!r}"
            )
        return FrameIntegrals(read_names(value) if equals else None)
    return FrameGradient(text or "average")  # pyright: ignore[reportArgumentType]


# Name: (a function that makes the method from the text after the colon, the possible texts, one line about it).
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
        _frame,
        "average, gonzalez, itoh-abe; gauss=S; integrals, integrals=NAME+NAME",
        "frame discrete gradient: exact energy, stays on the constraint, any metric; gauss=S has order 2 S; integrals "
        "keeps the system's own integrals, too",
    ),
    "chetaev": (
        lambda x: ChetaevGradient(x or "average"),  # pyright: ignore[reportArgumentType]
        "average, gonzalez, itoh-abe",
        "discrete gradient for constraints that are not linear in the velocity; any metric",
    ),
    "reference": (
        lambda x: Reference(*_tolerances(x)) if x else Reference(),
        "rtol,atol",
        "adaptive Runge-Kutta of order 8 at tight tolerance",
    ),
    "taylor": (
        lambda x: Taylor(_number(x)) if x else Taylor(),
        "tol",
        "Taylor series: the motion to machine precision",
    ),
    "gni": (
        _maker(GNI, "gni", {**_LAGRANGIANS, **_FLIGHTS}),
        "midpoint, trapezoidal, alpha=A, gauss=S; half-kick, momentum, exact; restart=N",
        "geometric nonholonomic integrator, any metric",
    ),
    "lie-gni": (
        _maker(LieGNI, "lie-gni", {**_MAPS, **_FLIGHTS}),
        "exp, cayley, mid, map=NAME; half-kick, momentum, exact; restart=N",
        "geometric nonholonomic integrator on Lie groups",
    ),
    "dla-variational": (
        _maker(VariationalDLA, "dla-variational", {**_LAGRANGIANS, **_BODIES, **_POINTS}),
        "midpoint, trapezoidal, alpha=A, gauss=S, on groups exp, cayley, mid, map=NAME; left, point=A",
        "discrete Lagrange-d'Alembert, any metric",
    ),
    "edla": (
        _maker(EDLA, "edla", {**_LAGRANGIANS, **_BODIES, **_STEPS}),
        "midpoint, trapezoidal, alpha=A, gauss=S, on groups exp, cayley, mid, map=NAME; continuation; unpinned",
        "discrete Lagrange-d'Alembert with steps that keep the energy; any metric",
    ),
}


def method_from_text(text: str) -> Method:
    """The method spelled NAME[:OPTION][@ORDER], such as frame, dla:0.4, dd:average or frame@4."""
    body, *rest = parts(text.strip(), "@")
    at, order = bool(rest), "@".join(rest)
    name, colon, option = body.partition(":")
    if name not in METHODS:
        raise ValueError(f"no method {name!r}; choose one of: {', '.join(METHODS)}")
    make, options, _ = METHODS[name]
    if option and not options:
        raise ValueError(f"{name} takes no option, got {option!r}")
    if colon and not option:
        raise ValueError(f"expected an option after the colon of {name}: {options or '(it takes none)'}")
    method = make(option)
    if not at:
        return method
    if not order.isdecimal() or len(order) > 3:
        raise ValueError(f"expected an order after @, as in frame@4; got {order!r}")
    return Composition(method, int(order))


def method_named(text: str) -> Method:
    """The method spelled as on the command line, or the user's own as module:Class; a wrong name lists the choices."""
    name, colon, rest = text.partition("@")[0].partition(":")
    if name not in METHODS:
        if colon and rest.isidentifier():
            found = kind_from_module(text, Method)
            if isinstance(found, Method):
                return found
            try:
                return found()
            except TypeError as error:
                raise ValueError(
                    f"{text} cannot be made without arguments ({error}); make a method with them in the module, and "
                    "give its name"
                ) from None
        raise wrong("method", name, METHODS)
    return method_from_text(text)


def usual_method(system: System | Mechanics) -> str:
    """The name of the method with which to begin: the first of a few that takes the system, the best first."""
    return next(name for name in ("frame", "chetaev", "reference") if method_from_text(name).takes(system))


@cache
def remedies() -> dict[str, Method]:
    """Methods by the text with which a user makes them, the best first; the last one takes every system."""
    return {
        "FrameGradient()": FrameGradient(),
        "LieGNI()": LieGNI(),
        'VariationalDLA(Retraction("exp"))': VariationalDLA(Retraction("exp")),
        "VariationalDLA()": VariationalDLA(),
        "GNI()": GNI(),
        "EDLA()": EDLA(),
        "ChetaevGradient()": ChetaevGradient(),
        "Reference()": Reference(),
    }


def _remedies_for(m: Mechanics) -> dict[str, Method]:
    """Those worth naming for a system: a method for nonlinear constraints has nothing to offer for linear ones."""
    nonlinear = Trait.NONLINEAR in m.traits
    return {words: x for words, x in remedies().items() if nonlinear or not isinstance(x, ChetaevGradient)}


REMEDIES.append(_remedies_for)
