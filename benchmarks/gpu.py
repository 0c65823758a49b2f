"""Kernels on a GPU: against hand-written CUDA, against vmap + scan, and against the CPU's results.

    python benchmarks/gpu.py expect cpu.npz     (on any machine: what the CPU computes)
    python benchmarks/gpu.py agree cpu.npz      (on the GPU: every system and method against it)
    python benchmarks/gpu.py speed gpu.json     (on the GPU: rates)
"""

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dalembert as da
from dalembert.methods.spelling import method_from_text
from dalembert.model import as_arrays
from dalembert.simulate.ensemble import gpu_call
from dalembert.simulate.loop import scan

METHODS = (
    "leapfrog", "leapfrog:momentum", "dla:0.5", "dla:0.25", "dla01", "dd", "dd:average", "dd:itoh-abe", "frame",
    "frame:gonzalez", "dla01@4", "frame@4", "dla01@6", "frame@8", "reference",
)  # fmt: skip
MEMBERS, STEPS, H = 256, 100, 0.05


def cases():
    """Every system of the zoo with every method that takes it."""
    for name in da.zoo.__all__:
        system = getattr(da.zoo, name)()
        q0, v0 = (np.asarray(x, float) for x in system.start())
        scale = np.linspace(0.7, 1.3, MEMBERS)[:, None]
        for spelling in METHODS:
            yield f"{name} {spelling}", system, method_from_text(spelling), q0, v0 * scale


def expect(path: Path) -> None:
    """Writes the CPU's results."""
    results = {}
    for label, system, method, q0, v0 in cases():
        try:
            sol = da.ensemble(system, method, q0, v0, h=H, steps=STEPS, save_every=STEPS, devices="cpu")
        except ValueError:
            continue  # the method does not take the system
        results[label] = np.concatenate([sol.q[:, -1], sol.v[:, -1]], axis=1)
        print(label, flush=True)
    np.savez_compressed(path, **results)


def agree(path: Path) -> int:
    """Compares the GPU's results with the CPU's; returns the number of cases that differ by more than 1e-9."""
    expected, bad, worst = np.load(path), 0, 0.0
    for label, system, method, q0, v0 in cases():
        if label not in expected:
            continue
        try:
            began = time.perf_counter()
            sol = da.ensemble(system, method, q0, v0, h=H, steps=STEPS, save_every=STEPS, devices="gpu")
            took = time.perf_counter() - began
            error = np.max(np.abs(np.concatenate([sol.q[:, -1], sol.v[:, -1]], axis=1) - expected[label]))
        except Exception as problem:
            error, took = np.inf, 0.0
            print(label, f"{type(problem).__name__}: {problem}"[:600], flush=True)
        bad, worst = bad + (not error < 1e-9), max(worst, error)
        print(f"{label}: {error:.1e} ({took:.1f} s){'' if error < 1e-9 else '   DIFFERS'}", flush=True)
    print(f"{len(expected.files)} cases, {bad} differ, largest difference {worst:.1e}")
    return bad


def seconds(run, repeats: int = 5) -> float:
    """The median time of a call, after one that compiles."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def speed(path: Path) -> None:
    """Trajectory-steps a second of the kernel, of vmap + scan, and of hand-written CUDA."""
    size, steps, found = 2**20, 1000, {}
    for name in ("PendulumCVT", "Snakeboard"):
        system, method = as_arrays(getattr(da.zoo, name)()), as_arrays(da.LeapFrog())
        q0, v0 = (np.asarray(x, float) for x in system.start())
        q = np.broadcast_to(q0, (size, len(q0)))
        v = v0 * np.linspace(0.7, 1.3, size)[:, None]
        began = time.perf_counter()
        call = gpu_call(system, method, q, v, h=0.1, steps=steps, save_every=steps)
        jax.block_until_ready(call())
        found[f"{name} kernel, first call, s"] = time.perf_counter() - began
        found[f"{name} kernel"] = size * steps / seconds(call)
        h = jnp.asarray(0.1)
        plain = jax.jit(jax.vmap(lambda q, v, s=system, m=method: scan(s, m, q, v, h, steps, steps)[1].q[-1]))
        on = jax.device_put((q, v))
        found[f"{name} vmap + scan"] = size * steps / seconds(lambda on=on, plain=plain: plain(*on), 3)
        found[f"{name} kernel / (vmap + scan)"] = found[f"{name} kernel"] / found[f"{name} vmap + scan"]
        for key, value in found.items():
            print(f"{key}: {value:.3g}", flush=True)
    sys.path.insert(0, str(Path(__file__).parent / "c"))
    from build import cuda_library

    library = cuda_library()
    if library is not None:
        states = np.ascontiguousarray(np.concatenate([np.zeros((3, size)), np.zeros((6, size))]))
        q0, v0 = (np.asarray(x, float) for x in da.zoo.PendulumCVT().start())
        states[:3] = q0[:, None]
        states[3:6] = states[6:9] = v0[:, None] * np.linspace(0.7, 1.3, size)
        times, taken, eps = [], ctypes.c_double(), np.zeros(1)
        pointer = ctypes.POINTER(ctypes.c_double)
        for _ in range(5):
            copy = states.copy()
            library.cvt_leapfrog_gpu(
                copy.ctypes.data_as(pointer), eps.ctypes.data_as(pointer), 0.1, steps, size, ctypes.byref(taken)
            )
            times.append(taken.value)
        found["PendulumCVT CUDA"] = size * steps / float(np.median(times))
        found["PendulumCVT kernel / CUDA"] = found["PendulumCVT kernel"] / found["PendulumCVT CUDA"]
    for key, value in found.items():
        print(f"{key}: {value:.3g}")
    path.write_text(json.dumps({"device": str(jax.devices()[0]), "jax": jax.__version__, **found}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("expect", "agree", "speed"))
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    sys.exit({"expect": expect, "agree": agree, "speed": speed}[given.what](given.file))
