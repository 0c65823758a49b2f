"""Affine constraints and systems that depend on time: equal steps, the balance of energy, closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from equations import variable_steps as reference

import dalembert as da
from dalembert.diagnostics import energy_balance, measured_order
from dalembert.diagnostics.order import exact_ends
from dalembert.discrete import Trapezoidal
from dalembert.model import nearest_velocity

Z = da.zoo


class Everything(da.RheonomicSystem):
    """Metric, potential, constraint, offset and forces all depend on q and t."""

    coordinates = ("x", "y", "z")

    def metric(self, t, q):
        a, b = 0.3 * jnp.cos(q[2]), 0.1 * q[0] / (1 + q[0] ** 2)
        return jnp.array(
            [
                [2 + jnp.sin(q[1] + t), a, 0.0],
                [a, 1.5 + 0.2 * jnp.sin(t), b],
                [0.0, b, 1 + 0.3 * jnp.cos(q[0] - t)],
            ]
        )

    def potential(self, t, q):
        return jnp.sin(q[0] - t) + 0.5 * q[1] ** 2 + 0.1 * q[2] ** 2 * jnp.cos(2 * t)

    def constraints(self, t, q):
        return jnp.array([[-q[1] - 0.2 * jnp.sin(t), 0.1 * q[0], 1.0]])

    def offsets(self, t, q):
        return jnp.array([0.3 * jnp.cos(t) + 0.2 * q[0]])


class Pushed(Everything):
    """With forces too."""

    def forces(self, t, q, v):
        return jnp.array([-0.1 * v[0] + 0.05 * jnp.sin(t), 0.0, 0.1 * v[1]])


def start_of(system, q=(1.0, 0.6, 0.5), v=(1.0, 0.5, 0.6), t=0.0):
    q = jnp.array(q)
    return q, nearest_velocity(system.at(t), q, jnp.array(v))


METHODS = (da.FrameGradient(), da.VariationalDLA(), da.GNI(), da.EDLA())


@pytest.mark.parametrize(
    ("method", "tilt"),
    [(m, tilt) for m in METHODS for tilt in (0.0, 0.3) if not (m.variable_step and tilt)],
    ids=lambda x: getattr(x, "cli_name", f"tilt {x}"),
)
def test_turntable_against_its_closed_form(method, tilt):
    """Circles at 2/7 of the table's rate, cycloids where it is tilted: order 2 by every method that takes it."""
    system = Z.BallOnTurntable(tilt=tilt)
    q0, v0 = system.start()
    errors = []
    for steps in (100, 200):
        sol = da.simulate(system, method, q0, v0, h=10 / steps, steps=steps)
        exact = system.solution(sol.t, q0, v0)
        errors.append([np.max(np.abs(x - y)) for x, y in zip((sol.q, sol.v), exact, strict=True)])
        assert np.max(sol.constraint_residual()) < 1e-14
    assert np.all(np.abs(np.log2(np.divide(*errors)) - 2) < 0.1)


def test_a_tilted_table_ends_at_the_zero_of_g():
    """There the step sizes of EDLA find no root any more, as on other unsafe sets."""
    system = Z.BallOnTurntable(tilt=0.3)
    sol = da.simulate(system, da.EDLA(), *system.start(), h=0.0125, steps=1000, throw=False)
    assert sol.status is da.Status.NO_ROOT
    zero = da.edla_well_posedness(system, *system.start(), ahead=3.0).zero
    assert zero is not None
    assert abs(sol.t[-1] - zero) < 0.05 * zero


def test_the_closed_form():
    """By another road: the exact motion of the transcription, and the circle in two lines."""
    problem, system = reference.turntable(), Z.BallOnTurntable(rate=0.7)
    t = np.linspace(0, 20, 41)
    q, v = system.solution(t, problem.q0, problem.v0)
    exact = reference.motion(problem, 20.0)
    # 1e-11: DOP853 at 1e-13 over some hundred steps.
    assert np.max(np.abs(q.T - np.stack([exact(x)[0] for x in t], axis=1))) < 1e-11
    assert np.max(np.abs(v.T - np.stack([exact(x)[1] for x in t], axis=1))) < 1e-11
    assert np.max(np.abs(q.T[:2] - reference.turntable_centre(problem, t))) < 1e-13
    tilted = Z.BallOnTurntable(tilt=0.2, rate=1.3, k=0.5, mass=2.0, radius=0.7)
    q0, v0 = tilted.start()
    run = da.simulate(tilted, da.Reference(), q0, v0, h=0.5, steps=20)
    for mine, exact in zip((run.q, run.v), tilted.solution(run.t, q0, v0), strict=True):
        assert np.max(np.abs(mine - exact)) < 1e-12
    # On average it goes across the slope: downhill it comes back to where it was.
    period = 2 * np.pi / (1.3 * 0.5 / 1.5)
    ends = tilted.solution(np.array([0.0, period]), q0, v0)[0]
    assert abs(ends[1, 0] - ends[0, 0]) < 1e-12
    assert abs(ends[1, 1] - ends[0, 1]) > 1


@pytest.mark.parametrize(
    ("problem", "system"),
    [
        (reference.particle("plane", rate=0.3), Z.RheonomicParticle()),
        (reference.particle("travelling"), Z.TravellingWell()),
        (reference.turntable(), Z.BallOnTurntable(rate=0.7)),
    ],
    ids=lambda x: getattr(x, "label", ""),
)
def test_reference_and_its_multipliers(problem, system):
    exact = reference.motion(problem, 5.0)
    sol = da.simulate(system, da.Reference(), problem.q0, problem.v0, h=0.5, steps=10)
    for t, q, v, lam in zip(sol.t, sol.q, sol.v, sol.multipliers, strict=True):
        there = exact(t)
        assert np.max(np.abs(q - there[0])) < 1e-11
        assert np.max(np.abs(v - there[1])) < 1e-11
        assert np.max(np.abs(lam - problem.acceleration(t, q, v)[1])) < 1e-12


def equal_steps(problem, h, steps):
    """VariationalDLA from the transcription's equations at fixed h: positions and momenta."""
    q, t, p = problem.q0, 0.0, problem.mass(0.0, problem.q0) @ problem.v0
    y = np.concatenate([[h], h * problem.v0, np.zeros(len(problem.omega0(0.0, q)))])
    found = [q]
    for _ in range(steps):
        _, _, y = reference.eliminated(problem, 0.5, t, q, np.array([0, *p]), h, y)
        dq = y[1 : len(q) + 1]
        p = reference.slots(problem, 0.5, t, q, h, dq)[1][1:]
        q, t = q + dq, t + h
        found.append(q)
    return np.array(found)


def reflected(problem, h, steps):
    """GNI: a free flight, then p^- = p^+ reflected at the velocities with omega v + omega0 = 0."""
    none = lambda t, q: np.zeros((0, len(problem.q0) + 1, *np.shape(q[0] + t)))
    free = reference.Problem(problem.mass, none, problem.q0, problem.v0, problem.potential)
    q, t = problem.q0, 0.0
    kick = problem.omega(t, q).T @ problem.acceleration(t, q, problem.v0)[1]
    p = problem.mass(t, q) @ problem.v0 + 0.5 * h * kick
    y = np.concatenate([[h], h * problem.v0])
    found = [q]
    for _ in range(steps):
        _, _, y = reference.eliminated(free, 0.5, t, q, np.array([0, *p]), h, y)
        plus = reference.slots(free, 0.5, t, q, h, y[1:])[1][1:]
        q, t = q + y[1:], t + h
        omega, inverse = problem.omega(t, q), np.linalg.inv(problem.mass(t, q))
        excess = omega @ inverse @ plus + problem.omega0(t, q)
        p = plus - 2 * omega.T @ np.linalg.solve(omega @ inverse @ omega.T, excess)
        found.append(q)
    return np.array(found)


@pytest.mark.parametrize(
    ("problem", "system"),
    [
        (reference.particle("plane", rate=0.3), Z.RheonomicParticle()),
        (reference.turntable(), Z.BallOnTurntable(rate=0.7)),
    ],
    ids=["rheonomic particle", "turntable"],
)
def test_equal_steps_against_the_transcription(problem, system):
    for method, road in ((da.VariationalDLA(), equal_steps), (da.GNI(), reflected)):
        sol = da.simulate(system, method, problem.q0, problem.v0, h=0.1, steps=100)
        # 1e-11 over 100 steps, the specification's bound for fixed steps.
        assert np.max(np.abs(sol.q - road(problem, 0.1, 100))) < 1e-11, method.cli_name


@pytest.mark.parametrize("gradient", ["average", "gonzalez", "itoh-abe"])
def test_the_balance_of_energy_is_exact(gradient):
    """Where everything depends on everything the moving energy changes by exactly the work."""
    system = Pushed()
    q0, v0 = start_of(system)
    sol = da.simulate(system, da.FrameGradient(gradient), q0, v0, h=0.05, steps=100)
    found = energy_balance(sol)
    # Rounding: energies of order one, positions read from the rows lose eps |q|/(h |v|).
    assert found.defect < 2e-14
    assert np.max(np.abs(found.work)) > 1e-2
    assert np.max(sol.constraint_residual()) < 1e-14


def test_the_work_is_that_of_the_exact_motion():
    """The sum of the work converges to the change of the exact moving energy, at order 2."""
    system = Pushed()
    q0, v0 = start_of(system)
    exact = da.simulate(system, da.Reference(), q0, v0, h=0.4, steps=5).moving_energy()
    errors = []
    for steps in (40, 80):
        sol = da.simulate(system, da.FrameGradient(), q0, v0, h=2 / steps, steps=steps)
        errors.append(abs(np.sum(energy_balance(sol).work) - (exact[-1] - exact[0])))
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.1


def test_order_where_everything_depends_on_everything():
    system = Everything()
    exact = exact_ends(system, *start_of(system), 2.0)
    methods = (da.FrameGradient(), da.VariationalDLA(Trapezoidal()), da.GNI())
    for method in methods:
        order = measured_order(system, method, exact, 0.2)
        assert abs(order.q - 2) < 0.1, method.cli_name
        assert abs(order.v - 2) < 0.1, method.cli_name
    ends = [
        da.simulate(system, da.Composition(da.FrameGradient(), 4), *start_of(system), h=2 / n, steps=n).q[-1]
        for n in (10, 20)
    ]
    errors = [np.max(np.abs(q - exact.q1[0])) for q in ends]
    assert abs(np.log2(errors[0] / errors[1]) - 4) < 0.2


def test_the_moving_energy_is_kept_where_the_drift_is_a_symmetry():
    """The turning table: to rounding over 1e5 steps, while the energy itself changes fourfold."""
    system = Z.BallOnTurntable()
    sol = da.simulate(system, da.FrameGradient(), *system.start(), h=0.1, steps=100_000, save_every=10)
    # Rounding of 1e5 steps adds up like a random walk: 300 eps of energies of order one; 2.4e-13 is measured.
    assert np.ptp(sol.moving_energy()) < 1e-12
    assert np.ptp(sol.energy()) > 0.5
    # A table that is tilted breaks the symmetry: the balance closes, the moving energy is not kept.
    tilted = Z.BallOnTurntable(tilt=0.3)
    sol = da.simulate(tilted, da.FrameGradient(), *tilted.start(), h=0.1, steps=1000)
    assert energy_balance(sol).defect < 2e-14
    assert np.ptp(sol.moving_energy()) > 0.5


def test_one_constraint_written_three_ways():
    """A v = b by offsets, by a drift, and by a frame with a drift: the same motion."""
    ball = Z.BallOnTurntable()
    q0, v0 = ball.start()
    shared = {"coordinates": ball.coordinates, "metric": ball.metric}
    offsets = da.system(
        **shared, constraints=ball.constraints, offsets=lambda q: jnp.array([-q[1], q[0]]), name="Offsets"
    )
    columns = jnp.array([[1.0, 0, 0, 1, 0], [0, 1, -1, 0, 0], [0, 0, 0, 0, 1]]).T
    frame = da.system(**shared, frame=lambda q: columns, drift=ball.drift, name="Framed")
    for method in (da.VariationalDLA(), da.EDLA()):
        one, two = (da.simulate(s, method, q0, v0, h=0.1, steps=100) for s in (ball, offsets))
        # Rounding; EDLA's steps are known to eps E/(2 h^2 G) with G = 0.009 here.
        bound = 1e-9 if method.variable_step else 1e-12
        assert np.max(np.abs(one.q - two.q)) < bound, method.cli_name
        assert np.max(np.abs(one.v - two.v)) < bound, method.cli_name
    one, two = (da.simulate(s, da.GNI(), q0, v0, h=0.1, steps=100) for s in (ball, frame))
    assert np.max(np.abs(one.q - two.q)) < 1e-12
    # The drift without offsets is the shortest; for linear drifts and equal frames the frame gradient is the same.
    for other in (offsets, frame):
        one, two = (da.simulate(s, da.FrameGradient(), q0, v0, h=0.1, steps=100) for s in (ball, other))
        assert np.max(np.abs(one.q - two.q)) < 1e-12
        assert energy_balance(two).defect < 2e-14


def test_linear_systems_are_as_before():
    """A rheonomic system that does not use t, and offsets of zero, are the plain system."""
    plain = Z.NonholonomicParticle(lambda q: (q[0] ** 2 + q[1] ** 2) / 2)
    timed = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda t, q: jnp.eye(3),
        potential=lambda t, q: (q[0] ** 2 + q[1] ** 2) / 2,
        constraints=lambda t, q: jnp.array([[-q[1], 0.0, 1.0]]),
        offsets=lambda t, q: jnp.zeros(1),
        rheonomic=True,
    )
    for method in (
        da.FrameGradient(),
        da.VariationalDLA(),
        da.GNI(),
        da.GNI(start="exact"),
        da.EDLA(pin=False),
    ):
        one, two = (da.simulate(s, method, *plain.start(), h=0.1, steps=100) for s in (plain, timed))
        assert np.max(np.abs(one.q - two.q)) < 1e-12, method.cli_name


def test_the_clock_of_long_runs():
    """Times of equal steps are t0 + k h to the last digit, and so is the time the system sees."""
    seen = da.system(
        coordinates=("x", "y"),
        metric=lambda t, q: jnp.eye(2),
        constraints=lambda t, q: jnp.array([[0.0, 1.0]]),
        offsets=lambda t, q: jnp.array([jnp.cos(t)]),
        rheonomic=True,
    )
    sol = da.simulate(
        seen,
        da.VariationalDLA(),
        [0.0, 0.0],
        [1.0, np.cos(2.0)],
        h=0.1,
        steps=100_000,
        save_every=1000,
        t0=2.0,
    )
    assert np.array_equal(sol.t, 2.0 + 0.1 * np.arange(0, 100_001, 1000))
    # cos of the row's own time: any rounding of the clock would show as 1e-12 t.
    assert np.max(np.abs(sol.v[:, 1] - np.cos(sol.t))) < 4e-12
