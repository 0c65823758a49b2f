"""What can be read off a function as it is written, before any number is known."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.extend.core import Literal


def is_written_constant(function: Callable[[Array], Array], q: Array) -> bool:
    """Whether a function is written without q (a mass matrix, a potential): constant, whatever the parameters are."""
    jaxpr = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(q.shape, q.dtype)).jaxpr
    return not any(_reached(jaxpr, [True] * len(jaxpr.invars)))


def _reached(jaxpr: Any, inputs: list[bool]) -> list[bool]:
    """Which results depend on the inputs that are marked."""
    reached = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}

    def marks(atoms) -> list[bool]:
        return [not isinstance(x, Literal) and x in reached for x in atoms]

    for equation in jaxpr.eqns:
        given = marks(equation.invars)
        inner = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
        found = _reached(inner.jaxpr, given) if inner is not None else [any(given)] * len(equation.outvars)
        reached.update(v for v, mark in zip(equation.outvars, found, strict=True) if mark)
    return marks(jaxpr.outvars)
