"""The three kinds of reduction, and what each does to mass, potential, forces, constraints and a discrete step.

A full velocity at (r, e) has two parts: r' of the shape and xi of the group. A full covector has the parts p_r and
p_g. `full` is the full system at one time.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import DiscreteConstraint, DiscreteLagrangian
from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import Mechanics, Symmetry, System, Trait, lower
from dalembert.numerics import matmul, matvec, newton, solve, solve_spd

# Singular values below this fraction of the largest one are rounded zeros.
_DEPENDENT = 1e-9


class Step(NamedTuple):
    """A full step from (r0, e): its ends, its velocity, and the shapes at its ends."""

    q0: Array
    q1: Array
    u: Array
    r0: Array
    r1: Array


def pulled(symmetry: Symmetry, full: Mechanics, step: Step, after: Array) -> Array:
    """The covector `after` at the end of a step, moved to (r1, e)."""
    g = symmetry.element(full, step.q1)
    return symmetry.pull(full, g, symmetry.section(full, step.r1), after)


def displaced(connection: Callable, symmetry: Symmetry, full: Mechanics, r0: Array, r1: Array) -> Array:
    """F(r0, r1), the element by which a horizontal step of a discrete connection moves: A_d((r0, e), F (r1, e)) = e."""
    return symmetry.group.inverse(connection(symmetry.section(full, r0), symmetry.section(full, r1)))


class Case(eqx.Module):
    """What a reduction does with the group directions."""

    name: ClassVar[str]
    given: ClassVar[tuple[str, ...]]
    """The functions that the reduced system has."""
    linear: bool = eqx.field(default=False, static=True)
    """Whether the equation for the group's part of a discrete step is linear, so that one solve is enough."""

    def directions(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        """(s, k) the group's velocity that goes with r', with one column per direction of r."""
        raise NotImplementedError

    def drift(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array | None:
        """The group's velocity at r' = 0; None if it is zero."""
        return None

    def group_velocity(self, symmetry: Symmetry, full: Mechanics, r: Array, change: Array) -> Array:
        """The group's velocity xi, from r' at a state."""
        xi, drift = matvec(self.directions(symmetry, full, r), change), self.drift(symmetry, full, r)
        return xi if drift is None else drift + xi

    def missing(self, symmetry: Symmetry, full: Mechanics, rule: "Rule", step: Step, h: Array) -> Array:
        """The residual of the equation for the group's part of a discrete step."""
        raise NotImplementedError

    def contract(self, symmetry: Symmetry, full: Mechanics, r: Array, p: Array) -> Array:
        """The full covector at (r, e), restricted to the directions that are left."""
        raise NotImplementedError

    def velocity(self, symmetry: Symmetry, full: Mechanics, r: Array, v: Array) -> Array:
        """The full velocity at (r, e)."""
        return symmetry.spread(full, r, v, self.group_velocity(symmetry, full, r, v))

    def rest(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        """The reduced momentum at r' = 0, which comes from the drift and the level."""
        drift = self.drift(symmetry, full, r)
        if drift is None:
            return jnp.zeros_like(r)
        still = symmetry.spread(full, r, jnp.zeros_like(r), drift)
        return self.contract(symmetry, full, r, matvec(full.metric(symmetry.section(full, r)), still))

    def metric(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        """The mass matrix for r', lift^T M lift, where the lift takes r' to r' with the group's velocity."""
        lift = self.directions(symmetry, full, r)
        on_shape, on_group = symmetry.parts(full, r, full.metric(symmetry.section(full, r)))
        on_shape, on_group = symmetry.parts(full, r, (on_shape + matmul(on_group, lift)).T)
        return on_shape.T + matmul(lift.T, on_group.T)

    def potential(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        """The potential energy; at a level it includes the energy of the momentum that is kept."""
        return full.potential(symmetry.section(full, r))

    def constraints(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        """The one-forms that are left."""
        return symmetry.parts(full, r, full.rows(symmetry.section(full, r)))[0]

    def offsets(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        """The offsets of the affine constraints that are left."""
        return full.offsets(symmetry.section(full, r))

    def fibre(self, symmetry: Symmetry, full: Mechanics, rule: "Rule", r: Array, u: Array, h: Array) -> Array:
        """w, the group's part of the step from r with shape velocity u, as a velocity."""

        def missing(w):
            return self.missing(symmetry, full, rule, rule.step(symmetry, full, r, u, w, h), h)

        if self.linear:
            none = jnp.zeros(symmetry.group.dimension, r.dtype)
            return -solve(jax.jacfwd(missing)(none), missing(none))
        guess = self.group_velocity(symmetry, full, r, u)
        size = jnp.sum(jnp.abs(u)) + jnp.sum(jnp.abs(guess)) + jnp.finfo(r.dtype).tiny
        w, info = newton(missing, guess, 1 / size)
        # NaN makes the run fail and report that the step was not found.
        return jnp.where(info.converged, w, jnp.nan)


class Rule(eqx.Module):
    """The discrete Lagrangian and the discrete constraint of the full system."""

    lagrangian: DiscreteLagrangian
    constraint: DiscreteConstraint

    def step(self, symmetry: Symmetry, full: Mechanics, r: Array, u: Array, w: Array, h: Array) -> Step:
        """The full step from (r, e) with shape velocity u whose group part is w."""
        q0 = symmetry.section(full, r)
        r1 = r + h * u
        if symmetry.action is None:
            velocity = symmetry.spread(full, r, u, w)
            return Step(q0, self.lagrangian.moved(full, q0, velocity, h), velocity, r, r1)
        q1 = symmetry.join(full, r1, h * w)
        return Step(q0, q1, (q1 - q0) / h, r, r1)


class Chaplygin(Case):
    """D is a connection: the constraint gives the group's part of every velocity and of every step."""

    name = "Chaplygin"
    given = ("metric", "potential", "forces")
    connection: Callable[[Array, Array], Array] | None = eqx.field(default=None, static=True)
    """The user's discrete connection A_d(q0, q1), which then gives the group's part of a step."""

    def directions(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        on_shape, on_group = symmetry.parts(full, r, full.rows(symmetry.section(full, r)))
        return -solve(on_group, on_shape)

    def drift(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array | None:
        if Trait.AFFINE not in full.traits:
            return None
        q = symmetry.section(full, r)
        return solve(symmetry.parts(full, r, full.rows(q))[1], full.offsets(q))

    def missing(self, symmetry: Symmetry, full: Mechanics, rule: Rule, step: Step, h: Array) -> Array:
        return rule.constraint.over_step(full, step.q0, step.q1, step.u, h)

    def fibre(self, symmetry: Symmetry, full: Mechanics, rule: "Rule", r: Array, u: Array, h: Array) -> Array:
        if self.connection is None:
            return super().fibre(symmetry, full, rule, r, u, h)
        f = displaced(self.connection, symmetry, full, r, r + h * u)
        if symmetry.action is not None:
            return f / h
        q0, q1 = symmetry.section(full, r), symmetry.join(full, r + h * u, f)
        return symmetry.changes(full, r, rule.lagrangian.velocity(full, q0, q1, h))[1]

    def contract(self, symmetry: Symmetry, full: Mechanics, r: Array, p: Array) -> Array:
        on_shape, on_group = symmetry.parts(full, r, p)
        return on_shape + matvec(self.directions(symmetry, full, r).T, on_group)


class Horizontal(Case):
    """The group moves along D, so its momentum, the level, is kept and gives the group's part of a velocity."""

    name = "horizontal"
    given = ("metric", "potential", "forces", "constraints", "offsets")
    level: Array = eqx.field(converter=jnp.asarray, kw_only=True)

    def _blocks(self, symmetry: Symmetry, full: Mechanics, r: Array) -> tuple[Array, Array]:
        """The mass matrix on the group, and between group and shape."""
        on_group = symmetry.parts(full, r, full.metric(symmetry.section(full, r)))[1]
        mixed, own = symmetry.parts(full, r, on_group.T)
        return own, mixed

    def directions(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        own, mixed = self._blocks(symmetry, full, r)
        return -solve_spd(own, mixed)

    def drift(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array | None:
        return solve_spd(self._blocks(symmetry, full, r)[0], self.level)

    def missing(self, symmetry: Symmetry, full: Mechanics, rule: Rule, step: Step, h: Array) -> Array:
        after = rule.lagrangian.partial_derivatives(full, step.q0, step.q1, step.u, h)[1]
        return symmetry.parts(full, step.r1, pulled(symmetry, full, step, after))[1] - self.level

    def contract(self, symmetry: Symmetry, full: Mechanics, r: Array, p: Array) -> Array:
        return symmetry.parts(full, r, p)[0]

    def potential(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        own, _ = self._blocks(symmetry, full, r)
        kept = 0.5 * jnp.sum(self.level * solve_spd(own, self.level))
        return full.potential(symmetry.section(full, r)) + kept


class Abelian(Case):
    """Only the coordinates of the group are removed: velocities keep the group's part, after the shape's."""

    name = "abelian"
    given = ("metric", "potential", "constraints", "offsets")
    connection: Callable[[Array, Array], Array] | None = eqx.field(default=None, static=True)
    """The user's discrete connection A_d(q0, q1), from which `alpha` and the reduced Lagrangian count the group."""

    def directions(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        """The least velocities of the group that put r' into D, where some do; they define the forces."""
        on_shape, on_group = symmetry.parts(full, r, full.rows(symmetry.section(full, r)))
        if not on_group.shape[0]:
            return jnp.zeros((on_group.shape[1], on_shape.shape[1]), r.dtype)
        return -matmul(jnp.linalg.pinv(on_group, rtol=_DEPENDENT), on_shape)

    def group_velocity(self, symmetry: Symmetry, full: Mechanics, r: Array, change: Array) -> Array:
        return change[r.shape[0] :]

    def velocity(self, symmetry: Symmetry, full: Mechanics, r: Array, v: Array) -> Array:
        return symmetry.spread(full, r, v[: r.shape[0]], v[r.shape[0] :])

    def contract(self, symmetry: Symmetry, full: Mechanics, r: Array, p: Array) -> Array:
        return jnp.concatenate(symmetry.parts(full, r, p))

    def rest(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        return jnp.zeros(full.velocity_dimension, r.dtype)

    def constraints(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        return jnp.concatenate(symmetry.parts(full, r, full.rows(symmetry.section(full, r))), axis=-1)

    def metric(self, symmetry: Symmetry, full: Mechanics, r: Array) -> Array:
        mass = full.metric(symmetry.section(full, r))
        rows = jnp.concatenate(symmetry.parts(full, r, mass), axis=-1).T
        return jnp.concatenate(symmetry.parts(full, r, rows), axis=-1)

    def fibre(self, symmetry: Symmetry, full: Mechanics, rule: Rule, r: Array, u: Array, h: Array) -> Array:
        return u[r.shape[0] :]


def of(here: System | Mechanics) -> tuple["Reduced", Mechanics]:
    """The reduced system, and the full system at the same time."""
    here = lower(here)
    core: Any = here.system
    if not isinstance(core, Reduced):
        raise ValueError(f"this is the method of a reduced system, which da.reduce makes; got {here.label}")
    return core, lower(core.full).at(here.t)


class Reduced:
    """What all reduced systems share, whether or not they depend on time.

    `full` is the system that was reduced, `symmetry` its group, `case` the kind of reduction, `rule` the full method.
    """

    full: System
    symmetry: Symmetry
    case: Case
    rule: VariationalDLA | EDLA

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The coordinates of the shape."""
        return tuple(x for x in self.full.coordinates if x not in self.symmetry.on)

    @property
    def units(self) -> tuple[str, ...]:
        """The units of the shape's coordinates."""
        given = zip(self.full.coordinates, self.full.units, strict=False)
        return tuple(unit for x, unit in given if x not in self.symmetry.on)

    @property
    def angles(self) -> tuple[str, ...]:
        """The angles among the shape's coordinates."""
        return tuple(x for x in self.full.angles if x not in self.symmetry.on)

    @property
    def velocity_names(self) -> tuple[str, ...]:
        """The names of the shape's velocities, followed for an abelian reduction by those of the group."""
        return (*self.coordinates, *(self.symmetry.on if isinstance(self.case, Abelian) else ()))

    @property
    def label(self) -> str:
        """The label of the full system over the group."""
        return f"{self.full.label}/({self.symmetry.words})"

    @property
    def step(self) -> float | None:
        """The recommended step of the full system."""
        return self.full.step

    def defines(self, name: str) -> bool:
        """Whether the reduced system has this function."""
        full = lower(self.full)
        if name == "forces" and isinstance(self.case, Abelian):
            return Trait.FORCED in full.traits
        if name == "offsets":
            return Trait.AFFINE in full.traits and "offsets" in self.case.given
        return name in self.case.given

    @property
    def discrete(self) -> Rule:
        """The discrete Lagrangian and the discrete constraint of the full system."""
        return Rule(self.rule.discrete_lagrangian, self.rule.discrete_constraint)

    def starts(self) -> Mapping[str, tuple[Any, Any]]:
        """The start states of the full system, without the group."""
        made = {}
        for name in self.full.starts():
            q, v = self.full.start(name)
            made[name] = projected(self, q, v)
        return made


def projected(core: Reduced, q: Array, v: Array) -> tuple[Array, Array]:
    """The shape and the reduced velocity of a full state."""
    symmetry, full = core.symmetry, core.full
    v = symmetry.push(full, symmetry.group.inverse(symmetry.element(full, q)), q, v)
    r = symmetry.shape(full, q)
    change, xi = symmetry.changes(full, r, v)
    return r, jnp.concatenate([change, xi]) if isinstance(core.case, Abelian) else change


def gyroscopic(here: Mechanics, r: Array, v: Array) -> Array:
    """The forces of the reduced equations, which are what the reduced energy and potential leave of the full ones.

    With l(r, r', xi) the full Lagrangian, p = dl/d(r', xi), xi = X r' + Z and the reduced momentum
    p_r + X^T p_g = m r' + c, the equations of Lagrange and d'Alembert are
        d/dt (m r' + c) = dl/dr + X^T ad_xi^T p_g + (dX/dt)^T p_g;
    for a horizontal symmetry at a level, every term with X^T is left out, since p_g is kept.
    """
    core, full = of(here)
    symmetry, case = core.symmetry, core.case
    # The forces of the full system, which has some if it was itself reduced.
    given = full.forces(symmetry.section(full, r), case.velocity(symmetry, full, r, v))
    given = case.contract(symmetry, full, r, given)
    if isinstance(case, Abelian):
        return given
    xi = case.group_velocity(symmetry, full, r, v)

    def whole(x):
        return full.lagrangian(symmetry.section(full, x), symmetry.spread(full, x, v, xi))

    def own(x):
        return 0.5 * jnp.sum(v * matvec(case.metric(symmetry, full, x), v)) - case.potential(
            symmetry, full, x
        )

    force = jax.grad(lambda x: whole(x) - own(x))(r) + given
    force = force - here.time_derivative(lambda s, x: case.rest(symmetry, of(s)[1], x), r, v)
    if not isinstance(case, Horizontal):
        momentum = matvec(full.metric(symmetry.section(full, r)), symmetry.spread(full, r, v, xi))
        p = symmetry.parts(full, r, momentum)[1]
        turned = matvec(symmetry.group.bracket(xi).T, p)
        force = force + matvec(case.directions(symmetry, full, r).T, turned)
        force = force + here.time_derivative(
            lambda s, x: matvec(case.directions(symmetry, of(s)[1], x).T, p), r, v
        )
    return force
