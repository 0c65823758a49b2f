"""Where the energy goes: the balance of a run by the frame discrete gradient."""

from typing import Any, NamedTuple

import numpy as np
from jax import Array

from dalembert.diagnostics.inputs import one_run
from dalembert.kernels import over_rows
from dalembert.methods import FrameCollocation, FrameGradient
from dalembert.model import Mechanics, as_arrays, lower, moving_energy
from dalembert.simulation import Trajectory


class EnergyBalance(NamedTuple):
    """The energy balance of every step of a run."""

    change: np.ndarray
    """(K - 1,) the change of the energy, or of the moving energy for affine constraints."""
    work: np.ndarray
    """(K - 1,) the work of the forces, of the drift of the constraint, and of the explicit dependence on time."""
    defect: float
    """The largest difference between `change` and `work`, relative to the largest energy."""


def _work(shared: Any, t: Array, q0: Array, v0: Array, q1: Array) -> Array:
    m, method, h = shared
    return method.work_between(m, t, (q0, v0), q1, h)


def _energy(m: Mechanics, t: Array, q: Array, v: Array) -> Array:
    return moving_energy(m.at(t), q, v)


def energy_balance(trajectory: Trajectory) -> EnergyBalance:
    """The energy balance of a run by FrameGradient or FrameCollocation with save_every=1, which closes to rounding in
    every step.

    The saved positions are rounded, so the defect is at least about eps |q|/(h |v|).
    """
    system, method = one_run(trajectory, "the energy balance", rows=2)
    if not isinstance(method, FrameGradient | FrameCollocation) or trajectory.save_every != 1:
        raise ValueError(
            "the energy balance needs a run by FrameGradient() or FrameCollocation() with save_every=1, got one by "
            f"{method.cli_name} with save_every={trajectory.save_every}"
        )
    t, q, v = (np.asarray(x) for x in (trajectory.t, trajectory.q, trajectory.v))
    m = lower(as_arrays(system))
    energy = over_rows(_energy)(m, t, q, v)
    shared = (m, as_arrays(method), np.asarray(trajectory.h, float))
    work = over_rows(_work)(shared, t[:-1], q[:-1], v[:-1], q[1:])
    change = np.diff(energy)
    size = max(float(np.max(np.abs(energy))), np.finfo(float).tiny)
    return EnergyBalance(change, work, float(np.max(np.abs(change - work)) / size))
