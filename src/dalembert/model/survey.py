"""What a system's functions return at the start and around it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model.geometry import annihilator, displaced, offsets_at
from dalembert.model.rheonomic import Moment, later
from dalembert.model.system import System
from dalembert.numerics import hurried

FUNCTIONS = ("lagrangian", "metric", "potential", "constraints", "frame", "offsets", "drift", "forces")

# Relative size of rounding allowed in identities that should hold exactly (A B = 0, A v = 0, symmetry):
# user formulas lose a few digits, states typed with ten digits should pass, real mistakes are far above.
TOLERANCE = 1e-9 if jax.config.jax_enable_x64 else 1e-4  # pyright: ignore[reportAttributeAccessIssue]

# Numbers that should be zero, such as a projected velocity, carry rounding of the others.
ROUNDING = 1e-13 if jax.config.jax_enable_x64 else 1e-5  # pyright: ignore[reportAttributeAccessIssue]


class Survey(NamedTuple):
    """The values of a system's functions at the start and around it, evaluated in one compiled call."""

    mass: Any
    potential: Any
    forces: Any
    annihilator: Any
    offsets: Any
    """b of affine constraints A v = b; zero where they are linear."""
    given: dict[str, Any]
    turned: dict[str, dict[str, Any]]
    """What the given functions return after a full turn of each angle."""
    slope: Any
    """grad V at the start."""
    masses_around: Any
    products_around: Any
    """A B where both are given, and A Z - b."""
    lagrangian_samples: Any
    """Kinetic energy, potential and Lagrangian at random states."""
    defect: Any
    """How far q is from an element, on a group."""
    sections: dict[str, Any]
    """How far the generators of the sections are from D at the start, relative."""


@hurried
def survey(system: System, q: Array, v: Array, shifts: Array, velocities: Array) -> Survey:
    """The values at (q, v), at configurations that are shifted from q and at random velocities.

    Where the system depends on time, what is around is at other times too.
    """
    around = jax.vmap(lambda x: displaced(system, q, x))(shifts)
    ticks = 0.31 * jnp.arange(1.0, len(shifts) + 1)

    def given(system, q):
        arguments = {"lagrangian": (q, v), "forces": (q, v)}
        return {f: getattr(system, f)(*arguments.get(f, (q,))) for f in FUNCTIONS if system.gives(f)}

    def ratio(x, *sizes):
        bound = jnp.prod(jnp.stack([jnp.max(jnp.abs(size), initial=0.0) for size in sizes]))
        return jnp.max(jnp.abs(x), initial=0.0) / jnp.maximum(bound, np.finfo(float).tiny)

    def products(tick, q):
        there = later(system, tick)
        found = jnp.zeros(2)
        if system.gives("constraints") and system.gives("frame"):
            a, b = there.constraints(q), there.frame(q)
            found = found.at[0].set(ratio(a @ b, a, b))
        if system.gives("offsets") and system.gives("drift"):
            a, z, b = there.constraints(q), there.drift(q), there.offsets(q)
            found = found.at[1].set(ratio(a @ z - b, jnp.abs(a) @ jnp.abs(z) + jnp.abs(b)))
        return found

    def sample(tick, q, x):
        there = later(system, tick)
        return jnp.stack(
            [0.5 * jnp.sum(x * (there.metric(q) @ x)), there.potential(q), there.lagrangian(q, x)]
        )

    def off(section):
        along = system.generators(q) @ section(q)
        forms = annihilator(system, q)
        if len(along) > forms.shape[1]:  # symmetries that change the time
            forms = jnp.concatenate([-offsets_at(system, q)[:, None], forms], axis=1)
        return ratio(forms @ along, forms, along)

    turns = [[2 * np.pi * (c == name) for name in system.coordinates] for c in system.angles]
    places = q + np.array([[0.0] * system.dimension, *turns])
    values = jax.vmap(lambda q: given(system, q))(places)
    here, *turned = (jax.tree.map(lambda x, i=i: x[i], values) for i in range(1 + len(turns)))
    if turns and isinstance(system, Moment):  # the change at another time, too
        values = jax.vmap(lambda q: given(later(system, ticks[0]), q))(places)
        turned = [
            jax.tree.map(lambda x, all, i=i: x + all[i] - all[0], there, values)
            for i, there in enumerate(turned, 1)
        ]
    return Survey(
        system.metric(q),
        system.potential(q),
        system.forces(q, v),
        annihilator(system, q),
        offsets_at(system, q),
        here,
        dict(zip(system.angles, turned, strict=True)),
        jax.grad(system.potential)(q),
        jax.vmap(lambda tick, x: later(system, tick).metric(x))(ticks, around),
        jax.vmap(products)(ticks, around),
        jax.vmap(sample)(ticks[: len(velocities)], around[: len(velocities)], velocities),
        jnp.zeros(()) if system.group is None else system.group.defect(q),
        {name: off(section) for name, section in system.sections().items()},
    )


def is_constant_metric(found: Survey) -> bool:
    """Whether the mass matrix is the same at the start and around it."""
    around = found.masses_around[np.all(np.isfinite(found.masses_around), axis=(1, 2))]
    return bool(np.all(np.abs(around - found.mass) <= TOLERANCE * np.max(np.abs(found.mass))))


def is_mechanical(found: Survey) -> bool:
    """Whether the Lagrangian is kinetic energy, quadratic in v, minus a potential."""
    samples = found.lagrangian_samples
    kinetic, potential, value = samples[np.all(np.isfinite(samples), axis=1)].T
    bound = TOLERANCE * (np.abs(kinetic) + np.abs(potential) + np.abs(value))
    return bool(np.all(np.abs(value - (kinetic - potential)) <= bound))
