"""Methods that are broken on purpose: the audit says what is broken."""

import jax.numpy as jnp
import pytest

import dalembert as da
from dalembert.diagnostics import Verdict
from dalembert.methods import Claims, Report, State
from dalembert.model import acceleration, project
from dalembert.numerics import solve_spd

SYSTEM = da.zoo.PendulumCVT(eps=0.5)


class Euler(da.Method):
    """Explicit Euler for the index-reduced equations."""

    def step(self, system, state, memory, h):
        v1 = state.v + h * acceleration(system, state.q, state.v)[0]
        return State(state.q + h * state.v, v1), memory, Report.explicit()


class Forgetful(da.LeapFrog):
    """Leap-frog that forgets its multiplier: every step begins with lam = 0."""

    def step(self, system, state, memory, h):
        return super().step(system, state, self.init(system, state, h), h)


class Projected(da.Method):
    """Kick, project, drift, project; `sign` is that of the potential's force, `turn` that of the drift."""

    sign: float = 1.0
    turn: float = 1.0

    def step(self, system, state, memory, h):
        kick = h * solve_spd(system.metric(state.q), system.potential_gradient(state.q))
        v = project(system, state.q, state.v - self.sign * kick)
        q = state.q + self.turn * h * v
        return State(q, project(system, q, v)), memory, Report.explicit()

    def claims(self, system):
        return Claims(order=1, energy=False, reversible=False, on_constraint=True, fibred=True)


class Unturned(da.Method):
    """A second-order step that leaves out the terms quadratic in the velocity."""

    def step(self, system, state, memory, h):
        def pull(q):
            return project(system, q, -solve_spd(system.metric(q), system.potential_gradient(q)))

        half = state.v + 0.5 * h * pull(state.q)
        q = state.q + h * half
        return State(q, half + 0.5 * h * pull(q)), memory, Report.explicit()


def audit(method, **options):
    return da.audit(SYSTEM, method, start="rotating", steps=30_000, **options)


def said(found, *words):
    text = " | ".join(found.problems)
    for word in words:
        assert word in text, (word, text)
    return text


def test_explicit_euler():
    found = audit(Euler())
    assert found.claims is None
    assert found.order.q == pytest.approx(1, abs=0.1)
    text = said(found, "leaves the constraint", "drift:", "passenger energy", "driver energy")
    assert "factor" not in text, "its equations are the right ones"
    assert found.integrals["driver energy"].end > 0.1, "Euler gains energy"
    assert found.reversibility > 1e-2


def test_leap_frog_without_memory():
    found = audit(Forgetful("momentum"))
    text = said(
        found, "order 2 is claimed", "reversibility is claimed", "passenger energy ends", "below its start"
    )
    assert "factor" not in text
    assert found.order.q == pytest.approx(1, abs=0.1)
    assert found.integrals["passenger energy"].end == pytest.approx(-1, abs=0.05), "all of it is lost"
    whole = audit(da.LeapFrog("momentum"))
    assert whole.problems == []


def test_wrong_sign_of_the_potential():
    found = audit(Projected(sign=-1.0))
    said(found, "the force of the potential enters with the factor -1", "a wrong sign?", "does not converge")
    assert found.terms.potential == pytest.approx(-1, abs=1e-3)
    assert found.terms.kinematics == pytest.approx(1, abs=1e-3)
    assert found.terms.inertia == pytest.approx(1, abs=1e-3)
    right = audit(Projected())
    assert "factor" not in " ".join(right.problems)
    assert right.broken_claims == []


def test_wrong_sign_of_the_drift():
    said(audit(Projected(turn=-1.0)), "q' = v holds with the factor -1")


def test_terms_left_out():
    said(audit(Unturned()), "quadratic in the velocity", "left out?", "leaves the constraint")


def test_a_run_that_explodes_is_told_and_nothing_is_lost():
    class Growing(Projected):
        def step(self, system, state, memory, h):
            state, memory, report = super().step(system, state, memory, h)
            return State(state.q, 1.05 * state.v), memory, report

    found = audit(Growing())
    said(found, "the run failed: step", "not finite")
    assert 0 < found.steps < 30_000
    assert any(d.verdict in (Verdict.SHORT, Verdict.DRIFT) for d in found.integrals.values())


def test_a_false_claim_is_named():
    class Boasting(da.DLA):
        def claims(self, system):
            return Claims(order=4, energy=True, reversible=True, on_constraint=True, fibred=True)

    found = audit(Boasting(0.4))
    text = " | ".join(found.broken_claims)
    for word in ("order 4 is claimed", "exact energy is claimed", "reversibility is claimed"):
        assert word in text
    assert "constraint" not in text


def test_a_passenger_that_disturbs_the_driver_is_named():
    class Boasting(da.DiscreteGradient):
        def claims(self, system):
            return super().claims(system)._replace(fibred=True)

    assert "the passenger moves it" in " ".join(audit(Boasting()).broken_claims)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 100}, "10,000 steps or more"),
        ({"q0": jnp.ones(3)}, "both q0 and v0"),
        ({"h": -1.0, "steps": 30_000}, "h must be positive"),
        ({"start": "nowhere"}, "no start state 'nowhere'"),
        ({"window": 1e9}, None),
    ],
)
def test_bad_input(options, words):
    if words is None:  # too long a window: no verdict, but no error either
        found = da.audit(SYSTEM, da.LeapFrog(), steps=10_000, window=1e9)
        assert found.integrals["energy"].verdict is Verdict.SHORT
        return
    with pytest.raises(ValueError, match=words):
        da.audit(SYSTEM, da.LeapFrog(), **options)


@pytest.mark.parametrize(
    ("system", "method", "words"),
    [
        (da.zoo.PendulumCVT, da.LeapFrog(), "got the class PendulumCVT"),
        (SYSTEM, da.LeapFrog, "expected a method"),
        (SYSTEM, [], "expected a method"),
        (SYSTEM, [da.LeapFrog(), "frame"], "expected a method"),
    ],
)
def test_what_is_no_system_or_method(system, method, words):
    with pytest.raises(ValueError, match=words):
        da.audit(system, method)


def test_a_method_that_does_not_fit_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="constant mass matrix"):
        da.audit(da.zoo.ChaplyginSleigh(), [da.FrameGradient(), da.LeapFrog()])
    system = da.system(coordinates=("x",), metric=lambda q: jnp.eye(1))
    with pytest.raises(ValueError, match="give h"):
        da.audit(system, da.LeapFrog(), [0.0], [1.0])
