"""The function `sweep`: runs many trajectories and keeps a few numbers of each, without losing finished work."""

import json
import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dalembert.simulation.durable import Damaged
from dalembert.simulation.progress import progress_bar
from dalembert.sweeps.errors import SweepError
from dalembert.sweeps.layout import check_spec, check_store, layout_of
from dalembert.sweeps.reading import Find, read
from dalembert.sweeps.scheduling import EngineLost, engine
from dalembert.sweeps.store import LOCK, Store, create, difference, held, is_locked, is_sweep
from dalembert.sweeps.work import Done, expected

if TYPE_CHECKING:
    import xarray

MOST = 10
"""The number of failed blocks after which a sweep gives up."""


class Standing(NamedTuple):
    """The progress of a sweep."""

    path: Path
    """The store."""
    metadata: dict[str, Any]
    """The attributes of the store: the spec, the versions, and the time when it was made."""
    shape: dict[str, int]
    """The length of each dimension."""
    blocks: int
    """The number of blocks."""
    done: int
    """The number of complete blocks."""
    begun_again: int
    """The number of attempts beyond the first of each block."""
    trajectories: int
    """The number of trajectories in all blocks."""
    finished: int
    """The number of trajectories in complete blocks."""
    damaged: dict[int, str]
    """Blocks that were complete but are not as they were written, and what is wrong with each. They do not count as
    complete, and a resumed sweep computes them again."""
    troubles: dict[int, str]
    """The errors of blocks that could not be computed."""
    running: bool
    """Whether a sweep is writing to the store now."""

    @property
    def complete(self) -> bool:
        """Whether every block is complete."""
        return self.done == self.blocks


def standing(path: Any) -> Standing:
    """The progress of the sweep in this store, whether or not it is running."""
    path = Path(path)
    store = Store(path)
    done, attempts, damaged = store.done(), store.attempts(), store.damaged()
    done[list(damaged)] = False
    shape = {axis.name: axis.size for axis in store.spec.axes}
    return Standing(
        path, store.metadata, shape, len(done), int(done.sum()), int(np.sum(np.maximum(attempts.astype(int) - 1, 0))),
        math.prod(store.layout.shape), expected(store.layout, done), damaged, store.troubles(),
        is_locked(path / LOCK),
    )  # fmt: skip


def sweep(
    spec: Any, store: Any, find: Find, scheduler: Any, resume: bool, workers: Any, progress: Any
) -> "xarray.Dataset":
    """Runs a sweep; see `dalembert.sweep`. `find` returns the class of a system by its name."""
    import xarray

    checked = read(spec, find)
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be a whole number of at least 1, got {workers!r}")
    if workers is not None and scheduler is not None:
        raise ValueError("workers are those of the scheduler; leave out one of the two")
    path = Path(store)
    if path.suffix != ".zarr":
        raise ValueError(f"a sweep is written to a .zarr folder, got {path.name!r}")
    if not is_sweep(path):
        check_spec(checked, path)
    with held(path), _ends_gently():
        opened = _opened(path, checked, resume)
        try:
            if opened is None or not np.all(opened.done()):
                with engine(scheduler, workers) as work:
                    if opened is None:
                        found = _lost(path, lambda: work.preview(checked.entries, checked.objects))
                        layout = layout_of(checked, found.alone, found.row_bytes, found.gpu)
                        check_store(checked, path, found.variables, layout, found.row_bytes)
                        opened = create(path, checked, found, layout)
                    _finish(work, opened, progress)
        except KeyboardInterrupt:
            said = (
                f"{path}: stopped before anything was made"
                if opened is None
                else f"{_so_far(opened)}: stopped"
            )
            raise SweepError(f"{said}. {_GO_ON}") from None
    return xarray.open_zarr(path)


def _opened(path: Path, spec: Any, resume: bool) -> Store | None:
    """The existing store, if this spec made it; None if there is no store."""
    if not is_sweep(path):
        return None
    opened = Store(path, spec.objects)
    done = opened.done()
    if not resume:
        raise ValueError(
            f"{path} exists: {int(done.sum())} of {len(done)} blocks are done. Resume goes on with it (--resume); or "
            "choose another name"
        )
    different = difference(spec, opened)
    if different:
        raise ValueError(
            f"{path} was made by another spec or version:\n{different}\nGo back to that, or choose another store"
        )
    opened.tidy()
    damaged = opened.damaged()
    if damaged:
        warnings.warn(f"{path}: {_told(damaged)}; computed again", stacklevel=5)
        opened.forget(damaged)
    return opened


def _told(damaged: dict[int, str]) -> str:
    block, trouble = next(iter(damaged.items()))
    more = f", and {len(damaged) - 1:,} more" if len(damaged) > 1 else ""
    return f"block {block} is not as it was written ({trouble}){more}"


def open_sweep(path: Any) -> "xarray.Dataset":
    """The dataset of a sweep; see `dalembert.open_sweep`."""
    import xarray

    path = Path(path)
    store = Store(path)
    damaged = store.damaged()
    if damaged:
        raise Damaged(
            f"{path} is damaged: {_told(damaged)}. Run the sweep again to compute such blocks anew (on the command "
            "line with --resume)"
        )
    if not store.checked:
        warnings.warn(
            f"{path} was written by version 0.8 or before, without checksums: whether it is as it was cannot be "
            "checked",
            stacklevel=3,
        )
    return xarray.open_zarr(path)


def _finish(work: Any, store: Store, progress: Any) -> None:
    """Computes the blocks whose marks are missing."""
    done = store.done()
    count = expected(store.layout, done)
    failed: dict[int, str] = {}
    total = math.prod(store.layout.shape)
    label = f"sweep of {store.spec['system'].rpartition(':')[2]}"
    with progress_bar(progress, total, label, "trajectories", count) as advance:

        def heard(done: Done) -> None:
            nonlocal count
            if done.trouble:
                failed[done.block] = done.trouble
                if done.disk:
                    raise SweepError(f"{_so_far(store)}: writing failed, {done.trouble}. {_GO_ON}")
                store.remember(done.block, done.trouble)
                if len(failed) >= MOST:
                    raise SweepError(f"{_so_far(store)}: given up after {_failures(failed)}. {_GO_ON}")
                return
            count += store.layout.size(done.block)
            advance(count)

        missing = (int(i) for i in np.flatnonzero(~done))
        _lost(store.path, lambda: work.run(missing, str(store.path.resolve()), store.spec.objects, heard))
    if failed:
        raise SweepError(f"{_so_far(store)}: {_failures(failed)}. {_GO_ON}")
    store.tidy()  # after a worker that was killed while it wrote


_GO_ON = "Run it again to go on with what is missing (on the command line with --resume)"


def _so_far(store: Store) -> str:
    done = store.done()
    return f"{store.path}: {int(done.sum()):,} of {len(done):,} blocks are done and kept"


def _failures(failed: dict[int, str]) -> str:
    block, trouble = next(iter(failed.items()))
    return f"{len(failed)} block{'s' * (len(failed) > 1)} failed, the first is block {block}:\n{trouble.rstrip()}\n"


def _lost(path: Path, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except EngineLost as error:
        raise SweepError(f"{path}: {error}. Blocks that are done are kept. {_GO_ON}") from error


@contextmanager
def _ends_gently() -> Iterator[None]:
    """Treats SIGTERM, with which batch systems end a job, like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def summary(path: Any) -> dict[str, str]:
    """A short description of a store, by heading."""
    found = standing(path)
    spec = json.loads(found.metadata["spec"])
    made = ", ".join(f"{name} {x}" for name, x in json.loads(found.metadata["versions"]).items())
    return {
        "system": spec["system"],
        "dimensions": ", ".join(f"{name} {size:,}" for name, size in found.shape.items()),
        "trajectories": f"{found.finished:,} of {found.trajectories:,}",
        "blocks": f"{found.done:,} of {found.blocks:,} done"
        + (f", {found.begun_again} begun again" if found.begun_again else "")
        + (f"; {_told(found.damaged)}" if found.damaged else ""),
        "state": "complete"
        if found.complete
        else "running"
        if found.running
        else "not running; --resume goes on",
        "made": f"{found.metadata['created']} by {made}",
    }
