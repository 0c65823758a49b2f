"""Equations of motion in plain NumPy, and their solution by SciPy: the second road of the attack.

Nothing here comes from JAX or from the library. Many members are integrated at once: every array has the members
before its own axes, and functions are written for that. Derivatives are complex steps, Im f(x + 1e-30 i)/1e-30, which
are exact to rounding for the analytic functions of `families`. Constraints are eliminated with a basis of the allowed
velocities, where the library solves for multipliers or works in a frame of its own.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

TINY = 1e-30


def _rate(values):
    return np.imag(values) / TINY


def _times(matrix, vector):
    return (matrix @ vector[..., None])[..., 0]


def _solve(matrix, vector):
    return np.linalg.solve(matrix, vector[..., None])[..., 0]


def _least(matrix, vector):
    # Rows that follow from others leave singular values of rounding; those of the families are above 1e-2.
    return _times(np.linalg.pinv(matrix, rcond=1e-9), vector)


def allowed(f: SimpleNamespace, t: float, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A velocity that satisfies the constraints, and a basis of the directions in which it may change."""
    n = len(f.velocities)
    if f.constraints is not None:
        a = f.constraints(t, q)
        basis = np.swapaxes(np.linalg.svd(a)[2][..., f.rank :, :], -1, -2)
        b = np.zeros(a.shape[:-1])
        if f.offsets is not None:
            b = f.offsets(t, q)
        elif f.drift is not None:
            b = _times(a, f.drift(t, q))
        return _least(a, b), basis
    drift = np.zeros((*q.shape[:-1], n)) if f.drift is None else f.drift(t, q)
    basis = np.broadcast_to(np.eye(n), (*q.shape[:-1], n, n)) if f.frame is None else f.frame(t, q)
    return drift, basis


def _acceleration_in(f, t, q, v, mass, force, rate):
    """a and lam from M a = force + A^T lam with d/dt of the constraint; `rate(function)` is d/dt along the motion."""
    if f.constraints is not None:
        a = f.constraints(t, q)
        turning = _times(rate(f.constraints), v)
        if f.offsets is not None:
            turning = turning - rate(f.offsets)
        elif f.drift is not None:
            turning = turning - rate(lambda t, q: _times(f.constraints(t, q), f.drift(t, q)))
        rank = f.rank
        if f.nonlinear is not None:
            a, turning = _with_nonlinear(f, t, q, v, a, turning)
            rank += 1
        basis = np.swapaxes(np.linalg.svd(a)[2][..., rank:, :], -1, -2)
        held = _least(a, -turning)
    else:
        drift, basis = allowed(f, t, q)
        w = _least(basis, v - drift)
        held = np.zeros_like(v)
        if f.frame is not None:
            held = held + _times(rate(f.frame), w)
        if f.drift is not None:
            held = held + rate(f.drift)
    across = np.swapaxes(basis, -1, -2)
    change = held + _times(basis, _solve(across @ mass @ basis, _times(across, force - _times(mass, held))))
    lam = None
    if f.constraints is not None:
        lam = _least(np.swapaxes(a, -1, -2), _times(mass, change) - force)
    return change, lam


def _with_nonlinear(f, t, q, v, a, turning):
    """The rows with df/dv after them, and the changes of the constraints at constant v, for d/dt f(q, v) = 0."""
    around = v + 1j * TINY * np.eye(v.shape[-1])[:, None, :]
    slopes = np.moveaxis(_rate(f.nonlinear(t, q, around)), 0, -1)
    change = _rate(f.nonlinear(t, q + 1j * TINY * v, v))
    return np.concatenate([a, slopes], axis=-2), np.concatenate([turning, change], axis=-1)


def acceleration(f: SimpleNamespace, t: float, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, Any]:
    """v' and the multipliers, of members (N, n)."""
    if f.group is not None:
        return _on_group(f, t, q, v)
    n = q.shape[-1]
    around = q + 1j * TINY * np.eye(n)[:, None, :]

    def rate(function):
        return _rate(function(t + 1j * TINY, q + 1j * TINY * v))

    mass = np.real(f.metric(t, q))
    by_q = np.broadcast_to(_rate(f.metric(t, around)), (n, *q.shape, n))
    force = 0.5 * np.einsum("...i,k...ij,...j->...k", v, by_q, v) - _times(rate(f.metric), v)
    if f.potential is not None:
        force = force - np.moveaxis(np.broadcast_to(_rate(f.potential(t, around)), (n, len(q))), 0, -1)
    if f.forces is not None:
        force = force + f.forces(t, q, v)
    if f.linear is not None:  # L has linear(q) . v + quartic (v . v)^2 / 4 beside
        by_q = np.einsum("k...i,...i->...k", _rate(f.linear(t, around)), v)
        force = force + by_q - rate(f.linear)
        square = np.sum(v * v, axis=-1)[..., None, None]
        mass = mass + f.quartic[..., None] * (square * np.eye(n) + 2 * v[..., None] * v[..., None, :])
    return _acceleration_in(f, t, q, v, mass, force, rate)


def energy(f: SimpleNamespace, t: float, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Kinetic and potential energy, of members (N, n)."""
    mass = f.inertia if f.group is not None else np.real(f.metric(t, q))
    kinetic = 0.5 * np.einsum("...i,...ij,...j->...", v, mass, v)
    return kinetic if f.potential is None else kinetic + f.potential(t, q)


def violation(f: SimpleNamespace, t: float, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """How far v is from what is allowed in each row of a run.

    Relative to the largest terms that cancel anywhere in the run: where a motion turns, its velocity is the
    difference of larger ones, and so is the rounding in it.
    """
    drift, basis = allowed(f, t, q)
    if f.constraints is None:
        off = v - drift - _times(basis, _least(basis, v - drift))
        return np.max(np.abs(off), axis=-1) / (1e-300 + np.max(np.abs(v)))
    a = f.constraints(t, q)
    off = np.abs(_times(a, v - drift))
    terms = np.max(_times(np.abs(a), np.abs(v) + np.abs(drift)), axis=0)
    off = np.max(off / (1e-300 + terms), axis=-1, initial=0.0)
    if f.nonlinear is None:
        return off
    return np.maximum(
        off, np.max(np.abs(f.nonlinear(t, q, v)), axis=-1) / (1e-300 + np.max(np.sum(v * v, axis=-1)))
    )


# Groups: the velocity of an element's numbers, and matrices that make the algebra, from which its bracket comes.


def _hat(x):
    zero = np.zeros_like(x[..., 0])
    rows = [[zero, -x[..., 2], x[..., 1]], [x[..., 2], zero, -x[..., 0]], [-x[..., 1], x[..., 0], zero]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _turned(numbers, x):
    """The nine numbers of R hat(x)."""
    return (numbers.reshape(*numbers.shape[:-1], 3, 3) @ _hat(x)).reshape(
        *np.broadcast_shapes(numbers.shape[:-1], x.shape[:-1]), 9
    )


def _quaternion(g, x):
    w, u = g[..., :1], g[..., 1:]
    return 0.5 * np.concatenate([-np.sum(u * x, axis=-1, keepdims=True), w * x + np.cross(u, x)], axis=-1)


def _plane(g, x):
    c, s = np.cos(g[..., 2]), np.sin(g[..., 2])
    x = np.broadcast_to(x, np.broadcast_shapes(g.shape, x.shape))
    return np.stack([c * x[..., 0] - s * x[..., 1], s * x[..., 0] + c * x[..., 1], x[..., 2]], axis=-1)


def _space(g, x):
    r = g[..., 3:].reshape(*g.shape[:-1], 3, 3)
    return np.concatenate([_times(r, x[..., :3]), _turned(g[..., 3:], x[..., 3:])], axis=-1)


def _heisenberg(g, x):
    x = np.broadcast_to(x, np.broadcast_shapes(g.shape, x.shape))
    return np.stack([x[..., 0], x[..., 1], x[..., 2] + g[..., 0] * x[..., 1]], axis=-1)


def _unit(size, i, j):
    return np.eye(size)[:, [i]] @ np.eye(size)[[j]]


ROTATIONS = _hat(np.eye(3))
PLANE = np.stack([_unit(3, 0, 2), _unit(3, 1, 2), _unit(3, 1, 0) - _unit(3, 0, 1)])
SPACE = np.stack([_unit(4, i, 3) for i in range(3)] + [np.pad(x, ((0, 1), (0, 1))) for x in ROTATIONS])
HEISENBERG = np.stack([_unit(3, 0, 1), _unit(3, 1, 2), _unit(3, 0, 2)])


def _structure(basis: np.ndarray) -> np.ndarray:
    """c[i, j, k] with [e_i, e_j] = c[i, j, k] e_k, from the commutators of the matrices."""
    flat = basis.reshape(len(basis), -1).T
    brackets = [[x @ y - y @ x for y in basis] for x in basis]
    return np.array([[np.linalg.lstsq(flat, b.ravel(), rcond=None)[0] for b in row] for row in brackets])


LIFTS = {
    "SO3": (_turned, ROTATIONS, _structure(ROTATIONS)),
    "S3": (_quaternion, ROTATIONS, _structure(ROTATIONS)),
    "SE2": (_plane, PLANE, _structure(PLANE)),
    "SE3": (_space, SPACE, _structure(SPACE)),
    "H3": (_heisenberg, HEISENBERG, _structure(HEISENBERG)),
}


def _on_group(f, t, g, x):
    """I x' = ad_x^T I x - dV + F + a^T lam, with g' = g x."""
    lift, basis, c = LIFTS[f.group]
    mass = f.inertia
    force = np.einsum("...i,ijk,...k->...j", x, c, _times(mass, x))
    if f.potential is not None:
        directions = lift(g, np.eye(len(basis))[:, None, :])
        slope = _rate(f.potential(t, g + 1j * TINY * directions))
        force = force - np.moveaxis(np.broadcast_to(slope, (len(basis), len(g))), 0, -1)
    if f.forces is not None:
        force = force + f.forces(t, g, x)

    def rate(function):
        return _rate(function(t, g + 1j * TINY * lift(g, x)))

    return _acceleration_in(f, t, g, x, mass, force, rate)


def solve(f: SimpleNamespace, q0: np.ndarray, v0: np.ndarray, span: tuple[float, float], dense: bool = False):
    """The motion of all members from (N, n) states: q and v at the end, and with `dense` a function of time too."""
    (members, n), m = q0.shape, v0.shape[-1]

    def field(t, y):
        q, v = y[: members * n].reshape(members, n), y[members * n :].reshape(members, m)
        change = acceleration(f, t, q, v)[0]
        moving = v if f.group is None else LIFTS[f.group][0](q, v)
        return np.concatenate([moving.ravel(), change.ravel()])

    start = np.concatenate([q0.ravel(), v0.ravel()])
    found = solve_ivp(field, span, start, method="DOP853", rtol=1e-12, atol=1e-13, dense_output=dense)
    if not found.success:
        raise RuntimeError(f"SciPy did not reach the end: {found.message}")

    def states(y):
        return y[: members * n].reshape(members, n), y[members * n :].reshape(members, m)

    return *states(found.y[:, -1]), (lambda t: states(found.sol(t))) if dense else None
