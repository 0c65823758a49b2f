"""Sine and cosine in LLVM's language, of one number or of a vector of them.

The argument is reduced by multiples of pi/2 (of pi for the sine alone) with fused products, then polynomials.
Good to about one unit in the last place for |x| < LIMIT; beyond, the C library's functions take over.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dalembert.kernels.llvm import Value, Writer
from dalembert.kernels.trig import COSINE, LIMIT, SINE

_FLOAT, _WHOLE = np.dtype(np.float64), np.dtype(np.int64)
# Adding it rounds to the nearest whole number, which then sits in the lowest bits.
_SHIFT = 1.5 * 2.0**52
# pi/2 and pi in three parts of 53 bits. A whole number times the first part, taken from x, is exact.
_QUARTERS = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_HALVES = (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33)
# (sin r - r)/r^3 on |r| <= pi/2, lowest power of r^2 first: fitted coefficient by coefficient, each to what rounding
# the ones before it left; the sine is then good to 3e-19, relative.
_WIDE_SINE = (
    -0.16666666666666666, 0.008333333333333208, -0.00019841269841213368, 2.7557319211744394e-06,
    -2.505210692161594e-08, 1.605894190347839e-10, -7.6430434654463e-13, 2.7216780044787847e-15,
)  # fmt: skip
LIKELY = '!0 = !{!"branch_weights", i32 2000, i32 1}'
"""Of a branch whose first way is the usual one."""


class _Circle(Writer):
    """Writes the body of a function of %x."""

    def number_of(self, value: Any, dtype: np.dtype = _FLOAT) -> str:
        return self.number(value, dtype, self.lanes > 1)

    def fma(self, a: str, b: str, c: str) -> str:
        suffix = f"v{self.lanes}f64" if self.lanes > 1 else "f64"
        return self.call(f"llvm.fma.{suffix}", _FLOAT, [Value(x) for x in (a, b, c)], self.lanes > 1)

    def two(self, how: str, a: str, b: str, dtype: np.dtype = _FLOAT) -> str:
        return self.put(f"{how} {self.type(dtype, self.lanes > 1)} {a}, {b}")

    def polynomial(self, coefficients: Sequence[float], x: str) -> str:
        """Lowest power first; in pairs, so that many products can run side by side."""
        terms = [self.number_of(c) for c in coefficients]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            terms = [self.fma(b, x, a) for a, b in pairs] + terms[len(terms) // 2 * 2 :]
            x = self.two("fmul", x, x) if len(terms) > 1 else x
        return terms[0]

    def reduced(self, parts: Sequence[float]) -> tuple[str, str, str]:
        """x less the nearest multiple of parts[0], what rounding took from it, and bits that end in the multiple."""
        shift = self.number_of(_SHIFT)
        shifted = self.fma("%x", self.number_of(1 / parts[0]), shift)
        minus = self.two("fsub", shift, shifted)
        first, second, third = map(self.number_of, parts)
        near, product = self.fma(minus, first, "%x"), self.two("fmul", minus, second)
        r = self.two("fadd", near, product)
        tail = self.two("fsub", product, self.two("fsub", r, near))
        low = self.fma(
            minus,
            third,
            self.fma(minus, second, self.put(f"fneg {self.type(_FLOAT, self.lanes > 1)} {product}")),
        )
        tail = self.two("fadd", tail, low)
        kind, whole = (self.type(dtype, self.lanes > 1) for dtype in (_FLOAT, _WHOLE))
        return r, tail, self.put(f"bitcast {kind} {shifted} to {whole}")

    def signed(self, x: str, bits: str, place: int) -> str:
        """x, negative where the bit at this place is set."""
        kind, whole = (self.type(dtype, self.lanes > 1) for dtype in (_FLOAT, _WHOLE))
        sign = self.two("shl", bits, self.number_of(63 - place, _WHOLE), _WHOLE)
        if place:
            sign = self.two("and", sign, self.number_of(np.int64(-(2**63)), _WHOLE), _WHOLE)
        if self.lanes == 1:  # a product with 1 or -1: x need not move to the registers for whole numbers
            one = self.two("or", sign, self.number_of(np.float64(1).view(np.int64), _WHOLE), _WHOLE)
            return self.two("fmul", x, self.put(f"bitcast {whole} {one} to {kind}"))
        turned = self.two("xor", self.put(f"bitcast {kind} {x} to {whole}"), sign, _WHOLE)
        return self.put(f"bitcast {whole} {turned} to {kind}")

    def sine(self) -> str:
        r, tail, bits = self.reduced(_HALVES)
        square = self.two("fmul", r, r)
        polynomial = self.polynomial(_WIDE_SINE, square)
        # sin(r + tail) = sin r + tail cos r, where 1 - (2 r/pi)^2 will do for the cosine.
        tail = self.fma(self.two("fmul", tail, self.number_of(-4 / np.pi**2)), square, tail)
        r, tail = self.signed(r, bits, 0), self.signed(tail, bits, 0)  # early, beside the polynomial
        return self.two("fadd", r, self.fma(self.two("fmul", r, square), polynomial, tail))

    def both(self) -> list[str]:
        r, tail, bits = self.reduced(_QUARTERS)
        square = self.two("fmul", r, r)
        cubed, fourth = self.two("fmul", r, square), self.two("fmul", square, square)
        rest = self.fma(cubed, self.polynomial(SINE[::-1], square), tail)
        sine = self.two("fadd", r, rest)
        one, half = self.number_of(1.0), self.two("fmul", square, self.number_of(0.5))
        high = self.two("fsub", one, half)
        low = self.two("fsub", self.two("fsub", one, high), half)
        low = self.two("fsub", low, self.two("fmul contract", r, tail))
        cosine = self.two("fadd", high, self.fma(fourth, self.polynomial(COSINE[::-1], square), low))
        wide = self.lanes > 1
        kind, mask = self.type(_FLOAT, wide), self.type(np.dtype(bool), wide)
        odd = self.put(f"trunc {self.type(_WHOLE, wide)} {bits} to {mask}")
        s = self.put(f"select {mask} {odd}, {kind} {cosine}, {kind} {sine}")
        c = self.put(f"select {mask} {odd}, {kind} {sine}, {kind} {cosine}")
        after = self.two("add", bits, self.number_of(1, _WHOLE), _WHOLE)
        return [self.signed(s, bits, 1), self.signed(c, after, 1)]

    def give(self, values: Sequence[str]) -> None:
        kind = self.type(_FLOAT, self.lanes > 1)
        pair = "poison"
        for i, value in enumerate(values):
            pair = self.put(f"insertvalue {{{kind}, {kind}}} {pair}, {kind} {value}, {i}")
        self.do(f"ret {{{kind}, {kind}}} {pair}")


@functools.cache
def _functions(lanes: int, both: bool) -> tuple[str, frozenset[str]]:
    """A function's name, and what has to be declared to call it: (sine, cosine) of %x."""
    what = "circle" if both else "sine"
    w = _Circle(lanes)
    wide = lanes > 1
    kind, suffix = w.type(_FLOAT, wide), f"v{lanes}f64" if wide else "f64"
    size = Value(w.call(f"llvm.fabs.{suffix}", _FLOAT, [Value("%x")], wide), wide)
    near = w.put(f"fcmp olt {kind} {size.text}, {w.number_of(LIMIT)}")
    w.do(f"br i1 {w.reduce('and', Value(near, wide))}, label %near, label %far, !prof !0")
    w.block("near")
    w.give(w.both() if both else [w.sine()])
    w.block("far")
    pair = f"{{{kind}, {kind}}}"
    w.do(f"ret {pair} {w.put(f'call {pair} @{what}{lanes}.far({kind} %x)')}")
    head = f"define internal {pair} @{what}{lanes}({kind} %x) alwaysinline"
    far = _Circle(lanes)
    calls = [
        far.call(f"llvm.{name}.{suffix}", _FLOAT, [Value("%x")], wide) for name in ("sin", "cos")[: 1 + both]
    ]
    far.give(calls)
    away = f"define internal {pair} @{what}{lanes}.far({kind} %x) noinline cold"
    texts = [f"{h} {{\nentry:\n{x.body()}\n}}" for h, x in ((head, w), (away, far))]
    return f"{what}{lanes}", frozenset([*texts, LIKELY, *w.declared, *far.declared])


def circle(w: Writer, x: Value, both: bool) -> list[Value]:
    """The sine, and where asked the cosine, of x, which is a vector in its own right (of w.lanes numbers)."""
    wide = x.wide and w.lanes > 1
    name, declared = _functions(w.lanes if wide else 1, both)
    w.declared |= declared
    kind = w.type(_FLOAT, wide)
    pair = w.put(f"call {{{kind}, {kind}}} @{name}({kind} {x.text})")
    parts = [w.put(f"extractvalue {{{kind}, {kind}}} {pair}, {i}") for i in range(1 + both)]
    return [Value(part, wide) for part in parts]


def circles(w: Writer, angles: Sequence[Value], both: bool) -> list[list[Value]]:
    """The same for several numbers at once, as one vector."""
    k = len(angles)
    if k == 1:
        return [circle(w, angles[0], both)]
    name, declared = _functions(k, both)
    w.declared |= declared
    vector, x = f"<{k} x double>", "poison"
    for i, angle in enumerate(angles):
        x = w.put(f"insertelement {vector} {x}, double {angle.text}, i32 {i}")
    pair = w.put(f"call {{{vector}, {vector}}} @{name}({vector} {x})")
    parts = [w.put(f"extractvalue {{{vector}, {vector}}} {pair}, {i}") for i in range(1 + both)]
    return [[Value(w.put(f"extractelement {vector} {part}, i32 {i}")) for part in parts] for i in range(k)]
