"""Films: the scenes of one run, or of several together, at chosen times, from which pictures of motion are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_hex
from scipy.spatial.transform import Rotation

from dalembert.kernels import over_rows
from dalembert.model.scene import Part
from dalembert.simulation import Trajectory
from dalembert.view.meshes import mesh
from dalembert.view.names import method_name
from dalembert.view.style import run_styles

# A new frame begins when something has turned or moved by about this much (radians; fraction of the picture).
TURN, MOVE = 0.35, 0.04
# The number of rows from which that is judged.
LOOK = 4096
# A part without a size of its own uses this fraction of the picture as its unit.
SHARE = 0.07
# The default number of frames of an animation, enough for 20 seconds.
FRAMES = 600


@dataclass(frozen=True)
class Moving:
    """A part at all frames: positions (k, 3), rotations (k, 3, 3) and sizes (k, 3)."""

    kind: str
    colour: str | None
    at: np.ndarray
    turn: np.ndarray
    size: np.ndarray


@dataclass(frozen=True)
class Copy:
    """One run in the picture."""

    label: str
    colour: str
    parts: list[Moving]
    rows: np.ndarray
    """(k,) the row of the run that each frame shows."""


@dataclass(frozen=True)
class Film:
    """Frames of one or more runs at times (k,), and the corners of the box that they fill."""

    times: np.ndarray
    copies: list[Copy]
    low: np.ndarray
    high: np.ndarray
    title: str
    end: float
    """The time at which the runs ended, which may be after the last frame."""

    @property
    def extent(self) -> float:
        """The longest edge of the box."""
        return float(np.max(self.high - self.low))

    @property
    def has_floor(self) -> bool:
        """Whether the scene stands on a floor."""
        return any(part.kind == "floor" for part in self.copies[0].parts)


def _scene(system, t, q):
    parts = system.scene(t, q)
    if not isinstance(parts, list | tuple) or not all(isinstance(x, Part) for x in parts):
        raise ValueError(
            f"{system.label}.scene(t, q) must return a list of parts made by the functions of dalembert.scene, such "
            f"as scene.wheel(...); got {parts!r}"
        )
    return list(parts)


def _of_rows(sol: Trajectory, rows: np.ndarray) -> list[Part]:
    """The parts of the scene at the given rows; the first axis of every leaf is the row."""
    if sol.system is None:
        raise ValueError(
            "a scene needs the system, but this run was loaded without it; use load(..., system=)"
        )
    if np.ndim(sol.q) == 3:
        raise ValueError("a scene shows one trajectory, but this is an ensemble; take sol.member(i)")
    return over_rows(_scene)(sol.system, np.asarray(sol.t)[rows], np.asarray(sol.q)[rows])


def _orientation(part: Part) -> np.ndarray:
    if part.rolled is None:
        return np.asarray(part.turn, float)
    turns = [np.asarray(part.turn, float)[0]]
    for step in Rotation.from_rotvec(np.diff(np.asarray(part.rolled, float), axis=0)).as_matrix():
        turns.append(step @ turns[-1])
    return np.stack(turns)


def _reach(part: Part) -> np.ndarray:
    """(k, 3) half the edges of the upright box around the part; zero for a part without a size of its own."""
    points = mesh(part.kind).points if part.kind not in ("trace", "floor") else np.zeros((1, 3))
    half = np.max(np.abs(points), axis=0) * np.asarray(part.size) * (not part.relative)
    return np.einsum("kij,kj->ki", np.abs(np.asarray(part.turn)), half)


def _room(copies: Sequence[list[Part]]) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a box around all parts at all frames."""
    lows, highs = [], []
    for part in (x for parts in copies for x in parts if x.kind not in ("floor", "line")):
        at, reach = np.asarray(part.at, float), _reach(part)
        fine = np.all(np.isfinite(at), axis=1)
        lows.append(np.min((at - reach)[fine], axis=0))
        highs.append(np.max((at + reach)[fine], axis=0))
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    if any(part.kind == "floor" for parts in copies for part in parts):
        low[2] = 0.0
    return low, np.maximum(high, low + 1e-9)


def _stride(parts: list[Part], extent: float) -> int:
    """The largest number of rows between two frames for which nothing jumps."""
    steps = []
    for part in parts:
        if part.kind in ("floor", "tile", "trace") or len(part.at) < 2:
            continue
        move = np.linalg.norm(np.diff(part.at, axis=0), axis=1) / (MOVE * extent)
        turn = _orientation(part)
        trace = np.einsum("kij,kij->k", turn[1:], turn[:-1])
        steps += [move, np.arccos(np.clip(0.5 * (trace - 1), -1, 1)) / TURN]
    fastest = np.quantile(np.concatenate(steps), 0.99) if steps else 1.0
    return max(1, int(1 / max(fastest, 1e-9)))


def film(
    runs: Sequence[Trajectory] | Trajectory,
    frames: int = FRAMES,
    t: tuple[float, float] | None = None,
    labels: Sequence[str] | None = None,
    unit: float | None = None,
) -> Film:
    """The scenes of runs of one system at the same times, with at most `frames` frames.

    Without `t`, frames begin at the start and follow each other closely enough to show how things turn, so only part
    of a long run is shown. `t=(a, b)` shows that interval, whatever its length. Things without a size of their own get
    a fraction of `unit`, by default of the box that the motion fills.
    """
    runs = [runs] if isinstance(runs, Trajectory) else list(runs)
    if not runs:
        raise ValueError("there is no run to show: give at least one trajectory")
    if frames < 2 or frames != int(frames):
        raise ValueError(f"frames must be a whole number, 2 or more; got {frames!r}")
    whole = [np.asarray(run.t, float) for run in runs]
    first, last = min(x[0] for x in whole), max(x[-1] for x in whole)
    begin, end = (first, last) if t is None else (float(t[0]), float(t[1]))
    if not (first <= begin < end or first == begin == end) or end > last * (1 + 1e-12) + 1e-12:
        raise ValueError(f"t must be two times in order between {first:g} and {last:g}, got {t!r}")
    longest = max(whole, key=len)
    inside = np.flatnonzero((longest >= begin - 1e-12) & (longest <= end + 1e-12))
    if not inside.size:
        raise ValueError(f"no saved row lies between t = {begin:g} and {end:g}; choose a longer interval")
    stride = int(np.ceil(max(1, len(inside) - 1) / (frames - 1)))
    if t is None and stride > 1:
        some = inside[:LOOK]
        parts = _of_rows(max(runs, key=lambda run: len(run.t)), some)
        low, high = _room([parts])
        stride = min(stride, _stride(parts, float(np.max(high - low))))
    inside = inside[::stride][:frames]
    times = longest[inside]
    rows = [
        np.clip(np.searchsorted(x, times + 1e-12 * (1 + abs(times)), "right") - 1, 0, None) for x in whole
    ]
    found = [_of_rows(run, r) for run, r in zip(runs, rows, strict=True)]
    low, high = _room(found)
    share = SHARE * (float(np.max(high - low)) if unit is None else unit)
    copies = []
    styles = run_styles([method_name(run) for run in runs], [float(run.h) for run in runs])
    for i, (run, parts) in enumerate(zip(runs, found, strict=True)):
        label = method_name(run) if labels is None else labels[i]
        moving = [
            Moving(
                p.kind,
                p.colour,
                np.asarray(p.at),
                _orientation(p),
                np.asarray(p.size) * (share if p.relative else 1.0),
            )
            for p in parts
        ]
        copies.append(Copy(label, to_hex(styles[i]["color"]), moving, rows[i]))
    system = runs[0].system
    return Film(times, copies, low, high, "" if system is None else system.label, float(last))
