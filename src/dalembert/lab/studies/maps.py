"""Maps of what a method loses over parameter and step, and of its resonances: a million trajectories in all."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dalembert.diagnostics import judged_together
from dalembert.diagnostics.series import VERDICTS
from dalembert.lab.studies.drawing import WIDTH
from dalembert.lab.studies.result import Picture, Result, Table, number, plain_row
from dalembert.lab.studies.shared_runs import Lab
from dalembert.results import sweep
from dalembert.simulation import Trajectory
from dalembert.sweeps.scheduling import local_cluster

METHODS = {"leapfrog:momentum": "leap-frog", "dd:average": "DD with separate gradients", "frame": "frame"}
EPS = 0.5
"""The eps of the map of resonances, with which the driver is not reversible."""
EPSES, STEPS = (0.0, 0.6), (0.05, 0.45)
ENERGIES, RATIOS = (2.6, 8.0), (8.0, 30.0)
SHOWN = {
    "drift": ("eps", "h", "passenger_slope", (1e-9, 1e-3), "|slope| of the passenger energy"),
    "resonance": (
        "ratio",
        "driver_energy",
        "passenger_error",
        (1e-5, 1.0),
        "largest error of the passenger energy",
    ),
}
"""The dimensions along x and y, the variable, its limits, and its label."""
AXES = {"ratio": "T/h, steps in one turn of the driver", "driver_energy": "energy of the driver"}
WORDS = {
    "drift": "Slope of the running mean of the passenger energy over eps and step size; rotating driver of energy 4.",
    "resonance": "Largest error of the passenger energy over T/h and the driver's energy; rotating, eps = 0.5.",
}


class Sizes(NamedTuple):
    """The resolution of the maps and the length of the runs."""

    drift: tuple[int, int]
    """The numbers of values of eps and h."""
    resonance: tuple[int, int]
    """The numbers of driver energies and of values of T/h."""
    steps: int


FULL, QUICK = Sizes((460, 360), (300, 560), 1500), Sizes((48, 40), (40, 90), 1000)


class Measured(NamedTuple):
    """The two datasets."""

    drift: Any
    resonance: Any
    sizes: Sizes

    @property
    def trajectories(self) -> int:
        """The number of trajectories in both maps."""
        return int(self.drift["status"].size + self.resonance["status"].size)


def passenger(sol: Trajectory) -> dict[str, np.ndarray]:
    """The largest error, the slope and the verdict of the passenger's energy, which is one at the start."""
    energy = 0.5 * np.sum(sol.q[..., :2] ** 2 + sol.v[..., :2] ** 2, axis=-1)
    t = np.asarray(sol.t)
    found = judged_together(t, energy, (t[..., -1] - t[..., 0]) / 100, 1.0)
    names = {"largest": "error", "slope": "slope", "error": "slope_error"}
    kept = {f"passenger_{name}": found[key] for key, name in names.items()}
    return kept | {"passenger_verdict": found["verdict"].astype(int)}


def period(energy: np.ndarray, points: int = 400) -> np.ndarray:
    """The time of one turn of a driver with an energy above the top of its potential: the integral of dxi/xi'.

    The trapezoidal rule converges exponentially, since the integrand is periodic.
    """
    xi = 2 * np.pi * np.arange(points) / points
    potential = 1 - np.cos(xi) + 0.5 * EPS * np.sin(2 * xi)
    return 2 * np.pi * np.mean(1 / np.sqrt(2 * (np.asarray(energy)[..., None] - potential)), axis=-1)


def at_energy(driver_energy: np.ndarray, ratio: np.ndarray) -> dict[str, np.ndarray]:
    """The start speed and the step of a driver with this energy that turns once in `ratio` steps."""
    distinct, place = np.unique(driver_energy, return_inverse=True)
    return {"v0.xi": np.sqrt(2 * driver_energy), "h": period(distinct)[place] / ratio}


def specs(sizes: Sizes) -> dict[str, dict[str, Any]]:
    """The specs of the two sweeps."""
    shared = {"system": "PendulumCVT", "start": "rotating", "steps": sizes.steps, "reduce": [passenger]}
    methods = list(METHODS)

    def span(ends: tuple[float, float], count: int) -> dict[str, Any]:
        return {"from": ends[0], "to": ends[1], "count": count}

    eps, h = (span(ends, n) for ends, n in zip((EPSES, STEPS), sizes.drift, strict=True))
    energy, ratio = (span(ends, n) for ends, n in zip((ENERGIES, RATIOS), sizes.resonance, strict=True))
    return {
        "drift": {**shared, "grid": {"method": methods, "h": h, "eps": eps}},
        "resonance": {
            **shared,
            "parameters": {"eps": EPS},
            "members": at_energy,
            "grid": {"method": methods, "driver_energy": energy, "ratio": ratio},
        },
    }


def measure(lab: Lab) -> Measured:
    """Both sweeps, run on all cores. Their stores stay in the report's folder, where an interrupted one continues."""
    sizes = QUICK if lab.quick else FULL
    lab.step("starting workers")
    with tempfile.TemporaryDirectory() as scratch, local_cluster() as cluster:
        folder = Path(lab.folder or scratch)
        found = {}
        for name, spec in specs(sizes).items():
            store = folder / f"map-{name}{'-quick' * lab.quick}.zarr"

            def said(done: int, total: int, name: str = name) -> None:
                lab.step(f"{name} map, {done:,} of {total:,} trajectories")

            lab.step(f"{name} map")
            found[name] = sweep(spec, store, cluster.scheduler_address, progress=said).load()
    return Measured(found["drift"], found["resonance"], sizes)


def shares(data: Any) -> dict[str, float]:
    """The fraction of the trajectories of each method whose passenger energy drifts."""
    drifts = data["passenger_verdict"] == VERDICTS.index(next(v for v in VERDICTS if v.name == "DRIFT"))
    return {name: float(drifts.sel(integrator=name).mean()) for name in METHODS}


def present(lab: Lab, data: Measured) -> Result:
    """The study with its two maps and its table."""
    from matplotlib.figure import Figure

    from dalembert.view.maps import sweep_map

    pictures = []
    for name, (x, y, variable, limits, label) in SHOWN.items():
        figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
        axes = figure.subplots(1, len(METHODS), sharey=True)
        table = getattr(data, name)
        sweep_map(table, variable, x, y, limits=limits, label=label, axes=list(axes))
        for ax, title in zip(axes, METHODS.values(), strict=True):
            ax.set_title(title)
            ax.spines[["top", "right"]].set_visible(True)
            ax.set_xlabel(AXES.get(x, ax.get_xlabel()))
        axes[0].set_ylabel(AXES.get(y, axes[0].get_ylabel()))
        count = int(table["status"].size)
        caption = f"{WORDS[name]} {count:,} trajectories of {data.sizes.steps:,} steps."
        pictures.append(Picture(f"map-{name}", figure, caption, f"Three coloured maps. {caption}"))
    rows = []
    for name, label in METHODS.items():
        cells = []
        for table in (data.drift, data.resonance):
            errors = table["passenger_error"].sel(integrator=name)
            cells += [
                number(float(errors.median())),
                number(float(errors.max())),
                f"{100 * shares(table)[name]:.1f} %",
            ]
        rows.append(plain_row(label, cells))
    worst = float(
        max(t["passenger_error"].sel(integrator="frame").max() for t in (data.drift, data.resonance))
    )
    caption = "Largest error of the passenger energy, which is one: all trajectories, and how many drift."
    table = Table(
        caption,
        ("", *("median", "largest", "drift") * 2),
        tuple(rows),
        (("", 1), ("over eps and h", 3), ("over T/h and energy", 3)),
    )
    return Result(
        "maps",
        "Maps of drift and resonance",
        (
            "Not in the paper, which shows single runs. Each point of these maps is one run of the pendulum CVT, "
            "and its colour shows the change of the passenger energy, which every exact motion keeps.",
        ),
        (
            f"{data.trajectories:,} trajectories. The frame method keeps the energy everywhere, {number(worst)} at "
            "worst. Leap-frog and the discrete gradient on TQ have bands of large errors along resonances of their "
            "parasitic mode with the driver, T/h = 2n and beside them, at every energy.",
        ),
        tuple(pictures),
        (table,),
        data,
        ours=True,
    )
