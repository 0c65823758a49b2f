"""Write files completely or not at all (under another name, synced, then renamed), with digests that reveal damage."""

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
"""The file that says what a folder of this library is, with a digest of each file that does not change."""


class Damaged(ValueError):
    """The data on the disk differs from what was written."""


def digest(data: bytes | memoryview) -> str:
    """The digest that identifies the contents of a file."""
    return hashlib.sha256(data).hexdigest()


def sync(paths: Iterable[Path]) -> None:
    """Flushes files, or the names in folders, to the disk itself, so that they survive a power cut."""
    for path in paths:
        if os.name == "nt" and path.is_dir():  # Windows cannot open folders, and flushes names by itself
            continue
        handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
        try:
            os.fsync(handle)
        except OSError as error:
            # Some network file systems cannot do this for folders.
            if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP, errno.EBADF)):
                raise
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flushes a folder and its contents to the disk: files first, then the folders that name them."""
    for here, _, names in os.walk(folder, topdown=False):
        sync(Path(here, name) for name in names)
        sync([Path(here)])


def put(path: Path, data: bytes | memoryview) -> None:
    """Writes a new file and flushes it to the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A free name in the folder of `path`.

    At the end whatever is left under this name is removed, as is what earlier processes of this machine left there when
    they were killed.
    """
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
    if os.name == "nt":  # on Windows the signal 0 would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove(path: Path) -> None:
    """Removes a file or folder of this library, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def replace(new: Path, path: Path) -> None:
    """Renames `new` to `path`; the old contents of `path` stay until then."""
    if not path.is_dir():
        os.replace(new, path)
        sync([path.parent])
        return
    # A folder cannot be replaced in one operation. For a moment the old one has another name, under which `restore`
    # finds it.
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
    """The name of a folder while it is replaced."""
    return path.with_name(f".{path.name}.replaced")


def restore(path: Path) -> None:
    """Brings back a folder whose replacement was interrupted."""
    if not path.exists() and aside(path).exists():
        os.rename(aside(path), path)


def sealed(metadata: Mapping[str, Any]) -> bytes:
    """The values as JSON on one line, preceded by the digest of that line."""
    line = json.dumps(metadata, sort_keys=True)
    return f"{digest(line.encode())} {line}\n".encode()


def unsealed(path: Path) -> dict[str, Any]:
    """The values that `sealed` wrote; raises Damaged if any bit has changed."""
    data = path.read_bytes()
    mark, _, line = data.partition(b" ")
    if mark != digest(line.removesuffix(b"\n")).encode() or not line.endswith(b"\n"):
        raise Damaged(f"{path.name} is damaged: its digest does not match")
    return json.loads(line)


def amiss(folder: Path, digests: Mapping[str, str]) -> str:
    """What is wrong with the first file that does not match its digest; empty if all match."""
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
    """The names of all files in a folder and its subfolders."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
