"""Figure 5: phase portraits of the driver of the pendulum CVT."""

from typing import NamedTuple

import numpy as np

from dalembert.diagnostics import CoupledSystem
from dalembert.kernels import over_rows
from dalembert.lab.studies.drawing import legend_below, panels, title
from dalembert.lab.studies.result import Cell, Picture, Result, Table, number, plain_row
from dalembert.lab.studies.shared_runs import PANELS, Lab, Panel
from dalembert.zoo import PendulumCVT

COLOURS = {"oscillating": "#1b7837", "rotating": "#762a83"}


class Portrait(NamedTuple):
    """A driver's orbit and the period map of the passenger along it."""

    energy: float
    period: float
    angle: float
    axis: np.ndarray
    latitude: float
    mirror: float
    """The largest |eta(xi) - eta(-xi)| on the orbit, which is zero if reflecting xi maps the orbit to itself."""


class Measured(NamedTuple):
    """The potentials on a grid, and the orbits."""

    xi: np.ndarray
    hills: dict[float, np.ndarray]
    portraits: dict[Panel, Portrait]


def measure(lab: Lab) -> Measured:
    """The potentials, and the period maps along the orbits."""
    xi = np.linspace(-np.pi, np.pi, 2049)
    hills, portraits = {}, {}
    for panel in PANELS:
        coupled, found = lab.coupled(panel), lab.latitude(panel)
        hill = over_rows(CoupledSystem.driver_potential)(coupled, xi)
        hills[panel.eps] = hill
        speed = PendulumCVT().start(panel.start)[1][2]
        energy = 0.5 * float(speed) ** 2 + float(np.interp(0.0, xi, hill))
        eta = np.sqrt(np.maximum(2 * (energy - hill), 0))
        mirror = float(np.max(np.abs(eta - eta[::-1])))
        portraits[panel] = Portrait(energy, found.orbit.period, found.angle, found.axis, found.start, mirror)
    return Measured(xi, hills, portraits)


def _curve(xi: np.ndarray, hill: np.ndarray, energy: float) -> tuple[np.ndarray, np.ndarray]:
    """The orbit with this energy as one line, which is closed if the orbit turns back."""
    inside = np.nonzero(energy >= hill)[0]
    if len(inside) == len(xi):
        return xi[::8], np.sqrt(2 * (energy - hill))[::8]
    first, last = inside[0], inside[-1]
    spare = energy - hill
    ends = [
        xi[j] - spare[j] * (xi[j] - xi[i]) / (spare[j] - spare[i])
        for i, j in ((first - 1, first), (last + 1, last))
    ]
    middle, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    angle = np.linspace(0, 2 * np.pi, 241)
    x = middle + half * np.cos(angle)
    height = np.sqrt(np.maximum(2 * (energy - np.interp(x, xi, hill)), 0))
    height[[0, 120, 240]] = 0
    return x, np.sign(np.sin(angle)) * height


SYMMETRIES = {
    Panel("oscillating", 0.0): "eta -> -eta, xi -> -xi",
    Panel("oscillating", 0.5): "eta -> -eta",
    Panel("rotating", 0.0): "xi -> -xi",
    Panel("rotating", 0.5): "none",
}


def present(lab: Lab, data: Measured) -> Result:
    """The portraits, and a table of the period maps."""
    figure, axes = panels(1, 2, 4.3, sharey=True)
    eta = np.linspace(-3.6, 3.6, 145)
    for ax, (eps, hill) in zip(axes[0], data.hills.items(), strict=True):
        energy = 0.5 * eta[:, None] ** 2 + hill[None, :]
        coarse = np.arange(0, len(data.xi), 16)
        plane = (data.xi[coarse], eta, energy[:, coarse])
        ax.contour(*plane, levels=np.arange(-0.6, 7.0, 0.6), colors="#c4c4c4", linewidths=0.7)
        ax.contour(*plane, levels=[hill.max()], colors="#7a7a7a", linewidths=1.0, linestyles="--")
        for start, colour in COLOURS.items():
            orbit = data.portraits[Panel(start, eps)]
            ax.plot(*_curve(data.xi, hill, orbit.energy), color=colour, lw=2.2, label=f"{start} driver")
            ax.plot(0, np.sqrt(2 * orbit.energy), "o", color=colour, ms=6.5, mec="white", mew=1.0, zorder=4)
        ax.plot([], [], color="#7a7a7a", ls="--", lw=1.0, label="separatrix")
        ax.set(xlim=(-np.pi, np.pi), ylim=(-3.6, 3.6), xlabel=r"$\xi$")
        ax.set_xticks(
            [-np.pi, -np.pi / 2, 0, np.pi / 2, np.pi], [r"$-\pi$", r"$-\pi/2$", "0", r"$\pi/2$", r"$\pi$"]
        )
        title(ax, f"driver, eps = {eps:g}")
    axes[0, 0].set_ylabel(r"$\eta = d\xi/dt$")
    legend_below(figure, axes[0, 0], 3)
    mirror = data.portraits[Panel("rotating", 0.5)].mirror
    said = (
        "Each portrait is symmetric under eta -> -eta. Without the perturbation it is also symmetric "
        "under xi -> -xi; the perturbation removes this second symmetry. The oscillating orbit is mapped "
        "to itself by the first one. The rotating orbit is not: it had only the second, so that with eps "
        "= 0.5 it has none left.",
    )
    found = (
        "The portraits agree. On the rotating orbit eta(xi) and eta(-xi) differ by up to "
        f"{number(mirror)} for eps = 0.5 and by rounding for eps = 0. The table shows what the motion along "
        "each orbit does to the passenger in one period: a rotation about an axis by an angle, from which "
        "Figure 8 and the resonances below follow.",
    )
    picture = Picture(
        "fig5",
        figure,
        "Level curves of the driver energy. Marked: the two orbits of the experiments, their starts "
        "(dots) and the separatrix (dashed). Compare the upper curve in both panels: on the left it is "
        "the same when read backwards, on the right it is not.",
        "Two phase portraits of the driver, eps = 0 and eps = 0.5, with the oscillating orbit around the "
        "origin and the rotating orbit above the separatrix.",
    )
    rows = tuple(
        plain_row(
            p.title,
            (
                f"{x.period:.9f}",
                f"{x.angle:.9f}",
                "(" + ", ".join(f"{a + 0.0:.6f}" if abs(a) > 5e-7 else "0" for a in x.axis) + ")",
                f"{x.latitude:.9f}",
                Cell(SYMMETRIES[p], "drift" if SYMMETRIES[p] == "none" else ""),
            ),
        )
        for p, x in data.portraits.items()
    )
    columns = (
        "orbit",
        "period T",
        "angle of rotation",
        "axis",
        "latitude of the start",
        "reversed by",
    )
    table = Table(
        "The period map of (x1, x2, v), based at xi = 0, eta > 0, from the exact flow.", columns, rows
    )
    return Result("fig5", "Figure 5: the driver", said, found, (picture,), (table,), data)
