"""The discrete Lagrangian of a body on a Lie group."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from dalembert.discrete.lagrangians import DiscreteLagrangian, is_one_of
from dalembert.model import Group, Mechanics, Trait
from dalembert.model.groups import coadjoint
from dalembert.numerics import matvec, newton

MAPS = ("exp", "cayley", "mid")


def _group(m: Mechanics) -> Group:
    if Trait.GROUP not in m.traits:
        raise ValueError(
            f"Retraction is a discrete Lagrangian on Lie groups; {m.label} is given in coordinates"
        )
    return m.space


def pull(m: Mechanics, q: Array) -> Array:
    """grad V(q); zero where no potential is given."""
    return m.potential_gradient(q) if "potential" in m.given else jnp.zeros(())


class Retraction(DiscreteLagrangian):
    """(h/2) <I u, u> - (h/2) (V(g0) + V(g1)) on a Lie group, for g0^-1 g1 = tau(h u).

    tau is exp, the Cayley map, or `mid` on SE(2). Momenta are moved to the identity from the left, so that
    p^- = (dtau^-1_{h u})^T I u and p^+ = Ad_W^T p^-, W = tau(h u), where there is no potential.
    """

    name: Literal["exp", "cayley", "mid"] = eqx.field(default="exp", static=True)
    supports = frozenset({Trait.GROUP, Trait.VARYING_MASS, Trait.AFFINE, Trait.TIMED})

    def __check_init__(self):
        if not is_one_of(self.name, MAPS):
            raise ValueError(f"Retraction has no map {self.name!r}; choose one of: {', '.join(MAPS)}")

    @property
    def spelling(self) -> str:
        return self.name

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        kinetic = 0.5 * h * jnp.sum(u * matvec(m.metric(q0), u))
        return kinetic - 0.5 * h * (m.potential(q0) + m.potential(q1))

    def moved(self, m: Mechanics, q: Array, u: Array, h: Array) -> Array:
        group = _group(m)
        return group.restore(group.multiply(q, group.retraction(self.name)[0](h * u)))

    def velocity(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        """By Newton's method for what is left of g0^-1 g1."""
        group = _group(m)
        tau, _ = group.retraction(self.name)
        target = group.multiply(group.inverse(q0), q1)
        guess = group.local(target)
        x, _ = newton(
            lambda x: group.local(group.multiply(group.inverse(tau(x)), target)),
            guess,
            1 / (jnp.sum(jnp.abs(guess)) + jnp.finfo(q0.dtype).tiny),
        )
        return x / h

    def slots(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> tuple[Array, Array]:
        group = _group(m)
        tau, dtau_inverse = group.retraction(self.name)
        p = matvec(dtau_inverse(h * u).T, matvec(m.metric(q0), u))
        pulls = [pull(m, q) for q in (q0, q1)]
        return -p - 0.5 * h * pulls[0], coadjoint(group, tau(h * u), p) - 0.5 * h * pulls[1]
