"""The plain entries of a spec: numbers, counts, flags and tables, each refused by name where it makes no sense."""

from collections.abc import Mapping
from typing import Any

from dalembert.sweeps.axes import is_number, is_whole
from dalembert.sweeps.complaint import Complaint


class Entries:
    """What the user gave, and the way to complain about it."""

    def __init__(self, given: dict[str, Any], complaint: Complaint):
        self.given, self.complaint = given, complaint

    def table(self, key: str) -> dict[str, Any]:
        """A table, which must have entries where it is there."""
        given = self.given.get(key, {})
        if not isinstance(given, Mapping):
            raise self.complaint(key, f"must be a table, got {given!r}")
        if key in self.given and not given and key != "parameters":
            raise self.complaint(key, "is empty: there is nothing to sweep")
        return dict(given)

    def flat(self, key: str) -> dict[str, Any]:
        """A table in which q0 and v0 may be tables of their own: v0.xi = ... is read as "v0.xi" = ..."""
        flat: dict[str, Any] = {}
        for name, given in self.table(key).items():
            if name in ("q0", "v0") and isinstance(given, Mapping):
                flat |= {f"{name}.{inner}": x for inner, x in given.items()}
            else:
                flat[name] = given
        return flat

    def number(self, key: str, default: Any) -> Any:
        """A finite number."""
        given = self.given.get(key, default)
        if given is not None and not is_number(given):
            raise self.complaint(key, f"must be one finite number, got {given!r}")
        return None if given is None else float(given)

    def positive(self, key: str) -> float | None:
        """A positive number, or None."""
        given = self.number(key, None)
        if given is not None and given <= 0:
            raise self.complaint(key, f"must be positive, got {given!r}")
        return given

    def whole(self, key: str, default: Any, least: int) -> Any:
        """A whole number."""
        given = self.given.get(key, default)
        if given is not None and (not is_whole(given) or given < least):
            raise self.complaint(key, f"must be a whole number of at least {least}, got {given!r}")
        return None if given is None else int(given)

    def flag(self, key: str) -> bool:
        """True or false."""
        given = self.given.get(key, False)
        if not isinstance(given, bool):
            raise self.complaint(key, f"must be true or false, got {given!r}")
        return given
