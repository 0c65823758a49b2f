"""The geometric nonholonomic integrator, in coordinates."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import (
    DiscreteLagrangian,
    Midpoint,
    as_lagrangian,
    check_lagrangian,
    check_rules,
    legendre_minus,
    partial_derivatives,
)
from dalembert.methods.base import Claims, Report, State, solve_velocity
from dalembert.methods.reflecting import Reflecting
from dalembert.model import Mechanics, System, Trait, lower
from dalembert.numerics import is_syntactically_constant, matvec, solve, solve_spd


def constant(m: Mechanics, *names: str) -> bool:
    """Whether the formulas of these functions of a system do not contain q."""
    q = jnp.zeros(m.dimension)
    return all(is_syntactically_constant(getattr(m, name), q) for name in names)


class GNI(Reflecting):
    """The geometric nonholonomic integrator for any discrete Lagrangian, metric and potential: order 2.

    Equations: [ferraro2008] (4)-(6): p^+ = D2 L_d(q0, q1), p^- = p^+ - 2 Q(q1)^T p^+, -D1 L_d(q1, q2) = p^-. Without
    constraints these are the discrete Euler-Lagrange equations. The unknown is u = (q2 - q1)/h. If the equations are
    linear in u (a constant mass matrix with no potential, or with the trapezoidal rule), they are solved without
    iteration. Affine constraints A v = b hold for the average momentum too: p^- is p^+ reflected at the allowed
    velocities.
    Memory: u = M^-1 p^-; see Reflecting.
    Erratum: L_d is scaled as an action; the projectors must be those of the kinetic metric.
    """

    discrete_lagrangian: DiscreteLagrangian = eqx.field(
        default=Midpoint(), converter=lambda x: as_lagrangian(x, "GNI")
    )
    supports = Reflecting.supports | {Trait.AFFINE, Trait.TIMED}

    def free_step(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[Array, Array, Report]:
        mass = m.metric(q)
        p = matvec(mass, u)

        def equations(w):
            return solve_spd(
                mass, -partial_derivatives(self.discrete_lagrangian, m, q, q + h * w, w, h)[0] - p
            )

        slope = jax.jacfwd(equations)
        if is_syntactically_constant(slope, u):
            w, report = u - solve(slope(u), equations(u)), Report.explicit()
        else:
            w, report = solve_velocity(equations, u, State(q, u), h, jnp.zeros_like(u), mass)
        q1 = q + h * w
        arriving = partial_derivatives(self.discrete_lagrangian, m, q, q1, w, h)[1]
        return q1, solve_spd(m.later(h).metric(q1), arriving), report

    def departure(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        return solve_spd(m.metric(q0), legendre_minus(self.discrete_lagrangian, m, q0, q1, h))

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        check_rules(system, q0, v0, t0, self.discrete_lagrangian)

    def check(self, system: System | Mechanics) -> None:
        super().check(system)
        check_lagrangian(self.discrete_lagrangian, system)

    def claims(self, system: System) -> Claims:
        ld = self.discrete_lagrangian
        m = lower(system)
        free, natural = not m.constrained, m.natural
        order = ld.order if free else 2 if ld.symmetric else 1
        return Claims(
            order,
            energy=self.restart_every is None and natural and constant(m, "metric", "potential"),
            reversible=ld.symmetric and self.restart_every is None and natural,
            on_constraint=free,
            fibred=True,
        )

    @property
    def cli_name(self) -> str:
        return spelled("gni", self.discrete_lagrangian.cli_name, "midpoint", self)


def spelled(name: str, option: str, usual: str, method: Reflecting) -> str:
    """The name with the options that differ from the defaults."""
    options = [option] if option != usual else []
    if method.start != "half-kick":
        options.append(method.start)
    if method.restart_every is not None:
        options.append(f"restart={method.restart_every}")
    return f"{name}:{','.join(options)}" if options else name
