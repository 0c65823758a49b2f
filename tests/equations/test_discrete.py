"""GNI and variational DLA against transcriptions from discrete Lagrangians, on manifolds and on groups."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from equations import discrete_mechanics as reference
from equations import group_mechanics as on_groups

import dalembert as da
from dalembert.discrete import AlphaRule, Midpoint, OwnConstraint, OwnLagrangian, PointConstraint, Trapezoidal

Z = da.zoo
# Problem of the transcription, system of the zoo, and by how much the zoo's heading is turned.
PROBLEMS = {
    "particle": (reference.particle(), Z.NonholonomicParticle()),
    "particle in a potential": (
        reference.particle(harmonic=True),
        Z.NonholonomicParticle(lambda q: (q[0] ** 2 + q[1] ** 2) / 2),
    ),
    "sleigh, contact": (reference.sleigh_contact(), Z.ChaplyginSleigh()),
    "sleigh, mass centre": (reference.sleigh_centre(), Z.ChaplyginSleigh(coordinates="mass-centre")),
    "snakeboard": (reference.snakeboard(), Z.Snakeboard()),
    "snakeboard, absolute": (reference.snakeboard(relative=False), Z.Snakeboard(convention="absolute")),
    "disk": (reference.disk(), Z.RollingDisk()),
}
RULES = {
    "midpoint": (reference.midpoint, Midpoint()),
    "trapezoidal": (reference.trapezoidal, Trapezoidal()),
    "alpha": (reference.symmetrised(0.2), AlphaRule(0.2)),
}
H = 0.1


def turned(name, q):
    """The zoo's disk rolls with x1' = -cos(xi) x3': its heading is turned by pi."""
    return q + np.array([0, 0, 0, np.pi]) if name == "disk" else q


def compare(name, ours, theirs, tolerance=1e-11):
    # 1e-11 absolute over 100 steps, the bound of the specification for fixed steps; states are of order one.
    q, v, own = theirs
    assert np.max(np.abs(ours.q - turned(name, q))) < tolerance
    assert np.max(np.abs(ours.v - v)) < tolerance
    return own


# Every problem by the midpoint rule; the other rules where a potential or the metric tells them apart.
TELLING = ("particle in a potential", "sleigh, contact")
GNI_CASES = [(p, "midpoint", "half-kick") for p in PROBLEMS] + [
    (p, rule, start) for p in TELLING for rule in RULES for start in ("half-kick", "momentum")
]
DLA_CASES = [(p, "midpoint", 0.5) for p in PROBLEMS] + [
    (p, rule, alpha) for p in TELLING for rule, alpha in (("trapezoidal", 0.0), ("alpha", 0.3))
]


@pytest.mark.filterwarnings("ignore::dalembert.MotionWarning")
@pytest.mark.parametrize(("name", "rule", "start"), list(dict.fromkeys(GNI_CASES)))
def test_gni(name, rule, start):
    problem, system = PROBLEMS[name]
    theirs, ours = RULES[rule]
    run = da.simulate(system, da.GNI(ours, start=start), turned(name, problem.q0), problem.v0, h=H, steps=100)
    own = compare(name, run, reference.run(problem, H, 100, "gni", theirs, start=start))
    assert np.max(np.abs(run.v_full - own)) < 1e-11


@pytest.mark.parametrize(("name", "rule", "alpha"), DLA_CASES)
def test_variational_dla(name, rule, alpha):
    problem, system = PROBLEMS[name]
    theirs, ours = RULES[rule]
    method = da.VariationalDLA(ours, PointConstraint(alpha))
    run = da.simulate(system, method, turned(name, problem.q0), problem.v0, h=H, steps=100)
    compare(name, run, reference.run(problem, H, 100, "dla", theirs, alpha))


def test_multipliers_are_those_of_the_transcription():
    problem, system = PROBLEMS["sleigh, contact"]
    run = da.simulate(system, da.VariationalDLA(), problem.q0, problem.v0, h=H, steps=30)
    q, _, _ = reference.run(problem, H, 30, "dla")
    for k in range(1, 30):
        _, lam = reference.dla_step(problem, reference.midpoint, 0.5, q[k - 1], q[k], H)
        # The library's multiplier of the step that ends at row k + 1; rounding of second differences over h^2.
        assert abs(run.multipliers[k + 1, 0] + lam[0] / H) < 1e-10


@pytest.mark.parametrize("name", ["particle in a potential", "sleigh, contact"])
def test_the_exact_start_is_the_pair_of_the_exact_motion(name):
    problem, system = PROBLEMS[name]
    run = da.simulate(system, da.GNI(start="exact"), problem.q0, problem.v0, h=H, steps=100)
    exact = da.simulate(system, da.Reference(), problem.q0, problem.v0, h=H, steps=1).q[1]
    q, v, _ = reference.run(problem, H, 100, "gni", q1=exact)
    assert np.max(np.abs(run.q - q)) < 1e-11
    assert np.max(np.abs(run.v - v)[1:]) < 1e-11  # row 0 is the start that was given, not the pair's momentum


def test_functions_of_the_users_own_give_the_same():
    problem, system = PROBLEMS["sleigh, contact"]

    def lagrangian(system, q0, q1, h):
        return h * system.lagrangian((q0 + q1) / 2, (q1 - q0) / h)

    def constraint(system, q0, q1, h):
        return system.constraints((q0 + q1) / 2) @ (q1 - q0)

    given = (problem.q0, problem.v0)
    for own, built in (
        (da.GNI(lagrangian), da.GNI()),
        (da.VariationalDLA(lagrangian, constraint), da.VariationalDLA()),
        (
            da.VariationalDLA(OwnLagrangian(lagrangian, 2, True), OwnConstraint(constraint, True)),
            da.VariationalDLA(),
        ),
    ):
        one, two = (da.simulate(system, m, *given, h=H, steps=100) for m in (own, built))
        # Velocities from differences of positions lose eps |q|/h = 1e-14 a step.
        assert np.max(np.abs(one.q - two.q)) < 1e-11


def test_a_frame_alone_gives_the_same_motion():
    """The snakeboard by spanning vectors instead of one-forms, which are then computed, in a gauge of their own."""

    class Framed(Z.Snakeboard):
        constraints = da.System.constraints

        def frame(self, q):
            forward, turning = self._along(q)
            along = jnp.stack([forward * jnp.cos(q[2]), forward * jnp.sin(q[2]), turning, 0.0, 0.0])
            return jnp.stack([along, *jnp.eye(5)[3:]], axis=1)

    problem, system = PROBLEMS["snakeboard"]
    for method in (da.GNI(), da.VariationalDLA()):
        one, two = (da.simulate(s, method, problem.q0, problem.v0, h=H, steps=60) for s in (system, Framed()))
        assert np.max(np.abs(one.q - two.q)) < 1e-11
        assert np.max(np.abs(one.v_full - two.v_full)) < 1e-11


def test_leapfrog_is_the_gni_of_the_trapezoidal_rule():
    problem, system = PROBLEMS["particle in a potential"]
    one, two = (
        da.simulate(system, m, problem.q0, problem.v0, h=H, steps=1000)
        for m in (da.LeapFrog(), da.GNI(Trapezoidal()))
    )
    assert np.max(np.abs(one.q - two.q)) < 1e-11
    assert np.max(np.abs(one.v_full - two.v_full)) < 1e-11


def matrix_of(system, g):
    """The element as the transcription has it."""
    name = system.group.name
    if name == "SO(3)":
        return np.asarray(g).reshape(3, 3)
    return np.asarray(g)


ON_GROUPS = {
    "Suslov": (on_groups.SO3(), Z.Suslov()),
    "round body": (on_groups.SO3(), Z.RoundBody(moment=1.7)),
    "round body, quaternions": (on_groups.S3(), Z.RoundBody("S^3", moment=1.7)),
    "sleigh": (on_groups.SE2(), Z.GroupSleigh()),
    "Heisenberg": (on_groups.H3(), Z.Heisenberg()),
}
CASES = [(name, tau) for name, (_, s) in ON_GROUPS.items() for tau in s.group.retractions]


@pytest.mark.parametrize("start", ["half-kick", "momentum"])
@pytest.mark.parametrize(("name", "tau"), CASES)
def test_lie_gni_against_finite_differences(name, tau, start):
    group, system = ON_GROUPS[name]
    g0, xi0 = (np.asarray(x) for x in system.start())
    numbers = (lambda m: m.ravel()) if name in ("Suslov", "round body") else (lambda g: g)
    a = lambda g: np.asarray(system.constraints(np.asarray(numbers(g))))
    inertia = np.asarray(system.inertia())
    p0 = on_groups.lie_gni_start(group, inertia, a, matrix_of(system, g0), xi0, H, start)
    steps = 30
    rows = on_groups.lie_gni_run(group, tau, inertia, a, matrix_of(system, g0), p0, H, steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", da.MotionWarning)
        run = da.simulate(system, da.LieGNI(tau, start=start), g0, xi0, h=H, steps=steps)
    g = np.stack([numbers(row[0]) for row in rows])
    minus, plus = (np.stack([row[i] for row in rows]) for i in (1, 2))
    # Tenth-order differences of L_d: momenta good to 4e-15, which 30 steps add up; the bound asked for is 1e-10.
    assert np.max(np.abs(run.q - g)) < 1e-11
    assert np.max(np.abs(run.v_full @ inertia - minus)) < 1e-11
    assert np.max(np.abs(run.v @ inertia - 0.5 * (plus + minus))) < 1e-11


class Glider(da.GroupSystem):
    """A body in space, on SE(3), which cannot slip sideways."""

    group = da.groups.SE3()
    step = 0.1

    def inertia(self):
        turning = np.array([[0.9, 0.1, 0.0], [0.1, 1.3, 0.05], [0.0, 0.05, 1.6]])
        moving, mixed = np.diag([1.0, 1.2, 1.4]), 0.1 * np.arange(9.0).reshape(3, 3) / 8
        return np.block([[moving, mixed], [mixed.T, turning]])

    def constraints(self, g):
        return jnp.array([[0.0, 1.0, 0.0, 0.0, 0.0, 0.1], [0.0, 0.0, 1.0, 0.2, 0.0, 0.0]])


@pytest.mark.parametrize("tau", ["exp", "cayley"])
def test_lie_gni_in_space(tau):
    system, group = Glider(), on_groups.SE3()
    inertia, a = np.asarray(system.inertia()), lambda g: np.asarray(system.constraints(g))
    xi0 = np.array([0.8, -0.03, -0.04, 0.2, -0.5, 0.3])
    assert np.max(np.abs(a(None) @ xi0)) < 1e-15
    g0 = np.asarray(system.group.exp(np.array([0.3, -0.1, 0.2, 0.4, 0.1, -0.3])))
    there = np.eye(4)
    there[:3, 3], there[:3, :3] = g0[:3], g0[3:].reshape(3, 3)
    p0 = on_groups.lie_gni_start(group, inertia, a, there, xi0, H)
    rows = on_groups.lie_gni_run(group, tau, inertia, a, there, p0, H, 20)
    run = da.simulate(system, da.LieGNI(tau), g0, xi0, h=H, steps=20)
    g = np.stack([row[0] for row in rows])
    assert np.max(np.abs(run.elements - g)) < 1e-11
    assert np.max(np.abs(run.v_full @ inertia - np.stack([row[1] for row in rows]))) < 1e-11
