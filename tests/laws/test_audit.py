"""The audit measures what every method claims: each claim holds, and what is not claimed measurably fails."""

import jax.numpy as jnp
import numpy as np
import pytest
from systems import make

import dalembert as da
from dalembert.diagnostics import Verdict
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


def test_the_sleigh_does_not_keep_volume_and_the_audit_knows():
    """The exact motion of the sleigh contracts towards its straight lines; the method's determinant follows it."""
    system, q0, v0, _ = make("sleigh-contact")
    found = da.audit(system, da.FrameGradient(), q0, v0, h=0.02, steps=10_000)
    assert abs(found.volume.limit) > 1e-2
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
