"""Flat drawings of scenes: stills for papers, and the frames of GIF and MP4 files."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon

from dalembert.simulation import Trajectory
from dalembert.view import cameras as look
from dalembert.view.films import Copy, Film, Moving, film
from dalembert.view.style import paler, title, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Size = tuple[float, float]
GROUND, GRID, SHADE = "#f8f9fb", "#dfe3ea", "#dde1e8"
# The number of bodies in a still, and the fractions of white in the earliest body, in ghosts and in the path to come.
BODIES, EARLIEST, GHOST, TO_COME = 5, 0.7, 0.25, 0.7
# The largest number of saved rows in the path of a still.
ROWS = 3000
# The largest numbers of frames, bytes and colours of a GIF, and the longest pause between its frames in seconds.
GIF_FRAMES, GIF_BYTES, GIF_COLOURS, GIF_PAUSE = 150, 2_000_000, 64, 0.08
# Heights below this fraction of the picture count as on the floor.
LOW = 0.01


class Stage:
    """Axes with a floor, in which repeated calls of `show` draw the bodies of a film at some frames."""

    def __init__(self, shown: Film, ax: "Axes", view: Any = "oblique", ghosts: bool = True):
        self.film, self.ax, self.eye = shown, ax, look.camera(view)
        self.copies = shown.copies if ghosts else shown.copies[:1]
        self.above = self.eye.elevation > 5 and shown.has_floor
        ax.set_aspect("equal", adjustable="box")
        ax.axis("off")
        points = look.cloud(self.copies, shown)
        if shown.has_floor:
            points = np.concatenate([points, self._floor(points.min(axis=0), points.max(axis=0))])
        low, high = (np.array([f(x) for x in self.eye.project(points)[:2]]) for f in (np.min, np.max))
        margin = 0.02 * max(float(np.max(high - low)), 1e-9)
        ax.set_xlim(low[0] - margin, high[0] + margin)
        ax.set_ylim(low[1] - margin, high[1] + margin)
        self.shadows = PolyCollection([], facecolors=SHADE, edgecolors=SHADE, linewidths=0.3, zorder=1.2)
        self.traces = LineCollection([], zorder=2, capstyle="round", joinstyle="round")
        self.bodies = PolyCollection([], zorder=3, joinstyle="round")
        self.moving = (self.shadows, self.traces, self.bodies)
        for artist in self.moving:
            ax.add_collection(artist, autolim=False)
        if self.above:
            self.shadows.set_clip_path(self.ground)
        if len(self.copies) > 1:
            lines = [Line2D([], [], color=copy.colour, lw=2, label=copy.label) for copy in self.copies]
            ax.legend(handles=lines, loc="upper right", frameon=False, fontsize="small")

    def _floor(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Draws a pale ground with lines at round distances and returns its corners."""
        step, lines, rim = look.grid(low, high)
        if self.eye.elevation > 0:
            self.ground = Polygon(self._flat(rim), fc=GROUND, ec=GRID, lw=0.8, zorder=1)
            self.ax.add_patch(self.ground)
        self.ax.add_collection(LineCollection(list(self._flat(lines)), colors=GRID, lw=0.6, zorder=1.4))
        corner: Any = {"xycoords": "axes fraction", "ha": "right", "va": "bottom"}
        self.ax.annotate(f"grid {step:g}", (1, 0), color="0.6", fontsize=7, **corner)
        return rim

    def _flat(self, points: np.ndarray) -> np.ndarray:
        return np.stack(self.eye.project(points)[:2], axis=-1)

    def show(self, frames: Sequence[int]) -> None:
        """Draws the bodies at these frames, with earlier ones paler, and the paths up to the last frame."""
        seen, shades, lines, colours = [], [], [], []
        for copy in self.copies:
            ghost = copy is not self.film.copies[0]
            for part in (part for part in copy.parts if part.kind == "trace"):
                colour = copy.colour if ghost or part.colour is None else part.colour
                self._trace(copy, part, colour, max(frames), seen, lines, colours)
            for i, frame in enumerate(frames):
                white = EARLIEST * (1 - i / max(len(frames) - 1, 1)) if len(frames) > 1 else 0.0
                white = white + (1 - white) * GHOST * ghost
                seen += look.body(copy, self.film, frames[i:], self.eye, white, ghost)
                if self.above and not ghost:
                    shades += look.shadow(copy, self.film, frame, self.eye)
        self.shadows.set_verts(shades)
        self.traces.set_segments(lines)
        self.traces.set_color(colours)
        self.traces.set_linewidth(width_of(len(self.film.times), widest=1.6, least=0.5))
        shapes: Any = look.ordered(seen)
        inside: Any = np.column_stack([shapes.colours, shapes.filled.astype(float)])
        self.bodies.set_verts(shapes.outlines)
        self.bodies.set_facecolor(inside)
        self.bodies.set_edgecolor(shapes.colours)
        self.bodies.set_linewidth(shapes.widths)

    def _trace(self, copy: Copy, part: Moving, colour: str, last: int, seen, lines, colours) -> None:
        """Adds a path: on the floor, as two lines drawn before all bodies; in space, as pieces among the bodies."""
        known = part.at[np.all(np.isfinite(part.at), axis=1)]
        pale = paler(colour, TO_COME)
        if self.film.has_floor and np.all(np.abs(known[:, 2]) < LOW * self.film.extent):
            spots = self._flat(part.at)
            lines += [spots[last:], spots[: last + 1]]
            colours += [pale, colour]
            return
        if len(part.at) < 2:
            return
        globe = next((p for p in copy.parts if p.kind == "sphere"), None)
        middle = self.eye.axes[2] * -1e9 if globe is None else globe.at[last]
        past = look.halves(part.at, middle, self.eye, colour)
        past[last:] = to_rgb(pale)
        # Lifts the path, so that it stays visible on a table whose faces have centres in front of and behind it.
        lifted = part.at + 0.5 * look.OF_PICTURE * self.film.extent * self.eye.axes[2]
        seen.append(look.segments(lifted, self.eye, past, width_of(len(part.at), widest=1.6, least=0.5)))


def draw(
    shown: Film,
    frames: int | Sequence[int],
    ax: "Axes | None" = None,
    view: Any = "oblique",
    ghosts: bool = True,
) -> "Axes":
    """Draws a film at one frame, or at several with the earlier bodies paler, and returns the axes.

    `view` is "oblique", "top", "side" or (azimuth, elevation) in degrees. `ghosts=False` shows only the first run.
    """
    count = len(shown.times)
    chosen = [int(i) for i in np.atleast_1d(np.asarray(frames))]
    if not chosen or not all(-count <= i < count for i in chosen):
        raise ValueError(f"frames must be numbers from 0 to {count - 1}; got {frames!r}")
    look.camera(view)
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    Stage(shown, ax, view, ghosts).show(sorted(i % count for i in chosen))
    return ax


def scene(
    sol: Trajectory | Sequence[Trajectory],
    t: Any = None,
    times: Any = None,
    view: Any = "oblique",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws the path of a run with its body at several times, with earlier ones paler, and returns the axes.

    `t` is one time at which to show the body, or the interval (a, b) to draw instead of the whole run. `times` is a
    list of times, or the largest number of bodies (5), from which bodies that would overlap are left out. If there are
    several runs, all but the first are ghosts in the colours of their methods.
    """
    look.camera(view)
    runs = [sol] if isinstance(sol, Trajectory) else list(sol)
    if not runs:
        raise ValueError("there is no run to show: give at least one trajectory")
    first, last = (float(f(np.asarray(run.t)[i] for run in runs)) for f, i in ((min, 0), (max, -1)))
    alone = t is not None and np.ndim(t) == 0
    if alone:
        if times is not None:
            raise ValueError("give t or times, not both: t=2.0 shows one body, times=[...] several")
        times, t = [t], None
    elif t is not None and np.shape(t) != (2,):
        raise ValueError(f"t must be a time or two times (a, b); got {t!r}")
    span = (first, last) if t is None else t
    shown = film(runs, frames=ROWS, t=span)
    frames = _frames(shown, BODIES if times is None else times)
    ax = draw(shown, frames, ax, view)
    a, b = shown.times[[0, -1]]
    title(ax, f"{shown.title}, t = " + (f"{shown.times[frames[0]]:.3g}" if alone else f"{a:.3g} to {b:.3g}"))
    return ax


def _frames(shown: Film, times: Any) -> list[int]:
    """The frames nearest to the times, or at most `times` frames if it is a number."""
    known = shown.times
    if np.ndim(times) == 0:
        if not (isinstance(times, int | np.integer) and times > 0):
            raise ValueError(f"times must be a list of times, or the number of them; got {times!r}")
        even = np.unique(np.linspace(0, len(known) - 1, max(int(times), 2)).astype(int))
        return look.apart(shown, even.tolist() if times > 1 else [len(known) - 1])
    times = np.asarray(times, float)
    slack = 1e-9 * (1 + np.abs(known).max())
    wrong = times[~((times >= known[0] - slack) & (times <= known[-1] + slack))]
    if not times.size or wrong.size:
        got = f"{wrong[0]:g}" if wrong.size else "no time"
        raise ValueError(f"the run shown goes from t = {known[0]:g} to {known[-1]:g}; got {got}")
    return sorted({int(np.argmin(np.abs(known - x))) for x in times})


def pictures(
    shown: Film, frames: Sequence[int], size: Size = (6, 4.5), dpi: int = 80, view: Any = "oblique"
) -> Iterator[np.ndarray]:
    """Yields the frames as arrays (height, width, 4) of bytes, with the time written above each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=dpi)
    canvas = FigureCanvasAgg(figure)
    ax = figure.add_axes((0.01, 0.01, 0.98, 0.91))
    stage = Stage(shown, ax, view)
    figure.text(0.02, 0.95, shown.title, fontsize=10)
    clock = figure.text(0.98, 0.95, "", fontsize=10, ha="right", family="monospace", animated=True)
    for artist in stage.moving:
        artist.set_animated(True)
    canvas.draw()
    empty = canvas.copy_from_bbox(figure.bbox)
    for frame in frames:
        canvas.restore_region(empty)
        stage.show([frame])
        clock.set_text(f"t = {shown.times[frame]:.2f}")
        for artist in (*stage.moving, clock):
            artist.draw(canvas.get_renderer())
        yield np.array(canvas.buffer_rgba())


def save_gif(
    shown: Film,
    path: str | Path,
    fps: float = 30,
    size: Size = (6, 4.5),
    dpi: int = 80,
    view: Any = "oblique",
) -> Path:
    """Writes a film as a GIF of at most 150 frames and 2 MB, with every k-th frame of a long film."""
    from PIL import Image

    every = -(-len(shown.times) // GIF_FRAMES)
    drawn = pictures(shown, range(0, len(shown.times), every), size, dpi, view)
    full = [Image.fromarray(x).convert("RGB") for x in drawn]
    some = np.concatenate([np.asarray(full[i]) for i in {0, len(full) // 2, len(full) - 1}])
    palette = Image.fromarray(some).quantize(GIF_COLOURS, dither=Image.Dither.NONE)
    # White and the ground fill most of the picture. They get their own colours, because median colours would mix them.
    plain = np.round(255 * np.array([to_rgb("white"), to_rgb(GROUND)])).astype(np.uint8)
    colours = [*(palette.getpalette() or [])[: 3 * GIF_COLOURS], *plain.ravel().tolist()]
    images = []
    for x in full:
        flat = np.array(x.quantize(palette=palette, dither=Image.Dither.NONE))
        for k, colour in enumerate(plain):
            flat[np.all(np.asarray(x) == colour, axis=2)] = len(colours) // 3 - 2 + k
        images.append(Image.fromarray(flat))
        images[-1].putpalette(colours)
    target = Path(path)
    while True:
        pause = round(100 * min(every / fps, max(GIF_PAUSE, 1 / fps))) * 10
        images[0].save(target, save_all=True, append_images=images[1:], duration=max(pause, 20), loop=0)
        if target.stat().st_size <= GIF_BYTES or len(images) < 4:
            return target
        images, every = images[::2], 2 * every


def _ffmpeg() -> str:
    """The path of ffmpeg; raises ValueError if it is not installed."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg  # pyright: ignore[reportMissingImports]

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise ValueError(
            "an MP4 needs the program ffmpeg, which was not found: install it, or the package imageio-ffmpeg, or "
            "choose a file that ends in .html or .gif"
        ) from None


def save_mp4(
    shown: Film, path: str | Path, fps: float = 30, size: Size = (8, 6), dpi: int = 100, view: Any = "oblique"
) -> Path:
    """Writes all frames of a film as an MP4 with ffmpeg."""
    program = _ffmpeg()
    # Most players need even numbers of pixels.
    width, height = (2 * round(x * dpi / 2) for x in size)
    source = f"-y -loglevel error -f rawvideo -pix_fmt rgba -s {width}x{height} -r {fps:g} -i - -an"
    command = [program, *source.split(), "-c:v", "libx264", "-pix_fmt", "yuv420p", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            for picture in pictures(shown, range(len(shown.times)), (width / dpi, height / dpi), dpi, view):
                process.stdin.write(picture.tobytes())
            process.stdin.close()
        except BrokenPipeError:
            pass  # its error output says why
        words = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise ValueError(f"ffmpeg could not write {path}: {words or process.returncode}")
    return Path(path)
