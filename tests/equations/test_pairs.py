"""Runs that continue a pair (q0, q1), against the printed discrete equations as the transcriptions have them.

No velocity enters the transcriptions: from the pair on, every configuration follows from the two before it.
"""

import warnings

import numpy as np
import pytest
from equations import discrete_mechanics as reference
from equations import group_mechanics as on_groups
from equations import variable_steps as in_time
from equations.test_discrete import matrix_of

import dalembert as da
from dalembert.discrete import AlphaRule, PointConstraint, Retraction, Trapezoidal

Z = da.zoo
H, STEPS = 0.1, 30
# The bound that is asked for. Configurations are of order one; 30 steps add rounding errors of 1e-15 to 1e-14.
BOUND = 1e-12
PARTICLE = (
    reference.particle(harmonic=True),
    Z.NonholonomicParticle(lambda q: (q[0] ** 2 + q[1] ** 2) / 2),
)
SLEIGH = (reference.sleigh_contact(), Z.ChaplyginSleigh())
SNAKEBOARD = (reference.snakeboard(), Z.Snakeboard())


def agree(run, q0, q1, theirs):
    """Row 0 is q0, row 1 is q1 to rounding, and the rest is the transcription."""
    assert np.array_equal(run.q[0], q0)
    assert np.max(np.abs(run.q[1] - q1)) < 1e-14  # a few eps of numbers of order one
    assert np.max(np.abs(run.q - theirs)) < BOUND


def off(problem, h=H):
    """A configuration near the start that is not even near the constraint."""
    wobble = 0.3 * np.cos(1.0 + 2.0 * np.arange(problem.q0.size))
    return problem.q0 + h * (problem.v0 + wobble)


def on_constraint(problem, alpha, h=H):
    """A configuration q1 with mu(q_alpha) (q1 - q0) = 0 that no velocity was used for: Newton along mu^T."""
    forms = problem.forms
    q0, guess = problem.q0, off(problem, h)
    rows = forms(q0)

    def value(x):
        q1 = guess + rows.T @ x
        return forms((1 - alpha) * q0 + alpha * q1) @ (q1 - q0) / h

    return guess + rows.T @ reference.newton(value, np.zeros(len(rows)))


@pytest.mark.filterwarnings("ignore::dalembert.MotionWarning")
@pytest.mark.parametrize(
    ("case", "theirs", "method"),
    [
        (SLEIGH, reference.midpoint, da.GNI()),
        (SLEIGH, reference.symmetrised(0.2), da.GNI(AlphaRule(0.2))),
        (SNAKEBOARD, reference.trapezoidal, da.GNI(Trapezoidal())),
        (PARTICLE, reference.midpoint, da.GNI(start="exact")),
        (PARTICLE, reference.trapezoidal, da.LeapFrog()),
        (PARTICLE, reference.trapezoidal, da.LeapFrog("momentum")),
    ],
    ids=lambda x: getattr(x, "cli_name", None),
)
def test_gni_and_leapfrog_continue_any_pair(case, theirs, method):
    """p^+ = D2 L_d(q0, q1), then p^- = (P - Q)^T p^+: no start enters, whatever the method's `start` says."""
    problem, system = case
    q1 = off(problem)
    run = da.simulate(system, method, problem.q0, q1=q1, h=H, steps=STEPS)
    q, v, own = reference.run(problem, H, STEPS, "gni", theirs, q1=q1)
    agree(run, problem.q0, q1, q)
    # Velocities are differences over h, so they carry rounding errors ten times as large.
    assert np.max(np.abs(run.v - v)) < 10 * BOUND
    assert np.max(np.abs(run.v_full - own)) < 10 * BOUND
    assert run.method == method


@pytest.mark.parametrize(
    ("case", "theirs", "rule", "alpha"),
    [
        (SLEIGH, reference.midpoint, "Midpoint", 0.5),
        (PARTICLE, reference.trapezoidal, "Trapezoidal", 0.0),
        (SNAKEBOARD, reference.midpoint, "Midpoint", 0.3),
    ],
)
def test_variational_dla_continues_a_pair_on_the_constraint(case, theirs, rule, alpha):
    problem, system = case
    method = da.VariationalDLA(getattr(da.discrete, rule)(), PointConstraint(alpha))
    q1 = on_constraint(problem, alpha)
    run = da.simulate(system, method, problem.q0, q1=q1, h=H, steps=STEPS)
    q, v, _ = reference.run(problem, H, STEPS, "dla", theirs, alpha, q1=q1)
    agree(run, problem.q0, q1, q)
    assert np.max(np.abs(run.v - v)) < 10 * BOUND


@pytest.mark.parametrize("name", ["sleigh", "travelling well", "turntable"])
def test_edla_continues_a_pair_in_space_and_time(name):
    """(t0, q0) and (t0 + h, q1): the size of the first step is that of the pair, and the energy fixes the others."""
    problem, system = {
        "sleigh": (in_time.sleigh(), Z.ChaplyginSleigh()),
        "travelling well": (in_time.particle("travelling"), Z.TravellingWell()),
        "turntable": (in_time.turntable(), Z.BallOnTurntable(rate=0.7)),
    }[name]
    h, steps, q0, n = 0.2, 8, problem.q0, problem.q0.size
    rows = problem.omega(0.0, q0)
    guess = q0 + h * problem.v0 * 1.1

    def value(x):
        q1 = guess + rows.T @ x
        middle = (h / 2, (q0 + q1) / 2)
        return problem.omega(*middle) @ (q1 - q0) / h + problem.omega0(*middle)

    q1 = guess + rows.T @ reference.newton(value, np.zeros(len(rows)))
    t, q, last, ratio = [0.0, h], [q0, q1], np.concatenate([[h], q1 - q0]), 1.0
    lam = np.zeros(len(rows))
    for _ in range(steps - 1):
        plus = in_time.slots(problem, 0.5, t[-2], q[-2], last[0], last[1:])[1]
        guessed = np.concatenate([last * ratio, lam])
        status, _, y = in_time.solve_step(problem, 0.5, t[-1], q[-1], plus, last[0], guessed)
        assert status == "ok"
        ratio, last, lam = y[0] / last[0], y[: n + 1], y[n + 1 :]
        t.append(t[-1] + last[0])
        q.append(q[-1] + last[1:])
    run = da.simulate(system, da.EDLA(pin=False), q0, q1=q1, h=h, steps=steps)
    assert run.t[1] == pytest.approx(h, abs=1e-15)
    assert name == "turntable" or np.ptp(np.diff(run.t)) > 1e-4  # the steps do differ in size
    # A step's size is known to eps E/(2 h^2 G), 1e-14 here, and the error grows from step to step.
    assert np.max(np.abs(run.t - t)) < BOUND
    agree(run, q0, q1, np.array(q))


@pytest.mark.parametrize(
    ("group", "system", "tau"),
    [(on_groups.SO3(), Z.Suslov(), "cayley"), (on_groups.SE2(), Z.GroupSleigh(), "exp")],
    ids=["SO(3)", "SE(2)"],
)
def test_lie_gni_continues_any_pair(group, system, tau):
    g0, xi0 = (np.asarray(x) for x in system.start())
    numbers = (lambda m: m.ravel()) if isinstance(group, on_groups.SO3) else (lambda g: g)
    a = lambda g: np.asarray(system.constraints(np.asarray(numbers(g))))
    inertia, first = np.asarray(system.inertia()), matrix_of(system, g0)
    second = group.mul(first, group.tau(tau, H * (xi0 + np.array([0.2, -0.1, 0.3]))))
    p0 = on_groups.before(group, tau, inertia, first, second, H)
    rows = on_groups.lie_gni_run(group, tau, inertia, a, first, p0, H, STEPS)
    theirs = np.stack([numbers(row[0]) for row in rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", da.MotionWarning)
        run = da.simulate(system, da.LieGNI(tau), g0, q1=numbers(second), h=H, steps=STEPS)
    assert np.max(np.abs(run.q[1] - numbers(second))) < 1e-14
    # Tenth-order differences of L_d: momenta are good to 4e-15, and so 30 steps stay below the bound.
    assert np.max(np.abs(run.q - theirs)) < BOUND
    assert np.max(np.abs(run.v_full @ inertia - np.stack([row[1] for row in rows]))) < 10 * BOUND


def test_variational_dla_on_a_group_continues_a_pair():
    """The run from a velocity, whose first two configurations are the pair, by the equations of another road: see
    test_group_runs. Here the pair must lead to the same run, and to the same momenta."""
    system = Z.Suslov()
    method = da.VariationalDLA(Retraction("cayley"))
    g0, xi0 = system.start()
    one = da.simulate(system, method, g0, xi0, h=H, steps=STEPS)
    two = da.simulate(system, method, g0, q1=one.q[1], h=H, steps=STEPS)
    # The inverse of the retraction returns the velocity of the step to eps/h.
    assert np.max(np.abs(one.q - two.q)) < BOUND
    assert np.max(np.abs(one.v - two.v)) < 10 * BOUND


@pytest.mark.parametrize("method", [da.GNI(Trapezoidal()), da.VariationalDLA(Trapezoidal())])
def test_position_constraints(method):
    """A pendulum with c(q) = 0 as SHAKE has it: D1 L_d(q1, q2) + D2 L_d(q0, q1) = dc(q1)^T mu, c(q2) = 0."""
    system = da.system(
        coordinates=("x", "y"),
        metric=lambda q: np.eye(2),
        potential=lambda q: 9.81 * q[1],
        holonomic=lambda q: (q @ q - 1.0)[None] / 2,
    )
    angle = lambda a: np.array([np.sin(a), -np.cos(a)])
    h, q = 0.05, [angle(0.4), angle(0.47)]
    for _ in range(20):
        free = 2 * q[-1] - q[-2] - h * h * np.array([0.0, 9.81])
        # (free + mu q1) has length one: the root of a quadratic that is near zero.
        b, c = free @ q[-1], free @ free - 1.0
        q.append(free + (-c / (b + np.sqrt(b * b - c))) * q[-1])
    run = da.simulate(system, method, q[0], q1=q[1], h=h, steps=21)
    assert np.max(np.abs(run.q - np.array(q))) < BOUND
    with pytest.raises(ValueError, match="position constraints at time t0"):
        da.simulate(system, method, q[0], q1=1.01 * q[1], h=h, steps=2)
