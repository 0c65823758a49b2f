"""The latitude of the CVT: period, angle, axis and value against printed figures and a second road."""

import numpy as np
import pytest
from equations import coupled as second
from systems import make

import dalembert as da
from dalembert.diagnostics.latitude import Latitude, axis_and_angle, latitude

# Period, angle and axis of the period map from the section xi = 0 upwards, and the latitude of the start.
EXPECTED = {
    "osc-0": (10.312368453393, 1.755525032484, (0.9104934000, 0, 0.4135236009), 0.910493400042),
    "osc-0.1": (
        10.277139679669,
        1.848950173457,
        (0.885194123265, -0.259242875275, 0.386295865570),
        0.625951247989,
    ),
    "osc-0.5": (
        9.614319394699,
        2.890743277208,
        (0.755740798901, -0.590938070230, 0.282219846980),
        0.164802728671,
    ),
    "rot-0": (2.622057554292, 2.125430578288, (-0.9264765487, 0, 0.3763525007), -0.926476548655),
    "rot-0.1": (
        2.622228982720,
        2.125561459610,
        (-0.926462976685, 0.001177373689, 0.376384067972),
        -0.925285602996,
    ),
    "rot-0.5": (
        2.626366714265,
        2.128720420674,
        (-0.926134771358, 0.005935352704, 0.377146068347),
        -0.920199418654,
    ),
    "harmonic": (2 * np.pi, 2.797957622292, (0.095487751, 0, -0.995430605), -0.491533481822),
}


def problem(name):
    system, q0, v0, _ = make(name if name == "harmonic" else f"cvt-{name}")
    return system, q0, v0


@pytest.mark.parametrize("name", EXPECTED)
def test_figures(name):
    found = Latitude.of(*problem(name))
    period, angle, axis, start = EXPECTED[name]
    assert abs(found.orbit.period - period) < 1e-9
    assert abs(found.angle - angle) < 1e-9
    assert np.max(np.abs(found.axis - axis)) < 1e-9
    assert abs(found.start - start) < 1e-9
    rotation = found.orbit.rotation
    # Phi is found to 1e-11 by construction: two step sizes agree to that.
    assert np.max(np.abs(rotation.T @ rotation - np.eye(3))) < 1e-11
    assert np.max(np.abs(rotation @ found.axis - found.axis)) < 1e-11


@pytest.mark.parametrize("name", EXPECTED)
def test_second_road(name):
    """An adaptive Runge-Kutta solution of the reduced equations, written out by hand."""
    found = Latitude.of(*problem(name))
    other = second.problem(name)
    period, phi = second.period_map(other)
    axis, angle = second.axis_angle(phi)
    assert abs(found.orbit.period - period) < 1e-9
    assert np.max(np.abs(found.orbit.rotation - phi)) < 1e-9
    assert abs(found.angle - angle) < 1e-9
    assert np.max(np.abs(found.axis - axis)) < 1e-9
    assert abs(found.start - second.latitude_start(other)) < 1e-9


@pytest.mark.parametrize("name", ["osc-0.5", "rot-0.5"])
def test_a_first_integral(name):
    """As a function on phase space it is constant along the exact motion, and so at the section."""
    system, q0, v0 = problem(name)
    run = da.simulate(system, da.Reference(), q0, v0, h=0.1, steps=200)
    values = [latitude(system, run.q[i], run.v[i]) for i in range(0, 201, 25)]
    # The reference is good to 1e-12, the period map to 1e-11.
    assert np.ptp(values) < 1e-11
    found = Latitude.of(system, q0, v0)
    times, crossings = found.along(run)
    assert len(times) >= 1
    assert np.max(np.abs(crossings - found.start)) < 1e-11
    assert np.max(np.abs(np.diff(times) - found.orbit.period), initial=0.0) < 1e-9
    x, v, xi, eta = (np.asarray(part) for part in found.coupled.split(run.q[77], run.v[77]))
    other = second.problem(name)
    assert abs(second.latitude(other, x, float(v), float(xi), float(eta)) - found.start) < 1e-10


@pytest.mark.parametrize("name", ["osc", "rot"])
def test_the_sign_of_the_perturbation(name):
    """eps -> -eps changes the sign of the axis's second component and nothing else."""
    start = {"osc": "oscillating", "rot": "rotating"}[name]
    plus, minus = (da.zoo.PendulumCVT(eps=eps) for eps in (0.5, -0.5))
    one, two = (Latitude.of(system, *system.start(start)) for system in (plus, minus))
    assert abs(one.orbit.period - two.orbit.period) < 1e-10
    assert abs(one.angle - two.angle) < 1e-10
    assert np.max(np.abs(one.axis * [1, -1, 1] - two.axis)) < 1e-10


@pytest.mark.parametrize("name", ["particle", "knife-0", "knife-0.1", "disk", "robot"])
def test_none_without_rotations_of_space(name):
    system, q0, v0, _ = make(name)
    with pytest.raises(ValueError, match="has no latitude"):
        Latitude.of(system, q0, v0)
    with pytest.raises(ValueError, match="has no latitude"):
        latitude(system, q0, v0)


def test_none_at_rest():
    with pytest.raises(ValueError, match="rests at"):
        Latitude.of(da.zoo.PendulumCVT(), [1, 1, 0], [0, 0, 0])


def test_axis_of_a_rotation():
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    axis, angle = axis_and_angle(turn)
    assert axis == pytest.approx([0, 0, 1], abs=1e-15)
    assert angle == pytest.approx(np.pi / 2, abs=1e-15)
    axis, angle = axis_and_angle(turn.T)
    assert axis == pytest.approx([0, 0, -1], abs=1e-15)
    for none in (np.eye(3), np.diag([1.0, -1.0, -1.0])):
        with pytest.raises(ValueError, match="no axis"):
            axis_and_angle(none)
