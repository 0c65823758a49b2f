"""Many trajectories on a GPU: one Pallas kernel, every member in registers for the whole run."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.kernels.native import Loop, dtypes_of

BLOCK = 128
"""Members to a block of threads."""


@lru_cache(maxsize=64)
def compiled_many(loop: Loop, flags: tuple[bool, ...], count: int, wide: int) -> Any:
    """The kernel for so many rows and members: (shared, own, starts, limits) to (rows, what is told)."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    plain = loop.for_gpu()
    begin, step, output = plain.begin, plain.step, plain.output
    rank = [sum(flags[:i]) for i in range(len(flags))]
    rest = dtypes_of(begin.inputs)[len(flags) :]
    told = (*loop.told, *loop.counted)

    def kernel(shared, own, starts, limits, rows, ends):
        here = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
        parameters = [
            _typed(own[rank[i], here] if flags[i] else shared[i], t) for i, t in enumerate(loop.parameters)
        ]
        first = [_typed(starts[i, here], t) for i, t in enumerate(rest)]
        steps, every = limits[0], limits[1]

        def wide_as(x, dtype):
            x = jnp.asarray(x, dtype)
            return x if x.ndim else lax.broadcast(x, (BLOCK,))

        def save(row, values):
            for place, i in enumerate(loop.distinct):
                rows[row, place, here] = wide_as(values[i], np.float64)

        results = begin.run([*parameters, *first], BLOCK)
        results = [wide_as(x, t) for x, t in zip(results, [*loop.carry, *loop.row], strict=True)]
        carry = tuple(results[: len(loop.carry)])
        save(0, results[len(loop.carry) :])

        def advance(state):
            i, now = state
            new = step.run([*parameters, *now], BLOCK)
            well = now[loop.code] == 0
            fine = well & (wide_as(new[loop.code], loop.carry[loop.code]) == 0)
            kept = tuple(
                jnp.where(well if k in loop.told else fine, wide_as(a, t), b)
                for k, (a, b, t) in enumerate(zip(new, now, loop.carry, strict=True))
            )
            return i + 1, kept

        def segment(state):
            left, row, now = state
            todo = jnp.minimum(left, every)
            _, now = lax.while_loop(lambda s: s[0] < todo, advance, (jnp.zeros_like(todo), now))
            save(row, output.run([*parameters, *now], BLOCK))
            return left - todo, row + 1, now

        start = (steps, jnp.ones_like(steps), carry)
        _, _, carry = lax.while_loop(lambda state: state[0] > 0, segment, start)
        for i, k in enumerate(told):
            ends[i, here] = carry[k].astype(np.float64)

    shapes = (
        jax.ShapeDtypeStruct((count, len(loop.distinct), wide), np.float64),
        jax.ShapeDtypeStruct((len(told), wide), np.float64),
    )
    call = pl.pallas_call(
        kernel, out_shape=shapes, grid=(wide // BLOCK,),
        compiler_params=plgpu.CompilerParams(num_warps=BLOCK // 32, num_stages=1),
    )  # fmt: skip
    return jax.jit(call)


def _typed(x: Any, dtype: np.dtype) -> Any:
    return x if dtype == np.float64 else (x != 0 if dtype == bool else x.astype(dtype))


def run_many(loop: Loop, flags: tuple[bool, ...], shared, own, starts, steps: int, every: int, count: int) -> Any:
    """Rows (count, distinct entries, members) and what is told at the end; members a multiple of BLOCK."""
    limits = np.array([steps, every], np.int32)
    return compiled_many(loop, flags, count, starts.shape[1])(shared, own, starts, limits)
