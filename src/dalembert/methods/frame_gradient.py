"""The frame discrete gradient: exact energy on D, for any metric and any linear constraints."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import GRADIENTS
from dalembert.methods.base import Claims, Method, State, solve_velocity
from dalembert.methods.discrete_gradient import check_gradient, is_separable
from dalembert.model import System, nearest_frame, orthonormal_frame, potential_gradient
from dalembert.numerics import is_written_constant, matmul, matvec


def _turning(system: System, q: Array, b: Array, v: Array) -> Array:
    """S(q, w) w for v = B w, where S_ba = sum_d g([X_a, X_b], X_d) w_d: half B^T (grad (v.M v) - (D_v M) v).

    For a frame extended from q by projection and polar factor, the projector's derivative drops out of the
    brackets' components along D (P DP P = 0), and only the metric's remains; for a constant metric S = 0.
    """
    _, along = jax.jvp(lambda x: matvec(system.metric(x), v), (q,), (v,))
    across = jax.grad(lambda x: jnp.sum(v * matvec(system.metric(x), v)))(q)
    return 0.5 * matvec(b.T, across - along)


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
    Memory: an orthonormal basis of D at q (the result does not depend on which) and w in it.
    """

    gradient: Literal["gonzalez", "average", "itoh-abe"] = eqx.field(default="average", static=True)
    constant_metric = False
    takes_forces = True

    def __check_init__(self):
        check_gradient("FrameGradient", self.gradient)

    def init(self, system: System, state: State, h: Array) -> FrameMemory:
        basis = orthonormal_frame(system, state.q)
        return FrameMemory(basis, matvec(basis.T, matvec(system.metric(state.q), state.v)))

    def step(self, system: System, state: State, memory: FrameMemory, h: Array):
        q0, b0 = state.q, memory.b
        v0 = matvec(b0, memory.w)
        momentum0 = matvec(system.metric(q0), v0)
        derivative = GRADIENTS[self.gradient]
        constant = is_written_constant(system.metric, q0)

        def middle(u):
            """The frame at the midpoint, the metric there, and w0 in that frame."""
            qb = q0 + 0.5 * h * u
            b = nearest_frame(system, qb, b0)
            if constant:  # then the way to qb and back ends where it began
                return qb, b, system.metric(qb), memory.w
            # The frame at q0 differs from b0 by O(h^2). Written as a
            # change, the rounding in the frames, which has a bias, does not add up from step to step.
            w0 = memory.w + matvec((nearest_frame(system, q0, b) - b0).T, momentum0)
            return qb, b, system.metric(qb), w0

        def equations(u):
            qb, b, mass, w0 = middle(u)
            wb = matvec(b.T, matvec(mass, u))
            covector = -derivative(system.potential, q0, q0 + h * u, mass)
            if system.gives("forces"):
                covector = covector + system.forces(qb, matvec(b, wb))
            change = matvec(b.T, covector)
            if not constant:
                change = change + _turning(system, qb, b, matvec(b, wb))
            return u - matvec(b, w0 + 0.5 * h * change)

        def slope():
            """The stiff part of the Jacobian: 1 + (h^2/4) B B^T V''."""
            along = matmul(b0.T, jax.hessian(system.potential)(q0))
            return jnp.eye(q0.shape[0], dtype=q0.dtype) + 0.25 * h**2 * matmul(b0, along)

        kick = 0.5 * h * matvec(b0, matvec(b0.T, potential_gradient(system, q0)))
        u, report = solve_velocity(equations, v0 - kick, State(q0, v0), h, kick, slope)
        _, b, mass, w0 = middle(u)
        # w1 = 2 wb - w0, written so that rounding in b touches only the increment.
        w1 = w0 + 2 * matvec(b.T, matvec(mass, u - matvec(b, w0)))
        q1 = q0 + h * u
        b1 = nearest_frame(system, q1, b)
        return State(q1, matvec(b1, w1)), FrameMemory(b1, w1), report

    def claims(self, system: System) -> Claims:
        conservative = not system.gives("forces")
        return Claims(2, conservative, conservative, on_constraint=True, fibred=is_separable(self.gradient))

    def composable(self) -> str | None:
        return None

    @property
    def spelling(self) -> str:
        return "frame" if self.gradient == "average" else f"frame:{self.gradient}"
