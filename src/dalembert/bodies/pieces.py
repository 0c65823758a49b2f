"""What connects bodies with each other and with the ground: contacts, joints, springs, dampers and motors."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.bodies.shapes import (
    Box,
    Ground,
    Plane,
    Pose,
    gap,
    level,
    normal_of,
    not_negative,
    number,
    perpendicular,
    positive,
    touch,
    unit,
    vector,
)
from dalembert.model import scene
from dalembert.model.scene import Part
from dalembert.numerics import matvec

Places = Callable[[str | None], Pose]
"""The pose of a body by its name; None is what does not move."""
Rates = Callable[[str | None, Array], Array]
"""The velocity of a body's particle at a point."""
Rows = list[tuple[str, Array]]
"""One one-form: for each body that it concerns, its part on (w, x')."""


class Piece(eqx.Module):
    """Something that acts on bodies. Subclasses give what they need of the functions below."""

    @property
    def names(self) -> tuple[str | None, ...]:
        """The bodies that it acts on."""
        raise NotImplementedError(f"{type(self).__name__} does not name its bodies")

    def check(self, shape_of: Callable[[str], Any]) -> None:
        """Refuses bodies that do not fit; `shape_of` returns the shape of a body."""

    gives: ClassVar[Any] = frozenset()
    """Which of the system's functions it adds to: "holonomic", "constraints", "forces"."""

    def positions(self, of: Places, shape_of: Callable[[str], Any]) -> list[Array]:
        """Numbers that must be zero."""
        return []

    def rows(self, of: Places, shape_of: Callable[[str], Any]) -> list[Rows]:
        """One-forms that must be zero on the velocities."""
        return []

    def potential(self, of: Places) -> Array | float:
        """Its potential energy."""
        return 0.0

    def forces(self, of: Places, rates: Rates) -> Rows:
        """Covectors on (w, x') of bodies; `rates(name, point)` is the velocity of a body's particle at a point."""
        return []

    def draw(self, of: Places) -> list[Part]:
        """The parts of the scene."""
        return []


def _slip(of: Places, body: str, other: str | None, a: Array, b: Array, direction: Array) -> Rows:
    """The velocity, along a direction, of a body's particle at a relative to the other body's particle at b.

    It is also the covector of a force `direction` at a, and of its opposite at b.
    """
    rows = [(body, of(body).row(a, direction))]
    return rows if other is None else [*rows, (other, -of(other).row(b, direction))]


class Named(eqx.Module):
    """A body on which another one rolls, by its name."""

    name: str = eqx.field(static=True)


class Touch(NamedTuple):
    """A contact along a run: arrays with one row per saved state, and three columns for the directions of space."""

    point: Any
    """Where the body touches."""
    normal: Any
    """The unit vector that points from the ground into the body."""
    slip: Any
    """The velocity of the body's particle at the point, relative to the ground's; zero to rounding if it rolls."""
    force: Any
    """The force of the ground on the body: the part along the normal, and the friction that prevents slip."""

    @property
    def push(self) -> Any:
        """The force along the normal. Where it is negative, a real ground would let the body go."""
        return (self.force * self.normal).sum(-1)


class Contact(Piece):
    """A body touches the ground, or another body, and rolls on it without slipping, or slides without friction.

    `on` is a Plane (the floor by default), a Surface, a Cylinder, or the name of a body whose shape is a Ball or an
    Ellipsoid. The point of contact is where the two shapes are nearest. It gives one position constraint, and if it
    rolls two one-forms: the slip, the velocity of the body's particle at the contact relative to the ground's, is zero.
    """

    body: str = eqx.field(static=True)
    on: Any = eqx.field(default_factory=Plane, converter=lambda x: Named(x) if isinstance(x, str) else x)
    rolls: bool = eqx.field(static=True, default=True)

    @property
    def other(self) -> str | None:
        """The body on which it rolls; None if it is on a ground."""
        return self.on.name if isinstance(self.on, Named) else None

    @property
    def names(self):
        return (self.body,) if self.other is None else (self.body, self.other)

    def check(self, shape_of):
        shape = shape_of(self.body)
        if shape is None or isinstance(shape, Box):
            raise ValueError(
                f"{self.body} cannot touch anything: it needs a shape that rolls, a Ball, Wheel or Ellipsoid; got "
                f"{shape!r}"
            )
        if self.other is not None:
            name, under = self.other, shape_of(self.other)
            if not hasattr(under, "level"):
                raise ValueError(
                    f"{self.body} cannot touch {name}: the shape of {name} must be a Ball or an Ellipsoid, got "
                    f"{under!r}"
                )
        elif not isinstance(self.on, Ground):
            raise ValueError(
                f"{self.body}: `on` must be a Plane, a Surface, a Cylinder or the name of a body, got {self.on!r}"
            )

    @property
    def gives(self):
        return frozenset({"holonomic", *(["constraints"] if self.rolls else [])})

    def _pair(self, of: Places, shape_of: Callable[[str], Any]) -> tuple[Any, Pose, Any, Pose]:
        """The shape of the body, its pose, the ground, and the ground's pose."""
        ground = self.on if self.other is None else shape_of(self.other)
        return shape_of(self.body), of(self.body), ground, of(self.other)

    def positions(self, of, shape_of):
        return [gap(*self._pair(of, shape_of))]

    def rows(self, of, shape_of):
        if not self.rolls:
            return []
        x, normal = touch(*self._pair(of, shape_of))
        return [_slip(of, self.body, self.other, x, x, d) for d in perpendicular(normal)]

    @property
    def label(self) -> str:
        """What touches what."""
        return f"{self.body} on {self.other or type(self.on).__name__.lower()}"

    def touching(
        self, of: Places, shape_of: Callable[[str], Any], rates: Rates, push: Array, grip: Array
    ) -> Touch:
        """The contact with the multipliers of its position constraint and of its one-forms."""
        pair = self._pair(of, shape_of)
        x, normal = touch(*pair)
        steepness = jnp.sum(normal * jax.grad(level)(x, *pair[2:]))
        force = push * steepness * normal
        if self.rolls:
            force = force + sum(a * d for a, d in zip(grip, perpendicular(normal), strict=True))
        return Touch(x, normal, rates(self.body, x) - rates(self.other, x), force)

    def draw(self, of):
        return self.on.draw() if isinstance(self.on, Ground) else []


class Blade(Piece):
    """A blade or a wheel without mass: its point stays on the ground and does not move sideways.

    `at` is the point and `along` the direction of the blade, both in the body. With `held=False` the point is not held
    on the ground, for bodies that something else holds there.
    """

    body: str = eqx.field(static=True)
    at: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("at", x))
    along: Array = eqx.field(default=(1.0, 0.0, 0.0), converter=lambda x: unit("along", x))
    on: Any = eqx.field(default_factory=Plane)
    held: bool = eqx.field(static=True, default=True)

    @property
    def names(self):
        return (self.body,)

    def check(self, shape_of):
        if not isinstance(self.on, Ground):
            raise ValueError(
                f"{self.body}: a blade needs a ground such as a Plane or a Surface, got {self.on!r}"
            )

    @property
    def gives(self):
        return frozenset({"constraints", *(["holonomic"] if self.held else [])})

    def positions(self, of, shape_of):
        return [self.on.level(of(self.body).point(self.at))] if self.held else []

    def rows(self, of, shape_of):
        pose = of(self.body)
        point = pose.point(self.at)
        sideways = jnp.cross(normal_of(point, self.on), pose.direction(self.along))
        return [[(self.body, pose.row(point, sideways / jnp.sqrt(jnp.sum(sideways**2))))]]

    def draw(self, of):
        pose = of(self.body)
        point, along = pose.point(self.at), pose.direction(self.along)
        return [*self.on.draw(), scene.rod(point - 0.3 * along, point + 0.3 * along, 0.02)]


class Link(Piece):
    """Something between a point of a body and a point of another one, or of space."""

    body: eqx.AbstractVar[str]
    other: eqx.AbstractVar[str | None]
    at: eqx.AbstractVar[Array]
    at_other: eqx.AbstractVar[Array]

    @property
    def names(self):
        return (self.body, self.other)

    def ends(self, of: Places) -> tuple[Array, Array]:
        """Both points, in space."""
        return of(self.body).point(self.at), of(self.other).point(self.at_other)


class BallJoint(Link):
    """A point of one body stays at a point of another; without the other, at a point of space."""

    gives = frozenset({"holonomic"})

    body: str = eqx.field(static=True)
    other: str | None = eqx.field(static=True, default=None)
    at: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("at", x))
    at_other: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("at_other", x))

    def positions(self, of, shape_of):
        a, b = self.ends(of)
        apart = a - b
        return [apart[0], apart[1], apart[2]]

    def draw(self, of):
        return [scene.point(of(self.body).point(self.at), 0.06, scene.DARK)]


class Hinge(BallJoint):
    """A ball joint that turns about one axis only: the axes of both bodies, or the axis of space, stay the same."""

    axis: Array = eqx.field(default=(0.0, 0.0, 1.0), converter=lambda x: unit("axis", x))
    axis_other: Array | None = eqx.field(
        default=None, converter=lambda x: None if x is None else unit("axis_other", x)
    )
    """The axis in the other body; by default the same numbers as `axis`."""

    def _axes(self, of: Places) -> tuple[Array, Pose, Array]:
        other = self.axis if self.axis_other is None else self.axis_other
        return of(self.body).direction(self.axis), of(self.other), other

    def positions(self, of, shape_of):
        axis, pose, other = self._axes(of)
        across = [jnp.sum(axis * pose.direction(x)) for x in perpendicular(other)]
        return [*super().positions(of, shape_of), *across]

    def draw(self, of):
        axis, _, _ = self._axes(of)
        point = of(self.body).point(self.at)
        return [scene.rod(point - 0.15 * axis, point + 0.15 * axis, 0.04)]


class Spring(Link):
    """A spring between points of two bodies, or of a body and space: k (distance - length)^2 / 2."""

    body: str = eqx.field(static=True)
    other: str | None = eqx.field(static=True, default=None)
    stiffness: Any = eqx.field(default=1.0, converter=lambda x: positive("stiffness", x))
    length: Any = eqx.field(default=0.0, converter=lambda x: not_negative("length", x))
    at: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("at", x))
    at_other: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("at_other", x))

    def potential(self, of):
        a, b = self.ends(of)
        square = jnp.sum((a - b) ** 2)
        # Where the distance is zero, a spring without length is smooth and any other is not.
        distance = jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (square > 0)
        return 0.5 * self.stiffness * (square - 2 * self.length * distance + self.length**2)

    def draw(self, of):
        return [scene.spring(*self.ends(of))]


class Damper(Link):
    """A damper between points of two bodies, or of a body and space: `damping` times the velocity between them.

    The force acts along the line between the points; where they coincide there is none. With `straight=False` it is
    against the whole relative velocity.
    """

    body: str = eqx.field(static=True)
    other: str | None = eqx.field(static=True, default=None)
    damping: Any = eqx.field(default=1.0, converter=lambda x: positive("damping", x))
    at: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("at", x))
    at_other: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("at_other", x))
    straight: bool = eqx.field(static=True, default=True)
    gives = frozenset({"forces"})

    def forces(self, of, rates):
        a, b = self.ends(of)
        relative = rates(self.body, a) - rates(self.other, b)
        if self.straight:
            square = jnp.sum((a - b) ** 2)
            relative = (a - b) * jnp.sum((a - b) * relative) / jnp.where(square > 0, square, 1.0)
        return _slip(of, self.body, self.other, a, b, -self.damping * relative)

    def draw(self, of):
        return [scene.rod(*self.ends(of), 0.05)]


class Motor(Piece):
    """A torque about an axis of a body, and the opposite torque on the other body if there is one.

    With `drag`, the torque falls with the rate w of the body about the axis, relative to the other: torque - drag w.
    A motor with drag alone is the friction of a bearing.
    """

    body: str = eqx.field(static=True)
    other: str | None = eqx.field(static=True, default=None)
    torque: Any = 0.0
    drag: Any = 0.0
    axis: Array = eqx.field(default=(0.0, 0.0, 1.0), converter=lambda x: unit("axis", x))
    gives = frozenset({"forces"})

    def __check_init__(self):
        for name in ("torque", "drag"):
            number("Motor: " + name, getattr(self, name))

    @property
    def names(self):
        return (self.body, self.other)

    def forces(self, of, rates):
        start, axis = of(self.body).at, of(self.body).direction(self.axis)
        # The rate of turning, from the velocities of two particles: (w x a) . b = w . (a x b).
        a, b = perpendicular(axis)
        turning = jnp.zeros(())
        for name, sign in ((self.body, 1.0), (self.other, -1.0)):
            turning = turning + sign * jnp.sum((rates(name, start + a) - rates(name, start)) * b)
        torque = (self.torque - self.drag * turning) * axis
        zero = jnp.zeros(3)
        both = [(name, sign) for name, sign in ((self.body, 1.0), (self.other, -1.0)) if name is not None]
        return [
            (name, jnp.concatenate([sign * matvec(of(name).turn.T, torque), zero])) for name, sign in both
        ]

    def draw(self, of):
        pose = of(self.body)
        return [scene.arrow(pose.at, 0.5 * pose.direction(self.axis))]
