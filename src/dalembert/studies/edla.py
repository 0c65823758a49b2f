"""EDLA, whose steps have the size that keeps the energy [cortes2003]: how they change, and where they end."""

import numpy as np

from dalembert.methods import Status
from dalembert.studies.edla_figure import draw
from dalembert.studies.edla_runs import (
    CONTINUED,
    SMALL,
    STEP,
    STEPS,
    Ending,
    Measured,
    Rival,
    measure,
    spread,
)
from dalembert.studies.lab import Lab
from dalembert.studies.result import Cell, Picture, Result, Table, number

__all__ = ["measure", "present"]

SOURCE = "cortes2003"
# Rounding: E^+ is asked for to 2 eps, and 3e-14 is the most that any of the runs shows.
KEPT = 1e-12


def present(lab: Lab, data: Measured) -> Result:
    """Six panels, four tables."""
    ending, steps = data.ending, STEPS[lab.quick]
    kept = max(spread(x.plus) for x in data.going)
    off = max(abs(x.run.end / x.zero - 1) for x in ending)
    far = max(abs(y.end - x.zero) / y.last for x in ending for y in x.tried(over=False))
    passing = [x for x in ending if x.tried(over=True)]
    jumps = [x.continued.jump for x in ending]
    good, to_end, past = data.rivals.values()
    said = (
        "The paper derives the method and shows no run of it. Time is one of the unknowns, and its equation says "
        "that the energy E+ with which a step arrives is that with which the next one departs. So each step has "
        "its own size. A step that keeps the energy exists near the last one only while a function G of the state "
        "keeps its sign. For a constant mass matrix 8 G = |R|^2 - |grad V|^2 - V''(v, v), with R the reaction of "
        "the constraint.",
    )
    found = (
        f"Where G keeps its sign the method runs on: over {steps:,} steps h stays within bounds, and E+ varies by "
        f"{number(kept)} of itself or less. h(t)/h0 does not depend on h0: curves for 0.05 and 0.025 are at most "
        f"{number(max(x.gaps[0] for x in data.going))} apart until t = 20, for 0.025 and 0.0125 at most "
        f"{number(max(x.gaps[1] for x in data.going))}.",
        f"Where G changes sign the run ends. With h0 = {SMALL:g} all do so within {100 * off:.1f} percent of the "
        f"time of the zero, and with every h0 tried a run that ends does so within {far:.1f} of its last steps. "
        f"{_passing(passing)}{_robot(ending)}",
        f"With continuation=True the zero is passed by a step that misses the energy, by {number(min(jumps))} to "
        f"{number(max(jumps))} of itself with h0 = {STEP:g}. It does not help for long: on V = y^2/2 the run then "
        f"takes steps down to {number(ending[0].continued.least)}, and with {CONTINUED} steps gets to t = "
        f"{ending[0].continued.end:.2f} ({ending[0].continued.status.value}).",
        f"At equal cost the positions are about as good as those of methods with equal steps: {_errors(good)} on "
        f"V = (x^2 + y^2)/2, {_errors(to_end)} on V = y^2/2 up to where EDLA ends. Past the zero, where its steps "
        f"are small, they are worse: {_errors(past)}. The DLA and the frame method do not notice the zero of G; "
        "the frame method keeps the energy as "
        "well as EDLA does, with equal steps.",
    )
    picture = Picture(
        "edla",
        draw(data),
        f"EDLA with the midpoint rule. (a) Step sizes where G keeps its sign: lines h0 = {STEP:g}, dots h0 = "
        f"{SMALL:g}. (b) Error of the energy over {steps:,} steps there: dots E+ of EDLA, line the energy in the "
        f"middle of 400 steps of the DLA on V = (x^2 + y^2)/2. (c) Step sizes with h0 = {SMALL:g} where G changes "
        "sign, up to the last step. (d) How far from the zero of G runs end, against h0; runs that got over it "
        f"stand on the upper edge. (e) Error of the energy on V = y^2/2 across the zero, h0 = {STEP:g}, the others "
        "in as many steps. (f) The free particle: the exact law of the step sizes.",
        "Six panels: step sizes that go up and down within bounds; energies at rounding; step sizes that grow "
        "until the zero of G, where the runs end; the distance of the ends from the zero, which falls with the "
        "first step; a jump of the energy where the continuation passes the zero; and step sizes of the free "
        "particle on the curve of the exact law.",
    )
    tables = (_going(data, steps), _ending(data), _rivals(data), _laws(data))
    title = "EDLA: steps of the size that keeps the energy, and where they end"
    return Result("edla", title, said, found, (picture,), tables, data, ours=True, source=SOURCE)


def _passing(sets: list[Ending]) -> str:
    if not sets:
        return "None got over the zero."
    each = " and ".join(f"{len(x.tried(over=True))} of {len(x.scan)} on {x.problem.name}" for x in sets)
    kept = max(y.kept for x in sets for y in x.tried(over=True))
    return (
        f"Not every run ends: for some h0 a step reaches over the zero and the run goes on ({each}), with E+ kept "
        f"to {number(kept)}."
    )


def _robot(ending: tuple[Ending, ...]) -> str:
    """Where its run that ends was made, as in the full study."""
    if not any("robot" in x.problem.name for x in ending):
        return ""
    return " The robot ends or goes on by its speed: with x3' = 0.85 G keeps its sign, with x3' = 1.2 it does not."


def _errors(rivals: tuple[Rival, ...]) -> str:
    first, dla, frame = (number(x.error) for x in rivals)
    return f"{first} (EDLA), {dla} (DLA) and {frame} (frame) away after {rivals[0].steps} steps"


def agrees(x: float, expected: str) -> bool:
    """Within one unit of the last digit that is given."""
    return abs(x - float(expected)) <= 1.001 * 10.0 ** -len(expected.partition(".")[2])


def _beside(x: float, expected: str) -> Cell:
    digits = len(expected.partition(".")[2])
    tone = "good" if agrees(x, expected) else "differs"
    return Cell(f"{x:.{digits + 1}f}", tone, (f"expected {expected}",))


def _going(data: Measured, steps: int) -> Table:
    rows = []
    for x in data.going:
        least, most = (float(f(x.h)) for f in (np.min, np.max))
        expected = x.problem.expected
        bounds = [_beside(v, e) for v, e in zip((least, most), expected, strict=False)]
        kept, sign = spread(x.plus), np.min(x.g) * np.max(x.g) > 0
        whole = x.status is Status.OK
        rows.append(
            (
                Cell(x.problem.name),
                Cell(
                    f"{len(x.h):,}", "good" if whole else "drift", () if whole else (x.status.name.lower(),)
                ),
                *(bounds or [Cell(f"{v:.4f}") for v in (least, most)]),
                Cell(number(kept), "exact" if kept < KEPT else "drift", ("expected: rounding",)),
                Cell(f"{np.min(x.g):.3f} to {np.max(x.g):.3f}", "good" if sign else "differs"),
                # In proportion to h0 or better: the expected fraction is 1/2 or less, and 0.6 leaves room.
                *(Cell(number(gap), "good" if x.gaps[1] < 0.6 * x.gaps[0] else "differs") for gap in x.gaps),
            )
        )
    caption = (
        f"Sets where G keeps its sign, h0 = {STEP:g}, {steps:,} steps: smallest and largest h, relative variation "
        "of E+, G along the run, and how far h(t)/h0 for two h0 are apart until t = 20 (expected: in proportion "
        "to h0). Expected values are those of an independent program, to one unit of their last digit."
    )
    columns = ("set", "steps", "least h", "largest h", "E+", "G", "h0, h0/2", "h0/2, h0/4")
    return Table(caption, columns, tuple(rows))


def _jump(x: float) -> str:
    """Whether it is within the range that was expected, of which one digit is given."""
    return "good" if 0.5e-5 <= x < 4.5e-4 else "differs"


def _ending(data: Measured) -> Table:
    rows = []
    for x in data.ending:
        off = x.run.end / x.zero - 1
        times = [_beside(v, e) for v, e in zip((x.zero, x.run.end), x.problem.expected, strict=False)]
        over = len(x.tried(over=True))
        stopped = x.run.status in (Status.NO_ROOT, Status.NONPOSITIVE_H)
        on = x.continued
        rows.append(
            (
                Cell(x.problem.name),
                *(times or [Cell(f"{v:.4f}") for v in (x.zero, x.run.end)]),
                Cell(f"{100 * off:+.1f} %", "good" if abs(off) < 0.05 else "differs"),
                Cell(x.run.status.name.lower(), "good" if stopped else "differs"),
                Cell(number(x.run.kept), "exact" if x.run.kept < KEPT else "drift"),
                Cell(f"{over} of {len(x.scan)}", "differs" if over else "good"),
                Cell(number(on.jump), _jump(on.jump)),
                Cell(f"t = {on.end:.2f}", notes=(on.status.name.lower(), f"least h {number(on.least)}")),
            )
        )
    caption = (
        f"Sets where G changes sign, h0 = {SMALL:g}: time of the zero of G, time at which the run ends, its status "
        "(expected: no_root or nonpositive_h, within 5 percent) and the variation of E+ up to there; how many of "
        "several h0 got over the zero (expected: none). Then the energy that continuation=True misses there with "
        f"h0 = {STEP:g} (expected: 1e-5 to 4e-4), and where {CONTINUED} steps of it come to."
    )
    columns = ("set", "zero of G", "end", "off", "status", "E+", "got over", "jump", "continued to")
    return Table(caption, columns, tuple(rows))


def _rivals(data: Measured) -> Table:
    rows = []
    for place, rivals in data.rivals.items():
        for x in rivals:
            cells = [Cell(number(v), "exact" if v < KEPT else "drift") for v in (x.middle, x.ends)]
            rows.append(
                (Cell(place, notes=(x.method,)), Cell(x.method), Cell(str(x.steps)), Cell(f"{x.end:.3f}"),
                 Cell(number(x.error)), *cells)
            )  # fmt: skip
    caption = (
        "EDLA beside methods of equal steps, over the same time in as many steps: distance of the position from "
        "the exact motion at the end, and relative variation of the energy in the middle of steps and at their "
        "ends. Expected: EDLA keeps the first until the zero of G, the frame method the second, the DLA neither."
    )
    return Table(caption, ("set", "method", "steps", "end", "error", "E, middle", "E, ends"), tuple(rows))


def _laws(data: Measured) -> Table:
    laws = data.laws
    entries = (
        ("free particle, h = kappa sqrt(1 + y^2)", laws.particle, laws.rounding[0]),
        ("rolling disk, h constant", laws.disk, laws.rounding[1]),
    )
    rows = tuple(
        (Cell(name), Cell(number(off), "exact" if off < bound else "differs"), Cell(f"below {number(bound)}"))
        for name, off, bound in entries
    )
    caption = (
        f"Exact laws of the midpoint rule without a potential, kappa = {number(laws.kappa, 3)} from the first step: "
        "largest relative deviation of h, beside what rounding allows, eps E/(2 h^2 G) a step times the root of "
        "their number."
    )
    return Table(caption, ("law", "deviation", "expected"), rows)
