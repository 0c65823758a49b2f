"""One writer at a time: a lock that the operating system takes away when its holder ends, however it ends."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock; ValueError where another process does."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _take(handle):
            holder = os.read(handle, 32).decode(errors="replace").strip()
            who = f"another sweep (process {holder})" if holder else "another sweep"
            raise ValueError(f"{who} is writing to {path.parent}; wait for it, or choose another store")
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock."""
    if not path.exists():
        return False
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:  # it cannot be written here, so nobody here writes
        return False
    try:
        return not _take(handle)
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        with contextlib.suppress(OSError):
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
            return True
        return False
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
