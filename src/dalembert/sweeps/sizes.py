"""How much memory there is, and sizes in words."""

import os


def memory() -> int | None:
    """Bytes of memory that this machine has; None where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def words(size: float) -> str:
    """A number of bytes, for people."""
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} EB" if size < 1e9 else f"{size:.1e} EB"
