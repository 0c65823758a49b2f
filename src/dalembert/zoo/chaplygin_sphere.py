"""Chaplygin's sphere: a balanced ball with three different moments of inertia that rolls on a plane."""

import jax.numpy as jnp

from dalembert.groups import SO3, Product, Rn
from dalembert.model import GroupSystem, scene


class ChaplyginSphere(GroupSystem):
    """A ball whose mass centre is its middle, with principal moments I1, I2, I3, that rolls without slipping.

    The rotation R of SO(3) takes the body's axes to directions of space, and w is the angular velocity in the body.
    Rolling means x1' = a (R w)_2 and x2' = -a (R w)_1. With the vertical n = R^T e3 and D = m a^2, the momentum about
    the point of contact is K = I w + D (w - (w.n) n) in the body, and

        K' = K x w,  n' = n x w

    [chaplygin1903]. Thus R K is constant in space, which gives the integrals K.K and K.n; the energy is K.w/2. In
    (K, n) the motion has an invariant measure with density (1/D - n.(I + D)^-1 n)^(-1/2).
    """

    group = Product(SO3(), Rn(2))
    step = 0.1
    i1: float = 0.3
    i2: float = 0.4
    i3: float = 0.6
    mass: float = 1.0
    radius: float = 1.0

    def inertia(self):
        sizes = [self.i1, self.i2, self.i3, self.mass, self.mass]
        return jnp.diag(jnp.stack([jnp.asarray(x, float) for x in sizes]))

    def constraints(self, q):
        a = jnp.asarray(self.radius, float)
        zero, one = jnp.zeros(()), jnp.ones(())
        first = jnp.stack([*(-a * q[3:6]), one, zero])
        second = jnp.stack([*(a * q[0:3]), zero, one])
        return jnp.stack([first, second])

    def starts(self):
        return {
            "default": self.rolling([0.9, 0.4, 0.7]),
            "about its middle axis": self.rolling([0.02, 1.0, 0.01]),
        }

    def rolling(self, w):
        """The start at the origin, with the body's axes along those of space and this angular velocity."""
        a = self.radius
        return self.group.identity(), jnp.stack([jnp.asarray(x, float) for x in (*w, a * w[1], -a * w[0])])

    def integrals(self):
        return {
            "momentum squared": lambda q, v: jnp.sum(self._momentum(q, v) ** 2),
            "momentum about the vertical": lambda q, v: jnp.sum(q[6:9] * self._momentum(q, v)),
        }

    def sections(self):
        """Turns about the axes of space through the point of contact; their momenta are the components of R K."""
        a, zero = jnp.asarray(self.radius, float), jnp.zeros(())
        unit = jnp.eye(3)
        rates = [jnp.stack([*e, a * e[1], -a * e[0]]) for e in unit[:2]] + [jnp.stack([*unit[2], zero, zero])]
        return {f"axis {i + 1}": lambda q, x=x: x for i, x in enumerate(rates)}

    def _momentum(self, q, v):
        w, n = v[:3], q[6:9]
        moments = jnp.stack([jnp.asarray(x, float) for x in (self.i1, self.i2, self.i3)])
        return moments * w + self.mass * self.radius**2 * (w - jnp.sum(w * n) * n)

    def scene(self, t, q):
        a = jnp.asarray(self.radius, float)
        turn, middle = q[:9].reshape(3, 3), scene.place(q[9:], a)
        return [
            scene.floor(),
            scene.trace(q[9:]),
            scene.ball(middle, a, turn),
            scene.axes(middle, turn, 1.4 * a),
        ]
