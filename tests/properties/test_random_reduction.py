"""Random Chaplygin systems on Lie groups: reduction is exact for all of them."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
import reductions
from reductions import off

import dalembert as da
from dalembert.discrete import Retraction
from dalembert.model.groups import H3, S3, SE2, SE3, SO3, Product, Rn

quick = reductions.quick
GROUPS = {"SE2": SE2(), "SO3": SO3(), "SE3": SE3(), "H3": H3(), "S3": S3()}
MAPS = {"SE2": "mid", "SO3": "exp", "SE3": "cayley", "H3": "exp", "S3": "cayley"}


@cache
def kind(name):
    """The class of systems on G x R^2; parameters, so that it compiles once."""

    class Random(da.GroupSystem):
        """Any inertia, a connection xi + A(r) r' = 0 and a potential V(r), with random coefficients."""

        group = Product(GROUPS[name], Rn(2))
        step = 0.1
        mass: np.ndarray
        still: np.ndarray
        turn: np.ndarray
        wave: np.ndarray

        def inertia(self):
            return self.mass @ self.mass.T + jnp.eye(self.mass.shape[0])

        def potential(self, q):
            return jnp.sum(self.wave * jnp.cos(q[-2:] + self.wave[::-1])) + 0.5 * jnp.sum(q[-2:] ** 2)

        def constraints(self, q):
            connection = self.still + 0.5 * self.turn * jnp.sin(q[-2:])
            return jnp.concatenate([jnp.eye(len(self.still)), connection], axis=1)

    return Random


def drawn(name, seed):
    """A system and a state on its constraint, anywhere on the group."""
    random, group = np.random.default_rng(seed), GROUPS[name]
    n = group.dimension
    sizes = ((n + 2, n + 2), (n, 2), (n, 2), 2)
    system = kind(name)(*(random.uniform(-1, 1, size) for size in sizes))
    g, r = np.asarray(group.exp(random.uniform(-1, 1, n))), random.uniform(-1, 1, 2)
    change = random.uniform(-1, 1, 2)
    xi = -(system.still + 0.5 * system.turn * np.sin(r)) @ change
    return system, np.concatenate([g, r]), np.concatenate([xi, change])


@pytest.mark.parametrize("name", GROUPS)
def test_reduction_is_exact(name):
    symmetry = da.Symmetry(GROUPS[name], on=kind(name).group.coordinates[: GROUPS[name].size])
    method = da.VariationalDLA(Retraction(MAPS[name]))
    for seed in range(3):
        system, q0, v0 = drawn(name, seed)
        red = da.reduce(system, method, symmetry, at=q0)
        assert red.case.name == "Chaplygin"
        full = da.simulate(system, method, q0, v0, h=0.1, steps=20)
        sol = da.simulate(red, red.method, *red.project(q0, v0), h=0.1, steps=20)
        projected, back = red.project(full), red.reconstruct(sol, q0[:-2])
        # Rounding of twenty steps, times what the motion itself amplifies in two units of time.
        for one, other in ((sol, projected), (back, full)):
            assert off(one.q, other.q) < 1e-11
            assert off(one.v, other.v) < 1e-11
        assert np.ptp(full.q, axis=0).min() > 1e-3  # all of the group moves
