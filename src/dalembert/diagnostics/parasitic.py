"""The parasitic mode of methods that live on TQ: the part of the normal velocity that changes sign every step."""

from math import comb
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.diagnostics.rows import over_rows
from dalembert.model import System, annihilator, as_arrays
from dalembert.simulate import Trajectory

# A difference of this order passes what alternates and suppresses what is smooth by (h/time scale)^8.
_ORDER = 8
_FILTER = np.array([comb(_ORDER, j) * (-1) ** j for j in range(_ORDER + 1)]) / 2**_ORDER


class Parasitic(NamedTuple):
    """The size of the alternating part of the normal velocity (root mean square)."""

    first: float
    """In the first tenth of the run."""
    last: float
    """In the last tenth."""
    rate: float
    """Growth rate of its logarithm, a unit of time; NaN where there is no such part."""


def _normal(system: System, q: Array, u: Array) -> Array:
    """The components of u along an orthonormal basis of the complement of D, made from the one-forms in order."""
    a = annihilator(system, q)
    gram = a @ jnp.linalg.solve(system.metric(q), a.T)
    return jnp.linalg.solve(jnp.linalg.cholesky(gram), a @ u)


def normal_velocity(trajectory: Trajectory) -> np.ndarray:
    """(K, m) the components of the method's own velocity normal to D."""
    return over_rows(_normal)(as_arrays(_system(trajectory)), trajectory.q, trajectory.v_full)


def parasitic_mode(trajectory: Trajectory) -> Parasitic:
    """Amplitude and growth of the alternating mode; needs every step of the run (save_every=1)."""
    if trajectory.save_every != 1 or len(trajectory.t) < 200:
        raise ValueError("the parasitic mode is seen from step to step: run 200 steps or more with save_every=1")
    return _of_series(np.asarray(trajectory.t), normal_velocity(trajectory))


def _of_series(t: Any, normal: np.ndarray) -> Parasitic:
    alternating = np.stack([np.convolve(x, _FILTER, "valid") for x in normal.T], axis=-1)
    size = np.sqrt(np.sum(alternating**2, axis=1))
    parts = np.array_split(size, 10)
    levels = np.array([np.sqrt(np.mean(p**2)) for p in parts])
    if np.min(levels) <= 0:
        return Parasitic(float(levels[0]), float(levels[-1]), np.nan)
    middle = np.array([np.mean(p) for p in np.array_split(np.asarray(t)[: len(size)], 10)])
    return Parasitic(float(levels[0]), float(levels[-1]), float(np.polyfit(middle, np.log(levels), 1)[0]))


def _system(trajectory: Trajectory) -> System:
    if trajectory.system is None:
        raise ValueError("the parasitic mode needs the system, which this trajectory was loaded without")
    return trajectory.system
