"""Chaplygin systems over every group, with random inertia, connection and potential: reduction is exact."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from properties.reductions_at_random import reduction_attack

import dalembert as da
from dalembert.discrete import Retraction
from dalembert.groups import H3, SE3, SO3, Product, Rn

GROUPS = {"SO(3)": SO3(), "SE(3)": SE3(), "H3": H3()}
SHAPES = 2


def chaplygin(group, seed):
    """A body with xi = X(r) r', X(r) = X0 + X1 sin(r1 - 2 r2), on the group times R^2, in a potential of r."""
    random = np.random.default_rng(seed)
    size = group.dimension + SHAPES
    root = random.uniform(-0.4, 0.4, (size, size))
    whole = Product(group, Rn(SHAPES))

    class Body(da.GroupSystem):
        group = whole
        moments: jnp.ndarray = eqx.field(converter=jnp.asarray)
        lift: jnp.ndarray = eqx.field(converter=jnp.asarray)

        def inertia(self):
            return self.moments

        def potential(self, q):
            r = q[-SHAPES:]
            return 0.5 * jnp.sum(r**2) + 0.1 * jnp.cos(r[0] * r[1])

        def constraints(self, q):
            x = self.lift[0] + self.lift[1] * jnp.sin(q[-2] - 2 * q[-1])
            return jnp.concatenate([jnp.eye(group.dimension), -x], axis=1)

        def starts(self):
            q = jnp.concatenate([group.exp(jnp.linspace(-0.4, 0.5, group.dimension)), jnp.array([0.3, -0.2])])
            change = jnp.array([0.7, -0.4])
            return {"default": (q, jnp.concatenate([-self.constraints(q)[:, -SHAPES:] @ change, change]))}

    return Body(np.eye(size) + root @ root.T, random.uniform(-1, 1, (2, group.dimension, SHAPES)))


@pytest.mark.parametrize("name", GROUPS)
def test_reduced_and_full_make_the_same_steps(name):
    group = GROUPS[name]
    body, symmetry = chaplygin(group, seed=3), da.Symmetry(group, on=group.coordinates)
    method = da.VariationalDLA(Retraction("cayley"))
    reduced = da.reduce(body, method, symmetry)
    assert reduced.case.name == "Chaplygin"
    q0, v0 = body.start()
    full = da.simulate(body, method, q0, v0, h=0.1, steps=20)
    run = da.simulate(reduced, reduced.method, *reduced.project(q0, v0), h=0.1, steps=20)
    again = reduced.reconstruct(run, q0[: group.size])
    # The bound of the specification; rounding of twenty steps is 1e-15 to 1e-14.
    assert np.max(np.abs(run.q - full.q[:, -SHAPES:])) < 1e-11
    assert np.max(np.abs(again.q - full.q)) < 1e-11
    assert np.max(np.abs(again.v - full.v)) < 1e-11
    # It does move, and the energy is that of the full system.
    assert np.ptp(full.q, axis=0).min() > 1e-4
    np.testing.assert_allclose(run.energy(), full.energy(), rtol=1e-12)


def test_random_systems_are_reduced_exactly_and_broken_ones_refused():
    """One of the families, since each compiles for ten seconds; a longer run takes them all."""
    found = reduction_attack(4, seed=1, families=("T, horizontal",))
    assert found["runs"] == found["refused"] == 4
    assert found["wrong"] == found["accepted"] == 0
    assert found["worst"] > 0  # two roads, not one
