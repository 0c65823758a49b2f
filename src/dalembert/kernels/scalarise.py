"""scalarise: any small JAX function as scalar operations."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dalembert.kernels import indexing, matrices, rules  # noqa: F401 (they register what they know)
from dalembert.kernels.emit import Emitter
from dalembert.kernels.graph import Graph
from dalembert.kernels.interpret import Interpreter, objects
from dalembert.kernels.plan import Plan
from dalembert.kernels.trig import ON_GPU, SPECIAL


class Scalars:
    """A function of arrays, prepared for scalars: `run` takes and returns flat lists of them.

    Prepared for the shapes and types of example arguments. A list holds the entries of all leaves one after
    another; `split` and `join` go between lists and trees of arrays (with the batch axis last in a list's
    entries, first in arrays). The first `fixed` entries are parameters of a run: what depends on them alone may be
    computed once for all steps.
    """

    def __init__(self, function: Callable, *examples: Any, fixed: int = 0, gpu: bool = False):
        leaves, self.tree = jax.tree.flatten(examples)
        self.inputs = [_shape(x) for x in leaves]
        jaxpr, result = jax.make_jaxpr(function, return_shape=True)(*examples)
        self.result_tree = jax.tree.structure(result)
        self.results = [_shape(x) for x in jax.tree.leaves(result)]
        graph = Graph()
        arrays, position = [], 0
        for shape, dtype in self.inputs:
            size = math.prod(shape)
            nodes = [graph.input(dtype, position + i, position + i < fixed) for i in range(size)]
            arrays.append(objects(nodes, shape))
            position += size
        interpreter = Interpreter(graph, ON_GPU if gpu else SPECIAL, lists=not gpu)
        self.closed_over = [c for c in jaxpr.consts if isinstance(c, Tracer)]
        """Values of other JAX code that the function uses; `run` wants their entries after the arguments'."""
        for tracer in self.closed_over:
            nodes = [graph.input(tracer.dtype, position + i) for i in range(tracer.size)]
            interpreter.closed_over[id(tracer)] = objects(nodes, tracer.shape)
            position += tracer.size
        outputs = interpreter.closed(jaxpr, arrays)
        self.plan = Plan([node for array in outputs for node in array.flat])

    @property
    def operations(self) -> int:
        """How many scalar operations are left."""
        return sum(
            node.op not in ("const", "input", "parameter", "result") for node in self.plan.needed.values()
        )

    def run(
        self, scalars: Sequence[Any], batch: int | None = None, fused: Callable | None = None
    ) -> list[Any]:
        """The results, one scalar (or array over the batch) an entry; `fused` is a b + c with one rounding."""
        return Emitter(self.plan, batch, fused).run(scalars)


def _shape(x: Any) -> tuple[tuple[int, ...], np.dtype]:
    return tuple(np.shape(x)), np.dtype(jax.dtypes.canonicalize_dtype(jnp.result_type(x)))


def split(tree: Any, batch: bool = False) -> list[Any]:
    """The entries of all leaves; with a batch axis first, one array over the batch an entry."""
    result: list[Any] = []
    for leaf in jax.tree.leaves(tree):
        flat = jnp.reshape(leaf, (np.shape(leaf)[0], -1) if batch else (-1,))
        result += [flat[:, i] for i in range(flat.shape[1])] if batch else list(flat)
    return result


def join(
    scalars: Sequence[Any], shapes: Sequence[tuple[tuple[int, ...], Any]], tree: Any, batch: int | None = None
) -> Any:
    """The tree of arrays whose entries these are."""
    leaves, position = [], 0
    for shape, dtype in shapes:
        size = math.prod(shape)
        items = [jnp.asarray(x, dtype) for x in scalars[position : position + size]]
        if batch is not None:
            items = [x if x.ndim else jnp.broadcast_to(x, (batch,)) for x in items]
            empty = jnp.zeros((batch, 0), dtype)
            leaves.append((jnp.stack(items, axis=1) if items else empty).reshape((batch, *shape)))
        else:
            leaves.append((jnp.stack(items) if items else jnp.zeros(0, dtype)).reshape(shape))
        position += size
    return jax.tree.unflatten(tree, leaves)


def scalarise(function: Callable, batch: bool = False) -> Callable:
    """The same function, computed by scalar operations: constants folded, equal expressions computed once.

    With `batch` every leaf of arguments and results has a leading batch axis, as under jax.vmap, and loops
    run until their last member is done. Raises Unsupported where the function uses something without a
    scalar form. Exact zeros in derivatives are dropped, so 0 times infinity is 0 here.
    """

    def call(*arguments: Any) -> Any:
        arguments = jax.tree.map(jnp.asarray, arguments)
        size = jax.tree.leaves(arguments)[0].shape[0] if batch else None
        one = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape[1:] if batch else x.shape, x.dtype), arguments
        )
        scalars = Scalars(function, *one)
        results = scalars.run([*split(arguments, batch), *split(scalars.closed_over)], size)
        return join(results, scalars.results, scalars.result_tree, size)

    return call
