"""A system whose modified fields are known in closed form."""

import jax.numpy as jnp
from jax import Array

import dalembert as da

W = 1.7


class Oscillator(da.System):
    """x'' = -w^2 x, without constraints."""

    coordinates = ("x",)
    step = 0.1

    def lagrangian(self, q: Array, v: Array) -> Array:
        return 0.5 * v[0] ** 2 - 0.5 * (W * q[0]) ** 2

    def constraints(self, q: Array) -> Array:
        return jnp.zeros((0, 1))
