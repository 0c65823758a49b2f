"""A ball that rolls inside a vertical cylinder."""

import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene


class BallInCylinder(System):
    """A ball that rolls without slipping on the inside of a vertical cylinder, in gravity; it does not fall out.

    The centre is at the angle phi and the height z, at the distance b = R - a from the axis, where R is the radius of
    the cylinder and a that of the ball. With the angular velocity w in space, rolling means b phi' + a w_3 = 0 and
    z' = a (w_2 cos(phi) - w_1 sin(phi)). The moment of inertia is k m a^2 about every axis (k = 2/5 for a homogeneous
    ball), so w1, w2, w3 obey the same equations as the rates of three coordinates s1, s2, s3: w = s'. These coordinates
    are not an orientation. With w_r = w_1 cos(phi) + w_2 sin(phi), the spin about the line to the wall,

        phi'' = 0,  w_r' = phi' z'/a,  (1 + k) z'' = -g - k a phi' w_r

    [neimark1972], so the height oscillates at the rate phi' sqrt(k/(1 + k)), which is sqrt(2/7) phi' for k = 2/5.
    """

    coordinates = ("phi", "z", "s1", "s2", "s3")
    units = ("rad", "m", "rad", "rad", "rad")
    angles = ("phi",)
    step = 0.05
    mass: float = 1.0
    cylinder: float = 1.0  # its radius
    radius: float = 0.25
    k: float = 0.4
    gravity: float = 9.81

    def metric(self, q):
        b, spin = self.cylinder - self.radius, self.k * self.mass * self.radius**2
        sizes = (self.mass * b**2, self.mass, spin, spin, spin)
        return jnp.diag(jnp.stack([jnp.asarray(x, float) for x in sizes]))

    def potential(self, q):
        return self.mass * self.gravity * q[1]

    def constraints(self, q):
        a, s, c = self.radius, jnp.sin(q[0]), jnp.cos(q[0])
        return jnp.array([[self.cylinder - a, 0.0, 0.0, 0.0, a], [0.0, 1.0, a * s, -a * c, 0.0]])

    def starts(self):
        return {
            "default": self.rolling(turning=6.0),
            "spinning": self.rolling(turning=5.0, rising=1.0, spin=-30.0),
        }

    def rolling(self, turning, rising=0.0, spin=0.0, height=0.0):
        """A start at phi = 0 with phi', z' and the spin w_r about the line to the wall."""
        about_axis = -(self.cylinder - self.radius) * turning / self.radius
        return [0.0, height, 0.0, 0.0, 0.0], [turning, rising, spin, rising / self.radius, about_axis]

    def integrals(self):
        def spin(q, v):
            return v[2] * jnp.cos(q[0]) + v[3] * jnp.sin(q[0]) - v[0] * q[1] / self.radius

        return {"turning": lambda q, v: v[0], "spin at height zero": spin}

    def solution(self, t, q0, v0):
        """The exact motion (q, v) at times t."""
        t = np.asarray(t, float)
        q0, v0 = np.asarray(q0, float), np.asarray(v0, float)
        a, k, g = (float(x) for x in (self.radius, self.k, self.gravity))
        turning, rising = v0[0], v0[1]
        # As complex numbers, (w1 + i w2) = (w_r + i w_phi) exp(i phi), with w_phi = z'/a.
        first = np.exp(1j * q0[0])
        spin = ((v0[2] + 1j * v0[3]) / first).real
        pull = (g + k * a * turning * spin) / (1 + k)
        rate = abs(turning) * np.sqrt(k / (1 + k))
        if turning == 0:
            z, dz = rising * t - pull * t**2 / 2, rising - pull * t
            w, s = spin + 1j * dz / a, spin * t + 1j * z / a
        else:
            down = pull / rate**2
            z = -down * (1 - np.cos(rate * t)) + rising * np.sin(rate * t) / rate
            dz = -down * rate * np.sin(rate * t) + rising * np.cos(rate * t)
            w = spin + turning * z / a + 1j * dz / a
            # w = c0 + c1 exp(i rate t) + c2 exp(-i rate t), times exp(i turning t), whose integral is elementary.
            half = (down - 1j * rising / rate) / 2
            parts = (
                (spin - turning * down / a, 0.0),
                ((turning - rate) * half / a, rate),
                ((turning + rate) * np.conj(half) / a, -rate),
            )
            s = sum(c * np.expm1(1j * (turning + r) * t) / (1j * (turning + r)) for c, r in parts)
        w, s = w * first * np.exp(1j * turning * t), s * first
        around = np.full_like(t, v0[4])
        q = [q0[0] + turning * t, q0[1] + z, q0[2] + s.real, q0[3] + s.imag, q0[4] + around * t]
        v = [np.full_like(t, turning), dz, w.real, w.imag, around]
        return np.stack(q, axis=-1), np.stack(v, axis=-1)

    def scene(self, t, q):
        """A part of the wall, about height zero."""
        wall, a = jnp.asarray(self.cylinder, float), jnp.asarray(self.radius, float)
        at = scene.place((wall - a) * jnp.stack([jnp.cos(q[0]), jnp.sin(q[0])]), q[1])
        return [*scene.tube(wall, -2.0 * wall, wall), scene.trace(at), scene.ball(at, a, rolled=q[2:])]
