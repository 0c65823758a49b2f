"""The functions of a time loop, traced once; machine code of either form begins from here."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.numerics import tracing_once

Shapes = list[tuple[tuple[int, ...], np.dtype]]


def shape_of(x: Any) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and the type of an array."""
    return tuple(np.shape(x)), np.dtype(jax.dtypes.canonicalize_dtype(jnp.result_type(x)))


def dtypes_of(shapes: Sequence[tuple]) -> list[np.dtype]:
    """The type of every entry."""
    return [dtype for shape, dtype in shapes for _ in range(math.prod(shape))]


class Traced:
    """A function, traced for arguments with the shapes and types of examples."""

    def __init__(self, function: Callable, *examples: Any):
        leaves, self.tree = jax.tree.flatten(examples)
        self.inputs: Shapes = [shape_of(x) for x in leaves]
        self.arguments: list[Shapes] = [[shape_of(x) for x in jax.tree.leaves(e)] for e in examples]
        """The same shapes, by argument."""
        with tracing_once():
            self.jaxpr, result = jax.make_jaxpr(function, return_shape=True)(*examples)
        self.result_tree = jax.tree.structure(result)
        self.results: Shapes = [shape_of(x) for x in jax.tree.leaves(result)]

    @property
    def example(self) -> Any:
        """An example of the result."""
        return jax.tree.unflatten(self.result_tree, [jax.ShapeDtypeStruct(*x) for x in self.results])

    def has(self, name: str) -> bool:
        """Whether the function uses the primitive of this name."""
        return any(equation.primitive.name == name for equation in equations_of(self.jaxpr.jaxpr))

    @property
    def operations(self) -> int:
        """About how many scalar operations the code of the function is, before equal ones are made once."""
        return operations_of(self.jaxpr.jaxpr, once=True)


class Made(NamedTuple):
    """What a time loop is made from: functions, and shapes and types of the parameters and of a start.

    `begin(parameters, start) -> carry`; `step(parameters, carry) -> carry`; `output(parameters, carry) -> row`, which
    also gives the row of the start. `report(carry)` are scalars that even a failing step sets, whereas everything else
    stays as it was; the first of them is zero as long as all is well. `counted(carry)` are further scalars that matter
    at the end.
    """

    begin: Callable
    step: Callable
    output: Callable
    report: Callable
    counted: Callable
    parameters: Any
    start: Any


class Functions:
    """The traced functions of a time loop."""

    @tracing_once()
    def __init__(self, made: Made):
        self.made = made
        self.begin = Traced(made.begin, made.parameters, made.start)
        carry = self.begin.example
        self.step = Traced(made.step, made.parameters, carry)
        self.output = Traced(made.output, made.parameters, carry)

    @property
    def parts(self) -> tuple[Traced, Traced, Traced]:
        """The three functions."""
        return self.begin, self.step, self.output


_MOVES = {
    "broadcast_in_dim",
    "reshape",
    "transpose",
    "slice",
    "squeeze",
    "concatenate",
    "stack",
    "split",
    "pad",
}


def plain_work(equation: Any) -> int:
    """The number of scalar operations of an equation, if every entry of its results takes one."""
    cost = 40 if equation.primitive.name in ("sin", "cos", "tan") else 1  # as polynomials
    return cost * sum(math.prod(v.aval.shape) for v in equation.outvars)


def work(equation: Any) -> int:
    """The number of scalar operations of an equation."""
    name, shapes = equation.primitive.name, [v.aval.shape for v in equation.invars]
    made = plain_work(equation)
    if name in _MOVES:
        return 0
    if name == "small_solve":
        n = shapes[0][-1]
        return math.prod(shapes[0]) * n // 3 + n * made
    if name == "dot_general":
        contracted = equation.params["dimension_numbers"][0][0]
        return made * math.prod(shapes[0][d] for d in contracted)
    if name.startswith(("reduce_", "cum", "arg")):
        return math.prod(shapes[0])
    return made


WRITTEN_OUT = 3000
"""Loops of known length are written out up to this many scalar operations."""


def is_written_out(length: int, body: Any) -> bool:
    """Whether the code of a loop of known length holds its body once per repetition, instead of once."""
    return length <= 2 or length * operations_of(body, plain_work) <= WRITTEN_OUT


def inside(equation: Any) -> list[Any]:
    """The jaxprs that an equation holds."""
    held = [x for p in equation.params.values() for x in (p if isinstance(p, tuple | list) else (p,))]
    return [x for x in (getattr(x, "jaxpr", x) for x in held) if hasattr(x, "eqns")]


def equations_of(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr, and of those inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for x in inside(equation):
            yield from equations_of(x)


def operations_of(jaxpr: Any, work: Callable = work, once: bool = False) -> int:
    """The approximate number of scalar operations in a jaxpr; `work` counts those of an equation.

    With `once`, the bodies of loops that are not written out count once.
    """
    total = 0
    for equation in jaxpr.eqns:
        inner = inside(equation)
        if inner:
            length = equation.params.get("length", 1)
            repeated = not once or all(is_written_out(length, x) for x in inner)
            total += sum(operations_of(x, work, once) for x in inner) * (length if repeated else 1)
        else:
            total += work(equation)
    return total
