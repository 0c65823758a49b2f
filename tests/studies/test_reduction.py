"""Reduction by symmetry: the claims of the study, on the numbers of its quick form.

Closed forms are checked here by other means: integrals by SciPy, rotations by an equation solved numerically.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq
from scipy.special import j1

from dalembert.lab.studies import reduction
from dalembert.lab.studies.reduction import (
    BALL,
    CART,
    DISK,
    ENERGY,
    POINTS,
    RADII,
    SIZES,
    TURN,
    angles,
    ball_angle,
    ball_loop,
    cart_loop,
    disk_loop,
    forces_at,
    hat,
    phase,
    problems,
    rectangle,
    turned,
)
from dalembert.lab.studies.result import Result
from dalembert.lab.studies.shared_runs import Lab
from dalembert.zoo import RollingDisk

QUICK = Lab(quick=True)


@pytest.fixture(scope="module")
def study(outcome):
    return outcome.results["reduction"].data


def test_reduced_runs_are_the_full_ones(study):
    """Positions, velocities and times: to rounding, which the steps of EDLA make larger by 1/h^2."""
    assert [x.problem.name for x in study.runs.compared] == [x.name for x in problems(quick=True)]
    for x in study.runs.compared:
        # 1e-13 and 3e-12 measured.
        bound = 1e-10 if x.problem.method is ENERGY else 1e-11
        assert x.bound == bound
        assert x.projected < bound, x.problem.name
        assert x.rebuilt < bound, x.problem.name
        # And there is something to compare: the group moves too.
        moved = np.ptp(x.full, axis=0)
        assert np.sum(moved > 0.1) > len(x.reduced.coordinates), x.problem.name


def test_kinds(study):
    """All examples and non-examples: the kinds are those of the theory."""
    found = {(x.name, x.group): x.found for x in study.runs.kinds}
    # By what is said of them: D and V share a direction, or D changes with the coordinate.
    wanted = {
        ("mobile robot", "R^2 on (x1, x2)"): "Chaplygin",
        ("rolling disk", "R^2 on (x1, x2)"): "Chaplygin",
        ("two-wheeled robot", "SE(2) on (x, y, theta)"): "Chaplygin",
        ("particle", "R^1 on (z)"): "Chaplygin",
        ("knife edge", "R^1 on (x2)"): "Chaplygin, locally",
        ("sleigh", "R^1 on (y)"): "Chaplygin, locally",
        ("snakeboard", "S^1 on (psi)"): "horizontal",
        ("particle with wheel", "R^1 on (s)"): "horizontal",
        ("knife edge", "R^2 on (x1, x2)"): "neither",
        ("rolling disk", "R^2 x S^1 on (x1, x2, x3)"): "neither",
        ("sleigh", "SE(2) on (x, y, theta)"): "neither",
        ("free particle", "R^2 on (x, z)"): "neither",
        ("rolling disk", "S^1 on (xi)"): "neither",
        ("free particle", "R^1 on (y)"): "neither",
    }
    for key, kind in wanted.items():
        assert found.pop(key) == kind, key
    assert list(found.values()) == ["Chaplygin"]  # the rubber ball
    for x in study.runs.kinds:
        assert x.found == x.expected
        # D is invariant but for the two whose coordinate it depends on; these share a direction with it all the same.
        assert x.invariant == (x.group not in ("S^1 on (xi)", "R^1 on (y)") or x.name == "sleigh")
        assert (x.shared == 0) == x.found.startswith("Chaplygin")


def test_the_disk_of_the_study_is_the_rolling_disk():
    """The robot without its potential: the same functions."""
    disk, draw = RollingDisk(), np.random.default_rng(1)
    for q in draw.uniform(-3, 3, (5, 4)):
        for name in ("metric", "constraints", "potential"):
            assert np.array_equal(getattr(disk, name)(jnp.asarray(q)), getattr(DISK, name)(jnp.asarray(q)))


def test_discrete_forces(study):
    """beta0 + beta1 = 0 on the disk, and not on the particle."""
    disk, particle = study.runs.forces
    assert disk.size > 1
    assert disk.sum < 1e-14 * disk.size  # rounding: 4e-16 measured
    assert particle.sum > particle.size  # beta0 = beta1 there, so that twice is measured


def test_discrete_forces_by_hand(study):
    """beta0 = d_f ell (A(r0) - dF/dr0), beta1 = -d_f ell (A(r1) + dF/dr1), with ell = f^2/(2 h) + ..."""
    draw = np.random.default_rng(2)
    r0, r1, h = *draw.uniform(-1, 1, (2, 20, 2)), draw.uniform(0.1, 0.3, 20)
    (x0, y0), (x1, y1) = r0.T, r1.T
    # Disk: F = -dx3 (cos, sin) of the mean heading, A(r) = ((cos, sin) of xi, 0).
    before = np.stack([(x1 - x0) / h * (1 - np.cos(0.5 * (y1 - y0))), 0 * h], axis=1)
    found = forces_at(study.runs.disk, r0, r1, h)
    assert np.allclose(found, [before, -before], rtol=0, atol=1e-13)  # numbers up to 10, a few operations
    # Particle: F = ybar dx, A(r) = (-y, 0).
    middle, way = 0.5 * (y0 + y1), x1 - x0
    slope = middle * way / h
    by_hand = [np.stack([slope * x, -0.5 * slope * way], axis=1) for x in (middle - y0, y1 - middle)]
    found = forces_at(study.runs.of("particle, REDLA").reduced, r0, r1, h)
    assert np.allclose(found, by_hand, rtol=0, atol=1e-13)


def test_the_disk_rolls_straight_in_its_shapes(study):
    """Forces of even steps along a line cancel, and are there."""
    r = np.array([[0.2, -0.5], [0.5, 0.1], [0.8, 0.7]])
    before, after = forces_at(study.runs.disk, r[:-1], r[1:], np.full(2, 0.1))
    assert np.max(np.abs(before)) > 0.1
    assert np.max(np.abs(before[1] + after[0])) < 1e-13  # numbers of order one over h


def test_the_disk_by_integrals(study):
    """x1 = -integral of cos(xi) dx3 and x2 = -integral of sin(xi) dx3 around the loop are what is called exact."""
    a, b = 0.7, 1.9
    loop = disk_loop(study.runs.disk, a, b)
    for i, f in enumerate((np.cos, np.sin)):
        integral = quad(lambda s, f=f: -f(b * np.sin(s)) * -a * np.sin(s), 0, 2 * np.pi, epsabs=1e-12)[0]
        assert loop.exact[i] == pytest.approx(integral, abs=1e-11)  # ten times what is asked of the integral


def test_the_cart_by_integrals(study):
    """Its own constraint, summed up: the heading is R (psi2 - psi1)/(2 c)."""
    loop, (r, c) = cart_loop(study.runs.of("two-wheeled robot").reduced, 1.5), (CART.radius, CART.track)

    def at(s):
        first, second = loop.path(np.array([s]))[0]
        rate = 1.5 * (np.cos(s + np.pi / 4) - np.sin(s + np.pi / 4))  # of psi1 + psi2
        return r / (2 * c) * (second - first), 0.5 * r * rate

    for i, f in enumerate((np.cos, np.sin)):
        integral = quad(lambda s, f=f: f(at(s)[0]) * at(s)[1], 0, 2 * np.pi, epsabs=1e-12)[0]
        assert loop.exact[i] == pytest.approx(integral, abs=1e-11)  # ten times what is asked of the integral


def test_the_ball_by_its_equation(study):
    """P' = P w^ with w = (x2', -x1', 0)/R along a circle, solved numerically."""
    ratio = 0.9
    loop = ball_loop(study.runs.of("rubber ball").reduced, ratio)

    def rate(s, p):
        return (p.reshape(3, 3) @ hat((ratio * np.cos(s), ratio * np.sin(s), 0.0))).ravel()

    end = solve_ivp(rate, (0, 2 * np.pi), np.eye(3).ravel(), rtol=1e-11, atol=1e-12).y[:, -1]
    assert np.allclose(loop.exact, end, rtol=0, atol=1e-9)  # the tolerances add up over some 100 steps
    assert turned(loop.exact) == pytest.approx(float(ball_angle(np.array(ratio))), abs=1e-12)


def test_phases_converge_with_order_two(study):
    assert [x.name for x in study.phases.loops] == [
        "rolling disk, ellipse",
        "two-wheeled robot, circle",
        "rubber ball, circle",
    ]
    for x in study.phases.loops:
        # Series in 1/n^2, whose second term changes the order from 16 and 32 points by 0.01.
        assert np.allclose(x.orders, 2, rtol=0, atol=0.05), x.name
        assert x.orders[-1] == pytest.approx(2, abs=0.003)
        assert x.errors[-1] < 2e-3 * np.linalg.norm(x.exact)  # (pi/128)^2 is 6e-4
        assert x.rounding < 1e-13  # sums of up to 128 numbers of order one: 6e-15 measured
    assert POINTS[-1] == 128


def test_corners(study):
    """A rectangle has no error at all: x1 = -a (1 - cos b), x2 = a sin b, with few points as with many."""
    assert study.phases.corner[1] < 1e-14  # 40 steps, 2e-16 measured
    few = phase(study.runs.disk, rectangle(1.1, 0.9, 1))
    assert np.allclose(few, study.phases.corner[0], rtol=0, atol=1e-14)


def test_the_way_back_undoes_a_loop(study):
    """The phase of the reversed loop is the inverse: the methods are symmetric."""
    path = cart_loop(study.runs.of("two-wheeled robot").reduced, 1.2).path(angles(40) + 0.3)
    reduced = study.runs.of("two-wheeled robot").reduced
    there, back = phase(reduced, path), phase(reduced, path[::-1])
    group = reduced.symmetry.group
    both = np.asarray(group.multiply(jnp.asarray(there), jnp.asarray(back)))
    assert np.linalg.norm(there) > 0.1
    assert np.allclose(both, group.identity(), rtol=0, atol=1e-13)  # 80 steps of rounding


def test_laws_of_sizes(study):
    """256 steps: the shift of disk and cart over 2 pi a is J1, that of the ball the closed form, to O(1/n^2)."""
    error = (np.pi / 256) ** 2  # 1.5e-4, times a factor of order one
    assert np.allclose(study.phases.disk, j1(SIZES), rtol=0, atol=error)
    # The same two sums, of 256 terms each.
    assert np.allclose(study.phases.cart, study.phases.disk, rtol=0, atol=1e-13)
    # The angle grows with rho: 4 of these at most.
    assert np.allclose(study.phases.ball, ball_angle(RADII), rtol=0, atol=5 * error)
    assert brentq(j1, 3, 5) == pytest.approx(3.83, abs=0.005), "as the words say"
    assert SIZES[np.argmax(study.phases.disk)] == pytest.approx(
        1.84, abs=0.125
    )  # half of what lies between sizes
    assert float(ball_angle(np.sqrt(3.0))) < 1e-12
    for path, size in zip(study.phases.paths, (0.8, 1.4, 2.0), strict=True):
        exact = cart_loop(study.runs.of("two-wheeled robot").reduced, size).exact
        assert np.allclose(path[0], 0)
        assert np.allclose(path[-1], exact, rtol=0, atol=5 * (np.pi / 64) ** 2)  # 64 points


def test_the_ball_goes_round_by_itself(study):
    """The contact closes its ellipse, the ball does not, and is turned by the phase of the ellipse."""
    turns, run = study.phases.turns, study.runs.turns
    # Rounding of 300 steps: 3e-15, 2e-15 and 3e-14 measured.
    assert max(turns.open, turns.found, turns.again) < 1e-12
    assert len(run.t) == 4 * TURN + 1
    assert turns.angle > 1  # far from closed
    # The exact ellipse, finely: its phase is that of 75 points to O(1/75^2).
    q0, v0 = run.problem.start()
    omega = np.sqrt(BALL.stiffness / (BALL.mass + BALL.moment / BALL.radius**2))
    s = angles(256)
    ellipse = np.outer(np.cos(s), q0[-2:]) + np.outer(np.sin(s), v0[-2:] / omega)
    smooth = phase(run.reduced, ellipse).reshape(3, 3)
    assert np.allclose(run.full[TURN, :9].reshape(3, 3), smooth, rtol=0, atol=5 * (np.pi / 75) ** 2)


def test_the_rotor(study):
    """In space it turns evenly: psi + theta is linear in time."""
    assert study.rotor < 1e-12  # 300 steps, angles up to 20: 1e-13 measured


def test_what_is_told(study):
    result = reduction.present(QUICK, study)
    assert isinstance(result, Result)
    assert [len(t.rows) for t in result.tables] == [6, 15, 3, 7]
    tones = {cell.tone for table in result.tables for row in table.rows for cell in row}
    assert tones == {"", "exact", "good"}, "nothing drifts or differs"
    words = " ".join((*result.said, *result.found))
    assert "nan" not in words
    assert "15 of 15 pairs of a system and a group" in words
    assert [p.stem for p in result.pictures] == ["reduction", "reduction-phases"]
    assert reduction.most(study, own=True)[1] < 1e-10
