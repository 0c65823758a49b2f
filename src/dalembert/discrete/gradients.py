"""Discrete gradients: DV(q0, q1) with DV . (q1 - q0) = V(q1) - V(q0), symmetric in its two points.

Differences of V are never divided by small steps. A difference is first written as the average of a
derivative along the segment (Lobatto's six points), which has no cancellation. What that quadrature misses
is added from the values of V: where a coarser rule says that it may miss something, and wherever the balance
DV . (q1 - q0) = V(q1) - V(q0) is off by more than rounding, as it is at a kink or a steep step that falls between
the six points. So energy is kept to rounding for any potential, large steps included, and nothing blows up as the
step shrinks.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.numerics import is_syntactically_constant, matvec

Potential = Callable[[Array], Array]
Gradient = Callable[[Potential, Array, Array, Array], Array]

# Lobatto's rule with six points, exact to degree nine. It contains the ends, so a kink near one is seen.
_A, _B = np.sqrt(1 / 3 - 2 / 21 * np.sqrt(7)), np.sqrt(1 / 3 + 2 / 21 * np.sqrt(7))
_NODES = (np.array([-1, -_B, -_A, _A, _B, 1]) + 1) / 2
# Of the pairs that lie symmetrically, the ends first.
_WEIGHTS = np.array([2, 14 - np.sqrt(7), 14 + np.sqrt(7)]) / 60
# The rule on the ends and the inner points alone, exact to degree three: an error estimate for the other.
_END = (1 / 3 - _A**2) / (1 - _A**2) / 2
_COARSE = np.array([_END, 0, 0.5 - _END])
# How many roundings the values of V, and the products that they are compared with, may be off by. Each evaluation
# of V is a few dozen operations; a potential that is off by more is not kept to rounding by any method.
_ROUNDINGS = 64


class Segment(NamedTuple):
    """The average of a derivative of V on a segment, and what is known about its error."""

    fine: Array
    missed: Array
    """By how much a coarser rule differs, for each component."""
    defect: Array
    """V(q1) - V(q0) - fine . (q1 - q0), which should vanish."""
    rounding: Array
    """How much of the defect may be rounding."""
    needed: Array
    """Whether the defect must be added."""
    foreseen: Array
    """Whether it is no larger than the coarser rule lets expect."""


def _average(
    derivative: Callable[[Array], Array],
    potential: Potential,
    q0: Array,
    q1: Array,
    step: Array,
    reach: Array,
) -> Segment:
    """The average of a derivative on the segment; fine . step should be the change of V.

    Where V is smooth, the fine rule errs at most like the square of the coarse one's error: if that is below 1e-8
    relative, the fine rule is exact. Where V is not, the balance shows it. Its rounding is that of the values of V, and
    V's change when the coordinates, of size `reach`, are rounded. All are compared as energies, in which the
    coordinates' units do not matter.
    """
    # The ends are the very points q0 and q1: what is computed there serves V too, at q0 for a whole iteration.
    inner = jnp.asarray(_NODES[1:-1], q0.dtype)[:, None]
    values = jax.vmap(derivative)(jnp.concatenate([q0[None], q0 + inner * (q1 - q0), q1[None]]))
    values = values.reshape(len(_NODES), -1)
    # Pairs first, which both rules share.
    pairs = values[: len(_WEIGHTS)] + values[: -len(_WEIGHTS) - 1 : -1]
    fine, coarse = (
        jnp.sum(jnp.asarray(weights, q0.dtype)[:, None] * pairs, axis=0) for weights in (_WEIGHTS, _COARSE)
    )
    missed, works = fine - coarse, fine * step
    v0, v1 = potential(q0), potential(q1)
    defect = v1 - v0 - jnp.sum(works)
    work, gap = jnp.sum(jnp.abs(works)), jnp.sum(jnp.abs(missed * step))
    scale = jnp.abs(v0) + jnp.abs(v1) + jnp.sum(jnp.abs(fine) * reach)
    rounding = _ROUNDINGS * jnp.finfo(q0.dtype).eps * scale
    # Written so that NaN, which a step then reports, needs nothing.
    off = jnp.abs(defect) > rounding
    needed = (gap > 1e-8 * work) | off
    # For a cosine that turns by the angle a on the segment, the defect is at most 1.1e-5 a^2 gap^2/work.
    foreseen = ~(off & (jnp.abs(defect) * work > 1e-3 * gap * gap))
    return Segment(fine, missed, defect, rounding, needed, foreseen)


def _ratio(x: Array, length: Array) -> Array:
    """x / length; zero, also in derivatives, where the length is."""
    moving = length != 0
    return jnp.where(moving, x, 0.0) / jnp.where(moving, length, 1.0)


def _zero_of_constants(gradient: Gradient) -> Gradient:
    """The same gradient; that of a potential written without q is zero, with nothing to compute."""

    @functools.wraps(gradient)
    def quick(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
        if is_syntactically_constant(potential, q0):
            return jnp.zeros_like(q0)
        return gradient(potential, q0, q1, metric)

    return quick


def _shares(potential: Potential, q0: Array, q1: Array, found: Segment) -> Array:
    """In which coordinates the quadrature misses something, and how much there, as a gradient.

    The values of V tell, when one coordinate moves alone: all of it, where V is a sum of functions of one coordinate.
    Where they show nothing above rounding, the coarser rule tells.
    """
    step = q1 - q0

    def alone(this):
        change = potential(jnp.where(this, q1, q0)) - potential(q0)
        change = 0.5 * (change + potential(q1) - potential(jnp.where(this, q0, q1)))
        more = change - jnp.sum(jnp.where(this, found.fine * step, 0.0))
        return jnp.where(jnp.abs(more) > found.rounding, more, 0.0)

    # Not a loop: its derivative, taken backwards, would have to keep a value for each coordinate.
    off = _ratio(jax.vmap(alone)(jnp.eye(q0.shape[0], dtype=bool)), step)
    return jnp.where(jnp.any(off != 0), off, found.missed)


@_zero_of_constants
def average(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
    """The average of grad V on the segment (average vector field).

    Separable potentials give separable gradients, so a driver stays independent of its passenger: what the
    quadrature misses is added to the coordinates in which it misses something, not to those where it is exact.
    """
    step = q1 - q0
    found = _average(jax.grad(potential), potential, q0, q1, step, jnp.abs(q0) + jnp.abs(q1))

    def spread(missed):
        """A direction for the defect, in the coordinates that miss most, and its product with the step."""
        return missed * missed * step, jnp.sum((missed * step) ** 2)

    def searched():
        along, length = spread(_shares(potential, q0, q1, found))
        momentum = matvec(metric, step)
        along = jnp.where(length > 0, along, momentum)
        return along * _ratio(found.defect, jnp.where(length > 0, length, jnp.sum(momentum * step)))

    def known():
        along, length = spread(found.missed)
        return along * _ratio(jnp.where(found.needed, found.defect, 0.0), length)

    # The first branch is the usual one, which ensembles compute for all members: the other only where one needs it.
    return found.fine + lax.cond(found.foreseen, known, searched)


@_zero_of_constants
def gonzalez(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
    """grad V at the midpoint, corrected along the step: g + M d (V1 - V0 - g.d)/(d.M d), d = q1 - q0.

    Equations: [gonzalez1996], with the mass matrix as the inner product (the identity in the papers), which
    makes the result independent of the choice of linear coordinates.
    """
    step = q1 - q0
    middle = jax.grad(potential)(0.5 * (q0 + q1))
    found = _average(jax.grad(potential), potential, q0, q1, step, jnp.abs(q0) + jnp.abs(q1))
    smooth = jnp.sum((found.fine - middle) * step)
    momentum = matvec(metric, step)
    return middle + momentum * _ratio(
        smooth + jnp.where(found.needed, found.defect, 0.0), jnp.sum(momentum * step)
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

        step, reach = q1[i] - q0[i], jnp.abs(q0[i]) + jnp.abs(q1[i])
        found = _average(slope, potential, here, there, step, reach)
        parts.append(found.fine[0] + _ratio(jnp.where(found.needed, found.defect, 0.0), step))
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
