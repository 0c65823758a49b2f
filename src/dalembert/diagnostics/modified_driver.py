"""The modified field of a coupled system: its driver, its passenger, and what follows for long runs."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.floquet import orbit, section
from dalembert.diagnostics.interpolated_field import ModifiedField
from dalembert.diagnostics.stepmap import step_map
from dalembert.kernels import over_rows
from dalembert.numerics import PathRule, Vector, matvec

_MOST_STEPS = 5_000
_NODES = 8
"""Nodes of the collocation within a step, which then has order 16."""
_RETURNED = 0.05
"""A driver is back if it misses its start by less than this, relative to its orbit."""
_STAGES = 7
"""Substeps of the extrapolated midpoint rule: 2, 4, ..., 14, so that the integration has order 14."""


class Parts(NamedTuple):
    """The modified field in reduced coordinates, at each row, with estimated errors of each part."""

    passenger: Float[np.ndarray, "rows size"]
    """The derivative of (kappa x, w), with w = k . M x' on D, and the velocity in an orthonormal basis on TQ."""
    driver: Float[np.ndarray, "rows 2"]
    """The derivative of (xi, eta)."""
    passenger_error: Float[np.ndarray, " rows"]
    driver_error: Float[np.ndarray, "rows 2"]


class _Reduction(eqx.Module):
    """What turns states of a coupled system into reduced ones, and back."""

    coupled: CoupledSystem
    on_constraint: bool = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The number of numbers that describe the passenger."""
        kappa = self.coupled.linear()[0]
        return kappa.shape[0] + (1 if self.on_constraint else kappa.shape[1])


def _velocity(c: _Reduction, xi: Array, u: Array) -> Array:
    """w, the passenger's velocity in reduced coordinates, of size one per unit of sqrt(2 energy)."""
    rest = c.coupled.rest(u)
    if c.on_constraint:
        return jnp.sum(c.coupled.k(xi) * matvec(c.coupled.mass, rest))[None]
    return matvec(jnp.linalg.cholesky(c.coupled.mass).T, rest)


def _state(c: _Reduction, x: Array, w: Array, xi: Array, eta: Array) -> tuple[Array, Array]:
    """The state (q, u) with this passenger and driver."""
    root = jnp.linalg.cholesky(c.coupled.mass).T
    rest = c.coupled.k(xi) * w[0] if c.on_constraint else jnp.linalg.solve(root, w)
    return c.coupled.place(x, xi), c.coupled.place(rest, eta)


def _reduced(
    c: _Reduction, q: Array, u: Array, dq: Array, du: Array, eq: Array, eu: Array
) -> tuple[Array, ...]:
    coupled, i = c.coupled, c.coupled.index
    kappa, _ = coupled.linear()
    w_rate = jax.jvp(lambda xi, u: _velocity(c, xi, u), (q[i], u), (dq[i], du))[1]
    turning = jnp.linalg.norm(jax.jacfwd(lambda xi: _velocity(c, xi, u))(q[i]))
    root = jnp.sqrt(coupled.inertia)
    rate = jnp.concatenate([matvec(kappa, coupled.rest(dq)), w_rate])
    # |kappa x|^2 <= (x.K x), and errors are in the kinetic metric.
    stiff = jnp.linalg.norm(kappa @ jnp.linalg.inv(jnp.linalg.cholesky(coupled.mass)).T)
    passenger_error = jnp.hypot(stiff * eq, eu + turning * eq / root)
    return rate, jnp.stack([dq[i], du[i]]), passenger_error, jnp.stack([eq, eu]) / root


class CoupledField(NamedTuple):
    """The modified field of a method on a coupled system, split into its driver and its passenger."""

    coupled: CoupledSystem
    field: ModifiedField

    @property
    def on_constraint(self) -> bool:
        """Whether the method's own velocity lies in D."""
        return self.field.stride == 1

    @property
    def speeds(self) -> int:
        """The number of velocities that describe the passenger: one on D."""
        return 1 if self.on_constraint else len(self.coupled.others)

    def driver_steps(self, z: np.ndarray) -> np.ndarray:
        """The driver (xi, eta) of each row after the steps that the field takes together, with a resting passenger."""
        n, i = self.coupled.system.dimension, self.coupled.index
        q, u = np.zeros((2, len(z), n))
        q[:, i], u[:, i] = z.T
        for _ in range(self.field.stride):
            q, u = step_map(self.coupled.system, self.field.method, float(self.field.h), q, u)
        return np.stack([q[:, i], u[:, i]], axis=1)

    @property
    def reduction(self) -> _Reduction:
        """The change to reduced coordinates."""
        return _Reduction(self.coupled, self.on_constraint)

    def at(self, x: np.ndarray, w: np.ndarray, xi: np.ndarray, eta: np.ndarray) -> Parts:
        """The field at passengers (x, w) and drivers (xi, eta), one per row."""
        c = self.reduction
        q, u = over_rows(_state)(c, x, w, xi, eta)
        value = self.field.rows(q, u)
        return Parts(*over_rows(_reduced)(c, q, u, value.q, value.v, value.q_error, value.v_error))

    def linear(
        self, xi: np.ndarray, eta: np.ndarray, radius: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The matrices A and vectors b of the passenger equation z' = A z + b at each driver state, and the estimated
        errors of the entries of A.

        They are differences of the field between passengers of size `radius` and the resting one, so they are exact if
        the equation is linear.
        """
        kappa = np.asarray(self.coupled.linear()[0])
        d, m, size = kappa.shape[1], kappa.shape[0], self.reduction.size
        back = np.linalg.pinv(kappa) if m else np.zeros((d, 0))
        count = len(xi)
        x, w = np.zeros((size + 1, count, d)), np.zeros((size + 1, count, size - m))
        for j in range(size):
            if j < m:
                x[j] = radius * back[:, j]
            else:
                w[j, :, j - m] = radius
        both = [np.tile(np.asarray(y, float), size + 1) for y in (xi, eta)]
        parts = self.at(x.reshape(-1, d), w.reshape(-1, size - m), *both)
        z = parts.passenger.reshape(size + 1, count, size)
        errors = parts.passenger_error.reshape(size + 1, count)
        matrix = np.moveaxis(z[:-1] - z[-1], 0, -1) / radius
        return matrix, z[-1], (np.max(errors[:-1], axis=0) + errors[-1]) / radius


class Growth(NamedTuple):
    """What the modified field says about long runs: one period of its driver, and the passenger's growth over it."""

    period: float
    """The period of the modified driver."""
    closure: float
    """By how much the driver misses its start after one period, relative to its orbit. It is zero if the driver
    conserves a modified energy."""
    closure_error: float
    map: Float[np.ndarray, "size size"]
    """The linear part of the passenger's motion over one period."""
    exponents: Float[np.ndarray, " size"]
    """The rates at which passengers grow or shrink, with the largest first: log |eigenvalue of the map| / period."""
    error: float
    """The estimated error of the exponents."""


_SAFETY = 4.0
"""Remainders fall slowly with many terms, so what is left is larger than the last difference."""
FEWER_TERMS = 14
"""The second number of terms with which growth is computed; what differs estimates the error."""


def predicted_growth(coupled: CoupledSystem, field: ModifiedField, q0: Vector, v0: Vector) -> Growth:
    """The modified driver's period through the start (q0, v0), and the Floquet exponents of the modified passenger.

    The exponents of a method are the rates at which its passenger drifts in long runs; here they come from one period.
    """
    coupled = CoupledSystem.of(coupled)
    if not isinstance(field, ModifiedField):
        raise ValueError(f"expected a field such as modified_field(system, method, h) returns, got {field!r}")
    if field.method.variable_step:
        raise ValueError(
            f"the steps of {field.method.cli_name} differ in size, with one energy for driver and passenger, so "
            "neither has an equation of its own; take a method with equal steps"
        )
    if field.mechanics.class_name != coupled.system.class_name:
        raise ValueError(
            f"the field is one of {field.mechanics.label}, but the coupled system is {coupled.system.label}; make both "
            "from the same system"
        )
    xi, eta = section(coupled, q0, v0)
    step = orbit(coupled, xi, eta, float(field.h)).step
    radius = passenger_size(coupled, q0, v0)
    found = []
    for terms in (field.terms, FEWER_TERMS):
        # One number of terms everywhere, so that the remainders are smooth along the orbit, where they mostly cancel.
        smooth = replace(field, terms=terms, fixed=True)
        found.append(_over_one_period(CoupledField(coupled, smooth), xi, eta, radius, step))
    one, two = found
    rounding = 1e-13  # of a product of some hundred steps, each of which is good to some units of rounding
    errors = [_SAFETY * np.max(np.abs(x - y)) + rounding for x, y in ((one[1], two[1]), (one[3], two[3]))]
    return Growth(one[0], one[1], float(errors[0]), one[2], one[3], float(errors[1]))


def _over_one_period(
    split: CoupledField, xi: float, eta: float, radius: float, step: float
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """The period, the closure of the orbit, the passenger's map, and its exponents.

    Steps of the method lie on the modified driver's orbit, so the field is only integrated within the first step and
    within the last one. The passenger's equation is solved by Gauss's collocation, whose nodes are states of the orbit.
    """
    coupled, field = split.coupled, split.field
    length = field.stride * float(field.h)
    base = np.array([xi, eta])
    rule = PathRule.of(_NODES)
    nodes, weights, matrix = rule.nodes, rule.weights, rule.stages

    def rate(z: np.ndarray) -> np.ndarray:
        zero = np.zeros((len(z), len(coupled.others)))
        return split.at(zero, zero[:, : split.speeds], z[:, 0], z[:, 1]).driver

    def flow(z: np.ndarray, times: np.ndarray) -> np.ndarray:
        count = max(1, int(np.ceil(np.max(np.abs(times)) / step)))
        for _ in range(count):
            z = _extrapolated(rate, z, times[:, None] / count)
        return z

    def miss(z: np.ndarray) -> np.ndarray:
        d = z - base
        return d - [2 * np.pi * np.round(d[0] / (2 * np.pi)), 0] if coupled.is_angle else d

    along = rate(base[None])[0]
    row = flow(np.tile(base, (_NODES + 1, 1)), length * np.append(0.0, nodes))
    rows, ahead = [row], 0.0
    for count in range(1, _MOST_STEPS):
        row = split.driver_steps(row)
        if not np.all(np.isfinite(row)):
            break
        ahead1 = float(miss(row[0]) @ along)
        if ahead < 0 <= ahead1:
            here, part = rows[-1][:1], length * ahead / (ahead - ahead1)
            for _ in range(6):  # Newton's method from the zero of the secant
                end = flow(here, np.array([part]))
                part -= float(miss(end[0]) @ along) / float(rate(end)[0] @ along)
            every = np.concatenate(rows)
            # A free driver has one speed, and its angle goes round.
            wide = np.maximum(np.ptp(every, axis=0), [length * abs(along[0]), np.max(np.abs(every[:, 1]))])
            closure = float(np.max(np.abs(miss(flow(here, np.array([part]))[0])) / wide))
            if closure < _RETURNED:
                last = flow(np.tile(here[0], (_NODES, 1)), part * nodes)
                drivers = np.stack([*(x[1:] for x in rows[:-1]), last])
                matrices = split.linear(drivers[..., 0].ravel(), drivers[..., 1].ravel(), radius)[0]
                matrices = matrices.reshape(len(drivers), _NODES, *matrices.shape[1:])
                map_ = np.eye(matrices.shape[-1])
                for k, each in enumerate(matrices):
                    size = part if k == len(matrices) - 1 else length
                    map_ = _collocated(size * matrix, size * weights, each) @ map_
                period = (count - 1) * length + part
                exponents = np.log(np.abs(np.linalg.eigvals(map_))) / period
                return period, closure, map_, np.sort(exponents)[::-1]
        rows.append(row)
        ahead = ahead1
    raise ValueError(
        f"the modified driver of {coupled.system.label} does not come back to ({xi:g}, {eta:g}) within "
        f"{len(rows)} steps; take another start, or a smaller h"
    )


def _collocated(matrix: np.ndarray, weights: np.ndarray, equation: np.ndarray) -> np.ndarray:
    """The map of one step of collocation for z' = A z, with A at the nodes; if all A are skew, it is orthogonal."""
    count, size = equation.shape[:2]
    system = np.eye(count * size) - np.einsum("ij,iab->iajb", matrix, equation).reshape(count * size, -1)
    slopes = np.linalg.solve(system, equation.reshape(count * size, size)).reshape(count, size, size)
    return np.eye(size) + np.tensordot(weights, slopes, axes=1)


def passenger_size(coupled: CoupledSystem, q: Vector, v: Vector) -> float:
    """sqrt(|kappa x|^2 + |x'|^2) of a state; one if the passenger rests at the origin."""
    q, v = np.asarray(q, float), np.asarray(v, float)
    rest = v[coupled.others]
    y = np.asarray(coupled.linear()[0]) @ q[coupled.others]
    size = float(np.sqrt(rest @ np.asarray(coupled.mass) @ rest + y @ y))
    return size if size > 0 else 1.0


def _extrapolated(field: Callable[[np.ndarray], np.ndarray], z: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The solution of z' = field(z) after time h, by the midpoint rule with 2, 4, ... substeps, extrapolated."""
    first, rows = field(z), []
    counts = 2 * np.arange(1, _STAGES + 1)
    for count in counts:
        part = h / count
        before, here = np.zeros_like(z), part * first
        for _ in range(count - 1):
            before, here = here, before + 2 * part * field(z + here)
        rows.append(here)
    for k in range(1, len(rows)):
        rows = [
            two + (two - one) / ((counts[j + k] / counts[j]) ** 2 - 1)
            for j, (one, two) in enumerate(pairwise(rows))
        ]
    return z + rows[0]
