"""The mobile robot with a potential on its heading."""

import jax.numpy as jnp

from dalembert.model import scene
from dalembert.zoo.rolling_disk import RollingDisk


class MobileRobot(RollingDisk):
    """The rolling disk with a heading that moves in the potential strength * sin(xi); [modin2020] has strength 1."""

    strength: float = 1.0

    def potential(self, q):
        return self.strength * jnp.sin(q[3])

    def scene(self, t, q):
        """The disk in a fork that carries a box."""
        at, turn = jnp.stack([q[0], q[1], jnp.zeros(())]), scene.about_z(q[3])

        def fork(side):
            return scene.rod(
                at + turn @ jnp.array([0.0, side, 1.0]), at + turn @ jnp.array([0.0, side, 2.2]), 0.06
            )

        body = scene.box(at + jnp.array([0.0, 0.0, 2.35]), (1.1, 0.7, 0.4), heading=q[3])
        return [*super().scene(t, q), fork(-0.16), fork(0.16), body]

    def sections(self):
        """Translations and rolling leave the potential as it is; turning changes it."""
        return {"rolling": super().sections()["rolling"]}

    def starts(self):
        return {
            "default": self._rolling(heading=0.3, speed=1.2, turning=0.7),
            "well": self._rolling(heading=-1.2, speed=2**0.5, turning=0.9),
        }
