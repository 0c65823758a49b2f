"""Discrete gradients: DV(q0, q1) with DV . (q1 - q0) = V(q1) - V(q0), symmetric in its two points.

Differences of V are never divided by small steps. A difference is first written as the average of a derivative along
the segment (Lobatto's six points), which has no cancellation. The values of V then correct the error of this
quadrature in two cases: if a coarser rule says that there may be an error, and if the balance
DV . (q1 - q0) = V(q1) - V(q0) is off by more than rounding, as at a kink or a steep step between the six points. Energy
is therefore conserved to rounding for any potential, even with large steps, and nothing blows up as the step shrinks.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.numerics import (
    PathRule,
    is_syntactically_constant,
    known_exactly,
    matmul,
    matvec,
    unit_rounding,
)

Potential = Callable[[Array], Array]
Gradient = Callable[[Potential, Array, Array, Array], Array]


# Lobatto's rule with six points, exact to degree nine. It contains the ends, so that it sees a kink near one of them.
def _lobatto(sqrt: Callable, one: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inner nodes on [0, 1], the weights of the symmetric pairs of nodes, with the ends first, and those of a rule
    that uses only the ends and the innermost points. It is exact to degree three, and estimates the error."""
    root = sqrt(7 * one)
    a, b = sqrt(one / 3 - 2 * root / 21), sqrt(one / 3 + 2 * root / 21)
    end = (one / 3 - a**2) / (1 - a**2) / 2
    inner = (np.array([-b, -a, a, b]) + 1) / 2
    return inner, np.array([2 * one, 14 - root, 14 + root]) / 60, np.array([end, 0 * one, one / 2 - end])


_INNER, _WEIGHTS, _COARSE = (
    known_exactly(values, lambda mp, k=k: _lobatto(mp.sqrt, mp.mpf(1))[k])
    for k, values in enumerate(_lobatto(np.sqrt, 1.0))
)
# The number of rounding errors allowed in the values of V and in the products that they are compared with. Each
# evaluation of V is a few dozen operations; if a potential has larger errors, no method conserves energy to rounding.
_ROUNDINGS = 64


class Segment(NamedTuple):
    """The average of a derivative of V on a segment, and what is known about its error."""

    fine: Array
    missed: Array
    """The difference from a coarser rule, for each component."""
    defect: Array
    """V(q1) - V(q0) - fine . (q1 - q0), which should vanish."""
    rounding: Array
    """The part of the defect that may be rounding."""
    needed: Array
    """Whether the defect must be added."""
    foreseen: Array
    """Whether the defect is no larger than the coarser rule suggests."""


def _rules(derivative: Callable[[Array], Array], q0: Array, q1: Array) -> list[Array]:
    """The mean of a derivative on the segment by the fine and by the coarse rule."""
    # The ends are exactly q0 and q1, so that V shares the computations there; those at q0 serve a whole iteration.
    inner = jnp.asarray(_INNER, q0.dtype)[:, None]
    values = jax.vmap(derivative)(jnp.concatenate([q0[None], q0 + inner * (q1 - q0), q1[None]]))
    # Both rules share the sums over symmetric pairs.
    pairs = values[: len(_WEIGHTS)] + values[: -len(_WEIGHTS) - 1 : -1]
    over = (-1, *[1] * (values.ndim - 1))
    return [
        jnp.sum(jnp.asarray(weights, q0.dtype).reshape(over) * pairs, axis=0)
        for weights in (_WEIGHTS, _COARSE)
    ]


def _average(
    derivative: Callable[[Array], Array],
    potential: Potential,
    q0: Array,
    q1: Array,
    step: Array,
    reach: Array,
) -> Segment:
    """The average of a derivative on the segment; fine . step should be the change of V.

    If V is smooth, the error of the fine rule is at most of the size of the coarse error squared: if the coarse error
    is below 1e-8, relative, the fine rule is exact. If V is not smooth, the balance shows it. The rounding of the
    balance comes from the values of V, and from the change of V when the coordinates, of size `reach`, are rounded. All
    of these are compared as energies, for which the coordinates' units do not matter.
    """
    fine, coarse = _rules(lambda q: derivative(q).reshape(-1), q0, q1)
    missed, works = fine - coarse, fine * step
    v0, v1 = potential(q0), potential(q1)
    defect = v1 - v0 - jnp.sum(works)
    work, gap = jnp.sum(jnp.abs(works)), jnp.sum(jnp.abs(missed * step))
    scale = jnp.abs(v0) + jnp.abs(v1) + jnp.sum(jnp.abs(fine) * reach)
    rounding = _ROUNDINGS * unit_rounding(q0.dtype) * scale
    # Written so that NaN, which the step then reports, needs no correction.
    off = jnp.abs(defect) > rounding
    needed = (gap > 1e-8 * work) | off
    # For a cosine that turns by the angle a on the segment, the defect is at most 1.1e-5 a^2 gap^2/work.
    foreseen = ~(off & (jnp.abs(defect) * work > 1e-3 * gap * gap))
    return Segment(fine, missed, defect, rounding, needed, foreseen)


def _ratio(x: Array, length: Array) -> Array:
    """x / length; zero, with zero derivatives, if the length is zero."""
    moving = length != 0
    return jnp.where(moving, x, 0.0) / jnp.where(moving, length, 1.0)


def _zero_of_constants(gradient: Gradient) -> Gradient:
    """The same gradient, but zero without any computation for a potential whose formula does not contain q."""

    @functools.wraps(gradient)
    def quick(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
        if is_syntactically_constant(potential, q0):
            return jnp.zeros_like(q0)
        return gradient(potential, q0, q1, metric)

    return quick


def _unseen(potential: Potential, q0: Array, q1: Array, works: Array, rounding: Array) -> Array:
    """The work that the quadrature misses in each coordinate, from the values of V when one coordinate moves alone.

    They show all of it if V is a sum of functions of one coordinate each; what may be rounding counts as zero.
    """

    def alone(this):
        change = potential(jnp.where(this, q1, q0)) - potential(q0)
        change = 0.5 * (change + potential(q1) - potential(jnp.where(this, q0, q1)))
        more = change - jnp.sum(jnp.where(this, works, 0.0))
        return jnp.where(jnp.abs(more) > rounding, more, 0.0)

    # No loop here: its reverse-mode derivative would have to keep a value for each coordinate.
    return jax.vmap(alone)(jnp.eye(q0.shape[0], dtype=bool))


def _shares(potential: Potential, q0: Array, q1: Array, found: Segment) -> Array:
    """The error of the quadrature in each coordinate, as a gradient; the coarser rule decides where V shows nothing."""
    step = q1 - q0
    off = _ratio(_unseen(potential, q0, q1, found.fine * step, found.rounding), step)
    return jnp.where(jnp.any(off != 0), off, found.missed)


@_zero_of_constants
def average(potential: Potential, q0: Array, q1: Array, metric: Array) -> Array:
    """The average of grad V on the segment (average vector field).

    Separable potentials give separable gradients, so a driver stays independent of its passenger: the error of the
    quadrature is added only to the coordinates in which it occurs, not to those in which the quadrature is exact.
    """
    step = q1 - q0
    found = _average(jax.grad(potential), potential, q0, q1, step, jnp.abs(q0) + jnp.abs(q1))

    def spread(missed):
        """A direction for the defect, weighted towards the coordinates with the largest errors, and its product with
        the step."""
        return missed * missed * step, jnp.sum((missed * step) ** 2)

    def searched():
        along, length = spread(_shares(potential, q0, q1, found))
        momentum = matvec(metric, step)
        along = jnp.where(length > 0, along, momentum)
        return along * _ratio(found.defect, jnp.where(length > 0, length, jnp.sum(momentum * step)))

    def known():
        along, length = spread(found.missed)
        return along * _ratio(jnp.where(found.needed, found.defect, 0.0), length)

    # The first branch is the usual one, and ensembles compute it for all members; they compute the other only if a
    # member needs it.
    return found.fine + lax.cond(found.foreseen, known, searched)


def average_on_path(
    potential: Callable[[Any, Array], Array],
    q0: Array,
    moves: Array,
    metric: Callable[[Array], Array],
    rule: PathRule,
    timed: bool,
) -> tuple[Array, Array]:
    """The averages of grad V with the Lagrange polynomials l_i of a path, one row per stage, and what V changes with x
    alone, which is zero unless it is `timed`.

    The path begins at q0 and has the velocities `moves` at the nodes of the rule; V is potential(x, q) for x from 0 to
    1. The sum of b_i moves_i . (row i) is the change of V, less what it changes with x alone. What the quadrature
    misses is added along the path, as in `average`, and only to the coordinates in which it occurs.
    """
    alone = jnp.zeros((), q0.dtype)
    if is_syntactically_constant(lambda z: potential(z[0], z[1:]), jnp.zeros(q0.shape[0] + 1, q0.dtype)):
        return jnp.zeros_like(moves), alone

    def number(x: Any) -> Array:
        return jnp.asarray(x, q0.dtype)

    at, weights = number(rule.fine), number(rule.weights)
    points = q0 + matmul(number(rule.places), moves)
    values = jax.vmap(jax.grad(potential, argnums=1))(at, points)
    rows = matmul(number(rule.shares), values)
    q1 = q0 + matvec(moves.T, weights)
    works = jnp.sum(weights[:, None] * rows * moves, axis=0)
    missed = matvec((values * matmul(number(rule.velocities), moves)).T, number(rule.missed))
    v0, v1 = potential(number(0.0), q0), potential(number(1.0), q1)
    if timed:
        alone = jnp.sum(number(rule.fine_weights) * jax.vmap(jax.grad(potential))(at, points))
    defect = v1 - v0 - alone - jnp.sum(works)
    work, gap = jnp.sum(jnp.abs(works)), jnp.sum(jnp.abs(missed))
    reach = jnp.sum(weights[:, None] * jnp.abs(rows), axis=0) * (jnp.abs(q0) + jnp.abs(q1))
    rounding = _ROUNDINGS * unit_rounding(q0.dtype) * (jnp.abs(v0) + jnp.abs(v1) + jnp.sum(reach))
    off = jnp.abs(defect) > rounding
    needed = (gap > 1e-8 * work) | off
    foreseen = ~(off & (jnp.abs(defect) * work > 1e-3 * gap * gap))
    lengths = jnp.sum(weights[:, None] * moves * moves, axis=0)

    def spread(wrong: Array, defect: Array) -> tuple[Array, Array]:
        """The defect as forces along the path in these coordinates, and whether there are any."""
        total = jnp.sum(wrong * wrong)
        return moves * _ratio(wrong * wrong * _ratio(defect, total), lengths), total > 0

    def searched():
        wrong = _unseen(lambda q: potential(number(0.5), q), q0, q1, works, rounding)
        wrong = jnp.where(lengths > 0, wrong, 0.0)
        forces, some = spread(jnp.where(jnp.any(wrong != 0), wrong, missed), defect)
        momenta = matmul(moves, metric(0.5 * (q0 + q1)))
        along = momenta * _ratio(defect, jnp.sum(weights[:, None] * momenta * moves))
        return jnp.where(some, forces, along)

    def known():
        return spread(missed, jnp.where(needed, defect, 0.0))[0]

    return rows + lax.cond(foreseen, known, searched), alone


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
    """The coordinate increments: the change of V along each edge of the path that moves one coordinate at a time,
    divided by the edge."""
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


def slopes_between(function: Callable[[Array], Array], q0: Array, q1: Array) -> Array:
    """The average of the derivative of a function with several values on the segment, one row per value.

    Its product with q1 - q0 is the change of the function. The error of the quadrature is removed where the coarser
    rule says that there may be one, as in `average`. Values that vanish at both ends, as those of position constraints
    do, say nothing about the size of their own rounding errors, so a balance that is off shows nothing more.
    """
    step = q1 - q0
    fine, coarse = _rules(jax.jacrev(function), q0, q1)
    missed, works = fine - coarse, fine * step
    defect = function(q1) - function(q0) - jnp.sum(works, axis=1)
    needed = jnp.sum(jnp.abs(missed * step), axis=1) > 1e-8 * jnp.sum(jnp.abs(works), axis=1)
    length = jnp.sum((missed * step) ** 2, axis=1)
    return fine + missed * missed * step * _ratio(jnp.where(needed, defect, 0.0), length)[:, None]


GRADIENTS: dict[str, Gradient] = {
    "gonzalez": gonzalez,
    "average": average,
    "itoh-abe": itoh_abe,
}
