"""simulate(): the checks, the loop in chunks, progress, and failures."""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.kernels import making
from dalembert.methods import Method, Paired, State, Status
from dalembert.model import (
    Kept,
    System,
    as_arrays,
    check_system,
    independent_rows,
    lower,
    nearest_start,
    rank_drops_ahead,
    redundancy_in_words,
    refuse_masked,
    with_kept,
)
from dalembert.numerics import (
    Vector,
    captures_traced,
    current,
    fingerprint,
    is_being_traced,
    is_traced,
    jit_fast_compile,
    one_look,
)
from dalembert.simulation.again import known_run, remember_one
from dalembert.simulation.differentiable import differentiable_run
from dalembert.simulation.engines import check_fit, engine, has_kernel, trace_ahead
from dalembert.simulation.loop import CAPACITY, saved_steps, scan, start_fault
from dalembert.simulation.pairs import check_choice, check_first_step, checked_pair, is_off_pair, pair_facts
from dalembert.simulation.passed import kept_by
from dalembert.simulation.progress import progress_bar
from dalembert.simulation.trajectory import ConstraintWarning, MotionWarning, SimulationError, Trajectory

CHUNK_SECONDS = 0.1
"""The intended time of one chunk: short enough for Ctrl-C and the progress bar, long enough to cost nothing."""


def simulate(
    system: System,
    method: Method,
    q0: Vector,
    v0: Vector | None = None,
    *,
    q1: Vector | None = None,
    h: Any,
    steps: int | None = None,
    t1: float | None = None,
    save_every: int = 1,
    t0: Any = 0.0,
    throw: bool = True,
    progress: bool | Callable[[int, int], None] = False,
    project: bool = False,
    on_failure: Literal["nan", "hold"] = "nan",
) -> Trajectory:
    """Runs `method` on `system` from (q0, v0) at time t0, for `steps` steps of size h (for EDLA, the first step size).

    Instead of `steps` you may give `t1`, the time at which the run ends; it must be a whole number of steps away.
    Instead of v0 you may give `q1`, the configuration at t0 + h, if the phase space of the method is Q x Q: the run
    then continues the pair (q0, q1), which must satisfy the discrete constraint if the method has one.
    The trajectory keeps every `save_every`-th state and the last one; row 0 is the start. The start must
    satisfy the constraints; with `project=True` the run starts from the nearest start that does. A run that fails
    raises SimulationError, which says the step, the time and what to try. With `throw=False` the run returns what was
    computed, and `status` says why it ended. Ctrl-C ends the run and returns what was computed. `progress=True` shows a
    bar on a terminal and plain lines elsewhere; if `progress` is a function, it is called with (steps done, steps).

    Inside jax.grad, jax.jvp, jax.jit and jax.vmap the result is differentiable in the parameters, q0, v0
    and h. If values are not known, only shapes are checked beforehand, and a failure never raises. `status` is then a
    number, and the rows after the failure are NaN, as are their derivatives, so that no optimiser takes them for an
    answer. If the system does not allow the start (a velocity off the constraint, a mass matrix that is not positive
    definite), all rows are NaN. With `on_failure="hold"` the rows after a failure repeat the last good state.
    """
    if q1 is None and t1 is None and progress is False and project is False and on_failure == "nan":
        solution = known_run(system, method, q0, v0, h, steps, save_every, t0)
        if solution is not None:
            return _with_remarks(method, solution)
    number = counted_steps(method, h, steps, t0, t1)
    check_numbers(h, number, save_every, t0)
    if on_failure not in ("nan", "hold"):
        raise ValueError(f'on_failure must be "nan" or "hold", got {on_failure!r}')
    if not isinstance(project, bool):
        raise ValueError(f"project must be True or False, got {project!r}")
    for name, x in (("q0", q0), ("v0", v0), ("q1", q1)):
        refuse_masked(name, x)
    steps, save_every = int(number), int(save_every)
    check_choice(v0, q1, project)
    if q1 is not None:
        method, v0 = _paired(system, method, q0, q1, h, t0)
    if is_traced((system, method, q0, v0, h, t0)):
        with _explaining(system):
            q0, v0 = _projected(system, method, q0, v0, t0) if project else (q0, v0)
            system = _check_once(system, method, q0, v0, t0)
            return _traced(as_arrays(system), as_arrays(method), q0, v0, h, t0, steps, save_every, on_failure)
    chosen = isinstance(system, System) and system.kept is not None
    system, method, solution = _outside(
        system, lambda: _known_run(system, method, q0, v0, h, t0, steps, save_every, progress, project)
    )
    if solution.status is Status.INTERRUPTED:
        warnings.warn(solution.message, stacklevel=2)
    elif throw and solution.status is not Status.OK:
        raise SimulationError(solution.message, solution)
    if system.kept is not None and not chosen:
        warnings.warn(redundancy_remark(system, q0, t0), ConstraintWarning, stacklevel=2)
    return _with_remarks(method.plain, solution)


def _with_remarks(method: Method, solution: Trajectory) -> Trajectory:
    """The run, after warnings about what its user should know."""
    for remark in type(method).remarks(method, solution):
        warnings.warn(remark, MotionWarning, stacklevel=3)
    return solution


def _known_run(system, method, q0, v0, h, t0, steps, save_every, progress, project) -> Any:
    """The system, the method and the trajectory of a run whose values are all known."""
    given, began = (system, method), time.monotonic()
    if isinstance(system, System) and isinstance(method, Method):  # otherwise the checks say what is wrong
        system, method = as_arrays(system), as_arrays(method)
    with one_look(), making():
        q0, v0 = _projected(system, method, q0, v0, t0) if project else (q0, v0)
        system = _check_once(system, method, q0, v0, t0)
        q0, v0, h, t0 = (np.asarray(x, float) for x in (q0, v0, h, t0))
        loop = engine(system, method, h)
    start = State.of(q0, v0, t0)
    if isinstance(method, Paired):
        check_first_step(loop, start, method)
    ready = time.monotonic()
    solution = _run(loop, system, method, start, h, t0, steps, save_every, progress)
    if solution.status is Status.OK and not isinstance(method, Paired):
        remember_one(*given, solution, loop, ready - began, time.monotonic() - ready)
    return system, method, solution


def _paired(system: Any, method: Any, q0: Any, q1: Any, h: Any, t0: Any) -> tuple[Paired, Any]:
    """The method that continues the pair, and the velocity at q0."""
    check_system(system)
    check_method(method)
    method.check(system)
    if not is_traced((system, method, q0, q1, h, t0)):
        v0 = _outside(system, lambda: checked_pair(system, method, q0, q1, t0, h))
        return Paired(method, np.asarray(q1, float)), v0
    _check_shapes(system, q0, np.zeros(system.velocity_dimension))
    if np.shape(q1) != (system.dimension,):
        raise ValueError(f"q1 must have shape ({system.dimension},), got {np.shape(q1)}")
    with _explaining(system):
        q0, q1, h, t0 = (jnp.asarray(x, float) for x in (q0, q1, h, t0))
        arrays, paired = as_arrays(system), Paired(as_arrays(method), q1)
        return paired, paired.method.from_pair(lower(arrays), q0, q1, t0, h)[0].v


def _outside(system: Any, work: Callable[[], Any]) -> Any:
    """The result of `work` with a system, which runs outside of any JAX code that is being traced around this call.

    Inside, every operation, even one on numbers, would become a part of the traced code. JAX traces per thread, so
    another thread does the work.
    """
    with _explaining(system):
        if not is_being_traced():
            return work()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work).result()


def _projected(system: Any, method: Any, q0: Any, v0: Any, t0: Any) -> Any:
    """The start nearest to (q0, v0), in the kinetic metric, that satisfies the constraints."""
    check_system(system)
    check_method(method)
    _check_shapes(system, q0, v0)
    arrays = as_arrays(system)
    q, v, t = (jnp.asarray(x, float) for x in (q0, v0, t0))
    found = _nearest(arrays, q, v, t)
    if is_traced((system, q0, v0, t0)):
        return found
    found = tuple(np.asarray(x) for x in found)
    if not all(np.all(np.isfinite(x)) for x in found) and np.all(np.isfinite(q)):
        # The constraints may be dependent; those that are kept lead to the same start.
        found = tuple(np.asarray(x) for x in _nearest(independent_rows(arrays, q, t), q, v, t))
    if np.all(np.isfinite(q)) and not np.all(np.isfinite(found[0])):
        raise ValueError(
            f"{system.label}: no configuration near q0 that satisfies the position constraints was found; start nearer "
            "to them"
        )
    return found


@jit_fast_compile
def _nearest(system: System, q: Any, v: Any, t: Any) -> Any:
    return nearest_start(system.at(t), q, v)


def _check_once(system: Any, method: Any, q0: Any, v0: Any, t0: Any) -> Any:
    """Refuses a system, a method and a start that do not fit together; returns the system without the constraints that
    follow from others.
    """
    given = (*current((system, method)), q0, v0, t0)

    def look() -> None:
        check_system(system)
        check_method(method)

    if is_traced(given):
        look()
        _check_shapes(system, q0, v0)
        _check_number(system)
        method.check(system)
        return system

    def check() -> Kept | None:
        def ahead() -> None:
            trace_ahead(as_arrays(system), as_arrays(method))

        return _outside(system, lambda: check_fit(system, method, q0, v0, t0, ahead)).kept

    return with_kept(system, kept_by(given[:2], given[2:], look, check))


def redundancy_remark(system: System, q0: Any, t0: Any) -> str:
    """What to say about constraints that follow from others."""
    return f"{system.label}: {redundancy_in_words(system, q0, t0)}. The multipliers are those of least norm"


def _traced(system, method, q0, v0, h, t0, steps, save_every, on_failure) -> Trajectory:
    """A run inside other JAX code, by a kernel if there is one, else as a scan."""
    q0, v0, h, t0 = (jnp.asarray(x, float) for x in (q0, v0, h, t0))
    start = State.of(q0, v0, t0)
    inner = current((system, method))
    if has_kernel(*inner):
        (code, residual, done), rows = differentiable_run(*inner, start, h, steps, save_every)
    else:
        carry, rows = scan(*inner, start, h, steps, save_every)
        code, residual, done = carry.code, carry.residual, carry.step
    index = jnp.asarray(saved_steps(steps, save_every))
    fault = start_fault(inner[0], q0, v0, t0, inner[1].supports)
    if isinstance(inner[1], Paired):
        facts = pair_facts(inner[0], inner[1].method, q0, inner[1].q1, t0, h)
        fault = jnp.where(is_off_pair(facts), Status.OFF_PAIR.code, fault)
    code = jnp.where(fault == Status.OK.code, code, fault).astype(jnp.int32)
    t = t0 + index * h if rows.t is None else rows.t
    if on_failure == "nan":
        # Multiplication, rather than a choice, makes the derivatives NaN too.
        lost = (fault != Status.OK.code) | ((code != Status.OK.code) & (index > done))
        spoilt = jnp.where(lost, jnp.nan, 1.0)
        rows = jax.tree.map(lambda x: x * spoilt.reshape(-1, *[1] * (x.ndim - 1)).astype(x.dtype), rows)
    end = {"code": code, "steps": done, "residual": residual}
    made = {"system": system, "method": method.plain, "h": h, "save_every": save_every}
    return Trajectory(**{**rows._asdict(), "t": t}, **end, **made)


def _run(loop, system, method, start, h, t0, steps, save_every, progress) -> Trajectory:
    chunks = [loop.begin(start)]
    interrupted = False
    with progress_bar(progress, steps, f"{system.label} by {method.cli_name}") as advance:
        try:
            count = 64
            while chunks[-1].done < steps and chunks[-1].code == Status.OK.code:
                before = chunks[-1].done
                count = min(count, steps - before, CAPACITY * save_every)
                began = time.perf_counter()
                chunk = loop.run(save_every, count)
                # One assignment, so that Ctrl-C finds the list either with the whole chunk or without it. The next
                # chunk replaces one without rows, so that memory does not grow with the number of steps.
                place = len(chunks) if len(chunks[-1].rows.q) else len(chunks) - 1
                chunks[place:] = [chunk]
                elapsed = time.perf_counter() - began
                advance(chunks[-1].done)
                # The first call compiles, so its time says nothing about speed. Growth is bounded, so that Ctrl-C
                # never has to wait for a long chunk of a slow method.
                if before:
                    fitting = (chunks[-1].done - before) * CHUNK_SECONDS / elapsed
                    count = max(1, min(int(fitting), 32 * count))
        except KeyboardInterrupt:
            interrupted = True
    end = chunks[-1]
    code = Status.INTERRUPTED.code if interrupted else end.code
    if code in (Status.NOT_SOLVED.code, Status.NOT_FINITE.code):
        when = float(t0) + end.done * float(h) if end.last.t is None else end.last.t[-1]
        if rank_drops_ahead(system, end.last.q[-1], end.last.v[-1], h, when):
            code = Status.RANK.code
    index = np.arange(sum(len(chunk.rows.q) for chunk in chunks)) * save_every
    parts = [chunk.rows for chunk in chunks]
    if index[-1] != end.done:
        index = np.append(index, end.done)
        parts.append(end.last)
    rows = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    t = float(t0) + index * float(h) if rows.t is None else rows.t
    report = {"code": code, "steps": end.done, "residual": end.residual}
    report = {name: np.asarray(value) for name, value in report.items()}
    made = {"system": system, "method": method.plain, "h": h, "save_every": save_every}
    return Trajectory(**{**rows._asdict(), "t": t}, **report, **made, fingerprint=fingerprint(system))


@contextlib.contextmanager
def _explaining(system: Any) -> Iterator[None]:
    """Explains JAX's errors about traced values, which the user's functions cause."""
    try:
        yield
    except (
        jax.errors.ConcretizationTypeError,
        jax.errors.TracerArrayConversionError,
        jax.errors.UnexpectedTracerError,
    ) as error:
        if isinstance(error, jax.errors.UnexpectedTracerError) or captures_traced(system):
            raise ValueError(
                "a value that JAX is differentiating or tracing is captured inside the system's functions; "
                "make it a field of the system, or pass it in parameters="
            ) from error
        if isinstance(error, jax.errors.TracerArrayConversionError):
            raise ValueError(
                "a function of the system gives q, v or a field to NumPy; JAX compiles the functions, so write them "
                "with jax.numpy: jnp.sin, not np.sin"
            ) from error
        raise ValueError(
            "a function of the system decides or converts by the value of q, v or a field, which is not known when JAX "
            "compiles the function: write jnp.where instead of if, and leave out float(...) and int(...)"
        ) from error


def check_method(method: Any) -> None:
    """Refuses anything that is not a method."""
    if not isinstance(method, Method):
        raise ValueError(f"expected a method such as FrameGradient(), got {method!r}")


def counted_steps(method: Any, h: Any, steps: Any, t0: Any, t1: Any) -> Any:
    """The number of steps, computed from the time of the end if that is given."""
    if (steps is None) == (t1 is None):
        what = "both" if t1 is not None else "neither"
        raise ValueError(f"give either steps, the number of steps, or t1, the time of the end; got {what}")
    if t1 is None:
        return steps
    if is_traced((h, t0, t1)) or getattr(method, "variable_step", False):
        raise ValueError(
            "t1 needs a step size that is known and the same for all steps; give steps, the number of steps"
        )
    for name, value in (("t1", t1), ("t0", t0), ("h", h)):
        if np.ndim(value) or np.asarray(value).dtype.kind not in "fiu" or not np.isfinite(value):
            raise ValueError(f"{name} must be one finite number where t1 is given, got {value!r}")
    if not h > 0 or not t1 >= t0:
        raise ValueError(
            f"t1 must not be before t0, and h must be positive; got t0={t0!r}, t1={t1!r}, h={h!r}"
        )
    number = (float(t1) - float(t0)) / float(h)
    whole = round(number)
    # Step sizes such as 0.1 are rounded, and so is the quotient.
    if abs(number - whole) > 1e-9 * max(1.0, number):
        fitting = (float(t1) - float(t0)) / np.ceil(number)
        raise ValueError(
            f"from t0 = {t0!r} to t1 = {t1!r} takes {number:.6g} steps of h = {h!r}, not a whole number; take "
            f"h = {fitting:.16g}, or t1 = {float(t0) + np.floor(number) * float(h):.16g}"
        )
    return whole


def check_numbers(h: Any, steps: Any, save_every: Any, t0: Any) -> None:
    """Refuses step sizes, counts and times that make no sense."""
    for name, value, least in (("steps", steps, 0), ("save_every", save_every, 1)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or not least <= value < 2**62:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    for name, value in (("h", h), ("t0", t0)):
        if is_traced(value):
            continue
        number = np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiu"
        if not number or not np.isfinite(value):
            raise ValueError(f"{name} must be one finite number, got {value!r}")
    if not is_traced(h) and h <= 0:
        raise ValueError(f"h must be positive, got {h!r}; to run backwards reverse the velocity")


def _check_number(system: System) -> None:
    """Refuses, inside other JAX code, as many one-forms as there are velocities: some must follow from the others."""
    m = lower(as_arrays(system)).at(jnp.zeros(()))
    number = jax.eval_shape(m.rows, jax.ShapeDtypeStruct((m.dimension,), float)).shape[0]
    if not m.framed and number >= m.velocity_dimension:
        raise ValueError(
            f"{m.label} has {number} one-forms for {m.velocity_dimension} velocities, so some must follow from the "
            "others. Which do is not known inside jax.jit, jax.grad and jax.vmap: make the system outside with "
            "da.independent_rows(system, q0)"
        )


def _check_shapes(system: System, q0: Any, v0: Any) -> None:
    for name, x, n in (("q0", q0, system.dimension), ("v0", v0, system.velocity_dimension)):
        if np.shape(x) != (n,):
            raise ValueError(f"{name} must have shape ({n},), got {np.shape(x)}")
