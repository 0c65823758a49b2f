"""The continuously variable transmission driven by a pendulum."""

import jax.numpy as jnp

from dalembert.model import System, scene
from dalembert.zoo.harmonic_cvt import transmission


class PendulumCVT(System):
    """Two oscillators coupled by the gear ratio sin(xi) of a pendulum xi.

    V = (x1^2 + x2^2)/2 + 1 - cos(xi) + (eps/2) sin(2 xi), constraint x1' + sin(xi) x2' = 0 [modin2020]. For
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

    def scene(self, t, q):
        """The transmission and the pendulum; a thin bar makes the wheel follow the bob sideways."""
        pivot, top, foot = (jnp.array(x) for x in ([0.0, 0.0, 3.4], [0.0, 1.8, 3.4], [0.0, 1.8, -0.12]))
        bob = pivot + jnp.stack([jnp.sin(q[2]), jnp.zeros(()), -jnp.cos(q[2])])
        stand = [scene.rod(top, end, 0.06, scene.LIGHT) for end in (pivot, foot)]
        bar = scene.rod(jnp.stack([bob[0], *jnp.array([0.0, 1.0])]), bob, 0.03, scene.LIGHT)
        pendulum = [scene.rod(pivot, bob, 0.045), scene.point(bob, 0.18)]
        return [*transmission(q[0], q[1], bob[0], 1.6), *stand, bar, *pendulum]
