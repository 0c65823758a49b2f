"""Bad input: each case raises before anything runs, and says what was expected, what came, what to do."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da

CVT = da.zoo.PendulumCVT(eps=0.5)
Q, V = map(np.asarray, CVT.start())


def simulate(system=CVT, method=None, q0=Q, v0=V, h=0.1, steps=10, **options):
    return da.simulate(system, method or da.FrameGradient(), q0, v0, h=h, steps=steps, **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q0": [1.0, 1.0]}, r"q0 must have shape \(3,\).*x1, x2, xi.*got \(2,\)"),
        ({"v0": np.zeros((3, 1))}, r"v0 must have shape \(3,\).*got \(3, 1\)"),
        ({"q0": [[1.0], [0.0, 1.0], 0.0]}, r"q0 must be 3 numbers.*x1, x2, xi"),
        ({"q0": [1.0, np.nan, 0.0]}, "q0 must be finite"),
        ({"v0": [0.0, 0.0, np.inf]}, "v0 must be finite"),
        ({"q0": np.array([1j, 0, 0])}, "q0 must hold real numbers"),
        ({"v0": [1.0, 0.3, 1.0]}, r"violates the constraint: A\(q0\) v0 = .*nearest allowed velocity is"),
        ({"h": 0.0}, "h must be positive, got 0.0"),
        ({"h": -0.1}, "h must be positive, got -0.1.*reverse the velocity"),
        ({"h": np.nan}, "h must be one finite number"),
        ({"h": [0.1, 0.2]}, "h must be one finite number"),
        ({"t0": np.inf}, "t0 must be one finite number"),
        ({"steps": -1}, "steps must be a whole number of at least 0, got -1"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"save_every": 0}, "save_every must be a whole number of at least 1"),
        ({"system": da.zoo.PendulumCVT}, "got the class PendulumCVT; make one"),
        ({"system": "cvt"}, "expected a dalembert.System, got str"),
        ({"method": "frame"}, "expected a method such as FrameGradient"),
        ({"method": da.FrameGradient}, "expected a method such as FrameGradient"),
        ({"system": da.zoo.PendulumCVT(eps=np.nan)}, "parameter is NaN"),
    ],
)
def test_arguments_of_simulate(change, message):
    with pytest.raises(ValueError, match=message):
        simulate(**change)


def made(**functions):
    given = {"coordinates": ("x", "y", "z"), "metric": lambda q: jnp.eye(3)}
    return da.system(**(given | functions))


SAFE = jnp.array([[0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (
            made(metric=lambda q: jnp.diag(jnp.array([1.0, 0.0, 1.0]))),
            "must be positive definite.*smallest eigenvalue",
        ),
        (made(metric=lambda q: jnp.diag(jnp.array([1.0, -2.0, 1.0]))), "must be positive definite"),
        (made(metric=lambda q: jnp.eye(3).at[0, 1].set(0.5)), "not symmetric"),
        (
            made(metric=lambda q: jnp.eye(2)),
            r"metric must return a matrix of shape \(3, 3\), got shape \(2, 2\)",
        ),
        (made(potential=lambda q: q), r"potential must return a number.*got shape \(3,\)"),
        (made(potential=lambda q: jnp.log(-1 - q[0] ** 2)), "the potential is NaN or infinite at the start"),
        (made(constraints=lambda q: q), r"shape \(m, 3\).*got shape \(3,\).*row"),
        (made(constraints=lambda q: jnp.eye(3)), "the one-forms leave no motion: 3 of them"),
        (made(constraints=lambda q: jnp.ones((4, 2))), r"must return shape \(m, 3\), got shape \(4, 2\)"),
        (made(constraints=lambda q: SAFE / q[2]), "constraints is NaN or infinite at the start"),
        (
            made(constraints=lambda q: jnp.array([[1.0, q[1], 0.0], [2.0, 0.0, q[2]]])),
            r"rank deficient\) at the configuration \(x=0.5, y=0, z=0\)",
        ),
        (made(frame=lambda q: jnp.ones((3, 2))), "spanning vectors are linearly dependent"),
        (made(frame=lambda q: jnp.ones((2, 2))), r"frame must return shape \(3, r\)"),
        (
            made(constraints=lambda q: SAFE, frame=lambda q: jnp.eye(3)[:, 1:]),
            "constraints and frame contradict each other",
        ),
        (made(constraints=lambda q: SAFE, frame=lambda q: jnp.eye(3)[:, :1]), "must add up to 3"),
        (made(forces=lambda q, v: jnp.zeros(2)), r"forces must return shape \(3,\)"),
        (made(angles=("w",)), "angles names 'w'"),
        (made(angles=("x",), potential=lambda q: q[0] ** 2), "declared an angle, but potential changes"),
        (made(units=("m",)), "3 coordinates but 1 units"),
        (made(lagrangian=lambda q, v: v @ v), "gives both lagrangian and metric"),
        (da.system(coordinates=("x", "x"), metric=lambda q: jnp.eye(2)), "names must differ"),
        (da.system(coordinates=(), metric=lambda q: jnp.eye(0)), "coordinates must be a tuple of names"),
        (da.system(coordinates=("x", "y", "z")), "gives neither lagrangian"),
    ],
)
def test_systems(system, message):
    with pytest.raises(ValueError, match=message):
        da.simulate(system, da.FrameGradient(), [0.5, 0.0, 0.0], [0.0, 0.0, 0.0], h=0.1, steps=1)


def test_a_mistake_in_the_users_function_says_where():
    system = made(potential=lambda q: q[0] @ q[1])
    with pytest.raises(ValueError, match="matmul") as caught:
        da.simulate(system, da.FrameGradient(), [0.5, 0, 0], [0, 0, 0], h=0.1, steps=1)
    assert any("System.potential" in note for note in caught.value.__notes__)


def test_fields_that_are_not_numbers():
    class Named(da.System):
        coordinates = ("x",)
        label: str = "hello"

        def metric(self, q):
            return jnp.eye(1)

    with pytest.raises(ValueError, match=r"label.*static=True"):
        da.simulate(Named(), da.FrameGradient(), [0.0], [1.0], h=0.1, steps=1)

    class Fine(Named):
        label: str = eqx.field(default="hello", static=True)

    assert da.simulate(Fine(), da.FrameGradient(), [0.0], [1.0], h=0.1, steps=1).q[-1, 0] == pytest.approx(
        0.1
    )


@pytest.mark.parametrize(
    "method", [da.DLA(), da.DLA01(), da.LeapFrog(), da.DiscreteGradient(), da.Composition(da.DLA01(), 4)]
)
def test_methods_refuse_what_they_are_not_defined_for(method):
    sleigh = da.zoo.ChaplyginSleigh()
    with pytest.raises(
        ValueError, match=r"constant mass matrix.*depends on q. Use FrameGradient\(\), .* or Reference\(\)"
    ):
        da.simulate(sleigh, method, *sleigh.start(), h=0.1, steps=1)
    forced = made(forces=lambda q, v: -v)
    with pytest.raises(ValueError, match=r"without non-conservative forces.*Use FrameGradient\(\)"):
        da.simulate(forced, method, [0.5, 0, 0], [0, 0, 0], h=0.1, steps=1)


@pytest.mark.parametrize("method", [da.DLA(), da.FrameGradient()])
def test_general_lagrangians_are_not_for_all_methods(method):
    magnetic = da.system(coordinates=("x", "y"), lagrangian=lambda q, v: 0.5 * v @ v + q[0] * v[1])
    with pytest.raises(
        ValueError,
        match=r"quadratic in v, minus a potential.*Use VariationalDLA\(\), GNI\(\), EDLA\(\) or Reference\(\)",
    ):
        da.simulate(magnetic, method, [0.0, 0.0], [1.0, 0.0], h=0.1, steps=1)
    sol = da.simulate(magnetic, da.Reference(), [0.0, 0.0], [1.0, 0.0], h=0.1, steps=10)
    # A charge in a unit magnetic field moves on a unit circle.
    np.testing.assert_allclose(sol.q[-1], [np.sin(1.0), np.cos(1.0) - 1], atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.DLA(1.5), "alpha between 0 and 1, got 1.5"),
        (lambda: da.DLA(-0.1), "alpha between 0 and 1"),
        (lambda: da.LeapFrog("exact"), "no start 'exact'; choose one of: half-kick, momentum"),
        (lambda: da.DiscreteGradient("mean"), "no gradient 'mean'; choose one of"),
        (lambda: da.FrameGradient("mean"), "no gradient 'mean'; choose one of"),
        (lambda: da.Composition(da.FrameGradient(), 5), "orders 4, 6, 8, 10; got 5"),
        (
            lambda: da.Composition(da.LeapFrog(), 4),
            "LeapFrog must not be composed.*parasitic.*compose FrameGradient",
        ),
        (lambda: da.Composition(da.DLA(0.5), 4), "DLA must not be composed.*driver"),
        (lambda: da.Composition(da.DLA(0.4), 4), "DLA must not be composed"),
        (lambda: da.Composition(da.Reference(), 4), "Reference must not be composed"),
        (lambda: da.Composition(da.Composition(da.DLA01(), 4), 6), "composition already"),
        (lambda: da.Reference(rtol=0.0), "positive tolerances"),
        (lambda: da.zoo.Snakeboard(convention="other"), "no convention 'other'"),
        (lambda: da.zoo.ChaplyginSleigh(coordinates="other"), "no coordinates 'other'"),
        (lambda: CVT.start("spinning"), "no start state 'spinning'; choose one of: oscillating, rotating"),
        (lambda: made().start(), "no start state of its own"),
        (lambda: da.system(coordinates=("x",), lagrangian=3), "lagrangian must be a function"),
    ],
)
def test_making_things(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kwargs", [{"mass": 0.0}, {"mass": -1.0}, {"inertia": 0.0}])
def test_non_positive_masses(kwargs):
    sleigh = da.zoo.ChaplyginSleigh(**kwargs)
    with pytest.raises(ValueError, match="masses and moments of inertia are positive"):
        da.simulate(sleigh, da.FrameGradient(), [0, 0, 0], [0, 0, 0], h=0.1, steps=1)
