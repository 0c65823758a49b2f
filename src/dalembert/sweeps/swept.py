"""What a spec sweeps: the tables grid, list and random."""

from typing import Any

from dalembert.methods import Method, method_named
from dalembert.sweeps.axes import Axis, distribution_of, is_number, is_whole, values_of
from dalembert.sweeps.complaint import Complaint
from dalembert.sweeps.entries import Entries
from dalembert.sweeps.names import Quantities
from dalembert.sweeps.spec import METHOD, START, named, unsendable


class Swept(Entries):
    """The three tables, and the units of what stands in them."""

    known: Quantities

    def __init__(self, given: dict[str, Any], complaint: Complaint):
        super().__init__(given, complaint)
        self.objects: dict[str, Any] = {}
        self.units: dict[str, str] = {}

    def axes(self) -> list[Axis]:
        """The dimensions."""
        return [*self._grid(), *self._list(), *self._random()]

    def _grid(self) -> list[Axis]:
        axes = []
        for key, given in self.flat("grid").items():
            values = self._values("grid", key, given)
            axes.append(Axis(named(key), len(values), {key: values}))
        return axes

    def _list(self) -> list[Axis]:
        columns = {key: self._values("list", key, given, True) for key, given in self.flat("list").items()}
        sizes = {key: len(values) for key, values in columns.items()}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{key} {n}" for key, n in sizes.items())
            raise self.complaint("list", f"columns must be of one length, one entry a case; got {told}")
        return [Axis("case", next(iter(sizes.values())), columns)] if columns else []

    def _values(self, table: str, key: str, given: Any, again: bool = False) -> Any:
        where = f"{table}.{key}"
        self.known.check(where, key)
        if key == METHOD and isinstance(given, list | tuple):
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
        given = self.flat("random")
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
                if method_named(given.spelling) == given:
                    return given.spelling
            except ValueError:
                pass
            self.sendable(key, given)
            self.objects[given.spelling] = given
            return given.spelling
        if not isinstance(given, str):
            raise self.complaint(key, f'must be a method such as "frame" or FrameGradient(), got {given!r}')
        try:
            method_named(given)
        except ValueError as error:
            raise self.complaint(key, str(error)) from None
        return given
