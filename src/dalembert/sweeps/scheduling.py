"""Blocks across workers: dask's scheduler, here or elsewhere, with a few blocks for every worker on their way."""

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
"""Blocks on their way for every thread of a worker, so that none waits for the next."""
FAILURES = 5
"""A block that was lost with its worker so often is not tried again."""
WORKER = {
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
"""The environment of workers that are started here: one thread each; several may share a GPU."""


LOGGERS = ("distributed", "distributed.client", "distributed.scheduler", "distributed.worker", "tornado.application",
           "asyncio")  # fmt: skip


class EngineLost(Exception):
    """The scheduler or all of its workers are gone."""


def usual() -> int:
    """How many workers this machine has by default: one for every core, or one that works for its GPU."""
    known = any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
    there = (
        known and os.environ.get("JAX_PLATFORMS", "cuda") != "cpu" and any(Path("/dev").glob("nvidia[0-9]*"))
    )
    return 1 if there else cores()


@contextlib.contextmanager
def local_cluster(workers: int | None = None) -> Iterator[Any]:
    """Worker processes on this machine, behind a scheduler that listens on 127.0.0.1 alone."""
    from dask import config
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.allowed-failures": FAILURES,
        "distributed.comm.timeouts.connect": "30s",
        # A worker that was lost starts anew; where that takes longer than this, dask would give up its place.
        "distributed.deploy.lost-worker-timeout": "1000 days",
        # Without dask's own setting, which gives memory back after every block to fetch it again for the next.
        "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
        "distributed.worker.profile.enabled": False,  # it looks at what a worker does a hundred times a second
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
    """What `start` gives. A worker that is lost while it starts, for which dask has no second try, starts anew."""
    for tries in range(1, FAILURES + 1):
        try:
            return start()
        except RuntimeError as error:
            if tries == FAILURES:
                raise SweepError(
                    f"workers could not be started in {FAILURES} tries: {error} They may need more memory than there "
                    "is; fewer of them need less (workers=1, on the command line --workers 1)"
                ) from error
    raise AssertionError


@contextlib.contextmanager
def engine(scheduler: Any, workers: int | None) -> Iterator["Engine"]:
    """Workers of the scheduler at this address, or by default one for every core of this machine."""
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

    def preview(self, told: dict[str, Any], objects: dict[str, Any]) -> Preview:
        """The look at the spec, by a worker."""
        from distributed import KilledWorker

        if not self.client.nthreads():
            warnings.warn(
                f"the scheduler at {self.scheduler} has no workers yet; waiting for one", stacklevel=4
            )
        future = self.client.submit(preview, told, objects, pure=False)
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
        """Computes the blocks; `heard` is told of each, and ends everything by raising."""
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
                if future.status in ("lost", "pending"):  # its worker died between the end and the answer
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
    """Workers start as fresh processes, which would run the user's script once more to know its functions; they are
    sent by value, so the script stays unseen, and needs no `if __name__ == "__main__"`."""
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
    """What dask says of workers that come and go; the sweep says itself what matters."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
