"""Interpret the jaxpr of a function on arrays of scalar nodes."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.dtypes import float0

from dalembert.kernels.graph import Graph, Node, Region, Unsupported
from dalembert.kernels.traced import is_written_out
from dalembert.numerics import multiplier_bound, pivot_floor
from dalembert.numerics.jax_internals import ClosedJaxpr, Literal, scan_parts

Nodes = Any  # an array of nodes; NumPy has no type for it
Rule = Callable[..., Sequence[Nodes]]

PICK = 256
"""Sequences that a loop runs over are left to arrays if they are longer than this."""

rules: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function of (interpreter, equation, *inputs) for the primitives of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            rules[name] = function
        return function

    return register


def objects(items: Sequence[Node], shape: Sequence[int]) -> Nodes:
    """The nodes as an array of this shape."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(tuple(shape))


# Elementwise primitives whose parameters do not depend on the shape, so that they are the same for a scalar.
ELEMENTWISE = {
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e",
    "bessel_i1e",
    "bitcast_convert_type", "cbrt", "ceil", "clz", "convert_element_type", "cos", "cosh", "digamma", "div", "eq",
    "erf",
    "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "lgamma",
    "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or",
    "population_count", "pow", "reduce_precision", "rem", "round", "rsqrt", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub", "tan",
    "tanh", "xor",
}  # fmt: skip
IDENTITY = {"copy", "copy_p", "device_put", "optimization_barrier", "stop_gradient", "sharding_constraint"}
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat",
         "remat2", "custom_vjp_call_jaxpr"}  # fmt: skip


class Interpreter:
    """Turns jaxprs into nodes of one graph; `special` replaces some functions (sin, cos) by better ones."""

    def __init__(
        self,
        graph: Graph,
        special: dict[str, Callable[[Graph, Node], Node]] | None = None,
        lists: bool = False,
    ):
        self.graph = graph
        self.lists = lists
        """Whether numbers may be read from a list in memory, which a GPU kernel cannot do."""
        self.special = special or {}
        self.closed_over: dict[int, Nodes] = {}
        """The nodes for values that appear as constants but are not known yet, by id."""

    def picked(self, index: Node, options: Sequence[Node]) -> Node:
        """options[index], for an index within range."""
        if self.lists and len(options) > 3 and all(x.is_const and x.dtype == np.float64 for x in options):
            return self.graph.listed(index, options)
        return self.graph.pick(index, options)

    def constant(self, value: Any) -> Nodes:
        """A known array as an array of nodes."""
        if id(value) in self.closed_over:
            return self.closed_over[id(value)]
        array = np.asarray(value)
        if array.dtype == float0:  # the derivative of a whole number; nothing reads it
            array = np.zeros(array.shape, bool)
        if array.dtype.kind not in "fiub":
            raise Unsupported("constant", f"of type {array.dtype}")
        items = [self.graph.const(x, array.dtype) for x in array.reshape(-1)]
        return objects(items, array.shape)

    def closed(self, jaxpr: ClosedJaxpr, inputs: Sequence[Nodes]) -> list[Nodes]:
        """The results of a closed jaxpr."""
        return self.run(jaxpr.jaxpr, [self.constant(c) for c in jaxpr.consts], inputs)

    def run(self, jaxpr: Any, consts: Sequence[Nodes], inputs: Sequence[Nodes]) -> list[Nodes]:
        """The results of a jaxpr."""
        known: dict[Any, Nodes] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom) -> Nodes:
            return self.constant(atom.val) if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            results = self.equation(equation, [read(atom) for atom in equation.invars])
            for variable, result in zip(equation.outvars, results, strict=True):
                known[variable] = result
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, inputs: list[Nodes]) -> Sequence[Nodes]:
        """The results of one equation."""
        name = equation.primitive.name
        name = {"lt_to": "lt", "le_to": "le", "eq_to": "eq"}.get(name, name)
        if name in ELEMENTWISE:
            return [self.elementwise(name, equation, inputs)]
        if name in rules:
            return rules[name](self, equation, *inputs)
        if name in IDENTITY:
            return inputs
        if name in CALLS:
            inner = next(
                equation.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in equation.params
            )
            if hasattr(inner, "consts"):
                return self.closed(inner, inputs)
            return self.run(inner, [], inputs)
        raise Unsupported(str(name))

    def elementwise(self, name: str, equation: Any, inputs: list[Nodes]) -> Nodes:
        """The result of an elementwise primitive, with one scalar operation per entry."""
        primitive, aval = equation.primitive, equation.outvars[0].aval
        if name in self.special and aval.dtype == np.float64:
            special = self.special[name]
            return objects([special(self.graph, x) for x in inputs[0].flat], aval.shape)
        make, dtype, params = self.graph.primitive, aval.dtype, equation.params
        if len(inputs) == 1:
            items = [make(name, primitive, (x,), dtype, params) for x in inputs[0].flat]
        else:
            inputs = [x if x.shape == aval.shape else np.broadcast_to(x, aval.shape) for x in inputs]
            items = [
                make(name, primitive, x, dtype, params) for x in zip(*[x.flat for x in inputs], strict=True)
            ]
        return objects(items, aval.shape)


def _flat(arrays: Sequence[Nodes]) -> list[Node]:
    return [node for array in arrays for node in array.flat]


def _unflat(nodes: Sequence[Node], like: Sequence[Nodes]) -> list[Nodes]:
    result, position = [], 0
    for array in like:
        result.append(objects(nodes[position : position + array.size], array.shape))
        position += array.size
    return result


@rule("while")
def _while(it: Interpreter, equation, *inputs):
    params, g = equation.params, it.graph
    cut = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    cond_consts, body_consts, carry = inputs[: cut[0]], inputs[cut[0] : cut[1]], inputs[cut[1] :]
    start = _flat(carry)

    def interpret(still: Sequence[int]) -> list[Region]:
        condition, body = (Region([g.parameter(x.dtype) for x in start]) for _ in range(2))

        def now(region: Region) -> list[Nodes]:
            nodes = [start[i] if i in still else x for i, x in enumerate(region.parameters)]
            return _unflat(nodes, carry)

        def going(arrays: list[Nodes]) -> Nodes:
            return it.closed(params["cond_jaxpr"], [*cond_consts, *arrays])[0]

        condition.results = [functools.reduce(lambda a, b: g.op("or", a, b), going(now(condition)).flat)]
        before = now(body)
        after = it.closed(params["body_jaxpr"], [*body_consts, *before])
        # Under vmap each member has its own answer, and those that are done stay as they are.
        members = len(params["cond_jaxpr"].out_avals[0].shape)
        if members:
            each = going(before)
            after = [
                _chosen(g, each.reshape(*each.shape, *[1] * (x.ndim - members)), x, y)
                for x, y in zip(before, after, strict=True)
            ]
        body.results = _flat(after)
        return [condition, body]

    regions = interpret(())
    body = regions[1]
    still = [i for i, x in enumerate(start) if g.stays(body.results[i], body.parameters[i], x)]
    if still:
        # These variables end each iteration as they began, which the rest of the body can use.
        with g.constant_in_loop([start[i] for i in still]):
            again = interpret(still)
        if all(again[1].results[i] is start[i] for i in still):
            regions = again
            for i in still:
                again[1].results[i] = again[1].parameters[i]
    node = g.control("while", tuple(start), tuple(regions))
    return _unflat([g.result(node, i, x.dtype) for i, x in enumerate(start)], carry)


@rule("cond")
def _cond(it: Interpreter, equation, index: Nodes, *operands):
    branches, chosen, g = equation.params["branches"], index.item(), it.graph
    if chosen.is_const:
        return it.closed(branches[int(np.clip(chosen.value, 0, len(branches) - 1))], operands)
    results = [it.closed(branch, operands) for branch in branches]
    nodes = conditional(g, chosen, [_flat(result) for result in results])
    return _unflat(nodes, results[0])


def conditional(g: Graph, index: Node, results: Sequence[Sequence[Node]]) -> list[Node]:
    """The results of the branch that `index` names; if possible, only that branch is computed."""
    if index.is_const:
        return list(results[int(np.clip(index.value, 0, len(results) - 1))])
    regions = []
    for result in results:
        region = Region()
        region.results = list(result)
        regions.append(region)
    node = g.control("cond", (index,), tuple(regions))
    return [
        first if all(x is first for x in rest) else g.result(node, i, first.dtype)
        for i, (first, *rest) in enumerate(zip(*results, strict=True))
    ]


@rule("scan")
def _scan(it: Interpreter, equation, *inputs):
    params, g = equation.params, it.graph
    length, jaxpr = params["length"], params["jaxpr"]
    fixed, carried = scan_parts(equation)
    consts, sequences = inputs[:fixed], inputs[fixed + carried :]
    carry = list(inputs[fixed : fixed + carried])
    order = range(length)[::-1] if params["reverse"] else range(length)
    stacked = len(equation.outvars) - carried
    if is_written_out(length, jaxpr.jaxpr):
        rows: list = [None] * length
        for k in order:
            results = it.closed(
                jaxpr, [*consts, *carry, *[x[k] if x.ndim > 1 else objects([x[k]], ()) for x in sequences]]
            )
            carry, rows[k] = list(results[: len(carry)]), results[len(carry) :]
        avals = [v.aval for v in equation.outvars[len(carry) :]]
        stacks = [
            np.stack([row[i] for row in rows]) if length else np.empty(aval.shape, object)
            for i, aval in enumerate(avals)
        ]
        return [*carry, *stacks]
    if stacked or (sequences and length > PICK):
        raise Unsupported("scan", f"of length {length}, which keeps or reads a value each time")
    start = _flat(carry)
    counter = g.parameter(np.int32)
    region = Region([counter, *(g.parameter(x.dtype) for x in start)])
    index = g.op("sub", g.const(length - 1, np.int32), counter) if params["reverse"] else counter
    here = [
        objects([it.picked(index, column) for column in x.reshape(length, -1).T.tolist()], x.shape[1:])
        for x in sequences
    ]
    results = it.closed(jaxpr, [*consts, *_unflat(region.parameters[1:], carry), *here])
    region.results = _flat(results)
    node = g.control("loop", tuple(start), (region, length))
    return _unflat([g.result(node, i, x.dtype) for i, x in enumerate(start)], carry)


def single(function: Callable[..., Nodes]) -> Callable[..., list[Nodes]]:
    """A rule that returns one array."""

    @functools.wraps(function)
    def wrapped(it, equation, *inputs):
        return [function(it, equation, *inputs)]

    return wrapped


def _reduced(x: Nodes, axes) -> tuple[Nodes, tuple[int, ...]]:
    """x as a matrix whose columns run over the axes to be reduced, and the shape of the result."""
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
            # As in JAX, a NaN counts as the best, and the first one wins.
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
    return _chosen(it.graph, which, *cases)


def _chosen(g: Graph, which: Nodes, *cases: Nodes) -> Nodes:
    """Each entry from the case that `which` names."""
    shape = cases[0].shape
    items = zip(*[x.flat for x in (np.broadcast_to(which, shape), *cases)], strict=True)
    # A truth value names one of two; a conditional of several members has a whole number instead.
    chosen = [
        g.choose(index, options[1], options[0]) if index.dtype == bool else g.pick(index, options)
        for index, *options in items
    ]
    return objects(chosen, shape)


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
    """The index of the implementation to use: the one for every platform, or for the CPU."""
    platforms = equation.params["platforms"]
    usual = [i for i, names in enumerate(platforms) if names is None or "cpu" in names]
    return it.constant(np.array(usual[0], equation.outvars[0].aval.dtype))


@rule("sort")
def _sort(it: Interpreter, equation, *arrays: Nodes):
    """Sorts whole numbers only, for permutations, which linear solves invert by sorting."""
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


PLACES = 64
"""For an unknown index, all places are tried if there are at most this many."""


def _known(index: Nodes) -> np.ndarray | None:
    """The values of an index array if all are constants, else None."""
    if all(x.is_const for x in index.flat):
        dtype = index.flat[0].dtype if index.size else np.int32
        return np.array([x.value for x in index.flat], dtype).reshape(index.shape)
    return None


def _starts(g: Graph, start: Node, last: int) -> list[tuple[int, Any]]:
    """The places where a slice can start, each with its condition (None if it needs none)."""
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
    # A condition means "starts at k or before", so earlier cases overwrite later ones.
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
    """A function that runs the primitive itself, at trace time, on plain numbers."""

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
    items.append(g.const(fill, aval.dtype))  # the fill value has index -1
    known = _known(index)
    if known is not None:
        return objects([items[i] for i in run(places, known).flat], aval.shape)
    numbers = equation.params["dimension_numbers"]
    if len(numbers.start_index_map) != 1:
        raise Unsupported("gather", "with several unknown indices")
    axis = numbers.start_index_map[0]
    last = x.shape[axis] - equation.params["slice_sizes"][axis]
    # The index that an entry of the result depends on is given by its place along the axes that are not offsets.
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
            # Writing the update alone shows where it goes from here.
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


@rule("small_solve")
def _small_solve(it: Interpreter, equation, a: Nodes, b: Nodes):
    """The solve of dalembert.numerics: elimination without pivoting, and with pivoting if that went badly."""
    g, n = it.graph, len(a)
    if b.size == 0:
        return [b]
    dtype = a[0, 0].dtype
    columns, plain, one = b.reshape(n, -1).T, a.copy(), g.const(1, dtype)
    inverses = []
    for k in range(n):
        inverses.append(g.op("div", one, plain[k, k]))
        for i in range(k + 1, n):
            plain[i, k] = g.op("mul", plain[i, k], inverses[k])
            for j in range(k + 1, n):
                plain[i, j] = g.op("sub", plain[i, j], g.op("mul", plain[i, k], plain[k, j]))
    if equation.params["positive"]:
        floor, nan = g.const(pivot_floor(dtype), dtype), g.const(np.nan, dtype)
        for i in range(n):
            sound = g.op("gt", plain[i, i], g.op("mul", floor, g.op("abs", a[i, i])))
            inverses[i] = g.choose(sound, inverses[i], nan)
        return [_substituted(g, plain, inverses, columns, b.shape)]
    result = _substituted(g, plain, inverses, columns, b.shape)
    multipliers = [plain[i, k] for i in range(n) for k in range(i)]
    if all(x.is_const and abs(x.value) <= multiplier_bound(n) for x in multipliers):
        return [result]
    bound = g.const(multiplier_bound(n), dtype)
    well = g.fold_left("and", [g.op("le", g.op("abs", x), bound) for x in multipliers])
    factors, _, order = _factor(g, a)
    factors = objects(factors, a.shape)
    inverses = [g.op("div", one, factors[k, k]) for k in range(n)]
    permuted = np.array([[g.pick(row, list(column)) for row in order] for column in columns], object)
    pivoted = _substituted(g, factors, inverses, permuted, b.shape)
    return [objects(conditional(g, well, [list(pivoted.flat), list(result.flat)]), b.shape)]


def _substituted(g: Graph, factors: Nodes, inverses: list[Node], columns: Nodes, shape: tuple) -> Nodes:
    """The solution for each right side, from L U = `factors` (L has a unit diagonal) and 1/diag U."""
    n, solved = len(factors), []
    for column in columns:
        y = list(column)
        for i in range(n):
            for k in range(i):
                y[i] = g.op("sub", y[i], g.op("mul", factors[i, k], y[k]))
        for i in reversed(range(n)):
            for j in range(i + 1, n):
                y[i] = g.op("sub", y[i], g.op("mul", factors[i, j], y[j]))
            y[i] = g.op("mul", y[i], inverses[i])
        solved.append(y)
    return objects([y[i] for i in range(n) for y in solved], shape)


def _batches(x: Nodes) -> list[Nodes]:
    return list(x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]))


@rule("lu")
def _lu(it: Interpreter, equation, a: Nodes):
    results = [_factor(it.graph, matrix) for matrix in _batches(a)]
    return [objects([x for r in results for x in r[i]], v.aval.shape) for i, v in enumerate(equation.outvars)]


def _factor(g: Graph, matrix: Nodes) -> tuple[list[Node], list[Node], list[Node]]:
    """L and U in one matrix, the row that each row was exchanged with, and the permutation."""
    a = matrix.copy()
    n, columns = a.shape
    rows = [g.const(i, np.int32) for i in range(n)]
    pivots = []
    for k in range(min(n, columns)):
        best, where = g.op("abs", a[k, k]), g.const(k, np.int32)
        for i in range(k + 1, n):
            wins = g.op("gt", g.op("abs", a[i, k]), best)
            best, where = (
                g.choose(wins, g.op("abs", a[i, k]), best),
                g.choose(wins, g.const(i, np.int32), where),
            )
        pivots.append(where)
        for i in range(k + 1, n):
            here = g.op("eq", where, g.const(i, np.int32))
            for j in range(columns):
                a[k, j], a[i, j] = g.choose(here, a[i, j], a[k, j]), g.choose(here, a[k, j], a[i, j])
            rows[k], rows[i] = g.choose(here, rows[i], rows[k]), g.choose(here, rows[k], rows[i])
        for i in range(k + 1, n):
            a[i, k] = g.op("div", a[i, k], a[k, k])
            for j in range(k + 1, columns):
                a[i, j] = g.op("sub", a[i, j], g.op("mul", a[i, k], a[k, j]))
    return list(a.flat), pivots, rows


@rule("lu_pivots_to_permutation")
def _permutation(it: Interpreter, equation, pivots: Nodes):
    g, size = it.graph, equation.params["permutation_size"]
    result = []
    for line in pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1]):
        rows = [g.const(i, np.int32) for i in range(size)]
        for k, pivot in enumerate(line):
            other = g.pick(pivot, rows)
            old = rows[k]
            rows = [g.choose(g.op("eq", pivot, g.const(i, np.int32)), old, row) for i, row in enumerate(rows)]
            rows[k] = other
        result += rows
    return [objects(result, equation.outvars[0].aval.shape)]


@rule("triangular_solve")
def _triangular_solve(it: Interpreter, equation, a: Nodes, b: Nodes):
    g, p = it.graph, equation.params
    result = []
    for matrix, right in zip(_batches(a), _batches(b), strict=True):
        lower = p["lower"]
        if p["transpose_a"]:
            matrix, lower = matrix.T, not lower
        if not p["left_side"]:  # x a = b is a^T x^T = b^T
            matrix, right, lower = matrix.T, right.T, not lower
        n = len(matrix)
        x = right.copy()
        order = range(n) if lower else range(n)[::-1]
        for column in range(x.shape[1]):
            for i in order:
                for j in range(i) if lower else range(i + 1, n):
                    x[i, column] = g.op("sub", x[i, column], g.op("mul", matrix[i, j], x[j, column]))
                if not p["unit_diagonal"]:
                    x[i, column] = g.op("div", x[i, column], matrix[i, i])
        result += list((x if p["left_side"] else x.T).flat)
    return [objects(result, b.shape)]


@rule("cholesky")
def _cholesky(it: Interpreter, equation, a: Nodes):
    g, result = it.graph, []
    for matrix in _batches(a):
        n = len(matrix)
        low = np.full((n, n), g.const(0, equation.outvars[0].aval.dtype), object)
        for j in range(n):
            diagonal = matrix[j, j]
            for k in range(j):
                diagonal = g.op("sub", diagonal, g.op("mul", low[j, k], low[j, k]))
            low[j, j] = g.op("sqrt", diagonal)
            for i in range(j + 1, n):
                entry = matrix[i, j]
                for k in range(j):
                    entry = g.op("sub", entry, g.op("mul", low[i, k], low[j, k]))
                low[i, j] = g.op("div", entry, low[j, j])
        result += list(low.flat)
    return [objects(result, a.shape)]


@rule("custom_linear_solve")
def _custom_linear_solve(it: Interpreter, equation, *inputs):
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    sizes = [lengths.matvec, lengths.vecmat, lengths.solve, lengths.transpose_solve]
    cuts = np.cumsum(sizes)
    consts = inputs[cuts[1] : cuts[2]]
    return it.closed(jaxprs.solve, [*consts, *inputs[cuts[3] :]])
