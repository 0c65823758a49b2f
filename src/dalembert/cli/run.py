"""The command `dalembert run`: one run and the table of what it conserved."""

import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from dalembert.cli.names import Start
from dalembert.methods import Method
from dalembert.model import System, Trait, lower
from dalembert.simulation import SimulationError, Status, Trajectory, simulate
from dalembert.simulation.run import redundancy_remark
from dalembert.simulation.storage import check_target as check_trajectory_target

FIGURES = (".png", ".svg", ".pdf")
ANIMATIONS = (".html", ".gif", ".mp4")


def conserved(sol: Trajectory) -> list[tuple[str, str, str]]:
    """One row per conserved quantity: its name, its value at the start and its largest deviation."""
    rows = []
    timed = Trait.TIMED in sol.traits
    affine = Trait.AFFINE in sol.traits
    kinds = [("energy", sol.energy())]
    driven = sol.system is not None and not lower(sol.system).conservative
    works = driven and Trait.NONLINEAR in sol.traits
    if timed or affine or works:
        why = "the system depends on time" if timed else "the constraint does work"
        kinds = [(f"energy (not conserved: {why})", sol.energy())]
    if Trait.FORCED in sol.traits and not (timed or affine or works):
        kinds = [("energy (not conserved: forces do work)", sol.energy())]
    if driven:
        kinds.append(("energy less the work done", sol.energy() - sol.work()))
    if affine:
        kinds.append(("moving energy", sol.moving_energy()))
    if "E_plus" in sol.step_data:
        kinds.append(("energy E+ of the steps", sol.energy(full=True)))
    elif not np.array_equal(sol.v, sol.v_full):
        kinds.append(("energy of the method's own velocity", sol.energy(full=True)))
    for name, energy in kinds:
        change = np.max(np.abs(energy - energy[0]))
        relative = f" ({change / abs(energy[0]):.1e} relative)" if energy[0] else ""
        rows.append((name, f"{energy[0]:.10g}", f"{change:.1e}{relative}"))
    # The shape alone gives the number of one-forms, so nothing has to be compiled.
    if (
        sol.system is not None
        and jax.eval_shape(lower(sol.system).at(0.0).forms, sol.q[0], sol.v[0]).shape[0]
    ):
        what = "constraint A v - b" if affine else "constraint A(q) v"
        what = "constraint f(q, v)" if Trait.NONLINEAR in sol.traits else what
        rows.append((what, "0", f"{np.max(sol.constraint_residual()):.1e}"))
    if Trait.HOLONOMIC in sol.traits:
        rows.append(("position constraints c(q)", "0", f"{np.max(sol.position_residual()):.1e}"))
    if "h" in sol.step_data:
        h = sol.step_data["h"]
        rows.append(("step size", f"{h[0]:.6g}", f"{np.min(h):.4g} to {np.max(h):.4g}"))
    if np.any(sol.step_data.get("continued", 0)):
        rows.append(("steps that miss the energy", "0", f"{int(sol.step_data['continued'][-1])}"))
    if sol.method is not None and sol.method.parasitic:
        size = sol.parasitic_amplitude()
        rows.append(("parasitic mode", f"{size[0]:.1e}", f"{np.max(size):.1e}"))
    return rows


def report(console: Console, sol: Trajectory) -> None:
    """Prints the table of `conserved`."""
    rows = f"largest deviation in {len(sol.t):,} rows"
    table = Table("quantity", "start", rows, title_justify="left")
    name = type(sol.system).__name__
    spelling = sol.method.cli_name if sol.method is not None else ""
    step = f"{'first ' * ('h' in sol.step_data)}h = {float(sol.h):.6g}"
    table.title = f"{name} by {spelling}, {step}, {int(sol.steps):,} steps to t = {sol.t[-1]:.6g}"
    for row in conserved(sol):
        table.add_row(*row)
    console.print(table)


def figure(sol: Trajectory, path: Path) -> None:
    """Draws the path and the energy error side by side, and the step sizes if they vary, in the file `path`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    varied = "h" in sol.step_data
    widths = (1.1, 1.25, 1.25)[: 2 + varied]
    fig, (left, right, *more) = plt.subplots(
        1, len(widths), figsize=(10.5 + 6 * varied, 4.2), layout="constrained", width_ratios=widths
    )
    if len(sol.q[0]) > 1:
        sol.plot.path(ax=left)
    else:
        left.plot(sol.t, sol.q[:, 0], lw=0.8)
        left.set(xlabel="t", ylabel="q")
    sol.plot.energy(ax=right, full=varied)
    if varied:
        sol.plot.steps(ax=more[0])
    fig.savefig(path, dpi=150)
    plt.close(fig)


class Files(NamedTuple):
    """The files that a user asked for."""

    out: str | None = None
    """The trajectory."""
    plot: str | None = None
    animate: str | None = None
    overwrite: bool = False
    """Whether a trajectory may be replaced."""

    def check(self) -> None:
        """Refuses files that could not be written, before anything is computed."""
        for option, path, suffixes in (
            ("--out", self.out, (".zarr", ".nc")),
            ("--plot", self.plot, FIGURES),
            ("--animate", self.animate, ANIMATIONS),
        ):
            if path is None:
                continue
            if Path(path).suffix not in suffixes:
                raise ValueError(f"{option} takes a file ending in {' or '.join(suffixes)}, got {path!r}")
            if not Path(path).resolve().parent.is_dir():
                raise ValueError(f"{option}: the folder of {path!r} does not exist; make it first")
            if Path(path).exists() and Path(path).is_dir() != path.endswith(".zarr"):
                raise ValueError(f"{option}: {path!r} exists but is not of this kind; choose another name")
        if self.out is not None:
            check_trajectory_target(Path(self.out), self.overwrite)
        if self.animate is not None:
            from dalembert.view.animation import check_target  # matplotlib takes half a second to import

            check_target(self.animate)

    def write(self, console: Console, sol: Trajectory) -> None:
        """Writes the files and says so."""
        if self.out is not None:
            sol.save(self.out, self.overwrite)
            console.print(f"wrote {self.out} ({len(sol.t):,} rows)", highlight=False)
        if self.plot is not None:
            figure(sol, Path(self.plot))
            console.print(f"wrote {self.plot}", highlight=False)
        if self.animate is not None:
            frames = len(sol.animate(self.animate).film.times)
            size = f"{Path(self.animate).stat().st_size / 1000:,.0f} kB"
            console.print(f"wrote {self.animate} ({frames} frames, {size})", highlight=False)


def step_size(system: System, h: float | None) -> float:
    """The step size that was given, or the one that the system recommends."""
    h = system.step if h is None else h
    if h is None:
        raise ValueError(f"{system.label} recommends no step size; give --h")
    return float(h)


def run_and_report(
    console: Console,
    system: System,
    method: Method,
    h: float | None,
    steps: int,
    start: Start,
    save_every: int | None,
    files: Files,
) -> None:
    """Runs, prints the table and writes the requested files, even if the run fails or is interrupted."""
    files.check()
    h, begin = step_size(system, h), start.of(system)
    failure = None
    warnings.simplefilter("ignore", UserWarning)  # the remarks below repeat what these warnings say
    try:
        sol = simulate(
            system,
            method,
            **begin,
            h=h,
            steps=steps,
            save_every=max(1, steps // 10_000) if save_every is None else save_every,
            progress=True,
        )
    except SimulationError as error:
        failure, sol = error, error.trajectory
    finish(console, sol, files)
    if failure is not None:
        raise failure
    if sol.status is Status.INTERRUPTED:
        console.print(sol.message, highlight=False)
        raise SystemExit(130)


def finish(console: Console, sol: Trajectory, files: Files) -> None:
    """Prints the table and the remarks about a run, and writes the requested files."""
    report(console, sol)
    if sol.system is not None and sol.system.kept is not None:
        console.print(redundancy_remark(sol.system, sol.q[0], sol.t[0]), highlight=False)
    for remark in sol.method.remarks(sol) if sol.method is not None else []:
        console.print(f"Beware: {remark}", style="yellow", highlight=False)
    files.write(console, sol)
