"""What kind of system it is gets decided once; methods say what they take, and a new trait touches two files."""

import shutil
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.methods.cli_names import remedies
from dalembert.model import lower

ROOT = Path(__file__).resolve().parents[2]

TRAIT = """
    TOY = Kind("does not play, but {system} is a toy", applies=lambda system, given: getattr(system, "toy", False))
"""
METHOD = '''
from dalembert.methods.leapfrog import LeapFrog
from dalembert.model import Trait


class Playful(LeapFrog):
    """Leap-frog that takes toys."""

    supports = LeapFrog.supports | {Trait.TOY}
'''
PROGRAM = """
import dalembert as da
from dalembert.methods.playful import Playful


class Top(da.zoo.KnifeEdge):
    toy = True


top = Top()
run = da.simulate(top, Playful(), *top.start(), h=0.1, steps=10)
assert run.status is da.Status.OK
for method in (da.LeapFrog(), da.FrameGradient(), da.Reference()):
    try:
        da.simulate(top, method, *top.start(), h=0.1, steps=10)
    except ValueError as error:
        print(error)
da.simulate(da.zoo.KnifeEdge(), Playful(), *top.start(), h=0.1, steps=10)
"""


def test_a_new_trait_and_a_method_that_supports_it_touch_two_files(tmp_path):
    """In a copy of the library: one entry where traits are told, one file for the method, and nothing else."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    traits = tmp_path / "src/dalembert/model/traits.py"
    text = traits.read_text()
    assert text.count("    def refusal(") == 1
    traits.write_text(text.replace("    def refusal(", f"{TRAIT.lstrip(chr(10))}\n    def refusal("))
    (tmp_path / "src/dalembert/methods/playful.py").write_text(METHOD)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(tmp_path / "src"), "PATH": ""},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 3
    for line, name in zip(said, ("LeapFrog", "FrameGradient", "Reference"), strict=True):
        assert line == f"{name} does not play, but Top is a toy. No method of the library takes it"


class Everything(da.RheonomicSystem):
    """Time, affine constraints, forces and a metric that varies."""

    coordinates = ("x", "y")

    def metric(self, t, q):
        return jnp.diag(jnp.array([1.0, 1.0 + q[0] ** 2]))

    def constraints(self, t, q):
        return jnp.array([[1.0, q[0]]])

    def offsets(self, t, q):
        return jnp.array([jnp.sin(t)])

    def forces(self, t, q, v):
        return -v


def test_traits_are_told_by_the_description():
    plain = lower(da.zoo.KnifeEdge())
    assert plain.traits == {da.Trait.COORDINATES}
    assert lower(Everything()).traits == {
        da.Trait.COORDINATES, da.Trait.TIMED, da.Trait.AFFINE, da.Trait.FORCED,
    }  # fmt: skip
    assert da.Trait.GROUP in lower(da.zoo.Suslov()).traits
    assert lower(lower(Everything())).traits == lower(Everything()).traits


def test_parts_that_were_not_given_are_completed():
    """One-forms and frame, offsets and drift, each from the other; the two agree with what must vanish."""
    m, q = lower(Everything()).at(jnp.asarray(0.7)), jnp.array([0.4, -0.3])
    assert np.max(np.abs(m.rows(q) @ m.frame(q))) < 1e-15
    assert np.max(np.abs(m.rows(q) @ m.drift(q) - m.offsets(q))) < 1e-15
    # The shortest: nothing in D is in it.
    assert np.max(np.abs(m.frame(q).T @ m.metric(q) @ m.drift(q))) < 1e-15
    knife = lower(da.zoo.KnifeEdge())
    q = jnp.array([0.1, 0.2, 0.3])
    assert not np.any(knife.forces(q, q))
    assert not np.any(knife.drift(q))
    assert not np.any(knife.offsets(q))


def test_a_time_that_was_not_set_is_asked_for():
    with pytest.raises(
        ValueError, match=r"depends on time: set it with at\(t\) before asking for its metric"
    ):
        lower(Everything()).metric(jnp.zeros(2))


def test_a_method_that_says_what_nobody_reads_is_refused():
    with pytest.raises(TypeError, match=r"takes_time.*supports = Method.supports \| {Trait.TIMED}"):
        type("Old", (da.Method,), {"takes_time": True})


def test_every_method_supports_its_own_remedies():
    """What a refusal may recommend refuses nothing of the plainest kind for its space."""
    plain = {da.Trait.COORDINATES: da.zoo.KnifeEdge(), da.Trait.GROUP: da.zoo.Suslov()}
    for words, method in remedies().items():
        assert any(method.takes(system) for system in plain.values()), words
