"""The geometric nonholonomic integrator on Lie groups."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from dalembert.discrete import Retraction
from dalembert.discrete.lagrangians import MAPS, pull
from dalembert.groups import coadjoint
from dalembert.methods.base import Claims, Report
from dalembert.methods.gni import constant, spelled
from dalembert.methods.reflecting import Reflecting
from dalembert.model import Group, Mechanics, System, Trait, lower
from dalembert.numerics import matvec, newton, solve, solve_spd


class LieGNI(Reflecting):
    """The geometric nonholonomic integrator on a Lie group, for any inertia and body constraint a(g): order 2.

    Equations: [ferraro2008] section 4.2, with L_d(g0, g1) = (h/2) <I xi, xi> for g0^-1 g1 = W = tau(h xi) and
    momenta moved to the identity from the left:
        (dtau^-1_{h xi})^T I xi = p_0,   g1 = g0 W,   p^+ = Ad_W^T p_0,   p_1 = (1 - 2 Q(g1)^T) p^+.
    A potential adds (h/2)(V(g0) + V(g1)) to -L_d, that is, two half kicks. tau is exp, the Cayley map, or `mid` on
    SE(2). dtau^-1 is trivialised on the right, and Ad^* stands for (Ad_W)^T, without an inverse.
    Memory: u = I^-1 p; see Reflecting.
    """

    retraction: str = eqx.field(
        default="exp", static=True, converter=lambda x: x.name if isinstance(x, Retraction) else x
    )
    supports = frozenset({Trait.GROUP, Trait.VARYING_MASS})

    def __check_init__(self):
        if not isinstance(self.retraction, str):
            raise ValueError(
                f"LieGNI needs a retraction by its name, one of: {', '.join(MAPS)}, or as Retraction(name); got "
                f"{self.retraction!r}"
            )

    def free_step(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[Array, Array, Report]:
        group = m.space
        tau, dtau_inverse = group.retraction(self.retraction)
        mass = m.metric(q)
        p = matvec(mass, u) - 0.5 * h * pull(m, q)
        guess = solve_spd(mass, p)

        def equations(xi):
            return solve_spd(mass, matvec(dtau_inverse(h * xi).T, matvec(mass, xi)) - p)

        size = jnp.sum(jnp.abs(guess)) + jnp.finfo(q.dtype).tiny
        xi, info = newton(equations, guess, 1 / size)
        w = tau(h * xi)
        q1 = group.restore(group.multiply(q, w))
        arriving = coadjoint(group, w, p) - 0.5 * h * pull(m, q1)
        return q1, solve_spd(mass, arriving), Report(*info)

    def departure(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        rule = Retraction(self.retraction)  # pyright: ignore[reportArgumentType]
        u = rule.velocity(m, q0, q1, h)
        return solve(m.metric(q0), -rule.partial_derivatives(m, q0, q1, u, h)[0])

    def check(self, system: System | Mechanics) -> None:
        super().check(system)
        lower(system).space.retraction(self.retraction)

    def claims(self, system: System) -> Claims:
        m = lower(system)
        return Claims(
            2,
            energy=self.restart_every is None
            and constant(m, "potential")
            and keeps_energy(m.space, m.metric(m.space.identity()), self.retraction),
            reversible=self.restart_every is None,
            on_constraint=not m.constrained,
            fibred=True,
        )

    @property
    def cli_name(self) -> str:
        return spelled("lie-gni", self.retraction, "exp", self)


def keeps_energy(group: Group, inertia: Array, retraction: str) -> bool:
    """Whether a free flight conserves the energy exactly: H(Ad_W^T p) = H(p) for the p that belongs to W.

    This holds for bi-invariant metrics (Theorem 1 of [ferraro2008]), and it may hold for others. The function measures
    it for a few velocities.
    """
    tau, dtau_inverse = group.retraction(retraction)
    directions = jnp.cos(jnp.arange(3 * group.dimension, dtype=float).reshape(3, -1) * 1.7 + 0.3)
    for x in directions:
        p = matvec(dtau_inverse(x).T, matvec(inertia, x))
        after = coadjoint(group, tau(x), p)
        before, after = (jnp.sum(y * solve(inertia, y)) for y in (p, after))
        if not abs(after - before) <= 1e-12 * before:
            return False
    return True
