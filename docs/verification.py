"""Audits every method on every system of the zoo that it fits: `python docs/verification.py`, twelve minutes.

Writes docs/verification.json after each audit and resumes where it stopped; docs/verification.md shows the file.
`python docs/verification.py NAME ...` audits these cases again; delete the file to measure everything again.
"""

import html
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("verification.json")
STEPS = 20_000
"""Steps of each long run; the audit's own default is 300,000."""
METHODS = (
    *(
        "frame",
        "frame@4",
        "dd:average",
        "dla:0.5",
        "dla01",
        "leapfrog",
        "gni",
        "dla-variational",
        "edla",
        "chetaev",
    ),
    *("lie-gni", "dla-variational:exp"),  # on Lie groups only
)
# Cases beyond the systems of the zoo with their own parameters and starts.
CASES = {"PendulumCVT, eps = 0.5, rotating": ("PendulumCVT", {"eps": 0.5}, "rotating")}
# Chains are audited with few bodies: what holds does not depend on their number, but the time does.
SIZES = {"Car": ("trailers", 2), "ChainOfPendula": ("pendula", 2), "Snake": ("links", 3)}
# A part of each refusal, and a short form of it.
REASONS = {
    "lives on the group": "the system lives on a Lie group",
    "is defined on Lie groups": "the system is given in coordinates",
    "that do not depend on time": "the system depends on time",
    "are affine": "the constraints are affine",
    "gives position constraints": "the system has position constraints",
    "linear in the velocity": "the constraints are not linear in the velocity",
    "the mass matrix of": "the mass matrix depends on q",
}

# As in the audit: smaller defects are rounding, and a measured order may miss the claimed one by the slack.
ROUNDING, SLACK = 1e-11, 0.15
CLAIMED, NOT_CLAIMED = "&#9679;", "&#9675;"
CLASSES = {"exact": "good", "bounded": "fair", "DRIFT": "bad", "too short": "weak"}
ENERGIES = ("energy", "energy (own)", "moving energy")

Pair = dict[str, Any]
Cell = tuple[str, str]
"""The CSS class and the content of a cell."""


def cases() -> dict[str, tuple[str, dict[str, float], str | None]]:
    """Every case by its label: name of the system, parameters that differ from its defaults, name of the start."""
    import dalembert as da

    found = {}
    for name in da.zoo.__all__:
        size = dict([SIZES[name]]) if name in SIZES else {}
        found[", ".join([name, *(f"{key} = {value}" for key, value in size.items())])] = (name, size, None)
    return found | CASES


def rounded(x: Any) -> float | None:
    """The number with two digits; None if it is not finite."""
    return float(f"{x:.2g}") if x is not None and np.isfinite(x) else None


def reason(words: str) -> str:
    """The short form of a refusal."""
    return next((short for said, short in REASONS.items() if said in words), words.partition(". ")[0])


def record(found: Any) -> dict[str, Any]:
    """The results of an audit that the tables show."""
    kept: dict[str, Any] = {"claims": found.claims._asdict()}
    kept["order"] = [rounded(found.order.q), rounded(found.order.v)]
    kept["constraint"] = rounded(found.constraint)
    if not found.on_constraint:
        kept["own_constraint"] = rounded(found.own_constraint)
    kept["reversibility"] = rounded(found.reversibility)
    kept["integrals"] = {name: [str(x.verdict), rounded(x.largest)] for name, x in found.integrals.items()}
    if found.steps < STEPS:
        kept["ended"] = found.steps
    kept["broken"] = found.broken_claims
    kept["problems"] = [x.partition(" (residual")[0] for x in found.problems]
    return {key: value for key, value in kept.items() if value not in ({}, [])}


def measured(name: str, parameters: dict[str, float], start: str | None, method: str) -> dict[str, Any]:
    """The record of one pair, or the reason why there is none."""
    import dalembert as da
    from dalembert.methods import method_from_text

    system, used = getattr(da.zoo, name)(**parameters), method_from_text(method)
    try:
        first = da.simulate(system, used, *system.start(start), h=system.step, steps=1, throw=False)
    except ValueError as error:
        return {"refuses": reason(str(error))}
    if not first.steps:
        why = first.message.partition(": ")[2].partition(" (")[0]
        return {"refuses": f"the first step fails: {why}"}
    if system.timed:
        return {"refuses": "fits, but the audit does not accept systems that depend on time"}
    return record(da.audit(system, used, start=start, steps=STEPS))


def write(found: dict[str, Any]) -> None:
    """Writes the file, one line per pair, and replaces it at once: an interruption leaves the old or the new one."""
    import dalembert as da

    lines = []
    for label, pairs in found["cases"].items():
        inside = ",\n".join(f'   "{method}": {json.dumps(pair)}' for method, pair in pairs.items())
        lines.append(f'  "{label}": {{\n{inside}\n  }}')
    head = f'{{\n "version": "{da.__version__}",\n "steps": {STEPS},\n "cases": {{\n'
    text = head + ",\n".join(lines) + "\n }\n}\n"
    new = FILE.with_suffix(".new")
    new.write_text(text)
    new.replace(FILE)


def main(again: list[str]) -> None:
    """Measures the cases that the file lacks, and measures the named cases again."""
    every = cases()
    for label in again:
        if label not in every:
            raise SystemExit(f"no case {label!r}; choose from: {', '.join(every)}")
    before = json.loads(FILE.read_text()) if FILE.exists() else {}
    known = before.get("cases", {}) if before.get("steps") == STEPS else {}
    found = {"cases": {label: {} if label in again else known.get(label, {}) for label in every}}
    for label, case in every.items():
        pairs = found["cases"][label]
        for method in METHODS:
            if method in pairs:
                continue
            began = time.process_time()
            pairs[method] = measured(*case, method)
            found["cases"][label] = pairs = {x: pairs[x] for x in METHODS if x in pairs}
            write(found)
            said = pairs[method].get("refuses") or pairs[method].get("problems") or "nothing is broken"
            print(f"{time.process_time() - began:5.1f} s  {method} on {label}: {said}", flush=True)
    FILE.with_suffix(".md").touch()  # makes Sphinx read the page again


def number(x: float | None) -> str:
    """A small number in few characters."""
    return "?" if x is None else "0" if x == 0 else f"{x:.0e}".replace("e-0", "e-").replace("e+0", "e")


def mark(pair: Pair, claim: str) -> str:
    """The mark that says whether the method claims this."""
    return CLAIMED if pair["claims"][claim] else NOT_CLAIMED


def claims(pair: Pair) -> Cell:
    """Whether the measurement confirms everything that the method claims."""
    if "ended" in pair:
        return "weak", f"ends<small>step {pair['ended']:,}</small>"
    if "broken" in pair:
        return "bad", "BROKEN"
    return ("weak", "holds<small>see below</small>") if "problems" in pair else ("good", "holds")


def order(pair: Pair) -> Cell:
    """Measured and claimed order."""
    claimed, found = pair["claims"]["order"], pair["order"]
    if None in found:
        return "none", f"n.m. / {claimed}"
    return "good" if min(found) >= claimed - SLACK else "bad", f"{min(found):.1f} / {claimed}"


def verdict(kind: str, size: float | None, name: str = "") -> str:
    """A verdict with the largest error."""
    return f'<span class="{CLASSES[kind]}">{kind}</span><small>{name}{number(size)}</small>'


def energy(pair: Pair) -> Cell:
    """The verdict on the energy of the method's own velocity, and of the allowed velocity if it is another one."""
    found = pair.get("integrals", {})
    own = next((found[x] for x in ("energy (own)", "energy", "moving energy") if x in found), None)
    if own is None:
        return "none", "not kept"
    words = f"{mark(pair, 'energy')} {verdict(*own)}"
    if "energy (own)" in found:
        kind, size = found["energy"]
        words += f'<small>v: <span class="{CLASSES[kind]}">{kind}</span><br>{number(size)}</small>'
    return "", words


def defect(pair: Pair, claim: str, size: float | None, more: str = "") -> Cell:
    """Whether a structure is kept: its defect should be rounding."""
    if size is None:
        return "none", "n.d."
    kept = size < ROUNDING
    kind = "good" if kept else "bad" if pair["claims"][claim] else "weak"
    words = f'<span class="{kind}">{"kept" if kept else "not"}</span>'
    return "", f"{mark(pair, claim)} {words}<small>{number(size)}{more}</small>"


def constraint(pair: Pair) -> Cell:
    """The constraint at the method's own velocity, and at the allowed velocity if it is another one."""
    if "own_constraint" not in pair:
        return defect(pair, "on_constraint", pair["constraint"])
    return defect(pair, "on_constraint", pair["own_constraint"], f"<br>v: {number(pair['constraint'])}")


def reversibility(pair: Pair) -> Cell:
    """Whether a step can be undone."""
    return defect(pair, "reversible", pair["reversibility"])


def others(pair: Pair) -> Cell:
    """The worst of the other integrals, with its name."""
    found = pair.get("integrals", {}).items()
    found = {name: x for name, x in found if name not in ENERGIES and x[0] != "too short"}
    if not found:
        return "none", "none"
    worst = max(found, key=lambda name: (list(CLASSES).index(found[name][0]), found[name][1] or 0.0))
    return "", verdict(*found[worst], f"{html.escape(worst)}<br>")


TABLES = (claims, order, energy, constraint, reversibility, others)


def audited(found: dict[str, Any]) -> Iterator[tuple[str, str, Pair]]:
    """Case, method and record of every pair that fits."""
    for case, pairs in found["cases"].items():
        yield from ((case, method, pair) for method, pair in pairs.items() if "refuses" not in pair)


def table(found: dict[str, Any], cell: Callable[[Pair], Cell], methods: list[str], cases: list[str]) -> str:
    """One table: one row per case, one column per method."""
    head = "".join(f"<th>{x.replace('-variational', '-<br>variational')}</th>" for x in methods)
    rows = []
    for case in cases:
        cells = []
        for method in methods:
            pair = found["cases"][case].get(method, {"refuses": "not measured"})
            if "refuses" in pair:
                cells.append(f'<td class="none" title="{html.escape(pair["refuses"])}">&ndash;</td>')
            else:
                kind, inside = cell(pair)
                cells.append(f'<td class="{kind}">{inside}</td>')
        rows.append(f"<tr><th>{case.replace(', ', '<br>', 1)}</th>{''.join(cells)}</tr>")
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def tables(found: dict[str, Any], cell: Callable[[Pair], Cell]) -> str:
    """The table of systems in coordinates, followed by the table of systems on Lie groups."""
    bodies = {case for case, method, _ in audited(found) if method == "lie-gni"}
    made = []
    for there in (lambda case: case not in bodies, lambda case: case in bodies):
        chosen = [(case, method) for case, method, _ in audited(found) if there(case)]
        methods = [x for x in METHODS if x in {method for _, method in chosen}]
        made.append(table(found, cell, methods, list(dict.fromkeys(case for case, _ in chosen))))
    return f'<div class="verified">{"".join(made)}</div>'


def summary(found: dict[str, Any]) -> str:
    """The number of audits and their results."""
    kinds = [claims(pair)[1] for *_, pair in audited(found)]
    held, ended = sum(x.startswith("holds") for x in kinds), sum(x.startswith("ends") for x in kinds)
    return (
        f"{len(kinds)} audits of dalembert {found['version']}, each with a run of {found['steps']:,} steps. In "
        f"{held} audits no claim is broken, but in {held - kinds.count('holds')} of these something else goes wrong. "
        f"In {kinds.count('BROKEN')} audits a claim is broken. {ended} runs ended early."
    )


def refusals(found: dict[str, Any]) -> str:
    """The methods that do not fit a system, sorted by reason."""
    why: dict[str, dict[str, list[str]]] = {}
    for case, pairs in found["cases"].items():
        for method, pair in pairs.items():
            if "refuses" in pair:
                why.setdefault(pair["refuses"], {}).setdefault(case, []).append(method)
    rows = []
    for reason, cases in why.items():
        same: dict[str, list[str]] = {}
        for case, methods in cases.items():
            same.setdefault(", ".join(methods), []).append(case)
        for methods, names in same.items():
            rows.append(f"<li><b>{html.escape(reason)}</b>: {methods} on {'; '.join(names)}</li>")
    return f"<ul>{''.join(rows)}</ul>"


def problems(found: dict[str, Any]) -> str:
    """Everything that went wrong, in the words of the audit."""
    rows = [
        f"<li><b>{method} on {case}</b>: {html.escape('; '.join(pair['problems']), quote=False)}</li>"
        for case, method, pair in audited(found)
        if "problems" in pair
    ]
    return f"<ul>{''.join(rows)}</ul>"


def parts() -> dict[str, str]:
    """The parts of the page by name."""
    found = json.loads(FILE.read_text())
    words = {f.__name__: f(found) for f in (summary, refusals, problems)}
    return words | {cell.__name__: tables(found, cell) for cell in TABLES}


if __name__ == "__main__":
    main(sys.argv[1:])
