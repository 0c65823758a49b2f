"""The frame discrete gradient on Lie groups: it needs no charts, and keeps energy and constraints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import frame_on_groups as plain

import dalembert as da
from dalembert.diagnostics import energy_balance
from dalembert.groups import SE2, SE3, SO3, Product, Rn


class HeavyBody(da.GroupSystem):
    """A heavy rigid body with a one-form that is invariant on neither side."""

    group = SO3()

    def inertia(self):
        return jnp.diag(jnp.array([1.0, 1.7, 2.3]))

    def potential(self, g):
        return g[6:9] @ jnp.array([0.3, -0.2, 0.9])

    def constraints(self, g):
        return (g.reshape(3, 3).T @ jnp.array([0.6, 0.0, 0.8]) + jnp.array([0.3, -0.5, 0.2]))[None]


class Varying(da.GroupSystem):
    """An inertia that depends on the rotation and on a coordinate."""

    group = Product(SO3(), Rn(1))

    def metric(self, q):
        a = jnp.concatenate([q[6:9], 0.5 + jnp.sin(q[9:])])
        return jnp.diag(jnp.array([1.0, 1.7, 2.3, 0.8])) + jnp.outer(a, a)

    def potential(self, q):
        return q[8] + q[9] ** 2

    def constraints(self, q):
        return jnp.concatenate([q[0:3], jnp.array([0.4])])[None]


class OnSurface(da.GroupSystem):
    """A body with a point on a bowl, which must not turn about one of its own axes."""

    group = Product(SO3(), Rn(3))

    def inertia(self):
        return jnp.diag(jnp.array([0.5, 0.8, 0.6, 1.5, 1.5, 1.5]))

    def potential(self, q):
        return 3.0 * q[11]

    def constraints(self, q):
        return jnp.array([[0.1, 0.2, 1.0, 0.0, 0.0, 0.0]])

    def holonomic(self, q):
        x, y, z = q[9:] + q[:9].reshape(3, 3) @ jnp.array([0.2, 0.1, -0.4])
        return jnp.array([z - 0.3 * (x * x + y * y)])


PROBLEMS = {
    "heavy": (HeavyBody, plain.heavy_body),
    "varying": (Varying, plain.varying_inertia),
    "surface": (OnSurface, plain.body_on_surface),
}


def made(name):
    kind, problem = PROBLEMS[name]
    problem, g, v = problem()
    return kind(), problem, g, v


def flat(g):
    return np.concatenate([g[0].ravel(), g[1]])


@pytest.mark.parametrize("gradient", ["average", "gonzalez"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_is_that_of_the_plain_transcription(name, gradient):
    system, problem, g, v = made(name)
    h, steps = 0.1, 20
    sol = da.simulate(system, da.FrameGradient(gradient), flat(g), v, h=h, steps=steps)
    for _ in range(steps):
        g, v = plain.step(problem, g, v, h, gradient)
    # Both solve their equations to rounding, and a disturbance grows less than tenfold in these 20 steps.
    assert np.max(np.abs(sol.q[-1] - flat(g))) < 1e-12
    assert np.max(np.abs(sol.v[-1] - v)) < 1e-12


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_reference_is_the_plain_exact_motion(name):
    system, problem, g, v = made(name)
    sol = da.simulate(system, da.Reference(), flat(g), v, h=0.1, steps=10)
    g, v = plain.exact(problem, g, v, 1.0)
    # The plain equations differentiate the constraints by differences, which costs three or four digits.
    assert np.max(np.abs(sol.q[-1] - flat(g))) < 1e-10
    assert np.max(np.abs(sol.v[-1] - v)) < 1e-10


@pytest.mark.parametrize("name", PROBLEMS)
def test_energy_constraints_and_surface_over_1e5_steps(name):
    system, problem, g, v = made(name)
    sol = da.simulate(system, da.FrameGradient(), flat(g), v, h=0.02, steps=100_000, save_every=500)
    energy = [plain.energy(problem, plain.element(q), v) for q, v in zip(sol.q, sol.v, strict=True)]
    # The frames of an inertia that varies are rounded too, and a tenth of a rounding error per step adds up.
    assert np.ptp(energy) < (5e-12 if name == "varying" else 1e-12)
    for q, v in zip(sol.q, sol.v, strict=True):
        g = plain.element(q)
        assert np.max(np.abs(plain.constraints(problem, g) @ v)) < 1e-13
        assert np.max(np.abs(problem.surface(g)), initial=0.0) < 1e-13
        assert np.max(np.abs(g[0].T @ g[0] - np.eye(3))) < 1e-14


@pytest.mark.parametrize(
    ("name", "method", "order"),
    [
        *((name, da.FrameGradient(), 2) for name in PROBLEMS),
        *((name, da.Composition(da.FrameGradient(), 4), 4) for name in PROBLEMS),
        ("varying", da.FrameGradient("gonzalez"), 2),
        ("varying", da.FrameGradient("itoh-abe"), 2),
    ],
    ids=lambda x: getattr(x, "cli_name", None),
)
def test_order(name, method, order):
    system, _, g, v = made(name)
    exact = da.simulate(system, da.Reference(), flat(g), v, h=1.0, steps=1)
    errors = []
    for steps in (8, 16) if order == 4 else (20, 40):
        sol = da.simulate(system, method, flat(g), v, h=1 / steps, steps=steps)
        errors.append([np.max(np.abs(sol.q[-1] - exact.q[-1])), np.max(np.abs(sol.v[-1] - exact.v[-1]))])
    found = np.log2(np.array(errors[0]) / errors[1])
    # The next term of the error is h^2 times smaller; halving the step leaves a few percent of it.
    assert np.all(np.abs(found - order) < 0.15), found


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_goes_back_the_same_way(name):
    system, _, g, v = made(name)
    there = da.simulate(system, da.FrameGradient(), flat(g), v, h=0.1, steps=50)
    back = da.simulate(system, da.FrameGradient(), there.q[-1], -there.v[-1], h=0.1, steps=50)
    # Rounding errors of 1e-16 per step grow by a factor of some dozens in 100 steps.
    assert np.max(np.abs(back.q[-1] - flat(g))) < 1e-12
    assert np.max(np.abs(back.v[-1] + v)) < 1e-12


def test_the_balance_of_the_energy_closes_with_forces():
    class Damped(HeavyBody):
        def forces(self, g, xi):
            return -0.3 * jnp.array([1.0, 2.0, 0.5]) * xi + g[0:3]

    _, _, g, v = made("heavy")
    sol = da.simulate(Damped(), da.FrameGradient(), flat(g), v, h=0.1, steps=200)
    found = energy_balance(sol)
    # The saved elements are rounded: eps |g|/(h |v|) is 3e-15, times the work of a step.
    assert found.defect < 1e-13
    assert np.max(np.abs(found.work)) > 1e-3
    exact = da.simulate(Damped(), da.Reference(), flat(g), v, h=2.0, steps=1)
    coarse, fine = (
        da.simulate(Damped(), da.FrameGradient(), flat(g), v, h=2 / n, steps=n).q[-1] for n in (40, 80)
    )
    assert 3.7 < np.max(np.abs(coarse - exact.q[-1])) / np.max(np.abs(fine - exact.q[-1])) < 4.3


def test_the_derivative_of_the_inertia_matters():
    """With the inertia of the start at all configurations, the motion is another one."""
    system, problem, g, v = made("varying")
    fixed = problem.mass(g)

    class Constant(Varying):
        def metric(self, q):
            return jnp.asarray(fixed)

    right, wrong = (
        da.simulate(x, da.FrameGradient(), flat(g), v, h=0.1, steps=20) for x in (system, Constant())
    )
    assert np.max(np.abs(right.q[-1] - wrong.q[-1])) > 1e-2


def test_a_group_of_vectors_gives_the_run_in_coordinates():
    """On R^n the same system may be written either way; the segment is then centred at its middle, which changes only
    rounding."""

    class Plain(da.System):
        coordinates = ("x", "y", "z")

        def metric(self, q):
            return jnp.diag(jnp.stack([1 + q[1] ** 2, 2 + jnp.sin(q[0]), jnp.ones(())]))

        def potential(self, q):
            return q[0] ** 2 + jnp.cos(q[2])

        def constraints(self, q):
            return jnp.array([[q[1], 0.5, -1.0]])

    class Additive(da.GroupSystem):
        group = Rn(3)
        metric, potential, constraints = Plain.metric, Plain.potential, Plain.constraints

    q, v = [0.3, -0.4, 0.5], [1.0, 0.6, -0.4 + 0.3]
    sols = [da.simulate(x, da.FrameGradient(), q, v, h=0.1, steps=100) for x in (Plain(), Additive())]
    assert np.max(np.abs(sols[0].q - sols[1].q)) < 1e-12  # a hundred steps of rounding


@pytest.mark.parametrize("name", ["ChaplyginSphere", "Veselova", "Suslov", "GroupSleigh"])
def test_the_systems_of_the_zoo_on_groups(name):
    system = getattr(da.zoo, name)()
    sol = da.simulate(system, da.FrameGradient(), *system.start(), h=system.step or 0.1, steps=2000)
    energy = sol.energy()
    assert np.ptp(energy) < 1e-13 * max(1.0, abs(energy[0]))  # 2000 roundings that do not add up
    assert np.max(sol.constraint_residual()) < 1e-14
    assert not da.audit(system, da.FrameGradient(), steps=10_000).broken_claims


def test_semidirect_products():
    """SE(2) and SE(3), where translations do not commute with rotations."""

    class Sleigh(da.GroupSystem):
        group = SE2()

        def inertia(self):
            return jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.2], [0.0, 0.2, 0.5]])

        def potential(self, g):
            return jnp.sum(g[-3:] ** 2) * 0.0 + 0.3 * g[0]

        def constraints(self, g):
            return jnp.array([[0.0, 1.0, 0.0]])

    class Body(da.GroupSystem):
        group = SE3()

        def inertia(self):
            return jnp.diag(jnp.array([0.5, 0.8, 0.6, 1.5, 1.5, 1.5])).at[0, 4].set(0.1).at[4, 0].set(0.1)

        def potential(self, g):
            return 0.4 * g[-1]

        def constraints(self, g):
            return jnp.array([[0.1, 0.2, 1.0, 0.0, 0.3, 0.0]])

    for system in (Sleigh(), Body()):
        g = np.asarray(system.group.exp(jnp.linspace(0.1, 0.5, system.group.dimension)))
        v = np.linspace(0.9, -0.7, system.group.dimension)
        q0, v0 = da.start(system, g, v)
        exact = da.simulate(system, da.Reference(), q0, v0, h=1.0, steps=1)
        errors = []
        for n in (20, 40):
            sol = da.simulate(system, da.FrameGradient(), q0, v0, h=1 / n, steps=n)
            errors.append(np.max(np.abs(sol.q[-1] - exact.q[-1])))
            assert np.ptp(sol.energy()) < 1e-14
        assert 3.7 < errors[0] / errors[1] < 4.3


def test_ensembles_and_derivatives():
    system, _, g, v = made("heavy")
    many = da.ensemble(
        system, da.FrameGradient(), np.stack([flat(g)] * 3), np.outer([1.0, 0.5, 0.1], v), h=0.1, steps=30
    )
    one = da.simulate(system, da.FrameGradient(), flat(g), 0.5 * v, h=0.1, steps=30)
    assert np.max(np.abs(many.q[1] - one.q)) < 1e-14

    def end(scale):
        return da.simulate(system, da.FrameGradient(), flat(g), scale * v, h=0.1, steps=30).q[-1][0]

    slope, step = jax.grad(end)(1.0), 1e-4
    difference = (end(1 + step) - end(1 - step)) / (2 * step)
    assert abs(slope - difference) < 1e-6 * abs(slope)  # the error of the difference is about step^2


def test_the_other_methods_refuse_a_varying_inertia():
    system, _, g, v = made("varying")
    for method in (da.LieGNI(), da.VariationalDLA(da.discrete.Retraction("exp"))):
        with pytest.raises(
            ValueError, match=r"constant mass matrix, but the mass matrix of Varying.*FrameGradient\(\)"
        ):
            da.simulate(system, method, flat(g), v, h=0.1, steps=1)


def test_a_chart_has_the_same_motion():
    system, _, g, v = made("varying")
    chart = da.Chart(system, flat(g))
    charted = da.simulate(chart, da.Reference(), np.zeros(4), v, h=0.5, steps=1)
    direct = da.simulate(system, da.Reference(), flat(g), v, h=0.5, steps=1)
    assert (
        np.max(np.abs(chart.element(charted.q[-1]) - direct.q[-1])) < 1e-12
    )  # two integrations to 1e-14 per step


def test_inertia_and_metric_are_one_description():
    class Both(Varying):
        def inertia(self):
            return jnp.eye(4)

    class Neither(da.GroupSystem):
        group = SO3()

    with pytest.raises(ValueError, match=r"Both gives both inertia\(\) and metric\(g\); keep metric\(g\) if"):
        da.simulate(Both(), da.FrameGradient(), np.zeros(10), np.zeros(4), h=0.1, steps=1)
    with pytest.raises(ValueError, match=r"Neither gives neither inertia\(\) nor metric\(g\)"):
        da.simulate(Neither(), da.FrameGradient(), np.eye(3).ravel(), np.zeros(3), h=0.1, steps=1)


class SteadyBall(da.GroupSystem):
    """A homogeneous ball that stays on the floor, a position constraint, and rolls on it: every motion is steady."""

    group = da.groups.Product(da.groups.SO3(), da.groups.Rn(3))

    def inertia(self):
        return jnp.diag(jnp.array([0.1, 0.1, 0.1, 1.0, 1.0, 1.0]))

    def potential(self, q):
        return 9.81 * q[11]

    def contact(self, q):
        """The place of the particle at the contact, by way of the body: it has the rounding of that."""
        turn = q[:9].reshape(3, 3)
        return q[9:] + turn @ (0.5 * (turn.T @ jnp.array([0.0, 0.0, -1.0])))

    def holonomic(self, q):
        return self.contact(q)[2:]

    def constraints(self, q):
        # The particle has the velocity x' + R (w x r), with r its place in the body.
        turn = q[:9].reshape(3, 3)
        r = turn.T @ (self.contact(q) - q[9:])
        return jnp.stack([jnp.concatenate([jnp.cross(r, turn.T @ d), d]) for d in jnp.eye(3)[:2]])


@pytest.mark.parametrize("spin", [(0.0, 2.0, 0.0), (1.3, 0.4, 0.7), (0.0, 0.0, 3.0), (0.2, -5.0, 1.0)])
def test_steady_motion_stays_steady(spin):
    """The guess of each step is its solution up to rounding, from which the solver must not wander off."""
    turn = np.eye(3)
    start = np.concatenate([turn.ravel(), [0.0, 0.0, 0.5]])
    speed = np.cross(spin, [0.0, 0.0, 0.5])
    v0 = np.concatenate([spin, speed])
    sol = da.simulate(SteadyBall(), da.FrameGradient(), start, v0, h=0.02, steps=2000)
    # Straight and with constant velocity; rounding adds up at random over 2000 steps.
    np.testing.assert_allclose(sol.q[:, 9:], start[9:] + sol.t[:, None] * speed, rtol=0, atol=1e-9)
    assert np.ptp(sol.energy()) < 1e-11
