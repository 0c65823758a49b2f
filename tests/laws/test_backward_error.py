"""Modified fields: against closed forms and other roads to them, and the structures that they keep or lose."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from oscillator import Oscillator, W

import dalembert as da
from dalembert.diagnostics import CoupledField, Kept, passenger_exponents, predicted_growth
from dalembert.diagnostics.modified_structure import quadratic_form
from dalembert.diagnostics.order import nearby_starts


@pytest.fixture(scope="module")
def cvt() -> da.System:
    return da.zoo.PendulumCVT(eps=0.5)


@pytest.mark.parametrize("h", [0.2, 0.1])
def test_the_field_of_an_oscillator_has_the_frequencies_in_closed_form(h: float) -> None:
    """Leap-frog: (2/h) asin(h w/2), midpoint rule: (2/h) atan(h w/2); both maps are linear, so their fields are."""
    cases = (
        (da.LeapFrog(), 2 / h * np.arcsin(h * W / 2)),
        (da.VariationalDLA(), 2 / h * np.arctan(h * W / 2)),
    )
    q, v = np.array([[1.0], [0.0], [0.3]]), np.array([[0.0], [1.0], [-2.0]])
    for method, frequency in cases:
        f = da.modified_field(Oscillator(), method, h)
        value = f.rows(q, v)
        matrix = np.array([value.q[:2, 0], value.v[:2, 0]])  # columns are the images of the unit vectors
        assert np.sqrt(np.linalg.det(matrix)) == pytest.approx(
            frequency, abs=1e-10
        )  # as the closed forms are wanted
        assert abs(np.trace(matrix)) < 1e-12  # rounding divided by h
        # Linear, and within its own error bar.
        said = matrix @ [q[2, 0], v[2, 0]]
        assert np.abs([value.q[2, 0], value.v[2, 0]] - said).max() < 1e-12


def test_the_field_by_another_road(cvt: da.System) -> None:
    """Leap-frog written once more in NumPy, and the derivative of the polynomial through its iterates at 40 digits."""
    import mpmath

    h, terms = 0.05, 10
    one_form = jax.jit(lambda q: cvt.constraints(q))
    force = jax.jit(jax.grad(lambda q: cvt.potential(q)))

    def step(q: np.ndarray, u: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        half = u - 0.5 * h * np.asarray(force(q))
        q1 = q + h * half
        plus = half - 0.5 * h * np.asarray(force(q1))
        a = np.asarray(one_form(q1))
        v = plus - a.T @ np.linalg.solve(a @ a.T, a @ plus)
        return q1, 2 * v - plus

    def reflected(q: np.ndarray, u: np.ndarray) -> np.ndarray:
        a = np.asarray(one_form(q))
        return u - 2 * a.T @ np.linalg.solve(a @ a.T, a @ u)

    q0, v0 = (np.asarray(x) for x in cvt.start("rotating"))
    states = {0: np.concatenate([q0, v0])}
    forth, back = (q0, v0), (q0, v0)
    for j in range(1, terms + 1):
        for _ in range(2):  # leap-frog has a mode that alternates, so two steps are one
            forth = step(*forth, h)
            q, u = step(back[0], reflected(*back), -h)
            back = (q, reflected(q, u))
        states[j], states[-j] = np.concatenate(forth), np.concatenate(back)
    nodes = sorted(states)
    with mpmath.workdps(40):
        vandermonde = mpmath.matrix([[mpmath.mpf(j) ** p for p in range(len(nodes))] for j in nodes])
        slopes = mpmath.lu_solve(
            vandermonde.T, mpmath.matrix([1 if p == 1 else 0 for p in range(len(nodes))])
        )
    derivative = sum(float(c) * states[j] for c, j in zip(slopes, nodes, strict=True)) / (2 * h)
    f = replace(da.modified_field(cvt, da.LeapFrog(), h), terms=terms, fixed=True)
    value = f.rows(q0[None], v0[None])
    # Both add twenty states of size three, good to rounding, with weights up to one, and divide by 0.1.
    assert np.abs(np.concatenate([value.q[0], value.v[0]]) - derivative).max() < 1e-12


def test_one_state_many_states_and_derivatives_agree(cvt: da.System) -> None:
    h = 0.05
    f = replace(da.modified_field(cvt, da.DLA01(), h), terms=8)
    q, v = nearby_starts(cvt, *cvt.start("rotating"), 3)
    rows = f.rows(q, v)
    one = jax.jit(f)(q[1], v[1])
    for x, y in zip(one, (rows.q[1], rows.v[1]), strict=True):
        assert np.abs(np.asarray(x) - y).max() < 1e-11  # machine code and XLA round differently, divided by h
    t, way = 1e-4, np.array([1.0, -0.5, 0.0])  # the one-form does not change in this direction
    moved = [f.rows(q[1:2] + s * t * way, v[1:2]) for s in (1, -1)]
    slope = (moved[0].v[0] - moved[1].v[0]) / (2 * t)
    tangent = jax.jvp(lambda x: f(x, v[1])[1], (jnp.asarray(q[1]),), (jnp.asarray(way),))[1]
    assert np.abs(slope - tangent).max() < 1e-6  # differences: t^2 and rounding / (h t)


def test_steps_forward_serve_where_there_are_none_back(cvt: da.System) -> None:
    class Forward(da.DLA01):
        """It fails if it is asked to go back."""

        def step(self, m, state, memory, h):
            state, memory, report = super().step(m, state, memory, h)
            return state, memory, report._replace(converged=report.converged & (h > 0))

    q, v = (np.asarray(x)[None] for x in cvt.start("rotating"))
    h = 0.02
    both, one = (da.modified_field(cvt, method, h).rows(q, v) for method in (da.DLA01(), Forward()))
    assert both.v_error[0] < 1e-9
    assert 1e-9 < one.v_error[0] < 1e-2  # much is lost, and the estimate says so
    assert np.abs(both.v - one.v).max() < one.v_error[0]
    assert np.abs(both.q - one.q).max() < one.q_error[0]


def test_methods_that_are_not_symmetric_go_back_exactly(cvt: da.System) -> None:
    """The inverse of DLA(0.4) is DLA(0.6), reversed, so their fields are reversals of each other."""
    q, v = (np.asarray(x)[None] for x in cvt.start("rotating"))
    one, two = (da.modified_field(cvt, da.DLA(a), 0.02) for a in (0.4, 0.6))
    here, turned = one.rows(q, v), two.rows(q, -v)
    assert max(here.v_error[0], turned.v_error[0]) < 1e-8
    assert np.abs(here.q + turned.q).max() < 1e-10  # well within the error bars, which are not sharp
    assert np.abs(here.v - turned.v).max() < 1e-9


@pytest.mark.parametrize("method", [da.FrameGradient(), da.DLA(0.4)])
def test_expansions_in_h(cvt: da.System, method: da.Method) -> None:
    """The first coefficient is the exact field, and what is left over falls with the next power."""
    q, v = nearby_starts(cvt, *cvt.start("rotating"), 3)
    found = da.modified_field(cvt, method, 0.03).expansion(q, v)
    exact = np.stack([da.acceleration(cvt, x, y)[0] for x, y in zip(q, v, strict=True)])
    assert np.abs(found.v[0] - exact).max() < 10 * found.error[0].max() + 1e-12
    assert found.powers == ((0, 2, 4) if method.cli_name == "frame" else (0, 1, 2))
    next_power = found.powers[1]
    for count in (1, 2, 3):
        left = []
        for h in (0.03, 0.015):
            value = da.modified_field(cvt, method, h).rows(q, v)
            said = sum(h**p * found.v[i] for i, p in enumerate(found.powers[:count]))
            left.append(np.abs(value.v - said).max())
        assert np.log2(left[0] / left[1]) == pytest.approx(
            count * next_power, abs=0.3
        )  # higher powers still matter


def test_leapfrog_keeps_its_modified_energy(cvt: da.System) -> None:
    """|p|^2/2 + x.K(1 - h^2 K/4)x/2, found among all quadratic forms from the field of two steps alone."""
    h, draw = 0.0125, np.random.default_rng(1)
    coupled = da.CoupledSystem.of(cvt)
    split = CoupledField(coupled, da.modified_field(cvt, da.LeapFrog(), h))
    matrices = split.linear(draw.uniform(-np.pi, np.pi, 20), draw.uniform(-3, 3, 20))
    form = quadratic_form(matrices, 1.0)
    wanted = np.diag([1 - h**2 / 4] * 2 + [1.0, 1.0])
    assert form.definite
    assert np.abs(form.matrix / form.matrix[3, 3] - wanted).max() < 1e-10
    assert np.abs(wanted - np.eye(4)).max() > 1e-5  # so the energy itself would not do


@pytest.fixture(scope="module")
def table(cvt: da.System) -> dict[str, da.diagnostics.BackwardError]:
    methods = (
        da.FrameGradient(),
        da.FrameCollocation(2),
        da.DLA(0.5),
        da.DLA01(),
        da.DLA(0.4),
        da.LeapFrog(),
        da.DiscreteGradient(),
        da.DiscreteGradient("average"),
    )
    return {m.cli_name: da.backward_error(cvt, m, start="rotating", h=0.1, states=12) for m in methods}


BROKEN = {
    # The structures that are lost, with the power of h of the defect.
    "frame": {"volume in phase space": 2},
    "dla:0.5": dict.fromkeys(
        ("energy", "volume in phase space", "passenger in so(m+1)", "passenger keeps a quadratic form"), 2
    ),
    "dla01": dict.fromkeys(
        ("energy", "volume in phase space", "passenger in so(m+1)", "passenger keeps a quadratic form"), 2
    ),
    "dla:0.4": dict.fromkeys(
        (
            "energy",
            "reversible",
            "volume in phase space",
            "passenger in so(m+1)",
            "passenger keeps a quadratic form",
        ),
        1,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_which_structures_a_method_loses(table: dict, name: str) -> None:
    found, wanted = table[name], BROKEN[name]
    assert set(found.broken) == set(wanted)
    assert not [row for row, x in found.structures.items() if x.verdict is Kept.UNDECIDED]
    for row, power in wanted.items():
        assert found.structures[row].order == pytest.approx(
            power, abs=0.2
        )  # three step sizes, not yet the limit
    assert found.distance.order == pytest.approx(1 if name == "dla:0.4" else 2, abs=0.1)


def test_collocation_stays_in_the_class_too(table: dict) -> None:
    found = table["frame:gauss=2"]
    assert not set(found.broken) - {"volume in phase space"}
    assert {"tangent to D", "energy", "driver undisturbed", "passenger in so(m+1)"} <= set(found.kept)
    assert found.distance.order == pytest.approx(4, abs=0.2)


def test_methods_on_all_velocities(table: dict) -> None:
    """Leap-frog and dd:average keep a definite form, and dd its energy; none is tangent to D, and dd with Gonzalez's
    gradient disturbs the driver."""
    leapfrog, dd, average = table["leapfrog"], table["dd"], table["dd:average"]
    assert "tangent to D" in average.broken
    assert {"energy", "driver undisturbed", "passenger keeps a quadratic form"} <= set(average.kept)
    assert average.form is not None
    assert average.form.definite
    assert {"tangent to D", "energy"} <= set(leapfrog.broken)
    assert {"driver undisturbed", "passenger linear", "passenger keeps a quadratic form"} <= set(
        leapfrog.kept
    )
    assert leapfrog.form is not None
    assert leapfrog.form.definite
    assert "energy" in dd.kept
    assert {"tangent to D", "driver undisturbed", "passenger keeps a quadratic form"} <= set(dd.broken)


@pytest.mark.parametrize(
    "system",
    [
        da.zoo.PendulumCVT(eps=0.5),
        da.zoo.HarmonicCVT(),
        da.zoo.SpringParticle(),
        da.zoo.KnifeEdge(),
        da.zoo.RollingDisk(),
        da.zoo.MobileRobot(),
    ],
    ids=lambda s: s.label,
)
def test_frame_gradient_stays_in_the_class_of_coupled_systems(system: da.System) -> None:
    """With every step size: its field is tangent to D, keeps the energy, and has an undisturbed driver on closed orbits
    and a linear passenger in so(m+1)."""
    start = "rotating" if "rotating" in system.starts() else None
    for h in (0.2, 0.1, 0.05):
        found = da.backward_error(system, da.FrameGradient(), start=start, h=h, states=100)
        wanted = {
            "tangent to D",
            "energy",
            "reversible",
            "driver undisturbed",
            "passenger linear",
            "passenger in so(m+1)",
            "passenger keeps a quadratic form",
        }
        assert wanted <= set(found.kept), str(found)


def _aligned(coupled: da.CoupledSystem, growth, h: float) -> int:
    """About 300,000 steps, after which the modified driver is back at its start."""
    steps = np.arange(299_000, 300_001)
    turns = steps * h / growth.period
    return int(steps[np.argmin(np.abs(turns - np.round(turns)))])


@pytest.mark.parametrize("eps", [0.5, 0.1])
def test_predicted_drift_is_the_drift_of_long_runs(eps: float) -> None:
    system, h = da.zoo.PendulumCVT(eps=eps), 0.1
    coupled, start = da.CoupledSystem.of(system), system.start("rotating")
    for method, allowed in ((da.DLA(0.5), 0.003), (da.DLA01(), 0.003), (da.DLA(0.4), 0.01)):
        growth = predicted_growth(coupled, da.modified_field(system, method, h), *start)
        steps = _aligned(coupled, growth, h)
        measured = passenger_exponents(coupled, method, *start, h=h, steps=steps)
        # Two of the exponents are the real part of a pair; QR takes turns between them, so their mean is the number.
        for said, seen in ((growth.exponents[0], measured[0]), (growth.exponents[1], measured[1:].mean())):
            assert said == pytest.approx(seen, rel=allowed)
        assert growth.error < 1e-3 * abs(growth.exponents[0])
    growth = predicted_growth(coupled, da.modified_field(system, da.FrameGradient(), h), *start)
    assert np.abs(growth.exponents).max() < 1e-9
    assert growth.closure < 1e-9


class Leaving(da.FrameGradient):
    """A broken method: velocities leave D a little more with every step."""

    def output(self, m, state, memory, h):
        v, lam = super().output(m, state, memory, h)
        return v + 1e-3 * h * m.rows(state.q)[0], lam


class Losing(da.FrameGradient):
    """A broken method: every step loses some speed."""

    def step(self, m, state, memory, h):
        state, memory, report = super().step(m, state, memory, h)
        scale = 1 - 1e-4 * h
        return state._replace(v=scale * state.v), memory._replace(w=scale * memory.w), report


class Coupling(da.FrameGradient):
    """A broken method: the passenger pushes the driver."""

    def step(self, m, state, memory, h):
        state, memory, report = super().step(m, state, memory, h)
        v = state.v.at[2].add(1e-4 * h**3 * state.q[0])
        return state._replace(v=v), self.init(m, state._replace(v=v), h), report


@pytest.mark.parametrize(
    ("method", "name"),
    [(Leaving(), "tangent to D"), (Losing(), "energy"), (Coupling(), "driver undisturbed")],
    ids=["leaving", "losing", "coupling"],
)
def test_broken_methods_are_named_for_what_is_broken(cvt: da.System, method: da.Method, name: str) -> None:
    found = da.backward_error(cvt, method, start="rotating", h=0.1, states=16)
    assert name in found.broken
    others = {"tangent to D", "driver undisturbed"} - {name}
    assert not others & set(found.broken)
    assert f"{name}" in str(found)


def test_steps_of_different_sizes() -> None:
    """EDLA: its field, per unit of time, is tangent to D and differs from the exact one by h^2."""
    system = da.zoo.NonholonomicParticle()
    found = da.backward_error(system, da.EDLA(), h=0.05, states=12)
    assert "tangent to D" in found.kept
    assert found.distance.order == pytest.approx(2, abs=0.3)


def test_groups() -> None:
    """On SO(3), where differences of configurations are taken in the algebra."""
    system = da.zoo.Suslov()
    found = da.backward_error(system, da.FrameGradient(), h=0.05, states=12)
    assert {"tangent to D", "energy"} <= set(found.kept)
    assert found.distance.order == pytest.approx(2, abs=0.1)


def test_systems_that_depend_on_time() -> None:
    class Pushed(da.RheonomicSystem):
        """An oscillator with a force that depends on time."""

        coordinates = ("x",)

        def lagrangian(self, t: Array, q: Array, v: Array) -> Array:
            return 0.5 * v[0] ** 2 - 0.5 * q[0] ** 2 + q[0] * jnp.sin(2 * t)

        def constraints(self, t: Array, q: Array) -> Array:
            return jnp.zeros((0, 1))

    f = da.modified_field(Pushed(), da.FrameGradient(), 0.01)
    t = np.array([0.3, 0.9])
    value = f.rows([[0.5], [0.2]], [[0.1], [1.0]], t)
    exact = -np.array([0.5, 0.2]) + np.sin(2 * t)
    assert 1e-7 < np.abs(value.v[:, 0] - exact).max() < 1e-3  # of order h^2, and not zero
    with pytest.raises(ValueError, match="depends on time"):
        da.backward_error(Pushed(), da.FrameGradient(), [0.5], [0.1], h=0.1)


def test_refusals(cvt: da.System) -> None:
    for h, words in (
        (0.0, "positive"),
        (-0.1, "positive"),
        (np.nan, "positive"),
        ([0.1], "one positive number"),
    ):
        with pytest.raises(ValueError, match=words):
            da.modified_field(cvt, da.DLA01(), h)
    with pytest.raises(ValueError, match="expected a method"):
        da.modified_field(cvt, "frame", 0.1)
    car = da.zoo.Car(trailers=1)
    with pytest.raises(ValueError, match="constant mass matrix"):
        da.backward_error(car, da.LeapFrog(), h=0.1)
    value = da.modified_field(car, da.LeapFrog(), 0.1).rows(*(np.asarray(x)[None] for x in car.start()))
    assert np.all(np.isnan(value.v))  # the mass matrix varies, which no description reveals
    assert np.isinf(value.v_error[0])
    f = da.modified_field(cvt, da.DLA01(), 0.1)
    with pytest.raises(ValueError, match="one row per state"):
        f.rows([0.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="does not satisfy the constraints"):
        f.rows([[0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]])
    with pytest.raises(ValueError, match="from 1 to 4"):
        f.expansion([[0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]], count=9)
    start, other = cvt.start("rotating"), da.CoupledSystem.of(da.zoo.SpringParticle())
    with pytest.raises(ValueError, match="expected a field"):
        predicted_growth(cvt, da.DLA01(), *start)
    with pytest.raises(ValueError, match="differ in size"):
        predicted_growth(cvt, da.modified_field(cvt, da.EDLA(), 0.1), *start)
    with pytest.raises(ValueError, match="from the same system"):
        predicted_growth(other, f, *start)
    with pytest.raises(ValueError, match="both q0 and v0"):
        da.backward_error(cvt, da.DLA01(), [0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="at least 4"):
        da.backward_error(cvt, da.DLA01(), states=2)
