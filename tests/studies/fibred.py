"""Methods that the library does not have: the fibred method on Verlet's driver, and the triple jump."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

import dalembert as da
from dalembert.methods import Claims, Report
from dalembert.model import lower

_YOSHIDA = 1 / (2 - 2 ** (1 / 3))


def direction(system, q):
    """k(xi), the unit vector that the constraint leaves the passenger; xi is the last coordinate."""
    a = lower(system).rows(q)[:, :-1]
    k = jnp.stack([-a[0, 1], a[0, 0]]) if a.shape == (1, 2) else jnp.cross(a[0], a[1])
    return k / jnp.sqrt(jnp.sum(k * k))


class FibredMemory(NamedTuple):
    """The passenger's speed along k."""

    speed: Array


class FibredVerlet(da.Method):
    """FIB-SV: the driver by drift-kick-drift, the passenger by the midpoint rule with k at its midpoint.

    xi_m = xi0 + h eta0/2, eta1 = eta0 - h V'(xi_m), xi1 = xi_m + h eta1/2;
    s = (2 v0 + h km.F(x0)) / (2 + (h^2/2) km.K km), v1 = 2 s - v0, x1 = x0 + h s km, x1' = v1 k(xi1).
    For coupled systems with unit masses, a quadratic U and the driver as the last coordinate.
    """

    def init(self, system, state, h):
        return FibredMemory(jnp.sum(direction(system, state.q) * state.v[:-1]))

    def step(self, system, state, memory, h):
        x, xi, eta, v0 = state.q[:-1], state.q[-1], state.v[-1], memory.speed
        middle = jnp.append(x, xi + 0.5 * h * eta)
        k = direction(system, middle)
        # grad V at (x0, xi_m), and its change along k, which is K k.
        pull, stiff = jax.jvp(system.potential_gradient, (middle,), (jnp.append(k, 0.0),))
        s = (2 * v0 - h * jnp.sum(k * pull[:-1])) / (2 + 0.5 * h**2 * jnp.sum(k * stiff[:-1]))
        v1, eta1 = 2 * s - v0, eta - h * pull[-1]
        q1 = jnp.append(x + h * s * k, middle[-1] + 0.5 * h * eta1)
        new = state.moved(q1, jnp.append(v1 * direction(system, q1), eta1), h)
        return new, FibredMemory(v1), Report.explicit()

    def claims(self, system):
        return Claims(2, energy=False, reversible=True, on_constraint=True, fibred=True)

    def composable(self):
        return None


class TripleJump(da.Composition):
    """Three steps of lengths g h, (1 - 2 g) h, g h with g = 1/(2 - 2^(1/3)): order 4."""

    def step(self, system, state, memory, h):
        def stage(carry, fraction):
            state, memory, solved = carry
            state, memory, report = self.method.step(system, state, memory, fraction * h)
            return (state, memory, solved & report.converged), None

        fractions = jnp.array([_YOSHIDA, 1 - 2 * _YOSHIDA, _YOSHIDA])
        (state, memory, solved), _ = lax.scan(stage, (state, memory, jnp.ones((), bool)), fractions)
        return state, memory, Report.explicit()._replace(converged=solved)

    @property
    def cli_name(self):
        return f"{self.method.cli_name}-triple-jump"
