"""Random systems and states: what holds, holds for all of them."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dalembert as da
from dalembert.model import project


class Random(da.System):
    """A metric, a potential and two one-forms with random coefficients; parameters, so it compiles once."""

    coordinates = ("a", "b", "c", "d")
    mass: np.ndarray
    wave: np.ndarray
    forms: np.ndarray

    def metric(self, q):
        root = jnp.eye(4) + 0.3 * self.mass * jnp.sin(q)[None, :]
        return root @ root.T + 0.5 * jnp.eye(4)

    def potential(self, q):
        return jnp.sum(self.wave * jnp.cos(q + self.wave[::-1])) + 0.5 * jnp.sum(q**2)

    def constraints(self, q):
        return jnp.eye(4)[:2] + 0.5 * self.forms * jnp.cos(q[::-1])[None, :]


class RandomFlat(Random):
    """The same with a constant mass matrix."""

    def metric(self, q):
        return self.mass @ self.mass.T + jnp.eye(4)


def draw(seed, kind):
    random = np.random.default_rng(seed)
    mass, wave, forms = (random.uniform(-1, 1, shape) for shape in ((4, 4), 4, (2, 4)))
    system = kind(mass, wave, forms)
    q = jnp.asarray(random.uniform(-1, 1, 4))
    return system, q, project(system, q, jnp.asarray(random.uniform(-1, 1, 4)))


SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_frame_gradient_keeps_energy_and_constraint(seed):
    system, q, v = draw(seed, Random)
    sol = da.simulate(system, da.FrameGradient(), q, v, h=0.1, steps=200)
    energy = sol.energy()
    # Rounding of two hundred steps of energies of size one to ten.
    assert np.max(np.abs(energy - energy[0])) < 1e-12
    assert np.max(sol.constraint_residual()) < 1e-13


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_discrete_gradient_keeps_its_energy(seed):
    system, q, v = draw(seed, RandomFlat)
    sol = da.simulate(system, da.DiscreteGradient("average"), q, v, h=0.1, steps=200)
    energy = sol.energy(full=True)
    assert np.max(np.abs(energy - energy[0])) < 1e-12
    assert np.max(sol.constraint_residual()) < 1e-13


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_there_and_back(seed):
    """A run, the velocity reversed, the same run: the start, for a reversible method on D."""
    system, q, v = draw(seed, Random)
    there = da.simulate(system, da.FrameGradient(), q, v, h=0.1, steps=20)
    back = da.simulate(system, da.FrameGradient(), there.q[-1], -there.v[-1], h=0.1, steps=20)
    # Rounding of forty steps, times what the motion itself amplifies in two units of time.
    assert np.max(np.abs(back.q[-1] - q)) < 1e-11
    assert np.max(np.abs(back.v[-1] + v)) < 1e-11
