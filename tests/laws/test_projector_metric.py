"""Projectors of a metric other than the kinetic one: nothing changes with the same complement of D, all does otherwise.

[ferraro2008] section 4.1 allows any metric.
"""

import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import discrete_mechanics as plain
from equations import group_mechanics as bodies
from systems import make

import dalembert as da
from dalembert.diagnostics import discrete_laws, reversibility_defect
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.stepmap import fibration_defects
from dalembert.discrete import Trapezoidal, complement_angle, projectors
from dalembert.methods import method_from_text
from dalembert.model import lower

Z = da.zoo
pytestmark = pytest.mark.filterwarnings("ignore::dalembert.MotionWarning")
EYE = lambda q: jnp.eye(3)


def fitting(m, q, seed=1):
    """M + A^T S A + M P T P^T M, which leaves D and M^-1 A^T normal to each other for all positive S and T."""
    random = np.random.default_rng(seed)
    mass, a = m.metric(q), m.rows(q)
    p = projectors(m, q)[0]
    s, t = (random.normal(size=(k, k)) for k in (len(a), len(mass)))
    return mass + a.T @ (s @ s.T) @ a + mass @ p @ (0.3 * t @ t.T) @ p.T @ mass


FITTING = {
    "sleigh": (Z.ChaplyginSleigh(), da.GNI),
    "snakeboard, trapezoidal": (Z.Snakeboard(), lambda **x: da.GNI(Trapezoidal(), **x)),
    "turntable": (Z.BallOnTurntable(), da.GNI),
    "disk, restarted": (Z.RollingDisk(), lambda **x: da.GNI(restart_every=7, **x)),
    "pendulum": (Z.PendulumCVT(), da.GNI),
    "Suslov": (Z.Suslov(), da.LieGNI),
    "sleigh on SE(2)": (Z.GroupSleigh(), lambda **x: da.LieGNI("cayley", **x)),
}


@pytest.mark.parametrize("name", FITTING)
def test_the_same_complement_gives_the_same_states(name):
    system, make_method = FITTING[name]
    m, (q0, v0) = lower(system), system.start()
    usual, other = (
        da.simulate(system, make_method(**x), q0, v0, h=0.1, steps=60)
        for x in ({}, {"metric": lambda q: fitting(m, q)})
    )
    mass = np.asarray(system.metric(q0))
    assert np.max(np.abs(fitting(m, q0) - mass)) > 0.1  # it is another metric
    assert complement_angle(system, q0, fitting(m, q0)) < 1e-14
    # Each step solves with both matrices, of condition 100 at most: sixty times some hundred roundings of numbers
    # of size one.
    for one, two in ((usual.q, other.q), (usual.v, other.v), (usual.v_full, other.v_full)):
        np.testing.assert_allclose(two, one, rtol=0, atol=2e-12)
    assert np.max(other.constraint_residual()) < 1e-13
    # Multipliers are differences of velocities times 2/h.
    np.testing.assert_allclose(other.multipliers, usual.multipliers, rtol=0, atol=1e-10)
    assert other.method.claims(system) == usual.method.claims(system)


def test_systems_that_depend_on_time_give_the_time_to_the_metric():
    system = Z.RheonomicParticle()

    def metric(t, q):
        a = system.constraints(t, q)
        return jnp.eye(3) + (2 + jnp.sin(t)) * a.T @ a

    usual, other = (
        da.simulate(system, da.GNI(metric=g), *system.start(), h=0.1, steps=60) for g in (None, metric)
    )
    np.testing.assert_allclose(other.v_full, usual.v_full, rtol=0, atol=1e-13)  # sixty steps of rounding


@dataclass(frozen=True)
class Projected(plain.Problem):
    """A problem in NumPy whose projectors are those of another metric."""

    metric: object = None

    def projectors(self, q):
        mu, g = self.forms(q), self.metric(q)
        z = np.linalg.solve(g, mu.T)
        out = z @ np.linalg.solve(mu @ z, mu)
        return np.eye(q.size) - out, out


def sleigh_metric(q):
    """Not the kinetic complement: the contact point and the heading are orthogonal here."""
    return np.diag([1.0, 1.0, 2.0])


@pytest.mark.parametrize("kind", ["fitting", "not fitting"])
def test_the_steps_of_the_transcription_in_coordinates(kind):
    problem, system = plain.sleigh_contact(), Z.ChaplyginSleigh()

    def metric(q):
        if kind == "not fitting":
            return sleigh_metric(q)
        a, mass = problem.forms(q), problem.mass(q)
        return mass + 1.7 * a.T @ a

    own = jnp.asarray(sleigh_metric(None)) if kind == "not fitting" else None

    def traced(q):
        a = system.constraints(q)
        return system.metric(q) + 1.7 * a.T @ a if own is None else own

    method = da.GNI(metric=traced, any_complement=kind != "fitting")
    sol = da.simulate(system, method, problem.q0, problem.v0, h=0.1, steps=20)
    given = {x: getattr(problem, x) for x in ("mass", "forms", "q0", "v0", "potential")}
    q, _, u = plain.run(Projected(**given, metric=metric), 0.1, 20)
    # The transcription takes its momenta from differences of positions: eps/h in each of twenty steps.
    np.testing.assert_allclose(sol.q, q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sol.v_full, u, rtol=0, atol=1e-11)
    usual = da.simulate(system, da.GNI(), problem.q0, problem.v0, h=0.1, steps=20)
    apart = np.max(np.abs(sol.q - usual.q))
    assert apart < 1e-12 if kind == "fitting" else apart > 0.05


@pytest.mark.parametrize("kind", ["fitting", "identity"])
def test_the_steps_of_the_transcription_on_a_group(kind):
    system, group = Z.Suslov(), bodies.SO3()
    q0, v0 = system.start()
    inertia, a = np.asarray(system.inertia()), np.asarray(system.constraints(q0))
    metric = np.eye(3) if kind == "identity" else inertia + 2.5 * a.T @ a
    method = da.LieGNI(metric=lambda g: jnp.asarray(metric), any_complement=kind == "identity")
    sol = da.simulate(system, method, q0, v0, h=0.1, steps=20)
    form = lambda g: a
    p0 = bodies.lie_gni_start(group, inertia, form, q0.reshape(3, 3), np.asarray(v0), 0.1)
    rows = bodies.lie_gni_run(group, "exp", inertia, form, np.asarray(q0).reshape(3, 3), p0, 0.1, 20, metric)
    # Differences of order ten, 1e-15 each, in twenty steps.
    np.testing.assert_allclose(sol.q, [g.ravel() for g, *_ in rows], rtol=0, atol=1e-12)
    np.testing.assert_allclose(sol.v_full @ inertia, [p for _, p, *_ in rows], rtol=0, atol=1e-12)
    if kind == "identity":
        mean = np.array([(p + after) / 2 for _, p, after, _ in rows])[1:]
        np.testing.assert_allclose(sol.v[1:] @ inertia, mean, rtol=0, atol=1e-12)
        assert np.max(np.abs(mean @ np.linalg.solve(metric, a.T))) < 1e-13  # the mean momentum: A G^-1 p = 0
        assert np.max(np.abs(sol.v[1:] @ a.T)) > 0.02  # and not the velocity


@pytest.mark.parametrize(
    ("system", "method"),
    [
        (Z.Suslov(), da.LieGNI(metric=EYE, any_complement=True)),
        (Z.ChaplyginSleigh(), da.GNI(metric=EYE, any_complement=True)),
    ],
    ids=["Suslov", "sleigh"],
)
def test_what_still_holds_with_another_complement(system, method):
    """Reversibility and the laws of discrete mechanics, whose reaction is along A^T; not the rest."""
    claims, q0 = method.claims(system), system.start()[0]
    assert complement_angle(system, q0, np.eye(3)) > 0.1
    assert (claims.order, claims.energy, claims.reversible, claims.fibred) == (0, False, True, True)
    sol = da.simulate(system, method, *system.start(), h=0.1, steps=60)
    given = (system, method, 0.1, sol.q, sol.v_full)
    assert np.max(reversibility_defect(*given)) < 1e-13  # rounding of two steps
    laws = discrete_laws(*given)
    assert laws is not None
    assert max(laws.determinant, laws.symplectic, *laws.momentum.values()) < 1e-13  # some dozens of products
    energy = sol.energy(full=True)
    assert np.ptp(energy) > 0.1 * energy[0]
    assert np.max(sol.constraint_residual()) > 0.01
    errors = []
    for h in (0.05, 0.025):
        end = da.simulate(system, method, *system.start(), h=h, steps=round(2 / h)).q[-1]
        exact = da.simulate(system, da.Reference(), *system.start(), h=2.0, steps=1).q[-1]
        errors.append(np.max(np.abs(end - exact)))
    assert errors[1] > 0.9 * errors[0] > 0.01  # no order at all
    assert not method.parasitic
    with pytest.raises(ValueError, match="has no parasitic mode of this kind"):
        sol.parasitic_amplitude()


def test_the_laws_of_the_kinetic_projectors_fail_for_other_ones():
    """The measurements take the method's own projectors: with those of another method, they find a defect."""
    system = Z.Suslov()
    wrong = da.LieGNI(metric=EYE, any_complement=True)

    class Claimed(da.LieGNI):
        """It says that it projects with the kinetic metric, and does not."""

        def reflect(self, m, q, plus):
            return wrong.reflect(m, q, plus)

    sol = da.simulate(system, wrong, *system.start(), h=0.1, steps=20)
    laws = discrete_laws(system, Claimed(), 0.1, sol.q, sol.v_full)
    assert laws is not None
    assert laws.symplectic > 1e-2


@pytest.mark.parametrize("name", ["cvt-rot-0.5", "disk"])
def test_the_driver_is_undisturbed(name):
    """The one-forms, of which the reaction is a combination, have no part along the driver, whatever the metric."""
    system, q0, v0, _ = make(name)
    n = len(v0)
    r = np.random.default_rng(3).normal(size=(n, n))
    metric = jnp.asarray(np.eye(n) + 0.3 * r @ r.T)
    assert complement_angle(system, q0, metric) > 0.1
    method = da.GNI(metric=lambda q: metric, any_complement=True)
    sol = da.simulate(system, method, q0, v0, h=0.1, steps=40)
    found = fibration_defects(CoupledSystem.of(system, q0), method, 0.1, sol.q, sol.v_full, False)
    assert method.claims(system).fibred
    assert found.driver < 1e-13
    assert np.ptp(sol.energy(full=True)) > 0.1  # while the passenger's energy goes astray


def test_the_audit_says_what_is_wrong():
    system = Z.Suslov()
    with warnings.catch_warnings():
        warnings.simplefilter("error", da.MotionWarning)
        found = da.audit(system, da.LieGNI(metric=EYE, any_complement=True), h=0.1, steps=10_000)
    assert not found.broken_claims
    text = "\n".join(found.problems)
    assert "it does not converge to the motion" in text
    assert "the saved velocity leaves the constraint" in text


# What is refused.


def test_the_angle_between_two_complements():
    """Closed form for one one-form a: the cosine is a G^-1 a / sqrt((a M^-1 a) (a G^-1 M G^-1 a))."""
    body = Z.Suslov()
    q0 = body.start()[0]
    mass, a = np.asarray(body.inertia()), np.asarray(body.constraints(q0))[0]
    one, two = np.linalg.solve(mass, a), a
    cosine = a @ two / np.sqrt((a @ one) * (two @ mass @ two))
    assert complement_angle(body, q0, np.eye(3)) == pytest.approx(np.arccos(cosine), abs=1e-12)
    assert complement_angle(body, q0, 3 * mass) < 1e-15
    with pytest.raises(ValueError, match=f"differ by {np.degrees(np.arccos(cosine)):.3g} degrees"):
        da.simulate(body, da.LieGNI(metric=EYE), *body.start(), h=0.1, steps=1)


def test_angles_do_not_depend_on_the_units_of_coordinates():
    """Micrometres and megametres: the metric decides what is small."""
    scale = np.diag([1e-6, 1.0, 1e6])
    sleigh = Z.ChaplyginSleigh()
    q = jnp.array([0.3, -0.2, 0.7])

    def scaled(metric):
        return scale @ np.asarray(metric) @ scale

    same = da.system(
        coordinates=("x", "y", "theta"),
        metric=lambda q: jnp.asarray(scale) @ sleigh.metric(q) @ jnp.asarray(scale),
        constraints=lambda q: sleigh.constraints(q) @ jnp.asarray(scale),
    )
    for g in (np.eye(3), fitting(lower(sleigh), q)):
        one, two = complement_angle(sleigh, q, g), complement_angle(same, q, scaled(g))
        assert two == pytest.approx(one, abs=1e-13)


def test_a_frame_shows_the_same_angle():
    sleigh = Z.ChaplyginSleigh()
    framed = da.system(
        coordinates=("x", "y", "theta"),
        metric=lambda q: sleigh.metric(q),
        frame=lambda q: jnp.array([[jnp.cos(q[2]), 0.0], [jnp.sin(q[2]), 0.0], [0.0, 1.0]]),
    )
    q0, v0 = sleigh.start()
    assert complement_angle(framed, q0, np.eye(3)) == pytest.approx(
        complement_angle(sleigh, q0, np.eye(3)), abs=1e-14
    )
    runs = []
    for system in (framed, sleigh):
        method = da.GNI(metric=lambda q: fitting(lower(sleigh), q))
        runs.append(da.simulate(system, method, q0, v0, h=0.1, steps=40).q)
    np.testing.assert_allclose(*runs, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="another complement of D"):
        da.simulate(framed, da.GNI(metric=EYE), q0, v0, h=0.1, steps=1)


def test_a_metric_that_is_wrong_elsewhere():
    """Nearby the check before the run finds it; far away the run ends, and says why."""
    particle = Z.NonholonomicParticle()

    def at(place):
        return lambda q: jnp.eye(3) + jnp.where(q[1] > place, 0.5, 0.0) * jnp.ones((3, 3))

    with pytest.raises(ValueError, match="a configuration near the start, the two complements differ by"):
        da.simulate(particle, da.GNI(metric=at(6.0)), *particle.start(), h=0.1, steps=10)
    q0, v0 = particle.start()
    far = da.GNI(metric=at(60.0))
    sol = da.simulate(particle, far, q0, v0, h=0.1, steps=2000, throw=False)
    assert sol.status is da.Status.OTHER_COMPLEMENT
    assert 59 < sol.q[-1, 1] <= 60
    with pytest.raises(da.SimulationError, match="its complement of D is not that of the kinetic metric"):
        da.simulate(particle, far, q0, v0, h=0.1, steps=2000)
    inside = jax.jit(lambda q: da.simulate(particle, da.GNI(metric=at(-60.0)), q, v0, h=0.1, steps=3).q)(q0)
    assert np.all(np.isnan(inside[1:]))


BODY = Z.Suslov()
SLEIGH = Z.ChaplyginSleigh()
BAD = {
    "a matrix": (lambda: da.LieGNI(metric=np.eye(3)), "metric must be a function of q"),
    "a class": (lambda: da.GNI(metric=dict), "metric must be a function of q"),
    "not a truth value": (lambda: da.GNI(metric=EYE, any_complement=1), "must be True or False"),
    "nothing to allow": (lambda: da.GNI(any_complement=True), "give metric="),
    "restarts": (
        lambda: da.GNI(metric=EYE, any_complement=True, restart_every=5),
        "no velocity of the run lies in D; give one of the two",
    ),
    "shape": (lambda: run(SLEIGH, da.GNI(metric=lambda q: jnp.eye(2))), r"\(shape \(3, 3\)\), got shape \(2, 2\)"),
    "whole numbers": (lambda: run(SLEIGH, da.GNI(metric=lambda q: jnp.eye(3, dtype=int))), "real floating-point"),
    "not symmetric": (
        lambda: run(SLEIGH, da.GNI(metric=lambda q: jnp.eye(3).at[0, 1].set(0.1), any_complement=True)),
        "is not symmetric at",
    ),
    "not symmetric elsewhere": (
        lambda: run(SLEIGH, da.GNI(metric=lambda q: jnp.eye(3).at[0, 1].set(0.1 * q[0]), any_complement=True)),
        "is not symmetric at .* a configuration near the start",
    ),
    "indefinite": (
        lambda: run(BODY, da.LieGNI(metric=lambda q: jnp.diag(jnp.array([1.0, 1.0, -1.0])), any_complement=True)),
        "must be positive definite",
    ),
    "NaN": (lambda: run(SLEIGH, da.GNI(metric=lambda q: jnp.eye(3) / q[0])), "is NaN or infinite at .* the start"),
    "full turns": (
        lambda: run(SLEIGH, da.GNI(metric=lambda q: jnp.eye(3) * (1 + q[2] ** 2), any_complement=True)),
        "changes by full turns of the angles",
    ),
}  # fmt: skip


def run(system, method):
    return da.simulate(system, method, *system.start(), h=0.1, steps=1)


@pytest.mark.parametrize("name", BAD)
def test_bad_metrics(name):
    call, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        call()


def test_systems_that_need_the_kinetic_metric():
    class Bowl(da.System):
        coordinates = ("x", "y", "z")

        def metric(self, q):
            return jnp.eye(3)

        def holonomic(self, q):
            return jnp.array([q[2] - q[0] ** 2 - q[1] ** 2])

    general = da.system(
        coordinates=("x", "y", "z"),
        lagrangian=lambda q, v: jnp.sum(v**2) + 0.1 * jnp.sum(v**4),
        constraints=lambda q: jnp.array([[-q[1], 0.0, 1.0]]),
    )
    for system, words in (
        (Bowl(), "position constraints are satisfied as in RATTLE"),
        (general, "not kinetic minus potential energy"),
    ):
        method, start = da.GNI(metric=EYE), (np.array([0.0, 0.0, 0.0]), np.array([1.0, 0.5, 0.0]))
        assert da.GNI().takes(system)
        da.simulate(system, da.GNI(), *start, h=0.1, steps=1)
        with pytest.raises(ValueError, match=f"GNI with a metric of your own does not take .*{words}"):
            da.simulate(system, method, *start, h=0.1, steps=1)


def test_it_has_no_name_on_the_command_line(tmp_path):
    """A function has no spelling: the name does not make another method, neither there nor from a file."""
    method = da.GNI(metric=lambda q: 2 * SLEIGH.metric(q))
    assert method.cli_name == "gni:metric=own"
    assert da.LieGNI(metric=EYE, any_complement=True).cli_name == "lie-gni:metric=own,any-complement"
    with pytest.raises(ValueError, match="gni has no option 'metric=own'"):
        method_from_text(method.cli_name)
    sol = da.simulate(SLEIGH, method, *SLEIGH.start(), h=0.1, steps=5)
    sol.save(tmp_path / "run.zarr")
    found = da.load(tmp_path / "run.zarr", system=SLEIGH)
    assert found.method is None
    np.testing.assert_array_equal(found.v_full, sol.v_full)


def test_pairs_and_ensembles():
    """A run that continues a pair, and one of many starts, are the same as single runs."""
    method = da.LieGNI(metric=EYE, any_complement=True)
    q0, v0 = BODY.start()
    sol = da.simulate(BODY, method, q0, v0, h=0.1, steps=10)
    pair = da.simulate(BODY, method, q0, q1=sol.q[1], h=0.1, steps=10)
    np.testing.assert_allclose(pair.q, sol.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(pair.v[1:], sol.v[1:], rtol=0, atol=1e-13)
    many = da.ensemble(BODY, method, np.asarray(q0), np.stack([np.asarray(v0)] * 3), h=0.1, steps=10)
    np.testing.assert_allclose(many.member(2).v_full, sol.v_full, rtol=0, atol=1e-13)
