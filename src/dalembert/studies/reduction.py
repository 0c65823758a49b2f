"""Reduction by symmetry [fernandez2008]: reduced runs beside full ones, kinds of groups, and phases of loops."""

from typing import NamedTuple

import numpy as np

from dalembert.methods import EDLA
from dalembert.studies.lab import Lab
from dalembert.studies.reduction_figure import draw_motions, draw_phases
from dalembert.studies.reduction_phases import (
    CIRCLE,
    HEADING,
    POINTS,
    RECTANGLE,
    SHIFT,
    WHEELS,
    Phases,
    make_phases,
)
from dalembert.studies.reduction_runs import (
    BOUNDS,
    EQUAL,
    OWN,
    PAIRS,
    TURN,
    Compared,
    Runs,
    make_runs,
    problems,
)
from dalembert.studies.result import Cell, Picture, Result, Table, number
from dalembert.zoo import Snakeboard

SOURCE = "fernandez2008"
# Rounding: 2e-15 to 3e-14 in 75 to 300 steps of the ball, 1.3e-13 in the angle of the rotor, which comes to 20.
KEPT = 1e-12


class Measured(NamedTuple):
    """All of it."""

    runs: Runs
    phases: Phases

    @property
    def rotor(self) -> float:
        """How far the rotor of the full snakeboard is from the law psi + theta = const + t mu/J0."""
        run = self.runs.of("snakeboard")
        board, (q0, v0) = run.problem.system, run.problem.start()
        assert isinstance(board, Snakeboard)
        level = float(run.problem.symmetry.momentum(board, q0, v0)[0])
        angle = run.full[:, 2] + run.full[:, 3]
        return float(np.max(np.abs(angle - angle[0] - run.t * level / board.rotor)))


def measure(lab: Lab) -> Measured:
    """Runs, then phases."""
    runs = make_runs(lab)
    lab.step("reduction, geometric phases")
    return Measured(runs, make_phases(runs))


def most(data: Measured, own: bool) -> tuple[float, float]:
    """The largest distances, of projected and of reconstructed runs, with equal steps or with those of EDLA."""
    runs = [x for x in data.runs.compared if isinstance(x.problem.method, EDLA) == own]
    return max(x.projected for x in runs), max(x.rebuilt for x in runs)


def present(lab: Lab, data: Measured) -> Result:
    """Two figures, four tables."""
    runs, phases = data.runs, data.phases
    equal, own = most(data, own=False), most(data, own=True)
    disk, particle = runs.forces
    right = sum(x.found == x.expected for x in runs.kinds)
    orders = [p for loop in phases.loops for p in loop.orders]
    steps, spent = EQUAL[1], OWN[1]
    said = (
        "The paper states that a discrete nonholonomic system with an abelian symmetry can be reduced, and that the "
        "reduced equations, whose forces beta0 and beta1 come from the constraint, have the same motions. It has "
        "neither an example nor a run. If the theorem holds in arithmetic, a reduced run and a full one without its "
        "group agree to rounding, and the group follows from the shapes: g1 = g0 F(r0, r1). Where shapes return the "
        "group need not; what is left is the geometric phase. Proposition 3 of Cort\u00e9s (2003) says the same of "
        "steps that keep the energy (REDLA); its print leaves out forces on time, which are needed where the "
        "constraint depends on it.",
    )
    found = (
        f"The motions are the same. Over {steps} steps reduced runs are within {number(equal[0])} of the full ones "
        f"without their group, and reconstructed runs within {number(equal[1])} of the full ones; with the steps of "
        f"REDLA, whose sizes round more, within {number(own[0])} and {number(own[1])} over {spent}. This holds for "
        "groups that do not commute too, SE(2) of the two-wheeled robot and SO(3) of the rubber ball. "
        f"{right} of {len(runs.kinds)} pairs of a system and a group are found to be of the kind that they are.",
        "For the disk by the midpoint rule beta0 + beta1 = 0 at any two shapes, to "
        f"{number(disk.sum / disk.size)} of beta0 at {PAIRS} random pairs. So forces drop out of even "
        "motion, and the shapes go straight on. This is not so of every system: for the particle the sum comes to "
        f"{number(particle.sum / particle.size)} times beta0.",
        "Loops of shapes move the group as they should. Where the heading goes to and fro by b while the disk or the "
        "cart rolls to and fro by a, both move sideways by 2 pi a J1(b) in a loop, although they cannot slip: most "
        "for b = 1.84, not at all for b = 3.83. A ball that rolls once around a circle of radius rho is turned by "
        "the rotation exp 2 pi (rho/R, 0, 1), and for rho = 1.73 R comes back as it was. Polygons of n points are "
        f"off by O(1/n^2) (orders {min(orders):.3f} to {max(orders):.3f}), and have closed forms of their own, which "
        f"are met to {number(max(x.rounding for x in phases.loops))}.",
        f"In its harmonic bowl the ball goes round an ellipse by itself. With h = {float(runs.turns.t[1]):.5f} that "
        f"takes {TURN} steps exactly: the point of contact is back to {number(phases.turns.open)}, the ball is "
        f"turned by {np.degrees(phases.turns.angle):.1f} degrees, which is the phase of the ellipse to "
        f"{number(phases.turns.found)}, and after four turns by its fourth power.",
    )
    title = "Reduction by symmetry: the same motions, and what loops leave behind"
    tables = (_compared(data, lab.quick), _kinds(data), _loops(data), _laws(data))
    return Result("reduction", title, said, found, _pictures(data), tables, data, ours=True, source=SOURCE)


def _pictures(data: Measured) -> tuple[Picture, Picture]:
    motions = Picture(
        "reduction",
        draw_motions(data.runs),
        "Reduced motions on the left, what is reconstructed from them on the right, and dots of the full runs; 300 "
        f"steps of h = {EQUAL[0]:g}, the ball {float(data.runs.turns.t[1]):.4f}. (a), (b) Two-wheeled robot with "
        "springs on its wheels, over SE(2). (c), (d) Mobile robot, over R^2. (e), (f) Snakeboard without its rotor, "
        "bars the board, and the angle of the rotor, which follows from the level of its momentum; in space it turns "
        "evenly. (g), (h) Rubber ball in a bowl, over SO(3): the point of contact closes an ellipse (grey) four "
        "times, a mark that was on top does not come back. Seen from above, numbers count turns.",
        "Eight panels in pairs. Looping wheel angles and a path of a cart with cusps; a waving heading and a path of "
        "stacked loops; a zigzag of the snakeboard and its rotor angle, which climbs in steps along a straight line; "
        "an ellipse, and a mark on the ball that is elsewhere after each turn. Dots of full runs lie on all curves.",
    )
    loops = Picture(
        "reduction-phases",
        draw_phases(data.runs, data.phases),
        "What loops of shapes leave behind. (a) Circles of the wheel angles, from the squares. (b) The cart along "
        "them, three starts side by side, triangles pointing ahead: it ends parallel to itself and beside where it "
        "was. (c) That shift against the amplitude b of the heading, over 2 pi times the amplitude a of the way "
        "rolled, with 256 steps; the disk moves along x2, the cart along -y. (d) The rotation of the ball by a "
        "circle of contact: its whole angle is 2 pi times the root of 1 + (rho/R)^2, brought to 0 to 180 degrees.",
        "Four panels: three circles; three paths that each end sideways of their start; points of disk and cart on "
        "the Bessel function J1, which passes zero at 3.83; the angle of the ball, which rises to 180 degrees at "
        "1.12 and is zero again at 1.73.",
    )
    return motions, loops


def group_words(run: Compared) -> str:
    """The group and what it acts on; the nine numbers of a rotation are left out."""
    symmetry = run.problem.symmetry
    return symmetry.words if len(symmetry.on) < 4 else symmetry.group.name


def _within(x: float, bound: float) -> Cell:
    return Cell(number(x), "exact" if x < bound else "drift")


def _compared(data: Measured, quick: bool) -> Table:
    rows = []
    for x in data.runs.compared:
        agrees = x.kind.found == x.problem.expected
        done = x.problem.kind or x.kind.found
        rows.append(
            (
                Cell(x.problem.name),
                Cell(group_words(x)),
                Cell(x.kind.found, "good" if agrees else "differs"),
                Cell(done.lower()),
                Cell(f"{len(x.problem.system.coordinates)} to {len(x.reduced.coordinates)}"),
                _within(x.projected, x.bound),
                _within(x.rebuilt, x.bound),
            )
        )
    count = f" Here {len(problems(True))} of {len(problems(False))} cases, to be quick." if quick else ""
    caption = (
        f"Runs of {EQUAL[1]} steps of h = {EQUAL[0]:g}, and of {OWN[1]} steps of the reduced EDLA (REDLA), the first "
        f"of h = {OWN[0]:g}: kind of the group, how it was reduced, and how many numbers a position has. "
        "Then the largest distance between the reduced run and the full one without its group, and between the "
        f"reconstructed run and the full one, in positions, velocities and times. Expected: less than "
        f"{number(BOUNDS[False], 0)}, for REDLA {number(BOUNDS[True], 0)}.{count}"
    )
    columns = ("system", "group", "kind", "reduced as", "numbers", "reduced", "rebuilt")
    return Table(caption, columns, tuple(rows))


def _kinds(data: Measured) -> Table:
    rows = []
    for x in data.runs.kinds:
        tone = "good" if x.found == x.expected else "differs"
        group = x.group if len(x.group) < 40 else x.group.partition(" on ")[0]
        notes = () if x.found == x.expected else (f"expected {x.expected}",)
        answers = ("yes" if y else "no" for y in (x.spanned, x.invariant))
        rows.append(
            (Cell(x.name), Cell(group), Cell(x.found, tone, notes), Cell(str(x.shared)),
             *map(Cell, answers))
        )  # fmt: skip
    caption = (
        "What classify says of a group: Chaplygin where the constraint D and the orbits V of the group share no "
        "direction and span all; horizontal where the directions that they share are orbits of one subgroup; locally "
        "where that fails at some configurations. A heading, and y of the particle, have momenta that are kept, but "
        "D changes with them, so that they are no symmetries."
    )
    return Table(caption, ("system", "group", "found", "shared", "spans", "invariant"), tuple(rows))


def _loops(data: Measured) -> Table:
    rows = []
    for x in data.phases.loops:
        least = min(x.orders)
        rows.append(
            (
                Cell(x.name),
                Cell(x.law),
                *(Cell(number(e)) for e in x.errors),
                # The errors are series in 1/n^2: with 16 points the next term changes the order by 0.01.
                Cell(f"{x.orders[-1]:.3f}", "good" if abs(least - 2) < 0.05 else "differs"),
                _within(x.rounding, KEPT),
            )
        )
    caption = (
        "Phases of loops with n points against their closed forms, the order from the last two, and how far they are "
        f"from the closed forms for n chords. Disk: x3 = a cos s, xi = b sin s, a = {SHIFT:g}, b = {HEADING:g}; "
        f"cart: wheel angles on a circle of radius {WHEELS:g}, a and b the amplitudes of way and heading; ball: a "
        f"circle of radius {CIRCLE:g} R. Expected: order 2, and rounding."
    )
    columns = ("loop", "closed form", *(f"n = {n}" for n in POINTS), "order", "from polygon's")
    return Table(caption, columns, tuple(rows))


def _laws(data: Measured) -> Table:
    disk, particle = data.runs.forces
    turns, (a, b) = data.phases.turns, RECTANGLE
    entries = (
        (f"disk, beta0 + beta1 = 0 at {PAIRS} pairs, over beta0", disk.sum / disk.size),
        (f"disk, rectangle {a:g} x {b:g}: (-a (1 - cos b), a sin b)", data.phases.corner[1]),
        ("snakeboard, psi + theta = const + t mu/J0", data.rotor),
        (f"rubber ball, point of contact back after {TURN} steps", turns.open),
        ("rubber ball, full run turned by the phase of the ellipse", turns.found),
        ("rubber ball, after four turns by its fourth power", turns.again),
    )
    rows = [(Cell(name), _within(off, KEPT), Cell("rounding")) for name, off in entries]
    ratio = particle.sum / particle.size
    rows.append(
        (Cell("particle, beta0 + beta1 over beta0"), Cell(number(ratio), "good" if ratio > 0.1 else "differs"),
         Cell("not zero"))
    )  # fmt: skip
    caption = (
        "Exact laws: the largest deviation, which should be rounding; the last row is one that does not hold."
    )
    return Table(caption, ("law", "deviation", "expected"), tuple(rows))
