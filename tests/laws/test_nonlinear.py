"""Constraints that are not linear in the velocity: Chetaev's rule, and the discrete gradient that keeps them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import nonlinear_constraints as plain

import dalembert as da
from dalembert.diagnostics import exact_ends, measured_order, step_jacobian, volume_change
from dalembert.groups import SO3
from dalembert.model import lower, multipliers, oblique_projection, orthonormal_frame, project, reaction


class Cone(da.System):
    """The system of `plain.cone`."""

    coordinates = ("x", "y", "z")
    angles = ("x", "y", "z")

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        return 0.3 * jnp.cos(q[0]) + 0.2 * jnp.sin(q[1] + q[2])

    def nonlinear(self, q, v):
        return jnp.array([v[2] ** 2 - (0.5 + 0.1 * jnp.sin(q[0])) * (v[0] ** 2 + v[1] ** 2)])


class Two(da.System):
    """The system of `plain.two_constraints`; the linear constraint is given as such."""

    coordinates = ("q0", "q1", "q2", "q3")
    angles = ("q0", "q1", "q2", "q3")

    def metric(self, q):
        a = jnp.array([jnp.sin(q[1]) / 2, jnp.cos(q[2]) / 2, 0.3, jnp.sin(q[0]) / 3])
        return jnp.diag(jnp.array([1.0, 1.2, 0.8, 1.5])) + jnp.outer(a, a)

    def potential(self, q):
        return 0.3 * jnp.cos(q[0]) + 0.2 * jnp.sin(q[3])

    def constraints(self, q):
        return jnp.array([[0.0, -0.4 * jnp.cos(q[0]), 0.0, 1.0]])

    def nonlinear(self, q, v):
        speed = jnp.sqrt(v[0] ** 2 + v[1] ** 2 + v[3] ** 2)
        return jnp.array([v[2] - (0.4 + 0.1 * jnp.cos(q[1])) * speed])


class SetSpeed(da.System):
    """The system of `plain.set_speed`, whose constraint is not homogeneous."""

    coordinates = ("x", "y")

    def metric(self, q):
        return jnp.diag(jnp.array([1 + q[1] ** 2 / 4, 1.0]))

    def potential(self, q):
        return 0.4 * jnp.sin(q[0])

    def nonlinear(self, q, v):
        return jnp.array([v @ v - 1 - 0.2 * jnp.sin(q[0])])


PROBLEMS = {
    "cone": (Cone, plain.cone),
    "two": (Two, plain.two_constraints),
    "speed": (SetSpeed, plain.set_speed),
}


def made(name):
    kind, problem = PROBLEMS[name]
    return kind(), *problem()


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_is_that_of_the_plain_transcription(name):
    system, problem, q, v = made(name)
    h, steps = 0.1, 30
    sol = da.simulate(system, da.ChetaevGradient(), q, v, h=h, steps=steps)
    for _ in range(steps):
        q, v, lam = plain.step(problem, q, v, h)
    # Both solve their equations to rounding, and a disturbance grows less than tenfold in these 30 steps.
    assert np.max(np.abs(sol.q[-1] - q)) < 1e-12
    assert np.max(np.abs(sol.v[-1] - v)) < 1e-12
    assert np.max(np.abs(sol.multipliers[-1] - lam)) < 1e-11  # a difference of velocities, divided by h


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_reference_is_the_plain_exact_motion(name):
    system, problem, q, v = made(name)
    sol = da.simulate(system, da.Reference(), q, v, h=0.1, steps=10)
    assert np.max(sol.constraint_residual()) < 1e-14, "each row is projected"
    assert np.allclose(sol.multipliers[0], plain.accelerate(problem, q, v)[1], rtol=1e-12, atol=1e-13)
    q, v = plain.exact(problem, q, v, 1.0)
    # The plain solver has a tolerance of 1e-13 per step, over some dozens.
    assert np.max(np.abs(sol.q[-1] - q)) < 1e-11
    assert np.max(np.abs(sol.v[-1] - v)) < 1e-11


@pytest.mark.parametrize("name", ["cone", "two"])
def test_energy_and_constraint_over_1e5_steps(name):
    system, problem, q, v = made(name)
    sol = da.simulate(system, da.ChetaevGradient(), q, v, h=0.02, steps=100_000, save_every=500)
    rows = [*zip(sol.near, sol.v, strict=True)]  # the coordinates are angles, and make hundreds of turns
    # Saved velocities are projected at the angles with their turns, which are rounded to 2e-13; a metric that depends
    # on them multiplies this.
    assert np.ptp([plain.energy(problem, q, v) for q, v in rows]) < (5e-12 if name == "two" else 1e-12)
    assert max(np.max(np.abs(problem.constraint(q, v))) for q, v in rows) < 1e-12


def test_without_its_correction_the_method_does_not_keep_the_energy():
    """The transcription with R itself: the energy is off by O(h^2), so the test above can fail."""
    problem, q, v = plain.cone()
    start, drifts = plain.energy(problem, q, v), []
    for h, steps in ((0.1, 30), (0.05, 60)):
        x, u = q, v
        for _ in range(steps):
            x, u, _ = plain.step(problem, x, u, h, plain=True)
        drifts.append(abs(plain.energy(problem, x, u) - start))
    assert drifts[0] > 1e-6
    assert 3 < drifts[0] / drifts[1] < 5


def test_the_balance_where_the_reaction_does_work():
    """The energy changes by h lam . (r0 + r1)/2 in every step, to rounding."""
    system, problem, q, v = made("speed")
    h = 0.1
    sol = da.simulate(system, da.ChetaevGradient(), q, v, h=h, steps=200)
    energy = np.array([plain.energy(problem, q, v) for q, v in zip(sol.q, sol.v, strict=True)])
    powers = np.array([plain.power(problem, q, v) for q, v in zip(sol.q, sol.v, strict=True)])
    work = h * np.sum(sol.multipliers[1:] * (powers[1:] + powers[:-1]) / 2, axis=1)
    assert np.max(np.abs(np.diff(energy) - work)) < 1e-14
    assert np.max(np.abs(work)) > 1e-3
    assert np.ptp(energy) > 0.1, "the energy is not conserved"
    assert np.max(np.abs(energy - energy[0] - sol.work())) < 1e-2, (
        "and sol.work() says by how much, to order 2"
    )


@pytest.mark.parametrize(
    ("name", "method", "order"),
    [
        *((name, da.ChetaevGradient(), 2) for name in PROBLEMS),
        *((name, da.Composition(da.ChetaevGradient(), 4), 4) for name in PROBLEMS),
        ("two", da.ChetaevGradient("gonzalez"), 2),
        ("two", da.ChetaevGradient("itoh-abe"), 2),
    ],
    ids=lambda x: getattr(x, "cli_name", None),
)
def test_order(name, method, order):
    system, _, q, v = made(name)
    found = measured_order(system, method, exact_ends(system, q, v, 1.0), 0.2)
    assert abs(found.q - order) < 0.1
    assert abs(found.v - order) < 0.1


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_method_is_symmetric(name):
    """A step with -h leads back; v -> -v need not be allowed."""
    system, _, q, v = made(name)
    there = da.simulate(system, da.ChetaevGradient(), q, v, h=0.1, steps=1)
    m, method = lower(system), da.ChetaevGradient()
    state = da.methods.State(jnp.asarray(there.q[-1]), jnp.asarray(there.v[-1]))
    back, _, _ = method.step(m, state, method.init(m, state, jnp.asarray(-0.1)), jnp.asarray(-0.1))
    assert np.max(np.abs(back.q - q)) < 1e-14
    assert np.max(np.abs(back.v - v)) < 1e-13


def test_appell_hamel_is_its_closed_solution():
    system = da.zoo.AppellHamel(slope=0.4, mass=2.0)
    q0, v0 = [0.1, 0.2, 0.3], system.moving(3.0, 4.0)
    for method in (da.ChetaevGradient(), da.Reference()):
        sol = da.simulate(system, method, q0, v0, h=0.02, steps=50)
        q, v = system.solution(sol.t, q0, v0)
        # A parabola, which a symmetric method of order 2 follows exactly; lengths are up to 5.
        assert np.max(np.abs(sol.q - q)) < 1e-12
        assert np.max(np.abs(sol.v - v)) < 1e-12
        assert np.max(np.abs(sol.multipliers - 2.0 * 9.8 / (1 + 0.4**2))) < 1e-11
        assert np.ptp(sol.energy()) < 1e-12
        assert np.max(sol.constraint_residual()) < 1e-14


def test_constant_speed_is_its_closed_solution():
    system = da.zoo.ConstantSpeed(speed=2.0, gravity=9.8)
    q0, v0 = np.zeros(2), system.climbing(0.9)
    errors, forces = [], []
    for method, h in ((da.Reference(), 0.01), (da.ChetaevGradient(), 0.01), (da.ChetaevGradient(), 0.005)):
        sol = da.simulate(system, method, q0, v0, h=h, steps=round(0.8 / h))
        q, v = system.solution(sol.t, q0, v0)
        errors.append(max(np.max(np.abs(sol.q - q)), np.max(np.abs(sol.v - v))))
        assert np.max(sol.constraint_residual()) < 1e-14
        assert np.ptp(sol.energy()) > 5, "the motor does work"
        # The motor's power 2 lam |v|^2 is that of gravity.
        force = 9.8 * system.solution(sol.t_multipliers, q0, v0)[1][:, 1] / (2 * 2.0**2)
        forces.append(np.max(np.abs(sol.multipliers[:, 0] - force)))
    assert errors[0] < 1e-12
    assert forces[0] < 1e-12
    assert 3.8 < forces[1] / forces[2] < 4.2
    assert 3.9 < errors[1] / errors[2] < 4.1


def test_a_rising_particle_comes_to_rest_and_its_run_says_so():
    system = da.zoo.AppellHamel(slope=0.5)
    v0 = system.moving(1.0, 0.0)
    rest = 1.0 * (1 + 0.5**2) / (0.5 * 9.8)
    sol = da.simulate(system, da.ChetaevGradient(), np.zeros(3), v0, h=0.02, steps=100, throw=False)
    assert sol.status in (da.Status.NOT_SOLVED, da.Status.NOT_FINITE)
    assert rest - 0.04 < sol.t[-1] < rest + 0.02
    assert np.ptp(sol.energy()) < 1e-13


class TestLinearConstraintsInBothForms:
    """The knife edge with its one-form given as `constraints` and as `nonlinear`."""

    class Nonlinear(da.zoo.KnifeEdge):
        constraints = da.System.constraints

        def nonlinear(self, q, v):
            return da.zoo.KnifeEdge.constraints(self, q) @ v

    def test_the_same_motion(self):
        knife = da.zoo.KnifeEdge(eps=0.3)
        q0, v0 = knife.start()
        for method in (da.Reference(), da.ChetaevGradient()):
            one, two = (
                da.simulate(x, method, q0, v0, h=0.1, steps=50) for x in (knife, self.Nonlinear(eps=0.3))
            )
            assert np.max(np.abs(one.q - two.q)) < 1e-12
            assert np.max(np.abs(one.multipliers - two.multipliers)) < 1e-11

    def test_the_velocity_stays_on_the_constraint_where_that_of_dd_leaves_it(self):
        knife = da.zoo.KnifeEdge(eps=0.3)
        here, dd = (
            da.simulate(knife, x, *knife.start(), h=0.1, steps=500)
            for x in (da.ChetaevGradient(), da.DiscreteGradient())
        )
        rows = np.array([np.asarray(knife.constraints(jnp.asarray(q)))[0] for q in dd.q])
        assert np.max(np.abs(np.sum(rows * dd.v_full, axis=1))) > 1e-4
        assert np.max(here.constraint_residual()) < 1e-14
        assert np.ptp(here.energy()) < 1e-12


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda q, v: jnp.array([v[2] - jnp.sqrt(v[0] ** 2 + v[1] ** 2)]), True),
        (lambda q, v: jnp.array([q[0] * v[2] ** 3 - v[0] * v[1] * v[2]]), True),
        (lambda q, v: jnp.array([v[2] - q[1] * v[0]]), True),
        (lambda q, v: jnp.array([v @ v - 1.0]), False),
        (lambda q, v: jnp.array([v[2] - v[0] ** 2]), False),
        (lambda q, v: jnp.array([v[2] - v[0], v @ v - 1.0]), False),
        (lambda q, v: jnp.array([v[2] ** 2 - v[0] ** 2 + 1e-6 * q[1]]), False),
    ],
)
def test_homogeneous_constraints_are_told_from_others(function, expected):
    system = da.system(coordinates=("x", "y", "z"), metric=lambda q: jnp.eye(3), nonlinear=function)
    assert lower(system).homogeneous == expected
    assert da.ChetaevGradient().claims(system).energy == expected


def test_the_audit():
    found = da.audit(da.zoo.AppellHamel(), da.ChetaevGradient(), steps=10_000)
    assert not found.broken_claims
    assert found.volume is None
    assert found.integrals["energy"].verdict.value == "exact"
    assert "homogeneous" in found.structure
    found = da.audit(da.zoo.ConstantSpeed(), da.ChetaevGradient(), steps=10_000)
    assert not found.broken_claims
    assert abs(found.order.q - 2) < 0.1
    assert "energy" not in found.integrals
    assert found.reversibility < 1e-12, "-v is allowed here"


class TestStarts:
    def test_the_nearest_velocity(self):
        """On the cone z' = |(x', y')| the velocity nearest to (a, 0, c) lies in the plane y' = 0."""
        system = da.zoo.AppellHamel(slope=1.0)
        _, v = found = da.start(system, np.zeros(3), [2.0, 0.0, 1.0])
        assert np.allclose(v, [1.5, 0.0, 1.5], rtol=0, atol=1e-14)
        assert "x from 2 to 1.5" in found.words
        sol = da.simulate(
            system, da.ChetaevGradient(), np.zeros(3), [2.0, 0.0, 1.0], h=0.01, steps=2, project=True
        )
        assert np.allclose(sol.v[0], v, rtol=0, atol=1e-14)

    def test_one_off_the_constraint_is_refused_with_the_remedy(self):
        with pytest.raises(ValueError, match=r"nonlinear\(q0, v0\) = \[.*\], expected zero. da.start"):
            da.simulate(Cone(), da.ChetaevGradient(), np.zeros(3), [1.0, 0.0, 0.5], h=0.1, steps=1)

    def test_the_vertex_is_refused(self):
        for system in (da.zoo.AppellHamel(), Cone()):
            with pytest.raises(ValueError, match="where the constraint is a cone, this is its vertex"):
                da.simulate(system, da.ChetaevGradient(), np.zeros(3), np.zeros(3), h=0.1, steps=1)
        with pytest.raises(ValueError, match="no velocity near v0"):
            da.start(da.zoo.AppellHamel(), np.zeros(3), np.zeros(3))

    def test_a_loss_of_rank_is_refused(self):
        twice = da.system(
            coordinates=("x", "y", "z"),
            metric=lambda q: jnp.eye(3),
            nonlinear=lambda q, v: jnp.array([v @ v - 1.0, 2.0 * jnp.sqrt(v @ v) - 2.0]),
        )
        with pytest.raises(ValueError, match=r"linearly dependent \(rank deficient\) at the start"):
            da.simulate(twice, da.ChetaevGradient(), np.zeros(3), [1.0, 0.0, 0.0], h=0.1, steps=1)

    def test_members_off_the_constraint_are_named(self):
        v = np.array([[1.0, 0.0, -0.5], [1.0, 0.0, -0.4]])
        with pytest.raises(ValueError, match=r"violates the constraint for 1 member \(1\)"):
            da.ensemble(da.zoo.AppellHamel(), da.ChetaevGradient(), np.zeros(3), v, h=0.1, steps=1)

    def test_rates_complete_linear_constraints_only(self):
        with pytest.raises(ValueError, match="rates completes a velocity for linear constraints"):
            da.start(Cone(), np.zeros(3), rates={"x": 1.0})


class TestRefusals:
    @pytest.mark.parametrize(
        "method",
        [da.FrameGradient(), da.GNI(), da.LeapFrog(), da.DLA(), da.DLA01(), da.DiscreteGradient(), da.EDLA(),
         da.VariationalDLA(), da.Composition(da.FrameGradient(), 4)],
        ids=lambda x: x.cli_name,
    )  # fmt: skip
    def test_methods_for_linear_constraints(self, method):
        message = r"linear in the velocity, but Cone gives nonlinear\(q, v\). Use ChetaevGradient\(\) or Reference\(\)"
        _, q, v = plain.cone()
        with pytest.raises(ValueError, match=message):
            da.simulate(Cone(), method, q, v, h=0.1, steps=1)

    def test_measurements_of_linear_constraints(self):
        _, q, v = plain.cone()
        with pytest.raises(ValueError, match="not a linear space"):
            da.nonholonomy(Cone(), q)
        with pytest.raises(ValueError, match=r"linearise.*Cone gives nonlinear\(q, v\)"):
            da.linearise(Cone(), q, v)
        with pytest.raises(ValueError, match="not linear in the velocity"):
            da.CoupledSystem.of(Cone(), q)
        with pytest.raises(
            ValueError, match=r"linear in the velocity, but AppellHamel gives nonlinear\(q, v\)"
        ):
            da.reduce(da.zoo.AppellHamel(), da.VariationalDLA(), da.Symmetry(da.groups.Rn(2), on=("x", "y")))

    def test_whatever_needs_a_linear_space_of_velocities(self):
        """At the root, so that nothing can measure the constraint's linear part alone."""
        _, q, v = plain.cone()
        rows = np.stack([q, q]), np.stack([v, v])
        message = "Cone gives nonlinear.*not a linear space"
        for measure in (step_jacobian, volume_change):
            with pytest.raises(ValueError, match=message):
                measure(Cone(), da.ChetaevGradient(), 0.1, *rows)
        m = lower(Cone())
        for function in (
            lambda: m.frame(q), lambda: project(m, q, v), lambda: multipliers(m, q, v),
            lambda: reaction(m, q, v[:1]), lambda: orthonormal_frame(m, q), lambda: oblique_projection(m, q, q, v),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=message):
                function()

        class Sections(Cone):
            def generators(self, q):
                return jnp.eye(3)

            def sections(self):
                return {"x": lambda q: jnp.array([1.0, 0.0, 0.0])}

        with pytest.raises(ValueError, match=r"give conserved momenta as integrals\(\)"):
            da.simulate(Sections(), da.ChetaevGradient(), q, v, h=0.1, steps=1)

    def test_descriptions(self):
        def system(nonlinear, **more):
            return da.system(
                coordinates=("x", "y", "z"), metric=lambda q: jnp.eye(3), nonlinear=nonlinear, **more
            )

        with pytest.raises(ValueError, match=r"nonlinear must take \(q, v\)"):
            system(lambda q: q)

        def run(made):
            da.simulate(made, da.Reference(), np.zeros(3), np.ones(3), h=0.1, steps=1)

        with pytest.raises(ValueError, match="write even a single one as an array"):
            run(system(lambda q, v: v @ v - 3.0))
        with pytest.raises(ValueError, match="2 nonlinear and position constraints leave no motion"):
            run(
                system(
                    lambda q, v: jnp.array([v @ v - 3.0, v[0] ** 2 - 1.0]),
                    constraints=lambda q: jnp.array([[1.0, -1.0, 0.0]]),
                )
            )

        class Misspelt(da.System):
            coordinates = ("x", "y", "z")

            def metric(self, q):
                return jnp.eye(3)

            def nonlinear_constraints(self, q, v):
                return v[:1]

        with pytest.raises(ValueError, match="did you mean nonlinear"):
            run(Misspelt())


def test_with_position_constraints_and_time():
    """A bead on a sphere whose speed is given as a function of time: the reference takes everything."""

    class Bead(da.RheonomicSystem):
        coordinates = ("x", "y", "z")

        def metric(self, t, q):
            return jnp.eye(3)

        def holonomic(self, t, q):
            return jnp.array([q @ q - 1.0])

        def nonlinear(self, t, q, v):
            return jnp.array([v @ v - (1 + t) ** 2])

    sol = da.simulate(Bead(), da.Reference(), [1.0, 0.0, 0.0], [0.0, 0.6, 0.8], h=0.1, steps=10)
    way = sol.t + sol.t**2 / 2
    # A great circle with this speed, because no force acts across it.
    expected = np.stack([np.cos(way), 0.6 * np.sin(way), 0.8 * np.sin(way)], axis=1)
    assert np.max(np.abs(sol.q - expected)) < 1e-12
    assert np.max(sol.constraint_residual()) < 1e-14
    assert np.max(sol.position_residual()) < 1e-14
    # The motor's force is 1 along v, so that its multiplier is 1/(2 |v|); that of the sphere is -|v|^2/2.
    assert np.max(np.abs(sol.velocity_multipliers[:, 0] - 1 / (2 * (1 + sol.t)))) < 1e-12
    assert np.max(np.abs(sol.position_multipliers[:, 0] + (1 + sol.t) ** 2 / 2)) < 1e-12


def test_on_a_group():
    """A round body on SO(3) whose angular speed is one turns about a fixed axis."""

    class Round(da.GroupSystem):
        group = SO3()

        def inertia(self):
            return jnp.eye(3)

        def nonlinear(self, g, xi):
            return jnp.array([xi @ xi - 1.0])

    axis = np.array([0.6, 0.0, 0.8])
    sol = da.simulate(Round(), da.Reference(), SO3().identity(), axis, h=0.1, steps=10)
    assert np.max(np.abs(sol.q[-1] - SO3().exp(jnp.asarray(axis)))) < 1e-12
    with pytest.raises(ValueError, match=r"Chart carries linear constraints, but Round gives nonlinear"):
        da.Chart(Round(), SO3().identity())
    with pytest.raises(ValueError, match="ChetaevGradient works in coordinates"):
        da.simulate(Round(), da.ChetaevGradient(), SO3().identity(), axis, h=0.1, steps=1)


def test_ensembles_derivatives_and_files(tmp_path):
    system, _, q, v = made("cone")
    many = da.ensemble(system, da.ChetaevGradient(), q, np.outer([1.0, 0.7], v), h=0.1, steps=20)
    one = da.simulate(system, da.ChetaevGradient(), q, 0.7 * v, h=0.1, steps=20)
    assert np.max(np.abs(many.q[1] - one.q)) < 1e-14

    def end(scale):
        return da.simulate(system, da.ChetaevGradient(), q, scale * v, h=0.1, steps=20).q[-1][0]

    slope, step = jax.grad(end)(1.0), 1e-4
    assert abs(slope - (end(1 + step) - end(1 - step)) / (2 * step)) < 1e-6 * abs(slope)  # about step^2
    one.save(tmp_path / "run.zarr")
    back = da.load(tmp_path / "run.zarr", system=system)
    assert np.array_equal(back.q, one.q)
    assert np.array_equal(back.multipliers, one.multipliers)


def test_forces_are_taken():
    class Damped(Cone):
        def forces(self, q, v):
            return -0.3 * v

    _, q, v = plain.cone()
    found = measured_order(Damped(), da.ChetaevGradient(), exact_ends(Damped(), q, v, 1.0), 0.2)
    assert abs(found.q - 2) < 0.1
