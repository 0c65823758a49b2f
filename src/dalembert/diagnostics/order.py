"""The order of accuracy, fitted above the round-off plateau, and which term of the equations a method gets wrong."""

from typing import Any, NamedTuple

import numpy as np
from jax import Array

from dalembert.diagnostics.inputs import as_rows
from dalembert.kernels import over_rows
from dalembert.methods import Method, Reference
from dalembert.model import (
    Mechanics,
    System,
    acceleration,
    along_allowed,
    as_arrays,
    check_system,
    independent_rows,
    lower,
    nearest_start,
)
from dalembert.numerics import Vector
from dalembert.simulation import SimulationError, ensemble, simulate

# The rounding of a few hundred steps and of the reference, relative to the size of the motion.
PLATEAU = 5e-13
STARTS = 5


class Order(NamedTuple):
    """The order of accuracy, from errors at one final time for several step sizes."""

    q: float
    v: float
    steps: np.ndarray
    """The step sizes, coarsest first."""
    errors: np.ndarray
    """(len(steps), 2) the errors of q and v, as root mean squares over several starts."""

    def __str__(self) -> str:
        return f"{self.q:.2f} in q, {self.v:.2f} in v"


def nearby_starts(
    system: System, q0: Any, v0: Any, count: int = STARTS, t0: float = 0.0, time: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """The start and some starts near it with velocities on the constraint, so that no single start decides.

    The velocities differ by a fraction of the start's velocity, or of the velocity gained after `time` if the start is
    at rest.
    """
    draw = np.random.default_rng(3).uniform(-1, 1, size=(2, count, len(np.asarray(v0))))
    draw[:, 0] = 0
    m, base = lower(as_arrays(system)).at(t0), np.broadcast_to(np.asarray(q0, float), (count, np.size(q0)))
    speed = float(np.max(np.abs(np.asarray(v0))))
    if speed == 0:
        speed = time * float(
            np.max(np.abs(over_rows(exact_acceleration)(m, base[:1], np.asarray(v0, float)[None])))
        )
    q = over_rows(_displaced)(m, base, 0.05 * draw[0])
    v = np.asarray(v0, float) + 0.05 * speed * draw[1]
    return over_rows(nearest_start)(m, q, v)


def exact_acceleration(system: System, q: Array, v: Array) -> Array:
    """q'' of the exact motion."""
    return acceleration(system, q, v)[0]


def fitted_order(steps: Any, errors: Any, plateau: float = PLATEAU, points: int = 4) -> float:
    """The slope of log error against log step over the last `points` values above the plateau.

    The slope is NaN if there are fewer.
    """
    steps, errors = np.asarray(steps, float), np.asarray(errors, float)
    if steps.ndim != 1 or steps.shape != errors.shape:
        raise ValueError(
            f"steps and errors must be two rows of the same length, got {steps.shape} and {errors.shape}"
        )
    if np.any(steps <= 0):
        raise ValueError("step sizes must be positive")
    below = np.nonzero(~(errors > plateau))[0]
    end = int(below[0]) if below.size else len(errors)
    if end < points:
        return np.nan
    window = slice(end - points, end)
    return float(np.polyfit(np.log(steps[window]), np.log(errors[window]), 1)[0])


class Exact(NamedTuple):
    """Starts, and where the exact motion ends after some time."""

    q0: np.ndarray
    v0: np.ndarray
    q1: np.ndarray
    v1: np.ndarray
    time: float


def exact_ends(system: System, q0: Vector, v0: Vector, time: float, count: int = STARTS) -> Exact:
    """Where the exact motion from the start, and from some starts near it, ends after `time`."""
    check_system(system)
    if not 0 < time < np.inf:
        raise ValueError(f"time must be positive, got {time!r}")
    sizes, wanted = (np.shape(q0), np.shape(v0)), ((system.dimension,), (system.velocity_dimension,))
    if sizes != wanted:
        raise ValueError(
            f"the start of {system.label} has the shapes {wanted[0]} and {wanted[1]}, got {sizes[0]} and {sizes[1]}"
        )
    system = independent_rows(system, q0)
    q, v = nearby_starts(system, q0, v0, count, time=time)
    return Exact(q, v, *_ends_at(system, q, v, np.full(count, time)), time)


def _ends_at(system: System, q0: Any, v0: Any, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states of the exact motion from each start, each at its own time."""
    runs = [
        simulate(system, Reference(), q, v, h=t / 8, steps=8, save_every=8)
        for q, v, t in zip(q0, v0, times, strict=True)
    ]
    return np.stack([r.q[-1] for r in runs]), np.stack([r.v[-1] for r in runs])


def measured_order(
    system: System, method: Method, exact: Exact, coarsest: float, ratio: float = 1.35, most: int = 20
) -> Order:
    """The order of `method`, from runs to exact.time with ever finer steps, until errors reach the plateau.

    A method that chooses its steps makes as many as equal steps would need, and is compared where its run ends.
    """
    length = max(float(np.max(np.abs(exact.q1 - exact.q0))), 1e-300)
    speed = max(float(np.max(np.abs(exact.v1))), 1e-300)
    counts, errors = [], []
    for k in range(most):
        # An even number, because a mode that changes sign every step gives different errors for odd numbers.
        count = 2 * round(exact.time / coarsest * ratio**k / 2)
        if counts and count == counts[-1]:
            continue
        try:
            run = ensemble(
                system, method, exact.q0, exact.v0, h=exact.time / count, steps=count, save_every=count
            )
        except SimulationError:
            continue
        if np.any(run.code):
            continue  # too coarse for this method
        q, v = np.asarray(run.q)[:, -1], np.asarray(run.v)[:, -1]
        q1, v1 = exact.q1, exact.v1
        if method.variable_step:
            if np.max(run.t[:, -1]) > 2 * exact.time:
                continue  # the steps have run away, and errors there say nothing about an order
            q1, v1 = _ends_at(system, exact.q0, exact.v0, np.asarray(run.t[:, -1]))
        found = [np.sqrt(np.mean((q - q1) ** 2)) / length, np.sqrt(np.mean((v - v1) ** 2)) / speed]
        if not np.all(np.isfinite(found)):
            continue
        counts.append(count)
        errors.append(found)
        if max(found) < PLATEAU:
            break
    steps, table = exact.time / np.array(counts, float), np.array(errors).reshape(-1, 2)
    if len(steps) < 4:
        return Order(np.nan, np.nan, steps, table)
    points = 4 if ratio > 1.2 else 8
    in_q, in_v = (fitted_order(steps, e, points=points) for e in table.T)
    found = Order(in_q, in_v, steps, table)
    if ratio > 1.2 and found.q > 4.5:
        # High orders settle late and reach rounding soon, so their step sizes must lie close together.
        return measured_order(system, method, exact, coarsest, 1.12, 3 * most)
    return found


class Terms(NamedTuple):
    """The factors with which parts of the equations of motion enter a method as h goes to zero; each should be one."""

    kinematics: float
    """The factor in q' = factor * v; NaN if all velocities are zero."""
    potential: float
    """The factor of the force of the potential along D; NaN if there is none."""
    inertia: float
    """The factor of the terms quadratic in v, from the turning of constraint and metric; NaN if there are none."""
    forces: float
    """The factor of the non-conservative forces along D; NaN if there are none."""
    rest: float
    """The part of the acceleration that no factors explain, relative to the acceleration."""


def _parts(m: Mechanics, q: Array, v: Array) -> tuple[Array, Array, Array]:
    mass = m.metric(q)
    pull = along_allowed(m, q, v, -m.solved(mass, m.potential_gradient(q)))
    push = along_allowed(m, q, v, m.solved(mass, m.forces(q, v)))
    return pull, acceleration(m, q, v)[0] - pull - push, push


def _displaced(m: Mechanics, q: Array, x: Array) -> Array:
    return m.space.displaced(q, x)


def _difference(m: Mechanics, q0: Array, q1: Array) -> Array:
    return m.space.difference(q0, q1)


def measured_terms(system: System, method: Method, q: Vector, v: Vector, h: float) -> Terms:
    """The factors of the terms that fit the acceleration over two very short steps from each row of (q, v), v on D."""
    q, v = as_rows(system, q, v)
    # Rounding hides the size of a step that keeps the energy if the step is too short.
    tiny = (1e-3 if method.variable_step else 1e-5) * h
    run = ensemble(system, method, q, v, h=tiny, steps=2, save_every=2)
    time = np.broadcast_to(np.asarray(run.t)[..., -1], len(q))[:, None]
    rate = (np.asarray(run.v)[:, -1] - v) / time
    drift = over_rows(_difference)(lower(as_arrays(system)), q, np.asarray(run.q)[:, -1]) / time
    found = dict.fromkeys(("potential", "inertia", "forces"), np.nan)
    parts = dict(zip(found, over_rows(_parts)(lower(as_arrays(system)), q, v), strict=True))
    # An acceleration that cannot be distinguished from rounding, eps |v|/tiny, counts as zero.
    scale = max(sum(float(np.max(np.abs(x))) for x in parts.values()), 1e-6 * float(np.max(np.abs(v))) / h)
    columns = {k: x.ravel() for k, x in parts.items() if np.max(np.abs(x)) > 1e-6 * scale > 0}
    rest = float(np.max(np.abs(rate))) / scale if scale > 0 else 0.0
    if columns and np.all(np.isfinite(rate)):
        matrix = np.stack(list(columns.values()), axis=1)
        weights = np.linalg.lstsq(matrix, rate.ravel(), rcond=None)[0]
        found |= dict(zip(columns, map(float, weights), strict=True))
        rest = float(np.max(np.abs(matrix @ weights - rate.ravel())) / scale)
    moved = float(np.sum(v * v))
    return Terms(float(np.sum(drift * v)) / moved if moved > 0 else np.nan, **found, rest=rest)
