"""The Chaplygin sleigh on SE(2)."""

import jax.numpy as jnp

from dalembert import groups
from dalembert.model import GroupSystem
from dalembert.zoo.chaplygin_sleigh import sleigh


class GroupSleigh(GroupSystem):
    """The Chaplygin sleigh as a left-invariant body on SE(2).

    Elements are (x, y, theta) of the blade's contact point. The body velocities are the speed along the blade, the
    speed across it (zero) and the turning rate. LieGNI("mid") is the midpoint GNI in contact coordinates.
    """

    group = groups.SE2()
    step = 0.2
    mass: float = 1.0
    moment: float = 1.0
    """The moment of inertia about the centre of mass."""
    offset: float = 0.2

    def inertia(self):
        m, i, a = self.mass, self.moment, self.offset
        return jnp.array([[m, 0.0, 0.0], [0.0, m, m * a], [0.0, m * a, i + m * a**2]])

    def constraints(self, g):
        return jnp.array([[0.0, 1.0, 0.0]])

    def starts(self):
        return {"default": ([0.0, 0.0, 0.0], [-1.2, 0.0, 0.288])}

    def sections(self):
        adjoint = self.group.adjoint
        return {"forward": lambda g: adjoint(g)[:, 0], "turning": lambda g: adjoint(g)[:, 2]}

    def scene(self, t, q):
        return sleigh(q[:2], q[2], self.offset, jnp.sqrt(self.moment / self.mass))
