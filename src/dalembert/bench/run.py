"""All sections, one after the other, and the file of their results."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dalembert.bench.machine import describe
from dalembert.bench.tables import Section
from dalembert.bench.timing import Settings

FORMAT = 1


def _c(settings: Settings) -> Section:
    from dalembert.bench.yardstick import against_c

    return against_c(settings)


def _ensemble(settings: Settings) -> Section:
    from dalembert.bench.yardstick import ensembles

    return ensembles(settings)


def _naive(settings: Settings) -> Section:
    from dalembert.bench.naive import against_plain_jax

    return against_plain_jax(settings)


def _peers(settings: Settings) -> Section:
    from dalembert.bench.peers import work_precision

    return work_precision(settings)


def _compile(settings: Settings) -> Section:
    from dalembert.bench.startup import first_calls

    return first_calls(settings)


def _gradients(settings: Settings) -> Section:
    from dalembert.bench.gradients import cost

    return cost(settings)


def _gpu(settings: Settings) -> Section:
    from dalembert.bench.gpu import on_gpu

    return on_gpu(settings)


def _tag(settings: Settings) -> Section:
    from dalembert.bench.tag import one_kernel_tag

    return one_kernel_tag(settings)


SECTIONS: dict[str, Callable[[Settings], Section]] = {
    "c": _c, "ensemble": _ensemble, "naive": _naive, "peers": _peers, "compile": _compile, "gradients": _gradients,
    "tag": _tag, "gpu": _gpu,
}  # fmt: skip
"""Sections by name; each imports what it needs when it runs."""


def chosen(only: str | None) -> list[str]:
    """The names in a list with commas, checked; all of them where there is none."""
    if only is None:
        return list(SECTIONS)
    names = [x.strip() for x in only.split(",") if x.strip()]
    unknown = [x for x in names if x not in SECTIONS]
    if unknown or not names:
        raise ValueError(f"--only takes names of {', '.join(SECTIONS)}; got {only!r}")
    return [x for x in SECTIONS if x in names]


def run(
    names: Sequence[str], settings: Settings, show: Callable[[Section], None], merge: Path | None = None
) -> dict[str, Any]:
    """Runs the sections, shows each when it is done, and returns everything as plain values."""
    elsewhere: dict[str, Section] = {}
    if merge is not None:
        from dalembert.bench.gpu import section_of

        elsewhere["gpu"] = section_of(json.loads(merge.read_text()))
        elsewhere["gpu"].notes.append("Measured on another machine than the rest.")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    began, done = time.perf_counter(), {}
    for name in [*names, *(x for x in elsewhere if x not in names)]:
        before = time.perf_counter()
        section = elsewhere[name] if name in elsewhere else SECTIONS[name](settings)
        section.seconds = time.perf_counter() - before
        show(section)
        done[name] = section.to_json()
    made = {
        "format": FORMAT,
        "machine": {**describe(), "load_before": load},
        "settings": dataclasses.asdict(settings),
    }
    return {**made, "seconds": time.perf_counter() - began, "sections": done}
