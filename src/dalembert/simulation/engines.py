"""The engines that run the time loop: a kernel of machine code if there is one, else XLA."""

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from dalembert.kernels import TimeLoop, Unsupported, making, pack, time_loop, wanted_form
from dalembert.methods import Method, State, Status
from dalembert.model import System, check_start, lower, observed, sample
from dalembert.numerics import Recent, current, kind_of, lasting_name
from dalembert.simulation.loop import CAPACITY, Rows, attempt, begin, first_carry, output, run_chunk


class Chunk(NamedTuple):
    """The result of one call of the loop: its rows, the last state (saved or not), and where it ended."""

    rows: Rows
    last: Rows
    done: int
    code: int
    residual: float


class Xla:
    """The loop compiled by XLA, for any JAX function, at some microseconds per step."""

    def __init__(self, system: System, method: Method, h: Any):
        self.made = (system, method)
        self.h = h

    def begin(self, start: State) -> Chunk:
        """Prepares the loop; returns the chunk with the row of the start."""
        self.carry, first = begin(*self.made, start, self.h)
        first = jax.tree.map(lambda x: np.asarray(x)[None], first)
        return Chunk(first, first, 0, Status.OK.code, 0.0)

    def run(self, save_every: int, count: int) -> Chunk:
        """Makes up to `count` more steps."""
        self.carry, rows, filled = run_chunk(
            *self.made, self.carry, self.h, np.int64(save_every), np.int64(count)
        )
        host = jax.tree.map(lambda x: np.asarray(x)[: int(filled) + 1], rows)
        saved = jax.tree.map(lambda x: x[: int(filled)].copy(), host)
        # The row after the saved ones holds the last state, unless the last state was itself saved.
        last = jax.tree.map(lambda x: x[-1:].copy(), host)
        return Chunk(saved, last, int(self.carry.step), int(self.carry.code), float(self.carry.residual))


class Native:
    """The loop as machine code, made from the operations of the functions."""

    def __init__(self, system: System, method: Method, h: Any):
        self.parameters = pack((system, method, h))
        self.loop, (self._start, self._run) = single(system, method)
        self.where = [*self.loop.report, *self.loop.counted]

    def begin(self, start: State) -> Chunk:
        """Prepares the loop; returns the chunk with the row of the start."""
        first, row = pack(start), np.empty((1, len(self.loop.row)))
        self.carry = np.empty(len(self.loop.carry))
        self._start(*(x.ctypes.data for x in (self.parameters, first, self.carry, row)))
        rows = self.loop.rows(row)
        self.done = 0
        return Chunk(rows, rows, 0, Status.OK.code, 0.0)

    def run(self, save_every: int, count: int) -> Chunk:
        """Makes up to `count` more steps."""
        first = save_every - self.done % save_every
        capacity = min(CAPACITY, count // save_every + 1)
        rows = np.empty((capacity + 1, len(self.loop.row)))
        filled = self._run(
            self.parameters.ctypes.data, self.carry.ctypes.data, first, save_every, count,
            rows.ctypes.data, capacity,
        )  # fmt: skip
        code, residual, step = self.carry[self.where]
        self.done = int(step)
        saved, last = rows[:filled], rows[filled : filled + 1]
        if filled and self.done % save_every == 0 and not code:
            last = rows[filled - 1 : filled]
        return Chunk(
            self.loop.rows(saved), self.loop.rows(last.copy()), self.done, int(code), float(residual)
        )


def contents(tree: Any) -> Any:
    """A key that two trees share exactly if all of their numbers are the same."""
    leaves, kind = jax.tree.flatten(tree)
    return (kind, *((x.shape, x.dtype.str, x.tobytes()) for x in map(np.asarray, leaves)))


_sampled = Recent(64)


def _nothing() -> None: ...


def quick_sample(*arguments: Any, meanwhile: Callable[[], None] = _nothing) -> Any:
    """The sample of a system around a start, looked up if it was made before, perhaps for another method.

    If it must be compiled, that happens in another thread; this one calls `meanwhile`.
    """
    arguments = current(arguments)
    key = contents(arguments)
    found = _sampled.find(key)
    return _sampled.keep(key, sample.during(meanwhile, *arguments)) if found is None else found


def check_fit(
    system: System, method: Method, q0: Any, v0: Any, t0: Any, meanwhile: Callable[[], None] = _nothing
) -> System:
    """Refuses a start that the system does not allow, and a method that is not defined for the system there.

    Returns the system without the constraints that follow from others. If code must be compiled for that, it calls
    `meanwhile` while another thread does so.
    """
    system, found = check_start(system, q0, v0, functools.partial(quick_sample, meanwhile=meanwhile), t0)
    method.check(observed(lower(system), found))
    method.check_start(system, q0, v0, t0)
    return system


LOOPS = 64
"""The number of time loops that are kept. Each takes one to three megabytes, including its machine code."""
_known = Recent(LOOPS)


def loop_of(system: System, method: Method) -> TimeLoop:
    """The time loop of a method on a system, ready to be compiled; it is made once for all values of parameters.

    The user's functions are traced without holding a lock, because they may run simulations themselves.
    """
    system, method = current((system, method))
    key = (kind_of((system, method)), wanted_form())
    found = _known.find(key)
    if found is None:
        try:
            found = _make(system, method)
        except Unsupported as error:
            found = error.with_traceback(None)
        found = _known.keep(key, found)
    if isinstance(found, Unsupported):
        raise Unsupported(found.primitive, found.why)  # a new error, so that its traceback does not grow
    return found


def _make(system: System, method: Method) -> TimeLoop:
    name = lasting_name((system, method))
    # Only shapes and types, so that the loop keeps no values of this run.
    system, method = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), (system, method))
    h, q, v = (
        jax.ShapeDtypeStruct(shape, float)
        for shape in ((), (system.dimension,), (system.velocity_dimension,))
    )
    start = State.of(q, v, h)
    return time_loop(
        begin=lambda p, start: first_carry(p[0], p[1], start, p[2]),
        step=lambda p, carry: attempt(p[0], p[1], carry, p[2]),
        output=lambda p, carry: output(p[0], p[1], carry, p[2]),
        report=lambda carry: (carry.code, carry.residual),
        counted=lambda carry: (carry.step,),
        parameters=(system, method, h),
        start=start,
        name=name and f"run {name}",
    )


def trace_ahead(system: System, method: Method) -> None:
    """Makes the time loop that a run is about to need, if there will be one; what is wrong shows when it is needed."""
    if wants_kernel(method) and method.takes(system):
        with contextlib.suppress(Exception):
            loop_of(system, method)


@functools.lru_cache(maxsize=LOOPS)
def compiled_single(loop: TimeLoop) -> Any:
    """The functions of the loop for one trajectory, as machine code."""
    return loop.single()


@making()
def single(system: System, method: Method) -> tuple[TimeLoop, Any]:
    """The loop and its compiled functions."""
    loop = loop_of(system, method)
    return loop, compiled_single(loop)


_warned = Recent(256)


def wants_kernel(method: Method) -> bool:
    """Whether to try a kernel: not for methods that are not `native`, and not in single precision."""
    return method.native and jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def has_kernel(system: System, method: Method) -> bool:
    """Whether a run inside other JAX code can be a kernel: on a CPU, in double precision, with known primitives."""
    if not (wants_kernel(method) and method.native_gradients and jax.default_backend() == "cpu"):
        return False
    try:
        single(system, method)
    except Unsupported as error:
        tell(system, method, error)
        return False
    return True


def engine(system: System, method: Method, h: Any) -> Xla | Native:
    """The fastest engine for this system and method; warns once if it is not machine code, and says why."""
    if not wants_kernel(method):
        return Xla(system, method, h)
    try:
        return Native(system, method, h)
    except Unsupported as error:
        tell(system, method, error, above=7)
        return Xla(system, method, h)


def tell(system: System, method: Method, error: Unsupported, above: int = 5) -> None:
    """Warns once about a primitive that machine code cannot have, at the user's line, `above` calls from here."""
    key = (jax.tree.structure(current(system)), type(method), error.primitive)
    if _warned.find(key) is None:
        _warned.keep(key, True)
        warnings.warn(
            f"{system.label} with {method.cli_name} uses {error}, which the machine code of kernels cannot have: "
            "the run uses XLA instead, which gives the same result but is slower",
            stacklevel=above,
        )
