"""Things by the names that users type: what was meant, and what a module has."""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Iterable
from typing import Any


def wrong(what: str, name: str, choices: Iterable[str]) -> ValueError:
    """The error for a name that is not among the choices, with the nearest of them."""
    choices = list(choices)
    near = difflib.get_close_matches(name, choices, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return ValueError(f"no {what} {name!r}.{hint} Choose one of: {', '.join(choices) or '(there are none)'}")


def from_module(name: str) -> Any:
    """What is named as module:name, with dots for what is inside a class; None where the module has no such thing."""
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = "; leave out .py" if module_name.endswith(".py") else ""
        raise ValueError(f"cannot import {module_name!r} ({error}){hint}") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{module_name!r} is not the name of a module ({error})") from None
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return found


def kind_from_module(name: str, base: type) -> Any:
    """A subclass of `base`, or a value of one, named as module:name."""
    found = from_module(name)
    if not (isinstance(found, base) or (inspect.isclass(found) and issubclass(found, base))):
        raise ValueError(f"{name} is not a subclass of dalembert.{base.__name__}, nor a value of one")
    return found
