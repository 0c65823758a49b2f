"""What the graph of scalars finds out before anything runs, and what it must not take for granted."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dalembert as da
from dalembert.kernels import scalarise
from dalembert.kernels.scalars import Scalars

X = np.array([0.3, -1.2, 2.5])


def operations(function):
    return Scalars(function, X).operations


def same(function, rtol=4e-16):
    """The value by scalars is that of plain JAX."""
    np.testing.assert_allclose(scalarise(function)(X), function(jnp.asarray(X)), rtol=rtol, atol=1e-16)


@pytest.mark.parametrize(
    "function",
    [
        lambda q: jnp.sin(q[0]) ** 2 + jnp.cos(q[0]) ** 2,
        lambda q: q[1] * jnp.cos(q[0]) * jnp.cos(q[0]) + jnp.sin(q[0]) * (jnp.sin(q[0]) * q[1]),
        lambda q: jnp.sin(q[0]) * (q[1] * jnp.cos(q[0])) - q[1] * (jnp.sin(q[0]) * jnp.cos(q[0])),
    ],
    ids=["one", "common factor", "the same product in another order"],
)
def test_circles_close(function):
    assert operations(function) == 0
    same(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda q: jnp.sin(q[0]) ** 2 + jnp.cos(q[1]) ** 2,
        lambda q: q[1] * jnp.sin(q[0]) ** 2 + q[2] * jnp.cos(q[0]) ** 2,
        lambda q: jnp.sin(q[0]) ** 2 + jnp.sin(q[0]) ** 2,
        lambda q: jnp.sin(q[0]) ** 2 - jnp.cos(q[0]) ** 2,
        lambda q: jnp.sin(q[0]) ** 3 + jnp.cos(q[0]) ** 3,
    ],
    ids=["two angles", "two factors", "twice the sine", "difference", "cubes"],
)
def test_what_is_no_circle_stays(function):
    assert operations(function) > 0
    same(function)


def iterated(change):
    """Five rounds of (x, y) -> change(x, y, a), by a loop whose length is not known."""

    def function(q):
        def body(carry):
            i, x, y = carry
            return (i + 1, *change(x, y, q[0]))

        return jnp.stack(lax.while_loop(lambda c: c[0] < 5 + 0 * q[1], body, (0.0, q[0], q[2]))[1:])

    return function


def carried(function):
    """How many variables the loop carries besides its counter."""
    plan = Scalars(function, X).plan
    (loop,) = [n for n in plan.needed.values() if n.op == "while"]
    moving, _ = plan.carried(loop, loop.params[1])
    return len(moving) - 1


def test_a_variable_that_ends_each_round_as_it_began_is_no_variable():
    function = iterated(lambda x, y, a: (x - (x - a), y + jnp.sin(x)))
    assert carried(function) == 1
    same(function)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y, a: (x - (x - 2 * a), y + x),  # ends the first round elsewhere
        lambda x, y, a: (x - (x - a) * y, jnp.sin(y) + x),  # only because x = a at first
        lambda x, y, a: (x - (x - y), y + a),  # another variable's value
    ],
)
def test_a_variable_that_changes_is_carried(change):
    same(iterated(change), rtol=1e-15)


def test_stays_only_together_with_what_stays():
    """x keeps its value as long as it is a; the second round would show it if y's change were missed."""
    function = iterated(lambda x, y, a: (x - (x - a) * y, y * 0.5))
    same(function)


@pytest.mark.parametrize("reverse", [False, True])
def test_numbers_read_from_a_list(reverse):
    """A scan over known numbers that is too long to unroll."""
    numbers = np.linspace(-1.0, 1.0, 101)

    def function(q):
        def body(x, number):
            for _ in range(12):
                x = x + 0.01 * number * jnp.cos(x + number)
            return x, None

        return lax.scan(body, q, jnp.asarray(numbers), reverse=reverse)[0]

    plan = Scalars(function, X).plan
    assert sum(n.op == "list" for n in plan.needed.values()) == 1
    same(function, rtol=1e-14)


class Falling(da.System):
    """A skate on a slope, its potential inside the Lagrangian."""

    coordinates = ("x", "y", "theta")

    def lagrangian(self, q, v):
        return 0.5 * (v[0] ** 2 + v[1] ** 2 + 0.5 * v[2] ** 2) - 0.3 * q[1]

    def constraints(self, q):
        return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])


class Apart(da.System):
    """The same, with metric and potential apart."""

    coordinates = ("x", "y", "theta")

    def metric(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 0.5]))

    def potential(self, q):
        return 0.3 * q[1]

    def constraints(self, q):
        return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])


@pytest.mark.parametrize("spelling", ["dla:0.5", "dla:0.25", "dla01", "dd", "frame", "leapfrog"])
def test_a_potential_inside_the_lagrangian_counts(spelling):
    """Methods skip the work of a potential that is written without q, and of no other."""
    method = da.methods.method_from_text(spelling)
    start = ([0.0, 0.0, 0.4], [np.cos(0.4), np.sin(0.4), 0.7])
    a, b = (da.simulate(s, method, *start, h=0.1, steps=50) for s in (Falling(), Apart()))
    assert abs(float(a.v[-1] @ a.v[-1] - a.v[0] @ a.v[0])) > 0.1  # the slope does something
    np.testing.assert_allclose(a.q, b.q, atol=1e-12)
    np.testing.assert_allclose(a.multipliers, b.multipliers, atol=1e-11)
