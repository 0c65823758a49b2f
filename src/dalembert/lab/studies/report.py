"""The report: one HTML file with everything, without scripts or requests to other places."""

import base64
import datetime
import html
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from dalembert.diagnostics import Verdict
from dalembert.lab.studies.result import Cell, Picture, Result, Table
from dalembert.lab.studies.shared_runs import KNIFE_EPS, METHODS, NAMES, PANELS, PAPER, Lab

CSS = """
:root { --ink: #1c1c1c; --soft: #5c5c5c; --line: #d8d8d8; --exact: #bfe3c8; --bounded: #e3eff7;
  --drift: #f5c6ba;
  --differs: #f9e2a0; --good: #e2f2e5; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 16px/1.55 Charter, "Bitstream Charter", Georgia, "Times New Roman", serif; }
main { max-width: 1120px; margin: 0 auto; padding: 2.2rem 1.4rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.25; font-weight: 600; margin: 0 0 .8rem; max-width: 46rem; }
h2 { font-size: 1.3rem; font-weight: 600; margin: 0 0 .7rem; }
h3 { font: 600 .78rem/1.4 system-ui, sans-serif; letter-spacing: .04em; text-transform: uppercase;
  color: var(--soft);
  margin: 0 0 .25rem; }
p { margin: 0 0 .65rem; }
header > p { max-width: 46rem; }
section { border-top: 1px solid var(--line); margin-top: 2.2rem; padding-top: 1.6rem; }
.note { font: .88rem/1.5 system-ui, sans-serif; background: #f4f4f2; padding: .5rem .8rem; border-left:
  3px solid #9a9a9a; }
nav ul { list-style: none; margin: 1rem 0 0; padding: 0; font: .86rem/1.7 system-ui, sans-serif;
  columns: 3 17rem; }
a { color: #1f5a96; text-decoration: none; }
a:hover { text-decoration: underline; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2.2rem; }
.ours { font: .72rem/1 system-ui, sans-serif; color: var(--soft); border: 1px solid var(--line);
  border-radius: 3px;
  padding: .15rem .4rem; vertical-align: middle; white-space: nowrap; }
figure { margin: 1rem 0 1.4rem; }
figure img { display: block; width: 100%; max-width: 1000px; height: auto; margin: 0 auto; }
figcaption, caption { font: .84rem/1.5 system-ui, sans-serif; color: #3a3a3a; text-align: left; }
figcaption { max-width: 56rem; margin: .6rem auto 0; }
caption { caption-side: top; padding: 0 0 .5rem; max-width: 56rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font: .8rem/1.35 system-ui, sans-serif; width: 100%; margin: .4rem 0
  1rem;
  font-variant-numeric: tabular-nums; }
th { font-weight: 600; text-align: left; vertical-align: bottom; padding: .3rem .5rem; border-bottom:
  1px solid #8a8a8a; }
thead tr.groups th { text-align: center; border-bottom: 1px solid var(--line); font-weight: 600; }
thead tr.groups th:empty { border-bottom: none; }
td, tbody th { padding: .32rem .5rem; border-bottom: 1px solid #e8e8e8; border-left: 2px solid #fff;
  vertical-align: top; }
tbody th { white-space: nowrap; border-left: none; }
small { display: block; font-size: .92em; color: #4a4a4a; font-weight: 400; white-space: nowrap; }
.exact { background: var(--exact); } .bounded { background: var(--bounded); } .drift { background:
  var(--drift); }
.differs { background: var(--differs); } .good { background: var(--good); }
td.drift b, td.differs b { font-weight: 700; }
td b { font-weight: 600; }
table.summary td { text-align: center; padding: .35rem .1rem; font-size: .95em; vertical-align: middle; }
table.summary td b { font-weight: 500; }
table.summary td.drift b { font-weight: 700; }
table.summary th { text-align: center; }
table.summary tbody th, table.summary thead th:first-child { text-align: left; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; margin: 0; padding: 0;
  font: .8rem/1.6 system-ui, sans-serif; color: #3a3a3a; }
.key b { font-weight: 600; padding: .1rem .45rem; margin-right: .25rem; color: var(--ink); }
footer { border-top: 1px solid var(--line); margin-top: 2.4rem; padding-top: 1rem; font: .8rem/1.5
  system-ui, sans-serif;
  color: var(--soft); }
footer p { margin: 0 0 .2rem; }
code { font: .92em ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 760px) {
  main { padding: 1.2rem .9rem 2rem; }
  h1 { font-size: 1.35rem; }
  .pair { grid-template-columns: 1fr; }
  figure img { min-width: 640px; }
  td { min-width: 4.4rem; }
  caption { max-width: calc(100vw - 2rem); }
}
@media print {
  body { font-size: 10.5pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  .wide { overflow: visible; }
  figure, table, .pair { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  table { font-size: 7.6pt; }
}
"""

GREEK = {
    "eps": "epsilon",
    "xi": "xi",
    "eta": "eta",
    "theta": "theta",
    "kappa": "kappa",
    "rho": "rho",
    "pi": "pi",
    "phi": "phi",
    "psi": "psi",
    "omega": "omega",
}
SIGNS = (
    (re.compile(r" = "), "&nbsp;=&nbsp;"),
    (re.compile(r"-&gt;"), "&rarr;"),
    (re.compile(r"(?<![\w.])-(?=\d|(?:[a-z]|xi|eta|y\d)\b)"), "&minus;"),
    (re.compile(r"\bEt\b"), "<i>E&#771;</i>"),
    (re.compile(r"\^(\d|T)"), r"<sup>\1</sup>"),
    (re.compile(r"\b([qu-z])(\d)\b"), r"<i>\1</i><sub>\2</sub>"),
    (re.compile(r"\bomega_(\d)\b"), r"omega<sub>\1</sub>"),
)
POWER = re.compile(r"(?<=\d)e(-?)(\d+)\b")


def prose(text: str, letters: bool = True, powers: bool = True) -> str:
    """The escaped text; with `letters`, names of Greek letters become the letters, and 1e-3 becomes a power of ten."""
    text = html.escape(text)
    if not letters:
        return text
    if powers:
        text = POWER.sub(lambda m: f"&middot;10<sup>{'&minus;' if m[1] else ''}{m[2]}</sup>", text)
    for pattern, replacement in SIGNS:
        text = pattern.sub(replacement, text)
    return re.sub(rf"\b({'|'.join(GREEK)})\b", lambda m: f"<i>&{GREEK[m[1]]};</i>", text)


def _cell(cell: Cell, kind: str) -> str:
    notes = "".join(f"<small>{prose(note, powers=False)}</small>" for note in cell.notes)
    tone = f' class="{cell.tone}"' if cell.tone else ""
    text = prose(cell.text, powers=False)
    if kind == "th":
        return f'<th scope="row">{text}{notes}</th>'
    return f"<td{tone}>{f'<b>{text}</b>' if cell.tone else text}{notes}</td>"


def table_html(table: Table, style: str = "") -> str:
    """The table as HTML, which scrolls by itself in a narrow window."""
    head = ""
    if table.groups:
        cells = "".join(
            f'<th colspan="{span}" scope="colgroup">{prose(g)}</th>' if g else f'<th colspan="{span}"></th>'
            for g, span in table.groups
        )
        head = f'<tr class="groups">{cells}</tr>'
    head += "<tr>" + "".join(f'<th scope="col">{prose(c)}</th>' for c in table.columns) + "</tr>"
    body = "".join(
        f"<tr>{_cell(row[0], 'th')}{''.join(_cell(c, 'td') for c in row[1:])}</tr>" for row in table.rows
    )
    kind = f' class="{style}"' if style else ""
    caption = f"<caption>{prose(table.caption)}</caption>"
    return f'<div class="wide"><table{kind}>{caption}<thead>{head}</thead><tbody>{body}</tbody></table></div>'


TITLE = "Nonholonomic integrators: published experiments, repeated"
"""The title of a report on more than one paper."""
INTEGRALS = {"fig6": "E", "fig7": "h", "fig8": "lat."}


class Paper(NamedTuple):
    """A paper whose experiments are repeated: the report's title, its authors, and what the report contains (HTML)."""

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
        "composition of order 4. Three studies follow that the paper does not have.",
    ),
    "ferraro2008": Paper(
        "Momentum and energy preserving integrators for nonholonomic dynamics: the experiments, repeated",
        "Ferraro, Iglesias and Mart\u00edn de Diego",
        "Both figures with results of S. Ferraro, D. Iglesias and D. Mart\u00edn de Diego, <cite>Momentum and "
        "energy preserving integrators for nonholonomic dynamics</cite> (2008), computed anew: the geometric "
        "nonholonomic integrator (GNI) against the discrete Lagrange-d\u2019Alembert method (DLA), on a particle "
        "and on the Chaplygin sleigh. Two studies follow that it does not have: a gait of its snakeboard, "
        "and what happens to the sleigh after the time that its figure shows.",
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
    """The table of verdicts by method, problem and integral, as far as measured; None if nothing was measured."""
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
    """The papers of the results; all papers if there are no results."""
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
            '<p class="note">This is a quick run: verdicts come from shorter runs than in the full one, and sweeps are '
            "coarser. Each caption says how long the runs are.</p>"
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
