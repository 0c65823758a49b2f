"""ensemble(): many trajectories at once, on all cores or on a GPU."""

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from time import perf_counter
from typing import Any

import jax
import numpy as np

from dalembert.kernels import TimeLoop, Unsupported
from dalembert.methods import Method, Paired, State, Status
from dalembert.model import (
    Kept,
    System,
    Trait,
    as_arrays,
    check_system,
    check_turns,
    lower,
    real_numbers,
    with_kept,
)
from dalembert.numerics import Vector, Vectors, compiled, current, fingerprint, is_traced
from dalembert.simulation.again import ROOM, known, plain_array, plain_numbers, remember
from dalembert.simulation.engines import check_fit, loop_of, tell, wants_kernel
from dalembert.simulation.loop import Rows, saved_steps, scan, start_fault
from dalembert.simulation.pairs import check_choice, check_row, checked_pair, is_off_pair, pair_facts
from dalembert.simulation.progress import progress_bar
from dalembert.simulation.run import (
    check_method,
    check_numbers,
    counted_steps,
    redundancy_remark,
)
from dalembert.simulation.trajectory import ConstraintWarning, Trajectory


def member_starts(
    system: System, q0: Any, other: Any, h: Any, second: str = "v0"
) -> tuple[np.ndarray, np.ndarray, int]:
    """The starts as arrays of shape (N, n), and N; `other` has velocities v0, or configurations q1."""
    arrays = {}
    for name, x in (("q0", q0), (second, other)):
        names = system.velocity_names if name == "v0" else system.coordinates
        n = len(names)
        x = real_numbers(name, x, n, names)
        if x.ndim not in (1, 2) or x.shape[-1] != n:
            raise ValueError(
                f"{name} must have shape (N, {n}), or ({n},) where all members share it; got {x.shape}"
            )
        arrays[name] = x
    sizes = {x.shape[0] for x in arrays.values() if x.ndim == 2} | (
        {np.shape(h)[0]} if np.ndim(h) == 1 else set()
    )
    parameters = [np.shape(x)[0] for x in jax.tree.leaves(system) if np.ndim(x)]
    if not sizes and len(set(parameters)) == 1:
        sizes = set(parameters)
    if len(sizes) != 1:
        raise ValueError(
            f"an ensemble needs one batch size: one row per member in q0 or {second}, or h of shape (N,); got q0 "
            f"{arrays['q0'].shape}, {second} {arrays[second].shape}, h {np.shape(h)}"
        )
    size = sizes.pop()
    if size == 0:
        raise ValueError("an ensemble needs at least one member")
    for x in (arrays["q0"], *([arrays["q1"]] if second == "q1" else [])):
        check_turns(system, x)
    q0, v0 = (np.broadcast_to(x, (size, x.shape[-1])) for x in arrays.values())
    return q0, v0, size


@lru_cache(maxsize=64)
def _pair_facts(axes_leaves: tuple, axes_tree: Any) -> Callable:
    axes = (*jax.tree.unflatten(axes_tree, axes_leaves), 0, None)

    def one(system, method, h, q0, t):
        return pair_facts(system, method.method, q0, method.q1, t, h)

    return compiled(jax.vmap(one, axes))


def checked_pairs(
    tree: Any, leaves: list, varied: list[bool], q0: np.ndarray, q1: np.ndarray, t0: float
) -> np.ndarray:
    """The velocity at q0 of each member; refuses pairs that the method cannot continue."""
    one = jax.tree.unflatten(tree, [x[0] if v else x for x, v in zip(leaves, varied, strict=True)])
    one[1].check(one[0])
    check_system(one[0])
    axes = jax.tree.unflatten(tree, [0 if v else None for v in varied])
    kinds, axes_tree = jax.tree.flatten(axes, is_leaf=lambda x: x is None)
    system, method, h = jax.tree.unflatten(tree, leaves)
    facts = _pair_facts(tuple(kinds), axes_tree)(system, method, h, q0, float(t0))
    bad = np.flatnonzero(np.asarray(jax.vmap(is_off_pair)(facts)) | ~np.all(np.isfinite(facts.v0), axis=1))
    if bad.size:
        i = int(bad[0])
        of = [x[i] if v else x for x, v in zip(leaves, varied, strict=True)]
        system, method, h = jax.tree.unflatten(tree, of)
        try:
            checked_pair(system, method.method, q0[i], q1[i], t0, h)
        except ValueError as error:
            raise ValueError(f"{_members(bad)}: {error}") from None
        raise ValueError(f"{system.label}: the pair (q0, q1) does not fit the method, for {_members(bad)}")
    return np.asarray(facts.v0)


def check_members(
    tree: Any, leaves: list, varied: list[bool], q0: np.ndarray, v0: np.ndarray, t0: float
) -> Kept | None:
    """Checks the numbers and the start of every member, and the first member as a single run is checked.

    Returns the constraints to keep if the others follow from them.
    """
    own = [("a parameter", x) for x, v in zip(leaves, varied, strict=True) if v]
    for name, x in (("q0", q0), ("v0", v0), *own):
        bad = np.flatnonzero(~np.all(np.isfinite(np.reshape(x, (len(x), -1))), axis=1))
        if bad.size:
            raise ValueError(f"{name} is NaN or infinite for {_members(bad)}")
    system, method, _ = jax.tree.unflatten(
        tree, [x[0] if v else x for x, v in zip(leaves, varied, strict=True)]
    )
    check_system(system)
    axes = jax.tree.unflatten(tree, [0 if v else None for v in varied])[0]
    # If all members share one system, the sample around the first start is enough.
    shared = not any(varied[: len(jax.tree.leaves(system))])
    supports = None if shared else method.supports

    def faults(kept: Kept | None) -> np.ndarray:
        find = _faults(with_kept(axes, kept), supports)
        found = []
        for a in range(0, len(q0), 65536):
            part = slice(a, a + 65536)
            systems = jax.tree.unflatten(
                tree, [x[part] if v else x for x, v in zip(leaves, varied, strict=True)]
            )[0]
            found.append(np.asarray(find(with_kept(systems, kept), q0[part], v0[part], float(t0))))
        return np.concatenate(found)

    found = faults(None)
    off, apart, bad, negative = (
        np.flatnonzero(found == status.code)
        for status in (Status.NO_ELEMENT, Status.OFF_SURFACE, Status.OFF_CONSTRAINT, Status.NOT_DEFINITE)
    )
    m = lower(system)
    if off.size:
        raise ValueError(f"{m.label}: q0 is not an element of {m.space.name} for {_members(off)}")
    if apart.size:
        raise ValueError(
            f"{system.label}: the start does not satisfy the position constraints for {_members(apart)}; start each "
            "member at a configuration that does, such as one that da.start finds"
        )
    if bad.size:
        linear = Trait.NONLINEAR not in m.traits
        words = f" A(q0) v0 = {'b(q0)' if Trait.AFFINE in m.traits else 0}" if linear else ""
        raise ValueError(
            f"{system.label}: the start velocity violates the constraint{words} for {_members(bad)}; start each member "
            "with a velocity that its own constraint allows"
        )
    if negative.size:
        raise ValueError(
            f"{system.label}: the mass matrix is not positive definite at the start for {_members(negative)}; check "
            "that masses and moments of inertia are positive"
        )
    kept = check_fit(system, method, q0[0], v0[0], t0).kept
    if kept is not None:  # each member must do without the same constraints
        found = faults(kept)
    wrong = np.flatnonzero(found)
    if wrong.size:
        i = int(wrong[0])
        system = jax.tree.unflatten(tree, [x[i] if v else x for x, v in zip(leaves, varied, strict=True)])[0]
        try:
            check_fit(system, method, q0[i], v0[i], t0)
        except ValueError as error:
            raise ValueError(f"{_members(wrong)}: {error}") from None
        status = Status.from_code(int(found[i]))
        why = status.value
        if status is Status.RANK:
            why = (
                "other constraints are dependent at the start, or constraints that follow from the others at the start "
                "of the first member do not"
            )
        raise ValueError(f"{system.label}: {why}, for {_members(wrong)}")
    return kept


@lru_cache(maxsize=64)
def _violating(axes_leaves: tuple, axes_tree: Any, supports: frozenset[Trait] | None) -> Callable:
    axes = jax.tree.unflatten(axes_tree, axes_leaves)

    def one(system, q, v, t):
        return start_fault(system, q, v, t, supports)

    return compiled(lambda systems, q, v, t: jax.vmap(one, (axes, 0, 0, None))(systems, q, v, t))


def _faults(axes: Any, supports: frozenset[Trait] | None) -> Callable:
    """The function that returns, for each member, the code of what is wrong with its start (see `start_fault`)."""
    leaves, tree = jax.tree.flatten(axes, is_leaf=lambda x: x is None)
    return _violating(tuple(leaves), tree, supports)


def varied_leaves(
    system: System, method: Method, h: Any, size: int, vary: Sequence[str] | None
) -> list[bool]:
    """Which leaves of (system, method, h) hold one value per member; each has its own q1, if the method has one."""
    pairs = [] if method.plain is method else [True]
    paths = [(jax.tree_util.keystr(path).lstrip("."), x) for part in (system, method.plain)
             for path, x in jax.tree_util.tree_leaves_with_path(part)]  # fmt: skip
    fits = [np.ndim(x) > 0 and np.shape(x)[0] == size for _, x in paths]
    if vary is not None:
        unknown = set(vary) - {name for (name, _), fit in zip(paths, fits, strict=True) if fit}
        if unknown:
            raise ValueError(f"vary names {sorted(unknown)}, which are not parameters with {size} values")
        return [*(name in vary for name, _ in paths), *pairs, np.ndim(h) == 1]
    mine = len(jax.tree.leaves(system))
    names = [
        name for (name, x), fit in zip(paths[:mine], fits[:mine], strict=True) if fit and np.ndim(x) == 1
    ]
    if names and _would_do(system):
        raise ValueError(
            f"{', '.join(names)}: {size} values, as many as members, but the system's functions also accept them as "
            "one shared vector. Say with vary=(...) which parameters hold one value per member"
        )
    return [*fits, *pairs, np.ndim(h) == 1]


def _would_do(system: System) -> bool:
    """Whether the system's functions are well defined with all parameters shared."""
    try:
        check_system(system)
    except (ValueError, TypeError):
        return False
    return True


def _members(bad: np.ndarray) -> str:
    few = ", ".join(map(str, bad[:5]))
    return f"{bad.size} member{'s' if bad.size > 1 else ''} ({few}{', ...' if bad.size > 5 else ''})"


_FEW = 256
"""The number of members up to which starts are checked one after the other, before an ensemble of a known system."""
WORK = 2_000_000
"""The number of steps, over all members, in one call of a kernel: a fraction of a second, so that progress and Ctrl-C
are prompt."""


_INSIDE = "ensemble runs on numbers; inside jax.jit, jax.grad and jax.vmap use jax.vmap of simulate"


def ensemble(
    system: System,
    method: Method,
    q0: Vectors | Vector,
    v0: Vectors | Vector | None = None,
    *,
    q1: Vectors | Vector | None = None,
    h: Any,
    steps: int | None = None,
    t1: float | None = None,
    save_every: int = 1,
    t0: float = 0.0,
    vary: Sequence[str] | None = None,
    devices: str | None = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Trajectory:
    """Runs `method` on N members at once. q0 and v0 have shape (N, n), or (n,) if all members share it.

    Instead of v0 you may give q1, of the same shapes, the configurations one step after q0; see `simulate`.

    The parameters of the system and the method, and h, may carry the batch axis too: an array whose first axis
    has length N holds one value per member, and anything else is shared. If a parameter of length N could also be a
    vector that all members share, `vary` must name the parameters that differ.

    The result is a Trajectory whose arrays have the batch axis first: q has shape (N, K, n), `code` and `steps` have
    shape (N,), and `t` has shape (K,), or (N, K) if h varies. A member that fails keeps its last good state in the rows
    that follow, and has its own status; the other members continue.

    The members run on the GPU if JAX has one, and otherwise in blocks on all cores, or on as many threads as `threads`
    says. Set `devices` to "cpu" or "gpu" to insist on one of them. Members agree with single runs to rounding; over
    long times, chaotic motion amplifies the difference.
    """
    if (
        q1 is None
        and t1 is None
        and vary is None
        and devices is None
        and threads is None
        and progress is False
    ):
        solution = _again(system, method, q0, v0, h, steps, save_every, t0)
        if solution is not None:
            return solution
    began = perf_counter()
    number = counted_steps(method, h, steps, t0, t1)
    check_numbers(1.0 if np.ndim(h) else h, number, save_every, t0)
    steps = int(number)
    check_method(method)
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads must be a whole number of at least 1, got {threads!r}")
    if not isinstance(system, System):
        check_system(system)  # this raises and says what was expected; shapes are checked on one member later
    check_choice(v0, q1, False)
    if is_traced((q1,)):
        raise ValueError(_INSIDE)
    paired = q1 is not None
    q0, second, size = member_starts(system, q0, q1 if paired else v0, h, "q1" if paired else "v0")
    if paired:
        method = Paired(method, second)
    own = system, method
    system, method = as_arrays(system), as_arrays(method)
    h = np.asarray(h, float)
    if not np.all(np.isfinite(h)) or not np.all(h > 0) or h.shape not in ((), (size,)):
        raise ValueError(f"h must be one positive number or one for each of {size} members, got {h!r}")
    if is_traced((system, method, q0, second, h)):
        raise ValueError(_INSIDE)
    given, method_given = system, method
    system, method = current((system, method))
    leaves, tree = jax.tree.flatten((system, method, h))
    varied = varied_leaves(system, method, h, size, vary)
    v0 = checked_pairs(tree, leaves, varied, q0, second, t0) if paired else second
    kept = check_members(tree, leaves, varied, q0, v0, t0)
    made = {
        "system": with_kept(given, kept),
        "method": method_given.plain,
        "h": h,
        "save_every": int(save_every),
    }
    made["fingerprint"] = fingerprint(made["system"])
    if kept is not None:
        system = current(made["system"])
        tree = jax.tree.structure((system, method, h))
    start = State.of(q0, v0, np.full(size, float(t0)))
    platform, loop = _platform(devices), None
    index = saved_steps(steps, int(save_every))
    t = t0 + np.multiply.outer(h, index)
    label = f"{size:,} x {system.label} by {method.cli_name}"
    ready = perf_counter()
    with progress_bar(progress, size, label, "members") as advance:
        try:
            if not wants_kernel(method):
                raise Unsupported("single precision or an adaptive solver")
            one = jax.tree.unflatten(tree, [x[0] if v else x for x, v in zip(leaves, varied, strict=True)])
            loop = loop_of(*one[:2])
            if platform == "gpu" and not _is_quicker(loop, leaves, varied, size):
                rows, report = _by_xla(tree, leaves, varied, start, steps, int(save_every), advance)
            else:
                runner = _on_gpu if platform == "gpu" else partial(_on_cores, threads or cores())
                rows, report = runner(
                    loop, leaves, varied, start, steps, int(save_every), len(index), advance
                )
                rows = _fields(loop, rows)
        except Unsupported as error:
            loop = None
            if wants_kernel(method):
                tell(system, method, error, above=3)
            rows, report = _by_xla(tree, leaves, varied, start, steps, int(save_every), advance)
    # q1, the last leaf of a method that continues pairs, is no part of the trajectory.
    plain = varied[: -2 if paired else -1]
    solution = Trajectory(**_told(rows, report, t), **made, varied=tuple(plain))
    if platform == "cpu" and loop is not None and not any(varied) and not np.any(solution.code):
        _remember(own, solution, loop, ready - began, perf_counter() - ready)
    if paired and steps:
        alone = {"h": h, "steps": 1, "t0": t0, "vary": vary, "devices": devices}
        each = solution if save_every == 1 else ensemble(given, method_given.plain, q0, q1=second, **alone)
        for i in np.flatnonzero((each.code == Status.OK.code) & (each.steps > 0)):
            check_row(q0[i], second[i], each.q[i, 1])
    if np.any(solution.code == Status.INTERRUPTED.code):
        missing = int(np.sum(solution.code == Status.INTERRUPTED.code))
        warnings.warn(
            f"interrupted: {missing} of {size} members were not run; their rows are NaN", stacklevel=2
        )
    if kept is not None and given.kept is None:
        one = jax.tree.unflatten(tree, [x[0] if v else x for x, v in zip(leaves, varied, strict=True)])[0]
        warnings.warn(redundancy_remark(one, q0[0], t0), ConstraintWarning, stacklevel=2)
    return solution


def _told(rows: Rows, report: Any, t: np.ndarray) -> dict[str, Any]:
    """The parts of a trajectory that its run gives."""
    code, residual, done = report
    end = {"code": code.astype(np.int32), "steps": done.astype(np.int64), "residual": residual}
    found = rows._asdict()
    return {**found, **end, "t": t if found["t"] is None else found["t"]}


def _remember(given: tuple, solution: Trajectory, loop: TimeLoop, checking: float, stepping: float) -> None:
    """Takes note of an ensemble; its checks and its steps took these seconds."""
    found, new = remember(given[0], given[1], solution, loop)
    if found is not None:
        found.many = _kernel(loop, (False,) * len(loop.parameters))
        found.went(0.0 if new else checking, stepping, int(solution.steps.sum()))


def _again(
    system: Any, method: Any, q0: Any, v0: Any, h: Any, steps: Any, every: Any, t0: Any
) -> Trajectory | None:
    """The ensemble, if its system and method are known, its members differ in their starts alone, and it is small."""
    found = known(system, method) if plain_numbers(h, steps, every, t0) else None
    if found is None or found.many is None:
        return None
    q, v = plain_array(q0), plain_array(v0)
    if (
        q is None
        or v is None
        or not {q.ndim, v.ndim} <= {1, 2}
        or (q.shape[-1:], v.shape[-1:]) != found.shapes
    ):
        return None
    sizes = {len(x) for x in (q, v) if x.ndim == 2}
    if len(sizes) != 1 or sizes & found.lengths or not 0 < (size := sizes.pop()) <= _FEW:
        return None
    check = found.check()
    if check is None or not found.is_short(size * steps):
        return None
    loop, n = found.loop, q.shape[-1]
    wide = -(-size // loop.lanes) * loop.lanes
    starts = np.empty((wide, n + v.shape[-1] + 1))
    starts[:size, :n], starts[:size, n:-1], starts[:size, -1] = q, v, t0
    starts[size:] = starts[size - 1]
    shared, room = found.parameters.copy(), np.empty(ROOM)
    shared[-1] = h
    places = [x.ctypes.data for x in (shared, starts, room)]
    for i, one in enumerate(starts[:size]):
        if not found.sound(one) or not check(places[0], places[1] + i * starts.strides[0], places[2]):
            return None
        type(method).check_start(method, system, one[:n], one[n:-1], t0)
    index = saved_steps(steps, every)
    own, starts = np.zeros((1, wide)), np.ascontiguousarray(starts.T)
    rows, report = np.empty((len(index), len(loop.distinct), wide)), np.empty((3, wide))
    found.many(
        places[0], own.ctypes.data, starts.ctypes.data, wide, 0, wide, steps, every, rows.ctypes.data,
        report.ctypes.data,
    )  # fmt: skip
    told = _told(_fields(loop, rows[:, :, :size]), report[:, :size], t0 + index * h)
    varied = (False,) * len(jax.tree.leaves((system, method)))
    return found.trajectory(**told, h=np.asarray(h, float), save_every=every, varied=varied)


def _platform(devices: str | None) -> str:
    if devices not in (None, "cpu", "gpu"):
        raise ValueError(
            f'devices must be "cpu", "gpu" or None (the GPU where there is one), got {devices!r}'
        )
    there = jax.default_backend() in ("gpu", "cuda")
    if devices == "gpu" and not there:
        raise ValueError(f'devices="gpu", but JAX runs on {jax.default_backend()} here; install jax[cuda12]')
    return "gpu" if there and devices != "cpu" else "cpu"


def _fields(loop: TimeLoop, rows: np.ndarray) -> Rows:
    """The rows as a tree of arrays, shape (N, K, ...); `rows` has shape (K, distinct entries, N)."""
    return jax.tree.unflatten(loop.row_tree, [_field(loop, rows, k) for k in range(len(loop.row_shapes))])


def _field(loop: TimeLoop, rows: np.ndarray, k: int) -> np.ndarray:
    """Field k of the rows."""
    sizes = loop.row_sizes
    shape = loop.row_shapes[k][0]
    entries = loop.copies[sum(sizes[:k]) : sum(sizes[: k + 1])]
    consecutive = bool(entries) and entries == list(range(entries[0], entries[0] + len(entries)))
    part = rows[:, entries[0] : entries[0] + len(entries)] if consecutive else rows[:, entries]
    moved = np.moveaxis(part, -1, 0)
    return moved.reshape(*moved.shape[:2], *shape) if len(shape) != 1 else moved


def _packed(leaves: Sequence[Any], varied: Sequence[bool], size: int, wide: int):
    """The shared values of all entries, the rows of those that vary, padded to `wide` members, and which vary."""
    shared, own, flags = [], [], []
    for x, is_varied in zip(leaves, varied, strict=True):
        x = np.asarray(x, float)
        entries = x.reshape(size, -1).T if is_varied else x.reshape(-1, 1)
        for row in entries:
            flags.append(is_varied)
            shared.append(row[0])
            if is_varied:
                own.append(_pad(row, wide))
    return np.array(shared), np.array(own) if own else np.zeros((1, wide)), flags


def _pad(row: np.ndarray, wide: int) -> np.ndarray:
    return np.concatenate([row, np.full(wide - len(row), row[-1])]) if wide > len(row) else row


@lru_cache(maxsize=64)
def _kernel(loop: TimeLoop, flags: tuple[bool, ...]) -> Callable:
    return loop.many(flags)


def _entries(start: State) -> list[np.ndarray]:
    """The numbers of the starts, one row per number."""
    return [*start.q.T, *start.v.T, start.t]


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_cores(threads, loop, leaves, varied, start, steps, save_every, count, advance):
    size = len(start.q)
    lanes = loop.lanes
    wide = -(-size // lanes) * lanes
    shared, own, flags = _packed(leaves, varied, size, wide)
    kernel = _kernel(loop, tuple(flags))
    starts = np.stack([_pad(row, wide) for row in _entries(start)])
    rows = np.empty((count, len(loop.distinct), wide))
    report = np.zeros((3, wide))
    report[0] = Status.INTERRUPTED.code
    block = max(1, min(WORK // max(steps, 1), -(-wide // (4 * threads)))) // lanes * lanes or lanes
    pointers = [x.ctypes.data for x in (shared, own, starts)]

    def work(a: int) -> int:
        b = min(a + block, wide)
        kernel(*pointers, wide, a, b, steps, save_every, rows.ctypes.data, report.ctypes.data)
        return b - a

    done = 0
    with ThreadPoolExecutor(threads) as pool:
        waiting = [pool.submit(work, a) for a in range(0, wide, block)]
        try:
            for future in waiting:
                done += future.result()
                advance(min(done, size))
        except BaseException as error:
            pool.shutdown(cancel_futures=True)
            if not isinstance(error, KeyboardInterrupt):
                raise
            missing = report[0] == Status.INTERRUPTED.code
            rows[:, :, missing] = np.nan
            known = start.q.shape[1] + start.v.shape[1]
            for k, i in enumerate(loop.copies[:known]):  # the start itself is known
                rows[0, i, missing] = starts[k, missing]
    return rows[:, :, :size], report[:, :size]


def _is_quicker(loop: TimeLoop, leaves: Sequence[Any], varied: Sequence[bool], size: int) -> bool:
    """Whether a GPU runs the kernel of the loop more quickly than XLA's code."""
    from dalembert.kernels.gpu import is_quicker

    one = [(np.size(x) // (size if v else 1), v) for x, v in zip(leaves, varied, strict=True)]
    return is_quicker(loop.whole, tuple(v for count, v in one for _ in range(count)), size)


def _on_gpu(loop, leaves, varied, start, steps, save_every, count, advance):
    from dalembert.kernels.gpu import BLOCK, call_of_many

    loop = loop.whole
    size = len(start.q)
    rows = np.empty((count, len(loop.distinct), size))
    report = np.empty((3, size))
    # As many members at a time as fit into a quarter of a GiB of rows; the others wait on the host.
    part = max(BLOCK, 2**28 // (8 * max(1, rows.shape[0] * rows.shape[1])) // BLOCK * BLOCK)
    part = min(part, -(-size // BLOCK) * BLOCK)
    for a in range(0, size, part):
        b = min(a + part, size)
        here = [x[a:b] if v else x for x, v in zip(leaves, varied, strict=True)]
        shared, own, flags = _packed(here, varied, b - a, part)
        starts = np.stack([_pad(row[a:b], part) for row in _entries(start)])
        result = call_of_many(loop, tuple(flags), shared, own, starts, steps, save_every, count)()
        rows[:, :, a:b], report[:, a:b] = (np.asarray(x)[..., : b - a] for x in result)
        advance(b)
    return rows, report


def gpu_call(system, method, q0, v0, *, h, steps: int, save_every: int) -> Callable[[], Any]:
    """The kernel with its arguments already on the GPU, to measure it alone; N must be a multiple of 128."""
    from dalembert.kernels.gpu import call_of_many

    leaves = jax.tree.leaves((system, method, np.float64(h)))
    size = len(q0)
    varied = [np.ndim(x) > 0 and np.shape(x)[0] == size for x in leaves]
    shared, own, flags = _packed(leaves, varied, size, size)
    loop = loop_of(system, method).whole
    count = len(saved_steps(steps, save_every))
    starts = np.stack(_entries(State.of(q0, v0, np.zeros(size))))
    return call_of_many(loop, tuple(flags), shared, own, starts, steps, save_every, count)


@lru_cache(maxsize=64)
def _xla_kernel(tree: Any, varied: tuple[bool, ...], steps: int, save_every: int) -> Callable:
    axes = jax.tree.unflatten(tree, [0 if v else None for v in varied])

    def one(parameters, start):
        system, method, h = parameters
        carry, rows = scan(system, method, start, h, steps, save_every)
        return rows, (carry.code, carry.residual, carry.step)

    return compiled(lambda parameters, start: jax.vmap(one, (axes, 0))(parameters, start))


def _by_xla(tree, leaves, varied, start, steps, save_every, advance) -> tuple[Rows, Any]:
    """The ensemble by vmap of the plain loop, in blocks of members, for any JAX function."""
    run = _xla_kernel(tree, tuple(varied), steps, save_every)
    parts = []
    size = len(start.q)
    block = 4096 if jax.default_backend() == "cpu" else 65536  # a GPU needs more members to be busy
    for a in range(0, size, block):
        part = slice(a, a + block)
        here = jax.tree.unflatten(tree, [x[part] if v else x for x, v in zip(leaves, varied, strict=True)])
        parts.append(jax.tree.map(np.asarray, run(here, jax.tree.map(lambda x, part=part: x[part], start))))
        advance(min(a + block, size))
    rows, report = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    return rows, report
