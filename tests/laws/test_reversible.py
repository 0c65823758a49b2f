"""Reversibility: a step, the velocity reversed, a step, reversed again is the identity, where it is claimed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hurry import compiled
from systems import make

import dalembert as da
from dalembert.methods import State
from dalembert.model import lower

NAMES = ["cvt-rot-0.5", "knife-0.1", "robot", "massive", "snakeboard-relative"]
ON_D = [
    da.DLA(0.5),
    da.DLA01(),
    da.FrameGradient(),
    da.FrameCollocation(1),
    da.FrameCollocation(2),
    da.FrameCollocation(4),
    da.Composition(da.FrameGradient(), 4),
    da.Composition(da.DLA01(), 6),
]
NOT = [da.DLA(0.4), da.DLA(0.0), da.DLA(1.0)]


def defect(system, method, q0, v0, h):
    """The distance from the start after a step there and back, from a state on D."""

    def one(state):
        return method.step(lower(system), state, method.init(lower(system), state, h), h)[0]

    state = State(jnp.asarray(q0), jnp.asarray(v0))
    step = compiled(one, state)
    there = step(state)
    back = step(State(there.q, -there.v))
    return max(float(jnp.max(jnp.abs(back.q - state.q))), float(jnp.max(jnp.abs(back.v + state.v))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ON_D, ids=lambda m: m.cli_name)
def test_methods_on_d(method, name):
    system, q0, v0, _ = make(name)
    assert method.claims(system).reversible
    # A few roundings of states of size one (times nine stages for the composition of order 6).
    assert defect(system, method, q0, v0, 0.1) < 1e-13


@pytest.mark.parametrize("method", NOT, ids=lambda m: m.cli_name)
def test_what_is_not_claimed_fails(method):
    system, q0, v0, _ = make("cvt-rot-0.5")
    assert not method.claims(system).reversible
    assert defect(system, method, q0, v0, 0.1) > 1e-3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gradient", ["gonzalez", "average", "itoh-abe"])
def test_discrete_gradient_on_tq(gradient, name):
    system, q0, v0, _ = make(name)
    method = da.DiscreteGradient(gradient)
    state = State(jnp.asarray(q0), jnp.asarray(v0))
    memory = compiled(lambda state: method.init(lower(system), state, 0.1), state)(state)
    step = compiled(lambda state, memory: method.step(lower(system), state, memory, 0.1)[:2], state, memory)
    for _ in range(5):  # leave D first
        state, memory = step(state, memory)
    there, own = step(state, memory)
    back, own = step(State(there.q, -there.v), own._replace(u=-own.u))
    assert float(jnp.max(jnp.abs(back.q - state.q))) < 1e-13
    assert float(jnp.max(jnp.abs(own.u + memory.u))) < 1e-13


@pytest.mark.parametrize("name", NAMES)
def test_energy_claims(name):
    """Who claims exact energy keeps it to rounding over 1000 steps; on the CVT the others visibly do not."""
    system, q0, v0, h = make(name)
    for method in (
        da.DLA(0.5),
        da.DLA01(),
        da.LeapFrog("momentum"),
        da.DiscreteGradient(),
        da.FrameGradient(),
    ):
        energy = da.simulate(system, method, q0, v0, h=h, steps=1000).energy(full=True)
        error = np.max(np.abs(energy - energy[0]))
        if method.claims(system).energy:
            assert error < 1e-11 * np.max(np.abs(energy)), method
        elif name == "cvt-rot-0.5":
            assert error > 1e-3, method


@pytest.mark.parametrize("name", NAMES)
def test_constraint_claims(name):
    """The saved velocity satisfies the constraint for every method; the method's own where it is claimed."""
    system, q0, v0, h = make(name)
    for method in (
        da.DLA(0.4),
        da.DLA01(),
        da.LeapFrog("momentum"),
        da.DiscreteGradient(),
        da.FrameGradient(),
    ):
        sol = da.simulate(system, method, q0, v0, h=h, steps=200)
        size = max(1.0, float(np.max(np.abs(sol.v))))
        assert np.max(sol.constraint_residual()) < 1e-14 * size * 10
        a = np.asarray(jax.vmap(system.constraints)(jnp.asarray(sol.q)))
        own = np.max(np.abs(np.einsum("kij,kj->ki", a, sol.v_full)))
        if method.claims(system).on_constraint:
            assert np.array_equal(sol.v, sol.v_full)
        else:
            assert own > 1e-6, method
