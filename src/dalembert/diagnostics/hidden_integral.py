"""The hidden integral of coupled systems: the latitude of (kappa x, v) about the axis of the period map."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.floquet import Orbit, crossings, driver_at, orbit, section
from dalembert.diagnostics.inputs import one_run
from dalembert.kernels import over_rows
from dalembert.model import TOLERANCE, System
from dalembert.numerics import Vector, current
from dalembert.simulation import Trajectory

SUBSTEPS = 12


def axis_and_angle(rotation: np.ndarray) -> tuple[np.ndarray, float]:
    """The right-handed axis of a rotation of space, and its angle in (0, pi)."""
    r = np.asarray(rotation)
    axis = np.array([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])
    length = np.linalg.norm(axis)
    if length < 1e-9:
        raise ValueError("the period map is the identity or a half turn: it has no axis of its own")
    return axis / length, float(np.arctan2(length / 2, (np.trace(r) - 1) / 2))


def larger_turn(rotation: np.ndarray) -> tuple[np.ndarray, float]:
    """An orthonormal basis of the plane that a rotation of R^4 turns by the larger angle, and this angle, up to pi."""
    values, vectors = np.linalg.eigh(
        (np.asarray(rotation) + np.asarray(rotation).T) / 2
    )  # two pairs of cosines
    if values[2] - values[1] < 1e-7:
        raise ValueError(
            "the period map turns two planes by the same angle, so neither of them is distinguished"
        )
    return vectors[:, :2].T, float(np.arccos(np.clip(values[:2].mean(), -1, 1)))


def _turning(rotation: np.ndarray) -> tuple[np.ndarray, float]:
    """What the latitude is measured by: the axis of a rotation of space, or the plane of one of R^4; and the angle."""
    return axis_and_angle(rotation) if len(rotation) == 3 else larger_turn(rotation)


def _component(axis: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The component of u along the axis, or the length of its part in the plane."""
    return u @ axis if axis.ndim == 1 else np.linalg.norm(u @ axis.T, axis=-1)


class Latitude(NamedTuple):
    """The latitude integral of the orbit through a state.

    Equations: [modin2020] Proposition 5.3. The passenger u = (kappa x, v) turns by the same rotation in every
    driver period. Its component along the axis of this rotation, taken where the driver crosses the section
    in the direction of the orbit, therefore never changes. A constant force f = kappa^T g moves the centre of the
    rotation to kappa x = g.
    If kappa has rank three, u turns in R^4, where a rotation has two planes instead of an axis. The length of the part
    of u in the plane that turns by the larger angle is then the integral.
    """

    coupled: CoupledSystem
    orbit: Orbit
    axis: np.ndarray
    """(3,) the axis, or (2, 4) an orthonormal basis of the plane."""
    angle: float
    start: float
    """The latitude of the state, which the exact motion keeps."""

    @classmethod
    def of(
        cls,
        system: System | CoupledSystem,
        q: Any,
        v: Any,
        h: float | None = None,
        found: Orbit | None = None,
    ) -> "Latitude":
        """The integral for the orbit through (q, v); raises ValueError if there is none.

        Pass the driver's orbit as `found` if it is already known.
        """
        coupled, _ = _with_axis(system, q)
        found = orbit(coupled, *section(coupled, q, v), h) if found is None else found
        found = _where_it_moves(coupled, found)
        axis, angle = _turning(found.rotation)
        return cls(coupled, found, axis, angle, latitude(coupled, q, v, h))

    def length(self, q: Any, v: Any) -> float:
        """|(kappa x - g, v)| of a state, which the exact motion keeps; the latitude is no larger."""
        return float(np.linalg.norm(_vector(*_with_axis(self.coupled, q), q, v)[0]))

    def along(self, trajectory: Trajectory) -> tuple[np.ndarray, np.ndarray]:
        """The times and latitudes where the run crosses the section in the direction of the orbit.

        The exact flow, with xi as the independent variable, leads to each crossing from the nearer saved state. Both
        arrays are empty if the run does not cross.
        """
        times, u = self.crossings(trajectory)
        return times, _component(self.axis, u)

    def crossings(self, trajectory: Trajectory) -> tuple[np.ndarray, np.ndarray]:
        """The times when the run crosses the section, and (kappa x - g, v) there, one row for each crossing.

        For the exact motion, each row is the one before, turned by the period map.
        """
        system, _ = one_run(trajectory, "the latitude")
        coupled = self.coupled
        if system.coordinates != coupled.system.coordinates:
            raise ValueError(
                f"this is the latitude of {coupled.system.label} with the coordinates {coupled.system.coordinates}, "
                f"but the run is of {system.label} with {system.coordinates}"
            )
        t, q, v = (np.asarray(x) for x in (trajectory.t, trajectory.q, trajectory.v))
        target, eta = self.orbit.base
        way = -1.0 if eta < 0 else 1.0
        xi, speed = way * q[:, coupled.index], way * v[:, coupled.index]
        crossed, aims = crossings(xi, way * target, coupled.is_angle)
        # An angle that swings also seems to cross the other end of its period, but there it moves the other way.
        moves = speed[crossed + 1] > 0 if coupled.is_angle else np.full(len(crossed), True)
        crossed, aims = crossed[moves], aims[moves]
        if not len(crossed):
            return np.zeros(0), np.zeros((0, self.axis.shape[-1]))
        gaps = np.abs(xi[np.stack([crossed, crossed + 1])] - aims)
        nearer = np.where(gaps[0] <= gaps[1], crossed, crossed + 1)
        time, u = over_rows(_to_section)(coupled, q[nearer], v[nearer], way * aims)
        centre = np.append(_with_axis(coupled, q[0])[1], 0.0)
        return t[nearer] + time, u - centre


def _where_it_moves(coupled: CoupledSystem, found: Orbit) -> Orbit:
    """The orbit, based where the driver is fastest if it nearly rests at its base, where nothing would cross."""
    if abs(found.base[1]) > 1e-3 * abs(float(driver_at(coupled, found, 0.25)[1])):
        return found
    states = [driver_at(coupled, found, k / 32) for k in range(32)]
    return orbit(coupled, *max(states, key=lambda z: z[1]), found.step)


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


def _with_axis(system: System | CoupledSystem, q: Any) -> tuple[CoupledSystem, np.ndarray]:
    """The coupled system, and g with f = kappa^T g."""
    coupled = system if isinstance(system, CoupledSystem) else CoupledSystem.of(system, q)
    kappa, f = (np.asarray(x) for x in coupled.linear())
    name = coupled.system.label
    if len(kappa) < 2:
        raise ValueError(
            f"{name} has no latitude: (kappa x, v) must turn in space or in R^4, that is kappa of rank 2 or 3; here it "
            f"is of rank {len(kappa)}. action_angle has the integrals of this system"
        )
    if len(kappa) > 3:
        raise ValueError(
            f"{name} has no latitude: (kappa x, v) must turn in space or in R^4, that is kappa of rank 2 or 3; here it "
            f"is of rank {len(kappa)}, where there are several such integrals. action_angle has them"
        )
    centre = np.linalg.lstsq(kappa.T, f, rcond=None)[0]
    if np.max(np.abs(kappa.T @ centre - f)) > TOLERANCE * max(1.0, float(np.max(np.abs(f)))):
        raise ValueError(
            f"{name} has no latitude: its constant force f = {f.tolist()} has a part along the kernel of kappa, "
            "which no spring balances, so (kappa x, v) is carried away instead of turning about an axis"
        )
    return coupled, centre


def _vector(coupled: CoupledSystem, centre: np.ndarray, q: Any, v: Any) -> tuple[np.ndarray, float, float]:
    """(kappa x - g, v), xi and eta of a state."""
    q, v = jnp.asarray(q, float), jnp.asarray(v, float)
    x, speed, xi, eta = jax.jit(CoupledSystem.split)(current(coupled), q, v)
    return np.append(np.asarray(coupled.linear()[0] @ x) - centre, speed), float(xi), float(eta)


def latitude(system: System | CoupledSystem, q: Vector, v: Vector, h: float | None = None) -> float:
    """The latitude of a state: the component of (kappa x, v) along the axis of the period map based at (xi, eta).

    If kappa has rank three, it is the length of the part in the plane that turns by the larger angle. It is a
    first integral. Each call integrates one period of the driver.
    """
    coupled, centre = _with_axis(system, q)
    u, xi, eta = _vector(coupled, centre, q, v)
    axis, _ = _turning(orbit(coupled, xi, eta, h).rotation)
    return float(_component(axis, u))
