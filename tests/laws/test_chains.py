"""Chains of bodies: cars with trailers, against geometry written out with NumPy, closed motions and known laws."""

from itertools import pairwise

import numpy as np
import pytest

import dalembert as da
from dalembert.model import lower

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
    return np.concatenate([moved(q[:2], motion[:2], motion[2]), q[2:] + motion[2]])


@pytest.mark.parametrize("system", [zoo.Car(trailers=2, hitch=0.3)], ids=lambda x: type(x).__name__)
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
