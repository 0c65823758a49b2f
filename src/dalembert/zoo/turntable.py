"""A ball that rolls on a turning table."""

import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene


class BallOnTurntable(System):
    """A ball that rolls without slipping on a table turning at the rate Omega; the constraint is affine.

    x1' - a w2 = -Omega x2, x2' + a w1 = Omega x1, where w is the ball's angular velocity in space. The moment of
    inertia is k m a^2 about every axis (k = 2/5 for a homogeneous ball), so w1, w2, w3 obey the same equations as the
    rates of three coordinates s1, s2, s3: w = s'. These coordinates are not an orientation. The centre moves on circles
    at the rate Omega k/(1 + k), which is 2/7 of the table's rate for k = 2/5 [neimark1972]. On a tilted table (gravity
    `tilt` against x1) it moves along cycloids, across the slope and not down it.
    """

    coordinates = ("x1", "x2", "s1", "s2", "s3")
    step = 0.1
    rate: float = 1.0
    mass: float = 1.0
    radius: float = 1.0
    k: float = 0.4
    tilt: float = 0.0

    def metric(self, q):
        spin = self.k * self.mass * self.radius**2
        return jnp.diag(jnp.stack([jnp.asarray(x, float) for x in (self.mass, self.mass, spin, spin, spin)]))

    def potential(self, q):
        return self.mass * self.tilt * q[0]

    def constraints(self, q):
        a = self.radius
        return jnp.array([[1.0, 0.0, 0.0, -a, 0.0], [0.0, 1.0, a, 0.0, 0.0]])

    def drift(self, q):
        """The velocity of a ball whose centre moves with the table and which does not spin."""
        return self.rate * jnp.stack([-q[1], q[0], *jnp.zeros(3)])

    def starts(self):
        return {"default": self._rolling([1.0, 0.0], [0.0, 0.5], 0.3)}

    def _rolling(self, x, v, spin):
        w2, w1 = (v[0] + self.rate * x[1]) / self.radius, (self.rate * x[0] - v[1]) / self.radius
        return [*x, 0.0, 0.0, 0.0], [*v, w1, w2, spin]

    def scene(self, t, q):
        a = jnp.asarray(self.radius, float)
        return [
            scene.disc((0.0, 0.0, -0.05 * a), self.rate * t, 4 * a, 0.1 * a, colour=scene.LIGHT),
            scene.trace(q[:2]),
            scene.ball(scene.place(q[:2], a), a, rolled=q[2:]),
        ]

    def integrals(self):
        return {"spin": lambda q, v: v[4]}

    def solution(self, t, q0, v0):
        """The exact motion (q, v) at times t."""
        t = np.asarray(t, float)
        q0, v0 = np.asarray(q0, float), np.asarray(v0, float)
        rate, a, tilt = (float(x) for x in (self.rate, self.radius, self.tilt))
        turn = rate * float(self.k) / (1 + float(self.k))
        # As complex numbers x1 + i x2: x'' = i turn x' - tilt/(1 + k).
        x0, u0 = q0[0] + 1j * q0[1], v0[0] + 1j * v0[1]
        carried = -1j * tilt / (float(self.k) * rate)
        u = carried + (u0 - carried) * np.exp(1j * turn * t)
        x = x0 + carried * t + (u0 - carried) * (np.exp(1j * turn * t) - 1) / (1j * turn)
        # a (w1 + i w2) = i (x' - i rate x); integrating it needs the integral of x.
        whole = x0 * t + carried * t**2 / 2
        whole = whole + (u0 - carried) * ((np.exp(1j * turn * t) - 1) / (1j * turn) - t) / (1j * turn)
        w, s = 1j * (u - 1j * rate * x) / a, 1j * (x - x0 - 1j * rate * whole) / a
        s = s + q0[2] + 1j * q0[3]
        q = np.stack([x.real, x.imag, s.real, s.imag, q0[4] + v0[4] * t], axis=-1)
        return q, np.stack([u.real, u.imag, w.real, w.imag, np.full_like(t, v0[4])], axis=-1)
