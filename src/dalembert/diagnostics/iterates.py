"""The states that a method reaches from a state, and those from which it comes there."""

from fractions import Fraction
from math import comb, factorial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from dalembert.methods import Method, State
from dalembert.model import Mechanics, nearest_allowed, onto_surface
from dalembert.numerics import matvec, unit_rounding
from dalembert.simulation.loop import still_defined

_CORRECTIONS = 60
"""The most corrections of a step back, each of which reduces its error by about h times the rates of the motion."""
_PATIENCE = 4
"""The number of corrections without a gain after which no more are tried."""


class Iterates(eqx.Module):
    """The steps of a method with one step size, to both sides of a state."""

    mechanics: Mechanics
    method: Method
    h: Array
    stride: int = eqx.field(static=True)
    """The number of steps that are taken together: 2 for methods on TQ."""


class Point(NamedTuple):
    """A state of the map."""

    t: Array
    q: Array
    u: Array
    energy: Array
    """The energy that determines the sizes of the steps, if they differ."""
    last: Array
    """The size of the last step."""


def begun(f: Iterates, q: Array, u: Array, t: Array) -> Point:
    """The state with this velocity, and the energy that makes the next step as long as h."""
    energy = jnp.zeros_like(t)
    if f.method.variable_step:
        energy = f.method.resume(f.mechanics.at(t), q, u, f.h)[1].energy
    return Point(t, q, u, energy, jnp.zeros_like(t) + f.h)


def _stepped(f: Iterates, x: Point, h: Array) -> Point:
    """The state one step of size h later; not a number if the step fails."""
    here = f.mechanics.at(x.t)
    state, memory = f.method.resume(here, x.q, x.u, x.last if f.method.variable_step else h)
    if f.method.variable_step:
        # A first step would have the size h whatever the energy is.
        memory = memory._replace(energy=x.energy, begun=jnp.ones_like(memory.begun))
    state = state._replace(t=x.t)
    state, memory, report = f.method.step(f.mechanics, state, memory, h)
    u = f.method.output(f.mechanics, state, memory, h)[0]
    if state.t is None:  # the user's own methods may leave the time out
        state = state._replace(t=x.t + h)
    fine = report.converged
    defined = still_defined(f.mechanics, State(x.q, x.u, x.t), State(state.q, u, state.t), f.method.supports)
    u = jnp.where(fine if defined is None else fine & defined, u, jnp.nan)
    last = memory.last if f.method.variable_step else x.last
    return Point(state.t, state.q, u, x.energy, last)


def forth(f: Iterates, x: Point) -> Point:
    """The state one step later, or `stride` steps."""
    for _ in range(f.stride):
        x = _stepped(f, x, f.h)
    return x


def back(f: Iterates, x: Point) -> Point:
    """The state from which steps lead to x, if the method is symmetric; otherwise one nearby."""
    if f.method.variable_step:  # a step of the reversed motion
        turned = _stepped(f, x._replace(u=f.method.reverse(f.mechanics, x.q, x.u)), f.h)
        return turned._replace(t=2 * x.t - turned.t, u=f.method.reverse(f.mechanics, turned.q, turned.u))
    for _ in range(f.stride):
        # Minus the reversal leaves velocities in D as they are. It also serves where v -> -v reverses nothing.
        u = -f.method.reverse(f.mechanics.at(x.t), x.q, x.u)
        y = _stepped(f, x._replace(u=u), -f.h)
        x = y._replace(u=-f.method.reverse(f.mechanics.at(y.t), y.q, y.u))
    return x


def sizes(m: Mechanics, q: Array, dq: Array, du: Array) -> tuple[Array, Array]:
    """The sizes of both parts of a tangent vector in the kinetic metric."""
    mass = m.metric(q)
    return jnp.sqrt(jnp.abs(jnp.sum(dq * matvec(mass, dq)))), jnp.sqrt(
        jnp.abs(jnp.sum(du * matvec(mass, du)))
    )


def returned(f: Iterates, x: Point) -> tuple[Point, Array, Array]:
    """The state from which a step leads to x, and how far the step misses x.

    The first guess is exact for symmetric methods. Otherwise what the step misses is subtracted until that no longer
    helps.
    """
    m = f.mechanics.at(x.t)
    rounding = 4 * unit_rounding(x.q.dtype) * sum(scales(f, m, x.q, x.u))

    def missed(y: Point) -> tuple[Array, Array, Array, Array]:
        z = forth(f, y)
        dq, du = m.space.difference(x.q, z.q), z.u - x.u
        return dq, du, *sizes(m, x.q, dq, du)

    def go_on(carry):
        count, stale, _, _, _, _, a, b = carry
        return (stale < _PATIENCE) & (count < _CORRECTIONS) & (a + f.h * b > rounding)

    def body(carry):
        count, stale, y, best, dq, du, a, b = carry
        q = onto_surface(f.mechanics.at(y.t), m.space.displaced(y.q, -dq))
        y = y._replace(q=q, u=allowed(f, y.t, q, y.u - du))
        dq, du, a1, b1 = missed(y)
        better = a1 + f.h * b1 < a + f.h * b
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), y, best)
        a, b = jnp.where(better, a1, a), jnp.where(better, b1, b)
        return count + 1, jnp.where(better, 0, stale + 1), y, best, dq, du, a, b

    y = back(f, x)
    dq, du, a, b = missed(y)
    if f.method.variable_step:  # the size of the step would have to be corrected, too
        return y, a, b
    zero = jnp.zeros((), jnp.int32)
    out = lax.while_loop(go_on, body, (zero, zero, y, y, dq, du, a, b))
    return out[3], out[6], out[7]


def scales(f: Iterates, m: Mechanics, q: Array, u: Array) -> tuple[Array, Array]:
    """The size of a position, and that of a velocity times h, to which rounding is relative."""
    speed = f.h * sizes(m, q, u, u)[0]
    return speed + jnp.max(jnp.abs(q)) * jnp.sqrt(jnp.max(jnp.diagonal(m.metric(q)))), speed


def allowed(f: Iterates, t: Array, q: Array, u: Array) -> Array:
    """The velocity nearest to u that the method can have."""
    if f.stride == 2:
        return u
    return nearest_allowed(f.mechanics.at(t), q, u)


def central_weight(terms: int, j: int) -> Fraction:
    """c_j for K = `terms`, the weight of x_j - x_-j in h times the derivative at x_0."""
    sign = 1 if j % 2 else -1
    return sign * Fraction(factorial(terms) ** 2, j * factorial(terms - j) * factorial(terms + j))


def forward_weight(terms: int, j: int) -> Fraction:
    """The weight of x_j - x_0 in h times the derivative at x_0 of the polynomial through x_0, ..., x_K."""
    return Fraction(comb(terms, j) if j % 2 else -comb(terms, j), j)
