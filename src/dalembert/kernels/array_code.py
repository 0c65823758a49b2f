"""The machine code of a graph of arrays: loops over memory, one nest per operation or chain of operations."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dalembert.kernels.array_rules import apply
from dalembert.kernels.array_writer import Array, ArrayWriter, Buffer, Lazy, Memory, Single
from dalembert.kernels.arrays import Arrays, Item, Op, Region, outer, prune
from dalembert.kernels.llvm import TYPES
from dalembert.kernels.outlined import BEGIN, CUT, END
from dalembert.kernels.traced import Shapes, Traced

Known = dict[int, Array]
"""The arrays of items, by their numbers."""


class Translator(ArrayWriter):
    """Writes a whole graph, with its loops and conditionals."""

    def write(self, region: Region, known: Known) -> list[Array]:
        """Writes the operations of a region; `known` are the arrays of its inputs and of the regions around it."""
        known = dict(known)
        last, uses = _uses(region)

        def read(item: Item) -> Array:
            return self.constant(item.value) if item.value is not None else known[item.id]

        self.w.lines.append(BEGIN)
        for k, op in enumerate(region.ops):
            self.w.lines.append(CUT)
            arrays = [read(x) for x in op.args]
            if op.regions:
                for inner in outer(op):
                    if inner.id in known:
                        known[inner.id] = self.stored(known[inner.id])
                made = getattr(self, f"_{op.name}")(op, known, *arrays)
            else:
                made = apply(self, op, arrays)
            del arrays
            for item, x in zip(op.results, made, strict=True):
                if item.id in uses:
                    # What is read once is computed where it is read.
                    shared = x.size == 1 or (uses[item.id] > 1 and not x.is_free)
                    known[item.id] = self.stored(x) if isinstance(x, Lazy) and shared else x
            del made
            for number in last.get(k, ()):
                known.pop(number, None)
        self.w.lines.append(END)
        return [read(x) for x in region.results]

    def _inside(self, region: Region, known: Known, inputs: Sequence[Array]) -> list[Array]:
        return self.write(region, {**known, **{x.id: y for x, y in zip(region.inputs, inputs, strict=True)}})

    def _while(self, op: Op, known: Known, *start: Array) -> Sequence[Array]:
        w, (condition, body) = self.w, op.regions
        carry = [self.copy(x) for x in start]
        head, inside, done = (w.name(x) for x in ("while", "do", "done"))
        w.do(f"br label %{head}")
        w.block(head)
        (going,) = self._inside(condition, known, carry)
        w.do(f"br i1 {going.at(w, ()).text}, label %{inside}, label %{done}")
        w.block(inside)
        self._assign(carry, self._inside(body, known, carry))
        w.do(f"br label %{head}")
        w.block(done)
        return carry

    def _assign(self, places: Sequence[Buffer], values: Sequence[Array]) -> None:
        """Writes values into the places; a value may read other places."""
        memories = [place.memory for place in places]
        made: list[Array | None] = []
        for place, x in zip(places, values, strict=True):
            if isinstance(x, Buffer) and x.memory is place.memory and x.strides == place.strides:
                made.append(None)
            elif isinstance(x, Single) or (isinstance(x, Buffer) and x.memory not in memories):
                made.append(x)
            else:
                made.append(self.copy(x))
        for place, x in zip(places, made, strict=True):
            if x is not None:
                self.fill(place, x)

    def _cond(self, op: Op, known: Known, index: Array) -> Sequence[Array]:
        w, chosen = self.w, index.at(self.w, ()).text
        outs = [self.new(x.shape, x.dtype) for x in op.results]
        done, names = w.name("joined"), [w.name("branch") for _ in op.regions]
        if index.dtype == bool:
            w.do(f"br i1 {chosen}, label %{names[1]}, label %{names[0]}")
        else:
            kind = TYPES[index.dtype]
            low = w.put(f"icmp slt {kind} {chosen}, 0")
            chosen = w.put(f"select i1 {low}, {kind} 0, {kind} {chosen}")
            cases = " ".join(f"{kind} {k}, label %{n}" for k, n in enumerate(names[:-1]))
            w.do(f"switch {kind} {chosen}, label %{names[-1]} [{cases}]")
        for name, branch in zip(names, op.regions, strict=True):
            w.block(name)
            for out, x in zip(outs, self.write(branch, known), strict=True):
                self.fill(out, x)
            w.do(f"br label %{done}")
        w.block(done)
        return [Single(x.at(w, ()), (), x.dtype) if x.shape == () else x for x in outs]

    def _scan(self, op: Op, known: Known, *inputs: Array) -> Sequence[Array]:
        (body,), number, length = op.regions, op.params["carry"], op.params["length"]
        carry = [self.copy(x) for x in inputs[:number]]
        sources = [self.buffer(x) for x in inputs[number:]]
        stacks = [self.new(x.shape, x.dtype) for x in op.results[number:]]

        def row(x: Buffer, i: Any) -> Buffer:
            offset = self.plus(self.times(i, x.strides[0]), x.offset)
            return Buffer(x.shape[1:], x.dtype, x.memory, x.strides[1:], offset)

        def once(i: Any) -> None:
            i = self.from_end(length, i) if op.params["reverse"] else i
            results = self._inside(body, known, [*carry, *(row(x, i) for x in sources)])
            for y, x in zip(stacks, [self.stored(x) for x in results[number:]], strict=True):
                self.fill(row(y, i), x)
            self._assign(carry, results[:number])

        self.loop(length, once, 1)
        return [*carry, *stacks]


def read_by(op: Op) -> list[Item]:
    """The items that an operation reads, those that its regions read from around it included."""
    return [*op.args, *(outer(op) if op.regions else ())]


def _uses(region: Region) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The items that each operation is the last to read, and how often each item is read."""
    last: dict[int, int] = {}
    uses: dict[int, int] = {}
    for k, op in enumerate(region.ops):
        for x in op.args:
            uses[x.id] = uses.get(x.id, 0) + 1
            last[x.id] = k
        if op.regions:
            for x in outer(op):
                uses[x.id] = uses.get(x.id, 0) + 2
                last[x.id] = k
    for x in region.results:
        uses[x.id] = uses.get(x.id, 0) + 1
        last[x.id] = len(region.ops)
    ends: dict[int, list[int]] = {}
    for number, k in last.items():
        ends.setdefault(k, []).append(number)
    return ends, uses


MOVES = {"broadcast_in_dim", "iota", "reshape", "rev", "slice", "squeeze", "transpose"}
"""What costs nothing where its result is read."""
MOST_PREPARED = 1 << 18
"""The number of entries up to which results are kept for all steps."""


class Program:
    """A traced function as machine code that reads and writes vectors of float64."""

    def __init__(self, root: Region, inputs: list[Shapes]):
        self.root, self.inputs = root, inputs

    @classmethod
    def of(cls, traced: Traced) -> "Program":
        """The program of a traced function."""
        return cls(Arrays(traced.jaxpr).root, traced.arguments)

    @property
    def results(self) -> int:
        """The number of entries of the results."""
        return sum(x.size for x in self.root.results)

    def prepared(self) -> "tuple[Program, Program]":
        """What depends on the first argument alone, and the rest, which takes its results as a last argument."""
        root, count = self.root, len(self.inputs[0])
        given = {x.id for x in root.inputs[:count]}
        early: dict[int, Op] = {}
        for op in root.ops:
            if all(x.value is not None or x.id in given or x.id in early for x in read_by(op)):
                early |= {x.id: op for x in op.results}
        again: set[int] = set()
        wanted: dict[int, Item] = {}
        todo = [x for op in root.ops if op.results[0].id not in early for x in read_by(op)] + root.results
        while todo:
            x = todo.pop()
            op = early.get(x.id)
            if op is None:
                continue
            if op.name in MOVES:
                again.add(id(op))
                todo += op.args
            else:
                wanted[x.id] = x
        kept = sorted(wanted.values(), key=lambda x: x.id)
        if sum(x.size for x in kept) > MOST_PREPARED:
            kept, early = [], {}
        before, after = Region(), Region()
        before.inputs, before.results = root.inputs[:count], kept
        after.inputs, after.results = [*root.inputs, *kept], root.results
        after.ops = [op for op in root.ops if op.results[0].id not in early or id(op) in again]
        before.ops = [op for op in root.ops if op.results[0].id in early]
        prune(before)
        shapes = [(x.shape, x.dtype) for x in kept]
        return Program(before, self.inputs[:1]), Program(after, [*self.inputs, shapes])

    def text(self, name: str) -> tuple[str, set[str]]:
        """The function @name(arguments..., result), and what it uses."""
        t, root = Translator(), self.root
        arrays = [x for k, shapes in enumerate(self.inputs) for x in _loaded(t, f"%in{k}", shapes)]
        outputs = t.write(root, dict(zip([x.id for x in root.inputs], arrays, strict=True)))
        _store(t, "%out", outputs)
        pointers = [*(f"%in{k}" for k in range(len(self.inputs))), "%out"]
        given = ", ".join(f"ptr noalias {x}" for x in pointers)
        # Copies of it where it is called would make larger functions, which take longer to compile.
        return t.text(f"define internal void @{name}({given}) noinline", pointers), t.used


def _loaded(t: ArrayWriter, pointer: str, shapes: Shapes) -> list[Array]:
    """Arrays from a vector of float64."""
    found, position, memory = [], 0, Memory(pointer)
    for shape, dtype in shapes:
        x = Buffer(shape, float, memory, None, position)
        found.append(t.stored(t.converted(x, dtype)))
        position += math.prod(shape)
    return found


def _store(t: ArrayWriter, pointer: str, arrays: Sequence[Array]) -> None:
    """Writes arrays into a vector of float64."""
    position, memory = 0, Memory(pointer)
    for x in [t.stored(x) for x in arrays]:
        t.fill(Buffer(x.shape, float, memory, None, position), t.converted(x, np.float64))
        position += x.size
