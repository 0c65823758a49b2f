"""Machine code that calls other functions on vectors of float64, again and again."""

from typing import Any

from dalembert.kernels.array_code import Program
from dalembert.kernels.native import Block, Function, Text
from dalembert.kernels.scalars import Scalars
from dalembert.kernels.traced import Traced, dtypes_of


class Driver(Block):
    """A writer of such functions."""

    def entry(self, pointer: str, index: Any) -> str:
        """The address of an entry."""
        return self.put(f"getelementptr double, ptr {pointer}, i64 {index}")

    def room(self, entries: int) -> str:
        """A new vector."""
        return self.put(f"alloca [{max(1, entries)} x double], align 32")

    def heap(self, entries: int) -> str:
        """A new vector that `release` gives back; threads have little room for large ones."""
        self.declared |= {"declare noalias ptr @malloc(i64)", "declare void @free(ptr)"}
        return self.put(f"call noalias ptr @malloc(i64 {8 * max(1, entries)})")

    def release(self, pointer: str) -> None:
        """Gives the memory of a vector back."""
        self.do(f"call void @free(ptr {pointer})")

    def copy(self, target: str, source: str, entries: int) -> None:
        """Copies a vector."""
        self.declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {8 * entries}, i1 false)")

    def move(self, target: str, source: str) -> None:
        """Copies one number."""
        self.do(f"store double {self.put(f'load double, ptr {source}')}, ptr {target}")

    def add(self, target: str, source: str, entries: int) -> None:
        """Adds a vector to another."""

        def one(i: str) -> None:
            a, b = self.entry(target, i), self.entry(source, i)
            total = self.put(
                f"fadd double {self.put(f'load double, ptr {a}')}, {self.put(f'load double, ptr {b}')}"
            )
            self.do(f"store double {total}, ptr {a}")

        self.each(0, entries, one)

    def gather(self, target: str, source: str, entries: int, stride: str, member: str) -> None:
        """Copies the numbers of one member, of which each is in a row of `stride` members."""
        self.each(0, entries, lambda i: self.move(self.entry(target, i), self.of(source, i, stride, member)))

    def of(self, pointer: str, i: Any, stride: str, member: str) -> str:
        """The address of number i of a member."""
        return self.entry(pointer, self.put(f"add i64 {self.put(f'mul i64 {stride}, {i}')}, {member}"))


def vector_function(name: str, part: Traced, arrays: bool) -> Text:
    """The function @name(arguments..., result) on vectors of float64, and what it uses."""
    if arrays:
        return Program.of(part).text(name)
    w = Block()
    inputs = [
        w.load(f"%in{k}", i, t)
        for k, shapes in enumerate(part.arguments)
        for i, t in enumerate(dtypes_of(shapes))
    ]
    results = Function(Scalars(part).plan).write(w, inputs)
    for i, (x, t) in enumerate(zip(results, dtypes_of(part.results), strict=True)):
        w.store(x, t, "%out", i)
    w.do("ret void")
    pointers = "".join(f"ptr noalias %in{k}, " for k in range(len(part.arguments)))
    return w.function(f"define internal void @{name}({pointers}ptr noalias %out)")
