"""Systems whose configurations are elements of a Lie group."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from dalembert.groups import Group
from dalembert.model.sampling import TOLERANCE
from dalembert.model.systems import System, lower
from dalembert.numerics import is_traced, matmul, solve


class GroupSystem(System):
    """A body on a Lie group: configurations g are group elements, and velocities xi = g^-1 g' are body velocities.

    Give `group` (such as SO3()); `inertia()`, a matrix I with kinetic energy <I xi, xi>/2, or `metric(g)` if it
    depends on the configuration; and either `constraints(g)`, whose rows a(g) mean a(g) xi = 0, or `frame(g)`. Both
    may depend on g. You may also give `potential(g)`, `forces(g, xi)`, which is a body covector, and position
    constraints `holonomic(g)`. q0 is an element and v0 a body velocity; a run stores its rows of q and v in the same
    way.
    """

    group: ClassVar[Group]  # pyright: ignore[reportIncompatibleVariableOverride]

    def inertia(self) -> Array:
        """The inertia, constant in the body."""
        raise ValueError(f"{type(self).__name__} does not give inertia(), the matrix of its kinetic energy")

    def metric(self, q: Array) -> Array:
        """The matrix of the kinetic energy at a configuration: the inertia, unless the subclass gives another."""
        return self.inertia()

    @property
    def own_metric(self) -> bool:
        """Whether the subclass gives its own metric."""
        return type(self).metric is not GroupSystem.metric

    @property
    def own_inertia(self) -> bool:
        """Whether the subclass gives its inertia."""
        return type(self).inertia is not GroupSystem.inertia

    def generators(self, q: Array) -> Array:
        """The body velocities that multiplication from the left generates: Ad_{g^-1}."""
        return self.group.adjoint(self.group.inverse(q))

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the numbers that make up an element."""
        return self.group.coordinates

    @property
    def angles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the coordinates of period 2 pi."""
        return self.group.angles

    @property
    def velocity_names(self) -> tuple[str, ...]:
        """The names of the components of the body velocity."""
        return self.group.velocities


class Chart(System):
    """A group system in coordinates x near one of its configurations: g = base exp(x).

    A chart is a plain system, which every method and every measurement accepts. It is valid near the base: within an
    angle of 2 pi if the group contains rotations.
    """

    body: GroupSystem
    base: Array = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        if not isinstance(self.body, GroupSystem):
            raise ValueError(
                f"Chart needs a GroupSystem, got {self.body!r}; other systems have coordinates already"
            )
        name, group = type(self.body).__name__, self.body.group
        if self.body.defines("forces"):
            raise ValueError(
                f"Chart carries no forces, but {name} gives some; use Reference() on {name} itself"
            )
        if self.body.defines("nonlinear"):
            raise ValueError(
                f"Chart carries linear constraints, but {name} gives nonlinear(g, xi); use Reference() on {name} itself"
            )
        if is_traced(self.base):
            return
        if self.base.shape != (group.size,) or not float(group.defect(self.base)) < TOLERANCE:
            raise ValueError(f"Chart: the base is not an element of {group.name}: {self.base}")

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the coordinates of the algebra."""
        return self.body.velocity_names

    @property
    def signature(self) -> tuple[int, int] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The signature of the body's metric."""
        return self.body.signature

    def element(self, x: Array) -> Array:
        """The configuration with coordinates x."""
        return self.body.group.displaced(self.base, x)

    def _velocity(self, x: Array) -> Array:
        """The matrix T(x) of the body velocity, xi = T(x) x'."""
        return solve(self.body.group.dexp_inverse(-x), jnp.eye(x.shape[0], dtype=x.dtype))

    def metric(self, q: Array) -> Array:
        t = self._velocity(q)
        return matmul(t.T, matmul(self.body.metric(self.element(q)), t))

    def potential(self, q: Array) -> Array:
        return self.body.potential(self.element(q))

    def constraints(self, q: Array) -> Array:
        return matmul(lower(self.body).velocity_rows(self.element(q)), self._velocity(q))

    def holonomic(self, q: Array) -> Array:
        return lower(self.body).holonomic(self.element(q))

    def defines(self, name: str) -> bool:
        """Whether the function is given; position constraints are if the body gives them."""
        return self.body.defines(name) if name == "holonomic" else super().defines(name)
