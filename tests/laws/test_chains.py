"""Chains of bodies against geometry that is written out with NumPy, closed motions and known laws."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.special import ellipk

import dalembert as da
from dalembert.model import as_arrays, lower

zoo = da.zoo
RANDOM = 4
# A complex step has no truncation error; sums of a few dozen products of size ten then round to this.
ROUNDING = 1e-13


def jacobian(function, q):
    """The derivative of a function of complex numbers, by a complex step."""
    eps = 1e-30
    return np.stack([np.imag(function(q + 1j * eps * e)) / eps for e in np.eye(len(q))], axis=-1)


def along(heading):
    return np.array([np.cos(heading), np.sin(heading)])


def aside(heading):
    return np.array([-np.sin(heading), np.cos(heading)])


def configurations(system, seed=5):
    return np.random.default_rng(seed).uniform(-2, 2, (RANDOM, system.dimension))


def agrees(system, q, bodies):
    """Whether metric and constraints are those of bodies (place, heading, mass, inertia, slips freely or not)."""
    made, rows = 0.0, []
    for place, heading, mass, inertia, wheeled in bodies:
        moving, turning = jacobian(place, q), jacobian(heading, q)
        made = made + mass * moving.T @ moving + inertia * np.outer(turning, turning)
        if wheeled:
            rows.append(aside(heading(q)) @ moving)
    np.testing.assert_allclose(system.metric(q), made, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(system.constraints(q), np.array(rows), rtol=0, atol=ROUNDING)


# ---- the car ----------------------------------------------------------------------------------------------


def axle(k, hitch, length):
    """The middle of axle k, one body after the other."""

    def place(q):
        found = q[:2]
        for i in range(k):
            found = found - hitch * along(q[2 + i]) - length * along(q[3 + i])
        return found

    return place


CARS = {
    "alone": zoo.Car(trailers=0, mass=1.3),
    "standard": zoo.Car(trailers=3, length=0.7, mass=1.3, turning=0.4),
    "off-axle": zoo.Car(trailers=3, length=0.7, hitch=0.25, mass=1.3, turning=0.4),
    "hitched ahead of the axle": zoo.Car(trailers=2, length=0.7, hitch=-0.2),
}


@pytest.mark.parametrize("name", CARS)
def test_the_car_is_its_axles(name):
    car = CARS[name]
    for q in configurations(car):
        agrees(
            car,
            q,
            [
                (axle(k, car.hitch, car.length), lambda x, k=k: x[2 + k], car.mass, car.turning, True)
                for k in range(car.trailers + 1)
            ],
        )
        assert np.max(np.abs(car.constraints(q) @ car.frame(q))) < ROUNDING
        # The frame is what it says: speed and turning rate of the tractor.
        speeds = np.stack([along(q[2]) @ car.frame(q)[:2], car.frame(q)[2]])
        np.testing.assert_allclose(speeds, np.eye(2), rtol=0, atol=1e-15)  # cos^2 + sin^2
        places = np.array([axle(k, car.hitch, car.length)(q) for k in range(car.trailers + 1)])
        np.testing.assert_allclose(car.places(q), places, rtol=0, atol=ROUNDING)


def test_standard_trailers_follow_the_known_recursion():
    car = CARS["standard"]
    for q in configurations(car):
        for column, (speed, turning) in enumerate(((1.0, 0.0), (0.0, 1.0))):
            rates = [turning]
            for front, back in pairwise(q[2:]):
                rates.append(speed * np.sin(front - back) / car.length)
                speed = speed * np.cos(front - back)
            np.testing.assert_allclose(car.frame(q)[2:, column], rates, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(("hitch", "length"), [(0.0, 0.8), (0.3, 0.8), (0.9, 0.8)])
def test_a_car_on_a_circle_has_the_known_radii(hitch, length):
    """R_(i+1)^2 = R_i^2 + hitch^2 - length^2, and the circle is an exact motion: no force acts along it."""
    car, radius, rate = zoo.Car(trailers=3, hitch=hitch, length=length), 3.0, 0.5
    q, radii = [0.0, -radius, 0.0], [radius]
    for _ in range(car.trailers):
        radii.append(np.sqrt(radii[-1] ** 2 + hitch**2 - length**2))
        # From an axle back to its hitch and on to the next axle, the direction to the centre turns by these angles.
        q.append(q[-1] - np.arctan2(hitch, radii[-2]) - np.arctan2(length, radii[-1]))
    v = car.frame(np.array(q)) @ np.array([rate * radius, rate])
    np.testing.assert_allclose(v[2:], rate, rtol=1e-13)  # a rigid rotation; rounding
    np.testing.assert_allclose(np.linalg.norm(car.places(np.array(q)), axis=1), radii, rtol=1e-13)
    acceleration = np.asarray(da.acceleration(car, q, v).acceleration)
    np.testing.assert_allclose(acceleration[2:], 0.0, rtol=0, atol=1e-12)  # products of numbers of order ten
    errors = []
    for h in (0.02, 0.01):
        sol = da.simulate(car, da.FrameGradient(), q, v, h=h, t1=3.0)
        errors.append(np.max(np.abs(np.linalg.norm(car.places(sol.q[-1]), axis=1) - radii)))
    # The method has order 2: the next term of the error is below a tenth of this one.
    assert errors[0] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("start", ["default", "bent"])
@pytest.mark.parametrize("hitch", [0.0, 0.3])
def test_the_car_keeps_energy_and_constraint_and_is_reversible(hitch, start):
    car = zoo.Car(trailers=2, hitch=hitch)
    q0, v0 = car.start(start)
    sol = da.simulate(car, da.FrameGradient(), q0, v0, h=0.05, steps=1000)
    # Rounding of 1000 steps: a random walk of 1e-16 of energies of order one.
    assert np.max(np.abs(sol.energy() - sol.energy()[0])) < 1e-12
    assert np.max(sol.constraint_residual()) < 1e-14
    back = da.simulate(car, da.FrameGradient(), sol.q[60], -sol.v[60], h=0.05, steps=60)
    # Trailers that are pushed back fold up: rounding grows by exp(speed t/length) = exp(3) for each of them.
    np.testing.assert_allclose(back.q[-1], q0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(back.v[-1], -v0, rtol=0, atol=1e-12)


def test_what_a_car_conserves_and_what_it_does_not():
    """All forces on a tractor with standard hitches pass through its mass centre, so its turning rate is constant."""
    for hitch, kept in ((0.0, True), (0.3, False)):
        car = zoo.Car(trailers=2, hitch=hitch)
        sol = da.simulate(car, da.FrameGradient(), *car.start(), h=0.05, steps=400)
        change = np.ptp(sol.v[:, 2])
        assert change < 1e-12 if kept else change > 0.01  # rounding of 400 steps
        m = lower(car)
        momentum = np.array(
            [car.generators(q).T @ m.momentum(q, v) for q, v in zip(sol.q, sol.v, strict=True)]
        )
        # The ground pushes sideways, so the momenta of the motions of the plane change, although these are symmetries.
        assert np.all(np.ptp(momentum, axis=0) > 0.1)


def moved(place, shift, angle):
    """A place after a motion of the plane."""
    c, s = np.cos(angle), np.sin(angle)
    return shift + np.array([c * place[0] - s * place[1], s * place[0] + c * place[1]])


def in_plane(system, q, motion):
    """The configuration of a chain after a motion (x, y, angle) of the plane."""
    if getattr(system, "form", "") == "maximal":
        links = [
            (*moved(q[k : k + 2], motion[:2], motion[2]), q[k + 2] + motion[2]) for k in range(0, len(q), 3)
        ]
        return np.concatenate(links)
    if isinstance(system, zoo.RollerRacer):
        return np.array([*moved(q[:2], motion[:2], motion[2]), q[2] + motion[2], q[3]])
    return np.concatenate([moved(q[:2], motion[:2], motion[2]), q[2:] + motion[2]])


SYMMETRIC = {
    "car": zoo.Car(trailers=2, hitch=0.3),
    "roller racer": zoo.RollerRacer(),
    "snake": zoo.Snake(links=3),
    "snake, maximal": zoo.Snake(links=3, coordinates="maximal"),
}


@pytest.mark.parametrize("system", SYMMETRIC.values(), ids=SYMMETRIC)
def test_motions_of_the_plane_are_symmetries(system):
    draw = np.random.default_rng(2)
    for q in configurations(system):
        v, motion = draw.normal(size=system.dimension), draw.normal(size=3)
        there, change = in_plane(system, q, motion), jacobian(lambda x, m=motion: in_plane(system, x, m), q)
        for name in ("metric", "potential", "constraints"):
            here, then = getattr(system, name)(q), getattr(system, name)(there)
            then = change.T @ then @ change if name == "metric" else then @ change if np.ndim(then) else then
            np.testing.assert_allclose(then, here, rtol=0, atol=ROUNDING)
        moving = jacobian(lambda m, q=q: in_plane(system, q, m), np.zeros(3))
        np.testing.assert_allclose(system.generators(q), moving, rtol=0, atol=1e-15)  # one product
        assert lower(system).lagrangian(there, change @ v) == pytest.approx(
            float(lower(system).lagrangian(q, v)), rel=1e-13
        )


@pytest.mark.parametrize("given", [-1, 2.5, "two", True, None, float("nan"), float("inf")])
def test_a_number_of_trailers_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match=r"Car.*trailers.*at least 0"):
        zoo.Car(trailers=given)


def test_sizes_of_cars():
    assert zoo.Car(trailers=3.0) == zoo.Car(trailers=3)  # numbers of the command line are floats
    for trailers in (0, 1, 100):
        car = zoo.Car(trailers=trailers)
        assert car.dimension == len(car.units) == trailers + 3
        assert car.constraints(np.zeros(car.dimension)).shape == (trailers + 1, trailers + 3)
        assert car.frame(np.zeros(car.dimension)).shape == (trailers + 3, 2)


# ---- the snake --------------------------------------------------------------------------------------------

SNAKE = {"half": 0.4, "mass": 1.3, "turning": 0.2, "stiffness": 0.7}


def link(k, half):
    """The middle of link k of a snake in minimal coordinates."""
    return axle(k, half, half)


@pytest.mark.parametrize("form", ["minimal", "maximal"])
def test_the_snake_is_its_links(form):
    snake = zoo.Snake(links=4, coordinates=form, **SNAKE)
    for q in configurations(snake):
        if form == "minimal":
            bodies = [(link(k, snake.half), lambda x, k=k: x[2 + k]) for k in range(4)]
        else:
            bodies = [(lambda x, k=k: x[3 * k : 3 * k + 2], lambda x, k=k: x[3 * k + 2]) for k in range(4)]
        agrees(snake, q, [(*body, snake.mass, snake.turning, True) for body in bodies])
        turned = [heading(q) for _, heading in bodies]
        bent = sum(1 - np.cos(front - back) for front, back in pairwise(turned))
        assert float(snake.potential(q)) == pytest.approx(0.7 * bent, rel=1e-14)  # the same sum
        # Friction is the derivative of c |P'|^2/2, summed over the links, with the opposite sign.
        rubbing, v = zoo.Snake(links=4, coordinates=form, **SNAKE, friction=0.3), np.cos(5 * q)
        moving = [jacobian(place, q) for place, _ in bodies]
        expected = -0.3 * sum(x.T @ x @ v for x in moving)
        np.testing.assert_allclose(rubbing.forces(q, v), expected, rtol=0, atol=ROUNDING)


def test_joints_of_the_maximal_snake_are_closed_by_the_minimal_one():
    minimal, maximal = (zoo.Snake(links=4, coordinates=form, **SNAKE) for form in ("minimal", "maximal"))
    for q in configurations(minimal):
        places = np.array([link(k, minimal.half)(q) for k in range(4)])
        whole = np.column_stack([places, q[2:]]).ravel()
        np.testing.assert_allclose(
            maximal.holonomic(whole), 0.0, rtol=0, atol=1e-15
        )  # sums of lengths of one
        np.testing.assert_allclose(minimal.places(q), maximal.places(whole), rtol=0, atol=1e-15)
        apart = np.array(maximal.holonomic(whole + 0.1 * np.eye(12)[3]))
        np.testing.assert_allclose(apart, [-0.1, 0, 0.1, 0, 0, 0], rtol=0, atol=1e-15)


def test_a_snake_without_springs_is_a_car_with_its_hitches_in_the_middle():
    q = configurations(zoo.Snake(links=4))
    snake = zoo.Snake(links=4, half=0.4, mass=1.3, turning=0.2, stiffness=0.0)
    car = zoo.Car(trailers=3, length=0.4, hitch=0.4, mass=1.3, turning=0.2)
    for x in q:
        for name in ("metric", "constraints", "frame"):
            assert np.array_equal(getattr(snake, name)(x), getattr(car, name)(x))


def test_both_coordinates_describe_the_same_motion():
    snakes = [zoo.Snake(3, form, friction=0.2) for form in ("minimal", "maximal")]
    runs = [da.simulate(x, da.Reference(), *x.start(), h=0.5, steps=4) for x in snakes]
    for q, whole in zip(runs[0].q, runs[1].q, strict=True):
        # Both to the tolerance of the reference, 1e-12 per step, over two units of time.
        np.testing.assert_allclose(snakes[0].places(q), snakes[1].places(whole), rtol=0, atol=1e-9)
        np.testing.assert_allclose(q[2:], whole[2::3], rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", ["minimal", "maximal"])
def test_the_snake_keeps_its_energy_and_its_joints(form):
    snake = zoo.Snake(links=3, coordinates=form)
    q0, v0 = snake.start()
    sol = da.simulate(snake, da.FrameGradient(), q0, v0, h=0.02, steps=500)
    # Rounding of 500 steps.
    assert np.max(np.abs(sol.energy() - sol.energy()[0])) < 1e-12
    assert np.max(sol.constraint_residual()) < 1e-14
    assert np.max(np.abs(sol.position_residual()), initial=0.0) < 1e-14
    # It bends: the springs take and give a tenth of the energy.
    assert np.ptp([snake.potential(q) for q in sol.q[::20]]) > 0.1
    back = da.simulate(snake, da.FrameGradient(), sol.q[50], -sol.v[50], h=0.02, steps=50)
    np.testing.assert_allclose(back.q[-1], q0, rtol=0, atol=1e-12)  # a unit of time, in which little grows


def test_friction_takes_the_energy_that_it_dissipates():
    snake = zoo.Snake(links=3, friction=0.2)
    sol = da.simulate(snake, da.FrameGradient(), *snake.start(), h=0.02, steps=500)
    power = np.array([np.dot(snake.forces(q, v), v) for q, v in zip(sol.q, sol.v, strict=True)])
    speeds = [
        jacobian(link(k, snake.half), np.asarray(q)) @ v
        for k in range(3)
        for q, v in zip(sol.q[::100], sol.v[::100], strict=True)
    ]
    lost = -0.2 * np.sum(np.square(speeds).reshape(3, -1, 2), axis=(0, 2))
    np.testing.assert_allclose(power[::100], lost, rtol=1e-12)  # the same sum, in another order
    assert np.all(np.diff(sol.energy()) < 0)
    change = sol.energy() - sol.energy()[0]
    # Each step loses exactly the work of the friction at its middle; rounding of 500 steps.
    middles, chords = 0.5 * (sol.q[1:] + sol.q[:-1]), np.diff(sol.q, axis=0)
    done = [np.dot(snake.forces(q, u / 0.02), u) for q, u in zip(middles, chords, strict=True)]
    np.testing.assert_allclose(change[1:], np.cumsum(done), rtol=0, atol=1e-12)
    # The integral of the power, by a trapezoidal rule, has an error of h^2 = 4e-4 times the energy.
    work = np.concatenate([[0.0], np.cumsum(0.01 * (power[1:] + power[:-1]))])
    np.testing.assert_allclose(change, work, rtol=0, atol=1e-3)
    assert sol.energy()[-1] < 0.5 * sol.energy()[0]


def test_the_method_for_nonlinear_constraints_takes_chains():
    """The eigenvalues of the snake's mass matrix differ by more than a polar factor is computed for."""
    snake = zoo.Snake(links=3)
    runs = [
        da.simulate(snake, x, *snake.start(), h=0.005, t1=0.5)
        for x in (da.ChetaevGradient(), da.FrameGradient())
    ]
    assert np.ptp(runs[0].energy()) < 1e-13  # rounding of 100 steps
    # Both have order 2: errors of h^2 = 2.5e-5 times derivatives of order one.
    np.testing.assert_allclose(runs[0].q, runs[1].q, rtol=0, atol=1e-4)


def test_friction_decides_which_methods_take_the_snake():
    bent = zoo.Snake(links=2, coordinates="maximal")
    da.simulate(bent, da.DLA01(), *bent.start(), h=0.02, steps=1)
    rubbing = zoo.Snake(links=2, coordinates="maximal", friction=0.1)
    with pytest.raises(ValueError, match=r"without non-conservative forces, but Snake gives forces"):
        da.simulate(rubbing, da.DLA01(), *rubbing.start(), h=0.02, steps=1)
    with pytest.raises(ValueError, match="position constraints"):
        da.simulate(bent, da.LeapFrog(), *bent.start(), h=0.02, steps=1)


@pytest.mark.parametrize("given", [1, 2.5, "many", False])
def test_a_number_of_links_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match=r"Snake: links must be a whole number, at least 2; got"):
        zoo.Snake(links=given)


def test_sizes_of_snakes():
    with pytest.raises(ValueError, match="choose one of: minimal, maximal"):
        zoo.Snake(coordinates="reduced")
    minimal, maximal = zoo.Snake(links=6), zoo.Snake(links=6, coordinates="maximal")
    assert (minimal.dimension, maximal.dimension) == (8, 18)
    m = lower(maximal)
    assert m.rows(maximal.start()[0]).shape == (16, 18)
    assert lower(minimal).rows(minimal.start()[0]).shape == (6, 8)
    assert np.linalg.matrix_rank(m.rows(maximal.start()[0])) == 16
    assert maximal.coordinates[:4] == ("x1", "y1", "theta1", "x2")


# ---- the roller racer -------------------------------------------------------------------------------------

RACER = {"reach": 0.9, "arm": 0.35, "mass": 1.2, "turning": 0.5, "handle": 0.15}


def test_the_roller_racer_is_its_two_axles():
    racer = zoo.RollerRacer(**RACER)

    def front(q):
        return q[:2] + 0.9 * along(q[2]) + 0.35 * along(q[2] + q[3])

    for q in configurations(racer):
        seat = (lambda x: x[:2], lambda x: x[2], 1.2, 0.5, True)
        agrees(racer, q, [seat, (front, lambda x: x[2] + x[3], 0.0, 0.15, True)])


def test_the_one_forms_of_the_roller_racer_are_independent_and_its_rigid_motion_vanishes_where_it_says():
    for arm in (0.3, -0.3, 1.0, 0.0):
        racer = zoo.RollerRacer(arm=arm)
        for phi in np.linspace(-np.pi, np.pi, 17):
            q = np.array([0.3, -0.2, 0.7, phi])
            assert np.linalg.svd(racer.constraints(q))[1][-1] > 0.1
            rigid = racer.generators(q) @ racer.sections()["rigid"](q)
            assert np.max(np.abs(racer.constraints(q) @ rigid)) < 1e-15  # the sum of two products
            on_one_line = arm == 1.0 and abs(phi) == np.pi
            assert (np.linalg.norm(rigid) < 1e-15) == on_one_line  # sin(pi) in floating point


def test_without_a_spring_a_roller_racer_runs_on_a_circle():
    racer = zoo.RollerRacer(**RACER, stiffness=0.0)
    q0, v0 = racer.rolling(0.8, 1.1, 0.0)
    sol = da.simulate(racer, da.Reference(), q0, v0, h=1.0, steps=5)
    q, v = racer.solution(sol.t, q0, v0)
    np.testing.assert_allclose(sol.q, q, rtol=0, atol=1e-9)  # the reference's tolerance, 1e-12 per step
    np.testing.assert_allclose(sol.v, v, rtol=0, atol=1e-9)
    centre = np.array([0.0, 1.1 / v0[2]])
    np.testing.assert_allclose(np.linalg.norm(q[:, :2] - centre, axis=1), centre[1], rtol=1e-14)  # rounding
    straight = racer.rolling(0.0, 1.1, 0.0)
    np.testing.assert_allclose(racer.solution([2.0], *straight)[0], [[2.2, 0, 0, 0]], rtol=0, atol=1e-15)
    # Not with a spring, and not while the handle turns.
    assert abs(da.acceleration(zoo.RollerRacer(**RACER), q0, v0).acceleration[3]) > 0.1
    with pytest.raises(ValueError, match="without a spring"):
        zoo.RollerRacer().solution([1.0], q0, v0)
    with pytest.raises(ValueError, match="phi' = 0 only"):
        racer.solution([1.0], *racer.rolling(0.8, 1.1, 0.2))


def test_only_a_handle_that_turns_drives_the_roller_racer():
    """The momentum p along the rigid motion changes by
    p' = phi' (cos(phi) (J theta' + J2 (theta' + phi')) - m a v sin(phi)), whatever the spring is."""
    racer = zoo.RollerRacer(**RACER)

    def momentum(q, v):
        speed = jnp.cos(q[2]) * v[0] + jnp.sin(q[2]) * v[1]
        spin = 0.5 * v[2] + 0.15 * (v[2] + v[3])
        return 1.2 * speed * (0.9 * jnp.cos(q[3]) + 0.35) + spin * jnp.sin(q[3])

    for phi, speed, rate in ((0.7, 1.0, 0.0), (-0.4, 0.6, 0.0), (0.7, 1.0, 0.8), (-1.1, -0.5, -1.3)):
        q, v = racer.rolling(phi, speed, rate)
        there = jnp.asarray(da.acceleration(racer, q, v).acceleration)
        _, change = jax.jvp(momentum, (q, v), (v, there))
        spin = 0.5 * v[2] + 0.15 * (v[2] + rate)
        expected = rate * (np.cos(phi) * spin - 1.2 * 0.9 * speed * np.sin(phi))
        assert float(change) == pytest.approx(float(expected), rel=1e-12, abs=1e-13)  # rounding
        assert (abs(change) > 0.1) == (rate != 0)
        section = racer.generators(q) @ racer.sections()["rigid"](q)
        assert float(section @ lower(racer).momentum(q, v)) == pytest.approx(float(momentum(q, v)), rel=1e-13)


def test_the_roller_racer_keeps_its_energy_and_is_reversible():
    racer = zoo.RollerRacer()
    q0, v0 = racer.start()
    sol = da.simulate(racer, da.FrameGradient(), q0, v0, h=0.05, steps=1000)
    assert np.max(np.abs(sol.energy() - sol.energy()[0])) < 1e-12  # rounding of 1000 steps
    assert np.max(sol.constraint_residual()) < 1e-14
    back = da.simulate(racer, da.FrameGradient(), sol.q[100], -sol.v[100], h=0.05, steps=100)
    # A push backwards turns the handle over: rounding grows by a few hundred in five units of time.
    np.testing.assert_allclose(back.q[-1], q0, rtol=0, atol=1e-11)


# ---- the chain of pendula ---------------------------------------------------------------------------------


def bob(k, length):
    """The place (X, Z) of mass k."""

    def place(q):
        found = np.zeros(2)
        for angle in q[: k + 1]:
            found = found + length * np.array([np.sin(angle), -np.cos(angle)])
        return found

    return place


def test_the_chain_of_pendula_is_its_masses():
    chain = zoo.ChainOfPendula(pendula=4, length=0.7, mass=1.3, gravity=2.0)
    for q in configurations(chain):
        moving = [jacobian(bob(k, 0.7), q) for k in range(4)]
        np.testing.assert_allclose(chain.metric(q), 1.3 * sum(x.T @ x for x in moving), rtol=0, atol=ROUNDING)
        height = sum(bob(k, 0.7)(q)[1] for k in range(4))
        assert float(chain.potential(q)) == pytest.approx(1.3 * 2.0 * height, rel=1e-13)  # rounding
    assert not chain.constrained
    assert lower(chain).rows(np.zeros(4)).shape == (0, 4)


def test_one_pendulum_has_the_period_of_the_mathematical_pendulum():
    one, angle = zoo.ChainOfPendula(pendula=1, length=0.7, gravity=3.0), 2.5
    period = 4 * np.sqrt(0.7 / 3.0) * ellipk(np.sin(angle / 2) ** 2)
    sol = da.simulate(one, da.Reference(), [angle], [0.0], h=period / 4, steps=4)
    # The reference's tolerance, 1e-12 per step, over a few dozen of its steps.
    np.testing.assert_allclose(sol.q[:, 0], [angle, 0.0, -angle, 0.0, angle], rtol=0, atol=1e-9)


@pytest.mark.parametrize("pendula", [1, 3])
def test_small_oscillations_have_the_frequencies_of_their_eigenvalue_problem(pendula):
    """M and K by hand: mass i is displaced by l (q_0 + ... + q_i) and lifted by l (q_0^2 + ... + q_i^2)/2."""
    mass, stiffness = np.zeros((2, pendula, pendula))
    for i in range(pendula):
        displaced = np.array([0.7 if j <= i else 0.0 for j in range(pendula)])
        mass += 1.3 * np.outer(displaced, displaced)
        stiffness += 1.3 * 2.0 * np.diag(displaced)
    expected = np.sqrt(eigh(stiffness, mass, eigvals_only=True))
    chain = zoo.ChainOfPendula(pendula=pendula, length=0.7, mass=1.3, gravity=2.0)
    found = da.linearise(chain, np.zeros(pendula), np.zeros(pendula)).eigenvalues
    # Eigenvalues of matrices of condition up to a few hundred.
    np.testing.assert_allclose(np.sort(np.imag(found))[pendula:], expected, rtol=1e-11)
    assert np.max(np.abs(np.real(found))) < 1e-11


def test_the_chain_keeps_its_energy_and_its_angular_momentum_if_nothing_pulls():
    q0, v0 = np.array([0.3, -0.8]), np.array([1.0, -0.5])
    for gravity, kept in ((0.0, True), (9.81, False)):
        chain = zoo.ChainOfPendula(pendula=2, gravity=gravity)
        sol = da.simulate(chain, da.Reference(), q0, v0, h=0.5, steps=4)
        about = [np.sum(chain.metric(q) @ v) for q, v in zip(sol.q, sol.v, strict=True)]
        assert np.ptp(about) < 1e-9 if kept else np.ptp(about) > 1.0  # the reference's tolerance
    chain = zoo.ChainOfPendula(pendula=2)
    q0, v0 = chain.start()
    sol = da.simulate(chain, da.FrameGradient(), q0, v0, h=0.01, steps=1000)
    assert (
        np.max(np.abs(sol.energy() - sol.energy()[0])) < 1e-11
    )  # rounding of 1000 steps, of energies of order ten
    back = da.simulate(chain, da.FrameGradient(), sol.q[100], -sol.v[100], h=0.01, steps=100)
    np.testing.assert_allclose(back.q[-1], q0, rtol=0, atol=1e-11)  # one unit of time of a chaotic motion


@pytest.mark.parametrize("given", [0, -1, 1.5, "one"])
def test_a_number_of_pendula_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match=r"ChainOfPendula: pendula must be a whole number, at least 1; got"):
        zoo.ChainOfPendula(pendula=given)


def test_starts_of_systems_whose_numbers_are_arrays():
    """As those of loaded runs and of ensembles are."""
    for system in (
        da.zoo.Car(trailers=3),
        da.zoo.Snake(links=3),
        da.zoo.Snake(links=3, coordinates="maximal"),
    ):
        for name in system.starts():
            for x, y in zip(system.start(name), as_arrays(system).start(name), strict=True):
                np.testing.assert_array_equal(x, y)
