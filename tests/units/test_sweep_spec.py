"""Malformed specs are refused before anything starts, with the file, the line and the key of what is wrong."""

import subprocess
import sys
import tomllib

import pytest

import dalembert as da
from dalembert.sweeps import sweeping
from dalembert.sweeps.spec import line_of

USUAL = {
    "system": '"PendulumCVT"',
    "method": '"frame"',
    "start": '"rotating"',
    "h": "0.1",
    "steps": "100",
}


def written(tables="[grid]\neps = [0.0, 0.5]", **entries):
    """The text of a spec; entries that are None are left out."""
    top = [f"{key} = {text}" for key, text in (USUAL | entries).items() if text is not None]
    return "\n".join(["# a spec", *top, "", tables, ""])


def grid(text, **entries):
    return written(f"[grid]\n{text}  # here", **entries)


def snakeboard(text, **entries):
    return grid(text, system='"Snakeboard"', start=None, **entries)


def sampled(text, **entries):
    return written(f"[random]\ncount = 3\n{text}  # here", **entries)


H = {"h": None}
SECTION = "[grid]\neps = [0.0, 0.5]\n[section]"
# The text, its wrong line marked; the key; what is said. Where no line is marked the key is not in the file.
REFUSED = {
    "unknown method": (grid('method = ["frame", "fram"]', method=None), "grid.method", "no method 'fram'"),
    "unknown fixed method": (written(method='"leapfrog:up"  # here'), "method", "half-kick"),
    "method is a number": (written(method="3  # here"), "method", "must be a method"),
    "no method": (written(method=None), "method", "is missing"),
    "method twice": (written('[grid]\nmethod = ["frame"]', method='"dla"  # here'), "method", "swept as well"),
    "unknown system": (written(system='"PendulumCV"  # here'), "system", "Did you mean PendulumCVT"),
    "no system": (written(system=None), "system", "is missing"),
    "system is a number": (written(system="3  # here"), "system", "must be a system"),
    "system not to import": (written(system='"nowhere:Thing"  # here'), "system", "cannot import 'nowhere'"),
    "not a system": (written(system='"json:dumps"  # here'), "system", "not a subclass of dalembert.System"),
    "parameter": (grid("ep = [0.1, 0.2]"), "grid.ep", "no parameter .*'ep'. Did you mean eps"),
    "fixed parameter": (
        written("[parameters]\nepps = 0.1  # here\n[grid]\nh = [0.1]", **H), "parameters.epps", "Did you mean eps",
    ),
    "fixed and swept": (
        written("[parameters]\neps = 0.1  # here\n[grid]\neps = [0.1]"), "parameters.eps", "swept as well",
    ),
    "fixed NaN": (
        written("[parameters]\neps = nan  # here\n[grid]\nh = [0.1]", **H), "parameters.eps", "finite number",
    ),
    "coordinate": (grid("q0.x3 = [0.1]"), "grid.q0.x3", "no coordinate .*'x3'.*x1, x2, xi"),
    "velocity": (grid('"v0.xj" = [0.1]'), "grid.v0.xj", "no velocity .*'xj'.*x1, x2, xi"),
    "drawn coordinate": (sampled("v0.y = { uniform = [0.0, 1.0] }"), "random.v0.y", "no velocity .*'y'"),
    "name of a dimension": (grid("sample = [0.1]"), "grid.sample", "rename it"),
    "nothing swept": (written(""), "grid", "nothing is swept"),
    "empty grid": (written("[grid]  # here"), "grid", "is empty"),
    "grid is no table": (written("", grid="3  # here"), "grid", "must be a table"),
    "no values": (grid("eps = []"), "grid.eps", "has no values"),
    "no values in a list": (written("[list]\neps = []  # here"), "list.eps", "has no values"),
    "count 0": (grid("eps = { from = 0.0, to = 1.0, count = 0 }"), "grid.eps", "at least 1, got 0"),
    "count 1.5": (grid("eps = { from = 0.0, to = 1.0, count = 1.5 }"), "grid.eps", "whole number"),
    "from is to": (grid("eps = { from = 1.0, to = 1.0, count = 3 }"), "grid.eps", "would be the same"),
    "range with another key": (grid("eps = { from = 0.0, to = 1.0, step = 3 }"), "grid.eps", "from, to, step"),
    "spacing": (grid('eps = { from = 1.0, to = 2.0, count = 3, spacing = "lg" }'), "grid.eps", "linear, log"),
    "log from 0": (grid('eps = {from = 0.0, to = 2.0, count = 3, spacing = "log"}'), "grid.eps", "positive ends"),
    "one value without a list": (grid("eps = 0.1"), "grid.eps", "takes a list"),
    "no samples": (written("[random]\ncount = 0  # here\neps = {uniform = [0, 1]}"), "random.count", "at least 1"),
    "samples without count": (written("[random]  # here\neps = {uniform = [0, 1]}"), "random.count", "got None"),
    "nothing drawn": (written("[random]  # here\ncount = 3"), "random", "no quantity"),
    "distribution": (sampled("eps = { gauss = [0.0, 1.0] }"), "random.eps", "uniform, normal, log-uniform"),
    "bounds exchanged": (sampled("eps = { uniform = [1.0, 0.0] }"), "random.eps", "low must be less than high"),
    "deviation": (sampled("eps = { normal = [1.0, 0.0] }"), "random.eps", "deviation must be positive"),
    "log-uniform from 0": (sampled("eps = { log-uniform = [0.0, 1.0] }"), "random.eps", "positive ends"),
    "three bounds": (sampled("eps = { uniform = [1.0, 2.0, 3.0] }"), "random.eps", "two numbers"),
    "drawn method": (sampled("method = { uniform = [0.0, 1.0] }", method=None), "random.method", "at random"),
    "negative step": (written(h="-0.1  # here"), "h", "must be positive"),
    "zero step": (grid("h = [0.1, 0.0]", **H), "grid.h", "must be positive, got 0.0"),
    "range of steps from 0": (grid("h = { from = 0.0, to = 0.1, count = 3 }", **H), "grid.h", "must be positive"),
    "steps in a list": (written("[list]\nh = [0.1, -0.1]  # here", **H), "list.h", "must be positive, got -0.1"),
    "drawn step": (sampled("h = { uniform = [0.0, 0.1] }", **H), "random.h", "must be positive"),
    "normal step": (sampled("h = { normal = [0.1, 0.01] }", **H), "random.h", "must be positive"),
    "step twice": (written("[grid]\nh = [0.1]", h="0.1  # here"), "h", "swept as well"),
    "step is a text": (grid('h = ["0.1"]', **H), "grid.h", "'0.1'"),
    "unit of a coordinate": (snakeboard('q0.x = { values = [1.0], unit = "cm" }'), "grid.q0.x", "in m, got cm"),
    "unit of an angle": (snakeboard('q0.phi = { values = [1.0], unit = "deg" }'), "grid.q0.phi", "in rad, got deg"),
    "unit of a velocity": (snakeboard('v0.x = { values = [1.0], unit = "m" }'), "grid.v0.x", "in m/s, got m"),
    "unit of a step": (
        snakeboard('h = { from = 1, to = 2, count = 2, unit = "ms" }', **H), "grid.h", "in s, got ms; convert",
    ),
    "unit is a number": (grid("eps = { values = [1.0], unit = 3 }"), "grid.eps", "a unit is a text"),
    "steps and time": (written(steps="3  # here", time="3.0"), "steps", "either steps, or time"),
    "neither": (written(steps=None), "steps", "either steps, or time"),
    "no steps": (written(steps="0  # here"), "steps", "at least 1, got 0"),
    "half a step": (written(steps="1.5  # here"), "steps", "whole number"),
    "time backwards": (written(steps=None, time="-1.0  # here"), "time", "must be positive"),
    "rows with steps": (written(rows="10  # here"), "rows", "goes with time"),
    "save_every with time": (written(steps=None, time="1.0", save_every="3  # here"), "save_every", "with steps"),
    "window 0": (written(window="0  # here"), "window", "must be positive"),
    "window below 0": (written(window="-2.0  # here"), "window", "must be positive"),
    "block 0": (written(block="0  # here"), "block", "at least 1"),
    "seed": (written(seed="-1  # here"), "seed", "at least 0"),
    "t0": (written(t0="inf  # here"), "t0", "finite"),
    "project": (written(project="1  # here"), "project", "true or false"),
    "unknown key": (written(stpes="3  # here"), "stpes", "Did you mean steps"),
    "unknown table": (written("[grdi]  # here\neps = [0.1]"), "grdi", "Did you mean grid"),
    "values twice": (grid("eps = [0.1, 0.2, 0.1]"), "grid.eps", "0.1 twice"),
    "unequal columns": (written("[list]  # here\neps = [0.1]\nh = [0.1, 0.2]", **H), "list", "eps 1, h 2"),
    "reduction": (written(reduce='["finl"]  # here'), "reduce", "Did you mean final"),
    "no reduction": (written(reduce="[]  # here"), "reduce", "takes a list"),
    "reduction twice": (written(reduce='["final", "final"]  # here'), "reduce", "twice"),
    "reduction not to import": (written(reduce='["nowhere:f"]  # here'), "reduce", "cannot import 'nowhere'"),
    "reduction not there": (written(reduce='["json:nothing"]  # here'), "reduce", "must be a function"),
    "section not asked for": (written(f'{SECTION}\ncoordinate = "xi"'), "reduce", "needs both"),
    "section not given": (written(reduce='["section"]'), "section", "needs both"),
    "section without coordinate": (
        written(f"{SECTION}  # here\nat = 0.1"), "section.coordinate", "is missing: which coordinate",
    ),
    "section of another": (
        written(f'{SECTION}\ncoordinate = "x3"  # here'), "section.coordinate", "no coordinate 'x3'",
    ),
    "entry of a section": (
        written(f'{SECTION}\ncoordinate = "xi"\ndirections = "up"  # here'), "section.directions",
        "Did you mean direction",
    ),
    "NaN": (grid("eps = [0.1, nan]"), "grid.eps", "finite numbers .*got nan"),
    "infinite": (grid("eps = { from = 0.0, to = inf, count = 3 }"), "grid.eps", "one finite number, got inf"),
    "texts": (grid('eps = ["a", "b"]'), "grid.eps", "takes numbers, got 'a'"),
    "texts for a coordinate": (grid('q0.x1 = ["a"]'), "grid.q0.x1", "takes numbers, got 'a'"),
    "numbers and texts": (grid('eps = [0.1, "a"]'), "grid.eps", "got 'a'"),
    "numbers for names": (grid("start = [1.0]", start=None), "grid.start", "takes names"),
    "start without v": (written(start="{ q = [1.0] }  # here"), "start", "takes a name, or"),
    "start of texts": (written(start='{ q = [1, 2, "a"], v = [0, 0, 0] }  # here'), "start.q", "finite numbers"),
    "number of more than 64 bits": (grid(f"eps = [1{'0' * 400}]"), "grid.eps", "finite numbers"),
    "spacing is a list": (
        grid("eps = { from = 1.0, to = 2.0, count = 3, spacing = [] }"), "grid.eps", "linear, log, got",
    ),
    "range too wide": (grid("eps = { from = -1e308, to = 1e308, count = 3 }"), "grid.eps", "can span"),
    "distribution too wide": (sampled("eps = { log-uniform = [1e-300, 1e300] }"), "random.eps", "can span"),
    "nested parameter": (
        written("[parameters]\neps = { a = { b = 1 } }  # here\n[grid]\nh = [0.1]", **H), "parameters.eps",
        "a list of such, or a text, got {'a'",
    ),
    "uneven parameter": (
        written("[parameters]\neps = [[1.0], [1.0, 2.0]]  # here\n[grid]\nh = [0.1]", **H), "parameters.eps",
        "a list of such",
    ),
    "direction is a table": (
        written(f'{SECTION}\ncoordinate = "xi"\ndirection = {{ up = 1 }}  # here'), "section.direction", "one of up",
    ),
    "count beyond the memory": (
        grid("eps = { from = 0.0, to = 1.0, count = 1000000000000000000 }"), "grid.eps",
        "count = 1,000,000,000,000,000,000 values would take 200 EB of memory, and this machine has",
    ),
    "more steps than can be counted": (
        written(steps="1000000000000000000  # here"), "steps", "1e\\+18 steps, and no more than 9.01e\\+15",
    ),
    "more time than can be counted": (written(steps=None, time="1e300  # here"), "time", "can be counted"),
    "members not swept": (
        written(members='"math:pow"  # here'), "members", "takes 'x', which is not swept",
    ),
}  # fmt: skip


@pytest.fixture
def nothing_starts(monkeypatch):
    def engine(*_):
        raise AssertionError("workers were started")

    monkeypatch.setattr(sweeping, "engine", engine)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, nothing_starts, tmp_path):
    text, key, message = REFUSED[name]
    marked = [i for i, line in enumerate(text.splitlines(), 1) if line.endswith("# here")]
    path, store = tmp_path / "spec.toml", tmp_path / "store.zarr"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as found:
        da.sweep(path, store)
    line = f"line {marked[0]}, " if marked else ""
    assert str(found.value).startswith(f"spec.toml, {line}{key}: ")
    with pytest.raises(ValueError, match=message) as found:
        da.sweep(tomllib.loads(text), store)
    assert str(found.value).startswith(f"{key}: ")
    assert [x.name for x in tmp_path.iterdir()] == ["spec.toml"]


def test_a_file_that_is_right(nothing_starts, tmp_path):
    """What is refused above is refused for the reason given: the usual spec is not."""
    (tmp_path / "spec.toml").write_text(written())
    for spec in (tmp_path / "spec.toml", str(tmp_path / "spec.toml")):
        with pytest.raises(AssertionError, match="workers were started"):
            da.sweep(spec, tmp_path / "store.zarr")


def test_swept_twice(nothing_starts, tmp_path):
    text = written("[grid]\neps = [0.1, 0.2]\n[list]\neps = [0.3, 0.4]")
    (tmp_path / "spec.toml").write_text(text)
    with pytest.raises(ValueError, match=r"^spec.toml, (line \d+, \w+\.)?eps: is swept twice"):
        da.sweep(tmp_path / "spec.toml", tmp_path / "store.zarr")


def test_files_that_cannot_be_read(nothing_starts, tmp_path):
    path, store = tmp_path / "spec.toml", tmp_path / "store.zarr"
    with pytest.raises(FileNotFoundError, match=r"no spec at .*spec.toml: expected a TOML file"):
        da.sweep(path, store)
    path.write_text('system = "PendulumCVT"\nsteps = = 3\n')
    with pytest.raises(ValueError, match=r"^spec.toml: .*line 2"):
        da.sweep(path, store)
    path.write_text("h = 0.1\nh = 0.2\n")
    with pytest.raises(ValueError, match=r"^spec.toml: .*(line 2|overwrite)"):
        da.sweep(path, store)
    assert not store.exists()


TEXT = """h = 1  # grid.eps = 2
"q0".'xi' = 3
start = { q = [1.0] }

[ grid ]
v0.xi = [1]
"v0.x1" = [2]
method = [
  "frame",
]
[grid.q0]  # of the grid
x2 = [1]
["random"]
count = 3
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("h", 1), ("q0.xi", 2), ("start", 3), ("start.q", 3), ("grid", 5), ("grid.v0.xi", 6), ("grid.v0.x1", 7),
        ("grid.method", 8), ("grid.q0", 11), ("grid.q0.x2", 12), ("random.count", 14), ("random.v0.xi", 13),
        ("grid.eps", 5), ("steps", None), ("", None),
    ],
)  # fmt: skip
def test_line_of(key, line):
    assert line_of(TEXT, key) == line


def test_reading_starts_nothing(tmp_path):
    (tmp_path / "spec.toml").write_text(written())
    code = (
        "import sys\n"
        "from jax._src import xla_bridge\n"
        "from dalembert.results import system_kind\n"
        "from dalembert.sweeps.reading import read\n"
        f"spec = read({str(tmp_path / 'spec.toml')!r}, system_kind)\n"
        "assert spec.shape == (2,)\n"
        "assert not xla_bridge._backends, xla_bridge._backends\n"
        "assert 'distributed' not in sys.modules\n"
        "import jax.numpy\n"
        "jax.numpy.zeros(1)\n"
        "assert xla_bridge._backends\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
