"""Starts and ends that a user types: --q0, --v0, --q1 of `dalembert run`, and `dalembert boundary`."""

import re

import numpy as np
import pytest
from command_line import called
from equations import discrete_mechanics as reference
from equations.test_boundary import BOUND, check

import dalembert as da
from dalembert.cli.names import numbers_given

NAMES = ("x", "y", "theta")
Q0, V0, H = [0.0, 0.0, 0.5], [0.8, 0.5, 0.1], 0.1


def text(values):
    """The numbers with all of their digits."""
    return ",".join(repr(float(x)) for x in values)


def test_numbers():
    assert numbers_given("--q0", "-1, 2e3,0.5", NAMES) == {"x": -1.0, "y": 2000.0, "theta": 0.5}
    assert numbers_given("--q0", "theta=3,x=1,y=-2", NAMES) == {"theta": 3.0, "x": 1.0, "y": -2.0}
    assert numbers_given("--end", "theta=3,x=1", NAMES, whole=False) == {"theta": 3.0, "x": 1.0}
    for given, words in (
        ("1,2", "takes numbers for (x, y, theta), as in --q0 0,0,0"),
        ("", "takes numbers for (x, y, theta)"),
        ("1,2,3,4", "got '1,2,3,4'"),
        ("x=1,2,3", "with all names or none"),
        ("x=1,y=2", "leaves out theta"),
        ("x=1,y=2,thet=3", "Did you mean theta?"),
        ("x=1,x=2,theta=3", "gives x twice"),
        ("1,a,3", "y needs a number, got 'a'"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            numbers_given("--q0", given, NAMES)
    with pytest.raises(ValueError, match="or some of them by name, as in --end x=0"):
        numbers_given("--end", "1,2", NAMES, whole=False)


def test_numbers_in_the_order_of_the_names(tmp_path):
    """x=..., in any order, are the coordinates in the order of the system."""
    sleigh = da.zoo.ChaplyginSleigh()
    v0 = da.start(sleigh, Q0, V0).v
    names = [f"{n}={float(x)!r}" for n, x in zip(NAMES, v0, strict=True)]
    given = ("--q0", "theta=0.5,y=0,x=0", "--v0", ",".join(names[::-1]), "--h", str(H), "--steps", "20")
    done = called("run", "ChaplyginSleigh", *given, "--out", "run.nc", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    theirs = da.simulate(sleigh, da.FrameGradient(), Q0, v0, h=H, steps=20)
    assert np.array_equal(da.load(tmp_path / "run.nc").q, theirs.q)


@pytest.mark.parametrize("method", ["gni", "dla-variational"])
def test_a_run_continues_a_pair(tmp_path, method):
    """The first number is negative, and the written run begins with the pair."""
    sleigh = da.zoo.ChaplyginSleigh()
    used = da.GNI() if method == "gni" else da.VariationalDLA()
    first = da.simulate(sleigh, used, Q0, -da.start(sleigh, Q0, V0).v, h=H, steps=1)
    given = ("--q0", text(Q0), "--q1", text(first.q[1]), "--h", str(H), "--steps", "20", "--method", method)
    done = called("run", "ChaplyginSleigh", *given, "--out", "run.nc", "--plot", "run.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert first.q[1][0] < 0
    assert (tmp_path / "run.png").exists()
    found = da.load(tmp_path / "run.nc")
    assert np.max(np.abs(found.q[1] - first.q[1])) < 1e-14  # a few eps of numbers of order one
    assert np.array_equal(found.q, da.simulate(sleigh, used, Q0, q1=first.q[1], h=H, steps=20).q)


def test_the_configuration_of_a_start_state_begins_a_pair(tmp_path):
    sleigh = da.zoo.ChaplyginSleigh()
    q1 = np.asarray(sleigh.start()[0]) + 0.01
    given = ("--method", "gni", "--q1", text(q1), "--steps", "5", "--out", "run.nc")
    done = called("run", "ChaplyginSleigh", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(da.load(tmp_path / "run.nc").q[0], sleigh.start()[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--q0", "0,0,0.5"), "--q0 needs --v0, the velocity there, or --q1"),
        (("--v0", "1,0,0", "--q1", "0,0,0"), "not both"),
        (("--q0", "0,0,0", "--v0", "1,0,0", "--start", "default"), "give --start"),
        (("--q1", "0,0"), "--q1 takes numbers for (x, y, theta)"),
        (("--q1", "nan,0,0", "--method", "gni"), "q1 must be finite"),
        (("--q1", "0,0,0.1", "--method", "frame"), "FrameGradient does not continue a pair"),
        (
            ("--q0", "0,0,0", "--q1", "0,0.1,0", "--method", "dla-variational"),
            "violates the discrete constraint",
        ),
        (("--q0", "0,0,0", "--v0", "0,1,0"), "start velocity violates the constraint"),
    ],
)
def test_mistakes_at_the_start(tmp_path, arguments, words):
    done = called("run", "ChaplyginSleigh", *arguments, "--steps", "5", cwd=tmp_path)
    assert done.returncode == 1
    assert words in done.stderr


def test_the_motion_to_an_end(tmp_path):
    """The written run ends there, satisfies the printed equations, and the start that is printed leads there again."""
    given = ("NonholonomicParticle", "--steps", "50", "--h", "0.05", "--method", "dla-variational")
    files = ("--out", "run.nc", "--plot", "run.png", "--animate", "run.html")
    wanted = ("--q0", "1,-2,0.5", "--end", "y=-0.5,x=0.3")
    done = called("boundary", *given, *wanted, *files, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "solved: end missed by" in done.stdout
    assert "constraint A(q) v" in done.stdout
    assert all((tmp_path / name).exists() for name in ("run.png", "run.html"))
    q = np.asarray(da.load(tmp_path / "run.nc").q)
    assert q[0] == pytest.approx([1.0, -2.0, 0.5], abs=0)
    assert q[-1][:2] == pytest.approx([0.3, -0.5], abs=1e-11)  # the bound of the solver
    assert max(check(reference.particle(), q, 0.05)) < BOUND
    (start,) = [x for x in done.stdout.splitlines() if x.startswith("start: --q1 ")]
    again = called("run", *given, "--q0", "1,-2,0.5", *start.split()[1:], "--out", "again.nc", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    # The end responds to the start by a factor of order ten.
    assert np.asarray(da.load(tmp_path / "again.nc").q) == pytest.approx(q, abs=1e-11)


def test_by_a_method_on_velocities(tmp_path):
    """frame is the usual method; the printed velocity is its start. All of the end takes a method on pairs."""
    given = ("NonholonomicParticle", "--steps", "20")
    odd = ("NonholonomicParticle", "--steps", "21", "--method", "gni", "--out", "odd.nc")
    done = called("boundary", *odd, "--end", "-1,0.5,0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert da.load(tmp_path / "odd.nc").q[-1] == pytest.approx([-1.0, 0.5, 0.0], abs=1e-11)
    done = called("boundary", *given, "--end", "x=-1,y=0.5", "--guess", "x=-1,y=1,z=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "NonholonomicParticle by frame" in done.stdout
    (start,) = [x for x in done.stdout.splitlines() if x.startswith("start: --v0 ")]
    assert called("run", *given, *start.split()[1:], "--out", "run.nc", cwd=tmp_path).returncode == 0
    assert da.load(tmp_path / "run.nc").q[-1][:2] == pytest.approx([-1.0, 0.5], abs=1e-11)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--end", "x=1,y=0", "--steps", "1"), "at least 2 steps"),
        (("--end", "x=1,y=0", "--steps", "2.5"), "--steps takes a whole number"),
        (("--end", "x=1,w=0", "--steps", "9"), "no number of --end 'w'"),
        (("--end", "1,0,0", "--steps", "9"), "3 numbers of the end are prescribed"),
        (("--end", "x=nan,y=0", "--steps", "9"), "must be finite"),
        (("--end", "x=1,y=0", "--steps", "9", "--end-time", "1"), "tN is for methods"),
        (("--end", "x=1,y=0", "--steps", "9", "--start", "default", "--q0", "0,0,0"), "give --start"),
        (("--end", "x=1,y=0", "--steps", "9", "--out", "run.csv"), "--out takes a file"),
        (("--steps", "9"), "--end"),
    ],
)
def test_mistakes_at_the_end(tmp_path, arguments, words):
    done = called("boundary", "NonholonomicParticle", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert words in done.stderr


def test_an_end_out_of_reach_keeps_the_nearest_run(tmp_path):
    """x' sqrt(1 + y^2) is constant and z' = y x', so that x returns only if x and z never move."""
    given = ("--q0", "0,0,0", "--end", "x=0,z=1", "--steps", "9", "--out", "near.nc")
    done = called("boundary", "NonholonomicParticle", *given, cwd=tmp_path)
    assert done.returncode == 1
    assert "The nearest run misses the end by" in done.stderr
    assert "wrote near.nc" in done.stdout
    assert len(da.load(tmp_path / "near.nc").t) == 10
