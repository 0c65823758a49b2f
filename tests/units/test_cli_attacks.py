"""Whatever a user mistypes on the command line becomes one sentence, and never a traceback."""

import os
import socket
import subprocess
import sys
import textwrap

import pytest
from command_line import called

OWN = """
    import dalembert as da
    import jax.numpy as jnp

    class Fall(da.System):
        coordinates = ("x", "y")
        step = 0.01
        depth: float = 1.0

        def metric(self, q):
            return jnp.eye(2)

        def starts(self):
            return {"top": ([0.0, 0.0], [0.0, 0.0])}

    class Refuses(Fall):
        def __check_init__(self):
            raise RuntimeError("of its own accord")

    class Broken(Fall):
        def metric(self, q):
            return nothing_of_this_name

    class Stepless(da.Method):
        pass

    class Needy(da.FrameGradient):
        def __init__(self, x):
            pass

    number = 3
"""
FILES = {
    "own.py": textwrap.dedent(OWN),
    "raises.py": "x = 1\nx = x / 0\n",
    "wordless.py": "raise RuntimeError\n",
    "syntax.py": "def f(:\n",
    "exits.py": "import sys\n\nsys.exit(3)\n",
    "needs.py": "import nothing_of_this_name\n",
    "own.txt": "no module",
    "bad.toml": "x = [",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacks")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name in ("folder.png", "folder.nc", "folder.json"):
        (folder / name).mkdir()
    return folder


KNIFE = ("run", "KnifeEdge")
AUDIT = ("audit", "--system", "KnifeEdge", "--method", "leapfrog")
EXPLORE = ("explore", "KnifeEdge", "--method", "leapfrog", "--no-browser")
# What is typed, and a part of what must be said.
MISTAKES = [
    *(
        (*KNIFE, "--steps", x, "--steps takes a whole number")
        for x in ("1e400", "-1e400", "nan", "1.5", "1e30")
    ),
    *((*KNIFE, "--steps", x, "Invalid value for --steps") for x in ("", "many", "٣x")),
    (*KNIFE, "--steps", "-1", "steps must be"),
    *((*KNIFE, "--h", x, "h must be one finite number") for x in ("nan", "inf", "-inf", "1e400")),
    *((*KNIFE, "--h", x, "h must be positive") for x in ("0", "-1", "-1e-300")),
    *((*KNIFE, "--h", x, "Invalid value for --h") for x in ("", "small")),
    *((*KNIFE, "--save-every", x, "save_every must be") for x in ("0", "-1")),
    *((*KNIFE, "--save-every", x, "--save-every takes a whole") for x in ("1.5", "nan", "inf", "1e99")),
    *((*KNIFE, "--start", x, "no start state") for x in ("", "é", "\0", "Default")),
    *((*KNIFE, "--param", x, "takes name=value") for x in ("", "eps")),
    *((*KNIFE, "--param", x, "no parameter of KnifeEdge") for x in ("=", "=1", "é=1", "EPS=1", "eps =1")),
    *((*KNIFE, "--param", x, "--param eps takes a number") for x in ("eps=", "eps=é", "eps=1,2", "eps==1")),
    *((*KNIFE, "--param", x, "NaN or infinite") for x in ("eps=nan", "eps=inf", "eps=1e400")),
    *(
        (*KNIFE, "--method", x, "no method")
        for x in ("", "é", ":", "own:", "Frame", "leap frog", "own:Needy.x")
    ),
    *((*KNIFE, "--method", x, "after the colon") for x in ("frame:", "dla:", "dla:é", "gni:")),
    *(
        (*KNIFE, "--method", x, "after @")
        for x in ("frame@", "frame@x", "frame@²", "frame@4@4", "frame@" + "9" * 50)
    ),
    *(
        (*KNIFE, "--method", x, "between 0 and 1")
        for x in ("dla:nan", "dla:-1", "dla:1e400", "gni:alpha=nan")
    ),
    *((*KNIFE, "--method", x, "tolerances") for x in ("reference:nan,1", "reference:0,0", "reference:1,2,3")),
    *((*KNIFE, "--method", f"gni:restart={x}", "restart") for x in ("0", "-1", "1.5", "", "9" * 30)),
    *((*KNIFE, "--method", f"gni:gauss={x}", "gauss") for x in ("", "nan")),
    (*KNIFE, "--method", "gni:gauss=999999999", "1 to 6 stages"),
    (*KNIFE, "--method", "own:Need", "no method in own 'Need'. Did you mean Needy?"),
    (*KNIFE, "--method", "own:Fall", "own has: Stepless, Needy"),
    (*KNIFE, "--method", "own:Stepless", "Stepless does not define"),
    (*KNIFE, "--method", "own:Needy", "cannot be made without arguments"),
    (*KNIFE, "--method", "raises:X", "ZeroDivisionError: division by zero (raises.py, line 2)"),
    *(("run", x, "no system") for x in ("", "é", "Knife Edge", "own")),
    *(("run", x, "is not the name of a module") for x in (":", ":X", "..:X", "./own:Fall")),
    *(("run", x, "cannot import") for x in ("nope:X", "a b:X", "\0:X", "/tmp:X", "own.txt:X")),
    ("run", "own.py:Fall", "leave out .py"),
    ("run", "own:Fal", "no system in own 'Fal'. Did you mean Fall? Choose one of: Fall, Refuses, Broken"),
    *(("run", f"own:{x}", "Choose one of: Fall, Refuses, Broken") for x in ("", "fall.x", "nothing", "é")),
    *(("run", f"own:{x}", "own has: Fall, Refuses, Broken") for x in ("number", "Stepless", "da")),
    (
        "run",
        "raises:X",
        "'raises' cannot be imported, it raises ZeroDivisionError: division by zero (raises.py, line 2)",
    ),
    ("run", "wordless:X", "it raises RuntimeError (wordless.py, line 1)"),
    ("run", "syntax:X", "SyntaxError: invalid syntax (syntax.py, line 1)"),
    ("run", "exits:X", "it raises SystemExit: 3 (exits.py, line 3)"),
    ("run", "needs:X", "cannot import 'needs' (No module named 'nothing_of_this_name')"),
    ("run", "own:Refuses", "your own code raises RuntimeError: of its own accord (own.py, line 18)"),
    (
        "run",
        "own:Broken",
        "your own code raises NameError: name 'nothing_of_this_name' is not defined (own.py",
    ),
    *((*KNIFE, "--out", x, "--out takes a file") for x in ("", "x.csv", ".nc")),
    *((*KNIFE, "--plot", x, "--plot takes a file") for x in ("", "x.txt")),
    *((*KNIFE, "--animate", x, "--animate takes a file") for x in ("", "x.txt")),
    *((*KNIFE, "--plot", x, "--plot:") for x in ("folder.png", "none/x.png")),
    *((*KNIFE, "--out", x, "--out:") for x in ("folder.nc", "none/x.nc")),
    *((*AUDIT, "--steps", x, "--steps takes a whole number") for x in ("nan", "1e400")),
    *((*AUDIT, "--steps", x, "an audit needs") for x in ("0", "-5")),
    *((*AUDIT, "--h", x, "h must be") for x in ("nan", "0", "1e400")),
    *((*AUDIT, "--json", x, "--json") for x in ("", "folder.json", "none/x.json")),
    ("audit", "--system", "KnifeEdge", "requires an argument"),
    *(
        (*EXPLORE, "--port", x, "a port is a whole number from 1 to 65535")
        for x in ("99999", "-1", "65536", "1e9")
    ),
    *((*EXPLORE, "--port", x, "--port takes a whole number") for x in ("1.5", "nan", "inf")),
    (*EXPLORE, "--port", "http", "Invalid value for --port"),
    *((*EXPLORE, "--steps", x, "steps must be between 1 and 1,000,000") for x in ("0", "-1", "1e9")),
    *((*EXPLORE, "--h", x, "h must be") for x in ("nan", "0", "-1", "inf")),
    *((*EXPLORE, "--start", x, "no start state") for x in ("", "é")),
    (*EXPLORE, "--param", "eps=nan", "NaN or infinite"),
    (*EXPLORE, *(("--method", "frame") * 4), "up to 4 methods"),
    *(("sweep", x, "--out", "s.zarr", "no spec at") for x in ("", "nope.toml", "folder.nc")),
    ("sweep", "bad.toml", "--out", "s.zarr", "bad.toml: Invalid value"),
    ("sweep", "bad.toml", "--out", "s.zarr", "--workers", "1.5", "--workers takes a whole number"),
    ("sweep", "give a spec and a store"),
    *(
        ("sweep", "--status", x, "not the store of a sweep")
        for x in ("", "nope.zarr", "own.txt", "folder.nc")
    ),
    *(("bench", "--only", x, "--only takes names of") for x in ("", "x", ",", "c,x")),
    *(("bench", "--only", "c", "--json", x, "--json") for x in ("", "folder.json", "none/x")),
    ("bench", "--only", "gpu", "--merge", "nope", "No such file or directory: nope"),
    ("bench", "--only", "gpu", "--merge", "folder.json", "Is a directory: folder.json"),
    ("bench", "--only", "gpu", "--merge", "own.txt", "'own.txt' is not a file that benchmarks/gpu.py wrote"),
    *(("reproduce", x, "no study") for x in ("", "x", "é")),
    ("reproduce", "fig4", "--quick", "--out", "", "--out takes the name of a folder"),
    ("reproduce", "fig4", "--quick", "--out", "own.txt", "own.txt"),
    *((x, "Unknown command") for x in ("nope", "--nope", "")),
    ("run", "requires an argument"),
    (*KNIFE, "more", "Unused Tokens"),
    (*KNIFE, "--nope", "1", "Unknown option: --nope"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[" ".join(x[:-1])[:60].strip() or "-" for x in MISTAKES])
def test_a_mistake_gets_a_sentence(mistake, folder):
    *arguments, words = mistake
    done = called(*arguments, cwd=folder)
    assert done.returncode in (1, 2), done.stdout
    told = " ".join(done.stderr.replace("│", " ").split())  # which may be set in a box
    assert words in told
    assert "Traceback" not in told
    assert done.stderr.count("error:") + done.stderr.count("─ Error ─") == 1


def test_a_port_in_use_gets_a_sentence(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = called(*EXPLORE, "--port", str(port), cwd=folder)
    assert done.returncode == 1
    assert f"cannot listen on port {port} of 127.0.0.1" in done.stderr


def test_what_is_right_is_accepted(folder):
    """Whole numbers may be written as floats, and names in other ways."""
    done = called(
        "run", "own:Fall", "--method", "leapfrog", "--steps", "1e2", "--save-every", "1e1", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "largest deviation in 11 rows" in done.stdout


def program(arguments, redirection="", **options):
    """The command as a program of its own, of which the shell redirects the outputs."""
    code = "from dalembert.cli import main; main()"
    command = f'"{sys.executable}" -c "{code}" {arguments} {redirection}'
    return subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, **options)


def test_a_closed_output_gets_a_sentence():
    done = program("list", ">&-")
    assert (done.returncode, done.stderr) == (
        1,
        "error: there is no standard output to write to (it was closed)\n",
    )
    assert program("list", ">&- 2>&-").returncode == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_gets_a_sentence():
    done = program("list", ">/dev/full")
    assert (done.returncode, done.stderr) == (1, "error: cannot write the output: No space left on device\n")


def test_a_reader_who_has_seen_enough_ends_it_quietly():
    """As head does, after a line; here it reads nothing."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = program("--help", stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
