"""The equation for the group's part of a discrete step, and its solutions, at samples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.model import Trait, lower
from dalembert.numerics import jit_fast_compile, solve
from dalembert.reduction.cases import Rule
from dalembert.reduction.measured import Sample

# Samples of velocities reach 10 and of the algebra 100. With this time, steps are up to one unit and group elements
# up to ten units long, whatever h is.
STEP = 0.1
# Once Newton's method is near a root, each iteration doubles the number of correct digits.
_ITERATIONS = 30


def equation(core: Any, s: Sample, h: Any) -> tuple[Any, Any]:
    """The residual of the equation for the group's part of a step, and its ingredients.

    Steps have the same length for every h.
    """
    symmetry, full = core.symmetry, lower(core.full).at(s.t)
    r, split = symmetry.shape(full, s.q), symmetry.split(full)
    u = (STEP / h) * s.v[np.array(split.shape_velocity, int)]
    rule: Rule = core.discrete

    def missing(w):
        return core.case.missing(symmetry, full, rule, rule.step(symmetry, full, r, u, w, h), h)

    return missing, (symmetry, full, r, u, (STEP / h) * s.x)


@jit_fast_compile
def values(core: Any, given: Any, w: Any, h: Any) -> Any:
    """The residual of the equation at the group parts w, one for each sample."""
    return jax.vmap(lambda s, w: equation(core, s, h)[0](w))(given, w)


@jit_fast_compile
def slopes(core: Any, given: Any, h: Any) -> Any:
    """The slope of the equation for the group's part of a step.

    Returns the relative change of the slope, and its smallest and largest singular value.
    """

    def one(s):
        missing, (*_, w) = equation(core, s, h)
        slope, other = jax.vmap(jax.jacfwd(missing))(jnp.stack([w, -0.7 * w]))
        sizes = jnp.linalg.svd(slope, compute_uv=False)
        return jnp.max(jnp.abs(other - slope)) / sizes[0], sizes[-1], sizes[0]

    return jax.vmap(one)(given)


@jit_fast_compile
def group_parts(core: Any, given: Any, h: Any) -> Any:
    """The roots of the equation for the group's part of a step, from the usual guess and from another one.

    Returns whether the equation is defined, the two roots, and whether each solves the equation.
    """

    def one(s):
        missing, (symmetry, full, r, u, other) = equation(core, s, h)
        guess = core.case.group_velocity(symmetry, full, r, u)

        size = jnp.max(jnp.abs(u)) + jnp.max(jnp.abs(guess)) + jnp.max(jnp.abs(other))

        # A fixed number of iterations: a search with a stopping rule takes four times as long to compile.
        def nearer(i, carry):
            w, _, defined = carry
            slope, value = jax.jacfwd(lambda w: (missing(w),) * 2, has_aux=True)(w)
            change = solve(slope, value)
            # Only at the first iteration: later ones may diverge out of the domain of the equation.
            defined = defined & ((i > 0) | jnp.all(jnp.isfinite(value)))
            return w - change, jnp.max(jnp.abs(change)), defined

        def found(begin):
            begun = (begin, jnp.inf, jnp.array(True))
            w, change, defined = lax.fori_loop(0, _ITERATIONS, nearer, begun)
            return h * w, change < 1e-9 * size, defined

        roots, good, defined = jax.vmap(found)(jnp.stack([guess, other]))
        return defined[0], roots, good

    return jax.vmap(one)(given)


def apart(core: Any, given: Sample, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far apart two group parts of a step are at each sample, relative to their sizes and that of the step."""
    group, change = core.symmetry.group, other - one
    turns = np.zeros(group.dimension, bool)
    if (
        Trait.COORDINATES in lower(core.full).traits
    ):  # a group part then consists of the numbers of an element
        turns[:] = [x in group.angles for x in group.coordinates]
    change = np.where(turns, np.remainder(change + np.pi, 2 * np.pi) - np.pi, change)
    size = np.maximum(np.abs(one), np.abs(other)).max(axis=1) + STEP * np.max(np.abs(given.v), axis=1)
    return np.max(np.abs(change), axis=1) / size
