"""Checks of a system and a start state, made on plain numbers before anything is compiled.

Each raises ValueError saying what was expected, what came, and what to do.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.model.group_system import GroupSystem
from dalembert.model.groups import Group
from dalembert.model.survey import ROUNDING, TOLERANCE, Survey
from dalembert.model.survey import survey as survey_of
from dalembert.model.system import System, as_arrays
from dalembert.numerics import is_traced


def check_system(system: System) -> None:
    """Refuses a system whose description is malformed, whatever its state."""
    if isinstance(system, type):
        raise ValueError(f"expected a system, got the class {system.__name__}; make one: {system.__name__}()")
    if not isinstance(system, System):
        raise ValueError(
            f"expected a dalembert.System, got {type(system).__name__}; see dalembert.system(...)"
        )
    name = type(system).__name__
    if isinstance(system, GroupSystem) and not isinstance(system.group, Group):
        raise ValueError(f"{name}.group must be a Lie group such as groups.SO3(), got {system.group!r}")
    if isinstance(system, GroupSystem) and system.gives("lagrangian"):
        raise ValueError(
            f"{name} gives a lagrangian; a GroupSystem is described by inertia() and, where it has one, potential(g)"
        )
    names = system.coordinates
    if not isinstance(names, tuple) or not names or not all(isinstance(c, str) for c in names):
        raise ValueError(
            f"{name}: coordinates must be a tuple of names such as ('x', 'theta'), got {names!r}"
        )
    for what, given in (("units", system.units), ("angles", system.angles)):
        if not isinstance(given, tuple):
            raise ValueError(f"{name}: {what} must be a tuple such as ({given!r},), got {given!r}")
    if len(set(names)) != len(names):
        raise ValueError(f"{name}: coordinate names must differ from each other, got {names}")
    if system.units and len(system.units) != len(names):
        raise ValueError(f"{name}: {len(names)} coordinates but {len(system.units)} units; give one for each")
    unknown = [c for c in system.angles if c not in names]
    if unknown:
        raise ValueError(f"{name}: angles names {unknown[0]!r}, which is not one of the coordinates {names}")
    if not system.gives("lagrangian") and not system.gives("metric"):
        raise ValueError(f"{name} gives neither lagrangian(q, v) nor metric(q); define one of the two")
    if system.gives("lagrangian") and (system.gives("metric") or system.gives("potential")):
        raise ValueError(f"{name} gives both lagrangian and metric or potential; keep one description")
    leaves, tree = jax.tree.flatten(as_arrays(system))
    for leaf in leaves:
        if not is_traced(leaf) and not np.all(np.isfinite(leaf)):
            raise ValueError(f"{name}: a parameter is NaN or infinite in {system}; give finite numbers")
    key = (tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
    if key not in _known:  # shapes depend on nothing else
        _check_shapes(system)
        _known.add(key)


_known: set[Any] = set()


def shape_of(label: str, function: Callable, *arguments: Any, wanted: str = "one array") -> tuple[int, ...]:
    """The shape of what a user's function returns; refuses anything but one array of real numbers."""
    try:
        result = jax.eval_shape(function, *arguments)
    except Exception as error:
        shapes = ", ".join(str(x.shape) for x in arguments if isinstance(x, jax.ShapeDtypeStruct))
        error.add_note(f"raised inside {label}, called with arrays of shape {shapes}")
        raise
    if not hasattr(result, "shape"):
        kind = type(result).__name__
        raise ValueError(f"{label} must return {wanted}, got a {kind}; wrap it in jnp.array(...)")
    if result.dtype.kind != "f":
        raise ValueError(
            f"{label} must return real floating-point numbers, got {result.dtype}; write 1.0, not 1"
        )
    return tuple(result.shape)


def _check_shapes(system: System) -> None:
    n = system.velocity_dimension
    label = type(system).__name__
    arrays = as_arrays(system)
    q, v = (jax.ShapeDtypeStruct((size,), jnp.asarray(0.0).dtype) for size in (system.dimension, n))
    expected: list[tuple[str, tuple, Callable[[tuple], bool], str]] = [
        ("lagrangian", (q, v), lambda s: s == (), "a number (shape ())"),
        ("metric", (q,), lambda s: s == (n, n), f"a matrix of shape ({n}, {n})"),
        ("potential", (q,), lambda s: s == (), "a number (shape ())"),
        (
            "constraints",
            (q,),
            lambda s: len(s) == 2 and s[1] == n and s[0] < n,
            f"shape (m, {n}) with m < {n}",
        ),
        (
            "frame",
            (q,),
            lambda s: len(s) == 2 and s[0] == n and 0 < s[1] <= n,
            f"shape ({n}, r) with r <= {n}",
        ),
        ("generators", (q,), lambda s: len(s) == 2 and s[0] == n, f"shape ({n}, k), one column a generator"),
        ("forces", (q, v), lambda s: s == (n,), f"shape ({n},)"),
    ]
    shapes = {}
    for name, arguments, fits, wanted in expected:
        if system.gives(name):
            of = f"{label}.{'inertia' if name == 'metric' and system.group is not None else name}"
            shapes[name] = shape_of(of, getattr(arrays, name), *arguments)
            if not fits(shapes[name]):
                hint = "; write each one-form as a row: jnp.array([[...]])" if name == "constraints" else ""
                raise ValueError(f"{of} must return {wanted}, got shape {shapes[name]}{hint}")
    if system.gives("sections"):
        _check_sections(system, jax.eval_shape(arrays.generators, q).shape[1], q)
    if "constraints" in shapes and "frame" in shapes:
        m, r = shapes["constraints"][0], shapes["frame"][1]
        if m + r != n:
            raise ValueError(
                f"{label}: {m} one-forms leave {n - m} directions free, but frame has {r} columns; "
                f"the two must add up to {n}"
            )


def _check_sections(system: System, k: int, q: Any) -> None:
    """Sections are functions q -> (k,), by name."""
    label, sections = type(system).__name__, system.sections()
    if not isinstance(sections, Mapping):
        raise ValueError(f"{label}.sections must return a mapping of names to functions, got {sections!r}")
    for name, section in sections.items():
        of = f"{label}: the section {name!r}"
        if not callable(section):
            raise ValueError(f"{of} must be a function of q, got {section!r}")
        shape = shape_of(of, section, q)
        if shape != (k,):
            raise ValueError(f"{of} must return shape ({k},), one number a generator; got shape {shape}")


def _at(q: np.ndarray, system: System) -> str:
    return ", ".join(f"{name}={value:.6g}" for name, value in zip(system.coordinates, q, strict=True))


def check_start(system: System, q0: Any, v0: Any, call: Callable[..., Any] = survey_of) -> Survey:
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
    survey = call(as_arrays(system), q, v, shifts, velocities)
    survey = jax.tree.map(np.asarray, survey)
    _check_element(system, survey.defect)
    _check_lagrangian(system, q, survey)
    _check_constraints(system, q, v, survey)
    _check_angles(system, survey)
    for name, normal in survey.sections.items():
        if not normal <= TOLERANCE:
            raise ValueError(
                f"{type(system).__name__}: the section {name!r} leaves the constraint: its generator at the start "
                f"has a part normal to D, {normal:.3g} of it; sections must generate allowed velocities"
            )
    return survey


def _check_element(system: System, defect: Any) -> None:
    group = system.group
    if group is not None and not defect < TOLERANCE:
        raise ValueError(
            f"{type(system).__name__}: q0 is not an element of {group.name}: it is off by {defect:.3g}, expected "
            f"zero. q0 holds ({', '.join(group.coordinates)}), as in {np.asarray(group.identity()).tolist()}"
        )


def _check_lagrangian(system: System, q: np.ndarray, survey: Survey) -> None:
    label = type(system).__name__
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
    label = type(system).__name__
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
        elsewhere = survey.products_around[np.isfinite(survey.products_around)]
        if np.any(elsewhere > TOLERANCE):
            raise ValueError(
                f"{label}: constraints and frame agree at the start but contradict each other elsewhere: "
                f"A B should vanish but is {np.max(elsewhere):.3g} (relative) at a configuration nearby"
            )
    if np.any(violates(a, v)):
        z = np.linalg.solve(survey.mass, a.T)
        nearest = v - z @ np.linalg.lstsq(a @ z, a @ v, rcond=None)[0]
        raise ValueError(
            f"{label}: the start velocity violates the constraint: A(q0) v0 = {a @ v}, expected zero. "
            f"The nearest allowed velocity is {nearest.tolist()}"
        )


def violates(a: Any, v: Any) -> Any:
    """Which one-forms v violates: beyond a part of the terms that should cancel, and beyond rounding of v."""
    bound = TOLERANCE * (abs(a) @ abs(v)) + ROUNDING * abs(a).sum(-1) * abs(v).max()
    return abs(a @ v) > bound + np.finfo(float).tiny


def _check_angles(system: System, survey: Survey) -> None:
    for name, turned in survey.turned.items():
        for function, there in turned.items():
            here = survey.given[function]
            if np.max(np.abs(here - there), initial=0.0) > TOLERANCE * (
                1 + np.max(np.abs(here), initial=0.0)
            ):
                raise ValueError(
                    f"{type(system).__name__}: {name} is declared an angle, but {function} changes when it "
                    "grows by 2 pi; remove it from `angles`"
                )
