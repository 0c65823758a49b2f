"""The modified vector field of a method: the field whose exact flow passes through the method's steps."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from dalembert.diagnostics.inputs import as_rows
from dalembert.diagnostics.iterates import (
    Iterates,
    Point,
    back,
    begun,
    central_weight,
    forth,
    forward_weight,
    returned,
    scales,
    sizes,
)
from dalembert.diagnostics.precise_field import PreciseValue, precise_value
from dalembert.kernels import over_rows
from dalembert.methods import Claims, Method
from dalembert.model import Mechanics, System, Trait, as_arrays, check_system, lower, violates
from dalembert.numerics import Vectors

MOST_TERMS = 24
"""The number of steps that are taken to either side."""
_SYMMETRIC = 1e-11
"""A method is symmetric if a step back and a step miss by less than this; both solve their equations to rounding."""


class FieldValue(NamedTuple):
    """The modified field at a state, with estimates of its error."""

    q: Array
    """q', or the body velocity on a group."""
    v: Array
    """The derivative of the method's own velocity."""
    q_error: Array
    """The estimated error of q', in the kinetic metric."""
    v_error: Array
    """The estimated error of the derivative of the velocity, in the kinetic metric."""
    pace: Array
    """The time per step: h, unless the steps differ in size."""


class ModifiedField(Iterates):
    """The field f_h whose exact flow after the time h is one step of a method, up to exponentially small terms.

    Equations: [gelfreich2018], with iterates x_j = Phi^j(x) of the step,
        f_h(x) = (1/h) sum_{j=1..K} c_j (x_j - x_-j),   c_j = (-1)^(j+1) (K!)^2 / (j (K-j)! (K+j)!).
    The remainder is of the size of h^(2K) times the derivative of order 2K+1 of the flow, and rounding adds a few
    units of the state divided by h. K is chosen at every state such that the sum of both estimates is smallest. If
    steps back cannot be found, the same polynomial through forward steps alone takes its place.
    For methods on TQ, whose velocity has a part that changes its sign at every step, Phi^2 and 2 h take the places of
    Phi and h. For methods whose steps differ in size, Phi acts on (t, q, v) with the energy that makes h the size of
    the step, and the result is divided by the time per step.
    """

    terms: int = eqx.field(static=True, default=MOST_TERMS)
    """The largest K."""
    fixed: bool = eqx.field(static=True, default=False)
    """Whether the largest K is used at all states. A choice of K at every state makes small jumps, which add up along a
    closed orbit, where the smooth remainders of one K mostly cancel."""

    def __call__(self, q: Any, v: Any, t: Any = 0.0) -> tuple[Array, Array]:
        """q' and the derivative of the method's own velocity, at a state with this velocity; a function of JAX."""
        value = self.value(q, v, t)
        return value.q, value.v

    def __hash__(self) -> int:
        return id(self)  # so that jax.jit(field) works, which looks its functions up

    def __eq__(self, other: object) -> bool:
        return self is other

    def value(self, q: Any, v: Any, t: Any = 0.0) -> FieldValue:
        """The field and its estimated error at one state; a function of JAX."""
        q, v, t = (jnp.asarray(x, float) for x in (q, v, t))
        return _value(self, q, v, t)

    def expansion(self, q: Vectors, v: Vectors, count: int = 2, t: Any = 0.0) -> "Expansion":
        """The coefficients of the powers of h in the field at each row: of the first `count` powers that occur.

        They come from fields of several step sizes below h, by a polynomial through all of them. If steps with -h
        are steps back, as for symmetric methods on D, only even powers occur.
        """
        if not isinstance(count, int | np.integer) or not 1 <= count <= 4:
            raise ValueError(f"count must be a whole number from 1 to 4, got {count!r}")
        q, v = as_rows(self.mechanics.system, q, v)
        t = np.broadcast_to(np.asarray(t, float), (len(q),))
        missed = max(float(np.max(x)) for x in over_rows(_asymmetry)(self, q, v, t))
        # Of methods on TQ, not Phi_-h but its conjugate by a reflection takes steps back.
        stride = 2 if missed < _SYMMETRIC and self.stride == 1 else 1
        nodes = count + 3 if stride == 2 else count + 4
        steps = float(self.h) * np.linspace(1.0, 0.25, nodes)
        values = [eqx.tree_at(lambda f: f.h, self, jnp.asarray(h)).rows(q, v, t) for h in steps]
        table = np.stack([np.concatenate([x.q, x.v], axis=1) for x in values])
        errors = np.stack([np.maximum(x.q_error, x.v_error) for x in values])
        made = [_fit(steps[:k], table[:k], errors[:k], stride) for k in (nodes, nodes - 1)]
        doubt = (
            np.max(np.abs(made[0][0][: count + 1] - made[1][0][: count + 1]), axis=2)
            + made[0][1][: count + 1]
        )
        found = made[0][0][: count + 1]
        n = values[0].q.shape[1]
        powers = tuple(stride * k for k in range(count + 1))
        return Expansion(powers, found[..., :n], found[..., n:], doubt)

    def rows(self, q: Vectors, v: Vectors, t: Any = 0.0) -> FieldValue:
        """The field and its estimated error at each row, by machine code."""
        q, v = as_rows(self.mechanics.system, q, v)
        t = np.broadcast_to(np.asarray(t, float), (len(q),))
        if self.stride == 1 and self.mechanics.constrained:
            bad, off = over_rows(_violation)(self.mechanics, q, v, t)
            if np.any(bad):
                row = int(np.argmax(np.any(bad, axis=1)))
                m, name = self.mechanics, self.method.cli_name
                raise ValueError(
                    f"the velocity in row {row}, {v[row]}, does not satisfy the constraints of {m.label}, as that of "
                    f"{name} does: A(q) v - b is {off[row]}. da.start finds the nearest velocity that does"
                )
        return FieldValue(*over_rows(_value)(self, q, v, t))

    def precise(self, q: Any, v: Any, digits: int = 30, t: Any = 0.0) -> PreciseValue:
        """The field at one state with about so many digits, as far as the steps of the method determine them.

        The velocity is first brought to the constraints in all digits. Coefficients of rules of quadrature have all
        digits too; other numbers in the text of a system or a method, such as 0.1, are those of double precision, and
        so is h. It takes seconds to minutes.
        """
        return precise_value(self, q, v, t, digits)


def modified_field(system: System, method: Method, h: float | None = None) -> ModifiedField:
    """The modified vector field of a method with step size h on a system.

    The result is a function of JAX, `field(q, v)`, which returns q' and the derivative of the velocity. The velocity is
    the method's own, which lies in D for most methods. `field.value(q, v)` also returns error estimates, and
    `field.rows(q, v)` evaluates many states quickly.
    """
    check_system(system)
    if not isinstance(method, Method):
        raise ValueError(f"expected a method such as FrameGradient(), got {method!r}")
    h = system.step if h is None else h
    if h is None:
        raise ValueError(f"{system.label} recommends no step size; give h")
    if np.ndim(h) or not np.isfinite(h) or h <= 0:
        raise ValueError(f"h must be one positive number, got {h!r}")
    method.check(system)
    m = lower(as_arrays(system))
    m.refuse_indefinite("the error estimate of a modified field")
    if Trait.TIMED in m.traits and method.variable_step:
        raise ValueError(
            f"{method.cli_name} chooses its steps by the energy, which {m.label} does not conserve because it depends "
            "on time; take a method with equal steps"
        )
    return ModifiedField(
        m, as_arrays(method), jnp.asarray(h, float), stride=1 if on_constraint(method, system) else 2
    )


def on_constraint(method: Method, system: System) -> bool:
    """Whether the method says that its own velocity satisfies the constraints."""
    try:
        claims: Claims = method.claims(system)
    except NotImplementedError:
        return not method.parasitic
    return claims.on_constraint


class Expansion(NamedTuple):
    """The modified field as a sum of powers of h; the first one is h^0, whose coefficient is the exact field."""

    powers: tuple[int, ...]
    q: Float[np.ndarray, "powers rows n"]
    """The coefficients of q', one row per state for each power."""
    v: Float[np.ndarray, "powers rows k"]
    """The coefficients of the derivative of the velocity."""
    error: Float[np.ndarray, "powers rows"]
    """The estimated error of the largest entry of each coefficient."""


def _fit(
    steps: np.ndarray, values: np.ndarray, errors: np.ndarray, stride: int
) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients of the polynomial in h^stride through all values, and what their errors make of them."""
    top = steps[0]
    powers = stride * np.arange(len(steps))
    weights = np.linalg.inv((steps[:, None] / top) ** powers) / top ** powers[:, None]
    return np.tensordot(weights, values, axes=1), np.tensordot(np.abs(weights), errors, axes=1)


def _violation(m: Mechanics, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    """Which constraints the velocity violates, as numbers, and A v - b."""
    here = m.at(t)
    bad = violates(here.forms(q, v), v, here.levels(q, v), here.metric(q))
    return bad.astype(q.dtype), here.violation(q, v)


def _asymmetry(f: ModifiedField, q: Array, u: Array, t: Array) -> tuple[Array, Array]:
    """How far a step misses a state after what would be a step back for a symmetric method, relative to its scales."""
    x = begun(f, q, u, t)
    y = forth(f, back(f, x))
    m = f.mechanics.at(t)
    dq, du = sizes(m, q, m.space.difference(q, y.q), y.u - u)
    size = scales(f, m, q, u)
    return dq / size[0], f.h * du / size[1]


def _weights(weight: Callable[[int, int], Fraction], terms: int) -> np.ndarray:
    """The weights for K = 1, ..., `terms`, one row per j."""
    made = [
        [float(weight(k, j)) if j <= k else 0.0 for k in range(1, terms + 1)] for j in range(1, terms + 1)
    ]
    return np.array(made)


def _value(f: ModifiedField, q: Array, u: Array, t: Array) -> FieldValue:
    m, terms = f.mechanics.at(t), f.terms
    first = begun(f, q, u, t)
    central, forward = (
        jnp.asarray(_weights(central_weight, terms)),
        jnp.asarray(_weights(forward_weight, terms)),
    )
    n, k = m.velocity_dimension, u.shape[0]
    sums = jnp.zeros((2, terms, 1 + n + k), q.dtype)

    def away(x: Point) -> Array:
        return jnp.concatenate([(x.t - t)[None], m.space.difference(q, x.q), x.u - u])

    def body(j, carry):
        ahead, behind, sums, a, b = carry
        ahead = forth(f, ahead)
        behind, a1, b1 = returned(f, behind)
        there, before = away(ahead), away(behind)
        both = jnp.where(central[j][:, None] == 0, 0.0, central[j][:, None] * (there - before))
        one = jnp.where(forward[j][:, None] == 0, 0.0, forward[j][:, None] * there)
        later = jnp.arange(terms) >= j  # a step back that was missed spoils all sums that use it
        a, b = (jnp.where(later, jnp.maximum(x, y), x) for x, y in ((a, a1), (b, b1)))
        return ahead, behind, sums + jnp.stack([both, one]), a, b

    zero = jnp.zeros(terms, q.dtype)
    _, _, sums, a, b = lax.fori_loop(0, terms, body, (first, first, sums, zero, zero))
    return _chosen(f, m, q, u, sums / (f.stride * f.h), a, b)


def _chosen(
    f: ModifiedField, m: Mechanics, q: Array, u: Array, sums: Array, a: Array, b: Array
) -> FieldValue:
    """The value with the smallest estimated error among all numbers of terms, and centred and forward differences."""
    n = m.velocity_dimension
    eps, length = jnp.finfo(q.dtype).eps, f.stride * f.h
    size_q, size_u = (eps * x for x in scales(f, m, q, u))
    infinite = jnp.full((), jnp.inf, q.dtype)
    best_q, best_u = (jnp.zeros(n, q.dtype), infinite), (jnp.zeros_like(u), infinite)
    pace = f.h
    kinds = ((True, _weights(central_weight, f.terms)), (False, _weights(forward_weight, f.terms)))
    for centred, weights in kinds[: 1 if f.fixed else 2]:
        spread = np.sqrt((1 + centred) * np.sum(weights**2, axis=0)) / length
        # What a step back misses says how accurate steps are; forward differences trust the steps themselves.
        noise_q, noise_u = (
            size_q + (a if centred else jnp.zeros_like(a)),
            size_u / f.h + (b if centred else jnp.zeros_like(b)),
        )
        values = sums[0 if centred else 1]
        if f.method.variable_step:
            values = jnp.concatenate([values[:, :1], values[:, 1:] / values[:, :1]], axis=1)
        changes = [sizes(m, q, x[1 : n + 1], x[n + 1 :]) for x in values[1:] - values[:-1]]
        for k in range(f.terms - 1 if f.fixed else 2, f.terms):
            # Where terms fall like a power of K, those that are left out add up to about K times the last one.
            error_q = k * jnp.maximum(changes[k - 1][0], changes[k - 2][0]) + spread[k] * noise_q[k]
            error_u = k * jnp.maximum(changes[k - 1][1], changes[k - 2][1]) + spread[k] * noise_u[k]
            if f.method.variable_step:
                pace = jnp.where(error_q < best_q[1], f.h * values[k, 0], pace)
            best_q = _smaller(best_q, (values[k, 1 : n + 1], error_q))
            best_u = _smaller(best_u, (values[k, n + 1 :], error_u))
    lost = jnp.where(jnp.isfinite(best_q[1] + best_u[1]), 0.0, jnp.nan)
    return FieldValue(best_q[0] + lost, best_u[0] + lost, best_q[1], best_u[1], pace)


def _smaller(one: tuple[Array, Array], two: tuple[Array, Array]) -> tuple[Array, Array]:
    better = two[1] < one[1]
    return jnp.where(better, two[0], one[0]), jnp.where(better, two[1], one[1])
