"""How accurately numbers are worked with: in double precision, or with more digits where somebody asks for them."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax.numpy as jnp
import numpy as np

_digits: ContextVar[int | None] = ContextVar("_digits", default=None)
_makers: dict[bytes, Callable[[Any], np.ndarray]] = {}


@contextlib.contextmanager
def tracing_with(digits: int) -> Iterator[None]:
    """What is traced inside this context iterates until it has so many digits; what runs it must have them, too."""
    token = _digits.set(digits)
    try:
        yield
    finally:
        _digits.reset(token)


def has_more_digits() -> bool:
    """Whether code that is being traced will run with more digits than those of its type."""
    return _digits.get() is not None


def unit_rounding(dtype: Any) -> float:
    """The relative rounding error of the numbers that an iteration works with: 2.2e-16 in double precision."""
    digits = _digits.get()
    return float(jnp.finfo(dtype).eps) if digits is None else 10.0**-digits


def known_exactly(values: np.ndarray, make: Callable[[Any], Any]) -> np.ndarray:
    """The same numbers, of which more digits are known: `make(mp)` computes them with a context of mpmath.

    They are recognised by their bits, so that coefficients of rules, which JAX takes as constants, need no second way
    through the code.
    """
    _makers[np.ascontiguousarray(values, float).tobytes()] = make
    return values


def exact_numbers(values: np.ndarray, mp: Any) -> np.ndarray | None:
    """All digits of an array that `known_exactly` was told about, flat; None for other numbers."""
    if values.dtype != float or values.size == 0 or not _makers:
        return None
    make = _makers.get(np.ascontiguousarray(values).tobytes())
    return None if make is None else np.asarray(make(mp), object).reshape(-1)
