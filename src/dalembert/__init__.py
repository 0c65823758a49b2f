"""Geometric integrators for nonholonomic mechanics: things that roll, skate and slide.

Write a Lagrangian and velocity constraints as plain JAX functions; `simulate` preserves what mechanics preserves.
Importing the package turns on double precision in JAX (set JAX_ENABLE_X64=0 to keep single precision).
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import jax

if os.environ.get("JAX_ENABLE_X64", "1").lower() not in ("0", "false", "off", ""):
    jax.config.update("jax_enable_x64", True)

from dalembert import discrete, groups
from dalembert.methods import (
    DLA,
    DLA01,
    EDLA,
    GNI,
    ChetaevGradient,
    Composition,
    DiscreteGradient,
    FrameCollocation,
    FrameGradient,
    FrameIntegrals,
    LeapFrog,
    LieGNI,
    Method,
    Reference,
    Taylor,
    VariationalDLA,
)
from dalembert.model import (
    Chart,
    GroupSystem,
    RheonomicSystem,
    Symmetry,
    System,
    Trait,
    independent_rows,
    scene,
    system,
)
from dalembert.results import explore, load, open_sweep, sweep
from dalembert.simulation import (
    BoundaryError,
    BoundarySolution,
    ConstraintWarning,
    MotionWarning,
    SimulationError,
    Status,
    Trajectory,
    ensemble,
    simulate,
    solve_boundary,
)

if TYPE_CHECKING:
    from dalembert import bodies, diagnostics, reduction, zoo
    from dalembert.diagnostics import (
        CoupledSystem,
        acceleration,
        audit,
        backward_error,
        edla_well_posedness,
        linearise,
        modified_field,
        nonholonomy,
        start,
    )
    from dalembert.reduction import classify, horizontal_symmetries, reduce
    from dalembert.sweeps.errors import SweepError
    from dalembert.view.animation import animate
    from dalembert.view.comparison import compare
    from dalembert.view.maps import sweep_map
    from dalembert.view.precision import work_precision
    from dalembert.view.sections import section_plot

# What takes long to import, and is not needed to run a system of one's own, is imported on first use.
_PARTS = {"bodies", "diagnostics", "reduction", "zoo"}
_LATER = {
    **dict.fromkeys(
        (
            "CoupledSystem",
            "acceleration",
            "audit",
            "backward_error",
            "edla_well_posedness",
            "linearise",
            "modified_field",
            "nonholonomy",
            "start",
        ),
        "dalembert.diagnostics",
    ),
    **dict.fromkeys(("classify", "horizontal_symmetries", "reduce"), "dalembert.reduction"),
    "SweepError": "dalembert.sweeps.errors",
    "animate": "dalembert.view.animation",
    "compare": "dalembert.view.comparison",
    "sweep_map": "dalembert.view.maps",
    "section_plot": "dalembert.view.sections",
    "work_precision": "dalembert.view.precision",
}


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"dalembert.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'dalembert' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


__version__ = "0.10.0"

__all__ = [
    "DLA",
    "DLA01",
    "EDLA",
    "GNI",
    "BoundaryError",
    "BoundarySolution",
    "Chart",
    "ChetaevGradient",
    "Composition",
    "ConstraintWarning",
    "CoupledSystem",
    "DiscreteGradient",
    "FrameCollocation",
    "FrameGradient",
    "FrameIntegrals",
    "GroupSystem",
    "LeapFrog",
    "LieGNI",
    "Method",
    "MotionWarning",
    "Reference",
    "RheonomicSystem",
    "SimulationError",
    "Status",
    "SweepError",
    "Symmetry",
    "System",
    "Taylor",
    "Trait",
    "Trajectory",
    "VariationalDLA",
    "acceleration",
    "animate",
    "audit",
    "backward_error",
    "bodies",
    "classify",
    "compare",
    "diagnostics",
    "discrete",
    "edla_well_posedness",
    "ensemble",
    "explore",
    "groups",
    "horizontal_symmetries",
    "independent_rows",
    "linearise",
    "load",
    "modified_field",
    "nonholonomy",
    "open_sweep",
    "reduce",
    "reduction",
    "scene",
    "section_plot",
    "simulate",
    "solve_boundary",
    "start",
    "sweep",
    "sweep_map",
    "system",
    "work_precision",
    "zoo",
]
