"""The chain of pendula."""

from itertools import pairwise

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene
from dalembert.zoo.chains import count


class ChainOfPendula(System):
    """Point masses on rods that hang from each other and swing in a plane, without any constraint [goldstein2002].

    theta1, theta2, ... are the angles of the rods from the vertical, each from hanging down and not from the rod
    before. The masses are at (X_i, Z_i) = sum_(j <= i) l (sin(theta_j), -cos(theta_j)), and

        L = sum_i m (X_i'^2 + Z_i'^2)/2 - m g Z_i
          = sum_(j, k) m l^2 N_jk cos(theta_j - theta_k) theta_j' theta_k'/2 + sum_j m g l N_jj cos(theta_j),

    where N_jk is how many masses hang from both rods: n + 1 - max(j, k). One pendulum is the mathematical pendulum; two
    or more are chaotic. Among the systems with constraints, this one shows what a method does without them.
    """

    step = 0.02
    pendula: int = eqx.field(static=True, default=3, converter=count("ChainOfPendula", "pendula", 1))
    length: float = 1.0  # m
    mass: float = 1.0  # kg
    gravity: float = 9.81  # m/s^2

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The angles of the rods."""
        return tuple(f"theta{i + 1}" for i in range(self.pendula))

    @property
    def units(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Radians."""
        return ("rad",) * self.pendula

    @property
    def angles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All of them."""
        return self.coordinates

    def _hanging(self):
        """N, the number of masses that hang from both of two rods."""
        place = np.arange(self.pendula)
        return (self.pendula - np.maximum(place[:, None], place)).astype(float)

    def metric(self, q):
        c, s = jnp.cos(q), jnp.sin(q)
        return self.mass * self.length**2 * self._hanging() * (c[:, None] * c + s[:, None] * s)

    def potential(self, q):
        weight = self.mass * self.gravity * self.length
        return -weight * jnp.sum(np.diagonal(self._hanging()) * jnp.cos(q))

    def starts(self):
        n = self.pendula
        return {
            "default": (np.full(n, 2.0), np.zeros(n)),
            "small": (0.1 * np.arange(1.0, n + 1) / n, np.zeros(n)),
        }

    def scene(self, t, q):
        """The chain, which hangs from the origin in the plane of x and z, and the path of the last mass."""
        length = jnp.asarray(self.length, float)
        across, down = length * jnp.cumsum(jnp.sin(q)), length * jnp.cumsum(jnp.cos(q))
        masses = jnp.stack([across, jnp.zeros_like(q), -down], axis=1)
        joints = [jnp.zeros(3), *masses]
        rods = [scene.rod(a, b, 0.025 * length) for a, b in pairwise(joints)]
        points = [scene.point(x, 0.12 * length) for x in masses]
        pivot = scene.box(joints[0], (0.3 * length, 0.3 * length, 0.12 * length), colour=scene.DARK)
        return [scene.trace(joints[-1]), pivot, *rods, *points]
