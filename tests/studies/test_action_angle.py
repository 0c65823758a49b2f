"""Action-angle variables of coupled systems: closed forms, the flow, the reversal, and what has none."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from equations import coupled as second
from scipy.special import ellipe, ellipk
from systems import make

import dalembert as da
from dalembert.diagnostics import (
    CoupledSystem,
    action_angle,
    nondegeneracy,
    reversible_integrability,
    section,
)
from dalembert.diagnostics.actions_and_angles import _made
from dalembert.diagnostics.frequency_map import _judged


@cache
def parts(name):
    """The coupled system of a problem and its start."""
    system, q0, v0, _ = make(name)
    return CoupledSystem.of(system, q0), q0, v0


@cache
def variables(name):
    coupled, q0, v0 = parts(name)
    return action_angle(coupled, *section(coupled, q0, v0))


# Orbits are accurate to 1e-11 by construction; the closed forms are SciPy's.
def test_closed_forms_of_drivers():
    """A harmonic oscillator, a pendulum that swings, one that rotates, and a driver without a force."""
    found = variables("harmonic")
    energy = found.energy
    assert found.period == pytest.approx(2 * np.pi, abs=1e-11)
    assert found.driver_action == pytest.approx(2 * np.pi * energy, rel=1e-11)

    found = variables("cvt-osc-0")
    m = found.energy / 2
    assert found.period == pytest.approx(4 * ellipk(m), abs=1e-10)
    assert found.driver_action == pytest.approx(16 * (ellipe(m) - (1 - m) * ellipk(m)), rel=1e-11)
    assert found.winding == 0

    found = variables("cvt-rot-0")
    m = 2 / found.energy
    assert found.period == pytest.approx(2 * np.sqrt(m) * ellipk(m), abs=1e-10)
    assert found.driver_action == pytest.approx(4 * np.sqrt(2 * found.energy) * ellipe(m), rel=1e-11)
    assert found.winding == 1

    found = variables("knife-0")
    assert found.names == ("driver", "latitude 1")
    assert found.frequencies == pytest.approx([1 / (2 * np.pi)], rel=1e-11)


def test_the_frequency_of_the_particle():
    """The integral of 1/sqrt(1 + xi^2) over a period of the harmonic driver is an elliptic integral."""
    found = variables("particle")
    energy = found.energy
    alpha = 4 / np.sqrt(1 + 2 * energy) * ellipk(2 * energy / (1 + 2 * energy))
    turns = found.frequencies[1] * found.period
    # Angles are known up to whole turns, and up to the sense in which the plane is looked at.
    miss = [abs((s * turns - alpha / (2 * np.pi) + 0.5) % 1 - 0.5) for s in (1, -1)]
    assert min(miss) < 1e-11


@pytest.mark.parametrize("name", ["harmonic", "cvt-osc-0.5", "cvt-rot-0.5", "knife-0"])
def test_the_flow(name):
    """Along the exact motion the actions are constant, and the angles advance by omega t on the real line."""
    coupled, q0, v0 = parts(name)
    found = variables(name)
    sol = da.simulate(coupled.system, da.Reference(), q0, v0, h=0.4, steps=60)
    actions, angles = found.actions(sol.q, sol.v), found.angles(sol.q, sol.v)
    # The reference is accurate to 1e-12, an orbit to 1e-11; angles lose what 60 rows add up to.
    assert np.max(np.ptp(actions, axis=0)) < 1e-10
    lifted = np.unwrap(angles, period=1, axis=0)
    assert np.all(np.abs(found.frequencies * 0.4) < 0.5)
    assert np.ptp(lifted, axis=0) == pytest.approx(np.abs(found.frequencies) * 24, abs=1e-9)
    assert lifted - lifted[0] == pytest.approx(np.outer(sol.t, found.frequencies), abs=1e-10)
    # One state gives what a row gives.
    assert found.actions(sol.q[7], sol.v[7]) == pytest.approx(actions[7], abs=1e-13)
    assert found.angles(sol.q[7], sol.v[7]) == pytest.approx(angles[7], abs=1e-13)


def test_another_method_changes_the_actions():
    """The same functions along a run of DLA(0.5), whose driver leaves its orbit: nothing is constant."""
    coupled, q0, v0 = parts("cvt-rot-0.5")
    sol = da.simulate(coupled.system, da.DLA(0.5), q0, v0, h=0.1, steps=20)
    actions = variables("cvt-rot-0.5").actions(sol.q[::10], sol.v[::10])
    assert np.all(np.ptp(actions, axis=0) > 1e-6)


@pytest.mark.parametrize("name", ["harmonic", "cvt-osc-0.5", "cvt-rot-0.5"])
def test_the_actions_of_the_passenger(name):
    """The latitude is the one of a second road, and the energy is the plane's action plus half its square."""
    coupled, q0, v0 = parts(name)
    _, plane, height = variables(name).actions(q0, v0)
    other = second.problem(name.removeprefix("cvt-"))
    # Its sign is that of the axis, which either of both directions may have.
    assert abs(height) == pytest.approx(abs(second.latitude_start(other)), abs=1e-9)
    energy = float(coupled.passenger_energy(jnp.asarray(q0), jnp.asarray(v0)))
    assert plane + height**2 / 2 == pytest.approx(energy, rel=1e-12)


def test_other_orbits_of_the_family():
    """dJ/dh is the period; going to another energy and back gives the same angles."""
    found = variables("cvt-osc-0.5")
    energy, delta = found.energy, 1e-3
    up, down = found.at_energy(energy + delta), found.at_energy(energy - delta)
    # The error of the difference is delta^2 J''' / 6.
    assert (up.driver_action - down.driver_action) / (2 * delta) == pytest.approx(found.period, rel=1e-5)
    back = up.at_energy(energy)
    _, q0, v0 = parts("cvt-osc-0.5")
    assert back.angles(q0, v0) == pytest.approx(found.angles(q0, v0), abs=1e-8)
    assert up.angles(q0, v0) == pytest.approx(found.angles(q0, v0), abs=1e-8)
    # The frequencies are continuous: no branch changes.
    assert up.frequencies == pytest.approx(found.frequencies, rel=0.05)


def test_condition_one():
    """phi o R = (I, -theta) where there is a reversal; about no phase for the perturbed rotating driver."""
    for name in ("harmonic", "cvt-osc-0.5", "cvt-rot-0", "knife-0", "robot"):
        assert variables(name).reversal_defect() < 1e-9, name
    assert variables("cvt-rot-0.5").involution is None
    assert variables("cvt-rot-0.5").reversal_defect() == np.inf
    # A map that is no reversal is found out.
    found = variables("cvt-rot-0.5")
    wrong = variables("cvt-osc-0.5").involution
    assert _made(found.averaged, wrong).reversal_defect() > 1e-2


def test_what_has_no_angles():
    knife = da.zoo.KnifeEdge(eps=0.1)
    with pytest.raises(ValueError, match="not bounded"):
        action_angle(knife, 0.0, 1.0)
    with pytest.raises(ValueError, match="rests at"):
        action_angle(parts("cvt-osc-0")[0], 0.0, 0.0)
    found = variables("cvt-osc-0")
    with pytest.raises(ValueError, match="no orbit"):
        found.at_energy(-1.0)
    with pytest.raises(ValueError, match=r"continued|not periodic|no orbit"):
        found.at_energy(2.5)  # beyond the separatrix
    with pytest.raises(ValueError, match="rows of q and v of length 3"):
        found.actions([0.0, 0.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="not finite"):
        found.actions([0.0, 0.0, np.nan], [0.0, 0.0, 1.0])
    with pytest.raises(ValueError, match=r"expected a dalembert\.System"):
        reversible_integrability("x", (0.0, 1.0), (0.0, 2.0))


def of_squares(rate):
    """A passenger y on a harmonic driver, with y' = k0 v and k0 = rate(xi)."""
    return CoupledSystem.build(
        potential=lambda xi: 0.5 * xi**2,
        constraint=lambda xi: jnp.array([[rate(xi), -jnp.sqrt(1 - rate(xi) ** 2)]]),
        kappa=[[0.0, 1.0]],
    )


def test_nondegeneracy_has_a_closed_form():
    """k0 = 0.5 + 0.2 xi^2 - 0.05 xi^4 turns y by 2 pi (0.5 + 0.2 h - 0.075 h^2), so W vanishes at h = 4/3."""
    found = nondegeneracy(of_squares(lambda xi: 0.5 + 0.2 * xi**2 - 0.05 * xi**4), (0.0, 1.0), (0.0, 2.0))
    h = found.energies
    expected = (0.2 - 0.15 * h) / (8 * np.pi**3)
    sign = np.sign(found.determinants[0] * expected[0])
    assert np.all(np.abs(sign * found.determinants - expected) <= found.errors)
    assert np.max(found.errors) < 1e-6 * np.max(np.abs(expected))
    assert found.degenerate == pytest.approx([4 / 3], abs=1e-6)
    assert found.holds
    assert "degenerate at the driver energy 1.33333" in found.verdict
    assert found.actions == pytest.approx(2 * np.pi * h, rel=1e-10)


def test_a_degenerate_frequency_map():
    """A constant k0: both frequencies are the same for all orbits, and their image is one point."""
    found = nondegeneracy(of_squares(lambda xi: 0.6 + 0 * xi), (0.0, 1.0), (0.0, 2.0))
    assert found.verdict == "degenerate on the region"
    assert found.holds is False
    assert found.subspace < 1e-11  # frequencies are known to 1e-11
    told = reversible_integrability(of_squares(lambda xi: 0.6 + 0 * xi), (0.0, 1.0), (0.0, 2.0))
    assert told.holds is False
    assert "degenerate" in told.conclusion


def test_large_errors_decide_nothing():
    energies, values = np.linspace(1, 2, 5), np.array([1.0, 0.5, 0.1, -0.2, -1.0])
    assert _judged(energies, values, np.full(5, 2.0), 1.0)[:2] == ("undecided", None)
    verdict, holds, zeros = _judged(energies, values, np.full(5, 0.1), 1.0)
    assert holds
    assert zeros == pytest.approx([1.25 + 0.5 / 1.5 * 0.75])
    verdict, holds, zeros = _judged(energies, np.abs(values), np.full(5, 0.1), 1.0)
    assert holds
    assert "undecided at driver energies from 1.5 to 1.75" in verdict


@pytest.mark.parametrize(
    ("first", "last", "match"),
    [
        ((0.0, 1.5), (0.0, 2.5), "different families"),
        ((0.0, 1.5), (0.0, -1.5), "the same energy"),
        ((0.0, 1.5), (0.0, 2.0), "not periodic"),
        ((0.0,), (0.0, 1.0), "a pair"),
        (1.5, (0.0, 1.0), "a pair"),
        ((0.0, 1.5), (np.nan, 1.0), "finite numbers"),
    ],
)
def test_regions_that_are_none(first, last, match):
    with pytest.raises(ValueError, match=match):
        nondegeneracy(parts("cvt-osc-0")[0], first, last)
    if (
        "periodic" not in match and "energy" not in match
    ):  # those are among the hypotheses, or end before the check
        with pytest.raises(ValueError, match=match):
            reversible_integrability(parts("cvt-osc-0")[0], first, last)


LOW, HIGH, WELL = ((0.0, 0.8), (0.0, 1.4)), ((0.0, 2.6), (0.0, 3.4)), ((-np.pi / 2, 0.5), (-np.pi / 2, 0.9))
# The problem, the region, the verdict, the needed hypotheses that fail, and the number of angles.
ZOO = [
    ("harmonic", LOW, True, [], 2),
    ("cvt-osc-0", LOW, True, [], 2),
    ("cvt-osc-0.5", LOW, True, [], 2),
    ("cvt-rot-0", HIGH, True, [], 2),
    ("cvt-rot-0.5", HIGH, False, ["rho A(theta)", "R keeps"], 2),
    ("particle", LOW, True, [], 2),
    ("knife-0", LOW, True, [], 1),
    ("knife-0.1", LOW, False, ["the averaged passenger stays bounded"], None),
    ("robot", WELL, True, [], 1),
    ("disk", LOW, True, [], 1),
]


@pytest.mark.parametrize(("name", "region", "holds", "fails", "angles"), ZOO)
def test_theorem_on_the_zoo(name, region, holds, fails, angles):
    told = reversible_integrability(parts(name)[0], *region)
    assert told.holds is holds
    failing = [x.statement for x in told.hypotheses if x.needed and x.holds is not True]
    assert len(failing) == len(fails)
    assert all(x.startswith(start) for x, start in zip(failing, fails, strict=True))
    if angles is not None:
        assert told.nondegeneracy.frequencies.shape[1] == angles
        assert told.nondegeneracy.holds
    printed = str(told)
    assert all(x.statement in printed for x in told.hypotheses)
    assert ("fails" in printed.replace("fails, not needed", "")) == bool(fails)


def test_systems_outside_the_theorem():
    told = reversible_integrability(da.zoo.ChaplyginSleigh(), (0.0, 1.0), (0.0, 2.0))
    assert told.holds is False
    assert "mass matrix is not constant" in told.hypotheses[0].measured
    quartic = da.system(
        coordinates=("x", "y", "xi"),
        metric=lambda q: jnp.eye(3),
        potential=lambda q: q[0] ** 4 + q[2] ** 2 / 2,
        constraints=lambda q: jnp.array([[1.0, q[2], 0.0]]),
    )
    told = reversible_integrability(CoupledSystem.of(quartic, np.ones(3)), (0.0, 1.0), (0.0, 2.0))
    assert told.holds is False
    assert "quadratic" in told.hypotheses[-1].statement
    away = CoupledSystem.build(
        potential=lambda xi: -0.5 * xi**2, constraint=lambda xi: jnp.array([[1.0, xi]])
    )
    told = reversible_integrability(away, (0.0, 1.0), (0.0, 2.0))
    assert told.holds is False
    assert "not periodic" in told.conclusion
