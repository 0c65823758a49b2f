"""The shapes of bodies and of the ground, and where one touches the other."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model import scene
from dalembert.model.scene import Part
from dalembert.numerics import compiled, is_traced, matvec, newton


def positive(name: str, value: Any) -> Any:
    """The value, which must be one positive number."""
    if is_traced(value):
        return value
    number(name, value)
    if not float(value) > 0:
        raise ValueError(f"{name} must be positive, got {value!r}")
    return float(value)


def not_negative(name: str, value: Any) -> Any:
    """The value, which must be zero or one positive number."""
    number(name, value)
    if not is_traced(value) and float(value) < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}")
    return value


def number(name: str, value: Any) -> None:
    """Refuses what is not one finite number."""
    if is_traced(value):
        return
    found = np.asarray(value)
    if found.shape != () or found.dtype.kind not in "fiu" or not np.isfinite(float(found)):
        raise ValueError(f"{name} must be one number, got {value!r}")


def vector(name: str, value: Any) -> Array:
    """Three finite numbers as an array."""
    if not is_traced(value):
        try:
            numbers = np.asarray(value, float)
        except (TypeError, ValueError):
            numbers = np.zeros(0)
        if numbers.shape != (3,) or not np.all(np.isfinite(numbers)):
            raise ValueError(f"{name} must be three numbers, as in (0.0, 0.0, 1.0); got {value!r}")
    return jnp.asarray(value, float)


def unit(name: str, value: Any) -> Array:
    """A direction, given as three numbers that are not all zero, with length one."""
    found = vector(name, value)
    if not is_traced(found) and not np.any(np.asarray(found)):
        raise ValueError(f"{name} must be a direction, so not (0, 0, 0)")
    return found / jnp.sqrt(jnp.sum(found**2))


class Pose(eqx.Module):
    """The rotation and the place of a body, which take its own points and directions to those of space."""

    turn: Array
    at: Array

    def point(self, x: Array) -> Array:
        """The place in space of a point of the body."""
        return self.at + matvec(self.turn, x)

    def direction(self, x: Array) -> Array:
        """The direction in space of a direction of the body."""
        return matvec(self.turn, x)

    def inside(self, x: Array) -> Array:
        """The point of the body that is at x in space."""
        return matvec(self.turn.T, x - self.at)

    def row(self, point: Array, direction: Array) -> Array:
        """The one-form on (w, x') whose value is the velocity, along a direction, of the body's particle at a point.

        Of the body's angular velocity w in itself and of the velocity x' of its mass centre it is
        w . (r x R^T d) + x' . d, with r the particle's place in the body. It is also the covector of a force d there.
        """
        return jnp.concatenate([jnp.cross(self.inside(point), matvec(self.turn.T, direction)), direction])


WORLD = Pose(np.eye(3), np.zeros(3))  # pyright: ignore[reportArgumentType]
"""What does not move."""


class Shape(eqx.Module):
    """A convex shape that is fixed in a body.

    A shape on which other bodies roll has `level(x)` as well, as a Ground does, for points x of the body.
    """

    flat: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    centre: eqx.AbstractVar[Array]

    def farthest(self, direction: Array) -> Array:
        """The point of the shape that is farthest in a direction of length one; both are in the body."""
        raise NotImplementedError(f"{type(self).__name__} does not define farthest")

    def draw(self, pose: Pose, colour: str | None) -> list[Part]:
        """The parts of the scene."""
        raise NotImplementedError(f"{type(self).__name__} does not define draw")


class Ball(Shape):
    """A ball of this radius about `centre`, a point of the body."""

    exact: ClassVar[bool] = True
    radius: Any = eqx.field(converter=lambda x: positive("radius", x))
    centre: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("centre", x))

    def farthest(self, direction: Array) -> Array:
        return self.centre + self.radius * direction

    def level(self, x: Array) -> Array:
        """How far a point of the body is from the ball's surface; positive outside."""
        return jnp.sqrt(jnp.sum((x - self.centre) ** 2)) - self.radius

    def draw(self, pose: Pose, colour: str | None) -> list[Part]:
        return [scene.ball(pose.point(self.centre), self.radius, pose.turn, colour=colour)]


class Wheel(Shape):
    """A thin wheel of this radius about `axis`, with its hub at `centre`; both belong to the body."""

    radius: Any = eqx.field(converter=lambda x: positive("radius", x))
    axis: Array = eqx.field(default=(0.0, 1.0, 0.0), converter=lambda x: unit("axis", x))
    centre: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("centre", x))

    def farthest(self, direction: Array) -> Array:
        across = direction - jnp.sum(direction * self.axis) * self.axis
        return self.centre + self.radius * across / jnp.sqrt(jnp.sum(across**2))

    def draw(self, pose: Pose, colour: str | None) -> list[Part]:
        x, y = perpendicular(self.axis)
        turn = jnp.stack([pose.direction(a) for a in (x, self.axis, y)], axis=1)
        size = jnp.stack([jnp.asarray(a, float) for a in (self.radius, 0.12 * self.radius, self.radius)])
        return [Part("wheel", pose.point(self.centre), turn, size, colour)]


class Ellipsoid(Shape):
    """An ellipsoid with these three half axes, along the axes of the body, about `centre`."""

    axes: Array = eqx.field(converter=lambda x: vector("axes", x))
    centre: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("centre", x))

    def __check_init__(self):
        if not is_traced(self.axes) and not np.all(np.asarray(self.axes) > 0):
            raise ValueError(f"the half axes of an ellipsoid must be positive, got {np.asarray(self.axes)}")

    def farthest(self, direction: Array) -> Array:
        scaled = self.axes * direction
        return self.centre + self.axes * scaled / jnp.sqrt(jnp.sum(scaled**2))

    def level(self, x: Array) -> Array:
        """Positive outside, zero on the surface."""
        return jnp.sum(((x - self.centre) / self.axes) ** 2) - 1

    def draw(self, pose: Pose, colour: str | None) -> list[Part]:
        return [Part("ball", pose.point(self.centre), pose.turn, self.axes, colour)]


class Box(Shape):
    """A block with edges (length, width, height), about `centre`, for the picture: its corners cannot roll."""

    edges: Array = eqx.field(converter=lambda x: vector("edges", x))
    centre: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("centre", x))

    def draw(self, pose: Pose, colour: str | None) -> list[Part]:
        return [scene.box(pose.point(self.centre), self.edges, turn=pose.turn, colour=colour)]


class Ground(eqx.Module):
    """A surface that does not move: where `level` is zero. Bodies are where it is positive.

    For a surface of your own, give `level(x)`, with a gradient that is not zero near the surface, and `draw()`.
    """

    flat: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    """Whether `level` is the distance from the surface."""

    def level(self, x: Array) -> Array:
        """A function of a point of space that is zero on the surface."""
        raise NotImplementedError(f"{type(self).__name__} does not define level")

    def draw(self) -> list[Part]:
        """The parts of the scene."""
        return []


class Plane(Ground):
    """The plane through a point with this normal; by default, the floor z = 0."""

    normal: Array | None = eqx.field(
        default=None, converter=lambda x: None if x is None else unit("normal", x)
    )
    through: Array | None = eqx.field(
        default=None, converter=lambda x: None if x is None else vector("through", x)
    )
    flat = True
    exact = True

    def level(self, x: Array) -> Array:
        x = x if self.through is None else x - self.through
        return x[2] if self.normal is None else jnp.sum(x * self.normal)

    def draw(self) -> list[Part]:
        if self.normal is None and self.through is None:
            return [scene.floor()]
        origin = jnp.zeros(3) if self.through is None else self.through
        normal = jnp.array([0.0, 0.0, 1.0]) if self.normal is None else self.normal
        up = jnp.where(jnp.abs(normal[2]) > 0.01, normal[2], jnp.nan)  # a wall has no height

        def height(x: Array, y: Array) -> Array:
            return origin[2] - ((x - origin[0]) * normal[0] + (y - origin[1]) * normal[1]) / up

        return scene.net(height, 2.0)


class Surface(Ground):
    """The surface z = height(x, y), given as a function of jax.numpy; it is drawn for |x|, |y| <= reach."""

    height: Callable[[Array, Array], Array] = eqx.field(static=True)
    reach: Any = eqx.field(default=2.0, converter=lambda x: positive("reach", x))

    def __check_init__(self):
        if not callable(self.height):
            raise ValueError(
                f"Surface needs a function height(x, y), as in lambda x, y: 0.1 * (x**2 + y**2); got {self.height!r}"
            )

    def level(self, x: Array) -> Array:
        return x[2] - self.height(x[0], x[1])

    def draw(self) -> list[Part]:
        return scene.net(self.height, self.reach)


class Cylinder(Ground):
    """The inside of a cylinder of this radius about an axis through the origin; vertical by default."""

    radius: Any = eqx.field(converter=lambda x: positive("radius", x))
    axis: Array = eqx.field(default=(0.0, 0.0, 1.0), converter=lambda x: unit("axis", x))
    exact = True

    def level(self, x: Array) -> Array:
        across = x - jnp.sum(x * self.axis) * self.axis
        return self.radius - jnp.sqrt(jnp.sum(across**2))

    def draw(self) -> list[Part]:
        x, y = perpendicular(self.axis)
        return scene.tube(self.radius, -2 * self.radius, self.radius, jnp.stack([x, y, self.axis], axis=1))


def touch(shape: Shape, pose: Pose, ground: Any, under: Pose = WORLD) -> tuple[Array, Array]:
    """The point of the shape at which `level` of the ground is least, where the normals of both are opposite, and the
    normal of the ground there.

    NaN if it is not found, as where a hollow ground is more curved than the shape.
    """
    x = _point(shape, pose, ground, under)
    return x, normal_of(x, ground, under)


def _is_known(shape: Shape, ground: Any) -> bool:
    """The normal of a plane is the same everywhere, and that at the point nearest to the middle of a ball is known."""
    return ground.flat or (ground.exact and isinstance(shape, Ball))


def _point(shape: Shape, pose: Pose, ground: Any, under: Pose) -> Array:
    middle = pose.point(shape.centre)
    x = _nearest(normal_of(middle, ground, under), shape, pose)
    if _is_known(shape, ground):
        return x
    return _solved(x, middle, shape, pose, ground, under)


@compiled  # one run asks for the same contact some sixty times, and tracing it takes a third of a second
def _solved(x: Array, middle: Array, shape: Shape, pose: Pose, ground: Any, under: Pose) -> Array:
    size = jnp.sum(jnp.abs(x)) + jnp.sum(jnp.abs(x - middle))
    x, info = newton(lambda x: _apart(x, shape, pose, ground, under), x, 1 / size)
    return jnp.where(info.converged & _is_least(x, shape, pose, ground, under), x, jnp.nan)


def gap(shape: Shape, pose: Pose, ground: Any, under: Pose = WORLD) -> Array:
    """The least level of the ground on the shape: zero where they touch."""
    if _is_known(shape, ground):
        return level(_point(shape, pose, ground, under), ground, under)
    return _gap(shape, pose, ground, under)


@jax.custom_jvp
def _gap(shape: Shape, pose: Pose, ground: Any, under: Pose) -> Array:
    return level(_point(shape, pose, ground, under), ground, under)


@_gap.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """The level is least, so it does not change with the direction in which the point of the shape is farthest."""
    _, pose, ground, under = primals
    direction = matvec(pose.turn.T, -normal_of(_point(*primals), ground, under))

    def there(shape: Shape, pose: Pose, ground: Any, under: Pose) -> Array:
        return level(pose.point(shape.farthest(direction)), ground, under)

    return jax.jvp(there, primals, tangents)


def _is_least(*given: Any) -> Array:
    """Whether the level is least where the normals are opposite: the shape is more curved than a hollow ground.

    The derivative of `_apart` has the eigenvalue 1 and, with the principal radii a of the shape and the curvatures k of
    the hollow, two others such as 1 - a k, which must be positive.
    """
    given = jax.tree.map(jax.lax.stop_gradient, given)
    slope = jax.jacfwd(_apart)(*given)
    return (jnp.sum(slope[0] * jnp.cross(slope[1], slope[2])) > 0) & (jnp.trace(slope) > 1)


def level(x: Array, ground: Any, under: Pose) -> Array:
    """The level of the ground at a point of space."""
    return ground.level(under.inside(x))


def normal_of(x: Array, ground: Any, under: Pose = WORLD) -> Array:
    """The direction in which the level of the ground grows at a point of space."""
    slope = jax.grad(level)(x, ground, under)
    return slope / jnp.sqrt(jnp.sum(slope**2))


def _nearest(normal: Array, shape: Shape, pose: Pose) -> Array:
    """The point of the shape that is farthest against the normal."""
    return pose.point(shape.farthest(matvec(pose.turn.T, -normal)))


def _apart(x: Array, shape: Shape, pose: Pose, ground: Any, under: Pose) -> Array:
    """Zero if the shape is farthest, against the normal at x, at x itself."""
    return x - _nearest(normal_of(x, ground, under), shape, pose)


def perpendicular(direction: Array) -> tuple[Array, Array]:
    """Two directions that are perpendicular to a given one, and to each other."""
    aside = jnp.where(jnp.abs(direction[1]) < 0.8, jnp.array([0.0, 1.0, 0.0]), jnp.array([1.0, 0.0, 0.0]))
    first = jnp.cross(aside, direction)
    first = first / jnp.sqrt(jnp.sum(first**2))
    return first, jnp.cross(direction, first)
