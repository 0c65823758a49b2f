"""The Suslov problem: a rigid body that must not turn about one of its own axes."""

import jax.numpy as jnp
import numpy as np

from dalembert import groups
from dalembert.model import GroupSystem, scene


class Suslov(GroupSystem):
    """A rigid body about a fixed point, on SO(3), whose angular velocity about its third axis is zero.

    I w' = I w x w + lam e3, w3 = 0; axes 1 and 2 are chosen with I12 = 0. Because of the products of inertia I13 and
    I23 the angular velocity changes: at constant energy it goes from one direction of the body to the opposite one.
    """

    group = groups.SO3()
    step = 0.1
    i11: float = 1.0
    i22: float = 2.0
    i33: float = 3.0
    i13: float = 0.3
    i23: float = 0.2

    def inertia(self):
        return jnp.array(
            [[self.i11, 0.0, self.i13], [0.0, self.i22, self.i23], [self.i13, self.i23, self.i33]]
        )

    def constraints(self, g):
        return jnp.array([[0.0, 0.0, 1.0]])

    def starts(self):
        return {"default": (self.group.identity(), [0.5, 1.0, 0.0])}

    def sections(self):
        """The rotations about the body's own first and second axes."""
        return {f"axis {i + 1}": lambda g, i=i: self.group.adjoint(g)[:, i] for i in range(2)}

    def scene(self, t, q):
        """A block, two weights that tilt its inertia, and, in gold, the axis about which it must not turn."""
        turn, centre = self.group.adjoint(q), jnp.zeros(3)
        a, b, c = (jnp.asarray(x, float) for x in (self.i11, self.i22, self.i33))
        edges = jnp.sqrt(jnp.maximum(jnp.stack([b + c - a, a + c - b, a + b - c]), 0.02 * (a + b + c)))
        weight = turn @ jnp.stack(
            [-jnp.asarray(self.i13, float), -jnp.asarray(self.i23, float), 0.45 * jnp.ones(())]
        )
        axis = 1.25 * turn[:, 2]
        return [
            scene.sphere(),
            scene.trace(turn[:, 2]),
            scene.box(centre, 1.3 * edges / jnp.sqrt(jnp.sum(edges**2)), turn=turn),
            scene.rod(-axis, axis, 0.015, scene.GOLD),
            scene.rod(-weight, weight, 0.015),
            *(scene.point(x, 0.09, scene.DARK) for x in (weight, -weight)),
            scene.axes(centre, turn),
        ]

    def solution(self, t, q0, v0):
        """The exact motion (q, v) at times t.

        (sqrt(I11) w1, sqrt(I22) w2) turns on a circle by an angle f with f' = c cos(f - f0), so
        sin(f - f0) = tanh(c t + const). The rotation is the integral of R' = R w, accurate to 1e-12.
        """
        from scipy.integrate import solve_ivp

        t = np.atleast_1d(np.asarray(t, float))
        i11, i22, i13, i23 = (float(x) for x in (self.i11, self.i22, self.i13, self.i23))
        velocity = settling(np.sqrt(i11), np.sqrt(i22), i13, i23, *np.asarray(v0, float)[:2])

        def turning(time, r):
            w1, w2 = velocity(time)
            hat = np.array([[0.0, 0.0, w2], [0.0, 0.0, -w1], [-w2, w1, 0.0]])
            return (r.reshape(3, 3) @ hat).ravel()

        span = (0.0, max(float(np.max(t)), 1e-300))
        found = solve_ivp(turning, span, np.asarray(q0, float), "DOP853", t, rtol=1e-13, atol=1e-14)
        v = np.stack([*velocity(t), np.zeros_like(t)], axis=-1)
        return found.y.T, v


def settling(a, b, i13, i23, w1, w2):
    """The function t -> (w1, w2) that solves a^2 w1' = -(i13 w1 + i23 w2) w2, b^2 w2' = (i13 w1 + i23 w2) w1."""
    radius, angle = np.hypot(a * w1, b * w2), np.arctan2(b * w2, a * w1)
    centre, speed = np.arctan2(i23 / b, i13 / a), radius * np.hypot(i13 / a, i23 / b) / (a * b)
    side = np.cos(angle - centre)
    if speed == 0 or abs(side) < 1e-15:
        return lambda t: (np.full_like(t, w1, dtype=float), np.full_like(t, w2, dtype=float))
    start = np.arctanh(np.sin(angle - centre))

    def velocity(t):
        s = start + np.sign(side) * speed * np.asarray(t, float)
        x, y = np.sign(side) / np.cosh(s), np.tanh(s)  # cosine and sine of the angle from the centre
        turned = np.cos(centre) * x - np.sin(centre) * y, np.sin(centre) * x + np.cos(centre) * y
        return radius * turned[0] / a, radius * turned[1] / b

    return velocity
