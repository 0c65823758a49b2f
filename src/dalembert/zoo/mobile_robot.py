"""The mobile robot with a potential on its heading."""

import jax.numpy as jnp

from dalembert.zoo.rolling_disk import RollingDisk


class MobileRobot(RollingDisk):
    """The rolling disk whose heading moves in the potential strength sin(xi); strength 1 is that of [modin2020]."""

    strength: float = 1.0

    def potential(self, q):
        return self.strength * jnp.sin(q[3])

    def sections(self):
        """The potential leaves translations and rolling; turning changes it."""
        return {"rolling": super().sections()["rolling"]}

    def starts(self):
        return {
            "default": self._rolling(heading=0.3, speed=1.2, turning=0.7),
            "well": self._rolling(heading=-1.2, speed=2**0.5, turning=0.9),
        }
