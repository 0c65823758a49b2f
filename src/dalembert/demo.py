"""The demo: two problems of the literature by every method, a table of what each keeps, and a figure."""

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from dalembert import zoo
from dalembert.methods import Method, method_from_text
from dalembert.model import System
from dalembert.simulate import Trajectory, simulate

METHODS = ("dla:0.5", "dla:0.4", "dla01", "leapfrog:momentum", "dd", "dd:average", "frame", "frame@4")


def problems() -> dict[str, tuple[System, str | None, float, int]]:
    """Title: system, start, step, number of steps."""
    return {
        "knife edge, h = pi/10": (zoo.KnifeEdge(), None, np.pi / 10, 3_000),
        "pendulum CVT, rotating, eps = 0.5, h = 0.1": (zoo.PendulumCVT(eps=0.5), "rotating", 0.1, 30_000),
    }


def driver_energy(sol: Trajectory) -> np.ndarray:
    """The energy of the driver xi, the last coordinate of both systems."""
    xi, eta = np.asarray(sol.q)[:, -1], np.asarray(sol.v_full)[:, -1]
    eps = float(getattr(sol.system, "eps", 0.0))
    pendulum = isinstance(sol.system, zoo.PendulumCVT)
    return eta**2 / 2 + (1 - np.cos(xi) + eps / 2 * np.sin(2 * xi) if pendulum else 0.0)


def _deviation(series: np.ndarray) -> str:
    return f"{np.max(np.abs(series - series[0])):.1e}"


def run_all(console: Console) -> dict[str, dict[str, Trajectory]]:
    """Runs every method on every problem and prints one table a problem."""
    results: dict[str, dict[str, Trajectory]] = {}
    for title, (system, start, h, steps) in problems().items():
        columns = ("method", "energy", "energy (own velocity)", "driver energy", "constraint A(q) v")
        table = Table(*columns, title=f"{title}, {steps:,} steps: largest deviations", title_justify="left")
        results[title] = {}
        for spelling in METHODS:
            console.print(f"running {spelling:18} on the {title} ...", highlight=False)
            method: Method = method_from_text(spelling)
            sol = simulate(
                system, method, *system.start(start), h=h, steps=steps, save_every=max(1, steps // 3000)
            )
            results[title][spelling] = sol
            table.add_row(
                spelling,
                _deviation(sol.energy()),
                _deviation(sol.energy(full=True)),
                _deviation(driver_energy(sol)),
                f"{np.max(sol.constraint_residual()):.1e}",
            )
        console.print(table)
    return results


def figure(results: dict[str, dict[str, Trajectory]], path: Path) -> None:
    """Energy errors of all methods, one panel a problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from dalembert.view import compare_energies

    fig, axes = plt.subplots(len(results), 1, figsize=(9, 7), layout="constrained")
    for ax, (title, runs) in zip(axes, results.items(), strict=True):
        compare_energies(runs, ax)
        ax.set_title(title + ": energy error of the method's own velocity", loc="left", fontsize=10)
        ax.set_ylim(1e-17, 1e3)
    fig.savefig(path, dpi=130)
    plt.close(fig)


def main() -> None:
    """Writes into the folder given as the only argument, `demo` by default."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 110)
    results = run_all(console)
    figure(results, folder / "energy.png")
    for title, runs in results.items():
        name = title.partition(",")[0].replace(" ", "-") + "-frame.zarr"
        runs["frame"].save(folder / name)
        console.print(f"wrote {folder / name}", highlight=False)
    console.print(f"wrote {folder / 'energy.png'}", highlight=False)


if __name__ == "__main__":
    main()
