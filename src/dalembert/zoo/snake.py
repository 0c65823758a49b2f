"""The snake on wheels."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from dalembert.model import System, scene
from dalembert.zoo.chains import (
    count,
    directions,
    plane_motions,
    towed_frame,
    towed_metric,
    towed_places,
    towed_rows,
    towed_velocity,
)

FORMS = ("minimal", "maximal")
_links = count("Snake", "links", 2)


class Snake(System):
    """A chain of links with springs in its joints; each link has a wheel in its middle that does not slip sideways.

    Every link has the length 2 a (`half` is a), the mass m in its middle P_i, and the moment of inertia J (`turning`).
    theta1 is the heading of the head, theta2 that of the link behind it, and so on. With e_i and n_i the directions
    along link i and to its left,

        L = sum_i m |P_i'|^2/2 + J theta_i'^2/2 - sum_i k (1 - cos(theta_i - theta_(i+1))),
        n_i . P_i' = 0,   P_i - a e_i = P_(i+1) + a e_(i+1),

    where k is the `stiffness` of the joints. coordinates="minimal" uses the head's middle (x, y) and the headings,
    which solve the joints: links + 2 coordinates and one row per wheel. "maximal" uses (x, y, theta) of every link,
    with the joints as 2 (links - 1) position constraints; the mass matrix is then constant. The motion is the same.
    With `friction` c, the ground acts on each link's middle with the force -c P_i'. The number 0 means that there are
    no forces at all, so that methods without forces take the snake. [hirose1993] built snakes of this kind.
    """

    step = 0.02
    links: int = eqx.field(static=True)
    form: str = eqx.field(static=True)
    half: float  # m
    mass: float  # kg
    turning: float  # kg m^2
    stiffness: float  # N m
    friction: float | None  # N s/m; None without friction

    def __init__(
        self,
        links: int = 5,
        coordinates: Literal["minimal", "maximal"] = "minimal",
        half=0.5,
        mass=1.0,
        turning=0.1,
        stiffness=1.0,
        friction=0.0,
    ):
        if coordinates not in FORMS:
            raise ValueError(f"Snake has no coordinates {coordinates!r}; choose one of: {', '.join(FORMS)}")
        self.links, self.form = _links(links), coordinates
        self.half, self.mass, self.turning, self.stiffness = half, mass, turning, stiffness
        self.friction = None if isinstance(friction, int | float) and friction == 0 else friction

    def defines(self, name: str) -> bool:
        """Whether the function is given, which depends on the coordinates and on the friction."""
        if name in ("holonomic", "frame"):
            return (name == "holonomic") == (self.form == "maximal")
        return self.friction is not None if name == "forces" else super().defines(name)

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The head's middle and the headings, or the middle and the heading of every link."""
        if self.form == "minimal":
            return ("x", "y", *self.angles)
        return tuple(f"{name}{i + 1}" for i in range(self.links) for name in ("x", "y", "theta"))

    @property
    def units(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Metres, and radians for the headings."""
        return tuple("rad" if name in self.angles else "m" for name in self.coordinates)

    @property
    def angles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The headings."""
        return tuple(f"theta{i + 1}" for i in range(self.links))

    def headings(self, q):
        """The heading of every link."""
        return q[2:] if self.form == "minimal" else q[2::3]

    def places(self, q):
        """The middles of the links, shape (links, 2)."""
        if self.form == "minimal":
            return towed_places(q[:2], q[2:], self.half, self.half)
        return q.reshape(self.links, 3)[:, :2]

    def metric(self, q):
        if self.form == "minimal":
            return towed_metric(q[2:], self.half, self.half, self.mass, self.turning)
        one = jnp.stack([jnp.asarray(x, float) for x in (self.mass, self.mass, self.turning)])
        return jnp.diag(jnp.tile(one, self.links))

    def potential(self, q):
        headings = self.headings(q)
        return self.stiffness * jnp.sum(1.0 - jnp.cos(headings[:-1] - headings[1:]))

    def constraints(self, q):
        if self.form == "minimal":
            return towed_rows(q[2:], self.half, self.half)
        _, aside = directions(self.headings(q))
        rows = jnp.pad(aside, ((0, 0), (0, 1)))
        return (jnp.eye(self.links)[:, :, None] * rows[:, None]).reshape(self.links, 3 * self.links)

    def frame(self, q):
        return towed_frame(q[2:], self.half, self.half)

    def holonomic(self, q):
        ahead, _ = directions(self.headings(q))
        places = self.places(q)
        return (places[:-1] - places[1:] - self.half * (ahead[:-1] + ahead[1:])).reshape(-1)

    def forces(self, q, v):
        # With equal masses, sum_i (dP_i/dq)^T P_i' is the momentum of bodies of mass 1 that do not turn.
        friction = 0.0 if self.friction is None else self.friction
        if self.form == "minimal":
            return -friction * (towed_metric(q[2:], self.half, self.half, 1.0, 0.0) @ v)
        return -friction * jnp.tile(jnp.array([1.0, 1.0, 0.0]), self.links) * v

    def starts(self):
        bent = jnp.concatenate([jnp.zeros(2), 0.6 * jnp.sin(1.2 * jnp.arange(self.links))])
        return {
            "default": self._start(bent, [1.0, 0.0]),
            "straight": self._start(jnp.zeros(self.links + 2), [1.0, 0.5]),
        }

    def _start(self, q, w):
        """The state in which w are the speed and the turning rate of the head; q and its frame are minimal."""
        a = self.half
        v = towed_velocity(q[2:], a, a, w)
        if self.form == "minimal":
            return q, v

        def every(q):
            return jnp.column_stack([towed_places(q[:2], q[2:], a, a), q[2:]]).reshape(-1)

        return jax.jvp(every, (q,), (v,))

    def scene(self, t, q):
        """The links, their joints and wheels, and the paths of head and tail."""
        a, middles, headings = jnp.asarray(self.half, float), self.places(q), self.headings(q)
        radius, height = 0.26 * a, 0.5 * a
        parts = [scene.floor(), scene.trace(middles[0]), scene.trace(middles[-1], scene.GOLD)]
        for i in range(self.links):
            at, heading = middles[i], headings[i]
            ahead = a * jnp.stack([jnp.cos(heading), jnp.sin(heading)])
            parts.append(
                scene.wheel(at, heading, 0.0, radius, width=0.12 * a, colour=scene.DARK, marked=False)
            )
            size = (1.6 * a, 0.36 * a, 0.22 * a)
            parts.append(
                scene.box(scene.place(at, height), size, heading, colour=None if i == 0 else scene.LIGHT)
            )
            parts.append(
                scene.rod(scene.place(at - ahead, height), scene.place(at + ahead, height), 0.05 * a)
            )
            if i:
                parts.append(scene.point(scene.place(at + ahead, height), 0.12 * a, scene.DARK))
        nose = middles[0] + 0.8 * a * jnp.stack([jnp.cos(headings[0]), jnp.sin(headings[0])])
        return [*parts, scene.point(scene.place(nose, 1.3 * height), 0.1 * a, scene.GOLD)]

    def generators(self, q):
        """The motions of the plane: (u, v, w) moves a place by (u - w y, v + w x) and turns all headings by w."""
        if self.form == "minimal":
            return plane_motions(q[:2], q[2:])
        places, zero, one = self.places(q), jnp.zeros(self.links), jnp.ones(self.links)
        moved = [(one, zero, zero), (zero, one, zero), (-places[:, 1], places[:, 0], one)]
        return jnp.stack([jnp.stack(x, axis=1).reshape(-1) for x in moved], axis=1)
