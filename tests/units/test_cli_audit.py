"""dalembert audit as a user types it."""

import json

import pytest
from command_line import called, program

OWN = """
import jax.numpy as jnp
import dalembert as da
from dalembert.methods import Claims, Report, State
from dalembert.model import acceleration


class Skate(da.System):
    coordinates = ("x", "y", "theta")
    step = 0.05

    def lagrangian(self, q, v):
        return 0.5 * jnp.sum(v**2) - 0.3 * q[1]

    def constraints(self, q):
        return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])

    def starts(self):
        return {"default": ([0.0, 0.0, 0.0], [1.0, 0.0, 0.5])}


made = Skate()


class Euler(da.Method):
    def step(self, system, state, memory, h):
        v = state.v + h * acceleration(system, state.q, state.v)[0]
        return State(state.q + h * state.v, v), memory, Report.explicit()

    def claims(self, system):
        return Claims(order=2, energy=False, reversible=False, on_constraint=True)


ready = da.FrameGradient()
number = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(OWN)
    return folder


def test_own_system_and_methods(folder):
    given = (
        "--system",
        "mine:Skate",
        "--method",
        "mine:Euler",
        "--method",
        "mine:ready",
        "--method",
        "leapfrog",
    )
    done = program("audit", *given, "--steps", "1e4", "--json", "found.json", "--strict", cwd=folder)
    assert done.returncode == 1, done.stderr  # Euler claims too much
    assert "mine:Euler" in done.stdout
    assert "claim: order 2 is claimed" in done.stdout
    assert "leaves the constraint" in done.stdout
    assert "mine:ready: nothing is broken; every claim it makes holds" in done.stdout
    assert "growth vector (2, 3)" in done.stdout
    found = json.loads((folder / "found.json").read_text())
    assert [x["method"] for x in found] == ["mine:Euler", "mine:ready", "leapfrog"]
    assert found[1]["integrals"]["energy"]["verdict"] == "exact"
    assert found[0]["broken_claims"]
    assert max(len(line) for line in done.stdout.splitlines()) <= 110, "tables fit a file's width"


def test_with_the_modified_fields(folder):
    given = ("--system", "mine:Skate", "--method", "mine:Euler", "--method", "mine:ready", "--steps", "1e4")
    done = called("audit", *given, "--backward", "--json", "both.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "modified field" in done.stdout
    assert "Modified field: verdict, then defect(estimated error)" in done.stdout
    euler, frame = json.loads((folder / "both.json").read_text())
    # Explicit Euler follows a field that leaves D and changes the energy at first order.
    for name in ("tangent to D", "energy"):
        assert euler["backward"]["structures"][name]["order"] == pytest.approx(1, abs=0.1)
        assert frame["backward"]["structures"][name]["verdict"] == "kept"
    assert max(len(line) for line in done.stdout.splitlines()) <= 110, "tables fit a file's width"
    done = called("audit", *given, "--json", "one.json", cwd=folder)
    assert "odified field" not in done.stdout
    assert json.loads((folder / "one.json").read_text())[0]["backward"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--system", "Nonsense", "--method", "frame"), "no system 'Nonsense'"),
        (("--system", "KnifeEdge", "--method", "fram"), "Did you mean frame?"),
        (("--system", "KnifeEdge", "--method", "mine:number"), "not a subclass of dalembert.Method"),
        (("--system", "mine:Euler", "--method", "frame"), "not a subclass of dalembert.System"),
        (("--system", "mine:made", "--method", "frame", "--param", "a=1"), "--param is for classes"),
        (("--system", "KnifeEdge", "--method", "nowhere:Thing"), "cannot import 'nowhere'"),
        (("--system", "KnifeEdge", "--method", "frame", "--steps", "1.5"), "--steps takes a whole number"),
        (("--system", "KnifeEdge", "--method", "frame", "--steps", "nan"), "--steps takes a whole number"),
        (("--system", "KnifeEdge", "--method", "frame", "--json", "no/where.json"), "does not exist"),
        (("--system", "ChaplyginSleigh", "--method", "leapfrog"), "constant mass matrix"),
    ],
)
def test_mistakes_get_one_clear_line(folder, arguments, words):
    done = called("audit", *arguments, cwd=folder)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_of_a_program_of_its_own(folder):
    """The calls above leave out Python's own last words."""
    done = program("audit", "--system", "mine:Euler", "--method", "frame", cwd=folder)
    assert done.returncode == 1
    assert "not a subclass of dalembert.System" in done.stderr
    assert "Traceback" not in done.stderr
