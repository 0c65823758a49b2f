"""What a section of the benchmark hands back, and how it is shown."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass
class Table:
    """Rows of named values; a column is (key, heading, format)."""

    title: str
    columns: Sequence[tuple[str, str, str]]
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Section:
    """One part of the benchmark: what was measured, in words, and its tables; or why it was skipped."""

    name: str
    what: str
    tables: list[Table] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Section":
        """The reverse of `to_json`."""
        rest: Any = {**told, "tables": [Table(**t) for t in told["tables"]]}
        return cls(**rest)


RATIO = (
    ("ratio", "ratio", ".2f"),
    ("ratio_of_minima", "ratio of minima", ".2f"),
    ("spread", "spread", ".0%"),
)
"""The last columns of a comparison."""


def show(value: Any, how: str) -> str:
    """One value of a table as text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return format(value, how) if how and not isinstance(value, str) else str(value)


def cells(table: Table) -> list[list[str]]:
    """All rows as text."""
    return [[show(row.get(key), how) for key, _, how in table.columns] for row in table.rows]


def markdown(table: Table) -> str:
    """The table for a page."""
    heads = [heading for _, heading, _ in table.columns]
    sides = ["---:" if how else "---" for _, _, how in table.columns]
    lines = [heads, sides, *cells(table)]
    return "\n".join("| " + " | ".join(x.replace("|", "\\|") for x in line) + " |" for line in lines)


def print_section(console: Any, section: Section) -> None:
    """On the terminal."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    console.print(f"\n[bold]{section.name}[/bold]  {escape(section.what)}", highlight=False)
    if section.skipped:
        console.print(f"skipped: {escape(section.skipped)}", highlight=False)
    for table in section.tables:
        shown = RichTable(title=escape(table.title), title_justify="left")
        for _, heading, how in table.columns:
            shown.add_column(heading, justify="right" if how else "left")
        for row in cells(table):
            shown.add_row(*map(escape, row))
        console.print(shown)
    for note in section.notes:
        console.print(escape(note), highlight=False)
