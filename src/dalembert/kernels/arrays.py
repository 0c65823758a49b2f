"""A graph of array operations: what a jaxpr computes, with calls opened and equal operations made once.

It is the form for large systems. Its size does not depend on the sizes of the arrays, whereas the graph of scalars has
a node for every entry.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.dtypes import float0

from dalembert.kernels.graph import FOLD, Unsupported
from dalembert.kernels.interpret import CALLS, IDENTITY
from dalembert.numerics.jax_internals import ClosedJaxpr, Literal, scan_parts

FOLDED = 1 << 16
"""Constants with more entries than this are not computed beforehand."""


class Item:
    """An array: a constant, an input of a region, or one result of an operation."""

    __slots__ = ("depth", "dtype", "id", "op", "shape", "value")

    def __init__(
        self,
        number: int,
        shape: Sequence[int],
        dtype: Any,
        depth: int,
        op: "Op | None" = None,
        value: Any = None,
    ):
        self.id, self.shape, self.dtype, self.depth = number, tuple(shape), np.dtype(dtype), depth
        self.op, self.value = op, value

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    @property
    def is_zero(self) -> bool:
        """Whether every entry is known to be zero."""
        return self.value is not None and not np.any(self.value)

    @property
    def is_identity(self) -> bool:
        """Whether it is known to be an identity matrix."""
        if self.value is None or len(self.shape) != 2:
            return False
        return np.array_equal(self.value, np.eye(*self.shape))

    def is_all(self, number: float) -> bool:
        """Whether every entry is known to be this number."""
        return self.value is not None and bool(np.all(self.value == number))


class Op:
    """An operation on arrays; loops and conditionals have regions."""

    __slots__ = ("args", "name", "params", "primitive", "regions", "results")

    def __init__(
        self, name: str, primitive: Any, params: dict, args: Sequence[Item], regions: Sequence["Region"] = ()
    ):
        self.name, self.primitive, self.params = name, primitive, params
        self.args, self.regions = tuple(args), tuple(regions)
        self.results: list[Item] = []


class Region:
    """Operations in order, with what they begin from and what is wanted of them."""

    def __init__(self, parent: "Region | None" = None, hoists: bool = False):
        self.parent, self.hoists = parent, hoists
        """`hoists`: what does not depend on the region's own inputs is computed once, outside of it."""
        self.depth = 0 if parent is None else parent.depth + 1
        self.ops: list[Op] = []
        self.inputs: list[Item] = []
        self.results: list[Item] = []
        self.table: dict[Any, Op] = {}

    def find(self, key: Any) -> Op | None:
        """The operation that already computes this, here or in a region around this one."""
        region: Region | None = self
        while region is not None:
            if key in region.table:
                return region.table[key]
            region = region.parent
        return None


class Arrays:
    """The graph of a function of arrays."""

    def __init__(self, closed: ClosedJaxpr):
        self.count = 0
        self.constants: dict[Any, Item] = {}
        self.root = Region()
        self.root.inputs = [self._item(v.aval.shape, v.aval.dtype, 0) for v in closed.jaxpr.invars]
        self.root.results = self._closed(self.root, closed, self.root.inputs)
        prune(self.root)

    def _item(self, shape, dtype, depth, op=None, value=None) -> Item:
        self.count += 1
        return Item(self.count, shape, dtype, depth, op, value)

    def constant(self, value: Any) -> Item:
        """A known array."""
        array = np.asarray(value)
        if array.dtype == float0:  # the derivative of a whole number; nothing reads it
            array = np.zeros(array.shape, bool)
        if array.dtype.kind not in "fiub":
            raise Unsupported("constant", f"of type {array.dtype}")
        key = (array.shape, array.dtype.str, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self._item(array.shape, array.dtype, 0, value=np.array(array, order="C"))
        return self.constants[key]

    def _closed(self, region: Region, closed: ClosedJaxpr, inputs: Sequence[Item]) -> list[Item]:
        return self._run(region, closed.jaxpr, [self.constant(c) for c in closed.consts], inputs)

    def _run(self, region: Region, jaxpr: Any, consts: Sequence[Item], inputs: Sequence[Item]) -> list[Item]:
        known = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Item:
            return self.constant(atom.val) if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            results = self._equation(region, equation, [read(a) for a in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(a) for a in jaxpr.outvars]

    def _equation(self, region: Region, equation: Any, args: list[Item]) -> Sequence[Item]:
        name = str(equation.primitive.name)
        name = {"lt_to": "lt", "le_to": "le", "eq_to": "eq", "add_any": "add"}.get(name, name)
        if name in IDENTITY:
            return args
        if name in CALLS:
            inner = next(
                equation.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in equation.params
            )
            return (
                self._closed(region, inner, args)
                if hasattr(inner, "consts")
                else self._run(region, inner, [], args)
            )
        if name in _CONTROL:
            return _CONTROL[name](self, region, equation, args)
        avals = [(v.aval.shape, v.aval.dtype) for v in equation.outvars]
        if name == "small_solve":
            return self._solved(region, equation.params, args, avals)
        return self.make(region, name, equation.primitive, equation.params, args, avals)

    def _solved(
        self, region: Region, params: dict, args: list[Item], avals: Sequence[tuple]
    ) -> Sequence[Item]:
        """A system of equations in two operations, so that a matrix that does not change is factored once."""
        simple = self._simplified("small_solve", params, args, avals)
        if simple is not None:
            return simple
        matrix, right = args
        made = [(matrix.shape, matrix.dtype)]
        if not params["positive"]:
            made.append((matrix.shape[:1], np.dtype(np.int64)))  # the order of the rows
        factor = self.make(region, "factor", None, params, [matrix], made)
        return self.make(region, "solve_factored", None, params, [*factor, right], avals)

    def make(
        self,
        region: Region,
        name: str,
        primitive: Any,
        params: dict,
        args: Sequence[Item],
        avals: Sequence[tuple],
    ) -> Sequence[Item]:
        """The results of an operation, simplified."""
        simple = self._simplified(name, params, args, avals)
        if simple is not None:
            return simple
        numbers = tuple(a.id for a in args)
        if name in ("add", "mul") and args[0].shape == args[1].shape:
            numbers = tuple(sorted(numbers))
        key = (name, numbers, tuple(avals), _told(params))
        return self.once(region, key, Op(name, primitive, params, args), avals)

    def once(self, region: Region, key: Any, op: Op, avals: Sequence[tuple]) -> Sequence[Item]:
        """The results of an operation, which is placed unless it was found before, as far outside as it can be."""
        found = region.find(key)
        if found is None:
            deepest = max((x.depth for x in (*op.args, *outer(op))), default=0)
            while region.hoists and deepest < region.depth and region.parent is not None:
                region = region.parent
            found = region.table[key] = self._place(region, op, avals)
        return found.results

    def _place(self, region: Region, op: Op, avals: Sequence[tuple]) -> Op:
        op.results = [self._item(shape, dtype, region.depth, op) for shape, dtype in avals]
        region.ops.append(op)
        return op

    def _simplified(
        self, name: str, params: dict, args: Sequence[Item], avals: Sequence[tuple]
    ) -> Sequence[Item] | None:
        shape, dtype = tuple(avals[0][0]), np.dtype(avals[0][1])
        if all(a.value is not None for a in args) and sum(math.prod(s) for s, _ in avals) <= FOLDED:
            folded = _folded(name, params, [a.value for a in args], avals)
            if folded is not None:
                return [
                    self.constant(np.asarray(x).astype(t).reshape(s))
                    for x, (s, t) in zip(folded, avals, strict=True)
                ]
        same = name in _SAME and args[0].shape == shape and args[0].dtype == dtype
        if same and (name != "transpose" or list(params["permutation"]) == list(range(len(shape)))):
            return [args[0]]
        if dtype.kind != "f":
            return None
        zero = [a.is_zero for a in args]
        if (name in _VANISH and zero[0]) or (name in ("mul", "dot_general") and any(zero)):
            return [self.constant(np.zeros(s, t)) for s, t in avals]
        if name == "small_solve" and (zero[1] or not args[1].size):
            return [self.constant(np.zeros(shape, dtype))]
        if name == "small_solve" and args[0].is_identity:
            return [args[1]]
        if name in ("concatenate", "stack", "pad") and all(zero):
            return [self.constant(np.zeros(shape, dtype))]
        for one, other in ((0, 1), (1, 0)) if len(args) == 2 else ():
            whole = args[other].shape == shape
            if whole and ((name == "add" and zero[one]) or (name == "mul" and args[one].is_all(1))):
                return [args[other]]
        if name == "sub" and zero[1] and args[0].shape == shape:
            return [args[0]]
        return None

    def apply(self, region: Region, function: Callable, *args: Item) -> Item:
        """The result of a function of JAX."""
        structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args]
        return self._closed(region, jax.make_jaxpr(function)(*structs), args)[0]


def _while(graph: Arrays, region: Region, equation: Any, args: list[Item]) -> Sequence[Item]:
    params = equation.params
    cut = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    cond_consts, body_consts, start = args[: cut[0]], args[cut[0] : cut[1]], args[cut[1] :]

    def interpreted(still: set[int]) -> tuple[Region, Region]:
        condition, body = Region(region, hoists=True), Region(region, hoists=True)
        for each in (condition, body):
            each.inputs = [graph._item(x.shape, x.dtype, each.depth) for x in start]

        def now(each: Region) -> list[Item]:
            return [x if i in still else y for i, (x, y) in enumerate(zip(start, each.inputs, strict=True))]

        (going,) = graph._closed(condition, params["cond_jaxpr"], [*cond_consts, *now(condition)])
        after = graph._closed(body, params["body_jaxpr"], [*body_consts, *now(body)])
        members = len(going.shape)
        if members:  # under vmap each member has its own answer, and those that are done stay as they are
            axes = tuple(range(members))
            going = graph.apply(condition, lambda x: lax.reduce_or_p.bind(x, axes=axes), going)
            (each,) = graph._closed(body, params["cond_jaxpr"], [*cond_consts, *now(body)])
            after = [
                graph.apply(body, lax.select, _spread(graph, body, each, y), y, x) if x is not y else x
                for x, y in zip(now(body), after, strict=True)
            ]
        condition.results, body.results = [going], after
        return condition, body

    regions = interpreted(set())
    still = {i for i, (x, y) in enumerate(zip(regions[1].inputs, regions[1].results, strict=True)) if x is y}
    if still:
        regions = interpreted(still)
    moving = [i for i in range(len(start)) if i not in still]
    for each in regions:
        each.inputs = [each.inputs[i] for i in moving]
    regions[1].results = [regions[1].results[i] for i in moving]
    op = graph._place(
        region,
        Op("while", None, {}, [start[i] for i in moving], regions),
        [(start[i].shape, start[i].dtype) for i in moving],
    )
    found = dict(zip(moving, op.results, strict=True))
    return [found.get(i, x) for i, x in enumerate(start)]


def _spread(graph: Arrays, region: Region, truth: Item, like: Item) -> Item:
    axes = tuple(range(len(truth.shape)))
    if truth.shape == like.shape:
        return truth
    return graph.apply(region, lambda x: lax.broadcast_in_dim(x, like.shape, axes), truth)


def _cond(graph: Arrays, region: Region, equation: Any, args: list[Item]) -> Sequence[Item]:
    index, *operands = args
    branches = equation.params["branches"]
    if index.value is not None:
        return graph._closed(region, branches[int(np.clip(int(index.value), 0, len(branches) - 1))], operands)
    regions = []
    for branch in branches:
        inner = Region(region)
        inner.results = graph._closed(inner, branch, operands)
        regions.append(inner)
    avals = [(v.aval.shape, v.aval.dtype) for v in equation.outvars]
    return graph._place(region, Op("cond", None, {}, [index], regions), avals).results


def _scan(graph: Arrays, region: Region, equation: Any, args: list[Item]) -> Sequence[Item]:
    params = equation.params
    (consts, carry), rows = scan_parts(equation), params["length"]
    body = Region(region, hoists=True)
    inner = params["jaxpr"]
    body.inputs = [graph._item(v.aval.shape, v.aval.dtype, body.depth) for v in inner.jaxpr.invars[consts:]]
    body.results = graph._closed(body, inner, [*args[:consts], *body.inputs])
    told = {"carry": carry, "length": rows, "reverse": params["reverse"]}
    avals = [(v.aval.shape, v.aval.dtype) for v in equation.outvars]
    op = Op("scan", None, told, args[consts:], [body])
    key = ("scan", tuple(x.id for x in op.args), _told(told), _spelling(body))
    return graph.once(region, key, op, avals)


def _custom_linear_solve(graph: Arrays, region: Region, equation: Any, args: list[Item]) -> Sequence[Item]:
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    last = first + lengths.solve + lengths.transpose_solve
    consts = args[first : first + lengths.solve]
    return graph._closed(region, jaxprs.solve, [*consts, *args[last:]])


_CONTROL = {"while": _while, "cond": _cond, "scan": _scan, "custom_linear_solve": _custom_linear_solve}
_SAME = {"broadcast_in_dim", "reshape", "transpose", "squeeze", "convert_element_type"}
_VANISH = {
    "neg",
    "reduce_sum",
    "broadcast_in_dim",
    "reshape",
    "transpose",
    "slice",
    "squeeze",
    "cumsum",
    "split",
    "div",
    "sqrt",
    "rev",
}


def _spelling(region: Region, known: dict[int, int] | None = None) -> tuple:
    """What a region computes; two regions with the same spelling give the same results."""
    own = dict(known or {})

    def named(items: Sequence[Item]) -> tuple:
        return tuple((x.id in own, own.get(x.id, x.id)) for x in items)

    def name(items: Sequence[Item]) -> None:
        first = len(own)
        own.update((x.id, first + k) for k, x in enumerate(items))

    name(region.inputs)
    lines = []
    for op in region.ops:
        inner = tuple(_spelling(each, own) for each in op.regions)
        kinds = tuple((x.shape, x.dtype.str) for x in op.results)
        lines.append((op.name, named(op.args), kinds, _told(op.params), inner))
        name(op.results)
    return (*lines, named(region.results))


def _told(params: dict) -> str:
    return str(
        sorted((k, str(v)) for k, v in params.items() if k not in ("sharding", "weak_type", "out_sharding"))
    )


def _folded(name: str, params: dict, values: list[np.ndarray], avals: Sequence[tuple]) -> list | None:
    """The value of an operation on known arrays, by NumPy; None if this module does not know the operation."""
    shape, dtype = tuple(avals[0][0]), np.dtype(avals[0][1])
    if name in FOLD and name != "div":
        with np.errstate(all="ignore"):
            return [FOLD[name](dtype, *values)]
    if name == "div" and dtype.kind == "f":
        with np.errstate(all="ignore"):
            return [np.divide(*values)]
    if name == "integer_pow":
        return [values[0] ** params["y"] if params["y"] >= 0 else None] if params["y"] >= 0 else None
    if name == "select_n" and values[0].dtype == bool and len(values) == 3:
        return [np.where(values[0], values[2], values[1])]
    if name == "broadcast_in_dim":
        full = [1] * len(shape)
        for d, n in zip(params["broadcast_dimensions"], values[0].shape, strict=True):
            full[d] = n
        return [np.broadcast_to(values[0].reshape(full), shape)]
    if name in ("reshape", "squeeze"):
        return [values[0].reshape(shape)]
    if name == "transpose":
        return [values[0].transpose(params["permutation"])]
    if name == "iota":
        d = params["dimension"]
        column = np.arange(shape[d]).reshape([-1 if k == d else 1 for k in range(len(shape))])
        return [np.broadcast_to(column, shape)]
    if name == "slice":
        steps = params["strides"] or (1,) * len(shape)
        return [
            values[0][
                tuple(
                    slice(a, b, c)
                    for a, b, c in zip(params["start_indices"], params["limit_indices"], steps, strict=True)
                )
            ]
        ]
    if name == "concatenate":
        return [np.concatenate(values, params["dimension"])]
    if name == "stack":
        return [np.stack(values, params.get("axis", 0))]
    if name == "split":
        return np.split(values[0], np.cumsum(params["sizes"])[:-1], params["axis"])
    if name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod"):
        how = {"sum": np.sum, "max": np.max, "min": np.min, "and": np.all, "or": np.any, "prod": np.prod}
        return [how[name[7:]](values[0], axis=tuple(params["axes"]))] if values[0].size else None
    if (
        name == "small_solve"
        and values[0].size
        and np.all(np.isfinite(values[0]))
        and np.linalg.cond(values[0]) < 1e12
    ):
        return [np.linalg.solve(values[0], values[1])]
    if name == "cumsum" and not params["reverse"]:
        return [np.cumsum(values[0], params["axis"])]
    return None


def prune(root: Region) -> None:
    """Removes operations whose results nothing needs."""
    needed: set[int] = set()

    def want(items: Sequence[Item]) -> None:
        todo = list(items)
        while todo:
            item = todo.pop()
            if item.id in needed:
                continue
            needed.add(item.id)
            if item.op is not None:
                todo += item.op.args
                for region in item.op.regions:
                    todo += region.results
                # A loop needs all of its variables.
                if item.op.name in ("while", "scan"):
                    todo += item.op.results

    want(root.results)

    def keep(region: Region) -> None:
        region.ops = [op for op in region.ops if any(x.id in needed for x in op.results)]
        for op in region.ops:
            for inner in op.regions:
                keep(inner)

    keep(root)


def outer(op: Op) -> list[Item]:
    """The items from around an operation that its regions read."""
    inside: set[int] = set()
    found: dict[int, Item] = {}

    def look(region: Region) -> None:
        inside.update(x.id for x in region.inputs)
        for each in region.ops:
            for x in each.args:
                if x.id not in inside and x.value is None:
                    found[x.id] = x
            for inner in each.regions:
                look(inner)
            inside.update(x.id for x in each.results)
        for x in region.results:
            if x.id not in inside and x.value is None:
                found[x.id] = x

    for region in op.regions:
        look(region)
    return list(found.values())


def all_ops(region: Region) -> Iterator[Op]:
    """All operations, those of inner regions included."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from all_ops(inner)
