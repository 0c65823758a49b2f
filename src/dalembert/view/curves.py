"""Curves against time that several figures share: deviations with their running means."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from dalembert.diagnostics import running_mean
from dalembert.simulation import Trajectory
from dalembert.view.names import ENERGY, Quantity, integrals, keeps_energy, method_name, symbol
from dalembert.view.style import FLOOR, INTERVALS, envelope, extremes, log_ticks, run_styles

# A residual at rounding jumps from row to row, so the largest one in each of this many intervals is drawn.
RESIDUALS = 80
# With fewer rows, a running mean over a twentieth of the run says nothing.
FEWEST = 40


def mean_window(t: Any, window: float | None) -> float | None:
    """The window of the running mean: the given one, else a twentieth of the run; None if the run is too short."""
    if window is not None or len(t) < FEWEST:
        return window
    # The mean is taken over samples, which says little if some of them stand for much more time than others. The last
    # row may follow sooner than the rest.
    gaps = np.diff(np.asarray(t, float))[:-1]
    return float(t[-1] - t[0]) / 20 if np.max(gaps) < 4 * np.min(gaps) else None


def draw_deviation(
    ax: Axes, t: Any, values: Any, style: dict[str, Any], log: bool, window: float | None
) -> None:
    """Draws a deviation from the start as a thin light curve, with its running mean on top."""
    t, values = np.asarray(t, float), np.asarray(values, float)
    deviation = values - values[0]
    if log:
        # The deviation at the start is zero, which has no logarithm.
        t, deviation = t[1:], np.abs(deviation[1:])
    light = {"lw": 1.3, **style}
    mean = None if window is None else running_mean(t, deviation, window)
    if mean is not None:
        light |= {"alpha": 0.4, "label": None, "lw": 0.8, "ls": "-"}
    shown = envelope(t, np.maximum(deviation, FLOOR)) if log else extremes(t, deviation)
    ax.plot(*shown, **light)
    if mean is not None:
        chosen = np.unique(np.linspace(0, len(mean[0]) - 1, INTERVALS).astype(int))
        times, middle = mean[0][chosen], mean[1][chosen]
        ax.plot(times, np.maximum(middle, FLOOR) if log else middle, **{"lw": 1.7, **style})
    if log:
        ax.set_yscale("log")
        log_ticks(ax)


def name_deviation(ax: Axes, quantity: Quantity, log: bool) -> None:
    """Sets the label and the limits of an axis of deviations."""
    words = textwrap.fill(symbol(quantity.name), 18)
    ax.set_ylabel(words if quantity.kept else f"{words}\n(may change)")
    lines = [np.asarray(line.get_ydata(), float) for line in ax.lines]
    if log or any(np.any(y) for y in lines):
        return
    # If the deviation is exactly zero, the axis is as wide as rounding.
    size = np.finfo(float).eps * (abs(float(quantity.values[0])) or 1.0)
    ax.set_ylim(-size, size)


def draw_residual(ax: Axes, t: Any, residual: Any, style: dict[str, Any]) -> None:
    """Draws a residual on a logarithmic axis, with zeros at the lower end of the axis."""
    ax.plot(*envelope(t, np.maximum(np.asarray(residual, float), FLOOR), RESIDUALS), **{"lw": 1.3, **style})
    ax.set_yscale("log")
    log_ticks(ax)
    ax.set(xlabel="t", ylabel="constraint residual")


@dataclass(frozen=True)
class Curve:
    """The line of one run: times and values, with colour and dash ("-", "--" or ":")."""

    label: str
    colour: str
    dash: str
    t: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Panel:
    """Curves of one quantity on a log axis."""

    title: str
    curves: list[Curve]


def panel(
    title: str, runs: Sequence[Trajectory], values: Sequence[Any], labels: Sequence[str] | None = None
) -> Panel:
    """The panel that shows how far a quantity is from its start in each of the runs."""
    return Panel(title, _curves(runs, [np.abs(x - x[0]) for x in values], labels))


def _curves(runs: Sequence[Trajectory], errors: Sequence[Any], labels: Sequence[str] | None) -> list[Curve]:
    names = [method_name(run) for run in runs]
    styles = run_styles(names, [float(run.h) for run in runs])
    found = []
    for run, error, style, label in zip(runs, errors, styles, labels or names, strict=True):
        t, y = envelope(np.asarray(run.t)[1:], np.maximum(np.asarray(error)[1:], FLOOR))
        found.append(Curve(label, to_hex(style["color"]), style["ls"], t, y))
    return found


def panels(
    runs: Sequence[Trajectory],
    labels: Sequence[str] | None = None,
    measured: Sequence[list[Quantity]] | None = None,
) -> list[Panel]:
    """Panels for runs of one system: the energy error, the deviation of each named integral, the constraint residual.

    Long runs are drawn as the largest value in each of a few hundred intervals. `measured` holds the integrals of
    each run if they are already known.
    """
    found = []
    for values in zip(*(measured or [integrals(run) for run in runs]), strict=True):
        name, start = values[0].name, values[0].values[0]
        if name == ENERGY:
            title = "energy error" if keeps_energy(runs[0]) else "change of energy"
            title = f"relative {title}" if start else title
            errors = [np.abs(x.values - x.values[0]) / (abs(start) or 1.0) for x in values]
            found.append(Panel(title, _curves(runs, errors, labels)))
        else:
            found.append(panel(f"deviation of {name}", runs, [x.values for x in values], labels))
    if runs[0].system is not None and runs[0].system.constrained:
        residuals = [run.constraint_residual() for run in runs]
        found.append(Panel("constraint residual", _curves(runs, residuals, labels)))
    return found
