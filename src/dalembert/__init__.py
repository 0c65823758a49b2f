"""Geometric integrators for nonholonomic mechanics: things that roll, skate and slide.

Write a Lagrangian and velocity constraints as plain JAX functions; `simulate` keeps what mechanics keeps.
Importing the package turns on double precision in JAX (set JAX_ENABLE_X64=0 to keep single precision).
"""

import os

import jax

if os.environ.get("JAX_ENABLE_X64", "1").lower() not in ("0", "false", "off", ""):
    jax.config.update("jax_enable_x64", True)

from dalembert import diagnostics, discrete, reduction, zoo
from dalembert.diagnostics import CoupledSystem, audit, edla_well_posedness, nonholonomy
from dalembert.methods import (
    DLA,
    DLA01,
    EDLA,
    GNI,
    Composition,
    DiscreteGradient,
    FrameGradient,
    LeapFrog,
    LieGNI,
    Method,
    Reference,
    VariationalDLA,
)
from dalembert.model import Chart, GroupSystem, RheonomicSystem, Symmetry, System, groups, scene, system
from dalembert.reduction import classify, reduce
from dalembert.results import load
from dalembert.simulate import MotionWarning, SimulationError, Status, Trajectory, ensemble, simulate

__version__ = "0.6.0"

__all__ = [
    "DLA",
    "DLA01",
    "EDLA",
    "GNI",
    "Chart",
    "Composition",
    "CoupledSystem",
    "DiscreteGradient",
    "FrameGradient",
    "GroupSystem",
    "LeapFrog",
    "LieGNI",
    "Method",
    "MotionWarning",
    "Reference",
    "RheonomicSystem",
    "SimulationError",
    "Status",
    "Symmetry",
    "System",
    "Trajectory",
    "VariationalDLA",
    "audit",
    "classify",
    "diagnostics",
    "discrete",
    "edla_well_posedness",
    "ensemble",
    "groups",
    "load",
    "nonholonomy",
    "reduce",
    "reduction",
    "scene",
    "simulate",
    "system",
    "zoo",
]
