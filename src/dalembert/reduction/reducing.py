"""reduce(): from a system, a method and a symmetry to the reduced system and its method."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import Symmetry, System, as_arrays, check_system
from dalembert.numerics import hurried
from dalembert.reduction.cases import Abelian, Chaplygin, Horizontal, Rule
from dalembert.reduction.classification import Classification, classify
from dalembert.reduction.measured import samples
from dalembert.reduction.reduced import Note, ReducedRheonomicSystem, ReducedSystem

KINDS = ("chaplygin", "horizontal", "abelian")
# Relative change of a slope that counts as none: rounding of derivatives is below it, bends are far above.
_STRAIGHT = 1e-10


def reduce(
    system: System,
    method: VariationalDLA | EDLA,
    symmetry: Symmetry,
    *,
    kind: str | None = None,
    level: Any = None,
    h: float | None = None,
    at: Any = None,
) -> ReducedSystem | ReducedRheonomicSystem:
    """The system without the group, exactly as the method moves it.

    `method` is VariationalDLA or EDLA. Of a Chaplygin system ("chaplygin") shapes are left, and forces; of a
    horizontal symmetry ("horizontal") everything else, at the `level` of its momentum (`symmetry.momentum(system, q0,
    v0)`). `kind` is found by `classify` where it is not given; kind="abelian" takes any abelian symmetry and
    eliminates no velocities. What is not invariant, or does not fit, is refused with the reason. Invariance is
    measured with steps of size h around the start states, or around the configurations `at`.
    """
    check_system(system)
    if kind is not None and kind not in KINDS:
        raise ValueError(f"reduce has no kind {kind!r}; choose one of: {', '.join(KINDS)}")
    if not isinstance(method, VariationalDLA | EDLA):
        raise ValueError(
            "reduce is defined for methods of a discrete Lagrangian and a discrete constraint, VariationalDLA() and "
            f"EDLA(); got {getattr(method, 'spelling', method)!r}"
        )
    method.check_description(system)
    found = classify(system, symmetry, method, h=h, at=at)
    kind = _chosen(symmetry, found, kind)
    if kind != "horizontal" and level is not None:
        raise ValueError(f"reduce: a level belongs to a horizontal symmetry; this reduction is {kind}")
    if kind == "chaplygin":
        case = Chaplygin()
    elif kind == "horizontal":
        case = Horizontal(level=_level(symmetry, level))
    else:
        case = Abelian()
    made = ReducedRheonomicSystem if system.timed else ReducedSystem
    words = _words(system, symmetry, found, kind, level)
    reduced = made(system, symmetry, case, method, Note(words))
    if kind == "abelian":
        return reduced
    sizes = _slopes(
        as_arrays(reduced), samples(system, symmetry, at), jnp.asarray(h or system.step or 0.1, float)
    )
    bend, smallest, largest = (np.asarray(x)[np.isfinite(x)] for x in sizes)
    if kind == "horizontal" and not (len(smallest) and np.all(smallest > 1e-9 * largest)):
        raise ValueError(
            f"{found.reason}. But the transversality condition fails: there is not one element of "
            f"{symmetry.group.name} that gives a step the momentum of the level, because the second derivative of "
            "the discrete Lagrangian along the group is singular"
        )
    straight = bool(len(bend)) and bool(np.max(bend) < _STRAIGHT)
    return dataclasses.replace(reduced, case=dataclasses.replace(case, linear=straight))


def _chosen(symmetry: Symmetry, found: Classification, kind: str | None) -> str:
    """The kind of reduction, or why there is none."""
    whole = found.kind == "horizontal" and found.horizontal.shape[1] == symmetry.group.dimension
    fits = {"Chaplygin": "chaplygin", "horizontal": "horizontal" if whole else None}.get(found.kind)
    if fits is not None and kind in (None, fits):
        return fits
    if found.invariant and kind == "abelian":
        if symmetry.abelian:
            return kind
        raise ValueError(f"kind='abelian' needs R^n, tori or products of them; {symmetry.group.name} is none")
    advice = ""
    if kind == "horizontal" and found.kind in ("horizontal", "both"):
        advice = ". Reduce by that part alone: give a Symmetry that acts on it"
    elif found.invariant and symmetry.abelian:
        advice = ". kind='abelian' reduces it without eliminating velocities"
    wanted = f"it cannot be reduced as {kind}" if kind else "it cannot be reduced as Chaplygin or horizontal"
    raise ValueError(f"{found.reason}: {wanted}{advice}")


def _level(symmetry: Symmetry, level: Any) -> np.ndarray:
    size = symmetry.group.dimension
    if level is None:
        raise ValueError(
            "reduce: a horizontal symmetry is reduced at a level of its momentum; give level=, such as "
            "symmetry.momentum(system, q0, v0)"
        )
    level = np.atleast_1d(np.asarray(level, float))
    if level.shape != (size,) or not np.all(np.isfinite(level)):
        raise ValueError(f"reduce: the level must be {size} finite numbers, got {level.tolist()}")
    return level


def _words(system: System, symmetry: Symmetry, found: Classification, kind: str, level: Any) -> str:
    """What was done."""
    left = [x for x in system.coordinates if x not in symmetry.on]
    shapes = f"({', '.join(left)})"
    done = {
        "chaplygin": f"Left are the shapes {shapes} without constraints, moved by the reduced discrete Lagrangian "
        "and the forces beta0, beta1; the group follows by g1 = g0 F(r0, r1)",
        "horizontal": f"Left are {shapes} with their constraints, at the level of the momentum; the group follows by "
        "the step that has this momentum",
        "abelian": f"Left are {shapes} and the velocities of ({', '.join(symmetry.on)}); nothing is eliminated, and "
        "the group follows by adding its steps",
    }
    at_level = "" if kind != "horizontal" else f" mu = {np.atleast_1d(np.asarray(level, float)).tolist()}."
    return f"{found.reason}. {done[kind]}.{at_level}"


@hurried
def _slopes(core: Any, given: Any, h: Any) -> Any:
    """How the equation for the group's part of a step depends on it: how much its slope changes, relative, and the
    smallest and largest singular value of the slope."""

    def one(s):
        symmetry, full = core.symmetry, core.full.at(s.t)
        r, split = symmetry.shape(full, s.q), symmetry.split(full)
        u = s.v[np.array(split.shape_velocity, int)]
        rule: Rule = core.discrete

        def missing(w):
            return core.case.missing(symmetry, full, rule, rule.step(symmetry, full, r, u, w, h), h)

        slope, other = (jax.jacfwd(missing)(x) for x in (s.x, -0.7 * s.x))
        sizes = jnp.linalg.svd(slope, compute_uv=False)
        return jnp.max(jnp.abs(other - slope)) / sizes[0], sizes[-1], sizes[0]

    return jax.vmap(one)(given)
