"""Backward error analysis on the command line: one table with a column per method."""

import json as json_format
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dalembert.cli.names import check_file
from dalembert.diagnostics import BackwardError, Kept, backward_error
from dalembert.methods import Method
from dalembert.model import System

STYLES = {Kept.KEPT: "green", Kept.BROKEN: "bold red", Kept.UNDECIDED: "yellow", Kept.ABSENT: "dim"}
COLUMN = 27


def backward_and_report(
    console: Console,
    system: System,
    methods: dict[str, Method],
    h: float | None,
    states: int,
    start: str | None,
    json: str | None,
) -> None:
    """Analyses the modified field of each method, prints the tables, and writes the JSON file if one was asked for."""
    check_file("--json", json)
    found = {}
    with Console(stderr=True).status("starting") as status:
        for name, method in methods.items():
            status.update(escape(f"{system.label} by {name}"))
            found[name] = backward_error(system, method, start=start, h=h, states=states)
    per_table = max(1, (console.width - 36) // COLUMN)
    names = list(found)
    for a in range(0, len(names), per_table):
        console.print(_table({name: found[name] for name in names[a : a + per_table]}))
    console.print(
        "Numbers are largest defects, relative to the terms that should cancel: of broken structures with h, of the "
        "others with h/4, where the field is known best.\n"
    )
    for name, each in found.items():
        _tell(console, name, each)
    if json is not None:
        made = [each.to_dict() | {"method": name} for name, each in found.items()]
        Path(json).write_text(json_format.dumps(made, indent=1))
        console.print(f"wrote {json}", highlight=False)


def _table(found: dict[str, BackwardError]) -> Table:
    first = next(iter(found.values()))
    table = Table("modified field", *map(escape, found), title_justify="left")
    table.title = f"{first.system}, h = {first.h:.6g}, {first.states} states"
    table.add_row("distance from the exact field", *(escape(x.distance.number) for x in found.values()))
    rows = dict.fromkeys(name for x in found.values() for name in x.structures)
    for row in rows:
        cells = []
        for each in found.values():
            finding = each.structures.get(row)
            if finding is None:
                cells.append("-")
            else:
                cells.append(f"[{STYLES[finding.verdict]}]{finding.verdict}[/]\n{escape(finding.number)}")
        table.add_row(escape(row), *cells)
    return table


def _tell(console: Console, name: str, each: BackwardError) -> None:
    if each.broken:
        line = f"its modified field does not have: {', '.join(each.broken)}"
    else:
        line = "its modified field keeps everything that was measured"
    undecided = [row for row, x in each.structures.items() if x.verdict is Kept.UNDECIDED]
    if undecided:
        line += f"; undecided, because the field is not known well enough at this h: {', '.join(undecided)}"
    console.print(f"{name}: {line}", highlight=False, markup=False)
    if each.growth is not None:
        rates = ", ".join(f"{x:+.3e}" for x in each.growth.exponents)
        drifts = max(abs(each.growth.exponents)) > each.growth.error
        said = "passengers drift" if drifts else "no drift is predicted"
        console.print(
            f"  {said}: rates {rates} +- {each.growth.error:.0e} per unit of time",
            highlight=False,
            markup=False,
        )
