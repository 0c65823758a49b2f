"""jax.jit, asked to compile quickly."""

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
# Half the compile time again, for code that runs twice as long.
_HURRY = {**_OPTIONS, "xla_backend_optimization_level": 0}


def is_traced(tree: Any) -> bool:
    """Whether a value in the tree is unknown yet, because other JAX code is being traced."""
    return any(isinstance(x, Tracer) for x in jax.tree.leaves(tree))


# Kinds of arguments whose compiled code a function keeps. A kind is a class of systems, so that a program which makes
# ever new systems does not fill the memory.
_MOST = 48


def compiled(function: Callable, options: dict[str, Any] = _OPTIONS) -> Callable:
    """jit with quick compilation; plain jit inside other JAX code, or where JAX does not know the options.

    Systems and methods among the arguments are read anew: what was compiled before something that their functions
    read has changed is not used after.
    """
    quick, plain = jax.jit(function, compiler_options=options), jax.jit(function)
    known = True
    kinds: set[Any] = set()

    def forget() -> None:
        """Releases all that is compiled."""
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
                    return plain(*arguments)  # inside other JAX code after all, through a closure
                if "compile option" not in str(error):
                    raise
                known = False
        return plain(*arguments)

    setattr(call, "forget", forget)  # noqa: B010 (functions have no such attribute by declaration)
    return call


def jit_fast_compile(function: Callable) -> Callable:
    """The same for what is called a few times: measurements, whose compilation takes longer than their work."""
    return compiled(function, _HURRY)


# Vectors go through compiled code in blocks of this length, the last one filled up.
_BLOCK = 1024


@cache
def _mapped(function: Callable) -> Callable:
    return jit_fast_compile(lambda shared, *rows: jax.vmap(lambda *row: function(shared, *row))(*rows))


def over_rows(function: Callable) -> Callable:
    """The function of (shared, *row) at every row."""

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
