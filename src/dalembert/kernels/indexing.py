"""Reading and writing at indices, known or not."""

import itertools
from typing import Any

import jax
import numpy as np

from dalembert.kernels.graph import Graph, Node, Unsupported
from dalembert.kernels.interpret import Interpreter, Nodes, objects, rule
from dalembert.kernels.rules import single

PLACES = 64
"""Unknown indices are tried out up to this many places."""


def _known(index: Nodes) -> np.ndarray | None:
    """The values of an index array, where all are constants."""
    if all(x.is_const for x in index.flat):
        dtype = index.flat[0].dtype if index.size else np.int32
        return np.array([x.value for x in index.flat], dtype).reshape(index.shape)
    return None


def _starts(g: Graph, start: Node, last: int) -> list[tuple[int, Any]]:
    """Where a slice can start, each with its condition (None where it is known)."""
    if start.is_const:
        return [(int(np.clip(start.value, 0, last)), None)]
    return [(k, g.op("le", start, g.const(k, start.dtype))) for k in range(last)] + [(last, None)]


@rule("dynamic_slice")
@single
def _dynamic_slice(it: Interpreter, equation, x: Nodes, *starts) -> Nodes:
    g = it.graph
    for axis, (size, start) in enumerate(zip(equation.params["slice_sizes"], starts, strict=True)):
        cases = _starts(g, start.item(), x.shape[axis] - size)
        parts = [(np.take(x, range(k, k + size), axis), condition) for k, condition in cases]
        result = parts[-1][0]
        for part, condition in reversed(parts[:-1]):
            items = [g.choose(condition, a, b) for a, b in zip(part.flat, result.flat, strict=True)]
            result = objects(items, part.shape)
        x = result
    return x


@rule("dynamic_update_slice")
@single
def _dynamic_update_slice(it: Interpreter, equation, x: Nodes, update: Nodes, *starts) -> Nodes:
    g = it.graph
    cases = [_starts(g, s.item(), n - k) for s, n, k in zip(starts, x.shape, update.shape, strict=True)]
    result: Nodes | None = None
    # Conditions say "starts at k or before", so later cases are overwritten by earlier ones.
    for corner in itertools.product(*[reversed(case) for case in cases]):
        new = x.copy()
        new[tuple(slice(k, k + n) for (k, _), n in zip(corner, update.shape, strict=True))] = update
        conditions = [condition for _, condition in corner if condition is not None]
        if result is None or not conditions:
            result = new
            continue
        here = g.fold_left("and", conditions)
        items = [g.choose(here, a, b) for a, b in zip(new.flat, result.flat, strict=True)]
        result = objects(items, x.shape)
    assert result is not None
    return result


def _apply(equation, **changes):
    """The primitive itself, run now on plain numbers."""

    def run(*arguments):
        with jax.ensure_compile_time_eval():
            return np.asarray(
                equation.primitive.bind(*map(jax.numpy.asarray, arguments), **{**equation.params, **changes})
            )

    return run


@rule("gather")
@single
def _gather(it: Interpreter, equation, x: Nodes, index: Nodes) -> Nodes:
    g, aval = it.graph, equation.outvars[0].aval
    places = np.arange(x.size).reshape(x.shape)
    run = _apply(equation, fill_value=-1)
    items = list(x.flat)
    fill = equation.params.get("fill_value")
    if fill is None:
        fill = np.nan if aval.dtype.kind == "f" else np.iinfo(aval.dtype).min if aval.dtype.kind == "i" else 0
    items.append(g.const(fill, aval.dtype))  # found at -1
    known = _known(index)
    if known is not None:
        return objects([items[i] for i in run(places, known).flat], aval.shape)
    numbers = equation.params["dimension_numbers"]
    if len(numbers.start_index_map) != 1:
        raise Unsupported("gather", "with several unknown indices")
    axis = numbers.start_index_map[0]
    last = x.shape[axis] - equation.params["slice_sizes"][axis]
    # Which index each entry of the result depends on: its place along the axes that are not offsets.
    batch = [i for i in range(len(aval.shape)) if i not in numbers.offset_dims]
    vectors = index.reshape(index.shape[:-1])
    options = [run(places, np.full(index.shape, k, index.flat[0].dtype)) for k in range(last + 1)]
    outside = items[-1] if "FILL" in str(equation.params["mode"]) else None
    result = []
    for position in np.ndindex(*aval.shape):
        chosen = vectors[tuple(position[i] for i in batch)]
        node = g.pick(chosen, [items[option[position]] for option in options])
        if outside is not None:
            inside = g.op(
                "and",
                g.op("ge", chosen, g.const(0, chosen.dtype)),
                g.op("le", chosen, g.const(last, chosen.dtype)),
            )
            node = g.choose(inside, node, outside)
        result.append(node)
    return objects(result, aval.shape)


_UPDATE = {"scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max"}


@rule("scatter", *_UPDATE, *(name.replace("-", "_") for name in _UPDATE))
@single
def _scatter(it: Interpreter, equation, x: Nodes, index: Nodes, updates: Nodes) -> Nodes:
    g, name, numbers = (
        it.graph,
        equation.primitive.name.replace("_", "-"),
        equation.params["dimension_numbers"],
    )
    options = {"dimension_numbers": numbers, "mode": equation.params["mode"]}
    sizes = [x.shape[axis] for axis in numbers.scatter_dims_to_operand_dims]
    batch = [i for i in range(updates.ndim) if i not in numbers.update_window_dims]
    if _known(index) is None and np.prod(sizes) > PLACES:
        raise Unsupported(name, "with unknown indices into a large array")
    result = list(x.flat)
    for position in np.ndindex(*updates.shape):
        vector = index[tuple(position[i] for i in batch)]
        known = _known(vector)
        one = np.zeros(updates.shape, np.int32)
        one[position] = 1
        places = itertools.product(*map(range, sizes)) if known is None else [tuple(known.tolist())]
        for place in places:
            # Where the update goes from here, found by writing it alone.
            with jax.ensure_compile_time_eval():
                there = np.broadcast_to(np.array(place, np.int32), index.shape)
                hit = np.asarray(jax.lax.scatter_add(np.zeros(x.shape, np.int32), there, one, **options))
            for i in np.flatnonzero(hit):
                update = updates[position]
                new = update if name == "scatter" else g.op(_UPDATE[name], result[i], update)
                if known is None:
                    equal = [g.op("eq", n, g.const(k, n.dtype)) for n, k in zip(vector, place, strict=True)]
                    new = g.choose(g.fold_left("and", equal), new, result[i])
                result[i] = new
    return objects(result, x.shape)
