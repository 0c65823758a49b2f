"""Reduction against examples written out by hand in NumPy, which know nothing of the library."""

import dataclasses

import numpy as np
import pytest
from equations.reduction import Extended, Paired
from equations.reduction_examples import EXAMPLES, rolling_beta
from reductions import CASES, FIXED, VARIABLE, drawn, off, pairs, rebuilt, runs, start

import dalembert as da

# Those whose D_d is another one have the same ell and the same F, which D_d does not enter.
PAIRED = [name for name, x in EXAMPLES.items() if isinstance(x, Paired) and x.own is None]


def test_every_example_has_its_case():
    assert sorted(FIXED + VARIABLE) == sorted(EXAMPLES)
    assert {EXAMPLES[name].h for name in FIXED} == {0.1}  # those of the shared runs
    assert {EXAMPLES[name].h for name in VARIABLE} == {0.05}


@pytest.mark.parametrize("name", EXAMPLES)
def test_starts_are_those_of_the_zoo(name):
    if name != "knife edge":  # that of the zoo is another one
        system = da.zoo.RollingDisk() if name == "disk" else CASES[name].system
        for ours, theirs in zip(system.start(), start(name), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-15)  # rounding of sines


@pytest.mark.parametrize("name", FIXED)
def test_states(name):
    """The full run, the reduced run and the reconstructed group, against both roads of the transcription."""
    example, (red, full, sol), steps = EXAMPLES[name], runs(name), 100
    theirs, (r, g) = example.full(steps), example.reduced(steps)
    rows = slice(0, steps + 1)
    # 1e-11 absolute over 100 steps, the bound of the specification; 6e-14 is measured.
    assert off(full.q[rows], theirs) < 1e-11
    assert off(sol.q[rows], r) < 1e-11
    assert off(rebuilt(name).q[rows][:, example.group_indices], g) < 1e-11
    assert off(rebuilt(name).q[rows], theirs) < 1e-11
    assert [red.full.coordinates[i] for i in example.shape] == list(red.coordinates)
    assert [red.full.coordinates[i] for i in example.group_indices] == list(red.symmetry.on)
    assert np.ptp(theirs, axis=0).min() > 0.1  # every coordinate moves


@pytest.mark.parametrize("name", VARIABLE)
def test_variable_steps(name):
    """The same for EDLA and REDLA, times included."""
    example, (_, full, sol), steps = EXAMPLES[name], runs(name), 60
    theirs, (z, g) = example.full(steps), example.reduced(steps)
    rows = slice(0, steps + 1)
    # 1e-9 absolute, the bound of the specification: step sizes are known to eps E/(2 h^2 G) only. 7e-12 is measured.
    assert off(np.column_stack([full.t, full.q])[rows], theirs) < 1e-9
    assert off(np.column_stack([sol.t, sol.q])[rows], z) < 1e-9
    assert off(rebuilt(name).q[rows, 2:], g) < 1e-9
    assert np.ptp(np.diff(sol.t[rows])) > 1e-3  # the steps do vary


@pytest.mark.parametrize("name", VARIABLE)
def test_runs_satisfy_the_reduced_equations(name):
    """All components of [cortes2003] Prop. 3 with the forces on time; without them those on time are missed."""
    example, sol = EXAMPLES[name], runs(name).sol
    z = np.column_stack([sol.t, sol.q])
    # Rounding of positions and times up to 10, over a step of 0.05.
    assert np.abs(example.residuals(z)).max() < 1e-12
    missed = np.abs(dataclasses.replace(example, time_forces=False).residuals(z)).max(axis=0)
    assert np.all(missed[1:] < 1e-12)
    assert (missed[0] > 1e-12) == (name != "timed particle")
    # 1.1e-2 where the coefficient changes; where the offset does, the parts of the two ends cancel up to h^2.
    assert name == "timed particle" or missed[0] > (1e-3 if "modulated" in name else 1e-6)


@pytest.mark.parametrize("name", PAIRED)
def test_lagrangian_and_forces(name):
    """Lhat, beta0, beta1 at random pairs, which no run has made; beta = -F of [cortes2003], on time as well."""
    example, (r0, r1, h, t) = EXAMPLES[name], drawn(name, increment=0.3)
    timed = isinstance(example, Extended)
    pair = (np.vstack([t, r0.T]), np.vstack([t + h, r1.T])) if timed else (r0.T, r1.T)
    ours = pairs(name, r0, r1, h, t)
    theirs = example.lhat(*pair), example.beta0(*pair).T, example.beta1(*pair).T
    for one, other in zip((ours.value, ours.beta0, ours.beta1), theirs, strict=True):
        # The bound of the specification, relative; differences of positions lose eps |r|/|d|, some 1e-14 here.
        size = np.abs(other).max()
        assert off(one, other) <= 1e-12 * size
        assert size > 1e-3
    if name == "disk":
        np.testing.assert_allclose(ours.beta0.T, rolling_beta(0.1, (r1 - r0).T), atol=1e-14)  # rounding


def test_own_constraint_matters():
    """D_d of one's own is another D_d, of the same D: the runs part by far more than what the tests above allow."""
    plain, own = runs("particle with a wheel"), runs("particle with a wheel, own D_d")
    assert off(plain.sol.q[:101], own.sol.q[:101]) > 1e-3
    assert isinstance(own.red.method.discrete_constraint, da.reduction.ReducedConstraint)
