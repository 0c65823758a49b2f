"""Files that are whole or not there: written beside, brought to the disk, renamed; and digests that notice damage."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

HOST = re.sub(r"\W", "_", socket.gethostname())[:32]
MANIFEST = ".dalembert.json"
"""In a folder of ours: what it is, and a digest of each file that does not change."""


class Damaged(ValueError):
    """What is on the disk is not what was written."""


def digest(data: bytes | memoryview) -> str:
    """The digest by which a file is known."""
    return hashlib.sha256(data).hexdigest()


def sync(paths: Iterable[Path]) -> None:
    """Brings files, or the names in folders, to the disk itself, where they outlive a power cut."""
    for path in paths:
        if os.name == "nt" and path.is_dir():  # Windows cannot open folders, and keeps names by itself
            continue
        handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
        try:
            os.fsync(handle)
        except OSError as error:
            # Some file systems of networks cannot do it for folders.
            if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP, errno.EBADF)):
                raise
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Brings a folder with all that is in it to the disk: files first, then the folders that name them."""
    for here, _, names in os.walk(folder, topdown=False):
        sync(Path(here, name) for name in names)
        sync([Path(here)])


def put(path: Path, data: bytes | memoryview) -> None:
    """Writes a new file and brings it to the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A free name in the folder of `path`; what is left there by the end is removed, and so is what earlier
    processes of this machine left there when they were killed."""
    for left in path.parent.glob(f".dalembert-{HOST}-*.saving"):
        number = left.name.removeprefix(f".dalembert-{HOST}-").partition("-")[0]
        if number.isdigit() and not _runs(int(number)):
            remove(left)
    new = path.parent / f".dalembert-{HOST}-{os.getpid()}-{uuid.uuid4().hex[:8]}.saving"
    try:
        yield new
    finally:
        remove(new)


def _runs(process: int) -> bool:
    if os.name == "nt":  # where the signal 0 would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove(path: Path) -> None:
    """Removes a file or folder of ours, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def replace(new: Path, path: Path) -> None:
    """Renames `new` to `path`; what was there stays until then."""
    if not path.is_dir():
        os.replace(new, path)
        sync([path.parent])
        return
    # A folder cannot be replaced in one go: the old one has another name for a moment, under which it is found again.
    old = aside(path)
    try:
        os.rename(path, old)
        os.rename(new, path)
    except BaseException:
        restore(path)
        raise
    sync([path.parent])
    remove(old)


def aside(path: Path) -> Path:
    """Where a folder is while it is replaced."""
    return path.with_name(f".{path.name}.replaced")


def restore(path: Path) -> None:
    """Brings back a folder whose replacement was cut off."""
    if not path.exists() and aside(path).exists():
        os.rename(aside(path), path)


def sealed(told: Mapping[str, Any]) -> bytes:
    """Values as JSON on one line, after the digest of that line."""
    line = json.dumps(told, sort_keys=True)
    return f"{digest(line.encode())} {line}\n".encode()


def unsealed(path: Path) -> dict[str, Any]:
    """What `sealed` told; Damaged where a bit of it is not as it was."""
    data = path.read_bytes()
    mark, _, line = data.partition(b" ")
    if mark != digest(line.removesuffix(b"\n")).encode() or not line.endswith(b"\n"):
        raise Damaged(f"{path.name} is damaged: its digest does not match")
    return json.loads(line)


def amiss(folder: Path, digests: Mapping[str, str]) -> str:
    """What is wrong with the first file that is not as its digest says; empty where all are."""
    for name, wanted in digests.items():
        try:
            data = (folder / name).read_bytes()
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if digest(data) != wanted:
            return f"{name} is damaged: its digest does not match"
    return ""


def contents(folder: Path) -> list[str]:
    """The names of all files in a folder and those in it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
