"""Sweeps against plain runs one at a time, whose numbers are computed by the formulas of sweep_reference."""

import functools
import json
import math
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from equations.sweep_reference import compare, design, reference, same

import dalembert as da

Z = da.zoo


class Bowl(da.System):
    """A particle in a bowl; its starts depend on a parameter, and beyond x = edge there is no potential."""

    coordinates = ("x", "y", "z")
    units = ("m", "m", "m")
    depth: float = 1.0
    edge: float = 100.0

    def metric(self, q):
        return jnp.diag(jnp.array([1.0, 2.0, 3.0]))

    def potential(self, q):
        return 0.5 * self.depth * (q[0] ** 2 + q[1] ** 2) + 0.1 * jnp.sqrt(self.edge - q[0])

    def constraints(self, q):
        return jnp.array([[-q[1], 0.0, 1.0]])

    def starts(self):
        return {
            "side": ([0.4 * self.depth, 0.5, 0.0], [1.0, 0.0, 0.5]),
            "low": ([0.0, 0.1, 0.0], [self.depth, 1.0, 0.1 * self.depth]),
        }


def thrown(speed, angle):
    """From speed and direction to the velocity; a fast one gets a deep bowl."""
    return {
        "v0.x": speed * np.cos(angle),
        "v0.y": speed * np.sin(angle),
        "depth": 1 + speed,
        "h": 0.1 / speed,
    }


PENDULUM = {
    "system": Z.PendulumCVT, "start": "rotating", "steps": 460, "seed": 3,
    "reduce": ["final", "energy", "own_energy", "constraint", "section"],
    "section": {"coordinate": "xi", "at": 0.4, "count": 6},
    "grid": {
        "method": ["leapfrog", "dd:average", "frame"],
        "eps": {"from": 0.0, "to": 0.4, "count": 2},
        "h": {"from": 0.02, "to": 0.15, "count": 2, "spacing": "log", "unit": "s"},
    },
    "random": {"count": 3, "v0": {"xi": {"uniform": [2.5, 3.0], "unit": "1/s"}}},
}  # fmt: skip
# 460 rows are enough for a verdict, and a hundredth of them is no half number of rows, which would round either way.
SWEEPS = {
    "pendulum": PENDULUM,
    "snakeboard": {
        "system": Z.Snakeboard, "method": "leapfrog", "parameters": {"board": 1.1},
        "steps": 920, "save_every": 2, "window": 0.2, "t0": 1.0,
        "reduce": ["final", "energy", "integrals"],
        "grid": {"convention": ["relative", "absolute"], "h": {"values": [0.02, 0.04], "unit": "s"}},
        "list": {"mass": [1.0, 2.0, 1.0], "rotor": [0.5, 0.7, 0.9], "q0": {"x": [0.0, 1.0, 2.0]}},
    },
    "sleigh": {
        "system": Z.ChaplyginSleigh, "method": "frame", "steps": 40,
        "reduce": ["final", "energy"],
        "grid": {"coordinates": ["contact", "mass-centre"], "offset": [0.1, 0.2]},
    },
    "a class of one's own, for a time": {
        "system": Bowl, "start": "low", "method": "leapfrog", "time": 46.0, "rows": 460,
        "reduce": ["final", "energy", "own_energy", "section"],
        "section": {"coordinate": "y", "at": 0.2, "direction": "both", "count": 30},
        "grid": {"h": [0.1, 0.1 / 3], "depth": [1.0, 1.5, 2.0]},
    },
    "projected": {
        "system": Bowl, "method": "frame", "h": 0.1, "steps": 460, "project": True,
        "reduce": ["final", "energy", "constraint"],
        "grid": {"v0.z": [0.3, 0.9], "q0.y": [-0.5, 0.8]},
        "random": {"count": 2, "v0": {"x": {"normal": [1.0, 0.2]}}, "depth": {"log-uniform": [0.5, 2.0]}},
    },
    "members": {
        "system": Bowl, "method": "frame", "steps": 150, "project": True, "members": thrown,
        "reduce": ["final", "energy"],
        "grid": {"speed": [0.8, 1.2], "angle": [0.3, 0.9], "edge": [50.0, 100.0]},
    },
    "starts, and ends before the end": {
        "system": Bowl, "method": "leapfrog", "h": 0.05, "steps": 200,
        "reduce": ["final", "energy", "constraint"],
        "grid": {"start": ["side", "low"], "edge": [0.9, 100.0], "depth": [1.0, 2.0]},
    },
    "a start of one's own": {
        "system": Bowl, "method": "leapfrog", "h": 0.05, "steps": 8, "reduce": ["energy"],
        "start": {"q": [0.1, 0.2, 0.3], "v": [1.0, 0.5, 0.2]},
        "grid": {"depth": [1.0, 2.0]},
    },
    "suslov": {
        "system": Z.Suslov, "method": "lie-gni", "h": 0.05, "steps": 460,
        "reduce": ["final", "energy", "constraint"],
        "grid": {"i13": [0.3, 0.4], "v0": {"w1": [0.5, 1.0], "w2": [-0.3, 1.0]}},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def swept(scheduler, tmp_path_factory):
    """The result of a sweep by its name, and its store; each runs once."""

    @functools.cache
    def run(name):
        path = tmp_path_factory.mktemp("sweeps") / "one.zarr"
        return da.sweep(SWEEPS[name], path, scheduler).load(), path

    return run


@functools.cache
def runs(name, drawn):
    """The second road to a sweep; `drawn` are the random samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks of methods about these runs
        return reference(SWEEPS[name], {key: np.array(x) for key, x in drawn})


def second_road(name, data):
    keys = [str(key) for key in data.coords if data[key].dims == ("sample",)]
    return runs(name, tuple((key, tuple(data[key].values.tolist())) for key in keys))


@pytest.mark.parametrize("name", SWEEPS)
def test_every_number(swept, name):
    data, _ = swept(name)
    expected = second_road(name, data)
    compare(data, expected)
    assert set(data.data_vars) == {*expected, "done", "attempts"}


def test_what_the_sweeps_contain(swept):
    """The comparison above says something: slopes, crossings, ends before the end, verdicts of every kind."""
    words = {name: swept(name)[0]["energy_verdict"].values for name in SWEEPS}
    meanings = swept("pendulum")[0]["energy_verdict"].attrs["flag_meanings"].split()
    assert {meanings[i] for x in words.values() for i in x.ravel()} == {*meanings}
    data, _ = swept("pendulum")
    assert np.all(np.isfinite(data["energy_slope"]))
    assert np.any(np.isnan(data["section_t"]))
    assert np.any(data["section_count"] > 6)
    assert np.ptp(data["energy_error"].sel(integrator="leapfrog").values) > 1e-6
    early, _ = swept("starts, and ends before the end")
    assert 0 < int(np.sum(early["status"] != 0)) < early["status"].size
    assert np.all(early["steps_done"].values[early["status"].values != 0] < 200)


def test_another_design_does_not_agree(swept):
    """The comparison tells trajectories apart: with two values exchanged it fails."""
    data, _ = swept("starts, and ends before the end")
    with pytest.raises(AssertionError):
        compare(data.isel(depth=[1, 0]), second_road("starts, and ends before the end", data))


def test_coordinates_name_the_trajectories(swept):
    """What stands at the coordinates of a trajectory is what it was run with."""
    for name in SWEEPS:
        data, _ = swept(name)
        shape, chosen = design(SWEEPS[name], data)
        for place, values in zip(np.ndindex(*shape), chosen, strict=True):
            where = dict(zip(data["status"].dims, place, strict=True))
            for key, x in values.items():
                column = data["integrator" if key == "method" else key]
                found = column.isel({dim: i for dim, i in where.items() if dim in column.dims}).item()
                # linspace and geomspace may round in another order.
                assert found == x or math.isclose(found, x, rel_tol=1e-14), (name, key)


def test_section_of_a_known_motion(scheduler, tmp_path):
    """The driver of HarmonicCVT is a harmonic oscillator, and leap-frog on it is a sampled cosine:
    x_n = a cos(w n h + p) with cos(w h) = 1 - h^2/2, and the velocity -a (sin(w h)/h) sin(w n h + p)."""
    h, steps, at = 0.05, 400, 0.3
    starts = {"q0.xi": [0.0, 0.5, -0.8], "v0.xi": [1.0, 0.3, -1.5]}
    spec = {
        "system": "HarmonicCVT",
        "method": "leapfrog",
        "h": h,
        "steps": steps,
        "project": True,
        "reduce": ["section"],
        "section": {"coordinate": "xi", "at": at, "count": 10},
        "list": starts,
    }
    data = da.sweep(spec, tmp_path / "known.zarr", scheduler).load()
    w = math.acos(1 - h**2 / 2) / h
    speed = math.sin(w * h) / h
    for case, (x, v) in enumerate(zip(*starts.values(), strict=True)):
        a, p = math.hypot(x, v / speed), math.atan2(-v / speed, x)
        times = (2 * math.pi * np.arange(10) - math.acos(at / a) - p) / w
        times = times[(times > 0) & (times < h * steps)]
        there = a * math.sqrt(1 - (at / a) ** 2)
        # The cubic between two rows is off by h^4/384 of the fourth derivative, and by up to h/4 times what the
        # velocities of its ends are off, a h^2/6: together less than this.
        off = a * (h**4 / 384 + h**3 / 24)
        assert data["section_count"][case] == len(times) >= 3
        found = data["section_t"][case].values
        np.testing.assert_allclose(found[: len(times)], times, rtol=0, atol=off / there)
        assert np.all(np.isnan(found[len(times) :]))
        states = data["section_q"][case].sel(coordinate="xi").values[: len(times)]
        np.testing.assert_allclose(states, at, rtol=0, atol=1e-13)  # bisection to rounding
        # The derivative of that cubic: one power of h less, and constants below 1.
        speeds = data["section_v"][case].sel(coordinate="xi").values[: len(times)]
        np.testing.assert_allclose(speeds, w * there, rtol=0, atol=a * h**2)


SMALL = PENDULUM | {
    "steps": 100,
    "method": "leapfrog",
    "grid": {"eps": [0.1, 0.4], "h": [0.1, 0.2]},
    "random": {"count": 7, "v0": {"xi": {"uniform": [2.5, 3.0]}}},
}


def test_blocks_workers_and_seeds(scheduler, tmp_path):
    spec = SMALL | {"block": 4}
    cut = da.sweep(spec, tmp_path / "cut.zarr", scheduler).load()
    assert cut.sizes["block"] > 4
    for workers in (1, 2):
        same(cut, da.sweep(spec, tmp_path / f"{workers}.zarr", workers=workers).load())
    whole = da.sweep(SMALL, tmp_path / "whole.zarr", scheduler).load()
    assert whole.sizes["block"] == 1
    assert np.array_equal(cut["v0.xi"], whole["v0.xi"])
    compare(cut, {key: whole[key].values for key in whole.data_vars if whole[key].dims != ("block",)})
    other = da.sweep(SMALL | {"seed": 4}, tmp_path / "other.zarr", scheduler).load()
    assert not np.any(np.isin(other["v0.xi"], cut["v0.xi"]))
    for data in (cut, other):
        assert np.all((data["v0.xi"] >= 2.5) & (data["v0.xi"] <= 3.0))
        assert len(set(data["v0.xi"].values)) == 7


def test_the_store_tells_about_itself(swept):
    data, path = swept("snakeboard")
    opened = xarray.open_zarr(path)
    assert opened.load().identical(data)
    assert dict(opened["energy"].sizes) == {"convention": 2, "h": 2, "case": 3}
    assert opened["q"].dims == ("convention", "h", "case", "coordinate")
    assert opened["integral_slope"].dims[-1] == "integral"
    assert list(opened["coordinate"].values) == list(Z.Snakeboard.coordinates)
    assert list(opened["integral"].values) == ["rotor speed", "steering speed"]
    for key, dim in {
        "convention": "convention",
        "h": "h",
        "mass": "case",
        "rotor": "case",
        "q0.x": "case",
    }.items():
        assert key in opened.coords
        assert opened[key].dims == (dim,)
    assert opened["h"].attrs["units"] == "s"
    assert opened["q0.x"].attrs["units"] == "m"
    for key in ("status", "energy_verdict", "integral_verdict"):
        attrs = opened[key].attrs
        assert len(attrs["flag_values"]) == len(attrs["flag_meanings"].split())
    for key in opened.data_vars:
        assert opened[key].attrs["long_name"]
    told = json.loads(opened.attrs["spec"])
    assert (told["parameters"], told["steps"], told["t0"]) == ({"board": 1.1}, 920, 1.0)
    versions = json.loads(opened.attrs["versions"])
    assert versions["dalembert"] == da.__version__
    assert {"jax", "numpy"} <= set(versions)
    assert swept("pendulum")[0].attrs["seed"] == 3
    assert swept("pendulum")[0]["v0.xi"].attrs["units"] == "1/s"
