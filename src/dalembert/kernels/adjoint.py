"""The reverse-mode derivative of a time loop: machine code that goes from the last step to the first."""

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dalembert.kernels.choice import with_arrays
from dalembert.kernels.drivers import Driver, vector_function
from dalembert.kernels.native import LOOP_PASSES, PASSES, TRACING, Once, Text, TimeLoop, machine
from dalembert.kernels.traced import Traced
from dalembert.kernels.waiting import making

Tree = Any


def _floats(tree: Tree) -> tuple[list, Callable[[list], Tree]]:
    """The leaves that have derivatives, and a function that puts such leaves back into the tree."""
    leaves, form = jax.tree.flatten(tree)
    real = [jax.numpy.issubdtype(jax.numpy.result_type(x), np.floating) for x in leaves]

    def back(values: list) -> Tree:
        rest = iter(values)
        return jax.tree.unflatten(form, [next(rest) if r else x for x, r in zip(leaves, real, strict=True)])

    return [x for x, r in zip(leaves, real, strict=True) if r], back


def _vjp(function: Callable) -> Callable:
    """The function from (parameters, x, cotangents) to the cotangents of parameters and x, for float leaves only."""

    def vjp(parameters: Tree, x: Tree, cotangents: list) -> tuple[list, list]:
        given, with_parameters = _floats(parameters)
        inside, with_x = _floats(x)
        _, back = jax.vjp(lambda p, y: _floats(function(with_parameters(p), with_x(y)))[0], given, inside)
        return back(cotangents)

    return vjp


class Adjoint:
    """The pullback of a time loop, in pieces that the caller puts together. All arrays are float64.

    `back(parameters, states, base, count, total, every, wanted, lam, sums)` goes from step base + count to step
    `base`; `states` holds the carry at each of these steps. `wanted` are the cotangents of the saved rows, `lam` those
    of the carry (changed in place), and `sums` those of the parameters (added to).
    `finish(parameters, start, lam, wanted, sums, ends)` handles the start.
    """

    @making(TRACING)
    def __init__(self, loop: TimeLoop):
        begin, step, output, _, _, parameters, start = loop.made
        carry = jax.tree.unflatten(loop.carry_tree, [jax.ShapeDtypeStruct(*x) for x in loop.carry_shapes])
        row = jax.tree.unflatten(loop.row_tree, [jax.ShapeDtypeStruct(*x) for x in loop.row_shapes])
        lam, wanted = _floats(carry)[0], _floats(row)[0]
        self.carry, self.row, self.parameters, self.start = (
            [i for i, dtype in enumerate(dtypes) if dtype.kind == "f"]
            for dtypes in (loop.carry, loop.row, loop.parameters, loop.start)
        )
        """The positions of the entries that have derivatives."""

        def begin_and_row(p, x):
            first = begin(p, x)
            return first, output(p, first)

        parts = {
            "pull_step": Traced(_vjp(step), parameters, carry, lam),
            "pull_output": Traced(_vjp(output), parameters, carry, wanted),
            "pull_begin": Traced(_vjp(begin_and_row), parameters, start, [*lam, *wanted]),
        }
        arrays = with_arrays(*parts.values())
        once = Once(vector_function("pull_begin", parts.pop("pull_begin"), arrays), self._finish())
        texts = [vector_function(name, part, arrays) for name, part in parts.items()]
        code = machine(
            *texts, self._back(len(loop.carry)), once=once, passes=LOOP_PASSES if arrays else PASSES
        )
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        self.back = code.function(
            "back", [pointer, pointer, whole, whole, whole, whole, pointer, pointer, pointer]
        )
        self.finish = code.function("finish", [pointer] * 6)

    def _back(self, width: int) -> Text:
        w, lam, sums, row = Driver(), len(self.carry), len(self.parameters), len(self.row)
        found = w.room(sums + lam)  # the parameters, then the carry
        of_carry = w.entry(found, sums)

        def once(i: str) -> None:
            left = w.put(f"sub i64 %count, {i}")
            step = w.put(f"add i64 %base, {left}")
            saved = w.put(f"icmp eq i64 {w.put(f'srem i64 {step}, %every')}, 0")
            last = w.put(f"icmp eq i64 {step}, %total")
            w.when(w.put(f"or i1 {saved}, {last}"), lambda: from_row(step, left))
            pull("step", w.put(f"sub i64 {left}, 1"), "%lam")
            w.copy("%lam", of_carry, lam)
            w.add("%sums", found, sums)

        def from_row(step: str, left: str) -> None:
            upper = w.put(f"add i64 {step}, {w.put('sub i64 %every, 1')}")
            index = w.put(f"mul i64 {w.put(f'sdiv i64 {upper}, %every')}, {row}")
            pull("output", left, w.entry("%wanted", index))
            w.add("%lam", of_carry, lam)
            w.add("%sums", found, sums)

        def pull(function: str, index: str, cotangents: str) -> None:
            state = w.entry("%states", w.put(f"mul i64 {index}, {width}"))
            w.do(f"call void @pull_{function}(ptr %parameters, ptr {state}, ptr {cotangents}, ptr {found})")

        w.each(0, "%count", once)
        w.do("ret void")
        return w.function(
            "define void @back(ptr noalias %parameters, ptr noalias %states, i64 %base, i64 %count, i64 %total, "
            "i64 %every, ptr noalias %wanted, ptr noalias %lam, ptr noalias %sums)"
        )

    def _finish(self) -> Text:
        w, lam, sums, row = Driver(), len(self.carry), len(self.parameters), len(self.row)
        cotangents, found = w.room(lam + row), w.room(sums + len(self.start))
        w.copy(cotangents, "%lam", lam)
        w.copy(w.entry(cotangents, lam), "%wanted", row)
        w.do(f"call void @pull_begin(ptr %parameters, ptr %start, ptr {cotangents}, ptr {found})")
        w.add("%sums", found, sums)
        w.copy("%ends", w.entry(found, sums), len(self.start))
        w.do("ret void")
        return w.function(
            "define void @finish(ptr noalias %parameters, ptr noalias %start, ptr noalias %lam, ptr noalias %wanted, "
            "ptr noalias %sums, ptr noalias %ends)"
        )
