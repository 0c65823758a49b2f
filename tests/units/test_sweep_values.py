"""Specs from Python: what is refused before anything starts, what a worker refuses, and what is read."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.results import system_kind
from dalembert.sweeps import sweeping
from dalembert.sweeps.reading import read

USUAL = {"system": "PendulumCVT", "method": "frame", "start": "rotating", "h": 0.1, "steps": 100}
VALUE = da.zoo.PendulumCVT()


def plain(**entries):
    """A usual spec, with other entries."""
    return {**USUAL, "grid": {"eps": [0.0, 0.5]}, **entries}


@pytest.fixture
def nothing_starts(monkeypatch):
    def engine(*_):
        raise AssertionError("workers were started")

    monkeypatch.setattr(sweeping, "engine", engine)


def of_two(one, other):
    return {"eps": one * other}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (3, "path of a TOML file or a dictionary, got int"),
        ([plain()], "path of a TOML file or a dictionary, got list"),
        (plain(grid={"eps": np.array([0.1, np.nan])}), "grid.eps: takes finite numbers"),
        (plain(grid={"eps": np.array([])}), "grid.eps: has no values"),
        (plain(grid={"eps": np.zeros((2, 2))}), "grid.eps: takes finite numbers"),
        (plain(grid={"eps": [True, False]}), "grid.eps: takes finite numbers .*got True"),
        (plain(grid={"eps": (x for x in (0.1, 0.2))}), "grid.eps: takes a list"),
        (plain(parameters={"eps": np.nan}, grid={"q0.x1": [0.1]}), "parameters.eps: must be a finite number"),
        (plain(parameters={"eps": None}, grid={"q0.x1": [0.1]}), "parameters.eps: must be a finite number"),
        (plain(h=np.nan), "h: must be one finite number, got nan"),
        (plain(h="0.1"), "h: must be one finite number, got '0.1'"),
        (plain(steps=True), "steps: must be a whole number"),
        (plain(method=da.FrameGradient), "method: must be a method such as"),
        (plain(system=dict), "system: must be a system, its class or its name"),
        (plain(system=VALUE, parameters={"eps": 0.1}), "parameters.eps: the system is a value already"),
        (plain(system=VALUE, grid={"epsilon": [0.1]}), "grid.epsilon: no parameter .*Did you mean eps"),
        (plain(reduce="final"), "reduce: takes a list"),
        (plain(reduce={"mine": 3}), "reduce: must be a function"),
        (plain(members=of_two, grid={"one": [0.1]}), "members: the function takes 'other', which is not swept"),
        (plain(members=3), "members: must be a function"),
        (plain(section={"coordinate": "xi", "count": 0}, reduce=["section"]), "section.count: .*at least 1"),
        (plain(section={"coordinate": "xi", "direction": "left"}, reduce=["section"]), "section.direction: .*up"),
        (plain(section={"coordinate": "xi", "at": np.inf}, reduce=["section"]), "section.at: must be one finite"),
        (plain(section="xi", reduce=["section"]), "section: must be a table"),
        (plain(start={"q": [1.0, np.nan, 0.0], "v": [0.0, 0.0, 1.0]}), "start.q: must be a list of finite numbers"),
    ],
)  # fmt: skip
def test_refused_from_python(spec, message, nothing_starts, tmp_path):
    with pytest.raises(ValueError, match=message):
        da.sweep(spec, tmp_path / "store.zarr")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("store", "options", "message"),
    [
        ("store.nc", {}, "written to a .zarr folder, got 'store.nc'"),
        ("store", {}, "written to a .zarr folder"),
        ("store.zarr", {"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ("store.zarr", {"workers": 1.5}, "workers must be a whole number"),
        ("store.zarr", {"workers": 1, "scheduler": "tcp://127.0.0.1:1"}, "leave out one of the two"),
    ],
)
def test_refused_options(store, options, message, nothing_starts, tmp_path):
    with pytest.raises(ValueError, match=message):
        da.sweep(plain(), tmp_path / store, **options)
    assert not list(tmp_path.iterdir())


def test_accepted_specs_reach_the_workers(nothing_starts, tmp_path):
    """What is refused above is refused for the reason given: the usual spec is not."""
    with pytest.raises(AssertionError, match="workers were started"):
        da.sweep(plain(), tmp_path / "store.zarr")


SLEIGH = {"system": "ChaplyginSleigh", "steps": 5, "grid": {"coordinates": ["mass-centre", "contact"]}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (SLEIGH | {"method": "leapfrog"}, "constant mass matrix, but .* of ChaplyginSleigh depends on q"),
        (
            SLEIGH | {"method": "frame", "grid": {"coordinates": ["contact", "blade"]}},
            "no coordinates 'blade'",
        ),
        (plain(grid={"v0.x1": [0.0, 0.5]}), "start velocity violates the constraint"),
        (plain(start="resting"), "no start state .*resting.*oscillating, rotating"),
        (plain(reduce=["integrals"]), "PendulumCVT names no integrals"),
    ],
)
def test_refused_by_a_worker(spec, message, scheduler, tmp_path):
    """What only the system itself can tell; there is no store before a worker has looked."""
    with pytest.raises(ValueError, match=message):
        da.sweep(spec, tmp_path / "store.zarr", scheduler)
    assert not list(tmp_path.iterdir())


def test_samples_depend_on_seed_name_and_number_alone():
    drawn = {
        "eps": {"uniform": [1.0, 3.0]},
        "q0.x1": {"normal": [2.0, 0.5]},
        "q0.x2": {"log-uniform": [0.1, 10.0]},
    }
    axis = read(plain(grid={"h": [0.1]}, random={"count": 10_000, **drawn}) | {"h": None}, system_kind).axes[
        -1
    ]
    whole = {key: axis.part(key, 0, 10_000, 3) for key in drawn}
    for key, x in whole.items():
        assert np.array_equal(axis.part(key, 4000, 8300, 3), x[4000:8300])  # across two streams
        assert not np.any(np.isin(axis.part(key, 0, 100, 4), x))
    fewer = read(plain(random={"count": 5, "q0.x1": drawn["q0.x1"]}), system_kind).axes[-1]
    assert np.array_equal(fewer.part("q0.x1", 0, 5, 3), whole["q0.x1"][:5])
    # The mean of n samples is within 5 deviations/sqrt(n) of the distribution's but once in a million seeds.
    for x, mean, deviation in (
        (whole["eps"], 2.0, 2 / 12**0.5),
        (whole["q0.x1"], 2.0, 0.5),
        (np.log10(whole["q0.x2"]), 0.0, 2 / 12**0.5),
    ):
        assert abs(np.mean(x) - mean) < 5 * deviation / 100
        assert abs(np.std(x) - deviation) < 5 * deviation / 100
        assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.05


@pytest.mark.parametrize("h", [0.1, 0.03, 0.011, 7.0])
def test_a_time_is_reached(h):
    steps, every = read(plain(time=60.0, rows=100) | {"steps": None}, system_kind).length(h)
    assert steps * h >= 60.0 * (1 - 1e-9)
    assert every % 2  # both signs of a mode that alternates are seen


def in_a_function():
    class Local(da.zoo.PendulumCVT):
        extra: float = 0.25

    return Local


@pytest.mark.parametrize("system", [in_a_function(), in_a_function()(extra=3.0)], ids=["class", "value"])
def test_classes_that_workers_cannot_import_are_refused(system, nothing_starts, tmp_path):
    """Sent by value they would arrive without their fields."""
    with pytest.raises(ValueError, match=r"system: the class .*Local is made in a script.*into a file"):
        da.sweep(plain(system=system), tmp_path / "store.zarr")
    assert not list(tmp_path.iterdir())


def test_systems_and_functions_made_on_the_spot(scheduler, tmp_path):
    """A system made from functions, swept by the name of a parameter; two lambdas, which share a name."""

    def skate(slope):
        return da.system(
            coordinates=("x", "y", "theta"),
            lagrangian=lambda q, v, p: 0.5 * p["mass"] * jnp.sum(v**2) - p["slope"] * q[1],
            constraints=lambda q, p: jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]]),
            parameters={"mass": 2.0, "slope": slope},
        )

    start = {"q": [0.0, 0.0, 0.0], "v": [1.0, 0.0, 0.5]}
    spec = {"system": skate(0.3), "method": "frame", "h": 0.1, "steps": 50, "start": start}
    spec |= {"reduce": {"x": lambda sol: sol.q[:, -1, 0], "y": lambda sol: sol.q[:, -1, 1]}}
    data = da.sweep(spec | {"grid": {"slope": [0.1, 0.7]}}, tmp_path / "store.zarr", scheduler)
    for i, slope in enumerate((0.1, 0.7)):
        run = da.simulate(skate(slope), da.FrameGradient(), *start.values(), h=0.1, steps=50)
        # An ensemble agrees with a single run to rounding, over 50 steps.
        np.testing.assert_allclose([data.x[i], data.y[i]], run.q[-1, :2], rtol=0, atol=1e-12)
    other = {"reduce": {"x": lambda sol: sol.q[:, -1, 0], "y": lambda sol: 2 * sol.q[:, -1, 1]}}
    with pytest.raises(ValueError, match=r"another spec or version:\n  sources"):
        da.sweep(spec | other | {"grid": {"slope": [0.1, 0.7]}}, tmp_path / "store.zarr", scheduler)


def test_latitudes(scheduler, tmp_path):
    spec = plain(steps=2000, save_every=1, reduce=["latitude"], grid={"eps": [0.1, 0.5], "v0.xi": [2.6, 2.8]})
    data = da.sweep(spec, tmp_path / "store.zarr", scheduler)
    for (i, eps), (j, speed) in itertools.product(enumerate((0.1, 0.5)), enumerate((2.6, 2.8))):
        system = da.zoo.PendulumCVT(eps=eps)
        q0, v0 = [1.0, 1.0, 0.0], [0.0, 0.0, speed]
        run = da.simulate(system, da.FrameGradient(), q0, v0, h=0.1, steps=2000)
        expected = da.diagnostics.Latitude.of(system, q0, v0, 0.1)
        worst = np.max(np.abs(expected.along(run)[1] - expected.start))
        # The run of an ensemble differs by rounding, which 2000 steps multiply.
        assert float(data.latitude[i, j]) == pytest.approx(expected.start, abs=1e-12)
        assert float(data.latitude_error[i, j]) == pytest.approx(worst, rel=1e-6)


def test_what_a_members_function_may_give(scheduler, tmp_path):
    def members(speed):
        return {"sped": speed}

    with pytest.raises(ValueError, match=r"members function may give: 'sped'.*h, q0, v0, eps"):
        da.sweep(plain(members=members, grid={"speed": [1.0]}), tmp_path / "store.zarr", scheduler)
    with pytest.raises(ValueError, match=r"could not be run and reduced:\n(.*\n)*ZeroDivisionError"):
        da.sweep(plain(reduce=[lambda sol: 1 // 0]), tmp_path / "store.zarr", scheduler)
    assert not list(tmp_path.iterdir())
