"""Discrete mechanics in space and time: L_d(t0, q0, t1, q1) and its four derivatives."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from dalembert.discrete.constraints import DiscreteConstraint, constraint_value
from dalembert.discrete.lagrangians import DiscreteLagrangian
from dalembert.discrete.momenta import exterior
from dalembert.model import Mechanics, SpaceTime, lower
from dalembert.numerics import matvec


def spacetime_slots(
    ld: DiscreteLagrangian, m: Mechanics, t: Array, q0: Array, q1: Array, u: Array, h: Array
) -> tuple[Array, Array]:
    """(D1, D2) and (D3, D4) of L_d(t0, q0, t1, q1), each (1 + n): the derivatives with respect to time come first.

    E^- = D1 L_d is the energy with which the step departs, E^+ = -D3 L_d that with which it arrives. t is the time
    of the beginning, and u = (q1 - q0)/h.
    """
    return ld.spacetime_slots(m, t, q0, q1, u, h)


def spacetime_constraint(
    constraint: DiscreteConstraint, m: Mechanics, t: Array, q0: Array, q1: Array, u: Array, h: Array
) -> Array:
    """(m,) the discrete constraint over a step that begins at t."""
    return constraint_value(constraint, m.at(t), q0, q1, u, h)


def spacetime_forms(m: Mechanics, z: Array) -> Array:
    """(m, 1 + n) the one-forms (omega0, omega) = (-b, A) at z = (t, q)."""
    return lower(SpaceTime(m.system)).rows(z)


def between(z0: Array, z1: Array) -> tuple[Array, Array, Array, Array, Array]:
    """t0, q0, q1, u and h of the step from z0 = (t0, q0) to z1."""
    h = z1[0] - z0[0]
    return z0[0], z0[1:], z1[1:], (z1[1:] - z0[1:]) / h, h


def spacetime_momentum_residual(
    ld: DiscreteLagrangian, m: Mechanics, section: Callable[[Array], Array], z: Array
) -> Array:
    """The momentum equation of a horizontal symmetry of space and time, at three points z (3, 1 + n) of a run.

    Equations: [cortes2003] (7) with the time's component: J(1, 2) - J(0, 1) = <(D3, D4) L_d(1, 2), (xi(2) - xi(1))>,
    J = <(D3, D4) L_d, xi>, for generators of the group in space and time. Zero where L_d is invariant.
    """
    whole = lower(SpaceTime(m.system))
    arrived = [spacetime_slots(ld, m, *between(z[i], z[i + 1]))[1] for i in range(2)]
    momenta = [matvec(whole.generators(z[i + 1]).T, arrived[i]) for i in range(2)]
    change = jnp.sum(momenta[1] * section(z[2])) - jnp.sum(momenta[0] * section(z[1]))
    return change - jnp.sum(momenta[1] * (section(z[2]) - section(z[1])))


def spacetime_form(ld: DiscreteLagrangian, m: Mechanics, x: Array) -> Array:
    """(2 + 2n, 2 + 2n) the matrix of Omega = -d(theta), theta = -(D1, D2) L_d dz0, at x = (z0, z1)."""
    size = x.shape[0] // 2

    def theta(x):
        return jnp.concatenate([-spacetime_slots(ld, m, *between(x[:size], x[size:]))[0], jnp.zeros(size)])

    return -exterior(theta, x)
