"""A body on the Heisenberg group."""

import jax.numpy as jnp
import numpy as np

from dalembert import groups
from dalembert.model import GroupSystem
from dalembert.zoo.suslov import settling


class Heisenberg(GroupSystem):
    """A left-invariant body on H3 that must not move along the centre: body velocity (va, vb, 0), c' = a b'.

    The inertia is [[m, 0, t1], [0, m, t2], [t1, t2, mc]]. Without the tilts t1, t2 the body velocity is constant; with
    them it settles along one direction, as in Suslov's problem.
    """

    group = groups.H3()
    step = 0.1
    mass: float = 1.0
    central: float = 1.0
    tilt1: float = 0.3
    tilt2: float = 0.2

    def inertia(self):
        m, c, t1, t2 = self.mass, self.central, self.tilt1, self.tilt2
        return jnp.array([[m, 0.0, t1], [0.0, m, t2], [t1, t2, c]])

    def constraints(self, g):
        return jnp.array([[0.0, 0.0, 1.0]])

    def starts(self):
        return {"default": ([0.2, -0.1, 0.3], [1.0, 0.5, 0.0])}

    def sections(self):
        return {f"direction {i + 1}": lambda g, i=i: self.group.adjoint(g)[:, i] for i in range(2)}

    def velocity_solution(self, t, v0):
        """The exact body velocity at times t."""
        t = np.asarray(t, float)
        m = np.sqrt(float(self.mass))
        va, vb = settling(m, m, float(self.tilt1), float(self.tilt2), *np.asarray(v0, float)[:2])(t)
        return np.stack([va, vb, np.zeros_like(t)], axis=-1)
