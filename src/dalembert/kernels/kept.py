"""Time loops whose machine code an earlier process made: they run without tracing any function."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from dalembert.kernels import cache
from dalembert.kernels.graph import Unsupported
from dalembert.kernels.native import Machine, TimeLoop, origin
from dalembert.kernels.traced import Made


class KeptLoop(TimeLoop):
    """A time loop that traces its functions only if its machine code is not on the disk.

    Its outline (the shapes of a carry and a row) is kept on the disk, too, beside the keys of its code.
    """

    def __init__(self, name: str, made: Made, make: Callable[[], TimeLoop], outline: dict[str, Any]):
        super().__init__(made, *map(decoded, outline["examples"]))
        self.distinct, self.copies = outline["distinct"], outline["copies"]
        self._name, self._make, self._lanes = name, make, outline["lanes"]

    @property
    def lanes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of members that `many` runs side by side."""
        return self._lanes

    @cached_property
    def whole(self) -> TimeLoop:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The loop with its traced functions."""
        return self._make()

    def machine(self) -> Machine:
        """The functions `start` and `run`."""
        return self._found("one", lambda: self.whole.machine())

    def machine_of_many(self, varied: Sequence[bool]) -> Machine:
        """The function `many`."""
        which = "".join(str(int(x)) for x in varied)
        return self._found(f"many {which}", lambda: self.whole.machine_of_many(varied))

    def _found(self, what: str, make: Callable[[], Machine]) -> Machine:
        place = _key(self._name, what)
        keys = (cache.find(place) or b"").decode("ascii", "replace").split()
        codes = {key: cache.find(key) for key in keys if re.fullmatch("[0-9a-f]{64}", key)}
        found = {key: code for key, code in codes.items() if code is not None}
        if keys and len(found) == len(keys):
            return Machine(found)
        made = make()
        cache.keep(place, " ".join(made.keys).encode())
        return made


def kept_loop(name: str, made: Made, make: Callable[[], TimeLoop]) -> TimeLoop:
    """The loop of this name, traced by `make` if no earlier process made it, or if nothing is kept."""
    if cache.folder() is None:
        return make()
    try:
        place = _key(name, "outline")
    except Unsupported:  # there is no compiler, but GPUs need none
        return make()
    text = cache.find(place)
    try:
        if text is not None:
            return KeptLoop(name, made, make, json.loads(text))
    except (LookupError, TypeError, ValueError):
        pass  # it names a class that is not here
    loop = make()
    try:
        examples = [encoded(x) for x in loop.examples]
    except TypeError:
        return loop
    outline = {"examples": examples, "distinct": loop.distinct, "copies": loop.copies, "lanes": loop.lanes}
    cache.keep(place, json.dumps(outline).encode())
    kept = KeptLoop(name, made, make, outline)
    kept.__dict__["whole"] = loop
    return kept


def _key(name: str, what: str) -> str:
    return cache.key_of(name, what=what, **origin())


def encoded(x: Any) -> Any:
    """A tree of shapes and types as JSON has it; TypeError if it is made of anything but tuples, lists and dicts."""
    if x is None:
        return None
    if isinstance(x, jax.ShapeDtypeStruct):
        return {"shape": list(x.shape), "dtype": str(x.dtype)}
    if isinstance(x, dict) and all(isinstance(key, str) for key in x):
        return {"dict": {key: encoded(value) for key, value in x.items()}}
    if type(x) in (tuple, list):
        return {type(x).__name__: [encoded(y) for y in x]}
    if isinstance(x, tuple) and _known(type(x).__module__, type(x).__qualname__) is type(x):
        return {"class": [type(x).__module__, type(x).__qualname__], "parts": [encoded(y) for y in x]}
    raise TypeError(f"a {type(x).__name__} cannot be kept")


def decoded(x: Any) -> Any:
    """The tree that was encoded. Named tuples must be of classes that this process has."""
    if x is None:
        return None
    if "shape" in x:
        return jax.ShapeDtypeStruct(tuple(x["shape"]), np.dtype(x["dtype"]))
    if "dict" in x:
        return {key: decoded(value) for key, value in x["dict"].items()}
    if "class" in x:
        return _known(*x["class"])(*map(decoded, x["parts"]))
    return tuple(map(decoded, x["tuple"])) if "tuple" in x else list(map(decoded, x["list"]))


def _known(module: str, name: str) -> Any:
    """The class of named tuples of this name in a module that is here."""
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise TypeError(f"{module}.{name} is not a class of named tuples here")
    return found
