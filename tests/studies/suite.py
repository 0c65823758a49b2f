"""What the studies share: the methods by the names of the tables, and their runs."""

from typing import Any

import numpy as np
from studies.expected import PROBLEMS
from studies.fibred import FibredVerlet, TripleJump

import dalembert as da
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.kernels import over_rows

METHODS: dict[str, da.Method] = {
    "DLA0.5": da.DLA(0.5),
    "DLA0.4": da.DLA(0.4),
    "DLA01": da.DLA01(),
    "LF": da.LeapFrog("momentum"),
    "DD": da.DiscreteGradient(),
    "DDS": da.DiscreteGradient("average"),
    "FIB-SV": FibredVerlet(),
    "FIB-EP": da.FrameGradient(),
    "FIB-SV-Y4": TripleJump(FibredVerlet(), 4),
    "FIB-SV-S4": da.Composition(FibredVerlet(), 4),
    "FIB-EP-Y4": TripleJump(da.FrameGradient(), 4),
    "FIB-EP-S4": da.Composition(da.FrameGradient(), 4),
    "DDS-S4": da.Composition(da.DiscreteGradient("average"), 4),
    # The library refuses these two compositions, because of what is measured here.
    "DLA0.5-S4": da.Composition(da.DLA(0.5), 4, force=True),
    "LF-S4": da.Composition(da.LeapFrog("momentum"), 4, force=True),
    "DLA01-S4": da.Composition(da.DLA01(), 4),
}


def pendulum_runs(method: da.Method, names=PROBLEMS, steps=300_000, **given: Any) -> list[da.Trajectory]:
    """The runs of the pendulum CVT from the named data (osc or rot, and eps), one after the other."""
    kinds, eps = zip(*(name.split("-", 1) for name in names), strict=True)
    start = {"osc": "oscillating", "rot": "rotating"}
    q0, v0 = zip(*(da.zoo.PendulumCVT().start(start[kind]) for kind in kinds), strict=True)
    system = da.zoo.PendulumCVT(eps=np.array([float(e) for e in eps]))
    runs = da.ensemble(system, method, np.array(q0), np.array(v0), h=0.1, steps=steps, **given)
    return [runs.member(i) for i in range(len(names))]


def energies(run: da.Trajectory, full: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Passenger and driver energy along a run; `full` ones are those of the method's own velocity."""
    coupled = CoupledSystem.of(run.system, run.q[0])
    v = run.v_full if full else run.v
    return tuple(
        over_rows(part)(coupled, run.q, v)
        for part in (CoupledSystem.passenger_energy, CoupledSystem.driver_energy)
    )


def keeps_full(name: str) -> bool:
    """Whether the energy of the tables is that of the method's own velocity: for discrete gradients on TQ."""
    return name.startswith("DD")
