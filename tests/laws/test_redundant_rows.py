"""Constraints that follow from others: four wheels on a rigid car, three cranks under a platform."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.model.redundancy import rank_drops_ahead

# Twice the wheelbase and the track of the car, and where all axes of its wheels meet, in the frame of the car.
WHEELS = np.array([[1.2, 0.6], [1.2, -0.6], [-1.0, 0.6], [-1.0, -0.6]])
CENTRE = np.array([-1.0, 3.0])
MASS, INERTIA, SPIN, RADIUS = 3.0, 1.7, 0.2, 0.3


class Car(da.System):
    """A rigid car whose four wheels are steered so that it drives on a circle.

    Each wheel prevents its own slip sideways and in its rolling direction: eight one-forms in seven velocities, of
    rank six.
    """

    coordinates = ("x", "y", "theta", "a", "b", "c", "d")
    angles = ("theta",)
    step = 0.05
    rows = 8

    def metric(self, q):
        return jnp.diag(jnp.array([MASS, MASS, INERTIA, SPIN, SPIN, SPIN, SPIN]))

    def constraints(self, q):
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        turn = jnp.array([[c, -s], [s, c]])
        rows = []
        for k, wheel in enumerate(WHEELS):
            axis = (CENTRE - wheel) / np.linalg.norm(CENTRE - wheel)
            ahead = np.array([axis[1], -axis[0]])
            # The velocity of the wheel's hub is v + omega (-y, x); wheels roll by ahead . velocity = radius * rate.
            around = np.array([-wheel[1], wheel[0]])
            rolling = -RADIUS * np.eye(4)[k]
            rows.append(jnp.concatenate([turn @ axis, jnp.array([axis @ around]), jnp.zeros(4)]))
            rows.append(jnp.concatenate([turn @ ahead, jnp.array([ahead @ around]), jnp.asarray(rolling)]))
        return jnp.stack(rows[: self.rows])

    def starts(self):
        """The car turns about the centre at one radian per unit of time."""
        v = np.array([CENTRE[1], -CENTRE[0], 1.0])
        hubs = v[:2] + np.stack([-WHEELS[:, 1], WHEELS[:, 0]], axis=1)
        axes = (CENTRE - WHEELS) / np.linalg.norm(CENTRE - WHEELS, axis=1)[:, None]
        rates = (axes[:, 1] * hubs[:, 0] - axes[:, 0] * hubs[:, 1]) / RADIUS
        return {"circle": (np.zeros(7), np.concatenate([v, rates]))}


class PushedCar(Car):
    """The same car on a slope."""

    def potential(self, q):
        return 0.7 * q[0] - 0.4 * q[1]


class FewerRows(PushedCar):
    """Six one-forms from which all eight follow: two lateral ones and all of rolling."""

    def constraints(self, q):
        every = PushedCar.constraints(self, q)
        return jnp.stack([every[i] for i in (0, 1, 3, 4, 5, 7)])


class Platform(da.System):
    """A platform on three parallel cranks: any two of the three position constraints imply the third, but only where
    they are satisfied."""

    coordinates = ("x", "y", "phi")
    angles = ("phi",)
    step = 0.02
    cranks = (0.0, 1.0, 2.0)

    def metric(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 0.4]))

    def potential(self, q):
        return 9.81 * q[1]

    def holonomic(self, q):
        ends = [(q[0] + a * jnp.cos(q[2]) - a, q[1] + a * jnp.sin(q[2])) for a in self.cranks]
        return jnp.stack([x**2 + y**2 - 1 for x, y in ends])

    def starts(self):
        return {"swing": ([np.sin(0.8), -np.cos(0.8), 0.0], [0.0, 0.0, 0.0])}


def quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", da.ConstraintWarning)
        return da.simulate(*arguments, **options)


def least_norm(system, q, v):
    """Accelerations and multipliers from the pseudo-inverse; the metric is constant and there are no forces."""
    a = np.asarray(system.constraints(q))
    slope = np.asarray(jax.grad(system.potential)(q)) if system.defines("potential") else np.zeros(len(q))
    inverse = np.linalg.inv(np.asarray(system.metric(q)))
    turning = np.asarray(jax.jvp(system.constraints, (q,), (v,))[1]) @ v
    lam = np.linalg.pinv(a @ inverse @ a.T, rcond=1e-9) @ (a @ inverse @ slope - turning)
    return inverse @ (a.T @ lam - slope), lam


METHODS = [
    da.FrameGradient(),
    da.FrameGradient("gonzalez"),
    da.Composition(da.FrameGradient(), 4),
    da.LeapFrog(),
    da.DLA(),
    da.DLA01(),
    da.DiscreteGradient(),
    da.GNI(),
    da.VariationalDLA(),
    da.EDLA(),
    da.Reference(),
]


class TestFourWheels:
    @pytest.mark.parametrize("method", METHODS, ids=lambda x: x.cli_name)
    def test_the_motion_is_that_of_independent_rows(self, method):
        """The rows that the library chooses are others than those of FewerRows, so rounding differs: 1e-12 after a
        hundred steps of unit speed. Methods whose steps depend on the rows beyond D (none of these) would differ."""
        all_rows = quietly(PushedCar(), method, *PushedCar().start(), h=0.02, steps=100)
        fewer = da.simulate(FewerRows(), method, *FewerRows().start(), h=0.02, steps=100)
        assert all_rows.status is da.Status.OK
        # The energy determines EDLA's step sizes to its own rounding, 5e-14, divided by S = 0.13: to 4e-13, and a
        # hundred of these add up while others grow with them.
        close = 1e-9 if isinstance(method, da.EDLA) else 1e-11
        np.testing.assert_allclose(all_rows.q, fewer.q, rtol=0, atol=close)
        np.testing.assert_allclose(all_rows.v, fewer.v, rtol=0, atol=close)
        assert all_rows.multipliers.shape == (101, 8)
        force = np.einsum("kmn,km->kn", jax.vmap(PushedCar().constraints)(all_rows.q), all_rows.multipliers)
        other = np.einsum("kmn,km->kn", jax.vmap(FewerRows().constraints)(fewer.q), fewer.multipliers)
        # EDLA, LeapFrog and GNI amplify rounding in their multipliers by 1/h.
        np.testing.assert_allclose(force, other, rtol=0, atol=1e-9)

    def test_it_drives_on_its_circle(self):
        sol = quietly(Car(), da.FrameGradient(), *Car().start(), h=0.01, steps=500)
        theta = sol.q[:, 2]
        # Without a potential the angular velocity is constant, and the frame method keeps it.
        np.testing.assert_allclose(sol.v[:, 2], 1.0, rtol=0, atol=1e-12)
        np.testing.assert_allclose(theta, sol.t, rtol=0, atol=1e-11)
        cos, sin = np.cos(theta), np.sin(theta)
        place = CENTRE - np.stack(
            [cos * CENTRE[0] - sin * CENTRE[1], sin * CENTRE[0] + cos * CENTRE[1]], axis=1
        )
        # Order 2: the chords of a step are shorter than its arc by 1/24 of h^2.
        np.testing.assert_allclose(sol.q[:, :2], place, rtol=0, atol=5 * 0.01**2)
        exact = quietly(Car(), da.Reference(), *Car().start(), h=0.1, steps=50)
        np.testing.assert_allclose(exact.q[-1, :2], _circle(5.0), rtol=0, atol=1e-10)
        assert np.max(sol.constraint_residual()) < 1e-13

    def test_multipliers_are_those_of_least_norm(self):
        sol = quietly(PushedCar(), da.FrameGradient(), *PushedCar().start(), h=0.02, steps=50)
        for k in (0, 17, 50):
            _, lam = least_norm(PushedCar(), sol.q[k], sol.v[k])
            np.testing.assert_allclose(sol.multipliers[k], lam, rtol=0, atol=1e-11)
        rate, lam = least_norm(PushedCar(), sol.q[9], sol.v[9])
        found = da.acceleration(PushedCar(), sol.q[9], sol.v[9])
        np.testing.assert_allclose(found.acceleration, rate, rtol=0, atol=1e-11)
        np.testing.assert_allclose(found.multipliers, lam, rtol=0, atol=1e-11)

    def test_there_is_one_remark(self):
        with pytest.warns(
            da.ConstraintWarning, match=r"constraints\[\d\] follows from .*least norm"
        ) as caught:
            da.simulate(Car(), da.FrameGradient(), *Car().start(), h=0.01, steps=2)
        assert len(caught) == 1
        assert str(caught[0].message).count("follows from") == 2  # eight rows of rank six

    def test_independent_rows_are_left_alone(self):
        assert da.independent_rows(FewerRows(), np.zeros(7)).kept is None
        for system in (da.zoo.Snakeboard(), da.zoo.Bicycle(), da.zoo.RollingDisk()):
            assert da.independent_rows(system, system.start()[0]) is system

    def test_the_class_of_the_system_stays(self):
        sol = quietly(Car(), da.FrameGradient(), *Car().start(), h=0.01, steps=2)
        assert isinstance(sol.system, Car)
        assert type(sol.system).__name__ == "Car"
        assert da.independent_rows(sol.system, np.zeros(7)) is sol.system

    def test_measurements_agree_with_those_of_independent_rows(self):
        one, other = PushedCar(), FewerRows()
        q, v = one.start()
        assert da.nonholonomy(one, q).growth == da.nonholonomy(other, q).growth
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = [np.sort_complex(da.linearise(x, q, v).eigenvalues) for x in (one, other)]
        np.testing.assert_allclose(*values, rtol=0, atol=1e-7)  # a double zero: the root of rounding

    def test_an_audit(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", da.ConstraintWarning)
            report = da.audit(PushedCar(), da.FrameGradient(), h=0.05, steps=10_000)
        assert "nothing is broken" in str(report)

    def test_ensembles(self):
        q0, v0 = Car().start()
        places = np.asarray(q0) + np.linspace(0, 2, 5)[:, None] * np.eye(7)[0]
        with pytest.warns(da.ConstraintWarning, match="follows from") as caught:
            sol = da.ensemble(Car(), da.FrameGradient(), places, v0, h=0.02, steps=50)
        assert len(caught) == 1
        assert np.all(sol.code == 0)
        assert sol.multipliers.shape == (5, 51, 8)
        alone = quietly(Car(), da.FrameGradient(), places[3], v0, h=0.02, steps=50)
        np.testing.assert_allclose(sol.q[3], alone.q, rtol=0, atol=1e-12)

    def test_derivatives_need_the_rows_chosen_before(self):
        q0, v0 = PushedCar().start()

        def end(system, q):
            return da.simulate(system, da.FrameGradient(), q, v0, h=0.05, steps=20).q[-1, 0]

        chosen = da.independent_rows(PushedCar(), q0)
        expected = jax.grad(lambda q: end(FewerRows(), q))(q0)
        np.testing.assert_allclose(jax.grad(lambda q: end(chosen, q))(q0), expected, rtol=0, atol=1e-10)
        with pytest.raises(
            ValueError, match=r"8 one-forms for 7 velocities.*da.independent_rows\(system, q0\)"
        ):
            jax.grad(lambda q: end(PushedCar(), q))(q0)

    def test_rows_that_were_not_chosen_before_give_no_answer_inside_jax(self):
        class Twice(da.zoo.KnifeEdge):
            def constraints(self, q):
                row = da.zoo.KnifeEdge.constraints(self, q)
                return jnp.concatenate([row, -row])

        q0, v0 = Twice().start()

        def run(q):
            return da.simulate(Twice(), da.FrameGradient(), q, v0, h=0.05, steps=3)

        assert int(jax.jit(run)(q0).code) == da.Status.RANK.code
        assert np.all(np.isnan(jax.grad(lambda q: run(q).q[-1, 0])(q0)))

    def test_files(self, tmp_path):
        sol = quietly(Car(), da.FrameGradient(), *Car().start(), h=0.02, steps=20)
        sol.save(tmp_path / "car.nc")
        loaded = da.load(tmp_path / "car.nc", system=Car())
        np.testing.assert_array_equal(loaded.multipliers, sol.multipliers)
        np.testing.assert_array_equal(loaded.energy(), sol.energy())
        assert loaded.system is not None
        assert loaded.system.kept == sol.system.kept
        da.load(tmp_path / "car.nc").save(tmp_path / "again.nc")
        assert da.load(tmp_path / "again.nc", system=Car()).system.kept == sol.system.kept

    def test_a_frame_beside_redundant_rows(self):
        class Framed(PushedCar):
            def frame(self, q):
                v = jnp.asarray(self.start()[1])
                c, s = jnp.cos(q[2]), jnp.sin(q[2])
                return jnp.concatenate([jnp.stack([c * v[0] - s * v[1], s * v[0] + c * v[1]]), v[2:]])[
                    :, None
                ]

        sol = quietly(Framed(), da.FrameGradient(), *Framed().start(), h=0.02, steps=50)
        other = da.simulate(FewerRows(), da.FrameGradient(), *FewerRows().start(), h=0.02, steps=50)
        np.testing.assert_allclose(sol.q, other.q, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            sol.multipliers[7], least_norm(PushedCar(), sol.q[7], sol.v[7])[1], atol=1e-11
        )

    def test_wheels_that_are_steered_to_no_common_point_leave_no_motion(self):
        class Stuck(Car):
            def constraints(self, q):
                return Car.constraints(self, q).at[0, 2].add(0.1)

        with pytest.raises(ValueError, match="leave no motion: 7 of them are linearly independent"):
            da.simulate(Stuck(), da.FrameGradient(), np.zeros(7), np.zeros(7), h=0.1, steps=1)


def _circle(angle):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return CENTRE - turn @ CENTRE


class TestThreeCranks:
    def test_the_platform_is_a_pendulum(self):
        """It does not turn, so it moves like a point on one crank: a pendulum of unit length."""
        pendulum = da.system(
            coordinates=("a",), metric=lambda q: jnp.eye(1), potential=lambda q: -9.81 * jnp.cos(q[0])
        )
        exact = da.simulate(pendulum, da.Reference(), [0.8], [0.0], h=0.02, steps=200)
        angle = exact.q[:, 0]
        for method, close in ((da.Reference(), 1e-9), (da.FrameGradient(), 0.02)):
            sol = quietly(Platform(), method, *Platform().start(), h=0.02, steps=200)
            place = np.stack([np.sin(angle), -np.cos(angle), 0 * angle], axis=1)
            np.testing.assert_allclose(sol.q, place, rtol=0, atol=close)
            # All three constraints are measured, the one that is left out included.
            assert np.max(sol.position_residual()) < 1e-14
            assert np.max(sol.constraint_residual()) < 1e-13
        assert sol.position_multipliers.shape == (201, 3)
        assert sol.velocity_multipliers.shape == (201, 0)

    def test_energy_over_a_long_run(self):
        sol = quietly(
            Platform(), da.FrameGradient(), *Platform().start(), h=0.02, steps=100_000, save_every=100
        )
        assert np.ptp(sol.energy()) < 1e-11  # of 9.8; rounding adds up at random
        assert np.max(sol.position_residual()) < 1e-14

    def test_a_start_is_found_although_the_slopes_become_dependent(self):
        found = da.start(Platform(), [0.5, 0.9, 0.05], [0.0, 0.1, 0.0])
        assert np.max(np.abs(Platform().holonomic(found.q))) < 1e-15

        # The nearest of two constraints, which define the same surface.
        class Two(Platform):
            cranks = (0.0, 2.0)

        np.testing.assert_allclose(found.q, da.start(Two(), [0.5, 0.9, 0.05], [0.0, 0.1, 0.0]).q, atol=1e-12)
        sol = quietly(
            Platform(), da.FrameGradient(), [0.5, 0.9, 0.05], [0.0, 0.1, 0.0], h=0.01, steps=3, project=True
        )
        np.testing.assert_allclose(sol.q[0], found.q, rtol=0, atol=1e-14)

    def test_a_derivative_that_is_also_a_one_form(self):
        """The position constraint is kept, because only then does the motion stay on its surface."""

        class Twice(Platform):
            cranks = (0.0, 2.0)

            def constraints(self, q):
                return jax.jacobian(self.holonomic)(q)[:1]

        sol = quietly(Twice(), da.FrameGradient(), *Platform().start(), h=0.02, steps=100)
        assert sol.system.kept == da.model.Kept((), (0, 1))
        assert np.max(sol.position_residual()) < 1e-14
        assert sol.multipliers.shape == (101, 3)

    def test_position_constraints_that_contradict_each_other(self):
        class Apart(Platform):
            def holonomic(self, q):
                return jnp.stack([q[0] - 1, q[1], 2 * q[0] - 3])

        for attempt in (
            lambda: da.start(Apart(), [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]),
            lambda: da.simulate(
                Apart(), da.FrameGradient(), [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], h=0.1, steps=1, project=True
            ),
        ):
            with pytest.raises(ValueError, match=r"holonomic\[0\] and holonomic\[2\] contradict each other"):
                attempt()

    def test_a_surface_that_touches_itself_is_refused(self):
        """c = (x, x + y^2): dependent at the start, but around it the second does not follow from the first."""

        class Touching(Platform):
            def holonomic(self, q):
                return jnp.stack([q[0], q[0] + q[1] ** 2])

        with pytest.raises(ValueError, match="linearly dependent"):
            da.simulate(Touching(), da.FrameGradient(), np.zeros(3), [0.0, 0.0, 1.0], h=0.1, steps=1)


class Affine(da.System):
    """The third row is the sum of the others; its right side may be."""

    coordinates = ("x", "y", "z")
    third: float = 0.3

    def metric(self, q):
        return jnp.eye(3)

    def constraints(self, q):
        return jnp.array([[1.0, q[0], 0.0], [0.0, 1.0, 0.0], [1.0, q[0] + 1, 0.0]])

    def offsets(self, q):
        return jnp.array([0.1, 0.2, self.third])


class TestRightSides:
    def test_that_agree(self):
        sol = quietly(Affine(), da.FrameGradient(), np.zeros(3), [0.1, 0.2, 1.0], h=0.1, steps=100)
        assert np.max(sol.constraint_residual()) < 1e-14
        np.testing.assert_allclose(sol.q[-1, 1:], [2.0, 10.0], rtol=0, atol=1e-12)

    def test_that_contradict_each_other(self):
        message = (
            r"constraints\[0\], constraints\[1\] and constraints\[2\] contradict each other.*right sides"
        )
        for project in (False, True):
            with pytest.raises(ValueError, match=message):
                da.simulate(
                    Affine(0.35),
                    da.FrameGradient(),
                    np.zeros(3),
                    [0.1, 0.2, 1.0],
                    h=0.1,
                    steps=1,
                    project=project,
                )

    def test_that_agree_only_at_one_time(self):
        class Later(da.RheonomicSystem):
            coordinates = ("x", "y")

            def metric(self, t, q):
                return jnp.eye(2)

            def constraints(self, t, q):
                return jnp.array([[1.0, 0.0], [2.0, 0.0]])

            def offsets(self, t, q):
                return jnp.stack([jnp.cos(t), 2 * jnp.cos(t) + t**2])

        with pytest.raises(ValueError, match="linearly dependent"):
            da.simulate(Later(), da.FrameGradient(), np.zeros(2), [1.0, 0.0], h=0.1, steps=1)

    def test_a_member_whose_right_sides_contradict_each_other(self):
        system = Affine(np.array([0.3, 0.3, 0.35]))
        starts = np.zeros((3, 3))
        with pytest.raises(ValueError, match="1 member"):
            da.ensemble(system, da.FrameGradient(), starts, [0.1, 0.2, 1.0], h=0.1, steps=5)


class TestChangesOfRank:
    def test_a_row_that_stops_following(self):
        class Rising(da.System):
            coordinates = ("x", "y", "z")

            def metric(self, q):
                return jnp.eye(3)

            def constraints(self, q):
                return jnp.array([[0.0, 1.0, 0.0], [0.0, 1.0, jnp.maximum(q[0] - 1, 0.0)]])

        for method in (da.FrameGradient(), da.LeapFrog(), da.Reference()):
            sol = quietly(Rising(), method, [0.0, 0.0, 0.0], [1.0, 0.0, 0.5], h=0.125, steps=20, throw=False)
            assert sol.status is da.Status.RANK
            # Nothing computed is lost, and nothing beyond x = 1 is returned.
            np.testing.assert_allclose(sol.q[-1], [1.0, 0.0, 0.5], rtol=0, atol=1e-9)
            assert "Left out at the start, because they followed: constraints[1]" in sol.message
        with pytest.raises(da.SimulationError, match="the rank of the constraints changes"):
            quietly(Rising(), da.FrameGradient(), np.zeros(3), [1.0, 0.0, 0.5], h=0.125, steps=20)
        many = da.ensemble(
            da.independent_rows(Rising(), np.zeros(3)), da.FrameGradient(), [[0.0] * 3, [-9.0, 0, 0]],
            [1.0, 0.0, 0.5], h=0.125, steps=20,
        )  # fmt: skip
        assert list(many.status) == [da.Status.RANK, da.Status.OK]

    @pytest.mark.parametrize(
        "method", [da.LeapFrog(), da.FrameGradient(), da.DLA01(), da.Reference()], ids=lambda x: x.cli_name
    )
    def test_rows_that_become_dependent(self, method):
        """At x = 0, where a step ends, the two one-forms are the same."""
        system = da.system(
            coordinates=("x", "y", "z"),
            metric=lambda q: jnp.eye(3),
            constraints=lambda q: jnp.array([[0.0, 1.0, 0.0], [0.0, 1.0, q[0]]]),
        )
        sol = da.simulate(system, method, [-1.0, 0.0, 0.0], [1.0, 0.0, 0.0], h=0.25, steps=10, throw=False)
        assert sol.status is da.Status.RANK
        assert sol.q[-1, 0] == pytest.approx(-0.25, abs=1e-12)

    def test_other_failures_are_not_called_a_change_of_rank(self):
        system = da.system(
            coordinates=("x", "y", "z"),
            metric=lambda q: jnp.eye(3),
            potential=lambda q: -jnp.log(1 - q[0]),
            constraints=lambda q: jnp.array([[0.0, 1.0, 0.3 * jnp.sin(q[0])], [0.1, 0.0, 1.0]]),
        )
        q0, v0 = da.start(system, [0.0, 0.0, 0.0], [3.0, 0.0, 0.0])
        sol = da.simulate(system, da.LeapFrog(), q0, v0, h=0.25, steps=10, throw=False)
        assert sol.status in (da.Status.NOT_FINITE, da.Status.NOT_SOLVED)

    def test_a_near_miss_is_not_a_change_of_rank(self):
        """Two rows at a right angle but for a narrow place, where the angle is still 1e-3."""

        class Narrow(da.System):
            coordinates = ("x", "y", "z")
            least: float = 1e-3

            def metric(self, q):
                return jnp.eye(3)

            def constraints(self, q):
                return jnp.array([[0.0, 1.0, 0.0], [0.0, 1.0, self.least + q[0] ** 2]])

        assert not rank_drops_ahead(Narrow(), [-0.1, 0, 0], [1.0, 0, 0], 0.2, 0.0)
        assert rank_drops_ahead(Narrow(0.0), [-0.1, 0, 0], [1.0, 0, 0], 0.2, 0.0)


class TestOnGroups:
    def test_two_equal_rows(self):
        class Body(da.GroupSystem):
            group = da.groups.SO3()
            rows = 2

            def inertia(self):
                return jnp.diag(jnp.array([1.0, 2.0, 3.0]))

            def potential(self, g):
                return g[8]

            def constraints(self, g):
                return jnp.array([[0.0, 0.3, 1.0], [0.0, 0.6, 2.0]])[: self.rows]

        class One(Body):
            rows = 1

        start = np.eye(3).ravel(), [1.0, 0.5, -0.15]
        for method in (
            da.FrameGradient(),
            da.LieGNI(),
            da.VariationalDLA(da.discrete.Retraction("exp")),
            da.Reference(),
        ):
            twice = quietly(Body(), method, *start, h=0.05, steps=50)
            once = da.simulate(One(), method, *start, h=0.05, steps=50)
            np.testing.assert_allclose(twice.q, once.q, rtol=0, atol=1e-12)
            # lam (1, 2)/5 exerts the same force as lam on the first row alone, with the least norm.
            np.testing.assert_allclose(
                twice.multipliers, once.multipliers * np.array([[0.2, 0.4]]), atol=1e-11
            )
        chart = quietly(
            da.Chart(Body(), start[0]), da.FrameGradient(), np.zeros(3), start[1], h=0.05, steps=50
        )
        assert chart.multipliers.shape == (51, 2)
