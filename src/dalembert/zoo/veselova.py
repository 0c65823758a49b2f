"""Veselova's problem: a rigid body that must not turn about one axis of space."""

import jax.numpy as jnp

from dalembert import groups
from dalembert.model import GroupSystem, scene


class Veselova(GroupSystem):
    """A rigid body about a fixed point, on SO(3), whose angular velocity about the vertical of space is zero.

    With the angular velocity w and the vertical n = R^T e3, both in the body,

        I w' = I w x w + lam n,  n' = n x w,  w.n = 0

    [veselov1988]. It is Suslov's problem with a one-form that is invariant from the right. The horizontal part of the
    momentum R I w is constant in space, and so is its square |I w|^2 - (I w.n)^2. In (w, n) the motion has an invariant
    measure with density sqrt(n.I^-1 n).
    """

    group = groups.SO3()
    step = 0.1
    i1: float = 1.0
    i2: float = 2.0
    i3: float = 2.5

    def inertia(self):
        return jnp.diag(jnp.stack([jnp.asarray(x, float) for x in (self.i1, self.i2, self.i3)]))

    def constraints(self, g):
        return g[6:9][None]

    def starts(self):
        turned = self.group.exp(jnp.array([0.4, -0.3, 0.5]))
        return {
            "default": (turned, turned.reshape(3, 3).T @ jnp.array([0.6, 0.8, 0.0])),
            "aligned": (self.group.identity(), jnp.array([0.5, 1.0, 0.0])),
        }

    def integrals(self):
        def squared(g, w):
            m = self.inertia() @ w
            return jnp.sum(m**2) - jnp.sum(g[6:9] * m) ** 2

        return {"horizontal momentum squared": squared}

    def sections(self):
        """Turns about the two horizontal axes of space; their momenta are constant."""
        return {f"axis {i + 1}": lambda g, i=i: jnp.eye(3)[i] for i in range(2)}

    def scene(self, t, q):
        """A block with the body's moments and, in gold, the axis of space about which it must not turn."""
        turn, centre = q.reshape(3, 3), jnp.zeros(3)
        a, b, c = (jnp.asarray(x, float) for x in (self.i1, self.i2, self.i3))
        edges = jnp.sqrt(jnp.maximum(jnp.stack([b + c - a, a + c - b, a + b - c]), 0.02 * (a + b + c)))
        axis = jnp.array([0.0, 0.0, 1.25])
        return [
            scene.sphere(),
            scene.trace(turn[:, 2]),
            scene.box(centre, 1.3 * edges / jnp.sqrt(jnp.sum(edges**2)), turn=turn),
            scene.rod(-axis, axis, 0.015, scene.GOLD),
            scene.axes(centre, turn),
        ]
