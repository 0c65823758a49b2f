"""A system with the time as one more coordinate."""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jax import Array

from dalembert.model.system import System


class SpaceTime(System):
    """A system with the time as its first coordinate: configurations are (t, q), velocities (1, v).

    Affine constraints are linear there: the one-forms are (-b, A), the frame has the column (1, Z) first.
    """

    system: System

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The time, and those of the system."""
        return ("t", *self.system.coordinates)

    @property
    def label(self) -> str:
        return self.system.label

    @property
    def class_name(self) -> str:
        return self.system.class_name

    def gives(self, name: str) -> bool:
        """Its constraints are linear, and its functions do not depend on a time beside their first coordinate."""
        return name in ("lagrangian", "metric", "potential") or (
            name in ("constraints", "frame") and self.system.gives(name)
        )

    def lagrangian(self, q: Array, v: Array) -> Array:
        return self.system.at(q[0]).lagrangian(q[1:], v[1:])

    def potential(self, q: Array) -> Array:
        return self.system.at(q[0]).potential(q[1:])

    def metric(self, q: Array) -> Array:
        """The mass matrix with a one for the time, so that it has an inverse."""
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
