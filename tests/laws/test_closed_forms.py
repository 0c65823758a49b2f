"""The reference method against closed solutions, and the closed solutions against their equations."""

import numpy as np
import pytest
from equations.problems import PROBLEMS
from equations.transcription import continuous_acceleration

import dalembert as da

CASES = {
    "knife edge": (da.zoo.KnifeEdge(), None),
    "knife edge, moving": (
        da.zoo.KnifeEdge(),
        ([0.3, -0.2, 0.4], [0.7 * np.cos(0.4), 0.7 * np.sin(0.4), 0.8]),
    ),
    "free particle": (da.zoo.NonholonomicParticle(), None),
    "sleigh": (da.zoo.ChaplyginSleigh(), None),
    "sleigh, mass centre": (da.zoo.ChaplyginSleigh(coordinates="mass-centre"), None),
    "sleigh, other way round": (da.zoo.ChaplyginSleigh(mass=2.0, inertia=0.7, offset=0.3), (0.9, -0.5)),
}


def start_of(name):
    system, start = CASES[name]
    if start is None:
        return system, *system.start()
    return system, *(system.moving(*start) if np.ndim(start[0]) == 0 else start)


@pytest.mark.parametrize("steps", [200, 10])
@pytest.mark.parametrize("name", CASES)
def test_reference_at_t_100(name, steps):
    system, q0, v0 = start_of(name)
    sol = da.simulate(system, da.Reference(), q0, v0, h=100 / steps, steps=steps, save_every=steps // 10)
    q, v = system.solution(sol.t, q0, v0)
    assert sol.t[-1] == 100
    # Of the way travelled, 70 to 116, and of speeds near 1: 1e-14 a step, for a few hundred steps.
    assert np.max(np.abs(sol.q - q)) < 1e-12 * np.max(np.abs(q))
    assert np.max(np.abs(sol.v - v)) < 1e-12


@pytest.mark.parametrize("name", CASES)
def test_closed_forms_start_where_they_should_and_satisfy_the_constraint(name):
    system, q0, v0 = start_of(name)
    t = np.linspace(0, 5, 11)
    q, v = system.solution(t, q0, v0)
    np.testing.assert_allclose(q[0], q0, atol=1e-14)
    np.testing.assert_allclose(v[0], v0, atol=1e-14)
    for x, u in zip(q, v, strict=True):
        assert np.max(np.abs(np.asarray(system.constraints(x)) @ u)) < 1e-14


@pytest.mark.parametrize(("name", "problem"), [("sleigh", "sleigh-contact"), ("knife edge", "knife-0")])
def test_closed_forms_solve_the_equations_of_motion(name, problem):
    """A road without the library: the transcription's acceleration against differences of the closed form."""
    system, q0, v0 = start_of(name)
    d = 1e-4
    for t in (0.7, 2.3, 6.1):
        q, v = system.solution([t - d, t, t + d], q0, v0)
        a, _ = continuous_acceleration(PROBLEMS[problem], q[1], v[1])
        # Central differences: d^2/6 times a third derivative of order one, about 2e-9.
        np.testing.assert_allclose((v[2] - v[0]) / (2 * d), a, atol=1e-8)
        np.testing.assert_allclose((q[2] - q[0]) / (2 * d), v[1], atol=1e-8)


def test_closed_forms_refuse_where_there_is_none():
    with pytest.raises(ValueError, match="eps = 0 and pull = 1 only"):
        da.zoo.KnifeEdge(eps=0.1).solution([1.0], *da.zoo.KnifeEdge().start())
    with pytest.raises(ValueError, match="without a potential"):
        da.zoo.NonholonomicParticle(lambda q: q[0]).solution([1.0], [0, 0, 0], [0, 0, 0])
