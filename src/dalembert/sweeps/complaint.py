"""Errors that name the key, and in a file the line, of what is wrong in a spec."""

import re


class Complaint:
    """Makes the error about a key; `text` is that of the TOML file, where the spec came from one."""

    def __init__(self, name: str = "", text: str = ""):
        self.name, self.text = name, text

    def __call__(self, key: str, message: str) -> ValueError:
        """The error: where, then what."""
        line = line_of(self.text, key)
        parts = [self.name, f"line {line}" if line else "", key]
        return ValueError(f"{', '.join(x for x in parts if x)}: {message}")


def line_of(text: str, key: str) -> int | None:
    """The line of a TOML text that gives a key such as grid.h or grid.v0.xi; the nearest above it where none does."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line)
        entry = re.match(
            r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""", line
        )
        if head:
            table = _plain(head[1])
            found.setdefault(table, number)
        elif entry:
            found.setdefault(".".join(filter(None, (table, _plain(entry[1])))), number)
    while key:
        if key in found:
            return found[key]
        key = key.rpartition(".")[0]
    return None


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
