"""Orders of accuracy in q and v, fitted above the round-off plateau against the exact motion."""

import functools

import numpy as np
import pytest

import dalembert as da
from systems import make

# The CVT of the suite, the sleigh (metric depends on q), the sleigh with constant metric, the snakeboard.
# The sleigh moves slowly, so it needs a longer interval for errors above rounding.
PROBLEMS = {"cvt-rot-0.5": 2.0, "sleigh-cm": 8.0, "sleigh-contact": 8.0, "snakeboard-relative": 4.0}
FRAME_ONLY = ("sleigh-contact",)

SECOND = [
    da.DLA(0.5),
    da.DLA01(),
    da.LeapFrog("half-kick"),
    da.LeapFrog("momentum"),
    da.DiscreteGradient("gonzalez"),
    da.DiscreteGradient("average"),
    da.DiscreteGradient("itoh-abe"),
    da.FrameGradient(),
    da.FrameGradient("gonzalez"),
]
HIGHER = [da.Composition(method, order) for method in (da.FrameGradient(), da.DLA01()) for order in (4, 6, 8)]
# Steps on the interval, from coarse to fine. The fit uses the last points above the round-off plateau.
COARSEST = {1: 300, 2: 40, 4: 20, 6: 12, 8: 8}
PLATEAU = 2e-12


@functools.cache
def exact(name):
    system, q0, v0, _ = make(name)
    end = da.simulate(system, da.Reference(), q0, v0, h=PROBLEMS[name] / 8, steps=8)
    return end.q[-1], end.v[-1]


def errors(name, method, counts):
    system, q0, v0, _ = make(name)
    q, v = exact(name)
    found = []
    for count in counts:
        sol = da.simulate(system, method, q0, v0, h=PROBLEMS[name] / count, steps=count, save_every=count)
        found.append((np.max(np.abs(sol.q[-1] - q)), np.max(np.abs(sol.v[-1] - v))))
    return np.array(found)


def slopes(name, method, order):
    counts, found = [], []
    for k in range(12 if order > 2 else 5):
        counts.append(round(COARSEST[order] * (1.25 if order > 2 else 2) ** k))
        found.append(errors(name, method, counts[-1:])[0])
        if np.min(found[-1]) < PLATEAU:
            counts.pop(), found.pop()
            break
    found = np.array(found)
    assert len(counts) >= 4, found
    return [-np.polyfit(np.log(counts[-4:]), np.log(found[-4:, i]), 1)[0] for i in (0, 1)]


def cases(methods):
    return [
        pytest.param(name, method, id=f"{name}-{method.spelling}-{getattr(method, 'start', '')}")
        for name in PROBLEMS
        for method in methods
        if name not in FRAME_ONLY or method.spelling.startswith("frame")
    ]


@pytest.mark.parametrize(("name", "method"), cases([*SECOND, da.DLA(0.4), *HIGHER]))
def test_order_is_the_claimed_one(name, method):
    system = make(name)[0]
    order = method.claims(system).order
    for slope in slopes(name, method, order):
        assert slope == pytest.approx(order, abs=0.1)


def test_the_papers_leap_frog_must_not_be_composed():
    """The refusal is true: forced, the composition of order 4 stays at order 2."""
    method = da.Composition(da.LeapFrog("momentum"), 4, force=True)
    found = errors("snakeboard-relative", method, (40, 80, 160, 320))
    slope = -np.polyfit(np.log([40, 80, 160, 320]), np.log(found[:, 0]), 1)[0]
    assert slope < 3
