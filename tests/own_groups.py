"""A group and a body as a user would write them: SL(2, R), with the fewest functions and a retraction of its own."""

import jax.numpy as jnp
import numpy as np
from scipy.special import factorial

import dalembert as da

EVEN, ODD = 1 / factorial(2 * np.arange(14)), 1 / factorial(2 * np.arange(14) + 1)


class SL2(da.groups.Group):
    """Matrices of determinant one, row by row; a velocity (u, v, w) is the matrix [[u, v + w], [v - w, -u]]."""

    retractions = ("exp", "cayley", "turns")
    name = "SL(2, R)"
    coordinates = ("a", "b", "c", "d")
    velocities = ("u", "v", "w")

    def matrix(self, g):
        return g.reshape(2, 2)

    def identity(self):
        return jnp.array([1.0, 0.0, 0.0, 1.0])

    def multiply(self, g, k):
        return (self.matrix(g) @ self.matrix(k)).reshape(4)

    def inverse(self, g):
        return jnp.stack([g[3], -g[1], -g[2], g[0]])

    def local(self, g):
        return 0.5 * jnp.stack([g[0] - g[3], g[1] + g[2], g[1] - g[2]])

    def _sum(self, one, x, times):
        """one + times X."""
        return one * self.identity() + times * jnp.stack([x[0], x[1] + x[2], x[1] - x[2], -x[0]])

    def exp(self, x):
        s = x[0] ** 2 + x[1] ** 2 - x[2] ** 2  # X X = s
        return self._sum(jnp.polyval(EVEN[::-1], s), x, jnp.polyval(ODD[::-1], s))

    def cayley(self, x):
        s = 0.25 * (x[0] ** 2 + x[1] ** 2 - x[2] ** 2)
        return self._sum((1 + s) / (1 - s), x, 1 / (1 - s))

    def turns(self, x):
        """Half a turn by w, the rest, and the other half."""
        half = self.exp(0.5 * x.at[:2].set(0.0))
        return self.multiply(half, self.multiply(self.exp(x.at[2].set(0.0)), half))

    def restore(self, g):
        return g * (1.5 - 0.5 * (g[0] * g[3] - g[1] * g[2]))

    def defect(self, g):
        return jnp.abs(g[0] * g[3] - g[1] * g[2] - 1)


class ClosedSL2(SL2):
    """The same with closed forms in place of derivatives."""

    def bracket(self, x):
        u, v, w = 2 * x
        zero = jnp.zeros_like(u)
        return jnp.stack([zero, w, -v, -w, zero, u, -v, u, zero]).reshape(3, 3)


class Roller(da.GroupSystem):
    """A body on SL(2, R) in a potential, with a one-form that is invariant on neither side."""

    group = SL2()
    moments: tuple = (1.0, 1.5, 2.0)

    def inertia(self):
        return jnp.diag(jnp.stack(self.moments)).at[0, 1].set(0.2).at[1, 0].set(0.2)

    def potential(self, g):
        return 0.3 * g[1] + 0.1 * (g[0] ** 2 + g[3] ** 2)

    def constraints(self, g):
        return jnp.stack([0.3 + 0.2 * g[1], 0.1 * g[2], 1.0 + 0.1 * g[0]])[None]

    def starts(self):
        return {"default": (self.group.identity(), [0.4, -0.5, -0.12 / 1.1])}
