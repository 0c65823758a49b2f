"""Systems whose functions depend on time."""

# pyright: reportIncompatibleMethodOverride=false

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from dalembert.model.system import System


class RheonomicSystem(System):
    """A system whose functions have the time as one more, first argument.

    Give `lagrangian(t, q, v)`, or `metric(t, q)` and `potential(t, q)`; then `constraints(t, q)` or `frame(t, q)`,
    with `offsets(t, q)` or `drift(t, q)` where the constraints are affine, A(t, q) v = b(t, q); `forces(t, q, v)`.
    The papers' omega(t, q) v + omega0(t, q) = 0 has A = omega and b = -omega0. `generators(t, q)` has one more
    row, first, for the time that a symmetry adds, and `sections` are functions of (t, q).
    """

    timed: ClassVar[bool] = True

    def lagrangian(self, t: Array, q: Array, v: Array) -> Array:
        """Kinetic minus potential energy."""
        return System.lagrangian(self.at(t), q, v)

    def metric(self, t: Array, q: Array) -> Array:
        """The mass matrix M(t, q), from the Lagrangian where it is not given."""
        return System.metric(self.at(t), q)

    def potential(self, t: Array, q: Array) -> Array:
        """The potential energy V(t, q), from the Lagrangian where it is not given; else zero."""
        return System.potential(self.at(t), q)

    def constraints(self, t: Array, q: Array) -> Array:
        """The matrix A(t, q), one row per one-form."""
        return System.constraints(self.at(t), q)

    def frame(self, t: Array, q: Array) -> Array:
        """The matrix B(t, q) whose columns span D."""
        return System.frame(self.at(t), q)

    def offsets(self, t: Array, q: Array) -> Array:
        """b(t, q) of affine constraints A v = b; zero by default."""
        return System.offsets(self.at(t), q)

    def drift(self, t: Array, q: Array) -> Array:
        """A velocity Z(t, q) that satisfies affine constraints."""
        return System.drift(self.at(t), q)

    def forces(self, t: Array, q: Array, v: Array) -> Array:
        """Non-conservative forces, a covector; none by default."""
        return System.forces(self.at(t), q, v)

    def generators(self, t: Array, q: Array) -> Array:
        """(1 + n, k) infinitesimal generators of a symmetry group; the first row is the change of time."""
        return jnp.zeros((1 + self.dimension, 0), q.dtype)

    @classmethod
    def gives(cls, name: str) -> bool:
        """Whether the subclass defines this function itself."""
        return getattr(cls, name) is not getattr(RheonomicSystem, name)

    def at(self, t: Any) -> "Moment":
        """The system as it is at time t, with functions of q and v alone."""
        return Moment(self, jnp.asarray(t))


class Moment(System):
    """A rheonomic system as it is at one time."""

    system: RheonomicSystem
    t: Array = eqx.field(converter=jnp.asarray)

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the system."""
        return self.system.coordinates

    @property
    def angles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the system."""
        return self.system.angles

    @property
    def units(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the system."""
        return self.system.units

    @property
    def velocity_names(self) -> tuple[str, ...]:
        """Those of the system."""
        return self.system.velocity_names

    @property
    def label(self) -> str:
        return self.system.label

    @property
    def class_name(self) -> str:
        return self.system.class_name

    def gives(self, name: str) -> bool:
        return self.system.gives(name)

    def lagrangian(self, q: Array, v: Array) -> Array:
        return self.system.lagrangian(self.t, q, v)

    def metric(self, q: Array) -> Array:
        return self.system.metric(self.t, q)

    def potential(self, q: Array) -> Array:
        return self.system.potential(self.t, q)

    def constraints(self, q: Array) -> Array:
        return self.system.constraints(self.t, q)

    def frame(self, q: Array) -> Array:
        return self.system.frame(self.t, q)

    def offsets(self, q: Array) -> Array:
        return self.system.offsets(self.t, q)

    def drift(self, q: Array) -> Array:
        return self.system.drift(self.t, q)

    def forces(self, q: Array, v: Array) -> Array:
        return self.system.forces(self.t, q, v)

    def generators(self, q: Array) -> Array:
        """(1 + n, k), the change of time first."""
        return self.system.generators(self.t, q)

    def sections(self) -> Mapping[str, Callable[[Array], Array]]:
        def now(section: Any) -> Any:
            return (lambda q: section(self.t, q)) if callable(section) else section

        given = self.system.sections()
        return (
            {name: now(section) for name, section in given.items()} if isinstance(given, Mapping) else given
        )


def later(system: System, h: Array) -> System:
    """The system a time h later; itself, where nothing depends on time."""
    return system.system.at(system.t + h) if isinstance(system, Moment) else system
