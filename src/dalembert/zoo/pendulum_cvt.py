"""The continuously variable transmission driven by a pendulum."""

import jax.numpy as jnp

from dalembert.model import System


class PendulumCVT(System):
    """Two oscillators coupled by the gear ratio sin(xi) of a pendulum xi.

    V = (x1^2 + x2^2)/2 + 1 - cos(xi) + (eps/2) sin(2 xi), constraint x1' + sin(xi) x2' = 0 [modin2020]; for
    eps != 0 the rotating driver is not reversible, which separates integrators that work from those that
    do not. Erratum: the printed driver potential has the wrong sign.
    """

    coordinates = ("x1", "x2", "xi")
    angles = ("xi",)
    step = 0.1
    eps: float = 0.0

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        x1, x2, xi = q
        return 0.5 * (x1**2 + x2**2) + 1 - jnp.cos(xi) + 0.5 * self.eps * jnp.sin(2 * xi)

    def constraints(self, q):
        return jnp.array([[1.0, jnp.sin(q[2]), 0.0]])

    def starts(self):
        return {
            "oscillating": ([1.0, 1.0, 0.0], [0.0, 0.0, 3.6**0.5]),
            "rotating": ([1.0, 1.0, 0.0], [0.0, 0.0, 8.0**0.5]),
        }
