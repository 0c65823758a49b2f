"""The parts that show what a system looks like: solids and traces, each with its place and orientation at (t, q).

A system's `scene(t, q)` returns a list of parts, from which figures, animations and the explorer are all drawn. The z
axis points upwards, and lengths are in the system's units. Places are (x, y) on the floor or (x, y, z).
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

DARK, LIGHT, GOLD = "#3b4252", "#c8ced8", "#d9a441"


class Part(eqx.Module):
    """One part: a shape of unit size, scaled by `size`, turned by the matrix `turn` and moved to `at`."""

    kind: str = eqx.field(static=True)
    at: Array
    """The place of its middle, or of a wheel's hub, shape (3,)."""
    turn: Array
    """A rotation matrix, shape (3, 3), whose columns are the directions of the part's own axes."""
    size: Array
    """The factors along its own axes, shape (3,)."""
    colour: str | None = eqx.field(static=True, default=None)
    """The colour as #rrggbb; None for the colour of the run's method."""
    relative: bool = eqx.field(static=True, default=False)
    """Whether size 1 is a fixed share of the picture, for parts that have no size of their own."""
    rolled: Array | None = None
    """The integral of the angular velocity, shape (3,), from which the views compute the orientation; it replaces
    `turn`."""


def _vector(*numbers: Any) -> Array:
    return jnp.stack([jnp.asarray(x, float) for x in numbers])


def _numbers(given: Any, expected: str, lengths: tuple[int, ...] = (3,)) -> list[Any]:
    """The entries of a short list of numbers; refuses a list of any other length."""
    numbers = list(given) if isinstance(given, list | tuple) or np.ndim(given) == 1 else []
    if len(numbers) not in lengths or any(np.ndim(x) for x in numbers):
        raise ValueError(f"{expected}; got {given!r}")
    return numbers


def _rotation(turn: Any) -> Array:
    turn = jnp.asarray(turn, float)
    if turn.shape != (3, 3):
        raise ValueError(
            f"turn must be a (3, 3) rotation matrix, such as scene.about_z(angle); got the shape {turn.shape}"
        )
    return turn


def place(at: Any, height: Any = 0.0) -> Array:
    """The point (x, y, z); a place on the floor (x, y) gets this height."""
    numbers = _numbers(at, "a place is (x, y) or (x, y, z)", (2, 3))
    return _vector(*numbers, height) if len(numbers) == 2 else _vector(*numbers)


def about_z(angle: Any) -> Array:
    """The rotation by this angle about the vertical."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([_vector(c, -s, 0.0), _vector(s, c, 0.0), _vector(0.0, 0.0, 1.0)])


def about_y(angle: Any) -> Array:
    """The rotation by this angle about y, from z towards x."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([_vector(c, 0.0, s), _vector(0.0, 1.0, 0.0), _vector(-s, 0.0, c)])


def about_x(angle: Any) -> Array:
    """The rotation by this angle about x, from y towards z."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([_vector(1.0, 0.0, 0.0), _vector(0.0, c, -s), _vector(0.0, s, c)])


def _along(direction: Array) -> tuple[Array, Array]:
    """A rotation whose third axis points along the direction, and the direction's length."""
    length = jnp.sqrt(jnp.sum(direction**2))
    z = jnp.where(length > 0, direction, jnp.array([0.0, 0.0, 1.0])) / jnp.where(length > 0, length, 1.0)
    aside = jnp.where(jnp.abs(z[2]) < 0.9, jnp.array([0.0, 0.0, 1.0]), jnp.array([1.0, 0.0, 0.0]))
    x = jnp.cross(aside, z)
    x = x / jnp.sqrt(jnp.sum(x**2))
    return jnp.stack([x, jnp.cross(z, x), z], axis=1), length


def wheel(
    at: Any,
    heading: Any,
    roll: Any = 0.0,
    radius: Any = 1.0,
    lean: Any = 0.0,
    width: Any = None,
    colour: str | None = None,
    marked: bool = True,
) -> Part:
    """A wheel that touches the floor at `at`; rolling forwards by `roll` moves it by radius * roll along the heading.

    `lean` tips it to its right side, about the line of its heading. With `marked=False` the wheel is plain all
    around, for wheels whose angle is not a coordinate.
    """
    upright = about_z(heading) @ about_x(lean)
    hub = place(at) + jnp.asarray(radius, float) * upright[:, 2]
    width = 0.16 * radius if width is None else width
    kind = "wheel" if marked else "tyre"
    return Part(kind, hub, upright @ about_y(roll), _vector(radius, width, radius), colour)


def disc(
    at: Any,
    angle: Any = 0.0,
    radius: Any = 1.0,
    thickness: Any = None,
    turn: Any = None,
    colour: str | None = None,
    relative: bool = False,
) -> Part:
    """A flat disc centred at `at`, with a mark along its first axis, turned by `angle` about the vertical or by `turn`.

    With `relative` its sizes are in shares of the picture.
    """
    thickness = 0.08 * radius if thickness is None else thickness
    turn = about_z(angle) if turn is None else _rotation(turn)
    return Part("disc", place(at), turn, _vector(radius, radius, thickness), colour, relative)


def blade(at: Any, heading: Any, length: Any = 0.6, height: Any = None, colour: str | None = DARK) -> Part:
    """The blade of a skate, which touches the floor at `at` and points along its heading."""
    height = 0.3 * length if height is None else height
    return Part("blade", place(at), about_z(heading), _vector(length, 0.05 * length, height), colour)


def box(
    at: Any,
    size: Any,
    heading: Any = 0.0,
    turn: Any = None,
    colour: str | None = None,
    relative: bool = False,
) -> Part:
    """A block centred at `at` with edges (length, width, height), turned by its heading or by the matrix `turn`.

    With `relative` its edges are in shares of the picture.
    """
    edges = _vector(*_numbers(size, "the size of a box is (length, width, height)"))
    return Part(
        "box", place(at), about_z(heading) if turn is None else _rotation(turn), edges, colour, relative
    )


def ball(at: Any, radius: Any = 1.0, turn: Any = None, rolled: Any = None, colour: str | None = None) -> Part:
    """A ball centred at `at`, with marks that show how it turns.

    `turn` is its orientation. If only the integral of the angular velocity is known, give it as `rolled` instead.
    """
    turn = jnp.eye(3) if turn is None else _rotation(turn)
    if rolled is not None:
        rolled = _vector(*_numbers(rolled, "rolled is three numbers, the integral of the angular velocity"))
    return Part("ball", place(at), turn, _vector(radius, radius, radius), colour, rolled=rolled)


def rod(start: Any, end: Any, radius: Any = 0.03, colour: str | None = DARK) -> Part:
    """A round bar from one point to another."""
    a, b = place(start), place(end)
    turn, length = _along(b - a)
    return Part("rod", 0.5 * (a + b), turn, _vector(radius, radius, length), colour)


def spring(start: Any, end: Any, radius: Any = 0.08, colour: str | None = DARK) -> Part:
    """A coil spring from one point to another."""
    a, b = place(start), place(end)
    turn, length = _along(b - a)
    return Part("spring", 0.5 * (a + b), turn, _vector(radius, radius, length), colour)


def arrow(at: Any, direction: Any, radius: Any = 0.03, colour: str | None = GOLD) -> Part:
    """An arrow from `at` along the direction, as long as the direction vector."""
    turn, length = _along(place(direction))
    return Part("arrow", place(at), turn, _vector(radius, radius, length), colour)


def direction(at: Any, heading: Any, length: Any = 2.0, colour: str | None = GOLD) -> Part:
    """A line on the floor through `at`, along which the constraint lets the point move."""
    return Part("line", place(at, 0.005), about_z(heading), _vector(length, 1.0, 1.0), colour)


def axes(at: Any, turn: Any, length: Any = 1.0) -> Part:
    """Three arrows along a body's axes: red, green and blue for the first, second and third."""
    return Part("axes", place(at), _rotation(turn), _vector(length, length, length), DARK)


def sphere(at: Any = (0.0, 0.0, 0.0), radius: Any = 1.0, colour: str | None = LIGHT) -> Part:
    """A globe of thin lines, for the directions of space."""
    return Part("sphere", place(at), jnp.eye(3), _vector(radius, radius, radius), colour)


def point(at: Any, radius: Any = None, colour: str | None = None) -> Part:
    """A particle; without a radius, its size suits the picture."""
    size = 0.28 if radius is None else radius
    return Part("point", place(at), jnp.eye(3), _vector(size, size, size), colour, radius is None)


def trace(at: Any, colour: str | None = None) -> Part:
    """The path of a point."""
    return Part("trace", place(at, 0.004), jnp.eye(3), jnp.ones(3), colour)


def floor() -> Part:
    """The plane z = 0, drawn as a grid as large as the motion."""
    return Part("floor", jnp.zeros(3), jnp.eye(3), jnp.ones(3), LIGHT)


def net(height: Callable[[Any, Any], Any], reach: Any = 1.0, colour: str | None = LIGHT) -> list[Part]:
    """Bars along the surface z = height(x, y), over the square of points with |x|, |y| <= reach."""
    reach = jnp.asarray(reach, float)
    steps = [reach * (k / 4 - 1) for k in range(9)]
    corners = [[_vector(x, y, height(x, y)) for y in steps] for x in steps]
    lines = [*corners[::2], *list(zip(*corners, strict=True))[::2]]
    return [rod(a, b, 0.006 * reach, colour) for line in lines for a, b in pairwise(line)]


def tube(radius: Any, low: Any, high: Any, turn: Any = None, colour: str | None = LIGHT) -> list[Part]:
    """Bars and two rings along a cylinder about the third axis, between two heights; `turn` turns it."""
    radius, turn = jnp.asarray(radius, float), jnp.eye(3) if turn is None else _rotation(turn)
    angles = np.linspace(0, 2 * np.pi, 25)

    def at(angle: float, height: Any) -> Array:
        return turn @ _vector(radius * np.cos(angle), radius * np.sin(angle), height)

    bars = [rod(at(x, low), at(x, high), 0.008 * radius, colour) for x in angles[:-1:2]]
    rings = [
        rod(at(x, z), at(y, z), 0.012 * radius, colour) for z in (low, high) for x, y in pairwise(angles)
    ]
    return [*bars, *rings]


def tile(at: Any, directions: Any, flat: bool = False, colour: str | None = GOLD) -> Part:
    """The plane or line that the columns of `directions`, shape (3, k), span at a point.

    Nothing is shown if they span all of space or, with `flat`, all of the floor.
    """
    # The choice of axes that span a plane has no derivative; only the place moves.
    u, s, _ = jnp.linalg.svd(jax.lax.stop_gradient(directions), full_matrices=True)
    sizes = jnp.zeros(3).at[: s.size].set(s)
    spanned = sizes > 1e-6 * sizes[0]
    shown = spanned[0] & ~spanned[1 if flat else 2]
    size = jnp.where(shown, 1.0, 0.0) * _vector(1.0, jnp.where(spanned[1], 1.0, 0.06), 0.04)
    turn = u * jnp.where(jnp.linalg.det(u) < 0, jnp.array([1.0, 1.0, -1.0]), 1.0)
    return Part("tile", place(at), turn, size, colour, relative=True)
