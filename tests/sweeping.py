"""Sweeps as programs of their own, in a folder with a spec and a reduction that keeps a journal."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import zarr
from command_line import called

BLOCK, BLOCKS = 4, 24
STEPS = [0.05 + 0.001 * i for i in range(BLOCK * BLOCKS - 2)]
"""Step sizes, one a trajectory, so that a block is known by its first; the last block has two members only."""
UNSTABLE = 41
"""The trajectory with a huge step."""
STEPS[UNSTABLE] = 10.0  # the oscillators grow by about h^2 = 100 a step, past the largest number of 64 bits
PATIENCE = 100.0
"""Seconds after which something that must happen is held to hang."""

SPEC = f"""
system = "PendulumCVT"
method = "leapfrog"
start = "rotating"
steps = 200
block = {BLOCK}
reduce = ["final", "energy", "mine:watched"]
[grid]
h = {STEPS}
"""

MINE = """
import os
import resource
import time
from pathlib import Path

import numpy as np


def watched(sol):
    wanted = os.environ.get("TROUBLE", "")
    # Two trajectories, not four, are those that are run before the sweep begins.
    block = round((float(sol.h[0]) - 0.05) * 1000) // 4 if len(sol.q) == 4 else -1
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0:
        marked = Path(os.environ["STORE"], "done", "c", str(block)).exists()
        journal = os.open("journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(journal, f"{time.time_ns()} {os.getpid()} {block} {int(marked)}\\n".encode())
        os.close(journal)
    time.sleep(0.2)
    while Path("hold").exists():
        time.sleep(0.02)
    if wanted == "always" or wanted == f"block {block}":
        raise OSError("no such luck")  # not that of a full disk
    if wanted == "full" and block >= 6:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    with np.errstate(over="ignore"):
        return np.abs(sol.q).sum((1, 2))
"""


def _hears_ctrl_c() -> None:
    """A background shell starts children deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str


class Line(NamedTuple):
    """A call of the reduction."""

    time: int
    process: int
    block: int
    marked: bool
    """Whether the mark of the block was set when the call began."""


class Folder:
    """A folder of a user's: spec, reduction and store; programs run in it."""

    def __init__(self, path: Path, spec: str = SPEC):
        path.mkdir(exist_ok=True)
        self.path, self.store = path, path / "s.zarr"
        (path / "spec.toml").write_text(spec)
        (path / "mine.py").write_text(MINE)
        self.started: list[Program] = []

    def python(self, *arguments: str, **environment: str) -> "Program":
        """Starts a program, as a terminal does: in a process group of its own."""
        program = Program(self, arguments, environment)
        self.started.append(program)
        return program

    def sweep(self, *arguments: str, **environment: str) -> "Program":
        """Starts a sweep of the spec."""
        command = ("-m", "dalembert", "sweep", "spec.toml", "--out", "s.zarr")
        return self.python(*command, *(arguments or ("--workers", "2")), **environment)

    def resumed(self, **environment: str) -> "Program":
        """Starts a sweep that goes on with the store."""
        return self.sweep("--workers", "2", "--resume", **environment)

    def said(self, *arguments: str) -> Ended:
        """What the command says that computes nothing: from this process, which spares its start."""
        done = called("sweep", *arguments, cwd=self.path)
        return Ended(done.returncode, done.stdout, done.stderr)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile no block is finished."""
        hold = self.path / "hold"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def marks(self) -> dict[int, int]:
        """The blocks that are done, each with the time at which its mark was set."""
        folder = self.store / "done" / "c"
        names = [name for name in os.listdir(folder) if name.isdigit()] if folder.is_dir() else []
        return {int(name): (folder / name).stat().st_mtime_ns for name in names}

    def journal(self) -> list[Line]:
        """The calls of the reduction for blocks."""
        lines = [[int(x) for x in line.split()] for line in (self.path / "journal").read_text().splitlines()]
        return [
            Line(time, process, block, bool(marked)) for time, process, block, marked in lines if block >= 0
        ]

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that the store holds, as it is on the disk."""
        group = zarr.open_group(self.store, mode="r")
        return {name: np.asarray(array[...]) for name, array in group.arrays()}

    def end(self) -> None:
        """Ends what is still there."""
        for program in self.started:
            program.end()


class Program:
    """A program in a folder, with what it prints kept in files so that it never waits for a reader."""

    def __init__(self, folder: Folder, arguments: tuple[str, ...], environment: dict[str, str]):
        self.folder = folder
        self.seen: dict[int, psutil.Process] = {}
        base = folder.path / f"program{len(folder.started)}"
        self.files = base.with_suffix(".out"), base.with_suffix(".err")
        with self.files[0].open("w") as out, self.files[1].open("w") as err:
            self.child = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder.path,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_hears_ctrl_c,
                env={**os.environ, "STORE": str(folder.store), **environment},
            )

    def workers(self) -> list[psutil.Process]:
        """The processes that it started for its workers; all that were ever seen are remembered."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.child.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if any("spawn_main" in word for word in process.cmdline()):
                        self.seen[process.pid] = process
        return [process for process in self.seen.values() if alive(process)]

    def until(self, blocks: int) -> None:
        """Waits until so many blocks are done."""
        waited(lambda: len(self.folder.marks()) >= blocks or self.child.poll() is not None)
        assert self.child.poll() is None, self.ended()

    def ended(self) -> Ended:
        """Waits for its end."""
        code = self.child.wait(PATIENCE)
        return Ended(code, *(file.read_text() for file in self.files))

    def abandoned(self) -> list[psutil.Process]:
        """Workers that stay behind some time after the program ended."""
        with contextlib.suppress(TimeoutError):
            waited(lambda: not self.workers(), 20.0)
        return self.workers()

    def end(self) -> None:
        """Kills it and its workers, for the end of a test."""
        for process in self.workers():
            process.kill()
        self.child.kill()
        self.child.wait()


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended and was not collected yet does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def waited(happened: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Waits until something happens; TimeoutError where it does not."""
    until = time.monotonic() + patience
    while not happened():
        if time.monotonic() > until:
            raise TimeoutError(f"nothing happened in {patience} s")
        time.sleep(0.02)


def different(one: Folder, other: Folder) -> list[str]:
    """The variables whose numbers are not the same to the last bit; how often a block was begun may differ."""
    first, second = one.arrays(), other.arrays()
    names = sorted({*first, *second} - {"attempts"})
    return [
        name
        for name in names
        if name not in first or name not in second or not _same(first[name], second[name])
    ]


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    # Equal numbers may still differ in the sign of a zero.
    return bool(
        np.array_equal(one, other, equal_nan=True) and np.array_equal(np.signbit(one), np.signbit(other))
    )


def computed_again(folder: Folder) -> list[Line]:
    """Calls for blocks whose mark was set already; a mark that is set anew counts as well."""
    marks = folder.marks()
    # The clock of files may lag by some milliseconds; a call begins 200 ms before its block can be marked.
    return [line for line in folder.journal() if line.marked or line.time > marks.get(line.block, line.time)]
