"""Elimination and factorisations as loops over memory."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dalembert.kernels.array_writer import UNROLL, ArrayWriter, Buffer, Memory
from dalembert.kernels.llvm import Value, literal
from dalembert.kernels.vectors import blocks, carried, spread
from dalembert.numerics import pivot_floor

NAN = literal(np.float64(np.nan))


def factor_any(t: ArrayWriter, a: Buffer, order: Buffer) -> None:
    """L and U in place of a matrix, whose rows are exchanged, and the order of the rows.

    The diagonal is that of U^-1; a singular matrix gives infinity there.
    """
    _call(t, f"factor_any_{a.shape[0]}", _factor_any, a, order)


def solve_any(t: ArrayWriter, a: Buffer, order: Buffer, b: Buffer, x: Buffer) -> None:
    """Writes the solution of the equations with right sides b to x, given what `factor_any` made."""
    n, k = b.shape
    _call(t, f"solve_any_{n}_{k}", _solve_any, a, order, b, x)


def factor_positive(t: ArrayWriter, a: Buffer) -> None:
    """L and U = D L^T in place of a positive definite matrix L D L^T; the diagonal is that of D^-1.

    Both L and U are there, so that substitution always runs along rows.
    """
    _call(t, f"factor_positive_{a.shape[0]}", _factor_positive, a)


def solve_positive(t: ArrayWriter, a: Buffer, b: Buffer) -> None:
    """Solves L D L^T x = b in place of b, given what `factor_positive` made."""
    n, k = b.shape
    _call(t, f"solve_positive_{n}_{k}", _solve_positive, a, b)


def _call(t: ArrayWriter, name: str, write: Callable[..., None], *matrices: Buffer) -> None:
    """Calls the function @name on matrices, which `write` writes if no other one of these sizes needed it before."""
    if name not in t.routines:
        t.routines[name] = ""  # so that it is written once
        inner = ArrayWriter(t)
        pointers = [f"%a{k}" for k in range(len(matrices))]
        write(inner, *(Buffer(x.shape, x.dtype, Memory(p)) for x, p in zip(matrices, pointers, strict=True)))
        t.w.declared |= inner.w.declared
        given = ", ".join(f"ptr noalias {p}" for p in pointers)
        t.routines[name] = inner.text(f"define internal void @{name}({given}) noinline", pointers)
    places = [x.place(t.w, (0,) * len(x.shape)) for x in matrices]
    t.w.do(f"call void @{name}({', '.join(f'ptr {x}' for x in places)})")


def _factor_any(t: ArrayWriter, a: Buffer, order: Buffer) -> None:
    w, n = t.w, a.shape[0]
    t.loop(n, lambda i: order.set(w, (i,), Value(str(i))))

    def eliminate(c: str) -> None:
        _pivoted(t, a, order, c)
        inverse = w.put(f"fdiv double 1.0, {a.at(w, (c, c)).text}")
        a.set(w, (c, c), Value(inverse))
        after = w.put(f"add nsw i64 {c}, 1")

        def row(i: str) -> None:
            factor = Value(w.put(f"fmul double {a.at(w, (i, c)).text}, {inverse}"))
            a.set(w, (i, c), factor)
            w.each(after, n, lambda j: _subtract(t, a, (i, j), factor, a.at(w, (c, j))))

        w.each(after, n, row)

    w.each(0, n, eliminate)


def _solve_any(t: ArrayWriter, a: Buffer, order: Buffer, b: Buffer, x: Buffer) -> None:
    w, (n, k) = t.w, b.shape

    def ordered(i: Any) -> None:
        source = t.index(order.at(w, (i,)), order.dtype)
        t.loop(k, lambda m: x.set(w, (i, m), b.at(w, (source, m))))

    t.loop(n, ordered)
    if k > UNROLL:
        _substituted(t, a, x)
        return
    # Columns of the matrix, because sums along its rows would have to wait for each other.
    w.each(
        0, n, lambda c: _subtract_along(t, x, w.put(f"add nsw i64 {c}, 1"), n, c, lambda j: a.at(w, (j, c)))
    )

    def backward(s: str) -> None:
        i = w.put(f"sub nsw i64 {n - 1}, {s}")
        _scale(t, x, i, a.at(w, (i, i)))
        _subtract_along(t, x, 0, i, i, lambda j: a.at(w, (j, i)))

    w.each(0, n, backward)


def _substituted(t: ArrayWriter, a: Buffer, b: Buffer) -> None:
    """Solves L U x = b in place of many right sides; L has a unit diagonal, and the diagonal is that of U^-1.

    A row of the solution is a sum over earlier rows, which stays in vector registers.
    """
    w, (n, k) = t.w, b.shape

    def block(start: Any, columns: list[tuple[int, str]]) -> None:
        def place(i: str, c: int) -> str:
            return b.place(w, (i, t.plus(start, c)))

        def summed(i: str, first: Any, end: Any) -> list[str]:
            """Row i of b, minus the rows from `first` on times entries of row i of the matrix."""
            starts = [(kind, w.put(f"load {kind}, ptr {place(i, c)}, align 8")) for c, kind in columns]

            def subtract(j: str, sums: list[str]) -> list[str]:
                factor, made = a.at(w, (i, j)), []
                for total, (c, kind) in zip(sums, columns, strict=True):
                    row = w.put(f"load {kind}, ptr {place(j, c)}, align 8")
                    product = w.put(f"fmul contract {kind} {row}, {spread(w, factor, kind)}")
                    made.append(w.put(f"fsub contract {kind} {total}, {product}"))
                return made

            return carried(w, first, end, starts, subtract)

        def keep(i: str, sums: list[str]) -> None:
            for x, (c, kind) in zip(sums, columns, strict=True):
                w.do(f"store {kind} {x}, ptr {place(i, c)}, align 8")

        def backward(s: str) -> None:
            i = w.put(f"sub nsw i64 {n - 1}, {s}")
            sums, inverse = summed(i, w.put(f"add nsw i64 {i}, 1"), n), a.at(w, (i, i))
            pairs = zip(sums, columns, strict=True)
            keep(i, [w.put(f"fmul {kind} {x}, {spread(w, inverse, kind)}") for x, (_, kind) in pairs])

        w.each(0, n, lambda i: keep(i, summed(i, 0, i)))
        w.each(0, n, backward)

    blocks(t, k, block)


def _scale(t: ArrayWriter, b: Buffer, i: str, factor: Value) -> None:
    """Multiplies a row."""
    w = t.w
    t.loop(b.shape[1], lambda m: b.set(w, (i, m), t.product(b.at(w, (i, m)), factor, b.dtype)))


def _subtract_along(
    t: ArrayWriter, b: Buffer, first: Any, end: Any, c: str, entry: Callable[[str], Value]
) -> None:
    """Subtracts row c of b, of few entries, times entry(j), from each row j between `first` and `end`."""
    w = t.w
    for m in range(b.shape[1]):
        x = b.at(w, (c, m))
        w.each(first, end, lambda j, m=m, x=x: _subtract(t, b, (j, m), entry(j), x))


def _factor_positive(t: ArrayWriter, a: Buffer) -> None:
    w, n = t.w, a.shape[0]
    floor, diagonal = literal(np.float64(pivot_floor(np.dtype(float)))), t.new((n,), float)
    t.fill(diagonal, Buffer((n,), float, a.memory, (n + 1,)))

    def eliminate(c: str) -> None:
        pivot = a.at(w, (c, c)).text
        size = w.call("llvm.fabs.f64", np.dtype(float), [diagonal.at(w, (c,))], False)
        sound = w.put(f"fcmp ogt double {pivot}, {w.put(f'fmul double {floor}, {size}')}")
        inverse = w.put(f"select i1 {sound}, double {w.put(f'fdiv double 1.0, {pivot}')}, double {NAN}")
        a.set(w, (c, c), Value(inverse))

        def row(i: str) -> None:
            # What is left of a symmetric matrix is symmetric, so its upper half is enough.
            factor = Value(w.put(f"fmul double {a.at(w, (c, i)).text}, {inverse}"))
            w.each(i, n, lambda j: _subtract(t, a, (i, j), factor, a.at(w, (c, j))))
            a.set(w, (i, c), factor)

        w.each(w.put(f"add nsw i64 {c}, 1"), n, row)

    w.each(0, n, eliminate)


def _solve_positive(t: ArrayWriter, a: Buffer, b: Buffer) -> None:
    w, (n, k) = t.w, b.shape
    if k > UNROLL:
        _substituted(t, a, b)
        return

    def forward(c: str) -> None:
        """Row c of D^-1 L^-1 b, and what it takes from the rows below."""
        _scale(t, b, c, a.at(w, (c, c)))
        along(w.put(f"add nsw i64 {c}, 1"), n, c)

    def backward(s: str) -> None:
        i = w.put(f"sub nsw i64 {n - 1}, {s}")
        along(0, i, i)

    def along(first: Any, end: Any, c: str) -> None:
        _subtract_along(t, b, first, end, c, lambda j: a.at(w, (c, j)))

    w.each(0, n, forward)
    w.each(0, n, backward)


def _subtract(t: ArrayWriter, x: Buffer, place: tuple, a: Value, b: Value) -> None:
    """x[place] -= a b."""
    w = t.w
    product = t.product(a, b, x.dtype).text
    x.set(w, place, Value(w.put(f"fsub contract double {x.at(w, place).text}, {product}")))


def _largest_below(t: ArrayWriter, a: Buffer, c: str) -> str:
    """The row from c on with the largest entry in column c."""
    w = t.w
    best, where = t.new((), float), t.new((), np.int64)
    best.set(w, (), Value(literal(np.float64(-1))))
    where.set(w, (), Value(c))

    def look(i: str) -> None:
        size = w.call("llvm.fabs.f64", np.dtype(float), [a.at(w, (i, c))], False)
        more = w.put(f"fcmp ogt double {size}, {best.at(w, ()).text}")
        best.set(w, (), Value(w.put(f"select i1 {more}, double {size}, double {best.at(w, ()).text}")))
        where.set(w, (), Value(w.put(f"select i1 {more}, i64 {i}, i64 {where.at(w, ()).text}")))

    w.each(c, a.shape[0], look)
    return where.at(w, ()).text


def _pivoted(t: ArrayWriter, a: Buffer, order: Buffer, c: str) -> str:
    """Brings the largest entry of column c, from row c on, to row c; returns the row in which it was."""
    w, best = t.w, _largest_below(t, a, c)

    def swap() -> None:
        for x in (a, order):
            _swapped(t, x, c, best)

    w.when(w.put(f"icmp ne i64 {best}, {c}"), swap)
    return best


def _swapped(t: ArrayWriter, x: Buffer, first: str, second: str) -> None:
    """Exchanges two rows of a matrix, or two entries of a vector."""
    w = t.w

    def one(index: tuple) -> None:
        above, below = x.at(w, (first, *index)), x.at(w, (second, *index))
        x.set(w, (first, *index), below)
        x.set(w, (second, *index), above)

    t.nest(x.shape[1:], one)


def cholesky(t: ArrayWriter, a: Buffer) -> None:
    """The lower factor L of L L^T, in place of a symmetric matrix."""
    w, n = t.w, a.shape[0]

    def column(j: str) -> None:
        def inner(i: str) -> None:
            w.each(0, j, lambda k: _subtract(t, a, (i, j), a.at(w, (i, k)), a.at(w, (j, k))))

        inner(j)
        root = w.call("llvm.sqrt.f64", np.dtype(float), [a.at(w, (j, j))], False)
        a.set(w, (j, j), Value(root))

        def below(i: str) -> None:
            inner(i)
            a.set(w, (i, j), Value(w.put(f"fdiv double {a.at(w, (i, j)).text}, {root}")))
            a.set(w, (j, i), Value(literal(np.float64(0))))

        w.each(w.put(f"add nsw i64 {j}, 1"), n, below)

    w.each(0, n, column)


def substitution(t: ArrayWriter, a: Buffer, b: Buffer, lower: bool, unit: bool) -> None:
    """Solves a x = b in place of b, for a triangular matrix."""
    w, (n, k) = t.w, b.shape

    def row(s: str) -> None:
        i = s if lower else w.put(f"sub nsw i64 {n - 1}, {s}")
        first, end = ("0", i) if lower else (w.put(f"add nsw i64 {i}, 1"), n)

        def column(m: str) -> None:
            w.each(first, end, lambda j: _subtract(t, b, (i, m), a.at(w, (i, j)), b.at(w, (j, m))))
            if not unit:
                b.set(w, (i, m), Value(w.put(f"fdiv double {b.at(w, (i, m)).text}, {a.at(w, (i, i)).text}")))

        w.each(0, k, column)

    w.each(0, n, row)


def factors(t: ArrayWriter, a: Buffer, pivots: Buffer, order: Buffer) -> None:
    """L and U in place of a matrix, the row that each row was exchanged with, and the permutation."""
    w, (n, columns) = t.w, a.shape
    t.loop(n, lambda i: order.set(w, (i,), _int32(t, i)))

    def eliminate(c: str) -> None:
        pivots.set(w, (c,), _int32(t, _pivoted(t, a, order, c)))
        after, pivot = w.put(f"add nsw i64 {c}, 1"), a.at(w, (c, c)).text

        def row(i: str) -> None:
            factor = Value(w.put(f"fdiv double {a.at(w, (i, c)).text}, {pivot}"))
            a.set(w, (i, c), factor)
            w.each(after, columns, lambda j: _subtract(t, a, (i, j), factor, a.at(w, (c, j))))

        w.each(after, n, row)

    w.each(0, min(n, columns), eliminate)


def permutation_of(t: ArrayWriter, pivots: Buffer, order: Buffer) -> None:
    """The permutation that exchanging each row with its pivot row, one after the other, makes."""
    w = t.w
    t.loop(order.shape[0], lambda i: order.set(w, (i,), _int32(t, i)))

    w.each(0, pivots.shape[0], lambda k: _swapped(t, order, k, t.index(pivots.at(w, (k,)), pivots.dtype)))


def _int32(t: ArrayWriter, i: Any) -> Value:
    return Value(str(i) if isinstance(i, int) else t.w.put(f"trunc i64 {i} to i32"))
