"""The parasitic mode of methods that live on TQ: the part of the normal velocity that changes sign every step."""

from math import comb
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from dalembert.diagnostics.inputs import one_run
from dalembert.kernels import over_rows
from dalembert.model import System, as_arrays, lower
from dalembert.simulation import Trajectory

# A difference of this order passes an alternating part and suppresses a smooth one by (h/time scale)^8.
_ORDER = 8
_FILTER = np.array([comb(_ORDER, j) * (-1) ** j for j in range(_ORDER + 1)]) / 2**_ORDER


# Amplitudes are root mean squares over this many steps.
_BLOCK = 40


class Parasitic(NamedTuple):
    """The size of the alternating part of the normal velocity."""

    first: float
    """The amplitude at the start of the run."""
    last: float
    """The amplitude in the last tenth of the run."""
    largest: float
    rate: float
    """The rate at which the logarithm of the amplitude grows, from the start until half the largest amplitude, or
    over the whole run if it does not grow; NaN if there is no alternating part."""

    @property
    def grows(self) -> bool:
        """Whether the amplitude becomes three times as large as at the start."""
        return self.largest > 3 * self.first


def _normal(system: System, t: Array, q: Array, u: Array) -> Array:
    """The components of u along an orthonormal basis of the complement of D, made from the one-forms in order.

    For affine constraints they measure how far u is from the allowed velocities. If the metric is indefinite, the basis
    is orthonormal in its units.
    """
    m = lower(system).at(t)
    a = m.forms(q, u)
    gram = a @ jnp.linalg.solve(m.measure(m.metric(q)), a.T)
    return jnp.linalg.solve(jnp.linalg.cholesky(gram), a @ u - m.levels(q, u))


def normal_velocity(trajectory: Trajectory) -> Float[np.ndarray, "rows k"]:
    """(K, m) the components of the method's own velocity normal to D."""
    system, _ = one_run(trajectory, "the normal velocity")
    return over_rows(_normal)(as_arrays(system), trajectory.t, trajectory.q, trajectory.v_full)


def parasitic_levels(trajectory: Trajectory) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """Times, and the amplitude of the alternating mode there as a root mean square over forty steps.

    This needs every step of the run (save_every=1).
    """
    system, _ = one_run(trajectory, "the parasitic mode")
    if trajectory.save_every != 1 or len(trajectory.t) < 200:
        raise ValueError(
            "the parasitic mode is seen from step to step: run 200 steps or more with save_every=1, got "
            f"{len(trajectory.t)} rows with save_every={trajectory.save_every}"
        )
    normal = normal_velocity(trajectory)
    if not normal.shape[1]:
        raise ValueError(
            f"{system.label} has no constraints, so there is no normal velocity with such a mode"
        )
    alternating = np.stack([np.convolve(x, _FILTER, "valid") for x in normal.T], axis=-1)
    with np.errstate(over="ignore"):  # from a run that explodes
        square = np.sum(alternating**2, axis=1)
    blocks = len(square) // _BLOCK
    levels = np.sqrt(np.mean(square[: blocks * _BLOCK].reshape(blocks, _BLOCK), axis=1))
    return np.asarray(trajectory.t)[: blocks * _BLOCK : _BLOCK], levels


def parasitic_mode(trajectory: Trajectory) -> Parasitic:
    """The amplitude and the growth of the alternating mode; needs every step of the run (save_every=1)."""
    times, levels = parasitic_levels(trajectory)
    last = np.sqrt(np.mean(levels[-(len(levels) // 10 + 1) :] ** 2))
    first, last, largest = float(levels[0]), float(last), float(np.max(levels))
    if np.min(levels) <= 0:
        return Parasitic(first, last, largest, np.nan)
    grown = int(np.argmax(levels >= 0.5 * largest))
    until = grown + 1 if largest > 3 * first and grown >= 2 else len(levels)
    return Parasitic(first, last, largest, float(np.polyfit(times[:until], np.log(levels[:until]), 1)[0]))
