"""Particles whose constraint or potential depends on time."""

import jax.numpy as jnp

from dalembert.model import RheonomicSystem, scene


class RheonomicParticle(RheonomicSystem):
    """A particle with the affine, time-dependent constraint z' = (1 + beat sin t) y x' + shake cos t.

    The potential is V = stiffness (x^2 + y^2)/2.
    """

    coordinates = ("x", "y", "z")
    step = 0.05
    shake: float = 0.3
    stiffness: float = 1.0
    beat: float = 0.0

    def metric(self, t, q):
        return jnp.eye(3)

    def potential(self, t, q):
        return 0.5 * self.stiffness * (q[0] ** 2 + q[1] ** 2)

    def constraints(self, t, q):
        return jnp.array([[-(1 + self.beat * jnp.sin(t)) * q[1], 0.0, 1.0]])

    def offsets(self, t, q):
        return jnp.array([self.shake * jnp.cos(t)])

    def starts(self):
        return {"default": ([1.0, 0.6, 0.5], [1.0, 0.5, 0.6 + self.shake])}


class TravellingWell(RheonomicSystem):
    """A particle with z' = y x' in V = x^2/2 + (y - c t)^2, a well that travels along y.

    Moving with the well is a horizontal symmetry of space and time, so c p_y minus the energy is conserved.
    """

    coordinates = ("x", "y", "z")
    step = 0.05
    c: float = 0.4

    def metric(self, t, q):
        return jnp.eye(3)

    def potential(self, t, q):
        return 0.5 * q[0] ** 2 + (q[1] - self.c * t) ** 2

    def constraints(self, t, q):
        return jnp.array([[-q[1], 0.0, 1.0]])

    def generators(self, t, q):
        """Translations of time and y together, as the well moves."""
        return jnp.stack([jnp.ones(()), jnp.zeros(()), jnp.asarray(self.c, float), jnp.zeros(())])[:, None]

    def sections(self):
        return {"with the well": lambda t, q: jnp.ones(1)}

    def starts(self):
        return {"default": ([1.0, 0.6, 0.5], [1.0, 0.5, 0.6])}

    def scene(self, t, q):
        """The particle on a spring from the bottom of the well, which is a line along z."""
        bottom = jnp.stack([jnp.zeros(()), self.c * t, q[2]])
        return [
            *super().scene(t, q),
            scene.spring(bottom, q, colour=scene.LIGHT),
            scene.point(bottom, colour=scene.LIGHT),
        ]
