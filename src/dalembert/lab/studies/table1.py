"""Table 1: the structure of the coupled systems, computed from their functions."""

from typing import NamedTuple

import numpy as np

from dalembert.diagnostics import CoupledSystem, Structure, structure
from dalembert.lab.studies.result import Cell, Result, Table, plain_row
from dalembert.lab.studies.shared_runs import Lab
from dalembert.model import System
from dalembert.zoo import HarmonicCVT, KnifeEdge, MobileRobot, PendulumCVT, RollingDisk, SpringParticle


class Printed(NamedTuple):
    """A column of the paper's table."""

    group: str
    fibre: int
    integrals: int
    angles: int
    rho: str


class Column(NamedTuple):
    """A system with a start, and what the paper prints for it; None if it prints nothing."""

    title: str
    system: System
    start: str | None
    printed: Printed | None


def columns() -> tuple[Column, ...]:
    """The six systems, with the pendulum in both motions, then the two perturbed ones."""
    cvt = Printed("SO(3)", 0, 3, 2, "(y, -v)")
    return (
        Column("CVT", HarmonicCVT(), None, cvt),
        Column("pendulum CVT, oscillating", PendulumCVT(), "oscillating", cvt),
        Column("pendulum CVT, rotating", PendulumCVT(), "rotating", cvt),
        Column("particle", SpringParticle(), None, Printed("SO(2)", 1, 2, 2, "(y, -v)")),
        Column("knife edge", KnifeEdge(), None, Printed("R", 2, 2, 1, "v")),
        Column("mobile robot", MobileRobot(), None, Printed("1", 2, 2, 1, "v")),
        Column("rolling disk", RollingDisk(), None, Printed("1", 2, 2, 1, "v")),
        Column("pendulum CVT, rotating, eps = 0.5", PendulumCVT(eps=0.5), "rotating", None),
        Column("knife edge, eps = 0.1", KnifeEdge(eps=0.1), None, None),
    )


def measure(lab: Lab) -> dict[str, Structure]:
    """The structure of each orbit."""
    found = {}
    for column in columns():
        lab.step(f"structure, {column.title}")
        start = column.system.start(column.start)
        found[column.title] = structure(CoupledSystem.of(column.system), *start)
    return found


def involution_names(found: Structure) -> list[str]:
    """The distinct involutions, each as the image of (y, v)."""
    names = []
    for item in found.involutions:
        signs = np.sign(np.diag(item.rho)).astype(int)
        if np.max(np.abs(item.rho - np.diag(signs))) > 1e-6:
            names.append("not diagonal")
            continue
        last = "v" if signs[-1] > 0 else "-v"
        y = signs[:-1]
        if not len(y):
            names.append(last)
        elif len(y) == 1 or np.all(y == y[0]):
            names.append(f"({'' if y[0] > 0 else '-'}y, {last})")
        else:
            parts = [f"{'' if s > 0 else '-'}y{i + 1}" for i, s in enumerate(y)]
            names.append(f"({', '.join(parts)}, {last})")
    return sorted(set(names), key=lambda x: (x.count("-"), x))


def involution(found: Structure, printed: str | None) -> str:
    """The involution to show: the printed one if it holds, else one that does."""
    names = involution_names(found)
    if not names:
        return "none"
    return printed if printed in names else names[0]


def present(lab: Lab, found: dict[str, Structure]) -> Result:
    """The study with its table, which shows the printed value under each entry."""
    rows: dict[str, list[Cell]] = {"group": [], "F": [], "I": [], "theta": [], "rho": [], "bounded": []}
    for column in columns():
        here, printed = found[column.title], column.printed
        values = {
            "group": (here.group, printed and printed.group),
            "F": (str(here.fibre), printed and str(printed.fibre)),
            "I": (str(here.integrals), printed and str(printed.integrals)),
            "theta": (str(here.angles), printed and str(printed.angles)),
            "rho": (involution(here, printed and printed.rho), printed and printed.rho),
        }
        for key, (ours, theirs) in values.items():
            rows[key].append(_compared(ours, theirs))
        rows["bounded"].append(Cell("yes") if here.compact else Cell("no", "drift"))
    labels = {
        "group": "group",
        "F": "F, dimension of the fibres",
        "I": "I, first integrals",
        "theta": "theta, angles",
        "rho": "rho, the involution",
        "bounded": "reduced motion bounded",
    }
    table = Table(
        "Measured, with the printed entry below it; coloured where they differ. The last two columns are "
        "the perturbed problems, for which the paper prints no column.",
        ("", *(c.title for c in columns())),
        tuple(plain_row(labels[k], cells) for k, cells in rows.items()),
    )
    rotating = involution_names(found["pendulum CVT, rotating"])
    said = (
        "Every system is given by a group in which the passenger moves, the dimension F of the fibres "
        "over the reduced system, the numbers of its integrals and angles, and an involution rho that "
        "reverses it.",
    )
    found_words = (
        "Everything is computed from the functions of the systems: the group from the Lie algebra that "
        "the evolution matrices generate, the angles from the period map, the involutions by solving for "
        "rho about every phase of the driver.",
        "Three entries differ. F is 3 for robot and disk, not 2: their kappa is zero and x has three "
        f"entries. And for the rotating pendulum the involution is {', '.join(rotating)} (up to an "
        "overall sign), not (y, -v), which needs a driver that turns back. With eps = 0.5 the rotating "
        "driver has none at all, and for the knife edge with eps = 0.1 the reduced motion is unbounded: "
        "the two ways in which the perturbed problems leave the theory.",
    )
    return Result(
        "table1", "Table 1: structure of the coupled systems", said, found_words, (), (table,), found
    )


def _compared(ours: str, theirs: str | None) -> Cell:
    if theirs is None:
        return Cell(ours, "drift" if ours == "none" else "")
    return Cell(ours, "" if ours == theirs else "differs", (f"paper: {theirs}",))
