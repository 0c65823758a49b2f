"""Rigidity of discrete constraints, and whether they define a discrete connection: [cortes2003] Proposition 2."""

import re
from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.groups import SE2, Rn

Z = da.zoo
ALONG_Z = da.Symmetry(Rn(1), on=("z",))
WELL = Z.NonholonomicParticle(lambda q: 0.5 * (q[0] ** 2 + q[1] ** 2))
FUNCTIONS = {  # D_d of the particle by its change of z and s = y (x1 - x0), in NumPy's and in JAX's functions
    "midpoint": lambda np, z, s: z - s,
    "bent": lambda np, z, s: z + 0.1 * z**3 - s,
    # Newton's method diverges from every start that is not close; the change of sign finds the root.
    "steep": lambda np, z, s: np.arctan(30 * (z - s - 5 * s**2)) / 30,
    "tanh": lambda np, z, s: np.tanh(z) - s,
    "sin": lambda np, z, s: np.sin(z) - 0.3 * np.sin(s),
}


def own(function):
    def held(system, q0, q1, h):
        return jnp.stack([function(jnp, q1[2] - q0[2], (q0[1] + q1[1]) / 2 * (q1[0] - q0[0])) / h])

    return da.VariationalDLA(discrete_constraint=held)


class Expected(NamedTuple):
    trivial: bool
    dimensional: bool
    regular: bool
    rigid: bool | None
    onto: bool | None
    said: str


TRUE = Expected(True, True, True, True, True, "D_d defines a discrete connection.")
CASES = {
    "midpoint": TRUE,
    "bent": TRUE,
    "steep": TRUE,
    "tanh": TRUE._replace(onto=False, said="no pair in D_d was found"),
    "sin": TRUE._replace(rigid=False, said="the group moves one to the other"),
    "robot": TRUE._replace(said="V x V 6; their sum has 10 of 10"),
    "knife edge, across": TRUE._replace(regular=False, said="the connection is only local"),
    "knife edge, plane": Expected(
        False, True, True, None, None, "many pairs in D_d lie above one pair of shapes"
    ),
    "wheel": Expected(
        False, False, True, None, None, "their sum has 7 of 8, so that the discrete dimensional .* fails"
    ),
}
GIVEN = {
    "robot": (Z.TwoWheeledRobot(), da.VariationalDLA(), da.Symmetry(SE2(), on=("x", "y", "theta"))),
    "knife edge, across": (Z.KnifeEdge(pull=0.0), da.VariationalDLA(), da.Symmetry(Rn(1), on=("x2",))),
    "knife edge, plane": (Z.KnifeEdge(pull=0.0), da.VariationalDLA(), da.Symmetry(Rn(2), on=("x1", "x2"))),
    "wheel": (Z.ParticleWithWheel(), da.VariationalDLA(), da.Symmetry(Rn(1), on=("s",))),
}


@cache
def found(name):
    given = GIVEN[name] if name in GIVEN else (WELL, own(FUNCTIONS[name]), ALONG_Z)
    return da.reduction.rigidity(*given)


@pytest.mark.parametrize("name", CASES)
def test_hypotheses(name):
    made, expected = found(name), CASES[name]
    for what in ("trivial", "dimensional", "regular", "rigid", "onto"):
        assert getattr(made, what) == getattr(expected, what), what
    assert made.invariant
    assert made.connection == all((expected.trivial, expected.regular, expected.rigid, expected.onto))
    assert re.search(expected.said, made.words)
    assert (made.twice is None) == (expected.rigid is not False)
    assert (made.never is None) == (expected.onto is not False)


def test_counterexamples_by_hand():
    """The two ends of one pair of shapes both satisfy sin; above the other pair, tanh would have to exceed one."""
    q0, one, two = found("sin").twice
    assert np.array_equal(one[:2], two[:2])
    assert abs(one[2] - two[2]) > 0.1
    for q1 in (one, two):
        s = (q0[1] + q1[1]) / 2 * (q1[0] - q0[0])
        assert abs(FUNCTIONS["sin"](np, q1[2] - q0[2], s)) < 1e-12  # rounding, with the condition of the root
    q0, shape = found("tanh").never
    assert abs((q0[1] + shape[1]) / 2 * (shape[0] - q0[0])) > 1


def test_a_discrete_constraint_that_is_not_invariant():
    bent = da.VariationalDLA(
        discrete_constraint=lambda s, a, b, h: (
            s.constraints((a + b) / 2) @ (b - a) / h + h**2 * jnp.stack([a[2] ** 2])
        )
    )
    made = da.reduction.rigidity(WELL, bent, ALONG_Z)
    assert not made.invariant
    assert not made.connection
    assert "D or D_d is not invariant under the group" in made.words


def test_what_is_refused():
    with pytest.raises(ValueError, match="rigidity needs a method with a discrete constraint"):
        da.reduction.rigidity(WELL, None, ALONG_Z)
    with pytest.raises(ValueError, match=r"VariationalDLA\(\) and EDLA\(\); got 'gni'"):
        da.reduction.rigidity(WELL, da.GNI(), ALONG_Z)
    with pytest.raises(ValueError, match="no coordinate w"):
        da.reduction.rigidity(WELL, da.VariationalDLA(), da.Symmetry(Rn(1), on=("w",)))
