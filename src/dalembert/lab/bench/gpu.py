"""Kernels on a GPU, compared with hand-written CUDA, with vmap + scan, and with the CPU's results."""

import ctypes
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert import zoo
from dalembert.lab.bench.tables import Section, Table
from dalembert.methods import FrameGradient, LeapFrog, Method, State, method_from_text
from dalembert.model import System, as_arrays
from dalembert.simulation import ensemble
from dalembert.simulation.ensembles import gpu_call
from dalembert.simulation.loop import scan

METHODS = (
    "leapfrog", "leapfrog:momentum", "dla:0.5", "dla:0.25", "dla01", "dd", "dd:average", "dd:itoh-abe", "frame",
    "frame:gonzalez", "dla01@4", "frame@4", "dla01@6", "frame@8", "reference",
)  # fmt: skip
MEMBERS, STEPS, H = 256, 100, 0.05
CLOSE = 1e-9
Tell = Callable[[str], None]
WHAT = (
    "2^20 members of 1,000 steps by leap-frog, and 2^15 of 50 steps of a car with 5 and with 20 trailers by frame, "
    "double precision, one GPU: the library's kernel, vmap + lax.scan of the same step, and CUDA written by hand. "
    "Trajectory-steps per second; only the kernel is timed, with the data already on the GPU."
)


def cases() -> Iterator[tuple[str, System, Method, np.ndarray, np.ndarray]]:
    """Every system of the zoo with every method."""
    for name in zoo.__all__:
        system = getattr(zoo, name)()
        q0, v0 = (np.asarray(x, float) for x in system.start())
        scale = np.linspace(0.7, 1.3, MEMBERS)[:, None]
        for spelling in METHODS:
            yield f"{name} {spelling}", system, method_from_text(spelling), q0, v0 * scale


def expect(path: Path, tell: Tell) -> None:
    """Writes the results of the CPU to a file."""
    results = {}
    for label, system, method, q0, v0 in cases():
        try:
            sol = ensemble(system, method, q0, v0, h=H, steps=STEPS, save_every=STEPS, devices="cpu")
        except ValueError:
            continue  # the method does not support the system
        results[label] = np.concatenate([sol.q[:, -1], sol.v[:, -1]], axis=1)
        tell(label)
    np.savez_compressed(path, **results)


def agree(path: Path, tell: Tell) -> int:
    """Compares the GPU's results with the CPU's; returns the number of cases that differ by more than 1e-9."""
    expected, bad, worst = np.load(path), 0, 0.0
    for label, system, method, q0, v0 in cases():
        if label not in expected:
            continue
        try:
            began = time.perf_counter()
            sol = ensemble(system, method, q0, v0, h=H, steps=STEPS, save_every=STEPS, devices="gpu")
            took = time.perf_counter() - began
            error = np.max(np.abs(np.concatenate([sol.q[:, -1], sol.v[:, -1]], axis=1) - expected[label]))
        except Exception as problem:
            error, took = np.inf, 0.0
            tell(f"{label} {type(problem).__name__}: {problem}"[:600])
        bad, worst = bad + (not error < CLOSE), max(worst, error)
        tell(f"{label}: {error:.1e} ({took:.1f} s){'' if error < CLOSE else '   DIFFERS'}")
    tell(f"{len(expected.files)} cases, {bad} differ, largest difference {worst:.1e}")
    return bad


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """The median time of a call, after a first call that compiles."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _cuda(size: int, steps: int) -> float | None:
    """The trajectory-steps per second of hand-written CUDA; None if it cannot be built or run."""
    from dalembert.lab.bench.yardstick import builder, pointer

    build = builder()
    library = build.cuda_library() if build is not None else None
    if library is None:
        return None
    states = np.zeros((9, size))
    q0, v0 = (np.asarray(x, float) for x in zoo.PendulumCVT().start())
    states[:3] = q0[:, None]
    states[3:6] = states[6:9] = v0[:, None] * np.linspace(0.7, 1.3, size)
    times, taken, eps = [], ctypes.c_double(), np.zeros(1)
    for _ in range(5):
        copy = states.copy()
        failed = library.cvt_leapfrog_gpu(pointer(copy), pointer(eps), 0.1, steps, size, ctypes.byref(taken))
        if failed:
            return None
        times.append(taken.value)
    return size * steps / float(np.median(times))


def _rates_of(name: str, system: System, method: Method, size: int, steps: int) -> dict[str, Any]:
    """The trajectory-steps per second of the kernel and of vmap + scan."""
    found: dict[str, Any] = {}
    q0, v0 = (np.asarray(x, float) for x in system.start())
    q = np.broadcast_to(q0, (size, len(q0)))
    v = v0 * np.linspace(0.7, 1.3, size)[:, None]
    began = time.perf_counter()
    call = gpu_call(system, method, q, v, h=0.1, steps=steps, save_every=steps)
    jax.block_until_ready(call())
    found[f"{name} kernel, first call, s"] = time.perf_counter() - began
    found[f"{name} kernel"] = size * steps / seconds(call)

    @jax.jit
    @jax.vmap
    def plain(q, v):
        return scan(system, method, State(q, v, jnp.zeros(())), jnp.asarray(0.1), steps, steps)[1].q[-1]

    on = jax.device_put((q, v))
    found[f"{name} vmap + scan"] = size * steps / seconds(lambda: plain(*on), 3)
    found[f"{name} kernel / (vmap + scan)"] = found[f"{name} kernel"] / found[f"{name} vmap + scan"]
    return found


def rates(tell: Tell, size: int = 2**20, steps: int = 1000) -> dict[str, Any]:
    """The trajectory-steps per second of the kernel, of vmap + scan, and of hand-written CUDA."""
    found: dict[str, Any] = {}
    for name, system, method, members, length in (
        ("PendulumCVT", zoo.PendulumCVT(), LeapFrog(), size, steps),
        ("Snakeboard", zoo.Snakeboard(), LeapFrog(), size, steps),
        ("Car, 5 trailers, frame", zoo.Car(trailers=5), FrameGradient(), size // 32, steps // 20),
        ("Car, 20 trailers, frame", zoo.Car(trailers=20), FrameGradient(), size // 32, steps // 20),
    ):
        found |= _rates_of(name, as_arrays(system), as_arrays(method), members, length)
    cuda = _cuda(size, steps)
    if cuda is not None:
        found["PendulumCVT CUDA"] = cuda
        found["PendulumCVT kernel / CUDA"] = found["PendulumCVT kernel"] / cuda
    for key, value in found.items():
        tell(f"{key}: {value:.3g}")
    return {"device": jax.devices()[0].device_kind, "jax": jax.__version__, **found}


def speed(path: Path, tell: Tell) -> None:
    """Writes the rates to a file."""
    path.write_text(json.dumps(rates(tell), indent=1))


def section_of(found: dict[str, Any]) -> Section:
    """The rates, measured here or elsewhere, as a section."""
    section = Section("gpu", WHAT)
    columns = [("case", "case", ""), ("value", "value", ".3g")]
    rows = [{"case": k, "value": v} for k, v in found.items() if k not in ("device", "jax")]
    section.tables = [Table(f"{found.get('device', 'a GPU')}, JAX {found.get('jax', '?')}", columns, rows)]
    return section


def on_gpu(_: Any = None) -> Section:
    """Section gpu."""
    if jax.default_backend() not in ("gpu", "cuda"):
        return Section(
            "gpu", WHAT, skipped="JAX has no GPU here; give results measured elsewhere with --merge"
        )
    return section_of(rates(lambda _: None))
