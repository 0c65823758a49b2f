"""jax.jit, asked to compile quickly."""

import functools
from collections.abc import Callable
from typing import Any

import jax

# XLA's newer fusion emitters on CPU double the compile time of a step and gain nothing at these sizes.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}


def compiled(function: Callable) -> Callable:
    """jit with quick compilation; plain jit inside other JAX code, or where JAX does not know the option."""
    quick, plain = jax.jit(function, compiler_options=_OPTIONS), jax.jit(function)
    known = True

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal known
        inside = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(arguments))
        if known and not inside:
            try:
                return quick(*arguments)
            except Exception as error:
                if "compiler_options" in str(error):
                    return plain(*arguments)  # inside other JAX code after all, through a closure
                if "compile option" not in str(error):
                    raise
                known = False
        return plain(*arguments)

    return call
