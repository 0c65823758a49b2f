"""Systems whose functions depend on time."""

# pyright: reportIncompatibleMethodOverride=false

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from dalembert.model.system import System


class RheonomicSystem(System):
    """A system whose functions have the time as one more, first argument.

    Give `lagrangian(t, q, v)`, or `metric(t, q)` and `potential(t, q)`; then `constraints(t, q)` or `frame(t, q)`,
    with `offsets(t, q)` or `drift(t, q)` where the constraints are affine, A(t, q) v = b(t, q); `forces(t, q, v)`.
    The papers' omega(t, q) v + omega0(t, q) = 0 has A = omega and b = -omega0. `generators(t, q)` has one more
    row, first, for the time that a symmetry adds, and `sections` are functions of (t, q).
    """

    timed: ClassVar[bool] = True

    def lagrangian(self, t: Array, q: Array, v: Array) -> Array:
        """Kinetic minus potential energy."""
        return self.at(t).lagrangian(q, v)

    def metric(self, t: Array, q: Array) -> Array:
        """The mass matrix M(t, q), from the Lagrangian where it is not given."""
        return self.at(t).metric(q)

    def potential(self, t: Array, q: Array) -> Array:
        """The potential energy V(t, q), from the Lagrangian where it is not given; else zero."""
        return self.at(t).potential(q)

    def constraints(self, t: Array, q: Array) -> Array:
        """The matrix A(t, q), one row per one-form."""
        return jnp.zeros((0, self.velocity_dimension), q.dtype)

    def frame(self, t: Array, q: Array) -> Array:
        """The matrix B(t, q) whose columns span D."""
        return jnp.eye(self.velocity_dimension, dtype=q.dtype)

    def offsets(self, t: Array, q: Array) -> Array:
        """b(t, q) of affine constraints A v = b; zero by default."""
        return jnp.zeros(self.constraints(t, q).shape[0], q.dtype)

    def drift(self, t: Array, q: Array) -> Array:
        """A velocity Z(t, q) that satisfies affine constraints."""
        return jnp.zeros(self.velocity_dimension, q.dtype)

    def forces(self, t: Array, q: Array, v: Array) -> Array:
        """Non-conservative forces, a covector; none by default."""
        return self.at(t).forces(q, v)

    def generators(self, t: Array, q: Array) -> Array:
        """(1 + n, k) infinitesimal generators of a symmetry group; the first row is the change of time."""
        return jnp.zeros((1 + self.dimension, 0), q.dtype)

    @classmethod
    def gives(cls, name: str) -> bool:
        """Whether the subclass defines this function itself."""
        return getattr(cls, name) is not getattr(RheonomicSystem, name)
