"""Reduction by symmetry: from a system and a group to a smaller system, and back."""

from dalembert.reduction.allowed import Change, HorizontalSymmetries, Sections, horizontal_symmetries
from dalembert.reduction.classification import Classification, Spaces, classify, horizontal, spaces
from dalembert.reduction.discrete import ReducedConstraint, ReducedLagrangian
from dalembert.reduction.measured import Invariance, invariance
from dalembert.reduction.reduced import ReducedRheonomicSystem, ReducedSystem
from dalembert.reduction.reducing import reduce
from dalembert.reduction.rigid import Rigidity, rigidity

__all__ = [
    "Change",
    "Classification",
    "HorizontalSymmetries",
    "Invariance",
    "ReducedConstraint",
    "ReducedLagrangian",
    "ReducedRheonomicSystem",
    "ReducedSystem",
    "Rigidity",
    "Sections",
    "Spaces",
    "classify",
    "horizontal",
    "horizontal_symmetries",
    "invariance",
    "reduce",
    "rigidity",
    "spaces",
]
