"""What the page asks for, and the Python script that does the same."""

import contextlib
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import jax.numpy as jnp
import numpy as np

from dalembert.methods import METHODS, Composition, Method, method_from_text
from dalembert.model import System, check_start, nearest_velocity, survey

SLOTS = 4
"""How many methods the page runs side by side."""
# Spellings beside the plain names that the lists offer.
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
        """How many steps lie between two rows that are kept."""
        return max(1, math.ceil(self.steps / ROWS))


@dataclass(frozen=True)
class Choice:
    """A parameter of a system: a number with a range for its slider, or a text with its choices (none known: any)."""

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
    """The numbers of a text such as "0, 1.5, -2"."""
    try:
        return [float(x) for x in text.replace(";", ",").split(",") if x.strip()]
    except ValueError:
        raise ValueError(f"{name} must be numbers with commas between, such as 0, 1.5, -2; got {text!r}")


def text_of(values: Any) -> str:
    """Numbers as a text from which exactly they are read again."""
    return ", ".join(repr(float(x) + 0.0) for x in np.asarray(values, float))


def built(request: Request, kinds: Mapping[str, Any]) -> System:
    """The system of a request."""
    kind = kinds[request.system]
    return kind if isinstance(kind, System) else kind(**dict(request.parameters))


def code_of(method: Method) -> str:
    """The expression that makes a method."""
    if isinstance(method, Composition):
        return f"da.Composition({code_of(method.method)}, {method.order})"
    return f"da.{method!r}".replace("=Retraction(", "=da.discrete.Retraction(")


def script(request: Request, kinds: Mapping[str, Any]) -> str:
    """The Python script that makes the runs on the page and draws them."""
    kind = kinds[request.system]
    made, lines = request.system, ["import dalembert as da"]
    if isinstance(kind, System) or not kind.__module__.startswith("dalembert.zoo"):
        module, colon, made = request.system.partition(":")
        lines.append(
            f"from {module} import {made}" if colon else "# system: the one that the explorer was given"
        )
    else:
        made = f"da.zoo.{made}"
    if not isinstance(kind, System):
        given = [
            f"{x}={y!r}"
            for x, y in request.parameters
            if y != {c.name: c.default for c in choices(kind)}.get(x)
        ]
        made = f"{made}({', '.join(given)})"
    every = f", save_every={request.save_every}" if request.save_every > 1 else ""
    lines += ["", *([f"system = {made}"] if made else [])]
    lines += [
        f"q0, v0 = [{request.q0}], [{request.v0}]",
        "runs = [",
        "    da.simulate(system, method, q0, v0, "
        f"h={request.h!r}, steps={request.steps}{every}, throw=False)",
        "    for method in (",
        *(f"        {code_of(method_from_text(spelling))}," for spelling in request.methods),
        "    )",
        "]",
        "for run in runs:",
        '    print(run.method.spelling, run.message, "energy change", abs(run.energy() - run.energy()[0]).max())',
        'da.compare(runs)["energy"].figure.savefig("compare.png")',
        'runs[0].animate("run.html")',
    ]
    return "\n".join(lines) + "\n"


def methods_for(system: Any) -> list[str]:
    """The methods that the lists offer: those for groups, or those for coordinates."""
    known = [*METHODS, *MORE]
    grouped = ("lie-gni", "dla-variational", "reference")
    if system.group is not None:
        return [name for name in known if name.partition(":")[0] in grouped]
    return [name for name in known if not name.startswith("lie-gni")]


def start_of(system: Any, name: str | None) -> tuple[Any, Any]:
    """The system's own start; where it has none the zeros, with some velocity that the constraint allows."""
    if system.starts() or name is not None:
        return system.start(name)
    q0 = np.zeros(system.dimension) if system.group is None else np.asarray(system.group.identity())
    return q0, nearest_velocity(system.at(0.0), jnp.asarray(q0), jnp.ones(system.velocity_dimension))


def _second(system: Any, q0: Any, v0: Any) -> str:
    """The simplest method beside frame that fits the system."""
    told = check_start(system, q0, v0, survey)
    for spelling in ("leapfrog", "gni"):
        with contextlib.suppress(ValueError):
            method_from_text(spelling).check(system, told)
            return spelling
    return "reference"


def first_request(
    name: str, kinds: Mapping[str, Any], methods: Sequence[str] = (), steps: int = 10_000, **given: Any
) -> Request:
    """What a system is first shown with: its own start and step; methods that fit it, or `exact`ly those given."""
    kind = kinds[name]
    parameters = {c.name: c.default for c in choices(kind)} | given.get("parameters", {})
    system = kind if not isinstance(kind, type) else kind(**parameters)
    q0, v0 = start_of(system, given.get("start"))
    usual = ["frame", _second(system, q0, v0)] if system.group is None else ["lie-gni"]
    fitting = [x for x in methods if given.get("exact") or x in methods_for(system)] or usual
    h = given.get("h") or system.step or 0.1
    return Request(
        name, tuple(parameters.items()), text_of(q0), text_of(v0), tuple(fitting[:SLOTS]), h, steps
    )
