"""Every public measurement gives an answer or one clear sentence, whatever run or rows it is given."""

import inspect
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert import diagnostics as d

pytestmark = pytest.mark.filterwarnings("error")

CVT = da.zoo.PendulumCVT(eps=0.5)
FREE = da.system(
    coordinates=("x", "y"), metric=lambda q: jnp.eye(2), potential=lambda q: 0.5 * jnp.sum(q**2), name="Free"
)

LIFT = da.system(
    coordinates=("x", "y", "z"),
    metric=lambda q: jnp.eye(3),
    potential=lambda q: 0.5 * (q[0] ** 2 + q[1] ** 2),
    constraints=lambda q: jnp.array([[-q[1], 0.0, 1.0]]),
    offsets=lambda q: jnp.array([0.3]),
    name="Lift",
)


def cut(sol, rows):
    """The first rows of a run."""
    arrays = ("t", "q", "v", "v_full", *(("near",) if sol.near is not None else ()))
    small = {name: getattr(sol, name)[:rows] for name in arrays}
    told = {name: x[:rows] for name, x in sol.step_data.items()}
    names = (*small, "step_data")
    return eqx.tree_at(lambda s: tuple(getattr(s, n) for n in names), sol, (*small.values(), told))


@cache
def run(kind):
    """A run of each kind."""
    q0, v0 = (np.asarray(x) for x in CVT.start("rotating"))
    if kind == "run":
        return da.simulate(CVT, da.FrameGradient(), q0, v0, h=0.1, steps=300)
    if kind == "ensemble":
        return da.ensemble(CVT, da.FrameGradient(), np.stack([q0, q0]), np.stack([v0, v0]), h=0.1, steps=300)
    if kind == "without its system":
        return eqx.tree_at(lambda s: s.system, run("run"), None)
    if kind.endswith("rows"):
        return cut(run("run"), int(kind[0]))
    if kind == "not finite":
        return eqx.tree_at(
            lambda s: s.q, run("run"), np.where(np.arange(301)[:, None] > 200, np.nan, run("run").q)
        )
    if kind == "ended early":  # one step of a run that was to have 300: its rows are finite and few
        return cut(run("run"), 12)
    if kind == "on a group":
        group = da.zoo.Heisenberg()
        return da.simulate(group, da.LieGNI(), *group.start(), h=0.1, steps=210)
    if kind == "affine":
        return da.simulate(LIFT, da.FrameGradient(), [1.0, 0.6, 0.5], [1.0, 0.5, 0.9], h=0.1, steps=300)
    if kind == "timed":
        particle = da.zoo.RheonomicParticle()
        return da.simulate(particle, da.FrameGradient(), *particle.start(), h=0.1, steps=300)
    if kind == "no constraints":
        return da.simulate(FREE, da.FrameGradient(), [1.0, 0.0], [0.0, 0.5], h=0.1, steps=300)
    if kind == "no run":
        return "a run"
    raise KeyError(kind)


@cache
def hidden():
    return d.Latitude.of(CVT, *CVT.start("rotating"))


ALONG = {
    "energy_balance": d.energy_balance,
    "normal_velocity": d.normal_velocity,
    "parasitic_levels": d.parasitic_levels,
    "parasitic_mode": d.parasitic_mode,
    "variable_step_laws": d.variable_step_laws,
    "volume_along": d.volume_along,
    "latitude": lambda sol: hidden().along(sol),
}
ALL = dict.fromkeys(ALONG)
FEW = {"parasitic_levels": "200 steps", "parasitic_mode": "200 steps"}
EDLA = {"variable_step_laws": "laws of EDLA"}
# What is said about each kind of run: None where there is an answer.
EXPECTED = {
    "run": ALL | EDLA,
    "ensemble": dict.fromkeys(ALL, r"an ensemble; take sol.member\(i\)"),
    "without its system": dict.fromkeys(ALL, "loaded without"),
    "0 rows": dict.fromkeys(ALL, "needs a run of . rows? or more"),
    "1 rows": ALL
    | FEW
    | EDLA
    | dict.fromkeys(("energy_balance", "volume_along"), "needs a run of 2 rows or more"),
    "2 rows": ALL | FEW | EDLA,
    "not finite": dict.fromkeys(ALL, "rows are finite"),
    "ended early": ALL | FEW | EDLA,
    "on a group": ALL | EDLA | {"energy_balance": "by FrameGradient", "latitude": "with the coordinates"},
    "affine": ALL | EDLA | {"latitude": "with the coordinates"},
    "timed": ALL | EDLA | {"volume_along": "depends on time", "latitude": "with the coordinates"},
    "no constraints": ALL
    | EDLA
    | {
        "parasitic_levels": "no constraints",
        "parasitic_mode": "no constraints",
        "latitude": "with the coordinates",
    },
    "no run": dict.fromkeys(ALL, "measured along a run"),
}


def numbers(found):
    """Everything in an answer that is a number."""
    return np.concatenate(
        [np.ravel(np.asarray(x, float)) for x in jax.tree.leaves(found) if not isinstance(x, str)]
    )


@pytest.mark.parametrize("kind", EXPECTED)
def test_runs(kind):
    for name, words in EXPECTED[kind].items():
        if words is None:
            found = ALONG[name](run(kind))
            # The rate of a mode that is not there, and the error of a mean of one, are the exceptions documented.
            bad = ~np.isfinite(numbers(found))
            assert not bad.any() or name in ("parasitic_mode", "volume_along"), (name, found)
        else:
            with pytest.raises(ValueError, match=words) as told:
                ALONG[name](run(kind))
            assert len(str(told.value)) > 40, "a sentence"


GOOD = (np.zeros((2, 3)), np.zeros((2, 3)))
ROWS = {
    "0 rows": (np.zeros((0, 3)), np.zeros((0, 3))),
    "one state": (np.zeros(3), np.zeros(3)),
    "members": (np.zeros((2, 2, 3)), np.zeros((2, 2, 3))),
    "another system's": (np.zeros((2, 5)), np.zeros((2, 5))),
    "different lengths": (np.zeros((2, 3)), np.zeros((1, 3))),
}
AT_ROWS = {
    "step_map": lambda q, u: d.step_map(CVT, da.FrameGradient(), 0.1, q, u),
    "step_jacobian": lambda q, u: d.step_jacobian(CVT, da.FrameGradient(), 0.1, q, u),
    "reversibility_defect": lambda q, u: d.reversibility_defect(CVT, da.FrameGradient(), 0.1, q, u),
    "fibration_defects": lambda q, u: d.fibration_defects(hidden().coupled, da.FrameGradient(), 0.1, q, u),
    "volume_change": lambda q, u: d.volume_change(CVT, da.FrameGradient(), 0.1, q, u),
    "flight_energy": lambda q, u: d.flight_energy(CVT, da.GNI(), 0.1, q, u),
    "phase_determinant": lambda q, u: d.phase_determinant(CVT, da.GNI(), 0.1, q, u),
    "symplectic_defect": lambda q, u: d.symplectic_defect(CVT, da.GNI(), 0.1, q, u),
    "discrete_laws": lambda q, u: d.discrete_laws(CVT, da.GNI(), 0.1, q, u),
    "measured_terms": lambda q, u: d.measured_terms(CVT, da.FrameGradient(), q, u, 0.1),
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", AT_ROWS)
def test_rows(name, kind):
    with pytest.raises(ValueError, match="one row per state"):
        AT_ROWS[name](*ROWS[kind])


T = np.arange(100.0)
TIMED, GROUP = da.zoo.RheonomicParticle(), da.zoo.Suslov()
SENTENCES = {
    "step_map, timed": (lambda: d.step_map(TIMED, da.FrameGradient(), 0.1, *GOOD), "depends on time"),
    "space_momentum_change": (lambda: d.space_momentum_change(CVT, da.GNI(), 0.1, *GOOD), "Lie groups"),
    "momentum_residuals": (lambda: d.momentum_residuals(CVT, da.DLA(), 0.1, *GOOD), "law of GNI"),
    "phase_determinant": (lambda: d.phase_determinant(CVT, da.DLA(), 0.1, *GOOD), "law of GNI"),
    "drift of members": (lambda: d.drift(T, np.zeros((2, 100)), 3), "judged_together"),
    "drift, 0 rows": (lambda: d.drift([], [], 3), "no values"),
    "drift, 1 row": (lambda: d.drift([0.0], [1.0], 3), "shorter than the window"),
    "running_mean, 2 rows": (lambda: d.running_mean(T[:2], T[:2], 3), "shorter than the window"),
    "slope, other lengths": (lambda: d.slope(T, T[:-1]), "same length"),
    "slope, 2 rows": (lambda: d.slope(T[:2], T[:2]), "40 points"),
    "judged_together, one series": (lambda: d.judged_together(T, T, 3, 1), r"rows of x \(N, K\)"),
    "judged_together, 0 rows": (lambda: d.judged_together([], np.zeros((3, 0)), 3, 1), "at least 1"),
    "fitted_order": (lambda: d.fitted_order([0.1, 0.2], [1.0]), "same length"),
    "fitted_order, h = 0": (lambda: d.fitted_order([0.0, 0.2], [1.0, 1.0]), "positive"),
    "measured_period of members": (lambda: d.measured_period(T, np.zeros((2, 100)), 0, False), "same length"),
    "measured_period, 0 rows": (lambda: d.measured_period([], [], 0, False), "in these 0 rows"),
    "resonance": (lambda: d.resonance(np.nan, 1.0, 0.1), "must be positive"),
    "exact_ends": (lambda: d.exact_ends(CVT, *GOOD, 1.0), "has the shapes"),
    "exact_ends, no time": (lambda: d.exact_ends(CVT, *CVT.start("rotating"), 0.0), "time must be positive"),
    "orbit on a group": (lambda: d.orbit(GROUP, 0.0, 1.0), "lives on SO"),
    "section, timed": (lambda: d.section(TIMED, *TIMED.start()), "depends on time"),
    "section of rows": (lambda: d.section(CVT, *GOOD), "has q and v of shape"),
    "averaging": (lambda: d.averaging(da.zoo.Snakeboard(), 0.0, 1.0), "3 degrees of freedom"),
    "structure, timed": (lambda: d.structure(TIMED, *TIMED.start()), "depends on time"),
    "group_name on a group": (lambda: d.group_name(GROUP), "lives on SO"),
    "latitude, timed": (lambda: d.latitude(TIMED, *TIMED.start()), "depends on time"),
    "latitude on a group": (lambda: d.latitude(GROUP, *GROUP.start()), "lives on SO"),
    "passenger_exponents, 0 steps": (
        lambda: d.passenger_exponents(hidden().coupled, da.DLA(), *CVT.start("rotating"), 0.1, 0),
        "steps must be a whole number",
    ),
    "passenger_matrices": (
        lambda: d.passenger_matrices(hidden().coupled, da.DLA(), 0.1, [], []),
        "two rows of the same length, one or more",
    ),
    "momentum_map, timed": (
        lambda: da.discrete.momentum_map(da.discrete.Midpoint(), TIMED, *np.zeros((2, 3)), 0.1),
        r"give RheonomicParticle.at\(t0\)",
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences(name):
    call, words = SENTENCES[name]
    with pytest.raises(ValueError, match=words):
        call()


def test_one_value_is_too_short():
    found = d.judged_together([1.0], np.ones((3, 1)), 1.0, 1.0)
    assert {d.series.VERDICTS[int(k)] for k in found["verdict"]} == {d.Verdict.SHORT}


def test_the_discrete_momentum_of_a_rheonomic_system():
    """<(D3, D4) L_d, xi_Q>, by differences of L_d(t0, q0, t1, q1) = h L(t0 + h/2, (q0+q1)/2, (q1-q0)/h)."""
    well = da.zoo.TravellingWell()
    t0, h, q0 = 0.3, 0.1, np.array([0.2, -0.4, 0.1])
    q1 = q0 + h * np.array([0.5, 0.3, -0.2])
    lagrangian = jax.jit(well.lagrangian)

    def value(z):
        length = z[0] - t0
        return float(length * lagrangian(t0 + length / 2, (q0 + z[1:]) / 2, (z[1:] - q0) / length))

    z1 = np.concatenate([[t0 + h], q1])
    slots = [(value(z1 + 1e-5 * e) - value(z1 - 1e-5 * e)) / 2e-5 for e in np.eye(4)]
    wanted = np.asarray(well.generators(t0 + h, q1)).T @ slots
    found = da.discrete.momentum_map(da.discrete.Midpoint(), well.at(t0), q0, q1, h)
    assert np.asarray(found) == pytest.approx(wanted, abs=1e-8)  # differences of 1e-5: 1e-10, and rounding
    assert np.max(np.abs(wanted)) > 0.1


def test_every_public_function_is_looked_at():
    """A measurement that is new must be added to a table here, or to those that have tests of their own inputs."""
    elsewhere = {  # where their inputs are tested
        "action_angle": "test_action_angle",
        "audit": "test_audit",
        "backward_error": "test_backward_error",
        "energy_roots": "test_variable_steps",
        "modified_field": "test_backward_error",
        "predicted_growth": "test_backward_error",
        "compare": "test_cli_audit",
        "edla_well_posedness": "test_bad_time",
        "least_defect": "test_structure",
        "lie_algebra": "test_structure",
        "measured_order": "test_audit",
        "nondegeneracy": "test_action_angle",
        "nonholonomy": "test_structure",
        "periodic_averaging": "test_periodic",
        "rebase": "test_structure",
        "reversibility": "test_structure",
        "reversible_integrability": "test_action_angle",
        "averaging_symmetry_defect": "test_structure",
        "group_dimension": "by group_name",
        "start": "test_equations_of_motion",
        "acceleration": "test_equations_of_motion",
        "linearise": "test_equations_of_motion",
    }
    here = {x.split(",")[0].split(" ")[0] for x in (*ALONG, *AT_ROWS, *SENTENCES)} | set(elsewhere)
    functions = {x for x in d.__all__ if inspect.isfunction(getattr(d, x))}
    assert functions - here == set()
