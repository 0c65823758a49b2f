"""Shared by the scripts beside the pages: shows entries by name."""


def show(entries, names):
    """Runs the entries with these names, or all entries without names; each prints what it measures."""
    for name in entries if names in ([], ["all"]) else names:
        if name not in entries:
            raise SystemExit(f"no entry {name!r}; choose from: all, {', '.join(entries)}")
        print(f"{name}: {entries[name].__doc__}")
        entries[name]()
