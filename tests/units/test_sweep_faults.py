"""Sweeps that are broken on purpose: each end is a defined one, and a resumed sweep is the undisturbed one to the bit.

The reduction keeps a journal of its calls, so that computations are counted without the library's help.
"""

import json
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import xarray
from command_line import called
from sweeping import BLOCKS, SPEC, STEPS, UNSTABLE, Ended, Folder, Program, computed_again, different, waited

from dalembert.sweeps.reductions import WORDS

KILLS = 5


@contextmanager
def made(path: Path) -> Iterator[Folder]:
    """A folder whose programs end with it."""
    folder = Folder(path)
    try:
        yield folder
    finally:
        folder.end()


def assert_plain(ended: Ended, *words: str) -> None:
    """The command failed and said in words what was wrong."""
    assert ended.code not in (0, None), ended
    assert "Traceback" not in ended.err + ended.out, ended.err
    for word in words:
        assert word in ended.err, (word, ended.err)


def kept(ended: Ended) -> int:
    """How many blocks the command says are kept."""
    found = re.search(r"(\d+) of (\d+) blocks are done and kept", ended.err)
    assert found, ended.err
    assert int(found[2]) == BLOCKS
    return int(found[1])


def assert_finished(folder: Folder, undisturbed: Folder) -> None:
    """The store is that of the undisturbed sweep, and no block was computed again after its mark was set."""
    assert different(folder, undisturbed) == []
    assert {line.block for line in folder.journal()} == set(range(BLOCKS))
    assert computed_again(folder) == []
    assert list(folder.store.rglob("*.partial")) == []


def assert_stopped(sweep: Program) -> None:
    """The sweep ended as asked, said so, and left nothing running."""
    ended = sweep.ended()
    assert_plain(ended, "stopped", "--resume")
    assert kept(ended) == len(sweep.folder.marks()) < BLOCKS
    assert sweep.abandoned() == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    with made(tmp_path_factory.mktemp("undisturbed")) as folder:
        ended = folder.sweep().ended()
        assert ended.code == 0, ended
        yield folder


def test_undisturbed_sweep_computes_each_block_once(undisturbed: Folder):
    assert sorted(line.block for line in undisturbed.journal()) == list(range(BLOCKS))
    assert set(undisturbed.marks()) == set(range(BLOCKS))
    assert np.all(undisturbed.arrays()["attempts"] == 1)
    assert undisturbed.started[0].abandoned() == []


def test_one_trajectory_that_blows_up_leaves_the_others_alone(undisturbed: Folder):
    data = xarray.open_zarr(undisturbed.store)
    failed = np.asarray(data["status"]) != 0
    assert np.flatnonzero(failed).tolist() == [UNSTABLE]
    assert int(data["steps_done"][UNSTABLE]) < 200
    assert np.all(np.asarray(data["steps_done"])[~failed] == 200)
    words = [WORDS[i] for i in np.asarray(data["energy_verdict"])]
    assert words[UNSTABLE] == "ended early"
    assert "ended early" not in words[:UNSTABLE] + words[UNSTABLE + 1 :]
    for name, array in undisturbed.arrays().items():
        # A slope may be unknown in a run that is too short for it.
        if array.shape[:1] == (len(STEPS),) and array.dtype.kind == "f" and "slope" not in name:
            assert np.all(np.isfinite(np.delete(array, UNSTABLE, 0))), name


def test_five_workers_killed(undisturbed: Folder, tmp_path: Path):
    chance = random.Random(5)
    with made(tmp_path) as folder:
        # Dask gives up a worker that takes longer to come back than this, as each does here; a sweep must not.
        sweep, killed = folder.sweep(DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT="0.5s"), set()
        for each in range(KILLS):
            sweep.until(2 + 2 * each)
            time.sleep(chance.uniform(0.0, 0.5))
            waited(lambda: len(sweep.workers()) == 2 or sweep.child.poll() is not None)
            victim = chance.choice(sorted(sweep.workers(), key=lambda process: process.pid))
            victim.kill()
            killed.add(victim.pid)
        ended = sweep.ended()
        assert ended.code == 0, ended
        assert "Traceback" not in ended.err
        assert len(killed) == KILLS
        assert killed & {line.process for line in folder.journal()}, "no victim had begun to work"
        assert_finished(folder, undisturbed)


def test_driver_killed_then_resumed_and_stopped_twice(undisturbed: Folder, tmp_path: Path):
    """One store with three ends, SIGKILL, Ctrl-C and SIGTERM, and a sweep that tries to get in between."""
    with made(tmp_path) as folder:
        sweep = folder.sweep()
        sweep.until(4)
        assert len(sweep.workers()) == 2
        sweep.child.kill()
        assert sweep.ended().code == -signal.SIGKILL
        assert sweep.abandoned() == []
        before, attempts = folder.marks(), folder.arrays()["attempts"]
        assert 4 <= len(before) < BLOCKS
        status = folder.status()
        assert f"{len(before)} of {BLOCKS} done" in status.out
        assert "not running; --resume goes on" in status.out
        assert_plain(folder.sweep().ended(), f"{len(before)} of {BLOCKS} blocks are done", "--resume")

        sweep = folder.resumed()
        sweep.until(len(before) + 2)
        intruder = folder.resumed()
        status = folder.status()
        assert "running" in status.out
        assert "not running" not in status.out
        assert_plain(intruder.ended(), f"another sweep (process {sweep.child.pid}) is writing to s.zarr")
        assert sweep.child.poll() is None
        os.killpg(sweep.child.pid, signal.SIGINT)
        assert_stopped(sweep)

        sweep = folder.resumed()
        sweep.until(len(folder.marks()) + 2)
        sweep.child.send_signal(signal.SIGTERM)
        assert_stopped(sweep)

        ended = folder.resumed().ended()
        assert ended.code == 0, ended
        assert_finished(folder, undisturbed)
        marks, again = folder.marks(), folder.arrays()["attempts"]
        assert {block: marks[block] for block in before} == before
        assert all(again[block] == attempts[block] for block in before)
