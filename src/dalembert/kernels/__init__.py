"""Native speed from plain functions: scalar operations, and time loops that compile to one kernel."""

from dalembert.kernels.adjoint import Adjoint
from dalembert.kernels.graph import Unsupported
from dalembert.kernels.many import LANES, many
from dalembert.kernels.native import Loop, pack
from dalembert.kernels.scalarise import Scalars, evaluate, join, scalarise, split
from dalembert.kernels.trig import sincos

__all__ = [
    "LANES",
    "Adjoint",
    "Loop",
    "Scalars",
    "Unsupported",
    "evaluate",
    "join",
    "many",
    "pack",
    "scalarise",
    "sincos",
    "split",
]
