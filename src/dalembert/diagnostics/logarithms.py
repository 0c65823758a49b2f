"""Real logarithms of matrices, over one period or, where none exists, over two."""

import numpy as np
from jaxtyping import Float

Square = Float[np.ndarray, "side side"]

# Period maps are accurate to 1e-11. A double eigenvalue that is not semisimple is then known to 3e-6 only.
_SEMISIMPLE, _CLUSTER = 1e-8, 1e-5
# A logarithm with larger entries is that of a matrix that rounding has moved off one without any.
_LARGE = 1e3


def one_logarithm(phi: Square) -> Square | None:
    """A real X with exp(X) = phi, and None if there is none; principal, with half turns of an arbitrary sense.

    Equations: [culver1966] Theorem 1: an invertible real matrix has a real logarithm if and only if every Jordan block
    of a negative eigenvalue occurs an even number of times.
    Negative eigenvalues whose blocks are larger than one are refused, even if they occur in pairs.
    """
    return _checked(_logarithm(np.asarray(phi, float), doubled=False), phi, 1)


def two_period_logarithm(phi: Square) -> Square | None:
    """A real X with exp(X) = phi^2 that commutes with phi. It exists for every invertible real matrix."""
    return _checked(_logarithm(np.asarray(phi, float), doubled=True), phi, 2)


def negative_eigenvalues(phi: Square) -> list[float]:
    """The negative real eigenvalues, each as often as it occurs."""
    values = np.linalg.eigvals(phi)
    real = np.abs(np.imag(values)) <= _CLUSTER * np.abs(values)
    return sorted(np.real(values[real & (np.real(values) < 0)]).tolist())


def _checked(found: Square | None, phi: Square, periods: int) -> Square | None:
    from scipy.linalg import expm

    if found is None or not np.all(np.isfinite(found)) or np.max(np.abs(found)) > _LARGE:
        return None
    power = np.linalg.matrix_power(np.asarray(phi, float), periods)
    # The map is accurate to 1e-11; ill-conditioned eigenvectors cost some digits.
    return found if np.allclose(expm(found), power, rtol=0, atol=1e-7 * np.max(np.abs(power))) else None


def _logarithm(phi: Square, doubled: bool) -> Square | None:
    from scipy.linalg import logm

    negative = negative_eigenvalues(phi)
    if not len(phi):
        return phi
    if not negative:
        found = np.asarray(logm(phi))
        if np.max(np.abs(np.imag(found))) > 1e-7 * max(1.0, float(np.max(np.abs(found)))):
            return None
        return np.real(found) * (2 if doubled else 1)
    value = negative[0]
    first, rest, basis = _split(phi, value)
    size = len(first)
    if doubled:
        mine = np.real(logm(first @ first))
    elif size % 2 == 0 and np.max(np.abs(first - value * np.eye(size))) < _SEMISIMPLE * abs(value):
        half = np.kron(np.eye(size // 2), [[0.0, -np.pi], [np.pi, 0.0]])
        mine = np.log(-value) * np.eye(size) + half
    else:
        return None
    others = _logarithm(rest, doubled)
    if others is None:
        return None
    made = np.zeros_like(phi)
    made[:size, :size], made[size:, size:] = mine, others
    return basis @ made @ np.linalg.inv(basis)


def _split(phi: Square, value: float) -> tuple[Square, Square, Square]:
    """The blocks of phi on the invariant subspace of an eigenvalue and on that of the others, and the basis of both.

    The basis is orthogonal if phi is normal.
    """
    from scipy.linalg import schur, solve_sylvester

    def near(real: float, imag: float) -> bool:
        return abs(complex(real, imag) - value) <= 2 * _CLUSTER * abs(value)

    sorted_form: tuple = schur(phi, output="real", sort=near)
    form, vectors, size = sorted_form
    first, rest, beside = form[:size, :size], form[size:, size:], form[:size, size:]
    basis = np.eye(len(phi))
    if len(rest):
        basis[:size, size:] = solve_sylvester(first, -rest, -beside)
    return first, rest, vectors @ basis
