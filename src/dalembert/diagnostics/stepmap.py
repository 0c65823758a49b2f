"""One step as a map of the phase space: reversibility, fibration, volume, and the passenger's exponents.

States are (q, u), where u is the method's own velocity: on D for most methods, on all of TQ for the others.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.inputs import as_rows, one_run
from dalembert.kernels import over_rows
from dalembert.methods import Method
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    as_arrays,
    lower,
    nearest_frame,
    onto_surface,
    orthonormal_frame,
    tangent_directions,
)
from dalembert.numerics import Vector, Vectors
from dalembert.simulation import Trajectory, simulate

# Central differences of order six; exact to rounding for maps as smooth as a step.
OFFSETS = np.array([-3, -2, -1, 1, 2, 3])
WEIGHTS = np.array([-1, 9, -45, 45, -9, 1]) / 60
_DELTA = 0.02
# Newton steps from the tangent plane, a few times _DELTA away, to the surface of position constraints.
_CORRECTIONS = 4
# A single step that changes log |det| by less than this keeps volume; the differences are no more accurate.
KEPT_VOLUME = 1e-9


def _step(shared: Any, q: Array, u: Array) -> tuple[Array, Array]:
    system, method, h = shared
    state, memory = method.resume(system, q, u, h)
    state = state._replace(t=jnp.zeros(()))  # nothing depends on time here, but a method may compute with it
    state, memory, _ = method.step(system, state, memory, h)
    return state.q, method.output(system, state, memory, h)[0]


def reverse(shared: Any, q: Array, u: Array) -> Array:
    """The velocity with which the method goes back."""
    system, method, _ = shared
    return method.reverse(system, q, u)


def step_map(
    system: System, method: Method, h: float, q: Vectors, u: Vectors
) -> tuple[Float[np.ndarray, "rows n"], Float[np.ndarray, "rows k"]]:
    """One step of size h from each row of (q, u): configurations and own velocities."""
    return over_rows(_step)(as_shared(system, method, h), *as_rows(system, q, u))


def as_shared(system: System, method: Method, h: float) -> tuple[Mechanics, Method, np.ndarray]:
    """The system, the method and the step size as arrays, ready for compiled functions of rows."""
    m = lower(as_arrays(system))
    if Trait.TIMED in m.traits or method.variable_step:
        what = (
            f"{m.label} depends on time"
            if Trait.TIMED in m.traits
            else f"the steps of {method.cli_name} differ in size"
        )
        raise ValueError(f"a step is one map only if all steps are alike, but {what}")
    return m, as_arrays(method), np.asarray(h, float)


def reversibility_defect(
    system: System, method: Method, h: float, q: Vectors, u: Vectors, plain: bool = False
) -> Float[np.ndarray, " rows"]:
    """The distance from each row of (q, u) after a step, a reversal, a step back and a second reversal.

    The reversal is the method's own involution, or u -> -u if `plain` is true, which is not the right one for
    leap-frog. The defect is relative to the size of the state.
    """
    shared = as_shared(system, method, h)
    q, u = as_rows(system, q, u)

    def turn(q, u):
        return -u if plain else over_rows(reverse)(shared, q, u)

    q1, u1 = over_rows(_step)(shared, q, u)
    q2, u2 = over_rows(_step)(shared, q1, turn(q1, u1))
    u2 = turn(q2, u2)
    return _apart((q2, u2), (q, u), h)


def _apart(one: Any, two: Any, h: float) -> np.ndarray:
    """The distance of two states in each row, with positions and velocities relative to their sizes in all rows."""
    (q1, u1), (q2, u2) = one, two
    speed = max(float(np.max(np.abs(u2))), np.finfo(float).tiny)
    length = max(float(np.max(np.abs(q2))), h * speed)
    return np.maximum(np.max(np.abs(q1 - q2), axis=1) / length, np.max(np.abs(u1 - u2), axis=1) / speed)


class Fibration(NamedTuple):
    """How far a step is from respecting the coupled structure, which the exact motion respects.

    Positions and velocities are relative to their sizes.
    """

    driver: float
    """The change of the driver's next state when the passenger is exchanged."""
    fibre: float
    """The change of the step, seen in (kappa x, u, xi, eta), along the kernel of kappa."""


def fibration_defects(
    coupled: CoupledSystem, method: Method, h: float, q: Vectors, u: Vectors, on_constraint: bool = True
) -> Fibration:
    """The fibration defects over the rows of (q, u).

    Each driver is given the passenger of another row, and each passenger is moved along the kernel of kappa.
    """
    q, u = as_rows(coupled.system, q, u)
    if len(q) < 2:
        raise ValueError("fibration_defects needs two states or more, to give one the passenger of another")
    i, other = coupled.index, coupled.others
    system = coupled.system
    q1, u1 = step_map(system, method, h, q, u)

    # The passenger of the previous row; on D its velocity is the same multiple of another k.
    q2, u2 = q.copy(), u.copy()
    q2[:, other] = np.roll(q[:, other], 1, axis=0)
    u2[:, other] = np.roll(u[:, other], 1, axis=0)
    if on_constraint:
        k = over_rows(CoupledSystem.k)(coupled, q[:, i])
        mass = np.asarray(coupled.mass)
        speed = np.einsum("ki,ij,kj->k", k, mass, u[:, other])
        u2[:, other] = np.roll(speed, 1)[:, None] * k
    q2, u2 = step_map(system, method, h, q2, u2)
    own = [i]
    driver = np.max(_apart((q2[:, own], u2[:, own]), (q1[:, own], u1[:, own]), h))

    if coupled.kappa is None:
        return Fibration(float(driver), np.nan)
    kappa = np.asarray(coupled.kappa)
    _, values, rows = np.linalg.svd(kappa, full_matrices=True)
    kernel = rows[np.sum(values > 1e-12) :] if len(values) else rows
    if not len(kernel):
        return Fibration(float(driver), 0.0)
    moved = np.random.default_rng(5).normal(size=(len(q), len(kernel))) @ kernel
    q3 = q.copy()
    q3[:, other] += moved
    q3, u3 = step_map(system, method, h, q3, u)
    q3[:, other] -= moved
    return Fibration(float(driver), float(np.max(_apart((q3, u3), (q1, u1), h))))


def place_in_frame(
    system: Mechanics, q: Array, u: Array, b: Array, directions: Array, dq: Array, dw: Array
) -> tuple[Array, Array]:
    """The state near (q, u) on D whose coordinates differ by dq in these directions and by dw in the frame b, extended
    smoothly."""
    w = b.T @ system.metric(q) @ (u - system.drift(q))
    near = _moved(system, q, directions @ dq)
    return near, system.drift(near) + nearest_frame(system, near, b) @ (w + dw)


def _moved(system: Mechanics, q: Array, x: Array) -> Array:
    """The configuration at the distance x from q, on the surface if there are position constraints."""
    near = system.space.displaced(q, x)
    for _ in range(_CORRECTIONS):
        near = onto_surface(system, near)
    return near


def place(
    system: Mechanics, q: Array, u: Array, directions: Array, dq: Array, du: Array
) -> tuple[Array, Array]:
    """The state near (q, u) on TQ, or on the tangent bundle of the surface of position constraints."""
    if Trait.HOLONOMIC not in system.traits:
        return system.space.displaced(q, dq), u + du
    near = _moved(system, q, directions @ dq)
    w = directions.T @ system.metric(q) @ u
    return near, tangent_directions(system, near, directions) @ (w + du)


def read_in_frame(system: Mechanics, q: Array, u: Array, base: Array, b: Array, directions: Array) -> Array:
    """The coordinates (q, w) of a state near the configuration `base`, with the directions and the frame b there."""
    w = nearest_frame(system, q, b).T @ system.metric(q) @ (u - system.drift(q))
    return jnp.concatenate([_distance(system, base, q, directions), w])


def _distance(system: Mechanics, base: Array, q: Array, directions: Array) -> Array:
    moved = system.space.difference(base, q)
    return directions.T @ system.metric(base) @ moved if Trait.HOLONOMIC in system.traits else moved


def read_place(system: Mechanics, q: Array, u: Array, base: Array, directions: Array) -> Array:
    """The coordinates (q, u) of a state near the configuration `base`, in these directions there."""
    if Trait.HOLONOMIC in system.traits:
        u = tangent_directions(system, q, directions).T @ system.metric(q) @ u
    return jnp.concatenate([_distance(system, base, q, directions), u])


def step_jacobian(
    system: System, method: Method, h: float, q: Vectors, u: Vectors, on_constraint: bool = True
) -> Float[np.ndarray, "rows side side"]:
    """The derivative of the step at each row.

    The coordinates are (q, w), with w the velocity in an orthonormal frame of D, or (q, u) for methods on TQ. On the
    surface of position constraints, coordinates in orthonormal directions take the place of q, and of u.
    """
    return _jacobian(system, method, h, q, u, on_constraint, _DELTA)


def _jacobian(
    system: System, method: Method, h: float, q: Any, u: Any, on_constraint: bool, delta: float
) -> np.ndarray:
    shared = as_shared(system, method, h)
    q, u = as_rows(system, q, u)
    ends = over_rows(_step)(shared, q, u)
    b0, b1 = (over_rows(orthonormal_frame)(shared[0], x) for x in (q, ends[0]))
    d0, d1 = (over_rows(tangent_directions)(shared[0], x) for x in (q, ends[0]))
    n = d0.shape[2]
    size = n + (b0.shape[2] if on_constraint else n)
    unit = np.eye(size)[:, None, :] * (delta * OFFSETS)[None, :, None]
    shifts = unit.reshape(-1, size)
    many = len(shifts)
    rows = [np.repeat(x, many, axis=0) for x in (q, u, b0, d0, ends[0], b1, d1)]
    shift = np.tile(shifts, (len(q), 1))
    if on_constraint:
        near = over_rows(place_in_frame)(shared[0], *rows[:4], shift[:, :n], shift[:, n:])
        after = over_rows(_step)(shared, *near)
        values = over_rows(read_in_frame)(shared[0], *after, *rows[4:])
    else:
        near = over_rows(place)(shared[0], *rows[:2], rows[3], shift[:, :n], shift[:, n:])
        values = over_rows(read_place)(shared[0], *over_rows(_step)(shared, *near), rows[4], rows[6])
    values = values.reshape(len(q), size, len(OFFSETS), size)
    return np.einsum("kjoi,o->kij", values, WEIGHTS) / delta


class Volume(NamedTuple):
    """The rate at which a method changes volume in phase space."""

    rate: float
    """The mean of log |det| of the step, per unit of time."""
    error: float
    """The standard error of the rate; infinite if it comes from one state alone."""
    spread: float
    """The largest |log |det|| of a single step, per unit of time."""
    limit: float
    """The mean as h goes to zero: the divergence of the exact motion, if the method is consistent and on D."""
    limit_error: float
    """The standard error of the limit."""
    verdict: str
    """"kept" if no single step changes volume; "contracts" or "grows" if the rate is further from zero than three
    times its error; "undecided" if it is not; "singular" if a step loses a direction altogether; "not measured" if
    steps near the run fail."""


def volume_change(
    system: System, method: Method, h: float, q: Vectors, u: Vectors, on_constraint: bool = True
) -> Volume:
    """The rate from log |det| of the step at each row of (q, u), and its limit from very short steps.

    Standard errors assume that the rows are independent. For the states of one run, use `volume_along`.
    """
    q, u = as_rows(system, q, u)
    ones = [np.ones(1)] * len(q)
    return _volume(system, method, h, q, u, on_constraint, ones, np.full(len(q), 1 / len(q)))


def volume_along(trajectory: Trajectory, on_constraint: bool = True) -> Volume:
    """The rate along a run: the mean over windows of consecutive steps that are spread over it.

    A smooth weight in each window removes oscillations within it. The standard error comes from the differences
    between neighbouring windows. The windows lie closer together at the beginning, where a motion may still be
    settling.
    """
    system, method = one_run(trajectory, "the change of volume", rows=2)
    q, u = np.array(trajectory.q, float), np.asarray(trajectory.v_full, float)
    every = trajectory.save_every
    wrapped = [i for i, name in enumerate(system.coordinates) if name in system.angles]
    q[:, wrapped] = (q[:, wrapped] + np.pi) % (2 * np.pi) - np.pi
    edges, size = _strata((len(q) - 1) * every)
    draw, starts, weights = np.random.default_rng(7), [], []
    for low, high in pairwise(edges):
        length = min(size, high - low)
        starts.append(int(draw.integers(low, high - length + 1)) // every)
        weights.append(np.sin(np.pi * (np.arange(length) + 0.5) / length) ** 2)
    starts[0], weights[0] = 0, np.ones(len(weights[0]))  # the first window fills its whole part
    if every == 1:
        steps = [(q[a : a + len(w)], u[a : a + len(w)]) for a, w in zip(starts, weights, strict=True)]
    else:
        states = [(q[starts], u[starts])]
        for _ in range(size - 1):
            states.append(step_map(system, method, float(trajectory.h), *states[-1]))
        steps = [
            tuple(np.stack(x)[: len(w), i] for x in zip(*states, strict=True)) for i, w in enumerate(weights)
        ]
    q, u = (np.concatenate(x) for x in zip(*steps, strict=True))
    return _volume(
        system, method, float(trajectory.h), q, u, on_constraint, weights, np.diff(edges) / edges[-1]
    )


def _strata(steps: int) -> tuple[np.ndarray, int]:
    """The edges of the parts of a run, each of which gets a window, and the length of the windows."""
    size = min(max(64, steps // 500), 128, max(1, steps // 16))
    edges, length = [0, size], size
    while length < steps / 16 and edges[-1] + length < steps:
        edges.append(edges[-1] + length)
        length *= 2
    parts = max(1, round((steps - edges[-1]) * 16 / steps))
    rest = np.linspace(edges[-1], steps, parts + 1).round().astype(int)
    return np.unique([*edges, *rest]), size


def _volume(
    system: System,
    method: Method,
    h: float,
    q: np.ndarray,
    u: np.ndarray,
    on_constraint: bool,
    weights: Sequence[np.ndarray],
    shares: np.ndarray,
) -> Volume:
    """The rate from the rows of windows, one window after the other, with these weights and a share per window."""

    def determinants(h, pick, delta):
        # In parts, because the differences of one state take about a hundred rows.
        parts = np.array_split(pick, max(1, len(pick) // 512))
        made = [_jacobian(system, method, h, q[x], u[x], on_constraint, delta) for x in parts]
        return np.concatenate([np.linalg.slogdet(x)[1] for x in made]) / h

    few = np.unique(np.linspace(0, len(q) - 1, 16).astype(int))
    with np.errstate(
        invalid="ignore", divide="ignore", over="ignore"
    ):  # from steps that fail or lose a direction
        delta, doubt = _difference_step(lambda delta: determinants(h, few, delta), h)
        rates = determinants(h, np.arange(len(q)), delta)
        window = np.repeat(np.arange(len(weights)), [len(w) for w in weights])
        some = np.arange(0, len(q), 4) if min(len(w) for w in weights) >= 8 else np.arange(len(q))
        limits = determinants(1e-3 * h, some, delta)
    flat = np.concatenate(weights)
    if not np.all(np.isfinite(rates)):
        singular = np.any(np.isneginf(rates)) and not np.any(np.isnan(rates))
        rate, error = (-np.inf, 0.0) if singular else (np.nan, np.inf)
    else:
        rate, error = _weighted(rates, flat, window, shares)
        error = float(np.hypot(error, doubt))
    limit, limit_error = _weighted(limits, flat[some], window[some], shares)
    spread = float(np.max(np.abs(rates)))
    return Volume(rate, error, spread, limit, limit_error, _volume_verdict(rate, error, spread * h))


def _difference_step(determinants: Callable[[float], np.ndarray], h: float) -> tuple[float, float]:
    """A step for the differences that suits the system's own lengths, and the uncertainty that it leaves in a rate."""
    best = (_DELTA, np.inf)
    for delta in _DELTA * 10.0 ** -np.arange(4):
        change = float(np.max(np.abs(determinants(delta) - determinants(delta / 2))))
        if change < best[1]:
            best = (float(delta), change)
        if best[1] * h < KEPT_VOLUME:
            break
    return best


def _weighted(
    rates: np.ndarray, weights: np.ndarray, window: np.ndarray, shares: np.ndarray
) -> tuple[float, float]:
    """The mean and its standard error.

    The error comes from the differences between neighbouring windows, so that a motion that settles slowly does not
    count as noise.
    """
    sums = np.bincount(window, weights)
    local = np.bincount(window, weights * rates) / sums
    mean = float(shares @ local)
    if len(local) < 2:
        return mean, np.inf
    jumps = np.diff(local) ** 2 / 2
    variances = 0.5 * (np.append(jumps, jumps[-1]) + np.append(jumps[0], jumps))
    return mean, float(np.sqrt(shares**2 @ variances))


def _volume_verdict(rate: float, error: float, most: float) -> str:
    if rate < -100:  # e^-100 per unit of time
        return "singular"
    if np.isnan(rate):
        return "not measured"
    if most < KEPT_VOLUME:
        return "kept"
    if abs(rate) > 3 * error:
        return "contracts" if rate < 0 else "grows"
    return "undecided"


def passenger_exponents(
    coupled: CoupledSystem,
    method: Method,
    q0: Vector,
    v0: Vector,
    h: float,
    steps: int,
    on_constraint: bool = True,
) -> Float[np.ndarray, " size"]:
    """The Lyapunov exponents of the passenger along the driver's orbit, with the largest first.

    The step is linear in the passenger (x, v), or (x, u) for methods on TQ. Its matrices along the orbit are
    multiplied, with QR decompositions in between. The potential U must be quadratic, and the method must respect the
    driver.
    """
    coupled = CoupledSystem.of(coupled)
    coupled.linear()
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps must be a whole number of at least 1, got {steps!r}")
    system, i = coupled.system, coupled.index
    as_shared(system, method, h)
    sol = simulate(system, method, q0, v0, h=h, steps=steps)
    orbit_q, orbit_u = np.asarray(sol.q)[:-1], np.asarray(sol.v_full)[:-1]
    basis, sums = None, 0.0
    for a in range(0, steps, 4096):
        q, u = orbit_q[a : a + 4096], orbit_u[a : a + 4096]
        matrices = passenger_matrices(coupled, method, h, q[:, i], u[:, i], on_constraint)
        if basis is None:
            basis = _slow_directions(matrices[: _return(coupled, q, u)])
        for b in range(0, len(matrices), 8):  # within eight steps nothing grows enough to lose digits
            for m in matrices[b : b + 8]:
                basis = m @ basis
            basis, r = np.linalg.qr(basis)
            sums = sums + np.log(np.abs(np.diag(r)))
    return np.sort(sums / (steps * h))[::-1]


def _return(coupled: CoupledSystem, q: np.ndarray, u: np.ndarray) -> int:
    """The number of steps after which the driver is nearest to where it began."""
    away = q[:, coupled.index] - q[0, coupled.index]
    if coupled.is_angle:
        away = away - 2 * np.pi * np.round(away / (2 * np.pi))
    speed = u[:, coupled.index] - u[0, coupled.index]
    first = len(away) // 4  # long enough for exponents to show
    return first + int(np.argmin(np.hypot(away, speed)[first:]))


def _slow_directions(matrices: np.ndarray) -> np.ndarray:
    """An orthonormal basis whose first vectors span the directions that grow most until the driver returns.

    From any other basis, exponents that differ little would take very long to separate.
    """
    product = np.eye(matrices.shape[1])
    for m in matrices:
        product = m @ product
    values, vectors = np.linalg.eig(product)
    order = np.argsort(-np.abs(values), kind="stable")
    columns = [part(vectors[:, j]) for j in order for part in (np.real, np.imag)]
    kept: list[np.ndarray] = []
    for c in columns:
        c = c - sum((np.dot(k, c) * k for k in kept), np.zeros(len(c)))
        if np.linalg.norm(c) > 1e-6 and len(kept) < len(product):
            kept.append(c / np.linalg.norm(c))
    return np.stack(kept, axis=1)


def passenger_matrices(
    coupled: CoupledSystem, method: Method, h: float, xi: Any, eta: Any, on_constraint: bool = True
) -> Float[np.ndarray, "rows side side"]:
    """The linear part of the step in the passenger (x, v), or (x, u) for methods on TQ, at each driver state."""
    coupled = CoupledSystem.of(coupled)
    if np.ndim(xi) != 1 or np.shape(xi) != np.shape(eta) or not np.size(xi):
        raise ValueError(
            f"driver states must be two rows of the same length, one or more, got {np.shape(xi)} and {np.shape(eta)}"
        )
    mass = np.asarray(coupled.mass)
    n, i, other = coupled.system.dimension, coupled.index, coupled.others
    d = len(other)
    size = d + 1 if on_constraint else 2 * d
    count = len(xi)
    k = over_rows(CoupledSystem.k)(coupled, xi)
    q, u = np.zeros((size + 1, count, n)), np.zeros((size + 1, count, n))
    q[..., i], u[..., i] = xi, eta
    for j in range(size):
        if j < d:
            q[j, :, other[j]] = 1.0
        elif on_constraint:
            u[j][:, other] = k
        else:
            u[j, :, other[j - d]] = 1.0
    q1, u1 = step_map(coupled.system, method, h, q.reshape(-1, n), u.reshape(-1, n))
    q1, u1 = q1.reshape(size + 1, count, n), u1.reshape(size + 1, count, n)
    x, w = q1[:, :, other], u1[:, :, other]
    if on_constraint:
        k1 = over_rows(CoupledSystem.k)(coupled, q1[-1, :, i])
        w = np.einsum("jci,ik,ck->jc", w, mass, k1)[..., None]
    z = np.concatenate([x, w], axis=-1)
    return np.moveaxis(z[:-1] - z[-1], 0, -1)
