"""Ctrl-C, sent to a program of its own."""

import signal
import subprocess
import sys
import textwrap
import time

HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""The beginning of a script that Ctrl-C interrupts: a background shell starts children deaf to it."""


def interrupted(script: str) -> tuple[str, str, float]:
    """Runs a script that prints "running", interrupts it then.

    Returns the last line it prints, what it warns of, and how long it took to end.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", HEARS + textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    sent = time.monotonic()
    out, err = child.communicate(timeout=60)
    took = time.monotonic() - sent
    assert child.returncode == 0, err
    return out.splitlines()[-1], err, took
