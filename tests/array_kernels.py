"""Any function of arrays as machine code with loops over memory."""

import ctypes
import math

import jax
import numpy as np

from dalembert.kernels.array_code import Program
from dalembert.kernels.drivers import Driver
from dalembert.kernels.native import LOOP_PASSES, machine, pack
from dalembert.kernels.traced import Traced


def array_kernel(function, *examples):
    """The function, for arguments of the shapes and types of the examples; returns a tree of NumPy arrays."""
    traced = Traced(function, *examples)
    w = Driver()
    names = [f"%a{k}" for k in range(len(examples))]
    w.do(f"call void @inner({', '.join(f'ptr {x}' for x in [*names, '%out'])})")
    w.do("ret void")
    outer = w.function(f"define void @outer({', '.join(f'ptr {x}' for x in [*names, '%out'])})")
    code = machine(Program.of(traced).text("inner"), outer, passes=LOOP_PASSES)
    call = code.function("outer", [ctypes.c_void_p] * (len(examples) + 1))
    size = sum(math.prod(shape) for shape, _ in traced.results)

    def run(*arguments):
        vectors, out = [pack(x) for x in arguments], np.full(max(1, size), np.nan)
        call(*(x.ctypes.data for x in (*vectors, out)))
        leaves, position = [], 0
        for shape, dtype in traced.results:
            n = math.prod(shape)
            leaves.append(out[position : position + n].reshape(shape).astype(dtype))
            position += n
        return jax.tree.unflatten(traced.result_tree, leaves)

    return run
