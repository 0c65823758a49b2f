"""A sweep on disk: one Zarr group that xarray opens, every block a region of its own with a mark that is set last."""

import contextlib
import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dalembert.simulate.storage import versions
from dalembert.sweeps.axes import DRAWN
from dalembert.sweeps.layout import Layout
from dalembert.sweeps.lock import locked
from dalembert.sweeps.spec import METHOD, START, STEP, Spec, named
from dalembert.sweeps.work import Preview

FORMAT, KIND = 1, "dalembert sweep"
DONE, ATTEMPTS = "done", "attempts"
LOCK, ERRORS, INDEX = ".lock", ".errors", "zarr.json"
LONGEST = 16
"""Errors of blocks that are kept as text."""


class Store:
    """The folder of a sweep, opened."""

    def __init__(self, path: str | Path, objects: dict[str, Any] | None = None):
        self.path = Path(path)
        try:
            self.group = zarr.open_group(self.path, mode="r+", zarr_format=3, use_consolidated=True)
            told: dict[str, Any] = dict(self.group.attrs)
            self.spec = Spec(json.loads(told["spec"]), objects or {})
            self.layout = Layout(self.spec.shape, tuple(told["blocks"]))
        except (KeyError, ValueError, FileNotFoundError) as error:
            raise ValueError(f"{path} is not the store of a sweep ({error})") from None
        self.told = told
        self._arrays: dict[str, Any] = {}

    @classmethod
    def at_work(cls, path: str, objects: dict[str, Any]) -> "Store":
        """The store, opened once for all blocks that a worker computes: classes that were sent along come anew with
        every block, and what was compiled is kept with the first of them."""
        index = (Path(path) / INDEX).stat()
        key = (path, index.st_ino, index.st_mtime_ns)
        if key not in _opened:
            _opened.clear()
            _opened[key] = cls(path, objects)
        return _opened[key]

    def is_done(self, block: int) -> bool:
        """Whether the mark of a block is set: its file appears in one piece, and zero is never written."""
        return (self.path / DONE / "c" / str(block)).exists()

    def done(self) -> np.ndarray:
        """The marks of all blocks, from the names of their files: a large sweep has tens of thousands."""
        folder = self.path / DONE / "c"
        done = np.zeros(self.layout.blocks, bool)
        done[[int(name) for name in os.listdir(folder) if name.isdigit()] if folder.exists() else []] = True
        return done

    def attempts(self) -> np.ndarray:
        """How often each block was begun."""
        return np.asarray(self._array(ATTEMPTS)[:])

    def begin(self, block: int) -> None:
        """Counts an attempt."""
        array = self._array(ATTEMPTS)
        array[block] = array[block] + 1

    def write(self, block: int, values: dict[str, np.ndarray]) -> None:
        """Writes the region of a block, then its mark."""
        region = self.layout.region(block)
        for name, x in values.items():
            array = self._array(name)
            own, known = x.shape[len(region) :], array.shape[len(region) :]
            if own != known:
                raise ValueError(f"{name} has shape {own} a member in block {block}, but {known} before")
            array[region] = x
        self._array(DONE)[block] = 1
        (self.path / ERRORS / f"{block}.txt").unlink(missing_ok=True)

    def remember(self, block: int, trouble: str) -> None:
        """Keeps the text of an error, of the first few blocks that have one."""
        folder = self.path / ERRORS
        folder.mkdir(exist_ok=True)
        if len(list(folder.iterdir())) < LONGEST:
            (folder / f"{block}.txt").write_text(trouble)

    def troubles(self) -> dict[int, str]:
        """The errors that were kept, by block."""
        found = sorted((self.path / ERRORS).glob("*.txt"), key=lambda path: int(path.stem))
        return {int(path.stem): path.read_text() for path in found}

    def tidy(self) -> None:
        """Removes what writers that were killed left behind."""
        for left in self.path.rglob("*.partial"):
            left.unlink(missing_ok=True)

    def _array(self, name: str) -> Any:
        if name not in self._arrays:
            self._arrays[name] = self.group[name]
        return self._arrays[name]


_opened: dict[tuple, Store] = {}


def is_sweep(path: Path) -> bool:
    """Whether there is a complete store of a sweep."""
    if not (path / INDEX).is_file():
        return False
    told = json.loads((path / INDEX).read_text())
    return told.get("attributes", {}).get("kind") == KIND and bool(told.get("consolidated_metadata"))


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """The folder of a store, made where it is missing, for one sweep at a time."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; a sweep is written to a folder")
    fresh = not path.exists()
    if (
        not fresh
        and not is_sweep(path)
        and any(x.name != LOCK for x in path.iterdir())
        and not (path / LOCK).exists()
    ):
        raise ValueError(f"{path} exists and is not a sweep; choose another name")
    path.mkdir(parents=True, exist_ok=True)
    with locked(path / LOCK):
        try:
            yield
        finally:
            if fresh and not is_sweep(path):  # nothing came of it
                shutil.rmtree(path, ignore_errors=True)


def create(path: Path, spec: Spec, preview: Preview, layout: Layout) -> Store:
    """Makes all arrays, empty, with coordinates and provenance; the index, by which a store is known, last."""
    for left in path.iterdir():  # of a creation that was cut off
        if left.name != LOCK:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    group = zarr.open_group(path, mode="a", zarr_format=3)
    dims = [axis.name for axis in spec.axes]
    for axis in spec.axes:
        for key in axis.keys:
            _coordinate(group, spec, axis, key)
    for dim, names in preview.labels.items():
        _put(group, dim, names, dim)
    for name, each in preview.variables.items():
        dtype = np.dtype(each["dtype"])
        group.create_array(
            name,
            shape=(*spec.shape, *each["sizes"]),
            chunks=(*layout.chunks, *each["sizes"]),
            dtype=dtype,
            fill_value=np.nan if dtype.kind == "f" else -1,
            dimension_names=[*dims, *each["dims"]],
            attributes=each["attrs"],
        )
    book = {DONE: "1 where the block is complete", ATTEMPTS: "how often the block was begun"}
    for name, text in book.items():
        group.create_array(
            name, shape=(layout.blocks,), chunks=(1,), dtype="u1", fill_value=0,
            dimension_names=["block"], attributes={"long_name": text},
        )  # fmt: skip
    group.attrs.update(
        {
            "title": f"sweep of {spec['system'].rpartition(':')[2]} over {', '.join(spec.swept)}",
            "kind": KIND,
            "format": FORMAT,
            "spec": spec.text,
            "seed": spec["seed"],
            "coordinates": " ".join(map(named, spec.swept)),
            "blocks": list(layout.chunks),
            "versions": json.dumps(versions()),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Object at .* is not recognized")  # the lock
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
        zarr.consolidate_metadata(path, zarr_format=3)
    return Store(path, spec.objects)


def _put(group: Any, name: str, values: Any, dim: str, attrs: dict[str, Any] | None = None) -> None:
    text = isinstance(values[0], str)
    array = group.create_array(
        name,
        shape=(len(values),),
        dtype=str if text else float,
        dimension_names=[dim],
        attributes=attrs or {},
    )
    array[:] = np.asarray(values, dtype=object if text else float)


def _coordinate(group: Any, spec: Spec, axis: Any, key: str) -> None:
    """The values of a quantity along its dimension; random ones are drawn a stream at a time."""
    about = {METHOD: "method", STEP: "step size", START: "start state"}
    attrs = {"long_name": about.get(key, key)}
    if key in spec["units"]:
        attrs["units"] = spec["units"][key]
    if key in axis.columns:
        _put(group, named(key), axis.columns[key], axis.name, attrs)
        return
    array = group.create_array(
        key,
        shape=(axis.size,),
        chunks=(DRAWN * 16,),
        dtype=float,
        dimension_names=[axis.name],
        attributes=attrs,
    )
    for low in range(0, axis.size, DRAWN * 16):
        high = min(low + DRAWN * 16, axis.size)
        array[low:high] = axis.part(key, low, high, spec["seed"])


def difference(spec: Spec, store: Store) -> str:
    """What differs between a spec with this version and those that made a store; empty where nothing does."""
    lines = []
    before, now = _flat(store.spec.told), _flat(spec.told)
    if now.get("block", "null") == "null" or math.prod(store.layout.chunks) == spec["block"]:
        before.pop("block", None)
        now.pop("block", None)
    made = json.loads(store.told["versions"])
    before |= {f"version of {key}": x for key, x in made.items()}
    now |= {f"version of {key}": x for key, x in versions().items()}
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            lines.append(
                f"  {key}: the store has {before.get(key, 'nothing')}, now it is {now.get(key, 'nothing')}"
            )
    return "\n".join(lines)


def _flat(told: dict[str, Any]) -> dict[str, str]:
    """A line for each entry of a spec; of each dimension one for its values."""
    flat = {}
    for key, value in told.items():
        if key == "axes":
            for name, size, columns, draws in value:
                flat |= {f"{name}, length": str(size)}
                flat |= {f"values of {each}": _short(x) for each, x in {**columns, **draws}.items()}
        elif isinstance(value, dict):
            flat |= {f"{key}.{inner}": _short(x) for inner, x in value.items()}
        else:
            flat[key] = _short(value)
    return flat


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    if len(text) <= 200:
        return text
    return f"{text[:60]} ... {text[-20:]} (digest {hashlib.sha256(text.encode()).hexdigest()[:8]})"
