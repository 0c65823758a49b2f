"""The members of an ensemble: what each starts from, which parameters are its own, and whether they make sense."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from dalembert.methods import Method, Status
from dalembert.model import (
    System,
    Trait,
    check_start,
    check_system,
    check_turns,
    lower,
    observed,
    real_numbers,
)
from dalembert.numerics import compiled
from dalembert.simulate.engine import quick_survey
from dalembert.simulate.loop import start_fault


def member_starts(system: System, q0: Any, v0: Any, h: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """The starts as (N, n) arrays, and N."""
    arrays = {}
    for name, x, n in (("q0", q0, system.dimension), ("v0", v0, system.velocity_dimension)):
        names = system.coordinates if name == "q0" else system.velocity_names
        x = real_numbers(name, x, n, names)
        if x.ndim not in (1, 2) or x.shape[-1] != n:
            raise ValueError(
                f"{name} must have shape (N, {n}), or ({n},) where all members share it; got {x.shape}"
            )
        arrays[name] = x
    sizes = {x.shape[0] for x in arrays.values() if x.ndim == 2} | (
        {np.shape(h)[0]} if np.ndim(h) == 1 else set()
    )
    parameters = [np.shape(x)[0] for x in jax.tree.leaves(system) if np.ndim(x)]
    if not sizes and len(set(parameters)) == 1:
        sizes = set(parameters)
    if len(sizes) != 1:
        raise ValueError(
            f"an ensemble needs one batch size: one row per member in q0 or v0, or h of shape (N,); got q0 "
            f"{arrays['q0'].shape}, v0 {arrays['v0'].shape}, h {np.shape(h)}"
        )
    size = sizes.pop()
    if size == 0:
        raise ValueError("an ensemble needs at least one member")
    check_turns(system, arrays["q0"])
    q0, v0 = (np.broadcast_to(x, (size, x.shape[-1])) for x in arrays.values())
    return q0, v0, size


def check_members(
    tree: Any, leaves: list, varied: list[bool], q0: np.ndarray, v0: np.ndarray, t0: float
) -> None:
    """Every member's numbers; then the first member as a single run is; then every start velocity."""
    own = [("a parameter", x) for x, v in zip(leaves, varied, strict=True) if v]
    for name, x in (("q0", q0), ("v0", v0), *own):
        bad = np.flatnonzero(~np.all(np.isfinite(np.reshape(x, (len(x), -1))), axis=1))
        if bad.size:
            raise ValueError(f"{name} is NaN or infinite for {_members(bad)}")
    system, method, _ = jax.tree.unflatten(
        tree, [x[0] if v else x for x, v in zip(leaves, varied, strict=True)]
    )
    check_system(system)
    axes = jax.tree.unflatten(tree, [0 if v else None for v in varied])[0]
    found = []
    for a in range(0, len(q0), 65536):
        part = slice(a, a + 65536)
        systems = jax.tree.unflatten(
            tree, [x[part] if v else x for x, v in zip(leaves, varied, strict=True)]
        )[0]
        found.append(np.asarray(_faults(axes)(systems, q0[part], v0[part], float(t0))))
    found = np.concatenate(found)
    off, bad, negative = (
        np.flatnonzero(found == status.code)
        for status in (Status.NO_ELEMENT, Status.OFF_CONSTRAINT, Status.NOT_DEFINITE)
    )
    m = lower(system)
    if off.size:
        raise ValueError(f"{m.label}: q0 is not an element of {m.space.name} for {_members(off)}")
    if bad.size:
        raise ValueError(
            f"{system.label}: the start velocity violates the constraint A(q0) v0 = "
            f"{'b(q0)' if Trait.AFFINE in m.traits else 0} for {_members(bad)}; start each member with a velocity that its own "
            "constraint allows"
        )
    if negative.size:
        raise ValueError(
            f"{system.label}: the mass matrix is not positive definite at the start for {_members(negative)}; check "
            "that masses and moments of inertia are positive"
        )
    method.check(observed(m, check_start(system, q0[0], v0[0], quick_survey, t0)))
    method.check_start(system, q0[0], v0[0], t0)


@lru_cache(maxsize=64)
def _violating(axes_leaves: tuple, axes_tree: Any) -> Callable:
    axes = jax.tree.unflatten(axes_tree, axes_leaves)
    return compiled(lambda systems, q, v, t: jax.vmap(start_fault, (axes, 0, 0, None))(systems, q, v, t))


def _faults(axes: Any) -> Callable:
    """The function that says for each member what is wrong with its start: nothing, a velocity off the constraint,
    a configuration off the group."""
    leaves, tree = jax.tree.flatten(axes, is_leaf=lambda x: x is None)
    return _violating(tuple(leaves), tree)


def varied_leaves(
    system: System, method: Method, h: Any, size: int, vary: Sequence[str] | None
) -> list[bool]:
    """Which leaves of (system, method, h) hold one value a member."""
    paths = [(jax.tree_util.keystr(path).lstrip("."), x) for part in (system, method)
             for path, x in jax.tree_util.tree_leaves_with_path(part)]  # fmt: skip
    fits = [np.ndim(x) > 0 and np.shape(x)[0] == size for _, x in paths]
    if vary is not None:
        unknown = set(vary) - {name for (name, _), fit in zip(paths, fits, strict=True) if fit}
        if unknown:
            raise ValueError(f"vary names {sorted(unknown)}, which are no parameters with {size} values")
        return [*(name in vary for name, _ in paths), np.ndim(h) == 1]
    mine = len(jax.tree.leaves(system))
    names = [
        name for (name, x), fit in zip(paths[:mine], fits[:mine], strict=True) if fit and np.ndim(x) == 1
    ]
    if names and _would_do(system):
        raise ValueError(
            f"{', '.join(names)}: {size} values, as many as members, but the system's functions take them as they "
            "are too. Say with vary=(...) which parameters hold one value a member"
        )
    return [*fits, np.ndim(h) == 1]


def _would_do(system: System) -> bool:
    """Whether the system's functions are well defined with all parameters shared."""
    try:
        check_system(system)
    except (ValueError, TypeError):
        return False
    return True


def _members(bad: np.ndarray) -> str:
    few = ", ".join(map(str, bad[:5]))
    return f"{bad.size} member{'s' if bad.size > 1 else ''} ({few}{', ...' if bad.size > 5 else ''})"
