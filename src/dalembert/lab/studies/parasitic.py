"""The parasitic mode of the GNI on the Chaplygin sleigh: the energy is kept, but the sleigh turns back."""

import warnings
from typing import Any, NamedTuple

import numpy as np

from dalembert.diagnostics import parasitic_levels
from dalembert.kernels import over_rows
from dalembert.lab.studies.drawing import legend_below, log_axis, panels
from dalembert.lab.studies.ferraro_fig2 import SOURCE, STYLES
from dalembert.lab.studies.ferraro_fig5 import blade_speed
from dalembert.lab.studies.result import Cell, Picture, Result, Table, number
from dalembert.lab.studies.shared_runs import Lab
from dalembert.methods import GNI, FrameGradient, Method, parasitic_amplitude
from dalembert.model import as_arrays, lower, total_energy
from dalembert.simulation import Trajectory, simulate
from dalembert.zoo import ChaplyginSleigh

STEP, STEPS = 0.2, 1000
COORDINATES = ("contact", "mass-centre")
RESTARTS = (10, 20, 50)
METHODS: dict[str, Method] = {
    "GNI": GNI(start="exact"),
    "GNI, half-kick start": GNI(),
    **{f"GNI, restart {n}": GNI(start="exact", restart_every=n) for n in RESTARTS},
    "frame": FrameGradient(),
}
ONLY = {"GNI, half-kick start": "contact", "GNI, restart 10": "mass-centre", "GNI, restart 50": "mass-centre"}
"""The methods that are run in only one kind of coordinates."""
DRAWN: dict[str, dict[str, Any]] = {
    "exact": STYLES["exact"] | {"lw": 3.6, "color": "#c4c4c4"},
    "GNI": STYLES["GNI"],
    "GNI, restart 20": STYLES["GNI"] | {"ls": (0, (1.2, 1.2))},
    "frame": {"color": "#0072B2", "lw": 1.3, "ls": "--"},
}
TURNED = 50
"""The exact sleigh turns before this step, and never again."""


class Run(NamedTuple):
    """The results of a run."""

    q: np.ndarray
    speed: np.ndarray
    """The speed along the blade."""
    own: np.ndarray
    """The energy of the method's own velocity, which is H(p^-) for the GNI."""
    on: np.ndarray
    """The energy of the velocity on the constraint."""
    middle: np.ndarray
    """The kinetic energy in the middle of each step, from the differences of positions."""
    error: np.ndarray
    """|q_k - q(t_k)|."""
    warning: str
    """The text of the warning that simulate() gave."""

    @property
    def turn(self) -> int | None:
        """The step after which the sleigh turns back, though the exact sleigh never does; None if it does not."""
        back = np.flatnonzero(self.speed[TURNED:] < 0)
        return TURNED + int(back[0]) if len(back) else None


class Growth(NamedTuple):
    """The parasitic amplitude of the GNI in contact coordinates."""

    amplitude: np.ndarray
    foretold: np.ndarray
    """The predicted amplitude, in proportion to 1/omega of the exact motion."""
    levels: tuple[np.ndarray, np.ndarray]
    """The times and amplitudes of the alternating part, by a filter over forty steps each."""
    rate: float
    """The growth rate of its logarithm, fitted where the sleigh has reached its speed and the mode does not yet act on
    it."""
    theory: float
    """a m u/(I + m a^2) at the final speed."""
    window: tuple[float, float]
    """The times between which the rate is fitted."""


class Measured(NamedTuple):
    """Runs by coordinates and method."""

    t: np.ndarray
    exact: np.ndarray
    runs: dict[tuple[str, str], Run]
    growth: Growth


def _change(energy: np.ndarray) -> float:
    """(largest - smallest)/first."""
    return float(np.ptp(energy) / energy[0])


def warned(caught: list[warnings.WarningMessage]) -> str:
    """The library's warning about the parasitic mode, if there was one."""
    return next((str(x.message) for x in caught if "parasitic" in str(x.message)), "")


def measure(lab: Lab) -> Measured:
    """1000 steps by each method in both coordinates."""
    runs: dict[tuple[str, str], Run] = {}
    t = STEP * np.arange(STEPS + 1)
    made: dict[str, Any] = {}
    for coordinates in COORDINATES:
        sleigh = ChaplyginSleigh(coordinates=coordinates)
        q0, v0 = (np.asarray(x, float) for x in sleigh.start())
        exact, velocity = sleigh.solution(t, q0, v0)
        for name, method in METHODS.items():
            if ONLY.get(name, coordinates) != coordinates:
                continue
            lab.step(f"sleigh, {coordinates} coordinates, by {method.cli_name}")
            # The library warns of the mode, which is the subject of this study.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run = simulate(sleigh, method, q0, v0, h=STEP, steps=STEPS)
            q = np.asarray(run.q)
            middle = over_rows(total_energy)(
                lower(as_arrays(sleigh)), (q[1:] + q[:-1]) / 2, np.diff(q, axis=0) / STEP
            )
            runs[coordinates, name] = Run(
                q,
                blade_speed(q, np.asarray(run.v)),
                np.asarray(run.energy(full=True)),
                np.asarray(run.energy()),
                middle,
                np.linalg.norm(q - exact, axis=1),
                warned(caught),
            )
            if (coordinates, name) == ("contact", "GNI"):
                made = {"exact": exact, "growth": growth(run, exact, velocity)}
    return Measured(t, runs=runs, **made)


def growth(run: Trajectory, exact: np.ndarray, velocity: np.ndarray) -> Growth:
    """The growth of the mode.

    The rate a m u/(I + m a^2) is the rate of 1/omega in the exact motion, so the mode grows as 1/omega does.
    """
    amplitude = np.asarray(parasitic_amplitude(run))
    sleigh = ChaplyginSleigh()
    speed, omega = blade_speed(exact, velocity), velocity[:, 2]
    final = float(speed[-1])
    fit = np.flatnonzero((speed > 0.99 * final) & (amplitude < 0.1 * final) & (np.arange(len(speed)) < 250))
    t = np.asarray(run.t)[fit]
    rate = float(np.polyfit(t, np.log(amplitude[fit]), 1)[0])
    scale = np.exp(np.mean(np.log(amplitude[fit] * omega[fit])))
    m, i, a = (float(x) for x in (sleigh.mass, sleigh.inertia, sleigh.offset))
    theory = a * m * final / (i + m * a**2)
    times, sizes = parasitic_levels(run)
    levels = (times + 20 * STEP, sizes)  # in the middle of the forty steps
    return Growth(amplitude, scale / omega, levels, rate, theory, (float(t[0]), float(t[-1])))


def present(lab: Lab, data: Measured) -> Result:
    """The study: path, error, amplitude and energy."""
    figure, axes = panels(2, 2, 6.6, (0.95, 0.75))
    _draw_path(axes[0, 0], data)
    _draw_errors(axes[0, 1], data)
    _draw_growth(axes[1, 0], data)
    _draw_energy(axes[1, 1], data)
    legend_below(figure, axes[0, 0], 4)
    runs, grown = data.runs, data.growth
    gni, frame = runs["contact", "GNI"], runs["contact", "frame"]
    centre = runs["mass-centre", "GNI"]
    cleaned = runs["mass-centre", "GNI, restart 20"]
    restarts = [runs["mass-centre", f"GNI, restart {n}"] for n in RESTARTS]
    changes = [_change(run.own) for run in restarts]
    way = STEP * float(np.sum(np.abs(cleaned.speed)))
    said = (
        "The paper ends its run of the sleigh after about 100 steps and judges by the error up to "
        "there. But the GNI lives on pairs of points, which are more than states on the constraint: "
        "beside the motion there is a velocity normal to it that changes sign every step. The map on "
        "pairs keeps volume up to sign, so this mode must grow wherever the exact motion contracts "
        "volume, and the sleigh's does: its rate is a m u/(I + m a^2), with u the speed along the blade.",
    )
    found = (
        f"The exact sleigh runs ahead for ever. The sleigh of the GNI stops and turns back at k = {gni.turn} "
        f"({centre.turn} in mass-centre coordinates; {runs['contact', 'GNI, half-kick start'].turn} with "
        "the half-kick start, which makes the mode smaller at first), and at k = 1000 it is "
        f"{number(float(gni.error[-1]))} away. Its energy says nothing of this: it varies by "
        f"{number(_change(gni.middle))} of itself in contact coordinates (in the middle of steps; "
        f"{number(_change(gni.own))} at their ends) and by {number(_change(centre.own))} in mass-centre "
        "coordinates, where the metric is constant. What does tell is the energy of the velocity on the "
        f"constraint, which loses {100 * float(1 - np.min(gni.on) / gni.on[0]):.1f} percent to the mode.",
        f"The mode grows at the rate {grown.rate:.3f} where the sleigh runs straight (t = "
        f"{grown.window[0]:.0f} to {grown.window[1]:.0f}); the theory says {grown.theory:.4f} at the "
        "final speed. The library warns at the end of such a run and names two cures. Removing the mode "
        f"every 20 steps leaves an error of {number(float(cleaned.error[-1]))} at k = 1000 in "
        f"mass-centre coordinates, after a way of {way:.0f}, and changes the energy by "
        f"{number(min(changes))} to {number(max(changes))} of itself for restarts every 10 to 50 steps. "
        f"The frame method has no such mode: its error is {number(float(frame.error[-1]))}, its energy "
        f"is kept to {number(_change(frame.own))}.",
    )
    picture = Picture(
        "parasitic",
        figure,
        "Chaplygin sleigh, h = 0.2, 1000 steps; all but the solid grey curve of (d) in contact "
        "coordinates. (a) The path of the contact point: the GNI turns back again and again. (b) "
        "Distance from the exact motion. (c) Size of the parasitic mode (circles: by a filter over "
        "forty steps), and what theory predicts: it goes as 1/omega; the noise where it is smallest comes "
        "from the estimate, which is accurate to O(h^3). (d) The energy of the GNI: that of its own velocity "
        "is kept, that of the velocity on the constraint goes into the mode and back.",
        f"Four panels: the path of the GNI turns back after {gni.turn} steps while the exact one goes "
        "on; its error reaches hundreds; its parasitic amplitude grows along the theoretical line until "
        "it is as large as the speed; its own energy stays level while the energy on the constraint "
        "falls to zero.",
    )
    title = "The parasitic mode: energy is no evidence"
    return Result(
        "parasitic", title, said, found, (picture,), (_table(data),), data, ours=True, source=SOURCE
    )


def _draw_path(ax, data: Measured) -> None:
    for name, style in DRAWN.items():
        q = data.exact if name == "exact" else data.runs["contact", name].q
        ax.plot(q[:, 0], q[:, 1], **style, label=name)
    ax.plot(0, 0, "s", color="#333333", ms=5, zorder=4)
    gni = data.runs["contact", "GNI"]
    ax.plot(*gni.q[gni.turn or 0, :2], "o", color=STYLES["GNI"]["color"], ms=5, zorder=4)
    ax.annotate(
        f"k = {gni.turn}",
        gni.q[gni.turn or 0, :2],
        xytext=(8, -2),
        textcoords="offset points",
        color="#333333",
    )
    ax.set(xlabel="x", ylabel="y", xlim=(-52, 63), ylim=(-24, 46))
    ax.set_aspect("equal", adjustable="box")
    ax.set_title("(a) path from the square, near the start")


def _draw_errors(ax, data: Measured) -> None:
    for name, style in DRAWN.items():
        if name != "exact":
            ax.plot(data.t, data.runs["contact", name].error.clip(1e-5), **style)
    log_axis(ax, 1e-4, 1e4, 2)
    ax.set(xlim=(0, data.t[-1]), xlabel="t", ylabel=r"$|q_k - q(t_k)|$")
    ax.set_title("(b) error")


def _draw_growth(ax, data: Measured) -> None:
    grown = data.growth
    ax.plot(data.t, grown.amplitude, **STYLES["GNI"])
    ax.plot(*grown.levels, "o", ms=4.5, color="#333333", mfc="white", mew=0.9)
    until = int(np.argmax(grown.foretold * (data.t > 20) > 5))
    ax.plot(data.t[:until], grown.foretold[:until], color="#333333", lw=1.1, ls="--")
    log_axis(ax, 1e-5, 100.0, 1)
    ax.set(xlim=(0, data.t[-1]), xlabel="t", ylabel="parasitic amplitude")
    ax.annotate(
        f"theory: rate {grown.theory:.4f}\nat the final speed",
        (data.t[until - 1], grown.foretold[until - 1]),
        xytext=(8, 4),
        textcoords="offset points",
        va="center",
        color="#333333",
    )
    ax.set_title("(c) the mode")


def _draw_energy(ax, data: Measured) -> None:
    gni, centre = data.runs["contact", "GNI"], data.runs["mass-centre", "GNI"]
    entries = (
        (gni.on, STYLES["GNI"], "on the constraint", 98, 3.0, "bottom"),
        (gni.own, STYLES["GNI"] | {"ls": ":"}, "own", 54, 1.5e-6, "top"),
        (centre.own, {"color": "#8a8a8a", "lw": 1.3}, "own, mass-centre coordinates", 98, 3e-13, "bottom"),
    )
    for energy, style, words, x, y, side in entries:
        ax.plot(data.t, np.abs(energy / energy[0] - 1).clip(1e-17), **style)
        ax.text(x, y, words, color="#333333", ha="center", va=side)
    log_axis(ax, 1e-17, 1e3, 4)
    ax.set(xlim=(0, data.t[-1]), xlabel="t", ylabel=r"$|E/E_0 - 1|$")
    ax.set_title("(d) energies of the GNI")


def _table(data: Measured) -> Table:
    rows = []
    for name, method in METHODS.items():
        cells = [Cell(name, notes=(method.cli_name,))]
        for coordinates in COORDINATES:
            run = data.runs.get((coordinates, name))
            if run is None:
                cells += [Cell("")] * 3
                continue
            error = float(run.error[-1])
            cells += [
                Cell("never", "good") if run.turn is None else Cell(f"k = {run.turn}", "drift"),
                Cell(number(error), "good" if error < 10 else "drift"),
                Cell(number(_change(run.own))),
            ]
        rows.append(tuple(cells))
    caption = (
        "The step at which the sleigh turns back, its distance from the exact motion at k = 1000, after a path of "
        "length 240, and the relative variation of the energy that the method keeps or nearly keeps."
    )
    columns = ("method", *("turns back", "error", "energy") * len(COORDINATES))
    groups = (("", 1), *((x, 3) for x in COORDINATES))
    return Table(caption, columns, tuple(rows), groups)
