"""One HTML file with everything: no script, no request to anywhere."""

import base64
import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from dalembert.diagnostics import Verdict
from dalembert.studies.lab import KNIFE_EPS, METHODS, NAMES, PANELS, PAPER, Lab
from dalembert.studies.page import CSS, prose, table_html
from dalembert.studies.result import Cell, Picture, Result, Table

TITLE = "Nonholonomic integrators: published experiments, repeated"
"""Where there is more than one paper."""
INTEGRALS = {"fig6": "E", "fig7": "h", "fig8": "lat."}


class Paper(NamedTuple):
    """A paper whose experiments are repeated: a title for the report, its authors, and what there is of it (HTML)."""

    title: str
    authors: str
    words: str


PAPERS = {
    "modin2020": Paper(
        "What makes nonholonomic integrators work? The experiments, repeated",
        "Modin and Verdier",
        "All figures and tables of K. Modin and O. Verdier, <cite>What makes nonholonomic integrators "
        "work?</cite> (2020), computed anew: five methods of the literature on the knife edge and on the "
        "continuously variable transmission (CVT), and beside them the frame discrete gradient and its "
        "composition of order 4. Two studies that the paper does not have follow.",
    ),
    "ferraro2008": Paper(
        "Momentum and energy preserving integrators for nonholonomic dynamics: the experiments, repeated",
        "Ferraro, Iglesias and Mart\u00edn de Diego",
        "Both figures with results of S. Ferraro, D. Iglesias and D. Mart\u00edn de Diego, <cite>Momentum and "
        "energy preserving integrators for nonholonomic dynamics</cite> (2008), computed anew: the geometric "
        "nonholonomic integrator (GNI) against the discrete Lagrange-d\u2019Alembert method (DLA), on a particle "
        "and on the Chaplygin sleigh. Two studies follow that it does not have: a gait of its snakeboard, "
        "and what becomes of the sleigh after the time that its figure shows.",
    ),
    "cortes2003": Paper(
        "Energy conserving nonholonomic integrators: what the method does",
        "Cort\u00e9s",
        "The extended discrete Lagrange-d\u2019Alembert method (EDLA) of J. Cort\u00e9s, <cite>Energy conserving "
        "nonholonomic integrators</cite> (2003), whose steps have the size that keeps the energy. The paper has "
        "the equations and no experiment; this one is ours.",
    ),
    "fernandez2008": Paper(
        "Reduction of discrete nonholonomic mechanical systems with symmetry: the theorems at work",
        "Fern\u00e1ndez, Tori and Zuccalli",
        "Reduction by symmetry after J. Fern\u00e1ndez, C. Tori and M. Zuccalli, <cite>Reduction of Discrete "
        "Nonholonomic Mechanical Systems with Symmetry</cite> (2008): smaller systems whose motions are those of the "
        "full ones. The paper has theorems and no experiment; this one is ours.",
    ),
}


def write_report(
    folder: Path, results: dict[str, Result], missing: tuple[str, ...], lab: Lab, seconds: float, command: str
) -> Path:
    """Writes report.html into the folder and returns its path."""
    path = folder / "report.html"
    path.write_text(page(folder, results, missing, lab, seconds, command), encoding="utf-8")
    return path


def page(
    folder: Path, results: dict[str, Result], missing: tuple[str, ...], lab: Lab, seconds: float, command: str
) -> str:
    """The whole document."""
    parts = [_head(results), "<body><main>", _opening(results, missing, lab)]
    table = summary(results)
    if table is not None:
        parts.append(
            f'<section id="summary"><h2>Summary</h2>{table_html(table, "summary")}{_legend()}</section>'
        )
    parts += [_section(folder, result) for result in results.values()]
    parts.append(_closing(seconds, command))
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def summary(results: dict[str, Result]) -> Table | None:
    """Method by problem by integral, as far as it was measured; None where nothing was."""
    figures = [n for n in INTEGRALS if n in results]
    if not figures and "fig4" not in results:
        return None
    groups, columns = [("", 1)], ["method"]
    if "fig4" in results:
        groups += [(f"knife, eps = {e:g}", 1) for e in KNIFE_EPS]
        columns += ["H"] * len(KNIFE_EPS)
    for panel in PANELS if figures else ():
        groups.append((f"CVT {panel.start}, eps = {panel.eps:g}", len(figures)))
        columns += [INTEGRALS[n] for n in figures]
    rows = []
    for spelling in METHODS:
        cells = [Cell(NAMES[spelling], notes=(spelling,))]
        if "fig4" in results:
            cells += [_short(results["fig4"].data[spelling, e].kept.drift.verdict) for e in KNIFE_EPS]
        for panel in PANELS:
            cells += [_short(results[n].data[spelling][panel].drift.verdict) for n in figures]
        rows.append(tuple(cells))
    caption = (
        "What each method keeps. H total energy, E passenger energy, h driver energy, lat. latitude (the "
        f"hidden integral). The first {len(PAPER)} methods are those of Modin and Verdier, the last two are ours."
    )
    return Table(caption, tuple(columns), tuple(rows), tuple(groups))


def _short(verdict: Verdict) -> Cell:
    return Cell(str(verdict).lower(), str(verdict).lower())


def _legend() -> str:
    entries = (
        ("exact", "exact", "within 5e-9 over the whole run"),
        ("bounded", "bounded", "an error that does not grow"),
        ("drift", "drift", "a large mean error, or one that grows"),
        ("differs", "differs", "not what the paper says"),
    )
    keys = "".join(f'<li><b class="{tone}">{word}</b> {prose(text)}</li>' for tone, word, text in entries)
    return f'<ul class="key">{keys}</ul>'


def _sources(results: dict[str, Result]) -> list[str]:
    """The papers that results are of; all where there are none."""
    return [key for key in PAPERS if any(r.source == key for r in results.values())] or list(PAPERS)


def _title(results: dict[str, Result]) -> str:
    sources = _sources(results)
    return PAPERS[sources[0]].title if len(sources) == 1 else TITLE


def _head(results: dict[str, Result]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{prose(_title(results), False)}</title><style>{CSS}</style></head>"
    )


def _opening(results: dict[str, Result], missing: tuple[str, ...], lab: Lab) -> str:
    links = "".join(f'<li><a href="#{n}">{prose(r.title, False)}</a></li>' for n, r in results.items())
    words = [f"<h1>{prose(_title(results), False)}</h1>"]
    words += [f"<p>{PAPERS[key].words}</p>" for key in _sources(results)]
    if lab.quick:
        words.append(
            '<p class="note">A quick run: verdicts are from shorter runs than the full one, sweeps are '
            "coarser. Each caption says how long.</p>"
        )
    if missing:
        left = prose(", ".join(missing), False)
        words.append(f'<p class="note">Interrupted. Not finished: {left}. Everything else is complete.</p>')
    return f"<header>{''.join(words)}<nav><ul>{links}</ul></nav></header>"


def _section(folder: Path, result: Result) -> str:
    left, right = "".join(map(_paragraph, result.said)), "".join(map(_paragraph, result.found))
    heading = "Why look" if result.ours else PAPERS[result.source].authors
    label = ' <span class="ours">not in the paper</span>' if result.ours else ""
    return "\n".join(
        [
            f'<section id="{result.name}"><h2>{prose(result.title)}{label}</h2>',
            f'<div class="pair"><div><h3>{heading}</h3>{left}</div><div><h3>Measured</h3>{right}</div></div>',
            *(_picture(folder, picture) for picture in result.pictures),
            *(table_html(table) for table in result.tables),
            "</section>",
        ]
    )


def _paragraph(text: str) -> str:
    return f"<p>{prose(text)}</p>"


def _picture(folder: Path, picture: Picture) -> str:
    data = base64.b64encode((folder / f"{picture.stem}.svg").read_bytes()).decode()
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{prose(picture.alt, False)}">'
    return (
        f'<figure><div class="wide">{image}</div><figcaption>{prose(picture.caption)}</figcaption></figure>'
    )


def _closing(seconds: float, command: str) -> str:
    versions = []
    for name in ("dalembert", "jax", "numpy", "matplotlib"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(name)
    versions.append(f"Python {platform.python_version()}")
    when = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    words = [
        f"{when}. {platform.system()} {platform.machine()}, {os.cpu_count()} cores, {seconds:.0f} s.",
        ", ".join(versions) + ".",
    ]
    made = f"<p>Made by <code>{prose(command, False)}</code></p>" if command else ""
    return f"<footer>{''.join(f'<p>{prose(w, False)}</p>' for w in words)}{made}</footer>"
