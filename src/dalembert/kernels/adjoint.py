"""The reverse-mode derivative of a time loop: machine code that goes from the last step to the first."""

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dalembert.kernels.llvm import Value
from dalembert.kernels.native import TRACING, Block, Function, Loop, dtypes_of, machine
from dalembert.kernels.scalars import Scalars
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


def _places(shapes: list[tuple]) -> list[int]:
    """The positions of the entries that are floats."""
    return [i for i, dtype in enumerate(dtypes_of(shapes)) if dtype.kind == "f"]


class Adjoint:
    """The pullback of a Loop, in pieces that the caller puts together. All arrays are float64.

    `back(parameters, states, base, count, total, every, wanted, lam, sums)` goes from step base + count to step
    `base`; `states` holds the carry at each of these steps. `wanted` are the cotangents of the saved rows, `lam` those
    of the carry (changed in place), and `sums` those of the parameters (added to).
    `finish(parameters, start, lam, wanted, sums, ends)` handles the start.
    """

    @making(TRACING)
    def __init__(self, loop: Loop):
        begin, step, output, _, _, parameters, start = loop.made
        shapes = loop.carry_shapes
        carry = jax.tree.unflatten(loop.carry_tree, [jax.ShapeDtypeStruct(*x) for x in shapes])
        row = jax.tree.unflatten(loop.row_tree, [jax.ShapeDtypeStruct(*x) for x in loop.row_shapes])
        lam, wanted = _floats(carry)[0], _floats(row)[0]
        self.carry, self.row = _places(shapes), _places(loop.row_shapes)
        self.parameters, self.start = (
            _places(loop.begin.inputs[: _count(parameters)]),
            _places(loop.begin.inputs[_count(parameters) :]),
        )
        fixed = len(loop.parameters)
        self.step = Scalars(_vjp(step), parameters, carry, lam, fixed=fixed)
        self.output = Scalars(_vjp(output), parameters, carry, wanted, fixed=fixed)

        def begin_and_row(p, x):
            first = begin(p, x)
            return first, output(p, first)

        self.begin = Scalars(_vjp(begin_and_row), parameters, start, [*lam, *wanted], fixed=fixed)
        self.loop = loop
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        code = machine(self._back(), self._finish())
        self.back = code.function(
            "back", [pointer, pointer, whole, whole, whole, whole, pointer, pointer, pointer]
        )
        self.finish = code.function("finish", [pointer] * 6)

    def _back(self) -> tuple[str, set[str]]:
        w, loop, float64 = Block(), self.loop, np.dtype(float)
        parameters = [w.load("%parameters", i, t) for i, t in enumerate(loop.parameters)]
        lam = [w.load("%lam", i, float64) for i in range(len(self.carry))]
        sums = [w.load("%sums", i, float64) for i in range(len(self.parameters))]
        kinds = [float64] * (len(lam) + len(sums))
        w.do("br label %loop")
        w.block("loop")
        values, places = w.phis(kinds, [*lam, *sums], "entry")
        left, left_place = w.counter("%count", "entry")
        w.do(f"br i1 {w.put(f'icmp sgt i64 {left}, 0')}, label %look, label %end")
        w.block("look")
        step = w.put(f"add i64 %base, {left}")
        saved = w.put(f"icmp eq i64 {w.put(f'srem i64 {step}, %every')}, 0")
        last = w.put(f"icmp eq i64 {step}, %total")
        w.do(f"br i1 {w.put(f'or i1 {saved}, {last}')}, label %row, label %step")
        w.block("row")
        upper = w.put(f"add i64 {step}, {w.put('sub i64 %every, 1')}")
        index = w.put(f"mul i64 {w.put(f'sdiv i64 {upper}, %every')}, {len(self.row)}")
        at = w.put(f"getelementptr double, ptr %wanted, i64 {index}")
        wanted = [w.load(at, i, float64) for i in range(len(self.row))]
        found = self._pull(w, self.output, parameters, left, wanted)
        # The results are the parameters, then the carry.
        found = [*found[len(sums) :], *found[: len(sums)]]
        added = [Value(w.put(f"fadd double {a.text}, {b.text}")) for a, b in zip(values, found, strict=True)]
        from_row = w.block_name
        w.do("br label %step")
        w.block("step")
        now = [
            Value(w.put(f"phi double [{a.text}, %look], [{b.text}, %{from_row}]"))
            for a, b in zip(values, added, strict=True)
        ]
        before = w.put(f"sub i64 {left}, 1")
        found = self._pull(w, self.step, parameters, before, now[: len(lam)])
        new_sums = [
            Value(w.put(f"fadd double {a.text}, {b.text}"))
            for a, b in zip(now[len(lam) :], found[: len(sums)], strict=True)
        ]
        w.close(places, [*found[len(sums) :], *new_sums])
        w.lines[left_place] += f", [{before}, %{w.block_name}]"
        w.do("br label %loop")
        w.block("end")
        for i in range(len(lam)):
            w.store(values[i], float64, "%lam", i)
        for i in range(len(sums)):
            w.store(values[len(lam) + i], float64, "%sums", i)
        w.do("ret void")
        head = (
            "define void @back(ptr noalias %parameters, ptr noalias %states, i64 %base, i64 %count, i64 %total, "
            "i64 %every, ptr noalias %wanted, ptr noalias %lam, ptr noalias %sums)"
        )
        return w.function(head)

    def _pull(self, w: Block, scalars: Scalars, parameters: list[Value], index: str, cotangents: list[Value]):
        """Writes a pullback at entry `index` of the states; returns its results."""
        at = w.put(
            f"getelementptr double, ptr %states, i64 {w.put(f'mul i64 {index}, {len(self.loop.carry)}')}"
        )
        state = [w.load(at, i, t) for i, t in enumerate(self.loop.carry)]
        return Function(scalars.plan).write(w, [*parameters, *state, *cotangents])

    def _finish(self) -> tuple[str, set[str]]:
        w, loop, float64 = Block(), self.loop, np.dtype(float)
        parameters = [w.load("%parameters", i, t) for i, t in enumerate(loop.parameters)]
        rest = dtypes_of(loop.begin.inputs)[len(parameters) :]
        start = [w.load("%start", i, t) for i, t in enumerate(rest)]
        lam = [w.load("%lam", i, float64) for i in range(len(self.carry))]
        wanted = [w.load("%wanted", i, float64) for i in range(len(self.row))]
        found = Function(self.begin.plan).write(w, [*parameters, *start, *lam, *wanted])
        for i in range(len(self.parameters)):
            total = w.put(f"fadd double {found[i].text}, {w.load('%sums', i, float64).text}")
            w.store(Value(total), float64, "%sums", i)
        for i, x in enumerate(found[len(self.parameters) :]):
            w.store(x, float64, "%ends", i)
        w.do("ret void")
        head = (
            "define void @finish(ptr noalias %parameters, ptr noalias %start, ptr noalias %lam, ptr noalias %wanted, "
            "ptr noalias %sums, ptr noalias %ends)"
        )
        return w.function(head)


def _count(tree: Tree) -> int:
    return len(jax.tree.leaves(tree))
