"""python -m dalembert.bench.report results.json: the page docs/benchmarks.md and its figure.

Every sentence with a number in it is made from the file; nothing is written by hand.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from dalembert.bench.claims import claims, where_peers_win
from dalembert.bench.tables import Section, Table, markdown

TITLES = {
    "c": "One trajectory against hand-written C",
    "ensemble": "Ensembles",
    "naive": "Against plain JAX",
    "peers": "Against other solvers",
    "compile": "Import and first call",
    "gradients": "Gradients",
    "tag": "The one-kernel tag of XLA",
    "sweep": "Sweeps",
    "gpu": "On a GPU",
}
MINE = (
    "tab:olive",
    "tab:blue",
    "tab:cyan",
    "tab:green",
    "tab:red",
    "tab:purple",
    "tab:pink",
    "tab:orange",
    "tab:brown",
)
BUSY = 0.7
"""A load before the run above this is worth a warning."""
COLOURS = {"heyoka": "black", "diffrax": "0.45", "scipy": "0.7"}


def read(path: Path) -> tuple[dict[str, Any], dict[str, Section]]:
    """The file's header and its sections."""
    told = json.loads(path.read_text())
    if told.get("format") != 1:
        raise ValueError(f"{path} was not written by dalembert bench --json")
    return told, {name: Section.from_json(x) for name, x in told["sections"].items()}


def figure(tables: list[Table], path: Path) -> None:
    """Error against time, one panel a problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(
        1, len(tables), figsize=(5.2 * len(tables), 4.6), layout="constrained", squeeze=False
    )
    seen: dict[str, Any] = {}
    methods = sorted({r["solver"] for t in tables for r in t.rows if r["who"] == "ours"})
    colours = {m: MINE[i % len(MINE)] for i, m in enumerate(methods)}
    for ax, table in zip(axes[0], tables, strict=True):
        lines: dict[tuple[str, str], list[dict]] = {}
        for row in table.rows:
            if row.get("seconds") and row["error"]:
                lines.setdefault((row["who"], row["solver"]), []).append(row)
        for (who, solver), rows in lines.items():
            mine = who == "ours"
            label = solver if mine else f"{who} {solver}"
            marker = "o" if mine else {"heyoka": "s", "diffrax": "^", "scipy": "v"}.get(who, "x")
            style = "--" if solver in ("Dopri8", "Radau") else "-"
            colour = colours[solver] if mine else COLOURS.get(who, "0.5")
            x, y = [r["seconds"] for r in rows], [r["error"] for r in rows]
            seen[label] = ax.loglog(x, y, marker + style, color=colour, ms=4, lw=1.6 if mine else 1.2)[0]
        ax.set(xlabel="seconds", ylabel="largest error", title=table.title.replace(", to", ",\nto"))
        ax.title.set_fontsize(9)
        ax.grid(alpha=0.3)
    fig.legend(seen.values(), seen.keys(), loc="outside lower center", ncols=8, fontsize=8)
    fig.savefig(path, dpi=130)
    plt.close(fig)


def _machine(told: dict[str, Any]) -> str:
    machine = told["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    missing = [name for name, v in machine["versions"].items() if not v]
    lines = [
        f"Machine: {machine['cpu']} ({machine['architecture']}), {machine['cores']} cores, {machine['system']}; "
        f"{machine['gcc'] or 'no gcc'}; Python {machine['python']}; {versions}. Measured on {machine['date']}, the "
        f"whole run in {told['seconds']:.0f} s."
    ]
    load = machine.get("load_before")
    if load is not None and load > BUSY:
        lines.append(
            f"**The machine was busy with other work (load {load:.1f} before the run): run it again alone.**"
        )
    if missing:
        lines.append(f"Not installed there: {', '.join(missing)}.")
    if told["settings"]["quick"]:
        lines.append("**A quick run, to see that everything works: the numbers are rough.**")
    return " ".join(lines)


def _section(section: Section, image: str | None) -> str:
    parts = [f"## {TITLES[section.name]}", section.what]
    if section.skipped:
        parts.append(f"Skipped: {section.skipped}.")
    if image:
        parts.append(f"![Error against time]({image})")
    for table in section.tables:
        if len(section.tables) > 1 or section.name == "gpu":
            parts.append(f"**{table.title}**")
        parts.append(markdown(table))
    if section.notes:
        parts.append("\n".join(f"- {note}" for note in section.notes))
    return "\n\n".join(parts)


def page(told: dict[str, Any], sections: dict[str, Section], image: str | None) -> str:
    """The whole page."""
    kept = told["settings"]["repeats"]
    parts = [
        "# Benchmarks",
        "Written by `python -m dalembert.bench.report` from one run of `dalembert bench`; "
        "`make benchmarks` does both.",
        _machine(told),
        "What to read here are ratios: both sides of each were measured in the same run, in turns (ours, theirs, "
        f"ours, theirs, ...), and are medians of {kept} repeats where nothing else is said. Seconds depend on the "
        "machine; ratios do too, but less. *Spread* is the largest minus the least time, relative to the median: "
        "where it is large, something else was running, and the ratio of the minima is the better number.",
    ]
    decided = claims(sections)
    if decided:
        parts += ["## What holds, and what does not", "\n".join(f"- {line}" for line in decided)]
    losses = where_peers_win(sections)
    if losses:
        parts += ["## Where other solvers win", losses]
    parts += [_section(s, image if s.name == "peers" else None) for s in sections.values()]
    return "\n\n".join(parts) + "\n"


def write(results: Path, out: Path) -> list[Path]:
    """Writes the page, and the figure next to it where there is something to draw."""
    told, sections = read(results)
    image, written = None, [out]
    peers = sections.get("peers")
    drawn = [t for t in peers.tables if any(key == "error" for key, *_ in t.columns)] if peers else []
    if drawn:
        image = out.with_suffix(".png")
        figure(drawn, image)
        written.append(image)
    out.write_text(page(told, sections, image.name if image else None))
    return written


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Writes docs/benchmarks.md from the results of dalembert bench."
    )
    parser.add_argument("results", type=Path, help="the file that dalembert bench --json wrote")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    given = parser.parse_args()
    write(given.results, given.out)


if __name__ == "__main__":
    main()
