"""Turns the swept values of a block into the arguments of `ensemble`."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from dalembert.methods import Method
from dalembert.model import System, as_arrays, independent_rows, nearest_start, with_kept, wrong
from dalembert.numerics import compiled
from dalembert.sweeps.spec import METHOD, START, STEP, Spec, leaf_names, leaf_paths


class Members(NamedTuple):
    """The trajectories of a block."""

    system: System
    """The system, with a batch axis on the parameters that vary."""
    vary: list[str]
    method: Method
    q0: np.ndarray
    v0: np.ndarray
    h: Any
    steps: int
    save_every: int


def parameters_of(spec: Spec, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values that are parameters of the system."""
    return {
        key: x
        for key, x in columns.items()
        if key not in (METHOD, START, STEP, "q0", "v0") and not key.startswith(("q0.", "v0."))
    }


def made(spec: Spec, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values, where the results of the user's `members` function replace its arguments."""
    if spec["members"] is None:
        return columns
    function = spec.thing(spec["members"])
    taken = {name: columns[name] for name in inspect.signature(function).parameters}
    found = function(**taken)
    size = len(next(iter(columns.values())))
    if not isinstance(found, dict):
        raise ValueError(f"the members function must give a dictionary, got {type(found).__name__}")
    for key, x in found.items():
        if key not in _giveable(spec) and not key.startswith(("q0.", "v0.")):
            raise wrong("quantity that the members function may give:", str(key), _giveable(spec))
        if len(np.shape(x)) < 1 or len(x) != size:
            raise ValueError(
                f"the members function must give {key!r} with {size} members first, got shape {np.shape(x)}"
            )
    rest = {key: x for key, x in columns.items() if key not in taken}
    return rest | {key: np.asarray(x) for key, x in found.items()}


def _giveable(spec: Spec) -> list[str]:
    """The names that a `members` function may return, besides single coordinates and velocities."""
    base = spec.thing(spec["system"])
    own = leaf_names(base) if isinstance(base, System) else list(inspect.signature(base).parameters)
    return [STEP, "q0", "v0", *own]


def members_of(spec: Spec, columns: dict[str, np.ndarray]) -> Members:
    """The systems, method, starts and steps of the trajectories with these values."""
    swept, columns = columns, made(spec, columns)
    if spec["time"] is not None and STEP in columns and STEP not in swept:
        raise ValueError("time: the members function gives h, so the number of steps must be given by steps")
    size = len(next(iter(columns.values())))
    given = parameters_of(spec, columns)
    system, vary, own = systems_of(spec, given)
    spelling = spec["method"] or _same(columns[METHOD], METHOD)
    q0, v0 = starts_of(spec, system, own, columns, size)
    h: Any = columns.get(STEP, spec["h"])
    if h is None:
        raise ValueError('there is no step size; the members function must give "h"')
    if spec["time"] is not None and np.ndim(h):
        h = float(_same(h, STEP))
    steps, every = spec.length(float(h) if np.ndim(h) == 0 else float(h[0]))
    h = float(h) if np.ndim(h) == 0 else np.asarray(h, float)
    if spec["project"]:
        q0, v0 = _projected(system, vary, q0, v0, float(spec["t0"]))
    return Members(system, vary, spec.method(spelling), q0, v0, h, steps, every)


def _same(values: np.ndarray, what: str) -> Any:
    if np.any(values != values[0]):
        raise ValueError(f"a block needs one {what}, got {values[0]!r} and others")
    return values[0].item() if isinstance(values[0], np.generic) else values[0]


def systems_of(spec: Spec, given: dict[str, np.ndarray]) -> tuple[System, list[str], Callable]:
    """One system with a batch axis on the parameters that vary, their names, and a function for the named starts."""
    base = spec.thing(spec["system"])
    if isinstance(base, System):
        system, vary = _replaced(as_arrays(base), given)
        return system, vary, lambda name: tuple(np.asarray(x) for x in base.start(name))
    texts = {key: _same(x, key) for key, x in given.items() if x.dtype.kind not in "fiu"}
    numbers = {key: x.astype(float) for key, x in given.items() if key not in texts}
    if not numbers:
        system = spec.made(**texts)
        return as_arrays(system), [], lambda name: tuple(np.asarray(x) for x in system.start(name))
    same = (tuple(sorted(texts.items())), tuple(numbers))
    one = {key: float(x[0]) for key, x in numbers.items()}
    first = as_arrays(spec.made(**texts, **one))
    leaves = _over_members(spec, *same, None)(numbers)
    varied = [bool(np.any(x != x[:1])) for x in leaves]
    full = [x if many else x[0] for x, many in zip(leaves, varied, strict=True)]
    names = [name for name, many in zip(leaf_paths(first), varied, strict=True) if many]
    own = functools.partial(_starts, spec, same, numbers)
    return jax.tree.unflatten(jax.tree.structure(first), full), names, own


def _starts(spec: Spec, same: tuple, numbers: dict[str, np.ndarray], name: str | None) -> tuple:
    return tuple(_over_members(spec, *same, name or "")(numbers))


@functools.lru_cache(maxsize=256)
def _over_members(spec: Spec, texts: tuple, keys: tuple[str, ...], start: str | None) -> Callable:
    """A function from the parameters of all members to the leaves of their systems, or to their starts of this name."""

    def one(values):
        system = as_arrays(spec.made(**dict(texts), **values))
        return jax.tree.leaves(system) if start is None else list(system.start(start or None))

    traced = compiled(jax.vmap(one))

    def call(numbers: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            return [np.asarray(x) for x in traced(numbers)]
        except TypeError:  # the class inspects its numbers, so make the systems one by one
            rows = zip(*numbers.values(), strict=True)
            several = [one(dict(zip(keys, map(float, row), strict=True))) for row in rows]
            if len({tuple(np.shape(x) for x in each) for each in several}) > 1:
                raise ValueError(f"{', '.join(keys)} change more than numbers of the system") from None
            return [np.stack([np.asarray(x) for x in each]) for each in zip(*several, strict=True)]

    return call


def _replaced(system: System, given: dict[str, np.ndarray]) -> tuple[System, list[str]]:
    """A system given as a value, with some of its parameters replaced."""
    names = leaf_names(system)
    for key in given:
        if key not in names:
            raise wrong(f"parameter of {system.label}", key, names)
    leaves = [given.get(name, x) for name, x in zip(names, jax.tree.leaves(system), strict=True)]
    vary = [path for path, name in zip(leaf_paths(system), names, strict=True) if name in given]
    return jax.tree.unflatten(jax.tree.structure(system), leaves), vary


def starts_of(
    spec: Spec, system: System, own: Callable, columns: dict[str, np.ndarray], size: int
) -> tuple[np.ndarray, np.ndarray]:
    """(N, n) configurations and velocities."""
    whole = {key: np.asarray(columns[key], float) for key in ("q0", "v0") if key in columns}
    shapes = {"q0": system.dimension, "v0": system.velocity_dimension}
    if len(whole) < 2:
        named = columns.get(START, np.full(size, spec["start"] if isinstance(spec["start"], str) else ""))
        for name in dict.fromkeys(map(str, named)):
            given = spec["start"]
            found = (
                (np.array(given["q"]), np.array(given["v"])) if isinstance(given, dict) else own(name or None)
            )
            for key, x in zip(("q0", "v0"), found, strict=True):
                if x.shape[-1] != shapes[key]:
                    raise ValueError(f"start: {key} must have {shapes[key]} numbers, got {x.shape[-1]}")
                if key not in columns:
                    where = whole.setdefault(key, np.zeros((size, shapes[key])))
                    here = named == name
                    where[here] = x[here] if x.ndim == 2 else x
    for key, n in shapes.items():
        if whole[key].shape != (size, n):
            raise ValueError(f"{key} must have shape ({size}, {n}), got {whole[key].shape}")
        names = system.coordinates if key == "q0" else system.velocity_names
        for column, values in columns.items():
            of, dot, name = column.partition(".")
            if dot and of == key:
                if name not in names:
                    raise wrong(
                        f"{'coordinate' if key == 'q0' else 'velocity'} of {system.label}", name, names
                    )
                whole[key][:, names.index(name)] = values
    return whole["q0"], whole["v0"]


@functools.lru_cache(maxsize=64)
def _nearest(tree: Any, axes: tuple[int | None, ...], t0: float) -> Callable:
    over = (jax.tree.unflatten(tree, axes), 0, 0)
    return compiled(
        lambda system, q, v: jax.vmap(lambda s, q, v: nearest_start(s.at(t0), q, v), over)(system, q, v)
    )


def _projected(
    system: System, vary: list[str], q0: np.ndarray, v0: np.ndarray, t0: float
) -> tuple[np.ndarray, np.ndarray]:
    """The starts nearest to (q0, v0) that satisfy the constraints."""
    axes = tuple(0 if path in vary else None for path in leaf_paths(system))

    def found(system: System) -> tuple[np.ndarray, np.ndarray]:
        q, v = _nearest(jax.tree.structure(system), axes, t0)(system, q0, v0)
        return np.asarray(q), np.asarray(v)

    q, v = found(system)
    if not (np.all(np.isfinite(q)) and np.all(np.isfinite(v))):  # the constraints may be dependent
        leaves, tree = jax.tree.flatten(system)
        first = jax.tree.unflatten(
            tree, [x if a is None else x[0] for x, a in zip(leaves, axes, strict=True)]
        )
        kept = independent_rows(first, q0[0], t0).kept
        if kept is not None:
            q, v = found(with_kept(system, kept))
    return q, v
