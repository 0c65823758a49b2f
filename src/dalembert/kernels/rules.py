"""What each primitive that is not elementwise does to arrays of scalar nodes."""

import functools
import itertools
from collections.abc import Callable

import numpy as np

from dalembert.kernels.graph import Unsupported
from dalembert.kernels.interpret import Interpreter, Nodes, objects, rule


def single(function: Callable[..., Nodes]) -> Callable[..., list[Nodes]]:
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
    return moved.reshape(int(np.prod(shape)), int(np.prod([x.shape[i] for i in axes]))), shape


_START = {"add": 0, "mul": 1, "and": True, "or": False, "max": -np.inf, "min": np.inf}


def _limit(name: str, dtype) -> float | int:
    if name in ("max", "min") and dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if name == "max" else info.max
    return _START[name]


@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
@single
def _reduce(it: Interpreter, equation, x: Nodes) -> Nodes:
    name = str(equation.primitive.name[7:])
    name = {"sum": "add", "prod": "mul"}.get(name, name)
    matrix, shape = _reduced(x, equation.params["axes"])
    dtype = equation.outvars[0].aval.dtype
    if matrix.shape[1] == 0:
        return it.constant(np.full(shape, _limit(name, dtype), dtype))
    return objects([it.graph.fold_left(name, row) for row in matrix], shape)


@rule("argmax", "argmin")
@single
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
@single
def _cumulative(it: Interpreter, equation, x: Nodes) -> Nodes:
    name = str(equation.primitive.name[3:])
    name = {"sum": "add", "prod": "mul"}.get(name, name)
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    rows = np.moveaxis(x[...], axis, 0).copy()
    rows = rows[::-1] if reverse else rows
    for k in range(1, len(rows)):
        for position in np.ndindex(rows.shape[1:]):
            rows[(k, *position)] = it.graph.op(name, rows[(k - 1, *position)], rows[(k, *position)])
    return np.moveaxis(rows[::-1] if reverse else rows, 0, axis)


@rule("dot_general")
@single
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
            pairs = [
                (g.convert(x, aval.dtype), g.convert(y, aval.dtype)) for x, y in zip(row, column, strict=True)
            ]
            products = [g.op("mul", x, y) for x, y in pairs]
            result.append(g.fold_left("add", products) if products else g.const(0, aval.dtype))
    return objects(result, aval.shape)


@rule("select_n")
@single
def _select_n(it: Interpreter, equation, which: Nodes, *cases) -> Nodes:
    shape = cases[0].shape
    arrays = [np.broadcast_to(which, shape), *cases]
    make = functools.partial(it.graph.primitive, "select_n", equation.primitive)
    dtype = equation.outvars[0].aval.dtype
    return objects([make(items, dtype, {}) for items in zip(*[x.flat for x in arrays], strict=True)], shape)


@rule("clamp")
@single
def _clamp(it: Interpreter, equation, low: Nodes, x: Nodes, high: Nodes) -> Nodes:
    g = it.graph
    low, high = np.broadcast_to(low, x.shape), np.broadcast_to(high, x.shape)
    items = [g.op("min", g.op("max", b, a), c) for a, b, c in zip(low.flat, x.flat, high.flat, strict=True)]
    return objects(items, x.shape)


@rule("iota")
@single
def _iota(it: Interpreter, equation) -> Nodes:
    p = equation.params
    line = np.arange(p["shape"][p["dimension"]], dtype=p["dtype"])
    shape = [1] * len(p["shape"])
    shape[p["dimension"]] = -1
    return it.constant(np.broadcast_to(line.reshape(shape), p["shape"]))


@rule("empty", "empty2")
@single
def _empty(it: Interpreter, equation) -> Nodes:
    aval = equation.outvars[0].aval
    return it.constant(np.zeros(aval.shape, aval.dtype))


@rule("platform_index")
@single
def _platform_index(it: Interpreter, equation) -> Nodes:
    """Which of several implementations is meant: the one for every platform."""
    platforms = equation.params["platforms"]
    usual = [i for i, names in enumerate(platforms) if names is None or "cpu" in names]
    return it.constant(np.array(usual[0], equation.outvars[0].aval.dtype))


@rule("sort")
def _sort(it: Interpreter, equation, *arrays: Nodes):
    """Of whole numbers only: permutations, which linear solves invert by sorting."""
    g, axis = it.graph, equation.params["dimension"]
    if (
        equation.params["num_keys"] != 1
        or equation.invars[0].aval.dtype.kind != "i"
        or arrays[0].shape[axis] > 16
    ):
        raise Unsupported("sort")
    rows = [np.moveaxis(x, axis, -1).copy() for x in arrays]
    for position in np.ndindex(rows[0].shape[:-1]):
        for end in range(rows[0].shape[-1] - 1, 0, -1):
            for k in range(end):
                swap = g.op("gt", rows[0][(*position, k)], rows[0][(*position, k + 1)])
                for x in rows:
                    a, b = x[(*position, k)], x[(*position, k + 1)]
                    x[(*position, k)], x[(*position, k + 1)] = g.choose(swap, b, a), g.choose(swap, a, b)
    return [np.moveaxis(x, -1, axis) for x in rows]


# Data movement.


@rule("tile")
@single
def _tile(it, equation, x: Nodes) -> Nodes:
    return np.tile(x, equation.params["reps"])


@rule("reshape")
@single
def _reshape(it, equation, x: Nodes, *dynamic) -> Nodes:
    return x.reshape(equation.params["new_sizes"])


@rule("squeeze", "expand_dims")
@single
def _to_shape(it, equation, x: Nodes) -> Nodes:
    return x.reshape(equation.outvars[0].aval.shape)


@rule("broadcast_in_dim")
@single
def _broadcast(it, equation, x: Nodes, *dynamic) -> Nodes:
    shape, dimensions = equation.params["shape"], equation.params["broadcast_dimensions"]
    lifted = [1] * len(shape)
    for i, d in enumerate(dimensions):
        lifted[d] = x.shape[i]
    return np.broadcast_to(x.reshape(lifted), shape)


@rule("transpose")
@single
def _transpose(it, equation, x: Nodes) -> Nodes:
    return x.transpose(equation.params["permutation"])


@rule("slice")
@single
def _slice(it, equation, x: Nodes) -> Nodes:
    p = equation.params
    strides = p["strides"] or (1,) * x.ndim
    return x[
        tuple(slice(a, b, s) for a, b, s in zip(p["start_indices"], p["limit_indices"], strides, strict=True))
    ]


@rule("concatenate")
@single
def _concatenate(it, equation, *arrays) -> Nodes:
    return np.concatenate(arrays, axis=equation.params["dimension"])


@rule("stack")
@single
def _stack(it, equation, *arrays) -> Nodes:
    return (
        objects([x for a in arrays for x in a.flat], (len(arrays), *arrays[0].shape))
        if equation.params.get("axis", 0) == 0
        else np.stack(arrays, axis=equation.params["axis"])
    )


@rule("unstack")
def _unstack(it, equation, x: Nodes):
    axis = equation.params.get("axis", 0)
    parts = np.moveaxis(x, axis, 0)
    return [
        objects(list(part.flat) if x.ndim > 1 else [part], v.aval.shape)
        for part, v in zip(parts, equation.outvars, strict=True)
    ]


@rule("split")
def _split(it, equation, x: Nodes):
    cuts = np.cumsum(equation.params["sizes"])[:-1]
    return np.split(x, cuts, axis=equation.params["axis"])


@rule("rev")
@single
def _rev(it, equation, x: Nodes) -> Nodes:
    return np.flip(x, equation.params["dimensions"])


@rule("pad")
@single
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
