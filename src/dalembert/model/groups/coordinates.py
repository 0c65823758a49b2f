"""The space of a system's configurations: a Lie group, of which coordinates are the plainest."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.model.groups.flat import Rn


class Coordinates(Rn):
    """R^n with addition, as the space of a system in coordinates.

    Velocities beyond the coordinates, as some reduced systems have, move nothing that is stored.
    """

    own_names: tuple[str, ...] = eqx.field(static=True)
    velocity_names: tuple[str, ...] = eqx.field(static=True)
    own_angles: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, names: tuple[str, ...], velocities: tuple[str, ...], angles: tuple[str, ...]):
        self.n = len(names)
        self.own_names, self.velocity_names, self.own_angles = names, velocities, angles

    @property
    def coordinates(self) -> tuple[str, ...]:
        return self.own_names

    @property
    def velocities(self) -> tuple[str, ...]:
        return self.velocity_names

    @property
    def angles(self) -> tuple[str, ...]:
        return self.own_angles

    def adjoint(self, g: Array) -> Array:
        return jnp.eye(self.dimension, dtype=g.dtype)

    def bracket(self, x: Array) -> Array:
        return jnp.zeros((self.dimension, self.dimension), x.dtype)

    def exp(self, x: Array) -> Array:
        return x[: self.n]

    def velocity(self, g: Array, x: Array) -> Array:
        return x[: self.n]

    def difference(self, g: Array, k: Array) -> Array:
        return k - g

    def gradient(self, function: Callable[[Array], Any], q: Array) -> Array:
        slope = jax.grad(function)(q)
        return (
            jnp.concatenate([slope, jnp.zeros(self.dimension - self.n, q.dtype)])
            if self.dimension > self.n
            else slope
        )
