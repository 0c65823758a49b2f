"""The runs of the study of EDLA: where its steps go on, where they end, and what methods of equal steps do there."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.diagnostics.variable_steps import edla_well_posedness
from dalembert.methods import EDLA, FrameGradient, Method, Reference, Status, VariationalDLA
from dalembert.model import System, as_arrays, lower, total_energy
from dalembert.numerics import over_rows
from dalembert.simulate import Trajectory, simulate
from dalembert.studies.lab import Lab
from dalembert.zoo import KnifeEdge, MobileRobot, NonholonomicParticle, RollingDisk

STEP, SMALL = 0.05, 0.0125
"""First steps: of the runs that go on, and of those that end."""
CONTINUED = 2000  # steps, made with the continuation
STEPS, SCAN, SETS = {False: 20_000, True: 2_000}, {False: 48, True: 17}, {False: 5, True: 2}
"""By whether it is quick: steps where it goes on; first steps 0.05 2^(-k/8) where it ends; how many such sets."""
SHOWN = 20.0
"""How long the ratio h(t)/h0 is looked at."""
PASSED = 1.25
"""A run that comes this many times as far as the zero of G has got over it; the next zeros are farther."""
RIVALS: tuple[Method, ...] = (VariationalDLA(), FrameGradient())


class Problem(NamedTuple):
    """A system and a start."""

    name: str
    system: System
    q0: np.ndarray
    v0: np.ndarray
    expected: tuple[str, ...]
    """Bounds of h where the steps go on; the zero of G and the end where they end. By an independent program."""


# Made once, so that a system made twice is compiled once.
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
    """Where G keeps its sign."""
    return (
        _particle("V = (x^2 + y^2)/2", "0.0477", "0.0597"),
        _particle("V = |q|^2/2", "0.0484", "0.0778"),
        _knife(4.0, "0.0442", "0.0925"),
        _robot("robot, V = 10 sin(xi)", 10.0, -1.2, (1.0, 0.9), "0.0493", "0.0510"),
        _robot("robot, V = sin(xi), x3' = 0.85", 1.0, 0.3, (1.2 / np.sqrt(2), 0.7)),
    )


def unsafe() -> tuple[Problem, ...]:
    """Where it does not."""
    return (
        _particle("V = y^2/2", "1.88", "1.856"),
        _particle("V = z", "0.52", "0.517"),
        _particle("V = -cos(y)", "1.96", "1.946"),
        _knife(0.5, "0.06", "0.0586"),
        _robot("robot, V = sin(xi), x3' = 1.2", 1.0, 0.3, (1.2, 0.7)),
    )


def run_of(problem: Problem, method: Method, h: float, steps: int) -> Trajectory:
    """A run, as far as it comes."""
    return simulate(problem.system, method, problem.q0, problem.v0, h=h, steps=steps, throw=False)


def spread(energy: np.ndarray) -> float:
    """(largest - smallest)/size."""
    return float(np.ptp(energy) / np.max(np.abs(energy)))


def ratio(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """h(t)/h0 at the middle of each step, which is where a symmetric method means it."""
    t, h = np.asarray(run.t), np.asarray(run.told["h"])[1:]
    return 0.5 * (t[1:] + t[:-1]), h / h[0]


def gap(coarse: tuple[np.ndarray, np.ndarray], fine: tuple[np.ndarray, np.ndarray]) -> float:
    """How far h(t)/h0 of two first steps are apart: that of the smaller by straight lines between its middles."""
    seen = coarse[0] < SHOWN
    return float(np.max(np.abs(coarse[1] - np.interp(coarse[0], *fine))[seen]))


class Going(NamedTuple):
    """A set on which the steps go on."""

    problem: Problem
    status: Status
    h: np.ndarray
    plus: np.ndarray
    g: np.ndarray
    """Of each step, as E^+."""
    ratios: tuple[tuple[np.ndarray, np.ndarray], ...]
    """h(t)/h0 for h0 = 0.05, 0.025 and 0.0125."""

    @property
    def gaps(self) -> tuple[float, float]:
        """Between the first and the second ratio, and between the second and the third."""
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
    """The smallest h; `jump` is the relative change of E^+ in the step that gets over the zero."""
    jump: float
    status: Status


class Ending(NamedTuple):
    """A set on which the steps end."""

    problem: Problem
    zero: float
    run: Tried
    ratio: tuple[np.ndarray, np.ndarray]
    scan: tuple[Tried, ...]
    continued: Continued

    def tried(self, over: bool) -> tuple[Tried, ...]:
        """Those of the scan that got over the zero, or those that did not."""
        return tuple(x for x in self.scan if (x.end > PASSED * self.zero) == over)


class Rival(NamedTuple):
    """A method over a time, in a number of steps."""

    method: str
    steps: int
    end: float
    error: float
    """Distance of the position from the exact motion at the end."""
    middle: float
    """Spread of the energy in the middle of steps, which is E^+ of EDLA."""
    ends: float
    """Spread of the energy of the states (q, v)."""
    curve: tuple[np.ndarray, np.ndarray]
    """Times, and the error of the energy in the middle; of the frame method, of the states."""


class Laws(NamedTuple):
    """Exact laws of free motion, and what rounding allows."""

    y: np.ndarray
    """In the middle of the steps of the particle."""
    h: np.ndarray
    kappa: float
    particle: float
    """The largest |h_k/(kappa sqrt(1 + y^2)) - 1|; the next that of h_k/h0 - 1."""
    disk: float
    rounding: tuple[float, float]
    """What rounding allows in the two."""


class Measured(NamedTuple):
    """All of it."""

    going: tuple[Going, ...]
    ending: tuple[Ending, ...]
    rivals: dict[str, tuple[Rival, ...]]
    laws: Laws


def measure(lab: Lab) -> Measured:
    """The sets where it goes on, those where it ends, the others, the exact laws."""
    going = tuple(_going(lab, x) for x in safe())
    ending = tuple(_ending(lab, x) for x in unsafe()[: SETS[lab.quick]])
    lab.step("EDLA beside methods of equal steps")
    return Measured(going, ending, _rivals(going[0], ending[0]), _laws())


def _going(lab: Lab, problem: Problem) -> Going:
    lab.step(f"EDLA, {problem.name}")
    run = run_of(problem, EDLA(), STEP, STEPS[lab.quick])
    # On these sets the mean of h is at least h0/2, which bounds how many steps cover SHOWN.
    finer = [run_of(problem, EDLA(), h, round(2 * SHOWN / h)) for h in (STEP / 2, STEP / 4)]
    h, plus, g = (np.asarray(run.told[name])[1:] for name in ("h", "E_plus", "G"))
    return Going(problem, run.status, h, plus, g, tuple(ratio(x) for x in (run, *finer)))


def _tried(run: Trajectory) -> Tried:
    kept = spread(np.asarray(run.told["E_plus"])[1:])
    return Tried(float(run.h), float(run.t[-1]), float(run.told["h"][-1]), run.status, kept)


def _ending(lab: Lab, problem: Problem) -> Ending:
    lab.step(f"EDLA, {problem.name}")
    zero = edla_well_posedness(problem.system, problem.q0, problem.v0).zero
    assert zero is not None

    def trial(h: float) -> Trajectory:
        # Four times what equal steps would take: on the robot h falls to a third of h0 before it rises.
        return run_of(problem, EDLA(), h, round(4 * zero / h) + 20)

    run = trial(SMALL)
    scan = tuple(_tried(trial(STEP * 2 ** (-k / 8))) for k in range(SCAN[lab.quick]))
    on = run_of(problem, EDLA(continuation=True), STEP, CONTINUED)
    plus, count = (np.asarray(on.told[name])[1:] for name in ("E_plus", "continued"))
    jump = float(np.abs(plus[np.argmax(count > 0)] - plus[0]) / np.max(np.abs(plus)))
    continued = Continued(float(on.t[-1]), float(np.min(on.told["h"])), jump, on.status)
    return Ending(problem, zero, _tried(run), ratio(run), scan, continued)


def rival(problem: Problem, run: Trajectory, rows: int | None = None) -> Rival:
    """What there is to say of a run, or of its first rows."""
    t, q, v = (np.asarray(x)[:rows] for x in (run.t, run.q, run.v))
    energy, system = over_rows(total_energy), lower(as_arrays(problem.system))
    ends = energy(system, q, v)
    if "E_plus" in run.told:  # the same without the digits that differences lose
        middle = np.asarray(run.told["E_plus"])[1:rows]
    else:
        middle = energy(system, 0.5 * (q[1:] + q[:-1]), np.diff(q, axis=0) / np.diff(t)[:, None])
    # Twenty times are enough for its own step control to begin well.
    exact = run_of(problem, Reference(), float(t[-1]) / 20, 20)
    error = float(np.linalg.norm(q[-1] - np.asarray(exact.q)[-1]))
    kept = ends if isinstance(run.method, FrameGradient) else middle
    curve = t[-len(kept) :], np.abs(kept / kept[0] - 1)
    assert run.method is not None
    return Rival(run.method.spelling, len(t) - 1, float(t[-1]), error, spread(middle), spread(ends), curve)


def _beside(problem: Problem, run: Trajectory, rows: int | None = None) -> tuple[Rival, ...]:
    """A run of EDLA, and the others over the same time in as many steps."""
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
    # Rounding of h grows as 1/(h^2 G), here as 1 + y^2; 100 steps leave ten digits.
    run = simulate(particle, EDLA(), *particle.start(), h=STEP, steps=100)
    rolling = simulate(disk, EDLA(), *disk.start(), h=STEP, steps=1000)
    q, h = np.asarray(run.q), np.asarray(run.told["h"])[1:]
    y = 0.5 * (q[1:, 1] + q[:-1, 1])
    law = np.sqrt(1 + y**2)
    kappa = float(h[0] / law[0])
    other = np.asarray(rolling.told["h"])[1:]
    free, disk = (float(np.max(np.abs(x - 1))) for x in (h / (kappa * law), other / STEP))
    return Laws(y, h, kappa, free, disk, (_rounding(run), _rounding(rolling)))


def _rounding(run: Trajectory) -> float:
    """How far rounding may carry h: each step is determined to eps E/(2 h^2 G), and their errors add up by chance."""
    h, plus, g = (np.asarray(run.told[name])[1:] for name in ("h", "E_plus", "G"))
    return float(np.sqrt(len(h)) * np.max(np.finfo(float).eps * np.abs(plus / (2 * h**2 * g))))
