"""Time, affine constraints and steps of variable size: bad input is refused before anything runs; ensembles, files
and derivatives agree with single runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.diagnostics.variable_steps import variable_step_laws as laws
from dalembert.discrete import (
    AlphaRule,
    CustomConstraint,
    CustomLagrangian,
    Gauss,
    PointConstraint,
    Trapezoidal,
)
from dalembert.methods.cli_names import method_from_text

Particle, Well = da.zoo.NonholonomicParticle, da.zoo.TravellingWell
PARTICLE, WELL, SHAKEN, BALL = Particle(), Well(), da.zoo.RheonomicParticle(), da.zoo.BallOnTurntable()
Q, V = [1.0, 0.6, 0.5], [1.0, 0.5, 0.6]
METHODS = [da.FrameGradient(), da.VariationalDLA(), da.EDLA()]


def made(**functions):
    given = {"coordinates": ("x", "y", "z"), "metric": lambda t, q: jnp.eye(3), "rheonomic": True}
    given["constraints"] = lambda t, q: jnp.array([[0.0, 0.0, 1.0]])
    return da.system(**{name: x for name, x in (given | functions).items() if x is not None})


def own(base, fields=(), **members):
    """A system of a subclass; `fields` are annotated."""
    return type("Own", (base,), {"__annotations__": dict.fromkeys(fields, float), **members})()


def run(system=PARTICLE, method=METHODS[0], q0=Q, v0=V, h=0.1, steps=3, **options):
    return da.simulate(system, method, q0, v0, h=h, steps=steps, **options)


def from_start(system, method, **options):
    return run(system, method, *system.start(), **options)


def refused(message, call):
    with pytest.raises(ValueError, match=message):
        call()


NO_DRIFT = lambda t, q: jnp.zeros(3)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"metric": lambda t, q: jnp.eye(2)}, r"metric must return a matrix of shape \(3, 3\), got.*\(2, 2\)"),
        ({"potential": lambda t, q: q}, r"potential must return a number.*got shape \(3,\)"),
        ({"constraints": lambda t, q: q}, r"constraints must return shape \(m, 3\).*as a row"),
        ({"constraints": None, "frame": lambda t, q: jnp.eye(2)}, r"frame must return shape \(3, r\)"),
        ({"forces": lambda t, q, v: v[:2]}, r"forces must return shape \(3,\), got shape \(2,\)"),
        ({"offsets": lambda t, q: jnp.zeros(2)}, r"offsets must return one number for each.*got shape \(2,\)"),
        ({"offsets": lambda t, q: jnp.cos(t)}, r"offsets must return one number for each.*got shape \(\)"),
        ({"offsets": lambda t, q: jnp.array([1])}, "offsets must return real floating-point.*write 1.0, not 1"),
        ({"drift": lambda t, q: jnp.zeros(1)}, r"drift must return shape \(3,\), a velocity, got shape \(1,\)"),
        ({"constraints": None, "offsets": lambda t, q: q[:1]}, "offsets.*without constraints.*give drift"),
        ({"constraints": None, "drift": NO_DRIFT}, "drift without constraints or a frame"),
        ({"offsets": lambda t, q: q[:1], "drift": lambda t, q: q}, "offsets and drift contradict.*A Z - b should"),
        ({"offsets": lambda t, q: jnp.log(-1 - t * t)[None]}, "is NaN or infinite at the start"),
        ({"drift": lambda t, q: q / 0}, "is NaN or infinite at the start"),
        ({"offsets": lambda t, q: q[:1], "drift": lambda t, q: q / 0}, "NaN"),
        ({"offsets": lambda t, q: q[:1], "drift": NO_DRIFT}, "contradict.*is [0-9.]+ "),
        ({"offsets": lambda t, q: t[None], "drift": NO_DRIFT}, "contradict each other"),
        ({"metric": None, "lagrangian": lambda t, q, v: v @ v / 2 + t * v @ q}, "quadratic"),
        ({"potential": lambda t, q: t * q[0] ** 2, "angles": ("x",)}, "declared an angle"),
        ({"metric": None}, r"metric\(t, q\)"),
        ({"rheonomic": "yes"}, "rheonomic must be True or False"),
    ],
)  # fmt: skip
def test_functions_of_time(functions, message):
    refused(message, lambda: run(made(**functions), q0=[0.0, 0.6, 0.5], v0=[0.0, 0.0, 0.0]))


@pytest.mark.parametrize("name", ["metric", "potential", "constraints", "offsets", "drift", "forces"])
def test_a_forgotten_time_is_told_with_the_function(name):
    given = {"forces": lambda q, v: v}.get(name, lambda q: jnp.zeros(3))
    with pytest.raises(
        ValueError, match=rf"System.{name} must take \(t, q.*functions of a rheonomic system have t first"
    ):
        run(made(**{name: given}))


FIELD = "is a function of a system, but the class has a field of that name; rename the field"
GROUPS, ACROSS = "affine constraints are not supported on groups", jnp.eye(4)[:, :1] + jnp.eye(4)[:, 1:2]


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (own(Well, generators=lambda s, t, q: jnp.zeros((3, 1))), r"shape \(4, k\).*its change of time first"),
        (own(Well, sections=lambda s: {"a": lambda t, q: q}), r"'a' must return shape \(1,\), one number per gen"),
        (own(Well, generators=lambda s, t, q: ACROSS), "section 'with the well' leaves the constraint"),
        (own(Well, sections=lambda s: {"a": 3}), "'a' must be a function"),
        (own(Well, ["drift"], drift=0.1), f"drift {FIELD}"),
        (own(Particle, ["offsets"], offsets=0.1), f"offsets {FIELD}"),
        *((own(Well, [x], **{x: 0.1}), f"{x} {FIELD}") for x in ("generators", "sections")),
        *((own(da.zoo.Suslov, **{x: lambda s, g: jnp.ones(1)}), GROUPS) for x in ("offsets", "drift")),
    ],
)  # fmt: skip
def test_classes(system, message):
    refused(message, lambda: run(system))


def pair(system, method, q0, v0, **options):
    return da.ensemble(system, method, np.array([q0, q0]), np.array(v0), **{"h": 0.1, "steps": 1} | options)


@pytest.mark.parametrize(("system", "t0"), [(SHAKEN, 0.0), (SHAKEN, 1.0), (BALL, 0.0)])
def test_the_nearest_velocity_is_one_to_start_with(system, t0):
    q, v = map(np.asarray, system.start())
    v = v + (0.1 if t0 == 0 else 0.0)  # right at t = 0, wrong at t0 = 1
    with pytest.raises(ValueError, match=r"violates.*expected \[.*nearest allowed velocity is") as caught:
        run(system, q0=q, v0=v, t0=t0)
    nearest = [float(x) for x in str(caught.value).split("velocity is [")[1].strip("]").split(",")]
    assert run(system, q0=q, v0=nearest, t0=t0).status is da.Status.OK
    refused("violates the constraint.*2 members", lambda: pair(system, METHODS[0], q, v, t0=t0))


INSTEAD = r"Use FrameGradient\(\), VariationalDLA\(\), GNI\(\), EDLA\(\) or Reference\(\)"


@pytest.mark.parametrize(
    "method", [da.DLA(), da.DLA01(), da.LeapFrog(), da.DiscreteGradient(), da.Composition(da.DLA01(), 4)]
)
def test_methods_refuse_time_and_affine_constraints(method):
    refused(f"do not depend on time, but TravellingWell does. {INSTEAD}", lambda: from_start(WELL, method))
    refused(rf"A\(q\) v = 0, but those of Ball.*affine.*{INSTEAD}", lambda: from_start(BALL, method))


def fall(**options):
    """A particle in V = y^2/2, whose steps end at t = 1.87."""
    system = Particle(lambda q: 0.5 * q[1] ** 2)
    return run(system, da.EDLA(**options), h=0.05, steps=60, throw=False)


posed = lambda system=PARTICLE, q=Q, v=V, **given: lambda: da.edla_well_posedness(system, q, v, **given)
read = lambda text: lambda: method_from_text(text)
LEFT = lambda system, q0, q1, h: q0  # of the wrong shape too
LAWS = "laws of EDLA: give a run by it with save_every=1"
POSED = "must be a (positive time|whole number)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_start(WELL, da.LieGNI()), r"defined on Lie groups.*Use GNI\(\)"),
        (lambda: da.EDLA(3), r"EDLA needs a discrete Lagrangian such as Midpoint\(\).*got 3"),
        (lambda: da.EDLA(discrete_constraint=0.5), r"EDLA needs a discrete constraint such as.*got 0.5"),
        (lambda: da.EDLA(continuation="yes"), "EDLA: continuation must be True or False, got 'yes'"),
        (lambda: da.EDLA(pin=1), "EDLA: pin must be True or False, got 1"),
        (posed(h=-1.0), "h must be a positive step size"),
        (posed(h=0.1, reach=0.5), "reach must be a number greater than 1"),
        (lambda: da.EDLA(Gauss(), PointConstraint(0.0)), r"needs.*symmetric.*left is not"),
        (lambda: run(WELL, da.EDLA(CustomLagrangian(LEFT, 2, True))), r"own must return a number.*got shape \(4,\)"),
        (lambda: run(WELL, da.EDLA(Gauss(), CustomConstraint(LEFT, True))), r"own-constraint must return shape \(1,\)"),
        (lambda: run(own(Well, forces=lambda s, t, q, v: -v), da.EDLA()), r"without non-.*Use FrameGradient\(\)"),
        (lambda: da.Composition(da.EDLA()), "EDLA cannot be composed: the sizes of its steps are its own"),
        (lambda: run(method=da.Composition(da.EDLA(), 4, True)), "sizes of its steps"),
        *((lambda h=h: run(method=da.EDLA(), h=h), "h must be") for h in (0.0, -0.1, np.nan, np.inf, [0.1, 0.2])),
        (lambda: pair(SHAKEN, da.EDLA(), Q, V), r"A\(q0\) v0 = b"),
        *((posed(method=m), "G is defined for EDLA, got") for m in (da.GNI(), "edla")),
        *((posed(ahead=x), POSED) for x in (0, -1.0, np.nan)),
        *((posed(points=x), POSED) for x in (1, 2.5, None, True)),
        *((posed(ahead=x), "ahead must be") for x in ("long", None, np.inf)),
        *((posed(x), "expected a") for x in ("particle", Particle)),
        (posed(SHAKEN, *SHAKEN.start(), t0=1.0), "violates the constraint"),
        (lambda: laws(run()), LAWS),
        (lambda: laws(run(method=da.EDLA(), steps=10, save_every=2)), LAWS),
        (lambda: laws(run(method=da.EDLA(), steps=2)), "what EDLA keeps needs a run of 4 rows or more"),
        (lambda: laws(pair(PARTICLE, da.EDLA(), Q, V, steps=4)), r"ensemble; take sol.member\(i\)"),
        (lambda: laws(fall(continuation=True)), "has steps that miss the energy"),
        (lambda: laws(None), "what EDLA keeps is measured along a run.*got None"),
        (lambda: laws(run(method=da.EDLA(), steps=9), rows=0), "rows must be"),
        (lambda: run().plot.steps(), r"the steps of frame are equal, h = 0.1; those of EDLA\(\) differ"),
        (read("edla:foo"), "edla has no option 'foo'; choose from: midpoint.*unpinned"),
        (read("edla:left,point=0.3"), "edla has no option 'left'"),
        (read("edla:midpoint,gauss=2"), "says its discrete lagrangian twice; keep one"),
        (read("edla:continuation=1"), "continuation takes no value, got 'continuation=1'"),
        (read("edla@4"), "EDLA cannot be composed"),
    ],
)  # fmt: skip
def test_steps_of_variable_size(call, message):
    refused(message, call)


@pytest.mark.parametrize(
    "method",
    [
        *(da.EDLA(x) for x in (Trapezoidal(), AlphaRule(0.3), AlphaRule(1 / 3), Gauss(2))),
        *(da.EDLA(continuation=x, pin=not x) for x in (True, False)),
        da.EDLA(Gauss(3), continuation=True, pin=False),
        da.EDLA(AlphaRule(1)),
    ],
)
def test_spelling_round_trip(method):
    assert method_from_text(method.cli_name).cli_name == method.cli_name


def test_a_step_is_at_most_ten_times_the_last():
    h = run(Particle(lambda q: 0.5 * q[1] ** 2), da.EDLA(), steps=30, throw=False).step_data["h"]
    assert np.max(h[1:] / h[:-1]) <= 10


def test_systems_from_functions_are_those_of_classes():
    functions = {
        "potential": lambda t, q, p: 0.5 * p["k"] * (q[0] ** 2 + q[1] ** 2),
        "constraints": lambda t, q, p: jnp.array([[-(1 + p["beat"] * jnp.sin(t)) * q[1], 0.0, 1.0]]),
        "offsets": lambda t, q, p: jnp.array([p["shake"] * jnp.cos(t)]),
    }
    shaken, p = da.zoo.RheonomicParticle(beat=0.2), {"k": 1.0, "shake": 0.3, "beat": 0.2}
    plain = made(**{name: lambda t, q, f=f: f(t, q, p) for name, f in functions.items()})
    for method in (da.FrameGradient(), da.EDLA()):
        known = from_start(shaken, method, steps=20)
        for system in (plain, made(**functions, metric=lambda t, q, p: jnp.eye(3), parameters=p)):
            again = run(system, method, *shaken.start(), steps=20)
            np.testing.assert_array_equal(again.q, known.q)
            np.testing.assert_array_equal(again.t, known.t)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.cli_name)
def test_members_are_single_runs(method):
    sizes = np.array([0.05, 0.1])
    many = pair(SHAKEN, method, *SHAKEN.start(), h=sizes, steps=15)
    assert many.t.shape == (2, 16)  # (N, K)
    for i in range(2):
        one = from_start(SHAKEN, method, h=sizes[i], steps=15)
        for name in ("t", "q", "v"):
            # Step sizes of EDLA carry eps E/(2 h^2 G), 1e-13 here, each step.
            np.testing.assert_allclose(getattr(many, name)[i], getattr(one, name), atol=1e-12)
            np.testing.assert_array_equal(getattr(many.member(i), name), getattr(many, name)[i])


def test_a_member_that_fails_keeps_its_last_state_and_the_others_go_on():
    one, starts = fall(), ([Q, [1.0, 0.06, 0.5]], [V, [1.0, 0.5, 0.06]])
    many = da.ensemble(one.system, one.method, *starts, h=0.05, steps=60)
    assert many.status.tolist() == [da.Status.NO_ROOT, da.Status.OK]
    assert many.steps.tolist() == [int(one.steps), 60]
    last = np.minimum(np.arange(61), int(one.steps))
    np.testing.assert_allclose(many.q[0], one.q[last], atol=1e-9)  # G is small near the end, see above
    np.testing.assert_array_equal(many.q[0, last], many.q[0])
    np.testing.assert_array_equal(many.t[0, last], many.t[0])


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_files_bring_back_times_and_what_was_told(suffix, tmp_path):
    for system in (SHAKEN, BALL):
        sol = from_start(system, da.EDLA(), steps=10)
        sol.save(tmp_path / f"run{suffix}", overwrite=True)
        back = da.load(tmp_path / f"run{suffix}")
        assert system is BALL or np.ptp(np.diff(back.t)) > 1e-3
        assert set(back.step_data) == {"h", "S", "G", "E_plus", "p_plus", "continued"}
        assert eqx.tree_equal((back.step_data, back.method), (sol.step_data, sol.method))
        for x, y in ((back.t, sol.t), (back.q, sol.q), (back.moving_energy(), sol.moving_energy())):
            np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(sol.to_xarray()["moving_energy"], sol.moving_energy())


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.cli_name)
def test_derivatives(method):
    """With central differences over 1e-5: their own error is 1e-10, rounding of runs (1e-13 for EDLA) makes 1e-8."""

    def last(x):
        shake, h, q0 = x[0], x[1], x[2:]
        v0 = jnp.array(V) + jnp.array([0.0, 0.0, 1.0]) * (q0[1] - Q[1] + shake)
        sol = da.simulate(da.zoo.RheonomicParticle(shake=shake), method, q0, v0, h=h, steps=10)
        return jnp.sum(sol.q[-1] ** 2) + sol.v[-1, 0] + sol.t[-1]

    x = jnp.array([0.3, 0.1, *Q])
    found = jax.grad(last)(x)
    np.testing.assert_allclose(jax.jit(jax.grad(last))(x), found, rtol=1e-12)
    differences = [(float(last(x + d)) - float(last(x - d))) / 2e-5 for d in 1e-5 * np.eye(5)]
    np.testing.assert_allclose(found, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", [*METHODS[:2], da.Reference()], ids=lambda m: m.cli_name)
def test_a_run_from_later_is_the_end_of_a_run(method):
    whole = from_start(WELL, method, h=0.05, steps=40)
    tail = run(WELL, method, whole.q[20], whole.v[20], h=0.05, steps=20, t0=1.0)
    for name in ("t", "q", "v"):
        # Rounding of twenty steps; the adaptive one chooses its inner steps anew.
        np.testing.assert_allclose(getattr(tail, name), getattr(whole, name)[20:], atol=1e-12)
