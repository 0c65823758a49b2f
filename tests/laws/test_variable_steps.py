"""What steps that keep the energy keep, and what they cannot."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import dalembert as da
from dalembert.diagnostics import energy_roots, measured_order, variable_step_laws
from dalembert.diagnostics.order import exact_ends
from dalembert.diagnostics.variable_steps import Samples, _all_zeros
from dalembert.discrete import AlphaRule, CustomConstraint, CustomLagrangian, PointConstraint, Trapezoidal

Z = da.zoo
PLANE = Z.NonholonomicParticle(lambda q: (q[0] ** 2 + q[1] ** 2) / 2)
WELL = Z.NonholonomicParticle(lambda q: q[1] ** 2 / 2)
SYSTEMS = {
    "free particle": Z.NonholonomicParticle(),
    "particle": PLANE,
    "robot": Z.MobileRobot(),
    "sleigh": Z.ChaplyginSleigh(),
    "rheonomic particle": Z.RheonomicParticle(),
    "travelling well": Z.TravellingWell(),
    "turntable": Z.BallOnTurntable(),
}
# Two springs and no constraint: the symplectic-energy-momentum integrator.
SPRINGS = da.system(
    coordinates=("x", "y"),
    metric=lambda q: jnp.diag(jnp.array([1.0, 2.0])),
    potential=lambda q: q[0] ** 2 + 0.5 * q[1] ** 2 + 0.1 * q[0] * q[1],
)


@pytest.mark.parametrize("name", SYSTEMS)
def test_laws(name):
    """E^+ constant, the momentum equation with its time component, F* Omega - Omega = d(lam' omega)."""
    system = SYSTEMS[name]
    sol = da.simulate(system, da.EDLA(), *system.start(), h=0.05, steps=60)
    laws = variable_step_laws(sol)
    natural = not (system.timed or system.affine)
    assert (laws.energy is not None) == natural
    # The bounds of the specification; 1e-15, 1e-14 and 2e-13 are measured.
    assert not natural or laws.energy < 1e-13
    assert set(laws.momentum) == set(system.sections())
    assert all(x < 5e-14 for x in laws.momentum.values())
    assert laws.symplectic < 3e-13
    assert laws.form > 1e-3  # the constraint does change the form
    assert np.max(sol.constraint_residual()) < 1e-15


def test_without_constraints_the_form_is_kept():
    """There is no lam' omega to change it: F* Omega = Omega."""
    sol = da.simulate(SPRINGS, da.EDLA(), [1.0, 0.5], [0.2, 0.7], h=0.05, steps=200)
    laws = variable_step_laws(sol)
    assert laws.symplectic < 3e-13
    assert laws.form < 3e-13


def test_a_horizontal_symmetry_of_space_and_time():
    """Going with the well is horizontal: c p_y - E^+ is kept, while neither part is."""
    system = Z.TravellingWell()
    sol = da.simulate(system, da.EDLA(), *system.start(), h=0.05, steps=400)
    p, e = sol.step_data["p_plus"][1:, 1], sol.step_data["E_plus"][1:]
    # The specification's 3e-14; 2e-14 is measured.
    assert np.ptp(system.c * p - e) < 3e-14
    assert np.ptp(p) > 0.1
    assert np.ptp(e) > 0.1


def test_the_moving_energy_of_the_turntable():
    """Time and the table's turn together are horizontal: E^+ - p . Z is kept, E^+ is not."""
    system = Z.BallOnTurntable()
    sol = da.simulate(system, da.EDLA(), *system.start(), h=0.05, steps=400)
    drift = np.zeros_like(sol.q)
    drift[:, 0], drift[:, 1] = -sol.q[:, 1], sol.q[:, 0]
    moving = sol.step_data["E_plus"] - np.sum(sol.step_data["p_plus"] * drift, axis=1)
    # Rounding of 400 steps, energies of order one.
    assert np.ptp(moving[1:]) < 1e-13
    assert np.ptp(sol.step_data["E_plus"]) > 0.5


def test_changing_coefficients_keep_the_energy():
    """A linear constraint whose coefficients change with time has omega0 = 0: the energy of L(q, v) is kept."""
    system = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda t, q: jnp.eye(3),
        potential=lambda t, q: (q[0] ** 2 + q[1] ** 2) / 2,
        constraints=lambda t, q: jnp.array([[-q[1] * (1 + 0.3 * jnp.sin(t)), 0.0, 1.0]]),
        rheonomic=True,
    )
    sol = da.simulate(system, da.EDLA(), *PLANE.start(), h=0.05, steps=1000)
    # The specification's 7e-14, although the energy is not pinned where the system depends on time.
    assert np.ptp(sol.step_data["E_plus"]) < 7e-14
    frame = da.simulate(system, da.FrameGradient(), *PLANE.start(), h=0.05, steps=1000)
    assert np.ptp(frame.energy()) < 7e-14


def test_without_constraints():
    """The symplectic-energy-momentum integrator: order 2, exact energy over many steps."""
    start = [1.0, 0.5], [0.2, 0.7]
    sol = da.simulate(SPRINGS, da.EDLA(), *start, h=0.1, steps=20_000)
    assert np.ptp(sol.step_data["E_plus"]) < 1e-12 * sol.step_data["E_plus"][0]
    assert sol.multipliers.shape == (20_001, 0)
    order = measured_order(SPRINGS, da.EDLA(), exact_ends(SPRINGS, *start, 4.0), 0.4)
    assert abs(order.q - 2) < 0.1
    assert abs(order.v - 2) < 0.1


RULES = {
    "midpoint": da.EDLA(),
    "alpha": da.EDLA(AlphaRule(0.4)),
    "own": da.EDLA(
        CustomLagrangian(lambda s, a, b, h: h * s.lagrangian((a + b) / 2, (b - a) / h), 2, True),
        CustomConstraint(lambda s, a, b, h: s.constraints((a + b) / 2) @ (b - a) / h, True),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_order(name):
    method = RULES[name]
    order = measured_order(PLANE, method, exact_ends(PLANE, *PLANE.start(), 2.0), 0.2)
    # 2.0 to 0.1, as the specification asks.
    assert abs(order.q - 2) < 0.1
    assert abs(order.v - 2) < 0.1


def ratio_of_steps(system, a, q, v):
    """(X - 2 (1-a) Y)/(X - 2 a Y) for the particle in V = (x^2 + y^2)/2, with its one-form (-y, 0, 1) and M = 1."""
    lam = np.array([da.model.acceleration(system, *map(jnp.asarray, x))[1] for x in zip(q, v, strict=True)])
    flat = np.array([1.0, 1.0, 0.0])
    reaction = lam * np.stack([-q[:, 1], 0 * q[:, 1], 1 + 0 * q[:, 1]], axis=1)
    along, kick = np.sum(reaction * flat * q, axis=1), np.sum(reaction**2, axis=1)
    x = along - np.sum((flat * q) ** 2 + (flat * v) ** 2, axis=1)
    y = along - kick
    return (x - 2 * (1 - a) * y) / (x - 2 * a * y)


def test_asymmetric_constraints_are_refused():
    """Each step would be a fixed multiple of the last one."""
    with pytest.raises(ValueError, match=r"symmetric discrete constraint, point=0\.25 is not.*whatever h is"):
        da.EDLA(discrete_constraint=PointConstraint(0.25))
    with pytest.raises(ValueError, match=r"CustomConstraint\(..., is_symmetric=True"):
        da.EDLA(discrete_constraint=lambda s, a, b, h: s.constraints(a) @ (b - a) / h)

    # What would happen, by one that says it is symmetric and is not: the steps go to zero, and the run says so.
    def lopsided(s, a, b, h):
        return s.constraints(0.6 * a + 0.4 * b) @ (b - a) / h

    class Unchecked(CustomConstraint):
        unchecked = True

    method = da.EDLA(discrete_constraint=CustomConstraint(lopsided, True))
    with pytest.raises(ValueError, match="is said to be symmetric, but"):
        da.simulate(PLANE, method, *PLANE.start(), h=0.01, steps=1)
    wrong = Unchecked(lopsided, True)
    ends = []
    for h in (0.02, 0.01):
        sol = da.simulate(
            PLANE, da.EDLA(discrete_constraint=wrong), *PLANE.start(), h=h, steps=3000, throw=False
        )
        assert sol.status in (da.Status.STEP_LOST, da.Status.NONPOSITIVE_H)
        ends.append(sol.t[-1])
        # The ratio of neighbouring steps as h goes to zero, from the momentum and energy balances where they meet.
        ratio = sol.step_data["h"][3:6] / sol.step_data["h"][2:5]
        expected = ratio_of_steps(PLANE, 0.4, sol.q[2:5], sol.v[2:5])
        assert np.min(np.abs(expected - 1)) > 5e-3
        # Steps change by O(h) beside it: 0.04 h to 0.07 h are measured.
        assert np.max(np.abs(ratio - expected)) < 0.2 * h
    assert abs(ends[1] - ends[0]) < 0.5  # the finer run comes no further


LEFT = da.EDLA(lambda s, a, b, h: h * s.lagrangian(a, (b - a) / h))


def test_asymmetric_lagrangians_converge():
    """L_d = h L(q0, u): energy and constraint to rounding, order 1, and h goes as |dV/dt|^(-1/2) along the motion."""
    errors = []
    for h in (0.02, 0.01, 0.005):
        sol = da.simulate(PLANE, LEFT, *PLANE.start(), h=h, steps=round(0.5 / h))
        assert np.ptp(sol.step_data["E_plus"][1:]) < 1e-13  # rounding of 100 steps
        assert np.max(sol.constraint_residual()) < 1e-15
        exact = da.simulate(PLANE, da.Reference(), *PLANE.start(), h=float(sol.t[-1]), steps=1)
        errors.append(np.max(np.abs(sol.q[-1] - exact.q[-1])))
        sizes = sol.step_data["h"][1:]
    assert LEFT.claims(PLANE).order == 1
    # Quotients of errors for halved steps, whose ends differ by a step; first order is 2.
    assert [errors[0] / errors[1], errors[1] / errors[2]] == pytest.approx([2, 2], rel=0.15)
    power = np.abs(np.sum(sol.q[:-1, :2] * sol.v[:-1, :2], axis=1))
    predicted = np.sqrt(power[0] / power)
    assert predicted[-1] > 1.25
    # To O(h): 0.005 times constants of order one; it is the law and not equal steps.
    assert np.max(np.abs(sizes / sizes[0] / predicted - 1)) < 0.05


def test_where_asymmetric_lagrangians_end():
    """At the zero of F = -dV/dt, which edla_well_posedness finds; the finer the steps, the closer."""
    posed = da.edla_well_posedness(PLANE, *PLANE.start(), method=LEFT, ahead=3.0)
    q, v = (np.asarray(x) for x in PLANE.start())
    # A sixth-order difference over 0.03 of the time in which the motion changes.
    assert pytest.approx(-(q[0] * v[0] + q[1] * v[1]), rel=1e-7) == posed.G
    assert len(posed.zeros) == 2
    assert posed.zeros[0] == posed.zero
    exact = da.simulate(PLANE, da.Reference(), q, v, h=posed.zero, steps=1)
    assert abs(np.sum(exact.q[-1, :2] * exact.v[-1, :2])) < 1e-6  # the zoom's line between two samples
    ends = []
    for h in (0.02, 0.005):
        sol = da.simulate(PLANE, LEFT, q, v, h=h, steps=400, throw=False)
        assert sol.status is da.Status.NO_ROOT
        assert "F = " in LEFT.hint(sol)
        ends.append(posed.zero - sol.t[-1])
    assert 0 < ends[1] < ends[0] < 0.1


def test_all_steps_that_keep_the_energy():
    """Before the zero of G there are two: the next step, and a longer one that comes to meet it. Then there is none."""
    sol = da.simulate(WELL, da.EDLA(), *WELL.start(), h=0.05, steps=300, throw=False)
    assert sol.status is da.Status.NO_ROOT
    last, h = int(sol.steps), sol.step_data["h"]
    for row in (last - 2, last - 1):
        found = energy_roots(sol, row)
        assert found.interval == (h[row] / 10, h[row] * 10)
        assert found.ratio == pytest.approx(100 ** (1 / 399))
        assert len(found.h) == 2
        assert len(found.touching) == 0
        # The run took the first; both are known to eps E/(h S), here up to 1e-11.
        assert found.h[0] == pytest.approx(h[row + 1], rel=1e-10)
        assert found.nearest == found.h[0]
        assert found.h[1] > 2 * found.h[0]
    ended = energy_roots(sol)
    assert len(ended.h) == len(ended.touching) == 0
    assert 1e-8 < ended.residual < 1e-3  # what a continued step would miss
    assert "none; searched from" in str(ended)
    # It is the step that the continuation takes, by a search of its own; a sample is off by half a ratio of 1.16 %.
    jumped = da.simulate(WELL, da.EDLA(continuation=True), *WELL.start(), h=0.05, steps=last + 1)
    assert jumped.step_data["h"][-1] == pytest.approx(ended.nearest, rel=0.01)
    # A coarser search says how coarse it was, and finds the same two.
    again = energy_roots(sol, last - 1, points=60)
    for arguments, words in (((0,), "at least 1"), ((10**6,), "one of the"), ((1.5,), "one of the")):
        with pytest.raises(ValueError, match=words):
            energy_roots(sol, *arguments)
    with pytest.raises(ValueError, match="needs a run by EDLA"):
        energy_roots(da.simulate(WELL, da.FrameGradient(), *WELL.start(), h=0.05, steps=2))
    assert again.ratio > 1.08
    np.testing.assert_allclose(again.h, found.h, rtol=1e-9)


def test_all_zeros_of_the_indicator():
    posed = da.edla_well_posedness(WELL, *WELL.start(), ahead=8.0, h=0.05)
    assert len(posed.zeros) == 4
    assert posed.zero == posed.zeros[0]
    # y goes as cos t about the x axis: y'' = -y, so 8 G = |R|^2 - y^2 - y'^2 vanishes where |R|^2 = 0.61, with
    # R^2 = (x' y')^2/(1 + y^2) and x' = x0' sqrt((1 + y0^2)/(1 + y^2)), the momentum equation of the symmetry.
    (_, y0, _), (u0, w0, _) = (np.asarray(x) for x in WELL.start())

    def indicator(t):
        y, w = y0 * np.cos(t) + w0 * np.sin(t), w0 * np.cos(t) - y0 * np.sin(t)
        return (u0**2 * (1 + y0**2) * w**2 / (1 + y**2) ** 2 - y**2 - w**2) / 8

    t = np.linspace(0, 8, 4001)
    g = indicator(t)
    turns = [brentq(indicator, t[i], t[i + 1], xtol=1e-13) for i in np.flatnonzero(g[1:] * g[:-1] < 0)]
    # Two refinements by 400 samples each, and a line: 8/400^3 times the curvature; differences of G to 1e-8.
    np.testing.assert_allclose(posed.zeros, turns, atol=1e-6)
    np.testing.assert_allclose(posed.along, indicator(posed.t), atol=1e-7)
    assert posed.roots.h == pytest.approx([0.05], rel=1e-10)


def test_zeros_without_a_change_of_sign_and_pairs_between_samples():
    """What a search for changes of sign alone would miss: a double zero is touched, and two near zeros are found."""

    def searched(function, n=40):
        sample = lambda _, a, b: Samples(np.linspace(a, b, n), function(np.linspace(a, b, n)), [None] * n)
        return _all_zeros(sample, sample(None, 0.0, 1.0), 6, 1e-9)

    double = lambda x: (x - 0.4321) ** 2 * (1 + x)
    zeros, touching = searched(double)
    assert len(zeros) == 0
    assert touching == pytest.approx([0.4321], abs=1e-4)
    pair = lambda x: (x - 0.4321) * (x - 0.4322) * (x - 0.9)
    zeros, touching = searched(pair)
    assert zeros == pytest.approx([0.4321, 0.4322, 0.9], abs=1e-9)
    assert len(touching) == 0
    above = lambda x: (x - 0.4321) ** 2 + 1e-6
    zeros, touching = searched(above)
    assert len(zeros) == len(touching) == 0
    # Nothing is said across places where there is no value.
    hole = lambda x: np.where(np.abs(x - 0.5) < 0.1, np.nan, x - 0.5)
    assert len(searched(hole)[0]) == 0


def test_time_dependent_order():
    """Order 2 where the constraint is affine and depends on time, by every method that takes it."""
    system = Z.RheonomicParticle()
    exact = exact_ends(system, *system.start(), 2.0)
    methods = (da.EDLA(), da.FrameGradient(), da.VariationalDLA(), da.GNI(), da.VariationalDLA(Trapezoidal()))
    for method in methods:
        order = measured_order(system, method, exact, 0.2)
        assert abs(order.q - 2) < 0.1, method.cli_name
        assert abs(order.v - 2) < 0.1, method.cli_name


def test_pinned_energies_do_not_wander():
    """Asked for the last energy each time, errors add up like a random walk; pinned they do not."""
    spread = {}
    for pin in (True, False):
        sol = da.simulate(PLANE, da.EDLA(pin=pin), *PLANE.start(), h=0.05, steps=20_000, save_every=10)
        spread[pin] = np.ptp(sol.step_data["E_plus"]) / sol.step_data["E_plus"][0]
    # A few roundings against those of 2e4 steps; both within the specification's 1e-10.
    assert spread[True] < 1e-14
    assert 3 * spread[True] < spread[False] < 1e-10


@pytest.mark.parametrize("h", [0.05, 0.0125])
def test_continuation(h):
    """It crosses the zero of G with steps that miss the energy a little, says so, and never without being asked."""
    with pytest.raises(da.SimulationError, match="no step size keeps the energy") as failed:
        da.simulate(WELL, da.EDLA(), *WELL.start(), h=h, steps=300)
    steps = len(failed.value.trajectory.t) - 1
    assert "G = " in str(failed.value)
    assert "S = " in str(failed.value)
    sol = da.simulate(WELL, da.EDLA(continuation=True), *WELL.start(), h=h, steps=steps + 20)
    assert sol.status is da.Status.OK
    continued = sol.step_data["continued"]
    assert continued[steps] == 0
    assert continued[steps + 1] == 1
    assert np.array_equal(sol.t[: steps + 1], failed.value.trajectory.t)
    energy = sol.step_data["E_plus"]
    assert np.ptp(energy[: steps + 1]) < 1e-12
    # The specification has jumps of 1e-5 to 4e-4 at coarser steps; they shrink with h. Rounding would be 1e-15.
    jump = abs(energy[steps + 1] - energy[steps]) / energy[0]
    assert 1e-8 < jump < 4e-4
    with pytest.raises(ValueError, match="miss the energy"):
        variable_step_laws(sol)


def test_no_invented_step():
    """The last good row of a failed run is what a shorter run ends with, and its step was a true root."""
    sol = da.simulate(WELL, da.EDLA(), *WELL.start(), h=0.0125, steps=300, throw=False)
    assert sol.status is da.Status.NO_ROOT
    again = da.simulate(WELL, da.EDLA(), *WELL.start(), h=0.0125, steps=int(sol.steps))
    assert again.status is da.Status.OK
    assert np.array_equal(again.q, sol.q)
    assert np.ptp(sol.step_data["E_plus"]) < 1e-13


def test_some_step_sizes_step_over():
    """The zero of G is not a wall: V = z at h = 0.00625 steps over it with true roots, and goes on."""
    system = Z.NonholonomicParticle(lambda q: q[2])
    sol = da.simulate(system, da.EDLA(), *system.start(), h=0.00625, steps=400, throw=False)
    zero = da.edla_well_posedness(system, *system.start(), ahead=1.0).zero
    assert sol.t[-1] > 2 * zero
    assert np.ptp(sol.step_data["E_plus"]) < 1e-12


def test_from_rest():
    """A start without velocity: the first step falls, and the energy is kept from there on."""
    sol = da.simulate(SPRINGS, da.EDLA(), [1.0, 0.5], [0.0, 0.0], h=0.1, steps=200)
    assert np.ptp(sol.step_data["E_plus"]) < 1e-13
    assert np.max(np.abs(sol.v)) > 0.5
