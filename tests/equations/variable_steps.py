"""The energy-preserving, variable-step discrete Lagrange-d'Alembert method (EDLA) in plain NumPy.

A second road to the numbers of the library, with which this module shares no code.  A problem is
L(t, q, v) = v . M(t, q) v / 2 - V(t, q) with omega(t, q) v + omega0(t, q) = 0.  First derivatives are complex
steps, derivatives of those are differences of eighth order.  Functions take components along the first axis.
A step is kept as (t, q, h, dq), from (t, q) to (t + h, q + dq), to spare differences of large numbers.
The slots of Ld(t0, q0, t1, q1): minus = (D1, D2), plus = (D3, D4); E- = D1 Ld, E+ = -D3 Ld.  The equations:
    D1 Ld(k, k+1) + D3 Ld(k-1, k) = lam . omega0,      D2 Ld(k, k+1) + D4 Ld(k-1, k) = omega^T lam   at k,
and omega0 + omega dq / h = 0 at the middle of the new step: J. Cortes, Energy conserving nonholonomic
integrators, equations (6), which lack omega0.  Continuous: d/dt dL/dv - dL/dq = omega^T lam.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, minimize_scalar

TINY = 1e-30  # complex step: no subtraction, hence no cancellation
STENCIL = np.array([4 / 5, -1 / 5, 4 / 105, -1 / 280])  # first derivative, eighth order


def gradient(f, z):
    """All partial derivatives, along the first axis, of a scalar f at the real points z (batch behind)."""
    shifts = 1j * TINY * np.eye(len(z)).reshape(len(z), *([1] * (z.ndim - 1)), len(z))
    return np.moveaxis(np.imag(f(z[..., None] + shifts)) / TINY, -1, 0)


def jacobian(f, y, d):
    """(f(y), df/dy): all difference points, d apart, go to f in one batch."""
    size = len(y)
    moves = np.concatenate([j * np.eye(size) for j in (0, 1, -1, 2, -2, 3, -3, 4, -4)], axis=1)[:, size - 1 :]
    values = f(y[:, None] + d * moves)
    ups = values[:, 1:].reshape(len(values), 4, 2, size)
    return values[:, 0], np.einsum("j,ijk->ik", STENCIL, ups[:, :, 0] - ups[:, :, 1]) / d


def array(like, rows):
    """Rows whose entries may be plain numbers, as an array with the batch axes of `like`."""
    return np.array([[entry + 0 * like for entry in row] for row in rows])


@dataclass(frozen=True)
class Problem:
    """M, forms = (omega0, omega) as m x (1 + n), start, V, symmetries (xi(t, q), (xi_t, xi_q)(xi, t, q))."""

    mass: Callable
    forms: Callable
    q0: np.ndarray
    v0: np.ndarray
    potential: Callable = lambda t, q: 0 * q[0]
    symmetries: dict = field(default_factory=dict)
    full: bool = True  # whether lam . omega0 stays in the energy equation, from which the paper drops it

    def omega(self, t, q):
        return self.forms(t, q)[:, 1:]

    def omega0(self, t, q):
        return self.forms(t, q)[:, 0]

    def lagrangian(self, t, q, v):
        return np.einsum("i...,ij...,j...->...", v, self.mass(t, q), v) / 2 - self.potential(t, q)

    def acceleration(self, t, q, v):
        """(a, lam): M a + (dM/dt) v - dL/dq = omega^T lam, omega a + (d omega/dt) v + d omega0/dt = 0."""
        omega, ahead = self.omega(t, q), (t + 1j * TINY, q + 1j * TINY * v)
        force = (
            gradient(lambda z: self.lagrangian(t, z, v[:, None]), q) - np.imag(self.mass(*ahead)) / TINY @ v
        )
        bend = -np.imag(self.forms(*ahead)) / TINY @ np.array([1.0, *v])
        matrix = np.block([[self.mass(t, q), -omega.T], [omega, np.zeros((len(omega), len(omega)))]])
        return np.split(np.linalg.solve(matrix, np.concatenate([force, bend])), [q.size])


def particle(name="free", rate=0.0, c=0.4, modulated=0.0):
    """z' = y x' (1 + modulated sin t) + rate cos t; symmetry "xz" if free, "travel" if so and rate = 0."""
    potential = {
        "free": lambda t, q: 0 * q[0],
        "plane": lambda t, q: (q[0] ** 2 + q[1] ** 2) / 2,
        "harmonic": lambda t, q: (q[0] ** 2 + q[1] ** 2 + q[2] ** 2) / 2,
        "y": lambda t, q: q[1] ** 2 / 2,
        "z": lambda t, q: q[2],
        "cosine": lambda t, q: -np.cos(q[1]),
        "travelling": lambda t, q: q[0] ** 2 / 2 + (q[1] - c * t) ** 2,
    }[name]
    factor = lambda t: 1 + modulated * np.sin(t)
    slide = lambda t, q: np.array([1, q[1] * factor(t)]), lambda xi, t, q: np.array([0, xi[0], 0, xi[1]])
    travel = lambda t, q: np.ones(1), lambda xi, t, q: xi[0] * np.array([1, 0, c, 0])
    forms = lambda t, q: array(q[0] + t, [[-rate * np.cos(t), -q[1] * factor(t), 0, 1]])
    start = np.array([1, 0.6, 0.5]), np.array([1, 0.5, 0.6 + rate])
    return Problem(lambda t, q: np.eye(3), forms, *start, potential, {"xz": slide, "travel": travel})


def knife(u0=0.5, w0=1.0, phi0=0.4):
    """Skate (x, y, phi) on a slope, x' sin phi = y' cos phi, V = -x, mass and inertia 1."""
    forms = lambda t, q: array(q[0], [[0, np.sin(q[2]), -np.cos(q[2]), 0]])
    start = np.array([0, 0, phi0]), np.array([u0 * np.cos(phi0), u0 * np.sin(phi0), w0])
    return Problem(lambda t, q: np.eye(3), forms, *start, lambda t, q: -q[0])


def robot(k=10.0, phi0=-1.2, roll=1.0, turn=0.9, q0=(0.0, 0.0, 0.0)):
    """Disk (x, y, roll theta, heading phi), (x', y') = theta' (cos phi, sin phi); V = k sin phi."""
    forms = lambda t, q: array(q[0], [[0, 1, 0, -np.cos(q[3]), 0], [0, 0, 1, -np.sin(q[3]), 0]])
    start = np.array([*q0, phi0]), np.array([roll * np.cos(phi0), roll * np.sin(phi0), roll, turn])
    roll = lambda t, q: np.array([np.cos(q[3]), np.sin(q[3]), 1]), lambda xi, t, q: np.array([0, *xi, 0])
    return Problem(lambda t, q: np.eye(4), forms, *start, lambda t, q: k * np.sin(q[3]), {"roll": roll})


disk = partial(robot, 0.0, 0.4, 1.1, 0.7, (0.3, -0.2, 0.1))  # the vertical rolling disk: no potential


def sleigh(centre=False, u0=-1.2, w0=0.288, a=0.2):
    """Chaplygin sleigh (x, y, theta), contact point or centre of mass; mass and central inertia 1."""
    lever = lambda q: (-a * np.sin(q[2]), a * np.cos(q[2]))
    mass = lambda t, q: array(q[0], [[1, 0, lever(q)[0]], [0, 1, lever(q)[1]], [*lever(q), 1 + a * a]])
    forms = lambda t, q: array(q[0], [[0, np.sin(q[2]), -np.cos(q[2]), a if centre else 0]])
    start = np.array([a * centre, 0, 0]), np.array([u0, a * w0 * centre, w0])
    return Problem((lambda t, q: np.eye(3)) if centre else mass, forms, *start)


def turntable(rate=0.7, q0=(1.0, 0.2), v0=(0.3, -0.4), spin=0.5):
    """Homogeneous ball, m = r = 1, on a table turning at `rate`; (a', b', c') is its spin in space axes."""
    forms = lambda t, q: array(q[0], [[rate * q[1], 1, 0, 0, -1, 0], [-rate * q[0], 0, 1, 1, 0, 0]])
    turn = lambda t, q: np.ones(1), lambda xi, t, q: xi[0] * np.array([1, -rate * q[1], rate * q[0], 0, 0, 0])
    (x, y), (u, v), mass = q0, v0, np.diag([1, 1, 0.4, 0.4, 0.4])
    start = np.array([x, y, 0, 0, 0]), np.array([u, v, rate * x - v, u + rate * y, spin])
    return Problem(lambda t, q: mass, forms, *start, symmetries={"turn": turn})


def turntable_centre(problem, t, rate=0.7):
    """Closed form of the ball's x and y: a circle, the velocity turns at 2 rate / 7."""
    w, (z, u) = 2j * rate / 7, np.array([problem.q0[:2], problem.v0[:2]]) @ [1, 1j]
    z = z + u * (np.exp(w * t) - 1) / w
    return np.array([z.real, z.imag])


def motion(problem, end):
    """The motion on [0, end]: a function of t with values (q, v), by DOP853 at 1e-13."""
    slope = lambda t, z: np.concatenate([z[z.size // 2 :], problem.acceleration(t, *np.split(z, 2))[0]])
    start, options = np.concatenate([problem.q0, problem.v0]), {"method": "DOP853", "dense_output": True}
    found = solve_ivp(slope, (0, end), start, rtol=1e-13, atol=1e-13, **options)
    return lambda t: np.split(found.sol(t), 2)


def indicator(problem, t, q, v, alpha=0.5):
    """G, 8 G = |R|^2 - |V'|^2 - (12 alpha (1 - alpha) - 2) V''(v, v), norms in M^-1, M constant."""
    inverse = np.linalg.inv(problem.mass(t, q))
    reaction = problem.omega(t, q).T @ problem.acceleration(t, q, v)[1]
    slope, hessian = jacobian(lambda z: gradient(lambda x: problem.potential(t, x), z), q, 1e-2)
    bend = (12 * alpha * (1 - alpha) - 2) * v @ hessian @ v
    return (reaction @ inverse @ reaction - slope @ inverse @ slope - bend) / 8


def first_zero(problem, end, alpha=0.5):
    """First sign change of G along the motion, or None on [0, end]."""
    at, times = motion(problem, end), np.linspace(0, end, 201)
    g = lambda t: indicator(problem, t, *at(t), alpha)
    turns = np.flatnonzero(np.diff(np.sign([g(t) for t in times])))
    return brentq(g, times[turns[0]], times[turns[0] + 1], xtol=1e-12) if turns.size else None


def ld(problem, alpha, t, q, h, dq):
    """Ld = h/2 (L(alpha) + L(1 - alpha)), v = dq / h: alpha = 1/2 is the midpoint rule, 0 the trapezium."""
    part = lambda a: problem.lagrangian(t + a * h, q + a * dq, dq / h)
    return h * (part(alpha) + part(1 - alpha)) / 2


def slots(problem, alpha, t, q, h, dq):
    """minus = (D1 Ld, D2 Ld) and plus = (D3 Ld, D4 Ld), each with 1 + n components."""
    k = len(dq) + 1
    z = np.array(np.broadcast_arrays(t, *q, h, *dq))
    g = gradient(lambda z: ld(problem, alpha, z[0], z[1:k], z[k], z[k + 1 :]), z)
    return g[:k] - g[k:], g[k:]


def residual(problem, alpha, t, q, plus, y):
    """Energy, momentum and constraint equations of the step from (t, q), for y = (h, dq, lam)."""
    k, (q, plus) = len(q) + 1, (x[:, None] if x.ndim < y.ndim else x for x in (q, plus))
    h, dq, lam = y[0], y[1:k], y[k:]
    pull = np.einsum("ai...,a...->i...", problem.forms(t, q), lam)
    pull[0] *= problem.full
    middle = problem.forms(t + h / 2, q + dq / 2)
    rate = middle[:, 0] + np.einsum("ai...,i...->a...", middle[:, 1:], dq / h)
    return np.concatenate([slots(problem, alpha, t, q, h, dq)[0] + plus - pull, rate])


def eliminated(problem, alpha, t, q, plus, h, y):
    """(e, S, y): at fixed h solve for (dq, lam); left are the energy residual e, and S = de/dh."""
    k = len(q) + 1
    y = np.concatenate([[h], y[1:k] * (h / y[0]), y[k:]])
    for _ in range(25):
        r, j = jacobian(partial(residual, problem, alpha, t, q, plus), y, abs(y[0]) / 200)
        if not np.isfinite(j).all():
            break
        move = np.linalg.solve(j[1:, 1:], np.stack([r[1:], j[1:, 0]], axis=1))
        y[1:] -= move[:, 0]
        if np.abs(move[:, 0]).max() < 1e-8 * (abs(h) + np.abs(y[1:]).max()):
            return r[0] - j[0, 1:] @ move[:, 0], j[0, 0] - j[0, 1:] @ move[:, 1], y
    return np.nan, np.nan, y


def polish(problem, alpha, t, q, plus, y):
    """(status, S, y): full Newton on (h, dq, lam), keeping the best; "ok" if all is met to rounding."""
    best, at, schur, guess = np.inf, y, np.nan, y[0]
    for _ in range(5):
        r, j = jacobian(partial(residual, problem, alpha, t, q, plus), y, abs(y[0]) / 200)
        if np.abs(r).max() < best:
            best, at, schur = np.abs(r).max(), y, j[0, 0] - j[0, 1:] @ np.linalg.solve(j[1:, 1:], j[1:, 0])
        y = y - np.linalg.solve(j, r)
    good = abs(at[0] - guess) < 0.01 * guess and best < 1e-12 * (1 + np.abs(plus).max())
    return "ok" if good else "no_root", schur, at


def solve_step(problem, alpha, t, q, plus, last, y, cross=False):
    """(status, S, y) of the step from (t, q) after one of length `last` with slots `plus`, from the guess y.

    f = e(h) / (h + last), without the trivial root, goes to a Newton iteration with |change| <= 0.3 h inside
    [last / 10, 10 last]; else changes of sign are sought there.  `cross` then takes argmin |e(h)|.
    """
    at, h = lambda h: eliminated(problem, alpha, t, q, plus, h, y), y[0]
    f = lambda h: at(h)[0] / (h + last)
    for _ in range(30):
        e, slope, new = at(h)
        to = np.clip(h - e / (slope - e / (h + last)), max(0.7 * h, last / 10), min(1.3 * h, 10 * last))
        if not abs(to - h) >= 1e-7 * h:
            break
        h = to
    found = polish(problem, alpha, t, q, plus, new) if np.isfinite(e) else ("no_root", np.nan, y)
    if found[0] == "ok":
        return found
    grid, behind = last * np.geomspace(0.1, 10, 61), last * np.linspace(-0.98, -0.02, 25)
    values, negative = np.array([f(h) for h in grid]), np.array([f(h) for h in behind])
    turns = np.flatnonzero(values[:-1] * values[1:] < 0)
    for i in turns[np.argsort(np.abs(np.log(grid[turns] / y[0])))]:
        h = brentq(lambda h: np.nan_to_num(f(h)), grid[i], grid[i + 1], rtol=1e-14)
        found = polish(problem, alpha, t, q, plus, at(h)[2])
        if found[0] == "ok":
            return found
    if cross:
        best = np.clip(np.nanargmin(np.abs(values * (grid + last))), 1, 59)
        h = minimize_scalar(lambda h: abs(at(h)[0]), bounds=grid[[best - 1, best + 1]], method="bounded").x
        return "crossed", *at(h)[1:]
    return "nonpositive_h" if (negative[:-1] * negative[1:] < 0).any() else "no_root", np.nan, y


def run(problem, h0, steps, alpha=0.5, end=np.inf, pin=False, cross=False):
    """A first step of length h0 from M v0, then EDLA: `steps` in all, or until t >= end or a step fails.

    t, q have one row more than h, dq, plus; lam, schur, status start with the second step, and a failed last
    step leaves its status only.  `pin` holds the energy of the first step instead of that of the last one.
    """
    t, q, k = [0.0], [problem.q0.astype(float)], problem.q0.size + 1
    y = np.concatenate([[h0], h0 * problem.v0, 0 * problem.omega0(0.0, q[0])])
    start = np.array([0, *problem.mass(0.0, q[0]) @ problem.v0])
    y = eliminated(problem, alpha, 0.0, q[0], start, h0, y)[2]
    ys, plus, found, ratio = [y], [], [], 1.0
    while True:
        plus.append(slots(problem, alpha, t[-1], q[-1], y[0], y[1:k])[1])
        t.append(t[-1] + y[0])
        q.append(q[-1] + y[1:k])
        if len(ys) >= steps or t[-1] >= end:
            break
        held = np.array([plus[0 if pin else -1][0], *plus[-1][1:]])
        guess = np.concatenate([y[:k] * np.clip(ratio, 0.5, 2), y[k:]])
        found.append(solve_step(problem, alpha, t[-1], q[-1], held, y[0], guess, cross))
        if found[-1][0] not in ("ok", "crossed"):
            break
        ratio, y = found[-1][2][0] / y[0], found[-1][2]
        ys.append(y)
    ys, tail = np.array(ys), {"schur": np.array([s for _, s, _ in found]), "status": [s for s, _, _ in found]}
    rows = {"t": np.array(t), "q": np.array(q), "plus": np.array(plus), **tail}
    return SimpleNamespace(h=ys[:, 0], dq=ys[:, 1:k], lam=ys[1:, k:], **rows)


def momentum_defects(problem, path, name):
    """J_k - J_{k-1} - <plus_k, (xi(z_{k+1}) - xi(z_k))_Q(z_{k+1})> with J = <plus, xi_Q>, z = (t, q)."""
    section, generator = problem.symmetries[name]
    z, p = list(zip(path.t, path.q, strict=True)), path.plus
    pair = lambda k, at: p[k] @ generator(section(*z[at]), *z[k + 1])
    return np.array([pair(k, k) - pair(k - 1, k) for k in range(1, len(p))])


def symplectic_defect(problem, alpha, path, k):
    """Phi* Omega - Omega - d(lam omega), relative, for steps k - 1 and k; Omega = -d(plus . d(t1, q1))."""
    n = path.q.shape[1] + 1  # coordinates of a pair: x = (t0, q0, h, dq)
    pair = lambda k: np.concatenate([[path.t[k]], path.q[k], [path.h[k]], path.dq[k]])
    end = lambda x: (x[0] + x[n], x[1:n] + x[n + 1 : 2 * n])
    slope = lambda f, x: jacobian(f, x, path.h[k] / 200)[1]
    curl = lambda b: np.tile(b.T, 2) - np.tile(b.T, 2).T  # d(b . dz1), from the derivatives of the covector b
    plus = lambda x: slots(problem, alpha, x[0], x[1:n], x[n], x[n + 1 : 2 * n])[1]
    x, y = pair(k - 1), np.concatenate([[path.h[k]], path.dq[k], path.lam[k - 1]])
    j = slope(lambda x: residual(problem, alpha, *end(x), plus(x), x[2 * n :]), np.concatenate([x, y]))
    dy = -np.linalg.solve(j[:, 2 * n :], j[:, : 2 * n])
    push = np.concatenate([np.tile(np.eye(n), 2), dy[:n]])
    pull = slope(lambda x: (problem.forms(*end(x)).T @ y[n:]).T, x) + problem.forms(*end(x)).T @ dy[n:]
    change = -push.T @ curl(slope(plus, pair(k))) @ push + curl(slope(plus, x))
    return np.abs(change - curl(pull)).max() / np.abs(change).max()
