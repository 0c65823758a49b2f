"""Section peers: the error and the time of this library and of other solvers on the same motion."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dalembert.lab.bench import ensemble_peers
from dalembert.lab.bench.solvers import (
    GIVEN,
    Entry,
    Problem,
    cvt,
    everyone,
    heyoka_exact,
    missing,
    ours,
    sleigh,
)
from dalembert.lab.bench.tables import Section, Settings, Table, interleaved, summary, timed

COLUMNS = [
    ("who", "who", ""), ("solver", "method", ""), ("setting", "setting", ""), ("error", "largest error", ".1e"),
    ("seconds", "seconds", ".2g"), ("min", "least", ".2g"), ("spread", "spread", ".0%"),
]  # fmt: skip
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11)


def reference(problem: Problem) -> tuple[np.ndarray, str]:
    """The motion, computed in two independent ways, and a sentence on how well they agree."""
    found: dict[str, np.ndarray] = {}
    if hasattr(problem.system, "solution"):
        exact = problem.system.solution(problem.times, problem.q0, problem.v0)  # pyright: ignore
        found["the closed solution"] = np.concatenate(exact, axis=1)
    if "heyoka" not in missing():
        states, word = heyoka_exact(problem)
        found[word] = states
    for spelling in ("dla01@8", "frame@8"):
        if len(found) < 2:
            found[f"{spelling} with h = 0.0125"] = ours(problem, (spelling,), (0.0125,))[0].run()
    (first, a), (second, b) = list(found.items())[:2]
    return a, f"Reference: {first}; {second} agrees with it to {np.max(np.abs(a - b)):.1e}."


def measure(entries: Sequence[Entry], exact: np.ndarray, settings: Settings) -> list[dict[str, Any]]:
    """The errors from a first run, and the times of interleaved repeats; slow entries are repeated once or never."""
    errors, first = {}, {}
    for i, entry in enumerate(entries):
        result: dict[str, np.ndarray] = {}
        try:
            first[i] = timed(lambda e=entry, r=result: r.update(states=e.run()))
            errors[i] = float(np.max(np.abs(result["states"] - exact)))
        except (RuntimeError, ValueError):  # a step size or tolerance for which the solver fails
            errors[i] = float("inf")
    alone = {i for i, e in enumerate(entries) if not e.compiles and first.get(i, 0) > settings.patience}
    good = {i: e.run for i, e in enumerate(entries) if np.isfinite(errors[i]) and i not in alone}
    times = interleaved(good, settings.repeats, settings.patience, warm=False)
    times |= {i: [first[i]] for i in alone if np.isfinite(errors[i])}
    rows = []
    for i, entry in enumerate(entries):
        row: dict[str, Any] = {"who": entry.who, "solver": entry.solver, "setting": entry.setting}
        row["error"] = errors[i] if np.isfinite(errors[i]) else None
        if i in times:
            s = summary([entry.scale * x for x in times[i]])
            row |= {"seconds": s["median"], "min": s["min"], "spread": s["spread"], "repeats": len(times[i])}
        rows.append(row)
    return rows


def fastest(rows: Sequence[dict[str, Any]], who: str | None, level: float) -> dict[str, Any] | None:
    """The quickest row with an error of at most `level`; `who` is "ours", a peer, or None for all peers."""
    fitting = [
        row for row in rows
        if row.get("seconds") and row["error"] is not None and row["error"] <= level
        and (row["who"] == who or (who is None and row["who"] != "ours"))
    ]  # fmt: skip
    return min(fitting, key=lambda row: row["seconds"], default=None)


def least_lead(rows: Sequence[dict[str, Any]], low: float, high: float) -> tuple[float, float] | None:
    """The least factor, over all errors from low to high, by which ours is quicker than the best peer.

    The quickest peer changes only at the errors of peers, so no other levels need to be examined. Returns the
    factor and the error at which it occurs; None if no peer, or none of ours, is in the range.
    """
    errors = [row["error"] for row in rows if row["who"] != "ours" and row["error"] is not None]
    found = []
    for level in [low, *(x for x in errors if low < x <= high)]:
        a, b = fastest(rows, "ours", level), fastest(rows, None, level)
        if b is not None:
            found.append((b["seconds"] / a["seconds"] if a is not None else 0.0, level))
    return min(found, default=None)


def contest(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """The table of the quickest of our methods and of the peers that reach each accuracy."""
    columns = [("level", "error at most", ".0e"), ("mine", "ours", ""), ("ours", "seconds", ".2g")]
    columns += [("peer", "quickest peer", ""), ("theirs", "seconds", ".2g"), ("times", "peer / ours", ".2f")]
    table = Table(f"{title}: who reaches an accuracy first", columns)
    for level in LEVELS:
        a, b = fastest(rows, "ours", level), fastest(rows, None, level)
        if a is None and b is None:
            continue
        row: dict[str, Any] = {"level": level}
        if a is not None:
            row |= {"mine": f"{a['solver']}, {a['setting']}", "ours": a["seconds"]}
        if b is not None:
            row |= {"peer": f"{b['who']} {b['solver']}, {b['setting']}", "theirs": b["seconds"]}
        if a is not None and b is not None:
            row["times"] = b["seconds"] / a["seconds"]
        table.rows.append(row)
    return table


def work_precision(settings: Settings) -> Section:
    """Section peers."""
    section = Section(
        "peers",
        "The same motion by this library and by other solvers: the largest error of any entry of q and v at "
        "101 equally spaced times (at the end only, for the ensemble), and the time of the whole call. "
        "Compilation is excluded for everyone: each solver is called once beforehand. A solver that takes longer than "
        f"{settings.patience:g} s is measured once.",
    )
    problems = [cvt(30.0 if settings.quick else 3000.0), sleigh(20.0 if settings.quick else 100.0)]
    for problem in problems:
        exact, words = reference(problem)
        rows = measure(everyone(problem, settings.quick), exact, settings)
        section.tables += [Table(problem.words, COLUMNS, rows), contest(problem.words, rows)]
        section.notes.append(f"{problem.words}. {words}")
        brief = ours(replace(problem, time=1.0), ("leapfrog",), (0.01,))[0].run
        overhead = 1e3 * summary(interleaved({"": brief}, settings.repeats)[""])["median"]
        section.notes.append(
            f"About {overhead:.1f} ms of each of our times is bookkeeping: a run of 100 steps takes that long."
        )
    entries, exact, words = ensemble_peers.everyone(settings.quick)
    rows = measure(entries, exact, settings)
    section.tables += [Table(ensemble_peers.TITLE, COLUMNS, rows), contest(ensemble_peers.TITLE, rows)]
    section.notes.append(f"{ensemble_peers.TITLE}. {words}")
    section.notes += [f"{who} was given: {what}" for who, what in GIVEN.items() if who not in missing()]
    section.notes += [f"{ensemble_peers.GIVEN}", *(f"Skipped: {reason}." for reason in missing().values())]
    return section
