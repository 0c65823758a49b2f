"""Linear equations with periodic coefficients in any matrix Lie algebra: averaging, with all its exceptions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from dalembert.diagnostics.coupled_structure import lie_algebra
from dalembert.diagnostics.logarithms import negative_eigenvalues, one_logarithm, two_period_logarithm
from dalembert.numerics import extrapolated_step

Square = Float[np.ndarray, "side side"]

# Two period maps, the second with steps half as long, must agree to within this.
_AGREEMENT = 1e-11
_SAMPLES = 32
# Logarithms are known to about 1e-8 where eigenvectors are ill-conditioned.
_INSIDE = 1e-7


class PeriodicAveraging(NamedTuple):
    """The change of variables after which u' = A(t) u, with A of a period T, has constant coefficients.

    Equations: [modin2020] Definition 4.1 and Theorem 4.2, with theta = t/T: where Phi(1) = exp(Abar),
    w = exp(Abar theta) Phi(theta)^-1 u satisfies dw/dtheta = Abar w and has the period one in theta.
    Erratum: the theorem needs a logarithm of Phi(1) in the Lie algebra. Not every connected group has one for each of
    its elements: a period map of Mathieu's equation in SL(2, R) with a trace below -2 has none. Then exp(2 Abar) =
    Phi(1)^2 takes its place, `periods` is 2, and w has the period two.
    """

    matrix: Callable[[Array], Array]
    """A(t)."""
    period: float
    step: float
    """The step at which the period map was accurate."""
    map: Square
    """Phi(1), the evolution over one period."""
    average: Square
    """Abar, per unit of theta."""
    periods: int
    """The period in theta of the change of variables: 1, or 2 if no logarithm over one period is in the algebra."""
    algebra: Float[np.ndarray, "basis side side"]
    """An orthonormal basis of the Lie algebra."""
    algebra_defect: float
    """The part of Abar outside the Lie algebra, relative to Abar."""
    reason: str
    """Why the period is doubled, or why the average is not in the algebra; empty if Theorem 4.2 holds as printed."""

    @property
    def holds(self) -> bool:
        """Whether Theorem 4.2 holds as printed: with the period one, and with the average in the algebra."""
        return self.periods == 1 and self.algebra_defect < _INSIDE

    def flow(self, theta: float) -> Square:
        """Phi(theta); theta may be negative or exceed one period."""
        turns = np.floor(theta)
        time = (theta - turns) * self.period
        phi = _flow(self.matrix, time, max(1, int(np.ceil(time / self.step))))
        return phi @ np.linalg.matrix_power(self.map, int(turns))

    def change(self, u: Any, theta: float) -> np.ndarray:
        """w(u, theta), which has the period `periods` in theta."""
        from scipy.linalg import expm

        return expm(self.average * theta) @ np.linalg.solve(self.flow(theta), np.asarray(u, float))

    def back(self, w: Any, theta: float) -> np.ndarray:
        """u(w, theta)."""
        from scipy.linalg import expm

        return self.flow(theta) @ expm(-self.average * theta) @ np.asarray(w, float)

    @property
    def exponents(self) -> np.ndarray:
        """The rates at which solutions grow, per unit of time: log |eigenvalue of Phi(1)| / T, in increasing order."""
        return np.sort(np.log(np.abs(np.linalg.eigvals(self.map))) / self.period)

    @property
    def is_compact(self) -> bool:
        """Whether the solutions stay bounded for all times: the average is semisimple with imaginary eigenvalues."""
        values, vectors = np.linalg.eig(self.average)
        return bool(np.max(np.abs(np.real(values))) < 1e-8 and np.linalg.cond(vectors) < 1e5)

    def evolution(self, count: int) -> Float[np.ndarray, "count side side"]:
        """T A at `count` evenly spaced phases, with a row and a column of zeros for the auxiliary variable."""
        samples = self.period * _samples(self.matrix, self.period * np.arange(count) / count)
        return np.pad(samples, ((0, 0), (0, 1), (0, 1)))

    def based_at(self, shift: float) -> "PeriodicAveraging":
        """The same averaging with the period beginning at this phase."""
        matrix, begin = self.matrix, shift * self.period
        return periodic_averaging(lambda t: matrix(t + begin), self.period, self.algebra)


def periodic_averaging(
    matrix: Callable[[Array], Array], period: float, algebra: Any = None
) -> PeriodicAveraging:
    """The averaging of u' = matrix(t) u, where `matrix` is a JAX function with this period.

    `algebra` holds matrices that generate the Lie algebra; by default it is the one that the values of `matrix`
    generate. Where the period map has no logarithm in the algebra, the result is that over two periods, and its
    `reason` says so. `reversibility` takes the result as it takes that of `averaging`.
    """
    period = float(period)
    if not 0 < period < np.inf:
        raise ValueError(f"the period must be a positive number, got {period!r}")
    try:
        shape = jax.eval_shape(matrix, jax.ShapeDtypeStruct((), float)).shape
    except TypeError as error:
        raise ValueError(
            f"matrix must be a JAX function of the time that returns a square matrix: {error}"
        ) from None
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise ValueError(
            f"matrix(t) must be a square matrix, such as jnp.array([[0., 1.], [-1., 0.]]); its shape is {shape}"
        )
    times = period * (np.arange(_SAMPLES) + 0.3) / _SAMPLES
    samples, later = _samples(matrix, times), _samples(matrix, times + period)
    size = float(np.max(np.abs(samples)))
    if not np.isfinite(size):
        raise ValueError("matrix(t) is not finite everywhere in the period")
    if np.max(np.abs(later - samples)) > 1e-9 * max(size, np.finfo(float).tiny):
        at = times[np.argmax(np.max(np.abs(later - samples), axis=(1, 2)))]
        raise ValueError(
            f"matrix does not have the period {period:g}: matrix({at:g}) and matrix({at + period:g}) differ by "
            f"{np.max(np.abs(later - samples)):.3g}"
        )
    given = lie_algebra(samples if algebra is None else algebra)
    outside = _outside(given, samples)
    if outside > 1e-8:
        raise ValueError(
            f"matrix(t) is not in the Lie algebra that `algebra` generates, of dimension {len(given)}: the part "
            f"{outside:.2g} of it is outside"
        )
    phi, step = _period_map(matrix, period, size)
    return PeriodicAveraging(matrix, period, step, phi, *_averaged(phi, given))


def _averaged(phi: Square, algebra: np.ndarray) -> tuple[Square, int, np.ndarray, float, str]:
    """The average, its number of periods, the algebra, the defect and the reason."""
    once, twice = one_logarithm(phi), two_period_logarithm(phi)
    if twice is None:
        raise ValueError(
            "the period map is too ill-conditioned for a logarithm: its eigenvalues have the sizes "
            f"{np.sort(np.abs(np.linalg.eigvals(phi)))}"
        )
    twice = twice / 2
    defects = [np.inf if once is None else _outside(algebra, once), _outside(algebra, twice)]
    negative = ", ".join(f"{x:.6g}" for x in negative_eigenvalues(phi))
    if once is not None and defects[0] < _INSIDE:
        return once, 1, algebra, defects[0], ""
    if once is None:
        reason = (
            f"the period map has the negative eigenvalues {negative}, whose Jordan blocks do not come in equal pairs, "
            "so it has no real logarithm; the average is that of two periods"
        )
    else:
        reason = (
            f"the period map has a real logarithm, but the part {defects[0]:.2g} of it is outside the Lie algebra of "
            f"dimension {len(algebra)} (negative eigenvalues: {negative or 'none'}); the average is that of two periods"
        )
    if defects[1] >= _INSIDE:
        reason += f", and the part {defects[1]:.2g} of it is outside the algebra as well"
    return twice, 2, algebra, defects[1], reason


def _outside(algebra: np.ndarray, matrices: np.ndarray) -> float:
    """The largest part of the matrices outside the span of an orthonormal basis, relative to their size."""
    flat, basis = matrices.reshape(-1, matrices.shape[-1] ** 2), algebra.reshape(len(algebra), -1)
    size = float(np.max(np.abs(flat), initial=0.0))
    return float(np.max(np.abs(flat - flat @ basis.T @ basis), initial=0.0)) / size if size else 0.0


def _samples(matrix: Callable[[Array], Array], times: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(matrix)(jnp.asarray(times)))


def _period_map(matrix: Callable[[Array], Array], period: float, size: float) -> tuple[Square, float]:
    count = int(np.ceil(max(8.0, 2 * size * period)))
    before = _flow(matrix, period, count)
    for _ in range(8):
        count *= 2
        phi = _flow(matrix, period, count)
        if np.max(np.abs(phi - before)) < _AGREEMENT * max(1.0, float(np.max(np.abs(phi)))):
            return phi, period / count
        before = phi
    raise ValueError("the period map did not settle: matrix(t) changes too fast, or is not smooth")


def _flow(matrix: Callable[[Array], Array], time: float, count: int) -> Square:
    """The evolution from 0 to `time` in `count` steps."""
    side = jax.eval_shape(matrix, jax.ShapeDtypeStruct((), float)).shape[0]
    z = np.concatenate([[0.0], np.eye(side).ravel()])
    return np.asarray(_advanced(matrix, side)(z, time / count, count))[1:].reshape(side, side)


def _advanced(matrix: Callable[[Array], Array], side: int) -> Callable[..., Array]:
    """The compiled evolution of (t, Phi), kept for the last function."""
    if _LAST.get("matrix") is not matrix:

        def field(z: Array) -> Array:
            return jnp.concatenate([jnp.ones(1), (matrix(z[0]) @ z[1:].reshape(side, side)).ravel()])

        def advance(z: Array, h: Array, count: Array) -> Array:
            return lax.fori_loop(0, count, lambda _, z: extrapolated_step(field, z, h), z)

        _LAST.update(matrix=matrix, advance=jax.jit(advance))
    return _LAST["advance"]


_LAST: dict[str, Any] = {}
