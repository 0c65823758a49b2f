"""Projectors, discrete momentum maps, and the two-form of a discrete Lagrangian."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete.constraints import DiscreteConstraint, constraint_value
from dalembert.discrete.lagrangians import DiscreteLagrangian, d1, d2
from dalembert.model import Mechanics, SpaceTime, System, Trait, lower, project
from dalembert.numerics import matvec

Section = Callable[[Array], Array]


def projectors(system: System | Mechanics, q: Array) -> tuple[Array, Array]:
    """The projectors P(q) onto D and Q(q) = 1 - P(q), orthogonal for the kinetic metric.

    They are computed from the frame if there is one, because it stays regular where one-forms lose rank.

    Erratum: [ferraro2008] section 4.1 allows any metric here. With a metric that has another complement of D, the
    method converges to the motion of a different system.
    """
    m = lower(system)
    one = jnp.eye(m.velocity_dimension, dtype=q.dtype)
    p = project(m, q, one)
    return p, one - p


def momentum_map(ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, h: Array) -> Array:
    """The discrete momentum <D2 L_d(q0, q1), xi_Q(q1)>, shape (k,): one number per generator of the system.

    For a rheonomic system, given as system.at(t0), it is the momentum in space and time,
    <(D3, D4) L_d, xi_Q(t1, q1)>.
    """
    m = lower(system)
    if Trait.TIMED not in m.traits:
        return matvec(m.generators(q1).T, d2(ld, m, q0, q1, h))
    if m.t is None:
        raise ValueError(
            f"{m.label} depends on time, so its discrete momentum does too; give {m.label}.at(t0), where t0 is the "
            "time at which the step begins"
        )
    u = ld.velocity(m, q0, q1, h)
    arrived = ld.spacetime_derivatives(m, m.t, q0, q1, u, h)[1]
    return matvec(m.later(h).generators(q1).T, arrived)


def nonholonomic_momentum(
    ld: DiscreteLagrangian, system: System | Mechanics, section: Section, q0: Array, q1: Array, h: Array
) -> Array:
    """J_nh(q0, q1) = <D2 L_d(q0, q1), xi(q1)_Q(q1)> for a section xi of the bundle g^D."""
    return jnp.sum(momentum_map(ld, system, q0, q1, h) * section(q1))


def momentum_residual(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    section: Section,
    q0: Array,
    q1: Array,
    q2: Array,
    h: Array,
) -> Array:
    """The residual of the discrete momentum equation at three configurations of a run; zero if L_d is invariant.

    Equations: [ferraro2008] Theorem 2:
        J(q1, q2) - J(q0, q1) = <D2 L_d(q1, q2), (xi(q2) - xi(q1))_Q(q2)>.
    """
    change = nonholonomic_momentum(ld, system, section, q1, q2, h)
    change = change - nonholonomic_momentum(ld, system, section, q0, q1, h)
    return change - jnp.sum(momentum_map(ld, system, q1, q2, h) * (section(q2) - section(q1)))


def exterior(form: Callable[[Array], Array], x: Array) -> Array:
    """The matrix of d(form) at x, for a one-form given by its components."""
    derivative = jax.jacfwd(form)(x)
    return derivative.T - derivative


def symplectic_form(ld: DiscreteLagrangian, system: System | Mechanics, x: Array, h: Array) -> Array:
    """The matrix of Omega = -d(p^- dq0) at x = (q0, q1), shape (2n, 2n)."""
    n = system.dimension

    def canonical(x):
        return jnp.concatenate([-d1(ld, system, x[:n], x[n:], h), jnp.zeros_like(x[n:])])

    return -exterior(canonical, x)


def spacetime_derivatives(
    ld: DiscreteLagrangian, system: System | Mechanics, t: Array, q0: Array, q1: Array, u: Array, h: Array
) -> tuple[Array, Array]:
    """(D1, D2) and (D3, D4) of L_d(t0, q0, t1, q1), each of shape (1 + n,), with the derivative by time first.

    E^- = D1 L_d is the energy with which the step departs, and E^+ = -D3 L_d is the energy with which it arrives. t is
    the time at which the step begins, and u = (q1 - q0)/h.
    """
    return ld.spacetime_derivatives(lower(system), t, q0, q1, u, h)


def spacetime_constraint(
    constraint: DiscreteConstraint,
    system: System | Mechanics,
    t: Array,
    q0: Array,
    q1: Array,
    u: Array,
    h: Array,
) -> Array:
    """The discrete constraint over a step that begins at t, shape (m,)."""
    return constraint_value(constraint, lower(system).at(t), q0, q1, u, h)


def spacetime_forms(system: System | Mechanics, z: Array) -> Array:
    """The one-forms (omega0, omega) = (-b, A) at z = (t, q), shape (m, 1 + n)."""
    return lower(SpaceTime(lower(system).system)).rows(z)


def between(z0: Array, z1: Array) -> tuple[Array, Array, Array, Array, Array]:
    """The values t0, q0, q1, u and h of the step from z0 = (t0, q0) to z1."""
    h = z1[0] - z0[0]
    return z0[0], z0[1:], z1[1:], (z1[1:] - z0[1:]) / h, h


def spacetime_momentum_residual(
    ld: DiscreteLagrangian, system: System | Mechanics, section: Callable[[Array], Array], z: Array
) -> Array:
    """The residual of the momentum equation of a horizontal symmetry of space and time, at three points of a run.

    z has shape (3, 1 + n). The residual is zero if L_d is invariant.

    Equations: [cortes2003] (7) with the time component: J(1, 2) - J(0, 1) = <(D3, D4) L_d(1, 2), (xi(2) - xi(1))>,
    J = <(D3, D4) L_d, xi>, for generators of the group in space and time.
    """
    whole = lower(SpaceTime(lower(system).system))
    arrived = [spacetime_derivatives(ld, system, *between(z[i], z[i + 1]))[1] for i in range(2)]
    momenta = [matvec(whole.generators(z[i + 1]).T, arrived[i]) for i in range(2)]
    change = jnp.sum(momenta[1] * section(z[2])) - jnp.sum(momenta[0] * section(z[1]))
    return change - jnp.sum(momenta[1] * (section(z[2]) - section(z[1])))


def spacetime_form(ld: DiscreteLagrangian, system: System | Mechanics, x: Array) -> Array:
    """The matrix of Omega = -d(theta), theta = -(D1, D2) L_d dz0, at x = (z0, z1), shape (2 + 2n, 2 + 2n)."""
    size = x.shape[0] // 2

    def theta(x):
        return jnp.concatenate(
            [-spacetime_derivatives(ld, system, *between(x[:size], x[size:]))[0], jnp.zeros(size)]
        )

    return -exterior(theta, x)
