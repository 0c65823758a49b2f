"""The functions of a squared angle: values and two derivatives, beside power series with 60 digits.

The library sums ten terms below s = 1 and uses closed forms beyond. Here some hundreds of terms are summed at any s;
a few constants from mpmath 1.4.1 (50 digits, its own trigonometric functions) check that road.
"""

import functools
import math
from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dalembert import numerics

EPS = np.finfo(float).eps
FUNCTIONS = ("cosine", "sine_ratio", "versine_ratio", "excess_ratio", "cotangent_ratio")
TERMS = 400  # the slowest series, the cotangent's, has the ratio s/(2 pi)^2: 0.76^400 is 1e-48 at s = 30
# From zero to near the pole of the cotangent's at 39.5; the neighbours of the switch; zeros of cos t and of sin t.
POINTS = (
    *(0.0, 1e-300, 1e-18, 1e-9, 1e-4, 0.01, 0.3, 0.7, 0.9, 0.99, 0.999999),
    *(float(np.nextafter(1, 0)), 1.0, float(np.nextafter(1, 2)), 1.000001, 1.01, 1.1, 1.3, 1.7, 2.0),
    *(2.4674011002723395, 3.0, 4.5, 7.0, 9.869604401089358, 10.0, 15.0, 20.0, 25.0, 30.0),
)
MPMATH = {
    ("cosine", "0.5"): (
        "0.760244597075630151253547198623",
        "-0.459362684932784218892115762562",
        "0.0792403863949691432653421632507",
    ),
    ("cosine", "30"): (
        "0.692419111593747840005664564374",
        "0.06586322784754561457701137886",
        "-0.00686787972740699224299739435078",
    ),
    ("sine_ratio", "0.5"): (
        "0.918725369865568437784231525125",
        "-0.158480772789938286530684326501",
        "0.0160796334370306406999372169418",
    ),
    ("sine_ratio", "30"): (
        "-0.13172645569509122915402275772",
        "0.0137357594548139844859947887016",
        "0.000410932491385061018650450212589",
    ),
    ("versine_ratio", "0.5"): (
        "0.479510805848739697492905602753",
        "-0.0402962418319109572015796803822",
        "0.00270419453770554227563439502758",
    ),
    ("versine_ratio", "30"): (
        "0.0102526962802084053331445145209",
        "-0.00253719747092513399700519644603",
        "0.000398075822308575341233592908095",
    ),
    ("excess_ratio", "0.5"): (
        "0.162549260268863124431536949751",
        "-0.00813697495784967580170524649858",
        "0.000388632957337421806946552110651",
    ),
    ("excess_ratio", "30"): (
        "0.037724215189836374305134091924",
        "-0.00171533248815501195970429602085",
        "0.000100657749497498763358604727637",
    ),
    ("cotangent_ratio", "0.5"): (
        "0.0840361496350142537077743912584",
        "0.00142258831769649202000870863302",
        "0.0000686817017310117856864206126716",
    ),
    ("cotangent_ratio", "30"): (
        "0.247466364123444090450320873468",
        "0.0224131491467329703727978739172",
        "0.00469939812187868421084360347117",
    ),
}


@functools.cache
def _coefficients():
    """Of the powers of s, with 60 digits."""
    sign = [(-1) ** k for k in range(TERMS)]
    cos, sin, versine, excess = (
        [Decimal(x) / math.factorial(2 * k + n) for k, x in enumerate(sign)] for n in range(4)
    )
    # t/2 cot(t/2) is the quotient of the series of cos(t/2) and of sin(t/2)/(t/2).
    quotient = []
    for k in range(TERMS):
        earlier = sum((sin[j] / 4**j * quotient[k - j] for j in range(1, k + 1)), Decimal(0))
        quotient.append(cos[k] / 4**k - earlier)
    return dict(zip(FUNCTIONS, (cos, sin, versine, excess, [-x for x in quotient[1:]]), strict=True))


@functools.cache
def _series(name, order):
    """The coefficients of a derivative."""
    with localcontext() as context:
        context.prec = 60
        plain = _coefficients()[name]
        return [x * math.perm(k, order) for k, x in enumerate(plain)][order:]


@functools.cache
def exact(name, s, order):
    """The derivative of this order at s, a Decimal."""
    with localcontext() as context:
        context.prec, total = 60, Decimal(0)
        # A term's size is at most s^k/(2 pi)^2k, and at most s^k/(2k)! but for the cotangent.
        count = TERMS if name == "cotangent_ratio" and s > 2 else 60
        for x in reversed(_series(name, order)[:count]):
            total = total * s + x
        return total


def _derivatives(name):
    """The function and its two derivatives at all points, as rows."""
    f = getattr(numerics, name)
    orders = (f, jax.grad(f), jax.grad(jax.grad(f)))
    return [np.asarray(jax.jit(jax.vmap(g))(jnp.asarray(POINTS))) for g in orders]


def test_the_series_of_this_test_agree_with_mpmath():
    for (name, s), values in MPMATH.items():
        for order, printed in enumerate(values):
            # The constants have 30 digits.
            assert abs(exact(name, Decimal(s), order) / Decimal(printed) - 1) < Decimal("1e-28"), (
                name,
                s,
                order,
            )


# Rounding of t = sqrt(s), of sin and cos (a unit each) and of a few sums of terms not above one. Derivatives divide
# by s >= 1 where they are not series, so that the same bound holds for them.
ABSOLUTE = 4 * EPS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_two_derivatives_are_good_to_rounding(name):
    for order, found in enumerate(_derivatives(name)):
        assert np.all(np.isfinite(found))
        for s, x in zip(POINTS, found, strict=True):
            error = abs(Decimal(float(x)) - exact(name, Decimal(s), order))
            assert error <= Decimal(ABSOLUTE), (order, s, float(error))


# Relative to the result: four roundings of the largest term. At the switch, where it is worst, the terms that the
# closed forms and their derivatives by the quotient rule subtract are larger than the result: for the excess 6 times,
# 30 times in its derivative, 1560 times in the second; for the cotangent 12, 59, 2360 times; for the sine ratio,
# whose square the versine is, 1, 3, 41 times. Errors of the numerator come on top, as its own factor. Below the
# switch the cotangent's series leaves out 7e-17 of its value, 4e-14 and 8e-12 of its derivatives: less.
RELATIVE = {
    "versine_ratio": (4, 4 * 3, 4 * 41),
    "excess_ratio": (4 * 6, 4 * 6 * 30, 4 * 6 * 1560),
    "cotangent_ratio": (4 * 12, 4 * 12 * 59, 4 * 12 * 2360),
}


@pytest.mark.parametrize("name", RELATIVE)
def test_functions_without_zeros_have_small_relative_errors(name):
    for order, found in enumerate(_derivatives(name)):
        for s, x in zip(POINTS, found, strict=True):
            value = exact(name, Decimal(s), order)
            assert abs(Decimal(float(x)) / value - 1) <= Decimal(RELATIVE[name][order] * EPS), (order, s)


def test_values_at_zero_are_exact():
    zero = jnp.zeros(())
    found = [float(getattr(numerics, name)(zero)) for name in FUNCTIONS]
    assert found == [1.0, 1.0, 0.5, 1 / 6, 1 / 12]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_the_unused_branch_do_not_leak(name):
    """Forward and reverse, through s = x.x at x = 0: the chain through sqrt(s) would be 0 times infinity."""
    f = getattr(numerics, name)
    zero = jnp.zeros(3)
    slope = jax.jit(jax.grad(lambda x: f(jnp.sum(x * x))))(zero)
    curvature = jax.jit(jax.hessian(lambda x: f(jnp.sum(x * x))))(zero)
    first = jax.jit(jax.grad(f))(jnp.zeros(()))
    assert np.all(slope == 0)
    # Both are 2 f'(0), one product apart.
    np.testing.assert_allclose(curvature, 2 * first * np.eye(3), rtol=2 * EPS, atol=0)
    assert abs(first) > 1e-3
