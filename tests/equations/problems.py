"""Test problems for the plain NumPy transcription of the integrators.

A problem is a mechanical system with linear nonholonomic constraints,

    L(q, v) = v . M(q) v / 2 - V(q),        A(q) v = 0,

together with a start (q0, v0), A(q0) v0 = 0, and a step h.  Nothing here is shared with the library: the
formulas are written out a second time, by hand, and only with NumPy.  Every function also accepts a complex
q, so that derivatives can be taken by a complex step; gradV also several points, one a column.

The first twelve are the nonholonomically coupled systems of Modin and Verdier, "What makes nonholonomic
integrators work?": a passenger x in R^2 or R^3 whose constraint A(xi) x' = 0 is turned by a driver xi.  The
coordinates are (x1, x2, xi) or (x1, x2, x3, xi), all masses are 1 and the potential is U(x) + V(xi).  The
others are the Chaplygin sleigh in contact and in centre-of-mass coordinates, two snakeboards, bodies that roll,
wheels that are joined, and a system with a full mass matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Problem:
    """A system with its start and step; `M` is the mass matrix where it is constant, otherwise None."""

    name: str
    M: np.ndarray | None
    metric: Callable
    V: Callable
    gradV: Callable
    A: Callable
    q0: np.ndarray
    v0: np.ndarray
    h: float


def _problem(name, mass, V, gradV, A, q0, v0, h):
    """A problem from a constant mass matrix or from a function q -> M(q)."""
    if callable(mass):
        M, metric = None, mass
    else:
        M = np.array(mass, dtype=float)

        def metric(q):
            return M

    q0, v0 = np.array(q0, dtype=float), np.array(v0, dtype=float)
    return Problem(name, M, metric, V, gradV, A, q0, v0, float(h))


def _no_potential(q):
    """V = 0."""
    return 0.0 * q[0]


def _no_gradient(q):
    """grad V = 0."""
    return 0.0 * q


# ---- passenger and driver ---------------------------------------------------------------------------------


def pendulum_cvt(name, eps, eta):
    """Pendulum-driven CVT: A = [1, sin xi], V = (x1^2 + x2^2)/2 + 1 - cos xi + (eps/2) sin 2 xi."""

    def V(q):
        return (q[0] ** 2 + q[1] ** 2) / 2 + 1 - np.cos(q[2]) + eps / 2 * np.sin(2 * q[2])

    def gradV(q):
        return np.array([q[0], q[1], np.sin(q[2]) + eps * np.cos(2 * q[2])])

    def A(q):
        return np.array([[1.0, np.sin(q[2]), 0.0]])

    return _problem(name, np.eye(3), V, gradV, A, [1, 1, 0], [0, 0, eta], 0.1)


def knife_edge(name, eps):
    """Knife edge on an incline: A = [-sin xi, cos xi - eps], V = -x1 (the force is (1, 0))."""

    def V(q):
        return -q[0]

    def gradV(q):
        return np.stack([0.0 * q[0] - 1.0, 0.0 * q[1], 0.0 * q[2]])

    def A(q):
        return np.array([[-np.sin(q[2]), np.cos(q[2]) - eps, 0.0]])

    return _problem(name, np.eye(3), V, gradV, A, [0, 0, np.pi / 2], [0, 0, 1], np.pi / 10)


def harmonic_cvt(name, stiffness):
    """A = [1, xi], V = (K1 x1^2 + K2 x2^2)/2 + xi^2/2; K = (1, 1) is the CVT, K = (0, 1) the particle."""
    K = np.array([stiffness[0], stiffness[1], 1.0])

    def V(q):
        return (K * q) @ q / 2

    def gradV(q):
        return (K * q.T).T

    def A(q):
        return np.array([[1.0, q[2], 0.0]])

    xi, v, eta = 0.5, 0.3, 1.0
    k = np.array([-xi, 1.0]) / np.sqrt(1 + xi**2)
    return _problem(name, np.eye(3), V, gradV, A, [1, 1, xi], [v * k[0], v * k[1], eta], 0.1)


def disk(name, height, eta):
    """Rolling disk: A = [[1, 0, cos xi], [0, 1, sin xi]], V = height * sin xi (0: disk, 1: mobile robot)."""

    def V(q):
        return height * np.sin(q[3])

    def gradV(q):
        return np.array([0.0 * q[0], 0.0 * q[1], 0.0 * q[2], height * np.cos(q[3])])

    def A(q):
        return np.array([[1.0, 0.0, np.cos(q[3]), 0.0], [0.0, 1.0, np.sin(q[3]), 0.0]])

    xi, v = 0.3, 1.2
    k = np.array([-np.cos(xi), -np.sin(xi), 1.0]) / np.sqrt(2)
    return _problem(name, np.eye(4), V, gradV, A, [0, 0, 0, xi], [v * k[0], v * k[1], v * k[2], eta], 0.1)


# ---- Chaplygin sleigh -------------------------------------------------------------------------------------

SLEIGH_MASS, SLEIGH_INERTIA, SLEIGH_OFFSET = 1.0, 1.0, 0.2  # m, I about the centre of mass, a
SLEIGH_SPEED, SLEIGH_TURN = -1.2, 0.288  # u0 along the blade, theta'


def sleigh_contact(name, V=_no_potential, gradV=_no_gradient):
    """Sleigh, q = (x, y, theta) with (x, y) the contact point of the blade: A = [sin theta, -cos theta, 0],

    M = [[m, 0, -m a sin theta], [0, m, m a cos theta], [., ., I + m a^2]].
    """
    m, inertia, a = SLEIGH_MASS, SLEIGH_INERTIA, SLEIGH_OFFSET

    def metric(q):
        s, c = np.sin(q[2]), np.cos(q[2])
        return np.array(
            [
                [m, 0.0, -m * a * s],
                [0.0, m, m * a * c],
                [-m * a * s, m * a * c, inertia + m * a**2],
            ]
        )

    def A(q):
        return np.array([[np.sin(q[2]), -np.cos(q[2]), 0.0]])

    return _problem(name, metric, V, gradV, A, [0, 0, 0], [SLEIGH_SPEED, 0, SLEIGH_TURN], 0.2)


def sleigh_cm(name):
    """The same sleigh and start, (x, y) now the centre of mass:

    M = diag(m, m, I), A = [sin theta, -cos theta, a].
    """
    m, inertia, a = SLEIGH_MASS, SLEIGH_INERTIA, SLEIGH_OFFSET

    def A(q):
        return np.array([[np.sin(q[2]), -np.cos(q[2]), a]])

    # (x, y) + a (cos theta, sin theta) and its time derivative, at theta = 0
    q0, v0 = [a, 0, 0], [SLEIGH_SPEED, a * SLEIGH_TURN, SLEIGH_TURN]
    return _problem(name, np.diag([m, m, inertia]), _no_potential, _no_gradient, A, q0, v0, 0.2)


def sleigh_potential(name):
    """The sleigh in contact coordinates with V = 0.3 x^2 + 0.2 y^2 + 0.1 x cos theta."""

    def V(q):
        return 0.3 * q[0] ** 2 + 0.2 * q[1] ** 2 + 0.1 * q[0] * np.cos(q[2])

    def gradV(q):
        return np.array([0.6 * q[0] + 0.1 * np.cos(q[2]), 0.4 * q[1], -0.1 * q[0] * np.sin(q[2])])

    return sleigh_contact(name, V, gradV)


# ---- snakeboard -------------------------------------------------------------------------------------------


def snakeboard(name, absolute):
    """Snakeboard, q = (x, y, theta, psi, phi), M = diag(m, m, J + 2 J1, J0, 2 J1), V = 0.

    D is spanned by d_psi, d_phi and X = r cos theta cos s d_x + r sin theta cos s d_y - sin s d_theta, where
    s is the angle of the wheels relative to the board: s = phi, or s = phi - theta when phi is an absolute
    angle (with the same M: these are two different systems).  The constraint forms are the pair that keeps
    its rank at every configuration,

        [sin theta, -cos theta, 0, 0, 0],   [sin s cos theta, sin s sin theta, r cos s, 0, 0].
    """
    m, r, J, J0, J1 = 1.0, 1.0, 1.0, 0.5, 0.25

    def steering(q):
        return q[4] - q[2] if absolute else q[4]

    def A(q):
        th, s = q[2], steering(q)
        return np.array(
            [
                [np.sin(th), -np.cos(th), 0.0, 0.0, 0.0],
                [np.sin(s) * np.cos(th), np.sin(s) * np.sin(th), r * np.cos(s), 0.0, 0.0],
            ]
        )

    q0 = np.array([0.0, 0.0, 0.2, 0.0, 0.4])
    th, s = q0[2], steering(q0)
    X = np.array([r * np.cos(th) * np.cos(s), r * np.sin(th) * np.cos(s), -np.sin(s), 0.0, 0.0])
    v0 = 0.7 * X + np.array([0.0, 0.0, 0.0, 0.9, 1.0])
    M = np.diag([m, m, J + 2 * J1, J0, 2 * J1])
    return _problem(name, M, _no_potential, _no_gradient, A, q0, v0, 0.1)


# ---- bodies that roll -------------------------------------------------------------------------------------


def falling_disk(name):
    """Disk of mass and radius 1, q = (contact x, y, heading, tilt, roll), from velocities of points and axes.

    The frame e1 (heading), e2 (axle), e3 (steepest line of the disk) turns with heading and tilt; the centre is
    contact + e3, and the angular velocity heading' z + tilt' e1 + roll' e2.
    """
    axial, diametral, g = 0.5, 0.25, 9.81
    shift = np.eye(3, 5)
    shift[2, 2] = 0.0

    def metric(q):
        s, c, st, ct = np.sin(q[2]), np.cos(q[2]), np.sin(q[3]), np.cos(q[3])
        e2, (x, y, z) = np.array([-s * ct, c * ct, st]), (s * st, -c * st, ct)
        # One column per coordinate: how it turns the frame and the disk, and how it moves the centre contact + e3.
        frame_turns = np.array([[0, 0, 0, c, 0], [0, 0, 0, s, 0], [0, 0, 1, 0, 0]])
        disk_turns = np.concatenate([frame_turns[:, :4], e2[:, None]], axis=1)
        centre = shift + np.array([[0, z, -y], [-z, 0, x], [y, -x, 0]]) @ frame_turns
        axle = e2 @ disk_turns
        turns = diametral * disk_turns.T @ disk_turns + (axial - diametral) * np.outer(axle, axle)
        return centre.T @ centre + turns

    def V(q):
        return g * np.cos(q[3])

    def gradV(q):
        zero = 0.0 * q[0]
        return np.array([zero, zero, zero, -g * np.sin(q[3]), zero])

    def A(q):
        return np.array([[1.0, 0.0, 0.0, 0.0, -np.cos(q[2])], [0.0, 1.0, 0.0, 0.0, -np.sin(q[2])]])

    return _problem(name, metric, V, gradV, A, [0, 0, 0, 0.2, 0], [3, 0, 0, 0, 3], 0.05)


def ball_in_cylinder(name):
    """Ball of mass 1 and radius 1/4 inside a vertical cylinder of radius 1, q = (phi, z, s1, s2, s3), s' = w.

    Its centre is at 3/4 (cos phi, sin phi, 0) + z e3, and the point at the wall, by (cos phi, sin phi, 0)/4 further
    out, is at rest.
    """
    a, b, g = 0.25, 0.75, 9.81

    def V(q):
        return g * q[1]

    def gradV(q):
        return np.array([0.0 * q[0], 0.0 * q[1] + g, 0.0 * q[2], 0.0 * q[3], 0.0 * q[4]])

    def A(q):
        s, c = np.sin(q[0]), np.cos(q[0])
        return np.array([[b, 0.0, 0.0, 0.0, a], [0.0, 1.0, a * s, -a * c, 0.0]])

    moment = 0.4 * a**2
    M = np.diag([b**2, 1.0, moment, moment, moment])
    return _problem(name, M, V, gradV, A, np.zeros(5), [6, 0, 0, 0, -18], 0.05)


def routh_sphere(name):
    """Ball of mass and radius 1 with mass centre at -0.3 e from its middle, q = (x, y, heading, tilt, spin).

    e is the axis and f that of tilting; the angular velocity is heading' z + tilt' f + spin' e.
    """
    axial, diametral, offset, g = 0.35, 0.3, 0.3, 9.81
    shift = np.eye(3, 5)
    shift[2, 2] = 0.0

    def turns(q):
        s, c, st, ct = np.sin(q[2]), np.cos(q[2]), np.sin(q[3]), np.cos(q[3])
        return np.array([[0, 0, 0, -s, st * c], [0, 0, 0, c, st * s], [0, 0, 1, 0, ct]])

    def metric(q):
        w = turns(q)
        x, y, z = e = w[:, 4]
        centre = shift - offset * np.array([[0, z, -y], [-z, 0, x], [y, -x, 0]]) @ w  # middle - offset w x e
        axle = e @ w
        return centre.T @ centre + diametral * w.T @ w + (axial - diametral) * np.outer(axle, axle)

    def V(q):
        return -g * offset * np.cos(q[3])

    def gradV(q):
        zero = 0.0 * q[0]
        return np.array([zero, zero, zero, g * offset * np.sin(q[3]), zero])

    def A(q):
        w = turns(q)
        return shift[:2] + np.array([-w[1], w[0]])

    v0 = [0, -2.0 * np.sin(1.0), 0.5, 0, 2]
    return _problem(name, metric, V, gradV, A, [0, 0, 0, 1, 0], v0, 0.05)


# ---- wheels that are joined -------------------------------------------------------------------------------


def roller_racer(name):
    """Seat and handle: reach 1, arm 0.3, m = 1, J = 0.3, J2 = 0.1, V = (1 - cos phi)/2."""
    M = np.diag([1.0, 1.0, 0.4, 0.1])
    M[2, 3] = M[3, 2] = 0.1

    def V(q):
        return 0.5 * (1 - np.cos(q[3]))

    def gradV(q):
        zero = 0.0 * q[0]
        return np.array([zero, zero, zero, 0.5 * np.sin(q[3])])

    def A(q):
        front, zero = q[2] + q[3], 0.0 * q[0]
        turning = np.cos(q[3]) + 0.3
        seat = [-np.sin(q[2]), np.cos(q[2]), zero, zero]
        return np.array([seat, [-np.sin(front), np.cos(front), turning, zero + 0.3]])

    v0 = [1.0, 0, np.sin(0.9) / (np.cos(0.9) + 0.3), 0]
    return _problem(name, M, V, gradV, A, [0, 0, 0, 0.9], v0, 0.05)


def car(name):
    """A tractor and one trailer: length 1, hitch 0.3, m = 1, J = 0.2; the trailer's axle is at x - 0.3 e0 - e1."""

    def moving(q):
        (c0, s0), (c1, s1) = ((np.cos(x), np.sin(x)) for x in q[2:])
        one, zero = 1.0 + 0.0 * c0, 0.0 * c0
        return np.array([[one, zero, 0.3 * s0, s1], [zero, one, -0.3 * c0, -c1]])

    def metric(q):
        behind = moving(q)
        return np.diag([1.0, 1.0, 0.2, 0.2]) + behind.T @ behind

    def A(q):
        zero = 0.0 * q[0]
        tractor = np.array([-np.sin(q[2]), np.cos(q[2]), zero, zero])
        return np.array([tractor, np.array([-np.sin(q[3]), np.cos(q[3])]) @ moving(q)])

    return _problem(name, metric, _no_potential, _no_gradient, A, [0] * 4, [1.0, 0, 0.4, -0.12], 0.05)


# ---- a full mass matrix -----------------------------------------------------------------------------------


def massive(name):
    """Full constant mass matrix, A = [1, sin q3, 0.3 cos q3],

    V = 1 - cos q3 + q1^2/2 + q1 q2/3 + q2^2/2 + 0.1 q1 q3^2.
    """
    M = [[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]]

    def V(q):
        x, y, z = q
        return 1 - np.cos(z) + x**2 / 2 + x * y / 3 + y**2 / 2 + 0.1 * x * z**2

    def gradV(q):
        x, y, z = q
        return np.array([x + y / 3 + 0.1 * z**2, x / 3 + y, np.sin(z) + 0.2 * x * z])

    def A(q):
        return np.array([[1.0, np.sin(q[2]), 0.3 * np.cos(q[2])]])

    v2, v3, z = 0.6, 0.8, 0.4
    v0 = [-np.sin(z) * v2 - 0.3 * np.cos(z) * v3, v2, v3]
    return _problem(name, M, V, gradV, A, [0.5, -0.3, z], v0, 0.1)


PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        pendulum_cvt("cvt-osc-0", 0.0, np.sqrt(3.6)),
        pendulum_cvt("cvt-osc-0.1", 0.1, np.sqrt(3.6)),
        pendulum_cvt("cvt-osc-0.5", 0.5, np.sqrt(3.6)),
        pendulum_cvt("cvt-rot-0", 0.0, np.sqrt(8.0)),
        pendulum_cvt("cvt-rot-0.1", 0.1, np.sqrt(8.0)),
        pendulum_cvt("cvt-rot-0.5", 0.5, np.sqrt(8.0)),
        knife_edge("knife-0", 0.0),
        knife_edge("knife-0.1", 0.1),
        harmonic_cvt("harmonic", (1.0, 1.0)),
        harmonic_cvt("particle", (0.0, 1.0)),
        disk("disk", 0.0, 1.0),
        disk("robot", 1.0, 0.7),
        sleigh_contact("sleigh-contact"),
        sleigh_cm("sleigh-cm"),
        snakeboard("snakeboard-relative", absolute=False),
        snakeboard("snakeboard-absolute", absolute=True),
        falling_disk("falling-disk"),
        ball_in_cylinder("cylinder"),
        routh_sphere("routh"),
        roller_racer("roller-racer"),
        car("car"),
        massive("massive"),
        sleigh_potential("sleigh-potential"),
    )
}
