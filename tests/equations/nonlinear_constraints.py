"""The discrete gradient for nonlinear constraints, written down once more in plain NumPy.

This module is the second road to the numbers of the library and shares no code with it.  Speed does not matter.

With L(q, v) = v . M(q) v / 2 - V(q) and constraints f(q, v) = 0 (k functions), one step from (q0, v0) is

    qb = (q0 + q1)/2,  u = (q1 - q0)/h = B wb,  wb = (w0 + w1)/2,  B an orthonormal basis for M(qb),
    R = df/dv(qb, u),  r(q, v) = df/dv(q, v) v,  R1 = R - (R u - (r(q0, v0) + r(q1, v1))/2) (M u)^T / (u . M u),
    w1 - w0 = h (S wb + B^T (R1^T lam - DV)),   f(q1, v1) = 0,   v_i = B_i w_i,

where DV is the average of grad V on the segment, S is that of `position_constraints`, and the bases at the ends are
B (B^T M(q_i) B)^(-1/2).  With `plain`, R itself takes the place of R1: that is the method without its point.

All functions of a problem accept complex arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from equations.position_constraints import TINY, average, gyroscopic, newton
from scipy.integrate import solve_ivp


@dataclass(frozen=True)
class Problem:
    """A mechanical system with n coordinates and k constraints."""

    mass: Callable  # M(q), (n, n)
    mass_derivative: Callable  # (n, n, n), entry [i, j, l] is the derivative of M_ij along q_l
    potential: Callable  # V(q)
    gradient: Callable  # grad V(q), (n,)
    constraint: Callable  # f(q, v), (k,)


def by_velocity(problem, q, v):
    """df/dv, by complex steps."""
    steps = np.eye(len(v)) * 1j * TINY
    return np.stack([problem.constraint(q, v + e).imag / TINY for e in steps], axis=1)


def energy(problem, q, v):
    """v . M(q) v / 2 + V(q)."""
    return v @ problem.mass(q) @ v / 2 + problem.potential(q)


def power(problem, q, v):
    """r(q, v)."""
    return by_velocity(problem, q, v) @ v


def end_basis(M, B):
    """B (B^T M B)^(-1/2)."""
    sizes, vectors = np.linalg.eigh(B.T @ M @ B)
    return B @ vectors @ np.diag(sizes**-0.5) @ vectors.T


def step(problem, q, v, h, plain=False):
    """One step from (q, v); returns (q1, v1, lam)."""
    n = len(q)

    def end(u):
        """B, w0, q1 and v1 of the step with the mean velocity u."""
        qb, q1 = q + h * u / 2, q + h * u
        M = problem.mass(qb)
        B = np.linalg.inv(np.linalg.cholesky(M)).T
        B0 = end_basis(problem.mass(q), B)
        w0 = np.linalg.solve(B0, v)
        w1 = 2 * B.T @ M @ u - w0
        return B, M, w0, w1, q1, end_basis(problem.mass(q1), B) @ w1

    def residual(z):
        u, lam = z[:n], z[n:]
        B, M, w0, w1, q1, v1 = end(u)
        qb = q + h * u / 2
        R = by_velocity(problem, qb, u)
        if not plain:
            excess = R @ u - (power(problem, q, v) + power(problem, q1, v1)) / 2
            R = R - np.outer(excess, M @ u) / (u @ M @ u)
        wb = B.T @ M @ u
        push = R.T @ lam - average(problem.gradient, q, q1)
        turning = gyroscopic(B, problem.mass_derivative(qb), wb) @ wb
        return np.concatenate([w1 - w0 - h * (turning + B.T @ push), problem.constraint(q1, v1)])

    acceleration, lam = accelerate(problem, q, v)
    z = newton(residual, np.concatenate([v + h * acceleration / 2, lam]))
    _, _, _, _, q1, v1 = end(z[:n])
    return q1, v1, z[n:]


def accelerate(problem, q, v):
    """The acceleration and the multipliers, from M a + M' v - grad(v . M v)/2 = -grad V + (df/dv)^T lam, df/dt = 0."""
    M, dM, R = problem.mass(q), problem.mass_derivative(q), by_velocity(problem, q, v)
    turning = problem.constraint(q + 1j * TINY * v, v).imag / TINY
    right = np.einsum("jkl,j,k->l", dM, v, v) / 2 - np.einsum("ijl,j,l->i", dM, v, v) - problem.gradient(q)
    matrix = np.block([[M, -R.T], [R, np.zeros((len(R), len(R)))]])
    found = np.linalg.solve(matrix, np.concatenate([right, -turning]))
    return found[: len(q)], found[len(q) :]


def exact(problem, q, v, t):
    """The exact motion (q, v) after the time t."""
    n = len(q)

    def field(_, z):
        return np.concatenate([z[n:], accelerate(problem, z[:n], z[n:])[0]])

    end = solve_ivp(field, (0.0, t), np.concatenate([q, v]), method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    return end[:n], end[n:]


# ---- examples ---------------------------------------------------------------------------------------------


def cone():
    """Three coordinates, unit masses, V = 0.3 cos(x) + 0.2 sin(y + z), z'^2 = (0.5 + 0.1 sin x) (x'^2 + y'^2)."""
    problem = Problem(
        mass=lambda q: np.eye(3),
        mass_derivative=lambda q: np.zeros((3, 3, 3)),
        potential=lambda q: 0.3 * np.cos(q[0]) + 0.2 * np.sin(q[1] + q[2]),
        gradient=lambda q: np.array(
            [-0.3 * np.sin(q[0]), 0.2 * np.cos(q[1] + q[2]), 0.2 * np.cos(q[1] + q[2])]
        ),
        constraint=lambda q, v: np.array([v[2] ** 2 - (0.5 + 0.1 * np.sin(q[0])) * (v[0] ** 2 + v[1] ** 2)]),
    )
    q0 = np.array([0.1, 0.2, 0.3])
    return problem, q0, np.array([1.2, 0.9, np.sqrt((0.5 + 0.1 * np.sin(0.1)) * (1.2**2 + 0.9**2))])


def two_constraints():
    """Four coordinates with a metric that depends on q, a linear constraint and a cone:

    M = diag(1, 1.2, 0.8, 1.5) + a a^T,  a = (sin(q1)/2, cos(q2)/2, 0.3, sin(q0)/3),  V = 0.3 cos(q0) + 0.2 sin(q3),
    q3' = 0.4 cos(q0) q1',  q2' = (0.4 + 0.1 cos(q1)) sqrt(q0'^2 + q1'^2 + q3'^2).
    """

    def vector(q):
        return np.array([np.sin(q[1]) / 2, np.cos(q[2]) / 2, 0.3 + 0 * q[0], np.sin(q[0]) / 3])

    def mass_derivative(q):
        a, da = vector(q), np.zeros((4, 4), dtype=q.dtype)
        da[0, 1], da[1, 2], da[3, 0] = np.cos(q[1]) / 2, -np.sin(q[2]) / 2, np.cos(q[0]) / 3
        return np.einsum("il,j->ijl", da, a) + np.einsum("i,jl->ijl", a, da)

    def constraint(q, v):
        speed = np.sqrt(v[0] ** 2 + v[1] ** 2 + v[3] ** 2)
        return np.array([v[3] - 0.4 * np.cos(q[0]) * v[1], v[2] - (0.4 + 0.1 * np.cos(q[1])) * speed])

    problem = Problem(
        mass=lambda q: np.diag([1.0, 1.2, 0.8, 1.5]) + np.outer(vector(q), vector(q)),
        mass_derivative=mass_derivative,
        potential=lambda q: 0.3 * np.cos(q[0]) + 0.2 * np.sin(q[3]),
        gradient=lambda q: np.array([-0.3 * np.sin(q[0]), 0.0, 0.0, 0.2 * np.cos(q[3])]),
        constraint=constraint,
    )
    q0 = np.array([0.3, -0.2, 0.1, 0.4])
    v = np.array([1.1, 0.8, 0.0, 0.4 * np.cos(0.3) * 0.8])
    v[2] = (0.4 + 0.1 * np.cos(0.2)) * np.sqrt(v[0] ** 2 + v[1] ** 2 + v[3] ** 2)
    return problem, q0, v


def set_speed():
    """Two coordinates with M = diag(1 + y^2/4, 1), V = 0.4 sin(x), and the speed x'^2 + y'^2 = 1 + 0.2 sin(x): this
    constraint is not homogeneous, and its reaction does work."""

    def mass_derivative(q):
        dM = np.zeros((2, 2, 2), dtype=q.dtype)
        dM[0, 0, 1] = q[1] / 2
        return dM

    problem = Problem(
        mass=lambda q: np.diag([1 + q[1] ** 2 / 4, 1.0 + 0 * q[0]]),
        mass_derivative=mass_derivative,
        potential=lambda q: 0.4 * np.sin(q[0]),
        gradient=lambda q: np.array([0.4 * np.cos(q[0]), 0.0]),
        constraint=lambda q, v: np.array([v[0] ** 2 + v[1] ** 2 - 1 - 0.2 * np.sin(q[0])]),
    )
    q0 = np.array([0.5, 0.3])
    return problem, q0, np.sqrt(1 + 0.2 * np.sin(0.5)) * np.array([np.cos(0.8), np.sin(0.8)])
