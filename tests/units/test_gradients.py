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


@pytest.mark.parametrize("turn", [0.3, 1.0])
def test_a_kink_in_one_coordinate_is_not_felt_by_another(turn):
    """V = |x| + cos(turn y) on segments across the kink, wherever it falls between the quadrature's points: the balance
    holds, y has its own gradient, x the quotient of differences."""
    random = np.random.default_rng(7)
    start = random.normal(size=(5000, 2))
    end = start + random.normal(size=(5000, 2)) * 10 ** random.uniform(-3, 0, size=(5000, 1))
    end[:, 0] = -start[:, 0] * random.uniform(0, 3, size=5000)

    def wave(q):
        return jnp.cos(turn * q[1])

    def kinked(q):
        return jnp.abs(q[0]) + wave(q)

    both = jax.jit(jax.vmap(lambda a, b: [GRADIENTS["average"](v, a, b, jnp.eye(2)) for v in (kinked, wave)]))
    found, alone = map(np.asarray, both(start, end))
    step = end - start
    change = np.abs(end[:, 0]) - np.abs(start[:, 0])
    balance = np.sum(found * step, axis=1) - change - np.cos(turn * end[:, 1]) + np.cos(turn * start[:, 1])
    assert np.max(np.abs(balance)) < 1e-14  # sums of a few numbers of size one to five
    # Where the kink's share all but vanishes, so does what can be told of it: y's own error (1e-7 at a turn of 1 and
    # steps up to 4), never the kink's, which is of size one.
    assert np.max(np.abs(found[:, 1] - alone[:, 1])) < 1e-6
    assert np.max(np.abs(found[:, 0] - change / step[:, 0])) < 1e-6
    assert np.max(np.abs(change / step[:, 0])) > 0.9
