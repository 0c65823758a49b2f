"""Check that a user's own discrete Lagrangian or constraint approximates that of the system."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.discrete.constraints import DiscreteConstraint, constraint_value
from dalembert.discrete.lagrangians import DiscreteLagrangian
from dalembert.model import Mechanics, System, Trait, as_arrays, lower, nearest_velocity
from dalembert.model.geometry import free_acceleration
from dalembert.numerics import extrapolated_step, jit_fast_compile, matvec, solve

# A ladder of steps, each half the previous one: from a step that moves by the size of the coordinates down to one that
# moves by the square root of rounding, even in units that make the coordinates small.
_RUNGS = 44
_EPS = float(np.finfo(float).eps)
# The allowed relative size of a limit that should be zero. Extrapolation reaches eps^(2/3), 1e-10, if functions vary
# over lengths like the coordinates, and 1e-6 if they vary over a thousandth of these. Mistakes in formulas are of order
# one.
_LIMIT = 1e-5
# Identities at a finite step hold to rounding; the rounding of differences is counted separately.
_IDENTITY = 1e-9


class States(NamedTuple):
    """States around a start, with step sizes for each; the start itself comes first."""

    t: Any
    q: Any
    u: Any
    h: Any
    """Step sizes, shape (S, K), in decreasing order."""
    mass: Any
    """The matrices that measure velocities: the mass matrices, unless the metric is indefinite."""


def is_own(rule: Any) -> bool:
    """Whether a rule is the user's own: a function, or a class from outside the library."""
    if rule.unchecked:
        return False
    return hasattr(rule, "function") or type(rule).__module__.partition(".")[0] != "dalembert"


def check_rules(
    system: System,
    q0: Any,
    v0: Any,
    t0: Any,
    lagrangian: DiscreteLagrangian | None,
    constraint: DiscreteConstraint | None = None,
) -> None:
    """Refuses the user's own rules if they do not approximate the system at and around a start.

    The library's rules are not checked here, because the tests check them in the same way.
    """
    lagrangian = lagrangian if lagrangian is not None and is_own(lagrangian) else None
    constraint = constraint if constraint is not None and is_own(constraint) else None
    if lagrangian is None and constraint is None:
        return
    m = lower(as_arrays(system))
    at = states_around(m, q0, v0, t0)
    if lagrangian is not None:
        check_lagrangian_at(as_arrays(lagrangian), m, at)
    if constraint is not None and m.constrained:
        check_constraint_at(as_arrays(constraint), m, at)


@jit_fast_compile
def _sampled(m: Mechanics, t: Array, q: Array, v: Array, shifts: Array, kicks: Array):
    """Times and configurations around q, the matrices that measure velocities there, and the sizes of v and of the
    acceleration."""

    def length(x):
        return jnp.sqrt(jnp.sum(x * matvec(m.at(t).measure(m.at(t).metric(q)), x)))

    places = jax.vmap(lambda x: m.space.displaced(q, x))(shifts)
    times = t + 0.31 * jnp.arange(len(shifts)) * (Trait.TIMED in m.traits)
    masses = jax.vmap(lambda t, q: m.at(t).measure(m.at(t).metric(q)))(times, places)
    falling = length(m.solved(m.at(t).metric(q), m.at(t).potential_gradient(q)))
    return times, places, masses, jnp.stack([length(v), falling, length(jnp.ones_like(v))])


def states_around(m: Mechanics, q0: Any, v0: Any, t0: Any = 0.0) -> States:
    """The start and five configurations around it, near and far, each with a velocity in a direction of its own.

    The velocities have the kinetic energy of the start or, if it is at rest, that of falling for a while. They are
    spread over all directions, so that a term that vanishes for the start's velocity does not vanish for theirs.
    """
    q0, v0 = np.asarray(q0, float), np.asarray(v0, float)
    random = np.random.default_rng(7)
    n, size = len(v0), max(np.max(np.abs(q0)), _EPS)
    # Some shifts are in units of the coordinates themselves, and some are of size one, whatever the units are.
    reach = np.array([0.0, 0.0, 0.3 * size, 0.3 * size, 1.0, 1.0])[:, None]
    shifts, kicks = reach * random.uniform(-1, 1, (6, n)), random.normal(size=(6, n))
    times, places, masses, sizes = (np.asarray(x) for x in _sampled(m, t0, q0, v0, shifts, kicks))
    speed, falling, ones = sizes
    speed = speed or falling or ones
    u = np.empty((6, n))
    for i, (mass, kick) in enumerate(zip(masses, kicks, strict=True)):
        good = np.all(np.isfinite(mass)) and np.linalg.eigvalsh(mass)[0] > 0
        u[i] = (
            speed * np.linalg.solve(np.linalg.cholesky(mass).T, kick / np.linalg.norm(kick))
            if good
            else np.nan
        )
    if np.any(v0):
        u[0] = v0
    extent = np.maximum(np.max(np.abs(places), axis=1), 1.0)
    fastest = np.max(np.abs(u), axis=1)
    fine = np.isfinite(fastest)
    h = (extent / fastest)[:, None] * 0.5 ** np.arange(_RUNGS)
    return States(*(x[fine] for x in (times, places, u, h, masses)))


def _on_ladder(function: Callable) -> Callable:
    """function(system, rule, t, q, u, h) at every state and step of the ladder."""

    @jit_fast_compile
    def call(m: Mechanics, rule: Any, at: States):
        steps = jax.vmap(lambda t, q, u, h: function(m, rule, t, q, u, h), (None, None, None, 0))
        return jax.vmap(steps)(*at[:4])

    return lambda *arguments: jax.tree.map(np.asarray, call(*arguments))


def _step(m: Mechanics, rule: Any, q: Array, u: Array, h: Array) -> tuple[Array, Array]:
    """The end of a step, and its velocity; in coordinates the velocity is computed from the rounded end, so that no
    digit is lost."""
    q1 = rule.moved(m, q, u, h) if isinstance(rule, DiscreteLagrangian) else m.space.displaced(q, h * u)
    return q1, u if Trait.GROUP in m.traits else (q1 - q) / h


def _lengths(mass: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The momenta p, one vector or rows of them, in an orthonormal basis of the kinetic metric."""
    return np.linalg.solve(np.linalg.cholesky(mass), p[..., None])[..., 0]


@_on_ladder
def _momenta(m: Mechanics, ld: Any, t: Array, q: Array, u: Array, h: Array):
    """The differences of p^-, p^+ and the force from those of the system, then dL/dq and d p^-/du."""
    here = m.at(t)
    q1, w = _step(here, ld, q, u, h)

    def departing(w):
        return -ld.partial_derivatives(here, q, ld.moved(here, q, w, h), w, h)[0]

    before, after = ld.partial_derivatives(here, q, q1, w, h)
    first = -before - matvec(here.metric(q), w)
    last = after - matvec(here.later(h).metric(q1), w)
    if Trait.COORDINATES in m.traits:
        pull = jax.grad(here.later(0.5 * h).lagrangian)(0.5 * (q + q1), w)
    else:
        pull = (before + after) / h  # momenta at different elements cannot be compared
    return first, last, (before + after) / h - pull, pull, jax.jacfwd(departing)(w)


@_on_ladder
def _reversed_momenta(m: Mechanics, ld: Any, t: Array, q: Array, u: Array, h: Array) -> Array:
    """D1 L_d(q0, q1; h) + D2 L_d(q1, q0; -h), which is zero for symmetric discrete Lagrangians."""
    here = m.at(t)
    q1, w = _step(here, ld, q, u, h)
    return (
        ld.partial_derivatives(here, q, q1, w, h)[0] + ld.partial_derivatives(here.later(h), q1, q, w, -h)[1]
    )


@_on_ladder
def _exact_departure(m: Mechanics, ld: Any, t: Array, q: Array, u: Array, h: Array) -> Array:
    """-D1 L_d(q(0), q(h)) - p(0) along the motion without constraints."""
    n = q.shape[0]

    def field(z):
        here = m.at(z[-1])
        return jnp.concatenate([z[n:-1], free_acceleration(here, z[:n], z[n:-1]), jnp.ones(1, z.dtype)])

    here = m.at(t)
    q1 = extrapolated_step(field, jnp.concatenate([q, u, t[None]]), h)[:n]
    return -ld.partial_derivatives(here, q, q1, (q1 - q) / h, h)[0] - matvec(here.metric(q), u)


@_on_ladder
def _violations(m: Mechanics, constraint: Any, t: Array, q: Array, u: Array, h: Array):
    """The discrete constraint and its derivative by the velocity, for steps with an allowed and with any velocity.

    Then, with the velocity moved onto the discrete constraint, its value, and its value and derivative for the step
    back. Finally the one-forms and the allowed velocity.
    """
    here = m.at(t)
    v = nearest_velocity(here, q, u)
    mass = here.metric(q)

    def value(w):
        return constraint_value(constraint, here, q, here.space.displaced(q, h * w), w, h)

    def both(function, w):
        slope, found = jax.jacfwd(lambda w: (function(w),) * 2, has_aux=True)(w)
        return found, slope

    def correct(_, w):
        found, slope = both(value, w)
        z = m.solved(mass, slope.T)
        return w - matvec(z, solve(slope @ z, found))

    w = _step(here, constraint, q, v, h)[1]
    on = lax.fori_loop(0, 5, correct, w)  # Newton's method, from O(h)
    end = here.space.displaced(q, h * on)

    def returning(w):
        return constraint_value(constraint, here.later(h), end, q, w, -h)

    return both(value, w), both(value, u), value(on), both(returning, on), here.velocity_rows(q), v


def check_lagrangian_at(ld: DiscreteLagrangian, m: Mechanics, at: States) -> None:
    """Refuses a discrete Lagrangian that is not h L + O(h^2), is singular, or breaks its own statements."""
    name = f"the discrete Lagrangian {ld.cli_name}"
    *vectors, slope = _momenta(m, ld, at)
    mass = at.mass[:, None]
    first, last, force, pull = (_lengths(mass, x) for x in vectors)
    if not np.any(np.all(np.isfinite(first + last), axis=-1)):
        raise ValueError(
            f"{name} has momenta that are NaN or infinite at the start and around it, for every step size; D1 L_d "
            "and D2 L_d must exist there"
        )
    for i in range(len(at.q)):
        noise, speed = _noise(at, i), _speed(at, i)
        fine = np.all(np.isfinite(slope[i]), axis=(-2, -1))
        if not np.any(fine):
            continue
        factor = np.linalg.cholesky(at.mass[i])
        unit = np.linalg.solve(factor, slope[i][fine])
        singular = np.linalg.svd(np.linalg.solve(factor, np.swapaxes(unit, -1, -2)), compute_uv=False)
        # In the kinetic metric the derivative tends to one; a zero that rounding has changed is still below this.
        if np.median(singular[:, -1]) <= 1e-7 * max(1.0, float(np.median(singular[:, 0]))):
            raise ValueError(
                f"{name} is not regular: its mixed second derivative D12 L_d, which should be about -M/h, is "
                f"singular {_where(m, at, i)}. Give it the kinetic energy of every "
                + (
                    "velocity: (h/2) <I u, u> + O(h^2) for W = exp(h u)"
                    if Trait.GROUP in m.traits
                    else "coordinate, as in Midpoint(): h L((q0+q1)/2, (q1-q0)/h)"
                )
            )
        for gap, what in ((first[i], "p^- = -D1 L_d"), (last[i], "p^+ = D2 L_d")):
            off = _left_over(gap, speed, noise, at.h[i])
            if off:
                raise ValueError(
                    f"{name} does not stand for the Lagrangian of {m.label}: as h goes to 0 its momentum {what} "
                    f"differs from M v by {off:.2g} of it, {_where(m, at, i)}. It must be h L + O(h^2), "
                    "scaled as an action, without terms linear in v or of the form f(q1) - f(q0). Use "
                    f"{_instead(m)}, or correct it"
                )
        length = max(float(np.max(np.abs(at.q[i]))), _EPS)
        natural = (
            float(np.nanmedian(np.linalg.norm(pull[i][-_RUNGS // 2 :], axis=-1)))
            + speed * float(np.max(np.abs(at.u[i]))) / length
        )
        off = _left_over(force[i], natural, noise * speed / natural / at.h[i])
        if off:
            raise ValueError(
                f"{name} does not stand for the Lagrangian of {m.label}: as h goes to 0 its force "
                f"(D1 L_d + D2 L_d)/h differs from dL/dq by {off:.2g} of it, {_where(m, at, i)}. Use "
                f"{_instead(m)}, or correct how it depends on the configurations"
            )
    if ld.symmetric:
        short = np.linalg.norm(first, axis=-1) + np.linalg.norm(last, axis=-1)
        _check_symmetric(name, _lengths(mass, _reversed_momenta(m, ld, at)), short, m, at)
    # Consistent and symmetric rules are of order 2. On groups there is no motion in coordinates to compare with.
    if ld.order > (2 if ld.symmetric else 1) and Trait.COORDINATES in m.traits:
        _check_order(name, ld, m, at)


def _check_order(name: str, ld: DiscreteLagrangian, m: Mechanics, at: States) -> None:
    gaps = np.linalg.norm(_lengths(at.mass[:, None], _exact_departure(m, ld, at)), axis=-1)
    for i, gap in enumerate(gaps):
        speed = _speed(at, i)
        # Far enough above rounding to have a slope, and below a tenth, above which powers of h do not show yet.
        clear = np.isfinite(gap) & (gap > 1e3 * _noise(at, i) * speed) & (gap < 0.1 * speed)
        pairs = np.flatnonzero(clear[:-1] & clear[1:])
        if len(pairs) < 3:
            continue
        order = float(np.median(np.log2(gap[pairs] / gap[pairs + 1])[-3:]))
        if order < ld.order - 0.5:
            raise ValueError(
                f"{name} is said to be of order {ld.order}, but near the start its momenta are right to order "
                f"{max(round(order), 1)} in h only. Say so, CustomLagrangian(..., {max(round(order), 1)}), or "
                "correct it"
            )


def check_constraint_at(constraint: DiscreteConstraint, m: Mechanics, at: States) -> None:
    """Refuses a discrete constraint that does not tend to the constraint of the system as steps go to zero."""
    name = f"the discrete constraint {constraint.cli_name}"
    on, off, solved, back, forms, allowed = _violations(m, constraint, at)
    forms, gaps = forms[:, 0], np.full((*at.h.shape, at.u.shape[-1]), np.nan)
    short = np.full(at.h.shape, np.nan)
    at = at._replace(u=allowed[:, 0])
    for i in range(len(at.q)):
        factor = np.linalg.cholesky(at.mass[i])
        value, slope, beyond, back_slope = (
            on[0][i],
            *(_across(factor, x[i]) for x in (on[1], off[1], back[1])),
        )
        if not forms.shape[-2] or _smallest(_across(factor, forms[i])) <= 1e-6:
            continue  # the one-forms themselves lose rank there, and a frame decides
        fine = np.all(np.isfinite(slope), axis=(-2, -1)) & np.all(np.isfinite(value), axis=-1)
        if not np.any(fine):
            if np.array_equal(at.q[i], at.q[0]):
                raise ValueError(
                    f"{name} is NaN or infinite, or its derivative is, {_where(m, at, i)} for every step size"
                )
            continue
        # A row that vanishes on the constraint, as that of a square does, shows by comparison with rows beside it.
        lengths, others = (np.linalg.norm(x[fine], axis=-1) for x in (slope, beyond))
        largest = np.maximum(lengths, others)
        vanish = np.median(lengths / np.where(largest == 0, 1.0, largest), axis=0)
        if min(np.median([_smallest(x) for x in slope[fine]]), np.min(vanish)) <= 1e-7:
            raise ValueError(
                f"{name} does not have {forms.shape[-2]} independent rows {_where(m, at, i)}: its derivative by "
                "the velocity of the step must have the rank of the one-forms. Use PointConstraint(0.5), or "
                "correct it"
            )
        speed, noise = _speed(at, i), _noise(at, i)
        miss = _missed(slope, value)
        short[i] = np.linalg.norm(miss, axis=-1)
        left = _left_over(miss, speed, noise, at.h[i])
        if left:
            raise ValueError(
                f"{name} does not stand for the constraint of {m.label}: a small step with an allowed velocity "
                f"misses it by {left:.2g} of the velocity, {_where(m, at, i)}. It must contain the diagonal "
                "q1 = q0 and become A(q) v = 0 as h goes to 0. Use PointConstraint(0.5), or correct it"
            )
        found = np.linalg.norm(_missed(slope, solved[i]), axis=-1, keepdims=True)
        gaps[i] = np.where(found <= _IDENTITY * speed, _missed(back_slope, back[0][i]), np.nan)
    if constraint.symmetric:
        _check_symmetric(name, gaps, short, m, at)


def _check_symmetric(name: str, gaps: np.ndarray, short: np.ndarray, m: Mechanics, at: States) -> None:
    """Refuses a rule that is declared symmetric, but whose steps back are not its steps forward reversed."""
    sizes = np.linalg.norm(gaps, axis=-1)
    for i, size in enumerate(sizes):
        speed = _speed(at, i)
        bound = (_IDENTITY + 1e3 * _noise(at, i)) * speed
        # Only where the rule is near its limit and stays there: over many oscillations of a function rounding grows.
        close = np.logical_and.accumulate((short[i] <= 0.1 * speed)[::-1])[::-1]
        if np.any(size[close] > bound[close]):
            worst = np.nanmax(np.where(close & (size > bound), size, 0.0)) / speed
            raise ValueError(
                f"{name} is said to be symmetric, but the step back from q1 to q0 with -h differs from the step from "
                f"q0 to q1 by up to {worst:.2g} of the velocity, {_where(m, at, i)}. Say "
                "is_symmetric=False, or correct it"
            )
        if not np.any(np.isfinite(size)) and i == 0:
            raise ValueError(
                f"{name} is said to be symmetric, but with -h it is NaN or infinite, so that no step goes back. Say "
                "is_symmetric=False, or correct it"
            )


def _left_over(gap: np.ndarray, scale: float, noise: np.ndarray, h: np.ndarray | None = None) -> float:
    """The limit of a sequence that should go to zero with h, in units of `scale`; zero if it is only rounding.

    Extrapolation removes linear terms. The limit is taken at the place on the ladder where three values in a row agree
    best. If the steps are given, the size at the shortest steps shows sequences that grow as h goes to zero.
    """
    better = 2 * gap[1:] - gap[:-1]
    change = np.linalg.norm(np.diff(better, axis=0), axis=-1)
    trust = np.maximum(change[1:], change[:-1]) + noise[2:-1] * scale
    trust = np.where(np.isfinite(trust), trust, np.inf)
    best = int(np.argmin(trust))
    found = float(np.linalg.norm(better[best + 1])) if np.isfinite(trust[best]) else 0.0
    if found > _LIMIT * scale + 10 * trust[best]:
        return found / scale
    if h is not None:
        size = np.linalg.norm(gap, axis=-1)
        # This includes the rounding of numbers as large as one, which a formula may contain.
        sure = np.flatnonzero(np.isfinite(size) & (noise < 1e-4))[-3:]
        if len(sure) == 3 and np.all(size[sure] > 0.1 * scale):
            return float(size[sure[0]] / scale)
    return 0.0


def _noise(at: States, i: int) -> np.ndarray:
    """The rounding error of differences of positions relative to the step, shape (K,), in a formula of some dozens of
    operations."""
    moved = at.h[i] * np.max(np.abs(at.u[i]))
    return 64 * _EPS * (1 + np.max(np.abs(at.q[i])) / moved)


def _speed(at: States, i: int) -> float:
    return float(np.sqrt(at.u[i] @ at.mass[i] @ at.u[i]))


def _across(factor: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The one-forms in an orthonormal basis of the kinetic metric."""
    return np.swapaxes(np.linalg.solve(factor, np.swapaxes(rows, -1, -2)), -1, -2)


def _missed(slopes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The velocity by which each step misses the constraint, shape (K, n)."""

    def one(slope, value):
        if not (np.all(np.isfinite(slope)) and np.all(np.isfinite(value))):
            return np.full(slope.shape[1], np.nan)
        return np.linalg.lstsq(slope, value, rcond=None)[0]

    return np.stack([one(*x) for x in zip(slopes, values, strict=True)])


def _smallest(rows: np.ndarray) -> float:
    """The smallest singular value of the rows, normalised to length one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return float(np.linalg.svd(rows / np.where(lengths > 0, lengths, 1), compute_uv=False)[-1])


def _instead(m: Mechanics) -> str:
    return 'Retraction("exp")' if Trait.GROUP in m.traits else "Midpoint()"


def _where(m: Mechanics, at: States, i: int) -> str:
    def words(names, x):
        return ", ".join(f"{name}={value:.6g}" for name, value in zip(names, x, strict=True))

    if np.array_equal(at.q[i], at.q[0]):
        return f"at the start ({words(m.coordinates, at.q[i])})"
    return f"near the start ({words(m.coordinates, at.q[i])})"
