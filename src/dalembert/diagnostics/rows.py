"""A function at every row of a trajectory, compiled once for many lengths."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from dalembert.numerics import compiled


@cache
def _mapped(function: Callable) -> Callable:
    return compiled(lambda shared, *rows: jax.vmap(lambda *row: function(shared, *row))(*rows))


def over_rows(function: Callable) -> Callable:
    """The function of (system, *row) at every row; rows are filled up to a power of two, so that new lengths
    seldom compile anew."""

    def call(shared: Any, *rows: Any) -> Any:
        count = len(rows[0])
        if not count:
            raise ValueError("there are no rows to work on")
        wide = 1 << (count - 1).bit_length()
        filled = [np.concatenate([x, np.broadcast_to(x[-1:], (wide - count, *x.shape[1:]))]) for x in map(np.asarray, rows)]
        return jax.tree.map(lambda x: np.asarray(x)[:count], _mapped(function)(shared, *filled))

    return call
