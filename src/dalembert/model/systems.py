"""Systems: the classes that users write, and the one immutable value that everything else reads."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.groups import Group
from dalembert.groups.flat import Coordinates
from dalembert.model.traits import Trait, traits_of
from dalembert.numerics import (
    Recipe,
    Renamed,
    balancing_units,
    current,
    is_syntactically_constant,
    is_traced,
    matmul,
    matvec,
    negative_eigenvalues,
    null_space,
    repeated,
    solve,
    solve_spd,
)

T = TypeVar("T")


class Kept(NamedTuple):
    """The constraints from which all others follow, by their indices."""

    forms: tuple[int, ...]
    positions: tuple[int, ...]

    def of(self, name: str, values: Array) -> Array:
        """Those of the values of a function of the system that belong to these constraints."""
        chosen = {"constraints": self.forms, "offsets": self.forms, "holonomic": self.positions}.get(name)
        if chosen is None or len(chosen) == values.shape[0]:
            return values
        return jnp.stack([values[i] for i in chosen]) if chosen else values[:0]


class System(eqx.Module):
    """A mechanical system with velocity constraints; subclass it, or build one with `system`.

    Fields are parameters: numbers or arrays that may be differentiated and batched. Mark any other field
    `eqx.field(static=True)`. Give `coordinates` and either `lagrangian(q, v)` or `metric(q)` and `potential(q)`. Then
    give `constraints(q)`, whose rows are one-forms with A(q) v = 0, or `frame(q)`, whose columns span the allowed
    velocities, or both. `holonomic(q)` gives position constraints c(q) = 0 beside them, or alone; the motion then also
    satisfies dc(q) v = 0. `nonlinear(q, v)` gives constraints f(q, v) = 0 that are not linear in v; their reactions are
    multiples of df/dv, which is Chetaev's rule, a postulate. `forces(q, v)` adds non-conservative forces (a covector).
    For affine constraints A(q) v = b(q), give b as `offsets(q)`, or give one velocity that satisfies them as
    `drift(q)`. If the functions depend on time, see RheonomicSystem.
    """

    coordinates: ClassVar[tuple[str, ...]] = ()
    """One name per coordinate, in the order of q."""
    units: ClassVar[tuple[str, ...]] = ()
    """Optional units, one per coordinate."""
    angles: ClassVar[tuple[str, ...]] = ()
    """Coordinates of period 2 pi. Runs keep them near zero internally, so that long rotations stay accurate."""

    group: ClassVar[Group | None] = None
    """For a GroupSystem, the Lie group whose elements are the configurations; velocities are then body velocities."""
    step: ClassVar[float | None] = None
    """A step size to start with, which the command line uses."""
    recipe: ClassVar[Recipe | None] = None
    """What a system made by `dalembert.system` was made from, with which another process can make it again."""
    signature: ClassVar[tuple[int, int] | None] = None
    """For a mass matrix that is meant to be indefinite (a pseudo-Riemannian metric): how many of its eigenvalues are
    positive and how many negative, such as (2, 1). Without it, a mass matrix must be positive definite."""
    timed: ClassVar[bool] = False
    """Whether the functions depend on time, as the functions of a RheonomicSystem do."""
    kept: ClassVar[Kept | None] = None
    """The constraints from which the others follow, if some do; `independent_rows` makes a system that says so."""

    def lagrangian(self, q: Array, v: Array) -> Array:
        """Kinetic minus potential energy."""
        return lower(self).lagrangian(q, v)

    def metric(self, q: Array) -> Array:
        """The mass matrix M(q), computed from the Lagrangian if it is not given."""
        return lower(self).metric(q)

    def potential(self, q: Array) -> Array:
        """The potential energy V(q), computed from the Lagrangian if it is not given; zero if there is neither."""
        return lower(self).potential(q)

    def constraints(self, q: Array) -> Array:
        """The matrix A(q), one row per one-form; it has no rows if the system has no constraints."""
        return jnp.zeros((0, self.velocity_dimension), q.dtype)

    def frame(self, q: Array) -> Array:
        """The matrix B(q) whose columns span the allowed velocities."""
        return jnp.eye(self.velocity_dimension, dtype=q.dtype)

    def holonomic(self, q: Array) -> Array:
        """c(q) of position constraints c(q) = 0, one number each; none by default."""
        return lower(self).holonomic(q)

    def nonlinear(self, q: Array, v: Array) -> Array:
        """f(q, v) of constraints f(q, v) = 0 that are not linear in v, one number each; none by default."""
        return lower(self).nonlinear(q, v)

    def offsets(self, q: Array) -> Array:
        """b(q) of affine constraints A(q) v = b(q), one number per one-form; by default A Z if a drift Z is given, else
        zero."""
        return lower(self).offsets(q)

    def drift(self, q: Array) -> Array:
        """A velocity Z(q) that satisfies affine constraints: the allowed velocities are Z(q) + D.

        If only offsets are given, it is the shortest such velocity in the kinetic metric. It is zero if the
        constraints are linear.
        """
        return lower(self).drift(q)

    def forces(self, q: Array, v: Array) -> Array:
        """Non-conservative forces, a covector; none by default."""
        return lower(self).forces(q, v)

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
        """Functions of (q, v), by name, that the exact motion conserves in addition to the energy."""
        return {}

    def generators(self, q: Array) -> Array:
        """The infinitesimal generators xi_Q(q) of a symmetry group, shape (n, k): one column per basis vector of its
        algebra."""
        return jnp.zeros((self.velocity_dimension, 0), q.dtype)

    def sections(self) -> Mapping[str, Callable[[Array], Array]]:
        """Functions q -> xi (k numbers), by name, whose generators lie in D. Each has a momentum equation."""
        return {}

    def scene(self, t: Array, q: Array) -> list[Any]:
        """The parts of `dalembert.scene` that show the system at time t; a particle or a block by default."""
        from dalembert.model.fallback_scene import default_scene  # drawn rarely, so it is imported when it is

        return default_scene(lower(self), t, q)

    gives = Renamed("defines")

    @classmethod  # accessing an ordinary method of an equinox module takes ten times as long
    def defines(cls, name: str) -> bool:
        """Whether the subclass defines this function itself."""
        return getattr(cls, name) is not getattr(System, name)

    @property
    def constrained(self) -> bool:
        """Whether the system gives constraints: one-forms, a frame, position constraints or nonlinear ones."""
        return any(self.defines(name) for name in CONSTRAINTS)

    @property
    def affine(self) -> bool:
        """Whether the constraints are affine, A(q) v = b(q), rather than linear."""
        return self.defines("offsets") or self.defines("drift")

    def at(self, t: Any) -> "Mechanics":
        """The system at time t, as functions of q and v alone."""
        return lower(self).at(t)

    @property
    def label(self) -> str:
        """The name for messages. It says if the system has no constraints, which may be a mistake."""
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
        """One name per component of the velocity."""
        return self.coordinates

    @property
    def velocity_dimension(self) -> int:
        """The number of components of a velocity."""
        return len(self.velocity_names)


FUNCTIONS = (
    "lagrangian",
    "metric",
    "potential",
    "constraints",
    "frame",
    "holonomic",
    "nonlinear",
    "offsets",
    "drift",
    "forces",
)
"""The functions that describe a system."""
CONSTRAINTS = ("constraints", "frame", "holonomic", "nonlinear")
"""Those that restrict the motion."""


class Chord(NamedTuple):
    """One-forms, and the values that they must have on the velocity."""

    slopes: Array
    rates: Array


class Mechanics(eqx.Module):
    """A system at time t, with everything that follows from what its user gave.

    `lower` makes it and decides what kind of system it is: its `traits`. Functions take the configuration q and the
    velocity v; on a Lie group these are an element and a body velocity. If the system depends on time, the functions
    are taken at `t`, which `at(t)` sets. Each missing part is computed from its counterpart: the Lagrangian from metric
    and potential or vice versa, the one-forms from the frame or vice versa, the drift from the offsets or vice versa.
    The derivatives of position constraints c(q) = 0 are one-forms like those that the user gave, and come after them.
    """

    system: System
    """The user's system, with its parameters."""
    t: Any
    """The time, an array; None if nothing depends on it, or if it has not been set."""
    traits: frozenset[Trait] = eqx.field(static=True)
    given: frozenset[str] = eqx.field(static=True)
    """The functions that the user gave."""
    chord: "Chord | None" = None
    """What takes the place of the derivatives of the position constraints, if it is not these derivatives."""
    whole: bool = eqx.field(static=True, default=False)
    """Whether constraints that follow from others are among the rows; otherwise only those that the system keeps."""

    def at(self, t: Any) -> "Mechanics":
        """The same system at time t; the system itself if nothing depends on time."""
        if Trait.TIMED not in self.traits:
            return self
        return Mechanics(self.system, t, self.traits, self.given, None, self.whole)

    def with_traits(self, more: Iterable[Trait]) -> "Mechanics":
        """The same system with more traits."""
        return Mechanics(self.system, self.t, self.traits | frozenset(more), self.given, None, self.whole)

    @property
    def redundant(self) -> bool:
        """Whether some constraints are left out because they follow from the others."""
        return self.system.kept is not None and not self.whole

    def with_all_rows(self) -> "Mechanics":
        """The same system with all constraints, also those that follow from others."""
        if not self.redundant:
            return self
        return Mechanics(self.system, self.t, self.traits, self.given, self.chord, True)

    def across(self, slopes: Array, rates: Array) -> "Mechanics":
        """The same system with slopes v = rates in place of the derivative of its position constraints.

        A method that takes the slopes from two configurations satisfies the position constraints themselves.
        """
        return Mechanics(self.system, self.t, self.traits, self.given, Chord(slopes, rates))

    def later(self, h: Any) -> "Mechanics":
        """The same system, a time h later."""
        return self.at(None if self.t is None else self.t + h)

    def own(self, name: str, *arguments: Array) -> Array:
        """The value of a function that the user gave."""
        if Trait.TIMED in self.traits:
            if self.t is None:
                raise ValueError(
                    f"{self.label} depends on time: set it with at(t) before asking for its {name}"
                )
            arguments = (self.t, *arguments)
        found = repeated(name, lambda system, *x: getattr(system, name)(*x), self.system, *arguments)
        return self.system.kept.of(name, found) if self.redundant else found  # pyright: ignore[reportOptionalMemberAccess]

    def lagrangian(self, q: Array, v: Array) -> Array:
        """The Lagrangian that the user gave, or else kinetic minus potential energy."""
        if "lagrangian" in self.given:
            return self.own("lagrangian", q, v)
        return 0.5 * jnp.sum(v * matvec(self.metric(q), v)) - self.potential(q)

    def metric(self, q: Array) -> Array:
        """The mass matrix M(q)."""
        if "metric" in self.given:
            return self.own("metric", q)
        if "lagrangian" not in self.given:
            raise ValueError(
                f"{self.class_name} gives neither lagrangian(q, v) nor metric(q); define one of the two"
            )
        return _second_derivative(current(self), q)

    def momentum(self, q: Array, v: Array) -> Array:
        """dL/dv, a covector."""
        if "lagrangian" in self.given:
            return jax.grad(self.lagrangian, argnums=1)(q, v)
        return matvec(self.metric(q), v)

    def hessian(self, q: Array, v: Array) -> Array:
        """d2L/dv2 at (q, v), which differs from the metric if the Lagrangian is not quadratic in v."""
        if "lagrangian" in self.given:
            return jax.hessian(self.lagrangian, argnums=1)(q, v)
        return self.metric(q)

    def potential(self, q: Array) -> Array:
        """The potential energy V(q); zero if there is none."""
        if "potential" in self.given:
            return self.own("potential", q)
        if "lagrangian" in self.given:
            return -self.lagrangian(q, jnp.zeros(self.velocity_dimension, q.dtype))
        return jnp.zeros((), q.dtype)

    def potential_gradient(self, q: Array) -> Array:
        """grad V(q), a covector on velocities."""
        return self.space.gradient(self.potential, q)

    def potential_hessian(self, q: Array) -> Array:
        """The second derivative of V, at q and in coordinates of the algebra on a group."""
        if Trait.GROUP not in self.traits:
            return jax.hessian(self.potential)(q)
        zero = jnp.zeros(self.velocity_dimension, q.dtype)
        return jax.hessian(lambda x: self.potential(self.space.displaced(q, x)))(zero)

    def forces(self, q: Array, v: Array) -> Array:
        """Non-conservative forces, a covector."""
        return self.own("forces", q, v) if "forces" in self.given else jnp.zeros_like(v)

    def holonomic(self, q: Array) -> Array:
        """c(q) of the position constraints c(q) = 0; no numbers if there are none."""
        return self.own("holonomic", q) if "holonomic" in self.given else jnp.zeros(0, q.dtype)

    def slopes(self, q: Array) -> Array:
        """dc(q), one row per position constraint."""
        if self.chord is not None:
            return self.chord.slopes
        if not jax.eval_shape(self.holonomic, q).shape[0]:
            return jnp.zeros((0, self.velocity_dimension), q.dtype)
        return self.space.gradient(self.holonomic, q)

    def velocity_rows(self, q: Array) -> Array:
        """The one-forms that do not come from position constraints."""
        if "constraints" in self.given:
            return self.own("constraints", q)
        if "frame" in self.given:
            return null_space(self.own("frame", q).T).T
        return jnp.zeros((0, self.velocity_dimension), q.dtype)

    def rows(self, q: Array) -> Array:
        """A(q), one row per one-form that vanishes on D; those of position constraints come last."""
        found = self.velocity_rows(q)
        return jnp.concatenate([found, self.slopes(q)]) if Trait.HOLONOMIC in self.traits else found

    constraints = Renamed("rows")

    def frame(self, q: Array) -> Array:
        """B(q), whose columns span D."""
        self.refuse_nonlinear()
        if "frame" in self.given:
            found = self.own("frame", q)
            if Trait.HOLONOMIC not in self.traits:
                return found
            return matmul(found, null_space(matmul(self.slopes(q), found)))
        if self.constrained:
            return null_space(self.rows(q))
        return jnp.eye(self.velocity_dimension, dtype=q.dtype)

    def offsets(self, q: Array) -> Array:
        """b(q) of constraints A v = b, one number per row of A."""
        if "offsets" in self.given:
            found = self.own("offsets", q)
        else:
            a = self.velocity_rows(q)
            found = (
                matvec(a, self.own("drift", q)) if "drift" in self.given else jnp.zeros(a.shape[0], q.dtype)
            )
        return jnp.concatenate([found, self.rates(q)]) if Trait.HOLONOMIC in self.traits else found

    def rates(self, q: Array) -> Array:
        """-dc/dt at constant q, one number per position constraint, to which dc v must be equal."""
        if self.chord is not None:
            return self.chord.rates
        if Trait.TIMED not in self.traits:
            return jnp.zeros_like(self.holonomic(q))
        t = jnp.asarray(self.t, q.dtype)
        return -jax.jvp(lambda s: self.at(s).holonomic(q), (t,), (jnp.ones_like(t),))[1]

    def drift(self, q: Array) -> Array:
        """A velocity Z(q) that satisfies A v = b: the given one, or else the shortest in the kinetic metric."""
        if "drift" in self.given and Trait.HOLONOMIC not in self.traits:
            return self.own("drift", q)
        if Trait.AFFINE not in self.traits:
            return jnp.zeros(self.velocity_dimension, q.dtype)
        a = self.rows(q)
        z = self.solved(self.metric(q), a.T)
        return matvec(z, self.solved(matmul(a, z), self.offsets(q)))

    def solved(self, a: Array, b: Array) -> Array:
        """The solution x of a x = b for a matrix that the metric makes: M, A M^-1 A^T or B^T M B.

        These are positive definite, unless the metric is indefinite.
        """
        return solve(a, b) if Trait.INDEFINITE in self.traits else solve_spd(a, b)

    def measure(self, mass: Array) -> Array:
        """The definite matrix that measures velocities where the metric is `mass`: the metric itself, or if it is
        indefinite, the diagonal matrix of the units in which no entry of the metric exceeds one."""
        if Trait.INDEFINITE not in self.traits:
            return mass
        return jnp.eye(mass.shape[0], dtype=mass.dtype) * balancing_units(mass) ** 2

    def negative_directions(self, q: Array) -> Array:
        """How many eigenvalues of the metric are negative: on all velocities, and on D if a frame is given, otherwise
        on the complement of D. A number changes where the metric becomes degenerate on these velocities."""
        mass = self.metric(q)
        if not self.constrained:
            return jnp.stack([negative_eigenvalues(mass), jnp.zeros((), mass.dtype)])
        if self.framed:
            b = self.frame(q)
            part = matmul(b.T, matmul(mass, b))
        else:
            a = self.rows(q)
            part = matmul(a, self.solved(mass, a.T))
        return jnp.stack([negative_eigenvalues(mass), negative_eigenvalues(part)])

    def nonlinear(self, q: Array, v: Array) -> Array:
        """f(q, v) of the constraints f(q, v) = 0 that are not linear in v; no numbers if there are none."""
        return self.own("nonlinear", q, v) if "nonlinear" in self.given else jnp.zeros(0, q.dtype)

    def forms(self, q: Array, v: Array) -> Array:
        """The one-forms of which the reactions are multiples: those of `rows`, with df/dv of nonlinear constraints
        before those of position constraints."""
        if Trait.NONLINEAR not in self.traits:
            return self.rows(q)
        return jnp.concatenate([self.velocity_rows(q), jax.jacfwd(self.nonlinear, 1)(q, v), self.slopes(q)])

    def levels(self, q: Array, v: Array) -> Array:
        """The values of `forms` on v at which v satisfies the constraints: forms v - levels is A v - b and f(q, v)."""
        if Trait.NONLINEAR not in self.traits:
            return self.offsets(q)
        value, along = jax.jvp(lambda u: self.nonlinear(q, u), (v,), (v,))
        before = self.velocity_rows(q).shape[0]
        found = self.offsets(q)
        return jnp.concatenate([found[:before], along - value, found[before:]])

    def violation(self, q: Array, v: Array) -> Array:
        """A v - b of all one-forms, and f(q, v), in the order of `forms`; zero if v is allowed."""
        linear = matvec(self.rows(q), v)
        if Trait.AFFINE in self.traits:
            linear = linear - self.offsets(q)
        if Trait.NONLINEAR not in self.traits:
            return linear
        before = self.velocity_rows(q).shape[0]
        return jnp.concatenate([linear[:before], self.nonlinear(q, v), linear[before:]])

    def refuse_nonlinear(self) -> None:
        """Refuses a system whose allowed velocities are not a linear space, for code that needs one."""
        if Trait.NONLINEAR in self.traits:
            raise ValueError(
                f"{self.label} gives nonlinear(q, v), so its allowed velocities are not a linear space: they have no "
                "frame and no projector, and nothing that is made from these is defined"
            )

    def refuse_indefinite(self, what: str) -> None:
        """Refuses a system with an indefinite metric, for code that measures lengths with it."""
        if Trait.INDEFINITE in self.traits:
            raise ValueError(
                f"{what} needs the kinetic lengths of velocities, but {self.label} declares an indefinite metric, "
                f"signature = {self.signature}, which gives velocities no length"
            )

    def carried(self, q: Array, y: Array) -> Array:
        """y + Z(q), the allowed velocity whose part in D is y; y itself if the constraints are linear."""
        return y + self.drift(q) if Trait.AFFINE in self.traits else y

    def relative(self, q: Array, v: Array) -> Array:
        """v - Z(q), the part in D of an allowed velocity; v itself if the constraints are linear."""
        return v - self.drift(q) if Trait.AFFINE in self.traits else v

    def has_constant_metric(self, q: Array) -> bool:
        """Whether the formula of the mass matrix contains neither q nor the time; only the shape of q matters."""
        if Trait.TIMED not in self.traits:
            return is_syntactically_constant(self.metric, q)
        z = jnp.zeros(q.shape[0] + 1, q.dtype)
        return is_syntactically_constant(lambda z: self.at(z[0]).metric(z[1:]), z)

    @property
    def signature(self) -> tuple[int, int]:
        """How many eigenvalues of the mass matrix are positive and how many negative."""
        declared = self.system.signature
        return (self.velocity_dimension, 0) if declared is None else declared

    @property
    def conservative(self) -> bool:
        """Whether the motion conserves its energy: there are no forces, no time dependence and no drift, and nonlinear
        constraints are homogeneous in the velocity."""
        free = self.traits.isdisjoint((Trait.FORCED, Trait.TIMED, Trait.AFFINE))
        return free and (Trait.NONLINEAR not in self.traits or self.homogeneous)

    @property
    def homogeneous(self) -> bool:
        """Whether each nonlinear constraint is homogeneous in v: v . df/dv = k f with a number k, by Euler's theorem.

        Then df/dv . v vanishes on the constraint, and the reactions do no work. It is measured at fixed states.
        """
        random = np.random.default_rng(5)
        here = self.at(jnp.zeros(()))

        def both(x, v):
            q = here.space.displaced(here.space.identity().astype(float), x)
            return jnp.stack(jax.jvp(lambda u: here.nonlinear(q, u), (v,), (v,)))

        states = random.normal(size=(2, 12, self.velocity_dimension))
        value, along = np.moveaxis(np.asarray(jax.vmap(both)(*states)), 1, 0)
        fine = np.isfinite(value) & np.isfinite(along)
        value, along = np.where(fine, value, 0.0), np.where(fine, along, 0.0)
        degree = np.sum(value * along, axis=0) / np.maximum(np.sum(value**2, axis=0), np.finfo(float).tiny)
        off = np.max(np.abs(along - degree * value), axis=0)
        size = np.max(np.abs(along) + np.abs(value), axis=0)
        return bool(np.all(off <= 1e-9 * size) and np.all(np.any(fine, axis=0)))

    @property
    def natural(self) -> bool:
        """Whether nothing drives the motion: its functions do not depend on time, and its constraints are linear."""
        return self.traits.isdisjoint((Trait.TIMED, Trait.AFFINE))

    def generators(self, q: Array) -> Array:
        """The generators of the symmetries that the user gave, shape (n, k); if the system depends on time, one more
        row comes first, the change of time."""
        return self.system.generators(self.t, q) if Trait.TIMED in self.traits else self.system.generators(q)  # pyright: ignore

    def sections(self) -> Mapping[str, Callable[[Array], Array]]:
        """Functions q -> xi, by name, whose generators lie in D."""
        given = self.system.sections()
        if Trait.TIMED not in self.traits or not isinstance(given, Mapping):
            return given

        def now(section: Any) -> Any:
            return (lambda q: section(self.t, q)) if callable(section) else section

        return {name: now(section) for name, section in given.items()}

    def time_derivative(self, function: Callable[["Mechanics", Array], Any], q: Array, v: Array) -> Any:
        """d/dt of function(mechanics, q) along the motion, including its explicit time dependence."""
        rate = self.space.velocity(q, v)
        if Trait.TIMED not in self.traits:
            return jax.jvp(lambda x: function(self, x), (q,), (rate,))[1]
        t = jnp.asarray(self.t)
        return jax.jvp(lambda s, x: function(self.at(s), x), (t, q), (jnp.ones_like(t), rate))[1]

    @property
    def space(self) -> Group:
        """The space of configurations: the system's group, or its coordinates."""
        system = self.system
        if system.group is not None:
            return system.group
        return Coordinates(system.coordinates, system.velocity_names, system.angles)

    @property
    def framed(self) -> bool:
        """Whether the user gave a frame of D, which is preferred: it stays regular where one-forms may lose rank."""
        return "frame" in self.given

    @property
    def constrained(self) -> bool:
        """Whether there are constraints."""
        return not self.given.isdisjoint(CONSTRAINTS)

    @property
    def label(self) -> str:
        """The name for messages."""
        return self.system.label

    @property
    def class_name(self) -> str:
        """The name of the user's class."""
        return self.system.class_name

    @property
    def coordinates(self) -> tuple[str, ...]:
        """One name per coordinate."""
        return self.system.coordinates

    @property
    def angles(self) -> tuple[str, ...]:
        """Coordinates of period 2 pi."""
        return self.system.angles

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return self.system.dimension

    @property
    def velocity_dimension(self) -> int:
        """The number of components of a velocity."""
        return self.system.velocity_dimension


@jax.jit
def _second_derivative(mechanics: Mechanics, q: Array) -> Array:
    """d2L/dv2 at v = 0; traced only once, although a step needs it many times."""
    return jax.hessian(mechanics.lagrangian, argnums=1)(q, jnp.zeros(mechanics.velocity_dimension, q.dtype))


def lower(system: System | Mechanics) -> Mechanics:
    """The system in the form that everything else reads."""
    if isinstance(system, Mechanics):
        return system
    given = frozenset(name for name in FUNCTIONS if system.defines(name))
    return Mechanics(system, None, traits_of(system, given), given)


def as_arrays(tree: T) -> T:
    """The same system or method with every parameter as a floating-point array, ready for compiled code.

    Traced arrays stay as they are, so derivatives pass through.
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
    if plain:  # one transfer for all: each one alone would take as long
        for k, x in zip(plain, jax.device_put([leaves[k] for k in plain]), strict=True):
            leaves[k] = x
    return structure.unflatten(leaves)
