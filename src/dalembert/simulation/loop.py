"""The time loop: in chunks for runs on plain numbers, as a scan inside other JAX code."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.methods import Method, State, Status
from dalembert.methods.legendre import is_general
from dalembert.model import (
    DEPENDENT,
    SINGULAR,
    TOLERANCE,
    Mechanics,
    System,
    Trait,
    contradicts_at,
    faults_around,
    is_linear_momentum,
    is_symmetric,
    least_norm,
    lower,
    nearest_velocity,
    off_surface,
    same_mass,
    still_follow,
    violates,
)
from dalembert.numerics import compiled, diagonal, is_syntactically_constant, matmul, solve_spd

CAPACITY = 8192
"""The number of rows that a chunk can save; it is fixed, so that no compiled shape depends on the number of steps."""


class Carry(NamedTuple):
    """Everything that the loop knows between two steps."""

    state: State
    memory: Any
    turns: Array
    """The number of full turns subtracted from each coordinate that is an angle."""
    step: Array
    code: Array
    residual: Array
    t0: Array
    """The time at which the run began. Equal steps begin at t0 + step h, so that times do not collect rounding errors;
    the state then holds no time. If steps differ in size, the state holds it."""


class Rows(NamedTuple):
    """The saved output, one row per saved step."""

    q: Array
    v: Array
    v_full: Array
    lam: Array | None
    """The multipliers; None stands for those of the exact motion, which the trajectory computes on demand."""
    t: Array | None = None
    """The time, if steps differ in size."""
    step_data: dict[str, Array] = {}  # noqa: RUF012
    """The method's numbers about the step."""
    near: Array | None = None
    """q without the full turns of its angles, if there are any."""


def saved_steps(steps: int, save_every: int) -> np.ndarray:
    """The steps at which rows are kept."""
    index = np.arange(0, steps + 1, save_every)
    return index if index[-1] == steps else np.append(index, steps)


def start_fault(
    system: System, q: Array, v: Array, t: Any, supports: frozenset[Trait] | None = None
) -> Array:
    """The code of what is wrong with a start, as far as compiled code can tell; zero if nothing is.

    It checks whether q is an element of the group and satisfies the position constraints, whether the mass matrix is
    symmetric and positive definite, or has the declared signature and is nondegenerate on D, whether v satisfies the
    constraint, whether its one-forms are independent, and whether a frame and an offset agree with the one-forms there.
    With `supports`, those of the method, it also checks the properties that show only in the values around the start.
    """
    m, q, v = jax.tree.map(lax.stop_gradient, (lower(system).at(t), q, v))
    mass = m.metric(q)
    measure = m.measure(mass)
    bad = jnp.any(violates(m.forms(q, v), v, m.levels(q, v), measure))
    fault = jnp.where(_rank_holds(m, q, v, measure), Status.OK.code, Status.RANK.code)
    fault = jnp.where(bad, Status.OFF_CONSTRAINT.code, fault)
    if Trait.INDEFINITE in m.traits:
        fault = jnp.where(_nondegenerate(m, q, mass, measure), fault, Status.DEGENERATE.code)
        declared = m.negative_directions(q)[0] == m.signature[1]
        fault = jnp.where(declared, fault, Status.SIGNATURE.code)
    else:
        unit = jnp.sqrt(jnp.abs(diagonal(mass)))
        # If the matrix is not positive definite, the solution is not finite.
        definite = jnp.isfinite(jnp.sum(solve_spd(mass / (unit[:, None] * unit), jnp.ones_like(unit))))
        fault = jnp.where(definite, fault, Status.NOT_DEFINITE.code)
    wrong = ~is_symmetric(mass, measure) | contradicts_at(m, q, measure)
    fault = jnp.where(wrong, Status.CONTRADICTION.code, fault)
    if supports is not None:
        unfit, contradiction = faults_around(m, q, v, supports)
        fault = jnp.where(unfit, Status.NOT_DEFINED.code, fault)
        fault = jnp.where(contradiction, Status.CONTRADICTION.code, fault)
    if Trait.HOLONOMIC in m.traits:
        slopes = m.slopes(q)
        typical = jnp.sum(jnp.abs(slopes), axis=1) * (1 + jnp.max(jnp.abs(q)))
        off = jnp.any(off_surface(m.holonomic(q), slopes, q, typical))
        fault = jnp.where(off, Status.OFF_SURFACE.code, fault)
    return jnp.where(m.space.defect(q) < TOLERANCE, fault, Status.NO_ELEMENT.code)


def _rank_holds(m: Mechanics, q: Array, v: Array, measure: Array) -> Array:
    """Whether the one-forms are independent, and those that are left out follow from them."""
    if not m.constrained or m.framed:
        return jnp.asarray(True)
    forms = m.forms(q, v) / jnp.sqrt(jnp.abs(diagonal(measure)))
    if forms.shape[0] > forms.shape[1]:
        return jnp.asarray(False)
    forms = forms / jnp.sqrt(jnp.sum(forms**2, axis=1, keepdims=True))
    # If the matrix is singular to rounding, the solution is not finite.
    fine = jnp.isfinite(jnp.sum(solve_spd(forms @ forms.T, jnp.ones(forms.shape[0]))))
    return fine & still_follow(m, q) if m.redundant else fine


def _nondegenerate(m: Mechanics, q: Array, mass: Array, measure: Array) -> Array:
    """Whether an indefinite metric is nondegenerate, on all velocities and on D."""
    unit = jnp.sqrt(diagonal(measure))
    mass = mass / (unit[:, None] * unit)
    inverse = m.solved(mass, jnp.eye(len(unit), dtype=mass.dtype))
    size = jnp.max(jnp.abs(inverse))
    fine = size * SINGULAR < 1  # NaN is degenerate, too
    if not m.constrained:
        return fine
    vectors, part = (m.frame(q).T * unit, mass) if m.framed else (m.rows(q) / unit, inverse)
    vectors = vectors / jnp.sqrt(jnp.sum(vectors**2, axis=1, keepdims=True))
    part = matmul(vectors, matmul(part, vectors.T))
    inverse = m.solved(part, jnp.eye(len(part), dtype=mass.dtype))
    return fine & (jnp.max(jnp.abs(inverse), initial=0.0) * DEPENDENT * (1.0 if m.framed else size) < 1)


def _stays_nondegenerate(before: Mechanics, q0: Array, after: Mechanics, q1: Array) -> Array:
    """Whether an indefinite metric is nondegenerate after a step, and has not become degenerate within it."""
    mass = after.metric(q1)
    same = jnp.all(before.negative_directions(q0) == after.negative_directions(q1))
    return same & _nondegenerate(after, q1, mass, after.measure(mass))


def still_defined(m: Mechanics, before: State, after: State, supports: frozenset[Trait]) -> Array | None:
    """Whether a method with these traits is defined at the end of a step, too; None if the formulas show that it is.

    The checks before a run look around its start, and the system may be of another kind farther away.
    """
    there, checks = m.at(after.t), []
    if Trait.VARYING_MASS not in supports and not is_syntactically_constant(there.metric, after.q):
        mass = m.at(before.t).metric(before.q)
        checks.append(same_mass(there.metric(after.q), mass, m.measure(mass)))
    if Trait.GENERAL_LAGRANGIAN not in supports and is_general(m):
        momentum = there.momentum(after.q, after.v)
        checks.append(is_linear_momentum(there.metric(after.q), after.v, momentum))
    return jnp.all(jnp.stack(checks)) if checks else None


def first_carry(system: System, method: Method, start: State, h: Array) -> Carry:
    """The state of the loop before its first step."""
    memory = method.init(lower(system), start, h)
    held = start if method.variable_step else start._replace(t=None)
    zero = jnp.zeros((), int)
    return Carry(
        held, memory, jnp.zeros_like(start.q), zero, jnp.zeros((), jnp.int32), jnp.zeros(()), start.t
    )


def _with_time(carry: Carry, h: Array) -> State:
    """The state with its time."""
    state = carry.state
    return state if state.t is not None else state._replace(t=carry.t0 + carry.step * h)


@compiled
def begin(system: System, method: Method, start: State, h: Array) -> tuple[Carry, Rows]:
    """The state of the loop before its first step, and the row of the start."""
    carry = first_carry(system, method, start, h)
    return carry, output(system, method, carry, h)


def output(system: System, method: Method, carry: Carry, h: Array) -> Rows:
    """The row of the current state, with the full turns added back to the angles."""
    (q, v, t), near, m = _with_time(carry, h), None, lower(system)
    if system.angles:
        near = q
        # Adding turns rounds the angle, so the velocity is projected onto D at the row's q.
        turned = jnp.any(carry.turns != 0)
        q = q + 2 * jnp.pi * carry.turns
        v = jnp.where(turned, nearest_velocity(m.at(t), q, v), v) if method.velocity_allowed else v
    state = State(q, v, t)
    v_full, multipliers = method.output(m, state, carry.memory, h)
    if m.redundant and multipliers is not None:
        multipliers = least_norm(m.at(t), q, multipliers)
    when = t if method.variable_step else None
    return Rows(q, v, v_full, multipliers, when, method.step_data(m, state, carry.memory), near)


def attempt(system: System, method: Method, carry: Carry, h: Array) -> Carry:
    """The state of the loop after one more step, which is valid only if its code is that of success."""
    m, before = lower(system), _with_time(carry, h)
    state, memory, report = method.step(m, before, carry.memory, h)
    if carry.state.t is None:
        state = state._replace(t=carry.t0 + (carry.step + 1) * h)
    # A sum is finite only if all its terms are. The potential may be undefined although its gradient is not. It is
    # evaluated at the end of the step, full turns included, because the step may have computed parts of it there.
    here, turns = m.at(state.t), carry.turns
    potential = here.potential(state.q)
    defined = still_defined(m, before, state, method.supports)
    if system.angles:
        is_angle = np.array([name in system.angles for name in system.coordinates])
        more = jnp.where(is_angle, jnp.round(state.q * (1 / (2 * np.pi))), 0.0)
        state, turns = state._replace(q=state.q - 2 * jnp.pi * more), turns + more
    # A row adds the turns back.
    total = jnp.sum(state.q + 2 * jnp.pi * turns if system.angles else state.q) + jnp.sum(state.v)
    finite = jnp.isfinite(total) & jnp.isfinite(potential)
    if carry.state.t is None:
        state = state._replace(t=None)
    code = jnp.where(report.converged, Status.OK.code, Status.NOT_SOLVED.code)
    code = jnp.where(finite, code, Status.NOT_FINITE.code).astype(jnp.int32)
    if report.trouble is not None:
        code = jnp.where(report.trouble == Status.OK.code, code, report.trouble)
    failed = code != Status.OK.code
    if m.redundant:
        fine = still_follow(here, state.q) | failed
        code = jnp.where(fine, code, Status.RANK.code).astype(jnp.int32)
    if Trait.INDEFINITE in m.traits:
        fine = _stays_nondegenerate(m.at(before.t), before.q, here, state.q) | failed
        code = jnp.where(fine, code, Status.DEGENERATE.code).astype(jnp.int32)
    if defined is not None:
        code = jnp.where(defined | failed, code, Status.NOT_DEFINED.code).astype(jnp.int32)
    residual = report.residual.astype(carry.residual.dtype)
    return Carry(state, memory, turns, carry.step + 1, code, residual, carry.t0)


def advance(system: System, method: Method, carry: Carry, h: Array) -> Carry:
    """One step if it succeeds; otherwise the state before it, with the code of the failure."""
    new = attempt(system, method, carry, h)
    kept = jax.tree.map(partial(jnp.where, new.code == Status.OK.code), new, carry)
    return kept._replace(code=new.code, residual=new.residual)


@compiled
def run_chunk(
    system: System, method: Method, carry: Carry, h: Array, save_every: Array, count: Array
) -> tuple[Carry, Rows, Array]:
    """Makes up to `count` steps and saves each multiple of `save_every`; on failure it ends at the last good state.

    Returns the carry, the buffer of rows, and the number of filled rows. The row after these holds the last state,
    saved or not.
    """

    def steps(carry: Carry, todo: Array) -> Carry:
        def attempt(loop):
            carry, done = loop
            return advance(system, method, carry, h), done + 1

        def going(loop):
            carry, done = loop
            return (done < todo) & (carry.code == Status.OK.code)

        return lax.while_loop(going, attempt, (carry, jnp.zeros_like(todo)))[0]

    def segment(loop):
        carry, rows, row = loop
        done = carry.step - first
        carry = steps(carry, jnp.minimum(save_every - carry.step % save_every, count - done))
        one = output(system, method, carry, h)
        rows = jax.tree.map(lambda all, x: lax.dynamic_update_index_in_dim(all, x, row, 0), rows, one)
        filled = (carry.step % save_every == 0) & (carry.code == Status.OK.code)
        return carry, rows, row + filled.astype(row.dtype)

    def unfinished(loop):
        carry, _, row = loop
        return (carry.step - first < count) & (carry.code == Status.OK.code) & (row < CAPACITY)

    first = carry.step
    shapes = jax.eval_shape(lambda: output(system, method, carry, h))
    rows = jax.tree.map(lambda s: jnp.zeros((CAPACITY + 1, *s.shape), s.dtype), shapes)
    return lax.while_loop(unfinished, segment, (carry, rows, jnp.zeros_like(first)))


def scan(system: System, method: Method, start: State, h: Array, steps: int, save_every: int):
    """The same run as one differentiable expression; after a failure the rows repeat the last good state."""
    carry, first = begin(system, method, start, h)

    @jax.checkpoint
    def step(carry, _):
        going = carry.code == Status.OK.code
        return jax.tree.map(partial(jnp.where, going), advance(system, method, carry, h), carry), None

    def save(carry, length):
        carry, _ = lax.scan(step, carry, length=length)
        return carry, output(system, method, carry, h)

    carry, rows = lax.scan(lambda c, _: save(c, save_every), carry, length=steps // save_every)
    rows = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rows)
    if steps % save_every:
        carry, last = save(carry, steps % save_every)
        rows = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), rows, last)
    return carry, rows
