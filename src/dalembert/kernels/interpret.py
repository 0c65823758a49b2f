"""A function's jaxpr, interpreted on arrays of scalar nodes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.dtypes import float0
from jax.extend.core import ClosedJaxpr, Literal

from dalembert.kernels.graph import Graph, Node, Region, Unsupported

Nodes = Any  # an array of nodes; NumPy has no type for it
Rule = Callable[..., Sequence[Nodes]]

UNROLL = 3000
"""Loops of known length are unrolled up to this many scalar operations."""
PICK = 256
"""Sequences that a loop runs over, longer than this, are left to arrays."""

rules: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function (interpreter, equation, *inputs) for primitives of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            rules[name] = function
        return function

    return register


def objects(items: Sequence[Node], shape: Sequence[int]) -> Nodes:
    """Nodes as an array of this shape."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(tuple(shape))


# Elementwise primitives whose parameters do not depend on the shape: the same on a scalar.
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
    """Turns jaxprs into nodes of one graph; `special` replaces single functions (sin, cos) by better ones."""

    def __init__(
        self,
        graph: Graph,
        special: dict[str, Callable[[Graph, Node], Node]] | None = None,
        lists: bool = False,
    ):
        self.graph = graph
        self.lists = lists
        """Whether numbers may be read from a list in memory, which a GPU's kernel cannot do."""
        self.special = special or {}
        self.closed_over: dict[int, Nodes] = {}
        """Values that are not known yet although they appear as constants, and the nodes for them."""

    def picked(self, index: Node, options: Sequence[Node]) -> Node:
        """options[index], the index being within range."""
        if self.lists and len(options) > 3 and all(x.is_const and x.dtype == np.float64 for x in options):
            return self.graph.listed(index, options)
        return self.graph.pick(index, options)

    def constant(self, value: Any) -> Nodes:
        """A known array, as nodes."""
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
        """One scalar operation an entry."""
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


def size_of(jaxpr: Any) -> int:
    """About how many scalar operations a jaxpr is."""
    total = 0
    for equation in jaxpr.eqns:
        inner = [x for p in equation.params.values() for x in (p if isinstance(p, tuple | list) else (p,))]
        inner = [getattr(x, "jaxpr", x) for x in inner]
        inner = [x for x in inner if hasattr(x, "eqns")]
        if inner:
            total += sum(size_of(x) for x in inner) * equation.params.get("length", 1)
        else:
            cost = 40 if equation.primitive.name in ("sin", "cos", "tan") else 1  # as polynomials
            total += cost * sum(int(np.prod(v.aval.shape)) for v in equation.outvars)
    return total


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
        regions = []
        for jaxpr, consts in ((params["cond_jaxpr"], cond_consts), (params["body_jaxpr"], body_consts)):
            region = Region([g.parameter(x.dtype) for x in start])
            now = [start[i] if i in still else x for i, x in enumerate(region.parameters)]
            region.results = _flat(it.closed(jaxpr, [*consts, *_unflat(now, carry)]))
            regions.append(region)
        return regions

    regions = interpret(())
    body = regions[1]
    still = [i for i, x in enumerate(start) if g.stays(body.results[i], body.parameters[i], x)]
    if still:
        # These end each round as they began, which the rest of the body can make use of.
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
    """The results of the branch that `index` names, only that branch being computed where possible."""
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
    # What the body sees of a sequence has one axis less, which tells sequences from the rest.
    read = [
        v.aval.ndim != inner.aval.ndim for v, inner in zip(equation.invars, jaxpr.jaxpr.invars, strict=True)
    ]
    kept = [
        v.aval.ndim != inner.aval.ndim for v, inner in zip(equation.outvars, jaxpr.jaxpr.outvars, strict=True)
    ]
    fixed = len(read) - sum(read) - (len(kept) - sum(kept))
    consts, sequences = inputs[:fixed], inputs[len(read) - sum(read) :]
    carry = list(inputs[fixed : len(read) - sum(read)])
    order = range(length)[::-1] if params["reverse"] else range(length)
    stacked = sum(kept)
    if length <= 2 or length * size_of(jaxpr.jaxpr) <= UNROLL:
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
