"""Arrays in machine code: in registers, in memory, or as formulas for their entries; and loops over them."""

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dalembert.kernels.graph import Graph, Node, Unsupported, own_primitives
from dalembert.kernels.llvm import TYPES, Value, Writer, literal
from dalembert.kernels.native import Block
from dalembert.kernels.outlined import Split
from dalembert.kernels.sine_cosine import circles

Index = tuple[Any, ...]
"""Indices of an entry; each is a number or a register."""

MEMORY = {**TYPES, np.dtype(bool): "i8"}
BYTES = {"double": 8, "i8": 1, "i32": 4, "i64": 8}
FEW = 16
"""LLVM makes no vectors for loops of fewer repetitions than this."""
UNROLL = 4
"""Loops of up to this many repetitions are written out."""
LANES = 4
"""As many sines are computed at once."""
STACK = 4096
"""Arrays of more bytes than this are on the heap for the time of a call."""


class Array:
    """The value of an item of the graph; `at` writes the instructions that give the entry with given indices."""

    def __init__(self, shape: Sequence[int], dtype: Any):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    @property
    def is_free(self) -> bool:
        """Whether reading an entry costs no arithmetic."""
        return True

    def leaps(self, axis: int) -> int:
        """How far reads jump in memory when the index along this axis grows: 0 if they go from one to the next."""
        return 0

    def at(self, w: Block, index: Index) -> Value:
        """The entry with these indices."""
        raise NotImplementedError


class Single(Array):
    """The same number everywhere, in a register."""

    def __init__(self, value: Value, shape: Sequence[int], dtype: Any):
        super().__init__(shape, dtype)
        self.value = value

    def at(self, w: Block, index: Index) -> Value:
        """The number."""
        return self.value


class Memory:
    """A piece of memory; when no array uses it any more, it goes back to where others look for one."""

    def __init__(self, pointer: str, pool: list[str] | None = None):
        self.pointer, self.pool = pointer, pool

    def __del__(self):
        if self.pool is not None:
            self.pool.append(self.pointer)


class Buffer(Array):
    """Entries in memory, with a stride per axis."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        memory: Memory,
        strides: Sequence[int] | None = None,
        offset: Any = 0,
    ):
        super().__init__(shape, dtype)
        self.memory, self.offset = memory, offset
        self.strides = tuple(strides) if strides is not None else _strides(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether the entries follow each other in memory."""
        pairs = zip(self.shape, self.strides, _strides(self.shape), strict=True)
        return all(n == 1 or a == b for n, a, b in pairs)

    def leaps(self, axis: int) -> int:
        """Nothing, little or much, because a vector with gaps is read by some loads and shuffles, or one by one."""
        stride = abs(self.strides[axis]) if self.shape[axis] != 1 else 0
        return 0 if stride <= 1 else 1 if stride <= UNROLL else UNROLL

    def place(self, w: Block, index: Index) -> str:
        """The address of an entry."""
        fixed, terms = (self.offset, []) if isinstance(self.offset, int) else (0, [self.offset])
        for i, stride, n in zip(index, self.strides, self.shape, strict=True):
            if n == 1 or stride == 0:
                continue
            if isinstance(i, int):
                fixed += i * stride
            else:
                terms.append(i if stride == 1 else w.put(f"mul nsw i64 {i}, {stride}"))
        kind, at = MEMORY[self.dtype], self.memory.pointer
        if terms:
            total = functools.reduce(lambda a, b: w.put(f"add nsw i64 {a}, {b}"), terms)
            at = w.put(f"getelementptr inbounds {kind}, ptr {at}, i64 {total}")
        return w.put(f"getelementptr inbounds {kind}, ptr {at}, i64 {fixed}") if fixed else at

    def at(self, w: Block, index: Index) -> Value:
        """The entry with these indices."""
        x = w.put(f"load {MEMORY[self.dtype]}, ptr {self.place(w, index)}")
        return Value(w.put(f"trunc i8 {x} to i1") if self.dtype == bool else x)

    def set(self, w: Block, index: Index, value: Value) -> None:
        """Writes an entry."""
        text = value.text
        if self.dtype == bool:
            text = str(int(text == "true")) if text in ("true", "false") else w.put(f"zext i1 {text} to i8")
        w.do(f"store {MEMORY[self.dtype]} {text}, ptr {self.place(w, index)}")


class Lazy(Array):
    """Entries that are computed where they are needed; `free` if that costs no arithmetic."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        entry: Callable[[Block, Index], Value],
        free: bool,
        leaps: Callable[[int], int] = lambda axis: 0,
    ):
        super().__init__(shape, dtype)
        self.entry, self.free, self._leaps = entry, free, leaps

    @property
    def is_free(self) -> bool:
        """Whether reading an entry costs no arithmetic."""
        return self.free

    def leaps(self, axis: int) -> int:
        """The leaps of all that is read."""
        return self._leaps(axis)

    def at(self, w: Block, index: Index) -> Value:
        """The entry with these indices."""
        return self.entry(w, index)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


class ArrayWriter:
    """Writes the code of one function of arrays."""

    def __init__(self, parent: "ArrayWriter | None" = None):
        self.w = Block()
        self.pools: dict[tuple[str, int], list[str]] = {}
        self.rooms: list[str] = []
        """The instructions that make room in memory; they come first."""
        self.heap: list[str] = []
        self.routines: dict[str, str] = {} if parent is None else parent.routines
        """Other functions that this one calls."""
        self.constants: dict[str, str] = {} if parent is None else parent.constants

    # Memory.

    def new(self, shape: Sequence[int], dtype: Any) -> Buffer:
        """A buffer with no values yet."""
        kind, size = self.kind(dtype), max(1, math.prod(shape))
        pool = self.pools.setdefault((kind, size), [])
        if not pool:
            self._make_room(pool, kind, size)
        return Buffer(shape, dtype, Memory(pool.pop(), pool))

    def _make_room(self, pool: list[str], kind: str, size: int) -> None:
        pointer, taken = f"%m{len(self.rooms)}", size * BYTES[kind]
        pool.append(pointer)
        if taken > STACK:
            self.heap.append(pointer)
            self.rooms.append(f"  {pointer} = call noalias ptr @malloc(i64 {taken})")
            self.w.declared |= {"declare noalias ptr @malloc(i64)", "declare void @free(ptr)"}
        else:
            self.rooms.append(f"  {pointer} = alloca [{size} x {kind}], align 32")

    def kind(self, dtype: Any) -> str:
        """The type of an entry in memory."""
        name = MEMORY.get(np.dtype(dtype))
        if name is None:
            raise Unsupported("convert_element_type", f"numbers of type {dtype}")
        return name

    def fill(self, out: Buffer, x: Array) -> None:
        """Writes the entries of x into a buffer of the same shape."""
        if out.size == 0:
            return
        flat = out.is_contiguous and (isinstance(x, Single) or (isinstance(x, Buffer) and x.is_contiguous))
        if flat and len(out.shape) > 1:
            out = Buffer((out.size,), out.dtype, out.memory, None, out.offset)
            x = Buffer((out.size,), x.dtype, x.memory, None, x.offset) if isinstance(x, Buffer) else x
        self.nest(out.shape, lambda i: out.set(self.w, i, x.at(self.w, i)))

    def copy(self, x: Array) -> Buffer:
        """The entries in new memory, one after the other."""
        out = self.new(x.shape, x.dtype)
        self.fill(out, x)
        return out

    def stored(self, x: Array) -> Array:
        """x such that reading an entry costs nothing."""
        if not isinstance(x, Lazy):
            return x
        if x.size == 1:
            return Single(x.at(self.w, (0,) * len(x.shape)), x.shape, x.dtype)
        return self.copy(x)

    def free(self, x: Array) -> Array:
        """x such that reading an entry costs no arithmetic."""
        return x if x.is_free else self.stored(x)

    def buffer(self, x: Array) -> Buffer:
        """x in memory, one entry after the other."""
        return x if isinstance(x, Buffer) and x.is_contiguous else self.copy(x)

    # Loops.

    def loop(self, count: int, body: Callable[[Any], None], unroll: int = UNROLL) -> None:
        """Writes `count` repetitions of body(index)."""
        w = self.w
        if count <= unroll:
            for i in range(count):
                body(i)
            return
        before, head, done = w.block_name, w.name("loop"), w.name("done")
        w.do(f"br label %{head}")
        w.block(head)
        i, place = w.counter("0", before)
        body(i)
        following = w.put(f"add nuw nsw i64 {i}, 1")
        w.lines[place] += f", [{following}, %{w.block_name}]"
        more = w.put(f"icmp slt i64 {following}, {count}")
        w.again(f"br i1 {more}, label %{head}, label %{done}", count < FEW)
        w.block(done)

    def nest(self, shape: Sequence[int], body: Callable[[Index], None], index: Index = ()) -> None:
        """Writes body(index) for all indices of an array."""
        if not shape:
            body(index)
            return
        unroll = UNROLL if math.prod(shape) <= UNROLL or shape[0] == 1 else 1
        self.loop(shape[0], lambda i: self.nest(shape[1:], body, (*index, i)), unroll)

    # Indices.

    def plus(self, a: Any, b: Any) -> Any:
        """The sum of two indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        return b if a == 0 else a if b == 0 else self.w.put(f"add nsw i64 {a}, {b}")

    def times(self, a: Any, factor: int) -> Any:
        """A multiple of an index."""
        if isinstance(a, int):
            return a * factor
        return a if factor == 1 else self.w.put(f"mul nsw i64 {a}, {factor}")

    def from_end(self, n: int, i: Any) -> Any:
        """The index n - 1 - i."""
        return n - 1 - i if isinstance(i, int) else self.w.put(f"sub nsw i64 {n - 1}, {i}")

    def index(self, x: Value, dtype: np.dtype) -> Any:
        """A whole number as an index."""
        if not x.text.startswith("%"):
            return int(x.text)
        kind = TYPES[dtype]
        return x.text if kind == "i64" else self.w.put(f"sext {kind} {x.text} to i64")

    def bounded(self, i: Any, most: int) -> Any:
        """An index, moved into the range from 0 to `most`."""
        w = self.w
        if isinstance(i, int):
            return min(max(i, 0), most)
        i = w.put(f"select i1 {w.put(f'icmp slt i64 {i}, 0')}, i64 0, i64 {i}")
        return w.put(f"select i1 {w.put(f'icmp sgt i64 {i}, {most}')}, i64 {most}, i64 {i}")

    def inside(self, i: Any, most: int) -> str:
        """Whether an index is in the range from 0 to `most`."""
        if isinstance(i, int):
            return "true" if 0 <= i <= most else "false"
        return self.w.put(f"icmp ule i64 {i}, {most}") if most >= 0 else "false"

    # Numbers.

    def constant(self, value: Any) -> Array:
        """A known array."""
        a = np.ascontiguousarray(value)
        a = a.reshape(np.shape(value))
        kind = self.kind(a.dtype)
        if a.size and a.reshape(-1)[:1].tobytes() * a.size == a.tobytes():
            return Single(Value(literal(a.reshape(-1)[0])), a.shape, a.dtype)
        items = ", ".join(f"{kind} {int(x) if a.dtype == bool else literal(x)}" for x in a.reshape(-1))
        text = f"private constant [{a.size} x {kind}] [{items}]"
        name = self.constants.setdefault(text, f"@c{hashlib.sha256(text.encode()).hexdigest()[:16]}")
        return Buffer(a.shape, a.dtype, Memory(name))

    def scalar(
        self, name: str, primitive: Any, params: dict, dtypes: Sequence[Any], dtype: Any, values: list[Value]
    ) -> Value:
        """One elementwise operation on numbers, simplified as the graph of scalars does."""
        if name in ("sin", "cos") and dtype == np.float64:
            return self._circle(name, values[0])
        g = Graph()
        nodes = [
            g.input(np.dtype(t), k) if v.text.startswith("%") else g.const(_number(v.text, np.dtype(t)), t)
            for k, (t, v) in enumerate(zip(dtypes, values, strict=True))
        ]
        known: dict[int, Value] = {}

        def emit(node: Node) -> Value:
            if node.op == "const":
                return Value(literal(node.value))
            if node.op == "input":
                return values[node.value]
            if node.id not in known:
                arguments = [emit(a) for a in node.args]
                circle = node.op in ("sin", "cos")
                known[node.id] = (
                    self._circle(node.op, arguments[0]) if circle else self.w.instruction(node, arguments)
                )
            return known[node.id]

        return emit(g.primitive(name, primitive, tuple(nodes), dtype, params))

    def _circle(self, name: str, x: Value, w: Writer | None = None) -> Value:
        """The sine or the cosine, in this function or in one that `w` writes."""
        if name not in self.routines:
            inner = Writer()
            sine, cosine = circles(inner, [Value("%x")], True)[0]
            inner.do(f"ret double {(sine if name == 'sin' else cosine).text}")
            text, declared = inner.function(f"define internal double @own_{name}(double %x) noinline")
            self.routines[name] = text
            self.w.declared |= declared
        return Value((w or self.w).put(f"call double @own_{name}(double {x.text})"))

    def circles(self, name: str, x: Buffer) -> Buffer:
        """The sines or the cosines of many angles, computed as vectors."""
        out, routine = self.new(x.shape, x.dtype), f"all_{name}"
        if routine not in self.routines:
            w = Block(LANES)
            vector = w.type(np.dtype(float), True)

            def entry(pointer: str, i: str) -> str:
                return w.put(f"getelementptr inbounds double, ptr {pointer}, i64 {i}")

            def some(k: str) -> None:
                i = w.put(f"mul nuw nsw i64 {k}, {LANES}")
                angles = w.put(f"load {vector}, ptr {entry('%x', i)}, align 8")
                pair = circles(w, [Value(angles, True)], True)[0]
                w.do(f"store {vector} {pair[name == 'cos'].text}, ptr {entry('%y', i)}, align 8")

            def one(i: str) -> None:
                angle = w.put(f"load double, ptr {entry('%x', i)}")
                w.do(f"store double {self._circle(name, Value(angle), w).text}, ptr {entry('%y', i)}")

            whole = w.put(f"sdiv i64 %n, {LANES}")
            w.each(0, whole, some)
            w.each(w.put(f"mul nuw nsw i64 {whole}, {LANES}"), "%n", one)
            w.do("ret void")
            text, declared = w.function(
                f"define internal void @{routine}(ptr noalias %x, ptr noalias %y, i64 %n) noinline"
            )
            self.routines[routine] = text
            self.w.declared |= declared
        first = (0,) * len(x.shape)
        places = f"ptr {x.place(self.w, first)}, ptr {out.place(self.w, first)}"
        self.w.do(f"call void @{routine}({places}, i64 {x.size})")
        return out

    def op(self, name: str, dtype: Any, *values: Value) -> Value:
        """An operation on numbers of the same type; the first argument of select_n is a truth value."""
        primitive, params, result = own_primitives()[name]
        dtypes = [np.dtype(bool), dtype, dtype] if name == "select_n" else [dtype] * len(values)
        return self.scalar(name, primitive, params, dtypes, np.dtype(result or dtype), list(values))

    def product(self, a: Value, b: Value, dtype: np.dtype) -> Value:
        """a b, which may share one rounding with a sum."""
        if dtype != np.float64:
            return self.op("mul", dtype, a, b)
        return Value(self.w.put(f"fmul contract double {a.text}, {b.text}"))

    def converted(self, x: Array, dtype: Any) -> Array:
        """x as numbers of another type."""
        if x.dtype == dtype:
            return x
        primitive, params, _ = own_primitives()["convert_element_type"]
        params = {**params, "new_dtype": np.dtype(dtype)}

        def at(w: Block, i: Index) -> Value:
            return self.scalar(
                "convert_element_type", primitive, params, [x.dtype], np.dtype(dtype), [x.at(w, i)]
            )

        return Lazy(x.shape, dtype, at, False, x.leaps)

    def text(self, head: str, arguments: Sequence[str] = ()) -> str:
        """The whole function; the arguments point to memory that does not overlap."""
        frees = [f"  call void @free(ptr {x})" for x in self.heap]
        name = head.partition("@")[2].partition("(")[0]
        rooms = [line.split()[0] for line in self.rooms]
        split = Split(name, [*self.w.lines, *frees], [*arguments, *rooms])
        whole = "\n".join([f"{head} {{", "entry:", *self.rooms, *split.lines, "  ret void", "}"])
        return "\n".join([whole, *split.functions])

    @property
    def used(self) -> set[str]:
        """What the function needs beside itself."""
        return {
            *self.w.declared,
            *self.routines.values(),
            *(f"{name} = {text}" for text, name in self.constants.items()),
        }


def _number(text: str, dtype: np.dtype) -> Any:
    if dtype == np.float64:
        return np.uint64(int(text, 16)).view(np.float64)
    return text == "true" if dtype.kind == "b" else int(text)
