"""A second road to the diagnostics of the nonholonomically coupled systems, in plain NumPy and SciPy.

The systems are passengers x in R^d on a driver xi: with ker A(xi) = span k(xi), |k| = 1, K = kappa^T kappa,

    xdot = k(xi) v,   vdot = k(xi).(f - K x),   xidot = eta,   etadot = -V'(xi).

On u = (kappa x, v) the flow is linear up to k.f, with a skew matrix that depends on xi alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, floor, pi, sin, sqrt

import numpy as np
from scipy.integrate import DOP853

EXACT = 5e-9  # errors below this everywhere are called exact
ACCURACY = {"rtol": 1e-13, "atol": 1e-14}


# --- the systems ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """One system with its initial data."""

    V: Callable  # V(xi)
    quotient: Callable  # (V(b) - V(a)) / (b - a) as a function of (a + b) / 2 and b - a
    k: Callable  # k(xi), a unit vector
    kappa: np.ndarray  # of shape (m, d)
    f: np.ndarray
    x: np.ndarray
    v: float
    xi: float
    eta: float
    periodic: bool = True  # whether xi is an angle

    @property
    def K(self):
        """Give the stiffness matrix."""
        return self.kappa.T @ self.kappa

    def dV(self, xi):
        """Give V'(xi)."""
        return self.quotient(xi, 0.0)


def _sinc(a):
    return sin(a) / a if a else 1.0


def problem(name):
    """Give the system called harmonic, particle, disk, robot, or osc-EPS, rot-EPS, knife-EPS."""
    kind, _, tail = name.partition("-")
    eps = float(tail or 0)
    zero, ones = np.zeros(2), np.ones(2)

    def harmonic_k(xi):
        return np.array([-xi, 1.0]) / sqrt(1 + xi**2)

    def pendulum_k(xi):
        return np.array([-sin(xi), 1.0]) / sqrt(1 + sin(xi) ** 2)

    def knife_k(xi):
        return np.array([cos(xi) - eps, sin(xi)]) / sqrt(1 - 2 * eps * cos(xi) + eps**2)

    def disk_k(xi):
        return np.array([-cos(xi), -sin(xi), 1.0]) / sqrt(2)

    spring = (lambda xi: xi**2 / 2, lambda b, gap: b)
    free = (lambda xi: 0.0, lambda b, gap: 0.0)
    sine = (sin, lambda b, gap: cos(b) * _sinc(gap / 2))
    pendulum = (
        lambda xi: 1 - cos(xi) + eps / 2 * sin(2 * xi),
        lambda b, gap: sin(b) * _sinc(gap / 2) + eps * cos(2 * b) * _sinc(gap),
    )

    if kind == "osc":
        return Problem(*pendulum, pendulum_k, np.eye(2), zero, ones, 0.0, 0.0, sqrt(3.6))
    if kind == "rot":
        return Problem(*pendulum, pendulum_k, np.eye(2), zero, ones, 0.0, 0.0, sqrt(8))
    if kind == "harmonic":
        return Problem(*spring, harmonic_k, np.eye(2), zero, ones, 0.3, 0.5, 1.0, periodic=False)
    if kind == "particle":
        kappa = np.array([[0.0, 1.0]])
        return Problem(*spring, harmonic_k, kappa, zero, ones, 0.3, 0.5, 1.0, periodic=False)
    if kind == "knife":
        return Problem(*free, knife_k, np.zeros((0, 2)), np.array([1.0, 0.0]), zero, 0.0, pi / 2, 1.0)
    if kind == "disk":
        return Problem(*free, disk_k, np.zeros((0, 3)), np.zeros(3), np.zeros(3), 1.2, 0.3, 1.0)
    if kind == "robot":
        return Problem(*sine, disk_k, np.zeros((0, 3)), np.zeros(3), np.zeros(3), 1.2, 0.3, 0.7)
    raise ValueError(f"no system is called {name!r}")


# --- the exact flow over one driver period ---------------------------------------------------------------


def _rate(problem, z):
    """Give the time derivative of z = (t, xi, eta, Psi), Psi the fundamental matrix of u."""
    xi, eta, psi = z[1], z[2], z[3:].reshape(len(problem.kappa) + 1, -1)
    c = problem.kappa @ problem.k(xi)
    return np.r_[1.0, eta, -problem.dV(xi), np.outer(c, psi[-1]).ravel(), -c @ psi[:-1]]


def _to_section(problem, xi, eta, section, limit=200.0):
    """Give t, eta and Psi at the next upward crossing of the section, or None if none comes by the limit."""

    def lap(xi):
        return floor((xi - section) / (2 * pi)) if problem.periodic else int(xi >= section)

    z = np.r_[0.0, xi, eta, np.eye(len(problem.kappa) + 1).ravel()]
    solver = DOP853(lambda t, z: _rate(problem, z), 0.0, z, limit, **ACCURACY)
    before = z
    while lap(solver.y[1]) <= lap(before[1]):
        before = solver.y
        if solver.status != "running":
            return None
        solver.step()
    # the last step once more, with xi as the independent variable: it ends on the section exactly
    end = section + 2 * pi * lap(solver.y[1]) if problem.periodic else section

    def per_xi(xi, z):
        return _rate(problem, z) / z[2]

    solver = DOP853(per_xi, before[1], before, end, **ACCURACY)
    while solver.status == "running":
        solver.step()
    return solver.y[0], solver.y[2], solver.y[3:].reshape(len(problem.kappa) + 1, -1)


def _at_section(problem, xi, eta):
    """Give the section, 0 or else xi itself, with eta on it and the map of u from (xi, eta) to it."""
    for section in (0.0, xi):
        crossing = _to_section(problem, xi, eta, section)
        if crossing is not None:
            return section, *crossing[1:]
    raise ValueError("the driver never moves upwards")


def period_map(problem):
    """Give the driver period T and the matrix Phi(T) of u = (kappa x, v) from the section xi = 0, eta > 0."""
    section, eta, _ = _at_section(problem, problem.xi, problem.eta)
    t, _, phi = _to_section(problem, section, eta, section)
    return t, phi


def period(problem):
    """Give the driver period."""
    return period_map(problem)[0]


def axis_angle(phi):
    """Give the right-handed unit axis and the angle in (0, pi) of a rotation of R^3."""
    w = np.array([phi[2, 1] - phi[1, 2], phi[0, 2] - phi[2, 0], phi[1, 0] - phi[0, 1]])
    size = np.linalg.norm(w)
    return w / size, np.arctan2(size, np.trace(phi) - 1)


def latitude(problem, x, v, xi, eta):
    """Give a.u at the section reached from the state (x, v, xi, eta), for f = 0 and K of rank two."""
    section, eta, to_section = _at_section(problem, xi, eta)
    _, _, phi = _to_section(problem, section, eta, section)
    return axis_angle(phi)[0] @ to_section @ np.r_[problem.kappa @ x, v]


def latitude_start(problem):
    """Give the latitude of the initial data."""
    return latitude(problem, problem.x, problem.v, problem.xi, problem.eta)


def mean_k_f(problem, points=1024):
    """Give the mean of k.f over xi in [0, 2 pi], for a periodic k."""
    return np.mean([problem.k(xi) @ problem.f for xi in 2 * pi * np.arange(points) / points])


# --- drift of a series of errors -------------------------------------------------------------------------


def running_mean(t, x, window):
    """Give the centres whose closed window lies inside the data, and the mean of x over each window."""
    t, x, half, slack = np.asarray(t), np.asarray(x), window / 2, 1e-9 * window
    centres = t[(t - half >= t[0] - slack) & (t + half <= t[-1] + slack)]
    first = np.searchsorted(t, centres - half - slack)
    last = np.searchsorted(t, centres + half + slack)
    return centres, np.array([x[a:b].mean() for a, b in zip(first, last, strict=True)])


def drift(t, error, window, blocks=20):
    """Give the least-squares slope of the running mean of the signed error, and its standard error."""
    t, mean = running_mean(t, error, window)
    t = t - t.mean()
    slope = t @ mean / (t @ t)
    residual = [part.mean() for part in np.array_split(mean - mean.mean() - slope * t, blocks)]
    middle = [part.mean() for part in np.array_split(t, blocks)]
    return slope, sqrt(np.sum(np.square(residual)) / (blocks - 2) / np.var(middle) / blocks)


def verdict(t, error, window, short=3000.0):
    """Give "exact", "DRIFT" or "ok" for an error over [0, 10 short], by the size and growth of its mean."""
    t, error = np.asarray(t), np.asarray(error)
    if np.max(np.abs(error)) < EXACT:
        return "exact"
    early = t <= short * (1 + 1e-9)
    begun = np.max(np.abs(running_mean(t[early], error[early], window)[1]))
    whole = np.max(np.abs(running_mean(t, error, window)[1]))
    return "DRIFT" if begun > 0.1 or whole > 2 * begun else "ok"


# --- reduced one-step maps -------------------------------------------------------------------------------


def _fixed_point(g, a):
    for _ in range(100):
        a, last = g(a), a
        if abs(a - last) <= 4e-16 * max(1.0, abs(a)):
            return a
    raise RuntimeError("the step is too long for the fixed-point iteration")


def driver_step(problem, method, xi, eta, h):
    """Give (xi_m, xi_1, eta_1) of DLA01, FIB-SV, FIB-EP or DLA followed by its number a."""
    if method in ("DLA01", "FIB-SV"):
        middle = xi + h / 2 * eta
        eta = eta - h * problem.dV(middle)
        return middle, middle + h / 2 * eta, eta
    if method == "FIB-EP":
        gap = _fixed_point(lambda d: h * eta - h**2 / 2 * problem.quotient(xi + d / 2, d), h * eta)
        return xi + gap / 2, xi + gap, eta - h * problem.quotient(xi + gap / 2, gap)
    a = float(method.removeprefix("DLA"))
    middle = xi + (1 - a) * h * eta
    kicked = eta - a * h * problem.dV(xi)
    eta = _fixed_point(lambda e: kicked - (1 - a) * h * problem.dV(middle + a * h * e), eta)
    return middle, middle + a * h * eta, eta


def passenger_matrix(problem, method, xi, eta, h):
    """Give the matrix M of one step on (x, v) at the driver state (xi, eta), for K = I and f = 0."""
    if not np.array_equal(problem.K, np.eye(len(problem.f))) or np.any(problem.f):
        raise ValueError("the passenger map is linear with these formulas for K = I and f = 0 only")
    xi_m, xi_1, _ = driver_step(problem, method, xi, eta, h)
    k0, km, k1 = problem.k(xi), problem.k(xi_m), problem.k(xi_1)
    start = np.eye(len(k0) + 1)
    x0, v0 = start[:-1], start[-1]  # here and below as linear functions of the state (x0, v0)
    if method.startswith("FIB"):
        s = (2 * v0 - h * km @ x0) / (2 + h**2 / 2)
        return np.vstack([x0 + h * np.outer(km, s), 2 * s - v0])
    if method == "DLA01":
        xm = x0 + h / 2 * np.outer(k0, v0)
        v1 = (km @ k0 * v0 - h * km @ xm) / (km @ k1)
        return np.vstack([xm + h / 2 * np.outer(k1, v1), v1])
    a = float(method.removeprefix("DLA"))
    xm = x0 + (1 - a) * h * np.outer(k0, v0)
    v1 = (km @ k0 * v0 - h * km @ (a * x0 + (1 - a) * xm)) / (km @ k1 * (1 + a * (1 - a) * h**2))
    return np.vstack([xm + a * h * np.outer(k1, v1), v1])


def exponents(problem, method, h, T, every=10):
    """Give the three Lyapunov exponents of the passenger over [0, T], for K = I and f = 0."""
    # the first direction settles near the axis of the exact period map: it starts there, without transient
    axis, _ = axis_angle(period_map(problem)[1])
    q, _ = np.linalg.qr(np.c_[axis, np.eye(3)[:, 1:]])
    xi, eta, growth, steps = problem.xi, problem.eta, np.zeros(3), round(T / h)
    for i in range(1, steps + 1):
        q = passenger_matrix(problem, method, xi, eta, h) @ q
        _, xi, eta = driver_step(problem, method, xi, eta, h)
        if problem.periodic:
            xi -= 2 * pi * round(xi / (2 * pi))
        if i % every == 0 or i == steps:
            q, r = np.linalg.qr(q)
            growth += np.log(np.abs(np.diag(r)))
    return growth / (steps * h)
