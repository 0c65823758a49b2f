"""Several runs of one system side by side: one colour per method, paler for larger steps."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dalembert.model import Trait, as_arrays
from dalembert.simulation import Trajectory
from dalembert.view import names as named
from dalembert.view.plots import Plots
from dalembert.view.style import (
    Panels,
    axes,
    draw_deviation,
    mean_window,
    name_deviation,
    run_styles,
    stacked,
    title,
    width_of,
)

KINDS = ("all", "path", "energy", "constraint", "integrals")
SIZES = {"path": (6.4, 4.4), "energy": (8.6, 3.6), "constraint": (8.6, 3.6)}


class Run(NamedTuple):
    """One of the compared runs, and how it is drawn."""

    sol: Trajectory
    style: dict[str, Any]
    wider: float
    """A factor for line widths. The first lines are the widest, so that they show under lines that agree with them."""


def compare(
    runs: Sequence[Trajectory] | Mapping[str, Trajectory],
    what: str = "all",
    labels: Sequence[str] | None = None,
    full: bool = True,
    log: bool = False,
    x: str | None = None,
    y: str | None = None,
) -> Panels:
    """Draws runs of one system, by different methods or step sizes, and returns the axes by name.

    `what` is "path" (of the coordinates `x` and `y`), "energy", "constraint", "integrals" (one row per integral, with
    running means; `log=True` for log axes), or "all", which puts the first three in one figure. Every method has one
    colour in all panels, and larger steps of the same method are paler. Labels are the keys of a mapping, else
    `labels`, else the methods' spellings. Energies are those of the method's own velocity or, with `full=False`, of
    the velocity on the constraint.
    """
    if what not in KINDS:
        raise ValueError(f"compare draws one of {', '.join(KINDS)}; got {what!r}")
    found = _runs(runs, labels)
    if what == "integrals":
        figure, panels = _integrals(found, full, log)
    elif what == "all":
        figure, panels = _all(found, full, x, y)
    else:
        figure = plt.figure(figsize=SIZES[what], layout="constrained")
        panels = Panels({what: figure.subplots()})
        _panel(what, panels[what], found, full, x, y)
    _legend(figure, found)
    return panels


def _runs(runs: Any, labels: Sequence[str] | None) -> list[Run]:
    """The runs with their styles; raises ValueError if they cannot be compared."""
    if isinstance(runs, Mapping):
        if labels is not None:
            raise ValueError(
                "the labels are the keys of the mapping already; leave labels out, or give a list of runs"
            )
        runs, labels = list(runs.values()), [str(key) for key in runs]
    elif isinstance(runs, Trajectory):
        raise ValueError("compare needs a list of trajectories, got one; to draw a single one, use sol.plot")
    sols = list(runs)
    if not sols:
        raise ValueError("compare needs one trajectory or more, got none")
    for i, sol in enumerate(sols):
        if not isinstance(sol, Trajectory):
            raise ValueError(f"compare needs trajectories, as simulate returns them; entry {i} is {sol!r}")
        if np.ndim(sol.q) == 3:
            raise ValueError(
                f"entry {i} is an ensemble; compare its members: sol.member(0), sol.member(1), ..."
            )
        if not _same(sols[0], sol):
            raise ValueError(
                f"compare draws runs of one system; entry 0 is of {_words(sols[0])}, entry {i} of {_words(sol)}. "
                "Make the system once and use it in every run"
            )
    spellings, steps = [named.method_name(sol) for sol in sols], [float(sol.h) for sol in sols]
    if labels is None:
        labels = _labels(sols, spellings, steps)
    elif len(labels) != len(sols):
        raise ValueError(f"there are {len(sols)} runs but {len(labels)} labels; give one per run")
    styles = run_styles(spellings, steps)
    wider = np.linspace(1.7, 1.0, len(sols)) if len(sols) > 1 else [1.0]
    return [
        Run(sol, {**style, "label": label}, float(w))
        for sol, style, label, w in zip(sols, styles, labels, wider, strict=True)
    ]


def _same(a: Trajectory, b: Trajectory) -> bool:
    """Whether both runs are of the same system with the same parameters, as far as the runs know them."""
    if a.system is not None and b.system is not None:
        return type(a.system) is type(b.system) and bool(
            eqx.tree_equal(as_arrays(a.system), as_arrays(b.system))
        )
    if a.system is None and b.system is None:
        keys = ("system", "parameters", "options")
        return all((a.stored or {}).get(key) == (b.stored or {}).get(key) for key in keys)
    return named.system_name(a) == named.system_name(b) and named.coordinates(a) == named.coordinates(b)


def _words(sol: Trajectory) -> str:
    return named.system_name(sol) if sol.system is None else str(sol.system)


def _labels(sols: list[Trajectory], spellings: list[str], steps: list[float]) -> list[str]:
    """The spellings, with the step size if runs of one method differ in it, and a number if that is not enough."""
    several = len(set(steps)) > 1
    plain = [
        f"{s}, {named.step_words(sol)}" if several else s for s, sol in zip(spellings, sols, strict=True)
    ]
    often, seen = Counter(plain), Counter()
    made = []
    for label in plain:
        seen[label] += 1
        made.append(f"{label} ({seen[label]})" if often[label] > 1 else label)
    return made


def _panel(what: str, ax: Axes, runs: list[Run], full: bool, x: str | None, y: str | None) -> None:
    """One panel with all runs."""
    for run in runs:
        plots, style = Plots(run.sol), {"lw": 1.1 * run.wider, **run.style}
        if what == "path":
            plots.path(x, y, ax=ax, **style | {"lw": width_of(len(run.sol.t)) * run.wider})
        elif what == "energy":
            plots.energy(ax=ax, full=full, **style)
        else:
            plots.constraint(ax=ax, **style)
    title(ax, f"{_words_of(what, runs)}, {_heading(runs)}")


def _words_of(what: str, runs: list[Run]) -> str:
    if what == "path":
        return "path (start marked)"
    if what == "energy":
        return "energy error" if named.keeps_energy(runs[0].sol) else "change of energy"
    return "constraint residual"


def _all(runs: list[Run], full: bool, x: str | None, y: str | None) -> tuple[Figure, Panels]:
    """The path at the left, energy error and residual at the right, without those that the system does not have."""
    first = runs[0].sol
    right = ["energy"]
    if first.system is None or first.system.constrained:
        right.append("constraint")
    left = ["path"] if len(named.coordinates(first)) > 1 else []
    figure = plt.figure(figsize=(10.5 if left else 7.6, 4.8), layout="constrained")
    mosaic: Any = [[*left, name] for name in right]
    panels = Panels(figure.subplot_mosaic(mosaic, width_ratios=[1, 1.15] if left else None))
    for name, ax in panels.items():
        _panel(name, ax, runs, full, x, y)
        title(ax, _words_of(name, runs))
    if "constraint" in panels:
        # Residuals begin at the start, but errors one row later.
        panels["energy"].sharex(panels["constraint"])
        panels["energy"].tick_params(labelbottom=False)
        panels["energy"].set_xlabel("")
        affine = Trait.AFFINE in first.traits
        panels["constraint"].set_ylabel("|A v - b|" if affine else "|A v|")
    figure.suptitle(_heading(runs), x=0.01, ha="left", fontsize="medium")
    return figure, panels


def _heading(runs: list[Run]) -> str:
    """The system, the time, and the step if it is the same for all runs."""
    ends = {f"{float(run.sol.t[-1]):.6g}" for run in runs}
    steps = {f"h = {float(run.sol.h):.4g}" for run in runs}
    words = [named.system_name(runs[0].sol)]
    words += [f"t up to {next(iter(ends))}"] if len(ends) == 1 else []
    words += sorted(steps) if len(steps) == 1 else []
    return ", ".join(words)


def _integrals(runs: list[Run], full: bool, log: bool) -> tuple[Figure, Panels]:
    """One row per integral, with all runs."""
    found = [named.integrals(run.sol, None, full) for run in runs]
    figure, made = stacked(len(found[0]), width=9.0)
    panels = Panels(zip([x.name for x in found[0]], made, strict=True))
    for run, quantities in zip(runs, found, strict=True):
        window = mean_window(run.sol.t, None)
        for x in quantities:
            draw_deviation(panels[x.name], run.sol.t, x.values, run.style, log, window)
    for x in found[0]:
        name_deviation(axes(panels[x.name]), x, log)
    title(made[0], f"{_heading(runs)}: deviation from the start, strong: running mean")
    return figure, panels


def _legend(figure: Figure, runs: list[Run]) -> None:
    """Draws one legend at the right of all panels."""
    from matplotlib.lines import Line2D

    kept = ("color", "ls", "label")
    handles = [Line2D([], [], lw=1.8, **{key: run.style[key] for key in kept}) for run in runs]
    figure.legend(
        handles=handles, loc="outside right center", frameon=False, fontsize="small", handlelength=2.4
    )
