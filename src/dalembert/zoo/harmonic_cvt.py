"""The continuously variable transmission with a harmonic driver."""

import jax.numpy as jnp

from dalembert.model import System


class HarmonicCVT(System):
    """Two oscillators coupled by a gear ratio xi that oscillates by itself.

    V = (x1^2 + x2^2 + xi^2)/2, constraint x1' + xi x2' = 0 [modin2020]. Integrable; keeps the passenger's
    energy, the driver's energy and a latitude.
    """

    coordinates = ("x1", "x2", "xi")
    step = 0.1

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        return 0.5 * jnp.sum(q**2)

    def constraints(self, q):
        return jnp.array([[1.0, q[2], 0.0]])

    def starts(self):
        k = jnp.array([-0.5, 1.0]) / jnp.sqrt(1.25)
        return {"default": ([1.0, 1.0, 0.5], [*(0.3 * k), 1.0])}
