"""A whole run as one differentiable operation, forward and backward in machine code.

The run is a function of one vector (parameters, h, q0, v0) with values in one vector (all rows, how it ended).
Its derivative along a direction is a run of the step's derivative; its transpose goes back from the last step to the
first over states recomputed in segments, so that memory grows with the number of segments, not of steps. Second
derivatives go through the plain XLA loop.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from dalembert.kernels import Loop
from dalembert.methods import Method, State
from dalembert.model import System
from dalembert.simulate.engine import loop_of
from dalembert.simulate.loop import Rows, scan
from dalembert.simulate.march import Run, forward, pull, push, stages_of


def _plain(run: Run, x: Any) -> Any:
    """The same results by the plain loop, which JAX differentiates any number of times."""
    (system, method, h), start = _read(run.loop, x)
    carry, rows = scan(system, method, start, h, run.steps, run.every)
    flat = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(rows)]
    end = [carry.code, carry.residual, carry.step]
    return jnp.concatenate(
        [jnp.concatenate(flat, axis=1).reshape(-1), jnp.stack([jnp.asarray(e, float) for e in end])]
    )


def _read(loop: Loop, x: Any) -> Any:
    """The arguments as they were before they became a vector."""
    leaves, position = [], 0
    for shape, dtype in loop.begin.inputs:
        size = int(np.prod(shape))
        leaves.append(x[position : position + size].reshape(shape).astype(dtype))
        position += size
    return jax.tree.unflatten(loop.begin.tree, leaves)


def _primitive(name: str, host: Any, plain: Any, size: Any) -> Primitive:
    """An operation of vectors (with any batch axes before) done by the host."""
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
        """The derivative by plain JAX, member by member."""
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
