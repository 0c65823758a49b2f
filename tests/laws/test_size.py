"""Systems of many coordinates: the same mechanics, in code whose length does not depend on their number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import towed

import dalembert as da
from dalembert.kernels import Loop, choice
from dalembert.kernels.array_loop import ArrayLoop
from dalembert.methods import State, base, method_from_text
from dalembert.model import as_arrays
from dalembert.simulation import engines
from dalembert.simulation.loop import scan

FRAME = da.FrameGradient()


def made(system, method=FRAME):
    return engines._make(as_arrays(system), as_arrays(method))


def turning(trailers):
    """A car whose trailers make a bend, and that begins to turn."""
    car = da.zoo.Car(trailers=trailers)
    q0 = np.asarray(car.start("bent")[0])
    return car, q0, np.asarray(car.frame(q0) @ np.array([1.0, 0.4]))


@pytest.mark.parametrize("trailers", [10, 40])
def test_states_of_a_car_after_100_steps(monkeypatch, trailers):
    """13 and 43 coordinates, in the form of arrays, against plain NumPy in which D has two dimensions from the start.

    Both solve their equations to rounding, and this motion does not amplify roundings: 1e-13 was seen after a way of 5.
    """
    monkeypatch.setenv(choice.VARIABLE, "arrays")
    car, q0, v0 = turning(trailers)
    q, v = towed.run(q0, v0, 0.05, 100)
    sol = da.simulate(car, FRAME, q0, v0, h=0.05, steps=100, save_every=100)
    np.testing.assert_allclose(sol.q[-1], q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(sol.v[-1], v, rtol=0, atol=1e-11)
    assert np.max(np.abs(q - q0)) > 1


def test_energy_and_constraints_of_forty_trailers():
    """Exact but for rounding: 20,000 steps of at most 1e-16 each, which add up like a random walk or a little worse."""
    car = da.zoo.Car(trailers=40)
    sol = da.simulate(car, FRAME, *car.start(), h=0.05, steps=20_000, save_every=500)
    energy = np.asarray(sol.energy())
    assert np.ptp(energy) < 1e-11 * energy[0]
    assert np.max(np.abs(sol.constraint_residual())) < 1e-12


def test_what_is_not_kept_by_forty_trailers():
    """The variational method keeps no energy, so that the check above can fail."""
    car = da.zoo.Car(trailers=40)
    sol = da.simulate(car, da.VariationalDLA(), *car.start(), h=0.05, steps=200)
    energy = np.asarray(sol.energy())
    assert np.ptp(energy) > 1e-9 * energy[0]


def test_a_hundred_coordinates():
    car = da.zoo.Car(trailers=97)
    sol = da.simulate(car, FRAME, *car.start(), h=0.05, steps=50)
    energy = np.asarray(sol.energy())
    assert sol.q.shape == (51, 100)
    assert np.ptp(energy) < 1e-13 * energy[0]  # 50 roundings
    assert np.max(np.abs(sol.constraint_residual())) < 1e-13


def test_snakes_of_ten_links_in_both_coordinates():
    """30 coordinates with 18 joint equations and 10 wheels move as 12 with 10 wheels.

    The two discretisations differ by their errors of order h^2; halving h divides the difference by four.
    """
    minimal = da.zoo.Snake(links=10)
    maximal = da.zoo.Snake(links=10, coordinates="maximal")
    gaps = []
    for h, steps in ((0.02, 25), (0.01, 50)):
        runs = [da.simulate(s, FRAME, *s.start(), h=h, steps=steps) for s in (minimal, maximal)]
        gaps.append(np.max(np.abs(runs[0].q[-1, :2] - runs[1].q[-1, :2])))
        assert runs[1].q.shape[1] == 30
    assert gaps[0] < 1e-3
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("spelling", ["frame", "gni", "dla-variational"])
def test_code_does_not_grow_with_the_arrays(monkeypatch, spelling):
    monkeypatch.setenv(choice.VARIABLE, "arrays")
    lines = []
    # Rows are taken 32 entries at a time, and the code of what is left of them depends on how many are left.
    for trailers in (72, 104):
        loop = made(da.zoo.Car(trailers=trailers), method_from_text(spelling))
        assert isinstance(loop, ArrayLoop)
        lines.append(loop.text_of_many([False] * len(loop.parameters)).count("\n"))
    # Loops of up to four repetitions are written out, and lists of constants are single lines.
    assert lines[1] == pytest.approx(lines[0], rel=0.01)


@pytest.mark.parametrize(
    "spelling", ["gni", "gni:trapezoidal", "dla-variational", "dla-variational:gauss=2", "edla"]
)
@pytest.mark.parametrize("system", [da.zoo.Car(trailers=5), da.zoo.Snake(links=2, coordinates="maximal")])
def test_approximate_jacobians_solve_the_same_equations(monkeypatch, spelling, system):
    """More than five velocities: Broyden's method finds the roots that Newton's method finds."""
    method = method_from_text(spelling)
    if not method.takes(system):
        pytest.skip(f"{spelling} does not take {type(system).__name__}")
    q0, v0 = system.start()
    start = State(q0, v0, jnp.zeros(()))
    assert len(q0) > base.MANY
    ends, programs = [], []
    for many in (base.MANY, 100):
        monkeypatch.setattr(base, "MANY", many)
        # The plain loop, because kernels are made once and notice no change inside the library.
        run = jax.jit(lambda start: scan(as_arrays(system), method, start, jnp.asarray(0.05), 40, 40))
        carry, rows = run(start)
        assert int(carry.code) == da.Status.OK.code
        ends.append((rows.q[-1], rows.v[-1]))
        programs.append(str(jax.make_jaxpr(run)(start)))
    # With a constant mass matrix, the flights of the trapezoidal rule are linear and need no Jacobian.
    linear = spelling == "gni:trapezoidal" and isinstance(system, da.zoo.Snake)
    assert (programs[0] == programs[1]) == linear
    # Both solve each step to rounding: 1e-15 in positions of size ten. EDLA's step sizes are determined to the rounding
    # of the energy divided by S, 1e-16/2e-3 here, forty of which add up.
    close = 1e-10 if spelling == "edla" else 1e-12
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=0, atol=close)
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=0, atol=10 * close)
    assert np.max(np.abs(ends[0][0] - q0)) > 0.1


@pytest.mark.parametrize("spelling", ["frame", "chetaev", "gni", "dla-variational", "edla"])
def test_both_forms_say_the_same_about_a_step(monkeypatch, spelling):
    """States, multipliers, and what the method says about each step, by scalars and by arrays."""
    system, method = da.zoo.ChaplyginSleigh(), method_from_text(spelling)
    found = []
    for form in choice.FORMS:
        monkeypatch.setenv(choice.VARIABLE, form)
        sol = da.simulate(system, method, *system.start(), h=0.05, steps=20)
        found.append({"q": sol.q, "v": sol.v, "lam": sol.multipliers, **sol.step_data})
    for name, x in found[0].items():
        # EDLA finds its steps from the energy, which determines them to 1e-16/S with S = 1e-3.
        np.testing.assert_allclose(x, found[1][name], rtol=0, atol=1e-10, err_msg=name)


def test_small_systems_are_scalars_and_large_ones_arrays(monkeypatch):
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    for small in (da.zoo.Car(trailers=1), da.zoo.Snakeboard(), da.zoo.Snake(links=5)):
        assert isinstance(made(small), Loop)
    assert isinstance(made(da.zoo.Car(trailers=20)), ArrayLoop)
