"""Newton's method: rounding accuracy, honest reports, implicit derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dalembert.numerics import newton, newton_solver


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


def test_derivatives_of_many_unknowns_take_products_with_the_jacobian():
    """First and second derivatives, forward, in reverse and of members, as with the Jacobian written down."""
    turn = jnp.asarray(np.random.default_rng(5).normal(size=(12, 12)) / 20)

    def equations(x, p):
        return x + turn @ jnp.sin(x * p[0]) + 0.1 * jnp.cos(x) * p[1] - jnp.arange(12.0) / 12

    def root(p, rough):
        slope = (lambda: jnp.eye(12)) if rough else None
        return newton(
            lambda x: equations(x, p), jnp.zeros(12), jnp.array(1.0), slope, weights=jnp.arange(1, 13.0)
        )[0]

    p = jnp.array([1.2, 0.7])
    written = str(jax.make_jaxpr(jax.jacfwd(root), static_argnums=1)(p, True))
    assert "custom_linear_solve" in written
    for of in (jax.jacfwd, jax.jacrev, lambda f: jax.jacfwd(jax.jacrev(f))):
        ours, exact = (jax.jit(of(lambda p, rough=rough: root(p, rough)))(p) for rough in (True, False))
        np.testing.assert_allclose(
            ours, exact, rtol=0, atol=1e-14
        )  # numbers of size one, equations solved to 1e-16
    many = jnp.stack([p, p + 0.1, p - 0.2])
    ours, exact = (jax.vmap(jax.grad(lambda p, r=r: jnp.sum(root(p, r) ** 2)))(many) for r in (True, False))
    np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-14)


def test_the_derivative_of_a_root_where_the_jacobian_is_singular_is_no_number():
    """x^3 = p has its root at zero, where the slope vanishes; dividing by it, or iterating, must not give a number."""

    def root(p):
        return newton(lambda x: x**3 - p, jnp.zeros(9), jnp.array(1.0), lambda: jnp.eye(9))[0]

    assert not np.any(np.isfinite(jax.jacfwd(root)(jnp.zeros(9)).diagonal()))
    assert not np.any(np.isfinite(jax.grad(lambda p: jnp.sum(root(p)))(jnp.zeros(9))))


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


def turning(size, share, seed=2):
    """Equations whose Jacobian is the identity and `share` of something else, and that are not linear."""
    a = jnp.asarray(np.random.default_rng(seed).normal(size=(size, size)) / np.sqrt(size))
    return lambda x, p=1.0: x + share * (a @ jnp.sin(x + p)) - jnp.arange(size) / size


@pytest.mark.parametrize(("size", "share"), [(4, 0.3), (10, 0.3), (12, 0.05), (30, 0.2), (30, 0.45)])
def test_equations_near_the_identity(size, share):
    """By the last few updates, and where these do not suffice by all of them: the roots that exact Jacobians find."""
    f = turning(size, share)
    near = newton(f, jnp.zeros(size), jnp.array(1.0), near_identity=True)
    exact = newton(f, jnp.zeros(size), jnp.array(1.0))
    assert bool(near[1].converged)
    # Roundings of a sum of so many terms.
    assert np.max(np.abs(near[0] - exact[0])) < 1e-14


def test_few_updates_give_way_to_all_of_them():
    """Ten corrections do not reach rounding here, so the whole inverse takes over; easy equations never begin it."""
    hard, easy = turning(30, 0.45), turning(30, 0.02)
    few = newton_solver._by_broyden(
        hard, jnp.zeros(30), newton_solver._Few.none(jnp.zeros(30)), 1.0, 0.0, 1.0,
        most=2 * newton_solver._UPDATES,
    )  # fmt: skip
    assert not few[1][2] > 0
    counts = [
        int(newton(f, jnp.zeros(30), jnp.array(1.0), near_identity=True)[1].iterations) for f in (hard, easy)
    ]
    assert counts[0] > 2 * newton_solver._UPDATES
    assert counts[1] <= 2 * newton_solver._UPDATES


def test_near_the_identity_without_a_root():
    _, info = newton(lambda x: x + 3 * jnp.cosh(x), jnp.zeros(12), jnp.array(1.0), near_identity=True)
    assert not bool(info.converged)


@pytest.mark.parametrize("size", [6, 12])
def test_derivatives_near_the_identity(size):
    f = turning(size, 0.2)

    def root(p, near):
        return newton(lambda x: f(x, p), jnp.zeros(size), jnp.array(1.0), near_identity=near)[0]

    for of in (jax.jacfwd, jax.jacrev):
        ours, exact = (of(lambda p, near=near: root(p, near))(1.2) for near in (True, False))
        np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-14)
