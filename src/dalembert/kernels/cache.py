"""Machine code kept on disk, so that the next process need not compile it again, and what is known about it.

A file holds a mark, its own key, a digest and object code, or a text of JSON about it. Everything that shapes the
code is in the key. A file that is not whole, or not of this key, counts as missing. If the folder cannot be used,
nothing is kept, without an error.

The code in these files is run. A folder or a file that another user owns or may write to is therefore not used.
"""

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MARK = b"dalembert kernel 1\n"
SUFFIX = ".kernel"
LIMIT = 256 * 2**20
"""The size in bytes above which the files that were not used for longest are removed."""
MOST = 4096
"""The number of files above which they are removed likewise."""
_DIGEST = hashlib.sha256().digest_size
_HOUR = 3600.0
# A path may hold a null byte, and a user may have no home.
_FAULTS = (OSError, ValueError, RuntimeError)


def key_of(text: str, **ingredients: Any) -> str:
    """A name for the code that a text compiles to, which is another one if any of the ingredients is."""
    digest = hashlib.sha256(repr(sorted(ingredients.items())).encode())
    digest.update(b"\0")
    digest.update(text.encode())
    return digest.hexdigest()


def folder() -> Path | None:
    """Where code is kept; None if `DALEMBERT_CACHE=0` says that it is not."""
    chosen = os.environ.get("DALEMBERT_CACHE", "")
    if chosen == "0":
        return None
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else Path.home() / ".cache"
    return Path(base) / "dalembert" / "kernels"


def find(key: str) -> bytes | None:
    """The code that was kept under a key; None if there is none that can be trusted."""
    try:
        where = folder()
        if where is None or not _private(os.stat(where)):
            return None
        with (where / (key + SUFFIX)).open("rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode) or not _private(state):
                return None
            data = file.read()
    except _FAULTS:
        return None
    start = MARK + key.encode()
    code = data[len(start) + _DIGEST :]
    if not code or data != _sealed(start, code):
        return None
    if time.time() - state.st_mtime > _HOUR:
        with contextlib.suppress(OSError):
            os.utime(where / (key + SUFFIX))
    return code


def keep(key: str, code: bytes) -> None:
    """Keeps code under a key, if that is possible."""
    data = _sealed(MARK + key.encode(), code)
    try:
        where = folder()
        if where is None or len(data) > LIMIT:
            return
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(os.stat(where)):
            return
        handle, name = tempfile.mkstemp(
            dir=where, prefix=key[:8], suffix=".new"
        )  # only its owner may read it
        try:
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(name, where / (key + SUFFIX))
        except BaseException:
            os.unlink(name)
            raise
        _prune(where)
    except _FAULTS:
        return


def _sealed(start: bytes, code: bytes) -> bytes:
    return start + hashlib.sha256(start + code).digest() + code


def _private(state: os.stat_result) -> bool:
    """Whether this user alone may change a file or folder; on Windows, the user's own folders are private."""
    return os.name == "nt" or (state.st_uid == os.geteuid() and not state.st_mode & 0o022)


def _prune(where: Path) -> None:
    """Removes what killed processes left, and the files that were not used for longest if there are too many."""
    found, now = [], time.time()
    with os.scandir(where) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process may have removed it
                state = entry.stat(follow_symlinks=False)
                if entry.name.endswith(SUFFIX):
                    found.append((state.st_mtime, state.st_size, entry.path))
                elif entry.name.endswith(".new") and now - state.st_mtime > _HOUR:
                    os.unlink(entry.path)
    size, number = sum(each for _, each, _ in found), len(found)
    for _, each, path in sorted(found):
        if size <= LIMIT and number <= MOST:
            return
        size, number = size - each, number - 1
        with contextlib.suppress(OSError):
            os.unlink(path)
