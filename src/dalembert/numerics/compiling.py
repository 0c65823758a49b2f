"""jax.jit with options for quick compilation."""

import functools
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
from jax import Array

from dalembert.numerics.fingerprints import current
from dalembert.numerics.jax_internals import Literal, Tracer

# XLA's newer fusion emitters on CPU double the compile time of a step and gain nothing at these sizes.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
# This halves the compile time again, but the code takes twice as long to run.
_HURRY = {**_OPTIONS, "xla_backend_optimization_level": 0}


def is_traced(tree: Any) -> bool:
    """Whether a value in the tree is not known yet, because other JAX code is being traced."""
    return any(isinstance(x, Tracer) for x in jax.tree.leaves(tree))


# The number of kinds of arguments whose compiled code a function keeps. A kind is a class of systems; the limit keeps a
# program that makes ever new systems from filling the memory.
_MOST = 48


def compiled(function: Callable, options: dict[str, Any] = _OPTIONS) -> Callable:
    """jit with quick compilation; plain jit inside other JAX code, or if JAX does not know the options.

    What the functions of systems and methods among the arguments read is compared at every call. Code that was compiled
    before a change of it is not used afterwards.
    """
    quick, plain = jax.jit(function, compiler_options=options), jax.jit(function)
    known = True
    kinds: set[Any] = set()

    def forget() -> None:
        """Releases all compiled code."""
        kinds.clear()
        for each in (quick, plain):
            each.clear_cache()  # pyright: ignore[reportAttributeAccessIssue]

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal known
        arguments = current(arguments)
        kind = jax.tree.structure(arguments)
        if kind not in kinds:
            if len(kinds) >= _MOST:
                forget()
            kinds.add(kind)
        if known and not is_traced(arguments):
            try:
                return quick(*arguments)
            except Exception as error:
                if "compiler_options" in str(error):
                    return plain(*arguments)  # the call is inside other JAX code after all, through a closure
                if "compile option" not in str(error):
                    raise
                known = False
        return plain(*arguments)

    setattr(call, "forget", forget)  # noqa: B010 (functions have no such attribute by declaration)
    return call


def jit_fast_compile(function: Callable) -> Callable:
    """The same for functions that are called only a few times, such as measurements, which compile longer than they
    run."""
    return compiled(function, _HURRY)


# Compiled code takes rows in blocks of this length; the last block is padded.
_BLOCK = 1024


@cache
def _mapped(function: Callable) -> Callable:
    return jit_fast_compile(lambda shared, *rows: jax.vmap(lambda *row: function(shared, *row))(*rows))


def over_rows(function: Callable) -> Callable:
    """The function that evaluates function(shared, *row) at every row."""

    def call(shared: Any, *rows: Any) -> Any:
        rows = tuple(np.asarray(x, float) for x in rows)
        count = len(rows[0])
        if not count:
            raise ValueError("there are no rows to work on")
        parts = []
        for a in range(0, count, _BLOCK):
            here = [x[a : a + _BLOCK] for x in rows]
            missing = _BLOCK - len(here[0])
            if missing:
                here = [np.concatenate([x, np.broadcast_to(x[-1:], (missing, *x.shape[1:]))]) for x in here]
            made = _mapped(function)(shared, *here)
            parts.append(jax.tree.map(lambda x, kept=_BLOCK - missing: np.asarray(x)[:kept], made))
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)

    return call


def is_syntactically_constant(function: Callable[[Array], Array], q: Array) -> bool:
    """Whether the formula of a function (a mass matrix, a potential) does not contain q, whatever its parameters."""
    jaxpr = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(q.shape, q.dtype)).jaxpr
    return not any(_reached(jaxpr, [True] * len(jaxpr.invars)))


def _reached(jaxpr: Any, inputs: list[bool]) -> list[bool]:
    """Which results depend on the marked inputs."""
    reached = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}

    def marks(atoms) -> list[bool]:
        return [not isinstance(x, Literal) and x in reached for x in atoms]

    for equation in jaxpr.eqns:
        given = marks(equation.invars)
        inner = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
        found = _reached(inner.jaxpr, given) if inner is not None else [any(given)] * len(equation.outvars)
        reached.update(v for v, mark in zip(equation.outvars, found, strict=True) if mark)
    return marks(jaxpr.outvars)
