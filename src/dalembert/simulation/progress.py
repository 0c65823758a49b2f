"""Show progress: a bar on a terminal, plain lines elsewhere, or the user's own function."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(
    progress: bool | Callable[[int, int], None], total: int, label: str, unit: str = "steps", before: int = 0
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of steps done so far; `before` of them were done before the beginning."""
    if callable(progress):
        report = progress
        yield lambda done: report(done, total)
        return
    if not progress:
        yield lambda done: None
        return
    began = time.monotonic()

    def rate(done: int) -> str:
        """The speed and the time left, in words."""
        speed = (done - before) / max(time.monotonic() - began, 1e-9)
        left = f", {duration((total - done) / speed)} left" if speed > 0 and done < total else ""
        return f"{speed:,.3g}" * (speed < 100) + f"{speed:,.0f}" * (speed >= 100) + f" a second{left}"

    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(24),
            "{task.completed:,} of {task.total:,}",
            TextColumn("{task.fields[rate]}"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total, completed=before, rate="")
            yield lambda done: bar.update(task, completed=done, rate=rate(done))
    else:
        yield _lines(total, label, unit, rate)


def duration(seconds: float) -> str:
    """The time in words, in hours, minutes and seconds as far as they matter."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


def _lines(total: int, label: str, unit: str, rate: Callable[[int], str]) -> Callable[[int], None]:
    """A function that prints one line at the end, and one every five seconds before it."""
    started = printed = time.monotonic()

    def report(done: int) -> None:
        nonlocal printed
        now = time.monotonic()
        if done == total or now - printed > 5:
            printed = now
            passed = f"{now - started:.1f} s"
            print(
                f"{label}: {done:,} of {total:,} {unit} in {passed}, {rate(done)}",
                file=sys.stderr,
                flush=True,
            )

    return report
