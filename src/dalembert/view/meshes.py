"""Shapes of unit size for the parts of a scene, as flat faces with one paint each, and as lines."""

from dataclasses import dataclass
from functools import cache

import numpy as np

# The paint of a face: the part's own colour, or one of these.
OWN, DARK, PALE, RED, GREEN, BLUE = range(6)
PAINTS = {DARK: "#2e3440", PALE: "#f2f4f8", RED: "#c0392b", GREEN: "#2e8b57", BLUE: "#2c5aa0"}


@dataclass(frozen=True)
class Mesh:
    """Corners (n, 3), flat faces with one paint per face, and lines, each an array (k, 3).

    A face has three or four corners, anticlockwise as seen from outside.
    """

    corners: np.ndarray
    faces: tuple[tuple[int, ...], ...]
    paints: tuple[int, ...]
    lines: tuple[np.ndarray, ...] = ()

    @property
    def points(self) -> np.ndarray:
        """(n, 3) all corners and the points of all lines."""
        return np.concatenate([self.corners, *self.lines])

    def triangles(self, paint: int) -> np.ndarray:
        """(k, 3) the faces with this paint, cut into triangles."""
        found = [
            (face[0], face[i], face[i + 1])
            for face, own in zip(self.faces, self.paints, strict=True)
            if own == paint
            for i in range(1, len(face) - 1)
        ]
        return np.array(found, int).reshape(-1, 3)


def _joined(*meshes: Mesh) -> Mesh:
    starts = np.cumsum([0, *(len(m.corners) for m in meshes)])
    return Mesh(
        np.concatenate([m.corners for m in meshes]),
        tuple(tuple(int(i + n) for i in f) for m, n in zip(meshes, starts, strict=False) for f in m.faces),
        tuple(p for m in meshes for p in m.paints),
        tuple(x for m in meshes for x in m.lines),
    )


def _changed(mesh: Mesh, matrix: np.ndarray, shift=(0.0, 0.0, 0.0)) -> Mesh:
    return Mesh(
        mesh.corners @ np.asarray(matrix, float).T + np.asarray(shift, float),
        mesh.faces,
        mesh.paints,
        tuple(line @ np.asarray(matrix, float).T + np.asarray(shift, float) for line in mesh.lines),
    )


def _block() -> Mesh:
    """A cube with edges of length 1 about the origin."""
    return _changed(_plate([(0.5, 0.0), (0.5, 1.0)]), np.eye(3), (0, 0, -0.5))


def _plate(outline: list[tuple[float, float]]) -> Mesh:
    """A plate of thickness 1 along y that stands on z = 0; the outline gives its half width at some heights."""
    corners = np.array(
        [[x, y, z] for r, z in outline for x, y in ((-r, -0.5), (r, -0.5), (r, 0.5), (-r, 0.5))]
    )
    top = 4 * (len(outline) - 1)
    around = [
        (k + i, k + (i + 1) % 4, k + 4 + (i + 1) % 4, k + 4 + i) for k in range(0, top, 4) for i in range(4)
    ]
    faces = ((3, 2, 1, 0), (top, top + 1, top + 2, top + 3), *around)
    return Mesh(corners, faces, (OWN,) * len(faces))


def _turned(profile: list[tuple[float, float]], paints: list[int], sides: int = 24) -> Mesh:
    """The surface that a profile of (radius, z) sweeps about z, with one paint per ring.

    The middle of one side lies on the first axis.
    """
    angles = 2 * np.pi * (np.arange(sides) - 0.5) / sides
    corners = np.array([[r * np.cos(a), r * np.sin(a), z] for r, z in profile for a in angles])
    faces = []
    for k in range(len(paints)):
        for i in range(sides):
            j = (i + 1) % sides
            quad = [k * sides + i, k * sides + j, (k + 1) * sides + j, (k + 1) * sides + i]
            if profile[k][0] == 0:
                quad = [quad[0], quad[2], quad[3]]
            elif profile[k + 1][0] == 0:
                quad = quad[:3]
            faces.append(tuple(quad))
    return Mesh(corners, tuple(faces), tuple(paint for paint in paints for _ in range(sides)))


def _marked(mesh: Mesh, sides: int, marks: dict[int, tuple[int, ...]], paint: int) -> Mesh:
    """The mesh with another paint on some sides of some rings: marks within the surface cannot hide each other."""
    paints = [paint if i % sides in marks.get(i // sides, ()) else old for i, old in enumerate(mesh.paints)]
    return Mesh(mesh.corners, mesh.faces, tuple(paints), mesh.lines)


def _cylinder(sides: int = 10) -> Mesh:
    """A cylinder of radius 1 and height 1 about the origin, along z."""
    return _turned([(0, -0.5), (1, -0.5), (1, 0.5), (0, 0.5)], [OWN] * 3, sides)


# Takes z to y, because the axle of a wheel is its second axis.
_AXLE = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])


@cache
def mesh(kind: str) -> Mesh:
    """The shape of a kind of part, which each part scales, turns and moves."""
    if kind == "wheel":
        return _wheel()
    if kind == "tyre":
        profile = [
            (0, -0.5),
            (0.55, -0.5),
            (0.85, -0.5),
            (1.0, -0.3),
            (1.0, 0.3),
            (0.85, 0.5),
            (0.55, 0.5),
            (0, 0.5),
        ]
        return _changed(_turned(profile, [PALE, OWN, OWN, OWN, OWN, OWN, PALE], 24), _AXLE)
    if kind == "disc":
        return _disc()
    if kind == "blade":
        return _plate([(0.24, 0.0), (0.4, 0.1), (0.48, 0.28), (0.5, 0.5), (0.34, 1.0)])
    if kind == "box":
        return _block()
    if kind == "tile":
        return _changed(_block(), np.diag([2.0, 2.0, 2.0]))
    if kind == "ball":
        return _checked_ball()
    if kind == "point":
        turns = np.linspace(-0.5 * np.pi, 0.5 * np.pi, 7)
        profile = [(0.0 if i in (0, 6) else float(np.cos(x)), float(np.sin(x))) for i, x in enumerate(turns)]
        return _turned(profile, [OWN] * 6, 12)
    if kind == "rod":
        return _cylinder()
    if kind == "arrow":
        head = _changed(
            _turned([(0, 0), (2.6, 0), (0, 1)], [OWN, OWN], 12), np.diag([1, 1, 0.3]), (0, 0, 0.7)
        )
        return _joined(_changed(_cylinder(), np.diag([1, 1, 0.72]), (0, 0, 0.36)), head)
    if kind == "axes":
        return _axes()
    if kind == "spring":
        s = np.linspace(0, 1, 121)
        inside = np.clip(np.minimum(s, 1 - s) / 0.08, 0, 1)
        coil = np.stack([inside * np.cos(14 * np.pi * s), inside * np.sin(14 * np.pi * s), s - 0.5], axis=1)
        return Mesh(np.zeros((0, 3)), (), (), (coil,))
    if kind == "line":
        return Mesh(np.zeros((0, 3)), (), (), (np.array([[-0.5, 0, 0], [0.5, 0, 0]]),))
    if kind == "sphere":
        a = np.linspace(0, 2 * np.pi, 49)
        c, s, o = np.cos(a), np.sin(a), 0 * a
        rings = [np.stack([r * c, r * s, o + z], 1) for z in (-0.5, 0, 0.5) for r in [np.sqrt(1 - z * z)]]
        meridians = [np.stack([np.cos(b) * c, np.sin(b) * c, s], 1) for b in np.pi * np.arange(4) / 4]
        return Mesh(np.zeros((0, 3)), (), (), (*rings, *meridians))
    if kind in ("trace", "floor"):
        return Mesh(np.zeros((0, 3)), (), ())
    raise ValueError(
        f"there is no shape for parts of the kind {kind!r}; use the functions of dalembert.scene"
    )


def _wheel(sides: int = 40) -> Mesh:
    """A wheel with a dark tyre and sides of its own colour with five windows, of which one is dark to show rolling."""
    profile = [(0, -0.5), (0.24, -0.5), (0.68, -0.5), (0.84, -0.5), (1.0, -0.3)]
    profile += [(r, -z) for r, z in reversed(profile)]
    body = _turned(profile, [OWN, OWN, OWN, DARK, DARK, DARK, OWN, OWN, OWN], sides)
    windows = tuple(8 * k + i for k in range(5) for i in (-2, -1, 0, 1, 2))
    windows = tuple(i % sides for i in windows)
    first = tuple(i % sides for i in (-2, -1, 0, 1, 2))
    body = _marked(body, sides, {1: windows, 7: windows}, PALE)
    return _changed(_marked(body, sides, {1: first, 7: first}, DARK), _AXLE)


def _disc(sides: int = 48) -> Mesh:
    """A disc with a mark along the first axis on both faces, and three smaller marks."""
    profile = [(0, -0.5), (0.14, -0.5), (0.7, -0.5), (0.9, -0.5), (1, -0.5)]
    profile += [(r, -z) for r, z in reversed(profile)]
    body = _turned(profile, [OWN] * 9, sides)
    lesser = tuple(k * sides // 4 for k in range(4))
    marks = {1: (0,), 2: lesser, 6: lesser, 7: (0,)}
    return _marked(body, sides, marks, DARK)


def _checked_ball(sides: int = 24, rings: int = 12) -> Mesh:
    """A ball with eight octants, alternately of its own colour and pale."""
    turns = np.linspace(-0.5 * np.pi, 0.5 * np.pi, rings + 1)
    profile = [(0.0 if i in (0, rings) else float(np.cos(x)), float(np.sin(x))) for i, x in enumerate(turns)]
    ball = _turned(profile, [OWN] * rings, sides)
    quarters = [tuple(i for i in range(sides) if (i // (sides // 4)) % 2 == odd) for odd in (0, 1)]
    return _marked(ball, sides, {k: quarters[k < rings // 2] for k in range(rings)}, PALE)


def _axes() -> Mesh:
    """Three arrows of length 1."""
    along_z = mesh("arrow")
    thin = np.diag([0.018, 0.018, 1.0])
    arrows = []
    for turn, paint in (
        (np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]]), RED),
        (np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]), GREEN),
        (np.eye(3), BLUE),
    ):
        arrow = _changed(along_z, turn @ thin)
        arrows.append(Mesh(arrow.corners, arrow.faces, (paint,) * len(arrow.faces)))
    return _joined(*arrows)
