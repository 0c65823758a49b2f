"""Reduced systems: systems like any other, that know what they were reduced from and how to go back."""

import dataclasses
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import RheonomicSystem, Symmetry, System, as_arrays, lower
from dalembert.numerics import jit_fast_compile
from dalembert.reduction import discrete
from dalembert.reduction.cases import Abelian, Case, Reduced, gyroscopic
from dalembert.reduction.reconstruction import project, reconstruct
from dalembert.simulation import Trajectory


class Note:
    """Words beside the numbers: two notes are always equal, so that other words compile nothing anew."""

    def __init__(self, text: str = ""):
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Note)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return repr(self.text)


class _Discrete(Reduced):
    """Its discrete mechanics, and the way to the full system and back."""

    note: Note

    @property
    def words(self) -> str:
        """What was reduced, and how."""
        return self.note.text

    @property
    def method(self) -> VariationalDLA | EDLA:
        """The reduced method: the full one with the reduced discrete Lagrangian and its forces."""
        rule = self.discrete
        return dataclasses.replace(
            self.rule,
            discrete_lagrangian=discrete.ReducedLagrangian(rule),
            discrete_constraint=discrete.ReducedConstraint(rule),
        )

    def project(self, q: Any, v: Any = None, t: Any = 0.0) -> Any:
        """Shape and reduced velocity of full states at time t, one or rows of them; of a full run the reduced run."""
        return project(self, q, v, t)

    def reconstruct(self, run: Trajectory, g0: Any = None) -> Trajectory:
        """The full run of a reduced one, from the group element g0; the identity where none is given.

        Where not every step was saved, those between two rows are made again from the first of the two.
        """
        return reconstruct(self, run, g0)

    def displacement(self, r0: Any, r1: Any, h: Any, t: Any = 0.0) -> Array:
        """F(r0, r1), the group element by which a step between two shapes moves."""
        return self._between(discrete.displacement, r0, r1, h, t)

    def lagrangian_hat(self, r0: Any, r1: Any, h: Any, t: Any = 0.0) -> Array:
        """The reduced discrete Lagrangian, the full one of the step by F(r0, r1)."""
        return self._between(discrete.reduced_value, r0, r1, h, t)

    def beta0(self, r0: Any, r1: Any, h: Any, t: Any = 0.0) -> Array:
        """The discrete force at the beginning of a step: D1 L + D2 L + beta0 + beta1 = 0, or the constraint's."""
        return self._between(discrete.forces, r0, r1, h, t)[0]

    def beta1(self, r0: Any, r1: Any, h: Any, t: Any = 0.0) -> Array:
        """The discrete force at the end of a step."""
        return self._between(discrete.forces, r0, r1, h, t)[1]

    def time_forces(self, r0: Any, r1: Any, h: Any, t: Any = 0.0) -> tuple[Array, Array]:
        """The forces on time at both ends, F^-_t and F^+_t; minus what stands beside beta0 and beta1."""
        return self._between(discrete.time_forces, r0, r1, h, t)

    def connection(self, q0: Any, q1: Any, h: Any, t: Any = 0.0) -> Array:
        """A_d(q0, q1) = g1 F(r0, r1)^-1 g0^-1, the discrete affine connection: e where the step is horizontal.

        Horizontal are the steps of the discrete constraint, or at a level those with its momentum. Where nothing is
        eliminated F = e, the connection of the coordinates.
        """
        q0, q1 = (jnp.asarray(x, float) for x in (q0, q1))
        group, (r0, g0), (r1, g1) = self.symmetry.group, self._parts(q0), self._parts(q1)
        f = group.identity() if isinstance(self.case, Abelian) else self.displacement(r0, r1, h, t)
        return group.multiply(group.multiply(g1, group.inverse(f)), group.inverse(g0))

    def alpha(self, q0: Any, q1: Any, h: Any, t: Any = 0.0) -> tuple[Array, Array, Array]:
        """The isomorphism (Q x Q)/G -> Q/G x Q/G x G: both shapes, and A_d of the pair moved to g0 = e.

        Of pairs that the group moves into each other it says the same; for abelian groups the last is A_d itself.
        """
        q0, q1 = (jnp.asarray(x, float) for x in (q0, q1))
        (r0, g0), (r1, _) = self._parts(q0), self._parts(q1)
        moved = self.connection(q0, q1, h, t)
        group = self.symmetry.group
        return r0, r1, group.multiply(group.multiply(group.inverse(g0), moved), g0)

    def alpha_inverse(self, r0: Any, r1: Any, g: Any, h: Any, t: Any = 0.0) -> tuple[Array, Array]:
        """The pair (q0, q1) with g0 = e that `alpha` takes to (r0, r1, g)."""
        r0, r1, g = (jnp.asarray(x, float) for x in (r0, r1, g))
        group = self.symmetry.group
        f = group.identity() if isinstance(self.case, Abelian) else self.displacement(r0, r1, h, t)
        return self.symmetry.section(self.full, r0), self.symmetry.join(self.full, r1, group.multiply(g, f))

    def phase(self, path: Any, h: Any = 1.0) -> Array:
        """The group element by which the path of shapes (K, k) moves: of a closed path the geometric phase.

        Each pair of rows is a step that satisfies the discrete constraint; h matters where the step's time does.
        """
        path = np.asarray(path, float)
        if path.ndim != 2 or path.shape[1] != self.dimension or len(path) < 2:  # pyright: ignore
            raise ValueError(
                f"phase needs a path of at least two shapes, one row ({', '.join(self.coordinates)}) each; got "
                f"shape {path.shape}"
            )
        if not np.all(np.isfinite(path)):
            raise ValueError("phase needs a path of finite numbers")
        if isinstance(self.case, Abelian):
            raise ValueError(
                "a path of shapes alone does not say how the group moves where nothing is eliminated"
            )
        return _phase(as_arrays(self), path, jnp.asarray(h, float))

    def _parts(self, q: Array) -> tuple[Array, Array]:
        return self.symmetry.shape(self.full, q), self.symmetry.element(self.full, q)

    def _between(self, function: Any, r0: Any, r1: Any, h: Any, t: Any) -> Any:
        if isinstance(self.case, Abelian):
            raise ValueError(
                "two shapes do not say how the group moves where nothing is eliminated: this needs a Chaplygin or a "
                "horizontal reduction"
            )
        r0, r1, h, t = (jnp.asarray(x, float) for x in (r0, r1, h, t))
        return _over(function)(as_arrays(self), r0, r1, h, t)

    def __repr__(self) -> str:
        return f"<{self.label}, {self.case.name}: {', '.join(self.coordinates)}>"


@cache
def _over(function: Any) -> Any:
    """The function of a step, compiled."""
    return jit_fast_compile(lambda core, r0, r1, h, t: function(core.at(t), r0, r1, h))


@jit_fast_compile
def _phase(core: Any, path: Array, h: Array) -> Array:
    group = core.symmetry.group

    def move(g, pair):
        return group.restore(
            group.multiply(g, discrete.displacement(core.at(0.0), pair[0], pair[1], h))
        ), None

    return jax.lax.scan(move, group.identity(), (path[:-1], path[1:]))[0]


class ReducedSystem(_Discrete, System):
    """A system without the group: its coordinates are the shape, its forces hold what the constraints do.

    `da.reduce` makes it. `da.simulate(reduced, reduced.method, r0, v0, ...)` runs the reduced method, Reference() the
    reduced equations of motion.
    """

    full: System
    symmetry: Symmetry
    case: Case
    rule: VariationalDLA | EDLA
    note: Note = eqx.field(default=Note(), static=True)

    def metric(self, q: Array) -> Array:
        return self.case.metric(self.symmetry, lower(self.full), q)

    def potential(self, q: Array) -> Array:
        return self.case.potential(self.symmetry, lower(self.full), q)

    def constraints(self, q: Array) -> Array:
        if not self.defines("constraints"):
            return System.constraints(self, q)
        return self.case.constraints(self.symmetry, lower(self.full), q)

    def offsets(self, q: Array) -> Array:
        return self.case.offsets(self.symmetry, lower(self.full), q)

    def forces(self, q: Array, v: Array) -> Array:
        return gyroscopic(lower(self), q, v) if self.defines("forces") else System.forces(self, q, v)


class ReducedRheonomicSystem(_Discrete, RheonomicSystem):
    """A system without the group that depends on time; see ReducedSystem."""

    full: System
    symmetry: Symmetry
    case: Case
    rule: VariationalDLA | EDLA
    note: Note = eqx.field(default=Note(), static=True)

    def metric(self, t: Array, q: Array) -> Array:
        return self.case.metric(self.symmetry, lower(self.full).at(t), q)

    def potential(self, t: Array, q: Array) -> Array:
        return self.case.potential(self.symmetry, lower(self.full).at(t), q)

    def constraints(self, t: Array, q: Array) -> Array:
        if not self.defines("constraints"):
            return RheonomicSystem.constraints(self, t, q)
        return self.case.constraints(self.symmetry, lower(self.full).at(t), q)

    def offsets(self, t: Array, q: Array) -> Array:
        return self.case.offsets(self.symmetry, lower(self.full).at(t), q)

    def forces(self, t: Array, q: Array, v: Array) -> Array:
        if not self.defines("forces"):
            return RheonomicSystem.forces(self, t, q, v)
        return gyroscopic(lower(self).at(t), q, v)
