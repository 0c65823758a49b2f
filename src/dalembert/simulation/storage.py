"""Trajectories on disk: Zarr and NetCDF through xarray, with names, units and provenance."""

import dataclasses
import io
import json
import re
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.methods import Status, method_from_text
from dalembert.model import Kept, System, Trait, lower, total_energy, with_kept
from dalembert.numerics import is_traced, jit_fast_compile
from dalembert.simulation.durable import (
    MANIFEST,
    Damaged,
    amiss,
    aside,
    beside,
    contents,
    digest,
    put,
    remove,
    replace,
    restore,
    sealed,
    sync,
    unsealed,
)
from dalembert.simulation.trajectory import Trajectory, residual_at, views

if TYPE_CHECKING:
    import xarray

ARRAYS = ("q", "v", "v_full")
FORMAT, KIND = 2, "dalembert trajectory"
"""Format 1, used by version 0.8 and before, has no digests."""


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


def _options(system: System) -> dict[str, str | int]:
    """Texts, and whole numbers that are no parameters, such as how many bodies there are."""
    static = {field.name for field in dataclasses.fields(system) if field.metadata.get("static")}
    return {
        name: x
        for name, x in vars(system).items()
        if isinstance(x, str) or (name in static and isinstance(x, int))
    }


def to_xarray(sol: Trajectory) -> "xarray.Dataset":
    """A dataset with dimensions time, coordinate and constraint; for an ensemble, member comes first."""
    import xarray

    if is_traced(sol.q):
        raise ValueError("a trajectory inside jax.jit or jax.grad holds no numbers yet; convert it outside")
    system, stored = sol.system, sol.stored or {}
    names = list(system.coordinates) if system is not None else stored["coordinates"]
    units = list(system.units) if system is not None else stored["units"]
    many = ("member",) if np.ndim(sol.q) == 3 else ()
    rows = (*many, "time")
    # On a group, velocities have components of their own.
    moving = list(system.velocity_names) if system is not None else stored["velocities"]
    across = {"q": "coordinate", "v": "coordinate" if moving == names else "velocity"}
    across["v_full"] = across["v"]
    pairs: dict[str, Any] = {name: ((*rows, across[name]), np.asarray(getattr(sol, name))) for name in ARRAYS}
    if sol.near is not None:
        pairs["near"] = ((*rows, "coordinate"), np.asarray(sol.near))
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
            **_measures_of(sol, rows),
            **_step_data(sol, rows),
        },
        coords=coords,
    )
    long_names = {
        "q": "configuration",
        "v": "velocity, on the constraint",
        "v_full": "the method's own velocity",
        "near": "configuration, without the full turns of its angles",
        "multipliers": "Lagrange multipliers: d/dt dL/dv - dL/dq = A(q)^T lam",
        "t_multipliers": "time to which the multipliers belong",
        "energy": "total energy of v",
        "energy_full": "total energy of v_full",
        "constraint_residual": "largest entry of A(q) v, or of A v - b if the constraints are affine",
        "position_residual": "largest entry of c(q), the position constraints",
        "moving_energy": "total energy minus p . Z, where Z is the drift of affine constraints",
    }
    for name, text in long_names.items():
        if name in data:
            data[name].attrs["long_name"] = text
    if system is not None:
        metadata = {
            "system": f"{type(system).__module__}:{type(system).__qualname__}",
            "parameters": json.dumps(_parameters(system)),
            "options": json.dumps(_options(system)),
            **({} if system.kept is None else {"kept": json.dumps(system.kept._asdict())}),
        }
    else:
        metadata = {key: stored[key] for key in ("system", "parameters", "options", "kept") if key in stored}
    data.attrs = {
        "format": FORMAT,
        **metadata,
        "method": sol.method.cli_name if sol.method is not None else stored["method"],
        "save_every": sol.save_every,
        "traits": json.dumps(sorted(trait.name for trait in sol.traits)),
        **({"positions": sol.position_multipliers.shape[-1]} if Trait.HOLONOMIC in sol.traits else {}),
        "versions": json.dumps(versions()),
    }
    group = (
        lower(system).space.name if Trait.GROUP in sol.traits and system is not None else stored.get("group")
    )
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


def _measures_of(sol: Trajectory, rows: tuple[str, ...]) -> dict[str, Any]:
    """What the system's functions measure at the rows; only the multipliers if they have changed since the run."""
    if not sol.changed:
        return {
            "multipliers": ((*rows, "constraint"), np.asarray(sol.multipliers)),
            "t_multipliers": (rows, np.broadcast_to(np.asarray(sol.t_multipliers), np.shape(sol.q)[:-1])),
            "energy": (rows, sol.energy()),
            "energy_full": (rows, sol.energy(full=True)),
            "constraint_residual": (rows, sol.constraint_residual()),
        }
    warnings.warn(
        f"the functions of {sol.system.label if sol.system is not None else 'the system'} have changed since this run: "
        "its energy and constraint residual are left out, and multipliers that the method did not compute are NaN",
        stacklevel=4,
    )
    lam = np.full((*np.shape(sol.q)[:-1], 0), np.nan) if sol.lam is None else np.asarray(sol.lam)
    return {"multipliers": ((*rows, "constraint"), lam)}


def _step_data(sol: Trajectory, rows: tuple[str, ...]) -> dict[str, Any]:
    """The method's numbers about its steps, and the moving energy if the constraints are affine."""
    n, found = np.shape(sol.q)[-1], {}
    for name, x in sol.step_data.items():
        axes = [
            "coordinate" if size == n and not i else f"{name}_{i}"
            for i, size in enumerate(np.shape(x)[len(rows) :])
        ]
        found[f"step_data_{name}"] = ((*rows, *axes), np.asarray(x))
    if not sol.changed and Trait.AFFINE in sol.traits:
        found["moving_energy"] = (rows, sol.moving_energy())
    if not sol.changed and Trait.HOLONOMIC in sol.traits:
        found["position_residual"] = (rows, sol.position_residual())
    return found


def save(sol: Trajectory, path: Any, overwrite: bool = False) -> None:
    """Writes to PATH.zarr (a folder) or PATH.nc (NetCDF 4), completely or not at all.

    An existing trajectory is replaced only with `overwrite=True`; anything else is never replaced.
    """
    path = Path(path)
    check_target(path, overwrite)
    data = to_xarray(sol)
    made = _zarr_files(data) if path.suffix == ".zarr" else _netcdf(data)
    where = path.resolve()
    try:
        with beside(where) as new:
            if isinstance(made, bytes):
                put(new, made)
            else:
                for name, content in made.items():
                    (new / name).parent.mkdir(parents=True, exist_ok=True)
                    put(new / name, content)
                sync(here for here in [*new.rglob("*"), new] if here.is_dir())
            check_target(path, overwrite)  # something may have appeared there in the meantime
            replace(new, where)
    except FileExistsError:
        raise
    except OSError as error:
        kept = "; what was there is unchanged" if path.exists() else ""
        said = f"{path} could not be written: {error.strerror or error}{kept}. Make room, or choose another place"
        failure = OSError(said)
        failure.errno = error.errno
        raise failure from error


def check_target(path: Path, overwrite: bool) -> None:
    """Refuses a path to which a trajectory cannot be saved."""
    path = Path(path)
    if path.suffix not in (".zarr", ".nc"):
        raise ValueError(f"save knows the suffixes .zarr and .nc (NetCDF), got {path.name!r}")
    where = path.resolve()
    if not where.parent.is_dir():
        raise FileNotFoundError(f"the folder of {path} does not exist; make it first")
    restore(where)
    if where.is_dir() and not any(where.iterdir()):
        if path.suffix == ".zarr":
            return  # an empty folder has nothing to lose
        raise FileExistsError(f"{path} is a folder; choose another name")
    if not where.exists():
        return
    foreign = _foreign(where, path.suffix)
    if not foreign and aside(where).exists() and not _foreign(aside(where), path.suffix):
        remove(aside(where))  # left by a save that was killed when only this remained to be done
    if foreign:
        raise FileExistsError(f"{path} exists and {foreign}; it is never overwritten: choose another name")
    if not overwrite:
        raise FileExistsError(
            f"{path} holds a trajectory already; choose another name, or replace it: save(path, overwrite=True), "
            "on the command line --overwrite"
        )


def _foreign(path: Path, suffix: str) -> str:
    """Why the file or folder is not a trajectory that this library wrote; empty if it is one."""
    if path.is_dir() != (suffix == ".zarr"):
        return f"is a {'folder' if path.is_dir() else 'file'}, as no trajectory of this kind is"
    if suffix == ".nc":
        if _TRAILER.search(_tail(path)):
            return ""
        try:
            found = _old_attributes(path)
        except Exception:  # HDF5 may raise anything if the file is something else
            found = {}
        return "" if _is_old(found) else "is not a trajectory that this library wrote"
    if (path / MANIFEST).is_file():
        try:
            metadata = unsealed(path / MANIFEST)
        except Damaged as error:
            return f"cannot be identified, as {error}"
        if metadata["kind"] != KIND:
            return f"is a {metadata['kind']}, not a trajectory"
        known = {MANIFEST, *metadata["files"]}
        more = [name for name in contents(path) if name not in known]
    else:
        try:
            found = json.loads((path / ".zattrs").read_text())
        except (OSError, ValueError):
            found = {}
        if not isinstance(found, dict) or not _is_old(found):
            return "is not a trajectory that this library wrote"
        parts = re.compile(r"([^/]+/)?\.z(array|attrs|group|metadata)|[^/]+/\d+(\.\d+)*")
        more = [name for name in contents(path) if not parts.fullmatch(name)]
    return f"holds {more[0]!r}, which no trajectory has" if more else ""


def _is_old(metadata: Any) -> bool:
    """Whether these are the attributes of a trajectory of version 0.8 or before, which had no digests."""
    return metadata.get("format") == 1 and {"system", "parameters", "method", "save_every"} <= set(metadata)


def _old_attributes(path: Path) -> dict[str, Any]:
    import xarray

    with xarray.open_dataset(path, engine="h5netcdf") as data:
        return dict(data.attrs)


def _zarr_files(data: "xarray.Dataset") -> dict[str, bytes]:
    """The files of the dataset as a Zarr folder, by name, with the manifest last."""
    from numcodecs import CRC32, Zstd
    from zarr.storage import MemoryStore

    # Zarr 2, because text arrays have no settled form in Zarr 3 yet. The checksum is for readers that do not use
    # `load`.
    codecs = {name: {"filters": [Zstd(1), CRC32()], "compressors": None} for name in data.variables}
    kept: dict[str, Any] = {}
    data.to_zarr(MemoryStore(kept), mode="w", zarr_format=2, consolidated=True, encoding=codecs)
    files = {name: content.to_bytes() for name, content in kept.items()}
    metadata = {
        "kind": KIND,
        "format": FORMAT,
        "files": {name: digest(x) for name, x in sorted(files.items())},
    }
    return files | {MANIFEST: sealed(metadata)}


def _netcdf(data: "xarray.Dataset") -> bytes:
    """The dataset as a NetCDF file, followed by its digest.

    HDF5 writes only to memory, where it cannot fail half-way, and readers of HDF5 ignore what follows its end.
    """
    checked = {
        name: {"fletcher32": True}
        for name, x in data.variables.items()
        if x.dtype.kind in "fiu" and x.ndim and x.size
    }
    made: Any = data.to_netcdf(engine="h5netcdf", encoding=checked)
    body = bytes(made)
    return body + f"\ndalembert sha256 {digest(body)}\n".encode()


_TRAILER = re.compile(rb"\ndalembert sha256 ([0-9a-f]{64})\n\Z")
_LENGTH = len("\ndalembert sha256 \n") + 64


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LENGTH))
        return file.read()


def _read(path: Path, suffix: str) -> "xarray.Dataset":
    """The dataset in a file, whose digests are checked before anything else reads it; raises Damaged if they do not
    match."""
    import xarray

    if suffix == ".nc":
        if path.is_dir():
            raise ValueError("it is a folder")
        content = path.read_bytes()
        trailer = _TRAILER.search(content[-_LENGTH:])
        body = content[:-_LENGTH] if trailer else content
        if trailer and digest(body).encode() != trailer[1]:
            raise Damaged("its digest does not match")
        with xarray.open_dataset(io.BytesIO(body), engine="h5netcdf") as data:
            data.load()
        return _verified(data, trailer is not None)
    if not path.is_dir():
        raise ValueError("it is a file")
    if not (path / MANIFEST).is_file():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with xarray.open_zarr(path) as data:
                data.load()
        return _verified(data, False)
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    metadata = unsealed(path / MANIFEST)
    if metadata["kind"] != KIND:
        raise ValueError(f"it is a {metadata['kind']}")
    wrong = amiss(path, metadata["files"])
    if wrong:
        raise Damaged(wrong)
    made = default_buffer_prototype().buffer.from_bytes
    files = {name: made((path / name).read_bytes()) for name in metadata["files"]}
    with xarray.open_zarr(MemoryStore(files), consolidated=True, zarr_format=2) as data:
        data.load()
    return data


def _verified(data: "xarray.Dataset", checked: bool) -> "xarray.Dataset":
    if not checked and data.attrs.get("format") == FORMAT:
        raise Damaged("its digest is missing or damaged")
    return data


def load(path: Any, system: System | None = None, check: bool = True) -> Trajectory:
    """Reads what `save` wrote. To compute further with the trajectory, give the system, which must be that of the run.

    With `check=False` the system is accepted without comparing it with the file.
    """
    path = Path(path)
    if path.suffix not in (".zarr", ".nc"):
        raise ValueError(f"load knows the suffixes .zarr and .nc (NetCDF), got {path.name!r}")
    where = path.resolve()
    if not path.exists() and aside(where).exists():
        where = aside(where)  # a save was interrupted between its last two steps
    elif not path.exists():
        raise FileNotFoundError(f"no trajectory at {path}")
    try:
        data = _read(where, path.suffix)
    except Damaged as error:
        raise Damaged(f"{path} is damaged and was not read: {error}. Use a copy, or run it again") from None
    except MemoryError:
        raise
    except Exception as error:
        hint = "; dalembert.open_sweep reads sweeps" if "dalembert sweep" in str(error) else ""
        raise ValueError(f"{path} is not a trajectory that can be read: {error}{hint}") from error
    metadata = data.attrs
    if metadata.get("kind") == "dalembert sweep":  # of version 0.8
        raise ValueError(f"{path} is a sweep, not a trajectory; dalembert.open_sweep reads it")
    if metadata.get("format") not in (1, FORMAT):
        raise ValueError(
            f"{path} is not a trajectory of this version: its format is {metadata.get('format')!r}"
        )
    try:
        trajectory = _trajectory(data, system)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a trajectory that can be read: {type(error).__name__}: {error}"
        ) from error
    if metadata["format"] == 1:
        warnings.warn(
            f"{path} was written by version 0.8 or before, without digests: its integrity cannot be checked. Save "
            "it again to add digests",
            stacklevel=3,
        )
    if system is not None:
        system = _varied(trajectory, as_kept(metadata, system))
        different = _difference(trajectory, system, check)
        if different:
            raise ValueError(f"{path} is not a run of the system given: {different}")
        trajectory = dataclasses.replace(trajectory, system=system)
    return trajectory


def as_kept(metadata: Mapping[Any, Any], system: System) -> System:
    """The system with the constraints that a file says were kept because others follow from them."""
    if "kept" not in metadata:
        return system
    kept = json.loads(metadata["kept"])
    return with_kept(system, Kept(tuple(kept["forms"]), tuple(kept["positions"])))


def _varied(sol: Trajectory, system: System) -> System:
    """The system with the values of every member in place of the parameters that vary in an ensemble."""
    stored = json.loads((sol.stored or {})["parameters"])
    names = list(_parameters(system))
    if sol.varied is None or not any(sol.varied) or not set(names) <= set(stored):
        return system
    leaves, tree = jax.tree.flatten(system)
    given = zip(names, leaves, sol.varied[: len(leaves)], strict=True)
    return jax.tree.unflatten(tree, [np.asarray(stored[name]) if v else x for name, x, v in given])


def _difference(sol: Trajectory, system: System, check: bool) -> str:
    """A difference that shows that the run is not one of this system; empty if there is none."""
    stored = sol.stored or {}
    if list(system.coordinates) != stored["coordinates"]:
        return f"the file has the coordinates {stored['coordinates']}, but the system given has {system.coordinates}"
    if not check:
        return ""
    remedy = "give the system of the run, or check=False to accept this one anyway"
    for what, before, now in (
        ("parameter", json.loads(stored["parameters"]), _parameters(system)),
        ("option", json.loads(stored["options"]), _options(system)),
    ):
        for name in [*before, *(key for key in now if key not in before)]:
            one, other = (metadata.get(name, "nothing") for metadata in (before, now))
            # NaN equals itself here, and a 32-bit number equals the 64-bit number with the same decimals.
            if repr(one) != repr(other) and not _alike(one, other):
                return f"the {what} {name} is {_brief(one)} in the file, but {_brief(other)} in the system; {remedy}"
    different = unlike(sol, system)
    return f"{different}; {remedy}" if different else ""


def _alike(one: Any, other: Any) -> bool:
    try:
        a, b = np.asarray(one, float), np.asarray(other, float)
    except (TypeError, ValueError):
        return False
    return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=True))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-15:]}"


def unlike(sol: Trajectory, system: System) -> str:
    """How energy or constraint at a few rows differ from those in the file; empty if they agree.

    Two systems made from functions may have the same names and parameters. For an ensemble only the first member is
    compared.
    """
    stored = sol.stored or {}
    leaves, tree = jax.tree.flatten(system)
    if np.ndim(sol.q) == 3:
        varied = ((True,) * len(leaves) if sol.varied is None else sol.varied)[: len(leaves)]
        system = jax.tree.unflatten(tree, [x[0] if v else x for x, v in zip(leaves, varied, strict=True)])
    first = 0 if np.ndim(sol.q) == 3 else slice(None)
    t = sol.t[0] if np.ndim(sol.t) == 2 else sol.t
    q, v, near_q = sol.q[first], sol.v[first], (sol.q if sol.near is None else sol.near)[first]
    if "energy" not in stored:
        return ""
    energy, residual = (np.asarray(stored[name])[first] for name in ("energy", "constraint_residual"))
    # Other compilers round differently in the last digits; different systems differ in the first ones. Half of the
    # digits lies between the two.
    near = float(np.sqrt(np.finfo(q.dtype).eps))
    for row in dict.fromkeys((0, len(q) // 2, len(q) - 1)):
        found = [float(x) for x in _measures(system, t[row], q[row], near_q[row], v[row])]
        for what, before, now, size in (
            ("energy", energy[row], found[0], abs(found[1])),
            ("residual of the constraint", residual[row], found[2], found[3]),
        ):
            if np.isfinite(before) and not abs(now - before) <= near * (size + abs(now) + abs(before)):
                return f"at t = {t[row]:.6g} the {what} is {before:.10g} in the file, but {now:.10g} by the system"
    return ""


@jit_fast_compile
def _measures(system: System, t: Any, q: Any, near: Any, v: Any) -> tuple[Any, ...]:
    """The energy and the residual of the constraint, each with the size of the terms that may cancel in it."""
    here = system.at(t)
    terms = jnp.max(jnp.abs(here.forms(q, v)) @ jnp.abs(v), initial=0.0)
    return total_energy(here, near, v), here.potential(near), residual_at(here, q, v), terms


def _traits(data: "xarray.Dataset") -> list[str]:
    """The names of the system's traits; files before version 0.10 show only two of them."""
    if "traits" in data.attrs:
        return json.loads(data.attrs["traits"])
    old = {Trait.GROUP: data.attrs.get("group"), Trait.AFFINE: "moving_energy" in data}
    return [trait.name for trait, found in old.items() if found]


def _trajectory(data: "xarray.Dataset", system: System | None) -> Trajectory:
    metadata = data.attrs
    try:
        method = method_from_text(metadata["method"])
    except ValueError:
        method = None
    stored = {
        "coordinates": data.coordinate.values.tolist(),
        "velocities": data[data.v.dims[-1]].values.tolist(),
        "group": metadata.get("group"),
        "traits": _traits(data),
        "positions": int(metadata.get("positions", 0)),
        "units": data.unit.values.tolist() if "unit" in data.coords else [],
        **{key: metadata[key] for key in ("system", "parameters", "options", "method", "versions")},
        **({"kept": metadata["kept"]} if "kept" in metadata else {}),
        **{
            key: data[key].values
            for key in (
                "energy",
                "energy_full",
                "constraint_residual",
                "moving_energy",
                "position_residual",
                "t_multipliers",
            )
            if key in data
        },
    }
    end: dict[str, Any]
    if "member" in data.dims:
        end = {name: data[name].values for name in ("code", "steps", "residual")}
        end["h"] = data["step"].values
    else:
        end = {
            "code": np.asarray(Status[metadata["status"]].code),
            "steps": np.asarray(int(metadata["steps"])),
            "residual": np.asarray(float(metadata["residual"])),
            "h": np.asarray(float(metadata["step"])),
        }
    varied = tuple(json.loads(metadata["varied"])) if metadata.get("varied", "null") != "null" else None
    return Trajectory(
        t=data.t.values if "t" in data else data.time.values,
        **{name: data[name].values for name in ARRAYS},
        lam=data.multipliers.values,
        near=data.near.values if "near" in data else None,
        **end,
        varied=varied,
        system=system,
        method=method,
        save_every=int(metadata["save_every"]),
        stored=stored,
        step_data={
            str(name).removeprefix(prefix): x.values
            for prefix in ("step_data_", "told_")  # the second one before version 0.10
            for name, x in data.data_vars.items()
            if str(name).startswith(prefix)
        },
    )


views.update(save=save, to_xarray=to_xarray)
