"""The command line: as a program of its own, or called here, which spares its start."""

import contextlib
import io
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock


def program(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What the command does as a user runs it."""
    command = [sys.executable, "-m", "dalembert", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def called(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same from its entry point, in this process; a traceback would be an exception here."""
    from dalembert.cli.commands import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["dalembert", *arguments]),
        mock.patch.object(sys, "path", list(sys.path)),  # to which the command adds its folder
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings(
            "ignore", "Cyclopts application invoked without tokens"
        )  # that pytest is there
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    for name, module in list(sys.modules.items()):  # the user's own, of which other tests may have another
        if (getattr(module, "__file__", None) or "").startswith(str(cwd)):
            del sys.modules[name]
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
