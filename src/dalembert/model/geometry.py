"""The geometry of a system at a configuration: metric, projectors, accelerations, multipliers.

Everything here is gauge free: results depend only on the distribution D and the metric, not on which
one-forms or which spanning vectors the user wrote. A given frame is preferred, because it stays regular
where one-forms may lose rank.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.model.systems import Mechanics, System, lower
from dalembert.model.traits import Trait
from dalembert.numerics import (
    diagonal,
    inverse_square_root,
    matmul,
    matvec,
    null_space,
    repeated,
    skew_solution,
    solve,
    solve_spd,
    unit_rounding,
)


def nearest_velocity(system: System | Mechanics, q: Array, x: Array) -> Array:
    """The velocity nearest to x, in the kinetic metric, that satisfies the constraint: P x, or Z + P (x - Z).

    For constraints that are not linear in v, x must be near: some steps of Newton's method, each the shortest in the
    kinetic metric, lead to them. `nearest_start` finds the nearest velocity from farther away.
    """
    m = lower(system)
    if Trait.NONLINEAR in m.traits:
        mass = m.metric(q)
        for _ in range(2):
            x = x - _raised(m, mass, m.forms(q, x), m.violation(q, x))
        return x
    if Trait.AFFINE not in m.traits:
        return project(m, q, x)
    drift = m.drift(q)
    return drift + project(m, q, x - drift)


def surplus(system: System | Mechanics, q: Array, x: Array) -> Array:
    """What has to be taken off a velocity within rounding of D, with all its digits, although it is small."""
    m = lower(system)
    if not m.constrained:
        return jnp.zeros_like(x)
    if m.framed:
        return x - nearest_velocity(m, q, x)
    return _raised(m, m.metric(q), m.forms(q, x), m.violation(q, x))


def along_surface(system: System | Mechanics, q: Array, x: Array) -> Array:
    """The velocity nearest to x, in the kinetic metric, that position constraints allow: dc v = -dc/dt; x itself if
    there are none. It need not satisfy the other constraints."""
    m = lower(system)
    if Trait.HOLONOMIC not in m.traits:
        return x
    slopes = m.slopes(q)
    off = matvec(slopes, x)
    return x - _raised(m, m.metric(q), slopes, off - m.rates(q) if Trait.AFFINE in m.traits else off)


def onto_surface(system: System | Mechanics, q: Array) -> Array:
    """q after one step of Newton's method towards c(q) = 0, the shortest in the kinetic metric.

    Repeated, it ends on the surface; for q within rounding of the surface, once is enough.
    """
    m = lower(system)
    if Trait.HOLONOMIC not in m.traits:
        return q
    return m.space.displaced(q, -_raised(m, m.metric(q), m.slopes(q), m.holonomic(q)))


def nearest_configuration(system: System | Mechanics, q: Array, directions: Array | None = None) -> Array:
    """The configuration with c = 0 that is nearest to q in the kinetic metric at q; NaN if none is found.

    The columns of `directions` are the displacements that are allowed; all are by default.
    """
    m = lower(system)
    if Trait.HOLONOMIC not in m.traits:
        return q
    columns = jnp.eye(m.velocity_dimension, dtype=q.dtype) if directions is None else directions

    def value(x: Array, m: Mechanics, q: Array) -> Array:
        return m.holonomic(m.space.displaced(q, matvec(columns, x)))

    mass = m.metric(q)
    # The numbers of a group element are of size one, and there may be more of them than velocities.
    place = jnp.ones(m.velocity_dimension, q.dtype) if Trait.GROUP in m.traits else q
    size = jnp.sum(diagonal(mass) * place**2)
    x = _shortest(value, (m, q), matmul(columns.T, matmul(mass, columns)), size)
    return m.space.displaced(q, matvec(columns, x))


def nearest_allowed(system: System | Mechanics, q: Array, v: Array) -> Array:
    """The velocity at q nearest to v, in the kinetic metric, that satisfies all constraints; NaN if none is found."""
    m = lower(system)
    if Trait.NONLINEAR not in m.traits:
        return nearest_velocity(m, q, v)

    def value(x: Array, m: Mechanics, q: Array, v: Array) -> Array:
        return m.violation(q, v + x)

    mass = m.metric(q)
    return v + _shortest(value, (m, q, v), mass, jnp.sum(v * matvec(mass, v)))


def _shortest(value: Callable[..., Array], arguments: tuple, mass: Array, size: Array) -> Array:
    """The shortest x, in the metric `mass`, with value(x, *arguments) = 0; NaN if none is found.

    Newton's method first goes to some root. From there it solves the conditions of the shortest one: M x = J^T mu,
    with J the derivative of the value, and value = 0. The derivatives are those of the last two steps. `size` is the
    squared length of what x is added to.
    """
    given = (*arguments, mass)
    fixed = jax.tree.map(jax.lax.stop_gradient, given)
    n = mass.shape[0]

    def shortest(x: Array, found: Array, slopes: Array, mass: Array) -> tuple[Array, Array]:
        """The shortest root of the linear function that touches the value at x, counted from x, and its multipliers."""
        z = solve_spd(mass, slopes.T)
        x = x - matvec(z, solve_spd(matmul(slopes, z), found))
        return x, solve_spd(matmul(slopes, z), matvec(slopes, x))

    def conditions(unknowns: Array, *given: Any) -> Array:
        x, mu = unknowns[:n], unknowns[n:]
        found, back = jax.vjp(lambda x: value(x, *given[:-1]), x)
        return jnp.concatenate([matvec(given[-1], x) - back(mu)[0], found])

    def corrected(k: Array, known: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """One step of either kind, which share their derivatives, the last root of the first kind, and the matrix."""
        unknowns, some, _ = known
        matrix, wrong = jax.jacfwd(lambda x: (conditions(x, *fixed),) * 2, has_aux=True)(unknowns)
        x, mu = shortest(unknowns[:n], wrong[n:], matrix[n:, :n], fixed[-1])
        first = k < _CORRECTIONS
        unknowns = jnp.where(first, jnp.concatenate([x, mu]), unknowns - solve(matrix, wrong))
        return unknowns, jnp.where(first, x, some), matrix

    start = jnp.zeros(n, mass.dtype)
    number = jax.eval_shape(value, start, *arguments).shape[0]
    unknowns = jnp.zeros(n + number, mass.dtype)
    nothing = jnp.zeros((n + number,) * 2, mass.dtype)
    found, some, matrix = jax.lax.fori_loop(0, 2 * _CORRECTIONS, corrected, (unknowns, start, nothing))
    # A stationary point farther away than some other root is not the nearest one.
    lengths = [jnp.sum(x * matvec(fixed[-1], x)) for x in (found[:n], some)]
    rounding = (1e3 * unit_rounding(mass.dtype)) ** 2 * size
    found = jax.lax.stop_gradient(jnp.where(lengths[0] <= lengths[1] * (1 + 1e-6) + rounding, found, jnp.nan))
    x = (found - solve(jax.lax.stop_gradient(matrix), conditions(found, *given)))[:n]
    here = value(x, *given[:-1]), jax.jacfwd(value)(x, *given[:-1])
    return shortest(x, *here, given[-1])[0]


def nearest_start(system: System | Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    """The nearest configuration that satisfies the position constraints, and the nearest allowed velocity there."""
    m = lower(system)
    q = nearest_configuration(m, q)
    return q, nearest_allowed(m, q, v)


_CORRECTIONS = 30
"""The number of Newton steps towards a surface. Near it, five give all digits; far from it, the first ones wander."""


def moving_energy(system: System | Mechanics, q: Array, v: Array) -> Array:
    """v . dL/dv - L - dL/dv . Z for the drift Z of affine constraints: conserved if Z moves along a symmetry.

    For linear constraints it is the energy.

    Equations: [fasso2016].
    """
    m = lower(system)
    if Trait.AFFINE not in m.traits:
        return total_energy(m, q, v)
    return total_energy(m, q, v) - jnp.sum(m.momentum(q, v) * m.drift(q))


def total_energy(system: System | Mechanics, q: Array, v: Array) -> Array:
    """The energy v . dL/dv - L; if L is kinetic minus potential energy, it is the sum of the two."""
    m = lower(system)
    if "lagrangian" in m.given:
        value, derivative = jax.value_and_grad(m.lagrangian, argnums=1)(q, v)
        return jnp.sum(v * derivative) - value
    return 0.5 * jnp.sum(v * matvec(m.metric(q), v)) + m.potential(q)


def kinetic_size(system: System | Mechanics, q: Array, v: Array) -> Array:
    """The kinetic energy; if the metric is indefinite, the size of the terms that cancel in it."""
    m = lower(system)
    if Trait.INDEFINITE in m.traits:
        return 0.5 * jnp.sum(v * matvec(m.measure(m.metric(q)), v))
    return total_energy(m, q, v) - m.potential(q)


def oblique_projection(system: System | Mechanics, onto: Array, along: Array, x: Array) -> Array:
    """The projection of x onto D at `onto`, along the metric complement of D at `along`.

    With one-forms it is x - Z (A1 Z)^-1 A1 x, where Z = M^-1 A^T at `along` and A1 is taken at `onto`. With
    frames it is B1 (B^T M B1)^-1 B^T M x. x is a vector or a matrix of columns.
    """
    m = lower(system)
    m.refuse_nonlinear()
    if m.framed:
        b1 = m.frame(onto)
        weights = matmul(m.frame(along).T, m.metric(along))
        inner = solve(matmul(weights, b1), _apply(weights, x))
        return _apply(b1, inner)
    if not m.constrained:
        return x
    z = m.solved(m.metric(along), m.rows(along).T)
    a1 = m.rows(onto)
    return x - _apply(z, solve(matmul(a1, z), _apply(a1, x)))


def project(system: System | Mechanics, q: Array, x: Array, metric: Array | None = None) -> Array:
    """P(q) x, the projection onto D at q that is orthogonal for the kinetic metric, or for the given matrix."""
    m = lower(system)
    m.refuse_nonlinear()
    if m.framed:
        b = m.frame(q)
        weights = matmul(b.T, m.metric(q) if metric is None else metric)
        return _apply(b, m.solved(matmul(weights, b), _apply(weights, x)))
    if not m.constrained:
        return x
    a = m.rows(q)
    return x - _raised(m, m.metric(q) if metric is None else metric, a, _apply(a, x))


def along_allowed(system: System | Mechanics, q: Array, v: Array, x: Array) -> Array:
    """The part of x along which an allowed velocity v can change at constant q: P(q) x for linear constraints."""
    m = lower(system)
    if Trait.NONLINEAR not in m.traits:
        return project(m, q, x)
    forms = m.forms(q, v)
    return x - _raised(m, m.metric(q), forms, matvec(forms, x))


def orthonormal_frame(system: System | Mechanics, q: Array) -> Array:
    """A basis of D at q, orthonormal for the kinetic metric; it need not be continuous in q."""
    m = lower(system)
    m.refuse_indefinite("an orthonormal frame of D")
    return orthonormal(m.frame(q), m.metric(q))


def tangent_directions(system: System | Mechanics, q: Array, near: Array | None = None) -> Array:
    """A basis of the displacements that the position constraints allow at q: all of them if there are none; otherwise
    it is orthonormal for the kinetic metric, and the nearest one to `near` if that is given."""
    m = lower(system)
    if Trait.HOLONOMIC not in m.traits:
        return jnp.eye(m.velocity_dimension, dtype=q.dtype)
    slopes, mass = m.slopes(q), m.metric(q)
    if near is None:
        return orthonormal(null_space(slopes), mass)
    return polar_factor(near - _raised(m, mass, slopes, matmul(slopes, near)), mass)


def orthonormal(vectors: Array, mass: Array) -> Array:
    """The columns of `vectors`, made orthonormal one after the other, each against the ones before it."""
    if vectors.shape[1] > FEW_COLUMNS:
        return _orthonormal_in_a_loop(vectors, mass)
    columns: list[Array] = []
    for x in vectors.T:
        for y in [*columns, *columns]:
            x = x - y * jnp.sum(y * matvec(mass, x))
        columns.append(x / jnp.sqrt(jnp.sum(x * matvec(mass, x))))
    return jnp.stack(columns, axis=1)


FEW_COLUMNS = 8
"""Up to this many columns, each pair of them is written out; the code for many would grow with their square."""


def _orthonormal_in_a_loop(vectors: Array, mass: Array) -> Array:
    """The same, with all columns before one subtracted at a time, twice."""

    def once(basis, column):
        x, here = column
        for _ in range(2):
            x = x - matvec(basis, matvec(basis.T, matvec(mass, x)))
        x = x / jnp.sqrt(jnp.sum(x * matvec(mass, x)))
        return basis + x[:, None] * here[None, :], None

    columns = vectors.T, jnp.eye(vectors.shape[1], dtype=vectors.dtype)
    return jax.lax.scan(once, jnp.zeros_like(vectors), columns)[0]


def nearest_frame(system: System | Mechanics, q: Array, b: Array) -> Array:
    """The orthonormal frame of D at q nearest to b: P(q) b N^(-1/2), with N the Gram matrix of P(q) b; smooth in q."""
    m = lower(system)
    m.refuse_indefinite("an orthonormal frame of D")
    n, r = b.shape
    if m.constrained and not m.framed and n > 8 and 3 * r < n:
        return _few_directions(m.rows(q), m.metric(q), b)
    return polar_factor(project(m, q, b), m.metric(q))


def _few_directions(a: Array, mass: Array, b: Array) -> Array:
    """The same where D has few dimensions and the system many: P b = N (N^T M N)^-1 N^T M b for a basis N of D.

    It takes one elimination for the few columns of N, which have (M b)^T N = 1 up to a factor for each row.
    """
    n, r = b.shape
    rows = jnp.concatenate([a, matmul(mass, b).T])
    right = jnp.concatenate([jnp.zeros((n - r, r), b.dtype), jnp.eye(r, dtype=b.dtype)])
    basis = solve(rows / jnp.max(jnp.abs(rows), axis=1, keepdims=True), right)
    weights = matmul(mass, basis)
    return polar_factor(matmul(basis, solve_spd(matmul(basis.T, weights), matmul(weights.T, b))), mass)


def frame_rotation(
    system: System | Mechanics, q: Array, basis: Array, b: Array, v: Array, mass_rate: Array | None
) -> Array:
    """How fast the frame b, the nearest one to `basis`, turns within D while q moves with the velocity v.

    It is the skew part W of b^T M b' for the derivative b' along v and in time. `mass_rate` is the derivative of the
    mass matrix, None if that is constant. Because H = b^T M basis stays symmetric,
    W H + H W = K H - H K + (b'^T M basis - its transpose) + (b^T M' basis - its transpose) with K = -b^T M' b / 2,
    where the part of b' in D, which W is about, is left out.
    """
    m = lower(system)
    mass = m.metric(q)
    weights = matmul(b.T, mass)
    h = matmul(weights, basis)
    turned = matmul(matmul(_leaving(m, q, b, v, mass).T, mass), basis - matmul(b, h))
    if mass_rate is not None:
        along = matmul(b.T, mass_rate)
        turned = turned + matmul(along, basis) - 0.5 * matmul(matmul(along, b), h)
    return skew_solution(h, turned - turned.T)


def _leaving(m: Mechanics, q: Array, b: Array, v: Array, mass: Array) -> Array:
    """Velocities that differ from the derivative of a frame b of D along v, and in time, only by velocities in D."""
    if m.framed:
        spanning = m.frame(q)
        weights = matmul(spanning.T, mass)
        parts = solve_spd(matmul(weights, spanning), matmul(weights, b))
        return m.time_derivative(lambda s, x: matmul(s.frame(x), parts), q, v)
    if not m.constrained:
        return jnp.zeros_like(b)
    a = m.rows(q)
    change = m.time_derivative(lambda s, x: matmul(s.rows(x), b), q, v)
    return -_raised(m, mass, a, change)


def polar_factor(x: Array, mass: Array) -> Array:
    """The columns that span the same space as those of x, are orthonormal for `mass` and are nearest to them."""
    return matmul(x, inverse_square_root(matmul(x.T, matmul(mass, x))))


def multipliers(system: System | Mechanics, q: Array, reaction: Array) -> Array:
    """lam with M(q) reaction = A(q)^T lam, for an acceleration that the constraint causes."""
    m = lower(system)
    m.refuse_nonlinear()
    a = m.rows(q)
    return m.solved(matmul(a, m.solved(m.metric(q), a.T)), matvec(a, reaction))


def reaction(system: System | Mechanics, q: Array, lam: Array) -> Array:
    """M(q)^-1 A(q)^T lam, the acceleration that multipliers cause."""
    m = lower(system)
    m.refuse_nonlinear()
    return m.solved(m.metric(q), matvec(m.rows(q).T, lam))


def free_acceleration(system: System | Mechanics, q: Array, v: Array) -> Array:
    """The acceleration without constraints: M^-1 (dL/dq - (d/dt dL/dv at constant v) + ad_v^T dL/dv + forces).

    In coordinates ad_v is zero. On a group v is the body velocity, and dL/dq is a covector on body velocities.
    """
    m = lower(system)
    transport = m.time_derivative(lambda s, x: s.momentum(x, v), q, v)
    force = m.space.gradient(lambda x: m.lagrangian(x, v), q) - transport + m.forces(q, v)
    if Trait.GROUP in m.traits:
        force = force + matvec(m.space.bracket(v).T, m.momentum(q, v))
    return m.solved(m.hessian(q, v), force)


def acceleration(system: System | Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    """The acceleration of the constrained motion, and its multipliers.

    They solve d/dt dL/dv - dL/dq = A^T lam + forces with d/dt (A v - b) = 0, or the same equations in a frame. For
    constraints f(q, v) = 0 that are not linear in v, df/dv stands among the rows of A (Chetaev's rule).
    """
    return repeated("acceleration", _acceleration, lower(system), q, v)


def _acceleration(m: Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    free = free_acceleration(m, q, v)
    mass = m.hessian(q, v)
    if m.framed and Trait.NONLINEAR not in m.traits:
        b, weights = m.frame(q), matmul(m.frame(q).T, mass)
        gram = matmul(weights, b)
        w = m.solved(gram, matvec(weights, v - m.drift(q) if Trait.AFFINE in m.traits else v))

        def moved(s, x):
            return matvec(s.frame(x), w) + s.drift(x) if Trait.AFFINE in m.traits else matvec(s.frame(x), w)

        turning = m.time_derivative(moved, q, v)
        total = turning + matvec(b, m.solved(gram, matvec(weights, free - turning)))
        a = m.rows(q)
        lam = m.solved(matmul(a, m.solved(mass, a.T)), matvec(a, total - free))
        return total, lam
    a = m.forms(q, v)
    turning = m.time_derivative(lambda s, x: s.violation(x, v), q, v)
    z = m.solved(mass, a.T)
    lam = m.solved(matmul(a, z), -turning - matvec(a, free))
    return free + matvec(z, lam), lam


def power(system: System | Mechanics, q: Array, v: Array) -> Array:
    """dE/dt along the motion: the power of the forces, of affine constraints, and of explicit time dependence.

    E = v . dL/dv - L changes at the rate F . v + lam . b - dL/dt, where dL/dt is at constant q and v. For constraints
    that are not linear in v, b is df/dv . v, which vanishes if they are homogeneous.
    """
    m = lower(system)
    found = jnp.zeros((), q.dtype)
    if Trait.FORCED in m.traits:
        found = found + jnp.sum(m.forces(q, v) * v)
    if not m.traits.isdisjoint((Trait.AFFINE, Trait.NONLINEAR)):
        found = found + jnp.sum(acceleration(m, q, v)[1] * m.levels(q, v))
    if Trait.TIMED in m.traits:
        found = found - jax.grad(lambda t: m.at(t).lagrangian(q, v))(jnp.asarray(m.t, q.dtype))
    return found


def power_and_change(system: System | Mechanics, q: Array, v: Array) -> Array:
    """The power and its derivative along the motion, as an array of shape (2,)."""
    m = lower(system)
    t = jnp.zeros((), q.dtype) if m.t is None else jnp.asarray(m.t, q.dtype)
    along = (jnp.ones_like(t), m.space.velocity(q, v), acceleration(m, q, v)[0])
    return jnp.stack(jax.jvp(lambda t, q, v: power(m.at(t), q, v), (t, q, v), along))


def _raised(m: Mechanics, mass: Array, forms: Array, values: Array) -> Array:
    """The shortest vector in the metric `mass` on which the one-forms have these values; one column for each column."""
    z = m.solved(mass, forms.T)
    return _apply(z, m.solved(matmul(forms, z), values))


def _apply(matrix: Array, x: Array) -> Array:
    return matvec(matrix, x) if x.ndim == 1 else matmul(matrix, x)
