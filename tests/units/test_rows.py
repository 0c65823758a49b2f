"""Functions evaluated at many rows: machine code and XLA give the same, and each function gets one of them."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dalembert as da
from dalembert.kernels import choice, over_rows, rows
from dalembert.kernels.array_loop import ArrayLoop
from dalembert.model import acceleration, as_arrays, lower

SLEIGH = lower(as_arrays(da.zoo.ChaplyginSleigh()))


def at_random(count, *shapes):
    draw = np.random.default_rng(3)
    return [draw.normal(size=(count, *shape)) for shape in shapes]


def tree(shared, x, y):
    """Numbers, vectors and matrices, whole numbers and conditions, the same entry twice, and a constant."""
    return {
        "sum": x @ y,
        "pair": (y, y),
        "matrix": jnp.outer(x, jnp.sin(y)) * shared["a"],
        "condition": x[0] > 0,
        "whole": jnp.floor(10 * x).astype(int) + shared["n"],
        "one": jnp.ones(2),
    }


def by_both(function, shared, *arrays):
    found = rows._kernel(function, shared, arrays)
    assert found is not None
    return over_rows(function)(shared, *arrays), rows._by_xla(function, shared, arrays)


@pytest.mark.parametrize("count", [1, 7, 1024, 1500])
def test_machine_code_and_xla_give_the_same(count):
    """To rounding: the sines differ by one unit in the last place, and sums may be taken in another order."""
    shared = {"a": np.float64(0.3), "n": np.int64(2)}
    one, two = by_both(tree, shared, *at_random(count, (3,), (3,)))
    assert list(one) == list(two)
    for a, b in zip(*(sorted(x.items()) for x in (one, two)), strict=True):
        for c, d in zip(np.atleast_1d(a[1]), np.atleast_1d(b[1]), strict=True):
            assert np.asarray(c).dtype == np.asarray(d).dtype
            np.testing.assert_allclose(c, d, rtol=4e-15, atol=4e-15)
    assert one["matrix"].shape == (count, 3, 3)


def test_rows_of_a_system():
    """The sleigh's accelerations are sums of some twenty terms of size ten: a few units in the last place."""
    one, two = by_both(acceleration, SLEIGH, *at_random(300, (3,), (3,)))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13 * np.max(np.abs(b)))


def no_sides(shared, x):
    """Linear equations without a right side, and without unknowns, as for systems without constraints."""
    matrix = jnp.outer(x, x) + jnp.eye(3)
    return jnp.linalg.solve(matrix, jnp.zeros((3, 0))), jnp.linalg.solve(jnp.zeros((0, 0)), jnp.zeros(0)), x


def test_empty_matrices():
    (x,) = at_random(5, (3,))
    one, two = by_both(no_sides, np.float64(1.0), x)
    assert [a.shape for a in one] == [b.shape for b in two] == [(5, 3, 0), (5, 0), (5, 3)]
    np.testing.assert_array_equal(one[2], x)


def test_more_rows_than_one_call_takes(monkeypatch):
    monkeypatch.setattr(rows, "_CALL", 64)
    (x,) = at_random(1000, ())
    np.testing.assert_array_equal(over_rows(lambda shared, x: shared * x)(np.float64(2.0), x), 2 * x)


def test_a_function_without_machine_code_goes_through_xla():
    def ordered(shared, x):
        return lax.sort(x * shared)

    (x,) = at_random(50, (40,))
    for _ in range(2):
        assert rows._kernel(ordered, np.float64(2.0), (x,)) is None
    np.testing.assert_array_equal(over_rows(ordered)(np.float64(2.0), x), np.sort(2 * x, axis=1))


def test_a_large_function_is_made_of_arrays(monkeypatch):
    monkeypatch.setattr(choice, "SCALARS", 3)
    x, y = at_random(20, (3,), (3,))
    assert isinstance(rows._kernel(dot, np.float64(2.0), (x, y))[0], ArrayLoop)
    np.testing.assert_allclose(over_rows(dot)(np.float64(2.0), x, y), 2 * np.sum(x * y, axis=1), atol=1e-14)


def dot(shared, x, y):
    return shared * (x @ y)


def test_no_rows():
    with pytest.raises(ValueError, match="there are no rows"):
        over_rows(lambda shared, x: x)(np.float64(1.0), np.zeros((0, 3)))
