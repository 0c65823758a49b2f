"""Rules of quadrature for polynomial paths with Gauss's nodes."""

from functools import cache
from typing import NamedTuple

import numpy as np


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
        nodes, weights = _gauss(stages)
        fine, fine_weights = _gauss(stages + 4)
        basis = [_lagrange(nodes, j) for j in range(stages)]
        known = np.append(nodes - 1, 0.0)

        def values(x: np.ndarray) -> np.ndarray:
            return np.stack([p(x) for p in basis], axis=1)

        def integrals(x: np.ndarray) -> np.ndarray:
            return np.stack([p.integ()(x) - p.integ()(0.0) for p in basis], axis=1)

        # Every other node, counted from both ends, so that the coarser rule is symmetric, too.
        some = [k for k in range(len(fine)) if min(k, len(fine) - 1 - k) % 2 == 0]
        coarse = np.zeros(len(fine))
        coarse[some] = [
            _lagrange(fine[some], j).integ()(np.array([0.0, 1.0])) @ [-1, 1] for j in range(len(some))
        ]
        return PathRule(
            nodes=nodes,
            weights=weights,
            stages=integrals(nodes),
            onwards=np.stack([_lagrange(known, j)(nodes) for j in range(stages + 1)], axis=1),
            fine=fine,
            places=integrals(fine),
            shares=(values(fine) * fine_weights[:, None] / weights).T,
            fine_weights=fine_weights,
            velocities=values(fine),
            missed=fine_weights - coarse,
        )


def _gauss(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss's nodes and weights on [0, 1], exactly symmetric."""
    x, w = np.polynomial.legendre.leggauss(number)
    return (x - x[::-1] + 2) / 4, (w + w[::-1]) / 4


def _lagrange(nodes: np.ndarray, j: int) -> np.polynomial.Polynomial:
    """The polynomial that is one at the node j and zero at the others, written about the middle of [0, 1]."""
    others = np.delete(nodes, j)
    found = np.polynomial.Polynomial([1.0], domain=[0, 1], window=[-1, 1])
    for x in others:
        # In z = 2 x - 1, factors are well scaled.
        found = found * np.polynomial.Polynomial(
            np.array([-(2 * x - 1), 1.0]) / (2 * (nodes[j] - x)), domain=[0, 1], window=[-1, 1]
        )
    return found
