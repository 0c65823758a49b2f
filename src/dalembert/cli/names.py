"""Reads the system, its parameters and file names from the text that a user types."""

import inspect
from pathlib import Path
from typing import Any

from dalembert.model import System, wrong
from dalembert.results import system_kind


def parameters_of(kind: type[System]) -> list[str]:
    """The parameters of a system, as name=default."""
    signature = inspect.signature(kind).parameters.values()
    return [f"{p.name}={p.default}" for p in signature if p.default is not None]


def _value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def parameters_given(name: str, kind: Any, parameters: list[str]) -> dict[str, Any]:
    """The parameters given as texts such as mass=2, checked against the signature of the system."""
    if isinstance(kind, System):
        if parameters:
            raise ValueError(f"{name} is a ready-made system and takes no parameters; --param is for classes")
        return {}
    known = inspect.signature(kind).parameters
    given: dict[str, Any] = {}
    for item in parameters:
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--param takes name=value, got {item!r}")
        if key not in known:
            raise wrong(f"parameter of {kind.__name__}", key, known)
        given[key] = _value(value)
    missing = [key for key, p in known.items() if p.default is inspect.Parameter.empty and key not in given]
    if missing:
        raise ValueError(f"{kind.__name__} needs --param {missing[0]}=VALUE")
    for key, value in given.items():
        if isinstance(known[key].default, int | float) and isinstance(value, str):
            raise ValueError(f"--param {key} takes a number, got {value!r}")
    return given


def check_file(option: str, path: str | None) -> None:
    """Raises ValueError if no file can be written to `path`, before anything is computed."""
    if path is None:
        return
    if not path:
        raise ValueError(f"{option} takes the name of a file, got an empty text")
    if not Path(path).resolve().parent.is_dir():
        raise ValueError(f"{option}: the folder of {path!r} does not exist; make it first")
    if Path(path).is_dir():
        raise ValueError(f"{option}: {path!r} is a folder; name a file")


def system_named(name: str, parameters: list[str]) -> System:
    """The system of the zoo (or module:Class), with the given name=value parameters."""
    kind = system_kind(name)
    given = parameters_given(name, kind, parameters)
    return kind if isinstance(kind, System) else kind(**given)
