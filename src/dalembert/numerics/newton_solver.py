"""Newton's method for a few unknowns, iterated until rounding is the only error left."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from dalembert.numerics.jax_internals import ClosedJaxpr, Tracer, jaxpr_as_fun
from dalembert.numerics.linear import UNROLLED, matvec, solve
from dalembert.numerics.precision import unit_rounding

MAX_ITERATIONS = 50
# In natural units, steps of the zoo with h = 0.1 have constants C up to 4e-3. One more digit would make an implicit
# step up to 8 percent slower, and would gain nothing above rounding.
_CURVATURE = 5e-3


class NewtonInfo(NamedTuple):
    """How a solve ended: the last correction times `unit`, the number of iterations, and whether it converged."""

    residual: Array
    iterations: Array
    converged: Array


def _opened(function: Callable[[Array], Array], x: Array) -> tuple[Callable[..., Array], list[Array]]:
    """The function of x and of the values that it closes over, and these values.

    Derivatives can then be taken with respect to the values. jax.closure_convert does the same, but would keep the last
    4096 functions for ever.
    """
    traced = jax.make_jaxpr(function)(x)
    unknown = [isinstance(value, Tracer) for value in traced.consts]

    def opened(x: Array, *values: Array) -> Array:
        given = iter(values)
        consts = [next(given) if new else value for new, value in zip(unknown, traced.consts, strict=True)]
        return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, consts))(x)[0]

    return opened, [value for new, value in zip(unknown, traced.consts, strict=True) if new]


def newton(
    function: Callable[[Array], Array],
    guess: Array,
    unit: Array,
    slope: Callable[[], Array] | None = None,
    noise: Array | float = 0.0,
    weights: Array | float = 1.0,
    near_identity: bool = False,
) -> tuple[Array, NewtonInfo]:
    """The root of `function` near `guess`, and how the iteration ended.

    Corrections are measured by the sum of weights |x| times `unit`, which is one over the natural size of that sum. The
    iteration stops when the next correction is predicted to be below rounding, or when corrections no longer shrink and
    are at rounding or below `noise` (what the equations cannot resolve, in the same measure). With `slope`, a function
    that returns an approximate Jacobian, Broyden's updates replace exact Jacobians, which is cheaper if the function
    has long derivatives. If the Jacobian is `near_identity`, it begins as the identity, and only the last few updates
    are kept. Derivatives of the root come from the implicit function theorem, never from the iteration.
    """
    if guess.shape[0] == 0:
        zero = jnp.zeros((), guess.dtype)
        return guess, NewtonInfo(zero, jnp.zeros((), jnp.int32), jnp.ones((), bool))
    closed, values = _opened(function, guess)
    inverse = None if slope is None else solve(slope(), jnp.eye(guess.shape[0], dtype=guess.dtype))
    aside = jax.tree.map(
        lax.stop_gradient, (unit, *(jnp.asarray(x, guess.dtype) for x in (noise, weights)), inverse)
    )

    @jax.custom_jvp
    def root(x, aside, *values):
        *measure, inverse = aside
        if inverse is None and not near_identity:
            return _by_newton(lambda y: closed(y, *values), x, *measure)
        if inverse is None:
            return _near_identity(lambda y: closed(y, *values), x, *measure)
        return _by_broyden(lambda y: closed(y, *values), x, _Matrix(inverse), *measure)

    @root.defjvp
    def _(primals, tangents):
        (_, (_, _, weights, inverse), *values), (_, _, *changes) = primals, tangents
        x, info = root(*primals)
        _, change = jax.jvp(lambda *values: closed(x, *values), tuple(values), tuple(changes))
        at = partial(_with_values, closed, values)
        if (inverse is not None or near_identity) and len(x) > UNROLLED:
            return (x, info), (_linear(at, x, -change, inverse, weights), jnp.zeros_like(info))
        return (x, info), (-solve(jax.jacfwd(at)(x), change), jnp.zeros_like(info))

    x, info = root(lax.stop_gradient(guess), aside, *values)
    info = lax.stop_gradient(info)
    return x, NewtonInfo(info[0], info[1].astype(jnp.int32), info[2] > 0)


def _with_values(closed: Callable[..., Array], values: Sequence[Array], x: Array) -> Array:
    return closed(x, *values)


def _settled(error: Array, before: Array, count: Array, noise: Array | float, exact: bool) -> Array:
    """Whether the iteration may end, given its last two corrections."""
    eps = unit_rounding(error.dtype)
    # Newton's errors go like C e^2 with C = e/before^2; Broyden's errors go at least like e (e/before). The first
    # correction may be large only in directions in which the equations are linear, which makes this C, or this
    # ratio, too small. C is therefore taken as at least _CURVATURE, and ratios only from the third correction on.
    if exact:
        predicted = (error**3 <= 0.25 * eps * before**2) & (_CURVATURE * error * error <= eps)
    else:
        predicted = (error * error <= 0.25 * eps * before) & (count > 2)
    # Both corrections must be at rounding: one that grows from there is no root.
    stalled = (error > 0.25 * before) & (((before < 5e4 * eps) & (error < 5e5 * eps)) | (error < noise))
    return (error <= 2 * eps) | ((count > 1) & (predicted | stalled))


def _iterated(
    correct: Callable[[Array, Any], tuple[Array, Any]],
    x: Array,
    memory: Any,
    measure: tuple,
    exact: bool,
    most: int = MAX_ITERATIONS,
) -> tuple[Array, Array]:
    """Applies corrections until they settle; `correct(x, memory)` returns a correction and the new memory.

    `measure` are the unit, the noise and the weights of `newton`.
    """
    unit, noise, weights = measure

    def unfinished(carry):
        _, _, error, before, count = carry
        return ~_settled(error, before, count, noise, exact) & jnp.isfinite(error) & (count < most)

    def body(carry):
        x, memory, error, _, count = carry
        step, memory = correct(x, memory)
        return x + step, memory, unit * jnp.sum(weights * jnp.abs(step)), error, count + 1

    large = jnp.full((), jnp.finfo(x.dtype).max, x.dtype)
    start = (x, memory, large, large, jnp.zeros((), jnp.int32))
    x, _, error, before, count = lax.while_loop(unfinished, body, start)
    # Floats have derivatives (zero here), which whole numbers do not.
    good = _settled(error, before, count, noise, exact)
    return x, jnp.stack([error, count.astype(x.dtype), good.astype(x.dtype)])


def _by_newton(f: Callable[[Array], Array], x: Array, *measure: Any) -> tuple[Array, Array]:
    def correct(x, memory):
        jacobian, value = jax.jacfwd(lambda y: (f(y),) * 2, has_aux=True)(x)
        return -solve(jacobian, value), memory

    return _iterated(correct, x, (), measure, True)


def _near_identity(f: Callable[[Array], Array], x: Array, *measure: Any) -> tuple[Array, Array]:
    """Broyden's method, which begins with the identity: first with the last few updates, and where they do not suffice,
    with all of them."""

    def by_all() -> tuple[Array, Array]:
        return _by_broyden(f, x, _Matrix(jnp.eye(x.shape[0], dtype=x.dtype)), *measure)

    if x.shape[0] <= 2 * _UPDATES:  # few vectors are then no less than the matrix
        return by_all()
    # When updates are left out, corrections may shrink and grow by turns, and a small one says little.
    found = _by_broyden(f, x, _Few.none(x), *measure, most=2 * _UPDATES)
    return lax.cond(found[1][2] > 0, lambda: found, by_all)


def _by_broyden(
    f: Callable[[Array], Array], x: Array, updates: Any, *measure: Any, most: int = MAX_ITERATIONS
) -> tuple[Array, Array]:
    """Broyden's method, which begins with this approximate inverse of the Jacobian."""

    def correct(x, memory):
        updates, step, before = memory
        value = f(x)
        change = updates.times(value - before)
        length = jnp.sum(step * change)
        # If the value changed by rounding only, `change` may be nearly normal to the step, and the update would
        # blow up; it is left out then. There is one division, and none by a length whose inverse is not finite.
        moved = jnp.abs(length) >= jnp.maximum(0.01 * jnp.sum(step * step), jnp.finfo(x.dtype).tiny)
        share = jnp.where(moved, 1.0, 0.0) / jnp.where(moved, length, 1.0)
        updates = updates.with_product(share * (step - change), updates.times_from_left(step))
        step = -updates.times(value)
        return step, (updates, step, value)

    return _iterated(correct, x, (updates, jnp.zeros_like(x), jnp.zeros_like(x)), measure, False, most)


class _Matrix(NamedTuple):
    """The inverse of a Jacobian as a matrix."""

    inverse: Array

    def times(self, x: Array) -> Array:
        return matvec(self.inverse, x)

    def times_from_left(self, x: Array) -> Array:
        return matvec(self.inverse.T, x)

    def with_product(self, a: Array, b: Array) -> "_Matrix":
        """The sum with a b^T."""
        return _Matrix(self.inverse + a[:, None] * b[None, :])


class _Few(NamedTuple):
    """The inverse of a Jacobian as the identity plus the last few products a b^T."""

    a: Array
    b: Array

    @staticmethod
    def none(x: Array) -> "_Few":
        nothing = jnp.zeros((_UPDATES, *x.shape), x.dtype)
        return _Few(nothing, nothing)

    def times(self, x: Array) -> Array:
        return x + matvec(self.a.T, matvec(self.b, x))

    def times_from_left(self, x: Array) -> Array:
        return x + matvec(self.b.T, matvec(self.a, x))

    def with_product(self, a: Array, b: Array) -> "_Few":
        """The sum with a b^T, without the oldest product."""
        return _Few(*(jnp.concatenate([old[1:], new[None]]) for old, new in ((self.a, a), (self.b, b))))


_UPDATES = 5
"""Near the identity, most iterations end after four to seven corrections, and older products no longer matter."""


def _linear(
    f: Callable[[Array], Array], x: Array, right: Array, inverse: Array | None, weights: Array
) -> Array:
    """The solution d of J d = right for the Jacobian J of f at x, which is never written down.

    Each iteration of Broyden's method takes one product with J, or with its transpose on the way back; the method that
    found the root needed about as many. If it does not converge, the result is NaN.
    """
    weights = jnp.broadcast_to(weights, x.shape)
    tiny = jnp.finfo(x.dtype).tiny

    def solver(inverse: Array | None, weights: Array) -> Callable:
        def solved(times: Callable[[Array], Array], right: Array) -> Array:
            first = right if inverse is None else matvec(inverse, right)
            unit = 1 / (jnp.sum(weights * jnp.abs(first)) + tiny)
            measure = unit, 0.0, weights
            if inverse is None:
                d, info = _near_identity(lambda d: times(d) - right, first, *measure)
            else:
                d, info = _by_broyden(lambda d: times(d) - right, first, _Matrix(inverse), *measure)
            return jnp.where(info[2] > 0, d, jnp.nan)

        return solved

    return lax.custom_linear_solve(
        lambda d: jax.jvp(f, (x,), (d,))[1],
        right,
        solve=solver(inverse, weights),
        # On the way back, sizes are those of what is multiplied with corrections.
        transpose_solve=solver(None if inverse is None else inverse.T, 1 / (weights + tiny)),
    )
