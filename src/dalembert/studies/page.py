"""Words and tables as HTML, and how they look."""

import html
import re

from dalembert.studies.result import Cell, Table

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
    """Escaped text; with `letters`, names of Greek letters become the letters, and 1e-3 a power of ten."""
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
    """The table, which scrolls by itself where the window is narrow."""
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
