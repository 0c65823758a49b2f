"""The time loop: in chunks for runs on plain numbers, as a scan inside other JAX code."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.methods import Method, State
from dalembert.model import System, project
from dalembert.numerics import compiled
from dalembert.simulate.status import Status

CAPACITY = 8192
"""Rows a chunk can save; fixed, so that the number of steps never enters a compiled shape."""


class Carry(NamedTuple):
    """Everything the loop knows between two steps."""

    state: State
    memory: Any
    turns: Array
    """Full turns taken off the coordinates that are angles."""
    step: Array
    code: Array
    residual: Array


class Rows(NamedTuple):
    """Saved output, one row a saved step."""

    q: Array
    v: Array
    v_full: Array
    lam: Array | None
    """None where they are those of the exact motion, which the trajectory computes when asked."""


def first_carry(system: System, method: Method, q0: Array, v0: Array, h: Array) -> Carry:
    """The loop before its first step."""
    state = State(q0, v0)
    memory = method.init(system, state, h)
    zero = jnp.zeros((), int)
    return Carry(state, memory, jnp.zeros_like(q0), zero, jnp.zeros((), jnp.int32), jnp.zeros(()))


@compiled
def begin(system: System, method: Method, q0: Array, v0: Array, h: Array) -> tuple[Carry, Rows]:
    """The loop before its first step, and the row of the start."""
    carry = first_carry(system, method, q0, v0, h)
    return carry, output(system, method, carry, h)


def output(system: System, method: Method, carry: Carry, h: Array) -> Rows:
    """The row of the current state, full turns added back to angles."""
    q, v = carry.state
    if system.angles:
        # Adding turns rounds the angle, so the velocity is projected onto D where the row says q is.
        turned = jnp.any(carry.turns != 0)
        q = q + 2 * jnp.pi * carry.turns
        v = jnp.where(turned, project(system, q, v), v)
    v_full, multipliers = method.output(system, State(q, v), carry.memory, h)
    return Rows(q, v, v_full, multipliers)


def attempt(system: System, method: Method, carry: Carry, h: Array) -> Carry:
    """The loop after one more step, which counts only if its code says that all is well."""
    state, memory, report = method.step(system, carry.state, carry.memory, h)
    # A sum is finite only if all its terms are. The potential may be undefined although its gradient is not.
    finite = jnp.isfinite(jnp.sum(state.q) + jnp.sum(state.v)) & jnp.isfinite(system.potential(state.q))
    code = jnp.where(report.converged, Status.OK.code, Status.NOT_SOLVED.code)
    code = jnp.where(finite, code, Status.NOT_FINITE.code).astype(jnp.int32)
    turns = carry.turns
    if system.angles:
        is_angle = np.array([name in system.angles for name in system.coordinates])
        more = jnp.where(is_angle, jnp.round(state.q * (1 / (2 * np.pi))), 0.0)
        state, turns = State(state.q - 2 * jnp.pi * more, state.v), turns + more
    residual = report.residual.astype(carry.residual.dtype)
    return Carry(state, memory, turns, carry.step + 1, code, residual)


def advance(system: System, method: Method, carry: Carry, h: Array) -> Carry:
    """One step if it succeeds; else the state as it was, with the code of the failure."""
    new = attempt(system, method, carry, h)
    kept = jax.tree.map(partial(jnp.where, new.code == Status.OK.code), new, carry)
    return kept._replace(code=new.code, residual=new.residual)


@compiled
def run_chunk(
    system: System, method: Method, carry: Carry, h: Array, save_every: Array, count: Array
) -> tuple[Carry, Rows, Array]:
    """Up to `count` steps, saving each multiple of `save_every`; ends early, at the last good state, on failure.

    Returns the buffer of rows and how many are filled; the next row holds the last state, saved or not.
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


def scan(system: System, method: Method, q0: Array, v0: Array, h: Array, steps: int, save_every: int):
    """The same run as one differentiable expression; after a failure rows repeat the last good state."""
    carry, start = begin(system, method, q0, v0, h)

    @jax.checkpoint
    def step(carry, _):
        going = carry.code == Status.OK.code
        return jax.tree.map(partial(jnp.where, going), advance(system, method, carry, h), carry), None

    def save(carry, length):
        carry, _ = lax.scan(step, carry, length=length)
        return carry, output(system, method, carry, h)

    carry, rows = lax.scan(lambda c, _: save(c, save_every), carry, length=steps // save_every)
    rows = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, rows)
    if steps % save_every:
        carry, last = save(carry, steps % save_every)
        rows = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), rows, last)
    return carry, rows
