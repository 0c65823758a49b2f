"""A sweep over the step size that shows where the parasitic mode of methods on TQ meets the driver."""

from typing import NamedTuple

import numpy as np

from dalembert.lab.studies.drawing import legend_below, log_axis, panels, style_of
from dalembert.lab.studies.result import Picture, Result, Table, number, plain_row
from dalembert.lab.studies.shared_runs import Lab, Panel
from dalembert.methods import method_from_text
from dalembert.simulation import ensemble
from dalembert.zoo import PendulumCVT

SWEPT = {"leapfrog:momentum": "leap-frog", "dd:average": "DD with separate gradients", "frame": "frame"}
RANGE = (10.0, 30.0)
SAVE_EVERY = 7
"""An odd number, so that saved rows show both signs of the alternating mode."""
BLOCK = 250


class Sweep(NamedTuple):
    """The worst error at each T/h, in order."""

    ratio: np.ndarray
    worst: np.ndarray


class Measured(NamedTuple):
    """The sweeps of all methods, and where resonances are expected."""

    period: float
    angle: float
    time: tuple[float, float]
    """The length of the runs at the largest and at the smallest T/h."""
    sweeps: dict[str, Sweep]


def measure(lab: Lab) -> Measured:
    """The worst errors over an even sweep, refined where neighbours differ most."""
    found = lab.latitude(Panel("rotating", 0.5))
    sweeps = {}
    for (spelling, name), members in zip(SWEPT.items(), lab.settings.members, strict=True):
        lab.step(f"sweep over T/h by {spelling}")
        ratio = np.linspace(*RANGE, members)
        worst = _worst(lab, spelling, found.orbit.period / ratio)
        for _ in range(lab.settings.refinements if spelling != "frame" else 0):
            lab.step(f"sweep over T/h by {spelling}, refined")
            new = _between(ratio, worst)
            ratio = np.concatenate([ratio, new])
            worst = np.concatenate([worst, _worst(lab, spelling, found.orbit.period / new)])
            order = np.argsort(ratio)
            ratio, worst = ratio[order], worst[order]
        sweeps[name] = Sweep(ratio, worst)
    steps = lab.settings.sweep_steps
    time = (steps * found.orbit.period / RANGE[1], steps * found.orbit.period / RANGE[0])
    return Measured(found.orbit.period, found.angle, time, sweeps)


def _between(ratio: np.ndarray, worst: np.ndarray) -> np.ndarray:
    """The middles of the intervals next to a peak, or in which the error changes by a third or more."""
    level = np.log(worst)
    steep = np.abs(np.diff(level)) > 0.3
    peak = np.zeros(len(level), bool)
    peak[1:-1] = (level[1:-1] > level[:-2]) & (level[1:-1] > level[2:]) & (np.diff(ratio, 2) < 1)
    chosen = (steep | peak[:-1] | peak[1:]) & (np.diff(ratio) > 3e-4)
    return (ratio[:-1] + ratio[1:])[chosen] / 2


def _worst(lab: Lab, spelling: str, h: np.ndarray) -> np.ndarray:
    """The largest error of the passenger energy (of the velocity on the constraint) for each step."""
    system, method = PendulumCVT(eps=0.5), method_from_text(spelling)
    q0, v0 = (np.asarray(x, float) for x in system.start("rotating"))
    worst = []
    for a in range(0, len(h), BLOCK):
        lab.step(f"sweep over T/h by {spelling}, {a} of {len(h)}")
        part = h[a : a + BLOCK]
        start = np.tile(q0, (len(part), 1))
        steps = lab.settings.sweep_steps
        sol = ensemble(system, method, start, v0, h=part, steps=steps, save_every=SAVE_EVERY)
        energy = 0.5 * np.sum(sol.q[..., :2] ** 2 + sol.v[..., :2] ** 2, axis=-1)
        worst.append(np.max(np.abs(energy - energy[:, :1]), axis=1))
    return np.concatenate(worst)


def resonances(angle: float) -> tuple[list[float], list[float]]:
    """The values 2n in the range, and the values 2n +- angle/pi."""
    low, high = RANGE
    even = [float(k) for k in range(0, int(high) + 4, 2)]
    beside = [k + s * angle / np.pi for k in even for s in (-1, 1)]
    return [x for x in even if low <= x <= high], [x for x in beside if low <= x <= high]


def windows(data: Measured) -> list[tuple[str, list[float], list[float]]]:
    """The largest error of each method near the resonances around 14, 20 and 26, and the median beside each."""
    peaks = []
    for centre in (14.0, 20.0, 26.0):
        tops, levels = [], []
        for sweep in data.sweeps.values():
            away = np.abs(sweep.ratio - centre)
            tops.append(float(np.max(sweep.worst[away < 0.25])))
            levels.append(float(np.median(sweep.worst[(away > 0.3) & (away < 0.6)])))
        peaks.append((f"T/h near {centre:g}", tops, levels))
    return peaks


def present(lab: Lab, data: Measured) -> Result:
    """The study with the sweep and a table of three resonances."""
    figure, axes = panels(1, 1, 4.4)
    ax = axes[0, 0]
    even, beside = resonances(data.angle)
    for x in even:
        ax.axvline(x, color="#9a9a9a", lw=0.7, zorder=0, label="T/h = 2n" if x == even[0] else None)
    for x in beside:
        label = r"T/h = 2n $\pm$ angle/$\pi$" if x == beside[0] else None
        ax.axvline(x, color="#b5b5b5", lw=0.7, ls=(0, (2, 2)), zorder=0, label=label)
    for spelling, name in SWEPT.items():
        sweep = data.sweeps[name]
        style = style_of(spelling) | {"ls": "-", "lw": 1.0, "label": name}
        ax.plot(sweep.ratio, sweep.worst, **style)
    log_axis(ax, 1e-15, 10.0, 2)
    ax.set(xlim=RANGE, xlabel="T/h, steps in one driver period", ylabel="worst |E - E(0)| in the run")
    ax.set_xticks(range(10, 31, 2))
    legend_below(figure, ax, 5, [*SWEPT.values(), "T/h = 2n", r"T/h = 2n $\pm$ angle/$\pi$"])
    peaks = windows(data)
    frame = float(np.max(data.sweeps["frame"].worst))
    said = (
        "Not in the paper, whose experiments have T/h = 26.26, away from any resonance. Leap-frog and "
        "discrete gradient methods on TQ carry a component normal to the constraint that changes sign "
        "every step. When the driver returns after a whole number of such alternations (T/h = 2n), or "
        "when the rotation of the passenger makes up the difference (2n plus or minus angle/pi), it is "
        "driven in step with the motion.",
    )
    found = (
        "There the passenger energy exchanges a large part with the normal component, although the "
        f"method's own energy stays constant. Near T/h = 14 leap-frog is off by "
        f"{number(peaks[0][1][0])} and the discrete gradient by {number(peaks[0][1][1])}, of an energy of "
        "one. The windows narrow quickly as h gets smaller.",
        f"Frame has no such component, and no resonance: its worst error at any step size is {number(frame)}, "
        "which is rounding.",
    )
    picture = Picture(
        "resonance",
        figure,
        "Worst error of the passenger energy against T/h; rotating driver, eps = 0.5, "
        f"{lab.settings.sweep_steps:,} steps per point. Solid lines: T/h = 2n; dashed: 2n plus or minus "
        f"angle/pi, angle/pi = {data.angle / np.pi:.4f}. Peaks stand at the lines, a little to one side "
        "because the numerical period differs from T by O(h^2).",
        "Worst passenger energy error against T/h on a log axis: leap-frog and the discrete gradient have "
        "sharp peaks of order one at the marked lines, the frame method stays at rounding.",
    )
    rows = tuple(
        plain_row(label, [number(x) for pair in zip(tops, levels, strict=True) for x in pair])
        for label, tops, levels in peaks
    )
    counts = ", ".join(f"{name} {len(s.ratio):,}" for name, s in data.sweeps.items())
    caption = (
        f"Largest error within 0.25 of a resonance, and the median 0.3 to 0.6 away from it. Runs: {counts}."
    )
    if lab.quick:
        caption += (
            " This quick sweep is coarser and shorter than the full one, so that narrow peaks are cut off."
        )
    groups = (("", 1), *((n, 2) for n in SWEPT.values()))
    columns = ("", *("peak", "beside") * len(SWEPT))
    table = Table(caption, columns, rows, groups)
    return Result(
        "resonance", "Resonances of the parasitic mode", said, found, (picture,), (table,), data, ours=True
    )
