"""The figures of the study of reduction: motions of shapes and what they do, and phases of loops."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import j1

from dalembert.studies.drawing import panels
from dalembert.studies.reduction_phases import (
    CARTS,
    RADII,
    SIZES,
    Phases,
    angles,
    ball_angle,
    cart_loop,
)
from dalembert.studies.reduction_runs import TURN, Compared, Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE, GROUP, OTHER = "#0072B2", "#D55E00", "#117733"
"""Of the reduced motion, of what is made from it, and of a second curve."""
SETS = ("#0072B2", "#D55E00", "#117733")
DOTS: dict[str, Any] = {
    "ls": "",
    "marker": "o",
    "ms": 3.4,
    "mfc": "white",
    "mec": "#333333",
    "mew": 0.7,
    "zorder": 3,
}
START: dict[str, Any] = {"ls": "", "marker": "s", "color": "#333333", "ms": 5, "zorder": 4}
EVERY = 6
"""Steps of the full run between dots."""


def draw_motions(runs: Runs) -> "Figure":
    """Four systems: shapes on the left, the full motion on the right."""
    from matplotlib.lines import Line2D

    figure, axes = panels(4, 2, 12.8, (0.85, 0.85), bottom=0.95)
    _draw_cart(axes[0], runs.of("two-wheeled robot"))
    _draw_robot(axes[1], runs.of("mobile robot"))
    _draw_board(axes[2], runs.of("snakeboard"))
    _draw_ball(axes[3], runs.turns)
    entries = (
        ({"color": SHAPE, "lw": 1.4}, "reduced run"),
        ({"color": GROUP, "lw": 1.4}, "reconstructed from it"),
        (DOTS, "full run"),
        (START, "start"),
    )
    handles = [Line2D([], [], label=words, **style) for style, words in entries]
    figure.legend(handles=handles, loc="lower center", ncol=4, columnspacing=1.8, handlelength=2.2)
    return figure


def draw_phases(runs: Runs, phases: Phases) -> "Figure":
    """Loops of the cart and what they do, and the laws of sizes."""
    figure, axes = panels(2, 2, 7.2, (0.85, 0.85), bottom=0.6)
    _draw_loops(axes[0], runs.of("two-wheeled robot"), phases)
    _draw_shift(axes[1, 0], phases)
    _draw_angle(axes[1, 1], phases)
    return figure


def _square(ax: Any, title: str, labels: tuple[str, str]) -> None:
    ax.set(xlabel=labels[0], ylabel=labels[1])
    ax.set_aspect("equal", adjustable="datalim")
    ax.locator_params(nbins=8)
    ax.set_title(title)


def _carts(ax: Any, q: np.ndarray, size: float, colour: str) -> None:
    """Triangles that point where the cart is heading."""
    corners = size * np.array([[1.3, 0.0], [-0.7, 0.6], [-0.7, -0.6]])
    for x, y, theta in q[:, :3]:
        c, s = np.cos(theta), np.sin(theta)
        at = corners @ np.array([[c, s], [-s, c]]) + [x, y]
        ax.fill(*at.T, facecolor="white", edgecolor=colour, lw=0.9, zorder=3)


def _draw_cart(axes: Any, run: Compared) -> None:
    left, right = axes
    left.plot(*run.shape.T, color=SHAPE, lw=1.4)
    left.plot(*run.full[::EVERY, 3:].T, **DOTS)
    left.plot(*run.shape[0], **START)
    _square(left, "(a) two-wheeled robot: wheel angles", (r"$\psi_1$ [rad]", r"$\psi_2$ [rad]"))
    right.plot(*run.back[:, :2].T, color=GROUP, lw=1.4)
    _carts(right, run.full[2 * EVERY :: 2 * EVERY], 0.07, "#333333")
    right.plot(*run.back[0, :2], **START)
    _square(right, "(b) its path, with headings of the full run", ("x [m]", "y [m]"))


def _draw_robot(axes: Any, run: Compared) -> None:
    left, right = axes
    left.plot(*run.shape.T, color=SHAPE, lw=1.4)
    left.plot(*run.full[::EVERY, 2:].T, **DOTS)
    left.plot(*run.shape[0], **START)
    left.set(xlabel=r"rolling angle $x_3$ [rad]", ylabel=r"heading $\xi$ [rad]")
    left.set_title("(c) mobile robot: rolling and heading")
    right.plot(*run.back[:, :2].T, color=GROUP, lw=1.4)
    right.plot(*run.full[::EVERY, :2].T, **DOTS)
    right.plot(*run.back[0, :2], **START)
    _square(right, "(d) its path", (r"$x_1$", r"$x_2$"))


def _draw_board(axes: Any, run: Compared) -> None:
    left, right = axes
    left.plot(*run.shape[:, :2].T, color=SHAPE, lw=1.4)
    for x, y, theta in run.shape[::10, :3]:
        dx, dy = 0.4 * np.cos(theta), 0.4 * np.sin(theta)
        left.plot([x - dx, x + dx], [y - dy, y + dy], color="#9a9a9a", lw=1.0, zorder=1)
    left.plot(*run.full[::EVERY, :2].T, **DOTS)
    left.plot(*run.shape[0, :2], **START)
    _square(left, "(e) snakeboard without its rotor", ("x [m]", "y [m]"))
    theta, psi = run.back[:, 2], run.back[:, 3]
    right.plot(run.t, psi, color=GROUP, lw=1.4, label=r"$\psi$, from the board")
    right.plot(run.t, psi + theta, color=OTHER, lw=1.4, label=r"$\psi + \theta$, in space")
    right.plot(run.t[::EVERY], run.full[::EVERY, 3], **DOTS)
    right.set(xlim=(0, run.t[-1]), xlabel="t", ylabel="angle of the rotor [rad]")
    right.legend(loc="upper left", handlelength=1.8)
    right.set_title("(f) the rotor")


def _draw_ball(axes: Any, run: Compared) -> None:
    left, right = axes
    contact, one = run.back[:, -2:], run.shape[: TURN + 1]
    left.plot(*one.T, color=SHAPE, lw=1.4)
    left.plot(*run.full[: TURN + 1 : 3, -2:].T, **DOTS)
    left.plot(*one[0], **START)
    _square(left, "(g) rubber ball: point of contact", (r"$x_1$", r"$x_2$"))
    # P takes directions of space to those of the ball: its last row is where the mark is, on top at first.
    mark = run.back[:, 6:9]
    at, above = contact + mark[:, :2], mark[:, 2] > 0
    below = ~above | ~np.append(above[1:], True) | ~np.append(True, above[:-1])  # up to the points above
    right.plot(*contact.T, color="#b5b5b5", lw=1.0, zorder=1)
    right.plot(*np.where(above[:, None], at, np.nan).T, color=GROUP, lw=1.4, label="above the centre")
    right.plot(
        *np.where(below[:, None], at, np.nan).T, color=GROUP, lw=1.1, ls=(0, (1.2, 1.4)), label="below"
    )
    places = ((7, -11), (-12, 3), (7, -3), (-12, 5), (7, -3))  # of the numbers, beside the curves
    for turn, ((x, y), place) in enumerate(zip(at[::TURN], places, strict=True)):
        right.plot(x, y, **(START if turn == 0 else DOTS | {"ms": 5.5}))
        right.annotate(str(turn), (x, y), xytext=place, textcoords="offset points", zorder=5)
    right.legend(loc="upper left", handlelength=1.8, fontsize=8.5)
    _square(right, "(h) a mark on it, over four turns", (r"$x_1$", r"$x_2$"))


def _draw_loops(axes: Any, run: Compared, phases: Phases) -> None:
    left, right = axes
    s = angles(128)
    for i, (size, path, colour) in enumerate(zip(CARTS, phases.paths, SETS, strict=True)):
        loop, path = cart_loop(run.reduced, size).path(s), path + np.array([0.9 * i, 0.0, 0.0])
        left.plot(*loop.T, color=colour, lw=1.4)
        left.plot(*loop[0], "s", color=colour, ms=5)
        left.annotate("", loop[36], loop[34], arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.2})
        right.plot(*path[:, :2].T, color=colour, lw=1.4)
        _carts(right, path[4:-1:4], 0.06, colour)
        right.plot(*path[0, :2], "s", color=colour, ms=5, zorder=4)
        right.plot(*path[-1, :2], "o", color=colour, ms=5.5, zorder=4)
    _square(left, "(a) two-wheeled robot: loops of the wheel angles", (r"$\psi_1$ [rad]", r"$\psi_2$ [rad]"))
    _square(right, "(b) what they do, from squares to dots", ("x [m]", "y [m]"))


def _draw_shift(ax: Any, phases: Phases) -> None:
    b = np.linspace(0, SIZES[-1], 300)
    ax.axhline(0, color="#b5b5b5", lw=0.7, zorder=0)
    ax.plot(b, j1(b), color="#333333", lw=1.1, label=r"$J_1(b)$")
    ax.plot(SIZES, phases.disk, "o", color=SHAPE, ms=6, mfc="white", label="disk")
    ax.plot(SIZES, phases.cart, "x", color=GROUP, ms=4.5, label="two-wheeled robot")
    ax.set(xlim=(0, SIZES[-1] + 0.1), xlabel="amplitude b of the heading [rad]", ylabel=r"shift/$(2\pi a)$")
    ax.legend(loc="upper right", handlelength=1.8)
    ax.set_title("(c) sideways in one loop")


def _draw_angle(ax: Any, phases: Phases) -> None:
    ratio = np.linspace(0, RADII[-1], 400)
    ax.plot(ratio, np.degrees(ball_angle(ratio)), color="#333333", lw=1.1, label="closed form")
    ax.plot(RADII, np.degrees(phases.ball), "o", color=OTHER, ms=5, mfc="white", label="256 steps")
    ax.set(xlim=(0, RADII[-1] + 0.05), ylim=(0, 190), yticks=range(0, 181, 45), xticks=np.arange(0, 2.1, 0.5))
    ax.set(xlabel=r"radius of the circle $\rho/R$", ylabel="angle of the ball [degrees]")
    ax.legend(loc="upper left", handlelength=1.8)
    ax.set_title("(d) rubber ball: turned by a circle")
