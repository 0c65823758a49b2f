"""What the nonholonomic leap-frog keeps, and what it does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import make

import dalembert as da
from dalembert.methods import State
from dalembert.model import lower


def modified_energy(sol, h):
    """|p|^2/2 + (1 - h^2/4) |x|^2/2 of the passenger, p = p^-: constant for K = 1 and every driver."""
    x, p = sol.q[:, :2], sol.v_full[:, :2]
    return np.sum(p**2, axis=1) / 2 + (1 - h**2 / 4) * np.sum(x**2, axis=1) / 2


@pytest.mark.parametrize("start", ["momentum", "half-kick"])
@pytest.mark.parametrize("motion", ["oscillating", "rotating"])
@pytest.mark.parametrize("eps", [0.0, 0.1, 0.5, -0.5])
def test_modified_energy_over_3e4_steps(eps, motion, start):
    system = da.zoo.PendulumCVT(eps=eps)
    sol = da.simulate(system, da.LeapFrog(start), *system.start(motion), h=0.1, steps=30_000, save_every=10)
    value = modified_energy(sol, 0.1)
    assert np.max(np.abs(value / value[0] - 1)) < 1e-12
    # It is the modified energy that is kept, not the energy itself.
    plain = np.sum(sol.v_full[:, :2] ** 2 + sol.q[:, :2] ** 2, axis=1) / 2
    assert np.max(np.abs(plain / plain[0] - 1)) > 1e-4


def involution(state, memory):
    """(q, p^-) -> (q, -(P - Q) p^-): swaps p^- and -p^+. The pull in the memory belongs to q and stays."""
    return State(state.q, -state.v), memory._replace(u=-(2 * state.v - memory.u))


@pytest.mark.parametrize(
    "name", ["cvt-rot-0.5", "cvt-osc-0", "knife-0.1", "robot", "massive", "snakeboard-relative"]
)
def test_reversible_with_its_own_involution(name):
    system, q0, v0, _ = make(name)
    method, h = da.LeapFrog("momentum"), 0.1
    step = jax.jit(lambda state, memory: method.step(lower(system), state, memory, h)[:2])
    state = State(jnp.asarray(q0), jnp.asarray(v0))
    memory = method.init(lower(system), state, h)
    # A state in the middle of a run, where p^- and p^+ differ.
    for _ in range(7):
        state, memory = step(state, memory)
    there = involution(*step(state, memory))
    back = involution(*step(*there))
    assert np.max(np.abs(back[0].q - state.q)) < 1e-13
    assert np.max(np.abs(back[1].u - memory.u)) < 1e-13
    assert np.max(np.abs(back[1].pull - memory.pull)) < 1e-13
    # Reversing p^- alone is not an involution of the method.
    after, own = step(state, memory)
    plain = step(State(after.q, -after.v), own._replace(u=-own.u))[0]
    assert np.max(np.abs(plain.q - state.q)) > 1e-4


def test_memory_is_needed():
    """Forgetting the multiplier at each step (starting anew) damps the motion: a first-order method."""
    system, q0, v0, h = make("cvt-rot-0.5")
    method = da.LeapFrog("momentum")
    start = State(jnp.asarray(q0), jnp.asarray(v0))
    forgetful = jax.jit(lambda s: method.step(lower(system), s, method.init(lower(system), s, h), h)[0])
    q, v, _ = jax.lax.fori_loop(0, 3000, lambda _, s: forgetful(s), start)
    passenger = float(jnp.sum(v[:2] ** 2 + q[:2] ** 2) / 2)
    assert passenger < 0.1  # of 1 at the start


@pytest.mark.parametrize("name", ["massive", "robot", "snakeboard-relative"])
def test_half_kick_excites_the_parasitic_mode_less(name):
    """The alternating part of the multipliers is O(1) for the momentum start, small for the half kick."""
    system, q0, v0, _ = make(name)
    jumps = {}
    for start in ("momentum", "half-kick"):
        lam = da.simulate(system, da.LeapFrog(start), q0, v0, h=0.02, steps=50).multipliers[5:]
        jumps[start] = np.max(np.abs(lam[2:] - 2 * lam[1:-1] + lam[:-2]))
    assert jumps["half-kick"] < 0.1 * jumps["momentum"]
