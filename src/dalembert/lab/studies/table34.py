"""The table of section 3.4: which method respects the fibration, and which is reversible."""

from typing import NamedTuple

import numpy as np

from dalembert.diagnostics import CoupledSystem, fibration_defects, reversibility_defect
from dalembert.lab.studies.result import Cell, Result, Table, judged, number
from dalembert.lab.studies.shared_runs import CVT_STEP, KNIFE_STEP, METHODS, NAMES, PAPER, Lab, random_states
from dalembert.methods import Method, method_from_text
from dalembert.zoo import KnifeEdge, PendulumCVT

ZERO = 1e-12
"""A defect below this is rounding."""
PRINTED = {
    "dla:0.5": (True, True),
    "dla:0.4": (True, False),
    "dla01": (True, True),
    "leapfrog:momentum": (True, True),
    "dd": (False, True),
}
"""What the paper prints for fibration and reversibility."""


class Defects(NamedTuple):
    """The defects of one method on one system."""

    fibration: float
    """The larger of two defects: the change of the driver with the passenger, and the change along the fibres."""
    reversibility: float
    plain: float
    """The defect of reversibility with u -> -u instead of the method's own involution."""


Found = dict[tuple[str, str], Defects]


def measure(lab: Lab) -> Found:
    """The defects at random states, on the knife edge and on the pendulum CVT."""
    found: Found = {}
    systems = {"knife edge": (KnifeEdge(), KNIFE_STEP), "pendulum CVT": (PendulumCVT(eps=0.5), CVT_STEP)}
    for name, (system, h) in systems.items():
        coupled = CoupledSystem.of(system)
        for spelling in _methods(lab):
            lab.step(f"one step of {spelling}, {name}")
            method = method_from_text(spelling)
            on = method.claims(system).on_constraint
            q, u = random_states(coupled, lab.settings.states, on)
            fibration = fibration_defects(coupled, method, h, q, u, on)
            plain = float(np.max(reversibility_defect(system, method, h, q, u, plain=True)))
            turned = plain  # for most methods u -> -u is their own involution
            if type(method).reverse is not Method.reverse:
                turned = float(np.max(reversibility_defect(system, method, h, q, u)))
            found[spelling, name] = Defects(max(fibration.driver, fibration.fibre), turned, plain)
    return found


def _methods(lab: Lab) -> tuple[str, ...]:
    """All methods. A quick run leaves out the composition, whose steps are those of frame and take long to compile."""
    return METHODS[:-1] if lab.quick else METHODS


def present(lab: Lab, found: Found) -> Result:
    """The study with its table, beside the paper's ticks."""
    rows = []
    for spelling in _methods(lab):
        cells = [Cell(NAMES[spelling], notes=(spelling,))]
        for which in (0, 1):
            printed = PRINTED[spelling][which] if spelling in PAPER else None
            cells.append(Cell({True: "\u2713", False: "\u00d7", None: ""}[printed]))
            for name in ("knife edge", "pendulum CVT"):
                cells.append(_defect(found[spelling, name][which], printed))
        rows.append(tuple(cells))
    table = Table(
        f"Largest defect over {lab.settings.states:,} random states, relative to the size of the state; h "
        "= pi/10 (knife edge) and 0.1 (CVT, eps = 0.5). The exact motion has defect zero. Reversibility "
        "is for the method's own involution.",
        ("method", "paper", "knife edge", "CVT", "paper", "knife edge", "CVT"),
        tuple(rows),
        (("", 1), ("respects the fibration", 3), ("reversible", 3)),
    )
    dd, leapfrog = found["dd", "pendulum CVT"], found["leapfrog:momentum", "pendulum CVT"]
    knife = found["dd", "knife edge"]
    claims = {
        f"{NAMES[spelling]} {'is' if ticks[which] else 'is not'} {word} on the {name}": (
            (found[spelling, name][which] < ZERO) == ticks[which]
        )
        for spelling, ticks in PRINTED.items()
        for which, word in enumerate(("fibred", "reversible"))
        for name in ("knife edge", "pendulum CVT")
    }
    said = (
        "Two properties decide in the paper's theory: whether a step maps fibres to fibres (so that the "
        "driver does not feel the passenger), and whether it is reversible. All five methods have both, "
        "except that DLA 0.4 is not reversible and DD does not respect the fibration; the paper argues "
        "the latter on the knife edge.",
    )
    words = (
        f"{judged(claims)} DD respects the fibration to {number(knife.fibration)} in one step on the knife edge and to "
        f"{number(dd.fibration)} on the pendulum CVT: its discrete derivative mixes the potentials of driver and "
        "passenger as soon as that of the driver is not quadratic.",
        f"Leap-frog is reversible, but not under u -> -u (defect {number(leapfrog.plain)}): its "
        "involution also reflects the component of its velocity normal to the constraint.",
    )
    title = "Section 3.4: fibration and reversibility of the methods"
    return Result("table34", title, said, words, (), (table,), found)


def _defect(value: float, printed: bool | None) -> Cell:
    holds = value < ZERO
    tone = "good" if holds else "drift"
    notes = ("yes" if holds else "no",)
    if printed is not None and printed != holds:
        return Cell(number(value), "differs", (f"{notes[0]}; paper: {'yes' if printed else 'no'}",))
    return Cell(number(value), tone, notes)
