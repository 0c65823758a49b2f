"""Still pictures of scenes: what the eye sees, in which order, and the files made of it."""

import shutil
import sys
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

import dalembert as da
from dalembert.model import scene as parts
from dalembert.view import stills
from dalembert.view.cameras import Camera, apart, body, camera, grid, ordered
from dalembert.view.films import film

ROUNDING = 1e-12  # a few sums and products of numbers of size one


class Blocks(da.System):
    """A free point that carries two blocks, the second one behind the first as seen from the side (-y)."""

    coordinates = ("x", "y")

    def lagrangian(self, q, v):
        return 0.5 * (v @ v)

    def scene(self, t, q):
        near = parts.box((q[0], q[1] - 1.0, 0.5), (1.0, 1.0, 1.0), colour="#ff0000")
        far = parts.box((q[0], q[1] + 1.0, 0.5), (1.0, 1.0, 1.0), colour="#0000ff")
        return [parts.floor(), parts.trace(q), near, far]


@pytest.fixture(scope="module")
def disk():
    system = da.zoo.RollingDisk()
    start = [0.0, 0, 0, 0], [-2.0, 0, 2.0, 0.5]
    return [
        da.simulate(system, method, *start, h=0.1, steps=100) for method in (da.FrameGradient(), da.DLA01())
    ]


@pytest.fixture(scope="module")
def blocks():
    return film(da.simulate(Blocks(), da.FrameGradient(), [0.0, 0.0], [1.0, 0.0], h=0.1, steps=40))


@pytest.fixture(autouse=True)
def _closed():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def test_the_top_view_keeps_x_and_y_and_orders_by_height():
    points = np.random.default_rng(0).normal(size=(5, 7, 3))
    for seen, own in zip(camera("top").project(points), np.moveaxis(points, -1, 0), strict=True):
        np.testing.assert_allclose(seen, own, atol=ROUNDING)
    across, up, depth = camera("side").project(points)
    np.testing.assert_allclose(across, points[..., 0], atol=ROUNDING)
    np.testing.assert_allclose(up, points[..., 2], atol=ROUNDING)
    np.testing.assert_allclose(depth, -points[..., 1], atol=ROUNDING)


@pytest.mark.parametrize("view", ["oblique", "top", "side", (20.0, -35.0)])
def test_a_view_is_a_rotation(view):
    axes = camera(view).axes
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=ROUNDING)
    assert np.linalg.det(axes) == pytest.approx(1.0)


def test_views_that_are_none_are_refused(disk):
    for view in ("front", (1, 2, 3), 7, ("a", "b"), (0, 120)):
        with pytest.raises(ValueError, match="view"):
            stills.scene(disk[0], view=view)


def test_faces_towards_the_eye_are_seen_and_the_others_not(blocks):
    for view, sides in (("side", 1), ("top", 1), ((-60, 25), 3)):
        seen = [x for x in body(blocks.copies[0], blocks, [0], camera(view)) if x.filled.all()]
        assert len(seen) == 2
        areas = sum(_area(x.outlines).sum() for x in seen) / 2
        # A unit block looks as large as the sum of the sides that one sees, each times its slant.
        towards = np.abs(camera(view).axes[2])
        assert areas == pytest.approx(towards.sum(), rel=1e-9)
        assert all(len(np.unique(np.round(x.colours, 6), axis=0)) == sides for x in seen)
        assert all(np.all(_area(x.outlines) > 0) for x in seen)


def _drawn(ax, order):
    """The collection of paths on the floor (2) or of bodies (3)."""
    return next(x for x in ax.collections if x.get_zorder() == order)


def _area(outlines):
    """Positive for corners against the clock."""
    a, c = outlines[:, 2] - outlines[:, 0], outlines[:, 3] - outlines[:, 1]
    return 0.5 * (a[:, 0] * c[:, 1] - a[:, 1] * c[:, 0])


def test_what_is_nearer_is_painted_later(blocks):
    shapes = ordered(body(blocks.copies[0], blocks, [0], camera("side")))
    assert np.all(np.diff(shapes.depths) >= 0)
    red = shapes.colours[:, 0] > shapes.colours[:, 2]
    assert red.any()
    assert not red.all()
    assert np.flatnonzero(red).min() > np.flatnonzero(~red).max()
    behind = ordered(body(blocks.copies[0], blocks, [0], Camera(90.0, 0.0)))
    red = behind.colours[:, 0] > behind.colours[:, 2]
    assert np.flatnonzero(red).max() < np.flatnonzero(~red).min()


def test_grids_have_round_distances():
    for size, step in ((10.0, 2.0), (7.9, 1.0), (0.03, 0.005)):
        found, lines, rim = grid(np.zeros(3), np.array([size, 0.5 * size, 1.0]))
        assert found == pytest.approx(step)
        # Lines along y have whole multiples for x; their ends lie on the rim.
        upright = lines[lines[:, 0, 0] == lines[:, 1, 0]][:, 0, 0] / step
        np.testing.assert_allclose(upright, np.arange(len(upright)), atol=ROUNDING)
        assert np.ptp(rim[:, 0]) == pytest.approx(1.04 * size)


def test_the_still_of_a_disk_has_its_path_and_five_wheels(disk):
    ax = stills.scene(disk[0], view="top")
    lines = _drawn(ax, 2).get_segments()
    path = max(lines, key=len)
    np.testing.assert_allclose(path, np.asarray(disk[0].q)[:, :2], atol=ROUNDING)
    shown = film(disk[0], frames=stills.ROWS, t=(0.0, 10.0))
    assert stills._frames(shown, 5) == [0, 25, 50, 75, 100]
    assert ax.get_title(loc="left") == "RollingDisk, t = 0 to 10"
    wheels = _drawn(ax, 3)
    corners = np.concatenate([x.vertices for x in wheels.get_paths()])
    for row in (0, 25, 50, 75, 100):
        # The wheel's width is 0.16, and seen from above its middle is the point where it touches.
        assert np.min(np.linalg.norm(corners - np.asarray(disk[0].q)[row, :2], axis=1)) < 0.16


def test_the_path_to_come_is_fainter(disk):
    ax = stills.scene(disk[0], t=4.0, view="top")
    lines = _drawn(ax, 2)
    rest, past = lines.get_segments()
    assert (len(past), len(rest)) == (41, 61)
    pale, strong = lines.get_colors()[:, :3]
    assert pale.min() > strong.min()
    assert ax.get_title(loc="left") == "RollingDisk, t = 4"


def test_bodies_that_would_stand_in_each_other_are_left_out(disk, blocks):
    shown = film(disk[0], t=(0.0, 10.0))
    assert apart(shown, [0, 1, 2, 100]) == [2, 100]
    assert apart(blocks, [0, 40]) == [0, 40]
    assert apart(blocks, [0, 5, 40]) == [5, 40]


def test_a_second_run_is_a_ghost_with_a_legend(disk):
    ax = stills.scene(disk, t=10.0)
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["frame", "dla01"]
    shown = film(disk)
    both, alone = (stills.draw(shown, -1, ghosts=ghosts).collections[-1] for ghosts in (True, False))
    assert len(both.get_paths()) > 1.5 * len(alone.get_paths())
    assert stills.draw(shown, 0, ghosts=False).get_legend() is None


def test_times_outside_the_run_and_other_wrong_input_are_refused(disk):
    for t in (-1.0, 10.5, float("nan")):
        with pytest.raises(ValueError, match="goes from t = 0 to 10"):
            stills.scene(disk[0], t=t)
    with pytest.raises(ValueError, match="between 0 and 10"):
        stills.scene(disk[0], t=(5.0, 20.0))
    with pytest.raises(ValueError, match="goes from t = 0 to 10"):
        stills.scene(disk[0], times=[1.0, 11.0])
    with pytest.raises(ValueError, match="not both"):
        stills.scene(disk[0], t=1.0, times=3)
    with pytest.raises(ValueError, match="a list of times"):
        stills.scene(disk[0], times=0)
    with pytest.raises(ValueError, match="at least one"):
        stills.scene([])
    with pytest.raises(ValueError, match="from 0 to 40"):
        stills.draw(film(da.simulate(Blocks(), da.FrameGradient(), [0, 0], [1, 0], h=0.1, steps=40)), 41)


@pytest.mark.parametrize("view", ["oblique", "top", "side"])
@pytest.mark.parametrize("name", ["RollingDisk", "NonholonomicParticle", "HarmonicCVT"])
def test_everything_lies_inside_the_axes(name, view):
    system = getattr(da.zoo, name)()
    ax = stills.scene(da.simulate(system, da.FrameGradient(), *system.start(), h=0.1, steps=30), view=view)
    bodies = _drawn(ax, 3)
    corners = np.concatenate([x.vertices for x in bodies.get_paths()])
    for low, high, (least, most) in zip(
        corners.min(axis=0), corners.max(axis=0), (ax.get_xlim(), ax.get_ylim()), strict=True
    ):
        # Lifted paths move towards the eye, which rounding sees across the picture.
        assert least - ROUNDING < low < high < most + ROUNDING


def test_a_gif_is_small_and_moves(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(stills, "GIF_FRAMES", 8)
    shown = film(disk[0], frames=24, t=(0.0, 10.0))
    path = stills.save_gif(shown, tmp_path / "disk.gif", fps=20, size=(2, 1.5), dpi=60)
    with Image.open(path) as made:
        assert made.n_frames == -(-len(shown.times) // -(-len(shown.times) // 8))
        assert made.size == (120, 90)
        assert made.info["duration"] == 80
        pictures = []
        for i in range(made.n_frames):
            made.seek(i)
            pictures.append(np.asarray(made.convert("RGB")).astype(int))
    assert all(np.any(np.abs(a - b) > 50) for a, b in pairwise(pictures))
    assert tuple(pictures[0][2, 60]) == (255, 255, 255)
    monkeypatch.setattr(stills, "GIF_BYTES", path.stat().st_size - 1)
    stills.save_gif(shown, path, fps=20, size=(2, 1.5), dpi=60)
    with Image.open(path) as made:
        assert made.n_frames == -(-len(pictures) // 2)


def test_an_mp4_without_ffmpeg_is_refused(tmp_path, blocks, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ValueError, match=r"install it.*\.html or \.gif"):
        stills.save_mp4(blocks, tmp_path / "blocks.mp4")
    assert not (tmp_path / "blocks.mp4").exists()


def test_an_mp4_is_written_where_there_is_ffmpeg(tmp_path, blocks):
    try:
        stills._ffmpeg()
    except ValueError:
        pytest.skip("no ffmpeg here")
    path = stills.save_mp4(blocks, tmp_path / "blocks.mp4", size=(1.63, 1.21), dpi=50)
    assert path.read_bytes()[4:8] == b"ftyp"
    with pytest.raises(ValueError, match="could not write"):
        stills.save_mp4(blocks, tmp_path / "none" / "blocks.mp4", size=(1.63, 1.21), dpi=50)
