"""Discrete Lagrange-d'Alembert methods."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.methods.base import Claims, Method, Report, State, solve_velocity
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    acceleration,
    multipliers,
    oblique_projection,
    reaction,
)
from dalembert.numerics import is_syntactically_constant, is_traced, matvec, solve_spd


class ReactionMemory(NamedTuple):
    """The last step: where its one-forms were taken, how the constraint changed the velocity, and the step size."""

    where: Array
    change: Array
    h: Array


class ImpulseMemory(NamedTuple):
    """The multiplier of the last step times the step size, and the step size."""

    impulse: Array
    h: Array


def _solve_multipliers(m: Mechanics, mass: Array, qm: Array, free: Array, reach: Any, state: State, h: Array):
    """Solves A(qm + reach v1) v1 = 0 for v1 = free + Z x with Z = M^-1 A(qm)^T; there is one unknown per one-form.

    Returns v1, x = h lam, the velocity Z x that the constraint adds, and the report.
    """
    z = solve_spd(mass, m.rows(qm).T)

    def violation(x):
        v1 = free + matvec(z, x)
        return matvec(m.rows(qm + reach * v1), v1)

    guess = jnp.zeros(z.shape[1], z.dtype)
    x, report = solve_velocity(violation, guess, state, h, free - state.v, mass, columns=z)
    change = matvec(z, x)
    return free + change, x, change, report


def _on_surface(
    m: Mechanics, state: State, a: Any, h: Array, push: Callable[[Array, Array], Array], implicit: bool
) -> tuple[State, ImpulseMemory, Report]:
    """The step of DLA^alpha with position constraints; its docstring has the equations.

    push(qm, q1) is the change of the velocity by the potential. The unknowns are the impulses h lam, mu and nu. If
    `implicit`, push depends on q1, and u1 is an unknown, too.
    """
    q0, v0 = state.q, state.v
    mass = m.metric(q0)
    za, zc = (solve_spd(mass, rows.T) for rows in (m.velocity_rows(q0), m.slopes(q0)))
    first, forms, k = v0.shape[0] if implicit else 0, za.shape[1], zc.shape[1]

    def travelled(x):
        """u1 and what it must be equal to, q1, v1, and the impulses by constraint."""
        arriving, y, mu, nu = jnp.split(x, [first, first + forms, first + forms + k])
        u0 = v0 + matvec(zc, mu)
        qm = q0 + (1 - a) * h * u0
        guided = u0 + solve_spd(mass, matvec(m.velocity_rows(qm).T, y))
        u1 = arriving if implicit else guided + push(qm, qm)
        q1 = qm + a * h * u1
        v1 = u1 + solve_spd(mass, matvec(m.slopes(q1).T, nu))
        return (u1, guided + push(qm, q1)), q1, v1, jnp.concatenate([y, mu + nu])

    def equations(x):
        (u1, pushed), q1, v1, _ = travelled(x)
        conditions = [m.holonomic(q1) / h, matvec(m.rows(q1), v1)]
        return jnp.concatenate([u1 - pushed, *conditions] if implicit else conditions)

    fall = push(q0, q0)
    guess = jnp.concatenate([(v0 + fall)[:first], jnp.zeros(forms + 2 * k, v0.dtype)])
    columns = jnp.concatenate([za, zc, zc], axis=1)
    x, report = solve_velocity(equations, guess, state, h, fall, mass, columns=columns)
    _, q1, v1, impulse = travelled(x)
    return state.moved(q1, v1, h), ImpulseMemory(impulse, h), report


def _has_one_forms(m: Mechanics) -> bool:
    return m.constrained and not m.framed


class DLA(Method):
    """The discrete Lagrange-d'Alembert method DLA^alpha, implicit in the potential.

    Equations: [modin2020] (DLA), with a constant mass matrix:
        qm = q0 + (1-a) h v0,   q1 = qm + a h v1,   A(q1) v1 = 0,
        M (v1 - v0) = -a h grad V(q0) - (1-a) h grad V(q1) + h A(qm)^T lam.
    The unknown is v1 or, without a potential, the multiplier.
    With position constraints the velocity changes at both ends, as in RATTLE ([hairer2006] VII.1.4):
        u0 = v0 + M^-1 dc(q0)^T mu,   qm = q0 + (1-a) h u0,   q1 = qm + a h u1,   c(q1) = 0,
        M (u1 - u0) = -a h grad V(q0) - (1-a) h grad V(q1) + h A(qm)^T lam,
        v1 = u1 + M^-1 dc(q1)^T nu,   A(q1) v1 = 0,   dc(q1) v1 = 0,
    and (mu + nu)/h is their multiplier. For alpha = 1/2 the step back changes the places of mu and nu.
    Memory: qm and h M^-1 A(qm)^T lam of the last step, from which the multiplier is computed when a row is saved. It is
    the multiplier at the middle of the step, to the method's order. With position constraints, the impulses of the
    last step themselves.
    """

    alpha: float = eqx.field(default=0.5)
    multiplier_shift = 0.5
    supports = Method.supports | {Trait.HOLONOMIC}

    def __check_init__(self):
        if is_traced(self.alpha):
            return
        alpha = np.asarray(self.alpha) if isinstance(self.alpha, int | float | Array | np.ndarray) else None
        if alpha is None or alpha.dtype.kind not in "fiu" or not np.all((alpha >= 0) & (alpha <= 1)):
            raise ValueError(f"DLA needs alpha between 0 and 1, got {self.alpha!r}")

    def init(self, m: Mechanics, state: State, h: Array) -> ReactionMemory | ImpulseMemory:
        lam = acceleration(m, state.q, state.v)[1]
        if Trait.HOLONOMIC in m.traits:
            return ImpulseMemory(h * lam, h)
        return ReactionMemory(state.q, h * reaction(m, state.q, lam), h)

    def output(self, m: Mechanics, state: State, memory: Any, h: Array) -> tuple[Array, Array]:
        if Trait.HOLONOMIC in m.traits:
            return state.v, memory.impulse / memory.h
        return state.v, multipliers(m, memory.where, memory.change / memory.h)

    def step(self, m: Mechanics, state: State, memory: Any, h: Array):
        q0, v0, a = state.q, state.v, self.alpha
        mass = m.metric(q0)
        if Trait.HOLONOMIC in m.traits:
            pull = solve_spd(mass, m.potential_gradient(q0))

            def push(qm, q1):
                return -h * (a * pull + (1 - a) * solve_spd(mass, m.potential_gradient(q1)))

            return _on_surface(m, state, a, h, push, not is_syntactically_constant(m.potential, q0))
        qm = q0 + (1 - a) * h * v0
        if _has_one_forms(m) and is_syntactically_constant(m.potential, q0):
            v1, _, change, report = _solve_multipliers(m, mass, qm, v0, a * h, state, h)
            return state.moved(qm + a * h * v1, v1, h), ReactionMemory(qm, change, h), report
        pull = solve_spd(mass, m.potential_gradient(q0))
        kick = v0 - a * h * pull

        def unconstrained(q1):
            return kick - (1 - a) * h * solve_spd(mass, m.potential_gradient(q1))

        def equations(v1):
            q1 = qm + a * h * v1
            return v1 - oblique_projection(m, q1, qm, unconstrained(q1))

        v1, report = solve_velocity(equations, v0 - h * pull, state, h, kick - v0, mass)
        q1 = qm + a * h * v1
        return state.moved(q1, v1, h), ReactionMemory(qm, v1 - unconstrained(q1), h), report

    def claims(self, system: System) -> Claims:
        middle = bool(np.all(np.asarray(self.alpha) == 0.5))
        return Claims(
            order=2 if middle else 1, energy=False, reversible=middle, on_constraint=True, fibred=True
        )

    def composable(self) -> str | None:
        return (
            "the driver map of DLA(alpha) is only conjugate to a symplectic one, so compositions with unequal "
            "steps lose the driver's energy; compose DLA01() or FrameGradient()"
        )

    @property
    def cli_name(self) -> str:
        return f"dla:{float(self.alpha)!r}".removesuffix(".0") if np.ndim(self.alpha) == 0 else "dla"


class DLA01(Method):
    """The discrete Lagrange-d'Alembert method DLA^{0,1}: explicit in the potential, order 2.

    Equations: [modin2020] (DLA^{0,1}), with a constant mass matrix:
        qm = q0 + h v0/2,   q1 = qm + h v1/2,   A(q1) v1 = 0,
        M (v1 - v0) = -h grad V(qm) + h A(qm)^T lam.
    Position constraints are satisfied as in DLA(1/2), with the potential's force at qm; the unknowns are the impulses
    alone.
    Memory: the multiplier of the last step, for output only; it is the one at the middle of the step, to order 2.
    Erratum: the "0.1" of the printed text is 0,1.
    """

    multiplier_shift = 0.5
    supports = Method.supports | {Trait.HOLONOMIC}

    def init(self, m: Mechanics, state: State, h: Array) -> ImpulseMemory:
        return ImpulseMemory(h * acceleration(m, state.q, state.v)[1], h)

    def output(self, m: Mechanics, state: State, memory: ImpulseMemory, h: Array) -> tuple[Array, Array]:
        return state.v, memory.impulse / memory.h

    def step(self, m: Mechanics, state: State, memory: Any, h: Array):
        q0, v0 = state.q, state.v
        if Trait.HOLONOMIC in m.traits:

            def push(qm, q1):
                return -h * solve_spd(m.metric(qm), m.potential_gradient(qm))

            return _on_surface(m, state, 0.5, h, push, implicit=False)
        qm = q0 + 0.5 * h * v0
        mass = m.metric(qm)
        free = v0 - h * solve_spd(mass, m.potential_gradient(qm))
        if _has_one_forms(m):
            v1, impulse, _, report = _solve_multipliers(m, mass, qm, free, 0.5 * h, state, h)
            return state.moved(qm + 0.5 * h * v1, v1, h), ImpulseMemory(impulse, h), report

        def equations(v1):
            return v1 - oblique_projection(m, qm + 0.5 * h * v1, qm, free)

        v1, report = solve_velocity(equations, free, state, h, free - v0, mass)
        impulse = multipliers(m, qm, v1 - free)
        return state.moved(qm + 0.5 * h * v1, v1, h), ImpulseMemory(impulse, h), report

    def claims(self, system: System) -> Claims:
        return Claims(order=2, energy=False, reversible=True, on_constraint=True, fibred=True)

    def composable(self) -> str | None:
        return None
