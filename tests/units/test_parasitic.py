"""The parasitic mode and the period of a run: sizes, growth and what is refused."""

import numpy as np
import pytest

import dalembert as da
from dalembert.diagnostics import (
    measured_period,
    normal_velocity,
    parasitic_levels,
    parasitic_mode,
    resonance,
)


def run(system, method, h, steps, start=None, save_every=1):
    return da.simulate(system, method, *system.start(start), h=h, steps=steps, save_every=save_every)


def test_leap_frog_on_the_sleigh_grows_as_the_theory_says():
    """The rate is minus the divergence of the exact motion: a m u/(I + m a^2) with u the sleigh's speed, which goes
    from -1.2 to +1.2 turning round; at the end of the turn it is 0.2375, averaged over the growth a little less."""
    sleigh = da.zoo.ChaplyginSleigh(coordinates="mass-centre")
    sol = run(sleigh, da.LeapFrog(), 0.05, 4000)
    found = parasitic_mode(sol)
    assert found.grows
    assert found.largest > 0.5
    times, levels = parasitic_levels(sol)
    # Where the sleigh runs straight, before the mode is large enough to act on it.
    until = int(np.argmax(levels > 3e-2))
    since = int(np.max(np.nonzero(levels[:until] < 1e-5)[0]))
    rate = np.polyfit(times[since:until], np.log(levels[since:until]), 1)[0]
    assert rate == pytest.approx(0.2375, rel=0.05)
    energy = sol.energy(full=True)
    assert np.max(np.abs(energy - energy[0])) < 1e-12, "and the energy says nothing"


def test_the_half_kick_makes_it_small_and_methods_on_d_have_none():
    cvt = da.zoo.PendulumCVT(eps=0.5)
    levels = [
        parasitic_mode(run(cvt, da.LeapFrog(s), 0.1, 2000, "rotating")) for s in ("momentum", "half-kick")
    ]
    assert 0.04 < levels[0].first < 0.06  # about h/2
    assert levels[1].first < 3e-3  # order h^3
    assert not levels[0].grows
    assert np.max(np.abs(normal_velocity(run(cvt, da.FrameGradient(), 0.1, 500, "rotating")))) < 1e-14


def test_it_is_seen_from_step_to_step():
    cvt = da.zoo.PendulumCVT()
    for sol in (run(cvt, da.LeapFrog(), 0.1, 1000, save_every=2), run(cvt, da.LeapFrog(), 0.1, 50)):
        with pytest.raises(ValueError, match="save_every=1"):
            parasitic_mode(sol)


def test_period_of_a_run():
    """Both kinds of crossing, against what is known of the signal; a second of linear interpolation each way."""
    t = np.arange(0, 200, 0.01)
    assert measured_period(t, 3 * np.sin(2 * np.pi * t / 7.3) + 0.2, 0.0, False) == pytest.approx(
        7.3, abs=1e-4
    )
    assert measured_period(t, 1.7 * t + 0.1 * np.sin(t), 0.0, True) == pytest.approx(
        2 * np.pi / 1.7, rel=2e-3
    )
    with pytest.raises(ValueError, match="does not cross 0 twice"):
        measured_period(t, 0 * t + 1, 0.0, False)


def test_resonances_are_named():
    angle = 0.6776 * np.pi
    assert resonance(14.02, angle, 1.0) == pytest.approx((14.0, 0.02))
    assert resonance(13.30, angle, 1.0) == pytest.approx((13.3224, -0.0224))
    assert resonance(26.26, angle, 1.0) is None
    assert resonance(26.05, angle, 1.0) is None, "windows close"
    assert resonance(26.05, angle, 1.0, near=0.1) is not None
