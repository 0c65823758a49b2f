"""Look up things by the names that users type."""

import difflib
import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def wrong(what: str, name: str, choices: Iterable[str]) -> ValueError:
    """The error for a name that is not among the choices; it suggests the nearest choice."""
    choices = list(choices)
    near = difflib.get_close_matches(name, choices, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return ValueError(f"no {what} {name!r}.{hint} Choose one of: {', '.join(choices) or '(there are none)'}")


def raised(error: BaseException) -> str:
    """What the user's own code raised, and where; empty if none of the user's code was running."""
    own = str(Path(__file__).resolve().parents[1])
    others = tuple(
        {own, "<", *(sysconfig.get_path(x) for x in ("stdlib", "platstdlib", "purelib", "platlib"))}
    )
    if isinstance(error, SyntaxError) and error.filename:
        frames = [(error.filename, error.lineno)]
        text = f"{type(error).__name__}: {error.msg}"
    else:
        frames = [(x.filename, x.lineno) for x in traceback.extract_tb(error.__traceback__)]
        said = str(error).strip()
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    places = [x for x in frames if not x[0].startswith(others)]
    return f"{text} ({Path(places[-1][0]).name}, line {places[-1][1]})" if places else ""


def _imported(module_name: str) -> Any:
    """The module of this name, which may also lie in the current working directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = "; leave out .py" if module_name.endswith(".py") else ""
        raise ValueError(f"cannot import {module_name!r} ({error}){hint}") from None
    except (Exception, SystemExit) as error:
        place = raised(error)
        if place:
            raise ValueError(f"{module_name!r} cannot be imported, it raises {place}") from None
        raise ValueError(f"{module_name!r} is not the name of a module ({error})") from None


def from_module(name: str) -> Any:
    """The object named module:name, with dots for attributes of a class; None if the module has no such object."""
    module_name, _, attribute = name.partition(":")
    found = _imported(module_name)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return found


def kind_from_module(name: str, base: type) -> Any:
    """The subclass of `base`, or the instance of one, that is named module:name."""

    def fits(x: Any) -> bool:
        return isinstance(x, base) or (inspect.isclass(x) and issubclass(x, base))

    found = from_module(name)
    if fits(found):
        return found
    module_name, _, attribute = name.partition(":")
    # Leave out what the module itself imported from this library.
    there = [
        x
        for x, value in vars(_imported(module_name)).items()
        if fits(value) and not (inspect.isclass(value) and value.__module__.startswith("dalembert."))
    ]
    if found is None:
        raise wrong(f"{base.__name__.lower()} in {module_name}", attribute, there)
    raise ValueError(
        f"{name} is not a subclass of dalembert.{base.__name__}, nor a value of one; "
        f"{module_name} has: {', '.join(there) or '(none)'}"
    )
