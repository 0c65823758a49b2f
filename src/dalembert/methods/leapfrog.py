"""The nonholonomic leap-frog."""

from typing import Literal

import equinox as eqx
from jax import Array

from dalembert.methods.base import Claims, Method, Report, State
from dalembert.model import System, acceleration, annihilator, multipliers, potential_gradient, project
from dalembert.numerics import matvec, solve_spd

STARTS = ("half-kick", "momentum")


class LeapFrog(Method):
    """The nonholonomic leap-frog (geometric nonholonomic integrator), explicit, order 2.

    Equations: [modin2020] (30), [ferraro2008] section 4; u = M^-1 p^-:
        uh = u0 - (h/2) M^-1 grad V(q0),   q1 = q0 + h uh,   u+ = uh - (h/2) M^-1 grad V(q1),
        v1 = P(q1) u+,   u1 = 2 v1 - u+   (a reflection: it keeps the kinetic energy).
    Memory: u, which carries the multiplier from one step to the next: u = v + (h/2) M^-1 A^T lam. Without
    it the method is first order and damps. start="half-kick" takes the exact multiplier at the start,
    "momentum" (the papers' runs) zero, which excites the parasitic mode more.
    Erratum: the printed A(q_1/2) must be A(q0), and lam0 is the lam1 of the step before.
    """

    start: Literal["half-kick", "momentum"] = eqx.field(default="half-kick", static=True)

    def __check_init__(self):
        if self.start not in STARTS:
            raise ValueError(f"LeapFrog has no start {self.start!r}; choose one of: {', '.join(STARTS)}")

    def init(self, system: System, state: State, h: Array) -> Array:
        if self.start == "momentum":
            return state.v
        lam = acceleration(system, state.q, state.v)[1]
        reaction = matvec(annihilator(system, state.q).T, lam)
        return state.v + 0.5 * h * solve_spd(system.metric(state.q), reaction)

    def step(self, system: System, state: State, memory: Array, h: Array):
        q0, u0 = state.q, memory
        mass = system.metric(q0)
        half = u0 - 0.5 * h * solve_spd(mass, potential_gradient(system, q0))
        q1 = q0 + h * half
        plus = half - 0.5 * h * solve_spd(mass, potential_gradient(system, q1))
        v1 = project(system, q1, plus)
        return State(q1, v1), 2 * v1 - plus, Report.explicit()

    def output(self, system: System, state: State, memory: Array, h: Array) -> tuple[Array, Array]:
        return memory, multipliers(system, state.q, (memory - state.v) * (2 / h))

    @property
    def spelling(self) -> str:
        return "leapfrog" if self.start == "half-kick" else f"leapfrog:{self.start}"

    def claims(self, system: System) -> Claims:
        return Claims(order=2, energy=False, reversible=True, on_constraint=False)

    def composable(self) -> str | None:
        return (
            "leap-frog lives on all of TQ with a sign-alternating parasitic mode: with unequal steps its "
            "composition stays at order 2 and drifts; compose FrameGradient() or DLA01()"
        )
