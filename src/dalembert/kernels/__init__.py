"""Native speed for plain functions: scalar operations, and time loops that compile to one kernel."""

from dalembert.kernels.adjoint import Adjoint
from dalembert.kernels.graph import Unsupported
from dalembert.kernels.native import Loop, lanes_here, many, pack
from dalembert.kernels.rows import over_rows
from dalembert.kernels.scalars import Scalars, join, scalarise, split
from dalembert.kernels.sine_cosine import sincos
from dalembert.kernels.waiting import making

__all__ = [
    "Adjoint",
    "Loop",
    "Scalars",
    "Unsupported",
    "join",
    "lanes_here",
    "making",
    "many",
    "over_rows",
    "pack",
    "scalarise",
    "sincos",
    "split",
]
