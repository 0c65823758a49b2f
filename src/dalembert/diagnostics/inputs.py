"""Checks of the runs and rows of states that are given to a measurement, before anything is computed."""

from typing import Any

import numpy as np

from dalembert.methods import Method
from dalembert.model import System
from dalembert.simulation import Trajectory


def one_run(trajectory: Any, what: str, rows: int = 1) -> tuple[System, Method]:
    """The system and the method of one run with at least `rows` rows; raises ValueError for anything else."""
    if not isinstance(trajectory, Trajectory):
        raise ValueError(f"{what} is measured along a run, such as simulate(...) returns; got {trajectory!r}")
    if np.ndim(trajectory.q) != 2:
        raise ValueError(f"{what} is measured along one run, but this is an ensemble; take sol.member(i)")
    if trajectory.system is None or trajectory.method is None:
        raise ValueError(
            f"{what} needs the system and the method, but this trajectory was loaded without them; give them to load"
        )
    if len(trajectory.t) < rows:
        some = "1 row" if rows == 1 else f"{rows} rows"
        raise ValueError(f"{what} needs a run of {some} or more, but this one has {len(trajectory.t)}")
    if not all(np.all(np.isfinite(np.asarray(x))) for x in (trajectory.t, trajectory.q, trajectory.v_full)):
        raise ValueError(f"{what} needs a run whose rows are finite, but this one has rows that are not")
    return trajectory.system, trajectory.method


def as_rows(system: System, q: Any, u: Any) -> tuple[np.ndarray, np.ndarray]:
    """The states as two arrays with one row per state; raises ValueError for anything else."""
    q, u = np.asarray(q, float), np.asarray(u, float)
    n, size = system.dimension, system.velocity_dimension
    if q.ndim != 2 or u.ndim != 2 or q.shape[1] != n or u.shape[1] != size or len(q) != len(u) or not len(q):
        raise ValueError(
            f"states of {system.label} must be one row per state, q of shape (K, {n}) and u of shape (K, {size}) "
            f"with K of at least 1; got {q.shape} and {u.shape}"
        )
    return q, u
