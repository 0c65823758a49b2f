"""A particle whose speed is kept constant."""

import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene


class ConstantSpeed(System):
    """A heavy particle in a vertical plane with the constant speed |v| = speed.

    The constraint v.v - speed^2 = 0 is not homogeneous in v. By Chetaev's rule the reaction acts along v, as a motor
    does that controls the speed, and it does work: the energy is not conserved. The particle turns downwards,

        v = (c / cosh s, -c tanh s),  s = gravity t/c + s0,  c = speed.
    """

    coordinates = ("x", "y")
    step = 0.02
    speed: float = 1.0
    gravity: float = 1.0
    mass: float = 1.0

    def metric(self, q):
        return self.mass * jnp.eye(2)

    def potential(self, q):
        return self.mass * self.gravity * q[1]

    def nonlinear(self, q, v):
        return jnp.stack([jnp.sum(v**2) - self.speed**2])

    def starts(self):
        return {"default": ([0.0, 0.0], self.climbing(1.5))}

    def climbing(self, angle):
        """The allowed velocity at this angle above the horizontal."""
        return self.speed * jnp.stack([jnp.cos(angle), jnp.sin(angle)])

    def solution(self, t, q0, v0):
        """The exact motion (q, v) at times t, for a start that moves to the right."""
        t = np.asarray(t, float)
        c, g = float(self.speed), float(self.gravity)
        start = -np.arctanh(float(v0[1]) / c)
        s = g * t / c + start

        def turned(s):
            return 2 * np.arctan(np.tanh(s / 2))

        x = float(q0[0]) + c**2 / g * (turned(s) - turned(start))
        y = float(q0[1]) - c**2 / g * (np.logaddexp(s, -s) - np.logaddexp(start, -start))
        return np.stack([x, y], axis=-1), np.stack([c / np.cosh(s), -c * np.tanh(s)], axis=-1)

    def scene(self, t, q):
        at = jnp.stack([q[0], jnp.zeros(()), q[1]])
        return [scene.trace(at), scene.point(at)]
