"""Sine and cosine: as JAX operations and as machine code, against sixty digits."""

import ctypes
import decimal

import jax
import numpy as np
import pytest

from dalembert.kernels import native, sincos
from dalembert.kernels.sine_cosine import circles

PI = decimal.Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986")
# Good to 0.8 or so; halfway to two, so that a lost correction is seen.
ULPS = 1.5
# The sine alone comes from one polynomial on a wide range: five roundings of half a unit each where it is near one.
SINE_ULPS = 2.5


def exact_sincos(x):
    """Sine and cosine of a double to about 50 digits: reduction by 80 digits of pi, then Taylor's series."""
    x = decimal.Decimal(x)
    turns = int((2 * x / PI).to_integral_value())
    r = x - turns * PI / 2
    sums = []
    for term, first in ((r, 2), (decimal.Decimal(1), 1)):
        total, n = term, first
        while abs(term) > abs(total) * decimal.Decimal("1e-40"):
            term *= -r * r / (n * (n + 1))
            total, n = total + term, n + 2
        sums.append(total)
    s, c = sums
    return [(s, c), (c, -s), (-s, -c), (-c, s)][turns % 4]


@pytest.fixture(scope="module")
def samples():
    """Angles of all sizes, many next to zeros of sine or cosine, and their exact sines and cosines."""
    rng = np.random.default_rng(3)
    with decimal.localcontext(prec=60):
        turns = [*range(1, 51), *rng.integers(1, 636_000, 1450).tolist()]
        crossings = np.array([float(k * PI / 2) for k in turns])
        x = np.concatenate(
            [
                rng.uniform(-1e6, 1e6, 7000),
                rng.uniform(-10, 10, 5000),
                rng.choice([-1, 1], 3500) * 10 ** rng.uniform(-12, 6, 3500),
                crossings,
                -np.nextafter(crossings, 0.0),
                np.nextafter(crossings, np.inf),
            ]
        )
        return x, [exact_sincos(v) for v in x.tolist()]


def compiled_circles(count, both):
    """A function of `count` angles at a time, as a run computes them side by side."""
    w = native.Block()
    angles = [w.load("%x", i, np.dtype(float)) for i in range(count)]
    for i, results in enumerate(circles(w, angles, both)):
        for k, value in enumerate(results):
            w.store(value, np.dtype(float), "%out", 2 * i + k)
    w.do("ret void")
    text = w.function("define void @f(ptr %x, ptr %out)")
    call = native.machine(text).function("f", [ctypes.c_void_p] * 2)

    def run(x):
        padded = np.concatenate([x, np.zeros(-len(x) % count)])
        out = np.full((len(padded), 2), np.nan)
        for start in range(0, len(padded), count):
            call(padded[start:].ctypes.data, out[start:].ctypes.data)
        return out[: len(x)].T[: 1 + both]

    return run


def worst(found, exact, which):
    """The largest error in units in the last place."""
    want = [e[which] for e in exact]
    unit = np.spacing(np.abs(np.array(want, float)))
    error = [decimal.Decimal(g) - w for g, w in zip(np.asarray(found).tolist(), want, strict=True)]
    return np.max(np.abs(np.array(error, float)) / unit)


@pytest.mark.parametrize("compile", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_in_jax(samples, compile):
    x, exact = samples
    for which, found in enumerate(compile(sincos)(x)):
        assert found.dtype == float
        assert found.shape == x.shape
        assert worst(found, exact, which) <= ULPS


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("both", [True, False], ids=["both", "sine"])
def test_as_machine_code(samples, count, both):
    x, exact = samples
    found = compiled_circles(count, both)(x)
    assert len(found) == 1 + both
    for which, values in enumerate(found):
        assert worst(values, exact, which) <= (ULPS if both else SINE_ULPS)


def test_the_sine_alone_has_no_bias():
    """Rounding errors of one sign would add up in long runs. The mean of 4e4 errors of 0.5 units is within 0.01."""
    x = np.random.default_rng(5).uniform(0.7, 2.4, 40_000)
    one, pair = (compiled_circles(2, both)(x)[0] for both in (False, True))
    assert abs(np.mean((one - pair) / np.spacing(pair))) < 0.03


@pytest.mark.parametrize("count", [1, 4])
def test_far_away_and_not_finite(count):
    """The library's functions take over, whatever the angles beside them are."""
    x = np.array([1e7, 0.3, -3e15, 1e300, np.inf, 2.0, -np.inf, np.nan, 0.0, -0.5])
    with np.errstate(invalid="ignore"):
        want = np.sin(x), np.cos(x)
    for both in (True, False):
        for found, expected in zip(compiled_circles(count, both)(x), want, strict=False):
            np.testing.assert_allclose(found, expected, rtol=4e-16, atol=0)
