"""The entries of a spec as pydantic models, whose errors are told as sentences about keys."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from dalembert.model import wrong
from dalembert.sweeps.spec import Complaint, Values, is_number, memory, words

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(allow_inf_nan=False, gt=0)]
Count = Annotated[int, Field(ge=1, lt=2**63)]


class Table(BaseModel):
    """A table whose keys are known. A text is never taken for a number, nor true for 1."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)


class Section(Table):
    """Where a coordinate crosses a value."""

    coordinate: Annotated[str, Field(description="which coordinate crosses the section?")]
    at: Finite = 0.0
    direction: Literal["up", "down", "both"] = "up"
    count: Count = 100


class Range(Table):
    """Values that are equally spaced, or whose logarithms are."""

    start: Annotated[Finite, Field(alias="from")]
    to: Finite
    count: Count
    spacing: Literal["linear", "log"] = "linear"


class Entries(Table):
    """Everything that a spec may say. What a class, a function or a swept quantity may be is checked by the reader."""

    system: Any = None
    parameters: dict[str, Any] = {}
    method: Any = None
    start: Any = None
    h: Positive | None = None
    steps: Count | None = None
    save_every: Count | None = None
    time: Positive | None = None
    rows: Annotated[int, Field(ge=2, lt=2**63)] | None = None
    t0: Finite = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    project: bool = False
    members: Any = None
    reduce: Any = ("final", "energy")
    window: Positive | None = None
    section: Section | None = None
    block: Count | None = None
    grid: dict[str, Any] = {}
    list: dict[str, Any] = {}
    random: dict[str, Any] = {}


VALUE = 200
"""Bytes that a value of a grid takes: as a number in a list, and as text in the spec and in the store."""
SPACINGS = {"linear": np.linspace, "log": np.geomspace}
DISTRIBUTIONS = {"uniform": ("low", "high"), "normal": ("mean", "deviation"), "log-uniform": ("low", "high")}

T = TypeVar("T", bound=Table)


def fitted(model: type[T], given: Any, complaint: Complaint, what: str, key: str = "") -> T:
    """The entries as the model has them; the first that does not fit is refused.

    A table with a key of its own is refused as a whole, because it stands on one line: the message names the entry.
    """
    try:
        return model.model_validate(plain(given))
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
        path = [str(part) for part in error["loc"]]
        sentence = _sentence(error, model, what)
        raise (
            complaint(key, f"{path[-1]} {sentence}") if key else complaint(".".join(path), sentence)
        ) from None


def plain(given: Any) -> Any:
    """The same with the lists, numbers and dictionaries of Python in place of NumPy's and of other mappings."""
    if isinstance(given, np.ndarray | np.generic):
        return given.tolist()
    if isinstance(given, Mapping):
        return {key: plain(value) for key, value in given.items()}
    if type(given) in (list, tuple, range):  # not a named tuple, which may be anything
        return [plain(value) for value in given]
    return given


def _sentence(error: ErrorDetails, model: type[Table], what: str) -> str:
    kind, got = error["type"], f"got {_short(error['input'])}"
    expected = error.get("ctx", {})
    inner = _inner(error["loc"], model)
    if kind == "extra_forbidden":
        names = [field.alias or name for name, field in inner.model_fields.items()]
        return str(
            wrong(what if inner is model else f"entry of a {error['loc'][0]}", str(error["loc"][-1]), names)
        )
    if kind == "missing":
        return f"is missing: {inner.model_fields[str(error['loc'][-1])].description}"
    if kind == "greater_than":
        return f"must be positive, {got}"
    if kind == "greater_than_equal":
        return f"must be a whole number of at least {expected['ge']}, {got}"
    if kind == "less_than":
        return f"must be less than {expected['lt']}, {got}"
    if kind == "literal_error":
        return f"must be one of {expected['expected'].replace(' or ', ', ').replace(chr(39), '')}, {got}"
    words = {
        "float_type": "must be one finite number",
        "finite_number": "must be one finite number",
        "int_type": "must be a whole number of at least 1",
        "bool_type": "must be true or false",
        "string_type": "must be a text",
        "dict_type": "must be a table",
        "model_type": "must be a table",
        "list_type": "must be a list of finite numbers",
    }
    return f"{words.get(kind, error['msg'])}, {got}"


def _inner(path: tuple[int | str, ...], model: type[Table]) -> type[Table]:
    """The model of the table that holds the entry at `path`."""
    return {"section": Section}.get(str(path[0]), model) if len(path) > 1 else model


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


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
            return _range(complaint, key, given), unit
        else:
            raise complaint(
                key,
                "takes a list of values, {values = [...]}, or {from = 0.1, to = 0.4, count = 30, spacing = "
                f'"linear" or "log"}}; got the keys {", ".join(given) or "(none)"}',
            )
    if not isinstance(given, list):
        raise complaint(key, f"takes a list of values or a range {{from, to, count}}, got {given!r}")
    if not len(given):
        raise complaint(key, "has no values: the grid is empty")
    return _listed(complaint, key, given, again), unit


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


def _range(complaint: Complaint, key: str, given: dict[str, Any]) -> list[float]:
    x = fitted(Range, given, complaint, "entry of a range", key)
    there = memory()
    if there is not None and x.count * VALUE > there:
        raise complaint(
            key,
            f"count = {x.count:,} values would take {words(x.count * VALUE)} of memory, and this machine has "
            f"{words(there)}; [random] takes more",
        )
    if x.spacing == "log" and not (x.start > 0 and x.to > 0):
        raise complaint(key, f"log spacing needs positive ends, got {x.start!r} and {x.to!r}")
    if x.count > 1 and x.start == x.to:
        raise complaint(key, f"from and to are both {x.to!r}: all {x.count} values would be the same")
    with np.errstate(all="ignore"):
        values = SPACINGS[x.spacing](x.start, x.to, x.count)
    if not np.all(np.isfinite(values)):
        raise complaint(key, f"from {x.start!r} to {x.to!r} is more than numbers of 64 bits can span")
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
    if not isinstance(numbers, list) or len(numbers) != 2 or not all(map(is_number, numbers)):
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
