"""Checks of a start state, on plain numbers, before anything is compiled.

Each check raises a ValueError that says what was expected, what came, and what to do.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.model.redundancy import DEPENDENT, dependent, independent_rows, relative_sizes
from dalembert.model.sampling import (
    ROUNDING,
    TOLERANCE,
    Sample,
    changes_by_turns,
    contradicts,
    is_symmetric,
    samples,
    units,
)
from dalembert.model.sampling import sample as sample_of
from dalembert.model.systems import Mechanics, System, as_arrays, lower
from dalembert.model.traits import Trait
from dalembert.numerics import balancing_units


def spot(q: np.ndarray, system: Mechanics) -> str:
    """The coordinates with their names, as errors give them."""
    return ", ".join(f"{name}={value:.6g}" for name, value in zip(system.coordinates, q, strict=True))


def check_start(
    system: System, q0: Any, v0: Any, call: Callable[..., Any] = sample_of, t0: Any = 0.0
) -> tuple[System, Sample]:
    """Refuses a start state that does not fit the system, or at which the system is not well defined.

    It returns the system, without the constraints that follow from others if there are any, and its sample. `call`
    evaluates the system's functions; a caller that knows a quicker way may pass its own.
    """
    values = []
    for label, x, names in (("q0", q0, system.coordinates), ("v0", v0, system.velocity_names)):
        x = real_numbers(label, x, len(names), names)
        n, names = len(names), ", ".join(names)
        if x.shape != (n,):
            raise ValueError(
                f"{label} must have shape ({n},), one value for each of ({names}); got {x.shape}"
            )
        if not np.all(np.isfinite(x)):
            raise ValueError(f"{label} must be finite, got {x}")
        values.append(x)
    q, v = values
    check_turns(system, q)
    m = lower(as_arrays(system)).at(np.asarray(t0, float))
    sample = call(m, q, v, *samples(m))
    sample = jax.tree.map(np.asarray, sample)
    _check_element(m, sample.defect)
    _check_lagrangian(m, q, sample)
    _check_positions(m, q, sample)
    if np.all(np.isfinite(sample.annihilator)) and dependent(sample.annihilator / units(sample.measure)):
        fewer = independent_rows(system, q, t0, v)
        if fewer is not system:
            return check_start(fewer, q, v, call, t0)
    _check_rank_of_positions(m, q, sample)
    _check_constraints(m, q, v, sample)
    _check_nondegenerate(m, q, sample)
    _check_angles(m, sample)
    for name, normal in sample.sections.items():
        if not normal <= TOLERANCE:
            raise ValueError(
                f"{system.label}: the section {name!r} leaves the constraint: a part of its generator at the start is "
                f"normal to D (relative size {normal:.3g}); sections must generate allowed velocities"
            )
    return system, sample


def real_numbers(label: str, x: Any, n: int, names: Any) -> np.ndarray:
    """x as an array of real numbers; refuses anything else, including masked entries, which NumPy reads as numbers."""
    refuse_masked(label, x)
    try:
        x = np.asarray(x)
    except ValueError as error:  # lists of unequal length
        raise ValueError(
            f"{label} must be {n} numbers, one for each of ({', '.join(names)}); got {x!r}"
        ) from error
    if x.dtype.kind not in "fiu":
        raise ValueError(f"{label} must hold real numbers, got {x.dtype}")
    return x.astype(float)


def refuse_masked(label: str, x: Any) -> None:
    """Refuses an array with masked entries."""
    if np.ma.is_masked(x):
        raise ValueError(f"{label} is a masked array with masked entries, got {x!r}; give a number for each")


MOST_TURNS = 1e9
"""An angle that has made more turns than this has lost half of its digits."""


def check_turns(system: System, q: np.ndarray) -> None:
    """Refuses angles so large that their place on the circle is no longer accurate; q is one configuration or many."""
    for i, name in enumerate(system.coordinates):
        largest = np.max(np.abs(q[..., i]), initial=0.0)
        if name in system.angles and largest > 2 * np.pi * MOST_TURNS:
            raise ValueError(
                f"q0: the angle {name} is {largest:.6g}, more than {MOST_TURNS:.0e} turns, which loses half of its "
                "digits; subtract full turns"
            )


def _check_element(system: Mechanics, defect: Any) -> None:
    group = system.space
    if not defect < TOLERANCE:
        raise ValueError(
            f"{system.label}: q0 is not an element of {group.name}: it is off by {defect:.3g}, expected "
            f"zero. q0 holds ({', '.join(group.coordinates)}), as in {np.asarray(group.identity()).tolist()}"
        )


def _check_lagrangian(system: Mechanics, q: np.ndarray, sample: Sample) -> None:
    label = system.label
    mass = sample.mass
    for what, value in (
        ("the mass matrix", mass),
        ("the potential", sample.potential),
        ("the gradient of the potential", sample.slope),
        ("the force", sample.forces),
    ):
        if not np.all(np.isfinite(value)):
            raise ValueError(f"{label}: {what} is NaN or infinite at the start ({spot(q, system)}): {value}")
    # Scaling to unit diagonal: units as different as kilograms and grams then neither look singular nor hide anything.
    for k, matrix in enumerate(sample.around["mass"]):
        if not is_symmetric(matrix, sample.around["measure"][k]):
            where = f"at ({spot(q, system)})" if k == 0 else "at a configuration near the start"
            raise ValueError(f"{label}: the mass matrix is not symmetric {where}:\n{matrix}")
    if Trait.INDEFINITE in system.traits:
        return _check_signature(system, q, mass, sample.measure)
    scaled = mass / np.outer(units(mass), units(mass))
    smallest = np.linalg.eigvalsh(mass)[0]
    if np.linalg.eigvalsh(scaled)[0] <= 1e-13 or np.any(np.diag(mass) <= 0):
        raise ValueError(
            f"{label}: the mass matrix must be positive definite; its smallest eigenvalue at "
            f"({spot(q, system)}) is {smallest:.3g}. Check that masses and moments of inertia are positive"
            f"{_how_to_declare(system, mass)}"
        )


def _in_units(mass: np.ndarray) -> np.ndarray:
    """The eigenvalues of a nondegenerate mass matrix in the units in which no entry exceeds one."""
    unit = np.asarray(balancing_units(jnp.asarray(mass)))
    return np.linalg.eigvalsh(mass / np.outer(unit, unit))


def _how_to_declare(system: Mechanics, mass: np.ndarray) -> str:
    """How to say that a mass matrix is meant to be indefinite; empty if it is degenerate."""
    values = _in_units(mass)
    if not np.min(np.abs(values)) > SINGULAR:
        return ""
    found = int(np.sum(values > 0)), int(np.sum(values < 0))
    return (
        f". If the metric is meant to be indefinite (pseudo-Riemannian), declare how many of its eigenvalues are "
        f"positive and how many negative: signature = {found} in the class {system.class_name}, or in da.system(...)"
    )


SINGULAR = 1e-13
"""An indefinite metric whose smallest eigenvalue is below this, in units of its entries, is degenerate to rounding."""


def _check_signature(system: Mechanics, q: np.ndarray, mass: np.ndarray, measure: np.ndarray) -> None:
    """Checks that an indefinite mass matrix has the eigenvalues that the system declares, and none near zero."""
    values = np.linalg.eigvalsh(mass / np.outer(units(measure), units(measure)))
    if not np.min(np.abs(values)) > SINGULAR:
        raise ValueError(
            f"{system.label}: the mass matrix is degenerate at ({spot(q, system)}): in units of its entries an "
            f"eigenvalue is {values[np.argmin(np.abs(values))]:.3g}. An indefinite metric must be nondegenerate"
        )
    found, wanted = (int(np.sum(values > 0)), int(np.sum(values < 0))), system.signature
    if found != wanted:
        raise ValueError(
            f"{system.label} declares signature = {wanted}, but its mass matrix has {found[0]} positive and "
            f"{found[1]} negative eigenvalues at ({spot(q, system)}). Correct the signature, or the signs of masses"
        )


def _check_nondegenerate(system: Mechanics, q: np.ndarray, sample: Sample) -> None:
    """Checks that an indefinite metric is nondegenerate on D at the start: otherwise an allowed velocity is orthogonal
    to all of D, and no projector belongs to D."""
    if Trait.INDEFINITE not in system.traits or not system.constrained:
        return
    unit = units(sample.measure)
    given = sample.given["frame" if system.framed else "constraints"]
    if system.framed:
        basis = np.linalg.qr(given * unit[:, None])[0]
    else:
        basis = np.linalg.qr((given / unit).T, mode="complete")[0][:, len(given) :]
    values, vectors = np.linalg.eigh(basis.T @ (sample.mass / np.outer(unit, unit)) @ basis)
    if np.min(np.abs(values)) > DEPENDENT:
        return
    null = basis @ vectors[:, np.argmin(np.abs(values))] / unit
    raise ValueError(
        f"{system.label}: the metric is degenerate on the allowed velocities, to half of the digits or more, at the "
        f"start ({spot(q, system)}): {null.tolist()} is allowed, and orthogonal to all allowed velocities and itself, "
        "so that no projector onto them exists. Change the constraints, or start elsewhere"
    )


def _check_constraints(system: Mechanics, q: np.ndarray, v: np.ndarray, sample: Sample) -> None:
    label = system.label
    for name in ("constraints", "frame"):
        if name not in system.given:
            continue
        matrix = sample.given[name]
        if not np.all(np.isfinite(matrix)):
            raise ValueError(
                f"{system.class_name}.{name} is NaN or infinite at the start ({spot(q, system)}):\n{matrix}"
            )
        vectors = matrix if name == "constraints" else matrix.T
        # If a frame is given too, it decides; the one-forms then only name the multipliers.
        decides = name == "frame" or not system.framed
        if decides and name == "constraints" and len(vectors) >= vectors.shape[1]:
            _refuse_no_motion(label, "the one-forms", vectors)
        if decides and dependent(vectors):
            sizes = relative_sizes(vectors)
            what = "one-forms" if name == "constraints" else "spanning vectors"
            advice = "give a frame(q), which may stay regular there, or start elsewhere"
            raise ValueError(
                f"{label}: the {what} are linearly dependent (rank deficient) at the configuration "
                f"({spot(q, system)}): singular values {sizes}. Remove the redundant ones, "
                + (advice if name == "constraints" else "or start elsewhere")
            )
    if {"constraints", "frame"} <= system.given:
        (m, n), r = sample.given["constraints"].shape, sample.given["frame"].shape[1]
        if m + r > n:
            raise ValueError(
                f"{label}: {m} one-forms leave {max(n - m, 0)} directions free, but frame has {r} columns; the two "
                f"must add up to {n}, unless some one-forms follow from the others everywhere"
            )
    a = sample.annihilator
    around = sample.around["products"]
    if around[0, 0] > TOLERANCE:
        raise ValueError(
            f"{label}: constraints and frame contradict each other at ({spot(q, system)}): "
            f"A B should vanish but is\n{a @ sample.given['frame']}"
        )
    for which, what, vanishing in ((0, "constraints and frame", "A B"), (1, "offsets and drift", "A Z - b")):
        elsewhere = around[contradicts(sample)[:, which], which]
        if elsewhere.size:
            raise ValueError(
                f"{label}: {what} contradict each other{' elsewhere, though they agree at the start' * (not which)}: "
                f"{vanishing} should vanish but is {np.max(elsewhere):.3g} (relative) at a configuration nearby"
            )
    b = sample.offsets
    for name in ("offsets", "drift"):
        if name in system.given and not np.all(np.isfinite(sample.given[name])):
            raise ValueError(
                f"{system.class_name}.{name} is NaN or infinite at the start ({spot(q, system)}): {sample.given[name]}"
            )
    if Trait.NONLINEAR in system.traits:
        _check_nonlinear(system, q, v, sample)
    if np.any(violates(a, v, b, sample.measure)):
        z = np.linalg.solve(sample.mass, a.T)
        nearest = v - z @ np.linalg.lstsq(a @ z, a @ v - b, rcond=None)[0]
        raise ValueError(
            f"{label}: the start velocity violates the constraint: A(q0) v0 = {a @ v}, expected "
            f"{b if Trait.AFFINE in system.traits else 'zero'}. The nearest allowed velocity is {nearest.tolist()}"
        )


def _check_nonlinear(system: Mechanics, q: np.ndarray, v: np.ndarray, sample: Sample) -> None:
    """Checks that the start satisfies the nonlinear constraints, and that df/dv has full rank there, with the rows of
    the other constraints."""
    label, forms, values = system.label, sample.annihilator, sample.given["nonlinear"]
    vertex = (
        ""
        if np.any(v)
        else " v0 is zero: where the constraint is a cone, this is its vertex, and the motion from"
    )
    vertex += " there is not determined." if vertex else ""
    rows = sample.here["constraints"][0] if "constraints" in sample.here else np.zeros((0, len(v)))
    own = forms[len(rows) : len(rows) + len(values)] if "frame" not in system.given else forms
    for what, x in (("nonlinear", values), ("its derivative df/dv", own)):
        if not np.all(np.isfinite(x)):
            raise ValueError(
                f"{label}: {what} is NaN or infinite at the start ({spot(q, system)}), v0 = {v.tolist()}: {x.tolist()}."
                f"{vertex} Start with another velocity"
            )
    scaled = forms / units(sample.measure)
    if dependent(scaled):
        sizes = relative_sizes(scaled)
        raise ValueError(
            f"{label}: the derivatives df/dv of the nonlinear constraints and the one-forms are linearly dependent "
            f"(rank deficient) at the start ({spot(q, system)}), v0 = {v.tolist()}: singular values {sizes}.{vertex} "
            "Start with another velocity, or remove the constraints that follow from the others"
        )
    if np.any(violates(forms, v, sample.offsets, sample.measure)):
        others = f"; A(q0) v0 = {(rows @ v).tolist()}" if len(rows) else ""
        raise ValueError(
            f"{label}: the start velocity violates the constraint: nonlinear(q0, v0) = {values.tolist()}, expected "
            f"zero{others}. da.start(system, q0, v0) finds the nearest velocity that satisfies it, and says what it "
            "changed"
        )


def _check_positions(system: Mechanics, q: np.ndarray, sample: Sample) -> None:
    """Checks that the start satisfies the position constraints."""
    if Trait.HOLONOMIC not in system.traits:
        return
    label, values, rows = system.label, sample.here["holonomic"], sample.annihilator
    slopes = rows[len(rows) - values.shape[1] :]
    for what, x in (("holonomic", values[0]), ("the derivative of holonomic", slopes)):
        if not np.all(np.isfinite(x)):
            raise ValueError(f"{label}: {what} is NaN or infinite at the start ({spot(q, system)}): {x}")
    around = np.abs(values[1:])
    if np.any(off_surface(values[0], slopes, q, np.where(around < np.inf, around, 0.0).max(0))):
        raise ValueError(
            f"{label}: the start does not satisfy the position constraints: holonomic(q0) = {values[0]}, expected "
            "zero. da.start(system, q0, v0) finds the nearest start that does, and says what it changed"
        )


def _check_rank_of_positions(system: Mechanics, q: np.ndarray, sample: Sample) -> None:
    """Checks that position constraints are independent at the start, also of the constraints on velocities."""
    if Trait.HOLONOMIC not in system.traits:
        return
    label, rows = system.label, sample.annihilator
    others = " and the one-forms" if len(rows) > sample.here["holonomic"].shape[1] else ""
    if len(rows) >= rows.shape[1]:
        _refuse_no_motion(label, f"the derivatives of the position constraints{others}", rows)
    if dependent(rows):
        sizes = relative_sizes(rows)
        raise ValueError(
            f"{label}: the derivatives of the position constraints{others} are linearly dependent (rank deficient) at "
            f"the configuration ({spot(q, system)}): singular values {sizes}. Remove those that follow from the others "
            "(the derivative of a position constraint need not be among the one-forms), or start elsewhere"
        )


def _refuse_no_motion(label: str, what: str, rows: np.ndarray) -> None:
    """Refuses as many independent rows as there are velocities."""
    n = rows.shape[1]
    sizes = relative_sizes(rows)
    if len(sizes) == n and sizes[-1] > DEPENDENT * sizes[0]:
        raise ValueError(
            f"{label}: {what} leave no motion: {n} of them are linearly independent, and there are {n} velocities; "
            "give fewer"
        )


def off_surface(values: Any, slopes: Any, q: Any, typical: Any) -> Any:
    """Which position constraints c(q) = 0 a configuration violates by more than ten digits of q, or rounding, explain.

    `typical` says how large the values of c are elsewhere: the terms that cancel in c are of that size.
    """
    # The numbers of a group element are of size one, and there may be more of them than velocities.
    typed = abs(slopes) @ abs(q) if slopes.shape[1] == len(q) else abs(slopes).sum(-1)
    # Written so that NaN is off the surface, too.
    return ~(abs(values) <= TOLERANCE * typed + ROUNDING * typical + np.finfo(float).tiny)


def violates(a: Any, v: Any, b: Any, measure: Any = None) -> Any:
    """Which one-forms v violates by more than a fraction of the terms that should cancel plus the rounding error of v.

    A component of v that should be zero carries the rounding errors of the others, all in units of the metric.
    """
    unit = 1.0 if measure is None else abs(measure.diagonal()) ** 0.5 + np.finfo(float).tiny
    carried = ROUNDING * (abs(a) / unit).sum(-1) * (unit * abs(v)).max(initial=0.0)
    return abs(a @ v - b) > TOLERANCE * (abs(a) @ abs(v) + abs(b)) + carried + np.finfo(float).tiny


def _check_angles(system: Mechanics, sample: Sample) -> None:
    """Checks that every function returns the same after full turns of the angles, at all samples."""
    names = [name for name in system.coordinates if name in system.angles]
    turns = sample.turns[:, [system.coordinates.index(name) for name in names]]
    for function, off in changes_by_turns(sample).items():
        if np.any(off):
            given = "lagrangian" if function == "potential" and "lagrangian" in system.given else function
            which = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
            made = ", ".join(
                f"{name} by {2 * n:+.0f} pi" for name, n in zip(names, turns[np.argmax(off)], strict=True)
            )
            raise ValueError(
                f"{system.label}: {which} is declared an angle, but {given} changes when it grows by full turns "
                f"({made}), at {np.sum(off)} of {len(off)} configurations near the start; remove it from `angles`"
            )
