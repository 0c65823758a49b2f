"""What each primitive that is not elementwise does to arrays of scalar nodes."""

import functools
import itertools

import jax
import numpy as np

from dalembert.kernels.graph import Graph, Node, Unsupported
from dalembert.kernels.interpret import Interpreter, Nodes, objects, rule


def _single(function):
    """A rule that returns one array."""

    @functools.wraps(function)
    def wrapped(it, equation, *inputs):
        return [function(it, equation, *inputs)]

    return wrapped


def _reduced(x: Nodes, axes) -> tuple[Nodes, tuple[int, ...]]:
    """x with the axes to be reduced last, as a matrix, and the shape of the result."""
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = x.transpose([*kept, *axes])
    shape = tuple(x.shape[i] for i in kept)
    return moved.reshape(int(np.prod(shape)), -1), shape


_START = {"add": 0, "mul": 1, "and": True, "or": False, "max": -np.inf, "min": np.inf}


def _limit(name: str, dtype) -> float | int:
    if name in ("max", "min") and dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if name == "max" else info.max
    return _START[name]


@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
@_single
def _reduce(it: Interpreter, equation, x: Nodes) -> Nodes:
    name = {"sum": "add", "prod": "mul"}.get(equation.primitive.name[7:], equation.primitive.name[7:])
    matrix, shape = _reduced(x, equation.params["axes"])
    dtype = equation.outvars[0].aval.dtype
    if matrix.shape[1] == 0:
        return it.constant(np.full(shape, _limit(name, dtype), dtype))
    return objects([it.graph.fold_left(name, row) for row in matrix], shape)


@rule("argmax", "argmin")
@_single
def _arg(it: Interpreter, equation, x: Nodes) -> Nodes:
    g, dtype = it.graph, equation.params["index_dtype"]
    better = "gt" if equation.primitive.name == "argmax" else "lt"
    matrix, shape = _reduced(x, equation.params["axes"])
    result = []
    for row in matrix:
        best, where = row[0], g.const(0, dtype)
        for k, item in enumerate(row[1:], start=1):
            # A NaN counts as the best, the first one wins, as in JAX.
            nan = g.op("and", g.op("ne", item, item), g.op("eq", best, best))
            wins = g.op("or", g.op(better, item, best), nan)
            best, where = g.choose(wins, item, best), g.choose(wins, g.const(k, dtype), where)
        result.append(where)
    return objects(result, shape)


@rule("cumsum", "cumprod", "cummax", "cummin")
@_single
def _cumulative(it: Interpreter, equation, x: Nodes) -> Nodes:
    name = {"sum": "add", "prod": "mul"}.get(equation.primitive.name[3:], equation.primitive.name[3:])
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    rows = np.moveaxis(x[...], axis, 0).copy()
    rows = rows[::-1] if reverse else rows
    for k in range(1, len(rows)):
        for position in np.ndindex(rows.shape[1:]):
            rows[(k, *position)] = it.graph.op(name, rows[(k - 1, *position)], rows[(k, *position)])
    return np.moveaxis(rows[::-1] if reverse else rows, 0, axis)


@rule("dot_general")
@_single
def _dot_general(it: Interpreter, equation, a: Nodes, b: Nodes) -> Nodes:
    (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    g, aval = it.graph, equation.outvars[0].aval
    free_a = [i for i in range(a.ndim) if i not in (*contract_a, *batch_a)]
    free_b = [i for i in range(b.ndim) if i not in (*contract_b, *batch_b)]

    def shaped(x, batch, free, contract):
        size = [int(np.prod([x.shape[i] for i in axes])) for axes in (batch, free, contract)]
        return x.transpose([*batch, *free, *contract]).reshape(size)

    left, right = shaped(a, batch_a, free_a, contract_a), shaped(b, batch_b, free_b, contract_b)
    result = []
    for rows, columns in zip(left, right, strict=True):
        for row, column in itertools.product(rows, columns):
            products = [g.op("mul", x, y) for x, y in zip(row, column, strict=True)]
            result.append(g.convert(g.fold_left("add", products) if products else g.const(0, aval.dtype), aval.dtype))
    return objects(result, aval.shape)


@rule("select_n")
@_single
def _select_n(it: Interpreter, equation, which: Nodes, *cases) -> Nodes:
    shape = cases[0].shape
    arrays = [np.broadcast_to(which, shape), *cases]
    make = functools.partial(it.graph.primitive, "select_n", equation.primitive)
    dtype = equation.outvars[0].aval.dtype
    return objects([make(items, dtype, {}) for items in zip(*[x.flat for x in arrays], strict=True)], shape)


@rule("clamp")
@_single
def _clamp(it: Interpreter, equation, low: Nodes, x: Nodes, high: Nodes) -> Nodes:
    g = it.graph
    low, high = np.broadcast_to(low, x.shape), np.broadcast_to(high, x.shape)
    items = [g.op("min", g.op("max", b, a), c) for a, b, c in zip(low.flat, x.flat, high.flat, strict=True)]
    return objects(items, x.shape)


@rule("iota")
@_single
def _iota(it: Interpreter, equation) -> Nodes:
    p = equation.params
    line = np.arange(p["shape"][p["dimension"]], dtype=p["dtype"])
    shape = [1] * len(p["shape"])
    shape[p["dimension"]] = -1
    return it.constant(np.broadcast_to(line.reshape(shape), p["shape"]))


# Data movement.


@rule("reshape")
@_single
def _reshape(it, equation, x: Nodes, *dynamic) -> Nodes:
    return x.reshape(equation.params["new_sizes"])


@rule("squeeze", "expand_dims")
@_single
def _to_shape(it, equation, x: Nodes) -> Nodes:
    return x.reshape(equation.outvars[0].aval.shape)


@rule("broadcast_in_dim")
@_single
def _broadcast(it, equation, x: Nodes, *dynamic) -> Nodes:
    shape, dimensions = equation.params["shape"], equation.params["broadcast_dimensions"]
    lifted = [1] * len(shape)
    for i, d in enumerate(dimensions):
        lifted[d] = x.shape[i]
    return np.broadcast_to(x.reshape(lifted), shape)


@rule("transpose")
@_single
def _transpose(it, equation, x: Nodes) -> Nodes:
    return x.transpose(equation.params["permutation"])


@rule("slice")
@_single
def _slice(it, equation, x: Nodes) -> Nodes:
    p = equation.params
    strides = p["strides"] or (1,) * x.ndim
    return x[tuple(slice(a, b, s) for a, b, s in zip(p["start_indices"], p["limit_indices"], strides, strict=True))]


@rule("concatenate")
@_single
def _concatenate(it, equation, *arrays) -> Nodes:
    return np.concatenate(arrays, axis=equation.params["dimension"])


@rule("stack")
@_single
def _stack(it, equation, *arrays) -> Nodes:
    return objects([x for a in arrays for x in a.flat], (len(arrays), *arrays[0].shape)) if equation.params.get(
        "axis", 0
    ) == 0 else np.stack(arrays, axis=equation.params["axis"])


@rule("unstack")
def _unstack(it, equation, x: Nodes):
    axis = equation.params.get("axis", 0)
    parts = np.moveaxis(x, axis, 0)
    return [objects(list(part.flat) if x.ndim > 1 else [part], v.aval.shape) for part, v in zip(parts, equation.outvars, strict=True)]


@rule("split")
def _split(it, equation, x: Nodes):
    cuts = np.cumsum(equation.params["sizes"])[:-1]
    return np.split(x, cuts, axis=equation.params["axis"])


@rule("rev")
@_single
def _rev(it, equation, x: Nodes) -> Nodes:
    return np.flip(x, equation.params["dimensions"])


@rule("pad")
@_single
def _pad(it: Interpreter, equation, x: Nodes, value: Nodes) -> Nodes:
    for axis, (low, high, inner) in enumerate(equation.params["padding_config"]):
        n = x.shape[axis]
        wide = n + max(n - 1, 0) * inner
        shape = list(x.shape)
        shape[axis] = wide + max(low, 0) + max(high, 0)
        new = np.full(shape, value.item(), object)
        new_front, x_front = np.moveaxis(new, axis, 0), np.moveaxis(x, axis, 0)
        new_front[max(low, 0) : max(low, 0) + wide : inner + 1] = x_front
        first, last = max(-low, 0), shape[axis] - max(-high, 0)
        x = np.moveaxis(new_front[first:last], 0, axis)
    return x


def _known(index: Nodes) -> np.ndarray | None:
    """The values of an index array, where all are constants."""
    if all(x.is_const for x in index.flat):
        dtype = index.flat[0].dtype if index.size else np.int32
        return np.array([x.value for x in index.flat], dtype).reshape(index.shape)
    return None


def _starts(g: Graph, start: Node, last: int) -> list[tuple[int, Node | None]]:
    """Where a slice can start, each with its condition (None where it is known)."""
    if start.is_const:
        return [(int(np.clip(start.value, 0, last)), None)]
    return [(k, g.op("le", start, g.const(k, start.dtype))) for k in range(last)] + [(last, None)]


@rule("dynamic_slice")
@_single
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
@_single
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
            return np.asarray(equation.primitive.bind(*map(jax.numpy.asarray, arguments), **{**equation.params, **changes}))

    return run


@rule("gather")
@_single
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
            inside = g.op("and", g.op("ge", chosen, g.const(0, chosen.dtype)), g.op("le", chosen, g.const(last, chosen.dtype)))
            node = g.choose(inside, node, outside)
        result.append(node)
    return objects(result, aval.shape)


@rule("scatter", "scatter-add", "scatter_add", "scatter_mul", "scatter-mul")
@_single
def _scatter(it: Interpreter, equation, x: Nodes, index: Nodes, updates: Nodes) -> Nodes:
    known, name = _known(index), equation.primitive.name
    if known is None:
        raise Unsupported(name, "with unknown indices")
    g = it.graph
    changes = {"update_jaxpr": None, "update_consts": ()}
    if name == "scatter":
        places = np.arange(x.size).reshape(x.shape)
        others = x.size + np.arange(updates.size).reshape(updates.shape)
        items = [*x.flat, *updates.flat]
        return objects([items[i] for i in _apply(equation, **changes)(places, known, others).flat], x.shape)
    result, name = list(x.flat), "add" if "add" in name else "mul"
    run = functools.partial(jax.lax.scatter_add, dimension_numbers=equation.params["dimension_numbers"],
                            mode=equation.params["mode"])  # fmt: skip
    for k, update in enumerate(updates.flat):
        one = np.zeros(updates.size, np.int32)
        one[k] = 1
        with jax.ensure_compile_time_eval():
            hit = np.asarray(run(np.zeros(x.shape, np.int32), known, one.reshape(updates.shape)))
        for i in np.flatnonzero(hit):
            result[i] = g.op(name, result[i], update)
    return objects(result, x.shape)
