"""Trajectories on disk: Zarr and NetCDF through xarray, with names, units and provenance."""

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dalembert.methods import Status, method_from_text
from dalembert.model import System
from dalembert.numerics import is_traced
from dalembert.simulate.trajectory import Trajectory

if TYPE_CHECKING:
    import xarray

ARRAYS = ("q", "v", "v_full")
FORMAT = 1


def versions() -> dict[str, str]:
    """The versions that results depend on."""
    found = {}
    for package in ("dalembert", "jax", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _parameters(system: System) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(system)
    return {jax.tree_util.keystr(path).lstrip("."): np.asarray(leaf).tolist() for path, leaf in leaves}


def to_xarray(sol: Trajectory) -> "xarray.Dataset":
    """A dataset with dimensions time, coordinate and constraint; of an ensemble, with member first."""
    import xarray

    if is_traced(sol.q):
        raise ValueError("a trajectory inside jax.jit or jax.grad holds no numbers yet; convert it outside")
    system, stored = sol.system, sol.stored or {}
    names = list(system.coordinates) if system is not None else stored["coordinates"]
    units = list(system.units) if system is not None else stored["units"]
    many = ("member",) if np.ndim(sol.q) == 3 else ()
    rows = (*many, "time")
    # On a group velocities have components of their own.
    moving = list(system.velocity_names) if system is not None else stored["velocities"]
    across = {"q": "coordinate", "v": "coordinate" if moving == names else "velocity"}
    across["v_full"] = across["v"]
    pairs: dict[str, Any] = {name: ((*rows, across[name]), np.asarray(getattr(sol, name))) for name in ARRAYS}
    if many:
        pairs |= {name: ("member", np.asarray(getattr(sol, name))) for name in ("code", "steps", "residual")}
        pairs["step"] = ("member", np.broadcast_to(np.asarray(sol.h), len(sol.q)))
    coords: dict[str, Any] = {"coordinate": np.asarray(names, dtype=str)}
    if moving != names:
        coords["velocity"] = np.asarray(moving, dtype=str)
    if np.ndim(sol.t) == 1:
        coords["time"] = np.asarray(sol.t)
    else:
        pairs["t"] = (rows, np.asarray(sol.t))
    if units:
        coords["unit"] = ("coordinate", np.asarray(units, dtype=str))
    data = xarray.Dataset(
        {
            **pairs,
            "multipliers": ((*rows, "constraint"), np.asarray(sol.multipliers)),
            "energy": (rows, sol.energy()),
            "energy_full": (rows, sol.energy(full=True)),
            "constraint_residual": (rows, sol.constraint_residual()),
            **_told(sol, rows),
        },
        coords=coords,
    )
    long_names = {
        "q": "configuration",
        "v": "velocity, on the constraint",
        "v_full": "the method's own velocity",
        "multipliers": "Lagrange multipliers: d/dt dL/dv - dL/dq = A(q)^T lam",
        "energy": "total energy of v",
        "energy_full": "total energy of v_full",
        "constraint_residual": "largest entry of A(q) v, or of A v - b where the constraints are affine",
        "moving_energy": "total energy less p . Z, Z the drift of affine constraints",
    }
    for name, text in long_names.items():
        if name in data:
            data[name].attrs["long_name"] = text
    if system is not None:
        static = {k: v for k, v in vars(system).items() if isinstance(v, str)}
        told = {
            "system": f"{type(system).__module__}:{type(system).__qualname__}",
            "parameters": json.dumps(_parameters(system)),
            "options": json.dumps(static),
        }
    else:
        told = {key: stored[key] for key in ("system", "parameters", "options")}
    data.attrs = {
        "format": FORMAT,
        **told,
        "method": sol.method.spelling if sol.method is not None else stored["method"],
        "save_every": sol.save_every,
        "versions": json.dumps(versions()),
    }
    group = system.group.name if system is not None and system.group is not None else stored.get("group")
    if group:
        data.attrs["group"] = group
    if many:
        data.attrs["varied"] = json.dumps(sol.varied)
    else:
        data.attrs |= {
            "step": float(sol.h),
            "steps": int(sol.steps),
            "residual": float(sol.residual),
            "status": Status.from_code(int(sol.code)).name,
        }
    return data


def _told(sol: Trajectory, rows: tuple[str, ...]) -> dict[str, Any]:
    """What the method says of its steps, and the moving energy where the constraints are affine."""
    n, found = np.shape(sol.q)[-1], {}
    for name, x in sol.told.items():
        axes = [
            "coordinate" if size == n and not i else f"{name}_{i}"
            for i, size in enumerate(np.shape(x)[len(rows) :])
        ]
        found[f"told_{name}"] = ((*rows, *axes), np.asarray(x))
    if (sol.system is not None and sol.system.affine) or "moving_energy" in (sol.stored or {}):
        found["moving_energy"] = (rows, sol.moving_energy())
    return found


def save(sol: Trajectory, path: Any) -> None:
    """Writes to PATH.zarr (a folder) or PATH.nc (NetCDF 4); an existing result is replaced."""
    path = Path(path)
    data = to_xarray(sol)
    if path.suffix == ".zarr":
        # Zarr 2, because text arrays have no settled form in Zarr 3 yet.
        data.to_zarr(path, mode="w", zarr_format=2, consolidated=True)
    elif path.suffix == ".nc":
        data.to_netcdf(path, mode="w", engine="h5netcdf")
    else:
        raise ValueError(f"save knows the suffixes .zarr and .nc (NetCDF), got {path.name!r}")


def load(path: Any, system: System | None = None) -> Trajectory:
    """Reads what `save` wrote. Give the system to compute further with it."""
    import xarray

    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no trajectory at {path}")
    if path.suffix not in (".zarr", ".nc"):
        raise ValueError(f"load knows the suffixes .zarr and .nc (NetCDF), got {path.name!r}")
    opened = (
        xarray.open_zarr(path) if path.suffix == ".zarr" else xarray.open_dataset(path, engine="h5netcdf")
    )
    with opened as data:
        data.load()
    told = data.attrs
    if told.get("format") != FORMAT:
        raise ValueError(f"{path} is not a trajectory of this version: its format is {told.get('format')!r}")
    try:
        method = method_from_text(told["method"])
    except ValueError:
        method = None
    stored = {
        "coordinates": data.coordinate.values.tolist(),
        "velocities": data[data.v.dims[-1]].values.tolist(),
        "group": told.get("group"),
        "units": data.unit.values.tolist() if "unit" in data.coords else [],
        **{key: told[key] for key in ("system", "parameters", "options", "method", "versions")},
        **{
            key: data[key].values
            for key in ("energy", "energy_full", "constraint_residual", "moving_energy")
            if key in data
        },
    }
    if system is not None and list(system.coordinates) != stored["coordinates"]:
        raise ValueError(
            f"{path} has the coordinates {stored['coordinates']}, but the system given has {system.coordinates}"
        )
    if "member" in data.dims:
        end = {name: data[name].values for name in ("code", "steps", "residual")}
        end["h"] = data["step"].values
    else:
        end = {
            "code": np.asarray(Status[told["status"]].code),
            "steps": np.asarray(int(told["steps"])),
            "residual": np.asarray(float(told["residual"])),
            "h": np.asarray(float(told["step"])),
        }
    varied = tuple(json.loads(told["varied"])) if told.get("varied", "null") != "null" else None
    return Trajectory(
        t=data.t.values if "t" in data else data.time.values,
        **{name: data[name].values for name in ARRAYS},
        lam=data.multipliers.values,
        **end,
        varied=varied,
        system=system,
        method=method,
        save_every=int(told["save_every"]),
        stored=stored,
        told={
            str(name).removeprefix("told_"): x.values
            for name, x in data.data_vars.items()
            if str(name).startswith("told_")
        },
    )
