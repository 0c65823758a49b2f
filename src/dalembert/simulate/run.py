"""simulate(): checks, the chunked loop, progress, and what happens when something goes wrong."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.methods import Method
from dalembert.model import System, as_arrays, check_start, check_system
from dalembert.simulate.loop import CAPACITY, Rows, begin, run_chunk, scan
from dalembert.simulate.progress import progress_bar
from dalembert.simulate.status import SimulationError, Status
from dalembert.simulate.trajectory import Trajectory

CHUNK_SECONDS = 0.1
"""Aim of one chunk: short enough for Ctrl-C and the progress bar, long enough to cost nothing."""


def simulate(
    system: System,
    method: Method,
    q0: Any,
    v0: Any,
    *,
    h: Any,
    steps: int,
    save_every: int = 1,
    t0: Any = 0.0,
    throw: bool = True,
    progress: bool | Callable[[int, int], None] = False,
) -> Trajectory:
    """Runs `method` on `system` from (q0, v0) for `steps` steps of size h.

    Every `save_every`-th state is kept, and the last one; row 0 is the start. The start velocity must
    satisfy the constraint. A run that fails raises SimulationError with step, time and what to try; with
    `throw=False` it returns what was computed, and `status` says why it ended. Ctrl-C ends the run and
    returns what was computed. `progress=True` shows a bar on a terminal (plain lines elsewhere); a
    function is called with (steps done, steps).

    Inside jax.grad, jax.jvp, jax.jit and jax.vmap the result is differentiable in the parameters, q0, v0
    and h. Only shapes are checked there, failure never raises, and `status` is a number.
    """
    _check_numbers(h, steps, save_every, t0)
    steps, save_every = int(steps), int(save_every)
    check_system(system)
    if not isinstance(method, Method):
        raise ValueError(f"expected a method such as FrameGradient(), got {method!r}")
    traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((system, method, q0, v0, h, t0)))
    if traced:
        _check_shapes(system, q0, v0)
    else:
        method.check(system, check_start(system, q0, v0))
    system, method = as_arrays(system), as_arrays(method)
    q0, v0, h, t0 = (jnp.asarray(x, float) for x in (q0, v0, h, t0))
    if traced:
        carry, rows = scan(system, method, q0, v0, h, steps, save_every)
        index = jnp.asarray(_saved(steps, save_every))
        return Trajectory(
            t0 + index * h, *rows, carry.code, carry.step, carry.residual, system, method, h, save_every
        )
    solution = _run(system, method, (q0, v0, h, t0), steps, save_every, progress)
    if solution.status is Status.INTERRUPTED:
        warnings.warn(solution.message, stacklevel=2)
    elif throw and solution.status is not Status.OK:
        raise SimulationError(solution.message, solution)
    return solution


def _run(system, method, start, steps, save_every, progress) -> Trajectory:
    q0, v0, h, t0 = start
    parts: list[Rows] = []
    code = None
    carry, first = begin(system, method, q0, v0, h)
    last, saved, done = first, 0, 0
    with progress_bar(progress, steps, f"{type(system).__name__} by {method.spelling}") as advance:
        try:
            # The first call compiles, so it says nothing about speed; the second is timed.
            count, timed = 256, False
            while done < steps:
                count = min(count, steps - done, CAPACITY * save_every)
                began = time.perf_counter()
                carry, rows, filled = run_chunk(system, method, carry, h, np.int64(save_every), np.int64(count))
                filled, now, code = int(filled), int(carry.step), int(carry.code)
                host = jax.tree.map(lambda x: np.asarray(x)[: filled + 1], rows)
                parts.append(jax.tree.map(lambda x: x[:filled].copy(), host))
                last = jax.tree.map(lambda x: x[-1], host)
                if now % save_every == 0 and filled:
                    last = jax.tree.map(lambda x: x[-1], parts[-1])
                saved += filled
                elapsed = time.perf_counter() - began
                count = 4096 if not timed else max(64, int((now - done) * CHUNK_SECONDS / elapsed))
                timed, done = True, now
                advance(done)
                if code != Status.OK.code:
                    break
        except KeyboardInterrupt:
            code = Status.INTERRUPTED.code
    code = Status.OK.code if code is None else code
    index = [0, *(save_every * (1 + i) for i in range(saved))]
    parts = [jax.tree.map(lambda x: np.asarray(x)[None], first), *parts]
    if index[-1] != done:
        index.append(done)
        parts.append(jax.tree.map(lambda x: np.asarray(x)[None], last))
    rows = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    t = float(t0) + np.asarray(index) * float(h)
    residual = np.asarray(carry.residual)
    return Trajectory(t, *rows, np.asarray(code), np.asarray(done), residual, system, method, h, save_every)


def _saved(steps: int, save_every: int) -> np.ndarray:
    """The steps at which rows are kept."""
    index = np.arange(0, steps + 1, save_every)
    return index if index[-1] == steps else np.append(index, steps)


def _check_numbers(h: Any, steps: Any, save_every: Any, t0: Any) -> None:
    for name, value, least in (("steps", steps, 0), ("save_every", save_every, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    for name, value in (("h", h), ("t0", t0)):
        if isinstance(value, jax.core.Tracer):
            continue
        if np.ndim(value) != 0 or not np.isfinite(value):
            raise ValueError(f"{name} must be one finite number, got {value!r}")
    if not isinstance(h, jax.core.Tracer) and h <= 0:
        raise ValueError(f"h must be positive, got {h!r}; to run backwards reverse the velocity")


def _check_shapes(system: System, q0: Any, v0: Any) -> None:
    n = system.dimension
    for name, x in (("q0", q0), ("v0", v0)):
        if jnp.shape(x) != (n,):
            raise ValueError(f"{name} must have shape ({n},), got {jnp.shape(x)}")
