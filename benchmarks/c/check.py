"""Compares the hand-written C functions with the library; prints a table and fails on disagreement."""

# ruff: noqa: T201

import ctypes
import sys
from functools import partial

import build
import jax
import jax.numpy as jnp
import numpy as np

import dalembert as da
from dalembert.methods.base import State
from dalembert.model import project

H, STEPS, SAVE_EVERY = 0.1, 100, 10
TOLERANCE = 1e-11
SINE_ULPS = 2.0

METHODS = {
    "leapfrog": da.LeapFrog(),
    "dla01": da.DLA01(),
    "dla_half": da.DLA(0.5),
    "dd": da.DiscreteGradient(),
    "frame": da.FrameGradient(),
}


def systems() -> list[tuple[str, da.System, str | None]]:
    """The systems and starts to compare on, each with the prefix of its C functions."""
    cvt = [("cvt", da.zoo.PendulumCVT(eps=e), s) for e in (0.0, 0.5) for s in ("oscillating", "rotating")]
    heavy = da.zoo.Snakeboard(mass=1.3, board=0.8, rotor=0.4, wheel=0.3, radius=0.9)
    return [*cvt, ("snakeboard", da.zoo.Snakeboard(), None), ("snakeboard", heavy, None)]


def parameters(system: da.System) -> np.ndarray:
    """The system's numbers in the order of its fields."""
    return np.array([float(x) for x in jax.tree.leaves(system)])


def start(method_name: str, system: da.System, q0, v0):
    """The state of the C function: q, v and the method's memory."""
    memory = METHODS[method_name].init(system, State(q0, v0), jnp.asarray(H))
    kept = {"leapfrog": lambda m: [m.u], "dd": lambda m: [m.u], "frame": lambda m: [m.w]}
    return jnp.concatenate([q0, v0, *kept.get(method_name, lambda _: [])(memory)])


def pointer(array: np.ndarray):
    """The array's data as C doubles; the array must be contiguous and stay alive."""
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def single(library, name: str, state: np.ndarray, params: np.ndarray, n: int) -> tuple[np.ndarray, int]:
    """The saved rows of one C trajectory, and how many steps were good; `state` is updated."""
    rows = np.zeros((STEPS // SAVE_EVERY, 2 * n))
    good = getattr(library, name)(pointer(state), pointer(params), H, STEPS, SAVE_EVERY, pointer(rows))
    return rows, good


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, relative to max(1, |value|)."""
    return float(np.max(np.abs(a - b) / np.maximum(1, np.abs(b))))


def against_library(library) -> list[tuple[str, float]]:
    """Every function of one trajectory against `da.simulate`."""
    results = []
    for prefix, system, which in systems():
        q0, v0 = system.start(which)
        for method_name, method in METHODS.items():
            name = f"{prefix}_{method_name}"
            if name not in build.SINGLE:
                continue
            state = np.array(start(method_name, system, q0, v0))
            rows, good = single(library, name, state, parameters(system), system.dimension)
            expected = da.simulate(system, method, q0, v0, h=H, steps=STEPS, save_every=SAVE_EVERY)
            wanted = np.concatenate([expected.q, expected.v], axis=1)[1:]
            worst = max(difference(rows, wanted), difference(state[: wanted.shape[1]], wanted[-1]))
            label = f"{name} {np.round(parameters(system), 3)} {which or ''}"
            results.append((label, worst if good == STEPS else np.inf))
    return results


def ensembles(library) -> list[tuple[str, float]]:
    """Every function of an ensemble against the function of one trajectory."""
    results = []
    rng = np.random.default_rng(0)
    for prefix, system, which in systems():
        q0, v0 = system.start(which)
        params, n = parameters(system), system.dimension
        for method_name in METHODS:
            name = f"{prefix}_{method_name}"
            if f"{name}_many" not in build.MANY:
                continue
            q, v = q0 + 0.3 * rng.normal(size=(21, n)), v0 + 0.3 * rng.normal(size=(21, n))
            v = jax.vmap(partial(project, system))(q, v)
            alone = np.array(jax.vmap(partial(start, method_name, system))(q, v))
            states = np.ascontiguousarray(alone.T)
            getattr(library, f"{name}_many")(pointer(states), pointer(params), H, STEPS, states.shape[1])
            for one in alone:
                single(library, name, one, params, n)
            label = f"{name}_many {np.round(params, 3)} {which or ''}"
            results.append((label, difference(states, alone.T)))
    return results


def sines(library) -> list[tuple[str, float]]:
    """The sine and cosine of the ensembles, in units in the last place."""
    rng = np.random.default_rng(0)
    near = np.pi / 2 * rng.integers(-600000, 600000, 100000)
    x = np.concatenate([rng.uniform(-1e6, 1e6, 200000), rng.uniform(-10, 10, 200000), near])
    found = [np.zeros_like(x) for _ in range(3)]
    library.sines(pointer(x), x.size, *map(pointer, found))
    exact = x.astype(np.longdouble)
    results = []
    for label, got, function in zip(("sine", "sine", "cosine"), found, (np.sin, np.sin, np.cos), strict=True):
        wanted = function(exact)
        ulps = np.abs(got - wanted) / np.spacing(np.abs(wanted.astype(float)))
        results.append((f"{label} (ulp)", float(np.max(ulps))))
    return results


def gpu(library) -> list[tuple[str, float]]:
    """The CUDA function against the function of one trajectory; nothing where there is no GPU."""
    cuda = build.cuda_library()
    if cuda is None:
        return []
    system = da.zoo.PendulumCVT(eps=0.5)
    q0, v0 = system.start("rotating")
    q, params = q0 + np.linspace(0, 1, 300)[:, None], parameters(system)
    v = jax.vmap(partial(project, system), (0, None))(q, v0)
    alone = np.array(jax.vmap(partial(start, "leapfrog", system))(q, v))
    states, seconds = np.ascontiguousarray(alone.T), np.zeros(1)
    error = cuda.cvt_leapfrog_gpu(
        pointer(states), pointer(params), H, STEPS, states.shape[1], pointer(seconds)
    )
    if error:
        print(f"cvt_leapfrog_gpu did not run: CUDA error {error}")
        return []
    for one in alone:
        single(library, "cvt_leapfrog", one, params, 3)
    return [("cvt_leapfrog_gpu", difference(states, alone.T))]


def main() -> int:
    """Prints how far C and library are apart; 1 where that is too far, or where nothing can be built."""
    library = build.library()
    if library is None:
        print("no C library: nothing to check")
        return 1
    failures = 0
    for results, bound in (
        (against_library(library), TOLERANCE),
        (ensembles(library), TOLERANCE),
        (gpu(library), TOLERANCE),
        (sines(library), SINE_ULPS),
    ):
        for label, worst in results:
            good = worst <= bound
            failures += not good
            print(f"{label:62} {worst:9.1e} {'ok' if good else 'DISAGREES'}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
