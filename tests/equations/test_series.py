"""Taylor series of solutions: recurrences against forty digits, both forms of the code, and what must be refused."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from user_functions import FUNCTIONS

from dalembert.kernels import Unsupported, over_rows
from dalembert.kernels.series import taylor_series

ORDER = 14

PRIMITIVES = {
    "sin": (jnp.sin, mp.sin, 0.7),
    "cos": (jnp.cos, mp.cos, 0.7),
    "sine of twice the angle": (lambda x: jnp.sin(2 * x), lambda x: mp.sin(2 * x), 0.4),
    "tan": (jnp.tan, mp.tan, 0.4),
    "asin": (jnp.arcsin, mp.asin, 0.3),
    "acos": (jnp.arccos, mp.acos, 0.3),
    "atan": (jnp.arctan, mp.atan, 0.6),
    "atan2": (
        lambda x: jnp.arctan2(jnp.sin(x), 1 + x * x),
        lambda x: mp.atan(mp.sin(x) / (1 + x * x)),
        0.5,
    ),
    "atan2 of a number": (lambda x: jnp.arctan2(2.0, x), lambda x: mp.pi / 2 - mp.atan(x / 2), 0.5),
    "sinh": (jnp.sinh, mp.sinh, 0.8),
    "cosh": (jnp.cosh, mp.cosh, 0.8),
    "tanh": (jnp.tanh, mp.tanh, 0.5),
    "asinh": (jnp.arcsinh, mp.asinh, 0.8),
    "acosh": (jnp.arccosh, mp.acosh, 1.9),
    "atanh": (jnp.arctanh, mp.atanh, 0.2),
    "exp": (jnp.exp, mp.exp, 0.5),
    "exp2": (jnp.exp2, lambda x: mp.power(2, x), 0.5),
    "expm1": (jnp.expm1, mp.expm1, 0.01),
    "log": (jnp.log, mp.log, 1.3),
    "log1p": (jnp.log1p, lambda x: mp.log(1 + x), 0.2),
    "sqrt": (jnp.sqrt, mp.sqrt, 1.4),
    "rsqrt": (jax.lax.rsqrt, lambda x: 1 / mp.sqrt(x), 1.4),
    "cbrt": (jnp.cbrt, mp.cbrt, 1.2),
    "power": (lambda x: x**2.5, lambda x: mp.power(x, mp.mpf("2.5")), 1.1),
    "changing power": (lambda x: x ** jnp.sin(x), lambda x: mp.power(x, mp.sin(x)), 1.1),
    "integer power": (lambda x: x**7, lambda x: x**7, 0.9),
    "negative power": (lambda x: x**-3, lambda x: x**-3, 1.2),
    "high power": (lambda x: x**71, lambda x: x**71, -0.98),
    "quotient": (lambda x: (1 + x) / (2 + jnp.cos(x)), lambda x: (1 + x) / (2 + mp.cos(x)), 0.3),
    "inverse": (lambda x: 3.0 / (1 + x * x), lambda x: 3 / (1 + x * x), 0.3),
    "logistic": (jax.nn.sigmoid, lambda x: 1 / (1 + mp.exp(-x)), 0.4),
    "erf": (jax.lax.erf, mp.erf, 0.3),
    "erfc": (jax.lax.erfc, mp.erfc, 0.3),
    "sums of products": (
        lambda x: x * jnp.sin(x) - 2 * jnp.exp(x) * jnp.cos(x) + x * x / 3 - (x - 1) * (x + 1),
        lambda x: x * mp.sin(x) - 2 * mp.exp(x) * mp.cos(x) + x * x / 3 - (x - 1) * (x + 1),
        0.6,
    ),
}


def by_kernel(field, y, order=ORDER, members=9):
    """The coefficients as machine code computes them, for several members at once; all members must be equal."""
    found = over_rows(lambda _, y: taylor_series(field, y, order))(
        np.zeros(()), np.tile(np.asarray(y), (members, 1))
    )
    np.testing.assert_array_equal(found, np.broadcast_to(found[0], found.shape))
    return found[0]


@pytest.mark.parametrize("name", PRIMITIVES)
def test_coefficients_of_every_function_to_rounding(name):
    function, exact, x = PRIMITIVES[name]

    def field(y):  # y0 = x + t, so y1 is the integral of the function
        return jnp.stack([jnp.ones(()), function(y[0])])

    y = jnp.array([x, 0.0])
    with mp.workdps(40):
        wanted = [float(c / (k + 1)) for k, c in enumerate(mp.taylor(exact, mp.mpf(x), ORDER - 1))]
    for found in (jax.jit(lambda y: taylor_series(field, y, ORDER))(y), by_kernel(field, y)):
        np.testing.assert_array_equal(found[:2, 0], [x, 1.0])
        np.testing.assert_array_equal(found[2:, 0], 0.0)
        # Each coefficient is a sum of up to fourteen products; where they cancel, their size counts. For the power 71
        # the rounding of x itself is multiplied by 71.
        size = np.maximum(np.abs(wanted), 1e-2 * np.max(np.abs(wanted)))
        np.testing.assert_array_less(np.abs(np.asarray(found)[1:, 1] - wanted), 3e-14 * size)


REFUSED = {
    "sinc_double_where", "norm_double_where", "hypot_and_angles", "abs_sign_min_max_clip", "where_of_comparisons",
    "floor_ceil_round", "mod_remainder", "select_and_piecewise", "heaviside_isfinite", "copysign", "integer_cell_index",
    "interpolation", "sum_prod_max_min", "cummax_cummin", "diff_ptp", "logsumexp_softmax", "argmax_as_index",
    "index_and_slices", "dynamic_slices", "at_min_max_power", "at_dynamic_index", "norms", "determinants",
    "determinant_4x4", "solve_pivot_depends_on_point", "lax_cond", "lax_cond_nested_with_closure", "lax_switch",
    "lax_switch_of_several", "fori_loop_traced_bound", "while_loop_newton_sqrt", "while_loop_bisection",
    "nested_while", "custom_jvp", "custom_vjp", "erf_sigmoid_softplus", "activations",
}  # fmt: skip
"""Functions with pieces, or that compute smooth things by pieces, such as softplus by a maximum."""


@pytest.mark.parametrize(("name", "function", "span"), FUNCTIONS, ids=[name for name, _, _ in FUNCTIONS])
def test_functions_as_users_write_them(name, function, span):
    """The polynomial satisfies the differential equation to its order, or the function is refused."""
    low, high = span
    y = jnp.asarray(low + (high - low) * np.random.default_rng(1).uniform(0.3, 0.7, 4))

    def field(y):
        return 0.1 * jnp.stack([jnp.sin(function(y)), jnp.ones(()), 0.5 * y[0], -0.3 * y[1]])

    if name in REFUSED:
        with pytest.raises(Unsupported, match=r"series|formulas|repetitions|indices"):
            taylor_series(field, y, ORDER)
        return
    found = np.asarray(taylor_series(field, y, ORDER))
    t = 0.02
    place = sum(c * t**k for k, c in enumerate(found))
    slope = sum(k * c * t ** (k - 1) for k, c in enumerate(found) if k)
    # The fields are of size 0.1, and the terms left out are (0.02/radius)^14.
    np.testing.assert_allclose(slope, field(jnp.asarray(place)), rtol=0, atol=1e-13)
    # Both forms add the same products in another order.
    np.testing.assert_allclose(by_kernel(field, y), found, rtol=1e-11, atol=1e-13 * np.max(np.abs(found)))


def stack(f):
    return lambda y: jnp.stack([f(y), 1.0 + 0 * y[0]])


def test_choices_that_are_not_made_anew():
    """Numbers that do not change may choose, pivots may be chosen, and NaN may guard."""
    y, power = jnp.array([0.3, 0.4]), jnp.asarray(2.0)

    def chosen(y, power):
        return jnp.where(power > 1, y[0] * y[1], jnp.inf) + jax.lax.cond(power < 1, jnp.sin, jnp.cos, y[1])

    def plain(y, power):
        return y[0] * y[1] + jnp.cos(y[1])

    def inverse(y, power):
        return jnp.linalg.solve(jnp.array([[y[0], 2.0], [3.0, y[1]]]), y)[0]

    def cramer(y, power):
        return (y[0] * y[1] - 2 * y[1]) / (y[0] * y[1] - 6)

    for one, other in ((chosen, plain), (inverse, cramer)):
        found, wanted = (
            jax.jit(lambda y, p, f=f: taylor_series(stack(lambda y: f(y, p)), y, 9))(y, power)
            for f in (one, other)
        )
        # Sums of nine products of numbers of size one.
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(
            by_kernel(stack(lambda y, f=one: f(y, 2.0)), y, 9), wanted, rtol=1e-12, atol=1e-15
        )


def special(y):
    """sin(x)/x, with the value at zero by itself."""
    x = y[0]
    return jnp.where(x == 0, 1.0, jnp.sin(x) / jnp.where(x == 0, 1.0, x))


def test_a_value_at_a_single_point_is_no_series():
    """Beside the point the series is that of the function; at the point there is none, and NaN says so."""
    found = taylor_series(stack(special), jnp.array([0.5, 0.0]), 8)
    plain = taylor_series(stack(lambda y: jnp.sin(y[0]) / y[0]), jnp.array([0.5, 0.0]), 8)
    np.testing.assert_allclose(found, plain, rtol=1e-14, atol=1e-16)  # the same operations
    for at in (taylor_series, lambda f, y, n: by_kernel(f, y, n)):
        assert np.isnan(np.asarray(at(stack(special), jnp.array([0.0, 0.0]), 8))).any()


@pytest.mark.parametrize(
    "function",
    [
        lambda y: jnp.where(jnp.floor(y[0]) == 3.0, y[1], 0.0),
        lambda y: jnp.where(jnp.where(y[0] > 0, 1.0, 2.0) == 1.0, y[1], 0.0),
        lambda y: jnp.where(jnp.sign(y[0]) == y[1], y[1], 0.0),
        lambda y: y[0] * jnp.where(jnp.isfinite(1 / y[0]), y[1], 0.0),
        lambda y: jnp.array([1.0, 2.0, 3.0, 4.0])[jnp.int32(y[0])] * y[1],
        lambda y: jnp.where((y[0] == 1.0) | (y[1] > 0), y[1], 0.0),
        # The same comparison as that of the pivot before it.
        lambda y: (
            jnp.linalg.inv(jnp.array([[y[0], 2.0], [y[1], 5.0]]))[0, 0]
            + jnp.where(jnp.abs(y[1]) > jnp.abs(y[0]), 1.0, y[0])
        ),
        jnp.round,
    ],
)
def test_pieces_in_disguise_are_refused(function):
    with pytest.raises(Unsupported):
        taylor_series(
            lambda y: stack(function)(y) if function is not jnp.round else function(y),
            jnp.array([0.5, 0.7]),
            8,
        )


def test_tests_for_nan_choose_what_is_usual():
    def guarded(y):
        return jnp.where(y[0] != y[0], 5.0, jnp.sin(y[0])) + jnp.where(y[1] == y[1], y[0], 7.0)

    found = taylor_series(stack(guarded), jnp.array([0.5, 0.1]), 9)
    plain = taylor_series(stack(lambda y: jnp.sin(y[0]) + y[0]), jnp.array([0.5, 0.1]), 9)
    np.testing.assert_allclose(found, plain, rtol=1e-14, atol=1e-16)  # the same operations


def test_derivatives_are_those_of_the_variational_equations():
    """The derivative of the series along a direction is the series of (y, z)' = (f(y), f'(y) z)."""

    def field(y):
        return jnp.stack([y[1], -jnp.sin(y[0]) * jnp.exp(-y[1]), y[0] / (1 + y[2] ** 2)])

    def both(x):
        y, z = x[:3], x[3:]
        return jnp.concatenate(jax.jvp(field, (y,), (z,)))

    y, z = jnp.array([0.3, -0.2, 0.5]), jnp.array([1.0, 0.4, -0.7])

    def series(y):
        return taylor_series(field, y, 10)

    forward = jax.jvp(series, (y,), (z,))[1]
    wanted = taylor_series(both, jnp.concatenate([y, z]), 10)[:, 3:]
    # The same sums in another order.
    np.testing.assert_allclose(forward, wanted, rtol=1e-12, atol=1e-15)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(11, 3)))
    back = jax.grad(lambda y: jnp.sum(weights * series(y)))(y)
    np.testing.assert_allclose(back @ z, jnp.sum(weights * forward), rtol=1e-12)  # the same
    many = jax.vmap(series)(jnp.stack([y, z]))
    np.testing.assert_allclose(many, jnp.stack([series(y), series(z)]), rtol=1e-13, atol=1e-16)  # the same


@pytest.mark.parametrize("order", [1, 2, 3, 5, 9, 24])
def test_orders(order):
    """exp(t), and a constant; short series and long ones."""

    def field(y):
        return jnp.stack([y[0], jnp.full((), 2.0)])

    y = jnp.array([1.0, 0.5])
    wanted = np.zeros((order + 1, 2))
    wanted[:, 0] = [1 / float(mp.factorial(k)) for k in range(order + 1)]
    wanted[:2, 1] = 0.5, 2.0
    for found in (taylor_series(field, y, order), by_kernel(field, y, order)):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)  # a rounding per order
