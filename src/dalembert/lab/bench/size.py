"""Section size: systems of many coordinates, from a chain of two bodies to chains of forty."""

import importlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert import zoo
from dalembert.lab.bench import size_c, size_peers
from dalembert.lab.bench.gradients import growth
from dalembert.lab.bench.tables import Section, Settings, Table, child, control, interleaved, summary
from dalembert.lab.bench.yardstick import FREE
from dalembert.methods import Method, method_from_text
from dalembert.methods.base import State
from dalembert.methods.cli_names import METHODS
from dalembert.model import System, as_arrays, lower
from dalembert.simulation import ensemble, simulate
from dalembert.simulation.engines import check_fit, engine
from dalembert.simulation.ensembles import cores


class Chain(NamedTuple):
    """A system of any size."""

    name: str
    source: str
    """The module and the name of its class."""
    count: str
    """The parameter that counts its bodies."""
    sizes: tuple[int, ...]
    others: tuple[tuple[str, str], ...] = ()
    """Its other parameters."""
    methods: tuple[str, ...] = (*METHODS, "frame@4")

    def given(self, size: int) -> dict[str, Any]:
        """The parameters of the system with this many bodies."""
        return {self.count: size, **dict(self.others)}

    def made(self, size: int) -> System:
        """The system with this many bodies."""
        module, _, name = self.source.partition(":")
        return getattr(importlib.import_module(module), name)(**self.given(size))


LINKS = (5, 10, 20, 40)
LATTICE = "dalembert.lab.bench.size_c:Lattice"
CHAINS = (
    Chain("Car", "dalembert.zoo:Car", "trailers", (1, 5, 10, 20, 40)),
    Chain("Snake", "dalembert.zoo:Snake", "links", LINKS),
    Chain(
        "Snake, maximal", "dalembert.zoo:Snake", "links", LINKS, (("coordinates", "maximal"),),
        ("frame", "gni", "dla-variational"),
    ),
    # For methods that need a constant mass matrix, which these chains do not have.
    Chain("Lattice", LATTICE, "size", (4, 8, 13, 23, 43), (), ("leapfrog", "dd", "dla:0.5", "dla01")),
)  # fmt: skip
STEP = 0.1
"""The step size for systems without one of their own."""
FIRST_STEPS = 100
LIMIT, QUICK_LIMIT = 200.0, 60.0
"""Seconds after which a measuring process is ended."""
GRADIENT_TRAILERS, ENSEMBLE_TRAILERS, MEMBERS = 20, 10, 1000

FIRST = f"""
import importlib, json, sys, time
import dalembert as da
from dalembert.methods import method_from_text
source, given, spelling, seconds = json.loads(sys.argv[1])
module, _, name = source.partition(":")
system, method = getattr(importlib.import_module(module), name)(**given), method_from_text(spelling)
q0, v0 = system.start()
h = system.step or {STEP}
def run(steps):
    began = time.perf_counter()
    sol = da.simulate(system, method, q0, v0, h=h, steps=steps, save_every=steps, throw=False)
    return time.perf_counter() - began, int(sol.steps)
first, made = run({FIRST_STEPS})
print(json.dumps([first, None, made]), flush=True)
if seconds:
    n = {FIRST_STEPS}
    while n < 1_000_000 and run(n)[0] < seconds / 4 and run(6 * n)[1] == 6 * n:
        n *= 2
    # Some methods end early by their nature: a run of 3 n steps is one that reached its end.
    while run(3 * n)[1] < 3 * n:
        n //= 2
    brief, long = (min(run(k)[0] for _ in range(3)) for k in (n, 3 * n))
    print(json.dumps([first, (long - brief) / (2 * n), made]))
"""


def methods_of(chain: Chain) -> tuple[list[str], dict[str, str]]:
    """The methods that take the system, and the reason of each refusal, by the library's own words."""
    system = chain.made(chain.sizes[0])
    taken, refused = [], {}
    for spelling in chain.methods:
        method = method_from_text(spelling)
        if not method.native:
            continue
        try:
            q0, v0 = system.start()
            check_fit(system, method, q0, v0, 0.0)
            taken.append(method.cli_name)
        except ValueError as error:
            refused[method.cli_name] = str(error).partition(". ")[0]
    return taken, refused


def _cases(settings: Settings) -> Iterator[tuple[Chain, str, list[tuple[int, int]]]]:
    """System, method, and for each size the number of coordinates and that of bodies."""
    for chain in CHAINS:
        some = chain.sizes[:2] if settings.quick else chain.sizes
        sizes = [(len(chain.made(k).coordinates), k) for k in some]
        for spelling in methods_of(chain)[0][: 2 if settings.quick else None]:
            yield chain, spelling, sizes


def first_and_step(chain: Chain, size: int, spelling: str, settings: Settings) -> dict[str, Any]:
    """The first call in a fresh process, that of a second process, and the time of a step, as a row."""
    limit = QUICK_LIMIT if settings.quick else LIMIT
    with tempfile.TemporaryDirectory() as folder:
        row: dict[str, Any] = {}
        for key, seconds in (("first", 0.0), ("second", 2 * settings.seconds)):
            try:
                text = json.dumps([chain.source, chain.given(size), spelling, seconds])
                row[key], step, made = child(FIRST, text, seconds=limit, DALEMBERT_CACHE=folder)
            except subprocess.TimeoutExpired:
                return row | {"ended": f"not within {limit:g} s"}
            except RuntimeError as error:
                return row | {"ended": f"failed: {str(error).strip().splitlines()[-1][:100]}"}
        ended = "yes" if made == FIRST_STEPS else f"yes; runs end after {made} steps"
        return row | {"step": 1e6 * step if step else None, "ended": ended}


def exponent(rows: Sequence[dict[str, Any]], key: str) -> float | None:
    """The slope of the logarithm of a value against that of n; None for fewer than two sizes."""
    known = [(r["n"], r[key]) for r in rows if r.get(key)]
    if len(known) < 2:
        return None
    n, value = np.log(np.array(known)).T
    return float(np.polyfit(n, value, 1)[0])


def first_calls(settings: Settings) -> tuple[list[Table], list[str]]:
    """The first calls and steps of every method that takes the chains, and how they grow."""
    table = Table(
        f"First call of {FIRST_STEPS} steps, and one step",
        [("case", "case", ""), ("n", "n", "d"), ("first", "first call, s", ".2f"),
         ("second", "second process, s", ".2f"), ("step", "step, us", ".1f"), ("ended", "finished", "")],
    )  # fmt: skip
    growing = Table(
        "How they grow: powers of n, by least squares",
        [("case", "case", ""), ("first_power", "first call ~ n^", ".2f"), ("step_power", "step ~ n^", ".2f"),
         ("sizes", "sizes", "d")],
    )  # fmt: skip
    for chain, spelling, sizes in _cases(settings):
        case, rows, fine = f"{chain.name}, {spelling}", [], True
        for n, size in sizes:
            row = {"case": case, "system": chain.name, "method": spelling, "n": n}
            if fine:
                row |= first_and_step(chain, size, spelling, settings)
                fine = row["ended"].startswith("yes")
            else:
                row["ended"] = "not tried: the smaller one did not finish"
            rows.append(row)
        table.rows += rows
        powers = {f"{key}_power": exponent(rows, key) for key in ("first", "step")}
        measured = sum(bool(r.get("step")) for r in rows)
        growing.rows.append({"case": case, **powers, "sizes": measured})
    notes = []
    for chain in CHAINS:
        for spelling, reason in methods_of(chain)[1].items():
            notes.append(f"{chain.name}, {spelling}: refused ({reason}).")
    return [table, growing], notes


def number(system: System, method: Method, steps: int) -> Any:
    """A function of the speed and the turning rate of the car at the start that returns a number of the end."""
    q0 = jnp.asarray(system.start()[0], float)

    def scalar(moving: Any) -> Any:
        v0 = lower(system).frame(q0) @ moving
        sol = simulate(system, method, q0, v0, h=system.step, steps=steps, save_every=steps)
        return jnp.sum(sol.q[-1] ** 2) + jnp.sum(sol.v[-1])

    return scalar


MOVING = (1.0, 0.4)
"""The speed and the turning rate of the car at the start."""
MEMORY = """
import json, sys
from dalembert.lab.bench.size import gradient_memory
print(json.dumps([gradient_memory(*x) for x in json.loads(sys.argv[1])]))
"""


def gradient_memory(trailers: int, steps: int) -> int:
    """The bytes by which this process grows during a gradient by frame."""
    gradient = jax.jit(jax.grad(number(zoo.Car(trailers=trailers), method_from_text("frame"), steps)))
    moving = jnp.asarray(MOVING)
    return growth(lambda: gradient(moving))


def gradient(settings: Settings) -> tuple[Table, list[str]]:
    """The time of a gradient against that of a run, and its memory."""
    trailers, steps = (1, 100) if settings.quick else (GRADIENT_TRAILERS, 1000)
    lengths = (steps, 10 * steps)
    columns = [("case", "case", ""), ("n", "n", "d"), ("ours", "gradient, s", ".2g")]
    columns += [
        ("theirs", "run, s", ".2g"),
        ("gradient", "gradient / run", ".1f"),
        ("spread", "spread", ".0%"),
    ]
    columns += [(f"memory{i}", f"MB, {k:,} steps", ".1f") for i, k in enumerate(lengths)]
    table = Table(f"Gradient of {steps:,} steps by frame", columns)
    system, method, notes = zoo.Car(trailers=trailers), method_from_text("frame"), []
    q0 = jnp.asarray(system.start()[0], float)
    moving, v0 = jnp.asarray(MOVING), lower(system).frame(q0) @ jnp.asarray(MOVING)
    slope = jax.jit(jax.grad(number(system, method, steps)))
    fixed = as_arrays(system), as_arrays(method)

    def run() -> Any:
        loop = engine(*fixed, jnp.asarray(system.step))
        loop.begin(State(q0, v0, jnp.zeros(())))
        return loop.run(steps, steps)

    calls = {"ours": lambda: jax.block_until_ready(slope(moving)), "theirs": run}
    times = {k: summary(x) for k, x in interleaved(calls, settings.repeats, 4 * settings.patience).items()}
    row: dict[str, Any] = {"case": f"Car(trailers={trailers})", "n": trailers + 3}
    row |= {k: x["median"] for k, x in times.items()}
    row["gradient"] = row["ours"] / row["theirs"]
    row["spread"] = max(x["spread"] for x in times.values())
    try:
        found = child(MEMORY, json.dumps([(trailers, k) for k in lengths]))
        row |= {f"memory{i}": x / 1e6 for i, x in enumerate(found)}
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        notes.append(f"No memory of gradients measured: {str(error).strip().splitlines()[-1][:100]}")
    table.rows.append(row)
    return table, notes


def many(settings: Settings) -> tuple[Table | None, list[str]]:
    """da.ensemble on all cores against one thread."""
    if cores() == 1:
        return None, ["All cores against one thread was skipped: there is one core."]
    trailers, members, steps = (1, 64, 50) if settings.quick else (ENSEMBLE_TRAILERS, MEMBERS, 50)
    system, method = zoo.Car(trailers=trailers), method_from_text("frame")
    q0, v0 = (np.asarray(x, float) for x in system.start())
    starts = np.linspace(0.7, 1.3, members)[:, None] * v0

    def run(threads: int) -> Any:
        return ensemble(
            system, method, q0, starts, h=system.step, steps=steps, save_every=steps, devices="cpu",
            threads=threads,
        )  # fmt: skip

    calls = {"ours": lambda: run(cores()), "theirs": lambda: run(1)} | control(cores())
    times = {k: summary(x) for k, x in interleaved(calls, settings.repeats, 10 * settings.patience).items()}
    row: dict[str, Any] = {k: times[k]["median"] for k in ("ours", "theirs")}
    row |= {"case": f"Car(trailers={trailers}), {members:,} members", "n": trailers + 3, "steps": steps}
    row["gain"] = row["theirs"] / row["ours"]
    row["control"] = times["control_one"]["median"] / times["control_all"]["median"]
    row["decides"] = row["control"] > FREE * cores()
    columns = [("case", "case", ""), ("n", "n", "d"), ("ours", f"{cores()} threads, s", ".3f")]
    columns += [("theirs", "one thread, s", ".3f"), ("gain", "speed-up", ".2f")]
    columns += [("control", "speed-up of the control", ".2f"), ("steps", "steps", ",d")]
    return Table("da.ensemble by frame", columns, [row]), []


def of_chains(settings: Settings) -> Section:
    """Section size."""
    section = Section(
        "size",
        "Chains of many bodies, with n coordinates: zoo.Car with 1 to 40 trailers, and zoo.Snake with 5 to 40 links, "
        "in minimal and in maximal coordinates. Methods that need a constant mass matrix are measured on a lattice of "
        f"4 to 43 angles, which has one. The first call, in a fresh process, is a da.simulate of {FIRST_STEPS} steps "
        "after the import; the folder of compiled code is empty then, and the second process finds in it what the "
        "first one left. A step is measured in a longer run of which only the end is saved.",
    )
    section.tables, section.notes = first_calls(settings)
    for part in (size_c.against_c, size_peers.against_others):
        tables, notes = part(settings)
        section.tables += tables
        section.notes += notes
    for part in (gradient, many):
        table, notes = part(settings)
        section.tables += [table] if table is not None else []
        section.notes += notes
    return section
