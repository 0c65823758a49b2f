"""What the scripts beside the pages share: showing entries by name."""


def show(entries, names):
    """Runs the entries of these names, all of them without any; each prints what it measures."""
    for name in entries if names in ([], ["all"]) else names:
        if name not in entries:
            raise SystemExit(f"no entry {name!r}; choose from: all, {', '.join(entries)}")
        print(f"{name}: {entries[name].__doc__}")
        entries[name]()
