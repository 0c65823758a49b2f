"""Figures 6, 7 and 8: one integral of the pendulum CVT in four motions."""

from typing import NamedTuple

from dalembert.lab.studies.drawing import legend_below, log_axis, panels, style_of, title
from dalembert.lab.studies.result import Cell, Picture, Result, Table, drifts, judged, verdict_cell
from dalembert.lab.studies.shared_runs import METHODS, NAMES, PANELS, PAPER, Kept, Lab, Panel

Runs = dict[str, dict[Panel, Kept]]


class Integral(NamedTuple):
    """The integral that one of the three figures shows."""

    name: str
    key: str
    words: str
    symbol: str
    low: float
    high: float
    every: int


def paper_drifts(integral: str, panel: Panel, spelling: str) -> bool | None:
    """Whether the paper reports drift in this panel (section 3.4, captions); None for methods it does not have."""
    if spelling not in PAPER:
        return None
    if spelling == "dd":
        return True
    if integral == "h" or spelling == "leapfrog:momentum":
        return False
    return spelling == "dla:0.4" or (panel.start == "rotating" and panel.eps != 0)


def compared(key: str, runs: Runs) -> str:
    """The verdict on what the paper says about each of its methods in each motion, and where that does not hold."""
    claims = {}
    for spelling in PAPER:
        wrong = [
            panel.title
            for panel in PANELS
            if drifts(runs[spelling][panel].drift) != paper_drifts(key, panel, spelling)
        ]
        expected = "drifts or not as printed"
        claims[f"{NAMES[spelling]} {expected}" + f" ({', '.join(wrong)})" * bool(wrong)] = not wrong
    return judged(claims)


def where(runs: Runs, spelling: str) -> str:
    """The motions in which a method drifts."""
    found = [panel.title for panel in PANELS if drifts(runs[spelling][panel].drift)]
    return " and ".join(filter(None, (", ".join(found[:-1]), found[-1]))) if found else "no motion"


def measure(lab: Lab, key: str) -> Runs:
    """The integral in every motion by every method."""
    runs: Runs = {spelling: {} for spelling in METHODS}
    for spelling in METHODS:
        for panel, kept in lab.cvt(spelling).items():
            runs[spelling][panel] = kept[key]
    return runs


def present(
    lab: Lab, what: Integral, runs: Runs, said: tuple[str, ...], found: tuple[str, ...], see: str
) -> Result:
    """The figure and the table of verdicts."""
    figure, axes = panels(2, 2, 6.0, sharex=True, sharey=True)
    for ax, panel in zip(axes.flat, PANELS, strict=True):
        for spelling in METHODS:
            kept = runs[spelling][panel]
            ax.plot(kept.t, kept.mean.clip(what.low / 10), **style_of(spelling))
        log_axis(ax, what.low, what.high, what.every)
        ax.set_xlim(0, 3000)
        title(ax, panel.title)
    for ax in axes[1]:
        ax.set_xlabel("t")
    for ax in axes[:, 0]:
        ax.set_ylabel(what.symbol)
    legend_below(figure, axes[0, 0])
    alt = (
        f"Four panels, error of the {what.words} against time on a log axis, one curve per method. "
        + " ".join(
            f"{p.title}: " + ", ".join(f"{NAMES[s]} {runs[s][p].drift.verdict}" for s in METHODS) + "."
            for p in PANELS
        )
    )
    picture = Picture(what.name, figure, see, alt)
    return Result(
        what.name,
        f"Figure {what.name[-1]}: {what.words}, pendulum CVT",
        said,
        found,
        (picture,),
        (verdicts(lab, what, runs),),
        runs,
    )


def verdicts(lab: Lab, what: Integral, runs: Runs) -> Table:
    """One row per method, one column per motion."""
    rows = tuple(
        (
            Cell(NAMES[spelling], notes=(spelling,)),
            *(verdict_cell(runs[spelling][p].drift, paper_drifts(what.key, p, spelling)) for p in PANELS),
        )
        for spelling in METHODS
    )
    long = lab.settings.cvt
    caption = (
        f"Verdicts on the {what.words}: largest error and slope (with standard error) on [0, "
        f"{long:,.0f}], h = 0.1; drift means that the running mean (window 30) of the error exceeds 0.1 "
        "in the first tenth, or becomes twice as large after it as it was in it."
    )
    if lab.quick:
        caption += " This is a quick run; the full one goes to 30,000."
    return Table(caption, ("method", *(p.title for p in PANELS)), rows)
