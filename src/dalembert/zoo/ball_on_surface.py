"""A ball that rolls on a curved surface."""

import jax
import jax.numpy as jnp

from dalembert.model import System, scene


class BallOnSurface(System):
    """A ball that rolls without slipping on a surface z = f(x, y), in gravity: by default in an elliptic bowl.

    The coordinates (x, y) are those of the point of contact p = (x, y, f). With the upward normal n there, the centre
    is at p + a n. With the angular velocity w in space, rolling means that the particle at the contact rests:
    (p + a n)' = a w x n. The moment of inertia is k m a^2 about every axis (k = 2/5 for a homogeneous ball), so w1, w2,
    w3 obey the same equations as the rates of three coordinates s1, s2, s3: w = s'. These coordinates are not an
    orientation. The bowl is f = (x^2/R1 + y^2/R2)/2; for another surface, give `height(x, y)` in a subclass. The ball
    must be smaller than the radii of curvature wherever the surface is hollow.

    If the surface is a sphere, w.n is constant [routh1905], and with w.n = 0 the centre moves like a spherical
    pendulum in the gravity g/(1 + k).
    """

    coordinates = ("x", "y", "s1", "s2", "s3")
    units = ("m", "m", "rad", "rad", "rad")
    step = 0.02
    mass: float = 1.0
    radius: float = 0.2
    first: float = 1.0  # the radii of curvature R1 and R2 at the bottom of the bowl
    second: float = 1.5
    k: float = 0.4
    gravity: float = 9.81

    def height(self, x, y):
        """The surface."""
        return 0.5 * (x**2 / self.first + y**2 / self.second)

    def tangents(self, q):
        """The derivatives of p by x and by y, as columns."""
        fx, fy = jax.grad(self.height, argnums=(0, 1))(q[0], q[1])
        one, zero = jnp.ones_like(fx), jnp.zeros_like(fx)
        return jnp.stack([jnp.stack([one, zero]), jnp.stack([zero, one]), jnp.stack([fx, fy])])

    def normal(self, q):
        """n, of length one."""
        across = self.tangents(q)
        n = jnp.cross(across[:, 0], across[:, 1])
        return n / jnp.sqrt(jnp.sum(n**2))

    def centre(self, q):
        """The place of the ball's centre."""
        return jnp.stack([q[0], q[1], self.height(q[0], q[1])]) + self.radius * self.normal(q)

    def metric(self, q):
        along = jax.jacfwd(self.centre)(q)[:, :2]
        spin = self.k * self.mass * self.radius**2 * jnp.eye(3)
        return jnp.block([[self.mass * along.T @ along, jnp.zeros((2, 3))], [jnp.zeros((3, 2)), spin]])

    def potential(self, q):
        return self.mass * self.gravity * self.centre(q)[2]

    def constraints(self, q):
        """The components of (p + a n)' - a w x n along both tangents."""
        along, across = jax.jacfwd(self.centre)(q)[:, :2], self.tangents(q)
        slip = [jnp.cross(self.normal(q), across[:, i]) for i in (0, 1)]
        return jnp.concatenate([across.T @ along, -self.radius * jnp.stack(slip)], axis=1)

    def starts(self):
        return {
            "default": self.rolling(0.8, 0.0, 0.0, 1.2),
            "spinning": self.rolling(0.5, 0.3, 0.0, 0.8, spin=20.0),
        }

    def rolling(self, x, y, dx, dy, spin=0.0):
        """A start with the contact at (x, y) and moving at (dx, dy), and with the spin w.n about the normal."""
        q = jnp.stack([jnp.asarray(z, float) for z in (x, y, 0.0, 0.0, 0.0)])
        v = jnp.stack([jnp.asarray(z, float) for z in (dx, dy)])
        n = self.normal(q)
        w = jnp.cross(n, jax.jacfwd(self.centre)(q)[:, :2] @ v) / self.radius + spin * n
        return q, jnp.concatenate([v, w])

    def scene(self, t, q):
        at = self.centre(q)
        reach = 0.8 * jnp.maximum(jnp.asarray(self.first, float), jnp.asarray(self.second, float))
        return [
            *scene.net(self.height, reach),
            scene.trace(at),
            scene.ball(at, self.radius, rolled=q[2:]),
        ]
