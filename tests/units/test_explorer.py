"""What the explorer runs, says and writes, without a browser."""

import dataclasses
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import dalembert as da
from dalembert.methods import METHODS, method_from_text
from dalembert.view.explorer.answers import answer, second_thoughts
from dalembert.view.explorer.page import message
from dalembert.view.explorer.request import (
    choices,
    code_of,
    first_request,
    methods_for,
    numbers,
    script,
    text_of,
)

KINDS = {name: getattr(da.zoo, name) for name in da.zoo.__all__}


def asked(system, methods=("frame",), steps=300, **changes):
    request = first_request(system, KINDS, methods, steps)
    given = dict(request.parameters) | changes.pop("parameters", {})
    return dataclasses.replace(request, methods=methods, parameters=tuple(given.items()), **changes)


@pytest.mark.parametrize("name", da.zoo.__all__)
def test_every_system_is_offered_with_something_that_runs(name):
    request = first_request(name, KINDS, steps=60)
    found = answer(request, KINDS)
    assert found.problems == []
    assert found.runs
    assert len(found.film.times) == 61
    last = "constraint residual" if found.runs[0].system.constrained else "relative energy error"
    assert found.panels[-1].title == last


def test_answers_are_the_runs_of_simulate():
    found = answer(asked("Snakeboard", ("frame", "gni"), parameters={"mass": 1.3}), KINDS)
    system = da.zoo.Snakeboard(mass=1.3)
    for run, method in zip(found.runs, (da.FrameGradient(), da.GNI()), strict=True):
        own = da.simulate(system, method, *system.start(), h=0.1, steps=300)
        assert np.array_equal(own.q, run.q)
    energy = found.panels[0]
    assert energy.title == "relative energy error"
    assert [curve.label for curve in energy.curves] == ["frame", "gni"]
    assert len({curve.colour for curve in energy.curves}) == 2
    values = np.asarray(found.runs[1].energy())
    assert np.allclose(
        energy.curves[1].y, np.maximum(np.abs(values - values[0])[1:] / values[0], 1e-17), rtol=1e-12
    )  # the same formula: rounding


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"h": -0.1}, "h must be"),
        ({"h": 0.0}, "h must be"),
        ({"h": float("nan")}, "h must be"),
        ({"steps": 0}, "steps must be between 1 and 1,000,000, got 0"),
        ({"steps": 10**7}, "steps must be between"),
        ({"q0": "0, 0, zero, 0.3"}, "q0 must be numbers with commas between"),
        ({"q0": "0, 0, 0"}, "q0"),
        ({"v0": "1, 1, 0, 1"}, "constraint"),
        ({"v0": "1, nan, 0, 1"}, "v0"),
        ({"methods": ()}, "no method is chosen"),
        ({"methods": ("frame", "frame")}, "chosen twice"),
        ({"methods": ("lie-gni",)}, "LieGNI"),
    ],
)
def test_a_bad_value_becomes_a_sentence(changes, words):
    found = answer(asked("RollingDisk", **changes), KINDS)
    assert found.film is None
    assert len(found.problems) == 1
    assert words in found.problems[0]


def test_a_bad_parameter_becomes_a_sentence():
    found = answer(asked("ChaplyginSleigh", parameters={"mass": 0.0}), KINDS)
    assert found.film is None
    assert "mass" in found.problems[0]
    found = answer(asked("ChaplyginSleigh", parameters={"coordinates": "corner"}), KINDS)
    assert "choose one of: contact, mass-centre" in found.problems[0]


def test_a_method_that_does_not_fit_leaves_the_others():
    found = answer(asked("ChaplyginSleigh", ("frame", "dla")), KINDS)
    assert [run.method.cli_name for run in found.runs] == ["frame"]
    assert "constant mass matrix" in found.problems[0]


def test_a_run_that_ends_early_is_shown_as_far_as_it_went():
    found = answer(asked("NonholonomicParticle", ("edla",), steps=2000, h=1.5), KINDS)
    assert len(found.runs[0].t) < 2001
    assert found.film is None or found.verdicts[0].bad
    assert "failed" in " ".join([*found.problems, *(x.text for x in found.verdicts)])


def test_drift_and_growing_parasitic_modes_are_told():
    found = answer(asked("ChaplyginSleigh", ("frame", "gni"), steps=4000), KINDS)
    bad = {x.label for x in found.verdicts if x.bad}
    assert bad == {"gni"}
    assert any("parasitic mode" in x.text for x in found.verdicts)
    assert "energy: exact" in found.verdicts[0].text


def test_resonant_steps_are_told_and_others_are_not():
    """The driver with eta(0) = 4.6 and h = 0.1 is on a resonance, that with 8^(1/2) is not [modin2020]."""
    on = asked(
        "PendulumCVT", ("leapfrog", "frame"), 10_000, parameters={"eps": 0.5}, q0="1,1,0", v0="0,0,4.6"
    )
    said, more = second_thoughts(answer(on, KINDS))
    assert [x.label for x in said if "resonant step" in x.text] == ["leapfrog"]
    assert more[0].title == "deviation of passenger energy"
    off = dataclasses.replace(on, v0=text_of([0, 0, 8**0.5]))
    said, _ = second_thoughts(answer(off, KINDS))
    assert not [x for x in said if "resonant step" in x.text]


def test_new_numbers_compile_nothing():
    """What makes a slider answer at once: only the first answer about a system compiles."""
    request = asked("Snakeboard", ("frame", "leapfrog"), steps=1000)
    second_thoughts(answer(request, KINDS))
    counted = []

    def listen(event, *_, **__):
        counted.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        changed = dataclasses.replace(request, h=0.09, parameters=(("mass", 1.2), *request.parameters[1:]))
        found = answer(changed, KINDS)
        second_thoughts(found)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(found.runs) == 2
    assert [x for x in counted if "backend_compile" in x] == []


def test_the_script_makes_the_same_numbers(tmp_path):
    request = asked(
        "Snakeboard", ("frame@4", "gni:midpoint"), steps=200, parameters={"mass": 1.3, "psi": "relative"}
    )
    request = dataclasses.replace(request, q0=request.q0.replace(",", " ;"))  # as a reader may type it
    found = answer(request, KINDS)
    text = script(request, KINDS)
    assert "da.zoo.Snakeboard(mass=1.3, psi='relative')" in text
    saving = "".join(f'runs[{i}].save("{i}.nc")\n' for i in range(2))
    done = subprocess.run(
        [sys.executable, "-c", text + saving], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for i, run in enumerate(found.runs):
        assert np.array_equal(da.load(tmp_path / f"{i}.nc").q, run.q)
    assert (tmp_path / "compare.png").stat().st_size > 5000
    assert "window.player" in (tmp_path / "run.html").read_text()


@pytest.mark.parametrize("name", [*METHODS, "frame@4", "dd:average", "dla:0.25", "gni:restart=20"])
def test_the_code_of_a_method_makes_that_method(name):
    method = method_from_text(name)
    made = subprocess_free(code_of(method))
    assert made == method
    assert made.cli_name == method.cli_name


def subprocess_free(code):
    """The value of an expression that this project wrote itself, of names and literals alone."""
    import ast

    def value(node):
        if isinstance(node, ast.Call):
            return value(node.func)(*map(value, node.args), **{k.arg: value(k.value) for k in node.keywords})
        if isinstance(node, ast.Attribute):
            return getattr(value(node.value), node.attr)
        if isinstance(node, ast.Name):
            assert node.id == "da"
            return da
        return ast.literal_eval(node)

    return value(ast.parse(code, mode="eval").body)


def test_numbers_and_texts_are_inverse():
    values = [0.1, -1e-17, 2 / 3, 5.0]
    assert numbers(text_of(values), "q0") == values
    assert numbers(" 1;2 , 3 ", "q0") == [1, 2, 3]


def test_parameters_get_controls():
    found = {c.name: c for c in choices(da.zoo.Snakeboard)}
    assert found["mass"].is_number
    assert found["mass"].low < 1.0 < found["mass"].high
    assert set(found["psi"].choices) == {"absolute", "relative"}
    assert choices(da.zoo.NonholonomicParticle) == []
    eps = choices(da.zoo.PendulumCVT)[0]
    assert (eps.low, eps.high) == (-1.0, 1.0)


def test_a_system_without_start_gets_one_that_the_constraint_allows():
    import jax.numpy as jnp

    made = da.system(
        coordinates=("x", "y", "theta"),
        metric=lambda q: jnp.eye(3),
        constraints=lambda q: jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]]),
        angles=("theta",),
        name="Skate",
    )
    kinds = {"mine:skate": made}
    found = answer(first_request("mine:skate", kinds, steps=20), kinds)
    assert not found.problems
    assert np.max(np.abs(found.runs[0].v[0])) > 0.1


def test_methods_offered_fit_the_kind_of_system():
    assert "lie-gni" in methods_for(da.zoo.Suslov())
    assert "frame" in methods_for(da.zoo.Suslov())
    assert "leapfrog" not in methods_for(da.zoo.Suslov())
    assert "lie-gni" not in methods_for(da.zoo.RollingDisk())


def test_messages_are_text_and_never_markup():
    assert "<script>" not in message(["<script>alert(1)</script>"])


def test_a_page_shows_every_system_without_a_complaint():
    """One after another on one page, as a reader goes through the list; no browser is needed for that."""
    pytest.importorskip("viser", reason="viser is not installed: pip install 'dalembert[explore]'")
    running = da.explore("ChaplyginSleigh", ["frame"], steps=50)
    page = running.page
    try:
        for name in ("ChaplyginSleigh", "Suslov", "BallOnTurntable", "Snakeboard"):
            page.controls.system.value = name
            end = time.monotonic() + 120  # a first answer compiles; waiting ends when it is there
            while not (page.settled and page.answer is not None and page.answer.request.system == name):
                assert time.monotonic() < end, page.status.content
                time.sleep(0.05)
            assert page.status.content == ""
            assert page.verdicts.content
            assert len(page.figures) == len(page.answer.panels)
            assert page.stage.film is page.answer.film
            page.seek(2.0)
            k = int(np.searchsorted(page.answer.film.times, 2.0))
            actor = page.stage.actors[0]
            assert np.allclose(actor.frame.position, actor.part.at[k])
            w, *axis = actor.frame.wxyz
            turned = Rotation.from_quat([*axis, w]).as_matrix()
            assert np.allclose(turned, actor.part.turn[k], atol=1e-12)  # rounding
    finally:
        running.close()


def test_what_the_explorer_refuses_before_it_starts():
    pytest.importorskip("viser", reason="viser is not installed: pip install 'dalembert[explore]'")
    with pytest.raises(ValueError, match="the zoo has no system 'Rolling'"):
        da.explore("Rolling")
    with pytest.raises(ValueError, match="takes a system, its class, or a name"):
        da.explore(3)
    with pytest.raises(ValueError, match="up to 4 methods side by side, got 5"):
        da.explore("RollingDisk", ["frame"] * 5)


def test_methods_given_are_kept_whatever_the_lists_offer():
    request = first_request("RollingDisk", KINDS, ["dla:0.3"], exact=True)
    assert request.methods == ("dla:0.3",)
    assert first_request("RollingDisk", KINDS, ["lie-gni"]).methods == ("frame", "leapfrog")
