"""The frequency map of coupled systems over a region of driver states, and whether it is degenerate."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev

from dalembert.diagnostics.actions_and_angles import ActionAngle, action_angle, driver_state

# The numbers of orbits, each of whose sets contains the one before.
_ORBITS = (5, 9, 17, 33, 65)
# Frequencies are known to this part of themselves: periods and period maps are accurate to 1e-11.
_ACCURACY = 1e-11
_POINTS = 41
# A determinant with a smaller error, relative to the frequencies and their changes, is known well enough.
_ENOUGH = 1e-6
# So is one that is this many times larger than its error everywhere.
_CLEAR = 100


class Nondegeneracy(NamedTuple):
    """The frequency map omega(I) of a coupled system over a family of driver orbits, and condition (iii).

    Equations: [modin2020] Definition 5.1 (iii): the image of omega lies in no proper linear subspace. Here omega
    depends on the driver's action J alone. The derivative of omega with respect to all actions is therefore singular
    wherever there are two angles or more, and the determinant that decides is
    W = det(omega, d omega/dJ, ..., d^(k-1) omega/dJ^(k-1)). If W is not zero somewhere, condition (iii) holds; if it is
    zero everywhere and omega is analytic, the image lies in a subspace.
    """

    name: str
    verdict: str
    """"nondegenerate on the region", "degenerate at ...", "degenerate on the region" or "undecided"."""
    holds: bool | None
    """Whether condition (iii) holds: True, False, or None if the errors are too large."""
    energies: Float[np.ndarray, " points"]
    """Driver energies at evenly spaced points of the region."""
    actions: Float[np.ndarray, " points"]
    """The driver's action J there."""
    frequencies: Float[np.ndarray, "points angles"]
    """omega there, continuous over the region, in turns per unit of time."""
    determinants: Float[np.ndarray, " points"]
    """W there."""
    errors: Float[np.ndarray, " points"]
    """The errors of W, from the coarser of two interpolations and from the accuracy of the orbits."""
    degenerate: Float[np.ndarray, " zeros"]
    """The driver energies at which W changes its sign."""
    subspace: float
    """The smallest singular value of the frequencies over the region, relative to the largest one."""
    charts: tuple[ActionAngle, ...]
    """The action-angle variables around the orbits that were computed."""

    def __str__(self) -> str:
        k = self.frequencies.shape[1]
        least = int(np.argmin(np.abs(self.determinants)))
        low, high = self.energies[0], self.energies[-1]
        return (
            f"{self.name}: {self.verdict}; driver energies {low:.6g} to {high:.6g}, {k} angle{'s' if k > 1 else ''}, "
            f"least |W| = {abs(self.determinants[least]):.3g} +- {self.errors[least]:.1g}"
        )


def nondegeneracy(
    system: Any, first: tuple[float, float], last: tuple[float, float], h: float | None = None
) -> Nondegeneracy:
    """Whether the frequency map is degenerate over the driver's orbits between those through `first` and `last`.

    `first` and `last` are states (xi, eta) of the driver. They must belong to one family of orbits: no separatrix lies
    between them. The orbits are interpolated by Chebyshev polynomials of the driver energy, and their number is doubled
    until the determinant is known.
    """
    first, last = driver_state(first), driver_state(last)
    start = action_angle(system, *first, h)
    end = action_angle(start.coupled, *last, h)
    name = start.coupled.system.label
    low, high = start.energy, end.energy
    if abs(high - low) < 1e-6 * (abs(high) + abs(low)):
        raise ValueError(
            f"the orbits of the driver of {name} through {first} and {last} have the same energy {low:g}; a region "
            "needs orbits of different energies"
        )
    if end.winding != start.winding:
        raise ValueError(
            f"the orbits of the driver of {name} through {first} and {last} are of different families: it makes "
            f"{start.winding} and {end.winding} turns in a period"
        )
    known: dict[float, ActionAngle] = {-1.0: start}
    found, coarse = None, None
    for count in _ORBITS:
        nodes = np.cos(np.pi * np.arange(count) / (count - 1))[::-1].round(15)
        for x in nodes:
            if x not in known:
                nearest = known[min(known, key=lambda y, x=x: abs(x - y))]
                known[x] = nearest.at_energy(low + 0.5 * (x + 1) * (high - low))
        fine = _determinants(nodes, [known[x] for x in nodes])
        if coarse is not None:
            found = fine, np.abs(fine[0] - coarse[0]) + fine[1]
            if np.max(found[1]) < _ENOUGH * fine[2] or np.all(np.abs(fine[0]) > _CLEAR * found[1]):
                break
        coarse = fine
    known[1.0].phase(*end.averaged.orbit.base)  # refuses an end of another family
    assert found is not None
    (values, _, natural, omega, actions), errors = found
    energies = low + (high - low) * np.linspace(0, 1, _POINTS)
    charts = tuple(known[x] for x in sorted(known))
    scaled = omega / np.max(np.abs(omega), axis=0)
    singular = np.linalg.svd(scaled, compute_uv=False)
    verdict, holds, zeros = _judged(energies, values, errors, natural)
    return Nondegeneracy(
        name,
        verdict,
        holds,
        energies,
        actions,
        omega,
        values,
        errors,
        zeros,
        float(singular[-1] / singular[0]) if len(singular) > 1 else 1.0,
        charts,
    )


def _determinants(
    nodes: np.ndarray, charts: list[ActionAngle]
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray, np.ndarray]:
    """W at the points, its error from that of the orbits, its natural size, omega and J."""
    omega = np.array([chart.frequencies for chart in charts])
    area = np.array([chart.driver_action for chart in charts])
    degree, points, k = len(nodes) - 1, np.linspace(-1, 1, _POINTS), omega.shape[1]
    fit = chebyshev.chebfit(nodes, np.column_stack([omega, area]), degree)
    rows = [chebyshev.chebval(points, fit)]
    for _ in range(max(1, k - 1)):
        fit = chebyshev.chebder(fit)
        rows.append(chebyshev.chebval(points, fit))
    derivatives = np.array([row[:k] for row in rows[:k]])  # (order, angle, point), along x
    slope = rows[1][k]  # dJ/dx
    # The Wronskian changes by the factor (dx/dJ)^(k (k-1)/2) with its variable.
    power = k * (k - 1) // 2
    values = np.linalg.det(np.moveaxis(derivatives, 2, 0)) / slope**power
    sizes = np.max(np.abs(rows[0][:k]), axis=1)
    # The span of J over the region is the natural unit of J.
    natural = float(np.prod(sizes) / np.ptp(area) ** power)
    rounding = _ACCURACY * natural * float(degree) ** (2 * max(0, k - 1))
    return values, np.full(len(points), rounding), natural, rows[0][:k].T, rows[0][k]


def _judged(
    energies: np.ndarray, values: np.ndarray, errors: np.ndarray, natural: float
) -> tuple[str, bool | None, np.ndarray]:
    """The verdict, whether condition (iii) holds, and the energies at which the determinant changes its sign."""
    sure = np.abs(values) > 3 * errors
    if not sure.any():
        if np.max(errors) < _ENOUGH * natural:
            return "degenerate on the region", False, np.zeros(0)
        return "undecided", None, np.zeros(0)
    k = np.nonzero(sure)[0]
    changes = [(i, j) for i, j in itertools.pairwise(k) if values[i] * values[j] < 0]
    zeros = np.array(
        [energies[i] - values[i] * (energies[j] - energies[i]) / (values[j] - values[i]) for i, j in changes]
    )
    if len(zeros):
        places = ", ".join(f"{x:.6g}" for x in zeros)
        return f"degenerate at the driver energy {places}, nondegenerate elsewhere", True, zeros
    if sure.all():
        return "nondegenerate on the region", True, zeros
    doubtful = energies[~sure]
    return (
        f"nondegenerate, undecided at driver energies from {doubtful[0]:.6g} to {doubtful[-1]:.6g}",
        True,
        zeros,
    )
