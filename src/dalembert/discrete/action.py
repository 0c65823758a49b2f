"""The action sum and what its derivative consists of: the discrete Euler-Lagrange operator, one-forms and energies.

Functions of configurations take a rheonomic system as system.at(t0), where t0 is the time at which the first step
begins. Functions of space and time take points z = (t, q), and any system.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete.lagrangians import DiscreteLagrangian, d1, d2
from dalembert.discrete.momenta import spacetime_derivatives, step_between
from dalembert.model import Mechanics, System, Trait, lower


def _at_start(system: System | Mechanics) -> Mechanics:
    m = lower(system)
    if Trait.TIMED in m.traits and m.t is None:
        raise ValueError(
            f"{m.label} depends on time; give {m.label}.at(t0), where t0 is the time at which the first step begins, "
            "or use the function of space and time, whose points hold their times"
        )
    return m


def action_sum(ld: DiscreteLagrangian, system: System | Mechanics, q: Array, h: Array) -> Array:
    """S_d = L_d(q_0, q_1) + ... + L_d(q_{N-1}, q_N) for configurations q of shape (N + 1, n), with steps of size h.

    Equations: [ferraro2008] section 2.
    """
    m, q = _at_start(system), jnp.asarray(q, float)
    begun = h * jnp.arange(len(q) - 1)
    return jnp.sum(jax.vmap(lambda t, q0, q1: ld(m.later(t), q0, q1, h))(begun, q[:-1], q[1:]))


def euler_lagrange(
    ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, q2: Array, h: Array
) -> Array:
    """D_DEL L_d(q0, q1, q2) = D1 L_d(q1, q2) + D2 L_d(q0, q1), a covector at q1, shape (n,).

    It is the derivative of the action sum by q1. A discrete motion without constraints makes it zero; by the discrete
    Lagrange-d'Alembert principle, it is zero on D, so that it is a combination of the one-forms.

    Equations: [ferraro2008] (3); [cortes2003] Theorem 2.
    """
    m = _at_start(system)
    return d1(ld, m.later(h), q1, q2, h) + d2(ld, m, q0, q1, h)


def theta_plus(ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, h: Array) -> Array:
    """The one-form Theta^+ = D2 L_d(q0, q1) dq1 on pairs of configurations, shape (2n,): one number per dq0 and dq1."""
    p = d2(ld, _at_start(system), q0, q1, h)
    return jnp.concatenate([jnp.zeros_like(p), p])


def theta_minus(ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, h: Array) -> Array:
    """The one-form Theta^- = -D1 L_d(q0, q1) dq0 on pairs of configurations, shape (2n,).

    dL_d = Theta^+ - Theta^-, and Omega = -d Theta^+ = -d Theta^- is `symplectic_form`.
    """
    p = -d1(ld, _at_start(system), q0, q1, h)
    return jnp.concatenate([p, jnp.zeros_like(p)])


def spacetime_action_sum(ld: DiscreteLagrangian, system: System | Mechanics, z: Array) -> Array:
    """The action sum over points z = (t, q) of space and time, shape (N + 1, 1 + n), whose steps may differ in size.

    Equations: [cortes2003] section 2.
    """
    m, z = lower(system), jnp.asarray(z, float)

    def one(z0, z1):
        t, *step = step_between(ld, m, z0, z1)
        return ld.over_step(m.at(t), *step)

    return jnp.sum(jax.vmap(one)(z[:-1], z[1:]))


def _halves(ld: DiscreteLagrangian, system: Any, z0: Array, z1: Array) -> tuple[Array, Array]:
    return spacetime_derivatives(ld, system, *step_between(ld, system, z0, z1))


def spacetime_euler_lagrange(
    ld: DiscreteLagrangian, system: System | Mechanics, z0: Array, z1: Array, z2: Array
) -> Array:
    """D_DEL L_d at three points of space and time, a covector at z1, shape (1 + n,).

    The first number is D3 L_d(z0, z1) + D1 L_d(z1, z2) = E^-(z1, z2) - E^+(z0, z1), the change of the energy.

    Equations: [cortes2003] Theorem 2 and (3).
    """
    return _halves(ld, system, z0, z1)[1] + _halves(ld, system, z1, z2)[0]


def spacetime_theta_plus(ld: DiscreteLagrangian, system: System | Mechanics, z0: Array, z1: Array) -> Array:
    """The one-form Theta^+ = D3 L_d dt1 + D4 L_d dq1 on pairs of points, shape (2 + 2n,).

    Equations: [cortes2003] Theorem 2.
    """
    arrived = _halves(ld, system, z0, z1)[1]
    return jnp.concatenate([jnp.zeros_like(arrived), arrived])


def spacetime_theta_minus(ld: DiscreteLagrangian, system: System | Mechanics, z0: Array, z1: Array) -> Array:
    """The one-form Theta^- = -D1 L_d dt0 - D2 L_d dq0 on pairs of points, shape (2 + 2n,).

    Equations: [cortes2003] Theorem 2, where the second Theta^+ must be Theta^-.
    """
    departed = _halves(ld, system, z0, z1)[0]
    return jnp.concatenate([-departed, jnp.zeros_like(departed)])


def energy_plus(ld: DiscreteLagrangian, system: System | Mechanics, z0: Array, z1: Array) -> Array:
    """The energy E^+ = -D3 L_d(t0, q0, t1, q1) with which the step arrives."""
    return -_halves(ld, system, z0, z1)[1][0]


def energy_minus(ld: DiscreteLagrangian, system: System | Mechanics, z0: Array, z1: Array) -> Array:
    """The energy E^- = D1 L_d(t0, q0, t1, q1) with which the step departs; E^+ if time does not enter L_d."""
    return _halves(ld, system, z0, z1)[0][0]
