"""Whole runs in machine code: forward, along a direction, and back from the last step to the first."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.kernels import Adjoint, Loop
from dalembert.methods import Composition
from dalembert.methods.composition import fractions
from dalembert.simulate.engine import compiled_single
from dalembert.simulate.loop import attempt

SEGMENT = 4096
"""Steps whose states are kept at a time while going backwards."""


class Run(NamedTuple):
    """What is fixed about a run: the loop, its length, and how to read the vector of arguments."""

    loop: Loop
    stages: Loop
    """The loop that the way back goes through: of a composition, one stage a step."""
    split: int
    """How many steps of `stages` make one of `loop`."""
    steps: int
    every: int

    @property
    def rows(self) -> int:
        """How many rows the run saves."""
        return 1 + -(-self.steps // self.every)

    @property
    def size(self) -> int:
        """Length of the vector of results: rows, then code, residual and count of steps."""
        return self.rows * len(self.loop.row) + 3


def _march(loop: Loop, x: np.ndarray, steps: int, every: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a run (those after a failure repeat the last), and the carry at its end."""
    start, run = compiled_single(loop)
    width, cut = len(loop.row), len(loop.parameters)
    parameters, first = np.ascontiguousarray(x[:cut]), np.ascontiguousarray(x[cut:])
    count = 1 + -(-steps // every)
    rows, carry = np.empty((count + 1, width)), np.empty(len(loop.carry))
    start(*(a.ctypes.data for a in (parameters, first, carry, rows)))
    if steps:
        filled = run(
            parameters.ctypes.data, carry.ctypes.data, every, every, steps, rows[1:].ctypes.data, count
        )
        rows[1 + filled : count] = rows[min(1 + filled, count)]
    return rows[:count], carry


def forward(run: Run, x: np.ndarray) -> np.ndarray:
    """The results: rows, then code, residual and count of steps."""
    rows, carry = _march(run.loop, x, run.steps, run.every)
    return np.concatenate([rows.reshape(-1), carry[[*run.loop.told, *run.loop.counted]]])


@lru_cache(maxsize=64)
def _tangent_loop(loop: Loop) -> Loop:
    """The loop of (value, derivative along a direction)."""
    begin, step, output, told, counted, parameters, start = loop.made

    def along(function, p, x):
        return _jvp(function, (p[0], x[0]), (p[1], x[1]))

    return Loop(
        begin=lambda p, x: along(begin, p, x),
        step=lambda p, x: along(step, p, x),
        output=lambda p, x: along(output, p, x),
        told=lambda carry: told(carry[0]),
        counted=lambda carry: counted(carry[0]),
        parameters=(parameters, parameters),
        start=(start, start),
    )


def _jvp(function: Any, primals: tuple, tangents: tuple) -> tuple:
    """jax.jvp that takes (and gives) zeros as derivatives of whole numbers."""

    def tangent(x, t):
        return t if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0)

    values, changes = jax.jvp(function, primals, jax.tree.map(tangent, primals, tangents))
    changes = jax.tree.map(
        lambda x, t: t if jnp.issubdtype(x.dtype, jnp.floating) else jnp.zeros_like(x), values, changes
    )
    return values, changes


def push(run: Run, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
    """The derivative of the results along dx."""
    loop, cut = _tangent_loop(run.loop), len(run.loop.parameters)
    both = np.concatenate([x[:cut], dx[:cut], x[cut:], dx[cut:]])
    rows, _ = _march(loop, both, run.steps, run.every)
    return np.concatenate([rows[:, len(run.loop.row) :].reshape(-1), np.zeros(3)])


@lru_cache(maxsize=64)
def _adjoint(loop: Loop) -> tuple[Adjoint, Loop]:
    """The pullback, and the loop that saves whole states."""
    begin, step, _, told, counted, parameters, start = loop.made
    states = Loop(begin, step, lambda p, carry: carry, told, counted, parameters, start)
    return Adjoint(loop), states


def pull(run: Run, x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The cotangent of the arguments, from that of the results."""
    adjoint, states = _adjoint(run.stages)
    start, march = compiled_single(states)
    cut, width, steps, every = (
        len(run.loop.parameters),
        len(states.carry),
        run.steps * run.split,
        run.every * run.split,
    )
    parameters, first = np.ascontiguousarray(x[:cut]), np.ascontiguousarray(x[cut:])
    wanted = np.array(wanted[:-3], float).reshape(run.rows, -1)[:, adjoint.row]
    marks = np.empty((steps // SEGMENT + 3, width))
    carry = np.empty(width)
    start(*(a.ctypes.data for a in (parameters, first, carry, marks)))
    march(
        parameters.ctypes.data, carry.ctypes.data, SEGMENT, SEGMENT, steps, marks[1:].ctypes.data, len(marks)
    )
    done = int(carry[states.counted[0]]) // run.split * run.split  # whole steps
    # Rows after a failure repeat the last good state, so what is wanted of them is wanted of it.
    last = -(-done // every)
    wanted[last] = wanted[last:].sum(axis=0)
    wanted = np.ascontiguousarray(wanted)
    lam, sums = np.zeros(len(adjoint.carry)), np.zeros(len(adjoint.parameters))
    block = np.empty((SEGMENT + 2, width))
    for base in range((done - 1) // SEGMENT * SEGMENT, -1, -SEGMENT) if done else ():
        count = min(SEGMENT, done - base)
        block[0] = carry[:] = marks[base // SEGMENT]
        march(parameters.ctypes.data, carry.ctypes.data, 1, 1, count, block[1:].ctypes.data, SEGMENT + 1)
        adjoint.back(
            parameters.ctypes.data, block.ctypes.data, base, count, done, every,
            wanted.ctypes.data, lam.ctypes.data, sums.ctypes.data,
        )  # fmt: skip
    ends = np.empty(len(adjoint.start))
    adjoint.finish(*(a.ctypes.data for a in (parameters, first, lam, wanted, sums, ends)))
    result = np.zeros(len(x))
    result[adjoint.parameters] = sums
    result[np.array(adjoint.start, int) + cut] = ends
    return result


@lru_cache(maxsize=64)
def stages_of(loop: Loop) -> tuple[Loop, int]:
    """Of a composition, the loop with one stage a step, and how many make a step; else the loop itself."""
    begin, _, output, told, counted, parameters, start = loop.made
    if not isinstance(parameters[1], Composition):
        return loop, 1
    parts = fractions(parameters[1].order)

    def first(p, x):
        carry = begin(p, x)
        # The time of a part of a step is the state's.
        return carry._replace(state=carry.state._replace(t=carry.t0)), jnp.zeros((), jnp.int32)

    def stage(p, x):
        (system, method, h), (carry, k) = p, x
        new = attempt(system, method.method, carry, h * jnp.asarray(parts)[k])
        return new, jnp.where(k == len(parts) - 1, 0, k + 1).astype(jnp.int32)

    split = Loop(
        first,
        stage,
        lambda p, x: output(p, x[0]),
        lambda x: told(x[0]),
        lambda x: counted(x[0]),
        parameters,
        start,
    )
    return split, len(parts)
