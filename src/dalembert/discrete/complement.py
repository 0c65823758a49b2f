"""The complement of D for which a projector stands, and the check of a metric that a method is to project with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model import (
    TOLERANCE,
    Mechanics,
    System,
    as_arrays,
    is_symmetric,
    lower,
    places_around,
    samples,
    shape_of,
    units,
)
from dalembert.model.checks import spot
from dalembert.model.redundancy import dependent
from dalembert.numerics import jit_fast_compile

# Numbers that eigenvalues and angles lose to rounding, as in the check of the mass matrix itself.
_DEFINITE = 1e-13


def complement_angle(system: System | Mechanics, q: Any, metric: Any) -> float:
    """The largest angle between two complements of D at q: that of the kinetic metric, and that of the given matrix.

    The angle is measured by the kinetic metric, in radians. It is zero if and only if the two metrics have the same
    projectors onto D. A rheonomic system is given as system.at(t).
    """
    m = lower(as_arrays(system) if isinstance(system, System) else system)
    q = jnp.asarray(q, float)
    vectors = m.frame(q) if m.framed else m.rows(q).T
    return float(_angle(np.asarray(m.metric(q)), np.asarray(metric, float), np.asarray(vectors), m.framed))


def _angle(mass: np.ndarray, metric: np.ndarray, vectors: np.ndarray, framed: bool) -> float:
    """The angle from vectors that span D, or from one-forms (columns) that vanish on it; NaN if these are dependent.

    In an orthonormal basis of the kinetic metric, D is spanned by F, the columns of X are normal to it, and the other
    metric is a matrix G. The other complement is normal to G F, and spanned by G^-1 X, so the angles are those between
    F and G F, or between X and G^-1 X.
    """
    if not vectors.shape[1]:
        return 0.0
    factor = np.linalg.cholesky(mass)
    other = np.linalg.solve(factor, np.linalg.solve(factor, metric).T)
    own = factor.T @ vectors if framed else np.linalg.solve(factor, vectors)
    if dependent(own.T):
        return np.nan
    moved = other @ own if framed else np.linalg.solve(other, own)
    one, two = (np.linalg.qr(x / np.linalg.norm(x, axis=0))[0] for x in (own, moved))
    # The sine, which unlike the cosine has all its digits near zero.
    sine = np.linalg.svd(two - one @ (one.T @ two), compute_uv=False)[0]
    return float(np.arcsin(min(sine, 1.0)))


@jit_fast_compile
def _sampled(m: Mechanics, method: Any, q: Array, v: Array, shifts: Array, turns: Array):
    """Configurations around q, their mass matrices, their metrics, those after full turns of the angles, and vectors
    that span D or one-forms that vanish on it."""
    places = places_around(m, q, v, m.metric(q), shifts)[0]
    ticks = 0.31 * jnp.arange(len(shifts))

    def one(tick, q, turned):
        there = m.later(tick)
        vectors = there.frame(q) if m.framed else there.rows(q).T
        return there.metric(q), method.metric_at(there, q), method.metric_at(there, turned), vectors

    return places, *jax.vmap(one)(ticks, places, places + 2 * np.pi * turns)


def check_metric_shape(method: Any, m: Mechanics) -> None:
    """Refuses a metric of a method that is not one real matrix of the right size."""
    n, number = m.velocity_dimension, jnp.zeros(()).dtype
    here = lower(as_arrays(m.system)).at(jnp.zeros(()))
    q = jax.ShapeDtypeStruct((m.dimension,), number)
    label, wanted = f"the metric of {type(method).__name__}", f"a symmetric matrix (shape ({n}, {n}))"
    shape = shape_of(label, lambda q: method.metric_at(here, q), q, wanted=wanted)
    if shape != (n, n):
        raise ValueError(f"{label} must return {wanted}, got shape {shape}")


def check_projector_metric(method: Any, system: System, q0: Any, v0: Any, t0: Any) -> None:
    """Refuses a method's metric that is not symmetric and positive definite at the start and around it, or whose
    complement of D is not that of the kinetic metric, unless the method takes any complement."""
    m = lower(as_arrays(system)).at(jnp.asarray(t0, float))
    q0, v0 = (jnp.asarray(x, float) for x in (q0, v0))
    shifts, _, turns = samples(m)
    found = _sampled(m, as_arrays(method), q0, v0, shifts, turns)
    places, masses, metrics, turned, vectors = (np.asarray(x) for x in found)
    what = f"{system.label}: the metric of {method.cli_name.partition(':')[0]}"
    for k, (q, mass, metric) in enumerate(zip(places, masses, metrics, strict=True)):
        where = f"at ({spot(q, m)}), {'the start' if k == 0 else 'a configuration near the start'}"
        if not np.all(np.isfinite(metric)):
            if k == 0:
                raise ValueError(f"{what} is NaN or infinite {where}:\n{metric}")
            continue  # far from the start, functions may be undefined; a run that goes there fails there
        if not is_symmetric(metric, metric):
            raise ValueError(f"{what} is not symmetric {where}:\n{metric}")
        scaled = metric / np.outer(units(metric), units(metric))
        smallest = np.linalg.eigvalsh(scaled)[0]
        if smallest <= _DEFINITE or np.any(np.diag(metric) <= 0):
            raise ValueError(
                f"{what} must be positive definite, but {where} its smallest eigenvalue, scaled to unit diagonal, is "
                f"{smallest:.3g}:\n{metric}"
            )
        size = units(metric)
        if m.angles and not np.all(np.abs(turned[k] - metric) <= TOLERANCE * np.outer(size, size)):
            raise ValueError(
                f"{what} changes by full turns of the angles ({', '.join(m.angles)}), {where}; write it with their "
                "sines and cosines, or remove them from `angles`"
            )
        if not np.all(np.isfinite(mass)) or not np.all(np.isfinite(vectors[k])):
            continue
        if np.linalg.eigvalsh(mass)[0] <= 0:
            continue
        angle = _angle(mass, metric, vectors[k], m.framed)
        if angle > TOLERANCE and not method.any_complement:
            raise ValueError(
                f"{what} has another complement of D than the kinetic metric: {where}, the two complements differ by "
                f"{np.degrees(angle):.3g} degrees. Its projectors would make the mean momentum p satisfy A G^-1 p = 0, "
                "while the velocity M^-1 p would leave the constraint, and the run would follow another motion however "
                "small h is (Suslov's body with the identity ends 0.35 from its motion at every h). Leave the metric "
                "out, or give one with d^T G n = 0 for all d in D and n in M^-1 A^T; to study such a run all the same, "
                "say any_complement=True"
            )
