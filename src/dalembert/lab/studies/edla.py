"""EDLA, whose steps have the size that keeps the energy [cortes2003]: how step sizes change, and where runs end."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.diagnostics.variable_steps import edla_well_posedness
from dalembert.kernels import over_rows
from dalembert.lab.studies.drawing import log_axis, panels
from dalembert.lab.studies.result import Cell, Picture, Result, Table, number
from dalembert.lab.studies.shared_runs import Lab
from dalembert.methods import EDLA, FrameGradient, Method, Reference, Status, VariationalDLA
from dalembert.model import System, as_arrays, lower, total_energy
from dalembert.simulation import Trajectory, simulate
from dalembert.zoo import KnifeEdge, MobileRobot, NonholonomicParticle, RollingDisk

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STEP, SMALL = 0.05, 0.0125
"""The first step of the runs that go on, and of the runs that end."""
CONTINUED = 2000  # steps, made with the continuation
STEPS, SCAN, SETS = {False: 20_000, True: 2_000}, {False: 48, True: 17}, {False: 5, True: 2}
"""By whether the study is quick: the number of steps of runs that go on; the number of first steps 0.05 2^(-k/8) of
runs that end; and the number of sets with such runs."""
SHOWN = 20.0
"""The time until which the ratio h(t)/h0 is examined."""
PASSED = 1.25
"""A run that gets this many times as far as the zero of G has passed it; the next zeros are farther away."""
RIVALS: tuple[Method, ...] = (VariationalDLA(), FrameGradient())


class Problem(NamedTuple):
    """A system and a start."""

    name: str
    system: System
    q0: np.ndarray
    v0: np.ndarray
    expected: tuple[str, ...]
    """The values from an independent program: bounds of h where the run goes on, the zero of G and the end where it
    ends."""


# These functions are made once, so that two systems with the same one are compiled once.
FIELDS: dict[str, Any] = {
    "V = (x^2 + y^2)/2": lambda q: 0.5 * (q[0] ** 2 + q[1] ** 2),
    "V = |q|^2/2": lambda q: 0.5 * jnp.sum(q**2),
    "V = y^2/2": lambda q: 0.5 * q[1] ** 2,
    "V = z": lambda q: q[2],
    "V = -cos(y)": lambda q: -jnp.cos(q[1]),
}


def _particle(name: str, *expected: str) -> Problem:
    start = np.array([1.0, 0.6, 0.5]), np.array([1.0, 0.5, 0.6])
    return Problem(name, NonholonomicParticle(FIELDS[name]), *start, expected)


def _knife(speed: float, *expected: str) -> Problem:
    start = np.array([0.0, 0.0, 0.4]), np.array([speed * np.cos(0.4), speed * np.sin(0.4), 1.0])
    return Problem(f"knife edge, speed {speed:g}", KnifeEdge(), *start, expected)


def _robot(name: str, strength: float, heading: float, rates: tuple[float, float], *expected: str) -> Problem:
    rolling, turning = rates
    v0 = np.array([-rolling * np.cos(heading), -rolling * np.sin(heading), rolling, turning])
    robot = MobileRobot(strength=strength)
    return Problem(name, robot, np.array([0.0, 0.0, 0.0, heading]), v0, expected)


def safe() -> tuple[Problem, ...]:
    """The problems on which G keeps its sign."""
    return (
        _particle("V = (x^2 + y^2)/2", "0.0477", "0.0597"),
        _particle("V = |q|^2/2", "0.0484", "0.0778"),
        _knife(4.0, "0.0442", "0.0925"),
        _robot("robot, V = 10 sin(xi)", 10.0, -1.2, (1.0, 0.9), "0.0493", "0.0510"),
        _robot("robot, V = sin(xi), x3' = 0.85", 1.0, 0.3, (1.2 / np.sqrt(2), 0.7)),
    )


def unsafe() -> tuple[Problem, ...]:
    """The problems on which G changes its sign."""
    return (
        _particle("V = y^2/2", "1.88", "1.856"),
        _particle("V = z", "0.52", "0.517"),
        _particle("V = -cos(y)", "1.96", "1.946"),
        _knife(0.5, "0.06", "0.0586"),
        _robot("robot, V = sin(xi), x3' = 1.2", 1.0, 0.3, (1.2, 0.7)),
    )


def run_of(problem: Problem, method: Method, h: float, steps: int) -> Trajectory:
    """A run, as far as it gets."""
    return simulate(problem.system, method, problem.q0, problem.v0, h=h, steps=steps, throw=False)


def spread(energy: np.ndarray) -> float:
    """(largest - smallest)/size."""
    return float(np.ptp(energy) / np.max(np.abs(energy)))


def ratio(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """h(t)/h0 at the middle of each step, to which the step size of a symmetric method belongs."""
    t, h = np.asarray(run.t), np.asarray(run.step_data["h"])[1:]
    return 0.5 * (t[1:] + t[:-1]), h / h[0]


def gap(coarse: tuple[np.ndarray, np.ndarray], fine: tuple[np.ndarray, np.ndarray]) -> float:
    """The distance between h(t)/h0 for two first steps; the finer one is interpolated linearly between its middles."""
    seen = coarse[0] < SHOWN
    return float(np.max(np.abs(coarse[1] - np.interp(coarse[0], *fine))[seen]))


class Going(NamedTuple):
    """A set on which the run goes on."""

    problem: Problem
    status: Status
    h: np.ndarray
    plus: np.ndarray
    g: np.ndarray
    """G at each step; `plus` is E^+ at each step."""
    ratios: tuple[tuple[np.ndarray, np.ndarray], ...]
    """h(t)/h0 for h0 = 0.05, 0.025 and 0.0125."""

    @property
    def gaps(self) -> tuple[float, float]:
        """The distances between the first and the second ratio, and between the second and the third."""
        return gap(*self.ratios[:2]), gap(*self.ratios[1:])


class Tried(NamedTuple):
    """How a run with one first step ended."""

    h0: float
    end: float
    last: float
    status: Status
    kept: float
    """The spread of E^+."""


class Continued(NamedTuple):
    """A run with continuation=True."""

    end: float
    least: float
    """The smallest h; `jump` is the relative change of E^+ in the step that passes the zero."""
    jump: float
    status: Status


class Ending(NamedTuple):
    """A set on which the run ends."""

    problem: Problem
    zero: float
    run: Tried
    ratio: tuple[np.ndarray, np.ndarray]
    scan: tuple[Tried, ...]
    continued: Continued

    def tried(self, over: bool) -> tuple[Tried, ...]:
        """The runs of the scan that passed the zero, or the runs that did not."""
        return tuple(x for x in self.scan if (x.end > PASSED * self.zero) == over)


class Rival(NamedTuple):
    """The results of a method over a time, in a number of steps."""

    method: str
    steps: int
    end: float
    error: float
    """The distance of the position from the exact motion at the end."""
    middle: float
    """The spread of the energy in the middle of steps, which is E^+ for EDLA."""
    ends: float
    """The spread of the energy of the states (q, v)."""
    curve: tuple[np.ndarray, np.ndarray]
    """Times, and the error of the energy in the middle of steps, or of the states for the frame method."""


class Laws(NamedTuple):
    """The deviations from exact laws of free motion, and what rounding allows."""

    y: np.ndarray
    """The values of y in the middle of the steps of the particle."""
    h: np.ndarray
    kappa: float
    particle: float
    """The largest |h_k/(kappa sqrt(1 + y^2)) - 1|; `disk` is the largest |h_k/h0 - 1|."""
    disk: float
    rounding: tuple[float, float]
    """What rounding allows in each of the two."""


class Measured(NamedTuple):
    """All measurements."""

    going: tuple[Going, ...]
    ending: tuple[Ending, ...]
    rivals: dict[str, tuple[Rival, ...]]
    laws: Laws


def measure(lab: Lab) -> Measured:
    """The sets on which runs go on, the sets on which they end, the other methods, and the exact laws."""
    going = tuple(_going(lab, x) for x in safe())
    ending = tuple(_ending(lab, x) for x in unsafe()[: SETS[lab.quick]])
    lab.step("EDLA beside methods of equal steps")
    return Measured(going, ending, _rivals(going[0], ending[0]), _laws())


def _going(lab: Lab, problem: Problem) -> Going:
    lab.step(f"EDLA, {problem.name}")
    run = run_of(problem, EDLA(), STEP, STEPS[lab.quick])
    # On these sets the mean of h is at least h0/2, which bounds the number of steps that cover SHOWN.
    finer = [run_of(problem, EDLA(), h, round(2 * SHOWN / h)) for h in (STEP / 2, STEP / 4)]
    h, plus, g = (np.asarray(run.step_data[name])[1:] for name in ("h", "E_plus", "G"))
    return Going(problem, run.status, h, plus, g, tuple(ratio(x) for x in (run, *finer)))


def _tried(run: Trajectory) -> Tried:
    kept = spread(np.asarray(run.step_data["E_plus"])[1:])
    return Tried(float(run.h), float(run.t[-1]), float(run.step_data["h"][-1]), run.status, kept)


def _ending(lab: Lab, problem: Problem) -> Ending:
    lab.step(f"EDLA, {problem.name}")
    zero = edla_well_posedness(problem.system, problem.q0, problem.v0).zero
    assert zero is not None

    def trial(h: float) -> Trajectory:
        # Four times as many as equal steps would need: on the robot h falls to a third of h0 before it rises.
        return run_of(problem, EDLA(), h, round(4 * zero / h) + 20)

    run = trial(SMALL)
    scan = tuple(_tried(trial(STEP * 2 ** (-k / 8))) for k in range(SCAN[lab.quick]))
    on = run_of(problem, EDLA(continuation=True), STEP, CONTINUED)
    plus, count = (np.asarray(on.step_data[name])[1:] for name in ("E_plus", "continued"))
    jump = float(np.abs(plus[np.argmax(count > 0)] - plus[0]) / np.max(np.abs(plus)))
    continued = Continued(float(on.t[-1]), float(np.min(on.step_data["h"])), jump, on.status)
    return Ending(problem, zero, _tried(run), ratio(run), scan, continued)


def rival(problem: Problem, run: Trajectory, rows: int | None = None) -> Rival:
    """The results of a run, or of its first rows."""
    t, q, v = (np.asarray(x)[:rows] for x in (run.t, run.q, run.v))
    energy, system = over_rows(total_energy), lower(as_arrays(problem.system))
    ends = energy(system, q, v)
    if "E_plus" in run.step_data:  # the same energy, without the digits that differences lose
        middle = np.asarray(run.step_data["E_plus"])[1:rows]
    else:
        middle = energy(system, 0.5 * (q[1:] + q[:-1]), np.diff(q, axis=0) / np.diff(t)[:, None])
    # Twenty times are enough for the step control of the reference to begin well.
    exact = run_of(problem, Reference(), float(t[-1]) / 20, 20)
    error = float(np.linalg.norm(q[-1] - np.asarray(exact.q)[-1]))
    kept = ends if isinstance(run.method, FrameGradient) else middle
    curve = t[-len(kept) :], np.abs(kept / kept[0] - 1)
    assert run.method is not None
    return Rival(run.method.cli_name, len(t) - 1, float(t[-1]), error, spread(middle), spread(ends), curve)


def _beside(problem: Problem, run: Trajectory, rows: int | None = None) -> tuple[Rival, ...]:
    """The results of a run of EDLA, and of the other methods over the same time in as many steps."""
    first = rival(problem, run, rows)
    others = (run_of(problem, m, first.end / first.steps, first.steps) for m in RIVALS)
    return (first, *(rival(problem, x) for x in others))


def _rivals(going: Going, ending: Ending) -> dict[str, tuple[Rival, ...]]:
    good, bad = going.problem, ending.problem
    on = run_of(bad, EDLA(continuation=True), STEP, CONTINUED)
    # The first row beyond twice the time of the zero.
    rows = min(int(np.searchsorted(np.asarray(on.t), 2 * ending.zero)) + 1, len(on.t))
    return {
        good.name: _beside(good, run_of(good, EDLA(), STEP, 400)),
        f"{bad.name}, to the end of EDLA": _beside(bad, run_of(bad, EDLA(), STEP, 400)),
        f"{bad.name}, past the zero of G": _beside(bad, on, rows),
    }


def _laws() -> Laws:
    particle, disk = NonholonomicParticle(), RollingDisk()
    # The rounding of h grows as 1/(h^2 G), here as 1 + y^2; 100 steps leave ten digits.
    run = simulate(particle, EDLA(), *particle.start(), h=STEP, steps=100)
    rolling = simulate(disk, EDLA(), *disk.start(), h=STEP, steps=1000)
    q, h = np.asarray(run.q), np.asarray(run.step_data["h"])[1:]
    y = 0.5 * (q[1:, 1] + q[:-1, 1])
    law = np.sqrt(1 + y**2)
    kappa = float(h[0] / law[0])
    other = np.asarray(rolling.step_data["h"])[1:]
    free, disk = (float(np.max(np.abs(x - 1))) for x in (h / (kappa * law), other / STEP))
    return Laws(y, h, kappa, free, disk, (_rounding(run), _rounding(rolling)))


def _rounding(run: Trajectory) -> float:
    """The effect of rounding on h: each step is determined to eps E/(2 h^2 G), and the errors add up randomly."""
    h, plus, g = (np.asarray(run.step_data[name])[1:] for name in ("h", "E_plus", "G"))
    return float(np.sqrt(len(h)) * np.max(np.finfo(float).eps * np.abs(plus / (2 * h**2 * g))))


COLOURS = {
    "edla": "#117733",
    "edla:continuation": "#DDAA33",
    "dla-variational": "#882255",
    "frame": "#0072B2",
}
"""The colours of view.plots; the continuation of EDLA has its own colour."""
SET_COLOURS = ("#0072B2", "#D55E00", "#117733", "#882255", "#8a8a8a")
MARKS = ("o", "s", "^", "v", "D")
DASHED: dict[str, Any] = {"color": "#333333", "lw": 1.0, "ls": (0, (4, 3)), "zorder": 1}


def words(name: str) -> str:
    """The name as the figure writes it."""
    changes = (
        ("|q|^2", r"$|q|^2$"), ("x^2 + y^2", r"$x^2+y^2$"), ("y^2", r"$y^2$"), ("xi", r"$\xi$"), ("x3'", r"$x_3'$")
    )  # fmt: skip
    for old, new in changes:
        if old in name:
            name = name.replace(old, new)
            if old.startswith("x^2"):
                break
    return name.replace("-cos", "\N{MINUS SIGN}cos")


def draw(data: Measured) -> "Figure":
    """The figure, with six panels."""
    figure, axes = panels(3, 2, 9.6, (0.85, 0.82), bottom=0.6)
    _draw_going(axes[0, 0], data)
    _draw_energy(axes[0, 1], data)
    _draw_ending(axes[1, 0], data)
    _draw_scan(axes[1, 1], data)
    _draw_rivals(axes[2, 0], data)
    _draw_law(axes[2, 1], data)
    return figure


def _draw_going(ax: Any, data: Measured) -> None:
    for x, colour in zip(data.going, SET_COLOURS, strict=True):
        (t, rho), _, (s, fine) = x.ratios
        ax.plot(t[t < 20], rho[t < 20], color=colour, lw=1.4, label=words(x.problem.name))
        some = np.flatnonzero(s < 20)[::40]
        ax.plot(s[some], fine[some], ".", color=colour, ms=4.5)
    ax.set(xlim=(0, 20), xlabel="t", ylabel=r"$h(t)/h_0$", ylim=(0.5, 4.3))
    ax.legend(loc="upper left", ncol=2, columnspacing=1.0, handlelength=1.4, fontsize=8.5)
    ax.set_title("(a) step sizes where G keeps its sign")


def _draw_energy(ax: Any, data: Measured) -> None:
    for x, colour in zip(data.going, SET_COLOURS, strict=True):
        some = np.unique(np.geomspace(1, len(x.plus) - 1, 90).astype(int))
        error = np.abs(x.plus / x.plus[0] - 1)[some].clip(1e-17)
        ax.plot(some, error, ".", color=colour, ms=4)
    dla = data.rivals[data.going[0].problem.name][1]
    error = dla.curve[1].clip(1e-17)
    ax.plot(np.arange(1, len(error)), error[1:], color=COLOURS["dla-variational"], lw=1.2)
    ax.text(1.3, 2e-7, "DLA, equal steps", color=COLOURS["dla-variational"], va="bottom")
    ax.text(1.3, 3e-15, "EDLA", color="#333333", va="bottom")
    log_axis(ax, 1e-17, 1e-1, 4)
    ax.set(xscale="log", xlim=(1, None), xlabel="step", ylabel=r"$|E/E_0 - 1|$")
    ax.set_title("(b) energies there")


def _draw_ending(ax: Any, data: Measured) -> None:
    for x, colour, mark in zip(data.ending, SET_COLOURS, MARKS, strict=False):
        t, rho = (np.append(a, last) for a, last in zip(x.ratio, (x.run.end, x.ratio[1][-1]), strict=True))
        style = {"color": colour, "marker": mark, "markevery": [-1], "ms": 5, "lw": 1.4}
        ax.plot(t / x.zero, rho, **style, label=words(x.problem.name))
    ax.axvline(1, **DASHED, label="zero of G")
    ax.set(xlim=(0, 1.05), xlabel="t/(time of the zero of G)", ylabel=r"$h(t)/h_0$")
    ax.legend(loc="upper left", handlelength=1.8, fontsize=8.5)
    ax.set_title("(c) step sizes where G changes sign")


def _draw_scan(ax: Any, data: Measured) -> None:
    for x, colour, mark in zip(data.ending, SET_COLOURS, MARKS, strict=False):
        style = {"color": colour, "ls": "", "marker": mark, "ms": 4}
        away = [max(abs(y.end / x.zero - 1), 1e-5) for y in x.tried(over=False)]
        ax.plot([y.h0 for y in x.tried(over=False)], away, **style)
        over = [y.h0 for y in x.tried(over=True)]
        ax.plot(over, np.full(len(over), 1.2 if mark == "s" else 0.6), **style | {"mfc": "white"})
    ax.axhline(0.05, color="#b5b5b5", lw=0.8, zorder=0)
    log_axis(ax, 1e-5, 3.0, 1)
    ax.set(xscale="log", xlabel=r"$h_0$", ylabel="|end/zero of G \N{MINUS SIGN} 1|")
    ax.text(0.01, 0.055, "5 percent", transform=ax.get_yaxis_transform(), va="bottom", fontsize=8.5)
    ax.set_title("(d) where the runs of (c) end; open: got over")


def _draw_rivals(ax: Any, data: Measured) -> None:
    _, to_end, past = data.rivals.values()
    names = {
        "edla": "EDLA",
        "edla:continuation": "EDLA, continuation",
        "dla-variational": "DLA",
        "frame": "frame",
    }
    for x in (*past, to_end[0]):
        t, error = x.curve
        ax.plot(t, error.clip(1e-17), color=COLOURS[x.method], lw=1.4, label=names[x.method])
    t, error = to_end[0].curve
    ax.plot(t[-1], max(error[-1], 1e-17), "o", color=COLOURS["edla"], ms=5)
    ax.axvline(data.ending[0].zero, **DASHED, label="zero of G")
    log_axis(ax, 1e-17, 1e-2, 4)
    ax.set(xlim=(0, past[0].end), xlabel="t", ylabel=r"$|E/E_0 - 1|$")
    ax.legend(loc="center right", bbox_to_anchor=(1.0, 0.42), handlelength=1.8, fontsize=8.5)
    ax.set_title(r"(e) energies on V = $y^2$/2 across the zero")


def _draw_law(ax: Any, data: Measured) -> None:
    laws = data.laws
    y = np.linspace(laws.y[0], laws.y[-1], 200)
    ax.plot(y, np.sqrt(1 + y**2), color="#333333", lw=1.1, label=r"$\sqrt{1 + y^2}$")
    ax.plot(
        laws.y[::4], laws.h[::4] / laws.kappa, "o", color=COLOURS["edla"], ms=4.5, mfc="white", label="EDLA"
    )
    ax.set(xlabel="y in the middle of the step", ylabel=r"$h_k/\kappa$")
    ax.legend(loc="upper left", handlelength=1.8)
    ax.set_title("(f) free particle")


__all__ = ["measure", "present"]

SOURCE = "cortes2003"
# The bound for rounding: steps solve for E^+ to 2 eps, and the largest deviation in any of the runs is 3e-14.
KEPT = 1e-12


def present(lab: Lab, data: Measured) -> Result:
    """The study with its figure of six panels and four tables."""
    ending, steps = data.ending, STEPS[lab.quick]
    kept = max(spread(x.plus) for x in data.going)
    off = max(abs(x.run.end / x.zero - 1) for x in ending)
    far = max(abs(y.end - x.zero) / y.last for x in ending for y in x.tried(over=False))
    passing = [x for x in ending if x.tried(over=True)]
    jumps = [x.continued.jump for x in ending]
    good, to_end, past = data.rivals.values()
    said = (
        "The paper derives the method and shows no run of it. Time is one of the unknowns, and its equation says "
        "that the energy E+ with which a step arrives is the energy with which the next one departs. So each step has "
        "its own size. A step that keeps the energy exists near the last one only while a function G of the state "
        "keeps its sign. For a constant mass matrix 8 G = |R|^2 - |grad V|^2 - V''(v, v), with R the reaction of "
        "the constraint.",
    )
    found = (
        f"Where G keeps its sign the method runs on: over {steps:,} steps h stays within bounds, and E+ varies by "
        f"{number(kept)} of itself or less. h(t)/h0 does not depend on h0: curves for 0.05 and 0.025 are at most "
        f"{number(max(x.gaps[0] for x in data.going))} apart until t = 20, for 0.025 and 0.0125 at most "
        f"{number(max(x.gaps[1] for x in data.going))}.",
        f"Where G changes sign the run ends. With h0 = {SMALL:g} all do so within {100 * off:.1f} percent of the "
        f"time of the zero, and with every h0 tried a run that ends does so within {far:.1f} of its last steps. "
        f"{_passing(passing)}{_robot_words(ending)}",
        f"With continuation=True the zero is passed by a step that misses the energy, by {number(min(jumps))} to "
        f"{number(max(jumps))} of itself with h0 = {STEP:g}. It does not help for long: on V = y^2/2 the run then "
        f"takes steps down to {number(ending[0].continued.least)}, and with {CONTINUED} steps gets to t = "
        f"{ending[0].continued.end:.2f} ({ending[0].continued.status.value}).",
        f"At equal cost the positions are about as good as those of methods with equal steps: {_errors(good)} on "
        f"V = (x^2 + y^2)/2, {_errors(to_end)} on V = y^2/2 up to where EDLA ends. Past the zero, where its steps "
        f"are small, they are worse: {_errors(past)}. The DLA and the frame method do not notice the zero of G; "
        "the frame method keeps the energy as "
        "well as EDLA does, with equal steps.",
    )
    picture = Picture(
        "edla",
        draw(data),
        f"EDLA with the midpoint rule. (a) Step sizes where G keeps its sign: lines h0 = {STEP:g}, dots h0 = "
        f"{SMALL:g}. (b) Error of the energy over {steps:,} steps there: dots E+ of EDLA, line the energy in the "
        f"middle of 400 steps of the DLA on V = (x^2 + y^2)/2. (c) Step sizes with h0 = {SMALL:g} where G changes "
        "sign, up to the last step. (d) How far from the zero of G runs end, against h0; runs that got over it "
        f"stand on the upper edge. (e) Error of the energy on V = y^2/2 across the zero, h0 = {STEP:g}, the others "
        "in as many steps. (f) The free particle: the exact law of the step sizes.",
        "Six panels: step sizes that go up and down within bounds; energies at rounding; step sizes that grow "
        "until the zero of G, where the runs end; the distance of the ends from the zero, which falls with the "
        "first step; a jump of the energy where the continuation passes the zero; and step sizes of the free "
        "particle on the curve of the exact law.",
    )
    tables = (_going_table(data, steps), _ending_table(data), _rivals_table(data), _laws_table(data))
    title = "EDLA: steps of the size that keeps the energy, and where they end"
    return Result("edla", title, said, found, (picture,), tables, data, ours=True, source=SOURCE)


def _passing(sets: list[Ending]) -> str:
    if not sets:
        return "None got over the zero."
    each = " and ".join(f"{len(x.tried(over=True))} of {len(x.scan)} on {x.problem.name}" for x in sets)
    kept = max(y.kept for x in sets for y in x.tried(over=True))
    return (
        f"Not every run ends: for some h0 a step reaches over the zero and the run goes on ({each}), with E+ kept "
        f"to {number(kept)}."
    )


def _robot_words(ending: tuple[Ending, ...]) -> str:
    """A sentence on the robot, if its ending run was made, as in the full study."""
    if not any("robot" in x.problem.name for x in ending):
        return ""
    return " The robot ends or goes on by its speed: with x3' = 0.85 G keeps its sign, with x3' = 1.2 it does not."


def _errors(rivals: tuple[Rival, ...]) -> str:
    first, dla, frame = (number(x.error) for x in rivals)
    return f"{first} (EDLA), {dla} (DLA) and {frame} (frame) away after {rivals[0].steps} steps"


def agrees(x: float, expected: str) -> bool:
    """Whether x agrees with the expected text to within one unit of its last digit."""
    return abs(x - float(expected)) <= 1.001 * 10.0 ** -len(expected.partition(".")[2])


def _cell(x: float, expected: str) -> Cell:
    digits = len(expected.partition(".")[2])
    tone = "good" if agrees(x, expected) else "differs"
    return Cell(f"{x:.{digits + 1}f}", tone, (f"expected {expected}",))


def _going_table(data: Measured, steps: int) -> Table:
    rows = []
    for x in data.going:
        least, most = (float(f(x.h)) for f in (np.min, np.max))
        expected = x.problem.expected
        bounds = [_cell(v, e) for v, e in zip((least, most), expected, strict=False)]
        kept, sign = spread(x.plus), np.min(x.g) * np.max(x.g) > 0
        whole = x.status is Status.OK
        rows.append(
            (
                Cell(x.problem.name),
                Cell(
                    f"{len(x.h):,}", "good" if whole else "drift", () if whole else (x.status.name.lower(),)
                ),
                *(bounds or [Cell(f"{v:.4f}") for v in (least, most)]),
                Cell(number(kept), "exact" if kept < KEPT else "drift", ("expected: rounding",)),
                Cell(f"{np.min(x.g):.3f} to {np.max(x.g):.3f}", "good" if sign else "differs"),
                # Gaps should fall in proportion to h0 or faster: a ratio of 1/2 is expected, and 0.6 leaves room.
                *(Cell(number(gap), "good" if x.gaps[1] < 0.6 * x.gaps[0] else "differs") for gap in x.gaps),
            )
        )
    caption = (
        f"Sets where G keeps its sign, h0 = {STEP:g}, {steps:,} steps: smallest and largest h, relative variation "
        "of E+, G along the run, and how far h(t)/h0 for two h0 are apart until t = 20 (expected: in proportion "
        "to h0). Expected values are those of an independent program, to one unit of their last digit."
    )
    columns = ("set", "steps", "least h", "largest h", "E+", "G", "h0, h0/2", "h0/2, h0/4")
    return Table(caption, columns, tuple(rows))


def _jump(x: float) -> str:
    """The tone of a jump: whether it lies in the expected range, which is given to one digit."""
    return "good" if 0.5e-5 <= x < 4.5e-4 else "differs"


def _ending_table(data: Measured) -> Table:
    rows = []
    for x in data.ending:
        off = x.run.end / x.zero - 1
        times = [_cell(v, e) for v, e in zip((x.zero, x.run.end), x.problem.expected, strict=False)]
        over = len(x.tried(over=True))
        stopped = x.run.status in (Status.NO_ROOT, Status.NONPOSITIVE_H)
        on = x.continued
        rows.append(
            (
                Cell(x.problem.name),
                *(times or [Cell(f"{v:.4f}") for v in (x.zero, x.run.end)]),
                Cell(f"{100 * off:+.1f} %", "good" if abs(off) < 0.05 else "differs"),
                Cell(x.run.status.name.lower(), "good" if stopped else "differs"),
                Cell(number(x.run.kept), "exact" if x.run.kept < KEPT else "drift"),
                Cell(f"{over} of {len(x.scan)}", "differs" if over else "good"),
                Cell(number(on.jump), _jump(on.jump)),
                Cell(f"t = {on.end:.2f}", notes=(on.status.name.lower(), f"least h {number(on.least)}")),
            )
        )
    caption = (
        f"Sets where G changes sign, h0 = {SMALL:g}: time of the zero of G, time at which the run ends, its status "
        "(expected: no_root or nonpositive_h, within 5 percent) and the variation of E+ up to there; how many of "
        "several h0 got over the zero (expected: none). Then the energy that continuation=True misses there with "
        f"h0 = {STEP:g} (expected: 1e-5 to 4e-4), and where {CONTINUED} steps of it come to."
    )
    columns = ("set", "zero of G", "end", "off", "status", "E+", "got over", "jump", "continued to")
    return Table(caption, columns, tuple(rows))


def _rivals_table(data: Measured) -> Table:
    rows = []
    for place, rivals in data.rivals.items():
        for x in rivals:
            cells = [Cell(number(v), "exact" if v < KEPT else "drift") for v in (x.middle, x.ends)]
            rows.append(
                (Cell(place, notes=(x.method,)), Cell(x.method), Cell(str(x.steps)), Cell(f"{x.end:.3f}"),
                 Cell(number(x.error)), *cells)
            )  # fmt: skip
    caption = (
        "EDLA beside methods of equal steps, over the same time in as many steps: distance of the position from "
        "the exact motion at the end, and relative variation of the energy in the middle of steps and at their "
        "ends. Expected: EDLA keeps the first until the zero of G, the frame method the second, the DLA neither."
    )
    return Table(caption, ("set", "method", "steps", "end", "error", "E, middle", "E, ends"), tuple(rows))


def _laws_table(data: Measured) -> Table:
    laws = data.laws
    entries = (
        ("free particle, h = kappa sqrt(1 + y^2)", laws.particle, laws.rounding[0]),
        ("rolling disk, h constant", laws.disk, laws.rounding[1]),
    )
    rows = tuple(
        (Cell(name), Cell(number(off), "exact" if off < bound else "differs"), Cell(f"below {number(bound)}"))
        for name, off, bound in entries
    )
    caption = (
        f"Exact laws of the midpoint rule without a potential, kappa = {number(laws.kappa, 3)} from the first step: "
        "largest relative deviation of h, beside what rounding allows, eps E/(2 h^2 G) per step times the square root "
        "of the number of steps."
    )
    return Table(caption, ("law", "deviation", "expected"), rows)
