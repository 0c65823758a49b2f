"""Systems whose functions depend on time."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from dalembert.model.systems import System

# pyright: reportIncompatibleMethodOverride=false


class RheonomicSystem(System):
    """A system whose functions take the time as an additional first argument.

    Give `lagrangian(t, q, v)`, or `metric(t, q)` and `potential(t, q)`. Then give `constraints(t, q)` or
    `frame(t, q)`, with `offsets(t, q)` or `drift(t, q)` if the constraints are affine, A(t, q) v = b(t, q).
    `holonomic(t, q)` gives position constraints c(t, q) = 0. You may add `forces(t, q, v)`. The papers' constraint
    omega(t, q) v + omega0(t, q) = 0 has A = omega and b = -omega0. `generators(t, q)` has an additional first row, the
    change of time under the symmetry, and `sections` are functions of (t, q).
    """

    timed: ClassVar[bool] = True

    def lagrangian(self, t: Array, q: Array, v: Array) -> Array:
        """Kinetic minus potential energy."""
        return self.at(t).lagrangian(q, v)

    def metric(self, t: Array, q: Array) -> Array:
        """The mass matrix M(t, q), computed from the Lagrangian if it is not given."""
        return self.at(t).metric(q)

    def potential(self, t: Array, q: Array) -> Array:
        """The potential energy V(t, q), computed from the Lagrangian if it is not given; zero if there is neither."""
        return self.at(t).potential(q)

    def constraints(self, t: Array, q: Array) -> Array:
        """The matrix A(t, q), one row per one-form."""
        return jnp.zeros((0, self.velocity_dimension), q.dtype)

    def frame(self, t: Array, q: Array) -> Array:
        """The matrix B(t, q) whose columns span D."""
        return jnp.eye(self.velocity_dimension, dtype=q.dtype)

    def holonomic(self, t: Array, q: Array) -> Array:
        """c(t, q) of position constraints c(t, q) = 0, one number each; none by default."""
        return self.at(t).holonomic(q)

    def nonlinear(self, t: Array, q: Array, v: Array) -> Array:
        """f(t, q, v) of constraints f(t, q, v) = 0 that are not linear in v; none by default."""
        return self.at(t).nonlinear(q, v)

    def offsets(self, t: Array, q: Array) -> Array:
        """b(t, q) of affine constraints A v = b; zero by default."""
        return self.at(t).offsets(q)

    def drift(self, t: Array, q: Array) -> Array:
        """A velocity Z(t, q) that satisfies affine constraints."""
        return self.at(t).drift(q)

    def forces(self, t: Array, q: Array, v: Array) -> Array:
        """Non-conservative forces, a covector; none by default."""
        return self.at(t).forces(q, v)

    def generators(self, t: Array, q: Array) -> Array:
        """The infinitesimal generators of a symmetry group, shape (1 + n, k); the first row is the change of time."""
        return jnp.zeros((1 + self.dimension, 0), q.dtype)

    @classmethod
    def defines(cls, name: str) -> bool:
        """Whether the subclass defines this function itself."""
        return getattr(cls, name) is not getattr(RheonomicSystem, name)


class SpaceTime(System):
    """A system with the time as its first coordinate: configurations are (t, q), velocities (1, v).

    Affine constraints become linear: the one-forms are (-b, A), and the first column of the frame is (1, Z). Those of
    position constraints are among them.
    """

    system: System

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The time, followed by the coordinates of the system."""
        return ("t", *self.system.coordinates)

    @property
    def label(self) -> str:
        return self.system.label

    @property
    def class_name(self) -> str:
        return self.system.class_name

    def defines(self, name: str) -> bool:
        """Whether the function is given; offsets and drift are not, because the constraints are linear here."""
        if name == "constraints":
            return self.system.defines(name) or self.system.defines("holonomic")
        return name in ("lagrangian", "metric", "potential") or (
            name == "frame" and self.system.defines(name)
        )

    def lagrangian(self, q: Array, v: Array) -> Array:
        return self.system.at(q[0]).lagrangian(q[1:], v[1:])

    def potential(self, q: Array) -> Array:
        return self.system.at(q[0]).potential(q[1:])

    def metric(self, q: Array) -> Array:
        """The mass matrix, with a one for the time so that it is invertible."""
        mass = self.system.at(q[0]).metric(q[1:])
        rest = jnp.concatenate([jnp.zeros((mass.shape[0], 1), q.dtype), mass], axis=1)
        return jnp.concatenate([jnp.eye(1, q.shape[0], dtype=q.dtype), rest])

    def constraints(self, q: Array) -> Array:
        here = self.system.at(q[0])
        return jnp.concatenate([-here.offsets(q[1:])[:, None], here.rows(q[1:])], axis=1)

    def frame(self, q: Array) -> Array:
        here = self.system.at(q[0])
        columns = here.frame(q[1:])
        first = jnp.concatenate([jnp.ones_like(q[:1]), here.drift(q[1:])])
        rest = jnp.concatenate([jnp.zeros((1, columns.shape[1]), q.dtype), columns])
        return jnp.concatenate([first[:, None], rest], axis=1)

    def generators(self, q: Array) -> Array:
        columns = self.system.at(q[0]).generators(q[1:])
        if self.system.timed:
            return columns
        return jnp.concatenate([jnp.zeros((1, columns.shape[1]), q.dtype), columns])

    def sections(self) -> Mapping[str, Callable[[Array], Array]]:
        def over(name: str) -> Callable[[Array], Array]:
            return lambda z: self.system.at(z[0]).sections()[name](z[1:])

        return {name: over(name) for name in self.system.sections()}
