"""Lie groups, with elements as rows of numbers: exp and the Cayley map, their derivatives, and Ad."""

from dalembert.groups.base import Group, coadjoint
from dalembert.groups.checking import GroupCheck, check_group
from dalembert.groups.flat import H3, Product, Rn, Torus
from dalembert.groups.motions import SE2, SE3
from dalembert.groups.rotations import S3, SO3

__all__ = [
    "H3",
    "S3",
    "SE2",
    "SE3",
    "SO3",
    "Group",
    "GroupCheck",
    "Product",
    "Rn",
    "Torus",
    "check_group",
    "coadjoint",
]
