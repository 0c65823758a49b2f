"""Mechanical systems (coordinates, a Lagrangian and constraints) and the geometry that they define."""

import warnings
from typing import Any

from dalembert.groups import Group
from dalembert.model import scene
from dalembert.model.build import system
from dalembert.model.checks import (
    MOST_TURNS,
    SINGULAR,
    check_start,
    check_turns,
    off_surface,
    real_numbers,
    refuse_masked,
    violates,
)
from dalembert.model.description import check_system, shape_of
from dalembert.model.geometry import (
    acceleration,
    along_allowed,
    along_surface,
    frame_rotation,
    kinetic_size,
    moving_energy,
    multipliers,
    nearest_allowed,
    nearest_configuration,
    nearest_frame,
    nearest_start,
    nearest_velocity,
    oblique_projection,
    onto_surface,
    orthonormal,
    orthonormal_frame,
    polar_factor,
    power,
    power_and_change,
    project,
    reaction,
    surplus,
    tangent_directions,
    total_energy,
)
from dalembert.model.group_system import Chart, GroupSystem
from dalembert.model.naming import from_module, kind_from_module, raised, wrong
from dalembert.model.redundancy import (
    DEPENDENT,
    independent_rows,
    least_norm,
    left_out,
    rank_drops_ahead,
    redundancy_in_words,
    still_follow,
    with_kept,
)
from dalembert.model.rheonomic import RheonomicSystem, SpaceTime
from dalembert.model.sampling import (
    TOLERANCE,
    Sample,
    contradicts_at,
    faults_around,
    is_linear_momentum,
    is_symmetric,
    observed,
    places_around,
    same_mass,
    sample,
    samples,
    units,
)
from dalembert.model.symmetry import Symmetry
from dalembert.model.systems import Kept, Mechanics, System, as_arrays, lower
from dalembert.model.traits import Trait

__all__ = [
    "DEPENDENT",
    "MOST_TURNS",
    "SINGULAR",
    "TOLERANCE",
    "Chart",
    "Group",
    "GroupSystem",
    "Kept",
    "Mechanics",
    "RheonomicSystem",
    "Sample",
    "SpaceTime",
    "Symmetry",
    "System",
    "Trait",
    "acceleration",
    "along_allowed",
    "along_surface",
    "as_arrays",
    "check_start",
    "check_system",
    "check_turns",
    "contradicts_at",
    "faults_around",
    "frame_rotation",
    "from_module",
    "independent_rows",
    "is_linear_momentum",
    "is_symmetric",
    "kind_from_module",
    "kinetic_size",
    "least_norm",
    "left_out",
    "lower",
    "moving_energy",
    "multipliers",
    "nearest_allowed",
    "nearest_configuration",
    "nearest_frame",
    "nearest_start",
    "nearest_velocity",
    "oblique_projection",
    "observed",
    "off_surface",
    "onto_surface",
    "orthonormal",
    "orthonormal_frame",
    "places_around",
    "polar_factor",
    "power",
    "power_and_change",
    "project",
    "raised",
    "rank_drops_ahead",
    "reaction",
    "real_numbers",
    "redundancy_in_words",
    "refuse_masked",
    "same_mass",
    "sample",
    "samples",
    "scene",
    "shape_of",
    "still_follow",
    "surplus",
    "system",
    "tangent_directions",
    "total_energy",
    "units",
    "violates",
    "with_kept",
    "wrong",
]

# Old names, kept for one more version. Each maps to its function and to what to write instead.
_OLD: dict[str, tuple[Any, str]] = {
    "annihilator": (lambda system, q: lower(system).rows(q), "lower(system).rows(q)"),
    "difference": (
        lambda system, q0, q1: lower(system).space.difference(q0, q1),
        "lower(system).space.difference",
    ),
    "displaced": (lambda system, q, x: lower(system).space.displaced(q, x), "lower(system).space.displaced"),
    "drift_at": (lambda system, q: lower(system).drift(q), "lower(system).drift(q)"),
    "frame_at": (lambda system, q: lower(system).frame(q), "lower(system).frame(q)"),
    "offsets_at": (lambda system, q: lower(system).offsets(q), "lower(system).offsets(q)"),
    "potential_gradient": (
        lambda system, q: lower(system).potential_gradient(q),
        "lower(system).potential_gradient(q)",
    ),
    "rate": (lambda system, q, v: lower(system).space.velocity(q, v), "lower(system).space.velocity"),
}


def __getattr__(name: str) -> Any:
    if name not in _OLD:
        raise AttributeError(f"module 'dalembert.model' has no attribute {name!r}")
    function, new = _OLD[name]
    warnings.warn(f"the next version removes {name}; write {new} instead", DeprecationWarning, 2)
    return function
