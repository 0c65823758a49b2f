"""Action-angle variables of coupled systems: the driver's and those of its averaged passenger."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.coupled_structure import Involution, rebase, reversibility
from dalembert.diagnostics.floquet import (
    Averaging,
    averaging,
    driver_positions,
    driver_speed,
)
from dalembert.kernels import over_rows

# Period maps are accurate to 1e-11. Eigenvalues of the average that are smaller than this count as zero.
_ZERO = 1e-9
# Two driver energies that differ by less than this part of the kinetic energy belong to one orbit.
_SAME_ENERGY = 1e-10
# Neighbouring orbits are continued into each other if their eigenvectors have at least this overlap.
_OVERLAP = 0.9


class ActionAngle(eqx.Module):
    """The map phi = (I, theta) of a coupled system, around one orbit of its driver; `action_angle` makes it.

    Equations: [modin2020] Definition 5.1, with angles of period one. The first action is the area m eta dxi that the
    driver encloses in one period, and the first angle is its phase. With the evolution Phi(theta) of
    u = (kappa x, v, 1), and l a left eigenvector of the average for the eigenvalue i alpha, the number
    c = exp(i alpha theta) l Phi(theta)^-1 u turns evenly: |c|^2 is an action and arg(c)/(2 pi) its angle. The
    eigenvectors of the eigenvalue zero give actions that have no angle: latitudes. Where time is reversed about a phase
    of the driver, the angles are counted from there, so that the reversal changes their signs.
    The functions take any state whose driver follows an orbit of the same family; its own orbit is then found first.
    """

    averaged: Averaging
    involution: Involution | None
    """The reversal at the base of the orbit, from which angles are counted; None if there is none."""
    states: np.ndarray
    """(count, 2) the driver's (xi, eta) at evenly spaced phases."""
    planes: np.ndarray
    """(planes, m + 2) the left eigenvectors of the planes that turn, for (kappa x, v, 1)."""
    turns: np.ndarray
    """(planes,) the angle alpha by which each of them turns in one period of the driver."""
    axes: np.ndarray
    """(axes, m + 2) the left eigenvectors of the eigenvalue zero."""
    driver_action: float
    driver_action_error: float
    """How much the driver's action changed when its quadrature was refined."""

    @property
    def coupled(self) -> CoupledSystem:
        """The coupled system."""
        return self.averaged.coupled

    @property
    def period(self) -> float:
        """The period of the driver."""
        return self.averaged.orbit.period

    @property
    def energy(self) -> float:
        """The energy of the driver on this orbit."""
        return _driver_energy(self.coupled, *self.averaged.orbit.base)

    @property
    def frequencies(self) -> Float[np.ndarray, " angles"]:
        """omega, in turns per unit of time: the driver's, and one for each plane."""
        return np.concatenate([[1.0], self.turns / (2 * np.pi)]) / self.period

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the actions, in the order of `actions`; those with angles come first."""
        planes, axes = (f"plane {i + 1}" for i in range(len(self.turns))), range(len(self.axes))
        return "driver", *planes, *(f"latitude {i + 1}" for i in axes)

    @property
    def winding(self) -> int:
        """The turns that the driver's angle makes in one period; zero for a driver that swings."""
        return round(float(np.mean(self.states[:, 1])) * self.period / (2 * np.pi))

    @property
    def reversal(self) -> np.ndarray | None:
        """rho on (kappa x, v, 1), for the angles counted from this base; None if there is no reversal."""
        if self.involution is None:
            return None
        rho = np.eye(len(self.averaged.average))
        rho[:-1, :-1] = self.involution.rho
        return rho

    @property
    def latitude_defect(self) -> float:
        """How much the reversal changes the latitudes, for u of norm one; infinite if there is no reversal."""
        rho = self.reversal
        return np.inf if rho is None else float(np.max(np.abs(self.axes @ rho - self.axes), initial=0.0))

    def reversal_defect(self, count: int = 8) -> float:
        """The largest violation of phi o R = (I, -theta) at random states of this orbit; infinite without a reversal.

        Equations: [modin2020] Definition 5.1 (i), with R(u, theta) = (rho u, -theta).
        """
        rho = self.reversal
        if rho is None:
            return np.inf
        draw, worst, size = np.random.default_rng(5), 0.0, len(rho) - 1
        for _ in range(count):
            u, theta = np.append(draw.normal(size=size), 1.0), draw.uniform()
            there, back = self._variables(u, theta), self._variables(rho @ u, -theta)
            scale = np.linalg.norm(u)
            worst = max(worst, np.max(np.abs(there[0] - back[0].conj()), initial=0.0) / scale)
            worst = max(worst, np.max(np.abs(there[1] - back[1]), initial=0.0) / scale)
        return float(worst)

    def _variables(self, u: np.ndarray, theta: float) -> tuple[np.ndarray, np.ndarray]:
        """The complex number c of each plane, and the latitudes."""
        back = np.linalg.solve(self.averaged.flow(theta), u)
        return np.exp(1j * self.turns * theta) * (self.planes @ back), self.axes @ back

    def actions(self, q: Any, v: Any) -> np.ndarray:
        """I of a state, or of rows of states: constants of the exact motion."""
        return self._evaluate(q, v)[0]

    def angles(self, q: Any, v: Any) -> np.ndarray:
        """theta of a state, or of rows of states, in [0, 1): the exact motion advances it by omega per unit of time."""
        return self._evaluate(q, v)[1]

    def at_energy(self, energy: float) -> "ActionAngle":
        """The same variables around the orbit of another driver energy.

        The bases of the orbits lie on the line through this base across the flow. Angles are counted continuously from
        one orbit to the other.
        """
        return _continued(self, float(energy), 8)

    def _evaluate(self, q: Any, v: Any) -> tuple[np.ndarray, np.ndarray]:
        q, v = np.asarray(q, float), np.asarray(v, float)
        size = self.coupled.system.dimension
        if q.shape != v.shape or q.ndim not in (1, 2) or q.shape[-1] != size:
            raise ValueError(
                f"states of {self.coupled.system.label} are rows of q and v of length {size}, got {q.shape} and "
                f"{v.shape}"
            )
        if not (np.isfinite(q).all() and np.isfinite(v).all()):
            raise ValueError(
                f"a state of {self.coupled.system.label} is not finite, so it has no actions and angles"
            )
        kappa = np.asarray(self.coupled.linear()[0])
        x, speed, xi, eta = over_rows(CoupledSystem.split)(self.coupled, np.atleast_2d(q), np.atleast_2d(v))
        u = np.concatenate([x @ kappa.T, speed[:, None], np.ones((len(x), 1))], axis=1)
        made = [self._one(row, float(a), float(b)) for row, a, b in zip(u, xi, eta, strict=True)]
        actions, angles = (np.array(part) for part in zip(*made, strict=True))
        return (actions[0], angles[0]) if q.ndim == 1 else (actions, angles)

    def _one(self, u: np.ndarray, xi: float, eta: float) -> tuple[np.ndarray, np.ndarray]:
        energy = _driver_energy(self.coupled, xi, eta)
        same = abs(energy - self.energy) <= _SAME_ENERGY * self._scale()
        chart = self if same else self.at_energy(energy)
        theta = chart.phase(xi, eta)
        c, latitudes = chart._variables(u, theta)
        actions = np.concatenate([[chart.driver_action], np.abs(c) ** 2, latitudes])
        return actions, np.concatenate([[theta], np.angle(c) / (2 * np.pi) % 1])

    def phase(self, xi: float, eta: float) -> float:
        """The fraction of the period after which the driver comes from the base to (xi, eta), in [0, 1)."""
        coupled, count = self.coupled, len(self.states)
        weight = np.array([1.0, self.period / (2 * np.pi)])  # velocities in units of length

        def away(z: np.ndarray) -> np.ndarray:
            gap = np.array([xi, eta]) - z
            if coupled.is_angle:
                gap[..., 0] -= 2 * np.pi * np.round(gap[..., 0] / (2 * np.pi))
            return gap * weight

        nearest = int(np.argmin(np.linalg.norm(away(self.states), axis=1)))
        time = 0.0
        for _ in range(8):  # Newton's method from a neighbour
            z, rate = driver_speed(coupled, self.states[nearest], time)
            along = rate * weight
            time += float(away(z) @ along / (along @ along))
        z, _ = driver_speed(coupled, self.states[nearest], time)
        size = np.max(np.linalg.norm(np.ptp(self.states, axis=0) * weight))
        if not np.linalg.norm(away(z)) < 1e-6 * size:
            raise ValueError(
                f"the driver of {coupled.system.label} does not pass ({xi:g}, {eta:g}) on its orbit through "
                f"({self.averaged.orbit.base[0]:g}, {self.averaged.orbit.base[1]:g}), although its energy is the same: "
                "the two states belong to different families of orbits. Use action_angle at the state itself"
            )
        return float((nearest / count + time / self.period) % 1)

    def _scale(self) -> float:
        """The driver's largest kinetic energy on the orbit."""
        return float(0.5 * self.coupled.inertia * np.max(self.states[:, 1] ** 2))


def action_angle(system: Any, xi: float, eta: float, h: float | None = None) -> ActionAngle:
    """Action-angle variables of a coupled system around the orbit of its driver through (xi, eta).

    Angles are counted from a phase about which the system is reversible (`reversibility`), and from (xi, eta) if there
    is none. Raises ValueError if the driver is not periodic there, or if the passenger's motion is not bounded.
    """
    averaged = averaging(system, *driver_state((xi, eta)), h)
    _check_bounded(averaged)
    made = _made(averaged, None)
    for involution in sorted(reversibility(averaged), key=lambda x: x.shift):
        based = _made(*rebase(averaged, involution))
        # About other phases, a reversal may change the sign of a latitude; Definition 5.1 asks for I o R = I.
        if based.latitude_defect < 1e-6:
            return based
        made = based if made.involution is None else made
    return made


def driver_state(state: Any) -> tuple[float, float]:
    """(xi, eta) as two finite numbers; raises ValueError if it is anything else."""
    try:
        xi, eta = (float(x) for x in state)
    except (TypeError, ValueError):
        raise ValueError(
            f"a state of the driver is a pair (xi, eta), such as (0.0, 1.0); got {state!r}"
        ) from None
    if not np.isfinite([xi, eta]).all():
        raise ValueError(f"a state of the driver is a pair of finite numbers (xi, eta); got {state!r}")
    return xi, eta


def _check_bounded(averaged: Averaging) -> None:
    if not averaged.is_compact:
        raise ValueError(
            f"{averaged.coupled.system.label} has no action-angle variables on this orbit of its driver: the average "
            "of the passenger's equation is not semisimple with imaginary eigenvalues, so its motion is not bounded"
        )


def _driver_energy(coupled: CoupledSystem, xi: float, eta: float) -> float:
    return float(0.5 * coupled.inertia * eta**2 + _potential(coupled, xi)[0])


def _potential(coupled: CoupledSystem, xi: float) -> tuple[float, float]:
    """V(xi) and V'(xi)."""
    value, pull = over_rows(_value_and_pull)(coupled, np.array([xi]))
    return float(value[0]), float(pull[0])


def _value_and_pull(coupled: CoupledSystem, xi: Any) -> tuple[Any, Any]:
    import jax

    return jax.value_and_grad(coupled.driver_potential)(xi)


def _made(averaged: Averaging, involution: Involution | None) -> ActionAngle:
    states, action, error = _area(averaged)
    planes, turns, axes = _eigenvectors(averaged.average)
    if involution is not None:
        rho = np.eye(len(averaged.average))
        rho[:-1, :-1] = involution.rho
        free = not np.any(np.asarray(averaged.coupled.linear()[1]))
        # Without a force -rho is an involution too; one of the two keeps the latitudes.
        if free and np.sum((axes @ rho) * axes) < 0:
            rho[:-1, :-1] *= -1
            involution = involution._replace(rho=-involution.rho)
        # l rho is a multiple of the conjugate of l; half of its argument counts the angle from the reversal.
        mirrored = np.sum((planes @ rho) * planes, axis=1)
        planes = planes * np.exp(-0.5j * np.angle(mirrored))[:, None]
    return ActionAngle(averaged, involution, states, planes, turns, axes, action, error)


def _area(averaged: Averaging) -> tuple[np.ndarray, float, float]:
    """The driver's states at evenly spaced phases, the area that it encloses, and the error of this area.

    The trapezoidal rule converges exponentially for periodic functions, so the number of phases is doubled until
    nothing changes.
    """
    coupled, orbit = averaged.coupled, averaged.orbit

    def area(count: int) -> tuple[np.ndarray, float]:
        states = driver_positions(coupled, orbit, count)
        return states, float(coupled.inertia * np.mean(states[:, 1] ** 2) * orbit.period)

    count = max(32, int(np.ceil(orbit.period / orbit.step)))
    (states, action), before = area(count), area(count // 2)[1]
    for _ in range(6):
        if abs(action - before) < 1e-11 * action:
            break
        count, before = 2 * count, action
        states, action = area(count)
    return states, action, abs(action - before)


def _eigenvectors(average: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The left eigenvectors of [[S, c], [0, 0]] with S skew: of i alpha with alpha > 0, the alphas, and of zero.

    The parts of each on (kappa x, v) are orthonormal.
    """
    skew, column = average[:-1, :-1], average[:-1, -1]
    values, vectors = np.linalg.eigh(1j * skew)  # skew = -i (1j skew): eigenvalues of skew are -i values
    left = vectors.conj().T  # left @ skew = -i values left
    turning = values < -_ZERO
    turns, planes = -values[turning], left[turning]
    last = (planes @ column) / (1j * turns) if len(turns) else np.zeros(0, complex)
    planes = np.concatenate([planes, last[:, None]], axis=1)
    _, sizes, rows = np.linalg.svd(skew)
    axes = rows[sizes < _ZERO]
    for k, row in enumerate(axes):
        axes[k] = row * np.sign(row[np.argmax(np.abs(row) > 1e-6)])
    return planes[::-1], turns[::-1], np.concatenate([axes, np.zeros((len(axes), 1))], axis=1)


def _continued(chart: ActionAngle, energy: float, splits: int) -> ActionAngle:
    """The variables at another energy, aligned with these; half way first if the eigenvectors turn too far."""
    coupled = chart.coupled
    xi, eta = _across(chart, energy)
    averaged = averaging(coupled, xi, eta, chart.averaged.orbit.step)
    _check_bounded(averaged)
    made = _aligned(chart, _made(averaged, None))
    if made is not None:
        return made
    if splits == 0:
        raise ValueError(
            f"the angles of {coupled.system.label} cannot be continued from the driver energy {chart.energy:g} to "
            f"{energy:g}: the planes that turn change too fast, or their number changes"
        )
    half = _continued(chart, 0.5 * (chart.energy + energy), splits - 1)
    return _continued(half, energy, splits - 1)


def _across(chart: ActionAngle, energy: float) -> tuple[float, float]:
    """The point of this driver energy on the line through the base across the flow."""
    coupled = chart.coupled
    xi0, eta0 = chart.averaged.orbit.base
    way = np.array([_potential(coupled, xi0)[1], float(coupled.inertia) * eta0])
    way /= np.linalg.norm(way)
    way[np.abs(way) < 1e-7] = 0.0  # a base at a turning point, or where V' = 0, is known to rounding only
    along = 0.0
    for _ in range(60):
        xi, eta = xi0 + along * way[0], eta0 + along * way[1]
        value, pull = _potential(coupled, xi)
        miss = float(0.5 * coupled.inertia * eta**2) + value - energy
        slope = pull * way[0] + float(coupled.inertia) * eta * way[1]
        step = miss / slope if slope else np.inf
        # The energy grows along the line; where it no longer does, the family of orbits ends.
        if not np.isfinite(step) or slope < 0:
            break
        along -= step
        if abs(step) <= 4e-16 * (abs(along) + abs(xi0) + abs(eta0)):
            return float(xi0 + along * way[0]), float(eta0 + along * way[1])
    if np.isfinite(step) and abs(step) < 1e-12 * (1 + abs(xi0) + abs(eta0)) and slope > 0:
        return float(xi0 + along * way[0]), float(eta0 + along * way[1])
    raise ValueError(
        f"no orbit of the driver of {coupled.system.label} with the energy {energy:g} belongs to the family of the "
        f"orbit through ({xi0:g}, {eta0:g}), whose energy is {chart.energy:g}"
    )


def _aligned(chart: ActionAngle, other: ActionAngle) -> ActionAngle | None:
    """`other` with planes, branches and signs as in `chart`; None if they are too different."""
    if other.planes.shape != chart.planes.shape or other.axes.shape != chart.axes.shape:
        return None
    if other.winding != chart.winding:
        return None
    planes, turns, left = [], [], list(range(len(other.turns)))
    for row, turn in zip(chart.planes, chart.turns, strict=True):
        # A plane may turn the other way by 2 pi - alpha, so conjugates count as well.
        choices = [(k, sign) for k in left for sign in (1, -1)]
        found = {x: np.vdot(row[:-1], _mirrored(other.planes[x[0]], x[1])[:-1]) for x in choices}
        best = max(found, key=lambda x: abs(found[x]))
        if abs(found[best]) < _OVERLAP:
            return None
        k, sign = best
        left.remove(k)
        phase = np.exp(-1j * np.angle(found[best]))
        planes.append(_mirrored(other.planes[k], sign) * phase)
        alpha = sign * other.turns[k]
        alpha += 2 * np.pi * np.round((turn - alpha) / (2 * np.pi))
        if abs(alpha - turn) > 1.5:
            return None
        turns.append(alpha)
    axes, spare = [], list(range(len(other.axes)))
    for row in chart.axes:
        k = max(spare, key=lambda j: abs(other.axes[j] @ row))
        overlap = float(other.axes[k] @ row)
        if abs(overlap) < _OVERLAP:
            return None
        spare.remove(k)
        axes.append(np.sign(overlap) * other.axes[k])
    size = chart.planes.shape[1]
    return ActionAngle(
        other.averaged,
        chart.involution,
        other.states,
        _with_reversal(chart, np.reshape(planes, (-1, size))),
        np.array(turns),
        np.reshape(axes, (-1, size)),
        other.driver_action,
        other.driver_action_error,
    )


def _with_reversal(chart: ActionAngle, planes: np.ndarray) -> np.ndarray:
    """The planes with their angles counted from the reversal again, if there is one; the overlap fixes the sign."""
    if chart.involution is None or not len(planes):
        return planes
    rho = np.eye(planes.shape[1])
    rho[:-1, :-1] = chart.involution.rho
    mirrored = np.sum((planes @ rho) * planes, axis=1)
    shift = np.exp(-0.5j * np.angle(mirrored))
    return planes * np.where(shift.real < 0, -shift, shift)[:, None]


def _mirrored(row: np.ndarray, sign: int) -> np.ndarray:
    return row if sign > 0 else row.conj()
