"""A sweep on disk: one Zarr group that xarray opens. Every block is a region with a mark that is set last.

Every chunk ends with a checksum. A manifest holds the digests of metadata and coordinates, which are written once, when
the store is made. The manifest is written last, and its presence identifies a store.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr
from filelock import FileLock, Timeout
from zarr.codecs import Crc32cCodec, ZstdCodec

from dalembert.simulation.durable import (
    MANIFEST,
    Damaged,
    amiss,
    beside,
    contents,
    digest,
    put,
    remove,
    sealed,
    sync,
    sync_tree,
    unsealed,
)
from dalembert.simulation.storage import versions
from dalembert.sweeps.layout import Layout, Preview
from dalembert.sweeps.spec import DRAWN, METHOD, START, STEP, Spec, named

FORMAT, KIND = 2, "dalembert sweep"
"""Format 1, of version 0.8 and before, has no checksums."""
DONE, ATTEMPTS = "done", "attempts"
LOCK, ERRORS, INDEX, MAKING = ".lock", ".errors", "zarr.json", ".making"
# The checksum is the last codec, so that a damaged chunk is never decompressed.
CODECS: dict[str, Any] = {"compressors": [ZstdCodec(level=0), Crc32cCodec()]}
LONGEST = 16
"""The number of blocks whose errors are kept as text."""


class Store:
    """The folder of a sweep, opened."""

    def __init__(self, path: str | Path, objects: dict[str, Any] | None = None, verify: bool = True):
        self.path = Path(path)
        self.checked = known(self.path) if verify else (self.path / MANIFEST).is_file()
        """Whether the store has checksums; one of version 0.8 has none."""
        try:
            self.group = zarr.open_group(self.path, mode="r+", zarr_format=3, use_consolidated=True)
            metadata: dict[str, Any] = dict(self.group.attrs)
            self.spec = Spec(json.loads(metadata["spec"]), objects or {})
            self.layout = Layout(self.spec.shape, tuple(metadata["blocks"]))
        except Exception as error:  # zarr raises many kinds for damaged metadata of version 0.8
            raise ValueError(f"{path} is not the store of a sweep ({error})") from None
        self.metadata = metadata
        self._arrays: dict[str, Any] = {}
        self._named: set[Path] = set()
        """The folders whose names have been synced to the disk."""

    @classmethod
    def at_work(cls, path: str, objects: dict[str, Any]) -> "Store":
        """The store, opened once for all blocks that a worker computes.

        Every block brings new copies of the classes that were sent along, but compiled functions belong to the first
        copies, which the opened store keeps.
        """
        index = (Path(path) / INDEX).stat()
        key = (path, index.st_ino, index.st_mtime_ns)
        if key not in _opened:
            _opened.clear()
            _opened[key] = cls(path, objects, verify=False)  # the driver has verified it
        return _opened[key]

    def is_done(self, block: int) -> bool:
        """Whether the mark of a block is set. Its file appears in one piece, and a mark is never zero."""
        return (self.path / DONE / "c" / str(block)).is_file()

    def done(self) -> np.ndarray:
        """The marks of all blocks, read from the names of their files because a large sweep has tens of thousands."""
        folder = self.path / DONE / "c"
        done = np.zeros(self.layout.blocks, bool)
        names = os.listdir(folder) if folder.is_dir() else []
        numbers = [int(name) for name in names if name.isascii() and name.isdigit()]
        done[[number for number in numbers if number < len(done)]] = True
        return done

    def attempts(self) -> np.ndarray:
        """The number of times each block was begun; 0 if it cannot be read."""
        try:
            return np.asarray(self._array(ATTEMPTS)[:])
        except (ValueError, OSError):
            return np.array([self._begun(block) for block in range(self.layout.blocks)], np.uint8)

    def _begun(self, block: int) -> int:
        try:
            return int(self._array(ATTEMPTS)[block])
        except (ValueError, OSError):
            return 0

    def begin(self, block: int) -> None:
        """Counts an attempt."""
        self._array(ATTEMPTS)[block] = min(self._begun(block) + 1, 255)

    def write(self, block: int, values: dict[str, np.ndarray]) -> None:
        """Writes the region of a block, syncs it to the disk, and then writes its mark."""
        region = self.layout.region(block)
        for name, x in values.items():
            array = self._array(name)
            own, known = x.shape[len(region) :], array.shape[len(region) :]
            if own != known:
                raise ValueError(f"{name} has shape {own} per member in block {block}, but {known} before")
            array[region] = x
        files = [self.path / name for name in self.files(block)]
        self._sync(file for file in files if self.checked or file.is_file())
        self._array(DONE)[block] = 1
        self._sync([self.path / DONE / "c" / str(block)])
        (self.path / ERRORS / f"{block}.txt").unlink(missing_ok=True)

    def _sync(self, files: Iterable[Path]) -> None:
        """Syncs files and their folders to the disk. Folders further up are synced once, as they do not change."""
        files = list(files)
        sync(files)
        folders = {file.parent for file in files}
        for folder in list(folders):
            while folder not in self._named and folder != self.path:
                self._named.add(folder)
                folder = folder.parent
                folders.add(folder)
        sync(sorted(folders, key=lambda folder: -len(folder.parts)))

    def files(self, block: int) -> list[str]:
        """The files of a block without its mark: the count of its attempts, then the values of each variable."""
        place = [str(int(i)) for i in np.unravel_index(block, self.layout.counts)]
        found = [f"{ATTEMPTS}/c/{block}"]
        for name in self.variables:
            shape = self._array(name).shape
            if 0 not in shape:  # an empty array has no chunks
                found.append("/".join([name, "c", *place, *["0"] * (len(shape) - len(place))]))
        return found

    @functools.cached_property
    def variables(self) -> list[str]:
        """The arrays that blocks write."""
        dims = tuple(axis.name for axis in self.spec.axes)
        given = {named(key) for key in self.spec.swept}
        return [
            name
            for name, array in self.group.arrays()
            if name not in given
            and tuple(getattr(array.metadata, "dimension_names", None) or ())[: len(dims)] == dims
        ]

    def damaged(self) -> dict[int, str]:
        """The blocks that have their mark but are not as they were written, and what is wrong with each."""
        if not self.checked:
            return {}
        found = {}
        for block in np.flatnonzero(self.done()):
            for name in (f"{DONE}/c/{block}", *self.files(int(block))):
                trouble = _unsound(self.path / name)
                if trouble:
                    found[int(block)] = f"{name} {trouble}"
                    break
        return found

    def forget(self, blocks: Iterable[int]) -> None:
        """Removes the marks of blocks, so that they are computed again."""
        for block in blocks:
            remove(self.path / DONE / "c" / str(block))
            if _unsound(self.path / ATTEMPTS / "c" / str(block)):
                remove(self.path / ATTEMPTS / "c" / str(block))
        sync([self.path / DONE / "c"])

    def remember(self, block: int, trouble: str) -> None:
        """Keeps the text of an error of a block, for the first few blocks that have one."""
        folder = self.path / ERRORS
        folder.mkdir(exist_ok=True)
        if len(list(folder.iterdir())) < LONGEST:
            (folder / f"{block}.txt").write_text(trouble)

    def troubles(self) -> dict[int, str]:
        """The errors that were kept, by block."""
        found = [
            path for path in (self.path / ERRORS).glob("*.txt") if path.stem.isascii() and path.stem.isdigit()
        ]
        found.sort(key=lambda path: int(path.stem))
        return {int(path.stem): path.read_text(errors="replace") for path in found}

    def tidy(self) -> None:
        """Removes the temporary files that killed writers left behind."""
        for left in self.path.rglob("*.partial"):
            left.unlink(missing_ok=True)
        remove(self.path / MAKING)

    def _array(self, name: str) -> Any:
        if name not in self._arrays:
            # Zarr would leave out chunks that hold only NaN, but here a missing chunk means lost data.
            with zarr.config.set({"array.write_empty_chunks": True}):
                self._arrays[name] = self.group[name]
        return self._arrays[name]


_opened: dict[tuple, Store] = {}


def _unsound(path: Path) -> str:
    """What is wrong with the file of a chunk; empty if nothing is."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if len(data) < 5 or google_crc32c.value(data[:-4]).to_bytes(4, "little") != data[-4:]:
        return "is damaged: its checksum does not match"
    return ""


def is_sweep(path: Path) -> bool:
    """Whether `path` holds a complete store of a sweep, sound or not."""
    return (path / MANIFEST).is_file() or _is_old(path)


def _is_old(path: Path) -> bool:
    """Whether `path` holds a complete store of version 0.8 or before."""
    try:
        metadata = json.loads((path / INDEX).read_text())
        attributes = metadata["attributes"]
        return (
            attributes["kind"] == KIND
            and attributes["format"] == 1
            and bool(metadata["consolidated_metadata"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def known(path: Path) -> bool:
    """Whether a store has checksums. Those of metadata and coordinates are verified.

    Raises ValueError if there is no sweep, or if metadata or coordinates are damaged.
    """
    if not path.is_dir():
        raise ValueError(f"{path} is not the store of a sweep: there is no such folder")
    if not (path / MANIFEST).is_file():
        if _is_old(path):
            return False
        raise ValueError(f"{path} is not the store of a sweep: {MANIFEST} is missing in it")
    try:
        metadata = unsealed(path / MANIFEST)
        if metadata["kind"] != KIND:
            raise ValueError(f"{path} is not the store of a sweep: it is a {metadata['kind']}")
        wrong = amiss(path, metadata["files"])
        if wrong:
            raise Damaged(wrong)
    except Damaged as error:
        raise Damaged(
            f"{path} is damaged: {error}. Nothing was changed; restore that file from a copy, or choose another "
            "store and compute the sweep again"
        ) from None
    return True


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds the folder of a store for one sweep at a time, and makes the folder if it is missing."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; a sweep is written to a folder")
    fresh = not path.exists()
    if not fresh and not is_sweep(path):
        _ours(path)
    path.mkdir(parents=True, exist_ok=True)
    with locked(path / LOCK):
        try:
            yield
        finally:
            if not is_sweep(path):  # no store was made
                _clear(path)
                if fresh:
                    remove(path / LOCK)
                    with contextlib.suppress(OSError):  # somebody else has put a file there in the meantime
                        path.rmdir()


def _ours(path: Path) -> list[str]:
    """The names that an interrupted creation left in a folder; raises ValueError if it holds anything else."""
    begun: list[str] = []
    if (path / MAKING).is_file():
        with contextlib.suppress(Damaged, ValueError):
            begun = [MAKING, *unsealed(path / MAKING)["entries"]]
    there = sorted(x.name for x in path.iterdir())
    for name in there:
        if name not in (LOCK, *begun):
            raise ValueError(
                f"{path} exists and is not a sweep: {name!r} in it is not of this library, or cannot be identified. "
                "Nothing in it was changed; choose another name, or remove the folder yourself"
            )
    holder = (path / LOCK).read_bytes() if (path / LOCK).is_file() else b""
    if (path / LOCK).is_dir() or holder.strip(b"0123456789"):
        raise ValueError(
            f"{path} exists and is not a sweep: {LOCK!r} in it is not of this library; choose another name"
        )
    return [name for name in there if name in begun]


def _clear(path: Path) -> None:
    """Removes what an interrupted creation left behind, and its list of files last."""
    with contextlib.suppress(ValueError):
        for name in sorted(_ours(path), key=lambda name: name == MAKING):
            remove(path / name)


def create(path: Path, spec: Spec, preview: Preview, layout: Layout) -> Store:
    """Makes all arrays, empty, with coordinates and provenance. The manifest, which identifies a store, comes last."""
    _clear(path)
    names = [*map(named, spec.swept), *preview.labels, *preview.variables, DONE, ATTEMPTS, INDEX]
    with beside(path) as new:
        put(new, sealed({"kind": KIND, "entries": names}))
        os.replace(new, path / MAKING)
    sync([path])
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
            **CODECS,
        )
    book = {DONE: "1 where the block is complete", ATTEMPTS: "how often the block was begun"}
    for name, text in book.items():
        group.create_array(
            name, shape=(layout.blocks,), chunks=(1,), dtype="u1", fill_value=0,
            dimension_names=["block"], attributes={"long_name": text}, **CODECS,
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
    sync_tree(path)
    files = [name for name in contents(path) if name not in (LOCK, MAKING)]
    metadata = {name: digest((path / name).read_bytes()) for name in files}
    with beside(path) as new:
        put(new, sealed({"kind": KIND, "format": FORMAT, "files": metadata}))
        os.replace(new, path / MANIFEST)
    sync([path, path.parent])
    remove(path / MAKING)
    return Store(path, spec.objects)


def _put(group: Any, name: str, values: Any, dim: str, attrs: dict[str, Any] | None = None) -> None:
    text = isinstance(values[0], str)
    array = group.create_array(
        name,
        shape=(len(values),),
        dtype=str if text else float,
        dimension_names=[dim],
        attributes=attrs or {},
        **CODECS,
    )
    array[:] = np.asarray(values, dtype=object if text else float)


def _coordinate(group: Any, spec: Spec, axis: Any, key: str) -> None:
    """Writes the values of a quantity along its dimension; random values are drawn one stream at a time."""
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
        **CODECS,
    )
    for low in range(0, axis.size, DRAWN * 16):
        high = min(low + DRAWN * 16, axis.size)
        array[low:high] = axis.part(key, low, high, spec["seed"])


def difference(spec: Spec, store: Store) -> str:
    """What differs between this spec and version and those that made the store; empty if nothing does."""
    lines = []
    before, now = _flat(store.spec.entries), _flat(spec.entries)
    if now.get("block", "null") == "null" or math.prod(store.layout.chunks) == spec["block"]:
        before.pop("block", None)
        now.pop("block", None)
    made = json.loads(store.metadata["versions"])
    before |= {f"version of {key}": x for key, x in made.items()}
    now |= {f"version of {key}": x for key, x in versions().items()}
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            lines.append(
                f"  {key}: the store has {before.get(key, 'nothing')}, now it is {now.get(key, 'nothing')}"
            )
    return "\n".join(lines)


def _flat(metadata: dict[str, Any]) -> dict[str, str]:
    """One text per entry of a spec, and one per dimension for its values."""
    flat = {}
    for key, value in metadata.items():
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


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock; raise ValueError where another process holds it."""
    lock = FileLock(path, timeout=0, mode=0o644)
    try:
        lock.acquire()
    except Timeout:
        holder = path.read_text(errors="replace")[:32].strip()
        who = f"another sweep (process {holder})" if holder else "another sweep"
        raise ValueError(f"{who} is writing to {path.parent}; wait for it, or choose another store") from None
    try:
        path.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock."""
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # the file cannot be opened for writing here, so nobody here writes to the store
        return False
