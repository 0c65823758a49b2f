"""The latitude of the CVT: period, angle, axis and value against printed figures and a second road."""

import jax.numpy as jnp
import numpy as np
import pytest
from equations import coupled as second
from scipy.integrate import solve_ivp
from systems import make

import dalembert as da
from dalembert.diagnostics import action_angle, measured_period
from dalembert.diagnostics.hidden_integral import Latitude, axis_and_angle, larger_turn, latitude

# Period, angle and axis of the period map from the section xi = 0 upwards, and the latitude of the start.
EXPECTED = {
    "osc-0": (10.312368453393, 1.755525032484, (0.9104934000, 0, 0.4135236009), 0.910493400042),
    "osc-0.1": (
        10.277139679669,
        1.848950173457,
        (0.885194123265, -0.259242875275, 0.386295865570),
        0.625951247989,
    ),
    "osc-0.5": (
        9.614319394699,
        2.890743277208,
        (0.755740798901, -0.590938070230, 0.282219846980),
        0.164802728671,
    ),
    "rot-0": (2.622057554292, 2.125430578288, (-0.9264765487, 0, 0.3763525007), -0.926476548655),
    "rot-0.1": (
        2.622228982720,
        2.125561459610,
        (-0.926462976685, 0.001177373689, 0.376384067972),
        -0.925285602996,
    ),
    "rot-0.5": (
        2.626366714265,
        2.128720420674,
        (-0.926134771358, 0.005935352704, 0.377146068347),
        -0.920199418654,
    ),
    "harmonic": (2 * np.pi, 2.797957622292, (0.095487751, 0, -0.995430605), -0.491533481822),
}


def problem(name):
    system, q0, v0, _ = make(name if name == "harmonic" else f"cvt-{name}")
    return system, q0, v0


@pytest.mark.parametrize("name", EXPECTED)
def test_figures(name):
    found = Latitude.of(*problem(name))
    period, angle, axis, start = EXPECTED[name]
    assert abs(found.orbit.period - period) < 1e-9
    assert abs(found.angle - angle) < 1e-9
    assert np.max(np.abs(found.axis - axis)) < 1e-9
    assert abs(found.start - start) < 1e-9
    rotation = found.orbit.rotation
    # Phi is found to 1e-11 by construction: two step sizes agree to that.
    assert np.max(np.abs(rotation.T @ rotation - np.eye(3))) < 1e-11
    assert np.max(np.abs(rotation @ found.axis - found.axis)) < 1e-11


@pytest.mark.parametrize("name", EXPECTED)
def test_second_road(name):
    """An adaptive Runge-Kutta solution of the reduced equations, written out by hand."""
    found = Latitude.of(*problem(name))
    other = second.problem(name)
    period, phi = second.period_map(other)
    axis, angle = second.axis_angle(phi)
    assert abs(found.orbit.period - period) < 1e-9
    assert np.max(np.abs(found.orbit.rotation - phi)) < 1e-9
    assert abs(found.angle - angle) < 1e-9
    assert np.max(np.abs(found.axis - axis)) < 1e-9
    assert abs(found.start - second.latitude_start(other)) < 1e-9


@pytest.mark.parametrize("name", ["osc-0.5", "rot-0.5"])
def test_a_first_integral(name):
    """As a function on phase space it is constant along the exact motion, and so at the section."""
    system, q0, v0 = problem(name)
    run = da.simulate(system, da.Reference(), q0, v0, h=0.1, steps=200)
    values = [latitude(system, run.q[i], run.v[i]) for i in range(0, 201, 25)]
    # The reference is good to 1e-12, the period map to 1e-11.
    assert np.ptp(values) < 1e-11
    found = Latitude.of(system, q0, v0)
    times, crossings = found.along(run)
    assert len(times) >= 1
    assert np.max(np.abs(crossings - found.start)) < 1e-11
    assert np.max(np.abs(np.diff(times) - found.orbit.period), initial=0.0) < 1e-9
    x, v, xi, eta = (np.asarray(part) for part in found.coupled.split(run.q[77], run.v[77]))
    other = second.problem(name)
    assert abs(second.latitude(other, x, float(v), float(xi), float(eta)) - found.start) < 1e-10


@pytest.mark.parametrize("name", ["osc", "rot"])
def test_the_sign_of_the_perturbation(name):
    """eps -> -eps changes the sign of the axis's second component and nothing else."""
    start = {"osc": "oscillating", "rot": "rotating"}[name]
    plus, minus = (da.zoo.PendulumCVT(eps=eps) for eps in (0.5, -0.5))
    one, two = (Latitude.of(system, *system.start(start)) for system in (plus, minus))
    assert abs(one.orbit.period - two.orbit.period) < 1e-10
    assert abs(one.angle - two.angle) < 1e-10
    assert np.max(np.abs(one.axis * [1, -1, 1] - two.axis)) < 1e-10


@pytest.mark.parametrize("name", ["particle", "knife-0", "knife-0.1", "disk", "robot"])
def test_none_without_rotations_of_space(name):
    system, q0, v0, _ = make(name)
    with pytest.raises(ValueError, match="has no latitude"):
        Latitude.of(system, q0, v0)
    with pytest.raises(ValueError, match="has no latitude"):
        latitude(system, q0, v0)


def test_none_at_rest():
    with pytest.raises(ValueError, match="rests at"):
        Latitude.of(da.zoo.PendulumCVT(), [1, 1, 0], [0, 0, 0])


def test_axis_of_a_rotation():
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    axis, angle = axis_and_angle(turn)
    assert axis == pytest.approx([0, 0, 1], abs=1e-15)
    assert angle == pytest.approx(np.pi / 2, abs=1e-15)
    axis, angle = axis_and_angle(turn.T)
    assert axis == pytest.approx([0, 0, -1], abs=1e-15)
    for none in (np.eye(3), np.diag([1.0, -1.0, -1.0])):
        with pytest.raises(ValueError, match="no axis"):
            axis_and_angle(none)


MIRROR = np.array([1.0, 1.0, -1.0])


class Mirrored(da.zoo.PendulumCVT):
    """The CVT seen with its driver's angle measured the other way round."""

    def constraints(self, q):
        return super().constraints(q * MIRROR) * MIRROR

    def potential(self, q):
        return super().potential(q * MIRROR)


@pytest.mark.parametrize("name", ["osc-0.5", "rot-0.5"])
def test_mirrored_drivers(name):
    """A driver that rotates downwards has the figures of its mirror image, which rotates upwards."""
    system, q0, v0 = problem(name)
    q0 = q0 + np.array([0, 0, 0.3])  # off the section
    other, there = Mirrored(eps=0.5), (q0 * MIRROR, v0 * MIRROR)
    one, two = Latitude.of(system, q0, v0), Latitude.of(other, *there)
    # The same arithmetic up to signs; periods are found to 1e-11.
    assert abs(one.orbit.period - two.orbit.period) < 1e-11
    assert abs(one.start - two.start) < 1e-11
    run, back = (
        da.simulate(s, da.Reference(), *x, h=0.1, steps=250) for s, x in ((system, (q0, v0)), (other, there))
    )
    periods = [measured_period(x.t, x.q[:, 2], 0.0, True) for x in (run, back)]
    assert periods[0] == pytest.approx(periods[1], abs=1e-11)
    assert periods[0] == pytest.approx(one.orbit.period, rel=1e-3)  # secants of steps of 0.1
    times, values = one.along(run)
    back_times, back_values = two.along(back)
    assert len(times) == len(back_times) >= 2
    assert np.max(np.abs(back_values - two.start)) < 1e-11
    assert np.max(np.abs(values - one.start)) < 1e-11
    if name == "rot-0.5":
        assert two.orbit.base == pytest.approx([0, -one.orbit.base[1]], abs=1e-12)
        assert np.max(np.abs(one.axis - two.axis)) < 1e-11
        assert np.max(np.abs(times - back_times)) < 1e-11


class Springs(da.System):
    """A mass on springs that a blade guides, its heading a pendulum of small swings about `middle`; a force pulls."""

    coordinates = ("x", "y", "xi")
    step = 0.1
    pull: float = 0.0
    push: float = 0.0
    middle: float = 0.0

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        return (
            0.5 * jnp.sum((q - jnp.array([0.0, 0.0, self.middle])) ** 2) - self.pull * q[0] - self.push * q[1]
        )

    def constraints(self, q):
        return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])


def test_a_constant_force_moves_the_centre():
    """f = kappa^T g: the latitude of (kappa x - g, v) is that of the system without f, seen from x = f."""
    f = np.array([0.3, -0.2])
    q0, v0 = np.array([1.0, 0.5, 0.0]), np.array([0.4, 0.0, 1.0])
    plain, pushed = Springs(), Springs(pull=0.3, push=-0.2)
    shift = np.append(f, 0.0)
    one, two = Latitude.of(plain, q0, v0), Latitude.of(pushed, q0 + shift, v0)
    assert two.start == pytest.approx(one.start, abs=1e-11)
    assert two.length(q0 + shift, v0) == pytest.approx(one.length(q0, v0), rel=1e-13)
    run = da.simulate(pushed, da.Reference(), q0 + shift, v0, h=0.1, steps=200)
    times, values = two.along(run)
    assert len(times) >= 3
    assert np.max(np.abs(values - two.start)) < 1e-11


def test_a_force_that_nothing_balances():
    """f along the kernel of kappa: the reduced system moves in SE(3), and there is no axis."""
    coupled = da.CoupledSystem.build(
        potential=lambda xi: 0.5 * xi**2,
        constraint=lambda xi: jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]) - xi * jnp.eye(2, 3, 1),
        kappa=[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
        f=[0.0, 0.0, 1.0],
    )
    with pytest.raises(ValueError, match="part along the kernel of kappa"):
        Latitude.of(coupled, np.zeros(4), np.array([0.0, 0.0, 0.0, 1.0]))


def test_a_driver_that_starts_at_rest_off_the_section():
    """Its orbit turns round where it starts; crossings are looked for where it is fast."""
    system = Springs(middle=3.0)
    q0, v0 = np.array([1.0, 0.5, 2.0]), np.zeros(3)
    found = Latitude.of(system, q0, v0)
    assert found.orbit.base[1] > 0.9
    run = da.simulate(system, da.Reference(), q0, v0, h=0.1, steps=200)
    times, values = found.along(run)
    assert len(times) == 3
    assert np.max(np.abs(values - found.start)) < 1e-11


def test_no_period_is_said():
    with pytest.raises(ValueError, match="does not cross 0 twice"):
        measured_period([0.0, 1.0, 2.0], [-1.0, 1.0, 2.0], 0.0, False)
    t = np.linspace(0, 20, 401)
    for sign in (1, -1):
        assert measured_period(t, sign * 2 * t, 0.0, True) == pytest.approx(np.pi, abs=1e-12)
        assert measured_period(t, sign * np.sin(2 * t), 0.1, False) == pytest.approx(np.pi, rel=1e-3)


FORCE = np.array([0.3, -0.2, 0.1])


def four():
    """A passenger with three springs, a force, and a direction that the driver turns in space: SO(4)."""

    def constraint(xi):
        return jnp.array([[1.0, xi, 0.0], [0.0, 1.0, jnp.sin(xi) + 0.3]])

    return da.CoupledSystem.build(
        potential=lambda xi: 0.5 * xi**2, constraint=constraint, kappa=np.diag([1.0, 0.8, 1.3]), f=FORCE
    )


def test_four_dimensions():
    """In R^4 the length of the part in one plane is kept; SciPy's period map has the same plane."""
    coupled = four()
    kappa = np.diag([1.0, 0.8, 1.3])

    def direction(xi):
        k = np.array([xi * (np.sin(xi) + 0.3), -(np.sin(xi) + 0.3), 1.0])
        return k / np.linalg.norm(k)

    def rate(t, z):
        c = kappa @ direction(z[0])
        psi = z[2:].reshape(4, 4)
        return np.concatenate([[z[1], -z[0]], np.outer(c, psi[3]).ravel(), -c @ psi[:3]])

    start = np.concatenate([[0.0, 1.2], np.eye(4).ravel()])
    phi = solve_ivp(rate, (0, 2 * np.pi), start, "DOP853", rtol=1e-12, atol=1e-13).y[2:, -1].reshape(4, 4)
    q0 = np.array([1.0, 0.5, -0.4, 0.0])
    k0 = direction(0.0)
    v0 = np.append(0.7 * k0, 1.2)
    found = Latitude.of(coupled, q0, v0)
    assert found.orbit.rotation == pytest.approx(phi, abs=1e-9)
    values, vectors = np.linalg.eig(phi)
    far = np.argmax(np.abs(np.angle(values)))
    plane = np.linalg.qr(np.stack([vectors[:, far].real, vectors[:, far].imag], axis=1))[0]
    assert found.angle == pytest.approx(np.abs(np.angle(values[far])), abs=1e-9)
    centre = np.linalg.solve(kappa.T, FORCE)
    u = np.append(kappa @ q0[:3] - centre, 0.7)
    assert found.start == pytest.approx(np.linalg.norm(plane.T @ u), abs=1e-9)
    run = da.simulate(coupled.system, da.Reference(), q0, v0, h=0.1, steps=300)
    times, heights = found.along(run)
    assert len(times) >= 4
    # The reference is accurate to 1e-12, the period map to 1e-11.
    assert np.max(np.abs(heights - found.start)) < 1e-10
    assert latitude(coupled, run.q[77], run.v[77]) == pytest.approx(found.start, abs=1e-10)
    variables = action_angle(coupled, 0.0, 1.2)
    assert np.min(np.abs(variables.actions(q0, v0)[1:] - found.start**2 / 2)) < 1e-10
    # Each crossing is the one before, turned by the period map; another vector of the same length is not.
    _, rows = found.crossings(run)
    assert rows[1:] == pytest.approx(rows[:-1] @ phi.T, abs=1e-8)
    assert np.max(np.abs(rows[1:] - rows[:-1])) > 0.1


def test_planes_that_turn_alike():
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match="same angle"):
        larger_turn(np.kron(np.eye(2), turn))
