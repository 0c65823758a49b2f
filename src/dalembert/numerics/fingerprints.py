"""Track what functions read besides their arguments, so that no compiled code is used after that has changed.

JAX traces a function once for each kind of argument, and the kind of a system is its class with its static fields. A
number in a closure, a global, a default, a class attribute or a replaced method is not part of the kind, so a run after
such a change would repeat the run before. This module reads and compares all of it. If the functions of a system read
something else, the system gets a class of its own, or a recipe of its own if it was made from functions, before any
compiled code sees it. Equal functions share one, as when a notebook cell is run again.
"""

import contextlib
import contextvars
import dis
import functools
import hashlib
import sys
import threading
import types
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np

from dalembert.numerics.jax_internals import Jitted, Tracer


class Recent(OrderedDict):
    """A cache of the most recently used values; older values are dropped, and their machine code with them."""

    def __init__(self, most: int):
        super().__init__()
        self.most, self.lock = most, threading.Lock()

    def find(self, key: Any) -> Any:
        """The value under this key, or None."""
        with self.lock:
            if key in self:
                self.move_to_end(key)
            return self.get(key)

    def keep(self, key: Any, value: Any) -> Any:
        """Stores the value; returns the value that is there now, an earlier one if two threads made it at once."""
        with self.lock:
            value = self.setdefault(key, value)
            self.move_to_end(key)
            while len(self) > self.most:
                self.popitem(last=False)
            return value


T = TypeVar("T")

# The largest number of objects that are compared. Beyond it a change cannot be noticed, and a warning says so.
_MOST = 20_000
# The number of kinds of systems and methods that are remembered.
_KINDS = 256

_OWN = ("dalembert.zoo",)
"""Parts of the library whose functions users may replace."""


@functools.cache
def is_installed(module: str) -> bool:
    """Whether a module is installed software, whose functions do not change while a program runs."""
    if module.startswith(_OWN):
        return False
    top = module.partition(".")[0]
    if top == "dalembert" or (top in sys.stdlib_module_names and top != "__main__"):
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file or _recorded(Path(file), top)


def _recorded(file: Path, top: str) -> bool:
    """Whether an installer put this package there: pip's --target takes a folder of any name, with records beside."""
    if not file.name:  # typed into an interpreter
        return False
    folder = file.parent.parent if file.stem == "__init__" else file.parent
    prefixes = (f"{top}/", f"{top}.")
    for record in folder.glob("*.dist-info/RECORD"):
        with contextlib.suppress(OSError), record.open(encoding="utf-8", errors="replace") as lines:
            if any(line.startswith(prefixes) for line in lines):
                return True
    return False


class _Reads(NamedTuple):
    """What a function and the functions inside it read, by name."""

    names: tuple[str, ...]
    """Globals."""
    attributes: tuple[str, ...]
    """Attributes of anything, and words in quotes, which getattr may be given."""
    imports: tuple[str, ...]
    """Modules that the function imports when it runs."""


@functools.lru_cache(maxsize=4096)
def _reads(code: types.CodeType) -> _Reads:
    found: dict[str, list[str]] = {"names": [], "attributes": [], "imports": []}
    kinds = {
        "LOAD_GLOBAL": "names", "LOAD_NAME": "names",
        "LOAD_ATTR": "attributes", "LOAD_METHOD": "attributes", "IMPORT_FROM": "attributes",
        "IMPORT_NAME": "imports",
    }  # fmt: skip
    for step in dis.get_instructions(code):
        if step.opname in kinds:
            found[kinds[step.opname]].append(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, str) and constant.isidentifier():
            found["attributes"].append(constant)
        elif isinstance(constant, types.CodeType):
            for name, more in _reads(constant)._asdict().items():
                found[name] += more
    return _Reads(**{name: tuple(dict.fromkeys(words)) for name, words in found.items()})


_NOTHING = object()
_PLAIN = int | float | complex | str | bytes | tuple | list | set | frozenset | dict | np.ndarray
_BOUND = types.MethodType | types.BuiltinMethodType | types.MethodWrapperType


class Recipe:
    """The arguments that a system was made from, as a static field of the system.

    With recipes many systems share one class; JAX would keep every class for ever. A recipe equals only itself.
    """

    __slots__ = ("__weakref__", "arguments")

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments


class _Places:
    """The places where functions found what they read.

    As long as the same objects are in these places, and are not mutable, a second look, which is fifty times quicker,
    shows that nothing has changed.
    """

    def __init__(self) -> None:
        self.cells: list[tuple[Any, Any]] = []
        self.names: list[tuple[Any, str, Any]] = []
        self.functions: list[tuple[Any, Any, Any, Any]] = []
        self.classes: list[tuple[type, Any, int]] = []
        self.whole = True
        """Whether a second look suffices for everything that was read; not if there are lists, arrays or objects."""

    def unchanged(self) -> bool:
        """Whether the same objects are still there."""
        try:
            for cell, value in self.cells:
                if cell.cell_contents is not value:
                    return False
        except ValueError:  # a cell is empty by now
            return False
        for names, name, value in self.names:
            if names.get(name, _NOTHING) is not value:
                return False
        for f, code, a, b in self.functions:
            if f.__code__ is not code or f.__defaults__ is not a or f.__kwdefaults__ is not b:
                return False
        return all(x.__mro__ is mro and len(x.__dict__) == size for x, mro, size in self.classes)


class Reader:
    """Turns what functions read into one value that can be compared."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.alive: list[Any] = []  # keeps the objects alive, so that no id is used twice
        self.opaque: list[str] = []
        self.traced = False
        self.places = _Places()
        self.modules: dict[str, types.ModuleType] = {}
        self.attributes: dict[str, None] = {"__getattr__": None}  # a module's own way to find names

    # A reader whose values other processes share overrides these four.

    def name(self, x: Any) -> Hashable:
        """What tells an object of installed software from all others."""
        return id(x)

    def code(self, code: types.CodeType) -> Hashable:
        """What tells the code of a function from all other code."""
        return code

    def members(self, x: Any) -> Hashable:
        """The values of a set."""
        return frozenset(map(self.read, x))

    def elsewhere(self, name: str) -> None:
        """Notes a name that a function reads from somewhere else: it is built in, or not there yet."""

    def inside_modules(self) -> Hashable:
        """What the functions that were read so far may find in the user's modules that they reach."""
        found: dict[tuple[str, str], Hashable] = {}
        before = -1
        while before < len(found):  # what is found may reach further modules
            before = len(found)
            for name, module in list(self.modules.items()):
                for key in list(self.attributes):
                    if (name, key) not in found:
                        value = self._at(vars(module), key)
                        found[name, key] = None if value is _NOTHING else self.read(value)
        return tuple(item for item in found.items() if item[1] is not None)

    def read(self, x: Any) -> Hashable:
        """A value that two objects share only if functions cannot tell them apart."""
        if x is None or type(x) in (bool, int, str, bytes):
            return (type(x).__name__, x)
        if type(x) in (float, complex) or isinstance(x, np.generic):
            return (type(x).__name__, repr(x))
        if isinstance(x, Tracer):
            self.traced = True
            return ("traced", id(x))
        if id(x) in self.seen:
            return ("again", self.seen[id(x)])
        self.seen[id(x)] = len(self.seen)
        self.alive.append(x)
        if len(self.seen) > _MOST:
            return self._unknown(x)
        if isinstance(x, np.ndarray | list | set | dict | types.MappingProxyType):
            self.places.whole = False
        return (self._object(x), self._added(x)) if isinstance(x, _PLAIN) else self._object(x)

    def _added(self, x: Any) -> Hashable:
        """What a user's kind of number, text, list, dict or array has beside its contents."""
        if is_installed(type(x).__module__):
            return None
        self.places.whole = False
        return (self.read(type(x)), self.read(_held(x)))

    def _object(self, x: Any) -> Hashable:
        for plain in (int, float, complex, str, bytes):
            if isinstance(x, plain):
                return (type(x).__name__, plain.__repr__(x))  # pyright: ignore[reportArgumentType]
        if isinstance(x, np.ndarray | jax.Array):
            return self._array(x)
        if isinstance(x, tuple | list):
            return (type(x).__name__, *map(self.read, x))
        if isinstance(x, set | frozenset):
            return (type(x).__name__, self.members(x))
        if isinstance(x, dict | types.MappingProxyType):
            return ("dict", *((self.read(key), self.read(value)) for key, value in x.items()))
        if isinstance(x, staticmethod | classmethod):
            return (type(x).__name__, self.read(x.__func__))
        if isinstance(x, property):
            return ("property", *map(self.read, (x.fget, x.fset)))
        if isinstance(x, types.ModuleType):
            if not is_installed(x.__name__):
                self.modules.setdefault(x.__name__, x)
            return ("module", x.__name__)
        if isinstance(x, Recipe):
            found = {name: self._at(x.arguments, name) for name in x.arguments}
            return ("recipe", *((name, self.read(value)) for name, value in found.items()))
        if isinstance(x, functools.partial):
            self.places.whole = False
            return ("partial", self.read(x.func), self.read(x.args), self.read(x.keywords))
        if is_installed(getattr(x, "__module__", None) or type(x).__module__) and not isinstance(
            x, eqx.Module
        ):
            return self._installed(x)
        if isinstance(x, types.FunctionType):
            return self.function(x)
        if isinstance(x, types.MethodType):
            return ("method", self.read(x.__func__), self.read(x.__self__))
        if isinstance(x, type):
            return self.kind(x)
        if hasattr(x, "__wrapped__"):
            return self._wrapped(x)
        self.places.whole = False
        held = _held(x)
        if held is None:
            return self._unknown(x)
        return ("object", self.read(type(x)), self.read(held))

    def _installed(self, x: Any) -> Hashable:
        """An object of installed software: its functions and classes do not change, but other objects may."""
        owner = getattr(x, "__self__", None)
        if isinstance(x, _BOUND) and not isinstance(owner, types.ModuleType | type | None):
            return ("method", x.__name__, self.read(owner))
        if (callable(x) and not _held(x)) or isinstance(x, type | types.FunctionType):
            return ("installed", self.name(x))
        if hasattr(x, "__wrapped__"):  # a user's function wrapped in jax.jit, or with derivatives of its own
            return self._wrapped(x)
        if hasattr(type(x), "__get__"):  # a descriptor, such as a field of a named tuple
            return ("installed", type(x).__qualname__, self.name(x))
        self.places.whole = False
        held = _held(x)
        return ("object", self.name(type(x)), self.read(held)) if held else self._unknown(x)

    def _wrapped(self, x: Any) -> Hashable:
        """A function that stands in for another one, with what it has beside it, such as a rule for its derivative."""
        function = self.read(getattr(x, "__wrapped__"))  # noqa: B009
        held = {} if isinstance(x, Jitted) else getattr(x, "__dict__", {})
        beside = [(name, self.read(self._at(held, name))) for name in held if name not in _SILENT]
        return ("wrapped", type(x).__qualname__, function, *beside)

    def _unknown(self, x: Any) -> Hashable:
        self.places.whole = False
        self.opaque.append(type(x).__name__)
        return ("unknown", id(x))

    def _array(self, x: Any) -> Hashable:
        try:
            array = np.asarray(x)
        except TypeError:  # random keys
            array = np.asarray(jax.random.key_data(x))
        if array.dtype.kind == "O":
            return ("objects", array.shape, *map(self.read, array.flat))
        digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
        return ("array", array.dtype.str, array.shape, digest)

    def function(self, f: types.FunctionType) -> Hashable:
        """The code, and everything that it reads besides its arguments."""
        reads = _reads(f.__code__)
        self.attributes |= dict.fromkeys(reads.attributes)
        self.places.functions.append((f, f.__code__, f.__defaults__, f.__kwdefaults__))
        found: list[Hashable] = [
            "function",
            self.code(f.__code__),
            self.read(f.__defaults__),
            self.read(f.__kwdefaults__),
        ]
        found += [(name, self.read(self._at(f.__dict__, name))) for name in f.__dict__]  # f.rate = 2.0
        for cell in f.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not filled yet
                found.append("empty")
                self.places.whole = False
                self.elsewhere("")
                continue
            self.places.cells.append((cell, value))
            found.append(self.read(value))
        for name in reads.names:
            value = self._at(f.__globals__, name)
            if value is not _NOTHING:
                found += [name, self.read(value)]
            else:
                self.elsewhere(name)
        for name in reads.imports:
            package = f.__globals__.get("__package__") or ""
            for full in dict.fromkeys((name, f"{package}.{name}".strip("."))):
                module = self._at(sys.modules, full)
                if isinstance(module, types.ModuleType):
                    found += [full, self.read(module)]
                elif full == name:
                    self.elsewhere(name)
        return tuple(found)

    def _at(self, names: Any, name: str) -> Any:
        """The value under this name in a mapping; the place is remembered."""
        value = names.get(name, _NOTHING)
        self.places.names.append((names, name, value))
        return value

    def kind(self, x: type) -> Hashable:
        """What a class and its base classes define, apart from those of installed software."""
        found: list[Hashable] = ["class", x.__module__, x.__qualname__]
        for base in x.__mro__:
            if is_installed(base.__module__):
                found.append(self.name(base))
                continue
            self.seen.setdefault(id(base), len(self.seen))
            self.places.classes.append((base, base.__mro__, len(vars(base))))
            found.append(str(vars(base).get("__annotations__")))
            for name in vars(base):
                if name not in _SILENT:
                    value = self._at(vars(base), name)
                    found += [
                        name,
                        self.read(getattr(value, "method", value) if _is_wrapper(value) else value),
                    ]
        return tuple(found)


_SILENT = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__",
    "__abstractmethods__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__init__",
    "__hash__", "__eq__", "__repr__", "__setattr__", "__delattr__", "__orig_bases__", "__parameters__", "__slots__",
    "__check_init__", "__post_init__", "__annotate__", "__annotations_cache__", "__annotate_func__",
    "__annotations__", "__class__",
}  # fmt: skip
"""The names that Python and equinox put into every class, and what only fills or checks fields, whose values are read;
the fields are read as annotations."""


def written(of: type) -> type:
    """The class as its author wrote it, given that class or one that stands in for it."""
    while "stands_in" in vars(of):
        of = of.__mro__[1]
    return of


def _is_wrapper(value: Any) -> bool:
    """Whether the value is the wrapper in which equinox keeps a method of a class."""
    return type(value).__module__.startswith("equinox") and hasattr(value, "method")


def _held(x: Any) -> dict[str, Any] | None:
    """What an object holds, by name; None if it cannot be looked into."""
    slots: list[str] = []
    for base in type(x).__mro__:
        names = vars(base).get("__slots__", ())
        slots += (names,) if isinstance(names, str) else tuple(names)
    inside = getattr(x, "__dict__", None)
    if inside is None and not slots:
        return None
    own = [name for name in slots if name not in ("__dict__", "__weakref__")]
    return {name: getattr(x, name) for name in own if hasattr(x, name)} | dict(inside or {})


class _Kind(NamedTuple):
    """The class and static fields that represent all systems whose functions read the same."""

    of: type
    static: dict[str, Any]


_kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
_keys: "weakref.WeakKeyDictionary[type | Recipe, Hashable]" = weakref.WeakKeyDictionary()
"""What the functions of a class or recipe read when it was first compiled."""
_warned: set[tuple[str, str]] = set()


def static_fields(module: eqx.Module) -> dict[str, Any]:
    """The static fields of a system or a method."""
    return {f.name: getattr(module, f.name) for f in fields(module) if f.metadata.get("static", False)}  # pyright: ignore[reportArgumentType]


def _key(of: type, static: dict[str, Any]) -> tuple[Hashable, Reader]:
    reader = Reader()
    return (reader.kind(written(of)), reader.read(tuple(static.items())), reader.inside_modules()), reader


class _Known(NamedTuple):
    """A kind, and the places where its functions, and those of the system that it represents, found what they read."""

    key: Hashable
    kind: _Kind
    places: list[_Places]
    alive: Any
    """The objects that are known by their id here; keeping them alive keeps the ids from being used again."""


_known = Recent(_KINDS)
_looked: contextvars.ContextVar[dict[Hashable, tuple[_Kind, Any]] | None] = contextvars.ContextVar(
    "looked", default=None
)


@contextlib.contextmanager
def one_look() -> Iterator[None]:
    """Inside this context, what functions read is looked at only once, at its first use.

    No user code that changes it may run there.
    """
    token = _looked.set({})
    try:
        yield
    finally:
        _looked.reset(token)


def fingerprint(module: Any) -> int:
    """A number that changes if anything that the functions of a system or method read has changed."""
    found: list[Hashable] = []
    _visit(module, lambda node: found.append(_key(type(node), static_fields(node))[0]))
    return hash(tuple(found))


def watch(tree: Any) -> Callable[[], bool]:
    """A quick test of whether the functions of the systems and methods in a tree still read what they read now."""
    readers: list[Reader] = []
    _visit(tree, lambda node: readers.append(_key(type(node), static_fields(node))[1]))
    places = [reader.places for reader in readers]
    if all(x.whole for x in places):
        return lambda: all(x.unchanged() for x in places)
    now = fingerprint(tree)
    return lambda: fingerprint(tree) == now


def captures_traced(module: Any) -> bool:
    """Whether the functions of a system or method read, besides their arguments, a value that JAX is tracing."""
    found: list[bool] = []
    _visit(module, lambda node: found.append(_key(type(node), static_fields(node))[1].traced))
    return any(found)


def _visit(tree: Any, do: Callable[[eqx.Module], None]) -> None:
    if isinstance(tree, eqx.Module):
        do(tree)
        for f in fields(tree):  # pyright: ignore[reportArgumentType]
            if not f.metadata.get("static", False):
                _visit(getattr(tree, f.name, None), do)
    elif isinstance(tree, tuple | list):
        for x in tree:
            _visit(x, do)
    elif isinstance(tree, dict):
        for x in tree.values():
            _visit(x, do)


def kind_of(tree: Any) -> Hashable:
    """A key that two trees of arrays share exactly if the same code serves both; `current` must have returned them."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((x.shape, str(x.dtype)) for x in leaves)


def current(tree: T) -> T:
    """The same tree, in which every system and method has the class that represents what its functions read now."""
    if isinstance(tree, eqx.Module):
        return _current(tree)
    if isinstance(tree, tuple):
        parts = [current(x) for x in tree]
        if all(a is b for a, b in zip(parts, tree, strict=True)):
            return tree
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)  # pyright: ignore[reportReturnType]
    if isinstance(tree, list):
        return [current(x) for x in tree]  # pyright: ignore[reportReturnType]
    if isinstance(tree, dict):
        return {key: current(x) for key, x in tree.items()}  # pyright: ignore[reportReturnType]
    return tree


def _current(module: Any) -> Any:
    values = {f.name: getattr(module, f.name) for f in fields(module) if hasattr(module, f.name)}
    static = static_fields(module)
    if all(is_installed(base.__module__) for base in type(module).__mro__) and not any(
        callable(x) or isinstance(x, Recipe) for x in static.values()
    ):
        of = type(module)  # a class of the library itself
    else:
        kind = _standing_for(type(module), static)
        of, static = kind.of, kind.static
    changed = {
        name: new
        for name, old in values.items()
        if (new := static[name] if name in static else current(old)) is not old
    }
    if of is type(module) and not changed:
        return module
    return copied(module, of, changed)


def copied(module: Any, of: type, changed: Mapping[str, Any] | None = None) -> Any:
    """A module of the class `of` with the fields of `module`, except for those in `changed`; nothing is checked."""
    values = {f.name: getattr(module, f.name) for f in fields(module) if hasattr(module, f.name)}
    made = object.__new__(of)
    for name, value in (values | dict(changed or {})).items():
        object.__setattr__(made, name, value)
    return made


def _standing_for(of: type, static: dict[str, Any]) -> _Kind:
    alive = (of, *static.values())
    number = tuple(map(id, alive))
    looked = _looked.get()
    if looked is None:
        return _looked_up(of, static, alive, number)
    if number not in looked:
        kind = _looked_up(of, static, alive, number)
        looked[number] = kind, alive
        looked[tuple(map(id, (kind.of, *kind.static.values())))] = kind, kind
    return looked[number][0]


def _looked_up(of: type, static: dict[str, Any], alive: tuple, number: tuple[int, ...]) -> _Kind:
    known = _known.find(number)
    if known and _kinds.get(known.key) is known.kind and all(x.unchanged() for x in known.places):
        with contextlib.suppress(KeyError):  # another thread may drop it at this moment
            _kinds.move_to_end(known.key)
        return known.kind
    key, reader = _key(of, static)
    for name in reader.opaque:
        if (of.__qualname__, name) not in _warned:
            _warned.add((of.__qualname__, name))
            warnings.warn(
                f"the functions of {of.__qualname__} read a {name} whose changes cannot be noticed: code compiled "
                "before a change is still used after it. Make values that change fields of the system, or pass them in "
                "parameters=",
                stacklevel=2,
            )
    kind = _kinds.get(key)
    places = [reader.places]
    if kind is not None:  # the representative of a kind may itself read something else by now
        there, other = _key(kind.of, kind.static)
        places.append(other.places)
        kind = kind if there == key else None
    if kind is None:
        of, recipe = written(of), static.get("recipe")
        if isinstance(recipe, Recipe):
            if _keys.setdefault(recipe, key) != key:
                recipe = Recipe(dict(recipe.arguments))
                _keys[recipe] = key
                static = static | {"recipe": recipe}
        elif _keys.setdefault(of, key) != key:
            body = {"__module__": of.__module__, "__qualname__": of.__qualname__, "__doc__": of.__doc__}
            of = type(of)(of.__name__, (of,), {**body, "stands_in": True})
            _keys[of] = key
        kind = _Kind(of, static)
        _kinds[key] = kind
        if len(_kinds) > _KINDS:
            _kinds.popitem(last=False)
    _kinds.move_to_end(key)
    _known.pop(number, None)
    if all(x.whole for x in places):
        _known.keep(number, _Known(key, kind, places, alive))
    return kind
