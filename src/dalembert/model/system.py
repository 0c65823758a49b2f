"""Systems as values: a class to subclass, and the same from plain functions."""

from collections.abc import Callable, Mapping
from types import new_class
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model.groups import Group
from dalembert.numerics import is_traced

T = TypeVar("T")


@jax.jit
def _second_derivative(system: "System", q: Array) -> Array:
    """d2L/dv2 at v = 0; traced once, although a step asks for it many times."""
    return jax.hessian(system.lagrangian, argnums=1)(q, jnp.zeros_like(q))


class System(eqx.Module):
    """A mechanical system with velocity constraints; subclass it, or build one with `system`.

    Fields are parameters: numbers or arrays that may be differentiated and batched (mark anything else
    `eqx.field(static=True)`). Give `coordinates` and either `lagrangian(q, v)` or `metric(q)` and
    `potential(q)`; then `constraints(q)`, whose rows are one-forms with A(q) v = 0, or `frame(q)`, whose
    columns span the allowed velocities, or both. `forces(q, v)` adds non-conservative forces (a covector).
    """

    coordinates: ClassVar[tuple[str, ...]] = ()
    """One name a coordinate, in the order of q."""
    units: ClassVar[tuple[str, ...]] = ()
    """Optional units of the coordinates, as many as there are names."""
    angles: ClassVar[tuple[str, ...]] = ()
    """Coordinates of period 2 pi: runs keep them near zero inside, so that long rotations stay accurate."""

    group: ClassVar[Group | None] = None
    """The Lie group that configurations are elements of, for a GroupSystem; velocities are then the body's."""
    step: ClassVar[float | None] = None
    """A step size to start with, which the command line uses."""

    def lagrangian(self, q: Array, v: Array) -> Array:
        """Kinetic minus potential energy."""
        return 0.5 * jnp.sum(v * jnp.sum(self.metric(q) * v, axis=-1)) - self.potential(q)

    def metric(self, q: Array) -> Array:
        """The mass matrix M(q), from the Lagrangian where it is not given."""
        if not self.gives("lagrangian"):
            raise ValueError(
                f"{type(self).__name__} gives neither lagrangian(q, v) nor metric(q); define one of the two"
            )
        return _second_derivative(self, q)

    def potential(self, q: Array) -> Array:
        """The potential energy V(q), from the Lagrangian where it is not given; else zero."""
        if self.gives("lagrangian"):
            return -self.lagrangian(q, jnp.zeros_like(q))
        return jnp.zeros((), q.dtype)

    def constraints(self, q: Array) -> Array:
        """The matrix A(q), one row a one-form; no rows where the system has no constraint."""
        return jnp.zeros((0, self.velocity_dimension), q.dtype)

    def frame(self, q: Array) -> Array:
        """The matrix B(q) whose columns span the allowed velocities."""
        return jnp.eye(self.velocity_dimension, dtype=q.dtype)

    def forces(self, q: Array, v: Array) -> Array:
        """Non-conservative forces, a covector; none by default."""
        return jnp.zeros_like(v)

    def start(self, name: str | None = None) -> tuple[Array, Array]:
        """A start state (q0, v0) that the system recommends, by name; `starts` lists the names."""
        starts = self.starts()
        if not starts:
            raise ValueError(f"{type(self).__name__} has no start state of its own; give q0 and v0")
        if name is None:
            name = next(iter(starts))
        if name not in starts:
            raise ValueError(
                f"{type(self).__name__} has no start state {name!r}; choose one of: {', '.join(starts)}"
            )
        q0, v0 = starts[name]
        return jnp.asarray(q0, float), jnp.asarray(v0, float)

    def starts(self) -> Mapping[str, tuple[Any, Any]]:
        """The named start states, the first being the default."""
        return {}

    def integrals(self) -> Mapping[str, Callable[[Array, Array], Array]]:
        """Functions of (q, v) that the exact motion keeps, by name, beside the energy."""
        return {}

    def generators(self, q: Array) -> Array:
        """(n, k) infinitesimal generators xi_Q(q) of a symmetry group, one column a basis vector of its algebra."""
        return jnp.zeros((self.velocity_dimension, 0), q.dtype)

    def sections(self) -> Mapping[str, Callable[[Array], Array]]:
        """Functions q -> xi (k numbers) whose generators lie in D, by name: each has a momentum equation."""
        return {}

    @classmethod  # access to an ordinary method of a module takes ten times as long
    def gives(cls, name: str) -> bool:
        """Whether the subclass defines this function itself."""
        return getattr(cls, name) is not getattr(System, name)

    @property
    def constrained(self) -> bool:
        """Whether the system gives constraints, as one-forms or by a frame."""
        return self.gives("constraints") or self.gives("frame")

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return len(self.coordinates)

    @property
    def velocity_names(self) -> tuple[str, ...]:
        """One name a component of the velocity."""
        return self.coordinates

    @property
    def velocity_dimension(self) -> int:
        """The number of components of a velocity."""
        return len(self.velocity_names)


def system(
    *,
    coordinates: tuple[str, ...] | list[str],
    lagrangian: Callable | None = None,
    metric: Callable | None = None,
    potential: Callable | None = None,
    constraints: Callable | None = None,
    frame: Callable | None = None,
    forces: Callable | None = None,
    parameters: Mapping[str, Any] | None = None,
    units: tuple[str, ...] = (),
    angles: tuple[str, ...] = (),
    name: str = "System",
) -> System:
    """A system from plain functions of q (and v).

    With `parameters` (a mapping of numbers or arrays) each function gets that mapping as one more, last
    argument: `lagrangian(q, v, p)`. Such parameters can change, be differentiated and be batched without
    compiling anew; numbers captured in a closure cannot.
    """
    given = {
        "lagrangian": lagrangian,
        "metric": metric,
        "potential": potential,
        "constraints": constraints,
        "frame": frame,
        "forces": forces,
    }
    if not isinstance(coordinates, tuple | list):
        raise ValueError(f"coordinates must be a tuple of names such as ('x', 'theta'), got {coordinates!r}")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise ValueError(f"parameters must map names to numbers, such as {{'mass': 1.0}}, got {parameters!r}")
    for key, function in given.items():
        if function is not None and not callable(function):
            raise ValueError(f"{key} must be a function, got {type(function).__name__}")
    body: dict[str, Any] = {
        "coordinates": tuple(coordinates),
        "units": tuple(units) if isinstance(units, list) else units,
        "angles": tuple(angles) if isinstance(angles, list) else angles,
        "__doc__": f"{name}, made by dalembert.system.",
        "__module__": __name__,
    }

    def method(function: Callable) -> Callable:
        if parameters is None:
            return lambda self, *arguments: function(*arguments)
        return lambda self, *arguments: function(*arguments, self.parameters)

    body |= {key: method(function) for key, function in given.items() if function is not None}
    if parameters is None:
        return new_class(name, (System,), exec_body=lambda space: space.update(body))()
    body["__annotations__"] = {"parameters": dict}
    made = new_class(name, (System,), exec_body=lambda space: space.update(body))
    return made(dict(parameters))


def as_arrays(tree: T) -> T:
    """The same system or method with every parameter as a floating-point array, ready for compiled code.

    Arrays that are traced stay what they are, so derivatives pass through.
    """

    def convert(path, leaf):
        if isinstance(leaf, Array) and leaf.dtype == float:
            return leaf
        if not (is_traced(leaf) or np.asarray(leaf).dtype.kind in "fiub"):
            field = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(
                f"{type(tree).__name__}: the field {field} holds {leaf!r}, not a number; "
                "declare it with equinox.field(static=True)"
            )
        return jnp.asarray(leaf, float)

    return jax.tree_util.tree_map_with_path(convert, tree)
