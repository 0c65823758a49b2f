"""Methods with position constraints, written down once more in plain NumPy: the frame discrete gradient, and RATTLE.

This module is the second road to the numbers of the library and shares no code with it.  Speed does not matter.

Notation: L(q, v) = v . M(q) v / 2 - V(q), forces F(q, v), position constraints c(q) = 0 with the slopes dc(q), and
velocity constraints A(q) v = 0.  The allowed velocities are D_q = ker [A(q); dc(q)].  One step of the frame discrete
gradient from (q0, v0) to (q1, v1), with qb = (q0 + q1)/2 and wb = (w0 + w1)/2, is

    R = [A(qb); DC(q0, q1)],        Bm a basis of ker R, orthonormal for M(qb),
    q1 - q0 = h Bm wb,              w1 - w0 = h (S wb - Bm^T DV(q0, q1) + Bm^T F(qb, Bm wb)),
    v0 = B(q0) w0,                  v1 = B(q1) w1,

where DV and DC are the averages of grad V and of dc on the segment from q0 to q1, and B(q) is the basis of D_q,
orthonormal for M(q), that comes from Bm by projection and the polar factor:

    B(q) = P(q) Bm N^(-1/2),        N = (P Bm)^T M(q) (P Bm),        P(q) the M(q)-orthogonal projector on D_q.

Another orthonormal basis of ker R turns all w alike and leaves q1 and v1 as they are.  DC . (q1 - q0) equals
c(q1) - c(q0) and S is skew, so c and (without forces) the energy v . M v / 2 + V do not change.

All functions of a problem accept complex arguments.

The methods of the section on RATTLE have equations of their own, which stand in their docstrings.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.integrate import solve_ivp

TINY = 1e-30  # complex step
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
NODES, WEIGHTS = (1 + NODES) / 2, WEIGHTS / 2  # Gauss-Legendre on [0, 1]


@dataclass(frozen=True)
class Problem:
    """A mechanical system with n coordinates, m velocity constraints and k position constraints."""

    mass: Callable  # M(q), (n, n)
    mass_derivative: Callable  # (n, n, n), entry [i, j, l] is the derivative of M_ij along q_l
    potential: Callable  # V(q)
    gradient: Callable  # grad V(q), (n,)
    rows: Callable  # A(q), (m, n)
    surface: Callable  # c(q), (k,)
    slopes: Callable  # dc(q), (k, n)
    forces: Callable | None = None  # F(q, v), (n,)


def energy(problem, q, v):
    """v . M(q) v / 2 + V(q)."""
    return v @ problem.mass(q) @ v / 2 + problem.potential(q)


def constraints(problem, q):
    """The rows [A(q); dc(q)], whose kernel is D_q."""
    return np.concatenate([problem.rows(q), problem.slopes(q)])


# ---- the method -------------------------------------------------------------------------------------------


def average(f, q0, q1):
    """The integral of f over s in [0, 1] at the points q0 + s (q1 - q0)."""
    return sum(weight * f(q0 + s * (q1 - q0)) for s, weight in zip(NODES, WEIGHTS, strict=True))


def orthonormal_kernel(rows, M):
    """Some basis of the kernel of the rows, orthonormal for M = U^T U: U^-1 times a basis of ker(rows U^-1)."""
    inverse = np.linalg.inv(np.linalg.cholesky(M).T)
    _, sizes, directions = np.linalg.svd(rows @ inverse)
    rank = np.sum(sizes > 1e-14 * np.max(sizes, initial=0.0))
    return inverse @ directions[rank:].T


def nearest_frame(X, M, B):
    """The basis of the span of X that is orthonormal for M and nearest to B; X itself is orthonormal for M.

    The projection of B is X K, K = X^T M B, and the polar factor of X K is X times the polar factor of K.
    """
    if X.shape[1] != B.shape[1]:
        raise ArithmeticError(f"{X.shape[1]} directions are allowed at an end and {B.shape[1]} at the middle")
    left, _, right = np.linalg.svd(X.T @ M @ B)
    return X @ left @ right


def gyroscopic(B, dM, w):
    """S_ba = sum_d w_d c^d_ab at the middle, c^d_ab = g([X_a, X_b], X_d), X_a the columns of the frame field.

    At its anchor the field has no derivative within D apart from the metric's own: P DP P = 0 and DN = B^T DM B, so
    g(D_u X_b, X_d) = -X_d . (D_u M) X_b / 2.  With v = B w the brackets therefore give

        S_ba = (X_a . (D_{X_b} M) v - X_b . (D_{X_a} M) v) / 2,

    and the derivative of the rows is not needed.
    """
    T = np.einsum("ia,ijl,lb,j->ba", B, dM, B, B @ w) / 2
    return T - T.T


def newton(residual, z):
    """Solve residual(z) = 0 by Newton corrections until they no longer shrink, that is, down to rounding.

    The Jacobian comes from central differences at the guess and is kept.
    """
    spread, last = 1e-6, np.inf
    shifts = spread * np.eye(z.size)
    jacobian = np.stack([(residual(z + d) - residual(z - d)) / (2 * spread) for d in shifts], axis=-1)
    for _ in range(60):
        correction = np.linalg.solve(jacobian, -residual(z))
        z = z + correction
        size = np.max(np.abs(correction)) / max(1.0, np.max(np.abs(z)))
        if size < 1e-12 and size >= last / 2:
            return z
        last = size
    raise ArithmeticError("the Newton iteration does not converge")


def step(problem, q, v, h):
    """One step of the frame discrete gradient from (q, v); returns (q1, v1).

    The unknown is the mean velocity u = (q1 - q)/h.  It determines R, Bm, S and the averages, and the two equations
    of the method together are u = Bm (w0 + (w1 - w0)/2) with wb = Bm^T M(qb) u in the increment w1 - w0.
    """
    M = problem.mass(q)
    X = orthonormal_kernel(constraints(problem, q), M)

    def middle(u):
        """Bm, w0 and w1 - w0 of the step with the mean velocity u."""
        q1, qb = q + h * u, q + h * u / 2
        Mb = problem.mass(qb)
        Bm = orthonormal_kernel(np.concatenate([problem.rows(qb), average(problem.slopes, q, q1)]), Mb)
        B, wb = nearest_frame(X, M, Bm), Bm.T @ Mb @ u
        # B^T M v alone would scale w by 1 + 1e-16 in every step, because B is orthonormal to rounding only.
        w0 = np.linalg.solve(B.T @ M @ B, B.T @ M @ v)
        covector = -average(problem.gradient, q, q1)
        if problem.forces is not None:
            covector = covector + problem.forces(qb, Bm @ wb)
        return Bm, w0, h * (gyroscopic(Bm, problem.mass_derivative(qb), wb) @ wb + Bm.T @ covector)

    def residual(u):
        Bm, w0, increment = middle(u)
        return u - Bm @ (w0 + increment / 2)

    u = newton(residual, v)
    Bm, w0, increment = middle(u)
    q1 = q + h * u
    M1 = problem.mass(q1)
    return q1, nearest_frame(orthonormal_kernel(constraints(problem, q1), M1), M1, Bm) @ (w0 + increment)


# ---- the exact motion -------------------------------------------------------------------------------------


def accelerate(problem, q, v):
    """The acceleration a, from the constraints differentiated down to the level of accelerations:

    M a + M' v - grad_q(v . M(q) v)/2 = -grad V + F + R^T lam,      R a + R' v = 0,      R = [A; dc], ' along v.

    R' comes from a complex step and is exact to rounding.
    """
    M, dM, R = problem.mass(q), problem.mass_derivative(q), constraints(problem, q)
    turning = constraints(problem, q + 1j * TINY * v).imag / TINY @ v
    right = np.einsum("jkl,j,k->l", dM, v, v) / 2 - np.einsum("ijl,j,l->i", dM, v, v) - problem.gradient(q)
    if problem.forces is not None:
        right = right + problem.forces(q, v)
    matrix = np.block([[M, -R.T], [R, np.zeros((R.shape[0], R.shape[0]))]])
    return np.linalg.solve(matrix, np.concatenate([right, -turning]))[: q.size]


def exact(problem, q, v, t):
    """The exact motion (q, v) after the time t, by an explicit Runge-Kutta method of order 8 at high accuracy."""
    n = q.size

    def field(_, z):
        return np.concatenate([z[n:], accelerate(problem, z[:n], z[n:])])

    end = solve_ivp(field, (0.0, t), np.concatenate([q, v]), method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    return end[:n], end[n:]


# ---- RATTLE and SHAKE ---------------------------------------------------------------------------------------


def multipliers(problem, q, v):
    """lam of [A; dc] in the exact motion: M a = M a_free + [A; dc]^T lam, by least squares."""
    n = q.size
    free = replace(problem, rows=lambda q: np.zeros((0, n)), slopes=lambda q: np.zeros((0, n)))
    missing = problem.mass(q) @ (accelerate(problem, q, v) - accelerate(free, q, v))
    return np.linalg.lstsq(constraints(problem, q).T, missing, rcond=None)[0]


def momenta(problem, q0, q1, h, rule):
    """p^- = -D1 L_d and p^+ = D2 L_d for L_d = h L at the middle, or half of it at each end, with v = (q1 - q0)/h."""
    u = (q1 - q0) / h

    def pull(q):
        return np.einsum("jkl,j,k->l", problem.mass_derivative(q), u, u) / 2 - problem.gradient(q)

    if rule == "midpoint":
        qb = (q0 + q1) / 2
        return problem.mass(qb) @ u - h / 2 * pull(qb), problem.mass(qb) @ u + h / 2 * pull(qb)
    p = (problem.mass(q0) + problem.mass(q1)) @ u / 2
    return p - h / 2 * pull(q0), p + h / 2 * pull(q1)


def flight(problem, q, p, h, rule, rows, along):
    """The step with p^- = p + rows^T lam, c(q1) = 0 and along(q1) . (q1 - q0)/h = 0; returns q1 and p^+."""
    n = q.size
    unit = problem.mass(q)  # momenta in units of velocity

    def residual(z):
        u, lam = z[:n], z[n:]
        q1 = q + h * u
        off = momenta(problem, q, q1, h, rule)[0] - p - rows.T @ lam
        return np.concatenate([np.linalg.solve(unit, off), along(q1) @ u, problem.surface(q1) / h])

    guess = np.concatenate([np.linalg.solve(unit, p), np.zeros(len(rows))])
    q1 = q + h * newton(residual, guess)[:n]
    return q1, momenta(problem, q, q1, h, rule)[1]


def variational_step(problem, q, v, h, rule="midpoint"):
    """D1 L_d(q, q1) + M v + [A; dc]^T lam = 0 at q with c(q1) = 0 and A((q + q1)/2) (q1 - q) = 0; v1 = P M^-1 p^+."""
    M, rows = problem.mass(q), constraints(problem, q)
    q1, p = flight(problem, q, M @ v, h, rule, rows, lambda q1: problem.rows((q + q1) / 2))
    return q1, allowed(problem, q1, np.linalg.solve(problem.mass(q1), p))


def on_surface(problem, q, u):
    """The velocity nearest to u that the position constraints alone allow."""
    return allowed(replace(problem, rows=lambda q: np.zeros((0, q.size))), q, u)


def gni_start(problem, q, v, h):
    """v + (h/2) M^-1 A^T lam, without its part normal to the surface."""
    kick = constraints(problem, q).T @ multipliers(problem, q, v)
    return on_surface(problem, q, v + h / 2 * np.linalg.solve(problem.mass(q), kick))


def gni_step(problem, q, u, h, rule="midpoint"):
    """D1 L_d(q, q1) + M u + dc^T mu = 0 with c(q1) = 0; M^-1 p^+ is brought onto the surface and reflected at D.

    Returns q1, the velocity v1 on D, and the method's own velocity u1.
    """
    M = problem.mass(q)
    q1, p = flight(problem, q, M @ u, h, rule, problem.slopes(q), lambda q1: np.zeros((0, q.size)))
    plus = on_surface(problem, q1, np.linalg.solve(problem.mass(q1), p))
    v1 = allowed(problem, q1, plus)
    return q1, v1, 2 * v1 - plus


def dla_step(problem, q, v, h, alpha=0.5, where="ends"):
    """One step of DLA^alpha, or of DLA^{0,1} with the force of the potential at the middle; M is constant.

    u0 = v0 + M^-1 dc(q0)^T mu,     qm = q0 + (1-alpha) h u0,       q1 = qm + alpha h u1,       c(q1) = 0,
    M (u1 - u0) = -h (alpha grad V(q0) + (1-alpha) grad V(q1)) + h A(qm)^T lam,
    v1 = u1 + M^-1 dc(q1)^T nu,     A(q1) v1 = 0,                   dc(q1) v1 = 0.

    All of these are solved at once.  Returns q1, v1, lam and (mu + nu)/h.
    """
    n, M, rows, slopes = q.size, problem.mass(q), problem.rows(q), problem.slopes(q)
    ends = np.cumsum([n, n, n, len(rows), len(slopes)])

    def places(u0, u1):
        qm = q + (1 - alpha) * h * u0
        return qm, qm + alpha * h * u1

    def residual(z):
        u0, u1, v1, lam, mu, nu = np.split(z, ends)
        qm, q1 = places(u0, u1)
        force = alpha * problem.gradient(q) + (1 - alpha) * problem.gradient(q1)
        if where == "middle":
            force = problem.gradient(qm)
        changes = [
            M @ (u0 - v) - slopes.T @ mu,
            M @ (u1 - u0) + h * force - problem.rows(qm).T @ lam,
            M @ (v1 - u1) - problem.slopes(q1).T @ nu,
        ]
        return np.concatenate(
            [
                *(np.linalg.solve(M, x) for x in changes),
                problem.surface(q1) / h,
                constraints(problem, q1) @ v1,
            ]
        )

    guess = np.concatenate([v, v, v, np.zeros(len(rows) + 2 * len(slopes))])
    u0, u1, v1, lam, mu, nu = np.split(newton(residual, guess), ends)
    return places(u0, u1)[1], v1, lam / h, (mu + nu) / h


def rattle_on_circle(gradient, q, p, h):
    """A step of RATTLE for a particle of mass one on |q| = 1, in closed form: the multiplier of a step solves a
    quadratic equation, and that of the momentum a linear one."""
    y = q + h * (p - h / 2 * gradient(q))
    along = y @ q
    q1 = y - (along - np.sqrt(along**2 - y @ y + 1)) * q
    p1 = (q1 - q) / h - h / 2 * gradient(q1)
    return q1, p1 - (p1 @ q1) * q1


def shake_on_circle(gradient, q0, q1, h):
    """The next position of SHAKE for the same particle: q2 - 2 q1 + q0 = -h^2 grad V(q1) - s q1 with |q2| = 1."""
    y = 2 * q1 - q0 - h**2 * gradient(q1)
    along = y @ q1
    return y - (along - np.sqrt(along**2 - y @ y + 1)) * q1


# ---- examples ---------------------------------------------------------------------------------------------


def allowed(problem, q, v):
    """The velocity in D_q that is nearest to v in the kinetic metric."""
    M = problem.mass(q)
    B = orthonormal_kernel(constraints(problem, q), M)
    return B @ (B.T @ M @ v)


def blade_in_bowl():
    """A blade (x, y, z, heading) that slides in the bowl z = 1 - cos(x) cos(y); returns the problem, q0 and v0."""
    M = np.diag([1.0, 1.0, 1.0, 0.1])

    def rows(q):
        return np.array([[-np.sin(q[3]), np.cos(q[3]), 0.0, 0.0]])

    def surface(q):
        return np.array([q[2] - 1 + np.cos(q[0]) * np.cos(q[1])])

    def slopes(q):
        return np.array([[-np.sin(q[0]) * np.cos(q[1]), -np.cos(q[0]) * np.sin(q[1]), 1.0, 0.0]])

    problem = Problem(
        mass=lambda q: M,
        mass_derivative=lambda q: np.zeros((4, 4, 4)),
        potential=lambda q: 9.8 * q[2],
        gradient=lambda q: np.array([0.0, 0.0, 9.8, 0.0]),
        rows=rows,
        surface=surface,
        slopes=slopes,
    )
    q0 = np.array([1.0, 0.0, 1 - np.cos(1.0), 0.3])
    v0 = 0.8 * np.array([np.cos(0.3), np.sin(0.3), np.sin(1.0) * np.cos(0.3), 0.0]) + np.array(
        [0.0, 0.0, 0.0, 1.1]
    )
    return problem, q0, v0


def varying_mass():
    """Five coordinates, a metric that depends on four of them, two surfaces and one one-form, so dim D = 2.

    M = diag(1, 1.2, 0.8, 1.5, 0.6) + a a^T,        a = (sin q1, cos q2, q0/2, 0.3, sin q3),
    V = q0^2/2 + q1^2 + cos(q2) + q3 q4,            (cos q3, sin q3, 0.4 q1, 0, 0.5) . v = 0,
    c = (q2 - 0.3 q0^2 - 0.2 sin q1, q3^2 + q4^2 + 0.2 sin q0 - 1).

    Returns the problem, q0 and v0.
    """
    diagonal = np.diag([1.0, 1.2, 0.8, 1.5, 0.6])

    def vector(q):
        return np.array([np.sin(q[1]), np.cos(q[2]), q[0] / 2, 0.3, np.sin(q[3])])

    def mass(q):
        return diagonal + np.outer(vector(q), vector(q))

    def mass_derivative(q):
        a, da = vector(q), np.zeros((5, 5), dtype=q.dtype)
        da[0, 1], da[1, 2], da[2, 0], da[4, 3] = np.cos(q[1]), -np.sin(q[2]), 0.5, np.cos(q[3])
        return np.einsum("il,j->ijl", da, a) + np.einsum("i,jl->ijl", a, da)

    def surface(q):
        first = q[2] - 0.3 * q[0] ** 2 - 0.2 * np.sin(q[1])
        return np.array([first, q[3] ** 2 + q[4] ** 2 + 0.2 * np.sin(q[0]) - 1])

    def slopes(q):
        first = [-0.6 * q[0], -0.2 * np.cos(q[1]), 1.0, 0.0, 0.0]
        return np.array([first, [0.2 * np.cos(q[0]), 0.0, 0.0, 2 * q[3], 2 * q[4]]])

    problem = Problem(
        mass=mass,
        mass_derivative=mass_derivative,
        potential=lambda q: q[0] ** 2 / 2 + q[1] ** 2 + np.cos(q[2]) + q[3] * q[4],
        gradient=lambda q: np.array([q[0], 2 * q[1], -np.sin(q[2]), q[4], q[3]]),
        rows=lambda q: np.array([[np.cos(q[3]), np.sin(q[3]), 0.4 * q[1], 0.0, 0.5]]),
        surface=surface,
        slopes=slopes,
    )
    q0 = np.array([0.6, -0.4, 0.3 * 0.6**2 + 0.2 * np.sin(-0.4), 0.5, np.sqrt(0.75 - 0.2 * np.sin(0.6))])
    return problem, q0, allowed(problem, q0, np.array([0.7, -0.5, 0.2, 0.9, 0.4]))


def pendulum_pair():
    """A spherical double pendulum in Cartesian coordinates, without velocity constraints; dim D = 4.

    The masses 1 and 0.7 hang at q[:3] and q[3:] on rods of the lengths 1 and 0.8, under the gravity 9.8:

    c = (|q[:3]|^2 - 1, |q[3:] - q[:3]|^2 - 0.64) / 2.

    Returns the problem, q0 and v0.
    """
    masses = np.array([1.0, 1.0, 1.0, 0.7, 0.7, 0.7])

    def surface(q):
        upper, lower = q[:3], q[3:] - q[:3]
        return np.array([upper @ upper - 1.0, lower @ lower - 0.64]) / 2

    def slopes(q):
        upper, lower = q[:3], q[3:] - q[:3]
        return np.array([np.concatenate([upper, np.zeros(3)]), np.concatenate([-lower, lower])])

    problem = Problem(
        mass=lambda q: np.diag(masses),
        mass_derivative=lambda q: np.zeros((6, 6, 6)),
        potential=lambda q: 9.8 * (q[2] + 0.7 * q[5]),
        gradient=lambda q: np.array([0.0, 0.0, 9.8, 0.0, 0.0, 6.86]),
        rows=lambda q: np.zeros((0, 6)),
        surface=surface,
        slopes=slopes,
    )
    q0 = np.array([0.6, 0.0, -0.8, 0.6, 0.48, -1.44])
    return problem, q0, allowed(problem, q0, np.array([0.3, 0.9, 0.2, -0.5, 0.4, 0.6]))
