"""Collocation in a frame: its orders, exact energy, independence of what the user writes, exact work, dense output."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from laws.test_frame_gradient import energy_scale
from laws.test_order import PROBLEMS, error, order_of
from laws.test_time import Everything, Pushed, start_of
from systems import SleighInPotential, make

import dalembert as da
from dalembert.diagnostics import energy_balance
from dalembert.diagnostics.order import exact_ends
from dalembert.methods import frame_collocation, method_from_text
from dalembert.methods.base import State
from dalembert.model import lower
from dalembert.numerics import PathRule

ZOO = [
    da.zoo.BallInCylinder(),
    da.zoo.BallOnSurface(),
    da.zoo.Car(),
    da.zoo.ChainOfPendula(),
    da.zoo.ChaplyginSleigh(),
    da.zoo.ChaplyginSleigh(coordinates="mass-centre"),
    da.zoo.FallingDisk(),
    da.zoo.HarmonicCVT(),
    da.zoo.KnifeEdge(),
    da.zoo.KnifeEdge(eps=0.1),
    da.zoo.MobileRobot(),
    da.zoo.NonholonomicParticle(),
    da.zoo.ParticleWithWheel(),
    da.zoo.PendulumCVT(eps=0.5),
    da.zoo.RollerRacer(),
    da.zoo.RollingDisk(),
    da.zoo.RouthSphere(),
    da.zoo.Snake(),
    da.zoo.Snakeboard(),
    da.zoo.Snakeboard(convention="absolute"),
    da.zoo.SpringParticle(),
    da.zoo.TwoWheeledRobot(),
]


@pytest.mark.parametrize("system", ZOO, ids=lambda s: s.label)
def test_energy_and_constraint_over_1e5_steps(system):
    sol = da.simulate(
        system, da.FrameCollocation(2), *system.start(), h=system.step, steps=100_000, save_every=100
    )
    energy = sol.energy()
    # The specification's bound. Rounding of energies of this size is 1e-15; it does not add up.
    assert np.max(np.abs(energy - energy[0])) < 1e-13 * energy_scale(sol)
    assert np.max(np.abs(energy[0])) > 0 or system.label.startswith("KnifeEdge")
    speed = np.maximum(1, np.max(np.abs(sol.v), axis=1))
    assert np.max(sol.constraint_residual() / speed) < 1e-12


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["cvt-rot-0.5", "sleigh-potential"])
def test_energy_is_exact_before_rounding_is_taken_out(name, stages, monkeypatch):
    """What `_rounding` takes out is rounding: without it a thousand steps change the energy by no more."""
    system, q0, v0, h = make(name)
    monkeypatch.setattr(frame_collocation, "_EXPLAINED", -1.0)
    m, method = lower(system), da.FrameCollocation(stages)
    start = State(jnp.asarray(q0), jnp.asarray(v0))

    @jax.jit
    def run(state):
        def one(carry, _):
            return method.step(m, *carry, jnp.asarray(h))[:2], None

        return jax.lax.scan(one, (state, method.init(m, state, jnp.asarray(h))), None, length=1000)[0]

    end, memory = run(start)
    before, after = (0.5 * x.v @ m.metric(x.q) @ x.v + m.potential(x.q) for x in (start, end))
    # Rounding of a thousand steps, each of some 1e-16.
    assert abs(after - before) < 1e-13
    assert abs(0.5 * memory.w @ memory.w + m.potential(end.q) - after) < 1e-14


# The coarsest step, the ratio of steps and how many, for each order, as in test_order.
STEPS = {2: (0.1, 2.0, 4), 4: (0.4, 1.4, 8), 6: (0.5, 1.2, 10), 8: (0.6, 1.15, 12), 10: (0.84, 1.09, 8)}


@pytest.mark.parametrize(
    ("name", "stages"), [*(("cvt", s) for s in (1, 2, 3, 4)), *(("sleigh", s) for s in (1, 2, 3, 4, 5))]
)
def test_orders_2_to_10(name, stages):
    """A constant metric with a potential, and a metric that depends on q.

    On the CVT the error turns with its passenger, which hides a tenth order in the few steps above rounding.
    """
    coarse, ratio, points = STEPS[2 * stages]
    method, counts, found = da.FrameCollocation(stages), [], []
    assert method.claims(PROBLEMS[name][0]).order == 2 * stages
    for k in range(points):
        counts.append(round(PROBLEMS[name][1] / coarse * ratio**k))
        found.append(error(name, method, counts[-1]))
        if np.max(found[-1]) < 5e-13:  # rounding of the run and of the reference, as in test_order
            break
    slopes = [order_of(np.array(counts), np.array(found)[:, i]) for i in (0, 1)]
    assert slopes == pytest.approx([2 * stages] * 2, abs=0.1)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("kind", [Everything, Pushed])
def test_order_where_everything_depends_on_everything(kind, stages):
    """Metric, potential, constraint, drift and forces that all depend on q and t."""
    system = kind()
    exact = exact_ends(system, *start_of(system), 2.0)
    counts = {1: (40, 80), 2: (20, 40), 3: (12, 24)}[stages]
    errors = []
    for n in counts:
        sol = da.simulate(system, da.FrameCollocation(stages), *start_of(system), h=2 / n, steps=n)
        errors.append([np.max(np.abs(sol.q[-1] - exact.q1[0])), np.max(np.abs(sol.v[-1] - exact.v1[0]))])
    assert np.log2(np.divide(*errors)) == pytest.approx([2 * stages] * 2, abs=0.15)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_the_balance_of_energy_is_exact(stages):
    """Where everything depends on everything the moving energy changes by exactly the work."""
    system = Pushed()
    sol = da.simulate(system, da.FrameCollocation(stages), *start_of(system), h=0.05, steps=100)
    found = energy_balance(sol)
    # Rounding: energies of order one, positions read from the rows lose eps |q|/(h |v|).
    assert found.defect < 2e-14
    assert np.max(np.abs(found.work)) > 1e-2
    assert np.max(sol.constraint_residual()) < 1e-14


def test_the_work_is_that_of_the_exact_motion():
    """The sum of the work converges to the change of the exact moving energy, at order 4."""
    system = Pushed()
    exact = da.simulate(system, da.Reference(), *start_of(system), h=0.4, steps=5).moving_energy()
    errors = []
    for steps in (20, 40):
        sol = da.simulate(system, da.FrameCollocation(2), *start_of(system), h=2 / steps, steps=steps)
        errors.append(abs(np.sum(energy_balance(sol).work) - (exact[-1] - exact[0])))
    assert abs(np.log2(errors[0] / errors[1]) - 4) < 0.15


@pytest.mark.parametrize(
    "system",
    [
        *(make(name)[0] for name in ("cvt-rot-0.5", "robot", "sleigh-potential", "snakeboard-absolute")),
        Pushed(),
    ],
    ids=lambda s: s.label,
)
def test_one_stage_is_the_frame_gradient(system):
    start = system.start() if system.starts() else start_of(system) if isinstance(system, Pushed) else None
    start = SleighInPotential().start() if start is None else start
    one, two = (
        da.simulate(system, method, *start, h=0.1, steps=100)
        for method in (da.FrameCollocation(1), da.FrameGradient())
    )
    # Rounding of a hundred steps.
    np.testing.assert_allclose(one.q, two.q, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(one.v, two.v, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["cvt-rot-0.5", "robot", "sleigh-contact", "snakeboard-relative"])
def test_result_does_not_depend_on_the_one_forms(name):
    """A and R(q) A have the same kernel; the trajectory must be the same."""
    system, q0, v0, h = make(name)

    def mixed(q):
        a = system.constraints(q)
        if a.shape[0] == 1:
            return (2 + jnp.sin(q[0] + q[-1])) * a
        s, c = jnp.sin(q[0] - 2 * q[-1]), jnp.cos(q[1] + q[2])
        return jnp.array([[2 + s, 0.5 * c], [0.7 * c, -3.0]]) @ a  # determinant below -3

    other = da.system(
        coordinates=system.coordinates, metric=system.metric, potential=system.potential, constraints=mixed
    )
    one, two = (da.simulate(s, da.FrameCollocation(3), q0, v0, h=h, steps=1000) for s in (system, other))
    # Rounding of a thousand steps; the angles reach a few hundred.
    assert np.max(np.abs(one.q - two.q)) < 1e-10
    assert np.max(np.abs(one.v - two.v)) < 1e-10


def test_frame_and_one_forms_give_the_same_trajectory():
    system, q0, v0, h = make("snakeboard-relative")

    def frame(q):
        theta, phi = q[2], q[4]
        x = jnp.array([jnp.cos(theta) * jnp.cos(phi), jnp.sin(theta) * jnp.cos(phi), -jnp.sin(phi), 0, 0])
        return jnp.stack([x, jnp.eye(5)[3] + 0.3 * x, jnp.eye(5)[4]], axis=1)

    by_frame = da.system(coordinates=system.coordinates, metric=system.metric, frame=frame)
    one, two = (da.simulate(s, da.FrameCollocation(2), q0, v0, h=h, steps=300) for s in (system, by_frame))
    assert np.max(np.abs(one.q - two.q)) < 1e-11
    assert np.max(np.abs(one.v - two.v)) < 1e-11


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_energy_to_rounding_at_h_03_in_a_rough_potential(stages):
    """Exponentials, fractions and roots at h = 0.3, which no quadrature integrates to rounding."""

    def potential(q):
        x, y, z = q
        return jnp.exp(2 * jnp.sin(3 * x)) + 1 / (1 + 4 * y**2) + jnp.sqrt(1 + 5 * (z - x) ** 2)

    system = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.diag(jnp.array([1.0, 2.0, 0.5])),
        potential=potential,
        constraints=lambda q: jnp.array([[-q[1], 0.0, 1.0]]),
    )
    start = ([0.2, 0.6, 0.5], [1.0, 0.5, 0.6])
    sol = da.simulate(system, da.FrameCollocation(stages), *start, h=0.3, steps=2000)
    energy = sol.energy()
    # Without the correction along the path it is off by more than 1e-4; steps of 0.3 are rough for five stages.
    assert np.max(np.abs(energy - energy[0])) < 1e-13 * energy[0]


def test_energy_is_exact_across_a_kink():
    """|x| has no derivative where the path crosses zero: quadrature misses its work, the correction finds it."""
    system = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.eye(3),
        potential=lambda q: jnp.abs(q[0]) + 0.5 * q[1] ** 2,
        constraints=lambda q: jnp.array([[-q[1], 0.0, 1.0]]),
    )
    sol = da.simulate(system, da.FrameCollocation(2), [1.0, 1.0, 0.0], [0.0, 0.0, 0.0], h=0.1, steps=1000)
    assert np.min(sol.q[:, 0]) < -0.5
    assert np.ptp(sol.energy()) < 1e-13


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_it_runs_backwards(stages):
    """Many steps there and back, beside the single step of test_reversible."""
    for name in ("cvt-rot-0.5", "sleigh-potential"):
        system, q0, v0, h = make(name)
        there = da.simulate(system, da.FrameCollocation(stages), q0, v0, h=h, steps=50)
        back = da.simulate(system, da.FrameCollocation(stages), there.q[-1], -there.v[-1], h=h, steps=50)
        # Rounding of a hundred steps.
        assert np.max(np.abs(back.q[-1] - q0)) < 1e-12
        assert np.max(np.abs(back.v[-1] + v0)) < 1e-12


@pytest.mark.parametrize("stages", [1, 3])
def test_states_inside_steps(stages):
    """Order s + 1 at any time, on D everywhere, and the rows themselves at theirs."""
    system, q0, v0, _ = make("cvt-rot-0.5")
    times = np.linspace(0.0, 4.0, 57)
    fine = da.simulate(system, da.FrameCollocation(5), q0, v0, h=4 / 56 / 4, steps=4 * 56, save_every=4)
    errors = []
    for n in (40, 80):
        sol = da.simulate(system, da.FrameCollocation(stages), q0, v0, h=4 / n, steps=n)
        q, v = sol.at(times)
        errors.append([np.max(np.abs(q - fine.q)), np.max(np.abs(v - fine.v))])
        a = np.asarray(jax.vmap(system.constraints)(jnp.asarray(q)))
        assert np.max(np.abs(np.einsum("kij,kj->ki", a, v))) < 1e-14
        for found, rows in zip(sol.at(sol.t), (sol.q, sol.v), strict=True):
            assert np.max(np.abs(found - rows)) < 1e-14
    assert np.log2(np.divide(*errors)) == pytest.approx([stages + 1] * 2, abs=0.2)
    some = da.simulate(system, da.FrameCollocation(stages), q0, v0, h=4 / 80, steps=80, save_every=7)
    # The steps between the rows are taken once more, from another basis of D.
    assert np.max(np.abs(some.at(times[:56])[0] - q[:56])) < 1e-12


def test_states_inside_steps_of_other_shapes_and_where_there_are_none():
    system, q0, v0, h = make("cvt-rot-0.5")
    sol = da.simulate(system, da.FrameCollocation(2), q0, v0, h=h, steps=10, t0=3.0)
    q, v = sol.at(3.25)
    assert q.shape == v.shape == (3,)
    many = sol.at(np.full((2, 4), 3.25))[0]
    assert many.shape == (2, 4, 3)
    assert np.array_equal(many[1, 2], q)
    assert [x.shape for x in sol.at([])] == [(0, 3)] * 2
    with pytest.raises(
        ValueError, match=r"the run goes from t = 3 to 4; at\(times\) got times from 2.9 to 3.5"
    ):
        sol.at([2.9, 3.5])
    # The polynomial of the way back is that of the way there.
    back = da.simulate(system, da.FrameCollocation(2), sol.q[-1], -sol.v[-1], h=h, steps=10)
    assert np.max(np.abs(back.at(0.75)[0] - q)) < 1e-13
    assert np.max(np.abs(back.at(0.75)[1] + v)) < 1e-13
    with pytest.raises(ValueError, match=r"FrameGradient has none. Use FrameCollocation\(\)"):
        da.simulate(system, da.FrameGradient(), q0, v0, h=h, steps=10).at(0.5)
    many = da.ensemble(system, da.FrameCollocation(2), np.stack([q0, q0]), v0, h=h, steps=10)
    with pytest.raises(ValueError, match=r"member\(i\).at"):
        many.at(0.5)
    assert many.member(1).at(0.25)[0] == pytest.approx(q, abs=1e-14)


def test_both_forms_of_the_code_agree(monkeypatch):
    system, q0, v0, h = make("sleigh-potential")
    runs = []
    for form in ("scalars", "arrays"):
        monkeypatch.setenv("DALEMBERT_KERNELS", form)
        runs.append(da.simulate(system, da.FrameCollocation(3), q0, v0, h=h, steps=100))
    # Rounding of a hundred steps, summed in another order.
    assert np.max(np.abs(runs[0].q - runs[1].q)) < 1e-12
    assert np.max(np.abs(runs[0].v - runs[1].v)) < 1e-12


def test_derivatives_of_a_run():
    """With respect to the start, against differences."""
    system, q0, v0, h = make("cvt-rot-0.5")

    def end(speed):
        return da.simulate(
            system, da.FrameCollocation(2), jnp.asarray(q0), speed * jnp.asarray(v0), h=h, steps=20
        ).q[-1]

    step = 1e-5
    by_differences = (end(1 + step) - end(1 - step)) / (2 * step)
    # Differences of this step are good to about 1e-9.
    np.testing.assert_allclose(jax.jacfwd(end)(1.0), by_differences, atol=1e-8)
    np.testing.assert_allclose(jax.jacrev(end)(1.0), by_differences, atol=1e-8)


def test_an_ensemble_is_its_members():
    system, q0, v0, h = make("sleigh-potential")
    speeds = np.linspace(0.5, 1.5, 7)[:, None]
    many = da.ensemble(system, da.FrameCollocation(2), q0, speeds * v0, h=h, steps=50)
    for i in (0, 6):
        alone = da.simulate(system, da.FrameCollocation(2), q0, speeds[i] * v0, h=h, steps=50)
        assert np.max(np.abs(many.member(i).q - alone.q)) < 1e-13


def test_a_step_that_has_no_root_says_so():
    """A potential of the depth 1e6 and a step of ten: reported with its step, and what was computed is kept."""
    system = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.eye(3),
        potential=lambda q: 1e6 * jnp.cos(5 * q[0]) * jnp.exp(jnp.sin(3 * q[1])),
        constraints=lambda q: jnp.array([[-q[1], 0.0, 1.0]]),
    )
    sol = da.simulate(
        system, da.FrameCollocation(2), [0.1, 0.5, 0.0], [1.0, 0.3, 0.5], h=10.0, steps=50, throw=False
    )
    assert sol.status is da.Status.NOT_SOLVED
    assert len(sol.t) == int(sol.steps) + 1
    assert "step" in sol.message
    assert "Remedy" in sol.message


def test_what_is_refused():
    for stages in (0, 13, 2.5, True, "2", None):
        with pytest.raises((ValueError, TypeError), match="whole number of stages from 1 to 12"):
            da.FrameCollocation(stages)
    with pytest.raises(ValueError, match=r"lives on the group"):
        da.simulate(da.zoo.Suslov(), da.FrameCollocation(2), *da.zoo.Suslov().start(), h=0.1, steps=1)
    with pytest.raises(ValueError, match=r"position constraints"):
        da.simulate(da.zoo.Bicycle(), da.FrameCollocation(2), *da.zoo.Bicycle().start(), h=0.01, steps=1)
    with pytest.raises(ValueError, match=r"linear in the velocity"):
        da.simulate(
            da.zoo.AppellHamel(), da.FrameCollocation(2), *da.zoo.AppellHamel().start(), h=0.1, steps=1
        )
    with pytest.raises(ValueError, match=r"FrameCollocation\(stages=3\)"):
        da.Composition(da.FrameCollocation(2), 4)


def test_names_on_the_command_line():
    assert method_from_text("frame:gauss=3") == da.FrameCollocation(3)
    assert da.FrameCollocation(3).cli_name == "frame:gauss=3"
    for text in (
        "frame:gauss",
        "frame:gauss=",
        "frame:gauss=x",
        "frame:gauss=0",
        "frame:gauss=2.5",
        "frame:gauss=99",
    ):
        with pytest.raises(ValueError, match=r"gauss|stages"):
            method_from_text(text)


@pytest.mark.parametrize("stages", range(1, 13))
def test_rules_of_quadrature(stages):
    """Against NumPy's own polynomials: integrals to the nodes, averages, and the path continued."""
    rule = PathRule.of(stages)
    c = np.random.default_rng(stages).normal(size=stages)  # a polynomial of degree s - 1 in 2 x - 1
    p = np.polynomial.Legendre(c, domain=[0, 1])
    known, whole = p(rule.nodes), p.integ(lbnd=0.0)
    size = np.sum(np.abs(c))
    assert np.max(np.abs(rule.stages @ known - whole(rule.nodes))) < 3e-15 * size
    assert np.max(np.abs(rule.places @ known - whole(rule.fine))) < 1e-14 * size
    assert abs(rule.weights @ known - whole(1.0)) < 1e-14 * size
    for x in (0.0, 0.3, 1.0):
        assert abs(np.asarray(rule.integrals(jnp.asarray(x))) @ known - whole(x)) < 1e-14 * size
    # Averages with l_i of anything of degree up to s + 8.
    f = np.polynomial.Legendre(np.random.default_rng(3).normal(size=stages + 8), domain=[0, 1])
    basis = rule.shares @ f(rule.fine) * rule.weights
    x, w = np.polynomial.legendre.leggauss(40)
    x, w = (1 + x) / 2, w / 2
    lagrange = np.array(
        [[np.prod([(y - b) / (a - b) for b in rule.nodes if b != a]) for a in rule.nodes] for y in x]
    )
    assert np.max(np.abs(basis - (w * f(x)) @ lagrange)) < 1e-13
    # Symmetric to the last digit, so that rounding has no direction.
    assert np.max(np.abs(rule.nodes - (1 - rule.nodes[::-1]))) < 1.2e-16
    assert np.array_equal(rule.weights, rule.weights[::-1])
    if stages <= 6:  # further out, extrapolation amplifies rounding
        ahead = rule.onwards @ np.append(known, p(1.0))
        assert np.max(np.abs(ahead - p(1 + rule.nodes))) < 1e-10 * size
