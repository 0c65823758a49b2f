"""Reads the system, its parameters and file names from the text that a user types."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


def numbers_given(option: str, text: str, names: Sequence[str], whole: bool = True) -> dict[str, float]:
    """The numbers given as 1,2,3 in the order of `names`, or as x=1,y=2; some of them suffice if `whole` is False."""
    parts = [x.strip() for x in text.split(",")]
    named = [x.partition("=") for x in parts]
    form = f"{option} takes numbers for ({', '.join(names)}), as in {option} {','.join('0' for _ in names)}"
    form += f" or {option} {','.join(f'{name}=0' for name in names)}"
    if any(equals for _, equals, _ in named) != all(equals for _, equals, _ in named):
        raise ValueError(f"{form}, with all names or none; got {text!r}")
    if not named[0][1]:
        if len(parts) != len(names):
            some = "" if whole else f", or some of them by name, as in {option} {names[0]}=0"
            raise ValueError(f"{form}{some}; got {text!r}")
        named = [(name, "=", x) for name, x in zip(names, parts, strict=True)]
    found: dict[str, float] = {}
    for key, _, value in named:
        if key not in names:
            raise wrong(f"number of {option}", key, names)
        if key in found:
            raise ValueError(f"{option} gives {key} twice, got {text!r}")
        try:
            found[key] = float(value)
        except ValueError:
            raise ValueError(f"{option}: {key} needs a number, got {value!r}") from None
    missing = [name for name in names if name not in found]
    if whole and missing:
        raise ValueError(f"{option} leaves out {', '.join(missing)}; {form}")
    return {name: found[name] for name in names if name in found}


class Start(NamedTuple):
    """Where a run starts, as texts that a user types."""

    name: str | None = None
    """One of the system's start states."""
    q0: str | None = None
    v0: str | None = None
    q1: str | None = None
    """The configuration one step after q0, instead of the velocity."""

    def of(self, system: System) -> dict[str, Any]:
        """q0 and v0, or q0 and q1, as the arguments of simulate."""
        places, speeds = system.coordinates, system.velocity_names
        if self.v0 is not None and self.q1 is not None:
            raise ValueError(
                "give --v0, the velocity at q0, or --q1, the configuration one step later; not both"
            )
        if self.q0 is not None and self.name is not None:
            raise ValueError("give --start, a start state of the system, or --q0; not both")
        if self.q0 is not None and self.v0 is None and self.q1 is None:
            raise ValueError("--q0 needs --v0, the velocity there, or --q1, the configuration one step later")
        given = {
            key: list(numbers_given(f"--{key}", text, names).values())
            for key, text, names in (
                ("q0", self.q0, places),
                ("v0", self.v0, speeds),
                ("q1", self.q1, places),
            )
            if text is not None
        }
        if "q0" in given:
            return given
        q0, v0 = system.start(self.name)
        return {"q0": q0, "v0": v0} | given if self.q1 is None else {"q0": q0} | given


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
