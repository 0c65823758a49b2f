"""The snakeboard."""

import math
from typing import Literal

import equinox as eqx
import jax.numpy as jnp

from dalembert.model import System, scene

CONVENTIONS = ("relative", "absolute")


class Snakeboard(System):
    """A board with heading theta, a rotor psi and wheel axles turned by +phi and -phi.

    L = m (x'^2 + y'^2)/2 + (J + 2 J1) theta'^2/2 + J0 psi'^2/2 + J1 phi'^2. The board moves along its heading, and
    x', y', theta' are in the ratio r cos(theta) cos(phi), r sin(theta) cos(phi), -sin(phi) [ferraro2008].
    convention="absolute" measures phi from a fixed direction, as the preprint does. The distribution is then the same
    with phi - theta in place of phi, but the Lagrangian is not, so it is another system. psi="relative" measures the
    rotor from the board, J0 (psi' + theta')^2/2, as the device is built. As printed, psi is absolute, and the rotor
    turns by itself.
    Erratum: the printed one-forms are dependent at cos(phi) = 0, where D is regular; these one-forms are not.
    """

    coordinates = ("x", "y", "theta", "psi", "phi")
    units = ("m", "m", "rad", "rad", "rad")
    angles = ("theta", "psi", "phi")
    step = 0.1
    mass: float = 1.0
    board: float = 1.0
    rotor: float = 0.5
    wheel: float = 0.25
    radius: float = 1.0
    convention: Literal["relative", "absolute"] = eqx.field(default="relative", static=True)
    psi: Literal["absolute", "relative"] = eqx.field(default="absolute", static=True)

    def __check_init__(self):
        for name in ("convention", "psi"):
            if getattr(self, name) not in CONVENTIONS:
                raise ValueError(
                    f"Snakeboard has no {name} {getattr(self, name)!r}; choose one of: {', '.join(CONVENTIONS)}"
                )

    def lagrangian(self, q, v):
        x, y, theta, psi, phi = v
        if self.psi == "relative":
            psi = psi + theta
        turning = (self.board + 2 * self.wheel) * theta**2 + self.rotor * psi**2 + 2 * self.wheel * phi**2
        return 0.5 * (self.mass * (x**2 + y**2) + turning)

    def _along(self, q):
        """The values r cos(phi) and -sin(phi), with phi relative to the board."""
        phi = q[4] if self.convention == "relative" else q[4] - q[2]
        return self.radius * jnp.cos(phi), -jnp.sin(phi)

    def constraints(self, q):
        s, c = jnp.sin(q[2]), jnp.cos(q[2])
        forward, turning = self._along(q)
        return jnp.array([[s, -c, 0.0, 0.0, 0.0], [-turning * c, -turning * s, forward, 0.0, 0.0]])

    def starts(self):
        theta, phi = 0.2, 0.4
        relative = phi if self.convention == "relative" else phi - theta
        forward, turning = 0.7 * self.radius * math.cos(relative), -0.7 * math.sin(relative)
        v0 = [forward * math.cos(theta), forward * math.sin(theta), turning, 0.9, 1.0]
        return {"default": ([0.0, 0.0, theta, 0.0, phi], v0)}

    def scene(self, t, q):
        """The board on its axles: the front one moves along theta - phi, and the back one along theta + phi."""
        r, theta = jnp.asarray(self.radius, float), q[2]
        phi = q[4] if self.convention == "relative" else q[4] - theta
        psi = q[3] if self.psi == "absolute" else q[3] + theta
        ahead, middle = jnp.stack([jnp.cos(theta), jnp.sin(theta)]), scene.place(q[:2], 0.4 * r)

        def axle(at, heading):
            across = 0.35 * r * jnp.stack([-jnp.sin(heading), jnp.cos(heading)])
            tyres = [
                scene.wheel(at + x, heading, 0.0, 0.15 * r, width=0.1 * r, colour=scene.DARK, marked=False)
                for x in (-across, across)
            ]
            ends = scene.place(at - across, 0.15 * r), scene.place(at + across, 0.15 * r)
            return [
                *tyres,
                scene.rod(*ends, 0.04 * r),
                scene.rod(scene.place(at), scene.place(at, 0.35 * r), 0.05 * r),
            ]

        board = scene.box(middle, (2.4 * r, 0.42 * r, 0.1 * r), theta)
        rotor = scene.disc(
            middle + jnp.array([0.0, 0.0, 0.2]) * r, psi, 0.45 * r, 0.1 * r, colour=scene.LIGHT
        )
        front, back = axle(q[:2] + r * ahead, theta - phi), axle(q[:2] - r * ahead, theta + phi)
        return [scene.floor(), scene.trace(q[:2]), *front, *back, board, rotor]

    def integrals(self):
        rotor = (lambda q, v: v[3]) if self.psi == "absolute" else (lambda q, v: v[3] + v[2])
        return {"rotor speed": rotor, "steering speed": lambda q, v: v[4]}

    def generators(self, q):
        """SE(2) and the turns of rotor and axles. (u, v, w) moves the board by (u - w y, v + w x, w); if the angle of
        the axles is absolute, they turn with the board."""
        zero, one = jnp.zeros(()), jnp.ones(())
        axles = zero if self.convention == "relative" else one
        turn = jnp.stack([-q[1], q[0], one, zero, axles])
        return jnp.stack([*jnp.eye(5)[:2], turn, *jnp.eye(5)[3:]], axis=1)

    def sections(self):
        def board(q):
            forward, turning = self._along(q)
            a, b = forward * jnp.cos(q[2]), forward * jnp.sin(q[2])
            axles = 0.0 if self.convention == "relative" else -turning
            return jnp.stack(
                [a + turning * q[1], b - turning * q[0], turning, jnp.zeros(()), jnp.asarray(axles, float)]
            )

        return {
            "board": board,
            "rotor": lambda q: jnp.array([0.0, 0.0, 0.0, 1.0, 0.0]),
            "steering": lambda q: jnp.array([0.0, 0.0, 0.0, 0.0, 1.0]),
        }
