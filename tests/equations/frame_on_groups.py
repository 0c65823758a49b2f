"""The frame discrete gradient on SO(3) x R^k, written down once more in plain NumPy.

This module is the second road to the numbers of the library and shares no code with it.  Speed does not matter.

A configuration is g = (R, x), its velocity is xi = (w, u) with R' = R hat(w) and x' = u, and g exp(y) is moved(g, y).
With the inertia M(g), the potential V, position constraints c(g) = 0 and one-forms A(g) xi = 0, one step is

    gb = g0 exp(h u/2),  g1 = gb exp(h u/2),  u = Bm wb,  wb = (w0 + w1)/2,
    Bm a basis of the kernel of [A(gb); DC], orthonormal for M(gb),
    w1 - w0 = h (S wb - Bm^T DV),
    S_cb = sum_a w_a <M X_a, [X_b, X_c]> + (X_b . (D_{X_c} M) v - X_c . (D_{X_b} M) v) / 2,   v = Bm wb,

where X_a are the columns of Bm, derivatives along a velocity X are those of y -> f(g exp(y X)), and DV and DC are the
averages of the derivatives of V and c along y = s h u, -1/2 <= s <= 1/2; with `gonzalez`, DV is the derivative at gb
with a multiple of M h u added that makes <DV, h u> = V(g1) - V(g0).  The frames at the ends are the orthonormal ones
nearest to Bm.  The library solves the same equations by other means.

All functions of a problem accept complex arguments, so that derivatives come from complex steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from equations.position_constraints import NODES, TINY, WEIGHTS, nearest_frame, newton, orthonormal_kernel
from scipy.integrate import solve_ivp
from scipy.linalg import expm


@dataclass(frozen=True)
class Problem:
    """A body on SO(3) x R^k, whose velocities have n = 3 + k components; g is the pair (R, x)."""

    mass: Callable  # M(g), (n, n)
    potential: Callable  # V(g)
    rows: Callable  # A(g), (m, n)
    surface: Callable  # c(g), (k,)


def hat(w):
    """The matrix of the cross product with w."""
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def bracket(a, b):
    """[a, b] of the algebra: the cross product of the angular velocities, and zero on R^k."""
    return np.concatenate([np.cross(a[:3], b[:3]), np.zeros(len(a) - 3)])


def moved(g, y):
    """g exp(y)."""
    return g[0] @ expm(hat(y[:3])), g[1] + y[3:]


def element(q):
    """The pair of an array of 9 + k numbers."""
    return q[:9].reshape(3, 3), q[9:]


def derivative(f, g, y=None):
    """The derivatives of y -> f(g exp(y)), the last axis being the direction; at y = 0 by default."""
    n = 3 + len(g[1])
    y = np.zeros(n) if y is None else y
    return np.stack([f(moved(g, y + 1j * TINY * e)).imag / TINY for e in np.eye(n)], axis=-1)


def energy(problem, g, v):
    """v . M(g) v / 2 + V(g)."""
    return v @ problem.mass(g) @ v / 2 + problem.potential(g)


def constraints(problem, g):
    """[A(g); dc(g)], whose kernel is D_g."""
    return np.concatenate([problem.rows(g), derivative(problem.surface, g)])


def along(f, middle, y):
    """The average of the derivative of f on the segment from middle exp(-y/2) to middle exp(y/2)."""
    pairs = zip(NODES, WEIGHTS, strict=True)
    return sum(weight * derivative(f, middle, (s - 0.5) * y) for s, weight in pairs)


def gyroscopic(B, M, dM, w):
    """S of the head of this module."""
    v, r = B @ w, B.shape[1]
    S = np.zeros((r, r))
    for c in range(r):
        for b in range(r):
            first, second = B[:, b], B[:, c]
            S[c, b] = (M @ v) @ bracket(first, second)
            S[c, b] += (first @ (dM @ second) @ v - second @ (dM @ first) @ v) / 2
    return S


def slope(problem, middle, y, gradient):
    """DV on the step with the displacement y."""
    if gradient == "average":
        return along(problem.potential, middle, y)
    here, M = derivative(problem.potential, middle), problem.mass(middle)
    change = problem.potential(moved(middle, y / 2)) - problem.potential(moved(middle, -y / 2))
    return here + M @ y * ((change - here @ y) / (y @ M @ y))


def step(problem, g, v, h, gradient="average"):
    """One step from (g, v); returns (g1, v1)."""
    M = problem.mass(g)
    X = orthonormal_kernel(constraints(problem, g), M)

    def middle(u):
        """Bm, w0 and w1 - w0 of the step with the velocity u."""
        gb = moved(g, h * u / 2)
        Mb = problem.mass(gb)
        rows = np.concatenate([problem.rows(gb), along(problem.surface, gb, h * u)])
        Bm = orthonormal_kernel(rows, Mb)
        B, wb = nearest_frame(X, M, Bm), Bm.T @ Mb @ u
        w0 = np.linalg.solve(B.T @ M @ B, B.T @ M @ v)
        turning = gyroscopic(Bm, Mb, derivative(problem.mass, gb), wb) @ wb
        return Bm, w0, h * (turning - Bm.T @ slope(problem, gb, h * u, gradient))

    def residual(u):
        Bm, w0, increment = middle(u)
        return u - Bm @ (w0 + increment / 2)

    u = newton(residual, v)
    Bm, w0, increment = middle(u)
    g1 = moved(g, h * u)
    M1 = problem.mass(g1)
    return g1, nearest_frame(orthonormal_kernel(constraints(problem, g1), M1), M1, Bm) @ (w0 + increment)


def accelerate(problem, g, v):
    """The acceleration from M a + (D_v M) v - grad(v.M v)/2 = ad_v^T M v - dV + R^T lam, R a + (D_v R) v = 0."""
    M, dM, R = problem.mass(g), derivative(problem.mass, g), constraints(problem, g)
    # The rows of R contain derivatives by complex steps, so this one is by differences: error 1e-10 in (D_v R) v.
    e = 1e-3
    near = [constraints(problem, moved(g, k * e * v)) @ v for k in (-2, -1, 1, 2)]
    turning = (near[0] - 8 * near[1] + 8 * near[2] - near[3]) / (12 * e)
    ad = np.stack([bracket(v, b) for b in np.eye(len(v))], axis=1)
    right = np.einsum("jkl,j,k->l", dM, v, v) / 2 - np.einsum("ijl,j,l->i", dM, v, v)
    right = right + ad.T @ M @ v - derivative(problem.potential, g)
    matrix = np.block([[M, -R.T], [R, np.zeros((len(R), len(R)))]])
    return np.linalg.solve(matrix, np.concatenate([right, -turning]))[: len(v)]


def exact(problem, g, v, t):
    """The exact motion (g, v) after the time t."""
    n = 9 + len(g[1])

    def field(_, z):
        here, xi = element(z[:n]), z[n:]
        turned = (here[0] @ hat(xi[:3])).ravel()
        return np.concatenate([turned, xi[3:], accelerate(problem, here, xi)])

    z = np.concatenate([g[0].ravel(), g[1], v])
    end = solve_ivp(field, (0.0, t), z, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    return element(end[:n]), end[n:]


# ---- examples ---------------------------------------------------------------------------------------------

TURNED = expm(hat([0.4, -0.3, 0.5]))


def allowed(problem, g, v):
    """The velocity in D_g that is nearest to v in the kinetic metric."""
    M = problem.mass(g)
    B = orthonormal_kernel(constraints(problem, g), M)
    return B @ (B.T @ M @ v)


def heavy_body():
    """SO(3): inertia diag(1, 1.7, 2.3), V = (R^T e3) . (0.3, -0.2, 0.9), and a one-form that is invariant on neither
    side, a = R^T (0.6, 0, 0.8) + (0.3, -0.5, 0.2)."""
    problem = Problem(
        mass=lambda g: np.diag([1.0, 1.7, 2.3]),
        potential=lambda g: g[0][2] @ np.array([0.3, -0.2, 0.9]),
        rows=lambda g: (g[0].T @ np.array([0.6, 0.0, 0.8]) + np.array([0.3, -0.5, 0.2]))[None],
        surface=lambda g: np.zeros(0),
    )
    g = (TURNED, np.zeros(0))
    return problem, g, allowed(problem, g, np.array([0.8, -0.5, 1.1]))


def varying_inertia():
    """SO(3) x R: M = diag(1, 1.7, 2.3, 0.8) + a a^T with a = (R^T e3, 0.5 + sin x), V = R_33 + x^2, and the one-form
    (R^T e1, 0.4)."""

    def mass(g):
        a = np.concatenate([g[0][2], 0.5 + np.sin(g[1])])
        return np.diag([1.0, 1.7, 2.3, 0.8]) + np.outer(a, a)

    problem = Problem(
        mass=mass,
        potential=lambda g: g[0][2, 2] + g[1][0] ** 2,
        rows=lambda g: np.concatenate([g[0][0], [0.4]])[None],
        surface=lambda g: np.zeros(0),
    )
    g = (TURNED, np.array([0.3]))
    return problem, g, allowed(problem, g, np.array([0.8, -0.5, 0.9, 0.6]))


def body_on_surface():
    """SO(3) x R^3: the point x + R p of a body, p = (0.2, 0.1, -0.4), stays on z = 0.3 (x^2 + y^2), and the body must
    not turn about its own axis (0.1, 0.2, 1); mass 1.5, gravity 2."""
    point = np.array([0.2, 0.1, -0.4])

    def surface(g):
        x, y, z = g[1] + g[0] @ point
        return np.array([z - 0.3 * (x * x + y * y)])

    problem = Problem(
        mass=lambda g: np.diag([0.5, 0.8, 0.6, 1.5, 1.5, 1.5]),
        potential=lambda g: 3.0 * g[1][2],
        rows=lambda g: np.array([[0.1, 0.2, 1.0, 0.0, 0.0, 0.0]]),
        surface=surface,
    )
    x, y, _ = np.array([0.7, -0.2, 0.0]) + TURNED @ point
    place = np.array([0.7, -0.2, 0.3 * (x * x + y * y) - (TURNED @ point)[2]])
    g = (TURNED, place)
    return problem, g, allowed(problem, g, np.array([0.5, -0.4, 0.2, 0.6, 0.8, 0.1]))
