"""A second process for the studies that spend most of their time compiling, so that two cores work."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TextIO

from dalembert.lab.studies.result import from_plain

# Linear algebra gets one thread, because its matrices are tiny, and no GPU, which belongs to the first process.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
# Prefer fast compilation to fast machine code, because there is little to run.
FLAGS = "--xla_backend_optimization_level=0"
SCRIPT = "import sys; from dalembert.lab.studies.run import work; work(*sys.argv[1:])"


class Ended(Exception):
    """The other process is gone or has failed; its work can be done here."""


class Helper:
    """Runs studies in another process; `futures` will hold their results."""

    def __init__(self, names: tuple[str, ...], quick: bool, folder: Path, say: Callable[[str], None]):
        self.futures: dict[str, Future] = {name: Future() for name in names}
        self._say = say
        # A session of its own, so that Ctrl-C reaches only the first process, which then ends this one.
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, "quick" if quick else "full", str(folder), *names],
            stdout=subprocess.PIPE,
            env=os.environ | ENVIRONMENT | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"},
            start_new_session=True,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, name, content = json.loads(line)
            if kind == "says":
                self._say(content)
            else:
                self.futures[name].set_result(from_plain(content))
        for future in self.futures.values():
            if not future.done():
                future.set_exception(Ended())

    def stop(self) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.wait()


def send(out: TextIO, kind: str, name: str, content: Any) -> None:
    """Writes one line for the first process: what kind of message it is, about which study, and its content."""
    print(json.dumps([kind, name, content]), file=out, flush=True)
