"""The way between velocities and momenta, for Lagrangians of any kind."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.kernels import Scalars, Unsupported
from dalembert.model import Mechanics, Trait, along_surface, as_arrays, nearest_velocity
from dalembert.numerics import Recent, current, diagonal, kind_of, matmul, matvec, newton, solve_spd

_known = Recent(256)


def is_general(m: Mechanics) -> bool:
    """Whether the formulas do not show that dL/dv = M(q) v, with the same M for every v.

    Formulas decide, not numbers, because the same compiled code serves all parameters.
    """
    if "lagrangian" not in m.given:
        return False
    key = kind_of(current(as_arrays(m.system))), m.traits
    found = _known.find(key)
    return _known.keep(key, not _is_shown_natural(m)) if found is None else found


def _is_shown_natural(m: Mechanics) -> bool:
    number = jnp.zeros(()).dtype
    system = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), m.system)
    t, q, v = (jax.ShapeDtypeStruct(x, number) for x in ((), (m.dimension,), (m.velocity_dimension,)))

    def there(system: Any, t: Array) -> Mechanics:
        return Mechanics(system, t, m.traits, m.given, None, m.whole)

    try:
        still = Scalars(
            lambda system, t, q, v: there(system, t).momentum(q, jnp.zeros_like(v)), system, t, q, v
        )
        curved = Scalars(lambda system, t, q, v: there(system, t).hessian(q, v), system, t, q, v)
    except Unsupported:
        return False
    first = sum(x.size for x in jax.tree.leaves(system)) + 1 + m.dimension
    return still.is_zero and not curved.reads(range(first, first + m.velocity_dimension))


def momentum(m: Mechanics, q: Array, v: Array) -> Array:
    """dL/dv."""
    return m.momentum(q, v) if is_general(m) else matvec(m.metric(q), v)


def mass_at(m: Mechanics, q: Array, v: Array) -> Array:
    """d2L/dv2 at (q, v)."""
    return m.hessian(q, v) if is_general(m) else m.metric(q)


def velocity(m: Mechanics, q: Array, p: Array, guess: Array) -> Array:
    """The velocity near `guess` whose momentum is p; NaN if none is found."""
    if not is_general(m):
        return m.solved(m.metric(q), p)
    mass = m.hessian(q, guess)
    found, info = newton(lambda v: solve_spd(mass, m.momentum(q, v) - p), guess, 1 / _size(mass, guess, p))
    return jnp.where(info.converged, found, jnp.nan)


def allowed_velocity(m: Mechanics, q: Array, plus: Array) -> Array:
    """The allowed velocity whose momentum differs from that of `plus` by reactions alone; NaN if none is found.

    If dL/dv = M v, it is the nearest allowed velocity.
    """
    if not is_general(m) or not m.constrained:
        return nearest_velocity(m, q, plus)
    return _held(m, q, plus, m.rows(q), m.offsets(q))


def tangent_velocity(m: Mechanics, q: Array, plus: Array) -> Array:
    """The same with the position constraints alone; `plus` itself if there are none."""
    if not is_general(m) or Trait.HOLONOMIC not in m.traits:
        return along_surface(m, q, plus)
    return _held(m, q, plus, m.slopes(q), m.rates(q))


def _held(m: Mechanics, q: Array, plus: Array, rows: Array, offsets: Array) -> Array:
    """v with rows v = offsets and dL/dv(v) = dL/dv(plus) + rows^T lam."""
    p, mass, n = m.momentum(q, plus), m.hessian(q, plus), plus.shape[0]
    z = solve_spd(mass, rows.T)
    guess = plus - matvec(z, solve_spd(matmul(rows, z), matvec(rows, plus) - offsets))

    def equations(x: Array) -> Array:
        v, lam = x[:n], x[n:]
        balance = solve_spd(mass, m.momentum(q, v) - p) - matvec(z, lam)
        return jnp.concatenate([balance, matvec(rows, v) - offsets])

    start = jnp.concatenate([guess, jnp.zeros(rows.shape[0], q.dtype)])
    own = jnp.sqrt(diagonal(mass))
    made = jnp.finfo(q.dtype).tiny + jnp.sum(own[:, None] * jnp.abs(z), axis=0)
    x, info = newton(equations, start, 1 / _size(mass, guess, p), weights=jnp.concatenate([own, made]))
    return jnp.where(info.converged, x[:n], jnp.nan)


def _size(mass: Array, v: Array, p: Array) -> Array:
    weights = jnp.sqrt(diagonal(mass))
    return jnp.sum(weights * jnp.abs(v)) + jnp.sum(jnp.abs(p) / weights) + jnp.finfo(v.dtype).tiny


def reactions(m: Mechanics, q: Array, v: Array, change: Array) -> Array:
    """lam with A^T lam = change, a change of the momentum that the constraints cause."""
    rows = m.rows(q)
    z = solve_spd(m.hessian(q, v), rows.T)
    return solve_spd(matmul(rows, z), matvec(z.T, change))
