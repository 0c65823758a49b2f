"""Periodic drivers: the period map, averaging by Floquet's theorem, and resonances with the step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.kernels import over_rows
from dalembert.numerics import Vector, compiled, extrapolated_step

# A driver that does not return within this many steps counts as not periodic.
_MOST_STEPS = 5_000
# Two results, the second with steps half as long, must agree to within this.
_AGREEMENT = 1e-11


class Orbit(NamedTuple):
    """One period of the driver from a base point, and the evolution of the passenger over it."""

    base: tuple[float, float]
    """The point (xi, eta) where the period begins."""
    period: float
    map: np.ndarray
    """Phi(T), the evolution of (kappa x, v, 1) over one period."""
    step: float
    """The step at which period and map were accurate."""

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
    """The state of the driver after time h, and its rate of change there."""
    z1 = extrapolated_step(coupled.driver_field, z, h)
    return z1, coupled.driver_field(z1)


def _return_time(coupled: CoupledSystem, base: np.ndarray, h: float) -> float:
    """The time after which the driver returns to `base`; NaN if it does not return.

    It is the time of the first crossing, at the base itself, of the line through the base across the flow.
    """
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
            for _ in range(5):  # a step is short, so Newton from the zero of the secant reaches rounding
                here, speed = drive(z, part)
                part -= miss(here) @ along / speed
            if np.max(np.abs(miss(here))) < 1e-6 * (1 + np.max(np.abs(base))):
                return float(step * h + part)
        z, ahead = z1, ahead1
        if not np.all(np.isfinite(z)):
            break
    return np.nan


def orbit(coupled: CoupledSystem, xi: float, eta: float, h: float | None = None) -> Orbit:
    """The driver's orbit through (xi, eta), with its period and the period map based there, to rounding.

    `h` is a first guess at a step that resolves the motion. It is halved until two results agree.
    """
    coupled = CoupledSystem.of(coupled)
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
    """(xi, eta) at the fraction `phase` of the period after the base."""
    time = phase * found.period
    count = max(1, int(np.ceil(abs(time) / found.step)))
    z = np.array(found.base)
    for _ in range(count):
        z = _drive(coupled, z, time / count)[0]
    return float(z[0]), float(z[1])


def driver_phases(coupled: CoupledSystem, found: Orbit, count: int) -> np.ndarray:
    """xi at `count` evenly spaced phases of the period."""
    return driver_positions(coupled, found, count)[:, 0]


def driver_speed(coupled: CoupledSystem, z: np.ndarray, time: float) -> tuple[np.ndarray, np.ndarray]:
    """The driver's state after a time that is at most a step, and its rate of change there."""
    z1, rate = _drive(coupled, np.asarray(z, float), float(time))
    return np.asarray(z1), np.asarray(rate)


def driver_positions(coupled: CoupledSystem, found: Orbit, count: int) -> np.ndarray:
    """(xi, eta) at `count` evenly spaced phases of the period."""
    parts = max(1, int(np.ceil(found.period / count / found.step)))
    z, values = np.array(found.base), []
    for _ in range(count):
        values.append(z)
        for _ in range(parts):
            z = np.asarray(_drive(coupled, z, found.period / count / parts)[0])
    return np.array(values)


@compiled
def _levels(coupled: CoupledSystem, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
    """The driver's energy, its potential at zero, and its largest potential on the way to zero and in a whole turn."""
    xi = q[coupled.index]
    nearest = 2 * jnp.pi * jnp.round(xi / (2 * jnp.pi)) if coupled.is_angle else jnp.zeros(())
    potential = jax.vmap(coupled.driver_potential)
    way = potential(xi + (nearest - xi) * jnp.linspace(0, 1, 181))
    round_ = potential(jnp.linspace(0, 2 * jnp.pi, 721))
    return coupled.driver_energy(q, v), coupled.driver_potential(jnp.zeros(())), jnp.max(way), jnp.max(round_)


def section(coupled: CoupledSystem, q: Vector, v: Vector) -> tuple[float, float]:
    """The point (xi, eta) where the orbit through the state crosses xi = 0, or the state's own if it does not.

    The crossing is upwards unless the driver rotates downwards.
    """
    coupled = CoupledSystem.of(coupled)
    q, v = np.asarray(q, float), np.asarray(v, float)
    if q.shape != (coupled.system.dimension,) or v.shape != q.shape:
        raise ValueError(
            f"a state of {coupled.system.label} has q and v of shape ({coupled.system.dimension},), got {q.shape} "
            f"and {v.shape}"
        )
    energy, zero, way, top = (float(x) for x in _levels(coupled, q, v))
    xi, eta = float(q[coupled.index]), float(v[coupled.index])
    if energy <= zero or energy < way - 1e-12:
        return xi, eta
    downwards = coupled.is_angle and eta < 0 and energy > top
    speed = float(np.sqrt(2 * (energy - zero) / float(coupled.inertia)))
    return 0.0, -speed if downwards else speed


class Averaging(NamedTuple):
    """The change of variables after which the reduced system has constant coefficients.

    Equations: [modin2020] Theorem 4.2: with theta = t/T in [0, 1), Phi(1) = exp(Abar) (a real logarithm with angles
    in (-pi, pi]), w = exp(Abar theta) Phi(theta)^-1 u satisfies w' = Abar w.
    """

    coupled: CoupledSystem
    orbit: Orbit
    average: np.ndarray
    """Abar, per unit of theta; divide it by the period to get the rate per unit of time."""

    def flow(self, theta: float) -> np.ndarray:
        """Phi(theta); theta may be negative or exceed one period."""
        size = len(self.average)
        turns = np.floor(theta)
        time = (theta - turns) * self.orbit.period
        count = max(1, int(np.ceil(time / self.orbit.step)))
        z = jnp.concatenate([jnp.asarray(self.orbit.base), jnp.eye(size).ravel()])
        phi = np.asarray(_advance(self.coupled, z, time / count, count))[2:].reshape(size, size)
        return phi @ np.linalg.matrix_power(self.orbit.map, int(turns))

    def change(self, u: Any, theta: float) -> np.ndarray:
        """w(u, theta), which has period one in theta."""
        from scipy.linalg import expm

        return expm(self.average * theta) @ np.linalg.solve(self.flow(theta), np.asarray(u, float))

    def back(self, w: Any, theta: float) -> np.ndarray:
        """u(w, theta)."""
        from scipy.linalg import expm

        return self.flow(theta) @ expm(-self.average * theta) @ np.asarray(w, float)

    def evolution(self, count: int) -> np.ndarray:
        """The evolution matrix at `count` evenly spaced phases of the driver."""
        xi = driver_phases(self.coupled, self.orbit, count)
        return over_rows(CoupledSystem.matrix)(self.coupled, xi)

    def based_at(self, shift: float) -> "Averaging":
        """The same averaging with the period beginning at this phase."""
        return averaging(self.coupled, *driver_at(self.coupled, self.orbit, shift), self.orbit.step)

    @property
    def angles(self) -> int:
        """The number of angles that the passenger adds: pairs of complex eigenvalues of the average."""
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
    """The averaging over the driver's orbit through (xi, eta)."""
    coupled = CoupledSystem.of(coupled)
    found = orbit(coupled, xi, eta, h)
    return Averaging(coupled, found, real_logarithm(found.map))


def real_logarithm(phi: np.ndarray) -> np.ndarray:
    """The logarithm of a rotation with a shift, [[R, c], [0, 1]] with R in SO(n), with angles in (-pi, pi].

    It is the principal logarithm unless R turns a plane by a half turn, whose sense is a choice.
    """
    from scipy.linalg import schur

    phi = np.asarray(phi, float)
    size = len(phi) - 1
    found = schur(phi[:-1, :-1], output="real")  # R is normal: rotations of planes, and ones
    blocks, basis = np.asarray(found[0]), np.asarray(found[1])
    turns, shifts = np.zeros((size, size)), np.eye(size)
    planes, halves, j = [], [], 0
    while j < size:
        if j + 1 < size and abs(blocks[j + 1, j]) > 1e-9:
            pair = blocks[j : j + 2, j : j + 2]
            planes.append(([j, j + 1], np.arctan2(pair[1, 0] - pair[0, 1], np.trace(pair))))
            j += 2
        else:
            if blocks[j, j] < 0:
                halves.append(j)
            j += 1
    planes += [(pair, np.pi) for pair in zip(halves[::2], halves[1::2], strict=False)]
    for pair, angle in planes:
        place = np.ix_(pair, pair)
        turns[place] = angle * np.array([[0.0, -1.0], [1.0, 0.0]])
        # The integral of exp(s turns) for s from 0 to 1, by which an exponential multiplies the shift.
        across, along = 1 - np.cos(angle), np.sin(angle)
        shifts[place] = np.array([[along, -across], [across, along]]) / angle
    made = np.zeros_like(phi)
    made[:-1, :-1] = basis @ turns @ basis.T
    made[:-1, -1] = basis @ np.linalg.solve(shifts, basis.T @ phi[:-1, -1])
    if len(halves) % 2 or not np.allclose(
        _exponential(made), phi, rtol=0, atol=1e-8
    ):  # the map is accurate to 1e-11
        raise ValueError("the period map is not a rotation with a shift, so it has no logarithm of this kind")
    return made


def _exponential(x: np.ndarray) -> np.ndarray:
    from scipy.linalg import expm

    return expm(x)


def measured_period(t: Any, xi: Any, at: float, is_angle: bool) -> float:
    """The driver's period in a run: the mean time between crossings of xi = `at` in the same direction.

    Raises ValueError if the driver never crosses twice in the same direction.
    """
    t, xi = np.asarray(t, float), np.asarray(xi, float)
    if t.ndim != 1 or t.shape != xi.shape:
        raise ValueError(
            f"times and values must be two rows of the same length, got {t.shape} and {xi.shape}"
        )
    total, count = 0.0, 0
    for sign in (1, -1):  # an oscillation crosses both ways, a rotation one way
        k, aim = crossings(sign * xi, sign * at, is_angle)
        if len(k) > 1:
            times = t[k] + (t[k + 1] - t[k]) * (aim - sign * xi[k]) / (sign * (xi[k + 1] - xi[k]))
            total, count = total + float(times[-1] - times[0]), count + len(k) - 1
    if not count:
        raise ValueError(
            f"the driver does not cross {at:g} twice in the same direction in these {len(t)} rows, so no period can "
            "be measured; run longer"
        )
    return total / count


def crossings(xi: np.ndarray, at: float, is_angle: bool) -> tuple[np.ndarray, np.ndarray]:
    """The rows after which xi crosses `at` upwards, and the values it crosses: any `at` + 2 pi k for an angle."""
    turn = np.floor((xi - at) / (2 * np.pi)) if is_angle else np.where(xi >= at, 0.0, -1.0)
    k = np.nonzero(turn[1:] > turn[:-1])[0]
    return k, at + (2 * np.pi * turn[k + 1] if is_angle else np.zeros(len(k)))


def resonance(period: float, angles: Any, h: float, near: float | None = None) -> tuple[float, float] | None:
    """The resonant value of T/h nearest to this one, among 2n and 2n +- angle/pi, and the distance to it.

    The result is None if the distance exceeds `near`. At a resonant value the driver meets the mode that alternates
    from step to step, which methods on TQ have. `angles` is the angle of the period map, or several angles. The best
    `period` is that of the method itself (`measured_period`). The resonant windows close as steps become shorter: by
    default `near` is 0.1 up to T/h = 14 and falls by a factor e every 5 from there.
    """
    if not (0 < period < np.inf and 0 < h < np.inf):
        raise ValueError(f"period and h must be positive, got {period!r} and {h!r}")
    ratio = period / h
    near = 0.1 * min(1.0, float(np.exp((14 - ratio) / 5))) if near is None else near
    turns = np.concatenate([[0.0], np.atleast_1d(angles), -np.atleast_1d(angles)]) / np.pi
    values = (2 * np.round((ratio - turns) / 2) + turns).tolist()
    best = min(values, key=lambda r: abs(r - ratio))
    return (best, ratio - best) if abs(ratio - best) < near else None


def _name(coupled: CoupledSystem) -> str:
    return coupled.system.label
