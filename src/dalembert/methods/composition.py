"""Symmetric compositions: higher order from a symmetric one-step method."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.methods.base import Claims, Method, Report, State
from dalembert.model import Survey, System

_SUZUKI = 1 / (4 - 4 ** (1 / 3))

# First half of the step fractions and the middle one; the second half mirrors the first.
FRACTIONS: dict[int, tuple[float, ...]] = {
    # Suzuki, five stages [suzuki1990].
    4: (_SUZUKI, _SUZUKI, 1 - 4 * _SUZUKI),
    # Kahan and Li, nine stages [kahan1997].
    6: (
        0.39216144400731413928,
        0.33259913678935943860,
        -0.70624617255763935981,
        0.08221359629355080023,
        0.79854399093482996340,
    ),
    # Kahan and Li, seventeen stages [kahan1997].
    8: (
        0.13020248308889008088,
        0.56116298177510838456,
        -0.38947496264484728641,
        0.15884190655515560090,
        -0.39590389413323757734,
        0.18453964097831570709,
        0.25837438768632204729,
        0.29501172360931029887,
        -0.60550853383003451170,
    ),
}


def fractions(order: int) -> np.ndarray:
    """The step fractions of a symmetric composition; they add up to one."""
    half = FRACTIONS[order]
    return np.array([*half, *half[-2::-1]])


class Composition(Method):
    """A symmetric method applied with step fractions that cancel its leading errors: order 4, 6 or 8.

    Equations: [suzuki1990] for order 4, [kahan1997] for 6 and 8. What every step of the method keeps, the
    composition keeps. Methods that must not be composed are refused with the reason; `force=True` overrides
    this for a study.
    Memory: that of the method.
    """

    method: Method
    order: int = eqx.field(default=4, static=True)
    force: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        if not isinstance(self.method, Method):
            raise ValueError(f"Composition needs a method such as FrameGradient(), got {self.method!r}")
        if not isinstance(self.order, int) or self.order not in FRACTIONS:
            raise ValueError(f"Composition has orders {', '.join(map(str, FRACTIONS))}; got {self.order!r}")
        reason = self.method.composable()
        if reason is not None and not self.force:
            raise ValueError(f"{type(self.method).__name__} must not be composed: {reason}")

    def init(self, system: System, state: State, h: Array) -> Any:
        return self.method.init(system, state, h)

    def step(self, system: System, state: State, memory: Any, h: Array):
        def stage(carry, fraction):
            state, memory, before = carry
            state, memory, report = self.method.step(system, state, memory, fraction * h)
            return (state, memory, _worse(before, report)), None

        carry = (state, memory, Report.explicit())
        (state, memory, report), _ = lax.scan(stage, carry, jnp.asarray(fractions(self.order), state.q.dtype))
        return state, memory, report

    def output(self, system: System, state: State, memory: Any, h: Array) -> tuple[Array, Array | None]:
        return self.method.output(system, state, memory, h)

    def claims(self, system: System) -> Claims:
        return self.method.claims(system)._replace(order=self.order)

    def composable(self) -> str | None:
        return "it is a composition already; compose the method itself with a higher order"

    def check(self, system: System, survey: Survey) -> None:
        self.method.check(system, survey)

    def check_forces(self, system: System) -> None:
        self.method.check_forces(system)

    @property
    def spelling(self) -> str:
        return f"{self.method.spelling}@{self.order}"


def _worse(a: Report, b: Report) -> Report:
    return Report(
        jnp.maximum(a.residual, b.residual.astype(a.residual.dtype)),
        a.iterations + b.iterations,
        a.converged & b.converged,
    )
