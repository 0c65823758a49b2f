"""Small dense linear algebra against NumPy, its derivatives, and matrices that need care."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from dalembert.numerics import (
    balancing_units,
    inverse_square_root,
    matmul,
    matvec,
    negative_eigenvalues,
    null_space,
    skew_solution,
    solve,
    solve_spd,
)


@pytest.fixture
def random():
    return np.random.default_rng(3)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8])
def test_solve(n, random):
    a = random.normal(size=(n, n)) + 3 * np.eye(n)
    b = random.normal(size=n)
    many = random.normal(size=(n, 4))
    # Rounding times a condition number of at most a hundred.
    np.testing.assert_allclose(solve(jnp.asarray(a), jnp.asarray(b)), np.linalg.solve(a, b), atol=1e-13)
    np.testing.assert_allclose(solve(jnp.asarray(a), jnp.asarray(many)), np.linalg.solve(a, many), atol=1e-13)
    spd = a @ a.T
    np.testing.assert_allclose(
        solve_spd(jnp.asarray(spd), jnp.asarray(b)), np.linalg.solve(spd, b), atol=1e-12
    )


@pytest.mark.parametrize(
    "a",
    [
        [[0.0, 1.0], [1.0, 0.0]],
        [[1e-18, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]],
        [[1.0, 2.0, 3.0], [2.0, 4.0, 1.0], [0.0, 1.0, 1.0]],
        [[0.0, 0.0, 2.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.0]],
    ],
)
def test_zero_pivots_are_pivoted_away(a):
    a = np.array(a)
    b = np.arange(1.0, len(a) + 1)
    np.testing.assert_allclose(solve(jnp.asarray(a), jnp.asarray(b)), np.linalg.solve(a, b), rtol=1e-14)
    batched = jax.vmap(solve)(jnp.stack([a, np.eye(len(a))]), jnp.stack([b, b]))
    np.testing.assert_allclose(batched[0], np.linalg.solve(a, b), rtol=1e-14)
    np.testing.assert_allclose(batched[1], b)


def test_singular_matrices_are_not_solved():
    a = jnp.array([[1.0, 2.0], [2.0, 4.0]])
    assert not np.all(np.isfinite(solve(a, jnp.ones(2))))
    assert np.all(np.isnan(solve_spd(a, jnp.ones(2))))
    assert not np.any(np.isfinite(solve_spd(jnp.diag(jnp.array([1.0, -1.0])), jnp.ones(2))))


@pytest.mark.parametrize("which", [solve, solve_spd])
def test_derivatives_of_solves(which, random):
    a = random.normal(size=(3, 3))
    a = jnp.asarray(a @ a.T + np.eye(3))
    b = jnp.asarray(random.normal(size=3))

    def plain(a, b):
        return jnp.sum(jnp.sin(jnp.linalg.solve(a, b)))

    def ours(a, b):
        return jnp.sum(jnp.sin(which(a, b)))

    for derivative in (jax.grad, jax.jacfwd, lambda f, argnums: jax.jacfwd(jax.grad(f, argnums), argnums)):
        for argnums in (0, 1):
            x, y = (derivative(f, argnums=argnums)(a, b) for f in (ours, plain))
            np.testing.assert_allclose(x, y, atol=1e-12)


@pytest.mark.parametrize(("k", "n"), [(1, 2), (1, 3), (2, 4), (2, 5), (3, 5), (4, 5)])
def test_null_space(k, n, random):
    a = random.normal(size=(k, n))
    basis = np.asarray(jax.jit(null_space)(jnp.asarray(a)))
    assert basis.shape == (n, n - k)
    assert np.max(np.abs(a @ basis)) < 1e-13
    assert np.linalg.matrix_rank(basis) == n - k


def test_null_space_where_leading_entries_vanish():
    a = jnp.array([[0.0, 0.0, 1.0, 2.0], [0.0, 3.0, 0.0, 1.0]])
    basis = np.asarray(null_space(a))
    assert np.max(np.abs(a @ basis)) < 1e-15
    assert np.linalg.matrix_rank(basis) == 2


@pytest.mark.parametrize("r", [1, 2, 3, 4])
def test_inverse_square_root(r, random):
    e = random.normal(size=(r, r))
    a = np.eye(r) + 0.3 * (e + e.T) / np.linalg.norm(e + e.T)
    z = np.asarray(inverse_square_root(jnp.asarray(a)))
    np.testing.assert_allclose(z @ a @ z, np.eye(r), atol=1e-14)
    np.testing.assert_allclose(z, z.T, atol=1e-14)


def test_products(random):
    a, b, x = random.normal(size=(2, 3)), random.normal(size=(3, 4)), random.normal(size=3)
    np.testing.assert_allclose(matvec(jnp.asarray(a), jnp.asarray(x)), a @ x, rtol=1e-14)
    np.testing.assert_allclose(matmul(jnp.asarray(a), jnp.asarray(b)), a @ b, rtol=1e-14)


@pytest.mark.parametrize("spread", [30.0, 1e4])
def test_inverse_square_root_of_eigenvalues_that_differ(spread, random):
    """The scale of the largest one; errors grow with the square root of the spread, which z itself has."""
    turned = np.linalg.qr(random.normal(size=(6, 6)))[0]
    a = turned @ np.diag(np.geomspace(1, spread, 6)) @ turned.T
    z = np.asarray(inverse_square_root(jnp.asarray(a)))
    np.testing.assert_allclose(z @ a @ z, np.eye(6), atol=1e-13 * np.sqrt(spread))


@pytest.mark.parametrize("shape", [(9, 11), (12, 13), (20, 40)])
def test_null_space_of_many_rows(shape, random):
    """The elimination as a loop, with entries and whole columns that vanish."""
    a = random.normal(size=shape)
    a[np.abs(a) < 0.5] = 0
    a[:, 2] = 0
    basis = np.asarray(null_space(jnp.asarray(a)))
    assert np.max(np.abs(a @ basis)) < 1e-12 * np.max(np.abs(basis))  # sums of forty products
    assert np.linalg.matrix_rank(basis) == shape[1] - shape[0] == basis.shape[1]


@pytest.mark.parametrize("columns", [(), (3,)])
def test_solves_of_large_matrices(columns, random):
    """By LAPACK, and in reverse; a matrix that is not positive definite gives NaN, as for small ones."""
    a, b = random.normal(size=(15, 15)) + 4 * np.eye(15), random.normal(size=(15, *columns))
    np.testing.assert_allclose(
        solve(jnp.asarray(a), jnp.asarray(b)), np.linalg.solve(a, b), rtol=0, atol=1e-12
    )
    spd = a @ a.T
    found = jax.jit(solve_spd)(jnp.asarray(spd), jnp.asarray(b))
    np.testing.assert_allclose(spd @ np.asarray(found), b, rtol=0, atol=1e-12)
    slope = jax.grad(lambda m: jnp.sum(solve(m, jnp.asarray(b)) ** 2))(jnp.asarray(a))
    x = np.linalg.solve(a, b).reshape(15, -1)
    np.testing.assert_allclose(slope, -np.linalg.solve(a.T, 2 * x) @ x.T, rtol=0, atol=1e-11)
    assert np.all(np.isnan(solve_spd(jnp.asarray(spd - 1e3 * np.eye(15)), jnp.asarray(b))))


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 9])
def test_skew_solution(r, random):
    """W H + H W = R for skew W and R, against SciPy's equations of Sylvester; derivatives against differences."""
    turn, right = (random.normal(size=(r, r)) for _ in range(2))
    h, right = np.eye(r) + 0.05 * (turn + turn.T), right - right.T
    exact = linalg.solve_sylvester(h, h, right)
    found = np.asarray(skew_solution(jnp.asarray(h), jnp.asarray(right)))
    assert np.max(np.abs(found - exact), initial=0.0) < 1e-14
    assert np.array_equal(found, -found.T) or np.max(np.abs(found + found.T)) < 1e-15

    def moved(x):
        return skew_solution(jnp.asarray(h) + x * (turn + turn.T), (1 + x) * jnp.asarray(right))

    step = 1e-5
    differences = (moved(step) - moved(-step)) / (2 * step)
    # Differences of this step are good to about 1e-10.
    np.testing.assert_allclose(jax.jacfwd(moved)(0.0), differences, atol=1e-8)
    np.testing.assert_allclose(jax.jacrev(moved)(0.0), differences, atol=1e-8)


def test_a_skew_solution_that_the_iteration_does_not_reach_is_no_number(random):
    """Far from a multiple of the identity its iteration for many rows does not converge, and must say so."""
    h = jnp.diag(jnp.array([1e-3, 1.0, 1.0, 1.0, 40.0, 900.0]))
    right = random.normal(size=(6, 6))
    assert np.all(np.isnan(skew_solution(h, jnp.asarray(right - right.T))))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
def test_negative_eigenvalues(n, random):
    """The number is that of eigvalsh, also where pivots without C vanish: for zero diagonals and null directions."""
    made = []
    for k in range(40):
        basis = random.normal(size=(n, n))
        signs = np.where(random.uniform(size=n) < 0.5, -1.0, 1.0)
        a = basis @ np.diag(signs) @ basis.T
        if k % 2 and n > 1:
            np.fill_diagonal(a, 0.0)
        made.append(a)
    made += [np.fliplr(np.eye(n)) * scale for scale in (1e-8, 1.0, -1e8)] + [np.eye(n), -np.eye(n)]
    for a in made:
        values = np.linalg.eigvalsh(a)
        if np.min(np.abs(values)) > 1e-6 * np.max(
            np.abs(values)
        ):  # otherwise the sign is a matter of rounding
            assert negative_eigenvalues(jnp.asarray(a)) == np.sum(values < 0)


def test_balancing_units(random):
    """They follow units of the coordinates, and no entry exceeds one in them."""
    for _ in range(20):
        a = random.normal(size=(4, 4))
        a = a + a.T
        scale = 10.0 ** random.uniform(-6, 6, 4)
        for matrix in (a, a * np.outer(scale, scale)):
            unit = np.asarray(balancing_units(jnp.asarray(matrix)))
            largest = np.max(np.abs(matrix) / np.outer(unit, unit), axis=1)
            assert np.max(largest) <= 1 + 1e-14
            # Five rounds leave the 32nd root of the imbalance of 1e24 at most.
            assert np.min(largest) > 0.1
    diagonal = np.diag([1e-6, -4.0, 9e8])
    np.testing.assert_allclose(balancing_units(jnp.asarray(diagonal)), [1e-3, 2.0, 3e4], rtol=1e-14)
    swapped = np.array([[0.0, 5.0], [5.0, 0.0]])
    np.testing.assert_allclose(balancing_units(jnp.asarray(swapped)), np.sqrt([5.0, 5.0]), rtol=1e-14)
    np.testing.assert_array_equal(
        balancing_units(jnp.zeros((2, 2))), np.ones(2)
    )  # there is nothing to measure
