"""Starts that passed their checks: remembered, so that the same run is not checked again, in this process or the next.

The checks depend on the functions of the system and the method, on the numbers of both and of the start, and on nothing
else. On disk, only the first start of each kind of system that a process runs is looked for and kept: checking it
compiles code, whereas checking others then takes a millisecond.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import jax

from dalembert.kernels import cache
from dalembert.model import Kept, as_arrays
from dalembert.numerics import Recent, is_traced, kind_of, lasting_name
from dalembert.simulation.engines import contents

_passed = Recent(64)
_kinds = Recent(256)
"""The kinds of systems and methods of which a start was checked in this process."""


class _Passed:
    """What the checks found: the constraints to keep if others follow from them."""

    def __init__(self, kept: Kept | None):
        self.kept = kept


def kept_by(made: Any, start: Any, look: Callable[[], None], check: Callable[[], Kept | None]) -> Kept | None:
    """What `check` returns for a system and a method (`made`, from `current`) and a start, unless it raises.

    `look` comes before, and refuses what is no system or no method.
    """
    key = contents((made, start))
    found = _passed.find(key)
    if found is None:
        look()
        made = tuple(map(as_arrays, made))
        place = _place(made, start)
        found = _read(place)
        if found is None:
            found = _Passed(check())
            if place is not None:
                cache.keep(place, json.dumps(found.kept, default=int).encode())
        _kinds.keep(kind_of(made), True)
        _passed.keep(key, found)
    return found.kept


def _place(made: Any, start: Any) -> str | None:
    """Where the disk has this start; None if it is not looked for there."""
    if cache.folder() is None or is_traced(made) or _kinds.find(kind_of(made)) is not None:
        return None  # inside traced code even numbers are traced
    name = lasting_name(made)
    if name is None:
        return None
    _, *numbers = contents((made, start))
    text = repr((jax.tree.structure(start), numbers))
    return cache.key_of(name, what="passed", numbers=hashlib.sha256(text.encode()).hexdigest())


def _read(place: str | None) -> _Passed | None:
    text = None if place is None else cache.find(place)
    if text is None:
        return None
    found = json.loads(text)
    return _Passed(None if found is None else Kept(*map(tuple, found)))
