"""The style of the figures of the studies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dalembert.lab.studies.shared_runs import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.6
"""The width in inches; the report shows a figure at this width or less."""
STYLE = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "svg.hashsalt": "dalembert",
    "svg.fonttype": "path",
    "mathtext.fontset": "dejavusans",
}


def drawing_style() -> Any:
    """The context in which figures are made and saved."""
    from matplotlib import rc_context

    return rc_context(STYLE)  # pyright: ignore[reportArgumentType]


def panels(
    rows: int,
    columns: int,
    height: float,
    gaps: tuple[float, float] = (0.3, 0.42),
    bottom: float = 0.85,
    **options: Any,
) -> "tuple[Figure, np.ndarray]":
    """A figure with a grid of axes, made without any window."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    # Margins in inches; the lower one holds the legend.
    width, tall = (WIDTH - 1.0) / columns, (height - 0.3 - bottom) / rows
    figure.subplots_adjust(
        left=0.82 / WIDTH,
        right=1 - 0.18 / WIDTH,
        top=1 - 0.3 / height,
        bottom=bottom / height,
        wspace=gaps[0] / (width - gaps[0]),
        hspace=gaps[1] / (tall - gaps[1]),
    )
    return figure, axes


def style_of(spelling: str) -> dict[str, Any]:
    """The colour, line and name of a method, which are the same in every figure."""
    from dalembert.view.plots import method_style

    style = method_style(spelling) | {"label": NAMES.get(spelling, spelling), "lw": 1.4}
    if style["ls"] == ":":
        style["ls"] = (0, (1.2, 1.2))
    if spelling == "dla:0.5":  # wider, so that it shows under the curve of DLA 0,1 where they agree
        style["lw"] = 2.6
    return style


def log_axis(ax: "Axes", low: float, high: float, every: int = 2) -> None:
    """Makes the axis logarithmic, with one tick per `every` decades."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ax.set_yscale("log")
    ax.set_ylim(low, high)
    first, last = int(np.ceil(np.log10(low))), int(np.floor(np.log10(high)))
    exponents = [k for k in range(first, last + 1) if k % every == 0]
    ax.yaxis.set_major_locator(FixedLocator([10.0**k for k in exponents]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.grid(axis="y", lw=0.4, color="#d9d9d9")
    ax.set_axisbelow(True)


def title(ax: "Axes", text: str) -> None:
    """Sets a title in which eps becomes the Greek letter."""
    ax.set_title(text.replace("eps", r"$\varepsilon$"))


def legend_below(figure: "Figure", ax: "Axes", columns: int = 7, order: Sequence[str] | None = None) -> None:
    """Draws one legend for the whole figure, outside all axes."""
    handles, labels = ax.get_legend_handles_labels()
    if order is not None:
        handles = [handles[labels.index(x)] for x in order]
        labels = list(order)
    figure.legend(
        handles,
        labels,
        loc="lower center",
        ncol=columns,
        columnspacing=1.4,
        handlelength=2.2,
        frameon=False,
    )
