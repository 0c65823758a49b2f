"""Work and precision: the error at the end against the work, for several methods and step sizes."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from dalembert.diagnostics import fitted_order
from dalembert.diagnostics.order import PLATEAU
from dalembert.methods import Composition, Method, Reference
from dalembert.methods.composition import fractions
from dalembert.model import System, Trait, lower
from dalembert.numerics import Vector
from dalembert.simulation import SimulationError, Trajectory, simulate
from dalembert.view.style import FLOOR, axes, log_numbers, log_ticks, run_styles, title

MARKERS = "osD^vP*X"
# Each run is timed this often, in turn with all others, and the shortest time counts.
ROUNDS = 5


class Curve(NamedTuple):
    """The errors of one method, with the coarsest step first; runs that failed are left out."""

    method: Method
    h: np.ndarray
    steps: np.ndarray
    work: np.ndarray
    error: np.ndarray
    order: float
    """The order fitted above rounding; NaN if fewer than three errors lie above it."""


class WorkPrecision(NamedTuple):
    """The axes of the figure, and the drawn numbers by label."""

    ax: Axes
    curves: dict[str, Curve]


def work_precision(
    system: System,
    methods: Sequence[Method] | Mapping[str, Method],
    q0: Vector | None = None,
    v0: Vector | None = None,
    *,
    h: Sequence[float],
    t: float,
    t0: float = 0.0,
    reference: Method | Callable | None = None,
    against: Literal["steps", "time", "h"] = "steps",
    of: Literal["q", "v"] = "q",
    ax: Axes | None = None,
) -> WorkPrecision:
    """Draws the error after the time t against the work, on log axes, with the fitted order of each method.

    Work is the number of steps, multiplied by the number of stages for a composition. `against="h"` shows the step
    size. `against="time"` shows measured times as multiples of the first run's; for short runs they are mostly the
    overhead of the call. Steps are adjusted so that an even number of them makes t. Errors are root mean squares of q
    or v, relative to the motion. `reference` is a method, or a function (t, q0, v0) -> (q, v); the default is the
    system's closed `solution`, else Reference(). Orders come from the last four (or three) errors above rounding. A
    method that chooses its steps is measured where its run ends.
    """
    chosen = _chosen(methods)
    counts = _counts(h, t)
    for name, value, known in (("against", against, ("steps", "time", "h")), ("of", of, ("q", "v"))):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    if (q0 is None) != (v0 is None):
        raise ValueError("give q0 and v0, or neither for the system's own start")
    q0, v0 = system.start() if q0 is None else (np.asarray(q0, float), np.asarray(v0, float))
    exact = _exact(system, reference, np.asarray(q0), np.asarray(v0), t0)
    scale = _scale(exact(t), np.asarray(q0), of)
    runs = {
        label: [(n, lambda method=method, n=n: _run(system, method, q0, v0, t / n, n, t0)) for n in counts]
        for label, method in chosen.items()
    }
    seconds = _times(runs) if against == "time" else {}
    curves = {}
    for label, method in chosen.items():
        made = [(n, sol) for n, run in runs[label] if (sol := run()) is not None]
        errors = np.array([_error(sol, exact, of, t, t0) / scale for _, sol in made])
        steps = np.array([n for n, _ in made], float)
        work = t / steps if against == "h" else steps * _stages(method)
        if against == "time":
            work = np.array([seconds[label, n] for n, _ in made])
        curves[label] = Curve(method, t / steps, steps, work, errors, _order(t / steps, errors))
    return WorkPrecision(_draw(system, curves, ax, against, of, t), curves)


def _chosen(methods: Any) -> dict[str, Method]:
    """The methods by label."""
    if isinstance(methods, Method):
        methods = [methods]
    if not isinstance(methods, Mapping):
        methods = list(methods)
        for method in methods:
            if not isinstance(method, Method):
                raise ValueError(f"work_precision needs methods such as FrameGradient(), got {method!r}")
        methods = {method.cli_name: method for method in methods}
    for method in methods.values():
        if not isinstance(method, Method):
            raise ValueError(f"work_precision needs methods such as FrameGradient(), got {method!r}")
    if not methods:
        raise ValueError("work_precision needs one method or more, got none")
    return dict(methods)


def _counts(h: Any, t: float) -> list[int]:
    """The numbers of steps, coarsest first.

    They are even, because a mode that changes sign every step gives different errors for odd numbers.
    """
    sizes = np.atleast_1d(np.asarray(h, float))
    if sizes.ndim != 1 or not sizes.size or not np.all(np.isfinite(sizes)) or np.any(sizes <= 0):
        raise ValueError(f"h must be a list of positive step sizes, got {h!r}")
    if not (np.ndim(t) == 0 and np.isfinite(t) and t > 0):
        raise ValueError(f"t must be a positive time, got {t!r}")
    if np.any(sizes > t):
        raise ValueError(f"every step must be at most t = {t:g}, got h = {np.max(sizes):g}")
    return sorted({2 * max(1, round(t / size / 2)) for size in sizes.tolist()})


def _run(system, method, q0, v0, h: float, steps: int, t0: float) -> Trajectory | None:
    """The run; None if it fails, perhaps because the step is too large."""
    try:
        return simulate(system, method, q0, v0, h=h, steps=steps, save_every=steps, t0=t0)
    except SimulationError:
        return None


def _exact(system: Any, reference: Any, q0: np.ndarray, v0: np.ndarray, t0: float) -> Callable:
    """A function from the time since the start to the exact (q, v)."""
    if (
        reference is None
        and Trait.TIMED not in lower(system).traits
        and callable(getattr(system, "solution", None))
    ):
        try:
            system.solution(np.zeros(1), q0, v0)
            reference = system.solution
        except ValueError:
            pass  # no closed solution for these parameters
    if reference is None:
        reference = Reference()
    if isinstance(reference, Method):

        def exact(elapsed: float) -> tuple[np.ndarray, np.ndarray]:
            sol = simulate(system, reference, q0, v0, h=elapsed / 8, steps=8, save_every=8, t0=t0)
            return np.asarray(sol.q[-1]), np.asarray(sol.v[-1])

        return exact
    if not callable(reference):
        raise ValueError(
            f"reference must be a method or a function (t, q0, v0) -> (q, v) of arrays of times, got {reference!r}"
        )
    solution: Any = reference

    def closed(elapsed: float) -> tuple[np.ndarray, np.ndarray]:
        q, v = solution(np.array([elapsed]), q0, v0)
        return np.asarray(q, float).reshape(-1), np.asarray(v, float).reshape(-1)

    return closed


def _scale(end: tuple[np.ndarray, np.ndarray], q0: np.ndarray, of: str) -> float:
    size = np.max(np.abs(end[0] - q0)) if of == "q" else np.max(np.abs(end[1]))
    return float(size) or 1.0


def _error(sol: Trajectory, exact: Callable, of: str, t: float, t0: float) -> float:
    """The root mean square error at the end of the run."""
    own = sol.method is not None and sol.method.variable_step
    q, v = exact(float(sol.t[-1]) - t0 if own else t)
    if of == "v":
        gap = np.asarray(sol.v[-1]) - v
    else:
        assert sol.system is not None
        gap = np.asarray(
            lower(sol.system).space.difference(jnp.asarray(q), jnp.asarray(np.asarray(sol.q)[-1]))
        )
    return float(np.sqrt(np.mean(gap**2)))


def _stages(method: Method) -> int:
    """The number of steps of the basic method in one step."""
    return len(fractions(method.order)) if isinstance(method, Composition) else 1


def _order(h: np.ndarray, errors: np.ndarray) -> float:
    found = fitted_order(h, errors)
    return found if np.isfinite(found) else fitted_order(h, errors, points=3)


def _times(runs: Mapping[str, Sequence[tuple[int, Callable]]]) -> dict[tuple[str, int], float]:
    """The times of all runs, measured in turn, as multiples of the first run's time."""
    best: dict[tuple[str, int], float] = {}
    for turn in range(ROUNDS + 1):
        for label, of_method in runs.items():
            for n, run in of_method:
                began = time.perf_counter()
                run()
                if turn:  # the first round compiles
                    best[label, n] = min(best.get((label, n), np.inf), time.perf_counter() - began)
    first = next(iter(best.values()))
    return {key: value / first for key, value in best.items()}


def _draw(system: System, curves: dict[str, Curve], ax: Axes | None, against: str, of: str, t: float) -> Axes:
    ax = axes(ax, (7.4, 4.2))
    spellings = [curve.method.cli_name for curve in curves.values()]
    styles = run_styles(spellings, [1.0] * len(spellings))
    for i, ((label, curve), style) in enumerate(zip(curves.items(), styles, strict=True)):
        note = f", order {curve.order:.2f}" if np.isfinite(curve.order) else ""
        if not len(curve.error):
            note = ", no run reached the end"
        look = {**style, "label": label + note, "marker": MARKERS[i % len(MARKERS)], "ms": 5, "lw": 1.3}
        ax.loglog(curve.work, np.maximum(curve.error, FLOOR), **look)
    log_ticks(ax)
    log_numbers(ax)
    if any(np.any(curve.error < PLATEAU) for curve in curves.values()):
        ax.set_ylim(bottom=min(ax.get_ylim()[0], PLATEAU / 10))
        ax.axhspan(ax.get_ylim()[0], PLATEAU, color="0.93", lw=0, zorder=0)
        ax.annotate("rounding", (0.01, PLATEAU), xycoords=("axes fraction", "data"), va="top", color="0.45")
    composed = any(isinstance(curve.method, Composition) for curve in curves.values())
    first = next(iter(curves))
    words = {
        "steps": "steps x stages" if composed else "steps",
        "h": "h",
        "time": f"time, relative to {first} at its largest step",
    }
    ax.set(xlabel=words[against], ylabel=f"relative error of {of}")
    title(ax, f"{system.label}, error after t = {t:g}")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize="small")
    return ax
