"""The 3D scene in viser: one group of meshes per part, moved from frame to frame."""

from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from dalembert.view.films import Copy, Film, Moving
from dalembert.view.meshes import OWN, PAINTS, mesh

# A body that travels further than this many of its lengths is shown alone, and followed.
BODIES = 2.5
# The largest number of points of a trace; more would be invisible and slow the browser down.
TRACE = 5000


def rgb(colour: str) -> tuple[int, int, int]:
    """#rrggbb as three numbers."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


class _Actor:
    """A part in the scene."""

    def __init__(self, scene: Any, name: str, part: Moving, colour: str, opacity: float | None):
        self.part = part
        self.quaternions = Rotation.from_matrix(part.turn).as_quat()[:, [3, 0, 1, 2]]  # w first
        self.frame = scene.add_frame(name, show_axes=False)
        self.stretches = bool(np.ptp(part.size, axis=0).max() > 1e-12)
        shape, own = mesh(part.kind), part.colour or colour
        self.meshes = []
        size = np.ones(3) if self.stretches else part.size[0]
        for paint in sorted(set(shape.paints)):
            handle = scene.add_mesh_simple(
                f"{name}/{paint}",
                np.asarray(shape.corners * size, np.float32),
                shape.triangles(paint),
                color=rgb(own if paint == OWN else PAINTS[paint]),
                flat_shading=part.kind not in ("ball", "point", "rod"),
                side="double",
                opacity=opacity,
                cast_shadow=False,
                receive_shadow=False,
            )
            self.meshes.append(handle)
        for i, line in enumerate(shape.lines):
            points = np.stack([line[:-1], line[1:]], axis=1) * size
            self.meshes.append(
                scene.add_line_segments(
                    f"{name}/line{i}",
                    np.asarray(points, np.float32),
                    rgb(own),
                    thickness=2.0,
                    thickness_units="screen",
                )
            )

    def show(self, k: int) -> None:
        """Moves the part to a frame."""
        self.frame.position, self.frame.wxyz = self.part.at[k], self.quaternions[k]
        if self.stretches:
            size = tuple(float(x) for x in np.maximum(self.part.size[k], 1e-9))
            for handle in self.meshes:
                handle.scale = size


class Stage:
    """Everything in the 3D view. `play` replaces it by another film, and `show` moves it to a frame."""

    def __init__(self, server: Any):
        self.server = server
        self.film: Film | None = None
        self.actors: list[_Actor] = []
        self.root: Any = None

    def play(self, film: Film, near: Film, fresh: bool) -> None:
        """Shows another film. If it is a fresh one, the camera turns to the box that `near` fills."""
        with self.server.atomic():
            if self.root is not None:
                self.root.remove()
            self.root = self.server.scene.add_frame("/stage", show_axes=False)
            self.actors = []
            for i, copy in enumerate(film.copies):
                self._copy(i, copy)
            if film.has_floor:
                self._floor(near)
            self.film = film
        if fresh:
            self._camera(near)

    def show(self, k: int, follow: bool) -> None:
        """Moves everything to frame k; with `follow`, the floor moves under the first run instead."""
        with self.server.atomic():
            for actor in self.actors:
                actor.show(k)
            leader = self.actors[0].part.at if self.actors else np.zeros((1, 3))
            way = leader[k] - leader[0] if follow else np.zeros(3)
            self.root.position = (-way[0], -way[1], 0.0 if self.film and self.film.has_floor else -way[2])

    def _copy(self, i: int, copy: Copy) -> None:
        for j, part in enumerate(copy.parts):
            name = f"/stage/{i}/{j}"
            if part.kind == "trace":
                every = max(1, len(part.at) // TRACE)
                points = part.at[::every]
                if len(points) > 1:
                    segments = np.stack([points[:-1], points[1:]], axis=1).astype(np.float32)
                    self.server.scene.add_line_segments(
                        name,
                        segments,
                        rgb(part.colour or copy.colour),
                        thickness=2.5,
                        thickness_units="screen",
                    )
            elif part.kind != "floor" and (i == 0 or part.kind != "sphere"):
                # Ghosts are transparent, so that the first run shows through.
                opacity = None if i == 0 and part.kind != "tile" else 0.45
                self.actors.append(_Actor(self.server.scene, name, part, copy.colour, opacity))

    def _floor(self, near: Film) -> None:
        width = 1.3 * room(near)[1]
        cell = 10.0 ** np.floor(np.log10(width / 4))
        cell *= next(x for x in (1, 2, 5, 10) if width / (cell * x) <= 14)
        self.server.scene.add_grid(
            "/stage/floor",
            infinite_grid=True,
            position=(0.0, 0.0, -1e-3 * width),
            cell_size=float(cell),
            section_size=float(5 * cell),
            cell_color=(215, 220, 228),
            section_color=(190, 198, 210),
            fade_distance=float(6 * width),
            fade_strength=2.0,
            shadow_opacity=0.0,
        )

    def _camera(self, near: Film) -> None:
        middle, width = room(near)
        far = 0.8 * width
        place = middle + far * np.array([0.45, -1.0, 0.62])
        start = self.server.initial_camera
        start.position, start.look_at, start.near, start.far = place, middle, far / 200, far * 60
        for client in self.server.get_clients().values():
            with client.atomic():
                client.camera.position, client.camera.look_at = place, middle


def room(near: Film) -> tuple[np.ndarray, float]:
    """The middle and width of the camera's first view: everything that moves, or only a body that travels far."""
    bodies = [p for p in near.copies[0].parts if p.kind not in ("floor", "trace", "line", "tile", "sphere")]
    if not bodies:
        return 0.5 * (near.low + near.high), max(near.extent, 1e-3)
    at = np.stack([p.at[0] for p in bodies])
    spans = [np.max(np.abs(mesh(p.kind).points), axis=0) for p in bodies]
    reach = np.array([np.max(p.size[0] * x) for p, x in zip(bodies, spans, strict=True)])[:, None]
    low, high = np.min(at - reach, axis=0), np.max(at + reach, axis=0)
    width = BODIES * float(np.max(high - low))
    if near.extent <= width:
        return 0.5 * (near.low + near.high), max(near.extent, 1e-3)
    return 0.5 * (low + high), width
