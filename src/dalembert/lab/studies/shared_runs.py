"""The runs that several studies share, each made once."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dalembert.diagnostics import CoupledSystem, Drift, Latitude, drift, running_mean
from dalembert.kernels import over_rows
from dalembert.methods import Method, method_from_text
from dalembert.numerics import Numbers
from dalembert.simulation import Trajectory, ensemble
from dalembert.zoo import KnifeEdge, PendulumCVT

NAMES = {
    "dla:0.5": "DLA 0.5",
    "dla:0.4": "DLA 0.4",
    "dla01": "DLA 0,1",
    "leapfrog:momentum": "leap-frog",
    "dd": "DD",
    "frame": "frame",
    "frame@4": "frame, order 4",
}
"""The five methods of the paper, then ours: their names on the command line, and in figures."""
PAPER = tuple(NAMES)[:5]
METHODS = tuple(NAMES)
OWN_VELOCITY = ("dd",)
"""The methods whose energy is taken at their own velocity, because they are designed to keep that energy."""

CVT_STEP, CVT_SHOWN, CVT_WINDOW = 0.1, 3000.0, 30.0
KNIFE_STEP, KNIFE_SHOWN, KNIFE_WINDOW = np.pi / 10, 100.0, 3.0
KNIFE_EPS = (0.0, 0.1)
POINTS = 400
"""The number of points of a curve in a figure."""


class Panel(NamedTuple):
    """One of the four motions of the pendulum CVT."""

    start: str
    eps: float

    @property
    def title(self) -> str:
        """The title of the panel."""
        return f"{self.start} driver, eps = {self.eps:g}"


PANELS = tuple(Panel(start, eps) for start in ("oscillating", "rotating") for eps in (0.0, 0.5))


class Settings(NamedTuple):
    """The lengths and resolutions of the studies."""

    cvt: float
    """The length of the runs behind the verdicts on the CVT; runs of the knife edge are ten times as long as the
    figure shows."""
    members: tuple[int, int, int]
    """The numbers of values of T/h in the first sweep, by leap-frog, discrete gradient and frame."""
    refinements: int
    sweep_steps: int
    exponent_steps: int
    parasitic_steps: int
    states: int
    """The number of random states at which one step is examined."""


FULL = Settings(30_000.0, (1000, 700, 150), 7, 30_000, 40_960, 300_000, 256)
QUICK = Settings(9_000.0, (281, 161, 61), 2, 5_000, 8_192, 40_000, 256)


class Stopped(Exception):
    """The user asked to stop."""


class Kept(NamedTuple):
    """The verdict and the curve of one quantity in one run."""

    t: np.ndarray
    mean: np.ndarray
    """The running mean of the absolute error, over the time that the figure shows."""
    drift: Drift


class Lab:
    """The settings, a store of shared results, and a way to report progress."""

    def __init__(
        self,
        quick: bool = False,
        names: tuple[str, ...] = (),
        say: Callable[[str], None] | None = None,
        folder: Path | None = None,
    ):
        self.quick, self.names, self.folder = quick, names, folder
        self.settings = QUICK if quick else FULL
        self.stopped = threading.Event()
        self._say = say or (lambda text: None)
        self._lock = threading.RLock()
        self._locks: dict[Any, threading.RLock] = {}
        self._made: dict[Any, Any] = {}

    def step(self, text: str) -> None:
        """Reports the next computation; raises Stopped if the user has asked to stop."""
        if self.stopped.is_set():
            raise Stopped
        self._say(text)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """The result of `make`, which is called only once per key; other threads wait for it."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.RLock())
        with lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def coupled(self, panel: Panel) -> CoupledSystem:
        """The pendulum CVT of a panel."""
        return self.once(("coupled", panel.eps), lambda: CoupledSystem.of(PendulumCVT(eps=panel.eps)))

    def latitude(self, panel: Panel) -> Latitude:
        """The hidden integral of a panel, with period, angle and axis."""

        def make() -> Latitude:
            self.step(f"period map, {panel.title}")
            return Latitude.of(self.coupled(panel), *PendulumCVT().start(panel.start), CVT_STEP)

        return self.once(("latitude", panel), make)

    def cvt(self, spelling: str) -> dict[Panel, dict[str, Kept]]:
        """The passenger energy, driver energy and latitude in the four motions by one method."""
        return self.once(("cvt", spelling), lambda: self._cvt(spelling))

    def _cvt(self, spelling: str) -> dict[Panel, dict[str, Kept]]:
        self.step(f"pendulum CVT by {spelling}")
        runs = self.cvt_runs(spelling, round(self.settings.cvt / CVT_STEP))
        return {p: self._kept(p, run, spelling in OWN_VELOCITY) for p, run in zip(PANELS, runs, strict=True)}

    def cvt_runs(self, spelling: str, steps: int, panels: tuple[Panel, ...] = PANELS) -> list[Trajectory]:
        """The runs of the motions, computed side by side."""
        system = PendulumCVT(eps=np.array([p.eps for p in panels]))  # pyright: ignore[reportArgumentType]
        starts = [PendulumCVT().start(p.start) for p in panels]
        q0, v0 = (np.array([s[i] for s in starts], float) for i in (0, 1))
        method = method_from_text(spelling)
        sol = ensemble(system, method, q0, v0, h=CVT_STEP, steps=steps, vary=["eps"])
        return [sol.member(i) for i in range(len(panels))]

    def _kept(self, panel: Panel, run: Trajectory, own: bool) -> dict[str, Kept]:
        coupled = self.coupled(panel)
        kept = {}
        if "fig6" in self.names:
            u = run.v_full if own else run.v
            kept["E"] = _keep(run.t, over_rows(CoupledSystem.passenger_energy)(coupled, run.q, u))
        if "fig7" in self.names:
            kept["h"] = _keep(run.t, over_rows(CoupledSystem.driver_energy)(coupled, run.q, run.v))
        if "fig8" in self.names:
            latitude = self.latitude(panel)
            kept["latitude"] = _keep(*latitude.along(run), start=latitude.start)
        return kept

    def knife(self, spelling: str) -> list[Trajectory]:
        """The knife edge without and with the perturbation, ten times as long as the figure shows."""

        def make():
            self.step(f"knife edge by {spelling}")
            method: Method = method_from_text(spelling)
            system = KnifeEdge(eps=np.array(KNIFE_EPS))  # pyright: ignore[reportArgumentType]
            q0, v0 = (np.tile(np.asarray(x, float), (len(KNIFE_EPS), 1)) for x in KnifeEdge().start())
            steps = round(10 * KNIFE_SHOWN / KNIFE_STEP)
            sol = ensemble(system, method, q0, v0, h=KNIFE_STEP, steps=steps, vary=["eps"])
            return [sol.member(i) for i in range(len(KNIFE_EPS))]

        return self.once(("knife", spelling), make)


def keep(
    t: np.ndarray,
    x: np.ndarray,
    window: float,
    shown: float,
    start: float | None = None,
    early: float | None = None,
) -> Kept:
    """The verdict on one quantity, and its curve."""
    found = drift(t, x, window, start=start, early=early)
    first = t <= shown * (1 + 1e-9)
    error = np.abs(x - (x[0] if start is None else start))
    times, mean = running_mean(t[first], error[first], window)
    chosen = np.unique(np.linspace(0, len(times) - 1, POINTS).astype(int))
    return Kept(times[chosen], mean[chosen], found)


def _keep(t: Numbers, x: np.ndarray, start: float | None = None) -> Kept:
    return keep(np.asarray(t), x, CVT_WINDOW, CVT_SHOWN, start)


def random_states(coupled: CoupledSystem, count: int, on_constraint: bool) -> tuple[np.ndarray, np.ndarray]:
    """Random configurations and own velocities, on the constraint or anywhere."""
    draw = np.random.default_rng(20)
    n = coupled.system.dimension
    q, u = draw.normal(size=(count, n)), draw.normal(size=(count, n))
    if on_constraint:
        k = over_rows(CoupledSystem.k)(coupled, q[:, coupled.index])
        u[:, coupled.others] = u[:, coupled.others][:, :1] * k
    return q, u
