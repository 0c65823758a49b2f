"""The discrete-gradient (discrete-derivative) method on TQ."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import GRADIENTS
from dalembert.discrete.lagrangians import is_one_of
from dalembert.methods.base import Claims, Method, State, solve_velocity
from dalembert.model import Mechanics, System, acceleration, multipliers, project
from dalembert.numerics import solve_spd


class TangentMemory(NamedTuple):
    """The method's own velocity, its acceleration in the last step, and the displacement in that step."""

    u: Array
    rate: Array
    moved: Array


def check_gradient(name: str, gradient: str) -> None:
    """Refuses a discrete gradient that does not exist."""
    if not is_one_of(gradient, GRADIENTS):
        raise ValueError(f"{name} has no gradient {gradient!r}; choose one of: {', '.join(GRADIENTS)}")


def is_separable(gradient: str) -> bool:
    """Whether the discrete gradient of a sum of functions of different coordinates is the sum of their gradients."""
    return gradient != "gonzalez"


class DiscreteGradient(Method):
    """The discrete-derivative method: exact energy on TQ, order 2.

    Equations: [modin2020] (A.3), with a constant mass matrix, qb = (q0+q1)/2, ub = (u0+u1)/2:
        q1 = q0 + h ub,   M (u1 - u0) = -h DV(q0, q1) + h A(qb)^T lam,   A(qb) ub = 0.
    Memory: the velocity u, which satisfies the constraint at the start only; its last change per unit of time; and
    q1 - q0. From these the multiplier is computed when a row is saved. It is the one at the middle of the step, plus a
    part of size O(h) that changes sign every step, because u leaves D by O(h^2) and returns. The mean of two rows is of
    order 2. The state's velocity is the projection of u onto D; it is the energy of u that is conserved exactly.
    Erratum: the bar of the discrete gradient is missing in print.
    """

    gradient: Literal["gonzalez", "average", "itoh-abe"] = eqx.field(default="gonzalez", static=True)
    multiplier_shift = 0.5

    def __check_init__(self):
        check_gradient("DiscreteGradient", self.gradient)

    def init(self, m: Mechanics, state: State, h: Array) -> TangentMemory:
        return TangentMemory(state.v, acceleration(m, state.q, state.v)[0], jnp.zeros_like(state.q))

    def step(self, m: Mechanics, state: State, memory: TangentMemory, h: Array):
        q0, u0 = state.q, memory.u

        def equations(ub):
            pull = self._pull(m, q0, q0 + h * ub)
            return ub - project(m, q0 + 0.5 * h * ub, u0 - 0.5 * h * pull)

        mass = m.metric(q0)
        kick = 0.5 * h * solve_spd(mass, m.potential_gradient(q0))
        ub, report = solve_velocity(equations, u0 - kick, State(q0, u0), h, kick, mass)
        q1, u1 = q0 + h * ub, 2 * ub - u0
        return state.moved(q1, project(m, q1, u1), h), TangentMemory(u1, (u1 - u0) / h, h * ub), report

    def output(self, m: Mechanics, state: State, memory: TangentMemory, h: Array) -> tuple[Array, Array]:
        q0, q1 = state.q - memory.moved, state.q
        caused = memory.rate + self._pull(m, q0, q1)
        return memory.u, multipliers(m, q1 - 0.5 * memory.moved, caused)

    def resume(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[State, TangentMemory]:
        state = State(q, project(m, q, u))
        return state, self.init(m, state, h)._replace(u=u)

    def _pull(self, m: Mechanics, q0: Array, q1: Array) -> Array:
        """M^-1 DV(q0, q1)."""
        mass = m.metric(q0)
        return solve_spd(mass, GRADIENTS[self.gradient](m.potential, q0, q1, mass))

    def claims(self, system: System) -> Claims:
        return Claims(
            2, energy=True, reversible=True, on_constraint=False, fibred=is_separable(self.gradient)
        )

    def composable(self) -> str | None:
        return None

    @property
    def cli_name(self) -> str:
        return "dd" if self.gradient == "gonzalez" else f"dd:{self.gradient}"
