"""The quantities that figures of a run show, by name: coordinates, velocities and integrals; and their symbols."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.kernels import over_rows
from dalembert.model import Trait, lower
from dalembert.simulation import Trajectory

_LETTERS = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi
chi psi omega"""
GREEK = frozenset(_LETTERS.split())
SHORT = {"eps": "epsilon", "lam": "lambda"}
ENERGY, MOVING = "energy", "moving energy"


def symbol(name: str) -> str:
    """A name as figures write it: with Greek letters, and digits at the end as an index."""
    found = re.fullmatch(r"([A-Za-z]+?)(\d*)('?)", name)
    if found is None:
        return name
    letters, index, prime = found.groups()
    letters = SHORT.get(letters, letters)
    sign = rf"$\mathrm{{\{letters}}}$" if letters in GREEK else letters
    return sign + (f"$_{{{index}}}$" if index else "") + prime


def method_name(sol: Trajectory) -> str:
    """The spelling of the run's method."""
    if sol.method is not None:
        return sol.method.cli_name
    return (sol.stored or {}).get("method", "stored run")


def system_name(sol: Trajectory) -> str:
    """The name of the run's system."""
    if sol.system is not None:
        return type(sol.system).__name__
    return (sol.stored or {}).get("system", "stored run").rpartition(":")[2]


def step_words(sol: Trajectory) -> str:
    """The step size, or the first step size if steps differ."""
    return f"{'first ' * ('h' in sol.step_data)}h = {float(sol.h):.4g}"


def span_words(sol: Trajectory) -> str:
    """The time span of the run."""
    return f"t = {float(sol.t[0]):g} to {float(sol.t[-1]):g}"


def coordinates(sol: Trajectory) -> tuple[str, ...]:
    """The names of the coordinates."""
    return sol.system.coordinates if sol.system is not None else tuple((sol.stored or {})["coordinates"])


def angles(sol: Trajectory) -> tuple[str, ...]:
    """The coordinates of period 2 pi; for a run without its system, those measured in rad."""
    if sol.system is not None:
        return sol.system.angles
    return tuple(name for name, unit in _units(sol).items() if unit == "rad")


def _units(sol: Trajectory) -> dict[str, str]:
    given = sol.system.units if sol.system is not None else (sol.stored or {}).get("units") or ()
    return dict(zip(coordinates(sol), given, strict=False))


def group_name(sol: Trajectory) -> str | None:
    """The name of the Lie group of the configurations; None if there is none."""
    if Trait.GROUP not in sol.traits:
        return None
    return lower(sol.system).space.name if sol.system is not None else (sol.stored or {}).get("group")


def keeps_energy(sol: Trajectory) -> bool:
    """Whether the exact motion keeps the energy, as far as the description of the system says."""
    return sol.system is None or lower(sol.system).conservative


def velocities(sol: Trajectory) -> tuple[str, ...]:
    """The names of the velocities: that of a coordinate has a prime, and others have their own names."""
    stored = sol.stored or {}
    names = sol.system.velocity_names if sol.system is not None else tuple(stored["velocities"])
    return tuple(f"{x}'" if x in coordinates(sol) else x for x in names)


def with_unit(sol: Trajectory, name: str) -> str:
    """The label of an axis: the symbol of a coordinate, and its unit if it has one."""
    unit = _units(sol).get(name) or ("rad" if name in angles(sol) else "")
    return f"{symbol(name)} ({unit})" if unit else symbol(name)


def _arguments(function: Callable) -> int:
    """The number of arguments that a function needs."""
    given = inspect.signature(function).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in plain and p.default is p.empty for p in given)


@cache
def _named(name: str) -> Callable:
    """The integral of this name as a function that also takes the system, so that systems share compiled code."""

    def function(system, t, q, v):
        own = system.integrals()[name]
        return own(t, q, v) if _arguments(own) == 3 else own(q, v)

    return function


def values_of(sol: Trajectory, name: str, function: Callable | None = None) -> np.ndarray:
    """(K,) the values of a function of (q, v), or of (t, q, v), at every row.

    Without a function, it is the system's integral of this name.
    """
    if function is None:
        found = over_rows(_named(name))(sol.system, sol.t, sol.q, sol.v)
    elif not callable(function):
        raise ValueError(f"the quantity {name!r} must be a function of (q, v), got {function!r}")
    else:
        rows = (sol.t, sol.q, sol.v) if _arguments(function) == 3 else (sol.q, sol.v)
        found = np.asarray(jax.jit(jax.vmap(function))(*(jnp.asarray(x) for x in rows)))
    if found.shape != np.shape(sol.t):
        raise ValueError(f"the quantity {name!r} must be one number per state, got shape {found.shape[1:]}")
    return found


class Quantity(NamedTuple):
    """A quantity with one number per row."""

    name: str
    values: np.ndarray
    kept: bool
    """Whether the exact motion is known to keep it."""


def integrals(
    sol: Trajectory, names: Sequence[str] | Mapping[str, Callable] | None = None, full: bool = False
) -> list[Quantity]:
    """The energy, the moving energy of affine constraints, and the integrals that the system names.

    `names` chooses some of them, or maps names to functions of (q, v).
    """
    if isinstance(names, Mapping):
        found = [Quantity(name, values_of(sol, name, function), True) for name, function in names.items()]
    else:
        system = sol.system
        made: dict[str, Callable[[], Quantity]] = {}
        made[ENERGY] = lambda: Quantity(ENERGY, np.asarray(sol.energy(full=full)), keeps_energy(sol))
        if Trait.AFFINE in sol.traits:
            made[MOVING] = lambda: Quantity(MOVING, np.asarray(sol.moving_energy()), False)
        for name in system.integrals() if system is not None else ():
            made[name] = lambda name=name: Quantity(name, values_of(sol, name), True)
        chosen = list(made) if names is None else [names] if isinstance(names, str) else list(names)
        for name in chosen:
            if name not in made:
                raise ValueError(
                    f"{system_name(sol)} names no integral {name!r}; choose from: {', '.join(made)}"
                )
        found = [made[name]() for name in chosen]
    if not found:
        raise ValueError("integrals needs one name or more, got none; leave names out for all of them")
    return found


def quantity(sol: Trajectory, name: str) -> np.ndarray:
    """(K,) the coordinate, velocity, integral or time of this name."""
    tables = ((coordinates(sol), sol.q), (velocities(sol), sol.v))
    for names, table in tables:
        if name in names:
            return np.asarray(table)[:, names.index(name)]
    if name == "t":
        return np.asarray(sol.t)
    known = [*coordinates(sol), *velocities(sol), "t", ENERGY]
    known += [MOVING] if Trait.AFFINE in sol.traits else []
    known += list(sol.system.integrals()) if sol.system is not None else []
    if name not in known:
        raise ValueError(f"{system_name(sol)} has no quantity {name!r}; choose from: {', '.join(known)}")
    return integrals(sol, [name])[0].values


def phase_names(sol: Trajectory, x: str | None, y: str | None) -> tuple[str, str]:
    """The two quantities of a phase portrait, with defaults for names that are left out."""
    names, rates = coordinates(sol), velocities(sol)
    if x is None:
        of = y[:-1] if y is not None and y.endswith("'") else None
        if of in names:
            x = of
        elif group_name(sol) is not None and len(rates) > 1:
            x, y = rates[0], y or rates[1]
        else:
            x = next((name for name in names if name in angles(sol)), names[0])
    if y is None:
        y = f"{x}'"
        if y not in rates:
            raise ValueError(
                f"{system_name(sol)} has no velocity {y!r}; give y, one of: {', '.join((*names, *rates))}"
            )
    return x, y


def wrapped(angle: Any) -> np.ndarray:
    """Angles in (-pi, pi]."""
    return np.pi - np.mod(np.pi - np.asarray(angle, float), 2 * np.pi)


def broken(x: np.ndarray, y: np.ndarray, *turning: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A curve with a gap wherever one of the angles jumps from one side of the picture to the other."""
    jumps = np.zeros(len(x) - 1, bool) if len(x) else np.zeros(0, bool)
    for angle in turning:
        jumps |= np.abs(np.diff(angle)) > np.pi
    after = np.flatnonzero(jumps) + 1
    return np.insert(x, after, np.nan), np.insert(y, after, np.nan)
