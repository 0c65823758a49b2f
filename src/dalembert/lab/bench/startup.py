"""Section compile: the time that the import and the first call take."""

import json
import os
from typing import Any

import numpy as np

from dalembert import zoo
from dalembert.lab.bench.tables import Section, Settings, Table, child, summary
from dalembert.methods import usual_method
from dalembert.model import GroupSystem

STEPS = 10_000
IMPORT = """
import json, time
began = time.perf_counter()
import dalembert
print(json.dumps(time.perf_counter() - began))
"""
# A process that has imported everything but computed nothing forks a copy of itself for each first call.
FIRST = """
import json, os, sys, time
import dalembert as da
from dalembert.methods import method_from_text
found, steps = [], int(sys.argv[2])
for case in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        system = getattr(da.zoo, case[0])()
        began = time.perf_counter()
        q0, v0 = system.start()
        h = system.step or 0.1
        da.simulate(system, method_from_text(case[1]), q0, v0, h=h, steps=steps, save_every=steps)
        os.write(write, json.dumps(time.perf_counter() - began).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.wait()
    found.append(json.loads(text) if text else None)
print(json.dumps(found))
"""


def cases(quick: bool) -> list[tuple[str, str]]:
    """The system and the method of each first call."""
    if quick:
        return [("PendulumCVT", "leapfrog"), ("KnifeEdge", "frame")]
    some = [(s, m) for s in ("PendulumCVT", "Snakeboard") for m in ("leapfrog", "dla01", "dla:0.5", "dd")]
    on_groups = {name for name in zoo.__all__ if issubclass(getattr(zoo, name), GroupSystem)}
    usual = {name: usual_method(getattr(zoo, name)()) for name in zoo.__all__}
    return [*some, *((name, "lie-gni" if name in on_groups else usual[name]) for name in zoo.__all__)]


def first_calls(settings: Settings) -> Section:
    """Section compile."""
    repeats = 1 if settings.quick else 3
    section = Section(
        "compile",
        f"In fresh processes with nothing cached on disk: the import, and the first da.simulate of {STEPS:,} "
        "steps (tracing, compiling and running) after it. Seconds.",
    )
    columns = [
        ("case", "case", ""),
        ("median", "median, s", ".2f"),
        ("min", "least, s", ".2f"),
        ("spread", "spread", ".0%"),
    ]
    table = Table("Import and first call", columns)
    times = [child(IMPORT) for _ in range(repeats)]
    table.rows.append({"case": "import dalembert", **summary(times)})
    section.tables.append(table)
    if not hasattr(os, "fork"):
        section.notes.append("First calls were skipped: this operating system cannot fork a process.")
        return section
    chosen = cases(settings.quick)
    found: list[list[Any]] = [child(FIRST, json.dumps(chosen), str(STEPS)) for _ in range(repeats)]
    for (system, method), seconds in zip(chosen, np.transpose(found).tolist(), strict=True):
        row: dict[str, Any] = {"case": f"{system}, {method}"}
        known = [x for x in seconds if x is not None]
        table.rows.append(row | (summary(known) if known else {}))
        if not known:
            section.notes.append(f"{system}, {method}: failed.")
    return section
