"""Routh's sphere: a ball whose mass centre lies off its middle."""

import jax.numpy as jnp

from dalembert.model import System, scene


class RouthSphere(System):
    """A ball that rolls on a plane, symmetric about an axis on which its mass centre lies, off the middle by l.

    The coordinates are the place (x, y) of the middle, which is above the contact, and three angles: the axis e points
    along (sin(tilt) cos(heading), sin(tilt) sin(heading), cos(tilt)), and the ball has turned by `spin` about it. The
    mass centre is at -l e from the middle, so the ball stands on its heavy side at a tilt of zero. The angular velocity
    is w = heading' e3 + tilt' f + spin' e with f = (-sin(heading), cos(heading), 0), and rolling means x' = a w_2 and
    y' = -a w_1. Let I be the moment about the axis, J that across it through the mass centre, and r the vector from the
    mass centre to the contact. Besides the energy there are two integrals [routh1905]:

        Jellett's:  -L.r, where L = J w + (I - J) (w.e) e is the momentum about the mass centre,
        Routh's:    (w.e) sqrt(I J + m (J |r|^2 + (I - J) (r.e)^2)).

    The coordinates are singular where the axis is vertical.
    """

    coordinates = ("x", "y", "heading", "tilt", "spin")
    units = ("m", "m", "rad", "rad", "rad")
    angles = ("heading", "tilt", "spin")
    step = 0.05
    mass: float = 1.0
    radius: float = 1.0
    offset: float = 0.3
    axial: float = 0.35
    diametral: float = 0.3
    gravity: float = 9.81

    def metric(self, q):
        """The mass centre moves at (x', y', 0) - l e'; w has the components tilt', spin' + cos(tilt) heading' along f
        and e, and -sin(tilt) heading' along f x e."""
        m, off, axial, across = self.mass, self.offset, self.axial, self.diametral
        (s, c), (st, ct) = ((jnp.sin(z), jnp.cos(z)) for z in (q[2], q[3]))
        shift, fall = m * off * st, m * off * ct
        return jnp.array(
            [
                [m, 0.0, s * shift, -c * fall, 0.0],
                [0.0, m, -c * shift, -s * fall, 0.0],
                [s * shift, -c * shift, (across + m * off**2) * st**2 + axial * ct**2, 0.0, axial * ct],
                [-c * fall, -s * fall, 0.0, across + m * off**2, 0.0],
                [0.0, 0.0, axial * ct, 0.0, axial],
            ]
        )

    def potential(self, q):
        return -self.mass * self.gravity * self.offset * jnp.cos(q[3])

    def constraints(self, q):
        a, st = self.radius, self.radius * jnp.sin(q[3])
        s, c = jnp.sin(q[2]), jnp.cos(q[2])
        return jnp.array([[1.0, 0.0, 0.0, -a * c, -st * s], [0.0, 1.0, 0.0, -a * s, st * c]])

    def starts(self):
        return {
            "default": self.rolling(tilt=1.0, turning=0.5, tilting=0.0, spinning=2.0),
            "upside down": self.rolling(tilt=2.9, turning=1.0, tilting=0.1, spinning=6.0),
        }

    def rolling(self, tilt, turning, tilting, spinning):
        """The start at the origin with heading zero and these rates of the angles."""
        q = [0.0, 0.0, 0.0, tilt, 0.0]
        about_x = spinning * jnp.sin(tilt)
        return q, [self.radius * tilting, -self.radius * about_x, turning, tilting, spinning]

    def integrals(self):
        """Both from the spin w.e, the spin w_3 about the vertical, and r = l e - a e3."""

        def jellett(q, v):
            ct = jnp.cos(q[3])
            spin, vertical = v[4] + v[2] * ct, v[2] + v[4] * ct
            along, up = self.offset - self.radius * ct, self.offset * spin - self.radius * vertical
            return -self.diametral * up - (self.axial - self.diametral) * spin * along

        def routh(q, v):
            a, off, ct = self.radius, self.offset, jnp.cos(q[3])
            arm = self.diametral * (a**2 + off**2 - 2 * a * off * ct)
            arm = arm + (self.axial - self.diametral) * (off - a * ct) ** 2
            return (v[4] + v[2] * ct) * jnp.sqrt(self.axial * self.diametral + self.mass * arm)

        return {"Jellett": jellett, "Routh": routh}

    def scene(self, t, q):
        a = jnp.asarray(self.radius, float)
        turn = scene.about_z(q[2]) @ scene.about_y(q[3]) @ scene.about_z(q[4])
        middle = scene.place(q[:2], a)
        e = turn[:, 2]
        return [
            scene.floor(),
            scene.trace(q[:2]),
            scene.ball(middle, a, turn),
            scene.rod(middle - 1.15 * a * e, middle + 1.15 * a * e, 0.03 * a),
            scene.point(middle - 1.15 * a * e, 0.08 * a, scene.GOLD),
        ]
