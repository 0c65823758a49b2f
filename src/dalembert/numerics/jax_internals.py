"""Every interface of JAX that is not covered by its promise of stability, in one place.

JAX may change these with any minor version, so that `pyproject.toml` declares the newest one that was tested. To move
to a newer JAX: raise that bound, run the tests, and mend what broke here.
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
