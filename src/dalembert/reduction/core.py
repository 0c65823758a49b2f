"""What a reduced system is made of, and the forces of its equations of motion."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import Mechanics, Symmetry, System, Trait, lower
from dalembert.numerics import matvec
from dalembert.reduction.cases import Abelian, Case, Horizontal, Rule


def of(here: Mechanics) -> tuple["Reduced", Mechanics]:
    """The reduced system and the full one, at the same time."""
    core: Any = here.system
    if not isinstance(core, Reduced):
        raise ValueError(f"this is the method of a reduced system, which da.reduce makes; got {here.label}")
    return core, lower(core.full).at(here.t)


class Reduced:
    """What reduced systems share, those that depend on time and those that do not.

    `full` is the system that was reduced, `symmetry` its group, `case` how it was done, `rule` the full method.
    """

    full: System
    symmetry: Symmetry
    case: Case
    rule: VariationalDLA | EDLA

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Those of the shape."""
        return tuple(x for x in self.full.coordinates if x not in self.symmetry.on)

    @property
    def units(self) -> tuple[str, ...]:
        """Those of the shape."""
        given = zip(self.full.coordinates, self.full.units, strict=False)
        return tuple(unit for x, unit in given if x not in self.symmetry.on)

    @property
    def angles(self) -> tuple[str, ...]:
        """Those of the shape."""
        return tuple(x for x in self.full.angles if x not in self.symmetry.on)

    @property
    def velocity_names(self) -> tuple[str, ...]:
        """Those of the shape, and of what is called abelian those of the group after them."""
        return (*self.coordinates, *(self.symmetry.on if isinstance(self.case, Abelian) else ()))

    @property
    def label(self) -> str:
        """The full system over the group."""
        return f"{self.full.label}/({self.symmetry.words})"

    @property
    def step(self) -> float | None:
        """That of the full system."""
        return self.full.step

    def gives(self, name: str) -> bool:
        """Whether the reduced system has this function."""
        full = lower(self.full)
        if name == "forces" and isinstance(self.case, Abelian):
            return Trait.FORCED in full.traits
        if name == "offsets":
            return Trait.AFFINE in full.traits and "offsets" in self.case.given
        return name in self.case.given

    @property
    def discrete(self) -> Rule:
        """Discrete Lagrangian and discrete constraint of the full system."""
        return Rule(self.rule.discrete_lagrangian, self.rule.discrete_constraint)

    def starts(self) -> Mapping[str, tuple[Any, Any]]:
        """Those of the full system, without the group."""
        made = {}
        for name in self.full.starts():
            q, v = self.full.start(name)
            made[name] = projected(self, q, v)
        return made


def projected(core: Reduced, q: Array, v: Array) -> tuple[Array, Array]:
    """Shape and reduced velocity of a full state."""
    symmetry, full = core.symmetry, core.full
    v = symmetry.push(full, symmetry.group.inverse(symmetry.element(full, q)), q, v)
    r = symmetry.shape(full, q)
    change, xi = symmetry.changes(full, r, v)
    return r, jnp.concatenate([change, xi]) if isinstance(core.case, Abelian) else change


def gyroscopic(here: Mechanics, r: Array, v: Array) -> Array:
    """The forces of the reduced equations: what is left of the full ones beside reduced energy and potential.

    With l(r, r', xi) the full Lagrangian, p = dl/d(r', xi), xi = X r' + Z and the reduced momentum
    p_r + X^T p_g = m r' + c, the equations of Lagrange and d'Alembert are
        d/dt (m r' + c) = dl/dr + X^T ad_xi^T p_g + (dX/dt)^T p_g;
    for a horizontal symmetry at a level X^T is left out, since p_g is kept.
    """
    core, full = of(here)
    symmetry, case = core.symmetry, core.case
    # Forces of the full system, where it was reduced before.
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
    force = force - here.along(lambda s, x: case.rest(symmetry, of(s)[1], x), r, v)
    if not isinstance(case, Horizontal):
        momentum = matvec(full.metric(symmetry.section(full, r)), symmetry.spread(full, r, v, xi))
        p = symmetry.parts(full, r, momentum)[1]
        turned = matvec(symmetry.group.bracket(xi).T, p)
        force = force + matvec(case.directions(symmetry, full, r).T, turned)
        force = force + here.along(lambda s, x: matvec(case.directions(symmetry, of(s)[1], x).T, p), r, v)
    return force
