"""Is this constraint really nonholonomic? Frobenius' test and the growth vector, by brackets."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model import (
    Chart,
    GroupSystem,
    Mechanics,
    SpaceTime,
    System,
    Trait,
    as_arrays,
    check_system,
    independent_rows,
    lower,
)
from dalembert.numerics import Vector, jit_fast_compile

# Singular values below this fraction of the largest count as zero; brackets of smooth functions are exact to rounding.
_RANK = 1e-8


# The largest number of nestings, where brackets vanish at q but not near it.
_DEEPEST = 6


class Nonholonomy(NamedTuple):
    """How the allowed directions grow under brackets."""

    growth: tuple[int, ...]
    """The dimensions at q of D, D + [D, D], D + [D, D] + [D, [D, D]], ... until they stop growing."""
    nearby: tuple[int, ...]
    """The dimensions at a configuration near q, which differ from `growth` if q is a singular point."""
    dimension: int
    """The number of coordinates, including the time if `spacetime` is true."""
    spacetime: bool = False
    """Whether the directions are those of space and time, because the constraint is affine or depends on time."""
    positions: int = 0
    """The number of position constraints that the system gives; they are among the functions that stay constant."""

    @property
    def is_holonomic(self) -> bool:
        """Whether the constraint is one on positions, because D is closed under brackets near q (Frobenius)."""
        return len(self.nearby) == 1

    @property
    def hidden(self) -> int:
        """The number of functions of q that the constraint keeps constant."""
        return self.dimension - self.nearby[-1]

    def __str__(self) -> str:
        vector = f"growth vector {'in space and time ' * self.spacetime}({', '.join(map(str, self.growth))})"
        if self.growth != self.nearby:
            vector += f", nearby ({', '.join(map(str, self.nearby))})"
        if self.nearby[0] == self.dimension:
            return f"no constraint: {vector}"
        given = f" ({self.positions} of them as position constraints)" if self.positions else ""
        if self.is_holonomic:
            advice = "" if self.hidden == self.positions else ", fewer coordinates would do"
            return f"holonomic: {vector}; {self.hidden} function(s) of q stay constant{given}{advice}"
        if self.hidden:
            return (
                f"nonholonomic, but not completely: {vector} of {self.dimension}, so {self.hidden} function(s) of q "
                f"stay constant{given}"
            )
        return f"nonholonomic: {vector}, every configuration nearby can be reached"


def nonholonomy(system: System, q: Vector | None = None) -> Nonholonomy:
    """The growth vector of the constraint at q and near q, by default at the system's own start.

    D^1 = D, D^(j+1) = D^j + [D, D^j]; the brackets are derivatives of vector fields that span D near q. If the
    constraint is affine or depends on time, D is the distribution in space and time, which includes the drift.
    """
    check_system(system)
    q = np.asarray(system.start()[0] if q is None else q, float)
    n = system.dimension
    if q.shape != (n,):
        raise ValueError(f"q must have shape ({n},), got {q.shape}")
    if Trait.NONLINEAR in lower(system).traits:
        raise ValueError(
            "nonholonomy measures a distribution of velocities, but the allowed velocities of "
            f"{system.label}, which gives nonlinear(q, v), are not a linear space"
        )
    system = independent_rows(system, q)
    positions = jax.eval_shape(lower(system).at(0.0).holonomic, q).shape[0]
    if isinstance(system, GroupSystem):
        system, q = Chart(system, jnp.asarray(q)), np.zeros(system.velocity_dimension)
        n = len(q)
    spacetime = not lower(system).natural
    if spacetime:
        system, q, n = SpaceTime(system), np.concatenate([[0.0], q]), n + 1
    m = lower(as_arrays(system))
    # Brackets never leave the surfaces of constant c, so no more directions can come.
    nearby = _growth(m, q + 0.05 * np.random.default_rng(2).normal(size=n), None, n - positions)
    return Nonholonomy(_growth(m, q, nearby[-1], n - positions), nearby, n, spacetime, positions)


def _growth(m: Mechanics, q: np.ndarray, goal: int | None, most: int) -> tuple[int, ...]:
    """The growth vector at q until it reaches `goal`, or until it stalls or reaches `most` if there is none.

    Stopping at the first stall is right at regular points.
    """
    _, sizes, rows = np.linalg.svd(np.asarray(_forms(m, q)), full_matrices=True)
    forms = int(np.sum(sizes > _RANK * np.max(sizes, initial=0.0)))
    growth = [len(q) - forms]
    if growth[0] == (most if goal is None else goal):
        return tuple(growth)
    # At regular points each nesting adds a dimension or is the last. Two are enough for most constraints, and each
    # more takes several times as long to compile.
    for depth in sorted({*range(min(2, forms), forms + 1), *((2, 3, 4, _DEEPEST) if goal else ())}):
        growth = growth[:1]
        layers = [np.asarray(x) for x in _brackets(depth)(m, q, rows[forms:].T)]
        for k in range(1, depth + 1):
            rank = _rank(np.concatenate(layers[: k + 1]))
            if goal is None and rank == growth[-1]:
                return tuple(growth)
            growth.append(rank)
            if rank == (most if goal is None else goal):
                return tuple(growth)
    return tuple(growth)


_forms = jit_fast_compile(Mechanics.rows)


def _rank(rows: np.ndarray) -> int:
    sizes = np.linalg.svd(rows, compute_uv=False)
    return int(np.sum(sizes > _RANK * sizes[0]))


def _adjugate(s: Array) -> tuple[Array, Array]:
    """The adjugate and the determinant, by the recursion of Faddeev and Le Verrier."""
    size = s.shape[0]
    before = m = jnp.eye(size)
    c = jnp.ones(())
    for k in range(1, size + 1):
        before, product = m, s @ m
        c = -jnp.trace(product) / k
        m = product + c * jnp.eye(size)
    sign = 1.0 if size % 2 == 0 else -1.0
    return -sign * before, sign * c


@cache
def _brackets(depth: int):
    """A function that returns all brackets [X_a, [X_b, ...]] at q as rows, one layer per nesting up to `depth`."""

    def at(m: Mechanics, q: Array, basis: Array) -> list[Array]:
        def span(x):
            """Vector fields, as rows, that span D near q and are smooth in x.

            They are the system's own frame, or a basis at q projected to D. The projection is multiplied by the
            determinant, which avoids a division, so that derivatives of derivatives stay short.
            """
            if m.framed:
                return m.frame(x).T
            a = m.rows(x)
            adjugate, determinant = _adjugate(a @ a.T)
            return (determinant * basis - a.T @ (adjugate @ (a @ basis))).T

        layers = [span]
        for _ in range(depth):
            layers.append(_bracket(span, layers[-1]))
        return [layer(q) for layer in layers]

    return jit_fast_compile(at)


def _bracket(left, right):
    """[X, Y] = DY X - DX Y for every X of `left` and Y of `right`."""

    def at(x):
        xs = left(x)
        ys, along = jax.vmap(lambda t: jax.jvp(right, (x,), (t,)))(xs)
        _, across = jax.vmap(lambda t: jax.jvp(left, (x,), (t,)))(ys[0])
        return (along - jnp.swapaxes(across, 0, 1)).reshape(-1, x.shape[0])

    return at
