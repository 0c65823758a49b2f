"""Symmetric compositions: higher order from a symmetric one-step method."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.discrete.lagrangians import is_whole, plain
from dalembert.methods.base import Claims, Method, Report, State
from dalembert.model import Mechanics, System, Trait

_SUZUKI = 1 / (4 - 4 ** (1 / 3))

# The first half of the step fractions, and the middle one; the second half mirrors the first.
FRACTIONS: dict[int, tuple[float, ...]] = {
    # Suzuki, five stages [suzuki1990].
    4: (_SUZUKI, _SUZUKI, 1 - 4 * _SUZUKI),
    # Sofroniou and Spaletta, eleven stages [sofroniou2005].
    6: (
        0.213755839458782545555,
        0.183293814074257139113,
        0.176928194730989437948,
        -0.44329082681170215849,
        0.117285604328659353854,
        0.504054748438027364048,
    ),
    # Kahan and Li, seventeen stages [kahan1997].
    8: (
        0.13020248308889008087881763,
        0.56116298177510838456196441,
        -0.38947496264484728640807860,
        0.15884190655515560089621075,
        -0.39590389413323757733623154,
        0.18453964097831570709183254,
        0.25837438768632204729397911,
        0.29501172360931029887096624,
        -0.60550853383003451169892108,
    ),
    # Sofroniou and Spaletta, thirty-five stages [sofroniou2005].
    10: (
        0.078795722521686419263,
        0.313096103415108527764,
        0.027918383235078066109,
        -0.22959284159390709415,
        0.130962061077164863174,
        -0.26973340565451071434,
        0.074973343155891435666,
        0.111993423999810204889,
        0.366133449546226751193,
        -0.39910563013603589787,
        0.103087398527471077315,
        0.411430873955890237820,
        -0.00486636058313526176,
        -0.39203335370863990644,
        0.051942502962449647037,
        0.050665090759924496335,
        0.049674370639729879054,
        0.049317735759594537917,
    ),
}


def fractions(order: int) -> np.ndarray:
    """The step fractions of a symmetric composition; they add up to one."""
    half = FRACTIONS[order]
    return np.array([*half, *half[-2::-1]])


class Composition(Method):
    """A symmetric method applied with step fractions that cancel its leading errors: order 4, 6, 8 or 10.

    Equations: [suzuki1990] for order 4, [sofroniou2005] for 6 and 10, [kahan1997] for 8. The composition conserves
    whatever every step of the method conserves. Methods that must not be composed are refused with a reason;
    `force=True` overrides the refusal for a study.
    Memory: the memory of the method. Multipliers are those of the exact motion at the row's state.
    """

    method: Method
    order: int = eqx.field(default=4, static=True, converter=plain)
    force: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        if not isinstance(self.method, Method):
            raise ValueError(f"Composition needs a method such as FrameGradient(), got {self.method!r}")
        if not is_whole(self.order) or self.order not in FRACTIONS:
            raise ValueError(f"Composition has orders {', '.join(map(str, FRACTIONS))}; got {self.order!r}")
        if not isinstance(self.force, bool):
            raise ValueError(f"Composition: force must be True or False, got {self.force!r}")
        if self.method.variable_step:
            raise ValueError(f"{type(self.method).__name__} cannot be composed: {self.method.composable()}")
        reason = self.method.composable()
        if reason is not None and not self.force:
            raise ValueError(f"{type(self.method).__name__} must not be composed: {reason}")

    def init(self, m: Mechanics, state: State, h: Array) -> Any:
        return self.method.init(m, state, h)

    def step(self, m: Mechanics, state: State, memory: Any, h: Array):
        began = state.t

        def stage(carry, part):
            (q, v), memory, before = carry
            fraction, since = part
            here = State(q, v, None if began is None else began + since * h)
            new, memory, report = self.method.step(m, here, memory, fraction * h)
            return ((new.q, new.v), memory, _worse(before, report)), None

        parts = fractions(self.order)
        stages = jnp.asarray([parts, np.cumsum(parts) - parts], state.q.dtype)
        carry = ((state.q, state.v), memory, Report.explicit())
        ((q, v), memory, report), _ = lax.scan(stage, carry, tuple(stages))
        return state.moved(q, v, h), memory, report

    def output(self, m: Mechanics, state: State, memory: Any, h: Array) -> tuple[Array, Array | None]:
        # The method's own multipliers belong to the last of unequal stages and have the method's order; the exact
        # multipliers at the state are better.
        return self.method.output(m, state, memory, h)[0], None

    def resume(self, m: Mechanics, q: Array, u: Array, h: Array) -> tuple[State, Any]:
        return self.method.resume(m, q, u, h)

    def reverse(self, m: Mechanics, q: Array, u: Array) -> Array:
        return self.method.reverse(m, q, u)

    def claims(self, system: System) -> Claims:
        return self.method.claims(system)._replace(order=self.order)

    def composable(self) -> str | None:
        return "it is a composition already; compose the method itself with a higher order"

    @property
    def supports(self) -> frozenset[Trait]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The traits that the method supports."""
        return self.method.supports

    def check(self, system: System | Mechanics) -> None:
        self.method.check(system)

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        self.method.check_start(system, q0, v0, t0)

    @property
    def native_gradients(self) -> bool:
        return self.method.native_gradients

    @property
    def cli_name(self) -> str:
        return f"{self.method.cli_name}@{self.order}"


def _worse(a: Report, b: Report) -> Report:
    return Report(
        jnp.maximum(a.residual, b.residual.astype(a.residual.dtype)),
        a.iterations + b.iterations,
        a.converged & b.converged,
    )
