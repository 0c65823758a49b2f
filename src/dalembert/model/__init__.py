"""What a mechanical system is: coordinates, a Lagrangian, constraints; and the geometry these define."""

from dalembert.model import groups, scene
from dalembert.model.build import system
from dalembert.model.checks import check_start, check_turns, real_numbers, refuse_masked, violates
from dalembert.model.description import check_system, shape_of
from dalembert.model.geometry import (
    acceleration,
    along,
    annihilator,
    difference,
    displaced,
    drift_at,
    frame_at,
    moving_energy,
    multipliers,
    nearest_frame,
    nearest_velocity,
    oblique_projection,
    offsets_at,
    orthonormal_frame,
    potential_gradient,
    project,
    rate,
    reaction,
    total_energy,
)
from dalembert.model.group_system import Chart, GroupSystem
from dalembert.model.groups import Group
from dalembert.model.naming import from_module, kind_from_module, raised, wrong
from dalembert.model.rheonomic import Moment, RheonomicSystem, later
from dalembert.model.spacetime import SpaceTime
from dalembert.model.survey import TOLERANCE, Survey, is_constant_metric, is_mechanical, survey
from dalembert.model.symmetry import Symmetry
from dalembert.model.system import System, as_arrays
from dalembert.model.traits import Trait, traits_of

__all__ = [
    "TOLERANCE",
    "Chart",
    "Group",
    "GroupSystem",
    "Moment",
    "RheonomicSystem",
    "SpaceTime",
    "Survey",
    "Symmetry",
    "System",
    "Trait",
    "acceleration",
    "along",
    "annihilator",
    "as_arrays",
    "check_start",
    "check_system",
    "check_turns",
    "difference",
    "displaced",
    "drift_at",
    "frame_at",
    "from_module",
    "groups",
    "is_constant_metric",
    "is_mechanical",
    "kind_from_module",
    "later",
    "moving_energy",
    "multipliers",
    "nearest_frame",
    "nearest_velocity",
    "oblique_projection",
    "offsets_at",
    "orthonormal_frame",
    "potential_gradient",
    "project",
    "raised",
    "rate",
    "reaction",
    "real_numbers",
    "refuse_masked",
    "scene",
    "shape_of",
    "survey",
    "system",
    "total_energy",
    "traits_of",
    "violates",
    "wrong",
]
