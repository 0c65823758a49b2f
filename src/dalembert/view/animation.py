"""Writes a film as one self-contained HTML file, or as a GIF or MP4 with `stills`."""

import base64
import html
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from dalembert.simulation import Trajectory
from dalembert.view.films import FRAMES, Film, Moving, film
from dalembert.view.meshes import PAINTS, mesh
from dalembert.view.names import method_name, step_words, system_name
from dalembert.view.style import Panel, panels

# Places that differ by less than this fraction of the picture are the same; a screen has a few thousand pixels.
STILL = 1e-6
# The axis about which each of these parts can turn without looking different.
ROUND = {"rod": 2, "spring": 2, "arrow": 2, "point": 2}


def page(
    film: Film, panels: Sequence[Panel] = (), *, title: str | None = None, note: str = "", fps: float = 30.0
) -> str:
    """The text of one HTML file that plays the film, with the panels beside it and a note below."""
    kinds = dict.fromkeys(part.kind for copy in film.copies for part in copy.parts)
    data = {
        "title": film.title if title is None else title,
        "note": ", ".join(x for x in (f"dalembert {_version()}".strip(), note) if x),
        "fps": fps,
        "frames": len(film.times),
        "times": _column(film.times, 0.0),
        "end": film.end,
        "low": [_number(x) for x in film.low],
        "high": [_number(x) for x in film.high],
        "floor": film.has_floor,
        "paints": {str(key): colour for key, colour in PAINTS.items()},
        "meshes": {kind: _shape(kind) for kind in kinds},
        "copies": [
            {
                "label": copy.label,
                "colour": copy.colour,
                "parts": [_moving(part, STILL * film.extent) for part in copy.parts if part.kind != "floor"],
            }
            for copy in film.copies
        ],
        "panels": [
            {
                "title": panel.title,
                "curves": [
                    {
                        "label": c.label,
                        "colour": c.colour,
                        "dash": c.dash,
                        "t": _packed(c.t),
                        "y": _packed(c.y),
                    }
                    for c in panel.curves
                ],
            }
            for panel in panels
        ],
    }
    here = files("dalembert.view")
    text = here.joinpath("player.html").read_text(encoding="utf-8")
    for name in ("player.css", "player_scene.js", "player.js"):
        text = text.replace(f"/* {name} */", here.joinpath(name).read_text(encoding="utf-8"))
    # Labels are the user's text. Without "<" they cannot end the script that contains them.
    content = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.replace("/* film */", content)


def _version() -> str:
    try:
        return version("dalembert")
    except PackageNotFoundError:
        return ""


def _packed(x: Any) -> str:
    return base64.b64encode(np.asarray(x, "<f4").tobytes()).decode()


def _number(x: Any) -> float:
    return float(f"{float(x):.7g}")


def _column(x: np.ndarray, still: float) -> float | list[Any]:
    """One number if the column is constant; otherwise the first number and the packed differences from it."""
    x = np.asarray(x, float)
    finite = x[np.isfinite(x)]
    if len(finite) == len(x) and np.ptp(x) <= still:
        return _number(x[0])
    base = float(finite[0]) if len(finite) else 0.0
    return [base, _packed(x - base)]


def _columns(x: np.ndarray, still: float) -> list[Any]:
    return [_column(x[:, i], still) for i in range(x.shape[1])]


def _moving(part: Moving, still: float) -> dict[str, Any]:
    at = np.array(part.at, float)
    at[~np.isfinite(part.turn).all(axis=(1, 2)) | ~np.isfinite(part.size).all(axis=1)] = (
        np.nan
    )  # such a part is not drawn
    return {
        "kind": part.kind,
        "colour": part.colour,
        "at": _columns(at, still),
        "turn": _columns(_quaternions(part), 1e-7),  # the resolution of float32
        "size": _columns(np.nan_to_num(np.asarray(part.size, float)), still),
    }


def _quaternions(part: Moving) -> np.ndarray:
    """(k, 4) orientations (x, y, z, w), with signs chosen so that they vary continuously."""
    turns = np.array(part.turn, float)
    turns[~np.isfinite(turns).all(axis=(1, 2))] = np.eye(3)
    square = part.kind == "tile" and bool(np.all(np.isclose(part.size[:, 0], part.size[:, 1])))
    if part.kind in ROUND or square:
        turns = _carried(turns, ROUND.get(part.kind, 2), either=square)
    elif part.kind == "tile":
        turns = _carried(turns, 0, either=True)
    found = Rotation.from_matrix(turns).as_quat()
    flips = np.sign(np.sum(found[1:] * found[:-1], axis=1))
    found[1:] *= np.cumprod(np.where(flips < 0, -1.0, 1.0))[:, None]
    return found


def _carried(turns: np.ndarray, axis: int, either: bool) -> np.ndarray:
    """The rotations with the same axis at every frame that turn about it as little as possible between frames.

    If only the axis of a part matters, the rest of its matrix may jump, and the part would seem to spin between two
    frames. With `either`, the axis may point either way.
    """
    found = [turns[0]]
    for turn in turns[1:]:
        old, new = found[-1][:, axis], turn[:, axis]
        cosine = float(old @ new)
        if either and cosine < 0:
            new, cosine = -new, -cosine
        across = np.cross(old, new)
        sine = float(np.linalg.norm(across))
        if sine < 1e-12:
            found.append(found[-1] if cosine > 0 else turn)
            continue
        found.append(Rotation.from_rotvec(across / sine * np.arctan2(sine, cosine)).as_matrix() @ found[-1])
    return np.stack(found)


def _shape(kind: str) -> dict[str, Any]:
    shape = mesh(kind)
    return {
        "corners": [round(float(x), 5) for x in shape.corners.ravel()],
        "faces": [list(face) for face in shape.faces],
        "paints": list(shape.paints),
        "lines": [[round(float(x), 4) for x in line.ravel()] for line in shape.lines],
    }


SUFFIXES = (".html", ".gif", ".mp4")


@dataclass(frozen=True)
class Animation:
    """A film with the curves beside it, ready to be shown in a notebook or written to a file."""

    film: Film
    panels: Sequence[Panel] = ()
    note: str = ""
    fps: float = 30.0

    @cached_property
    def html(self) -> str:
        """The whole page as text."""
        return page(self.film, self.panels, note=self.note, fps=self.fps)

    def save(self, path: Any) -> Path:
        """Writes the animation to `path`, which ends in .html, .gif or .mp4, and returns the path."""
        path = check_target(path)
        if path.suffix == ".html":
            path.write_text(self.html, encoding="utf-8")
        else:
            from dalembert.view import stills

            (stills.save_gif if path.suffix == ".gif" else stills.save_mp4)(self.film, path, self.fps)
        return path

    def _repr_html_(self) -> str:
        """An inline frame that contains the whole page, so that a notebook shows it without a file."""
        text = html.escape(self.html)
        style = "width:100%;height:600px;border:0"
        return f'<iframe sandbox="allow-scripts" title="animation" style="{style}" srcdoc="{text}"></iframe>'

    def __repr__(self) -> str:
        times = self.film.times
        return f"<Animation of {self.film.title}: {len(times)} frames, t = {times[0]:g} to {times[-1]:g}>"


def animate(
    runs: Sequence[Trajectory] | Trajectory,
    path: Any = None,
    *,
    frames: int = FRAMES,
    t: tuple[float, float] | None = None,
    fps: float = 30.0,
    panels: bool = True,
    labels: Sequence[str] | None = None,
) -> Animation:
    """An animation of one run, or of several runs of one system together, with curves of what they keep.

    If `path` is given, the animation is also written to that file. A long run is shown from its start, with frames
    close enough to see things turn; `t=(a, b)` shows that interval in at most `frames` frames. If there are several
    runs, the first is solid and the others are transparent.
    """
    target = None if path is None else check_target(path)
    if not (isinstance(fps, int | float) and 0 < fps <= 240):
        raise ValueError(f"fps must be a number of frames per second between 0 and 240, got {fps!r}")
    chosen = [runs] if isinstance(runs, Trajectory) else list(runs)
    for run in chosen:
        if np.ndim(run.q) == 3:
            raise ValueError(
                "an animation shows single trajectories, got an ensemble; try sol.member(0).animate()"
            )
    if labels is not None and len(labels) != len(chosen):
        raise ValueError(f"there are {len(chosen)} runs but {len(labels)} labels; give one per run")
    shown = film(chosen, frames, t, labels)
    made = Animation(shown, _curves(chosen, labels) if panels else (), _note(chosen), float(fps))
    if target is not None:
        made.save(target)
    return made


def _curves(runs: list[Trajectory], labels: Sequence[str] | None) -> list[Panel]:
    return [panel for panel in panels(runs, labels) if any(len(curve.t) > 1 for curve in panel.curves)]


def _note(runs: list[Trajectory]) -> str:
    """One line with the system, the methods and the steps."""
    steps = [step_words(run) for run in runs]
    if len(set(steps)) == 1:
        return ", ".join([system_name(runs[0]), *dict.fromkeys(map(method_name, runs)), steps[0]])
    by = [f"{method_name(run)} ({step})" for run, step in zip(runs, steps, strict=True)]
    return ", ".join([system_name(runs[0]), *dict.fromkeys(by)])


def check_target(path: Any) -> Path:
    """The path; raises ValueError if no animation can be written there, before anything is computed."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"an animation is a file ending in {', '.join(SUFFIXES)}; got {str(path)!r}")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"the folder of {str(path)!r} does not exist; make it first")
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder; choose the name of a file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{str(path)!r} may not be written; choose another place or change its permissions")
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None and find_spec("imageio_ffmpeg") is None:
        raise ValueError(
            "an .mp4 file needs ffmpeg, which is not installed; install it, or choose .html or .gif"
        )
    return path
