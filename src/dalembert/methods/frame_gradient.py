"""The frame discrete gradient: exact energy on D, for any metric and any linear or affine constraints."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import GRADIENTS, Retraction, slopes_between
from dalembert.methods.base import Claims, Method, State, solve_velocity
from dalembert.methods.discrete_gradient import check_gradient, is_separable
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    lower,
    nearest_frame,
    onto_surface,
    orthonormal_frame,
)
from dalembert.numerics import matmul, matvec


class Way(NamedTuple):
    """One step: its middle and its end, and the segment of a vector space from `first` to `last` that `at` maps to
    it. In coordinates it is the segment itself; on a group it is x = -h u/2 ... h u/2 with at(x) = middle exp(x)."""

    middle: Array
    end: Array
    first: Array
    last: Array
    at: Callable[[Array], Array]


def _way(m: Mechanics, q0: Array, u: Array, h: Array) -> Way:
    """The step from q0 with the velocity u."""
    if Trait.GROUP not in m.traits:
        q1 = q0 + h * u
        return Way(q0 + 0.5 * h * u, q1, q0, q1, lambda x: x)
    half = 0.5 * h * u
    middle = m.space.displaced(q0, half)
    return Way(middle, m.space.displaced(middle, half), -half, half, lambda x: m.space.displaced(middle, x))


def turning(m: Mechanics, q: Array, b: Array, v: Array) -> Array:
    """S(q, w) w for v = B w, where S_ba = sum_d g([X_a, X_b], X_d) w_d: B^T (grad (v.M v) - (D_v M) v)/2 and, on a
    group, B^T ad_v^T M v.

    For a frame extended from q by projection and polar factor, the derivative of the projector drops out of the
    brackets' components along D (P DP P = 0). The derivative of the metric remains, and on a group the bracket of its
    algebra; in coordinates S = 0 for a constant metric.
    """
    turned = jnp.zeros(b.shape[1], v.dtype)
    if not m.has_constant_metric(q):
        _, along = jax.jvp(lambda x: matvec(m.metric(x), v), (q,), (m.space.velocity(q, v),))
        across = m.space.gradient(lambda x: jnp.sum(v * matvec(m.metric(x), v)), q)
        turned = 0.5 * matvec(b.T, across - along)
    if Trait.GROUP in m.traits:
        turned = turned + matvec(b.T, matvec(m.space.bracket(v).T, matvec(m.metric(q), v)))
    return turned


def across_metric(m: Mechanics, q: Array, x: Array, y: Array) -> Array:
    """The gradient of x . M(q) y at constant x and y."""
    return m.space.gradient(lambda at: jnp.sum(x * matvec(m.metric(at), y)), q)


def pulled(m: Mechanics, q: Array, y: Array) -> Array:
    """The covector that the drift Z adds to the equation of w, for v = y + Z and y = B w, beside the change of the
    frame along Z and in time.

    With theta = M Z it is grad_M (y . M Z) - (DZ)^T M Z - d theta/dt, where grad_M differentiates M alone and d/dt is
    the derivative along v and in time. The potential is V - |Z|^2/2.
    """
    if Trait.AFFINE not in m.traits:
        return jnp.zeros_like(y)
    drift = m.drift(q)
    mass = m.metric(q)
    pull = jax.grad(lambda x: jnp.sum(matvec(mass, drift) * m.drift(x)))(q)
    transport = m.time_derivative(lambda s, x: matvec(s.metric(x), s.drift(x)), q, y + drift)
    return across_metric(m, q, drift, y) - pull - transport


def carried_force(m: Mechanics, q: Array, y: Array) -> Array:
    """The same with the change of the frame, which is -(D_Z M + M_t) y / 2 where the frame begins."""
    if Trait.AFFINE not in m.traits and (m.natural or m.has_constant_metric(q)):
        return jnp.zeros_like(y)
    change = m.time_derivative(lambda s, x: matvec(s.metric(x), y), q, m.drift(q))
    return pulled(m, q, y) - 0.5 * change


def effective_potential(m: Mechanics, q: Array) -> Array:
    """V - |Z|^2/2 with the drift Z of affine constraints; its sum with |w|^2/2 is the moving energy."""
    if Trait.AFFINE not in m.traits:
        return m.potential(q)
    drift = m.drift(q)
    return m.potential(q) - 0.5 * jnp.sum(drift * matvec(m.metric(q), drift))


def change_with_time(m: Mechanics, t: Any, q0: Array, q1: Array, h: Array) -> Array:
    """What the effective potential changes with time alone: at q0 up to the middle of the step, then at q1."""
    here = m.at(t)
    mid = here.later(0.5 * h)
    first, last = (
        effective_potential(x, q) - effective_potential(mid, q) for x, q in ((here, q0), (here.later(h), q1))
    )
    return last - first


def _across(here: Mechanics, mid: Mechanics, way: Way, q0: Array, h: Array) -> Mechanics:
    """The system at the middle of the step, with position constraints in the form that a step satisfies."""
    slopes = slopes_between(lambda x: mid.holonomic(way.at(x)), way.first, way.last)
    if Trait.TIMED not in here.traits:
        return mid.across(slopes, jnp.zeros(slopes.shape[0], q0.dtype))
    there = here.later(h)
    first, last = mid.holonomic(q0) - here.holonomic(q0), there.holonomic(way.end) - mid.holonomic(way.end)
    return mid.across(slopes, -(first + last) / h)


class FrameMemory(NamedTuple):
    """An orthonormal basis of D at q, and the components of the velocity in it."""

    b: Array
    w: Array


class FrameGradient(Method):
    """The frame discrete gradient: it stays in D, conserves the energy exactly, is symmetric and has order 2.

    Equations: B is a frame of D, orthonormal for the kinetic metric, v = B w, qb = (q0+q1)/2,
    wb = (w0+w1)/2, DV is a symmetric discrete gradient, F are the forces:
        q1 - q0 = h B(qb) wb,   w1 - w0 = h (S(qb, wb) wb - B(qb)^T (DV(q0, q1) - F(qb, B wb))),
    where S is skew and consists of the brackets of the frame. The frame is any orthonormal basis at qb, extended by
    projection and polar factor, so the result depends only on D and the metric. The unknown is u = B(qb) wb. With
    forces the energy changes by exactly the work h F . B wb.
    For affine constraints v = B w + Z and q1 - q0 = h (B wb + Z(qb)), and the moving energy |w|^2/2 + V - |Z|^2/2
    takes the place of the energy. It changes by exactly the work of the terms that Z and time add (`work`), which
    vanishes if Z moves along a symmetry. If the system depends on time, its functions are taken at the middle of the
    step.
    With position constraints c(q) = 0, D is the kernel of [A; dc] at the ends. At the middle, the average DC of dc on
    the segment takes the place of dc(qb). Because DC . (q1 - q0) = c(q1) - c(q0), DC B = 0 makes c(q1) = c(q0). The
    proof of the energy holds for any orthonormal B at the middle, so it is unchanged. (Other A and c that describe the
    same D and the same surface change a step by O(h^3).) If c depends on time, Z satisfies DC . Z = -(the change of c
    with time alone)/h.
    On a Lie group v is the body velocity, q1 = q0 exp(h u), qb = q0 exp(h u/2), and DV is the discrete gradient of
    x -> V(qb exp(x)) between x = -h u/2 and h u/2. S then also has the bracket of the algebra. A function of the group
    element takes the place of a constant inertia in the same way as in coordinates.
    Between its middle and each end, a step must turn D by less than a right angle. Constraints that are fixed in space
    turn with a body on a group, so h times its angular velocity must be below pi.
    Memory: an orthonormal basis of D at q, and w in it. The result does not depend on which basis it is.
    """

    gradient: Literal["gonzalez", "average", "itoh-abe"] = eqx.field(default="average", static=True)
    supports = Method.supports | {
        Trait.VARYING_MASS,
        Trait.FORCED,
        Trait.AFFINE,
        Trait.TIMED,
        Trait.HOLONOMIC,
        Trait.GROUP,
    }

    def __check_init__(self):
        check_gradient("FrameGradient", self.gradient)

    def init(self, m: Mechanics, state: State, h: Array) -> FrameMemory:
        here = m.at(state.t)
        basis = orthonormal_frame(here, state.q)
        return FrameMemory(
            basis, matvec(basis.T, matvec(here.metric(state.q), here.relative(state.q, state.v)))
        )

    def step(self, m: Mechanics, state: State, memory: FrameMemory, h: Array):
        q0, b0 = state.q, memory.b
        here = m.at(state.t)
        mid = here.later(0.5 * h)
        y0 = matvec(b0, memory.w)
        v0 = here.carried(q0, y0)
        mass0 = here.metric(q0)
        momentum0 = matvec(mass0, y0)
        constant = m.has_constant_metric(q0)

        def middle(u):
            """The step, the system at its middle with the constraints that u satisfies, the frame and the metric there,
            w0 in that frame, and u without the drift."""
            way = _way(m, q0, u, h)
            qb = way.middle
            across = _across(here, mid, way, q0, h) if Trait.HOLONOMIC in m.traits else mid
            b = nearest_frame(across, qb, b0)
            y = across.relative(qb, u)
            if constant:  # carrying the frame to qb and back then gives b0 again
                return way, across, b, mid.metric(qb), memory.w, y
            # The frame at q0 differs from b0 by O(h^2). Rounding errors in the frames have a bias; because w0 is
            # written as a change, they do not add up from step to step.
            w0 = memory.w + matvec((nearest_frame(here, q0, b) - b0).T, momentum0)
            return way, across, b, mid.metric(qb), w0, y

        def equations(u):
            way, across, b, mass, w0, y = middle(u)
            inside = matvec(b, matvec(b.T, matvec(mass, y)))
            change = self._change(mid, across, way, b, inside)
            return y - matvec(b, w0 + 0.5 * h * change)

        def slope():
            """The stiff part of the Jacobian: 1 + (h^2/4) B B^T V''."""
            across = matmul(b0.T, here.potential_hessian(q0))
            return jnp.eye(len(v0), dtype=q0.dtype) + 0.25 * h**2 * matmul(b0, across)

        kick = 0.5 * h * matvec(b0, matvec(b0.T, here.potential_gradient(q0)))
        u, report = solve_velocity(equations, v0 - kick, State(q0, v0), h, kick, mass0, slope)
        way, _, b, mass, w0, y = middle(u)
        # w1 = 2 wb - w0, written so that rounding errors in b affect only the increment.
        w1 = w0 + 2 * matvec(b.T, matvec(mass, y - matvec(b, w0)))
        q1 = m.space.restore(way.end)
        new = state.moved(q1, state.v, h)
        there = m.at(new.t)
        if Trait.HOLONOMIC in m.traits:  # the step ends there up to rounding, which must not add up
            q1 = onto_surface(there, q1)
            new = new._replace(q=q1)
        b1 = nearest_frame(there, q1, b)
        y1 = matvec(b1, w1)
        v1 = there.carried(q1, y1)
        return new._replace(v=v1), FrameMemory(b1, w1), report

    def _change(self, mid: Mechanics, across: Mechanics, way: Way, b: Array, y: Array) -> Array:
        """(w1 - w0)/h for the velocity y in D at the middle."""
        qb = way.middle
        covector = -self._slope(mid, way)
        covector = covector + mid.forces(qb, across.carried(qb, y)) + carried_force(mid, qb, y)
        change = matvec(b.T, covector)
        straight = Trait.GROUP not in mid.traits and mid.has_constant_metric(qb)
        return change if straight else change + turning(mid, qb, b, y)

    def _slope(self, mid: Mechanics, way: Way) -> Array:
        """The discrete gradient of the effective potential on the step."""
        gradient = GRADIENTS[self.gradient]
        return gradient(
            lambda x: effective_potential(mid, way.at(x)), way.first, way.last, mid.metric(way.middle)
        )

    def work(self, m: Mechanics, t: Any, q0: Array, u: Array, h: Array) -> Array:
        """The change of the moving energy in the step from q0 at t with the velocity u.

        Forces, drift and time contribute: h (F + C) . y + h DW . Z at the middle, where y = u - Z and C is what drift
        and time add to the forces, plus the change of W = V - |Z|^2/2 with time alone at both ends.
        """
        here = m.at(t)
        mid, way = here.later(0.5 * h), _way(m, q0, u, h)
        qb = way.middle
        across = _across(here, mid, way, q0, h) if Trait.HOLONOMIC in m.traits else mid
        y = across.relative(qb, u)
        made = jnp.sum(y * (mid.forces(qb, u) + carried_force(mid, qb, y)))
        made = made + jnp.sum(self._slope(mid, way) * across.drift(qb))
        return h * made + change_with_time(m, t, q0, way.end, h)

    def work_between(self, m: Mechanics, t: Any, start: tuple[Array, Array], q1: Array, h: Array) -> Array:
        """The same for the step from the start (q0, v0) to q1."""
        q0, _ = start
        on_group = Trait.GROUP in m.traits
        u = Retraction("exp").velocity(m, q0, q1, h) if on_group else m.space.difference(q0, q1) / h
        return self.work(m, t, q0, u, h)

    def claims(self, system: System) -> Claims:
        conservative = lower(system).conservative
        return Claims(2, conservative, conservative, on_constraint=True, fibred=is_separable(self.gradient))

    def composable(self) -> str | None:
        return None

    @property
    def cli_name(self) -> str:
        return "frame" if self.gradient == "average" else f"frame:{self.gradient}"
