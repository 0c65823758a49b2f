"""The rattleback, a stone that prefers one sense of turning."""

import jax.numpy as jnp

from dalembert.groups import SO3, Product, Rn
from dalembert.model import GroupSystem, scene


class Rattleback(GroupSystem):
    """A body with the surface of an ellipsoid that rolls without slipping on a plane: spun one way it reverses.

    Its half axes a1, a2, a3 are the axes of the body, the mass centre is below the middle by l, and the principal axes
    of inertia are turned against those of the ellipsoid, by `product` in the inertia matrix. The defaults are those of
    [kane1982]. The configuration is the rotation R, whose nine entries come row by row, and the place (x, y) of the
    mass centre; the velocity is the angular velocity w in the body and (x', y'). Let u = R^T e3 be the upward direction
    in the body and A = diag(a1, a2, a3). The contact is at

        r = l e3 - A^2 u/|A u|

    from the mass centre, whose height is -r.u, and rolling means that the mass centre moves at -w x r (in the body).
    """

    group = Product(SO3(), Rn(2))
    step = 0.01
    mass: float = 1.0
    first: float = 0.2  # a1, a2 and a3
    second: float = 0.03
    third: float = 0.02
    offset: float = 0.01  # l
    inertia1: float = 2e-4
    inertia2: float = 1.6e-3
    inertia3: float = 1.7e-3
    product: float = -2e-5
    gravity: float = 9.81

    def contact(self, u):
        """r, for the upward direction u in the body."""
        squares = jnp.stack([jnp.asarray(x, float) ** 2 for x in (self.first, self.second, self.third)])
        r = -squares * u / jnp.sqrt(jnp.sum(squares * u**2))
        return r + jnp.asarray(self.offset, float) * jnp.array([0.0, 0.0, 1.0])

    def metric(self, q):
        """The mass centre rises at the rate -w.(r x u)."""
        u = q[6:9]
        rise = jnp.cross(self.contact(u), u)
        own = jnp.array(
            [
                [self.inertia1, self.product, 0.0],
                [self.product, self.inertia2, 0.0],
                [0.0, 0.0, self.inertia3],
            ]
        )
        turning = own + self.mass * rise[:, None] * rise[None, :]
        return jnp.block([[turning, jnp.zeros((3, 2))], [jnp.zeros((2, 3)), self.mass * jnp.eye(2)]])

    def potential(self, q):
        return -self.mass * self.gravity * jnp.sum(self.contact(q[6:9]) * q[6:9])

    def constraints(self, q):
        r = self.contact(q[6:9])
        rows = [jnp.concatenate([jnp.cross(r, q[3 * i : 3 * i + 3]), jnp.eye(2)[i]]) for i in (0, 1)]
        return jnp.stack(rows)

    def starts(self):
        return {
            "default": self.spinning(-5.0),
            "steady": self.spinning(5.0),
            "rocking": self.spinning(0.0, 0.1),
        }

    def spinning(self, rate, lean=0.01):
        """A start with this spin about the vertical, leaning about the long axis of the ellipsoid."""
        turn = scene.about_x(lean)
        w = jnp.asarray(rate, float) * turn[2]
        drift = -turn @ jnp.cross(w, self.contact(turn[2]))
        return jnp.concatenate([turn.reshape(9), jnp.zeros(2)]), jnp.concatenate([w, drift[:2]])

    def scene(self, t, q):
        turn, u = q[:9].reshape(3, 3), q[6:9]
        at = scene.place(q[9:], -jnp.sum(self.contact(u) * u))
        axes = jnp.stack([jnp.asarray(x, float) for x in (self.first, self.second, self.third)])
        middle = at + jnp.asarray(self.offset, float) * turn[:, 2]
        return [
            scene.floor(),
            scene.trace(q[9:]),
            scene.Part("ball", middle, turn, axes, None),
            scene.rod(middle - turn[:, 0] * axes[0], middle + turn[:, 0] * axes[0], 0.02 * axes[0]),
        ]
