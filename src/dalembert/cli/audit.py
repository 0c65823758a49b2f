"""The audit on the command line: one table with a column per method, and what is broken in words."""

import json as json_format
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dalembert.cli.names import check_file
from dalembert.diagnostics import Audit, audit, compare
from dalembert.diagnostics.auditing import FIELD
from dalembert.methods import Method
from dalembert.model import System

# The style of a cell, by the word that it begins with.
STYLES = {
    "exact": "green",
    "kept": "green",
    "consistent": "green",
    "none": "green",
    "bounded": "cyan",
    "DRIFT": "bold red",
    "BROKEN": "bold red",
    "WRONG": "bold red",
    "too": "yellow",
    "broken": "bold red",
    "undecided": "yellow",
}
COLUMN = 21


def audit_and_report(
    console: Console,
    system: System,
    methods: dict[str, Method],
    h: float | None,
    steps: int,
    start: str | None,
    json: str | None,
    strict: bool,
    backward: bool,
) -> None:
    """Runs the audit, prints the tables and what is broken, and writes the JSON file if one was asked for."""
    check_file("--json", json)
    with Console(stderr=True).status("starting") as status:
        options = {"start": start, "h": h, "steps": steps, "backward": backward}
        found = audit(system, list(methods.values()), **options, progress=lambda x: status.update(escape(x)))
    # The user's own classes appear under the name that was typed.
    found = [replace(a, method=name) for name, a in zip(methods, found, strict=True)]
    per_table = max(1, (console.width - 24) // COLUMN)
    first = found[0]
    console.print(f"{first.system}: {first.structure}", highlight=False)
    for a in range(0, len(found), per_table):
        console.print(_table(found[a : a + per_table]))
    console.print(
        "Integrals: verdict and largest error, then slope(standard error) of the running mean. "
        "log det: rate(standard error)."
    )
    if backward:
        console.print(
            "Modified field: verdict, then defect(estimated error), relative to the terms that should cancel: of "
            "broken structures with h, of the others with h/4."
        )
    console.print()
    _tell(console, found)
    if json is not None:
        Path(json).write_text(json_format.dumps([a.to_dict() for a in found], indent=1))
        console.print(f"wrote {json}", highlight=False)
    if strict and any(a.broken_claims for a in found):
        raise SystemExit(1)


def _table(found: list[Audit]) -> Table:
    header, *rows = compare(found)
    first = found[0]
    table = Table(*map(escape, header), title_justify="left")
    table.title = f"{first.system}, h = {first.h:.6g}, {first.steps:,} steps"
    for name, *cells in rows:
        if name == FIELD:
            table.add_section()
        table.add_row(escape(name), *map(_styled, cells))
    return table


def _styled(cell: str) -> str:
    style = STYLES.get(cell.partition(" ")[0].partition("\n")[0])
    return f"[{style}]{escape(cell)}[/]" if style else escape(cell)


def _tell(console: Console, found: list[Audit]) -> None:
    for each in found:
        if not each.problems:
            claims = "it makes no claims" if each.claims is None else "every claim it makes holds"
            console.print(f"{each.method}: nothing is broken; {claims}", highlight=False, markup=False)
        else:
            console.print(f"{each.method}:", highlight=False, markup=False)
        for line in each.problems:
            mark = "claim: " if line in each.broken_claims else ""
            console.print(f"  - {mark}{line}", highlight=False, markup=False)
        for mark, lines in (("?", each.warnings), ("*", each.remarks)):
            for line in lines:
                console.print(f"  {mark} {line}", highlight=False, markup=False)
