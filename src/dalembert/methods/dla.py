"""Discrete Lagrange-d'Alembert methods."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.methods.base import Claims, Method, State, solve_velocity
from dalembert.model import System, acceleration, multipliers, oblique_projection, potential_gradient
from dalembert.numerics import is_traced, matvec, solve_spd


class _LagrangeDAlembert(Method):
    """What the two families share: the memory is the multiplier of the last step."""

    def init(self, system: System, state: State, h: Array) -> Array:
        return acceleration(system, state.q, state.v)[1]

    def output(self, system: System, state: State, memory: Array, h: Array) -> tuple[Array, Array]:
        return state.v, memory


class DLA(_LagrangeDAlembert):
    """The discrete Lagrange-d'Alembert method DLA^alpha, implicit in the potential.

    Equations: [modin2020] (DLA), with a constant mass matrix:
        qm = q0 + (1-a) h v0,   q1 = qm + a h v1,   A(q1) v1 = 0,
        M (v1 - v0) = -a h grad V(q0) - (1-a) h grad V(q1) + h A(qm)^T lam.
    Memory: the multiplier of the last step, for output only.
    """

    alpha: float = eqx.field(default=0.5)

    def __check_init__(self):
        if is_traced(self.alpha):
            return
        number = isinstance(self.alpha, int | float | Array | np.ndarray)
        if not number or not np.all((np.asarray(self.alpha) >= 0) & (np.asarray(self.alpha) <= 1)):
            raise ValueError(f"DLA needs alpha between 0 and 1, got {self.alpha!r}")

    def step(self, system: System, state: State, memory: Any, h: Array):
        (q0, v0), a = state, self.alpha
        mass = system.metric(q0)
        qm = q0 + (1 - a) * h * v0
        pull = solve_spd(mass, potential_gradient(system, q0))
        kick = v0 - a * h * pull

        def unconstrained(q1):
            return kick - (1 - a) * h * solve_spd(mass, potential_gradient(system, q1))

        def equations(v1):
            q1 = qm + a * h * v1
            return v1 - oblique_projection(system, q1, qm, unconstrained(q1))

        v1, report = solve_velocity(equations, v0 - h * pull, state, h, kick - v0)
        q1 = qm + a * h * v1
        lam = multipliers(system, qm, (v1 - unconstrained(q1)) / h)
        return State(q1, v1), lam, report

    def claims(self, system: System) -> Claims:
        middle = bool(np.all(np.asarray(self.alpha) == 0.5))
        return Claims(order=2 if middle else 1, energy=False, reversible=middle, on_constraint=True)

    def composable(self) -> str | None:
        return (
            "the driver map of DLA(alpha) is only conjugate to a symplectic one, so compositions with unequal "
            "steps lose the driver's energy; compose DLA01() or FrameGradient()"
        )

    @property
    def spelling(self) -> str:
        return f"dla:{float(self.alpha)!r}".removesuffix(".0") if np.ndim(self.alpha) == 0 else "dla"


class DLA01(_LagrangeDAlembert):
    """The discrete Lagrange-d'Alembert method DLA^{0,1}: explicit in the potential, order 2.

    Equations: [modin2020] (DLA^{0,1}), with a constant mass matrix:
        qm = q0 + h v0/2,   q1 = qm + h v1/2,   A(q1) v1 = 0,
        M (v1 - v0) = -h grad V(qm) + h A(qm)^T lam.
    Memory: the multiplier of the last step, for output only.
    Erratum: the "0.1" of the printed text is 0,1.
    """

    def step(self, system: System, state: State, memory: Any, h: Array):
        q0, v0 = state
        qm = q0 + 0.5 * h * v0
        mass = system.metric(qm)
        free = v0 - h * solve_spd(mass, potential_gradient(system, qm))
        if system.gives("constraints") and not system.gives("frame"):
            # As many unknowns as one-forms: v1 = free + Z x with Z = M^-1 A^T, x = h lam.
            z = solve_spd(mass, system.constraints(qm).T)

            def violation(x):
                v1 = free + matvec(z, x)
                return matvec(system.constraints(qm + 0.5 * h * v1), v1)

            size = jnp.max(jnp.abs(z), initial=jnp.finfo(z.dtype).tiny)
            guess = jnp.zeros(z.shape[1], z.dtype)
            x, report = solve_velocity(violation, guess, state, h, free - v0, size=size)
            v1 = free + matvec(z, x)
            return State(qm + 0.5 * h * v1, v1), x / h, report

        def equations(v1):
            return v1 - oblique_projection(system, qm + 0.5 * h * v1, qm, free)

        v1, report = solve_velocity(equations, free, state, h, free - v0)
        lam = multipliers(system, qm, (v1 - free) / h)
        return State(qm + 0.5 * h * v1, v1), lam, report

    def claims(self, system: System) -> Claims:
        return Claims(order=2, energy=False, reversible=True, on_constraint=True)

    def composable(self) -> str | None:
        return None
