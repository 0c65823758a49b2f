"""The results of a section of the benchmark, and how they are shown."""

import dataclasses
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

CHILD_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long measurements take, and how often they are repeated."""

    quick: bool = False
    repeats: int = 5
    """The number of interleaved repeats of each measurement."""
    seconds: float = 0.12
    """The target duration of one measured call of a kernel."""
    patience: float = 0.4
    """A call that takes longer is measured once."""

    @classmethod
    def short(cls) -> "Settings":
        """Settings that show that everything runs, with rough numbers."""
        return cls(quick=True, repeats=3, seconds=0.02, patience=0.1)


def timed(call: Callable[[], Any]) -> float:
    """The duration of one call in seconds."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def interleaved(
    calls: Mapping[Any, Callable[[], Any]], repeats: int, patience: float = np.inf, warm: bool = True
) -> dict[Any, list[float]]:
    """The seconds of every call, measured in turns so that a slow spell of the machine affects all of them.

    With `warm`, each is called once beforehand to compile. A call that takes longer than `patience` is not repeated.
    """
    if warm:
        for call in calls.values():
            call()
    times: dict[Any, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            if not times[name] or times[name][0] <= patience:
                times[name].append(timed(call))
    return times


def summary(times: Sequence[float]) -> dict[str, float]:
    """The median, the minimum, and the spread (largest minus least, relative to the median)."""
    median = float(np.median(times))
    return {"median": median, "min": min(times), "spread": (max(times) - min(times)) / median}


def compared(ours: Sequence[float], theirs: Sequence[float], unit: float = 1.0) -> dict[str, float]:
    """The numbers of a row: both medians and minima in `unit` seconds, and the ratio ours / theirs."""
    a, b = summary(ours), summary(theirs)
    return {
        "ours": a["median"] / unit,
        "theirs": b["median"] / unit,
        "ratio": a["median"] / b["median"],
        "ratio_of_minima": a["min"] / b["min"],
        "ours_min": a["min"] / unit,
        "theirs_min": b["min"] / unit,
        "spread": max(a["spread"], b["spread"]),
    }


def fitting(run: Callable[[int], Any], seconds: float, first: int, most: int) -> int:
    """A round number of steps for which `run(steps)` takes about `seconds` seconds."""
    run(first)
    each = min(timed(lambda: run(first)) for _ in range(2)) / first
    found = min(max(int(seconds / each), first), most)
    digits = 10 ** (len(str(found)) - 1)
    return found // digits * digits


def control(threads: int, megabytes: int = 40) -> dict[str, Callable[[], Any]]:
    """Work without this library, in threads and one after the other, which shows whether the cores are free."""
    block = bytes(megabytes * 10**6)

    def together() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: hashlib.sha256(block).digest(), range(threads)))

    def in_turn() -> None:
        for _ in range(threads):
            hashlib.sha256(block).digest()

    return {"control_all": together, "control_one": in_turn}


def child(code: str, *arguments: str, seconds: float = CHILD_SECONDS, **variables: str) -> Any:
    """Runs Python code in a fresh process, with nothing cached on disk, and reads the JSON of its last line.

    `variables` are environment variables; DALEMBERT_CACHE may name a folder that keeps compiled code.
    """
    with tempfile.TemporaryDirectory() as empty:
        environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment | {"XDG_CACHE_HOME": empty, "DALEMBERT_CACHE": "0"} | variables,
            check=False,
        )
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"a measuring process failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


@dataclasses.dataclass
class Table:
    """Rows of named values; a column is (key, heading, format)."""

    title: str
    columns: Sequence[tuple[str, str, str]]
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Section:
    """One part of the benchmark: a description of what was measured and its tables, or why it was skipped."""

    name: str
    what: str
    tables: list[Table] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The section as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Section":
        """The reverse of `to_json`."""
        rest: Any = {**content, "tables": [Table(**t) for t in content["tables"]]}
        return cls(**rest)


RATIO = (
    ("ratio", "ratio", ".2f"),
    ("ratio_of_minima", "ratio of minima", ".2f"),
    ("spread", "spread", ".0%"),
)
"""The last columns of a comparison."""


def show(value: Any, how: str) -> str:
    """One value of a table as text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return format(value, how) if how and not isinstance(value, str) else str(value)


def cells(table: Table) -> list[list[str]]:
    """All rows as text."""
    return [[show(row.get(key), how) for key, _, how in table.columns] for row in table.rows]


def markdown(table: Table) -> str:
    """The table in Markdown."""
    heads = [heading for _, heading, _ in table.columns]
    sides = ["---:" if how else "---" for _, _, how in table.columns]
    lines = [heads, sides, *cells(table)]
    return "\n".join("| " + " | ".join(x.replace("|", "\\|") for x in line) + " |" for line in lines)


def print_section(console: Any, section: Section) -> None:
    """Prints the section on the terminal."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    console.print(f"\n[bold]{section.name}[/bold]  {escape(section.what)}", highlight=False)
    if section.skipped:
        console.print(f"skipped: {escape(section.skipped)}", highlight=False)
    for table in section.tables:
        shown = RichTable(title=escape(table.title), title_justify="left")
        for _, heading, how in table.columns:
            shown.add_column(heading, justify="right" if how else "left")
        for row in cells(table):
            shown.add_row(*map(escape, row))
        console.print(shown)
    for note in section.notes:
        console.print(escape(note), highlight=False)
