"""Discrete Lagrangians on Lie groups: functions of the increment W = g0^-1 g1, and half kicks of a potential."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete.lagrangians import DiscreteLagrangian
from dalembert.groups import coadjoint
from dalembert.model import Group, Mechanics, Trait
from dalembert.numerics import matvec, newton, unit_rounding

MAPS = ("exp", "cayley", "mid")
"""The maps of the library's own groups; a user's group may have others."""


def pull(m: Mechanics, q: Array) -> Array:
    """grad V(q); zero if no potential is given."""
    return m.potential_gradient(q) if "potential" in m.given else jnp.zeros(())


class OnGroup(DiscreteLagrangian):
    """L_d(g0, g1) = l(W) - (h/2) (V(g0) + V(g1)) on a Lie group, with W = g0^-1 g1 = tau(h u).

    Subclasses define `increment_value`, which is l, and `map_name`, the name of tau, which serves as coordinates of W.
    Momenta are moved to the identity from the left: without a potential, p^- is the derivative of l along
    one-parameter subgroups that multiply W from the left, and p^+ = Ad_W^T p^-.
    """

    supports = frozenset({Trait.GROUP, Trait.AFFINE, Trait.TIMED})

    @property
    def map_name(self) -> str:
        """The name of the map tau."""
        raise NotImplementedError(f"{type(self).__name__} does not name its map")

    def increment_value(self, m: Mechanics, w: Array, h: Array) -> Array:
        """l(W)."""
        raise NotImplementedError(f"{type(self).__name__} does not define increment_value")

    def increment(self, m: Mechanics, u: Array, h: Array) -> Array:
        """W = tau(h u)."""
        return _group(m, self).retraction(self.map_name)[0](h * u)

    def increment_momentum(self, m: Mechanics, u: Array, h: Array) -> Array:
        """p^- without a potential: d/ds l(exp(s y) W) = <p^-, y>."""
        group, w = _group(m, self), self.increment(m, u, h)
        zero = jnp.zeros(group.dimension, w.dtype)
        return jax.grad(lambda y: self.increment_value(m, group.multiply(group.exp(y), w), h))(zero)

    def increment_energy(self, m: Mechanics, u: Array, h: Array) -> Array:
        """-dl/dh at a fixed W: the energy of the step without a potential."""
        return -jax.grad(lambda h, w: self.increment_value(m, w, h))(h, self.increment(m, u, h))

    def rounding(self, h: Array) -> Array | float:
        """The rounding error of velocities that are computed from momenta; zero if it is only relative."""
        return 0.0

    def check(self, m: Mechanics) -> None:
        _group(m, self).retraction(self.map_name)

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        return self.increment_value(m, self.increment(m, u, h), h) - self._potential(m, q0, q1, h)

    def over_step(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        return self.value(m, q0, q1, u, h)

    def _potential(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        return 0.5 * h * (m.potential(q0) + m.later(h).potential(q1))

    def moved(self, m: Mechanics, q: Array, u: Array, h: Array) -> Array:
        group = _group(m, self)
        return group.restore(group.multiply(q, self.increment(m, u, h)))

    def velocity(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        """The velocity of the step from q0 to q1, found by Newton's method for the remainder of g0^-1 g1."""
        group = _group(m, self)
        tau, _ = group.retraction(self.map_name)
        target = group.multiply(group.inverse(q0), q1)
        guess = group.local(target)
        x, _ = newton(
            lambda x: group.local(group.multiply(group.inverse(tau(x)), target)),
            guess,
            1 / (jnp.sum(jnp.abs(guess)) + jnp.finfo(q0.dtype).tiny),
        )
        return x / h

    def partial_derivatives(
        self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array
    ) -> tuple[Array, Array]:
        p = self.increment_momentum(m, u, h)
        pulls = pull(m, q0), pull(m.later(h), q1)
        arrived = coadjoint(_group(m, self), self.increment(m, u, h), p)
        return -p - 0.5 * h * pulls[0], arrived - 0.5 * h * pulls[1]

    def spacetime_derivatives(
        self, m: Mechanics, t: Array, q0: Array, q1: Array, u: Array, h: Array
    ) -> tuple[Array, Array]:
        here, there = m.at(t), m.at(t + h)
        energy = self.increment_energy(here, u, h) + 0.5 * (here.potential(q0) + there.potential(q1))
        first, last = self.partial_derivatives(here, q0, q1, u, h)
        rates = jnp.zeros(()), jnp.zeros(())
        if Trait.TIMED in m.traits:
            rates = tuple(
                0.5 * h * jax.grad(lambda s, q=q: m.at(s).potential(q))(s) for s, q in ((t, q0), (t + h, q1))
            )
        before, after = energy - rates[0], -energy - rates[1]
        return jnp.concatenate([before[None], first]), jnp.concatenate([after[None], last])


def _group(m: Mechanics, rule: DiscreteLagrangian) -> Group:
    if Trait.GROUP not in m.traits:
        raise ValueError(
            f"{type(rule).__name__} is a discrete Lagrangian on Lie groups; {m.label} is given in coordinates"
        )
    return m.space


class Retraction(OnGroup):
    """(h/2) <I u, u> - (h/2) (V(g0) + V(g1)) on a Lie group, for g0^-1 g1 = tau(h u).

    tau is exp, the Cayley map, `mid` on SE(2), or a map of a user's own group. Momenta are moved to the identity from
    the left, so that without a potential p^- = (dtau^-1_{h u})^T I u and p^+ = Ad_W^T p^- with W = tau(h u).
    """

    name: str = eqx.field(default="exp", static=True)

    def __check_init__(self):
        if not isinstance(self.name, str):
            raise ValueError(
                f"Retraction has no map {self.name!r}; choose one of: {', '.join(MAPS)}, or one of your own group"
            )

    @property
    def map_name(self) -> str:
        return self.name

    @property
    def cli_name(self) -> str:
        return self.name if self.name in MAPS else f"map={self.name}"

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        return 0.5 * h * jnp.sum(u * matvec(m.metric(q0), u)) - self._potential(m, q0, q1, h)

    def increment_momentum(self, m: Mechanics, u: Array, h: Array) -> Array:
        group = _group(m, self)
        _, dtau_inverse = group.retraction(self.name)
        return matvec(dtau_inverse(h * u).T, matvec(m.metric(group.identity()), u))

    def increment_energy(self, m: Mechanics, u: Array, h: Array) -> Array:
        return 0.5 * jnp.sum(u * matvec(m.metric(_group(m, self).identity()), u))


class LeftInvariant(OnGroup):
    """A user's own function l of the increment: L_d(g0, g1) = l(g0^-1 g1) - (h/2) (V(g0) + V(g1)) on a Lie group.

    `function(system, w, h)` returns l(W) for the numbers w of the group element W, scaled as an action: it must be
    (h/2) <I u, u> + O(h^2) for W = exp(h u). The library adds the half kicks of the potential, if there is one. Say
    is_symmetric=True if l(W^-1; -h) = -l(W; h); the order is then 2. `retraction` names the map in whose coordinates W
    is sought; the solution does not depend on it.

    Equations: [ferraro2008] section 4.2. With l(W) = tr(J (1 - W))/h on SO(3), where I = tr(J) - J, the flight is that
    of [moser1991]: W J - J W^T = h p^, with p^ the matrix of the cross product with p^-.
    The function sees only W, so its momenta have an error of eps/h.
    """

    function: Callable[..., Any] = eqx.field(static=True)
    is_symmetric: bool = eqx.field(default=False, static=True)
    retraction: str = eqx.field(default="exp", static=True)

    def __check_init__(self):
        if not callable(self.function) or isinstance(self.function, type | DiscreteLagrangian):
            raise ValueError(f"LeftInvariant needs a function of (system, w, h), got {self.function!r}")
        if not isinstance(self.is_symmetric, bool):
            raise ValueError(f"LeftInvariant: is_symmetric must be True or False, got {self.is_symmetric!r}")
        if not isinstance(self.retraction, str):
            raise ValueError(f"LeftInvariant needs the name of a retraction, got {self.retraction!r}")

    @property
    def map_name(self) -> str:
        return self.retraction

    @property
    def order(self) -> int:
        return 2 if self.is_symmetric else 1

    @property
    def symmetric(self) -> bool:
        return self.is_symmetric

    @property
    def cli_name(self) -> str:
        return "own"

    def increment_value(self, m: Mechanics, w: Array, h: Array) -> Array:
        return self.function(m.system, w, h)

    def rounding(self, h: Array) -> Array | float:
        return 64 * unit_rounding(h.dtype) / jnp.abs(h)
