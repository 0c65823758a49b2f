"""The two-wheeled robot."""

import jax.numpy as jnp

from dalembert.model import System, scene


class TwoWheeledRobot(System):
    """A cart on two wheels: middle of the axle (x, y), heading theta, wheel angles psi1 (left) and psi2 (right).

    L = m (x'^2 + y'^2)/2 + m a theta' (cos(theta) y' - sin(theta) x') + J theta'^2/2 + Jw (psi1'^2 + psi2'^2)/2
    - k (psi1^2 + psi2^2)/2, where the mass centre is a distance a ahead of the axle. The wheels have radius R, are a
    distance 2 c apart, and roll: (x', y') is R (psi1' + psi2')/2 along the heading, theta' = R (psi2' - psi1')/(2 c).
    The motions of the plane, SE(2), make it a Chaplygin system over the wheel angles.
    """

    coordinates = ("x", "y", "theta", "psi1", "psi2")
    units = ("m", "m", "rad", "rad", "rad")
    angles = ("theta",)
    step = 0.1
    mass: float = 1.0
    offset: float = 0.3
    turning: float = 0.8
    wheel: float = 0.2
    radius: float = 0.5
    track: float = 0.4
    stiffness: float = 0.1

    def metric(self, q):
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        m, side, zero = self.mass, self.mass * self.offset, jnp.zeros(())
        rows = [
            [m, zero, -side * s, zero, zero],
            [zero, m, side * c, zero, zero],
            [-side * s, side * c, self.turning, zero, zero],
            [zero, zero, zero, self.wheel, zero],
            [zero, zero, zero, zero, self.wheel],
        ]
        return jnp.stack([jnp.stack([jnp.asarray(x, float) for x in row]) for row in rows])

    def potential(self, q):
        return 0.5 * self.stiffness * (q[3] ** 2 + q[4] ** 2)

    def constraints(self, q):
        c, s = 0.5 * self.radius * jnp.cos(q[2]), 0.5 * self.radius * jnp.sin(q[2])
        turn = 0.5 * self.radius / self.track
        zero, one = jnp.zeros(()), jnp.ones(())
        rows = [[one, zero, zero, -c, -c], [zero, one, zero, -s, -s], [zero, zero, one, turn, -turn]]
        return jnp.stack([jnp.stack([jnp.asarray(x, float) for x in row]) for row in rows])

    def frame(self, q):
        rolled = -self.constraints(q)[:, 3:]
        return jnp.concatenate([rolled, jnp.eye(2)])

    def starts(self):
        q = jnp.array([0.1, -0.2, 0.3, 0.0, 0.0])
        return {"default": (q, self.frame(q) @ jnp.array([1.0, 0.4]))}

    def scene(self, t, q):
        r, c, turn = jnp.asarray(self.radius, float), jnp.asarray(self.track, float), scene.about_z(q[2])

        def on(forward, left, height):
            return scene.place(q[:2]) + turn @ jnp.stack([forward, left, height])

        zero = jnp.zeros(())
        left = scene.wheel(on(zero, c, zero), q[2], q[3], r, width=0.2 * c)
        right = scene.wheel(on(zero, -c, zero), q[2], q[4], r, width=0.2 * c)
        body = scene.box(on(0.5 * r, zero, r), (2.2 * r, 1.4 * c, 0.5 * r), q[2])
        caster = [
            scene.point(on(1.3 * r, zero, 0.15 * r), 0.15 * r, scene.DARK),
            scene.rod(on(1.3 * r, zero, 0.2 * r), on(1.3 * r, zero, r), 0.06 * r),
        ]
        centre = scene.point(on(jnp.asarray(self.offset, float), zero, 1.27 * r), 0.1 * r, scene.GOLD)
        return [scene.floor(), scene.trace(q[:2]), left, right, *caster, body, centre]

    def generators(self, q):
        """The motions of the plane: (u, v, w) moves the cart by (u - w y, v + w x, w)."""
        turn = jnp.stack([-q[1], q[0], jnp.ones(()), jnp.zeros(()), jnp.zeros(())])
        return jnp.stack([*jnp.eye(5)[:2], turn], axis=1)
