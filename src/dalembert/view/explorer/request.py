"""Requests of the page, and the Python scripts that do the same."""

import contextlib
import inspect
import keyword
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin

import jax.numpy as jnp
import numpy as np

from dalembert.methods import METHODS, Composition, method_from_text, usual_method
from dalembert.model import System, check_start, independent_rows, lower, nearest_start, observed, sample

SLOTS = 4
"""The number of methods that the page runs side by side."""
# Spellings that the lists offer in addition to the plain names.
MORE = ("frame@4", "frame:gonzalez", "dd:average", "gni:restart=20", "lie-gni:restart=20")
MOST_STEPS, ROWS = 1_000_000, 20_000
"""The longest run that the page makes, and the most rows that it keeps."""


@dataclass(frozen=True)
class Request:
    """One picture: a system with its parameters, a start, methods by their spelling, step size and length."""

    system: str
    parameters: tuple[tuple[str, Any], ...]
    q0: str
    v0: str
    methods: tuple[str, ...]
    h: float
    steps: int

    @property
    def save_every(self) -> int:
        """The number of steps between two saved rows."""
        return max(1, math.ceil(self.steps / ROWS))


@dataclass(frozen=True)
class Choice:
    """A parameter of a system: a number with a range for its slider, or a text with its choices (empty: any text)."""

    name: str
    default: Any
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether it gets a slider."""
        return isinstance(self.default, float)


def choices(kind: Any) -> list[Choice]:
    """The parameters of a system's class that the page offers: numbers and texts with a default."""
    if isinstance(kind, System):
        return []
    found = []
    for p in inspect.signature(kind).parameters.values():
        if isinstance(p.default, bool):
            continue
        if isinstance(p.default, int | float):
            value = float(p.default)
            far = 1.0 if value == 0 else 3 * abs(value)
            found.append(Choice(p.name, value, 0.0 if value > 0 else -far, far))
        elif isinstance(p.default, str):
            literal = get_origin(p.annotation) is Literal
            found.append(Choice(p.name, p.default, choices=get_args(p.annotation) if literal else ()))
    return found


def numbers(text: str, name: str) -> list[float]:
    """The numbers in a text such as "0, 1.5, -2"."""
    try:
        found = [float(x) for x in text.replace(";", ",").split(",") if x.strip()]
    except (ValueError, AttributeError):
        raise ValueError(
            f"{name} must be numbers with commas between, such as 0, 1.5, -2; got {_short(text)}"
        ) from None
    if not all(map(math.isfinite, found)):
        raise ValueError(f"{name} must be finite numbers, got {_short(text)}")
    return found


def number(value: Any, name: str) -> float:
    """A finite number."""
    good = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    # Whole numbers may be too large for a float.
    if not good or not abs(value) <= 1e300:
        raise ValueError(f"{name} must be one finite number, got {_short(value)}")
    return float(value)


def _short(value: Any) -> str:
    """What a user typed, shortened to fit into a sentence."""
    if isinstance(value, int) and abs(value) > 10**30:
        return "a number that is too large"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def text_of(values: Any) -> str:
    """The numbers as a text from which exactly the same numbers can be read again."""
    return ", ".join(repr(float(x) + 0.0) for x in np.asarray(values, float))


def built(request: Request, kinds: Mapping[str, Any]) -> System:
    """The system of a request."""
    kind = kinds[request.system]
    return kind if isinstance(kind, System) else kind(**dict(request.parameters))


def checked(request: Request, kinds: Mapping[str, Any]) -> Request:
    """The request in its plainest spelling; raises ValueError if something in it is impossible.

    Everything that a reader, or a program that talks to the page, puts into the controls is checked here before it is
    used.
    """
    if not isinstance(request.system, str) or request.system not in kinds:
        raise ValueError(f"no system {_short(request.system)}; choose one of: {', '.join(kinds)}")
    kind = kinds[request.system]
    taken = {} if isinstance(kind, System) else inspect.signature(kind).parameters
    offered = {c.name: c for c in choices(kind)}
    for name, value in request.parameters:
        if name not in taken:
            raise ValueError(
                f"{request.system} has no parameter {_short(name)}; it takes: {', '.join(taken)}"
            )
        if name in offered and offered[name].choices and value not in offered[name].choices:
            raise ValueError(
                f"{name} cannot be {_short(value)}; choose one of: {', '.join(offered[name].choices)}"
            )
        if name in offered and not offered[name].is_number and not isinstance(value, str):
            raise ValueError(f"{name} must be a text, got {_short(value)}")
    parameters = {
        name: number(value, name)
        if isinstance(value, float) or (name in offered and offered[name].is_number)
        else value
        for name, value in request.parameters
    }
    h, steps = number(request.h, "h"), number(request.steps, "steps")
    if h <= 0:
        raise ValueError(f"h must be positive, got {h!r}; to run backwards reverse the velocity")
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps must be between 1 and {MOST_STEPS:,}, got {steps:,.12g}")
    if steps != int(steps):
        raise ValueError(f"steps must be a whole number, got {steps!r}")
    if not request.methods:
        raise ValueError("no method is chosen; choose one or more")
    if len(set(request.methods)) < len(request.methods):
        raise ValueError("a method is chosen twice; choose different ones")
    for spelling in request.methods:
        if not isinstance(spelling, str) or len(spelling) > 100:
            raise ValueError(f"a method is a text such as frame or dla:0.5, got {_short(spelling)}")
        method_from_text(spelling)
    return replace(
        request,
        parameters=tuple(parameters.items()),
        q0=text_of(numbers(request.q0, "q0")),
        v0=text_of(numbers(request.v0, "v0")),
        h=h,
        steps=int(steps),
    )


def code_of(made: Any) -> str:
    """The Python expression that makes a method, or a component of a method."""
    if isinstance(made, Composition):
        return f"da.Composition({code_of(made.method)}, {made.order})"
    if not is_dataclass(made):
        return repr(made)
    given = []
    for x in fields(made):
        value = getattr(made, x.name)
        usual = x.default if x.default_factory is MISSING else x.default_factory()
        if x.init and (usual is MISSING or value != usual):
            given.append(f"{x.name}={code_of(value)}")
    kind = type(made)
    inside = "discrete." if kind.__module__.startswith("dalembert.discrete") else ""
    return f"da.{inside}{kind.__name__}({', '.join(given)})"


def _importable(name: str) -> bool:
    """Whether a name is of the form module:name, so that a script can import it."""
    module, colon, inside = name.partition(":")
    parts = (*module.split("."), *inside.split("."))
    words = all(x.isidentifier() and not keyword.iskeyword(x) for x in parts)
    return bool(colon) and words and module != "__main__"


def _literal(value: Any) -> str:
    """A parameter as Python source."""
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    return repr(np.asarray(value, float).tolist())


def _system_code(request: Request, kind: Any) -> tuple[list[str], str]:
    """The expression for the system, preceded by the lines that it needs."""
    if isinstance(kind, type) and kind.__module__.startswith("dalembert.zoo"):
        lines, made = [], f"da.zoo.{kind.__name__}"
    elif _importable(request.system):
        module, _, made = request.system.partition(":")
        lines = [f"from {module} import {made.partition('.')[0]}"]
    else:
        made = "system" if isinstance(kind, System) else kind.__name__
        made = made if made.isidentifier() else "Own"
        lines = [f"# {made}: the one that the explorer was given, which a script cannot import"]
    if isinstance(kind, System):
        return lines, made
    usual = {c.name: c.default for c in choices(kind)}
    given = [f"{x}={_literal(y)}" for x, y in request.parameters if x not in usual or y != usual[x]]
    return lines, f"{made}({', '.join(given)})"


def script(request: Request, kinds: Mapping[str, Any]) -> str:
    """The Python script that makes the runs on the page and draws them."""
    request = checked(request, kinds)
    lines, made = _system_code(request, kinds[request.system])
    every = f", save_every={request.save_every}" if request.save_every > 1 else ""
    lines = [
        "import dalembert as da",
        *lines,
        "",
        *([f"system = {made}"] if made != "system" else []),
        f"q0, v0 = [{request.q0}], [{request.v0}]",
        "runs = [",
        "    da.simulate(system, method, q0, v0, "
        f"h={request.h!r}, steps={request.steps}{every}, throw=False)",
        "    for method in (",
        *(f"        {code_of(method_from_text(spelling))}," for spelling in request.methods),
        "    )",
        "]",
        "for run in runs:",
        '    print(run.method.cli_name, run.message, "energy change", abs(run.energy() - run.energy()[0]).max())',
        'da.compare(runs)["energy"].figure.savefig("compare.png")',
        'runs[0].animate("run.html")',
    ]
    return "\n".join(lines) + "\n"


def methods_for(system: Any) -> list[str]:
    """The methods that the lists offer: those that take the system, as far as its description tells."""
    m = lower(system)
    return [name for name in (*METHODS, *MORE) if method_from_text(name).takes(m)]


def start_of(system: Any, name: str | None) -> tuple[Any, Any]:
    """The system's own start; if it has none, one near the configuration zero, with some velocity, that the constraints
    allow."""
    if system.starts() or name is not None:
        return system.start(name)
    q0 = np.asarray(lower(system).space.identity())
    m = lower(independent_rows(system, q0)).at(0.0)
    return nearest_start(m, jnp.asarray(q0), jnp.ones(system.velocity_dimension))


def _second(system: Any, q0: Any, v0: Any) -> str:
    """The simplest method other than the usual one that fits the system."""
    system, sampled = check_start(system, q0, v0, sample)
    for spelling in ("leapfrog", "gni", "lie-gni"):
        with contextlib.suppress(ValueError):
            method_from_text(spelling).check(observed(lower(system), sampled))
            return spelling
    return "reference"


def first_request(
    name: str, kinds: Mapping[str, Any], methods: Sequence[str] = (), steps: int = 10_000, **given: Any
) -> Request:
    """The first request for a system: its own start and step, and those of `methods` that fit it, or usual ones.

    With `exact` true, all of `methods` are taken.
    """
    kind = kinds[name]
    parameters = {c.name: c.default for c in choices(kind)} | given.get("parameters", {})
    system = kind if not isinstance(kind, type) else kind(**parameters)
    q0, v0 = start_of(system, given.get("start"))
    usual = [usual_method(system), _second(system, q0, v0)]
    fitting = [x for x in methods if given.get("exact") or x in methods_for(system)] or usual
    h = given.get("h")
    h = (system.step or 0.1) if h is None else h
    return Request(
        name, tuple(parameters.items()), text_of(q0), text_of(v0), tuple(fitting[:SLOTS]), h, steps
    )
