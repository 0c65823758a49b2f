"""Unrolled linear algebra for matrices of a handful of rows.

At these sizes a LAPACK call costs more than a whole time step, so elimination is written out in
scalars and left to the compiler. Every function here is differentiable and works under vmap.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.numerics.jax_internals import Primitive, ShapedArray, ad, batching, mlir
from dalembert.numerics.precision import has_more_digits, unit_rounding

# These functions use lax rather than jax.numpy: they are traced hundreds of times, and each jax.numpy call takes ten
# times as long to trace. They use sums of products, because a dot call costs more at this size.


def matvec(a: Array, x: Array) -> Array:
    """The product a x."""
    return lax.reduce_sum(lax.mul(a, lax.broadcast_in_dim(x, a.shape, (1,))), axes=(1,))


def matmul(a: Array, b: Array) -> Array:
    """The product a b."""
    if max(*a.shape, *b.shape) > UNROLLED:
        return lax.dot_general(a, b, (((1,), (0,)), ((), ())))
    shape = (a.shape[0], a.shape[1], b.shape[1])
    left, right = lax.broadcast_in_dim(a, shape, (0, 1)), lax.broadcast_in_dim(b, shape, (1, 2))
    return lax.reduce_sum(lax.mul(left, right), axes=(1,))


def diagonal(a: Array) -> Array:
    """The diagonal of a square matrix."""
    n = a.shape[0]
    return lax.slice(lax.reshape(a, (n * n,)), (0,), (n * n,), (n + 1,))


def _factor(a: Array) -> tuple[list, list, list]:
    """a = L U without pivoting, as nested lists of scalars (L has a unit diagonal), and the inverse pivots."""
    n = a.shape[0]
    u = [list(row) for row in a]
    low = [[jnp.zeros((), a.dtype)] * n for _ in range(n)]
    inverses = []
    for k in range(n):
        inverses.append(1 / u[k][k])
        for i in range(k + 1, n):
            low[i][k] = u[i][k] * inverses[k]
            for j in range(k + 1, n):
                u[i][j] = u[i][j] - low[i][k] * u[k][j]
    return low, u, inverses


def _substitute(low: list, u: list, inverses: list, b: Array) -> Array:
    n = b.shape[0]
    y = list(b)
    for i in range(1, n):
        for k in range(i):
            y[i] = y[i] - low[i][k] * y[k]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            y[i] = y[i] - u[i][j] * y[j]
        y[i] = y[i] * inverses[i]
    return jnp.stack(y)


def multiplier_bound(n: int) -> float:
    """The largest allowed multiplier of elimination without pivoting: the (n-1)-th root of 1000.

    Entries then grow by a factor of about a thousand at most, so no more than three digits are lost before we pivot.
    """
    return 1e3 ** (1 / (n - 1))


def pivot_floor(dtype: Any) -> float:
    """The relative size, to the diagonal entry that it came from, below which a pivot has lost all its digits."""
    return 64 * float(jnp.finfo(dtype).eps)


def _factors_hold(low: list) -> Array:
    """Whether elimination went well without pivoting: no multiplier is NaN or beyond the bound."""
    multipliers = [x for i, row in enumerate(low) for x in row[:i]]
    bound = multiplier_bound(len(low))
    return functools.reduce(lax.bitwise_and, [jnp.abs(x) <= bound for x in multipliers])


def _pivoted(a: Array, b: Array) -> Array:
    """Gauss-Jordan elimination with partial pivoting; a singular matrix gives NaN or infinity."""
    n = a.shape[0]
    rows = np.arange(n)
    left, right = a, b.reshape(n, -1)  # kept separate, so that the result stays linear in b
    for k in range(n):
        best = jnp.argmax(jnp.where(rows >= k, jnp.abs(left[:, k]), -1.0))
        exchanged = jnp.where(rows == k, best, jnp.where(rows == best, k, rows))
        left, right = left[exchanged], right[exchanged]
        factors, pivot, here = left[:, k : k + 1], left[k, k], (rows == k)[:, None]
        left, right = (jnp.where(here, x / pivot, x - factors * (x[k] / pivot)) for x in (left, right))
    return right.reshape(b.shape)


def _solve(a: Array, b: Array) -> Array:
    if a.shape[0] == 0:
        return b
    if a.shape[0] == 1:
        return b / a[0, 0]
    low, u, inverses = _factor(a)
    # The predicate depends only on the matrix, so the solve stays linear (transposable) in b, and batched right
    # sides do not double it.
    return lax.cond(_factors_hold(low), lambda: _substitute(low, u, inverses, b), lambda: _pivoted(a, b))


def _solve_spd(a: Array, b: Array) -> Array:
    if a.shape[0] == 0:
        return b
    low, u, inverses = _factor(a)
    floor = pivot_floor(a.dtype)
    for i in range(a.shape[0]):
        inverses[i] = jnp.where(u[i][i] > floor * jnp.abs(a[i, i]), inverses[i], jnp.nan)
    return _substitute(low, u, inverses, b)


# The solve is one primitive, so that tracing it, or its derivative, is a single operation. Its derivative is
# x' = a^-1 (b' - a' x) instead of the derivative of the elimination. Right sides of a batch share one elimination.
solve_p = Primitive("small_solve")


def _unrolled(a: Array, b: Array, *, positive: bool) -> Array:
    """The value of the primitive, in elementary operations if the matrix is small, else by LAPACK."""
    if a.shape[0] > UNROLLED:
        return _large(a, b, positive)
    return _solve_spd(a, b) if positive else _solve(a, b)


UNROLLED = 8
"""XLA takes longer to compile larger matrices in elementary operations than LAPACK takes to solve."""


def _large(a: Array, b: Array, positive: bool) -> Array:
    right = b.reshape(b.shape[0], -1)
    if positive:
        low = lax.linalg.cholesky(a, symmetrize_input=False)
        pivots = diagonal(low) ** 2
        sound = jnp.all(pivots > pivot_floor(a.dtype) * jnp.abs(diagonal(a)))
        y = lax.linalg.triangular_solve(low, right, left_side=True, lower=True)
        x = lax.linalg.triangular_solve(low, y, left_side=True, lower=True, transpose_a=True)
        return jnp.where(sound, x, jnp.nan).reshape(b.shape)
    factors, _, order = lax.linalg.lu(a)
    y = lax.linalg.triangular_solve(factors, right[order], left_side=True, lower=True, unit_diagonal=True)
    return lax.linalg.triangular_solve(factors, y, left_side=True).reshape(b.shape)


def _bind(a: Array, b: Array, positive: bool) -> Array:
    return solve_p.bind(a, b, positive=positive)


def _jvp(primals, tangents, *, positive: bool):
    (a, b), (a_dot, b_dot) = primals, tangents
    x = _bind(a, b, positive)
    right = None if isinstance(b_dot, ad.Zero) else b_dot
    if not isinstance(a_dot, ad.Zero):
        turned = matvec(a_dot, x) if x.ndim == 1 else matmul(a_dot, x)
        right = -turned if right is None else right - turned
    return x, ad.Zero(jax.typeof(x)) if right is None else _bind(a, right, positive)


def _transpose(cotangent, a, b, *, positive: bool):
    if isinstance(cotangent, ad.Zero):
        return None, ad.Zero(b.aval)
    return None, _bind(a.T, cotangent, positive)


def _batch(arguments, dims, *, positive: bool):
    (a, b), (a_dim, b_dim) = arguments, dims
    if a_dim is None:
        b = jnp.moveaxis(b, b_dim, -1)
        x = _bind(a, b.reshape(b.shape[0], int(np.prod(b.shape[1:]))), positive).reshape(b.shape)
        return x, x.ndim - 1
    return jax.vmap(functools.partial(_unrolled, positive=positive), dims)(a, b), 0


solve_p.def_impl(functools.partial(jax.jit, static_argnames="positive")(_unrolled))
solve_p.def_abstract_eval(lambda a, b, *, positive: ShapedArray(b.shape, b.dtype))
ad.primitive_jvps[solve_p] = _jvp
ad.primitive_transposes[solve_p] = _transpose
batching.primitive_batchers[solve_p] = _batch
mlir.register_lowering(solve_p, mlir.lower_fun(_unrolled, multiple_results=False))


def solve(a: Array, b: Array) -> Array:
    """The solution x of a x = b for a small square matrix; b is a vector or has one column per right side.

    It eliminates without pivoting, checks the multipliers, and eliminates with pivoting if the check fails.
    A singular matrix gives NaN or infinity, which the time loop reports.
    """
    return _bind(*_same(a, b), positive=False)


def solve_spd(a: Array, b: Array) -> Array:
    """The solution of a x = b for a symmetric positive definite matrix.

    Elimination needs no pivoting here. If a pivot has lost all its digits (the matrix is singular to
    rounding), the result is NaN, so that a rank drop is reported and not stepped over.
    """
    return _bind(*_same(a, b), positive=True)


def balancing_units(a: Array) -> Array:
    """Positive numbers u, one per row of a symmetric matrix, such that |a_ij| <= u_i u_j, about equal in each row.

    It is the iteration of Ruiz for |a|. It needs one round for a diagonal matrix, and for one whose rows each have one
    entry; with each further one, the logarithm of what is left is halved.
    """
    size, unit = jnp.abs(a), jnp.ones(a.shape[0], a.dtype)
    for _ in range(_ROUNDS):
        largest = jnp.max(size / (unit[:, None] * unit), axis=1)
        unit = unit * jnp.where(largest > 0, jnp.sqrt(largest), 1.0)
    largest = jnp.max(size / (unit[:, None] * unit))
    return unit * jnp.where(largest > 0, jnp.sqrt(largest), 1.0)


_ROUNDS = 5


def negative_eigenvalues(a: Array) -> Array:
    """The number of negative eigenvalues of a symmetric nonsingular matrix, as a float.

    By Sylvester's law it is the number of negative pivots of C^T a C for any regular C. A fixed C without symmetries
    makes it unlikely that a pivot vanishes, as that of [[0, 1], [1, 0]] does. A small pivot does no harm: its sign is
    that of the next one reversed.
    """
    n = a.shape[0]
    if n > 1:
        mixed = jnp.asarray(np.cos(1 + 0.7 * np.arange(n * n)).reshape(n, n) + 2 * np.eye(n), a.dtype)
        a = matmul(mixed.T, matmul(a, mixed))
    found = jnp.zeros((), a.dtype)
    for k in range(n):
        found = found + jnp.where(a[k, k] < 0, 1.0, 0.0).astype(a.dtype)
        a = a - a[:, k : k + 1] * (a[k : k + 1, :] / a[k, k])
    return found


def _same(a: Array, b: Array) -> tuple[Array, Array]:
    dtype = jnp.promote_types(a.dtype, b.dtype)
    return lax.convert_element_type(a, dtype), lax.convert_element_type(b, dtype)


def null_space(a: Array) -> Array:
    """A basis, shape (n, n-k), of the kernel of a full-rank (k, n) matrix, by elimination with complete pivoting.

    The choice of pivots, and hence the basis, may jump from one matrix to the next; the space that it spans does
    not. The function uses only masks (no sort, gather or scatter), so that it can be part of a kernel.
    """
    k, n = a.shape
    if k > 8:
        return _null_space_in_a_loop(a)
    columns = jnp.arange(n)
    row_free = jnp.ones(k, bool)
    column_free = jnp.ones(n, bool)
    pivot_columns, pivot_rows = [], []
    for _ in range(k):
        size = jnp.where(row_free[:, None] & column_free[None, :], jnp.abs(a), -1.0)
        best = jnp.argmax(size)
        p = (jnp.arange(k) == best // n).astype(a.dtype)
        c = (columns == best % n).astype(a.dtype)
        row = matvec(a.T, p)
        row = row / jnp.sum(row * c)
        others = matvec(a, c) * (1 - p)
        a = jnp.where(p[:, None] > 0, row[None, :], a - others[:, None] * row[None, :])
        row_free &= p == 0
        column_free &= c == 0
        pivot_rows.append(p)
        pivot_columns.append(c)
    position = jnp.cumsum(column_free.astype(jnp.int32)) - 1
    select = (position[None, :] == jnp.arange(n - k)[:, None]) & column_free[None, :]
    basis = select.astype(a.dtype).T
    for p, c in zip(pivot_rows, pivot_columns, strict=True):
        basis = basis - c[:, None] * matvec(basis.T, matvec(a.T, p))[None, :]
    return basis


def _null_space_in_a_loop(a: Array) -> Array:
    """The same elimination, as one loop over the pivots."""
    k, n = a.shape
    rows, columns = jnp.arange(k), jnp.arange(n)

    def eliminate(_, carry):
        a, row_free, column_free, pairs = carry
        best = jnp.argmax(jnp.where(row_free[:, None] & column_free[None, :], jnp.abs(a), -1.0).reshape(-1))
        here, there = rows == best // n, columns == best % n
        p, c = here.astype(a.dtype), there.astype(a.dtype)
        row = matvec(a.T, p)
        row = row / jnp.sum(row * c)
        a = jnp.where(here[:, None], row[None, :], a - matvec(a, c)[:, None] * row[None, :])
        return a, row_free & ~here, column_free & ~there, pairs + c[:, None] * p[None, :]

    start = (a, jnp.ones(k, bool), jnp.ones(n, bool), jnp.zeros((n, k), a.dtype))
    a, _, column_free, pairs = lax.fori_loop(0, k, eliminate, start)
    position = jnp.cumsum(column_free.astype(jnp.int32)) - 1
    select = (position[None, :] == jnp.arange(n - k)[:, None]) & column_free[None, :]
    basis = select.astype(a.dtype).T
    return basis - matmul(pairs, matmul(a, basis))


def skew_solution(h: Array, right: Array) -> Array:
    """The skew matrix w with w h + h w = right, for a symmetric positive definite h and a skew right side."""
    r = h.shape[0]
    if r < 2:
        return jnp.zeros_like(right)
    if r == 2:
        return right / jnp.trace(h)
    if r > 4:
        return _skew_by_iteration(h, right)
    # One unknown for each pair k < j.
    k, j = np.triu_indices(r, 1)
    one = np.eye(r)
    matrix = jnp.asarray(
        one[np.ix_(k, k)] * h[j][:, j]
        - one[np.ix_(k, j)] * h[j][:, k]
        + h[k][:, k] * one[np.ix_(j, j)]
        - h[k][:, j] * one[np.ix_(j, k)]
    )
    found = solve_spd(matrix, right[k, j])
    upper = jnp.zeros_like(right).at[k, j].set(found)
    return upper - upper.T


def _skew_by_iteration(h: Array, right: Array) -> Array:
    """The same for many rows, where h is near a multiple of the identity: its inverse begins an iteration."""
    scale = jnp.trace(h) / h.shape[0]
    most = 1000 if has_more_digits() else 100

    def times(w: Array) -> Array:
        return matmul(w, h) + matmul(h, w)

    def iterated(times: Any, right: Array) -> Array:
        def unfinished(carry):
            _, error, before, count = carry
            return (error < before) & (count < most)

        def improve(carry):
            w, error, _, count = carry
            step = (right - times(w)) / (2 * scale)
            return w + step, jnp.max(jnp.abs(step)), error, count + 1

        large = jnp.full((), jnp.finfo(h.dtype).max, h.dtype)
        start = (right / (2 * scale), large / 2, large, jnp.zeros((), jnp.int32))
        w, error, _, _ = lax.while_loop(unfinished, improve, start)
        return jnp.where(error <= 1e-9 * jnp.max(jnp.abs(w)) + jnp.finfo(h.dtype).tiny, w, jnp.nan)

    return lax.custom_linear_solve(times, right, iterated, iterated, symmetric=True)


def inverse_square_root(a: Array) -> Array:
    """a^(-1/2) for a symmetric positive definite matrix.

    Up to 2 x 2 there are closed forms. Larger matrices use the Newton-Schulz iteration until rounding stops it. It is
    scaled by the mean of the eigenvalues or, if it might not converge then, by a bound of the largest one. The result
    is NaN if the eigenvalues differ by more than a factor of about a million.
    """
    r = a.shape[0]
    if r == 0:
        return a
    if r == 1:
        return 1 / jnp.sqrt(a)
    if r == 2:
        # sqrt(a) = (a + s)/t with s = sqrt(det a), t = sqrt(tr a + 2 s); det sqrt(a) = s.
        s = jnp.sqrt(a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])
        t = jnp.sqrt(a[0, 0] + a[1, 1] + 2 * s)
        return ((a[0, 0] + a[1, 1] + s) * jnp.eye(r, dtype=a.dtype) - a) / (s * t)
    return _newton_schulz(a)


@jax.custom_jvp
def _newton_schulz(a: Array) -> Array:
    r, one = a.shape[0], jnp.eye(a.shape[0], dtype=a.dtype)
    mean, largest = jnp.trace(a) / r, jnp.max(jnp.sum(jnp.abs(a), axis=1))
    scale = jnp.where(largest < 2.5 * mean, mean, largest)  # it converges for eigenvalues between 0 and 3
    off = one - a
    near = (jnp.max(jnp.sum(jnp.abs(off), axis=1)) < _NEAR) & (r <= _FEW_ROWS) & (not has_more_digits())

    def unfinished(carry):
        _, _, error, before, count = carry
        return (error > 4 * unit_rounding(a.dtype)) & (error < before) & (count < 30)

    def improve(carry):
        y, z, error, _, count = carry
        product = matmul(z, y)
        step = 1.5 * one - 0.5 * product
        return matmul(y, step), matmul(step, z), jnp.max(jnp.abs(one - product)), error, count + 1

    large = jnp.full((), jnp.finfo(a.dtype).max, a.dtype)
    root = 1 / jnp.sqrt(scale)
    start = (root * root * a, one, jnp.where(near, 0.0, large / 2), large, jnp.zeros((), jnp.int32))
    _, z, error, _, _ = lax.while_loop(unfinished, improve, start)
    z = jnp.where(error < 1e-6, root, jnp.nan) * z
    return jnp.where(near, _near_one(a, off), z) if r <= _FEW_ROWS else z


_NEAR, _FEW_ROWS = 0.2, 5
"""How near to the identity the inverse root is a formula without a loop, which takes half the time, and for how many
rows; of more, the formula is longer than what it saves."""


def _near_one(a: Array, off: Array) -> Array:
    """The same near the identity, off = 1 - a: a series, and two corrections, each of which squares its error.

    The series is off by 63/256 off^5, 8e-5 at most, so a z^2 by twice that, and the corrections leave 3/4 of its
    square: 2e-8, then 3e-16.
    """
    upper = np.triu(np.ones(a.shape, bool))

    def product(x: Array, y: Array) -> Array:  # of matrices that commute: half of the entries are enough
        found = matmul(x, y)
        return jnp.where(upper, found, found.T)

    one = jnp.eye(a.shape[0], dtype=a.dtype)
    square = product(off, off)
    z = one + 0.5 * off + product(square, 3 / 8 * one + 5 / 16 * off + 35 / 128 * square)
    for _ in range(2):
        z = z + 0.5 * product(z, one - product(a, product(z, z)))
    return z


@_newton_schulz.defjvp
def _(primals, tangents):
    """The derivative: with y = a^(1/2), y y' + y' y = a', and the inverse z changes by -z y' z."""
    ((a,), (change,)) = primals, tangents
    r, one = a.shape[0], jnp.eye(a.shape[0], dtype=a.dtype)
    z = _newton_schulz(a)
    y = matmul(a, z)
    sylvester = (
        one[:, None, :, None] * y.T[None, :, None, :] + y[:, None, :, None] * one[None, :, None, :]
    ).reshape(r * r, r * r)
    root_change = solve(sylvester, change.reshape(-1)).reshape(r, r)
    return z, -matmul(matmul(z, root_change), z)
