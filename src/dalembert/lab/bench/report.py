"""Writes the page docs/benchmarks.md and its figures: python -m dalembert.lab.bench.report results.json

Every sentence with a number is made from the file; nothing is written by hand.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dalembert.lab.bench import size_report
from dalembert.lab.bench.peers import least_lead
from dalembert.lab.bench.tables import Section, Table, markdown

LEVEL_KEY = "level"


def _rows(sections: dict[str, Section], name: str, needs: str, which: int = 0) -> list[dict[str, Any]]:
    """The rows of the n-th table that has a column `needs`; empty if the section did not run."""
    section = sections.get(name)
    tables = [t for t in section.tables if any(key == needs for key, *_ in t.columns)] if section else []
    return [r for r in tables[which].rows if r.get(needs) is not None] if len(tables) > which else []


def _verdict(holds: int, of: int) -> str:
    if holds == of:
        return "Holds"
    return "Does not hold" if holds == 0 else f"Holds for {holds} of {of}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{x}`" for x in names)


def _within(rows: list[dict[str, Any]], key: str, bound: float, what: str) -> Iterator[str]:
    """One sentence on whether all values are at most `bound`, with their range and the cases that fail."""
    if not rows:
        return
    values = [r[key] for r in rows]
    bad = [r["case"] for r in rows if r[key] > bound]
    yield (
        f"{_verdict(len(rows) - len(bad), len(rows))}: {what}. Ratios are {min(values):.2f} to {max(values):.2f}."
        + (f" Above the bound: {_listed(bad)}." if bad else "")
    )


def _least(rows: list[dict[str, Any]], key: str, bound: float, what: str) -> Iterator[str]:
    """One sentence on whether all values are at least `bound`, with their range and the cases that fail."""
    if not rows:
        return
    values = [r[key] for r in rows]
    bad = [r["case"] for r in rows if r[key] < bound]
    yield (
        f"{_verdict(len(rows) - len(bad), len(rows))}: {what}. Factors are {min(values):.3g} to {max(values):.3g}."
        + (f" Below the bound: {_listed(bad)}." if bad else "")
    )


def claims(sections: dict[str, Section]) -> list[str]:
    """One sentence per claim, with the numbers that decide it."""
    lines: list[str] = []
    lines += _within(
        _rows(sections, "c", "ratio"),
        "ratio",
        1.3,
        "one trajectory takes at most 1.3 times as long as hand-written C",
    )
    many = _rows(sections, "ensemble", "ratio")
    explicit = [r for r in many if "leapfrog" in r["case"]]
    what = "an ensemble on one core takes at most {} times as long as hand-written SIMD C ({} methods)"
    lines += _within(explicit, "ratio", 3.0, what.format("three", "explicit"))
    rest = [r for r in many if r not in explicit]
    lines += _within(rest, "ratio", 5.0, what.format("five", "implicit"))
    measured = _rows(sections, "ensemble", "speedup")
    scaling = [r for r in measured if r.get("decides")]
    if len(scaling) < len(measured):
        lines.append(
            f"Not decided for {len(measured) - len(scaling)} of {len(measured)}: how much da.ensemble gains from "
            f"more cores. The cores were busy: a control without the library sped up by "
            f"only {min(r['control'] for r in measured):.2f}."
        )
    lines += _least(
        scaling, "speedup", 1.6, "da.ensemble is at least 1.6 times faster on all cores than on one"
    )
    naive = _rows(sections, "naive", "times")
    lines += _least(
        naive,
        "times",
        5.0,
        "da.simulate and da.ensemble, called as usual, are at least five times faster than plain JAX",
    )
    engines = _rows(sections, "naive", "times", 1)
    lines += _least(
        engines, "times", 3.0, "the machine code is at least three times faster than the XLA engine"
    )
    first = [r for r in _rows(sections, "compile", "median") if not r["case"].startswith("import")]
    for row in [r for r in _rows(sections, "compile", "median") if r["case"].startswith("import")]:
        lines.append(f"The import takes {row['median']:.2f} s.")
    if first:
        slowest, quickest = max(first, key=lambda r: r["median"]), min(first, key=lambda r: r["median"])
        lines.append(
            f"A first call takes {quickest['median']:.2f} s ({quickest['case']}) to {slowest['median']:.2f} s "
            f"({slowest['case']}), all compilation included."
        )
    lead = least_lead(_rows(sections, "peers", "error"), 1e-5, float("inf"))
    if lead is not None:
        factor, level = lead
        lines.append(
            f"{_verdict(int(factor > 1), 1)}: on the first problem of the work-precision comparison, at every error "
            "above 1e-5, some method here is quicker than every other solver. The lead is smallest at an error of "
            f"{level:.1e}, a factor of {factor:.2f}."
        )
    gradients = _rows(sections, "gradients", "ratio")
    lines += _within(gradients, "ratio", 10.0, "a gradient costs at most ten runs of the bare loop")
    for row in gradients:
        if row.get("memory0") is not None and row.get("memory1") is not None:
            lines.append(
                f"The {row['case']} gradient needs {row['memory0']:.1f} MB of memory, and {row['memory1']:.1f} MB "
                "for ten times as many steps."
            )
    for row in _rows(sections, "tag", "honoured"):
        word = "still honours" if row["honoured"] == "yes" else "no longer honours"
        lines.append(
            f"XLA (JAX {row['jax']}) {word} the one-kernel tag: plain / tagged is {row['gain']:.1f}."
        )
    if "size" in sections:
        lines += size_report.claims(sections["size"])
    lines += _sweeps(_rows(sections, "sweep", "ratio"), _rows(sections, "sweep", "driver"))
    skipped = [f"{s.name} ({s.skipped})" for s in sections.values() if s.skipped]
    if skipped:
        lines.append(f"Not measured: {'; '.join(skipped)}.")
    return lines


def _sweeps(rows: list[dict[str, Any]], memory: list[dict[str, Any]]) -> Iterator[str]:
    """Sentences on the cost of the engine, the gain from a second worker, and the growth of memory."""
    if len(rows) == 2:
        yield from _within(
            rows[:1], "ratio", 1.1, "the engine of sweeps costs less than a tenth of a plain loop over blocks"
        )
        if rows[1]["decides"]:
            yield from _least(
                rows[1:], "speedup", 1.7, "two workers sweep at least 1.7 times faster than one"
            )
        else:
            gained = rows[1]["control"]
            yield f"Not decided: how much a second worker gains. The cores were busy: a control gained {gained:.2f}."
    if memory:
        first, last = memory[0], memory[-1]
        yield (
            f"A sweep of {last['trajectories']:,} trajectories needs {last['driver']:.0f} MB in the driver and "
            f"{last['worker']:.0f} MB in a worker; one of {first['trajectories']:,} needs {first['driver']:.0f} and "
            f"{first['worker']:.0f}."
        )


def _contests(sections: dict[str, Section]) -> list[Table]:
    section = sections.get("peers")
    tables = section.tables if section else []
    return [t for t in tables if any(key == LEVEL_KEY for key, *_ in t.columns)]


def where_peers_win(sections: dict[str, Section]) -> str:
    """Sentences on the accuracies at which a peer is quicker on each problem, and by how much; or that none is."""
    parts = []
    for table in _contests(sections):
        name = table.title.partition(": who")[0]
        lost = [r for r in table.rows if r.get("times") is not None and r["times"] < 1]
        won = [r for r in table.rows if r.get("times") is not None and r["times"] >= 1]
        alone = [r for r in table.rows if r.get("ours") is not None and r.get("theirs") is None]
        never = [r for r in table.rows if r.get("ours") is None]
        text = f"{name}:"
        if lost:
            peers = sorted({r["peer"].partition(",")[0] for r in lost})
            factors = [1 / r["times"] for r in lost]
            span = f"{min(factors):.1f}" if len(lost) == 1 else f"{min(factors):.1f} to {max(factors):.1f}"
            text += (
                f" {' and '.join(peers)} reached {_levels(lost)} first, {span} times quicker than our best."
            )
        if won:
            factors = [r["times"] for r in won]
            span = f"{min(factors):.1f}" if len(won) == 1 else f"{min(factors):.1f} to {max(factors):.1f}"
            text += f" Ours reached {_levels(won)} first, {span} times quicker than the best peer."
        if alone:
            text += f" Only ours reached {_levels(alone)} among the settings tried."
        if never:
            text += f" Only a peer reached {_levels(never)}."
        parts.append(text)
    if not parts:
        return ""
    lost = [r for t in _contests(sections) for r in t.rows if r.get("times") is not None and r["times"] < 1]
    last = "No peer was quicker at any of the accuracies compared."
    if lost:
        winners = " or ".join(sorted({r["peer"].partition(",")[0] for r in lost}))
        last = (
            "Peers integrate equations that were reduced by hand for each problem; the methods here take the "
            "Lagrangian and the constraints as they are. Where such equations are at hand and only accuracy at the "
            f"times above matters, {winners} is the better choice at the accuracies named. This comparison "
            "does not measure what the methods here are made for: energy, constraint and reversibility."
        )
    return "\n\n".join(["\n".join(f"- {x}" for x in parts), last])


def _levels(rows: list[dict[str, Any]]) -> str:
    return "errors of " + ", ".join(f"{r[LEVEL_KEY]:.0e}" for r in rows)


TITLES = {
    "c": "One trajectory against hand-written C",
    "ensemble": "Ensembles",
    "naive": "Against plain JAX",
    "peers": "Against other solvers",
    "compile": "Import and first call",
    "gradients": "Gradients",
    "size": "Large systems",
    "tag": "The one-kernel tag of XLA",
    "sweep": "Sweeps",
    "gpu": "On a GPU",
}
PICTURES = {"peers": "Error against time", "size": "First call and step against the number of coordinates"}
"""The sections with a figure, and its description."""
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
"""A load above this before the run is worth a warning."""
COLOURS = {"heyoka": "black", "diffrax": "0.45", "scipy": "0.7"}


def read(path: Path) -> tuple[dict[str, Any], dict[str, Section]]:
    """The file's header and its sections."""
    metadata = json.loads(path.read_text())
    if metadata.get("format") != 1:
        raise ValueError(f"{path} was not written by dalembert bench --json")
    return metadata, {name: Section.from_json(x) for name, x in metadata["sections"].items()}


def figure(tables: list[Table], path: Path) -> None:
    """Error against time, one panel per problem."""
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


def _machine(metadata: dict[str, Any]) -> str:
    machine = metadata["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    missing = [name for name, v in machine["versions"].items() if not v]
    lines = [
        f"Machine: {machine['cpu']} ({machine['architecture']}), {machine['cores']} cores, {machine['system']}; "
        f"{machine['gcc'] or 'no gcc'}; Python {machine['python']}; {versions}. Measured on {machine['date']}, the "
        f"whole run in {metadata['seconds']:.0f} s."
    ]
    load = machine.get("load_before")
    if load is not None and load > BUSY:
        lines.append(
            f"**The machine was busy with other work (load {load:.1f} before the run): run it again alone.**"
        )
    if missing:
        lines.append(f"Not installed there: {', '.join(missing)}.")
    if metadata["settings"]["quick"]:
        lines.append("**This was a quick run, to see that everything works: the numbers are rough.**")
    return " ".join(lines)


def _section(section: Section, images: dict[str, str], other: dict[str, Any] | None = None) -> str:
    """One section; `other` describes the run that it comes from, if that is another one."""
    parts = [f"## {TITLES[section.name]}", section.what]
    if other is not None:
        parts.append(f"Measured in a run of its own. {_machine(other)}")
    if section.skipped:
        parts.append(f"Skipped: {section.skipped}.")
    if section.name in images:
        parts.append(f"![{PICTURES[section.name]}]({images[section.name]})")
    for table in section.tables:
        if len(section.tables) > 1 or section.name == "gpu":
            parts.append(f"**{table.title}**")
        parts.append(markdown(table))
    if section.notes:
        parts.append("\n".join(f"- {note}" for note in section.notes))
    return "\n\n".join(parts)


def page(
    metadata: dict[str, Any],
    sections: dict[str, Section],
    images: dict[str, str],
    others: dict[str, dict[str, Any]] | None = None,
) -> str:
    """The whole page; `images` are the names of the figures, and `others` the runs of sections from other runs, by
    section."""
    others = others or {}
    kept = metadata["settings"]["repeats"]
    parts = [
        "# Benchmarks",
        "Written by `python -m dalembert.lab.bench.report` from one run of `dalembert bench`; "
        "`make benchmarks` does both.",
        _machine(metadata),
        "The numbers to read here are ratios. Both sides of each ratio were measured in the same run, in turns (ours, "
        f"theirs, ours, theirs, ...), and are medians of {kept} repeats unless stated otherwise. Seconds depend on the "
        "machine; ratios do too, but less. *Spread* is the largest minus the least time, relative to the median: "
        "where it is large, something else was running, and the ratio of the minima is the better number.",
    ]
    decided = claims(sections)
    if decided:
        parts += ["## What holds, and what does not", "\n".join(f"- {line}" for line in decided)]
    losses = where_peers_win(sections)
    if losses:
        parts += ["## Where other solvers win", losses]
    parts += [_section(s, images, others.get(name)) for name, s in sections.items()]
    return "\n\n".join(parts) + "\n"


def write(results: Path, out: Path, more: Sequence[Path] = ()) -> list[Path]:
    """Writes the page, and the figures next to it if there is something to draw.

    `more` are results of other runs, perhaps on other machines; their sections take the place of those in `results`.
    """
    metadata, sections = read(results)
    others: dict[str, dict[str, Any]] = {}
    for path in more:
        other, found = read(path)
        sections |= found
        others |= dict.fromkeys(found, other)
    sections = {name: sections[name] for name in TITLES if name in sections}
    images: dict[str, Path] = {}
    peers = sections.get("peers")
    drawn = [t for t in peers.tables if any(key == "error" for key, *_ in t.columns)] if peers else []
    if drawn:
        images["peers"] = out.with_suffix(".png")
        figure(drawn, images["peers"])
    grown = out.with_name(f"{out.stem}-size.png")
    if "size" in sections and size_report.figure(sections["size"], grown):
        images["size"] = grown
    out.write_text(page(metadata, sections, {name: path.name for name, path in images.items()}, others))
    return [out, *images.values()]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Writes docs/benchmarks.md from the results of dalembert bench."
    )
    parser.add_argument("results", type=Path, help="the file that dalembert bench --json wrote")
    parser.add_argument(
        "more", type=Path, nargs="*", help="results of other runs, whose sections count instead"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks.md"))
    given = parser.parse_args()
    write(given.results, given.out, given.more)


if __name__ == "__main__":
    main()
