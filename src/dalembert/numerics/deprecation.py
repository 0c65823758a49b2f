"""Old names, kept for one more version: they work, and warn with the new name."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any


def _say(old: str, new: str, level: int = 3) -> None:
    warnings.warn(
        f"{old} is now called {new}; the next version removes the old name", DeprecationWarning, level
    )


class Renamed:
    """A method or property of a class under its old name."""

    def __init__(self, new: str):
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: Any, owner: type) -> Any:
        _say(f"{owner.__name__}.{self.old}", self.new, 3 if instance is None else 4)  # equinox adds a frame
        return getattr(owner if instance is None else instance, self.new)


def renamed_names(module: Mapping[str, Any], names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module some of whose names have changed; `module` holds its globals."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        _say(name, names[name])
        return module[names[name]]

    return find
