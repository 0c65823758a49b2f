"""The vertical rolling disk."""

import jax.numpy as jnp

from dalembert.model import System, scene


class RollingDisk(System):
    """A disk that rolls upright: contact point (x1, x2), rolling angle x3, heading xi, all masses 1.

    The constraints are x1' + cos(xi) x3' = 0 and x2' + sin(xi) x3' = 0 [modin2020]. There is no potential, so the disk
    rolls on a circle.
    """

    coordinates = ("x1", "x2", "x3", "xi")
    angles = ("x3", "xi")
    step = 0.1

    def metric(self, q):
        return jnp.eye(4)

    def potential(self, q):
        return jnp.zeros(())

    def constraints(self, q):
        c, s = jnp.cos(q[3]), jnp.sin(q[3])
        return jnp.array([[1.0, 0.0, c, 0.0], [0.0, 1.0, s, 0.0]])

    def starts(self):
        return {"default": self._rolling(heading=0.3, speed=1.2, turning=1.0)}

    def scene(self, t, q):
        at, heading = q[:2], q[3]
        return [
            scene.floor(),
            scene.trace(at),
            scene.direction(at, heading, length=4.0),
            scene.wheel(at, heading, roll=-q[2]),
        ]

    def generators(self, q):
        """Translations of all coordinates."""
        return jnp.eye(4)

    def sections(self):
        zero, one = jnp.zeros(()), jnp.ones(())
        return {
            "rolling": lambda q: jnp.stack([-jnp.cos(q[3]), -jnp.sin(q[3]), one, zero]),
            "heading": lambda q: jnp.array([0.0, 0.0, 0.0, 1.0]),
        }

    def _rolling(self, heading, speed, turning):
        """A start at the origin that rolls with the given speed along k = (-cos, -sin, 1)/sqrt(2)."""
        k = jnp.array([-jnp.cos(heading), -jnp.sin(heading), 1.0]) / jnp.sqrt(2.0)
        return [0.0, 0.0, 0.0, heading], [*(speed * k), turning]
