"""The modified field of a coupled system: its driver, its passenger, and what follows for long runs."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.floquet import section
from dalembert.diagnostics.modified_field import ModifiedField
from dalembert.kernels import over_rows
from dalembert.model import lower
from dalembert.numerics import Vector, matvec

_MOST_PERIODS_STEPS = 4_000
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
    if c.on_constraint:
        rest = c.coupled.k(xi) * w[0]
    else:
        rest = jnp.linalg.solve(jnp.linalg.cholesky(c.coupled.mass).T, w)
    return c.coupled.place(x, xi), c.coupled.place(rest, eta)


def _reduced(c: _Reduction, q: Array, u: Array, dq: Array, du: Array, eq: Array, eu: Array) -> tuple[Array, ...]:
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
    ) -> tuple[np.ndarray, np.ndarray, Parts, np.ndarray]:
        """The matrices A and vectors b of the passenger equation z' = A z + b at each driver state, the field at the
        resting passenger, and the estimated errors of the entries of A.

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
        rest = Parts(*(y.reshape(size + 1, count, *y.shape[1:])[-1] for y in parts))
        return matrix, z[-1], rest, (np.max(errors[:-1], axis=0) + errors[-1]) / radius


class Growth(NamedTuple):
    """What the modified field says about long runs: one period of its driver, and the passenger's growth over it."""

    period: float
    """The period of the modified driver; NaN if it does not return."""
    closure: float
    """By how much eta misses its start value after one period, relative to its range: zero if the driver conserves a
    modified energy."""
    closure_error: float
    map: np.ndarray
    """The linear part of the passenger's motion over one period."""
    exponents: Float[np.ndarray, " size"]
    """The rates at which passengers grow or shrink, with the largest first: log |eigenvalue of the map| / period."""
    error: float
    """The estimated error of the exponents, from that of the field."""


def predicted_growth(
    coupled: CoupledSystem, field: ModifiedField, q0: Vector, v0: Vector, step: float | None = None
) -> Growth:
    """The modified driver's period through the start (q0, v0), and the Floquet exponents of the modified passenger.

    The exponents of a method are the rates at which its passenger drifts in long runs; here they come from one period.
    """
    split = CoupledField(coupled, field)
    xi, eta = section(coupled, q0, v0)
    step = float(step or 0.5 * float(field.h))
    radius = passenger_size(coupled, q0, v0)
    size = split.reduction.size

    def rate(z):
        matrix, _, rest, error = split.linear(z[:1], z[1:2], radius)
        phi = matrix[0] @ z[2:].reshape(size, size)
        return np.concatenate([rest.driver[0], phi.ravel()]), error[0], rest.driver_error[0]

    z = np.concatenate([[xi, eta], np.eye(size).ravel()])
    first, _, _ = rate(z)
    along = first[:2]
    time, total, drift = 0.0, 0.0, np.zeros(2)
    eta_range = [eta, eta]

    def miss(z):
        d = z[:2] - np.array([xi, eta])
        if coupled.is_angle:
            d[0] -= 2 * np.pi * np.round(d[0] / (2 * np.pi))
        return d

    ahead = 0.0
    for _ in range(_MOST_PERIODS_STEPS):
        z1 = _extrapolated(lambda y: rate(y)[0], z, step)
        if not np.all(np.isfinite(z1)):
            break
        _, error, driver_error = rate(z1)
        ahead1 = float(miss(z1) @ along)
        near = np.abs(miss(z1)[0]) <= 2 * step * abs(along[0]) + 2 * step * abs(eta)
        if ahead < 0 <= ahead1 and near:
            part = step * ahead / (ahead - ahead1)
            for _ in range(8):
                end = _extrapolated(lambda y: rate(y)[0], z, part)
                part -= float(miss(end) @ along) / float(rate(end)[0][:2] @ along)
            end = _extrapolated(lambda y: rate(y)[0], z, part)
            period = time + part
            map_ = end[2:].reshape(size, size)
            wide = max(eta_range[1] - eta_range[0], abs(eta))
            across = float(np.linalg.norm(miss(end)))
            exponents = np.sort(np.log(np.abs(np.linalg.eigvals(map_))) / period)[::-1]
            return Growth(period, across / wide, float(np.max(drift)) / wide, map_, exponents, total / period)
        total += step * error
        drift = drift + step * driver_error
        eta_range = [min(eta_range[0], z1[1]), max(eta_range[1], z1[1])]
        z, ahead, time = z1, ahead1, time + step
    nan = np.full(size, np.nan)
    return Growth(np.nan, np.nan, np.inf, np.full((size, size), np.nan), nan, np.inf)


def passenger_size(coupled: CoupledSystem, q: Vector, v: Vector) -> float:
    """sqrt(|kappa x|^2 + |x'|^2) of a state; one if the passenger rests at the origin."""
    q, v = np.asarray(q, float), np.asarray(v, float)
    rest = v[coupled.others]
    y = np.asarray(coupled.linear()[0]) @ q[coupled.others]
    size = float(np.sqrt(rest @ np.asarray(coupled.mass) @ rest + y @ y))
    return size if size > 0 else 1.0


def _extrapolated(field, z: np.ndarray, h: float) -> np.ndarray:
    """The solution of z' = field(z) after time h, by the midpoint rule with 2, 4, ... substeps, extrapolated."""
    first = field(z)
    rows = []
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
            for j, (one, two) in enumerate(zip(rows[:-1], rows[1:], strict=True))
        ]
    return z + rows[0]
