"""The style of figures: one colour per method, no boxes, curves of long runs, deviations with running means."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from dalembert.diagnostics import running_mean
from dalembert.simulation import Trajectory
from dalembert.view.names import ENERGY, Quantity, integrals, keeps_energy, method_name, symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# One colour per method in all figures, chosen so that colour-blind readers can tell them apart.
COLOURS = {
    "frame": "#0072B2",
    "dd": "#009E73",
    "leapfrog": "#D55E00",
    "dla": "#CC79A7",
    "dla01": "#E69F00",
    "gni": "#56B4E9",
    "lie-gni": "#56B4E9",
    "dla-variational": "#882255",
    "edla": "#117733",
    "reference": "#333333",
}
# Colours for the user's own methods, in the order in which they appear.
OTHERS = ("#AA4499", "#999933", "#332288", "#661100", "#888888")
# A relative error below this is rounding, so log axes end here.
FLOOR = 1e-17
# A curve with more points than this is drawn as the largest value in each of this many intervals.
INTERVALS = 600
# The fraction of white in the colour of the coarsest of several steps.
PALEST = 0.6


def axes(ax: "Axes | None" = None, size: tuple[float, float] = (7.0, 3.6)) -> "Axes":
    """The given axes, or new ones, without a box around them."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    short_numbers(ax)
    return ax


def stacked(
    count: int, columns: int = 1, height: float = 1.7, width: float = 7.0
) -> "tuple[Figure, list[Axes]]":
    """A new figure with `count` axes, in rows of `columns`, over one time axis."""
    import matplotlib.pyplot as plt

    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(width, 0.7 + height * rows), layout="constrained", squeeze=False, sharex=True
    )
    made = [axes(ax) for ax in grid.ravel()]
    for ax in made[count:]:
        ax.remove()
    for ax in made[max(count - columns, 0) : count]:
        ax.xaxis.set_tick_params(labelbottom=True)
        ax.set_xlabel("t")
    figure.align_ylabels(made[:count])
    return figure, made[:count]


def title(ax: "Axes", text: str) -> None:
    """Sets a title at the left, in the size of the labels."""
    ax.set_title(text, loc="left", fontsize="medium")


def method_style(spelling: str) -> dict[str, Any]:
    """The line style of a method: a colour per family, dashed for compositions, dotted for variants."""
    body, composed, _ = spelling.partition("@")
    family, _, option = body.partition(":")
    usual = option in ("", "0.5", "half-kick", "momentum")
    return {
        "color": COLOURS.get(family),
        "ls": "--" if composed else "-" if usual else ":",
        "label": spelling,
    }


def short_numbers(ax: "Axes", most: int = 5) -> None:
    """Writes numbers on linear axes with a common power of ten if they would have more than `most` digits."""
    from matplotlib.ticker import ScalarFormatter

    for axis in (ax.xaxis, ax.yaxis):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ScalarFormatter):
            formatter.set_powerlimits((-3, most))


def paler(colour: Any, part: float) -> tuple[float, float, float]:
    """The colour mixed with the fraction `part` of white."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part + (1 - part) * x for x in to_rgb(colour))
    return red, green, blue


def run_styles(spellings: Sequence[str], steps: Sequence[float]) -> list[dict[str, Any]]:
    """The styles of several runs: one colour per method, paler for its larger steps."""
    families = list(dict.fromkeys(s.partition("@")[0].partition(":")[0] for s in spellings))
    unknown = [f for f in families if f not in COLOURS]
    found = []
    for spelling, h in zip(spellings, steps, strict=True):
        style = method_style(spelling)
        family = spelling.partition("@")[0].partition(":")[0]
        colour = style["color"] or OTHERS[unknown.index(family) % len(OTHERS)]
        sizes = sorted({float(b) for a, b in zip(spellings, steps, strict=True) if a == spelling})
        part = PALEST * sizes.index(float(h)) / max(len(sizes) - 1, 1)
        # The reference lies under the curves that are compared with it.
        depth = {"zorder": 1.5} if family == "reference" else {}
        found.append({**style, **depth, "color": paler(colour, part) if part else colour})
    return found


def envelope(t: Any, y: Any, intervals: int = INTERVALS) -> tuple[np.ndarray, np.ndarray]:
    """The curve itself if it is short; otherwise its largest value in each of many intervals."""
    t, y = np.asarray(t), np.asarray(y)
    if len(t) <= 2 * intervals:
        return t, y
    starts = np.linspace(0, len(t), intervals, endpoint=False).astype(int)
    return t[starts], np.maximum.reduceat(y, starts)


def extremes(t: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The curve itself if it is short; otherwise its least and largest value in each of many intervals."""
    t, y = np.asarray(t), np.asarray(y)
    if len(t) <= 4 * INTERVALS:
        return t, y
    starts = np.linspace(0, len(t), INTERVALS, endpoint=False).astype(int)
    ends = np.append(starts[1:], len(t)) - 1
    low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    return np.stack([t[starts], t[ends]], axis=1).ravel(), np.stack([low, high], axis=1).ravel()


def width_of(rows: int, widest: float = 1.2, least: float = 0.15) -> float:
    """The width of a line through `rows` points. Long paths are thin, so that their texture stays visible."""
    return float(np.clip(widest * (400 / max(rows, 1)) ** 0.5, least, widest))


def log_ticks(ax: "Axes") -> None:
    """Sets the ticks of a logarithmic axis at whole powers of ten, two to seven of them, with none between."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = ax.dataLim.minposy, ax.dataLim.y1
    if ax.get_autoscaley_on() and 0 < low <= high < np.inf and high < 100 * low:
        ends = np.floor(np.log10(low)), np.ceil(np.log10(high))
        # auto stays on, because the next curve may need more room.
        ax.set_ylim(10.0 ** ends[0] / 1.3, 1.3 * 10.0 ** max(ends[1], ends[0] + 1), auto=True)
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.grid(axis="y", lw=0.4, color="0.87")
    ax.set_axisbelow(True)


def log_numbers(ax: "Axes") -> None:
    """Sets the ticks of a logarithmic x axis at powers of ten, or at 1, 2 and 5 as plain numbers if it spans few."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    ax.xaxis.set_minor_formatter(NullFormatter())
    low, high = ax.dataLim.minposx, ax.dataLim.x1
    if not 0 < low <= high < min(30 * low, np.inf):
        return
    powers = 10.0 ** np.arange(np.floor(np.log10(low)) - 1, np.ceil(np.log10(high)) + 2)
    ticks = np.outer(powers, [1, 2, 5]).ravel()
    first, last = ticks[ticks <= low * (1 + 1e-9)][-1], ticks[ticks >= high * (1 - 1e-9)][0]
    ax.xaxis.set_major_locator(FixedLocator([*ticks[(ticks >= first) & (ticks <= last)]]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.set_xlim(first / 1.1, last * 1.1)


class Panels(dict[str, "Axes"]):
    """The axes of one figure, by name."""

    @property
    def figure(self) -> "Figure":
        """The figure that contains the axes."""
        return next(iter(self.values())).get_figure(root=True)  # pyright: ignore[reportReturnType]


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
