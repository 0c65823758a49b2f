"""Bits turned over in files on disk: each is noticed, or changes nothing that is read.

`flip_trajectory` and `flip_sweep` count what came of it: "refused" (with a sentence of the library's own),
"recomputed" (by a resumed sweep, which says so), "same" (what is read is the same to the bit), "silent" (it is not,
and nobody said so) and "traceback" (an error that is not the library's own). The last two must be 0.
"""

import contextlib
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import dalembert as da
from dalembert.sweeps import sweeping, work

KINDS = ("refused", "recomputed", "same", "silent", "traceback")
SPEC = {
    "system": "PendulumCVT",
    "method": "leapfrog",
    "start": "rotating",
    "h": 0.1,
    "steps": 20,
    "block": 4,
    "reduce": ["final", "energy"],
    "grid": {"eps": [0.0, 0.5]},
    "random": {"count": 4, "v0": {"xi": {"uniform": [2.5, 3.0]}}},
}


class Here:
    """Computes blocks in this process, in place of workers."""

    preview = staticmethod(work.preview)

    def run(self, blocks, store, objects, heard):
        for block in blocks:
            heard(work.compute(store, objects, block))


@contextlib.contextmanager
def without_workers() -> Iterator[None]:
    """Sweeps compute in this process, which spares the start of others."""
    with mock.patch.object(sweeping, "engine", return_value=contextlib.nullcontext(Here())):
        yield


def snapshot(path: Path) -> dict[Path, bytes]:
    """Every file, with what is in it."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {file: file.read_bytes() for file in files}


def restore(path: Path, before: dict[Path, bytes]) -> None:
    """Makes everything as it was."""
    now = snapshot(path)
    for file in now.keys() - before.keys():
        file.unlink()
    for file, content in before.items():
        if now.get(file) != content:
            file.write_bytes(content)


def flips(before: dict[Path, bytes], n: int, seed: int) -> Iterator[tuple[Path, int]]:
    """Files and bits: half of them any bit, the other half any file first, so that small ones have their turn."""
    chance = random.Random(seed)
    files = [file for file, content in before.items() if content]
    sizes = [len(before[file]) for file in files]
    for i in range(n):
        file = chance.choices(files, sizes)[0] if i % 2 else chance.choice(files)
        yield file, chance.randrange(8 * len(before[file]))


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def bits(data: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """All that a dataset says, to the last bit."""
    said = {
        name: (
            x.dims,
            x.dtype.str,
            x.shape,
            _bytes(x.values),
            sorted((k, repr(v)) for k, v in x.attrs.items()),
        )
        for name, x in data.variables.items()
        if name not in without
    }
    return said | {"attributes": sorted((k, repr(v)) for k, v in data.attrs.items())}


def _bytes(x: np.ndarray) -> Any:
    return x.tobytes() if x.dtype.kind not in "OT" else x.tolist()


def own(error: Exception, path: Path) -> bool:
    """Whether an error is the library's own: one of its classes, with the name of the file in a sentence."""
    return isinstance(error, ValueError | OSError) and path.name in str(error)


def flip_trajectory(n: int, seed: int, suffix: str) -> Counter:
    """Flips bits of a trajectory, one at a time, and loads it."""
    knife = da.zoo.KnifeEdge()
    sol = da.simulate(knife, da.LeapFrog(), *knife.start(), h=0.1, steps=12)
    counts = Counter(dict.fromkeys(KINDS, 0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"run{suffix}"
        sol.save(path)
        before, wanted = snapshot(path), bits(da.load(path).to_xarray())
        for file, bit in flips(before, n, seed):
            flip(file, bit)
            try:
                counts["same" if bits(da.load(path).to_xarray()) == wanted else "silent"] += 1
            except Exception as error:
                counts["refused" if own(error, path) else "traceback"] += 1
            file.write_bytes(before[file])
    return counts


def flip_sweep(n: int, seed: int) -> Counter:
    """Flips bits of a sweep, one at a time, reads it, and goes on with it."""
    counts = Counter(dict.fromkeys(KINDS, 0))
    with tempfile.TemporaryDirectory() as folder, without_workers():
        path = Path(folder) / "sweep.zarr"
        data = da.sweep(SPEC, path).load()
        before, wanted, values = snapshot(path), bits(data), bits(data, ("attempts",))
        for file, bit in flips(before, n, seed):
            flip(file, bit)
            counts[_swept(path, wanted, values)] += 1
            restore(path, before)
    return counts


def _swept(path: Path, wanted: dict[str, Any], values: dict[str, Any]) -> str:
    try:
        if bits(da.open_sweep(path).load()) != wanted:
            return "silent"
        found = "same"
    except Exception as error:
        if not own(error, path):
            return "traceback"
        found = "refused"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            data = da.sweep(SPEC, path).load()
        except Exception as error:
            return "refused" if own(error, path) else "traceback"
    if bits(data, ("attempts",)) != values:
        return "silent"
    again = any("computed again" in str(each.message) for each in said)
    # What was refused above was computed again, and the sweep said so.
    return "silent" if again != (found == "refused") else "recomputed" if again else "same"
