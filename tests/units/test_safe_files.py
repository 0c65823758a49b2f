"""Saving destroys nothing: not what is of others, not what was there when it fails; and a file knows its system."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from command_line import called
from properties.bitflips import SPEC, bits, flip, restore, snapshot, without_workers

import dalembert as da

SUFFIXES = pytest.mark.parametrize("suffix", [".zarr", ".nc"])


@pytest.fixture(scope="module")
def runs():
    """Two runs that differ."""
    knife = da.zoo.KnifeEdge()
    return [da.simulate(knife, da.LeapFrog(), *knife.start(), h=0.1, steps=steps) for steps in (5, 6)]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep, which tests copy."""
    path = tmp_path_factory.mktemp("swept") / "sweep.zarr"
    with without_workers():
        da.sweep(SPEC, path)
    return path


@SUFFIXES
def test_a_trajectory_is_replaced_on_request_alone(runs, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    runs[0].save(path)
    before = snapshot(path)
    with pytest.raises(FileExistsError, match=r"holds a trajectory already.*overwrite=True"):
        runs[1].save(path)
    assert snapshot(path) == before
    runs[1].save(path, overwrite=True)
    assert len(da.load(path).t) == 7
    assert os.listdir(tmp_path) == [path.name]
    if suffix == ".zarr":
        (path / "notes.txt").write_text("mine")
        with pytest.raises(FileExistsError, match=r"holds 'notes.txt'.*never overwritten"):
            runs[0].save(path, overwrite=True)
        assert (path / "notes.txt").read_text() == "mine"


def old(sol, path):
    """A file as version 0.8 wrote it."""
    data = sol.to_xarray()
    data.attrs["format"] = 1
    if path.suffix == ".zarr":
        data.to_zarr(path, mode="w", zarr_format=2, consolidated=True)
    else:
        data.to_netcdf(path, mode="w", engine="h5netcdf")


@SUFFIXES
def test_what_version_0_8_wrote(runs, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    old(runs[0], path)
    with pytest.warns(UserWarning, match=r"version 0\.8 or before.*cannot be checked"):
        back = da.load(path)
    np.testing.assert_array_equal(back.q, runs[0].q)
    with pytest.raises(FileExistsError, match="holds a trajectory already"):
        runs[1].save(path)
    runs[1].save(path, overwrite=True)
    assert len(da.load(path).t) == 7


@SUFFIXES
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_of_others_stays(runs, swept, tmp_path, suffix, overwrite):
    others = [tmp_path / f"{name}{suffix}" for name in ("folder", "file", "dataset", "sweep", "broken")]
    others[0].mkdir()
    (others[0] / "thesis.tex").write_text("years of work")
    others[1].write_text("not what its name says")
    data = xarray.Dataset({"a": ("x", [1.0])}, attrs={"format": 1})
    data.to_zarr(others[2]) if suffix == ".zarr" else data.to_netcdf(others[2], engine="h5netcdf")
    shutil.copytree(swept, others[3])
    runs[0].save(others[4])
    if suffix == ".zarr":
        flip(others[4] / ".dalembert.json", 3)
    else:
        others[4].write_bytes(others[4].read_bytes()[:1000])
    before = snapshot(tmp_path)
    for path in others:
        with pytest.raises(FileExistsError, match=r"never overwritten|is a folder"):
            runs[0].save(path, overwrite)
    assert snapshot(tmp_path) == before


def test_the_command_refuses_before_it_runs(runs, swept, tmp_path):
    shutil.copytree(swept, tmp_path / "sweep.zarr")
    runs[0].save(tmp_path / "run.nc")
    before = snapshot(tmp_path)
    command = ("run", "KnifeEdge", "--steps", "10", "--method", "leapfrog", "--out")
    for name, more, said in (
        ("sweep.zarr", (), "dalembert sweep"),
        ("sweep.zarr", ("--overwrite",), "never overwritten"),
        ("run.nc", (), "--overwrite"),
    ):
        with mock.patch("dalembert.cli.run.simulate", side_effect=AssertionError("it ran")):
            ended = called(*command, name, *more, cwd=tmp_path)
        assert ended.returncode == 1
        assert said in " ".join(ended.stderr.split())
    assert snapshot(tmp_path) == before
    assert called(*command, "run.nc", "--overwrite", cwd=tmp_path).returncode == 0
    assert len(da.load(tmp_path / "run.nc").t) == 11


@SUFFIXES
@pytest.mark.parametrize("where", ["put", "sync", "replace"])
@pytest.mark.parametrize(
    "trouble", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["stop", "full"]
)
def test_a_save_that_fails_leaves_the_old_one(runs, tmp_path, suffix, where, trouble):
    from dalembert.simulation import durable, storage

    path = tmp_path / f"run{suffix}"
    runs[0].save(path)
    before = snapshot(path)
    called = 0
    real = getattr(durable, where)

    def fails(*arguments):
        nonlocal called
        called += 1
        if where != "put" or suffix == ".nc" or called == 3:  # of a folder some files are written
            raise trouble
        real(*arguments)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(storage, where, fails))
        stack.enter_context(mock.patch.object(durable, where, fails))
        found = stack.enter_context(pytest.raises(type(trouble)))
        runs[1].save(path, overwrite=True)
    if where != "sync" or suffix == ".zarr":  # the last sync of a file comes when all is done
        assert snapshot(path) == before
    assert os.listdir(tmp_path) == [path.name]
    assert len(da.load(path).t) in (6, 7)
    if isinstance(trouble, OSError):
        assert str(found.value).startswith(f"{path} could not be written: No space left on device")
        assert found.value.errno == 28
    runs[1].save(path, overwrite=True)
    assert len(da.load(path).t) == 7


def test_a_replacement_killed_between_its_renames(runs, tmp_path):
    from dalembert.simulation import durable

    path = tmp_path / "run.zarr"
    runs[0].save(path)
    os.rename(path, durable.aside(path))  # as far as it came
    assert len(da.load(path).t) == 6
    with pytest.raises(FileExistsError, match="holds a trajectory already"):
        runs[1].save(path)
    runs[1].save(path, overwrite=True)
    shutil.copytree(path, durable.aside(path))  # or so far
    runs[0].save(path, overwrite=True)
    assert len(da.load(path).t) == 6
    assert os.listdir(tmp_path) == ["run.zarr"]


def test_a_link_to_a_folder_of_another_name(runs, tmp_path):
    (tmp_path / "data").mkdir()
    link = tmp_path / "run.zarr"
    link.symlink_to(tmp_path / "data", target_is_directory=True)
    runs[0].save(link)
    runs[1].save(link, overwrite=True)
    assert link.is_symlink()
    assert len(da.load(link).t) == 7


def test_leftovers_of_killed_saves_go(runs, tmp_path):
    from dalembert.simulation import durable

    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    gone = tmp_path / f".dalembert-{durable.HOST}-{ended.pid}-0123abcd.saving"
    runs_still = tmp_path / f".dalembert-{durable.HOST}-{os.getpid()}-0123abcd.saving"
    elsewhere = tmp_path / f".dalembert-other-{ended.pid}-0123abcd.saving"
    for path in (gone, runs_still, elsewhere):
        path.mkdir()
    runs[0].save(tmp_path / "run.nc")
    assert sorted(os.listdir(tmp_path)) == sorted(["run.nc", runs_still.name, elsewhere.name])


def test_a_limit_on_the_size_of_files(runs, tmp_path):
    """A disk that takes no more: in a process of its own, which must not crash."""
    for suffix in (".zarr", ".nc"):
        runs[0].save(tmp_path / f"run{suffix}")
    before = snapshot(tmp_path)
    code = """
        import resource
        import dalembert as da
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        for name in ("run.zarr", "run.nc"):
            sol = da.load(name, check=False)
            try:
                sol.save(name, overwrite=True)
            except OSError as error:
                print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended
    for name in ("run.zarr", "run.nc"):
        said = f"{name} could not be written: File too large; what was there is unchanged"
        assert said in ended.stdout, ended
    assert snapshot(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["run.nc", "run.zarr"]


@SUFFIXES
def test_a_missing_file_or_digest_is_damage(runs, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    runs[0].save(path)
    before = snapshot(path)
    for file, content in before.items():
        if suffix == ".zarr":
            file.unlink()
        else:
            file.write_bytes(content[: -len("0\n")])  # the end of the digest is cut off
        with pytest.raises(ValueError, match=r"run\.\w+ is damaged and was not read: .*(missing|damaged)"):
            da.load(path)
        file.write_bytes(content)
    assert len(da.load(path).t) == 6
    (tmp_path / f"text{suffix}").write_text("something else")
    with pytest.raises(ValueError, match="not a trajectory that can be read"):
        da.load(tmp_path / f"text{suffix}")


def test_damage_is_seen_by_xarray_itself(runs, tmp_path):
    """Those who open files without `load` have the checksums of the chunks."""
    for path in (tmp_path / "run.zarr", tmp_path / "run.nc"):
        runs[0].save(path)
        data = xarray.open_dataset(path) if path.suffix == ".nc" else xarray.open_zarr(path)
        np.testing.assert_array_equal(data.q, runs[0].q)
        data.close()
    flip(tmp_path / "run.zarr" / "q" / "0.0", 100)
    with pytest.raises(RuntimeError, match=r"CRC|checksum"):
        xarray.open_zarr(tmp_path / "run.zarr").load()
    content = (tmp_path / "run.nc").read_bytes()
    at = content.index(np.asarray(runs[0].v).tobytes())
    flip(tmp_path / "run.nc", 8 * at + 5)
    with pytest.raises(OSError, match="filter"):
        xarray.open_dataset(tmp_path / "run.nc").load()


# --- sweeps


def test_a_sweep_never_empties_a_folder(swept, tmp_path):
    from dalembert.simulation import durable

    def locked(folder: Path) -> None:  # of another program
        folder.mkdir()
        (folder / ".lock").write_text("")
        (folder / "thesis.tex").write_text("years of work")

    def lock_alone(folder: Path) -> None:
        folder.mkdir()
        (folder / ".lock").write_text("owner: somebody else")

    def emptied(folder: Path) -> None:  # the metadata
        shutil.copytree(swept, folder)
        (folder / "zarr.json").write_text("{}")

    def unknown(folder: Path) -> None:
        emptied(folder)
        (folder / ".dalembert.json").unlink()

    def cut(folder: Path) -> None:
        shutil.copytree(swept, folder)
        (folder / ".dalembert.json").write_bytes((folder / ".dalembert.json").read_bytes()[:100])

    def foreign(folder: Path) -> None:  # a creation that was cut off, to which something of others was added
        folder.mkdir()
        (folder / ".making").write_bytes(durable.sealed({"kind": "dalembert sweep", "entries": ["q"]}))
        (folder / "q").mkdir()
        (folder / "thesis.tex").write_text("years of work")

    for make in (locked, lock_alone, emptied, unknown, cut, foreign):
        path = tmp_path / f"{make.__name__}.zarr"
        make(path)
        before = snapshot(path)
        for resume in (True, False):
            with (
                without_workers(),
                pytest.raises(ValueError, match=rf"{path.name} (exists and is not|is damaged)"),
            ):
                da.sweep(SPEC, path, resume=resume)
            now = snapshot(path)
            now[path / ".lock"] = before.get(path / ".lock", b"")  # the number of the process
            assert now == before | {path / ".lock": before.get(path / ".lock", b"")}, make.__name__
        said = called("sweep", "--status", path.name, cwd=tmp_path)
        assert (said.returncode, "Traceback" in said.stderr) == (1, False)


def test_a_creation_that_was_cut_off_goes_on(swept, tmp_path):
    from dalembert.simulation import durable

    path = tmp_path / "sweep.zarr"
    path.mkdir()
    (path / ".lock").write_text("12345")
    (path / ".making").write_bytes(durable.sealed({"kind": "dalembert sweep", "entries": ["q", "zarr.json"]}))
    (path / "q").mkdir()
    (path / "q" / "zarr.json").write_text("{")
    with without_workers():
        found = da.sweep(SPEC, path).load()
    wanted = da.open_sweep(swept).load()
    for data in (found, wanted):
        del data.attrs["created"]
    assert bits(found) == bits(wanted)


def test_missing_and_damaged_blocks_are_told_and_computed_again(swept, tmp_path):
    path = tmp_path / "sweep.zarr"
    shutil.copytree(swept, path)
    wanted = bits(da.open_sweep(path).load(), ("attempts",))
    missing = next((path / "q" / "c" / "1").rglob("0"))
    while missing.is_dir():
        missing = next(missing.iterdir())
    missing.unlink()
    damaged = next(file for file in (path / "energy" / "c" / "0").rglob("*") if file.is_file())
    flip(damaged, 20)
    said = called("sweep", "--status", "sweep.zarr", cwd=tmp_path)
    assert "0 of 2 done" in said.stdout, said
    told = " ".join(said.stdout.split())
    assert "block 0 is not as it was written (energy/c/0" in told
    assert "its checksum does not match), and 1 more" in told
    assert "--resume goes on" in told
    with pytest.raises(ValueError, match=r"sweep.zarr is damaged: block 0 .*energy/c/0.*--resume"):
        da.open_sweep(path)
    with pytest.raises(ValueError, match="checksum"):
        xarray.open_zarr(path).load()
    with (
        without_workers(),
        pytest.warns(UserWarning, match=r"block 0 is not as it was written.*computed again"),
    ):
        data = da.sweep(SPEC, path).load()
    assert bits(data, ("attempts",)) == wanted
    assert bits(da.open_sweep(path).load(), ("attempts",)) == wanted


def test_a_sweep_of_version_0_8_is_read(swept, tmp_path):
    path = tmp_path / "sweep.zarr"
    shutil.copytree(swept, path)
    (path / ".dalembert.json").unlink()
    index = json.loads((path / "zarr.json").read_text())
    index["attributes"]["format"] = 1
    (path / "zarr.json").write_text(json.dumps(index))
    with pytest.warns(UserWarning, match=r"version 0\.8 or before, without checksums"):
        found = da.open_sweep(path).load()
    assert found.drop_attrs().identical(da.open_sweep(swept).load().drop_attrs())
    with pytest.raises(ValueError, match=r"is a sweep, not a trajectory; dalembert\.open_sweep"):
        da.load(path)
    with pytest.raises(ValueError, match=r"it is a dalembert sweep; dalembert\.open_sweep"):
        da.load(swept)


def test_stray_files_in_a_store(swept, tmp_path):
    path = tmp_path / "sweep.zarr"
    shutil.copytree(swept, path)
    (path / "done" / "c" / "7").write_text("")  # there are two blocks
    (path / "done" / "c" / "²").write_text("")
    (path / "done" / "c" / "x").mkdir()
    (path / ".errors").mkdir()
    (path / ".errors" / "notes.txt").write_bytes(b"\xff")
    (path / ".errors" / "1.txt").write_bytes(b"\xff")
    (path / "notes.md").write_text("mine")
    with without_workers():
        da.sweep(SPEC, path).load()
    said = called("sweep", "--status", "sweep.zarr", cwd=tmp_path)
    assert (said.returncode, "2 of 2 done" in said.stdout) == (0, True), said
    assert (path / "notes.md").read_text() == "mine"


def test_a_block_is_on_the_disk_before_its_mark(tmp_path):
    """Data, then the folders that name them, then the mark: what has a mark outlives a power cut."""
    from dalembert.sweeps import store

    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        events.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def renamed(self: Path, target: Path) -> Path:
        events.append(("name", str(target)))
        return replace(self, target)

    path = tmp_path / "sweep.zarr"
    with without_workers(), mock.patch("os.fsync", synced), mock.patch.object(Path, "replace", renamed):
        da.sweep(SPEC, path)
    opened = store.Store(path)
    for block in range(2):
        mark = path / "done" / "c" / str(block)
        marked = events.index(("name", str(mark)))
        for name in opened.files(block):
            written = max(i for i, event in enumerate(events) if event == ("name", str(path / name)))
            assert written < marked
            last = events.index(("sync", str(path / name)), written, marked)
            last = events.index(("sync", str((path / name).parent)), last, marked)
            # Folders further up are there since the first file in them.
            for place in (path / name).parents[1:]:
                if place == path.parent:
                    break
                first = next(i for i, (_, file) in enumerate(events) if file.startswith(f"{place}/"))
                assert ("sync", str(place)) in events[first:marked]
        assert ("sync", str(mark)) in events[marked:]
        assert ("sync", str(mark.parent)) in events[marked:]


def test_no_room_is_told_before_anything_is_written(tmp_path):
    huge = 10**18
    for change, said in (
        ({"random": {"count": huge, "eps": {"uniform": [0.0, 1.0]}}, "grid": {"h": [0.1]}, "h": None},
         "in .*room for"),
        ({"grid": {"eps": {"from": 0.0, "to": 1.0, "count": huge}}}, "of memory, and this machine has"),
        ({"grid": {"eps": [0.0], "v0": {"xi": {"from": 0.0, "to": 1.0, "count": 10**6}}},
          "random": {"count": 10**12, "v0": {"x2": {"uniform": [0.0, 1.0]}}}}, "in .*room for"),
        ({"steps": 10**12, "save_every": 1}, "of memory, and this machine has"),
        ({"reduce": ["section"], "section": {"coordinate": "xi", "count": huge}}, "of memory"),
        ({"steps": huge}, "can be counted"),
        ({"steps": None, "time": 1e300}, "can be counted"),
    ):  # fmt: skip
        spec = {key: x for key, x in (SPEC | change).items() if x is not None}
        with without_workers(), pytest.raises(ValueError, match=said):
            da.sweep(spec, tmp_path / "sweep.zarr")
        assert list(tmp_path.iterdir()) == []
    free = shutil.disk_usage(tmp_path)._replace(free=200)  # and what is known after the first trajectories
    with (
        without_workers(),
        mock.patch("dalembert.sweeps.layout.shutil.disk_usage", return_value=free),
        pytest.raises(ValueError, match=r"8 trajectories of \d+ bytes each would take .*room for 200 bytes"),
    ):
        da.sweep(SPEC, tmp_path / "sweep.zarr")
    assert list(tmp_path.iterdir()) == []


# --- the system of a file


def oscillator(stiffness=1.0, forms=(1.0, 0.0), **parameters):
    """Its functions have their numbers inside, where a file does not see them."""
    return da.system(
        coordinates=("x", "y"),
        metric=lambda q, **_: jnp.eye(2),
        potential=lambda q, **_: 0.5 * stiffness * q[1] ** 2,
        constraints=lambda q, **_: jnp.array([forms]),
        **({"parameters": parameters} if parameters else {}),
    )


def test_the_system_must_be_that_of_the_file(tmp_path):
    board = da.zoo.Snakeboard(mass=1.3)
    sol = da.simulate(board, da.LeapFrog(), *board.start(), h=0.1, steps=4)
    path = tmp_path / "run.nc"
    sol.save(path)
    assert da.load(path, system=da.zoo.Snakeboard(mass=1.3)).system.mass == 1.3
    with pytest.raises(
        ValueError, match=r"the parameter mass is 1\.3 in the file, but 1\.4 in the system.*check=False"
    ):
        da.load(path, system=da.zoo.Snakeboard(mass=1.4))
    with pytest.raises(ValueError, match=r"the option convention is 'relative' in the file, but 'absolute'"):
        da.load(path, system=da.zoo.Snakeboard(mass=1.3, convention="absolute"))
    assert da.load(path, system=da.zoo.Snakeboard(mass=1.4), check=False).system.mass == 1.4
    with pytest.raises(ValueError, match="has the coordinates"):
        da.load(path, system=oscillator(), check=False)


def test_an_ensemble_in_which_a_parameter_varies(tmp_path):
    """Its system comes back, too, with the values of every member."""
    cvt = da.zoo.PendulumCVT()
    many = eqx.tree_at(lambda system: system.eps, cvt, np.array([0.1, 0.2]))
    q0, v0 = cvt.start("rotating")
    sol = da.ensemble(many, da.LeapFrog(), np.stack([q0, q0]), v0, h=0.1, steps=4, vary=["eps"])
    sol.save(tmp_path / "run.zarr")
    for back in (da.load(tmp_path / "run.zarr"), da.load(tmp_path / "run.zarr", system=cvt)):
        np.testing.assert_array_equal(back.system.eps, [0.1, 0.2])
        np.testing.assert_allclose(back.member(1).energy(), sol.member(1).energy(), rtol=1e-14)  # rounding


def test_the_functions_must_be_those_of_the_file(tmp_path):
    sol = da.simulate(oscillator(), da.LeapFrog(), [0.0, 0.3], [0.0, 0.4], h=0.1, steps=4)
    path = tmp_path / "run.zarr"
    sol.save(path)
    assert da.load(path, system=oscillator()).system is not None
    with pytest.raises(ValueError, match=r"the energy is .* in the file, but .* by the system"):
        da.load(path, system=oscillator(stiffness=1.001))
    with pytest.raises(
        ValueError, match=r"the residual of the constraint is 0 in the file, but .* by the system"
    ):
        da.load(path, system=oscillator(forms=(1.0, 0.01)))
    assert da.load(path, system=oscillator(stiffness=2.0), check=False).energy() is not None
    many = da.ensemble(oscillator(), da.LeapFrog(), np.zeros((2, 2)), np.array([0.0, 1.0]), h=0.1, steps=4)
    many.save(tmp_path / "many.zarr")
    assert da.load(tmp_path / "many.zarr", system=oscillator()).system is not None
    with pytest.raises(ValueError, match="the energy is"):
        da.load(tmp_path / "many.zarr", system=oscillator(stiffness=2.0))


def test_a_system_of_the_zoo_with_a_function_of_ones_own(tmp_path):
    """The function is not in the file: the system is not made without it."""
    own = da.zoo.NonholonomicParticle(potential=lambda q: 5.0 * q[0] ** 2)
    sol = da.simulate(own, da.LeapFrog(), *own.start(), h=0.1, steps=2)
    sol.save(tmp_path / "run.nc")
    with pytest.warns(UserWarning, match=r"functions that are not in the file.*load\(path, system="):
        assert da.load(tmp_path / "run.nc").system is None
    assert da.load(tmp_path / "run.nc", system=own).system is own


def test_restore_is_a_restore(tmp_path):
    """The tests' own tool."""
    (tmp_path / "a").write_text("1")
    before = snapshot(tmp_path)
    (tmp_path / "a").write_text("2")
    (tmp_path / "b").write_text("3")
    restore(tmp_path, before)
    assert snapshot(tmp_path) == before
