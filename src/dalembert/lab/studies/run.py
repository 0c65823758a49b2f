"""Runs the requested studies, some of them in a second process, and writes their figures and a report."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

from dalembert.lab.studies import (
    backward,
    cvt_integrals,
    edla,
    ferraro_fig2,
    ferraro_fig5,
    fig4,
    fig5,
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
from dalembert.lab.studies.result import Result, from_plain, to_plain
from dalembert.lab.studies.shared_runs import Lab, Stopped

# Linear algebra gets one thread, because its matrices are tiny, and no GPU, which belongs to the first process.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
# Prefer fast compilation to fast machine code, because there is little to run.
FLAGS = "--xla_backend_optimization_level=0"
SCRIPT = "import sys; from dalembert.lab.studies.run import work; work(*sys.argv[1:])"


class Ended(Exception):
    """The other process is gone or has failed; its work can be done here."""


class Helper:
    """Runs studies in another process; `futures` will hold their results."""

    def __init__(self, names: tuple[str, ...], quick: bool, folder: Path, say: Callable[[str], None]):
        self.futures: dict[str, Future] = {name: Future() for name in names}
        self._say = say
        # A session of its own, so that Ctrl-C reaches only the first process, which then ends this one.
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, "quick" if quick else "full", str(folder), *names],
            stdout=subprocess.PIPE,
            env=os.environ | ENVIRONMENT | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"},
            start_new_session=True,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, name, content = json.loads(line)
            if kind == "says":
                self._say(content)
            else:
                self.futures[name].set_result(from_plain(content))
        for future in self.futures.values():
            if not future.done():
                future.set_exception(Ended())

    def stop(self) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.wait()


def send(out: TextIO, kind: str, name: str, content: Any) -> None:
    """Writes one line for the first process: what kind of message it is, about which study, and its content."""
    print(json.dumps([kind, name, content]), file=out, flush=True)


class Study(Protocol):
    """A module, or a value, that measures something and then presents it."""

    @property
    def measure(self) -> Callable[[Lab], Any]:
        """The function that computes the data."""
        ...

    @property
    def present(self) -> Callable[[Lab, Any], Result]:
        """The function that makes words, tables and figures of the data."""
        ...


STUDIES: dict[str, Study] = {
    "fig4": fig4,
    "fig5": fig5,
    "fig6": cvt_integrals.FIGURE_6,
    "fig7": cvt_integrals.FIGURE_7,
    "fig8": cvt_integrals.FIGURE_8,
    "table1": table1,
    "table34": table34,
    "resonance": resonance,
    "mechanism": mechanism,
    "backward": backward,
    "maps": maps,
    "ferraro-fig2": ferraro_fig2,
    "ferraro-fig5": ferraro_fig5,
    "snakeboard": snakeboard,
    "parasitic": parasitic,
    "edla": edla,
    "reduction": reduction,
}
# These studies mostly compile, so they run in a second process if there is a second core.
ASIDE = ("table1", "table34", "mechanism", "backward", "snakeboard", "edla")


class Outcome(NamedTuple):
    """The outcome of a reproduction."""

    results: dict[str, Result]
    """The results in the order of STUDIES."""
    missing: tuple[str, ...]
    """The studies that an interruption left unfinished."""
    report: Path
    seconds: float


def chosen(names: tuple[str, ...]) -> tuple[str, ...]:
    """The studies to run, in the order of STUDIES; raises ValueError with the choices for a wrong name."""
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
    """Runs the studies, and writes each figure as PNG and SVG and report.html into `folder`.

    `say` is called with a text about the current computation, and `finished` with each result, in the order of
    STUDIES. Ctrl-C ends the work, and the report then contains what was finished. If there are two cores, a second
    process runs some of the studies, whose results come without their data; with `alone`, this process runs
    everything.
    """
    names = chosen(tuple(names))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    lab = Lab(quick, names, say, folder)
    results: dict[str, Result] = {}
    count = 0
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
            while count < len(names) and names[count] in results:
                count += 1
                if finished is not None:
                    finished(results[names[count - 1]])
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
    """The result with the words, tables and figures of what was measured; the figures are written to their files."""
    with drawing_style():
        result = STUDIES[name].present(lab, data)
        for picture in result.pictures:
            assert picture.figure is not None
            picture.figure.savefig(folder / f"{picture.stem}.svg", metadata={"Date": None})
            picture.figure.savefig(folder / f"{picture.stem}.png", dpi=150)
    return result


def work(length: str, folder: str, *names: str) -> None:
    """The work of the other process: finishes each study and reports it as one line of JSON on standard output."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # anything that others print goes to standard error
    lab = Lab(length == "quick", names, lambda text: send(out, "says", "", text))
    for name in names:
        send(out, "done", name, to_plain(finish(name, lab, STUDIES[name].measure(lab), Path(folder))))
