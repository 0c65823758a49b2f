"""The step size at which a residual vanishes: a bounded secant, and what is tried where that fails."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.methods.status import Status

_POINTS = 12
_RATIO = 10 ** (1 / _POINTS)
# Step sizes of the scan, in units of the last: up to 10, down to 1/10, and from there backwards in time. They
# avoid -1, where the trivial root is.
_UP, _DOWN = _RATIO ** np.arange(_POINTS + 1), _RATIO ** -np.arange(_POINTS + 1)
_BACK = -0.087 * _RATIO ** np.arange(2 * _POINTS + 1)
_SCAN = np.concatenate([_UP, _DOWN, _BACK])
_FORWARD = len(_UP) + len(_DOWN)
# What counts as a root, relative to the energy: rounding is 1e-16, and where there is none 1e-8 and more are left.
_NEAR = 1e-12
SECANT, SCAN, HALVE, LEAST, DONE = range(5)


class Found(NamedTuple):
    """A step size, its residual and the other unknowns, how many were tried, and how it ended."""

    h: Array
    e: Array
    x: Array
    tries: Array
    status: Array
    continued: Array


class Search(NamedTuple):
    """What the search knows; `h` is tried next."""

    phase: Array
    tries: Array
    index: Array
    """How many tries this phase has made."""
    h: Array
    x: Array
    h0: Array
    f0: Array
    """The try before, or one end of the bracket."""
    other: Array
    """The other end of the bracket; of the least-squares search the logarithm of its reach."""
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
    continuation: bool,
) -> Found:
    """The root h of an energy residual near the last step size.

    `residual(h, x)` returns it, the other unknowns and a report. For symmetric methods h = -last is always a root:
    f = e(h)/(h + last) has it no more, and is nearly linear. A secant, bounded to 0.3 h a time, seeks the root of f
    from last^2/before. Where it fails, a scan of 0.1 to 10 times the last step seeks a change of sign, which is then
    halved.
    Where there is none, a scan of negative steps says which kind of failure it is; with `continuation` the step
    with the least residual is taken instead.
    """
    eps = jnp.finfo(x.dtype).eps
    guess = last * jnp.clip(last / before, 0.5, 2.0)
    low, high = 0.1 * last, 10 * last
    code = {status: jnp.int32(status.code) for status in Status}

    def phase(k: int) -> Array:
        return jnp.int32(k)

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
        f = jnp.where(sound, e / (c.h + last), jnp.nan)
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
        solved = (size <= 2 * eps * scale) & (c.phase <= HALVE)
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
    # A change of sign without a root, as at a pole.
    status = jnp.where(off & fine, code[Status.NO_ROOT], end.status)
    return Found(end.best, end.e, end.best_x, end.tries, status, jnp.zeros((), bool))


def _where(which: Array, new: Search, old: Search) -> Search:
    return jax.tree.map(partial(jnp.where, which), new, old)
