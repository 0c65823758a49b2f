"""Checks of a system's description (names, functions and shapes), which need no state."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from dalembert.groups import Group
from dalembert.model.group_system import GroupSystem
from dalembert.model.systems import FUNCTIONS, Mechanics, System, as_arrays, lower
from dalembert.model.traits import Trait
from dalembert.numerics import Recent, current, is_traced, kind_of

HOOKS: dict[str, tuple[str, ...]] = {
    "lagrangian": ("q", "v"),
    "metric": ("q",),
    "potential": ("q",),
    "constraints": ("q",),
    "frame": ("q",),
    "holonomic": ("q",),
    "nonlinear": ("q", "v"),
    "offsets": ("q",),
    "drift": ("q",),
    "forces": ("q", "v"),
    "generators": ("q",),
    "scene": ("t", "q"),
    "inertia": (),
    "sections": (),
    "integrals": (),
    "starts": (),
}
"""The functions of a system and their arguments; the functions of a RheonomicSystem take t first."""

ATTRIBUTES = ("coordinates", "units", "angles", "group", "step", "signature")

# The names that other tools and textbooks use for these functions.
SYNONYMS = {
    "potential_energy": "potential",
    "V": "potential",
    "U": "potential",
    "L": "lagrangian",
    "mass": "metric",
    "mass_matrix": "metric",
    "M": "metric",
    "A": "constraints",
    "one_forms": "constraints",
    "constraint_matrix": "constraints",
    "nonholonomic": "constraints",
    "distribution": "frame",
    "position_constraints": "holonomic",
    "holonomic_constraints": "holonomic",
    "nonlinear_constraints": "nonlinear",
    "external_forces": "forces",
    "F": "forces",
    "friction": "forces",
    "damping": "forces",
}

# "potential" and "potental" are alike by 0.94, "forces" and "force" by 0.91, "frame" and "from" by 0.67.
_ALIKE = 0.8


def meant(name: str, given: Callable[[str], bool]) -> str | None:
    """The hook that a function of this name was probably meant to be; None if no hook is close.

    A hook that the system already gives, or has no room for, was not meant: such a function is a helper.
    """
    if name.startswith("_") or name in HOOKS or name in ATTRIBUTES:
        return None
    open_hooks = [x for x in HOOKS if not given(x)]
    if given("lagrangian"):
        open_hooks = [x for x in open_hooks if x not in ("metric", "potential")]
    if given("metric"):
        open_hooks = [x for x in open_hooks if x != "lagrangian"]
    if name in SYNONYMS:
        return SYNONYMS[name] if SYNONYMS[name] in open_hooks else None
    near = difflib.get_close_matches(name.lower(), open_hooks, 1, _ALIKE)
    return near[0] if near else None


def check_names(label: str, own: Mapping[str, Any], given: Callable[[str], bool]) -> None:
    """Refuses functions and attributes of a user's class whose names are almost the names of hooks."""
    for name, value in own.items():
        if isinstance(value, tuple) and value and all(isinstance(x, str) for x in value):
            near = difflib.get_close_matches(name, ATTRIBUTES, 1, _ALIKE)
            if near and name not in ATTRIBUTES and near[0] not in own:
                raise ValueError(
                    f"{label} has an attribute {name!r}, which nothing reads: did you mean {near[0]!r}? Rename it"
                )
        if not inspect.isroutine(value) and not isinstance(value, property | staticmethod | classmethod):
            continue
        hook = meant(name, given)
        if hook is not None:
            raise ValueError(
                f"{label} defines {name}(...), which is never called: did you mean {hook}? Rename it; if it is a "
                f"helper of your own, call it _{name}"
            )


def takes(function: Callable, count: int) -> bool:
    """Whether the function can be called with this many arguments; True if its signature is unknown."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # the function has no signature
        return True
    return True


def check_arguments(
    label: str, hook: str, function: Callable, timed: bool, extra: str = "", bound: bool = True
) -> None:
    """Refuses a hook that does not take the arguments it is called with, and says what was probably meant."""
    names = HOOKS[hook]
    wanted = [
        *(["t"] if timed and hook not in ("scene", "inertia", "sections", "integrals", "starts") else []),
        *names,
    ]
    wanted = [*(["self"] if bound else []), *wanted, *([extra] if extra else [])]
    if takes(function, len(wanted)):
        return
    try:
        came = str(inspect.signature(function))
    except (TypeError, ValueError):
        came = "other arguments"
    hints = []
    if not timed and takes(function, len(wanted) + 1) and names:
        if hook in ("constraints", "frame", "holonomic", "offsets", "drift", "metric", "potential"):
            hints.append(
                "it is a function of the configuration alone"
                + (": its rows are multiplied by v" if hook == "constraints" else "")
            )
        hints.append(
            "where it depends on time, use da.RheonomicSystem, or da.system(..., rheonomic=True), and put t first"
        )
    elif timed:
        hints.append("the functions of a rheonomic system have t first")
    if extra:
        hints.append(f"with parameters= each function gets them as its last argument, {extra}")
    call = ", ".join(wanted)
    raise ValueError("; ".join([f"{label}.{hook} must take ({call}), but it takes {came}", *hints]))


def check_system(system: System) -> None:
    """Refuses a system whose description is malformed; no state is needed."""
    if isinstance(system, type):
        raise ValueError(f"expected a system, got the class {system.__name__}; make one: {system.__name__}()")
    if not isinstance(system, System):
        raise ValueError(
            f"expected a dalembert.System, got {type(system).__name__}; see dalembert.system(...)"
        )
    name = system.class_name
    if isinstance(system, GroupSystem) and not isinstance(system.group, Group):
        raise ValueError(f"{name}.group must be a Lie group such as groups.SO3(), got {system.group!r}")
    if isinstance(system, GroupSystem) and system.defines("lagrangian"):
        raise ValueError(
            f"{name} gives a lagrangian; a GroupSystem is described by inertia() or metric(g) and, where it has one, "
            "potential(g)"
        )
    if isinstance(system, GroupSystem) and system.own_metric == system.own_inertia:
        raise ValueError(
            f"{name} gives both inertia() and metric(g); keep metric(g) if the kinetic energy depends on the "
            "configuration, inertia() otherwise"
            if system.own_metric
            else f"{name} gives neither inertia() nor metric(g), the matrix of its kinetic energy; give inertia() if "
            "it does not depend on the configuration"
        )
    _check_hooks(system)
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
    _check_signature(system)
    _check_functions(system)
    m = lower(system)
    if m.given.isdisjoint(("lagrangian", "metric")):
        t = "t, " * (Trait.TIMED in m.traits)
        raise ValueError(f"{name} gives neither lagrangian({t}q, v) nor metric({t}q); define one of the two")
    if "lagrangian" in m.given and not m.given.isdisjoint(("metric", "potential")):
        raise ValueError(f"{name} gives both lagrangian and metric or potential; keep one description")
    system = current(as_arrays(system))
    for leaf in jax.tree.leaves(system):
        if not is_traced(leaf) and not np.all(np.isfinite(leaf)):
            raise ValueError(f"{name}: a parameter is NaN or infinite in {system}; give finite numbers")
    key = kind_of(system)
    if _known.find(key) is None:  # shapes depend on nothing else
        _check_shapes(lower(system))
        _known.keep(key, True)


_known = Recent(256)


def _check_hooks(system: System) -> None:
    """Checks the names and arguments of the functions of a user's class."""
    kind = type(system)
    own: dict[str, Any] = {}
    for base in kind.__mro__:
        if base.__module__.split(".")[:2] == ["dalembert", "model"] or not issubclass(base, System):
            continue  # classes of the library, and systems made from functions, which were checked when made
        own = {**vars(base), **own}
    if not own:
        return
    check_names(kind.__name__, own, lambda hook: hook in own or (hook != "inertia" and system.defines(hook)))
    for hook in HOOKS:
        function = inspect.getattr_static(kind, hook, None)  # the function as written; equinox wraps it
        function = getattr(function, "method", function)
        if hook in own and inspect.isfunction(function):
            check_arguments(kind.__name__, hook, function, system.timed)


def _check_signature(system: System) -> None:
    """Checks a declared signature, and that an indefinite metric comes with nothing that needs lengths."""
    name, signature, n = system.class_name, system.signature, system.velocity_dimension
    if signature is None:
        return
    whole = isinstance(signature, tuple) and all(type(x) is int and x >= 0 for x in signature)
    if not whole or len(signature) != 2 or sum(signature) != n:
        raise ValueError(
            f"{name}: signature must be two whole numbers, of positive and of negative eigenvalues of the mass matrix, "
            f"that add up to the {n} velocities, such as ({n - 1}, 1), written as a class attribute without a type; "
            f"got {signature!r}"
        )
    wrong = [x for x in ("lagrangian", "holonomic", "nonlinear") if system.defines(x)]
    if signature[1] and wrong:
        instead = (
            "metric(q) and potential(q)" if wrong[0] == "lagrangian" else "constraints linear in the velocity"
        )
        raise ValueError(
            f"{name} declares an indefinite metric, signature = {signature}, and gives {wrong[0]}, which is supported "
            f"for positive definite metrics alone; give {instead}"
        )


def _check_functions(system: System) -> None:
    """Checks that the functions are callable and that the functions of affine constraints come with constraints."""
    name = system.class_name
    for function in (*FUNCTIONS, "generators", "sections", "integrals", "starts", "at"):
        if not callable(getattr(system, function)):
            raise ValueError(
                f"{name}: {function} is a function of a system, but the class has a field of that name; "
                "rename the field"
            )
    m = lower(system)
    if "offsets" in m.given and "constraints" not in m.given:
        raise ValueError(
            f"{name} gives offsets, the b of A v = b, without constraints, the A; with a frame, give drift instead"
        )
    if "drift" in m.given and not m.constrained:
        raise ValueError(
            f"{name} gives a drift without constraints or a frame; without constraints every velocity is allowed"
        )
    if Trait.NONLINEAR in m.traits and system.defines("sections"):
        raise ValueError(
            f"{name} gives sections, whose momentum equations hold for constraints that are linear in the velocity, "
            "but also nonlinear(q, v); give conserved momenta as integrals() instead"
        )
    if {Trait.AFFINE, Trait.GROUP} <= m.traits:
        raise ValueError(
            f"{name}: affine constraints are not supported on groups; write the system in coordinates (Chart cannot "
            "help)"
        )


def shape_of(label: str, function: Callable, *arguments: Any, wanted: str = "one array") -> tuple[int, ...]:
    """The shape of the array that a user's function returns; refuses anything but one array of real numbers."""
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


def _check_shapes(system: Mechanics) -> None:
    n = system.velocity_dimension
    label, timed = system.class_name, Trait.TIMED in system.traits
    number = jax.dtypes.canonicalize_dtype(float)
    arrays = system.at(np.zeros((), number))
    q, v = (jax.ShapeDtypeStruct((size,), number) for size in (system.dimension, n))
    shapes: dict[str, tuple] = {}
    expected: list[tuple[str, tuple, Callable[[tuple], bool], str]] = [
        ("lagrangian", (q, v), lambda s: s == (), "a number (shape ())"),
        ("metric", (q,), lambda s: s == (n, n), f"a matrix of shape ({n}, {n})"),
        ("potential", (q,), lambda s: s == (), "a number (shape ())"),
        (
            "constraints",
            (q,),
            lambda s: len(s) == 2 and s[1] == n,
            f"shape (m, {n})",
        ),
        (
            "frame",
            (q,),
            lambda s: len(s) == 2 and s[0] == n and 0 < s[1] <= n,
            f"shape ({n}, r) with r <= {n}",
        ),
        (
            "generators",
            (q,),
            lambda s: len(s) == 2 and s[0] == n + timed,
            f"shape ({n + timed}, k), one column per generator{', its change of time first' * timed}",
        ),
        (
            "holonomic",
            (q,),
            lambda s: len(s) == 1 and s[0] > 0,
            "shape (k,) with k > 0, one number for each position constraint",
        ),
        (
            "nonlinear",
            (q, v),
            lambda s: len(s) == 1 and 0 < s[0] < n,
            f"shape (k,) with 0 < k < {n}, one number for each constraint",
        ),
        ("forces", (q, v), lambda s: s == (n,), f"shape ({n},)"),
        ("drift", (q,), lambda s: s == (n,), f"shape ({n},), a velocity"),
        (
            "offsets",
            (q,),
            lambda s: s == shapes["constraints"][:1],
            "one number for each of the one-forms",
        ),
    ]
    for name, arguments, fits, wanted in expected:
        if name in system.given or (name == "generators" and system.system.defines(name)):
            inertia = name == "metric" and getattr(system.system, "own_inertia", False)
            of = f"{label}.{'inertia' if inertia else name}"
            shapes[name] = shape_of(of, partial(arrays.own, name), *arguments)
            if not fits(shapes[name]):
                hint = {
                    "constraints": "; write each one-form as a row: jnp.array([[...]])",
                    "holonomic": "; write even a single one as an array: jnp.array([...])",
                    "nonlinear": "; write even a single one as an array: jnp.array([...])",
                }.get(name, "")
                raise ValueError(f"{of} must return {wanted}, got shape {shapes[name]}{hint}")
    if system.system.defines("sections"):
        _check_sections(arrays, jax.eval_shape(arrays.generators, q).shape[1], q)
    if "constraints" in shapes and "frame" in shapes:
        m, r = shapes["constraints"][0], shapes["frame"][1]
        if m + r < n:
            raise ValueError(
                f"{label}: {m} one-forms leave {n - m} directions free, but frame has {r} columns; "
                f"the two must add up to {n}"
            )
    free = shapes["frame"][1] if "frame" in shapes else n - shapes.get("constraints", (0,))[0]
    if "nonlinear" in shapes:
        number = shapes["nonlinear"][0] + shapes.get("holonomic", (0,))[0]
        if number >= free:
            raise ValueError(
                f"{label}: {number} nonlinear and position constraints leave no motion, because the linear ones leave "
                f"{free} directions free; give fewer"
            )
    if {"holonomic", "frame"} <= set(shapes) and shapes["holonomic"][0] >= free:
        raise ValueError(
            f"{label}: {shapes['holonomic'][0]} position constraints leave no motion, because the frame leaves {free} "
            "directions free; give fewer"
        )


def _check_sections(system: Mechanics, k: int, q: Any) -> None:
    """Checks that the sections map names to functions q -> (k,)."""
    label, sections = system.class_name, system.sections()
    if not isinstance(sections, Mapping):
        raise ValueError(f"{label}.sections must return a mapping of names to functions, got {sections!r}")
    for name, section in sections.items():
        of = f"{label}: the section {name!r}"
        if not callable(section):
            raise ValueError(f"{of} must be a function of q, got {section!r}")
        shape = shape_of(of, section, q)
        if shape != (k,):
            raise ValueError(f"{of} must return shape ({k},), one number per generator; got shape {shape}")
