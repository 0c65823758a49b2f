"""Large systems against C written by hand, with BLAS and LAPACK."""

import ctypes
import json
import subprocess
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert import zoo
from dalembert.lab.bench.tables import RATIO, Settings, Table, child, compared, fitting, interleaved
from dalembert.lab.bench.yardstick import NO_C, NO_GCC, builder, c_start, ours_single, pointer
from dalembert.methods import FrameGradient, LeapFrog
from dalembert.model import System
from dalembert.simulation.engines import check_fit

CAR_H, LATTICE_H = 0.05, 0.1
"""The step sizes; that of `yardstick.H` is not used here."""
TRAILERS, LATTICE = (5, 10, 20, 40), (12, 42)
CHECKED, AGREE = 200, 1e-11
"""The steps after which states are compared, and the largest difference: roundings of 200 steps of a motion of size
ten, which does not amplify them."""
NO_LAPACK = "no BLAS and LAPACK for the C functions: SciPy is not installed, or has 64-bit integers"
WRITTEN = {"towed_dense": "with matrices", "towed_walk": "walking along the chain"}

MEASURE = """
import json, sys
from dalembert.lab.bench.size_c import measured
from dalembert.lab.bench.tables import Settings
print(json.dumps(measured(Settings(**json.loads(sys.argv[1])))))
"""


class Lattice(System):
    """Angles with a constant full mass matrix, springs between neighbours, and a row for every third of them.

    L = v.M v/2 - stiffness sum_i (1 - cos(q_i - q_(i+1))), M_ij = delta_ij + 1/(n (1 + |i - j|)), and the rows
    sum_i cos(q_i + phase_ji) v_i = 0. It is not a machine; it is the smallest formula for which the leap-frog has to
    solve large systems of equations.
    """

    mass: Array
    phases: Array
    stiffness: float

    def __init__(self, size: int = LATTICE[-1], stiffness: float = 1.0):
        places = np.arange(size)
        self.mass = jnp.asarray(np.eye(size) + 1 / (size * (1 + np.abs(places[:, None] - places))))
        self.phases = jnp.asarray(
            2.4 * np.sqrt(1 + np.arange(size // 3))[:, None] * (1 + places) % (2 * np.pi)
        )
        self.stiffness = stiffness

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The angles."""
        return tuple(f"q{i}" for i in range(self.mass.shape[0]))

    def metric(self, q):
        """The constant mass matrix."""
        return self.mass

    def potential(self, q):
        """The energy of the springs."""
        return self.stiffness * jnp.sum(1.0 - jnp.cos(q[:-1] - q[1:]))

    def constraints(self, q):
        """A_ji = cos(q_i + phase_ji), by the cosines and sines of the angles alone."""
        return jnp.cos(self.phases) * jnp.cos(q) - jnp.sin(self.phases) * jnp.sin(q)

    def starts(self):
        """A start with an allowed velocity of size one."""
        size = self.mass.shape[0]
        q0 = 0.5 * np.sin(1.3 * np.arange(size))
        rows, mass = np.asarray(self.constraints(jnp.asarray(q0))), np.asarray(self.mass)
        wanted = 0.5 * np.cos(0.7 * np.arange(size))
        raised = np.linalg.solve(mass, rows.T)
        return {"waves": (q0, wanted - raised @ np.linalg.solve(rows @ raised, rows @ wanted))}


def turning(trailers: int) -> tuple[System, np.ndarray, np.ndarray]:
    """A car whose trailers make a bend, and that begins to turn."""
    car = zoo.Car(trailers=trailers)
    q0 = jnp.asarray(car.start("bent")[0])
    return car, np.asarray(q0), np.asarray(car.frame(q0) @ np.array([1.0, 0.4]))


def c_large(
    function: Any, state: np.ndarray, parameters: np.ndarray, n: int, h: float, lapack: Any
) -> Callable[[int], np.ndarray]:
    """run(steps) -> the last (q, v), by a C function for systems of any size."""

    def call(steps: int) -> np.ndarray:
        now = state.copy()
        good = function(pointer(now), pointer(parameters), n, h, steps, ctypes.byref(lapack))
        if good != steps:
            raise RuntimeError(f"the C function stopped after {good} of {steps} steps")
        return now[: 2 * n]

    return call


Pair = tuple[str, int, Callable[[int], np.ndarray], dict[str, Callable[[int], np.ndarray]]]


def car_pair(library: Any, lapack: Any, trailers: int) -> Pair:
    """A car by frame: its name, n, our run and those of the C functions."""
    car, q0, v0 = turning(trailers)
    parameters = np.array([car.length, car.hitch, car.mass, car.turning], float)  # pyright: ignore
    theirs = {
        name: c_large(getattr(library, name), np.concatenate([q0, v0]), parameters, len(q0), CAR_H, lapack)
        for name in WRITTEN
    }
    ours = ours_single(car, FrameGradient(), q0, v0, CAR_H)
    return f"Car(trailers={trailers}), frame", len(q0), ours, theirs


def lattice_pair(library: Any, lapack: Any, size: int) -> Pair:
    """A lattice by leap-frog."""
    system, method = Lattice(size), LeapFrog()
    q0, v0 = (np.asarray(x) for x in system.start())
    phases = np.asarray(system.phases)
    parts = [
        [system.stiffness],
        np.asarray(system.mass).ravel(),
        np.cos(phases).ravel(),
        np.sin(phases).ravel(),
    ]
    state = np.array(c_start(method, system, q0, v0, LATTICE_H))
    run = c_large(library.lattice_leapfrog, state, np.concatenate(parts), size, LATTICE_H, lapack)
    return (
        f"lattice of {size}, leapfrog",
        size,
        ours_single(system, method, q0, v0, LATTICE_H),
        {"dense": run},
    )


def agreed(case: str, ours: Callable[[int], np.ndarray], theirs: Callable[[int], np.ndarray]) -> float:
    """The largest difference after some steps; a RuntimeError if it is more than rounding."""
    difference = float(np.max(np.abs(ours(CHECKED) - theirs(CHECKED))))
    if not difference <= AGREE:
        raise RuntimeError(f"{case}: C and library differ by {difference:.1e} after {CHECKED} steps")
    return difference


def measured(settings: Settings) -> list[list[dict[str, Any]]]:
    """The rows of both tables; for a process of its own, in which BLAS has one thread."""
    build = builder()
    library, lapack = build.large_library(), build.lapack()
    cars, lattices = [], []
    for trailers in TRAILERS[:1] if settings.quick else TRAILERS:
        case, n, ours, theirs = car_pair(library, lapack, trailers)
        difference = max(agreed(case, ours, f) for f in theirs.values())
        steps = fitting(theirs["towed_dense"], settings.seconds, 100, 1_000_000)
        runs = {"ours": ours, **theirs}
        calls = {name: lambda f=f, k=steps: f(k) for name, f in runs.items()}
        times = interleaved(calls, settings.repeats, 10 * settings.patience)
        row = compared(times["ours"], times["towed_dense"], steps * 1e-6)
        walk = compared(times["ours"], times["towed_walk"], steps * 1e-6)
        row |= {"walk": walk["theirs"], "walk_ratio": walk["ratio"]}
        cars.append({"case": case, "n": n, **row, "steps": steps, "difference": difference})
    for size in LATTICE[:1] if settings.quick else LATTICE:
        case, n, ours, theirs = lattice_pair(library, lapack, size)
        difference = agreed(case, ours, theirs["dense"])
        steps = fitting(theirs["dense"], settings.seconds, 100, 1_000_000)
        calls = {"ours": lambda f=ours, k=steps: f(k), "theirs": lambda f=theirs["dense"], k=steps: f(k)}
        times = interleaved(calls, settings.repeats, 10 * settings.patience)
        row = compared(times["ours"], times["theirs"], steps * 1e-6)
        lattices.append({"case": case, "n": n, **row, "steps": steps, "difference": difference})
    return [cars, lattices]


def refusals() -> str:
    """What leap-frog says about the chains of the zoo."""
    words = []
    chains = {
        "Car": zoo.Car(),
        "Snake": zoo.Snake(),
        'Snake(coordinates="maximal")': zoo.Snake(coordinates="maximal"),
    }
    for name, system in chains.items():
        try:
            q0, v0 = system.start()
            check_fit(system, LeapFrog(), q0, v0, 0.0)
            words.append(f"It takes {name}.")
        except ValueError as error:
            words.append(f"Of {name}, it says: {str(error).partition('. ')[0]}.")
    return " ".join(words)


def against_c(settings: Settings) -> tuple[list[Table], list[str]]:
    """One step against C, in microseconds."""
    build = builder()
    if build is None or build.large_library() is None:
        return [], [
            f"The comparison of large systems with C was skipped: {NO_C if build is None else NO_GCC}."
        ]
    if build.lapack() is None:
        return [], [f"The comparison of large systems with C was skipped: {NO_LAPACK}."]
    text = json.dumps({"quick": settings.quick, "repeats": settings.repeats, "seconds": settings.seconds})
    try:
        cars, lattices = child(MEASURE, text, seconds=600, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    except subprocess.TimeoutExpired:
        return [], ["The comparison of large systems with C did not end within 600 s."]
    except RuntimeError as error:
        return [], [f"The comparison of large systems with C failed: {str(error).strip().splitlines()[-1]}."]
    columns = [("case", "case", ""), ("n", "n", "d"), ("ours", "ours, us", ".2f")]
    columns += [("theirs", "C with LAPACK, us", ".2f"), *RATIO]
    last = [("steps", "steps", ",d"), ("difference", f"difference after {CHECKED} steps", ".0e")]
    walk = [("walk", "C for chains alone, us", ".2f"), ("walk_ratio", "ratio", ".1f")]
    return [
        Table("frame against hand-written C", [*columns, *walk, *last], cars),
        Table("leap-frog against hand-written C", [*columns, *last], lattices),
    ], [
        "C with LAPACK solves a step for two unknowns, writes the metric and its derivatives down in closed form, and "
        "factors one matrix per step; BLAS has one thread. C for chains alone needs no matrix: it walks along the "
        "chain, in a time that grows with its length alone. The library is given metric(q), constraints(q) and "
        "frame(q) of the zoo, and finds derivatives and solutions itself.",
        f"Leap-frog is measured on a lattice with a constant full mass matrix. {refusals()}",
    ]
