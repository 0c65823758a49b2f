"""When the multipliers of each method count: at the row, in the middle of its step, or at the beginning of that.

The motion is that of Reference, whose multipliers are those of the exact motion at each row."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import CubicSpline

import dalembert as da
from dalembert.discrete import PointConstraint, Retraction

Z = da.zoo
END = 1.0


class Bent(da.System):
    """A particle with a curved constraint whose one-form is not of length one, and a potential."""

    coordinates = ("x", "y", "z")

    def metric(self, q):
        return jnp.diag(jnp.array([1.0, 1.3, 0.8]))

    def potential(self, q):
        return 0.5 * q[0] ** 2 + 0.3 * jnp.cos(q[1]) + 0.4 * q[2] ** 2 * q[0]

    def constraints(self, q):
        return jnp.stack([-q[1] - 0.2 * jnp.sin(q[0]), 0.1 * q[2], jnp.ones(())])[None]

    def starts(self):
        along = 0.7 * (0.6 + 0.2 * np.sin(0.5)) - 0.5 * 0.03
        return {"usual": ([0.5, 0.6, 0.3], [0.7, 0.5, along])}


class Heavy(Z.Suslov):
    """A body with a weight, so that the multipliers change along the motion."""

    def potential(self, g):
        return 0.8 * g[8] + 0.3 * g[6]


BENT, HEAVY = Bent(), Heavy()
_exact = {}


def exact(system):
    """The multipliers of the exact motion, as functions of time: a spline of order 4 in 1/400, which errs by 1e-9."""
    if system not in _exact:
        sol = da.simulate(system, da.Reference(), *system.start(), h=0.0025, steps=440)
        _exact[system] = CubicSpline(sol.t, sol.multipliers)
    return _exact[system]


def errors(system, method, h):
    """The largest error at the times that the run names, and at the times of the rows; the start apart."""
    sol = da.simulate(system, method, *system.start(), h=h, steps=round(END / h))
    lam, true = np.asarray(sol.multipliers), exact(system)
    assert sol.t_multipliers.shape == sol.t.shape
    assert sol.t_multipliers[0] == sol.t[0]
    assert np.max(np.abs(lam[0] - true(0.0))) < 1e-12 * np.max(np.abs(lam))  # the start's own: rounding
    named, rows = (np.max(np.abs(lam - true(t))[1:]) for t in (sol.t_multipliers, sol.t))
    return named, rows


# Method, where in the step, and the order to which its multipliers are right there.
CASES = [
    (BENT, da.DLA(), 0.5, 2),
    (BENT, da.DLA(0.25), 0.5, 1),  # as its states
    (BENT, da.DLA01(), 0.5, 2),
    (BENT, da.LeapFrog(), 0.0, 2),
    (BENT, da.DiscreteGradient(), 0.5, 1),  # a part of O(h) changes sign every step
    (BENT, da.FrameGradient(), 0.0, 2),
    (BENT, da.GNI(), 0.0, 2),
    (BENT, da.GNI(restart_every=7), 0.0, 2),
    (BENT, da.VariationalDLA(), 1.0, 2),
    (BENT, da.VariationalDLA(discrete_constraint=PointConstraint(0.0)), 1.0, 1),
    (BENT, da.EDLA(), 1.0, 2),
    (BENT, da.Composition(da.DLA01(), 4), 0.0, 4),
    (BENT, da.Composition(da.VariationalDLA(), 6), 0.0, 6),
    (HEAVY, da.LieGNI(), 0.0, 2),
    (HEAVY, da.VariationalDLA(Retraction("exp")), 1.0, 2),
]


@pytest.mark.parametrize(
    ("system", "method", "shift", "order"), CASES, ids=lambda x: getattr(x, "cli_name", "")
)
def test_multipliers_count_where_the_method_says(system, method, shift, order):
    steps = {6: (0.2, 0.1), 4: (0.1, 0.05)}.get(order, (0.04, 0.02))
    assert method.multiplier_shift == shift
    (coarse, coarse_rows), (fine, fine_rows) = (errors(system, method, h) for h in steps)
    # Two step sizes, so the next term of the error shows in the first decimal of the order, later with high orders.
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.15 if order < 4 else 0.6)
    if not shift:
        assert (coarse, fine) == (coarse_rows, fine_rows)
    elif order == 2:  # at the time of the row they are not: the error is of first order, and far larger
        assert np.log2(coarse_rows / fine_rows) == pytest.approx(1, abs=0.15)
        assert fine_rows > 20 * fine


def test_the_mean_of_two_rows_of_the_discrete_gradient_is_of_order_two():
    found = []
    for h in (0.04, 0.02):
        sol = da.simulate(BENT, da.DiscreteGradient(), *BENT.start(), h=h, steps=round(END / h))
        mean = 0.5 * (sol.multipliers[1:-1] + sol.multipliers[2:])
        found.append(np.max(np.abs(mean - exact(BENT)(sol.t[1:-1]))))
    assert np.log2(found[0] / found[1]) == pytest.approx(2, abs=0.15)


def test_times_with_rows_left_out_and_of_steps_that_differ():
    sol = da.simulate(BENT, da.VariationalDLA(), *BENT.start(), h=0.04, steps=10, save_every=4)
    np.testing.assert_allclose(sol.t_multipliers, [0, 0.12, 0.28, 0.36], rtol=1e-15)
    sol = da.simulate(BENT, da.EDLA(), *BENT.start(), h=0.04, steps=10)
    assert np.ptp(np.diff(sol.t)) > 1e-5
    np.testing.assert_allclose(sol.t_multipliers[1:], sol.t[:-1], rtol=1e-14)


def test_times_of_ensembles():
    q0, v0 = (np.tile(x, (2, 1)) for x in BENT.start())
    many = da.ensemble(BENT, da.DLA(), q0, v0, h=np.array([0.02, 0.04]), steps=3)
    expected = np.array([0, 0.5, 1.5, 2.5]) * np.array([[0.02], [0.04]])
    np.testing.assert_allclose(many.t_multipliers, expected, rtol=1e-14)
    np.testing.assert_allclose(many.member(1).t_multipliers, expected[1], rtol=1e-14)
