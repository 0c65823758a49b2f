"""Periodic drivers: period map, averaging by Floquet's theorem, reversibility, and what follows from them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.numerics import compiled, extrapolated_step

# A period longer than this many steps is taken for none.
_MOST_STEPS = 5_000
# Two results, the second with steps half as long, must agree to this.
_AGREEMENT = 1e-11


class Orbit(NamedTuple):
    """One period of the driver from a base point, and what the passenger does in it."""

    base: tuple[float, float]
    """(xi, eta) where the period begins."""
    period: float
    map: np.ndarray
    """Phi(T), the evolution of (kappa x, v, 1) over one period."""
    step: float
    """The step at which the two were accurate."""

    @property
    def rotation(self) -> np.ndarray:
        """The part of the map that acts on (kappa x, v), in SO(m+1)."""
        return self.map[:-1, :-1]


@compiled
def _advance(coupled: CoupledSystem, z: Array, h: Array, count: Array) -> Array:
    """z = (xi, eta, columns of Phi) after `count` steps of the exact flow."""
    size = coupled.linear()[0].shape[0] + 2

    def field(z):
        phi = z[2:].reshape(size, size)
        return jnp.concatenate([coupled.driver_field(z[:2]), (coupled.matrix(z[0]) @ phi).ravel()])

    return lax.fori_loop(0, count, lambda _, z: extrapolated_step(field, z, h), z)


@compiled
def _drive(coupled: CoupledSystem, z: Array, h: Array) -> tuple[Array, Array]:
    """The driver after time h, and how fast it moves there."""
    z1 = extrapolated_step(coupled.driver_field, z, h)
    return z1, coupled.driver_field(z1)


def _return_time(coupled: CoupledSystem, base: np.ndarray, h: float) -> float:
    """When the driver comes back to `base`: the first crossing of the line across the flow there that is at the
    base itself; NaN where there is none."""
    along = np.asarray(_drive(coupled, base, 0.0)[1])

    def drive(z, h):
        z1, field = (np.asarray(x) for x in _drive(coupled, z, h))
        return z1, field @ along

    def miss(z):
        d = z - base
        return d - [2 * np.pi * np.round(d[0] / (2 * np.pi)), 0] if coupled.is_angle else d

    z, ahead = base, 0.0
    for step in range(_MOST_STEPS):
        z1, _ = drive(z, h)
        ahead1 = miss(z1) @ along
        if ahead < 0 <= ahead1:
            part = h * ahead / (ahead - ahead1)
            for _ in range(5):  # Newton from the secant's zero reaches rounding: a step is short
                here, speed = drive(z, part)
                part -= miss(here) @ along / speed
            if np.max(np.abs(miss(here))) < 1e-6 * (1 + np.max(np.abs(base))):
                return float(step * h + part)
        z, ahead = z1, ahead1
        if not np.all(np.isfinite(z)):
            break
    return np.nan


def orbit(coupled: CoupledSystem, xi: float, eta: float, h: float | None = None) -> Orbit:
    """The driver's period through (xi, eta) and the period map based there, to rounding.

    `h` is a first guess of a step that resolves the motion; it is halved until two results agree.
    """
    h = float(h or coupled.system.step or 0.1)
    base = np.array([xi, eta], float)
    size = coupled.linear()[0].shape[0] + 2
    before = None
    if np.max(np.abs(_drive(coupled, base, 0.0)[1])) < 1e-12:
        raise ValueError(f"the driver of {_name(coupled)} rests at ({xi:g}, {eta:g}): it has no period")
    for _ in range(8):
        period = _return_time(coupled, base, h)
        if not np.isfinite(period):
            hint = "" if coupled.is_angle else " (a rotating driver needs its coordinate among `angles`)"
            raise ValueError(
                f"the driver of {_name(coupled)} does not come back to ({xi:g}, {eta:g}) within "
                f"{_MOST_STEPS:,} steps of {h:g}: it is not periodic{hint}"
            )
        count = int(np.ceil(period / h))
        z = jnp.concatenate([base, jnp.eye(size).ravel()])
        phi = np.asarray(_advance(coupled, z, period / count, count))[2:].reshape(size, size)
        if before is not None:
            change = max(abs(period - before.period) / period, float(np.max(np.abs(phi - before.map))))
            if change < _AGREEMENT:
                return before
        before = Orbit((float(xi), float(eta)), period, phi, h)
        h = h / 2
    raise ValueError(f"the period of the driver of {_name(coupled)} did not settle; give a smaller h")


def driver_at(coupled: CoupledSystem, found: Orbit, phase: float) -> tuple[float, float]:
    """(xi, eta) at this fraction of the period after the base."""
    time = phase * found.period
    count = max(1, int(np.ceil(abs(time) / found.step)))
    z = np.array(found.base)
    for _ in range(count):
        z = _drive(coupled, z, time / count)[0]
    return float(z[0]), float(z[1])


def driver_phases(coupled: CoupledSystem, found: Orbit, count: int) -> np.ndarray:
    """xi at `count` evenly spaced phases of the period."""
    parts = max(1, int(np.ceil(found.period / count / found.step)))
    z, values = np.array(found.base), []
    for _ in range(count):
        values.append(float(z[0]))
        for _ in range(parts):
            z = np.asarray(_drive(coupled, z, found.period / count / parts)[0])
    return np.array(values)


@compiled
def _levels(coupled: CoupledSystem, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
    """Energy of the driver, its potential at zero, along the way there, and all round."""
    xi = q[coupled.index]
    nearest = 2 * jnp.pi * jnp.round(xi / (2 * jnp.pi)) if coupled.is_angle else jnp.zeros(())
    potential = jax.vmap(coupled.driver_potential)
    way = potential(xi + (nearest - xi) * jnp.linspace(0, 1, 181))
    round_ = potential(jnp.linspace(0, 2 * jnp.pi, 721))
    return coupled.driver_energy(q, v), coupled.driver_potential(jnp.zeros(())), jnp.max(way), jnp.max(round_)


def section(coupled: CoupledSystem, q: Any, v: Any) -> tuple[float, float]:
    """Where the orbit through the state crosses xi = 0 upwards; its own (xi, eta) where it does not."""
    q, v = np.asarray(q, float), np.asarray(v, float)
    energy, zero, way, top = (float(x) for x in _levels(coupled, q, v))
    xi, eta = float(q[coupled.index]), float(v[coupled.index])
    downwards = coupled.is_angle and eta < 0 and energy > top
    if energy <= zero or energy < way - 1e-12 or downwards:
        return xi, eta
    return 0.0, float(np.sqrt(2 * (energy - zero) / float(coupled.inertia)))


class Averaging(NamedTuple):
    """The change of variables that makes the reduced system one with constant coefficients.

    Equations: [modin2020] Theorem 4.2: with theta = t/T in [0, 1), Phi(1) = exp(Abar) (principal logarithm),
    w = exp(Abar theta) Phi(theta)^-1 u satisfies w' = Abar w.
    """

    coupled: CoupledSystem
    orbit: Orbit
    average: np.ndarray
    """Abar, for theta; divide by the period for time."""

    def flow(self, theta: float) -> np.ndarray:
        """Phi(theta), also for negative theta and beyond one period."""
        size = len(self.average)
        turns = np.floor(theta)
        time = (theta - turns) * self.orbit.period
        count = max(1, int(np.ceil(time / self.orbit.step)))
        z = jnp.concatenate([jnp.asarray(self.orbit.base), jnp.eye(size).ravel()])
        phi = np.asarray(_advance(self.coupled, z, time / count, count))[2:].reshape(size, size)
        return phi @ np.linalg.matrix_power(self.orbit.map, int(turns))

    def change(self, u: Any, theta: float) -> np.ndarray:
        """w(u, theta), of period one in theta."""
        from scipy.linalg import expm

        return expm(self.average * theta) @ np.linalg.solve(self.flow(theta), np.asarray(u, float))

    def back(self, w: Any, theta: float) -> np.ndarray:
        """u(w, theta)."""
        from scipy.linalg import expm

        return self.flow(theta) @ expm(-self.average * theta) @ np.asarray(w, float)

    @property
    def angles(self) -> int:
        """How many angles the passenger adds: pairs of turning eigenvalues of the average."""
        return int(np.sum(np.linalg.eigvals(self.average).imag > 1e-9))

    @property
    def is_compact(self) -> bool:
        """Whether the average is semisimple with imaginary eigenvalues, so that the passenger stays bounded."""
        values = np.linalg.eigvals(self.average)
        if np.max(np.abs(np.real(values))) > 1e-9:
            return False
        zero = np.sum(np.abs(values) < 1e-9)
        return bool(len(values) - np.linalg.matrix_rank(self.average, tol=1e-9) == zero)


def averaging(coupled: CoupledSystem, xi: float, eta: float, h: float | None = None) -> Averaging:
    """The averaged system of the driver's orbit through (xi, eta)."""
    found = orbit(coupled, xi, eta, h)
    return Averaging(coupled, found, principal_logarithm(found.map))


def principal_logarithm(phi: np.ndarray) -> np.ndarray:
    """The real logarithm with angles in (-pi, pi)."""
    from scipy.linalg import logm

    if np.min(np.abs(np.linalg.eigvals(phi) + 1)) < 1e-9:
        raise ValueError("the period map has the eigenvalue -1: its principal logarithm is not defined")
    found = np.asarray(logm(phi))
    if np.max(np.abs(np.imag(found))) > 1e-9:
        raise ValueError("the period map has no real logarithm")
    return np.real(found)


def measured_period(t: Any, xi: Any, at: float, is_angle: bool) -> float:
    """The mean time between upward crossings of xi = `at` in a run: the period of the driver as the method has it."""
    t, xi = np.asarray(t, float), np.asarray(xi, float)
    ahead = (xi - at) / (2 * np.pi) if is_angle else np.where(xi >= at, 1.0, 0.0)
    turn = np.floor(ahead)
    k = np.nonzero(turn[1:] > turn[:-1])[0]
    if len(k) < 2:
        return np.nan
    aim = at + (2 * np.pi * turn[k + 1] if is_angle else 0.0)
    times = t[k] + (t[k + 1] - t[k]) * (aim - xi[k]) / (xi[k + 1] - xi[k])
    return float((times[-1] - times[0]) / (len(k) - 1))


def resonance(period: float, angles: Any, h: float, near: float | None = None) -> tuple[float, float] | None:
    """The value of T/h among 2n and 2n +- angle/pi that is nearest, and its distance; None beyond `near`.

    There the mode that alternates from step to step, which methods on TQ have, meets the driver. `angles` is that
    of the period map, or several; the period is best that of the method itself (`measured_period`). The windows
    close as steps become shorter: by default `near` is 0.1 up to T/h = 14 and falls by e every 5 from there.
    """
    ratio = period / h
    near = 0.1 * min(1.0, float(np.exp((14 - ratio) / 5))) if near is None else near
    turns = np.concatenate([[0.0], np.atleast_1d(angles), -np.atleast_1d(angles)]) / np.pi
    values = (2 * np.round((ratio - turns) / 2) + turns).tolist()
    best = min(values, key=lambda r: abs(r - ratio))
    return (best, ratio - best) if abs(ratio - best) < near else None


def _name(coupled: CoupledSystem) -> str:
    return type(coupled.system).__name__
