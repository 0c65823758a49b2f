"""The knife edge on an inclined plane."""

import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene


class KnifeEdge(System):
    """A blade at (x1, x2) with heading xi that slides along itself and is pulled along x1.

    V = -pull x1, constraint -sin(xi) x1' + (cos(xi) - eps) x2' = 0 [modin2020]. For eps = 0 the motion is a
    cycloid and does not run down the plane; for eps != 0 it gains speed for ever. [modin2020] has pull = 1; with
    pull = 0 both directions of the plane are symmetries.
    """

    coordinates = ("x1", "x2", "xi")
    angles = ("xi",)
    step = float(np.pi / 10)
    eps: float = 0.0
    pull: float = 1.0

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        return -self.pull * q[0]

    def constraints(self, q):
        return jnp.array([[-jnp.sin(q[2]), jnp.cos(q[2]) - self.eps, 0.0]])

    def starts(self):
        return {"default": ([0.0, 0.0, jnp.pi / 2], [0.0, 0.0, 1.0])}

    def scene(self, t, q):
        at, heading = q[:2], jnp.arctan2(jnp.sin(q[2]), jnp.cos(q[2]) - self.eps)
        middle = jnp.stack([q[0], q[1], jnp.asarray(0.75)])
        return [
            scene.floor(),
            scene.trace(at),
            scene.direction(at, heading, length=4.0),
            scene.blade(at, heading, length=2.0, height=0.5),
            scene.box(middle, (1.5, 0.5, 0.5), heading),
            scene.arrow(middle, jnp.stack([jnp.asarray(2.0 * self.pull, float), *jnp.zeros(2)]), 0.07),
        ]

    def solution(self, t, q0, v0):
        """The exact motion (q, v) at times t, for eps = 0 and pull = 1.

        xi = xi0 + eta t, and the speed v along the blade satisfies v' = cos(xi).
        """
        if float(self.eps) != 0 or float(self.pull) != 1:
            raise ValueError(
                f"KnifeEdge has a closed solution for eps = 0 and pull = 1 only; eps is {float(self.eps)}, pull "
                f"{float(self.pull)}"
            )
        t = np.asarray(t, float)
        (x1, x2, xi0), (u1, u2, eta) = np.asarray(q0, float), np.asarray(v0, float)
        v_start = u1 * np.cos(xi0) + u2 * np.sin(xi0)
        xi = xi0 + eta * t
        if eta == 0:
            v = v_start + np.cos(xi0) * t
            way = v_start * t + np.cos(xi0) * t**2 / 2
            dx1, dx2 = np.cos(xi0) * way, np.sin(xi0) * way
        else:
            c = v_start - np.sin(xi0) / eta
            v = c + np.sin(xi) / eta
            dx1 = c * (np.sin(xi) - np.sin(xi0)) / eta + (np.sin(xi) ** 2 - np.sin(xi0) ** 2) / (2 * eta**2)
            turn = (xi - xi0) / 2 - (np.sin(2 * xi) - np.sin(2 * xi0)) / 4
            dx2 = -c * (np.cos(xi) - np.cos(xi0)) / eta + turn / eta**2
        q = np.stack([x1 + dx1, x2 + dx2, xi], axis=-1)
        return q, np.stack([v * np.cos(xi), v * np.sin(xi), np.full_like(t, eta)], axis=-1)
