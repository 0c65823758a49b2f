"""Systems as values: a class to subclass."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model.groups import Group
from dalembert.numerics import Recipe, current, is_traced

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
    Affine constraints A(q) v = b(q) are given by `offsets(q)`, which is b, or by `drift(q)`, one velocity that
    satisfies them; where the functions depend on time, see RheonomicSystem.
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
    recipe: ClassVar[Recipe | None] = None
    """Of a system made by `dalembert.system`, what it was made from: another process makes it anew."""
    timed: ClassVar[bool] = False
    """Whether the functions depend on time: those of a RheonomicSystem do."""

    def lagrangian(self, q: Array, v: Array) -> Array:
        """Kinetic minus potential energy."""
        return 0.5 * jnp.sum(v * jnp.sum(self.metric(q) * v, axis=-1)) - self.potential(q)

    def metric(self, q: Array) -> Array:
        """The mass matrix M(q), from the Lagrangian where it is not given."""
        if not self.gives("lagrangian"):
            raise ValueError(
                f"{type(self).__name__} gives neither lagrangian(q, v) nor metric(q); define one of the two"
            )
        return _second_derivative(current(self), q)

    def potential(self, q: Array) -> Array:
        """The potential energy V(q), from the Lagrangian where it is not given; else zero."""
        if self.gives("lagrangian"):
            return -self.lagrangian(q, jnp.zeros_like(q))
        return jnp.zeros((), q.dtype)

    def constraints(self, q: Array) -> Array:
        """The matrix A(q), one row per one-form; no rows where the system has no constraint."""
        return jnp.zeros((0, self.velocity_dimension), q.dtype)

    def frame(self, q: Array) -> Array:
        """The matrix B(q) whose columns span the allowed velocities."""
        return jnp.eye(self.velocity_dimension, dtype=q.dtype)

    def offsets(self, q: Array) -> Array:
        """b(q) of affine constraints A(q) v = b(q), one number a one-form; zero by default."""
        return jnp.zeros(self.constraints(q).shape[0], q.dtype)

    def drift(self, q: Array) -> Array:
        """A velocity Z(q) that satisfies affine constraints: the allowed velocities are Z(q) + D."""
        return jnp.zeros(self.velocity_dimension, q.dtype)

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

    def scene(self, t: Array, q: Array) -> list[Any]:
        """What the system looks like at time t, as parts of `dalembert.scene`; a particle or a block by default."""
        from dalembert.model.default_scene import (
            default_scene,
        )  # it needs the geometry, which needs this file

        return default_scene(self, t, q)

    @classmethod  # access to an ordinary method of a module takes ten times as long
    def gives(cls, name: str) -> bool:
        """Whether the subclass defines this function itself."""
        return getattr(cls, name) is not getattr(System, name)

    @property
    def constrained(self) -> bool:
        """Whether the system gives constraints, as one-forms or by a frame."""
        return self.gives("constraints") or self.gives("frame")

    @property
    def affine(self) -> bool:
        """Whether the constraints are affine, A(q) v = b(q), and not linear."""
        return self.gives("offsets") or self.gives("drift")

    def at(self, t: Any) -> "System":
        """The system as it is at time t, with functions of q and v alone: itself, where nothing depends on time."""
        return self

    @property
    def label(self) -> str:
        """The name for messages; it says so where the system has no constraints, which may be a mistake."""
        return self.class_name + " (no constraints)" * (not self.constrained)

    @property
    def class_name(self) -> str:
        """The name of the class, for messages about its functions."""
        return type(self).__name__

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


def as_arrays(tree: T) -> T:
    """The same system or method with every parameter as a floating-point array, ready for compiled code.

    Arrays that are traced stay what they are, so derivatives pass through.
    """

    def convert(path, leaf):
        if isinstance(leaf, Array) and leaf.dtype == float:
            return leaf
        if is_traced(leaf):
            return jnp.asarray(leaf, float)
        if np.asarray(leaf).dtype.kind not in "fiub":
            field = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(
                f"{type(tree).__name__}: the field {field} holds {leaf!r}, not a number; "
                "declare it with equinox.field(static=True)"
            )
        return np.asarray(leaf, float)

    found, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves = [convert(path, leaf) for path, leaf in found]
    plain = [k for k, x in enumerate(leaves) if isinstance(x, np.ndarray)]
    if plain:  # all at once: each alone would take as long
        for k, x in zip(plain, jax.device_put([leaves[k] for k in plain]), strict=True):
            leaves[k] = x
    return structure.unflatten(leaves)
