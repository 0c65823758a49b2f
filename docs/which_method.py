"""Measures cost and accuracy of the methods, side by side: `python docs/which_method.py`, five minutes.

Writes docs/_which_method.md, which docs/which-method.md includes, and docs/which-method.png. Every round runs all
methods in turn; a cost is the least of the rounds, because other work on the machine only adds to it.
"""

import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np

import dalembert as da
from dalembert.methods import method_from_text
from dalembert.view.plots import method_style

HERE = Path(__file__).parent
ROUNDS = 7
BUSY = 0.03
"""Seconds that one timed run takes at least: the call itself costs a fraction of a millisecond."""
TIME = 100.0


class TiedSleigh(da.zoo.ChaplyginSleigh):
    """The sleigh on a spring: without it all runs end in a straight line, whose steps are easy to solve."""

    def potential(self, q):
        return 0.5 * (q[0] ** 2 + q[1] ** 2)


COST = ("leapfrog", "dla01", "dla:0.5", "dd", "gni", "dla-variational", "frame", "frame@4",
        "frame:gauss=2", "frame:gauss=3", "frame:gauss=4", "edla")  # fmt: skip
SYSTEMS = {
    "pendulum CVT": (da.zoo.PendulumCVT(eps=0.5), "rotating", 0.1),
    "snakeboard": (da.zoo.Snakeboard(), None, 0.1),
    "sleigh on a spring, contact coordinates": (TiedSleigh(), None, 0.1),
    "particle in a bowl": (
        da.zoo.NonholonomicParticle(lambda q: (q[0] ** 2 + q[1] ** 2) / 2),
        None,
        0.05,
    ),
}
CURVES = {
    "leapfrog": (0.1, 0.05, 0.02, 0.01, 0.005, 0.002),
    "dla01": (0.1, 0.05, 0.02, 0.01, 0.005, 0.002),
    "dla:0.5": (0.1, 0.05, 0.02, 0.01, 0.005),
    "frame": (0.1, 0.05, 0.02, 0.01, 0.005),
    "dla01@4": (0.2, 0.1, 0.05, 0.02, 0.01),
    "dla01@6": (0.5, 0.25, 0.1, 0.05, 0.025),
    "dla01@8": (0.5, 0.25, 0.1, 0.05),
    "frame@4": (0.2, 0.1, 0.05, 0.02, 0.01),
    "frame@6": (0.5, 0.25, 0.1, 0.05, 0.025),
    "frame@8": (0.5, 0.25, 0.1, 0.05),
    "frame:gauss=2": (0.5, 0.25, 0.1, 0.05, 0.025),
    "frame:gauss=3": (0.5, 0.25, 0.1, 0.05),
    "frame:gauss=4": (1.0, 0.5, 0.25, 0.2, 0.1),
    "frame:gauss=5": (1.0, 0.5, 0.25, 0.2),
}
# Problems on which both ways to a high order are compared, with the steps of each; errors at t = 10.
PROBLEMS = {
    "pendulum CVT": (da.zoo.PendulumCVT(eps=0.5), "rotating"),
    "snakeboard": (da.zoo.Snakeboard(), None),
    "sleigh on a spring, contact coordinates": (TiedSleigh(), None),
    "mobile robot": (da.zoo.MobileRobot(), None),
    "falling disk": (da.zoo.FallingDisk(), None),
}
HIGH = {"frame@4": 2, "frame@6": 3, "frame@8": 4}
SHARES = (4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 65, 80, 100, 130, 160, 200, 260, 320, 400)
"""The numbers of steps for ten units of time that are tried."""
TOLERANCES = (1e-5, 1e-7, 1e-9, 1e-11)
TARGETS = (1e-2, 1e-4, 1e-6, 1e-8)


def seconds(run: Callable[[], object]) -> float:
    """How much processor time a call takes: waiting for other work on the machine does not count."""
    began = time.process_time()
    run()
    return time.process_time() - began


def stepping(name: str, system: da.System, start: str | None, h: float, most: int) -> tuple[Callable, int]:
    """A run long enough to be timed, compiled and checked, and its number of steps."""
    method = method_from_text(name)
    q0, v0 = system.start(start)

    def run(steps: int) -> None:
        sol = da.simulate(system, method, q0, v0, h=h, steps=steps, save_every=steps)
        if sol.status is not da.Status.OK:
            raise RuntimeError(f"{name} on {system.label}: {sol.message}")

    run(50)
    steps = 50
    while steps < most and seconds(partial(run, steps)) < BUSY:
        steps = min(2 * steps, most)
    return partial(run, steps), steps


def costs(runs: dict[str, tuple[Callable, int]]) -> dict[str, float]:
    """Nanoseconds a step of each run, the least of all rounds."""
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, (run, _) in runs.items():
            times[name].append(seconds(run))
    return {name: 1e9 * min(times[name]) / runs[name][1] for name in runs}


def cost_rows() -> Iterator[list[str]]:
    """Cost per step relative to leap-frog or, where that is refused, to the first method; one row per method."""
    found: dict[str, dict[str, float]] = {}
    for label, (system, start, h) in SYSTEMS.items():
        runs = {}
        for name in COST:
            try:
                # Steps of EDLA end where none keeps the energy; on these starts 100 are safe.
                runs[name] = stepping(name, system, start, h, 100 if name == "edla" else 2_000_000)
            except (ValueError, da.SimulationError):
                continue
        found[label] = costs(runs)
        print(label, {name: round(x) for name, x in found[label].items()}, flush=True)
    first = {label: found[label].get("leapfrog", min(found[label].values())) for label in SYSTEMS}
    for name in COST:
        cells = []
        for label in SYSTEMS:
            mine = found[label].get(name)
            cells.append("-" if mine is None else f"{mine / first[label]:.1f}")
        yield [f"`{name}`", *cells]
    yield ["unit, ns a step", *(f"{first[label]:.0f}" for label in SYSTEMS)]


def curves() -> dict[str, list[tuple[float, float]]]:
    """Error and milliseconds for TIME units of time on the rotating CVT, for each method and step."""
    system, start, _ = SYSTEMS["pendulum CVT"]
    q0, v0 = system.start(start)
    exact = states(da.simulate(system, da.Reference(), q0, v0, h=TIME / 100, steps=100))
    runs, errors = {}, {}
    for name, steps in CURVES.items():
        method = method_from_text(name)
        for h in steps:
            every = round(TIME / 20 / h)  # 20 common times, whatever h is
            if not np.isclose(20 * every * h, TIME):
                raise ValueError(f"20 times up to {TIME:g} are not multiples of h = {h:g}; take another h")
            sol = da.simulate(system, method, q0, v0, h=h, steps=20 * every, save_every=every)
            errors[name, h] = float(np.max(np.abs(states(sol) - exact[::5])))
            runs[name, h] = stepping(name, system, start, h, 2_000_000)
    cost = costs(runs)
    found = {
        name: [(errors[name, h], cost[name, h] * TIME / h / 1e6) for h in CURVES[name]] for name in CURVES
    }
    found["reference"] = []
    for tolerance in TOLERANCES:
        method = da.Reference(tolerance, tolerance)

        def run(method=method):
            return da.simulate(system, method, q0, v0, h=TIME / 100, steps=100)

        error = float(np.max(np.abs(states(run()) - exact)))
        found["reference"].append((error, 1e3 * min(seconds(run) for _ in range(ROUNDS))))
    return found


def work_and_error(name: str, system: da.System, start: str | None, exact: da.Trajectory) -> np.ndarray:
    """Milliseconds and error of the state at t = 10, for all numbers of steps whose error is between 1e-2 and 1e-11."""
    method = method_from_text(name)
    q0, v0 = system.start(start)
    runs, errors = {}, {}
    for n in SHARES:
        sol = da.simulate(system, method, q0, v0, h=10 / n, steps=n, save_every=n, throw=False)
        if sol.status is not da.Status.OK:
            continue
        error = np.max(np.abs(states(sol)[-1] - states(exact)[-1]))
        if error < 1e-2:
            runs[str(n)], errors[n] = stepping(name, system, start, 10 / n, n * 2000), error
        if error < 1e-11:
            break
    cost = costs(runs)
    return np.array([(cost[str(n)] * n / 1e6, error) for n, error in errors.items()])


def comparison() -> Iterator[list[str]]:
    """How much less the work of collocation is than that of a composition of the same order, for equal errors."""
    for label, (system, start) in PROBLEMS.items():
        q0, v0 = system.start(start)
        exact = da.simulate(system, da.Reference(), q0, v0, h=1.0, steps=10)
        cells = []
        for composed, stages in HIGH.items():
            ratios = []
            theirs = work_and_error(composed, system, start, exact)
            ours = work_and_error(f"frame:gauss={stages}", system, start, exact)
            for target in TARGETS:
                # The work for this error, between the settings on both sides of it.
                work = [np.interp(-np.log(target), -np.log(x[:, 1]), np.log(x[:, 0]), np.nan, np.nan) for x in
                        (theirs, ours)]  # fmt: skip
                ratios.append(np.exp(work[0] - work[1]))
            found = [x for x in ratios if np.isfinite(x)]
            print(label, composed, [f"{x:.1f}" for x in ratios], flush=True)
            cells.append(f"{min(found):.1f} to {max(found):.1f}" if found else "-")
        yield [label, *cells]


def states(sol: da.Trajectory) -> np.ndarray:
    """Rows of q and v."""
    return np.concatenate([sol.q, sol.v], axis=1)


def quickest(found: dict[str, list[tuple[float, float]]]) -> Iterator[list[str]]:
    """For each error: the quickest method, and the quickest of those that keep the energy exactly."""
    for target in TARGETS:
        row = [f"{target:.0e}"]
        for kind in ("", "frame"):
            fitting = [
                (ms, name)
                for name, points in found.items()
                for error, ms in points
                if error <= target and name.startswith(kind)
            ]
            row += [f"`{min(fitting)[1]}`", f"{min(fitting)[0]:.2g}"] if fitting else ["none", "-"]
        yield row


def draw(found: dict[str, list[tuple[float, float]]]) -> None:
    """Error against time, one line per method."""
    markers = {"2": "o", "4": "s", "6": "^", "8": "D", "10": "P"}
    figure, ax = plt.subplots(figsize=(7.5, 5.2), layout="constrained")
    for name, points in found.items():
        style = method_style(name)
        error, ms = zip(*sorted(points), strict=True)
        order = name.partition("@")[2] or str(2 * int(name.partition("gauss=")[2] or 1))
        dots = {"ls": "-.", "lw": 1.8} if "gauss" in name else {"lw": 1.2}
        ax.loglog(error, ms, marker=markers[order], ms=5, **{**style, **dots})
    ax.set(xlabel=f"largest error of the state up to t = {TIME:g}", ylabel="milliseconds")
    ax.set_title("PendulumCVT(eps=0.5), rotating start", loc="left")
    ax.invert_xaxis()
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "which-method.png", dpi=130)


def table(head: list[str], rows: Iterator[list[str]]) -> str:
    """A table in Markdown; numbers on the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measures, draws, writes."""
    cost = table(["method", *SYSTEMS], cost_rows())
    found = curves()
    draw(found)
    best = table(["error", "quickest", "ms", "quickest with exact energy", "ms"], quickest(found))
    high = table(["problem", "order 4", "order 6", "order 8"], comparison())
    text = f"""% Written by docs/which_method.py

### Cost of a step

Processor time of one step relative to leap-frog on the same system, or, where leap-frog is not defined, to the
quickest method that is. The step is 0.1, that of the particle 0.05. A dash: the method refuses the system, or its
steps end there. Of `edla` a run of 100 steps is timed, the call included; of the others a run of {BUSY:g} s or more.

{cost}

### Accuracy for the work

The pendulum CVT with eps = 0.5 to t = {TIME:g}: the largest error of any entry of q and v, against the processor
time of the steps alone. Of `reference` it is that of the whole call.

```{{figure}} which-method.png
:alt: Milliseconds against error for fifteen methods; composed DLA01 is lowest, collocation where the energy is kept

Lower is cheaper, right is more accurate. Marks: order 2 round, 4 square, 6 triangle, 8 diamond, 10 plus; collocation
is drawn in dots and dashes.
```

The cheapest of all settings tried that has at most this error:

{best}

### Collocation against compositions

The work of `frame@4`, `frame@6` and `frame@8`, divided by that of `frame:gauss=2`, `3` and `4`, which have the same
order, where both have the same error at t = 10: the least and the greatest of the ratios at the errors
{", ".join(f"{x:.0e}" for x in TARGETS)}, as far as both reach them.

{high}

Measured on {platform.machine()}, one core, dalembert {da.__version__}; the least of {ROUNDS} rounds, methods in turn.
"""
    (HERE / "_which_method.md").write_text(text)


if __name__ == "__main__":
    main()
