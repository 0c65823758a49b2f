"""Examples of discrete reduction, written out by hand: problems, ell, F, A, sigma, phi and constraint forms.

EXAMPLES maps names to examples; full(steps) has rows q_k, and reduced(steps) is (r, g), with rows for the same k
as q[:, shape] and q[:, group_indices].  See `reduction` for the notation; dataclasses.replace(example, h=...)
changes the step.
"""

import numpy as np
from equations import variable_steps as reference
from equations.reduction import SE2, Abelian, Chaplygin, Extended, Horizontal
from equations.variable_steps import Problem, array


def square(x):
    """The sum of the squares of the components."""
    return np.einsum("i...,i...->...", x, x)


def constant(*diagonal):
    """A constant diagonal mass matrix."""
    return lambda t, q: np.diag(diagonal)


# ---- particle: q = (x, y, z), z' = y x', V = (x^2 + y^2) / 2; translations of z ---------------------------


def particle_ell(h, r, d, f):
    """The midpoint rule with z1 - z0 = f."""
    return (square(d) + square(f)) / (2 * h) - h * square(r + d / 2) / 2


particle = Chaplygin(
    reference.particle("plane"),
    [0, 1],
    [2],
    particle_ell,
    F=lambda r, d: np.array([(r[1] + d[1] / 2) * d[0]]),
    A=lambda r: array(r[1], [[-r[1], 0]]),
)


def timed_particle(modulated=0.0, rate=0.0, time_forces=True):
    """z' = (1 + modulated sin t) y x' + rate cos t with variable steps; z = (t, x, y)."""
    factor = lambda t: 1 + modulated * np.sin(t)

    def shift(z, d):
        t, y = z[0] + d[0] / 2, z[2] + d[2] / 2
        return np.array([factor(t) * y * d[1] + rate * np.cos(t) * d[0]])

    connection = lambda z: array(z[0], [[-rate * np.cos(z[0]), -factor(z[0]) * z[2], 0]])
    problem, own = reference.particle("plane", rate, modulated=modulated), {"F": shift, "A": connection}
    return Extended(problem, [0, 1, 2], [3], particle_ell, 0.05, **own, time_forces=time_forces)


# ---- rolling disk and mobile robot: q = (x1, x2, x3, xi), x1' = -cos(xi) x3', x2' = -sin(xi) x3' -----------


def rolling(turn, potential):
    """The problem, with V(xi) and the rate xi' at the start."""
    forms = lambda t, q: array(q[0], [[0, 1, 0, np.cos(q[3]), 0], [0, 0, 1, np.sin(q[3]), 0]])
    along = 1.2 / np.sqrt(2) * np.array([-np.cos(0.3), -np.sin(0.3), 1])
    start = np.array([0, 0, 0, 0.3]), np.array([*along, turn])
    return Problem(constant(1, 1, 1, 1), forms, *start, lambda t, q: potential(q[3]))


def rolling_chaplygin(turn, potential):
    """Translations of (x1, x2); r = (x3, xi)."""

    def shift(r, d):
        xi = r[1] + d[1] / 2
        return np.array([-np.cos(xi) * d[0], -np.sin(xi) * d[0]])

    return Chaplygin(
        rolling(turn, potential),
        [2, 3],
        [0, 1],
        lambda h, r, d, f: (square(f) + square(d)) / (2 * h) - h * potential(r[1] + d[1] / 2),
        F=shift,
        A=lambda r: array(r[1], [[np.cos(r[1]), 0], [np.sin(r[1]), 0]]),
    )


def rolling_beta(h, d):
    """beta0 = -beta1 of the disk in closed form, ((1 - cos(d_xi / 2)) d_x3 / h, 0), whatever V is."""
    return np.array([(1 - np.cos(d[1] / 2)) * d[0] / h, 0 * d[0]])


def robot_abelian():
    """Translations of (x1, x2, x3) of the mobile robot, V = sin xi; r = xi."""

    def phi(h, r, d, f):
        xi = r[0] + d[0] / 2
        return np.array([f[0] + np.cos(xi) * f[2], f[1] + np.sin(xi) * f[2]]) / h

    return Abelian(
        rolling(0.7, np.sin),
        [3],
        [0, 1, 2],
        lambda h, r, d, f: (square(f) + square(d)) / (2 * h) - h * np.sin(r[0] + d[0] / 2),
        A=lambda r: np.zeros((3, 1)),
        sigma=lambda r: array(r[0], [[-np.cos(r[0])], [-np.sin(r[0])], [1]]),
        phi=phi,
    )


# ---- knife edge: q = (x1, x2, xi), -sin(xi) x1' + cos(xi) x2' = 0, V = cos(xi) / 2; translations of (x1, x2) --


def knife_edge():
    """r = xi."""
    forms = lambda t, q: array(q[0], [[0, -np.sin(q[2]), np.cos(q[2]), 0]])
    start = np.array([0, 0, 0.4]), np.array([0.5 * np.cos(0.4), 0.5 * np.sin(0.4), 1.0])
    middle = lambda r, d: r[0] + d[0] / 2
    return Abelian(
        Problem(constant(1, 1, 1), forms, *start, lambda t, q: np.cos(q[2]) / 2),
        [2],
        [0, 1],
        lambda h, r, d, f: (square(f) + square(d)) / (2 * h) - h * np.cos(middle(r, d)) / 2,
        A=lambda r: np.zeros((2, 1)),
        sigma=lambda r: array(r[0], [[np.cos(r[0])], [np.sin(r[0])]]),
        phi=lambda h, r, d, f: np.array([np.cos(middle(r, d)) * f[1] - np.sin(middle(r, d)) * f[0]]) / h,
    )


# ---- robot on two wheels: q = (x, y, theta, psi1, psi2); SE(2) on (x, y, theta) ---------------------------


def two_wheels(m=1.0, a=0.3, inertia=0.8, wheel=0.2, radius=0.5, half=0.4, stiffness=0.1):
    """V = stiffness (psi1^2 + psi2^2) / 2; the mass centre is a ahead of the axle, whose half length is `half`."""
    roll, spin = radius / 2, radius / (2 * half)

    def mass(t, q):
        s, c = -m * a * np.sin(q[2]), m * a * np.cos(q[2])
        board = [[m, 0, s, 0, 0], [0, m, c, 0, 0], [s, c, inertia, 0, 0]]
        return array(q[2], [*board, [0, 0, 0, wheel, 0], [0, 0, 0, 0, wheel]])

    def forms(t, q):
        c, s = -roll * np.cos(q[2]), -roll * np.sin(q[2])
        return array(q[2], [[0, 1, 0, 0, c, c], [0, 0, 1, 0, s, s], [0, 0, 0, 1, spin, -spin]])

    def ell(h, r, d, f):
        """f = (b1, b2, w): R(-theta0) (dx, dy) and the change of theta, so that theta_m - theta0 = w / 2."""
        body = m * (f[0] ** 2 + f[1] ** 2) + inertia * f[2] ** 2 + wheel * square(d)
        across = m * a * f[2] * (np.cos(f[2] / 2) * f[1] - np.sin(f[2] / 2) * f[0])
        return (body / 2 + across) / h - h * stiffness * square(r + d / 2) / 2

    def shift(r, d):
        """x, y advance along theta_m, seen from theta0."""
        s, w = roll * (d[0] + d[1]), spin * (d[1] - d[0])
        return np.array([s * np.cos(w / 2), s * np.sin(w / 2), w])

    speeds = np.array([1.0, 0.4])
    start = np.array([0.1, -0.2, 0.3, 0, 0])
    u, w = roll * speeds.sum(), spin * (speeds[1] - speeds[0])
    velocity = np.array([u * np.cos(0.3), u * np.sin(0.3), w, *speeds])
    return Chaplygin(
        Problem(mass, forms, start, velocity, lambda t, q: stiffness * (q[3] ** 2 + q[4] ** 2) / 2),
        [3, 4],
        [0, 1, 2],
        ell,
        F=shift,
        A=lambda r: array(r[0], [[-roll, -roll], [0, 0], [spin, -spin]]),
        group=SE2,
    )


# ---- particle with a wheel: q = (x, y, z, s), z' = y x' ---------------------------------------------------

J, C = 0.6, 0.2  # L = (x'^2 + y'^2 + z'^2) / 2 + (J / 2)(1 + x^2 / 2) s'^2 + C y' s' - (x^2 + y^2) / 2


def wheel_problem():
    """The particle with a wheel whose inertia depends on x, coupled to y'."""
    mass = lambda t, q: array(
        q[0], [[1, 0, 0, 0], [0, 1, 0, C], [0, 0, 1, 0], [0, C, 0, J * (1 + q[0] ** 2 / 2)]]
    )
    start = np.array([1, 0.6, 0.5, 0]), np.array([1, 0.5, 0.6, 0.8])
    forms = lambda t, q: array(q[0], [[0, -q[1], 0, 1, 0]])
    return Problem(mass, forms, *start, lambda t, q: (q[0] ** 2 + q[1] ** 2) / 2)


def wheel_ell(h, r, d, turn):
    """The midpoint rule; r and d begin with (x, y), d may have z1 - z0 behind, and turn = s1 - s0."""
    x, y = r[0] + d[0] / 2, r[1] + d[1] / 2
    kinetic = square(d) / 2 + J / 2 * (1 + x**2 / 2) * turn**2 + C * d[1] * turn
    return kinetic / h - h * (x**2 + y**2) / 2


def wheel_phi(lag):
    """D_d, z / h = ym x / h + h lag (s / h) (y / h) for the differences x, y, z, s; D has no term with lag."""
    return lambda h, x, y, z, s, ym: np.array([z / h - ym * x / h - h * lag * (s / h) * (y / h)])


def wheel_horizontal(lag=0.0):
    """Turns of the wheel, r = (x, y, z): J (1 + xm^2 / 2) f + C dy = h mu."""
    phi = wheel_phi(lag)
    return Horizontal(
        wheel_problem(),
        [0, 1, 2],
        [3],
        lambda h, r, d, f: wheel_ell(h, r, d, f[0]),
        own=(lambda h, q, d: phi(h, *d, q[1] + d[1] / 2)) if lag else None,
        F=lambda h, mu, r, d: np.array([(h * mu[0] - C * d[1]) / (J * (1 + (r[0] + d[0] / 2) ** 2 / 2))]),
        what=lambda r: array(r[1], [[-r[1], 0, 1]]),
        phi=lambda h, r, d, f: phi(h, *d, f[0], r[1] + d[1] / 2),
    )


def wheel_abelian(lag=0.0):
    """Translations of z and turns of the wheel, r = (x, y)."""
    phi = wheel_phi(lag)
    return Abelian(
        wheel_problem(),
        [0, 1],
        [2, 3],
        lambda h, r, d, f: wheel_ell(h, r, np.array([d[0], d[1], f[0]]), f[1]),
        own=wheel_horizontal(lag).own,
        A=lambda r: array(r[1], [[-r[1], 0], [0, 0]]),
        sigma=lambda r: np.array([[0.0], [1.0]]),
        phi=lambda h, r, d, f: phi(h, *d, *f, r[1] + d[1] / 2),
    )


def wheel_turns():
    """Turns of the wheel once more, as an abelian symmetry: r = (x, y, z), with a multiplier."""
    phi = wheel_phi(0.0)
    return Abelian(
        wheel_problem(),
        [0, 1, 2],
        [3],
        lambda h, r, d, f: wheel_ell(h, r, d, f[0]),
        A=lambda r: np.zeros((1, 3)),
        sigma=lambda r: np.ones((1, 1)),
        phi=lambda h, r, d, f: phi(h, *d, f[0], r[1] + d[1] / 2),
        what=lambda r: array(r[1], [[-r[1], 0, 1]]),
    )


# ---- snakeboard: q = (x, y, theta, psi, phi), the rotor's angle psi relative to the board; turns of psi ---


def snakeboard(m=1.0, board=1.0, rotor=0.5, axle=0.25, arm=1.0):
    """r = (x, y, theta, phi): rotor (f + d_theta) = h mu.  `axle` is the inertia of one of the two."""
    whole = board + 2 * axle + rotor
    mass = np.diag([m, m, whole, rotor, 2 * axle])
    mass[2, 3] = mass[3, 2] = rotor

    def what(r):
        (s, c), (sp, cp) = (np.sin(r[2]), np.cos(r[2])), (np.sin(r[3]), np.cos(r[3]))
        return array(r[2], [[s, -c, 0, 0], [sp * c, sp * s, arm * cp, 0]])

    def forms(t, q):
        (s, c), (sp, cp) = (np.sin(q[2]), np.cos(q[2])), (np.sin(q[4]), np.cos(q[4]))
        return array(q[2], [[0, s, -c, 0, 0, 0], [0, sp * c, sp * s, arm * cp, 0, 0]])

    def ell(h, r, d, f):
        squares = m * (d[0] ** 2 + d[1] ** 2) + (board + 2 * axle) * d[2] ** 2 + 2 * axle * d[3] ** 2
        return (squares + rotor * (f[0] + d[2]) ** 2) / (2 * h)

    drive = 0.7 * arm * np.cos(0.4)
    velocity = np.array([drive * np.cos(0.2), drive * np.sin(0.2), -0.7 * np.sin(0.4), 0.9, 1.0])
    return Horizontal(
        Problem(lambda t, q: mass, forms, np.array([0, 0, 0.2, 0, 0.4]), velocity),
        [0, 1, 2, 4],
        [3],
        ell,
        F=lambda h, mu, r, d: np.array([h * mu[0] / rotor - d[2]]),
        what=what,
        phi=lambda h, r, d, f: np.einsum("ai...,i...->a...", what(r + d / 2), d) / h,
    )


EXAMPLES = {
    "particle": particle,
    "disk": rolling_chaplygin(1.0, lambda xi: 0 * xi),
    "robot": rolling_chaplygin(0.7, np.sin),
    "two wheels": two_wheels(),
    "particle with a wheel": wheel_horizontal(),
    "particle with a wheel, own D_d": wheel_horizontal(0.1),
    "snakeboard": snakeboard(),
    "robot, abelian": robot_abelian(),
    "knife edge": knife_edge(),
    "particle with a wheel, abelian": wheel_abelian(),
    "particle with a wheel, own D_d, abelian": wheel_abelian(0.1),
    "particle with a wheel, turns": wheel_turns(),
    "timed particle": timed_particle(),
    "timed particle, modulated": timed_particle(modulated=0.3),
    "timed particle, affine": timed_particle(rate=0.3),
}
