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
    exterior,
    spacetime_constraint,
    spacetime_derivatives,
    spacetime_form,
    spacetime_forms,
    spacetime_momentum_residual,
)
from dalembert.methods import EDLA, Reference, well_posedness
from dalembert.model import Mechanics, SpaceTime, System, as_arrays, check_system, independent_rows, lower
from dalembert.numerics import compiled, newton
from dalembert.simulation import Trajectory, simulate


class WellPosedness(NamedTuple):
    """G at a state and along the exact motion from it."""

    G: float
    """G at the state, with S = 2 h G + O(h^2). A step that keeps the energy exists while G keeps its sign."""
    zero: float | None
    """The time at which G first changes sign; None if it does not before the end."""
    t: np.ndarray
    along: np.ndarray
    """(K,) G at the times t of the exact motion."""

    def __str__(self) -> str:
        ahead = f"changes sign at t = {self.zero:.6g}" if self.zero is not None else "keeps its sign"
        return f"G = {self.G:.6g}; until t = {self.t[-1]:g} it {ahead}"


def edla_well_posedness(
    system: System,
    q: Any,
    v: Any,
    *,
    method: EDLA | None = None,
    t0: float = 0.0,
    ahead: float = 10.0,
    points: int = 400,
) -> WellPosedness:
    """G of EDLA at (q, v), and the time within `ahead` at which it changes sign on the exact motion.

    G is half the second derivative, at h = 0, of the energy with which a step of size h departs. Steps that keep the
    energy exist while G keeps its sign. Near its zero two roots meet and vanish, for any h, unless a step happens to
    end beyond the zero. For a constant mass matrix and the midpoint rule,
    8 G = |R|^2 - |grad V|^2 - V''(v, v), with norms of covectors and R the reaction. `points` is the number of
    times at which G is computed: zeros closer together may be missed.
    """
    method = EDLA() if method is None else method
    if not isinstance(method, EDLA):
        raise ValueError(f"G is defined for EDLA, got {method!r}")
    check_system(system)
    if not isinstance(ahead, int | float | np.floating) or not 0 < ahead < np.inf:
        raise ValueError(f"ahead must be a positive time, got {ahead!r}")
    if not isinstance(points, int | np.integer) or isinstance(points, bool) or points < 2:
        raise ValueError(f"points must be a whole number of at least 2, got {points!r}")
    points = int(points)
    method.check(system)
    system = independent_rows(system, q, t0)
    t, states, found = _along(system, method, q, v, t0, ahead, points)
    whole = WellPosedness(float(found[0]), None, t, found)
    turn = _turn(found)
    if turn is None:
        return whole
    # Refine twice between the two times, with the same number of points so that nothing is compiled again.
    for _ in range(2):
        a, b = turn
        t, states, found = _along(system, method, *states[a], t[a], t[b] - t[a], points)
        turn = _turn(found) or (points - 1, points)
    a, b = turn
    return whole._replace(zero=float(t[a] - found[a] * (t[b] - t[a]) / (found[b] - found[a])))


def _along(system: System, method: EDLA, q: Any, v: Any, t0: float, time: float, points: int):
    """The times of the exact motion, and the states and G there."""
    sol = simulate(system, Reference(), q, v, h=time / points, steps=points, t0=t0, throw=False)
    rows = [np.asarray(x) for x in (sol.t, sol.q, sol.v)]
    return rows[0], list(zip(*rows[1:], strict=True)), well_posedness(system, method, *rows)


def _turn(found: np.ndarray) -> tuple[int, int] | None:
    """The rows between which G first changes sign. Tiny values have no sign, since the start itself may be a zero."""
    size = 1e-9 * max(float(np.max(np.abs(found))), np.finfo(float).tiny)
    signs = np.where(np.abs(found) > size, np.sign(found), 0)
    known = np.flatnonzero(signs)
    return next(((int(i), int(j)) for i, j in pairwise(known) if signs[i] != signs[j]), None)


class VariableStepLaws(NamedTuple):
    """The defects of the laws of EDLA over consecutive steps. The theorems say that they are zero."""

    energy: float | None
    """The change of E^+, relative to its size; None if the exact energy changes too."""
    momentum: dict[str, float]
    """The residual of the momentum equation in space and time for each section, relative to the momenta."""
    symplectic: float
    """The relative defect of F* Omega = Omega + d(lam' omega) in space and time."""
    form: float
    """The relative change of Omega in a step; zero without constraints."""


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
    # Each triple has its own times, because differences of large numbers lose digits.
    z = _triples(trajectory)
    size = np.max(np.abs(np.asarray(trajectory.step_data["E_plus"])))
    energy = None
    if lower(system).natural:
        energy = float(
            np.ptp(np.asarray(trajectory.step_data["E_plus"])[1:]) / max(size, np.finfo(float).tiny)
        )
    momentum = {}
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
    """The defect and the change at one triple. The third point is solved for again, so that it has derivatives."""
    ld, constraint, size = method.discrete_lagrangian, method.discrete_constraint, z.shape[1]

    def following(x):
        """The third point and lam', from the first two."""
        z0, z1 = x[:size], x[size:]
        arrived = spacetime_derivatives(ld, system, *between(z0, z1))[1]

        def equations(y):
            z2 = y[:size]
            departed = spacetime_derivatives(ld, system, *between(z1, z2))[0]
            force = spacetime_forms(system, z1).T @ y[size:]
            held = spacetime_constraint(constraint, system, *between(z1, z2))
            return jnp.concatenate([departed + arrived - force, held])

        guess = jnp.concatenate([z[2], lam])
        return newton(equations, guess, 1 / (jnp.sum(jnp.abs(guess)) + 1.0), noise=1e-6)[0]

    x = jnp.concatenate([z[0], z[1]])

    def impulse(x):
        """lam' omega as a one-form on the pair."""
        forms = spacetime_forms(system, x[size:])
        return jnp.concatenate([jnp.zeros(size), forms.T @ following(x)[size:]])

    after, slope = following(x), jax.jacfwd(lambda x: following(x)[:size])(x)
    step = jnp.concatenate([jnp.eye(2 * size)[size:], slope])
    before = spacetime_form(ld, system, x)
    moved = step.T @ spacetime_form(ld, system, jnp.concatenate([z[1], after[:size]])) @ step
    change = moved - before
    both = jnp.stack([change - exterior(impulse, x), change])
    return jnp.max(jnp.abs(both), axis=(1, 2)) / jnp.maximum(1.0, jnp.max(jnp.abs(moved)))
