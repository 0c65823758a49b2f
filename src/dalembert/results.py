"""What joins results to the layers above them: pictures, and the zoo's systems when a file names one."""

import dataclasses
import inspect
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from dalembert.model import System, check_system, kind_from_module, wrong
from dalembert.simulation import Trajectory
from dalembert.simulation.storage import as_kept, unlike
from dalembert.simulation.storage import load as load_arrays
from dalembert.simulation.trajectory import views


def _plots(trajectory: Trajectory) -> Any:
    from dalembert.view import Plots  # matplotlib takes half a second to import

    if np.ndim(trajectory.q) == 3:
        raise ValueError("pictures are of one trajectory: sol.member(i).plot")
    return Plots(trajectory)


def _animation(trajectory: Trajectory, path: Any, **options: Any) -> Any:
    from dalembert.view.animation import animate

    return animate(trajectory, path, **options)


views["plot"] = _plots
views["animate"] = _animation


def _named_class(name: str) -> type[System] | None:
    """The class of a system named as module:class, where it can be imported; None for any other."""
    module, _, path = name.partition(":")
    # A file may name anything: nothing but a module of the user's own, or of this library, is imported for it.
    if module.partition(".")[0] in sys.stdlib_module_names and module != "__main__":
        return None
    try:
        found: Any = sys.modules.get(module) or import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception:  # a module that is gone, or does not work any more
        return None
    if not inspect.isclass(found) or not issubclass(found, System) or found.recipe is not None:
        return None
    # A system made from functions has the name of a class of this library, which is not its own.
    return None if found.__module__.startswith("dalembert.model.") else found


def _described_system(metadata: dict[str, Any]) -> System | None:
    """The system that a file describes; None where its class cannot be imported, or has other parameters now."""
    kind = _named_class(metadata["system"])
    if kind is None:
        return None
    parameters = json.loads(metadata["parameters"])
    # Of an ensemble in which a parameter varies, or of a parameter that is an array.
    parameters = {name: np.asarray(x) if isinstance(x, list) else x for name, x in parameters.items()}
    arguments = parameters | json.loads(metadata["options"])
    for name in ("point", "form"):
        if name in arguments:
            arguments["coordinates"] = arguments.pop(name)
    if not set(arguments) <= set(inspect.signature(kind).parameters):
        return None
    try:
        return as_kept(metadata, kind(**arguments))
    except Exception:  # it takes other parameters now
        return None


def load(path: Any, system: System | None = None, *, check: bool = True) -> Trajectory:
    """Reads a trajectory that `Trajectory.save` wrote (.zarr or .nc), and refuses one that is damaged.

    A run comes back with its system, if its class can be imported. Otherwise pass the system as `system`; without
    it arrays, energy and constraint residual are there, but nothing that needs the functions. A system whose
    parameters, options, energy or constraints are not those of the run is refused; `check=False` takes it as it is.
    """
    if system is not None:
        check_system(system)
        return load_arrays(path, system, check)
    trajectory = load_arrays(path)
    found = _described_system(trajectory.stored or {})
    try:
        different = "" if found is None or not check else unlike(trajectory, found)
    except Exception as error:  # functions of the user's, which may be others now
        different = (
            f"the functions of {type(found).__name__} fail at its states ({type(error).__name__}: {error})"
        )
    if different:
        # A function, such as the field of NonholonomicParticle, is not in the file.
        warnings.warn(
            f"{path} was made with functions that are not in the file, so it comes without its system: {different}. "
            "Give the system: load(path, system=...)",
            stacklevel=2,
        )
        found = None
    return dataclasses.replace(trajectory, system=found)


def zoo_systems() -> dict[str, type[System]]:
    """The systems of the zoo by name."""
    from dalembert import zoo  # takes as long to import as all that a run needs

    return {name: getattr(zoo, name) for name in zoo.__all__}


def explore(
    system: Any = "RollingDisk",
    methods: Sequence[str] = (),
    *,
    parameters: Mapping[str, Any] | None = None,
    h: float | None = None,
    steps: int = 10_000,
    start: str | None = None,
    port: int | None = None,
    name: str | None = None,
) -> Any:
    """Starts the explorer on this machine and returns it: `.url` is its address, `.close()` ends it.

    `system` is a name of the zoo, or a system or class of your own; `methods` are up to four, spelled as on the
    command line ("frame", "leapfrog", "gni:restart=20"). Only this machine can reach the page.
    """
    from dalembert.view.explorer import start_explorer

    kinds: dict[str, Any] = dict(zoo_systems())
    if isinstance(system, str):
        if system not in kinds:
            raise ValueError(f"the zoo has no system {system!r}; choose one of: {', '.join(kinds)}")
        name = system
    elif isinstance(system, System) or (inspect.isclass(system) and issubclass(system, System)):
        usual = system.label if isinstance(system, System) else f"{system.__module__}:{system.__qualname__}"
        name = next((each for each, kind in kinds.items() if kind is system), name or usual)
        kinds = kinds if kinds.get(name) is system else {name: system, **kinds}
    else:
        raise ValueError(f"explore takes a system, its class, or a name of the zoo; got {system!r}")
    given = {"parameters": dict(parameters or {}), "h": h, "steps": steps, "start": start}
    return start_explorer(kinds, name, methods, port, **given)


def sweep(
    spec: Any,
    store: Any,
    scheduler: str | None = None,
    resume: bool = True,
    *,
    workers: int | None = None,
    progress: Any = False,
) -> Any:
    """Runs methods x steps x parameters x starts and keeps a few numbers of each trajectory: an xarray dataset.

    `spec` is the path of a TOML file, or a dictionary with the same entries; `store` a .zarr folder, which holds the
    result and is opened again by `open_sweep`. By default the cores of this machine work, or `workers` processes;
    `scheduler` is the address of a dask scheduler whose workers do it instead. Where the store is there already, only
    what is missing in it is computed, bit for bit what an undisturbed sweep gives; `resume=False` refuses it. A store
    of another spec or version is refused with the difference. What could not be finished raises da.SweepError, and
    nothing done is lost.
    """
    from dalembert.sweeps import sweep as run

    return run(spec, store, system_kind, scheduler, resume, workers, progress)


def open_sweep(store: Any) -> Any:
    """Opens the result of a sweep as an xarray dataset, and refuses one that is damaged.

    Every file is checked first: whether it is there, and as it was written. A store that is not complete may be
    opened; what is not computed yet is NaN, or -1 in whole numbers.
    """
    from dalembert.sweeps import open_sweep as opened

    return opened(store)


def system_kind(name: str) -> Any:
    """The class of the zoo with this name, or the user's own class or system as module:Class."""
    if ":" in name:
        return kind_from_module(name, System)

    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    systems = {plain(key): kind for key, kind in zoo_systems().items()}
    if plain(name) not in systems:
        raise wrong("system", name, zoo_systems())
    return systems[plain(name)]
