"""Sweeps that are killed at random moments, resumed until they are finished, and compared with an undisturbed one.

`kill_sweeps(n, seed)` counts "kills", "lost" (blocks that had their mark and were computed again), "wrong" (stores
that are not the undisturbed one to the bit) and "hangs" (commands that do not end, or leave workers behind). All but
the first must be 0.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from sweeping import Ended, Folder, Program, computed_again, different, waited

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS = 8
"""How often one sweep is killed before it is left to finish."""


def kill_sweeps(n: int, seed: int, kills: int = KILLS) -> Counter:
    """Kills n times, at random the driver, a worker or all of them; every sweep is then finished and compared."""
    chance = random.Random(seed)
    counts = Counter(kills=0, lost=0, wrong=0, hangs=0)
    with tempfile.TemporaryDirectory() as base:
        whole = Folder(Path(base) / "undisturbed")
        began = time.monotonic()
        assert whole.sweep().ended().code == 0
        longest = time.monotonic() - began
        for each in range(4 * n):  # more than enough, as a sweep may end before it is killed
            wanted = min(kills, n - counts["kills"])
            if not wanted:
                break
            folder = Folder(Path(base) / f"killed{each}")
            try:
                ended = _killed(folder, chance, wanted, longest, counts)
                if ended.code != 0 or "Traceback" in ended.err or different(folder, whole):
                    counts["wrong"] += 1
                    print(ended.err, file=sys.stderr)
                else:
                    counts["lost"] += len(computed_again(folder))
            except (TimeoutError, subprocess.TimeoutExpired):
                counts["hangs"] += 1
            finally:
                folder.end()
    return counts


def _killed(folder: Folder, chance: random.Random, kills: int, longest: float, counts: Counter) -> Ended:
    """One sweep, killed so often at most, then finished."""
    program = folder.resumed()
    while kills and program.child.poll() is None:
        moment = time.monotonic() + chance.uniform(0.0, longest)
        _until(program, moment)
        if program.child.poll() is not None:  # it was quicker, with nothing left to do
            break
        counts["kills"] += 1
        kills -= 1
        if _kill(program, chance):
            program.ended()
            counts["hangs"] += int(program.abandoned() != [])
            program = folder.resumed()
    return program.ended()


def _until(program: Program, moment: float) -> None:
    """Waits for a moment, or until the program ended."""
    waited(lambda: time.monotonic() >= moment or program.child.poll() is not None)


def _kill(program: Program, chance: random.Random) -> bool:
    """Sends a signal to the driver, or to its whole group as Ctrl-C on a terminal does, of which it ends; or kills a
    worker, with which it goes on."""
    workers = sorted(program.workers(), key=lambda each: each.pid)
    which = chance.choice(["driver", "group", "worker"])
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # it ended meanwhile
        if which == "worker" and workers:
            chance.choice(workers).kill()
            return False
        if which == "group":
            os.killpg(program.child.pid, signal.SIGINT)
        else:
            program.child.send_signal(chance.choice(SIGNALS))
    return True
