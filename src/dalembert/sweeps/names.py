"""The quantities of a system that can be swept, and their units."""

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
"""The names of dimensions and of bookkeeping."""


class Quantities:
    """The names that a spec may sweep: method, h, start, parameters, q0.NAME, v0.NAME, and the arguments of the user's
    own `members` function."""

    def __init__(self, kind: Any, members: Callable | None, complaint: Complaint):
        self.kind, self.members, self.complaint = kind, members, complaint
        self.places: dict[str, str] = {}
        """Where in the spec each quantity is swept."""
        self.parameters: dict[str, inspect.Parameter] = (
            {} if isinstance(kind, System) else dict(inspect.signature(kind).parameters)
        )

    @cached_property
    def leaves(self) -> dict[str, Any]:
        """The parameters of a system that was given as a value."""
        return dict(zip(leaf_names(self.kind), jax.tree.leaves(self.kind), strict=True))

    @cached_property
    def taken(self) -> tuple[str, ...]:
        """The arguments of the user's own function."""
        return tuple(inspect.signature(self.members).parameters) if self.members else ()

    def names(self, of: str) -> tuple[str, ...] | None:
        """The names of coordinates or velocity components; None if only an instance knows them."""
        names = getattr(self.kind, "coordinates" if of == "q0" else "velocity_names", None)
        if of == "v0" and isinstance(names, property):  # the coordinates', unless a subclass changes them
            names = self.kind.coordinates if names is System.velocity_names else None
        return names if isinstance(names, tuple) and names else None

    def check(self, where: str, key: str) -> None:
        """Raises the complaint if no quantity has this name."""
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
        """Raises the complaint if a `members` function takes an argument that is not swept."""
        for name in self.taken:
            if name not in swept:
                raise self.complaint("members", f"the function takes {name!r}, which is not swept")

    def unit(self, key: str) -> str:
        """The known unit of a quantity; empty if it is not known."""
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
