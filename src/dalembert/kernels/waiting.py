"""Waiting for the compiler: a line on stderr says what takes long, and Ctrl-C ends the wait at once."""

import atexit
import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE = 2.0
"""The time in seconds after which a line is written."""
SHORT = 0.5
"""After the first line, stages that take less time than this are not mentioned."""


class _Watch:
    """The time since a kernel is being made, and the line to write if that takes long."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.timer: threading.Timer | None = None

    def expect(self, line: str) -> None:
        self.end()
        if os.environ.get("DALEMBERT_QUIET", "0") not in ("", "0"):
            return
        due = max(SHORT, PATIENCE - (time.monotonic() - self.began))
        self.timer = threading.Timer(due, _write, [line])
        self.timer.daemon = True
        self.timer.start()

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


def _write(line: str) -> None:
    # stderr is looked up now, because a progress bar puts its own in place, which writes above the bar.
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be none, or it may be closed
        sys.stderr.write(f"dalembert: {line}\n")
        sys.stderr.flush()


ALLOCATIONS = 50_000
"""The number of new objects after which Python looks for cycles of them while a kernel is made."""


class _Collector:
    """Makes Python look for cycles of objects less often while any thread makes a kernel.

    Making one creates hundreds of thousands of objects, nearly all of which stay until it is done. Looking at them
    after every seven hundred new ones takes a tenth of the time.
    """

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, gc.get_threshold()

    def __enter__(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.before = gc.get_threshold()
                if 0 < self.before[0] < ALLOCATIONS:  # zero: never
                    gc.set_threshold(ALLOCATIONS, *self.before[1:])

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                gc.set_threshold(*self.before)


_collector = _Collector()
_local = threading.local()


@contextlib.contextmanager
def making(line: str = "") -> Iterator[None]:
    """Surrounds a stage of making a kernel, or several of them; the line says what the stage does.

    The line is written if the outermost stage has lasted for two seconds.
    """
    outer: _Watch | None = getattr(_local, "watch", None)
    watch = _local.watch = outer or _Watch()
    if line:
        watch.expect(line)
    try:
        with contextlib.nullcontext() if outer else _collector:
            yield
    finally:
        watch.end()
        _local.watch = outer


# LLVM's time grows faster than the text, because register allocation does. The constants are a fit to ten kernels of
# the zoo (leapfrog, gni and frame, 500 to 30,000 instructions, numbers and vectors) on one core of a Neoverse N1. For
# those that take longer than a tenth of a second, they are right to a third.
_SECONDS, _POWER, _VECTOR = 7e-6, 1.3, 1.4
# Code with loops is cut into short pieces, so that its time is proportional to the text: 11,000 lines of a car with ten
# trailers by the frame method take 2.2 s there.
_LOOPS = 2e-4


def compiling(text: str, loops: bool = False) -> str:
    """The line about a text that is being compiled: its number of instructions, and how long they may take."""
    count = text.count("\n")
    vectors = min(count, text.count(" x double>"))
    seconds = _LOOPS * count if loops else _SECONDS * (count + _VECTOR * vectors) ** _POWER
    rounded = round(count, 2 - len(str(count)))
    time_ = f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
    return f"compiling {rounded:,} operations (about {time_})"


class _Job(threading.Thread):
    """Work whose result may arrive after everyone has stopped waiting for it."""

    def __init__(self, key: str, work: Callable[[], Any]):
        super().__init__(name="dalembert compiler", daemon=True)
        self.key, self.work, self.done = key, work, threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error
        finally:
            if _running.get(self.key) is self:
                del _running[self.key]
            self.done.set()

    def wait(self) -> Any:
        # Windows delivers Ctrl-C only between waits.
        while not self.done.wait(0.1):
            pass
        if self.error is not None:
            raise self.error
        return self.result


_running: dict[str, _Job] = {}


def interruptible(key: str, work: Callable[[], Any]) -> Any:
    """The result of `work`, which spends its time outside of Python, where Ctrl-C is not noticed.

    On the main thread, another thread does the work, so that Ctrl-C ends the wait. The work then goes on; a later call
    with the same key waits for its result. Python does not wait for it at the end of the program.
    """
    if key not in _running and threading.current_thread() is not threading.main_thread():
        return work()
    return begun(key, work).wait()


def begun(key: str, work: Callable[[], Any]) -> _Job:
    """The thread that does this work, or that does it already."""
    job = _running.get(key)
    if job is None or not job.is_alive():  # Ctrl-C may have come before its start
        job = _running[key] = _Job(key, work)
        job.start()
    return job


@atexit.register
def _leave() -> None:
    """Lets the program end while a compiler works for which nobody waits any more.

    The destructors of LLVM's library would take away what it uses, which ends in a crash. They are left out where the C
    library can do that and keep the status of the program; elsewhere the compiler finishes first. Windows stops all
    threads by itself before it calls destructors.
    """
    jobs = [job for job in _running.values() if job.is_alive()]
    if not jobs or os.name == "nt":
        return
    try:
        library = ctypes.CDLL(None)
        library.on_exit(library._exit, None)
    except (AttributeError, OSError):
        for job in jobs:
            job.join()
