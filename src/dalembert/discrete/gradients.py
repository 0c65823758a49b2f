"""Discrete gradients: DV(q0, q1) with DV . (q1 - q0) = V(q1) - V(q0), symmetric in its two points.

Differences of V are never divided by small steps. A difference is first written as the average of a
derivative along the segment (Lobatto's six points), which has no cancellation; what that quadrature misses
is added from the values of V, and only where the quadrature is not already exact to rounding. So energy
is kept to rounding for any potential, large steps included, and nothing blows up as the step shrinks.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.numerics import is_written_constant, matvec

Potential = Callable[[Array], Array]
Gradient = Callable[[Potential, Array, Array, Array], Array]

# Lobatto's rule with six points, exact to degree nine. It contains the ends, so a kink near one is seen.
_A, _B = np.sqrt(1 / 3 - 2 / 21 * np.sqrt(7)), np.sqrt(1 / 3 + 2 / 21 * np.sqrt(7))
_NODES = (np.array([-1, -_B, -_A, _A, _B, 1]) + 1) / 2
_WEIGHTS = np.array([2, 14 - np.sqrt(7), 14 + np.sqrt(7), 14 + np.sqrt(7), 14 - np.sqrt(7), 2]) / 60
# The rule on the ends and the inner points alone, exact to degree three: an error estimate for the other.
_END = (1 / 3 - _A**2) / (1 - _A**2) / 2
_COARSE = np.array([_END, 0, 0.5 - _END, 0.5 - _END, 0, _END])


def _average(derivative: Callable[[Array], Array], q0: Array, q1: Array) -> tuple[Array, Array, Array]:
    """The average of a derivative on the segment, what a coarse rule misses, and whether V's values must correct it.

    The fine rule errs like the square of the coarse one's error, so below 1e-8 relative it is exact.
    """
    nodes = jnp.asarray(_NODES, q0.dtype)[:, None]
    values = jax.vmap(derivative)(q0 + nodes * (q1 - q0))
    values = values.reshape(len(_NODES), -1)
    fine = jnp.sum(jnp.asarray(_WEIGHTS, q0.dtype)[:, None] * values, axis=0)
    coarse = jnp.sum(jnp.asarray(_COARSE, q0.dtype)[:, None] * values, axis=0)
    missed = jnp.abs(fine - coarse)
    return fine, missed, jnp.max(missed) > 1e-8 * jnp.max(jnp.abs(fine))


def _correction(defect: Callable[[], Array], needed: Array, length: Array) -> Array:
    """defect / length where the quadrature needs it, else zero; safe (also in derivatives) at length zero."""
    needed = needed & (length > 0)
    return lax.cond(needed, defect, lambda: jnp.zeros_like(length)) / jnp.where(needed, length, 1.0)


def _zero_of_constants(gradient: Gradient) -> Gradient:
    """The same gradient; that of a potential written without q is zero, with nothing to compute."""

    @functools.wraps(gradient)
    def quick(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
        if is_written_constant(potential, q0):
            return jnp.zeros_like(q0)
        return gradient(potential, q0, q1, metric)

    return quick


@_zero_of_constants
def average(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
    """The average of grad V on the segment (average vector field).

    Separable potentials give separable gradients, so a driver stays independent of its passenger: what the
    quadrature misses is added to the coordinates in which it misses something, not to those where it is exact.
    """
    del metric
    step = q1 - q0
    fine, missed, needed = _average(jax.grad(potential), q0, q1)
    along = missed * step
    return fine + along * _correction(
        lambda: potential(q1) - potential(q0) - jnp.sum(fine * step), needed, jnp.sum(along * step)
    )


@_zero_of_constants
def gonzalez(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
    """grad V at the midpoint, corrected along the step: g + M d (V1 - V0 - g.d)/(d.M d), d = q1 - q0.

    Equations: [gonzalez1996], with the mass matrix as the inner product (the identity in the papers), which
    makes the result independent of the choice of linear coordinates.
    """
    step = q1 - q0
    middle = jax.grad(potential)(0.5 * (q0 + q1))
    fine, _, needed = _average(jax.grad(potential), q0, q1)
    smooth = jnp.sum((fine - middle) * step)
    momentum = matvec(metric, step)
    length = jnp.sum(momentum * step)
    moving = length > 0
    ratio = jnp.where(moving, smooth, 0.0) / jnp.where(moving, length, 1.0)
    return middle + momentum * (
        ratio + _correction(lambda: potential(q1) - potential(q0) - jnp.sum(fine * step), needed, length)
    )


def _increments(potential: Potential, q0: Array, q1: Array) -> Array:
    """Coordinate increments: V's change along each edge of the path that moves one coordinate at a time."""
    parts = []
    for i in range(q0.shape[0]):
        here = jnp.concatenate([q1[:i], q0[i:]])
        there = jnp.concatenate([q1[: i + 1], q0[i + 1 :]])
        direction = jnp.zeros_like(q0).at[i].set(1.0)

        def slope(q, direction=direction):
            return jax.jvp(potential, (q,), (direction,))[1]

        fine, _, needed = _average(slope, here, there)
        step = q1[i] - q0[i]

        def defect(here=here, there=there, fine=fine, step=step):
            return potential(there) - potential(here) - fine[0] * step

        parts.append(fine[0] + step * _correction(defect, needed, step * step))
    return jnp.stack(parts)


@_zero_of_constants
def itoh_abe(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
    """The coordinate-increment gradient [itoh1988], made symmetric: the mean of both directions."""
    del metric
    return 0.5 * (_increments(potential, q0, q1) + _increments(potential, q1, q0))


GRADIENTS: dict[str, Gradient] = {
    "gonzalez": gonzalez,
    "average": average,
    "itoh-abe": itoh_abe,
}
