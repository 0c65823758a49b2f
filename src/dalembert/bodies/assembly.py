"""The system that bodies and what connects them make."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.bodies.pieces import Contact, Piece, Touch
from dalembert.bodies.shapes import WORLD, Pose, Shape, number, positive, vector
from dalembert.groups import SO3, Group, Product, Rn
from dalembert.model import GroupSystem, as_arrays, independent_rows, lower, nearest_start, scene
from dalembert.model.scene import Part
from dalembert.numerics import is_traced, jit_fast_compile, matvec


def _moments(value: Any) -> Array:
    """The inertia about the mass centre: one number, three principal moments, or a symmetric matrix."""
    if is_traced(value):
        found = jnp.asarray(value, float)
        return jnp.diag(jnp.broadcast_to(found, 3)) if found.ndim < 2 else found
    try:
        found = np.asarray(value, float)
    except (TypeError, ValueError):
        found = np.full(1, np.nan)
    if found.shape in ((), (3,)):
        found = np.diag(np.broadcast_to(found, 3))
    if found.shape != (3, 3) or not np.all(np.isfinite(found)) or not np.allclose(found, found.T):
        raise ValueError(
            f"inertia must be one number, three principal moments or a symmetric (3, 3) matrix, got {value!r}"
        )
    moments = np.linalg.eigvalsh(found)
    if moments[0] <= 0 or moments[2] > (moments[0] + moments[1]) * (1 + 1e-9):
        raise ValueError(
            f"no rigid body has these principal moments of inertia: {moments.tolist()}. They are positive, and none is "
            "larger than the sum of the other two"
        )
    return jnp.asarray(found)


def _rotation(value: Any) -> Array:
    if is_traced(value):
        return jnp.asarray(value, float)
    try:
        found = np.asarray(value, float)
    except (TypeError, ValueError):
        found = np.zeros(0)
    right = found.shape == (3, 3) and np.allclose(found @ found.T, np.eye(3), atol=1e-9)
    if not right or np.linalg.det(found) < 0:
        raise ValueError(
            f"turn must be a (3, 3) rotation matrix, such as scene.about_z(angle); got {value!r}"
        )
    return jnp.asarray(found)


class Body(eqx.Module):
    """A rigid body. Its origin is its mass centre.

    `inertia` is about the mass centre, in the body's own axes: one number, three principal moments, or a matrix.
    `shape` is what touches the ground and what is drawn. `at`, `turn`, `velocity` and `spin` are its place, rotation,
    velocity and angular velocity, in space, at the start; `start` changes them as little as the constraints demand.
    """

    name: str = eqx.field(static=True)
    mass: Any = eqx.field(converter=lambda x: positive("mass", x))
    inertia: Array = eqx.field(converter=_moments)
    shape: Shape | None = None
    at: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("at", x))
    turn: Array = eqx.field(default_factory=lambda: np.eye(3), converter=_rotation)
    velocity: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("velocity", x))
    spin: Array = eqx.field(default=(0.0, 0.0, 0.0), converter=lambda x: vector("spin", x))
    colour: str | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"a body's name must be a word such as 'wheel', got {self.name!r}")
        if self.shape is not None and not isinstance(self.shape, Shape):
            raise ValueError(
                f"{self.name}: shape must be a Ball, Wheel, Ellipsoid or Box, got {self.shape!r}"
            )


class Assembly(GroupSystem):
    """Rigid bodies, with contacts, joints, springs, dampers and motors, under gravity.

    The configuration has twelve numbers per body: the nine entries of its rotation R, row by row, and its mass
    centre. The velocity has six: the angular velocity w in the body's own axes, and the velocity of the mass centre
    in space. It is a system on a Lie group like any other; FrameGradient keeps its energy and constraints.
    """

    bodies: tuple[Body, ...]
    pieces: tuple[Piece, ...] = ()
    gravity: Any = 9.81

    def __check_init__(self):
        number("gravity", self.gravity)
        for what, given, kind in (("bodies", self.bodies, Body), ("pieces", self.pieces, Piece)):
            wrong = [x for x in given if not isinstance(x, kind)]
            if wrong:
                raise ValueError(f"{what} must be a list of {kind.__name__} objects, got {wrong[0]!r}")
        names = [body.name for body in self.bodies]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"bodies need different names, and there must be at least one; got {names}")
        for piece in self.pieces:
            for name in piece.names:
                if name is not None and name not in names:
                    raise ValueError(
                        f"{type(piece).__name__} acts on {name!r}, which is not one of the bodies: {', '.join(names)}"
                    )
            if len(piece.names) == 2 and piece.names[0] == piece.names[1]:
                raise ValueError(
                    f"{type(piece).__name__} connects {piece.names[0]!r} with itself; name another body"
                )
            piece.check(self._shape)

    @property
    def group(self) -> Group:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A rotation and a place for each body."""
        return Product(*(x for _ in self.bodies for x in (SO3(), Rn(3))))

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(f"{body.name}.{x}" for body in self.bodies for x in (*SO3().coordinates, "x", "y", "z"))

    @property
    def velocity_names(self) -> tuple[str, ...]:
        return tuple(
            f"{body.name}.{x}" for body in self.bodies for x in (*SO3().velocities, "vx", "vy", "vz")
        )

    def defines(self, name: str) -> bool:
        """Whether the function is given; those of pieces are if some piece needs them."""
        if name in ("constraints", "holonomic", "forces"):
            return any(name in piece.gives for piece in self.pieces)
        return super().defines(name)

    def _index(self, name: str) -> int:
        return [body.name for body in self.bodies].index(name)

    def _shape(self, name: str) -> Shape | None:
        return self.bodies[self._index(name)].shape

    def _places(self, q: Array):
        def of(name: str | None) -> Pose:
            if name is None:
                return WORLD
            part = q[12 * self._index(name) : 12 * self._index(name) + 12]
            return Pose(part[:9].reshape(3, 3), part[9:])

        return of

    def inertia(self) -> Array:
        n = 6 * len(self.bodies)
        found = jnp.zeros((n, n))
        for k, body in enumerate(self.bodies):
            found = found.at[6 * k : 6 * k + 3, 6 * k : 6 * k + 3].set(body.inertia)
            found = found.at[6 * k + 3 : 6 * k + 6, 6 * k + 3 : 6 * k + 6].set(body.mass * jnp.eye(3))
        return found

    def potential(self, q: Array) -> Array:
        of = self._places(q)
        weight = sum(body.mass * self.gravity * of(body.name).at[2] for body in self.bodies)
        return jnp.asarray(weight + sum(piece.potential(of) for piece in self.pieces))

    def holonomic(self, q: Array) -> Array:
        of = self._places(q)
        return jnp.stack([x for piece in self.pieces for x in piece.positions(of, self._shape)])

    def constraints(self, q: Array) -> Array:
        of = self._places(q)
        return jnp.stack([self._spread(x) for piece in self.pieces for x in piece.rows(of, self._shape)])

    def _rates(self, q: Array, v: Array):
        of = self._places(q)

        def rates(name: str | None, point: Array) -> Array:
            if name is None:
                return jnp.zeros(3)
            k, pose = 6 * self._index(name), of(name)
            return v[k + 3 : k + 6] + pose.direction(jnp.cross(v[k : k + 3], pose.inside(point)))

        return rates

    def forces(self, q: Array, v: Array) -> Array:
        of, rates = self._places(q), self._rates(q, v)
        return sum(
            (self._spread([x]) for piece in self.pieces for x in piece.forces(of, rates)), jnp.zeros_like(v)
        )

    def contacts(self, sol: Any) -> dict[str, Touch]:
        """Where the bodies touch along a run or an ensemble of this system, how they slip there, and with what force
        the ground acts on them, by "body on ground".

        The forces come from the multipliers of the run. Contacts hold in both directions: where `push` is negative, a
        real body would leave the ground.
        """
        found = [piece for piece in self.pieces if isinstance(piece, Contact)]
        if not found:
            return {}
        *lead, numbers = np.shape(sol.q)
        if numbers != self.dimension:
            raise ValueError(
                f"contacts needs a run of this system, with {self.dimension} numbers in q; this one has {numbers}"
            )
        rows = sol.q, sol.v, sol.position_multipliers, sol.velocity_multipliers
        made = _touches(as_arrays(self), *(np.reshape(x, (math.prod(lead), np.shape(x)[-1])) for x in rows))
        made = [jax.tree.map(lambda x: np.asarray(x).reshape(*lead, 3), touch) for touch in made]
        labels = [piece.label for piece in found]
        again = [labels[: k + 1].count(label) for k, label in enumerate(labels)]
        named = [f"{label} ({n})" if n > 1 else label for label, n in zip(labels, again, strict=True)]
        return dict(zip(named, made, strict=True))

    def _touching(self, q: Array, v: Array, pushes: Array, grips: Array) -> list[Touch]:
        of, rates, found = self._places(q), self._rates(q, v), []
        for piece in self.pieces:
            count, other = len(piece.positions(of, self._shape)), len(piece.rows(of, self._shape))
            if isinstance(piece, Contact):
                found.append(piece.touching(of, self._shape, rates, pushes[0], grips[:other]))
            pushes, grips = pushes[count:], grips[other:]
        return found

    def _spread(self, parts: list[tuple[str, Array]]) -> Array:
        """A covector on all velocities from its parts on those of some bodies."""
        zero = jnp.zeros(6)
        return jnp.concatenate(
            [sum((x for name, x in parts if name == body.name), zero) for body in self.bodies]
        )

    def state(self, **given: Mapping[str, Any]) -> tuple[Array, Array]:
        """The configuration and velocity with the bodies as they were made, or with `at`, `turn`, `velocity` and
        `spin` changed by the body's name: state(ball={"at": (0, 0, 1)}). The constraints need not hold;
        `da.start(system, *system.state(...))` finds the nearest state in which they do."""
        unknown = [name for name in given if name not in [body.name for body in self.bodies]]
        if unknown:
            raise ValueError(
                f"there is no body {unknown[0]!r}; the bodies are {', '.join(b.name for b in self.bodies)}"
            )
        q, v = [], []
        for body in self.bodies:
            changes = dict(given.get(body.name, {}))
            wrong = set(changes) - {"at", "turn", "velocity", "spin"}
            if wrong:
                raise ValueError(
                    f"{body.name}: a state has at, turn, velocity and spin, but no {sorted(wrong)[0]!r}"
                )
            turn = _rotation(changes.get("turn", body.turn))
            at, velocity, spin = (
                vector(name, changes.get(name, getattr(body, name))) for name in ("at", "velocity", "spin")
            )
            q += [turn.reshape(9), at]
            v += [matvec(turn.T, spin), velocity]
        return jnp.concatenate(q), jnp.concatenate(v)

    def starts(self):
        q, v = self.state()
        if is_traced((self, q, v)):
            return {"as made": nearest_start(lower(self), q, v)}
        m = lower(self)
        off = float(_violation(m, q, v))
        if off <= _ROUNDING:  # as it should be; finding the nearest start would take seconds to compile
            return {"as made": (q, v)}
        return {"as made": _nearest(lower(independent_rows(self, q)), q, v)}

    def scene(self, t: Array, q: Array) -> list[Part]:
        of = self._places(q)
        parts = [x for piece in self.pieces for x in piece.draw(of)]
        floors = [x for x in parts if x.kind == "floor"][:1]
        drawn = [*floors, *(x for x in parts if x.kind != "floor")]
        for body in self.bodies:
            pose = of(body.name)
            drawn.append(scene.trace(pose.at))
            drawn += [scene.point(pose.at)] if body.shape is None else body.shape.draw(pose, body.colour)
        return drawn


_ROUNDING = 1e-12
"""States whose constraints are off by no more than this, in units of places and velocities, are taken as they are."""


@jit_fast_compile
def _touches(system: Assembly, *rows: Array) -> list[Touch]:
    return jax.vmap(system._touching)(*rows)


@jit_fast_compile
def _violation(m: Any, q: Array, v: Array) -> Array:
    """How far a state is from satisfying the constraints, relative to its places and velocities."""
    off = jnp.max(jnp.abs(m.holonomic(q)), initial=0.0) / (1 + jnp.max(jnp.abs(q)))
    return jnp.maximum(off, jnp.max(jnp.abs(m.violation(q, v)), initial=0.0) / (1 + jnp.max(jnp.abs(v))))


@jit_fast_compile
def _nearest(m: Any, q: Array, v: Array) -> tuple[Array, Array]:
    return nearest_start(m, q, v)


def assemble(
    bodies: Sequence[Body] | Body, pieces: Sequence[Piece] | Piece = (), gravity: Any = 9.81
) -> Assembly:
    """The system of these bodies, with what connects them; gravity pulls against the z axis."""
    listed = (bodies,) if isinstance(bodies, Body) else tuple(bodies)
    return Assembly(listed, (pieces,) if isinstance(pieces, Piece) else tuple(pieces), gravity)
