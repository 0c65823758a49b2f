"""FrameIntegrals keeps energy, constraint and every given integral; it has order 2 and is symmetric."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import fsolve

import dalembert as da

CVT = da.zoo.PendulumCVT(eps=0.5)
ROUTH = da.zoo.RouthSphere()
KEPLER = da.system(
    coordinates=("x", "y"),
    metric=lambda q: jnp.eye(2),
    potential=lambda q: -1 / jnp.sqrt(q @ q),
    name="Kepler",
)
APSIS = (np.array([1.0, 0.0]), np.array([0.0, 0.8]))


def driver(q, v):
    """The energy of the pendulum that drives the CVT."""
    return v[2] ** 2 / 2 + 1 - jnp.cos(q[2]) + 0.25 * jnp.sin(2 * q[2])


def angular(q, v):
    """The angular momentum."""
    return q[0] * v[1] - q[1] * v[0]


def apsis(q, v):
    """The second component of the Laplace vector."""
    return -v[0] * angular(q, v) - q[1] / jnp.sqrt(q @ q)


def values(functions, sol):
    """The functions along a run, one row each."""
    return np.array([jax.vmap(f)(jnp.asarray(sol.q), jnp.asarray(sol.v)) for f in functions])


CASES = {
    "cvt": (CVT, (driver,), CVT.start("rotating"), "gonzalez", 0.1),
    "kepler": (KEPLER, (angular, apsis), APSIS, "average", 0.05),
    "routh": (ROUTH, tuple(ROUTH.integrals().values()), ROUTH.start(), "average", 0.1),
}


@pytest.mark.parametrize("name", CASES)
def test_everything_is_kept(name):
    """Energy, constraint and integrals to rounding over 4000 steps; FrameGradient changes the integrals."""
    system, functions, start, gradient, h = CASES[name]
    sol = da.simulate(system, da.FrameIntegrals(functions, gradient), *start, h=h, steps=4000, save_every=40)
    found = values(functions, sol)
    # The equations of a step are solved to 1e-13 or so, and what a step misses, the next one returns.
    assert np.max(np.ptp(found, axis=1)) < 3e-12 * max(1.0, np.max(np.abs(found)))
    assert np.ptp(sol.energy()) < 3e-12 * max(1.0, np.max(np.abs(sol.energy())))
    forms = np.array([np.asarray(system.constraints(q)) for q in sol.q]) if name != "kepler" else None
    if forms is not None:
        assert np.max(np.abs(np.einsum("tij,tj->ti", forms, sol.v))) < 1e-13 * np.max(np.abs(forms)) * max(
            1.0, np.max(np.abs(sol.v))
        )
    if name != "cvt":
        plain = da.simulate(system, da.FrameGradient(gradient), *start, h=h, steps=4000, save_every=40)
        assert np.max(np.ptp(values(functions, plain), axis=1)) > 1e-5


@pytest.mark.parametrize("name", ["cvt", "kepler"])
def test_order_and_symmetry(name):
    system, functions, start, gradient, _ = CASES[name]
    method = da.FrameIntegrals(functions, gradient)
    exact = da.simulate(system, da.Taylor(), *start, h=0.4, steps=10)
    errors = []
    for h in (0.05, 0.025, 0.0125):
        sol = da.simulate(system, method, *start, h=h, steps=round(4 / h))
        errors.append(np.max(np.abs(np.concatenate([sol.q[-1] - exact.q[-1], sol.v[-1] - exact.v[-1]]))))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(orders - 2) < 0.03)
    # A run back, with the velocity reversed, returns to the start; errors of the solver grow on the way.
    there = da.simulate(system, method, *start, h=0.05, steps=100)
    back = da.simulate(system, method, there.q[-1], -there.v[-1], h=0.05, steps=100)
    assert back.q[-1] == pytest.approx(np.asarray(start[0]), abs=1e-10)
    assert -back.v[-1] == pytest.approx(np.asarray(start[1]), abs=1e-10)
    assert method.claims(system).reversible
    defect = da.diagnostics.reversibility_defect(
        system, method, 0.05, *(np.asarray(x, float)[None] for x in start)
    )
    assert np.max(defect) < 1e-12


def test_an_orbit_that_does_not_turn():
    """With both integrals the ellipse of Kepler's problem stays where it is; FrameGradient turns it."""
    method = da.FrameIntegrals((angular, apsis))
    kept, plain = (da.simulate(KEPLER, x, *APSIS, h=0.05, steps=4000) for x in (method, da.FrameGradient()))
    a = 1 / (2 / 1.0 - 0.8**2)
    x = 2 * a - 1.0  # the other focus is at (2 a e, 0) = (1 - (2a - 1), 0) from the first
    off = [
        np.max(np.abs(np.hypot(*s.q.T) + np.hypot(s.q[:, 0] - (1 - x), s.q[:, 1]) - 2 * a))
        for s in (kept, plain)
    ]
    assert off[0] < 1e-11
    assert off[1] > 0.1


def test_a_second_road():
    """One step of Kepler's problem, written out with NumPy and solved by SciPy."""

    def scalar(q):
        return -1 / np.sqrt(q @ q)

    def slope(f, z):
        """The derivative by complex steps."""
        return np.array([np.imag(f(z + 1e-30j * e)) / 1e-30 for e in np.eye(len(z))])

    def momentum(z):
        return z[0] * z[3] - z[1] * z[2]

    def gonzalez(f, z0, z1):
        g, d = slope(f, (z0 + z1) / 2), z1 - z0
        return g + d * (f(z1) - f(z0) - g @ d) / (d @ d)

    h, z0 = 0.05, np.concatenate(APSIS) + np.array([0.0, 0.3, 0.1, 0.0])

    def residual(z1):
        pull = gonzalez(scalar, z0[:2], z1[:2])
        v = (z0[2:] + z1[2:]) / 2
        field = np.concatenate([v, -pull])
        first = np.concatenate([pull, v])
        first = first / np.linalg.norm(first)
        second = gonzalez(momentum, z0, z1)
        second = second - (second @ first) * first
        second = second / np.linalg.norm(second)
        return z1 - z0 - h * (field - second * (second @ field))

    first = z0 + h * np.concatenate([z0[2:], -slope(scalar, z0[:2])])
    z1 = fsolve(residual, first, xtol=1e-13)
    assert np.max(np.abs(residual(z1))) < 1e-15
    sol = da.simulate(KEPLER, da.FrameIntegrals((angular,), "gonzalez"), z0[:2], z0[2:], h=h, steps=1)
    assert np.concatenate([sol.q[-1], sol.v[-1]]) == pytest.approx(z1, abs=1e-13)


def test_integrals_of_mixed_parity():
    """L + A_y is kept, but a reversed run keeps another number; the method does not claim to be reversible."""

    def mixed(q, v):
        return angular(q, v) + apsis(q, v)

    method = da.FrameIntegrals((mixed,))
    assert not method.claims(KEPLER).reversible
    assert method.claims(KEPLER).energy
    sol = da.simulate(KEPLER, method, *APSIS, h=0.05, steps=200)
    assert np.ptp(values((mixed,), sol)) < 1e-12


def test_what_is_refused():
    start = CVT.start("rotating")

    def nearly(q, v):
        return driver(q, v) + 1e-6 * q[0]

    def speed(q, v):
        return v[1]

    def square(q, v):
        return angular(q, v) ** 2

    for function in (speed, nearly):
        with pytest.raises(ValueError, match=f"'{function.__name__}' is not an integral of PendulumCVT"):
            da.simulate(CVT, da.FrameIntegrals((driver, function)), *start, h=0.1, steps=3)
    with pytest.raises(ValueError, match="depend on each other"):
        da.simulate(KEPLER, da.FrameIntegrals((angular, square)), *APSIS, h=0.1, steps=3)
    free = da.zoo.NonholonomicParticle()
    with pytest.raises(ValueError, match="depend on each other"):  # the energy is the sum of their squares
        da.simulate(free, da.FrameIntegrals(tuple(free.integrals().values())), *free.start(), h=0.1, steps=3)
    with pytest.raises(ValueError, match="not finite"):
        da.simulate(KEPLER, da.FrameIntegrals((lambda q, v: jnp.log(-(v @ v)),)), *APSIS, h=0.1, steps=3)
    with pytest.raises(ValueError, match="one or more functions"):
        da.FrameIntegrals(())
    with pytest.raises(ValueError, match="one or more functions"):
        da.FrameIntegrals((3.0,))
    with pytest.raises(ValueError, match="positive time"):
        da.FrameIntegrals((angular,), time=0.0)
    table = da.zoo.BallOnTurntable()
    with pytest.raises(ValueError, match="affine"):
        da.simulate(
            table, da.FrameIntegrals(tuple(table.integrals().values())), *table.start(), h=0.1, steps=3
        )


def test_a_start_where_the_gradients_depend_on_each_other():
    """The first component of the Laplace vector is a function of energy and momentum at an apsis on the x-axis."""

    def first(q, v):
        return v[1] * angular(q, v) - q[0] / jnp.sqrt(q @ q)

    with pytest.raises(da.SimulationError, match="nearly dependent"):
        da.simulate(KEPLER, da.FrameIntegrals((angular, first)), *APSIS, h=0.05, steps=3)
