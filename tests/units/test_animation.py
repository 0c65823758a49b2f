"""Animations: the page's numbers are the run's, the file stays small, and bad requests are refused early."""

import base64
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from command_line import called
from scipy.spatial.transform import Rotation

import dalembert as da
from dalembert import scene
from dalembert.view import animation as module
from dalembert.view.animation import animate, check_target, page
from dalembert.view.films import film


@pytest.fixture(scope="module")
def sol():
    disk = da.zoo.RollingDisk()
    return da.simulate(disk, da.FrameGradient(), *disk.start(), h=0.1, steps=1500)


@pytest.fixture(scope="module")
def shown(sol):
    return sol.animate()


def told(text):
    found = re.search(r'<script id="film" type="application/json">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found[1])


def unpacked(columns, frames):
    made = []
    for column in columns:
        if isinstance(column, list):
            made.append(column[0] + np.frombuffer(base64.b64decode(column[1]), "<f4").astype(float))
        else:
            made.append(np.full(frames, column))
    return np.stack(made, axis=1)


def test_the_page_holds_the_film(shown):
    data = told(shown.html)
    frames = len(shown.film.times)
    assert data["frames"] == frames
    times = unpacked([data["times"]], frames)[:, 0]
    np.testing.assert_allclose(times, shown.film.times, rtol=1e-6)  # float32 differences
    moving = [part for part in shown.film.copies[0].parts if part.kind != "floor"]
    assert [part["kind"] for part in data["copies"][0]["parts"]] == [part.kind for part in moving]
    for part, own in zip(data["copies"][0]["parts"], moving, strict=True):
        fine = 2e-6 * shown.film.extent  # a part that moves less than 1e-6 of the picture is still
        np.testing.assert_allclose(unpacked(part["at"], frames), own.at, atol=fine)
        np.testing.assert_allclose(unpacked(part["size"], frames), own.size, atol=fine)
        turns = unpacked(part["turn"], frames)
        assert np.all(np.sum(turns[1:] * turns[:-1], axis=1) > 0), "neighbours must have one sign"
        np.testing.assert_allclose(Rotation.from_quat(turns).as_matrix(), own.turn, atol=1e-6)  # float32


def test_each_shape_once_and_still_columns_as_numbers(shown):
    data = told(shown.html)
    wheel = next(part for part in data["copies"][0]["parts"] if part["kind"] == "wheel")
    assert set(data["meshes"]) == {part.kind for part in shown.film.copies[0].parts}
    assert all(isinstance(x, float) for x in wheel["size"])
    assert isinstance(wheel["at"][2], float), "the hub's height does not change"


def test_panels_and_several_runs(sol):
    disk = da.zoo.RollingDisk()
    other = da.simulate(disk, da.DLA01(), *disk.start(), h=0.2, steps=300)
    both = animate([sol, other], frames=50, t=(0.0, 20.0))
    data = told(both.html)
    assert [copy["label"] for copy in data["copies"]] == ["frame", "dla01"]
    assert data["frames"] <= 50
    assert data["end"] == pytest.approx(150.0)
    assert "RollingDisk, frame (h = 0.1), dla01 (h = 0.2)" in data["note"]
    assert {len(panel["curves"]) for panel in data["panels"]} == {2}
    assert told(animate([sol, other], frames=50, panels=False).html)["panels"] == []
    assert told(page(both.film, both.panels, title="mine", note="a note"))["title"] == "mine"


def test_a_typical_file_and_one_of_a_million_steps_are_small(sol, shown):
    assert len(shown.html.encode()) < 400_000
    rows = 1_000_001
    t = 0.1 * np.arange(rows)
    q = np.stack([np.sin(t), np.cos(t), 0.5 * t, t], axis=1)
    long = da.Trajectory(
        t, q, 0 * q, 0 * q, None, *map(np.asarray, (0, rows - 1, 0.0)), sol.system, sol.method, 0.1, 1
    )
    made = long.animate()
    assert len(made.film.times) <= 600
    assert len(made.html.encode()) < 1_000_000


def test_nothing_is_asked_for_and_labels_stay_text(sol):
    bad = '</script><script>alert("x")</script><!--'
    text = animate([sol], labels=[bad], frames=20).html
    assert told(text)["copies"][0]["label"] == bad
    assert "<script>alert" not in text
    assert text.count("<script") == text.count("</script") == 2
    for word in ("http://", "https://", "@import", "url(", "src="):
        assert word not in text


def test_a_notebook_gets_a_frame_with_the_page(shown):
    text = shown._repr_html_()
    assert text.startswith("<iframe ")
    assert "<script" not in text
    assert "src=" not in text.replace("srcdoc=", "")
    assert text.count('"') == 8, "the page must not end the attribute that holds it"


class Skier(da.System):
    """Its spring, arrow and tile have axes that only matter up to a turn, or a sign."""

    coordinates = ("x", "y")

    def lagrangian(self, q, v):
        return 0.5 * jnp.sum(v**2)

    def scene(self, t, q):
        s = 0.05 * t
        return [
            scene.spring((0, 0, 0), (jnp.sin(s), 0, jnp.cos(s))),
            scene.tile(
                (0, 0, 0), jnp.stack([jnp.array([jnp.cos(s), 0, jnp.sin(s)]), jnp.array([0, 1.0, 0])], 1)
            ),
        ]


def test_parts_do_not_spin_between_frames():
    sol = da.simulate(Skier(), da.FrameGradient(), [0, 0], [1, 0.5], h=0.1, steps=590)
    data = told(sol.animate().html)
    for part, axis in zip(data["copies"][0]["parts"], (2, 2), strict=True):
        turns = Rotation.from_quat(unpacked(part["turn"], data["frames"]))
        steps = (turns[1:] * turns[:-1].inv()).magnitude()
        assert steps.max() < 0.006, part["kind"]  # the axis itself turns by 0.005 a frame
        s = 0.05 * np.asarray(film(sol).times)
        own = turns.as_matrix()[:, :, axis]
        wanted = np.stack([np.sin(s), 0 * s, np.cos(s)], 1) * (1 if part["kind"] == "spring" else [-1, 1, 1])
        np.testing.assert_allclose(np.abs(np.sum(own * wanted, axis=1)), 1, atol=1e-6)  # float32


def test_a_state_that_is_not_a_number_is_left_out(sol):
    q = np.array(sol.q[:40])
    q[20:] = np.nan
    parts = (
        sol.t[:40],
        q,
        sol.v[:40],
        sol.v_full[:40],
        None,
        *map(np.asarray, (0, 39, 0.0)),
        sol.system,
        sol.method,
        0.1,
        1,
    )
    data = told(page(film(da.Trajectory(*parts))))
    wheel = next(part for part in data["copies"][0]["parts"] if part["kind"] == "wheel")
    at = unpacked(wheel["at"], 40)
    assert np.isfinite(at[:20]).all()
    assert np.isnan(at[20:]).any(axis=1).all()


def test_one_row_is_a_still(sol):
    start = da.simulate(sol.system, da.FrameGradient(), *sol.system.start(), h=0.1, steps=0)
    data = told(start.animate().html)
    assert data["frames"] == 1
    assert data["panels"] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("run.webm", (".html", ".gif", ".mp4", "run.webm")),
        ("run", (".html", ".gif", ".mp4")),
        ("missing/run.html", ("folder", "does not exist")),
        ("taken.html", ("is a folder",)),
    ],
)
def test_bad_paths_are_refused_before_anything_is_computed(sol, tmp_path, monkeypatch, name, words):
    (tmp_path / "taken.html").mkdir()
    monkeypatch.setattr(module, "film", lambda *_: pytest.fail("computed first"))
    with pytest.raises(ValueError, match=re.escape(words[0])) as refusal:
        sol.animate(tmp_path / name)
    for word in words:
        assert word in str(refusal.value)


def test_a_place_that_may_not_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module.os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ValueError, match="may not be written"):
        check_target(tmp_path / "run.html")


def test_mp4_without_ffmpeg(tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"install it, or choose \.html or \.gif"):
        check_target(tmp_path / "run.mp4")


@pytest.mark.parametrize("fps", [0, -1, np.nan, "fast", 1000])
def test_bad_fps(sol, fps):
    with pytest.raises(ValueError, match="fps must be"):
        sol.animate(fps=fps)


def test_ensembles_and_labels_are_refused(sol):
    disk = da.zoo.RollingDisk()
    q0, v0 = disk.start()
    many = da.ensemble(disk, da.FrameGradient(), np.stack([q0, q0]), np.stack([v0, v0]), h=0.1, steps=5)
    with pytest.raises(ValueError, match=r"sol\.member\(0\)\.animate"):
        many.animate()
    with pytest.raises(ValueError, match="1 runs but 2 labels"):
        animate([sol], labels=["a", "b"])


def test_other_suffixes_are_written_by_the_pictures(shown, tmp_path, monkeypatch):
    from dalembert.view import stills

    seen = []
    monkeypatch.setattr(stills, "save_gif", lambda film, path, fps: seen.append((film, path, fps)))
    shown.save(tmp_path / "run.gif")
    assert seen == [(shown.film, tmp_path / "run.gif", 30.0)]


def test_command_line(tmp_path):
    done = called("run", "RollingDisk", "--steps", "200", "--animate", "out.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = re.search(r"wrote out.html \((\d+) frames, (\d+) kB\)", done.stdout)
    assert said is not None
    assert int(said[1]) == told((tmp_path / "out.html").read_text())["frames"]
    assert int(said[2]) == round((tmp_path / "out.html").stat().st_size / 1000)
    for path, word in (
        ("out.avi", "--animate takes a file ending in .html"),
        ("no/out.html", "does not exist"),
    ):
        done = called("run", "RollingDisk", "--steps", "200", "--animate", path, cwd=tmp_path)
        assert done.returncode == 1
        assert word in done.stderr
