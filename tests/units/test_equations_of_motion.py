"""Allowed starts, accelerations and linearisations of the equations of motion; runs that end at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da

SLEIGH = da.zoo.ChaplyginSleigh()
SPINNING = da.zoo.BallOnTurntable()


class Leaning(da.System):
    """A wheel on a pendulum that stands upright: the pole falls, whatever the wheel does."""

    coordinates = ("x", "turn", "lean")
    pull: float = 2.0

    def metric(self, q):
        return jnp.array([[2.0, 0.0, jnp.cos(q[2])], [0.0, 0.5, 0.0], [jnp.cos(q[2]), 0.0, 1.5]])

    def potential(self, q):
        return self.pull * jnp.cos(q[2])

    def constraints(self, q):
        return jnp.array([[1.0, -0.3, 0.0]])


def test_the_nearest_velocity_in_the_kinetic_metric():
    """Beside the formula written out with NumPy: v - M^-1 A^T (A M^-1 A^T)^-1 A v."""
    q, v = np.array([0.3, -0.2, 0.7]), np.array([1.0, 0.4, -0.5])
    mass, a = np.asarray(SLEIGH.metric(jnp.asarray(q))), np.asarray(SLEIGH.constraints(jnp.asarray(q)))
    z = np.linalg.solve(mass, a.T)
    expected = v - z @ np.linalg.solve(a @ z, a @ v)
    found = da.start(SLEIGH, q, v)
    assert np.max(np.abs(found.v - expected)) < 1e-14  # rounding of numbers of size one
    assert np.array_equal(found.q, q)
    assert "changed" in found.words
    assert " to " in found.words
    # It is one that every run takes, and which is not changed again.
    da.simulate(SLEIGH, da.FrameGradient(), *found, h=0.1, steps=2)
    assert da.start(SLEIGH, *found).words == "nothing had to be changed"


def test_affine_constraints_are_satisfied_too():
    q, _ = SPINNING.start()
    found = da.start(SPINNING, q, np.ones(SPINNING.velocity_dimension))
    a, b = SPINNING.constraints(q), SPINNING.offsets(q)
    assert np.max(np.abs(a @ found.v - b)) < 1e-13


def test_a_velocity_is_completed_from_independent_rates():
    """The one with the least kinetic energy: no allowed velocity that keeps the rates has less."""
    q = np.array([0.3, -0.2, 0.7])
    found = da.start(SLEIGH, q, rates={"theta": 0.8})
    index = SLEIGH.coordinates.index("theta")
    assert abs(found.v[index] - 0.8) < 1e-14
    mass, a = np.asarray(SLEIGH.metric(jnp.asarray(q))), np.asarray(SLEIGH.constraints(jnp.asarray(q)))
    still = np.linalg.svd(np.concatenate([a, np.eye(3)[[index]]]))[2][2:]  # what may be added
    assert np.max(np.abs(still @ mass @ found.v)) < 1e-13
    assert "completed" in found.words


def test_rates_that_contradict_the_constraint_are_refused_with_the_nearest():
    knife = da.zoo.KnifeEdge()
    with pytest.raises(ValueError, match=r"contradict the constraint.*x1 = .*, x2 = 1, xi = 0.3"):
        da.start(knife, [0.0, 0.0, np.pi / 2], rates={"x1": 1.0, "x2": 1.0, "xi": 0.3})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "one of the two"),
        ({"v0": [0.0, 0.0, 0.0], "rates": {"x": 1.0}}, "one of the two"),
        ({"rates": {"wheel": 1.0}}, "no velocity of ChaplyginSleigh"),
        ({"v0": [1.0, 2.0]}, r"shape \(3,\)"),
        ({"v0": ["a", 1, 2]}, "real numbers"),
    ],
)
def test_bad_starts_are_told(given, words):
    with pytest.raises(ValueError, match=words):
        da.start(SLEIGH, [0.0, 0.0, 0.0], **given)


def test_acceleration_beside_differences_of_an_accurate_run():
    q0, v0 = (np.asarray(x) for x in SLEIGH.start())
    found = da.acceleration(SLEIGH, q0, v0)
    h = 1e-3
    v = np.asarray(da.simulate(SLEIGH, da.Reference(), q0, v0, h=h, steps=4).v)
    # The derivative at the first of five points; its error is h^4 |v^(5)|/5, and rounding is eps/h.
    slope = (-25 * v[0] + 48 * v[1] - 36 * v[2] + 16 * v[3] - 3 * v[4]) / (12 * h)
    assert np.max(np.abs(found.acceleration - slope)) < 1e-9
    # What the constraint adds to the motion of the same body without it.
    free = da.system(coordinates=("x", "y", "theta"), metric=SLEIGH.metric, potential=SLEIGH.potential)
    added = found.acceleration - da.acceleration(free, q0, v0).acceleration
    force = np.asarray(SLEIGH.constraints(jnp.asarray(q0))).T @ found.multipliers
    assert np.max(np.abs(np.asarray(SLEIGH.metric(jnp.asarray(q0))) @ added - force)) < 1e-13
    assert np.max(np.abs(force)) > 0.1


def test_an_upright_pole_falls_at_the_rate_of_its_closed_form():
    """With x = 0.3 turn the wheel adds 0.5/0.09 to the mass: (m J - 1) lean'' = m pull lean."""
    found = da.linearise(Leaning(), np.zeros(3), np.zeros(3))
    mass, inertia = 2.0 + 0.5 / 0.09, 1.5
    rate = np.sqrt(mass * 2.0 / (mass * inertia - 1.0))
    assert found.matrix.shape == (5, 5)
    assert abs(found.eigenvalues[0] - rate) < 1e-12
    assert abs(found.eigenvalues[-1] + rate) < 1e-12
    assert np.sum(np.abs(found.eigenvalues) < 1e-7) == 3  # where it is, and how fast it rolls
    hanging = da.linearise(Leaning(pull=-2.0), np.zeros(3), np.zeros(3))
    assert np.max(hanging.eigenvalues.real) < 1e-7  # a double zero splits by the root of rounding


def test_a_linearisation_in_motion_beside_differences_of_the_flow():
    """d/dt of how neighbours move apart, by runs of the reference from starts that differ a little."""
    q0, v0 = (np.asarray(x) for x in SLEIGH.start())
    with pytest.warns(UserWarning, match="change along this motion"):
        found = da.linearise(SLEIGH, q0, v0)
    assert not found.steady
    mass = np.asarray(SLEIGH.metric(jnp.asarray(q0)))
    assert np.max(np.abs(found.frame.T @ mass @ found.frame - np.eye(2))) < 1e-13
    # A change of the speed along the motion: all accelerations are quadratic in v, positions move with it.
    w = found.frame.T @ mass @ v0
    change = found.matrix @ np.concatenate([np.zeros(3), w])
    assert np.max(np.abs(change[:3] - v0)) < 1e-12
    free = da.acceleration(SLEIGH, q0, v0).acceleration
    turned = jax.jvp(lambda q: jnp.asarray(SLEIGH.constraints(q)), (jnp.asarray(q0),), (jnp.asarray(v0),))[1]
    assert np.max(np.abs(turned @ v0 + np.asarray(SLEIGH.constraints(q0)) @ free)) < 1e-12


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_steady_motions_in_any_units(unit):
    """A disk that rolls straight ahead is steady, at any unit of length; its eigenvalues do not depend on it."""
    disk = da.zoo.FallingDisk(radius=unit, gravity=9.81 * unit, axial=0.5 * unit**2, diametral=0.25 * unit**2)
    found = da.linearise(disk, *disk.moving(0.0, 0.0, 3.0))
    assert found.steady
    metres = da.zoo.FallingDisk(radius=1.0, gravity=9.81, axial=0.5, diametral=0.25)
    expected = da.linearise(metres, *metres.moving(0.0, 0.0, 3.0)).eigenvalues
    # Multiple zeros split by the root of rounding.
    assert np.allclose(*(np.sort(np.abs(x)) for x in (found.eigenvalues, expected)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_a_motion_whose_constraint_turns_is_not_steady(unit):
    """A disk that spins upright turns its constraint along: the eigenvalues would be wrong, and that is said."""
    disk = da.zoo.FallingDisk(radius=unit, gravity=9.81 * unit, axial=0.5 * unit**2, diametral=0.25 * unit**2)
    with pytest.warns(UserWarning, match="do not decide"):
        assert not da.linearise(disk, *disk.moving(0.0, 0.5, 0.0)).steady


def test_a_start_that_falls_is_not_steady():
    with pytest.warns(UserWarning, match="do not decide"):
        assert not da.linearise(Leaning(), np.array([0.0, 0.0, 0.3]), np.zeros(3)).steady


def test_a_run_ends_at_a_time():
    knife = da.zoo.KnifeEdge()
    one = da.simulate(knife, da.LeapFrog(), *knife.start(), h=0.1, t1=3.0)
    assert one.steps == 30
    assert abs(one.t[-1] - 3.0) < 1e-12
    later = da.simulate(knife, da.LeapFrog(), *knife.start(), h=0.1, t0=1.0, t1=3.0)
    assert later.steps == 20
    many = da.ensemble(knife, da.LeapFrog(), *(np.stack([x, x]) for x in knife.start()), h=0.1, t1=3.0)
    assert np.all(many.steps == 30)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "got neither"),
        ({"steps": 3, "t1": 0.3}, "got both"),
        ({"t1": 0.25}, "take h = 0.08333"),
        ({"t1": -1.0}, "must not be before t0"),
        ({"t1": float("nan")}, "finite"),
    ],
)
def test_ends_that_make_no_sense_are_refused(given, words):
    knife = da.zoo.KnifeEdge()
    with pytest.raises(ValueError, match=words):
        da.simulate(knife, da.LeapFrog(), *knife.start(), h=0.1, **given)


def test_steps_of_their_own_size_have_no_end_to_ask_for():
    knife = da.zoo.KnifeEdge()
    with pytest.raises(ValueError, match="the same for all steps"):
        da.simulate(knife, da.EDLA(), *knife.start(), h=0.1, t1=1.0)


class Slowing(da.System):
    """A particle in a fluid: v = v0 exp(-c t)."""

    coordinates = ("x",)
    c: float = 0.7

    def metric(self, q):
        return 2.0 * jnp.eye(1)

    def forces(self, q, v):
        return -2.0 * self.c * v


def test_the_work_of_friction_has_its_closed_form():
    """E = v0^2 exp(-2 c t); the quadrature is exact to fourth order in the time between rows."""
    errors = []
    for h in (0.2, 0.1):
        sol = da.simulate(Slowing(), da.Reference(), [0.0], [3.0], h=h, t1=4.0)
        errors.append(np.max(np.abs(np.asarray(sol.work()) - 9.0 * (np.exp(-1.4 * sol.t) - 1))))
    assert errors[1] < 1e-5
    assert np.log2(errors[0] / errors[1]) > 3.7


@pytest.mark.parametrize("system", [SPINNING, da.zoo.RheonomicParticle()], ids=["affine", "time"])
def test_energy_changes_by_the_work_of_constraints_and_time(system):
    off, changed = [], 0.0
    for h in (0.1, 0.05):
        sol = da.simulate(system, da.Reference(), *system.start(), h=h, t1=5.0)
        energy = np.asarray(sol.energy())
        off.append(np.max(np.abs(energy - energy[0] - np.asarray(sol.work()))))
        changed = np.ptp(energy)
    assert changed > 0.1
    assert off[1] < 1e-6 * changed
    assert np.log2(off[0] / off[1]) > 3.5


def test_no_work_is_done_where_the_energy_is_kept():
    sol = da.simulate(SLEIGH, da.FrameGradient(), *SLEIGH.start(), h=0.1, steps=20)
    assert not np.any(sol.work())


def test_the_work_in_an_ensemble_is_that_of_its_members():
    many = da.ensemble(
        Slowing(), da.FrameGradient(), np.zeros((2, 1)), np.array([[1.0], [3.0]]), h=0.1, steps=10
    )
    one = da.simulate(Slowing(), da.FrameGradient(), [0.0], [3.0], h=0.1, steps=10)
    assert np.asarray(many.work()).shape == (2, 11)
    assert np.max(np.abs(np.asarray(many.work())[1] - np.asarray(one.work()))) < 1e-13
