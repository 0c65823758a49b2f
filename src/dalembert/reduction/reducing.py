"""The function `reduce`: makes the reduced system and its method from a system, a method and a symmetry."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import Symmetry, System, Trait, as_arrays, check_system, lower
from dalembert.numerics import Vector
from dalembert.reduction.cases import Abelian, Chaplygin, Horizontal
from dalembert.reduction.classification import Classification, classify
from dalembert.reduction.connections import check_connection
from dalembert.reduction.measured import NEAR, Sample, place, samples, without_redundancy
from dalembert.reduction.reduced import Note, ReducedRheonomicSystem, ReducedSystem
from dalembert.reduction.stages import horizontal_part, part, rest
from dalembert.reduction.steps import STEP, apart, group_parts, slopes
from dalembert.reduction.subspaces import SAME, echelon, named

KINDS = ("chaplygin", "horizontal", "both", "abelian")
# A relative change of a slope below this counts as none: rounding of derivatives is below it, curvature far above.
_STRAIGHT = 1e-10
# A slope below this fraction of the usual one is a rounded zero.
_SINGULAR = 1e-9


def reduce(
    system: System,
    method: VariationalDLA | EDLA,
    symmetry: Symmetry,
    *,
    kind: str | None = None,
    level: Any = None,
    connection: Callable[[Array, Array], Array] | None = None,
    h: float | None = None,
    at: Vector | None = None,
) -> ReducedSystem | ReducedRheonomicSystem:
    """The system without the group, which moves exactly as `method` moves the full system.

    `method` is VariationalDLA or EDLA. The reduction of a Chaplygin system ("chaplygin") leaves the shapes, and adds
    forces. The reduction by a horizontal symmetry ("horizontal") leaves everything but the group, at the `level` of
    its momentum (`symmetry.momentum(system, q0, v0)`). If a part of the group is horizontal and the rest is Chaplygin
    ("both"), the system is reduced by the one at its level and then by the other; `project` and `reconstruct` lead
    from the full system to the last one and back. By default `classify` finds the kind; kind="abelian" takes any
    abelian symmetry and eliminates no velocities. `connection(q0, q1)` is a discrete connection A_d of your own, which
    must be e on the discrete constraint of a Chaplygin system; for kind="abelian" any will do. Raises ValueError with
    the reason if something is not invariant or the kind does not apply. Invariance is measured with steps of size h
    around the start states, or around the configurations `at`.
    """
    check_system(system)
    if kind is not None and kind not in KINDS:
        raise ValueError(f"reduce has no kind {kind!r}; choose one of: {', '.join(KINDS)}")
    if not isinstance(method, VariationalDLA | EDLA):
        raise ValueError(
            "reduce is defined for methods with a discrete Lagrangian and a discrete constraint, VariationalDLA() and "
            f"EDLA(); got {getattr(method, 'cli_name', method)!r}"
        )
    method.check(system)
    system = without_redundancy(system, at)
    found = classify(system, symmetry, method, h=h, at=at)
    if found.kind == "both" and kind in (None, "both"):
        if connection is not None:
            raise ValueError("reduce: a connection of your own is for one stage; reduce in two calls")
        return _in_two_stages(system, method, symmetry, found, level, h, at)
    kind = _chosen(symmetry, found, kind, level)
    if not symmetry.split(system).shape:
        raise ValueError(
            f"{system.label} with {symmetry.words}: what is left has no coordinates, so that there is no reduced "
            "system to run. Run the system itself, or reduce by a group that leaves a coordinate"
        )
    if kind != "horizontal" and level is not None:
        raise ValueError(f"reduce: a level belongs to a horizontal symmetry; this reduction is {kind}")
    if kind == "chaplygin":
        case = Chaplygin(connection=connection)
    elif kind == "horizontal":
        if connection is not None:
            raise ValueError(
                "reduce: the level of the momentum defines the discrete connection of a horizontal reduction; leave "
                "out connection"
            )
        case = Horizontal(level=_level(symmetry, level))
    else:
        case = Abelian(connection=connection)
    made = ReducedRheonomicSystem if Trait.TIMED in lower(system).traits else ReducedSystem
    words = _words(system, symmetry, found, kind, level)
    reduced = made(system, symmetry, case, method, Note(words))
    given, size = samples(system, symmetry, at), jnp.asarray(h or system.step or 0.1, float)
    if connection is not None:
        check_connection(reduced, connection, given, size)
    if kind == "abelian":
        return reduced
    bend, smallest, largest = (np.asarray(x) for x in slopes(as_arrays(reduced), given, size))
    near = np.isfinite(smallest[:NEAR]) & np.isfinite(largest[:NEAR])
    usual = np.median(largest[:NEAR][near]) if near.any() else 0.0
    if not (near.any() and np.all(smallest[:NEAR][near] > _SINGULAR * usual)):
        if kind == "horizontal":
            raise ValueError(
                f"{found.reason}. But the transversality condition fails: there is not exactly one element of "
                f"{symmetry.group.name} that gives a step the momentum of the level, because the second derivative "
                "of the discrete Lagrangian along the group is singular"
            )
        raise ValueError(
            f"{found.reason}. But the discrete constraint {method.discrete_constraint.cli_name} does not determine "
            f"the element of {symmetry.group.name} by which a step moves: its derivative along the group is singular, "
            "so that the discrete dimensional assumption T D_d + V x V = T(Q x Q) fails; see da.reduction.rigidity"
        )
    bend = bend[np.isfinite(bend)]
    case = dataclasses.replace(case, linear=bool(len(bend)) and bool(np.max(bend) < _STRAIGHT))
    reduced = dataclasses.replace(reduced, case=case)
    if kind == "chaplygin" and not case.linear:
        _check_elements(reduced, given, size, found)
    return reduced


def _in_two_stages(
    system: System, method: Any, symmetry: Symmetry, found: Classification, level: Any, h: Any, at: Any
) -> ReducedSystem | ReducedRheonomicSystem:
    """The reduction by the horizontal part of a group at a level, and then by the rest."""
    chosen = horizontal_part(symmetry, found.horizontal)
    along = part(symmetry, chosen)
    if level is None:
        raise ValueError(
            f"{found.reason}. Give level=, the momentum of the horizontal part, {along.words}, such as "
            "Symmetry(...).momentum(system, q0, v0) of that part"
        )
    first = reduce(system, method, along, kind="horizontal", level=level, h=h, at=at)
    others = rest(symmetry, along, system, chosen)
    if at is not None:
        at = np.stack([along.shape(system, jnp.asarray(q, float)) for q in np.atleast_2d(at)])
    second = reduce(first, first.method, others, kind="chaplygin", h=h, at=at)
    words = Note(f"{found.reason}. In two stages. First: {first.words} Then: {second.words}")
    return dataclasses.replace(second, note=words, whole=symmetry)


def _check_elements(reduced: Any, given: Sample, h: Any, found: Classification) -> None:
    """Raises ValueError if some step of the shape has no group element, or several, under the discrete constraint.

    The discrete connection A_d is e on D_d only if there is exactly one, as there is if the constraint is linear in
    the group's part.
    """
    system, group = reduced.full, reduced.symmetry.group
    defined, roots, good = (np.asarray(x) for x in group_parts(as_arrays(reduced), given, h))
    rule = reduced.rule.discrete_constraint.cli_name
    said = f"{found.reason}. But the discrete constraint {rule} is not a discrete connection: "
    advice = "Use a discrete constraint that has exactly one, such as PointConstraint(0.5)"
    none = defined & ~good[:, 0]
    if np.any(none):
        i = int(np.argmax(none))
        raise ValueError(
            f"{said}no element of {group.name} was found that satisfies it, from the shape of "
            f"({place(system, given.q[i])}) with shape velocity {_shape_velocity(reduced, given.v[i], h)} and h = "
            f"{float(h):.4g}. {advice}"
        )
    off = apart(reduced, given, roots[:, 0], roots[:, 1])
    # Roots are accurate to rounding times the condition of the equation; another root is far from the first.
    several = np.where(good.all(axis=1) & np.isfinite(off), off, 0.0)
    i = int(np.argmax(several))
    if several[i] > 1e-6:
        one, two = (", ".join(f"{x:.6g}" for x in roots[i, j]) for j in (0, 1))
        raise ValueError(
            f"{said}A_d = e must hold on it, but from the shape of ({place(system, given.q[i])}) with shape velocity "
            f"{_shape_velocity(reduced, given.v[i], h)} and h = {float(h):.4g} the group's part of the step may be "
            f"({one}) or ({two}): both satisfy it. {advice}"
        )


def _shape_velocity(reduced: Any, v: np.ndarray, h: Any) -> str:
    kept = STEP / float(h) * v[np.array(reduced.symmetry.split(reduced.full).shape_velocity, int)]
    return f"({', '.join(f'{x:.4g}' for x in kept)})"


def _chosen(symmetry: Symmetry, found: Classification, kind: str | None, level: Any) -> str:
    """The kind of reduction; raises ValueError with the reason if there is none."""
    whole = found.kind == "horizontal" and found.horizontal.shape[1] == symmetry.group.dimension
    fits = {"Chaplygin": "chaplygin", "horizontal": "horizontal" if whole else None}.get(found.kind)
    if fits is not None and kind in (None, fits):
        if fits == "horizontal" and not _commutes(symmetry):
            _check_isotropy(symmetry, found, level)
        return fits
    if found.invariant and kind == "abelian":
        if symmetry.abelian:
            return kind
        raise ValueError(
            f"kind='abelian' needs R^n, tori or products of them, but the group is {symmetry.group.name}"
        )
    advice = ""
    if kind == "horizontal" and found.kind in ("horizontal", "both"):
        advice = ". Reduce by that part alone: give a Symmetry that acts on it"
    elif found.invariant and symmetry.abelian:
        advice = ". kind='abelian' reduces it without eliminating velocities"
    wanted = f"it cannot be reduced as {kind}" if kind else "it cannot be reduced as Chaplygin or horizontal"
    raise ValueError(f"{found.reason}: {wanted}{advice}")


def _commutes(symmetry: Symmetry) -> bool:
    """Whether all brackets of the algebra vanish."""
    if symmetry.abelian:
        return True
    return not any(np.any(np.asarray(symmetry.group.bracket(x))) for x in jnp.eye(symmetry.group.dimension))


def _check_isotropy(symmetry: Symmetry, found: Classification, level: Any) -> None:
    """Refuses a level that not all elements of the group keep: those that do have <mu, [xi, .]> = 0."""
    said = (
        f"{found.reason}. But {symmetry.group.name} is not abelian: a step keeps the momentum in space, and as seen "
        "from the moving group element it turns. It would be a variable beside the shapes, and no system of the shapes "
        "alone moves at such a level, unless the whole group keeps the level, as it keeps zero"
    )
    advice = (
        "Reduce by an abelian subgroup (a Symmetry with R^n or a torus on some of these coordinates), or at a level "
        "that all elements keep; where constraints fix the group's velocity, Chaplygin reduction takes any group"
    )
    if level is None:
        raise ValueError(f"{said}. {advice}")
    mu = _level(symmetry, level)
    turned = np.stack([mu @ np.asarray(symmetry.group.bracket(x)) for x in jnp.eye(symmetry.group.dimension)])
    if np.max(np.abs(turned)) <= SAME * np.max(np.abs(mu)):
        return
    _, sizes, turn = np.linalg.svd(turned.T)
    kept = ", ".join(named(x, symmetry) for x in echelon(turn[sizes <= SAME * sizes[0]])) or "none"
    raise ValueError(f"{said}. Of its directions only these keep {mu.tolist()}: {kept}. {advice}")


def _level(symmetry: Symmetry, level: Any) -> np.ndarray:
    size = symmetry.group.dimension
    if level is None:
        raise ValueError(
            "reduce: a horizontal symmetry is reduced at a level of its momentum; give level=, such as "
            "symmetry.momentum(system, q0, v0)"
        )
    try:
        given = np.atleast_1d(np.asarray(level, float))
    except (TypeError, ValueError):
        given = np.array([np.nan])
    if given.shape != (size,) or not np.all(np.isfinite(given)):
        raise ValueError(
            f"reduce: the level must be {size} finite numbers, the momentum of {symmetry.words}; got {level!r}"
        )
    return given


def _words(system: System, symmetry: Symmetry, found: Classification, kind: str, level: Any) -> str:
    """A description of what was done."""
    left = [x for x in system.coordinates if x not in symmetry.on]
    shapes = f"({', '.join(left)})"
    done = {
        "chaplygin": f"The shapes {shapes} are left, without constraints, moved by the reduced discrete Lagrangian "
        "and the forces beta0, beta1; the group follows by g1 = g0 F(r0, r1)",
        "horizontal": f"The coordinates {shapes} are left, with their constraints, at the level of the momentum; the "
        "group follows by the step that has this momentum",
        "abelian": f"The coordinates {shapes} are left, and the velocities of ({', '.join(symmetry.on)}); nothing is "
        "eliminated, and the group follows by adding its steps",
    }
    at_level = "" if kind != "horizontal" else f" mu = {np.atleast_1d(np.asarray(level, float)).tolist()}."
    return f"{found.reason}. {done[kind]}.{at_level}"
