"""A second process for the studies that spend their time in compiling, so that two cores work."""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, BinaryIO

from dalembert.studies.lab import Lab

# One thread for linear algebra: its matrices are tiny. No GPU: it belongs to the first process.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
# Machine code that is made quickly rather than runs quickly: there is little to run.
FLAGS = "--xla_backend_optimization_level=0"
SCRIPT = "import sys; from dalembert.studies.helper import work; work(sys.argv[2:], sys.argv[1] == 'quick')"


class Ended(Exception):
    """The other process is gone; its work can be done here."""


class Helper:
    """Measures studies in another process; `futures` holds their data when they come."""

    def __init__(self, names: tuple[str, ...], quick: bool, say: Callable[[str], None]):
        self.futures: dict[str, Future] = {name: Future() for name in names}
        self._say = say
        # A session of its own, so that Ctrl-C reaches the first process alone, which ends this one.
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, "quick" if quick else "full", *names],
            stdout=subprocess.PIPE,
            env=os.environ | ENVIRONMENT | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"},
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                kind, name, content = pickle.load(self._process.stdout)
                if kind == "says":
                    self._say(content)
                elif kind == "done":
                    self.futures[name].set_result(content)
                else:
                    self.futures[name].set_exception(content)
        except (EOFError, pickle.UnpicklingError, OSError):
            pass
        for name, future in self.futures.items():
            if not future.done():
                future.set_exception(
                    RuntimeError(f"the process that measured {name} ended before it was done")
                )

    def stop(self) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.wait()


def work(names: list[str], quick: bool) -> None:
    """What the other process does: measures each study and writes its data to standard output."""
    from dalembert.studies.run import STUDIES

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed by others goes elsewhere
    lab = Lab(quick, tuple(names), lambda text: _send(out, "says", "", text))
    for name in names:
        try:
            _send(out, "done", name, STUDIES[name].measure(lab))
        except Exception as error:
            _send(out, "failed", name, RuntimeError(f"{name}: {error}"))


def _send(out: BinaryIO, kind: str, name: str, content: Any) -> None:
    pickle.dump((kind, name, content), out)
    out.flush()
