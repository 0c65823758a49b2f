"""The composition coefficients have the order they claim, measured in forty digits.

In double precision the range between too coarse a step and rounding is too narrow for order 10. Here the method
is leap-frog on the Henon-Heiles potential, an explicit symmetric method of order 2 that needs arithmetic alone.
"""

import decimal

import numpy as np
import pytest

from dalembert.methods.composition import FRACTIONS, fractions

D = decimal.Decimal


def force(x, y):
    return -x - 2 * x * y, -y - x * x + y * y


def end_state(order, count):
    """The state at time 1 after `count` composed steps."""
    with decimal.localcontext(decimal.Context(prec=40)):
        x, y, u, v = D("0.1"), D("0.2"), D("0.3"), D("-0.1")
        parts = [D(float(f)) / count for f in fractions(order)]
        for _ in range(count):
            for h in parts:
                fx, fy = force(x, y)
                u, v = u + h / 2 * fx, v + h / 2 * fy
                x, y = x + h * u, y + h * v
                fx, fy = force(x, y)
                u, v = u + h / 2 * fx, v + h / 2 * fy
        return np.array([x, y, u, v])


EXACT = end_state(10, 48)
"""Good to 1e-15, as the last test says."""
COUNTS = {4: (16, 24, 36), 6: (6, 9, 13), 8: (3, 4, 6), 10: (2, 3, 4)}


@pytest.mark.parametrize("order", FRACTIONS)
def test_order(order):
    errors = [float(np.max(np.abs(end_state(order, count) - EXACT))) for count in COUNTS[order]]
    slope = -np.polyfit(np.log(COUNTS[order]), np.log(errors), 1)[0]
    # Not quite asymptotic at these steps: 0.15, which tells an even order from its neighbours.
    assert slope == pytest.approx(order, abs=0.15), errors
    assert errors[-1] > 3e-15  # well above the rounding of the coefficients to sixteen digits


@pytest.mark.parametrize("order", FRACTIONS)
def test_fractions_add_up_and_are_symmetric(order):
    parts = fractions(order)
    assert sum(parts) == pytest.approx(1, abs=1e-15)
    np.testing.assert_array_equal(parts, parts[::-1])


def test_the_reference_is_exact_enough():
    assert np.max(np.abs(end_state(10, 48) - end_state(8, 160))) < D("1e-15")
