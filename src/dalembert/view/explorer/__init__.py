"""The explorer: a local page for choosing, running, comparing and watching systems."""

import contextlib
import io
import time
from collections.abc import Mapping, Sequence
from typing import Any


class Explorer:
    """A running explorer: `url` is the address to open in a browser on this machine, `close()` ends it."""

    def __init__(self, server: Any, page: Any, url: str):
        self.server, self.page, self.url = server, page, url

    def close(self) -> None:
        """Ends the page and its server."""
        self.page.stop()
        self.server.stop()

    def wait(self) -> None:
        """Waits until the user presses Ctrl-C, then closes the explorer and returns."""
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            self.close()


def start_explorer(
    kinds: Mapping[str, Any],
    system: str,
    methods: Sequence[str] = (),
    port: int | None = None,
    **given: Any,
) -> Explorer:
    """Starts the page on 127.0.0.1 with these systems: classes or ready-made systems, by name."""
    try:
        import plotly  # noqa: F401

        from dalembert.view.explorer.guard import guarded_server
    except ImportError as error:
        raise ValueError(
            f"the explorer needs viser and plotly ({error}); install them with pip install 'dalembert[explore]'"
        )
    from dalembert.view.explorer.page import Page
    from dalembert.view.explorer.request import SLOTS, checked, first_request

    if len(methods) > SLOTS:
        raise ValueError(f"the explorer shows up to {SLOTS} methods side by side, got {len(methods)}")
    request = checked(first_request(system, kinds, methods, exact=True, **given), kinds)
    with contextlib.redirect_stdout(io.StringIO()):  # hides viser's banner; the caller says where the page is
        server, url = guarded_server(port)
    try:
        return Explorer(server, Page(server, kinds, request), url)
    except BaseException:
        server.stop()
        raise
