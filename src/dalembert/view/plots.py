"""Figures of one trajectory, and of several methods side by side."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from dalembert.simulate import Trajectory

# One colour a method, throughout; chosen to stay apart for colour-blind readers.
COLOURS = {
    "frame": "#0072B2",
    "dd": "#009E73",
    "leapfrog": "#D55E00",
    "dla": "#CC79A7",
    "dla01": "#E69F00",
    "reference": "#333333",
}
# Below this a relative error is rounding; log axes end here.
FLOOR = 1e-17
# A curve with more points than this is drawn as the largest value in each of so many intervals.
INTERVALS = 600


def _axes(ax: Axes | None, size: tuple[float, float] = (7.0, 3.6)) -> Axes:
    if ax is None:
        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def method_style(spelling: str) -> dict[str, Any]:
    """Colour by family; dashed for compositions, dotted for variants that are not the usual one."""
    body, composed, _ = spelling.partition("@")
    family, _, option = body.partition(":")
    usual = option in ("", "0.5", "half-kick", "momentum")
    return {
        "color": COLOURS.get(family),
        "ls": "--" if composed else "-" if usual else ":",
        "label": spelling,
    }


def _label(trajectory: Trajectory) -> str:
    if trajectory.method is not None:
        return trajectory.method.spelling
    return (trajectory.stored or {}).get("method", "stored run")


def _system(trajectory: Trajectory) -> str:
    if trajectory.system is not None:
        return type(trajectory.system).__name__
    return (trajectory.stored or {}).get("system", "stored run").rpartition(":")[2]


def _coordinates(trajectory: Trajectory) -> tuple[str, ...]:
    if trajectory.system is not None:
        return trajectory.system.coordinates
    return tuple((trajectory.stored or {})["coordinates"])


def _envelope(t: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The curve itself where it is short; else its largest value in each of many intervals."""
    if len(t) <= 2 * INTERVALS:
        return t, y
    starts = np.linspace(0, len(t), INTERVALS, endpoint=False).astype(int)
    return t[starts], np.maximum.reduceat(y, starts)


class Plots:
    """The pictures of one trajectory; each method draws into `ax`, or a new figure, and returns the axes."""

    def __init__(self, trajectory: Trajectory):
        self.trajectory = trajectory

    def energy(self, ax: Axes | None = None, full: bool = False, **style: Any) -> Axes:
        """The relative energy error against time, on a log axis."""
        sol = self.trajectory
        ax = _axes(ax)
        energy = np.asarray(sol.energy(full=full))
        scale = abs(energy[0]) or 1.0
        error = np.abs(energy - energy[0]) / scale
        style = {"lw": 1.3, **method_style(_label(sol)), **style}
        ax.semilogy(*_envelope(np.asarray(sol.t[1:]), np.maximum(error[1:], FLOOR)), **style)
        ax.set(xlabel="t", ylabel="|E - E(0)| / |E(0)|" if energy[0] else "|E - E(0)|")
        ax.set_title(f"energy error, {_system(sol)}, h = {float(sol.h):.4g}", loc="left")
        return ax

    def path(self, x: str | None = None, y: str | None = None, ax: Axes | None = None, **style: Any) -> Axes:
        """One coordinate against another, by name; the first two by default."""
        sol = self.trajectory
        names = _coordinates(sol)
        if len(names) < 2:
            raise ValueError(f"path needs two coordinates, {_system(sol)} has one; plot sol.t against sol.q")
        x, y = x or names[0], y or names[1]
        for name in (x, y):
            if name not in names:
                raise ValueError(f"no coordinate {name!r}; choose from: {', '.join(names)}")
        ax = _axes(ax, (4.8, 4.4))
        xs, ys = sol.q[:, names.index(x)], sol.q[:, names.index(y)]
        # Long paths are drawn thin, so that their texture stays visible.
        width = float(np.clip(1.2 * (400 / len(xs)) ** 0.5, 0.15, 1.2))
        style = {"lw": width, **method_style(_label(sol)), **style}
        ax.plot(xs, ys, **style)
        ax.plot(xs[:1], ys[:1], "o", ms=6, color="black", zorder=3)
        ax.set(xlabel=x, ylabel=y)
        ax.set_title(f"{_system(sol)}, t = {sol.t[0]:g} to {sol.t[-1]:g} (start marked)", loc="left")
        ax.set_aspect("equal", adjustable="datalim")
        return ax


def compare_energies(runs: Mapping[str, Trajectory], ax: Axes | None = None, full: bool = True) -> Axes:
    """The energy errors of several runs in one picture, labelled by their keys."""
    ax = _axes(ax)
    for name, run in runs.items():
        run.plot.energy(ax=ax, full=full, label=name)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    return ax
