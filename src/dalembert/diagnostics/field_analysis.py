"""Backward error analysis by machine: which structures of the exact motion a method's modified field keeps."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.diagnostics.conserved import horizontal_momenta
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.interpolated_field import ModifiedField, modified_field
from dalembert.diagnostics.modified_driver import CoupledField, Growth, passenger_size, predicted_growth
from dalembert.diagnostics.modified_structure import (
    Form,
    Measure,
    descends,
    distance,
    divergence,
    driver_alone,
    energy_rate,
    in_algebra,
    integral_rate,
    linear_passenger,
    quadratic_form,
    reversal,
    tangency,
)
from dalembert.diagnostics.order import exact_acceleration
from dalembert.kernels import over_rows
from dalembert.methods import Method, Reference
from dalembert.model import (
    Mechanics,
    System,
    Trait,
    check_system,
    independent_rows,
    lower,
    nearest_velocity,
    onto_surface,
    orthonormal_frame,
)
from dalembert.numerics import Vector
from dalembert.simulation import Trajectory, simulate

SAFETY = 4.0
"""A defect counts as one if it exceeds its estimated error by this factor; the estimates are differences of sums with
K and K - 1 terms, and what is left out is a few times larger where the sums settle slowly."""
TELLING = 0.05
"""A structure is said to be kept only if the error bar is below this fraction of what the method changes in the field:
otherwise the field is not known well enough to say so."""
ROUNDING = 1e-9
"""Defects below this fraction are rounding: a few units of rounding, divided by h and by differences of states."""


LEVELS = (1.0, 0.5, 0.25)
"""The parts of h for which everything is measured."""
AWAY = 10.0
"""How far random configurations are from the motion, at most, in steps."""


class Kept(enum.Enum):
    """What the modified field does to a structure of the exact motion."""

    KEPT = "kept"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    ABSENT = "not defined"

    def __str__(self) -> str:
        return self.value


class Finding(NamedTuple):
    """One structure, and what the modified field makes of it."""

    verdict: Kept
    defect: float
    """The largest defect among all states at step size h, relative to the terms that should cancel."""
    error: float
    """Its estimated error."""
    order: float
    """The power of h with which the defect falls; not a number unless it is broken."""
    words: str = ""
    """What there is to add."""
    fine: float = np.nan
    """The largest defect at h/4."""
    fine_error: float = np.nan
    """Its estimated error."""

    @property
    def number(self) -> str:
        """The defect with its power of h; at h/4, where the field is known best, if there is none."""
        if np.isfinite(self.order):
            return f"{self.defect:.1e}, falls as h^{self.order:.1f}"
        if np.isfinite(self.fine):
            return f"{self.fine:.0e} +- {self.fine_error:.0e} with h/4"
        return "" if np.isnan(self.defect) else f"{self.defect:.0e} +- {self.error:.0e}"

    def __str__(self) -> str:
        return f"{self.verdict!s:11} {self.number}{self.words and ': ' + self.words}".rstrip()


@dataclass(frozen=True)
class BackwardError:
    """Which structures of the exact motion the modified field of a method keeps. Print it, or look at its fields."""

    system: str
    method: str
    h: float
    states: int
    distance: Finding
    """The difference of the modified field from the exact one; its order is the order of the method."""
    structures: dict[str, Finding]
    """What the modified field makes of each structure, by name."""
    growth: Growth | None = None
    """The modified driver's period and the predicted drift rates; None if there is no periodic driver."""
    form: Form | None = field(default=None, repr=False)
    """The quadratic form that the passenger keeps best; None if there is no passenger."""

    @property
    def broken(self) -> list[str]:
        """The names of the structures that the modified field does not have."""
        return [name for name, x in self.structures.items() if x.verdict is Kept.BROKEN]

    @property
    def kept(self) -> list[str]:
        """The names of the structures that it has, to the accuracy with which it is known."""
        return [name for name, x in self.structures.items() if x.verdict is Kept.KEPT]

    def rows(self) -> list[tuple[str, str]]:
        """The rows of the table: the name of each structure, and the finding in words."""
        rows = [("distance from the exact field", self.distance.number)]
        rows += [(name, str(x)) for name, x in self.structures.items()]
        if self.growth is not None:
            g = self.growth
            rates = ", ".join(f"{x:+.2e}" for x in g.exponents)
            rows.append(("period of the modified driver", f"{g.period:.10g}"))
            rows.append(("predicted drift rates", f"{rates} +- {g.error:.0e} per unit of time"))
        return rows

    def __str__(self) -> str:
        head = (
            f"the modified field of {self.method} on {self.system}, h = {self.h:g}, at {self.states} states"
        )
        return "\n".join([head, *(f"  {name:36} {value}" for name, value in self.rows())])

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain numbers, texts, lists and dictionaries, ready for JSON."""

        def plain(x: float) -> float | None:
            return float(x) if np.isfinite(x) else None

        def said(x: Finding) -> dict[str, Any]:
            numbers = {
                name: plain(getattr(x, name)) for name in ("defect", "error", "order", "fine", "fine_error")
            }
            return {"verdict": str(x.verdict), **numbers, "words": x.words}

        made = {
            "system": self.system,
            "method": self.method,
            "h": self.h,
            "states": self.states,
            "distance": said(self.distance),
            "structures": {name: said(x) for name, x in self.structures.items()},
        }
        if self.growth is not None:
            g = self.growth
            made["period"] = g.period
            made["predicted_drift_rates"] = g.exponents.tolist()
            made["predicted_drift_rates_error"] = g.error
        return made


def backward_error(
    system: System,
    method: Method,
    q0: Vector | None = None,
    v0: Vector | None = None,
    *,
    start: str | None = None,
    h: float | None = None,
    states: int = 32,
    integrals: Mapping[str, Callable] | None = None,
) -> BackwardError:
    """Measures which structures of the exact motion the modified field of a method keeps, and predicts drift rates.

    The modified field is that of `modified_field`. It is evaluated at `states` states: half of them lie on the exact
    motion from the start (q0, v0), or from the system's own start named `start`; the others are reached from there
    with random velocities in D, so that nothing counts as kept because the motion happens to be symmetric. Each defect
    is compared with its estimated error, and is measured with h, h/2 and h/4, which gives its order in h. `integrals`
    are functions of (q, v) that the exact motion conserves, in addition to those that the system names.
    """
    check_system(system)
    if (q0 is None) != (v0 is None):
        raise ValueError("give both q0 and v0, or neither to take the system's own start")
    if q0 is None or v0 is None:
        q0, v0 = system.start(start)
    if not isinstance(states, int | np.integer) or isinstance(states, bool) or states < 4:
        raise ValueError(f"states must be a whole number of at least 4, got {states!r}")
    m = lower(system)
    for trait, words in (
        (Trait.TIMED, "depends on time"),
        (Trait.EXTRA_VELOCITIES, "has more velocities than coordinates"),
    ):
        if trait in m.traits:
            raise ValueError(
                f"backward_error measures autonomous systems in their own coordinates, but {m.label} {words}; "
                "modified_field(system, method, h) gives the field itself"
            )
    chosen = independent_rows(system, q0)
    first = modified_field(chosen, method, h)
    # One step, so that a refusal or a start off the constraint is reported before anything is measured.
    simulate(system, method, q0, v0, h=float(first.h), steps=1, throw=False)
    fields = [eqx.tree_at(lambda f: f.h, first, part * first.h) for part in LEVELS]
    q0, v0 = np.asarray(q0, float), np.asarray(v0, float)
    exact = simulate(chosen, Reference(), q0, v0, h=4 * float(first.h), steps=100, throw=False)
    q, v = _where_known(fields, *_states(chosen, first, exact, states))
    pairs = [_measured(f, chosen, q, v, dict(integrals or {})) for f in fields]
    apart = [distance(f, q, v, f.rows(q, v)) for f in fields]
    changed = [float(np.max(x.defect)) for x in apart]
    far = _finding(apart, changed)
    most = far.order + 3 if np.isfinite(far.order) else np.inf
    found = {name: _finding([each[name] for each in pairs], changed, most) for name in pairs[0]}
    growth = form = None
    coupled = _coupled(chosen, q0)
    # With steps that one energy for both parts determines, neither part moves by itself.
    if coupled is not None and not method.variable_step:
        more, form = _coupled_findings(coupled, fields, exact, states, changed, most)
        found |= more
        if all(found[x].verdict is not Kept.BROKEN for x in ("driver undisturbed", "passenger linear")):
            try:
                growth = predicted_growth(coupled, fields[0], q0, v0)
            except ValueError:
                growth = None  # the driver is not periodic, so there are no rates per period
        if growth is not None:
            found["driver's modified energy"] = _closure(growth)
    return BackwardError(
        system=system.label,
        method=method.cli_name,
        h=float(fields[0].h),
        states=len(q),
        distance=far,
        structures=found,
        growth=growth,
        form=form,
    )


def _states(system: System, f: ModifiedField, sol: Trajectory, count: int) -> tuple[np.ndarray, np.ndarray]:
    """States on the exact motion, and configurations that random velocities lead to from there, with them."""
    m = f.mechanics
    fine = np.all(np.isfinite(sol.q), axis=1) & np.all(np.isfinite(sol.v), axis=1)
    draw = np.random.default_rng(11)
    pick = draw.choice(np.nonzero(fine)[0], size=(count + 1) // 2)
    pick[0] = 0
    q, v = np.asarray(sol.q)[pick], np.asarray(sol.v)[pick]
    wrapped = [i for i, name in enumerate(system.coordinates) if name in system.angles]
    q[:, wrapped] = (q[:, wrapped] + np.pi) % (2 * np.pi) - np.pi
    frame = over_rows(orthonormal_frame)(m, q)
    speed = np.sqrt(np.mean(over_rows(_speed_squared)(m, q, v)))
    w = draw.normal(size=frame.shape[::2]) / np.sqrt(frame.shape[2])
    random = speed * np.einsum("kij,kj->ki", frame, w)
    away = draw.uniform(-AWAY, AWAY, size=(len(q), 1)) * float(f.h) * random
    there, random = over_rows(_moved)(m, q, away, random)
    return np.concatenate([q, there])[:count], np.concatenate([v, random])[:count]


def _moved(m: Mechanics, q: Array, away: Array, v: Array) -> tuple[Array, Array]:
    """The configuration that is this far away, and the allowed velocity that is nearest to v there."""
    there = onto_surface(m, m.space.displaced(q, away))
    return there, nearest_velocity(m, there, v)


def _where_known(fields: list[ModifiedField], q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states at which all fields are known; near the others, steps fail."""
    fine = np.all(
        [np.all(np.isfinite(np.concatenate(f.rows(q, v)[:2], axis=1)), axis=1) for f in fields], axis=0
    )
    if np.sum(fine) < 4:
        f = fields[0]
        raise ValueError(
            f"the modified field of {f.method.cli_name} on {f.mechanics.label} is known at {np.sum(fine)} of {len(q)} "
            f"states, because its steps of h = {float(f.h):g} fail near the others; take a smaller h"
        )
    return q[fine], v[fine]


def _speed_squared(m: Mechanics, q: Array, v: Array) -> Array:
    return jnp.sum(v * (m.metric(q) @ v))


def _measured(
    f: ModifiedField, system: System, q: np.ndarray, v: np.ndarray, integrals: dict[str, Callable]
) -> dict[str, Measure | None]:
    """The measure of each structure; None where the exact motion does not have it."""
    m, value = f.mechanics, f.rows(q, v)
    found: dict[str, Measure | None] = {}
    if m.constrained:
        found["tangent to D"] = tangency(f, q, v, value)
    if m.conservative:
        found["energy"] = energy_rate(f, q, v, value)
    for name, function in {**horizontal_momenta(system), **system.integrals(), **integrals}.items():
        found[name] = integral_rate(f, function, q, v, value)
    if Trait.AFFINE not in m.traits and Trait.NONLINEAR not in m.traits:
        back = over_rows(exact_acceleration)(m, q, v) - over_rows(exact_acceleration)(m, q, -v)
        size = np.max(np.abs(over_rows(exact_acceleration)(m, q, v)))
        reverses = np.max(np.abs(back)) <= 1e-9 * size  # friction does not reverse
        found["reversible"] = reversal(f, q, v, value) if reverses else None
    if Trait.NONLINEAR not in m.traits and not f.method.variable_step:
        both = divergence(f, q, v)
        exact = both.exact
        volume = f.stride == 2 or bool(np.all(exact.defect <= SAFETY * exact.error + ROUNDING))
        found["volume in phase space"] = both.modified if volume else None
    return found


def _finding(levels: Sequence[Measure | None], changed: Sequence[float], most: float = np.inf) -> Finding:
    """The verdict from the measures with h, h/2 and h/4, and what the method changes in the field with each.

    Short steps decide, because there the field is known best, and give the order. What falls faster than with the
    power `most` is no defect but what the field itself is not known to.
    """
    given = [x for x in levels if x is not None]
    if len(given) < len(levels):
        return Finding(Kept.ABSENT, np.nan, np.nan, np.nan, "the exact motion does not have it")
    broken, telling = [], []
    for x, far in zip(given, changed, strict=True):
        excess = np.nan_to_num(x.defect - SAFETY * x.error, nan=np.inf)
        broken.append(bool(np.any(excess > ROUNDING)))
        telling.append(float(np.max(x.error)) < max(TELLING * far, ROUNDING))
    verdict, order = Kept.UNDECIDED, np.nan
    sizes = [float(np.sqrt(np.mean(x.defect**2))) for x in given]
    if broken[-1]:
        verdict = Kept.BROKEN
        if broken[-2]:
            order = float(np.log2(sizes[-2] / sizes[-1]))
        if order > most:
            verdict, order = Kept.UNDECIDED, np.nan
    elif telling[-1]:
        verdict = Kept.KEPT
    numbers = [float(np.max(x)) for x in (*given[0], *given[-1])]
    return Finding(verdict, numbers[0], numbers[1], order, "", numbers[2], numbers[3])


def _coupled(system: System, q0: Any) -> CoupledSystem | None:
    try:
        coupled = CoupledSystem.of(system, q0)
        coupled.linear()
    except ValueError:
        return None  # not coupled, or without a linear passenger
    return coupled


def _coupled_findings(
    coupled: CoupledSystem,
    fields: list[ModifiedField],
    sol: Trajectory,
    count: int,
    changed: list[float],
    most: float,
) -> tuple[dict[str, Finding], Form]:
    """What the modified field makes of the driver and the passenger, at random states of both."""
    draw = np.random.default_rng(12)
    i = coupled.index
    xi = np.asarray(sol.q)[draw.integers(0, len(sol.t), size=count), i] + 0.1 * draw.normal(size=count)
    if coupled.is_angle:
        xi = (xi + np.pi) % (2 * np.pi) - np.pi
    fastest = max(float(np.max(np.abs(np.asarray(sol.v)[:, i]))), 1e-3)
    eta = fastest * draw.uniform(-1, 1, size=count)
    radius = passenger_size(coupled, sol.q[0], sol.v[0])
    kappa = np.asarray(coupled.linear()[0])
    rate = _rate_of(coupled, xi, eta)
    measures: list[dict[str, Measure | None]] = []
    forms = []
    for f in fields:
        split = CoupledField(coupled, f)
        size = split.reduction.size
        z = draw.normal(size=(count, size))
        z *= radius / np.linalg.norm(z, axis=1, keepdims=True)
        x, w = z[:, : len(kappa)] @ np.linalg.pinv(kappa).T, z[:, len(kappa) :]
        matrices = split.linear(xi, eta, radius)
        measures.append(
            {
                "driver undisturbed": driver_alone(split, x, w, xi, eta, rate),
                "descends to the reduced system": descends(split, x, w, xi, eta, rate),
                "passenger linear": linear_passenger(split, x, w, xi, eta, matrices, rate),
            }
        )
        if split.on_constraint:
            measures[-1]["passenger in so(m+1)"] = in_algebra(matrices, rate)
        forms.append(quadratic_form(matrices, rate))
        measures[-1]["passenger keeps a quadratic form"] = forms[-1].measure
    found = {
        name: _finding([each[name] for each in measures], changed, most)
        for name, x in measures[0].items()
        if x is not None
    }
    form = forms[-1]  # of the shortest steps, where it is known best
    name = "passenger keeps a quadratic form"
    if found[name].verdict is Kept.KEPT:
        words = "definite, so passengers stay bounded" if form.definite else "not definite"
        found[name] = found[name]._replace(words=words)
    return found, form


def _rate_of(coupled: CoupledSystem, xi: np.ndarray, eta: np.ndarray) -> float:
    """The largest rate at which the driver and the springs turn the passenger's velocity."""
    matrices = over_rows(CoupledSystem.matrix)(coupled, xi)[:, :-1, :-1]
    turning = over_rows(_turning)(coupled, xi)
    return float(max(np.max(np.linalg.norm(matrices, axis=(1, 2))), np.max(turning * np.abs(eta)), 1e-300))


def _turning(coupled: CoupledSystem, xi: Array) -> Array:
    k = jax.jacfwd(coupled.k)(xi)
    return jnp.sqrt(jnp.abs(k @ coupled.mass @ k))


def _closure(growth: Growth) -> Finding:
    """Whether the orbit of the modified driver closes."""
    bound = SAFETY * growth.closure_error
    if growth.closure <= bound + ROUNDING:
        verdict = Kept.KEPT if growth.closure_error < 1e-3 else Kept.UNDECIDED
        return Finding(verdict, growth.closure, growth.closure_error, np.nan, "the orbit closes")
    return Finding(Kept.BROKEN, growth.closure, growth.closure_error, np.nan, "the orbit does not close")
