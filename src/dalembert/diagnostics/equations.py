"""The equations of motion at a state: allowed starts, accelerations, and their linearisation."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Inexact

from dalembert.model import (
    Mechanics,
    System,
    Trait,
    as_arrays,
    check_start,
    check_system,
    independent_rows,
    least_norm,
    lower,
    nearest_allowed,
    nearest_configuration,
    nearest_frame,
    nearest_start,
    orthonormal_frame,
    real_numbers,
    tangent_directions,
)
from dalembert.model import acceleration as acceleration_at
from dalembert.numerics import Vector, jit_fast_compile

# A component that differs by less than this was only rounded, not changed.
_SAME = 1e-12


class Start(tuple[np.ndarray, np.ndarray]):
    """A start state (q0, v0) that the system allows. Its `words` say what had to be changed."""

    words: str

    @property
    def q(self) -> Float[np.ndarray, " n"]:
        """The configuration."""
        return self[0]

    @property
    def v(self) -> Float[np.ndarray, " k"]:
        """The velocity, which satisfies the constraint."""
        return self[1]

    def __repr__(self) -> str:
        return f"Start(q={self.q.tolist()}, v={self.v.tolist()}): {self.words}"


def start(
    system: System,
    q0: Vector,
    v0: Vector | None = None,
    *,
    rates: Mapping[str, float] | None = None,
    change: Sequence[str] | None = None,
    t: float = 0.0,
) -> Start:
    """A start near (q0, v0) that satisfies the constraints.

    Given `v0`, the velocity is the allowed one nearest to `v0` in the kinetic metric. Given `rates`, a mapping from
    the names of some velocity components to their values, it is the allowed velocity with these components that has
    the least kinetic energy. If the system has position constraints, the configuration is the one nearest to q0, in
    the kinetic metric, that satisfies them; `change` names the coordinates that may change, and the others then stay
    as they are. The result is a pair, so `da.simulate(system, method, *da.start(...), ...)` works. Its `words` say
    what was changed.
    """
    check_system(system)
    m = lower(as_arrays(system)).at(jnp.asarray(t, float))
    q = real_numbers("q0", q0, m.dimension, m.coordinates)
    if q.shape != (m.dimension,):
        raise ValueError(f"q0 must have shape ({m.dimension},), one number per coordinate; got {q.shape}")
    names = system.velocity_names
    if (v0 is None) == (rates is None):
        raise ValueError("give one of the two: v0, a velocity, or rates, some of its components by name")
    if np.all(np.isfinite(q)):
        m = lower(as_arrays(independent_rows(system, q, t))).at(m.t)
    given, q = q, _placed(m, q, change)
    words, kind = [], "the velocity: " if Trait.HOLONOMIC in m.traits else ""
    words.append(_changed(m.coordinates, given, q, "the configuration: "))
    if rates is None:
        before = real_numbers("v0", v0, len(names), names)
        if before.shape != (len(names),):
            raise ValueError(
                f"v0 must have shape ({len(names)},), one number per velocity; got {before.shape}"
            )
        after = np.asarray(_nearest(m, q, before))
        if Trait.NONLINEAR in m.traits and not np.all(np.isfinite(after)):
            raise ValueError(
                f"{m.label}: no velocity near v0 = {before.tolist()} that satisfies the constraints was found. Start "
                "nearer to them; at v0 = 0 a constraint that is not linear may have no derivative"
            )
        words.append(_changed(names, before, after, kind))
    else:
        after = _completed(m, names, q, dict(rates))
        words.append(
            "completed: "
            + (
                ", ".join(f"{n} = {x:.6g}" for n, x in zip(names, after, strict=True) if n not in rates)
                or "nothing"
            )
        )
    check_start(system, q, after, t0=t)
    made = Start((q, after))
    made.words = "; ".join(filter(None, words)) or "nothing had to be changed"
    return made


def _placed(m: Mechanics, q: np.ndarray, change: Sequence[str] | None) -> np.ndarray:
    """The configuration nearest to q that satisfies the position constraints."""
    if change is not None and (isinstance(change, str) or not all(isinstance(x, str) for x in change)):
        raise ValueError(f"change must list names of coordinates, such as ('z',), got {change!r}")
    if Trait.HOLONOMIC not in m.traits:
        if change is not None:
            raise ValueError(
                f"change names coordinates that may change, but {m.label} has no position constraints, so q0 stays as "
                "it is; leave it out"
            )
        return q
    if not np.all(np.isfinite(q)):
        raise ValueError(f"q0 must be finite, got {q}")
    directions = np.eye(m.velocity_dimension)
    if change is not None:
        if Trait.GROUP in m.traits:
            raise ValueError(
                f"change names coordinates, but {m.label} lives on the group {m.space.name}; leave it out"
            )
        unknown = [name for name in change if name not in m.coordinates]
        if unknown:
            raise ValueError(
                f"change names {unknown[0]!r}, which is no coordinate of {m.label}; they are {', '.join(m.coordinates)}"
            )
        directions = directions[:, [name in change for name in m.coordinates]]
        number = jax.eval_shape(m.holonomic, q).shape[0]
        if directions.shape[1] < number:
            raise ValueError(
                f"{m.label} has {number} position constraints, which {directions.shape[1]} coordinates cannot satisfy; "
                f"name at least {number} in change, or leave it out"
            )
    value, found = (np.asarray(x) for x in _on_surface(m, q, directions))
    if not np.all(np.isfinite(found)):
        others = "" if change is None else ", or let more coordinates change"
        raise ValueError(
            f"{m.label}: no configuration near q0 that satisfies the position constraints was found; "
            f"holonomic(q0) = {value}. Start nearer to them{others}"
        )
    return found


@jit_fast_compile
def _on_surface(m: Mechanics, q: Array, directions: Array) -> tuple[Array, Array]:
    return m.holonomic(q), nearest_configuration(m, q, directions)


@jit_fast_compile
def _nearest(m: Mechanics, q: Array, v: Array) -> Array:
    return nearest_allowed(m, q, v)


@jit_fast_compile
def _parts(m: Mechanics, q: Array) -> tuple[Array, Array, Array]:
    return m.metric(q), m.rows(q), m.offsets(q)


def _changed(names: Sequence[str], before: np.ndarray, after: np.ndarray, kind: str = "") -> str:
    """The sentence about what was changed; empty if nothing was."""
    size = float(np.max(np.abs(before), initial=0.0))
    parts = [
        f"{name} from {a:.6g} to {b:.6g}"
        for name, a, b in zip(names, before, after, strict=True)
        if abs(a - b) > _SAME * size
    ]
    return f"changed {kind}{', '.join(parts)}" if parts else ""


def _completed(m: Mechanics, names: tuple[str, ...], q: np.ndarray, rates: dict[str, float]) -> np.ndarray:
    """The velocity with these components that satisfies the constraint and has the least kinetic energy."""
    unknown = [name for name in rates if name not in names]
    if unknown:
        raise ValueError(
            f"rates names {unknown[0]!r}, which is no velocity of {m.label}; its velocities are {', '.join(names)}"
        )
    if Trait.NONLINEAR in m.traits:
        raise ValueError(
            f"rates completes a velocity for linear constraints, but {m.label} gives nonlinear(q, v); give v0, and the "
            "nearest velocity that it allows is found"
        )
    m.refuse_indefinite("rates, which the velocity of least kinetic energy completes,")
    given = np.array([real_numbers(f"rates[{n!r}]", x, 1, (n,)) for n, x in rates.items()], float).reshape(-1)
    mass, a, b = (np.asarray(x) for x in _parts(m, q))
    fixed = np.eye(len(names))[[names.index(n) for n in rates]]
    # In these coordinates the kinetic metric is the identity, so the shortest solution has the least kinetic energy.
    factor = np.linalg.inv(np.linalg.cholesky(mass)).T
    rows = np.concatenate([a, fixed]) @ factor
    values = np.concatenate([b, given])
    lengths = np.linalg.norm(rows, axis=1)
    scale = np.where(lengths > 0, lengths, 1.0)
    found = np.linalg.lstsq(rows / scale[:, None], values / scale, rcond=1e-12)[0]
    off = np.abs(rows @ found - values) / scale
    if np.any(off > 1e-9 * (1 + np.linalg.norm(found))):
        # The allowed velocity whose components are nearest to the given ones.
        particular, free = np.linalg.pinv(a) @ b, np.linalg.svd(a)[2][len(a) :].T
        nearest = particular + free @ np.linalg.lstsq(fixed @ free, given - fixed @ particular, rcond=None)[0]
        parts = ", ".join(f"{n} = {x:.6g}" for n, x in zip(rates, fixed @ nearest, strict=True))
        raise ValueError(
            f"{m.label}: no allowed velocity at this configuration has all of these rates; they contradict the "
            f"constraint. The nearest rates that it allows are {parts}. Give fewer rates, or these"
        )
    # Projecting once more removes the rounding of the solve, so that the start passes the check of the constraint.
    return np.asarray(_nearest(m, q, factor @ found))


class Motion(NamedTuple):
    """The acceleration of the constrained motion, and the multipliers of its one-forms."""

    acceleration: Float[np.ndarray, " n"]
    multipliers: Float[np.ndarray, " m"]


def acceleration(system: System, q: Vector, v: Vector, t: float = 0.0) -> Motion:
    """v' and the multipliers at a state, from d/dt dL/dv - dL/dq = A(q)^T lam + forces with A v = b.

    Inside other JAX code, use `dalembert.model.acceleration`, which this function calls.
    """
    check_system(system)
    q, v = (np.asarray(x, float) for x in (q, v))
    system, _ = check_start(system, q, v, t0=t)
    found = _acceleration(lower(as_arrays(system)).at(jnp.asarray(t, float)), q, v)
    return Motion(*(np.asarray(x) for x in found))


@jit_fast_compile
def _acceleration(m: Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    found, lam = acceleration_at(m, q, v)
    return found, least_norm(m, q, lam)


class Linearisation(NamedTuple):
    """The linearised equations of motion about a state, on the states that the constraint allows."""

    matrix: Float[np.ndarray, "states states"]
    """(n + r, n + r) the matrix in d/dt (dq, dw) = matrix (dq, dw), where dq is the change of the configuration and dw
    the change of the velocity in `frame`, which is carried along. With k position constraints it has k rows and
    columns fewer, and the change of the configuration is `directions` dq."""
    frame: Float[np.ndarray, "n r"]
    """(n, r) a basis of D at the state, orthonormal for the kinetic metric."""
    eigenvalues: Inexact[np.ndarray, " states"]
    """(n + r,) the eigenvalues of the matrix, with the largest real parts first."""
    directions: Float[np.ndarray, "n d"]
    """(n, n - k) the changes of the configuration that position constraints allow; the identity if there are none."""
    steady: bool
    """Whether the matrix stays the same along the motion; only then do the eigenvalues decide the stability."""


def linearise(system: System, q: Vector, v: Vector, t: float = 0.0) -> Linearisation:
    """The linearisation of the constrained motion about (q, v).

    About an equilibrium, or a steady motion along coordinates on which nothing depends, the matrix does not change
    with time. Its eigenvalues then decide the stability: the motion is unstable if one has a positive real part. A
    coordinate on which nothing depends has eigenvalue zero. If the matrix changes along the motion, a warning says so,
    and `steady` is False.
    """
    check_system(system)
    q, v = (np.asarray(x, float) for x in (q, v))
    system, _ = check_start(system, q, v, t0=t)
    m = lower(as_arrays(system)).at(jnp.asarray(t, float))
    if Trait.NONLINEAR in m.traits:
        raise ValueError(
            f"linearise is defined for constraints that are linear in the velocity, but {m.label} gives "
            "nonlinear(q, v)"
        )
    frame, directions = _bases(m, q)
    matrix, unit = (np.asarray(x) for x in _linearised(m, q, v, frame, directions))
    values = np.linalg.eigvals(matrix)
    rate = float(np.max(np.abs(values), initial=0.0)) or 1.0
    later = np.asarray(_later(m, q, v, frame, directions, _LATER / rate))
    # In units of the metric and of the fastest motion, so that units of length and time do not matter.
    size = np.concatenate([unit * rate, np.ones(frame.shape[1])])
    now, then = (size[:, None] * x / size / rate for x in (matrix, later))
    steady = bool(np.max(np.abs(then - now)) <= _STEADY * _LATER * max(1.0, float(np.max(np.abs(now)))))
    if not steady:
        warnings.warn(
            f"{system.label}: the linearised equations change along this motion, so their eigenvalues do not decide "
            "its stability; take an equilibrium, or coordinates in which the motion is steady",
            stacklevel=2,
        )
    order = np.argsort(-values.real, kind="stable")
    return Linearisation(matrix, np.asarray(frame), values[order], np.asarray(directions), steady)


# The matrix is compared after this fraction of the time of the fastest motion; it may change by that fraction times
# _STEADY. An unsteady motion changes it by that fraction times about one.
_LATER, _STEADY = 1e-3, 1e-4


@jit_fast_compile
def _bases(m: Mechanics, q: Array) -> tuple[Array, Array]:
    return orthonormal_frame(m, q), tangent_directions(m, q)


@jit_fast_compile
def _later(m: Mechanics, q: Array, v: Array, b: Array, directions: Array, time: Array) -> Array:
    """The matrix a short time later, in the frame and in the directions that are carried along."""
    after = m.later(time)
    there = m.space.displaced(q, time * v)
    there, u = nearest_start(after, there, v + time * acceleration_at(m, q, v)[0])
    frame, across = nearest_frame(after, there, b), tangent_directions(after, there, directions)
    return _linearised(after, there, u, frame, across)[0]


@jit_fast_compile
def _linearised(m: Mechanics, q: Array, v: Array, b: Array, directions: Array) -> tuple[Array, Array]:
    """The matrix in the frame b and in these directions, and the length of each direction."""
    n, r = directions.shape[1], b.shape[1]
    # The components of a change that lies in the directions.
    weights = directions.T @ m.metric(q) if Trait.HOLONOMIC in m.traits else directions

    def inner(x: Array, u: Array) -> Array:
        """The components of a velocity at x in the frame nearest to b."""
        return nearest_frame(m, x, b).T @ m.metric(x) @ m.relative(x, u)

    w = inner(q, v)

    def flow(z: Array) -> Array:
        near = m.space.displaced(q, directions @ z[:n])
        u = m.carried(near, nearest_frame(m, near, b) @ (w + z[n:]))
        rate = m.space.velocity(near, u)
        faster = jax.jvp(inner, (near, u), (rate, acceleration_at(m, near, u)[0]))[1]
        moved = jax.jvp(lambda x: m.space.difference(q, x), (near,), (rate,))[1]
        return jnp.concatenate([weights @ moved, faster])

    lengths = jnp.sqrt(jnp.sum(directions * (m.metric(q) @ directions), axis=0))
    return jax.jacfwd(flow)(jnp.zeros(n + r)), lengths
