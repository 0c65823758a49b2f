"""The nonholonomic leap-frog."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
from jax import Array

from dalembert.discrete.lagrangians import Trapezoidal, is_one_of
from dalembert.methods.base import Claims, Method, Report, State
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    acceleration,
    multipliers,
    project,
    reaction,
)

STARTS = ("half-kick", "momentum")


class LeapFrogMemory(NamedTuple):
    """The method's own velocity, and M^-1 grad V at the configuration."""

    u: Array
    pull: Array


def _pull(m: Mechanics, q: Array) -> Array:
    return m.solved(m.metric(q), m.potential_gradient(q))


class LeapFrog(Method):
    """The nonholonomic leap-frog (geometric nonholonomic integrator), explicit, order 2.

    Equations: [modin2020] (30), [ferraro2008] section 4; u = M^-1 p^-:
        uh = u0 - (h/2) M^-1 grad V(q0),   q1 = q0 + h uh,   u+ = uh - (h/2) M^-1 grad V(q1),
        v1 = P(q1) u+,   u1 = 2 v1 - u+   (a reflection, which conserves the kinetic energy).
    Memory: u, which carries the multiplier from one step to the next, u = v + (h/2) M^-1 A^T lam; without it the
    method would be of first order and would damp the motion. Also M^-1 grad V(q), which the next step uses again.
    With start="half-kick" the multiplier at the start is the exact one. With start="momentum", as in the papers' runs,
    it is zero, which excites the parasitic mode more. The multipliers of a row are the exact ones to order 2, plus the
    parasitic part of u times 2/h, which after "momentum" is as large as the multipliers themselves.
    Erratum: the printed A(q_1/2) must be A(q0), and lam0 is the lam1 of the previous step.
    """

    supports = Method.supports | {Trait.INDEFINITE}
    parasitic = True
    start: Literal["half-kick", "momentum"] = eqx.field(default="half-kick", static=True)

    def __check_init__(self):
        if not is_one_of(self.start, STARTS):
            raise ValueError(f"LeapFrog has no start {self.start!r}; choose one of: {', '.join(STARTS)}")

    def init(self, m: Mechanics, state: State, h: Array) -> LeapFrogMemory:
        pull = _pull(m, state.q)
        if self.start == "momentum":
            return LeapFrogMemory(state.v, pull)
        lam = acceleration(m, state.q, state.v)[1]
        return LeapFrogMemory(state.v + 0.5 * h * reaction(m, state.q, lam), pull)

    def step(self, m: Mechanics, state: State, memory: LeapFrogMemory, h: Array):
        half = memory.u - 0.5 * h * memory.pull
        q1 = state.q + h * half
        pull = _pull(m, q1)
        plus = half - 0.5 * h * pull
        v1 = project(m, q1, plus)
        return state.moved(q1, v1, h), LeapFrogMemory(2 * v1 - plus, pull), Report.explicit()

    def output(self, m: Mechanics, state: State, memory: LeapFrogMemory, h: Array) -> tuple[Array, Array]:
        return memory.u, multipliers(m, state.q, (memory.u - state.v) * (2 / h))

    def resume(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[State, LeapFrogMemory]:
        return State(q, project(m, q, u)), LeapFrogMemory(u, _pull(m, q))

    def from_pair(self, m: Mechanics, q0: Array, q1: Array, t: Any, h: Array) -> tuple[State, LeapFrogMemory]:
        """Any pair will do: u = (q1 - q0)/h + (h/2) M^-1 grad V(q0), which is M^-1 p^- of the trapezoidal rule."""
        state, memory = self.resume(m, q0, (q1 - q0) / h + 0.5 * h * _pull(m, q0), h)
        return state._replace(t=t), memory

    def reverse(self, m: Mechanics, q: Array, u: Array) -> Array:
        return u - 2 * project(m, q, u)  # swaps p^- and -p^+

    @property
    def rule(self) -> Trapezoidal:
        return Trapezoidal()

    @property
    def cli_name(self) -> str:
        return "leapfrog" if self.start == "half-kick" else f"leapfrog:{self.start}"

    def claims(self, system: System) -> Claims:
        return Claims(order=2, energy=False, reversible=True, on_constraint=False, fibred=True)

    def composable(self) -> str | None:
        return (
            "leap-frog lives on all of TQ with a sign-alternating parasitic mode: with unequal steps its "
            "composition stays at order 2 and drifts; compose FrameGradient() or DLA01()"
        )
