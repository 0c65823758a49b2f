"""Sweeps that are broken on purpose: each has a defined end, and resumed they are the undisturbed one to the bit.

The reduction keeps a journal of its calls, so that computations are counted without the library's help.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import xarray
from sweeping import (
    BLOCKS,
    MINE,
    SPEC,
    STEPS,
    UNSTABLE,
    Ended,
    Folder,
    Program,
    computed_again,
    different,
    waited,
)

from dalembert.simulation.storage import versions
from dalembert.sweeps import SweepError, store
from dalembert.sweeps.reductions import WORDS
from dalembert.sweeps.scheduling import AHEAD, _started, engine
from dalembert.sweeps.work import Done

KILLS = 5


@contextmanager
def made(path: Path) -> Iterator[Folder]:
    """A folder whose programs end with it."""
    folder = Folder(path)
    try:
        yield folder
    finally:
        folder.end()


def assert_plain(ended: Ended, *words: str, tracebacks: int = 0) -> None:
    """The command failed and said in words what was wrong; where a user's function raised, with the place."""
    assert ended.code not in (0, None), ended
    assert ended.err.count("Traceback") == tracebacks, ended.err
    assert "cli/commands.py" not in ended.err
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
    assert sweep.abandoned() == []
    # Each of the two workers may finish a block after the count.
    assert kept(ended) <= len(sweep.folder.marks()) <= min(kept(ended) + 2, BLOCKS - 1)


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
    assert "dalembert/sweeps/" not in undisturbed.started[0].ended().err, "a warning"


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
            with folder.held():  # or the other worker might finish before a new one is there
                waited(lambda: len(sweep.workers()) == 2 or sweep.child.poll() is not None)
                assert sweep.child.poll() is None, sweep.ended()
                # The first is one that works; a later one may be just starting.
                busy = {line.process for line in folder.journal()} if not killed else set()
                victims = [process for process in sweep.workers() if process.pid in busy or killed]
                victim = chance.choice(sorted(victims, key=lambda process: process.pid))
                victim.kill()
                killed.add(victim.pid)
        ended = sweep.ended()
        assert ended.code == 0, ended
        assert "Traceback" not in ended.err
        assert len(killed) == KILLS
        assert_finished(folder, undisturbed)


def test_a_worker_killed_between_the_end_of_a_block_and_its_answer():
    """Its results are lost with it, and are asked for again."""
    finished: set[int] = set()
    with engine(None, 1) as here, mock.patch("dalembert.sweeps.scheduling.compute", _named):

        def heard(done: Done) -> None:
            if not finished:
                waited(lambda: sum(map(bool, here.client.who_has().values())) == AHEAD)
                (process,) = here.client.run(os.getpid).values()
                os.kill(process, signal.SIGKILL)
                waited(lambda: {x.status for x in here.client.futures.values()} != {"finished"})
            finished.add(done.block)

        here.run(range(AHEAD), "", {}, heard)
    assert finished == set(range(AHEAD))


def _named(store: str, objects: dict, block: int) -> Done:
    return Done(block)


def test_a_worker_killed_while_it_starts(undisturbed: Folder, tmp_path: Path):
    with made(tmp_path) as folder:
        sweep = folder.sweep()
        waited(lambda: bool(sweep.workers()) or sweep.child.poll() is not None)
        sweep.workers()[0].kill()
        ended = sweep.ended()
        assert (ended.code, "Traceback" in ended.err) == (0, False), ended
        assert_finished(folder, undisturbed)


def test_workers_that_never_start():
    tries = []

    def start() -> None:
        tries.append(1)
        raise RuntimeError("Nanny failed to start.")

    with pytest.raises(SweepError, match=r"could not be started in 5 tries: Nanny failed.*--workers 1"):
        _started(start)
    assert len(tries) == 5


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
        status = folder.said("--status", "s.zarr")
        assert f"{len(before)} of {BLOCKS} done" in status.out
        assert "not running; --resume goes on" in status.out
        again = folder.said("spec.toml", "--out", "s.zarr")
        assert_plain(again, f"s.zarr exists: {len(before)} of {BLOCKS} blocks are done", "--resume")

        sweep = folder.resumed()
        sweep.until(len(before) + 2)
        with folder.held():
            status = folder.said("--status", "s.zarr")
            assert re.search(r"state +running", status.out), status.out
            intruder = folder.said("spec.toml", "--out", "s.zarr", "--resume")
            assert_plain(intruder, f"another sweep (process {sweep.child.pid}) is writing to s.zarr")
        sweep.until(len(before) + 4)
        os.killpg(sweep.child.pid, signal.SIGINT)
        assert_stopped(sweep)

        sweep = folder.resumed()
        sweep.until(len(folder.marks()) + 2)
        sweep.child.send_signal(signal.SIGTERM)
        assert_stopped(sweep)

        ended = folder.resumed().ended()
        assert ended.code == 0, ended
        assert_finished(folder, undisturbed)
        marks, begun = folder.marks(), folder.arrays()["attempts"]
        assert {block: marks[block] for block in before} == before
        assert all(begun[block] == attempts[block] for block in before)


def test_stopped_before_anything_is_there(tmp_path: Path):
    with made(tmp_path) as folder, folder.held():
        sweep = folder.sweep()
        waited(lambda: (tmp_path / "journal").exists())
        os.killpg(sweep.child.pid, signal.SIGINT)
        assert_plain(sweep.ended())
        assert sweep.abandoned() == []
        assert not folder.store.exists()


def test_store_of_another_spec_or_version_is_refused(undisturbed: Folder, tmp_path: Path):
    with made(tmp_path) as folder:
        shutil.copytree(undisturbed.store, folder.store)
        resume = ("spec.toml", "--out", "s.zarr", "--resume")
        assert folder.said(*resume).code == 0  # nothing is missing, so nothing is computed

        changed = SPEC.replace("steps = 200", "steps = 201")
        (tmp_path / "spec.toml").write_text(changed + "[parameters]\neps = 0.1\n")
        refused = folder.said(*resume)
        assert_plain(refused, "made by another spec", "steps: the store has 200, now it is 201")
        assert "parameters.eps: the store has nothing, now it is 0.1" in refused.err
        assert "version of" not in refused.err

        (tmp_path / "spec.toml").write_text(SPEC)
        (tmp_path / "mine.py").write_text(MINE.replace("0.2", "0.3"))
        assert_plain(folder.said(*resume), "sources.mine:watched: the store has ")

        (tmp_path / "mine.py").write_text(MINE)
        now = versions()
        with mock.patch.object(store, "versions", return_value=now | {"numpy": "1.2.3"}):
            refused = folder.said(*resume)
        assert_plain(refused, f"version of numpy: the store has {now['numpy']}, now it is 1.2.3")
        assert "steps" not in refused.err
        assert folder.said(*resume).code == 0


def test_disk_full_then_scheduler_lost_then_failing_block(undisturbed: Folder, tmp_path: Path):
    """One store again, with three sweeps that end early by what happens around them."""
    with made(tmp_path) as folder:
        sweep = folder.sweep(TROUBLE="full")
        ended = sweep.ended()
        assert_plain(ended, "writing failed", "File too large", "--resume")
        assert ended.code == 1
        assert sweep.abandoned() == []
        # The limit holds from block 6 on; of the blocks before, each of the two workers had one at a time.
        assert 4 <= len(folder.marks()) <= 6
        assert kept(ended) <= len(folder.marks())

        told = tmp_path / "scheduler.json"
        dask = ("-m", "dask", "scheduler", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
        scheduler = folder.python(*dask, "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(told))
        waited(told.exists)
        worker = ("-m", "dask", "worker", "--no-dashboard", "--nthreads", "1", "--no-nanny")
        folder.python(*worker, "--scheduler-file", str(told), "--local-directory", str(tmp_path))
        address = json.loads(told.read_text())["address"]
        sweep = folder.sweep("--scheduler", address, "--resume")
        sweep.until(len(folder.marks()) + 3)
        scheduler.child.kill()
        killed = time.monotonic()
        ended = sweep.ended()
        assert time.monotonic() - killed < 60  # a minute is what is promised
        assert_plain(ended, f"the scheduler at {address} is gone", "are kept", "--resume")

        ended = folder.resumed(TROUBLE="block 20").ended()
        assert_plain(
            ended, "1 block failed", "is block 20", "OSError: no such luck", "--resume", tracebacks=1
        )
        assert ended.code == 1
        assert kept(ended) == BLOCKS - 1
        assert set(range(BLOCKS)) - set(folder.marks()) == {20}
        status = folder.said("--status", "s.zarr")
        for words in (f"{BLOCKS - 1} of {BLOCKS} done", "block 20 failed:", "OSError: no such luck"):
            assert words in status.out, status.out

        ended = folder.resumed().ended()
        assert ended.code == 0, ended
        assert "failed" not in folder.said("--status", "s.zarr").out
        assert_finished(folder, undisturbed)


def test_what_cannot_begin_leaves_no_store(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    with made(tmp_path / "raises") as folder, made(tmp_path / "nobody") as other:
        raises, alone = folder.sweep(TROUBLE="always"), other.sweep("--scheduler", nobody)
        assert_plain(raises.ended(), "OSError: no such luck", tracebacks=1)
        assert_plain(alone.ended(), f"there is no scheduler at {nobody}")
        assert raises.abandoned() == []
        assert not folder.store.exists()
        assert not other.store.exists()
