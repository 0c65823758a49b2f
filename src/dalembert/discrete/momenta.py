"""Projectors, discrete momentum maps, and the two-form of a discrete Lagrangian."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete.constraints import DiscreteConstraint, constraint_value
from dalembert.discrete.lagrangians import DiscreteLagrangian, d1, d2
from dalembert.model import Mechanics, SpaceTime, Symmetry, System, Trait, lower, project
from dalembert.numerics import matvec

Section = Callable[[Array], Array]


def projectors(system: System | Mechanics, q: Array, metric: Array | None = None) -> tuple[Array, Array]:
    """The projectors P(q) onto D and Q(q) = 1 - P(q), orthogonal for the kinetic metric or for the given matrix.

    They are computed from the frame if there is one, because it stays regular where one-forms lose rank.

    Erratum: [ferraro2008] section 4.1 allows any metric here. With a metric that has another complement of D, the
    method converges to the motion of a different system; see `complement_angle`.
    """
    m = lower(system)
    one = jnp.eye(m.velocity_dimension, dtype=q.dtype)
    p = project(m, q, one, metric)
    return p, one - p


def acts_on_time(symmetry: Symmetry | None, system: System | Mechanics) -> bool:
    """Whether a symmetry moves the time, which it then names as "t" among the coordinates that it acts on."""
    if symmetry is not None and not isinstance(symmetry, Symmetry):
        raise ValueError(
            f"expected a Symmetry, such as Symmetry(Rn(2), on=('x', 'y')), got {symmetry!r}; without one, the "
            "generators are those of the system"
        )
    return symmetry is not None and "t" in symmetry.on and "t" not in system.coordinates


def spacetime_generators(system: System | Mechanics, z: Array, symmetry: Symmetry | None = None) -> Array:
    """The generators xi_Q(t, q) in space and time at z = (t, q), shape (1 + n, k); the first row moves the time.

    By default they are those of the system. A Symmetry that acts on time names it "t": time translation is
    Symmetry(Rn(1), on=("t",)), and with `action`, a function of (g, z), coordinates move along. A Symmetry without "t"
    in `on` acts on the configurations alone.
    """
    m = lower(system)
    if symmetry is None:
        return lower(SpaceTime(m.system)).generators(z)
    if acts_on_time(symmetry, m):
        return symmetry.generators(SpaceTime(m.system), z)
    columns = symmetry.generators(m.at(z[0]), z[1:])
    return jnp.concatenate([jnp.zeros((1, columns.shape[1]), z.dtype), columns])


def _parts(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    q0: Array,
    q1: Array,
    h: Array,
    symmetry: Symmetry | None,
    end: int,
) -> tuple[Array, Array]:
    """The generators at one end of the step, and the momentum with which it departs (end = 0) or arrives (1)."""
    m, q = lower(system), (q0, q1)[end]
    on_time = acts_on_time(symmetry, m) or (symmetry is None and Trait.TIMED in m.traits)
    if Trait.TIMED in m.traits and m.t is None:
        raise ValueError(
            f"{m.label} depends on time, so its discrete momentum does too; give {m.label}.at(t0), where t0 is the "
            "time at which the step begins"
        )
    if not on_time:
        here = m.later(h) if end else m
        columns = here.generators(q) if symmetry is None else symmetry.generators(here, q)
        return columns, d2(ld, m, q0, q1, h) if end else -d1(ld, m, q0, q1, h)
    t = jnp.asarray(0.0 if m.t is None else m.t)
    halves = ld.spacetime_derivatives(m, t, q0, q1, ld.velocity(m, q0, q1, h), h)
    z = jnp.concatenate([jnp.atleast_1d(t + end * h), q])
    return spacetime_generators(m, z, symmetry), halves[1] if end else -halves[0]


def momentum_map(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    q0: Array,
    q1: Array,
    h: Array,
    symmetry: Symmetry | None = None,
) -> Array:
    """The discrete momentum J_d(q0, q1) = <D2 L_d(q0, q1), xi_Q(q1)>, shape (k,): one number per generator.

    The generators are those of the symmetry, or else those that the system defines. For a rheonomic system, given as
    system.at(t0), and for a symmetry that acts on time (see `spacetime_generators`), it is the momentum in space and
    time, <(D3, D4) L_d, xi_Q(t1, q1)>; that of time translation is -E^+.

    Equations: [ferraro2008] section 2; [cortes2003] section 2: J_d = Theta^+ . xi.
    """
    columns, p = _parts(ld, system, q0, q1, h, symmetry, 1)
    return matvec(columns.T, p)


def momentum_map_minus(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    q0: Array,
    q1: Array,
    h: Array,
    symmetry: Symmetry | None = None,
) -> Array:
    """The same from the beginning of the step, Theta^- . xi = <-D1 L_d(q0, q1), xi_Q(q0)>.

    It is equal to `momentum_map` if and only if L_d is infinitesimally invariant at this pair.
    """
    columns, p = _parts(ld, system, q0, q1, h, symmetry, 0)
    return matvec(columns.T, p)


def nonholonomic_momentum(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    section: Section,
    q0: Array,
    q1: Array,
    h: Array,
    symmetry: Symmetry | None = None,
) -> Array:
    """J_nh(q0, q1) = <D2 L_d(q0, q1), xi(q1)_Q(q1)> for a section xi of the bundle g^D."""
    return jnp.sum(momentum_map(ld, system, q0, q1, h, symmetry) * section(q1))


def momentum_residual(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    section: Section,
    q0: Array,
    q1: Array,
    q2: Array,
    h: Array,
    symmetry: Symmetry | None = None,
) -> Array:
    """The residual of the discrete momentum equation at three configurations of a run; zero if L_d is invariant.

    Equations: [ferraro2008] Theorem 2:
        J(q1, q2) - J(q0, q1) = <D2 L_d(q1, q2), (xi(q2) - xi(q1))_Q(q2)>.
    """
    later = lower(system).later(h)
    change = nonholonomic_momentum(ld, later, section, q1, q2, h, symmetry)
    change = change - nonholonomic_momentum(ld, system, section, q0, q1, h, symmetry)
    return change - jnp.sum(momentum_map(ld, later, q1, q2, h, symmetry) * (section(q2) - section(q1)))


def exterior(form: Callable[[Array], Array], x: Array) -> Array:
    """The matrix of d(form) at x, for a one-form given by its components."""
    derivative = jax.jacfwd(form)(x)
    return derivative.T - derivative


def symplectic_form(ld: DiscreteLagrangian, system: System | Mechanics, x: Array, h: Array) -> Array:
    """The matrix of Omega = -d(p^- dq0) at x = (q0, q1), shape (2n, 2n)."""
    n = system.dimension

    def canonical(x):
        return jnp.concatenate([-d1(ld, system, x[:n], x[n:], h), jnp.zeros_like(x[n:])])

    return -exterior(canonical, x)


def spacetime_derivatives(
    ld: DiscreteLagrangian, system: System | Mechanics, t: Array, q0: Array, q1: Array, u: Array, h: Array
) -> tuple[Array, Array]:
    """(D1, D2) and (D3, D4) of L_d(t0, q0, t1, q1), each of shape (1 + n,), with the derivative by time first.

    E^- = D1 L_d is the energy with which the step departs, and E^+ = -D3 L_d is the energy with which it arrives. t is
    the time at which the step begins, and u = (q1 - q0)/h.
    """
    return ld.spacetime_derivatives(lower(system), t, q0, q1, u, h)


def spacetime_constraint(
    constraint: DiscreteConstraint,
    system: System | Mechanics,
    t: Array,
    q0: Array,
    q1: Array,
    u: Array,
    h: Array,
) -> Array:
    """The discrete constraint over a step that begins at t, shape (m,)."""
    return constraint_value(constraint, lower(system).at(t), q0, q1, u, h)


def spacetime_forms(system: System | Mechanics, z: Array) -> Array:
    """The one-forms (omega0, omega) = (-b, A) at z = (t, q), shape (m, 1 + n)."""
    here = lower(system).at(z[0])
    return jnp.concatenate([-here.offsets(z[1:])[:, None], here.rows(z[1:])], axis=1)


def between(z0: Array, z1: Array) -> tuple[Array, Array, Array, Array, Array]:
    """The values t0, q0, q1, u and h of the step from z0 = (t0, q0) to z1, in coordinates."""
    h = z1[0] - z0[0]
    return z0[0], z0[1:], z1[1:], (z1[1:] - z0[1:]) / h, h


def step_between(
    ld: DiscreteLagrangian, system: System | Mechanics, z0: Array, z1: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The values t0, q0, q1, u and h of the step from z0 = (t0, q0) to z1, in coordinates or on a Lie group."""
    h = z1[0] - z0[0]
    return z0[0], z0[1:], z1[1:], ld.velocity(lower(system).at(z0[0]), z0[1:], z1[1:], h), h


def spacetime_displaced(system: System | Mechanics, z: Array, x: Array) -> Array:
    """The point of space and time at the distance x from z = (t, q): (t + x0, q exp(x1, x2, ...)) on a Lie group."""
    return jnp.concatenate([z[:1] + x[:1], lower(system).space.displaced(z[1:], x[1:])])


def spacetime_pulled(system: System | Mechanics, z: Array, x: Array, form: Array) -> Array:
    """The components by dx of a covector at `spacetime_displaced(system, z, x)`, which is given by its components on
    the rate of the time and on velocities (on a Lie group, body velocities)."""
    m = lower(system)
    near, moved = jax.linearize(lambda x: m.space.displaced(z[1:], x), x[1:])

    def velocity(direction: Array) -> Array:
        return jax.jvp(lambda k: m.space.difference(near, k), (near,), (moved(direction),))[1]

    columns = jax.vmap(velocity, 0, 1)(jnp.eye(x.shape[0] - 1, dtype=x.dtype))
    return jnp.concatenate([form[:1], matvec(columns.T, form[1:])])


def spacetime_momentum_map(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    z0: Array,
    z1: Array,
    symmetry: Symmetry | None = None,
) -> Array:
    """The discrete momentum J_d = <(D3, D4) L_d(z0, z1), xi_Q(z1)> in space and time, shape (k,).

    Equations: [cortes2003] section 2. That of time translation, Symmetry(Rn(1), on=("t",)), is -E^+.
    """
    arrived = spacetime_derivatives(ld, system, *step_between(ld, system, z0, z1))[1]
    return matvec(spacetime_generators(system, z1, symmetry).T, arrived)


def spacetime_nonholonomic_momentum(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    section: Section,
    z0: Array,
    z1: Array,
    symmetry: Symmetry | None = None,
) -> Array:
    """J_nh(z0, z1) = <(D3, D4) L_d(z0, z1), xi(z1)_Q(z1)> for a section xi of g^D in space and time, a function of z.

    Equations: [cortes2003] section 4.
    """
    return jnp.sum(spacetime_momentum_map(ld, system, z0, z1, symmetry) * section(z1))


def spacetime_momentum_residual(
    ld: DiscreteLagrangian,
    system: System | Mechanics,
    section: Section,
    z: Array,
    symmetry: Symmetry | None = None,
) -> Array:
    """The residual of the momentum equation of a section of space and time, at three points of a run.

    z has shape (3, 1 + n). The residual is zero if L_d is invariant.

    Equations: [cortes2003] (7) with the time component: J(1, 2) - J(0, 1) = <(D3, D4) L_d(1, 2), (xi(2) - xi(1))>,
    J = <(D3, D4) L_d, xi>, for generators of the group in space and time.
    """
    momenta = [spacetime_momentum_map(ld, system, z[i], z[i + 1], symmetry) for i in range(2)]
    change = jnp.sum(momenta[1] * section(z[2])) - jnp.sum(momenta[0] * section(z[1]))
    return change - jnp.sum(momenta[1] * (section(z[2]) - section(z[1])))


def spacetime_form(ld: DiscreteLagrangian, system: System | Mechanics, x: Array, plus: bool = False) -> Array:
    """The matrix of Omega = -d(Theta^-), Theta^- = -(D1, D2) L_d dz0, at x = (z0, z1), shape (2 + 2n, 2 + 2n).

    With `plus` it is -d(Theta^+), Theta^+ = (D3, D4) L_d dz1, which is the same form. Rows and columns belong to the
    rates of t0 and q0 and to those of t1 and q1; on a Lie group these are n body velocities each, and x has more
    numbers.
    """
    size, n = x.shape[0] // 2, lower(system).velocity_dimension
    ends = x[:size], x[size:]

    def theta(d):
        d = d[: n + 1], d[n + 1 :]
        step = step_between(
            ld, system, *(spacetime_displaced(system, z, y) for z, y in zip(ends, d, strict=True))
        )
        departed, arrived = spacetime_derivatives(ld, system, *step)
        one = spacetime_pulled(system, ends[plus], d[plus], arrived if plus else -departed)
        return jnp.concatenate([jnp.zeros_like(one), one] if plus else [one, jnp.zeros_like(one)])

    return -exterior(theta, jnp.zeros(2 * n + 2, x.dtype))
