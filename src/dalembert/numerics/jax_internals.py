"""Every JAX interface in use that JAX does not promise to keep stable, in one place.

JAX may change these interfaces in any minor version, so `pyproject.toml` declares the newest version that was tested.
To move to a newer JAX, raise that bound, run the tests, and fix here whatever broke.
"""

import jax
from jax._src.config import trace_context
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

__all__ = [
    "ClosedJaxpr",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Tracer",
    "ad",
    "batching",
    "jaxpr_as_fun",
    "mlir",
    "settings",
]


def settings() -> str:
    """Everything set in JAX that may change what a function is traced to."""
    context = [
        [sorted(map(str, getattr(x, name))) for name in x.__slots__ if name != "__weakref__"]
        if hasattr(x, "axis_sizes")
        else x
        for x in trace_context()
    ]
    return repr((sorted(jax.config.values.items()), context))
