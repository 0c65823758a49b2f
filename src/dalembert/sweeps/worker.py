"""The setup of a worker on this machine."""

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Ignores Ctrl-C, which reaches every process of a terminal but is meant for the driver, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
