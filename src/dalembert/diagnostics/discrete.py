"""The laws of discrete mechanics, measured on a method that is made from a discrete Lagrangian.

States are rows (q, u), u the method's own velocity. A flight from (q, u) ends at q1 with the velocity M^-1 p^+.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from dalembert.diagnostics.inputs import as_rows
from dalembert.diagnostics.stepmap import as_shared
from dalembert.discrete import projectors
from dalembert.kernels import over_rows
from dalembert.methods import Method, Reflecting
from dalembert.methods.legendre import is_general, momentum, velocity
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    along_surface,
    as_arrays,
    kinetic_size,
    lower,
    nearest_velocity,
    total_energy,
)
from dalembert.numerics import Vectors, jit_fast_compile, matvec


class DiscreteLaws(NamedTuple):
    """The defects of the laws of discrete mechanics in single steps. The theorems say that they are zero."""

    flight: float
    """The relative change of the energy in a free flight; the method keeps the energy if this is zero."""
    momentum: dict[str, float]
    """The residual of the discrete momentum equation for each section of the system, relative to the momenta."""
    determinant: float | None
    """The largest |det - (-1)^m| of the step in (q, p^-); None for methods on D, and with position constraints."""
    symplectic: float | None
    """The relative defect of F* omega = omega + d(lam_a mu^a); None for methods on D, and with position
    constraints."""
    space_momentum: float | None
    """The relative change, in a step, of the average momentum in space; None unless the system is on a group. This
    momentum is kept if the metric is bi-invariant and the constraint right-invariant."""


def _momenta(shared: Any, q: Array, u: Array) -> tuple[Array, Array]:
    """The residuals of the momentum equation, one per section, and the size of the momentum.

    This is [ferraro2008] Theorem 2, with the change of the section moved to the other side:
    <p^+(q1), xi(q)_Q(q1)> = <p^+(q), xi(q)_Q(q)>.
    """
    system, method, h = shared
    q1, plus, _ = method.free_step(system, q, u, h)
    # M^-1 p^+ at q, up to reactions; u itself for methods on D.
    arrived = 2 * nearest_velocity(system, q, u) - u
    p, p1 = matvec(system.metric(q), arrived), matvec(system.metric(q1), plus)
    sections = [section(q) for section in system.sections().values()]
    residual = [
        jnp.sum(matvec(system.generators(q1).T, p1) * xi) - jnp.sum(matvec(system.generators(q).T, p) * xi)
        for xi in sections
    ]
    size = [jnp.sum(jnp.abs(matvec(system.generators(q), xi)) * jnp.abs(p)) for xi in sections]
    return jnp.stack(residual), jnp.stack(size)


def momentum_residuals(
    system: System, method: Method, h: float, q: Vectors, u: Vectors
) -> dict[str, Float[np.ndarray, " rows"]]:
    """The residual of the discrete momentum equation at each row of (q, u), by section of the system.

    It is relative to the largest momentum in these rows. The discrete Lagrangian must be invariant.
    """
    if not method.variational:
        raise ValueError(
            f"this is a law of GNI(), VariationalDLA() and other methods made from a discrete Lagrangian; got "
            f"{method.cli_name}"
        )
    names = list(system.sections())
    if not names:
        return {}
    residual, size = over_rows(_momenta)(as_shared(system, method, h), *as_rows(system, q, u))
    return {
        name: residual[:, i] / max(float(np.max(size[:, i])), np.finfo(float).tiny)
        for i, name in enumerate(names)
    }


def _flight_energy(shared: Any, q: Array, u: Array) -> Array:
    system, method, h = shared
    q1, plus, _ = method.free_step(system, q, u, h)
    before = total_energy(system, q, u)
    size = kinetic_size(system, q, u) + jnp.finfo(q.dtype).tiny
    return (total_energy(system, q1, along_surface(system, q1, plus)) - before) / size


def flight_energy(
    system: System, method: Method, h: float, q: Vectors, u: Vectors
) -> Float[np.ndarray, " rows"]:
    """H(q1, p^+) - H(q, p^-) of the flight from each row, relative to the kinetic energy (if the metric is indefinite,
    to the size of its terms).

    The reflection at the end of a flight keeps the energy, so a GNI keeps it exactly if and only if this vanishes;
    the bi-invariant metrics of [ferraro2008] Theorem 1 are one case of several.
    """
    return over_rows(_flight_energy)(as_shared(system, method, h), *as_rows(system, q, u))


@cache
def _row_by_row(function: Callable) -> Callable:
    """The function applied to one row after another, for the derivatives of a few steps."""
    one = jit_fast_compile(function)
    return lambda shared, q, u: np.array([one(shared, *row) for row in zip(q, u, strict=True)])


def _check_reflecting(system: System, method: Method) -> None:
    if not isinstance(method, Reflecting):
        raise ValueError(
            f"this is a law of GNI() and LieGNI(), whose phase space is all of TQ; got {type(method).__name__}"
        )
    if Trait.HOLONOMIC in lower(system).traits:
        raise ValueError(
            f"this is a law on all of TQ, but {system.label} has position constraints, which leave only the tangent "
            "bundle of their surface; measure da.diagnostics.volume_change there"
        )


def _phase_step(shared: Any, q: Array, z: Array) -> tuple[Array, Array, Array, Array]:
    """One step from the state z = (x, p) at q exp(x).

    Returns the configuration q exp(x), the next configuration, and M^-1 p^+ and p^- there.
    """
    system, method, h = shared
    n = z.shape[0] // 2
    near = system.space.displaced(q, z[:n])
    u = velocity(system, near, z[n:], system.solved(system.metric(near), z[n:]))
    q1, plus, _ = method.free_step(system, near, u, h)
    _, own = method.reflect(system, q1, plus)
    return near, q1, plus, momentum(system, q1, own)


def _state(system: System, q: Array, u: Array) -> Array:
    return jnp.concatenate([jnp.zeros_like(u), momentum(lower(system), q, u)])


def _determinant(shared: Any, q: Array, u: Array) -> Array:
    system = shared[0]
    z = _state(system, q, u)
    _, base, _, _ = _phase_step(shared, q, z)

    def after(z):
        _, q1, _, p1 = _phase_step(shared, q, z)
        return jnp.concatenate([system.space.difference(base, q1), p1])

    return jnp.linalg.det(jax.jacfwd(after)(z))


def phase_determinant(
    system: System, method: Method, h: float, q: Vectors, u: Vectors
) -> Float[np.ndarray, " rows"]:
    """The determinant of a step of a GNI in (q, p^-), which is (-1)^m. On a group, p^- is moved to the identity.

    The step is a flight, which keeps volume, and a reflection, which changes the sign of m directions.
    """
    _check_reflecting(system, method)
    return _row_by_row(_determinant)(as_shared(system, method, h), *as_rows(system, q, u))


def _as_velocities(system: Mechanics, q: Array, columns: Array) -> Array:
    """Velocities at q, from derivatives of the numbers that represent q."""

    def one(x):
        return jax.jvp(lambda k: system.space.difference(q, k), (q,), (x,))[1]

    return jax.vmap(one, 1, 1)(columns)


def _symplectic(shared: Any, q: Array, u: Array) -> Array:
    system, method, _ = shared
    n = u.shape[0]

    def forms(z):
        """The one-forms p dq before and after the step, and lam_a mu^a, on the phase space of z."""

        def moved(w):
            near, q1, plus, p1 = _phase_step(shared, q, w)
            return (near, q1), (near, q1, plus, p1)

        (here, there), (near, q1, plus, p1) = jax.jacfwd(moved, has_aux=True)(z)
        here, there = _as_velocities(system, near, here), _as_velocities(system, q1, there)
        if is_general(system):
            kick = momentum(system, q1, plus) - p1
        else:
            beyond = system.relative(q1, plus)
            normal = projectors(system, q1, method.metric_at(system, q1))[1]
            kick = 2 * matvec(normal.T, matvec(system.metric(q1), beyond))
        return jnp.stack([matvec(here.T, z[n:]), matvec(there.T, p1), matvec(there.T, kick)])

    derivative = jax.jacfwd(forms)(_state(system, q, u))
    before, after, kick = jnp.swapaxes(derivative, 1, 2) - derivative
    return jnp.max(jnp.abs(after - before + kick)) / jnp.maximum(1.0, jnp.max(jnp.abs(after)))


def symplectic_defect(
    system: System, method: Method, h: float, q: Vectors, u: Vectors
) -> Float[np.ndarray, " rows"]:
    """The defect of F* omega = omega + d(lam_a mu^a) for a step F of a GNI at each row, with omega = -d(p dq).

    lam is computed from the momentum p^+ by lam = 2 (mu G^-1 mu^T)^-1 mu G^-1 p^+, where G is the metric of the
    method's projectors: M, unless the method has one of its own.
    """
    _check_reflecting(system, method)
    return _row_by_row(_symplectic)(as_shared(system, method, h), *as_rows(system, q, u))


def _space_momentum(shared: Any, q: Array, u: Array) -> tuple[Array, Array]:
    system, method, h = shared
    state, memory = method.resume(system, q, u, h)
    after, _, _ = method.step(system, state, memory, h)
    one, two = (matvec(system.generators(x.q).T, matvec(system.metric(x.q), x.v)) for x in (state, after))
    return jnp.max(jnp.abs(two - one)), jnp.max(jnp.abs(one))


def space_momentum_change(
    system: System, method: Method, h: float, q: Vectors, u: Vectors
) -> Float[np.ndarray, " rows"]:
    """The relative change, over a step from each row, of the average momentum (p^+ + p^-)/2 in space.

    By [ferraro2008] section 4.4 it is zero if the metric is bi-invariant and the constraint right-invariant.
    """
    if Trait.GROUP not in lower(system).traits:
        raise ValueError(
            f"the momentum in space is defined on Lie groups; {system.label} is given in coordinates"
        )
    change, size = over_rows(_space_momentum)(as_shared(system, method, h), *as_rows(system, q, u))
    return change / max(float(np.max(size)), np.finfo(float).tiny)


def discrete_laws(system: System, method: Method, h: float, q: Vectors, u: Vectors) -> DiscreteLaws | None:
    """All laws over the rows of (q, u); None for a method that is not made from a discrete Lagrangian."""
    if not method.variational:
        return None
    given = (system, method, h, *as_rows(system, q, u))
    determinant = symplectic = None
    if isinstance(method, Reflecting) and Trait.HOLONOMIC not in lower(system).traits:
        m = system.velocity_dimension - round(
            float(np.trace(_projector(lower(as_arrays(system)), given[3][0])))
        )
        few = (system, method, h, given[3][::8], given[4][::8])
        determinant = _largest(phase_determinant(*few) - (-1) ** m)
        symplectic = _largest(symplectic_defect(*few))
    return DiscreteLaws(
        _largest(flight_energy(*given)),
        {name: _largest(x) for name, x in momentum_residuals(*given).items()},
        determinant,
        symplectic,
        None if Trait.GROUP not in lower(system).traits else _largest(space_momentum_change(*given)),
    )


def _projector(system: Mechanics, q: Any) -> np.ndarray:
    return np.asarray(projectors(system, jnp.asarray(q))[0])


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x)))
