"""The runs of a request, and the verdicts on them."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.diagnostics import (
    CoupledSystem,
    Orbit,
    Verdict,
    measured_period,
    orbit,
    resonance,
    section,
)
from dalembert.diagnostics.series import judged
from dalembert.kernels import over_rows
from dalembert.methods import method_from_text
from dalembert.simulation import Status, Trajectory, simulate
from dalembert.simulation.run import redundancy_remark
from dalembert.view.explorer.request import ROWS, Request, built, checked, numbers
from dalembert.view.films import Film, film
from dalembert.view.names import Quantity, integrals, method_name
from dalembert.view.style import Panel, panel, panels


@dataclass(frozen=True)
class Said:
    """A sentence about one run; `bad` is true if the run should not be trusted."""

    label: str
    text: str
    bad: bool = False


@dataclass(frozen=True)
class Answer:
    """The content of the page; `problems` are sentences about runs that failed."""

    request: Request
    runs: list[Trajectory]
    film: Film | None
    """The whole run."""
    near: Film | None
    """The beginning of the run, in frames close enough to see how things turn, for the camera and for export."""
    panels: list[Panel]
    verdicts: list[Said]
    problems: list[str]


def answer(request: Request, kinds: Mapping[str, Any]) -> Answer:
    """Runs each method. A mistake in the request becomes a sentence, never an exception."""
    try:
        request = checked(request, kinds)
        system = built(request, kinds)
        q0, v0 = numbers(request.q0, "q0"), numbers(request.v0, "v0")
    except (ValueError, TypeError) as error:
        return Answer(request, [], None, None, [], [], [str(error)])
    runs, problems = [], []
    for spelling in request.methods:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the verdicts say the same
                run = simulate(
                    system,
                    method_from_text(spelling),
                    q0,
                    v0,
                    h=request.h,
                    steps=request.steps,
                    save_every=request.save_every,
                    throw=False,
                )
            runs.append(run)
        except (ValueError, TypeError) as error:
            if str(error) not in problems:
                problems.append(str(error))
    shown = [run for run in runs if len(run.t) > 1]
    problems += [f"{method_name(run)}: {run.message}" for run in runs if run not in shown]
    if not shown:
        return Answer(request, [], None, None, [], [], problems)
    near = film(shown)
    span = (float(shown[0].t[0]), float(max(run.t[-1] for run in shown)))
    pictures = film(shown, frames=ROWS + 2, t=span, unit=near.extent)
    measured = [integrals(run) for run in shown]
    said = [x for run, found in zip(shown, measured, strict=True) for x in verdicts(run, found)]
    return Answer(request, shown, pictures, near, panels(shown, measured=measured), said, problems)


def verdicts(run: Trajectory, measured: list[Quantity]) -> list[Said]:
    """Sentences on how the run ended, whether conserved quantities drift, and whether a parasitic mode grew."""
    label = method_name(run)
    said = [] if run.status is Status.OK else [Said(label, run.message, bad=True)]
    said += [_judged(run, name, values) for name, values, kept in measured if kept]
    if run.method is not None:
        if run.system is not None and run.system.kept is not None:
            said.append(Said(label, redundancy_remark(run.system, run.q[0], run.t[0])))
        said += [Said(label, text, bad=True) for text in run.method.remarks(run)]
    return said


def _judged(run: Trajectory, name: str, values: np.ndarray) -> Said:
    scale = float(np.nanmax(np.abs(values))) or 1.0
    found = judged(run.t, values, window=300 * float(run.h), scale=scale)
    words = "too short to judge" if found.verdict is Verdict.SHORT else str(found.verdict)
    text = f"{name}: {words}, largest deviation {found.largest:.1e}"
    return Said(method_name(run), text, found.verdict is Verdict.DRIFT)


@lru_cache(maxsize=64)
def _coupled(tree: Any, leaves: tuple[float, ...], q0: tuple[float, ...]) -> CoupledSystem | None:
    """The structure of driver and passenger; None if the system is not coupled."""
    try:
        return CoupledSystem.of(jax.tree.unflatten(tree, leaves), q0)
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _orbit(
    tree: Any, leaves: tuple[float, ...], q0: tuple[float, ...], v0: tuple[float, ...]
) -> Orbit | None:
    coupled = _coupled(tree, leaves, q0)
    try:
        return None if coupled is None else orbit(coupled, *section(coupled, q0, v0))
    except ValueError:
        return None


def second_thoughts(found: Answer) -> tuple[list[Said], list[Panel]]:
    """For coupled systems, the verdict on the passenger's energy and warnings of resonant steps.

    This takes about a second for a new system, so the page asks for it after everything else is shown.
    """
    said, energies = [], []
    for run in found.runs:
        leaves, tree = jax.tree.flatten(run.system)
        if run.system is None or any(np.ndim(x) for x in leaves):
            return [], []
        key = (tree, tuple(float(x) for x in leaves), tuple(np.asarray(run.q)[0].tolist()))
        coupled = _coupled(*key)
        if coupled is None:
            return [], []
        energies.append(
            np.asarray(over_rows(CoupledSystem.passenger_energy)(coupled, *map(jnp.asarray, (run.q, run.v))))
        )
        said.append(_judged(run, "passenger energy", energies[-1]))
        away = np.max(np.abs(np.asarray(run.v_full) - np.asarray(run.v)))
        if run.method is None or run.method.variable_step or away < 1e-9:
            continue  # such methods have no alternating mode, hence no resonance
        path = _orbit(*key, tuple(np.asarray(run.v)[0].tolist()))
        near = None if path is None else _near(run, coupled, path)
        if near is not None:
            text = (
                f"resonant step: T/h = {sum(near):.3f} is near {near[0]:.3f}, where the driver feeds the part of "
                "the velocity that changes sign every step. Change h a little, or use frame."
            )
            said.append(Said(method_name(run), text, bad=True))
    return said, [panel("deviation of passenger energy", found.runs, energies)]


def _near(run: Trajectory, coupled: CoupledSystem, path: Orbit) -> tuple[float, float] | None:
    try:
        period = measured_period(run.t, run.q[:, coupled.index], path.base[0], coupled.is_angle)
    except ValueError:
        return None  # the run is shorter than a period
    return resonance(period, np.abs(np.angle(np.linalg.eigvals(path.rotation))), float(run.h))
