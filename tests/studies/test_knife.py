"""The knife edge: which methods keep its energy, and what the perturbation does to the mean force."""

from functools import cache
from math import pi

import jax.numpy as jnp
import numpy as np
import pytest
from studies.expected import number
from studies.suite import METHODS, energies

import dalembert as da
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.floquet import averaging
from dalembert.diagnostics.parasitic import normal_velocity
from dalembert.diagnostics.series import drift, running_mean, slope

NAMES = ("DLA0.5", "DLA01", "DLA0.4", "LF", "DD", "DDS", "FIB-SV", "FIB-EP")
UNTIL = (100, 1000, 10_000)
# Largest errors of the projected H on [0, 100], [0, 1000] and [0, 10000]; v(T)/T after 1600 turns.
BOUNDED = {"DLA0.5": "5.06e-2", "DLA01": "5.06e-2", "LF": "0.197", "DD": "3.1e-4", "DDS": "3.1e-4"}
GROWING = {
    "DLA0.5": ("0.389", "20.0", "1.92e3"),
    "DLA01": ("0.389", "20.0", "1.92e3"),
    "DLA0.4": ("9.55", "108", "1100"),
    "LF": ("0.998", "42", "3.9e3"),
    "DD": ("5.0e-4", "3.2e-3", "0.22"),
    "DDS": ("5.0e-4", "3.2e-3", "0.22"),
}
SPEED = {
    "DLA0.5": "-0.05004620",
    "DLA01": "-0.05004620",
    "DLA0.4": "-0.0000557",
    "LF": "-0.05008034",
    "DD": "-0.05069172",
    "DDS": "-0.05069172",
    "FIB-SV": "-0.05006274",
    "FIB-EP": "-0.05006274",
}
MEAN = -0.0500627356032308
# Energies to rounding: a few units of the last place of v^2/2 and x1 (which grows alike) in 32 000 steps.
ROUNDING = 1e-12


@cache
def run(name: str, eps: float) -> da.Trajectory:
    """1600 turns of the driver, to t = 10053."""
    knife = da.zoo.KnifeEdge(eps=eps)
    return da.simulate(knife, METHODS[name], *knife.start(), h=pi / 10, steps=32_000)


def kinetic(sol):
    """v^2/2 of the passenger, at least one: what energies are to be compared with."""
    return np.maximum(1.0, 0.5 * np.sum(sol.v[:, :2] ** 2, axis=1))


def judged(name, eps, full=False):
    sol = run(name, eps)
    energy = sol.energy(full=full)
    return drift(sol.t, energy, window=3, scale=float(np.max(kinetic(sol))), early=1000)


@pytest.mark.parametrize("name", NAMES)
def test_energy_of_the_knife_edge(name):
    """eps = 0: bounded errors of the size told, drift of DLA^0.4 alone."""
    sol = run(name, 0.0)
    error = np.abs(sol.energy() - sol.energy()[0])
    largest = [float(np.max(error[sol.t <= t])) for t in UNTIL]
    if name == "DLA0.4":
        for text, value in zip(("3.68", "32.5", "320"), largest, strict=True):
            assert number(text).matches(value, 0.01)
        assert str(judged(name, 0.0).verdict) == "DRIFT"
        first = sol.t <= 100
        rate, _ = slope(*running_mean(sol.t[first], sol.energy()[first], 3))
        assert number("-3.5e-2").matches(rate, 0.02)
    elif name.startswith("FIB"):
        assert max(largest) < ROUNDING
        assert str(judged(name, 0.0).verdict) == "exact"
    else:
        assert all(number(BOUNDED[name]).matches(value, 0.01) for value in largest)
        assert str(judged(name, 0.0).verdict) == "bounded"


@pytest.mark.parametrize("name", NAMES)
def test_energy_of_the_perturbed_knife_edge(name):
    """eps = 0.1: errors grow with the square of time, as v^2 does, except for the fibred methods."""
    sol = run(name, 0.1)
    error = np.abs(sol.energy() - sol.energy()[0])
    if name.startswith("FIB"):
        assert np.max(error / kinetic(sol)) < ROUNDING
        assert str(judged(name, 0.1).verdict) == "exact"
        return
    for text, until in zip(GROWING[name], UNTIL, strict=True):
        assert number(text).matches(float(np.max(error[sol.t <= until])), 0.01)
    assert str(judged(name, 0.1).verdict) == "DRIFT"


@pytest.mark.parametrize("name", ["LF", "DD", "DDS"])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_energy_of_the_own_velocity(name, eps):
    """Kept to rounding, by leap-frog too: its force is constant."""
    sol = run(name, eps)
    energy = sol.energy(full=True)
    assert np.max(np.abs(energy - energy[0]) / kinetic(sol)) < ROUNDING
    assert str(judged(name, eps, full=True).verdict) == "exact"


@pytest.mark.parametrize("name", NAMES)
def test_driver_and_mean_speed(name):
    for eps in (0.0, 0.1):
        driver = energies(run(name, eps))[1]
        assert np.max(np.abs(driver - driver[0])) < ROUNDING
    sol = run(name, 0.1)
    coupled = CoupledSystem.of(sol.system, sol.q[0])
    speed = float(coupled.split(jnp.asarray(sol.q[-1]), jnp.asarray(sol.v[-1]))[1])
    assert number(SPEED[name]).matches(speed / sol.t[-1], 0.0)
    if name == "DLA0.4":  # v stays bounded, which is wrong
        assert np.max(np.abs(sol.v[:, :2])) < 5
    elif name.startswith("FIB"):
        assert abs(speed / sol.t[-1] - MEAN) < 1e-8


def test_what_drifts_for_leapfrog_is_the_normal_velocity():
    """H_proj - H0 = -w^2/2 identically; relative to v^2/2 it stays h^2/4, and half of that for DLA^1/2."""
    sol = run("LF", 0.1)
    error = sol.energy() - sol.energy()[0]
    normal = normal_velocity(sol)[:, 0]
    assert np.max(np.abs(error + normal**2 / 2) / kinetic(sol)) < ROUNDING
    for name, ratio in (("LF", "2.4e-2"), ("DLA0.5", "1.2e-2")):
        sol = run(name, 0.1)
        turns = slice(2000, None, 2000)  # whole hundreds of turns: the ratio depends on the heading
        ratios = np.abs(sol.energy() - sol.energy()[0])[turns] / kinetic(sol)[turns]
        assert all(number(ratio).matches(value, 0.02) for value in ratios)


def mean_force(coupled):
    """The mean of k.f: v changes by its integral in one turn."""
    averaged = averaging(coupled, pi / 2, 1.0)
    assert averaged.orbit.period == pytest.approx(2 * pi, abs=1e-12)
    return averaged.average[0, 1] / averaged.orbit.period, averaged.is_compact


def test_mean_force():
    for eps, mean in ((0.0, 0.0), (0.1, MEAN)):
        knife = da.zoo.KnifeEdge(eps=eps)
        found, compact = mean_force(CoupledSystem.of(knife, knife.start()[0]))
        assert abs(found - mean) < 1e-12
        assert compact == (eps == 0)


def test_another_pull_has_no_mean():
    """f = (0, -1): the perturbed knife edge does not drift at all."""
    coupled = CoupledSystem.build(
        potential=lambda xi: 0 * xi,
        constraint=lambda xi: jnp.stack([-jnp.sin(xi), jnp.cos(xi) - 0.1])[None],
        f=(0, -1),
        is_angle=True,
    )
    found, compact = mean_force(coupled)
    assert abs(found) < 1e-12
    assert compact
    q0, v0 = da.zoo.KnifeEdge().start()
    for name, verdict in (("DLA0.5", "bounded"), ("LF", "bounded"), ("FIB-SV", "exact")):
        sol = da.simulate(coupled.system, METHODS[name], q0, v0, h=pi / 10, steps=32_000)
        assert str(drift(sol.t, sol.energy(), window=3).verdict) == verdict
