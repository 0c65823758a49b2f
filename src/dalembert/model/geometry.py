"""The geometry of a system at a configuration: metric, projectors, accelerations, multipliers.

All of it is gauge free: results depend on the distribution D and the metric alone, not on which
one-forms or which spanning vectors the user wrote. Where a frame is given it is preferred, because it
stays regular where one-forms may lose rank.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.model.rheonomic import Moment
from dalembert.model.system import System
from dalembert.numerics import inverse_square_root, matmul, matvec, null_space, solve, solve_spd


def displaced(system: System, q: Array, x: Array) -> Array:
    """The configuration q + x; on a group q exp(x). Velocities beyond the coordinates move nothing that is stored."""
    return q + x[: q.shape[0]] if system.group is None else system.group.multiply(q, system.group.exp(x))


def difference(system: System, q0: Array, q1: Array) -> Array:
    """q1 - q0; on a group coordinates in the algebra of q0^-1 q1, which lies near the identity."""
    return (
        q1 - q0
        if system.group is None
        else system.group.local(system.group.multiply(system.group.inverse(q0), q1))
    )


def rate(system: System, q: Array, v: Array) -> Array:
    """q', the derivative of the coordinates: v itself, but on a group that of the element's numbers."""
    return v[: q.shape[0]] if system.group is None else system.group.velocity(q, v)


def along(system: System, function: Callable[[System, Array], Any], q: Array, v: Array) -> Any:
    """d/dt of function(system, q) along the motion, of what depends on time too."""
    if isinstance(system, Moment):
        of = system.system
        return jax.jvp(
            lambda t, x: function(of.at(t), x), (system.t, q), (jnp.ones_like(system.t), v[: q.shape[0]])
        )[1]
    return jax.jvp(lambda x: function(system, x), (q,), (rate(system, q, v),))[1]


def potential_gradient(system: System, q: Array) -> Array:
    """grad V(q), a covector for velocities."""
    if system.group is None:
        return jax.grad(system.potential)(q)
    zero = jnp.zeros(system.velocity_dimension, q.dtype)
    return jax.grad(lambda x: system.potential(displaced(system, q, x)))(zero)


def annihilator(system: System, q: Array) -> Array:
    """A(q), rows spanning the one-forms that vanish on D; from the frame where no one-forms are given."""
    if not system.gives("constraints") and system.gives("frame"):
        return null_space(system.frame(q).T).T
    return system.constraints(q)


def frame_at(system: System, q: Array) -> Array:
    """B(q), columns spanning D; from the one-forms where no frame is given."""
    if not system.gives("frame") and system.gives("constraints"):
        return null_space(system.constraints(q))
    return system.frame(q)


def offsets_at(system: System, q: Array) -> Array:
    """b(q) of affine constraints A v = b, for the rows of the annihilator; zero where they are linear."""
    if system.gives("offsets"):
        return system.offsets(q)
    a = annihilator(system, q)
    return matvec(a, system.drift(q)) if system.gives("drift") else jnp.zeros(a.shape[0], q.dtype)


def drift_at(system: System, q: Array) -> Array:
    """Z(q), a velocity that satisfies affine constraints: the given one, else the shortest in the kinetic metric."""
    if system.gives("drift") or not system.gives("offsets"):
        return system.drift(q)
    a = system.constraints(q)
    z = solve_spd(system.metric(q), a.T)
    return matvec(z, solve_spd(matmul(a, z), system.offsets(q)))


def nearest_velocity(system: System, q: Array, x: Array) -> Array:
    """The velocity nearest to x, in the kinetic metric, that satisfies the constraint: P x, or Z + P (x - Z)."""
    if not system.affine:
        return project(system, q, x)
    drift = drift_at(system, q)
    return drift + project(system, q, x - drift)


def moving_energy(system: System, q: Array, v: Array) -> Array:
    """v . dL/dv - L less dL/dv . Z for the drift Z of affine constraints: kept where Z moves along a symmetry.

    Equations: [fasso2016]. For linear constraints the energy.
    """
    if not system.affine:
        return total_energy(system, q, v)
    momentum = jax.grad(system.lagrangian, argnums=1)(q, v)
    return total_energy(system, q, v) - jnp.sum(momentum * drift_at(system, q))


def total_energy(system: System, q: Array, v: Array) -> Array:
    """v . dL/dv - L; for kinetic minus potential energy, their sum."""
    if system.gives("lagrangian"):
        value, derivative = jax.value_and_grad(system.lagrangian, argnums=1)(q, v)
        return jnp.sum(v * derivative) - value
    return 0.5 * jnp.sum(v * matvec(system.metric(q), v)) + system.potential(q)


def oblique_projection(system: System, onto: Array, along: Array, x: Array) -> Array:
    """The projection of x onto D at `onto`, along the metric complement of D at `along`.

    One-forms: x - Z (A1 Z)^-1 A1 x with Z = M^-1 A^T at `along`, A1 at `onto`; frames:
    B1 (B^T M B1)^-1 B^T M x. x is a vector or a matrix of columns.
    """
    if system.gives("frame"):
        b1 = system.frame(onto)
        weights = matmul(system.frame(along).T, system.metric(along))
        inner = solve(matmul(weights, b1), _apply(weights, x))
        return _apply(b1, inner)
    if not system.gives("constraints"):
        return x
    z = solve_spd(system.metric(along), system.constraints(along).T)
    a1 = system.constraints(onto)
    return x - _apply(z, solve(matmul(a1, z), _apply(a1, x)))


def project(system: System, q: Array, x: Array) -> Array:
    """P(q) x, the projection onto D at q that is orthogonal for the kinetic metric."""
    if system.gives("frame"):
        b = system.frame(q)
        weights = matmul(b.T, system.metric(q))
        return _apply(b, solve_spd(matmul(weights, b), _apply(weights, x)))
    if not system.gives("constraints"):
        return x
    a = system.constraints(q)
    z = solve_spd(system.metric(q), a.T)
    return x - _apply(z, solve_spd(matmul(a, z), _apply(a, x)))


def orthonormal_frame(system: System, q: Array) -> Array:
    """A basis of D at q, orthonormal for the kinetic metric; which one may jump with q."""
    mass = system.metric(q)
    columns: list[Array] = []
    for x in frame_at(system, q).T:
        for y in [*columns, *columns]:
            x = x - y * jnp.sum(y * matvec(mass, x))
        columns.append(x / jnp.sqrt(jnp.sum(x * matvec(mass, x))))
    return jnp.stack(columns, axis=1)


def nearest_frame(system: System, q: Array, b: Array) -> Array:
    """P(q) b N^(-1/2), N the Gram matrix of P(q) b: the orthonormal frame of D at q nearest to b; smooth in q."""
    x = project(system, q, b)
    return matmul(x, inverse_square_root(matmul(x.T, matmul(system.metric(q), x))))


def multipliers(system: System, q: Array, reaction: Array) -> Array:
    """lam with M(q) reaction = A(q)^T lam, for an acceleration that the constraint causes."""
    a = annihilator(system, q)
    return solve_spd(matmul(a, solve_spd(system.metric(q), a.T)), matvec(a, reaction))


def reaction(system: System, q: Array, lam: Array) -> Array:
    """M(q)^-1 A(q)^T lam, the acceleration that multipliers cause."""
    return solve_spd(system.metric(q), matvec(annihilator(system, q).T, lam))


def free_acceleration(system: System, q: Array, v: Array) -> Array:
    """The acceleration without constraints: M^-1 (dL/dq - (d/dq dL/dv) v + forces).

    On a group that of the body velocity: I^-1 (ad_v^T I v - grad V + forces).
    """
    if system.group is not None:
        mass = system.metric(q)
        force = matvec(system.group.bracket(v).T, matvec(mass, v)) + system.forces(q, v)
        return solve_spd(mass, force - potential_gradient(system, q))
    transport = along(system, lambda s, x: jax.grad(s.lagrangian, argnums=1)(x, v), q, v)
    slope = jax.grad(system.lagrangian)(q, v)
    if v.shape != q.shape:  # nothing depends on what the other velocities move
        slope = jnp.concatenate([slope, jnp.zeros_like(v[q.shape[0] :])])
    force = slope - transport + system.forces(q, v)
    return solve_spd(_mass(system, q, v), force)


def acceleration(system: System, q: Array, v: Array) -> tuple[Array, Array]:
    """The acceleration of the constrained motion and its multipliers.

    From d/dt dL/dv - dL/dq = A^T lam + forces with d/dt (A v - b) = 0, or the same in a frame.
    """
    free = free_acceleration(system, q, v)
    mass = _mass(system, q, v)
    if system.gives("frame"):
        b, weights = system.frame(q), matmul(system.frame(q).T, mass)
        gram = matmul(weights, b)
        w = solve_spd(gram, matvec(weights, v - drift_at(system, q) if system.affine else v))

        def moved(s, x):
            return matvec(s.frame(x), w) + drift_at(s, x) if system.affine else matvec(s.frame(x), w)

        turning = along(system, moved, q, v)
        total = turning + matvec(b, solve_spd(gram, matvec(weights, free - turning)))
        a = annihilator(system, q)
        lam = solve_spd(matmul(a, solve_spd(mass, a.T)), matvec(a, total - free))
        return total, lam
    a = system.constraints(q)

    def violation(s, x):
        return (
            matvec(s.constraints(x), v) - offsets_at(s, x) if system.affine else matvec(s.constraints(x), v)
        )

    turning = along(system, violation, q, v)
    z = solve_spd(mass, a.T)
    lam = solve_spd(matmul(a, z), -turning - matvec(a, free))
    return free + matvec(z, lam), lam


def _mass(system: System, q: Array, v: Array) -> Array:
    """d2L/dv2 at (q, v), which for a Lagrangian that is not quadratic differs from the metric."""
    if system.gives("lagrangian"):
        return jax.hessian(system.lagrangian, argnums=1)(q, v)
    return system.metric(q)


def _apply(matrix: Array, x: Array) -> Array:
    return matvec(matrix, x) if x.ndim == 1 else matmul(matrix, x)
