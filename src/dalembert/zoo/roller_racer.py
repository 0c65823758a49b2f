"""The roller racer."""

import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene


class RollerRacer(System):
    """A seat on two wheels with a handle on two wheels; they are joined by a pivot [krishnaprasad2001].

    (x, y) is the middle P of the seat's axle, theta is the seat's heading, and phi is the angle of the handle relative
    to the seat. The pivot is a distance a (`reach`) ahead of P, and the handle's axle is a distance b (`arm`) ahead of
    the pivot; with a negative arm it is behind the pivot. With e(s) = (cos(s), sin(s)) and n(s) = (-sin(s), cos(s)),
    the middle of the handle's axle is F = P + a e(theta) + b e(theta + phi), and neither axle slips sideways:

        n(theta) . P' = 0,   n(theta + phi) . F' = 0.

    L = m (x'^2 + y'^2)/2 + J theta'^2/2 + J2 (theta' + phi')^2/2 - k (1 - cos(phi)): the seat has its mass centre at P
    and the moment of inertia J (`turning`); of the handle, only the moment of inertia J2 (`handle`) counts. A spring of
    stiffness k centres the handle. For the speed v of P along the heading, the second constraint is

        v sin(phi) = (a cos(phi) + b) theta' + b phi'.

    The one-forms are independent everywhere, unless a = b = 0. The rigid motions that the wheels allow, v = a cos(phi)
    + b and theta' = sin(phi), vanish if the two axles lie on one line: at phi = pi if a = b, and at phi = 0 if a = -b.
    There every rotation about a point of that line is allowed, and the momentum along these motions has no meaning.
    Without a spring, phi' = 0 is a motion: the racer runs on a circle with constant speed.
    """

    coordinates = ("x", "y", "theta", "phi")
    units = ("m", "m", "rad", "rad")
    angles = ("theta", "phi")
    step = 0.05
    reach: float = 1.0  # m
    arm: float = 0.3  # m
    mass: float = 1.0  # kg
    turning: float = 0.3  # kg m^2
    handle: float = 0.1  # kg m^2
    stiffness: float = 0.5  # N m

    def metric(self, q):
        m, zero, both = self.mass, jnp.zeros(()), self.turning + self.handle
        rows = [
            [m, zero, zero, zero],
            [zero, m, zero, zero],
            [zero, zero, both, self.handle],
            [zero, zero, self.handle, self.handle],
        ]
        return jnp.stack([jnp.stack([jnp.asarray(x, float) for x in row]) for row in rows])

    def potential(self, q):
        return self.stiffness * (1.0 - jnp.cos(q[3]))

    def constraints(self, q):
        _, _, theta, phi = q
        zero, arm = jnp.zeros(()), jnp.asarray(self.arm, float)
        seat = [-jnp.sin(theta), jnp.cos(theta), zero, zero]
        front = [-jnp.sin(theta + phi), jnp.cos(theta + phi), self.reach * jnp.cos(phi) + arm, arm]
        return jnp.stack([jnp.stack(seat), jnp.stack(front)])

    def starts(self):
        return {"default": self.rolling(0.9, 1.0, 0.0), "swinging": self.rolling(0.0, 1.0, 1.5)}

    def rolling(self, phi, speed, rate):
        """The state (q0, v0) at the origin along x, with this angle, this speed and this rate of the handle.

        It divides by a cos(phi) + b, which must not be zero.
        """
        turn = (speed * jnp.sin(phi) - self.arm * rate) / (self.reach * jnp.cos(phi) + self.arm)
        numbers = [0.0, 0.0, 0.0, phi], [speed, 0.0, turn, rate]
        return tuple(jnp.stack([jnp.asarray(x, float) for x in state]) for state in numbers)

    def scene(self, t, q):
        """The seat and its handle on four wheels, and the path of the seat."""
        a, b = jnp.asarray(self.reach, float), jnp.asarray(self.arm, float)
        _, _, theta, phi = q
        pivot = q[:2] + a * jnp.stack([jnp.cos(theta), jnp.sin(theta)])
        front = pivot + b * jnp.stack([jnp.cos(theta + phi), jnp.sin(theta + phi)])
        r, up = 0.13 * a, 0.3 * a

        def axle(at, heading, wide):
            across = wide * jnp.stack([-jnp.sin(heading), jnp.cos(heading)])
            tyres = [
                scene.wheel(at + x, heading, 0.0, r, width=0.08 * a, colour=scene.DARK, marked=False)
                for x in (-across, across)
            ]
            return [*tyres, scene.rod(scene.place(at - across, r), scene.place(at + across, r), 0.025 * a)]

        aside = 0.3 * a * jnp.stack([-jnp.sin(theta + phi), jnp.cos(theta + phi)])
        back = 0.35 * a * jnp.stack([jnp.cos(theta + phi), jnp.sin(theta + phi)])
        top = scene.place(pivot, 0.75 * a)
        return [
            scene.floor(),
            scene.trace(q[:2]),
            *axle(q[:2], theta, 0.4 * a),
            *axle(front, theta + phi, 0.25 * a),
            scene.box(scene.place(q[:2], up), (0.7 * a, 0.6 * a, 0.1 * a), theta),
            scene.rod(scene.place(q[:2], up), scene.place(pivot, up), 0.05 * a, None),
            scene.rod(scene.place(pivot, r), top, 0.035 * a, scene.GOLD),
            scene.rod(scene.place(pivot, r), scene.place(front, r), 0.035 * a, scene.GOLD),
            scene.rod(top, scene.place(pivot - back + aside, 0.75 * a), 0.03 * a, scene.GOLD),
            scene.rod(top, scene.place(pivot - back - aside, 0.75 * a), 0.03 * a, scene.GOLD),
        ]

    def generators(self, q):
        """The motions of the plane: (u, v, w) moves the seat by (u - w y, v + w x, w)."""
        turn = jnp.stack([-q[1], q[0], jnp.ones(()), jnp.zeros(())])
        return jnp.stack([*jnp.eye(4)[:2], turn], axis=1)

    def sections(self):
        def rigid(q):
            """The motion that the wheels allow if the handle does not turn."""
            speed, turn = self.reach * jnp.cos(q[3]) + self.arm, jnp.sin(q[3])
            c, s = jnp.cos(q[2]), jnp.sin(q[2])
            return jnp.stack([speed * c + turn * q[1], speed * s - turn * q[0], turn])

        return {"rigid": rigid}

    def solution(self, t, q0, v0):
        """The exact motion (q, v) at times t, if there is no spring and the handle does not turn."""
        t, q0, v0 = np.asarray(t, float), np.asarray(q0, float), np.asarray(v0, float)
        if float(self.stiffness) != 0 or v0[3] != 0:
            raise ValueError("RollerRacer has a closed solution without a spring and with phi' = 0 only")
        theta, turn = q0[2] + v0[2] * t, v0[2]
        speed = v0[0] * np.cos(q0[2]) + v0[1] * np.sin(q0[2])
        # The chord of an arc of length speed t; sinc is sin(pi x)/(pi x).
        chord, middle = speed * t * np.sinc(turn * t / (2 * np.pi)), q0[2] + turn * t / 2
        place = q0[0] + chord * np.cos(middle), q0[1] + chord * np.sin(middle)
        q = np.stack([*place, theta, np.full_like(t, q0[3])], axis=-1)
        moving = speed * np.cos(theta), speed * np.sin(theta), np.full_like(t, turn), np.zeros_like(t)
        return q, np.stack(moving, axis=-1)
