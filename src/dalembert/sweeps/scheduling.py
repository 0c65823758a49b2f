"""Distributes blocks over the workers of a dask scheduler, on this machine or elsewhere."""

import contextlib
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dalembert.simulation.ensembles import cores
from dalembert.sweeps.errors import SweepError
from dalembert.sweeps.work import Done, Preview, compute, preview

AHEAD = 4
"""The number of blocks submitted per worker thread, so that no thread waits for the next block."""
FAILURES = 5
"""A block that was lost with its worker this often is not tried again."""
WORKER = {
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
"""The environment of workers that are started here. Each has one thread, and several may share a GPU."""


LOGGERS = ("distributed", "distributed.client", "distributed.scheduler", "distributed.worker", "tornado.application",
           "asyncio")  # fmt: skip


class EngineLost(Exception):
    """The scheduler or all of its workers are gone."""


def usual() -> int:
    """The default number of workers on this machine: one per core, or a single one for its GPU."""
    known = any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
    there = (
        known and os.environ.get("JAX_PLATFORMS", "cuda") != "cpu" and any(Path("/dev").glob("nvidia[0-9]*"))
    )
    return 1 if there else cores()


@contextlib.contextmanager
def local_cluster(workers: int | None = None) -> Iterator[Any]:
    """Worker processes on this machine, behind a scheduler that listens only on 127.0.0.1."""
    from dask import config
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.allowed-failures": FAILURES,
        "distributed.comm.timeouts.connect": "30s",
        # A lost worker is restarted. If that takes longer than this, dask gives the worker up.
        "distributed.deploy.lost-worker-timeout": "1000 days",
        # This leaves out dask's own setting, which returns memory after every block only to fetch it again.
        "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
        "distributed.worker.profile.enabled": False,  # the profiler samples each worker a hundred times a second
    }
    flags = f"{os.environ.get('XLA_FLAGS', '')} {WORKER['XLA_FLAGS']}".strip()
    options: dict[str, Any] = {
        "n_workers": workers or usual(),
        "threads_per_worker": 1,
        "processes": True,
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": False},
        "env": {**WORKER, "XLA_FLAGS": flags},
        "preload": ["dalembert.sweeps.worker"],
        "silence_logs": logging.CRITICAL,
    }
    with _quiet(), _unseen_main(), config.set(settings), _started(lambda: LocalCluster(**options)) as cluster:
        yield cluster


def _started(start: Callable[[], Any]) -> Any:
    """The result of `start`, which is tried again if a worker is lost while it starts; dask does not retry that."""
    for tries in range(1, FAILURES + 1):
        try:
            return start()
        except RuntimeError as error:
            if tries == FAILURES:
                raise SweepError(
                    f"workers could not be started in {FAILURES} tries: {error} They may need more memory than there "
                    "is; try fewer workers (workers=1, on the command line --workers 1)"
                ) from error
    raise AssertionError


@contextlib.contextmanager
def engine(scheduler: Any, workers: int | None) -> Iterator["Engine"]:
    """The workers of the scheduler at this address, or by default one per core of this machine."""
    from distributed import Client

    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        where = stack.enter_context(local_cluster(workers)) if scheduler is None else scheduler
        try:
            client = stack.enter_context(Client(where, timeout="10s", set_as_default=False))
        except (OSError, ValueError) as error:
            raise ValueError(f"there is no scheduler at {scheduler}: {error}") from None
        yield Engine(client, scheduler)


class Engine:
    """A client of the scheduler."""

    def __init__(self, client: Any, scheduler: str | None):
        self.client, self.scheduler = client, scheduler

    def preview(self, entries: dict[str, Any], objects: dict[str, Any]) -> Preview:
        """The preview of the spec, made by a worker."""
        from distributed import KilledWorker

        if not self.client.nthreads():
            warnings.warn(
                f"the scheduler at {self.scheduler} has no workers yet; waiting for one", stacklevel=4
            )
        future = self.client.submit(preview, entries, objects, pure=False)
        try:
            with self._watched():
                return future.result()
        except KilledWorker as error:
            raise ValueError(
                f"the first trajectories could not be run and reduced: {_words(error)}"
            ) from None

    def run(
        self, blocks: Iterable[int], store: str, objects: dict[str, Any], heard: Callable[[Done], None]
    ) -> None:
        """Computes the blocks and calls `heard` with each result. An exception raised by `heard` ends the run."""
        from distributed import as_completed

        left, waiting = iter(blocks), as_completed(loop=self.client.loop)
        which: dict[str, int] = {}

        def fill() -> None:
            wanted = AHEAD * max(1, sum(self.client.nthreads().values()))
            while waiting.count() < wanted and (block := next(left, None)) is not None:
                future = self.client.submit(compute, store, objects, block, pure=False)
                which[future.key] = block
                waiting.add(future)

        with self._watched():
            fill()
            for future in waiting:
                if future.status in ("lost", "pending"):  # its worker died before it could answer
                    waiting.add(future)
                    continue
                block = which.pop(future.key)
                try:
                    done = future.result()
                except Exception as error:
                    if future.status != "error":
                        raise
                    done = Done(block, _words(error))
                heard(done)
                future.release()
                fill()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        try:
            yield
        except (CommClosedError, FutureCancelledError, TimeoutError) as error:
            raise EngineLost(self._gone()) from error

    def _gone(self) -> str:
        return f"the scheduler{f' at {self.scheduler}' if self.scheduler else ''} is gone"


def _words(error: BaseException | None) -> str:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return f"the worker was lost {FAILURES} times or more with this work; it may need more memory than there is"
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _unseen_main() -> Iterator[None]:
    """Hides the user's script from worker processes while they start.

    A fresh process would run the script once more to learn its functions. They are sent by value instead, so the
    script needs no `if __name__ == "__main__"`.
    """
    main = sys.modules["__main__"]
    seen = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    if "__file__" in seen:
        del main.__file__
    try:
        yield
    finally:
        for name, value in seen.items():
            setattr(main, name, value)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences dask's messages about workers that come and go; the sweep itself reports what matters."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
