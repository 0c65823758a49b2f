"""The snakeboard of [ferraro2008], example 2: a gait, what it keeps, and the preprint's other system."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.discrete import Midpoint, momentum_map, momentum_residual, nonholonomic_momentum
from dalembert.kernels import over_rows
from dalembert.lab.studies.drawing import log_axis, panels
from dalembert.lab.studies.ferraro_fig2 import SOURCE
from dalembert.lab.studies.parasitic import warned
from dalembert.lab.studies.result import Cell, Picture, Result, Table, number, plain_row
from dalembert.lab.studies.shared_runs import Lab
from dalembert.methods import GNI, FrameGradient, parasitic_amplitude
from dalembert.model import as_arrays, lower
from dalembert.simulation import Trajectory, simulate
from dalembert.zoo import Snakeboard

STEP, STEPS, SHOWN = 0.1, 600, 400
BOARD, STEERING, ROTOR = 1.0, 0.6, 0.9
"""The rates of the board along X = (r cos(theta) cos(phi), r sin(theta) cos(phi), -sin(phi)), of phi and of psi."""
PHI = 0.4
CONVENTIONS = ("relative", "absolute")
COLOURS = {"relative": "#56B4E9", "absolute": "#117733", "frame": "#0072B2"}


class Kept(NamedTuple):
    """Quantities along a run.

    They are the relative errors of the energy (of the own velocity) and of the momenta of rotor and steering, the
    residual of the board's momentum equation, and the board's momentum, which is not constant.
    """

    energy: np.ndarray
    rotor: np.ndarray
    steering: np.ndarray
    equation: np.ndarray
    momentum: np.ndarray


class Board(NamedTuple):
    """The results in one convention.

    They are the run, what it kept, and the amplitude of its parasitic mode; the positions by the frame method, which
    has no such mode, and minus the divergence of the exact motion on D along them; and the warning of simulate().
    """

    q: np.ndarray
    kept: Kept
    amplitude: np.ndarray
    reference: np.ndarray
    contraction: np.ndarray
    warning: str


class Measured(NamedTuple):
    """The results in both conventions."""

    t: np.ndarray
    boards: dict[str, Board]
    forms: tuple[np.ndarray, ...]
    """The smallest singular values of the printed one-forms, and of ours, along the run with phi relative."""


def start(convention: str) -> tuple[np.ndarray, np.ndarray]:
    """The same state in either convention; the mean heading is about -pi/2, so that the board travels along x."""
    theta = -np.pi / 2 + BOARD / STEERING * np.cos(PHI)
    along, turning = BOARD * np.cos(PHI), -BOARD * np.sin(PHI)
    phi = PHI if convention == "relative" else PHI + theta
    v0 = [along * np.cos(theta), along * np.sin(theta), turning, ROTOR, STEERING]
    return np.array([0.0, 0.0, theta, 0.0, phi]), np.array(v0)


def _momenta(system: Snakeboard, q0: Any, q1: Any, h: Any) -> Any:
    """The momenta of rotor, steering and board in a step."""
    board = nonholonomic_momentum(Midpoint(), system, system.sections()["board"], q0, q1, h)
    return jnp.concatenate([momentum_map(Midpoint(), system, q0, q1, h)[3:], board[None]])


def _equation(system: Snakeboard, q0: Any, q1: Any, q2: Any, h: Any) -> Any:
    return momentum_residual(Midpoint(), system, system.sections()["board"], q0, q1, q2, h)


def printed_forms(q: np.ndarray, r: float) -> np.ndarray:
    """(K, 2, 3) the one-forms of the paper in (x', y', theta')."""
    theta, phi = q[:, 2], q[:, 4]
    one, two = theta + phi, theta - phi
    rows = [[np.sin(one), -np.cos(one), r * np.cos(phi)], [np.sin(two), -np.cos(two), -r * np.cos(phi)]]
    return np.moveaxis(np.array(rows), -1, 0)


def _contraction(system: Snakeboard, q: Any, v: Any) -> Any:
    """Minus the divergence on D of the exact motion.

    The speed s along the unit field e = X/|X| and the rates of rotor and steering are constant. The divergence is
    therefore s times that of e, which depends only on theta and phi.
    """

    def field(q):
        x = system.generators(q) @ system.sections()["board"](q)
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
        # The library warns of the parasitic mode, which is examined here.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = simulate(system, GNI(), *start(convention), h=STEP, steps=STEPS)
        frame = simulate(system, FrameGradient(), *start(convention), h=STEP, steps=STEPS)
        boards[convention] = Board(
            np.asarray(run.q),
            kept(run),
            np.asarray(parasitic_amplitude(run)),
            np.asarray(frame.q),
            over_rows(_contraction)(lower(as_arrays(system)), frame.q, frame.v),
            warned(caught),
        )
    q, ours = boards["relative"].q, over_rows(Snakeboard.constraints)
    forms = (printed_forms(q, 1.0), ours(as_arrays(Snakeboard()), q))
    return Measured(t, boards, tuple(np.linalg.svd(x, compute_uv=False)[:, -1] for x in forms))


def kept(run: Trajectory) -> Kept:
    """What the run kept: momenta from pairs of points, and the momentum equation from triples."""
    q, h = np.asarray(run.q), np.full(len(run.q), STEP)
    assert run.system is not None
    system = lower(as_arrays(run.system))
    momenta = over_rows(_momenta)(system, q[:-1], q[1:], h[1:])
    equation = over_rows(_equation)(system, q[:-2], q[1:-1], q[2:], h[2:])
    energy = np.asarray(run.energy(full=True))
    rotor, steering = (np.abs(x / x[0] - 1) for x in momenta.T[:2])
    return Kept(np.abs(energy / energy[0] - 1), rotor, steering, np.abs(equation), momenta[:, 2])


def crossings(data: Measured) -> np.ndarray:
    """The steps before which cos(phi) changes its sign."""
    return np.flatnonzero(np.diff(np.sign(np.cos(data.boards["relative"].q[:, 4]))) != 0)


def rates(board: Board) -> tuple[float, float]:
    """The growth of the parasitic mode between 1/1000 and 1/10, and the contraction of the exact motion meanwhile."""
    first = int(np.argmax(board.amplitude > 0.1))
    grows = np.flatnonzero(board.amplitude[:first] > 1e-3)
    growth = float(np.polyfit(STEP * grows, np.log(board.amplitude[grows]), 1)[0])
    return growth, float(np.mean(board.contraction[grows]))


def _most(values: np.ndarray) -> str:
    return number(float(np.max(values)))


def present(lab: Lab, data: Measured) -> Result:
    """The study with its six panels and its table."""
    figure, axes = panels(3, 2, 8.8, (0.95, 0.8), 0.5)
    draw = (_draw_path, _draw_forms, _draw_momentum, _draw_kept, _draw_circle, _draw_modes)
    for ax, drawing in zip(axes.flat, draw, strict=True):
        drawing(ax, data)
    relative, absolute = data.boards["relative"], data.boards["absolute"]
    kept, (printed, ours) = relative.kept, (float(np.min(x)) for x in data.forms)
    travelled = float(np.linalg.norm(relative.q[-1, :2]))
    off = float(np.max(np.linalg.norm(relative.q - relative.reference, axis=1)))
    apart = float(np.max(np.linalg.norm((absolute.q - absolute.reference)[:, :2], axis=1)))
    (grows, contracts), end = rates(absolute), float(absolute.contraction[-1])
    said = (
        "The paper derives the GNI for the snakeboard, with the projector and the momentum equation "
        "written out, without a run. Its metric is constant in these coordinates, so that the energy "
        "should be kept exactly; the momenta of rotor and steering are those of horizontal symmetries "
        "and should be kept too; that of the board should obey the discrete momentum equation. The "
        "final version measures the wheels' angle phi from the board, the preprint from a fixed "
        "direction.",
    )
    found = (
        "This is a free motion, without torques: rotor and wheels turn at constant rates, and the "
        "rotor, whose angle is absolute in the printed Lagrangian, does not act on the board. The "
        "wheels steer left and right while the board goes to and fro, and so it travels: "
        f"{number(travelled)} in {STEPS * STEP:g} units of time. The wheels pass phi = pi/2 (and its odd "
        f"multiples) {len(crossings(data))} times. There the printed one-forms become dependent "
        f"(smallest singular value {number(printed)} at a step of this run), although the distribution "
        f"is regular; ours stay at {number(ours, 2)} or more.",
        f"Kept: energy to {_most(kept.energy)}, momentum of rotor and steering to "
        f"{_most(kept.rotor)} and {_most(kept.steering)} (all relative). "
        f"The board's own momentum goes from {number(float(np.min(kept.momentum)))} to "
        f"{_most(kept.momentum)}, and obeys its equation to "
        f"{_most(kept.equation)}. The parasitic mode stays below "
        f"{_most(relative.amplitude)}, and the run within {number(off)} of one by the "
        "frame method.",
        "With phi absolute and the same Lagrangian the distribution is the same and the motion another, "
        "because the wheels would need a term theta' phi' in the energy: not a second description but a "
        "second system. From the same state the board follows its wheels round in a circle. That motion "
        f"contracts volume, at the rate {end:.3f} on the circle, and the rates of the two parasitic "
        "modes add up to it: the GNI is unstable. While the mode grows from 1/1000 to 1/10 the "
        f"contraction is {contracts:.3f} on average, the growth of the larger mode {grows:.3f}. The "
        f"run strays by up to {number(apart)}. The library warns of this; the energy, kept to "
        f"{_most(absolute.kept.energy)}, does not.",
    )
    picture = Picture(
        "snakeboard",
        figure,
        "Snakeboard by the GNI, h = 0.1. (a) Path of the centre, with the board every 2 units of time; "
        "dots: cos(phi) = 0. (b) How far the one-forms are from dependent. (c) The momentum of the "
        "board. (d) Errors of what is kept. (e) The same start with phi absolute: the exact motion is a "
        "circle in the end, the GNI leaves it. (f) The parasitic mode in both, with the slope that the "
        "contraction of volume asks for.",
        "Six panels: a winding path; the printed one-forms touching zero, ours not; an oscillating "
        "momentum; errors at rounding; with phi absolute a circle that the GNI leaves; the parasitic "
        "mode level for one system and growing for the other.",
    )
    title, tables = "Ferraro et al., example 2: a gait of the snakeboard", (_table(data),)
    return Result("snakeboard", title, said, found, (picture,), tables, data, ours=True, source=SOURCE)


def _draw_path(ax, data: Measured) -> None:
    q = data.boards["relative"].q[: SHOWN + 1]
    ax.plot(q[:, 0], q[:, 1], color=COLOURS["relative"], lw=1.4)
    for x, y, theta in q[::20, :3]:
        dx, dy = 0.7 * np.cos(theta), 0.7 * np.sin(theta)
        ax.plot([x - dx, x + dx], [y - dy, y + dy], color="#9a9a9a", lw=1.2, zorder=1)
    ax.plot(*q[[k for k in crossings(data) if k < SHOWN], :2].T, "o", color="#333333", ms=4.5, zorder=4)
    ax.set(xlabel="x", ylabel="y")
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(f"(a) the gait, t = 0 to {SHOWN * STEP:g}")


def _draw_forms(ax, data: Measured) -> None:
    ax.plot(data.t, data.forms[0], color="#333333", lw=1.4, label="printed")
    ax.plot(data.t, data.forms[1], color=COLOURS["relative"], lw=1.4, label="ours")
    ax.set(xlim=(0, data.t[-1]), ylim=(0, 1.75), xlabel="t", ylabel="smallest singular value")
    ax.legend(loc="upper right", ncol=2)
    ax.set_title("(b) the one-forms")


def _draw_momentum(ax, data: Measured) -> None:
    ax.plot(data.t[1:], data.boards["relative"].kept.momentum, color=COLOURS["relative"], lw=1.4)
    ax.set(xlim=(0, data.t[-1]), xlabel="t", ylabel=r"$J$ of the board")
    ax.set_title("(c) not constant: the momentum of the board")


def _draw_kept(ax, data: Measured) -> None:
    kept = data.boards["relative"].kept
    entries = ((kept.energy, "energy", "#117733"), (kept.rotor, "rotor", "#AA4499"))
    entries += ((kept.steering, "steering", "#999933"), (kept.equation, "momentum equation", "#333333"))
    for values, words, colour in entries:
        largest = np.maximum.accumulate(values).clip(1e-18)
        ax.plot(data.t[-len(values) :], largest, color=colour, lw=1.5, label=words)
    log_axis(ax, 1e-17, 1e-8, 2)
    ax.set(xlim=(0, data.t[-1]), xlabel="t", ylabel="largest error so far")
    ax.legend(loc="upper left", ncol=2)
    ax.set_title("(d) kept")


def _draw_circle(ax, data: Measured) -> None:
    board = data.boards["absolute"]
    ax.plot(*board.q[:, :2].T, color=COLOURS["absolute"], lw=1.0, label="GNI")
    ax.plot(*board.reference[:, :2].T, color=COLOURS["frame"], lw=1.4, ls="--", label="frame")
    ax.plot(0, 0, "s", color="#333333", ms=5, zorder=4)
    ax.set(xlabel="x", ylabel="y")
    ax.set_aspect("equal", adjustable="datalim")
    ax.legend(loc="upper left")
    ax.set_title(r"(e) $\varphi$ absolute: another system")


def _draw_modes(ax, data: Measured) -> None:
    for name, board in data.boards.items():
        ax.plot(data.t[1:], board.amplitude[1:], color=COLOURS[name], lw=1.4, label=rf"$\varphi$ {name}")
    board = data.boards["absolute"]
    log = np.cumsum(board.contraction) * STEP
    slope = 1e-2 * np.exp(log - log[np.argmax(board.amplitude > 1e-2)])
    drawn = (slope > 3e-4) & (slope < 20)
    ax.plot(data.t[drawn], slope[drawn], color="#333333", lw=1.1, ls="--", label="contraction of volume")
    log_axis(ax, 1e-6, 1e4, 2)
    ax.set(xlim=(0, data.t[-1]), xlabel="t", ylabel="parasitic amplitude")
    ax.legend(loc="upper right")
    ax.set_title("(f) the parasitic mode")


def _table(data: Measured) -> Table:
    boards = [data.boards[x] for x in CONVENTIONS]
    kept = [board.kept for board in boards]
    entries = (
        ("energy, of the own velocity", [x.energy for x in kept], 1e-12),
        ("momentum of the rotor", [x.rotor for x in kept], 1e-12),
        ("momentum of the steering", [x.steering for x in kept], 1e-12),
        ("momentum equation of the board", [x.equation for x in kept], 1e-12),
        ("parasitic amplitude", [board.amplitude for board in boards], 1e-2),
    )
    rows = tuple(
        plain_row(words, [Cell(_most(x), "good" if np.max(x) < bound else "drift") for x in values])
        for words, values, bound in entries
    )
    caption = (
        f"Largest errors over {STEPS} steps of h = {STEP:g}, relative except for the equation, and the "
        "largest parasitic amplitude. Only the last row distinguishes the systems."
    )
    return Table(caption, ("", *(f"phi {x}" for x in CONVENTIONS)), rows)
