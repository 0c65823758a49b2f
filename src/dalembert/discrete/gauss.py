"""The action of the best polynomial path, by Gauss quadrature."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.discrete.lagrangians import DiscreteLagrangian, is_whole, plain
from dalembert.model import Mechanics, SpaceTime
from dalembert.numerics import newton, solve_spd


class Gauss(DiscreteLagrangian):
    """The action of the best polynomial path of degree `stages`, by Gauss quadrature: order 2 stages.

    Equations: [hairer2006] VI.6.2. The path has velocities u + sum_k P_k(c_i) z_k at the nodes c_i, P_k the shifted
    Legendre polynomials, so that it ends at q1 whatever z is; z makes the sum of the Lagrangians stationary. One
    stage is the midpoint rule.
    """

    stages: int = eqx.field(default=2, static=True, converter=plain)

    def __check_init__(self):
        if not is_whole(self.stages) or not 1 <= self.stages <= 6:
            raise ValueError(f"Gauss needs 1 to 6 stages, got {self.stages!r}")

    @property
    def order(self) -> int:
        return 2 * self.stages

    @property
    def spelling(self) -> str:
        return f"gauss={self.stages}"

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        nodes, weights, bends, shifts = _legendre(self.stages)
        inner = self.stages - 1

        clock = isinstance(m.system, SpaceTime)  # time goes on evenly

        def action(z, q0, q1, u):
            z = z.reshape(inner, q0.shape[0] - clock)
            if clock:
                z = jnp.concatenate([jnp.zeros((inner, 1), q0.dtype), z], axis=1)
            total = jnp.zeros((), q0.dtype)
            for i in range(self.stages):
                v = u + sum((bends[k, i] * z[k] for k in range(inner)), jnp.zeros_like(u))
                q = (1 - nodes[i]) * q0 + nodes[i] * q1
                q = q + h * sum((shifts[k, i] * z[k] for k in range(inner)), jnp.zeros_like(u))
                total = total + weights[i] * h * m.lagrangian(q, v)
            return total

        if not inner:
            return action(jnp.zeros((0,), q0.dtype), q0, q1, u)
        fall = h * solve_spd(m.metric(q0), m.potential_gradient(q0))
        resolved = jnp.finfo(q0.dtype).eps * jnp.sum(jnp.abs(q0)) / jnp.abs(h)
        natural = jnp.sum(jnp.abs(u)) + jnp.sum(jnp.abs(fall)) + resolved + jnp.finfo(q0.dtype).tiny
        z, info = newton(
            lambda z: jax.grad(action)(z, q0, q1, u),
            jnp.zeros(inner * (q0.shape[0] - clock), q0.dtype),
            1 / natural,
            noise=64 * resolved / natural,
        )
        # A path that was not found makes the step fail, and the run reports it.
        return jnp.where(info.converged, action(z, q0, q1, u), jnp.nan)


def _legendre(stages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1]; shifted Legendre polynomials of degree 1, 2, ... at the nodes, and their integrals
    from 0."""
    x, w = np.polynomial.legendre.leggauss(stages)
    polynomials = [np.polynomial.Legendre.basis(k + 1) for k in range(stages - 1)]
    bends = np.array([p(x) for p in polynomials]).reshape(stages - 1, stages)
    shifts = np.array([p.integ(lbnd=-1)(x) / 2 for p in polynomials]).reshape(stages - 1, stages)
    return (x + 1) / 2, w / 2, bends, shifts
