"""Derivatives of trajectories in parameters, start and h, forward and reverse, against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hurry import compiled
from systems import make

import dalembert as da
from dalembert.methods import State
from dalembert.model import as_arrays
from dalembert.simulation import differentiable

METHODS = [
    da.LeapFrog(),
    da.DLA(0.5),
    da.DLA01(),
    da.DiscreteGradient("gonzalez"),
    da.DiscreteGradient("average"),
    da.FrameGradient(),
    da.Composition(da.FrameGradient(), 4),
]


def final(method, arguments):
    eps, q0, speed, h = arguments["eps"], arguments["q0"], arguments["speed"], arguments["h"]
    v0 = jnp.array([-jnp.sin(q0[2]), 1.0, 0.0]) * speed[0] + jnp.array([0.0, 0.0, 1.0]) * speed[1]
    sol = da.simulate(da.zoo.PendulumCVT(eps), method, q0, v0, h=h, steps=12, save_every=5)
    return jnp.sum(jnp.sin(sol.q[-1])) + jnp.sum(sol.v[-1] ** 2) + sol.q[1, 0] + sol.energy()[-1]


POINT = {
    "eps": jnp.array(0.5),
    "q0": jnp.array([1.0, 0.8, 0.3]),
    "speed": jnp.array([0.2, 2.1]),
    "h": jnp.array(0.1),
}


def differences(function, point, key):
    base = np.asarray(point[key], float)
    found = np.zeros(base.shape)
    d = 1e-5
    for index in np.ndindex(base.shape):
        values = []
        for side in (d, -d):
            moved = base.copy()
            moved[index] += side
            values.append(float(function({**point, key: jnp.asarray(moved)})))
        found[index] = (values[0] - values[1]) / (2 * d)
    return found


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.cli_name)
def test_forward_reverse_and_finite_differences(method):
    function = jax.jit(lambda point: final(method, point))
    reverse = jax.jit(jax.grad(lambda point: final(method, point)))(POINT)
    forward = jax.jit(jax.jacfwd(lambda point: final(method, point)))(POINT)
    for key in POINT:
        np.testing.assert_allclose(forward[key], reverse[key], rtol=1e-10, atol=1e-11)
        # Central differences with 1e-5: about 1e-10 times third derivatives, plus 1e-11 of rounding.
        np.testing.assert_allclose(reverse[key], differences(function, POINT, key), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["sleigh-potential", "snakeboard-relative"])
def test_frame_gradient_with_other_metrics(name):
    system, q0, v0, h = make(name)

    def end(h):
        return da.simulate(system, da.FrameGradient(), q0, v0, h=h, steps=6).q[-1]

    d = 1e-5
    expected = (np.asarray(end(h + d)) - np.asarray(end(h - d))) / (2 * d)
    for found in jax.jit(lambda h: (jax.jacfwd(end)(h), jax.jacrev(end)(h)))(h):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_reference_is_differentiable_in_reverse():
    def end(eps):
        system = da.zoo.PendulumCVT(eps)
        return da.simulate(system, da.Reference(), *system.start(), h=0.5, steps=2).q[-1, 0]

    d = 1e-5
    assert float(compiled(jax.grad(end), 0.5)(0.5)) == pytest.approx(
        (float(end(0.5 + d)) - float(end(0.5 - d))) / (2 * d), abs=1e-7
    )


@pytest.mark.parametrize("spelling", ["frame", "dla01@4"])
@pytest.mark.parametrize("steps", [0, 1, 15, 16, 17, 32, 41])
def test_runs_of_several_segments(monkeypatch, spelling, steps):
    """However many steps are kept at a time, and wherever the last ones begin."""
    method = da.methods.method_from_text(spelling)
    system = da.zoo.PendulumCVT()
    q0, v0 = system.start()

    def end(v):
        sol = da.simulate(system, method, q0, v, h=0.1, steps=steps, save_every=5)
        return jnp.sum(sol.q * jnp.cos(jnp.arange(3.0)) + sol.v**2)

    whole = jax.grad(end)(v0)
    monkeypatch.setattr(differentiable, "SEGMENT", 16)
    # The same steps from the same states, in the same order.
    np.testing.assert_array_equal(jax.grad(end)(v0), whole)


@pytest.mark.parametrize("segment", [8, 4096])
def test_a_run_that_fails(monkeypatch, segment):
    """The rows after a failure repeat the last good state, and so do their derivatives, in whatever segment it is."""
    monkeypatch.setattr(differentiable, "SEGMENT", segment)

    # The fall towards x = 0, beyond which the potential is not defined.
    system = da.system(
        coordinates=("x", "y"), metric=lambda q: jnp.eye(2), potential=lambda q: jnp.sqrt(q[0]) + q[0] * q[1]
    )

    def last(v, steps):
        start = State(jnp.array([1.0, 0.0]), v, jnp.zeros(()))
        (_, _, done), rows = differentiable.differentiable_run(
            as_arrays(system), as_arrays(da.GNI()), start, jnp.asarray(0.1), steps, 1
        )
        return rows.q[-1, 0] + 2 * rows.q[-1, 1], done

    v = jnp.array([-0.3, 1.0])
    made = int(last(v, 60)[1])
    assert 8 < made < 50
    found = [jax.grad(lambda v, k=k: last(v, k)[0])(v) for k in (60, made)]
    np.testing.assert_array_equal(*found)
    assert np.all(np.isfinite(found))


def test_parameters_of_function_systems():
    def end(stiffness):
        system = da.system(
            coordinates=("x", "y"),
            lagrangian=lambda q, v, p: 0.5 * v @ v - 0.5 * p["k"] * q @ q,
            constraints=lambda q, p: jnp.array([[p["slope"], -1.0]]),
            parameters={"k": stiffness, "slope": 2.0},
        )
        return da.simulate(system, da.DLA01(), [1.0, 2.0], [0.0, 0.0], h=0.01, steps=100).q[-1, 0]

    # A spring on a line: x = cos(sqrt(k) t).
    assert float(end(4.0)) == pytest.approx(np.cos(2.0), abs=1e-3)
    assert float(jax.grad(end)(4.0)) == pytest.approx(-np.sin(2.0) / 4, abs=1e-3)
