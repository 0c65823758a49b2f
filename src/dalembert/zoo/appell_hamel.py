"""A particle whose constraint is not linear in its velocity, after Appell and Hamel."""

import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene


class AppellHamel(System):
    """A heavy particle that rises by `slope` for each unit of its horizontal way: z' = slope sqrt(x'^2 + y'^2).

    It is the limit of the wheel with a thread and a weight of [appell1911], without the mass of the wheel. The
    constraint is homogeneous in the velocity but not linear. By Chetaev's rule its reactions are multiples of
    df/dv = (-slope x'/s, -slope y'/s, 1), s = sqrt(x'^2 + y'^2). They do no work, and their multiplier is
    mass gravity/(1 + slope^2). The heading is constant, and

        z'' = -slope^2 gravity/(1 + slope^2).

    If the slope is negative, the particle falls for ever. If it is positive, the particle comes to rest, and the motion
    ends there: at the vertex of the cone the constraint has no derivative.
    """

    coordinates = ("x", "y", "z")
    step = 0.02
    slope: float = -0.5
    gravity: float = 9.8
    mass: float = 1.0

    def metric(self, q):
        return self.mass * jnp.eye(3)

    def potential(self, q):
        return self.mass * self.gravity * q[2]

    def nonlinear(self, q, v):
        return jnp.stack([v[2] - self.slope * jnp.sqrt(v[0] ** 2 + v[1] ** 2)])

    def starts(self):
        return {"default": ([0.0, 0.0, 0.0], self.moving(0.6, 0.8))}

    def moving(self, x, y):
        """The allowed velocity with these horizontal components."""
        return jnp.stack([jnp.asarray(x, float), jnp.asarray(y, float), self.slope * jnp.hypot(x, y)])

    def integrals(self):
        return {"heading": lambda q, v: v[1] / jnp.sqrt(v[0] ** 2 + v[1] ** 2)}

    def solution(self, t, q0, v0):
        """The exact motion (q, v) at times t, as long as the particle moves."""
        t = np.asarray(t, float)[..., None]
        q0, v0, slope = np.asarray(q0, float), np.asarray(v0, float), float(self.slope)
        speed = np.hypot(v0[0], v0[1])
        along = np.array([v0[0] / speed, v0[1] / speed, slope])
        change = -slope * float(self.gravity) / (1 + slope**2)  # of the horizontal speed, per unit of time
        return q0 + along * (speed * t + change * t**2 / 2), along * (speed + change * t)

    def scene(self, t, q):
        return [scene.trace(q), scene.point(q)]
