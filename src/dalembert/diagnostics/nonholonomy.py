"""Is this constraint really nonholonomic? Frobenius' test and the growth vector, by brackets."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model import System, annihilator, as_arrays, frame_at, project
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
    growth = [int(n - np.linalg.matrix_rank(np.asarray(annihilator(system, jnp.asarray(q))), tol=_RANK))]
    for depth in range(1, n):
        if growth[-1] == n:
            break
        fields = np.asarray(_brackets(depth)(system, q))
        sizes = np.linalg.svd(fields / np.maximum(np.max(np.abs(fields)), 1e-300), compute_uv=False)
        rank = int(np.sum(sizes > _RANK * sizes[0]))
        if rank == growth[-1]:
            break
        growth.append(rank)
    return Nonholonomy(tuple(growth), n)


def _brackets(depth: int):
    """All brackets [X_a, [X_b, ...]] of up to `depth` nestings at q, as rows."""

    def at(system: System, q: Array) -> Array:
        basis = frame_at(system, q)

        def span(x):
            """Rows: vector fields that span D near q, smooth in x: the basis at q, projected."""
            return project(system, x, basis).T

        layers = [span]
        for _ in range(depth):
            layers.append(_bracket(span, layers[-1]))
        return jnp.concatenate([layer(q) for layer in layers])

    return compiled(at)


def _bracket(left, right):
    """[X, Y] = DY X - DX Y for every X of `left` and Y of `right`."""

    def at(x):
        xs, ys = left(x), right(x)
        dx, dy = jax.jacfwd(left)(x), jax.jacfwd(right)(x)
        return (jnp.einsum("bij,aj->abi", dy, xs) - jnp.einsum("aij,bj->abi", dx, ys)).reshape(-1, x.shape[0])

    return at
