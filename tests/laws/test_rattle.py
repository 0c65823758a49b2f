"""Position constraints in the discrete Lagrange-d'Alembert methods and in GNI, as in RATTLE and SHAKE."""

import warnings
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import position_constraints as plain
from laws.test_position_constraints import PROBLEMS, Blade, Pendulums, Rod, Wire, residuals

import dalembert as da
from dalembert.methods import parasitic_amplitude
from dalembert.model import as_arrays
from dalembert.simulation import engines

ANY_METRIC = {
    "gni": da.GNI(),
    "gni:trapezoidal": da.GNI(da.discrete.Trapezoidal()),
    "dla-variational": da.VariationalDLA(),
    "dla-variational:trapezoidal": da.VariationalDLA(da.discrete.Trapezoidal()),
}
CONSTANT = {"dla": da.DLA(), "dla01": da.DLA01()}
METHODS = {**ANY_METRIC, **CONSTANT}


class Sprung(Blade):
    """The blade in the bowl with springs, so that it matters where their force is taken."""

    def potential(self, q):
        return Blade.potential(self, q) + 2 * q[0] ** 2 * q[1] + jnp.cos(q[3]) + q[2] ** 3


def sprung():
    problem, q, v = plain.blade_in_bowl()

    def gradient(q):
        force = [4 * q[0] * q[1], 2 * q[0] ** 2, 3 * q[2] ** 2, -np.sin(q[3])]
        return problem.gradient(q) + np.array(force)

    def potential(q):
        return problem.potential(q) + 2 * q[0] ** 2 * q[1] + np.cos(q[3]) + q[2] ** 3

    return replace(problem, potential=potential, gradient=gradient), q, v


EXAMPLES = {**PROBLEMS, "sprung": (Sprung, sprung)}
CASES = [
    *(("sprung", method) for method in METHODS),
    *(("varying", method) for method in ANY_METRIC),
    # With a constant force the trapezoidal rule is the midpoint rule.
    *((problem, method) for problem in ("framed", "pendulums") for method in METHODS if ":" not in method),
]
TRANSCRIBED = [*((p, m) for p, m in CASES if p != "framed"), ("sprung", "dla:0.3")]
one_of = pytest.mark.parametrize("name", METHODS)


def made(name):
    kind, problem = EXAMPLES[name]
    return kind(), *problem()


class Pendulum(da.System):
    """A particle on the unit circle, with a force that is not constant; no one-forms."""

    coordinates = ("x", "y")

    def metric(self, q):
        return jnp.eye(2)

    def potential(self, q):
        return 9.8 * q[1] + q[0] ** 4

    def holonomic(self, q):
        return jnp.array([q @ q - 1.0])


def pendulum_gradient(q):
    return np.array([4 * q[0] ** 3, 9.8])


PENDULUM = (np.array([0.6, -0.8]), np.array([0.8, 0.6]))


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_positions_and_velocities_satisfy_everything(problem, name):
    system, functions, q, v = made(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that a step is not machine code
        sol = da.simulate(system, METHODS[name], q, v, h=0.01, steps=4000)
    surface, rows = residuals(functions, sol)
    # Rounding of numbers of size one to ten in the last correction; nothing adds up from step to step.
    assert surface < 1e-14
    assert rows < 1e-14


@one_of
def test_steps_are_machine_code(name):
    assert isinstance(engines.engine(*map(as_arrays, (Blade(), METHODS[name])), 0.01), engines.Native)


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_order_two(problem, name):
    system, functions, q, v = made(problem)
    exact = plain.exact(functions, q, v, 1.0)
    errors = []
    for h in (1 / 80, 1 / 160):
        sol = da.simulate(system, METHODS[name], q, v, h=h, t1=1.0)
        errors.append([np.max(np.abs(x[-1] - y)) for x, y in zip((sol.q, sol.v), exact, strict=True)])
    orders = np.log2(np.divide(*errors))
    assert np.all(np.abs(orders - 2) < 0.02), orders  # the next term is h^2 times smaller
    assert METHODS[name].claims(system).order == 2


def test_order_one_of_other_alphas():
    system, functions, q, v = made("blade")
    exact = plain.exact(functions, q, v, 1.0)
    runs = [da.simulate(system, da.DLA(0.3), q, v, h=h, t1=1.0) for h in (1 / 320, 1 / 640)]
    order = np.log2(np.divide(*(np.max(np.abs(sol.q[-1] - exact[0])) for sol in runs)))
    assert abs(order - 1) < 0.03  # the next term is h times smaller
    assert da.DLA(0.3).claims(system).order == 1
    assert max(residuals(functions, runs[0])) < 1e-14  # rounding


@pytest.mark.parametrize(("problem", "name"), TRANSCRIBED)
def test_a_run_is_that_of_the_plain_transcription(problem, name):
    system, functions, q, v = made(problem)
    h, steps = 0.05, 30
    method = METHODS.get(name, da.DLA(0.3))
    sol = da.simulate(system, method, q, v, h=h, steps=steps)
    rule = name.partition(":")[2] or "midpoint"
    u = plain.gni_start(functions, q, v, h) if name.startswith("gni") else v
    lam = None
    for _ in range(steps):
        if name.startswith("gni"):
            q, v, u = plain.gni_step(functions, q, u, h, rule)
        elif name.startswith("dla-variational"):
            q, u = plain.variational_step(functions, q, u, h, rule)
            v = u
        else:
            where, alpha = ("middle", 0.5) if name == "dla01" else ("ends", float(method.alpha))
            q, v, *lam = plain.dla_step(functions, q, v, h, alpha, where)
            u = v
    # Both solve their equations to rounding, and a disturbance grows less than tenfold in these 30 steps.
    for found, expected in ((sol.q, q), (sol.v, v), (sol.v_full, u)):
        assert np.max(np.abs(found[-1] - expected)) < 1e-12
    if lam is not None:  # sizes of about ten, divided by h
        assert np.max(np.abs(sol.multipliers[-1] - np.concatenate(lam))) < 1e-11


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_steps_go_back(problem, name):
    system, _, q, v = made(problem)
    method = METHODS[name]
    assert method.claims(system).reversible
    sol = da.simulate(system, method, q, v, h=0.02, steps=20)
    defect = da.diagnostics.reversibility_defect(system, method, 0.02, sol.q, sol.v_full)
    assert np.max(defect) < 2e-13  # rounding of positions, divided by h


def test_a_claim_of_reversibility_is_not_made_for_other_alphas():
    system, _, q, v = made("blade")
    assert not da.DLA(0.3).claims(system).reversible
    assert da.diagnostics.reversibility_defect(system, da.DLA(0.3), 0.02, q[None], v[None]) > 1e-6


@pytest.mark.parametrize(
    "method", [da.GNI(da.discrete.Trapezoidal()), da.VariationalDLA(da.discrete.Trapezoidal())]
)
class TestPendulum:
    def test_runs_are_those_of_rattle_and_shake(self, method):
        h, steps = 0.02, 300
        sol = da.simulate(Pendulum(), method, *PENDULUM, h=h, steps=steps)
        q, p = PENDULUM
        for k in range(steps):
            q, p = plain.rattle_on_circle(pendulum_gradient, q, p, h)
            # Rounding, which the swings of 300 steps enlarge tenfold.
            assert np.max(np.abs(sol.q[k + 1] - q)) < 1e-12
            assert np.max(np.abs(sol.v[k + 1] - p)) < 1e-12
        last = plain.shake_on_circle(pendulum_gradient, *sol.q[-3:-1], h)
        assert np.max(np.abs(sol.q[-1] - last)) < 1e-14
        assert np.max(np.abs(sol.v_full - sol.v)) < 1e-14, "without one-forms nothing is reflected"

    def test_the_energy_does_not_drift(self, method):
        sol = da.simulate(Pendulum(), method, *PENDULUM, h=0.02, steps=10_000)
        error = np.abs(sol.energy() - sol.energy()[0]).reshape(-1)[1:].reshape(10, -1)
        largest = np.max(error, axis=1)
        # The energy oscillates with the swings; a thousand steps have nearly all of their phases.
        assert np.ptp(largest) < 0.02 * np.max(largest)
        assert np.max(largest) < 0.02
        shorter = da.simulate(Pendulum(), method, *PENDULUM, h=0.01, steps=2000).energy()
        assert abs(np.max(np.abs(shorter - shorter[0])) / np.max(largest) - 0.25) < 0.02, "O(h^2)"


def test_claims_without_one_forms():
    """The own velocity of GNI is then allowed, too. A discrete Lagrangian of higher order does not help."""
    found = da.GNI(da.discrete.Gauss(2)).claims(Pendulum())
    assert found.on_constraint
    assert found.order == 2
    assert not da.GNI().claims(Blade()).on_constraint


def test_no_energy_is_claimed_on_a_surface():
    """In the plane a flight without forces keeps its energy; on a surface the normal force changes it."""

    class Sliding(Blade):
        def potential(self, q):
            return jnp.zeros(())

    sol = da.simulate(Sliding(), da.GNI(), *Sliding().start(), h=0.05, steps=200)
    assert not da.GNI().claims(Sliding()).energy
    assert np.ptp(sol.energy(full=True)) > 1e-6


@one_of
def test_a_start_off_the_surface_is_refused(name):
    system, _, q, v = made("blade")
    with pytest.raises(ValueError, match=r"holonomic\(q0\) = \[0.1\].*da.start\(system, q0, v0\) finds"):
        da.simulate(system, METHODS[name], q + 0.1 * np.eye(4)[2], v, h=0.1, steps=1)
    found = da.simulate(system, METHODS[name], q + 0.1 * np.eye(4)[2], v, h=0.1, steps=1, project=True)
    assert np.max(found.position_residual()) < 1e-15


@pytest.mark.parametrize(("problem", "name"), CASES)
def test_multipliers_have_order_two(problem, name):
    """They belong to the row, to the middle of the step or to its beginning, and both kinds converge."""
    system, functions, q, v = made(problem)
    errors = []
    for h in (1 / 160, 1 / 320):
        sol = da.simulate(system, METHODS[name], q, v, h=h, t1=0.5)
        exact = da.simulate(system, da.Reference(), q, v, h=h / 2, t1=0.5)
        at = np.rint(sol.t_multipliers / (h / 2)).astype(int)
        both = np.concatenate([sol.velocity_multipliers, sol.position_multipliers], axis=1)
        errors.append(np.max(np.abs(both - exact.multipliers[at]), axis=0))
        expected = plain.multipliers(functions, q, v)
        if problem != "framed":  # the one-forms of a frame are the library's choice
            assert np.max(np.abs(sol.multipliers[0] - expected)) < 1e-12  # rounding of sizes of about ten
    orders = np.log2(np.divide(*errors))
    assert np.all(np.abs(orders - 2) < 0.15), orders  # the largest error moves along the run


@one_of
def test_a_bead_at_rest_stays_and_the_surface_carries_it(name):
    sol = da.simulate(Blade(), METHODS[name], np.zeros(4), np.zeros(4), h=0.1, steps=5)
    assert np.max(np.abs(sol.q)) < 1e-15
    assert np.allclose(sol.position_multipliers, 9.8, rtol=0, atol=1e-12)  # rounding divided by h
    assert np.allclose(sol.velocity_multipliers, 0, rtol=0, atol=1e-12)


@one_of
def test_ensembles_and_single_runs_agree(name):
    system, _, q, v = made("blade")
    speeds = np.array([[0.5], [0.8], [1.0], [1.5]])
    many = da.ensemble(system, METHODS[name], q, speeds * v, h=0.02, steps=100)
    for i, speed in enumerate(speeds):
        one = da.simulate(system, METHODS[name], q, speed * v, h=0.02, steps=100)
        for found, expected in ((many.q[i], one.q), (many.v[i], one.v)):
            assert np.allclose(found, expected, rtol=0, atol=1e-12)  # each solves its equations to rounding
    assert np.max(many.position_residual()) < 1e-14


@pytest.mark.parametrize("name", ["gni", "dla-variational", "dla"])
def test_saving(name, tmp_path):
    system, _, q, v = made("blade")
    sol = da.simulate(system, METHODS[name], q, v, h=0.02, steps=20)
    sol.save(tmp_path / "run.zarr")
    for run in (da.load(tmp_path / "run.zarr"), da.load(tmp_path / "run.zarr", system=system)):
        for part in ("q", "v", "v_full", "velocity_multipliers", "position_multipliers", "t_multipliers"):
            assert np.array_equal(getattr(run, part), getattr(sol, part))


@one_of
def test_constraints_that_follow_from_others(name):
    class Twice(Blade):
        def holonomic(self, q):
            return jnp.concatenate([Blade.holonomic(self, q), 2 * Blade.holonomic(self, q)])

        def constraints(self, q):
            return jnp.concatenate([Blade.constraints(self, q), jax.jacobian(self.holonomic)(q)])

    start = Blade().start()
    one = da.simulate(Blade(), METHODS[name], *start, h=0.05, steps=40)
    with pytest.warns(da.ConstraintWarning, match="follows from"):
        two = da.simulate(Twice(), METHODS[name], *start, h=0.05, steps=40)
    assert np.allclose(two.q, one.q, rtol=0, atol=1e-12)  # other sizes of rows, so another rounding
    # The least squares of mu = k1 + 2 k2 with the one-forms' k1 + 2 k2: shares 1, 2, 1 and 2 of a tenth each.
    shares = two.multipliers[:, 1:] / one.position_multipliers
    assert np.allclose(shares, np.array([1, 2, 1, 2]) / 10, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["dla01", "dla-variational"])
def test_compositions_have_their_order(name):
    system, functions, q, v = made("blade")
    exact = plain.exact(functions, q, v, 1.0)
    errors = []
    for h in (1 / 40, 1 / 80):
        sol = da.simulate(system, da.Composition(METHODS[name], 4), q, v, h=h, t1=1.0)
        errors.append(np.max(np.abs(sol.q[-1] - exact[0])))
        assert max(residuals(functions, sol)) < 1e-14  # rounding
    assert abs(np.log2(errors[0] / errors[1]) - 4) < 0.1  # the next term is h^2 times smaller


class MovingBowl(da.RheonomicSystem):
    """The blade in a bowl that moves, with a metric and a potential of time, and a blade that is carried sideways."""

    coordinates = ("x", "y", "z", "heading")

    def metric(self, t, q):
        return jnp.diag(jnp.array([1.0, 1.0, 1.0, 0.1])) * (1 + 0.1 * jnp.sin(t) * q[0])

    def potential(self, t, q):
        return 9.8 * q[2] * (1 + 0.1 * jnp.cos(t))

    def holonomic(self, t, q):
        return jnp.array([q[2] - 1 + jnp.cos(q[0] - 0.3 * jnp.sin(t)) * jnp.cos(q[1])])

    def constraints(self, t, q):
        return jnp.array([[-jnp.sin(q[3]), jnp.cos(q[3]), 0.0, 0.0]])

    def offsets(self, t, q):
        return jnp.array([0.3 * jnp.cos(t) + 0.1 * q[0]])


@pytest.mark.parametrize("name", ANY_METRIC)
@pytest.mark.parametrize("kind", [Wire, MovingBowl])
def test_surfaces_that_move(kind, name):
    start = da.start(kind(), [0.8, 0.0, 0.32, 0.3][: kind().dimension], rates={"x": 0.3})
    exact = da.simulate(kind(), da.Reference(), *start, h=0.1, t1=1.0)
    errors = []
    for h in (0.02, 0.01):
        sol = da.simulate(kind(), METHODS[name], *start, h=h, t1=1.0)
        errors.append([np.max(np.abs(x[-1] - y[-1])) for x, y in ((sol.q, exact.q), (sol.v, exact.v))])
        assert np.max(sol.position_residual()) < 1e-14  # rounding of sizes of about one
        assert np.max(sol.constraint_residual()) < 1e-13  # velocities of about three
    assert np.all(np.abs(np.log2(np.divide(*errors)) - 2) < 0.05)  # the next term is h^2 times smaller
    leaving = jax.vmap(lambda t, q, u: jax.jvp(kind().holonomic, (t, q), (jnp.ones(()), u))[1])
    assert np.max(np.abs(leaving(sol.t, sol.q, sol.v_full))) < 1e-13, "the own velocity stays on the surface"
    claims = METHODS[name].claims(kind())
    assert claims.order == 2
    assert not claims.reversible
    assert not claims.energy


@pytest.mark.parametrize("method", [da.DLA(), da.DLA01()])
def test_what_is_not_defined_is_refused(method):
    start = da.start(Wire(), [0.8, 0.0, 0.32], rates={"x": 0.3})
    with pytest.raises(ValueError, match=r"do not depend on time, but Wire does\. Use .*GNI"):
        da.simulate(Wire(), method, *start, h=0.1, steps=1)
    system, _, q, v = made("varying")
    with pytest.raises(ValueError, match="constant mass matrix"):
        da.simulate(system, method, q, v, h=0.1, steps=1)


class HeldRod(Rod):
    """A rod that does not turn about one of its axes either."""

    def constraints(self, q):
        return jnp.array([[0.3, 0.2, 1.0, 0.0, 0.0, 0.0]])


def test_shake_on_a_group():
    q = jnp.concatenate([jnp.eye(3).reshape(-1), jnp.array([0.0, 0.0, -1.0])])
    start = da.start(HeldRod(), q, [0.8, 0.5, 0.3, 0.0, 0.0, 0.0])
    method = da.VariationalDLA(da.discrete.Retraction("cayley"))
    exact = da.simulate(HeldRod(), da.Reference(), *start, h=0.1, t1=1.0)
    errors = []
    for h in (1 / 80, 1 / 160):
        sol = da.simulate(HeldRod(), method, *start, h=h, t1=1.0)
        errors.append([np.max(np.abs(x[-1] - y[-1])) for x, y in ((sol.q, exact.q), (sol.v, exact.v))])
        assert np.max(sol.position_residual()) < 1e-14  # rounding
        assert np.max(sol.constraint_residual()) < 1e-14
    assert np.all(np.abs(np.log2(np.divide(*errors)) - 2) < 0.02)  # the next term is h^2 times smaller


def test_own_discrete_constraints_are_about_the_one_forms():
    """A user's constraint has one number per one-form; positions are not among them."""

    def middle(system, q0, q1, h):
        return system.constraints(0.5 * (q0 + q1)) @ (q1 - q0) / h

    system, _, q, v = made("blade")
    own = da.VariationalDLA(discrete_constraint=da.discrete.CustomConstraint(middle, True))
    two = [da.simulate(system, method, q, v, h=0.05, steps=20).q for method in (own, da.VariationalDLA())]
    assert np.max(np.abs(two[0] - two[1])) < 1e-13  # the same equations, with other rounding

    def more(system, q0, q1, h):
        return jnp.concatenate([middle(system, q0, q1, h), system.holonomic(q1)])

    with pytest.raises(ValueError, match=r"shape \(1,\), one number per one-form, got shape \(2,\)"):
        da.simulate(system, da.VariationalDLA(discrete_constraint=more), q, v, h=0.05, steps=1)


@one_of
def test_audit(name):
    found = da.audit(Blade(), METHODS[name], h=0.02, steps=10_000)
    assert not found.broken_claims
    assert found.positions < 1e-14  # rounding
    if name.startswith("gni"):
        assert found.volume.verdict == "kept", "a step of RATTLE keeps volume, and so does a reflection"
        assert found.laws.determinant is None


def test_laws_on_all_of_tq_are_refused_on_a_surface():
    system, _, q, v = made("blade")
    with pytest.raises(ValueError, match="a law on all of TQ, but Blade has position constraints"):
        da.diagnostics.phase_determinant(system, da.GNI(), 0.1, q[None], v[None])


@pytest.mark.parametrize(
    "method",
    [da.GNI(), da.GNI(start="momentum"), da.GNI(start="exact"), da.GNI(restart_every=7)],
    ids=lambda x: x.cli_name,
)
def test_the_own_velocity_of_gni_is_tangent_to_the_surface(method):
    """Its parasitic part, too, which is large after a start without the multiplier."""
    system, functions, q, v = made("blade")
    sol = da.simulate(system, method, q, v, h=0.02, steps=400)
    own = np.abs([functions.slopes(x) @ u for x, u in zip(sol.q, sol.v_full, strict=True)])
    assert np.max(own) < 1e-14  # rounding
    assert np.max(np.abs(sol.v_full - sol.v)) > 1e-3
    assert (np.max(parasitic_amplitude(sol)) > 1e-3) == (method.start == "momentum")


def test_double_pendulum_conserves_its_angular_momentum():
    """About the vertical, by Noether's theorem for the discrete Lagrangian, because the surface is symmetric."""
    _, _, q, v = made("pendulums")
    for method in METHODS.values():
        sol = da.simulate(Pendulums(), method, q, v, h=0.02, steps=2000)
        x, u = (np.asarray(a).reshape(-1, 2, 3) for a in (sol.q, sol.v))
        momentum = (x[..., 0] * u[..., 1] - x[..., 1] * u[..., 0]) @ np.array([1.0, 0.7])
        assert np.ptp(momentum) < 1e-12 * np.max(np.abs(momentum)) + 1e-13  # rounding of 2000 steps


@pytest.mark.parametrize("name", ["gni", "dla-variational", "dla", "dla01"])
def test_derivatives(name):
    system, _, q, v = made("blade")

    def end(gravity, lift):
        changed = eqx.tree_at(lambda s: s.gravity, as_arrays(system), gravity)
        start = jnp.asarray(q).at[2].add(lift)
        sol = da.simulate(changed, METHODS[name], start, v, h=0.02, steps=50, project=True)
        return sol.q[-1, 0]

    found = jax.grad(end, (0, 1))(9.8, 0.0)
    e = 1e-5
    expected = [(end(9.8 + e, 0.0) - end(9.8 - e, 0.0)) / (2 * e), (end(9.8, e) - end(9.8, -e)) / (2 * e)]
    assert np.allclose(found, expected, rtol=1e-8)  # central differences of this size
