"""The command `dalembert boundary`: the motion to a given end, and the table of what it conserved."""

import warnings

import numpy as np
from rich.console import Console
from rich.markup import escape

from dalembert.cli.names import numbers_given
from dalembert.cli.run import Files, finish, step_size
from dalembert.methods import Method
from dalembert.model import System
from dalembert.simulation import BoundaryError, BoundarySolution, solve_boundary


def boundary_and_report(
    console: Console,
    system: System,
    method: Method,
    h: float | None,
    steps: int,
    end: str,
    start: str | None,
    q0: str | None,
    guess: str | None,
    end_time: float | None,
    files: Files,
) -> None:
    """Solves the boundary problem, prints what was found and writes the requested files, even if it is not solved."""
    files.check()
    names = system.coordinates
    if start is not None and q0 is not None:
        raise ValueError("give --start, a start state of the system, or --q0; not both")
    first = system.start(start)[0] if q0 is None else list(numbers_given("--q0", q0, names).values())
    wanted = numbers_given("--end", end, names, whole=False)
    speeds = None
    if guess is not None:
        speeds = list(numbers_given("--guess", guess, system.velocity_names).values())
    step = step_size(system, h)
    warnings.simplefilter("ignore", UserWarning)  # the remarks below repeat what these warnings say
    failure = None
    with Console(stderr=True).status(escape(f"{system.label} by {method.cli_name}: searching the start")):
        try:
            found = solve_boundary(
                system,
                method,
                first,
                [wanted.get(name, np.nan) for name in names],
                h=step,
                steps=steps,
                end=None if len(wanted) == len(names) else tuple(wanted),
                tN=end_time,
                guess=speeds,
            )
        except BoundaryError as error:
            if error.solution is None:
                raise
            failure, found = error, error.solution
    finish(console, found.trajectory, files)
    _tell(console, system, method, found)
    if failure is not None:
        raise failure


def _tell(console: Console, system: System, method: Method, found: BoundarySolution) -> None:
    def listed(names: tuple[str, ...], values: np.ndarray) -> str:
        return ",".join(f"{name}={float(x)!r}" for name, x in zip(names, values, strict=True))

    console.print(f"{found} ({found.runs} runs)", highlight=False, markup=False, soft_wrap=True)
    way, names, values = ("--v0", system.velocity_names, found.v0)
    if method.takes_pairs:
        way, names, values = ("--q1", system.coordinates, found.q1)
    console.print(f"start: {way} {listed(names, values)}", highlight=False, markup=False, soft_wrap=True)
