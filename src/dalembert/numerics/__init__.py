"""Small dense linear algebra, Newton's method and quadrature, written for sizes below about ten."""

from dalembert.numerics.compiled import compiled, is_traced
from dalembert.numerics.linear import (
    inverse_square_root,
    matmul,
    matvec,
    multiplier_bound,
    null_space,
    solve,
    solve_spd,
)
from dalembert.numerics.newton import NewtonInfo, newton

__all__ = [
    "NewtonInfo",
    "compiled",
    "inverse_square_root",
    "is_traced",
    "matmul",
    "matvec",
    "multiplier_bound",
    "newton",
    "null_space",
    "solve",
    "solve_spd",
]
