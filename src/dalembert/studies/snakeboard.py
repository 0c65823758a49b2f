"""The snakeboard of [ferraro2008], example 2: a gait, what it keeps, and the preprint's other system."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.diagnostics.rows import over_rows
from dalembert.discrete import Midpoint, momentum_map, momentum_residual, nonholonomic_momentum
from dalembert.methods import GNI, FrameGradient, parasitic_amplitude
from dalembert.model import System, as_arrays
from dalembert.simulate import Trajectory, simulate
from dalembert.studies.drawing import log_axis, panels
from dalembert.studies.ferraro_fig2 import SOURCE, STYLES
from dalembert.studies.lab import Lab
from dalembert.studies.result import Cell, Picture, Result, Table, number, plain_row
from dalembert.zoo import Snakeboard

STEP, STEPS = 0.1, 600
SHOWN = 400
"""Steps of the path in the figure."""
BOARD, STEERING, ROTOR = 1.0, 0.6, 0.9
"""Rates: of the board along X = (r cos(theta) cos(phi), r sin(theta) cos(phi), -sin(phi)), of phi, of psi."""
PHI = 0.4
CONVENTIONS = ("relative", "absolute")
COLOURS = {"relative": "#D55E00", "absolute": "#0072B2", "exact": "#333333", "frame": "#8a8a8a"}


class Kept(NamedTuple):
    """What should be constant or zero, along a run; errors but for `momentum`."""

    energy: np.ndarray
    """Of the own velocity, relative."""
    rotor: np.ndarray
    steering: np.ndarray
    equation: np.ndarray
    """The residual of the discrete momentum equation of the board."""
    momentum: np.ndarray
    """The board's nonholonomic momentum, which is not constant."""


class Board(NamedTuple):
    """A convention: the run, and what it kept."""

    q: np.ndarray
    kept: Kept
    amplitude: np.ndarray
    """Of the parasitic mode."""
    reference: np.ndarray
    """Positions by the frame method, which has no such mode."""
    contraction: np.ndarray
    """Minus the divergence of the exact motion on D, along that run."""
    warning: str


class Measured(NamedTuple):
    """Both conventions."""

    t: np.ndarray
    boards: dict[str, Board]
    forms: tuple[np.ndarray, np.ndarray]
    """Smallest singular values along the run with phi relative: of the printed one-forms, and of ours."""


def start(convention: str) -> tuple[np.ndarray, np.ndarray]:
    """The same place, heading, wheels and velocities in either convention; the mean heading is -pi/2, so that the
    board travels along x."""
    theta = -np.pi / 2 + BOARD / STEERING * np.cos(PHI)
    along, turning = BOARD * np.cos(PHI), -BOARD * np.sin(PHI)
    phi = PHI if convention == "relative" else PHI + theta
    v0 = [along * np.cos(theta), along * np.sin(theta), turning, ROTOR, STEERING]
    return np.array([0.0, 0.0, theta, 0.0, phi]), np.array(v0)


def _momenta(system: Snakeboard, q0: Any, q1: Any, h: Any) -> Any:
    """Those of rotor, steering and board of a step."""
    board = nonholonomic_momentum(Midpoint(), system, system.sections()["board"], q0, q1, h)
    return jnp.concatenate([momentum_map(Midpoint(), system, q0, q1, h)[3:], board[None]])


def _equation(system: Snakeboard, q0: Any, q1: Any, q2: Any, h: Any) -> Any:
    return momentum_residual(Midpoint(), system, system.sections()["board"], q0, q1, q2, h)


def _printed(system: Snakeboard, q: Any) -> Any:
    """The smallest singular value of the printed one-forms."""
    theta, phi, r = q[2], q[4], system.radius
    rows = [
        [jnp.sin(theta + phi), -jnp.cos(theta + phi), r * jnp.cos(phi)],
        [jnp.sin(theta - phi), -jnp.cos(theta - phi), -r * jnp.cos(phi)],
    ]
    return jnp.linalg.svd(jnp.array(rows), compute_uv=False)[-1]


def _ours(system: System, q: Any) -> Any:
    return jnp.linalg.svd(system.constraints(q), compute_uv=False)[-1]


def _contraction(system: Snakeboard, q: Any, v: Any) -> Any:
    """Minus the divergence on D of the exact motion.

    The speed s along the unit field e = X/|X| and the rates of rotor and steering are constant, so that what is left of
    the divergence is s times that of e, and e depends on theta and phi alone.
    """

    def field(q):
        forward, turning = system._along(q)
        x = jnp.stack([forward * jnp.cos(q[2]), forward * jnp.sin(q[2]), turning, 0.0, 0.0])
        return x / jnp.sqrt(x @ system.metric(q) @ x)

    s = field(q) @ system.metric(q) @ v
    return -s * jax.grad(lambda theta: field(q.at[2].set(theta))[2])(q[2])


def measure(lab: Lab) -> Measured:
    """The gait in both conventions by the GNI, and by the frame method for comparison."""
    t = STEP * np.arange(STEPS + 1)
    boards = {}
    for convention in CONVENTIONS:
        lab.step(f"snakeboard, phi {convention}")
        system = Snakeboard(convention=convention)
        # The library warns of the parasitic mode, which is looked at here.
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run = simulate(system, GNI(), *start(convention), h=STEP, steps=STEPS)
        frame = simulate(system, FrameGradient(), *start(convention), h=STEP, steps=STEPS)
        boards[convention] = Board(
            np.asarray(run.q),
            kept(run),
            np.asarray(parasitic_amplitude(run)),
            np.asarray(frame.q),
            over_rows(_contraction)(as_arrays(system), frame.q, frame.v),
            str(told[0].message) if told else "",
        )
    system = as_arrays(Snakeboard())
    q = boards["relative"].q
    return Measured(t, boards, (over_rows(_printed)(system, q), over_rows(_ours)(system, q)))


def kept(run: Trajectory) -> Kept:
    """Momenta from pairs of points, and the momentum equation from triples."""
    q, h = np.asarray(run.q), np.full(len(run.q), STEP)
    system = as_arrays(run.system)
    momenta = over_rows(_momenta)(system, q[:-1], q[1:], h[1:])
    equation = over_rows(_equation)(system, q[:-2], q[1:-1], q[2:], h[2:])
    energy = np.asarray(run.energy(full=True))
    rotor, steering = (np.abs(x / x[0] - 1) for x in momenta.T[:2])
    return Kept(np.abs(energy / energy[0] - 1), rotor, steering, np.abs(equation), momenta[:, 2])


def crossings(data: Measured) -> np.ndarray:
    """Steps before which cos(phi) changes its sign."""
    return np.flatnonzero(np.diff(np.sign(np.cos(data.boards["relative"].q[:, 4]))) != 0)


def rate(board: Board) -> float:
    """Growth of the parasitic mode while it is between 1/1000 and 1/10."""
    first = int(np.argmax(board.amplitude > 0.1))
    grows = np.flatnonzero(board.amplitude[:first] > 1e-3)
    return float(np.polyfit(STEP * grows, np.log(board.amplitude[grows]), 1)[0])
