"""Section sweep: the cost of the engine, the gain from a second worker, and the growth of memory."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dalembert.lab.bench.tables import (
    RATIO,
    Section,
    Settings,
    Table,
    child,
    compared,
    control,
    interleaved,
    timed,
)
from dalembert.results import sweep, system_kind
from dalembert.sweeps.layout import layout_of
from dalembert.sweeps.reading import read
from dalembert.sweeps.scheduling import local_cluster
from dalembert.sweeps.work import block_values, preview

BLOCKS = 16
FREE = 1.8
"""If two hashing threads speed up by less than this, the second core was busy."""
# Prints the peak memory, in MB, of the driver and of the largest worker, after a sweep of a number of trajectories.
MEMORY = """
import json, sys, tempfile
from distributed import Client
from dalembert.results import sweep
from dalembert.sweeps.scheduling import local_cluster

def most():  # not ru_maxrss, which a program inherits from the one that starts it
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

count = int(sys.argv[1])
spec = {"system": "PendulumCVT", "method": "leapfrog", "start": "rotating", "steps": 100, "block": 4096}
spec["random"] = {"count": count, "v0.xi": {"uniform": [2.5, 3.0]}, "h": {"uniform": [0.05, 0.2]}}
with tempfile.TemporaryDirectory() as folder, local_cluster(2) as cluster:
    sweep(spec, f"{folder}/s.zarr", cluster.scheduler_address)
    with Client(cluster, set_as_default=False) as client:
        workers = client.run(most)
print(json.dumps({"driver": most(), "worker": max(workers.values())}))
"""


def spec_of(block: int, blocks: int, steps: int) -> dict[str, Any]:
    """A sweep of `blocks` equal blocks that computes and writes little."""
    return {
        "system": "PendulumCVT", "method": "frame", "parameters": {"eps": 0.5}, "start": "rotating", "steps": steps,
        "block": block, "random": {"count": block * blocks, "v0.xi": {"uniform": [2.5, 3.0]}},
    }  # fmt: skip


def engine_cost(settings: Settings) -> Section:
    """Section sweep."""
    blocks, steps = (4, 1_000) if settings.quick else (BLOCKS, 3_000)
    block = 64 if settings.quick else _members(steps)
    section = Section(
        "sweep",
        f"{blocks} blocks of {block:,} trajectories of PendulumCVT by frame, {steps:,} steps each, about one second "
        "per block: a plain loop over the blocks in one process, which writes nothing; da.sweep with one worker; and "
        "da.sweep with two. Workers are already running and have compiled. The time includes everything else that a "
        "sweep does: reading the spec, making the store, sending, writing and marking.",
    )
    spec = spec_of(block, blocks, steps)
    checked = read(spec, system_kind)
    found = preview(checked.entries, checked.objects)
    layout = layout_of(checked, found.alone, found.row_bytes, found.gpu)

    def plain() -> None:
        for i in range(layout.blocks):
            block_values(checked, layout, i)

    with tempfile.TemporaryDirectory() as folder, local_cluster(1) as one, local_cluster(2) as two:

        def by(cluster: Any) -> Callable[[], None]:
            def call() -> None:
                store = Path(folder) / "s.zarr"
                shutil.rmtree(store, ignore_errors=True)
                sweep(spec, store, cluster.scheduler_address)

            return call

        calls = {"plain": plain, "one": by(one), "two": by(two), **control(2)}
        times = interleaved(calls, 2 if settings.quick else 3)
    free = float(np.median(times["control_one"]) / np.median(times["control_all"]))
    rows = [
        {"case": "one worker against a plain loop", **compared(times["one"], times["plain"])},
        {"case": "one worker against two", **compared(times["one"], times["two"])},
    ]
    rows[1] |= {"control": free, "decides": free > FREE, "speedup": rows[1]["ratio"]}
    columns = [("case", "case", ""), ("ours", "first, s", ".1f"), ("theirs", "second, s", ".1f"), *RATIO]
    section.tables = [Table("The engine", columns, rows)]
    section.notes.append(f"Two threads that hash without the library were {free:.2f} times faster than one.")
    counts = (4_096, 40_960) if settings.quick else (10_000, 100_000, 1_000_000)
    if not Path("/proc/self/status").exists():
        section.notes.append("Memory was not measured: this operating system does not report it.")
        return section
    memory = [{"trajectories": count, **child(MEMORY, str(count))} for count in counts]
    heads = [
        ("trajectories", "trajectories", ","),
        ("driver", "driver, MB", ".0f"),
        ("worker", "largest worker, MB", ".0f"),
    ]
    section.tables.append(
        Table("Most memory of a sweep by two workers, 100 steps a trajectory", heads, memory)
    )
    return section


def _members(steps: int) -> int:
    """The number of trajectories that take about a second."""
    few = read(spec_of(256, 1, steps), system_kind)
    found = preview(few.entries, few.objects)
    layout = layout_of(few, found.alone, found.row_bytes, found.gpu)
    block_values(few, layout, 0)
    seconds = min(timed(lambda: block_values(few, layout, 0)) for _ in range(3))
    return max(64, round(256 / seconds / 64) * 64)
