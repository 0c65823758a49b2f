"""A function at every row of a trajectory, compiled once for every length."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from dalembert.numerics.compiled import hurried

# Rows go through compiled code in blocks of this length, the last one filled up.
_BLOCK = 1024


@cache
def _mapped(function: Callable) -> Callable:
    return hurried(lambda shared, *rows: jax.vmap(lambda *row: function(shared, *row))(*rows))


def over_rows(function: Callable) -> Callable:
    """The function of (shared, *row) at every row."""

    def call(shared: Any, *rows: Any) -> Any:
        rows = tuple(np.asarray(x, float) for x in rows)
        count = len(rows[0])
        if not count:
            raise ValueError("there are no rows to work on")
        parts = []
        for a in range(0, count, _BLOCK):
            here = [x[a : a + _BLOCK] for x in rows]
            missing = _BLOCK - len(here[0])
            if missing:
                here = [np.concatenate([x, np.broadcast_to(x[-1:], (missing, *x.shape[1:]))]) for x in here]
            made = _mapped(function)(shared, *here)
            parts.append(jax.tree.map(lambda x, kept=_BLOCK - missing: np.asarray(x)[:kept], made))
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)

    return call
