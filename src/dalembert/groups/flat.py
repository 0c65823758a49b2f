"""Groups with global coordinates (R^n, tori and the Heisenberg group), and products of groups."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.groups.base import Group


class Rn(Group):
    """R^n with addition."""

    n: int = eqx.field(static=True)
    retractions = ("exp", "cayley", "mid")

    def __check_init__(self):
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise ValueError(f"{type(self).__name__} needs a dimension of at least 1, got {self.n!r}")

    @property
    def name(self) -> str:
        return f"R^{self.n}"

    @property
    def coordinates(self) -> tuple[str, ...]:
        return tuple(f"x{i + 1}" for i in range(self.n))

    @property
    def velocities(self) -> tuple[str, ...]:
        return tuple(f"v{i + 1}" for i in range(self.n))

    def identity(self) -> Array:
        return jnp.zeros(self.n)

    def multiply(self, g: Array, k: Array) -> Array:
        return g + k

    def inverse(self, g: Array) -> Array:
        return -g

    def adjoint(self, g: Array) -> Array:
        return jnp.eye(self.n, dtype=g.dtype)

    def bracket(self, x: Array) -> Array:
        return jnp.zeros((self.n, self.n), x.dtype)

    def exp(self, x: Array) -> Array:
        return x

    def dexp_inverse(self, x: Array) -> Array:
        return jnp.eye(self.n, dtype=x.dtype)

    mid = exp
    dmid_inverse = dexp_inverse

    def local(self, g: Array) -> Array:
        return g

    def matrix(self, g: Array) -> Array:
        """The matrix [[1, g], [0, 1]]."""
        one = jnp.eye(self.n + 1, dtype=g.dtype)
        return one.at[:-1, -1].set(g)


class Torus(Rn):
    """The torus of n angles, with addition."""

    @property
    def name(self) -> str:
        return "S^1" if self.n == 1 else f"T^{self.n}"

    @property
    def coordinates(self) -> tuple[str, ...]:
        return tuple(f"angle{i + 1}" for i in range(self.n))

    @property
    def velocities(self) -> tuple[str, ...]:
        return tuple(f"w{i + 1}" for i in range(self.n))

    @property
    def angles(self) -> tuple[str, ...]:
        return self.coordinates

    def matrix(self, g: Array) -> Array:
        """The rotations of n planes, as one matrix."""
        c, s = jnp.diag(jnp.cos(g)), jnp.diag(jnp.sin(g))
        return jnp.block([[c, -s], [s, c]])


class H3(Group):
    """The Heisenberg group: (a, b, c)(a', b', c') = (a + a', b + b', c + c' + a b')."""

    @property
    def name(self) -> str:
        return "H3"

    @property
    def coordinates(self) -> tuple[str, ...]:
        return ("a", "b", "c")

    @property
    def velocities(self) -> tuple[str, ...]:
        return ("va", "vb", "vc")

    def identity(self) -> Array:
        return jnp.zeros(3)

    def multiply(self, g: Array, k: Array) -> Array:
        return jnp.stack([g[0] + k[0], g[1] + k[1], g[2] + k[2] + g[0] * k[1]])

    def inverse(self, g: Array) -> Array:
        return jnp.stack([-g[0], -g[1], g[0] * g[1] - g[2]])

    def _lower(self, first: Array, second: Array) -> Array:
        """The unit matrix with these two numbers in its last row."""
        return (
            jnp.eye(3, dtype=first.dtype)
            + jnp.zeros((3, 3)).at[2, 0].set(1.0) * first
            + (jnp.zeros((3, 3)).at[2, 1].set(1.0) * second)
        )

    def adjoint(self, g: Array) -> Array:
        return self._lower(-g[1], g[0])

    def bracket(self, x: Array) -> Array:
        return self._lower(-x[1], x[0]) - jnp.eye(3, dtype=x.dtype)

    def exp(self, x: Array) -> Array:
        return jnp.stack([x[0], x[1], x[2] + 0.5 * x[0] * x[1]])

    def dexp_inverse(self, x: Array) -> Array:
        return self._lower(0.5 * x[1], -0.5 * x[0])

    def local(self, g: Array) -> Array:
        return g

    def matrix(self, g: Array) -> Array:
        """The element as an upper triangular matrix."""
        one, zero = jnp.ones((), g.dtype), jnp.zeros((), g.dtype)
        return jnp.stack([one, g[0], g[2], zero, one, g[1], zero, zero, one]).reshape(3, 3)


def _diagonal(blocks: list[Array]) -> Array:
    """The block-diagonal matrix."""
    rows, before, size = [], 0, sum(len(b) for b in blocks)
    for block in blocks:
        left = jnp.zeros((len(block), before), block.dtype)
        before += len(block)
        right = jnp.zeros((len(block), size - before), block.dtype)
        rows.append(jnp.concatenate([left, block, right], axis=1))
    return jnp.concatenate(rows, axis=0)


class Product(Group):
    """The direct product of groups. A name that occurs more than once gets the number of its factor."""

    factors: tuple[Group, ...]

    def __init__(self, *factors: Group):
        if len(factors) < 2 or not all(isinstance(x, Group) for x in factors):
            raise ValueError(
                f"Product needs two groups or more, such as Product(SE2(), Torus(2)); got {factors}"
            )
        self.factors = factors

    @property
    def retractions(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The retractions that all factors have."""
        return tuple(
            name for name in self.factors[0].retractions if all(name in f.retractions for f in self.factors)
        )

    def _named(self, kind: str) -> tuple[str, ...]:
        names = [(i, x) for i, f in enumerate(self.factors) for x in getattr(f, kind)]
        plain = [x for _, x in names]
        return tuple(x if plain.count(x) == 1 else f"{x}_{i + 1}" for i, x in names)

    @property
    def name(self) -> str:
        return " x ".join(f.name for f in self.factors)

    @property
    def coordinates(self) -> tuple[str, ...]:
        return self._named("coordinates")

    @property
    def velocities(self) -> tuple[str, ...]:
        return self._named("velocities")

    @property
    def angles(self) -> tuple[str, ...]:
        periodic = [x in f.angles for f in self.factors for x in f.coordinates]
        return tuple(x for x, mark in zip(self.coordinates, periodic, strict=True) if mark)

    def _elements(self, g: Array) -> list[Array]:
        ends = [sum(f.size for f in self.factors[: i + 1]) for i in range(len(self.factors))]
        return [g[end - f.size : end] for f, end in zip(self.factors, ends, strict=True)]

    def _vectors(self, x: Array) -> list[Array]:
        ends = [sum(f.dimension for f in self.factors[: i + 1]) for i in range(len(self.factors))]
        return [x[end - f.dimension : end] for f, end in zip(self.factors, ends, strict=True)]

    def _each(self, name: str, *parts: list[Array]) -> list[Array]:
        return [getattr(f, name)(*p) for f, *p in zip(self.factors, *parts, strict=True)]

    def identity(self) -> Array:
        return jnp.concatenate([f.identity() for f in self.factors])

    def multiply(self, g: Array, k: Array) -> Array:
        return jnp.concatenate(self._each("multiply", self._elements(g), self._elements(k)))

    def inverse(self, g: Array) -> Array:
        return jnp.concatenate(self._each("inverse", self._elements(g)))

    def adjoint(self, g: Array) -> Array:
        return _diagonal(self._each("adjoint", self._elements(g)))

    def bracket(self, x: Array) -> Array:
        return self._blocks("bracket", x)

    def _map(self, name: str, x: Array) -> Array:
        return jnp.concatenate(self._each(name, self._vectors(x)))

    def _blocks(self, name: str, x: Array) -> Array:
        return _diagonal(self._each(name, self._vectors(x)))

    def exp(self, x: Array) -> Array:
        return self._map("exp", x)

    def dexp_inverse(self, x: Array) -> Array:
        return self._blocks("dexp_inverse", x)

    def cayley(self, x: Array) -> Array:
        return self._map("cayley", x)

    def dcayley_inverse(self, x: Array) -> Array:
        return self._blocks("dcayley_inverse", x)

    def mid(self, x: Array) -> Array:
        return self._map("mid", x)

    def dmid_inverse(self, x: Array) -> Array:
        return self._blocks("dmid_inverse", x)

    def local(self, g: Array) -> Array:
        return jnp.concatenate(self._each("local", self._elements(g)))

    def matrix(self, g: Array) -> Array:
        return _diagonal(self._each("matrix", self._elements(g)))

    def restore(self, g: Array) -> Array:
        return jnp.concatenate(self._each("restore", self._elements(g)))

    def defect(self, g: Array) -> Array:
        return jnp.max(jnp.stack(self._each("defect", self._elements(g))))


class Coordinates(Rn):
    """R^n with addition, as the space of a system in coordinates.

    Some reduced systems have more velocities than coordinates; the additional velocities move no coordinate.
    """

    own_names: tuple[str, ...] = eqx.field(static=True)
    velocity_names: tuple[str, ...] = eqx.field(static=True)
    own_angles: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, names: tuple[str, ...], velocities: tuple[str, ...], angles: tuple[str, ...]):
        self.n = len(names)
        self.own_names, self.velocity_names, self.own_angles = names, velocities, angles

    @property
    def coordinates(self) -> tuple[str, ...]:
        return self.own_names

    @property
    def velocities(self) -> tuple[str, ...]:
        return self.velocity_names

    @property
    def angles(self) -> tuple[str, ...]:
        return self.own_angles

    def adjoint(self, g: Array) -> Array:
        return jnp.eye(self.dimension, dtype=g.dtype)

    def bracket(self, x: Array) -> Array:
        return jnp.zeros((self.dimension, self.dimension), x.dtype)

    def exp(self, x: Array) -> Array:
        return x[: self.n]

    def velocity(self, g: Array, x: Array) -> Array:
        return x[: self.n]

    def difference(self, g: Array, k: Array) -> Array:
        return k - g

    def gradient(self, function: Callable[[Array], Any], q: Array) -> Array:
        slope = jax.jacrev(function)(q)
        extra = self.dimension - self.n
        return jnp.pad(slope, [(0, 0)] * (slope.ndim - 1) + [(0, extra)]) if extra else slope
