"""The functions that users give a system, the arguments these take, and mistakes in writing them.

A function with a misspelt name is never called, so the system would move by other laws without a word.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

HOOKS: dict[str, tuple[str, ...]] = {
    "lagrangian": ("q", "v"),
    "metric": ("q",),
    "potential": ("q",),
    "constraints": ("q",),
    "frame": ("q",),
    "offsets": ("q",),
    "drift": ("q",),
    "forces": ("q", "v"),
    "generators": ("q",),
    "scene": ("t", "q"),
    "inertia": (),
    "sections": (),
    "integrals": (),
    "starts": (),
}
"""The functions of a system and their arguments; those of a RheonomicSystem have t first."""

ATTRIBUTES = ("coordinates", "units", "angles", "group", "step")

# What other tools and textbooks call them.
SYNONYMS = {
    "potential_energy": "potential",
    "V": "potential",
    "U": "potential",
    "L": "lagrangian",
    "mass": "metric",
    "mass_matrix": "metric",
    "M": "metric",
    "A": "constraints",
    "one_forms": "constraints",
    "constraint_matrix": "constraints",
    "distribution": "frame",
    "external_forces": "forces",
    "F": "forces",
    "friction": "forces",
    "damping": "forces",
}

# "potential" and "potental" are alike by 0.94, "forces" and "force" by 0.91, "frame" and "from" by 0.67.
_ALIKE = 0.8


def meant(name: str, given: Callable[[str], bool]) -> str | None:
    """The hook that a function of this name was probably meant to be; None where there is none.

    A hook that the system gives, or has no room for, was not meant: the function then helps it.
    """
    if name.startswith("_") or name in HOOKS or name in ATTRIBUTES:
        return None
    open_hooks = [x for x in HOOKS if not given(x)]
    if given("lagrangian"):
        open_hooks = [x for x in open_hooks if x not in ("metric", "potential")]
    if given("metric"):
        open_hooks = [x for x in open_hooks if x != "lagrangian"]
    if SYNONYMS.get(name) in open_hooks:
        return SYNONYMS[name]
    near = difflib.get_close_matches(name.lower(), open_hooks, 1, _ALIKE)
    return near[0] if near else None


def check_names(label: str, own: Mapping[str, Any], given: Callable[[str], bool]) -> None:
    """Refuses functions and attributes of a user's class whose names are nearly those of hooks."""
    for name, value in own.items():
        if isinstance(value, tuple) and value and all(isinstance(x, str) for x in value):
            near = difflib.get_close_matches(name, ATTRIBUTES, 1, _ALIKE)
            if near and name not in ATTRIBUTES and near[0] not in own:
                raise ValueError(
                    f"{label} has an attribute {name!r}, which nothing reads: did you mean {near[0]!r}? Rename it"
                )
        if not inspect.isroutine(value) and not isinstance(value, property | staticmethod | classmethod):
            continue
        hook = meant(name, given)
        if hook is not None:
            raise ValueError(
                f"{label} defines {name}(...), which is never called: did you mean {hook}? Rename it; a function of "
                f"your own that helps others may be called _{name}"
            )


def takes(function: Callable, count: int) -> bool:
    """Whether the function can be called with this many arguments; True where that cannot be told."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a function that tells nothing of itself
        return True
    return True


def check_arguments(
    label: str, hook: str, function: Callable, timed: bool, extra: str = "", bound: bool = True
) -> None:
    """Refuses a hook that does not take the arguments it is called with, saying what was probably meant."""
    names = HOOKS[hook]
    wanted = [
        *(["t"] if timed and hook not in ("scene", "inertia", "sections", "integrals", "starts") else []),
        *names,
    ]
    wanted = [*(["self"] if bound else []), *wanted, *([extra] if extra else [])]
    if takes(function, len(wanted)):
        return
    try:
        came = str(inspect.signature(function))
    except (TypeError, ValueError):
        came = "other arguments"
    hints = []
    if not timed and takes(function, len(wanted) + 1) and names:
        if hook in ("constraints", "frame", "offsets", "drift", "metric", "potential"):
            hints.append(
                "it is a function of the configuration alone"
                + (": its rows are multiplied by v" if hook == "constraints" else "")
            )
        hints.append(
            "where it depends on time, use da.RheonomicSystem, or da.system(..., rheonomic=True), and put t first"
        )
    elif timed:
        hints.append("the functions of a rheonomic system have t first")
    if extra:
        hints.append(f"with parameters= each function gets them as its last argument, {extra}")
    call = ", ".join(wanted)
    raise ValueError("; ".join([f"{label}.{hook} must take ({call}), but it takes {came}", *hints]))
