"""What can be said of an operation before it runs: folded constants, neutral elements, signs, finiteness.

Every rule takes (graph, dtype, parameters, *arguments) and returns a simpler node, or None.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

_BOOL = np.dtype(bool)


def _numpy(function: Callable) -> Callable:
    def fold(dtype, *values):
        with np.errstate(all="ignore"):
            return dtype.type(function(*values))

    return fold


def _divide(a, b):
    """NumPy's division for floats, C's for whole numbers (towards zero), as in JAX."""
    if np.issubdtype(np.asarray(a).dtype, np.integer):
        if b == 0:
            return -1
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
    """The numbers of the nodes whose product x is, in order; None where there are more than eight."""
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
    """k sin(x)^2 + k cos(x)^2 = k, which metrics and one-forms in terms of angles are full of."""
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
    """Signs are moved out of products and quotients, which shares more of them."""
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
            return x  # derivatives are full of exact zeros; 0 times infinity counts as 0 here
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
        x = g.op("div", g.const(1, dtype), x)  # the power of the inverse, which derivatives want too
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
    """Whether x is finite. A finite sum has finite terms; what is made of such terms alone is not asked again.

    (Overflow aside: a product of finite numbers beyond 1e308 belongs to a run that is lost in the next step.)
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
    """Whether x is finite where the nodes known to be finite are."""
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
