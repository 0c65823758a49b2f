"""Time loops as machine code with arrays in memory, for large systems."""

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from dalembert.kernels.array_code import Program
from dalembert.kernels.llvm import Writer
from dalembert.kernels.native import Machine, dtypes_of

_POINTER, _LONG = ctypes.c_void_p, ctypes.c_int64


class Driver(Writer):
    """A writer of functions that call others on vectors of float64."""

    def entry(self, pointer: str, index: Any) -> str:
        """The address of an entry."""
        return self.put(f"getelementptr double, ptr {pointer}, i64 {index}")

    def copy(self, target: str, source: str, entries: int) -> None:
        """Copies a vector."""
        self.declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {8 * entries}, i1 false)")

    def move(self, target: str, source: str) -> None:
        """Copies one number."""
        self.do(f"store double {self.put(f'load double, ptr {source}')}, ptr {target}")

    def count(self, first: Any, end: Any, body: Callable[[str], None]) -> None:
        """Writes body(i) for i from `first` up to `end`."""
        before, head, inside, done = self.block_name, self.name("each"), self.name("one"), self.name("all")
        self.do(f"br label %{head}")
        self.block(head)
        i = self.put(f"phi i64 [{first}, %{before}]")
        place = len(self.lines) - 1
        self.do(f"br i1 {self.put(f'icmp slt i64 {i}, {end}')}, label %{inside}, label %{done}")
        self.block(inside)
        body(i)
        self.lines[place] += f", [{self.put(f'add i64 {i}, 1')}, %{self.block_name}]"
        self.do(f"br label %{head}")
        self.block(done)


class ArrayLoop:
    """The functions begin, step and output of a time loop; see `Loop`, whose interface this has."""

    def __init__(self, begin: Callable, step: Callable, output: Callable, report: Callable, counted: Callable, parameters: Any, start: Any):
        self.made = (begin, step, output, report, counted, parameters, start)
        self.begin = Program(begin, parameters, start)
        self.parameters = dtypes_of(self.begin.inputs[0])
        self.start = dtypes_of(self.begin.inputs[1])
        self.carry_tree, self.carry_shapes = self.begin.result_tree, self.begin.results
        carry = jax.tree.unflatten(self.carry_tree, [jax.ShapeDtypeStruct(*x) for x in self.carry_shapes])
        self.step = Program(step, parameters, carry)
        self.output = Program(output, parameters, carry)
        self.row_tree, self.row_shapes = self.output.result_tree, self.output.results
        self.carry, self.row = dtypes_of(self.carry_shapes), dtypes_of(self.row_shapes)
        self.distinct = list(range(len(self.row)))
        self.copies = self.distinct
        self.report, self.counted = self.entries(report), self.entries(counted)
        self.code = self.report[0]

    def entries(self, which: Callable) -> list[int]:
        """The positions of the scalars `which(carry)` among the entries of the carry."""
        number = jax.tree.unflatten(self.carry_tree, range(len(self.carry_shapes)))
        return [sum(math.prod(s) for s, _ in self.carry_shapes[:k]) for k in which(number)]

    def rows(self, block: Any) -> Any:
        """Rows of numbers as the tree of arrays that `output` returns; see `Loop.rows`."""
        leaves, position = [], 0
        for shape, dtype in self.row_shapes:
            size = math.prod(shape)
            leaves.append(block[:, position : position + size].reshape(len(block), *shape).astype(dtype))
            position += size
        return jax.tree.unflatten(self.row_tree, leaves)

    def single(self) -> tuple[Callable, Callable]:
        """start(parameters, start, carry, row) and run(parameters, carry, first, every, count, rows, capacity)."""
        parts, declared = [], set()
        for name, program in (("begin", self.begin), ("step", self.step), ("output", self.output)):
            text, names = program.text(name)
            parts.append(text)
            declared |= names
        for text, names in (self._start(), self._run()):
            parts.append(text)
            declared |= names
        code = Machine("\n".join([*parts, *sorted(declared)]), loops=True)
        start = code.function("start", [_POINTER] * 4)
        run = code.function("run", [_POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER, _LONG], _LONG)
        return start, run

    def _start(self) -> tuple[str, set[str]]:
        w = Driver()
        w.do("call void @begin(ptr %parameters, ptr %first, ptr %carry)")
        w.do("call void @output(ptr %parameters, ptr %carry, ptr %row)")
        w.do("ret void")
        return w.function("define void @start(ptr noalias %parameters, ptr noalias %first, ptr noalias %carry, ptr noalias %row)")

    def _run(self) -> tuple[str, set[str]]:
        w = Driver()
        new = w.put(f"alloca [{len(self.carry)} x double]")
        w.do("br label %segment")
        w.block("segment")
        left = w.put("phi i64 [%count, %entry], [%new_left, %saved]")
        size = w.put("phi i64 [%first, %entry], [%every, %saved]")
        row = w.put("phi i64 [0, %entry], [%new_row, %saved]")
        few = w.put(f"icmp slt i64 {left}, {size}")
        todo = w.put(f"select i1 {few}, i64 {left}, i64 {size}")
        w.do("br label %more")
        w.block("more")
        done = w.put("phi i64 [0, %segment], [%following, %good]")
        w.do(f"br i1 {w.put(f'icmp slt i64 {done}, {todo}')}, label %make, label %stop")
        w.block("make")
        w.do(f"call void @step(ptr %parameters, ptr %carry, ptr {new})")
        code = w.put(f"load double, ptr {w.entry(new, self.code)}")
        w.do(f"br i1 {w.put(f'fcmp oeq double {code}, 0.0')}, label %good, label %bad")
        w.block("good")
        w.copy("%carry", new, len(self.carry))
        w.lines.append(f"  %following = add i64 {done}, 1")
        w.do("br label %more")
        w.block("bad")
        for k in self.report:
            w.move(w.entry("%carry", k), w.entry(new, k))
        w.do("br label %stop")
        w.block("stop")
        target = w.entry("%rows", w.put(f"mul i64 {row}, {len(self.row)}"))
        w.do(f"call void @output(ptr %parameters, ptr %carry, ptr {target})")
        code = w.put(f"load double, ptr {w.entry('%carry', self.code)}")
        fine = w.put(f"fcmp oeq double {code}, 0.0")
        whole = w.put(f"icmp eq i64 {done}, {size}")
        full = w.put(f"zext i1 {w.put(f'and i1 {fine}, {whole}')} to i64")
        w.lines.append(f"  %new_row = add i64 {row}, {full}")
        w.lines.append(f"  %new_left = sub i64 {left}, {done}")
        more = w.put("icmp sgt i64 %new_left, 0")
        room = w.put("icmp slt i64 %new_row, %capacity")
        again = w.put(f"and i1 {w.put(f'and i1 {fine}, {more}')}, {room}")
        w.do("br label %saved")
        w.block("saved")
        w.do(f"br i1 {again}, label %segment, label %end")
        w.block("end")
        w.do("ret i64 %new_row")
        return w.function(
            "define i64 @run(ptr noalias %parameters, ptr noalias %carry, i64 %first, i64 %every, i64 %count, "
            "ptr noalias %rows, i64 %capacity)"
        )
