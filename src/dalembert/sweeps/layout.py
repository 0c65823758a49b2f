"""How a sweep is cut into blocks: boxes of the grid, one chunk of every array each."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dalembert.sweeps.spec import Spec

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
