"""Curves beside a moving picture: how far energy, integrals and constraint of each run are off."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from dalembert.simulate import Trajectory
from dalembert.view.names import ENERGY, Quantity, integrals, keeps_energy, method_name
from dalembert.view.style import FLOOR, envelope, run_styles


@dataclass(frozen=True)
class Curve:
    """One run's line: times and values, with colour and dash ("-", "--" or ":")."""

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
    """How far a quantity is from its start, in each of the runs."""
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
    """Energy error, deviation of each integral that the system names, and constraint residual of runs of one system.

    Long runs are drawn as the largest value in each of some hundred intervals. `measured` are the integrals of
    each run, where they are known already.
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
