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
    """A body on a Lie group: configurations g are elements, velocities xi = g^-1 g' are the body's.

    Give `group` (such as SO3()), `inertia()`, a matrix I with kinetic energy <I xi, xi>/2, and `constraints(g)`,
    whose rows a(g) say a(g) xi = 0, or `frame(g)`; both may depend on g. `potential(g)` and `forces(g, xi)` (a body
    covector) may be given. q0 is an element, v0 a body velocity, and so are the rows of a run.
    """

    group: ClassVar[Group]  # pyright: ignore[reportIncompatibleVariableOverride]

    def inertia(self) -> Array:
        """The inertia, constant in the body."""
        raise ValueError(f"{type(self).__name__} does not give inertia(), the matrix of its kinetic energy")

    def metric(self, q: Array) -> Array:
        """The inertia, wherever the body is."""
        return self.inertia()

    @property
    def own_metric(self) -> bool:
        """Whether the subclass gives a metric of its own, whose derivative no method on groups would know."""
        return type(self).metric is not GroupSystem.metric

    def generators(self, q: Array) -> Array:
        """Body velocities of multiplication from the left: Ad_{g^-1}."""
        return self.group.adjoint(self.group.inverse(q))

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The numbers that make an element."""
        return self.group.coordinates

    @property
    def angles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of period 2 pi."""
        return self.group.angles

    @property
    def velocity_names(self) -> tuple[str, ...]:
        """The components of the body velocity."""
        return self.group.velocities


class Chart(System):
    """The same body in coordinates x near one of its configurations: g = base exp(x).

    A plain system, which every method and every measurement takes; it holds near the base, within an angle of
    2 pi where the group rotates.
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
        if is_traced(self.base):
            return
        if self.base.shape != (group.size,) or not float(group.defect(self.base)) < TOLERANCE:
            raise ValueError(f"Chart: the base is not an element of {group.name}: {self.base}")

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the algebra."""
        return self.body.velocity_names

    def element(self, x: Array) -> Array:
        """The configuration with coordinates x."""
        return self.body.group.displaced(self.base, x)

    def _velocity(self, x: Array) -> Array:
        """The matrix T(x) of the body velocity, xi = T(x) x'."""
        return solve(self.body.group.dexp_inverse(-x), jnp.eye(x.shape[0], dtype=x.dtype))

    def metric(self, q: Array) -> Array:
        t = self._velocity(q)
        return matmul(t.T, matmul(self.body.inertia(), t))

    def potential(self, q: Array) -> Array:
        return self.body.potential(self.element(q))

    def constraints(self, q: Array) -> Array:
        return matmul(lower(self.body).rows(self.element(q)), self._velocity(q))
