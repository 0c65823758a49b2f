"""The extended discrete Lagrange-d'Alembert method, whose step sizes conserve the energy."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.discrete import (
    DiscreteConstraint,
    DiscreteLagrangian,
    Midpoint,
    PointConstraint,
    as_constraint,
    as_lagrangian,
    check_constraint,
    check_lagrangian,
    check_rules,
    spacetime_constraint,
)
from dalembert.kernels import over_rows
from dalembert.methods.base import (
    Claims,
    Method,
    Report,
    State,
    Status,
    nearly_solved,
    solve_velocity,
)
from dalembert.methods.gni import half_kick
from dalembert.methods.legendre import allowed_velocity, is_general, mass_at, momentum, velocity
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    acceleration,
    as_arrays,
    lower,
    total_energy,
)
from dalembert.numerics import matvec, repeated, solve, solve_spd, unit_rounding


class EDLAMemory(NamedTuple):
    """What the last step leaves for the next."""

    plus: Array
    """p^+, the momentum with which it arrived."""
    energy: Array
    """The energy with which the next step has to depart."""
    arrived: Array
    """E^+, the energy with which it arrived."""
    last: Array
    """The size of the last step."""
    before: Array
    """The size of the step before the last one."""
    schur: Array
    """The Schur complement S of its equations: d(energy residual)/dh, about 2 h G."""
    lam: Array
    begun: Array
    """One if there has been a step, else zero."""
    continued: Array
    """The number of steps that the least-squares continuation made."""


class Start(NamedTuple):
    """The quantities at the beginning of a step that the equations need."""

    t: Array
    q: Array
    p: Array
    v: Array
    mass: Array
    forms: Array
    offsets: Array
    energy: Array
    size: Array
    """The velocity that a unit impulse causes, so that one measure of corrections serves all unknowns."""


class EDLA(Method):
    """The discrete Lagrange-d'Alembert method in space and time: each step has the size that conserves the energy.

    Equations: [cortes2003] (6) with the omega0 that is missing there, unknowns t2, q2, lam':
        D1 L_d(1, 2) + D3 L_d(0, 1) = lam' . omega0, D2 L_d(1, 2) + D4 L_d(0, 1) = omega^T lam', omega_d(1, 2) = 0,
    with constraints omega0 dt + omega dq = 0 taken at the point 1, omega = A and omega0 = -b. The multipliers of the
    library are lam = -lam' divided by the mean of the two step sizes. They are those at the beginning of the step that
    ends at a row, to order 2; the first step has the exact multipliers at the start. Without constraints this is the
    symplectic-energy-momentum integrator.
    L may be any Lagrangian, also one that is not kinetic minus potential energy. On Lie groups, use Retraction("exp")
    or LeftInvariant(l, is_symmetric=True) as discrete Lagrangian; momenta are then moved to the identity from the left.
    h is the size of the first step only. Steps that conserve the energy exist as long as G keeps its sign
    (`edla_well_posedness`). Near a zero of G there is none, except for a few h that happen to step over it. There the
    run ends with Status.NO_ROOT or Status.NONPOSITIVE_H; the method does not invent a step. `continuation=True`
    continues with the step whose energy error is smallest, and counts such steps. With `pin=True` every step aims for
    the energy of the first step, if the energy is constant; otherwise it aims for the energy of the last step.
    The discrete Lagrangian need not be symmetric; the order is then 1. The energy with which a step departs then
    changes to first order in its size, and steps exist as long as this derivative F keeps its sign. If L_d takes V at
    the left end, then F = -dV/dt, and h is proportional to |F|^(-1/2). The discrete constraint must be symmetric. With
    a constraint at (1-a) q0 + a q1, the sizes of neighbouring steps would have a ratio that does not tend to one with
    h: (1-a)/a without a potential, and in general (X - 2 (1-a) Y)/(X - 2 a Y) for the midpoint rule, with
    X = R . grad V - |grad V|^2 - V''(v, v), Y = R . grad V - |R|^2 and the reaction R.
    Memory: p^+, energies, step sizes. `sol.step_data` has, for the step that ends at each row: h, the Schur complement
    S, G = S/(2h), E_plus (also sol.energy(full=True)), p_plus, continued.
    """

    discrete_lagrangian: DiscreteLagrangian = eqx.field(
        default=Midpoint(), converter=lambda x: as_lagrangian(x, "EDLA", groups=True)
    )
    discrete_constraint: DiscreteConstraint = eqx.field(
        default=PointConstraint(), converter=lambda x: as_constraint(x, "EDLA")
    )
    continuation: bool = eqx.field(default=False, static=True, kw_only=True)
    pin: bool = eqx.field(default=True, static=True, kw_only=True)
    variable_step = True
    multiplier_shift = 1.0

    @property
    def supports(self) -> frozenset[Trait]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The traits that its discrete Lagrangian supports and, in coordinates, Lagrangians of any kind."""
        own = self.discrete_lagrangian.supports
        return own | {Trait.GENERAL_LAGRANGIAN} if Trait.COORDINATES in own else own

    def __check_init__(self):
        for name in ("continuation", "pin"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"EDLA: {name} must be True or False, got {getattr(self, name)!r}")
        constraint = self.discrete_constraint
        if not constraint.symmetric:
            raise ValueError(
                f"EDLA needs a symmetric discrete constraint, {constraint.cli_name} is not: the reaction would do no "
                "work between two steps only if they have a fixed ratio, which differs from one whatever h is, so that "
                "the steps would shrink or grow by this factor each time. If your own function is symmetric, say so: "
                "CustomConstraint(..., is_symmetric=True)"
            )

    def beginning(self, m: Mechanics, state: Any, p: Array, energy: Array) -> Start:
        """The quantities that the equations need, at a state with momentum p."""
        here, q = m.at(state.t), state.q
        mass, forms = mass_at(here, q, state.v), here.rows(q)
        size = jnp.max(jnp.abs(solve_spd(mass, forms.T)), initial=0.0)
        size = jnp.maximum(size, jnp.finfo(q.dtype).tiny)
        return Start(state.t, q, p, state.v, mass, forms, here.offsets(q), energy, size)

    def residuals(self, m: Mechanics, s: Start, h: Array, u: Array, kick: Array) -> tuple[Array, Array]:
        """The residual of the energy, and the residuals of momentum and constraint, for a step from s.

        kick = -lam' is the impulse of the constraint: p^- = p^+ + A^T kick.
        """
        return repeated("EDLA.residuals", EDLA._residuals, self, m, s, h, u, kick)

    def _residuals(self, m: Mechanics, s: Start, h: Array, u: Array, kick: Array) -> tuple[Array, Array]:
        ld = self.discrete_lagrangian
        q1 = ld.moved(m, s.q, u, h)
        before, _ = ld.spacetime_derivatives(m, s.t, s.q, q1, u, h)
        energy = before[0] - s.energy - jnp.sum(kick * s.offsets)
        momentum = solve_spd(s.mass, -before[1:] - s.p - matvec(s.forms.T, kick))
        held = spacetime_constraint(self.discrete_constraint, m, s.t, s.q, q1, u, h)
        return energy, jnp.concatenate([momentum, held])

    def eliminated(self, m: Mechanics, s: Start, h: Array, guess: Array) -> tuple[Array, Array, Report]:
        """The energy residual of the step of size h with u and kick eliminated, the eliminated values, and a report."""
        n, size = s.v.shape[0], s.size
        state, share = State(s.q, s.v), self.discrete_lagrangian.stiffness
        nearly = nearly_solved(m.at(s.t), state, h, s.mass, s.forms, size, share)
        x, report = solve_velocity(
            lambda x: self.residuals(m, s, h, x[:n], x[n:] / size)[1],
            guess,
            state,
            h,
            jnp.zeros_like(s.v),
            s.mass,
            columns=solve_spd(s.mass, s.forms.T) / size,
            nearly=nearly,
        )
        return self.residuals(m, s, h, x[:n], x[n:] / size)[0], x, report

    def from_pair(self, m: Mechanics, q0: Array, q1: Array, t: Any, h: Array) -> tuple[State, EDLAMemory]:
        """The pair (t, q0), (t + h, q1) must satisfy the discrete constraint. The momentum of the step to it is
        p^- = -D2 L_d, and the energy is the one that makes h its size. v is the allowed velocity whose momentum differs
        from p^- by reactions alone."""
        here = m.at(t)
        u = self.discrete_lagrangian.velocity(here, q0, q1, h)
        before, _ = self.discrete_lagrangian.spacetime_derivatives(m, t, q0, q1, u, h)
        state = State(q0, allowed_velocity(here, q0, velocity(here, q0, -before[1:], u)), t)
        return state, self.first_memory(m, state, -before[1:], h)

    @property
    def rule(self) -> DiscreteLagrangian:
        return self.discrete_lagrangian

    def pair_residual(self, m: Mechanics, q0: Array, q1: Array, t: Any, h: Array) -> Array:
        u = self.discrete_lagrangian.velocity(m.at(t), q0, q1, h)
        return spacetime_constraint(self.discrete_constraint, m, t, q0, q1, u, h)

    def init(self, m: Mechanics, state: Any, h: Array) -> EDLAMemory:
        here, q, v = m.at(state.t), state.q, state.v
        # Half a kick less than on the constraint, as if a step had arrived here; the part along A^T does not matter.
        before = half_kick(here, q, v, -h) if is_general(m) else 2 * v - half_kick(here, q, v, h)
        return self.first_memory(m, state, momentum(here, q, before), h)

    def first_memory(self, m: Mechanics, state: Any, p: Array, h: Array) -> EDLAMemory:
        """The memory at a start with momentum p, with the energy that makes h the size of the first step."""
        here, q, v = m.at(state.t), state.q, state.v
        s = self.beginning(m, state, p, jnp.zeros_like(h))
        guess = jnp.concatenate([v, jnp.zeros(s.forms.shape[0], q.dtype)])
        energy, _, _ = self.eliminated(m, s, h, guess)
        zero = jnp.zeros((), q.dtype)
        return EDLAMemory(p, energy, energy, h, h, zero, acceleration(here, q, v)[1], zero, zero)

    def step(self, m: Mechanics, state: Any, memory: EDLAMemory, h: Array):
        s = self.beginning(m, state, memory.plus, memory.energy)
        n, size, last = state.v.shape[0], s.size, memory.last
        scale = jnp.maximum(jnp.abs(s.energy), 0.5 * jnp.abs(jnp.sum(s.p * s.v)))
        guess = jnp.concatenate([s.v, jnp.zeros(s.forms.shape[0], s.q.dtype)])
        # The search sees only numbers; derivatives come from the equations at the root.
        there, at = jax.tree.map(lax.stop_gradient, (m, s))
        sizes = jax.tree.map(lax.stop_gradient, (guess, scale, last, memory.before))
        begun = memory.begun > 0
        # The size of the first step is known: its energy was made from it.
        enough = jnp.where(begun, 2 * unit_rounding(s.q.dtype), _NEAR) * sizes[1]
        found = search(
            lambda h, x: self.eliminated(there, at, h, x),
            *sizes,
            enough=enough,
            continuation=self.continuation,
            symmetric=self.discrete_lagrangian.symmetric,
        )
        continued = found.continued
        h1, x, schur, report = self._polished(m, s, found, scale, last, begun)
        u, kick = x[:n], x[n:] / size
        q1 = self.discrete_lagrangian.moved(m, s.q, u, h1)
        # The relative error of the step size is eps E/(h S).
        lost = 1e3 * unit_rounding(q1.dtype) * scale > jnp.abs(h1 * schur)
        lost = lost & (found.status == Status.OK.code) & ~continued
        trouble = jnp.where(lost, jnp.int32(Status.STEP_LOST.code), found.status)
        report = report._replace(converged=report.converged & ~lost, trouble=trouble)
        _, arriving = self.discrete_lagrangian.spacetime_derivatives(m, s.t, s.q, q1, u, h1)
        new = state.moved(q1, state.v, h1)
        there = m.at(new.t)
        v1 = allowed_velocity(there, q1, velocity(there, q1, arriving[1:], u))
        kept = self.pin and m.natural
        energy = jnp.where(continued, -arriving[0], s.energy) if kept else -arriving[0]
        lam = jnp.where(memory.begun > 0, 2 * kick / (h1 + last), memory.lam)
        memory = EDLAMemory(
            arriving[1:], energy, -arriving[0], h1, last, schur, lam, jnp.ones_like(memory.begun),
            memory.continued + continued.astype(h1.dtype),
        )  # fmt: skip
        return new._replace(v=v1), memory, report

    def _polished(
        self, m: Mechanics, s: Start, found: Any, scale: Array, last: Array, begun: Array
    ) -> tuple[Array, Array, Array, Report]:
        """The root, refined by a step of Newton's method for all unknowns together, which also provides derivatives.

        Also S = J_hh - J_hy J_yy^-1 J_yh: the derivative of the energy residual with u and kick eliminated.
        """
        n = s.v.shape[0]
        # One measure for all: both steps and energies are in units of velocity.
        tiny = jnp.finfo(s.q.dtype).tiny
        speed = lax.stop_gradient(jnp.sum(jnp.abs(s.v)) + jnp.sum(jnp.abs(found.x[:n]))) + tiny
        tick, rate = lax.stop_gradient(last / speed), lax.stop_gradient(speed / (scale + tiny))

        def equations(m, s, y):
            energy, rest = self.residuals(m, s, y[0] * tick, y[1 : n + 1], y[n + 1 :] / s.size)
            return jnp.concatenate([(energy * rate)[None], rest])

        def jacobian(m, s, y):
            return jax.jacfwd(partial(equations, m, s))(y)

        @jax.custom_jvp
        def known_at(where, found):
            return found

        @known_at.defjvp
        def _(primals, tangents):
            return primals[1], jax.jvp(jacobian, *(x[0] for x in (primals, tangents)))[1]

        guess = lax.stop_gradient(jnp.concatenate([(found.h / tick)[None], found.x]))
        there, value = jacobian(*lax.stop_gradient((m, s)), guess), equations(m, s, guess)
        y = guess - solve(there, value)
        near = jnp.isfinite(jnp.sum(y)) & (jnp.abs(y[0] * tick - found.h) <= 1e-3 * found.h)
        good = near & ~found.continued
        after = jnp.abs(equations(m, s, y)[0])
        better = good & (after < jnp.abs(value[0])) & begun
        # The value where the Jacobian is already known, with the derivatives of the refined root.
        same = _moving_with(guess, jnp.where(good, y, guess))
        known = known_at((m, s, same), there)
        schur = known[0, 0] - jnp.sum(known[0, 1:] * solve(known[1:, 1:], known[1:, 0]))
        y = jnp.where(better, y, same)
        residual = jnp.where(better, after, jnp.abs(value[0])) / speed
        residual = jnp.where(found.continued, jnp.abs(found.e) / scale, residual)
        report = Report(residual, found.tries + 1, found.status == Status.OK.code)
        return y[0] * tick, y[1:], schur / (rate * tick), report

    def resume(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[Any, EDLAMemory]:
        state = State(q, u, jnp.zeros((), q.dtype))
        return state, self.init(m, state, h)

    def output(self, m: Mechanics, state: Any, memory: EDLAMemory, h: Array) -> tuple[Array, Array]:
        return state.v, memory.lam

    def step_data(self, m: Mechanics, state: Any, memory: EDLAMemory) -> dict[str, Array]:
        return {
            "h": memory.last,
            "S": memory.schur,
            "G": 0.5 * memory.schur / memory.last,
            "E_plus": memory.arrived,
            "p_plus": memory.plus,
            "continued": memory.continued,
        }

    def hint(self, trajectory: Any) -> str | None:
        if trajectory.status not in (Status.NO_ROOT, Status.NONPOSITIVE_H, Status.STEP_LOST):
            return None
        last, schur = (float(trajectory.step_data[name][-1]) for name in ("h", "S"))
        g = well_posedness(trajectory.system, self, trajectory.t[-1:], trajectory.q[-1:], trajectory.v[-1:])[
            0
        ]
        name = "G" if self.discrete_lagrangian.symmetric else "F"
        found = f"the last step had h = {last:.6g} and the Schur complement S = {schur:.3g}; there {name} = {g:.3g}. "
        if trajectory.status is Status.STEP_LOST:
            return f"{found}Where {name} goes to zero the energy does not determine the step size. Use FrameGradient()"
        other = "" if self.continuation else ", or EDLA(continuation=True), which does not keep it there"
        return (
            f"{found}Steps that keep the energy end where {name} changes sign (edla_well_posedness finds where), for "
            f"nearly every h. Use FrameGradient(), which keeps the energy with equal steps{other}"
        )

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        check_rules(system, q0, v0, t0, self.discrete_lagrangian, self.discrete_constraint)

    def check(self, system: System | Mechanics) -> None:
        super().check(system)
        check_lagrangian(self.discrete_lagrangian, system)
        check_constraint(self.discrete_constraint, system)

    def composable(self) -> str | None:
        return "the sizes of its steps are its own"

    def claims(self, system: System) -> Claims:
        m = lower(system)
        ld = self.discrete_lagrangian
        order = ld.order if not m.constrained else 2 if ld.symmetric else 1
        return Claims(order, energy=m.natural, reversible=False, on_constraint=True)

    @property
    def cli_name(self) -> str:
        options = [self.discrete_lagrangian.cli_name, self.discrete_constraint.cli_name]
        options = [x for x in options if x not in ("midpoint", "point=0.5")]
        options += ["continuation"] * self.continuation + ["unpinned"] * (not self.pin)
        return f"edla:{','.join(options)}" if options else "edla"


@jax.custom_jvp
def _moving_with(x: Array, other: Array) -> Array:
    """x, with the derivatives of the other."""
    return x


_moving_with.defjvp(lambda primals, tangents: (primals[0], tangents[1]))

_POINTS = 12
_RATIO = 10 ** (1 / _POINTS)
# Step sizes of the scan, in units of the last step: up to 10, down to 1/10, and from there backwards in time. They
# avoid -1, which is the trivial root.
_UP, _DOWN = _RATIO ** np.arange(_POINTS + 1), _RATIO ** -np.arange(_POINTS + 1)
_BACK = -0.087 * _RATIO ** np.arange(2 * _POINTS + 1)
_SCAN = np.concatenate([_UP, _DOWN, _BACK])
_FORWARD = len(_UP) + len(_DOWN)
# The residual of a root, relative to the energy, must be smaller. Rounding is 1e-16; without a root at least 1e-8 is
# left.
_NEAR = 1e-12
SECANT, SCAN, HALVE, LEAST, DONE = range(5)


class Found(NamedTuple):
    """A step size, its residual and the other unknowns, the number of tries, and how the search ended."""

    h: Array
    e: Array
    x: Array
    tries: Array
    status: Array
    continued: Array


class Search(NamedTuple):
    """The state of the search; `h` is tried next."""

    phase: Array
    tries: Array
    index: Array
    """The number of tries that this phase has made."""
    h: Array
    x: Array
    h0: Array
    f0: Array
    """The previous try, or one end of the bracket."""
    other: Array
    """The other end of the bracket; in the least-squares search, the logarithm of its reach."""
    best: Array
    e: Array
    best_x: Array
    status: Array


def search(
    residual: Callable[[Array, Array], tuple[Array, Array, Any]],
    x: Array,
    scale: Array,
    last: Array,
    before: Array,
    enough: Array,
    continuation: bool,
    symmetric: bool = True,
) -> Found:
    """The root h of an energy residual near the last step size.

    `residual(h, x)` returns the residual e, the other unknowns and a report; a try with a residual of at most `enough`
    ends the search. For symmetric rules h = -last is always a root; f = e(h)/(h + last) no longer has it, and is nearly
    linear. For others f is e itself. A secant method, bounded to changes of 0.3 h at a time, seeks the root of f from
    last^2/before. If it fails, a scan of 0.1 to 10 times the last step seeks a change of sign, and bisection follows.
    If there is none, a scan of negative steps decides which kind of failure it is; with `continuation` the step with
    the smallest residual is taken instead.
    """
    eps = unit_rounding(x.dtype)
    guess = last * jnp.clip(last / before, 0.5, 2.0)
    low, high = 0.1 * last, 10 * last
    code: dict[Status, Any] = {status: np.int32(status.code) for status in Status}

    def phase(k: int) -> Any:
        return np.int32(k)

    def secant(c: Search, f: Array, size: Array, improved: Array) -> Search:
        move = jnp.clip(-f * (c.h - c.h0) / (f - c.f0), -0.3 * c.h, 0.3 * c.h)
        aim = jnp.clip(jnp.where(c.index == 1, 1.001 * c.h, c.h + move), low, high)
        settled = (size <= 64 * eps * scale) & ~improved & (c.index > 2)
        still = (jnp.abs(aim - c.h) <= 2 * eps * c.h) & (aim > low) & (aim < high)
        settled = settled | (still & (size <= _NEAR * scale))
        lost = (~jnp.isfinite(aim) | (aim == c.h) | (c.index >= 40)) & ~settled
        after = c._replace(h=aim, h0=c.h, f0=f)
        after = _where(settled, after._replace(phase=phase(DONE)), after)
        begun = after._replace(phase=phase(SCAN), index=jnp.zeros_like(c.index), h=last, x=x)
        return _where(lost, begun, after)

    def scan(c: Search, f: Array, size: Array, improved: Array) -> Search:
        i = c.index - 1
        first = (i == 0) | (i == len(_UP))
        changed = (f * c.f0 < 0) & ~first
        forward = i < _FORWARD
        following = jnp.minimum(c.index, len(_SCAN) - 1)
        after = c._replace(h=last * jnp.asarray(_SCAN)[following], h0=c.h, f0=f)
        over = after._replace(phase=phase(DONE), status=code[Status.NO_ROOT])
        after = _where(c.index == len(_SCAN), over, after)
        if continuation:
            reach = jnp.full_like(c.other, 0.5 * np.log(_RATIO))
            least = c._replace(phase=phase(LEAST), other=reach, h=c.best * jnp.exp(reach), x=c.best_x)
            after = _where(i == _FORWARD - 1, least, after)
        halving = c._replace(phase=phase(HALVE), other=c.h, h=0.5 * (c.h + c.h0))
        negative = over._replace(status=code[Status.NONPOSITIVE_H])
        return _where(changed, _where(forward, halving, negative), after)

    def halve(c: Search, f: Array, size: Array, improved: Array) -> Search:
        beyond = f * c.f0 < 0
        h0, f0 = jnp.where(beyond, c.h0, c.h), jnp.where(beyond, c.f0, f)
        other = jnp.where(beyond, c.h, c.other)
        after = c._replace(h0=h0, f0=f0, other=other, h=0.5 * (h0 + other))
        narrow = jnp.abs(other - h0) <= 4 * eps * c.h
        return _where(narrow | (c.index > 80), after._replace(phase=phase(DONE)), after)

    def least(c: Search, f: Array, size: Array, improved: Array) -> Search:
        shorter = jnp.where(c.other > 0, -c.other, -0.5 * c.other)
        reach = jnp.where(improved, c.other, shorter)
        after = c._replace(other=reach, h=c.best * jnp.exp(reach))
        inside = (c.best > 1.001 * low) & (c.best < 0.999 * high)
        found = jnp.where(inside, code[Status.OK], code[Status.NO_ROOT])
        over = (jnp.abs(reach) < 1e-5) | (c.index > 200)
        return _where(over, after._replace(phase=phase(DONE), status=found), after)

    phases = (secant, scan, halve, *([least] if continuation else []))

    def advance(c: Search) -> Search:
        e, y, report = residual(c.h, c.x)
        sound = report.converged & jnp.isfinite(e)
        size = jnp.where(sound & (c.h > 0), jnp.abs(e), jnp.inf)
        improved = size < jnp.abs(c.e)
        f = jnp.where(sound, e / (c.h + last) if symmetric else e, jnp.nan)
        c = c._replace(
            tries=c.tries + 1,
            index=c.index + 1,
            x=jnp.where(sound, y, x),
            best=jnp.where(improved, c.h, c.best),
            e=jnp.where(improved, e, c.e),
            best_x=jnp.where(improved, y, c.best_x),
        )
        after = c
        for k, of in enumerate(phases):
            after = _where(c.phase == k, of(c, f, size, improved), after)
        solved = (size <= enough) & (c.phase <= HALVE)
        return _where(solved, c._replace(phase=phase(DONE)), after)

    zero = jnp.zeros_like(last)
    start = Search(
        phase(SECANT), phase(0), phase(0), guess, x, zero, zero, zero,
        guess, jnp.full_like(last, jnp.inf), x, code[Status.OK],
    )  # fmt: skip
    end = lax.while_loop(lambda c: c.phase != DONE, advance, start)
    off = jnp.abs(end.e) > _NEAR * scale
    fine = end.status == Status.OK.code
    if continuation:
        return Found(end.best, end.e, end.best_x, end.tries, end.status, off & fine)
    # The sign changed without a root, as at a pole.
    status = jnp.where(off & fine, code[Status.NO_ROOT], end.status)
    return Found(end.best, end.e, end.best_x, end.tries, status, jnp.zeros((), bool))


def _where(which: Array, new: Search, old: Search) -> Search:
    return jax.tree.map(partial(lax.select, which), new, old)


# The weights of the first and second differences of order 6, without the middle one.
_SLOPE = np.array([3 / 4, -3 / 20, 1 / 60])
_WEIGHTS = np.array([3 / 2, -3 / 20, 1 / 90])


def _indicators(shared: Any, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """The first derivative F of E^-(h) - lam' omega0 at h = 0, and half the second, G: S = F + 2 h G + O(h^2).

    They are computed by differences over step sizes up to a small fraction of the time in which the motion changes. F
    is zero if the rules are symmetric, or if it is only rounding.
    """
    method, system = shared
    here = system.at(t)
    speed, change = (
        jnp.sqrt(jnp.sum(x * matvec(here.metric(q), x))) for x in (v, acceleration(here, q, v)[0])
    )
    reach = 0.03 * jnp.minimum(speed / (change + jnp.finfo(q.dtype).tiny), 1.0)
    s = method.beginning(system, State(q, v, t), momentum(here, q, v), total_energy(here, q, v))
    guess = jnp.concatenate([v, jnp.zeros(s.forms.shape[0], q.dtype)])
    steps = reach * jnp.arange(1, 4) / 3
    energies = jax.vmap(lambda h: method.eliminated(system, s, h, guess)[0])(jnp.concatenate([steps, -steps]))
    ahead, back = energies[:3], energies[3:]
    if method.discrete_lagrangian.symmetric:
        slope, middle = jnp.zeros((), q.dtype), jnp.zeros((), q.dtype)
    else:
        slope = jnp.sum(jnp.asarray(_SLOPE) * (ahead - back)) / steps[0]
        slope = jnp.where(jnp.abs(slope) > _ROUNDING_OF_SLOPE * speed * change, slope, 0.0)
        # The energy of a step of size zero: E itself for symmetric rules, and what extrapolation gives for others.
        middle = jnp.sum(jnp.asarray(_MEAN) * (ahead + back))
    second = jnp.sum(jnp.asarray(_WEIGHTS) * (ahead + back - 2 * middle))
    return slope, 0.5 * second / steps[0] ** 2


# The weights with which the even part of a function at three steps gives its value at zero, to order 6.
_MEAN = np.array([15, -6, 1]) / 20
# Differences over 0.03 of the time in which the motion changes lose two digits, and the solver a few more.
_ROUNDING_OF_SLOPE = 1e-9


def well_posedness(system: System, method: Any, t: Any, q: Any, v: Any) -> np.ndarray:
    """The number on whose sign the next step of EDLA depends, at rows of states, shape (K,).

    It is G for symmetric discrete Lagrangians, and F for others, unless F vanishes in all rows.
    """
    shared = as_arrays(method), lower(as_arrays(system))
    slope, second = over_rows(_indicators)(shared, t, q, v)
    return slope if np.any(slope) else second


def departing_energies(
    shared: Any, q: Array, v: Array, t: Array, h: Array, plus: Array, energy: Array, sizes: Array
) -> Array:
    """The residual of the energy equation for steps of these sizes, after a step of size h that arrived at (q, v) with
    the momentum `plus`.

    Rows where the other equations were not solved are NaN. For symmetric rules the trivial root -h is divided out.
    """
    method, system = shared
    s = method.beginning(system, State(q, v, t), plus, energy)
    guess = jnp.concatenate([v, jnp.zeros(s.forms.shape[0], q.dtype)])

    def one(x: Array) -> Array:
        e, _, report = method.eliminated(system, s, x, guess)
        f = e / (x + h) if method.discrete_lagrangian.symmetric else e
        return jnp.where(report.converged, f, jnp.nan)

    return jax.vmap(one)(sizes)
