"""FrameIntegrals keeps energy, constraint and every given integral; it has order 2 and is symmetric."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import fsolve

import dalembert as da
from dalembert.diagnostics import Verdict
from dalembert.methods import method_from_text

CVT = da.zoo.PendulumCVT(eps=0.5)
ROUTH = da.zoo.RouthSphere()
KEPLER = da.system(
    coordinates=("x", "y"),
    metric=lambda q: jnp.eye(2),
    potential=lambda q: -1 / jnp.sqrt(q @ q),
    name="Kepler",
)
BOARD = da.zoo.Snakeboard()
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
    with pytest.raises(ValueError, match="once"):
        da.FrameIntegrals((angular, angular))
    body = da.zoo.Veselova()
    with pytest.raises(ValueError, match="works in coordinates"):
        da.simulate(body, da.FrameIntegrals(), *body.start(), h=0.1, steps=3)
    with pytest.raises(
        ValueError, match=r"no integral of Snakeboard 'rotor sped'. Did you mean rotor speed\? Choose"
    ):
        da.simulate(BOARD, da.FrameIntegrals("rotor sped"), *BOARD.start(), h=0.1, steps=3)
    with pytest.raises(
        ValueError,
        match=r"Kepler \(no constraints\) names no integrals, so FrameIntegrals\(\) has none to keep",
    ):
        da.simulate(KEPLER, da.FrameIntegrals(), *APSIS, h=0.1, steps=3)


def test_a_start_where_the_gradients_depend_on_each_other():
    """The first component of the Laplace vector is a function of energy and momentum at an apsis on the x-axis."""

    def first(q, v):
        return v[1] * angular(q, v) - q[0] / jnp.sqrt(q @ q)

    with pytest.raises(da.SimulationError, match="nearly dependent"):
        da.simulate(KEPLER, da.FrameIntegrals((angular, first)), *APSIS, h=0.05, steps=3)


def test_names_are_functions_of_the_system():
    """By name, by default and by hand the runs are the same; a part of the names keeps a part."""
    start = ROUTH.start()
    own = ROUTH.integrals()
    runs = [
        da.simulate(ROUTH, method, *start, h=0.1, steps=50).q
        for method in (
            da.FrameIntegrals(),
            da.FrameIntegrals(tuple(own)),
            da.FrameIntegrals(tuple(own.values())),
        )
    ]
    assert np.array_equal(runs[0], runs[1])
    # The same numbers are added in another order by other machine code.
    assert runs[0] == pytest.approx(runs[2], abs=1e-13)
    one = da.simulate(ROUTH, da.FrameIntegrals("Jellett"), *start, h=0.1, steps=400)
    kept, changed = np.ptp(values(own.values(), one), axis=1)
    assert kept < 3e-12  # as above
    assert changed > 1e-6
    mixed = da.FrameIntegrals(("Jellett", own["Routh"]))
    both = values(own.values(), da.simulate(ROUTH, mixed, *start, h=0.1, steps=400))
    assert np.max(np.ptp(both, axis=1)) < 3e-12


def test_names_follow_the_parameters():
    """The integrals are those of the system of the run, in ensembles and in derivatives, too."""
    many = dataclasses.replace(Belt(), slip=jnp.array([0.2, 0.6]))
    q0 = np.tile(BELT[0], (2, 1))
    v0 = np.array([belt_start(0.2), belt_start(0.6)])
    found = da.ensemble(many, da.FrameIntegrals(), q0, v0, h=0.1, steps=30)
    for k, slip in enumerate((0.2, 0.6)):
        alone = da.simulate(Belt(slip=slip), da.FrameIntegrals(), BELT[0], v0[k], h=0.1, steps=30)
        assert found.q[k] == pytest.approx(alone.q, abs=1e-13)

    def end(load):
        start = jnp.array([0.3, 0.2]), jnp.array([0.4, 0.7])
        return da.simulate(Wheels(load=load), da.FrameIntegrals(), *start, h=0.1, steps=20).q[-1, 0]

    # Central differences of size 1e-5 are exact to 1e-10 or so.
    slope = (end(2.0 + 1e-5) - end(2.0 - 1e-5)) / 2e-5
    assert abs(slope) > 1e-3
    assert float(jax.grad(end)(2.0)) == pytest.approx(float(slope), rel=1e-7)


class Wheels(da.System):
    """Two particles on a line that attract each other: the momentum depends on the parameter."""

    coordinates = ("x", "y")
    load: float = 2.0

    def lagrangian(self, q, v):
        return 0.5 * self.load * v[0] ** 2 + 0.5 * v[1] ** 2 - 0.25 * (q[0] - q[1]) ** 4

    def integrals(self):
        return {"momentum": lambda q, v: self.load * v[0] + v[1]}


@pytest.mark.parametrize(
    "names", [("x' sqrt(1 + y^2)", "y'"), ("a = b", "c:d", "e,f"), ("+", "@", "\\", "a\\+@4"), ("one",), None]
)
def test_names_on_the_command_line(names):
    method = da.FrameIntegrals(names)
    assert method_from_text(method.cli_name) == method
    higher = da.Composition(method, 4)
    assert method_from_text(higher.cli_name) == higher


def test_what_has_no_name():
    """Functions, other gradients and other times cannot be typed, and must not be taken for what can."""
    for method in (
        da.FrameIntegrals((angular,)),
        da.FrameIntegrals(("one", angular)),
        da.FrameIntegrals("one", gradient="gonzalez"),
        da.FrameIntegrals("one", time=2.0),
    ):
        assert method.cli_name == "frame-integrals"
    for text, words in (
        ("frame:integrals=", "needs names of the system's integrals"),
        ("frame:integrals=a++b", "needs names of the system's integrals"),
        ("frame:integrals=a+a", "once"),
        ("frame:integral", "gonzalez"),
    ):
        with pytest.raises(ValueError, match=words):
            method_from_text(text)


def test_an_audit_by_name():
    found = da.audit(ROUTH, [method_from_text(x) for x in ("frame:integrals", "frame")], h=0.1, steps=10_000)
    assert [x.method for x in found] == ["frame:integrals", "frame"]
    for name in ROUTH.integrals():
        assert found[0].integrals[name].verdict is Verdict.EXACT
        assert found[1].integrals[name].verdict is not Verdict.EXACT
    assert not found[0].broken_claims


class Belt(da.System):
    """A skate's constraint on a belt, z' = y x' + slip, with a spring, a push and friction along y."""

    coordinates = ("x", "y", "z")
    slip: float = 0.4
    push: float = 0.3

    def lagrangian(self, q, v):
        return 0.5 * jnp.sum(v**2) - 0.5 * q[1] ** 2

    def constraints(self, q):
        return jnp.array([[-q[1], 0.0, 1.0]])

    def offsets(self, q):
        return jnp.array([self.slip])

    def forces(self, q, v):
        return jnp.array([0.0, self.push * jnp.cos(q[0]) - 0.1 * v[1], 0.0])

    def integrals(self):
        return {"x' sqrt(1 + y^2)": lambda q, v: v[0] * jnp.sqrt(1 + q[1] ** 2)}


def belt_start(slip):
    """An allowed velocity at y = 0.5."""
    return np.array([0.7, 0.6, 0.35 + slip])


BELT = (np.array([0.1, 0.5, 0.0]), belt_start(0.4))


def test_affine_constraints_and_forces():
    """The integral to rounding, where FrameGradient changes it; order 2, and order 4 when composed, as symmetric steps
    have. The energy is not kept, because constraint and forces do work."""
    system = Belt()
    exact = da.simulate(system, da.Taylor(), *BELT, h=0.4, steps=10)
    (integral,) = system.integrals().values()
    for method, order in ((da.FrameIntegrals(), 2), (da.Composition(da.FrameIntegrals(), 4), 4)):
        errors = []
        for h in (0.2, 0.1):
            sol = da.simulate(system, method, *BELT, h=h, steps=round(4 / h))
            assert np.ptp(values([integral], sol)) < 3e-14  # a few eps of a number of size one, per step
            assert np.max(sol.constraint_residual()) < 1e-14
            errors.append(np.max(np.abs(np.concatenate([sol.q[-1] - exact.q[-1], sol.v[-1] - exact.v[-1]]))))
        # The next power of h is two higher.
        assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.1)
    assert np.ptp(sol.energy()) > 0.1
    plain = da.simulate(system, da.FrameGradient(), *BELT, h=0.1, steps=40)
    assert np.ptp(values([integral], plain)) > 1e-5
    claims = da.FrameIntegrals().claims(system)
    assert not claims.energy
    assert not claims.reversible


def test_an_affine_step_written_out():
    """One step on the belt satisfies the printed equations, and the moving energy changes by exactly the work."""
    h, slip, push = 0.1, 0.4, 0.3
    sol = da.simulate(Belt(), da.FrameIntegrals(gradient="gonzalez"), *BELT, h=h, steps=1)
    (q0, q1), (v0, v1) = np.asarray(sol.q), np.asarray(sol.v)

    def form(q):
        return np.array([-q[1], 0.0, 1.0])

    def drift(q):
        return form(q) * slip / (form(q) @ form(q))

    def frame(q, near):
        """The orthonormal frame of D at q that is nearest to another."""
        a = form(q) / np.linalg.norm(form(q))
        left, _, right = np.linalg.svd(near - np.outer(a, a @ near), full_matrices=False)
        return left @ right

    def potential(q):
        return 0.5 * q[1] ** 2 - 0.5 * drift(q) @ drift(q)

    def slope(f, x, size=1e-3):
        """Central differences of order 6: truncation and rounding are about 1e-13 and 1e-13."""
        weights = ((1, 0.75), (2, -0.15), (3, 1 / 60))
        return np.array(
            [
                sum(w * (f(x + k * size * e) - f(x - k * size * e)) for k, w in weights) / size
                for e in np.eye(len(x))
            ]
        )

    middle, u = (q0 + q1) / 2, (q1 - q0) / h
    b = frame(middle, np.linalg.svd(form(middle)[None])[2][1:].T)
    w0, w1 = (frame(q, b).T @ (v - drift(q)) for q, v in ((q0, v0), (q1, v1)))
    wb, z = (w0 + w1) / 2, drift(middle)
    inside = b @ wb
    across = b.T @ (u - z)
    assert u - z == pytest.approx(b @ across, abs=1e-13)  # the displacement is that of an allowed velocity
    pull = slope(potential, middle)
    pull = pull + u * (potential(q1) - potential(q0) - h * pull @ u) / (h * u @ u)
    turn = slope(drift, middle).T  # dZ_i/dq_j
    forces = np.array([0.0, push * np.cos(middle[0]) - 0.1 * (inside + z)[1], 0.0])
    added = forces - turn.T @ z - turn @ (inside + z)
    field = np.concatenate([wb, b.T @ (added - pull)])

    def integral(q, w):
        return (frame(q, b) @ w + drift(q))[0] * np.sqrt(1 + q[1] ** 2)

    by_q = slope(lambda q: integral(q, wb), middle)
    row = np.concatenate([b.T @ by_q, slope(lambda w: integral(middle, w), wb)])
    step = np.concatenate([h * across, w1 - w0])
    change = integral(q1, w1) - integral(q0, w0) - h * by_q @ z
    row = row + step * (change - row @ step) / (step @ step)
    energy = np.concatenate([b.T @ pull, wb])
    energy = energy / np.linalg.norm(energy)
    part = row @ energy
    rest = row - part * energy
    unit = rest / np.linalg.norm(rest)
    due = (-by_q @ z - part * (field @ energy)) / np.linalg.norm(rest)
    right = field - unit * (unit @ field - due)
    # Differences know derivatives to 1e-12 or so, and what they enter is divided by nothing small.
    assert step / h == pytest.approx(right, abs=1e-10)
    assert np.max(np.abs(unit * (unit @ field - due))) > 1e-6  # the correction is there,
    assert abs(due) > 1e-2  # and a projection as for linear constraints would be another one
    gained = 0.5 * (w1 @ w1 - w0 @ w0) + potential(q1) - potential(q0)
    work = h * (inside @ added + pull @ z)
    # `pull` and `turn` come from differences.
    assert gained == pytest.approx(work, abs=1e-11)
    assert abs(work) > 1e-4


def test_a_changed_integral_counts_from_the_next_run():
    runs = []
    for kept in (angular, apsis):
        CHOICE[0] = kept
        runs.append(da.simulate(Chosen(), da.FrameIntegrals("chosen"), *APSIS, h=0.05, steps=200))
    found = np.ptp([values((angular, apsis), sol) for sol in runs], axis=2)
    assert np.max(np.diagonal(found)) < 3e-12  # as above
    assert min(found[0, 1], found[1, 0]) > 1e-6


CHOICE = [angular]


class Chosen(da.System):
    """Kepler's problem; which function it names can change."""

    coordinates = ("x", "y")

    def lagrangian(self, q, v):
        return 0.5 * jnp.sum(v**2) + 1 / jnp.sqrt(q @ q)

    def integrals(self):
        return {"chosen": CHOICE[0]}
