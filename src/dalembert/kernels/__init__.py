"""Native speed from plain functions: scalar operations, and time loops that compile to one kernel."""

from dalembert.kernels.graph import Unsupported
from dalembert.kernels.scalarise import Scalars, join, scalarise, split
from dalembert.kernels.trig import sincos

__all__ = ["Scalars", "Unsupported", "join", "scalarise", "sincos", "split"]
