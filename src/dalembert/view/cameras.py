"""A camera that looks at a scene along parallel lines, and the faces it sees, from back to front."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from scipy.spatial import ConvexHull

from dalembert.view.films import Copy, Film, Moving
from dalembert.view.meshes import OWN, PAINTS, PALE, mesh

VIEWS = {"oblique": (-60.0, 25.0), "top": (-90.0, 90.0), "side": (-90.0, 0.0)}
# The direction of the light: across, up, towards the eye.
LIGHT = np.array([-0.35, 0.45, 0.82]) / np.linalg.norm([-0.35, 0.45, 0.82])
# A face in the dark keeps this fraction of its colour.
DIM = 0.62
# The fraction of white mixed into lines on the far side of their part.
FAR = 0.6
# Widths in points of seams between faces, of springs and similar lines, and of globes.
SEAM, WIRE, THIN = 0.6, 1.1, 0.6
# Faces are cut to at most these fractions of their part and of the picture, because sorting by depth needs small faces.
OF_PART, OF_PICTURE = 0.2, 1 / 16
# The bodies in one still are at least this many radii apart.
SPACING = 1.2
SOLID = ("wheel", "tyre", "disc", "blade", "box", "tile", "ball", "point", "rod")


def _times(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The matrix times each of the points (..., 3), as one product, which is much faster than one product per face."""
    return (points.reshape(-1, 3) @ matrix.T).reshape(points.shape)


def _normals(corners: np.ndarray) -> np.ndarray:
    """(n, 3) the normals of quads (n, 4, 3), with lengths equal to twice their areas."""
    (a, b, c), (d, e, f) = (corners[:, 2] - corners[:, 0]).T, (corners[:, 3] - corners[:, 1]).T
    return np.stack([b * f - c * e, c * d - a * f, a * e - b * d], axis=1)


@dataclass(frozen=True)
class Camera:
    """A camera that looks from a direction: azimuth about the vertical, measured from x, and elevation, in degrees."""

    azimuth: float
    elevation: float

    @cached_property
    def axes(self) -> np.ndarray:
        """(3, 3) the directions across the picture, up, and towards the eye, as rows."""
        a, e = np.deg2rad([self.azimuth, self.elevation])
        across = np.array([-np.sin(a), np.cos(a), 0.0])
        towards = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
        return np.stack([across, np.cross(towards, across), towards])

    def project(self, points: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The coordinates of points (..., 3) across the picture, up, and towards the eye."""
        seen = _times(np.asarray(points, float), self.axes)
        return seen[..., 0], seen[..., 1], seen[..., 2]


def camera(view: Any) -> Camera:
    """The camera for a name ("oblique", "top", "side") or for a pair (azimuth, elevation) in degrees."""
    if isinstance(view, Camera):
        return view
    if isinstance(view, str) and view in VIEWS:
        return Camera(*VIEWS[view])
    try:
        azimuth, elevation = (float(x) for x in (() if isinstance(view, str) else view))
    except (TypeError, ValueError):
        raise ValueError(
            f"view must be one of {', '.join(VIEWS)}, or (azimuth, elevation) in degrees; got {view!r}"
        ) from None
    if not (np.isfinite(azimuth) and -90 <= elevation <= 90):
        raise ValueError(f"the elevation of a view lies between -90 and 90 degrees; got {view!r}")
    return Camera(azimuth, elevation)


@dataclass(frozen=True)
class Seen:
    """Flat shapes in the picture's coordinates."""

    outlines: np.ndarray
    """(n, 4, 2) the corners; a triangle repeats its last corner, and a line has only two different corners."""
    colours: np.ndarray
    """(n, 3) the colours."""
    widths: np.ndarray
    """(n,) the widths of the outlines, in points."""
    filled: np.ndarray
    """(n,) whether each shape is a face."""
    depths: np.ndarray
    """(n,) how near each shape is to the eye."""


@cache
def _pieces(kind: str, size: tuple[float, float, float], cut: float) -> tuple[np.ndarray, np.ndarray]:
    """The faces of a shape of unit size as quads (n, 4, 3), and their paints.

    A triangle repeats its last corner. No face is longer than `cut` when the shape has size `size`.
    """
    shape, scale = mesh(kind), np.array(size)
    faces = np.array([[*face, face[-1]][:4] for face in shape.faces], int).reshape(-1, 4)
    quads, paints = shape.corners[faces], np.array(shape.paints, int)
    for _ in range(16):
        edges = np.linalg.norm((np.roll(quads, -1, axis=1) - quads) * scale, axis=2)
        pairs = np.stack([edges[:, [0, 2]].max(axis=1), edges[:, [1, 3]].max(axis=1)])
        long = pairs.max(axis=0, initial=0.0) > cut
        if not np.any(long):
            break
        turned = np.where((pairs[1] > pairs[0])[:, None, None], np.roll(quads, -1, axis=1), quads)[long]
        a, b, c, d = np.moveaxis(turned, 1, 0)
        ab, cd = 0.5 * (a + b), 0.5 * (c + d)
        halves = [np.stack(x, axis=1) for x in ((a, ab, cd, d), (ab, b, c, cd))]
        quads = np.concatenate([quads[~long], *halves])
        paints = np.concatenate([paints[~long], paints[long], paints[long]])
    return quads, paints


def _cut(part: Moving, film: Film) -> float:
    return min(OF_PART * float(np.max(part.size)), OF_PICTURE * film.extent)


def quads(part: Moving, film: Film, frame: int) -> tuple[np.ndarray, np.ndarray]:
    """The faces of a part at a frame as (n, 4, 3) in space, and their paints."""
    size = np.round(np.max(part.size, axis=0), 9)
    units, paints = _pieces(part.kind, tuple(size.tolist()), _cut(part, film))
    return _times(units * part.size[frame], part.turn[frame]) + part.at[frame], paints


def _mixed(colours: np.ndarray, white: Any) -> np.ndarray:
    white = np.asarray(white, float)[..., None]
    return white + (1 - white) * colours


def _faces(part: Moving, film: Film, frame: int, eye: Camera, own: Any, flat: bool) -> Seen:
    """The faces of a part that look towards the eye."""
    corners, paints = quads(part, film, frame)
    across, up, depth = eye.project(corners)
    spots = np.stack([across, up, depth], axis=2)
    normals = _normals(spots)
    area = np.linalg.norm(normals, axis=1)
    seen = normals[:, 2] > 1e-9 * np.maximum(area, 1e-300)
    normals = normals[seen] / area[seen, None]
    table = np.array([to_rgb(own) if flat or p == OWN else to_rgb(PAINTS[p]) for p in range(len(PAINTS) + 1)])
    if flat:  # marks must stay visible when everything has one colour
        table[PALE] = _mixed(table[PALE], 0.6)
    shade = DIM + (1 - DIM) * np.clip(normals @ LIGHT, 0, None) / LIGHT[2]
    colours = np.clip(table[paints[seen]] * np.minimum(shade, 1.08)[:, None], 0, 1)
    depths = depth[seen].mean(axis=1)
    if part.kind == "disc":  # its mark lies on the upper side, nearer than the centres of the faces suggest
        above = np.sign(part.turn[frame][:, 2] @ eye.axes[2])
        depths = depths + above * _cut(part, film) * (paints[seen] != OWN)
    count = len(depths)
    return Seen(spots[seen, :, :2], colours, np.full(count, SEAM), np.ones(count, bool), depths)


def segments(points: np.ndarray, eye: Camera, colours: np.ndarray, width: float) -> Seen:
    """The pieces of a line through points (k, 3), with one colour per piece (k - 1, 3)."""
    across, up, depth = eye.project(points)
    spots = np.stack([across, up], axis=1)
    outlines = np.stack([spots[:-1], spots[1:], spots[1:], spots[:-1]], axis=1)
    count = len(outlines)
    depths = 0.5 * (depth[1:] + depth[:-1])
    return Seen(outlines, colours, np.full(count, width), np.zeros(count, bool), depths)


def halves(points: np.ndarray, middle: np.ndarray, eye: Camera, colour: Any) -> np.ndarray:
    """(k - 1, 3) the colours of the pieces of a line, paler behind the middle."""
    depth = eye.project(points)[2]
    behind = 0.5 * (depth[1:] + depth[:-1]) < eye.project(middle)[2] - 1e-9
    return _mixed(np.broadcast_to(to_rgb(colour), (len(behind), 3)), FAR * behind)


def _lines(part: Moving, film: Film, frame: int, eye: Camera, own: Any) -> list[Seen]:
    found = []
    for line in mesh(part.kind).lines:
        points = line * part.size[frame] @ part.turn[frame].T + part.at[frame]
        seen = segments(
            points, eye, halves(points, part.at[frame], eye, own), THIN if part.kind == "sphere" else WIRE
        )
        if part.kind == "line" and film.has_floor and eye.elevation > 0:
            seen = Seen(
                seen.outlines, seen.colours, seen.widths, seen.filled, np.full(len(seen.depths), -np.inf)
            )
        found.append(seen)
    return found


def body(
    copy: Copy, film: Film, frames: Sequence[int], eye: Camera, white: float = 0.0, ghost: bool = False
) -> list[Seen]:
    """What the camera sees of one run at the first of the frames, mixed with the fraction `white` of white.

    Parts that stand in the same place at a later one of the frames are left out. A ghost is drawn entirely in its
    method's colour.
    """
    found, frame = [], frames[0]
    for part in copy.parts:
        own = copy.colour if ghost or part.colour is None else part.colour
        at = part.at[frame]
        if not (np.all(np.isfinite(at)) and np.max(part.size[frame]) > 0) or part.kind in ("trace", "floor"):
            continue
        if any(np.linalg.norm(part.at[later] - at) < 1e-6 * film.extent for later in frames[1:]):
            continue
        found += _lines(part, film, frame, eye, own)
        if mesh(part.kind).faces:
            found.append(_faces(part, film, frame, eye, own, ghost))
    for seen in found:
        seen.colours[:] = _mixed(seen.colours, np.full(len(seen.depths), white))
        # Runs that agree stand in one place, and the first one is visible.
        seen.depths[:] -= 0.1 * film.extent * ghost
    return found


def apart(film: Film, frames: Sequence[int]) -> list[int]:
    """The frames, chosen backwards from the last, whose moving parts do not overlap.

    Of a body that turns in place, only the last frame is left.
    """
    solid = [part for part in film.copies[0].parts if part.kind in SOLID]
    parts = [part for part in solid if np.any(np.ptp(part.at, axis=0) > 0)]
    turning = [
        part for part in solid if part.kind in ("box", "ball") and np.any(np.ptp(part.turn, axis=0) > 0)
    ]
    if not parts or any(not np.any(np.ptp(part.at, axis=0) > 0) for part in turning):
        return list(frames[-1:])
    places = np.stack([part.at[list(frames)] for part in parts])
    middle = places.mean(axis=0)
    halved = [np.max(part.size) * (0.5 if part.kind in ("box", "rod", "blade") else 1.0) for part in parts]
    least = SPACING * float(np.max(np.linalg.norm(places - middle, axis=2).max(axis=1) + halved))
    kept = [len(frames) - 1]
    for i in range(len(frames) - 2, -1, -1):
        if all(np.linalg.norm(places[:, i] - places[:, k], axis=1).mean() > least for k in kept):
            kept.append(i)
    return [frames[i] for i in reversed(kept)]


def ordered(parts: Sequence[Seen]) -> Seen:
    """All shapes together, with those farthest from the eye first."""
    if not parts:
        return Seen(np.zeros((0, 4, 2)), np.zeros((0, 3)), np.zeros(0), np.zeros(0, bool), np.zeros(0))
    depths = np.concatenate([part.depths for part in parts])
    order = np.argsort(depths, kind="stable")
    return Seen(
        np.concatenate([part.outlines for part in parts])[order],
        np.concatenate([part.colours for part in parts])[order],
        np.concatenate([part.widths for part in parts])[order],
        np.concatenate([part.filled for part in parts])[order],
        depths[order],
    )


def shadow(copy: Copy, film: Film, frame: int, eye: Camera) -> list[np.ndarray]:
    """The outlines (n, 2) of the shadow of one run on the floor z = 0, in the picture's coordinates."""
    rays = LIGHT @ eye.axes
    found = []
    for part in copy.parts:
        if (
            part.kind in ("tile", "axes")
            or not mesh(part.kind).faces
            or not np.all(np.isfinite(part.at[frame]))
        ):
            continue
        size = part.size[frame]
        if part.kind == "arrow":  # drawn as a thick line, because its outline is not convex
            corners = _times(
                np.array([[1.0, 0, 0], [1, 0, 1], [-1, 0, 1], [-1, 0, 0]]) * size, part.turn[frame]
            )
        else:
            corners = _times(mesh(part.kind).corners * size, part.turn[frame])
        corners = corners + part.at[frame]
        corners = corners - np.maximum(corners[:, 2:], 0) / rays[2] * rays
        spots = np.stack(eye.project(corners)[:2], axis=1)
        if np.ptp(spots, axis=0).min() > 1e-6 * film.extent and part.kind != "arrow":
            spots = spots[ConvexHull(spots, qhull_options="QJ").vertices]
        found.append(spots)
    return found


def cloud(copies: Sequence[Copy], film: Film) -> np.ndarray:
    """(n, 3) points that a picture of the whole film must contain."""
    frames = np.unique(np.linspace(0, len(film.times) - 1, 60).astype(int))
    points = [np.zeros((0, 3))]
    for part in (part for copy in copies for part in copy.parts if part.kind != "floor"):
        if part.kind == "trace":
            points.append(part.at)
            continue
        corners = mesh(part.kind).points
        for i in frames:
            points.append(_times(corners * part.size[i], part.turn[i]) + part.at[i])
    found = np.concatenate(points)
    return found[np.all(np.isfinite(found), axis=1)]


def grid(low: np.ndarray, high: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """A floor between two corners: the round distance between its lines, the lines (n, 2, 3) and the rim (4, 3)."""
    longest = float(np.max((high - low)[:2])) or 1.0
    power = 10.0 ** np.floor(np.log10(longest / 8))
    step = float(next(x * power for x in (1, 2, 5, 10) if x * power >= longest / 8 * (1 - 1e-9)))
    (a, b), (c, d) = low[:2] - 0.02 * longest, high[:2] + 0.02 * longest
    xs, ys = (step * np.arange(np.ceil(x / step), np.floor(y / step) + 1) for x, y in ((a, c), (b, d)))
    lines = [[(x, b, 0.0), (x, d, 0.0)] for x in xs] + [[(a, y, 0.0), (c, y, 0.0)] for y in ys]
    rim = np.array([(a, b, 0.0), (c, b, 0.0), (c, d, 0.0), (a, d, 0.0)])
    return step, np.array(lines).reshape(-1, 2, 3), rim
