"""The explorer: a local page on which to choose, run, compare and watch."""

import contextlib
import io
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

HOST = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


class Explorer:
    """A running explorer: `url` says where, `close()` ends it."""

    def __init__(self, server: Any, page: Any):
        self.server, self.page = server, page

    @property
    def url(self) -> str:
        """The address to open in a browser on this machine."""
        return f"http://{HOST}:{self.server.get_port()}"

    def close(self) -> None:
        """Ends the page and its server."""
        self.page.stop()
        self.server.stop()

    def wait(self) -> None:
        """Returns when the user presses Ctrl-C; the explorer is closed then."""
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            self.close()


def explorer(
    kinds: Mapping[str, Any],
    system: str,
    methods: Sequence[str] = (),
    port: int | None = None,
    **given: Any,
) -> Explorer:
    """Starts the page on 127.0.0.1 with these systems (classes, or systems already made, by name)."""
    try:
        import plotly  # noqa: F401
        import viser
    except ImportError as error:
        raise ValueError(
            f"the explorer needs viser and plotly ({error}); install them with pip install 'dalembert[explore]'"
        )
    from dalembert.view.explorer.page import Page
    from dalembert.view.explorer.request import SLOTS, first_request

    if len(methods) > SLOTS:
        raise ValueError(f"the explorer shows up to {SLOTS} methods side by side, got {len(methods)}")
    request = first_request(system, kinds, methods, exact=True, **given)
    with contextlib.redirect_stdout(io.StringIO()):  # its banner; the caller says where the page is
        made = viser.ViserServer(
            host=HOST, port=free_port() if port is None else port, label="dalembert", verbose=False
        )
    return Explorer(made, Page(made, kinds, request))
