"""Which quantities a system lets one sweep, and their units."""

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax

from dalembert.model import System, wrong
from dalembert.sweeps.spec import METHOD, START, STEP, Complaint, leaf_names

TAKEN = (
    "integrator",
    "case",
    "sample",
    "block",
    "coordinate",
    "velocity",
    "integral",
    "crossing",
    "done",
    "attempts",
    "status",
    "steps_done",
)
"""Names of dimensions and of bookkeeping."""


class Quantities:
    """The names that a spec may sweep: method, h, start, parameters, q0.NAME, v0.NAME, and those that the user's own
    `members` function takes."""

    def __init__(self, kind: Any, members: Callable | None, complaint: Complaint):
        self.kind, self.members, self.complaint = kind, members, complaint
        self.places: dict[str, str] = {}
        """Where in the spec each quantity is swept."""
        self.parameters: dict[str, inspect.Parameter] = (
            {} if isinstance(kind, System) else dict(inspect.signature(kind).parameters)
        )

    @cached_property
    def leaves(self) -> dict[str, Any]:
        """The parameters of a system that is a value."""
        return dict(zip(leaf_names(self.kind), jax.tree.leaves(self.kind), strict=True))

    @cached_property
    def taken(self) -> tuple[str, ...]:
        """What the user's own function takes."""
        return tuple(inspect.signature(self.members).parameters) if self.members else ()

    def names(self, of: str) -> tuple[str, ...] | None:
        """Coordinates or components of the velocity; None where only an instance can tell."""
        names = getattr(self.kind, "coordinates" if of == "q0" else "velocity_names", None)
        if of == "v0" and isinstance(names, property):  # the coordinates', unless a subclass says otherwise
            names = self.kind.coordinates if names is System.velocity_names else None
        return names if isinstance(names, tuple) and names else None

    def check(self, where: str, key: str) -> None:
        """Refuses the name of a quantity that there is not."""
        self.places[key] = where
        of, dot, name = key.partition(".")
        if dot and of in ("q0", "v0"):
            names = self.names(of)
            if names is not None and name not in names:
                what = "coordinate" if of == "q0" else "velocity"
                raise self.complaint(where, str(wrong(f"{what} of {self._label()}", name, names)))
            return
        if key in TAKEN:
            raise self.complaint(where, f"{key!r} is the name of a dimension of the result; rename it")
        own = self.leaves if isinstance(self.kind, System) else self.parameters
        if key not in (METHOD, STEP, START, *own, *self.taken):
            choices = (METHOD, STEP, START, *own, *self.taken, *(f"q0.{x}" for x in self.names("q0") or ()))
            raise self.complaint(where, str(wrong(f"parameter of {self._label()}", key, choices)))

    def all_taken(self, swept: list[str]) -> None:
        """Refuses a `members` function that takes what is not swept."""
        for name in self.taken:
            if name not in swept:
                raise self.complaint("members", f"the function takes {name!r}, which is not swept")

    def unit(self, key: str) -> str:
        """The unit that a quantity is known to have; empty where none is."""
        units, names = getattr(self.kind, "units", ()), self.names("q0") or ()
        of, _, name = key.partition(".")
        if not isinstance(units, tuple) or not units or len(units) != len(names):
            return ""
        if key == STEP:
            return "s"
        if of in ("q0", "v0") and name in names:
            unit = units[names.index(name)]
            return unit if of == "q0" or not unit else f"{unit}/s"
        return ""

    def _label(self) -> str:
        return self.kind.label if isinstance(self.kind, System) else self.kind.__name__
