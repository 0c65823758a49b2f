"""Reduction by symmetry: from a system and a group to a smaller system, and back."""

from dalembert.reduction.classification import Classification, Spaces, classify, horizontal, spaces
from dalembert.reduction.discrete import ReducedConstraint, ReducedLagrangian
from dalembert.reduction.invariance import Invariance, invariance
from dalembert.reduction.reduce import reduce
from dalembert.reduction.reduced import ReducedRheonomicSystem, ReducedSystem

__all__ = [
    "Classification",
    "Invariance",
    "ReducedConstraint",
    "ReducedLagrangian",
    "ReducedRheonomicSystem",
    "ReducedSystem",
    "Spaces",
    "classify",
    "horizontal",
    "invariance",
    "reduce",
    "spaces",
]
