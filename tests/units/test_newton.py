"""Newton's method: rounding accuracy, honest reports, implicit derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dalembert.numerics import newton


def circle_and_line(x, p=1.0):
    return jnp.array([x[0] ** 2 + x[1] ** 2 - 4.0 * p, jnp.exp(x[0]) - x[1]])


@pytest.mark.parametrize("quasi", [False, True])
def test_converges_to_rounding(quasi):
    guess = jnp.array([0.6, 1.8])
    slope = (lambda: jax.jacfwd(circle_and_line)(guess)) if quasi else None
    x, info = jax.jit(lambda: newton(circle_and_line, guess, jnp.array(0.5), slope))()
    assert bool(info.converged)
    assert int(info.iterations) <= (10 if quasi else 5)
    assert np.max(np.abs(circle_and_line(x))) < 2e-15


def test_a_rough_slope_still_converges():
    x, info = newton(circle_and_line, jnp.array([0.7, 1.9]), jnp.array(0.5), lambda: 3 * jnp.eye(2))
    assert bool(info.converged)
    assert np.max(np.abs(circle_and_line(x))) < 4e-15


def test_says_when_there_is_no_root():
    _, info = newton(lambda x: x**2 + 1.0, jnp.array([0.3]), jnp.array(1.0))
    assert not bool(info.converged)
    _, info = newton(lambda x: jnp.log(x - 5.0), jnp.array([0.3]), jnp.array(1.0))
    assert not bool(info.converged)


def test_linear_equations_take_two_iterations():
    _, info = newton(lambda x: 3.0 * x - 1.0, jnp.array([10.0]), jnp.array(1.0))
    assert bool(info.converged)
    assert int(info.iterations) == 2


def test_no_unknowns():
    x, info = newton(lambda x: x, jnp.zeros(0), jnp.array(1.0))
    assert x.shape == (0,)
    assert bool(info.converged)


@pytest.mark.parametrize("quasi", [False, True])
def test_derivatives_are_those_of_the_implicit_function(quasi):
    def root(p):
        slope = (lambda: 2 * jnp.eye(2)) if quasi else None
        return newton(lambda x: circle_and_line(x, p), jnp.array([0.6, 1.8]), jnp.array(0.5), slope)[0]

    x = root(1.3)
    jacobian = jax.jacfwd(circle_and_line)(x, 1.3)
    expected = np.linalg.solve(jacobian, [4.0, 0.0])
    np.testing.assert_allclose(jax.jacfwd(root)(1.3), expected, rtol=1e-13)
    np.testing.assert_allclose(jax.jacrev(root)(1.3), expected, rtol=1e-13)


def test_a_large_correction_after_a_small_one_is_no_root():
    """There is none: from the left the function points across the jump, and from the right far to the left."""

    def jumping(x):
        return jnp.where(x <= 0, x - 1e-13, x + 5.0)

    _, info = newton(jumping, jnp.zeros(1), jnp.array(1.0))
    assert not bool(info.converged)


def test_rounding_in_the_values_does_not_become_a_large_correction():
    """The first correction is 1e-13 along one axis, and rounding then changes the value along the other axis only."""

    def rounded(x):
        return jnp.where(x[0] == 0, jnp.array([-1e-13, 0.0]), jnp.array([-1e-13 + 1e-27, 1e-13]))

    x, info = newton(rounded, jnp.zeros(2), jnp.array(1.0), lambda: jnp.eye(2))
    assert bool(info.converged)
    assert np.max(np.abs(x)) < 1e-12
