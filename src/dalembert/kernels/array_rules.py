"""How each operation on arrays is written: elementwise, moves, sums, indexing."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dalembert.kernels.array_solvers import (
    cholesky,
    factor_any,
    factor_positive,
    factors,
    permutation_of,
    solve_any,
    solve_positive,
    substitution,
)
from dalembert.kernels.array_writer import LANES, UNROLL, Array, ArrayWriter, Buffer, Index, Lazy, Single
from dalembert.kernels.arrays import Item, Op
from dalembert.kernels.graph import Unsupported
from dalembert.kernels.interpret import ELEMENTWISE
from dalembert.kernels.llvm import Value, literal
from dalembert.kernels.native import Block
from dalembert.kernels.vectors import blocks, carried, spread

RULES: dict[str, Callable] = {}


def rule(*names: str) -> Callable:
    """Registers the rule of these operations."""

    def register(function: Callable) -> Callable:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def apply(t: ArrayWriter, op: Op, arguments: Sequence[Array]) -> Sequence[Array]:
    """Writes an operation without regions; returns its results."""
    if op.name in ELEMENTWISE:
        return [_elementwise(t, op, *arguments)]
    if op.name not in RULES:
        raise Unsupported(op.name)
    made = RULES[op.name](t, op, *arguments)
    return made if isinstance(made, list) else [made]


# Elementwise operations.


def _elementwise(t: ArrayWriter, op: Op, *x: Array) -> Array:
    (out,), dtypes = op.results, [a.dtype for a in x]
    if (
        op.name in ("sin", "cos")
        and out.dtype == np.float64
        and out.size >= LANES
        and not isinstance(x[0], Single)
    ):
        return t.circles(op.name, t.buffer(x[0]))

    def number(*values: Value) -> Value:
        return t.scalar(op.name, op.primitive, op.params, dtypes, out.dtype, list(values))

    return _mapped(t, out, number, x)


def _mapped(t: ArrayWriter, out: Item, number: Callable[..., Value], x: Sequence[Array]) -> Array:
    """An array whose entries are `number` of the entries of others; a scalar goes with every entry."""

    def at(w: Block, index: Index) -> Value:
        return number(*(a.at(w, index if a.shape else ()) for a in x))

    if out.shape == () or all(isinstance(a, Single) for a in x):
        return Single(at(t.w, ()), out.shape, out.dtype)
    return Lazy(out.shape, out.dtype, at, False, lambda d: sum(a.leaps(d) for a in x if a.shape))


@rule("clamp")
def _clamp(t: ArrayWriter, op: Op, *x: Array) -> Array:
    dtype = x[1].dtype

    def number(low: Value, y: Value, high: Value) -> Value:
        return t.op("min", dtype, t.op("max", dtype, y, low), high)

    return _mapped(t, op.results[0], number, x)


@rule("select_n")
def _select_n(t: ArrayWriter, op: Op, which: Array, *cases: Array) -> Array:
    dtype = cases[0].dtype

    def number(index: Value, *options: Value) -> Value:
        if which.dtype == bool:
            return t.op("select_n", dtype, index, *options)
        chosen = options[0]
        for k, option in enumerate(options[1:], start=1):
            here = t.op("ge", which.dtype, index, Value(str(k)))
            chosen = t.op("select_n", dtype, here, chosen, option)
        return chosen

    return _mapped(t, op.results[0], number, (which, *cases))


# Moves.


@rule("broadcast_in_dim")
def _broadcast(t: ArrayWriter, op: Op, x: Array) -> Array:
    shape, dims = op.params["shape"], op.params["broadcast_dimensions"]
    if math.prod(shape) != x.size:
        x = t.free(x)
    if isinstance(x, Single):
        return Single(x.value, shape, x.dtype)
    if isinstance(x, Buffer):
        strides = [0] * len(shape)
        for k, d in enumerate(dims):
            strides[d] = x.strides[k] if x.shape[k] == shape[d] else 0
        return Buffer(shape, x.dtype, x.memory, strides, x.offset)
    old = x.shape

    def at(w: Block, i: Index) -> Value:
        return x.at(w, tuple(i[d] if old[k] != 1 else 0 for k, d in enumerate(dims)))

    return Lazy(shape, x.dtype, at, x.is_free, lambda d: x.leaps(dims.index(d)) if d in dims else 0)


@rule("reshape", "squeeze", "expand_dims")
def _reshape(t: ArrayWriter, op: Op, x: Array) -> Array:
    return _reshaped(t, x, op.results[0].shape)


def _reshaped(t: ArrayWriter, x: Array, shape: Sequence[int]) -> Array:
    if x.shape == tuple(shape):
        return x
    if isinstance(x, Single):
        return Single(x.value, shape, x.dtype)
    if [n for n in x.shape if n != 1] == [n for n in shape if n != 1]:
        if isinstance(x, Buffer):
            kept = [s for s, n in zip(x.strides, x.shape, strict=True) if n != 1]
            strides = [kept.pop(0) if n != 1 else 0 for n in shape]
            return Buffer(shape, x.dtype, x.memory, strides, x.offset)
        old = x.shape

        def at(w: Block, i: Index) -> Value:
            kept = [j for j, n in zip(i, shape, strict=True) if n != 1]
            return x.at(w, tuple(kept.pop(0) if n != 1 else 0 for n in old))

        def leaps(axis: int) -> int:
            here = [d for d, n in enumerate(shape) if n != 1]
            there = [d for d, n in enumerate(old) if n != 1]
            return x.leaps(there[here.index(axis)]) if axis in here else 0

        return Lazy(shape, x.dtype, at, x.is_free, leaps)
    x = t.buffer(x)
    return Buffer(shape, x.dtype, x.memory, None, x.offset)


@rule("transpose")
def _transpose(t: ArrayWriter, op: Op, x: Array) -> Array:
    order = op.params["permutation"]
    shape = [x.shape[d] for d in order]
    if isinstance(x, Single):
        return Single(x.value, shape, x.dtype)
    if isinstance(x, Buffer):
        return Buffer(shape, x.dtype, x.memory, [x.strides[d] for d in order], x.offset)
    back = [order.index(k) for k in range(len(order))]
    return Lazy(
        shape,
        x.dtype,
        lambda w, i: x.at(w, tuple(i[b] for b in back)),
        x.is_free,
        lambda d: x.leaps(order[d]),
    )


@rule("slice")
def _slice(t: ArrayWriter, op: Op, x: Array) -> Array:
    return _cut(t, x, op.params["start_indices"], op.results[0].shape, op.params["strides"])


def _cut(
    t: ArrayWriter, x: Array, starts: Sequence[int], shape: Sequence[int], steps: Sequence[int] | None = None
) -> Array:
    steps = steps or (1,) * len(shape)
    if isinstance(x, Single):
        return Single(x.value, shape, x.dtype)
    if isinstance(x, Buffer) and isinstance(x.offset, int):
        return _window(x, starts, shape, steps)

    def at(w: Block, i: Index) -> Value:
        places = zip(i, starts, steps, strict=True)
        return x.at(w, tuple(t.plus(t.times(j, step), start) for j, start, step in places))

    return Lazy(shape, x.dtype, at, x.is_free, x.leaps)


def _window(
    x: Buffer, starts: Sequence[int], shape: Sequence[int], steps: Sequence[int] | None = None
) -> Buffer:
    """A part of a buffer, which it shares."""
    steps = steps or (1,) * len(shape)
    offset = x.offset + sum(a * s for a, s in zip(starts, x.strides, strict=True))
    strides = [s * k for s, k in zip(x.strides, steps, strict=True)]
    return Buffer(shape, x.dtype, x.memory, strides, offset)


@rule("split")
def _split(t: ArrayWriter, op: Op, x: Array) -> list[Array]:
    axis, results, start = op.params["axis"], [], 0
    x = t.free(x)
    for out in op.results:
        starts = [0] * len(x.shape)
        starts[axis], start = start, start + out.shape[axis]
        results.append(_cut(t, x, starts, out.shape))
    return results


@rule("unstack")
def _unstack(t: ArrayWriter, op: Op, x: Array) -> list[Array]:
    axis = op.params.get("axis", 0)
    x = t.free(x)
    results = []
    for k, out in enumerate(op.results):
        starts, shape = [0] * len(x.shape), list(x.shape)
        starts[axis], shape[axis] = k, 1
        results.append(_reshaped(t, _cut(t, x, starts, shape), out.shape))
    return results


@rule("concatenate")
def _concatenate(t: ArrayWriter, op: Op, *parts: Array) -> Array:
    axis, start = op.params["dimension"], 0
    out = t.new(op.results[0].shape, op.results[0].dtype)
    for x in parts:
        starts = [0] * len(out.shape)
        starts[axis], start = start, start + x.shape[axis]
        t.fill(_window(out, starts, x.shape), x)
    return out


@rule("stack")
def _stack(t: ArrayWriter, op: Op, *parts: Array) -> Array:
    axis = op.params.get("axis", 0)
    out = _short_first(t, op.results[0], axis)
    for k, x in enumerate(parts):
        starts, shape = [0] * len(out.shape), list(out.shape)
        starts[axis], shape[axis] = k, 1
        t.fill(_window(out, starts, shape), _reshaped(t, x, shape))
    return out


def _short_first(t: ArrayWriter, out: Item, axis: int) -> Buffer:
    """New memory in which a short axis is the outermost, so that a loop over another axis reads without gaps."""
    shape = list(out.shape)
    if shape[axis] > UNROLL:
        return t.new(shape, out.dtype)
    rows = t.new((shape.pop(axis), *shape), out.dtype)
    strides = list(rows.strides[1:])
    strides.insert(axis, rows.strides[0])
    return Buffer(out.shape, out.dtype, rows.memory, strides)


@rule("tile")
def _tile(t: ArrayWriter, op: Op, x: Array) -> Array:
    out, x = t.new(op.results[0].shape, op.results[0].dtype), t.free(x)
    lifted = (1,) * (len(out.shape) - len(x.shape)) + x.shape
    x = _reshaped(t, x, lifted)
    for tiles in np.ndindex(*(n // m for n, m in zip(out.shape, lifted, strict=True))):
        t.fill(_window(out, [k * m for k, m in zip(tiles, lifted, strict=True)], lifted), x)
    return out


@rule("rev")
def _rev(t: ArrayWriter, op: Op, x: Array) -> Array:
    dims = op.params["dimensions"]
    if isinstance(x, Single):
        return x
    x = t.buffer(x)
    strides = [-s if d in dims else s for d, s in enumerate(x.strides)]
    offset = sum((x.shape[d] - 1) * x.strides[d] for d in dims)
    return Buffer(x.shape, x.dtype, x.memory, strides, t.plus(x.offset, offset))


@rule("pad")
def _pad(t: ArrayWriter, op: Op, x: Array, value: Array) -> Array:
    out = t.new(op.results[0].shape, op.results[0].dtype)
    t.fill(out, Single(value.at(t.w, ()), out.shape, out.dtype))
    first, shape, starts, steps = [], [], [], []
    for n, size, (low, _, inner) in zip(x.shape, out.shape, op.params["padding_config"], strict=True):
        step = inner + 1
        skipped = -(low // step) if low < 0 else 0  # entries that negative padding cuts off
        start = low + skipped * step
        first.append(skipped)
        starts.append(start)
        steps.append(step)
        shape.append(max(0, min(n - skipped, (size - 1 - start) // step + 1)))
    if math.prod(shape):
        t.fill(_window(out, starts, shape, steps), _cut(t, x, first, shape))
    return out


@rule("iota")
def _iota(t: ArrayWriter, op: Op) -> Array:
    d, out = op.params["dimension"], op.results[0]
    line = (
        np.arange(out.shape[d])
        .astype(out.dtype)
        .reshape([-1 if k == d else 1 for k in range(len(out.shape))])
    )
    return t.constant(np.broadcast_to(line, out.shape))


@rule("empty", "empty2")
def _empty(t: ArrayWriter, op: Op) -> Array:
    return t.constant(np.zeros(op.results[0].shape, op.results[0].dtype))


@rule("platform_index")
def _platform_index(t: ArrayWriter, op: Op) -> Array:
    """The index of the implementation to use: the one for every platform, or for the CPU."""
    usual = [i for i, names in enumerate(op.params["platforms"]) if names is None or "cpu" in names]
    return t.constant(np.array(usual[0], op.results[0].dtype))


# Sums and other folds.


def _combined(t: ArrayWriter, name: str, dtype: np.dtype, a: Value, b: Value) -> Value:
    if dtype == np.float64 and name == "add":
        return Value(t.w.put(f"fadd contract reassoc double {a.text}, {b.text}"))
    return t.op(name, dtype, a, b)


def _accumulated(
    t: ArrayWriter,
    name: str,
    start: Value,
    dtype: np.dtype,
    shape: Sequence[int],
    term: Callable[[Index], Value],
) -> Value:
    """All terms combined, from a start that changes nothing."""
    w = t.w
    if math.prod(shape) <= UNROLL:
        total: Value | None = None
        for index in np.ndindex(*shape):
            total = term(index) if total is None else _combined(t, name, dtype, total, term(index))
        return start if total is None else total
    place = t.new((), dtype)
    place.set(w, (), start)
    t.nest(shape, lambda i: place.set(w, (), _combined(t, name, dtype, place.at(w, ()), term(i))))
    return place.at(w, ())


def _along(t: ArrayWriter, out: Item, axis: int) -> tuple[Buffer, list[int]]:
    """A buffer for a result whose memory follows an axis, and the lengths of the other axes."""
    others = [n for d, n in enumerate(out.shape) if d != axis]
    rows = t.new((*others, out.shape[axis]), out.dtype)
    strides = list(rows.strides[:-1])
    strides.insert(axis, 1)
    return Buffer(out.shape, out.dtype, rows.memory, strides), others


def _summed(t: ArrayWriter, out: Item, axis: int, count: int, term: Callable[[Index, Any], Value]) -> Array:
    """Sums of `count` terms, with an axis of the result as the innermost loop, so that it runs along memory."""
    w, width = t.w, out.shape[axis]
    total, others = _along(t, out, axis)

    def row(index: Index) -> None:
        def place(j: Any) -> Index:
            return (*index[:axis], j, *index[axis:])

        t.loop(width, lambda j: total.set(w, place(j), term(place(j), 0)), 1)

        def more(k: Any) -> None:
            k = t.plus(k, 1)

            def entry(j: Any) -> None:
                now = total.at(w, place(j)).text
                added = w.put(f"fadd contract double {now}, {term(place(j), k).text}")
                total.set(w, place(j), Value(added))

            t.loop(width, entry, 1)

        t.loop(count - 1, more, 1)

    t.nest(others, row)
    return total


def _sums(
    t: ArrayWriter,
    out: Item,
    over: Sequence[int],
    term: Callable[[Index, Index], Value],
    inner: Callable[[int], int],
    leaps: Callable[[int], int],
) -> Array:
    """Sums of float64. The innermost loop goes over the terms or along an axis of the result, by which of them reads
    with fewer leaps: inner(k) for axis k of the terms, and leaps(axis)."""
    long = [d for d, n in enumerate(out.shape) if n >= UNROLL]
    summed = [k for k, n in enumerate(over) if n != 1]
    if len(summed) == 1 and over[summed[0]] > UNROLL and long:
        axis, (one,) = min(reversed(long), key=leaps), summed
        if leaps(axis) <= inner(one):
            return _summed(t, out, axis, over[one], lambda index, k: term(index, _one_of(len(over), one, k)))
    start = _neutral("add", out.dtype)

    def at(w: Block, index: Index) -> Value:
        return _accumulated(t, "add", start, out.dtype, over, lambda inner: term(index, inner))

    sums = Lazy(out.shape, out.dtype, at, False, leaps)
    # A few terms are computed where the sum is needed, in the same loop as what is done with it.
    return sums if math.prod(over) <= UNROLL else t.stored(sums)


def _neutral(name: str, dtype: np.dtype) -> Value:
    if name in ("max", "min"):
        low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return Value(literal(dtype.type(low if name == "max" else high)))
    return Value(literal(dtype.type({"add": 0, "mul": 1, "and": True, "or": False}[name])))


_FOLDS = {"sum": "add", "prod": "mul"}


@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
def _reduce(t: ArrayWriter, op: Op, x: Array) -> Array:
    axes, (out,) = op.params["axes"], op.results
    name = _FOLDS.get(op.name[7:], op.name[7:])
    kept = [d for d in range(len(x.shape)) if d not in axes]
    over = [x.shape[d] for d in axes]

    def entry(index: Index, inner: Index) -> Value:
        place = dict([*zip(kept, index, strict=True), *zip(axes, inner, strict=True)])
        return x.at(t.w, tuple(place[d] for d in range(len(x.shape))))

    if name == "add" and x.dtype == np.float64:
        return _sums(t, out, over, entry, lambda k: x.leaps(axes[k]), lambda d: x.leaps(kept[d]))
    start = _neutral(name, x.dtype)

    def at(w: Block, index: Index) -> Value:
        return _accumulated(t, name, start, x.dtype, over, lambda inner: entry(index, inner))

    return t.stored(Lazy(out.shape, x.dtype, at, free=False))


@rule("cumsum", "cumprod", "cummax", "cummin")
def _cumulative(t: ArrayWriter, op: Op, x: Array) -> Array:
    axis, w, x = op.params["axis"], t.w, t.free(x)
    out, n = t.new(x.shape, x.dtype), x.shape[axis]
    name = _FOLDS.get(op.name[3:], op.name[3:])

    def line(index: Index) -> None:
        total = t.new((), x.dtype)
        total.set(w, (), _neutral(name, x.dtype))

        def add(k: Any) -> None:
            k = t.from_end(n, k) if op.params["reverse"] else k
            full = (*index[:axis], k, *index[axis:])
            total.set(w, (), t.op(name, x.dtype, total.at(w, ()), x.at(w, full)))
            out.set(w, full, total.at(w, ()))

        t.loop(n, add)

    t.nest([m for d, m in enumerate(x.shape) if d != axis], line)
    return out


@rule("argmax", "argmin")
def _arg(t: ArrayWriter, op: Op, x: Array) -> Array:
    (axis,), kind, x = op.params["axes"], np.dtype(op.params["index_dtype"]), t.free(x)
    better, memory = "gt" if op.name == "argmax" else "lt", t.kind(kind)

    def at(w: Block, index: Index) -> Value:
        best, where = t.new((), x.dtype), t.new((), kind)

        def entry(k: Any) -> Value:
            return x.at(w, (*index[:axis], k, *index[axis:]))

        best.set(w, (), entry(0))
        where.set(w, (), Value("0"))

        def look(k: Any) -> None:
            k = t.plus(k, 1)
            item, now = entry(k), best.at(w, ())
            wins = t.op(better, x.dtype, item, now)
            if x.dtype.kind == "f":  # a NaN counts as the best, and the first one wins
                nan = t.op(
                    "and", np.dtype(bool), t.op("ne", x.dtype, item, item), t.op("eq", x.dtype, now, now)
                )
                wins = t.op("or", np.dtype(bool), wins, nan)
            number = str(k) if isinstance(k, int) or memory == "i64" else w.put(f"trunc i64 {k} to {memory}")
            best.set(w, (), t.op("select_n", x.dtype, wins, now, item))
            old = where.at(w, ()).text
            where.set(w, (), Value(w.put(f"select i1 {wins.text}, {memory} {number}, {memory} {old}")))

        t.loop(x.shape[axis] - 1, look)
        return where.at(w, ())

    return t.stored(Lazy(op.results[0].shape, kind, at, free=False))


def _products(
    t: ArrayWriter,
    out: Item,
    axis: int,
    count: int,
    factor: Callable[[Index, Any], Value],
    row: Callable[[Index, Any], str],
) -> Array:
    """Sums over k of factor(index, k) times row(index, k), which follows its memory along an axis of the result.

    The sums stay in vector registers.
    """
    w, width = t.w, out.shape[axis]
    total, others = _along(t, out, axis)

    def one(index: Index) -> None:
        def block(start: Any, columns: list[tuple[int, str]]) -> None:
            def place(c: int) -> Index:
                return (*index[:axis], t.plus(start, c), *index[axis:])

            def add(k: str, sums: list[str]) -> list[str]:
                x, made = factor(place(0), k), []
                for now, (c, kind) in zip(sums, columns, strict=True):
                    entries = w.put(f"load {kind}, ptr {row(place(c), k)}, align 8")
                    product = w.put(f"fmul contract {kind} {entries}, {spread(w, x, kind)}")
                    made.append(w.put(f"fadd contract {kind} {now}, {product}"))
                return made

            sums = carried(w, 0, count, [(kind, "zeroinitializer") for _, kind in columns], add)
            for x, (c, kind) in zip(sums, columns, strict=True):
                w.do(f"store {kind} {x}, ptr {total.place(w, place(c))}, align 8")

        blocks(t, width, block)

    t.nest(others, one)
    return total


@rule("dot_general")
def _dot_general(t: ArrayWriter, op: Op, a: Array, b: Array) -> Array:
    (of_a, of_b), (batch_a, batch_b) = op.params["dimension_numbers"]
    (out,), w = op.results, t.w
    a, b = (t.free(x) if x.dtype == out.dtype else t.stored(t.converted(x, out.dtype)) for x in (a, b))
    free_a = [d for d in range(len(a.shape)) if d not in (*of_a, *batch_a)]
    free_b = [d for d in range(len(b.shape)) if d not in (*of_b, *batch_b)]
    over, n = [a.shape[d] for d in of_a], len(batch_a)
    k = n + len(free_a)

    def in_a(index: Index, inner: Index) -> Index:
        place = dict(zip([*batch_a, *free_a, *of_a], [*index[:k], *inner], strict=True))
        return tuple(place[d] for d in range(len(a.shape)))

    def in_b(index: Index, inner: Index) -> Index:
        place = dict(zip([*batch_b, *free_b, *of_b], [*index[:n], *index[k:], *inner], strict=True))
        return tuple(place[d] for d in range(len(b.shape)))

    def term(index: Index, inner: Index) -> Value:
        return t.product(a.at(w, in_a(index, inner)), b.at(w, in_b(index, inner)), out.dtype)

    if out.dtype != np.float64:
        start = _neutral("add", out.dtype)

        def at(w: Block, index: Index) -> Value:
            return _accumulated(t, "add", start, out.dtype, over, lambda inner: term(index, inner))

        return t.stored(Lazy(out.shape, out.dtype, at, free=False))
    of = [*zip(batch_a, batch_b, strict=True), *((d, None) for d in free_a), *((None, d) for d in free_b)]
    long = [j for j, count in enumerate(over) if count != 1]
    if len(long) == 1 and over[long[0]] > UNROLL:
        inside = partial(_one_of, len(over), long[0])
        for axis in reversed(range(len(out.shape))):
            for rows, d, places, other, others in (
                (a, of[axis][0], in_a, b, in_b),
                (b, of[axis][1], in_b, a, in_a),
            ):
                if d is None or None not in of[axis] or out.shape[axis] <= UNROLL:
                    continue
                if isinstance(rows, Buffer) and rows.strides[d] == 1:
                    return _products(
                        t, out, axis, over[long[0]],
                        lambda index, k, x=other, at=others: x.at(w, at(index, inside(k))),
                        lambda index, k, x=rows, at=places: x.place(w, at(index, inside(k))),
                    )  # fmt: skip

    def leaps(axis: int) -> int:
        return sum(x.leaps(d) for x, d in zip((a, b), of[axis], strict=True) if d is not None)

    return _sums(t, out, over, term, lambda k: a.leaps(of_a[k]) + b.leaps(of_b[k]), leaps)


def _one_of(count: int, which: int, k: Any) -> Index:
    """The index k on one of several axes, of which the others have one entry."""
    return tuple(k if j == which else 0 for j in range(count))


# Indexing by numbers that are computed.


def _starts(t: ArrayWriter, starts: Sequence[Array], sizes: Sequence[int], shape: Sequence[int]) -> list[Any]:
    items = zip(starts, sizes, shape, strict=True)
    return [t.bounded(t.index(s.at(t.w, ()), s.dtype), n - size) for s, size, n in items]


@rule("dynamic_slice")
def _dynamic_slice(t: ArrayWriter, op: Op, x: Array, *starts: Array) -> Array:
    (out,), x = op.results, t.free(x)
    first = _starts(t, starts, out.shape, x.shape)

    def at(w: Block, i: Index) -> Value:
        return x.at(w, tuple(t.plus(a, b) for a, b in zip(i, first, strict=True)))

    return t.stored(Lazy(out.shape, x.dtype, at, free=False))


@rule("dynamic_update_slice")
def _dynamic_update_slice(t: ArrayWriter, op: Op, x: Array, update: Array, *starts: Array) -> Array:
    first = _starts(t, starts, update.shape, x.shape)
    out, update = t.copy(x), t.free(update)

    def one(i: Index) -> None:
        out.set(t.w, tuple(t.plus(a, b) for a, b in zip(i, first, strict=True)), update.at(t.w, i))

    t.nest(update.shape, one)
    return out


class _Places:
    """Where the windows of a gather or a scatter are, by the numbers in `indices`."""

    def __init__(
        self, t: ArrayWriter, shape: Sequence[int], sizes: Sequence[int], indices: Array, mapped, batching
    ):
        self.t, self.shape, self.sizes, self.indices = t, shape, sizes, t.free(indices)
        self.mapped, (self.batched, self.along) = mapped, batching

    def starts(self, outer: Index) -> dict[int, Any]:
        """The start of a window along each axis that has an index; `outer` says which window."""
        t = self.t
        found = {axis: outer[d] for axis, d in zip(self.batched, self.along, strict=True)}
        for j, axis in enumerate(self.mapped):
            found[axis] = t.index(self.indices.at(t.w, (*outer, j)), self.indices.dtype)
        return found

    def inside(self, starts: dict[int, Any]) -> Value:
        """Whether a window is within the array."""
        true, found = np.dtype(bool), Value("true")
        for axis in self.mapped:
            here = self.t.inside(starts[axis], self.shape[axis] - self.sizes[axis])
            found = self.t.op("and", true, found, Value(here))
        return found

    def bounded(self, starts: dict[int, Any]) -> dict[int, Any]:
        """The starts, moved so that the window is within the array."""
        most = {axis: self.shape[axis] - self.sizes[axis] for axis in self.mapped}
        return {d: self.t.bounded(i, most[d]) if d in most else i for d, i in starts.items()}


@rule("gather")
def _gather(t: ArrayWriter, op: Op, x: Array, indices: Array) -> Array:
    numbers, sizes, (out,) = op.params["dimension_numbers"], op.params["slice_sizes"], op.results
    batching = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    places = _Places(t, x.shape, sizes, indices, numbers.start_index_map, batching)
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    inner = [d for d in range(len(x.shape)) if d not in gone]
    x, fill = t.free(x), _outside(op, out.dtype)

    def at(w: Block, index: Index) -> Value:
        outer = tuple(i for k, i in enumerate(index) if k not in numbers.offset_dims)
        starts = places.starts(outer)
        within = {d: index[k] for d, k in zip(inner, numbers.offset_dims, strict=True)}
        safe = places.bounded(starts)
        value = x.at(w, tuple(t.plus(safe.get(d, 0), within.get(d, 0)) for d in range(len(x.shape))))
        return value if fill is None else t.op("select_n", out.dtype, places.inside(starts), fill, value)

    return t.stored(Lazy(out.shape, x.dtype, at, free=False))


def _outside(op: Op, dtype: np.dtype) -> Value | None:
    """What a gather gives outside of the array; None if it cannot get there."""
    if "FILL" not in str(op.params["mode"]):
        return None
    fill = op.params.get("fill_value")
    if fill is None:
        usual = {"f": lambda: np.nan, "i": lambda: np.iinfo(dtype).min, "u": lambda: np.iinfo(dtype).max}
        fill = usual.get(dtype.kind, lambda: True)()
    return Value(literal(dtype.type(fill)))


@rule(*(f"scatter{end}" for end in ("", "-add", "-mul", "-min", "-max", "_add", "_mul", "_min", "_max")))
def _scatter(t: ArrayWriter, op: Op, x: Array, indices: Array, updates: Array) -> Array:
    numbers, how = op.params["dimension_numbers"], op.name[8:]
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    inner = [d for d in range(len(x.shape)) if d not in gone]
    sizes = [1] * len(x.shape)
    for d, k in zip(inner, numbers.update_window_dims, strict=True):
        sizes[d] = updates.shape[k]
    batching = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    places = _Places(t, x.shape, sizes, indices, numbers.scatter_dims_to_operand_dims, batching)
    out, updates, clip = t.copy(x), t.free(updates), "CLIP" in str(op.params["mode"])

    def one(index: Index) -> None:
        outer = tuple(i for k, i in enumerate(index) if k not in numbers.update_window_dims)
        starts = places.starts(outer)
        within = {d: index[k] for d, k in zip(inner, numbers.update_window_dims, strict=True)}

        def write() -> None:
            safe = places.bounded(starts) if clip else starts
            place = tuple(t.plus(safe.get(d, 0), within.get(d, 0)) for d in range(len(x.shape)))
            value = updates.at(t.w, index)
            out.set(t.w, place, t.op(how, x.dtype, out.at(t.w, place), value) if how else value)

        inside = Value("true") if clip else places.inside(starts)
        if inside.text == "true":
            write()
        elif inside.text != "false":
            t.w.when(inside.text, write)

    t.nest(updates.shape, one)
    return out


@rule("sort")
def _sort(t: ArrayWriter, op: Op, *arrays: Array) -> list[Array]:
    """Sorts whole numbers only, for permutations, which linear solves invert by sorting."""
    axis, w, key = op.params["dimension"], t.w, arrays[0].dtype
    if op.params["num_keys"] != 1 or key.kind != "i":
        raise Unsupported("sort")
    outs, n = [t.copy(x) for x in arrays], arrays[0].shape[axis]

    def line(index: Index) -> None:
        def places(k: Any) -> tuple[Index, Index]:
            here, there = k, t.plus(k, 1)
            return (*index[:axis], here, *index[axis:]), (*index[:axis], there, *index[axis:])

        def look(k: Any) -> None:
            a, b = places(k)
            swap = t.op("gt", key, outs[0].at(w, a), outs[0].at(w, b))
            for x in outs:
                first, second = x.at(w, a), x.at(w, b)
                x.set(w, a, t.op("select_n", x.dtype, swap, first, second))
                x.set(w, b, t.op("select_n", x.dtype, swap, second, first))

        t.loop(n - 1, lambda _: t.loop(n - 1, look, 1), 1)

    t.nest([m for d, m in enumerate(arrays[0].shape) if d != axis], line)
    return list(outs)


# Linear algebra.


def _columns(x: Buffer) -> Buffer:
    """A buffer of a vector or of a matrix, as a matrix."""
    return Buffer((x.shape[0], x.size // x.shape[0]), x.dtype, x.memory, None, x.offset)


@rule("factor")
def _factor(t: ArrayWriter, op: Op, a: Array) -> list[Array]:
    out = t.copy(a)
    if op.params["positive"]:
        factor_positive(t, out)
        return [out]
    order = t.new(op.results[1].shape, op.results[1].dtype)
    factor_any(t, out, order)
    return [out, order]


@rule("solve_factored")
def _solve_factored(t: ArrayWriter, op: Op, a: Array, *rest: Array) -> Array:
    matrix = t.buffer(a)
    if op.params["positive"]:
        out = t.copy(rest[0])
        solve_positive(t, matrix, _columns(out))
        return out
    order, right = (t.buffer(x) for x in rest)
    out = t.new(right.shape, right.dtype)
    solve_any(t, matrix, order, _columns(right), _columns(out))
    return out


def _matrices(t: ArrayWriter, x: Buffer, body: Callable[[Index], None]) -> None:
    t.nest(x.shape[:-2], body)


def _matrix(t: ArrayWriter, x: Buffer, index: Index, rank: int = 2) -> Buffer:
    """One matrix (or row, if the rank is 1) of a buffer of many."""
    offset = x.offset
    for i, stride in zip(index, x.strides, strict=False):
        offset = t.plus(offset, t.times(i, stride))
    return Buffer(x.shape[-rank:], x.dtype, x.memory, x.strides[-rank:], offset)


@rule("cholesky")
def _cholesky(t: ArrayWriter, op: Op, a: Array) -> Array:
    out = t.copy(a)
    _matrices(t, out, lambda i: cholesky(t, _matrix(t, out, i)))
    return out


@rule("triangular_solve")
def _triangular_solve(t: ArrayWriter, op: Op, a: Array, b: Array) -> Array:
    p, matrices, out = op.params, t.buffer(a), t.copy(b)

    def one(i: Index) -> None:
        matrix, right, lower = _matrix(t, matrices, i), _matrix(t, out, i), p["lower"]
        if p["transpose_a"]:
            matrix, lower = _turned(matrix), not lower
        if not p["left_side"]:  # x a = b is a^T x^T = b^T
            matrix, right, lower = _turned(matrix), _turned(right), not lower
        substitution(t, matrix, right, lower, p["unit_diagonal"])

    _matrices(t, out, one)
    return out


def _turned(x: Buffer) -> Buffer:
    return Buffer(x.shape[::-1], x.dtype, x.memory, x.strides[::-1], x.offset)


@rule("lu")
def _lu(t: ArrayWriter, op: Op, a: Array) -> list[Array]:
    out = t.copy(a)
    pivots, order = (t.new(x.shape, x.dtype) for x in op.results[1:])
    _matrices(
        t, out, lambda i: factors(t, _matrix(t, out, i), _matrix(t, pivots, i, 1), _matrix(t, order, i, 1))
    )
    return [out, pivots, order]


@rule("lu_pivots_to_permutation")
def _permutation(t: ArrayWriter, op: Op, pivots: Array) -> Array:
    source, out = t.buffer(pivots), t.new(op.results[0].shape, op.results[0].dtype)
    t.nest(out.shape[:-1], lambda i: permutation_of(t, _matrix(t, source, i, 1), _matrix(t, out, i, 1)))
    return out
