"""Is this constraint really nonholonomic? Frobenius' test and the growth vector, by brackets."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model import System, annihilator, as_arrays
from dalembert.numerics import compiled

# Singular values below this part of the largest count as zero; brackets of smooth functions are exact to rounding.
_RANK = 1e-8


class Nonholonomy(NamedTuple):
    """How the allowed directions grow under brackets."""

    growth: tuple[int, ...]
    """Dimensions of D, D + [D, D], D + [D, D] + [D, [D, D]], ... until they stop."""
    dimension: int
    """The number of coordinates."""

    @property
    def is_holonomic(self) -> bool:
        """Whether the constraint comes from one of positions: D is closed under brackets (Frobenius)."""
        return len(self.growth) == 1

    @property
    def hidden(self) -> int:
        """How many functions of q the constraint keeps constant."""
        return self.dimension - self.growth[-1]

    def __str__(self) -> str:
        vector = ", ".join(map(str, self.growth))
        if self.growth[0] == self.dimension:
            return f"no constraint: growth vector ({vector})"
        if self.is_holonomic:
            return (
                f"holonomic: growth vector ({vector}), so {self.hidden} function(s) of q stay constant and fewer "
                "coordinates would do"
            )
        if self.hidden:
            return (
                f"nonholonomic, but not completely: growth vector ({vector}) of {self.dimension}, so {self.hidden} "
                "function(s) of q stay constant"
            )
        return f"nonholonomic: growth vector ({vector}), every configuration nearby can be reached"


def nonholonomy(system: System, q: Any = None) -> Nonholonomy:
    """The growth vector of the constraint at q, by default the system's own start.

    D^1 = D, D^(j+1) = D^j + [D, D^j]; the brackets are derivatives of vector fields that span D near q.
    """
    q = np.asarray(system.start()[0] if q is None else q, float)
    n = system.dimension
    if q.shape != (n,):
        raise ValueError(f"q must have shape ({n},), got {q.shape}")
    system = as_arrays(system)
    _, sizes, rows = np.linalg.svd(np.asarray(_forms(system, q)), full_matrices=True)
    forms = int(np.sum(sizes > _RANK * np.max(sizes, initial=0.0)))
    basis = rows[forms:].T
    growth = [n - forms]
    # Each nesting adds a dimension or is the last, so `forms` of them are enough; most constraints need two.
    for depth in dict.fromkeys((min(2, forms), forms)):
        if not depth or growth[-1] == n:
            break
        growth = growth[:1]
        layers = [np.asarray(x) for x in _brackets(depth)(system, q, basis)]
        for k in range(1, depth + 1):
            rank = _rank(np.concatenate(layers[: k + 1]))
            if rank == growth[-1]:
                return Nonholonomy(tuple(growth), n)
            growth.append(rank)
    return Nonholonomy(tuple(growth), n)


_forms = compiled(annihilator)


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


def _brackets(depth: int):
    """All brackets [X_a, [X_b, ...]] at q, as rows: a layer for each number of nestings up to `depth`."""

    def at(system: System, q: Array, basis: Array) -> list[Array]:
        def span(x):
            """Rows: vector fields that span D near q, smooth in x: those given, or a basis at q, projected (times
            the determinant: no division, so that derivatives of derivatives stay short)."""
            if system.gives("frame"):
                return system.frame(x).T
            a = system.constraints(x)
            adjugate, determinant = _adjugate(a @ a.T)
            return (determinant * basis - a.T @ (adjugate @ (a @ basis))).T

        layers = [span]
        for _ in range(depth):
            layers.append(_bracket(span, layers[-1]))
        return [layer(q) for layer in layers]

    return compiled(at)


def _bracket(left, right):
    """[X, Y] = DY X - DX Y for every X of `left` and Y of `right`."""

    def at(x):
        xs = left(x)
        ys, along = jax.vmap(lambda t: jax.jvp(right, (x,), (t,)))(xs)
        _, across = jax.vmap(lambda t: jax.jvp(left, (x,), (t,)))(ys[0])
        return (along - jnp.swapaxes(across, 0, 1)).reshape(-1, x.shape[0])

    return at
