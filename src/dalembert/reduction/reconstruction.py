"""Projects full runs to reduced ones, and reconstructs full runs from reduced ones."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.kernels import over_rows
from dalembert.model import (
    TOLERANCE,
    Trait,
    as_arrays,
    lower,
    nearest_velocity,
    violates,
)
from dalembert.numerics import jit_fast_compile, matvec
from dalembert.reduction.cases import Abelian, Horizontal, Reduced, projected
from dalembert.reduction.discrete import ReducedLagrangian, displacement, full_step
from dalembert.reduction.measured import NEAR, complaint, continuous, samples, worst
from dalembert.simulation import Trajectory, simulate

_BLOCK = 1024
# The number of steps that are replayed at a time.
_PART = 100_000


def _to_shape(core: Any, t: Array, q: Array, v: Array) -> tuple[Array, ...]:
    """The reduced quantities of a full state.

    Returns the shape, the reduced velocity, the momentum of the group, the one-forms and their offsets, the distance
    of q from the group, and the size of the terms that add up to the momentum.
    """
    full = lower(core.full).at(t)
    defect = full.space.defect(q)
    generators, mass = core.symmetry.generators(full, q), full.metric(q)
    momentum = matvec(generators.T, matvec(mass, v))
    size = matvec(jnp.abs(generators.T), matvec(jnp.abs(mass), jnp.abs(v)))
    return *projected(core, q, v), momentum, full.rows(q), full.offsets(q), defect, size


def _to_momentum(core: Any, t: Array, q: Array, p: Array) -> Array:
    """The reduced momentum of the full momentum p."""
    symmetry, full = core.symmetry, lower(core.full).at(t)
    r = symmetry.shape(full, q)
    back = symmetry.pull(full, symmetry.element(full, q), symmetry.section(full, r), p)
    return core.case.contract(symmetry, full, r, back) - core.case.rest(symmetry, full, r)


def project(core: Any, q: Any, v: Any, t: Any) -> Any:
    """The shapes and reduced velocities of full states, or the reduced run of a full run."""
    if isinstance(q, Trajectory):
        return _run(core, q)
    if v is None:
        raise ValueError("project needs a configuration and a velocity, or a run")
    q, v = np.asarray(q, float), np.asarray(v, float)
    n, m = core.full.dimension, core.full.velocity_dimension
    if q.shape[-1:] != (n,) or v.shape[-1:] != (m,) or q.ndim not in (1, 2) or q.shape[:-1] != v.shape[:-1]:
        raise ValueError(
            f"project needs states of {core.full.label}, q with {n} numbers and v with {m}, or as many rows of both; "
            f"got shapes {q.shape} and {v.shape}"
        )
    if not (np.all(np.isfinite(q)) and np.all(np.isfinite(v))):
        raise ValueError("project needs finite states")
    rows, velocities = q.reshape(-1, n), v.reshape(-1, m)
    times = np.broadcast_to(np.asarray(t, float), len(rows))
    r, change, _, forms, offsets, defects, _ = _measured(core, times, rows, velocities)
    for a, x, b, defect in zip(forms, velocities, offsets, defects, strict=True):
        if np.any(violates(a, x, b)):
            raise ValueError(
                f"project: the velocity violates the constraint of {core.full.label}: A(q) v = {a @ x}, expected "
                f"{b if Trait.AFFINE in lower(core.full).traits else 'zero'}"
            )
        if not defect < TOLERANCE:
            raise ValueError(
                f"project: q is not an element of {lower(core.full).space.name}; it is off by {defect:.3g}"
            )
    return (r, change) if q.ndim == 2 else (r[0], change[0])


def _run(core: Any, run: Trajectory) -> Trajectory:
    """The reduced run of a full run."""
    if np.ndim(run.q) != 2:
        raise ValueError("project takes one run at a time, but this is an ensemble; take sol.member(i)")
    if run.system is None or run.system.label != core.full.label:
        name = "without its system" if run.system is None else f"of {run.system.label}"
        raise ValueError(f"project needs a run of {core.full.label}; this is one {name}")
    t = np.asarray(run.t)
    r, change = _measured(core, t, run.q, run.v)[:2]
    own = _measured(core, t, run.q, run.v_full, at_level=False)[1]
    same = run.method is not None and run.method.cli_name == core.rule.cli_name
    made = _trajectory(run, core, core.method if same else run.method, r, change, own)
    if "p_plus" in run.step_data:
        made.step_data["p_plus"] = over_rows(_to_momentum)(as_arrays(core), t, run.q, run.step_data["p_plus"])
    return made


def _measured(core: Any, t: np.ndarray, q: Any, v: Any, at_level: bool = True) -> Any:
    """The results of `_to_shape` at every row; raises ValueError for states off the level of the momentum."""
    found = over_rows(_to_shape)(as_arrays(core), t, q, v)
    if isinstance(core.case, Horizontal) and at_level:
        level, momentum = np.asarray(core.case.level), found[2]
        off = np.max(np.abs(momentum - level) / (found[6] + np.abs(level) + np.finfo(float).tiny), axis=1)
        if np.any(off > TOLERANCE):
            there = momentum[int(np.argmax(off))]
            raise ValueError(
                f"{core.label} is reduced at the level {level.tolist()}, but this state has the momentum "
                f"{there.tolist()}; reduce at that level, or choose another state"
            )
    return found


def _trajectory(run: Trajectory, system: Any, method: Any, q: Any, v: Any, v_full: Any) -> Trajectory:
    """The same run with other states, system and method."""
    text = {name: x for name, x in run.step_data.items() if name != "p_plus"}
    return Trajectory(
        run.t,
        q,
        v,
        v_full,
        None,
        run.code,
        run.steps,
        run.residual,
        system,
        method,
        run.h,
        run.save_every,
        step_data=text,
    )


def _replayed(shared: Any, r: Array, v: Array, t: Array, count: Array) -> Array:
    """The group element of `count` steps from a reduced state.

    The steps are replayed, because nothing less determines how the group moved.
    """
    core, method, h = shared
    group = core.symmetry.group

    def one(carry):
        i, r, v, g = carry
        here = core.at(t + i * h)
        solved = method.solved(here, r, v, h)
        _, full, step = full_step(here, r, solved.u, h)
        g = group.restore(group.multiply(g, core.symmetry.element(full, step.q1)))
        v = nearest_velocity(core.at(t + (i + 1) * h), solved.q, solved.plus)
        return i + 1, solved.q, v, g

    start = (jnp.zeros_like(t), r, v, group.identity().astype(r.dtype))
    return lax.while_loop(lambda carry: carry[0] < count, one, start)[-1]


def _moved(core: Any, t: Array, h: Array, r0: Array, r1: Array, p: Array) -> Array:
    """The group element of a step of size h that arrives with the reduced momentum p."""
    if isinstance(core.case, Abelian):  # the group's part of p says how it moved
        core = dataclasses.replace(core, case=Horizontal(level=p[r0.shape[0] :]))
    return displacement(core.at(t), r0, r1, h)


def _moves(core: Any, run: Trajectory) -> np.ndarray:
    """The group elements of the steps of a run that saved every step."""
    t, r = np.asarray(run.t), np.asarray(run.q)
    none = np.zeros((len(t) - 1, 0))
    return over_rows(_moved)(core, t[:-1], np.full(len(t) - 1, float(run.h)), r[:-1], r[1:], none)


def _in_parts(core: Any, run: Trajectory, g0: np.ndarray) -> Trajectory:
    """The full run of a run whose rows are several steps apart.

    The steps between rows are replayed from the saved rows, one part of the run at a time.
    """
    system: Any = run.system
    method: Any = run.method
    rows = max(1, _PART // run.save_every)
    g, steps = [g0[None]], np.round((np.asarray(run.t) - run.t[0]) / float(run.h)).astype(int)
    for a in range(0, len(steps) - 1, rows):
        b = min(a + rows, len(steps) - 1)
        count = int(steps[b] - steps[a])
        again = simulate(system, method, run.q[a], run.v[a], h=run.h, steps=count, t0=run.t[a])
        found = _accumulated(core, g[-1][-1], _moves(core, again))
        g.append(found[steps[a + 1 : b + 1] - steps[a]])
    return _lifted(core, run, np.concatenate(g))


@jit_fast_compile
def _products(core: Any, g: Array, moves: Array) -> tuple[Array, Array]:
    group = core.symmetry.group

    def step(g, f):
        g = group.restore(group.multiply(g, f))
        return g, g

    return lax.scan(step, g, moves)


def _accumulated(core: Any, g0: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """g0, g0 f0, g0 f0 f1, ..., computed in blocks of equal length so that nothing is compiled twice."""
    rows, g = [g0[None]], jnp.asarray(g0)
    identity = np.asarray(core.symmetry.group.identity(), float)
    for a in range(0, len(moves), _BLOCK):
        here = moves[a : a + _BLOCK]
        filled = np.concatenate([here, np.broadcast_to(identity, (_BLOCK - len(here), len(identity)))])
        g, all_of_them = _products(core, g, filled)
        rows.append(np.asarray(all_of_them)[: len(here)])
    return np.concatenate(rows)


def _to_full(core: Any, t: Array, r: Array, v: Array, g: Array) -> tuple[Array, Array, Array]:
    """The full state of a reduced state at the group element g, and the configuration (r, e)."""
    symmetry, full = core.symmetry, lower(core.full).at(t)
    lifted, section = core.case.velocity(symmetry, full, r, v), symmetry.section(full, r)
    return symmetry.join(full, r, g), symmetry.push(full, g, section, lifted), section


def reconstruct(asked: Any, run: Trajectory, g0: Any) -> Trajectory:
    """The full run of a reduced run."""
    if not isinstance(run, Trajectory) or not isinstance(run.system, Reduced) or np.ndim(run.q) != 2:
        raise ValueError("reconstruct needs one run of a reduced system, as simulate returns it")
    if run.system.label != asked.label:
        raise ValueError(f"reconstruct: this is a run of {run.system.label}, not of {asked.label}")
    if not isinstance(getattr(run.method, "discrete_lagrangian", None), ReducedLagrangian):
        raise ValueError(
            f"reconstruct: a run by {getattr(run.method, 'cli_name', 'a stored method')} does not say how the group "
            "moved; make it by reduced.method"
        )
    core: Any = as_arrays(run.system)
    group = core.symmetry.group
    g0 = np.asarray(group.identity() if g0 is None else g0, float)
    if (
        g0.shape != (group.size,)
        or not np.all(np.isfinite(g0))
        or not float(group.defect(jnp.asarray(g0))) < TOLERANCE
    ):
        raise ValueError(
            f"reconstruct: g0 must be an element of {group.name}, ({', '.join(core.symmetry.on)}); got {g0.tolist()}"
        )
    t, r, v = (np.asarray(x, float) for x in (run.t, run.q, run.v))
    method: Any = run.method
    if len(t) == 1:
        moves = np.zeros((0, group.size))
    elif method.variable_step:
        if run.save_every != 1:
            raise ValueError(
                "reconstruct: a run whose steps differ in size must save every step; run it with save_every=1"
            )
        steps, momenta = (run.step_data[name][1:] for name in ("h", "p_plus"))
        moves = over_rows(_moved)(core, t[:-1], steps, r[:-1], r[1:], momenta)
    elif isinstance(core.case, Abelian):
        h = float(run.h)
        count = np.round(np.diff(t) / h)
        moves = over_rows(_replayed)((core, as_arrays(method), jnp.asarray(h)), r[:-1], v[:-1], t[:-1], count)
    elif run.save_every == 1:
        moves = _moves(core, run)
    else:
        return _in_parts(core, run, g0)
    return _lifted(core, run, _accumulated(core, g0, moves))


def _lifted(core: Any, run: Trajectory, g: np.ndarray) -> Trajectory:
    """The full run with these group elements."""
    q, v, sections = over_rows(_to_full)(core, run.t, run.q, run.v, g)
    _check_invariance(core, np.asarray(run.t, float), sections, g)
    return _trajectory(run, core.full, core.rule, q, v, v)


def _check_invariance(core: Any, t: np.ndarray, sections: np.ndarray, g: np.ndarray) -> None:
    """Raises ValueError if a run went where the group is not a symmetry, which samples around the start cannot show.

    Rows of the run replace the last samples, so that nothing is compiled again.
    """
    given = samples(core.full, core.symmetry)
    good = np.flatnonzero(np.all(np.isfinite(sections), axis=1) & np.all(np.isfinite(g), axis=1))
    if not len(good):
        return
    rows = good[np.round(np.linspace(0, len(good) - 1, len(given.t) - NEAR)).astype(int)]
    times, places, elements = (
        np.concatenate([np.asarray(a, float)[:NEAR], b[rows]])
        for a, b in ((given.t, t), (given.q, sections), (given.g, g))
    )
    found = continuous(core.full, core.symmetry, times, places, elements)
    found = {name: np.asarray(x)[NEAR:] for name, x in found.items()}
    words = complaint(core.full, core.symmetry, worst(found, sections[rows], g[rows]))
    if words is not None:
        raise ValueError(
            f"reconstruct: this run goes where {core.symmetry.words} is no symmetry of {core.full.label}, so that it "
            f"is not a run of the full system: {words}"
        )
