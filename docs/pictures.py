"""Writes the small pictures of README and gallery: python docs/pictures.py FOLDER [NAME ...]

hero.png, hero.gif and bicycle.gif are the front pages'; NAME.png is the scene of each system of the zoo, from the runs
of RUNS.
"""

import io
import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import dalembert as da
from dalembert.view.films import film
from dalembert.view.stills import save_gif, scene
from dalembert.view.style import log_ticks, title

mpl.use("Agg")
# Bytes at most: pictures of the zoo, of the front page, its animation.
SMALL, LARGE, MOVING = 60_000, 200_000, 1_000_000


class Run(NamedTuple):
    """A run of a system: what is not given is the system's own (start, and h its step)."""

    steps: int = 60
    h: float | None = None
    method: da.methods.Method = da.FrameGradient()
    view: Any = "oblique"
    times: Any = 5
    parameters: dict[str, Any] | None = None
    start: tuple[Any, Any] | None = None

    def of(self, name: str, method: da.methods.Method | None = None, steps: int = 0) -> da.Trajectory:
        """The run of this system of the zoo, or the same by another method or longer."""
        system = getattr(da.zoo, name)(**(self.parameters or {}))
        q0, v0 = self.start or system.start()
        h = system.step if self.h is None else self.h
        return da.simulate(system, method or self.method, q0, v0, h=h, steps=steps or self.steps)


LIE, CHETAEV = da.LieGNI(), da.ChetaevGradient()
# A glide of the snakeboard whose axles turn slowly through zero: speeds along the board and of its heading.
ALONG, TURNING = 1.8 * np.cos(0.9), 1.8 * np.sin(0.9)
GLIDE = [0, 0, 0.2, 0, -0.9], [ALONG * np.cos(0.2), ALONG * np.sin(0.2), TURNING, 1.0, 0.15]
RUNS = {name: Run() for name in da.zoo.__all__} | {
    "AppellHamel": Run(60, method=CHETAEV),
    "BallInCylinder": Run(50),
    "BallOnSurface": Run(100),
    "BallOnTurntable": Run(50, parameters={"radius": 0.5}),
    "Bicycle": Run(160),
    "Car": Run(140),
    "ChainOfPendula": Run(60, view="side"),
    "ChaplyginSleigh": Run(180, 0.1),
    "ChaplyginSphere": Run(80, method=LIE, parameters={"radius": 0.5}, times=4),
    "ConstantSpeed": Run(200, method=CHETAEV),
    "FallingDisk": Run(40, times=6),
    "GroupSleigh": Run(180, 0.1, LIE),
    "HarmonicCVT": Run(30, times=1),
    "Heisenberg": Run(60, method=LIE),
    "KnifeEdge": Run(120, 0.1),
    "MobileRobot": Run(100),
    "PendulumCVT": Run(30, times=1),
    "Rattleback": Run(400),
    "RollerRacer": Run(180),
    "RollingDisk": Run(100, start=([0, 0, 0, 0], [-2.0, 0, 2.0, 0.5])),
    "RoundBody": Run(60, method=LIE),
    "RouthSphere": Run(60, times=4),
    "RubberBall": Run(60, method=LIE, parameters={"radius": 0.3}),
    "Snake": Run(300),
    "Snakeboard": Run(240, 0.05, start=GLIDE),
    "SpringParticle": Run(30, times=1),
    "Suslov": Run(100, method=da.LieGNI(restart_every=20)),  # in a longer run its parasitic mode would count
    "TwoWheeledRobot": Run(250),
    "Veselova": Run(100, method=LIE),
}
FRONT = "Snakeboard"


def small(figure: Figure, path: Path, limit: int, dpi: int = 100) -> None:
    """Writes a figure as a PNG with a palette, of as many colours as the limit in bytes allows."""
    memory = io.BytesIO()
    figure.savefig(memory, dpi=dpi)
    plt.close(figure)
    picture = Image.open(memory).convert("RGB")
    for colours in (256, 128, 64, 32):
        picture.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= limit:
            return
    raise ValueError(f"{path.name} has {path.stat().st_size} bytes, more than {limit}: draw less")


def of_zoo(name: str, folder: Path) -> None:
    """The scene of one system, 640 x 480."""
    run = RUNS[name]
    figure, ax = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    scene(run.of(name), times=run.times, view=run.view, ax=ax)
    small(figure, folder / f"{name}.png", SMALL)


def front(folder: Path) -> None:
    """A path with its bodies beside the energy errors of three methods, and the same motion as a GIF."""
    run = RUNS[FRONT]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=[1.5, 1])
    sol = run.of(FRONT)
    scene(sol, times=run.times, view=run.view, ax=left)
    for method in (da.DLA01(), da.VariationalDLA(), da.FrameGradient()):
        run.of(FRONT, method, 2000).plot.energy(ax=right, full=True)
    right.legend(frameon=False, fontsize="small", loc="center right")
    log_ticks(right)
    title(right, "relative energy error")
    small(figure, folder / "hero.png", LARGE)
    film_of(sol, folder / "hero.gif", 121, run.view)


def bicycle(folder: Path) -> None:
    """The bicycle of the benchmark that is pushed to one side and recovers, as a GIF."""
    sol = RUNS["Bicycle"].of("Bicycle")
    film_of(sol, folder / "bicycle.gif", 81, "oblique")


def film_of(sol: da.Trajectory, path: Path, frames: int, view: Any) -> None:
    """Writes a run as a GIF for the front pages."""
    shown = film(sol, frames=frames, t=(0.0, float(sol.t[-1])))
    save_gif(shown, path, fps=20, size=(5, 3.75), view=view)
    if path.stat().st_size > MOVING:
        raise ValueError(
            f"{path.name} has {path.stat().st_size} bytes, more than {MOVING}: take fewer frames"
        )


def main(folder: Path, names: list[str]) -> None:
    """Writes all pictures, or those named."""
    folder.mkdir(parents=True, exist_ok=True)
    special = {"hero": front, "bicycle": bicycle}
    for name in names or [*special, *RUNS]:
        special[name](folder) if name in special else of_zoo(name, folder)
        print(name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python docs/pictures.py FOLDER [NAME ...]")
    main(Path(sys.argv[1]), sys.argv[2:])
