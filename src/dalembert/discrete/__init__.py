"""What methods share that is discrete: gradients, Lagrangians, constraints, momenta."""

from dalembert.discrete.constraints import (
    DiscreteConstraint,
    OwnConstraint,
    PointConstraint,
    as_constraint,
)
from dalembert.discrete.gradients import GRADIENTS, average, gonzalez, itoh_abe
from dalembert.discrete.lagrangians import (
    AlphaRule,
    DiscreteLagrangian,
    Gauss,
    Midpoint,
    OwnLagrangian,
    Trapezoidal,
    as_lagrangian,
    average_momentum,
    d1,
    d2,
    d12,
    legendre_minus,
    legendre_plus,
    slots,
)
from dalembert.discrete.momenta import (
    exterior,
    momentum_map,
    momentum_residual,
    nonholonomic_momentum,
    projectors,
    symplectic_form,
)

__all__ = [
    "GRADIENTS",
    "AlphaRule",
    "DiscreteConstraint",
    "DiscreteLagrangian",
    "Gauss",
    "Midpoint",
    "OwnConstraint",
    "OwnLagrangian",
    "PointConstraint",
    "Trapezoidal",
    "as_constraint",
    "as_lagrangian",
    "average",
    "average_momentum",
    "d1",
    "d2",
    "d12",
    "exterior",
    "gonzalez",
    "itoh_abe",
    "legendre_minus",
    "legendre_plus",
    "momentum_map",
    "momentum_residual",
    "nonholonomic_momentum",
    "projectors",
    "slots",
    "symplectic_form",
]
