"""The problems of the work-precision comparison, with equations of motion for solvers of plain ODEs.

Peers get the friendliest form there is: multipliers eliminated and velocities reduced to those the constraint
allows, by hand, so that five unknowns remain and the constraint cannot drift.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dalembert import zoo
from dalembert.model import System

ROWS = 101
"""Equally spaced times, the start among them, at which states are compared."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A system, a start, and the same motion as an ODE in five unknowns."""

    name: str
    system: System
    q0: np.ndarray
    v0: np.ndarray
    y0: np.ndarray
    """The start of the reduced equations."""
    time: float
    field: Callable[[Any, Callable, Callable], list[Any]]
    """field(y, sin, cos): the reduced equations, in whatever sin and cos work on."""
    states: Callable[[np.ndarray], np.ndarray]
    """From reduced unknowns (..., 5) to (q, v), (..., 6)."""
    words: str

    @property
    def times(self) -> np.ndarray:
        """The times of comparison."""
        return np.linspace(0, self.time, ROWS)


def cvt(time: float, eps: float = 0.5) -> Problem:
    """The pendulum CVT, rotating; unknowns x1, x2, xi and the velocities of x2 and xi."""
    system = zoo.PendulumCVT(eps=eps)
    q0, v0 = (np.asarray(x, float) for x in system.start("rotating"))

    def field(y, sin, cos):
        x1, x2, xi, v2, v3 = y
        s, c = sin(xi), cos(xi)
        force = (x1 + s * x2 - c * v3 * v2) / (1.0 + s * s)
        return [-1.0 * s * v2, v2, v3, s * force - x2, -1.0 * (s + eps * (1.0 - 2.0 * s * s))]

    def states(y):
        x1, x2, xi, v2, v3 = np.moveaxis(y, -1, 0)
        return np.stack([x1, x2, xi, -np.sin(xi) * v2, v2, v3], axis=-1)

    words = f"PendulumCVT(eps={eps}), rotating start, to t = {time:g}"
    return Problem("cvt", system, q0, v0, np.array([*q0, *v0[1:]]), time, field, states, words)


def sleigh(time: float) -> Problem:
    """The Chaplygin sleigh; unknowns x, y, theta of the mass centre, speed of the blade and turning rate."""
    system = zoo.ChaplyginSleigh(coordinates="mass-centre")
    m, i, a = (float(x) for x in (system.mass, system.inertia, system.offset))
    q0, v0 = (np.asarray(x, float) for x in system.start())

    def field(y, sin, cos):
        _, _, theta, u, w = y
        s, c = sin(theta), cos(theta)
        return [u * c - a * w * s, u * s + a * w * c, w, a * w * w, -m * a / (i + m * a**2) * u * w]

    def states(y):
        x, z, theta, u, w = np.moveaxis(y, -1, 0)
        s, c = np.sin(theta), np.cos(theta)
        return np.stack([x, z, theta, u * c - a * w * s, u * s + a * w * c, w], axis=-1)

    words = f'ChaplyginSleigh(coordinates="mass-centre"), default start, to t = {time:g}'
    return Problem("sleigh", system, q0, v0, np.array([*q0, v0[0], v0[2]]), time, field, states, words)
