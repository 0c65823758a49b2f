"""Checks of a discrete connection that the user gives."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model import TOLERANCE, Trait, as_arrays, lower
from dalembert.numerics import jit_fast_compile, solve
from dalembert.reduction.cases import Chaplygin, Reduced
from dalembert.reduction.measured import Sample, place
from dalembert.reduction.steps import STEP, equation


@jit_fast_compile
def _laws(core: Any, given: Sample, h: Any) -> Any:
    """What the connection is at random pairs and at moved ones, and how far its horizontal steps are from D_d."""
    symmetry, connection = core.symmetry, core.case.connection
    group = symmetry.group

    def one(s, k):
        here = lower(core.full).at(s.t)
        q1 = core.discrete.lagrangian.moved(here, s.q, STEP * s.v / h, h)
        value, other = (
            connection(s.q, q1),
            connection(symmetry.act(here, s.g, s.q), symmetry.act(here, k, q1)),
        )
        wanted = group.multiply(group.multiply(k, value), group.inverse(s.g))
        off = jnp.zeros(())
        if isinstance(core.case, Chaplygin):
            missing, (_, full, r, u, _) = equation(core, s, h)
            w = core.case.fibre(symmetry, full, core.discrete, r, u, h)
            wrong = solve(jax.jacfwd(missing)(w), missing(w))
            off = jnp.max(jnp.abs(wrong)) / (jnp.max(jnp.abs(w)) + jnp.max(jnp.abs(u)))
        size = jnp.abs(value) + jnp.abs(k) + jnp.abs(s.g) + jnp.abs(other)
        return value, other - wanted, size, group.defect(value), off, q1

    return jax.vmap(one)(given, jnp.roll(given.g, 1, axis=0))


def check_connection(
    reduced: Reduced, connection: Callable[[Array, Array], Array], given: Sample, h: Any
) -> None:
    """Raises ValueError if a function is no discrete connection, or not e on the discrete constraint.

    It must satisfy A_d(g q0, k q1) = k A_d(q0, q1) g^-1 and, for a Chaplygin system, A_d = e on D_d.
    """
    symmetry, system = reduced.symmetry, reduced.full
    group, said = symmetry.group, f"reduce: connection is no discrete connection of {symmetry.words}: "
    if not callable(connection):
        raise ValueError(f"reduce: connection must be a function of (q0, q1), got {connection!r}")
    q = jax.ShapeDtypeStruct((system.dimension,), jnp.zeros(()).dtype)
    made: Any = jax.eval_shape(connection, q, q)
    if getattr(made, "shape", None) != (group.size,):
        raise ValueError(
            f"{said}it must return an element of {group.name}, shape ({group.size},); got "
            f"{getattr(made, 'shape', made)}"
        )
    value, change, size, defect, off, ends = (
        np.asarray(x, float) for x in _laws(as_arrays(reduced), given, h)
    )

    def pair(i: int) -> str:
        return f"from ({place(system, given.q[i])}) to ({place(system, ends[i])})"

    defined = np.all(np.isfinite(given.q), axis=1) & np.all(np.isfinite(ends), axis=1)
    if not np.all(np.isfinite(value[defined])):
        i = int(np.argmax(defined & ~np.all(np.isfinite(value), axis=1)))
        raise ValueError(f"{said}it is NaN or infinite {pair(i)}")
    if np.any(defect[defined] > TOLERANCE):
        i = int(np.argmax(np.where(defined, defect, 0.0)))
        raise ValueError(f"{said}its value {pair(i)} is not in {group.name}; it is off by {defect[i]:.3g}")
    if Trait.COORDINATES in lower(system).traits:
        turns = np.array([x in group.angles for x in group.coordinates])
        change = np.where(turns, np.remainder(change + np.pi, 2 * np.pi) - np.pi, change)
    wrong = np.where(defined, np.max(np.abs(change) / (size.max(axis=1, keepdims=True) + 1), axis=1), 0.0)
    i = int(np.argmax(np.nan_to_num(wrong, nan=np.inf)))
    if not wrong[i] <= TOLERANCE:
        raise ValueError(
            f"{said}A_d(g q0, k q1) = k A_d(q0, q1) g^-1 must hold for all elements g and k; it fails by "
            f"{wrong[i]:.2g} (relative) {pair(i)}"
        )
    i = int(np.argmax(np.where(defined & np.isfinite(off), off, 0.0)))
    if off[i] > TOLERANCE:
        raise ValueError(
            f"{said}A_d = e must hold on the discrete constraint {reduced.rule.discrete_constraint.cli_name}, but the "
            f"step of the shape {pair(i)} that it makes horizontal is off by {off[i]:.2g} (relative). Give the method "
            "the discrete constraint of this connection, such as a function (system, q0, q1, h) -> A_d(q0, q1)/h if "
            "the group is abelian"
        )
