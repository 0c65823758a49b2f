"""The command line: one function per command."""

import contextlib
import math
import os
import sys
from typing import Annotated, NoReturn

from cyclopts import App, Parameter
from rich.console import Console

from dalembert.cli.names import system_named
from dalembert.methods import method_named, usual_method
from dalembert.results import zoo_systems

app = App(
    name="dalembert",
    help="Geometric integrators for nonholonomic mechanics.",
    help_format="plaintext",
    version_flags=["--version"],
)
# name=value; the option may be repeated.
Parameters = Annotated[list[str] | None, Parameter(name="--param", consume_multiple=False, negative="")]
# Numbers separated by commas; the first may be negative.
Numbers = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
# Tables keep a readable width when the output goes to a file. `main` reports a missing standard output.
console = Console(width=None if sys.stdout is not None and sys.stdout.isatty() else 110)


def _whole(option: str, value: float) -> int:
    if not math.isfinite(value) or value != int(value):
        raise ValueError(f"{option} takes a whole number, got {value}")
    if abs(value) > 2**53:  # beyond this, a float may not be the whole number that was typed
        raise ValueError(f"{option} takes a whole number up to {2**53:,}, got {value}")
    return int(value)


def _whole_or_none(option: str, value: float | None) -> int | None:
    return None if value is None else _whole(option, value)


@app.command(name="list")
def list_all() -> None:
    """List the systems of the zoo and the methods, with their parameters and options."""
    from rich.markup import escape
    from rich.table import Table

    from dalembert.cli.names import parameters_of
    from dalembert.methods import METHODS

    systems = Table("system", "parameters", "starts", "what it is", title="Systems", title_justify="left")
    for name, kind in zoo_systems().items():
        first = (kind.__doc__ or "").partition("\n")[0]
        row = (name, "\n".join(parameters_of(kind)), "\n".join(kind().starts()), first)
        systems.add_row(*map(escape, row))
    console.print(systems)
    methods = Table("method", "option after a colon", "what it is", title="Methods", title_justify="left")
    for name, (_, options, line) in METHODS.items():
        methods.add_row(name, options, line)
    console.print(methods)
    console.print("frame@4, dla01@6, dd:average@8: symmetric compositions of order 4, 6, 8 and 10.")


@app.command
def run(
    system: str,
    /,
    *,
    method: str | None = None,
    h: float | None = None,
    steps: float = 10_000,
    param: Parameters = None,
    start: str | None = None,
    q0: Numbers = None,
    v0: Numbers = None,
    q1: Numbers = None,
    save_every: float | None = None,
    out: str | None = None,
    plot: str | None = None,
    animate: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Run a method on a system and print what was conserved.

    Parameters
    ----------
    system
        A system of the zoo, such as PendulumCVT, or your own as module:Class.
    method
        A method, such as frame, leapfrog, dla:0.5, dd:average or frame@4, or your own as module:Class.
        The default is frame, or chetaev for constraints that are not linear in the velocity.
    h
        The step size (for edla, the size of the first step). The default is the system's recommended step.
    steps
        The number of steps, such as 30000 or 1e6.
    param
        A parameter of the system as name=value. Repeat the option to set several.
    start
        The name of one of the system's start states.
    q0
        The configuration at the start, such as 0,0,0.5 or x=0,y=0,theta=0.5. The default is that of the start state.
    v0
        The velocity at q0, in the same form.
    q1
        The configuration one step after q0, instead of a velocity, for methods that continue such pairs.
    save_every
        Keep every K-th state. The default keeps about 10,000 states.
    out
        Write the trajectory to this .zarr folder or .nc file.
    plot
        Draw the path and the energy error in this .png, .svg or .pdf file.
    animate
        Write an animation to this .html file, which plays in any browser, or to a .gif or .mp4 file.
        If the motion looks jerky because steps were left out, add --save-every 1.
    overwrite
        Replace a trajectory that already exists at --out. Anything else is never replaced.
    """
    from dalembert.cli.names import Start
    from dalembert.cli.run import Files, run_and_report

    made = system_named(system, param or [])
    count = _whole("--steps", steps)
    every = _whole_or_none("--save-every", save_every)
    if method is None:
        method = usual_method(made)
    begin, files = Start(start, q0, v0, q1), Files(out, plot, animate, overwrite)
    run_and_report(console, made, method_named(method), h, count, begin, every, files)


@app.command
def boundary(
    system: str,
    /,
    *,
    end: Annotated[str, Parameter(allow_leading_hyphen=True)],
    steps: float,
    method: str | None = None,
    h: float | None = None,
    param: Parameters = None,
    start: str | None = None,
    q0: Numbers = None,
    guess: Numbers = None,
    end_time: float | None = None,
    out: str | None = None,
    plot: str | None = None,
    animate: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Find the motion from one configuration to a given end, and print what it conserved.

    Parameters
    ----------
    system
        A system of the zoo, such as RollingDisk, or your own as module:Class.
    end
        The coordinates at the end that are prescribed, such as x=1,y=0.5; all of them, if no names are given. As many
        can be prescribed as the system has independent allowed velocities; all of them by methods such as gni, which
        start from any pair of configurations.
    steps
        The number of steps to the end.
    method
        A method, such as frame, dla-variational or gni, or your own as module:Class.
        The default is frame, or chetaev for constraints that are not linear in the velocity.
    h
        The step size (for edla, the size of the first step). The default is the system's recommended step.
    param
        A parameter of the system as name=value. Repeat the option to set several.
    start
        The name of the start state whose configuration is the first one.
    q0
        The first configuration, such as 0,0,0.5 or x=0,y=0,theta=0.5. The default is that of the start state.
    guess
        A velocity at q0 from which the search begins, in the same form.
        The default is the allowed velocity that is nearest to the straight way.
    end_time
        The time of the end, for methods whose steps differ in size.
    out
        Write the trajectory to this .zarr folder or .nc file.
    plot
        Draw the path and the energy error in this .png, .svg or .pdf file.
    animate
        Write an animation to this .html file, which plays in any browser, or to a .gif or .mp4 file.
    overwrite
        Replace a trajectory that already exists at --out. Anything else is never replaced.
    """
    from dalembert.cli.boundary import boundary_and_report
    from dalembert.cli.run import Files

    made = system_named(system, param or [])
    count = _whole("--steps", steps)
    used = method_named(usual_method(made) if method is None else method)
    files = Files(out, plot, animate, overwrite)
    boundary_and_report(console, made, used, h, count, end, start, q0, guess, end_time, files)


@app.command
def audit(
    *,
    system: str,
    method: Annotated[list[str], Parameter(name="--method", consume_multiple=False, negative="")],
    h: float | None = None,
    steps: float = 300_000,
    param: Parameters = None,
    start: str | None = None,
    json: str | None = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
    backward: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Measure what methods preserve on a system: order, energy, constraint, reversibility, fibration, integrals.

    Parameters
    ----------
    system
        A system of the zoo, such as PendulumCVT, or your own as module:Class.
    method
        A method, such as frame or dla:0.5, or your own as module:Class. Repeat the option to compare several.
    h
        The step size. The default is the system's recommended step.
    steps
        The number of steps in the long run that is tested for drift.
    param
        A parameter of the system as name=value. Repeat the option to set several.
    start
        The name of one of the system's start states.
    json
        Write all measurements to this file.
    strict
        Exit with status 1 if a method does not keep what it claims to keep.
    backward
        Analyse the modified fields of the methods, too, as the command backward does, and say where the long runs and
        the fields disagree.
    """
    from dalembert.cli.audit import audit_and_report

    made = system_named(system, param or [])
    methods = {m: method_named(m) for m in method}
    audit_and_report(console, made, methods, h, _whole("--steps", steps), start, json, strict, backward)


@app.command
def backward(
    system: str,
    /,
    *,
    method: Annotated[list[str], Parameter(name="--method", consume_multiple=False, negative="")],
    h: float | None = None,
    states: float = 32,
    param: Parameters = None,
    start: str | None = None,
    json: str | None = None,
) -> None:
    """Analyse the modified fields of methods: which structures they keep, and what drift they predict.

    Parameters
    ----------
    system
        A system of the zoo, such as PendulumCVT, or your own as module:Class.
    method
        A method, such as frame or dla:0.5, or your own as module:Class. Repeat the option to compare several.
    h
        The step size. The default is the system's recommended step.
    states
        The number of states at which the field is evaluated.
    param
        A parameter of the system as name=value. Repeat the option to set several.
    start
        The name of one of the system's start states.
    json
        Write all findings to this file.
    """
    from dalembert.cli.backward import backward_and_report

    made = system_named(system, param or [])
    methods = {m: method_named(m) for m in method}
    backward_and_report(console, made, methods, h, _whole("--states", states), start, json)


@app.command
def explore(
    system: str = "RollingDisk",
    /,
    *,
    method: Annotated[
        list[str] | None, Parameter(name="--method", consume_multiple=False, negative="")
    ] = None,
    h: float | None = None,
    steps: float = 10_000,
    param: Parameters = None,
    start: str | None = None,
    port: float | None = None,
    browser: bool = True,
) -> None:
    """Open a local page where you choose a system, run up to four methods side by side, and watch the motion.

    Parameters
    ----------
    system
        A system of the zoo, such as Snakeboard, or your own as module:Class.
    method
        A method, such as frame or leapfrog. Repeat the option for up to four methods.
    h
        The step size. The default is the system's recommended step.
    steps
        The number of steps.
    param
        A parameter of the system as name=value. Repeat the option to set several.
    start
        The name of one of the system's start states.
    port
        The port on 127.0.0.1, from 1 to 65535. The default is any free port.
    browser
        Open the page in a browser.
    """
    from dalembert.cli.explore import explore_and_wait

    count, at = _whole("--steps", steps), _whole_or_none("--port", port)
    explore_and_wait(console, system, method or [], param or [], h, count, start, at, browser)


@app.command
def sweep(
    spec: str | None = None,
    /,
    *,
    out: str | None = None,
    scheduler: str | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    workers: float | None = None,
    status: str | None = None,
) -> None:
    """Run many trajectories (methods x step sizes x parameters x starts) and keep a few numbers from each.

    Parameters
    ----------
    spec
        A TOML file that describes the sweep and what to keep. docs/sweeps.md explains the format.
    out
        The .zarr folder for the result, which xarray can open.
    scheduler
        The address of a dask scheduler, such as tcp://127.0.0.1:8786. The default is to use this machine.
    resume
        Continue a sweep whose store already exists: compute exactly the blocks that are missing.
    workers
        The number of worker processes on this machine. The default is one per core.
    status
        Print the progress of the sweep in this store, and do nothing else.
    """
    from dalembert.cli.sweep import show_status, sweep_and_report

    if status is not None:
        if spec is not None or out is not None:
            raise ValueError("--status takes a store alone: dalembert sweep --status sweep.zarr")
        show_status(console, status)
        return
    if spec is None or out is None:
        raise ValueError("give a spec and a store: dalembert sweep spec.toml --out sweep.zarr")
    sweep_and_report(console, spec, out, scheduler, resume, _whole_or_none("--workers", workers))


@app.command
def bench(
    *,
    only: str | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json: str | None = None,
    merge: str | None = None,
) -> None:
    """Measure this library against hand-written C, plain JAX and other solvers, side by side.

    Parameters
    ----------
    only
        The sections to run, separated by commas: c, ensemble, naive, peers, compile, gradients, tag, sweep, gpu.
        The default is all of them.
    quick
        Make few and short runs. This shows that everything works, but the numbers are rough.
    json
        Write all measurements to this file.
    merge
        A file that `benchmarks/gpu.py speed` wrote on a machine with a GPU.
    """
    from dalembert.cli.bench import bench_and_report

    bench_and_report(console, only, quick, json, merge)


@app.command
def reproduce(
    *studies: str,
    quick: Annotated[bool, Parameter(negative="")] = False,
    out: str = "reproduction",
) -> None:
    """Reproduce published experiments: Modin and Verdier (2020); Ferraro, Iglesias and Martin de Diego (2008).

    Parameters
    ----------
    studies
        The studies to run; the default is all of them.
        From the first paper: fig4 fig5 fig6 fig7 fig8 table1 table34.
        From the second paper: ferraro-fig2 ferraro-fig5.
        On papers without experiments: edla (Cortes 2003), reduction (Fernandez, Tori and Zuccalli 2008).
        Our own: resonance mechanism backward maps snakeboard parasitic.
    quick
        Make shorter runs, fewer cases and coarser sweeps, which give the same verdicts in one or two minutes.
    out
        The folder for report.html and the figures.
    """
    from dalembert.cli.reproduce import reproduce_and_report

    reproduce_and_report(console, studies, quick, out)


def main() -> None:
    """The entry point of the program, which reports a user's mistake in one clear line instead of a traceback."""
    from dalembert.model import raised
    from dalembert.simulation import BoundaryError, SimulationError
    from dalembert.sweeps.errors import SweepError

    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # stays open while the program runs
    if sys.stdout is None:
        _fail("there is no standard output to write to (it was closed)")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # so that a write error is reported here, and not by Python at exit
    except BrokenPipeError:
        _forget_output()
        sys.exit(1)  # the reader of the pipe has closed it
    except (BoundaryError, SimulationError, SweepError, ValueError, NotImplementedError) as error:
        _fail(str(error))
    except OSError as error:
        if error.errno is None:  # a message of our own
            _fail(str(error))
        if error.filename is None:  # a write to a file that is already open
            _forget_output()
            _fail(f"cannot write the output: {error.strerror or error}")
        _fail(f"{error.strerror}: {error.filename}")
    except Exception as error:
        place = raised(error)
        if not place:
            raise
        _fail(f"your own code raises {place}")


def _fail(sentence: str) -> NoReturn:
    stderr = Console(stderr=True)
    stderr.print("error:", style="bold red", end=" ")
    stderr.print(sentence, markup=False, highlight=False, soft_wrap=True)
    sys.exit(1)


def _forget_output() -> None:
    """Redirects standard output to the null device, so that Python's flush at exit cannot fail."""
    with contextlib.suppress(OSError, ValueError):  # standard output may not be a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
