"""Runs that continue a pair of configurations (q0, q1): what the pair must satisfy, and where the run starts."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.methods import Method, Paired, State, Status
from dalembert.model import (
    TOLERANCE,
    System,
    Trait,
    as_arrays,
    check_turns,
    independent_rows,
    lower,
    off_surface,
    real_numbers,
)
from dalembert.numerics import jit_fast_compile, matvec

RELATIVE = 1e4
"""Residuals of the discrete constraint up to so many times the rounding errors of its terms are those of a pair that a
solver found; anything larger would move q1 visibly."""


class PairFacts(NamedTuple):
    """What a pair leads to, and how well it satisfies the constraints."""

    v0: Any
    u: Any
    """The own velocity of the method at q0."""
    residual: Any
    """The discrete constraint over the pair, in units of A(q) v."""
    allowed: Any
    """The largest residuals that rounding and the solver of the pair explain."""
    surface: Any
    """The position constraints at q1."""
    off: Any
    """Which of them are violated."""
    defect: Any
    """How far q1 is from an element of the group."""


def pair_facts(system: System, method: Method, q0: Any, q1: Any, t0: Any, h: Any) -> PairFacts:
    """The facts about a pair, as JAX code."""
    m = lower(system)
    here, later = m.at(t0), m.at(t0).later(h)
    state, memory = method.from_pair(m, q0, q1, t0, h)
    u = method.output(m, state, memory, h)[0]
    residual = method.pair_residual(m, q0, q1, t0, h)
    eps = jnp.finfo(q0.dtype).eps
    # The numbers of a group element are of size one, and there may be more of them than velocities.
    places = jnp.abs(q0) + jnp.abs(q1)
    lost = places if len(places) == len(u) else jnp.full_like(u, jnp.max(places))
    rows = jnp.abs(here.rows(q0)) + jnp.abs(later.rows(q1))
    sizes = matvec(rows, RELATIVE * eps * (jnp.abs(u) + jnp.abs(state.v)) + 64 * eps * lost / h)
    offsets = jnp.abs(here.offsets(q0)) + jnp.abs(later.offsets(q1))
    allowed = (sizes + RELATIVE * eps * offsets)[: residual.shape[0]]
    surface, off = jnp.zeros(0, q0.dtype), jnp.zeros(0, bool)
    if Trait.HOLONOMIC in m.traits:
        surface, slopes = later.holonomic(q1), later.slopes(q1)
        typical = jnp.sum(jnp.abs(slopes), axis=1) * (1 + jnp.max(jnp.abs(q1)))
        off = off_surface(surface, slopes, q1, typical)
    return PairFacts(state.v, u, residual, allowed, surface, off, m.space.defect(q1))


_facts = jit_fast_compile(pair_facts)


def is_off_pair(facts: PairFacts) -> Array:
    """Whether the pair violates what the method demands of it, inside other JAX code."""
    off = jnp.any(~(jnp.abs(facts.residual) <= facts.allowed)) | jnp.any(facts.off)
    return off | ~(facts.defect < TOLERANCE)


def check_choice(v0: Any, q1: Any, project: bool) -> None:
    """Refuses a start with both v0 and q1, and one with neither."""
    if (v0 is None) == (q1 is None):
        what = "neither" if v0 is None else "both"
        raise ValueError(
            "give either v0, the velocity at q0, or q1, the configuration one step of size h after q0; got "
            f"{what}"
        )
    if q1 is not None and project:
        raise ValueError(
            "project=True moves a start (q0, v0) onto the constraints, and there is no such rule for a pair. For a "
            "pair that fits, take rows 0 and 1 of a run of one step from (q0, v0)"
        )


def checked_pair(system: System, method: Method, q0: Any, q1: Any, t0: Any, h: Any) -> np.ndarray:
    """The velocity at q0 of the run that continues the pair; refuses a pair that the method cannot continue."""
    pair = []
    for label, x in (("q0", q0), ("q1", q1)):
        names = system.coordinates
        x = real_numbers(label, x, len(names), names)
        if x.shape != (len(names),):
            raise ValueError(
                f"{label} must have shape ({len(names)},), one value for each of ({', '.join(names)}); got {x.shape}"
            )
        if not np.all(np.isfinite(x)):
            raise ValueError(f"{label} must be finite, got {x}")
        check_turns(system, x)
        pair.append(x)
    rest = (as_arrays(method), *pair, float(t0), float(h))
    facts = _facts(as_arrays(system), *rest)
    if not np.all(np.isfinite(facts.v0)):
        # The constraints may be dependent; those that are kept lead to the same start.
        facts = _facts(independent_rows(as_arrays(system), pair[0], float(t0)), *rest)
    facts = PairFacts(*map(np.asarray, facts))
    label = system.label
    if not facts.defect < TOLERANCE:
        raise ValueError(
            f"{label}: q1 is not an element of {lower(system).space.name}: it is off by {facts.defect:.3g}, expected "
            "zero"
        )
    if np.any(facts.off):
        raise ValueError(
            f"{label}: q1 does not satisfy the position constraints at time t0 + h: c(q1) = {facts.surface}, expected "
            "zero. Take q1 on their surface, such as one that da.start finds"
        )
    # Written so that NaN is refused, too.
    if np.any(~(np.abs(facts.residual) <= facts.allowed)):
        free = method.others(lower(system), lambda x: x.takes_any_pair)
        raise ValueError(
            f"{label}: the pair (q0, q1) violates the discrete constraint of {method.cli_name}: its value is "
            f"{facts.residual}, in units of A(q) v, and rounding explains at most {np.max(facts.allowed):.3g}. "
            "Solve the discrete constraint for q1; rows 0 and 1 of a run of one step from (q0, v0) satisfy it."
            + (f" Any pair will do for {free}" if free else "")
        )
    if not np.all(np.isfinite(facts.v0)) or not np.all(np.isfinite(facts.u)):
        raise ValueError(
            f"{label}: no momentum belongs to a step of size {float(h):.6g} from q0 to q1, found {facts.u}; q1 may be "
            "too far away, or the discrete Lagrangian may be undefined between the two"
        )
    return facts.v0


def check_first_step(loop: Any, start: State, method: Paired) -> None:
    """Refuses a pair if the equations of its first step have another solution than q1, which their solver finds.

    The momentum at q0 determines q1 only nearby: a step that is too large for the potential or the metric has several.
    """
    loop.begin(start)
    end = loop.run(1, 1)
    if end.code == Status.OK.code:  # otherwise the run itself says why
        check_row(np.asarray(start.q), np.asarray(method.q1), np.asarray(end.last.q)[-1])


def check_row(q0: Any, q1: Any, found: Any) -> None:
    """Refuses a pair if the first step ends elsewhere."""
    size = max(1.0, float(np.max(np.abs(q0))), float(np.max(np.abs(q1))))
    # The pair is known to eps of its numbers; the solver of a step ends well below TOLERANCE of its length.
    off = float(np.max(np.abs(found - q1)))
    if not off <= 64 * np.finfo(found.dtype).eps * size + TOLERANCE * float(np.max(np.abs(q1 - q0))):
        raise ValueError(
            f"the step from q0 with the momentum of the pair ends at {found} instead of q1 = {q1}. The equations of "
            "the step have several solutions, and the solver finds another one, because the step is too large; take "
            "a pair that is nearer together, with a smaller h"
        )
