"""A checked spec: plain values that fit into JSON, and the user's own functions that cannot be imported by name."""

import hashlib
import inspect
import json
import math
import os
import re
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from dalembert.methods import Method, method_named
from dalembert.model import System, from_module, system


class Complaint:
    """Makes the error about a key; `text` is that of the TOML file, where the spec came from one."""

    def __init__(self, name: str = "", text: str = ""):
        self.name, self.text = name, text

    def __call__(self, key: str, message: str) -> ValueError:
        """The error: where, then what."""
        line = line_of(self.text, key)
        parts = [self.name, f"line {line}" if line else "", key]
        return ValueError(f"{', '.join(x for x in parts if x)}: {message}")


def line_of(text: str, key: str) -> int | None:
    """The line of a TOML text that gives a key such as grid.h or grid.v0.xi; the nearest above it where none does."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line)
        entry = re.match(
            r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""", line
        )
        if head:
            table = _plain(head[1])
            found.setdefault(table, number)
        elif entry:
            found.setdefault(".".join(filter(None, (table, _plain(entry[1])))), number)
    while key:
        if key in found:
            return found[key]
        key = key.rpartition(".")[0]
    return None


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def memory() -> int | None:
    """Bytes of memory that this machine has; None where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def words(size: float) -> str:
    """A number of bytes, for people."""
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} EB" if size < 1e9 else f"{size:.1e} EB"


DRAWN = 4096
"""Samples drawn from one stream; fixed, so that a sample's values depend on the seed and its number alone."""
Values = list[float] | list[str]


class Axis(NamedTuple):
    """One dimension of a sweep, along which one or more quantities change together."""

    name: str
    size: int
    columns: dict[str, Values]
    """Values by quantity; of a random axis none."""
    draws: dict[str, dict[str, list[float]]] = {}  # noqa: RUF012
    """Distributions by quantity, of a random axis."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The quantities that change along it."""
        return (*self.columns, *self.draws)

    def part(self, key: str, low: int, high: int, seed: int) -> np.ndarray:
        """The values from `low` to `high` of one of its quantities."""
        if key in self.columns:
            return np.asarray(self.columns[key][low:high])
        first, last = low // DRAWN, -(-high // DRAWN)
        drawn = np.concatenate([_drawn(self.draws[key], seed, key, i) for i in range(first, last)])
        return drawn[low - first * DRAWN : high - first * DRAWN]


def _drawn(distribution: dict[str, list[float]], seed: int, key: str, stream: int) -> np.ndarray:
    """One stream of samples: its own generator for each quantity, so that more quantities leave the others alone."""
    random = np.random.Generator(np.random.PCG64([seed, zlib.crc32(key.encode()), stream]))
    ((kind, (a, b)),) = distribution.items()
    if kind == "normal":
        return a + b * random.standard_normal(DRAWN)
    u = random.random(DRAWN)
    return a + (b - a) * u if kind == "uniform" else a * (b / a) ** u


def is_number(x: Any) -> bool:
    """Whether a value is one finite real number."""
    if not isinstance(x, int | float | np.integer | np.floating) or isinstance(x, bool):
        return False
    try:
        return math.isfinite(float(x))
    except OverflowError:  # a whole number beyond the largest of 64 bits
        return False


def is_whole(x: Any) -> bool:
    """Whether a value is one whole number, of 64 bits."""
    return isinstance(x, int | np.integer) and not isinstance(x, bool) and abs(int(x)) < 2**63


STEP, METHOD, START = "h", "method", "start"
METHODS = "integrator"
"""The dimension of methods: `data.sel(method=...)` would mean something else to xarray, and select nothing."""
ROWS = 500
"""Rows kept of a run for its reductions, where the spec does not say: enough for a verdict on its first tenth."""


@dataclass(frozen=True, eq=False)
class Spec:
    """What is swept, how each trajectory is run, and what is kept of it."""

    entries: dict[str, Any]
    """Everything, as values that JSON can hold; `reading.read` makes it from what the user wrote."""
    objects: dict[str, Any] = field(default_factory=dict)
    """Classes and functions by name that cannot be imported where the work is done."""

    def __getitem__(self, key: str) -> Any:
        return self.entries[key]

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The dimensions."""
        return tuple(Axis(*x) for x in self["axes"])

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return tuple(axis.size for axis in self.axes)

    @property
    def swept(self) -> tuple[str, ...]:
        """The quantities that change."""
        return tuple(key for axis in self.axes for key in axis.keys)

    @property
    def sizes(self) -> list[float]:
        """The step sizes, where the spec says them; none where they are drawn, or made by the user's function."""
        swept: list[Any] = [x for axis in self.axes for x in axis.columns.get(STEP, ())]
        return swept or ([] if self["h"] is None else [self["h"]])

    @cached_property
    def text(self) -> str:
        """The spec as JSON, the same for the same spec."""
        return json.dumps(self.entries, sort_keys=True)

    def thing(self, name: str) -> Any:
        """The class or function of this name; a system made from functions is made anew, once."""
        if name not in self.objects:
            return from_module(name)
        if isinstance(self.objects[name], dict):
            self.objects[name] = system(**self.objects[name])
        return self.objects[name]

    def made(self, **parameters: Any) -> System:
        """The system with these parameters in place of the spec's."""
        kind = self.thing(self["system"])
        return kind if isinstance(kind, System) else kind(**{**self["parameters"], **parameters})

    def method(self, spelling: str) -> Method:
        """The method of this spelling."""
        return self.objects[spelling] if spelling in self.objects else method_named(spelling)

    def length(self, h: float) -> tuple[int, int]:
        """How many steps of this size, and every which is kept.

        An odd number of steps lies between two rows, so that both signs of a mode that alternates are seen.
        """
        steps = self["steps"] or max(1, math.ceil(self["time"] * (1 - 1e-12) / h))
        every = self["save_every"] or max(1, (steps // (self["rows"] or ROWS) - 1) | 1)
        return steps, min(every, steps)


def leaf_paths(tree: Any) -> list[str]:
    """Where a system's parameters are, in the order of its leaves."""
    return [jax.tree_util.keystr(path).lstrip(".") for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def leaf_names(tree: Any) -> list[str]:
    """The names of a system's parameters, in the order of its leaves."""
    return [re.sub(r"^parameters\['(\w+)'\]$", r"\1", path) for path in leaf_paths(tree)]


def unsendable(thing: Any) -> str | None:
    """The name of a class of the user's that another process could not import; None where there is none."""
    kind = thing if isinstance(thing, type) else type(thing)
    if issubclass(kind, eqx.Module):
        if not name_of(kind)[1]:
            return kind.__qualname__
        parts = [] if isinstance(thing, type) else list(vars(thing).values())
    else:
        parts = (
            list(thing.values())
            if isinstance(thing, dict)
            else list(thing)
            if isinstance(thing, tuple | list)
            else []
        )
    return next((name for part in parts if (name := unsendable(part)) is not None), None)


def named(key: str) -> str:
    """The coordinate that holds the values of a swept quantity."""
    return METHODS if key == METHOD else key


def name_of(thing: Any) -> tuple[str, bool]:
    """module:name of a class or function, and whether it can be imported by that."""
    name = f"{thing.__module__}:{thing.__qualname__}"
    if thing.__module__ == "__main__" or "<" in name:
        return name, False
    return name, from_module(name) is thing


def source_of(thing: Any) -> str | None:
    """A short digest of the source of a class or function; None where it is the library's, which has a version."""
    if thing.__module__.startswith("dalembert."):
        return None
    try:
        text = inspect.getsource(thing)
    except (OSError, TypeError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:16]
