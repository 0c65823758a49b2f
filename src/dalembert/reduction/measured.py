"""Whether a group is a symmetry of a system and of its discretisation: measured, with the place where it fails."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import (
    TOLERANCE,
    Symmetry,
    System,
    annihilator,
    as_arrays,
    displaced,
    frame_at,
    offsets_at,
)
from dalembert.numerics import hurried, matmul, matvec, solve_spd
from dalembert.reduction.cases import Rule

NAMES = {
    "L": "the Lagrangian",
    "D": "the constraint distribution D",
    "L_d": "the discrete Lagrangian",
    "D_d": "the discrete constraint",
}
_SAMPLES = 24


class Sample(NamedTuple):
    """A state, a time, and an element of the group."""

    t: Any
    q: Any
    v: Any
    x: Any
    """In the algebra: the element is exp(x)."""


class Invariance(NamedTuple):
    """How much a quantity changes under the group, relative to its size, and where most."""

    change: float
    q: np.ndarray
    g: np.ndarray

    @property
    def holds(self) -> bool:
        """Whether it is rounding."""
        return self.change <= TOLERANCE


def samples(system: System, symmetry: Symmetry, at: Any = None) -> Sample:
    """Fixed samples around the start states of a system, or around the configurations given."""
    starts = [np.asarray(q, float) for q, _ in system.starts().values()]
    places = starts if at is None else list(np.atleast_2d(np.asarray(at, float)))
    if any(x.shape != (system.dimension,) for x in places):
        raise ValueError(
            f"at must be configurations of {system.dimension} numbers each; got shape {np.shape(places)}"
        )
    if not places:
        zero = np.zeros(system.dimension) if system.group is None else np.asarray(system.group.identity())
        places = [zero]
    random = np.random.default_rng(7)
    n = system.velocity_dimension
    bases = np.stack([places[i % len(places)] for i in range(_SAMPLES)])
    shifts = random.uniform(-1, 1, (_SAMPLES, n)) * np.where(np.arange(_SAMPLES) % 2, 3.0, 1.0)[:, None]
    q = bases + shifts if system.group is None else np.array(_displaced(system, bases, shifts))
    q[: len(places)] = np.stack(places)[:_SAMPLES]
    v = random.uniform(-1, 1, (_SAMPLES, n))
    return Sample(
        random.uniform(0, 3, _SAMPLES), q, v, random.uniform(-1, 1, (_SAMPLES, symmetry.group.dimension))
    )


@hurried
def _displaced(system: System, q: Array, x: Array) -> Array:
    return jax.vmap(lambda q, x: displaced(system, q, x))(q, x)


def _relative(change: Array, size: Array) -> Array:
    return jnp.max(jnp.abs(change), initial=0.0) / (
        jnp.max(jnp.abs(size), initial=0.0) + jnp.finfo(float).tiny
    )


def _measured(system: System, symmetry: Symmetry, s: Sample) -> dict[str, Array]:
    here = system.at(s.t)
    g = symmetry.group.exp(s.x)
    q1, v1 = symmetry.act(here, g, s.q), symmetry.push(here, g, s.q, s.v)
    first, second = here.lagrangian(s.q, s.v), here.lagrangian(q1, v1)
    kinetic = jnp.sum(jnp.abs(s.v * matvec(here.metric(s.q), s.v)))
    found = {"L": _relative(second - first, jnp.abs(first) + kinetic)}
    if here.constrained:
        frame = frame_at(here, s.q)
        moved = jax.vmap(lambda x: symmetry.push(here, g, s.q, x), 1, 1)(frame)
        forms = annihilator(here, q1)
        found["D"] = _relative(matmul(forms, moved), matmul(jnp.abs(forms), jnp.abs(moved)))
        if here.affine:  # an allowed velocity stays one
            a, b = annihilator(here, s.q), offsets_at(here, s.q)
            drift = matvec(a.T, solve_spd(matmul(a, a.T), b))
            left = matvec(forms, symmetry.push(here, g, s.q, drift)) - offsets_at(here, q1)
            found["D"] = jnp.maximum(found["D"], _relative(left, jnp.abs(b) + 1e-3))
    return found


@hurried
def _continuous(system: System, symmetry: Symmetry, s: Sample) -> Any:
    return jax.vmap(lambda s: _measured(system, symmetry, s))(s)


@hurried
def _discrete(system: System, symmetry: Symmetry, rule: Rule, s: Sample, h: Array) -> Any:
    def one(s):
        here = system.at(s.t)
        ld, constraint = rule.lagrangian, rule.constraint
        g = symmetry.group.exp(s.x)

        def over(q, u):
            return constraint.over_step(here, q, ld.moved(here, q, u, h), u, h)

        u = s.v
        if here.constrained:

            def nearer(_, u):
                slope = jax.jacfwd(lambda u: over(s.q, u))(u)
                return u - matvec(slope.T, solve_spd(matmul(slope, slope.T), over(s.q, u)))

            u = lax.fori_loop(0, 6, nearer, u)  # onto the discrete constraint
        q1 = ld.moved(here, s.q, u, h)
        there = symmetry.act(here, g, s.q), symmetry.act(here, g, q1)
        w = ld.velocity(here, *there, h)
        first, second = ld.over_step(here, s.q, q1, u, h), ld.over_step(here, *there, w, h)
        size = jnp.abs(first) + jnp.abs(h) * jnp.sum(jnp.abs(u * matvec(here.metric(s.q), u)))
        found = {"L_d": _relative(second - first, size)}
        if here.constrained:
            forms = jnp.abs(annihilator(here, there[0]))
            found["D_d"] = _relative(
                constraint.over_step(here, *there, w, h), matvec(forms, jnp.abs(w)) + 1e-3
            )
        return found

    return jax.vmap(one)(s)


def invariance(
    system: System,
    symmetry: Symmetry,
    method: VariationalDLA | EDLA | None = None,
    *,
    h: float | None = None,
    at: Any = None,
) -> dict[str, Invariance]:
    """How much L and D change under the group, and with a method its L_d and D_d, measured at fixed samples.

    `at` gives configurations to sample around, in place of the start states; h is the step of the discrete ones.
    """
    if not isinstance(system, System):
        raise ValueError(f"expected a System, got {system!r}")
    if not isinstance(symmetry, Symmetry):
        raise ValueError(f"expected a Symmetry, such as Symmetry(Rn(2), on=('x', 'y')); got {symmetry!r}")
    if method is not None and not isinstance(method, VariationalDLA | EDLA):
        raise ValueError(
            "symmetries are measured of methods of a discrete Lagrangian and a discrete constraint, VariationalDLA() "
            f"and EDLA(); got {getattr(method, 'spelling', method)!r}"
        )
    if h is not None and not (isinstance(h, int | float) and h > 0):
        raise ValueError(f"h must be a positive number, got {h!r}")
    symmetry.split(system)
    given = samples(system, symmetry, at)
    found = dict(_continuous(as_arrays(system), symmetry, given))
    if method is not None:
        rule = Rule(method.discrete_lagrangian, method.discrete_constraint)
        size = jnp.asarray(h or system.step or 0.1, float)
        found.update(_discrete(as_arrays(system), symmetry, rule, given, size))
    made = {}
    for name in [x for x in NAMES if x in found]:
        change = np.asarray(found[name], float)
        if not np.any(np.isfinite(change)):
            raise ValueError(
                f"{system.label}: {NAMES[name]} is NaN or infinite at every configuration sampled; give some where "
                "it is defined as at="
            )
        change = np.where(np.isfinite(change), change, -1.0)  # outside of where the system is defined
        worst = int(np.argmax(change))
        made[name] = Invariance(
            max(float(change[worst]), 0.0),
            given.q[worst],
            np.asarray(symmetry.group.exp(jnp.asarray(given.x[worst]))),
        )
    return made


def complaint(system: System, symmetry: Symmetry, found: dict[str, Invariance]) -> str | None:
    """What is not invariant, and where; None where everything is."""
    broken = [name for name, x in found.items() if not x.holds]
    if not broken:
        return None
    said = []
    for name in broken:
        x = found[name]
        where = ", ".join(f"{c}={value:.4g}" for c, value in zip(system.coordinates, x.q, strict=True))
        moved = ", ".join(f"{value:.4g}" for value in x.g)
        said.append(
            f"{NAMES[name]} is not invariant: it changes by {x.change:.2g} (relative) at ({where}) under the element "
            f"({moved})"
        )
    return "; ".join(said)
