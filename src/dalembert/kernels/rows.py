"""A function evaluated at many rows: as machine code if kernels have its operations, else by XLA."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.kernels.choice import time_loop, wanted_form
from dalembert.kernels.graph import Unsupported
from dalembert.kernels.native import TimeLoop, pack
from dalembert.numerics import (
    Recent,
    current,
    is_installed,
    is_traced,
    jit_fast_compile,
    kind_of,
    lasting_name,
)

# The number of functions whose machine code is kept; each is kept per class of systems.
_known = Recent(256)
# XLA's code takes rows in blocks of this length; the last block is padded.
_BLOCK = 1024
# Machine code takes rows in blocks of a fraction of a second, so that Ctrl-C is prompt.
_CALL = 65536


def over_rows(function: Callable) -> Callable:
    """The function that evaluates function(shared, *row) at every row, and returns NumPy arrays."""

    def call(shared: Any, *rows: Any) -> Any:
        rows = tuple(np.asarray(x, float) for x in rows)
        if not len(rows[0]):
            raise ValueError("there are no rows to work on")
        made = None if is_traced(shared) else _kernel(function, shared, rows)
        return _by_xla(function, shared, rows) if made is None else _by_kernel(*made, pack(shared), rows)

    return call


def _kernel(
    function: Callable, shared: Any, rows: tuple[np.ndarray, ...]
) -> tuple[TimeLoop, Callable] | None:
    """The function as a loop of no steps, and its machine code; None if there is none."""
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    shared = jax.tree.map(np.asarray, current(shared))
    key = (function, kind_of(shared), tuple(x.shape[1:] for x in rows), wanted_form())
    found = _known.find(key)
    if found is None:
        try:
            loop = loop_of_no_steps(function, shared, [x.shape[1:] for x in rows])
            found = (loop, loop.many([False] * len(loop.parameters)))
        except Unsupported:
            found = ()
        found = _known.keep(key, found)
    return found or None


def loop_of_no_steps(function: Callable, shared: Any, shapes: Sequence[tuple[int, ...]]) -> TimeLoop:
    """A loop that only begins: its row is function(shared, *row), where `row` has arrays of these shapes."""
    struct = jax.ShapeDtypeStruct
    return time_loop(
        begin=lambda shared, row: (jnp.zeros((), jnp.int32), function(shared, *row)),
        step=lambda shared, carry: carry,
        output=lambda shared, carry: carry[1],
        report=lambda carry: (carry[0],),
        counted=lambda carry: (),
        parameters=jax.tree.map(lambda x: struct(x.shape, x.dtype), shared),
        start=tuple(struct(shape, float) for shape in shapes),
        name=_name(function, shared, shapes),
    )


def _name(function: Any, shared: Any, shapes: Sequence[tuple[int, ...]]) -> str | None:
    """What tells this loop from all others in any process, if there is such a name."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "<")
    if not is_installed(module) or "<" in name:  # the library's own functions have names, and do not change
        return None
    lasting = lasting_name(shared)
    return lasting and f"rows {module}.{name} {[*shapes]} {lasting}"


def _by_kernel(loop: TimeLoop, kernel: Callable, shared: np.ndarray, rows: tuple[np.ndarray, ...]) -> Any:
    size, lanes = len(rows[0]), loop.lanes
    wide = -(-size // lanes) * lanes
    entries = np.concatenate([x.reshape(size, -1) for x in rows], axis=1)
    starts = np.ascontiguousarray(np.pad(entries, ((0, wide - size), (0, 0)), mode="edge").T)
    made, own, report = np.empty((len(loop.distinct), wide)), np.zeros((1, wide)), np.empty((1, wide))
    pointers = [x.ctypes.data for x in (shared, own, starts)]
    for a in range(0, wide, _CALL):
        b = min(a + _CALL, wide)
        kernel(*pointers, wide, a, b, 0, 1, made.ctypes.data, report.ctypes.data)
    return loop.rows(made[loop.copies, :size].T)


@cache
def _mapped(function: Callable) -> Callable:
    return jit_fast_compile(lambda shared, *rows: jax.vmap(lambda *row: function(shared, *row))(*rows))


def _by_xla(function: Callable, shared: Any, rows: tuple[np.ndarray, ...]) -> Any:
    parts = []
    for a in range(0, len(rows[0]), _BLOCK):
        here = [x[a : a + _BLOCK] for x in rows]
        missing = _BLOCK - len(here[0])
        if missing:
            here = [np.concatenate([x, np.broadcast_to(x[-1:], (missing, *x.shape[1:]))]) for x in here]
        made = _mapped(function)(shared, *here)
        parts.append(jax.tree.map(lambda x, kept=_BLOCK - missing: np.asarray(x)[:kept], made))
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)
