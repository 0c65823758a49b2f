"""Collocation in a frame: exact energy on D, of any even order, for any metric and any linear or affine constraints."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import average_on_path
from dalembert.discrete.lagrangians import is_whole, plain
from dalembert.methods.base import Claims, Method, Report, State, solve_velocity
from dalembert.methods.frame_gradient import (
    across_metric,
    carried_force,
    change_with_time,
    effective_potential,
    pulled,
)
from dalembert.model import Mechanics, System, Trait, frame_rotation, lower, nearest_frame, orthonormal_frame
from dalembert.numerics import PathRule, matmul, matvec

MOST_STAGES = 12
"""With more, a step would be so long that its order no longer pays; the rules of quadrature are exact enough so far."""


class CollocationMemory(NamedTuple):
    """An orthonormal basis of D at q, the components of the velocity in it, the velocities at the nodes of the last
    step, from which the next step is guessed, and the energy of the run if it is conserved."""

    b: Array
    w: Array
    u: Array
    energy: Array


class Node(NamedTuple):
    """One node of a step: the frame there, the velocity in D, its components, and their rate of change."""

    b: Array
    y: Array
    w: Array
    rate: Array


class Path(NamedTuple):
    """The velocities and the rates of w at the nodes of a step, the basis in its middle, and w0 in its extension."""

    u: Array
    rate: Array
    basis: Array
    w0: Array

    def at(
        self, m: Mechanics, state: State, h: Array, shares: Any, x: Any = 1.0
    ) -> tuple[State, Array, Array]:
        """The place, the frame and w where the integrals of the Lagrange polynomials from the start are `shares`: at
        the end, where they are the weights, or at a fraction x of the step. The velocity is left to the caller."""
        shares = jnp.asarray(shares, state.q.dtype)
        w = self.w0 + h * matvec(self.rate.T, shares)
        there = state.moved(
            state.q + h * matvec(self.u.T, shares), state.v, h if isinstance(x, float) else x * h
        )
        return there, nearest_frame(m.at(there.t), there.q, self.basis), w


class FrameCollocation(Method):
    """Energy-preserving collocation in a frame, with s stages: it stays in D, conserves the energy exactly, is
    symmetric and has order 2 s. With one stage it is FrameGradient.

    Equations: B is a frame of D, orthonormal for the kinetic metric, v = B w; c_i are Gauss's nodes, b_i their weights
    and l_i their Lagrange polynomials. q(x) and w(x) are polynomials of degree s with
        q'(c_i) = h B(q_i) w_i,   w'(c_i) = h (S(q_i, w_i) w_i - B(q_i)^T (G_i - F_i)),
        G_i = (integral of l_i(x) grad V(q(x)) from 0 to 1)/b_i,   q_i = q(c_i),  w_i = w(c_i),
    where S is skew and consists of the brackets of the frame, and F_i are the forces. This is the method of
    [cohen2011] for y = (q, w), whose average of w at a node is w_i itself, because l_i w is integrated exactly by
    Gauss's rule. The frame is an orthonormal basis at (q0+q1)/2, extended by projection and polar factor, so the result
    depends only on D and the metric. The unknowns are u_i = B(q_i) w_i.
    Energy: |w|^2 changes by 2 h sum b_i w_i . w'_i = -2 h sum b_i u_i . G_i, which is minus twice the change of V. With
    forces the energy changes by exactly their work h sum b_i F_i . u_i.
    For affine constraints v = B w + Z, and the moving energy |w|^2/2 + V - |Z|^2/2 takes the place of the energy, as in
    FrameGradient. Functions of time are taken where the path is at that time; with one stage, all in the middle.
    Memory: an orthonormal basis of D at q, w in it, the u_i of the last step, whose polynomial begins the next one, and
    the energy of the run, by which the rounding of a step is taken out of w, so that it does not add up.
    """

    stages: int = eqx.field(default=2, static=True, converter=plain)
    supports = Method.supports | {Trait.VARYING_MASS, Trait.FORCED, Trait.AFFINE, Trait.TIMED}

    def __check_init__(self):
        if not is_whole(self.stages) or not 1 <= self.stages <= MOST_STAGES:
            raise ValueError(
                f"FrameCollocation needs a whole number of stages from 1 to {MOST_STAGES}, got {self.stages!r}; its "
                "order is twice that number"
            )

    def init(self, m: Mechanics, state: State, h: Array) -> CollocationMemory:
        here = m.at(state.t)
        basis = orthonormal_frame(here, state.q)
        w = matvec(basis.T, matvec(here.metric(state.q), here.relative(state.q, state.v)))
        energy = 0.5 * jnp.sum(w * w) + m.potential(state.q) if m.conservative else jnp.zeros((), w.dtype)
        return CollocationMemory(basis, w, jnp.broadcast_to(state.v, (self.stages, *state.v.shape)), energy)

    def step(self, m: Mechanics, state: State, memory: CollocationMemory, h: Array):
        path, report = self._path(m, state, memory, h)
        return *self._end(m, state, memory, h, path), report

    def within(self, m: Mechanics, state: State, memory: CollocationMemory, h: Array, x: Array):
        path, _ = self._path(m, state, memory, h)
        found, b, w = path.at(m, state, h, PathRule.of(self.stages).integrals(x), x)
        inside = found._replace(v=m.at(found.t).carried(found.q, matvec(b, w)))
        return inside, *self._end(m, state, memory, h, path)

    def _end(
        self, m: Mechanics, state: State, memory: CollocationMemory, h: Array, path: Path
    ) -> tuple[State, CollocationMemory]:
        """The state at the end of the step, and what the next one needs."""
        end, b, w = path.at(m, state, h, PathRule.of(self.stages).weights)
        if m.conservative:
            w = w - w * _rounding(m, end.q, w, memory.energy)
        end = end._replace(v=m.at(end.t).carried(end.q, matvec(b, w)))
        return end, CollocationMemory(b, w, path.u, memory.energy)

    def _path(self, m: Mechanics, state: State, memory: CollocationMemory, h: Array) -> tuple[Path, Report]:
        """The polynomials of the step from this state."""
        q0, b0 = state.q, memory.b
        rule = PathRule.of(self.stages)
        stages, weights = jnp.asarray(rule.stages, q0.dtype), jnp.asarray(rule.weights, q0.dtype)
        here = m.at(state.t)
        y0 = matvec(b0, memory.w)
        v0 = here.carried(q0, y0)
        mass0 = here.metric(q0)
        momentum0 = matvec(mass0, y0)
        constant = m.has_constant_metric(q0)

        def at(u):
            """The nodes, the basis in the middle, and w0 in the frame that it extends to."""
            mean = matvec(u.T, weights)
            basis = nearest_frame(here.later(0.5 * h), q0 + 0.5 * h * mean, b0)
            w0 = memory.w
            if not constant:  # otherwise carrying the frame to the middle and back gives b0 again
                # Written as a change, so that the bias of rounding errors in the frames does not add up.
                w0 = w0 + matvec((nearest_frame(here, q0, basis) - b0).T, momentum0)
            pull, _ = self._pull(m, state.t, q0, u, h)
            places = q0 + h * matmul(stages, u)
            times = None if state.t is None else state.t + h * jnp.asarray(rule.nodes, q0.dtype)
            node = functools.partial(_node, m, basis)
            nodes = jax.vmap(node, in_axes=(None if times is None else 0, 0, 0, 0))(times, places, u, pull)
            return nodes, basis, w0

        def equations(x):
            nodes, _, w0 = at(x.reshape(self.stages, -1))
            w = w0 + h * matmul(stages, nodes.rate)
            return (nodes.y - jax.vmap(matvec)(nodes.b, w)).reshape(-1)

        kick = h * matvec(b0, matvec(b0.T, here.potential_gradient(q0)))
        before = jnp.concatenate([memory.u, v0[None]])
        guess = matmul(jnp.asarray(rule.onwards, q0.dtype), before).reshape(-1)
        x, report = solve_velocity(equations, guess, State(q0, v0), h, kick, mass0, near_identity=True)
        u = x.reshape(self.stages, -1)
        nodes, basis, w0 = at(u)
        return Path(u, nodes.rate, basis, w0), report

    def _pull(self, m: Mechanics, t: Any, q0: Array, u: Array, h: Array) -> tuple[Array, Array]:
        """G_i, the averages of the gradient of the effective potential with l_i, and its change with time alone."""
        one = self.stages == 1

        def potential(x: Any, q: Array) -> Array:
            return effective_potential(m.at(None if t is None else t + h * (0.5 if one else x)), q)

        middle = m.at(None if t is None else t + 0.5 * h)
        timed = Trait.TIMED in m.traits and not one
        return average_on_path(potential, q0, h * u, middle.metric, PathRule.of(self.stages), timed)

    def work_between(self, m: Mechanics, t: Any, start: tuple[Array, Array], q1: Array, h: Array) -> Array:
        """The change of the moving energy in the step from the start (q0, v0) at t, which is taken once more.

        Forces, drift and time contribute, as for FrameGradient: h sum b_i ((F_i + C_i) . y_i + G_i . Z_i) at the nodes,
        plus the change of the effective potential with time alone.
        """
        state = State(*start, t)
        u = self.step(m, state, self.init(m, state, h), h)[1].u
        q0, rule = state.q, PathRule.of(self.stages)
        pull, alone = self._pull(m, t, q0, u, h)

        def power(t: Any, q: Array, u: Array, pull: Array) -> Array:
            s = m.at(t)
            y = s.relative(q, u)
            return jnp.sum(y * (s.forces(q, u) + carried_force(s, q, y))) + jnp.sum(pull * s.drift(q))

        places = q0 + h * matmul(jnp.asarray(rule.stages), u)
        powers = jax.vmap(power)(t + h * jnp.asarray(rule.nodes), places, u, pull)
        if self.stages == 1:
            alone = change_with_time(m, t, q0, q1, h)
        return h * jnp.sum(jnp.asarray(rule.weights) * powers) + alone

    def claims(self, system: System) -> Claims:
        conservative = lower(system).conservative
        return Claims(2 * self.stages, conservative, conservative, on_constraint=True, fibred=True)

    def composable(self) -> str | None:
        return f"it has any even order itself; use FrameCollocation(stages={self.stages + 1})"

    @property
    def cli_name(self) -> str:
        return f"frame:gauss={self.stages}"


def _rounding(m: Mechanics, q: Array, w: Array, energy: Array) -> Array:
    """The share of w that has to go so that the energy is what it was at the start of the run, to the last digit.

    A step of exact numbers conserves the energy. One of rounded numbers changes it by some 1e-17, with the same sign
    again and again where the motion repeats itself, and by more where coordinates are large. Only what rounding
    explains is taken out.
    """
    size = jnp.sum(w * w)
    defect = 0.5 * size + m.potential(q) - energy
    small = jnp.abs(defect) <= _EXPLAINED * size
    return jax.lax.stop_gradient(jnp.where(small, defect, 0.0) / jnp.where(small & (size > 0), size, 1.0))


_EXPLAINED = 1e-11
"""More than the rounding of a step where coordinates are up to 1e4, and far less than what would matter."""


def _node(m: Mechanics, basis: Array, t: Any, q: Array, u: Array, pull: Array) -> Node:
    """The frame at q, the part of u in D, and w' for the average gradient `pull`.

    w' = B^T (grad_M (y . M y)/2 - M' y/2 + C + F - G) - W w: grad_M differentiates the metric alone, M' is its
    derivative along the motion and in time, C is what the drift adds, and W is the rate at which the frame turns.
    """
    s = m.at(t)
    b, mass, y = nearest_frame(s, q, basis), s.metric(q), s.relative(q, u)
    w = matvec(b.T, matvec(mass, y))
    inside = matvec(b, w)
    covector = s.forces(q, s.carried(q, inside)) + pulled(s, q, inside) - pull
    # In one dimension nothing turns, and the change of the metric only keeps the frame at length one.
    if b.shape[1] == 1 and m.natural:
        return Node(b, y, w, matvec(b.T, covector))
    change = None
    if not m.has_constant_metric(q):
        change = s.time_derivative(lambda s, x: s.metric(x), q, u)
        covector = covector + 0.5 * (across_metric(s, q, inside, inside) - matvec(change, inside))
    rotation = frame_rotation(s, q, basis, b, u, change)
    return Node(b, y, w, matvec(b.T, covector) - matvec(rotation, w))
