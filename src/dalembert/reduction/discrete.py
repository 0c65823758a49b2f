"""The discrete mechanics of a reduced system: a discrete Lagrangian with forces, and their ingredients."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import DiscreteConstraint, DiscreteLagrangian
from dalembert.model import Mechanics, Trait
from dalembert.reduction.cases import (
    Abelian,
    Chaplygin,
    Horizontal,
    Reduced,
    Rule,
    Step,
    displaced,
    of,
    pulled,
)


def full_step(here: Mechanics, r: Array, u: Array, h: Array) -> tuple[Reduced, Mechanics, Step]:
    """The reduced system, the full system, and the full step that begins at (r, e) with the reduced velocity u."""
    core, full = of(here)
    w = core.case.fibre(core.symmetry, full, core.discrete, r, u, h)
    return core, full, core.discrete.step(core.symmetry, full, r, u[: r.shape[0]], w, h)


class ReducedLagrangian(DiscreteLagrangian):
    """The reduced discrete Lagrangian with its forces: partial derivatives D1 L + beta0 and D2 L + beta1.

    Equations: [fernandez2008]. L(r0, r1) is the full L_d of the step from (r0, e) to (r1, F(r0, r1)), where F is the
    group's part of a step that satisfies the discrete constraint or, at a level, has the momentum of the level. The
    derivatives of F drop out of the sums, which are the full derivatives restricted to the directions that are left.
    Momenta are measured relative to those at r' = 0, so that the reduced momentum is m r'.
    """

    supports = DiscreteLagrangian.supports | {Trait.FORCED, Trait.EXTRA_VELOCITIES}
    rule: Rule

    @property
    def symmetric(self) -> bool:
        return self.rule.lagrangian.symmetric and self.rule.constraint.symmetric

    @property
    def order(self) -> int:
        return 2 if self.symmetric else 1

    @property
    def cli_name(self) -> str:
        return f"reduced={self.rule.lagrangian.cli_name}"

    def over_step(self, system: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        _, full, step = full_step(system, q0, u, h)
        return self.rule.lagrangian.over_step(full, step.q0, step.q1, step.u, h)

    def partial_derivatives(
        self, system: Mechanics, q0: Array, q1: Array, u: Array, h: Array
    ) -> tuple[Array, Array]:
        _, full, step = full_step(system, q0, u, h)
        before, after = self.rule.lagrangian.partial_derivatives(full, step.q0, step.q1, step.u, h)
        return self._left(system, system.later(h), step, before, after)

    def departing(self, system: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        core, full, step = full_step(system, q0, u, h)
        p = self.rule.lagrangian.departing(full, step.q0, step.q1, step.u, h)
        return core.case.contract(core.symmetry, full, q0, p) - core.case.rest(core.symmetry, full, q0)

    def spacetime_derivatives(
        self, system: Mechanics, t: Array, q0: Array, q1: Array, u: Array, h: Array
    ) -> tuple[Array, Array]:
        here = system.at(t)
        core, full, step = full_step(here, q0, u, h)
        before, after = self.rule.lagrangian.spacetime_derivatives(full, t, step.q0, step.q1, step.u, h)
        there = here.later(h)
        first, second = self._left(here, there, step, before[1:], after[1:])
        energies = [before[0], after[0]]
        if isinstance(core.case, Chaplygin) and Trait.AFFINE in full.traits:
            # The horizontal lift of the time direction includes the drift.
            end = of(there)[1]
            ends = ((full, q0, before[1:]), (end, step.r1, pulled(core.symmetry, end, step, after[1:])))
            for i, (at, r, p) in enumerate(ends):
                drift: Any = core.case.drift(core.symmetry, at, r)
                energies[i] = energies[i] + jnp.sum(core.symmetry.parts(at, r, p)[1] * drift)
        return jnp.concatenate([energies[0][None], first]), jnp.concatenate([energies[1][None], second])

    def _left(
        self, here: Mechanics, there: Mechanics, step: Step, before: Array, after: Array
    ) -> tuple[Array, Array]:
        """The full derivatives, restricted to the directions that are left."""
        (core, full), end = of(here), of(there)[1]
        symmetry, case = core.symmetry, core.case
        first = case.contract(symmetry, full, step.r0, before) + case.rest(symmetry, full, step.r0)
        second = case.contract(symmetry, end, step.r1, pulled(core.symmetry, end, step, after))
        return first, second - case.rest(symmetry, end, step.r1)


class ReducedConstraint(DiscreteConstraint):
    """The full discrete constraint over the full step that a reduced step represents."""

    rule: Rule

    @property
    def symmetric(self) -> bool:
        return self.rule.constraint.symmetric

    @property
    def cli_name(self) -> str:
        return self.rule.constraint.cli_name

    def over_step(self, system: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        if not system.constrained:
            return jnp.zeros(0, q0.dtype)
        _, full, step = full_step(system, q0, u, h)
        return self.rule.constraint.over_step(full, step.q0, step.q1, step.u, h)


def displacement(here: Mechanics, r0: Array, r1: Array, h: Array) -> Array:
    """F(r0, r1), the group element of a horizontal step between two shapes.

    In an abelian reduction nothing is eliminated, and F belongs to the given connection, or is e.
    """
    core, full = of(here)
    if isinstance(core.case, Abelian):
        if core.case.connection is None:
            return core.symmetry.group.identity().astype(r0.dtype)
        return displaced(core.case.connection, core.symmetry, full, r0, r1)
    core, full, step = full_step(here, r0, (r1 - r0) / h, h)
    return core.symmetry.element(full, step.q1)


def invariant(here: Mechanics, r0: Array, r1: Array, f: Array, h: Array) -> Array:
    """ell(r0, r1, f), the full discrete Lagrangian between (r0, e) and (r1, f)."""
    core, full = of(here)
    q0, q1 = core.symmetry.section(full, r0), core.symmetry.join(full, r1, f)
    return core.discrete.lagrangian(full, q0, q1, h)


def reduced_value(here: Mechanics, r0: Array, r1: Array, h: Array, g: Array | None = None) -> Array:
    """The reduced discrete Lagrangian, ell(r0, r1, g F(r0, r1)); g is e if it is None."""
    return invariant(here, r0, r1, _moved(here, r0, r1, h, g), h)


def _moved(here: Mechanics, r0: Array, r1: Array, h: Array, g: Array | None) -> Array:
    f = displacement(here, r0, r1, h)
    return f if g is None else of(here)[0].symmetry.group.multiply(g, f)


def _by_group(here: Mechanics, r0: Array, r1: Array, h: Array, g: Array | None = None) -> tuple[Array, Array]:
    """g F, and d_f ell there, with respect to the numbers that represent f."""
    f = _moved(here, r0, r1, h, g)
    return f, jax.grad(lambda f: invariant(here, r0, r1, f, h))(f)


def momentum(here: Mechanics, r0: Array, r1: Array, h: Array, g: Array | None = None) -> Array:
    """d_f ell, the momentum with which a step arrives, as a covector on the algebra at the left of f."""
    core, _ = of(here)
    f, slope = _by_group(here, r0, r1, h, g)
    zero, group = jnp.zeros(core.symmetry.group.dimension, r0.dtype), core.symmetry.group
    return slope @ jax.jacfwd(lambda x: group.multiply(f, group.exp(x)))(zero)


def forces(here: Mechanics, r0: Array, r1: Array, h: Array, g: Array | None = None) -> tuple[Array, Array]:
    """beta0(r0, r1) and beta1(r0, r1), the discrete forces, with the opposite sign to [cortes2003] Proposition 3.

    For a Chaplygin system, beta0 = d_f ell (R_f A(r0) - d_{r0} F) and beta1 = -d_f ell (L_f A(r1) + d_{r1} F), with
    A = -X. At a level mu, beta_i = -mu dF/dr_i. For an abelian group the formulas are those of a Chaplygin system, at
    the element g F; A is then any connection whose horizontal velocities are in D wherever they can be.
    """
    core, full = of(here)
    end = of(here.later(h))[1]
    symmetry, case = core.symmetry, core.case
    f, slope = _by_group(here, r0, r1, h, g)
    by0, by1 = jax.jacfwd(lambda a, b: displacement(here, a, b, h), argnums=(0, 1))(r0, r1)
    if isinstance(case, Horizontal):
        return -slope @ by0, -slope @ by1
    zero = jnp.zeros(symmetry.group.dimension, r0.dtype)
    right = jax.jacfwd(lambda x: symmetry.group.multiply(symmetry.group.exp(x), f))(zero)
    left = jax.jacfwd(lambda x: symmetry.group.multiply(f, symmetry.group.exp(x)))(zero)
    lift0, lift1 = case.directions(symmetry, full, r0), case.directions(symmetry, end, r1)
    return -slope @ (right @ lift0 + by0), slope @ (left @ lift1 - by1)


def time_forces(here: Mechanics, r0: Array, r1: Array, h: Array) -> tuple[Array, Array]:
    """F^-_t and F^+_t, the forces on time, which [cortes2003] Proposition 3 prints as zero.

    Equations: F^-_t = d_f ell (d_{t0} F - A_t), F^+_t = d_f ell (d_{t1} F + A_t), with A_t = -Z, Z the drift.
    """
    core, full = of(here)
    there = here.later(h)
    f, slope = _by_group(here, r0, r1, h)
    zero = jnp.zeros((), r0.dtype)

    def moved(a, b):
        return displacement(here.later(a), r0, r1, h - a + b)

    by0, by1 = jax.jacfwd(moved, argnums=(0, 1))(zero, zero)
    group = core.symmetry.group
    drifts = [core.case.drift(core.symmetry, at, r) for at, r in ((full, r0), (of(there)[1], r1))]
    if drifts[0] is not None:
        none = jnp.zeros(group.dimension, r0.dtype)
        by0 = by0 + jax.jvp(lambda x: group.multiply(group.exp(x), f), (none,), (drifts[0],))[1]
        by1 = by1 - jax.jvp(lambda x: group.multiply(f, group.exp(x)), (none,), (drifts[1],))[1]
    return jnp.sum(slope * by0), jnp.sum(slope * by1)
