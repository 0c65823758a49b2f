"""How a sweep is cut into blocks: boxes of the grid, one chunk of every array each."""

import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dalembert.sweeps.spec import STEP, Spec, memory, words

WORK = 20_000_000
"""Steps of members in a block on a CPU: about a second, so that little is lost with a worker."""
BYTES = 2**26
"""Rows of a block in memory."""
GPU = 64
"""A GPU takes so many times more of both."""
LARGEST = 65_536


class Layout(NamedTuple):
    """The shape of the grid and that of a block."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Blocks along each dimension."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunks, strict=True))

    @property
    def blocks(self) -> int:
        """How many there are."""
        return math.prod(self.counts)

    @property
    def members(self) -> int:
        """Trajectories in a whole block."""
        return math.prod(self.chunks)

    def region(self, block: int) -> tuple[slice, ...]:
        """Where a block is in the grid."""
        place = np.unravel_index(block, self.counts)
        return tuple(
            slice(int(i) * c, min((int(i) + 1) * c, n))
            for i, c, n in zip(place, self.chunks, self.shape, strict=True)
        )

    def size(self, block: int) -> int:
        """Trajectories in this block."""
        return math.prod(part.stop - part.start for part in self.region(block))


def layout_of(spec: Spec, alone: Sequence[str], row_bytes: int, gpu: bool) -> Layout:
    """Blocks of about equal work; `alone` are the dimensions along which each value has blocks of its own."""
    steps, every = spec.length(min(spec.sizes, default=1.0))
    factor = GPU if gpu else 1
    rows = steps // every + 2
    fitting = min(factor * WORK // steps, factor * BYTES // (row_bytes * rows), factor * LARGEST)
    left = spec["block"] or 2 ** max(6, int(math.log2(max(fitting, 1))))
    chunks = []
    for axis in reversed(spec.axes):
        chunk = 1 if axis.name in alone else min(axis.size, left)
        chunks.append(chunk)
        if axis.name not in alone:
            left = left // chunk if chunk == axis.size else 1
    return Layout(spec.shape, tuple(reversed(chunks)))


def columns_of(spec: Spec, region: tuple[slice, ...]) -> dict[str, np.ndarray]:
    """The values of every swept quantity for each trajectory of a region, the last dimension running fastest."""
    shape = tuple(part.stop - part.start for part in region)
    columns = {}
    for i, (axis, part) in enumerate(zip(spec.axes, region, strict=True)):
        for key in axis.keys:
            values = axis.part(key, part.start, part.stop, spec["seed"])
            along = values.reshape((1,) * i + (-1,) + (1,) * (len(shape) - i - 1))
            columns[key] = np.broadcast_to(along, shape).reshape(-1)
    return columns


ALWAYS = 9
"""Bytes of each trajectory that every store has: its status and its steps."""
ROW = 8 * (3 + 8)
"""Bytes of a row of a system with one coordinate."""


def check_spec(spec: Spec, path: Path) -> None:
    """Refuses a spec whose result or rows have no room, whatever they turn out to be."""
    count = math.prod(spec.shape)
    drawn = sum(8 * axis.size * len(axis.draws) for axis in spec.axes)
    _disk(path, count * ALWAYS + drawn, f"{count:,} trajectories")
    drawn_steps = [ends[0] for axis in spec.axes for ends in axis.draws.get(STEP, {}).values()]
    for h in spec.sizes or drawn_steps:
        steps, every = spec.length(h)
        _memory(ROW * (steps // every + 2), f"{steps // every + 2:,} rows of a trajectory")
    if spec["section"] is not None:
        _memory(24 * spec["section"]["count"], f"{spec['section']['count']:,} crossings of a trajectory")


def check_store(
    spec: Spec, path: Path, variables: dict[str, dict[str, Any]], layout: Layout, row: int
) -> None:
    """Refuses a store for which there is no room: now it is known what is kept of each trajectory, and in which
    blocks. Crossings of a section are left out, as most of them may be NaN, which take next to nothing."""
    count = math.prod(spec.shape)
    sizes = {name: int(each["dtype"][2:]) * math.prod(each["sizes"]) for name, each in variables.items()}
    kept = sum(size for name, size in sizes.items() if "crossing" not in variables[name]["dims"])
    drawn = sum(8 * axis.size * len(axis.draws) for axis in spec.axes)
    _disk(path, count * kept + drawn, f"{count:,} trajectories of {kept:,} bytes each")
    files = layout.blocks * (len(variables) + 2)
    free = _files(path)
    if free is not None and files > free:
        raise ValueError(
            f"the store would have {files:,} files in {layout.blocks:,} blocks, and the file system has room for "
            f"{free:,}; choose a larger block in the spec, or sweep less"
        )
    steps, every = spec.length(min(spec.sizes, default=1.0))
    need = layout.members * (row * (steps // every + 2) + sum(sizes.values()))
    _memory(need, f"a block of {layout.members:,} trajectories with {steps // every + 2:,} rows each")


def _disk(path: Path, need: int, what: str) -> None:
    free = shutil.disk_usage(_there(path)).free
    if need > free:
        raise ValueError(
            f"{what} would take {words(need)} in {path}, and there is room for {words(free)}; sweep less, or choose "
            "a larger disk"
        )


def _memory(need: int, what: str) -> None:
    there = memory()
    if there is not None and need > there:
        raise ValueError(
            f"{what} would take {words(need)} of memory, and this machine has {words(there)}; keep fewer rows or "
            "crossings, or choose a smaller block"
        )


def _files(path: Path) -> int | None:
    """How many more files the file system takes; None where it does not tell."""
    if not hasattr(os, "statvfs"):  # Windows
        return None
    told = os.statvfs(_there(path))
    return told.f_favail if told.f_files else None


def _there(path: Path) -> Path:
    """The nearest folder that there is."""
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.is_dir())
