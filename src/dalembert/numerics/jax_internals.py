"""Every JAX interface in use that JAX does not promise to keep stable, in one place.

JAX may change these interfaces in any minor version, so `pyproject.toml` declares the newest version that was tested.
To move to a newer JAX, raise that bound, run the tests, and fix here whatever broke.
"""

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
]
