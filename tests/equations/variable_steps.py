"""The energy-preserving, variable-step discrete Lagrange-d'Alembert method (EDLA) in plain NumPy.

A second road to the numbers of the library, with which this module shares no code.  A problem is
L(t, q, v) = v . M(t, q) v / 2 - V(t, q) with the constraints omega(t, q) v + omega0(t, q) = 0.  Nothing is derived
by hand: derivatives of L, Ld, omega are complex steps; derivatives of those are differences of eighth order.
Functions take the components along the first axis and accept complex entries and any trailing (batch) axes.

A step is kept as (t, q, h, dq), from (t, q) to (t + h, q + dq), so that nothing is lost in differences.  Slots:
Ld(t0, q0, t1, q1); minus = (D1 Ld, D2 Ld), plus = (D3 Ld, D4 Ld); E- = D1 Ld, E+ = -D3 Ld.  The equations are
    D1 Ld(k, k+1) + D3 Ld(k-1, k) = lam . omega0,   D2 Ld(k, k+1) + D4 Ld(k-1, k) = omega^T lam   at (t_k, q_k)
    omega0 + omega dq / h = 0                                                  at the middle of the new step.
The continuous multiplier has d/dt dL/dv - dL/dq = omega^T lam, so the discrete one is about -h lam.

Source: J. Cortes, Energy conserving nonholonomic integrators; its equations (6) lack the omega0 term.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

TINY = 1e-30  # complex step: no subtraction, hence no cancellation
STENCIL = np.array([4 / 5, -1 / 5, 4 / 105, -1 / 280])  # first derivative, eighth order


# ---- tools ------------------------------------------------------------------------------------------------


def gradient(f, z):
    """All partial derivatives, along the first axis, of a scalar f at the real points z (batch behind)."""
    shifts = 1j * TINY * np.eye(len(z)).reshape(len(z), *([1] * (z.ndim - 1)), len(z))
    return np.moveaxis(np.imag(f(z[..., None] + shifts)) / TINY, -1, 0)


def jacobian(f, y, d):
    """(f(y), df/dy): all difference points, d apart, go to f in one batch."""
    size = len(y)
    moves = (
        d * np.concatenate([j * np.eye(size) for j in (0, 1, -1, 2, -2, 3, -3, 4, -4)], axis=1)[:, size - 1 :]
    )
    values = f(y[:, None] + moves)
    ups = values[:, 1:].reshape(len(values), 4, 2, size)
    return values[:, 0], np.einsum("j,ijk->ik", STENCIL, ups[:, :, 0] - ups[:, :, 1]) / d


def array(like, rows):
    """Nested lists, whose entries may be numbers, as an array with the batch axes of `like`."""
    return np.array([[entry + 0 * like for entry in row] for row in rows])


# ---- problems ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """M, V, omega (m x n), omega0 (m), and a start that satisfies the constraints.

    A symmetry is a pair (section, generator): section(t, q) is in the Lie algebra, generator(xi, t, q) is the
    vector (xi_t, xi_q), with the time component first.
    """

    mass: Callable
    omega: Callable
    q0: np.ndarray
    v0: np.ndarray
    potential: Callable = lambda t, q: 0 * q[0]
    drift: Callable | None = None
    symmetries: dict = field(default_factory=dict)

    def omega0(self, t, q):
        """The dt component of the constraints; zero unless given."""
        return 0 * self.omega(t, q)[:, 0] if self.drift is None else self.drift(t, q)

    def forms(self, t, q):
        """omega0 dt + omega dq as the rows of an m x (1 + n) matrix."""
        return np.concatenate([self.omega0(t, q)[:, None], self.omega(t, q)], axis=1)

    def lagrangian(self, t, q, v):
        """Kinetic minus potential energy."""
        return np.einsum("i...,ij...,j...->...", v, self.mass(t, q), v) / 2 - self.potential(t, q)

    def energy(self, t, q, v):
        """Kinetic plus potential energy."""
        return v @ self.mass(t, q) @ v / 2 + self.potential(t, q)

    def acceleration(self, t, q, v):
        """(a, lam): M a + (dM/dt) v - dL/dq = omega^T lam, omega a + (d omega/dt) v + d omega0/dt = 0."""
        mass, omega, n = self.mass(t, q), self.omega(t, q), q.size
        ahead = t + 1j * TINY, q + 1j * TINY * v
        force = (
            gradient(lambda z: self.lagrangian(t, z, v[:, None]), q) - np.imag(self.mass(*ahead)) / TINY @ v
        )
        bend = -np.imag(self.forms(*ahead)) / TINY @ np.concatenate([[1.0], v])
        matrix = np.block([[mass, -omega.T], [omega, np.zeros((len(omega), len(omega)))]])
        solution = np.linalg.solve(matrix, np.concatenate([force, bend]))
        return solution[:n], solution[n:]


def particle(name="free", rate=0.0, c=0.4, modulated=0.0):
    """z' = y x' (1 + modulated sin t) + rate cos t, with one of eight potentials; start (1, .6, .5), (1, .5, .6 + rate)."""
    potentials = {
        "free": lambda t, q: 0 * q[0],
        "plane": lambda t, q: (q[0] ** 2 + q[1] ** 2) / 2,
        "harmonic": lambda t, q: (q[0] ** 2 + q[1] ** 2 + q[2] ** 2) / 2,
        "y": lambda t, q: q[1] ** 2 / 2,
        "z": lambda t, q: q[2],
        "cosine": lambda t, q: -np.cos(q[1]),
        "travelling": lambda t, q: q[0] ** 2 / 2 + (q[1] - c * t) ** 2,
    }
    symmetries = {}
    if name == "free" and not modulated and not rate:
        section, generator = (
            (lambda t, q: np.array([1, q[1]])),
            (lambda xi, t, q: np.array([0, xi[0], 0, xi[1]])),
        )
        symmetries["xz"] = section, generator
    if name == "travelling":
        symmetries["travel"] = (lambda t, q: np.ones(1)), (lambda xi, t, q: xi[0] * np.array([1, 0, c, 0]))
    omega = lambda t, q: array(q[0] + t, [[-q[1] * (1 + modulated * np.sin(t)), 0, 1]])
    drift = (lambda t, q: array(q[0] + t, [[-rate * np.cos(t)]])[0]) if rate else None
    start = np.array([1, 0.6, 0.5]), np.array([1, 0.5, 0.6 + rate])
    return Problem(lambda t, q: np.eye(3), omega, *start, potentials[name], drift, symmetries)


def knife(u0=0.5, w0=1.0, phi0=0.4):
    """Skate (x, y, phi) on a slope, x' sin phi = y' cos phi, V = -x, mass and inertia 1."""
    omega = lambda t, q: array(q[0], [[np.sin(q[2]), -np.cos(q[2]), 0]])
    start = np.array([0, 0, phi0]), np.array([u0 * np.cos(phi0), u0 * np.sin(phi0), w0])
    return Problem(lambda t, q: np.eye(3), omega, *start, lambda t, q: -q[0])


def robot(k=10.0, phi0=-1.2, roll=1.2 / np.sqrt(2), turn=0.7, q0=(0.0, 0.0, 0.0)):
    """Rolling disk (x, y, theta roll, phi heading), all inertias 1, x' = cos(phi) theta', V = k sin(phi)."""
    omega = lambda t, q: array(q[0], [[1, 0, -np.cos(q[3]), 0], [0, 1, -np.sin(q[3]), 0]])
    v0 = np.array([roll * np.cos(phi0), roll * np.sin(phi0), roll, turn])
    section, generator = (
        (lambda t, q: np.array([np.cos(q[3]), np.sin(q[3]), 1])),
        (lambda xi, t, q: np.array([0, xi[0], xi[1], xi[2], 0])),
    )
    potential = lambda t, q: k * np.sin(q[3])
    start = np.array([*q0, phi0]), v0
    return Problem(
        lambda t, q: np.eye(4), omega, *start, potential, symmetries={"roll": (section, generator)}
    )


def disk():
    """The vertical rolling disk: the robot without potential."""
    return robot(0.0, 0.4, 1.1, 0.7, (0.3, -0.2, 0.1))


def sleigh(centre=False, u0=-1.2, w0=0.288, a=0.2):
    """Chaplygin sleigh (x, y, theta), contact point or centre of mass; m = I = 1, I about the centre of mass."""

    def mass(t, q):
        s, c = np.sin(q[2]), np.cos(q[2])
        return array(q[0], [[1, 0, -a * s], [0, 1, a * c], [-a * s, a * c, 1 + a * a]])

    omega = lambda t, q: array(q[0], [[np.sin(q[2]), -np.cos(q[2]), a if centre else 0]])
    if centre:
        return Problem(lambda t, q: np.eye(3), omega, np.array([a, 0, 0]), np.array([u0, a * w0, w0]))
    return Problem(mass, omega, np.zeros(3), np.array([u0, 0, w0]))


def turntable(rate=0.7, q0=(1.0, 0.2), v0=(0.3, -0.4), spin=0.5):
    """Homogeneous ball (mass and radius 1) on a table turning at `rate`: (x, y, a, b, c), (a', b', c') its spin.

    The inertia is isotropic and nothing depends on the attitude, so the spin in space axes may stand for the
    rates of three coordinates: x' - b' = -rate y, y' + a' = rate x.  The centre runs a circle at 2 rate / 7.
    """
    omega = lambda t, q: array(q[0], [[1, 0, 0, -1, 0], [0, 1, 1, 0, 0]])
    drift = lambda t, q: rate * np.array([q[1], -q[0]])
    (x, y), (u, v) = q0, v0
    turn = (
        (lambda t, q: np.ones(1)),
        (lambda xi, t, q: xi[0] * np.array([1, -rate * q[1], rate * q[0], 0, 0, 0])),
    )
    start = np.array([x, y, 0, 0, 0]), np.array([u, v, rate * x - v, u + rate * y, spin])
    mass = np.diag([1, 1, 0.4, 0.4, 0.4])
    return Problem(lambda t, q: mass, omega, *start, drift=drift, symmetries={"turn": turn})


def turntable_orbit(problem, t, rate=0.7):
    """Closed form (x, y) of the ball's centre: velocity turns at w = 2 rate / 7."""
    w, z, u = 2 * rate / 7, complex(*problem.q0[:2]), complex(*problem.v0[:2])
    z = z + u * (np.exp(1j * w * t) - 1) / (1j * w)
    return np.array([z.real, z.imag])


# ---- continuous motion ------------------------------------------------------------------------------------


def motion(problem, end, q0=None, v0=None):
    """The motion on [0, end]: a function of t with values (q, v), by DOP853 at 1e-13."""
    q0, v0 = problem.q0 if q0 is None else q0, problem.v0 if v0 is None else v0
    n = q0.size
    slope = lambda t, z: np.concatenate([z[n:], problem.acceleration(t, z[:n], z[n:])[0]])
    start = np.concatenate([q0, v0])
    solution = solve_ivp(slope, (0, end), start, "DOP853", rtol=1e-13, atol=1e-13, dense_output=True)
    return lambda t: np.split(solution.sol(t), 2)


def indicator(problem, t, q, v, alpha=0.5):
    """G: 8 G = |R|^2 - |V'|^2 - (12 alpha (1 - alpha) - 2) V''(v, v), norms in M^-1; constant M, no omega0."""
    inverse = np.linalg.inv(problem.mass(t, q))
    reaction = problem.omega(t, q).T @ problem.acceleration(t, q, v)[1]
    slope, hessian = jacobian(lambda z: gradient(lambda x: problem.potential(t, x), z), q, 1e-2)
    curvature = (12 * alpha * (1 - alpha) - 2) * v @ hessian @ v
    return (reaction @ inverse @ reaction - slope @ inverse @ slope - curvature) / 8


def first_zero(problem, end, alpha=0.5, samples=200):
    """First zero of G along the motion, or None on [0, end]."""
    at = motion(problem, end)
    g = lambda t: indicator(problem, t, *at(t), alpha)
    times = np.linspace(0, end, samples + 1)
    values = [g(t) for t in times]
    for i in range(samples):
        if values[i] * values[i + 1] < 0:
            return brentq(g, times[i], times[i + 1], xtol=1e-12)
    return None


# ---- the discrete equations -------------------------------------------------------------------------------


def ld(problem, alpha, t, q, h, dq):
    """Ld = h/2 (L(alpha) + L(1 - alpha)), v = dq / h: alpha = 1/2 is the midpoint rule, 0 the trapezoidal one."""
    part = lambda a: problem.lagrangian(t + a * h, q + a * dq, dq / h)
    return h * (part(alpha) + part(1 - alpha)) / 2


def slots(problem, alpha, t, q, h, dq):
    """minus = (D1 Ld, D2 Ld) and plus = (D3 Ld, D4 Ld), each with 1 + n components."""
    k = len(dq) + 1
    shape = np.broadcast_shapes(np.shape(h), dq[0].shape, np.shape(t), q[0].shape)
    z = np.array([np.broadcast_to(x, shape) for x in (t, *q, h, *dq)])
    g = gradient(lambda z: ld(problem, alpha, z[0], z[1:k], z[k], z[k + 1 :]), z)
    return g[:k] - g[k:], g[k:]


def residual(problem, alpha, t, q, plus, y):
    """Energy, momentum and constraint equations of the step from (t, q), for y = (h, dq, lam)."""
    k = len(q) + 1
    h, dq, lam = y[0], y[1:k], y[k:]
    balance = slots(problem, alpha, t, q, h, dq)[0] + plus
    balance = balance - np.einsum("ai...,a...->i...", problem.forms(t, q), lam)
    middle = problem.forms(t + h / 2, q + dq / 2)
    return np.concatenate([balance, middle[:, 0] + np.einsum("ai...,i...->a...", middle[:, 1:], dq / h)])


def linearised(problem, alpha, t, q, plus, y):
    """The residual and its Jacobian in y = (h, dq, lam)."""
    f = lambda y: residual(problem, alpha, t, q[:, None], plus[:, None], y)
    return jacobian(f, y, abs(y[0]) / 200)


def eliminated(problem, alpha, t, q, plus, h, y):
    """(e, S, y): at fixed h solve for (dq, lam); e is the energy residual left and S = de/dh, a Schur complement."""
    k = len(q) + 1
    y = np.concatenate([[h], y[1:k] * (h / y[0]), y[k:]])
    for _ in range(25):
        r, j = linearised(problem, alpha, t, q, plus, y)
        if not np.isfinite(j).all():
            break
        move = np.linalg.solve(j[1:, 1:], np.stack([r[1:], j[1:, 0]], axis=1))
        y[1:] -= move[:, 0]
        if np.abs(move[:, 0]).max() < 1e-8 * (abs(h) + np.abs(y[1:]).max()):
            return r[0] - j[0, 1:] @ move[:, 0], j[0, 0] - j[0, 1:] @ move[:, 1], y
    return np.nan, np.nan, y


@dataclass
class Step:
    """status ("ok", "no_root", "nonpositive_h", "crossed"), y = (h, dq, lam), S, and what the equations miss."""

    status: str
    y: np.ndarray
    schur: float = np.nan
    miss: float = np.nan


def solve_step(problem, alpha, t, q, plus, last, y, cross=False):
    """One EDLA step from (t, q), `plus` = (D3 Ld, D4 Ld) and length `last` of the step before, from the guess y.

    At fixed h the rest is eliminated; e(h) has the trivial root h = -last, so f = e / (h + last) goes to a Newton
    iteration whose slope is the Schur complement, |change| <= 0.3 h, inside [last / 10, 10 last].  If that does not
    settle, the interval is searched for changes of sign.  `cross` allows, where there is no root, argmin |e(h)|.
    """
    at = lambda h: eliminated(problem, alpha, t, q, plus, h, y)
    low, high, h = last / 10, 10 * last, y[0]
    for _ in range(30):
        e, slope, new = at(h)
        f = e / (h + last)
        to = np.clip(h - f * (h + last) / (slope - f), max(0.7 * h, low), min(1.3 * h, high))
        if not np.isfinite(to):
            break
        if abs(to - h) < 1e-7 * h:
            step = polish(problem, alpha, t, q, plus, np.array([to, *new[1:]]))
            if step.status == "ok":
                return step
            break
        h = to
    f = lambda h: at(h)[0] / (h + last)
    grid = np.geomspace(low, high, 61)
    values = np.array([f(h) for h in grid])
    turns = np.flatnonzero(values[:-1] * values[1:] < 0)
    if turns.size:
        i = turns[np.argmin(np.abs(np.log(grid[turns] / y[0])))]
        h = brentq(f, grid[i], grid[i + 1], xtol=1e-14 * last, rtol=1e-14)
        return polish(problem, alpha, t, q, plus, at(h)[2])
    grid = -last * np.linspace(0.02, 0.98, 25)
    behind = np.array([f(h) for h in grid])
    status = "nonpositive_h" if (behind[:-1] * behind[1:] < 0).any() else "no_root"
    if cross:
        pass
    return Step(status, y)


def polish(problem, alpha, t, q, plus, y):
    """Full Newton on (h, dq, lam), keeping the iterate with the smallest residual."""
    best = Step("ok", y, np.nan, np.inf)
    for _ in range(5):
        r, j = linearised(problem, alpha, t, q, plus, y)
        if np.abs(r).max() < best.miss:
            schur = j[0, 0] - j[0, 1:] @ np.linalg.solve(j[1:, 1:], j[1:, 0])
            best = Step("ok", y, schur, np.abs(r).max())
        y = y - np.linalg.solve(j, r)
    if best.miss > 1e-11 * (1 + np.abs(plus).max()):
        best.status = "no_root"
    return best


@dataclass
class Path:
    """Rows k: t, q (N + 1 of them); h, dq, plus (N); lam, S (N - 1, from the second step on); the last status."""

    t: np.ndarray
    q: np.ndarray
    h: np.ndarray
    dq: np.ndarray
    plus: np.ndarray
    lam: np.ndarray
    schur: np.ndarray
    status: str


def run(problem, h0, steps, alpha=0.5, end=np.inf, pin=False, cross=False):
    """A first step of length h0 from M v0 at fixed step, then EDLA for `steps` steps in all or until t >= end.

    `pin` holds the energy of the first step instead of that of the step before (autonomous problems only).
    """
    t, q, v, k = 0.0, problem.q0.astype(float), problem.v0, problem.q0.size + 1
    y = np.concatenate([[h0], h0 * v, 0 * problem.omega0(t, q)])
    y = eliminated(problem, alpha, t, q, np.concatenate([[0.0], problem.mass(t, q) @ v]), h0, y)[2]
    y = eliminated(problem, alpha, t, q, np.concatenate([[0.0], problem.mass(t, q) @ v]), h0, y)[2]
    ts, qs, ys, pluses, schurs, status, ratio = [t], [q], [], [], [], "ok", 1.0
    while True:
        t, q = t + y[0], q + y[1:k]
        plus = slots(problem, alpha, ts[-1], qs[-1], y[0], y[1:k])[1]
        if pin and pluses:
            plus[0] = pluses[0][0]
        ts.append(t), qs.append(q), ys.append(y), pluses.append(plus)
        if len(ys) >= steps or t >= end:
            break
        guess = np.concatenate([[y[0]], y[1:k], y[k:]])
        guess[:k] *= np.clip(ratio, 0.5, 2)
        step = solve_step(problem, alpha, t, q, plus, y[0], guess, cross)
        status = step.status
        if status not in ("ok", "crossed"):
            break
        ratio, y = step.y[0] / y[0], step.y
        schurs.append(step.schur)
    ys = np.array(ys)
    return Path(
        np.array(ts),
        np.array(qs),
        ys[:, 0],
        ys[:, 1:k],
        np.array(pluses),
        ys[1:, k:],
        np.array(schurs),
        status,
    )
