"""Build systems from plain functions."""

from collections.abc import Callable, Mapping
from types import FunctionType, new_class
from typing import Any

import equinox as eqx

from dalembert.model.description import check_arguments
from dalembert.model.rheonomic import RheonomicSystem
from dalembert.model.systems import System
from dalembert.numerics import Recent, Recipe


def system(
    *,
    coordinates: tuple[str, ...] | list[str],
    lagrangian: Callable | None = None,
    metric: Callable | None = None,
    potential: Callable | None = None,
    constraints: Callable | None = None,
    frame: Callable | None = None,
    holonomic: Callable | None = None,
    nonlinear: Callable | None = None,
    offsets: Callable | None = None,
    drift: Callable | None = None,
    forces: Callable | None = None,
    scene: Callable | None = None,
    parameters: Mapping[str, Any] | None = None,
    units: tuple[str, ...] = (),
    angles: tuple[str, ...] = (),
    signature: tuple[int, int] | None = None,
    name: str = "System",
    rheonomic: bool = False,
) -> System:
    """A system made from plain functions of q (and v).

    With `rheonomic=True` the functions take t, q (and v), and the system is a RheonomicSystem. `scene` is a function
    of (t, q) that says what the system looks like; see `dalembert.scene`. A mass matrix that is meant to be indefinite
    needs its `signature`, the numbers of its positive and of its negative eigenvalues.

    With `parameters`, a mapping of numbers or arrays, each function takes that mapping as an additional last argument:
    `lagrangian(q, v, p)`. These parameters can be changed, differentiated and batched without compiling again;
    numbers captured in a closure cannot.
    """
    given = {
        "lagrangian": lagrangian,
        "metric": metric,
        "potential": potential,
        "constraints": constraints,
        "frame": frame,
        "holonomic": holonomic,
        "nonlinear": nonlinear,
        "offsets": offsets,
        "drift": drift,
        "forces": forces,
        "scene": scene,
    }
    if not isinstance(coordinates, tuple | list):
        raise ValueError(f"coordinates must be a tuple of names such as ('x', 'theta'), got {coordinates!r}")
    if not isinstance(rheonomic, bool):
        raise ValueError(f"rheonomic must be True or False, got {rheonomic!r}")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise ValueError(f"parameters must map names to numbers, such as {{'mass': 1.0}}, got {parameters!r}")
    for key, function in given.items():
        if function is not None and not callable(function):
            raise ValueError(f"{key} must be a function, got {type(function).__name__}")
        if function is not None:
            extra = "" if parameters is None else "p"
            check_arguments(name, key, function, rheonomic, extra, bound=False)
    arguments = {
        "coordinates": tuple(coordinates),
        **given,
        "units": tuple(units) if isinstance(units, list) else units,
        "angles": tuple(angles) if isinstance(angles, list) else angles,
        "signature": tuple(signature) if isinstance(signature, list) else signature,
        "name": name,
        "rheonomic": rheonomic,
    }
    same = tuple(map(_sameness, arguments.values()))
    recipe = _recipes.find(same) or _recipes.keep(same, Recipe(arguments))
    made = _class(arguments, parameters is not None)
    return made(recipe) if parameters is None else made(recipe, dict(parameters))


_recipes = Recent(256)
"""Recipes by their contents, so that running a notebook cell again makes no new recipe."""
_classes: dict[str, type] = {}
"""Classes by everything but the functions of their systems. JAX keeps each class for ever, so there should be few."""


def _class(arguments: Mapping[str, Any], has_parameters: bool) -> type:
    """The class of all systems that give functions of these names, whatever the functions are."""
    hooks = tuple(key for key, value in arguments.items() if callable(value))
    name = arguments["name"]
    kind = repr((hooks, has_parameters, [x for key, x in arguments.items() if key not in hooks]))
    if kind not in _classes:
        body: dict[str, Any] = {
            **{key: arguments[key] for key in ("coordinates", "units", "angles", "signature")},
            **{key: _method(key, has_parameters) for key in hooks},
            "recipe": eqx.field(static=True, repr=False),
            "__annotations__": {"recipe": Recipe} | ({"parameters": dict} if has_parameters else {}),
            "__doc__": f"{name}, made by dalembert.system.",
            "__module__": __name__,
            "from_recipe": True,
        }
        base = RheonomicSystem if arguments["rheonomic"] else System
        made = new_class(name, (base,), exec_body=lambda space: space.update(body))
        _classes.setdefault(kind, made)
    return _classes[kind]


def _method(key: str, has_parameters: bool) -> Callable:
    if has_parameters:
        return lambda self, *given: self.recipe.arguments[key](*given, self.parameters)
    return lambda self, *given: self.recipe.arguments[key](*given)


def _sameness(value: Any) -> Any:
    """A key that two functions share only if they always do the same: it has the code and everything that it reads."""
    if isinstance(value, FunctionType):
        # The recipe keeps the functions alive, and with them everything that they read, so no id is used twice.
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return value.__code__, *map(id, (value.__globals__, *(value.__closure__ or ()), *defaults))
    return id(value) if callable(value) else repr(value)
