"""The command `dalembert reproduce`: runs the studies, prints their tables and writes the report."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table as RichTable

from dalembert.lab.studies import chosen, reproduce
from dalembert.lab.studies.result import Cell, Result, Table
from dalembert.lab.studies.run import STUDIES

TONES = {"exact": "green", "good": "green", "bounded": "cyan", "drift": "bold red", "differs": "bold yellow"}


def reproduce_and_report(console: Console, names: tuple[str, ...], quick: bool, out: str) -> None:
    """Runs the studies, prints the tables of each, and says where the report is."""
    names = chosen(names)
    if not out:
        raise ValueError("--out takes the name of a folder, got an empty text")
    asked = () if len(names) == len(STUDIES) else names
    command = " ".join(["dalembert reproduce", *asked, *(["--quick"] if quick else []), "--out", out])
    with _progress(console, len(names)) as (say, done):

        def finished(result: Result) -> None:
            done(result.name)
            print_result(console, result)

        outcome = reproduce(names, quick, out, say, finished, command)
    if outcome.missing:
        for name in list(outcome.results)[_printed(names, outcome.results) :]:
            print_result(console, outcome.results[name])
        kept = "What was finished is in the report." if outcome.results else "Nothing was finished."
        console.print(f"interrupted; not finished: {', '.join(outcome.missing)}. {kept}", highlight=False)
    console.print(f"wrote {outcome.report} in {outcome.seconds:.0f} s", highlight=False, soft_wrap=True)
    if outcome.missing:
        sys.exit(130)


def _printed(names: tuple[str, ...], results: dict[str, Result]) -> int:
    """The number of studies printed before the interruption, which are those before the first missing one."""
    return next((i for i, n in enumerate(names) if n not in results), len(names))


def print_result(console: Console, result: Result) -> None:
    """Prints the title and the tables of a study, one line per row."""
    for table in result.tables:
        console.print(_compact(result.title, table))


def _compact(title: str, table: Table) -> RichTable:
    headings = list(table.columns)
    if table.groups:
        above = [name for name, span in table.groups for _ in range(span)]
        headings = [f"{a}: {b}" if a and b else a or b for a, b in zip(above, table.columns, strict=True)]
    made = RichTable(*headings, title=title, title_justify="left", padding=(0, 1))
    for row in table.rows:
        made.add_row(row[0].text, *(_styled(cell) for cell in row[1:]))
    return made


def _styled(cell: Cell) -> str:
    """The text of the cell with its first note, coloured by its tone."""
    text = cell.text
    if cell.notes:
        text += f" ({cell.notes[0].removeprefix('max ')})"
    if any(note.startswith("paper: ") for note in cell.notes[1:]):
        text += " *"
    style = TONES.get(cell.tone)
    return f"[{style}]{text}[/]" if style else text


@contextlib.contextmanager
def _progress(console: Console, total: int) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Shows progress and yields two functions: one reports the current run, the other a finished study.

    A terminal shows a bar over the studies and the current run. Elsewhere, one line is printed per finished study,
    and at most one line every five seconds in between.
    """
    if sys.stderr.isatty():
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(24), "{task.completed} of {task.total} studies", TimeElapsedColumn())
        console_there = console if sys.stdout.isatty() else Console(stderr=True)
        with Progress(
            *columns, TextColumn("{task.description}"), console=console_there, transient=True
        ) as bar:
            task = bar.add_task("starting", total=total)
            yield (
                lambda text: bar.update(task, description=text),
                lambda name: bar.update(task, advance=1),
            )
        return
    began = printed = time.monotonic()
    lock, count = threading.Lock(), 0

    def line(text: str) -> None:
        nonlocal printed
        printed = time.monotonic()
        print(f"[{printed - began:5.1f} s] {text}", file=sys.stderr, flush=True)

    def say(text: str) -> None:
        with lock:
            if time.monotonic() - printed > 5:
                line(text)

    def done(name: str) -> None:
        nonlocal count
        with lock:
            count += 1
            line(f"{name} done, {count} of {total}")

    yield say, done
