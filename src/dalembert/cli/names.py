"""Systems and methods from what a user types."""

import difflib
import importlib
import inspect
import os
import sys
from typing import Any

from dalembert.methods import METHODS, Method, method_from_text
from dalembert.model import System
from dalembert.results import zoo_systems


def parameters_of(kind: type[System]) -> list[str]:
    """The parameters a system takes, as name=default."""
    signature = inspect.signature(kind).parameters.values()
    return [f"{p.name}={p.default}" for p in signature if p.default is not None]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _wrong(what: str, name: str, choices: list[str]) -> ValueError:
    near = difflib.get_close_matches(name, choices, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return ValueError(f"no {what} {name!r}.{hint} Choose one of: {', '.join(choices)}")


def _from_module(name: str, base: type) -> Any:
    """A subclass of `base`, or a value of one, named as module:name."""
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = "; leave out .py" if module_name.endswith(".py") else ""
        raise ValueError(f"cannot import {module_name!r} ({error}){hint}") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{module_name!r} is not the name of a module ({error})") from None
    found = getattr(module, attribute, None)
    if not (isinstance(found, base) or (inspect.isclass(found) and issubclass(found, base))):
        raise ValueError(f"{name} is not a subclass of dalembert.{base.__name__}, nor a value of one")
    return found


def kind_named(name: str) -> Any:
    """The class of the zoo with this name, or the user's own class or system as module:Class."""
    if ":" in name:
        return _from_module(name, System)
    systems = {_plain(key): kind for key, kind in zoo_systems().items()}
    if _plain(name) not in systems:
        raise _wrong("system", name, list(zoo_systems()))
    return systems[_plain(name)]


def _value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def parameters_given(name: str, kind: Any, parameters: list[str]) -> dict[str, Any]:
    """Parameters of a system from texts such as mass=2, checked against what it takes."""
    if isinstance(kind, System):
        if parameters:
            raise ValueError(f"{name} is a system already made; --param is for classes")
        return {}
    known = inspect.signature(kind).parameters
    given: dict[str, Any] = {}
    for item in parameters:
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--param takes name=value, got {item!r}")
        if key not in known:
            raise _wrong(f"parameter of {kind.__name__}", key, list(known) or ["(it has none)"])
        given[key] = _value(value)
    missing = [key for key, p in known.items() if p.default is inspect.Parameter.empty and key not in given]
    if missing:
        raise ValueError(f"{kind.__name__} needs --param {missing[0]}=VALUE")
    for key, value in given.items():
        if isinstance(known[key].default, int | float) and isinstance(value, str):
            raise ValueError(f"--param {key} takes a number, got {value!r}")
    return given


def system_named(name: str, parameters: list[str]) -> System:
    """The system of the zoo (or module:Class) with parameters given as name=value."""
    kind = kind_named(name)
    given = parameters_given(name, kind, parameters)
    return kind if isinstance(kind, System) else kind(**given)


def method_named(text: str) -> Method:
    """The method as spelled on the command line, or the user's own as module:Class; a wrong name lists choices."""
    name, colon, rest = text.partition("@")[0].partition(":")
    if name not in METHODS:
        if colon and rest.isidentifier():
            found = _from_module(text, Method)
            return found if isinstance(found, Method) else found()
        raise _wrong("method", name, list(METHODS))
    return method_from_text(text)
