"""Geometric phases: by how much closed paths of shapes move the group, against closed forms."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import expm
from scipy.special import j1

from dalembert.studies.reduction_runs import TURN, Compared, Reduced, Runs
from dalembert.zoo import RubberBall, TwoWheeledRobot

POINTS = (16, 32, 64, 128)
"""How many points a loop has."""
LENGTH = 257
"""Rows of every path that is asked for: standing still at its end adds nothing, and all are compiled once."""
SIZES = np.linspace(0.25, 5.5, 22)
"""Amplitudes of the heading: past the first zero of J1, 3.83."""
RADII = np.linspace(0.1, 2.0, 20)
"""Circles on which the ball rolls, in radii of the ball."""
CARTS = (0.8, 1.4, 2.0)
"""Amplitudes of the wheel angles whose paths are drawn."""
SHIFT, HEADING = 0.8, 1.2
"""Amplitudes of the loop of the disk: the way rolled and the heading."""
RECTANGLE = (1.1, 0.9)
WHEELS, CIRCLE = 1.5, 0.9
"""Amplitude of the wheel angles of the cart; radius of the circle of the ball, in radii of the ball."""


class Loop(NamedTuple):
    """A closed path of shapes, what it does to the group, and what it does where it has corners."""

    name: str
    reduced: Reduced
    path: Callable[[np.ndarray], np.ndarray]
    """Rows of shapes at angles 0 to 2 pi."""
    exact: np.ndarray
    """The element of the smooth path."""
    polygon: Callable[[int], np.ndarray]
    """The element of n equal steps along chords."""
    law: str


class Phase(NamedTuple):
    """A loop with more and more points."""

    name: str
    law: str
    exact: np.ndarray
    errors: tuple[float, ...]
    """Distance from the element of the smooth path, for POINTS."""
    rounding: float
    """The largest distance from the closed form for polygons."""

    @property
    def orders(self) -> tuple[float, ...]:
        """Of convergence, from each pair of errors."""
        return tuple(float(np.log2(a / b)) for a, b in zip(self.errors, self.errors[1:], strict=False))


def padded(path: np.ndarray) -> np.ndarray:
    """The path with its last row repeated."""
    return np.concatenate([path, np.broadcast_to(path[-1:], (LENGTH - len(path), path.shape[1]))])


def phase(reduced: Reduced, path: np.ndarray) -> np.ndarray:
    """The element of a path of up to LENGTH shapes."""
    return np.asarray(reduced.phase(padded(path)))


def angles(n: int) -> np.ndarray:
    """n + 1 of them, once around."""
    return 2 * np.pi * np.arange(n + 1) / n


def hat(w: tuple[float, float, float]) -> np.ndarray:
    """The matrix of a cross product."""
    a, b, c = w
    return np.array([[0, -c, b], [c, 0, -a], [-b, a, 0.0]])


def disk_loop(reduced: Reduced, shift: float = SHIFT, heading: float = HEADING) -> Loop:
    """x3 = a cos s, xi = b sin s: it moves by (0, 2 pi a J1(b)).

    Over a chord the midpoint rule has x3 shortened by sin(x)/x and xi by cos(x), x = pi/n.
    """

    def path(s: np.ndarray) -> np.ndarray:
        return np.stack([shift * np.cos(s), heading * np.sin(s)], axis=1)

    def polygon(n: int) -> np.ndarray:
        return np.array([0, 2 * n * shift * np.sin(np.pi / n) * j1(heading * np.cos(np.pi / n))])

    exact = np.array([0, 2 * np.pi * shift * j1(heading)])
    return Loop("rolling disk, ellipse", reduced, path, exact, polygon, "x2 = 2 pi a J1(b)")


def cart_loop(reduced: Reduced, size: float) -> Loop:
    """Wheel angles on a circle, from where they are equal: sums roll the cart, differences turn it.

    The heading is a function of the wheel angles, so that the cart comes back parallel to itself.
    """
    cart = reduced.full
    assert isinstance(cart, TwoWheeledRobot)
    way, heading = cart_amplitudes(cart, size)

    def path(s: np.ndarray) -> np.ndarray:
        return size * np.stack([np.cos(s + np.pi / 4), np.sin(s + np.pi / 4)], axis=1)

    def polygon(n: int) -> np.ndarray:
        return np.array([0, -2 * n * way * np.sin(np.pi / n) * j1(heading * np.cos(np.pi / n)), 0])

    exact = np.array([0, -2 * np.pi * way * j1(heading), 0])
    return Loop("two-wheeled robot, circle", reduced, path, exact, polygon, "y = -2 pi a J1(b)")


def cart_amplitudes(cart: TwoWheeledRobot, size: float) -> tuple[float, float]:
    """Amplitudes of the way rolled and of the heading, for wheel angles on a circle."""
    return cart.radius * size / np.sqrt(2), cart.radius * size / (np.sqrt(2) * cart.track)


def ball_loop(reduced: Reduced, ratio: float) -> Loop:
    """The point of contact on a circle: in axes that go round with it the ball turns at a constant rate.

    With P' = P w^, w = (rho/R) (cos s, sin s, 0), the product P Rz(s) satisfies U' = U (w0 + e3)^.
    """
    ball = reduced.full
    assert isinstance(ball, RubberBall)
    size = ratio * ball.radius

    def path(s: np.ndarray) -> np.ndarray:
        return size * np.stack([np.cos(s), np.sin(s)], axis=1)

    def polygon(n: int) -> np.ndarray:
        chord, half = 2 * ratio * np.sin(np.pi / n), np.pi / n
        step = expm(hat((chord * np.cos(half), chord * np.sin(half), 0))) @ expm(hat((0, 0, 2 * half)))
        return np.linalg.matrix_power(step, n).ravel()

    exact = expm(2 * np.pi * hat((ratio, 0, 1))).ravel()
    return Loop("rubber ball, circle", reduced, path, exact, polygon, "exp 2 pi (rho/R, 0, 1)")


def converge(loop: Loop) -> Phase:
    """Its phase for POINTS."""
    found = [phase(loop.reduced, loop.path(angles(n))) for n in POINTS]
    off = [float(np.linalg.norm(g - loop.polygon(n))) for n, g in zip(POINTS, found, strict=True)]
    errors = tuple(float(np.linalg.norm(g - loop.exact)) for g in found)
    return Phase(loop.name, loop.law, loop.exact, errors, max(off))


def rectangle(a: float, b: float, n: int) -> np.ndarray:
    """x3 to a, xi to b, x3 back, xi back, with n steps a side."""
    corners = np.array([[0, 0], [a, 0], [a, b], [0, b], [0, 0]])
    at = np.linspace(0, 4, 4 * n + 1)
    return np.stack([np.interp(at, range(5), x) for x in corners.T], axis=1)


def turned(element: np.ndarray) -> float:
    """The angle of a rotation, 0 to pi."""
    r = element.reshape(3, 3)
    sine = np.linalg.norm([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]]) / 2
    return float(np.arctan2(sine, (np.trace(r) - 1) / 2))


def ball_angle(ratio: np.ndarray) -> np.ndarray:
    """The angle of exp 2 pi (rho/R, 0, 1), which has length 2 pi sqrt(1 + (rho/R)^2), brought to 0 to pi."""
    whole = 2 * np.pi * np.sqrt(1 + ratio**2)
    return np.abs((whole + np.pi) % (2 * np.pi) - np.pi)


class Turns(NamedTuple):
    """The rubber ball by itself, four times around an ellipse."""

    open: float
    """How far the point of contact is from its start after each turn, at most."""
    found: float
    """How far the rotation of the full run after one turn is from the phase of the ellipse."""
    again: float
    """How far that after four turns is from its fourth power."""
    angle: float
    """Of one turn."""


def turns_of(run: Compared) -> Turns:
    """The full run against the phase of the points k/TURN of an ellipse, which no run has made."""
    ball = run.problem.system
    assert isinstance(ball, RubberBall)
    q0, v0 = run.problem.start()
    h, step = float(run.t[1]), 2 * np.pi / TURN
    s = angles(TURN)
    ellipse = np.outer(np.cos(s), q0[-2:]) + np.outer(np.sin(s), v0[-2:] * h / np.sin(step))
    one = phase(run.reduced, ellipse).reshape(3, 3)
    turn = [q[:9].reshape(3, 3) for q in run.full[::TURN]]
    away = np.abs(run.full[::TURN, -2:] - q0[-2:])
    return Turns(
        float(np.max(away)),
        float(np.linalg.norm(turn[1] - turn[0] @ one)),
        float(np.linalg.norm(turn[4] - turn[0] @ np.linalg.matrix_power(one, 4))),
        turned(one),
    )


class Phases(NamedTuple):
    """All of them."""

    loops: tuple[Phase, ...]
    corner: tuple[np.ndarray, float]
    """The element of a rectangle of the disk, and how far it is from (-a (1 - cos b), a sin b)."""
    turns: Turns
    disk: np.ndarray
    """Displacement of the disk over 2 pi a, for headings SIZES."""
    cart: np.ndarray
    """Minus that of the cart."""
    ball: np.ndarray
    """Angle for RADII."""
    paths: tuple[np.ndarray, ...]
    """(K, 3) the cart along loops of CARTS."""


def make_phases(runs: Runs) -> Phases:
    """Convergence, sizes, paths."""
    disk, cart, ball = runs.disk, runs.of("two-wheeled robot").reduced, runs.of("rubber ball").reduced
    full = cart.full
    assert isinstance(full, TwoWheeledRobot)
    loops = tuple(converge(x) for x in (disk_loop(disk), cart_loop(cart, WHEELS), ball_loop(ball, CIRCLE)))
    a, b = RECTANGLE
    corner = phase(disk, rectangle(a, b, 10))
    off = float(np.linalg.norm(corner - [-a * (1 - np.cos(b)), a * np.sin(b)]))
    s = angles(256)

    def moved(loop: Loop) -> np.ndarray:
        return phase(loop.reduced, loop.path(s))

    way, heading = cart_amplitudes(full, 1.0)
    sideways = [moved(cart_loop(cart, x / heading))[1] / (way * x / heading) for x in SIZES]
    paths = [cart_loop(cart, x).path(s[::4]) for x in CARTS]
    return Phases(
        loops,
        (corner, off),
        turns_of(runs.turns),
        np.array([moved(disk_loop(disk, 1.0, x))[1] for x in SIZES]) / (2 * np.pi),
        -np.array(sideways) / (2 * np.pi),
        np.array([turned(moved(ball_loop(ball, x))) for x in RADII]),
        tuple(np.array([phase(cart, p[: k + 1]) for k in range(len(p))]) for p in paths),
    )
