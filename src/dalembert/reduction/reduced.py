"""Reduced systems, which are systems like any other and know how to return to the full system."""

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
    """A text kept beside the numbers. All notes are equal, so that a different text causes no recompilation."""

    def __init__(self, text: str = ""):
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Note)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return repr(self.text)


class _Discrete(Reduced):
    """The discrete mechanics of a reduced system, and the way to the full system and back."""

    note: Note
    whole: Symmetry | None

    @property
    def words(self) -> str:
        """A description of what was reduced, and how."""
        return self.note.text

    @property
    def method(self) -> VariationalDLA | EDLA:
        """The reduced method: the full method with the reduced discrete Lagrangian and its forces."""
        rule = self.discrete
        return dataclasses.replace(
            self.rule,
            discrete_lagrangian=discrete.ReducedLagrangian(rule),
            discrete_constraint=discrete.ReducedConstraint(rule),
        )

    def project(self, q: Any, v: Any = None, t: Any = 0.0) -> Any:
        """The shape and reduced velocity of a full state (q, v), or of rows of states, at time t.

        Given a full run as q, it is the reduced run. In a reduction in two stages, `full` is the result of the first
        one, and these are states and runs of `full.full`.
        """
        if self.whole is None:
            return project(self, q, v, t)
        first: Any = self.full
        found = first.project(q, v, t)
        r, change = (found, None) if isinstance(found, Trajectory) else found
        return project(self, r, change, t)

    def reconstruct(self, run: Trajectory, g0: Any = None) -> Trajectory:
        """The full run of a reduced run, from the group element g0, by default the identity.

        If not every step was saved, the steps between two rows are replayed from the first of the two.
        """
        if self.whole is None:
            return reconstruct(self, run, g0)
        first: Any = self.full
        if g0 is None:
            return first.reconstruct(reconstruct(self, run, None), None)
        given = np.asarray(g0, float)
        if given.shape != (self.whole.group.size,):
            raise ValueError(
                f"reconstruct: g0 must be an element of {self.whole.group.name}, ({', '.join(self.whole.on)}); got "
                f"{given.tolist()}"
            )
        ours, theirs = (
            given[[self.whole.on.index(x) for x in part.on]] for part in (self.symmetry, first.symmetry)
        )
        return first.reconstruct(reconstruct(self, run, ours), theirs)

    def displacement(self, r0: Any, r1: Any, h: Any, t: Any = 0.0) -> Array:
        """F(r0, r1), the group element of a step between two shapes."""
        return self._between(discrete.displacement, r0, r1, h, t)

    def lagrangian_hat(self, r0: Any, r1: Any, h: Any, t: Any = 0.0, g: Any = None) -> Array:
        """The reduced discrete Lagrangian: the full one of the step with group element F(r0, r1).

        In an abelian reduction it also depends on the part g of `alpha`, and is that of the step with element g F.
        """
        return self._between(discrete.reduced_value, r0, r1, h, t, g)

    def beta0(self, r0: Any, r1: Any, h: Any, t: Any = 0.0, g: Any = None) -> Array:
        """The discrete force at the beginning of a step; in an abelian reduction it also depends on g.

        The reduced equations are D1 L + D2 L + beta0 + beta1 = 0, or the reaction of the constraints that are left.
        """
        return self._between(discrete.forces, r0, r1, h, t, g)[0]

    def beta1(self, r0: Any, r1: Any, h: Any, t: Any = 0.0, g: Any = None) -> Array:
        """The discrete force at the end of a step; in an abelian reduction it also depends on g."""
        return self._between(discrete.forces, r0, r1, h, t, g)[1]

    def momentum_hat(self, r0: Any, r1: Any, h: Any, t: Any = 0.0, g: Any = None) -> Array:
        """d_f ell, the discrete momentum of the group with which a step ends, as seen from the group element there.

        The reduced equations of an abelian reduction keep its components along g^q from step to step.
        """
        return self._between(discrete.momentum, r0, r1, h, t, g)

    def time_forces(self, r0: Any, r1: Any, h: Any, t: Any = 0.0) -> tuple[Array, Array]:
        """The forces on time at both ends, F^-_t and F^+_t, with the opposite sign to that of beta0 and beta1."""
        return self._between(discrete.time_forces, r0, r1, h, t)

    def connection(self, q0: Any, q1: Any, h: Any, t: Any = 0.0) -> Array:
        """A_d(q0, q1) = g1 F(r0, r1)^-1 g0^-1, the discrete affine connection, which is e if the step is horizontal.

        A step is horizontal if it satisfies the discrete constraint or, at a level, has the momentum of the level. In
        an abelian reduction nothing is eliminated: A_d is the given connection, or that of the coordinates, with F = e.
        """
        q0, q1 = (jnp.asarray(x, float) for x in (q0, q1))
        group, (r0, g0), (r1, g1) = self.symmetry.group, self._parts(q0), self._parts(q1)
        f = self.displacement(r0, r1, h, t)
        return group.multiply(group.multiply(g1, group.inverse(f)), group.inverse(g0))

    def alpha(self, q0: Any, q1: Any, h: Any, t: Any = 0.0) -> tuple[Array, Array, Array]:
        """The isomorphism (Q x Q)/G -> Q/G x Q/G x G: both shapes, and A_d of the pair moved to g0 = e.

        Pairs that the group moves into each other have the same image. For abelian groups the last part is A_d itself.
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
        f = self.displacement(r0, r1, h, t)
        return self.symmetry.section(self.full, r0), self.symmetry.join(self.full, r1, group.multiply(g, f))

    def phase(self, path: Any, h: Any = 1.0) -> Array:
        """The group element by which a path of shapes (K, k) moves, which is the geometric phase of a closed path.

        Each pair of rows is a step that satisfies the discrete constraint. h matters only if the time of a step does.
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

    def _between(self, function: Any, r0: Any, r1: Any, h: Any, t: Any, g: Any = None) -> Any:
        r0, r1, h, t = (jnp.asarray(x, float) for x in (r0, r1, h, t))
        abelian = isinstance(self.case, Abelian)
        if not abelian and g is not None:
            raise ValueError(f"the shapes determine the step of a {self.case.name} reduction; leave out g")
        if not abelian or function is discrete.displacement:
            return _over(function)(as_arrays(self), r0, r1, h, t)
        if g is None or function is discrete.time_forces:
            raise ValueError(
                "two shapes do not say how the group moves where nothing is eliminated: this needs the part g of "
                "alpha(q0, q1, h) as well, or a Chaplygin or a horizontal reduction"
            )
        return _over_group(function)(as_arrays(self), r0, r1, h, t, jnp.asarray(g, float))

    def __repr__(self) -> str:
        return f"<{self.label}, {self.case.name}: {', '.join(self.coordinates)}>"


@cache
def _over(function: Any) -> Any:
    """The compiled function of a step."""
    return jit_fast_compile(lambda core, r0, r1, h, t: function(core.at(t), r0, r1, h))


@cache
def _over_group(function: Any) -> Any:
    """The compiled function of a step and the group's part of it."""
    return jit_fast_compile(lambda core, r0, r1, h, t, g: function(core.at(t), r0, r1, h, g))


@jit_fast_compile
def _phase(core: Any, path: Array, h: Array) -> Array:
    group = core.symmetry.group

    def move(g, pair):
        return group.restore(
            group.multiply(g, discrete.displacement(core.at(0.0), pair[0], pair[1], h))
        ), None

    return jax.lax.scan(move, group.identity(), (path[:-1], path[1:]))[0]


class ReducedSystem(_Discrete, System):
    """A system without the group: its coordinates are the shape, and its forces include the effect of the constraints.

    `da.reduce` makes it. `da.simulate(reduced, reduced.method, r0, v0, ...)` runs the reduced method. `Reference()`
    solves the reduced equations of motion.
    """

    full: System
    symmetry: Symmetry
    case: Case
    rule: VariationalDLA | EDLA
    note: Note = eqx.field(default=Note(), static=True)
    whole: Symmetry | None = None
    """The group of both stages, if this is the second one of a reduction in two stages."""

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
    """A reduced system that depends on time; see ReducedSystem."""

    full: System
    symmetry: Symmetry
    case: Case
    rule: VariationalDLA | EDLA
    note: Note = eqx.field(default=Note(), static=True)
    whole: Symmetry | None = None
    """The group of both stages, if this is the second one of a reduction in two stages."""

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
