"""Rotations: SO(3) as matrices, S^3 as unit quaternions."""

import jax.numpy as jnp
from jax import Array

from dalembert.groups.base import Group
from dalembert.numerics import cosine, cotangent_ratio, matmul, matvec, sine_ratio, versine_ratio


def hat(x: Array) -> Array:
    """The matrix of the cross product with x."""
    zero = jnp.zeros((), x.dtype)
    return jnp.stack([zero, -x[2], x[1], x[2], zero, -x[0], -x[1], x[0], zero]).reshape(3, 3)


def outer(x: Array) -> Array:
    """x x^T."""
    return x[:, None] * x[None, :]


def rotation_exp(x: Array) -> Array:
    """The rotation by |x| about x, a 3 x 3 matrix (Rodrigues)."""
    s, one = jnp.sum(x * x), jnp.eye(3, dtype=x.dtype)
    turn, tilt = sine_ratio(s), versine_ratio(s)
    return (1 - tilt * s) * one + turn * hat(x) + tilt * outer(x)


def rotation_dexp_inverse(x: Array) -> Array:
    """The matrix 1 - x^/2 + c x^2, with x^ the matrix of the cross product."""
    s, one = jnp.sum(x * x), jnp.eye(3, dtype=x.dtype)
    c = cotangent_ratio(s)
    return (1 - c * s) * one - 0.5 * hat(x) + c * outer(x)


def rotation_cayley(x: Array) -> Array:
    """1 + (x^ + x^2/2)/(1 + |x|^2/4), a 3 x 3 matrix."""
    s, one = jnp.sum(x * x), jnp.eye(3, dtype=x.dtype)
    return ((1 - 0.25 * s) * one + hat(x) + 0.5 * outer(x)) / (1 + 0.25 * s)


def rotation_dcayley_inverse(x: Array) -> Array:
    """The matrix 1 - x^/2 + x x^T/4, with x^ the matrix of the cross product."""
    return jnp.eye(3, dtype=x.dtype) - 0.5 * hat(x) + 0.25 * outer(x)


def restored_rotation(r: Array) -> Array:
    """The rotation nearest to a matrix that is a rotation up to rounding, by one Newton step."""
    return 1.5 * r - 0.5 * matmul(r, matmul(r.T, r))


def rotation_defect(r: Array) -> Array:
    """The largest entry of R^T R - 1, or 2 for a reflection."""
    off = jnp.max(jnp.abs(matmul(r.T, r) - jnp.eye(3, dtype=r.dtype)))
    return jnp.maximum(off, jnp.where(jnp.sum(r[0] * jnp.cross(r[1], r[2])) < 0, 2.0, 0.0))


def axis_of(r: Array) -> Array:
    """The vector of the antisymmetric part of a matrix."""
    return 0.5 * jnp.stack([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])


ENTRIES = tuple(f"R{i}{j}" for i in (1, 2, 3) for j in (1, 2, 3))


class SO3(Group):
    """Rotations of space, as the nine entries of a matrix, row by row; body velocities are angular velocities.

    Elements are matrices rather than quaternions, because matrices are single-valued, and pictures and constraints use
    their entries. One Newton step per product keeps them orthogonal.
    """

    @property
    def name(self) -> str:
        return "SO(3)"

    @property
    def coordinates(self) -> tuple[str, ...]:
        return ENTRIES

    @property
    def velocities(self) -> tuple[str, ...]:
        return ("w1", "w2", "w3")

    def identity(self) -> Array:
        return jnp.eye(3).reshape(9)

    def multiply(self, g: Array, k: Array) -> Array:
        return matmul(self.matrix(g), self.matrix(k)).reshape(9)

    def inverse(self, g: Array) -> Array:
        return self.matrix(g).T.reshape(9)

    def adjoint(self, g: Array) -> Array:
        return self.matrix(g)

    def bracket(self, x: Array) -> Array:
        return hat(x)

    def exp(self, x: Array) -> Array:
        return rotation_exp(x).reshape(9)

    def dexp_inverse(self, x: Array) -> Array:
        return rotation_dexp_inverse(x)

    def cayley(self, x: Array) -> Array:
        return rotation_cayley(x).reshape(9)

    def dcayley_inverse(self, x: Array) -> Array:
        return rotation_dcayley_inverse(x)

    def local(self, g: Array) -> Array:
        return axis_of(self.matrix(g))

    def matrix(self, g: Array) -> Array:
        return g.reshape(3, 3)

    def restore(self, g: Array) -> Array:
        return restored_rotation(self.matrix(g)).reshape(9)

    def defect(self, g: Array) -> Array:
        return rotation_defect(self.matrix(g))


class S3(Group):
    """Unit quaternions (w, x, y, z), the double cover of SO(3); body velocities are angular velocities.

    The algebra is halved, so that its bracket is the cross product.
    """

    @property
    def name(self) -> str:
        return "S^3"

    @property
    def coordinates(self) -> tuple[str, ...]:
        return ("qw", "qx", "qy", "qz")

    @property
    def velocities(self) -> tuple[str, ...]:
        return ("w1", "w2", "w3")

    def identity(self) -> Array:
        return jnp.array([1.0, 0.0, 0.0, 0.0])

    def multiply(self, g: Array, k: Array) -> Array:
        return matvec(self.matrix(g), k)

    def inverse(self, g: Array) -> Array:
        return g * jnp.array([1.0, -1.0, -1.0, -1.0], g.dtype)

    def adjoint(self, g: Array) -> Array:
        # In this form a quaternion of length 1 + e near the identity gives a rotation up to e times its angle squared.
        w, x = g[0], g[1:]
        return (1 - 2 * jnp.sum(x * x)) * jnp.eye(3, dtype=g.dtype) + 2 * w * hat(x) + 2 * outer(x)

    def bracket(self, x: Array) -> Array:
        return hat(x)

    def exp(self, x: Array) -> Array:
        s = 0.25 * jnp.sum(x * x)
        return jnp.concatenate([cosine(s)[None], 0.5 * sine_ratio(s) * x])

    def dexp_inverse(self, x: Array) -> Array:
        return rotation_dexp_inverse(x)

    def cayley(self, x: Array) -> Array:
        return jnp.concatenate([jnp.ones(1, x.dtype), 0.5 * x]) / jnp.sqrt(1 + 0.25 * jnp.sum(x * x))

    def dcayley_inverse(self, x: Array) -> Array:
        return rotation_dcayley_inverse(x)

    def local(self, g: Array) -> Array:
        return 2 * g[1:]

    def matrix(self, g: Array) -> Array:
        """The 4 x 4 matrix of left multiplication by g."""
        w, x, y, z = g
        return jnp.stack([w, -x, -y, -z, x, w, -z, y, y, z, w, -x, z, -y, x, w]).reshape(4, 4)

    def restore(self, g: Array) -> Array:
        return g * (1.5 - 0.5 * jnp.sum(g * g))

    def defect(self, g: Array) -> Array:
        return jnp.abs(jnp.sum(g * g) - 1)
