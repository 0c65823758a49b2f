"""Sine and cosine of float64 numbers as polynomials, which compilers can vectorise.

The argument is reduced by multiples of pi/2 (a product of a whole number below 2^20 and the leading parts of
pi/2 is exact), then polynomials on |r| <= pi/4. Good to about one unit in the last place for |x| < 1e6;
beyond, the library's functions take over.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.kernels.graph import Graph, Node
from dalembert.kernels.interpret import Interpreter, objects

LIMIT = 1e6
# Adding it rounds to the nearest whole number, which then sits in the lowest bits.
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
    """Of degree five; on a CPU paired, so that half of the products can run side by side."""
    f, e, d, c, b, a = coefficients
    if gpu:
        return ((((f * x + e) * x + d) * x + c) * x + b) * x + a
    square = x * x
    return (a + b * x) + square * ((c + d * x) + square * (e + f * x))


def _reduced(x: Array, gpu: bool = False) -> tuple[Array, Array]:
    """sin x and cos x. On a GPU, where products and sums share one rounding, without the last corrections."""
    if gpu:
        # Rounding and quadrant come together.
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
        # The double angle, from the single one, which is mostly wanted too. As accurate as rounding x allows.
        two, half = sorted(x.args, key=lambda a: not a.is_const)
        s, c = _both(g, half, gpu)
        twice = g.op("mul", two, s)
        return [g.op("mul", twice, c), g.op("sub", g.const(1.0, np.float64), g.op("mul", twice, s))]
    if not gpu:
        return plain  # whoever computes the graph has its own polynomials
    fast = [
        result.item() for result in Interpreter(g, {"round": _round}).closed(_jaxpr(), [objects([x], ())])
    ]
    # Members do not branch apart. Fused products keep the reduction good to rounding up to 1e9; an angle
    # beyond ends the member, which its status tells.
    near, nan = g.op("lt", g.op("abs", x), g.const(1e9, np.float64)), g.const(np.nan, np.float64)
    return [g.choose(near, value, nan) for value in fast]


def _replacements(gpu: bool) -> dict:
    return {
        "sin": lambda g, x: _both(g, x, gpu)[0],
        "cos": lambda g, x: _both(g, x, gpu)[1],
        "tan": lambda g, x: g.op("div", *_both(g, x, gpu)),
    }


def _round(g: Graph, x: Node) -> Node:
    """To the nearest whole number, ties to even, for |x| < 2^51: by adding a number that leaves no fraction."""
    shift = g.const(SHIFT, np.float64)
    return g.op("sub", g.op("add", x, shift), shift)


SPECIAL = _replacements(gpu=False)
"""What the interpreter replaces on a CPU."""
ON_GPU = {**_replacements(gpu=True), "round": _round}
"""What it replaces on a GPU; Triton cannot round."""
