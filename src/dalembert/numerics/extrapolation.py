"""Solve smooth differential equations to rounding, by extrapolation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# The numbers of substeps; seven of them give order 14.
_COUNTS = 2 * np.arange(1, 8)


def _weights() -> np.ndarray:
    """The weights that evaluate, at substep zero, the polynomial in the squared substep through all results."""
    squares = _COUNTS.astype(float) ** 2
    ratios = squares[:, None] / (squares[:, None] - squares + np.diag(squares))
    return np.prod(ratios, axis=1)


def extrapolated_step(field: Callable[[Array], Array], z: Array, h: Array) -> Array:
    """The solution of z' = field(z) after time h, accurate to rounding if h is a fraction of the time scale.

    Equations: [hairer1993] II.9, the explicit midpoint rule with 2, 4, ..., 14 substeps, extrapolated: order 14.
    """

    def midpoint(count):
        part = h / count
        first = field(z)

        def body(i, pair):
            before, here = pair
            after = before + 2 * part * field(z + here)
            return jax.tree.map(lambda a, b: jnp.where(i < count, a, b), (here, after), (before, here))

        # Written as changes from z, so that rounding is relative to the change.
        return lax.fori_loop(1, int(_COUNTS[-1]), body, (jnp.zeros_like(z), part * first))[1]

    changes = jax.vmap(midpoint)(jnp.asarray(_COUNTS, z.dtype))
    # The weights add up to one but are as large as 25. They multiply differences, which are small.
    corrections = jnp.tensordot(jnp.asarray(_weights()[:-1], z.dtype), changes[:-1] - changes[-1], axes=1)
    return z + (changes[-1] + corrections)
