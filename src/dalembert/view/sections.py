"""Sections of coupled systems: the invariant curves of methods against those of the exact motion."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from dalembert.diagnostics import CoupledSystem, Latitude
from dalembert.simulation import Trajectory
from dalembert.view.style import axes as bare_axes
from dalembert.view.style import method_style, title


class Curve(NamedTuple):
    """One run: the curve of the exact motion, which is a circle, and the points of the run."""

    label: str
    radius: float
    """The radius of the circle."""
    points: np.ndarray
    """(crossings, 2) the passenger (kappa x - g, v) at the crossings, seen along the axis of the period map."""


class Sections(NamedTuple):
    """The axes of the figure, one for each method, and the drawn curves."""

    axes: list[Axes]
    curves: list[Curve]


def section_plot(runs: Sequence[Trajectory], *, axes: Sequence[Axes] | None = None) -> Sections:
    """Draws where runs of a coupled system cross the section of its driver, with one panel for each method.

    The view is along the axis of the period map of the first run's driver. There the exact motion turns the passenger
    u = (kappa x - g, v) by the same angle from one crossing to the next, so its invariant curves are circles, which
    are drawn as lines; e_1 and e_2 are orthogonal to the axis. The points are those of the runs. A method with
    invariant curves of its own stays on curves near the circles. All runs must begin with the driver on the same orbit,
    and the passenger may differ.
    """
    if not runs:
        raise ValueError("a section needs one run or more, as in section_plot([sol])")
    first = runs[0]
    if first.system is None:
        raise ValueError("a section needs runs that know their system")
    coupled = CoupledSystem.of(first.system, np.asarray(first.q[0]))
    hidden = Latitude.of(coupled, first.q[0], first.v[0])
    if hidden.axis.ndim != 1:
        raise ValueError(
            f"a section is seen along the axis of a rotation of space; the passenger of {first.system.label} turns in "
            "R^4, where there is none"
        )
    across = np.linalg.svd(hidden.axis[None])[2][1:]
    across[1] *= np.sign(np.linalg.det(np.concatenate([across, hidden.axis[None]])))
    energies = [_driver_energy(coupled, run) for run in runs]
    if np.ptp(energies) > 1e-9 * max(np.max(np.abs(energies)), 1e-300):
        raise ValueError(
            f"all runs must begin with the same driver energy, because the section is that of one orbit; got "
            f"{', '.join(f'{x:.6g}' for x in energies)}"
        )
    names = list(dict.fromkeys(_name(run) for run in runs))
    panels = _panels(len(names)) if axes is None else [bare_axes(ax) for ax in axes]
    if len(panels) != len(names):
        raise ValueError(f"the section has {len(names)} panels, got {len(panels)} axes")
    curves, angle = [], np.linspace(0, 2 * np.pi, 361)
    for run in runs:
        ax, name = panels[names.index(_name(run))], _name(run)
        _, u = hidden.crossings(run)
        points = u @ across.T
        start = Latitude.of(coupled, run.q[0], run.v[0], found=hidden.orbit)
        radius = float(np.sqrt(max(start.length(run.q[0], run.v[0]) ** 2 - start.start**2, 0.0)))
        style = method_style(name)
        ax.plot(radius * np.cos(angle), radius * np.sin(angle), color="0.55", lw=0.8, zorder=1)
        ax.plot(*points.T, ".", color=style["color"], ms=2.0, mew=0, zorder=2)
        curves.append(Curve(name, radius, points))
    for ax, name in zip(panels, names, strict=True):
        ax.set_aspect("equal")
        title(ax, name)
        ax.set_xlabel("$u \\cdot e_1$")
    panels[0].set_ylabel("$u \\cdot e_2$")
    return Sections(panels, curves)


def _driver_energy(coupled: CoupledSystem, run: Trajectory) -> float:
    return float(coupled.driver_energy(run.q[0], run.v[0]))


def _name(run: Trajectory) -> str:
    return "run" if run.method is None else run.method.cli_name


def _panels(count: int) -> list[Axes]:
    import matplotlib.pyplot as plt

    _, grid = plt.subplots(
        1,
        count,
        figsize=(0.6 + 2.9 * count, 3.2),
        sharex=True,
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    return [bare_axes(ax) for ax in grid[0]]
