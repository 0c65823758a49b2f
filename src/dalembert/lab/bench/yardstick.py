"""Sections c and ensemble: the library's machine code against C written by hand for one system."""

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert import zoo
from dalembert.kernels import pack
from dalembert.lab.bench.tables import (
    RATIO,
    Section,
    Settings,
    Table,
    compared,
    control,
    fitting,
    interleaved,
)
from dalembert.methods import DLA, DLA01, DiscreteGradient, FrameGradient, LeapFrog, Method
from dalembert.methods.base import State
from dalembert.model import System, as_arrays, lower
from dalembert.simulation import ensemble
from dalembert.simulation.engines import loop_of, single
from dalembert.simulation.ensembles import cores

H = 0.1
MEMBERS = 10_000
FREE = 0.8
"""If the control speeds up by less than this fraction of the number of cores, the cores were not free."""
NO_C = "no hand-written C here: the folder benchmarks/c comes with the source tree, not with the installed package"
NO_GCC = "gcc is not installed, or failed to build the C sources"


def methods() -> dict[str, Method]:
    """The methods that have C functions, by the name in the functions."""
    return {
        "leapfrog": LeapFrog(),
        "dla01": DLA01(),
        "dla_half": DLA(0.5),
        "dd": DiscreteGradient(),
        "frame": FrameGradient(),
    }


def systems() -> dict[str, System]:
    """The systems that have C functions, by the prefix of the functions."""
    return {"cvt": zoo.PendulumCVT(eps=0.5), "snakeboard": zoo.Snakeboard()}


def builder() -> Any:
    """benchmarks/c/build.py as a module; None if the source tree is missing."""
    path = Path(__file__).resolve().parents[4] / "benchmarks" / "c" / "build.py"
    spec = (
        importlib.util.spec_from_file_location("dalembert_benchmarks_build", path) if path.exists() else None
    )
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pointer(array: np.ndarray) -> Any:
    """The array's data as C doubles; the array must be contiguous and stay alive."""
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def c_start(method: Method, system: System, q0: Any, v0: Any, h: float = H) -> Any:
    """The state of a C function: q, v, and the method's own velocity or components if it has them."""
    q0, v0 = jnp.asarray(q0, float), jnp.asarray(v0, float)
    memory = method.init(lower(system), State(q0, v0, jnp.zeros(())), jnp.asarray(h))
    own = [getattr(memory, name) for name in ("u", "w") if hasattr(memory, name)]
    return jnp.concatenate([q0, v0, *own])


def numbers(system: System) -> np.ndarray:
    """The system's parameters in the order of its fields."""
    return np.array([float(x) for x in jax.tree.leaves(system)])


def _cases(which: dict[str, int], ending: str) -> Iterator[tuple[str, System, Method]]:
    for prefix, system in systems().items():
        for name, method in methods().items():
            if f"{prefix}_{name}{ending}" in which:
                yield f"{prefix}_{name}{ending}", system, method


def ours_single(
    system: System, method: Method, q0: Any, v0: Any, h: float = H
) -> Callable[[int], np.ndarray]:
    """run(steps) -> the last (q, v), by the library's machine code called as `simulate` calls it."""
    system, method = as_arrays(system), as_arrays(method)
    loop, (start, run) = single(system, method)
    parameters, first = pack((system, method, np.float64(h))), pack((q0, v0, np.zeros(())))
    carry, rows = np.empty(len(loop.carry)), np.empty((2, len(loop.row)))

    def call(steps: int) -> np.ndarray:
        start(parameters.ctypes.data, first.ctypes.data, carry.ctypes.data, rows.ctypes.data)
        run(parameters.ctypes.data, carry.ctypes.data, steps, steps, steps, rows.ctypes.data, 1)
        if carry[loop.code]:
            raise RuntimeError(f"{system.label} by {method.cli_name} failed")
        return rows[0, : len(q0) + len(v0)]

    return call


def c_single(function: Any, state: np.ndarray, parameters: np.ndarray, n: int) -> Callable[[int], np.ndarray]:
    """run(steps) -> the last (q, v), by the C function."""
    rows = np.empty(2 * n)

    def call(steps: int) -> np.ndarray:
        now = state.copy()
        good = function(pointer(now), pointer(parameters), H, steps, steps, pointer(rows))
        if good != steps:
            raise RuntimeError(f"the C function stopped after {good} of {steps} steps")
        return now[: 2 * n]

    return call


def against_c(settings: Settings) -> Section:
    """Section c."""
    section = Section(
        "c",
        f"One trajectory, h = {H}, with only the end saved: the library's kernel against C written by hand "
        "for that one system and method (gcc -O3 -march=native). Nanoseconds per step.",
    )
    build = builder()
    library = build.library() if build is not None else None
    if build is None or library is None:
        section.skipped = NO_C if build is None else NO_GCC
        return section
    columns = [("case", "case", ""), ("ours", "ours, ns", ".1f"), ("theirs", "C, ns", ".1f"), *RATIO]
    columns += [("steps", "steps", ",d"), ("difference", "difference after 200 steps", ".0e")]
    table = Table("One trajectory against hand-written C", columns)
    for name, system, method in _cases(build.SINGLE, ""):
        q0, v0 = (np.asarray(x, float) for x in system.start())
        ours = ours_single(system, method, q0, v0)
        state = np.array(c_start(method, system, q0, v0))
        theirs = c_single(getattr(library, name), state, numbers(system), len(q0))
        difference = float(np.max(np.abs(ours(200) - theirs(200))))
        steps = fitting(theirs, settings.seconds, 10_000, 1_000_000)
        calls = {"ours": lambda f=ours, n=steps: f(n), "theirs": lambda f=theirs, n=steps: f(n)}
        times = interleaved(calls, settings.repeats)
        row = compared(times["ours"], times["theirs"], steps * 1e-9)
        table.rows.append({"case": name, **row, "steps": steps, "difference": difference})
    section.tables.append(table)
    return section


def members(system: System) -> tuple[np.ndarray, np.ndarray]:
    """Starts that differ in the size of the velocity, which keeps them on the constraint."""
    q0, v0 = (np.asarray(x, float) for x in system.start())
    return np.tile(q0, (MEMBERS, 1)), v0 * np.linspace(0.7, 1.3, MEMBERS)[:, None]


def ours_many(system: System, method: Method, q0: np.ndarray, v0: np.ndarray) -> Callable[[int], np.ndarray]:
    """run(steps) -> the last rows (entries, N), by one thread."""
    system, method = as_arrays(system), as_arrays(method)
    loop = loop_of(system, method)
    shared = pack((system, method, np.float64(H)))
    kernel = loop.many([False] * len(shared))
    size = len(q0)
    assert size % loop.lanes == 0
    starts = np.ascontiguousarray(np.concatenate([q0.T, v0.T, np.zeros((1, size))]))
    own, report = np.zeros((1, size)), np.zeros((len(loop.report) + len(loop.counted), size))
    rows = np.empty((2, len(loop.distinct), size))

    def call(steps: int) -> np.ndarray:
        places = [x.ctypes.data for x in (shared, own, starts)]
        kernel(*places, size, 0, size, steps, steps, rows.ctypes.data, report.ctypes.data)
        if np.any(report[0]):
            raise RuntimeError(f"{system.label} by {method.cli_name} failed")
        return rows[1]

    return call


def c_many(function: Any, states: np.ndarray, parameters: np.ndarray) -> Callable[[int], np.ndarray]:
    """run(steps) -> the last states (entries, N), by one thread."""

    def call(steps: int) -> np.ndarray:
        now = states.copy()
        function(pointer(now), pointer(parameters), H, steps, now.shape[1])
        return now

    return call


def _on(chosen: set[int], call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, restricted to these cores."""

    def there() -> Any:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, chosen)
        try:
            return call()
        finally:
            os.sched_setaffinity(0, before)

    return there


def ensembles(settings: Settings) -> Section:
    """Section ensemble."""
    section = Section(
        "ensemble",
        f"{MEMBERS:,} members, h = {H}. On one core: the library's kernel for vectors of members against C "
        "written by hand with SIMD loops. The second table compares da.ensemble with all its "
        "checks on all cores and on one. The control is "
        "hashing in threads, "
        "without the library: where it does not speed up, the cores were busy and the row says nothing.",
    )
    build = builder()
    library = build.library() if build is not None else None
    names = (
        build.MANY
        if build is not None
        else {f"cvt_{x}_many": 0 for x in ("leapfrog", "dla01", "dla_half", "dd")}
    )
    columns = [("case", "case", ""), ("ours", "ours, ns", ".2f"), ("theirs", "SIMD C, ns", ".2f"), *RATIO]
    columns += [("steps", "steps", ",d"), ("difference", "difference after 100 steps", ".0e")]
    table = Table("One core, nanoseconds a step and member", columns)
    scaling = Table(
        f"da.ensemble on {cores()} cores against on one, seconds",
        [("case", "case", ""), ("ours", "all cores, s", ".3f"), ("theirs", "one core, s", ".3f"),
         ("speedup", "speed-up", ".2f"),
         ("control", "speed-up of the control", ".2f"), ("spread", "spread", ".0%"), ("steps", "steps", ",d")],
    )  # fmt: skip
    for name, system, method in _cases(names, "_many"):
        q, v = members(system)
        ours = ours_many(system, method, q, v)
        most = fitting(ours, settings.seconds, 5, 10_000)
        if library is not None:
            states = np.asarray(jax.jit(jax.vmap(partial(c_start, method, system)))(q, v))
            states = np.ascontiguousarray(states.T)
            theirs = c_many(getattr(library, name), states, numbers(system))
            # The C states begin with q and v. Our rows may hold an entry that two columns share only once.
            difference = float(np.max(np.abs(ours(100)[: q.shape[1]] - theirs(100)[: q.shape[1]])))
            calls = {"ours": lambda f=ours, n=most: f(n), "theirs": lambda f=theirs, n=most: f(n)}
            times = interleaved(calls, settings.repeats)
            row = compared(times["ours"], times["theirs"], most * MEMBERS * 1e-9)
            table.rows.append({"case": name, **row, "steps": most, "difference": difference})
        if cores() > 1 and hasattr(os, "sched_setaffinity"):
            steps = 3 * most

            def run(s=system, m=method, q=q, v=v, steps=steps) -> Any:
                return ensemble(s, m, q, v, h=H, steps=steps, save_every=steps, devices="cpu")

            allowed = sorted(os.sched_getaffinity(0))
            calls = {"ours": _on(set(allowed), run), "theirs": _on({allowed[0]}, run)}
            times = interleaved(calls | control(cores()), settings.repeats)
            row = compared(times["ours"], times["theirs"])
            row["speedup"] = 1 / row["ratio"]
            row["control"] = float(np.median(times["control_one"]) / np.median(times["control_all"]))
            row["decides"] = row["control"] > FREE * cores()
            scaling.rows.append({"case": name.removesuffix("_many"), **row, "steps": steps})
    if library is None:
        section.notes.append(f"The comparison with C was skipped: {NO_C if build is None else NO_GCC}.")
    section.tables = [t for t in (table, scaling) if t.rows]
    if not scaling.rows:
        section.notes.append(
            "All cores against one was skipped: there is one core, or the operating system cannot choose cores."
        )
    return section
