"""The choice between the two forms of machine code: scalars in registers, or arrays in memory."""

import os
from collections.abc import Callable
from typing import Any

from dalembert.kernels.array_loop import ArrayLoop
from dalembert.kernels.kept import kept_loop
from dalembert.kernels.native import TRACING, Loop, TimeLoop
from dalembert.kernels.traced import Functions, Made, Traced
from dalembert.kernels.waiting import making

SCALARS = 95_000
"""Functions of more scalar operations than this, counted before equal ones are made once, are written with arrays.

It is where compiling scalars begins to take longer than most users will wait, five seconds or so; the same code with
arrays takes about two. Its steps take two to three times as long there, and less than that for larger systems.
"""

FORMS = ("scalars", "arrays")
VARIABLE = "DALEMBERT_KERNELS"
"""The environment variable that decides instead, if it is set."""


def wanted_form() -> str:
    """The form that the environment asks for, or nothing."""
    form = os.environ.get(VARIABLE, "")
    if form not in ("", *FORMS):
        raise ValueError(
            f"the environment variable {VARIABLE} must be one of {', '.join(FORMS)}, got {form!r}"
        )
    return form


def with_arrays(*parts: Traced) -> bool:
    """Whether functions, which belong together, are to be written with arrays."""
    if any(part.has("taylor_series") for part in parts):
        return False  # a loop over orders, whose operations are scalars
    form = wanted_form()
    return form == "arrays" if form else sum(part.operations for part in parts) > SCALARS


@making(TRACING)
def _traced(made: Made) -> TimeLoop:
    functions = Functions(made)
    # The start of a run counts twice: it takes as long to compile as a step does, but is run only once.
    arrays = with_arrays(functions.begin, *functions.parts)
    return ArrayLoop(functions) if arrays else Loop(functions)


def time_loop(
    begin: Callable,
    step: Callable,
    output: Callable,
    report: Callable,
    counted: Callable,
    parameters: Any,
    start: Any,
    name: str | None = None,
) -> TimeLoop:
    """The time loop of these functions (see `Made`), in the form that fits its size.

    With `name`, which must tell these functions from all others in any process, machine code that an earlier process
    made is used without tracing the functions.
    """
    made = Made(begin, step, output, report, counted, parameters, start)
    if name is None:
        return _traced(made)
    return kept_loop(f"{name} {wanted_form()} {SCALARS}", made, lambda: _traced(made))
