"""Taylor series of the motion: errors against thirty digits, rounding over a long time, rows, failures and refusals."""

import functools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from laws.test_time import Everything, Pushed, start_of

import dalembert as da
from dalembert.methods import method_from_text

CVT = da.zoo.PendulumCVT(eps=0.5)
START = CVT.start("rotating")


def blade(eps):
    """The one-form of a blade with heading q[2], and its rate of change."""
    return (
        lambda q: [-mp.sin(q[2]), mp.cos(q[2]) - eps, 0],
        lambda q, v: [-mp.cos(q[2]) * v[2], -mp.sin(q[2]) * v[2], 0],
    )


def gear(ratio, slope):
    """The one-form of a gear with a ratio of q[2], and its rate of change."""
    return lambda q: [1, ratio(q[2]), 0], lambda q, v: [0, slope(q[2]) * v[2], 0]


HALF = mp.mpf("0.5")
EXACT = {
    "particle": (
        da.zoo.NonholonomicParticle(lambda q: 0.5 * (q[0] ** 2 + q[1] ** 2) + jnp.cos(q[2])),
        "default",
        (lambda q: [-q[1], 0, 1], lambda q, v: [-v[1], 0, 0]),
        lambda q: [-q[0], -q[1], mp.sin(q[2])],
    ),
    "edge": (da.zoo.KnifeEdge(), "default", blade(0), lambda q: [1, 0, 0]),
    "shifted edge": (da.zoo.KnifeEdge(eps=0.25), "default", blade(HALF / 2), lambda q: [1, 0, 0]),
    "cvt": (
        CVT,
        "rotating",
        gear(mp.sin, mp.cos),
        lambda q: [-q[0], -q[1], -mp.sin(q[2]) - HALF * mp.cos(2 * q[2])],
    ),
    "harmonic": (da.zoo.HarmonicCVT(), "default", gear(lambda x: x, lambda x: 1), lambda q: [-x for x in q]),
    "spring": (
        da.zoo.SpringParticle(),
        "default",
        gear(lambda x: x, lambda x: 1),
        lambda q: [0, -q[1], -q[2]],
    ),
}
"""Systems with unit masses and one one-form A: (system, start, (A, A' v), force)."""


def thirty_digits(form, slope, force, q0, v0, times):
    """(q, v) from q'' = f + A^T lam with A v = 0, by mpmath's own Taylor method."""

    def field(t, y):
        q, v = y[:3], y[3:]
        a, f = form(q), force(q)
        lam = -(mp.fdot(slope(q, v), v) + mp.fdot(a, f)) / mp.fdot(a, a)
        return [*v, *(x + lam * z for x, z in zip(f, a, strict=True))]

    with mp.workdps(30):
        found = mp.odefun(field, 0, [mp.mpf(float(x)) for x in (*q0, *v0)], tol=mp.mpf(10) ** -22)
        return np.array([[float(x) for x in found(mp.mpf(t))] for t in times])


@pytest.mark.parametrize("name", EXACT)
def test_errors_are_of_the_size_of_rounding(name):
    """Within ten units of rounding per unit of time, as the specification asks."""
    system, start, rules, force = EXACT[name]
    q0, v0 = system.start(start)
    times = [1, 3] if name != "cvt" else [1]  # mpmath takes a minute for more
    wanted = thirty_digits(*rules, force, q0, v0, times)
    sol = da.simulate(system, da.Taylor(), q0, v0, h=1.0, steps=3)
    for t, row in zip(times, wanted, strict=True):
        found = np.concatenate([sol.q[t], sol.v[t]])
        assert np.max(np.abs(found - row)) < 10 * 2.2e-16 * t * np.max(np.abs(wanted)), (name, t)


@pytest.mark.parametrize("system", [CVT, da.zoo.Snakeboard()], ids=lambda s: s.label)
def test_the_energy_walks_at_random(system):
    """Brouwer's law: rounding errors of no preferred sign add up as the square root of the time.

    The mean square of the change of the energy over all pairs of rows at a distance, for distances of 100 to 3,000
    units of time in a run of 100,000, grows linearly. There are 33 independent pairs of the largest distance.
    """
    sol = da.simulate(system, da.Taylor(), *system.start(), h=10.0, steps=10_000)
    energy = sol.energy()
    energy = energy / np.abs(energy[0])
    apart = np.array([10, 30, 100, 300])
    size = [np.sqrt(np.mean((energy[k:] - energy[:-k]) ** 2)) for k in apart]
    exponent = np.polyfit(np.log(apart), np.log(size), 1)[0]
    # A systematic error gives 1, and an energy that is only read out with errors gives 0.
    assert 0.3 < exponent < 0.7, exponent
    # Ten million roundings of 1e-16 at random are 3e-13.
    assert np.max(np.abs(energy - energy[0])) < 3e-13
    assert np.max(sol.constraint_residual()) < 1e-14


GROUPS = [
    da.zoo.Suslov(),
    da.zoo.Veselova(),
    da.zoo.ChaplyginSphere(),
    da.zoo.RubberBall(),
    da.zoo.GroupSleigh(),
]
OTHERS = [
    da.zoo.ChaplyginSleigh(),
    da.zoo.FallingDisk(),
    da.zoo.RheonomicParticle(),
    da.zoo.RollerRacer(),
    da.zoo.RoundBody(),
    da.zoo.TravellingWell(),
    da.zoo.TwoWheeledRobot(),
]


@pytest.mark.parametrize("system", [*GROUPS, *OTHERS, Everything(), Pushed()], ids=lambda s: s.label)
def test_the_same_motion_as_by_runge_kutta(system):
    """On groups, with time, drift, forces and position constraints, against an adaptive Runge-Kutta method."""
    start = start_of(system) if isinstance(system, Everything) else system.start()
    one, other = (da.simulate(system, x, *start, h=0.5, steps=4) for x in (da.Taylor(), da.Reference()))
    for name in ("q", "v"):
        a, b = getattr(one, name), getattr(other, name)
        # Reference has tolerances of 1e-14 and 1e-15, in many steps.
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-12 * np.max(np.abs(b)))


def test_every_other_kind_of_system():
    """General Lagrangians, constraints that are not linear, surfaces, and a guard in a user's power."""

    def form(q):
        return jnp.array([[-jnp.sin(q[0]), jnp.cos(q[0])]])

    def unit(q):
        return jnp.eye(2)

    make = functools.partial(da.system, coordinates=("x", "y"))
    slow = 0.1 * np.tan(0.3)
    runs = [
        (
            make(lagrangian=lambda q, v: jnp.sqrt(1 + v @ v) - jnp.cos(q[0]), constraints=form),
            [0.3, 0],
            [0.1, slow],
        ),
        (
            make(
                metric=unit,
                potential=lambda q: q[0] + 0.1 * q[1] ** 2,
                nonlinear=lambda q, v: jnp.stack([v @ v - 1]),
            ),
            [0.3, 0.0],
            [0.6, 0.8],
        ),
        (
            make(metric=unit, potential=lambda q: q[1], holonomic=lambda q: jnp.stack([q @ q - 1])),
            [0.6, 0.8],
            [0.8, -0.6],
        ),
        (
            make(metric=unit, potential=lambda q: (2 + q[0]) ** 2.5 + (2 + q[0]) ** q[1], constraints=form),
            [1.0, 0.0],
            [0.0, 0.0],
        ),
    ]
    for system, q, v in runs:
        one, other = (da.simulate(system, x, q, v, h=0.3, steps=3) for x in (da.Taylor(), da.Reference()))
        # Reference has tolerances of 1e-14 and 1e-15.
        np.testing.assert_allclose(one.q, other.q, rtol=0, atol=1e-12 * np.max(np.abs(other.q)))
        np.testing.assert_allclose(one.v, other.v, rtol=0, atol=1e-12 * np.max(np.abs(other.v)))


@pytest.mark.parametrize("tol", [1e-4, 1e-7, 1e-10, 1e-13])
def test_the_tolerance_is_kept(tol):
    """The error of a few units of time is a few times the tolerance, and not far less than it."""
    exact = da.simulate(CVT, da.Taylor(), *START, h=3.0, steps=1)
    found = da.simulate(CVT, da.Taylor(tol), *START, h=3.0, steps=1)
    error = np.max(np.abs(found.v[-1] - exact.v[-1]))
    # Some thirty series, whose errors grow tenfold along the way.
    assert 1e-3 * tol < error < 100 * tol


def test_rows_do_not_change_the_motion():
    """Rows share series: those of 20,000 rows and of one are the same to the rounding of adding them up."""
    one = da.simulate(CVT, da.Taylor(), *START, h=20.0, steps=1)
    for steps in (7, 200, 20_000):
        many = da.simulate(CVT, da.Taylor(), *START, h=20.0 / steps, steps=steps, save_every=steps)
        # Both are within rounding of the motion, 2e-16 a step in 240 steps, and errors grow tenfold.
        np.testing.assert_allclose(many.q[-1], one.q[-1], rtol=0, atol=2e-13)
        np.testing.assert_allclose(many.v[-1], one.v[-1], rtol=0, atol=2e-13)


def test_states_between_rows():
    coarse = da.simulate(CVT, da.Taylor(), *START, h=1.0, steps=4)
    fine = da.simulate(CVT, da.Taylor(), *START, h=0.125, steps=32)
    q, v = coarse.at(fine.t[1:-1])
    # Both are the motion to rounding.
    np.testing.assert_allclose(q, fine.q[1:-1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(v, fine.v[1:-1], rtol=0, atol=1e-13)


def test_members_run_as_alone_and_xla_agrees():
    q, v = START
    starts = np.asarray(v) * (1 + 0.01 * np.arange(11))[:, None]
    many = da.ensemble(CVT, da.Taylor(), q, starts, h=0.5, steps=20)
    for i in (0, 4, 10):
        alone = da.simulate(CVT, da.Taylor(), q, starts[i], h=0.5, steps=20)
        # Members add the same products in another order; ten units of time multiply that by a hundred.
        np.testing.assert_allclose(many.q[i], alone.q, rtol=0, atol=1e-12)

    class Plain(da.Taylor):
        native = False

    other = da.simulate(CVT, Plain(), q, v, h=0.5, steps=20)
    np.testing.assert_allclose(many.q[0], other.q, rtol=0, atol=1e-12)  # as above


def test_derivatives_of_a_run():
    """In reverse, against collocation of order 12, and inside jit."""
    q, v = map(jnp.asarray, START)

    def end(method, h, steps):
        return lambda v: jnp.sum(da.simulate(CVT, method, q, v, h=h, steps=steps).q[-1] ** 2)

    exact = end(da.Taylor(), 0.5, 2)
    found = jax.grad(exact)(v)
    wanted = jax.grad(end(da.FrameCollocation(6), 0.05, 20))(v)
    # The collocation's error, 1e-12 here.
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
    np.testing.assert_allclose(jax.jit(exact)(v), exact(v), rtol=1e-13)  # the same operations


def pulled(potential, **more):
    return da.system(
        coordinates=("x", "y"),
        metric=lambda q: jnp.eye(2),
        potential=potential,
        constraints=lambda q: jnp.array([[0.0, 1.0]]),
        **more,
    )


def test_rest_and_straight_motion():
    """Series of which all further terms vanish hold for ever."""
    rest = da.simulate(pulled(lambda q: 0.5 * q[0] ** 2), da.Taylor(), [0, 0], [0, 0], h=10.0, steps=3)
    np.testing.assert_array_equal(rest.q, 0.0)
    straight = da.simulate(pulled(lambda q: 0.0 * q[0]), da.Taylor(), [0, 0], [1, 0], h=10.0, steps=3)
    np.testing.assert_array_equal(straight.q[:, 0], [0, 10, 20, 30])
    spring = da.simulate(pulled(lambda q: 0.5 * q[0] ** 2), da.Taylor(), [1, 0], [0, 0], h=10.0, steps=3)
    # From rest, where the velocity has no size of its own; thirty units of time.
    np.testing.assert_allclose(spring.q[:, 0], np.cos([0, 10, 20, 30]), rtol=0, atol=1e-14)


def test_a_singularity_is_reported_and_rows_before_it_are_kept():
    """x'' = -1/x^2 from rest at 1 reaches zero at t = pi/sqrt(8) = 1.11."""
    system = pulled(lambda q: -1 / q[0])
    with pytest.raises(da.SimulationError, match="step 3 from t = 1 failed"):
        da.simulate(system, da.Taylor(), [1.0, 0.0], [0.0, 0.0], h=0.5, steps=10)
    sol = da.simulate(system, da.Taylor(), [1.0, 0.0], [0.0, 0.0], h=0.5, steps=10, throw=False)
    assert len(sol.t) == 3
    # E = v^2/2 - 1/x, at x = 0.35 with velocities of 1.9.
    np.testing.assert_allclose(sol.energy(), -1.0, rtol=1e-14)


@pytest.mark.parametrize(
    ("potential", "named"),
    [
        (lambda q: jnp.where(q[0] > 0, q[0] ** 2, 0.0), "jnp.where"),
        (lambda q: jnp.abs(q[0]), "jnp.abs"),
        (lambda q: jnp.maximum(q[0], 0.0) ** 2, "max"),
        (lambda q: jax.lax.cond(q[0] > 0, jnp.sin, jnp.cos, q[0]), "lax.cond"),
    ],
)
def test_pieces_are_refused_by_name_before_anything_runs(potential, named):
    with pytest.raises(
        ValueError, match=rf"Taylor needs functions with Taylor series, but .*{named}.*Reference\(\)"
    ):
        da.simulate(pulled(potential), da.Taylor(), [1.0, 0.0], [0.0, 0.0], h=0.5, steps=10)
    with pytest.raises(ValueError, match="Taylor needs functions with Taylor series"):
        da.ensemble(pulled(potential), da.Taylor(), np.ones((3, 2)), np.zeros((3, 2)), h=0.5, steps=10)


def test_a_parameter_may_choose():
    class Chosen(da.System):
        coordinates = ("x", "y")
        strong: float = 1.0

        def metric(self, q):
            return jnp.eye(2)

        def potential(self, q):
            return jnp.where(self.strong > 0.5, q[0], jnp.sin(q[0]))

        def constraints(self, q):
            return jnp.array([[0.0, 1.0]])

    sol = da.simulate(Chosen(), da.Taylor(), [0.0, 0.0], [0.0, 0.0], h=1.0, steps=2)
    np.testing.assert_allclose(sol.q[:, 0], [0.0, -0.5, -2.0], rtol=1e-15)


@pytest.mark.parametrize("bad", [0, -1.0, 1.0, True, "x", 1e-30, [1e-9], float("nan")])
def test_bad_tolerances(bad):
    with pytest.raises(ValueError, match="Taylor needs a tolerance from 1e-20 to 1e-03, or None"):
        da.Taylor(bad)


def test_names():
    assert method_from_text("taylor") == da.Taylor()
    assert method_from_text("taylor:1e-09") == da.Taylor(1e-9)
    assert da.Taylor(1e-9).cli_name == "taylor:1e-09"
    with pytest.raises(ValueError, match="it follows the exact motion already"):
        da.Composition(da.Taylor(), 4)


def test_a_start_at_which_everything_vanishes():
    """x'' = 20 t^3 sin(t)/t from rest at t = 0: the velocity and its first three derivatives are zero."""

    class Late(da.RheonomicSystem):
        coordinates = ("x", "y")

        def metric(self, t, q):
            return jnp.eye(2)

        def potential(self, t, q):
            return -(t**3) * jnp.sin(t) * q[0]

        def constraints(self, t, q):
            return jnp.array([[0.0, 1.0]])

    sol = da.simulate(Late(), da.Taylor(), [0.0, 0.0], [0.0, 0.0], h=1.0, steps=2)
    for t, v in zip((1, 2), sol.v[1:, 0], strict=True):
        with mp.workdps(30):
            wanted = float(mp.quad(lambda s: s**3 * mp.sin(s), [0, t]))
        assert abs(v - wanted) < 1e-15  # of numbers of size one


def test_too_many_series_in_one_step():
    with pytest.raises(
        da.SimulationError, match="One step of h = 200000, the distance between rows, took 100,000 series"
    ):
        da.simulate(CVT, da.Taylor(), *START, h=2e5, steps=1)
