"""The modified vector field with as many digits as wanted."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.diagnostics.inputs import as_rows
from dalembert.diagnostics.iterates import (
    Iterates,
    Point,
    allowed,
    begun,
    central_weight,
    forth,
    forward_weight,
    returned,
    scales,
    sizes,
)
from dalembert.kernels import SOLVED, ManyDigits, Unsupported
from dalembert.model import Mechanics, onto_surface

MOST_DIGITS = 300
_MOST_TERMS = 150
_PATIENCE = 8
"""The number of terms after which the error must be half as large, or no more are tried: what is left then is about
the exponentially small part of a step that no field has."""
_RESTORED = 5
"""How often a state is brought back to the group and the surface. Every time doubles its digits, 16 at first."""


class PreciseValue(NamedTuple):
    """The field at a state as arrays of mpmath's numbers, with estimates of its error.

    What is computed from them has the digits that mpmath works with: see mpmath.workdps.
    """

    q: np.ndarray
    """q', or the body velocity on a group."""
    v: np.ndarray
    """The derivative of the method's own velocity."""
    q_error: float
    """The estimated error of q', in the kinetic metric."""
    v_error: float
    """The estimated error of the derivative of the velocity, in the kinetic metric."""
    pace: Any
    """The time per step: h, unless the steps differ in size."""
    terms: int
    """The number of steps to either side that the value was made of."""
    state: tuple[np.ndarray, np.ndarray]
    """The state that was given, with a velocity that satisfies the constraints in all digits."""


def precise_value(f: Iterates, q: Any, v: Any, t: Any, digits: int) -> PreciseValue:
    """See `ModifiedField.precise`."""
    if not isinstance(digits, int | np.integer) or not 17 <= digits <= MOST_DIGITS:
        raise ValueError(
            f"digits must be a whole number from 17 to {MOST_DIGITS}, got {digits!r}; field.rows(q, v) has the digits "
            "of double precision"
        )
    (q,), (v,) = as_rows(f.mechanics.system, [q], [v])
    try:
        return _precise(f, jnp.asarray(q), jnp.asarray(v), jnp.asarray(t, float), int(digits))
    except Unsupported as error:
        raise ValueError(
            f"a step of {f.method.cli_name} on {f.mechanics.label} cannot be computed with {digits} digits, because it "
            f"uses the operation {error.primitive}; field.rows(q, v) has the digits of double precision"
        ) from None


def _precise(f: Iterates, q: Array, v: Array, t: Array, digits: int) -> PreciseValue:
    arrays, static = eqx.partition(f, eqx.is_array)

    def with_digits(function: Callable, *like: Any) -> Callable:
        # Parameters are arguments, so that what follows from them has all digits too.
        made = ManyDigits(lambda a, *x: function(eqx.combine(a, static), *x), arrays, *like, digits=digits)
        return lambda *x: made(arrays, *x)

    like = begun(f, q, v, t)
    ahead_of, behind_of, away = (
        with_digits(forth, like),
        with_digits(returned, like),
        with_digits(_away, like, like),
    )
    first = with_digits(_exact_start, q, v, t)(q, v, t)
    ahead = behind = first
    found = _Candidates(f, f.mechanics.at(t), q, v, 10.0**-digits)
    while found.open():
        ahead = ahead_of(ahead)
        behind, *missed = behind_of(behind)
        found.add(away(first, ahead), away(first, behind), np.array([float(x.item()) for x in missed]))
    if found.best is None:
        raise ValueError(
            f"{f.method.cli_name} on {f.mechanics.label} has no modified field with {digits} digits at this state: "
            f"only {len(found.ahead) - 1} of its steps were solved"
        )
    n = f.mechanics.velocity_dimension
    moving, changing = found.best
    return PreciseValue(
        moving.value[1 : n + 1],
        changing.value[n + 1 :],
        q_error=moving.error,
        v_error=changing.error,
        pace=moving.value[0] * float(f.h),
        terms=max(moving.terms, changing.terms),
        state=(first.q, first.u),
    )


def _exact_start(f: Iterates, q: Array, v: Array, t: Array) -> Point:
    """The state itself, on the group, on the surface and with an allowed velocity in all digits."""
    here = f.mechanics.at(t)
    for _ in range(_RESTORED):
        q = onto_surface(here, here.space.restore(q))
    return begun(f, q, allowed(f, t, q, v), t)


def _away(f: Iterates, x: Point, y: Point) -> Array:
    """What leads from x to y, with the time first."""
    return jnp.concatenate([(y.t - x.t)[None], f.mechanics.space.difference(x.q, y.q), y.u - x.u])


class _Candidate(NamedTuple):
    value: np.ndarray
    error: float
    terms: int


class _Candidates:
    """The sums over more and more steps, and those among them whose estimated errors in q' and in v' are smallest."""

    def __init__(self, f: Iterates, m: Mechanics, q: Array, v: Array, unit: float):
        self.f, self.m, self.q, self.unit = f, m, q, unit
        place, speed = (float(x) for x in scales(f, m, q, v))
        self.noise = unit * 10.0**-SOLVED * np.array([place, speed / float(f.h)])
        self.speed = speed / float(f.h)
        self.ahead: list[np.ndarray] = []
        self.behind: list[np.ndarray] = []
        self.missed = np.zeros(2)
        self.values: dict[bool, list[np.ndarray]] = {True: [], False: []}
        self.best: list[_Candidate] | None = None
        self.gained = [(0, np.inf)] * 2
        """When each error was last half of what it was before, and what it was then."""

    def open(self) -> bool:
        """Whether more steps may help."""
        count = len(self.ahead)
        if count == _MOST_TERMS or (count and not _is_finite(self.ahead[-1])):
            return False
        if self.best is None:
            return True
        rate = self._sizes(self.best[1].value)[1]
        wanted = self.unit * np.array([self.speed + float(self.f.h) * rate, self.speed + rate])
        missing = [x.error > y for x, y in zip(self.best, wanted, strict=True)]
        return any(
            more and count <= gained + _PATIENCE
            for more, (gained, _) in zip(missing, self.gained, strict=True)
        )

    def add(self, ahead: np.ndarray, behind: np.ndarray, missed: np.ndarray) -> None:
        """One more step to either side, and how far the one that was taken back misses where it should lead."""
        self.ahead.append(ahead)
        self.behind.append(behind)
        self.missed = np.maximum(self.missed, missed)
        if not _is_finite(ahead):
            return
        self._try(False)
        if _is_finite(behind):
            self._try(True)

    def _try(self, centred: bool) -> None:
        f, count, values = self.f, len(self.ahead), self.values[centred]
        length = f.stride * float(f.h)
        weight = central_weight if centred else forward_weight
        weights = [weight(count, j) for j in range(1, count + 1)]
        steps = [x - y for x, y in zip(self.ahead, self.behind, strict=True)] if centred else self.ahead
        rows = [x * w.numerator / w.denominator for x, w in zip(steps, weights, strict=True)]
        value = np.sum(np.array(rows, object), axis=0) / length
        if f.method.variable_step:
            value = np.append(value[:1], value[1:] / value[0])
        values.append(value)
        if len(values) < 3:
            return
        changes = [self._sizes(x - y) for x, y in (values[-2:], values[-3:-1])]
        noise = self.noise + (self.missed if centred else 0.0)
        spread = float(sum((1 + centred) * w * w for w in weights)) ** 0.5 / length
        # As in double precision: terms that fall like a power of their number add up to about that many of the last.
        errors = count * np.maximum(*changes) + spread * noise
        made = [_Candidate(value, float(x), count) for x in errors]
        self.best = (
            made
            if self.best is None
            else [min(x, y, key=_error) for x, y in zip(made, self.best, strict=True)]
        )
        for k, each in enumerate(self.best):
            if each.error <= 0.5 * self.gained[k][1]:
                self.gained[k] = count, each.error

    def _sizes(self, value: np.ndarray) -> np.ndarray:
        """The sizes of both parts in the kinetic metric."""
        n = self.m.velocity_dimension
        dq, dv = (jnp.asarray(np.array(x, float)) for x in (value[1 : n + 1], value[n + 1 :]))
        return np.array([float(x) for x in sizes(self.m, self.q, dq, dv)])


def _error(candidate: _Candidate) -> float:
    return candidate.error


def _is_finite(row: np.ndarray) -> bool:
    return all(np.isfinite(float(x)) for x in row)
