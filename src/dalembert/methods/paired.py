"""A method whose run continues a pair of configurations."""

from typing import Any

from jax import Array

from dalembert.methods.base import Claims, Method, Report, State
from dalembert.model import Mechanics, System, Trait


class Paired(Method):
    """A method of which the run starts with the step from q0 to q1; everything else is as in the method itself.

    The velocity of the start is the one that `from_pair` returns.
    """

    method: Method
    q1: Any
    """An array, the configuration one step after the start."""

    @property
    def supports(self) -> frozenset[Trait]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.supports

    @property
    def native(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.native

    @property
    def parasitic(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.parasitic

    @property
    def velocity_allowed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.velocity_allowed

    @property
    def variable_step(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.variable_step

    @property
    def multiplier_shift(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.multiplier_shift

    @property
    def cli_name(self) -> str:
        return self.method.cli_name

    @property
    def plain(self) -> Method:
        return self.method

    def init(self, m: Mechanics, state: State, h: Array) -> Any:
        return self.method.from_pair(m, state.q, self.q1, state.t, h)[1]

    def step(self, m: Mechanics, state: State, memory: Any, h: Array) -> tuple[State, Any, Report]:
        return self.method.step(m, state, memory, h)

    def output(self, m: Mechanics, state: State, memory: Any, h: Array) -> tuple[Array, Array | None]:
        return self.method.output(m, state, memory, h)

    def step_data(self, m: Mechanics, state: State, memory: Any) -> dict[str, Array]:
        return self.method.step_data(m, state, memory)

    def takes(self, system: System | Mechanics) -> bool:
        return self.method.takes(system)

    def check(self, system: System | Mechanics) -> None:
        self.method.check(system)

    def check_start(self, system: System, q0: Any, v0: Any, t0: Any) -> None:
        self.method.check_start(system, q0, v0, t0)

    def claims(self, system: System) -> Claims:
        return self.method.claims(system)
