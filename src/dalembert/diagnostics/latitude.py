"""The hidden integral of coupled systems: the latitude of (kappa x, v) about the axis of the period map."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.floquet import Orbit, orbit, section
from dalembert.model import System
from dalembert.numerics import over_rows
from dalembert.simulate import Trajectory

SUBSTEPS = 12


def axis_and_angle(rotation: np.ndarray) -> tuple[np.ndarray, float]:
    """The right-handed axis of a rotation of space, and its angle in (0, pi)."""
    r = np.asarray(rotation)
    axis = np.array([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])
    length = np.linalg.norm(axis)
    if length < 1e-9:
        raise ValueError("the period map is the identity or a half turn: it has no axis of its own")
    return axis / length, float(np.arctan2(length / 2, (np.trace(r) - 1) / 2))


class Latitude(NamedTuple):
    """The latitude integral of the orbit through a state.

    Equations: [modin2020] Proposition 5.3. The passenger u = (kappa x, v) turns by the same rotation in every
    driver period, so its component along that rotation's axis, taken where the driver crosses the section
    upwards, never changes.
    """

    coupled: CoupledSystem
    orbit: Orbit
    axis: np.ndarray
    angle: float
    start: float
    """The value at the state, which the exact motion keeps."""

    @classmethod
    def of(
        cls,
        system: System | CoupledSystem,
        q: Any,
        v: Any,
        h: float | None = None,
        found: Orbit | None = None,
    ) -> "Latitude":
        """The integral for the orbit through (q, v), which may be `found` already; ValueError where there is none."""
        coupled = _with_axis(system, q)
        found = orbit(coupled, *section(coupled, q, v), h) if found is None else found
        axis, angle = axis_and_angle(found.rotation)
        return cls(coupled, found, axis, angle, latitude(coupled, q, v, h))

    def along(self, trajectory: Trajectory) -> tuple[np.ndarray, np.ndarray]:
        """Times and values at the upward crossings of the section, each reached from the nearer saved state by
        the exact flow with xi as the independent variable."""
        coupled = self.coupled
        t, q, v = (np.asarray(x) for x in (trajectory.t, trajectory.q, trajectory.v))
        good = np.all(np.isfinite(q), axis=1) & np.all(np.isfinite(v), axis=1)
        t, q, v = t[good], q[good], v[good]
        target = self.orbit.base[0]
        ahead = q[:, coupled.index] - target
        if coupled.is_angle:
            turn = np.floor(ahead / (2 * np.pi))
            crossed = np.nonzero((turn[1:] > turn[:-1]) & (v[1:, coupled.index] > 0))[0]
            aims = target + 2 * np.pi * turn[crossed + 1]
        else:
            crossed = np.nonzero((ahead[:-1] < 0) & (ahead[1:] >= 0))[0]
            aims = np.full(len(crossed), target)
        if not len(crossed):
            return np.zeros(0), np.zeros(0)
        gaps = np.abs(q[[crossed, crossed + 1], coupled.index] - aims)
        nearer = np.where(gaps[0] <= gaps[1], crossed, crossed + 1)
        time, u = over_rows(_to_section)(coupled, q[nearer], v[nearer], aims)
        return t[nearer] + time, u @ self.axis


def _to_section(coupled: CoupledSystem, q: Array, v: Array, aim: Array) -> tuple[Array, Array]:
    """The time until xi = aim, and (kappa x, v) there: Runge-Kutta with xi as the independent variable."""
    kappa, _ = coupled.linear()
    x, speed, xi, eta = coupled.split(q, v)
    part = (aim - xi) / SUBSTEPS

    def field(z):
        """z = (time, xi, eta, v, y)."""
        dy, dv, dxi, deta = coupled.reduced_field(z[4:], z[3], z[1], z[2])
        return jnp.concatenate([jnp.stack([jnp.ones(()), dxi, deta, dv]), dy]) / dxi

    def step(_, z):
        a = field(z)
        b = field(z + 0.5 * part * a)
        c = field(z + 0.5 * part * b)
        d = field(z + part * c)
        return z + part / 6 * (a + 2 * b + 2 * c + d)

    z = jnp.concatenate([jnp.stack([jnp.zeros(()), xi, eta, speed]), kappa @ x])
    z = lax.fori_loop(0, SUBSTEPS, step, z)
    return z[0], jnp.concatenate([z[4:], z[3:4]])


def _with_axis(system: System | CoupledSystem, q: Any) -> CoupledSystem:
    coupled = system if isinstance(system, CoupledSystem) else CoupledSystem.of(system, q)
    kappa, f = coupled.linear()
    if len(kappa) != 2 or np.any(np.abs(np.asarray(f)) > 0):
        raise ValueError(
            f"{type(coupled.system).__name__} has no latitude: (kappa x, v) must turn in space, that is kappa of "
            f"rank 2 and no constant force; the rank is {len(kappa)}"
        )
    return coupled


def latitude(system: System | CoupledSystem, q: Any, v: Any, h: float | None = None) -> float:
    """The latitude on phase space: (kappa x, v) along the axis of the period map that begins at (xi, eta).

    It is a first integral. Each call integrates one period of the driver.
    """
    coupled = _with_axis(system, q)
    q, v = jnp.asarray(q, float), jnp.asarray(v, float)
    x, speed, xi, eta = jax.jit(CoupledSystem.split)(coupled, q, v)
    axis, _ = axis_and_angle(orbit(coupled, float(xi), float(eta), h).rotation)
    return float(axis @ np.append(coupled.linear()[0] @ x, speed))
