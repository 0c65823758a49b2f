"""The command `dalembert sweep`: runs a sweep, or prints the progress of one."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dalembert.results import sweep
from dalembert.sweeps import standing, summary
from dalembert.sweeps.reductions import WORDS


def sweep_and_report(
    console: Console, spec: str, out: str, scheduler: str | None, resume: bool, workers: int | None
) -> None:
    """Runs the sweep and prints a summary of the result."""
    data = sweep(spec, out, scheduler, resume, workers=workers, progress=True)
    _print(console, out)
    console.print(_outcome(data))
    console.print(f"[dim]dalembert.open_sweep({out!r}) opens it[/]", highlight=False)


def show_status(console: Console, path: str) -> None:
    """Prints the progress of a sweep, and the errors of blocks that failed."""
    _print(console, path)
    for block, trouble in standing(path).troubles.items():
        console.print(f"block {block} failed:", style="bold red")
        console.print(trouble.rstrip(), markup=False, highlight=False)


def _print(console: Console, path: str) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in summary(path).items():
        table.add_row(name, escape(text))
    console.print(table)


def _outcome(data: Any) -> str:
    """A sentence that says how many trajectories ended early, and the counts of the verdicts on the energy."""
    failed = int((data["status"] != 0).sum())
    said = (
        f"{failed:,} {'trajectory' if failed == 1 else 'trajectories'} ended early"
        if failed
        else "every trajectory reached its end"
    )
    if "energy_verdict" in data:
        counts = np.bincount(np.asarray(data["energy_verdict"]).reshape(-1), minlength=len(WORDS))
        words = ", ".join(f"{word} {count:,}" for word, count in zip(WORDS, counts, strict=True) if count)
        said += f"; energy: {words}"
    return said
