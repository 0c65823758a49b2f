"""`make soak`: hours of what `make test` does for minutes, and one table of what came of it.

    python tests/properties/soak.py [--only systems,steps,...] [--seed N] [--scale X]

Each section runs in a process of its own with a time limit, so that a hang is seen and counted. Silent wrong answers,
lost files, hangs and tracebacks must all be zero; the exit status says so. Ctrl-C ends it with the table so far.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))


def _memory() -> float:
    """The memory of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def _family(name: str, members: int, seed: int) -> Any:
    """What became of a family, in a process of its own, so that its machine code goes with it."""
    from properties.attack import attack
    from properties.families import ALL

    return attack(next(family for family in ALL if family.name == name), members, seed, every=True)


def systems(seed: int, scale: float) -> dict[str, Any]:
    """Ten times the systems of the ordinary run, by all methods that take them."""
    from properties.attack import MEMBERS, Count, table
    from properties.families import ALL, FAMILIES

    members = max(2, math.ceil(10 * MEMBERS * len(FAMILIES) / len(ALL) * scale))
    chosen = ALL if scale >= 0.1 else ALL[seed % 12 :: 12]  # compiling takes most of the time: fewer families
    counts = {family.kind: Count() for family in chosen}
    cores = max(1, min(len(chosen), os.cpu_count() or 1))
    began = time.perf_counter()
    with ProcessPoolExecutor(cores, get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(_family, family.name, members, seed): family for family in chosen}
        for k, done in enumerate(as_completed(running), 1):
            family, count = running[done], done.result()
            counts[family.kind] += count
            spent = f"{time.perf_counter() - began:.0f} s"
            found = f"{count.comparisons} comparisons, {len(count.wrong)} wrong, {len(count.tracebacks)} tracebacks"
            print(f"{k} of {len(chosen)} families after {spent}: {family.name}, {found}", flush=True)
            for line in (*count.wrong, *count.tracebacks)[:10]:
                print(f"    {line}", flush=True)
    print(table(counts))
    whole = Count()
    for count in counts.values():
        whole += count
    done = f"{whole.systems} systems, {whole.comparisons} comparisons, {whole.refused} refused, {whole.told} told"
    return {"done": done, "wrong": whole.wrong, "tracebacks": whole.tracebacks}


def steps(seed: int, scale: float) -> dict[str, Any]:
    """A thousand million steps of leap-frog with an angle that goes round, then one run that is interrupted."""
    import numpy as np

    import dalembert as da

    number = int(1e9 * scale)
    system, wrong = da.zoo.PendulumCVT(eps=0.5), []
    start = system.start("rotating")
    da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=10_000)  # compiles
    before, began = _memory(), time.perf_counter()
    sol = da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=number, save_every=max(1, number // 1000))
    spent, grown = time.perf_counter() - began, _memory() - before
    energy = sol.energy()
    off = np.max(np.abs(energy - energy[0]))
    # Leap-frog keeps a nearby energy, of which this one is a percent away at h = 0.1 whatever the time.
    if not off < 0.1:
        wrong.append(f"the energy is off by {off:.2e} after {number:,} steps")
    if sol.status is not da.Status.OK or sol.steps != number:
        wrong.append(f"{sol.message}, {sol.steps} of {number} steps")
    if not abs(sol.t[-1] - 0.1 * number) <= 1e-9 * number:
        wrong.append(f"the run ended at {sol.t[-1]!r}, not at {0.1 * number!r}")
    if not grown < 50:
        wrong.append(f"memory grew by {grown:.0f} MB")
    turns = sol.q[-1, 2] / (2 * np.pi)
    rate = (sol.q[-1, 2] - sol.q[0, 2]) / (0.1 * number)
    if not 2 < rate < 3:  # its energy is 4, so that its velocity lies between 2 and 8^(1/2)
        wrong.append(f"the pendulum turned with {rate:.3g} on average")
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stopped = da.simulate(system, da.LeapFrog(), *start, h=0.1, steps=10**12, save_every=10**9)
    waited = time.perf_counter() - began
    if stopped.status is not da.Status.INTERRUPTED or not waited < 5:
        wrong.append(f"Ctrl-C after 1 s ended the run after {waited:.1f} s with {stopped.status}")
    each = 1e9 * spent / number
    done = f"{number:,} steps ({each:.0f} ns each), {turns:,.0f} turns, energy within {off:.1e}, {grown:.0f} MB more"
    return {"done": done, "wrong": wrong}


def lambdas(seed: int, scale: float) -> dict[str, Any]:
    """A cell that is run again and again: new lambdas with the same text, whose closures hold other numbers."""
    import jax.numpy as jnp
    import numpy as np

    import dalembert as da

    number, wrong = max(10, int(2000 * scale)), []
    random = np.random.default_rng(seed)
    peak = 0.0
    for k in range(number):
        rate = random.uniform(0.5, 3.0)
        system = da.system(
            coordinates=("x", "y"),
            metric=lambda q: jnp.eye(2),
            potential=lambda q, rate=rate: 0.5 * rate**2 * (q[0] ** 2 + q[1] ** 2),
            constraints=lambda q, rate=rate: jnp.array([[jnp.asarray(rate), -1.0]]),
        )
        sol = da.simulate(system, da.LeapFrog(), [1.0, rate], [0.0, 0.0], h=0.01, steps=100)
        # On the line y = rate x an oscillator; the step's error is rate^3 t h^2/24 in the phase.
        off = np.max(np.abs(sol.q[:, 0] - np.cos(rate * sol.t)))
        if not off < 5e-4:
            wrong.append(f"run {k}, rate {rate:.3f}: off by {off:.2e}")
        # The same text with the number in a cell, not in a default.
        potential = (lambda c: lambda q: c * q[0])(rate)
        falling = da.system(coordinates=("x",), metric=lambda q: jnp.eye(1), potential=potential)
        end = da.simulate(falling, da.FrameGradient(), [0.0], [0.0], h=0.1, steps=10)
        if not abs(end.q[-1, 0] + 0.5 * rate) < 1e-12:
            wrong.append(f"run {k}: fell by {end.q[-1, 0]!r}, expected {-0.5 * rate!r}")
        peak = max(peak, _memory())
        if peak > 4000:  # it will not get better
            wrong.append(f"memory reached {peak:.0f} MB after {k + 1} of {number} runs")
            break
    if peak > 1000 and not wrong:
        wrong.append(f"memory reached {peak:.0f} MB")
    return {"done": f"{number} new systems, {peak:.0f} MB at most", "wrong": wrong}


def _told(counts: Mapping[str, int], bad: Sequence[str] = ()) -> dict[str, Any]:
    """Counts of another file in the words of the table: names that speak of wrong, lost or hanging are failures."""
    told: dict[str, Any] = {"done": ", ".join(f"{name} {number}" for name, number in counts.items())}
    for column, words in FAILURES.items():
        told[column] = [
            name
            for name, number in counts.items()
            for _ in range(number)
            if any(word in name for word in words)
        ]
    if bad:
        print("\n".join(bad))
    return told


FAILURES = {
    "wrong": ("wrong", "silent"),
    "lost": ("lost", "missing"),
    "hangs": ("hang", "hung"),
    "tracebacks": ("traceback", "crash"),
}


def kills(seed: int, scale: float) -> dict[str, Any]:
    """Sweeps that are killed at random times and go on."""
    from properties.kills import kill_sweeps

    return _told(kill_sweeps(max(1, int(100 * scale)), seed))


def bitflips(seed: int, scale: float) -> dict[str, Any]:
    """Files with a bit turned over."""
    from properties import bitflips as flips

    number = max(4, int(1000 * scale))
    parts = {
        ".zarr": flips.flip_trajectory(number // 3, seed, ".zarr"),
        ".nc": flips.flip_trajectory(number // 3, seed + 1, ".nc"),
        "sweep": flips.flip_sweep(number - 2 * (number // 3), seed + 2),
    }
    whole: dict[str, Any] = {"done": "", "wrong": [], "lost": [], "hangs": [], "tracebacks": []}
    for name, counts in parts.items():
        for key, value in _told(counts).items():
            whole[key] += f"{name}: {value}; " if key == "done" else [f"{name} {x}" for x in value]
    return whole


def specs(seed: int, scale: float) -> dict[str, Any]:
    """Sweep files with something wrong in them."""
    from properties.mutations import count_outcomes

    counts, bad = count_outcomes(max(10, int(1000 * scale)), seed)
    return _told(counts, [f"{text}\n{said}" for text, said in bad])


def reductions(seed: int, scale: float) -> dict[str, Any]:
    """Random systems with a symmetry, and such that look as if they had one."""
    from properties.reductions_at_random import reduction_attack

    counts = dict(reduction_attack(max(1, int(100 * scale)), seed))
    worst = counts.pop("worst", 0.0)
    # Here what is accepted has a symmetry that is broken.
    told = _told({f"silently {name}" if name == "accepted" else name: x for name, x in counts.items()})
    return {**told, "done": f"{told['done']}, off by {worst:.1e} at most"}


# Name: (the section, the seconds that it may take at scale 1, and those that it may take at least).
SECTIONS: dict[str, tuple[Callable[[int, float], dict[str, Any]], float, float]] = {
    "systems": (systems, 10800, 3600),
    "steps": (steps, 1200, 120),
    "lambdas": (lambdas, 5400, 600),
    "kills": (kills, 7200, 900),
    "bitflips": (bitflips, 3600, 900),
    "specs": (specs, 3600, 900),
    "reductions": (reductions, 7200, 1800),
}


def run_section(name: str, seed: int, scale: float) -> dict[str, Any]:
    """A section in its own process group; a time limit makes it a hang, whatever it left running is ended."""
    _, at_one, least = SECTIONS[name]
    limit = max(least, at_one * scale)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, __file__, "--section", name, "--answer", str(answer)]
        command += ["--seed", str(seed), "--scale", str(scale)]
        began = time.perf_counter()
        process = subprocess.Popen(command, start_new_session=True)
        found: dict[str, Any] = {}
        try:
            process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            found = {"done": "did not end", "hangs": [f"{name} took more than {limit:.0f} s"]}
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if not found and answer.exists():
            found = json.loads(answer.read_text())
        elif not found:
            ended = process.returncode
            found = {"done": "nothing", "tracebacks": [f"{name} ended with status {ended} and no answer"]}
    return {**found, "seconds": time.perf_counter() - began}


def answer(name: str, seed: int, scale: float, file: Path) -> None:
    """What the process of a section does."""
    try:
        found = SECTIONS[name][0](seed, scale)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("properties"):
            raise
        found = {"done": f"not there: {error.name}", "tracebacks": [str(error)]}
    except Exception:
        traceback.print_exc()
        found = {"done": "broke off", "tracebacks": [traceback.format_exc(limit=-3)]}
    file.write_text(json.dumps(found, default=str))


def table(results: dict[str, dict[str, Any]]) -> str:
    """One line for each section."""
    head = ("section", "silent wrong", "lost", "hangs", "tracebacks", "seconds", "what was done")
    lines = [head]
    for name, found in results.items():
        numbers = [str(len(found.get(column, ()))) for column in FAILURES]
        lines.append((name, *numbers, f"{found['seconds']:.0f}", found["done"]))
    widths = [max(len(line[k]) for line in lines) for k in range(len(head) - 1)]
    text = []
    for line in lines:
        cells = [
            x.ljust(w) if k == 0 else x.rjust(w) for k, (x, w) in enumerate(zip(line, widths, strict=False))
        ]
        text.append("  ".join([*cells, line[-1]]).rstrip())
    return "\n".join(text)


def main() -> int:
    """Runs the sections and prints the table."""
    # A shell without a terminal makes what it starts in the background deaf to Ctrl-C; here it is part of the tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description="Runs for hours and counts what is wrong, lost, or hangs.")
    parser.add_argument("--only", default="", help=f"sections, with commas between: {', '.join(SECTIONS)}")
    parser.add_argument("--seed", type=int, default=None, help="the default is new every time, and printed")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of it: 0.01 takes minutes")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.section:
        answer(given.section, given.seed, given.scale, given.answer)
        return 0
    names = [x.strip() for x in given.only.split(",") if x.strip()] or list(SECTIONS)
    if unknown := [x for x in names if x not in SECTIONS]:
        parser.error(f"there is no section {', '.join(unknown)}; choose from: {', '.join(SECTIONS)}")
    if not given.scale > 0:
        parser.error(f"--scale must be positive, got {given.scale}")
    seed = int(time.time()) % 1_000_000 if given.seed is None else given.seed
    print(f"seed {seed}, scale {given.scale:g}: {', '.join(names)}", flush=True)
    results: dict[str, dict[str, Any]] = {}
    interrupted = False
    try:
        for name in names:
            print(f"== {name}: {(SECTIONS[name][0].__doc__ or '').splitlines()[0]}", flush=True)
            results[name] = run_section(name, seed, given.scale)
    except KeyboardInterrupt:
        interrupted = True
    for found in results.values():
        for column in FAILURES:
            lines = Counter(found.get(column, ()))
            for line, number in lines.most_common(10):
                print(f"{column}: {line}" + (f" ({number} times)" if number > 1 else ""))
            if len(lines) > 10:
                print(f"{column}: and {len(lines) - 10} others")
    print(f"\nseed {seed}, scale {given.scale:g}")
    print(table(results))
    if interrupted:
        print(f"interrupted; not run: {', '.join(x for x in names if x not in results)}")
    return int(interrupted or any(found.get(c) for found in results.values() for c in FAILURES))


if __name__ == "__main__":
    sys.exit(main())
