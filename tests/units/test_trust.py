"""What once gave a wrong answer without a word, lost or hung: each is now right, or refused with a sentence."""

import collections
import gc
import importlib
import sys
import threading
import types
import warnings
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.discrete.gradients import GRADIENTS
from dalembert.model import as_arrays, lower
from dalembert.numerics import newton
from dalembert.numerics.fingerprints import is_installed
from dalembert.simulation import engines


class Plane(da.System):
    """A particle with a blade-like constraint; parameters, so that it compiles once."""

    coordinates = ("x", "y", "z")
    mass: float = 1.0

    def metric(self, q):
        return self.mass * jnp.eye(3)

    def potential(self, q):
        return 0.5 * q[0] ** 2

    def constraints(self, q):
        return jnp.array([[q[1], 0.0, -1.0]])


Q, V = np.array([0.3, 0.2, 0.0]), np.array([1.0, 0.5, 0.2])


def run(system, method=None, q0=Q, v0=V, **options):
    given = {"h": 0.1, "steps": 5} | options
    return da.simulate(system, method or da.LeapFrog(), q0, v0, **given)


def made(**functions):
    given = {"coordinates": ("x", "y"), "metric": lambda q: jnp.eye(2)}
    return da.system(**(given | functions))


# Angles


@pytest.mark.parametrize(
    "method", [da.FrameGradient(), da.LeapFrog(), da.Reference()], ids=lambda m: m.cli_name
)
@pytest.mark.parametrize(
    "functions",
    [
        {"potential": lambda q: jnp.sin(q[0] / 2)},
        {"potential": lambda q: -1e10 + jnp.sin(q[0] / 2)},
        {"constraints": lambda q: jnp.array([[1.0, jnp.sin(q[0] / 2)]])},
        {"potential": lambda q: jnp.sin(q[0]) * jnp.sin((q[0] - q[1]) / 2), "angles": ("x", "y")},
        {"forces": lambda q, v: -v * jnp.sin(q[0] / 2) ** 3},
    ],
    ids=["potential", "with a constant", "constraint", "difference", "forces"],
)
def test_angles_are_checked_away_from_the_start(functions, method):
    system = made(**({"angles": ("x",)} | functions))
    with pytest.raises(ValueError, match=r"declared an angle, but \w+ changes when it grows by full turns"):
        run(system, method, [0.0, 0.0], [0.0, 1.0])


def test_functions_of_period_two_pi_are_angles():
    system = made(potential=lambda q: 1e6 * jnp.cos(q[0]) + q[1] ** 2, angles=("x",))
    assert run(system, q0=[0.0, 0.0], v0=[1.0, 0.0]).status is da.Status.OK


def test_angles_of_a_billion_turns_are_refused():
    system = made(potential=lambda q: jnp.cos(q[0]), angles=("x",))
    with pytest.raises(ValueError, match=r"the angle x is 1e\+12, more than 1e\+09 turns"):
        run(system, q0=[1e12, 0.0], v0=[1.0, 0.0])


# Energy of discrete gradients


ROUGH = {
    "kink": lambda q: jnp.abs(q[0]) + 0.5 * q[1] ** 2,
    "steep step": lambda q: jnp.tanh(q[0] / 1e-4) + 0.5 * q[1] ** 2,
    "steep step across": lambda q: jnp.tanh((q[0] + 0.3 * q[1]) / 1e-4) + 0.5 * q[1] ** 2,
}


@pytest.mark.parametrize("gradient", list(GRADIENTS))
@pytest.mark.parametrize("name", ROUGH)
def test_discrete_gradients_balance_the_energy_of_any_potential(name, gradient):
    """Random segments, and those in which a kink lies between the middle nodes, where it was not seen."""
    random = np.random.default_rng(1)
    starts, ends = random.uniform(-1, 1, (2, 200, 2))
    ends[100:, 0] = -starts[100:, 0] * random.uniform(0.8, 1.25, 100)  # the middle, to a tenth of the segment
    potential, metric = ROUGH[name], jnp.array([[2.0, 0.3], [0.3, 1.0]])
    found = jax.jit(jax.vmap(lambda a, b: GRADIENTS[gradient](potential, a, b, metric)))(starts, ends)
    back = jax.jit(jax.vmap(lambda a, b: GRADIENTS[gradient](potential, b, a, metric)))(starts, ends)
    change = jax.vmap(potential)(ends) - jax.vmap(potential)(starts)
    # Rounding of energies of size one: 64 times eps times the size is what counts as balanced.
    assert np.max(np.abs(np.sum(found * (ends - starts), axis=1) - change)) < 1e-13
    size = 1 + np.abs(found)
    assert np.max(np.abs(found - back) / size) < 1e-9  # symmetric; a steep slope is known to fewer digits


def test_what_misses_a_kink_is_added_where_the_kink_is():
    """A separable potential has a separable gradient, also where V's values must tell which part is rough."""
    for name in ("kink", "steep step"):
        a, b = jnp.array([-0.1, 0.4]), jnp.array([0.11, 0.7])
        gradient = GRADIENTS["average"](ROUGH[name], a, b, jnp.eye(2))
        assert abs(float(gradient[1]) - 0.55) < 1e-14


def kinked(potential):
    return da.system(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.eye(3),
        potential=potential,
        constraints=lambda q: jnp.array([[q[1], 0.0, -1.0]]),
    )


@pytest.mark.parametrize(
    "method", [da.FrameGradient(), da.DiscreteGradient("average")], ids=lambda m: m.cli_name
)
def test_energy_is_kept_exactly_at_kinks(method):
    system, random, good = kinked(ROUGH["kink"]), np.random.default_rng(0), 0
    for _ in range(40):
        q, v = random.uniform(-1, 1, (2, 3))
        v[2] = q[1] * v[0]
        sol = run(system, method, q, v, steps=500, throw=False)
        energy = sol.energy(full=True)
        # Rounding of 500 steps of energies of size one; what was wrong was up to 0.1.
        assert np.max(np.abs(energy - energy[0])) < 1e-12
        good += sol.status is da.Status.OK
    assert good >= 38


# Scales


def test_a_metric_that_varies_beside_a_large_entry_is_not_constant():
    system = made(metric=lambda q: jnp.diag(jnp.array([1e12, 1.0]) + q[0] ** 2 * jnp.array([0.0, 1.0])))
    for method in (da.LeapFrog(), da.DLA(), da.DLA01(), da.DiscreteGradient()):
        with pytest.raises(ValueError, match="depends on q"):
            run(system, method, [0.0, 0.0], [1.0, 1.0])


def test_an_unsymmetric_block_beside_a_large_entry_is_seen():
    hidden = jnp.array([[1e12, 0.0, 0.0], [0.0, 1.0, 0.3], [0.0, 0.1, 1.0]])
    with pytest.raises(ValueError, match="not symmetric"):
        run(made(coordinates=("x", "y", "z"), metric=lambda q: hidden), q0=np.zeros(3), v0=np.ones(3))


def test_a_magnetic_term_is_seen_beside_a_large_constant():
    system = da.system(
        coordinates=("x", "y"), lagrangian=lambda q, v: 0.5 * jnp.sum(v**2) + 1e-3 * q[0] * v[1] + 1e10
    )
    with pytest.raises(ValueError, match="kinetic energy, quadratic in v"):
        run(system, q0=[0.0, 0.0], v0=[1.0, 0.0])


@pytest.mark.parametrize("method", [da.DiscreteGradient("average"), da.DLA()], ids=lambda m: m.cli_name)
def test_coordinates_of_any_unit_give_the_same_motion(method):
    class Scaled(Plane):
        """x moves freely, so that nothing in the step depends on the coordinate with the largest numbers."""

        unit: tuple = (1.0, 1.0, 1.0)

        def metric(self, q):
            return jnp.diag(1 / jnp.stack(self.unit) ** 2)

        def potential(self, q):
            _, y, z = q / jnp.stack(self.unit)
            return 2 * (1 - jnp.cos(3 * y)) + 0.5 * z**2

        def constraints(self, q):
            y = q[1] / self.unit[1]
            return jnp.array([[0.0, jnp.sin(y), -1.0]]) / jnp.stack(self.unit)

    v = V.copy()
    v[2] = np.sin(Q[1]) * v[1]
    plain = run(Scaled(), method, Q, v, steps=50)
    unit = np.array([1e100, 1.0, 1e-100])
    scaled = run(Scaled(unit=tuple(unit)), method, Q * unit, v * unit, steps=50)
    # Rounding of fifty steps; without natural units the small coordinates were not solved for at all.
    assert np.max(np.abs(scaled.q / unit - plain.q)) < 1e-12
    assert np.max(np.abs(scaled.v / unit - plain.v)) < 1e-12


def test_a_velocity_off_the_constraint_is_seen_beside_a_large_one():
    system = made(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.diag(jnp.array([1e-200, 1.0, 1.0])),
        constraints=lambda q: jnp.array([[0.0, 1.0, 0.0]]),
    )
    with pytest.raises(ValueError, match="violates the constraint"):
        run(system, q0=np.zeros(3), v0=[1e100, 0.5, 0.0])


# Functions that read something else than before


STRENGTH = 1.0
TABLE = {"k": 1.0}


def spring(q):
    return 0.5 * STRENGTH * TABLE["k"] * q[0] ** 2


def ends(system):
    sol = run(system, q0=[1.0, 0.0], v0=[0.0, 0.0], h=0.01, steps=100)
    # One unit of time of x'' = -k x, to the method's order; and the energy by the same k.
    strength = 2 * float(sol.energy()[0])
    assert abs(sol.q[-1, 0] - np.cos(np.sqrt(strength))) < 1e-4 * strength
    return strength


def test_a_global_that_changes_counts(monkeypatch):
    system = made(potential=spring)
    assert ends(system) == pytest.approx(1.0, abs=1e-12)
    monkeypatch.setitem(TABLE, "k", 4.0)
    assert ends(system) == pytest.approx(4.0, abs=1e-12)
    monkeypatch.setitem(globals(), "STRENGTH", 2.0)
    assert ends(system) == pytest.approx(8.0, abs=1e-12)
    assert float(system.at(0).potential(jnp.array([1.0, 0.0]))) == 4.0


def test_a_closure_a_default_and_a_replaced_method_count():
    held = {"k": 1.0}
    system = made(potential=lambda q: 0.5 * held["k"] * q[0] ** 2)
    assert ends(system) == pytest.approx(1.0, abs=1e-12)
    held["k"] = 3.0
    assert ends(system) == pytest.approx(3.0, abs=1e-12)

    class Own(da.System):
        coordinates = ("x", "y")
        strength = 1.0

        def metric(self, q):
            return jnp.eye(2)

        def potential(self, q):
            return 0.5 * self.strength * q[0] ** 2

    assert ends(Own()) == pytest.approx(1.0, abs=1e-12)
    Own.strength = 2.0
    assert ends(Own()) == pytest.approx(2.0, abs=1e-12)
    Own.potential = lambda self, q: 2.5 * q[0] ** 2
    assert ends(Own()) == pytest.approx(5.0, abs=1e-12)

    class Static(Own):
        law: object = eqx.field(static=True, default=None)

        def potential(self, q):
            return self.law(q)

    held["k"] = 1.0
    static = Static(lambda q: 0.5 * held["k"] * q[0] ** 2)
    assert ends(static) == pytest.approx(1.0, abs=1e-12)
    held["k"] = 6.0
    assert ends(static) == pytest.approx(6.0, abs=1e-12)


def test_equal_closures_that_part_later_stay_apart():
    """Two systems share compiled code while they are equal; a change of one is not one of the other."""

    def of(held):
        return made(potential=lambda q: 0.5 * held["k"] * q[0] ** 2)

    first, second = {"k": 1.0}, {"k": 1.0}
    one, two = of(first), of(second)
    assert ends(one) == ends(two) == pytest.approx(1.0, abs=1e-12)
    first["k"] = 3.0
    assert ends(two) == pytest.approx(1.0, abs=1e-12)
    assert ends(one) == pytest.approx(3.0, abs=1e-12)


def test_a_run_is_not_measured_by_functions_that_changed_since():
    held = {"k": 1.0}
    sol = run(made(potential=lambda q: 0.5 * held["k"] * q[0] ** 2), q0=[1.0, 0.0], v0=[0.0, 0.0])
    held["k"] = 2.0
    with pytest.raises(ValueError, match=r"have changed since this run.*Run it again"):
        sol.energy()
    held["k"] = 1.0
    assert sol.energy()[0] == 0.5


def test_new_functions_make_no_new_class():
    """JAX keeps a class for ever, and so what its functions read."""
    ends, kept = set(), []
    for k in range(3):
        system = made(potential=lambda q, k=k: k * q[0], name="Many")
        ends.add(run(system, q0=[1.0, 0.0], v0=[0.0, 0.0]).q[-1, 0])
        kept.append(system)
    assert len({type(x) for x in kept}) == 1
    assert len(ends) == 3  # other functions, other motions
    assert type(made(potential=lambda q: q[0], forces=lambda q, v: -v, name="Many")) is not type(kept[0])
    assert repr(kept[0]) == "Many()"


def test_what_cannot_be_watched_is_told_of():
    generator = np.random.default_rng(0)
    kept = [generator]
    with pytest.warns(UserWarning, match="read a Generator whose changes cannot be noticed"):
        run(made(potential=lambda q: q[0] * len(kept)), q0=[1.0, 0.0], v0=[0.0, 0.0])


def test_installed_software_needs_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(made(potential=lambda q: jnp.sum(jnp.cos(q)) + np.pi), q0=[1.0, 0.0], v0=[0.0, 0.0])


# Memory


def test_a_cell_that_is_run_again_makes_no_new_class():
    text = "f = da.system(coordinates=('x',), metric=lambda q: jnp.eye(1), potential=lambda q: q[0]**2)"
    space = {"da": da, "jnp": jnp}
    kinds = set()
    for i in range(3):
        exec(compile(text, f"<cell {i}>", "exec"), space)
        kinds.add(type(space["f"]))
    assert len(kinds) == 1


def test_machine_code_is_forgotten():
    recent = engines.Recent(2)

    class Code:
        pass

    gone = []
    for i in range(5):
        code = Code()
        gone.append(weakref.ref(code))
        recent.keep(i, code)
    del code
    gc.collect()
    assert [ref() is None for ref in gone] == [True, True, True, False, False]
    assert engines._known.most == engines.compiled_single.cache_info().maxsize == engines.LOOPS


# Names and arguments


class Bare(da.System):
    coordinates = ("x", "y")

    def metric(self, q):
        return jnp.eye(2)


def kind(**body):
    return type("Own", (Bare,), body)()


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (
            lambda: kind(constraint=lambda self, q: jnp.array([[0.0, 1.0]])),
            "constraint.*never called.*mean constraints",
        ),
        (lambda: kind(force=lambda self, q, v: -v), "did you mean forces"),
        (lambda: kind(potental=lambda self, q: q[0]), "did you mean potential"),
        (lambda: kind(potential_energy=lambda self, q: q[0]), "did you mean potential"),
        (lambda: kind(angle=("x",)), "did you mean 'angles'"),
        (lambda: kind(constraints=lambda self, q, v: v), r"must take \(self, q\).*rows are multiplied by v"),
        (lambda: kind(forces=lambda self, t, q, v: v), r"must take \(self, q, v\).*RheonomicSystem"),
        (lambda: made(constraints=lambda q, v: v), r"must take \(q\), but it takes \(q, v\)"),
        (lambda: made(potential=lambda q: q[0], parameters={"k": 1.0}), "gets them as its last argument"),
        (lambda: made(potential=lambda q: q[0], rheonomic=True), r"must take \(t, q\).*have t first"),
    ],
)
def test_misspelt_and_misdeclared_functions_are_refused(system, message):
    with pytest.raises(ValueError, match=message):
        run(system(), q0=[0.0, 0.0], v0=[1.0, 0.0])


def test_functions_that_help_are_accepted():
    class Helped(Bare):
        force: float = 2.0

        def potential(self, q):
            return self.potential_energy(q) + self._constraint(q)

        def potential_energy(self, q):
            return self.force * q[0]

        def _constraint(self, q):
            return q[1]

    assert run(Helped(), q0=[0.0, 0.0], v0=[1.0, 0.0]).status is da.Status.OK


def test_a_system_without_constraints_says_so():
    sol = run(Bare(), q0=[0.0, 0.0], v0=[1.0, 0.0])
    assert "Bare (no constraints)" in repr(sol)
    assert "no constraints" not in repr(run(Plane()))


def test_an_inertia_that_depends_on_the_configuration_is_not_ignored_on_groups():
    class Body(da.GroupSystem):
        group = da.groups.SO3()

        def metric(self, q):
            return (2 + q[0]) * jnp.eye(3)

    class Both(Body):
        def inertia(self):
            return jnp.eye(3)

    start = Body.group.identity(), [0.3, 1.0, -0.5]
    with pytest.raises(ValueError, match=r"gives both inertia\(\) and metric\(g\)"):
        run(Both(), da.FrameGradient(), *start)
    with pytest.raises(ValueError, match=r"constant mass matrix.*Use FrameGradient\(\) or Reference\(\)"):
        run(Body(), da.LieGNI(), *start)
    exact, kept = (
        da.simulate(Body(), x, *start, h=0.01, steps=200) for x in (da.Reference(), da.FrameGradient())
    )
    for sol in (exact, kept):
        assert np.ptp(sol.energy()) < 1e-12  # 200 roundings of an energy of 2; version 0.8 lost 1.1
    assert np.max(np.abs(exact.q - kept.q)) < 1e-4  # order 2, with h^2 = 1e-4


# Newton's method


def test_newton_is_not_fooled_by_a_first_correction_along_linear_directions():
    """The second unknown is linear and far off; the first is quadratic and near: its error must be seen."""

    def equations(x):
        return jnp.array([x[0] - 0.1 * (x[0] - 1) ** 2 - 1.0 + 2e-3, x[1] - 1.7])

    exact = 1 - 2e-3 + 0.1 * 2e-3**2
    for _ in range(50):
        exact = 1 - 2e-3 + 0.1 * (exact - 1) ** 2
    for slope in (None, lambda: jnp.eye(2)):
        found, info = newton(equations, jnp.array([1.0, 0.0]), jnp.asarray(1.0), slope)
        assert bool(info.converged)
        assert abs(float(found[0]) - exact) <= 4.5e-16  # two roundings


@pytest.mark.parametrize("gradient", ["gonzalez", "average"])
def test_steps_far_off_the_constraint_are_solved_to_rounding(gradient):
    """There and back: the defect was 3e-13 where the iteration ended one correction early."""
    system, method = as_arrays(da.zoo.PendulumCVT(eps=0.5)), as_arrays(da.DiscreteGradient(gradient))
    random, h = np.random.default_rng(3), jnp.asarray(0.1)

    @jax.jit
    def defect(q, u):
        state, memory = method.resume(lower(system), q, u, h)
        state, memory, _ = method.step(lower(system), state, memory, h)
        back = method.resume(lower(system), state.q, -memory.u, h)
        state, memory, _ = method.step(lower(system), *back, h)
        return jnp.max(jnp.abs(state.q - q)), jnp.max(jnp.abs(memory.u + u))

    for _ in range(40):
        q, u = random.uniform(-2, 2, (2, 3))
        # Twenty roundings of numbers of size two.
        assert max(map(float, defect(q, u))) < 1e-14


# Data


def test_masked_entries_are_refused():
    with pytest.raises(ValueError, match="masked entries"):
        run(Plane(), q0=np.ma.array(Q, mask=[False, True, False]))
    with pytest.raises(ValueError, match="masked entries"):
        da.ensemble(Plane(), da.LeapFrog(), np.ma.array([Q, Q], mask=np.eye(2, 3)), V, h=0.1, steps=2)
    assert run(Plane(), q0=np.ma.array(Q)).status is da.Status.OK


def test_energy_is_that_of_the_angle_that_the_method_knows():
    """Many turns later the sum of angle and turns has lost digits, the angle that the method works with has not."""
    system = da.system(
        coordinates=("th",), metric=lambda q: jnp.eye(1), potential=lambda q: jnp.cos(q[0]), angles=("th",)
    )
    sol = run(system, da.FrameGradient(), [1.0], [3.0], h=0.3, steps=1_000_000, save_every=50_000)
    assert sol.q[-1, 0] > 8e5
    # Rounding of a million steps: a bias of a fifth of a rounding per step, and a random walk of 1e-12 about it. The
    # rounding of the angle itself would scatter the energies by 1e-11 to 1e-10.
    energy = sol.energy()
    assert np.max(np.abs(energy - energy[0])) < 3e-10
    assert np.max(np.abs(energy - np.polyval(np.polyfit(sol.t, energy, 1), sol.t))) < 2e-12
    apart = sol.near + 2 * np.pi * np.round((sol.q - sol.near) / (2 * np.pi))
    assert np.max(np.abs(apart - sol.q)) < 1e-9  # rounding of an angle of 9e5, and of so many turns
    assert np.max(np.abs(sol.near)) < 3.2


# Inside JAX transformations


def test_jit_over_the_step_alone():
    system = da.zoo.KnifeEdge(eps=0.13)
    q, v = map(np.asarray, system.start())

    def last(h):
        return da.simulate(system, da.LeapFrog(), q, v, h=h, steps=5).q[-1, 0]

    inside = float(jax.jit(last)(0.1))  # nothing was run before
    slope = float(jax.jit(jax.grad(last))(0.1))
    assert inside == pytest.approx(float(last(0.1)), abs=1e-15)
    assert slope == pytest.approx(float((last(0.1 + 1e-5) - last(0.1 - 1e-5)) / 2e-5), abs=1e-8)


def test_jit_around_a_run_of_constants():
    system = da.zoo.KnifeEdge(eps=0.17)
    q, v = map(np.asarray, system.start())
    found = jax.jit(lambda x: x * jnp.asarray(run(system, q0=q, v0=v).q)[-1, 0])(2.0)
    assert float(found) == pytest.approx(2 * run(system, q0=q, v0=v).q[-1, 0], abs=1e-15)


@pytest.mark.parametrize("method", [da.LeapFrog(), da.FrameGradient(), da.DLA()], ids=lambda m: m.cli_name)
def test_failures_inside_transformations_are_nan(method):
    def loss(mass, **options):
        return jnp.sum(run(Plane(mass), method, **options).q[-1])

    value, slope = jax.jit(jax.value_and_grad(loss))(-1.0)
    assert np.isnan(value)
    assert np.isnan(slope)
    value, slope = jax.jit(jax.value_and_grad(loss))(1.0)
    assert np.isfinite(value)
    assert np.isfinite(slope)
    held = jax.jit(lambda mass: loss(mass, on_failure="hold"))(-1.0)
    assert np.isfinite(held)


def test_rows_before_a_failure_are_kept_inside_transformations():
    wall = made(potential=lambda q: jnp.sqrt(1 - q[0]), name="Wall")

    def rows(v0, **options):
        return da.simulate(wall, da.LeapFrog(), jnp.zeros(2), v0, h=0.1, steps=20, **options)

    sol = jax.jit(rows)(jnp.array([1.0, 0.0]))
    good = int(sol.steps)
    assert 5 < good < 20
    assert int(sol.code) != 0
    assert np.all(np.isfinite(sol.q[: good + 1]))
    assert np.all(np.isnan(sol.q[good + 1 :]))
    held = jax.jit(lambda v: rows(v, on_failure="hold"))(jnp.array([1.0, 0.0]))
    assert np.all(held.q[good + 1 :] == held.q[good])


def test_a_start_off_the_constraint_is_nan_or_projected():
    off = jnp.array([1.0, 0.5, 0.9])
    sol = jax.jit(lambda v: run(Plane(), v0=v))(off)
    assert np.all(np.isnan(sol.q))
    assert da.Status.from_code(int(sol.code)) is da.Status.OFF_CONSTRAINT
    inside = jax.jit(lambda v: run(Plane(), v0=v, project=True))(off)
    outside = run(Plane(), v0=np.asarray(off), project=True)
    assert np.allclose(inside.q, outside.q, rtol=0, atol=1e-15)
    assert np.max(outside.constraint_residual()) < 1e-15
    with pytest.raises(ValueError, match="violates the constraint"):
        run(Plane(), v0=np.asarray(off))


class Heavy(da.System):
    """Its mass matrix is constant if `varies` is zero."""

    coordinates = ("x", "y")
    varies: float = 0.5

    def metric(self, q):
        return jnp.eye(2).at[1, 1].add(self.varies * q[0] ** 2)

    def potential(self, q):
        return q[1]


HALF_TURNS = made(angles=("x",), potential=lambda q: jnp.sin(q[0] / 2), name="HalfTurns")
MAGNETIC = da.system(coordinates=("x", "y"), lagrangian=lambda q, v: 0.5 * v @ v + q[0] * v[1] - 1e10)
TWISTED = da.system(
    coordinates=("x", "y"),
    metric=lambda q: jnp.eye(2),
    constraints=lambda q: jnp.array([[jnp.sin(q[0]), -1.0]]),
    frame=lambda q: jnp.array([[1.0], [q[0]]]),
)


@pytest.mark.parametrize(
    ("system", "method", "status", "words"),
    [
        (Heavy(), da.LeapFrog(), da.Status.NOT_DEFINED, "mass matrix of Heavy"),
        (Heavy(), da.Composition(da.DLA01(), 4), da.Status.NOT_DEFINED, "mass matrix of Heavy"),
        (MAGNETIC, da.FrameGradient(), da.Status.NOT_DEFINED, "minus a potential"),
        (HALF_TURNS, da.LeapFrog(), da.Status.CONTRADICTION, "full turns"),
        (TWISTED, da.FrameGradient(), da.Status.CONTRADICTION, "contradict each other"),
    ],
    ids=["mass", "mass, composed", "magnetic", "half turns", "frame"],
)
def test_what_is_refused_outside_is_nan_inside(system, method, status, words):
    def end(q):
        return da.simulate(system, method, q, np.array([2.0, 0.0]), h=0.1, steps=5)

    with pytest.raises(ValueError, match=words):
        end(np.zeros(2))
    sol = jax.jit(end)(jnp.zeros(2))
    assert da.Status.from_code(int(sol.code)) is status
    assert np.all(np.isnan(sol.q))
    assert np.all(np.isnan(jax.jit(jax.jacrev(lambda q: end(q).q[-1]))(jnp.zeros(2))))
    assert "outside of jax.jit" in status.remedy


def test_parameters_that_make_a_method_undefined():
    """For some values of a traced parameter, or for some members, the mass matrix is not constant."""

    def end(varies, method):
        return da.simulate(Heavy(varies), method, [1.0, 0.0], [1.0, 0.0], h=0.1, steps=5).q[-1, 1]

    leapfrog = jax.jit(lambda varies: end(varies, da.LeapFrog()))
    assert leapfrog(0.0) == pytest.approx(-0.125, abs=1e-15)  # -t^2/2 exactly, but for rounding
    assert np.isnan(leapfrog(0.5))
    assert np.isfinite(jax.jit(lambda varies: end(varies, da.FrameGradient()))(0.5))
    run = ([1.0, 0.0], [1.0, 0.0])
    with pytest.raises(ValueError, match=r"1 member \(2\): LeapFrog is defined for a constant mass matrix"):
        da.ensemble(Heavy(np.array([0.0, 0.0, 0.5])), da.LeapFrog(), *run, h=0.1, steps=5)
    assert da.ensemble(Heavy(np.zeros(3)), da.LeapFrog(), *run, h=0.1, steps=5).q.shape == (3, 6, 2)


def test_a_run_inside_a_systems_function_does_not_hang():
    class Nested(Bare):
        def potential(self, q):
            return run(Plane()).q[-1, 0] * q[0] ** 2

    done = []
    thread = threading.Thread(
        target=lambda: done.append(run(Nested(), q0=[1.0, 0.0], v0=[0.0, 0.0]).q), daemon=True
    )
    thread.start()
    thread.join(120)
    assert len(done) == 1
    assert np.all(np.isfinite(done[0]))


@pytest.mark.parametrize("change", [{"on_failure": "raise"}, {"project": 1}])
def test_options_are_checked(change):
    with pytest.raises(ValueError, match="must be"):
        run(Plane(), **change)


def test_members_with_a_negative_mass_are_refused():
    with pytest.raises(ValueError, match="not positive definite at the start for 1 member"):
        da.ensemble(Plane(np.array([1.0, -1.0])), da.LeapFrog(), Q, V, h=0.1, steps=2)


class Entries(dict):
    rate = 1.0


class Items(list):
    rate = 1.0


class Size(float):
    rate = 1.0


def pull(q):
    return pull.rate * q[0]


def _read_through(how):
    """A potential that reads the number 1 in one of many ways, and what makes it 2."""
    pull.rate = 1.0
    table, chain, space = {"rate": 1.0}, collections.ChainMap({"rate": 1.0}), types.SimpleNamespace(rate=1.0)
    entries, items, size = Entries(), Items(), Size(3.0)
    get, get_chain, get_space = table.get, chain.get, space.__getattribute__
    return {
        "method of a dictionary": (lambda q: get("rate") * q[0], lambda: table.update(rate=2.0)),
        "method of an object": (lambda q: get_chain("rate") * q[0], lambda: chain.update(rate=2.0)),
        "method of a namespace": (lambda q: get_space("rate") * q[0], lambda: vars(space).update(rate=2.0)),
        "attribute of a dictionary": (lambda q: entries.rate * q[0], lambda: setattr(entries, "rate", 2.0)),
        "attribute of a list": (lambda q: items.rate * q[0], lambda: setattr(items, "rate", 2.0)),
        "attribute of a number": (lambda q: size.rate * q[0], lambda: setattr(size, "rate", 2.0)),
        "attribute of a function": (pull, lambda: setattr(pull, "rate", 2.0)),
    }[how]


@pytest.mark.parametrize(
    "how",
    ["method of a dictionary", "method of an object", "method of a namespace", "attribute of a dictionary",
     "attribute of a list", "attribute of a number", "attribute of a function"],
)  # fmt: skip
def test_a_number_that_is_read_through_something_counts(how):
    """The number is changed between two runs; the second must fall twice as far."""
    potential, change = _read_through(how)

    def end():
        system = da.system(coordinates=("x",), metric=lambda q: jnp.eye(1), potential=potential)
        return da.simulate(system, da.FrameGradient(), [0.0], [0.0], h=0.1, steps=10).q[-1, 0]

    assert abs(end() + 0.5) < 1e-12  # ten steps of rounding
    change()
    assert abs(end() + 1.0) < 1e-12


def test_installed_software_is_known_by_its_record(tmp_path, monkeypatch):
    """pip's --target takes a folder of any name; a user's file in that folder is read like any other.

    JAX in such a folder was taken for a user's code: reading all of it took minutes.
    """
    for name in ("of_others", "of_mine"):
        (tmp_path / f"{name}.py").write_text("rate = 1.0\n")
    record = tmp_path / "others-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("of_others.py,sha256=0,40\nothers-1.0.dist-info/RECORD,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, installed in (("of_others", True), ("of_mine", False)):
        importlib.import_module(name)
        assert is_installed(name) is installed


def _reading(package, how):
    """A potential that reads package.numbers.rate, directly or not, in one of many ways."""
    numbers = importlib.import_module("my_package.numbers")

    def imports(q):
        import my_package.numbers as again

        return again.rate * q[0]

    def imports_from(q):
        from my_package.numbers import rate

        return rate * q[0]

    return {
        "module in a closure": lambda q: numbers.rate * q[0],
        "module in a default": lambda q, m=numbers: m.rate * q[0],
        "module in a dictionary": lambda q, d={"m": numbers}: d["m"].rate * q[0],
        "module of a package": lambda q: package.numbers.rate * q[0],
        "function of a module": lambda q: numbers.pull(q),
        "function in another module": lambda q: package.pull_from_there(q),
        "getattr": lambda q: getattr(numbers, "rate") * q[0],  # noqa: B009
        "import": imports,
        "import from": imports_from,
        "relative import": lambda q: package.pull_from_here(q),
        "__getattr__": lambda q: package.rate_now * q[0],
    }[how]


@pytest.mark.parametrize(
    "how",
    ["module in a closure", "module in a default", "module in a dictionary", "module of a package",
     "function of a module", "function in another module", "getattr", "import", "import from", "relative import",
     "__getattr__"],
)  # fmt: skip
def test_a_number_in_a_module_counts(tmp_path, monkeypatch, how):
    """The number is changed between two runs; the second must fall twice as far."""
    folder = tmp_path / "my_package"
    folder.mkdir()
    (folder / "numbers.py").write_text("rate = 1.0\ndef pull(q):\n    return rate * q[0]\n")
    (folder / "__init__.py").write_text(
        "from my_package import numbers\n"
        "def pull_from_there(q):\n    return numbers.pull(q)\n"
        "def pull_from_here(q):\n    from .numbers import rate\n    return rate * q[0]\n"
        "def __getattr__(name):\n"
        "    if name == 'rate_now':\n        return numbers.rate\n"
        "    raise AttributeError(name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_package", "my_package.numbers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    package = importlib.import_module("my_package")

    def end():
        system = da.system(coordinates=("x",), metric=lambda q: jnp.eye(1), potential=_reading(package, how))
        return da.simulate(system, da.FrameGradient(), [0.0], [0.0], h=0.1, steps=10).q[-1, 0]

    assert abs(end() + 0.5) < 1e-12  # ten steps of rounding
    monkeypatch.setattr(package.numbers, "rate", 2.0)
    assert abs(end() + 1.0) < 1e-12
    monkeypatch.setattr(package.numbers, "rate", 1.0)
    assert abs(end() + 0.5) < 1e-12


class FarAway(da.System):
    """A free particle near its start; around x = 60 its mass grows, or a magnetic field turns it."""

    coordinates = ("x", "y")
    heavier: float = 0.0
    field: float = 0.0

    def lagrangian(self, q, v):
        there = jnp.exp(-((q[0] - 60.0) ** 2))
        return 0.5 * (1 + self.heavier * there) * (v @ v) + self.field * there * v[1]


@pytest.mark.parametrize(
    ("system", "method"),
    [
        (FarAway(field=5.0), da.FrameGradient()),
        (FarAway(field=5.0), da.Composition(da.FrameGradient(), 4)),
        (FarAway(field=5.0), da.LeapFrog()),
        (FarAway(heavier=5.0), da.LeapFrog()),
        (FarAway(heavier=5.0), da.DLA01()),
    ],
)
def test_a_system_that_is_of_another_kind_far_from_the_start(system, method):
    """The run once went through the field as if it were not there, by 82 units, and said that all was well."""
    start = {"q0": [0.0, 0.0], "v0": [1.0, 0.2], "h": 0.1, "steps": 700}
    sol = da.simulate(system, method, **start, throw=False)
    assert sol.status is da.Status.NOT_DEFINED
    assert 50 < sol.q[-1, 0] < 60
    assert "start a run near here" in sol.message
    with pytest.raises(ValueError, match=r"minus a potential|constant mass matrix"):
        da.simulate(system, method, **start | {"q0": [58.0, 0.0]})

    inside = jax.jit(lambda v: da.simulate(system, method, **start | {"v0": v}))(jnp.array([1.0, 0.2]))
    assert da.Status.from_code(int(inside.code)) is da.Status.NOT_DEFINED
    assert int(inside.steps) == sol.steps
    assert np.isnan(np.asarray(inside.q[-1])).all()

    many = da.ensemble(
        system, method, np.zeros((2, 2)), np.array([[1.0, 0.2], [-1.0, 0.2]]), h=0.1, steps=700
    )
    assert [da.Status.from_code(int(x)) for x in many.code] == [da.Status.NOT_DEFINED, da.Status.OK]

    exact = da.simulate(system, da.Reference(), **start)
    allowed = da.simulate(system, da.VariationalDLA(), **start)
    assert np.max(np.abs(allowed.q - exact.q)) < 0.05  # an error of order h^2 = 0.01
