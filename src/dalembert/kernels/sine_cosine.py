"""Sine and cosine in LLVM's language, of one number or of a vector of them.

Fused products reduce the argument by multiples of pi/2 (of pi for the sine alone); polynomials follow. For |x| < LIMIT
the results are good to about one unit in the last place; the sine alone is good to two and a half where it is near one.
Beyond LIMIT the C library's functions take over.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.kernels.graph import Graph, Node
from dalembert.kernels.interpret import Interpreter, objects
from dalembert.kernels.llvm import Value, Writer

LIMIT = 1e6
# Adding SHIFT rounds to the nearest whole number, which is then in the lowest bits.
SHIFT = 1.5 * 2.0**52
# pi/2 in three parts; the first two have 33 bits, so that whole multiples below 2^20 are exact [fdlibm].
_PARTS = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
# Minimax polynomials for (sin r - r)/r^3 and (cos r - 1 + r^2/2)/r^4, highest power of r^2 first [fdlibm].
SINE = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
    -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01,
)  # fmt: skip
COSINE = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
    2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip


def _polynomial(coefficients: tuple[float, ...], x: Array, gpu: bool) -> Array:
    """A polynomial of degree five; on a CPU its terms are paired, so that half of the products can run in parallel."""
    f, e, d, c, b, a = coefficients
    if gpu:
        return ((((f * x + e) * x + d) * x + c) * x + b) * x + a
    square = x * x
    return (a + b * x) + square * ((c + d * x) + square * (e + f * x))


def _reduced(x: Array, gpu: bool = False) -> tuple[Array, Array]:
    """sin x and cos x; on a GPU, where a product and a sum share one rounding step, without the last corrections."""
    if gpu:
        # One addition gives both the rounded number and the quadrant.
        shifted = x * (2 / np.pi) + SHIFT
        n, bits = shifted - SHIFT, lax.bitcast_convert_type(shifted, np.int64)
        odd, upper = (bits & 1) != 0, (bits & 2) != 0
    else:
        n = lax.round(x * (2 / np.pi), lax.RoundingMethod.TO_NEAREST_EVEN)
        quarter = n - 4 * jnp.floor(0.25 * n)
        odd, upper = (quarter == 1) | (quarter == 3), quarter >= 2
    first, second, third = (n * part for part in _PARTS)
    near = x - first  # exact, as is the second product
    nearer = near - second
    y = nearer - third
    square = y * y
    above, beside = (square * _polynomial(c, square, gpu) for c in (SINE, COSINE))
    half = 0.5 * square
    one = 1 - half
    if gpu:
        sine, cosine = y + y * above, one + square * beside
    else:
        tail = ((near - nearer) - second) + ((nearer - y) - third)  # what the subtractions lost
        sine = y + (y * above + tail)
        cosine = one + (((1 - one) - half) + (square * beside - y * tail))
    s, c = lax.select(odd, cosine, sine), lax.select(odd, sine, cosine)
    return lax.select(upper, -s, s), lax.select(odd ^ upper, -c, c)


def sincos(x: Array) -> tuple[Array, Array]:
    """(sin x, cos x), as the kernels compute them."""
    x = jnp.asarray(x, float)
    near = jnp.abs(x) < LIMIT
    s, c = _reduced(jnp.where(near, x, 0.0))
    return jnp.where(near, s, jnp.sin(x)), jnp.where(near, c, jnp.cos(x))


@functools.cache
def _jaxpr():
    return jax.make_jaxpr(functools.partial(_reduced, gpu=True))(np.float64(1.0))


def _both(g: Graph, x: Node, gpu: bool) -> list[Node]:
    key = ("sincos", x.id)
    if key not in g.table:
        g.table[key] = _sincos(g, x, gpu)  # type: ignore[assignment]
        sine, cosine = g.table[key]  # type: ignore[misc]
        if not x.is_const:
            g.bounded.update({sine.id: x, cosine.id: x})
            g.cosines[sine.id] = cosine.id
    return g.table[key]  # type: ignore[return-value]


def _sincos(g: Graph, x: Node, gpu: bool) -> list[Node]:
    plain = [g.op("sin", x), g.op("cos", x)]
    if x.is_const:
        return plain
    if x.op == "mul" and any(a.is_const and a.value == 2 for a in x.args):
        # The double angle comes from the single angle, which is usually needed too. It is as accurate as rounding of x
        # allows.
        two, half = sorted(x.args, key=lambda a: not a.is_const)
        s, c = _both(g, half, gpu)
        twice = g.op("mul", two, s)
        return [g.op("mul", twice, c), g.op("sub", g.const(1.0, np.float64), g.op("mul", twice, s))]
    if not gpu:
        return plain  # what computes the graph has its own polynomials
    fast = [
        result.item() for result in Interpreter(g, {"round": _round}).closed(_jaxpr(), [objects([x], ())])
    ]
    # There is no branch, which members would take differently. Fused products keep the reduction good to rounding up
    # to 1e9; a larger angle ends the member, and its status says so.
    near, nan = g.op("lt", g.op("abs", x), g.const(1e9, np.float64)), g.const(np.nan, np.float64)
    return [g.choose(near, value, nan) for value in fast]


def _replacements(gpu: bool) -> dict:
    return {
        "sin": lambda g, x: _both(g, x, gpu)[0],
        "cos": lambda g, x: _both(g, x, gpu)[1],
        "tan": lambda g, x: g.op("div", *_both(g, x, gpu)),
    }


def _round(g: Graph, x: Node) -> Node:
    """The nearest whole number, ties to even, for |x| < 2^51, by adding a number that leaves no fraction."""
    shift = g.const(SHIFT, np.float64)
    return g.op("sub", g.op("add", x, shift), shift)


SPECIAL = _replacements(gpu=False)
"""The functions that the interpreter replaces on a CPU."""
ON_GPU = {**_replacements(gpu=True), "round": _round}
"""The functions that the interpreter replaces on a GPU; Triton cannot round."""


_FLOAT, _WHOLE = np.dtype(np.float64), np.dtype(np.int64)
# pi/2 and pi in three parts of 53 bits. Subtracting a whole number times the first part from x is exact.
_QUARTERS = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_HALVES = (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33)
# (sin r - r)/r^3 on |r| <= pi/2, lowest power of r^2 first. The coefficients are fitted one by one, each to the
# remainder that rounding the previous ones left. The relative error of the sine is then 3e-19.
_WIDE_SINE = (
    -0.16666666666666666, 0.008333333333333208, -0.00019841269841213368, 2.7557319211744394e-06,
    -2.505210692161594e-08, 1.605894190347839e-10, -7.6430434654463e-13, 2.7216780044787847e-15,
)  # fmt: skip


class _Circle(Writer):
    """Writes the body of a function of %x."""

    def __init__(self, lanes: int):
        super().__init__(lanes)
        self.kind, self.whole, self.mask = (self.type(t, True) for t in (_FLOAT, _WHOLE, np.dtype(bool)))

    def number_of(self, value: Any, dtype: np.dtype = _FLOAT) -> str:
        return self.number(value, dtype, self.lanes > 1)

    def intrinsic(self, name: str, *arguments: str) -> str:
        return self.call(
            f"llvm.{name}.{self.suffix(_FLOAT, True)}", _FLOAT, [Value(x) for x in arguments], True
        )

    def fma(self, a: str, b: str, c: str) -> str:
        return self.intrinsic("fma", a, b, c)

    def two(self, how: str, a: str, b: str, dtype: np.dtype = _FLOAT) -> str:
        return self.put(f"{how} {self.type(dtype, True)} {a}, {b}")

    def polynomial(self, coefficients: Sequence[float], x: str) -> str:
        """Writes a polynomial, lowest power first, with terms in pairs, so that many products can run in parallel."""
        terms = [self.number_of(c) for c in coefficients]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            terms = [self.fma(b, x, a) for a, b in pairs] + terms[len(terms) // 2 * 2 :]
            x = self.two("fmul", x, x) if len(terms) > 1 else x
        return terms[0]

    def reduced(self, parts: Sequence[float]) -> tuple[str, str, str]:
        """x minus the nearest multiple of parts[0], the rounding error of that, and bits that end in the multiple."""
        shift = self.number_of(SHIFT)
        shifted = self.fma("%x", self.number_of(1 / parts[0]), shift)
        minus = self.two("fsub", shift, shifted)
        first, second, third = map(self.number_of, parts)
        near, product = self.fma(minus, first, "%x"), self.two("fmul", minus, second)
        r = self.two("fadd", near, product)
        tail = self.two("fsub", product, self.two("fsub", r, near))
        low = self.fma(minus, second, self.put(f"fneg {self.kind} {product}"))
        tail = self.two("fadd", tail, self.fma(minus, third, low))
        return r, tail, self.put(f"bitcast {self.kind} {shifted} to {self.whole}")

    def signed(self, x: str, bits: str, place: int) -> str:
        """x, with its sign changed if the bit at this place is set."""
        kind, whole = self.kind, self.whole
        sign = self.two("shl", bits, self.number_of(63 - place, _WHOLE), _WHOLE)
        if place:
            sign = self.two("and", sign, self.number_of(np.int64(-(2**63)), _WHOLE), _WHOLE)
        if self.lanes == 1:  # a product with 1 or -1, so that x need not move to the integer registers
            one = self.two("or", sign, self.number_of(np.float64(1).view(np.int64), _WHOLE), _WHOLE)
            return self.two("fmul", x, self.put(f"bitcast {whole} {one} to {kind}"))
        turned = self.two("xor", self.put(f"bitcast {kind} {x} to {whole}"), sign, _WHOLE)
        return self.put(f"bitcast {whole} {turned} to {kind}")

    def sine(self) -> str:
        r, tail, bits = self.reduced(_HALVES)
        square = self.two("fmul", r, r)
        polynomial = self.polynomial(_WIDE_SINE, square)
        # sin(r + tail) = sin r + tail cos r, where 1 - (2 r/pi)^2 is good enough for the cosine.
        tail = self.fma(self.two("fmul", tail, self.number_of(-4 / np.pi**2)), square, tail)
        r, tail = self.signed(r, bits, 0), self.signed(tail, bits, 0)  # early, while the polynomial runs
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
        kind, mask = self.kind, self.mask
        odd = self.put(f"trunc {self.whole} {bits} to {mask}")
        s = self.put(f"select {mask} {odd}, {kind} {cosine}, {kind} {sine}")
        c = self.put(f"select {mask} {odd}, {kind} {sine}, {kind} {cosine}")
        after = self.two("add", bits, self.number_of(1, _WHOLE), _WHOLE)
        return [self.signed(s, bits, 1), self.signed(c, after, 1)]

    def give(self, values: Sequence[str]) -> None:
        pair, of = "poison", _pair(self.kind)
        for i, value in enumerate(values):
            pair = self.put(f"insertvalue {of} {pair}, {self.kind} {value}, {i}")
        self.do(f"ret {of} {pair}")


def _pair(kind: str) -> str:
    return f"{{{kind}, {kind}}}"


@functools.cache
def _functions(lanes: int, both: bool) -> tuple[str, frozenset[str]]:
    """The name of the function that gives (sine, cosine) of %x, and what has to be declared to call it."""
    name = f"{'circle' if both else 'sine'}{lanes}"
    w, far = _Circle(lanes), _Circle(lanes)
    kind, pair = w.kind, _pair(w.kind)
    near = w.put(f"fcmp olt {kind} {w.intrinsic('fabs', '%x')}, {w.number_of(LIMIT)}")
    w.usually(w.reduce("and", Value(near, True)), "near", "far")
    w.block("near")
    w.give(w.both() if both else [w.sine()])
    w.block("far")
    w.do(f"ret {pair} {w.put(f'call {pair} @{name}.far({kind} %x)')}")
    far.give([far.intrinsic(function, "%x") for function in ("sin", "cos")[: 1 + both]])
    text, declared = w.function(f"define internal {pair} @{name}({kind} %x) alwaysinline")
    away, more = far.function(f"define internal {pair} @{name}.far({kind} %x) noinline cold")
    return name, frozenset([text, away, *declared, *more])


def circles(w: Writer, angles: Sequence[Value], both: bool) -> list[list[Value]]:
    """The sine, and with `both` the cosine, of each angle.

    Several numbers are computed as one vector; a single angle may itself be a vector over the members.
    """
    wide, k = w.lanes > 1 and angles[0].wide, len(angles)
    name, declared = _functions(w.lanes if wide else k, both)
    w.declared |= declared
    kind, x = w.type(_FLOAT, wide), angles[0].text
    if k > 1:
        kind, x = f"<{k} x double>", "poison"
        for i, angle in enumerate(angles):
            x = w.put(f"insertelement {kind} {x}, double {angle.text}, i32 {i}")
    pair = w.put(f"call {_pair(kind)} @{name}({kind} {x})")
    parts = [w.put(f"extractvalue {_pair(kind)} {pair}, {i}") for i in range(1 + both)]
    if k == 1:
        return [[Value(part, wide) for part in parts]]
    return [[Value(w.put(f"extractelement {kind} {part}, i32 {i}")) for part in parts] for i in range(k)]
