"""A discrete gradient for constraints that are not linear in the velocity."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import GRADIENTS
from dalembert.methods.base import Claims, Method, State, solve_velocity
from dalembert.methods.discrete_gradient import check_gradient
from dalembert.methods.frame_gradient import turning
from dalembert.model import Mechanics, System, Trait, acceleration, lower, orthonormal, polar_factor
from dalembert.numerics import matvec, solve_spd


class ChetaevMemory(NamedTuple):
    """A basis of all velocities at q that is orthonormal for the kinetic metric, the components of v in it, and the
    multipliers and the acceleration of the last step."""

    b: Array
    w: Array
    lam: Array
    rate: Array


class ChetaevGradient(Method):
    """A discrete gradient for nonlinear constraints f(q, v) = 0 under Chetaev's rule: symmetric, of order 2.

    Equations: v = B w with a basis B that is orthonormal for the kinetic metric, qb = (q0+q1)/2, wb = (w0+w1)/2,
    u = B(qb) wb, DV a symmetric discrete gradient, F the forces, R = df/dv(qb, u), r(q, v) = df/dv(q, v) . v:
        q1 - q0 = h u,   w1 - w0 = h (S(qb, wb) wb + B(qb)^T (R1^T lam - DV(q0, q1) + F(qb, u))),   f(q1, v1) = 0,
        R1 = R - (R.u - (r(q0, v0) + r(q1, v1))/2) (M u)^T / (u . M u).
    Linear constraints A(q) v = b(q) are among f. S is skew and comes from the derivative of the metric, as in
    FrameGradient; for a constant metric S = 0 and w may be replaced by v.
    Energy: wb . (w1 - w0) is the change of the kinetic energy, wb . S wb = 0, and h u . DV is the change of the
    potential. Therefore the energy changes by h F . u + h lam . (r0 + r1)/2, because R1 u is the mean of r at the ends.
    If f is homogeneous in v, r is a multiple of f by Euler's theorem and vanishes at both ends: without forces the
    energy is conserved. If it is not, the reactions do work in the exact motion too, at the rate lam . r. R.u itself
    differs from the mean of r by O(h^2), so the change of R does not change the order; it is symmetric in the two ends.
    The method does not conserve momenta or volume, and the driver of a coupled system feels its passenger. If u passes
    through zero, R1 is undefined.
    Memory: the basis and w, with the multipliers and the acceleration of the last step as first guesses.
    """

    gradient: Literal["gonzalez", "average", "itoh-abe"] = eqx.field(default="average", static=True)
    supports = Method.supports | {Trait.NONLINEAR, Trait.VARYING_MASS, Trait.FORCED, Trait.AFFINE}
    multiplier_shift = 0.5

    def __check_init__(self):
        check_gradient("ChetaevGradient", self.gradient)

    def init(self, m: Mechanics, state: State, h: Array) -> ChetaevMemory:
        q, v = state.q, state.v
        mass = m.metric(q)
        # No polar factor: a mass matrix with strong coupling is too far from the identity for its iteration.
        b = orthonormal(jnp.eye(len(v), dtype=q.dtype), mass)
        rate, lam = acceleration(m, q, v)
        return ChetaevMemory(b, matvec(b.T, matvec(mass, v)), lam, rate)

    def step(self, m: Mechanics, state: State, memory: ChetaevMemory, h: Array):
        q0, b0, n = state.q, memory.b, len(state.v)
        v0 = matvec(b0, memory.w)
        mass0 = m.metric(q0)
        momentum0 = matvec(mass0, v0)
        power0 = m.levels(q0, v0)
        constant = m.has_constant_metric(q0)

        def ends(u):
            """The basis and the metric at the middle, w0 in that basis, and the state at the end."""
            qb, q1 = q0 + 0.5 * h * u, q0 + h * u
            if constant:
                b, mass, w0 = b0, mass0, memory.w
            else:
                mass = m.metric(qb)
                b = polar_factor(b0, mass)
                w0 = memory.w + matvec((polar_factor(b, mass0) - b0).T, momentum0)
            # w1 = 2 wb - w0, written so that rounding errors in b affect only the increment.
            w1 = w0 + 2 * matvec(b.T, matvec(mass, u - matvec(b, w0)))
            b1 = b if constant else polar_factor(b, m.metric(q1))
            return qb, b, mass, w0, q1, b1, w1

        def equations(x):
            u, lam = x[:n], x[n:]
            qb, b, mass, w0, q1, b1, w1 = ends(u)
            v1 = matvec(b1, w1)
            forms, momentum = m.forms(qb, u), matvec(mass, u)
            excess = matvec(forms, u) - 0.5 * (power0 + m.levels(q1, v1))
            length = jnp.sum(u * momentum)
            moving = length > 0
            share = jnp.sum(lam * excess) * jnp.where(moving, 1.0, 0.0) / jnp.where(moving, length, 1.0)
            slope = GRADIENTS[self.gradient](m.potential, q0, q1, mass)
            covector = matvec(forms.T, lam) - share * momentum - slope + m.forces(qb, u)
            change = matvec(b.T, covector)
            if not constant:
                change = change + turning(m, qb, b, u)
            return jnp.concatenate([u - matvec(b, w0 + 0.5 * h * change), m.violation(q1, v1)])

        guess = v0 + 0.5 * h * memory.rate
        # At the middle of the predicted step.
        there = q0 + 0.5 * h * guess
        forms = m.forms(there, guess)
        caused = 0.5 * h * solve_spd(mass0, forms.T)

        def slope():
            """An approximate Jacobian: the stiff part of the potential, the reactions, and v1 = 2 u - v0 in f."""
            stiff = 0.25 * h**2 * solve_spd(mass0, m.potential_hessian(q0))
            above = jnp.concatenate([jnp.eye(n, dtype=q0.dtype) + stiff, -caused], axis=1)
            below = 2 * forms + h * jax.jacfwd(lambda x: m.violation(x, guess))(there)
            zero = jnp.zeros((len(forms), len(forms)), q0.dtype)
            return jnp.concatenate([above, jnp.concatenate([below, zero], axis=1)])

        first = jnp.concatenate([guess, memory.lam])
        x, report = solve_velocity(
            equations, first, State(q0, v0), h, guess - v0, mass0, slope, columns=caused
        )
        _, _, _, _, q1, b1, w1 = ends(x[:n])
        v1 = matvec(b1, w1)
        return state.moved(q1, v1, h), ChetaevMemory(b1, w1, x[n:], (v1 - v0) / h), report

    def output(self, m: Mechanics, state: State, memory: ChetaevMemory, h: Array) -> tuple[Array, Array]:
        return state.v, memory.lam

    def claims(self, system: System) -> Claims:
        m = lower(system)
        kept = m.conservative
        # Where v is allowed, -v need not be: a constraint that is not linear may be half a cone.
        reversible = kept and Trait.NONLINEAR not in m.traits
        return Claims(2, kept, reversible, on_constraint=True)

    def composable(self) -> str | None:
        return None

    @property
    def cli_name(self) -> str:
        return "chetaev" if self.gradient == "average" else f"chetaev:{self.gradient}"
