"""Section gradients: the cost of reverse-mode derivatives of a run."""

import ctypes
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from dalembert import zoo
from dalembert.lab.bench.tables import Section, Settings, Table, child, interleaved, summary
from dalembert.methods import Method, State, method_from_text
from dalembert.model import as_arrays
from dalembert.simulation import simulate
from dalembert.simulation.engines import engine

METHODS = ("leapfrog", "dla:0.5", "frame")
H = 0.1
MEMORY = """
import json, sys
from dalembert.lab.bench.gradients import memory
print(json.dumps([memory(sys.argv[1], steps) for steps in json.loads(sys.argv[2])]))
"""


def number(method: Method, steps: int) -> Callable:
    """A function of system, q0 and v0 that returns a number made from the end state."""

    def scalar(system, q0, v0):
        sol = simulate(system, method, q0, v0, h=H, steps=steps, save_every=steps)
        return jnp.sum(sol.q[-1] ** 2) + jnp.sum(sol.v[-1])

    return scalar


def _start() -> tuple[Any, Any, Any]:
    system = zoo.PendulumCVT(eps=0.5)
    q0, v0 = (jnp.asarray(x, float) for x in system.start())
    return as_arrays(system), q0, v0


def memory(spelling: str, steps: int) -> int:
    """The bytes by which this process grows while it computes a gradient that is already compiled."""
    gradient = jax.jit(jax.grad(number(method_from_text(spelling), steps), argnums=(0, 1, 2)))
    start = _start()
    return growth(lambda: gradient(*start))


def growth(call: Callable[[], Any]) -> int:
    """The bytes by which this process grows, at its peak, during a call that was made before."""
    before = _peak(reset=True)
    if before is None:  # only the peak since the start is known, which includes compilation
        jax.block_until_ready(call())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak * (1 if sys.platform == "darwin" else 1024)
    jax.block_until_ready(call())
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # returns free memory, so that it counts again
    if trim is not None:
        trim(0)
    before = _peak(reset=True) or 0
    jax.block_until_ready(call())
    return (_peak(reset=False) or 0) - before


def _peak(reset: bool) -> int | None:
    """The peak memory of this process since the last reset, in bytes; None if Linux does not report it."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = dict(x.split(":", 1) for x in Path("/proc/self/status").read_text().splitlines())
        return int(status["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError):
        return None


def cost(settings: Settings) -> Section:
    """Section gradients."""
    steps = 1_000 if settings.quick else 10_000
    lengths = [steps, 10 * steps]
    section = Section(
        "gradients",
        f"jax.grad of a number made from the end state of da.simulate (PendulumCVT, h = {H}, {steps:,} steps, only "
        "the end saved) with respect to the parameters, q0 and v0, in one jit, compiled beforehand. It is "
        "compared with the loop alone, without da.simulate's checks of the input. Memory is the growth of the process, "
        "at its peak, during a gradient.",
    )
    columns = [("case", "method", ""), ("ours", "gradient, s", ".2g"), ("jitted", "run inside jit, s", ".2g")]
    columns += [("theirs", "run, s", ".2g"), ("ratio", "gradient / run", ".1f"), ("spread", "spread", ".0%")]
    columns += [(f"memory{i}", f"MB, {n:,} steps", ".1f") for i, n in enumerate(lengths)]
    table = Table("Reverse mode", columns)
    start = _start()
    for spelling in METHODS[: 1 if settings.quick else None]:
        method = method_from_text(spelling)
        value = number(method, steps)
        gradient, jitted = jax.jit(jax.grad(value, argnums=(0, 1, 2))), jax.jit(value)

        def run(method=method) -> Any:
            loop = engine(start[0], as_arrays(method), jnp.asarray(H))
            loop.begin(State(*start[1:], jnp.zeros(())))
            return loop.run(steps, steps)

        calls = {
            "ours": lambda f=gradient: jax.block_until_ready(f(*start)),
            "jitted": lambda f=jitted: jax.block_until_ready(f(*start)),
            "theirs": run,
        }
        times = {k: summary(x) for k, x in interleaved(calls, settings.repeats, settings.patience).items()}
        row: dict[str, Any] = {"case": spelling, **{k: x["median"] for k, x in times.items()}}
        row["ratio"] = row["ours"] / row["theirs"]
        row["spread"] = max(x["spread"] for x in times.values())
        try:
            found = child(MEMORY, spelling, json.dumps(lengths))
            row |= {f"memory{i}": x / 1e6 for i, x in enumerate(found)}
        except RuntimeError as error:
            section.notes.append(f"{spelling}: no memory measured: {str(error).strip().splitlines()[-1]}")
        table.rows.append(row)
    section.tables.append(table)
    return section
