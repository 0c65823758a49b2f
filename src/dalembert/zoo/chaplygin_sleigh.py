"""The Chaplygin sleigh."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene

POINTS = ("contact", "mass-centre")


class ChaplyginSleigh(System):
    """A rigid body on a blade, with its mass centre a distance `offset` ahead of the blade's contact point.

    coordinates="contact" uses the contact point, for which the metric depends on theta; "mass-centre" uses the centre
    of mass, for which it is constant. The motion is the same. `inertia` is about the centre of mass [ferraro2008].
    """

    coordinates = ("x", "y", "theta")
    units = ("m", "m", "rad")
    angles = ("theta",)
    step = 0.2
    mass: float
    inertia: float
    offset: float
    point: str = eqx.field(static=True)

    def __init__(self, mass=1.0, inertia=1.0, offset=0.2, coordinates="contact"):
        if coordinates not in POINTS:
            raise ValueError(
                f"ChaplyginSleigh has no coordinates {coordinates!r}; choose one of: {', '.join(POINTS)}"
            )
        self.mass, self.inertia, self.offset, self.point = mass, inertia, offset, coordinates

    def metric(self, q):
        m, i, a = self.mass, self.inertia, self.offset
        if self.point == "mass-centre":
            return jnp.diag(jnp.stack([jnp.asarray(x, float) for x in (m, m, i)]))
        s, c = m * a * jnp.sin(q[2]), m * a * jnp.cos(q[2])
        return jnp.array([[m, 0.0, -s], [0.0, m, c], [-s, c, i + m * a**2]])

    def constraints(self, q):
        lever = self.offset if self.point == "mass-centre" else 0.0
        return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), lever]])

    def starts(self):
        return {"default": self.moving(-1.2, 0.288)}

    def moving(self, speed, turning):
        """The start (q0, v0) with the blade at the origin along x, at this speed and turning rate."""
        if self.point == "contact":
            return jnp.zeros(3), jnp.array([speed, 0.0, turning])
        return jnp.array([self.offset, 0.0, 0.0]), jnp.array([speed, self.offset * turning, turning])

    def generators(self, q):
        """SE(2): (u, v, w) moves the sleigh by (u - w y, v + w x, w)."""
        return jnp.stack([*jnp.eye(3)[:2], jnp.stack([-q[1], q[0], jnp.ones(())])], axis=1)

    def sections(self):
        lever = self.offset if self.point == "mass-centre" else 0.0

        def turning(q):
            """A rotation about the blade's contact point."""
            x, y = q[0] - lever * jnp.cos(q[2]), q[1] - lever * jnp.sin(q[2])
            return jnp.stack([y, -x, jnp.ones(())])

        return {
            "forward": lambda q: jnp.stack([jnp.cos(q[2]), jnp.sin(q[2]), jnp.zeros(())]),
            "turning": turning,
        }

    def scene(self, t, q):
        back = self.offset * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])]) if self.point == "mass-centre" else 0.0
        return sleigh(q[:2] - back, q[2], self.offset, jnp.sqrt(self.inertia / self.mass))

    def solution(self, t, q0, v0):
        """The exact motion (q, v) at increasing times t from the start.

        The speed is u = R tanh(s), the turning rate w = (R/b) sech(s), and theta = (b/a) gd(s), with s linear in t and
        b^2 = (I + m a^2)/m. The path is their integral, computed by Gauss quadrature to rounding.
        """
        t = np.asarray(t, float)
        q0, v0 = np.asarray(q0, float), np.asarray(v0, float)
        m, i, a = (float(x) for x in (self.mass, self.inertia, self.offset))
        lever = a if self.point == "mass-centre" else 0.0
        theta0, w0 = q0[2], v0[2]
        u0 = v0[0] * np.cos(theta0) + v0[1] * np.sin(theta0)
        b = np.sqrt((i + m * a**2) / m)
        total = np.hypot(u0, b * w0)

        def blade(t):
            """The speed, turning rate and heading."""
            if w0 == 0 or a == 0:
                return np.full_like(t, u0), np.full_like(t, w0), theta0 + w0 * t
            s0 = np.arctanh(u0 / total)
            s = a * total * t / b**2 + s0
            gd = 2 * np.arctan(np.tanh(s / 2)) - 2 * np.arctan(np.tanh(s0 / 2))
            side = np.sign(w0)
            return total * np.tanh(s), side * total / b / np.cosh(s), theta0 + side * b / a * gd

        # 20 Gauss points on pieces of at most an eighth of the time scale, so that the error is below rounding.
        nodes, weights = np.polynomial.legendre.leggauss(20)
        gaps = np.diff(t, prepend=0.0)
        longest = np.max(np.abs(gaps), initial=0.0)
        pieces = max(1, int(np.ceil(8 * longest * (abs(w0) + total / b + a * total / b**2))))
        fraction = ((np.arange(pieces)[:, None] + (nodes + 1) / 2) / pieces).ravel()
        u, _, theta = blade((t - gaps)[:, None] + gaps[:, None] * fraction)
        scale = gaps[:, None] * np.tile(weights / (2 * pieces), pieces)
        x = q0[0] - lever * np.cos(theta0) + np.cumsum(np.sum(scale * u * np.cos(theta), axis=1))
        y = q0[1] - lever * np.sin(theta0) + np.cumsum(np.sum(scale * u * np.sin(theta), axis=1))
        u, w, theta = blade(t)
        c, s = np.cos(theta), np.sin(theta)
        q = np.stack([x + lever * c, y + lever * s, theta], axis=-1)
        return q, np.stack([u * c - lever * w * s, u * s + lever * w * c, w], axis=-1)


def sleigh(contact, heading, offset, gyration):
    """The parts of a board with this radius of gyration on a blade and two feet, with its mass centre marked."""
    turn, length, width = scene.about_z(heading), 3.37 * gyration, 0.8 * gyration

    def on(forward, left, height):
        return scene.place(contact) + turn @ jnp.stack(
            [jnp.asarray(x, float) for x in (forward, left, height)]
        )

    ahead, aside, up = offset + 0.4 * length, 0.4 * width, 0.6
    feet = [scene.rod(on(ahead, x, 0.0), on(ahead, x, up), 0.07) for x in (-aside, aside)]
    board = scene.box(on(offset, 0.0, up + 0.06), (length, width, 0.12), heading)
    centre = scene.point(on(offset, 0.0, up + 0.14), 0.13, scene.GOLD)
    ground = [scene.floor(), scene.trace(contact), scene.direction(contact, heading, 1.6 * length)]
    return [*ground, *feet, scene.blade(contact, heading, 1.3, up), board, centre]
