"""Whether steps that keep the energy exist near a state: the number G."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.methods.base import State
from dalembert.model import System, acceleration, as_arrays, lower, total_energy
from dalembert.numerics import matvec, over_rows

# Weights of the second difference of order 6, without its middle, where the residual vanishes.
_WEIGHTS = np.array([3 / 2, -3 / 20, 1 / 90])


def _indicator(shared: Any, t: Array, q: Array, v: Array) -> Array:
    """Half the second derivative of E^-(h) - lam' omega0 at h = 0, so that S = 2 h G + O(h^2).

    By differences over step sizes up to a small part of the time in which the motion changes.
    """
    method, system = shared
    here = system.at(t)
    speed, change = (
        jnp.sqrt(jnp.sum(x * matvec(here.metric(q), x))) for x in (v, acceleration(here, q, v)[0])
    )
    reach = 0.03 * jnp.minimum(speed / (change + jnp.finfo(q.dtype).tiny), 1.0)
    s = method.beginning(system, State(q, v, t), matvec(here.metric(q), v), total_energy(here, q, v))
    guess = jnp.concatenate([v, jnp.zeros(s.forms.shape[0], q.dtype)])
    steps = reach * jnp.arange(1, 4) / 3
    energies = jax.vmap(lambda h: method.eliminated(system, s, h, guess)[0])(jnp.concatenate([steps, -steps]))
    return 0.5 * jnp.sum(jnp.asarray(_WEIGHTS) * (energies[:3] + energies[3:])) / steps[0] ** 2


def well_posedness(system: System, method: Any, t: Any, q: Any, v: Any) -> np.ndarray:
    """(K,) G of EDLA at rows of states."""
    return over_rows(_indicator)((as_arrays(method), lower(as_arrays(system))), t, q, v)
