"""Position constraints beside velocity constraints: the motion stays on the surface, and keeps its energy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import position_constraints as plain

import dalembert as da


class Blade(da.System):
    """A blade that slides in the bowl z = 1 - cos(x) cos(y)."""

    coordinates = ("x", "y", "z", "heading")
    angles = ("heading",)
    step = 0.02
    gravity: float = 9.8

    def metric(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 1.0, 0.1]))

    def potential(self, q):
        return self.gravity * q[2]

    def holonomic(self, q):
        return jnp.array([q[2] - 1 + jnp.cos(q[0]) * jnp.cos(q[1])])

    def constraints(self, q):
        return jnp.array([[-jnp.sin(q[3]), jnp.cos(q[3]), 0.0, 0.0]])

    def starts(self):
        _, q0, v0 = plain.blade_in_bowl()
        return {"default": (q0, v0)}


class FramedBlade(Blade):
    """The same blade, with a frame of the velocities that the blade alone allows instead of its one-form."""

    constraints = da.System.constraints

    def frame(self, q):
        zero, one = jnp.zeros(()), jnp.ones(())
        ahead = jnp.stack([jnp.cos(q[3]), jnp.sin(q[3]), zero, zero])
        return jnp.stack(
            [ahead, jnp.stack([zero, zero, one, zero]), jnp.stack([zero, zero, zero, one])], axis=1
        )


class Varying(da.System):
    """The system of `varying_mass`: a metric that depends on q, two surfaces and a one-form."""

    coordinates = ("q0", "q1", "q2", "q3", "q4")

    def metric(self, q):
        a = jnp.array([jnp.sin(q[1]), jnp.cos(q[2]), q[0] / 2, 0.3, jnp.sin(q[3])])
        return jnp.diag(jnp.array([1.0, 1.2, 0.8, 1.5, 0.6])) + jnp.outer(a, a)

    def potential(self, q):
        return q[0] ** 2 / 2 + q[1] ** 2 + jnp.cos(q[2]) + q[3] * q[4]

    def holonomic(self, q):
        first = q[2] - 0.3 * q[0] ** 2 - 0.2 * jnp.sin(q[1])
        return jnp.stack([first, q[3] ** 2 + q[4] ** 2 + 0.2 * jnp.sin(q[0]) - 1])

    def constraints(self, q):
        return jnp.array([[jnp.cos(q[3]), jnp.sin(q[3]), 0.4 * q[1], 0.0, 0.5]])


class Rod(da.GroupSystem):
    """A rod of SO(3) x R^3 whose tip stays at the origin."""

    group = da.groups.Product(da.groups.SO3(), da.groups.Rn(3))

    def inertia(self):
        return jnp.diag(jnp.array([0.4, 0.5, 0.6, 1.0, 1.0, 1.0]))

    def potential(self, q):
        return 9.8 * q[11]

    def holonomic(self, q):
        return q[9:] + q[:9].reshape(3, 3) @ jnp.array([0.0, 0.0, 1.0])


class Pendulums(da.System):
    """A spherical double pendulum in Cartesian coordinates: position constraints alone."""

    coordinates = ("x1", "y1", "z1", "x2", "y2", "z2")

    def metric(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 1.0, 0.7, 0.7, 0.7]))

    def potential(self, q):
        return 9.8 * (q[2] + 0.7 * q[5])

    def holonomic(self, q):
        upper, lower = q[:3], q[3:] - q[:3]
        return jnp.stack([upper @ upper - 1.0, lower @ lower - 0.64]) / 2


PROBLEMS = {
    "blade": (Blade, plain.blade_in_bowl),
    "framed": (FramedBlade, plain.blade_in_bowl),
    "varying": (Varying, plain.varying_mass),
    "pendulums": (Pendulums, plain.pendulum_pair),
}


def made(name):
    kind, problem = PROBLEMS[name]
    return kind(), *problem()


def residuals(problem, sol):
    """The largest |c|, |dc v| and |A v| along a run, by the plain functions."""
    surface = max(np.max(np.abs(problem.surface(q))) for q in sol.q)
    rows = max(np.max(np.abs(plain.constraints(problem, q) @ v)) for q, v in zip(sol.q, sol.v, strict=True))
    return surface, rows


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_is_that_of_the_plain_transcription(name):
    system, problem, q, v = made(name)
    h, steps = 0.05, 50
    sol = da.simulate(system, da.FrameGradient(), q, v, h=h, steps=steps)
    for _ in range(steps):
        q, v = plain.step(problem, q, v, h)
    # Both solve their equations to rounding, and a disturbance grows less than threefold in these 50 steps.
    assert np.max(np.abs(sol.q[-1] - q)) < 1e-12
    assert np.max(np.abs(sol.v[-1] - v)) < 1e-12


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_reference_is_the_plain_exact_motion(name):
    system, problem, q, v = made(name)
    sol = da.simulate(system, da.Reference(), q, v, h=0.1, steps=10)
    q, v = plain.exact(problem, q, v, 1.0)
    assert (
        np.max(np.abs(sol.q[-1] - q)) < 1e-11
    )  # the plain solver's tolerance of 1e-13 per step, over some dozens
    assert np.max(np.abs(sol.v[-1] - v)) < 1e-11
    surface, rows = residuals(problem, sol)
    assert max(surface, rows) < 1e-14, "each row is projected"


@pytest.mark.parametrize("name", PROBLEMS)
def test_surface_constraints_and_energy_over_1e5_steps(name):
    system, problem, q, v = made(name)
    sol = da.simulate(system, da.FrameGradient(), q, v, h=0.01, steps=100_000, save_every=100)
    surface, rows = residuals(problem, sol)
    assert surface < 1e-13
    assert rows < 1e-13
    assert np.max(sol.position_residual()) < 1e-13
    assert np.max(sol.constraint_residual()) < 1e-13
    energy = sol.energy()
    # Kinetic and potential energy, each about as large as the total, are rounded in each of the 1e5 steps.
    size = np.max(np.abs(energy)) + np.ptp([problem.potential(x) for x in sol.q])
    assert np.max(np.abs(energy - energy[0])) < 1e-12 * size


@pytest.mark.parametrize("name", PROBLEMS)
def test_order_two_in_positions_and_velocities(name):
    system, problem, q, v = made(name)
    exact = plain.exact(problem, q, v, 1.0)
    errors = []
    for h in (1 / 80, 1 / 160):
        sol = da.simulate(system, da.FrameGradient(), q, v, h=h, t1=1.0)
        errors.append([np.max(np.abs(x[-1] - y)) for x, y in zip((sol.q, sol.v), exact, strict=True)])
    orders = np.log2(np.divide(*errors))
    assert np.all(np.abs(orders - 2) < 0.01), orders  # the next term is h^2 times smaller


@pytest.mark.parametrize("gradient", ["gonzalez", "itoh-abe"])
def test_other_discrete_gradients_keep_the_surface_too(gradient):
    system, problem, q, v = made("varying")
    method = da.FrameGradient(gradient)
    sol = da.simulate(system, method, q, v, h=0.05, steps=2000)
    assert max(residuals(problem, sol)) < 1e-13
    assert np.ptp(sol.energy()) < 1e-12 * np.max(np.abs(sol.energy()))


def test_compositions_keep_the_surface_and_have_their_order():
    system, problem, q, v = made("varying")
    exact = plain.exact(problem, q, v, 1.0)
    errors = []
    for h in (0.1, 0.05):
        sol = da.simulate(system, da.Composition(da.FrameGradient(), 4), q, v, h=h, t1=1.0)
        errors.append(np.max(np.abs(sol.q[-1] - exact[0])))
        assert max(residuals(problem, sol)) < 1e-13
    assert abs(np.log2(errors[0] / errors[1]) - 4) < 0.2  # coarse steps


def test_velocity_rows_alone_drift_off_the_surface():
    """What users had to write before, the derivative of c among the one-forms, leaves the surface by O(h^2)."""

    class Rows(Blade):
        holonomic = da.System.holonomic

        def constraints(self, q):
            slope = jax.jacobian(lambda x: Blade.holonomic(self, x))(q)
            return jnp.concatenate([Blade.constraints(self, q), slope])

    _, problem, q, v = made("blade")
    sol = da.simulate(Rows(), da.FrameGradient(), q, v, h=0.02, steps=1000)
    surface, rows = residuals(problem, sol)
    assert surface > 1e-6
    assert rows < 1e-13
    assert not np.any(sol.position_residual()), "no position constraints were given"


def test_steps_go_back():
    system, _, q, v = made("varying")
    sol = da.simulate(system, da.FrameGradient(), q, v, h=0.05, steps=100)
    back = da.simulate(system, da.FrameGradient(), sol.q[-1], -sol.v[-1], h=0.05, steps=100)
    assert np.max(np.abs(back.q[-1] - q)) < 1e-11  # rounding, which grows on the way
    assert np.max(np.abs(back.v[-1] + v)) < 1e-11


def works(system, method, sol, h):
    """The work that the method says each step does."""
    m = da.model.lower(system)
    one = jax.jit(jax.vmap(lambda t, a, b: method.work(m, t, a, (b - a) / h, jnp.asarray(h))))
    return np.asarray(one(sol.t[:-1], sol.q[:-1], sol.q[1:]))


def test_forces_do_their_work_and_keep_the_surface():
    class Damped(Varying):
        def forces(self, q, v):
            return -0.3 * v

    _, problem, q, v = made("varying")
    method = da.FrameGradient()
    sol = da.simulate(Damped(), method, q, v, h=0.05, steps=200)
    assert max(residuals(problem, sol)) < 1e-13
    work = works(Damped(), method, sol, 0.05)
    assert np.max(np.abs(np.diff(sol.energy()) - work)) < 1e-14  # the balance of a step, to rounding
    assert sol.energy()[-1] < sol.energy()[0] - 0.1


class Wire(da.RheonomicSystem):
    """A bead on a wire that turns about the vertical: c = sin(t + a) x - cos(t + a) y, with z = (x^2 + y^2)/2."""

    coordinates = ("x", "y", "z")

    def metric(self, t, q):
        return jnp.eye(3)

    def potential(self, t, q):
        return 9.8 * q[2]

    def holonomic(self, t, q):
        angle = 0.7 * t + 0.1 * jnp.sin(t)
        across = jnp.sin(angle) * q[0] - jnp.cos(angle) * q[1]
        return jnp.stack([across, q[2] - 0.5 * (q[0] ** 2 + q[1] ** 2)])


def test_a_surface_that_moves():
    """The distance r from the axis obeys (1 + r^2) r'' + r r'^2 = r (w^2 - g), whatever the wire's rate w(t)."""
    from scipy.integrate import solve_ivp

    def field(t, y):
        r, rate = y
        w = 0.7 + 0.1 * np.cos(t)
        return [rate, (r * w**2 - 9.8 * r - r * rate**2) / (1 + r**2)]

    r = solve_ivp(field, (0, 2), [0.8, 0.3], method="DOP853", rtol=1e-13, atol=1e-14).y[0, -1]
    start = da.start(Wire(), [0.8, 0.0, 0.32], rates={"x": 0.3})
    assert abs(start.v[1] - 0.8 * 0.8) < 1e-14, "the wire carries the bead along: w(0) = 0.8"
    reference = da.simulate(Wire(), da.Reference(), *start, h=0.1, t1=2.0)
    assert abs(np.hypot(*reference.q[-1, :2]) - r) < 1e-10
    errors = []
    for h in (0.02, 0.01):
        sol = da.simulate(Wire(), da.FrameGradient(), *start, h=h, t1=2.0)
        errors.append(abs(np.hypot(*sol.q[-1, :2]) - r))
        assert np.max(sol.position_residual()) < 1e-14
        assert np.max(sol.constraint_residual()) < 1e-13  # velocities of size three
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.05


def test_work_of_a_surface_that_moves():
    start = da.start(Wire(), [0.8, 0.0, 0.32], rates={"x": 0.3})
    h, method = 0.05, da.FrameGradient()
    sol = da.simulate(Wire(), method, *start, h=h, steps=40)
    moving, work = sol.moving_energy(), works(Wire(), method, sol, h)
    # Energies of about 10; (b - a)/h has lost two digits.
    assert np.max(np.abs(np.diff(moving) - work)) < 1e-13
    assert np.ptp(moving) > 0.01, "the wire does work"


def test_multipliers_of_both_kinds():
    """At rest at the bottom of the bowl the surface carries the weight; a turning blade pushes sideways."""
    blade = Blade()
    still = da.simulate(blade, da.FrameGradient(), np.zeros(4), np.zeros(4), h=0.1, steps=2)
    assert np.allclose(still.position_multipliers, 9.8, rtol=0, atol=1e-14)
    assert np.allclose(still.velocity_multipliers, 0, rtol=0, atol=1e-14)
    _, problem, q, v = made("blade")
    sol = da.simulate(blade, da.FrameGradient(), q, v, h=0.01, steps=10)
    assert sol.velocity_multipliers.shape == sol.position_multipliers.shape == (11, 1)
    assert np.array_equal(
        sol.multipliers, np.concatenate([sol.velocity_multipliers, sol.position_multipliers], axis=1)
    )
    # The constraint force is what is missing in the free motion: M a + grad V, by the plain equations.
    a = plain.accelerate(problem, q, v)
    force = problem.mass(q) @ a + problem.gradient(q)
    made_of = (
        problem.rows(q).T @ sol.velocity_multipliers[0] + problem.slopes(q).T @ sol.position_multipliers[0]
    )
    assert np.max(np.abs(made_of - force)) < 1e-13
    assert abs(sol.velocity_multipliers[0, 0]) > 0.1


class TestStarts:
    def test_a_start_off_the_surface_is_refused_with_the_remedy(self):
        system, _, q, v = made("blade")
        with pytest.raises(ValueError, match=r"holonomic\(q0\) = \[0.1\].*da.start\(system, q0, v0\) finds"):
            da.simulate(system, da.FrameGradient(), q + 0.1 * np.eye(4)[2], v, h=0.1, steps=1)

    @pytest.mark.parametrize("off", [1e-6, 1e-3, 0.3])
    def test_the_nearest_start(self, off):
        """The change is normal to the surface, in the metric, and the new start is on it."""
        system, problem, q, v = made("varying")
        wrong = q + off * np.array([1.0, -2.0, 0.5, 0.3, 1.0])
        found = da.start(system, wrong, v)
        M = problem.mass(wrong)
        assert np.max(np.abs(problem.surface(found.q))) < 1e-15
        assert np.max(np.abs(plain.constraints(problem, found.q) @ found.v)) < 1e-15
        normal = problem.slopes(found.q).T
        force = M @ (found.q - wrong)
        rest = force - normal @ np.linalg.lstsq(normal, force, rcond=None)[0]
        assert np.linalg.norm(rest) < 1e-12 * np.linalg.norm(force) + 1e-15
        assert "changed the configuration: " in found.words
        assert np.allclose(found.v, plain.allowed(problem, found.q, v), rtol=0, atol=1e-14)

    def test_only_the_named_coordinates_change(self):
        system, _, q, v = made("blade")
        wrong = q + 0.2 * np.eye(4)[2]
        found = da.start(system, wrong, v, change=("z",))
        assert np.array_equal(found.q[[0, 1, 3]], wrong[[0, 1, 3]])
        assert abs(found.q[2] - q[2]) < 1e-15
        assert "z from" in found.words
        assert "x from 1 to" not in found.words.split(";")[0]

    def test_a_good_start_stays_as_it_is(self):
        system, _, q, v = made("blade")
        found = da.start(system, q, v)
        assert np.array_equal(found.q, q)
        assert found.words == "nothing had to be changed"

    def test_project_does_the_same(self):
        system, problem, q, v = made("varying")
        wrong = q + 0.01
        sol = da.simulate(system, da.FrameGradient(), wrong, v, h=0.05, steps=3, project=True)
        found = da.start(system, wrong, v)
        assert np.allclose(sol.q[0], found.q, rtol=0, atol=1e-15)
        assert np.allclose(sol.v[0], found.v, rtol=0, atol=1e-14)
        assert max(residuals(problem, sol)) < 1e-14

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"change": "z"}, "must list names"),
            ({"change": ("w",)}, "'w', which is no coordinate"),
            ({"change": ()}, "1 position constraints, which 0 coordinates cannot satisfy"),
        ],
    )
    def test_bad_choices_of_coordinates(self, options, words):
        system, _, q, v = made("blade")
        with pytest.raises(ValueError, match=words):
            da.start(system, q, v, **options)
        with pytest.raises(ValueError, match="no position constraints"):
            da.start(da.zoo.KnifeEdge(), np.zeros(3), np.zeros(3), change=("x",))

    def test_a_surface_that_cannot_be_reached(self):
        class Never(Pendulums):
            def holonomic(self, q):
                return jnp.array([q[0] ** 2 + 1.0])

        with pytest.raises(
            ValueError, match="no configuration near q0 that satisfies the position constraints"
        ):
            da.start(Never(), np.ones(6), np.zeros(6))
        with pytest.raises(ValueError, match="no configuration near q0"):
            da.simulate(Never(), da.FrameGradient(), np.ones(6), np.zeros(6), h=0.1, steps=1, project=True)

    def test_a_member_off_the_surface_is_named(self):
        system, _, q, v = made("blade")
        starts = np.stack([q, q, q + 0.1 * np.eye(4)[2]])
        with pytest.raises(ValueError, match=r"position constraints for 1 member \(2\)"):
            da.ensemble(system, da.FrameGradient(), starts, np.stack([v] * 3), h=0.1, steps=2)

    def test_inside_other_code_a_start_off_the_surface_gives_nan(self):
        system, _, q, v = made("blade")

        def end(z):
            sol = da.simulate(system, da.FrameGradient(), jnp.asarray(q).at[2].add(z), v, h=0.1, steps=2)
            return sol.q[-1], sol.status

        state, status = jax.jit(end)(0.1)
        assert np.all(np.isnan(state))
        assert int(status) == da.Status.OFF_SURFACE.code
        state, status = jax.jit(end)(0.0)
        assert np.all(np.isfinite(state))
        assert int(status) == 0

    def test_ten_digits_are_enough(self):
        """A start that is typed with ten digits is taken, and the first step brings it onto the surface."""
        system, problem, q, v = made("blade")
        typed = np.array([float(f"{x:.10g}") for x in q])
        v = plain.allowed(problem, typed, v)
        sol = da.simulate(system, da.FrameGradient(), typed, v, h=0.1, steps=2)
        assert np.max(np.abs(problem.surface(sol.q[0]))) > 1e-12
        assert np.max(np.abs(problem.surface(sol.q[1]))) < 1e-15


class TestDescriptions:
    def test_a_number_instead_of_an_array(self):
        class Scalar(Blade):
            def holonomic(self, q):
                return q[2] - 1 + jnp.cos(q[0]) * jnp.cos(q[1])

        with pytest.raises(
            ValueError, match=r"holonomic must return shape \(k,\).*got shape \(\).*jnp.array"
        ):
            da.simulate(Scalar(), da.FrameGradient(), *Blade().start(), h=0.1, steps=1)

    def test_too_many(self):
        class Stuck(Blade):
            def holonomic(self, q):
                return jnp.stack([q[0], q[1], q[2], q[0] + jnp.sin(q[3])])

        with pytest.raises(ValueError, match="position constraints leave no motion: 4 of them"):
            da.simulate(Stuck(), da.FrameGradient(), np.zeros(4), np.zeros(4), h=0.1, steps=1)

    def test_a_blade_that_is_held_in_place_turns(self):
        """Where x = y = 0 holds, the blade's own constraint follows from it."""

        class Held(Blade):
            def holonomic(self, q):
                return jnp.stack([q[0], q[1], q[2]])

        with pytest.warns(da.ConstraintWarning, match=r"constraints\[0\] follows from holonomic\[1\]"):
            sol = da.simulate(Held(), da.FrameGradient(), np.zeros(4), [0, 0, 0, 1.0], h=0.1, steps=20)
        np.testing.assert_allclose(sol.q[-1], [0, 0, 0, 2.0], rtol=0, atol=1e-14)

    def test_a_derivative_that_is_also_a_one_form_is_told(self):
        class Twice(Blade):
            def constraints(self, q):
                return jnp.concatenate([Blade.constraints(self, q), jax.jacobian(self.holonomic)(q)])

        with pytest.warns(da.ConstraintWarning, match=r"constraints\[1\] follows from holonomic\[0\]"):
            sol = da.simulate(Twice(), da.FrameGradient(), *Blade().start(), h=0.1, steps=20)
        np.testing.assert_allclose(
            sol.q, da.simulate(Blade(), da.FrameGradient(), *Blade().start(), h=0.1, steps=20).q, atol=1e-13
        )

    def test_a_one_form_that_is_a_derivative_only_here_is_refused(self):
        class Here(Blade):
            def constraints(self, q):
                more = jax.jacobian(self.holonomic)(q).at[0, 3].set(q[0] - self.start()[0][0])
                return jnp.concatenate([Blade.constraints(self, q), more])

        with pytest.raises(ValueError, match=r"and the one-forms are linearly dependent.*need not be among"):
            da.simulate(Here(), da.FrameGradient(), *Blade().start(), h=0.1, steps=1)

    def test_the_vertex_of_a_cone_is_refused(self):
        class Cone(Blade):
            def holonomic(self, q):
                return jnp.array([q[2] ** 2 - q[0] ** 2 - q[1] ** 2])

        with pytest.raises(ValueError, match="linearly dependent"):
            da.simulate(Cone(), da.FrameGradient(), np.zeros(4), [0, 0, 0, 1.0], h=0.1, steps=1)

    def test_an_angle_in_which_the_surface_is_not_periodic(self):
        class Ramp(Blade):
            def holonomic(self, q):
                return jnp.array([q[2] - 0.1 * q[3]])

        with pytest.raises(ValueError, match="heading is declared an angle, but holonomic changes"):
            da.simulate(Ramp(), da.FrameGradient(), np.zeros(4), np.zeros(4), h=0.1, steps=1)

    def test_names_that_are_almost_right(self):
        class Misspelt(da.System):
            coordinates = ("x", "y")

            def metric(self, q):
                return jnp.eye(2)

            def holonomics(self, q):
                return jnp.array([q[0]])

        with pytest.raises(ValueError, match="did you mean holonomic"):
            da.simulate(Misspelt(), da.FrameGradient(), np.zeros(2), np.zeros(2), h=0.1, steps=1)

        class Nonholonomic(da.System):
            coordinates = ("x", "y")

            def metric(self, q):
                return jnp.eye(2)

            def nonholonomic(self, q):
                return jnp.array([[1.0, 0.0]])

        with pytest.raises(ValueError, match="did you mean constraints"):
            da.simulate(Nonholonomic(), da.FrameGradient(), np.zeros(2), np.zeros(2), h=0.1, steps=1)

    @pytest.mark.parametrize(
        "method",
        [da.LeapFrog(), da.EDLA(), da.DiscreteGradient()],
    )
    def test_methods_for_velocities_alone_refuse_and_say_which_take_it(self, method):
        words = (
            r"position constraints, holonomic\(q\)\. "
            r"Use FrameGradient\(\), VariationalDLA\(\), GNI\(\) or Reference\(\)"
        )
        with pytest.raises(ValueError, match=words):
            da.simulate(Blade(), method, *Blade().start(), h=0.1, steps=1)

    def test_made_from_functions(self):
        system = da.system(
            coordinates=("x", "y"),
            metric=lambda q: jnp.eye(2),
            potential=lambda q,: 9.8 * q[1],
            holonomic=lambda q: jnp.array([q @ q - 1.0]),
        )
        sol = da.simulate(system, da.FrameGradient(), [1.0, 0.0], [0.0, 0.0], h=0.01, steps=500)
        assert np.max(np.abs(np.sum(sol.q**2, axis=1) - 1)) < 1e-14
        # A pendulum that is released at the side turns with sin(angle)' ' = -g sin: its energy stays zero.
        assert np.max(np.abs(sol.energy())) < 1e-13


class TestEverythingElse:
    def test_audit(self):
        found = da.audit(Blade(), da.FrameGradient(), h=0.02, steps=10_000)
        assert not found.broken_claims
        assert found.positions < 1e-14
        assert "position constraint" in str(found)
        assert found.energy.verdict.name == "EXACT"
        assert "1 of them as position constraints" in found.structure

    def test_an_audit_finds_a_method_that_leaves_the_surface(self):
        class Leaving(da.FrameGradient):
            def step(self, m, state, memory, h):
                state, memory, report = super().step(m, state, memory, h)
                return state._replace(q=state.q.at[2].add(1e-6 * h)), memory, report

        found = da.audit(Blade(), Leaving(), h=0.02, steps=10_000)
        assert any("position constraints are claimed" in x for x in found.broken_claims)

    def test_nonholonomy(self):
        mixed = da.nonholonomy(Blade(), Blade().start()[0])
        assert mixed.growth == (2, 3)
        assert not mixed.is_holonomic
        assert mixed.hidden == mixed.positions == 1
        alone = da.nonholonomy(Pendulums(), plain.pendulum_pair()[1])
        assert alone.is_holonomic
        assert alone.hidden == alone.positions == 2
        assert "fewer coordinates" not in str(alone)
        framed = da.nonholonomy(FramedBlade(), Blade().start()[0])
        assert framed.growth == mixed.growth

    def test_linearisation_on_the_surface(self):
        """A bead at the bottom of the bowl swings with sqrt(g); the heading turns freely. No direction leaves it."""
        found = da.linearise(Blade(gravity=4.0), np.zeros(4), np.zeros(4))
        assert found.matrix.shape == (5, 5)
        assert found.directions.shape == (4, 3)
        expected = [2j, -2j, 0, 0, 0]
        assert np.allclose(np.sort_complex(found.eigenvalues), np.sort_complex(expected), rtol=0, atol=1e-7)

    def test_pendulum_frequencies(self):
        """Two masses that hang: w^2 solve M w^2 = K for the plane double pendulum, each twice."""
        found = da.linearise(Pendulums(), [0, 0, -1.0, 0, 0, -1.8], np.zeros(6))
        mass = np.array([[1.7, 0.7 * 0.8], [0.7 * 0.8, 0.7 * 0.64]])
        stiffness = 9.8 * np.diag([1.7, 0.7 * 0.8])
        squares = np.repeat(np.linalg.eigvals(np.linalg.solve(mass, stiffness)), 2)
        assert np.allclose(np.sort(-(found.eigenvalues**2).real), np.sort(np.repeat(squares, 2)), rtol=1e-12)

    def test_volume_of_a_motion_on_a_surface(self):
        """Position constraints alone leave a Hamiltonian motion, which keeps volume; the limit h -> 0 shows it."""
        _, _, q, v = made("pendulums")
        sol = da.simulate(Pendulums(), da.FrameGradient(), q, v, h=0.02, steps=200)
        found = da.diagnostics.volume_change(Pendulums(), da.FrameGradient(), 0.02, sol.q[::20], sol.v[::20])
        assert abs(found.limit) < 1e-6
        assert found.spread < 0.05

    def test_reduction_is_refused(self):
        symmetry = da.Symmetry(da.groups.Rn(1), ("heading",))
        with pytest.raises(ValueError, match="position constraints"):
            da.classify(Blade(), symmetry)
        with pytest.raises(ValueError, match="position constraints"):
            da.reduce(Blade(), da.VariationalDLA(), symmetry)

    def test_coupled_structure_is_refused(self):
        with pytest.raises(ValueError, match="it has position constraints"):
            da.CoupledSystem.of(Blade())

    def test_saving(self, tmp_path):
        system, _, q, v = made("blade")
        sol = da.simulate(system, da.FrameGradient(), q, v, h=0.02, steps=20)
        sol.save(tmp_path / "run.zarr")
        alone, whole = da.load(tmp_path / "run.zarr"), da.load(tmp_path / "run.zarr", system=system)
        for run in (alone, whole):
            assert np.array_equal(run.position_multipliers, sol.position_multipliers)
            assert np.array_equal(run.velocity_multipliers, sol.velocity_multipliers)
            assert np.allclose(run.position_residual(), sol.position_residual(), rtol=0, atol=1e-15)

    def test_ensembles_and_single_runs_agree(self):
        system, _, q, v = made("blade")
        speeds = np.array([[0.5], [1.0], [1.5]])
        many = da.ensemble(system, da.FrameGradient(), q, speeds * v, h=0.02, steps=200)
        for i, speed in enumerate(speeds):
            one = da.simulate(system, da.FrameGradient(), q, speed * v, h=0.02, steps=200)
            assert np.allclose(many.q[i], one.q, rtol=0, atol=1e-12)
        assert np.max(many.position_residual()) < 1e-14

    def test_derivatives(self):
        system, _, q, v = made("blade")

        def end(gravity, lift):
            start = jnp.asarray(q).at[2].add(lift)
            changed = eqx.tree_at(lambda s: s.gravity, da.model.as_arrays(system), gravity)
            return da.simulate(changed, da.FrameGradient(), start, v, h=0.02, steps=50, project=True).q[-1, 0]

        found = jax.grad(end, (0, 1))(9.8, 0.0)
        e = 1e-5
        expected = [(end(9.8 + e, 0.0) - end(9.8 - e, 0.0)) / (2 * e), (end(9.8, e) - end(9.8, -e)) / (2 * e)]
        assert np.allclose(found, expected, rtol=1e-8)  # central differences of this size

    def test_on_a_group(self):
        """A rod of SO(3) x R^3 whose tip stays at the origin is a spherical pendulum; the reference keeps the tip."""

        q = jnp.concatenate([jnp.eye(3).reshape(-1), jnp.array([0.0, 0.0, -1.0])])
        start = da.start(Rod(), q, [0.8, 0.5, 0.3, 0.0, 0.0, 0.0])
        sol = da.simulate(Rod(), da.Reference(), *start, h=0.05, steps=20)
        assert np.max(sol.position_residual()) < 1e-14
        assert np.max(sol.constraint_residual()) < 1e-14
        assert np.ptp(sol.energy()) < 1e-12
        with pytest.raises(ValueError, match="position constraints"):
            da.simulate(Rod(), da.LieGNI(), *start, h=0.05, steps=2)
        chart, x = da.model.lower(da.Chart(Rod(), start.q)), jnp.array([0.1, -0.2, 0.1, 0.3, 0.0, 0.2])
        there = chart.system.element(x)
        assert np.allclose(chart.holonomic(x), Rod().holonomic(there), rtol=0, atol=1e-15)
        assert chart.rows(x).shape == (3, 6), "each position constraint counts once"
