"""Rigid motions: SE(2) of the plane, SE(3) of space."""

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.groups.base import Group
from dalembert.groups.rotations import (
    ENTRIES,
    axis_of,
    hat,
    restored_rotation,
    rotation_cayley,
    rotation_dcayley_inverse,
    rotation_defect,
    rotation_dexp_inverse,
    rotation_exp,
)
from dalembert.numerics import (
    cotangent_ratio,
    excess_ratio,
    matmul,
    matvec,
    sine_ratio,
    solve,
    versine_ratio,
)


def _matrix(*entries) -> Array:
    return jnp.stack([jnp.asarray(x, float) for x in entries]).reshape(3, 3)


class SE2(Group):
    """Motions of the plane, (x, y, theta), with body velocities (v1, v2, w).

    In addition to exp and the Cayley map it has `mid`, tau = (R(w/2) v, w), which gives the midpoint rule in these
    coordinates.
    """

    retractions = ("exp", "cayley", "mid")

    @property
    def name(self) -> str:
        return "SE(2)"

    @property
    def coordinates(self) -> tuple[str, ...]:
        return ("x", "y", "theta")

    @property
    def velocities(self) -> tuple[str, ...]:
        return ("v1", "v2", "w")

    @property
    def angles(self) -> tuple[str, ...]:
        return ("theta",)

    def identity(self) -> Array:
        return jnp.zeros(3)

    def multiply(self, g: Array, k: Array) -> Array:
        c, s = jnp.cos(g[2]), jnp.sin(g[2])
        return jnp.stack([g[0] + c * k[0] - s * k[1], g[1] + s * k[0] + c * k[1], g[2] + k[2]])

    def inverse(self, g: Array) -> Array:
        c, s = jnp.cos(g[2]), jnp.sin(g[2])
        return jnp.stack([-c * g[0] - s * g[1], s * g[0] - c * g[1], -g[2]])

    def adjoint(self, g: Array) -> Array:
        c, s = jnp.cos(g[2]), jnp.sin(g[2])
        return _matrix(c, -s, g[1], s, c, -g[0], 0, 0, 1)

    def bracket(self, x: Array) -> Array:
        return _matrix(0, -x[2], x[1], x[2], 0, -x[0], 0, 0, 0)

    def exp(self, x: Array) -> Array:
        s, w = x[2] ** 2, x[2]
        along, across = sine_ratio(s), w * versine_ratio(s)
        return jnp.stack([along * x[0] - across * x[1], across * x[0] + along * x[1], w])

    def dexp_inverse(self, x: Array) -> Array:
        ad, c = self.bracket(x), cotangent_ratio(x[2] ** 2)
        return jnp.eye(3, dtype=x.dtype) - 0.5 * ad + c * matmul(ad, ad)

    def cayley(self, x: Array) -> Array:
        half = 0.5 * x[2]
        scale = 1 / (1 + half**2)
        return jnp.stack(
            [scale * (x[0] - half * x[1]), scale * (x[1] + half * x[0]), 2 * jnp.arctan2(half, jnp.ones(()))]
        )

    def dcayley_inverse(self, x: Array) -> Array:
        v1, v2, half = 0.5 * x[0], 0.5 * x[1], 0.5 * x[2]
        return _matrix(1, half, half * v1 - v2, -half, 1, half * v2 + v1, 0, 0, 1 + half**2)

    def mid(self, x: Array) -> Array:
        """The motion that turns by half the angle, moves, and turns by the other half."""
        c, s = jnp.cos(0.5 * x[2]), jnp.sin(0.5 * x[2])
        return jnp.stack([c * x[0] - s * x[1], s * x[0] + c * x[1], x[2]])

    def dmid_inverse(self, x: Array) -> Array:
        """The matrix [[R(-w/2), J v/2], [0, 1]]."""
        c, s = jnp.cos(0.5 * x[2]), jnp.sin(0.5 * x[2])
        return _matrix(c, s, -0.5 * x[1], -s, c, 0.5 * x[0], 0, 0, 1)

    def local(self, g: Array) -> Array:
        return g

    def matrix(self, g: Array) -> Array:
        c, s = jnp.cos(g[2]), jnp.sin(g[2])
        return _matrix(c, -s, g[0], s, c, g[1], 0, 0, 1)


def _blocks(a: Array, b: Array) -> Array:
    """The block matrix [[a, b], [0, a]]."""
    return jnp.concatenate(
        [jnp.concatenate([a, b], axis=1), jnp.concatenate([jnp.zeros_like(a), a], axis=1)], axis=0
    )


class SE3(Group):
    """Motions of space, (x, y, z) and the nine entries of a rotation, with body velocities (v, w)."""

    @property
    def name(self) -> str:
        return "SE(3)"

    @property
    def coordinates(self) -> tuple[str, ...]:
        return ("x", "y", "z", *ENTRIES)

    @property
    def velocities(self) -> tuple[str, ...]:
        return ("v1", "v2", "v3", "w1", "w2", "w3")

    def identity(self) -> Array:
        return self._element(jnp.zeros(3), jnp.eye(3))

    def _element(self, p: Array, r: Array) -> Array:
        return jnp.concatenate([p, r.reshape(9)])

    def _parts(self, g: Array) -> tuple[Array, Array]:
        return g[:3], g[3:].reshape(3, 3)

    def multiply(self, g: Array, k: Array) -> Array:
        (p, r), (p1, r1) = self._parts(g), self._parts(k)
        return self._element(p + matvec(r, p1), matmul(r, r1))

    def inverse(self, g: Array) -> Array:
        p, r = self._parts(g)
        return self._element(-matvec(r.T, p), r.T)

    def adjoint(self, g: Array) -> Array:
        p, r = self._parts(g)
        return _blocks(r, matmul(hat(p), r))

    def bracket(self, x: Array) -> Array:
        return _blocks(hat(x[3:]), hat(x[:3]))

    def exp(self, x: Array) -> Array:
        v, w = x[:3], x[3:]
        s = jnp.sum(w * w)
        turned = jnp.cross(w, v)
        moved = v + versine_ratio(s) * turned + excess_ratio(s) * jnp.cross(w, turned)
        return self._element(moved, rotation_exp(w))

    def dexp_inverse(self, x: Array) -> Array:
        # se(3) is so(3) over the dual numbers w + eps v, so the upper block is the derivative of the other along v.
        a, b = jax.jvp(rotation_dexp_inverse, (x[3:],), (x[:3],))
        return _blocks(a, b)

    def cayley(self, x: Array) -> Array:
        v, w = x[:3], x[3:]
        return self._element(solve(jnp.eye(3, dtype=x.dtype) - 0.5 * hat(w), v), rotation_cayley(w))

    def dcayley_inverse(self, x: Array) -> Array:
        # (1 - X/2) Y (1 + X/2) for 4 x 4 matrices.
        half = jnp.eye(3, dtype=x.dtype) - 0.5 * hat(x[3:])
        upper = jnp.concatenate([half, -0.5 * matmul(half, hat(x[:3]))], axis=1)
        lower = jnp.concatenate([jnp.zeros((3, 3), x.dtype), rotation_dcayley_inverse(x[3:])], axis=1)
        return jnp.concatenate([upper, lower], axis=0)

    def local(self, g: Array) -> Array:
        p, r = self._parts(g)
        return jnp.concatenate([p, axis_of(r)])

    def matrix(self, g: Array) -> Array:
        p, r = self._parts(g)
        below = jnp.array([[0.0, 0.0, 0.0, 1.0]], g.dtype)
        return jnp.concatenate([jnp.concatenate([r, p[:, None]], axis=1), below], axis=0)

    def restore(self, g: Array) -> Array:
        p, r = self._parts(g)
        return self._element(p, restored_rotation(r))

    def defect(self, g: Array) -> Array:
        return rotation_defect(self._parts(g)[1])
