"""How a sweep is divided into blocks: boxes of the grid, each of which is one chunk of every array."""

import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dalembert.sweeps.spec import STEP, Spec, memory, words

WORK = 20_000_000
"""The steps of all members of a block on a CPU: about a second of work, so that losing a worker costs little."""
BYTES = 2**26
"""The memory for the rows of a block."""
GPU = 64
"""The factor by which a GPU takes more of both."""
LARGEST = 65_536


class Preview(NamedTuple):
    """What the first trajectories of a spec show."""

    alone: list[str]
    """The dimensions along which each value has its own blocks."""
    variables: dict[str, dict[str, Any]]
    """The dtype, the further dimensions with their sizes, and the attributes of every variable."""
    labels: dict[str, list[str]]
    row_bytes: int
    gpu: bool


class Layout(NamedTuple):
    """The shape of the grid and the shape of a block."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of blocks along each dimension."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunks, strict=True))

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return math.prod(self.counts)

    @property
    def members(self) -> int:
        """The number of trajectories in a whole block."""
        return math.prod(self.chunks)

    def region(self, block: int) -> tuple[slice, ...]:
        """The region of the grid that a block covers."""
        place = np.unravel_index(block, self.counts)
        return tuple(
            slice(int(i) * c, min((int(i) + 1) * c, n))
            for i, c, n in zip(place, self.chunks, self.shape, strict=True)
        )

    def size(self, block: int) -> int:
        """The number of trajectories in this block, which may be smaller at the edge of the grid."""
        return math.prod(part.stop - part.start for part in self.region(block))


def layout_of(spec: Spec, alone: Sequence[str], row_bytes: int, gpu: bool) -> Layout:
    """A layout with blocks of about equal work. Along the dimensions in `alone`, each value has its own blocks."""
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
    """The values of every swept quantity for each trajectory of a region; the last dimension varies fastest."""
    shape = tuple(part.stop - part.start for part in region)
    columns = {}
    for i, (axis, part) in enumerate(zip(spec.axes, region, strict=True)):
        for key in axis.keys:
            values = axis.part(key, part.start, part.stop, spec["seed"])
            along = values.reshape((1,) * i + (-1,) + (1,) * (len(shape) - i - 1))
            columns[key] = np.broadcast_to(along, shape).reshape(-1)
    return columns


ALWAYS = 9
"""The bytes that every store needs per trajectory: its status and its steps."""
ROW = 8 * (3 + 8)
"""The bytes of a row of a system with one coordinate."""


def check_spec(spec: Spec, path: Path) -> None:
    """Raises ValueError if the smallest possible result or rows of a spec would not fit on disk or in memory."""
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
    """Raises ValueError if there is no room for the store.

    By now the numbers kept per trajectory and the blocks are known. Crossings of a section are not counted: most may
    be NaN, which compress to almost nothing.
    """
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
    """The number of further files that the file system can hold; None if it does not say."""
    if not hasattr(os, "statvfs"):  # Windows
        return None
    disk = os.statvfs(_there(path))
    return disk.f_favail if disk.f_files else None


def _there(path: Path) -> Path:
    """The nearest folder above `path` that exists, or `path` itself."""
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.is_dir())
