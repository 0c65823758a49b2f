"""Figures 6, 7 and 8: one integral of the pendulum CVT in four motions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dalembert.lab.studies.drawing import legend_below, log_axis, panels, style_of, title
from dalembert.lab.studies.result import Cell, Picture, Result, Table, drifts, judged, number, verdict_cell
from dalembert.lab.studies.shared_runs import METHODS, NAMES, PANELS, PAPER, Kept, Lab, Panel

Runs = dict[str, dict[Panel, Kept]]


class Words(NamedTuple):
    """What the paper says, what was found, and what to look at in the figure."""

    said: tuple[str, ...]
    found: tuple[str, ...]
    see: str


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


@dataclass(frozen=True)
class Integral:
    """A study: the figure of one integral, and the table of verdicts on it."""

    name: str
    key: str
    words: str
    symbol: str
    low: float
    high: float
    every: int
    describe: Callable[[Runs], Words]

    def measure(self, lab: Lab) -> Runs:
        """The integral in every motion by every method."""
        return {s: {panel: kept[self.key] for panel, kept in lab.cvt(s).items()} for s in METHODS}

    def present(self, lab: Lab, runs: Runs) -> Result:
        """The figure and its verdicts."""
        figure, axes = panels(2, 2, 6.0, sharex=True, sharey=True)
        for ax, panel in zip(axes.flat, PANELS, strict=True):
            for spelling in METHODS:
                kept = runs[spelling][panel]
                ax.plot(kept.t, kept.mean.clip(self.low / 10), **style_of(spelling))
            log_axis(ax, self.low, self.high, self.every)
            ax.set_xlim(0, 3000)
            title(ax, panel.title)
        for ax in axes[1]:
            ax.set_xlabel("t")
        for ax in axes[:, 0]:
            ax.set_ylabel(self.symbol)
        legend_below(figure, axes[0, 0])
        said, found, see = self.describe(runs)
        alt = (
            f"Four panels, error of the {self.words} against time on a log axis, one curve per method. "
            + " ".join(
                f"{p.title}: " + ", ".join(f"{NAMES[s]} {runs[s][p].drift.verdict}" for s in METHODS) + "."
                for p in PANELS
            )
        )
        picture = Picture(self.name, figure, see, alt)
        return Result(
            self.name,
            f"Figure {self.name[-1]}: {self.words}, pendulum CVT",
            said,
            found,
            (picture,),
            (verdicts(lab, self, runs),),
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


def _passenger_energy(runs: Runs) -> Words:
    hard = PANELS[3]
    lost = {s: runs[s][hard].drift for s in ("dla:0.5", "dd", "leapfrog:momentum", "frame")}
    said = (
        "For the oscillating driver, and for the rotating one without perturbation, the reversible "
        "methods that respect the driver keep the passenger energy; DLA 0.4, which is not reversible, "
        "loses it. With a rotating driver and the perturbation no reversing symmetry is left, and "
        "everything drifts except leap-frog. The text of section 3.4 adds that DD drifts in every motion.",
    )
    found = (
        f"{compared('E', runs)} DD drifts in {where(runs, 'dd')}, DLA 0.5 in {where(runs, 'dla:0.5')}, leap-frog "
        f"in {where(runs, 'leapfrog:momentum')}. With the rotating perturbed driver DLA 0.5 is off by "
        f"{number(lost['dla:0.5'].largest)} at worst and DD by {number(lost['dd'].largest)}; "
        f"leap-frog stays within {number(lost['leapfrog:momentum'].largest)} and its slope is "
        f"{number(lost['leapfrog:momentum'].slope)} \u00b1 {number(lost['leapfrog:momentum'].error, 0)}.",
        f"The frame method drifts in {where(runs, 'frame')}, and is off by {number(lost['frame'].largest)} with the "
        "rotating perturbed driver.",
    )
    see = (
        "Error of the passenger energy, running mean over 30 units of time. Look at the lower right "
        "panel: reversibility is gone there, the three DLA methods and DD climb, leap-frog stays level, "
        "and the frame methods lie at rounding. The two frame curves lie on each other. Energies are of "
        "the velocity on the constraint, that of DD of its own velocity."
    )
    return Words(said, found, see)


FIGURE_6 = Integral(
    "fig6", "E", "passenger energy", "running mean of |E - E(0)|", 1e-15, 10.0, 2, _passenger_energy
)


def _driver_energy(runs: Runs) -> Words:
    hard = {s: runs[s][PANELS[3]].drift for s in METHODS}
    said = (
        "The driver moves by itself and is a Hamiltonian system, so every method whose driver is "
        "symplectic keeps its energy, reversible or not; DLA 0.4 is an instance. Only DD fails, because "
        "its driver feels the passenger.",
    )
    found = (
        f"{compared('h', runs)} DD drifts in {where(runs, 'dd')} ({number(hard['dd'].largest)} at worst with the "
        "rotating perturbed driver). What it loses in h it gains in E, since their sum is kept exactly.",
        f"With the rotating perturbed driver the frame method is off by {number(hard['frame'].largest)}, DLA 0.4 by "
        f"{number(hard['dla:0.4'].largest)}.",
    )
    see = (
        "Error of the driver energy, running mean over 30 units of time. All curves are level except that "
        "of DD in the lower right panel; those of the frame methods lie at rounding, which accumulates "
        "slowly."
    )
    return Words(said, found, see)


FIGURE_7 = Integral(
    "fig7", "h", "driver energy", "running mean of |h - h(0)|", 1e-15, 10.0, 2, _driver_energy
)


def _latitude(runs: Runs) -> Words:
    hard = {s: runs[s][PANELS[3]].drift for s in runs}
    said = (
        "The third integral has no formula. Over one driver period the passenger (x1, x2, v) turns about "
        "a fixed axis; its component along that axis, taken whenever the driver passes xi = 0 upwards, "
        "never changes. Reversible methods keep it for the oscillating driver or eps = 0; with the "
        "rotating perturbed driver all fail except leap-frog. (On DD the caption and section 3.4 of the "
        "paper disagree; the text is taken here.)",
    )
    found = (
        "The axis comes from the exact period map, and the state at a crossing from the exact flow over "
        "the fraction of a step that is missing. "
        f"{compared('latitude', runs)} DD drifts in {where(runs, 'dd')}. With the rotating perturbed driver it loses "
        f"{number(hard['dd'].largest)}; DLA 0.5 loses {number(hard['dla:0.5'].largest)}. "
        f"Leap-frog holds within {number(hard['leapfrog:momentum'].largest)}, slope "
        f"{number(hard['leapfrog:momentum'].slope)} \u00b1 {number(hard['leapfrog:momentum'].error, 0)}.",
        f"In the same motion frame holds within {number(hard['frame'].largest)} and its composition of order 4 within "
        f"{number(hard['frame@4'].largest)}. Frame drifts in {where(runs, 'frame')}, the composition in "
        f"{where(runs, 'frame@4')}.",
    )
    see = (
        "Error of the latitude at the section, running mean over 30 units of time. In the lower right "
        "panel leap-frog and the frame methods are level, the others climb. Where errors are bounded they "
        "shrink with the step: the dashed curve is of order 4."
    )
    return Words(said, found, see)


FIGURE_8 = Integral(
    "fig8", "latitude", "latitude", "running mean of |latitude error|", 1e-7, 10.0, 1, _latitude
)
