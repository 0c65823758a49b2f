"""One writer at a time: a lock that the operating system releases when its holder ends, however it ends."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout


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
