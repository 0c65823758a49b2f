"""Constraints that follow from others: which to keep, whether the others still follow, and where the rank changes."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model.sampling import TOLERANCE, units
from dalembert.model.systems import Kept, Mechanics, System, as_arrays, lower
from dalembert.model.traits import Trait
from dalembert.numerics import copied, diagonal, jit_fast_compile, matmul, matvec, solve_spd

DEPENDENT = 1e-7
"""One-forms whose smallest singular value, relative to the largest, is below this are called dependent: half of the
digits of the multipliers are then lost. All lengths are measured in units of the metric."""


class _Look(NamedTuple):
    """All constraints at configurations, one row each."""

    q: Any
    measure: Any
    rows: Any
    offsets: Any
    values: Any


@jit_fast_compile
def _look(m: Mechanics, q: Array, shifts: Array, ticks: Array) -> _Look:
    """The constraints of m at the configurations that are `shifts` away from those in q, `ticks` later."""

    def one(q, shift, tick):
        there, q = m.later(tick), m.space.displaced(q, shift)
        return _Look(q, there.measure(there.metric(q)), there.rows(q), there.offsets(q), there.holonomic(q))

    return jax.vmap(one)(q, shifts, ticks)


def _scaled(look: _Look) -> tuple[np.ndarray, np.ndarray]:
    """The rows in units of the metric, each divided by its length, and the lengths."""
    rows = look.rows / units(look.measure)[:, None, :]
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1), lengths[..., 0]


def _onto(m: Mechanics, q: Any, ticks: np.ndarray, shifts: Any = 0.0) -> _Look:
    """The constraints at configurations near those in q that satisfy the position constraints as well as possible."""
    shifts = np.broadcast_to(shifts, (len(q), m.velocity_dimension))
    for _ in range(100):
        found = _Look(*(np.asarray(x) for x in _look(m, q, shifts, ticks)))
        k = found.values.shape[1]
        if not k or not np.all(np.isfinite(found.rows)) or not np.all(np.isfinite(found.values)):
            return found
        unit = units(found.measure)
        slopes = found.rows[:, found.rows.shape[1] - k :] / unit[:, None, :]
        lengths = np.linalg.norm(slopes, axis=2) + np.finfo(float).tiny
        # The method of Levenberg and Marquardt, with a damping that vanishes with c. It converges although the slopes
        # become dependent on the surface; Newton's method would run along it.
        aim = found.values / lengths
        scaled = slopes / lengths[:, :, None]
        damping = np.minimum(1.0, np.max(np.abs(aim), axis=1) / (1 + np.max(np.abs(q), axis=1)))
        gram = scaled @ scaled.swapaxes(1, 2) + damping[:, None, None] * np.eye(k)
        weights = (np.linalg.pinv(gram, rcond=1e-14, hermitian=True) @ aim[..., None]).swapaxes(1, 2)
        shifts = -(weights @ scaled)[:, 0] / unit
        q = found.q
        if np.max(np.abs(shifts) * unit) <= 1e-15 * (1 + np.max(np.abs(q[:, : unit.shape[1]]) * unit)):
            break
    return found


def independent_rows(system: System, q0: Any, t0: Any = 0.0, v0: Any = None) -> System:
    """The same system without the constraints that follow from the others; the system itself if none does.

    It looks at the configuration with c(q) = 0 near q0 and at others around it. If some constraints follow from the
    others at all of them, as with four wheels on a rigid car, the system that is returned leaves them out; its
    trajectories still report on all of them. `simulate`, `ensemble` and other functions of known numbers call it
    themselves; call it before jax.grad, jax.jit or jax.vmap, inside of which no rank is known. A ValueError names
    constraints that contradict each other.
    """
    if system.kept is not None:
        return system
    m = lower(as_arrays(system)).at(np.asarray(t0, float))
    q = np.asarray(q0, float)[None]
    if Trait.NONLINEAR in m.traits or (m.framed and Trait.HOLONOMIC in m.traits):
        return system
    if jax.eval_shape(m.rows, q[0]).shape[0] < 2 or (m.framed and "constraints" not in m.given):
        return system
    here = _onto(m, q, np.zeros(1))
    if not all(np.all(np.isfinite(x)) for x in here):
        return system
    forms, lengths = _scaled(here)
    number, positions = forms.shape[1], here.values.shape[1]
    if np.any(lengths == 0) or not dependent(forms[0]):
        return system
    names = _names(number, positions)
    _refuse_conflicts(m, names, here, forms[0], lengths[0])
    chosen = _chosen(forms[0], number - positions)
    kept = Kept(
        tuple(i for i in chosen if i < number - positions),
        tuple(i - (number - positions) for i in chosen if i >= number - positions),
    )
    fewer = with_kept(system, kept)
    return fewer if _follow_around(lower(as_arrays(fewer)).at(m.t), here, v0) else system


def redundancy_in_words(system: System, q0: Any, t0: Any = 0.0) -> str:
    """Which constraints are left out, and from which others each follows."""
    kept = system.kept
    if kept is None:
        return ""
    m = lower(as_arrays(system)).at(np.asarray(t0, float)).with_all_rows()
    here = _onto(m, np.asarray(q0, float)[None], np.zeros(1))
    (forms,), _ = _scaled(here)
    number, positions = len(forms), here.values.shape[1]
    names = _names(number, positions)
    chosen = [*kept.forms, *(number - positions + i for i in kept.positions)]
    said = []
    for i in (i for i in range(number) if i not in chosen):
        weights = np.linalg.lstsq(forms[chosen].T, forms[i], rcond=None)[0]
        causes = [names[k] for k, x in zip(chosen, weights, strict=True) if abs(x) > DEPENDENT]
        said.append(f"{names[i]} follows from {_listed(causes)}")
    return "; ".join(said)


def _names(number: int, positions: int) -> list[str]:
    """Names of all rows: those of one-forms, then those of position constraints."""
    return [f"constraints[{i}]" for i in range(number - positions)] + [
        f"holonomic[{i}]" for i in range(positions)
    ]


def left_out(system: System) -> str:
    """The names of the constraints that a system leaves out."""
    if system.kept is None:
        return ""
    m = lower(system).at(0.0).with_all_rows()
    q = jax.ShapeDtypeStruct((m.dimension,), float)
    number, positions = (jax.eval_shape(x, q).shape[0] for x in (m.rows, m.holonomic))
    names = _names(number, positions)
    kept = {names[i] for i in system.kept.forms} | {
        names[number - positions + i] for i in system.kept.positions
    }
    return ", ".join(name for name in names if name not in kept)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def relative_sizes(rows: np.ndarray) -> np.ndarray:
    """The singular values of rows after each is divided by its length: very different lengths do not matter then."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.linalg.svd(rows / np.where(lengths > 0, lengths, 1), compute_uv=False)


def dependent(rows: np.ndarray) -> bool:
    """Whether rows, each in units of its own length, are linearly dependent, or nearly so."""
    sizes = relative_sizes(rows)
    return len(sizes) < len(rows) or bool(np.any(sizes[-1:] <= DEPENDENT * sizes[:1]))


def _refuse_conflicts(
    m: Mechanics, names: list[str], here: _Look, forms: np.ndarray, lengths: np.ndarray
) -> None:
    """Refuses rows that are dependent while what they must be equal to is not."""
    positions = here.values.shape[1]
    tail = len(names) - positions
    for which, right, what in (
        (slice(tail, None), here.values[0] / lengths[tail:], "configuration near q0"),
        (slice(None), here.offsets[0] / lengths, "velocity at q0"),
    ):
        a = forms[which]
        if not len(a):
            continue
        u, sizes, _ = np.linalg.svd(a)
        rank = int(np.sum(sizes > DEPENDENT * sizes[0]))
        left = u[:, rank:] @ (u[:, rank:].T @ right)  # what no change of the argument can remove
        # Values of position constraints are those after the search, where the others vanish up to rounding.
        size = np.max(np.abs(right)) if what.startswith("velocity") else 1 + np.max(np.abs(here.q))
        if np.max(np.abs(left), initial=0.0) > DEPENDENT * size:
            guilty = [
                n for n, x in zip(names[which], left, strict=True) if abs(x) > 1e-3 * np.max(np.abs(left))
            ]
            raise ValueError(
                f"{m.label}: {_listed(guilty)} contradict each other: their left sides are linearly dependent, but no "
                f"{what} satisfies all of them. Remove one, or correct "
                + ("them" if what.startswith("conf") else "the right sides")
            )


def _chosen(forms: np.ndarray, velocity_rows: int) -> list[int]:
    """Independent rows that span all: position constraints first, because a method keeps what is given as c(q) = 0."""
    left, chosen = forms.copy(), []
    for part in (range(velocity_rows, len(forms)), range(velocity_rows)):
        while True:
            sizes = np.array([0.0 if i in chosen else np.linalg.norm(left[i]) for i in part])
            if not len(sizes) or sizes.max() <= DEPENDENT:
                break
            # Of those that are long enough the first, so that the user recognises them.
            i = part[int(np.argmax(sizes >= 0.5 * sizes.max()))]
            chosen.append(i)
            for _ in range(2):
                u = left[i] / np.linalg.norm(left[i])
                left = left - np.outer(left @ u, u) * (np.arange(len(left)) != i)[:, None]
    return sorted(chosen)


def _follow_around(m: Mechanics, here: _Look, v0: Any) -> bool:
    """Whether the constraints that are left out follow from those that are kept, at the start and around it."""
    random = np.random.default_rng(7)
    number = 12
    v = np.zeros(m.velocity_dimension) if v0 is None else np.asarray(v0, float)
    unit = units(here.measure[0])
    natural = np.sqrt(max(float(v @ here.measure[0] @ v), 0.0)) / unit
    natural = np.where(np.isfinite(natural) & (natural > 0), natural, 1.0)
    # Near the start, because farther away position constraints may have other branches; each step is looked at anyway.
    reach = np.array([0.001, 0.01, 0.03])[np.arange(number) % 3][:, None] * np.minimum(natural, 1.0)
    shifts = random.uniform(-1, 1, (number, len(unit))) * reach
    shifts[0] = 0.0
    ticks = np.where(np.arange(number) > 0, 0.31, 0.0) * np.arange(number)
    places = _onto(m, np.repeat(here.q, number, 0), ticks, shifts)
    fine = np.all(np.isfinite(places.values), axis=1) & np.all(np.isfinite(places.rows), axis=(1, 2))
    if places.values.shape[1]:  # only those that reached the surface
        tail = places.rows[:, places.rows.shape[1] - places.values.shape[1] :]
        fine &= np.all(np.abs(places.values) <= TOLERANCE * (1 + np.abs(tail).sum(2)), axis=1)
    found = np.asarray(_followed(m, places.q, ticks))
    return bool(fine[0] and np.all(found[fine]) and np.sum(fine) > number // 2)


@jit_fast_compile
def _followed(m: Mechanics, q: Array, ticks: Array) -> Array:
    return jax.vmap(lambda q, tick: still_follow(m.later(tick), q, TOLERANCE))(q, ticks)


def still_follow(m: Mechanics, q: Array, tolerance: float = DEPENDENT) -> Array:
    """Whether the constraints that m leaves out follow from the others at q: their one-forms and right sides are the
    same combinations of the others', and their positions are reached with the others'."""
    every = m.with_all_rows()
    weights, rows, kept = _combinations(m, q)
    lengths = jnp.sqrt(jnp.sum(rows**2, axis=1))
    off = jnp.sqrt(jnp.sum((rows - matmul(weights.T, kept)) ** 2, axis=1))
    fine = jnp.all(off <= tolerance * lengths)
    if Trait.AFFINE in m.traits:
        here, all_of = m.offsets(q), every.offsets(q)
        # The size of the terms that cancel, and of the motion that the others prescribe.
        size = (
            matvec(jnp.abs(weights.T), jnp.abs(here)) + jnp.abs(all_of) + jnp.max(jnp.abs(here), initial=0.0)
        )
        fine &= jnp.all(jnp.abs(all_of - matvec(weights.T, here)) <= tolerance * size)
    if Trait.HOLONOMIC in m.traits:
        slopes = jnp.sum(jnp.abs(every.slopes(q)), axis=1)
        fine &= jnp.all(jnp.abs(every.holonomic(q)) <= tolerance * slopes * (1 + jnp.max(jnp.abs(q))))
    return fine


def least_norm(m: Mechanics, q: Array, lam: Array) -> Array:
    """The multipliers of all constraints with the least sum of squares that exert the same force as `lam`, those of the
    constraints that m keeps."""
    if not m.redundant:
        return lam
    weights, _, _ = _combinations(m, q)
    return matvec(weights.T, solve_spd(matmul(weights, weights.T), lam))


def _combinations(m: Mechanics, q: Array) -> tuple[Array, Array, Array]:
    """The weights with which the kept rows make up all rows (rows = weights^T kept), and both, in units of the
    metric."""
    unit = jnp.sqrt(jnp.abs(diagonal(m.measure(m.metric(q)))))
    rows, kept = m.with_all_rows().rows(q) / unit, m.rows(q) / unit
    return solve_spd(matmul(kept, kept.T), matmul(kept, rows.T)), rows, kept


def rank_drops_ahead(system: System, q: Any, v: Any, h: Any, t: Any) -> bool:
    """Whether the one-forms become dependent on the way from q with the velocity v in the time h, or shortly after.

    It looks for the least singular value on the straight way, ever more closely around the least one found. Where a
    frame is given, nothing depends on the rank of the one-forms.
    """
    m = lower(as_arrays(system)).at(np.asarray(t, float))
    if not m.constrained or m.framed or Trait.NONLINEAR in m.traits:
        return False
    middle, width = 0.75, 0.75
    least = np.inf
    for _ in range(8):
        part = middle + width * np.linspace(-1, 1, 21)
        shifts = np.outer(part, float(h) * np.asarray(v, float))
        look = _look(m, np.repeat(np.asarray(q, float)[None], 21, 0), shifts, part * float(h))
        look = _Look(*(np.asarray(x) for x in look))
        forms, lengths = _scaled(look)
        fine = np.all(np.isfinite(forms), axis=(1, 2))
        if not np.any(fine) or not forms.shape[1]:
            return False
        sizes = np.full(21, np.inf)
        found = np.linalg.svd(forms[fine], compute_uv=False)
        # A row that vanishes is a rank drop, too; its length is judged against those elsewhere on the way.
        shrunk = lengths[fine] / np.max(lengths[fine], axis=0)
        sizes[fine] = np.minimum(found[:, -1] / found[:, 0], np.min(shrunk, axis=1))
        k = int(np.argmin(sizes))
        least = min(least, float(sizes[k]))
        middle, width = part[k], width / 8
    return least <= DEPENDENT


def with_kept(system: System, kept: Kept | None) -> System:
    """The same system, of a class that keeps these constraints."""
    if kept is None or system.kept == kept:
        return system
    return copied(system, _class_with(type(system), kept))


@lru_cache(maxsize=256)
def _class_with(kind: type, kept: Kept) -> type:
    body = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (kind,), {**body, "kept": kept})
