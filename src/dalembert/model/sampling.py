"""Sample the values of a system's functions at the start and around it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model.systems import FUNCTIONS, Mechanics
from dalembert.model.traits import Trait
from dalembert.numerics import diagonal, is_syntactically_constant, jit_fast_compile, tracing_once

# Relative rounding error allowed in identities that should hold exactly (A B = 0, A v = 0, symmetry).
# User formulas lose a few digits, and states typed with ten digits should pass; real mistakes are far larger.
TOLERANCE = 1e-9 if jax.config.jax_enable_x64 else 1e-4  # pyright: ignore[reportAttributeAccessIssue]

# Numbers that should be zero, such as components of a projected velocity, carry the rounding errors of the others.
ROUNDING = 1e-13 if jax.config.jax_enable_x64 else 1e-5  # pyright: ignore[reportAttributeAccessIssue]


# Relative rounding error that a number may collect from others of its size: some dozens of operations.
NOISE = 1e3 * float(np.finfo(float if jax.config.jax_enable_x64 else np.float32).eps)  # pyright: ignore[reportAttributeAccessIssue]


class Sample(NamedTuple):
    """The values of a system's functions at the start and around it, evaluated in one call.

    Every array of `here`, `turned` and `around` has one row per sample; the first is the start.
    """

    mass: Any
    measure: Any
    """The definite matrix that measures velocities: the mass matrix, unless that is declared indefinite."""
    potential: Any
    forces: Any
    annihilator: Any
    offsets: Any
    """b of affine constraints A v = b; zero if the constraints are linear. See `levels` for nonlinear ones."""
    slope: Any
    """grad V at the start."""
    here: dict[str, Any]
    """What the given functions return at the samples."""
    turned: dict[str, Any]
    """The same after some full turns of the angles; empty if the system has no angles."""
    turns: Any
    """How many turns each coordinate has made in `turned`."""
    around: dict[str, Any]
    """Values at the samples: "mass"; "measure"; "velocity"; "momentum", dL/dv, if a
    Lagrangian is given; and "products", the largest entries of A B and of A Z - b relative to the terms that should
    cancel in them."""
    defect: Any
    """On a group, how far q is from being an element."""
    sections: dict[str, Any]
    """How far the generators of the sections are from D at the start, as a relative distance."""

    @property
    def given(self) -> dict[str, Any]:
        """What the given functions return at the start."""
        return {name: x[0] for name, x in self.here.items()}


SAMPLES = 13
"""The start and twelve configurations around it. Some lie within one unit of length, some within ten, and some within
the distance that the start velocity covers in a unit of time."""


def samples(m: Mechanics, number: int = SAMPLES) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shifts and velocities, in units that the sample chooses, and numbers of turns; the same on every call."""
    random = np.random.default_rng(20)
    shifts, velocities = random.uniform(-1, 1, (2, SAMPLES, m.velocity_dimension))
    angles = np.array([name in m.angles for name in m.coordinates])
    turns = random.choice([-3.0, -2.0, -1.0, 1.0, 2.0], (SAMPLES, m.dimension)) * angles
    return shifts[:number], velocities[:number], turns[:number]


def _given_twice(m: Mechanics) -> tuple[bool, bool]:
    """Whether the linear part of the constraints, and the affine part, are described in two ways that must agree."""
    return {"constraints", "frame"} <= m.given, {"offsets", "drift"} <= m.given


def _ratio(x: Array, bound: Array) -> Array:
    return jnp.max(jnp.abs(x) / jnp.maximum(bound, np.finfo(float).tiny), initial=0.0)


def _sizes(forms: Array, vectors: Array, measure: Array) -> Array:
    """The size of products of one-forms and vectors (columns), with lengths measured by this matrix."""
    unit = jnp.sqrt(jnp.abs(diagonal(measure)) + np.finfo(float).tiny)
    return jnp.sum(jnp.abs(forms) / unit, axis=1)[:, None] * jnp.max(jnp.abs(vectors) * unit[:, None], axis=0)


def _products(m: Mechanics, q: Array, measure: Array) -> Array:
    """How far A B and A Z - b are from zero, relative to their size; zero for what is not given twice."""
    found, both = jnp.zeros(2), _given_twice(m)
    if both[0]:
        a, b = m.own("constraints", q), m.own("frame", q)
        found = found.at[0].set(_ratio(a @ b, _sizes(a, b, measure)))
    if both[1]:
        a, z, b = m.own("constraints", q), m.own("drift", q), m.own("offsets", q)
        bound = _sizes(a, z[:, None], measure)[:, 0] + jnp.abs(b)
        found = found.at[1].set(_ratio(a @ z - b, bound))
    return found


def contradicts_at(m: Mechanics, q: Array, measure: Array) -> Array:
    """Whether the functions contradict each other at this configuration."""
    return (_products(m, q, measure) > TOLERANCE).any() if any(_given_twice(m)) else jnp.asarray(False)


def places_around(m: Mechanics, q: Array, v: Array, start: Array, shifts: Array) -> tuple[Array, Array]:
    """The configurations around q that these shifts stand for, and the natural size of each velocity; `start` is the
    mass matrix at q."""
    # The metric sets the unit of velocity and of length, so that the coordinates' units do not matter.
    natural = jnp.sqrt(jnp.maximum(jnp.sum(v * (start @ v)), 0.0) / jnp.abs(diagonal(start)))
    natural = jnp.where(jnp.isfinite(natural) & (natural > 0), natural, 1.0)
    place = jnp.zeros(0) if Trait.GROUP in m.traits else jnp.abs(q)
    size = jnp.zeros_like(natural).at[: len(place)].set(place) + natural
    number = jnp.arange(len(shifts))
    reach = jnp.stack([size, 1 + size, 10 * (1 + size)])[number % 3] * (number > 0)[:, None]
    return jax.vmap(lambda x: m.space.displaced(q, x))(shifts * reach), natural


@jit_fast_compile
@tracing_once()
def sample(m: Mechanics, q: Array, v: Array, shifts: Array, velocities: Array, turns: Array) -> Sample:
    """The values at (q, v), at configurations around q with other velocities, and after full turns of angles.

    If the system depends on time, the samples around the start are at other times too.
    """
    mass = m.metric(q)
    start = m.measure(mass)
    around, natural = places_around(m, q, v, start, shifts)
    number = jnp.arange(len(shifts))
    fast = jnp.stack([natural, jnp.full_like(natural, 1 + jnp.max(jnp.abs(v)))])[number % 2]
    velocities = (velocities * fast).at[0].set(v)
    ticks = 0.31 * number

    def given(tick, q, v):
        there = m.later(tick)
        arguments = {"lagrangian": (q, v), "forces": (q, v), "nonlinear": (q, v)}
        found = {f: there.own(f, *arguments.get(f, (q,))) for f in FUNCTIONS if f in m.given}
        if "lagrangian" in m.given:
            found["potential"] = there.potential(q)
        return found

    def measured(tick, q, v):
        there = m.later(tick)
        mass = there.metric(q)
        measure = there.measure(mass)
        found = {"mass": mass, "measure": measure, "velocity": v}
        found["products"] = _products(there, q, measure)
        if "lagrangian" in m.given:
            found["momentum"] = jax.grad(there.lagrangian, argnums=1)(q, v)
        return found

    def off(section):
        along = m.generators(q) @ section(q)
        forms = m.rows(q)
        measure = start
        if len(along) > forms.shape[1]:  # symmetries that change the time
            forms = jnp.concatenate([-m.offsets(q)[:, None], forms], axis=1)
            measure = jnp.eye(len(along)).at[1:, 1:].set(start)
        return _ratio(forms @ along, _sizes(forms, along[:, None], measure)[:, 0])

    # One call for all places, so that the functions are traced and compiled once.
    places = jnp.stack([around, around + 2 * np.pi * turns] if m.angles else [around])
    found = jax.vmap(jax.vmap(given), (None, 0, None))(ticks, places, velocities)
    here, *turned = (jax.tree.map(lambda x, k=k: x[k], found) for k in range(len(places)))
    return Sample(
        mass,
        start,
        m.potential(q),
        m.forces(q, v),
        m.forms(q, v),
        m.levels(q, v),
        m.potential_gradient(q),
        here,
        turned[0] if turned else {},
        turns,
        jax.vmap(measured)(ticks, around, velocities),
        m.space.defect(q),
        {name: off(section) for name, section in m.sections().items()},
    )


def units(measure: Any) -> Any:
    """sqrt(M_ii), the weight of each component of the velocity, for the matrix that measures velocities; one row per
    matrix if it is a stack of matrices."""
    return (abs(measure.diagonal(0, -2, -1)) + np.finfo(float).tiny) ** 0.5


# The following functions of a sample take arrays of NumPy, and those of JAX inside code that is being traced.


def is_constant_metric(found: Sample) -> Any:
    """Whether the mass matrix is the same at the start and around it."""
    return same_mass(found.around["mass"], found.mass, found.measure).all()


def same_mass(some: Any, mass: Any, measure: Any) -> Any:
    """Whether mass matrices equal another one, with each entry in units of `measure`; one answer per matrix."""
    unit = units(measure)
    off = abs(some - mass) > TOLERANCE * unit[:, None] * unit
    return ~(off & _finite(some, 2)).any((-2, -1))


def is_mechanical(found: Sample) -> Any:
    """Whether the Lagrangian is kinetic energy, quadratic in v, minus a potential, that is, whether dL/dv = M v."""
    if "momentum" not in found.around:
        return np.True_
    return is_linear_momentum(*(found.around[name] for name in ("mass", "velocity", "momentum"))).all()


def is_linear_momentum(mass: Any, velocity: Any, momentum: Any) -> Any:
    """Whether momenta are M v; one answer per momentum.

    The test compares momenta, because a large potential would drown the difference between energies.
    """
    expected = (mass @ velocity[..., None])[..., 0]
    unit = units(mass)
    bound = TOLERANCE * (unit * abs(velocity) + abs(expected) / unit).max(-1, keepdims=True) * unit
    off = abs(momentum - expected) > bound
    return ~(off & _finite(momentum, 1) & _finite(expected, 1)).any(-1)


def is_symmetric(mass: Any, measure: Any) -> Any:
    """Whether matrices are symmetric, one answer per matrix; entries are judged in units of `measure`."""
    unit = units(measure)
    off = abs(mass - mass.swapaxes(-1, -2)) > TOLERANCE * unit[..., :, None] * unit[..., None, :]
    return ~off.any((-2, -1))


def contradicts(found: Sample) -> Any:
    """Whether A B or A Z - b fails to vanish: one row per sample, one column for each of the two products."""
    products = found.around["products"]
    return (products > TOLERANCE) & (abs(products) < np.inf)


def changes_by_turns(found: Sample) -> dict[str, Any]:
    """For each function, whether full turns of the angles change its value, at each sample."""
    result = {}
    for function, after in found.turned.items():
        before = found.here[function]
        off = (abs(after - before) > _allowance(function, before, found)) & (abs(after - before) < np.inf)
        result[function] = off.any(tuple(range(1, off.ndim)))
    return result


def _finite(x: Any, axes: int) -> Any:
    """Which samples are finite; each has so many axes, which stay."""
    return (abs(x) < np.inf).all(tuple(range(-axes, 0)), keepdims=True)


def _allowance(function: str, values: Any, sample: Sample) -> Any:
    """How much a function's values at the samples may change by rounding, and by angles typed with ten digits."""
    finite = (jnp if isinstance(values, Array) else np).nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    size, velocity = abs(finite), abs(sample.around["velocity"])
    unit = units(sample.around["measure"])
    # Values that vanish up to rounding are compared with the values of the same kind that the motion itself produces.
    speed = (unit * velocity).max(1, keepdims=True)
    if function in ("lagrangian", "potential"):  # an additive constant must not hide a change
        return TOLERANCE * (finite.max() - finite.min()) + NOISE * (size + speed[:, 0] ** 2)
    if function == "metric":
        return TOLERANCE * unit[:, :, None] * unit[:, None, :]
    if function == "constraints":
        return TOLERANCE * (size / unit[:, None, :]).max(2, keepdims=True) * unit[:, None, :]
    if function == "frame":
        return TOLERANCE * (size * unit[:, :, None]).max(1, keepdims=True) / unit[:, :, None]
    if function == "forces":
        made = speed * velocity.max(1, keepdims=True)
        return (TOLERANCE * (size / unit).max(1, keepdims=True) + NOISE * made) * unit
    if function in ("holonomic", "nonlinear"):  # at the start they vanish; the other samples show their size
        return TOLERANCE * (finite.max(0) - finite.min(0)) + NOISE * size
    if function == "drift":
        return (TOLERANCE * (size * unit).max(1, keepdims=True) + NOISE * speed) / unit
    terms = (abs(sample.here["constraints"]) @ velocity[..., None])[..., 0]
    return TOLERANCE * size + NOISE * (terms + size.max(initial=0.0))


def observed(m: Mechanics, found: Sample) -> Mechanics:
    """The same system with the traits that show only in the values around a start."""
    has = {
        Trait.VARYING_MASS: not is_constant_metric(found),
        Trait.GENERAL_LAGRANGIAN: not is_mechanical(found),
    }
    return m.with_traits({trait for trait, found in has.items() if found})


_FEW = 4
"""The start, and one configuration at each of the three distances that a sample looks at. Runs inside other JAX code
evaluate these every time, whereas runs on plain numbers evaluate all samples once."""


def faults_around(m: Mechanics, q: Array, v: Array, supports: frozenset[Trait]) -> tuple[Array, Array]:
    """Whether a method with these traits is not defined here, and whether the functions contradict each other.

    For code that is being traced. Nothing is evaluated if the formulas alone show that nothing can be wrong.
    """
    constant = Trait.VARYING_MASS in supports or is_syntactically_constant(m.metric, q)
    natural = Trait.GENERAL_LAGRANGIAN in supports or "lagrangian" not in m.given
    if constant and natural and not any(_given_twice(m)) and not m.angles:
        return jnp.asarray(False), jnp.asarray(False)
    found = sample(m, q, v, *samples(m, _FEW))
    fits = jnp.asarray(constant) | is_constant_metric(found), jnp.asarray(natural) | is_mechanical(found)
    changed = [contradicts(found).any(), *(x.any() for x in changes_by_turns(found).values())]
    return ~jnp.all(jnp.stack(fits)), jnp.any(jnp.stack(changed))
