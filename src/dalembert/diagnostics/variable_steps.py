"""Methods whose steps differ in size: whether a next step exists, and the laws of mechanics in space and time."""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.diagnostics.inputs import one_run
from dalembert.discrete import (
    between,
    spacetime_constraint,
    spacetime_derivatives,
    spacetime_displaced,
    spacetime_form,
    spacetime_forms,
    spacetime_momentum_residual,
    spacetime_pulled,
    step_between,
)
from dalembert.methods import EDLA, Reference, State, well_posedness
from dalembert.methods.edla import departing_energies
from dalembert.model import (
    Mechanics,
    SpaceTime,
    System,
    Trait,
    as_arrays,
    check_system,
    independent_rows,
    lower,
    total_energy,
)
from dalembert.numerics import compiled, matmul, matvec, solve
from dalembert.simulation import Trajectory, simulate


class EnergyRoots(NamedTuple):
    """The step sizes that solve the energy equation of a step, in an interval that was searched."""

    h: np.ndarray
    """(K,) the sizes, in increasing order. The next step is one of them, the one that continues the last step."""
    touching: np.ndarray
    """Sizes at which the residual touches zero without a visible change of sign: a double root, or a pair of roots that
    rounding hides."""
    nearest: float
    """The root next to the last step or, if there is none, the sample that misses the energy least."""
    residual: float
    """By how much that sample misses the energy, relative to the energy; zero if there is a root."""
    interval: tuple[float, float]
    """The sizes between which roots were sought."""
    ratio: float
    """The ratio of neighbouring samples. Two roots closer together than this may be missed, unless the residual has a
    minimum between them that shows in the samples."""
    unsolved: float
    """The fraction of the interval in which the other equations of the step had no solution that was found."""

    def __str__(self) -> str:
        found = ", ".join(f"{x:.6g}" for x in self.h) or "none"
        touching = (
            f"; touching at {', '.join(f'{x:.6g}' for x in self.touching)}" if len(self.touching) else ""
        )
        return f"steps that keep the energy: {found}{touching}; searched from {self.interval[0]:.3g} to " + (
            f"{self.interval[1]:.3g} in ratios of {self.ratio:.4f}"
            + (f", {self.unsolved:.0%} of which has no solution" if self.unsolved else "")
        )


class WellPosedness(NamedTuple):
    """G at a state and along the exact motion from it, and the step sizes that keep the energy there."""

    G: float
    """G at the state, with S = 2 h G + O(h^2); a step that keeps the energy exists while G keeps its sign. For a
    discrete Lagrangian that is not symmetric this is F, with S = F + O(h)."""
    zero: float | None
    """The time at which it first changes sign; None if it does not before the end."""
    t: np.ndarray
    along: np.ndarray
    """(K,) its values at the times t of the exact motion."""
    zeros: np.ndarray = np.zeros(0)
    """All times at which it changes sign."""
    touching: np.ndarray = np.zeros(0)
    """Times at which it comes to zero, to seven digits of its size, without a visible change of sign."""
    roots: EnergyRoots | None = None
    """All step sizes that solve the energy equation at the state; None if no h was given."""

    def __str__(self) -> str:
        ahead = f"changes sign at t = {self.zero:.6g}" if self.zero is not None else "keeps its sign"
        if len(self.zeros) > 1:
            ahead = "changes sign at t = " + ", ".join(f"{x:.6g}" for x in self.zeros)
        if len(self.touching):
            ahead += f" and touches zero at t = {', '.join(f'{x:.6g}' for x in self.touching)}"
        return f"G = {self.G:.6g}; until t = {self.t[-1]:g} it {ahead}" + (
            f"; {self.roots}" if self.roots is not None else ""
        )


def edla_well_posedness(
    system: System,
    q: Any,
    v: Any,
    *,
    method: EDLA | None = None,
    t0: float = 0.0,
    ahead: float = 10.0,
    points: int = 400,
    h: float | None = None,
    reach: float = 10.0,
) -> WellPosedness:
    """G of EDLA at (q, v), all times within `ahead` at which it changes sign, and all steps that keep the energy.

    G is half the second derivative, at h = 0, of the energy with which a step of size h departs. Steps that keep the
    energy exist while G keeps its sign. Near its zero two roots meet and vanish, for any h, unless a step happens to
    end beyond the zero. For a constant mass matrix and the midpoint rule,
    8 G = |R|^2 - |grad V|^2 - V''(v, v), with norms of covectors and R the reaction. If the discrete Lagrangian is not
    symmetric, the first derivative F decides instead.
    With `h`, the size of a step that arrived at (q, v), the energy equation of the next step is solved for all its
    roots between h/reach and h*reach, for the energy with which another step of size h departs. `energy_roots` does
    the same at a row of a run, with the energy of the run. `points` is the number of samples, of times and of step
    sizes: zeros closer together than two samples may be missed, and the result says what was searched.
    """
    method = EDLA() if method is None else method
    if not isinstance(method, EDLA):
        raise ValueError(f"G is defined for EDLA, got {method!r}")
    check_system(system)
    if not isinstance(ahead, int | float | np.floating) or not 0 < ahead < np.inf:
        raise ValueError(f"ahead must be a positive time, got {ahead!r}")
    if h is not None and (
        not isinstance(h, int | float | np.floating) or isinstance(h, bool) or not 0 < h < np.inf
    ):
        raise ValueError(f"h must be a positive step size, got {h!r}")
    _check_search(reach, points)
    points = int(points)
    method.check(system)
    system = independent_rows(system, q, t0)

    def along(start: Any, a: float, b: float) -> Samples:
        sol = simulate(system, Reference(), *start, h=(b - a) / points, steps=points, t0=a, throw=False)
        rows = [np.asarray(x) for x in (sol.t, sol.q, sol.v)]
        found = well_posedness(system, method, *rows)
        return Samples(rows[0], found, list(zip(*rows[1:], strict=True)))

    first = along((q, v), t0, t0 + ahead)
    zeros, touching = _all_zeros(along, first, rounds=2, near=1e-7)
    return WellPosedness(
        float(first.f[0]),
        float(zeros[0]) if len(zeros) else None,
        first.x,
        first.f,
        zeros,
        touching,
        None if h is None else _energy_roots(system, method, q, v, t0, float(h), float(reach), points),
    )


class Samples(NamedTuple):
    """A function at increasing places, and what `sample` needs to begin at each of them."""

    x: np.ndarray
    f: np.ndarray
    starts: list[Any]


def _all_zeros(sample: Any, first: Samples, rounds: int, near: float) -> tuple[np.ndarray, np.ndarray]:
    """The zeros of a function with a change of sign, and those where it only touches zero.

    `sample(start, a, b)` returns as many samples again between two of them. A minimum of |f| is looked at more closely,
    because two zeros may lie between two samples. It touches zero if it is below `near` times the size of f.
    """
    finite = np.abs(first.f[np.isfinite(first.f)])
    size = float(np.max(finite, initial=np.finfo(float).tiny))
    zeros = [_zoomed(sample, first, i, j, rounds) for i, j in _turns(first.f, size)]
    touching = []
    for i in _dips(first.f):
        closer, k = first, int(i)
        for _ in range(rounds):
            a, b = max(k - 1, 0), min(k + 1, len(closer.x) - 1)
            closer = sample(closer.starts[a], closer.x[a], closer.x[b])
            turns = _turns(closer.f, 1e-3 * size)  # above rounding, which splits a double zero into many
            if turns or not np.any(np.isfinite(closer.f)):
                zeros += [_zoomed(sample, closer, *pair, rounds) for pair in turns]
                break
            k = int(np.nanargmin(np.abs(closer.f)))
        else:
            if np.abs(closer.f[k]) <= near * size:
                touching.append(float(closer.x[k]))
    return np.sort(zeros), np.sort(touching)


def _zoomed(sample: Any, found: Samples, i: int, j: int, rounds: int) -> float:
    """The zero between two samples of different sign, with more samples between them, and a line at the end."""
    for _ in range(rounds):
        closer = sample(found.starts[i], found.x[i], found.x[j])
        turns = _turns(closer.f, 0.0)
        if not turns:
            break
        found, (i, j) = closer, turns[0]
    a, b, fa, fb = found.x[i], found.x[j], found.f[i], found.f[j]
    return float(a - fa * (b - a) / (fb - fa))


def _turns(f: np.ndarray, size: float) -> list[tuple[int, int]]:
    """The pairs of samples between which the function changes sign. Tiny values have no sign, since the start itself
    may be a zero; nothing is said across samples that are not numbers."""
    signs = np.where(np.abs(f) > 1e-9 * size, np.sign(f), 0.0)
    signs = np.where(np.isfinite(f), signs, np.nan)
    known = np.flatnonzero(signs != 0)
    return [(int(i), int(j)) for i, j in pairwise(known) if signs[i] * signs[j] < 0]


def _dips(f: np.ndarray) -> np.ndarray:
    """The samples inside at which |f| is smallest among its neighbours, all of one sign."""
    a, b, c = f[:-2], f[1:-1], f[2:]
    same = (a * b > 0) & (b * c > 0)
    return 1 + np.flatnonzero(same & (np.abs(b) < np.abs(a)) & (np.abs(b) <= np.abs(c)))


@compiled
def _departing(shared: Any, state: Any, sizes: Array) -> Array:
    q, v, t, h, plus, energy = state
    return departing_energies(shared, q, v, t, h, plus, energy, sizes)


@compiled
def _arrived(shared: Any, q: Array, v: Array, t: Array, h: Array) -> tuple[Array, Array]:
    memory = shared[0].init(shared[1], State(q, v, t), h)
    return memory.plus, memory.energy


def energy_roots(
    trajectory: Trajectory, row: int = -1, *, reach: float = 10.0, points: int = 400
) -> EnergyRoots:
    """All step sizes that solve the energy equation of the step after a row of a run by EDLA with save_every=1.

    They are sought between h/reach and h*reach, where h is the size of the step that ended at the row. At the last row
    of a run that ended with Status.NO_ROOT there is none near h, and the result says by how much the energy is missed.
    """
    system, method = one_run(trajectory, "the steps that keep the energy")
    if not isinstance(method, EDLA) or trajectory.save_every != 1:
        raise ValueError(
            f"energy_roots needs a run by EDLA with save_every=1, got one by {method.cli_name} with "
            f"save_every={trajectory.save_every}"
        )
    rows = len(trajectory.t)
    if not isinstance(row, int | np.integer) or isinstance(row, bool) or not -rows <= row < rows:
        raise ValueError(f"row must be one of the {rows} rows of the run, got {row!r}")
    row = int(row) % rows
    if row == 0:
        raise ValueError(
            "row must be at least 1: no step ends at the first row; edla_well_posedness(h=...) serves"
        )
    _check_search(reach, points)
    told = {name: np.asarray(trajectory.step_data[name]) for name in ("h", "p_plus", "E_plus")}
    pinned = (
        method.pin and lower(system).natural and not np.any(np.asarray(trajectory.step_data["continued"]))
    )
    energy = told["E_plus"][1 if pinned else row]
    state = (*(np.asarray(x)[row] for x in (trajectory.q, trajectory.v, trajectory.t)), told["h"][row])
    return _roots(system, method, (*state, told["p_plus"][row], energy), float(reach), int(points))


def _check_search(reach: Any, points: Any) -> None:
    if not isinstance(reach, int | float | np.floating) or isinstance(reach, bool) or not 1 < reach < np.inf:
        raise ValueError(f"reach must be a number greater than 1, got {reach!r}")
    if not isinstance(points, int | np.integer) or isinstance(points, bool) or points < 2:
        raise ValueError(f"points must be a whole number of at least 2, got {points!r}")


def _energy_roots(
    system: System, method: EDLA, q: Any, v: Any, t0: float, h: float, reach: float, points: int
) -> EnergyRoots:
    state = tuple(jnp.asarray(x, float) for x in (q, v, t0, h))
    arrived = _arrived((as_arrays(method), lower(as_arrays(system))), *state)
    return _roots(system, method, (*state, *arrived), reach, points)


def _roots(system: System, method: EDLA, state: Any, reach: float, points: int) -> EnergyRoots:
    """The roots, after a step that arrived at (q, v) at t, of size h, with the momentum p^+, for this energy."""
    shared = as_arrays(method), lower(as_arrays(system))
    state = tuple(jnp.asarray(x, float) for x in state)
    h = float(state[3])

    def between(_: Any, a: float, b: float) -> Samples:
        x = np.geomspace(a, b, points)
        return Samples(x, np.asarray(_departing(shared, state, jnp.asarray(x))), [None] * points)

    first = between(None, h / reach, h * reach)
    # 400 samples a round narrow a bracket to rounding in six; fewer samples need more rounds.
    rounds = int(np.ceil(36 / np.log(points)))
    zeros, touching = _all_zeros(between, first, rounds, near=1e-9)
    both = np.concatenate([zeros, touching])
    factor = first.x + h if method.discrete_lagrangian.symmetric else np.ones(points)
    missed = np.where(np.isfinite(first.f), np.abs(first.f) * factor, np.inf)
    low, least = float(first.x[np.argmin(missed)]), float(np.min(missed))
    if len(both):
        low, least = float(both[np.argmin(np.abs(np.log(both / h)))]), 0.0
    m = shared[1].at(state[2])
    total = float(total_energy(m, *state[:2]))
    size = abs(total) + abs(total - float(m.potential(state[0])))
    return EnergyRoots(
        zeros,
        touching,
        low,
        least / max(size, np.finfo(float).tiny),
        (h / reach, h * reach),
        float(first.x[1] / first.x[0]),
        float(np.mean(~np.isfinite(first.f))),
    )


class VariableStepLaws(NamedTuple):
    """The defects of the laws of EDLA over consecutive steps. The theorems say that they are zero."""

    energy: float | None
    """The change of E^+, relative to its size; None if the exact energy changes too."""
    momentum: dict[str, float]
    """The residual of the momentum equation in space and time for each section, relative to the momenta."""
    symplectic: float
    """The relative defect of F* Omega = Omega + d(lam' omega) in space and time."""
    form: float
    """The relative change of Omega in a step, which is zero without constraints."""


def variable_step_laws(trajectory: Trajectory, rows: int = 8) -> VariableStepLaws:
    """The laws over a run by EDLA with save_every=1: energy and momentum at every step, the form at `rows` steps."""
    system, method = one_run(trajectory, "what EDLA keeps")
    if not isinstance(rows, int | np.integer) or rows < 1:
        raise ValueError(f"rows must be a whole number of at least 1, got {rows!r}")
    if not isinstance(method, EDLA) or trajectory.save_every != 1:
        raise ValueError(
            f"these are laws of EDLA: give a run by it with save_every=1, got one by {method.cli_name} with "
            f"save_every={trajectory.save_every}"
        )
    one_run(trajectory, "what EDLA keeps", rows=4)
    if np.any(np.asarray(trajectory.step_data["continued"])):
        raise ValueError("the run has steps that miss the energy; its laws hold up to the first of them")
    shared = lower(as_arrays(system)), as_arrays(method)
    size = np.max(np.abs(np.asarray(trajectory.step_data["E_plus"])))
    energy = None
    if lower(system).natural:
        energy = float(
            np.ptp(np.asarray(trajectory.step_data["E_plus"])[1:]) / max(size, np.finfo(float).tiny)
        )
    # Each triple has its own times, because differences of large numbers lose digits.
    z, momentum = _triples(trajectory), {}
    if Trait.GROUP in lower(system).traits:
        momentum = _body_momentum(shared, trajectory)
    else:
        for i, name in enumerate(SpaceTime(shared[0].system).sections()):
            residual, scale = (np.asarray(x) for x in _momentum(*shared, jnp.asarray(z), i))
            momentum[name] = float(np.max(np.abs(residual)) / max(np.max(scale), np.finfo(float).tiny))
    pick = np.unique(np.linspace(0, len(z) - 1, rows).astype(int))
    lam = -np.asarray(trajectory.multipliers)[2:]  # at the beginning of the step that ends at the third point
    h = np.asarray(trajectory.step_data["h"])
    lam = lam * (0.5 * (h[1:-1] + h[2:]))[:, None]
    forms = np.array([_symplectic(*shared, jnp.asarray(z[k]), jnp.asarray(lam[k])) for k in pick])
    return VariableStepLaws(energy, momentum, *map(float, np.max(forms, axis=0)))


def _triples(trajectory: Trajectory) -> np.ndarray:
    """(K - 2, 3, 1 + n) points of space and time, with time differences exactly equal to the step sizes."""
    t, q, h = (np.asarray(x) for x in (trajectory.t, trajectory.q, trajectory.step_data["h"]))
    times = np.stack([t[1:-1] - h[1:-1], t[1:-1], t[1:-1] + h[2:]], axis=1)
    return np.concatenate([times[:, :, None], np.stack([q[:-2], q[1:-1], q[2:]], axis=1)], axis=2)


def _body_momentum(shared: Any, trajectory: Trajectory) -> dict[str, float]:
    """The residuals of the momentum equation on a Lie group, with the change of the section on the other side:
    <p^+(1, 2), xi(g1)_G(g2)> = <p^+(0, 1), xi(g1)_G(g1)>. If the system depends on time, p^+ begins with -E^+."""
    t, q, p = (np.asarray(x)[1:] for x in (trajectory.t, trajectory.q, trajectory.step_data["p_plus"]))
    if Trait.TIMED in shared[0].traits:
        p = np.concatenate([-np.asarray(trajectory.step_data["E_plus"])[1:, None], p], axis=1)
    names = list(shared[0].at(jnp.asarray(t[0])).sections())
    if not names:
        return {}
    ends = (y for x in (t, q, p) for y in (x[:-1], x[1:]))
    residual, size = (np.asarray(x) for x in _body_momenta(shared, *ends))
    largest = np.maximum(np.max(size, axis=0), np.finfo(float).tiny)
    return {name: float(x) for name, x in zip(names, np.max(np.abs(residual), axis=0) / largest, strict=True)}


@compiled
def _body_momenta(
    shared: Any, t: Array, t1: Array, q: Array, q1: Array, p: Array, p1: Array
) -> tuple[Array, Array]:
    def one(t, t1, q, q1, p, p1):
        here = shared[0].at(t)
        sections = jnp.stack([section(q) for section in here.sections().values()])
        before, after = (matmul(sections, shared[0].at(s).generators(x).T) for s, x in ((t, q), (t1, q1)))
        return matvec(after, p1) - matvec(before, p), matvec(jnp.abs(before), jnp.abs(p))

    return jax.vmap(one)(t, t1, q, q1, p, p1)


@compiled
def _momentum(system: Mechanics, method: EDLA, z: Array, which: Array) -> tuple[Array, Array]:
    whole = SpaceTime(system.system)
    sections = list(whole.sections().values())

    def one(z):
        found = [spacetime_momentum_residual(method.discrete_lagrangian, system, s, z) for s in sections]
        arrived = spacetime_derivatives(method.discrete_lagrangian, system, *between(z[0], z[1]))[1]
        sizes = [jnp.sum(jnp.abs(whole.generators(z[1]) @ s(z[1])) * jnp.abs(arrived)) for s in sections]
        return jnp.stack(found)[which], jnp.stack(sizes)[which]

    return jax.vmap(one)(z)


@compiled
def _symplectic(system: Mechanics, method: EDLA, z: Array, lam: Array) -> Array:
    """The defect and the change at one triple, whose third point and lam' are functions of the other two.

    Points near those of the triple are given by their distances, and forms by their components on these.
    """
    ld, n = method.discrete_lagrangian, system.velocity_dimension
    nothing = jnp.zeros(n + 1, z.dtype)

    def equations(x: Array, y: Array) -> Array:
        """What is zero where two steps meet; and the one-form lam' omega on the first pair."""
        near = (x[: n + 1], x[n + 1 :], y[: n + 1])
        z0, z1, z2 = (spacetime_displaced(system, *each) for each in zip(z, near, strict=True))
        ahead = step_between(ld, system, z1, z2)
        arrived = spacetime_derivatives(ld, system, *step_between(ld, system, z0, z1))[1]
        departed = spacetime_derivatives(ld, system, *ahead)[0]
        force = matvec(spacetime_forms(system, z1).T, y[n + 1 :])
        held = spacetime_constraint(method.discrete_constraint, system, *ahead)
        return jnp.concatenate(
            [departed + arrived - force, held, spacetime_pulled(system, z[1], near[1], force)]
        )

    by_x, by_y = jax.jacfwd(equations, (0, 1))(
        jnp.concatenate([nothing, nothing]), jnp.concatenate([nothing, lam])
    )
    size = len(by_y) - (n + 1)
    slopes = -solve(by_y[:size], by_x[:size])
    impulse = jnp.concatenate([jnp.zeros_like(by_x[size:]), by_x[size:] + by_y[size:] @ slopes])
    step = jnp.concatenate([jnp.eye(2 * n + 2)[n + 1 :], slopes[: n + 1]])
    before, after = jax.lax.map(
        lambda x: spacetime_form(ld, system, x.reshape(-1)), jnp.stack([z[:2], z[1:]])
    )
    moved = step.T @ after @ step
    change = moved - before
    both = jnp.stack([change - (impulse.T - impulse), change])
    return jnp.max(jnp.abs(both), axis=(1, 2)) / jnp.maximum(1.0, jnp.max(jnp.abs(moved)))
