"""Shapes in signatures are looked at in all tests; here, that a wrong one is noticed."""

import jax.numpy as jnp
import numpy as np
import pytest
import shapes

import dalembert as da
from dalembert.simulation import Trajectory

SYSTEM = da.zoo.KnifeEdge()


@pytest.fixture(scope="module")
def sol():
    return da.simulate(SYSTEM, da.DLA(), *SYSTEM.start(), h=0.05, steps=5)


FIELDS = ("t", "q", "v", "v_full", "lam", "code", "steps", "residual", "system", "method", "h", "save_every")


@pytest.mark.parametrize("name", shapes.shaped_fields(Trajectory))
def test_a_field_of_another_shape_is_noticed(sol, name):
    """One row too many, a dimension too many, or words in the place of numbers."""
    given = {field: getattr(sol, field) for field in FIELDS}
    Trajectory(**given)
    x = np.asarray(given["q"] if name == "near" else given["t"] if name == "step_data" else given[name])
    kinds = [np.concatenate([x, x]) if x.ndim else x[None], x[..., None], np.full(x.shape, "a")]
    if name == "step_data":  # a method may say anything of a step, once per row
        kinds = kinds[:1]
    for wrong in kinds:
        with pytest.raises(AssertionError, match=f"Trajectory.{name}|Trajectory.(q|v) "):
            Trajectory(**given | {name: {"h": wrong} if name == "step_data" else wrong})


def test_results_of_functions_are_looked_at():
    assert hasattr(da.acceleration, "__wrapped__")
    assert hasattr(da.diagnostics.step_map, "__wrapped__")

    def short(system, q, v):
        return da.diagnostics.Motion(np.zeros(3), np.zeros((1, 1)))

    with pytest.raises(AssertionError, match=r"short: Motion.multipliers is .* \(1, 1\)"):
        shapes.checked(short, da.diagnostics.Motion)(SYSTEM, *SYSTEM.start())


def test_arrays_of_jax_have_them_too(sol):
    fields = shapes.shaped_fields(Trajectory)
    assert shapes.wrong_field(sol, fields) is None
    assert not isinstance(jnp.zeros(2), np.ndarray)
    assert shapes.is_bearable(jnp.zeros((2, 3)), fields["q"])
    assert not shapes.is_bearable(jnp.zeros(2), fields["q"])
