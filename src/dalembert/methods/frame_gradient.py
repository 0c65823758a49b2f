"""The frame discrete gradient: exact energy on D, for any metric and any linear constraints."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import GRADIENTS
from dalembert.methods.base import Claims, Method, State, solve_velocity
from dalembert.methods.discrete_gradient import check_gradient, is_separable
from dalembert.model import (
    Moment,
    System,
    Trait,
    along,
    drift_at,
    later,
    nearest_frame,
    orthonormal_frame,
    potential_gradient,
)
from dalembert.numerics import is_written_constant, matmul, matvec


def _turning(system: System, q: Array, b: Array, v: Array) -> Array:
    """S(q, w) w for v = B w, where S_ba = sum_d g([X_a, X_b], X_d) w_d: half B^T (grad (v.M v) - (D_v M) v).

    For a frame extended from q by projection and polar factor, the projector's derivative drops out of the
    brackets' components along D (P DP P = 0), and only the metric's remains; for a constant metric S = 0.
    """
    _, along = jax.jvp(lambda x: matvec(system.metric(x), v), (q,), (v,))
    across = jax.grad(lambda x: jnp.sum(v * matvec(system.metric(x), v)))(q)
    return 0.5 * matvec(b.T, across - along)


def _carried(system: System, q: Array, y: Array) -> Array:
    """The covector that a drift Z and time add to the equation of w for v = y + Z, y = B w.

    With theta = M Z: grad_M (y . M Z) - (DZ)^T M Z - (D_Z M + M_t) y / 2 - d theta/dt, where grad_M differentiates
    M alone and d/dt goes along v and with time. The potential has -|Z|^2/2 beside V.
    """
    drift = drift_at(system, q)
    mass = system.metric(q)
    still = jax.grad(lambda x: jnp.sum(drift * matvec(system.metric(x), y)))(q)
    pull = jax.grad(lambda x: jnp.sum(matvec(mass, drift) * drift_at(system, x)))(q)
    change = along(system, lambda s, x: matvec(s.metric(x), y), q, drift)
    transport = along(system, lambda s, x: matvec(s.metric(x), drift_at(s, x)), q, y + drift)
    return still - pull - 0.5 * change - transport


def effective_potential(system: System, q: Array) -> Array:
    """V - |Z|^2/2 with the drift Z of affine constraints: with |w|^2/2 it makes the moving energy."""
    if not system.affine:
        return system.potential(q)
    drift = drift_at(system, q)
    return system.potential(q) - 0.5 * jnp.sum(drift * matvec(system.metric(q), drift))


def _free(system: System, q: Array, v: Array) -> Array:
    """v without the drift of affine constraints."""
    return v - drift_at(system, q) if system.affine else v


def _has_constant_metric(system: System, q: Array) -> bool:
    """Whether the mass matrix is written without q and without time."""
    if not system.timed:
        return is_written_constant(system.metric, q)
    z = jnp.zeros(q.shape[0] + 1, q.dtype)
    return is_written_constant(lambda z: system.at(z[0]).metric(z[1:]), z)


class FrameMemory(NamedTuple):
    """An orthonormal basis of D at q, and the components of the velocity in it."""

    b: Array
    w: Array


class FrameGradient(Method):
    """The frame discrete gradient: stays in D, keeps the energy exactly, symmetric, order 2.

    Equations: B is a frame of D, orthonormal for the kinetic metric, v = B w, qb = (q0+q1)/2,
    wb = (w0+w1)/2, DV a symmetric discrete gradient, F the forces:
        q1 - q0 = h B(qb) wb,   w1 - w0 = h (S(qb, wb) wb - B(qb)^T (DV(q0, q1) - F(qb, B wb))),
    S skew, made of the brackets of the frame. The frame is any orthonormal basis at qb, extended by
    projection and polar factor, so the result depends on D and the metric alone. The unknown is
    u = B(qb) wb. With forces the energy changes by exactly the work h F . B wb.
    Affine constraints: v = B w + Z, q1 - q0 = h (B wb + Z(qb)), and the moving energy |w|^2/2 + V - |Z|^2/2 takes the
    energy's place: it changes by exactly the work of what Z and time add (`work`), which is none where Z moves along
    a symmetry. Where the system depends on time, its functions are those at the middle of the step.
    Memory: an orthonormal basis of D at q (the result does not depend on which) and w in it.
    """

    gradient: Literal["gonzalez", "average", "itoh-abe"] = eqx.field(default="average", static=True)
    supports = Method.supports | {Trait.VARYING_MASS, Trait.FORCED, Trait.AFFINE, Trait.TIMED}

    def __check_init__(self):
        check_gradient("FrameGradient", self.gradient)

    def init(self, system: System, state: State, h: Array) -> FrameMemory:
        here = system.at(state.t)
        basis = orthonormal_frame(here, state.q)
        return FrameMemory(
            basis, matvec(basis.T, matvec(here.metric(state.q), _free(here, state.q, state.v)))
        )

    def step(self, system: System, state: State, memory: FrameMemory, h: Array):
        q0, b0 = state.q, memory.b
        here = system.at(state.t)
        mid = later(here, 0.5 * h)
        y0 = matvec(b0, memory.w)
        v0 = y0 + drift_at(here, q0) if system.affine else y0
        mass0 = here.metric(q0)
        momentum0 = matvec(mass0, y0)
        constant = _has_constant_metric(system, q0)

        def middle(u):
            """The frame at the midpoint, the metric there, w0 in that frame, and u without the drift."""
            qb = q0 + 0.5 * h * u
            b = nearest_frame(mid, qb, b0)
            y = _free(mid, qb, u)
            if constant:  # then the way to qb and back ends where it began
                return qb, b, mid.metric(qb), memory.w, y
            # The frame at q0 differs from b0 by O(h^2). Written as a
            # change, the rounding in the frames, which has a bias, does not add up from step to step.
            w0 = memory.w + matvec((nearest_frame(here, q0, b) - b0).T, momentum0)
            return qb, b, mid.metric(qb), w0, y

        def equations(u):
            qb, b, mass, w0, y = middle(u)
            change = self._change(mid, q0, q0 + h * u, qb, b, matvec(b, matvec(b.T, matvec(mass, y))))
            return y - matvec(b, w0 + 0.5 * h * change)

        def slope():
            """The stiff part of the Jacobian: 1 + (h^2/4) B B^T V''."""
            across = matmul(b0.T, jax.hessian(here.potential)(q0))
            return jnp.eye(q0.shape[0], dtype=q0.dtype) + 0.25 * h**2 * matmul(b0, across)

        kick = 0.5 * h * matvec(b0, matvec(b0.T, potential_gradient(here, q0)))
        u, report = solve_velocity(equations, v0 - kick, State(q0, v0), h, kick, mass0, slope)
        _, b, mass, w0, y = middle(u)
        # w1 = 2 wb - w0, written so that rounding in b touches only the increment.
        w1 = w0 + 2 * matvec(b.T, matvec(mass, y - matvec(b, w0)))
        q1 = q0 + h * u
        new = state.moved(q1, state.v, h)
        there = system.at(new.t)
        b1 = nearest_frame(there, q1, b)
        y1 = matvec(b1, w1)
        v1 = y1 + drift_at(there, q1) if system.affine else y1
        return new._replace(v=v1), FrameMemory(b1, w1), report

    def _change(self, mid: System, q0: Array, q1: Array, qb: Array, b: Array, y: Array) -> Array:
        """(w1 - w0)/h for the velocity y in D at the middle."""
        gradient = GRADIENTS[self.gradient]
        covector = -gradient(lambda x: effective_potential(mid, x), q0, q1, mid.metric(qb))
        natural = not (mid.affine or isinstance(mid, Moment))
        if mid.gives("forces"):
            covector = covector + mid.forces(qb, y if natural else y + drift_at(mid, qb))
        constant = _has_constant_metric(mid.system if isinstance(mid, Moment) else mid, qb)
        if not natural and (mid.affine or not constant):
            covector = covector + _carried(mid, qb, y)
        change = matvec(b.T, covector)
        return change if constant else change + _turning(mid, qb, b, y)

    def work(self, system: System, t: Any, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        """By how much the step from q0 at t to q1 changes the moving energy, u = (q1 - q0)/h: forces, drift and time.

        h (F + C) . y + h DW . Z at the middle, y = u - Z, C what drift and time add to the forces, and the change of
        W = V - |Z|^2/2 with time alone at both ends.
        """
        mid, qb = later(system.at(t), 0.5 * h), 0.5 * (q0 + q1)
        y, total = _free(mid, qb, u), jnp.zeros((), q0.dtype)
        if mid.gives("forces"):
            total = total + h * jnp.sum(y * mid.forces(qb, u))
        if mid.affine or isinstance(mid, Moment):
            total = total + h * jnp.sum(y * _carried(mid, qb, y))
        if mid.affine:
            gradient = GRADIENTS[self.gradient]
            slope = gradient(lambda x: effective_potential(mid, x), q0, q1, mid.metric(qb))
            total = total + h * jnp.sum(slope * drift_at(mid, qb))
        if isinstance(mid, Moment):
            ends = [effective_potential(system.at(x), q) for x, q in ((t, q0), (mid.t + 0.5 * h, q1))]
            middle = [effective_potential(mid, q) for q in (q0, q1)]
            total = total + (ends[1] - middle[1]) - (ends[0] - middle[0])
        return total

    def claims(self, system: System) -> Claims:
        conservative = not (system.gives("forces") or system.timed or system.affine)
        return Claims(2, conservative, conservative, on_constraint=True, fibred=is_separable(self.gradient))

    def composable(self) -> str | None:
        return None

    @property
    def spelling(self) -> str:
        return "frame" if self.gradient == "average" else f"frame:{self.gradient}"
