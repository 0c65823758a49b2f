"""The structure of a coupled system: its group, integrals, angles and reversibility, computed from its functions."""

from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from jaxtyping import Float

from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.floquet import averaging, section
from dalembert.kernels import over_rows
from dalembert.numerics import Vector

# The threshold for ranks and defects of matrices that are known to rounding.
_ZERO = 1e-8
_SAMPLES = 128


class Periodic(Protocol):
    """A linear equation with periodic coefficients: `Averaging`, `PeriodicAveraging`."""

    @property
    def average(self) -> np.ndarray:
        """Abar, per unit of theta."""
        ...

    def evolution(self, count: int) -> np.ndarray:
        """The matrix at evenly spaced phases, with the row and the column of the auxiliary variable."""
        ...

    def change(self, u: Any, theta: float) -> np.ndarray:
        """w(u, theta), for which the equation has constant coefficients."""
        ...

    def based_at(self, shift: float) -> Self:
        """The same with the period beginning at another phase."""
        ...


Kind = TypeVar("Kind", bound=Periodic)


def lie_algebra(matrices: Any) -> Float[np.ndarray, "basis side side"]:
    """A basis of the Lie algebra that the matrices generate: their span, closed under commutators."""
    basis = _span(np.asarray(matrices, float))
    while True:
        brackets = [a @ b - b @ a for a in basis for b in basis]
        more = _span(np.concatenate([basis, np.array(brackets)])) if len(basis) else basis
        if len(more) == len(basis):
            return basis
        basis = more


def _span(matrices: np.ndarray) -> np.ndarray:
    if not matrices.size:
        return matrices[:0]
    flat = matrices.reshape(len(matrices), -1)
    _, values, rows = np.linalg.svd(flat, full_matrices=False)
    rank = int(np.sum(values > _ZERO * max(1.0, values[0])))
    return rows[:rank].reshape(-1, *matrices.shape[1:])


def group_dimension(coupled: CoupledSystem) -> int:
    """The dimension of the group by which the reduced system moves (kappa x, v, 1).

    It is the dimension of the Lie algebra that the evolution matrices generate.
    """
    coupled = CoupledSystem.of(coupled)
    grid = np.linspace(0, 2 * np.pi, 33)[:-1] if coupled.is_angle else np.linspace(-2, 2, 33)
    return len(lie_algebra(over_rows(CoupledSystem.matrix)(coupled, grid)))


def group_name(coupled: CoupledSystem) -> str:
    """The name of the connected group whose Lie algebra the evolution matrices generate."""
    coupled = CoupledSystem.of(coupled)
    return _group(coupled, group_dimension(coupled))


def _group(coupled: CoupledSystem, dimension: int) -> str:
    m = len(coupled.linear()[0])
    rotations = m * (m + 1) // 2
    if dimension == 0:
        return "1"
    if m == 0:
        return "R"
    if not np.any(np.asarray(coupled.linear()[1])) and dimension == rotations:
        return f"SO({m + 1})"
    if dimension == rotations + m + 1:
        return f"SE({m + 1})"
    return f"a subgroup of SE({m + 1}) of dimension {dimension}"


class Involution(NamedTuple):
    """A linear map with rho A(s + theta) rho = -A(s - theta) and rho^2 = 1, or the map nearest to one."""

    rho: np.ndarray
    """The matrix of the map, which acts on (kappa x, v)."""
    shift: float
    """The phase s of the driver, of period one, about which time is reversed."""
    defect: float
    """The largest entry of rho A + A rho over a period, for rho of norm one; zero if the system is reversible."""


def reversibility(averaged: Periodic) -> list[Involution]:
    """Every phase about which the reduced system is reversible, with its involution; [modin2020] Lemma 4.3.

    Condition (24) is linear in rho, so at each phase its solutions are the kernel of a matrix. The phases are found
    on a grid and refined. An empty list means that the search over all phases found none.
    """
    samples = _evolution(averaged)
    if np.max(np.abs(samples)) < _ZERO:  # (kappa x, v) is at rest, so every phase is one
        return [Involution(np.eye(samples.shape[1] - 1), 0.0, 0.0)]
    grid = np.arange(_SAMPLES) / _SAMPLES
    values = np.array([_smallest(samples, s)[0] for s in grid])
    found: list[Involution] = []
    for j in np.nonzero((values <= np.roll(values, 1)) & (values <= np.roll(values, -1)))[0]:
        shift = _refine(samples, grid[j])
        value, rho = _smallest(samples, shift)
        if value < 1e-7 and (rho := _as_involution(rho, _solutions(samples, shift))) is not None:
            fresh = all(abs((shift - other.shift + 0.5) % 1 - 0.5) > 0.5 / _SAMPLES for other in found)
            if fresh:
                found.append(Involution(rho, float(np.round(shift % 1, 12) % 1), float(value)))
    return found


def least_defect(averaged: Periodic) -> float:
    """The smallest defect of condition (24) over all phases and all rho of norm one; zero for a reversible system."""
    samples = _evolution(averaged)
    return min(_smallest(samples, s)[0] for s in np.arange(_SAMPLES) / _SAMPLES)


def evolution_defect(averaged: Periodic, rho: Float[np.ndarray, "side side"]) -> float:
    """The largest entry of rho A(theta) + A(-theta) rho over a period, for rho on (kappa x, v, 1)."""
    samples = averaged.evolution(_SAMPLES)
    return float(np.max(np.abs(rho @ samples + np.roll(samples[::-1], 1, axis=0) @ rho)))


def _evolution(averaged: Periodic) -> np.ndarray:
    """The Fourier coefficients of the evolution matrix over one period."""
    return np.fft.fft(averaged.evolution(_SAMPLES), axis=0)


def _shifted(samples: np.ndarray, shift: float) -> np.ndarray:
    """A(shift + theta_j) on the grid of phases, by its Fourier series."""
    waves = np.fft.fftfreq(_SAMPLES, 1 / _SAMPLES)
    return np.fft.ifft(samples * np.exp(2j * np.pi * waves * shift)[:, None, None], axis=0).real


def _equations(samples: np.ndarray, shift: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(24) for rho = diag(r, 1) as linear equations for r: a matrix that maps r to zero, and, with an affine part, the
    further rows and what they map r to."""
    forward = _shifted(samples, shift)
    backward = np.roll(forward[::-1], 1, axis=0)
    size = forward.shape[1] - 1
    a, b = forward[:, :size, :size], backward[:, :size, :size]
    # r A(theta) + A(-theta) r = 0 and r c(theta) + c(-theta) = 0, with c the affine column (k.f) and r unknown.
    eye = np.eye(size)
    rows = np.einsum("ik,tlj->tijkl", eye, a[::4]) + np.einsum("tik,jl->tijkl", b[::4], eye)
    matrix = rows.reshape(-1, size * size)
    c, d = forward[::4, :size, size], backward[::4, :size, size]
    if np.max(np.abs(c)) > _ZERO:
        return matrix, np.einsum("ik,tl->tikl", eye, c).reshape(-1, size * size), -d.ravel()
    return matrix, matrix[:0], np.zeros(0)


def _smallest(samples: np.ndarray, shift: float) -> tuple[float, np.ndarray]:
    """The rho = diag(r, 1) that satisfies (24) best about this phase, and its defect."""
    matrix, affine, wanted = _equations(samples, shift)
    size = samples.shape[1] - 1
    if len(affine):
        lhs = np.concatenate([matrix, affine])
        rhs = np.concatenate([np.zeros(len(matrix)), wanted])
        r = np.linalg.lstsq(lhs, rhs, rcond=None)[0]
        r = r.reshape(size, size)
        return float(np.max(np.abs(lhs @ r.ravel() - rhs))), r
    _, values, vectors = np.linalg.svd(matrix, full_matrices=False)
    kernel = vectors[values < 1e-6 * max(1.0, values[0])]
    candidates = kernel if len(kernel) else vectors[-1:]
    # If there are several solutions, take the one nearest to reversing v and keeping the rest.
    plain = np.diag(np.append(np.ones(size - 1), -1.0 if size > 1 else 1.0)).ravel()
    best = (candidates @ plain) @ candidates
    best = best if np.linalg.norm(best) > 1e-6 else candidates[0]
    r = best * np.sqrt(size) / np.linalg.norm(best)
    return float(np.max(np.abs(matrix @ r))), r.reshape(size, size)


def _refine(samples: np.ndarray, start: float) -> float:
    """The phase near `start` where the defect is least."""
    from scipy.optimize import minimize_scalar  # takes a third of a second to import

    # Counted from `start`, because the minimiser stops at 1.5e-8 of its variable.
    found = minimize_scalar(
        lambda shift: _smallest(samples, start + shift)[0],
        bounds=(-1 / _SAMPLES, 1 / _SAMPLES),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return start + float(found.x)


def _as_involution(rho: np.ndarray, solutions: np.ndarray) -> np.ndarray | None:
    """rho, scaled so that its square is one, or another solution of (24) whose square is one; None if none is found.

    If r solves (24), r^2 commutes with all A(theta), so every odd function of r is a solution too. One of them is the
    sign of r, whose square is one. It exists unless r has imaginary eigenvalues.
    """
    square = rho @ rho
    scale = np.trace(square) / len(rho)
    if scale > 0:
        scaled = rho / np.sqrt(scale)
        if np.max(np.abs(scaled @ scaled - np.eye(len(rho)))) <= 1e-5:
            return scaled
    if len(solutions) < 2:
        return None
    draw = np.random.default_rng(3)
    for _ in range(40):
        found = _sign(np.tensordot(draw.normal(size=len(solutions)), solutions, axes=1))
        if found is not None:
            return found
    return None


def _sign(r: np.ndarray) -> np.ndarray | None:
    """The sign of a matrix, by Newton's method; None if it has none or rounding spoils it."""
    r = r / np.linalg.norm(r)
    for _ in range(60):
        if not np.linalg.cond(r) < 1e8:
            return None
        r, before = 0.5 * (r + np.linalg.inv(r)), r
        if np.max(np.abs(r - before)) < 1e-14 * np.max(np.abs(r)):
            break
    good = np.max(np.abs(r @ r - np.eye(len(r)))) < 1e-9 and np.max(np.abs(r)) < 1e3
    return r if good else None


def _solutions(samples: np.ndarray, shift: float) -> np.ndarray:
    """An orthonormal basis of the matrices r that satisfy r A(theta) + A(-theta) r = 0 about this phase.

    It is empty with an affine part, where r is unique.
    """
    matrix, affine, _ = _equations(samples, shift)
    size = samples.shape[1] - 1
    if len(affine):
        return np.zeros((0, size, size))
    _, values, vectors = np.linalg.svd(matrix, full_matrices=False)
    return vectors[values < 1e-6 * max(1.0, values[0])].reshape(-1, size, size)


def averaging_symmetry_defect(averaged: Periodic, involution: Involution, count: int = 8) -> float:
    """The largest |w(rho u, -theta) - rho w(u, theta)|, which is zero if the averaging respects the involution.

    The map w is `Averaging.change`. The averaging must begin at the involution's phase.
    """
    if abs((involution.shift + 0.5) % 1 - 0.5) > 1e-7:
        raise ValueError(
            "the averaging must begin where time is reversed: rebase(averaged, involution) gives one that does"
        )
    draw = np.random.default_rng(6)
    size = len(involution.rho)
    rho = np.eye(len(averaged.average))  # coupled systems have one variable more, which is constant
    rho[:size, :size] = involution.rho
    worst = 0.0
    for _ in range(count):
        u, theta = np.append(draw.normal(size=size), np.ones(len(rho) - size)), draw.uniform()
        there, back = averaged.change(u, theta), averaged.change(rho @ u, -theta)
        worst = max(worst, float(np.max(np.abs(back - rho @ there))))
    return worst


def rebase(averaged: Kind, involution: Involution) -> tuple[Kind, Involution]:
    """The same averaging and involution, with the period beginning at the involution's phase."""
    return averaged.based_at(involution.shift), involution._replace(shift=0.0)


class Structure(NamedTuple):
    """One column of the table of coupled systems, [modin2020] Table 1."""

    name: str
    group: str
    algebra: int
    """The dimension of the Lie algebra."""
    fibre: int
    """F, the dimension of the kernel of kappa."""
    integrals: int
    """I, the number of integrals of the reduced system."""
    angles: int
    """theta, the number of angles of the reduced system."""
    compact: bool
    """Whether the reduced motion stays bounded; if not, it is not integrable in the sense of the paper."""
    involutions: tuple[Involution, ...]


def structure(coupled: CoupledSystem, q: Vector, v: Vector) -> Structure:
    """The structure of the coupled system along the orbit through (q, v)."""
    coupled = CoupledSystem.of(coupled)
    averaged = averaging(coupled, *section(coupled, q, v))
    dimension = group_dimension(coupled)
    m, d = coupled.linear()[0].shape
    angles = 1 + averaged.angles
    # An unbounded motion loses an integral, because v grows instead of staying constant.
    integrals = m + 3 - angles - (0 if averaged.is_compact else 1)
    return Structure(
        coupled.system.label,
        _group(coupled, dimension),
        dimension,
        d - m,
        integrals,
        angles,
        averaged.is_compact,
        tuple(reversibility(averaged)),
    )
