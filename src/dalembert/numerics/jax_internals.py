"""Every JAX interface in use that JAX does not promise to keep stable, in one place.

JAX may change these interfaces in any minor version, so `pyproject.toml` declares the newest version that was tested.
To move to a newer JAX, raise that bound, run the tests, and fix here whatever broke.
"""

from typing import Any

import jax
from jax._src.config import trace_context
from jax._src.core import trace_state_clean
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

__all__ = [
    "ClosedJaxpr",
    "Jitted",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Tracer",
    "ad",
    "batching",
    "jaxpr_as_fun",
    "mlir",
    "scan_parts",
    "settings",
    "trace_state_clean",
]


Jitted = type(jax.jit(lambda: None))
"""Functions wrapped in jax.jit, which keeps its own notes beside them."""


def scan_parts(equation: Any) -> tuple[int, int]:
    """How many inputs of a scan stay the same, and how many values it carries; its sequences follow them.

    Minor versions of JAX name these numbers differently. The body sees a sequence with one axis less.
    """
    inner = equation.params["jaxpr"].jaxpr
    stacked, read = (
        sum(v.aval.ndim != x.aval.ndim for v, x in zip(outside, inside, strict=True))
        for outside, inside in ((equation.outvars, inner.outvars), (equation.invars, inner.invars))
    )
    carried = len(equation.outvars) - stacked
    return len(equation.invars) - read - carried, carried


def settings() -> str:
    """Everything set in JAX that may change what a function is traced to."""
    context = [
        [sorted(map(str, getattr(x, name))) for name in x.__slots__ if name != "__weakref__"]
        if type(x).__name__ == "AxisEnv"  # it is shown by its place in memory
        else x
        for x in trace_context()
    ]
    return repr((sorted(jax.config.values.items()), context))
