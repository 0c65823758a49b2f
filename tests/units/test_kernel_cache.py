"""Machine code on disk: what is run, what is not, how much is kept; and what is said while the compiler works."""

import collections
import ctypes
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interrupting import HEARS, interrupted

import dalembert as da
from dalembert.kernels import cache, native, time_loop, waiting
from dalembert.kernels import kept as kept_loops
from dalembert.kernels.traced import Made
from dalembert.methods import State

KEY, OTHER = "a" * 64, "b" * 64
CODE = bytes(range(256)) * 20
POSIX = pytest.mark.skipif(os.name == "nt", reason="permissions of Windows are not those of POSIX")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder in which code is kept, which does not exist yet."""
    where = tmp_path / "kept"
    monkeypatch.setenv("DALEMBERT_CACHE", str(where))
    return where


def file_of(folder: Path, key: str = KEY) -> Path:
    return folder / f"{key}{cache.SUFFIX}"


def run(script: str, **variables: str) -> list[str]:
    """The words that a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", HEARS + textwrap.dedent(script)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


# The system calls functions of the C library, by name and through LLVM's own functions.
SIMULATION = """
    import hashlib
    import jax.numpy as jnp, numpy as np
    import dalembert as da
    from dalembert.kernels import Adjoint, native
    from dalembert.model import as_arrays
    from dalembert.simulation.engines import loop_of

    emitted, emit = [], native.optimise_and_emit
    native.optimise_and_emit = lambda *a: emitted.append(1) or emit(*a)
    system = da.system(
        coordinates=("x", "y"),
        lagrangian=lambda q, v: 0.5 * v @ v - jnp.cosh(q[0]) - jnp.exp(-jnp.sin(1e7 * q[1]) ** 2),
        constraints=lambda q: jnp.array([[jnp.arctan2(q[1], 2.0), 1.0]]),
    )
    q, v = np.array([0.3, 0.0]), np.array([1.0, 0.0])
    sol = da.simulate(system, da.LeapFrog(), q, v, h=1e-3, steps=50)
    many = da.ensemble(system, da.LeapFrog(), np.stack([q] * 5), v, h=1e-3, steps=50)

    Adjoint(loop_of(as_arrays(system), as_arrays(da.LeapFrog())))
    bits = b"".join(np.asarray(x).tobytes() for x in (sol.q, sol.v, many.q))
    print(hashlib.sha256(bits).hexdigest(), len(emitted))
"""


def test_the_next_process_runs_the_same_code_without_compiling(kept):
    variables = {"DALEMBERT_CACHE": str(kept)}
    without, emitted = run(SIMULATION, DALEMBERT_CACHE="0", PYTHONHASHSEED="1")
    assert (
        emitted == "5"
    )  # the start and the steps of one run, all of many, and the ends and the steps of a gradient
    assert run(SIMULATION, **variables, PYTHONHASHSEED="2") == [without, emitted]
    files = {path: path.read_bytes() for path in kept.iterdir()}
    # Five pieces of code; the outline of the loop and the keys of three of them; and the start that passed its checks.
    assert len(files) == 9
    assert run(SIMULATION, **variables, PYTHONHASHSEED="3") == [without, "0"]
    for path in files:
        path.write_bytes(files[path][:-1] + bytes([files[path][-1] ^ 1]))
    assert run(SIMULATION, **variables) == [without, emitted]
    assert {path: path.read_bytes() for path in kept.iterdir()} == files


SKATE = """
    import hashlib, warnings
    import jax.numpy as jnp, numpy as np
    import dalembert as da
    from dalembert.kernels import traced

    counted = []
    init = traced.Traced.__init__
    traced.Traced.__init__ = lambda self, *a: counted.append(1) or init(self, *a)
    sampled = []
    from dalembert.simulation import engines
    look = engines.sample.during
    engines.sample.during = lambda *a: sampled.append(1) or look(*a)

    RATE = 1.0

    class Skate(da.System):
        coordinates = ("x", "y", "theta")
        slope: float = 0.3

        def lagrangian(self, q, v):
            return 0.5 * RATE * jnp.sum(v**2) - self.slope * q[1]

        def constraints(self, q):
            return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])

    skate, v0, words = Skate(), [1, 0, 0.5], []
    try:
        sol = da.simulate(skate, da.FrameGradient(), [0, 0, 0], v0, h=0.1, steps=50)
        words.append(hashlib.sha256(np.asarray(sol.q).tobytes() + np.asarray(sol.multipliers).tobytes()).hexdigest())
    except ValueError as error:
        words.append(str(error).split()[1].replace(" ", ""))
    print(*words, len(counted), len(sampled))
"""


def test_the_next_process_does_not_trace(kept):
    variables = {"DALEMBERT_CACHE": str(kept)}
    plain = run(SKATE, DALEMBERT_CACHE="0")
    assert plain[1:] == ["5", "1"]  # three functions of the run, two of the multipliers
    assert run(SKATE, **variables, PYTHONHASHSEED="1") == plain
    assert run(SKATE, **variables, PYTHONHASHSEED="2") == [plain[0], "0", "0"]
    # Another number of the system or of the start is checked, but nothing is traced again.
    for old, new in (("Skate(), [1", "Skate(0.2), [1"), ("[1, 0, 0.5]", "[2, 0, 0.5]")):
        again = run(SKATE.replace(old, new), **variables)
        assert again[1:] == ["0", "1"]
        assert again[0] == run(SKATE.replace(old, new), DALEMBERT_CACHE="0")[0] != plain[0]
    # A start that is refused is refused again.
    for _ in range(2):
        assert run(SKATE.replace("[1, 0, 0.5]", "[1, 1, 0.5]"), **variables)[1:] == ["0", "1"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 1.0", "RATE = 2.0"),
        ("- self.slope * q[1]", "- self.slope * q[0]"),
        ("-jnp.cos(q[2]), 0.0", "-jnp.cos(q[2]), 0.1 * jnp.sin(q[2])"),
        ("FrameGradient()", "FrameGradient('gonzalez')"),
        ("RATE = 1.0", "RATE = 1.0; import jax; jax.config.update('jax_enable_x64', False)"),
    ],
)
def test_what_changes_is_traced_again(kept, old, new):
    run(SKATE, DALEMBERT_CACHE=str(kept))
    changed = run(SKATE.replace(old, new), DALEMBERT_CACHE=str(kept))
    assert changed == run(SKATE.replace(old, new), DALEMBERT_CACHE="0")


def test_a_start_that_the_new_constraints_forbid_is_refused(kept):
    variables = {"DALEMBERT_CACHE": str(kept)}
    run(SKATE, **variables)
    moved = SKATE.replace("-jnp.cos(q[2]), 0.0", "-jnp.cos(q[2]), 1.0")
    refused = run(moved, **variables)
    assert refused == run(moved, DALEMBERT_CACHE="0")
    assert (refused[0], refused[2]) == (
        "the",
        "1",
    )  # what is traced while the checks are compiled does not matter


def test_functions_that_read_files_are_traced_in_each_process(kept, tmp_path):
    file = tmp_path / "rate.txt"
    script = SKATE.replace("* RATE *", f"* np.loadtxt({str(file)!r}) *")
    found = []
    for rate in ("1.0", "2.0"):
        file.write_text(rate)
        found.append(run(script, DALEMBERT_CACHE=str(kept)))
        assert found[-1] == run(script, DALEMBERT_CACHE="0")
    assert found[0][0] != found[1][0]


def test_a_kept_loop_gives_what_the_traced_one_gives(kept):
    """Derivatives, ensembles and measurements at many rows, from the disk and without it."""
    script = """
        import hashlib
        import jax, numpy as np
        import dalembert as da
        car = da.zoo.Car(trailers=2)
        q, v = map(np.asarray, car.start())

        def end(v):
            return da.simulate(car, da.FrameGradient(), q, v, h=0.05, steps=20).q[-1, 0]

        parts = [jax.grad(end)(v), jax.jvp(end, (v,), (v,))[1]]
        many = da.ensemble(car, da.FrameGradient(), np.stack([q] * 5), v, h=0.05, steps=20)
        sol = da.simulate(car, da.FrameGradient(), q, v, h=0.05, steps=20)
        parts += [many.q, sol.q, sol.energy(), sol.multipliers]
        print(hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in parts)).hexdigest())
    """
    plain = run(script, DALEMBERT_CACHE="0")
    assert [run(script, DALEMBERT_CACHE=str(kept)) for _ in range(2)] == [plain, plain]


@pytest.mark.parametrize(
    "text", [b"null", b"[]", b"{}", b"not json", b'{"examples": [{"class": ["os", "system"]}, null]}']
)
def test_outlines_that_make_no_sense_are_made_again(kept, text):
    made = Made(
        begin=lambda p, x: (jnp.zeros((), jnp.int32), x),
        step=lambda p, carry: carry,
        output=lambda p, carry: p * carry[1],
        report=lambda carry: (carry[0],),
        counted=lambda carry: (),
        parameters=jax.ShapeDtypeStruct((), float),
        start=jax.ShapeDtypeStruct((2,), float),
    )
    cache.keep(kept_loops._key("twice", "outline"), text)
    for _ in range(2):
        loop = time_loop(*made, name="twice")
        start, _ = loop.single()
        two, x, carry, row = np.array([2.0]), np.array([3.0, 5.0]), np.empty(3), np.empty(2)
        start(*(a.ctypes.data for a in (two, x, carry, row)))
        assert row.tolist() == [6.0, 10.0]


def test_trees_as_json():
    tree = State(jax.ShapeDtypeStruct((2, 3), np.dtype(float)), ({"a": [None]},), None)
    assert kept_loops.decoded(json.loads(json.dumps(kept_loops.encoded(tree)))) == tree
    for other in (da.zoo.KnifeEdge(), {1: None}, collections.namedtuple("Hidden", "a")(None), 3.0):
        with pytest.raises(TypeError):
            kept_loops.encoded(other)


def test_the_number_of_files_is_limited(kept, monkeypatch):
    monkeypatch.setattr(cache, "MOST", 5)
    for k in range(9):
        cache.keep(f"{k:064x}", b"1")
        os.utime(file_of(kept, f"{k:064x}"), (k, k))
    assert sorted(x.stem[-1] for x in kept.iterdir()) == ["4", "5", "6", "7", "8"]


def test_zero_turns_it_off(tmp_path):
    places = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")}
    script = "import dalembert as da; s = da.zoo.KnifeEdge(); da.simulate(s, da.LeapFrog(), *s.start(), h=0.1, steps=1)"
    run(script, **places, DALEMBERT_CACHE="0")
    assert not list(tmp_path.rglob("*"))
    run(script, **places, DALEMBERT_CACHE="")
    # The code of the start and of the steps, its keys, the outline of the loop, and the start that passed its checks.
    assert len(list(tmp_path.rglob(f"dalembert/kernels/*{cache.SUFFIX}"))) == 5


def test_the_folder_of_each_platform(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("DALEMBERT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for platform, path in (
        ("linux", ".cache"),
        ("darwin", "Library/Caches"),
        ("win32", "AppData/Local"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache.folder() == tmp_path / path / "dalembert" / "kernels"
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache.folder() == Path("/elsewhere/dalembert/kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert cache.folder() == tmp_path / ".cache" / "dalembert" / "kernels"


def test_damaged_files_are_ignored_and_replaced(kept):
    cache.keep(KEY, CODE)
    path = file_of(kept)
    whole = path.read_bytes()
    assert cache.find(KEY) == CODE
    flipped = [whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(0, len(whole), 7)]
    cut = [whole[:n] for n in (0, 1, 18, 19, 83, 114, 115, 116, len(whole) - 1)]
    for damaged in (
        *flipped,
        *cut,
        whole + b"\0",
        CODE,
        b"\0" * len(whole),
        whole.replace(b"kernel 1", b"kernel 0"),
    ):
        path.write_bytes(damaged)
        assert cache.find(KEY) is None
    cache.keep(KEY, CODE)
    assert path.read_bytes() == whole
    # The code of another key, whole, but under this name.
    cache.keep(OTHER, CODE)
    os.replace(file_of(kept, OTHER), path)
    assert cache.find(KEY) is None


def test_every_ingredient_changes_the_key(monkeypatch):
    keys = []
    monkeypatch.setattr(native, "interruptible", lambda key, work: keys.append(key))

    def key(text="text", **passes):
        native.object_code(text, native.PASSES | passes)
        return keys[-1]

    usual = key()
    assert key() == usual
    seen = {usual, key("texts"), *(key(**{name: 9}) for name in (*native.PASSES, "another"))}
    origin = native.origin()
    assert {"dalembert", "llvmlite", "llvm", "cpu", "features", "triple"} < set(origin)
    for name in origin:
        monkeypatch.setattr(native, "origin", lambda name=name: origin | {name: "other"})
        seen.add(key())
    assert len(seen) == 3 + len(native.PASSES) + len(origin)


def test_two_processes_at_once(kept):
    script = f"""
        from dalembert.kernels import cache
        code = bytes(range(256)) * 4000
        for i in range(150):
            cache.keep({KEY!r}, code)
            assert cache.find({KEY!r}) == code
    """
    children = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=os.environ.copy())
        for _ in range(2)
    ]
    assert [child.wait(120) for child in children] == [0, 0]
    assert [path.name for path in kept.iterdir()] == [file_of(kept).name]


def test_the_size_is_bounded(kept, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT", 4 * (len(CODE) + 200))
    names = [f"{i:064}" for i in range(6)]
    for i, name in enumerate(names):
        cache.keep(name, CODE)
        age = 10_000 - 1000 * i
        os.utime(file_of(kept, name), (time.time() - age,) * 2)
        if i == 3:
            assert cache.find(names[0]) == CODE  # it is now the one that was used last
    assert {path.name for path in kept.iterdir()} == {file_of(kept, names[i]).name for i in (0, 3, 4, 5)}
    (kept / "notes.txt").write_bytes(b"mine" * 10_000)
    left = kept / "left.new"
    left.write_bytes(CODE)
    os.utime(left, (time.time() - 10_000,) * 2)
    cache.keep(OTHER, CODE)
    assert cache.find(OTHER) == CODE
    assert (kept / "notes.txt").exists()
    assert not left.exists()
    cache.keep(KEY, CODE * 5)  # larger than everything may be together
    assert not file_of(kept).exists()


def test_a_hit_is_noted_at_most_once_an_hour(kept):
    cache.keep(KEY, CODE)
    path = file_of(kept)
    for age, noted in ((1000, False), (10_000, True)):
        then = time.time() - age
        os.utime(path, (then, then))
        assert cache.find(KEY) == CODE
        assert (path.stat().st_mtime > then + 100) == noted


def compiled() -> int:
    """Compiles a function and calls it."""
    code = native.machine(("define i64 @seven() {\nentry:\n  ret i64 7\n}", set()))
    return code.function("seven", [], ctypes.c_int64)()


@pytest.mark.parametrize("where", ["file", "file/below", "below/none", "null\0", "full"])
def test_folders_that_cannot_be_used_are_no_error(tmp_path, monkeypatch, where):
    (tmp_path / "file").write_text("a file, not a folder")
    monkeypatch.setattr(cache, "folder", lambda: tmp_path / where)
    if where == "below/none":
        monkeypatch.setattr(
            Path, "mkdir", lambda *a, **k: (_ for _ in ()).throw(PermissionError("read-only"))
        )
    if where == "full":
        monkeypatch.setattr(
            os, "replace", lambda *a: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
    assert compiled() == 7
    assert cache.find(KEY) is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "file"]


def test_without_a_home_nothing_is_kept(monkeypatch):
    monkeypatch.delenv("DALEMBERT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert compiled() == 7


@POSIX
def test_what_others_may_change_is_not_run(kept, monkeypatch):
    cache.keep(KEY, CODE)
    path = file_of(kept)
    assert kept.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    for place, usual in ((kept, 0o700), (path, 0o600)):
        for bit in (0o020, 0o002):
            place.chmod(usual | bit)
            assert cache.find(KEY) is None
            place.chmod(usual)
            assert cache.find(KEY) == CODE
    kept.chmod(0o777)
    cache.keep(OTHER, CODE)
    kept.chmod(0o700)
    assert not file_of(kept, OTHER).exists()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # the folder is another user's
    assert cache.find(KEY) is None
    cache.keep(OTHER, CODE)
    assert not file_of(kept, OTHER).exists()


@pytest.fixture
def slow(monkeypatch):
    """A compiler that takes half a second, and a patience that is a fifth of that."""
    monkeypatch.setenv("DALEMBERT_QUIET", "0")
    monkeypatch.setattr(waiting, "PATIENCE", 0.1)
    monkeypatch.setattr(waiting, "SHORT", 0.02)
    emit = native.optimise_and_emit

    def slowly(*arguments):
        time.sleep(0.5)
        return emit(*arguments)

    monkeypatch.setattr(native, "optimise_and_emit", slowly)
    return monkeypatch


def test_a_slow_compilation_is_announced(slow, capsys):
    heard = []
    write = waiting._write
    slow.setattr(waiting, "_write", lambda line: (heard.append(time.monotonic()), write(line)))
    began = time.monotonic()
    assert compiled() == 7
    ended = time.monotonic()
    assert began + 0.1 <= heard[0] < ended  # meanwhile, not afterwards
    assert capsys.readouterr() == ("", "dalembert: compiling 3 operations (about 1 s)\n")
    slow.setenv("DALEMBERT_QUIET", "1")
    assert compiled() == 7
    assert capsys.readouterr() == ("", "")


def test_a_quick_compilation_is_not(monkeypatch, capsys):
    monkeypatch.setenv("DALEMBERT_QUIET", "0")
    assert waiting.PATIENCE == 2
    assert compiled() == 7
    time.sleep(waiting.SHORT + 0.1)
    assert capsys.readouterr() == ("", "")


def test_what_was_kept_is_not_announced(slow, kept, capsys):
    assert compiled() == 7
    capsys.readouterr()
    assert compiled() == 7
    assert capsys.readouterr() == ("", "")


def test_stages_share_their_time(monkeypatch):
    clock, events = [0.0], []

    class Timer:
        def __init__(self, due, function, arguments):
            self.line = arguments[0]
            events.append((self.line, round(clock[0] + due, 3)))

        def start(self):
            pass

        def cancel(self):
            events.append(("not " + self.line, clock[0]))

    monkeypatch.setenv("DALEMBERT_QUIET", "0")
    monkeypatch.setattr(waiting, "threading", mock.Mock(Timer=Timer))
    monkeypatch.setattr(waiting, "time", mock.Mock(monotonic=lambda: clock[0]))
    with waiting.making():
        with waiting.making("tracing"):
            clock[0] = 0.75
        with waiting.making("compiling"):
            clock[0] = 3.0
        with waiting.making("tracing again"):
            clock[0] = 3.25
    assert events[:4] == [("tracing", 2.0), ("not tracing", 0.75), ("not tracing", 0.75), ("compiling", 2.0)]
    assert ("tracing again", 3.5) in events
    assert events[-1] == ("not tracing again", 3.25)
    with waiting.making("another kernel"):
        assert events[-1] == ("another kernel", 5.25)


def test_the_line_goes_above_a_progress_bar(slow, monkeypatch, capsys):
    from dalembert.simulation.progress import progress_bar

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress_bar(True, 10, "a run") as advance:
        advance(1)
        assert compiled() == 7
        advance(10)
    lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
    assert any(line.endswith("compiling 3 operations (about 1 s)") and "a run" not in line for line in lines)


def test_the_estimate_of_the_time():
    line = "  %v = fadd contract double %a, %b\n"
    assert waiting.compiling(27_610 * line) == "compiling 28,000 operations (about 4 s)"
    wide = line.replace("double", "<4 x double>")
    assert waiting.compiling(30_600 * wide) == "compiling 31,000 operations (about 15 s)"
    assert waiting.compiling(300_000 * wide).endswith("(about 5 min)")


def test_threads_other_than_the_main_one_compile(slow, capsys):
    found = []
    thread = threading.Thread(target=lambda: found.append(compiled()))
    thread.start()
    thread.join()
    assert found == [7]
    assert "compiling 3 operations" in capsys.readouterr().err


def test_errors_of_the_compiler_reach_the_caller():
    with pytest.raises(RuntimeError, match="expected"):
        native.machine(("this is not LLVM's language", set()))
    assert not waiting._running
    assert compiled() == 7


# A function that takes LLVM a minute, so that Ctrl-C surely comes before it is done.
LARGE = """
    from dalembert.kernels import native, waiting
    lines = ["  %v0 = load double, ptr %x"]
    for i in range(1, 100_000):
        lines.append(f"  %v{i} = fdiv double %v{i - 1}, %v{i * i % 997 % i}")
    lines = ["define void @large(ptr %x) {", "entry:", *lines, "  store double %v99999, ptr %x", "  ret void", "}"]
    text = "\\n".join(lines)
    large = (text, set())
    emit = native.optimise_and_emit

    def telling(*arguments):
        print("running", flush=True)
        return emit(*arguments)

    native.optimise_and_emit = telling
"""


def test_ctrl_c_ends_the_wait_and_the_program():
    script = (
        LARGE
        + """
    try:
        native.machine(large)
    except KeyboardInterrupt:
        print("interrupted", len(waiting._running))
    """
    )
    last, said, took = interrupted(script)
    assert last == "interrupted 1"  # the compiler still works
    assert not said  # no crash, and no thread that complains
    assert took < 30  # the compiler would take a minute


@POSIX
def test_what_was_interrupted_is_not_compiled_twice():
    script = """
        import signal, threading
        from dalembert.kernels import native
        emit, counted, gone = native.optimise_and_emit, [], threading.Event()

        def slowly(*arguments):
            counted.append(1)
            signal.raise_signal(signal.SIGINT) if len(counted) == 1 else None
            gone.wait(20)
            return emit(*arguments)

        native.optimise_and_emit = slowly
        seven = ("define i64 @seven() { ret i64 7 }", set())
        other = ("define i64 @eight() { ret i64 8 }", set())
        try:
            native.machine(seven)
        except KeyboardInterrupt:
            print("interrupted")
        gone.set()
        from ctypes import c_int64
        print(native.machine(seven).function("seven", [], c_int64)(), len(counted))
        print(native.machine(other).function("eight", [], c_int64)(), len(counted))
    """
    assert run(script) == ["interrupted", "7", "1", "8", "2"]


def test_ctrl_c_before_the_first_step():
    script = """
        import os, time
        os.environ["DALEMBERT_CACHE"] = "0"  # other tests may have run the same system
        import dalembert as da
        from dalembert.kernels import native
        emit = native.optimise_and_emit

        def telling(*arguments):
            print("running", flush=True)
            time.sleep(600)  # `interrupted` waits for a minute
            return emit(*arguments)

        native.optimise_and_emit = telling
        knife = da.zoo.KnifeEdge()
        try:
            da.simulate(knife, da.LeapFrog(), *knife.start(), h=0.1, steps=5)
        except KeyboardInterrupt:
            native.optimise_and_emit = emit
            print(da.simulate(knife, da.DLA(), *knife.start(), h=0.1, steps=5).status.name)
    """
    assert interrupted(script)[0] == "OK"
