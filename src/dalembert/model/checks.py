"""Checks of a start state, made on plain numbers before anything is compiled.

Each raises ValueError saying what was expected, what came, and what to do.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dalembert.model.survey import ROUNDING, TOLERANCE, Survey
from dalembert.model.survey import survey as survey_of
from dalembert.model.system import System, as_arrays


def _at(q: np.ndarray, system: System) -> str:
    return ", ".join(f"{name}={value:.6g}" for name, value in zip(system.coordinates, q, strict=True))


def check_start(
    system: System, q0: Any, v0: Any, call: Callable[..., Any] = survey_of, t0: Any = 0.0
) -> Survey:
    """Refuses a start state that does not fit the system, or at which the system is not well defined.

    `call` evaluates the system's functions; a caller that knows a quicker way may give its own.
    """
    values = []
    for label, x, names in (("q0", q0, system.coordinates), ("v0", v0, system.velocity_names)):
        n, names = len(names), ", ".join(names)
        try:
            x = np.asarray(x)
        except ValueError as error:  # lists of unequal length
            raise ValueError(f"{label} must be {n} numbers, one for each of ({names}); got {x!r}") from error
        if x.dtype.kind not in "fiu":
            raise ValueError(f"{label} must hold real numbers, got {x.dtype}")
        if x.shape != (n,):
            raise ValueError(
                f"{label} must have shape ({n},), one value for each of ({names}); got {x.shape}"
            )
        if not np.all(np.isfinite(x)):
            raise ValueError(f"{label} must be finite, got {x}")
        values.append(x.astype(float))
    q, v = values
    # Fixed samples, so that the answer to a question about a system does not vary.
    random = np.random.default_rng(20)
    reach = np.repeat([1.0, 10.0], 6)[:, None]
    n = len(v)
    shifts = reach * random.uniform(-1, 1, (12, n))
    velocities = (1 + np.max(np.abs(v))) * random.uniform(-1, 1, (6, n))
    system = as_arrays(system).at(t0)
    survey = call(system, q, v, shifts, velocities)
    survey = jax.tree.map(np.asarray, survey)
    _check_element(system, survey.defect)
    _check_lagrangian(system, q, survey)
    _check_constraints(system, q, v, survey)
    _check_angles(system, survey)
    for name, normal in survey.sections.items():
        if not normal <= TOLERANCE:
            raise ValueError(
                f"{system.label}: the section {name!r} leaves the constraint: its generator at the start "
                f"has a part normal to D, {normal:.3g} of it; sections must generate allowed velocities"
            )
    return survey


def _check_element(system: System, defect: Any) -> None:
    group = system.group
    if group is not None and not defect < TOLERANCE:
        raise ValueError(
            f"{system.label}: q0 is not an element of {group.name}: it is off by {defect:.3g}, expected "
            f"zero. q0 holds ({', '.join(group.coordinates)}), as in {np.asarray(group.identity()).tolist()}"
        )


def _check_lagrangian(system: System, q: np.ndarray, survey: Survey) -> None:
    label = system.label
    mass = survey.mass
    for what, value in (
        ("the mass matrix", mass),
        ("the potential", survey.potential),
        ("the gradient of the potential", survey.slope),
        ("the force", survey.forces),
    ):
        if not np.all(np.isfinite(value)):
            raise ValueError(f"{label}: {what} is NaN or infinite at the start ({_at(q, system)}): {value}")
    if np.max(np.abs(mass - mass.T)) > TOLERANCE * np.max(np.abs(mass)):
        raise ValueError(f"{label}: the mass matrix is not symmetric at ({_at(q, system)}):\n{mass}")
    # Scaled to unit diagonal, so that units as different as kilograms and grams do not look singular.
    diagonal = np.sqrt(np.abs(np.diag(mass)) + np.finfo(float).tiny)
    scaled = mass / np.outer(diagonal, diagonal)
    smallest = np.linalg.eigvalsh(mass)[0]
    if np.linalg.eigvalsh(scaled)[0] <= 1e-13 or np.any(np.diag(mass) <= 0):
        raise ValueError(
            f"{label}: the mass matrix must be positive definite; its smallest eigenvalue at "
            f"({_at(q, system)}) is {smallest:.3g}. Check that masses and moments of inertia are positive"
        )


def _check_constraints(system: System, q: np.ndarray, v: np.ndarray, survey: Survey) -> None:
    label = system.label
    for name in ("constraints", "frame"):
        if not system.gives(name):
            continue
        matrix = survey.given[name]
        if not np.all(np.isfinite(matrix)):
            raise ValueError(f"{label}.{name} is NaN or infinite at the start ({_at(q, system)}):\n{matrix}")
        # One-forms and vectors of very different length are independent all the same.
        axis = 1 if name == "constraints" else 0
        lengths = np.linalg.norm(matrix, axis=axis, keepdims=True)
        sizes = np.linalg.svd(matrix / np.where(lengths > 0, lengths, 1), compute_uv=False)
        # With a frame beside them the one-forms serve only to name multipliers; the frame decides.
        decides = name == "frame" or not system.gives("frame")
        if decides and sizes.size and sizes[-1] <= 1e-7 * sizes[0]:
            what = "one-forms" if name == "constraints" else "spanning vectors"
            advice = "give a frame(q), which may stay regular there, or start elsewhere"
            raise ValueError(
                f"{label}: the {what} are linearly dependent (rank deficient) at the configuration "
                f"({_at(q, system)}): singular values {sizes}. Remove the redundant ones, "
                + (advice if name == "constraints" else "or start elsewhere")
            )
    a = survey.annihilator
    if system.gives("constraints") and system.gives("frame"):
        product = a @ survey.given["frame"]
        size = np.max(np.abs(a), initial=0.0) * np.max(np.abs(survey.given["frame"]))
        if np.max(np.abs(product), initial=0.0) > TOLERANCE * size:
            raise ValueError(
                f"{label}: constraints and frame contradict each other at ({_at(q, system)}): "
                f"A B should vanish but is\n{product}"
            )
    around = survey.products_around
    for which, what, vanishing in ((0, "constraints and frame", "A B"), (1, "offsets and drift", "A Z - b")):
        elsewhere = around[np.isfinite(around[:, which]), which]
        if np.any(elsewhere > TOLERANCE):
            raise ValueError(
                f"{label}: {what} contradict each other{' elsewhere, though they agree at the start' * (not which)}: "
                f"{vanishing} should vanish but is {np.max(elsewhere):.3g} (relative) at a configuration nearby"
            )
    b = survey.offsets
    for name in ("offsets", "drift"):
        if system.gives(name) and not np.all(np.isfinite(survey.given[name])):
            raise ValueError(
                f"{label}.{name} is NaN or infinite at the start ({_at(q, system)}): {survey.given[name]}"
            )
    if np.any(violates(a, v, b)):
        z = np.linalg.solve(survey.mass, a.T)
        nearest = v - z @ np.linalg.lstsq(a @ z, a @ v - b, rcond=None)[0]
        raise ValueError(
            f"{label}: the start velocity violates the constraint: A(q0) v0 = {a @ v}, expected "
            f"{b if system.affine else 'zero'}. The nearest allowed velocity is {nearest.tolist()}"
        )


def violates(a: Any, v: Any, b: Any) -> Any:
    """Which one-forms v violates: beyond a part of the terms that should cancel, and beyond rounding of v."""
    bound = TOLERANCE * (abs(a) @ abs(v) + abs(b)) + ROUNDING * abs(a).sum(-1) * abs(v).max(initial=0.0)
    return abs(a @ v - b) > bound + np.finfo(float).tiny


def _check_angles(system: System, survey: Survey) -> None:
    for name, turned in survey.turned.items():
        for function, there in turned.items():
            here = survey.given[function]
            if np.max(np.abs(here - there), initial=0.0) > TOLERANCE * (
                1 + np.max(np.abs(here), initial=0.0)
            ):
                raise ValueError(
                    f"{system.label}: {name} is declared an angle, but {function} changes when it "
                    "grows by 2 pi; remove it from `angles`"
                )
