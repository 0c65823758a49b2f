"""Projectors, discrete momentum maps, and the two-form of a discrete Lagrangian."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete.lagrangians import DiscreteLagrangian, d1, d2
from dalembert.model import Mechanics, Trait, lower, project
from dalembert.numerics import matvec

Section = Callable[[Array], Array]


def projectors(m: Mechanics, q: Array) -> tuple[Array, Array]:
    """P(q) onto D and Q(q) = 1 - P(q), orthogonal for the kinetic metric; from the frame where there is one, which
    stays regular where one-forms lose rank.

    Erratum: [ferraro2008] section 4.1 allows any metric here; with one that has another complement of D the method
    converges to the motion of a different system.
    """
    one = jnp.eye(m.velocity_dimension, dtype=q.dtype)
    p = project(m, q, one)
    return p, one - p


def momentum_map(ld: DiscreteLagrangian, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
    """(k,) the discrete momentum <D2 L_d(q0, q1), xi_Q(q1)> for each generator of the system.

    Of a rheonomic system, given as system.at(t0), that of space and time, <(D3, D4) L_d, xi_Q(t1, q1)>.
    """
    m = lower(m)
    if Trait.TIMED not in m.traits:
        return matvec(m.generators(q1).T, d2(ld, m, q0, q1, h))
    if m.t is None:
        raise ValueError(
            f"{m.label} depends on time, so its discrete momentum does too; give {m.label}.at(t0), t0 the "
            "time at which the step begins"
        )
    u = ld.velocity(m, q0, q1, h)
    arrived = ld.spacetime_slots(m, m.t, q0, q1, u, h)[1]
    return matvec(m.later(h).generators(q1).T, arrived)


def nonholonomic_momentum(
    ld: DiscreteLagrangian, m: Mechanics, section: Section, q0: Array, q1: Array, h: Array
) -> Array:
    """J_nh(q0, q1) = <D2 L_d(q0, q1), xi(q1)_Q(q1)> for a section xi of the bundle g^D."""
    return jnp.sum(momentum_map(ld, m, q0, q1, h) * section(q1))


def momentum_residual(
    ld: DiscreteLagrangian, m: Mechanics, section: Section, q0: Array, q1: Array, q2: Array, h: Array
) -> Array:
    """The discrete momentum equation at three configurations of a run; zero where L_d is invariant.

    Equations: [ferraro2008] Theorem 2:
        J(q1, q2) - J(q0, q1) = <D2 L_d(q1, q2), (xi(q2) - xi(q1))_Q(q2)>.
    """
    change = nonholonomic_momentum(ld, m, section, q1, q2, h)
    change = change - nonholonomic_momentum(ld, m, section, q0, q1, h)
    return change - jnp.sum(momentum_map(ld, m, q1, q2, h) * (section(q2) - section(q1)))


def exterior(form: Callable[[Array], Array], x: Array) -> Array:
    """The matrix of d(form) at x, for a one-form given by its components."""
    derivative = jax.jacfwd(form)(x)
    return derivative.T - derivative


def symplectic_form(ld: DiscreteLagrangian, m: Mechanics, x: Array, h: Array) -> Array:
    """(2n, 2n) the matrix of Omega = -d(p^- dq0) at x = (q0, q1)."""
    n = m.dimension

    def canonical(x):
        return jnp.concatenate([-d1(ld, m, x[:n], x[n:], h), jnp.zeros_like(x[n:])])

    return -exterior(canonical, x)
