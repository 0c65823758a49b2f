"""Discrete Lagrangians: approximations of the action over a step, L_d(q0, q1) ~ h L.

They are scaled as actions. [ferraro2008] prints L_d ~ L. Its equations do not depend on the scale, but momenta and
energies are right only with the scale of an action.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.model import Mechanics, SpaceTime, System, Trait, as_arrays, lower, shape_of
from dalembert.numerics import Recent, Renamed, current, kind_of, newton, unit_rounding


def plain(x: Any) -> Any:
    """The Python number for a NumPy scalar, which must not be static; anything else as it is."""
    return x.item() if isinstance(x, np.generic) else x


def is_one_of(x: Any, names: Iterable[str]) -> bool:
    """Whether x is one of the names; an array or a list is not."""
    return isinstance(x, str) and x in names


def is_whole(x: Any) -> bool:
    """Whether x is a whole number."""
    return isinstance(x, int) and not isinstance(x, bool)


def is_fraction(x: Any) -> bool:
    """Whether x is a number between 0 and 1."""
    return isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x <= 1


class DiscreteLagrangian(eqx.Module):
    """A function L_d of two configurations. Subclasses define `value`.

    `value(system, q0, q1, u, h)` receives the velocity u = (q1 - q0)/h in addition to q1, because differences of
    positions lose digits; it must use u wherever it means the velocity. If the system depends on time, `value` receives
    the system with the time as first coordinate (SpaceTime), and velocities that begin with 1. A subclass whose momenta
    are not the derivatives of `value` defines `partial_derivatives` and `spacetime_derivatives` itself; a subclass on
    Lie groups also defines `moved`.
    """

    supports: ClassVar[frozenset[Trait]] = frozenset(
        {Trait.COORDINATES, Trait.VARYING_MASS, Trait.AFFINE, Trait.TIMED}
    )
    """The traits that a system may have."""
    unchecked: ClassVar[bool] = False
    """Whether it is used without a check that it approximates the system, for studies of wrong rules."""

    spelling, slots = Renamed("cli_name"), Renamed("partial_derivatives")

    @property
    def order(self) -> int:
        """The order of its method for systems without constraints."""
        return 2

    @property
    def symmetric(self) -> bool:
        """Whether it is its own adjoint: L_d(q1, q0; -h) = -L_d(q0, q1; h)."""
        return True

    @property
    def stiffness(self) -> float:
        """About how much of h^2 V'' stands beside the mass in the derivative of p^- by u: 1/4 for the midpoint rule."""
        return 0.25

    @property
    def cli_name(self) -> str:
        """The name on the command line."""
        return type(self).__name__.lower()

    def check(self, m: Mechanics) -> None:
        """Refuses a system that its traits alone do not rule out."""

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        """L_d(q0, q1)."""
        raise NotImplementedError(f"{type(self).__name__} does not define value")

    def over_step(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        """The value over a step; for a rheonomic system, given as system.at(t0), with the times of both ends."""
        return over_step(self.value, m, q0, q1, u, h)

    def moved(self, m: Mechanics, q: Array, u: Array, h: Array) -> Array:
        """The end of a step from q with the velocity u."""
        return m.space.displaced(q, h * u)

    def velocity(self, m: Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        """The velocity of the step from q0 to q1."""
        return (q1 - q0) / h

    def partial_derivatives(
        self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array
    ) -> tuple[Array, Array]:
        """D1 L_d and D2 L_d, given u = (q1 - q0)/h more accurately than the difference would give it."""

        def value(q0, q1, u):
            return self.over_step(m, q0, q1, u, h)

        first, second, velocity = jax.grad(value, argnums=(0, 1, 2))(q0, q1, u)
        return first - velocity / h, second + velocity / h

    def departing(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        """p^- = -D1 L_d alone."""
        return -self.partial_derivatives(m, q0, q1, u, h)[0]

    def spacetime_derivatives(
        self, m: Mechanics, t: Array, q0: Array, q1: Array, u: Array, h: Array
    ) -> tuple[Array, Array]:
        """(D1, D2) and (D3, D4) of L_d(t0, q0, t1, q1), each of shape (1 + n,), with the derivative by time first."""

        def value(t, q0, q1, u, h):
            if Trait.TIMED in m.traits:
                return in_spacetime(self.value, m, t, q0, q1, u, h)
            return self.value(m, q0, q1, u, h)

        times = jnp.stack([t, t + h])
        at, first, second, velocity, length = jax.grad(value, argnums=(0, 1, 2, 3, 4))(times, q0, q1, u, h)
        length = length - jnp.sum(velocity * u) / h  # the positions are fixed, so u changes with h
        before = jnp.concatenate([(at[0] - length)[None], first - velocity / h])
        return before, jnp.concatenate([(at[1] + length)[None], second + velocity / h])

    def __call__(self, system: System | Mechanics, q0: Array, q1: Array, h: Array) -> Array:
        """L_d(q0, q1) from the configurations alone; give a rheonomic system as system.at(t0)."""
        m = lower(system)
        return self.over_step(m, q0, q1, self.velocity(m, q0, q1, h), h)


class AlphaRule(DiscreteLagrangian):
    """The symmetrised alpha rule: the mean of h L at (1-a) q0 + a q1 and at a q0 + (1-a) q1, velocity (q1-q0)/h."""

    alpha: float = eqx.field(default=0.5, static=True, converter=plain)

    def __check_init__(self):
        if not is_fraction(self.alpha):
            raise ValueError(f"AlphaRule needs alpha between 0 and 1, got {self.alpha!r}")

    @property
    def cli_name(self) -> str:
        return f"alpha={float(self.alpha)!r}"

    @property
    def stiffness(self) -> float:
        return self.alpha * (1 - self.alpha)

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        a = self.alpha
        one = m.lagrangian((1 - a) * q0 + a * q1, u)
        return 0.5 * h * (one + m.lagrangian(a * q0 + (1 - a) * q1, u))


class Midpoint(DiscreteLagrangian):
    """The midpoint rule, h L((q0+q1)/2, (q1-q0)/h)."""

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        return h * m.lagrangian(0.5 * (q0 + q1), u)


class Trapezoidal(DiscreteLagrangian):
    """The trapezoidal (Verlet) rule, the mean of h L at both ends; it is explicit if the mass matrix is constant."""

    @property
    def stiffness(self) -> float:
        return 0.0

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        return 0.5 * h * (m.lagrangian(q0, u) + m.lagrangian(q1, u))


def check_own(name: str, function: Any, is_symmetric: Any) -> None:
    """Refuses anything but a function, and anything but True or False for its symmetry."""
    if not callable(function) or isinstance(function, type):
        raise ValueError(f"{name} needs a function of (system, q0, q1, h), got {function!r}")
    if not isinstance(is_symmetric, bool):
        raise ValueError(f"{name}: is_symmetric must be True or False, got {is_symmetric!r}")


class CustomLagrangian(DiscreteLagrangian):
    """A user's own function (system, q0, q1, h) -> L_d, scaled as an action.

    Declare what is known about it: its order without constraints, and whether it is symmetric. The function sees only
    positions, so its momenta have an error of eps |q|/(h |v|) per step.
    """

    function: Callable[..., Any] = eqx.field(static=True)
    declared_order: int = eqx.field(default=1, static=True, converter=plain)
    is_symmetric: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        check_own("CustomLagrangian", self.function, self.is_symmetric)
        if not is_whole(self.declared_order) or self.declared_order < 1:
            raise ValueError(
                f"CustomLagrangian: the order must be a whole number of at least 1, got {self.declared_order!r}"
            )

    @property
    def order(self) -> int:
        return self.declared_order

    @property
    def symmetric(self) -> bool:
        return self.is_symmetric

    @property
    def cli_name(self) -> str:
        return "own"

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        return self.function(m.system, q0, q0 + h * u, h)


def check_lagrangian(ld: DiscreteLagrangian, system: System | Mechanics) -> None:
    """Refuses a discrete Lagrangian that does not return one real number, or that refuses the system itself."""
    ld.check(lower(system))
    check_value(f"the discrete Lagrangian {ld.cli_name}", ld, system, lambda: ("a number (shape ())", ()))


_checked = Recent(256)


def check_value(
    label: str, rule: Any, system: System | Mechanics, expected: Callable[[], tuple[str, tuple]]
) -> None:
    """Refuses a rule over a step that does not return the expected value, which is given in words and as a shape.

    The shape depends only on the kinds of the rule and of the system, so each kind is checked only once.
    """
    system = as_arrays(system)
    key = kind_of(current((as_arrays(rule), system)))
    if _checked.find(key) is not None:
        return
    wanted, right = expected()
    number = jnp.asarray(0.0).dtype
    sizes = ((), (system.dimension,), (system.velocity_dimension,))
    h, q, u = (jax.ShapeDtypeStruct(shape, number) for shape in sizes)
    here = lower(system).at(jnp.zeros(()))
    shape = shape_of(label, lambda *given: rule.over_step(here, *given), q, q, u, h, wanted=wanted)
    if shape != right:
        raise ValueError(f"{label} must return {wanted}, got shape {shape}")
    _checked.keep(key, True)


def as_lagrangian(given: Any, name: str, groups: bool = False) -> DiscreteLagrangian:
    """The given discrete Lagrangian, or one made from a plain function; one on Lie groups only if `groups` is true."""
    if isinstance(given, DiscreteLagrangian):
        if Trait.COORDINATES not in given.supports and not groups:
            raise ValueError(
                f"{name} works in coordinates, and {type(given).__name__} is a discrete Lagrangian on Lie groups; "
                "use LieGNI() or VariationalDLA() with it"
            )
        return given
    if callable(given) and not isinstance(given, type):
        return CustomLagrangian(given)
    raise ValueError(
        f"{name} needs a discrete Lagrangian such as Midpoint() or Trapezoidal(), or a function of "
        f"(system, q0, q1, h); got {given!r}"
    )


def over_step(value: Callable, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
    """The value of a function of (system, q0, q1, u, h); if the system depends on time, with the times of both ends.

    Such a system is given at the beginning of the step, as `system.at(t0)`.
    """
    if Trait.TIMED not in m.traits:
        return value(m, q0, q1, u, h)
    return in_spacetime(value, m, jnp.stack([m.t, m.t + h]), q0, q1, u, h)


def in_spacetime(value: Callable, m: Mechanics, t: Array, q0: Array, q1: Array, u: Array, h: Array) -> Array:
    """The value of the function with the two times `t` as first coordinates."""
    ends = (jnp.concatenate([t[i : i + 1], q]) for i, q in enumerate((q0, q1)))
    return value(lower(SpaceTime(m.system)), *ends, jnp.concatenate([jnp.ones(1, u.dtype), u]), h)


def partial_derivatives(
    ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, u: Array, h: Array
) -> tuple[Array, Array]:
    """D1 L_d and D2 L_d, given u = (q1 - q0)/h more accurately than the difference would give it."""
    return ld.partial_derivatives(lower(system), q0, q1, u, h)


def d1(ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, h: Array) -> Array:
    """D1 L_d(q0, q1)."""
    m = lower(system)
    return partial_derivatives(ld, m, q0, q1, ld.velocity(m, q0, q1, h), h)[0]


def d2(ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, h: Array) -> Array:
    """D2 L_d(q0, q1)."""
    m = lower(system)
    return partial_derivatives(ld, m, q0, q1, ld.velocity(m, q0, q1, h), h)[1]


def d12(ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, h: Array) -> Array:
    """D12 L_d(q0, q1), shape (n, n): the derivative of D1 L_d with respect to q1."""
    return jax.jacfwd(lambda x: d1(ld, system, q0, x, h))(q1)


def legendre_minus(
    ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, h: Array
) -> Array:
    """The momentum p^- = -D1 L_d(q0, q1) at q0, with which the step departs."""
    return -d1(ld, system, q0, q1, h)


def legendre_plus(
    ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, h: Array
) -> Array:
    """The momentum p^+ = D2 L_d(q0, q1) at q1, with which the step arrives."""
    return d2(ld, system, q0, q1, h)


def average_momentum(
    ld: DiscreteLagrangian, system: System | Mechanics, q0: Array, q1: Array, q2: Array, h: Array
) -> Array:
    """The mean (p^+ + p^-)/2 at q1, which satisfies the constraint if a GNI made the three configurations."""
    return 0.5 * (legendre_plus(ld, system, q0, q1, h) + legendre_minus(ld, system, q1, q2, h))


class Gauss(DiscreteLagrangian):
    """The action of the best polynomial path of degree `stages`, by Gauss quadrature; the order is 2 * stages.

    Equations: [hairer2006] VI.6.2. The path has velocities u + sum_k P_k(c_i) z_k at the nodes c_i, where P_k are the
    shifted Legendre polynomials, so that it ends at q1 for every z; z makes the sum of the Lagrangians stationary. One
    stage gives the midpoint rule.
    """

    stages: int = eqx.field(default=2, static=True, converter=plain)

    def __check_init__(self):
        if not is_whole(self.stages) or not 1 <= self.stages <= 6:
            raise ValueError(f"Gauss needs 1 to 6 stages, got {self.stages!r}")

    @property
    def order(self) -> int:
        return 2 * self.stages

    @property
    def cli_name(self) -> str:
        return f"gauss={self.stages}"

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        nodes, weights, bends, shifts = _legendre(self.stages)
        inner = self.stages - 1

        clock = isinstance(m.system, SpaceTime)  # time advances uniformly along the path

        def action(z, q0, q1, u):
            z = z.reshape(inner, q0.shape[0] - clock)
            if clock:
                z = jnp.concatenate([jnp.zeros((inner, 1), q0.dtype), z], axis=1)
            total = jnp.zeros((), q0.dtype)
            for i in range(self.stages):
                v = u + sum((bends[k, i] * z[k] for k in range(inner)), jnp.zeros_like(u))
                q = (1 - nodes[i]) * q0 + nodes[i] * q1
                q = q + h * sum((shifts[k, i] * z[k] for k in range(inner)), jnp.zeros_like(u))
                total = total + weights[i] * h * m.lagrangian(q, v)
            return total

        if not inner:
            return action(jnp.zeros((0,), q0.dtype), q0, q1, u)
        fall = h * m.solved(m.metric(q0), m.potential_gradient(q0))
        resolved = unit_rounding(q0.dtype) * jnp.sum(jnp.abs(q0)) / jnp.abs(h)
        natural = jnp.sum(jnp.abs(u)) + jnp.sum(jnp.abs(fall)) + resolved + jnp.finfo(q0.dtype).tiny
        z, info = newton(
            lambda z: jax.grad(action)(z, q0, q1, u),
            jnp.zeros(inner * (q0.shape[0] - clock), q0.dtype),
            1 / natural,
            noise=64 * resolved / natural,
        )
        # If no path was found, the step fails, and the run reports it.
        return jnp.where(info.converged, action(z, q0, q1, u), jnp.nan)


def _legendre(stages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The nodes and weights on [0, 1], the shifted Legendre polynomials of degree 1, 2, ... at the nodes, and their
    integrals from 0."""
    x, w = np.polynomial.legendre.leggauss(stages)
    polynomials = [np.polynomial.Legendre.basis(k + 1) for k in range(stages - 1)]
    bends = np.array([p(x) for p in polynomials]).reshape(stages - 1, stages)
    shifts = np.array([p.integ(lbnd=-1)(x) / 2 for p in polynomials]).reshape(stages - 1, stages)
    return (x + 1) / 2, w / 2, bends, shifts
