"""What a worker on this machine does first."""

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Ctrl-C on a terminal reaches every process; it is for the driver, which then ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
