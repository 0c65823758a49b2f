"""What steps that keep the energy keep, and what they cannot."""

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.diagnostics import measured_order, variable_step_laws
from dalembert.diagnostics.order import exact_ends
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


def test_asymmetric_rules_are_refused():
    """Their energies change with h itself, so that each step is a fixed multiple of the last one."""
    with pytest.raises(ValueError, match=r"symmetric rules, point=0\.25 is not"):
        da.EDLA(discrete_constraint=PointConstraint(0.25))
    with pytest.raises(ValueError, match=r"CustomLagrangian\(..., is_symmetric=True"):
        da.EDLA(lambda s, a, b, h: h * s.lagrangian(a, (b - a) / h))

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
    assert abs(ends[1] - ends[0]) < 0.5  # the finer run comes no further


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
