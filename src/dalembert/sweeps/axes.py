"""What is swept: values on a grid, cases in a list, random samples."""

import math
import zlib
from typing import Any, NamedTuple

import numpy as np

from dalembert.sweeps.complaint import Complaint
from dalembert.sweeps.sizes import memory, words

DRAWN = 4096
"""Samples drawn from one stream; fixed, so that a sample's values depend on the seed and its number alone."""
VALUE = 200
"""Bytes that a value of a grid takes: as a number in a list, and as text in the spec and in the store."""
SPACINGS = {"linear": np.linspace, "log": np.geomspace}
DISTRIBUTIONS = {"uniform": ("low", "high"), "normal": ("mean", "deviation"), "log-uniform": ("low", "high")}
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


def values_of(complaint: Complaint, key: str, given: Any, again: bool = False) -> tuple[Values, str | None]:
    """The values of a quantity from a list or a table, and its unit where one is given; `again`: they may repeat."""
    unit = None
    if isinstance(given, dict):
        given = dict(given)
        unit = given.pop("unit", None)
        if unit is not None and not isinstance(unit, str):
            raise complaint(key, f'a unit is a text such as "m", got {unit!r}')
        if set(given) == {"values"}:
            given = given["values"]
        elif {"from", "to", "count"} <= set(given) <= {"from", "to", "count", "spacing"}:
            return _range(complaint, key, **{f"{k}_": v for k, v in given.items()}), unit
        else:
            raise complaint(
                key,
                "takes a list of values, {values = [...]}, or {from = 0.1, to = 0.4, count = 30, spacing = "
                f'"linear" or "log"}}; got the keys {", ".join(given) or "(none)"}',
            )
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, list | tuple | range):
        raise complaint(key, f"takes a list of values or a range {{from, to, count}}, got {given!r}")
    if not len(given):
        raise complaint(key, "has no values: the grid is empty")
    return _listed(complaint, key, list(given), again), unit


def _listed(complaint: Complaint, key: str, given: list, again: bool) -> Values:
    if all(isinstance(x, str) for x in given):
        values: Values = given
    elif all(is_number(x) for x in given):
        values = [float(x) for x in given]
    else:
        bad = next(x for x in given if not is_number(x))
        raise complaint(key, f"takes finite numbers (or texts alone), got {bad!r}")
    if len(set(values)) != len(values) and not again:
        twice = next(x for i, x in enumerate(values) if x in values[:i])
        raise complaint(key, f"has the value {twice!r} twice; each gives the same trajectory")
    return values


def _range(
    complaint: Complaint, key: str, from_: Any, to_: Any, count_: Any, spacing_: Any = "linear"
) -> list[float]:
    if not is_number(from_) or not is_number(to_):
        raise complaint(key, f"takes numbers for from and to, got {from_!r} and {to_!r}")
    if not is_whole(count_) or count_ < 1:
        raise complaint(key, f"count must be a whole number of at least 1, got {count_!r}: the grid is empty")
    there = memory()
    if there is not None and count_ * VALUE > there:
        raise complaint(
            key,
            f"count = {count_:,} values would take {words(count_ * VALUE)} of memory, and this machine has "
            f"{words(there)}; [random] takes more",
        )
    if not isinstance(spacing_, str) or spacing_ not in SPACINGS:
        raise complaint(key, f"spacing must be one of {', '.join(SPACINGS)}, got {spacing_!r}")
    if spacing_ == "log" and not (from_ > 0 and to_ > 0):
        raise complaint(key, f"log spacing needs positive ends, got {from_!r} and {to_!r}")
    if count_ > 1 and from_ == to_:
        raise complaint(key, f"from and to are both {from_!r}: all {count_} values would be the same")
    with np.errstate(all="ignore"):
        values = SPACINGS[spacing_](float(from_), float(to_), count_)
    if not np.all(np.isfinite(values)):
        raise complaint(key, f"from {from_!r} to {to_!r} is more than numbers of 64 bits can span")
    return values.tolist()


def distribution_of(complaint: Complaint, key: str, given: Any) -> tuple[dict[str, list[float]], str | None]:
    """The distribution of a quantity, such as {uniform = [0.0, 1.0]}, and its unit where one is given."""
    if not isinstance(given, dict):
        raise complaint(key, f"takes a distribution such as {{uniform = [0.0, 1.0]}}, got {given!r}")
    given = dict(given)
    unit = given.pop("unit", None)
    if unit is not None and not isinstance(unit, str):
        raise complaint(key, f'a unit is a text such as "m", got {unit!r}')
    if len(given) != 1 or next(iter(given)) not in DISTRIBUTIONS:
        raise complaint(key, f"takes one distribution of {', '.join(DISTRIBUTIONS)}; got {given!r}")
    ((kind, numbers),) = given.items()
    first, second = DISTRIBUTIONS[kind]
    if not isinstance(numbers, list | tuple) or len(numbers) != 2 or not all(map(is_number, numbers)):
        raise complaint(key, f"{kind} takes two numbers [{first}, {second}], got {numbers!r}")
    a, b = (float(x) for x in numbers)
    if kind == "normal" and b <= 0:
        raise complaint(key, f"the deviation must be positive, got {b!r}")
    if kind != "normal" and not a < b:
        raise complaint(key, f"low must be less than high, got {a!r} and {b!r}")
    if kind == "log-uniform" and a <= 0:
        raise complaint(key, f"log-uniform needs positive ends, got {a!r}")
    if not math.isfinite(b / a if kind == "log-uniform" else b - a):
        raise complaint(key, f"from {a!r} to {b!r} is more than numbers of 64 bits can span")
    return {kind: [a, b]}, unit


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
