"""What a mechanical system is: coordinates, a Lagrangian, constraints; and the geometry these define."""

from dalembert.groups import Group
from dalembert.model import scene
from dalembert.model.build import system
from dalembert.model.checks import check_start, check_turns, real_numbers, refuse_masked, violates
from dalembert.model.description import check_system, shape_of
from dalembert.model.geometry import (
    acceleration,
    moving_energy,
    multipliers,
    nearest_frame,
    nearest_velocity,
    oblique_projection,
    orthonormal_frame,
    project,
    reaction,
    total_energy,
)
from dalembert.model.group_system import Chart, GroupSystem
from dalembert.model.naming import from_module, kind_from_module, raised, wrong
from dalembert.model.rheonomic import RheonomicSystem, SpaceTime
from dalembert.model.sampling import TOLERANCE, Survey, is_constant_metric, is_mechanical, observed, survey
from dalembert.model.symmetry import Symmetry
from dalembert.model.systems import Mechanics, System, as_arrays, lower
from dalembert.model.traits import Trait

__all__ = [
    "TOLERANCE",
    "Chart",
    "Group",
    "GroupSystem",
    "Mechanics",
    "RheonomicSystem",
    "SpaceTime",
    "Survey",
    "Symmetry",
    "System",
    "Trait",
    "acceleration",
    "as_arrays",
    "check_start",
    "check_system",
    "check_turns",
    "from_module",
    "is_constant_metric",
    "is_mechanical",
    "kind_from_module",
    "lower",
    "moving_energy",
    "multipliers",
    "nearest_frame",
    "nearest_velocity",
    "oblique_projection",
    "observed",
    "orthonormal_frame",
    "project",
    "raised",
    "reaction",
    "real_numbers",
    "refuse_masked",
    "scene",
    "shape_of",
    "survey",
    "system",
    "total_energy",
    "violates",
    "wrong",
]
