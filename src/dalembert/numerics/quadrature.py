"""Rules of quadrature for polynomial paths with Gauss's nodes."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from dalembert.numerics.precision import known_exactly


class PathRule(NamedTuple):
    """Rules for a path of degree s on [0, 1] whose velocities u_j are given at Gauss's s nodes.

    Integrals of functions on the path take s + 4 nodes: for one stage they are exact to degree nine, and more stages
    take longer steps.
    """

    nodes: np.ndarray
    """The s nodes."""
    weights: np.ndarray
    stages: np.ndarray
    """The integrals of the Lagrange polynomials from 0 to each node, shape (s, s)."""
    onwards: np.ndarray
    """The values, at the nodes of the next path, of the polynomial through the u_j and the velocity at the end."""
    fine: np.ndarray
    """The K nodes for integrals on the path."""
    places: np.ndarray
    """The integrals of the Lagrange polynomials from 0 to each of these, shape (K, s)."""
    shares: np.ndarray
    """The integral of a function times l_i, divided by b_i, from its values there, shape (s, K)."""
    fine_weights: np.ndarray
    velocities: np.ndarray
    """The values of the Lagrange polynomials there, shape (K, s)."""
    missed: np.ndarray
    """The difference of the weights from those of a coarser rule, which uses only some of the nodes."""

    @staticmethod
    @cache
    def of(stages: int) -> "PathRule":
        """The rule for a path of this degree."""
        rule = PathRule._by(_gauss, stages)
        for k, values in enumerate(rule):
            known_exactly(values, lambda mp, k=k: PathRule._by(partial(_gauss, mp=mp), stages)[k])
        return rule

    @staticmethod
    def _by(gauss: Callable, stages: int) -> "PathRule":
        nodes, weights = gauss(stages)
        fine, fine_weights = gauss(stages + 4)
        known = np.append(nodes - 1, 0.0)
        # Every other node, counted from both ends, so that the coarser rule is symmetric, too.
        some = [k for k in range(len(fine)) if min(k, len(fine) - 1 - k) % 2 == 0]
        coarse = np.zeros_like(fine)
        coarse[some] = _integrals(fine[some], np.ones(()), gauss)
        return PathRule(
            nodes=nodes,
            weights=weights,
            stages=_integrals(nodes, nodes, gauss),
            onwards=_lagrange(known, nodes),
            fine=fine,
            places=_integrals(nodes, fine, gauss),
            shares=(_lagrange(nodes, fine) * fine_weights[:, None] / weights).T,
            fine_weights=fine_weights,
            velocities=_lagrange(nodes, fine),
            missed=fine_weights - coarse,
        )

    def integrals(self, x: Any) -> Any:
        """The integrals of the Lagrange polynomials from 0 to x, shape (..., s)."""
        return _integrals(self.nodes, x)


def _gauss(number: int, mp: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Gauss's nodes and weights on [0, 1], exactly symmetric; with a context of mpmath, with its digits."""
    x, w = np.polynomial.legendre.leggauss(number)
    if mp is not None:
        x = np.array([mp.findroot(lambda y: mp.legendre(number, y), y) if y else mp.zero for y in x])
        w = np.array([2 * (1 - y * y) / (number * mp.legendre(number - 1, y)) ** 2 for y in x])
    return (x - x[::-1] + 2) / 4, (w + w[::-1]) / 4


def _lagrange(nodes: np.ndarray, x: Any) -> Any:
    """The values at x, shape (..., s), of the polynomials that are one at one of the s nodes and zero at the others."""
    one = np.eye(len(nodes))
    factors = (x[..., None, None] - nodes) / (nodes[:, None] - nodes + one)
    return (factors * (1 - one) + one).prod(axis=-1)


def _integrals(nodes: np.ndarray, x: Any, gauss: Callable = _gauss) -> Any:
    """The integrals of these polynomials from 0 to x, shape (..., s), by Gauss's rule, which is exact for them."""
    points, weights = gauss(len(nodes))
    parts = _lagrange(nodes, x[..., None] * points) * weights[:, None]
    return x[..., None] * parts.sum(axis=-2)
