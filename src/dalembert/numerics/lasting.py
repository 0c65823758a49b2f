"""Name what functions read such that another process gives the same name exactly if they read the same there.

Code that was compiled from functions can then be used again without tracing them. `fingerprints` compares what
functions read within one process, where an object is known by its place in memory, and the user knows that a file is
read only once. Between two processes neither helps. So a name is given only if all that the functions may reach is of
a few kinds: the user's own code, numbers, texts and arrays, and the functions of a few packages whose versions are a
part of the name and that take nothing from files, clocks, random generators or the environment. Anything else has no
lasting name, and its functions are traced in each process.
"""

import functools
import hashlib
import importlib.metadata
import os
import sys
import types
from collections.abc import Hashable
from dataclasses import fields
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from dalembert.numerics.fingerprints import Reader, Recent, is_installed, kind_of, static_fields, written
from dalembert.numerics.jax_internals import Primitive
from dalembert.numerics.jax_internals import settings as jax_settings

PACKAGES = {"jax", "jaxlib", "numpy", "scipy", "equinox", "jaxtyping"}
"""Installed packages that functions may use; their versions, and Python's, are a part of the name."""
_STANDARD = {
    "__future__", "abc", "builtins", "cmath", "collections", "dataclasses", "enum", "fractions", "functools",
    "itertools", "math", "numbers", "operator", "types", "typing",
}  # fmt: skip
_BUILT_IN = {
    "abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "int",
    "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min", "next", "object", "pow", "property",
    "range", "reversed", "round", "set", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type",
    "zip", "ArithmeticError", "AssertionError", "Exception", "IndexError", "KeyError", "NotImplemented",
    "NotImplementedError", "TypeError", "ValueError", "__class__",
}  # fmt: skip
"""Built-in names that neither ask the world outside nor look for names that are computed."""
_OUTSIDE = {
    "__dict__", "__getattribute__", "__globals__", "__import__", "config", "ctypeslib", "datasets", "debug",
    "default_backend", "device_count", "devices", "environ", "f2py", "frombuffer", "fromfile", "fromregex",
    "genfromtxt", "getattr", "getenv", "import_module", "io", "io_callback", "load", "load_library", "load_npz",
    "loadarff", "loadmat", "loads", "loadtxt", "local_devices", "memmap", "now", "open", "open_memmap",
    "process_index", "pure_callback", "random", "read", "read_array", "read_bytes", "read_text", "readline",
    "readlines", "today", "tree_deserialise_leaves", "urlopen",
}  # fmt: skip
"""Names in packages that may bring in files, clocks, random numbers or settings."""
_ROOTS = PACKAGES | _STANDARD | {"dalembert"}


def _may_be_used(name: str) -> bool:
    """Whether functions may use a module, or what is in it, by its full name."""
    parts = name.split(".")
    return parts[0] in _ROOTS and not _OUTSIDE & set(parts)


class _LastingReader(Reader):
    """A reader whose values do not depend on the process."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        """What has no lasting name."""

    def name(self, x: Any) -> Hashable:
        if isinstance(x, type) and "from_recipe" in vars(x):
            return (
                "from recipe"  # `dalembert.system` made the class from the recipe alone, which is read, too
            )
        module, name = (
            getattr(x, "__module__", None),
            getattr(x, "__qualname__", getattr(x, "__name__", None)),
        )
        if isinstance(x, np.ufunc):
            module = "numpy"
        if not isinstance(module, str) or not isinstance(name, str) or not _may_be_used(f"{module}.{name}"):
            return self._fault(x)
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        for _ in range(8):  # a function of a package may stand there wrapped
            if found is x:
                return (module, name)
            found = getattr(found, "__wrapped__", None)
        return self._fault(x)

    def code(self, code: types.CodeType) -> Hashable:
        parts = [self._constant(x) for x in code.co_consts]
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        return ("code", code.co_code, code.co_exceptiontable, parts, names, counts)

    def _constant(self, x: Any) -> Hashable:
        if isinstance(x, types.CodeType):
            return self.code(x)
        if isinstance(x, tuple):
            return ("tuple", *map(self._constant, x))
        if isinstance(x, frozenset):
            return ("frozenset", *sorted(repr(self._constant(y)) for y in x))
        return (type(x).__name__, repr(x))

    def members(self, x: Any) -> Hashable:
        if not all(y is None or type(y) in (bool, int, float, str, bytes) for y in x):
            return self._fault(x)  # the order in which their parts are read would be another in each process
        return tuple(sorted(repr(self.read(y)) for y in x))

    def elsewhere(self, name: str) -> None:
        if name not in _BUILT_IN and name.partition(".")[0] not in _ROOTS:
            self.faults.append(name)

    def _fault(self, x: Any) -> Hashable:
        self.faults.append(type(x).__name__)
        return None

    def _object(self, x: Any) -> Hashable:
        if isinstance(x, types.ModuleType) and is_installed(x.__name__):
            if not _may_be_used(x.__name__) or x.__name__ == "builtins":
                return self._fault(x)
        elif isinstance(x, Primitive):
            return self._fault(x)  # what a primitive means is registered elsewhere
        return super()._object(x)

    def tree(self, x: Any) -> Hashable:
        """The classes, static fields and shapes of a system, a method, or several of them."""
        if isinstance(x, eqx.Module):
            held = {f.name: getattr(x, f.name) for f in fields(x) if not f.metadata.get("static", False)}  # pyright: ignore[reportArgumentType]
            parts = tuple((name, self.tree(value)) for name, value in held.items())
            return ("module", self.kind(written(type(x))), self.read(tuple(static_fields(x).items())), parts)
        if isinstance(x, tuple | list):
            return (self.name(type(x)) if hasattr(x, "_fields") else type(x).__name__, *map(self.tree, x))
        if isinstance(x, dict):
            return ("dict", *((self.read(key), self.tree(value)) for key, value in x.items()))
        if x is None:
            return None
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            return self._fault(x)
        return ("array", tuple(x.shape), str(x.dtype))


@functools.cache
def _surroundings() -> tuple:
    """The versions of everything that takes part in tracing, and the library's own source."""
    root = Path(__file__).parent.parent
    source = []
    for folder, _, files in sorted(os.walk(root)):
        for file in sorted(files):
            if file.endswith(".py"):
                state = os.stat(os.path.join(folder, file))
                source.append((os.path.relpath(folder, root), file, state.st_size, state.st_mtime_ns))
    versions = [(package, importlib.metadata.version(package)) for package in sorted(PACKAGES)]
    return sys.version, tuple(versions), tuple(source)


_names = Recent(256)


def lasting_name(tree: Any) -> str | None:
    """The name of the functions of systems and methods, and of the shapes of their numbers; None if there is none.

    `current` must have returned the tree.
    """
    settings = jax_settings()
    if " at 0x" in settings:
        return None
    key = (kind_of(tree), settings)
    found = _names.find(key)
    return (_names.keep(key, _name(tree, settings)) if found is None else found) or None


def _name(tree: Any, settings: str) -> str:
    found, faults = _read(tree)
    return "" if faults else hashlib.sha256(repr((found, settings, _surroundings())).encode()).hexdigest()


def faults_of(tree: Any) -> list[str]:
    """Why a tree has no lasting name: names and kinds of what its functions read."""
    return _read(tree)[1]


def _read(tree: Any) -> tuple[Hashable, list[str]]:
    reader = _LastingReader()
    found = (reader.tree(tree), reader.inside_modules())
    traced = ["a value that JAX is tracing"] if reader.traced else []
    return found, [*reader.faults, *reader.opaque, *traced, *sorted(_OUTSIDE & set(reader.attributes))]
