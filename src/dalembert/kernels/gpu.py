"""Many trajectories on a GPU: one kernel for the whole run, made by LLVM, or by Pallas (Triton).

LLVM takes loops of any size and form. Triton compiles short steps as quickly, and runs them a little faster; it takes
minutes for long ones. It has functions that LLVM has no code for, such as exponentials.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.kernels import cuda
from dalembert.kernels.graph import Unsupported
from dalembert.kernels.native import Loop, TimeLoop
from dalembert.kernels.traced import dtypes_of

BLOCK = 128
"""The number of members per block of threads."""
SHORT, UNROLL = 400, 4
"""Steps with fewer than SHORT operations are written out UNROLL times, which saves iterations of the loop."""
# The quotient takes the device's estimate of 1/b, two Newton steps, and a last correction. It is good to one unit in
# the last place. A divisor that is zero, infinite or beyond 1e307 gives NaN, which ends the member.
_QUOTIENT = """
rcp.approx.ftz.f64 t, $2;
neg.f64 u, $2; fma.rn.f64 u, u, t, 0d3FF0000000000000; fma.rn.f64 t, t, u, t;
neg.f64 u, $2; fma.rn.f64 u, u, t, 0d3FF0000000000000; fma.rn.f64 t, t, u, t;
mul.rn.f64 $0, $1, t; neg.f64 u, $2; fma.rn.f64 u, u, $0, $1; fma.rn.f64 $0, u, t, $0;
"""


@lru_cache(maxsize=64)
def compiled_many(loop: Loop, flags: tuple[bool, ...], count: int, wide: int) -> Any:
    """The kernel for `count` rows and `wide` members, a function from (shared, own, starts, limits) to (rows, ends)."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    plain = loop.for_gpu()
    begin, step, output = plain.begin, plain.step, plain.output
    rank = [sum(flags[:i]) for i in range(len(flags))]
    rest = dtypes_of(begin.inputs)[len(flags) :]
    report = (*loop.report, *loop.counted)

    def assembly(text, *arguments):
        (result,) = plgpu.elementwise_inline_asm(
            "{ .reg .f64 t; .reg .f64 u; " + text + " }",
            args=[jnp.asarray(x, np.float64) for x in arguments],
            constraints=",".join(["=&d", *("d" for _ in arguments)]),
            pack=1,
            result_shape_dtypes=[jax.ShapeDtypeStruct((BLOCK,), np.float64)],
        )
        return result

    def fused(a, b, *rest):
        """+-a b +- c with one rounding step, which Triton does not do by itself; without c, the quotient a/b."""
        if not rest:
            return assembly(_QUOTIENT, a, b)
        c, (sign, other) = rest
        text = ("neg.f64 t, $1; " if sign < 0 else "") + ("neg.f64 u, $3; " if other < 0 else "")
        first, last = "t" if sign < 0 else "$1", "u" if other < 0 else "$3"
        return assembly(f"{text}fma.rn.f64 $0, {first}, $2, {last};", a, b, c)

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

        carry = begin.run([*parameters, *first], BLOCK, fused)
        carry = tuple(wide_as(x, t) for x, t in zip(carry, loop.carry, strict=True))
        save(0, output.run([*parameters, *carry], BLOCK, fused))

        def advance(state):
            i, now = state
            new = step.run([*parameters, *now], BLOCK, fused)
            well = now[loop.code] == 0
            fine = well & (wide_as(new[loop.code], loop.carry[loop.code]) == 0)
            kept = tuple(
                b if a is b else jnp.where(well if k in loop.report else fine, wide_as(a, t), b)
                for k, (a, b, t) in enumerate(zip(new, now, loop.carry, strict=True))
            )
            return i + 1, kept

        def several(state):
            for _ in range(UNROLL):
                state = advance(state)
            return state

        def segment(state):
            left, row, now = state
            todo = jnp.minimum(left, every)
            state = (jnp.zeros_like(todo), now)
            if step.operations < SHORT:
                state = lax.while_loop(lambda s: s[0] + UNROLL <= todo, several, state)
            _, now = lax.while_loop(lambda s: s[0] < todo, advance, state)
            save(row, output.run([*parameters, *now], BLOCK, fused))
            return left - todo, row + 1, now

        start = (steps, jnp.ones_like(steps), carry)
        _, _, carry = lax.while_loop(lambda state: state[0] > 0, segment, start)
        for i, k in enumerate(report):
            ends[i, here] = carry[k].astype(np.float64)

    shapes = (
        jax.ShapeDtypeStruct((count, len(loop.distinct), wide), np.float64),
        jax.ShapeDtypeStruct((len(report), wide), np.float64),
    )
    call = pl.pallas_call(
        kernel, out_shape=shapes, grid=(wide // BLOCK,),
        compiler_params=plgpu.CompilerParams(num_warps=BLOCK // 32, num_stages=1),
    )  # fmt: skip
    return jax.jit(call)


def _typed(x: Any, dtype: np.dtype) -> Any:
    return x if dtype == np.float64 else (x != 0 if dtype.kind == "b" else x.astype(dtype))


def is_quicker(loop: TimeLoop, flags: tuple[bool, ...], members: int) -> bool:
    """Whether the kernel is quicker than XLA, as far as the loop shows."""
    return isinstance(loop, Loop) or members >= cuda.fewest(loop, flags)


def call_of_many(
    loop: TimeLoop, flags: tuple[bool, ...], shared, own, starts, steps: int, every: int, count: int
) -> Callable[[], Any]:
    """A function that runs all members, whose numbers are on the GPU already.

    It returns the rows, shape (count, distinct entries, members), and how each member ended. The number of members must
    be a multiple of BLOCK.
    """
    by_llvm = partial(cuda.call_of_many, loop, flags, shared, own, starts, steps, every, count)
    if not isinstance(loop, Loop):
        return by_llvm()

    def by_triton() -> Callable[[], Any]:
        call = compiled_many(loop, flags, count, starts.shape[1])
        arguments = jax.device_put((shared, own, starts, np.array([steps, every], np.int32)))
        return lambda: call(*arguments)

    if loop.step.operations < SHORT:
        return by_triton()
    try:
        return by_llvm()
    except Unsupported:
        return by_triton()
