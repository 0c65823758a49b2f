"""Small dense linear algebra, Newton's method and extrapolation, written for sizes below about ten."""

from dalembert.numerics.compiling import (
    compiled,
    is_being_traced,
    is_syntactically_constant,
    is_traced,
    jit_fast_compile,
)
from dalembert.numerics.deprecation import Renamed, renamed_names
from dalembert.numerics.extrapolation import extrapolated_step
from dalembert.numerics.fingerprints import (
    Recent,
    Recipe,
    captures_traced,
    copied,
    current,
    fingerprint,
    is_installed,
    kind_of,
    one_look,
    watch,
)
from dalembert.numerics.lasting import lasting_name
from dalembert.numerics.linear import (
    balancing_units,
    diagonal,
    inverse_square_root,
    matmul,
    matvec,
    multiplier_bound,
    negative_eigenvalues,
    null_space,
    pivot_floor,
    skew_solution,
    solve,
    solve_spd,
)
from dalembert.numerics.newton_solver import NewtonInfo, newton
from dalembert.numerics.precision import (
    exact_numbers,
    has_more_digits,
    known_exactly,
    tracing_with,
    unit_rounding,
)
from dalembert.numerics.quadrature import PathRule
from dalembert.numerics.rotations import (
    cosine,
    cotangent_ratio,
    excess_ratio,
    sine_ratio,
    versine_ratio,
)
from dalembert.numerics.shapes import Numbers, Vector, Vectors
from dalembert.numerics.tracing import repeated, tracing_once

__all__ = [
    "NewtonInfo",
    "Numbers",
    "PathRule",
    "Recent",
    "Recipe",
    "Renamed",
    "Vector",
    "Vectors",
    "balancing_units",
    "captures_traced",
    "compiled",
    "copied",
    "cosine",
    "cotangent_ratio",
    "current",
    "diagonal",
    "exact_numbers",
    "excess_ratio",
    "extrapolated_step",
    "fingerprint",
    "has_more_digits",
    "inverse_square_root",
    "is_being_traced",
    "is_installed",
    "is_syntactically_constant",
    "is_traced",
    "jit_fast_compile",
    "kind_of",
    "known_exactly",
    "lasting_name",
    "matmul",
    "matvec",
    "multiplier_bound",
    "negative_eigenvalues",
    "newton",
    "null_space",
    "one_look",
    "pivot_floor",
    "renamed_names",
    "repeated",
    "sine_ratio",
    "skew_solution",
    "solve",
    "solve_spd",
    "tracing_once",
    "tracing_with",
    "unit_rounding",
    "versine_ratio",
    "watch",
]
