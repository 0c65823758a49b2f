"""The command `dalembert explore`."""

import webbrowser

from rich.console import Console

from dalembert.cli.names import parameters_given
from dalembert.methods import method_named
from dalembert.results import explore, system_kind


def explore_and_wait(
    console: Console,
    system: str,
    methods: list[str],
    parameters: list[str],
    h: float | None,
    steps: int,
    start: str | None,
    port: int | None,
    browser: bool,
) -> None:
    """Starts the explorer, prints its address, and waits for Ctrl-C."""
    kind = system_kind(system)
    given = parameters_given(system, kind, parameters)
    for method in methods:
        method_named(method)
    running = explore(kind, methods, parameters=given, h=h, steps=steps, start=start, port=port, name=system)
    console.print(f"The explorer is at {running.url}", highlight=False, soft_wrap=True)
    console.print("Only this machine can reach it. Press Ctrl-C to stop it.")
    if browser:
        webbrowser.open(running.url)
    running.wait()
