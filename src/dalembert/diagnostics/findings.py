"""What an audit found: numbers, verdicts, sentences, and the table that shows them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dalembert.diagnostics.discrete import DiscreteLaws
from dalembert.diagnostics.order import Order, Terms
from dalembert.diagnostics.parasitic import Parasitic
from dalembert.diagnostics.series import Drift, Verdict
from dalembert.diagnostics.stepmap import Fibration, Volume
from dalembert.methods import Claims

# Defects of a step below this part of the state are rounding: a few hundred operations, and Newton's last digits.
ROUNDING = 1e-11
# An order within this of the claimed one counts as that.
ORDER_TOLERANCE = 0.15


@dataclass(frozen=True)
class Audit:
    """What a method keeps on a system from a start, measured. Print it, or look at its parts."""

    system: str
    method: str
    h: float
    steps: int
    """How many steps the long run made."""
    message: str
    """How the long run ended."""
    claims: Claims | None
    """What the method says of itself; None where it says nothing."""
    order: Order
    terms: Terms
    """Factors of the parts of the equations of motion."""
    constraint: float
    """Largest A(q) v of the saved velocity, relative to the speed."""
    own_constraint: float
    """The same of the method's own velocity."""
    reversibility: float
    """Largest defect of a step, back, and reversed again; NaN where it is not defined: where
    v -> -v does not turn the exact motion round (affine constraints, friction), or steps differ in size."""
    volume: Volume | None
    """None for methods whose steps differ in size."""
    integrals: dict[str, Drift]
    """Everything the exact motion keeps, and what became of it."""
    laws: DiscreteLaws | None = None
    """None for methods that are not made from a discrete Lagrangian."""
    fibration: Fibration | None = None
    """None where the system is not a coupled one."""
    parasitic: Parasitic | None = None
    """None for methods on D."""
    resonance: tuple[float, float] | None = None
    """T/h is near this value, by so much, where the parasitic mode meets the driver."""
    structure: str = ""
    """What the constraint is, in words."""
    speed: float = field(default=1.0, repr=False)
    """Largest velocity in the run."""

    @property
    def on_constraint(self) -> bool:
        """Whether the method's own velocity satisfies the constraint."""
        return self.own_constraint < ROUNDING

    @property
    def energy(self) -> Drift | None:
        """The energy that the method could keep exactly: that of its own velocity; None with forces."""
        return self.integrals.get("energy (own)", self.integrals.get("energy"))

    @property
    def kept(self) -> Claims:
        """What was measured, in the form of claims."""
        found = min(x for x in (self.order.q, self.order.v) if np.isfinite(x)) if _settled(self.order) else -1
        return Claims(
            order=round(float(found)) if found >= 0 else -1,
            energy=self.energy is not None and self.energy.verdict is Verdict.EXACT,
            reversible=self.reversibility < ROUNDING,
            on_constraint=self.on_constraint,
            fibred=self.fibration is None or self.fibration.driver < ROUNDING,
        )

    @property
    def broken_claims(self) -> list[str]:
        """Claims that the measurement contradicts, in words; empty where all hold."""
        if self.claims is None:
            return []
        found, said = self.kept, self.claims
        words = []
        if _settled(self.order) and min(self.order.q, self.order.v) < said.order - ORDER_TOLERANCE:
            words.append(f"order {said.order} is claimed, {self.order} is measured")
        energy = None if self.energy is None or self.energy.verdict is Verdict.SHORT else self.energy
        if said.energy and energy is not None and not found.energy:
            words.append(f"exact energy is claimed, but it changes by {energy.largest:.1e}")
        if said.reversible and not found.reversible and not np.isnan(self.reversibility):  # NaN: not defined
            words.append(
                f"reversibility is claimed, but a step back ends {self.reversibility:.1e} from its start"
            )
        if said.on_constraint and not found.on_constraint:
            words.append(f"velocities on the constraint are claimed, but A(q) v is {self.own_constraint:.1e}")
        if self.laws is not None:
            broken = [name for name, x in self.laws.momentum.items() if not x < ROUNDING]
            if broken:
                words.append(f"the momentum equation fails for {', '.join(broken)}: is the system invariant?")
        if said.fibred and not found.fibred and self.fibration is not None:
            words.append(
                f"an undisturbed driver is claimed, but the passenger moves it by {self.fibration.driver:.1e}"
            )
        return words

    @property
    def problems(self) -> list[str]:
        """What is broken, in words, the gravest first; empty where nothing is."""
        words = (
            [] if self.message.startswith("the run reached its end") else [f"the run failed: {self.message}"]
        )
        words += _of_terms(self.terms)
        if _settled(self.order) and min(self.order.q, self.order.v) < 0.5:
            words.append("it does not converge to the motion: errors do not fall with the step size")
        if self.constraint > 1e-9:
            words.append(
                f"the saved velocity leaves the constraint: A(q) v reaches {self.constraint:.1e} of the speed"
            )
        drifting = {name: d for name, d in self.integrals.items() if d.verdict is Verdict.DRIFT}
        # Where both energies drift the plain one tells enough.
        told = [
            _drift_words(n, d)
            for n, d in drifting.items()
            if n.removesuffix(" (own)") == n or n[:-6] not in drifting
        ]
        if told:
            words.append(f"drift: {'; '.join(told)}")
        if self.parasitic is not None and self.parasitic.grows and self.parasitic.largest > 1e-9 * self.speed:
            p = self.parasitic
            words.append(
                f"the parasitic mode grows from {p.first:.1e} to {p.largest:.1e}, at first by exp({p.rate:.2g} t): "
                "the motion is wrong from then on, whatever the energy says"
            )
        return words + [x for x in self.broken_claims if x not in words]

    @property
    def warnings(self) -> list[str]:
        """What may go wrong with other data, in words."""
        if self.resonance is None or self.parasitic is None:
            return []
        here = "here it does" if self.parasitic.grows else "in this run it did not"
        near, by = self.resonance
        return [
            f"T/h = {near + by:.3f} is near the resonance {near:.3f}, where the driver can feed the parasitic mode "
            f"({here}); another h is safer"
        ]

    def rows(self) -> list[tuple[str, str]]:
        """The table: structure and what was measured, one or two lines each."""
        rows = [("order", _order_cell(self.order))]
        rows.append(("equations", "WRONG TERM" if _of_terms(self.terms) else "consistent"))
        rows.append(("constraint A(q) v", f"{self.constraint:.1e}"))
        if not self.on_constraint:
            rows.append(("constraint (own)", f"{self.own_constraint:.1e}"))
        said = self.claims
        rows.append(("reversibility", _defect(self.reversibility, said is not None and said.reversible)))
        if self.laws is not None:
            rows += _law_rows(self.laws, said)
        if self.fibration is not None:
            rows.append(
                ("driver undisturbed", _defect(self.fibration.driver, said is not None and said.fibred))
            )
            if np.isfinite(self.fibration.fibre):
                rows.append(("descends", _defect(self.fibration.fibre, False)))
        if self.parasitic is not None:
            p = self.parasitic
            warn = "\nRESONANCE" if self.resonance is not None else ""
            rows.append(("parasitic mode", f"{p.first:.1e} to {p.largest:.1e}{warn}"))
        else:
            rows.append(("parasitic mode", "none"))
        if self.volume is not None:
            found = self.volume
            measured = found.verdict not in ("singular", "not measured")
            number = f"\n{found.rate:+.1e}({found.error:.0e})" if measured else ""
            rows.append(("log det / time", f"{found.verdict}{number}"))
            if self.on_constraint and np.isfinite(found.limit):
                rows.append(("  as h goes to zero", f"{found.limit:+.1e}({found.limit_error:.0e})"))
        for name, drift in self.integrals.items():
            rows.append((name, f"{drift.verdict} {drift.largest:.1e}\n{drift.slope:+.1e}({drift.error:.0e})"))
        return rows

    def __str__(self) -> str:
        lines = [f"{self.method} on {self.system}, h = {self.h:g}, {self.steps:,} steps"]
        lines += [f"  {name:22} {' '.join(value.split(chr(10)))}" for name, value in self.rows()]
        said = "no claims are made" if self.claims is None else "every claim of the method holds"
        lines += [f"  ! {x}" for x in self.problems] or [f"  nothing is broken; {said}"]
        lines += [f"  ? {x}" for x in self.warnings]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and lists, ready for a file."""
        made = _plain(asdict(self))
        return made | {
            "problems": self.problems,
            "warnings": self.warnings,
            "broken_claims": self.broken_claims,
        }


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    if hasattr(x, "_asdict"):
        return {k: _plain(v) for k, v in x._asdict().items()}
    if isinstance(x, Verdict):
        return str(x)
    if isinstance(x, np.ndarray):
        return _plain(x.tolist())
    if isinstance(x, list | tuple):
        return [_plain(v) for v in x]
    if isinstance(x, float | np.floating):
        return float(x) if np.isfinite(x) else None
    return x


def _settled(order: Order) -> bool:
    return bool(np.isfinite(order.q) and np.isfinite(order.v))


def _order_cell(order: Order) -> str:
    return f"q {order.q:.2f}, v {order.v:.2f}" if _settled(order) else "not measured"


def _defect(x: float, claimed: bool) -> str:
    """What became of a structure: only a claim can be broken."""
    if np.isnan(x):
        return "not defined"
    if x < ROUNDING:
        return f"kept {x:.0e}"
    return f"BROKEN {x:.1e}" if claimed else f"not claimed,\noff by {x:.1e}"


def _law_rows(laws: DiscreteLaws, said: Claims | None) -> list[tuple[str, str]]:
    rows = [("flight keeps energy", _defect(laws.flight, said is not None and said.energy))]
    rows += [(f"momentum: {name}", _defect(x, said is not None)) for name, x in laws.momentum.items()]
    if laws.determinant is not None:
        rows.append(("det (-1)^m in (q, p)", _defect(laws.determinant, False)))
    if laws.symplectic is not None:
        rows.append(("symplectic form", _defect(laws.symplectic, False)))
    if laws.space_momentum is not None:
        rows.append(("average momentum", _defect(laws.space_momentum, False)))
    return rows


def _of_terms(terms: Terms) -> list[str]:
    """Which part of the equations is wrong, in words."""
    names = {
        "kinematics": "q' = v holds",
        "potential": "the force of the potential enters",
        "inertia": "the terms quadratic in the velocity (the turning of the constraint) enter",
        "forces": "the forces enter",
    }
    words = []
    for key, said in names.items():
        factor = getattr(terms, key)
        if np.isfinite(factor) and abs(factor - 1) > 1e-2:
            guess = (
                " (a wrong sign?)" if abs(factor + 1) < 0.05 else " (left out?)" if abs(factor) < 0.05 else ""
            )
            words.append(f"{said} with the factor {factor:.3g} instead of 1 as h goes to zero{guess}")
    if not words and terms.rest > 1e-2:
        words.append(
            f"the acceleration has a part, {terms.rest:.1e} of it, that no term of the equations explains"
        )
    return words


def _drift_words(name: str, drift: Drift) -> str:
    if not np.isfinite(drift.largest):
        return f"{name} is not finite any more"
    way = "below" if drift.end < 0 else "above"
    return f"{name} ends {abs(drift.end):.1e} {way} its start value (error up to {drift.largest:.1e})"


def compare(audits: Sequence[Audit]) -> list[list[str]]:
    """One table of several audits of one system: a header, then one row per structure, one column per method."""
    tables = [dict(a.rows()) for a in audits]
    names: list[str] = []
    for table in tables:
        for i, name in enumerate(table):
            if name not in names:
                before = [x for x in list(table)[:i] if x in names]
                names.insert(names.index(before[-1]) + 1 if before else 0, name)
    header = ["", *(a.method for a in audits)]
    return [header, *([name, *(t.get(name, "-") for t in tables)] for name in names)]
