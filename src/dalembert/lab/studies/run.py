"""Runs the studies that were asked for, and leaves figures and a report."""

import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from dalembert.lab.studies import (
    edla,
    ferraro_fig2,
    ferraro_fig5,
    fig4,
    fig5,
    fig6,
    fig7,
    fig8,
    maps,
    mechanism,
    parasitic,
    reduction,
    resonance,
    snakeboard,
    table1,
    table34,
)
from dalembert.lab.studies.drawing import drawing_style
from dalembert.lab.studies.helper import Ended, Helper
from dalembert.lab.studies.result import Result
from dalembert.lab.studies.shared_runs import Lab, Stopped

STUDIES: dict[str, ModuleType] = {
    "fig4": fig4,
    "fig5": fig5,
    "fig6": fig6,
    "fig7": fig7,
    "fig8": fig8,
    "table1": table1,
    "table34": table34,
    "resonance": resonance,
    "mechanism": mechanism,
    "maps": maps,
    "ferraro-fig2": ferraro_fig2,
    "ferraro-fig5": ferraro_fig5,
    "snakeboard": snakeboard,
    "parasitic": parasitic,
    "edla": edla,
    "reduction": reduction,
}
# These take their time in compiling; they go to a second process where there is a second core.
ASIDE = ("table1", "table34", "mechanism", "snakeboard", "edla")


class Outcome(NamedTuple):
    """What was done."""

    results: dict[str, Result]
    """In the order of STUDIES."""
    missing: tuple[str, ...]
    """Studies that an interruption left out."""
    report: Path
    seconds: float


def chosen(names: tuple[str, ...]) -> tuple[str, ...]:
    """The studies to do, in the order of STUDIES; ValueError with the choices for a wrong name."""
    for name in names:
        if name not in (*STUDIES, "all"):
            raise ValueError(f"no study {name!r}. Choose from: {', '.join(STUDIES)}, all")
    if not names or "all" in names:
        return tuple(STUDIES)
    return tuple(name for name in STUDIES if name in names)


def reproduce(
    names: tuple[str, ...] = (),
    quick: bool = False,
    folder: str | Path = "reproduction",
    say: Callable[[str], None] | None = None,
    finished: Callable[[Result], None] | None = None,
    command: str = "",
    alone: bool = False,
) -> Outcome:
    """Does the studies, writes PNG and SVG of each figure and report.html into `folder`.

    `say` is told what is being computed, `finished` is given each result, in the order of STUDIES. Ctrl-C
    ends the work; what was finished is in the report. Where there are two cores a second process does some of
    the studies, whose results then come without their data; `alone` does everything here.
    """
    names = chosen(tuple(names))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    lab = Lab(quick, names, say, folder)
    results: dict[str, Result] = {}
    told = 0
    aside = tuple(n for n in names if n in ASIDE)
    if len(aside) == len(names) or (os.cpu_count() or 1) < 2 or alone:
        aside = ()
    helper = Helper(aside, quick, folder, say or (lambda text: None)) if aside else None
    pool = ThreadPoolExecutor(1)
    waiting = {pool.submit(STUDIES[n].measure, lab): n for n in names if n not in aside}
    if helper is not None:
        waiting |= {future: n for n, future in helper.futures.items()}
    interrupted = False
    try:
        for future in as_completed(waiting):
            name = waiting[future]
            try:
                made = future.result()
            except Ended:
                made = STUDIES[name].measure(lab)
            result = made if isinstance(made, Result) else finish(name, lab, made, folder)
            results[name] = result
            while told < len(names) and names[told] in results:
                told += 1
                if finished is not None:
                    finished(results[names[told - 1]])
    except (KeyboardInterrupt, Stopped, CancelledError):
        interrupted = True
    finally:
        lab.stopped.set()
        pool.shutdown(wait=not interrupted, cancel_futures=True)
        if helper is not None:
            helper.stop()
    ordered = {n: results[n] for n in names if n in results}
    missing = tuple(n for n in names if n not in results)
    from dalembert.lab.studies.report import write_report

    seconds = time.monotonic() - began
    path = write_report(folder, ordered, missing, lab, seconds, command)
    return Outcome(ordered, missing, path, seconds)


def finish(name: str, lab: Lab, data: Any, folder: Path) -> Result:
    """Words, tables and figures of what was measured; the figures go into their files."""
    with drawing_style():
        result = STUDIES[name].present(lab, data)
        for picture in result.pictures:
            assert picture.figure is not None
            picture.figure.savefig(folder / f"{picture.stem}.svg", metadata={"Date": None})
            picture.figure.savefig(folder / f"{picture.stem}.png", dpi=150)
    return result
