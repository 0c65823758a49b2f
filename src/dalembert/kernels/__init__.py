"""Native speed for plain functions: operations on scalars or arrays, and time loops that compile to one kernel."""

from dalembert.kernels.adjoint import Adjoint
from dalembert.kernels.array_loop import ArrayLoop
from dalembert.kernels.choice import time_loop, wanted_form
from dalembert.kernels.graph import Unsupported
from dalembert.kernels.many_digits import SOLVED, ManyDigits
from dalembert.kernels.native import Loop, TimeLoop, pack
from dalembert.kernels.rows import loop_of_no_steps, over_rows
from dalembert.kernels.scalars import Scalars, join, scalarise, split
from dalembert.kernels.sine_cosine import sincos
from dalembert.kernels.waiting import making

__all__ = [
    "SOLVED",
    "Adjoint",
    "ArrayLoop",
    "Loop",
    "ManyDigits",
    "Scalars",
    "TimeLoop",
    "Unsupported",
    "join",
    "loop_of_no_steps",
    "making",
    "over_rows",
    "pack",
    "scalarise",
    "sincos",
    "split",
    "time_loop",
    "wanted_form",
]
