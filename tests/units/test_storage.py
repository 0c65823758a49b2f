"""Saving and loading: a round trip is identical, and files say what they hold."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import dalembert as da
from dalembert.methods import Report
from dalembert.model import project

SAME = ("t", "q", "v", "v_full", "multipliers", "residual", "steps", "h")


def runs():
    board = da.zoo.Snakeboard(mass=1.3, convention="absolute")
    yield da.simulate(board, da.FrameGradient(), *board.start(), h=0.1, steps=50, save_every=7, t0=1.5)
    cvt = da.zoo.PendulumCVT(eps=0.5)
    yield da.simulate(cvt, da.DLA(0.4), *cvt.start(), h=0.1, steps=20)
    sleigh = da.zoo.ChaplyginSleigh(coordinates="mass-centre")
    yield da.simulate(sleigh, da.Composition(da.DLA01(), 4), *sleigh.start(), h=0.1, steps=20)
    car = da.zoo.Car(trailers=1, hitch=0.2)
    yield da.simulate(car, da.FrameGradient(), *car.start(), h=0.1, steps=20)
    snake = da.zoo.Snake(links=2, coordinates="maximal")
    yield da.simulate(snake, da.DLA01(), *snake.start(), h=0.02, steps=20)


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
@pytest.mark.parametrize("run", list(runs()), ids=["snakeboard", "cvt", "sleigh", "car", "snake"])
def test_round_trip(run, suffix, tmp_path):
    path = tmp_path / f"run{suffix}"
    run.save(path)
    back = da.load(path)
    for name in SAME:
        np.testing.assert_array_equal(getattr(back, name), getattr(run, name))
    assert back.status is run.status
    assert back.save_every == run.save_every
    assert back.method == run.method or back.method.cli_name == run.method.cli_name
    assert type(back.system) is type(run.system)
    assert back.system.coordinates == run.system.coordinates
    np.testing.assert_array_equal(back.energy(full=True), run.energy(full=True))
    # Saved again, the file is the same.
    back.save(tmp_path / f"again{suffix}")
    xarray.testing.assert_identical(back.to_xarray(), run.to_xarray())


def test_contents_are_plain_xarray(tmp_path):
    board = da.zoo.Snakeboard()
    sol = da.simulate(board, da.FrameGradient(), *board.start(), h=0.1, steps=5)
    sol.save(tmp_path / "run.zarr")
    data = xarray.open_zarr(tmp_path / "run.zarr")
    assert data.q.dims == ("time", "coordinate")
    assert data.coordinate.values.tolist() == ["x", "y", "theta", "psi", "phi"]
    assert data.unit.values.tolist() == ["m", "m", "rad", "rad", "rad"]
    assert data.q.sel(coordinate="phi").values[0] == 0.4
    assert data.attrs["method"] == "frame"
    assert data.attrs["step"] == 0.1
    assert data.attrs["status"] == "OK"
    assert json.loads(data.attrs["parameters"])["rotor"] == 0.5
    assert set(json.loads(data.attrs["versions"])) == {"dalembert", "jax", "numpy"}


def own_system():
    return da.system(
        coordinates=("x", "y"),
        metric=lambda q: jnp.eye(2),
        potential=lambda q: jnp.where(q[1] > -1, q[1], jnp.nan),
        constraints=lambda q: jnp.array([[1.0, 0.0]]),
    )


def test_a_system_of_ones_own_and_a_failed_run(tmp_path):
    system = own_system()
    sol = da.simulate(system, da.LeapFrog(), [0.0, 0.0], [0.0, 0.0], h=0.01, steps=1000, throw=False)
    sol.save(tmp_path / "run.nc")
    back = da.load(tmp_path / "run.nc")
    assert back.system is None
    assert back.status is da.Status.NOT_FINITE
    np.testing.assert_array_equal(back.energy(), sol.energy())
    np.testing.assert_array_equal(back.constraint_residual(), sol.constraint_residual())
    back.save(tmp_path / "again.zarr")
    again = da.load(tmp_path / "again.zarr", system=system)
    assert again.system is system
    np.testing.assert_array_equal(again.energy(), sol.energy())
    assert "stored system" in repr(back)


def test_bad_paths(tmp_path):
    sol = da.simulate(da.zoo.KnifeEdge(), da.LeapFrog(), *da.zoo.KnifeEdge().start(), h=0.1, steps=1)
    with pytest.raises(ValueError, match=r"\.zarr and \.nc.*got 'run.csv'"):
        sol.save(tmp_path / "run.csv")
    with pytest.raises(FileNotFoundError, match="no trajectory at"):
        da.load(tmp_path / "nothing.zarr")
    xarray.Dataset({"a": 1}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match="not a trajectory"):
        da.load(tmp_path / "other.nc")
    sol.save(tmp_path / "run.nc")
    with pytest.raises(ValueError, match="has the coordinates"):
        da.load(tmp_path / "run.nc", system=own_system())


class Alternating(da.Method):
    """Kick and project with steps of h and h/2 in turn, which says something of each."""

    variable_step = True

    def init(self, system, state, h):
        return jnp.zeros(())

    def step(self, system, state, memory, h):
        size = jnp.where(memory % 2 == 0, h, h / 2)
        v = project(system, state.q, state.v - size * system.potential_gradient(state.q))
        q = state.q + size * v
        return state.moved(q, project(system, q, v), size), memory + 1, Report.explicit()

    def step_data(self, system, state, memory):
        return {"count": memory, "table": memory * jnp.ones((2, 4))}


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_own_steps_of_different_size(tmp_path, suffix):
    """Times and what a method tells, of any shape, in single runs and ensembles, and back from a file."""
    knife = da.zoo.KnifeEdge()
    q0, v0 = knife.start()
    sol = da.simulate(knife, Alternating(), q0, v0, h=0.2, steps=5, t0=1.0)
    assert np.allclose(sol.t, [1.0, 1.2, 1.3, 1.5, 1.6, 1.8], rtol=0, atol=1e-15)
    assert sol.step_data["table"].shape == (6, 2, 4)
    assert np.array_equal(sol.step_data["count"], np.arange(6))
    sol.save(tmp_path / f"run.{suffix}")
    again = da.load(tmp_path / f"run.{suffix}", system=knife)
    assert np.array_equal(again.t, sol.t)
    assert np.array_equal(again.step_data["table"], sol.step_data["table"])
    many = da.ensemble(knife, Alternating(), np.stack([q0, q0]), v0, h=np.array([0.2, 0.1]), steps=5)
    assert many.t.shape == (2, 6)
    assert np.allclose(many.t[0] + 1, sol.t, rtol=0, atol=1e-15)
    assert many.member(1).step_data["table"].shape == (6, 2, 4)
