"""Functions of a squared angle s = t^2 that are smooth at zero, as are their derivatives.

Quotients such as (t - sin t)/t^3 lose all digits near zero, and so do the derivatives of sin(t)/t. Below s = 1 the
functions use their power series, to rounding. Both branches are finite, so that derivatives never meet 0/0.
"""

from collections.abc import Callable
from math import factorial, pi

import jax.numpy as jnp
from jax import Array

from dalembert.numerics.precision import has_more_digits

_TERMS = 10  # at s = 1 the first omitted term is below 1e-17 of the sum


def _smooth(
    series: tuple[float, ...],
    beyond: Callable[[Array, Array], Array],
    s: Array,
    exact: Callable[[Array], Array],
) -> Array:
    small = s < 1
    if has_more_digits():
        polynomial = exact(s)
    else:
        polynomial = jnp.full_like(s, series[-1])
        for coefficient in reversed(series[:-1]):
            polynomial = polynomial * s + coefficient
    safe = jnp.where(small, 1.0, s)
    return jnp.where(small, polynomial, beyond(safe, jnp.sqrt(safe)))


def _alternating(s: Array, factor: Callable[[int], int]) -> Array:
    """1 - s/d_1 (1 - s/d_2 (1 - ...)) for whole numbers d_k, with a hundred digits below s = 1."""
    result = jnp.ones_like(s)
    for k in range(36, 0, -1):
        result = 1 - s / factor(k) * result
    return result


def _exact_cosine(s: Array) -> Array:
    return _alternating(s, lambda k: (2 * k - 1) * 2 * k)


def _exact_sine_ratio(s: Array) -> Array:
    return _alternating(s, lambda k: 2 * k * (2 * k + 1))


def _exact_excess(s: Array) -> Array:
    return _alternating(s, lambda k: (2 * k + 2) * (2 * k + 3)) / 6


def _exact_cotangent(s: Array) -> Array:
    """(sin(x)/x - cos(x))/(4 x sin(x)) with x = t/2, whose numerator is x^2/3 (1 - x^2/10 (1 - x^2/28 (...)))."""
    quarter = 0.25 * s
    return _alternating(quarter, lambda k: 2 * k * (2 * k + 3)) / (12 * _exact_sine_ratio(quarter))


_COS = tuple((-1) ** k / factorial(2 * k) for k in range(_TERMS))
_SINC = tuple((-1) ** k / factorial(2 * k + 1) for k in range(_TERMS))
_EXCESS = tuple((-1) ** k / factorial(2 * k + 3) for k in range(_TERMS))
# |B_2k|/(2k)! for k = 1, 2, ...: the power series of (1 - (t/2) cot(t/2))/t^2.
_COTANGENT = (
    1 / 12,
    1 / 720,
    1 / 30240,
    1 / 1209600,
    1 / 47900160,
    691 / 1307674368000,
    1 / 74724249600,
    3617 / 10670622842880000,
    43867 / 5109094217170944000,
    174611 / 802857662698291200000,
    # From here on 2 zeta(2k)/(2 pi)^2k, so that the first two derivatives are exact to rounding too.
    *(2 * sum(n ** (-2.0 * k) for n in range(1, 8)) / (2 * pi) ** (2 * k) for k in range(11, 15)),
)


def cosine(s: Array) -> Array:
    """cos(t)."""
    return _smooth(_COS, lambda s, t: jnp.cos(t), s, _exact_cosine)


def sine_ratio(s: Array) -> Array:
    """sin(t)/t."""
    return _smooth(_SINC, lambda s, t: jnp.sin(t) / t, s, _exact_sine_ratio)


def versine_ratio(s: Array) -> Array:
    """(1 - cos(t))/t^2, without cancellation at any t."""
    return 0.5 * sine_ratio(0.25 * s) ** 2


def excess_ratio(s: Array) -> Array:
    """(t - sin(t))/t^3."""
    return _smooth(_EXCESS, lambda s, t: (t - jnp.sin(t)) / (s * t), s, _exact_excess)


def cotangent_ratio(s: Array) -> Array:
    """(1 - (t/2) cot(t/2))/t^2, the coefficient of the inverse derivative of exp; singular at t = 2 pi."""
    return _smooth(
        _COTANGENT, lambda s, t: (1 - 0.5 * t * jnp.cos(0.5 * t) / jnp.sin(0.5 * t)) / s, s, _exact_cotangent
    )
