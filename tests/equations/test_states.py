"""Every method on every problem against the transcription of its unreduced equations."""

import numpy as np
import pytest
from equations.problems import PROBLEMS
from equations.transcription import continuous_acceleration, run
from systems import SUITE, make

import dalembert as da

METHODS = {
    "dla:0.5": da.DLA(0.5),
    "dla:0.4": da.DLA(0.4),
    "dla:0": da.DLA(0.0),
    "dla:1": da.DLA(1.0),
    "dla01": da.DLA01(),
    "leapfrog-momentum": da.LeapFrog("momentum"),
    "leapfrog-half-kick": da.LeapFrog("half-kick"),
    "dd:gonzalez": da.DiscreteGradient("gonzalez"),
    "dd:average": da.DiscreteGradient("average"),
    "dd:itoh-abe": da.DiscreteGradient("itoh-abe"),
    "frame": da.FrameGradient(),
    **{f"frame:gauss={s}": da.FrameCollocation(s) for s in (1, 2, 3, 4)},
    "frame@4": da.Composition(da.FrameGradient(), 4),
    "dla01@4": da.Composition(da.DLA01(), 4),
}
GAUSS = [m for m in METHODS if "gauss" in m]
# Beyond the suite: any metric, any constraints.
EXTRAS = {
    "massive": [m for m in METHODS if "@" not in m and m not in GAUSS] + ["frame:gauss=3"],
    "sleigh-cm": ["dla:0.5", "dla01", "leapfrog-half-kick", "dd:average", "frame"],
    "sleigh-contact": ["frame"],
    "sleigh-potential": ["frame", "frame@4", *GAUSS],
    "falling-disk": ["frame", "frame:gauss=2"],
    "routh": ["frame", "frame:gauss=2"],
    "car": ["frame", "frame:gauss=2"],
    "roller-racer": ["dla:0.5", "dla01", "leapfrog-half-kick", "dd:average", "frame"],
    "cylinder": ["dla:0.5", "dla01", "leapfrog-half-kick", "dd:average", "frame"],
    "snakeboard-relative": ["dla:0.5", "dla01", "leapfrog-half-kick", "dd:average", "frame"],
    "snakeboard-absolute": ["dla:0.5", "dla01", "leapfrog-half-kick", "frame", "frame:gauss=3"],
}
# Collocation on two problems of the suite and those above.
COLLOCATED = ("cvt-rot-0.5", "knife-0.1")
# A composition is steps of its method: two problems, and those below, tell whether its fractions are right.
COMPOSED = ("cvt-rot-0.5", "robot")
CASES = [
    (p, m)
    for p in SUITE
    for m in METHODS
    if p in (COMPOSED if "@" in m else COLLOCATED if m in GAUSS else SUITE)
]
CASES += [(p, m) for p, ms in EXTRAS.items() for m in ms]


@pytest.mark.parametrize(("problem", "method"), CASES)
def test_states_after_10_and_100_steps(problem, method):
    """Of the frame's composition after 10 and 20 steps, which are 100 of the steps it is made of, as of collocation."""
    system, q0, v0, h = make(problem)
    told = PROBLEMS[problem]
    np.testing.assert_allclose(q0, told.q0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(v0, told.v0, rtol=0, atol=1e-15)
    assert h == pytest.approx(told.h, rel=1e-15)

    last = 20 if method == "frame@4" or method in GAUSS else 100
    expected = run(told, method, last)
    found = da.simulate(system, METHODS[method], q0, v0, h=h, steps=last)
    for k in (10, last):
        for name in ("q", "v", "v_full"):
            x, y = getattr(found, name)[k], expected[name][k]
            size = np.maximum(1, np.abs(y))
            if method == "dla:1" and problem.startswith("knife"):
                size = np.max(size)  # exponentially unstable: rounding grows with the whole state
            if problem == "cylinder":
                size = np.max(size)  # the components of its spin, up to 32, turn into each other
            # Rounding of 100 steps of two different programs.
            assert np.max(np.abs(x - y) / size) < 1e-12, (name, k)


@pytest.mark.parametrize("method", ["dla:0.5", "dla:0.4", "dla01", "leapfrog-half-kick", "dd:gonzalez"])
@pytest.mark.parametrize("problem", ["cvt-rot-0.5", "robot", "massive", "snakeboard-relative"])
def test_multipliers_of_each_step(problem, method):
    system, q0, v0, h = make(problem)
    expected = run(PROBLEMS[problem], method, 20)["lam"]
    found = da.simulate(system, METHODS[method], q0, v0, h=h, steps=20).multipliers
    # A multiplier is a difference of velocities divided by h: rounding times 1/h.
    np.testing.assert_allclose(found[1:], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "problem", ["cvt-rot-0.5", "knife-0.1", "disk", "sleigh-potential", "snakeboard-absolute"]
)
def test_multipliers_of_the_exact_motion(problem):
    """Row 0 of every method on D, and every row of FrameGradient, is the multiplier at the state."""
    system, q0, v0, h = make(problem)
    found = da.simulate(system, da.FrameGradient(), q0, v0, h=h, steps=5)
    for q, v, lam in zip(found.q, found.v, found.multipliers, strict=True):
        expected = continuous_acceleration(PROBLEMS[problem], q, v)[1]
        np.testing.assert_allclose(lam, expected, rtol=1e-12, atol=1e-13)
