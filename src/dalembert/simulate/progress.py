"""A bar on a terminal, plain lines elsewhere, or the user's own function."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(
    progress: bool | Callable[[int, int], None], total: int, label: str, unit: str = "steps"
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of steps done so far."""
    if callable(progress):
        report = progress
        yield lambda done: report(done, total)
    elif not progress:
        yield lambda done: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), "{task.completed:,}", TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield _lines(total, label, unit)


def _lines(total: int, label: str, unit: str) -> Callable[[int], None]:
    """One line at the end, and one every five seconds before it."""
    started = printed = time.monotonic()

    def report(done: int) -> None:
        nonlocal printed
        now = time.monotonic()
        if done == total or now - printed > 5:
            printed = now
            print(
                f"{label}: {done:,} of {total:,} {unit} in {now - started:.1f} s", file=sys.stderr, flush=True
            )

    return report
