"""Scalar operations as a graph, with constants folded and equal operations shared.

A node is one scalar. Regions are the bodies of loops and the branches of conditionals. When the graph is
emitted, each operation is assigned to a region: operations that do not change in a loop are computed before it,
and operations that only one branch needs are computed in that branch.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from dalembert.numerics.jax_internals import Primitive

_BOOL = np.dtype(bool)


def _numpy(function: Callable) -> Callable:
    def fold(dtype, *values):
        with np.errstate(all="ignore"):
            return dtype.type(function(*values))

    return fold


def _divide(a, b):
    """Division as in JAX: NumPy's for floats, and C's (towards zero) for whole numbers."""
    if np.issubdtype(np.asarray(a).dtype, np.integer):
        if b == 0:
            return (
                -1
                if np.issubdtype(np.asarray(a).dtype, np.signedinteger)
                else np.iinfo(np.asarray(a).dtype).max
            )
        quotient = abs(int(a)) // abs(int(b))
        return quotient if (int(a) < 0) == (int(b) < 0) else -quotient
    return np.divide(a, b)


FOLD: dict[str, Callable] = {
    name: _numpy(function)
    for name, function in {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "neg": np.negative,
        "max": np.maximum, "min": np.minimum, "abs": np.abs, "sign": np.sign, "sqrt": np.sqrt,
        "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos,
        "tan": np.tan, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "atan": np.arctan,
        "asin": np.arcsin, "acos": np.arccos, "atan2": np.arctan2, "pow": np.power, "floor": np.floor,
        "ceil": np.ceil, "rem": np.fmod, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
        "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and,
        "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "convert_element_type": lambda x: x,
        "log1p": np.log1p, "expm1": np.expm1, "is_finite": np.isfinite,
    }.items()
}  # fmt: skip


def _is(x: Any, value: float) -> bool:
    return x.op == "const" and x.value == value


def _factors(g: Any, x: Any) -> tuple[int, ...] | None:
    """The sorted numbers of the nodes whose product is x; None if there are more than eight."""
    if x.op != "mul":
        return (x.id,)
    if x.id not in g.factors:
        parts = [_factors(g, a) for a in x.args]
        found = None if None in parts else tuple(sorted(parts[0] + parts[1]))  # type: ignore[operator]
        g.factors[x.id] = found if found and len(found) <= 8 else None
    return g.factors[x.id]


def _without(items: tuple[int, ...], twice: int) -> list[int]:
    rest = list(items)
    rest.remove(twice)
    rest.remove(twice)
    return rest


def _circle(g: Any, dtype, a: Any, b: Any):
    """The k of k sin(x)^2 + k cos(x)^2, a sum that is common in metrics and one-forms in terms of angles, else None."""
    first, second = _factors(g, a), _factors(g, b)
    if first is None or second is None or len(first) != len(second):
        return None
    for items, others in ((first, second), (second, first)):
        for x, y in itertools.pairwise(items):
            cosine = g.cosines.get(x) if x == y else None
            if (
                cosine is not None
                and others.count(cosine) >= 2
                and _without(items, x) == _without(others, cosine)
            ):
                rest = [g.nodes[i] for i in _without(items, x)]
                return g.fold_left("mul", rest) if rest else g.const(1, dtype)
    return None


def _add(g: Any, dtype, params, a: Any, b: Any):
    if _is(a, 0):
        return b
    if _is(b, 0):
        return a
    if a.op == "mul" and b.op == "mul" and g.cosines:
        whole = _circle(g, dtype, a, b)
        if whole is not None:
            return whole
    if a.op == "neg":
        return g.op("sub", b, a.args[0])
    return g.op("sub", a, b.args[0]) if b.op == "neg" else None


def _sub(g: Any, dtype, params, a: Any, b: Any):
    if _is(b, 0):
        return a
    if _is(a, 0):
        return g.op("neg", b)
    if a is b and a.id in g.still:
        return g.const(0, dtype)
    if a.op == "mul" and b.op == "mul" and g.cosines and _factors(g, a) == _factors(g, b) is not None:
        return g.const(0, dtype)  # the same product in another order
    return g.op("add", a, b.args[0]) if b.op == "neg" else None


def _signed(g: Any, name: str, a: Any, b: Any):
    """Moves signs out of products and quotients, so that more of these can be shared."""
    if a.op == "neg" and b.op == "neg":
        return g.op(name, a.args[0], b.args[0])
    if a.op == "neg":
        return g.op("neg", g.op(name, a.args[0], b))
    return g.op("neg", g.op(name, a, b.args[0])) if b.op == "neg" else None


def _mul(g: Any, dtype, params, a: Any, b: Any):
    if dtype == _BOOL:
        return None
    for x, y in ((a, b), (b, a)):
        if _is(x, 0):
            return x  # derivatives contain many exact zeros; 0 times infinity is taken as 0 here
        if _is(x, 1):
            return y
        if _is(x, -1):
            return g.op("neg", y)
    return _signed(g, "mul", a, b)


def _div(g: Any, dtype, params, a: Any, b: Any):
    if dtype.kind != "f":
        return None
    if _is(b, 1) or (_is(a, 0) and not b.is_const):
        return a
    if b.fixed and not b.is_const and not a.fixed:
        return g.op("mul", a, g.op("div", g.const(1, dtype), b))  # one division for the whole run
    return _signed(g, "div", a, b)


def _integer_pow(g: Any, dtype, params, x: Any):
    power = params["y"]
    if power == 0:
        return g.const(1, dtype)
    if abs(power) > 64:
        return None
    if power < 0 and dtype.kind == "f":
        x = g.op("div", g.const(1, dtype), x)  # a power of the inverse, which derivatives need too
    result, square, left = None, x, abs(power)
    while left:
        if left & 1:
            result = square if result is None else g.op("mul", result, square)
        left >>= 1
        square = g.op("mul", square, square) if left else square
    assert result is not None
    return result


def _select(g: Any, dtype, params, predicate: Any, *cases: Any):
    if predicate.is_const:
        return cases[int(predicate.value)]
    if all(case is cases[0] for case in cases):
        return cases[0]
    if dtype == _BOOL and len(cases) == 2 and predicate.dtype == _BOOL:
        no, yes = cases
        if _is(no, False):
            return g.op("and", predicate, yes)
        if _is(yes, True):
            return g.op("or", predicate, no)
    return None


_HARMLESS = {"add", "sub", "mul", "neg", "abs", "max", "min", "sin", "cos", "tanh", "atan"}


def _is_finite(g: Any, dtype, params, x: Any):
    """Whether x is finite. A finite sum has finite terms, and what depends only on such terms is not tested again.

    This neglects overflow: a product of finite numbers beyond 1e308 belongs to a run that fails in the next step.
    """
    if _follows(g, x):
        return g.const(True, bool)
    terms = [x]
    while terms:
        term = terms.pop()
        g.finite.add(term.id)
        terms += term.args if term.op in ("add", "sub", "neg") else ()
    return g.op("lt", g.op("abs", x), g.const(np.inf, x.dtype))


def _follows(g: Any, x: Any) -> bool:
    """Whether x is finite if the nodes in `g.finite` are."""
    todo, seen = [x], set()
    while todo:
        node = todo.pop()
        if node.id in seen or node.id in g.finite or node.fixed:
            continue
        seen.add(node.id)
        if node.id in g.bounded:
            todo.append(g.bounded[node.id])
        elif node.op in _HARMLESS:
            todo += node.args
        else:
            return False
    return True


def _and(g: Any, dtype, params, a: Any, b: Any):
    for x, y in ((a, b), (b, a)):
        if dtype == _BOOL and x.is_const:
            return y if x.value else x
    return a if a is b else None


def _or(g: Any, dtype, params, a: Any, b: Any):
    for x, y in ((a, b), (b, a)):
        if dtype == _BOOL and x.is_const:
            return x if x.value else y
    return a if a is b else None


SIMPLIFY: dict[str, Callable] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "integer_pow": _integer_pow, "select_n": _select,
    "and": _and, "or": _or,
    "add_any": lambda g, dtype, params, a, b: g.op("add", a, b),
    "square": lambda g, dtype, params, x: g.op("mul", x, x),
    "neg": lambda g, dtype, params, x: x.args[0] if x.op == "neg" else None,
    "not": lambda g, dtype, params, x: x.args[0] if x.op == "not" else None,
    "max": lambda g, dtype, params, a, b: a if a is b else None,
    "min": lambda g, dtype, params, a, b: a if a is b else None,
    "convert_element_type": lambda g, dtype, params, x: x if x.dtype == dtype else None,
    "is_finite": _is_finite,
    "clamp": lambda g, dtype, params, low, x, high: g.op("min", g.op("max", x, low), high),
}  # fmt: skip


class Unsupported(Exception):
    """The function uses an operation that kernels do not have; `primitive` names it."""

    def __init__(self, primitive: str, why: str = ""):
        super().__init__(f"{primitive}{': ' + why if why else ''}")
        self.primitive, self.why = primitive, why


class Node:
    """One scalar: a constant, an input, a loop's variable, an operation, or one result of a control node."""

    __slots__ = ("args", "dtype", "fixed", "id", "op", "params", "value")

    def __init__(self, number: int, op: str, args: tuple, dtype: np.dtype, params: Any, value: Any):
        self.id, self.op, self.args, self.dtype = number, op, args, dtype
        self.params, self.value = params, value
        self.fixed = op not in ("parameter", "input", "while", "cond", "loop") and all(a.fixed for a in args)
        """Whether it stays the same during a run: it depends only on constants and on the parameters of the run."""

    @property
    def is_const(self) -> bool:
        """Whether the value is known."""
        return self.op == "const"


class Region:
    """A loop body, a loop condition or a branch; `parameters` are the loop variables inside it."""

    def __init__(self, parameters: Sequence[Node] = ()):
        self.parameters = list(parameters)
        self.results: list[Node] = []


def regions_of(control: "Node") -> Sequence[Region]:
    """The regions of a loop or conditional."""
    return control.params if control.op != "loop" else control.params[:1]


_COMMUTE = {"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"}


class Graph:
    """Builds nodes; `table` finds the node that already computes something."""

    def __init__(self) -> None:
        self.count = 0
        self.table: dict[Any, Node] = {}
        self.still: frozenset[int] = frozenset()
        self.nodes: dict[int, Node] = {}
        self.factors: dict[int, tuple[int, ...] | None] = {}
        self.cosines: dict[int, int] = {}
        """From the number of the sine of an angle to the number of its cosine."""
        self.finite: set[int] = set()
        """Nodes that are tested to be finite; what depends only on them need not be tested again."""
        self.bounded: dict[int, Node] = {}
        """Nodes that are finite if their argument is, although they are not elementary (sine and cosine)."""

    def _new(self, op: str, args: tuple, dtype: Any, params: Any = None, value: Any = None) -> Node:
        self.count += 1
        node = self.nodes[self.count] = Node(self.count, op, args, np.dtype(dtype), params, value)
        return node

    def const(self, value: Any, dtype: Any) -> Node:
        """A known scalar."""
        dtype = np.dtype(dtype)
        value = dtype.type(value)
        key = ("const", dtype.num, value.tobytes())
        node = self.table.get(key)
        if node is None:
            node = self.table[key] = self._new("const", (), dtype, value=value)
        return node

    def input(self, dtype: Any, position: int, fixed: bool = False) -> Node:
        """An argument of the function; a fixed one is a parameter of the run."""
        node = self._new("input", (), dtype, value=position)
        node.fixed = fixed
        return node

    def parameter(self, dtype: Any) -> Node:
        """A variable of a loop."""
        return self._new("parameter", (), dtype)

    def control(self, op: str, args: tuple, params: Any) -> Node:
        """A loop or a conditional; `result` makes its results."""
        return self._new(op, args, _BOOL, params)

    def series(self, args: tuple, params: Any) -> Node:
        """The Taylor series of a solution from these arguments; `result` makes its coefficients."""
        key = ("series", id(params[0]), params[1], tuple(x.id for x in args))
        if key not in self.table:
            self.table[key] = self._new("series", args, _BOOL, params)
        return self.table[key]

    def result(self, control: Node, position: int, dtype: Any) -> Node:
        """One result of a loop or conditional."""
        key = ("result", control.id, position)
        if key not in self.table:
            self.table[key] = self._new("result", (control,), dtype, value=position)
        return self.table[key]

    def primitive(
        self, name: str, primitive: Primitive, args: Sequence[Node], dtype: Any, params: dict
    ) -> Node:
        """An elementwise JAX primitive of scalars, simplified."""
        simple = self._simplify(name, args, np.dtype(dtype), params)
        if simple is not None:
            return simple
        if name in _COMMUTE and args[0].id > args[1].id:
            args = (args[1], args[0])
        kept = tuple(sorted(params.items())) if len(params) > 1 else tuple(params.items())
        key = (name, tuple([a.id for a in args]), np.dtype(dtype).num, str(kept) if kept else "")
        node = self.table.get(key)
        if node is None:
            node = self.table[key] = self._new(name, tuple(args), dtype, (primitive, params))
        return node

    def op(self, name: str, *args: Node) -> Node:
        """An operation that this module itself makes, by the name of its primitive."""
        primitive, params, dtype = own_primitives()[name]
        return self.primitive(name, primitive, args, args[-1].dtype if dtype is None else dtype, params)

    def convert(self, x: Node, dtype: Any) -> Node:
        """x as another type."""
        dtype = np.dtype(dtype)
        params = {"new_dtype": dtype, "weak_type": False, "sharding": None}
        return self.primitive("convert_element_type", lax.convert_element_type_p, (x,), dtype, params)

    def fold_left(self, name: str, items: Iterable[Node]) -> Node:
        """a op b op c ..., from the left."""
        first, *rest = items
        for item in rest:
            first = self.op(name, first, item)
        return first

    def choose(self, predicate: Node, yes: Node, no: Node) -> Node:
        """`yes` if the predicate holds, else `no`."""
        return self.op("select_n", predicate, no, yes)

    def pick(self, index: Node, options: Sequence[Node], first: int = 0) -> Node:
        """options[index - first], by bisection; indices beyond the ends give the ends."""
        if len({option.id for option in options}) == 1:
            return options[0]
        half = len(options) // 2
        low = self.op("lt", index, self.const(first + half, index.dtype))
        return self.choose(
            low, self.pick(index, options[:half], first), self.pick(index, options[half:], first + half)
        )

    def listed(self, index: Node, options: Sequence[Node]) -> Node:
        """options[index] for known numbers and an index within range, read from a list in memory."""
        values = tuple(float(option.value) for option in options)
        key = ("list", index.id, values)
        if key not in self.table:
            self.table[key] = self._new("list", (index,), options[0].dtype, values)
        return self.table[key]

    def stays(self, result: Node, variable: Node, start: Node) -> bool:
        """Whether a loop variable that begins as `start` ends the first iteration, and hence every one, as it began.

        This is noticed only if its next value is a short expression of itself, such as x - (x - a) from x = a.
        """
        if result is variable or variable.dtype.kind != "f":
            return False
        with self.constant_in_loop([start]):
            return self._with(result, {variable.id: start, start.id: start}, 16) is start

    @contextlib.contextmanager
    def constant_in_loop(self, nodes: Iterable[Node]) -> Iterator[None]:
        """Inside this context, the difference of one of these nodes with itself is zero.

        If the node were infinite, the loop would end.
        """
        before = self.still
        self.still = before | {node.id for node in nodes}
        try:
            yield
        finally:
            self.still = before

    def _with(self, node: Node, known: dict[int, Node | None], depth: int) -> Node | None:
        """The expression with nodes replaced as `known` says; None if it is deep or has more than plain operations."""
        if node.op in ("const", "input"):
            return node
        if node.id not in known:
            known[node.id] = None
            if depth and node.op not in ("parameter", "result", "list", "series"):
                args = [self._with(argument, known, depth - 1) for argument in node.args]
                if None not in args:
                    primitive, params = node.params
                    known[node.id] = self.primitive(node.op, primitive, args, node.dtype, params)  # type: ignore
        return known[node.id]

    def _simplify(self, name: str, args: Sequence[Node], dtype: np.dtype, params: dict) -> Node | None:
        if all(a.op == "const" for a in args) and name in FOLD:
            return self.const(FOLD[name](dtype, *[a.value for a in args]), dtype)
        rule = SIMPLIFY.get(name)
        return rule(self, dtype, params, *args) if rule else None


@functools.cache
def own_primitives() -> dict[str, tuple[Primitive, dict, Any]]:
    """The primitives that this module itself makes, with the parameters that this version of JAX gives them."""
    binary = {
        "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "max": lax.max, "min": lax.min,
        "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge,
    }  # fmt: skip
    unary = {"neg": lax.neg, "abs": lax.abs, "sqrt": lax.sqrt, "sin": lax.sin, "cos": lax.cos, "floor": lax.floor,
             "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)}  # fmt: skip
    logic = {"and": lax.bitwise_and, "or": lax.bitwise_or}
    table = {}
    one, truth = np.float64(1.5), np.bool_(True)
    calls = [(name, f, (one, one)) for name, f in binary.items()]
    calls += [(name, f, (one,)) for name, f in unary.items()]
    calls += [(name, f, (truth, truth)) for name, f in logic.items()]
    calls += [("convert_element_type", lambda x: lax.convert_element_type(x, np.int32), (one,))]
    calls += [("not", lax.bitwise_not, (truth,)), ("select_n", lax.select_n, (truth, one, one))]
    compare = {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"}
    for name, function, arguments in calls:
        (equation,) = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
        table[name] = (equation.primitive, dict(equation.params), _BOOL if name in compare else None)
    return table
