"""The bicycle of Whipple and Carvallo."""

import math

import jax.numpy as jnp
import numpy as np

from dalembert.model import System, scene


class Bicycle(System):
    """A bicycle with a rigid rider and thin wheels that roll without slipping: the benchmark of [meijaard2007].

    Four rigid bodies: rear wheel, rear frame with the rider, front fork with the handlebar, front wheel. The axes are
    those of the paper: x forwards, y to the right, z downwards. (x, y) is the point where the rear wheel touches the
    ground. The rear frame is turned by yaw about the vertical, then by roll about the heading, then by pitch about
    the rear axle; all are zero if it stands upright and heads along x. A positive yaw or steer turns to the right, a
    positive roll leans to the right, a positive pitch lifts the front. steer turns the fork about its axis, and rear
    and front turn the wheels relative to frame and fork. The wheels' axles point to the right, so their angles
    decrease if the bicycle goes forwards.

    The rear wheel touches the ground by the choice of coordinates. The height of the front wheel's lowest point is the
    position constraint, from which the pitch follows. The other constraints are the velocities of the two wheels at
    their points of contact along and across the heading: rear along, rear across, front along, front across.
    The default parameters are those of the benchmark. x and z of a body are the place of its mass centre, if the
    bicycle stands upright and the rear wheel touches the ground at the origin. Moments of inertia are about the mass
    centre, and ixz is the entry of the inertia matrix, minus the integral of x z.
    Equations: linearised about straight running at speed v, with q = (roll, steer), the motion is
    M q'' + v C1 q' + (g K0 + v^2 K2) q = 0 with the matrices of [meijaard2007].
    """

    coordinates = ("x", "y", "yaw", "roll", "pitch", "steer", "rear", "front")
    units = ("m", "m", "rad", "rad", "rad", "rad", "rad", "rad")
    angles = ("yaw", "rear", "front")
    step = 0.01
    gravity: float = 9.81  # m/s^2
    wheelbase: float = 1.02  # m, between the points of contact
    trail: float = 0.08  # m, from the front wheel's contact forwards to where the steer axis meets the ground
    tilt: float = math.pi / 10  # rad, of the steer axis against the vertical; its upper end leans backwards
    rear_radius: float = 0.3  # m
    rear_mass: float = 2.0  # kg, of the rear wheel
    rear_ixx: float = 0.0603  # kg m^2, about a diameter
    rear_iyy: float = 0.12  # kg m^2, about the axle
    body_x: float = 0.3  # m
    body_z: float = -0.9  # m
    body_mass: float = 85.0  # kg, of rear frame and rider
    body_ixx: float = 9.2  # kg m^2
    body_iyy: float = 11.0  # kg m^2
    body_izz: float = 2.8  # kg m^2
    body_ixz: float = 2.4  # kg m^2
    fork_x: float = 0.9  # m
    fork_z: float = -0.7  # m
    fork_mass: float = 4.0  # kg, of fork and handlebar
    fork_ixx: float = 0.05892  # kg m^2
    fork_iyy: float = 0.06  # kg m^2
    fork_izz: float = 0.00708  # kg m^2
    fork_ixz: float = -0.00756  # kg m^2
    front_radius: float = 0.35  # m
    front_mass: float = 3.0  # kg, of the front wheel
    front_ixx: float = 0.1405  # kg m^2, about a diameter
    front_iyy: float = 0.28  # kg m^2, about the axle

    # The axes of the rear half are fixed in the rear frame: the first points forwards, normal to the steer axis, the
    # second to the right, the third down along the steer axis. The axes of the front half are these, turned about the
    # third by the steer angle. C is the centre of the rear wheel. A is the point of the steer axis nearest to C; it
    # lies on the first axis. In these axes, the places and moments of inertia of the halves are constant.

    def _in_axes(self, x, z):
        """The place (x, z) of the upright bicycle, relative to C, in the axes of the rear half."""
        return scene.about_y(self.tilt).T @ _vector(x, 0.0, z + self.rear_radius)

    def _reach(self):
        """The vector from C to A, in the axes of the rear half."""
        return _vector(1.0, 0.0, 0.0) * self._in_axes(self.wheelbase + self.trail, 0.0)[0]

    def _halves(self):
        """The mass, the place of the mass centre and the inertia matrix about it, of rear and front half.

        Places are relative to C and to A. A half is a frame with its wheel. Its inertia matrix does not contain the
        wheel's moment about the axle.
        """
        rear = _joined(
            (self.body_mass, self.body_x, self.body_z),
            (self.body_ixx, self.body_iyy, self.body_izz, self.body_ixz),
            (self.rear_mass, 0.0, -self.rear_radius),
            self.rear_ixx,
        )
        front = _joined(
            (self.fork_mass, self.fork_x, self.fork_z),
            (self.fork_ixx, self.fork_iyy, self.fork_izz, self.fork_ixz),
            (self.front_mass, self.wheelbase, -self.front_radius),
            self.front_ixx,
        )
        turn, nearest = scene.about_y(self.tilt), (jnp.zeros(3), self._reach())
        return [
            (mass, self._in_axes(x, z) - origin, turn.T @ inertia @ turn)
            for (mass, x, z, inertia), origin in zip((rear, front), nearest, strict=True)
        ]

    def _directions(self, q):
        """Two matrices whose rows are the heading, the direction to its right, and down.

        The first is written in the axes of the rear half, the second in those of the front half.
        """
        rear = scene.about_x(q[3]) @ scene.about_y(q[4] + self.tilt)
        return rear, rear @ scene.about_z(q[5])

    def _rates(self, q):
        """The velocity of C and the angular velocity of the rear half, and the same of A and the front half.

        Each is a (3, 6) matrix in the half's axes, with one column for each of the rates of yaw, roll, pitch, steer,
        rear and front. The point where the rear wheel touches the ground is at rest.
        """
        (ahead, _, down), _ = self._directions(q)
        zero, right, r = jnp.zeros(3), _vector(0.0, 1.0, 0.0), self.rear_radius
        velocity = jnp.stack([-r * jnp.sin(q[3]) * ahead, r * right, zero, zero, zero, zero], axis=1)
        turning = jnp.stack([down, ahead, right, zero, zero, zero], axis=1)
        steered = scene.about_z(q[5]).T
        front = steered @ turning + jnp.outer(_vector(0.0, 0.0, 1.0), STEER)
        return (velocity, turning), (steered @ _moved(velocity, turning, self._reach()), front)

    def metric(self, q):
        mass, momentum, square = 0.0, jnp.zeros((2, 6)), jnp.zeros((6, 6))
        axles = (self.rear_iyy, REAR), (self.front_iyy, FRONT)
        halves = zip(self._halves(), self._directions(q), self._rates(q), axles, strict=True)
        for (m, place, inertia), directions, (velocity, turning), (moment, spinning) in halves:
            velocity, spin = _moved(velocity, turning, place), turning[1] + spinning
            mass, momentum = mass + m, momentum + m * (directions[:2] @ velocity)
            square = square + m * (velocity.T @ velocity) + turning.T @ (inertia @ turning)
            square = square + moment * jnp.outer(spin, spin)
        momentum = _heading(q) @ momentum
        return jnp.block([[mass * jnp.eye(2), momentum], [momentum.T, square]])

    def potential(self, q):
        (rear, front), (directions, steered) = self._halves(), self._directions(q)
        below = rear[0] * directions[2] @ rear[1]
        below = below + front[0] * (directions[2] @ self._reach() + steered[2] @ front[1])
        return self.gravity * ((rear[0] + front[0]) * self.rear_radius * jnp.cos(q[3]) - below)

    def _front_wheel(self, down):
        """The front wheel's centre from A, and its lowest point from its centre; all are in the front half's axes."""
        centre = self._in_axes(self.wheelbase, -self.front_radius) - self._reach()
        in_plane = down * jnp.array([1.0, 0.0, 1.0])
        return centre, self.front_radius * in_plane / jnp.sqrt(down[0] ** 2 + down[2] ** 2)

    def _front_contact(self, q):
        """The front wheel's lowest point, from the point where the rear wheel touches the ground.

        Its three parts are along the heading, to the right of it and down.
        """
        directions, steered = self._directions(q)
        centre, lowest = self._front_wheel(steered[2])
        hub = self.rear_radius * jnp.stack([jnp.zeros(()), jnp.sin(q[3]), -jnp.cos(q[3])])
        return hub + directions @ self._reach() + steered @ (centre + lowest)

    def holonomic(self, q):
        return -self._front_contact(q)[2:]

    def constraints(self, q):
        _, steered = self._directions(q)
        _, (velocity, turning) = self._rates(q)
        centre, lowest = self._front_wheel(steered[2])
        rolling = jnp.outer(_vector(lowest[2], 0.0, -lowest[0]), FRONT)
        front = steered[:2] @ (_moved(velocity, turning, centre + lowest) + rolling)
        rear = self.rear_radius * jnp.stack([PITCH + REAR, jnp.zeros(6)])
        return jnp.block([[_heading(q).T, rear], [_heading(q).T, front]])

    def starts(self):
        return {
            "default": self._running(4.6, 0.5),
            "slow": self._running(4.0, 0.05),
            "fast": self._running(8.0, 0.05),
        }

    def _running(self, speed, rolling):
        """Upright and straight ahead with a rate of roll, about the line on which both wheels touch the ground.

        Rolling over therefore needs no other velocity.
        """
        v0 = [speed, 0.0, 0.0, rolling, 0.0, 0.0, -speed / self.rear_radius, -speed / self.front_radius]
        return [0.0] * 8, v0

    def scene(self, t, q):
        """The bicycle with z upwards, and in gold the mass centre of frame and rider."""
        upwards = jnp.diag(jnp.array([1.0, -1.0, -1.0]))
        directions, steered = self._directions(q)
        heading, level = upwards @ scene.about_z(q[2]), scene.about_y(-self.tilt)
        frame, fork = heading @ directions @ level, heading @ steered @ level
        r, r_front, axis = self.rear_radius, self.front_radius, self.wheelbase + self.trail
        hub = _vector(q[0], -q[1], 0.0) + heading @ _vector(0.0, r * jnp.sin(q[3]), -r * jnp.cos(q[3]))

        def rear(x, z, y=0.0):
            return hub + frame @ _vector(x, y, z + r)

        joint = rear(axis, 0.0)

        def front(x, z, y=0.0):
            return joint + fork @ _vector(x - axis, y, z)

        def wheel(at, turn, radius):
            size = _vector(radius, 0.08 * radius, radius)
            return scene.Part("wheel", at, turn @ upwards, size, scene.DARK)

        def on_axis(height):
            return axis - height * jnp.tan(self.tilt), -height

        crown, head, bar = on_axis(2.1 * r_front), on_axis(2.5 * r_front), on_axis(2.9 * r_front)
        pedals, seat, saddle = (0.42 * axis, -0.9 * r), (0.23 * axis, -2.5 * r), (0.2 * axis, -2.8 * r)
        wide, thick, thin = 0.18 * r, 0.06 * r, 0.035 * r
        tubes = [
            scene.rod(rear(*a), rear(*b), thick, None)
            for a, b in ((pedals, saddle), (pedals, crown), (seat, head))
        ]
        sides = (-1.0, 1.0)
        stays = [
            scene.rod(rear(0.0, -r, k * wide), rear(*at, 0.5 * k * wide), thin, None)
            for at in (pedals, seat)
            for k in sides
        ]
        legs = [
            scene.rod(front(self.wheelbase, -r_front, k * wide), front(*crown, k * wide), thin) for k in sides
        ]
        bars = [
            scene.rod(front(*crown, -wide), front(*crown, wide), thin),
            scene.rod(front(*crown), front(*bar), thick),
            scene.rod(front(*bar, -0.9 * r), front(*bar, 0.9 * r), thin),
        ]
        bars += [
            scene.rod(front(*bar, 0.9 * k * r), front(bar[0] - 0.5 * r, bar[1], 0.9 * k * r), 1.4 * thin)
            for k in sides
        ]
        return [
            scene.floor(),
            scene.trace(q[:2] * jnp.array([1.0, -1.0])),
            wheel(hub, frame @ scene.about_y(q[6]), r),
            wheel(front(self.wheelbase, -r_front), fork @ scene.about_y(q[7]), r_front),
            *tubes,
            *stays,
            *legs,
            *bars,
            scene.box(rear(*saddle), (0.8 * r, 0.4 * r, 0.15 * r), turn=frame @ upwards, colour=scene.DARK),
            scene.point(rear(self.body_x, self.body_z), 0.2 * r, scene.GOLD),
        ]

    def generators(self, q):
        """SE(2) and the turns of the wheels: (u, v, w) moves the bicycle by (u - w y, v + w x, w)."""
        zero, one = jnp.zeros(()), jnp.ones(())
        turn = jnp.stack([-q[1], q[0], one, zero, zero, zero, zero, zero])
        return jnp.stack([*jnp.eye(8)[:2], turn, *jnp.eye(8)[6:]], axis=1)

    def sections(self):
        def riding(q):
            """A ride whose roll, pitch and steer do not change."""
            along, across, _ = self._front_contact(q)
            _, steered = self._directions(q)
            _, lowest = self._front_wheel(steered[2])
            # The front wheel's rim moves along (a, b) at its lowest point, for each unit of its rate.
            a, b, _ = steered @ _vector(lowest[2], 0.0, -lowest[0])
            speed, yaw, front = a * along + b * across, b, -along
            c, s = jnp.cos(q[2]), jnp.sin(q[2])
            rear = -speed / self.rear_radius
            return jnp.stack([speed * c + yaw * q[1], speed * s - yaw * q[0], yaw, rear, front])

        return {"riding": riding}


PITCH, STEER, REAR, FRONT = np.eye(6)[2:]


def _vector(*numbers):
    return jnp.stack([jnp.asarray(x, float) for x in numbers])


def _heading(q):
    """Two columns: the heading and the direction to its right, in the axes of x and y."""
    return scene.about_z(q[2])[:2, :2]


def _moved(velocity, turning, place):
    """The velocity at a place from the velocity at the origin, column by column."""
    x, y, z = place
    zero = jnp.zeros(())
    return velocity + jnp.stack([_vector(zero, z, -y), _vector(-z, zero, x), _vector(y, -x, zero)]) @ turning


def _joined(body, moments, wheel, diametral):
    """Mass, x, z and inertia matrix of a body with its wheel, without the wheel's moment about its axle."""
    (m, x, z), (ixx, iyy, izz, ixz), (m_wheel, x_wheel, z_wheel) = body, moments, wheel
    mass, dx, dz = m + m_wheel, x - x_wheel, z - z_wheel
    k = m * m_wheel / mass
    ixx, iyy, izz = ixx + diametral + k * dz**2, iyy + k * (dx**2 + dz**2), izz + diametral + k * dx**2
    ixz = ixz - k * dx * dz
    inertia = jnp.stack([_vector(ixx, 0.0, ixz), _vector(0.0, iyy, 0.0), _vector(ixz, 0.0, izz)])
    return mass, (m * x + m_wheel * x_wheel) / mass, (m * z + m_wheel * z_wheel) / mass, inertia
