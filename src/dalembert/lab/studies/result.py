"""The result of a study: words, pictures and tables, for the report and for the terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dalembert.diagnostics import Drift, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Cell(NamedTuple):
    """One entry of a table."""

    text: str
    tone: str = ""
    """The colour of the cell: exact, bounded, drift, good or differs."""
    notes: tuple[str, ...] = ()
    """Further lines, in small print."""


class Table(NamedTuple):
    """A table with an optional row of headings that span several columns."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()
    """Headings above the columns, each with the number of columns that it spans."""


class Picture(NamedTuple):
    """A figure with its file name, its caption, and a description for readers who cannot see it."""

    stem: str
    figure: "Figure | None"
    """The figure; None if another process has drawn it and written its files."""
    caption: str
    alt: str


class Result(NamedTuple):
    """A finished study."""

    name: str
    title: str
    said: tuple[str, ...]
    """Paragraphs on what the paper says, or on the reason for the study."""
    found: tuple[str, ...]
    """Paragraphs on what was measured."""
    pictures: tuple[Picture, ...]
    tables: tuple[Table, ...]
    data: Any
    ours: bool = False
    """Whether the study is ours, because the paper has no such figure."""
    source: str = "modin2020"
    """The paper, by its key in the bibliography."""


def to_plain(result: Result) -> dict[str, Any]:
    """The words and tables of a result as lists and texts. Figures are in their files, and data are left out."""
    pictures = [picture._replace(figure=None) for picture in result.pictures]
    return result._replace(pictures=tuple(pictures), data=None)._asdict()


def from_plain(content: dict[str, Any]) -> Result:
    """The result from the output of `to_plain`."""
    tables = []
    for caption, columns, rows, groups in content["tables"]:
        cells = tuple(tuple(Cell(text, tone, tuple(notes)) for text, tone, notes in row) for row in rows)
        tables.append(Table(caption, tuple(columns), cells, tuple((name, span) for name, span in groups)))
    pictures = tuple(Picture(*picture) for picture in content["pictures"])
    said, found = tuple(content["said"]), tuple(content["found"])
    rest = (None, content["ours"], content["source"])
    return Result(content["name"], content["title"], said, found, pictures, tuple(tables), *rest)


def number(x: float, digits: int = 1) -> str:
    """The number as text: 1.2e-3 rather than 1.2e-03, and without a power if it is of ordinary size."""
    if x == 0:
        return "0"
    if 0.01 <= abs(x) < 1000:
        return f"{x:.{max(0, digits - int(np.floor(np.log10(abs(x)))))}f}"
    mantissa, _, exponent = f"{x:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def verdict_cell(found: Drift, paper_drifts: bool | None = None) -> Cell:
    """The verdict with the largest error and the slope, marked if the paper says otherwise."""
    tone = {Verdict.EXACT: "exact", Verdict.BOUNDED: "bounded", Verdict.DRIFT: "drift"}[found.verdict]
    notes = [f"max {number(found.largest)}", f"slope {number(found.slope)} \u00b1 {number(found.error, 0)}"]
    drifts = found.verdict is Verdict.DRIFT
    if paper_drifts is not None and drifts != paper_drifts:
        notes.append("paper: drift" if paper_drifts else "paper: no drift")
    return Cell(str(found.verdict), tone, tuple(notes))


def judged(claims: Mapping[str, bool]) -> str:
    """The verdict on what a paper says: confirmed, or which of its claims do not hold."""
    broken = [claim for claim, holds in claims.items() if not holds]
    if not broken:
        return "Confirmed."
    how = "Not confirmed" if len(broken) == len(claims) else "Confirmed in part"
    return f"{how}: it does not hold that {'; nor that '.join(broken)}."


def drifts(found: Drift) -> bool:
    """Whether the verdict is drift."""
    return found.verdict is Verdict.DRIFT


def plain_row(label: str, entries: Sequence[str | Cell]) -> tuple[Cell, ...]:
    """A row whose entries may be plain text."""
    return (Cell(label), *(x if isinstance(x, Cell) else Cell(x) for x in entries))
