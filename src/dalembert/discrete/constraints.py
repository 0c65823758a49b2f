"""Discrete constraints: conditions on two configurations that approximate A(q) v = 0."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dalembert.discrete.lagrangians import (
    DiscreteLagrangian,
    check_own,
    check_value,
    in_spacetime,
    is_fraction,
    over_step,
    plain,
)
from dalembert.model import Mechanics, System, Trait, as_arrays, lower
from dalembert.numerics import Renamed, matvec


class DiscreteConstraint(eqx.Module):
    """A function of two configurations that vanishes on the discrete constraint. Subclasses define `value`.

    Position constraints are not among its numbers, because a step satisfies them at its end. If the constraints are
    affine or depend on time, `value` receives the system in space and time, as that of a discrete Lagrangian does.
    """

    unchecked: ClassVar[bool] = False
    """Whether it is used without a check that it approximates the system, for studies of wrong rules."""

    spelling = Renamed("cli_name")

    @property
    def symmetric(self) -> bool:
        """Whether (q1, q0; -h) satisfies it whenever (q0, q1; h) does."""
        return True

    @property
    def cli_name(self) -> str:
        """The name on the command line."""
        return type(self).__name__.lower()

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        """The value, shape (m,), which is zero on the constraint; u = (q1 - q0)/h."""
        raise NotImplementedError(f"{type(self).__name__} does not define value")

    def over_step(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        """The value over a step. Affine constraints are evaluated in space and time, where they are linear."""
        if Trait.AFFINE in m.traits and Trait.TIMED not in m.traits:
            return in_spacetime(self.value, m, jnp.zeros(2, q0.dtype), q0, q1, u, h)
        return over_step(self.value, m, q0, q1, u, h)


class PointConstraint(DiscreteConstraint):
    """A((1-a) q0 + a q1) (q1 - q0)/h = 0: at the midpoint by default, and at the left point for alpha = 0.

    On a Lie group it is ((1-a) A(g0) + a A(g1)) u = 0 for the body velocity u of the step, each one-form at its own
    time, and with (1-a) b(g0) + a b(g1) on the right if the constraints are affine.
    """

    alpha: float = eqx.field(default=0.5, static=True, converter=plain)

    def __check_init__(self):
        if not is_fraction(self.alpha):
            raise ValueError(f"PointConstraint needs alpha between 0 and 1, got {self.alpha!r}")

    def over_step(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        if Trait.GROUP in m.traits:  # elements have no mean, so the one-forms are taken at both ends
            first, last = (here.violation(q, u) for here, q in ((m, q0), (m.later(h), q1)))
            return ((1 - self.alpha) * first + self.alpha * last)[: m.velocity_rows(q0).shape[0]]
        found = super().over_step(m, q0, q1, u, h)
        # The rows, in space and time too, end with the derivatives of position constraints.
        return found[: m.velocity_rows(q0).shape[0]] if Trait.HOLONOMIC in m.traits else found

    @property
    def symmetric(self) -> bool:
        return self.alpha == 0.5

    @property
    def cli_name(self) -> str:
        return "left" if self.alpha == 0 else f"point={float(self.alpha)!r}"

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        a = self.alpha
        return matvec(m.rows((1 - a) * q0 + a * q1), u)


class CustomConstraint(DiscreteConstraint):
    """A user's own function (system, q0, q1, h) -> (m,)."""

    function: Callable[..., Any] = eqx.field(static=True)
    is_symmetric: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        check_own("CustomConstraint", self.function, self.is_symmetric)

    @property
    def symmetric(self) -> bool:
        return self.is_symmetric

    @property
    def cli_name(self) -> str:
        return "own-constraint"

    def value(self, m: Mechanics, q0: Array, q1: Array, u: Array, h: Array) -> Array:
        return self.function(m.system, q0, q0 + h * u, h)


def constraint_value(
    constraint: DiscreteConstraint, system: System | Mechanics, q0: Array, q1: Array, u: Array, h: Array
) -> Array:
    """The discrete constraint over a step, shape (m,). Affine constraints are evaluated in space and time, where they
    are linear."""
    return constraint.over_step(lower(system), q0, q1, u, h)


def check_constraint(constraint: DiscreteConstraint, system: System | Mechanics) -> None:
    """Refuses a discrete constraint that does not return one number per one-form."""

    def expected():
        q = jax.ShapeDtypeStruct((system.dimension,), jnp.asarray(0.0).dtype)
        m = jax.eval_shape(lower(as_arrays(system)).at(0.0).velocity_rows, q).shape[0]
        return f"shape ({m},), one number per one-form", (m,)

    check_value(f"the discrete constraint {constraint.cli_name}", constraint, system, expected)


def as_constraint(given: Any, name: str) -> DiscreteConstraint:
    """The given discrete constraint, or one made from a plain function."""
    if isinstance(given, DiscreteConstraint):
        return given
    if callable(given) and not isinstance(given, type | DiscreteLagrangian):
        return CustomConstraint(given)
    raise ValueError(
        f"{name} needs a discrete constraint such as PointConstraint(0.5), or a function of (system, q0, q1, h) "
        f"that returns m numbers; got {given!r}"
    )
