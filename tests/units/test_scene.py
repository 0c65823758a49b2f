"""Parts of scenes and the shapes that they are drawn as."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dalembert.model import scene
from dalembert.view.meshes import PAINTS, mesh

PARTS = {
    "wheel": lambda x: scene.wheel((x, 1.0), 0.3, roll=x, radius=0.5, lean=0.2),
    "tyre": lambda x: scene.wheel((x, 1.0), x, marked=False),
    "disc": lambda x: scene.disc((x, 1.0, 2.0), x, 0.7),
    "blade": lambda x: scene.blade((x, 1.0), x),
    "box": lambda x: scene.box((x, 1.0, 0.5), (1.0, 2.0, x), x),
    "ball": lambda x: scene.ball((x, 1.0, 0.5), 0.5, turn=scene.about_x(x)),
    "rod": lambda x: scene.rod((x, 1.0), (0.0, 0.0, 1.0)),
    "spring": lambda x: scene.spring((x, 1.0, 1.0), (0.0, 0.0, 1.0)),
    "arrow": lambda x: scene.arrow((x, 1.0), (0.0, x, 1.0)),
    "line": lambda x: scene.direction((x, 1.0), x),
    "axes": lambda x: scene.axes((x, 1.0), scene.about_y(x)),
    "sphere": lambda x: scene.sphere(),
    "point": lambda x: scene.point((x, 1.0, 2.0)),
    "trace": lambda x: scene.trace((x, 1.0)),
    "floor": lambda x: scene.floor(),
    "tile": lambda x: scene.tile((x, 1.0, 2.0), jnp.stack([jnp.eye(3)[0] * x, jnp.eye(3)[1]], axis=1)),
}
SOLID = ("wheel", "tyre", "disc", "blade", "box", "ball", "rod", "point", "arrow", "axes", "tile")
CONVEX = tuple(x for x in SOLID if x not in ("arrow", "axes"))


@pytest.mark.parametrize("kind", PARTS)
def test_constructors_make_finite_parts_also_compiled(kind):
    plain, compiled = PARTS[kind](0.8), jax.jit(PARTS[kind])(0.8)
    assert plain.kind == kind
    assert plain.at.shape == plain.size.shape == (3,)
    assert plain.turn.shape == (3, 3)
    for x, y in zip(jax.tree.leaves(plain), jax.tree.leaves(compiled), strict=True):
        assert np.all(np.isfinite(x))
        assert x.dtype == float
        assert np.allclose(x, y, rtol=0, atol=1e-15)  # the compiler may round a product and a sum at once
    assert np.allclose(plain.turn.T @ plain.turn, np.eye(3), rtol=0, atol=1e-15)  # rounding
    assert np.linalg.det(plain.turn) > 0
    assert np.all(plain.size >= 0)


def test_what_has_no_length_is_finite():
    for part in (scene.rod((1.0, 2.0), (1.0, 2.0)), scene.arrow((1.0, 2.0), (0.0, 0.0, 0.0))):
        assert np.all(np.isfinite(part.turn))
        assert part.size[2] == 0


def test_bars_and_arrows_go_where_they_should():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.5, 3.5])
    rod, arrow = scene.rod(a, b), scene.arrow(a, b - a)
    end = np.array([0.0, 0.0, 0.5]) * rod.size
    assert np.allclose(
        [rod.at - rod.turn @ end, rod.at + rod.turn @ end], [a, b], rtol=0, atol=1e-15
    )  # rounding
    assert np.allclose(arrow.at + arrow.turn[:, 2] * arrow.size[2], b, rtol=0, atol=1e-15)


def test_a_leaning_wheel_still_touches_where_it_should():
    for lean in (0.0, 0.5, -1.0):
        part = scene.wheel((1.0, 2.0), 0.7, roll=0.4, radius=0.5, lean=lean)
        lowest = part.at - 0.5 * (scene.about_z(0.7) @ scene.about_x(lean))[:, 2]
        assert np.allclose(lowest, [1.0, 2.0, 0.0], rtol=0, atol=1e-15)  # rounding
        right = scene.about_z(0.7) @ jnp.array([0.0, -1.0, 0.0])
        assert np.sign(right @ (part.at - jnp.array([1.0, 2.0, 0.0]))) == np.sign(lean)


def test_a_tile_shows_lines_and_planes_alone():
    def sizes(*columns, flat=False):
        directions = jnp.array(columns, float).T
        return scene.tile((0.0, 0.0), directions, flat).size

    plane, line = sizes((1, 0, 0), (0, 1, 1)), sizes((1, 0, 0), (2, 0, 0))
    assert plane[0] == plane[1] == 1
    assert line[0] == 1
    assert 0 < line[1] < 0.1
    assert not np.any(sizes((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    assert not np.any(sizes((1, 0, 0), (0, 1, 0), flat=True))
    assert not np.any(sizes((0, 0, 0), (0, 0, 0)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: scene.place((1.0,)), r"a place is \(x, y\) or \(x, y, z\); got \(1.0,\)"),
        (lambda: scene.place((1.0, 2.0, 3.0, 4.0)), "a place is"),
        (lambda: scene.place(2.0), "a place is"),
        (lambda: scene.place(jnp.eye(3)), "a place is"),
        (lambda: scene.wheel(jnp.ones(4), 0.0), "a place is"),
        (lambda: scene.trace(((1.0, 2.0), 0.0)), "a place is"),
        (lambda: scene.box((0.0, 0.0), (1.0, 2.0)), r"\(length, width, height\); got \(1.0, 2.0\)"),
        (lambda: scene.box((0.0, 0.0), 1.0), r"\(length, width, height\)"),
        (lambda: scene.ball((0.0, 0.0), rolled=(1.0, 2.0)), "rolled is three numbers"),
        (lambda: scene.ball((0.0, 0.0), turn=0.5), r"\(3, 3\) rotation matrix.*shape \(\)"),
        (lambda: scene.axes((0.0, 0.0), jnp.ones(9)), r"\(3, 3\) rotation matrix"),
        (lambda: mesh("cube"), "no shape for parts of the kind 'cube'"),
    ],
)
def test_bad_parts_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("kind", PARTS)
def test_every_part_has_a_shape(kind):
    shape = mesh(kind)
    assert bool(shape.faces) == (kind in SOLID)
    assert len(shape.paints) == len(shape.faces)
    assert set(shape.paints) <= {0, *PAINTS}
    assert all(3 <= len(face) <= 4 and max(face) < len(shape.corners) for face in shape.faces)
    assert sum(len(shape.triangles(paint)) for paint in range(6)) == sum(
        len(face) - 2 for face in shape.faces
    )
    assert shape.lines or shape.faces or kind in ("trace", "floor")


@pytest.mark.parametrize("kind", SOLID)
def test_shapes_are_closed(kind):
    shape = mesh(kind)
    _, same = np.unique(np.round(shape.corners, 9), axis=0, return_inverse=True)
    edges: Counter = Counter()
    for face in shape.faces:
        ring = [int(same.ravel()[i]) for i in face]
        edges.update((a, b) for a, b in zip(ring, ring[1:] + ring[:1], strict=True) if a != b)
    assert edges
    assert all(edges[b, a] == count for (a, b), count in edges.items())


def volume(kind):
    shape = mesh(kind)
    cut = np.concatenate([shape.triangles(paint) for paint in range(6)])
    return float(np.sum(np.linalg.det(shape.corners[cut]))) / 6


def test_shapes_have_their_volume():
    # Flat sides take at most a share (2 pi/sides)^2/6 of a circle's area, for 10 to 48 sides, and so do the rings.
    assert 0.99 < volume("disc") / np.pi < 1
    assert 0.97 < volume("ball") / (4 * np.pi / 3) < 1
    assert 0.93 < volume("rod") / np.pi < 1
    # The tyre is rounded: 0.94 of the cylinder.
    assert 0.93 < volume("wheel") / np.pi < 0.95
    assert np.isclose(volume("box"), 1, rtol=1e-15)
    assert np.isclose(volume("tile"), 8, rtol=1e-15)
    assert all(volume(kind) > 0 for kind in SOLID)


@pytest.mark.parametrize("kind", CONVEX)
def test_faces_are_flat_and_look_outwards(kind):
    shape = mesh(kind)
    middle = shape.corners.mean(axis=0)
    for face in shape.faces:
        a, b, c = shape.corners[list(face[:3])]
        normal = np.cross(b - a, c - a)
        normal = normal / np.linalg.norm(normal)
        assert normal @ (a - middle) > 0
        assert np.max(np.abs((shape.corners[list(face)] - a) @ normal)) < 1e-12  # rounding


@pytest.mark.parametrize("kind", ["wheel", "disc", "ball"])
def test_what_turns_has_a_mark_that_shows_it(kind):
    """No turn by part of a circle about its axle leaves the paint what it was."""
    shape = mesh(kind)
    axis = 1 if kind == "wheel" else 2
    u, v = [i for i in range(3) if i != axis]
    middles = np.array([shape.corners[list(face)].mean(axis=0) for face in shape.faces])
    for turn in 2 * np.pi / np.array([2, 3, 4, 5, 6, 8]):
        turned = middles.copy()
        turned[:, u] = np.cos(turn) * middles[:, u] - np.sin(turn) * middles[:, v]
        turned[:, v] = np.sin(turn) * middles[:, u] + np.cos(turn) * middles[:, v]
        nearest = np.argmin(np.linalg.norm(turned[:, None] - middles[None], axis=2), axis=1)
        if kind == "ball" and np.isclose(turn, np.pi):
            continue  # octants in two paints look the same after half a turn about an axis of theirs
        assert np.any(np.array(shape.paints)[nearest] != np.array(shape.paints))
