"""Discrete gradients: their defining property, symmetry, and their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dalembert.discrete import GRADIENTS

METRIC = jnp.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.7]])


def rough(q):
    return jnp.exp(jnp.sin(3 * q[0])) + jnp.cos(q[1] * q[2]) + jnp.sqrt(2 + q[2] ** 2) + 1 / (1 + q[1] ** 2)


POINTS = [
    (jnp.array([0.1, 0.4, -0.3]), jnp.array(d))
    for d in ([1.0, -0.7, 0.5], [0.01, 0.02, -0.01], [2.0, 0.0, 0.0])
]


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize(("q0", "step"), POINTS)
def test_gives_the_difference_and_is_symmetric(name, q0, step):
    q1 = q0 + step
    found = GRADIENTS[name](rough, q0, q1, METRIC)
    # The difference of two potentials of size one is itself known to a few 1e-16.
    assert float(found @ (q1 - q0)) == pytest.approx(float(rough(q1) - rough(q0)), abs=2e-15)
    np.testing.assert_allclose(GRADIENTS[name](rough, q1, q0, METRIC), found, atol=1e-14)


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-16, 1e-12, 1e-8, 1e-5])
def test_tends_to_the_gradient_without_noise(name, size):
    """No cancellation however small the step: the error is that of the formula, size^2 times a few."""
    q = jnp.array([0.1, 0.4, -0.3])
    found = GRADIENTS[name](rough, q, q + size * jnp.array([1.0, -2.0, 0.5]), METRIC)
    exact = jax.grad(rough)(q + 0.5 * size * jnp.array([1.0, -2.0, 0.5]))
    np.testing.assert_allclose(found, exact, atol=1e-14 + 100 * size**2)


@pytest.mark.parametrize("name", GRADIENTS)
def test_derivatives_are_finite_at_rest(name):
    q = jnp.array([0.1, 0.4, -0.3])
    slope = jax.jacfwd(lambda x: GRADIENTS[name](rough, q, x, METRIC))(q)
    assert np.all(np.isfinite(slope))
    np.testing.assert_allclose(slope, jax.hessian(rough)(q) / 2, atol=1e-12)


def test_average_needs_its_correction():
    """What a plain quadrature of five points misses on a large step is far above rounding."""
    q0, q1 = jnp.array([0.1, 0.4, -0.3]), jnp.array([1.1, -0.3, 0.2])
    nodes, weights = np.polynomial.legendre.leggauss(5)
    points = q0 + (nodes[:, None] + 1) / 2 * (q1 - q0)
    plain = np.sum(weights[:, None] / 2 * np.asarray(jax.vmap(jax.grad(rough))(points)), axis=0)
    assert abs(plain @ (q1 - q0) - (rough(q1) - rough(q0))) > 1e-7


def test_average_and_increments_agree_for_separable_potentials_and_gonzalez_does_not():
    def separable(q):
        return jnp.sum(jnp.cos(q) + q**4)

    q0, q1 = jnp.array([0.1, 0.4, -0.3]), jnp.array([0.4, -0.3, 0.2])
    found = {name: GRADIENTS[name](separable, q0, q1, jnp.eye(3)) for name in GRADIENTS}
    np.testing.assert_allclose(found["average"], found["itoh-abe"], atol=1e-14)
    assert np.max(np.abs(found["average"] - found["gonzalez"])) > 1e-3


@pytest.mark.parametrize("name", ["average", "itoh-abe"])
def test_a_driver_does_not_feel_its_passenger_however_long_the_step(name):
    """The correction of the quadrature, large for a step of 3, goes to the coordinate that needs it."""

    def potential(q):
        return 0.5 * (q[0] ** 2 + q[1] ** 2) + 1 - jnp.cos(q[2]) + 0.25 * jnp.sin(2 * q[2])

    start, end = jnp.array([1.0, -0.4, 0.2]), jnp.array([0.3, 0.8, 3.2])
    found = [
        GRADIENTS[name](potential, start * factor, end * factor, jnp.eye(3))
        for factor in (jnp.array([1.0, 1.0, 1.0]), jnp.array([-3.0, 0.5, 1.0]))
    ]
    assert abs(found[0][2] - found[1][2]) < 1e-14  # rounding of values of size one
    exact = (potential(end.at[:2].set(0)) - potential(start.at[:2].set(0))) / 3.0
    assert abs(found[0][2] - exact) < 1e-14
