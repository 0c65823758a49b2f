"""Run a function of JAX with as many digits as wanted, one operation after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from dalembert.kernels.graph import FOLD, Graph, Node, Unsupported
from dalembert.kernels.interpret import Interpreter, Nodes, objects
from dalembert.numerics import exact_numbers, tracing_with
from dalembert.numerics.jax_internals import scan_parts

GUARD = 12
"""Further digits, for what sums and differences lose."""
SOLVED = 6
"""The further digits that iterations end with."""


class ManyDigits:
    """A function of arrays, computed with `digits` digits and some more; `like` are arguments of the same shapes.

    The function is traced once. Results are arrays of mpmath's numbers, and arguments may be such arrays. Numbers in
    the text of the function, such as 0.1, are the double-precision numbers that JAX was given.
    """

    def __init__(self, function: Callable, *like: Any, digits: int):
        import mpmath

        self.mp = mpmath.MPContext()
        self.mp.dps = digits + GUARD
        with tracing_with(digits + SOLVED):
            self.jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(*like)
        self.interpreter = _Interpreter(_Numbers(self.mp))
        self.structure = jax.tree.structure(shape)

    def __call__(self, *arguments: Any) -> Any:
        """The results, in the same tree as those of the function."""
        it = self.interpreter
        given = zip(jax.tree.leaves(arguments), self.jaxpr.in_avals, strict=True)
        results = it.closed(self.jaxpr, [it.nodes(np.asarray(x), aval.dtype) for x, aval in given])
        return jax.tree.unflatten(self.structure, [_values(x) for x in results])


def _values(nodes: Nodes) -> np.ndarray:
    values = [x.value for x in nodes.flat]
    return np.array(values, object).reshape(nodes.shape)


class _Number(Node):
    """A known number."""

    __slots__ = ()

    def __init__(self, value: Any, dtype: np.dtype):
        self.op, self.dtype, self.value = "const", dtype, value


class _Numbers(Graph):
    """A graph in which every number is known: operations are carried out at once."""

    def __init__(self, mp: Any):
        super().__init__()
        self.mp = mp
        self.functions = _functions(mp)

    def const(self, value: Any, dtype: Any) -> Node:
        dtype = np.dtype(dtype)
        if dtype.kind == "f":  # numbers of any context of mpmath, or of NumPy
            return _Number(self.mp.mpf(value if hasattr(value, "_mpf_") else float(value)), dtype)
        return _Number(dtype.type(value), dtype)

    def primitive(self, name: str, primitive: Any, args: Sequence[Node], dtype: Any, params: dict) -> Node:
        dtype, values = np.dtype(dtype), [x.value for x in args]
        if name == "select_n":
            return args[1 + int(values[0])]
        if name == "convert_element_type":
            return args[0] if args[0].dtype == dtype else self.const(self._converted(values[0], dtype), dtype)
        if args[0].dtype.kind != "f":
            if name not in FOLD:
                raise Unsupported(name)
            return self.const(FOLD[name](dtype, *values), dtype)
        if name == "integer_pow":
            values.append(params["y"])
        function = self.functions.get("add" if name == "add_any" else name)
        if function is None:
            raise Unsupported(name, "which is not computed with more digits than those of double precision")
        try:
            value = function(*values)
        except ZeroDivisionError:
            value = (
                self.mp.nan if values[0] == 0 or name not in ("div", "rsqrt", "integer_pow") else self.mp.inf
            )
        if dtype.kind == "f" and not isinstance(value, self.mp.mpf):  # a complex number
            value = self.mp.nan
        return _Number(value, dtype)

    def _converted(self, value: Any, dtype: np.dtype) -> Any:
        if dtype.kind == "f" or not isinstance(value, self.mp.mpf):
            return value
        return value != 0 if dtype.kind == "b" else int(value)

    def op(self, name: str, *args: Node) -> Node:
        compares = name in ("eq", "ne", "lt", "le", "gt", "ge")
        return self.primitive(name, None, args, np.dtype(bool) if compares else args[-1].dtype, {})

    def convert(self, x: Node, dtype: Any) -> Node:
        return self.primitive("convert_element_type", None, (x,), dtype, {})

    def pick(self, index: Node, options: Sequence[Node], first: int = 0) -> Node:
        return options[min(max(int(index.value) - first, 0), len(options) - 1)]


class _Interpreter(Interpreter):
    """Runs a jaxpr on numbers; loops and conditionals are those of Python."""

    graph: _Numbers

    def __init__(self, graph: _Numbers):
        super().__init__(graph)
        self.constants: dict[Any, Nodes] = {}

    def nodes(self, values: np.ndarray, dtype: Any) -> Nodes:
        """An array of numbers of either kind as nodes."""
        return objects([self.graph.const(x, dtype) for x in values.reshape(-1)], values.shape)

    def constant(self, value: Any) -> Nodes:
        array = np.asarray(value)
        key = array.dtype, array.shape, array.tobytes()
        if key not in self.constants:
            exact = exact_numbers(array, self.graph.mp)
            self.constants[key] = (
                super().constant(value)
                if exact is None
                else self.nodes(exact.reshape(array.shape), array.dtype)
            )
        return self.constants[key]

    def equation(self, equation: Any, inputs: list[Nodes]) -> Sequence[Nodes]:
        name = equation.primitive.name
        if name == "while":
            return self._while(equation.params, inputs)
        if name == "scan":
            return self._scan(equation, inputs)
        return super().equation(equation, inputs)

    def _while(self, params: dict, inputs: list[Nodes]) -> list[Nodes]:
        cut = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        test, body, carry = inputs[: cut[0]], inputs[cut[0] : cut[1]], inputs[cut[1] :]
        if params["cond_jaxpr"].out_avals[0].shape:
            raise Unsupported("while", "of several members at once")
        while self.closed(params["cond_jaxpr"], [*test, *carry])[0].item().value:
            carry = self.closed(params["body_jaxpr"], [*body, *carry])
        return carry

    def _scan(self, equation: Any, inputs: list[Nodes]) -> list[Nodes]:
        params = equation.params
        fixed, carried = scan_parts(equation)
        consts, sequences = inputs[:fixed], inputs[fixed + carried :]
        carry = inputs[fixed : fixed + carried]
        shapes = [v.aval.shape for v in equation.outvars[carried:]]
        stacks = [np.empty(shape, object) for shape in shapes]
        order = range(params["length"])
        for k in reversed(order) if params["reverse"] else order:
            results = self.closed(
                params["jaxpr"],
                [*consts, *carry, *[objects(list(x[k : k + 1].flat), x.shape[1:]) for x in sequences]],
            )
            carry = results[:carried]
            for stack, row in zip(stacks, results[carried:], strict=True):
                stack[k] = row if row.ndim else row.item()
        return [*carry, *stacks]


def _functions(mp: Any) -> dict[str, Callable]:
    """What elementary operations mean for real numbers with many digits."""

    def larger(sign: int) -> Callable:
        def chosen(a, b):
            return mp.nan if mp.isnan(a) or mp.isnan(b) else a if (a - b) * sign > 0 or a == b else b

        return chosen

    def power(x, y):
        return x**y if x >= 0 or y == int(y) else mp.nan

    def signed_root(x):
        return mp.sign(x) * mp.cbrt(abs(x))

    one = mp.mpf(1)
    return {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
        "neg": lambda x: -x, "abs": abs, "sign": mp.sign, "square": lambda x: x * x,
        "max": larger(1), "min": larger(-1),
        "integer_pow": lambda x, n: x**n, "pow": power, "sqrt": mp.sqrt, "rsqrt": lambda x: one / mp.sqrt(x),
        "cbrt": signed_root, "exp": mp.exp, "exp2": lambda x: mp.mpf(2) ** x, "expm1": mp.expm1,
        "log": mp.log, "log1p": mp.log1p, "logistic": lambda x: one / (one + mp.exp(-x)),
        "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "asin": mp.asin, "acos": mp.acos, "atan": mp.atan,
        "atan2": mp.atan2, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "asinh": mp.asinh, "acosh": mp.acosh,
        "atanh": mp.atanh, "erf": mp.erf, "erfc": mp.erfc, "lgamma": mp.loggamma, "digamma": mp.digamma,
        "floor": mp.floor, "ceil": mp.ceil, "round": mp.nint, "rem": lambda a, b: mp.fmod(abs(a), abs(b)) * mp.sign(a),
        "is_finite": mp.isfinite, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    }  # fmt: skip
