"""The disk that rolls and tilts."""

import jax.numpy as jnp

from dalembert.model import System, scene

TERMS = 500  # of the even and the odd power series; enough for |sin(tilt)| < 0.96


class FallingDisk(System):
    """A thin disk that rolls, tilts and turns on a plane: contact point (x, y), heading, tilt and rolling angle.

    The tilt is measured from the vertical and is positive if the disk leans to its right. With psi, th and phi for
    heading, tilt and roll, the angular velocity has the components th' along the heading, s = phi' + psi' sin(th)
    along the axle and p = psi' cos(th) along the steepest line of the disk. The contact point moves by a phi' along
    the heading. The equations of motion are, with B = I + m a^2 for the axial moment I and J the diametral one,

        (J + m a^2) th'' = B p s - J p^2 tan(th) + m g a sin(th),
        p' = (p tan(th) - (I/J) s) th',  s' = -(m a^2/B) p th'

    [neimark1972]. The last two are linear in (p, s) with th in place of time, which gives two integrals: the spin and
    the rate of turning that the same solution has where the disk stands upright. As a function of sin(th), s solves
    Legendre's equation; `integrals` sums its power series, which are accurate to rounding up to a tilt of 70 degrees.
    The upright disk rolls stably if phi'^2 > J m g a/(I B). The moments of a hoop are axial=1, diametral=0.5. At a tilt
    of 90 degrees the disk lies flat and the coordinates are singular.
    """

    coordinates = ("x", "y", "heading", "tilt", "roll")
    units = ("m", "m", "rad", "rad", "rad")
    angles = ("heading", "tilt", "roll")
    step = 0.05
    mass: float = 1.0
    radius: float = 1.0
    axial: float = 0.5
    diametral: float = 0.25
    gravity: float = 9.81

    def metric(self, q):
        """The centre is at (x, y, 0) + a (sin(psi) sin(th), -cos(psi) sin(th), cos(th))."""
        m, a, axial, across = self.mass, self.radius, self.axial, self.diametral
        (s, c), (st, ct) = ((jnp.sin(z), jnp.cos(z)) for z in (q[2], q[3]))
        shift, fall = m * a * st, m * a * ct
        return jnp.array(
            [
                [m, 0.0, c * shift, s * fall, 0.0],
                [0.0, m, s * shift, -c * fall, 0.0],
                [c * shift, s * shift, (axial + m * a**2) * st**2 + across * ct**2, 0.0, axial * st],
                [s * fall, -c * fall, 0.0, across + m * a**2, 0.0],
                [0.0, 0.0, axial * st, 0.0, axial],
            ]
        )

    def potential(self, q):
        return self.mass * self.gravity * self.radius * jnp.cos(q[3])

    def constraints(self, q):
        c, s = self.radius * jnp.cos(q[2]), self.radius * jnp.sin(q[2])
        return jnp.array([[1.0, 0.0, 0.0, 0.0, -c], [0.0, 1.0, 0.0, 0.0, -s]])

    def starts(self):
        return {
            "default": self.moving(tilt=0.2, turning=0.0, rolling=3.0),
            "steady": self.steady(tilt=0.5, turning=-1.5),
            "spinning": self.moving(tilt=0.1, turning=4.0, rolling=0.0),
            "falling": self.moving(tilt=0.1, turning=0.3, rolling=1.0),
        }

    def moving(self, tilt, turning, rolling, tilting=0.0):
        """The state at the origin, heading along x, with these rates."""
        return [0.0, 0.0, 0.0, tilt, 0.0], [self.radius * rolling, 0.0, turning, tilting, rolling]

    def steady(self, tilt, turning):
        """A start from which the tilt and all rates stay as they are, so that the contact point moves on a circle.

        B p s - J p^2 tan(th) + m g a sin(th) = 0 determines the spin s; `turning` must not be zero.
        """
        p, weight = turning * jnp.cos(tilt), self.mass * self.gravity * self.radius
        outer = self.axial + self.mass * self.radius**2
        spin = (self.diametral * p**2 * jnp.tan(tilt) - weight * jnp.sin(tilt)) / (outer * p)
        return self.moving(tilt, turning, spin - turning * jnp.sin(tilt))

    def integrals(self):
        """The spin s and the rate of turning p where the disk stands upright."""
        return {
            "upright spin": lambda q, v: self._upright(q, v)[0],
            "upright turning": lambda q, v: self._upright(q, v)[1],
        }

    def _upright(self, q, v):
        """As a function of z = sin(th), s = s0 E(z) - k p0 O(z) and psi' = p/cos(th) = -(ds/dz)/k, where k = m a^2/B.

        E = 1 + ... and O = z + ... are the even and the odd solution of (1 - z^2) s'' - 2 z s' = (k I/J) s, whose
        Wronskian is 1/(1 - z^2).
        """
        z = jnp.sin(q[3])
        k = self.mass * self.radius**2 / (self.axial + self.mass * self.radius**2)
        n = jnp.arange(0.0, 2.0 * TERMS, 2.0)

        def series(m):
            """The coefficients of z^m, z^(m + 2), ..., where the first is 1."""
            growth = (m * (m + 1.0) + k * self.axial / self.diametral) / ((m + 1.0) * (m + 2.0))
            return jnp.concatenate([jnp.ones(1), jnp.cumprod(growth)[:-1]])

        even, odd, powers = series(n), series(n + 1.0), z**n
        e, de = jnp.sum(even * powers), jnp.sum((n * even)[1:] * powers[:-1]) * z
        o, do = z * jnp.sum(odd * powers), jnp.sum((n + 1.0) * odd * powers)
        spin, turning = v[4] + z * v[2], v[2]
        side = 1.0 - z**2
        return side * (do * spin + k * o * turning), side * (e * turning + de * spin / k)

    def generators(self, q):
        """Motions of the plane, and turns of the disk about its axle."""
        zero, one = jnp.zeros(()), jnp.ones(())
        turn = jnp.stack([-q[1], q[0], one, zero, zero])
        return jnp.stack([*jnp.eye(5)[:2], turn, jnp.eye(5)[4]], axis=1)

    def sections(self):
        zero, one = jnp.zeros(()), jnp.ones(())
        a = jnp.asarray(self.radius, float)
        return {
            "turning": lambda q: jnp.stack([q[1], -q[0], one, zero]),
            "rolling": lambda q: jnp.stack([a * jnp.cos(q[2]), a * jnp.sin(q[2]), zero, one]),
        }

    def scene(self, t, q):
        at, heading = q[:2], q[2]
        a = jnp.asarray(self.radius, float)
        return [
            scene.floor(),
            scene.trace(at),
            scene.direction(at, heading, length=3.0 * a),
            scene.wheel(at, heading, q[4], a, q[3], width=0.06 * a),
        ]
