"""The audit measures what every method claims: each claim holds, and what is not claimed measurably fails."""

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from equations import coupled as second
from reductions import reduced, start
from systems import make

import dalembert as da
from dalembert.diagnostics import (
    CoupledSystem,
    Kept,
    Verdict,
    compare,
    passenger_exponents,
    step_map,
    volume_along,
)
from dalembert.diagnostics.stepmap import _volume_verdict
from dalembert.methods import method_from_text

SPELLINGS = (
    "dla:0.5",
    "dla:0.4",
    "dla:0",
    "dla:1",
    "dla01",
    "dla01@4",
    "leapfrog",
    "leapfrog:momentum",
    "dd",
    "dd:average",
    "dd:itoh-abe",
    "dd:average@4",
    "frame",
    "frame:gonzalez",
    "frame:itoh-abe",
    "frame:gauss=1",
    "frame:gauss=2",
    "frame:gauss=3",
    "frame@4",
    "frame@6",
    "gni",
    "gni:alpha=0.2",
    "dla-variational",
    "dla-variational:left",
    "dla-variational@4",
)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_claims_are_what_is_measured(spelling):
    """On the rotating CVT with eps = 0.5, which forgives nothing: what is kept is what is claimed, no more, no less.

    DLA^1 explodes at h = 0.1, so its run is of h = 0.02.
    """
    system, q0, v0, h = make("cvt-rot-0.5")
    h = 0.02 if spelling == "dla:1" else h
    found = da.audit(system, method_from_text(spelling), q0, v0, h=h, steps=30_000)
    assert found.claims is not None
    assert found.kept == found.claims
    assert not found.broken_claims
    assert [found.order.q, found.order.v] == pytest.approx([found.claims.order] * 2, abs=0.13)
    assert found.constraint < 1e-14
    assert "BROKEN" not in str(found), "what is not claimed is not broken"
    if found.laws is None:  # those of discrete mechanics have more rows that nobody claims
        assert ("not claimed, off by" in str(found)) == (
            not found.claims.reversible or not found.claims.fibred
        )
    if spelling == "leapfrog":  # Verlet's driver, and a reflection of the passenger
        assert found.volume.verdict == "kept"


@pytest.mark.parametrize("name", ["snakeboard-relative", "massive"])
def test_claims_hold_on_other_systems(name):
    """There a structure may be kept without being claimed (leap-frog's energy without a potential)."""
    system, q0, v0, h = make(name)
    methods = [da.DLA01(), da.LeapFrog("momentum"), da.DiscreteGradient(), da.FrameGradient()]
    for found in da.audit(system, methods, q0, v0, h=h, steps=30_000):
        assert found.broken_claims == [], found.method
        assert (found.fibration is None) == (name in ("snakeboard-relative", "massive"))


@pytest.mark.parametrize("name", ["sleigh-contact", "sleigh-potential"])
def test_metrics_that_depend_on_q(name):
    system, q0, v0, h = make(name)
    found = da.audit(system, da.FrameGradient(), q0, v0, h=h, steps=30_000)
    assert found.broken_claims == []
    assert found.energy is not None
    assert found.energy.verdict is Verdict.EXACT


def along_k(q):
    """The directions left by the constraint of the CVT, orthonormal, written out by hand."""
    k = np.stack([second.problem("rot-0.5").k(x) for x in q[:, 2]])
    made = np.zeros((len(q), 3, 2))
    made[:, :2, 0], made[:, 2, 1] = k, 1.0
    return made


def along_the_blade(q):
    """Those of the sleigh: along the blade, and the turn; the mass matrix in them is constant."""
    made = np.zeros((len(q), 3, 2))
    made[:, 0, 0], made[:, 1, 0], made[:, 2, 1] = np.cos(q[:, 2]), np.sin(q[:, 2]), 1.0
    return made


def rate_by_differences(system, method, h, q0, v0, steps, frame, delta=1e-4):
    """The mean of log |det| over every step of a run, by plain central differences in (q, w), v = frame(q) w."""
    sol = da.simulate(system, method, q0, v0, h=h, steps=steps)
    q, v = np.asarray(sol.q)[:-1], np.asarray(sol.v)[:-1]
    z = np.concatenate([q, np.einsum("kij,kj->ki", np.linalg.pinv(frame(q)), v)], axis=1)
    columns = []
    for unit in np.eye(z.shape[1]):
        ends = []
        for sign in (1, -1):
            near = z + sign * delta * unit
            q1, v1 = step_map(
                system, method, h, near[:, :3], np.einsum("kij,kj->ki", frame(near), near[:, 3:])
            )
            ends.append(np.concatenate([q1, np.einsum("kij,kj->ki", np.linalg.pinv(frame(q1)), v1)], axis=1))
        columns.append((ends[0] - ends[1]) / (2 * delta))
    return float(np.mean(np.linalg.slogdet(np.stack(columns, axis=-1))[1])) / h


@pytest.mark.parametrize(("way", "verdict"), [(1, "contracts"), (-1, "grows")])
def test_volume_is_that_of_the_exponents(way, verdict):
    """DLA^1/2 of the rotating CVT: with the driver the other way round volume grows as much."""
    system, q0, v0, h = make("cvt-rot-0.5")
    v0 = way * v0
    found = da.audit(system, da.DLA(0.5), q0, v0, h=h, steps=30_000).volume
    assert found.error < 0.1 * abs(found.rate), "a standard error that says something"
    assert found.verdict == verdict
    steps = 8_000
    exponents = passenger_exponents(CoupledSystem.of(system, q0), da.DLA(0.5), q0, v0, h, steps)
    by_hand = rate_by_differences(system, da.DLA(0.5), h, q0, v0, steps // 2, along_k)
    # Four standard errors, and a bounded factor of some 4e-3 (a bounded oscillation of the volume) over the time.
    assert abs(found.rate - np.sum(exponents)) < 4 * found.error + 4e-3 / (steps * h)
    assert abs(found.rate - by_hand) < 4 * found.error + 8e-3 / (steps * h)
    # The exact motion keeps volume.
    assert abs(found.limit) < 4 * found.limit_error + 1e-8


def test_volume_of_a_run_saved_now_and_then():
    """Windows are filled with the steps in between: the same states, but for the start of each window."""
    system, q0, v0, h = make("cvt-rot-0.5")
    given = {"h": h, "steps": 6_000}
    one, two = (volume_along(da.simulate(system, da.DLA(0.5), q0, v0, **given, save_every=k)) for k in (1, 3))
    assert one.verdict == two.verdict == "contracts"
    assert abs(one.rate - two.rate) < 4 * np.hypot(one.error, two.error)
    assert two.error < 0.3 * abs(two.rate)


def test_verdicts_on_volume():
    """A rate that is not three errors from zero decides nothing, however large it is."""
    for rate, error, most, wanted in (
        (-1e-3, 2e-4, 1e-3, "contracts"),
        (1e-3, 2e-4, 1e-3, "grows"),
        (-6e-3, 3e-3, 1e-3, "undecided"),
        (0.0, 1e-4, 1e-3, "undecided"),
        (1e-12, 1e-13, 1e-11, "kept"),
        (-1e-3, np.inf, 1e-3, "undecided"),
        (-np.inf, 0.0, np.inf, "singular"),
        (np.nan, np.inf, np.nan, "not measured"),
    ):
        assert _volume_verdict(rate, error, most) == wanted


def test_only_claims_can_be_broken():
    """The same measurement, with and without the claim: in the table, the sentences and what goes into a file."""
    system, q0, v0, h = make("cvt-rot-0.5")
    found = da.audit(system, da.DLA(0.4), q0, v0, h=h, steps=10_000)
    assert "reversibility          not claimed, off by" in str(found)
    assert "BROKEN" not in str(found)
    assert not found.to_dict()["broken_claims"]
    claims = replace(found, claims=found.claims._replace(reversible=True))
    assert "reversibility          BROKEN" in str(claims)
    assert any("reversibility is claimed" in x for x in claims.to_dict()["broken_claims"])
    assert "nothing is broken" not in str(claims)
    silent = replace(found, claims=None)
    assert "reversibility          not claimed, off by" in str(silent)
    # Where it is not defined nothing can be said against a claim of it.
    undefined = replace(claims, reversibility=np.nan)
    assert "not defined" in str(undefined)
    assert not undefined.broken_claims


@pytest.mark.filterwarnings("error")
def test_friction_from_rest():
    """x'' = -x - x'/5: starts near one at rest move, volume contracts at the rate -1/5, nothing divides by zero."""
    system = da.system(
        coordinates=("x",),
        metric=lambda q: jnp.eye(1),
        potential=lambda q: 0.5 * q[0] ** 2,
        forces=lambda q, v: -0.2 * v,
    )
    found = da.audit(system, da.FrameGradient(), [1.0], [0.0], h=0.05, steps=10_000)
    assert found.problems == []
    assert np.isnan(found.reversibility)
    assert "reversibility          not defined" in str(found)
    assert found.terms.kinematics == pytest.approx(1, abs=1e-2)
    assert found.volume.verdict == "contracts"
    assert found.volume.rate == pytest.approx(-0.2, abs=1e-3)  # h^2
    with pytest.raises(ValueError, match="stays at rest"):
        da.audit(system, da.FrameGradient(), [0.0], [0.0], h=0.05, steps=10_000)


@pytest.mark.filterwarnings("error")
def test_reduced_systems():
    """The particle without its z: the reduced method on the reduced system is audited as any other."""
    red = reduced("particle")
    found = da.audit(red, red.method, *red.project(*start("particle")), h=0.1, steps=10_000)
    assert found.broken_claims == []
    assert found.order.q == pytest.approx(2, abs=0.15)
    assert found.reversibility < 1e-11  # its forces are quadratic in the velocity
    flat = reduced("knife edge")
    with pytest.raises(ValueError, match="1 coordinates and 3 velocities; audit the system that"):
        da.audit(flat, flat.method, *flat.project(*start("knife edge")), h=0.1, steps=10_000)


def test_the_sleigh_does_not_keep_volume_and_the_audit_knows():
    """The exact motion of the sleigh contracts towards its straight lines; the method's determinant follows it."""
    system, q0, v0, _ = make("sleigh-contact")
    found = da.audit(system, da.FrameGradient(), q0, v0, h=0.02, steps=10_000)
    assert abs(found.volume.limit) > 1e-2
    assert found.volume.verdict == "contracts"
    by_hand = rate_by_differences(system, da.FrameGradient(), 0.02, q0, v0, 10_000, along_the_blade)
    # It settles in the first hundreds of steps; four standard errors.
    assert abs(found.volume.rate - by_hand) < 4 * found.volume.error
    assert found.volume.error < 0.05 * abs(by_hand)
    # Order two: h^2 = 4e-4 of a rate of size one.
    assert found.volume.rate == pytest.approx(found.volume.limit, rel=1e-2)


def test_integrals_of_the_system_and_of_the_user():
    system, q0, v0, h = make("snakeboard-relative")
    given = {"wrong": lambda q, v: v[0], "sum": lambda q, v: v[3] + v[4]}
    found = da.audit(system, da.FrameGradient(), q0, v0, h=h, steps=30_000, integrals=given)
    for name in ("rotor speed", "steering speed", "sum"):
        assert found.integrals[name].verdict is Verdict.EXACT
    assert found.integrals["wrong"].verdict is not Verdict.EXACT
    assert np.isclose(
        found.integrals["wrong"].largest, np.max(np.abs(_first_velocity(system, q0, v0, h) - v0[0]))
    )


def _first_velocity(system, q0, v0, h):
    return da.simulate(system, da.FrameGradient(), q0, v0, h=h, steps=30_000).v[:, 0]


def test_integrals_of_the_zoo_are_integrals():
    """Along the exact motion they are constant; the differences are those of the solver."""
    for system in (
        da.zoo.Snakeboard(),
        da.zoo.Snakeboard(convention="absolute"),
        da.zoo.NonholonomicParticle(),
    ):
        assert system.integrals()
        sol = da.simulate(system, da.Reference(), *system.start(), h=0.5, steps=40)
        for name, function in system.integrals().items():
            values = np.array([float(function(q, v)) for q, v in zip(sol.q, sol.v, strict=True)])
            assert np.max(np.abs(values - values[0])) < 1e-11, name
    field = da.zoo.NonholonomicParticle(potential=lambda q: jnp.sum(q**2))
    assert field.integrals() == {}


class Bent(da.System):
    """Two oscillators that know nothing of each other; the spring of the first is not symmetric."""

    coordinates = ("x", "y")

    def lagrangian(self, q, v):
        return 0.5 * jnp.sum(v**2) - spring(q[0]) - 0.5 * q[1] ** 2

    def integrals(self):
        return {"first": lambda q, v: 0.5 * v[0] ** 2 + spring(q[0])}


def spring(x):
    return 0.5 * x**2 + x**3 / 6


class Late(da.FrameGradient):
    """Loses energy from t = 50 on, long after all states at which its modified field is measured."""

    def step(self, m, state, memory, h):
        new, memory, report = super().step(m, state, memory, h)
        share = jnp.where(state.t > 50.0, 1 - 1e-3 * h, 1.0)
        return new._replace(v=share * new.v), memory._replace(w=share * memory.w), report


class Coarse(da.FrameGradient):
    """Has no steps below 0.07, so that its field is not known for h/2 and h/4."""

    def step(self, m, state, memory, h):
        new, memory, report = super().step(m, state, memory, h)
        return new, memory, report._replace(converged=report.converged & (jnp.abs(h) > 0.07))


def test_the_modified_field_in_the_audit():
    """It is what backward_error finds from the same start; an audit that was not asked for it has nothing of it."""
    system, q0, v0, h = make("cvt-rot-0.5")
    lines = []
    methods = [da.FrameGradient(), da.LeapFrog()]
    options = {"h": h, "steps": 10_000}
    audits = da.audit(system, methods, q0, v0, **options, backward=True, progress=lines.append)
    assert sum("modified field" in x for x in lines) == 2
    for method, found in zip(methods, audits, strict=True):
        alone = da.backward_error(system, method, q0, v0, h=h)
        assert found.backward.to_dict() == alone.to_dict() == found.to_dict()["backward"]
        json.dumps(found.to_dict(), allow_nan=False)
        rows = dict(found.field_rows())
        for name, x in alone.structures.items():
            assert rows[f"  {name}"].startswith(str(x.verdict))
            assert f"  {name}" in str(found)
        assert not found.remarks
    energy = audits[1].backward.structures["energy"]
    assert dict(audits[1].field_rows())["  energy"] == (
        f"broken, order h^{energy.order:.1f}\n{energy.defect:.1e}({energy.error:.0e})"
    )
    table = {row[0]: row[1:] for row in compare(audits)}
    assert list(table)[-1].startswith("  ")
    assert table["energy"][0].startswith("exact")
    assert table["  energy"][0].startswith("kept")
    assert table["  passenger in so(m+1)"][1] == "-"  # leap-frog's passenger is larger
    without = da.audit(system, da.FrameGradient(), q0, v0, **options)
    assert without.backward is None
    assert not without.field_rows()
    assert without.rows() == audits[0].rows()
    with pytest.raises(ValueError, match="backward must be True or False, got 'yes'"):
        da.audit(system, da.FrameGradient(), q0, v0, backward="yes")


def test_a_run_that_hides_what_the_field_breaks():
    """The first oscillator rests, so that leap-frog keeps its energy; the field changes it at the same place."""
    start, h = ([0.0, 1.0], [0.0, 0.3]), 0.1
    found = da.audit(Bent(), da.LeapFrog(), *start, h=h, steps=10_000, backward=True)
    assert found.integrals["first"].verdict is Verdict.EXACT
    assert found.backward.structures["first"].order == pytest.approx(2, abs=0.1)
    (line,) = found.remarks
    assert line.startswith("first: the long run kept it")
    assert "other starts" in line
    assert line in str(found)
    assert found.to_dict()["remarks"] == [line]
    # By hand: leap-frog follows H + h^2 (v^2 V''/12 - V'^2/24). At x = 0, where the third derivative of V is one, this
    # changes the energy by -h^2 v^3/12.
    v = np.array([0.7, 0.0])
    _, dv = da.modified_field(Bent(), da.LeapFrog(), h)(np.zeros(2), v)
    # What follows is smaller by h^2.
    assert float(v[0] * dv[0]) == pytest.approx(-(h**2) * v[0] ** 3 / 12, rel=3 * h**2)


def test_a_run_that_loses_what_the_field_keeps():
    found = da.audit(Bent(), Late(), [0.3, 1.0], [0.0, 0.3], h=0.1, steps=10_000, backward=True)
    assert found.integrals["energy"].verdict is Verdict.DRIFT
    assert found.backward.structures["energy"].verdict is Kept.KEPT
    assert [x.partition(":")[0] for x in found.remarks] == ["energy", "first"]
    assert "drifts and reaches" in found.remarks[0]
    right = da.audit(Bent(), da.FrameGradient(), [0.3, 1.0], [0.0, 0.3], h=0.1, steps=10_000, backward=True)
    assert not right.remarks


def test_an_audit_goes_on_without_the_modified_field():
    methods = [Coarse(), da.FrameGradient()]
    first, second = da.audit(Bent(), methods, [0.3, 1.0], [0.0, 0.3], h=0.1, steps=10_000, backward=True)
    assert first.backward is None
    assert first.integrals["energy"].verdict is Verdict.EXACT
    (line,) = first.remarks
    assert line.startswith("the modified field was not measured: ")
    assert "known at 0 of 32 states" in line
    assert first.to_dict()["backward"] is None
    assert second.backward is not None
    assert {x[0]: x[1:] for x in compare([first, second])}["modified field"] == [
        "not measured",
        "32 states",
    ]
