"""jax.jit with options for quick compilation."""

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.numerics.fingerprints import current
from dalembert.numerics.jax_internals import Literal, Tracer, trace_state_clean

# XLA's newer fusion emitters on CPU double the compile time of a step and gain nothing at these sizes.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
# This halves the compile time again, but the code takes twice as long to run.
_HURRY = {**_OPTIONS, "xla_backend_optimization_level": 0}


def is_traced(tree: Any) -> bool:
    """Whether a value in the tree is not known yet, because other JAX code is being traced."""
    return any(isinstance(x, Tracer) for x in jax.tree.leaves(tree))


def is_being_traced() -> bool:
    """Whether the code around this call is being traced, so that even operations on known numbers become part of it."""
    return not trace_state_clean() and is_traced(jnp.zeros(()) + 0)


# The number of kinds of arguments whose compiled code a function keeps. A kind is a class of systems; the limit keeps a
# program that makes ever new systems from filling the memory.
_MOST = 48


def compiled(function: Callable, options: dict[str, Any] = _OPTIONS) -> Callable:
    """jit with quick compilation; plain jit inside other JAX code, or if JAX does not know the options.

    What the functions of systems and methods among the arguments read is compared at every call. Code that was compiled
    before a change of it is not used afterwards. `during(work, *arguments)` of the result is the same function; if code
    must be compiled for these arguments, it calls `work()` meanwhile.
    """
    quick, plain = jax.jit(function, compiler_options=options), jax.jit(function)
    known = True
    kinds: set[Any] = set()
    ready: dict[Any, Any] = {}

    def forget() -> None:
        """Releases all compiled code."""
        kinds.clear()
        ready.clear()
        for each in (quick, plain):
            each.clear_cache()  # pyright: ignore[reportAttributeAccessIssue]

    def enter(arguments: Any) -> None:
        """Makes room for code for these arguments."""
        kind = jax.tree.structure(arguments)
        if kind not in kinds:
            if len(kinds) >= _MOST:
                forget()
            kinds.add(kind)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal known
        arguments = current(arguments)
        enter(arguments)
        if known and not is_traced(arguments):
            try:
                made = ready.get(_shapes(arguments)) if ready else None
                return quick(*arguments) if made is None else made(*arguments)
            except Exception as error:
                if "compiler_options" in str(error):
                    return plain(*arguments)  # the call is inside other JAX code after all, through a closure
                if "compile option" not in str(error):
                    raise
                known = False
        return plain(*arguments)

    def during(work: Callable[[], None], *arguments: Any) -> Any:
        arguments = current(arguments)
        if not known or is_traced(arguments) or jax.tree.structure(arguments) in kinds:
            return call(*arguments)
        try:
            lowered = quick.lower(*arguments)
        except Exception:
            return call(*arguments)  # which says what is wrong, or knows another way
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(lowered.compile)
            work()
        if made.exception() is None:
            # Values that JAX is tracing, and that the function reads from elsewhere, would be further arguments.
            with contextlib.suppress(TypeError):
                found = made.result()(*arguments)
                enter(arguments)
                ready[_shapes(arguments)] = made.result()
                return found
        return call(*arguments)

    # Functions have no such attributes by declaration.
    setattr(call, "forget", forget)  # noqa: B010
    setattr(call, "during", during)  # noqa: B010
    return call


def _shapes(tree: Any) -> Any:
    leaves, kind = jax.tree.flatten(tree)
    return (
        kind,
        *((np.shape(x), getattr(x, "dtype", type(x)), getattr(x, "weak_type", False)) for x in leaves),
    )


def jit_fast_compile(function: Callable) -> Callable:
    """The same for functions that are called only a few times, such as measurements, which compile longer than they
    run."""
    return compiled(function, _HURRY)


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
