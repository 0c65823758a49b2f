"""The constrained motion to machine precision, by Taylor series."""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.discrete.lagrangians import plain
from dalembert.kernels.series import missing_recurrence, taylor_series
from dalembert.methods.base import Claims, Method, Report, State, Status
from dalembert.model import Mechanics, System, Trait, acceleration, lower, onto_surface, surplus
from dalembert.numerics import Recent, diagonal, tracing_once

FINEST = 1e-18
"""The default tolerance: so far below rounding that what the series leave out does not add up either."""
LEAST, MOST = 1e-20, 1e-3
"""The tolerances that make sense: below, nothing changes any more; above, a series of low order is no series."""
TURN, TURN_REST = 2 * math.pi, 2.4492935982947064e-16
"""2 pi, and what it lacks."""
SHARE = math.exp(-2)
"""The part of the tolerance that the last term of a series may have; the rest is for the terms left out."""
MOST_EXPANSIONS = 100_000
"""In one step of the loop. A motion that needs more runs into a singularity."""
BEYOND = 1 + 1e-9
"""How far past its end a series may be used, so that no other one is made for a rounding error of time."""


class Expansion(NamedTuple):
    """The series that the motion follows: coefficients of (q, v), what rounding took from coefficient zero, the time
    since its start, the time for which it holds, and the place that the run has reached."""

    coefficients: Array
    low: Array
    at: Array
    length: Array
    q: Array


class Taylor(Method):
    """The exact motion to machine precision, by Taylor series of high order with steps of their own size.

    Equations: the index-reduced equations of motion, as Reference has them: q' = v, v' = M^-1 (dL/dq - (d/dq dL/dv) v
    + F + A^T lam), with lam from d/dt (A v) = 0. Their series come from recurrences for every operation that the
    functions of the system have. The order is 1 - log(tol)/2, and a series is used for as long as its last terms are
    below the tolerance, measured by the kinetic metric, in parts of the velocity. What rounding takes from a sum goes
    into the next one. Where a series begins, the velocity is projected onto D, and q onto the surface of the position
    constraints, if there are any.
    The h of a run is the distance between its rows alone: a long one takes several series, and short ones share one.
    Functions without a series, such as jnp.where and jnp.abs, are refused.
    It conserves nothing by construction: the energy changes, but by rounding errors alone.
    Memory: the series in use.
    """

    tol: float | None = eqx.field(default=None, static=True, converter=plain)
    supports = Method.supports | {
        Trait.GROUP,
        Trait.EXTRA_VELOCITIES,
        Trait.TIMED,
        Trait.AFFINE,
        Trait.FORCED,
        Trait.VARYING_MASS,
        Trait.GENERAL_LAGRANGIAN,
        Trait.HOLONOMIC,
        Trait.NONLINEAR,
        Trait.INDEFINITE,
    }

    def __check_init__(self):
        x = self.tol
        if x is not None and (
            not isinstance(x, int | float) or isinstance(x, bool) or not LEAST <= x <= MOST
        ):
            raise ValueError(
                f"Taylor needs a tolerance from {LEAST:.0e} to {MOST:.0e}, or None for machine precision; got {x!r}"
            )

    @property
    def tolerance(self) -> float:
        """The relative error that one series may make."""
        return FINEST if self.tol is None else self.tol

    @property
    def order(self) -> int:
        """The order of the series."""
        return math.ceil(1 - math.log(self.tolerance) / 2)

    @property
    def native_gradients(self) -> bool:
        return False

    @property
    def cli_name(self) -> str:
        return "taylor" if self.tol is None else f"taylor:{self.tol!r}"

    def check(self, system: System | Mechanics) -> None:
        super().check(system)
        m = lower(system)
        leaves, structure = jax.tree.flatten(m)
        key = structure, *map(np.shape, leaves)
        found = _missing.find(key)
        if found is None:
            with tracing_once():
                size = _size(m) + (Trait.TIMED in m.traits)
                found = missing_recurrence(functools.partial(_field, m), jnp.zeros(size))
            _missing.keep(key, found or "")
        if found:
            raise ValueError(
                f"Taylor needs functions with Taylor series, but {m.label} uses {found}. Use Reference(), or "
                "write the function without it"
            )

    def init(self, m: Mechanics, state: State, h: Array) -> Expansion:
        low = jnp.zeros(_size(m), state.q.dtype)
        on, low = _reached(m, state.t, jnp.concatenate([state.q, state.v]), low)
        return self._expanded(m, on, low)._replace(q=state.q)

    def _expanded(self, m: Mechanics, state: State, low: Array) -> Expansion:
        """The series from a state."""
        n = state.q.shape[0]
        found = taylor_series(functools.partial(_field, m), _packed(m, state), self.order)[:, : _size(m)]
        here = m.at(state.t)
        weights = jnp.sqrt(diagonal(here.measure(here.metric(state.q))))
        sizes = jnp.sum(weights * jnp.abs(found[:, n:]), axis=1)
        length = self._length(sizes)
        if Trait.GROUP in m.traits:
            # A body turns although its velocity may be constant; the numbers of a group element are of size one.
            length = jnp.minimum(length, self._length(jnp.sum(jnp.abs(found[:, :n]), axis=1)))
        length = lax.stop_gradient(length)
        return Expansion(found, low, jnp.zeros_like(length), length, state.q)

    def _length(self, sizes: Array) -> Array:
        """The time after which the last two terms are no longer small beside one of the first ones."""
        logs = jnp.log(sizes)

        def ends(firsts: range) -> list[Array]:
            return [
                jnp.max(
                    jnp.stack(
                        [(logs[j] - logs[k] + math.log(SHARE * self.tolerance)) / (k - j) for j in firsts]
                    )
                )
                for k in (self.order - 1, self.order)
            ]

        # Motions begin at rest, and some coefficients vanish, so several are compared with several.
        found = lax.cond(jnp.sum(sizes[:3]) > 0, lambda: ends(range(3)), lambda: ends(range(self.order // 2)))
        found = [jnp.where(sizes[k] > 0, x, jnp.inf) for k, x in zip((-2, -1), found, strict=True)]
        return jnp.exp(jnp.minimum(*found))

    def step(self, m: Mechanics, state: State, memory: Expansion, h: Array):
        return _moved((self, m, state, memory, h))

    def within(self, m: Mechanics, state: State, memory: Expansion, h: Array, x: Array):
        inside, _, _ = self.step(m, state, memory, x * h)
        end, memory, _ = self.step(m, state, memory, h)
        return inside, end, memory

    def claims(self, system: System) -> Claims:
        return Claims(order=self.order, energy=False, reversible=False, on_constraint=True)

    def hint(self, trajectory: Any) -> str | None:
        if trajectory.status is not Status.NOT_SOLVED:
            return None
        return (
            f"One step of h = {float(trajectory.h):g}, the distance between rows, took {MOST_EXPANSIONS:,} series. The "
            "motion runs into a singularity there, or h is very large; save more rows"
        )

    def composable(self) -> str | None:
        return "it follows the exact motion already"


_missing = Recent(64)
"""What keeps systems from having Taylor series; nothing if nothing does."""


def _size(m: Mechanics) -> int:
    return m.dimension + m.velocity_dimension


def _packed(m: Mechanics, state: State) -> Array:
    """(q, v), and the time if it matters, as one vector."""
    parts = [state.q, state.v]
    if Trait.TIMED in m.traits:
        parts.append(jnp.reshape(jnp.asarray(state.t, state.q.dtype), 1))
    return jnp.concatenate(parts)


def _field(m: Mechanics, y: Array) -> Array:
    """The rate of change of (q, v), and of the time if it matters."""
    n, size = m.dimension, _size(m)
    q, v = y[:n], y[n:size]
    here = m.at(y[size]) if Trait.TIMED in m.traits else m.at(None)
    parts = [here.space.velocity(q, v), acceleration(here, q, v)[0]]
    return jnp.concatenate([*parts, jnp.ones(1, y.dtype)] if Trait.TIMED in m.traits else parts)


def _after(memory: Expansion, time: Array) -> tuple[Array, Array]:
    """(q, v) on the series at this time, as a sum of two vectors, the second of which is what rounding took."""
    first, *rest = memory.coefficients
    change = rest[-1]
    for x in rest[-2::-1]:
        change = change * time + x
    return _sum(first, change * time + memory.low)


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b, and what rounding takes from it, exactly [knuth1997]."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _reached(m: Mechanics, t: Any, y: Array, low: Array) -> tuple[State, Array]:
    """The state at (q, v), which is within rounding of the constraints, on them, and what rounding took from it."""
    here, n = m.at(t), m.dimension
    q = onto_surface(here, here.space.restore(y[:n]))
    v, lost = _sum(y[n:], low[n:] - surplus(here, q, y[n:]))
    return State(q, v, t), jnp.concatenate([jnp.where(q == y[:n], low[:n], 0.0), lost])


def _turned(memory: Expansion, turns: Array) -> Expansion:
    """The series with full turns added to its angles.

    A turn is not quite the number that stands for it, and what is missing has the same sign turn after turn.
    """
    n, first = turns.shape[0], memory.coefficients[0]
    after, lost = _sum(first[:n], turns * TURN)
    return memory._replace(
        coefficients=memory.coefficients.at[0, :n].set(after),
        low=memory.low.at[:n].add(lost + turns * TURN_REST),
    )


def _along(arguments: Any, loop: Any) -> tuple[State, Expansion, Report]:
    """The state a time h later, the series there, and a report."""
    method, m, state, memory, h = arguments
    end = None if state.t is None else state.t + h
    if m.system.angles:
        memory = _turned(memory, jnp.round((state.q - memory.q) * (1 / TURN)))

    def going(carry: Any) -> Array:
        memory, left, count = carry
        return (left > memory.length * BEYOND) & (count < MOST_EXPANSIONS)

    def further(carry: Any) -> Any:
        memory, left, count = carry
        y, low = _after(memory, memory.length)
        left = left - memory.length
        there, low = _reached(m, None if end is None else end - left, y, low)
        return method._expanded(m, there, low), left, count + 1

    carry = memory, memory.at + h, jnp.zeros((), jnp.int32)
    memory, left, count = loop(going, further, carry)
    reached, _ = _reached(m, end, *_after(memory, left))
    # What is left is zero or some rounding, unless there is no end to the series.
    report = Report(jnp.maximum(left - memory.length, 0.0), count, left <= memory.length * BEYOND)
    return reached, memory._replace(at=left, q=reached.q), report


@jax.custom_jvp
def _moved(arguments: Any) -> tuple[State, Expansion, Report]:
    return _along(arguments, lax.while_loop)


@_moved.defjvp
def _moved_jvp(primals: Any, tangents: Any) -> Any:
    """Derivatives take a loop of bounded length, because those in reverse need one."""
    from equinox.internal import while_loop

    bounded = functools.partial(while_loop, kind="bounded", max_steps=4096)
    return jax.jvp(lambda x: _along(x, bounded), primals, tangents)
