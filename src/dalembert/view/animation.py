"""A film as one HTML file that plays by itself and asks for nothing; or as a GIF or MP4 by `stills`."""

import html
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dalembert.simulate import Trajectory
from dalembert.view.curves import Panel, panels
from dalembert.view.film import FRAMES, Film, film
from dalembert.view.names import method_name, step_words, system_name
from dalembert.view.page import page

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
        """Writes the animation to a .html, .gif or .mp4 file, by the suffix of `path`, and returns the path."""
        path = check_target(path)
        if path.suffix == ".html":
            path.write_text(self.html, encoding="utf-8")
        else:
            from dalembert.view import stills

            (stills.save_gif if path.suffix == ".gif" else stills.save_mp4)(self.film, path, self.fps)
        return path

    def _repr_html_(self) -> str:
        """A frame that holds the page itself, so that a notebook shows it without a file."""
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
    """One run in motion, or several of one system at once, with curves of what they keep; `path` is a file to write.

    A long run is shown from its start, so closely that one sees things turn; `t=(a, b)` shows that interval in
    at most `frames` frames. Of several runs the first is solid and the others are see-through.
    """
    target = None if path is None else check_target(path)
    if not (isinstance(fps, int | float) and 0 < fps <= 240):
        raise ValueError(f"fps must be a number of frames a second between 0 and 240, got {fps!r}")
    chosen = [runs] if isinstance(runs, Trajectory) else list(runs)
    for run in chosen:
        if np.ndim(run.q) == 3:
            raise ValueError("an animation is of single trajectories: sol.member(0).animate()")
    if labels is not None and len(labels) != len(chosen):
        raise ValueError(f"there are {len(chosen)} runs but {len(labels)} labels; give one a run")
    shown = film(chosen, frames, t, labels)
    made = Animation(shown, _curves(chosen, labels) if panels else (), _note(chosen), float(fps))
    if target is not None:
        made.save(target)
    return made


def _curves(runs: list[Trajectory], labels: Sequence[str] | None) -> list[Panel]:
    return [panel for panel in panels(runs, labels) if any(len(curve.t) > 1 for curve in panel.curves)]


def _note(runs: list[Trajectory]) -> str:
    """System, methods and steps in a line."""
    steps = [step_words(run) for run in runs]
    if len(set(steps)) == 1:
        return ", ".join([system_name(runs[0]), *dict.fromkeys(map(method_name, runs)), steps[0]])
    by = [f"{method_name(run)} ({step})" for run, step in zip(runs, steps, strict=True)]
    return ", ".join([system_name(runs[0]), *dict.fromkeys(by)])


def check_target(path: Any) -> Path:
    """The path, or a refusal where an animation cannot be written there; called before anything is computed."""
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
