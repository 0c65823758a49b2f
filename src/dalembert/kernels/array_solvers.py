"""Elimination and factorisations as loops over memory."""

from typing import Any

import numpy as np

from dalembert.kernels.array_writer import ArrayWriter, Buffer, Memory
from dalembert.kernels.llvm import Value, literal
from dalembert.numerics import pivot_floor

NAN = literal(np.float64(np.nan))


def elimination(t: ArrayWriter, n: int, k: int, positive: bool, a: Buffer, b: Buffer) -> None:
    """Solves a x = b for k right sides, in place of b; `a` is destroyed.

    With partial pivoting, or without it for positive definite matrices. It is a function of its own for each size.
    """
    name = f"solve_{'positive' if positive else 'any'}_{n}_{k}"
    if name not in t.routines:
        t.routines[name] = ""  # so that it is written once
        t.routines[name] = _elimination(t, name, n, k, positive)
    t.w.do(f"call void @{name}(ptr {a.memory.pointer}, ptr {b.memory.pointer})")


def _elimination(parent: ArrayWriter, name: str, n: int, k: int, positive: bool) -> str:
    t = ArrayWriter(parent)
    w = t.w
    a, b = Buffer((n, n), float, Memory("%a")), Buffer((n, k), float, Memory("%b"))
    floor, diagonal = literal(np.float64(pivot_floor(np.dtype(float)))), t.new((n,), float)
    if positive:
        t.fill(diagonal, Buffer((n,), float, a.memory, (n + 1,)))

    def eliminate(c: str) -> None:
        after = w.put(f"add nsw i64 {c}, 1")
        if not positive:
            best = _largest_below(t, a, c)
            w.when(w.put(f"icmp ne i64 {best}, {c}"), lambda: _swapped(t, c, best, (a, c), (b, 0)))
        pivot = a.at(w, (c, c)).text
        inverse = w.put(f"fdiv double 1.0, {pivot}")
        if positive:
            size = w.call("llvm.fabs.f64", np.dtype(float), [diagonal.at(w, (c,))], False)
            sound = w.put(f"fcmp ogt double {pivot}, {w.put(f'fmul double {floor}, {size}')}")
            inverse = w.put(f"select i1 {sound}, double {inverse}, double {NAN}")
        a.set(w, (c, c), Value(inverse))

        def row(i: str) -> None:
            # What is left of a symmetric matrix is symmetric, so its upper half is enough.
            below, first = ((c, i), i) if positive else ((i, c), after)
            factor = Value(w.put(f"fmul double {a.at(w, below).text}, {inverse}"))
            w.each(first, n, lambda j: _subtract(t, a, (i, j), factor, a.at(w, (c, j))))
            t.loop(k, lambda j: _subtract(t, b, (i, j), factor, b.at(w, (c, j))))

        w.each(after, n, row)

    def back(s: str) -> None:
        i = w.put(f"sub nsw i64 {n - 1}, {s}")

        def row(j: str) -> None:
            factor = a.at(w, (i, j))
            t.loop(k, lambda m: _subtract(t, b, (i, m), factor, b.at(w, (j, m))))

        w.each(w.put(f"add nsw i64 {i}, 1"), n, row)
        inverse = a.at(w, (i, i)).text

        def scale(m: str) -> None:
            b.set(w, (i, m), Value(w.put(f"fmul double {b.at(w, (i, m)).text}, {inverse}")))

        t.loop(k, scale)

    w.each(0, n, eliminate)
    w.each(0, n, back)
    parent.w.declared |= w.declared
    return t.text(f"define internal void @{name}(ptr noalias %a, ptr noalias %b) noinline")


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


def _swapped(t: ArrayWriter, first: str, second: str, *parts: tuple[Buffer, Any]) -> None:
    """Exchanges two rows of matrices, each from a column on."""
    w = t.w
    for x, start in parts:

        def one(j: str, x: Buffer = x) -> None:
            above, below = x.at(w, (first, j)), x.at(w, (second, j))
            x.set(w, (first, j), below)
            x.set(w, (second, j), above)

        w.each(start, x.shape[1], one)


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
        best = _largest_below(t, a, c)
        pivots.set(w, (c,), _int32(t, best))

        def swap() -> None:
            _swapped(t, c, best, (a, 0))
            above, below = order.at(w, (c,)), order.at(w, (best,))
            order.set(w, (c,), below)
            order.set(w, (best,), above)

        w.when(w.put(f"icmp ne i64 {best}, {c}"), swap)
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

    def one(k: str) -> None:
        other = t.index(pivots.at(w, (k,)), pivots.dtype)
        above, below = order.at(w, (k,)), order.at(w, (other,))
        order.set(w, (k,), below)
        order.set(w, (other,), above)

    w.each(0, pivots.shape[0], one)


def _int32(t: ArrayWriter, i: Any) -> Value:
    return Value(str(i) if isinstance(i, int) else t.w.put(f"trunc i64 {i} to i32"))
