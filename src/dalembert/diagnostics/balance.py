"""Where the energy goes: the balance of a run by the frame discrete gradient."""

from typing import Any, NamedTuple

import numpy as np
from jax import Array

from dalembert.diagnostics.inputs import one_run
from dalembert.discrete import Retraction
from dalembert.kernels import over_rows
from dalembert.methods import FrameGradient
from dalembert.model import Mechanics, Trait, as_arrays, lower, moving_energy
from dalembert.simulation import Trajectory


class EnergyBalance(NamedTuple):
    """The energy balance of every step of a run."""

    change: np.ndarray
    """(K - 1,) the change of the energy, or of the moving energy for affine constraints."""
    work: np.ndarray
    """(K - 1,) the work of the forces, of the drift of the constraint, and of the explicit dependence on time."""
    defect: float
    """The largest difference between `change` and `work`, relative to the largest energy."""


def _work(shared: Any, t: Array, q0: Array, q1: Array) -> Array:
    m, method, h = shared
    on_group = Trait.GROUP in m.traits
    u = Retraction("exp").velocity(m, q0, q1, h) if on_group else m.space.difference(q0, q1) / h
    return method.work(m, t, q0, u, h)


def _energy(m: Mechanics, t: Array, q: Array, v: Array) -> Array:
    return moving_energy(m.at(t), q, v)


def energy_balance(trajectory: Trajectory) -> EnergyBalance:
    """The energy balance of a run by FrameGradient with save_every=1, which closes to rounding in every step.

    The saved positions are rounded, so the defect is at least about eps |q|/(h |v|).
    """
    system, method = one_run(trajectory, "the energy balance", rows=2)
    if not isinstance(method, FrameGradient) or trajectory.save_every != 1:
        raise ValueError(
            f"the energy balance needs a run by FrameGradient() with save_every=1, got one by {method.cli_name} "
            f"with save_every={trajectory.save_every}"
        )
    t, q, v = (np.asarray(x) for x in (trajectory.t, trajectory.q, trajectory.v))
    m = lower(as_arrays(system))
    energy = over_rows(_energy)(m, t, q, v)
    shared = (m, as_arrays(method), np.asarray(trajectory.h, float))
    work = over_rows(_work)(shared, t[:-1], q[:-1], q[1:])
    change = np.diff(energy)
    size = max(float(np.max(np.abs(energy))), np.finfo(float).tiny)
    return EnergyBalance(change, work, float(np.max(np.abs(change - work)) / size))
