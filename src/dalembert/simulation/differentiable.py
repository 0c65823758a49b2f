"""A whole run as one differentiable operation, forward and backward in machine code.

The run is a function of one vector (parameters, h, q0, v0) whose value is one vector (all rows, how it ended).
Its derivative along a direction is a run of the step's derivative. Its transpose goes back from the last step to the
first over states that are recomputed in segments, so that memory grows with the number of segments, not of steps.
Second derivatives go through the plain XLA loop.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.kernels import Adjoint, TimeLoop, time_loop
from dalembert.methods import Composition, Method, State
from dalembert.methods.composition import fractions
from dalembert.model import System
from dalembert.numerics.jax_internals import Primitive, ShapedArray, ad, batching, mlir
from dalembert.simulation.engines import compiled_single, loop_of
from dalembert.simulation.loop import Rows, attempt, scan

SEGMENT = 4096
"""The number of steps whose states are kept at a time on the way back."""


class Run(NamedTuple):
    """The fixed part of a run: the loop, its length, and how to read the vector of arguments."""

    loop: TimeLoop
    stages: TimeLoop
    """The loop for the way back; for a composition, each of its steps is one stage."""
    split: int
    """The number of steps of `stages` that make up one step of `loop`."""
    steps: int
    every: int

    @property
    def rows(self) -> int:
        """The number of rows that the run saves."""
        return 1 + -(-self.steps // self.every)

    @property
    def size(self) -> int:
        """The length of the vector of results: rows, then code, residual and number of steps."""
        return self.rows * len(self.loop.row) + 3


def _march(loop: TimeLoop, x: np.ndarray, steps: int, every: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a run (those after a failure repeat the last good one), and the carry at its end."""
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
    """The results: rows, then code, residual and number of steps."""
    rows, carry = _march(run.loop, x, run.steps, run.every)
    return np.concatenate([rows.reshape(-1), carry[[*run.loop.report, *run.loop.counted]]])


@lru_cache(maxsize=64)
def _tangent_loop(loop: TimeLoop) -> TimeLoop:
    """The loop of (value, derivative along a direction)."""
    begin, step, output, report, counted, parameters, start = loop.made

    def along(function, p, x):
        return _jvp(function, (p[0], x[0]), (p[1], x[1]))

    return time_loop(
        begin=lambda p, x: along(begin, p, x),
        step=lambda p, x: along(step, p, x),
        output=lambda p, x: along(output, p, x),
        report=lambda carry: report(carry[0]),
        counted=lambda carry: counted(carry[0]),
        parameters=(parameters, parameters),
        start=(start, start),
    )


def _jvp(function: Any, primals: tuple, tangents: tuple) -> tuple:
    """Like jax.jvp, but takes and gives zeros as derivatives of whole numbers."""

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
def _adjoint(loop: TimeLoop) -> tuple[Adjoint, TimeLoop]:
    """The adjoint of the loop, and the loop that saves whole states."""
    begin, step, _, report, counted, parameters, start = loop.made
    states = time_loop(begin, step, lambda p, carry: carry, report, counted, parameters, start)
    return Adjoint(loop), states


def pull(run: Run, x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The cotangent of the arguments, computed from that of the results."""
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
    carry, block = np.empty(width), np.empty((SEGMENT + 2, width))

    def advance(every: int, count: int, kept: np.ndarray) -> None:
        march(parameters.ctypes.data, carry.ctypes.data, every, every, count, kept.ctypes.data, len(kept))

    start(*(a.ctypes.data for a in (parameters, first, carry, marks)))
    held = (steps - 1) // SEGMENT * SEGMENT if steps else 0
    """Where the segment begins whose states are in `block`. That is the last one, so that it is run only once."""
    if held:
        advance(SEGMENT, held, marks[1:])
    block[0] = marks[held // SEGMENT] = carry
    if int(carry[states.counted[0]]) == held < steps:
        advance(1, steps - held, block[1:])
    done = int(carry[states.counted[0]]) // run.split * run.split  # whole steps
    # Rows after a failure repeat the last good state, so their cotangents are added to that of this state.
    last = -(-done // every)
    wanted[last] = wanted[last:].sum(axis=0)
    wanted = np.ascontiguousarray(wanted)
    lam, sums = np.zeros(len(adjoint.carry)), np.zeros(len(adjoint.parameters))
    for begun in range((done - 1) // SEGMENT * SEGMENT, -1, -SEGMENT) if done else ():
        count = min(SEGMENT, done - begun)
        if begun != held:
            block[0] = carry[:] = marks[begun // SEGMENT]
            advance(1, count, block[1:])
        adjoint.back(
            parameters.ctypes.data, block.ctypes.data, begun, count, done, every,
            wanted.ctypes.data, lam.ctypes.data, sums.ctypes.data,
        )  # fmt: skip
    ends = np.empty(len(adjoint.start))
    adjoint.finish(*(a.ctypes.data for a in (parameters, first, lam, wanted, sums, ends)))
    result = np.zeros(len(x))
    result[adjoint.parameters] = sums
    result[np.array(adjoint.start, int) + cut] = ends
    return result


@lru_cache(maxsize=64)
def stages_of(loop: TimeLoop) -> tuple[TimeLoop, int]:
    """For a composition, the loop with one stage per step and the number of stages; otherwise the loop itself and 1."""
    begin, _, output, report, counted, parameters, start = loop.made
    if not isinstance(parameters[1], Composition):
        return loop, 1
    parts = fractions(parameters[1].order)

    def first(p, x):
        carry = begin(p, x)
        # The state holds the time within a step.
        return carry._replace(state=carry.state._replace(t=carry.t0)), jnp.zeros((), jnp.int32)

    def stage(p, x):
        (system, method, h), (carry, k) = p, x
        new = attempt(system, method.method, carry, h * jnp.asarray(parts)[k])
        return new, jnp.where(k == len(parts) - 1, 0, k + 1).astype(jnp.int32)

    split = time_loop(
        first,
        stage,
        lambda p, x: output(p, x[0]),
        lambda x: report(x[0]),
        lambda x: counted(x[0]),
        parameters,
        start,
    )
    return split, len(parts)


def _plain(run: Run, x: Any) -> Any:
    """The same results by the plain loop, which JAX can differentiate any number of times."""
    (system, method, h), start = _read(run.loop, x)
    carry, rows = scan(system, method, start, h, run.steps, run.every)
    flat = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(rows)]
    end = [carry.code, carry.residual, carry.step]
    return jnp.concatenate(
        [jnp.concatenate(flat, axis=1).reshape(-1), jnp.stack([jnp.asarray(e, float) for e in end])]
    )


def _read(loop: TimeLoop, x: Any) -> Any:
    """The arguments as they were before they became a vector."""
    leaves, position = [], 0
    for shape, dtype in loop.inputs:
        size = int(np.prod(shape))
        leaves.append(x[position : position + size].reshape(shape).astype(dtype))
        position += size
    return jax.tree.unflatten(loop.tree, leaves)


def _primitive(name: str, host: Any, plain: Any, size: Any) -> Primitive:
    """An operation on vectors, with any leading batch axes, that the host computes."""
    primitive = Primitive(name)

    def compute(*arguments, run: Run):
        shape = jax.ShapeDtypeStruct((*arguments[0].shape[:-1], size(run, *arguments)), np.float64)

        def call(*given):
            given = [np.asarray(x, float) for x in given]
            out = np.empty(shape.shape)
            for place in np.ndindex(*shape.shape[:-1]):
                out[place] = host(run, *(x[place] for x in given))
            return out

        return jax.pure_callback(call, shape, *arguments, vmap_method="sequential")

    def batch(arguments, dims, *, run: Run):
        width = next(x.shape[d] for x, d in zip(arguments, dims, strict=True) if d is not None)
        wide = [
            jnp.broadcast_to(x, (width, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
            for x, d in zip(arguments, dims, strict=True)
        ]
        return primitive.bind(*wide, run=run), 0

    def abstract(*arguments, run: Run):
        return ShapedArray((*arguments[0].shape[:-1], size(run, *arguments)), np.dtype(float))

    def once_more(primals, tangents, *, run: Run):
        """The derivative, by plain JAX, member by member."""
        function = jnp.vectorize(
            lambda *x: plain(run, *x), signature=",".join(["(n)", "(m)"][: len(primals)]) + "->(k)"
        )
        tangents = [ad.instantiate_zeros(t) for t in tangents]
        return jax.jvp(function, tuple(primals), tuple(tangents))

    primitive.def_impl(jax.jit(compute, static_argnames="run"))
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    batching.primitive_batchers[primitive] = batch
    ad.primitive_jvps[primitive] = once_more
    return primitive


_run_p = _primitive("dalembert_run", forward, _plain, lambda run, x: run.size)
_push_p = _primitive(
    "dalembert_push", push, lambda run, x, dx: jax.jvp(lambda y: _plain(run, y), (x,), (dx,))[1],
    lambda run, x, dx: run.size,
)  # fmt: skip
_pull_p = _primitive(
    "dalembert_pull", pull, lambda run, x, w: jax.vjp(lambda y: _plain(run, y), x)[1](w)[0],
    lambda run, x, w: x.shape[-1],
)  # fmt: skip


def _run_jvp(primals, tangents, *, run: Run):
    return _run_p.bind(*primals, run=run), _push_p.bind(
        *primals, *map(ad.instantiate_zeros, tangents), run=run
    )


def _push_jvp(primals, tangents, *, run: Run):
    (x, dx), (x_dot, dx_dot) = primals, tangents
    if isinstance(x_dot, ad.Zero):
        return _push_p.bind(x, dx, run=run), _push_p.bind(x, ad.instantiate_zeros(dx_dot), run=run)
    return _second[_push_p](primals, tangents, run=run)


def _pull_jvp(primals, tangents, *, run: Run):
    (x, w), (x_dot, w_dot) = primals, tangents
    if isinstance(x_dot, ad.Zero):
        return _pull_p.bind(x, w, run=run), _pull_p.bind(x, ad.instantiate_zeros(w_dot), run=run)
    return _second[_pull_p](primals, tangents, run=run)


_second = {p: ad.primitive_jvps[p] for p in (_push_p, _pull_p)}
ad.primitive_jvps[_run_p] = _run_jvp
ad.primitive_jvps[_push_p] = _push_jvp
ad.primitive_jvps[_pull_p] = _pull_jvp
ad.primitive_transposes[_push_p] = lambda ct, x, dx, *, run: (
    None, ad.Zero(dx.aval) if isinstance(ct, ad.Zero) else _pull_p.bind(x, ct, run=run)
)  # fmt: skip
ad.primitive_transposes[_pull_p] = lambda ct, x, w, *, run: (
    None, ad.Zero(w.aval) if isinstance(ct, ad.Zero) else _push_p.bind(x, ct, run=run)
)  # fmt: skip


def differentiable_run(
    system: System, method: Method, start: State, h: Any, steps: int, every: int
) -> tuple[Any, Rows]:
    """How the run ended (code, residual, steps) and its rows, differentiable in everything."""
    loop = loop_of(system, method)
    leaves = jax.tree.leaves(((system, method, h), start))
    x = jnp.concatenate([jnp.reshape(jnp.asarray(leaf, float), -1) for leaf in leaves])
    run = Run(loop, *stages_of(loop), steps, every)
    y = _run_p.bind(x, run=run)
    code, residual, done = jax.lax.stop_gradient(y[-3:])
    end = (code.astype(jnp.int32), residual, done.astype(int))
    return end, loop.rows(y[:-3].reshape(run.rows, -1))
