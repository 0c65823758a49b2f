"""EDLA against a plain transcription of its equations and its solver, which knows nothing of the library."""

import jax.numpy as jnp
import numpy as np
import pytest
from equations import variable_steps as reference

import dalembert as da
from dalembert.diagnostics import edla_well_posedness
from dalembert.discrete import AlphaRule

Z = da.zoo
CENTRE = "sleigh, mass centre"
PLANE = lambda q: (q[0] ** 2 + q[1] ** 2) / 2


class Modulated(da.RheonomicSystem):
    """z' = y x' (1 + 0.3 sin t): linear in v with coefficients that change, so that the energy is kept."""

    coordinates = ("x", "y", "z")

    def metric(self, t, q):
        return jnp.eye(3)

    def potential(self, t, q):
        return PLANE(q)

    def constraints(self, t, q):
        return jnp.array([[-q[1] * (1 + 0.3 * jnp.sin(t)), 0.0, 1.0]])


# The problem of the transcription, and the system.
PROBLEMS = {
    "free particle": (reference.particle(), Z.NonholonomicParticle()),
    "particle": (reference.particle("plane"), Z.NonholonomicParticle(PLANE)),
    "particle in |q|^2/2": (reference.particle("harmonic"), Z.NonholonomicParticle(lambda q: q @ q / 2)),
    "knife edge": (reference.knife(4.0), Z.KnifeEdge()),
    "robot": (reference.robot(), Z.MobileRobot(strength=10.0)),
    "sleigh, contact": (reference.sleigh(), Z.ChaplyginSleigh()),
    CENTRE: (reference.sleigh(centre=True), Z.ChaplyginSleigh(coordinates="mass-centre")),
    "rheonomic particle": (reference.particle("plane", rate=0.3), Z.RheonomicParticle()),
    "travelling well": (reference.particle("travelling"), Z.TravellingWell()),
    "modulated": (reference.particle("plane", modulated=0.3), Modulated()),
    "turntable": (reference.turntable(), Z.BallOnTurntable(rate=0.7)),
}


def turned(name, q):
    """The zoo's robot rolls with x1' = -cos(xi) x3': its heading is turned by pi, and its potential's sign."""
    return q + np.array([0, 0, 0, np.pi]) if name == "robot" else q


def of_zoo(name, system):
    return Z.MobileRobot(strength=-10.0) if name == "robot" else system


@pytest.mark.parametrize("name", PROBLEMS)
def test_states(name):
    problem, system = PROBLEMS[name]
    system = of_zoo(name, system)
    h = 0.05
    steps = 90 if name == CENTRE else 100
    theirs = reference.run(problem, h, steps)
    method = da.EDLA(pin=False)
    ours = da.simulate(system, method, turned(name, problem.q0), problem.v0, h=h, steps=steps)
    # 1e-9 absolute over 100 steps: the bound of the specification. The step size is known to eps E/(2 h^2 G) only: on
    # the free particle G falls as y grows, from 0.02 to 1e-5, and positions are no longer of order one.
    bound = 1e-8 if name == "free particle" else 1e-9
    assert len(ours.t) == len(theirs.t)
    assert np.max(np.abs(ours.q - turned(name, theirs.q))) < bound
    assert np.max(np.abs(ours.t - theirs.t)) < bound
    # Momenta and energies, which the positions do not enter, to the same.
    assert np.max(np.abs(ours.told["p_plus"][1:] - theirs.plus[:, 1:])) < 1e-9
    assert np.max(np.abs(ours.told["E_plus"][1:] + theirs.plus[:, 0])) < 1e-9
    # Impulses: theirs have the paper's sign and are not divided by the mean of the two steps.
    mean = 0.5 * (ours.told["h"][1:-1] + ours.told["h"][2:])
    # The knife edge's one-form is written with the opposite sign there.
    flip = -1 if name == "knife edge" else 1
    assert np.max(np.abs(flip * ours.multipliers[2:] * mean[:, None] + theirs.lam)) < 1e-9
    schur = ours.told["S"][2:]
    assert np.max(np.abs(schur - theirs.schur)) < 1e-6 * np.max(np.abs(schur))


@pytest.mark.parametrize("alpha", [0.0, 0.5 - 1 / np.sqrt(12)])
def test_other_rules(alpha):
    problem, system = PROBLEMS["particle"]
    # Other rules have another G: here it changes sign after 3 and 44 steps, and both stop.
    theirs = reference.run(problem, 0.05, 100, alpha=alpha)
    method = da.EDLA(AlphaRule(alpha), pin=False)
    ours = da.simulate(system, method, problem.q0, problem.v0, h=0.05, steps=100, throw=False)
    assert theirs.status[-1] == "no_root"
    assert ours.status is da.Status.NO_ROOT
    assert len(ours.t) == len(theirs.t)
    assert np.max(np.abs(ours.q - theirs.q)) < 1e-9
    assert np.max(np.abs(ours.t - theirs.t)) < 1e-9


@pytest.mark.parametrize("name", ["y", "z", "cosine"])
def test_where_it_ends(name):
    """The same last step, and the same reason."""
    problem = reference.particle(name)
    system = Z.NonholonomicParticle(lambda q: problem_potential(name, q))
    theirs = reference.run(problem, 0.0125, 300)
    ours = da.simulate(system, da.EDLA(pin=False), problem.q0, problem.v0, h=0.0125, steps=300, throw=False)
    assert theirs.status[-1] == "no_root"
    assert ours.status is da.Status.NO_ROOT
    assert len(ours.t) == len(theirs.t)
    # The step size is known to eps E/(2 h^2 G) only, and G goes to zero where the run ends: in the last 20 steps the
    # difference doubles (5e-10 to 1e-9, which depends on the machine).
    assert np.max(np.abs(ours.t - theirs.t)[:-20]) < 1e-9
    assert np.max(np.abs(ours.t - theirs.t)) < 5e-9


def problem_potential(name, q):
    return {"y": lambda: q[1] ** 2 / 2, "z": lambda: q[2], "cosine": lambda: -jnp.cos(q[1])}[name]()


@pytest.mark.parametrize(("name", "alpha"), [("y", 0.5), ("z", 0.0), ("cosine", 0.2)])
def test_well_posedness_against_the_formula(name, alpha):
    """G by differences of the energy of short steps, and by 8 G = |R|^2 - |grad V|^2 - ... V''(v, v)."""
    problem = reference.particle(name)
    system = Z.NonholonomicParticle(lambda q: problem_potential(name, q))
    found = edla_well_posedness(system, problem.q0, problem.v0, method=da.EDLA(AlphaRule(alpha)), ahead=2.5)
    exact = reference.motion(problem, 2.5)
    for t, g in zip(found.t[::40], found.along[::40], strict=True):
        # Differences of order six over 3% of the time scale: 1e-8 of terms of order one.
        assert abs(g - reference.indicator(problem, t, *exact(t), alpha)) < 1e-7
    zero = reference.first_zero(problem, 2.5, alpha)
    assert (found.zero is None) == (zero is None)
    if zero is not None:
        assert abs(found.zero - zero) < 1e-6
