"""Bodies that roll: thresholds of stability, steady motions, closed solutions; which method keeps which integral."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hurry import compiled
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

import dalembert as da
from dalembert.model import acceleration

zoo = da.zoo
G = 9.81


def along(function, sol):
    """The values of a function of (q, v) at every stored state."""
    return np.asarray(jax.jit(jax.vmap(function))(sol.q, sol.v))


def changes(system, sol):
    """The largest change of each integral, by name."""
    values = {name: along(f, sol) for name, f in system.integrals().items()}
    return {name: np.max(np.abs(x - x[0])) for name, x in values.items()}


# ---- the disk that tilts ----------------------------------------------------------------------------------

DISKS = {
    "disk": zoo.FallingDisk(),
    "hoop": zoo.FallingDisk(axial=1.0, diametral=0.5),
    "other": zoo.FallingDisk(mass=1.3, radius=0.7, axial=0.4, diametral=0.3, gravity=5.0),
}
# Published thresholds, as multiples of g/a [neimark1972].
THRESHOLDS = {"disk": 1 / 3, "hoop": 1 / 4}
# A zero eigenvalue of multiplicity k comes out as the k-th root of rounding: 1e-8 for two, measured 1e-7.
ZERO = 1e-5


def fastest(disk, state):
    """The square of the largest eigenvalue of the linearised motion; all others are zero."""
    found = da.linearise(disk, *state).eigenvalues
    found = found[np.argsort(-np.abs(found))]
    assert np.max(np.abs(found[2:])) < ZERO
    square = found[0] ** 2
    assert abs(square.imag) < 1e-9 * abs(square)  # on an axis: rounding
    return square.real


@pytest.mark.parametrize("name", DISKS)
def test_an_upright_disk_rolls_stably_above_the_threshold(name):
    disk = DISKS[name]
    m, a, axial, across, g = disk.mass, disk.radius, disk.axial, disk.diametral, disk.gravity
    threshold = across * m * g * a / (axial * (axial + m * a**2))
    if name in THRESHOLDS:
        assert threshold == pytest.approx(THRESHOLDS[name] * g / a, rel=1e-15)  # the same number
    assert fastest(disk, disk.moving(0.0, 0.0, np.sqrt(1.001 * threshold))) < -1e-3 * threshold
    assert fastest(disk, disk.moving(0.0, 0.0, np.sqrt(0.999 * threshold))) > 1e-3 * threshold
    for speed in (0.5, 2.0, 5.0):
        square = ((axial + m * a**2) * (axial / across) * speed**2 - m * g * a) / (across + m * a**2)
        if name == "disk":
            # Published; rounding.
            assert square == pytest.approx(12 / 5 * speed**2 - 4 / 5 * g / a, rel=1e-14)
        # Eigenvalues of a 8 x 8 matrix of entries up to 40.
        assert fastest(disk, disk.moving(0.0, 0.0, speed)) == pytest.approx(-square, rel=1e-11)


@cache
def reduced_matrix():
    """The derivative of the motion of (tilt, tilt', heading', roll')."""

    def flow(disk, y):
        tilt, tilting, turning, rolling = y
        zero = jnp.zeros(())
        v = jnp.stack([disk.radius * rolling, zero, turning, tilting, rolling])
        x = acceleration(disk, jnp.stack([zero, zero, zero, tilt, zero]), v)[0]
        return jnp.stack([tilting, x[3], x[2], x[4]])

    return compiled(jax.jacfwd(flow, argnums=1), zoo.FallingDisk(), jnp.zeros(4))


@pytest.mark.parametrize("name", DISKS)
def test_an_upright_disk_spins_stably_above_the_threshold(name):
    """The constraint depends on the heading, along which this motion goes: `linearise` gives no constant matrix here.

    The tilt and the rates alone, on which the heading has no influence, do.
    """
    disk = DISKS[name]
    m, a, across, g = disk.mass, disk.radius, disk.diametral, disk.gravity
    threshold = m * g * a / (across + m * a**2)
    if name == "disk":
        assert threshold == pytest.approx(4 * g / (5 * a), rel=1e-15)  # the same number
    reduced = reduced_matrix()
    for speed in (0.5, 0.99 * np.sqrt(threshold), 1.01 * np.sqrt(threshold), 6.0):
        found = np.linalg.eigvals(reduced(disk, jnp.array([0.0, 0.0, speed, 0.0]))) ** 2
        found = found[np.argsort(-np.abs(found))]
        # Close to the threshold the difference of two numbers near 8 loses two digits.
        assert abs(found[0] - (threshold - speed**2)) < 1e-12 * max(threshold, speed**2)
        assert np.max(np.abs(found[2:])) < ZERO**2
        rolling = fastest(disk, disk.moving(0.0, 0.0, speed))
        found = np.linalg.eigvals(reduced(disk, jnp.array([0.0, 0.0, 0.0, speed]))) ** 2
        # The other road to the test above; eigenvalues of matrices of entries up to 100.
        assert np.min(np.abs(found - rolling)) < 1e-11 * max(1, abs(rolling))


def rates(disk, tilt, p, s):
    """Euler's equations about the centre with the force at the contact, by hand: (tilt'', p', s') for tilt' = 0.7."""
    m, a, axial, across, g = (
        float(x) for x in (disk.mass, disk.radius, disk.axial, disk.diametral, disk.gravity)
    )
    # In the frame (heading, axle, steepest line), which turns at f; w is the disk's own angular velocity.
    w, f = np.array([0.7, s, p]), np.array([0.7, p * np.tan(tilt), p])
    arm, moments = np.array([0.0, 0.0, a]), np.array([across, axial, across])
    weight = -m * g * np.array([0.0, np.sin(tilt), np.cos(tilt)])

    def residual(dw):
        force = m * (np.cross(dw, arm) + np.cross(f, np.cross(w, arm))) - weight
        return moments * dw + np.cross(f, moments * w) - np.cross(-arm, force)

    rest = residual(np.zeros(3))
    matrix = np.stack([residual(e) - rest for e in np.eye(3)], axis=1)
    d = np.linalg.solve(matrix, -rest)
    return d[0], d[2], d[1]


@pytest.mark.parametrize("name", DISKS)
def test_the_disk_obeys_the_equations_of_its_docstring_and_of_euler(name):
    disk = DISKS[name]
    m, a, axial, across, g = disk.mass, disk.radius, disk.axial, disk.diametral, disk.gravity
    draw = np.random.default_rng(5)
    for tilt, turning, rolling, heading in draw.uniform(-1.2, 1.2, (6, 4)) * [1, 3, 3, 3]:
        tilting = 0.7
        forward = a * rolling * np.array([np.cos(heading), np.sin(heading)])
        q, v = [0.3, -0.2, heading, tilt, 0.4], [*forward, turning, tilting, rolling]
        x = np.asarray(da.acceleration(disk, q, v)[0])
        st, ct = np.sin(tilt), np.cos(tilt)
        p, s, b = turning * ct, rolling + turning * st, axial + m * a**2
        found = x[3], x[2] * ct - turning * st * tilting, x[4] + x[2] * st + turning * ct * tilting
        told = (
            (b * p * s - across * p**2 * np.tan(tilt) + m * g * a * st) / (across + m * a**2),
            (p * np.tan(tilt) - axial / across * s) * tilting,
            -m * a**2 / b * p * tilting,
        )
        # Accelerations up to 100, solved from linear equations of condition below 100.
        np.testing.assert_allclose(found, told, rtol=0, atol=1e-11)
        np.testing.assert_allclose(rates(disk, tilt, p, s), told, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", DISKS)
def test_steady_motions_stay_steady(name):
    disk = DISKS[name]
    for tilt, turning in ((0.5, -1.5), (1.1, 3.0), (-0.3, 0.8)):
        q, v = disk.steady(tilt, turning)
        x = np.asarray(da.acceleration(disk, q, v)[0])
        # The contact point turns with the heading; all other rates stay. Rounding of accelerations up to 30.
        np.testing.assert_allclose(x, [0.0, v[0] * turning, 0.0, 0.0, 0.0], rtol=0, atol=1e-12)
    start = disk.start("steady")
    sol = da.simulate(disk, da.Reference(), *start, h=0.05, steps=200)
    assert np.max(np.abs(sol.q[:, 3] - 0.5)) < 1e-12  # rounding of 200 steps
    assert np.max(np.abs(sol.v[:, 2:] - sol.v[0, 2:])) < 1e-12
    # The contact point moves on a circle of radius a phi'/psi'.
    radius = disk.radius * sol.v[0, 4] / sol.v[0, 2]
    assert np.max(np.abs(np.hypot(sol.q[:, 0], sol.q[:, 1] - radius) - abs(radius))) < 1e-11
    other = disk.moving(0.5, -1.4, start[1][4])
    other = da.simulate(disk, da.Reference(), *other, h=0.05, steps=50)
    assert np.ptp(other.q[:, 3]) > 0.01  # another rate is not steady


@pytest.mark.parametrize("name", DISKS)
def test_the_hidden_integrals_solve_the_linear_equations_in_the_tilt(name):
    """A road without power series: the equations of (p, s), integrated from the tilt of the state to zero."""
    disk = DISKS[name]
    m, a, axial, across = disk.mass, disk.radius, disk.axial, disk.diametral

    def linear(tilt, y):
        return [y[0] * np.tan(tilt) - axial / across * y[1], -m * a**2 / (axial + m * a**2) * y[0]]

    spin, turning = disk.integrals().values()
    for tilt, heading, rolling in ((0.3, 2.0, -1.0), (-0.9, -1.0, 3.0), (1.2, 0.5, 0.7)):
        q, v = np.array([0.0, 0.0, 0.0, tilt, 0.0]), np.array([a * rolling, 0.0, heading, 0.4, rolling])
        first = [heading * np.cos(tilt), rolling + heading * np.sin(tilt)]
        there = solve_ivp(linear, (tilt, 0.0), first, "DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
        # The tolerance of the other integration, some hundred times.
        np.testing.assert_allclose([float(turning(q, v)), float(spin(q, v))], there, rtol=0, atol=2e-11)


def test_which_method_keeps_what_of_the_disk():
    disk = zoo.FallingDisk()
    for name in ("default", "spinning", "falling"):
        exact = da.simulate(disk, da.Reference(), *disk.start(name), h=0.05, steps=200)
        assert max(changes(disk, exact).values()) < 1e-12  # rounding of 200 steps; measured 2e-14
        energy = exact.energy()
        assert np.max(np.abs(energy / energy[0] - 1)) < 1e-13
    found = {}
    for parts in (1, 2):
        start = disk.start("spinning")
        sol = da.simulate(disk, da.FrameGradient(), *start, h=0.05 / parts, steps=200 * parts)
        found[parts] = changes(disk, sol)
        energy = sol.energy()
        # Its claim: 400 solves to 1e-13 of an energy of 12.
        assert np.max(np.abs(energy / energy[0] - 1)) < 1e-11
        # What is no integral changes: the spin, the rate of turning, the momentum about the vertical at the contact.
        p = along(lambda q, v: disk.metric(q)[2] @ v, sol)
        for x in (sol.v[:, 4], sol.v[:, 2], p):
            assert np.ptp(x) > 0.1
    for name, change in found[1].items():
        # Order 2: a quarter of the error at half the step, up to terms of order h^2 = 2.5e-3.
        assert change / found[2][name] == pytest.approx(4, rel=0.02), name
        assert change > 1e-3  # far above rounding, so the ratio says something


# ---- Chaplygin's sphere -----------------------------------------------------------------------------------

LIE_METHODS = {
    "lie-gni": da.LieGNI(),
    "lie-gni:cayley": da.LieGNI("cayley"),
    "variational": da.VariationalDLA(da.discrete.Retraction("exp")),
}


def momentum_flow(moments, d, y):
    """K' = K x w, n' = n x w, with w from K by a formula: K = (I + D) w - D (w.n) n is solved by hand."""
    k, n = y[:3], y[3:]
    a = 1 / (moments + d)
    inverse = a * n * d / (1 - d * np.sum(n * a * n))  # Sherman and Morrison
    w = a * k + inverse * np.sum(n * a * k)
    return np.concatenate([np.cross(k, w), np.cross(n, w)]), w


def random_turns(count, seed):
    return Rotation.random(count, random_state=seed).as_matrix()


def test_chaplygins_sphere_obeys_its_equations():
    sphere = zoo.ChaplyginSphere(mass=1.2, radius=0.8)
    moments, d = np.array([0.3, 0.4, 0.6]), 1.2 * 0.8**2
    for turn, w in zip(random_turns(5, 1), np.random.default_rng(2).uniform(-2, 2, (5, 3)), strict=True):
        space, n = turn @ w, turn[2]
        v = np.concatenate([w, 0.8 * np.array([space[1], -space[0]])])
        dw = np.asarray(da.acceleration(sphere, np.append(turn.ravel(), [0.3, -0.4]), v)[0])[:3]
        k = moments * w + d * (w - w @ n * n)
        dn = np.cross(n, w)
        dk = moments * dw + d * (dw - (dw @ n + w @ dn) * n - w @ n * dn)
        # Numbers up to 10, through linear equations of condition below 10.
        np.testing.assert_allclose(dk, np.cross(k, w), rtol=0, atol=1e-13)
        flow, found = momentum_flow(moments, d, np.concatenate([k, n]))
        np.testing.assert_allclose(found, w, rtol=0, atol=1e-13)
        np.testing.assert_allclose(flow, np.concatenate([dk, dn]), rtol=0, atol=1e-13)


def test_the_reference_keeps_all_integrals_of_chaplygins_sphere():
    sphere = zoo.ChaplyginSphere()
    q0, v0 = sphere.start()
    sol = da.simulate(sphere, da.Reference(), q0, v0, h=0.1, steps=200, save_every=20)
    assert max(changes(sphere, sol).values()) < 1e-13  # rounding of 200 steps; measured 3e-15
    energy = sol.energy()
    assert np.max(np.abs(energy - energy[0])) < 1e-13
    moments, w, n = np.array([0.3, 0.4, 0.6]), sol.v[:, :3], sol.q[:, 6:9]
    k = moments * w + w - np.sum(w * n, axis=1)[:, None] * n
    turned = np.einsum("tij,tj->ti", sol.q[:, :9].reshape(-1, 3, 3), k)
    assert np.max(np.abs(turned - turned[0])) < 1e-13  # all three components in space
    np.testing.assert_allclose(np.sum(k * w, axis=1) / 2, energy, rtol=1e-13)
    # A road without the library: the six equations of (K, n). Tolerance of the other integration, a hundred times.
    start = np.concatenate([k[0], n[0]])
    other = solve_ivp(
        lambda t, y: momentum_flow(moments, 1.0, y)[0],
        (0, 20),
        start,
        "DOP853",
        sol.t,
        rtol=1e-13,
        atol=1e-14,
    )
    np.testing.assert_allclose(np.concatenate([k, n], axis=1), other.y.T, rtol=0, atol=1e-10)
    # What is no integral changes: the momentum in the body, its square without D, the spin about the vertical.
    for x in (k[:, 0], np.sum((moments * w) ** 2, axis=1), np.sum(w * n, axis=1)):
        assert np.ptp(x) > 0.01


@pytest.mark.parametrize("name", LIE_METHODS)
def test_methods_on_groups_keep_the_momentum_of_chaplygins_sphere(name):
    """The turns about axes through the contact are constant sections: the momentum is exact, the energy of order 2."""
    sphere = zoo.ChaplyginSphere()
    errors = []
    for parts in (1, 2):
        sol = da.simulate(sphere, LIE_METHODS[name], *sphere.start(), h=0.1 / parts, steps=300 * parts)
        assert max(changes(sphere, sol).values()) < 1e-12  # rounding of 600 steps; measured 3e-14
        energy = sol.energy()
        errors.append(np.max(np.abs(energy - energy[0])))
    assert errors[0] > 1e-5  # it does change
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)  # order 2, up to h^2 = 1e-2


def test_the_frame_method_keeps_the_energy_of_chaplygins_sphere_but_not_the_momentum():
    sphere = zoo.ChaplyginSphere()
    q0, v0 = sphere.start()
    chart, squared = da.Chart(sphere, q0), sphere.integrals()["momentum squared"]
    errors = []
    for parts in (1, 2):
        sol = da.simulate(chart, da.FrameGradient(), jnp.zeros(5), v0, h=0.1 / parts, steps=25 * parts)
        energy = sol.energy()
        assert np.max(np.abs(energy - energy[0])) < 1e-11  # 50 solves to 1e-13
        body = along(lambda x, u: squared(chart.element(x), chart._velocity(x) @ u), sol)
        errors.append(np.max(np.abs(body - body[0])))
    assert errors[0] > 1e-6
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)  # order 2


def test_chaplygins_sphere_has_an_invariant_measure():
    """The divergence of density times flow on the space of (K, n), by central differences."""
    moments, d = np.array([0.3, 0.4, 0.6]), 0.7

    def divergence(power):
        def weighted(y):
            return (1 / d - np.sum(y[3:] ** 2 / (moments + d))) ** power * momentum_flow(moments, d, y)[0]

        found = []
        for turn, k in zip(random_turns(4, 3), np.random.default_rng(4).uniform(-1, 1, (4, 3)), strict=True):
            y, step = np.concatenate([k, turn[2]]), 1e-5
            columns = [(weighted(y + step * e) - weighted(y - step * e)) @ e for e in np.eye(6)]
            found.append(sum(columns) / (2 * step))
        return np.max(np.abs(found))

    assert divergence(-0.5) < 1e-8  # 1e-5^2 times third derivatives of up to 50
    assert min(divergence(power) for power in (0.0, 0.5, -1.0)) > 1e-3


def test_a_sphere_with_equal_moments_rolls_straight():
    sphere = zoo.ChaplyginSphere(i1=0.4, i2=0.4, i3=0.4)
    sol = da.simulate(sphere, da.LieGNI(), *sphere.start(), h=0.1, steps=100)
    # The angular velocity in space is constant. Rounding of 100 steps over a way of 10.
    assert np.max(np.abs(sol.q[:, 9:] - np.outer(sol.t, sol.v[0, 3:]))) < 1e-12
    bent = zoo.ChaplyginSphere()
    sol = da.simulate(bent, da.LieGNI(), *bent.start(), h=0.1, steps=100)
    assert np.max(np.abs(sol.q[:, 9:] - np.outer(sol.t, sol.v[0, 3:]))) > 0.1


# ---- the ball in a cylinder -------------------------------------------------------------------------------

CYLINDERS = {
    "homogeneous": zoo.BallInCylinder(),
    "hollow": zoo.BallInCylinder(mass=2.0, cylinder=1.5, radius=0.4, k=2 / 3, gravity=3.0),
}


def in_cylinder(name):
    """The starts of a ball, and two that begin away from phi = 0, one of which does not turn."""
    ball = CYLINDERS[name]
    a, b = ball.radius, ball.cylinder - ball.radius
    phi, rising, spin = 0.3, 0.4, 5.0
    out, around = np.array([np.cos(phi), np.sin(phi)]), np.array([-np.sin(phi), np.cos(phi)])
    starts = list(ball.starts().values())
    for turning in (-4.0, 0.0):
        w = spin * out + rising / a * around
        starts.append(([phi, 1.0, 0.1, -0.2, 0.3], [turning, rising, *w, -b * turning / a]))
    return ball, starts


@pytest.mark.parametrize("name", CYLINDERS)
def test_the_reference_follows_the_closed_solution_in_the_cylinder(name):
    ball, starts = in_cylinder(name)
    for q0, v0 in starts:
        sol = da.simulate(ball, da.Reference(), q0, v0, h=0.05, steps=200, save_every=10)
        q, v = ball.solution(sol.t, q0, v0)
        np.testing.assert_allclose(q[0], q0, rtol=0, atol=1e-15)
        np.testing.assert_allclose(v[0], v0, rtol=0, atol=1e-13)
        # Rounding of 200 steps, of coordinates up to 500 (the ball that falls); measured 1e-15 of them.
        assert np.max(np.abs(sol.q - q)) < 1e-13 * max(1, np.max(np.abs(q)))
        assert np.max(np.abs(sol.v - v)) < 1e-13 * max(1, np.max(np.abs(v)))
        assert max(changes(ball, sol).values()) < 1e-12 * max(1, np.max(np.abs(v)))


def test_the_closed_solution_in_the_cylinder_is_the_published_one():
    """From rest in height and without spin: z = -(5 g/(2 W^2)) (1 - cos(sqrt(2/7) W t)); it returns to its height."""
    ball, rate = zoo.BallInCylinder(), 6.0
    q0, v0 = ball.start()
    period = 2 * np.pi / (np.sqrt(2 / 7) * rate)
    t = np.linspace(0, 3 * period, 31)
    z = ball.solution(t, q0, v0)[0][:, 1]
    told = -5 * G / (2 * rate**2) * (1 - np.cos(np.sqrt(2 / 7) * rate * t))
    np.testing.assert_allclose(z, told, rtol=0, atol=1e-13)  # rounding of phases up to 20
    assert np.max(np.abs(z[::10])) < 1e-13
    assert np.min(z) > -5 * G / rate**2 - 1e-13
    # Without turning, nothing holds it: it falls at 5/7 of g.
    q0, v0 = ball.rolling(turning=0.0)
    np.testing.assert_allclose(ball.solution(t, q0, v0)[0][:, 1], -5 / 14 * G * t**2, rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", CYLINDERS)
def test_the_closed_solution_in_the_cylinder_obeys_newton_and_euler(name):
    """Forces at the wall from the motion of the centre must turn the ball as it turns; by central differences."""
    ball, starts = in_cylinder(name)
    m, a, b, k, g = (
        float(x) for x in (ball.mass, ball.radius, ball.cylinder - ball.radius, ball.k, ball.gravity)
    )
    step = 1e-4
    for q0, v0 in starts:
        for t in (0.4, 1.7):
            times = np.array([t - step, t, t + step])
            q, v = ball.solution(times, q0, v0)
            centre = np.stack([b * np.cos(q[:, 0]), b * np.sin(q[:, 0]), q[:, 1]], axis=1)
            out, w = np.append(centre[1, :2] / b, 0.0), v[:, 2:]
            velocity = (centre[2] - centre[0]) / (2 * step)
            force = m * ((centre[2] - 2 * centre[1] + centre[0]) / step**2 + [0, 0, g])
            turn = k * m * a**2 * (w[2] - w[0]) / (2 * step)
            # Differences: step^2/6 times third derivatives of up to 5000; second ones also lose 1e-16/step^2.
            np.testing.assert_allclose(velocity + np.cross(w[1], a * out), 0, atol=1e-5)
            np.testing.assert_allclose(turn, np.cross(a * out, force), rtol=0, atol=2e-5)
            np.testing.assert_allclose((q[2] - q[0]) / (2 * step), v[1], rtol=0, atol=1e-5)


def test_which_method_keeps_what_in_the_cylinder():
    ball = zoo.BallInCylinder()
    q0, v0 = ball.start("spinning")
    methods = {"frame": da.FrameGradient(), "average": da.DLA(0.5)}
    for name, method in methods.items():
        errors, spins = [], []
        for parts in (1, 2):
            sol = da.simulate(ball, method, q0, v0, h=0.05 / parts, steps=100 * parts)
            q, _ = ball.solution(sol.t, q0, v0)
            errors.append(np.max(np.abs(sol.q - q)))
            change = changes(ball, sol)
            spins.append(change["spin at height zero"])
            assert change["turning"] < 1e-12  # a momentum of all methods; rounding of 200 steps
            energy = sol.energy()
            if name == "frame":
                assert np.max(np.abs(energy / energy[0] - 1)) < 1e-11  # its claim
            else:
                assert np.max(np.abs(energy / energy[0] - 1)) > 1e-4
        # Order 2, up to terms of (rate h)^2 = 6e-2, and far above rounding.
        assert errors[1] > 1e-3
        assert errors[0] / errors[1] == pytest.approx(4, rel=0.1), name
        assert spins[0] / spins[1] == pytest.approx(4, rel=0.1), name
    # What is no integral changes: the spin itself, and its components in space.
    spin = along(lambda q, v: v[2] * jnp.cos(q[0]) + v[3] * jnp.sin(q[0]), sol)
    for x in (spin, sol.v[:, 2], sol.v[:, 3]):
        assert np.ptp(x) > 1


@pytest.mark.parametrize("name", CYLINDERS)
def test_the_ball_that_is_drawn_does_not_slip_at_the_wall(name):
    ball, starts = in_cylinder(name)
    for q0, v0 in starts:
        q0, v0 = jnp.asarray(q0), jnp.asarray(v0)
        parts, rates = jax.jvp(lambda q: ball.scene(0.0, q), (q0,), (v0,))
        ((part, change),) = [(p, c) for p, c in zip(parts, rates, strict=True) if p.kind == "ball"]
        out = np.append(np.asarray(part.at)[:2], 0.0)
        arm = part.size[0] * out / np.linalg.norm(out)
        assert np.linalg.norm(out) + part.size[0] == pytest.approx(ball.cylinder, rel=1e-15)
        slip = np.asarray(change.at) + np.cross(np.asarray(change.rolled), arm)
        assert np.max(np.abs(slip)) < 1e-13  # rounding of speeds up to 10
        assert np.linalg.norm(change.at) > 0.1


# ---- Routh's sphere ---------------------------------------------------------------------------------------

ROUTH = {
    "default": zoo.RouthSphere(),
    "flat": zoo.RouthSphere(mass=1.3, radius=0.8, offset=-0.2, axial=0.4, diametral=0.2, gravity=4.0),
}


def angular_velocity(q, v):
    """In space: heading' e3 + tilt' f + spin' e."""
    s, c, st, ct = jnp.sin(q[2]), jnp.cos(q[2]), jnp.sin(q[3]), jnp.cos(q[3])
    return jnp.stack([-s * v[3] + st * c * v[4], c * v[3] + st * s * v[4], v[2] + ct * v[4]])


@pytest.mark.parametrize("name", ROUTH)
def test_rouths_sphere_obeys_newton_and_euler(name):
    """The moment of the force at the contact about the mass centre, in space; and the integrals in vectors."""
    ball = ROUTH[name]
    m, a, offset, axial, across, g = (
        float(x) for x in (ball.mass, ball.radius, ball.offset, ball.axial, ball.diametral, ball.gravity)
    )
    up = np.array([0.0, 0.0, 1.0])
    for heading, tilt, *rates in np.random.default_rng(6).uniform(0.3, 2.0, (5, 5)):
        q = np.array([0.1, 0.2, heading, tilt, 0.3])
        w = np.asarray(angular_velocity(q, np.array([0, 0, *rates])))
        v = np.array([a * w[1], -a * w[0], *rates])
        x = np.asarray(da.acceleration(ball, q, v)[0])
        found = np.asarray(jax.jvp(angular_velocity, (q, v), (v, x))[1])
        e = np.array([np.sin(tilt) * np.cos(heading), np.sin(tilt) * np.sin(heading), np.cos(tilt)])
        r, de = offset * e - a * up, np.cross(w, e)

        def residual(dw, w=w, e=e, r=r, de=de):
            force = m * (-np.cross(dw, r) - np.cross(w, offset * de) + g * up)
            turn = across * dw + (axial - across) * ((dw @ e) * e + (w @ e) * de)
            return turn - np.cross(r, force)

        rest = residual(np.zeros(3))
        matrix = np.stack([residual(y) - rest for y in np.eye(3)], axis=1)
        # Accelerations up to 50, from linear equations of condition below 100.
        np.testing.assert_allclose(found, np.linalg.solve(matrix, -rest), rtol=0, atol=1e-12)
        momentum = across * w + (axial - across) * (w @ e) * e
        inertia = across * np.eye(3) + (axial - across) * np.outer(e, e)
        told = -momentum @ r, w @ e * np.sqrt(axial * across + m * r @ inertia @ r)
        integrals = [float(f(q, v)) for f in ball.integrals().values()]
        np.testing.assert_allclose(integrals, told, rtol=1e-13)  # the docstring's formulas; rounding


def test_rouths_sphere_rocks_in_a_plane_as_its_energy_says():
    """Without turning and spin, (J + m (a^2 + l^2 - 2 a l cos(th))) th'^2/2 - m g l cos(th) is constant."""
    ball = zoo.RouthSphere()
    m, a, offset, across, g = ball.mass, ball.radius, ball.offset, ball.diametral, ball.gravity
    for tilt, tilting in ((0.4, 0.7), (1.3, -2.0), (2.5, 0.3)):
        q, v = ball.rolling(tilt, 0.0, tilting, 0.0)
        x = np.asarray(da.acceleration(ball, q, v)[0])
        mass = across + m * (a**2 + offset**2 - 2 * a * offset * np.cos(tilt))
        told = -m * offset * np.sin(tilt) * (g + a * tilting**2) / mass
        np.testing.assert_allclose(
            x, [a * told, 0, 0, told, 0], rtol=0, atol=1e-13
        )  # rounding of numbers near 5


@pytest.mark.parametrize("name", ROUTH)
def test_which_method_keeps_what_of_rouths_sphere(name):
    ball = ROUTH[name]
    for start in ball.starts():
        sol = da.simulate(ball, da.Reference(), *ball.start(start), h=0.05, steps=200)
        assert max(changes(ball, sol).values()) < 1e-12  # rounding of 200 steps; measured 9e-15
        energy = sol.energy()
        assert np.max(np.abs(energy - energy[0])) < 1e-12
    # What is no integral changes: the spin about the axis, and the momentum about the vertical.
    spin = along(lambda q, v: v[4] + v[2] * jnp.cos(q[3]), sol)
    upright = along(lambda q, v: (ball.metric(q) @ v)[2], sol)
    assert min(np.ptp(spin), np.ptp(upright)) > 1e-3
    found = []
    for parts in (1, 2):
        sol = da.simulate(
            ball, da.FrameGradient(), *ball.start("upside down"), h=0.05 / parts, steps=200 * parts
        )
        energy = sol.energy()
        assert np.max(np.abs(energy - energy[0])) < 1e-11  # its claim: 400 solves to 1e-13
        found.append(changes(ball, sol))
    for integral, change in found[0].items():
        assert change > 1e-8  # above rounding
        assert change / found[1][integral] == pytest.approx(4, rel=0.05), integral  # order 2


# ---- Veselova's problem -----------------------------------------------------------------------------------


def veselova_flow(moments, y):
    """(w', n') with the multiplier by hand: (w.n)' = 0 and n' = n x w give lam."""
    w, n = y[:3], y[3:]
    torque = np.cross(moments * w, w)
    lam = -np.sum(n * torque / moments) / np.sum(n * n / moments)
    return np.concatenate([(torque + lam * n) / moments, np.cross(n, w)])


def test_veselovas_body_by_two_roads():
    body = zoo.Veselova()
    moments = np.array([1.0, 2.0, 2.5])
    q0, v0 = body.start()
    sol = da.simulate(body, da.Reference(), q0, v0, h=0.1, steps=200, save_every=20)
    start = np.concatenate([sol.v[0], sol.q[0, 6:]])
    other = solve_ivp(
        lambda t, y: veselova_flow(moments, y), (0, 20), start, "DOP853", sol.t, rtol=1e-13, atol=1e-14
    )
    # The tolerance of the other integration, a hundred times.
    np.testing.assert_allclose(np.concatenate([sol.v, sol.q[:, 6:]], axis=1), other.y.T, rtol=0, atol=1e-10)
    assert max(changes(body, sol).values()) < 1e-13  # rounding of 200 steps; measured 3e-15
    assert np.ptp(sol.energy()) < 1e-13
    momentum = np.einsum("tij,tj->ti", sol.q.reshape(-1, 3, 3), moments * sol.v)
    assert np.max(np.ptp(momentum[:, :2], axis=0)) < 1e-13
    # What is no integral changes: the vertical momentum, and the square of all of it.
    assert min(np.ptp(momentum[:, 2]), np.ptp(np.sum(momentum**2, axis=1))) > 0.1


@pytest.mark.parametrize("name", LIE_METHODS)
def test_methods_on_groups_keep_the_momentum_of_veselovas_body(name):
    """The turns about horizontal axes are constant sections: their momenta are exact, the energy of order 2."""
    body = zoo.Veselova()
    errors = []
    for parts in (1, 2):
        sol = da.simulate(body, LIE_METHODS[name], *body.start(), h=0.1 / parts, steps=300 * parts)
        assert max(changes(body, sol).values()) < 1e-12  # rounding of 600 steps; measured 7e-14
        errors.append(np.ptp(sol.energy()))
    assert errors[0] > 1e-5
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)  # order 2, up to h^2 = 1e-2


def test_veselovas_body_has_an_invariant_measure():
    """The divergence of density times flow on the space of (w, n), by central differences."""
    moments = np.array([1.0, 2.0, 2.5])

    def divergence(power):
        def weighted(y):
            return np.sum(y[3:] ** 2 / moments) ** power * veselova_flow(moments, y)

        found = []
        for turn, w in zip(random_turns(4, 3), np.random.default_rng(4).uniform(-1, 1, (4, 3)), strict=True):
            n, step = turn[2], 1e-5
            y = np.concatenate([w - (w @ n) * n, n])
            columns = [(weighted(y + step * e) - weighted(y - step * e)) @ e for e in np.eye(6)]
            found.append(sum(columns) / (2 * step))
        return np.max(np.abs(found))

    assert divergence(0.5) < 1e-8  # 1e-5^2 times third derivatives of up to 50
    assert min(divergence(power) for power in (0.0, -0.5, 1.0)) > 1e-3


# ---- a ball on a surface ------------------------------------------------------------------------------------


class SphericalBowl(zoo.BallOnSurface):
    """The inside of a sphere of radius `first`, for which the centre moves on a sphere."""

    def height(self, x, y):
        return self.first - jnp.sqrt(self.first**2 - x**2 - y**2)


def newton_euler(ball, q, v):
    """w' by hand: m c'' = F - m g e3, k m a^2 w' = -a n x F, and c' = a w x n, differentiated."""
    n, a, mass, k, g = (
        np.asarray(ball.normal(q)),
        *(float(x) for x in (ball.radius, ball.mass, ball.k, ball.gravity)),
    )
    dn = np.asarray(jax.jacfwd(ball.normal)(jnp.asarray(q))) @ v
    w, weight = v[2:], np.array([0.0, 0.0, -mass * g])

    def residual(dw):
        force = mass * a * (np.cross(dw, n) + np.cross(w, dn)) - weight
        return k * mass * a**2 * dw + a * np.cross(n, force)

    rest = residual(np.zeros(3))
    return np.linalg.solve(np.stack([residual(e) - rest for e in np.eye(3)], axis=1), -rest)


def test_a_ball_on_a_surface_obeys_newton_and_euler():
    draw = np.random.default_rng(8)
    for ball in (zoo.BallOnSurface(), SphericalBowl(first=2.0, radius=0.4, k=0.6, mass=1.3)):
        for x, y, dx, dy, spin in draw.uniform(-0.9, 0.9, (4, 5)) * [1, 1, 2, 2, 10]:
            q, v = map(np.asarray, ball.rolling(x, y, dx, dy, spin))
            found, lam = da.acceleration(ball, q, v)
            # Accelerations up to 500, solved from linear equations of condition below 100.
            np.testing.assert_allclose(found[2:], newton_euler(ball, q, v), rtol=0, atol=1e-10)
            assert np.max(np.abs(lam)) > 1e-3


def test_a_ball_in_a_spherical_bowl_is_a_spherical_pendulum():
    """At the angle th from the bottom, W^2 (R - a) cos(th) = g/(1 + k) makes a horizontal circle; w.n stays."""
    bowl = SphericalBowl(first=2.0, radius=0.5)
    angle, length = 0.6, 1.5
    rate = np.sqrt(G / 1.4 / (length * np.cos(angle)))
    contact = 2.0 * np.sin(angle)
    start = bowl.rolling(contact, 0.0, 0.0, contact * rate)
    sol = da.simulate(bowl, da.Reference(), *start, h=0.05, steps=100)
    circle = contact * np.stack([np.cos(rate * sol.t), np.sin(rate * sol.t)], axis=1)
    np.testing.assert_allclose(sol.q[:, :2], circle, rtol=0, atol=1e-10)  # the reference's tolerance
    q, v = bowl.rolling(0.7, 0.2, -0.5, 1.0, spin=6.0)
    sol = da.simulate(bowl, da.Reference(), q, v, h=0.05, steps=100)
    about = along(lambda q, v: jnp.sum(v[2:] * bowl.normal(q)), sol)
    np.testing.assert_allclose(about, 6.0, rtol=0, atol=1e-10)
    other = zoo.BallOnSurface()
    sol = da.simulate(other, da.Reference(), *other.start("spinning"), h=0.05, steps=100)
    assert np.ptp(along(lambda q, v: jnp.sum(v[2:] * other.normal(q)), sol)) > 0.1  # not on other surfaces


def test_the_frame_method_keeps_the_ball_on_the_surface():
    ball = zoo.BallOnSurface()
    errors = []
    fine = da.simulate(ball, da.Reference(), *ball.start("spinning"), h=0.1, steps=10).q[-1]
    for steps in (100, 200):
        sol = da.simulate(ball, da.FrameGradient(), *ball.start("spinning"), h=1 / steps, steps=steps)
        assert np.ptp(sol.energy()) < 1e-13 * steps  # rounding of energies of size ten
        assert np.max(sol.constraint_residual()) < 1e-13
        errors.append(np.max(np.abs(sol.q[-1] - fine)))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.02)  # order 2, up to h^2


# ---- the rattleback -------------------------------------------------------------------------------------------


def stone_flow(stone, u, w):
    """(w', u') in the body by hand: M' = M x w + m r' x (w x r) + m g r x u for M = I w + m r x (w x r), u' = u x w
    (Borisov and Mamaev), with r the vector to the contact."""
    m, g = float(stone.mass), float(stone.gravity)
    squares = np.array([stone.first, stone.second, stone.third]) ** 2
    inertia = np.array(
        [[stone.inertia1, stone.product, 0], [stone.product, stone.inertia2, 0], [0, 0, stone.inertia3]]
    )
    du, size = np.cross(u, w), np.sqrt(squares @ u**2)
    r = np.array([0, 0, stone.offset]) - squares * u / size
    dr = -squares * du / size + squares * u * (squares @ (u * du)) / size**3

    def momentum(w, r):
        return inertia @ w + m * np.cross(r, np.cross(w, r))

    about = momentum(w, r)
    right = np.cross(about, w) + m * np.cross(dr, np.cross(w, r)) + m * g * np.cross(r, u)
    # M depends on r, too; what r' adds is known.
    right = right - m * (np.cross(dr, np.cross(w, r)) + np.cross(r, np.cross(w, dr)))
    matrix = np.stack([momentum(e, r) for e in np.eye(3)], axis=1)
    return np.linalg.solve(matrix, right), du


def test_the_rattleback_obeys_the_equations_of_the_literature():
    stone = zoo.Rattleback(gravity=5.0, mass=1.3)
    for turn, w in zip(random_turns(6, 5), np.random.default_rng(6).uniform(-3, 3, (6, 3)), strict=True):
        u = turn[2]
        drift = -turn @ np.cross(w, np.asarray(stone.contact(u)))
        found = da.acceleration(
            stone, np.concatenate([turn.reshape(9), [0.1, -0.3]]), np.concatenate([w, drift[:2]])
        )[0]
        expected = stone_flow(stone, u, w)[0]
        # Accelerations up to 1e3 from equations whose matrix has a condition of up to 1e3.
        np.testing.assert_allclose(found[:3], expected, rtol=0, atol=1e-11 * (1 + np.max(np.abs(expected))))


def growth(stone, spin):
    """The largest growth rate of small oscillations about an upright spin, by differences of the equations by hand."""
    y, e = np.array([0.0, 0.0, 1.0, 0.0, 0.0, spin]), 1e-6

    def flow(y):
        dw, du = stone_flow(stone, y[:3], y[3:])
        return np.concatenate([du, dw])

    matrix = np.stack([(flow(y + e * x) - flow(y - e * x)) / (2 * e) for x in np.eye(6)], axis=1)
    values = np.linalg.eigvals(matrix)
    return values[np.argmax(values.real)]


def test_the_rattleback_reverses_one_way_sooner_than_the_other():
    stone = zoo.Rattleback()
    # Both senses are unstable, by two kinds of oscillation: pitching grows fast in one, rolling slowly in the other.
    fast, slow = growth(stone, -5.0), growth(stone, 5.0)
    assert fast.real > 5 * slow.real > 0
    runs = {
        x: da.simulate(stone, da.FrameGradient(), *stone.spinning(x), h=0.01, steps=1000) for x in (-5.0, 5.0)
    }
    for sol in runs.values():
        assert np.ptp(sol.energy()) < 1e-13  # rounding of 1000 steps of energies of size 0.1
    assert np.min(runs[-5.0].v[:, 2]) < -4.9
    assert np.max(runs[-5.0].v[:, 2]) > 4.0  # it has turned round
    assert np.min(runs[5.0].v[:, 2]) > 4.5  # and does not do so the other way
    # Without the product of inertia there is no preferred sense: nothing grows.
    even = zoo.Rattleback(product=0.0)
    assert abs(growth(even, 5.0).real - growth(even, -5.0).real) < 1e-6


def test_small_oscillations_of_the_rattleback_grow_as_the_linearised_motion_does():
    stone = zoo.Rattleback()
    sol = da.simulate(stone, da.Reference(), *stone.spinning(-5.0, lean=1e-7), h=0.01, steps=500)
    size = np.log(np.hypot(sol.q[:, 6], sol.q[:, 7]))
    # A line through the logarithm of an oscillating size, over more than ten periods, after the other modes are small.
    slope = np.polyfit(sol.t[300:], size[300:], 1)[0]
    assert slope == pytest.approx(growth(stone, -5.0).real, rel=0.05)
