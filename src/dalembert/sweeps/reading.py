"""From what the user wrote, a TOML file or a dictionary, to a checked spec; nothing is computed here."""

import inspect
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from dalembert.methods import Method, method_named
from dalembert.model import System, wrong
from dalembert.sweeps.names import Quantities
from dalembert.sweeps.reductions import REDUCTIONS
from dalembert.sweeps.spec import (
    METHOD,
    START,
    STEP,
    Axis,
    Complaint,
    Spec,
    Values,
    is_number,
    is_whole,
    memory,
    name_of,
    named,
    source_of,
    unsendable,
    words,
)

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


MOST = 2.0**53
"""Steps of a run: beyond it, numbers of 64 bits do not tell a step from the next."""
Find = Callable[[str], Any]
"""The class of a system from its name."""


def read(spec: Any, find: Find) -> Spec:
    """The checked spec; ValueError with the key, and of a file the line, of what is wrong."""
    if isinstance(spec, Spec):
        return spec
    complaint = Complaint()
    if isinstance(spec, str | Path):
        path = Path(spec)
        if not path.is_file():
            raise FileNotFoundError(f"no spec at {path}: expected a TOML file, or a dictionary from Python")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path.name} is not a TOML file: it is not text in UTF-8 ({error})") from None
        complaint = Complaint(path.name, text)
        try:
            spec = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # of tomllib, and of numbers with too many digits
            raise ValueError(f"{path.name}: {error}") from None
    if not isinstance(spec, Mapping):
        raise ValueError(f"a spec is the path of a TOML file or a dictionary, got {type(spec).__name__}")
    return Reader(fitted(Entries, spec, complaint, "entry of a spec"), complaint, find).read()


class Reader:
    """Goes through a spec, key by key, and checks what its entries mean."""

    def __init__(self, given: Entries, complaint: Complaint, find: Find):
        self.given, self.complaint = given, complaint
        self.objects: dict[str, Any] = {}
        self.units: dict[str, str] = {}
        self.sources: dict[str, str | None] = {}
        self.kind = self._system(find)
        maker = None if given.members is None else self._function("members", given.members)
        self.made = None if maker is None else self._keep(maker)
        self.known = Quantities(self.kind, maker, complaint)

    def read(self) -> Spec:
        """Everything, checked."""
        axes = self._axes()
        if not axes:
            raise self.complaint("grid", "nothing is swept; give [grid], [list] or [random]")
        swept = [key for axis in axes for key in axis.keys]
        for key in swept:
            if swept.count(key) > 1:
                raise self.complaint(self.known.places[key], "is swept twice; keep one")
        self.known.all_taken(swept)
        length = self._length(axes, swept)
        entries = {
            "system": self.system_name,
            "instance": self._instance(),
            "parameters": self._parameters(swept),
            "method": self._method(swept),
            "start": self._start(swept),
            **length,
            "t0": self.given.t0,
            "seed": self.given.seed,
            "project": self.given.project,
            "members": self.made,
            "reduce": self._reduce(),
            "window": self.given.window,
            "section": self._section(),
            "block": self.given.block,
            "axes": [list(axis) for axis in axes],
            "units": self.units,
            "sources": {name: digest for name, digest in sorted(self.sources.items()) if digest},
        }
        if ("section" in entries["reduce"]) != (entries["section"] is not None):
            which = "section" if entries["section"] is None else "reduce"
            raise self.complaint(which, 'a section needs both [section] and "section" in reduce')
        return Spec(entries, self.objects)

    def _axes(self) -> list[Axis]:
        """The dimensions."""
        return [*self._grid(), *self._list(), *self._random()]

    def _flat(self, key: str) -> dict[str, Any]:
        """A table in which q0 and v0 may be tables of their own: v0.xi = ... is read as "v0.xi" = ..."""
        flat: dict[str, Any] = {}
        table = getattr(self.given, key)
        if key in self.given.model_fields_set and not table:
            raise self.complaint(key, "is empty: there is nothing to sweep")
        for name, given in table.items():
            if name in ("q0", "v0") and isinstance(given, dict):
                flat |= {f"{name}.{inner}": x for inner, x in given.items()}
            else:
                flat[name] = given
        return flat

    def _grid(self) -> list[Axis]:
        axes = []
        for key, given in self._flat("grid").items():
            values = self._values("grid", key, given)
            axes.append(Axis(named(key), len(values), {key: values}))
        return axes

    def _list(self) -> list[Axis]:
        columns = {key: self._values("list", key, given, True) for key, given in self._flat("list").items()}
        sizes = {key: len(values) for key, values in columns.items()}
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"{key} {n}" for key, n in sizes.items())
            raise self.complaint("list", f"columns must be of one length, one entry per case; got {counts}")
        return [Axis("case", next(iter(sizes.values())), columns)] if columns else []

    def _values(self, table: str, key: str, given: Any, again: bool = False) -> Any:
        where = f"{table}.{key}"
        self.known.check(where, key)
        if key == METHOD and isinstance(given, list):
            given = [self.spelled(where, x) for x in given]
        values, unit = values_of(self.complaint, where, given, again)
        self._unit(where, key, unit)
        if key in (METHOD, START) and not isinstance(values[0], str):
            raise self.complaint(where, f"takes names, got {values[0]!r}")
        if key.startswith(("q0.", "v0.")) and isinstance(values[0], str):
            raise self.complaint(where, f"takes numbers, got {values[0]!r}")
        default = getattr(self.known.parameters.get(key), "default", None)
        if is_number(default) and isinstance(values[0], str):
            raise self.complaint(where, f"takes numbers, got {values[0]!r}")
        return values

    def _random(self) -> list[Axis]:
        given = self._flat("random")
        if not given:
            return []
        count = given.pop("count", None)
        if not is_whole(count) or count < 1:
            raise self.complaint("random.count", f"must be a whole number of at least 1, got {count!r}")
        if not given:
            raise self.complaint("random", "has no quantity to draw")
        draws = {}
        for key, each in given.items():
            where = f"random.{key}"
            self.known.check(where, key)
            if key in (METHOD, START):
                raise self.complaint(where, "cannot be drawn at random; put it into [grid] or [list]")
            draws[key], unit = distribution_of(self.complaint, where, each)
            self._unit(where, key, unit)
        return [Axis("sample", int(count), {}, draws)]

    def _unit(self, where: str, key: str, unit: str | None) -> None:
        known = self.known.unit(key)
        if unit is not None and known and unit != known:
            raise self.complaint(where, f"is measured in {known}, got {unit}; convert the values")
        if unit or known:
            self.units[key] = unit or known

    def sendable(self, key: str, thing: Any) -> None:
        """Refuses a class that worker processes could not import."""
        name = unsendable(thing)
        if name is not None:
            raise self.complaint(
                key,
                f"the class {name} is made in a script, a notebook or a function, where worker processes cannot "
                "import it; put it into a file of its own and import it from there",
            )

    def spelled(self, key: str, given: Any) -> str:
        """The spelling of a method, which may be given as a value."""
        if isinstance(given, Method):
            try:
                if method_named(given.cli_name) == given:
                    return given.cli_name
            except ValueError:
                pass
            self.sendable(key, given)
            self.objects[given.cli_name] = given
            return given.cli_name
        if not isinstance(given, str):
            raise self.complaint(key, f'must be a method such as "frame" or FrameGradient(), got {given!r}')
        try:
            method_named(given)
        except ValueError as error:
            raise self.complaint(key, str(error)) from None
        return given

    def _keep(self, thing: Any) -> str:
        """The name of a class or function; what cannot be imported by it is sent along."""
        name, importable = name_of(thing)
        if not importable:
            base, count = name, 1
            while self.objects.get(name, thing) is not thing:  # two lambdas have the same name
                count += 1
                name = f"{base}#{count}"
            self.objects[name] = thing
        self.sources[name] = source_of(thing)
        return name

    def _system(self, find: Find) -> Any:
        given = self.given.system
        if given is None:
            raise self.complaint("system", 'is missing; name one of the zoo, or your own as "module:Class"')
        try:
            kind = find(given) if isinstance(given, str) else given
        except ValueError as error:
            raise self.complaint("system", str(error)) from None
        if isinstance(kind, System):
            self.system_name = given if isinstance(given, str) else f"{kind.label} (a value)"
            if not isinstance(given, str):
                own = {"parameters": getattr(kind, "parameters", None)}
                self.objects[self.system_name] = kind if kind.recipe is None else kind.recipe.arguments | own
                self.sendable("system", self.objects[self.system_name])
            self.sources[self.system_name] = source_of(type(kind)) if kind.recipe is None else None
            for part, function in (kind.recipe.arguments if kind.recipe else {}).items():
                self.sources[f"{part} of {self.system_name}"] = (
                    source_of(function) if callable(function) else None
                )
        elif inspect.isclass(kind) and issubclass(kind, System):
            self.sendable("system", kind)
            self.system_name = self._keep(kind)
        else:
            raise self.complaint("system", f"must be a system, its class or its name, got {kind!r}")
        return kind

    def _instance(self) -> dict[str, Any] | None:
        """The parameters of a system that was given as a value."""
        if not isinstance(self.kind, System):
            return None
        return {name: np.asarray(x).tolist() for name, x in self.known.leaves.items()}

    def _function(self, key: str, given: Any) -> Any:
        """A function of the user's, given itself or by its name."""
        try:
            found = Spec({}).thing(given) if isinstance(given, str) else given
        except ValueError as error:
            raise self.complaint(key, str(error)) from None
        if not callable(found):
            raise self.complaint(key, f'must be a function or its name "module:function", got {given!r}')
        return found

    def _parameters(self, swept: list[str]) -> dict[str, Any]:
        given = dict(self.given.parameters)
        for key, value in given.items():
            where = f"parameters.{key}"
            if isinstance(self.kind, System):
                raise self.complaint(where, "the system is a value already; give its class to set parameters")
            if key not in self.known.parameters:
                message = wrong(f"parameter of {self.kind.__name__}", key, self.known.parameters)
                raise self.complaint(where, str(message))
            if key in swept:
                raise self.complaint(where, "is swept as well; keep one")
            if not isinstance(value, str | bool) and not is_number(value) and not _is_array(value):
                raise self.complaint(
                    where, f"must be a finite number, a list of such, or a text, got {value!r}"
                )
        if not isinstance(self.kind, System):
            for key, p in self.known.parameters.items():
                required = p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
                if required and key not in (*given, *swept) and not self.made:
                    raise self.complaint("parameters", f"{self.kind.__name__} needs a value for {key}")
        return given

    def _method(self, swept: list[str]) -> str | None:
        given = self.given.method
        if given is None:
            if METHOD not in swept:
                raise self.complaint("method", 'is missing; give one such as "frame", or a list in [grid]')
            return None
        if METHOD in swept:
            raise self.complaint("method", "is swept as well; keep one")
        return self.spelled("method", given)

    def _start(self, swept: list[str]) -> Any:
        given = self.given.start
        if given is not None and START in swept:
            raise self.complaint("start", "is swept as well; keep one")
        if given is None or isinstance(given, str):
            return given
        if not isinstance(given, dict) or set(given) != {"q", "v"}:
            raise self.complaint("start", "takes a name, or {q = [...], v = [...]}")
        for part in ("q", "v"):
            if not isinstance(given[part], list) or not all(map(is_number, given[part])):
                raise self.complaint(
                    f"start.{part}", f"must be a list of finite numbers, got {given[part]!r}"
                )
        return {part: [float(x) for x in given[part]] for part in ("q", "v")}

    def _section(self) -> dict[str, Any] | None:
        given, names = self.given.section, self.known.names("q0")
        if given is None:
            return None
        if names is not None and given.coordinate not in names:
            raise self.complaint("section.coordinate", str(wrong("coordinate", given.coordinate, names)))
        return given.model_dump()

    def _length(self, axes: list[Axis], swept: list[str]) -> dict[str, Any]:
        """Step size, number of steps and rows kept."""
        h = self.given.h
        if h is None and STEP not in swept and not self.made:
            h = self.kind.step
            if not is_number(h):
                raise self.complaint("h", "is missing; give a step size, or values in [grid]")
        if self.given.h is not None and STEP in swept:
            raise self.complaint("h", "is swept as well; keep one")
        for axis in axes:
            for x in axis.columns.get(STEP, ()):
                if isinstance(x, str) or x <= 0:
                    raise self.complaint(self.known.places[STEP], f"a step must be positive, got {x!r}")
            for kind, (a, _) in axis.draws.get(STEP, {}).items():
                if kind == "normal" or a <= 0:
                    raise self.complaint(
                        self.known.places[STEP], "a step must be positive; draw it from such values"
                    )
        steps, time = self.given.steps, self.given.time
        if (steps is None) == (time is None):
            raise self.complaint("steps", "give either steps, or time and the steps follow from h")
        every, rows = self.given.save_every, self.given.rows
        if every is not None and time is not None:
            raise self.complaint("save_every", "goes with steps; with time give rows, how many are kept")
        if rows is not None and steps is not None:
            raise self.complaint("rows", "goes with time; with steps give save_every")
        entries = {"h": h, "steps": steps, "save_every": every, "time": time, "rows": rows}
        smallest = [x for axis in axes for x in axis.columns.get(STEP, ())] + [
            ends[0] for axis in axes for ends in axis.draws.get(STEP, {}).values()
        ]
        for size in smallest or ([] if h is None else [h]):
            count = time / float(size) if time is not None else steps or 0
            if not count <= MOST:
                raise self.complaint(
                    "steps" if time is None else "time",
                    f"a run would have {count:.3g} steps, and no more than {MOST:.3g} can be counted; "
                    "make it shorter",
                )
        return entries

    def _reduce(self) -> list[str]:
        given = self.given.reduce
        entries = list(given.items()) if isinstance(given, Mapping) else given
        if not isinstance(entries, list | tuple) or not len(entries):
            raise self.complaint("reduce", f'takes a list such as ["final", "energy"], got {given!r}')
        names = []
        for each in entries:
            name, function = each if isinstance(each, tuple) else (None, each)
            if isinstance(function, str) and ":" not in function:
                if function not in REDUCTIONS:
                    raise self.complaint("reduce", str(wrong("reduction", function, REDUCTIONS)))
                names.append(function)
                continue
            full = self._keep(self._function("reduce", function))
            names.append(f"{name}={full}" if name else full)
        if len(set(names)) != len(names):
            raise self.complaint("reduce", f"names a reduction twice: {', '.join(names)}")
        return names


def _is_array(value: Any) -> bool:
    """Whether a value is a list of numbers, or of lists of one shape."""
    if not isinstance(value, list) or not value:
        return False
    return all(map(is_number, value)) or (all(map(_is_array, value)) and len({len(x) for x in value}) == 1)
