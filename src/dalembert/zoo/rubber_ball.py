"""The ball that neither slips nor spins."""

import jax.numpy as jnp

from dalembert.groups import SO3, Product, Rn
from dalembert.model import GroupSystem, scene


class RubberBall(GroupSystem):
    """A homogeneous ball on a plane that neither slips nor spins about the vertical, in V = k (x1^2 + x2^2)/2.

    The element P of SO(3) takes directions of space to directions of the ball, so that turning the ball's own frame
    multiplies P from the left; its body velocity is minus the angular velocity in space. The constraints are
    x1' = -R w2, x2' = R w1 and w3 = 0. SO(3) makes it a Chaplygin system over the point of contact: closed paths turn
    the ball.
    """

    group = Product(SO3(), Rn(2))
    step = 0.1
    mass: float = 1.0
    moment: float = 0.4
    radius: float = 1.0
    stiffness: float = 1.0

    def inertia(self):
        sizes = [self.moment] * 3 + [self.mass] * 2
        return jnp.diag(jnp.stack([jnp.asarray(x, float) for x in sizes]))

    def potential(self, q):
        return 0.5 * self.stiffness * (q[-1] ** 2 + q[-2] ** 2)

    def constraints(self, q):
        r, zero, one = jnp.asarray(self.radius, float), jnp.zeros(()), jnp.ones(())
        rows = [[zero, r, zero, one, zero], [-r, zero, zero, zero, one], [zero, zero, one, zero, zero]]
        return jnp.stack([jnp.stack(row) for row in rows])

    def starts(self):
        q = jnp.concatenate([SO3().identity(), jnp.array([1.0, 0.2])])
        speed = (0.3, 0.8)
        return {"default": (q, jnp.array([speed[1] / self.radius, -speed[0] / self.radius, 0.0, *speed]))}

    def scene(self, t, q):
        a = jnp.asarray(self.radius, float)
        turn = SO3().adjoint(q[:9]).T
        return [scene.floor(), scene.trace(q[9:]), scene.ball(scene.place(q[9:], a), a, turn)]
