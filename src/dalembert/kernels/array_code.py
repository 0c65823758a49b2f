"""Write the machine code of a graph of arrays: loops over memory, one nest per operation or chain of operations."""

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from dalembert.kernels.arrays import Arrays, Item, Op, Region
from dalembert.kernels.graph import Graph, Node, Unsupported, _own
from dalembert.kernels.interpret import ELEMENTWISE
from dalembert.kernels.llvm import TYPES, Value, Writer, literal
from dalembert.kernels.sine_cosine import circles
from dalembert.numerics import pivot_floor

MEMORY = {**TYPES, "bool": "i8"}
SIZES = {"double": 8, "i8": 1, "i32": 4, "i64": 8}
UNROLL = 4
STACK = 4096
"""Arrays of more bytes than this are on the heap for the time of a call."""


class Array:
    """The value of a variable: `at` returns the entry with given indices, which are numbers or registers."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def size(self):
        return math.prod(self.shape)


class Single(Array):
    """A number in a register, or the same number everywhere."""

    def __init__(self, value: Value, shape, dtype):
        super().__init__(shape, dtype)
        self.value = value

    def at(self, w, index):
        return self.value


class Memory:
    def __init__(self, pool, key, pointer):
        self.pool, self.key, self.pointer = pool, key, pointer

    def __del__(self):
        self.pool.setdefault(self.key, []).append(self.pointer)


class Buffer(Array):
    """Entries in memory, with a stride per axis."""

    def __init__(self, shape, dtype, memory, strides=None, offset: Any = 0):
        super().__init__(shape, dtype)
        self.memory, self.offset = memory, offset
        if strides is None:
            strides, step = [], 1
            for n in reversed(self.shape):
                strides.insert(0, step)
                step *= n
        self.strides = tuple(strides)

    @property
    def contiguous(self):
        step = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides)):
            if n != 1 and s != step:
                return False
            step *= n
        return True

    def place(self, w, index):
        fixed, terms = self.offset, []
        if not isinstance(fixed, int):
            fixed, terms = 0, [self.offset]
        for i, s, n in zip(index, self.strides, self.shape):
            if n == 1 or s == 0:
                continue
            if isinstance(i, int):
                fixed += i * s
            else:
                terms.append(i if s == 1 else w.put(f"mul nsw i64 {i}, {s}"))
        kind = MEMORY[str(self.dtype)]
        at = self.memory.pointer
        if terms:
            total = functools.reduce(lambda a, b: w.put(f"add nsw i64 {a}, {b}"), terms)
            at = w.put(f"getelementptr inbounds {kind}, ptr {at}, i64 {total}")
        if fixed:
            at = w.put(f"getelementptr inbounds {kind}, ptr {at}, i64 {fixed}")
        return at

    def at(self, w, index):
        kind = MEMORY[str(self.dtype)]
        x = w.put(f"load {kind}, ptr {self.place(w, index)}")
        return Value(w.put(f"trunc i8 {x} to i1") if self.dtype == bool else x)

    def set(self, w, index, value: Value):
        kind, text = MEMORY[str(self.dtype)], value.text
        if self.dtype == bool:
            text = ("1" if text == "true" else "0") if text in ("true", "false") else w.put(f"zext i1 {text} to i8")
        w.do(f"store {kind} {text}, ptr {self.place(w, index)}")


class Lazy(Array):
    """Entries that are computed where they are needed; `view` if that costs nothing."""

    def __init__(self, shape, dtype, function, view=False):
        super().__init__(shape, dtype)
        self.at, self.view = function, view


def is_view(x):
    return not isinstance(x, Lazy) or x.view


class Translator:
    """Writes the code of one function."""

    def __init__(self):
        self.w = Writer()
        self.pool: dict = {}
        self.allocas: list[str] = []
        self.heap: list[str] = []
        self.routines: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.bytes = 0

    # -- memory ------------------------------------------------------------------------------------------------
    def new(self, shape, dtype) -> Buffer:
        kind, size = MEMORY[str(np.dtype(dtype))], max(1, math.prod(shape))
        key = (kind, size)
        free = self.pool.get(key)
        if free:
            pointer = free.pop()
        else:
            pointer = f"%m{len(self.allocas)}"
            taken = size * SIZES[kind]
            if taken > STACK:
                self.heap.append(pointer)
                self.allocas.append(f"  {pointer} = call noalias ptr @malloc(i64 {taken})")
                self.w.declared |= {"declare noalias ptr @malloc(i64)", "declare void @free(ptr)"}
            else:
                self.allocas.append(f"  {pointer} = alloca [{size} x {kind}], align 32")
            self.bytes += taken
        return Buffer(shape, dtype, Memory(self.pool, key, pointer))

    def loop(self, count: int, body: Callable, unroll=UNROLL):
        """Writes `count` repetitions of body(index)."""
        w = self.w
        if count <= unroll:
            for i in range(count):
                body(i)
            return
        before, head, done = w.block_name, w.name("loop"), w.name("done")
        w.do(f"br label %{head}")
        w.block(head)
        i = w.put(f"phi i64 [0, %{before}]")
        place = len(w.lines) - 1
        body(i)
        following = w.put(f"add nuw nsw i64 {i}, 1")
        w.lines[place] += f", [{following}, %{w.block_name}]"
        more = w.put(f"icmp slt i64 {following}, {count}")
        w.do(f"br i1 {more}, label %{head}, label %{done}")
        w.block(done)

    def nest(self, shape, body: Callable, index=()):
        if not shape:
            body(index)
        else:
            small = UNROLL if math.prod(shape) <= UNROLL or shape[0] == 1 else 1
            self.loop(shape[0], lambda i: self.nest(shape[1:], body, (*index, i)), small)

    def fill(self, out: Buffer, x: Array):
        """Writes the entries of x into a buffer of the same shape."""
        if out.size == 0:
            return
        flat = out.contiguous and (isinstance(x, Single) or (isinstance(x, Buffer) and x.contiguous))
        if flat and len(out.shape) > 1:
            out = Buffer((out.size,), out.dtype, out.memory, None, out.offset)
            x = x if isinstance(x, Single) else Buffer((x.size,), x.dtype, x.memory, None, x.offset)
        self.nest(out.shape, lambda i: out.set(self.w, i, x.at(self.w, i)))

    def stored(self, x: Array) -> Array:
        """x in memory or in a register, so that reading an entry costs nothing."""
        if isinstance(x, Lazy):
            if x.size == 1:
                return Single(x.at(self.w, (0,) * len(x.shape)), x.shape, x.dtype)
            out = self.new(x.shape, x.dtype)
            self.fill(out, x)
            return out
        return x

    def buffer(self, x: Array) -> Buffer:
        """x in memory, one entry after the other."""
        if isinstance(x, Buffer) and x.contiguous:
            return x
        out = self.new(x.shape, x.dtype)
        self.fill(out, x)
        return out

    def copy(self, x: Array) -> Buffer:
        out = self.new(x.shape, x.dtype)
        self.fill(out, x)
        return out

    # -- numbers -----------------------------------------------------------------------------------------------
    def constant(self, value) -> Array:
        a = np.asarray(value)
        if a.dtype == jax.dtypes.float0:
            a = np.zeros(a.shape, bool)
        if a.dtype.kind not in "fiub" or str(a.dtype) not in TYPES:
            raise Unsupported("constant", f"of type {a.dtype}")
        if a.size and np.all(a.reshape(-1)[:1].view(np.uint8).tobytes() * a.size == np.ascontiguousarray(a).tobytes()):
            return Single(Value(literal(a.reshape(-1)[0])), a.shape, a.dtype)
        kind = MEMORY[str(a.dtype)]
        items = ", ".join(f"{kind} {int(x) if a.dtype == bool else literal(x)}" for x in a.reshape(-1))
        text = f"private constant [{a.size} x {kind}] [{items}]"
        name = self.globals.setdefault(text, f"@c{hashlib.sha256(text.encode()).hexdigest()[:16]}")
        return Buffer(a.shape, a.dtype, Memory({}, None, name))

    def scalar(self, name, primitive, params, dtypes, dtype, values: list[Value]) -> Value:
        """One elementwise operation on numbers, simplified as the graph does."""
        w = self.w
        if name in ("sin", "cos") and dtype == np.float64:
            return self.circle(name, values[0])
        g = Graph()
        nodes = []
        for k, (t, v) in enumerate(zip(dtypes, values)):
            if not v.text.startswith("%"):
                t = np.dtype(t)
                number = (np.uint64(int(v.text, 16)).view(np.float64) if t.kind == "f" else v.text == "true" if t == bool else int(v.text))
                nodes.append(g.const(number, t))
            else:
                nodes.append(g.input(t, k))
        made = g.primitive(name, primitive, tuple(nodes), dtype, params)
        known: dict[int, Value] = {}

        def emit(node: Node) -> Value:
            if node.op == "const":
                return Value(literal(node.value))
            if node.op == "input":
                return values[node.value]
            if node.id not in known:
                args = [emit(a) for a in node.args]
                if node.op in ("sin", "cos"):
                    known[node.id] = self.circle(node.op, args[0])
                else:
                    known[node.id] = w.instruction(node, args)
            return known[node.id]

        return emit(made)

    def circle(self, name, x: Value) -> Value:
        if name not in self.routines:
            inner = Writer()
            sine, cosine = circles(inner, [Value("%x")], True)[0]
            result = sine if name == "sin" else cosine
            inner.do(f"ret double {result.text}")
            text, declared = inner.function(f"define internal double @own_{name}(double %x) noinline")
            self.routines[name] = text
            self.w.declared |= declared
        return Value(self.w.put(f"call double @own_{name}(double {x.text})"))

    def op(self, name, dtype, *values: Value) -> Value:
        primitive, params, result = _own()[name]
        dtypes = [dtype] * len(values) if name != "select_n" else [np.dtype(bool), dtype, dtype]
        return self.scalar(name, primitive, params, dtypes, np.dtype(result or dtype), list(values))

    # -- operations --------------------------------------------------------------------------------------------
    def write(self, region: Region, known: dict[int, Array]) -> list[Array]:
        """Writes the operations of a region; `known` are the arrays of its inputs and of the regions around it."""
        known = dict(known)
        last, uses = _uses(region)

        def read(item: Item) -> Array:
            return self.constant(item.value) if item.value is not None else known[item.id]

        for k, op in enumerate(region.ops):
            arrays = [read(x) for x in op.args]
            if op.regions:
                for inner in _outer(op):
                    if inner.id in known:
                        known[inner.id] = self.stored(known[inner.id])
                made = getattr(self, f"_{op.name}")(op, known, *arrays)
            else:
                made = self.operation(op, arrays)
            del arrays
            for item, x in zip(op.results, made, strict=True):
                n = uses.get(item.id, 0)
                if n:
                    known[item.id] = self.stored(x) if isinstance(x, Lazy) and (x.size == 1 or (n > 1 and not x.view)) else x
            del made
            for number in last.get(k, ()):
                known.pop(number, None)
        return [read(x) for x in region.results]

    def operation(self, op: Op, x: list[Array]) -> Sequence[Array]:
        """The results of an operation without regions."""
        if op.name in ELEMENTWISE or op.name in ("select_n", "clamp"):
            return [self.elementwise(op.name, op, x)]
        rule = getattr(self, f"_{op.name}", None)
        if rule is None:
            raise Unsupported(op.name)
        made = rule(op, *x)
        return made if isinstance(made, list | tuple) else [made]

    def elementwise(self, name, e, x):
        aval = e.results[0]
        dtypes = [a.dtype for a in x]
        prim, params = e.primitive, e.params
        if name == "select_n" and dtypes[0] != bool:
            raise Unsupported("select_n", "among more than two cases")
        shapes = [a.shape for a in x]

        def at(w, index):
            values = [a.at(w, index if s else ()) for a, s in zip(x, shapes)]
            if name == "clamp":
                low, y, high = values
                return self.op("min", aval.dtype, self.op("max", aval.dtype, y, low), high)
            return self.scalar(name, prim, params, dtypes, aval.dtype, values)

        if aval.size == 1 and aval.shape == ():
            return Single(at(self.w, ()), (), aval.dtype)
        if all(isinstance(a, Single) for a in x):
            return Single(at(self.w, ()), aval.shape, aval.dtype)
        return Lazy(aval.shape, aval.dtype, at, view=False)

    def _broadcast_in_dim(self, e, x, *rest):
        shape, dims = e.params["shape"], e.params["broadcast_dimensions"]
        if isinstance(x, Single):
            return Single(x.value, shape, x.dtype)
        if not is_view(x) and math.prod(shape) != x.size:
            x = self.stored(x)
            if isinstance(x, Single):
                return Single(x.value, shape, x.dtype)
        if isinstance(x, Buffer):
            strides = [0] * len(shape)
            for k, d in enumerate(dims):
                strides[d] = x.strides[k] if x.shape[k] == shape[d] else 0
            return Buffer(shape, x.dtype, x.memory, strides, x.offset)
        old = x.shape
        return Lazy(shape, x.dtype, lambda w, i: x.at(w, tuple(i[d] if old[k] != 1 else 0 for k, d in enumerate(dims))), x.view)

    def reshaped(self, x, shape):
        if x.shape == tuple(shape):
            return x
        if isinstance(x, Single):
            return Single(x.value, shape, x.dtype)
        if [n for n in x.shape if n != 1] == [n for n in shape if n != 1]:
            if isinstance(x, Buffer):
                kept = [s for s, n in zip(x.strides, x.shape) if n != 1]
                strides = [kept.pop(0) if n != 1 else 0 for n in shape]
                return Buffer(shape, x.dtype, x.memory, strides, x.offset)
            old = x.shape

            def at(w, i):
                kept = [j for j, n in zip(i, shape) if n != 1]
                return x.at(w, tuple(kept.pop(0) if n != 1 else 0 for n in old))

            return Lazy(shape, x.dtype, at, x.view)
        x = self.buffer(x)
        return Buffer(shape, x.dtype, x.memory, None, x.offset)

    def _reshape(self, e, x, *rest):
        return self.reshaped(x, e.params["new_sizes"])

    def _squeeze(self, e, x):
        return self.reshaped(x, e.results[0].shape)

    _expand_dims = _squeeze

    def cut(self, x, starts, shape, steps=None):
        steps = steps or (1,) * len(shape)
        if isinstance(x, Single):
            return Single(x.value, shape, x.dtype)
        if isinstance(x, Buffer) and isinstance(x.offset, int):
            offset = x.offset + sum(a * s for a, s in zip(starts, x.strides))
            return Buffer(shape, x.dtype, x.memory, [s * k for s, k in zip(x.strides, steps)], offset)
        return Lazy(shape, x.dtype, lambda w, i: x.at(w, tuple(self.shifted(j, a, k) for j, a, k in zip(i, starts, steps))), is_view(x))

    def shifted(self, i, start, step=1):
        if isinstance(i, int):
            return start + i * step
        if step != 1:
            i = self.w.put(f"mul nsw i64 {i}, {step}")
        return i if start == 0 else self.w.put(f"add nsw i64 {i}, {start}")

    def _slice(self, e, x):
        return self.cut(x, e.params["start_indices"], e.results[0].shape, e.params["strides"])

    def _split(self, e, x):
        axis, results, start = e.params["axis"], [], 0
        x = x if is_view(x) else self.stored(x)
        for v in e.results:
            starts = [0] * len(x.shape)
            starts[axis] = start
            start += v.shape[axis]
            results.append(self.cut(x, starts, v.shape))
        return results

    def _unstack(self, e, x):
        axis = e.params.get("axis", 0)
        x = x if is_view(x) else self.stored(x)
        results = []
        for k, v in enumerate(e.results):
            starts = [0] * len(x.shape)
            starts[axis] = k
            shape = list(x.shape)
            shape[axis] = 1
            results.append(self.reshaped(self.cut(x, starts, shape), v.shape))
        return results

    def window(self, out: Buffer, starts, shape, steps=None):
        steps = steps or (1,) * len(shape)
        return Buffer(shape, out.dtype, out.memory, [s * k for s, k in zip(out.strides, steps)], out.offset + sum(a * s for a, s in zip(starts, out.strides)))

    def _concatenate(self, e, *parts):
        axis, aval, start = e.params["dimension"], e.results[0], 0
        out = self.new(aval.shape, aval.dtype)
        for x in parts:
            starts = [0] * len(aval.shape)
            starts[axis] = start
            start += x.shape[axis]
            self.fill(self.window(out, starts, x.shape), x)
        return out

    def _stack(self, e, *parts):
        axis, aval = e.params.get("axis", 0), e.results[0]
        out = self.new(aval.shape, aval.dtype)
        for k, x in enumerate(parts):
            starts, shape = [0] * len(aval.shape), list(aval.shape)
            starts[axis], shape[axis] = k, 1
            place = self.window(out, starts, shape)
            self.fill(place, self.reshaped(x, shape))
        return out

    def _transpose(self, e, x):
        order = e.params["permutation"]
        shape = tuple(x.shape[d] for d in order)
        if isinstance(x, Single):
            return Single(x.value, shape, x.dtype)
        if isinstance(x, Buffer):
            return Buffer(shape, x.dtype, x.memory, [x.strides[d] for d in order], x.offset)
        back = [order.index(k) for k in range(len(order))]
        return Lazy(shape, x.dtype, lambda w, i: x.at(w, tuple(i[b] for b in back)), x.view)

    def _rev(self, e, x):
        dims, shape = e.params["dimensions"], x.shape
        if isinstance(x, Single):
            return x
        x = self.buffer(x)
        strides = [-s if d in dims else s for d, s in enumerate(x.strides)]
        offset = x.offset + sum((shape[d] - 1) * x.strides[d] for d in dims)
        return Buffer(shape, x.dtype, x.memory, strides, offset)

    def _pad(self, e, x, value):
        aval, config = e.results[0], e.params["padding_config"]
        out = self.new(aval.shape, aval.dtype)
        v = value.at(self.w, ())
        self.fill(out, Single(v, aval.shape, aval.dtype))
        begin, shape, starts, steps = [], [], [], []
        for n, (low, high, inner) in zip(x.shape, config):
            if low < 0 or high < 0:
                first = -(low // (inner + 1)) if low < 0 else 0
                size = (n - 1) * (inner + 1) + 1 + low + high if n else 0
                lo = low + first * (inner + 1)
                count = max(0, min(n - first, (size - 1 - lo) // (inner + 1) + 1 if size > lo else 0))
                begin.append(first), shape.append(count), starts.append(lo), steps.append(inner + 1)
            else:
                begin.append(0), shape.append(n), starts.append(low), steps.append(inner + 1)
        if math.prod(shape):
            self.fill(self.window(out, starts, shape, steps), self.cut(x, begin, shape))
        return out

    def _iota(self, e):
        d, aval = e.params["dimension"], e.results[0]
        return self.constant(np.broadcast_to(np.arange(aval.shape[d]).astype(aval.dtype).reshape([-1 if k == d else 1 for k in range(aval.ndim)]), aval.shape).copy())

    # -- sums --------------------------------------------------------------------------------------------------
    def accumulate(self, dtype, start: str, how, shape, term) -> Value:
        """how(...how(start, term(index))...) over all indices."""
        w = self.w
        if math.prod(shape) <= UNROLL:
            value = None
            for index in np.ndindex(*shape):
                t = term(index)
                value = t if value is None else how(value, t)
            return Value(start) if value is None else value
        kind = MEMORY[str(dtype)]
        place = Buffer((), dtype, self.new((), dtype).memory)
        place.set(w, (), Value(start))
        self.nest(shape, lambda i: place.set(w, (), how(place.at(w, ()), term(i))))
        return place.at(w, ())

    def reduced(self, e, x, name, start):
        axes, aval = e.params["axes"], e.results[0]
        dtype = x.dtype
        kept = [d for d in range(len(x.shape)) if d not in axes]
        over = [x.shape[d] for d in axes]

        def how(a, b):
            if name == "add" and dtype.kind == "f":
                return Value(self.w.put(f"fadd contract reassoc double {a.text}, {b.text}"))
            return self.op(name, dtype, a, b) if name != "mul" or dtype.kind != "f" else Value(self.w.put(f"fmul double {a.text}, {b.text}"))

        def at(w, index):
            def term(j):
                full = [None] * len(x.shape)
                for d, i in zip(kept, index):
                    full[d] = i
                for d, i in zip(axes, j):
                    full[d] = i
                return x.at(w, tuple(full))

            return self.accumulate(dtype, start, how, over, term)

        last = len(x.shape) - 1
        if name == "add" and dtype.kind == "f" and len(axes) == 1 and last not in axes and x.shape[last] >= 4 and over[0] > 1:
            return self.summed(aval, over[0], lambda index, k: x.at(self.w, tuple(k if d in axes else index[kept.index(d)] for d in range(last + 1))))
        return self.stored(Lazy(aval.shape, dtype, at))

    def summed(self, aval, count, term):
        """Sums of `count` terms, with the last axis of the result as the innermost loop, so that it runs along memory."""
        w, out = self.w, self.new(aval.shape, aval.dtype)

        def row(index):
            self.loop(aval.shape[-1], lambda j: out.set(w, (*index, j), term((*index, j), 0)), 1)

            def more(k):
                k = k + 1 if isinstance(k, int) else w.put(f"add nuw nsw i64 {k}, 1")

                def entry(j):
                    total = w.put(f"fadd contract double {out.at(w, (*index, j)).text}, {term((*index, j), k).text}")
                    out.set(w, (*index, j), Value(total))

                self.loop(aval.shape[-1], entry, 1)

            self.loop(count - 1, more, 1)

        self.nest(aval.shape[:-1], row)
        return out

    def _reduce_sum(self, e, x):
        zero = literal(np.zeros((), x.dtype)[()])
        return self.reduced(e, x, "add", zero)

    def _reduce_prod(self, e, x):
        return self.reduced(e, x, "mul", literal(np.ones((), x.dtype)[()]))

    def _reduce_max(self, e, x):
        return self.reduced(e, x, "max", literal(np.float64(-np.inf) if x.dtype.kind == "f" else x.dtype.type(np.iinfo(x.dtype).min)))

    def _reduce_min(self, e, x):
        return self.reduced(e, x, "min", literal(np.float64(np.inf) if x.dtype.kind == "f" else x.dtype.type(np.iinfo(x.dtype).max)))

    def _reduce_and(self, e, x):
        return self.reduced(e, x, "and", "true")

    def _reduce_or(self, e, x):
        return self.reduced(e, x, "or", "false")

    def _cumsum(self, e, x):
        axis, aval, w = e.params["axis"], e.results[0], self.w
        out = self.new(aval.shape, aval.dtype)
        n = aval.shape[axis]
        others = [m for d, m in enumerate(aval.shape) if d != axis]
        x = x if is_view(x) else self.stored(x)

        def one(index):
            total = self.new((), x.dtype)
            total.set(w, (), Value(literal(np.zeros((), x.dtype)[()])))

            def add(k):
                if e.params["reverse"]:
                    k = n - 1 - k if isinstance(k, int) else w.put(f"sub nsw i64 {n - 1}, {k}")
                full = (*index[:axis], k, *index[axis:])
                total.set(w, (), self.op("add", x.dtype, total.at(w, ()), x.at(w, full)))
                out.set(w, full, total.at(w, ()))

            self.loop(n, add)

        self.nest(others, one)
        return out

    def _argmax(self, e, x, better="gt"):
        (axis,), aval, w = e.params["axes"], e.results[0], self.w
        x = x if is_view(x) else self.stored(x)
        n, kind = x.shape[axis], np.dtype(e.params["index_dtype"])

        def at(w, index):
            best, where = self.new((), x.dtype), self.new((), kind)

            def full(k):
                return (*index[:axis], k, *index[axis:])

            best.set(w, (), x.at(w, full(0)))
            where.set(w, (), Value("0"))

            def look(k):
                k = k + 1 if isinstance(k, int) else w.put(f"add nsw i64 {k}, 1")
                v = x.at(w, full(k))
                wins = self.op(better, x.dtype, v, best.at(w, ()))
                if x.dtype.kind == "f":  # NaN wins
                    wins = self.op("or", np.dtype(bool), wins, self.op("ne", x.dtype, v, v))
                number = Value(str(k) if isinstance(k, int) else k if kind.itemsize == 8 else w.put(f"trunc i64 {k} to i32"))
                best.set(w, (), self.op("select_n", x.dtype, wins, best.at(w, ()), v))
                where.set(w, (), Value(w.put(f"select i1 {wins.text}, {MEMORY[str(kind)]} {number.text}, {MEMORY[str(kind)]} {where.at(w, ()).text}")))

            self.loop(n - 1, look)
            return where.at(w, ())

        return self.stored(Lazy(aval.shape, kind, at))

    def _argmin(self, e, x):
        return self._argmax(e, x, "lt")

    def _dot_general(self, e, a, b):
        (ca, cb), (ba, bb) = e.params["dimension_numbers"]
        aval, w = e.results[0], self.w
        a, b = (x if is_view(x) else self.stored(x) for x in (a, b))
        fa = [d for d in range(len(a.shape)) if d not in (*ca, *ba)]
        fb = [d for d in range(len(b.shape)) if d not in (*cb, *bb)]
        over = [a.shape[d] for d in ca]

        def at(w, index):
            n, k = len(ba), len(ba) + len(fa)

            def term(j):
                ia, ib = [0] * len(a.shape), [0] * len(b.shape)
                for d, i in [*zip(ba, index[:n]), *zip(fa, index[n:k]), *zip(ca, j)]:
                    ia[d] = i
                for d, i in [*zip(bb, index[:n]), *zip(fb, index[k:]), *zip(cb, j)]:
                    ib[d] = i
                return Value(w.put(f"fmul contract double {a.at(w, tuple(ia)).text}, {b.at(w, tuple(ib)).text}"))

            return self.accumulate(aval.dtype, "0.0", lambda p, q: Value(w.put(f"fadd contract reassoc double {p.text}, {q.text}")), over, term)

        if aval.dtype != np.float64:
            raise Unsupported("dot_general", f"of {aval.dtype}")
        if len(over) == 1 and fb and cb[0] != len(b.shape) - 1 and aval.shape[-1] >= 4:
            n, k = len(ba), len(ba) + len(fa)

            def product(index, j):
                ia, ib = [0] * len(a.shape), [0] * len(b.shape)
                for d, i in [*zip(ba, index[:n]), *zip(fa, index[n:k]), (ca[0], j)]:
                    ia[d] = i
                for d, i in [*zip(bb, index[:n]), *zip(fb, index[k:]), (cb[0], j)]:
                    ib[d] = i
                return Value(w.put(f"fmul contract double {a.at(w, tuple(ia)).text}, {b.at(w, tuple(ib)).text}"))

            return self.summed(aval, over[0], product)
        return self.stored(Lazy(aval.shape, aval.dtype, at))

    def _small_solve(self, e, a, b):
        positive = e.params["positive"]
        n, k = a.shape[0], b.size // max(1, a.shape[0])
        name = f"solve_{'spd' if positive else 'any'}_{n}_{k}"
        if name not in self.routines:
            self.routines[name] = _solver(name, n, k, positive, self)
        work, out = self.copy(a), self.copy(b)
        self.w.do(f"call void @{name}(ptr {work.memory.pointer}, ptr {out.memory.pointer})")
        return out

    # -- control -----------------------------------------------------------------------------------------------
    def _while(self, op: Op, known: dict[int, Array], *start: Array) -> Sequence[Array]:
        w, (condition, body) = self.w, op.regions
        carry = [self.copy(x) for x in start]
        head, inside, done = (w.name(x) for x in ("while", "do", "done"))
        w.do(f"br label %{head}")
        w.block(head)
        (going,) = self.write(condition, {**known, **{x.id: y for x, y in zip(condition.inputs, carry, strict=True)}})
        w.do(f"br i1 {going.at(w, ()).text}, label %{inside}, label %{done}")
        w.block(inside)
        self.assign(carry, self.write(body, {**known, **{x.id: y for x, y in zip(body.inputs, carry, strict=True)}}))
        w.do(f"br label %{head}")
        w.block(done)
        return carry

    def assign(self, places, values):
        """Writes values into the places; a value may read other places."""
        made = []
        for place, x in zip(places, values):
            if isinstance(x, Buffer) and x.memory is place.memory:
                made.append(None)
            elif isinstance(x, Single):
                made.append(x)
            elif isinstance(x, Buffer) and x.memory not in [y.memory for y in places]:
                made.append(x)
            else:
                made.append(self.copy(x))
        for place, x in zip(places, made):
            if x is not None:
                self.fill(place, x)

    def _cond(self, op: Op, known: dict[int, Array], index: Array) -> Sequence[Array]:
        w, chosen = self.w, index.at(self.w, ()).text
        outs = [self.new(x.shape, x.dtype) for x in op.results]
        done, names = w.name("joined"), [w.name("branch") for _ in op.regions]
        if index.dtype == bool:
            w.do(f"br i1 {chosen}, label %{names[1]}, label %{names[0]}")
        else:
            kind = TYPES[str(index.dtype)]
            low = w.put(f"icmp slt {kind} {chosen}, 1")
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

    def _scan(self, op: Op, known: dict[int, Array], *inputs: Array) -> Sequence[Array]:
        (body,), w, number, length = op.regions, self.w, op.params["carry"], op.params["length"]
        carry = [self.copy(x) for x in inputs[:number]]
        xs = [self.buffer(x) for x in inputs[number:]]
        ys = [self.new(x.shape, x.dtype) for x in op.results[number:]]

        def row(x: Buffer, i: Any) -> Buffer:
            offset = i * x.strides[0] if isinstance(i, int) else w.put(f"mul nsw i64 {i}, {x.strides[0]}")
            return Buffer(x.shape[1:], x.dtype, x.memory, x.strides[1:], self.plus(offset, x.offset))

        def once(i: Any) -> None:
            if op.params["reverse"]:
                i = length - 1 - i if isinstance(i, int) else w.put(f"sub nsw i64 {length - 1}, {i}")
            inside = dict(zip([x.id for x in body.inputs], [*carry, *(row(x, i) for x in xs)], strict=True))
            results = self.write(body, {**known, **inside})
            for y, x in zip(ys, [self.stored(x) for x in results[number:]], strict=True):
                self.fill(row(y, i), x)
            self.assign(carry, results[:number])

        self.loop(length, once, 1)
        return [*carry, *ys]

    def _platform_index(self, e):
        return Single(Value("0"), (), e.results[0].dtype)

    def whole(self, x: Array, w) -> Any:
        """A scalar index as i64."""
        v = x.at(w, ())
        if not v.text.startswith("%"):
            return int(v.text)
        kind = TYPES[str(x.dtype)]
        return v.text if kind == "i64" else w.put(f"sext {kind} {v.text} to i64")

    def bounded(self, i, most):
        w = self.w
        if isinstance(i, int):
            return min(max(i, 0), most)
        low = w.put(f"icmp slt i64 {i}, 0")
        i = w.put(f"select i1 {low}, i64 0, i64 {i}")
        high = w.put(f"icmp sgt i64 {i}, {most}")
        return w.put(f"select i1 {high}, i64 {most}, i64 {i}")

    def plus(self, a, b):
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0:
            return b
        if b == 0:
            return a
        return self.w.put(f"add nsw i64 {a}, {b}")

    def _dynamic_slice(self, e, x, *starts):
        aval = e.results[0]
        at = [self.bounded(self.whole(s, self.w), n - k) for s, n, k in zip(starts, x.shape, aval.shape)]
        x = x if is_view(x) else self.stored(x)
        return self.stored(Lazy(aval.shape, x.dtype, lambda w, i: x.at(w, tuple(self.plus(a, b) for a, b in zip(i, at)))))

    def _dynamic_update_slice(self, e, x, update, *starts):
        at = [self.bounded(self.whole(s, self.w), n - k) for s, n, k in zip(starts, x.shape, update.shape)]
        out, update = self.copy(x), self.stored(update)
        self.nest(update.shape, lambda i: out.set(self.w, tuple(self.plus(a, b) for a, b in zip(i, at)), update.at(self.w, i)))
        return out

    def _gather(self, e, x, indices):
        """Rows x[i] for the indices of one axis that is collapsed, or whole slices."""
        d, sizes, aval, w = e.params["dimension_numbers"], e.params["slice_sizes"], e.results[0], self.w
        if d.operand_batching_dims:
            raise Unsupported("gather")
        x, indices = self.buffer(x), self.stored(indices)
        batch = [k for k in range(len(aval.shape)) if k not in d.offset_dims]
        inner = [k for k in range(len(x.shape)) if k not in d.collapsed_slice_dims]

        def at(w, index):
            outer = tuple(index[k] for k in batch)
            full = [0] * len(x.shape)
            for k, o in zip(inner, d.offset_dims):
                full[k] = index[o]
            for j, k in enumerate(d.start_index_map):
                v = indices.at(w, (*outer, j))
                kind = TYPES[str(indices.dtype)]
                i = int(v.text) if not v.text.startswith("%") else v.text if kind == "i64" else w.put(f"sext {kind} {v.text} to i64")
                full[k] = self.plus(full[k], self.bounded(i, x.shape[k] - sizes[k]))
            return x.at(w, tuple(full))

        return self.stored(Lazy(aval.shape, x.dtype, at))

    # -- the function ------------------------------------------------------------------------------------------
    def text(self, head: str) -> str:
        frees = [f"  call void @free(ptr {x})" for x in self.heap]
        lines = [f"{head} {{", "entry:", *self.allocas, *self.w.lines, *frees, "  ret void", "}"]
        return "\n".join(lines)


def _solver(name, n, k, positive, parent) -> str:
    """Elimination with partial pivoting, or without for positive definite matrices; a is destroyed, b is the result."""
    t = Translator()
    t.globals, t.routines = parent.globals, parent.routines
    w = t.w
    a = Buffer((n, n), float, Memory({}, None, "%a"))
    b = Buffer((n, k), float, Memory({}, None, "%b"))
    floor = literal(np.float64(pivot_floor(np.dtype(float))))

    def num(x):
        return x if isinstance(x, str) else str(x)

    def count_from(first, count, body):
        """body(i) for i from first (a register or number) below count."""
        before, head, inside, done = w.block_name, w.name("for"), w.name("in"), w.name("out")
        w.do(f"br label %{head}")
        w.block(head)
        i = w.put(f"phi i64 [{first}, %{before}]")
        place = len(w.lines) - 1
        w.do(f"br i1 {w.put(f'icmp slt i64 {i}, {count}')}, label %{inside}, label %{done}")
        w.block(inside)
        body(i)
        following = w.put(f"add nuw nsw i64 {i}, 1")
        w.lines[place] += f", [{following}, %{w.block_name}]"
        w.do(f"br label %{head}")
        w.block(done)

    diagonal = t.new((n,), float)
    if positive:
        t.fill(diagonal, Buffer((n,), float, a.memory, (n + 1,)))

    def eliminate(c):
        after = w.put(f"add nsw i64 {c}, 1")
        if not positive:
            best, where = t.new((), float), t.new((), np.int64)
            best.set(w, (), Value("-1.0"))
            where.set(w, (), Value(c))

            def look(i):
                v = Value(w.call("llvm.fabs.f64", np.dtype(float), [a.at(w, (i, c))], False))
                more = w.put(f"fcmp ogt double {v.text}, {best.at(w, ()).text}")
                best.set(w, (), Value(w.put(f"select i1 {more}, double {v.text}, double {best.at(w, ()).text}")))
                where.set(w, (), Value(w.put(f"select i1 {more}, i64 {i}, i64 {where.at(w, ()).text}")))

            count_from(c, n, look)
            p = where.at(w, ()).text

            def swap(m):
                def one(j):
                    x, y = m.at(w, (c, j)), m.at(w, (p, j))
                    m.set(w, (c, j), y)
                    m.set(w, (p, j), x)

                return one

            skip, act = w.name("same"), w.name("swap")
            w.do(f"br i1 {w.put(f'icmp eq i64 {p}, {c}')}, label %{skip}, label %{act}")
            w.block(act)
            count_from(c, n, swap(a))
            count_from("0", k, swap(b))
            w.do(f"br label %{skip}")
            w.block(skip)
        pivot = a.at(w, (c, c)).text
        inverse = w.put(f"fdiv double 1.0, {pivot}")
        if positive:
            size = w.call("llvm.fabs.f64", np.dtype(float), [diagonal.at(w, (c,))], False)
            sound = w.put(f"fcmp ogt double {pivot}, {w.put(f'fmul double {floor}, {size}')}")
            inverse = w.put(f"select i1 {sound}, double {inverse}, double 0x7FF8000000000000")
        a.set(w, (c, c), Value(inverse))

        def row(i):
            f = w.put(f"fmul double {a.at(w, (i, c)).text}, {inverse}")

            def entry(m):
                def one(j):
                    product = w.put(f"fmul contract double {f}, {m.at(w, (c, j)).text}")
                    m.set(w, (i, j), Value(w.put(f"fsub contract double {m.at(w, (i, j)).text}, {product}")))

                return one

            count_from(after, n, entry(a))
            count_from("0", k, entry(b))

        count_from(after, n, row)

    t.loop(n, lambda c: eliminate(num(c)) if isinstance(c, str) else eliminate(w.put(f"add i64 {c}, 0")), 0)

    def back(s):
        i = w.put(f"sub nsw i64 {n - 1}, {s}")
        after = w.put(f"add nsw i64 {i}, 1")

        def row(j):
            def one(m):
                product = w.put(f"fmul contract double {a.at(w, (i, j)).text}, {b.at(w, (j, m)).text}")
                b.set(w, (i, m), Value(w.put(f"fsub contract double {b.at(w, (i, m)).text}, {product}")))

            count_from("0", k, one)

        count_from(after, n, row)
        inverse = a.at(w, (i, i)).text
        count_from("0", k, lambda m: b.set(w, (i, m), Value(w.put(f"fmul double {b.at(w, (i, m)).text}, {inverse}"))))

    t.loop(n, back, 0)
    parent.w.declared |= w.declared
    return t.text(f"define internal void @{name}(ptr noalias %a, ptr noalias %b) noinline")


def flat_inputs(t, pointer, shapes):
    """Arrays from a vector of float64."""
    found, position = [], 0
    memory = Memory({}, None, pointer)
    for shape, dtype in shapes:
        size, dtype = math.prod(shape), np.dtype(dtype)
        x = Buffer(shape, float, memory, None, position)
        if dtype != np.float64:
            source, prim = x, jax.lax.convert_element_type_p
            x = t.stored(Lazy(shape, dtype, lambda w, i, x=source, d=dtype: t.scalar("convert_element_type", prim, {"new_dtype": d, "weak_type": False, "sharding": None}, [np.dtype(float)], d, [x.at(w, i)])))
        found.append(x)
        position += size
    return found


def flat_outputs(t, pointer, arrays):
    position, memory = 0, Memory({}, None, pointer)
    prim = jax.lax.convert_element_type_p
    for x in arrays:
        y = x
        if x.dtype != np.float64:
            y = Lazy(x.shape, float, lambda w, i, x=x: t.scalar("convert_element_type", prim, {"new_dtype": np.dtype(float), "weak_type": False, "sharding": None}, [x.dtype], np.dtype(float), [x.at(w, i)]))
        t.fill(Buffer(x.shape, float, memory, None, position), y)
        position += x.size


def _outer(op: Op) -> list[Item]:
    """The items from around an operation that its regions read."""
    inside: set[int] = set()
    found: dict[int, Item] = {}

    def look(region: Region) -> None:
        inside.update(x.id for x in region.inputs)
        for each in region.ops:
            for x in each.args:
                if x.id not in inside and x.value is None:
                    found[x.id] = x
            for inner in each.regions:
                look(inner)
            inside.update(x.id for x in each.results)
        for x in region.results:
            if x.id not in inside and x.value is None:
                found[x.id] = x

    for region in op.regions:
        look(region)
    return list(found.values())


def _uses(region: Region) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The items that each operation is the last to read, and how often each item is read."""
    last: dict[int, int] = {}
    uses: dict[int, int] = {}
    for k, op in enumerate(region.ops):
        for x in op.args:
            uses[x.id] = uses.get(x.id, 0) + 1
            last[x.id] = k
        if op.regions:
            for x in _outer(op):
                uses[x.id] = uses.get(x.id, 0) + 2
                last[x.id] = k
    for x in region.results:
        uses[x.id] = uses.get(x.id, 0) + 1
        last[x.id] = len(region.ops)
    ends: dict[int, list[int]] = {}
    for number, k in last.items():
        ends.setdefault(k, []).append(number)
    return ends, uses


class Program:
    """A function of trees of arrays as machine code that reads and writes vectors of float64."""

    def __init__(self, function: Callable, *examples: Any):
        closed, result = jax.make_jaxpr(function, return_shape=True)(*examples)
        self.graph = Arrays(closed)
        self.inputs = [[(x.shape, np.dtype(x.dtype)) for x in jax.tree.leaves(e)] for e in examples]
        self.result_tree = jax.tree.structure(result)
        self.results = [(x.shape, np.dtype(x.dtype)) for x in jax.tree.leaves(result)]

    def text(self, name: str) -> tuple[str, set[str]]:
        """The function `name(input, ..., output)`, and what it uses."""
        t = Translator()
        root = self.graph.root
        arrays = [x for k, shapes in enumerate(self.inputs) for x in flat_inputs(t, f"%in{k}", shapes)]
        outputs = t.write(root, dict(zip([x.id for x in root.inputs], arrays, strict=True)))
        flat_outputs(t, "%out", [t.stored(x) for x in outputs])
        pointers = "".join(f"ptr noalias %in{k}, " for k in range(len(self.inputs)))
        self.bytes = t.bytes
        text = t.text(f"define void @{name}({pointers}ptr noalias %out)")
        return text, {*t.w.declared, *t.routines.values(), *(f"{n} = {x}" for x, n in t.globals.items())}
