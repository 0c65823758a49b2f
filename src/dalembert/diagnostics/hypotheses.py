"""Whether a coupled system is fibred over a reversible integrable system: each hypothesis, measured."""

from typing import Any, NamedTuple

import numpy as np

from dalembert.diagnostics.actions_and_angles import ActionAngle, driver_state
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.coupled_structure import evolution_defect
from dalembert.diagnostics.floquet import Averaging, averaging
from dalembert.diagnostics.frequency_map import Nondegeneracy, nondegeneracy
from dalembert.model import check_system

# Evolution matrices are known to rounding, and period maps to 1e-11; the defects of systems that are not reversible
# are a thousand times larger.
_DEFECT = 1e-7
_ORBITS = 5


class Hypothesis(NamedTuple):
    """One hypothesis of the theorem."""

    statement: str
    holds: bool | None
    """None if the measurement does not decide."""
    measured: str
    """What was measured."""
    needed: bool = True
    """Whether the conclusion needs it. A hypothesis that is only sufficient is measured as well."""

    def __str__(self) -> str:
        word = {True: "holds", False: "fails", None: "undecided"}[self.holds]
        return f"  {word + ('' if self.needed else ', not needed'):21} {self.statement}: {self.measured}"


class ReversibleIntegrability(NamedTuple):
    """The hypotheses of [modin2020] Theorem 3.3 for one system and one family of driver orbits, and what follows."""

    name: str
    hypotheses: tuple[Hypothesis, ...]
    holds: bool | None
    """Whether the system is fibred over a reversible integrable system on the region; None if this is undecided."""
    conclusion: str
    nondegeneracy: Nondegeneracy | None
    """The frequency map over the region; None if a hypothesis fails before it is defined."""

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.conclusion}", *map(str, self.hypotheses)])


def reversible_integrability(
    system: Any, first: tuple[float, float], last: tuple[float, float], h: float | None = None
) -> ReversibleIntegrability:
    """Which hypotheses of Theorem 3.3 hold for the driver's orbits between those through `first` and `last`.

    Equations: [modin2020] Theorem 3.3, Propositions 5.3 and 5.4, and Definition 5.1. The hypotheses are measured one
    after the other, on several orbits of the region. Where one fails that the next ones need, the list ends.
    """
    first, last = driver_state(first), driver_state(last)
    whole = system.system if isinstance(system, CoupledSystem) else system
    check_system(whole)
    name = whole.label
    done: list[Hypothesis] = []

    def ended(conclusion: str) -> ReversibleIntegrability:
        return ReversibleIntegrability(name, tuple(done), False, conclusion, None)

    try:
        coupled = CoupledSystem.of(system)
    except ValueError as error:
        done.append(Hypothesis("the system is coupled (Definition 2.1)", False, str(error)))
        return ended("Theorem 3.3 does not apply: the system is not coupled")
    count = len(coupled.others)
    done.append(
        Hypothesis(
            "the system is coupled (Definition 2.1)",
            True,
            f"{coupled.driver.coordinates[0]} drives {', '.join(coupled.passenger.coordinates)}",
        )
    )
    statement = "the passenger's potential is quadratic (section 2.1)"
    if coupled.kappa is None:
        done.append(Hypothesis(statement, False, "its second derivatives change, or K is not semidefinite"))
        return ended("Theorem 3.3 does not apply: the passenger is not linear")
    size = len(coupled.kappa)
    done.append(
        Hypothesis(statement, True, f"kappa has rank {size} and a kernel of dimension {count - size}")
    )

    statement = "the driver is periodic"
    try:
        averages = [averaging(coupled, *state, h) for state in (first, last)]
    except ValueError as error:
        done.append(Hypothesis(statement, False, str(error)))
        return ended("Theorem 3.3 does not apply: the driver is not periodic")
    periods = " and ".join(f"{x.orbit.period:.6g}" for x in averages)
    done.append(Hypothesis(statement, True, f"periods {periods} at the ends of the region"))

    statement = "the averaged passenger stays bounded (the average generates a compact group)"
    growing = [x for x in averages if not x.is_compact]
    if growing:
        done.append(Hypothesis(statement, False, _growth(growing[0])))
        return ended("not integrable in the sense of Definition 5.1: the reduced motion is not bounded")
    done.append(Hypothesis(statement, True, "the eigenvalues of the average are imaginary and semisimple"))

    found = nondegeneracy(coupled, first, last, h)
    chosen = [found.charts[k] for k in np.linspace(0, len(found.charts) - 1, _ORBITS).round().astype(int)]
    done.append(_small(averages, size + 1))
    done.append(_half_turns(found.charts))
    done.append(_reversible(chosen))
    done.append(_angles_reverse(chosen))
    done.append(
        Hypothesis(
            "the frequencies span (condition (iii) of Definition 5.1)",
            found.holds,
            str(found).split(": ", 1)[1],
        )
    )
    return ReversibleIntegrability(name, tuple(done), *_concluded(done), found)


def _concluded(done: list[Hypothesis]) -> tuple[bool | None, str]:
    needed = [x for x in done if x.needed]
    if all(x.holds for x in needed):
        return True, "fibred over a reversible integrable system on the region (Theorem 3.3)"
    reversals, frequencies = needed[-3:-1], needed[-1]
    if any(x.holds is False for x in reversals):
        return (
            False,
            "integrable, but not reversible integrable with any linear rho; Theorem 3.3 does not apply",
        )
    if frequencies.holds is False:
        return False, "integrable and reversible, but degenerate: KAM theory does not apply"
    return None, "undecided: the errors are too large for condition (iii)"


def _growth(averaged: Averaging) -> str:
    values = np.linalg.eigvals(averaged.average)
    rate = float(np.max(values.real)) / averaged.orbit.period
    if rate > 1e-9:
        return f"an eigenvalue of the average grows at the rate {rate:.6g}"
    push = np.linalg.norm(averaged.average[:-1, -1]) / averaged.orbit.period
    return f"the eigenvalue zero is not semisimple: the mean force is {push:.6g} along a direction that nothing binds"


def _small(averages: list[Averaging], size: int) -> Hypothesis:
    zero = all(np.max(np.abs(x.average)) < 1e-9 for x in averages)
    text = "the average is zero" if zero else f"n = {size}"
    return Hypothesis(
        "the average is zero or in so(n) with n <= 3 (Proposition 5.3)", zero or size <= 3, text, needed=False
    )


def _half_turns(charts: tuple[ActionAngle, ...]) -> Hypothesis:
    statement = "the period map has one logarithm only: no plane makes a half turn (Theorem 4.4)"
    turns = np.array([chart.turns for chart in charts])
    if not turns.size:
        return Hypothesis(statement, True, "no plane turns", needed=False)
    halves = (turns / np.pi - 1) / 2  # whole numbers at half turns
    crossed = np.floor(halves).min(axis=0) != np.floor(halves).max(axis=0)
    away = float(np.min(np.abs(halves - np.round(halves)))) * 2 * np.pi
    if crossed.any() or away < 1e-9:
        return Hypothesis(
            statement,
            False,
            "an orbit of the region has a half turn; the angles are continued past it",
            needed=False,
        )
    return Hypothesis(statement, True, f"all angles stay {away:.3g} away from a half turn", needed=False)


def _reversible(charts: list[ActionAngle]) -> Hypothesis:
    statement = "rho A(theta) rho = -A(-theta) for an involution rho about some phase (24)"
    if charts[0].reversal is None:
        return Hypothesis(statement, False, "no linear involution about any phase")
    rho = charts[0].reversal
    worst = max(evolution_defect(chart.averaged, rho) for chart in charts)
    xi, eta = charts[0].averaged.orbit.base
    shown = np.array2string(rho[:-1, :-1].round(6) + 0.0, separator=", ").replace("\n", "")
    return Hypothesis(
        statement,
        worst < _DEFECT,
        f"rho = {shown} about the driver state ({xi:.6g}, {eta:.6g}); largest defect {worst:.1e}",
    )


def _angles_reverse(charts: list[ActionAngle]) -> Hypothesis:
    worst = max(chart.reversal_defect() for chart in charts)
    text = f"largest defect {worst:.1e}" if np.isfinite(worst) else "there is no reversal"
    return Hypothesis("R keeps the actions and reverses the angles (condition (i))", worst < _DEFECT, text)
