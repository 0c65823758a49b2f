"""Averaging in any matrix Lie algebra: what Theorem 4.2 promises, and where no logarithm exists."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from dalembert.diagnostics import averaging_symmetry_defect, periodic_averaging, rebase, reversibility
from dalembert.diagnostics.logarithms import negative_eigenvalues, one_logarithm, two_period_logarithm

PI = np.pi


def mathieu(a, q):
    """x'' + (a - 2 q cos 2t) x = 0, of period pi, in sl(2, R)."""
    return lambda t: jnp.array([[0.0, 1.0], [-a + 2 * q * jnp.cos(2 * t), 0.0]])


def so3(t):
    a, b, c = 0.7 + jnp.cos(t), 0.4 * jnp.sin(2 * t), 0.3 * jnp.sin(t)
    return jnp.array([[0.0, -a, b], [a, 0.0, -c], [-b, c, 0.0]])


def second_road(matrix, period, u0, theta):
    """SciPy's solution from 0 to theta periods."""
    done = solve_ivp(
        lambda t, u: np.asarray(matrix(t)) @ u, (0, theta * period), u0, "DOP853", rtol=1e-12, atol=1e-13
    )
    return done.y[:, -1]


@pytest.mark.parametrize(
    ("matrix", "period", "periods", "trace"),
    [
        (mathieu(0.5, 0.2), PI, 1, (-2, 2)),  # stable
        (
            mathieu(1.0, 0.6),
            PI,
            2,
            (-np.inf, -2),
        ),  # in the first tongue, where solutions change sign and grow
        (mathieu(4.0, 2.0), PI, 1, (2, np.inf)),  # in the second
        (so3, 2 * PI, 1, (-1, 3)),
    ],
)
def test_averages(matrix, period, periods, trace):
    found = periodic_averaging(matrix, period)
    assert trace[0] < np.trace(found.map) < trace[1]
    assert found.periods == periods
    assert found.holds == (periods == 1)
    assert bool(found.reason) == (periods == 2)
    assert len(found.algebra) == 3  # sl(2, R) and so(3)
    assert found.algebra_defect < 1e-9
    size = len(found.map)
    assert np.trace(found.average) == pytest.approx(0, abs=1e-9)
    u0 = np.random.default_rng(1).normal(size=size)
    for theta in (0.0, 0.4, 1.3):
        u = second_road(matrix, period, u0, theta) if theta else u0
        scale = np.max(np.abs(u))
        # SciPy's tolerance, times what solutions grow.
        assert found.flow(theta) @ u0 == pytest.approx(u, abs=1e-9 * scale)
        w = found.change(u, theta)
        assert w == pytest.approx(expm(found.average * theta) @ u0, abs=1e-8 * scale)
        assert found.back(w, theta) == pytest.approx(u, abs=1e-9 * scale)
        # The change of variables has the period that it says, and no smaller one.
        assert found.change(u, theta + periods) == pytest.approx(w, abs=1e-8 * scale)
        if periods == 2:
            assert np.max(np.abs(found.change(u, theta + 1) - w)) > 0.1 * np.max(np.abs(w))
    growth = np.max(np.linalg.eigvals(found.average).real) / period
    assert growth == pytest.approx(found.exponents[-1], abs=1e-9)
    assert found.is_compact == (abs(trace[0]) <= 2 and abs(trace[1]) <= 3)


def test_the_reason_names_the_eigenvalues():
    found = periodic_averaging(mathieu(1.0, 0.6), PI)
    assert len(negative_eigenvalues(found.map)) == 2
    assert "negative eigenvalues" in found.reason
    assert "two periods" in found.reason
    assert one_logarithm(found.map) is None


def test_a_logarithm_outside_the_algebra():
    """Two copies of one equation: the map of pairs of negative eigenvalues has a logarithm in gl(4), none in sl(2)."""
    one = mathieu(1.0, 0.6)

    def both(t):
        zero = jnp.zeros((2, 2))
        return jnp.block([[one(t), zero], [zero, one(t)]])

    found = periodic_averaging(both, PI)
    assert one_logarithm(found.map) is not None
    assert len(found.algebra) == 3
    assert found.periods == 2
    assert found.algebra_defect < 1e-8
    assert "outside the Lie algebra" in found.reason
    # In the whole of gl(4) there is one over a single period.
    whole = np.eye(16).reshape(16, 4, 4)
    assert periodic_averaging(both, PI, whole).holds


def test_half_turns():
    """A rotation by pi over the period: both senses are logarithms, and the average is in so(2)."""
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    found = periodic_averaging(lambda t: (0.5 + jnp.cos(t)) * jnp.asarray(turn), 2 * PI)
    assert found.map == pytest.approx(-np.eye(2), abs=1e-10)
    assert found.holds
    assert np.abs(found.average) == pytest.approx(PI * np.abs(turn), abs=1e-9)


def test_logarithms():
    """Random matrices of each kind, and the condition for the existence of a real logarithm."""
    draw = np.random.default_rng(7)
    for size in range(1, 6):
        x = draw.normal(size=(size, size)) / size
        phi = expm(x)
        assert expm(one_logarithm(phi)) == pytest.approx(phi, abs=1e-9)
        basis = draw.normal(size=(size, size)) + 2 * np.eye(size)
        values = np.ones(size)
        values[0] = -1.7  # alone
        alone = basis @ np.diag(values) @ np.linalg.inv(basis)
        assert one_logarithm(alone) is None
        double = two_period_logarithm(alone)
        assert expm(double) == pytest.approx(alone @ alone, abs=1e-8)
        assert double @ alone == pytest.approx(alone @ double, abs=1e-8)
        if size > 1:
            values[1] = -1.7  # in a pair
            pair = basis @ np.diag(values) @ np.linalg.inv(basis)
            assert expm(one_logarithm(pair)) == pytest.approx(pair, abs=1e-8)
    block = np.array([[-1.0, 1.0], [0.0, -1.0]])
    assert one_logarithm(block) is None
    assert expm(two_period_logarithm(block)) == pytest.approx(block @ block, abs=1e-9)
    assert one_logarithm(np.diag([-1.0, -2.0])) is None


def test_reversibility_in_any_algebra():
    """Mathieu's equation is even in t about 0; a phase moves the reversal; a generic equation has none."""
    found = reversibility(periodic_averaging(mathieu(0.5, 0.2), PI))
    assert sorted(x.shift for x in found) == pytest.approx([0.0, 0.5], abs=1e-9)
    for x in found:
        assert np.abs(x.rho) == pytest.approx(np.eye(2), abs=1e-9)
        assert np.trace(x.rho) == pytest.approx(0, abs=1e-9)
    plain = mathieu(0.5, 0.2)
    moved = periodic_averaging(lambda t: plain(t + 0.3), PI)
    (first, _) = sorted(reversibility(moved), key=lambda x: x.shift)
    assert first.shift == pytest.approx(0.5 - 0.3 / PI, abs=1e-8)
    based, there = rebase(moved, first)
    # Theorem 4.4; the phase is known to 1e-9.
    assert averaging_symmetry_defect(based, there) < 1e-7
    with pytest.raises(ValueError, match="rebase"):
        averaging_symmetry_defect(moved, first)

    def tilted(t):
        return mathieu(0.5, 0.2)(t) + 0.3 * jnp.sin(4 * t + 1) * jnp.array([[1.0, 0.5], [0.0, -1.0]])

    assert reversibility(periodic_averaging(tilted, PI)) == []


def test_involutions_among_many_solutions():
    """Two planes that turn alone: the solutions of (24) form a space, most of whose elements are no involutions."""

    def planes(t):
        a, b = 0.3 + jnp.cos(t), 0.5 + 0.2 * jnp.cos(2 * t)
        return jnp.array([[0.0, -a, 0, 0], [a, 0.0, 0, 0], [0, 0, 0.0, -b], [0, 0, b, 0.0]])

    averaged = periodic_averaging(planes, 2 * PI)
    found = reversibility(averaged)
    assert min(min(x.shift, 1 - x.shift) for x in found) < 1e-8
    for x in found:
        assert x.rho @ x.rho == pytest.approx(np.eye(4), abs=1e-5)
        based, there = rebase(averaged, x)
        assert averaging_symmetry_defect(based, there) < 1e-7


@pytest.mark.parametrize(
    ("matrix", "period", "algebra", "match"),
    [
        (so3, -1.0, None, "positive number"),
        (so3, PI, None, "does not have the period"),
        (lambda t: jnp.ones((2, 3)), 1.0, None, "square matrix"),
        (lambda t: jnp.array([[jnp.log(jnp.sin(t))]]), 2 * PI, None, "not finite"),
        (so3, 2 * PI, [[[0, 1, 0], [-1, 0, 0], [0, 0, 0]]], "outside"),
        (lambda t: "no matrix", 1.0, None, "JAX function"),
    ],
)
def test_what_is_refused(matrix, period, algebra, match):
    with pytest.raises(ValueError, match=match):
        periodic_averaging(matrix, period, algebra)
