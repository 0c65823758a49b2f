"""Geometric nonholonomic integrators and discrete Lagrange-d'Alembert in plain NumPy, from discrete Lagrangians.

A second road to the numbers of the library, with which this module shares no code.  Nothing is derived by hand:
a problem is L(q, v) = v . M(q) v / 2 - V(q) with one-forms mu(q), a discrete Lagrangian is a plain function
Ld(problem, q0, q1, h) scaled like the action, and all derivatives (D1 Ld, D2 Ld, dL/dq, dM, dmu) are complex
steps, exact to rounding.  Implicit equations go, as they stand, to a Newton iteration run down to rounding.

Notation: p+ = D2 Ld(q_{k-1}, q_k) and p- = -D1 Ld(q_k, q_{k+1}), both covectors at q_k.  Multipliers:
continuous  d/dt dL/dv - dL/dq = mu^T lam,  discrete  D1 Ld + D2 Ld = mu^T lam_d  (so lam_d is about -h lam).

Sources: S. Ferraro, D. Iglesias, D. Martin de Diego (geometric nonholonomic integrators);
J. Cortes and S. Martinez (discrete Lagrange-d'Alembert).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

TINY = 1e-30  # complex step: no subtraction, hence no cancellation
ARM = 0.2  # distance of the sleigh's centre of mass from its contact point


# ---- tools ------------------------------------------------------------------------------------------------


def derivative(f, z, direction):
    """Directional derivative of an analytic f at the real point z, by a complex step."""
    return np.imag(f(z + 1j * TINY * np.asarray(direction))) / TINY


def gradient(f, z):
    """All partial derivatives of an analytic scalar f at the real point z."""
    return np.array([derivative(f, z, e) for e in np.eye(z.size)])


def newton(residual, z):
    """Solve residual(z) = 0 until the corrections no longer shrink; the Jacobian is by central differences.

    It is taken at the guess and after the first correction, and kept from then on.
    """
    last, d = np.inf, 1e-5
    for i in range(60):
        if i < 2:
            columns = [(residual(z + d * e) - residual(z - d * e)) / (2 * d) for e in np.eye(z.size)]
            jacobian = np.stack(columns, axis=-1)
        correction = np.linalg.solve(jacobian, residual(z))
        size = np.abs(correction).max()
        if i >= 3 and size >= last:
            return z
        z, last = z - correction, size
    raise ArithmeticError("Newton did not settle")


# ---- problems ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """M(q), V(q), mu(q) (rows are one-forms), a start on the constraint, and symmetries.

    A symmetry is a pair (section, generator): section(q) is in the Lie algebra, generator(xi, q) is xi_Q(q).
    """

    mass: Callable
    forms: Callable
    q0: np.ndarray
    v0: np.ndarray
    potential: Callable = lambda q: 0.0 * q[0]
    symmetries: dict = field(default_factory=dict)

    def lagrangian(self, q, v):
        """Kinetic minus potential energy; accepts complex arguments."""
        return v @ self.mass(q) @ v / 2 - self.potential(q)

    def energy(self, q, v):
        """Kinetic plus potential energy."""
        return v @ self.mass(q) @ v / 2 + self.potential(q)

    def projectors(self, q):
        """P and Q = 1 - P: Q = M^-1 mu^T (mu M^-1 mu^T)^-1 mu, orthogonal in the kinetic metric."""
        mu = self.forms(q)
        z = np.linalg.solve(self.mass(q), mu.T)
        out = z @ np.linalg.solve(mu @ z, mu)
        return np.eye(q.size) - out, out

    def multiplier(self, q, v):
        """Multiplier and acceleration of the index-reduced equations at (q, v).

        M a - mu^T lam = dL/dq - (dM v) v  and  mu a = -(dmu v) v.
        """
        mu, n = self.forms(q), q.size
        force = gradient(lambda z: self.lagrangian(z, v), q) - derivative(self.mass, q, v) @ v
        matrix = np.block([[self.mass(q), -mu.T], [mu, np.zeros((len(mu), len(mu)))]])
        solution = np.linalg.solve(matrix, np.concatenate([force, -derivative(self.forms, q, v) @ v]))
        return solution[n:], solution[:n]


def particle(harmonic=False):
    """Particle with z' = y x'; free, or V = (x^2 + y^2) / 2 with another start."""
    symmetries = {"xz": (lambda q: np.array([1.0, q[1]]), lambda xi, q: np.array([xi[0], 0.0, xi[1]]))}
    mass, forms = (lambda q: np.eye(3)), (lambda q: np.array([[-q[1], 0.0, 1.0]]))
    if harmonic:
        return Problem(
            mass,
            forms,
            np.array([1, 0.6, 0.5]),
            np.array([1, 0.5, 0.6]),
            lambda q: (q[0] ** 2 + q[1] ** 2) / 2,
        )
    return Problem(mass, forms, np.array([1, -2, 0.5]), np.array([1, 0.5, -2.0]), symmetries=symmetries)


def sleigh_contact(u0=-1.2, w0=0.288, a=ARM):
    """Chaplygin sleigh, contact point and heading; m = I = 1, I about the centre of mass."""

    def mass(q):
        s, c = np.sin(q[2]), np.cos(q[2])
        return np.array([[1, 0, -a * s], [0, 1, a * c], [-a * s, a * c, 1 + a * a]])

    symmetries = {
        "se2": (
            lambda q: np.array([np.cos(q[2]) + q[1], np.sin(q[2]) - q[0], 1.0]),
            lambda xi, q: np.array([xi[0] - xi[2] * q[1], xi[1] + xi[2] * q[0], xi[2]]),
        )
    }
    forms = lambda q: np.array([[np.sin(q[2]), -np.cos(q[2]), 0.0 * q[2]]])
    return Problem(mass, forms, np.zeros(3), np.array([u0, 0.0, w0]), symmetries=symmetries)


def sleigh_centre(u0=-1.2, w0=0.288, a=ARM):
    """The same sleigh in the coordinates of its centre of mass, where M = 1."""
    forms = lambda q: np.array([[np.sin(q[2]), -np.cos(q[2]), a + 0.0 * q[2]]])
    return Problem(lambda q: np.eye(3), forms, np.array([a, 0.0, 0.0]), np.array([u0, a * w0, w0]))


def snakeboard(relative=True, q0=(0.1, -0.2, 0.3, 0.0, 0.4), rates=(0.7, 0.9, 0.5)):
    """Snakeboard (x, y, theta, psi, phi); m = board inertia = r = 1, rotor 1/2, each wheel axle 1/4.

    rates = (s, psi', phi') give the start s X + psi' d_psi + phi' d_phi.  `relative` says whether phi is measured
    from the board (final paper) or from the x axis (preprint): two different systems.
    """

    def direction(q):
        steer = q[4] if relative else q[4] - q[2]
        return np.cos(q[2]) * np.cos(steer), np.sin(q[2]) * np.cos(steer), -np.sin(steer), np.cos(steer)

    def forms(q):
        _, _, c, drive = direction(q)
        s, k, o = np.sin(q[2]), np.cos(q[2]), 0.0 * q[0]
        return np.array([[s, -k, o, o, o], [-c * k, -c * s, drive, o, o]])

    def section(q):
        a, b, c, _ = direction(q)
        return np.array([a + c * q[1], b - c * q[0], c])

    symmetries = {
        "se2": (section, lambda xi, q: np.array([xi[0] - xi[2] * q[1], xi[1] + xi[2] * q[0], xi[2], 0, 0])),
        "psi": (lambda q: np.ones(1), lambda xi, q: np.array([0, 0, 0, xi[0], 0])),
        "phi": (lambda q: np.ones(1), lambda xi, q: np.array([0, 0, 0, 0, xi[0]])),
    }
    q0 = np.array(q0)
    v0 = np.concatenate([rates[0] * np.array(direction(q0)[:3]), rates[1:]])
    return Problem(lambda q: np.diag([1, 1, 1.5, 0.5, 0.5]), forms, q0, v0, symmetries=symmetries)


def disk(q0=(0.3, -0.2, 0.1, 0.4), rates=(1.1, 0.7)):
    """Rolling disk (x, y, theta roll, phi heading), everything 1; rates = (theta', phi')."""

    def forms(q):
        o = 0.0 * q[0]
        return np.array([[1 + o, o, -np.cos(q[3]), o], [o, 1 + o, -np.sin(q[3]), o]])

    symmetries = {
        "roll": (
            lambda q: np.array([np.cos(q[3]), np.sin(q[3]), 1.0]),
            lambda xi, q: np.array([xi[0], xi[1], xi[2], 0]),
        ),
        "heading": (lambda q: np.ones(1), lambda xi, q: np.array([0, 0, 0, xi[0]])),
    }
    q0 = np.array(q0)
    v0 = np.array([rates[0] * np.cos(q0[3]), rates[0] * np.sin(q0[3]), *rates])
    return Problem(lambda q: np.eye(4), forms, q0, v0, symmetries=symmetries)


# ---- discrete Lagrangians ---------------------------------------------------------------------------------


def symmetrised(alpha):
    """Ld = h/2 (L(q_alpha, v) + L(q_{1-alpha}, v)) with v = (q1 - q0) / h."""

    def rule(problem, q0, q1, h):
        v = (q1 - q0) / h
        qa, qb = (1 - alpha) * q0 + alpha * q1, alpha * q0 + (1 - alpha) * q1
        return h * (problem.lagrangian(qa, v) + problem.lagrangian(qb, v)) / 2

    return rule


midpoint = symmetrised(0.5)
trapezoidal = symmetrised(0.0)


def d1(problem, ld, q0, q1, h):
    """D1 Ld(q0, q1) = -p-, a covector at q0."""
    return gradient(lambda z: ld(problem, z, q1, h), q0)


def d2(problem, ld, q0, q1, h):
    """D2 Ld(q0, q1) = p+, a covector at q1."""
    return gradient(lambda z: ld(problem, q0, z, h), q1)


def fly(problem, ld, q, p, h, guess):
    """The free flight: x with -D1 Ld(q, x) = p."""
    return newton(lambda x: d1(problem, ld, q, x, h) + p, guess)


# ---- the geometric nonholonomic integrator ----------------------------------------------------------------


def gni_start(problem, ld, q0, v0, h, mode="half-kick"):
    """q1 from p- = M v0 + (h/2) mu^T lam ("half-kick") or p- = M v0 ("momentum")."""
    p = problem.mass(q0) @ v0
    if mode == "half-kick":
        p = p + h / 2 * problem.forms(q0).T @ problem.multiplier(q0, v0)[0]
    elif mode != "momentum":
        raise ValueError(mode)
    return fly(problem, ld, q0, p, h, q0 + h * v0)


def gni_step(problem, ld, q_prev, q, h):
    """(q_next, p+, p-) with p+ = D2 Ld(q_prev, q), p- = p+ - 2 Q^T p+, -D1 Ld(q, q_next) = p-."""
    p_plus = d2(problem, ld, q_prev, q, h)
    p_minus = p_plus - 2 * problem.projectors(q)[1].T @ p_plus
    return fly(problem, ld, q, p_minus, h, 2 * q - q_prev), p_plus, p_minus


# ---- discrete Lagrange-d'Alembert -------------------------------------------------------------------------


def dla_solve(problem, ld, alpha, q, p, h, guess):
    """(x, lam): -D1 Ld(q, x) = p - mu(q)^T lam and mu(q_alpha)(x - q) / h = 0, q_alpha = (1-alpha) q + alpha x."""
    n, mu = q.size, problem.forms(q)

    def residual(z):
        x, lam = z[:n], z[n:]
        balance = d1(problem, ld, q, x, h) + p - mu.T @ lam
        return np.concatenate([balance, problem.forms((1 - alpha) * q + alpha * x) @ (x - q) / h])

    z = newton(residual, np.concatenate([guess, np.zeros(len(mu))]))
    return z[:n], z[n:]


def dla_start(problem, ld, alpha, q0, v0, h):
    """q1 with -D1 Ld(q0, q1) = M v0 + mu(q0)^T x for some x, on the discrete constraint."""
    return dla_solve(problem, ld, alpha, q0, problem.mass(q0) @ v0, h, q0 + h * v0)[0]


def dla_step(problem, ld, alpha, q_prev, q, h):
    """(q_next, lam) with D1 Ld(q, q_next) + D2 Ld(q_prev, q) = mu(q)^T lam, on the discrete constraint."""
    return dla_solve(problem, ld, alpha, q, d2(problem, ld, q_prev, q, h), h, 2 * q - q_prev)


# ---- runs and what is measured on them --------------------------------------------------------------------


def run(problem, h, steps, method="gni", ld=midpoint, alpha=0.5, start="half-kick", q1=None):
    """Arrays q, v, own with rows k = 0 .. steps: positions, P(q_k) M^-1 p+_k and M^-1 p-_k.

    P M^-1 p+ = P M^-1 p- for both methods, and the latter is used, since it exists at k = 0 as well.
    `start` matters for "gni" only; q1, where given, replaces the starting procedure.
    """
    q0, v0 = problem.q0, problem.v0
    if q1 is None and method == "gni":
        q1 = gni_start(problem, ld, q0, v0, h, start)
    elif q1 is None:
        q1 = dla_start(problem, ld, alpha, q0, v0, h)
    q = [q0, np.asarray(q1)]
    for _ in range(steps):
        args = (alpha, q[-2], q[-1], h) if method == "dla" else (q[-2], q[-1], h)
        q.append((dla_step if method == "dla" else gni_step)(problem, ld, *args)[0])
    own = [np.linalg.solve(problem.mass(x), -d1(problem, ld, x, y, h)) for x, y in pairwise(q)]
    q = np.array(q[:-1])
    return q, np.array([problem.projectors(x)[0] @ w for x, w in zip(q, own, strict=True)]), np.array(own)


def momentum(problem, ld, name, q0, q1, h, section_at=None):
    """J = <D2 Ld(q0, q1), xi_Q(q1)>, xi the section `name` taken at q1, or at `section_at`."""
    section, generator = problem.symmetries[name]
    xi = section(q1 if section_at is None else section_at)
    return d2(problem, ld, q0, q1, h) @ generator(xi, q1)


def momentum_residual(problem, ld, name, q_prev, q, q_next, h):
    """J(q, q_next) - J(q_prev, q) - <D2 Ld(q, q_next), (xi(q_next) - xi(q))_Q(q_next)>, zero for invariant Ld."""
    now = momentum(problem, ld, name, q, q_next, h)
    shift = now - momentum(problem, ld, name, q, q_next, h, section_at=q)
    return now - momentum(problem, ld, name, q_prev, q, h) - shift
