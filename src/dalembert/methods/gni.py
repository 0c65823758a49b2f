"""The geometric nonholonomic integrators, in coordinates and on groups: free steps, and reflections between them."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.discrete import (
    DiscreteLagrangian,
    LeftInvariant,
    Midpoint,
    OnGroup,
    Retraction,
    as_lagrangian,
    check_lagrangian,
    check_rules,
    legendre_minus,
    partial_derivatives,
)
from dalembert.discrete.complement import check_metric_shape, check_projector_metric
from dalembert.discrete.lagrangians import is_one_of, is_whole, plain
from dalembert.discrete.on_groups import MAPS, pull
from dalembert.groups import coadjoint
from dalembert.methods.base import Claims, Method, Report, State, Status, nearly_solved, solve_velocity
from dalembert.methods.legendre import (
    allowed_velocity,
    is_general,
    mass_at,
    momentum,
    reactions,
    tangent_velocity,
    velocity,
)
from dalembert.model import (
    TOLERANCE,
    Mechanics,
    System,
    Trait,
    acceleration,
    is_symmetric,
    lower,
    multipliers,
    nearest_velocity,
    project,
    reaction,
)
from dalembert.numerics import (
    compiled,
    extrapolated_step,
    is_syntactically_constant,
    matvec,
    newton,
    solve,
    solve_spd,
)

STARTS = ("half-kick", "momentum", "exact")
# A run warns of the parasitic part of the velocity if it has grown tenfold and exceeds this fraction of the speed.
_LOUD = 1e-2


_KINETIC_ALONE = {
    Trait.HOLONOMIC: "its position constraints are satisfied as in RATTLE, whose projection is that of the kinetic "
    "metric",
    Trait.GENERAL_LAGRANGIAN: "its Lagrangian is not kinetic minus potential energy, so that no kinetic metric belongs "
    "to q alone, and complements of D cannot be compared",
    Trait.INDEFINITE: "its kinetic metric is indefinite, so that there are no angles by which complements of D "
    "could be compared",
}
"""Why systems with some traits need the projectors of the kinetic metric."""


def _as_metric(given: Any) -> Any:
    if given is not None and (not callable(given) or isinstance(given, type)):
        raise ValueError(
            "metric must be a function of q that returns a symmetric matrix, such as lambda q: jnp.eye(3), or None for "
            f"the kinetic metric; got {given!r}"
        )
    return given


class ReflectingMemory(NamedTuple):
    """The method's own velocity u = M^-1 p^-, and the number of steps since the last restart."""

    u: Array
    count: Array


def half_kick(m: Mechanics, q: Array, v: Array, h: Array) -> Array:
    """v + (h/2) M^-1 A^T lam with the multipliers of the exact motion; with position constraints, what they allow."""
    lam = acceleration(m, q, v)[1]
    if is_general(m):
        p = momentum(m, q, v) + 0.5 * h * matvec(m.rows(q).T, lam)
        return tangent_velocity(m, q, velocity(m, q, p, v))
    return tangent_velocity(m, q, v + 0.5 * h * reaction(m, q, lam))


class Reflecting(Method):
    """A free flight of the discrete Lagrangian from (q0, p^-) to (q1, p^+), then p^- = (P - Q)^T p^+ at q1.

    Subclasses define `free_step(system, q0, u, h)`, which returns q1, the velocity M^-1 p^+ and the report, and
    `departure(system, q0, q1, h)`, which returns the velocity M^-1 p^- with which a flight from q0 ends at q1.
    Memory: u = M^-1 p^-. The phase space is all of TQ: in addition to the motion, u has a parasitic part normal to D
    that changes sign every step. start="half-kick" leaves it at O(h^3) and "momentum" at O(h); "exact" takes q1 from
    the exact motion. Every `restart_every` steps the parasitic part is removed, for motions that contract volume,
    where it must grow. The multipliers of a row are the exact ones to order 2, plus the parasitic part times 2/h,
    which is O(1) after "momentum" and O(h) after "exact".
    P and Q are the projectors of the kinetic metric or, if `metric` is given, of that metric G(q): a function of q that
    returns a symmetric positive definite matrix (on groups, in body coordinates; for rheonomic systems, a function of
    t and q). The states do not depend on G as long as its complement of D is the kinetic one, d^T G n = 0 for d in D
    and n in M^-1 A^T, which is checked before a run and in every step. Any other G is refused, unless
    any_complement=True says that such runs are to be studied: the mean momentum p = (p^+ + p^-)/2 then satisfies
    A G^-1 p = 0, and `v` is M^-1 p, which does not satisfy the constraint. They do not converge to the motion.
    """

    start: Literal["half-kick", "momentum", "exact"] = eqx.field(
        default="half-kick", static=True, kw_only=True
    )
    restart_every: int | None = eqx.field(default=None, static=True, kw_only=True, converter=plain)
    metric: Callable[..., Any] | None = eqx.field(
        default=None, static=True, kw_only=True, converter=_as_metric
    )
    any_complement: bool = eqx.field(default=False, static=True, kw_only=True)
    supports = Method.supports | {Trait.VARYING_MASS, Trait.INDEFINITE}

    def __check_init__(self):
        name = type(self).__name__
        if not is_one_of(self.start, STARTS):
            raise ValueError(f"{name} has no start {self.start!r}; choose one of: {', '.join(STARTS)}")
        n = self.restart_every
        if n is not None and (not is_whole(n) or not 1 <= n < 2**62):
            raise ValueError(f"{name}: restart_every must be None or a whole number of at least 1, got {n!r}")
        if not isinstance(self.any_complement, bool):
            raise ValueError(f"{name}: any_complement must be True or False, got {self.any_complement!r}")
        if self.any_complement and self.metric is None:
            raise ValueError(
                f"{name}: any_complement=True is about the metric of the projectors; give metric="
            )
        if self.any_complement and n is not None:
            raise ValueError(
                f"{name}: restart_every removes the part of the velocity normal to D, but with any_complement=True no "
                "velocity of the run lies in D; give one of the two"
            )

    @property
    def parasitic(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the own velocity is v plus half a kick plus a part that alternates in sign."""
        return not self.any_complement

    @property
    def velocity_allowed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether v satisfies the constraint."""
        return not self.any_complement

    def metric_at(self, m: Mechanics, q: Array) -> Array:
        """The matrix of the metric that defines the projectors."""
        if self.metric is None:
            return m.metric(q)
        return self.metric(m.t, q) if Trait.TIMED in m.traits else self.metric(q)

    def along(self, m: Mechanics, q: Array, x: Array) -> Array:
        """M^-1 P^T M x, which is P x for the kinetic metric; P^T = G P G^-1."""
        if self.metric is None or not m.constrained:
            return project(m, q, x)
        mass, metric = m.metric(q), self.metric_at(m, q)
        raised = solve_spd(metric, matvec(mass, x))
        return solve_spd(mass, matvec(metric, project(m, q, raised, metric)))

    def mean(self, m: Mechanics, q: Array, u: Array) -> Array:
        """M^-1 of the mean momentum (p^+ + p^-)/2 at q, if one of the two is M u; an allowed velocity, unless the
        metric has another complement of D. Affine constraints are reflected about their drift."""
        if self.metric is None:
            return allowed_velocity(m, q, u)
        drift = m.drift(q)
        return drift + self.along(m, q, u - drift)

    def _wrong_metric(self, m: Mechanics, q: Array, v: Array, plus: Array) -> Array | None:
        """Whether the metric shows here, after the checks before the run, that it is not one for these projectors."""
        if self.metric is None or not m.constrained:
            return None
        metric = self.metric_at(m, q)
        wrong = ~is_symmetric(metric, metric)
        if self.any_complement:
            return wrong
        mass = m.metric(q)

        def length(x):
            return jnp.sqrt(jnp.sum(x * matvec(mass, x)))

        # Both velocities are those of the flight; the tangent of the angle is at most twice the tolerance of its sine.
        size = length(m.relative(q, v)) + length(m.relative(q, plus))
        return wrong | (length(v - nearest_velocity(m, q, v)) > 2 * TOLERANCE * size)

    def check(self, system: System | Mechanics) -> None:
        m = lower(system)
        for trait, why in _KINETIC_ALONE.items():
            if self.metric is not None and trait in m.traits:
                raise ValueError(
                    f"{type(self).__name__} with a metric of your own does not take {m.label}: {why}. Leave the "
                    "metric out"
                )
        super().check(system)
        if self.metric is not None:
            check_metric_shape(self, m)

    def check_metric(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        """Refuses a metric of the user's own that does not fit the system around a start."""
        if self.metric is not None:
            check_projector_metric(self, system, q0, v0, t0)

    def with_metric(self, m: Mechanics, claims: Claims) -> Claims:
        """The claims, without those that fail for projectors with another complement of D. The rest holds because the
        reaction stays a combination of the one-forms, and because the reflection undoes itself."""
        if not self.any_complement or not m.constrained:
            return claims
        return claims._replace(order=0, energy=False)

    def departure(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        """M^-1 p^- of the flight from q0 to q1."""
        raise NotImplementedError(f"{type(self).__name__} does not define departure")

    def reflect(self, m: Mechanics, q: Array, plus: Array) -> tuple[Array, Array]:
        """P u and (P - Q) u for u = M^-1 p^+, of which position constraints first take what they do not allow."""
        plus = tangent_velocity(m, q, plus)
        v = self.mean(m, q, plus)
        if is_general(m) and self.metric is None:
            return v, velocity(m, q, 2 * momentum(m, q, v) - momentum(m, q, plus), 2 * v - plus)
        return v, 2 * v - plus

    def init(self, m: Mechanics, state: State, h: Array) -> ReflectingMemory:
        q, v, t = state.q, state.v, state.t
        u, here = v, m.at(t)
        if self.start == "half-kick":
            u = half_kick(here, q, v, h)
        elif self.start == "exact":
            n, clock = q.shape[0], jnp.zeros((), q.dtype) if t is None else t

            def field(z):
                q, v, now = z[:n], z[n:-1], m.at(z[-1])
                return jnp.concatenate(
                    [now.space.velocity(q, v), acceleration(now, q, v)[0], jnp.ones(1, q.dtype)]
                )

            z = jnp.concatenate([q, v, clock[None]])
            u = tangent_velocity(here, q, self.departure(here, q, extrapolated_step(field, z, h)[:n], h))
        return ReflectingMemory(u, jnp.zeros((), jnp.int32))

    def step(self, m: Mechanics, state: State, memory: ReflectingMemory, h: Array):
        q1, plus, report = self.free_step(m.at(state.t), state.q, memory.u, h)
        new = state.moved(q1, state.v, h)
        here = m.at(new.t)
        v1, u1 = self.reflect(here, q1, plus)
        wrong = self._wrong_metric(here, q1, v1, plus)
        if wrong is not None:
            codes = (x.code for x in (Status.OTHER_COMPLEMENT, Status.OK))
            report = report._replace(trouble=jnp.where(wrong, *map(jnp.int32, codes)))
        count = memory.count
        if self.restart_every is not None:
            count = count + 1
            due = count == self.restart_every
            u1 = lax.cond(due, lambda: half_kick(here, q1, v1, h), lambda: u1)
            count = jnp.where(due, 0, count).astype(jnp.int32)
        return new._replace(v=v1), ReflectingMemory(u1, count), report

    def output(self, m: Mechanics, state: State, memory: ReflectingMemory, h: Array) -> tuple[Array, Array]:
        here, q = m.at(state.t), state.q
        if is_general(m):
            lam = reactions(here, q, state.v, momentum(here, q, memory.u) - momentum(here, q, state.v)) * (
                2 / h
            )
        else:
            lam = multipliers(here, q, (memory.u - state.v) * (2 / h))
        if Trait.HOLONOMIC in m.traits:  # u has no part along dc
            forms = here.velocity_rows(q).shape[0]
            lam = jnp.concatenate([lam[:forms], acceleration(here, q, state.v)[1][forms:]])
        return memory.u, lam

    def resume(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[State, ReflectingMemory]:
        return State(q, self.mean(m, q, u)), ReflectingMemory(u, jnp.zeros((), jnp.int32))

    def from_pair(
        self, m: Mechanics, q0: Array, q1: Array, t: Any, h: Array
    ) -> tuple[State, ReflectingMemory]:
        """Any pair will do: u = M^-1 p^- for p^- = -D1 L_d(q0, q1), and v is its part in D."""
        here = m.at(t)
        u = tangent_velocity(here, q0, self.departure(here, q0, q1, h))
        return State(q0, allowed_velocity(here, q0, u), t), self.resume(here, q0, u, h)[1]

    def reverse(self, m: Mechanics, q: Array, u: Array) -> Array:
        return u - 2 * self.along(m, q, u)  # swaps p^- and -p^+

    @property
    def native_gradients(self) -> bool:
        return self.start != "exact"  # a loop computes the exact motion

    def composable(self) -> str | None:
        return (
            "it lives on all of TQ with a sign-alternating parasitic mode, which unequal steps excite; compose "
            "FrameGradient() or DLA01()"
        )

    def remarks(self, trajectory: Any) -> list[str]:
        """A warning if the parasitic mode has grown to a visible size."""
        if self.restart_every is not None or self.any_complement or len(trajectory.t) < 3:
            return []
        speed = np.max(np.abs(trajectory.v), axis=-1)
        normal = np.max(np.abs(np.asarray(trajectory.v_full) - np.asarray(trajectory.v)), axis=-1)
        loudest = int(np.nanargmax(normal))
        loud = max(_LOUD * np.nanmax(speed), 2 * normal[0])
        if not normal[loudest] > loud:
            return []  # no need to look closer
        since = float(trajectory.t[int(np.argmax(normal > loud))])
        rows = np.array([0, 1, 2, loudest])
        sizes = parasitic_amplitude(trajectory, rows)
        first, last = float(np.max(sizes[:3])), float(sizes[3])
        if not last > max(10 * first, _LOUD * np.nanmax(speed)):
            return []
        m = lower(trajectory.system)
        others = (
            "FrameGradient()"
            if Trait.INDEFINITE not in m.traits
            else self.others(m, lambda x: not x.parasitic)
        )
        return [
            f"the parasitic mode of {self.cli_name} has grown from {first:.1e} to {last:.1e} (velocity normal to "
            f"the constraint, changing sign every step) and matters from t = {since:.6g}: the motion is wrong from "
            "there on, although its energy may look right. Use restart_every=20 (:restart=20 on the command line), or "
            f"{others}"
        ]


def _alternating(m: Mechanics, q: Array, v: Array, u: Array, h: Array) -> Array:
    """The length of the part of the own velocity that is neither v nor half a kick, as the metric measures it."""
    extra = u - half_kick(m, q, v, h)
    return jnp.sqrt(jnp.sum(extra * matvec(m.measure(m.metric(q)), extra)))


@compiled
def _amplitudes(m: Mechanics, t: Array, q: Array, v: Array, u: Array, h: Array) -> Array:
    return jax.vmap(lambda t, q, v, u: _alternating(m.at(t), q, v, u, h))(t, q, v, u)


def parasitic_amplitude(trajectory: Any, rows: Any = slice(None)) -> np.ndarray:
    """The size of the parasitic mode at rows of a run by a method on TQ: the kinetic length of u - v - half a kick, or
    its length in the units of the metric if that is indefinite.

    The half kick (h/2) M^-1 A^T lam uses the exact multipliers, so that only the mode and O(h^3) remain.
    """
    if trajectory.system is None or trajectory.method is None:
        raise ValueError("the parasitic amplitude needs the system, which this trajectory was loaded without")
    if not trajectory.method.parasitic:
        raise ValueError(
            f"{trajectory.method.cli_name} has no parasitic mode of this kind; GNI() and LeapFrog() have"
        )
    if np.ndim(trajectory.q) != 2:
        raise ValueError("the parasitic amplitude is that of one run; take sol.member(i) of an ensemble")
    parts = (np.asarray(x)[rows] for x in (trajectory.t, trajectory.q, trajectory.v, trajectory.v_full))
    return np.asarray(_amplitudes(trajectory.system, *parts, np.asarray(trajectory.h, float)))


def constant(m: Mechanics, *names: str) -> bool:
    """Whether the formulas of these functions of a system do not contain q."""
    q = jnp.zeros(m.dimension)
    return all(is_syntactically_constant(getattr(m, name), q) for name in names)


class GNI(Reflecting):
    """The geometric nonholonomic integrator for any discrete Lagrangian, metric and potential: order 2.

    Equations: [ferraro2008] (4)-(6): p^+ = D2 L_d(q0, q1), p^- = p^+ - 2 Q(q1)^T p^+, -D1 L_d(q1, q2) = p^-. Without
    constraints these are the discrete Euler-Lagrange equations. The unknown is u = (q2 - q1)/h. If the equations are
    linear in u (a constant mass matrix with no potential, or with the trapezoidal rule), they are solved without
    iteration. Affine constraints A v = b hold for the average momentum too: p^- is p^+ reflected at the allowed
    velocities.
    With the trapezoidal rule this is the nonholonomic RATTLE of [ferraro2009]. Position constraints are satisfied as in
    RATTLE itself ([hairer2006] VII.1.4): -D1 L_d(q1, q2) = p^- + dc(q1)^T mu with c(q2) = 0, and p^+ loses its part
    along dc(q2)^T, so that dc M^-1 p^+ = 0. The reflection acts within ker dc, and so does the parasitic part of u. If
    the equations are linear in u, only mu is found by iteration. The multipliers of position constraints are those of
    the exact motion at (q, v). If c depends on time, it is taken at the end of the flight.
    If L is not kinetic minus potential energy, (p^+ + p^-)/2 is the momentum dL/dv of a velocity in D, and p^+ - p^- is
    a combination of the one-forms, which determines p^-; u is then the velocity with the momentum p^-.
    Memory: u = M^-1 p^-; see Reflecting.
    Erratum: L_d is scaled as an action; the metric of the projectors needs the kinetic complement of D.
    """

    discrete_lagrangian: DiscreteLagrangian = eqx.field(
        default=Midpoint(), converter=lambda x: as_lagrangian(x, "GNI")
    )

    @property
    def supports(self) -> frozenset[Trait]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The traits that a system may have; fewer with a metric of the user's own."""
        own = Reflecting.supports | {Trait.AFFINE, Trait.TIMED}
        if self.metric is not None:
            return own - set(_KINETIC_ALONE)
        return own | {Trait.HOLONOMIC, Trait.GENERAL_LAGRANGIAN}

    def free_step(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[Array, Array, Report]:
        mass = mass_at(m, q, u)
        p = momentum(m, q, u)

        def equations(w):
            return m.solved(
                mass, -partial_derivatives(self.discrete_lagrangian, m, q, q + h * w, w, h)[0] - p
            )

        slope = jax.jacfwd(equations)
        if Trait.HOLONOMIC in m.traits:
            w, report = self._onto_surface(m, q, u, h, equations, slope)
        elif is_syntactically_constant(slope, u):
            w, report = u - solve(slope(u), equations(u)), Report.explicit()
        else:
            state, none = State(q, u), jnp.zeros((0, len(u)), u.dtype)
            nearly = nearly_solved(m, state, h, mass, none, share=self.discrete_lagrangian.stiffness)
            w, report = solve_velocity(
                equations, u, state, h, jnp.zeros_like(u), m.measure(mass), nearly=nearly
            )
        q1 = q + h * w
        arriving = partial_derivatives(self.discrete_lagrangian, m, q, q1, w, h)[1]
        return q1, velocity(m.later(h), q1, arriving, w), report

    def _onto_surface(
        self, m: Mechanics, q: Array, u: Array, h: Array, equations: Callable, slope: Callable
    ) -> tuple[Array, Report]:
        """The velocity w of the flight that ends with c = 0: equations(w) = M^-1 dc(q)^T mu."""
        n, mass, there, state = u.shape[0], mass_at(m, q, u), m.later(h), State(q, u)
        z = m.solved(mass, m.slopes(q).T)
        nothing, fall = jnp.zeros(z.shape[1], q.dtype), h * m.solved(mass, m.potential_gradient(q))
        if is_syntactically_constant(slope, u):
            matrix = slope(u)
            free, reach = u - solve(matrix, equations(u)), solve(matrix, z)

            def flown(mu):
                return free + matvec(reach, mu)

            def off(mu):
                return there.holonomic(q + h * flown(mu)) / h

            mu, report = solve_velocity(off, nothing, state, h, fall, mass, columns=reach)
            return flown(mu), report

        def both(x):
            w, mu = x[:n], x[n:]
            return jnp.concatenate([equations(w) - matvec(z, mu), there.holonomic(q + h * w) / h])

        guess = jnp.concatenate([u, nothing])
        nearly = nearly_solved(m, state, h, mass, m.slopes(q), share=self.discrete_lagrangian.stiffness)
        x, report = solve_velocity(both, guess, state, h, fall, mass, columns=z, nearly=nearly)
        return x[:n], report

    @property
    def rule(self) -> DiscreteLagrangian:
        return self.discrete_lagrangian

    def departure(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        return velocity(m, q0, legendre_minus(self.discrete_lagrangian, m, q0, q1, h), (q1 - q0) / h)

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        check_rules(system, q0, v0, t0, self.discrete_lagrangian)
        self.check_metric(system, q0, v0, t0)

    def check(self, system: System | Mechanics) -> None:
        super().check(system)
        check_lagrangian(self.discrete_lagrangian, system)

    def claims(self, system: System) -> Claims:
        ld = self.discrete_lagrangian
        m = lower(system)
        free, natural = not m.constrained, m.natural
        order = ld.order if free else 2 if ld.symmetric else 1
        straight = natural and Trait.HOLONOMIC not in m.traits and constant(m, "metric", "potential")
        claims = Claims(
            order,
            energy=self.restart_every is None and straight,
            reversible=ld.symmetric and self.restart_every is None and natural and not is_general(m),
            on_constraint=m.given.isdisjoint(("constraints", "frame")),
            fibred=True,
        )
        return self.with_metric(m, claims)

    @property
    def cli_name(self) -> str:
        return spelled("gni", self.discrete_lagrangian.cli_name, "midpoint", self)


def spelled(name: str, option: str, usual: str, method: Reflecting) -> str:
    """The name with the options that differ from the defaults."""
    options = [option] if option != usual else []
    if method.start != "half-kick":
        options.append(method.start)
    if method.restart_every is not None:
        options.append(f"restart={method.restart_every}")
    if method.metric is not None:  # a function has no spelling, so no method is made from this name
        options += ["metric=own"] + ["any-complement"] * method.any_complement
    return f"{name}:{','.join(options)}" if options else name


def _as_rule(given: Any) -> OnGroup:
    """The discrete Lagrangian on a group that a name, a function of the increment or the value itself stands for."""
    if isinstance(given, OnGroup):
        return given
    if isinstance(given, str):
        return Retraction(given)
    if callable(given) and not isinstance(given, type | eqx.Module):
        return LeftInvariant(given)
    raise ValueError(
        f"LieGNI needs a retraction by its name, one of: {', '.join(MAPS)}, or of your own group; or a discrete "
        f"Lagrangian on groups: Retraction(name), LeftInvariant(l) or a function l(system, w, h); got {given!r}"
    )


class LieGNI(Reflecting):
    """The geometric nonholonomic integrator on a Lie group, for any inertia and body constraint a(g): order 2.

    Equations: [ferraro2008] section 4.2, with L_d(g0, g1) = l(W), g0^-1 g1 = W, and momenta moved to the identity from
    the left:
        p_0 = R_W^* dl(W),   g1 = g0 W,   p^+ = Ad_W^T p_0,   p_1 = (1 - 2 Q(g1)^T) p^+.
    `retraction` names a map tau, for which l(tau(h xi)) = (h/2) <I xi, xi> and the first equation is
    (dtau^-1_{h xi})^T I xi = p_0. tau is exp, the Cayley map, `mid` on SE(2), or a map of a user's own group. Any other
    left-invariant discrete Lagrangian, such as that of Moser and Veselov, is given in its place, as a function
    l(system, w, h) or as LeftInvariant(l, is_symmetric=True); without the latter the order is 1.
    A potential adds (h/2)(V(g0) + V(g1)) to -L_d, that is, two half kicks. dtau^-1 is trivialised on the right, and
    Ad^* stands for (Ad_W)^T, without an inverse.
    Memory: u = I^-1 p; see Reflecting.
    """

    retraction: OnGroup = eqx.field(default=Retraction("exp"), converter=_as_rule)
    supports = frozenset({Trait.GROUP, Trait.INDEFINITE})

    def free_step(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[Array, Array, Report]:
        group, rule = m.space, self.retraction
        mass = m.metric(q)
        p = matvec(mass, u) - 0.5 * h * pull(m, q)
        guess = m.solved(mass, p)

        def equations(xi):
            return m.solved(mass, rule.increment_momentum(m, xi, h) - p)

        size = jnp.sum(jnp.abs(guess)) + jnp.finfo(q.dtype).tiny
        xi, info = newton(equations, guess, 1 / size, noise=rule.rounding(h) / size)
        w = rule.increment(m, xi, h)
        q1 = group.restore(group.multiply(q, w))
        arriving = coadjoint(group, w, p) - 0.5 * h * pull(m, q1)
        return q1, m.solved(mass, arriving), Report(*info)

    @property
    def rule(self) -> DiscreteLagrangian:
        return self.retraction

    def departure(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        u = self.rule.velocity(m, q0, q1, h)
        return solve(m.metric(q0), -self.rule.partial_derivatives(m, q0, q1, u, h)[0])

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        check_rules(system, q0, v0, t0, self.retraction)
        self.check_metric(system, q0, v0, t0)

    def check(self, system: System | Mechanics) -> None:
        super().check(system)
        check_lagrangian(self.retraction, system)

    def claims(self, system: System) -> Claims:
        m = lower(system)
        claims = Claims(
            self.retraction.order,
            energy=self.restart_every is None
            and constant(m, "potential")
            and keeps_energy(m, self.retraction),
            reversible=self.restart_every is None and self.retraction.symmetric,
            on_constraint=not m.constrained,
            fibred=True,
        )
        return self.with_metric(m, claims)

    @property
    def cli_name(self) -> str:
        return spelled("lie-gni", self.retraction.cli_name, "exp", self)


def keeps_energy(m: Mechanics, rule: OnGroup) -> bool:
    """Whether a free flight conserves the energy exactly: H(Ad_W^T p) = H(p) for the p that belongs to W.

    This holds for bi-invariant metrics (Theorem 1 of [ferraro2008]), and it may hold for others: for the function of
    Moser and Veselov it holds for every inertia on SO(3). The function measures it for a few velocities.
    """
    group, h = m.space, jnp.ones(())
    inertia = m.metric(group.identity())
    directions = jnp.cos(jnp.arange(3 * group.dimension, dtype=float).reshape(3, -1) * 1.7 + 0.3)
    for x in directions:
        p = rule.increment_momentum(m, x, h)
        after = coadjoint(group, rule.increment(m, x, h), p)
        before, after = (y * solve(inertia, y) for y in (p, after))
        # Rounding is relative to the terms, which cancel if the metric is indefinite.
        size = jnp.sum(jnp.abs(before)) + jnp.sum(jnp.abs(after))
        if not abs(jnp.sum(after) - jnp.sum(before)) <= 1e-12 * size:
            return False
    return True
