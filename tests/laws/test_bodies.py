"""Bodies, contacts, joints, springs, dampers and motors against closed solutions, other systems, plain equations."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

import dalembert as da
from dalembert import bodies as b

zoo = da.zoo
G = 9.81


def run(system, method=None, h=0.01, steps=100, start=None, **options):
    """A run by FrameGradient; its constraints hold and its energy stays, all to rounding."""
    method = da.FrameGradient() if method is None else method
    sol = da.simulate(system, method, *(start or system.start()), h=h, steps=steps, **options)
    assert sol.status is da.Status.OK
    speed = 1 + np.max(np.abs(sol.v))
    assert np.max(np.abs(sol.position_residual())) < 1e-13  # lengths of size one
    assert np.max(np.abs(sol.constraint_residual())) < 1e-13 * speed
    if not system.defines("forces") and isinstance(method, da.FrameGradient):
        e = sol.energy()
        assert np.max(np.abs(e - e[0])) < 2e-15 * steps * (1 + np.max(np.abs(e)))  # one rounding a step
    return sol


def extrapolated(system, start, h, steps, columns):
    """Columns of q at the end, from runs with the steps h and h/2: the error of order 2 is removed."""
    ends = [run(system, h=h / k, steps=k * steps, start=start).q[-1, columns] for k in (1, 2)]
    return ends[1] + (ends[1] - ends[0]) / 3


# ---- rolling -------------------------------------------------------------------------------------------------


def test_a_ball_rolls_down_a_slope_at_five_sevenths():
    angle = 0.4
    normal = np.array([np.sin(angle), 0.0, np.cos(angle)])
    down = np.array([np.cos(angle), 0.0, -np.sin(angle)])
    ball = b.Body("ball", 2.0, 0.4 * 2.0 * 0.3**2, b.Ball(0.3), at=0.3 * normal, velocity=down)
    sol = run(b.assemble(ball, b.Contact("ball", b.Plane(normal))))
    # The start that satisfies the constraints has 5/7 of the velocity, as a ball that is thrown without spin.
    v = 5 / 7 + 5 / 7 * G * np.sin(angle) * sol.t
    np.testing.assert_allclose(sol.v[:, 3:], v[:, None] * down, rtol=0, atol=1e-12)  # rounding of 100 steps
    # The forces do not change, so the method has no error but rounding.
    way = 5 / 7 * sol.t + 5 / 14 * G * np.sin(angle) * sol.t**2
    np.testing.assert_allclose(sol.q[:, 9:] - 0.3 * normal, way[:, None] * down, rtol=0, atol=1e-12)
    # The weight presses with its normal component; the multiplier of the rolling is 2/7 of the other.
    np.testing.assert_allclose(sol.position_multipliers[1:-1, 0], 2 * G * np.cos(angle), rtol=1e-9)
    friction = np.linalg.norm(sol.velocity_multipliers[1:-1], axis=1)
    np.testing.assert_allclose(friction, 2 / 7 * 2 * G * np.sin(angle), rtol=1e-9)


def test_a_ball_that_only_slides_feels_no_friction():
    angle = 0.4
    normal = (np.sin(angle), 0.0, np.cos(angle))
    ball = b.Body("ball", 2.0, 0.1, b.Ball(0.3), at=0.3 * np.array(normal), spin=(0.0, 3.0, 1.0))
    sol = run(b.assemble(ball, b.Contact("ball", b.Plane(normal), rolls=False)))
    np.testing.assert_allclose(sol.v[:, 3], G * np.sin(angle) * np.cos(angle) * sol.t, rtol=0, atol=1e-12)
    spin = np.einsum("tij,tj->ti", sol.q[:, :9].reshape(-1, 3, 3), sol.v[:, :3])
    np.testing.assert_allclose(spin, np.broadcast_to([0.0, 3.0, 1.0], spin.shape), rtol=0, atol=1e-12)


def test_a_ball_in_a_cylinder_follows_the_closed_solution():
    other = zoo.BallInCylinder()
    q, v = other.rolling(turning=3.0, rising=0.5, spin=-4.0)
    ball = b.Body(
        "ball",
        1.0,
        0.4 * 0.25**2,
        b.Ball(0.25),
        at=(0.75, 0.0, 0.0),
        velocity=(0.0, 0.75 * v[0], v[1]),
        spin=v[2:],
    )
    system = b.assemble(ball, b.Contact("ball", b.Cylinder(1.0)))
    start = system.state()
    exact, _ = other.solution(1.0, q, v)
    place = [0.75 * np.cos(exact[0]), 0.75 * np.sin(exact[0]), exact[1]]
    # Two runs of order 2, extrapolated to order 4: 1e-8 at h = 0.005.
    np.testing.assert_allclose(
        extrapolated(system, start, 0.005, 200, slice(9, 12)), place, rtol=0, atol=2e-7
    )


def test_a_wheel_is_the_falling_disk():
    disk = zoo.FallingDisk()
    tilt, turning, rolling = 0.3, 0.8, 2.5
    fine = da.simulate(disk, da.Reference(), *disk.moving(tilt, turning, rolling), h=0.05, steps=20)
    turn = np.asarray(da.scene.about_x(tilt))
    at = turn[:, 2] * disk.radius
    spin = np.array([0.0, 0.0, turning]) + rolling * turn[:, 1]
    wheel = b.Body(
        "wheel",
        disk.mass,
        (disk.diametral, disk.axial, disk.diametral),
        b.Wheel(disk.radius),
        at=at,
        turn=turn,
        velocity=np.cross(spin, at),
        spin=spin,
    )
    system = b.assemble(wheel, b.Contact("wheel"), gravity=disk.gravity)
    x, y, heading, tilt, _ = fine.q[-1]
    lean = np.array([np.sin(heading) * np.sin(tilt), -np.cos(heading) * np.sin(tilt), np.cos(tilt)])
    # Two runs of order 2, extrapolated to order 4.
    end = extrapolated(system, system.state(), 0.005, 200, slice(9, 12))
    np.testing.assert_allclose(end, [x, y, 0.0] + disk.radius * lean, rtol=0, atol=2e-7)


def curved(x, y):
    return 0.25 * x**2 + 0.15 * y**2 + 0.05 * jnp.sin(x + 2 * y)


class BallOnCurved(zoo.BallOnSurface):
    def height(self, x, y):
        return curved(x, y)


def test_a_ball_on_a_surface_is_that_of_the_zoo():
    """Two roads: the contact as coordinates and a metric that varies, or a position constraint on a group."""
    other = BallOnCurved(radius=0.3)
    q, v = other.rolling(0.8, -0.4, 0.3, 1.1, spin=3.0)
    fine = da.simulate(other, da.Reference(), q, v, h=0.05, steps=20)
    centre, moving = jax.jvp(other.centre, (jnp.asarray(q),), (jnp.asarray(v),))
    ball = b.Body("ball", 1.0, 0.4 * 0.3**2, b.Ball(0.3), at=centre, velocity=moving, spin=v[2:])
    system = b.assemble(ball, b.Contact("ball", b.Surface(curved)))
    end = extrapolated(system, system.state(), 0.005, 200, slice(9, 12))
    # Two runs of order 2, extrapolated to order 4.
    np.testing.assert_allclose(end, other.centre(fine.q[-1]), rtol=0, atol=2e-7)


@pytest.mark.parametrize("tilt", [0.0, 0.01])
def test_a_ball_rolls_from_the_top_of_a_hill(tilt):
    """At the top the first guess of the contact is exact for some points of a step, but not for all."""
    ball = b.Body(
        "ball", 2.0, 0.4 * 2.0 * 0.5**2, b.Ball(0.5), at=(0, 0, 0.5), velocity=(1, 0, 0), spin=(0, 2, 0)
    )
    hill = b.Surface(lambda x, y: tilt * x - 0.3 * (x**2 + y**2))
    sol = run(b.assemble(ball, b.Contact("ball", hill)), steps=60)
    assert sol.q[-1, 9] > 0.5
    height, speed = sol.q[:, 11], np.sum(sol.v[:, 3:] ** 2, axis=1)
    np.testing.assert_allclose(0.7 * speed + G * height, 0.7 * speed[0] + G * height[0], rtol=1e-12)


def test_a_ball_leaves_a_sphere_where_the_ground_would_have_to_pull():
    """Energy and the force along the normal: cos(angle) = (10 + 7 v0^2/(g L))/17 for a uniform ball, L between centres.

    Newton's law, by differences of the velocities, gives the whole force.
    """
    mass, sphere, radius, fast = 1.5, 2.0, 0.25, 1.0
    apart = sphere + radius
    ball = b.Body(
        "ball",
        mass,
        0.4 * mass * radius**2,
        b.Ball(radius),
        at=(0, 0, apart),
        velocity=(fast, 0, 0),
        spin=(0, fast / radius, 0),
    )
    dome = b.Surface(lambda x, y: jnp.sqrt(sphere**2 - x**2 - y**2))
    system = b.assemble(ball, b.Contact("ball", dome))
    h = 0.0025
    sol = run(system, h=h, steps=480)
    (touch,) = system.contacts(sol).values()
    assert list(system.contacts(sol)) == ["ball on surface"]
    leaves = int(np.argmax(touch.push < 0))
    assert leaves > 0
    assert np.all(touch.push[leaves:] < 0)
    cosine = np.interp(0.0, -touch.push[leaves - 1 : leaves + 1], sol.q[leaves - 1 : leaves + 1, 11] / apart)
    assert abs(cosine - (10 + 7 * fast**2 / (G * apart)) / 17) < 20 * h**2  # the order of the method
    np.testing.assert_allclose(touch.point + radius * touch.normal, sol.q[:, 9:], rtol=0, atol=1e-14)
    assert np.max(np.abs(touch.slip)) < 1e-14
    pulled = mass * (np.gradient(sol.v[:, 3:], h, axis=0) + np.array([0, 0, G]))
    assert np.max(np.abs(pulled - touch.force)[1:-1]) < 100 * h**2  # differences of order 2


def test_contacts_of_bodies_that_slide_and_of_ensembles():
    small = b.Body("small", 1.0, 0.1, b.Ball(0.5), at=(0, 0, 0.5), velocity=(2, 0, 0), spin=(0, 1, 3))
    slides = b.assemble(small, b.Contact("small", rolls=False))
    many = da.ensemble(
        slides, da.FrameGradient(), *(np.stack([x, x]) for x in slides.start()), h=0.01, steps=5
    )
    touch = slides.contacts(many)["small on plane"]
    assert touch.slip.shape == (2, 6, 3)
    np.testing.assert_allclose(touch.slip, np.broadcast_to([1.5, 0, 0], (2, 6, 3)), atol=1e-14)
    np.testing.assert_allclose(touch.force, np.broadcast_to([0, 0, G], (2, 6, 3)), atol=1e-12)
    assert b.assemble(small).contacts(many) == {}
    both = b.assemble([small, b.Body("other", 1.0, 0.1)], b.Contact("small"))
    with pytest.raises(ValueError, match="with 24 numbers in q; this one has 12"):
        both.contacts(many)


def test_an_ellipsoid_on_the_floor_is_the_rattleback():
    stone = zoo.Rattleback()
    q, v = stone.spinning(-3.0, lean=0.2)
    fine = da.simulate(stone, da.Reference(), q, v, h=0.01, steps=50)
    inertia = np.asarray(stone.metric(jnp.concatenate([jnp.eye(3).reshape(9), jnp.zeros(2)])))[:3, :3]
    turn = np.asarray(q[:9]).reshape(3, 3)
    height = -np.asarray(stone.contact(turn[2])) @ turn[2]
    body = b.Body(
        "stone",
        stone.mass,
        inertia,  # lying flat, the mass centre does not rise with w, so this is the body's own inertia
        b.Ellipsoid((stone.first, stone.second, stone.third), centre=(0.0, 0.0, stone.offset)),
        at=(0.0, 0.0, height),
        turn=turn,
        velocity=turn @ -np.cross(v[:3], stone.contact(turn[2])),
        spin=turn @ np.asarray(v[:3]),
    )
    system = b.assemble(body, b.Contact("stone"))
    end = extrapolated(system, system.state(), 0.0005, 1000, slice(0, 12))
    np.testing.assert_allclose(
        end[:11], fine.q[-1], rtol=0, atol=1e-7
    )  # extrapolated to order 4; measured 1e-8
    assert end[11] == pytest.approx(-float(jnp.sum(stone.contact(end[6:9]) * end[6:9])), abs=1e-7)


def test_two_balls_that_roll_on_each_other_keep_their_momenta():
    """Without gravity the forces between them are inner ones: linear and angular momentum stay as they are."""
    masses, moments, radii = (1.0, 3.0), (0.05, 0.6), (0.3, 0.7)
    one = b.Body(
        "one",
        masses[0],
        moments[0],
        b.Ball(radii[0]),
        at=(0.0, 0.0, 1.0),
        velocity=(1.0, 0.4, 0.0),
        spin=(1, 2, 3),
    )
    two = b.Body("two", masses[1], moments[1], b.Ball(radii[1]), spin=(0.5, -0.2, 0.1))
    system = b.assemble([one, two], b.Contact("one", "two"), gravity=0.0)
    start = da.start(system, *system.state())
    for method, off in ((da.Reference(), 1e-10), (da.FrameGradient(), 1e-3)):
        sol = run(system, method, h=0.02, steps=50, start=start)
        linear, angular = 0.0, 0.0
        for k in range(2):
            turn = sol.q[:, 12 * k : 12 * k + 9].reshape(-1, 3, 3)
            x, v = sol.q[:, 12 * k + 9 : 12 * k + 12], sol.v[:, 6 * k + 3 : 6 * k + 6]
            linear = linear + masses[k] * v
            angular = (
                angular
                + masses[k] * np.cross(x, v)
                + moments[k] * np.einsum("tij,tj->ti", turn, sol.v[:, 6 * k : 6 * k + 3])
            )
        # The reference's tolerance; the method of order 2 keeps them up to h^2.
        assert np.max(np.abs(linear - linear[0])) < off
        assert np.max(np.abs(angular - angular[0])) < off
        # They touch and do not slip: by hand, from their places, spins and radii.
        apart = sol.q[:, 9:12] - sol.q[:, 21:24]
        np.testing.assert_allclose(np.linalg.norm(apart, axis=1), sum(radii), rtol=0, atol=1e-10)
        n = apart / np.linalg.norm(apart, axis=1)[:, None]
        spins = [
            np.einsum("tij,tj->ti", sol.q[:, i : i + 9].reshape(-1, 3, 3), sol.v[:, j : j + 3])
            for i, j in ((0, 0), (12, 6))
        ]
        slip = (
            sol.v[:, 3:6]
            - radii[0] * np.cross(spins[0], n)
            - sol.v[:, 9:12]
            - radii[1] * np.cross(spins[1], n)
        )
        assert np.max(np.abs(slip)) < 1e-9
    assert np.ptp(sol.v[:, 3]) > 0.1  # each of them moves in a curve


# ---- where shapes touch ----------------------------------------------------------------------------------------

TURN = Rotation.from_euler("xyz", [0.4, -0.3, 1.1]).as_matrix()
PAIRS = {
    "ball on surface": (b.Ball(0.3), b.Surface(curved)),
    "wheel on surface": (b.Wheel(0.4, axis=(0.1, 1.0, 0.2)), b.Surface(curved)),
    "ellipsoid on surface": (b.Ellipsoid((0.5, 0.2, 0.3), centre=(0.02, 0.0, 0.05)), b.Surface(curved)),
    "ellipsoid in cylinder": (b.Ellipsoid((0.5, 0.2, 0.3)), b.Cylinder(2.0, axis=(1.0, 0.2, 0.0))),
    "ball in cylinder": (b.Ball(0.3, centre=(0.1, 0.0, 0.0)), b.Cylinder(2.0, axis=(1.0, 0.2, 0.0))),
    "wheel on floor": (b.Wheel(0.4), b.Plane()),
    "ellipsoid on ellipsoid": (b.Ellipsoid((0.5, 0.2, 0.3)), b.Ellipsoid((0.9, 0.7, 0.4))),
    "wheel on ball": (b.Wheel(0.4), b.Ball(0.6)),
    "ball on ball": (b.Ball(0.2), b.Ball(0.6)),
}


def surface_of(shape):
    """Points of the surface of a shape in the body, from two angles (one for a wheel)."""
    centre = np.asarray(shape.centre)
    if isinstance(shape, b.Wheel):
        axis = np.asarray(shape.axis)
        first = np.cross(axis, [1.0, 0.0, 0.0])
        first /= np.linalg.norm(first)
        second = np.cross(axis, first)
        return lambda u: centre + shape.radius * (np.cos(u[0]) * first + np.sin(u[0]) * second)
    size = np.broadcast_to(shape.radius, 3) if isinstance(shape, b.Ball) else np.asarray(shape.axes)
    ring = lambda u: np.array([np.cos(u[0]) * np.cos(u[1]), np.sin(u[0]) * np.cos(u[1]), np.sin(u[1])])
    return lambda u: centre + size * ring(u)


@pytest.mark.parametrize("name", PAIRS)
def test_shapes_touch_where_the_level_is_least(name):
    """Another road to the point of contact: the least level of all points of the surface, by a search."""
    shape, ground = PAIRS[name]
    pose = b.Pose(jnp.asarray(TURN), jnp.array([0.3, -0.2, 1.1]))
    under = b.Pose(jnp.asarray(TURN.T), jnp.array([0.1, 0.1, -0.2]))
    place = under if isinstance(ground, b.Shape) else b.WORLD
    point, normal = jax.jit(b.touch)(shape, pose, ground, place)
    gap = b.gap(shape, pose, ground, place)
    points = surface_of(shape)

    def level(u):
        return float(ground.level(place.inside(pose.point(points(u)))))

    starts = [np.array(u) for u in ((0.0, 0.0), (2.0, -1.0), (4.0, -0.5), (1.0, -1.3), (5.0, 0.4))]
    best = min(
        (minimize(level, u, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15}) for u in starts),
        key=lambda x: x.fun,
    )
    # A search finds the least value to rounding and its place to the root of rounding.
    assert float(gap) == pytest.approx(best.fun, abs=1e-12)
    np.testing.assert_allclose(point, pose.point(points(best.x)), rtol=0, atol=1e-6)
    slope = np.asarray(jax.grad(lambda x: ground.level(place.inside(x)))(point))
    np.testing.assert_allclose(normal, slope / np.linalg.norm(slope), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [x for x in PAIRS if "floor" not in x])
def test_derivatives_of_the_gap(name):
    """The first and second derivatives, against differences; the third is that of the motion's own derivatives."""
    shape, ground = PAIRS[name]

    @jax.jit
    def along(s):
        turn = jnp.asarray(TURN) @ da.scene.about_x(0.7 * s) @ da.scene.about_y(0.2 * s)
        under = b.Pose(jnp.asarray(TURN.T) @ da.scene.about_z(0.3 * s), jnp.array([0.1, 0.1, -0.2]))
        place = under if isinstance(ground, b.Shape) else b.WORLD
        return b.gap(
            shape, b.Pose(turn, jnp.array([0.3, -0.2, 1.1]) + s * jnp.array([0.3, 0.5, 0.2])), ground, place
        )

    first, second = jax.jit(jax.grad(along)), jax.jit(jax.jacfwd(jax.grad(along)))
    e = 1e-4
    # Differences of order 4: e^4 and rounding divided by e.
    for function, derivative in ((along, first), (first, second)):
        near = [float(function(k * e)) for k in (-2, -1, 1, 2)]
        by_hand = (near[0] - 8 * near[1] + 8 * near[2] - near[3]) / (12 * e)
        assert float(derivative(0.0)) == pytest.approx(by_hand, abs=1e-10)


@pytest.mark.parametrize(("curvature", "fits"), [(1.0, True), (1.9, True), (2.1, False), (8.0, False)])
def test_a_ball_touches_the_bottom_of_a_bowl_only_if_it_fits(curvature, fits):
    """A ball of radius 1/2 fits in a hollow of curvature below 2; in another one it touches the sides instead."""
    pose = b.Pose(jnp.eye(3), jnp.array([0.0, 0.0, 0.5]))
    hollow = b.Surface(lambda x, y: 0.5 * curvature * x**2 + 0.1 * y**2)
    assert np.isfinite(b.gap(b.Ball(0.5), pose, hollow)) == fits
    ball = b.Body("ball", 1.0, 0.1, b.Ball(0.5), at=pose.at)
    if not fits:
        system = b.assemble(ball, b.Contact("ball", hollow))
        with pytest.raises(ValueError, match="finite"):
            da.simulate(system, da.FrameGradient(), *system.state(), h=0.01, steps=10)


# ---- joints ----------------------------------------------------------------------------------------------------


def test_a_hinge_makes_a_pendulum():
    """(I + m l^2) angle'' = -m g l sin(angle), integrated as a plain equation."""
    mass, moment, arm = 1.5, 0.2, 0.7
    body = b.Body(
        "rod",
        mass,
        (0.1, moment, 0.15),
        b.Box((0.1, 0.1, 1.4)),
        at=(arm, 0.0, 0.0),
        turn=da.scene.about_y(-np.pi / 2),
    )
    system = b.assemble(body, b.Hinge("rod", at=(0.0, 0.0, arm), axis=(0.0, 1.0, 0.0)))
    exact = solve_ivp(
        lambda t, y: [y[1], -mass * G * arm * np.sin(y[0]) / (moment + mass * arm**2)],
        (0, 1.0),
        [np.pi / 2, 0.0],
        "DOP853",
        rtol=1e-12,
        atol=1e-13,
    ).y[0, -1]
    end = extrapolated(system, system.state(), 0.005, 200, slice(9, 12))
    # Two runs of order 2, extrapolated to order 4.
    np.testing.assert_allclose(end, [arm * np.sin(exact), 0.0, -arm * np.cos(exact)], rtol=0, atol=2e-7)


def test_a_ball_joint_makes_a_heavy_top():
    """The steady precession of a symmetric top: (I3 s - J p cos) p = m g l at a tilt, about its fixed point."""
    mass, arm, axial, across, tilt, turning = 1.2, 0.4, 0.08, 0.11, 0.5, 1.7
    whole = across + mass * arm**2
    spin = mass * G * arm / (axial * turning) + (whole / axial) * turning * np.cos(tilt)
    turn = np.asarray(da.scene.about_y(tilt))
    axis = turn[:, 2]
    # The component along the axis is `spin`, that across it comes from the precession.
    w = np.array([0.0, 0.0, turning])
    w = w - (w @ axis) * axis + spin * axis
    body = b.Body(
        "top",
        mass,
        (across, across, axial),
        at=arm * axis,
        turn=turn,
        spin=w,
        velocity=np.cross(w, arm * axis),
    )
    system = b.assemble(body, b.BallJoint("top", at=(0.0, 0.0, -arm)))
    sol = run(system, h=0.005, steps=400)
    np.testing.assert_allclose(
        sol.q[:, 11], arm * np.cos(tilt), rtol=0, atol=1e-3
    )  # order 2: it nods by h^2 s^2 l
    angle = np.unwrap(np.arctan2(sol.q[:, 10], sol.q[:, 9]))
    assert angle[-1] == pytest.approx(turning * 2.0, abs=5e-3)
    other = run(system, da.Reference(), h=0.02, steps=50)
    np.testing.assert_allclose(
        other.q[:, 11], arm * np.cos(tilt), rtol=0, atol=1e-9
    )  # the reference's tolerance
    exact = np.stack(
        [np.sin(tilt) * np.cos(turning * other.t), np.sin(tilt) * np.sin(turning * other.t)], axis=1
    )
    np.testing.assert_allclose(other.q[:, 9:11], arm * exact, rtol=0, atol=1e-8)


def test_a_blade_skates_on_a_slope_like_the_knife_edge():
    """A blade that turns at a constant rate on a slope moves on a cycloid: along it, v' = g sin(slope) cos(heading)."""
    angle, rate = 0.3, 1.3
    turn = np.asarray(da.scene.about_y(angle))  # its z axis is normal to the slope, its x axis points down it
    body = b.Body("skate", 1.0, 0.2, turn=turn, spin=rate * turn[:, 2])
    system = b.assemble(body, b.Blade("skate", on=b.Plane(turn[:, 2])))
    sol = run(system, h=0.005, steps=200)
    down = (1 - np.cos(2 * rate * sol.t)) / 4
    aside = rate * sol.t / 2 - np.sin(2 * rate * sol.t) / 4
    way = G * np.sin(angle) / rate**2 * np.stack([down, aside], axis=1)
    np.testing.assert_allclose(sol.q[:, 9:] @ turn[:, :2], way, rtol=0, atol=5e-5)  # order 2 at h = 0.005
    np.testing.assert_allclose(sol.q[:, 9:] @ turn[:, 2], 0.0, atol=1e-13)


def test_a_car_with_four_wheels_drives_on_a_circle():
    """Only five of the eight constraints are independent: three points hold the car down, two wheels steer it."""
    radius = 3.0  # of the middle of the rear axle, about the point (-1, 3)
    corners = [(x, y) for x in (-1.0, 1.0) for y in (-0.5, 0.5)]
    along = [(radius - y, x + 1.0, 0.0) for x, y in corners]  # normal to the line to the centre of the circle
    wheels = [b.Blade("car", at=(*at, 0.0), along=way) for at, way in zip(corners, along, strict=True)]
    rate = 0.5
    car = b.Body(
        "car", 2.0, (0.4, 0.9, 1.2), velocity=rate * np.array([radius, 1.0, 0.0]), spin=(0.0, 0.0, rate)
    )
    with pytest.warns(da.ConstraintWarning, match="constraints"):
        sol = run(b.assemble(car, wheels), h=0.02, steps=100)
    assert sol.multipliers.shape[1] == 8
    angle = rate * sol.t
    middle = np.stack(
        [-1 + np.cos(angle) + radius * np.sin(angle), radius + np.sin(angle) - radius * np.cos(angle)], axis=1
    )
    np.testing.assert_allclose(
        sol.q[:, 9:11], middle, rtol=0, atol=1e-3
    )  # order 2: h^2 w^2/24 of a radius of 3
    np.testing.assert_allclose(sol.q[:, 11], 0.0, atol=1e-13)
    weight = sol.position_multipliers[5:]
    # The floor carries the weight; of all ways to share it, the least squares give each wheel the same.
    np.testing.assert_allclose(weight, 2.0 * G / 4, rtol=1e-9)


# ---- springs, dampers, motors ------------------------------------------------------------------------------------


def test_two_bodies_with_a_spring_and_a_motor_between_them():
    """The spring acts along the axis of the motor, so both motions are closed and independent of each other.

    The relative rate about the axis obeys w' = (T - c w)(1/I1 + 1/I2), and both sums of momenta are zero.
    """
    k, masses, length, stretch = 3.0, (1.0, 2.0), 1.0, 0.2
    moments, torque, drag = (0.3, 0.8), 0.6, 0.25
    one = b.Body("one", masses[0], moments[0])
    two = b.Body("two", masses[1], moments[1], at=(0.0, length + stretch, 0.0))
    spring = b.Spring("one", "two", stiffness=k, length=length)
    motor = b.Motor("one", "two", torque=torque, drag=drag, axis=(0.0, 1.0, 0.0))
    system = b.assemble([one, two], [spring, motor], gravity=0.0)
    sol = run(system, h=0.002, steps=500)
    rate = np.sqrt(k * (1 / masses[0] + 1 / masses[1]))
    apart = sol.q[:, 22] - sol.q[:, 10]
    np.testing.assert_allclose(apart, length + stretch * np.cos(rate * sol.t), rtol=0, atol=1e-6)  # order 2
    np.testing.assert_allclose(
        sol.q[:, [10, 22]] @ masses, masses[1] * (length + stretch), rtol=0, atol=1e-13
    )
    ease = 1 / moments[0] + 1 / moments[1]
    exact = torque / drag * -np.expm1(-drag * ease * sol.t)
    np.testing.assert_allclose(sol.v[:, 1] - sol.v[:, 7], exact, rtol=0, atol=1e-6)  # order 2
    np.testing.assert_allclose(sol.v[:, [1, 7]] @ moments, 0.0, atol=1e-13)


@pytest.mark.parametrize("straight", [True, False])
def test_a_damper_slows_down(straight):
    """Along the line x' decays by itself; across it only the damper against the whole velocity acts."""
    mass, damping = 2.0, 3.0
    body = b.Body("body", mass, 0.1, at=(1.0, 0.0, 0.0), velocity=(1.0, 0.0, 0.0))
    system = b.assemble(body, b.Damper("body", damping=damping, straight=straight), gravity=0.0)
    sol = run(system, h=0.002, steps=500)
    np.testing.assert_allclose(sol.v[:, 3], np.exp(-damping / mass * sol.t), rtol=0, atol=1e-6)  # order 2
    e = sol.energy()
    # The energy that is lost is the work of the damper, which the trajectory sums over its rows: order 2.
    np.testing.assert_allclose(e - e[0], sol.work(), rtol=0, atol=2e-6)
    aside = system.state(body={"velocity": (0.0, 1.0, 0.0)})
    across = run(system, h=0.002, steps=2, start=aside).v[-1, 4]
    # After 0.004 s the line has turned by 0.004, so a force along it is of that order.
    assert (across > 1 - 1e-4) == straight


@cache
def bowl():
    ball = b.Body("ball", 1.0, 0.4 * 0.2**2, b.Ball(0.2), at=(1.0, 0.0, 0.6), velocity=(0.0, 1.2, 0.0))
    system = b.assemble(ball, b.Contact("ball", b.Surface(lambda x, y: 0.3 * (x**2 + y**2))))
    return system, da.start(system, *system.state())


def test_a_bowl_runs_natively_for_long(recwarn):
    system, start = bowl()
    assert "changed the configuration" in start.words
    sol = run(system, h=0.02, steps=20_000, start=start, save_every=100)
    assert not [w for w in recwarn if "XLA" in str(w.message)]
    assert np.max(np.hypot(sol.q[:, 9], sol.q[:, 10])) < 1.2


def test_ensembles_files_and_derivatives_of_bodies(tmp_path):
    def pushed(torque):
        ball = b.Body("ball", 1.0, 0.1, b.Ball(0.5), at=(0.0, 0.0, 0.5))
        return b.assemble(ball, [b.Contact("ball"), b.Motor("ball", torque=torque, axis=(0.0, 1.0, 0.0))])

    def way(torque):
        return da.simulate(pushed(torque), da.FrameGradient(), *start, h=0.02, steps=50).q[-1, 9]

    start = pushed(0.3).state()
    # The axis stays as it is, so the acceleration is T a/(I + m a^2) all the way; rounding of 50 steps.
    slope = 0.5 * 0.5 / (0.1 + 0.25)
    assert float(way(0.3)) == pytest.approx(0.3 * slope, rel=1e-12)
    assert float(jax.grad(way)(0.3)) == pytest.approx(slope, rel=1e-12)
    speeds = np.array([1.0, 2.0])
    q, v = (np.asarray(x) for x in start)
    rolling = v + speeds[:, None] * np.array([0.0, 1.0, 0.0, 0.5, 0.0, 0.0])
    both = da.ensemble(pushed(0.3), da.FrameGradient(), np.stack([q, q]), rolling, h=0.02, steps=50)
    np.testing.assert_allclose(
        both.q[:, -1, 9], 0.5 * speeds + 0.3 * slope, rtol=1e-12
    )  # rounding of 50 steps
    path = tmp_path / "ball.nc"
    both.member(1).save(path)
    again = da.load(path)
    np.testing.assert_array_equal(again.q, both.q[1])


# ---- refusals ----------------------------------------------------------------------------------------------------

FLOOR = b.Plane()


def ball(**options):
    return b.Body(**{"name": "ball", "mass": 1.0, "inertia": 0.1, "shape": b.Ball(0.5), **options})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ball(mass=-1.0), "mass must be positive"),
        (lambda: ball(mass="heavy"), "mass must be one number"),
        (lambda: ball(inertia=(1.0, 2.0)), "three principal moments"),
        (lambda: ball(inertia=(1.0, 1.0, 3.0)), "none is larger than the sum"),
        (lambda: ball(name="my ball"), "must be a word"),
        (lambda: ball(shape=0.5), "shape must be a Ball"),
        (lambda: ball(at=(0.0, 1.0)), "at must be three numbers"),
        (lambda: ball(turn=np.eye(3) * 2), "rotation matrix"),
        (lambda: ball(turn="upside down"), "rotation matrix"),
        (lambda: b.Wheel(1.0, axis=(0.0, 0.0, 0.0)), "axis must be a direction"),
        (lambda: b.Ellipsoid((1.0, 0.0, 1.0)), "must be positive"),
        (lambda: b.Surface(3.0), "needs a function height"),
        (lambda: b.assemble([]), "at least one"),
        (lambda: b.assemble([ball(), ball()]), "different names"),
        (lambda: b.assemble(ball(), b.Contact("disc")), "'disc', which is not one of the bodies: ball"),
        (lambda: b.assemble(ball(shape=None), b.Contact("ball")), "cannot touch anything"),
        (lambda: b.assemble(ball(shape=b.Box((1.0, 1.0, 1.0))), b.Contact("ball")), "cannot touch anything"),
        (lambda: b.assemble(ball(), b.Contact("ball", on=3)), "must be a Plane"),
        (lambda: b.assemble(ball(), b.Contact("ball", on="ball")), "with itself"),
        (lambda: b.assemble(ball(), b.Spring("ball", "ball")), "with itself"),
        (
            lambda: b.assemble([ball(), ball(name="wheel", shape=b.Wheel(1.0))], b.Contact("ball", "wheel")),
            "must be a Ball",
        ),
        (lambda: b.assemble(ball(), "contact"), "pieces must be a list of Piece"),
        (lambda: b.assemble("ball"), "bodies must be a list of Body"),
        (lambda: b.Spring("ball", stiffness=-1.0), "stiffness must be positive"),
        (lambda: b.Spring("ball", length=-1.0), "length must not be negative"),
        (lambda: b.Spring("ball", length="long"), "length must be one number"),
        (lambda: b.Motor("ball", torque="full"), "torque must be one number"),
        (lambda: b.assemble(ball(), gravity="down"), "gravity must be one number"),
        (lambda: b.assemble(ball()).state(disc={}), "no body 'disc'"),
        (lambda: b.assemble(ball()).state(ball={"speed": 1}), "no 'speed'"),
    ],
)
def test_wrong_input_is_refused_with_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_start_off_the_floor_is_refused():
    system = b.assemble(ball(at=(0.0, 0.0, 1.0)), b.Contact("ball"))
    with pytest.raises(ValueError, match="position constraints"):
        da.simulate(system, da.FrameGradient(), *system.state(), h=0.01, steps=10)
