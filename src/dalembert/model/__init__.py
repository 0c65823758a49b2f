"""What a mechanical system is: coordinates, a Lagrangian, constraints; and the geometry these define."""

from dalembert.model import groups
from dalembert.model.checks import check_start, check_system, shape_of, violates
from dalembert.model.geometry import (
    acceleration,
    annihilator,
    difference,
    displaced,
    frame_at,
    multipliers,
    nearest_frame,
    oblique_projection,
    orthonormal_frame,
    potential_gradient,
    project,
    rate,
    reaction,
    total_energy,
)
from dalembert.model.group_system import Chart, GroupSystem
from dalembert.model.groups import Group
from dalembert.model.survey import TOLERANCE, Survey, is_constant_metric, is_mechanical, survey
from dalembert.model.system import System, as_arrays, system

__all__ = [
    "TOLERANCE",
    "Chart",
    "Group",
    "GroupSystem",
    "Survey",
    "System",
    "acceleration",
    "annihilator",
    "as_arrays",
    "check_start",
    "check_system",
    "difference",
    "displaced",
    "frame_at",
    "groups",
    "is_constant_metric",
    "is_mechanical",
    "multipliers",
    "nearest_frame",
    "oblique_projection",
    "orthonormal_frame",
    "potential_gradient",
    "project",
    "rate",
    "reaction",
    "shape_of",
    "survey",
    "system",
    "total_energy",
    "violates",
]
