"""The command line, run as a user runs it."""

import os
import pty
import subprocess
import sys
import textwrap

import pytest
from command_line import called
from command_line import program as dalembert

import dalembert as da


def test_list_names_everything():
    done = dalembert("list")
    assert done.returncode == 0, done.stderr
    for name in (*da.zoo.__all__, "oscillating", "rotating", "eps=0.0", "leapfrog", "frame@4", "reference"):
        assert name in done.stdout


def test_run_writes_table_file_and_figure(tmp_path):
    options = [
        "--method",
        "frame",
        "--h",
        "0.1",
        "--steps",
        "300",
        "--param",
        "eps=0.5",
        "--start",
        "rotating",
    ]
    files = ["--save-every", "3", "--out", "run.zarr", "--plot", "fig.png"]
    done = dalembert("run", "PendulumCVT", *options, *files, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PendulumCVT by frame, h = 0.1, 300 steps to t = 30" in done.stdout
    assert "energy" in done.stdout
    assert "constraint A(q) v" in done.stdout
    assert "300 of 300 steps" in done.stderr  # plain lines where there is no terminal
    sol = da.load(tmp_path / "run.zarr")
    assert len(sol.t) == 101
    assert float(sol.system.eps) == 0.5
    assert (tmp_path / "fig.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "PendulmCVT"], ["no system 'PendulmCVT'", "Did you mean PendulumCVT?", "Snakeboard"]),
        (["run", "KnifeEdge", "--method", "fram"], ["no method 'fram'", "Did you mean frame?", "leapfrog"]),
        (["run", "KnifeEdge", "--method", "dla:x"], ["expected a number after the colon"]),
        (["run", "KnifeEdge", "--method", "frame@5"], ["orders 4, 6, 8"]),
        (["run", "KnifeEdge", "--method", "leapfrog@4"], ["must not be composed"]),
        (["run", "KnifeEdge", "--param", "epsilon=1"], ["no parameter of KnifeEdge 'epsilon'", "eps"]),
        (["run", "KnifeEdge", "--param", "eps"], ["takes name=value"]),
        (["run", "KnifeEdge", "--param", "eps=abc"], ["--param eps takes a number"]),
        (["run", "KnifeEdge", "--start", "fast"], ["no start state 'fast'", "default"]),
        (["run", "KnifeEdge", "--h", "-1"], ["h must be positive"]),
        (["run", "KnifeEdge", "--steps", "1.5"], ["whole number"]),
        (["run", "KnifeEdge", "--save-every", "0"], ["save_every must be a whole number"]),
        (["run", "KnifeEdge", "--out", "run.csv"], ["--out takes a file ending in .zarr or .nc"]),
        (["run", "KnifeEdge", "--plot", "none/fig.png"], ["does not exist"]),
        (["run", "ChaplyginSleigh", "--method", "leapfrog"], ["constant mass matrix", "FrameGradient"]),
        (["run", "nothing:Here"], ["cannot import 'nothing'"]),
    ],
)
def test_mistakes_get_one_clear_line(arguments, words, tmp_path):
    done = called(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_mistake_of_a_program_of_its_own(tmp_path):
    """The calls above leave out Python's own last words."""
    done = dalembert("run", "KnifeEdge", "--h", "-1", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "h must be positive" in done.stderr


OWN = """
    import dalembert as da
    import jax.numpy as jnp

    class Fall(da.System):
        coordinates = ("x", "y")
        step = 0.01
        depth: float

        def metric(self, q):
            return jnp.eye(2)

        def potential(self, q):
            return jnp.where(q[1] > -self.depth, q[1], jnp.nan)

        def starts(self):
            return {"top": ([0.0, 0.0], [0.0, 0.0])}
"""


def test_a_system_of_ones_own_and_a_failing_run(tmp_path):
    (tmp_path / "own.py").write_text(textwrap.dedent(OWN))
    done = called("run", "own:Fall", cwd=tmp_path)
    assert "Fall needs --param depth=VALUE" in done.stderr
    options = ["--param", "depth=1", "--method", "leapfrog", "--steps", "1000", "--out", "run.nc"]
    done = dalembert("run", "own:Fall", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert "failed: the state became NaN" in done.stderr
    assert "wrote run.nc" in done.stdout  # what was computed is kept
    assert da.load(tmp_path / "run.nc").t[-1] == pytest.approx(2**0.5, abs=0.03)


def test_a_bar_on_a_terminal(tmp_path):
    leader, follower = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "dalembert",
        "run",
        "KnifeEdge",
        "--method",
        "leapfrog",
        "--steps",
        "3e6",
    ]
    child = subprocess.Popen(
        command, stdout=follower, stderr=follower, cwd=tmp_path, env={**os.environ, "TERM": "xterm"}
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            seen += os.read(leader, 4096)
        except OSError:
            break
    assert child.wait() == 0
    assert "━".encode() in seen
    assert b"KnifeEdge by leapfrog" in seen
