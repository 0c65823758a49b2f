"""The interface of an integrator: a value with `init`, `step` and `output`, and with statements about itself."""

import enum
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.model import Mechanics, System, Trait, lower
from dalembert.numerics import Renamed, diagonal, matmul, matvec, newton, solve, unit_rounding


class Status(enum.Enum):
    """How a run ended. The value is the sentence, and `code` is the number that compiled code uses."""

    OK = "the run reached its end"
    NOT_SOLVED = "the equations of a step were not solved: the iteration did not converge"
    NOT_FINITE = "the state became NaN or infinite"
    INTERRUPTED = "the run was interrupted"
    NO_ROOT = "no step size keeps the energy: its equation has no root near the last step"
    NONPOSITIVE_H = "no step forward keeps the energy: the root of its equation is a negative step size"
    STEP_LOST = "the energy no longer determines the step size: rounding is all that is left of its equation"
    OFF_CONSTRAINT = "the start velocity violates the constraint"
    NOT_DEFINITE = "the mass matrix at the start is not positive definite"
    NO_ELEMENT = "the start is not an element of the group"
    NOT_DEFINED = (
        "the method is not defined for this system: its mass matrix depends on q, or its Lagrangian is not kinetic "
        "minus potential energy"
    )
    CONTRADICTION = "the functions of the system contradict each other, or full turns of an angle change them"
    OFF_SURFACE = "the start does not satisfy the position constraints"
    RANK = "the rank of the constraints changes"
    OFF_PAIR = "the two configurations at the start violate the discrete constraint of the method"
    OTHER_COMPLEMENT = (
        "the metric of the method's projectors is not symmetric here, or its complement of D is not that of the "
        "kinetic metric"
    )
    SIGNATURE = "the mass matrix at the start does not have the signature that the system declares"
    DEGENERATE = (
        "the indefinite metric becomes degenerate, to half of the digits, on all or on the allowed velocities"
    )

    @property
    def code(self) -> int:
        """The position in the list above; zero is success."""
        return list(Status).index(self)

    @property
    def remedy(self) -> str:
        """What to try."""
        return _REMEDIES[self]

    @classmethod
    def from_code(cls, code: int) -> "Status":
        """The status with this number."""
        return list(cls)[int(code)]


_EQUAL = "try FrameGradient(), which keeps the energy with equal steps"
_EXACTLY = "run it once outside of jax.jit and jax.grad, where the error says exactly what is wrong"
_REMEDIES = {
    Status.OK: "nothing",
    Status.NOT_SOLVED: "try a smaller h, or another method",
    Status.NOT_FINITE: "the potential, the metric, the constraints or a discrete Lagrangian may be undefined or "
    "singular just ahead; look there, or try a smaller h",
    Status.INTERRUPTED: "run it again",
    Status.NO_ROOT: _EQUAL,
    Status.NONPOSITIVE_H: _EQUAL,
    Status.STEP_LOST: _EQUAL,
    Status.OFF_CONSTRAINT: "start with a velocity that the constraint allows, or say project=True",
    Status.NOT_DEFINITE: "check that masses and moments of inertia are positive",
    Status.NO_ELEMENT: "start with an element of the group",
    Status.NOT_DEFINED: "start a run near here, outside of jax.jit and jax.grad; its error says which of the two it "
    "is, and which methods take such a system",
    Status.CONTRADICTION: _EXACTLY,
    Status.OFF_SURFACE: "start at a configuration that satisfies them, such as one that da.start finds, or say "
    "project=True",
    Status.RANK: "one-forms become dependent here, or constraints that followed from the others no longer do, so the "
    "motion beyond is that of another system. Remove constraints that are not needed, or give a frame(q), which may "
    "stay regular. Inside jax.jit, jax.grad and jax.vmap, pass da.independent_rows(system, q0)",
    Status.OFF_PAIR: _EXACTLY,
    Status.OTHER_COMPLEMENT: "start a run near here, outside of jax.jit and jax.grad; its error says by which angle "
    "the complements differ. Leave the metric out, or give one that is right everywhere",
    Status.SIGNATURE: _EXACTLY,
    Status.DEGENERATE: "start elsewhere, or change the constraints: near here an allowed velocity is orthogonal to all "
    "allowed velocities, so that the reactions are not determined",
}


class State(NamedTuple):
    """Configuration, velocity and time; the velocity satisfies the constraint."""

    q: Array
    v: Array
    t: Any = None
    """An array, which every state of a run has; None stands for a time that does not matter."""

    @staticmethod
    def of(q: Any, v: Any, t: Any = None) -> "State":
        """The state with these values, which may be numbers of any kind."""
        return State(q, v, t)

    def moved(self, q: Array, v: Array, h: Array) -> "State":
        """The state a step of size h later."""
        return State(q, v, None if self.t is None else self.t + h)


class Report(NamedTuple):
    """How one step went: the size of the last correction, the iterations, and whether the equations were solved."""

    residual: Array
    iterations: Array
    converged: Array
    trouble: Array | None = None
    """The code of the Status, if the step failed in a way particular to its method."""

    @classmethod
    def explicit(cls) -> "Report":
        """The report of a step that solves no equation."""
        return cls(jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.ones((), bool))


class Claims(NamedTuple):
    """What a method promises for a system; the tests measure every entry."""

    order: int
    """The order in h with which runs converge to the motion; 0 if they do not."""
    energy: bool
    """The total energy (`full`, for methods that live on TQ) is conserved to rounding."""
    reversible: bool
    """Running backwards with the reversed velocity returns to the start."""
    on_constraint: bool
    """The method's own velocity satisfies the constraint at every step."""
    fibred: bool = False
    """The driver of a coupled system moves as if there were no passenger."""


_OLD = {
    "constant_metric": "supports = Method.supports | {Trait.VARYING_MASS} where the mass matrix may depend on q",
    "general_lagrangian": "supports = Method.supports | {Trait.GENERAL_LAGRANGIAN}",
    "on_groups": "supports = frozenset({Trait.GROUP})",
    "takes_forces": "supports = Method.supports | {Trait.FORCED}",
    "takes_affine": "supports = Method.supports | {Trait.AFFINE}",
    "takes_time": "supports = Method.supports | {Trait.TIMED}",
    "takes_reduced": "supports = Method.supports | {Trait.EXTRA_VELOCITIES}",
    "told": "step_data",
    "flight": "free_step",
    "spelling": "cli_name",
}


REMEDIES: list[Callable[[Mechanics], dict[str, "Method"]]] = []
"""Functions that make the methods which the refusal of a system may name, by the text with which a user makes them;
`cli_names` adds its own."""


class Method(eqx.Module):
    """An integrator. Subclasses define `step`, and also `init` and `output` if they remember something.

    The system is given as `m`, lowered to a `Mechanics`. `init(m, state, h)` returns the memory.
    `step(m, state, memory, h)` returns the next state, the next memory and a Report. `output(m, state, memory, h)`
    returns the method's own velocity and the multipliers; it is called only when a row is saved.
    """

    supports: ClassVar[frozenset[Trait]] = frozenset({Trait.COORDINATES})
    """The traits that a system may have; the method refuses a system with any other trait."""
    native: ClassVar[bool] = True
    """Whether a step needs few enough scalar operations to be compiled to machine code."""
    parasitic: ClassVar[bool] = False
    """Whether the method's own velocity is v plus half a kick of the constraint plus a part that alternates in sign."""
    velocity_allowed: ClassVar[bool] = True
    """Whether the velocities of its states satisfy the constraint. Rows may then project rounding errors away."""
    variable_step: ClassVar[bool] = False
    """Whether steps differ in size. Then h is the size of the first step, and the state's time says where each ends."""

    multiplier_shift: ClassVar[float] = 0.0
    """The time from which the multipliers of a row are taken, measured back from the row as a fraction of the step that
    ends there: 0 is the row itself, 1/2 the middle of the step, 1 its beginning. The multipliers of the first row are
    always those at the start itself."""

    spelling, flight = Renamed("cli_name"), Renamed("free_step")

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuses old class attributes, which nothing reads any more."""
        super().__init_subclass__(**options)
        old = [name for name in _OLD if name in vars(cls)]
        if old:
            raise TypeError(
                f"{cls.__name__} defines {old[0]}, which nothing reads any more; write {_OLD[old[0]]}"
            )

    def init(self, m: Mechanics, state: State, h: Array) -> Any:
        """The memory at the start."""
        return ()

    def step(self, m: Mechanics, state: State, memory: Any, h: Array) -> tuple[State, Any, Report]:
        """One step of size h."""
        raise NotImplementedError(f"{type(self).__name__} does not define step")

    def free_step(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[Array, Array, Report]:
        """For variational methods: where the step from q with own velocity u ends, M^-1 p^+ there, and a Report."""
        raise NotImplementedError(f"{type(self).__name__} is not made from a discrete Lagrangian")

    def output(self, m: Mechanics, state: State, memory: Any, h: Array) -> tuple[Array, Array | None]:
        """The method's own velocity and its multipliers; None stands for the multipliers of the exact motion there.

        Their sign and scale are those of lam in d/dt dL/dv - dL/dq = A(q)^T lam; `multiplier_shift` says to which time
        they belong.
        """
        return state.v, None

    def step_data(self, m: Mechanics, state: State, memory: Any) -> dict[str, Array]:
        """Numbers, by name, about the step that ended here; every row keeps them as `sol.step_data`."""
        return {}

    def hint(self, trajectory: Any) -> str | None:
        """A message about a run that failed in a way particular to the method, with what to try; None by default."""
        return None

    def resume(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[State, Any]:
        """The state and memory in the middle of a run, at q with the method's own velocity u, at the time of m."""
        state = State(q, u, m.t)
        return state, self.init(m, state, h)

    def from_pair(self, m: Mechanics, q0: Array, q1: Array, t: Any, h: Array) -> tuple[State, Any]:
        """The state and the memory at q0 and time t from which the next step, of size h, ends at q1.

        Methods whose phase space is Q x Q define it; all others refuse.
        """
        ways = self.others(m, lambda x: x.takes_pairs)
        advice = f", or use {ways}" if ways else ""
        raise ValueError(
            f"{type(self).__name__} does not continue a pair of configurations (q0, q1), because its states are not "
            f"such pairs. Give the velocity v0 instead of q1{advice}"
        )

    def pair_residual(self, m: Mechanics, q0: Array, q1: Array, t: Any, h: Array) -> Array:
        """The discrete constraint over the pair, in units of A(q) v, which must be zero; empty if there is none."""
        return jnp.zeros(0, q0.dtype)

    def reverse(self, m: Mechanics, q: Array, u: Array) -> Array:
        """The method's own velocity with which the run goes back; reversing twice gives u again."""
        return -u

    def claims(self, system: System) -> Claims:
        """What the method promises for this system."""
        raise NotImplementedError(f"{type(self).__name__} makes no claims")

    def composable(self) -> str | None:
        """None if symmetric compositions raise the order; otherwise the reason why the method must not be composed."""
        return "it does not say that it is symmetric"

    @property
    def native_gradients(self) -> bool:
        """Whether derivatives can go back through machine code; they cannot if `init` contains a loop."""
        return True

    def remarks(self, trajectory: Any) -> list[str]:
        """Sentences about a finished run that its user should read; they are issued as warnings."""
        return []

    def within(
        self, m: Mechanics, state: State, memory: Any, h: Array, x: Array
    ) -> tuple[State, State, Any] | None:
        """The state at the fraction x of the step from `state`, the state at its end, and the new memory; None if the
        method has no states inside a step."""
        return None

    @property
    def cli_name(self) -> str:
        """The name on the command line."""
        return type(self).__name__.lower()

    @property
    def variational(self) -> bool:
        """Whether a step is a free step of a discrete Lagrangian, given by `free_step`."""
        return type(self).free_step is not Method.free_step

    @property
    def takes_pairs(self) -> bool:
        """Whether a run can continue a pair of configurations (q0, q1); see `from_pair`."""
        return type(self).from_pair is not Method.from_pair

    @property
    def rule(self) -> Any:
        """The discrete Lagrangian whose action sum is stationary along D, as the discrete Lagrange-d'Alembert principle
        says; None if there is none."""
        return None

    @property
    def takes_any_pair(self) -> bool:
        """Whether every pair will do, because the method has no discrete constraint."""
        return self.takes_pairs and type(self).pair_residual is Method.pair_residual

    def others(self, m: Mechanics, wanted: Callable[["Method"], bool]) -> str:
        """The methods of the library that take the system and are wanted, in words; empty if there are none."""
        fitting = {words: x for make in REMEDIES for words, x in make(m).items() if x.takes(m) and wanted(x)}
        # The nearest relatives first.
        names = sorted(
            fitting, key=lambda words: -len({*type(self).__mro__} & {*type(fitting[words]).__mro__})
        )
        return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))

    @property
    def plain(self) -> "Method":
        """The method without what concerns the start of a single run only."""
        return self

    def takes(self, system: System | Mechanics) -> bool:
        """Whether the method is defined for the system, as far as its traits are known."""
        return lower(system).traits <= self.supports

    def check(self, system: System | Mechanics) -> None:
        """Refuses a system with a trait that the method does not support, and names methods that do.

        The description shows most traits; a sample of values around a start shows the others (`observed`).
        """
        m = lower(system)
        refused = next((trait for trait in Trait if trait in m.traits - self.supports), None)
        if refused is None:
            return
        reason, otherwise = refused.refusal(m)
        ways = [x for x in (self.others(m, lambda x: True), otherwise) if x]
        advice = f"Use {', or '.join(ways)}" if ways else "No method of the library takes it"
        raise ValueError(f"{type(self).__name__} {reason}. {advice}")

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        """Refuses the user's own discrete rules if they do not approximate the system around a start; see
        `check_rules`."""


MANY = 5
"""The number of velocities up to which the equations of a step are solved with exact Jacobians."""


def nearly_solved(
    m: Mechanics,
    state: State,
    h: Array,
    mass: Array,
    rows: Array,
    scale: Array | float = 1.0,
    share: float = 0.25,
) -> Callable[[Array], Array] | None:
    """Nearly the inverse of the Jacobian of a step's equations, as a function of their residual.

    The equations are K u - M^-1 rows^T kick for K = 1 + share h^2 M^-1 V''(q), and rows u; the unknowns are u and
    scale * kick. What is left out, derivatives of the mass matrix and of the rows along the step, is of order h. So it
    serves to begin Broyden's method, which finds the rest: the roots are those of the exact equations. It costs two
    factorisations of matrices, instead of derivatives along every unknown. None for few velocities and on groups, where
    exact Jacobians serve.
    """
    if mass.shape[0] <= MANY or Trait.GROUP in m.traits:
        return None
    m, q, h, mass, rows, scale = jax.lax.stop_gradient((m, state.q, h, mass, rows, scale))
    n = mass.shape[0]
    stiff = jnp.eye(n, dtype=mass.dtype) + share * h * h * m.solved(mass, m.potential_hessian(q))
    made = solve(stiff, m.solved(mass, rows.T))
    gram = matmul(rows, made)

    def nearly(residual: Array) -> Array:
        u = solve(stiff, residual[:n])
        kick = solve(gram, residual[n:] - matvec(rows, u))
        return jnp.concatenate([u + matvec(made, kick), scale * kick])

    return nearly


def solve_velocity(
    equations: Callable[[Array], Array],
    guess: Array,
    state: State,
    h: Array,
    kick: Array,
    mass: Array,
    slope: Callable[[], Array] | None = None,
    columns: Array | None = None,
    nearly: Callable[[Array], Array] | None = None,
    near_identity: bool = False,
) -> tuple[Array, Report]:
    """Newton's method for a velocity near `guess`, started at `state` under the velocity change `kick`.

    Velocities are measured by sqrt(M_ii) |v_i|, which does not depend on the coordinates' units; their natural size is
    the size of v and of the kick. If there are unknowns besides the velocity, or instead of it, `columns` has the
    velocities that they cause, one column per unknown. Positions are known to eps |q|, so velocities below eps |q|/h
    are not resolved, and near rest the iteration may stop at that size. With `nearly`, approximately the inverse of
    the Jacobian as a function of the residual, Broyden's updates replace exact Jacobians.
    """
    number, eps, length = jnp.finfo(guess.dtype), unit_rounding(guess.dtype), jnp.abs(h)
    weights = jnp.sqrt(diagonal(mass))
    # Maxima would do as well, but sums are products of vectors, and in them NaN stays NaN at no cost.
    # The numbers of a group element are of size one, and there may be more of them than velocities.
    places = jnp.abs(state.q)
    along = weights[: len(places)] if len(places) <= len(weights) else jnp.max(weights)
    resolved = eps * jnp.sum(along * places)
    natural = jnp.sum(weights * (jnp.abs(state.v) + jnp.abs(kick)))
    if columns is None:  # one velocity, or several
        stages = len(guess) // len(weights)
        weights, natural, resolved = jnp.tile(weights, stages), stages * natural, stages * resolved
    # Everything is multiplied by h, so that a step has only one division.
    inverse = 1 / (natural * length + resolved + number.tiny * (1 + length))
    sizes = weights
    if columns is not None:
        made = number.tiny + jnp.sum(weights[:, None] * jnp.abs(columns), axis=0)
        sizes = made if len(guess) == len(made) else jnp.concatenate([weights, made])
    solved = equations
    if nearly is not None:
        solved, near_identity = lambda x: nearly(equations(x)), True
    noise = 64 * resolved * inverse
    x, info = newton(solved, guess, length * inverse, slope, noise, sizes, near_identity)
    return x, Report(*info)
