"""What a system's functions return at the start and around it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model.systems import FUNCTIONS, Mechanics
from dalembert.model.traits import Trait
from dalembert.numerics import jit_fast_compile

# Relative size of rounding allowed in identities that should hold exactly (A B = 0, A v = 0, symmetry):
# user formulas lose a few digits, states typed with ten digits should pass, real mistakes are far above.
TOLERANCE = 1e-9 if jax.config.jax_enable_x64 else 1e-4  # pyright: ignore[reportAttributeAccessIssue]

# Numbers that should be zero, such as a projected velocity, carry rounding of the others.
ROUNDING = 1e-13 if jax.config.jax_enable_x64 else 1e-5  # pyright: ignore[reportAttributeAccessIssue]


# What rounding may do to a number beside others of its size: some dozens of operations.
NOISE = 1e3 * float(np.finfo(float if jax.config.jax_enable_x64 else np.float32).eps)  # pyright: ignore[reportAttributeAccessIssue]


class Survey(NamedTuple):
    """The values of a system's functions at the start and around it, evaluated in one call.

    Every array of `here`, `turned` and `around` has one row per sample; the first is the start.
    """

    mass: Any
    potential: Any
    forces: Any
    annihilator: Any
    offsets: Any
    """b of affine constraints A v = b; zero where they are linear."""
    slope: Any
    """grad V at the start."""
    here: dict[str, Any]
    """What the given functions return at the samples."""
    turned: dict[str, Any]
    """The same after some full turns of the angles; empty where there are none."""
    turns: Any
    """How many turns each coordinate has made in `turned`."""
    around: dict[str, Any]
    """At the samples: "mass", "velocity"; "momentum", dL/dv, where a Lagrangian is given; "products", the largest
    entries of A B and of A Z - b relative to the terms that should cancel in them."""
    defect: Any
    """How far q is from an element, on a group."""
    sections: dict[str, Any]
    """How far the generators of the sections are from D at the start, relative."""

    @property
    def given(self) -> dict[str, Any]:
        """What the given functions return at the start."""
        return {name: x[0] for name, x in self.here.items()}


SAMPLES = 13
"""The start, and twelve configurations around it, some within a unit of length, some within ten, some within the way
that the start velocity leads in a unit of time."""


def samples(m: Mechanics) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shifts and velocities in units that the survey chooses, and numbers of turns; always the same."""
    random = np.random.default_rng(20)
    shifts, velocities = random.uniform(-1, 1, (2, SAMPLES, m.velocity_dimension))
    angles = np.array([name in m.angles for name in m.coordinates])
    turns = random.choice([-3.0, -2.0, -1.0, 1.0, 2.0], (SAMPLES, m.dimension)) * angles
    return shifts, velocities, turns


@jit_fast_compile
def survey(m: Mechanics, q: Array, v: Array, shifts: Array, velocities: Array, turns: Array) -> Survey:
    """The values at (q, v), at configurations around q, with other velocities, and after full turns of angles.

    Where the system depends on time, what is around is at other times too.
    """
    start = m.metric(q)
    # One unit of velocity, of length: as the metric measures, so that the coordinates' units do not matter.
    natural = jnp.sqrt(jnp.maximum(jnp.sum(v * (start @ v)), 0.0) / jnp.abs(jnp.diagonal(start)))
    natural = jnp.where(jnp.isfinite(natural) & (natural > 0), natural, 1.0)
    place = jnp.zeros(0) if Trait.GROUP in m.traits else jnp.abs(q)
    size = jnp.zeros_like(natural).at[: len(place)].set(place) + natural
    kind = jnp.arange(SAMPLES) % 3
    reach = jnp.stack([size, 1 + size, 10 * (1 + size)])[kind] * (jnp.arange(SAMPLES) > 0)[:, None]
    around = jax.vmap(lambda x: m.space.displaced(q, x))(shifts * reach)
    fast = jnp.stack([natural, jnp.full_like(natural, 1 + jnp.max(jnp.abs(v)))])[jnp.arange(SAMPLES) % 2]
    velocities = (velocities * fast).at[0].set(v)
    ticks = 0.31 * jnp.arange(SAMPLES)
    both = (
        {"constraints", "frame"} <= m.given,
        {"offsets", "drift"} <= m.given,
    )

    def given(tick, q, v):
        there = m.later(tick)
        arguments = {"lagrangian": (q, v), "forces": (q, v)}
        found = {f: there.own(f, *arguments.get(f, (q,))) for f in FUNCTIONS if f in m.given}
        if "lagrangian" in m.given:
            found["potential"] = there.potential(q)
        return found

    def ratio(x, bound):
        return jnp.max(jnp.abs(x) / jnp.maximum(bound, np.finfo(float).tiny), initial=0.0)

    def sizes(forms, vectors, mass):
        """The size of products of one-forms and vectors (columns), each as long as the metric says."""
        unit = jnp.sqrt(jnp.abs(jnp.diagonal(mass)) + np.finfo(float).tiny)
        return jnp.sum(jnp.abs(forms) / unit, axis=1)[:, None] * jnp.max(
            jnp.abs(vectors) * unit[:, None], axis=0
        )

    def measured(tick, q, v):
        there = m.later(tick)
        found = {"mass": there.metric(q), "velocity": v, "products": jnp.zeros(2)}
        if "lagrangian" in m.given:
            found["momentum"] = jax.grad(there.lagrangian, argnums=1)(q, v)
        if both[0]:
            a, b = there.rows(q), there.frame(q)
            found["products"] = found["products"].at[0].set(ratio(a @ b, sizes(a, b, found["mass"])))
        if both[1]:
            a, z, b = there.rows(q), there.drift(q), there.offsets(q)
            bound = sizes(a, z[:, None], found["mass"])[:, 0] + jnp.abs(b)
            found["products"] = found["products"].at[1].set(ratio(a @ z - b, bound))
        return found

    def off(section):
        along = m.generators(q) @ section(q)
        forms = m.rows(q)
        mass = start
        if len(along) > forms.shape[1]:  # symmetries that change the time
            forms = jnp.concatenate([-m.offsets(q)[:, None], forms], axis=1)
            mass = jnp.eye(len(along)).at[1:, 1:].set(start)
        return ratio(forms @ along, sizes(forms, along[:, None], mass)[:, 0])

    # All at once, which is traced and compiled once.
    places = jnp.stack([around, around + 2 * np.pi * turns] if m.angles else [around])
    found = jax.vmap(jax.vmap(given), (None, 0, None))(ticks, places, velocities)
    here, *turned = (jax.tree.map(lambda x, k=k: x[k], found) for k in range(len(places)))
    return Survey(
        start,
        m.potential(q),
        m.forces(q, v),
        m.rows(q),
        m.offsets(q),
        m.potential_gradient(q),
        here,
        turned[0] if turned else {},
        turns,
        jax.vmap(measured)(ticks, around, velocities),
        m.space.defect(q),
        {name: off(section) for name, section in m.sections().items()},
    )


def units(mass: np.ndarray) -> np.ndarray:
    """sqrt(M_ii), by which a component of the velocity counts; of a stack of matrices, for each."""
    return np.sqrt(np.abs(np.diagonal(mass, axis1=-2, axis2=-1)) + np.finfo(float).tiny)


def is_constant_metric(found: Survey) -> bool:
    """Whether the mass matrix is the same at the start and around it, each entry in units of the diagonal."""
    around = found.around["mass"]
    around, unit = around[np.all(np.isfinite(around), axis=(1, 2))], units(found.mass)
    return bool(np.all(np.abs(around - found.mass) <= TOLERANCE * np.outer(unit, unit)))


def is_mechanical(found: Survey) -> bool:
    """Whether the Lagrangian is kinetic energy, quadratic in v, minus a potential: whether dL/dv = M v.

    Momenta are compared, because a large potential would drown the difference of energies.
    """
    if "momentum" not in found.around:
        return True
    mass, momentum, velocity = (found.around[name] for name in ("mass", "momentum", "velocity"))
    expected = np.einsum("kij,kj->ki", mass, velocity)
    unit = units(mass)
    bound = (
        TOLERANCE * np.max(unit * np.abs(velocity) + np.abs(expected) / unit, axis=1, keepdims=True) * unit
    )
    good = np.all(np.isfinite(momentum) & np.isfinite(expected), axis=1)
    return bool(np.all((np.abs(momentum - expected) <= bound)[good]))


def observed(m: Mechanics, found: Survey) -> Mechanics:
    """The same with the traits that values around a start tell."""
    has = {
        Trait.VARYING_MASS: not is_constant_metric(found),
        Trait.GENERAL_LAGRANGIAN: not is_mechanical(found),
    }
    return m.with_traits({trait for trait, found in has.items() if found})
