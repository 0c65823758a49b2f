"""Functions as users write them in Lagrangians, potentials, metrics and constraint matrices.

`FUNCTIONS` lists (name, function of q with shape (4,) to a scalar, range of each entry of q). Each is smooth to
second order at generic points of its range. `FORWARD_ONLY` names those that have no reverse derivative.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import dalembert  # noqa: F401 (turns on double precision, before the arrays below are made)

FUNCTIONS = []
FORWARD_ONLY = {"while_loop_newton_sqrt", "while_loop_bisection", "fori_loop_traced_bound", "nested_while"}


def user(low, high):
    """Register a function under its own name."""

    def register(function):
        FUNCTIONS.append((function.__name__, function, (low, high)))
        return function

    return register


STIFFNESS = np.array([[3.0, 1.0, 0.0, 0.5], [1.0, 2.0, 0.3, 0.0], [0.0, 0.3, 1.5, 0.2], [0.5, 0.0, 0.2, 4.0]])
MASSES = jnp.array([1.0, 2.5, 0.5])


def matrix2(q):
    return jnp.array([[2.0 + q[0] ** 2, q[1]], [q[2], 3.0 + q[3] ** 2]])


def matrix3(q):
    x, y, z, w = q
    return jnp.array([[3.0 + x, y, 0.5], [z, 4.0 + w, x * y], [0.1, z * w, 5.0 - x]])


def matrix4(q):
    return jnp.diag(3.0 + q**2) + jnp.outer(jnp.sin(q), jnp.array([0.1, -0.2, 0.3, 0.4]))


def positive4(q):
    return 2.0 * jnp.eye(4) + jnp.outer(q, q) + jnp.diag(jnp.cos(q) ** 2)


def rotation_z(a):
    c, s = jnp.cos(a), jnp.sin(a)
    return jnp.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def rotation_x(a):
    c, s = jnp.cos(a), jnp.sin(a)
    return jnp.stack([jnp.array([1.0, 0.0, 0.0]), jnp.stack([0.0 * c, c, -s]), jnp.stack([0.0 * c, s, c])])


def quaternion_product(a, b):
    s, u, t, v = a[0], a[1:], b[0], b[1:]
    return jnp.concatenate([jnp.array([s * t - u @ v]), s * v + t * u + jnp.cross(u, v)])


def hat(w):
    return jnp.array([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])


# Arithmetic and powers


@user(0.5, 2.0)
def arithmetic(q):
    x, y, z, w = q
    return x + y * z - w / x + 3 * (-y) - 1 / (z * w)


@user(0.5, 2.0)
def integer_powers(q):
    return (
        q[0] ** 2 + q[1] ** 3 - q[2] ** -2 + q[3] ** 7 + q[0] ** 0 + jnp.square(q[1]) + jnp.reciprocal(q[2])
    )


@user(0.5, 2.0)
def fractional_powers(q):
    return q[0] ** 0.5 + q[1] ** 1.5 - q[2] ** -0.7 + jnp.float_power(q[3], 2.5)


@user(0.5, 2.0)
def traced_exponents(q):
    return q[0] ** q[1] + 2.0 ** q[2] + jnp.power(q[3], -q[0])


@user(0.5, 2.0)
def roots(q):
    return jnp.sqrt(q[0]) + jnp.cbrt(q[1] * q[2]) - lax.rsqrt(q[3]) + 1 / jnp.sqrt(q[0] + q[1])


@user(-1.5, 1.5)
def exponentials(q):
    return jnp.exp(q[0]) + jnp.exp2(q[1]) + jnp.expm1(q[2]) + jnp.exp(-(q[3] ** 2) / 2)


@user(0.3, 3.0)
def logarithms(q):
    return jnp.log(q[0]) + jnp.log1p(q[1]) + jnp.log2(q[2]) * jnp.log10(q[3])


# Trigonometric and hyperbolic functions


@user(-3.0, 3.0)
def sin_cos(q):
    return jnp.sin(q[0]) * jnp.cos(q[1]) + jnp.cos(q[0] - q[2]) + jnp.sin(2 * jnp.pi * q[3])


@user(-1.2, 1.2)
def tangent(q):
    return jnp.tan(q[0]) + jnp.tan(q[1] / 2) * q[2]


@user(-0.8, 0.8)
def inverse_trigonometric(q):
    return jnp.arcsin(q[0]) + jnp.arccos(q[1]) + jnp.arctan(q[2]) * jnp.arctan(5 * q[3])


@user(-2.0, 2.0)
def arctan2_all_quadrants(q):
    return jnp.arctan2(q[0], q[1]) + q[2] * jnp.arctan2(q[3], -1.0 + 0.1 * q[2])


@user(-1.0, 1.0)
def sinc_double_where(q):
    x = jnp.maximum(q, 0.0)  # exactly zero for about half of the entries
    safe = jnp.where(x == 0.0, 1.0, x)
    return jnp.sum(jnp.where(x == 0.0, 1.0, jnp.sin(safe) / safe) * q)


@user(-2.0, 2.0)
def sinc_of_jnp(q):
    return jnp.sinc(q[0]) * q[1] + jnp.sinc(q[2] * q[3])


@user(-1.0, 1.0)
def norm_double_where(q):
    x = jnp.where(q[0] > 0, q, 0.0)  # the zero vector for half of the points
    squared = x @ x
    moving = squared > 0
    return jnp.where(moving, jnp.sqrt(jnp.where(moving, squared, 1.0)), 0.0) + q[1]


@user(-1.5, 1.5)
def hyperbolic(q):
    return jnp.sinh(q[0]) - jnp.cosh(q[1]) + jnp.tanh(q[2] + q[3])


@user(0.1, 0.8)
def inverse_hyperbolic(q):
    return jnp.arcsinh(3 * q[0]) + jnp.arccosh(1.5 + q[1]) + jnp.arctanh(q[2]) * q[3]


@user(0.5, 2.0)
def hypot_and_angles(q):
    return jnp.hypot(q[0], q[1]) + jnp.deg2rad(q[2]) * jnp.rad2deg(q[3]) + jnp.fabs(q[0] - 5)


# Piecewise functions


@user(-2.0, 2.0)
def abs_sign_min_max_clip(q):
    x, y, z, w = q
    wall = jnp.clip(z, -0.5, 0.7) ** 2 + lax.clamp(-1.0, w, 1.0)
    return jnp.abs(x) ** 3 + jnp.sign(y) * y**2 + jnp.minimum(x, y) * z + jnp.maximum(z, w) + wall


@user(-2.0, 2.0)
def where_of_comparisons(q):
    x, y, z, w = q
    a = jnp.where(x > y, x * y, x + y)
    b = jnp.where((z <= w) & (x >= -1.0) | ~(y < 0.5), jnp.sin(z), w**2)
    c = jnp.where(jnp.logical_xor(x != 0.0, y == 1.0), x, y)
    return a + b + c * jnp.where(jnp.all(q > -1.0) | jnp.any(q > 1.5), 2.0, jnp.logical_not(x > 0) * 3.0)


@user(-3.0, 3.0)
def floor_ceil_round(q):
    return (
        (q[0] - jnp.floor(q[0])) ** 2
        + jnp.ceil(q[1]) * q[1]
        + jnp.round(q[2]) * q[3]
        + jnp.trunc(q[3]) * q[0]
    )


@user(-3.0, 3.0)
def mod_remainder(q):
    a = (q[0] + jnp.pi) % (2 * jnp.pi) - jnp.pi
    return (
        a**2
        + jnp.mod(q[1], 0.7) * q[2]
        + jnp.remainder(q[2], -1.1)
        + jnp.fmod(q[3], 0.9)
        + (q[3] // 1.3) * q[1]
    )


@user(-2.0, 2.0)
def select_and_piecewise(q):
    a = jnp.select([q[0] < -1.0, q[0] < 0.0, q[0] < 1.0], [q[1], q[1] ** 2, jnp.sin(q[1])], 0.5)
    b = jnp.piecewise(q[2], [q[2] < -0.5, q[2] > 0.5], [lambda x: -x, lambda x: x**2, lambda x: x**3])
    return a + b * lax.select(q[3] > 0.0, q[3], 2 * q[3])


@user(-2.0, 2.0)
def heaviside_isfinite(q):
    kept = jnp.where(jnp.isfinite(1.0 / q[0]) & ~jnp.isnan(q[1]), q[0], 0.0)
    return jnp.heaviside(q[1], 0.5) * q[2] ** 2 + jnp.nan_to_num(kept)


@user(-2.0, 2.0)
def copysign(q):
    return jnp.copysign(q[3], q[0]) * q[1]


@user(0.0, 4.0)
def integer_cell_index(q):
    table = jnp.array([1.0, -0.5, 2.0, 0.3, 0.7])
    i = jnp.floor(q[0]).astype(int)
    t = q[0] - i
    return (1 - t) * table[i] + t * table[i + 1] + table[jnp.int32(q[1])] * q[2] ** 2 + (i // 2) * q[3]


@user(-0.9, 2.9)
def interpolation(q):
    return (
        jnp.interp(q[0], jnp.array([-1.0, 0.0, 0.7, 2.0, 3.0]), jnp.array([0.0, 1.0, 0.5, 2.0, 2.5])) * q[1]
    )


# Vectors and matrices


@user(-1.5, 1.5)
def dot_matmul_vdot(q):
    linear = jnp.dot(q, jnp.array([1.0, -2.0, 0.5, 3.0])) + jnp.vdot(q, q) + jnp.inner(q, q[::-1])
    return linear + 0.5 * q @ STIFFNESS @ q + jnp.matmul(STIFFNESS, q)[2]


@user(-1.5, 1.5)
def einsum_variants(q):
    m = q.reshape(2, 2)
    batch = jnp.stack([m, m.T, m @ m])
    energy = jnp.einsum("i,ij,j->", q, STIFFNESS, jnp.cos(q)) + jnp.einsum("ii", m)
    return energy + jnp.einsum("bij,bj->", batch, jnp.ones((3, 2)) * q[:2]) + jnp.einsum("ij->j", m)[1]


@user(-1.5, 1.5)
def outer_cross_kron_trace(q):
    crossed = jnp.cross(q[:3], q[1:])
    pairs = jnp.kron(q[:2], q[2:]) @ jnp.arange(4.0)
    return jnp.outer(q, q)[1, 2] + crossed @ MASSES + pairs + jnp.trace(jnp.outer(q, jnp.sin(q)))


@user(-1.5, 1.5)
def tensordot_axes(q):
    t = jnp.einsum("i,j,k->ijk", q[:2], q[1:], jnp.cos(q))
    return jnp.tensordot(t, t, axes=3) + jnp.tensordot(t, STIFFNESS[:3], axes=((1, 2), (0, 1)))[0]


@user(0.3, 1.5)
def sum_prod_max_min(q):
    m = q.reshape(2, 2)
    return jnp.sum(m**2, axis=0)[1] + jnp.prod(q) + jnp.max(q) * jnp.min(q) + m.max(axis=1) @ m.min(axis=0)


@user(-1.0, 1.0)
def mean_var_std(q):
    return (
        jnp.mean(q) + jnp.var(q) + jnp.std(jnp.exp(q), ddof=1) + jnp.average(q, weights=jnp.arange(1.0, 5.0))
    )


@user(0.3, 1.5)
def cumsum_cumprod(q):
    return (
        jnp.cumsum(q) @ q
        + jnp.cumprod(q)[2]
        + jnp.cumprod(q)[-1]
        + jnp.cumsum(q[::-1].reshape(2, 2), axis=1)[0, 1]
    )


@user(-2.0, 2.0)
def cummax_cummin(q):
    return lax.cummax(q) @ MASSES[jnp.array([0, 1, 2, 0])] + lax.cummin(q, reverse=True) @ q


@user(-2.0, 2.0)
def diff_ptp(q):
    return jnp.diff(q) @ jnp.diff(q) + jnp.ptp(q)


@user(-2.0, 2.0)
def logsumexp_softmax(q):
    return jax.nn.logsumexp(3 * q) + jax.nn.softmax(q) @ jnp.arange(4.0) + jax.nn.log_softmax(q)[1]


@user(-2.0, 2.0)
def argmax_as_index(q):
    return q[jnp.argmax(jnp.abs(q))] ** 2 + jnp.cos(q)[jnp.argmin(q)] + jnp.argmax(q) * q[0]


# Shapes and indexing


@user(-1.5, 1.5)
def stack_concatenate(q):
    v = jnp.concatenate([q[:2], jnp.array([1.0]), q[2:] ** 2])
    m = jnp.stack([q, jnp.sin(q)], axis=1)
    block = jnp.block([[m[:2], jnp.ones((2, 1))], [jnp.zeros((1, 2)), jnp.full((1, 1), q[3])]])
    return (
        v @ v[::-1] + jnp.sum(jnp.hstack([m, m * m])[1]) + jnp.vstack([q, q])[1, 2] + jnp.sum(block @ block)
    )


@user(-1.5, 1.5)
def index_and_slices(q):
    m = jnp.outer(q, jnp.array([1.0, 2.0, 3.0, 4.0]))
    picked = q[jnp.array([3, 0, 0])] @ MASSES + jnp.take(q, 2) + q[np.array([True, False, True, False])].sum()
    return (
        q[-1] * q[::2] @ q[1::2] + m[1:, -2].sum() + m[..., None, 1][2, 0] + picked + m[[0, 1], [2, 3]].prod()
    )


@user(-1.5, 1.5)
def dynamic_slices(q):
    i = jnp.where(q[0] > 0.0, 1, 2)
    cut = lax.dynamic_slice(q, (i,), (2,))
    put = lax.dynamic_update_slice(q * q, cut, (i - 1,))
    return cut @ cut + put[i] * q[i - 3] + lax.dynamic_index_in_dim(q, i, keepdims=False)


@user(-1.5, 1.5)
def roll_flip(q):
    m = q.reshape(2, 2)
    return jnp.roll(q, 1) @ q + jnp.flip(q) @ jnp.cos(q) + jnp.sum(jnp.rot90(m) * jnp.fliplr(m) * m)


@user(-1.5, 1.5)
def reshape_transpose(q):
    t = jnp.outer(q, q[:2]).reshape(2, 2, 2)
    moved = jnp.swapaxes(t, 0, 2) * jnp.moveaxis(t, 0, 1) + jnp.transpose(t, (1, 2, 0))
    return (
        jnp.sum(moved * jnp.arange(8.0).reshape(2, 2, 2)) + jnp.squeeze(q[None, :, None])[1] * jnp.ravel(t)[3]
    )


@user(-1.5, 1.5)
def tile_repeat_pad(q):
    wide = jnp.tile(q[:2], 3) * jnp.repeat(q[1:], 2)
    padded = jnp.pad(q, (1, 2), constant_values=0.5)
    return jnp.sum(wide) + padded @ padded[::-1] + jnp.pad(q.reshape(2, 2), 1, mode="wrap")[0, 3]


@user(-1.5, 1.5)
def broadcasting(q):
    gaps = q[:, None] - q[None, :]
    return (
        jnp.sum(gaps**2 * STIFFNESS)
        + jnp.sum(jnp.broadcast_to(q[0], (2, 3)) * q[1:])
        + jnp.linspace(q[0], q[1], 5)[3]
    )


@user(-1.5, 1.5)
def diag_eye_tri(q):
    m = jnp.diag(q) + jnp.eye(4) + jnp.diag(q[:3], k=1) + jnp.tri(4)
    return jnp.sum(jnp.tril(m @ m)) - jnp.sum(jnp.triu(m, 1) ** 2) + jnp.diagonal(m) @ q


@user(-1.5, 1.5)
def at_set_add_multiply(q):
    v = jnp.zeros(5).at[1:5].set(q).at[0].add(q[2] ** 2).at[jnp.array([0, 3])].multiply(2.0)
    m = jnp.eye(3).at[0, 1].set(q[0]).at[1].add(q[1:]).at[:, 2].multiply(q[3])
    return v @ v + jnp.sum(m @ m) + v.at[-1].divide(3.0)[4]


@user(-1.5, 1.5)
def at_min_max_power(q):
    return jnp.sum(q.at[1].min(0.3).at[jnp.array([0, 2])].max(-0.2).at[3].power(2) ** 2)


@user(-1.5, 1.5)
def at_repeated_index(q):
    return jnp.zeros(3).at[jnp.array([0, 1, 0, 2])].add(q * q) @ MASSES + jnp.sum(
        jnp.sin(q[jnp.array([1, 1, 3])])
    )


@user(-1.5, 1.5)
def at_dynamic_index(q):
    i = jnp.where(q[0] > 0.0, 0, 2)
    return q.at[i].set(q[3] ** 2) @ q + q.at[i + 1].add(q[0]) @ MASSES[jnp.array([0, 1, 2, 0])]


# Linear algebra


@user(0.3, 1.5)
def norms(q):
    m = q.reshape(2, 2)
    vectors = (
        jnp.linalg.norm(q)
        + jnp.linalg.norm(q, ord=1)
        + jnp.linalg.norm(q, ord=3)
        + jnp.linalg.norm(q, jnp.inf)
    )
    matrices = jnp.linalg.norm(m) + jnp.linalg.norm(m, ord=1) + jnp.linalg.norm(m, ord=jnp.inf)
    return vectors + matrices + jnp.linalg.norm(m, axis=1) @ q[:2] + jnp.linalg.norm(q, -jnp.inf)


@user(-1.0, 1.0)
def determinants(q):
    return jnp.linalg.det(matrix2(q)) + jnp.linalg.det(matrix3(q)) + jnp.linalg.slogdet(matrix2(q))[1]


@user(-1.0, 1.0)
def determinant_4x4(q):
    return jnp.linalg.det(matrix4(q))


@user(-1.0, 1.0)
def inverse_2x2(q):
    return q[:2] @ jnp.linalg.inv(matrix2(q)) @ q[2:]


@user(-1.0, 1.0)
def inverse_3x3(q):
    return jnp.sum(jnp.linalg.inv(matrix3(q)) * MASSES)


@user(-1.0, 1.0)
def solve_2x2(q):
    return jnp.linalg.solve(matrix2(q), q[:2]) @ jnp.array([1.0, 2.0])


@user(-1.0, 1.0)
def solve_3x3(q):
    return jnp.linalg.solve(matrix3(q), q[1:]) @ q[:3]


@user(-1.0, 1.0)
def solve_4x4(q):
    return q @ jnp.linalg.solve(matrix4(q), jnp.cos(q))


@user(-1.0, 1.0)
def solve_matrix_right_side(q):
    return jnp.sum(jnp.linalg.solve(matrix3(q), jnp.outer(q[1:], q[:2])) ** 2)


@user(0.5, 1.5)
def solve_zero_first_pivot(q):
    x, y, z, w = q
    saddle = jnp.array([[0.0, x, 1.0], [y, 0.0, z], [1.0, w, 0.0]])
    return jnp.linalg.solve(saddle, jnp.array([x, 1.0, w])) @ MASSES + jnp.linalg.det(saddle)


@user(-1.0, 1.0)
def solve_pivot_depends_on_point(q):
    return jnp.linalg.solve(jnp.array([[q[0], 2.0], [3.0, q[1]]]) * jnp.where(q[2] > 0, 1.0, -2.0), q[2:])[0]


@user(-1.0, 1.0)
def solve_constraint_multipliers(q):
    """Lagrange multipliers of A M^-1 A^T with a constraint matrix of two rows."""
    a = jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0, 0.0], [0.0, 0.0, 1.0, 1.0 + q[0] ** 2]])
    force = -jnp.array([q[1], 1.0, jnp.sin(q[3]), q[0]])
    minv_at = jnp.linalg.solve(positive4(q), a.T)
    return jnp.sum(jnp.linalg.solve(a @ minv_at, minv_at.T @ force))


@user(-1.0, 1.0)
def cholesky_factor(q):
    factor = jnp.linalg.cholesky(positive4(q))
    return jnp.sum(jnp.log(jnp.diagonal(factor))) + factor[3, 1] * q[0]


@user(-1.0, 1.0)
def cholesky_solve(q):
    factor = jax.scipy.linalg.cho_factor(positive4(q)[:3, :3])
    return q[:3] @ jax.scipy.linalg.cho_solve(factor, MASSES)


@user(-1.0, 1.0)
def triangular_solve(q):
    half = jax.scipy.linalg.solve_triangular(matrix3(q), q[1:], lower=True)
    return half @ half + jax.scipy.linalg.solve_triangular(matrix3(q), MASSES, trans=1)[0]


@user(-0.7, 0.7)
def matrix_power(q):
    return jnp.trace(jnp.linalg.matrix_power(matrix2(q), 5)) * 1e-2 + jnp.linalg.multi_dot([q, STIFFNESS, q])


# Control flow


@user(-1.0, 1.0)
def lax_cond(q):
    return lax.cond(q[0] + q[1] > 0.0, lambda x: jnp.sin(x[0]) * x[1], lambda x: x[2] ** 3 - x[3], q) * q[2]


@user(-1.0, 1.0)
def lax_cond_nested_with_closure(q):
    def positive():
        return lax.cond(q[1] > 0.0, lambda: jnp.log1p(q[0] * q[1]), lambda: q[2] * q[3])

    return lax.cond(q[0] > 0.0, positive, lambda: jnp.exp(q[0]) * q[3])


@user(-1.0, 1.0)
def lax_switch(q):
    i = jnp.clip(jnp.floor(2 * q[0]).astype(jnp.int32) + 2, 0, 3)
    branches = [lambda x: x @ x, lambda x: jnp.sin(x[1]), lambda x: x[2] * x[3], lambda x: jnp.exp(x[0])]
    return lax.switch(i, branches, q) + lax.switch(i - 5, branches, 2 * q)


@user(-1.0, 1.0)
def lax_switch_of_several(q):
    """Under vmap, a switch chooses each member's value among three by a whole number."""

    def one(x):
        i = jnp.clip(jnp.floor(2 * x).astype(jnp.int32) + 1, 0, 2)
        return lax.switch(i, [jnp.sin, lambda x: x**3 - q[0], jnp.exp], x)

    return jnp.sum(jax.vmap(one)(q) * q)


@user(-1.0, 1.0)
def fori_loop_static(q):
    return lax.fori_loop(0, 4, lambda i, s: s * q[i] + jnp.cos(s) / (i + 1), q[0])


@user(-1.0, 1.0)
def fori_loop_array_carry(q):
    def body(i, carry):
        x, total = carry
        return x.at[i].add(0.1 * x[i - 1] ** 2), total + x[i] * x[(i + 1) % 4]

    x, total = lax.fori_loop(1, 4, body, (q, 0.0))
    return total + x @ x


@user(-1.0, 1.0)
def fori_loop_traced_bound(q):
    n = jnp.where(q[0] > 0.0, 3, 6)
    return lax.fori_loop(0, n, lambda i, s: 0.5 * s + jnp.sin(q[1] * i), q[2])


@user(-1.0, 1.0)
def scan_over_array(q):
    def link(angle, x):
        angle = angle + x
        return angle, jnp.array([jnp.sin(angle), -jnp.cos(angle)])

    end, ends = lax.scan(link, 0.0, q)
    return end**2 + jnp.sum(jnp.cumsum(ends, axis=0)[:, 1]) + ends[2] @ ends[3]


@user(-1.0, 1.0)
def scan_reverse_pytree(q):
    def horner(carry, xs):
        return {"p": carry["p"] * q[0] + xs["c"], "n": carry["n"] + 1}, carry["p"] * xs["d"][1]

    last, out = lax.scan(horner, {"p": q[1], "n": 0}, {"c": STIFFNESS[0] * q, "d": STIFFNESS}, reverse=True)
    return last["p"] + last["n"] * q[2] + out @ q


@user(-1.0, 1.0)
def lax_map_and_associative_scan(q):
    mapped = lax.map(lambda x: jnp.sin(x) * q[0], q)
    return mapped @ q + lax.associative_scan(jnp.multiply, 1.0 + q)[2]


@user(0.5, 20.0)
def while_loop_newton_sqrt(q):
    def improve(state):
        x, _ = state
        return 0.5 * (x + q[0] / x), jnp.abs(x * x - q[0])

    return lax.while_loop(lambda s: s[1] > 1e-9 * q[0], improve, (q[0] + 1.0, jnp.inf))[0] * jnp.log(q[1])


@user(-1.0, 1.0)
def while_loop_bisection(q):
    """Number of halvings until the width is small, and the last midpoint: both are piecewise in q."""

    def halve(s):
        low, high, n = s
        middle = 0.5 * (low + high)
        left = middle**3 + middle > q[0]
        return jnp.where(left, low, middle), jnp.where(left, middle, high), n + 1

    low, high, n = lax.while_loop(lambda s: s[1] - s[0] > 0.1 + q[1] ** 2, halve, (-2.0 + q[2] / 9, 2.0, 0))
    return low * high + n * q[3]


@user(-1.0, 1.0)
def nested_while(q):
    def outer(state):
        total, i = state
        inner = lax.while_loop(lambda s: s[1] < i, lambda s: (0.5 * s[0] + q[1], s[1] + 1), (total, 0))[0]
        return jnp.cos(inner) + total * q[2], i + 1

    return lax.while_loop(lambda s: s[1] < jnp.where(q[0] > 0.0, 2, 4), outer, (q[3], 0))[0]


# Transformations inside


@user(-1.0, 1.0)
def vmap_inside(q):
    springs = jax.vmap(lambda a, b: 0.5 * (a - b) ** 2)(q, jnp.roll(q, 1))
    shifted = jax.vmap(lambda m, x: m @ (x * q), in_axes=(0, None))(jnp.stack([STIFFNESS, STIFFNESS.T]), q[1])
    return jnp.sum(springs) + jnp.sum(shifted**2) * 0.1


@user(-1.0, 1.0)
def grad_inside(q):
    force = -jax.grad(lambda x: jnp.sum(jnp.cos(x)) + x[0] * x[1] ** 2)(q)
    return force @ force


@user(-1.0, 1.0)
def jvp_vjp_inside(q):
    value, rate = jax.jvp(lambda x: jnp.sin(x) * x[0], (q,), (jnp.cos(q),))
    pulled = jax.vjp(lambda x: jnp.exp(x) * x[::-1], q)[1](value)[0]
    return value @ rate + pulled[1]


@user(-1.0, 1.0)
def hessian_inside(q):
    mass = jax.hessian(lambda v: 0.5 * v @ (positive4(q) @ v) + 0.1 * jnp.sum(v**4))(jnp.sin(q))
    return q @ mass @ jnp.ones(4)


@user(-1.0, 1.0)
def jacobians_inside(q):
    def place(x):
        return jnp.array([jnp.cos(x[0]) * x[1], jnp.sin(x[0]) * x[1], x[2] * x[3]])

    return jnp.sum(jax.jacfwd(place)(q) @ q * MASSES) + jnp.sum(jax.jacrev(place)(q)[0] ** 2)


@user(-1.0, 1.0)
def linearize_and_stop_gradient(q):
    value, push = jax.linearize(lambda x: jnp.tanh(x) * x[1], q)
    return push(jnp.ones(4)) @ lax.stop_gradient(value) + q @ q


@jax.custom_jvp
def guarded_root(x):
    return jnp.sqrt(jnp.maximum(x, 0.0))


@guarded_root.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    root = guarded_root(x)
    return root, jnp.where(x > 0.0, 0.5 / jnp.where(x > 0.0, root, 1.0), 0.0) * t


@user(-1.0, 1.0)
def custom_jvp(q):
    return guarded_root(q[0]) * q[1] + guarded_root(q @ q)


@jax.custom_vjp
def clipped_exp(x):
    return jnp.exp(jnp.minimum(x, 0.5))


clipped_exp.defvjp(
    lambda x: (jnp.exp(jnp.minimum(x, 0.5)), x), lambda x, g: (g * jnp.where(x < 0.5, jnp.exp(x), 0.1 * x),)
)


@user(-1.0, 1.0)
def custom_vjp(q):
    return clipped_exp(q[0]) + q[1] * clipped_exp(q[2] * q[3])


@user(-1.0, 1.0)
def checkpoint_and_jit_inside(q):
    @jax.checkpoint
    def layer(x):
        return jnp.tanh(STIFFNESS @ x)

    return jnp.sum(layer(layer(q))) + jax.jit(lambda x, n: x[n] ** n, static_argnums=1)(q, 2)


@user(-1.0, 1.0)
def polynomials(q):
    return jnp.polyval(q, 0.7) + jnp.polyval(jnp.array([1.0, -2.0, 0.5]), q[1]) + jnp.polyval(q[:3], q[3])


@user(-2.0, 2.0)
def erf_sigmoid_softplus(q):
    smooth = (
        jax.scipy.special.erf(q[0])
        + jax.nn.sigmoid(q[1]) * jax.nn.softplus(q[2])
        + jax.scipy.special.erfc(q[3])
    )
    return smooth + jnp.logaddexp(q[0], q[1]) + jax.nn.log_sigmoid(q[3])


@user(-2.0, 2.0)
def activations(q):
    contact = jax.nn.relu(q[0]) ** 3 + jax.nn.relu(q[1] - 0.3) ** 2
    return contact + jax.nn.gelu(q[2]) + jax.nn.silu(q[3]) + jax.nn.elu(q[2]) + jax.nn.leaky_relu(q[3])


# Mechanics


@user(-3.0, 3.0)
def rotation_matrices(q):
    r = rotation_z(q[0]) @ rotation_x(q[1]) @ rotation_z(q[2])
    inertia = jnp.diag(jnp.array([1.0, 2.0, 3.0]))
    return jnp.trace(r) * q[3] + jnp.sum((r @ inertia @ r.T)[0]) + jnp.linalg.det(r)


@user(0.2, 1.5)
def rodrigues_rotation(q):
    w = q[:3]
    angle = jnp.sqrt(w @ w)
    k = hat(w / angle)
    r = jnp.eye(3) + jnp.sin(angle) * k + (1 - jnp.cos(angle)) * k @ k
    return (r @ jnp.array([1.0, 2.0, 3.0]))[0] * q[3]


@user(0.2, 1.5)
def quaternion_products(q):
    unit = q / jnp.linalg.norm(q)
    conjugate = unit * jnp.array([1.0, -1.0, -1.0, -1.0])
    turned = quaternion_product(quaternion_product(unit, jnp.array([0.0, 1.0, 2.0, 3.0])), conjugate)
    return turned[1] + quaternion_product(q, unit)[3]


@user(-1.0, 1.0)
def spring_network(q):
    rest = jnp.array([[0.0, 0.0], [3.0, 0.0]])
    x = jnp.concatenate([rest, rest[::-1] + jnp.array([0.0, 3.0]) + q.reshape(2, 2)])
    a, b = np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 0, 2])
    lengths = jnp.linalg.norm(x[a] - x[b], axis=-1)
    return 0.5 * jnp.sum(jnp.arange(1.0, 6.0) * (lengths - 2.5) ** 2) + 9.81 * jnp.sum(x[:, 1])


@user(-2.0, 2.0)
def double_pendulum(q):
    """Kinetic minus potential energy with the velocity in the last two entries."""
    angle, v = q[:2], q[2:]
    m1, m2, l1, l2, g = 1.0, 0.5, 1.2, 0.8, 9.81
    c = m2 * l1 * l2 * jnp.cos(angle[0] - angle[1])
    mass = jnp.array([[(m1 + m2) * l1**2, c], [c, m2 * l2**2]])
    return 0.5 * v @ mass @ v + (m1 + m2) * g * l1 * jnp.cos(angle[0]) + m2 * g * l2 * jnp.cos(angle[1])


@user(0.0, 0.3)
def lennard_jones(q):
    x = jnp.arange(4.0) * 1.15 + q
    i, j = np.triu_indices(4, 1)
    s = 1.0 / (x[i] - x[j]) ** 2
    return jnp.sum(4.0 * (s**6 - s**3))


@user(0.5, 2.0)
def kepler(q):
    r = jnp.linalg.norm(q[:2])
    return 0.5 * q[2:] @ q[2:] + 1.0 / r + 0.01 / r**3 + jnp.arctan2(q[1], q[0])


@user(-1.0, 1.0)
def rolling_disk(q):
    """A constrained kinetic energy: the constraint matrix's null space by hand."""
    x, y, heading, roll = q
    frame = jnp.array([[jnp.cos(heading), 0.0], [jnp.sin(heading), 0.0], [0.0, 1.0], [1.0, 0.0]])
    reduced = jnp.einsum("ia,ij,jb->ab", frame, positive4(q), frame)
    slip = jnp.array([x * jnp.sin(heading) - y * jnp.cos(heading), roll])
    return 0.5 * jnp.einsum("a,ab,b", slip, reduced, slip)


@user(-1.0, 1.0)
def neural_potential(q):
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(6, 4)) / 2, rng.normal(size=(6, 6)) / 3, rng.normal(size=(1, 6)) / 3]
    return functools.reduce(lambda x, w: jnp.tanh(w @ x), layers, q)[0]
