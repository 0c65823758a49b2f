"""solve_boundary(): the motion between two given configurations, by shooting."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.discrete import euler_lagrange, spacetime_euler_lagrange
from dalembert.kernels import over_rows
from dalembert.methods import Method, Status
from dalembert.model import System, Trait, as_arrays, check_system, lower, nearest_velocity, real_numbers
from dalembert.numerics import Vector, compiled, is_traced, matvec
from dalembert.simulation.run import check_method, check_numbers, simulate
from dalembert.simulation.trajectory import Trajectory

ROUNDS = 40
"""The number of Newton corrections that one end point is worth."""
STAGES = 60
"""The number of end points between that of the guess and the wanted one that are tried on the way."""
MET = 1e-11
"""An end point is met if it is missed by less than this fraction of its size and of the way to it. A run of hundreds of
steps adds rounding errors of 1e-14, which Newton's method cannot undo."""
FLAT = 1e-9
"""Directions of the start to which the end responds by less than this fraction of the largest response are not
determined by it."""


class BoundarySolution(NamedTuple):
    """The discrete motion from q0 to the end point, or the nearest that was found."""

    trajectory: Trajectory
    """The run; its rows are all configurations."""
    converged: bool
    """Whether the run ends where it should."""
    miss: np.ndarray
    """By how much the prescribed coordinates of the last row (on a group: the velocity that leads from it to qN in one
    unit of time) differ from what was wanted; for a prescribed end time, the last number is that of the time."""
    residual: float | None
    """The largest number of D_DEL L_d on D over the interior points, relative to the momenta: how well the run
    satisfies the discrete Lagrange-d'Alembert principle. None for methods that have no such principle."""
    condition: float
    """The ratio of the largest and the smallest response of the end to the velocity of the start; large if the end
    hardly determines the start."""
    runs: int
    """The number of runs that the search made."""
    message: str

    @property
    def q1(self) -> np.ndarray:
        """The configuration one step after q0."""
        return np.asarray(self.trajectory.q)[1]

    @property
    def v0(self) -> np.ndarray:
        """The velocity of the start, which satisfies the constraint."""
        return np.asarray(self.trajectory.v)[0]

    def __str__(self) -> str:
        residual = "" if self.residual is None else f", residual of the principle {self.residual:.2g}"
        return f"{self.message}: end missed by {np.max(np.abs(self.miss)):.2g}{residual}"


class BoundaryError(RuntimeError):
    """No motion to the end point was found. `solution` holds the nearest that was found."""

    def __init__(self, message: str, solution: BoundarySolution | None):
        super().__init__(message)
        self.solution = solution


class _Problem(NamedTuple):
    """What is unknown and what is prescribed."""

    system: System
    method: Method
    q0: np.ndarray
    t0: float
    h: float
    steps: int
    pairs: bool
    """Whether q1 is unknown, or the velocity at q0 in a frame of D."""
    timed: bool
    """Whether the size of the first step is unknown, and the time of the end prescribed."""
    chosen: tuple[int, ...] | None
    """The prescribed coordinates; None on a group, where the whole element is."""
    size: np.ndarray
    """The sizes of the prescribed numbers."""


def solve_boundary(
    system: System,
    method: Method,
    q0: Vector,
    qN: Vector,
    *,
    h: float,
    steps: int,
    end: Sequence[str] | None = None,
    tN: float | None = None,
    guess: Vector | None = None,
    t0: float = 0.0,
    throw: bool = True,
) -> BoundarySolution:
    """The discrete motion that leads from q0 to the end point qN in `steps` steps of size h.

    The discrete Lagrange-d'Alembert principle fixes both end points. With D of dimension r, the starts from q0 on the
    discrete constraint have r parameters, so that r numbers of the end can be prescribed: `end` names the coordinates
    of qN that count, and the others follow. Methods that take any pair (q0, q1) as a start, such as GNI, have n
    parameters, and without `end` all of qN is prescribed. The start off D that this takes shows as the parasitic mode.
    For methods whose steps differ in size, `tN` prescribes the time of the end too, and h is a guess of the first
    step.
    `guess` is a velocity at q0. By default it is the allowed velocity that is nearest to the straight way.

    The unknowns are found by Newton's method, with exact derivatives of the run; if it does not converge from the
    guess, the end point moves from that of the guess to qN. Boundary problems may have several solutions: the result is
    the one that is found from the guess. If none is found, BoundaryError says why; with `throw=False` the result is the
    nearest run, with converged=False.

    Equations: [cortes2003] section 3; [fernandez2008]. Erratum: both principles fix all of q0 and qN. With every pair
    (q_k, q_k+1), k = 0, ..., N - 1, in D_d, these are m conditions too many, so that only r numbers of qN are free.
    [fernandez2008] leaves out k = 0; then the numbers agree, but the first step may leave the constraint.
    """
    problem, target = _stated(system, method, q0, qN, h, steps, end, tN, t0)
    problem, x = _first(problem, target, guess)
    x, found = _searched(problem, x, target)
    solution, why = _solution(problem, x, target, found)
    if throw and not solution.converged:
        raise BoundaryError(why, solution)
    return solution


def _stated(
    system: Any, method: Any, q0: Any, q_end: Any, h: Any, steps: Any, end: Any, t_end: Any, t0: Any
) -> tuple[_Problem, np.ndarray]:
    """The problem and the prescribed numbers, after everything has been checked that can be."""
    check_system(system)
    check_method(method)
    if is_traced((system, method, q0, q_end, h, t0, t_end)):
        raise ValueError(
            "solve_boundary works on numbers. Inside jax.jit and jax.grad, take the run from the start that it found"
        )
    check_numbers(h, steps, 1, t0)
    if steps < 2:
        raise ValueError(f"a boundary problem needs at least 2 steps, got {steps!r}")
    method.check(system)
    m, names, values = lower(system), system.coordinates, []
    for label, x in (("q0", q0), ("qN", q_end)):
        x = real_numbers(label, x, len(names), names)
        if x.shape != (len(names),):
            raise ValueError(f"{label} must have shape ({len(names)},), got {x.shape}")
        values.append(x)
    first, last = values
    chosen = _chosen(system, end)
    if not np.all(np.isfinite(first)) or not np.all(
        np.isfinite(last if chosen is None else last[list(chosen)])
    ):
        raise ValueError(f"q0 and the prescribed numbers of qN must be finite, got {first} and {last}")
    group = Trait.GROUP in m.traits
    if group and not float(m.space.defect(jnp.asarray(last))) < 1e-9:
        raise ValueError(f"qN is not an element of {m.space.name}")
    free = int(jax.eval_shape(m.at(0.0).frame, jax.ShapeDtypeStruct((len(names),), float)).shape[1])
    number = system.velocity_dimension if chosen is None else len(chosen)
    pairs = number > free and method.takes_any_pair and Trait.HOLONOMIC not in m.traits
    if number != (system.velocity_dimension if pairs else free):
        raise ValueError(_count(system, method, number, free, group))
    timed = t_end is not None
    if timed and not method.variable_step:
        raise ValueError(
            f"the steps of {method.cli_name} have one size, so that the run ends at t0 + steps h; tN is for methods "
            "whose steps differ in size, such as EDLA()"
        )
    if timed and not (np.ndim(t_end) == 0 and np.isfinite(t_end) and t_end > t0):
        raise ValueError(f"tN must be one finite number after t0 = {t0!r}, got {t_end!r}")
    target = last if chosen is None else last[list(chosen)]
    target = np.append(target, t_end) if timed else target
    made = (as_arrays(system), as_arrays(method), first, float(t0), float(h), int(steps))
    return _Problem(*made, pairs, timed, chosen, np.ones(number + timed)), target


def _chosen(system: System, end: Any) -> tuple[int, ...] | None:
    names = system.coordinates
    if Trait.GROUP in lower(system).traits:
        if end is not None:
            raise ValueError(
                f"{system.label}: the numbers of an element of a group are not coordinates, so single ones cannot be "
                "prescribed; leave `end` out and use a method that takes any pair, such as LieGNI()"
            )
        return None
    if end is None:
        return tuple(range(len(names)))
    if isinstance(end, str) or not isinstance(end, Sequence) or not end:
        raise ValueError(f"end must be names of coordinates, such as {names[:2]}; got {end!r}")
    unknown = [x for x in end if x not in names]
    if unknown or len(set(end)) != len(end):
        raise ValueError(f"end must name coordinates of {system.label}, each once: {names}; got {end!r}")
    return tuple(names.index(x) for x in end)


def _count(system: System, method: Method, number: int, free: int, group: bool) -> str:
    n = system.velocity_dimension
    m = lower(system)
    able = method.takes_any_pair and Trait.HOLONOMIC not in m.traits
    ways = "" if group else f"name {free} of ({', '.join(system.coordinates)}) with end=(...)"
    others = "" if able else method.others(m, lambda x: x.takes_any_pair)
    if able:
        ways = " or ".join(
            filter(None, (ways, f"leave out `end` to prescribe all {n}" if number != n else ""))
        )
    elif others and Trait.HOLONOMIC not in m.traits:
        ways = " or ".join(filter(None, (ways, f"use {others}, for which any pair (q0, q1) is a start")))
    return (
        f"{system.label} with {method.cli_name}: {number} numbers of the end are prescribed, but the allowed "
        f"velocities at q0 have {free} components, so that {free} numbers of the end can be reached at will; {ways}"
    )


def _first(p: _Problem, target: np.ndarray, guess: Any) -> tuple[_Problem, np.ndarray]:
    """The problem with the sizes of the prescribed numbers, and the unknowns of the guess."""
    m = lower(p.system).at(p.t0)
    q0, n = jnp.asarray(p.q0), p.system.velocity_dimension
    time = (target[-1] - p.t0) if p.timed else p.h * p.steps
    frame, drift = np.asarray(m.frame(q0)), np.asarray(m.drift(q0))
    if guess is not None:
        v = real_numbers("guess", guess, n, p.system.velocity_names)
        if v.shape != (n,) or not np.all(np.isfinite(v)):
            raise ValueError(f"guess must be a velocity, {n} finite numbers; got {guess!r}")
        if not p.pairs:
            v = np.asarray(nearest_velocity(m, q0, jnp.asarray(v)))
    elif p.chosen is None:
        straight = m.space.difference(q0, jnp.asarray(target[: len(p.q0)])) / time
        v = np.asarray(nearest_velocity(m, q0, straight))
    else:
        at = list(p.chosen)
        wanted = (target[: len(at)] - p.q0[at]) / time
        rows, rest = (frame[at], drift[at]) if len(frame) == len(p.q0) else (frame, drift)
        v = drift + frame @ np.linalg.lstsq(rows, wanted - rest, rcond=1e-6)[0]
    x = v if p.pairs else np.linalg.lstsq(frame, v - drift, rcond=None)[0]
    if p.chosen is not None:
        at = list(p.chosen)
        size = np.abs(p.q0[at]) + np.abs(target[: len(at)])
        size = size + time * (np.abs(v[at]) if len(v) == len(p.q0) else 0.0)
        size = size + (1e-3 * np.max(size) or 1.0)
        p = p._replace(size=np.append(size, time + abs(p.t0)) if p.timed else size)
    return p, np.append(x, 1.0) if p.timed else x


@lru_cache(maxsize=64)
def _shots(steps: int, pairs: bool, timed: bool, chosen: tuple[int, ...] | None) -> Callable:
    """The function that returns the end that belongs to the unknowns, its derivative, and how the run ended."""

    def end(x: Any, system: System, method: Method, q0: Any, h: Any, t0: Any, target: Any) -> Any:
        if timed:
            x, h = x[:-1], h * x[-1]
        sol = _run(system, method, q0, x, h, t0, steps, pairs, steps)
        last = sol.q[-1]
        if chosen is None:
            found = lower(system).space.difference(target[: len(last)], last)
        else:
            found = last[jnp.asarray(chosen)]
        return (jnp.append(found, sol.t[-1]) if timed else found), sol.code

    def both(x: Any, *given: Any) -> Any:
        value, code = end(x, *given)
        return value, jax.jacfwd(lambda x: end(x, *given)[0])(x), code

    return compiled(both)


def _run(
    system: Any, method: Any, q0: Any, x: Any, h: Any, t0: Any, steps: int, pairs: bool, every: int
) -> Any:
    m = lower(system).at(t0)
    more = {"h": h, "steps": steps, "save_every": every, "t0": t0, "throw": False}
    if pairs:
        return simulate(system, method, q0, q1=m.space.displaced(q0, h * x), **more)
    return simulate(system, method, q0, m.drift(q0) + matvec(m.frame(q0), x), **more)


class _Shot(NamedTuple):
    x: np.ndarray
    end: np.ndarray
    slope: np.ndarray
    status: Status
    tries: int

    @property
    def sound(self) -> bool:
        return self.status is Status.OK and bool(
            np.all(np.isfinite(self.end)) and np.all(np.isfinite(self.slope))
        )


def _shoot(p: _Problem, x: np.ndarray, target: np.ndarray, tries: int) -> _Shot:
    shots = _shots(p.steps, p.pairs, p.timed, p.chosen)
    given = (p.system, p.method, p.q0, p.h, p.t0, target)
    end, slope, code = (np.asarray(a) for a in shots(np.asarray(x, float), *given))
    return _Shot(x, end, slope, Status.from_code(int(code)), tries + 1)


def _searched(p: _Problem, x: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, _Shot]:
    """The unknowns of the run that ends at the target, or of the nearest; with their shot."""
    shot = _shoot(p, x, target, 0)
    if not shot.sound:
        return x, shot
    goal = np.zeros(len(p.size)) if p.chosen is None else target
    if p.chosen is None and p.timed:
        goal[-1] = target[-1]
    first, done, move = shot.end, 0.0, 1.0
    for _ in range(STAGES):
        if done >= 1.0:
            break
        there = min(done + move, 1.0)
        new, met = _newton(p, shot, target, first + there * (goal - first))
        if met:
            shot, done, move = new, there, 2 * move
        else:
            shot, move = shot._replace(tries=new.tries), 0.5 * move
            if move < 1e-4:
                break
    return shot.x, shot


def _newton(p: _Problem, shot: _Shot, target: np.ndarray, goal: np.ndarray) -> tuple[_Shot, bool]:
    """The shot to which Newton's method leads, and whether it ends at the goal."""
    for _ in range(ROUNDS):
        off = (shot.end - goal) / p.size
        now = float(np.linalg.norm(off))
        move = np.linalg.lstsq(shot.slope / p.size[:, None], -off, rcond=1e-13)[0]
        share, better = 1.0, None
        while share > 1e-3:
            new = _shoot(p, shot.x + share * move, target, shot.tries)
            if new.sound and float(np.linalg.norm((new.end - goal) / p.size)) <= (1 - 0.1 * share) * now:
                better = new
                break
            shot, share = shot._replace(tries=new.tries), 0.5 * share
        if better is None:  # rounding may be all that is left
            break
        shot = better
    return shot, float(np.linalg.norm((shot.end - goal) / p.size)) < MET


def _solution(p: _Problem, x: np.ndarray, target: np.ndarray, shot: _Shot) -> tuple[BoundarySolution, str]:
    """The solution that belongs to the unknowns, and, if it is none, the reason."""
    h = p.h * x[-1] if p.timed else p.h
    start = x[:-1] if p.timed else x
    sol = _run(p.system, p.method, p.q0, start, h, p.t0, p.steps, p.pairs, 1)
    miss = shot.end - target if p.chosen is not None else shot.end.copy()
    if p.chosen is None and p.timed:
        miss[-1] -= target[-1]
    near = float(np.linalg.norm(miss / p.size))
    values = (
        np.linalg.svd(shot.slope / p.size[:, None], compute_uv=False) if shot.sound else np.array([np.nan])
    )
    # A single response may vanish too: it is compared with that of free motion as well.
    free = p.h * p.steps / float(np.max(p.size))
    condition = float(max(values[0], free) / values[-1]) if values[-1] > 0 else np.inf
    # What the run itself says about its end counts, not what the search says.
    over = sol.status is Status.OK and near < MET
    why = "solved" if over else _reason(p, shot, condition)
    solution = BoundarySolution(sol, over, miss, _principle(p, sol), condition, shot.tries, why)
    return (
        solution,
        f"{p.system.label} with {p.method.cli_name}: {why}. The nearest run misses the end by {miss}",
    )


def _reason(p: _Problem, shot: _Shot, condition: float) -> str:
    names = (
        "the element of the group"
        if p.chosen is None
        else ", ".join(p.system.coordinates[i] for i in p.chosen)
    )
    if not shot.sound:
        return (
            f"the run from the guess fails ({shot.status.value}); give another guess=, a velocity at q0, or a smaller "
            "h"
        )
    even = (
        ". The part of the start that is normal to D changes sign at every step, and moves the end hardly at all after "
        "an even number of steps: try an odd number"
        if p.pairs and p.steps % 2 == 0
        else ""
    )
    if not condition < 1 / FLAT:
        return (
            "the end does not determine the start: at the nearest run, some change of the velocity at q0 leaves "
            f"({names}) as they are, so that values of them nearby are out of reach; prescribe other coordinates with "
            f"end=(...), or give another guess={even}"
        )
    return (
        "not solved: no start was found from the guess. The end may be out of reach, or another guess=, a velocity at "
        f"q0, may lead there{even}"
    )


def _on_interior(shared: Any, z0: Any, z1: Any, z2: Any) -> Any:
    """The largest number of B^T D_DEL L_d at the middle point, and the size of the momenta there."""
    system, method, h = shared
    rule, variable = method.rule, method.variable_step
    here, q1 = system.at(z1[0]), z1[1:]
    before = system.at(z0[0])
    if variable:
        whole = spacetime_euler_lagrange(rule, system, z0, z1, z2)
        force, length = whole[1:], z1[0] - z0[0]
    else:
        force, length = euler_lagrange(rule, before, z0[1:], q1, z2[1:], h), h
    frame = here.frame(q1)
    u = rule.velocity(before, z0[1:], q1, length)
    size = jnp.max(jnp.abs(matvec(jnp.abs(frame).T, jnp.abs(matvec(here.metric(q1), u)))))
    return jnp.max(jnp.abs(matvec(frame.T, force)), initial=0.0), size


def _principle(p: _Problem, sol: Trajectory) -> float | None:
    if p.method.rule is None or len(sol.t) < 3:
        return None
    z = np.concatenate([np.asarray(sol.t)[:, None], np.asarray(sol.q)], axis=1)
    shared = (lower(p.system), p.method, p.h)
    force, size = (np.asarray(x) for x in over_rows(_on_interior)(shared, z[:-2], z[1:-1], z[2:]))
    return float(np.max(force) / max(float(np.max(size)), np.finfo(float).tiny))
