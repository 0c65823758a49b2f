"""Runs that differ from an earlier one in their start, their step size or their length alone.

Nothing is left to do for these but to check the start and to make the steps. Systems and methods are known by their
numbers, and must still read what they read in the earlier run. A new start is checked by machine code, as those of an
ensemble are. Whatever is not plain, or not as it should be, is left to the usual way, which says what is wrong.
"""

import ctypes
from collections.abc import Callable, Hashable
from math import isfinite
from time import perf_counter
from typing import Any

import jax
import numpy as np

from dalembert.kernels import TimeLoop, Unsupported, loop_of_no_steps, making, pack, wanted_form
from dalembert.model import MOST_TURNS, System
from dalembert.numerics import Recent, current, kind_of, watch
from dalembert.numerics.jax_internals import Tracer, trace_state_clean
from dalembert.simulation.engines import LOOPS, Native, compiled_single, contents, wants_kernel
from dalembert.simulation.loop import CAPACITY, saved_steps, start_fault
from dalembert.simulation.trajectory import Trajectory

SECONDS = 0.1
"""Longer runs go the usual way, in parts, so that Ctrl-C is prompt and progress is shown."""
HESITATION = 0.01
"""The time that is spent on checking starts the usual way, in seconds for each number of a start, before there is
machine code that does so: about as long as it takes to compile."""
ROOM = 3
"""The numbers for which the check of a start needs room."""
_FARTHEST = 2 * np.pi * MOST_TURNS
_NUMBERS = (float, int, np.float64)
_SHARED = ("system", "method", "stored", "fingerprint")
"""What the trajectories of such runs share."""


class _Kind:
    """What serves all systems of a kind."""

    def __init__(self) -> None:
        self.spent = 0.0
        """The time spent on checking starts the usual way, in seconds."""
        self.tried = False
        self.check: Callable[..., bool] | None = None


class Known:
    """A system and a method of which a run has reached its end."""

    def __init__(self, system: System, method: Any, solution: Trajectory, loop: TimeLoop):
        self.unchanged = watch((system, method))
        self.shared = {name: getattr(solution, name) for name in _SHARED}
        made = current((solution.system, solution.method))
        self.parameters = pack((made, 0.0))
        self.system: Any = made[0]
        kind = kind_of(self.system), wanted_form()
        found = _kinds.find(kind)
        self.kind = _kinds.keep(kind, _Kind()) if found is None else found
        self.shapes = (system.dimension,), (system.velocity_dimension,)
        self.size = system.dimension + system.velocity_dimension
        self.turning = [i for i, name in enumerate(system.coordinates) if name in system.angles]
        self.lengths = {np.shape(x)[0] for x in jax.tree.leaves(made) if np.ndim(x)}
        """An ensemble of so many members may mean these numbers to differ from member to member."""
        self.loop, self.where = loop, [*loop.report, *loop.counted]
        self.single = False
        """Whether there is machine code for single runs."""
        self.many: Callable | None = None
        """The machine code for many runs, if there have been any."""
        self.passed = Recent(64)
        self.pace = np.inf
        """How many seconds a step takes, at most."""

    def went(self, checking: float, stepping: float, steps: int) -> None:
        """Takes note of how long the checks and the steps took the usual way."""
        self.kind.spent += checking
        if steps:
            self.pace = min(self.pace, stepping / steps)

    def is_short(self, steps: int) -> bool:
        """Whether so many steps take so little time that nobody waits for them."""
        return steps * self.pace <= SECONDS

    def sound(self, start: np.ndarray) -> bool:
        """Whether a start (q, v, t) is finite, and no angle has turned too often."""
        values = start.tolist()
        return isfinite(sum(values)) and not any(abs(values[i]) > _FARTHEST for i in self.turning)

    def check(self) -> Callable[..., bool] | None:
        """The check of starts in machine code, given where the parameters, the start and ROOM numbers are; None as long
        as there is none."""
        kind = self.kind
        if not kind.tried and kind.spent > HESITATION * self.size:
            kind.tried, kind.check = True, _start_check(self.system)
        return kind.check

    def run(self, q: np.ndarray, v: np.ndarray, h: float, steps: int, every: int, t0: float) -> Any:
        """The run from this start; None if the start may not pass the checks, or the run does not reach its end."""
        full, width = steps // every, len(self.loop.row)
        first, second = len(self.parameters), len(self.parameters) + len(q) + len(v) + 1
        third = second + len(self.loop.carry)
        # One vector for everything, because asking NumPy for an address takes as long as many steps.
        memory = np.empty(third + (full + 2) * width)
        place = memory.ctypes.data
        memory[:first] = self.parameters
        start = memory[first:second]
        start[: len(q)], start[len(q) : -1], memory[first - 1], memory[second - 1] = q, v, h, t0
        if not self.sound(start):
            return None
        given, carry, row = place + 8 * first, place + 8 * second, place + 8 * third
        if self.passed.find(start.tobytes()) is None:
            check = self.check()
            if check is None or not check(place, given, row):
                return None
        begin, march = compiled_single(self.loop)
        begin(place, given, carry, row)
        if steps:
            began = perf_counter()
            march(place, carry, every, every, steps, row + 8 * width, full + 1)
            self.pace = min(self.pace, (perf_counter() - began) / steps)
        code, residual, done = (memory.item(second + k) for k in self.where)
        if code or done != steps:
            return None
        index = saved_steps(steps, every)
        rows = self.loop.rows(memory[third : third + len(index) * width].reshape(-1, width))._asdict()
        if rows["t"] is None:
            rows["t"] = t0 + index * h
        return self.trajectory(
            **rows, code=np.array(0), steps=np.array(steps), residual=np.array(residual), h=np.array(h, float),
            save_every=every, varied=None,
        )  # fmt: skip

    def trajectory(self, **fields: Any) -> Trajectory:
        """The trajectory with these fields; equinox would take longer than many steps to make it."""
        solution = object.__new__(Trajectory)
        vars(solution).update(self.shared, **fields)
        return solution


_known = Recent(LOOPS)
_kinds = Recent(LOOPS)


def _key(system: System, method: Any) -> Hashable:
    """A key that systems and methods share exactly if they are of one class and all of their numbers are the same; None
    if they hold anything but plain numbers."""
    leaves, structure = jax.tree.flatten((system, method))
    if all(type(x) is float for x in leaves):
        return structure, np.array(leaves).tobytes()
    if not all(type(x) in _NUMBERS or _is_array(x) for x in leaves):
        return None
    return contents((system, method))


def _is_array(x: Any) -> bool:
    return type(x) is np.ndarray or (isinstance(x, jax.Array) and not isinstance(x, Tracer))


def _start_check(system: System) -> Callable[..., bool] | None:
    """Whether nothing is wrong with a start, given where the parameters and (q, v, t) are; None if there is no machine
    code for it."""
    try:
        with making():
            shapes = (system.dimension,), (system.velocity_dimension,), ()
            begin, _ = compiled_single(loop_of_no_steps(start_fault, system, shapes))
    except Unsupported:
        return None

    def check(parameters: int, start: int, room: int) -> bool:
        fault = room + 8 * (ROOM - 1)
        begin(parameters, start, room, fault)
        return not ctypes.c_double.from_address(fault).value

    return check


def known(system: Any, method: Any) -> Known | None:
    """What is known of the system and the method, if nothing has changed since."""
    if not isinstance(system, System) or not trace_state_clean():
        return None
    key = _key(system, method)
    found = None if key is None else _known.find((key, wanted_form()))
    return found if found is not None and wants_kernel(method) and found.unchanged() else None


def remember(system: Any, method: Any, solution: Trajectory, loop: TimeLoop) -> tuple[Known | None, bool]:
    """What is known from now on, after a run; and whether it is new. None if there is nothing to know."""
    made = solution.system
    key = _key(system, method) if made is not None and made.kept is None else None
    if key is None:
        return None, False
    key = key, wanted_form()
    found = _known.find(key)
    if found is not None and found.unchanged():
        return found, False
    _known.pop(key, None)
    return _known.keep(key, Known(system, method, solution, loop)), True


def plain_numbers(h: Any, steps: Any, every: Any, t0: Any) -> bool:
    """Whether these are numbers that need no further look."""
    return (
        type(h) in _NUMBERS and type(t0) in _NUMBERS and type(steps) is int and type(every) is int
        and 0 < h < np.inf and 0 <= steps < CAPACITY * every and 0 < every < 2**62
    )  # fmt: skip


def plain_array(x: Any) -> np.ndarray | None:
    """x as an array, if it is one of real numbers, or lists of them."""
    if type(x) is not np.ndarray:
        if not (type(x) in (list, tuple) or _is_array(x)):
            return None
        try:
            x = np.asarray(x)
        except Exception:  # the usual way says what is wrong
            return None
    return x if x.dtype.kind in "fiu" else None


def known_run(
    system: Any, method: Any, q0: Any, v0: Any, h: Any, steps: Any, every: Any, t0: Any
) -> Trajectory | None:
    """The run, if its system and method are known, and if it reaches its end."""
    found = known(system, method) if plain_numbers(h, steps, every, t0) else None
    if found is None or not found.single or not found.is_short(steps):
        return None
    q, v = plain_array(q0), plain_array(v0)
    if q is None or v is None or (q.shape, v.shape) != found.shapes:
        return None
    # To bind the method would take equinox longer than everything here.
    type(method).check_start(method, system, q, v, t0)
    return found.run(q, v, h, steps, every, t0)


def remember_one(
    system: Any, method: Any, solution: Trajectory, engine: Any, checking: float, stepping: float
) -> None:
    """Takes note of a single run; its checks and its steps took these seconds."""
    if not isinstance(engine, Native):
        return
    found, new = remember(system, method, solution, engine.loop)
    if found is not None:
        found.single = True
        found.passed.keep(pack((solution.q[0], solution.v[0], solution.t[0])).tobytes(), True)
        found.went(0.0 if new else checking, stepping, int(solution.steps))  # what is new was compiled
