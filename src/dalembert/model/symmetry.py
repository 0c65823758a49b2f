"""Symmetries: a Lie group that acts on some coordinates of a system."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.groups import Group, Product, Rn
from dalembert.model.systems import Mechanics, System, lower
from dalembert.model.traits import Trait
from dalembert.numerics import matmul, matvec


class Split(NamedTuple):
    """The positions of the shape's and the group's numbers in a configuration, and in a velocity."""

    shape: tuple[int, ...]
    fibre: tuple[int, ...]
    shape_velocity: tuple[int, ...]
    fibre_velocity: tuple[int, ...]


def _names(on: Any) -> tuple[str, ...]:
    if isinstance(on, str) or not isinstance(on, Iterable) or not all(isinstance(x, str) for x in on):
        raise ValueError(f"Symmetry: on must be names of coordinates, such as ('x', 'y'); got {on!r}")
    return tuple(on)


class Symmetry(eqx.Module):
    """A Lie group that acts on a system: Symmetry(SE2(), on=("x", "y", "theta")).

    The coordinates named in `on` are the numbers of a group element k, and g acts by multiplication from the left,
    k -> g k. The other coordinates, the shape r, stay as they are. If they move too, give action(g, q). It must act
    in the same way on the coordinates in `on`, and it must be an action: action(e, q) = q and
    action(g, action(k, q)) = action(g k, q). `classify` and `reduce` check this at samples. On a GroupSystem, `on`
    names the numbers of one factor of its product group, and the shape is in the other factors, R^n or tori.
    Configurations are then q = g (r, e), and the group does not change r.
    """

    group: Group
    on: tuple[str, ...] = eqx.field(static=True, converter=_names)
    action: Callable[[Array, Array], Array] | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        if not isinstance(self.group, Group):
            raise ValueError(f"Symmetry needs a group such as Rn(2), Torus(1) or SE2(); got {self.group!r}")
        if len(set(self.on)) != len(self.on) or len(self.on) != self.group.size:
            raise ValueError(
                f"Symmetry: {self.group.name} has {self.group.size} numbers "
                f"({', '.join(self.group.coordinates)}); on names {len(set(self.on))}: {', '.join(self.on)}"
            )
        if self.action is not None and not callable(self.action):
            raise ValueError(f"Symmetry: action must be a function of (g, q), got {self.action!r}")

    @property
    def words(self) -> str:
        """The group and the coordinates that it acts on, for messages."""
        return f"{self.group.name} on ({', '.join(self.on)})"

    @property
    def abelian(self) -> bool:
        """Whether the group is R^n, a torus or a product of these."""
        parts = self.group.factors if isinstance(self.group, Product) else (self.group,)
        return all(isinstance(x, Rn) for x in parts)

    def split(self, system: System | Mechanics) -> Split:
        """The positions of shape and group; refuses a system without these coordinates."""
        names = system.coordinates
        missing = [x for x in self.on if x not in names]
        if missing:
            raise ValueError(
                f"Symmetry {self.words}: {system.label} has no coordinate {', '.join(missing)}; it has "
                f"({', '.join(names)})"
            )
        fibre = tuple(names.index(x) for x in self.on)
        shape = tuple(i for i in range(len(names)) if i not in fibre)
        m = lower(system)
        if Trait.COORDINATES in m.traits:
            if Trait.EXTRA_VELOCITIES in m.traits:
                raise ValueError(
                    f"Symmetry {self.words}: {system.label} keeps the velocities of a group without its coordinates, "
                    "and cannot be reduced again. Reduce the system it was made of by both groups at once, their "
                    "Product"
                )
            if self.group.size != self.group.dimension:
                raise ValueError(
                    f"Symmetry {self.words}: the numbers of {self.group.name} are not coordinates. Write "
                    f"{system.label} as a GroupSystem on a product with {self.group.name}"
                )
            return Split(shape, fibre, shape, fibre)
        return Split(shape, fibre, *self._factor(system, fibre))

    def _factor(
        self, system: System | Mechanics, fibre: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The positions of the shape's velocities, and of the velocities of the symmetry's own factor."""
        whole: Any = lower(system).space
        refusal = f"Symmetry {self.words} on {system.label}: "
        if self.action is not None:
            raise ValueError(f"{refusal}on a GroupSystem the action is multiplication from the left")
        parts = whole.factors if isinstance(whole, Product) else (whole,)
        place = speed = 0
        found: tuple[int, ...] | None = None
        for part in parts:
            own = tuple(range(speed, speed + part.dimension))
            if tuple(range(place, place + part.size)) == fibre and type(part) is type(self.group):
                found = own
            elif not isinstance(part, Rn):
                raise ValueError(
                    f"{refusal}the shape must be in factors R^n or tori, not in {part.name}; "
                    f"name all of {self.group.name} in the order of its numbers"
                )
            place, speed = place + part.size, speed + part.dimension
        if found is None:
            raise ValueError(f"{refusal}{whole.name} has no factor {self.group.name} on these numbers")
        return tuple(i for i in range(speed) if i not in found), found

    def join(self, system: System | Mechanics, r: Array, g: Array) -> Array:
        """The configuration g (r, e)."""
        s = self.split(system)
        first = g if self.action is None else self.group.identity().astype(r.dtype)
        q = _ordered(r, first, s.shape, s.fibre)
        return q if self.action is None else self.action(g, q)

    def section(self, system: System | Mechanics, r: Array) -> Array:
        """The configuration (r, e)."""
        return self.join(system, r, self.group.identity().astype(r.dtype))

    def element(self, system: System | Mechanics, q: Array) -> Array:
        """The group element g of q = g (r, e)."""
        return _taken(q, self.split(system).fibre)

    def shape(self, system: System | Mechanics, q: Array) -> Array:
        """The shape r of q = g (r, e)."""
        if self.action is not None:
            q = self.action(self.group.inverse(self.element(system, q)), q)
        return _taken(q, self.split(system).shape)

    def act(self, system: System | Mechanics, g: Array, q: Array) -> Array:
        """The configuration g q."""
        if self.action is not None:
            return self.action(g, q)
        return self.join(system, self.shape(system, q), self.group.multiply(g, self.element(system, q)))

    def push(self, system: System | Mechanics, g: Array, q: Array, v: Array) -> Array:
        """The velocity v at q, moved to g q; on a GroupSystem v is a body velocity, which does not change."""
        if self._translates or Trait.GROUP in lower(system).traits:
            return v
        return jax.jvp(lambda x: self.act(system, g, x), (q,), (v,))[1]

    def pull(self, system: System | Mechanics, g: Array, q: Array, p: Array) -> Array:
        """The covector p at g q, moved to q."""
        if self._translates or Trait.GROUP in lower(system).traits:
            return p
        return jax.vjp(lambda x: self.act(system, g, x), q)[1](p)[0]

    def generators(self, system: System | Mechanics, q: Array) -> Array:
        """The velocities xi_Q(q) at q, shape (n, s): one column per basis vector of the algebra."""
        if Trait.GROUP in lower(system).traits:
            s = self.split(system)
            own = self.group.adjoint(self.group.inverse(self.element(system, q)))
            rest = jnp.zeros((len(s.shape_velocity), own.shape[1]), q.dtype)
            return _ordered(rest, own, s.shape_velocity, s.fibre_velocity)
        zero = jnp.zeros(self.group.dimension, q.dtype)
        return jax.jacfwd(lambda x: self.act(system, self.group.exp(x), q))(zero)

    def spread(self, system: System | Mechanics, r: Array, change: Array, xi: Array) -> Array:
        """The velocity at (r, e) with r' = change and group velocity xi = g^-1 g'; both may be matrices of columns."""
        s = self.split(system)
        if self.action is None:
            return _ordered(change, xi, s.shape_velocity, s.fibre_velocity)
        still = _ordered(change, jnp.zeros_like(xi), s.shape_velocity, s.fibre_velocity)
        return still + jnp.tensordot(self.generators(system, self.section(system, r)), xi, 1)

    def parts(self, system: System | Mechanics, r: Array, p: Array) -> tuple[Array, Array]:
        """The parts of the covector p at (r, e) on changes of r and on the algebra; p may be a matrix of rows."""
        s = self.split(system)
        on_shape = _taken(p, s.shape_velocity)
        if self.action is None:
            return on_shape, _taken(p, s.fibre_velocity)
        up = self.generators(system, self.section(system, r))
        return on_shape, matvec(up.T, p) if p.ndim == 1 else matmul(p, up)

    def changes(self, system: System | Mechanics, r: Array, v: Array) -> tuple[Array, Array]:
        """The rate r' and the group velocity xi of a velocity at (r, e)."""
        s = self.split(system)
        change, xi = _taken(v, s.shape_velocity), _taken(v, s.fibre_velocity)
        if self.action is None:
            return change, xi
        up = self.generators(system, self.section(system, r))
        return change - matvec(_taken(up.T, s.shape_velocity).T, xi), xi

    def momentum(self, system: System | Mechanics, q: Any, v: Any) -> Array:
        """The momentum <dL/dv, xi_Q> at a state, shape (s,): one number per basis vector of the algebra."""
        m = lower(system)
        if Trait.TIMED in m.traits and m.t is None:
            raise ValueError(f"{m.label} depends on time: give the system at a fixed time, system.at(t)")
        q, v = jnp.asarray(q, float), jnp.asarray(v, float)
        return matvec(self.generators(m, q).T, matvec(m.metric(q), v))

    @property
    def _translates(self) -> bool:
        return self.action is None and self.abelian


def _runs(at: tuple[int, ...]) -> list[tuple[int, int]]:
    """The indices as the fewest possible slices: gathering entries one by one takes longer to trace and to run."""
    runs: list[tuple[int, int]] = []
    for i in at:
        if runs and runs[-1][1] == i:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
    return runs


def _taken(x: Array, at: tuple[int, ...]) -> Array:
    """The entries of the last axis at these places."""
    pieces = [x[..., a:b] for a, b in _runs(at)] or [x[..., :0]]
    return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces, axis=-1)


def _ordered(first: Array, second: Array, at_first: tuple[int, ...], at_second: tuple[int, ...]) -> Array:
    """The rows of both arrays, each at its given place."""
    where = [*at_first, *at_second]
    both = jnp.concatenate([first, second])
    pieces = [both[a:b] for a, b in _runs(tuple(where.index(i) for i in range(len(where))))]
    return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces)
