"""Cases that broke an earlier version, or would break a careless one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.methods import method_from_text
from dalembert.simulation import run

PENDULUM = {"coordinates": ("x", "y"), "metric": lambda q: jnp.eye(2)}


@pytest.mark.parametrize("amplitude", [1e-6, 1e-8, 1e-10, 0.0])
@pytest.mark.parametrize(
    "method", [da.FrameGradient(), da.DiscreteGradient(), da.DLA(0.5)], ids=lambda m: m.cli_name
)
def test_small_oscillations_and_rest(method, amplitude):
    """Near an equilibrium the force is rounding; the iteration must not be asked for more than there is."""
    system = da.system(**PENDULUM, potential=lambda q: 9.81 * jnp.cos(q[0]) + 0.5 * q[1] ** 2)
    sol = da.simulate(system, method, [np.pi + amplitude, amplitude], [0.0, 0.0], h=0.1, steps=3000)
    # Energies are kept to rounding of V = 9.81, that is amplitudes to about its root.
    assert np.max(np.abs(sol.q - [np.pi, 0.0])) < 2 * amplitude + 1e-7


def test_damped_motion_settles():
    system = da.system(
        **PENDULUM, potential=lambda q: 9.81 * jnp.cos(q[0]) + 0.5 * q[1] ** 2, forces=lambda q, v: -0.5 * v
    )
    sol = da.simulate(system, da.FrameGradient(), [2.0, 1.0], [0.0, 0.0], h=0.05, steps=5000)
    np.testing.assert_allclose(sol.q[-1], [np.pi, 0.0], atol=1e-7)


@pytest.mark.parametrize(
    "method", [da.FrameGradient(), da.DiscreteGradient(), da.DiscreteGradient("itoh-abe")]
)
def test_energy_in_a_potential_with_a_kink(method):
    """A contact spring: grad V is continuous, no more; the quadrature must notice where it fails."""
    system = da.system(**PENDULUM, potential=lambda q: 500 * jnp.minimum(q[1], 0) ** 2 + 9.81 * q[1])
    sol = da.simulate(system, method, [0.0, 1.0], [0.1, 0.0], h=0.01, steps=20_000)
    assert np.min(sol.q[:, 1]) < -0.1
    assert np.max(np.abs(sol.energy() / sol.energy()[0] - 1)) < 1e-11


def test_metrics_that_change_much_in_one_step():
    """Three free directions, polar coordinates, a large step."""
    system = da.system(
        coordinates=("r", "phi", "z"), metric=lambda q: jnp.diag(jnp.stack([1.0, q[0] ** 2, 1.0]))
    )
    sol = da.simulate(system, da.FrameGradient(), [1.0, 0.0, 0.0], [10.0, 1.0, 0.0], h=0.3, steps=20)
    assert np.max(np.abs(sol.energy() / sol.energy()[0] - 1)) < 1e-12


def test_gyroscopic_terms_that_vanish_at_the_start_are_noticed():
    system = da.system(
        coordinates=("x", "y"), lagrangian=lambda q, v: 0.5 * v @ v + q[0] * v[1] - q[1] * v[0]
    )
    with pytest.raises(ValueError, match=r"Use VariationalDLA\(\), GNI\(\), EDLA\(\) or Reference\(\)"):
        da.simulate(system, da.FrameGradient(), [0.0, 0.0], [1.0, 0.0], h=0.1, steps=1)


def test_scales_far_apart_are_not_called_singular():
    system = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.diag(jnp.array([1e14, 1.0, 1e-6])),
        constraints=lambda q: jnp.array([[1e8, 0.0, 0.0], [0.0, 1.0, q[1]]]),
    )
    assert (
        da.simulate(system, da.FrameGradient(), [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], h=0.1, steps=3).q[-1, 2]
        > 0.2
    )


def test_nan_potential_with_a_finite_gradient():
    system = da.system(coordinates=("x",), metric=lambda q: jnp.eye(1), potential=lambda q: jnp.log(q[0]))
    sol = da.simulate(system, da.LeapFrog(), [1.0], [-1.0], h=0.05, steps=50, throw=False)
    assert sol.status is da.Status.NOT_FINITE
    assert np.all(np.isfinite(sol.energy()))


@pytest.mark.parametrize(
    "method",
    [
        da.LeapFrog("momentum"),
        da.DLA(1 / 3),
        da.Reference(1e-6, 1e-7),
        da.Composition(da.DiscreteGradient("average"), 6),
    ],
)
def test_spelling_says_all(method):
    assert method_from_text(method.cli_name) == method


def test_batched_trajectories():
    start = jnp.array([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    system = da.system(
        coordinates=("x", "y", "z"), metric=lambda q: jnp.eye(3), potential=lambda q: jnp.sum(q**2)
    )
    sol = jax.vmap(lambda q: da.simulate(system, da.LeapFrog(), q, [1.0, 0, 0], h=0.1, steps=2))(start)
    energies = sol.energy()
    assert energies.shape == (2, 3)
    np.testing.assert_array_equal(energies, jax.vmap(lambda one: one.energy())(sol))
    assert sol.member(1).q.shape == (3, 3)
    np.testing.assert_allclose(energies[:, 0], [1.5, 4.5])


def test_failure_inside_other_jax_code():
    """The count stops, rows after it are NaN or hold the last good state, and the others are untouched."""
    system = da.system(**PENDULUM, potential=lambda q: jnp.where(q[1] > -1, q[1], jnp.nan))

    def runs(on_failure):
        def one(y):
            start = jnp.stack([0.0, y]), [0.0, 0.0]
            return da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=30, on_failure=on_failure)

        return jax.vmap(one)(jnp.array([0.0, 50.0]))

    lost, held = runs("nan"), runs("hold")
    for sol in (lost, held):
        assert sol.code.tolist() == [da.Status.NOT_FINITE.code, da.Status.OK.code]
        assert sol.steps.tolist() == [14, 30]
        assert np.all(np.isfinite(sol.q[0, :15]))
        assert np.all(np.isfinite(sol.q[1]))
    assert np.all(np.isnan(lost.q[0, 15:]))
    np.testing.assert_array_equal(held.q[0, 14:], np.broadcast_to(held.q[0, 14], (17, 2)))


def test_forces_are_refused_inside_other_jax_code_too():
    system = da.system(**PENDULUM, forces=lambda q, v: -v)
    with pytest.raises(ValueError, match="without non-conservative forces"):
        jax.jit(lambda x: da.simulate(system, da.DLA01(), jnp.stack([x, 0.0]), [1.0, 0.0], h=0.1, steps=5).q)(
            0.4
        )


def test_a_traced_number_in_a_closure():
    def end(k):
        system = da.system(**PENDULUM, potential=lambda q: k * q[0] ** 2)
        return da.simulate(system, da.LeapFrog(), [1.0, 0.0], [0.0, 0.0], h=0.1, steps=3).q[-1, 0]

    with pytest.raises(ValueError, match=r"captured inside the system's functions.*parameters="):
        jax.grad(end)(2.0)


@pytest.mark.parametrize(
    ("potential", "words"),
    [
        (lambda q: np.sin(q[0]), "jnp.sin, not np.sin"),
        (lambda q: q[0] if q[0] > 0 else -q[0], "jnp.where instead of if"),
        (lambda q: float(q[0]), "leave out float"),
    ],
    ids=["NumPy", "if", "float"],
)
def test_functions_that_jax_cannot_compile(potential, words):
    system = da.system(**PENDULUM, potential=potential)

    def end(q):
        return da.simulate(system, da.LeapFrog(), q, [0.0, 0.0], h=0.1, steps=3).q[-1, 0]

    for call in (end, jax.jit(end)):
        with pytest.raises(ValueError, match=words):
            call(np.array([1.0, 0.0]))


def test_reference_is_differentiable_forward():
    def end(eps):
        system = da.zoo.PendulumCVT(eps)
        return da.simulate(system, da.Reference(), *system.start(), h=0.5, steps=2).q[-1, 0]

    d = 1e-5
    expected = (float(end(0.5 + d)) - float(end(0.5 - d))) / (2 * d)
    assert float(jax.jacfwd(end)(0.5)) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("when", [1, 2, 3, 4, 5, 6])
def test_an_interrupt_at_any_moment_leaves_a_sound_trajectory(when, monkeypatch):
    """Ctrl-C raised inside the loop's own bookkeeping."""
    calls = []
    clock = run.time.perf_counter

    def interrupting():
        calls.append(1)
        if len(calls) == when:
            raise KeyboardInterrupt
        return clock()

    system = da.zoo.PendulumCVT()
    with monkeypatch.context() as patch:
        patch.setattr(run.time, "perf_counter", interrupting)
        with pytest.warns(UserWarning, match="interrupted"):
            sol = da.simulate(system, da.LeapFrog(), *system.start(), h=0.1, steps=100_000, save_every=7)
    assert sol.status is da.Status.INTERRUPTED
    assert len(sol.t) == len(sol.q) == len(sol.v) == len(sol.multipliers)
    assert np.all(np.diff(sol.t) > 0)
    assert sol.t[-1] == pytest.approx(0.1 * int(sol.steps))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"h": "0.1"}, "h must be one finite number"),
        ({"h": None}, "h must be one finite number"),
        ({"h": True}, "h must be one finite number"),
        ({"t0": 1j}, "t0 must be one finite number"),
        ({"save_every": 10**20}, "save_every must be a whole number"),
    ],
)
def test_numbers_that_are_none(change, message):
    system = da.zoo.KnifeEdge()
    with pytest.raises(ValueError, match=message):
        da.simulate(system, da.LeapFrog(), *system.start(), **({"h": 0.1, "steps": 2} | change))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.DLA("0.5"), "alpha between 0 and 1"),
        (lambda: da.DLA(None), "alpha between 0 and 1"),
        (lambda: da.DLA(jnp.array(2.0)), "alpha between 0 and 1"),
        (lambda: da.Composition(da.FrameGradient, 4), "needs a method such as"),
        (lambda: da.Composition("frame", 4), "needs a method such as"),
        (lambda: da.Composition(da.FrameGradient(), 4.0), "orders 4, 6, 8"),
        (lambda: da.Reference("a", 1.0), "positive tolerances"),
        (lambda: da.system(coordinates=2), "coordinates must be a tuple of names"),
        (lambda: da.system(coordinates=("x",), parameters=[1.0]), "parameters must map names"),
        (lambda: da.zoo.NonholonomicParticle(potential="V"), "must be a function of q"),
    ],
)
def test_making_things_from_nonsense(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"metric": lambda q: np.diag([1, 2])}, "floating-point numbers, got int"),
        ({"potential": lambda q: 0}, "floating-point numbers, got int"),
        ({"potential": lambda q: 1j * q[0]}, "floating-point numbers, got complex"),
        ({"constraints": lambda q: [[1.0, 0.0]]}, "must return one array, got a list"),
        ({"potential": lambda q: jnp.sqrt(jnp.sum(q**2))}, "gradient of the potential is NaN"),
        ({"angles": ("x")}, "angles must be a tuple"),
        ({"units": "mm"}, "units must be a tuple"),
        (
            {
                "constraints": lambda q: jnp.array([[0.0, 1.0]]),
                "frame": lambda q: jnp.array([[1.0], [0.0]]) + q[0],
            },
            "contradict each other elsewhere",
        ),
    ],
)
def test_functions_that_return_nonsense(functions, message):
    system = da.system(**(PENDULUM | functions))
    with pytest.raises(ValueError, match=message):
        da.simulate(system, da.FrameGradient(), [0.0, 0.0], [0.0, 0.0], h=0.1, steps=1)
