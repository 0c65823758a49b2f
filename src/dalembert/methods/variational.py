"""The discrete Lagrange-d'Alembert method for a discrete Lagrangian and a discrete constraint."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import (
    DiscreteConstraint,
    DiscreteLagrangian,
    Midpoint,
    PointConstraint,
    as_constraint,
    as_lagrangian,
    check_constraint,
    check_lagrangian,
    check_rules,
    constraint_value,
)
from dalembert.methods.base import Claims, Method, Report, State, nearly_solved, solve_velocity
from dalembert.methods.gni import half_kick
from dalembert.methods.legendre import allowed_velocity, is_general, mass_at, momentum, reactions, velocity
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    acceleration,
    lower,
    multipliers,
)
from dalembert.numerics import matvec, solve_spd


class VariationalMemory(NamedTuple):
    """The velocity M^-1 p^+ with which the last step arrived, and the multipliers at its beginning."""

    plus: Array
    lam: Array
    begun: Array
    """One if there has been a step, else zero."""


class Solved(NamedTuple):
    """A step of the discrete equations."""

    q: Array
    """The configuration at its end."""
    plus: Array
    """M^-1 p^+ at its end."""
    report: Report
    departing: Array
    """p^- at its beginning."""
    u: Array
    """Its velocity."""


class VariationalDLA(Method):
    """The discrete Lagrange-d'Alembert method for any discrete Lagrangian and discrete constraint, any metric.

    Equations: D1 L_d(q1, q2) + D2 L_d(q0, q1) = A(q1)^T lam', A_d(q1, q2) = 0 [ferraro2008]; the multipliers of the
    library are lam = -lam'/h. The unknowns are u = (q2 - q1)/h and lam. Without constraints these are the discrete
    Euler-Lagrange equations. The state is (q, v) with v = P M^-1 p^+ = P M^-1 p^-. The part of p normal to D does not
    enter, so a start (q0, v0) leaves nothing to choose. On Lie groups, use Retraction("exp") as discrete Lagrangian.
    With position constraints, dc(q1)^T mu' stands beside A(q1)^T lam', and c(q2) = 0 beside A_d(q1, q2) = 0. D is the
    kernel of [A; dc], so that dc v = 0, too. With the trapezoidal rule and without one-forms this is SHAKE
    [hairer2006] VII.1.4. If c depends on time, it is taken at the end of the step.
    If L is not kinetic minus potential energy, dL/dv takes the place of M v: v is the velocity in D whose momentum
    dL/dv differs from p^+ by A^T nu, and M^-1 p stands for the velocity with the momentum p.
    Memory: M^-1 p^+ and the multipliers, for output only. The multipliers are those at the beginning of the step, to
    order 2 if the rules are symmetric. The first step has the exact multipliers at the start, because there is no
    earlier step whose p^+ would determine them.
    """

    discrete_lagrangian: DiscreteLagrangian = eqx.field(
        default=Midpoint(), converter=lambda x: as_lagrangian(x, "VariationalDLA", groups=True)
    )
    discrete_constraint: DiscreteConstraint = eqx.field(
        default=PointConstraint(), converter=lambda x: as_constraint(x, "VariationalDLA")
    )
    multiplier_shift = 1.0

    @property
    def supports(self) -> frozenset[Trait]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The traits that its discrete Lagrangian supports, and position constraints."""
        general = (
            {Trait.GENERAL_LAGRANGIAN} if Trait.COORDINATES in self.discrete_lagrangian.supports else set()
        )
        return self.discrete_lagrangian.supports | {Trait.HOLONOMIC} | general

    def init(self, m: Mechanics, state: State, h: Array) -> VariationalMemory:
        q, v, here = state.q, state.v, m.at(state.t)
        lam = acceleration(here, q, v)[1]
        return VariationalMemory(half_kick(here, q, v, -h), lam, jnp.zeros((), q.dtype))

    def step(self, m: Mechanics, state: State, memory: VariationalMemory, h: Array):
        q0, here = state.q, m.at(state.t)
        q1, plus, report, departing, _ = self.solved(here, q0, state.v, h)
        # The constraint changed the velocity at q0 by M^-1 p^- - M^-1 p^+.
        if is_general(m):
            lam = reactions(here, q0, state.v, departing - momentum(here, q0, memory.plus)) / h
        else:
            lam = multipliers(here, q0, solve_spd(here.metric(q0), departing) - memory.plus) / h
        lam = jnp.where(memory.begun > 0, lam, memory.lam)
        new = state.moved(q1, plus, h)
        v1 = allowed_velocity(m.at(new.t), q1, plus)
        return new._replace(v=v1), VariationalMemory(plus, lam, jnp.ones_like(memory.begun)), report

    def free_step(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[Array, Array, Report]:
        return self.solved(m, q, u, h)[:3]

    def solved(self, m: Mechanics, q0: Array, v0: Array, h: Array) -> Solved:
        """The step from (q0, v0)."""
        n, mass, ld = v0.shape[0], mass_at(m, q0, v0), self.discrete_lagrangian
        z = solve_spd(mass, m.rows(q0).T)
        # Multipliers are in units of velocity, so that one measure of corrections serves all unknowns.
        size = jnp.maximum(jnp.max(jnp.abs(z), initial=0.0), jnp.finfo(z.dtype).tiny)
        p0, there = momentum(m, q0, v0), m.later(h)
        on_surface = Trait.HOLONOMIC in m.traits

        def equations(x):
            u, kick = x[:n], x[n:] / size
            q1 = ld.moved(m, q0, u, h)
            departing = ld.departing(m, q0, q1, u, h)
            conditions = [constraint_value(self.discrete_constraint, m, q0, q1, u, h)]
            if on_surface:
                conditions.append(there.holonomic(q1) / h)
            return jnp.concatenate([solve_spd(mass, departing - p0) - matvec(z, kick), *conditions])

        guess = jnp.concatenate([v0, jnp.zeros(z.shape[1], q0.dtype)])
        fall = h * solve_spd(mass, m.potential_gradient(q0)) if on_surface else jnp.zeros_like(v0)
        start = State(q0, v0)
        nearly = nearly_solved(m, start, h, mass, m.rows(q0), size, ld.stiffness)
        x, report = solve_velocity(equations, guess, start, h, fall, mass, columns=z / size, nearly=nearly)
        u = x[:n]
        q1 = ld.moved(m, q0, u, h)
        before, arriving = ld.partial_derivatives(m, q0, q1, u, h)
        return Solved(q1, velocity(there, q1, arriving, u), report, -before, u)

    def from_pair(
        self, m: Mechanics, q0: Array, q1: Array, t: Any, h: Array
    ) -> tuple[State, VariationalMemory]:
        """The pair must satisfy the discrete constraint. v is the allowed velocity whose momentum differs from
        p^- = -D1 L_d(q0, q1) by reactions alone, so that the next step, with the multipliers that it needs, has p^-.
        Which multipliers these are depends on the step before q0, which a pair does not have."""
        here, ld = m.at(t), self.discrete_lagrangian
        u = ld.velocity(here, q0, q1, h)
        departing = velocity(here, q0, ld.departing(here, q0, q1, u, h), u)
        state = State(q0, allowed_velocity(here, q0, departing), t)
        return state, self.init(m, state, h)

    @property
    def rule(self) -> DiscreteLagrangian:
        return self.discrete_lagrangian

    def pair_residual(self, m: Mechanics, q0: Array, q1: Array, t: Any, h: Array) -> Array:
        here = m.at(t)
        u = self.discrete_lagrangian.velocity(here, q0, q1, h)
        return constraint_value(self.discrete_constraint, here, q0, q1, u, h)

    def output(self, m: Mechanics, state: State, memory: VariationalMemory, h: Array) -> tuple[Array, Array]:
        return state.v, memory.lam

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        check_rules(system, q0, v0, t0, self.discrete_lagrangian, self.discrete_constraint)

    def check(self, system: System | Mechanics) -> None:
        super().check(system)
        check_lagrangian(self.discrete_lagrangian, system)
        check_constraint(self.discrete_constraint, system)

    def composable(self) -> str | None:
        symmetric = self.discrete_lagrangian.symmetric and self.discrete_constraint.symmetric
        return None if symmetric else "its discrete Lagrangian or its discrete constraint is not symmetric"

    def claims(self, system: System) -> Claims:
        ld, constraint = self.discrete_lagrangian, self.discrete_constraint
        m = lower(system)
        free = not m.constrained
        symmetric = ld.symmetric and (free or constraint.symmetric)
        order = ld.order if free else 2 if symmetric else 1
        return Claims(
            order,
            energy=False,
            reversible=symmetric and m.natural and not is_general(m),
            on_constraint=True,
            fibred=True,
        )

    @property
    def cli_name(self) -> str:
        options = [self.discrete_lagrangian.cli_name, self.discrete_constraint.cli_name]
        options = [x for x in options if x not in ("midpoint", "point=0.5")]
        return f"dla-variational:{','.join(options)}" if options else "dla-variational"
