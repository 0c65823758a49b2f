"""The audit: one call that measures what a method preserves on a system."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.diagnostics.conserved import horizontal_momenta
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.discrete import DiscreteLaws, discrete_laws
from dalembert.diagnostics.field_analysis import BackwardError, Finding, Kept, backward_error
from dalembert.diagnostics.floquet import Orbit, measured_period, orbit, resonance, section
from dalembert.diagnostics.growth import nonholonomy
from dalembert.diagnostics.hidden_integral import Latitude
from dalembert.diagnostics.order import (
    Exact,
    Order,
    Terms,
    exact_acceleration,
    exact_ends,
    measured_order,
    measured_terms,
)
from dalembert.diagnostics.parasitic import Parasitic, normal_velocity, parasitic_mode
from dalembert.diagnostics.series import Drift, Verdict, judged
from dalembert.diagnostics.stepmap import (
    Fibration,
    Volume,
    fibration_defects,
    reversibility_defect,
    volume_along,
)
from dalembert.kernels import over_rows
from dalembert.methods import Claims, Method
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    as_arrays,
    check_system,
    independent_rows,
    kinetic_size,
    lower,
    moving_energy,
    total_energy,
)
from dalembert.numerics import Vector
from dalembert.simulation import MotionWarning, SimulationError, Trajectory, simulate

# A defect of a step below this fraction of the state is rounding: a few hundred operations, and Newton's last digits.
ROUNDING = 1e-11
FIELD = "modified field"
"""The row that heads those about the modified field."""
# A measured order counts as the claimed one if it falls short by no more than this.
ORDER_TOLERANCE = 0.15


@dataclass(frozen=True)
class Audit:
    """What a method preserves on a system from one start. Print it, or look at its fields."""

    system: str
    method: str
    h: float
    steps: int
    """The number of steps in the long run."""
    message: str
    """How the long run ended."""
    claims: Claims | None
    """What the method claims about itself; None if it makes no claims."""
    order: Order
    terms: Terms
    """The factors with which the parts of the equations of motion enter the method."""
    constraint: float
    """The largest A(q) v of the saved velocity, relative to the speed."""
    own_constraint: float
    """The largest A(q) v of the method's own velocity, relative to the speed."""
    reversibility: float
    """The largest defect of a step, the step back and a second reversal. It is not defined, and NaN, where v -> -v
    does not reverse the exact motion (affine constraints, friction) and for methods whose steps differ in size."""
    volume: Volume | None
    """The change of volume in phase space; None for methods whose steps differ in size, for constraints that are not
    linear in the velocity, and for indefinite metrics."""
    integrals: dict[str, Drift]
    """The verdict on each quantity that the exact motion conserves, by name."""
    laws: DiscreteLaws | None = None
    """The laws of discrete mechanics; None for methods that are not made from a discrete Lagrangian."""
    fibration: Fibration | None = None
    """How well the step respects the coupled structure; None if the system is not coupled."""
    parasitic: Parasitic | None = None
    """The parasitic mode; None for methods on D."""
    resonance: tuple[float, float] | None = None
    """A value of T/h at which the parasitic mode resonates with the driver, and the signed distance of T/h from it;
    None if no such value is near."""
    structure: str = ""
    """A description of the constraint in words."""
    positions: float | None = None
    """The largest value of the position constraints c(q), relative to the terms of dc q; None if there are none."""
    speed: float = field(default=1.0, repr=False)
    """The largest velocity in the run."""
    backward: BackwardError | None = None
    """What the method's modified field keeps; None if it was not asked for, or not measured."""
    backward_refusal: str = ""
    """Why the modified field was not measured although it was asked for."""

    @property
    def on_constraint(self) -> bool:
        """Whether the method's own velocity satisfies the constraint."""
        return self.own_constraint < ROUNDING

    @property
    def energy(self) -> Drift | None:
        """The drift of the energy of the method's own velocity, which it could keep exactly; None with forces."""
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
        """The claims that the measurement contradicts, in words; empty if all claims hold."""
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
        if self.positions is not None and not self.positions < ROUNDING:
            words.append(f"the position constraints are claimed, but c(q) reaches {self.positions:.1e}")
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
        """What is broken, in words, with the gravest problem first; empty if nothing is broken."""
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
        # Where both energies drift, reporting the plain one is enough.
        lines = [
            _drift_words(n, d)
            for n, d in drifting.items()
            if n.removesuffix(" (own)") == n or n[:-6] not in drifting
        ]
        if lines:
            words.append(f"drift: {'; '.join(lines)}")
        if self.parasitic is not None and self.parasitic.grows and self.parasitic.largest > 1e-9 * self.speed:
            p = self.parasitic
            words.append(
                f"the parasitic mode grows from {p.first:.1e} to {p.largest:.1e}, at first by exp({p.rate:.2g} t): "
                "the motion is wrong from then on, whatever the energy says"
            )
        return words + [x for x in self.broken_claims if x not in words]

    @property
    def warnings(self) -> list[str]:
        """What may go wrong from other starts or with other parameters, in words."""
        if self.resonance is None or self.parasitic is None:
            return []
        here = "here it does" if self.parasitic.grows else "in this run it did not"
        near, by = self.resonance
        return [
            f"T/h = {near + by:.3f} is near the resonance {near:.3f}, where the driver can feed the parasitic mode "
            f"({here}); another h is safer"
        ]

    @property
    def remarks(self) -> list[str]:
        """Where the long run and the modified field disagree about an integral, and why a field is missing."""
        if self.backward is None:
            why = self.backward_refusal
            return [f"the modified field was not measured: {why}"] if why else []
        if not self.message.startswith("the run reached its end"):
            return []  # the failure explains what became of the integrals
        lines = []
        for name, x in self.backward.structures.items():
            # The modified field acts on the method's own velocity, for which only the energy has a row of its own.
            drift = self.integrals.get(name if self.on_constraint else f"{name} (own)")
            if drift is None:
                continue
            if drift.verdict is Verdict.EXACT and x.verdict is Kept.BROKEN:
                power = f", which falls as h^{x.order:.1f}" if np.isfinite(x.order) else ""
                lines.append(
                    f"{name}: the long run kept it (largest error {drift.largest:.1e}), but the modified field does "
                    f"not: at the states where it was measured, the defect reaches {x.defect:.1e}{power}. Either the "
                    "changes cancel along this run or they are too small to show; do not rely on it from other starts"
                )
            if drift.verdict in (Verdict.DRIFT, Verdict.BOUNDED) and x.verdict is Kept.KEPT:
                what = "drifts" if drift.verdict is Verdict.DRIFT else "stays bounded"
                lines.append(
                    f"{name}: its error in the long run {what} and reaches {drift.largest:.1e}, but the modified field "
                    f"keeps it as far as it is known (defect {_with_error(x)} with h/4). The field may differ "
                    "elsewhere, or the error comes from what it does not describe: rounding that adds up, a parasitic "
                    "mode, a step that is too large, or a rate below this accuracy"
                )
        return lines

    def rows(self) -> list[tuple[str, str]]:
        """The rows of the table: the name of each structure and its measurement, in one or two lines."""
        rows = [("order", _order_cell(self.order))]
        rows.append(("equations", "WRONG TERM" if _of_terms(self.terms) else "consistent"))
        if self.positions is not None:
            rows.append(("position constraint", f"{self.positions:.1e}"))
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

    def field_rows(self) -> list[tuple[str, str]]:
        """The rows about the modified field, after one that heads them; empty if it was not asked for."""
        found = self.backward
        if found is None:
            return [(FIELD, "not measured")] if self.backward_refusal else []
        rows = [(FIELD, f"{found.states} states"), ("  distance", _distance_cell(found.distance))]
        rows += [(f"  {name}", _field_cell(x)) for name, x in found.structures.items()]
        if found.growth is not None:
            rate = np.max(np.abs(found.growth.exponents))
            rows.append(("  predicted drift rate", f"{rate:.1e}({found.growth.error:.0e})"))
        return rows

    def __str__(self) -> str:
        lines = [f"{self.method} on {self.system}, h = {self.h:g}, {self.steps:,} steps"]
        lines += [f"  {name:22} {' '.join(value.split(chr(10)))}" for name, value in self.rows()]
        said = "no claims are made" if self.claims is None else "every claim of the method holds"
        lines += [f"  ! {x}" for x in self.problems] or [f"  nothing is broken; {said}"]
        lines += [f"  ? {x}" for x in self.warnings]
        lines += [f"  {name:36} {' '.join(value.split(chr(10)))}" for name, value in self.field_rows()]
        lines += [f"  * {x}" for x in self.remarks]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The audit as plain numbers, texts, lists and dictionaries, ready for JSON."""
        made = _plain(asdict(replace(self, backward=None)))
        return made | {
            "backward": None if self.backward is None else self.backward.to_dict(),
            "remarks": self.remarks,
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
    """The cell for a defect, which counts as broken only if the method claims to keep the structure."""
    if np.isnan(x):
        return "not defined"
    if x < ROUNDING:
        return f"kept {x:.0e}"
    return f"BROKEN {x:.1e}" if claimed else f"not claimed,\noff by {x:.1e}"


def _with_error(x: Finding) -> str:
    """The defect with its estimated error: of a broken structure with h, of others with h/4 if it is known."""
    coarse = x.verdict is Kept.BROKEN or not np.isfinite(x.fine)
    return f"{x.defect:.1e}({x.error:.0e})" if coarse else f"{x.fine:.0e}({x.fine_error:.0e})"


def _distance_cell(x: Finding) -> str:
    """The cell for the distance of the modified field from the exact one."""
    first = f"falls as h^{x.order:.1f}" if np.isfinite(x.order) else "none seen" * (x.verdict is Kept.KEPT)
    return f"{first}\n{_with_error(x)}".lstrip()


def _field_cell(x: Finding) -> str:
    """The cell for a structure of the modified field."""
    if x.verdict is Kept.ABSENT:
        return "not defined"
    order = f", order h^{x.order:.1f}" if np.isfinite(x.order) else ""
    return f"{x.verdict}{order}\n{_with_error(x)}"


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
    """The parts of the equations that are wrong, in words."""
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
            f"no term of the equations explains a part of the acceleration, {terms.rest:.1e} of its size"
        )
    return words


def _drift_words(name: str, drift: Drift) -> str:
    if not np.isfinite(drift.largest):
        return f"{name} is not finite any more"
    way = "below" if drift.end < 0 else "above"
    return f"{name} ends {abs(drift.end):.1e} {way} its start value (error up to {drift.largest:.1e})"


def compare(audits: Sequence[Audit]) -> list[list[str]]:
    """The table of several audits of one system: a header, then one row per structure with one column per method."""
    tables = [dict([*a.rows(), *a.field_rows()]) for a in audits]
    names: list[str] = []
    for table in tables:
        for i, name in enumerate(table):
            if name not in names:
                before = [x for x in list(table)[:i] if x in names]
                names.insert(names.index(before[-1]) + 1 if before else 0, name)
    header = ["", *(a.method for a in audits)]
    return [header, *([name, *(t.get(name, "-") for t in tables)] for name in names)]


# A long run keeps at most about this many rows.
_ROWS = 400_000
_STATES = 32


class Subject(NamedTuple):
    """A system, a start, and the facts about them that do not depend on the method."""

    system: System
    q0: np.ndarray
    v0: np.ndarray
    h: float
    coupled: CoupledSystem | None
    orbit: Orbit | None
    """One period of the driver; None if there is no driver or it is not periodic."""
    latitude: Latitude | None
    exact: Exact
    structure: str
    integrals: Mapping[str, Callable]


def subject(
    system: System, q0: Any, v0: Any, h: float, integrals: Mapping[str, Callable] | None = None
) -> Subject:
    """The facts about the system that all methods share: its structure, hidden integral and exact motion."""
    coupled = found = hidden = None
    try:
        coupled = CoupledSystem.of(system, q0)
        found = orbit(coupled, *section(coupled, q0, v0), h)
        hidden = Latitude.of(coupled, q0, v0, h, found)
    except ValueError:
        pass  # not coupled, not periodic, or without a hidden integral: the audit leaves these parts out
    exact = exact_ends(system, q0, v0, 40 * h)
    if np.array_equal(exact.q0[0], exact.q1[0]) and not np.any(exact.v1[0]):
        raise ValueError(
            f"{system.label} stays at rest from this start, so there is nothing to measure; give a start that moves"
        )
    given = {
        **_moving(system, exact),
        **horizontal_momenta(system),
        **system.integrals(),
        **(integrals or {}),
    }
    return Subject(
        system,
        np.asarray(q0, float),
        np.asarray(v0, float),
        h,
        coupled,
        found,
        hidden,
        exact,
        _structure(system, q0),
        given,
    )


def _structure(system: System, q0: Any) -> str:
    """What the constraint is like, in words."""
    m = lower(system)
    if Trait.NONLINEAR not in m.traits:
        return str(nonholonomy(system, q0))
    work = (
        "homogeneous in the velocity, so their reactions do no work"
        if m.homogeneous
        else "not homogeneous in it"
    )
    return f"not linear in the velocity; {work}"


def _moving(system: System, exact: Exact) -> dict[str, Callable]:
    """The moving energy of a system with affine constraints, if the exact motion keeps it."""
    m = lower(as_arrays(system))
    if Trait.AFFINE not in m.traits:
        return {}
    ends = [over_rows(moving_energy)(m, *x) for x in ((exact.q0, exact.v0), (exact.q1, exact.v1))]
    kept = np.max(np.abs(ends[1] - ends[0])) <= 1e-10 * np.max(np.abs(ends[0]))  # the reference's accuracy
    return {"moving energy": lambda q, v: moving_energy(m, q, v)} if kept else {}


def audit(
    system: System,
    method: Method | Sequence[Method],
    q0: Vector | None = None,
    v0: Vector | None = None,
    *,
    start: str | None = None,
    h: float | None = None,
    steps: int = 300_000,
    window: float | None = None,
    integrals: Mapping[str, Callable] | None = None,
    backward: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Any:
    """Measures what `method` preserves on `system` and returns an Audit, or a list of them for a list of methods.

    The start is (q0, v0), or the system's own start named `start`. A long run of `steps` steps of size h gives the
    verdict on every integral: the energy, the passenger's energy, the driver's energy and the latitude for coupled
    systems, the functions of `system.integrals()`, and the functions of (q, v) in `integrals`. Running means are
    taken over `window` units of time, by default the time of 300 steps. Later errors are compared with those in the
    first tenth of the run. Single steps from states of the run give reversibility, fibration and volume. With
    `backward=True` the audit also has what `backward_error` finds about the method's modified field, and `remarks`
    says where field and run disagree; if the field cannot be measured, `remarks` says why. `progress` is called with
    a line of text at the beginning of each measurement.
    """
    check_system(system)
    methods = [method] if isinstance(method, Method) else list(method) if isinstance(method, Sequence) else []
    if not methods or not all(isinstance(each, Method) for each in methods):
        raise ValueError(f"expected a method such as FrameGradient(), or a list of them, got {method!r}")
    if (q0 is None) != (v0 is None):
        raise ValueError("give both q0 and v0, or neither to take the system's own start")
    if q0 is None or v0 is None:
        q0, v0 = system.start(start)
    if not isinstance(backward, bool):
        raise ValueError(f"backward must be True or False, got {backward!r}")
    h = system.step if h is None else h
    if h is None:
        raise ValueError(f"{system.label} recommends no step size; give h")
    if steps < 10_000:
        raise ValueError(
            f"an audit needs 10,000 steps or more to tell a drift from an oscillation, got {steps}"
        )
    traits = lower(system).traits
    if Trait.EXTRA_VELOCITIES in traits:
        raise ValueError(
            f"an audit measures systems with one velocity per coordinate, but {system.label} has {system.dimension} "
            f"coordinates and {system.velocity_dimension} velocities; audit the system that it was reduced from"
        )
    if Trait.TIMED in traits:
        raise ValueError(
            f"an audit measures systems that do not depend on time, but {system.label} does; its maps differ from "
            "step to step. Look at measured_order(...), variable_step_laws(...) and sol.constraint_residual()"
        )
    tell = progress or (lambda line: None)
    # One step by each method, so that a refusal or a start off the constraint is reported before the long runs.
    for each in methods:
        simulate(system, each, q0, v0, h=h, steps=1, throw=False)
    system = independent_rows(system, q0)
    tell(f"{system.label}: structure and exact motion")
    about = subject(system, q0, v0, float(h), integrals)
    window = 300 * about.h if window is None else float(window)
    found = []
    for each in methods:
        tell(f"{each.cli_name} on {system.label}: {steps:,} steps")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MotionWarning)  # the audit reports these itself
            one = _audit(about, each, steps, window)
            if backward:
                tell(f"{each.cli_name} on {system.label}: modified field")
                one = replace(one, **_backward(about, each))
            found.append(one)
    return found[0] if isinstance(method, Method) else found


def _audit(about: Subject, method: Method, steps: int, window: float) -> Audit:
    system, h = about.system, about.h
    every = max(1, steps // _ROWS)
    sol = simulate(system, method, about.q0, about.v0, h=h, steps=steps, save_every=every, throw=False)
    if len(sol.t) < 2:
        raise ValueError(
            f"{method.cli_name} makes no step on {system.label}, so nothing is measured: {sol.message}"
        )
    speed = max(float(np.nanmax(np.abs(np.asarray(sol.v)))), np.finfo(float).tiny)
    # Each row is divided by its own speed, so that a run that explodes hides nothing, or by the typical speed where
    # the system rests.
    speeds = np.max(np.abs(np.asarray(sol.v)), axis=1)
    speeds = np.maximum(speeds, np.median(speeds[: len(speeds) // 10 + 1]))
    speeds = np.maximum(speeds, np.finfo(float).tiny)
    own = float(np.nanmax(np.abs(normal_velocity(sol)) / speeds[:, None], initial=0.0))
    saved = float(np.nanmax(np.asarray(sol.constraint_residual()) / speeds))
    on_constraint = own < ROUNDING

    pick = np.unique(np.linspace(1, min(len(sol.t) - 1, 3_000), _STATES).astype(int))
    q, u = (np.asarray(x)[pick] for x in (sol.q, sol.v_full))
    wrapped = [i for i, name in enumerate(system.coordinates) if name in system.angles]
    q[:, wrapped] = (q[:, wrapped] + np.pi) % (2 * np.pi) - np.pi

    fibration = parasitic = near = None
    if about.coupled is not None and not method.variable_step:
        fibration = fibration_defects(about.coupled, method, h, q, u, on_constraint)
    if not on_constraint:
        short = (
            sol
            if every == 1
            else simulate(system, method, about.q0, about.v0, h=h, steps=30_000, throw=False)
        )
        parasitic = parasitic_mode(short) if len(short.t) >= 200 else None
        near = _resonance(about, sol)
    return Audit(
        system=system.label,
        method=method.cli_name,
        h=h,
        steps=int(sol.steps),
        message=sol.message,
        claims=_claims(method, system),
        order=measured_order(system, method, about.exact, 4 * h),
        terms=measured_terms(system, method, about.exact.q0, about.exact.v0, h),
        constraint=saved,
        own_constraint=own,
        # Not defined where v -> -v leaves the constraint, or where a state does not determine the next step's size.
        reversibility=np.nan
        if Trait.AFFINE in sol.traits or method.variable_step or not _turns_back(system, q, u)
        else float(np.max(np.nan_to_num(reversibility_defect(system, method, h, q, u), nan=np.inf))),
        volume=None
        if method.variable_step or not sol.traits.isdisjoint((Trait.NONLINEAR, Trait.INDEFINITE))
        else volume_along(sol, on_constraint),
        integrals=_integrals(about, sol, window, on_constraint),
        laws=discrete_laws(system, method, h, q, u),
        fibration=fibration,
        parasitic=parasitic,
        resonance=near,
        structure=about.structure,
        positions=_positions(sol),
        speed=speed,
    )


def _backward(about: Subject, method: Method) -> dict[str, Any]:
    """What the modified field keeps, or why it was not measured."""
    try:
        found = backward_error(about.system, method, about.q0, about.v0, h=about.h, integrals=about.integrals)
    except (ValueError, NotImplementedError, SimulationError) as error:
        return {"backward_refusal": str(error)}
    return {"backward": found}


def _positions(sol: Trajectory) -> float | None:
    """The largest value of the position constraints, relative to the sum of |dc/dq_i| times the largest |q_i|."""
    if sol.system is None or Trait.HOLONOMIC not in sol.traits:
        return None
    q = np.asarray(sol.q if sol.near is None else sol.near)
    m = lower(as_arrays(sol.system))
    size = np.max(np.abs(q), axis=0) if len(q[0]) == m.velocity_dimension else np.ones(m.velocity_dimension)
    values, slopes = over_rows(_surface)(m, q, np.asarray(sol.v))
    terms = np.maximum(np.abs(slopes) @ size, np.finfo(float).tiny)
    return float(np.nanmax(np.abs(values) / terms))


def _surface(m: Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    return m.holonomic(q), m.slopes(q)


def _backwards(m: Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    """How far -v is from satisfying the constraints, and the size of the terms that cancel."""
    return m.violation(q, -v), jnp.abs(m.forms(q, v)) @ jnp.abs(v)


def _turns_back(system: System, q: np.ndarray, u: np.ndarray) -> bool:
    """Whether v -> -v reverses the exact motion. It does not with friction, nor at the level of a reduced system, nor
    where nonlinear constraints allow v but not -v."""
    shared = lower(as_arrays(system))
    if Trait.NONLINEAR in shared.traits:
        back, size = over_rows(_backwards)(shared, q, u)
        if not np.all(np.abs(back) <= 1e-9 * size):
            return False
    if Trait.FORCED not in shared.traits:
        return True
    forth, back = (over_rows(exact_acceleration)(shared, q, v) for v in (u, -u))
    return float(np.max(np.abs(forth - back))) <= 1e-9 * max(
        float(np.max(np.abs(forth))), np.finfo(float).tiny
    )


def _claims(method: Method, system: System) -> Claims | None:
    try:
        return method.claims(system)
    except NotImplementedError:
        return None


def _resonance(about: Subject, sol: Trajectory) -> tuple[float, float] | None:
    """The resonance of the driver with a mode that changes sign every step, and its distance; None if none is near."""
    coupled, found = about.coupled, about.orbit
    if coupled is None or found is None:
        return None
    try:
        period = measured_period(sol.t, sol.q[:, coupled.index], found.base[0], coupled.is_angle)
    except ValueError:
        return None  # the run ended before the driver completed a period
    return resonance(period, np.abs(np.angle(np.linalg.eigvals(found.rotation))), about.h)


def _parts(m: Mechanics, q: Array, v: Array) -> Array:
    """Kinetic and potential energy, and the size of the terms of the former."""
    potential = m.potential(q)
    return jnp.stack([total_energy(m, q, v) - potential, potential, kinetic_size(m, q, v)])


def _passenger_parts(coupled: CoupledSystem, q: Array, v: Array) -> Array:
    potential = coupled.passenger_potential(coupled.rest(q))
    kinetic = coupled.passenger_energy(q, v) - potential
    return jnp.stack([kinetic, potential, kinetic])


def _driver_parts(coupled: CoupledSystem, q: Array, v: Array) -> Array:
    potential = coupled.driver_potential(q[coupled.index])
    kinetic = coupled.driver_energy(q, v) - potential
    return jnp.stack([kinetic, potential, kinetic])


def _integrals(about: Subject, sol: Trajectory, window: float, on_constraint: bool) -> dict[str, Drift]:
    """The verdict on each quantity that the exact motion keeps, by name."""
    kinds: list[tuple[str, Callable, Any]] = []
    m = lower(as_arrays(about.system))
    if m.conservative:
        kinds.append(("energy", _parts, m))
    if about.coupled is not None:
        kinds.append(("passenger energy", _passenger_parts, about.coupled))
        kinds.append(("driver energy", _driver_parts, about.coupled))
    found = {}
    for name, parts, shared in kinds:
        velocities = [(name, sol.v)]
        if not on_constraint and name != "driver energy":  # the driver's velocity is free: both agree
            velocities.append((f"{name} (own)", sol.v_full))
        if name == "energy" and "E_plus" in sol.step_data:
            size = float(np.max(np.abs(sol.energy())))
            found["energy (own)"] = judged(sol.t[1:], np.asarray(sol.energy(full=True)[1:]), window, size)
        for label, v in velocities:
            kinetic, potential, terms = over_rows(parts)(shared, sol.q, v).T
            size = float(np.nanmax(terms) + np.nanmax(np.abs(potential - potential[0])))
            found[label] = judged(sol.t, kinetic + potential, window, size)
    if about.latitude is not None:
        t, values = about.latitude.along(sol)
        length = about.latitude.length(about.q0, about.v0)
        found["latitude"] = judged(t, values, window, length, about.latitude.start)
    for name, function in about.integrals.items():
        values = np.asarray(jax.jit(jax.vmap(function))(jnp.asarray(sol.q), jnp.asarray(sol.v)))
        if values.shape != sol.t.shape:
            raise ValueError(
                f"the integral {name!r} must be one number per state, got shape {values.shape[1:]}"
            )
        found[name] = judged(sol.t, values, window, float(np.nanmax(np.abs(values))))
    return found
