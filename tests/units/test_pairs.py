"""Runs from a pair (q0, q1): what is refused, ensembles, and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da

Z = da.zoo
H = 0.1
SLEIGH = Z.ChaplyginSleigh()
Q0, V0 = (np.asarray(x) for x in SLEIGH.start())


@pytest.fixture(scope="module")
def pair():
    """A pair on the discrete constraint of the midpoint, and the run that it begins."""
    run = da.simulate(SLEIGH, da.VariationalDLA(), Q0, V0, h=H, steps=12)
    return run.q[1], run


def test_saving_less_and_longer_runs_are_the_same_run(pair):
    q1, run = pair
    few = da.simulate(SLEIGH, da.VariationalDLA(), Q0, q1=q1, h=H, steps=12, save_every=5)
    # The same equations of the same pair; rounding of the momentum of the pair alone.
    assert np.max(np.abs(few.q - run.q[[0, 5, 10, 12]])) < 1e-14
    assert np.array_equal(few.t, run.t[[0, 5, 10, 12]])
    assert few.method == da.VariationalDLA()
    assert da.simulate(SLEIGH, da.VariationalDLA(), Q0, q1=q1, h=H, steps=0).q.shape == (1, 3)


def test_exactly_one_of_the_velocity_and_the_second_configuration(pair):
    q1, _ = pair
    with pytest.raises(ValueError, match=r"either v0.*or q1.*got neither"):
        da.simulate(SLEIGH, da.GNI(), Q0, h=H, steps=2)
    with pytest.raises(ValueError, match=r"either v0.*or q1.*got both"):
        da.simulate(SLEIGH, da.GNI(), Q0, V0, q1=q1, h=H, steps=2)
    with pytest.raises(ValueError, match="got both"):
        da.ensemble(SLEIGH, da.GNI(), Q0, V0, q1=np.stack([q1, q1]), h=H, steps=2)
    with pytest.raises(ValueError, match="no such rule for a pair"):
        da.simulate(SLEIGH, da.GNI(), Q0, q1=q1, h=H, steps=2, project=True)


@pytest.mark.parametrize(
    ("q1", "words"),
    [
        ([0.1, 0.2], r"q1 must have shape \(3,\)"),
        ([0.1, 0.2, np.nan], "q1 must be finite"),
        (["a", "b", "c"], "q1 must hold real numbers"),
        (np.ma.masked_array([0.1, 0.2, 0.3], [0, 1, 0]), "q1 is a masked array"),
        ([0.1, 0.2, 1e11], "subtract full turns"),
    ],
)
def test_what_is_no_configuration_is_refused(q1, words):
    with pytest.raises(ValueError, match=words):
        da.simulate(SLEIGH, da.GNI(), Q0, q1=q1, h=H, steps=2)


@pytest.mark.parametrize(
    "method", [da.FrameGradient(), da.DLA01(), da.Reference(), da.Composition(da.VariationalDLA(), 4)]
)
def test_methods_on_velocities_name_the_methods_on_pairs(method):
    with pytest.raises(ValueError, match=r"does not continue a pair.*VariationalDLA\(\).*GNI\(\)"):
        da.simulate(Z.NonholonomicParticle(), method, [0.0, 1.0, 0.0], q1=[0.1, 1.0, 0.1], h=H, steps=2)


def test_on_a_group_other_methods_are_named():
    g0, _ = Z.Suslov().start()
    with pytest.raises(ValueError, match=r"LieGNI\(\)"):
        da.simulate(Z.Suslov(), da.FrameGradient(), g0, q1=g0, h=H, steps=2)


def test_a_pair_off_the_discrete_constraint_is_refused_with_its_residual(pair):
    q1, _ = pair
    away = q1 + np.array([0.0, 1e-3, 0.0])
    middle = (Q0 + away)[2] / 2
    residual = np.array([np.sin(middle), -np.cos(middle), 0.0]) @ (away - Q0) / H
    for method in (da.VariationalDLA(), da.EDLA()):
        with pytest.raises(ValueError, match=r"violates the discrete constraint.*GNI\(\)") as found:
            da.simulate(SLEIGH, method, Q0, q1=away, h=H, steps=2)
        number = float(str(found.value).partition("value is [")[2].partition("]")[0])
        assert abs(abs(number) - abs(residual)) < 1e-6 * abs(residual)  # the digits that are printed
    # Far less than what moves q1 visibly is refused, too; rounding is not.
    with pytest.raises(ValueError, match="violates the discrete constraint"):
        da.simulate(SLEIGH, da.VariationalDLA(), Q0, q1=q1 + np.array([0.0, 1e-11, 0.0]), h=H, steps=2)
    da.simulate(SLEIGH, da.VariationalDLA(), Q0, q1=q1 * (1 + 1e-16), h=H, steps=2)
    # The pair of one discrete constraint is not one of another, and a GNI takes both.
    left = da.VariationalDLA(da.discrete.Midpoint(), da.discrete.PointConstraint(0.0))
    with pytest.raises(ValueError, match="violates the discrete constraint"):
        da.simulate(SLEIGH, left, Q0, q1=q1, h=H, steps=2)
    da.simulate(SLEIGH, da.GNI(), Q0, q1=away, h=H, steps=2)


def test_a_pair_too_far_apart_is_refused():
    """p - (h/2) sin((q0 + q1)/2) = (q1 - q0)/h has several solutions q1 if h > 2; the solver finds another one."""
    pendulum = da.system(
        coordinates=("x",),
        metric=lambda q: jnp.eye(1),
        potential=lambda q: -jnp.cos(q[0]),
        constraints=lambda q: jnp.zeros((0, 1)),
    )
    with pytest.raises(ValueError, match="instead of q1"):
        da.simulate(pendulum, da.GNI(), [0.0], q1=[7.0], h=4.0, steps=3)
    with pytest.raises(ValueError, match="instead of q1"):
        da.ensemble(pendulum, da.GNI(), [0.0], q1=[[0.1], [7.0]], h=4.0, steps=4, save_every=2)


def test_what_is_no_element_of_the_group_is_refused():
    g0, _ = Z.Suslov().start()
    with pytest.raises(ValueError, match="q1 is not an element of SO"):
        da.simulate(Z.Suslov(), da.LieGNI(), g0, q1=2 * np.asarray(g0), h=H, steps=2)


@pytest.mark.parametrize("method", [da.VariationalDLA(), da.GNI()])
def test_members_are_single_runs(pair, method):
    speeds = np.array([[1.0], [0.9], [0.7]])
    q1 = da.ensemble(SLEIGH, da.VariationalDLA(), Q0, speeds * V0, h=H, steps=1).q[:, 1]
    many = da.ensemble(SLEIGH, method, Q0, q1=q1, h=H, steps=12, save_every=4)
    for i in range(3):
        one = da.simulate(SLEIGH, method, Q0, q1=q1[i], h=H, steps=12, save_every=4)
        assert (
            np.max(np.abs(many.member(i).q - one.q)) < 1e-13
        )  # the same equations, in another order of operations
        assert np.max(np.abs(many.member(i).v_full - one.v_full)) < 1e-12
    assert many.method == method
    if method.pair_residual.__func__ is da.VariationalDLA.pair_residual:
        q1[1, 1] += 1e-3
        with pytest.raises(ValueError, match=r"1 member \(1\).*violates the discrete constraint"):
            da.ensemble(SLEIGH, method, Q0, q1=q1, h=H, steps=2)


def test_derivatives_with_respect_to_the_second_configuration():
    def end(q1):
        return da.simulate(SLEIGH, da.GNI(), Q0, q1=q1, h=H, steps=10).q[-1]

    q1 = Q0 + H * V0
    found = jax.jacrev(end)(jnp.asarray(q1))

    def slopes(d):
        return np.stack([(end(q1 + e) - end(q1 - e)) / (2 * d) for e in d * np.eye(3)], axis=-1)

    # Two central differences, extrapolated: what is left is the fifth derivative times 1e-13, and rounding, 1e-12.
    differences = (4 * slopes(5e-4) - slopes(1e-3)) / 3
    assert np.max(np.abs(found - differences)) < 1e-9
    assert np.max(np.abs(jax.jacfwd(end)(jnp.asarray(q1)) - found)) < 1e-11


def test_inside_jit_a_pair_off_the_constraint_gives_nan(pair):
    q1, run = pair

    @jax.jit
    def rows(q1):
        sol = da.simulate(SLEIGH, da.VariationalDLA(), Q0, q1=q1, h=H, steps=12)
        return sol.q, sol.code

    q, code = rows(q1)
    assert da.Status.from_code(code) is da.Status.OK
    assert np.max(np.abs(q - run.q)) < 1e-13
    q, code = rows(q1 + 1e-6)
    assert da.Status.from_code(code) is da.Status.OFF_PAIR
    assert np.all(np.isnan(q))
