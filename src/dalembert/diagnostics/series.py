"""Does a quantity drift? Running means, slopes with standard errors, and a verdict."""

import math
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

BLOCKS = 20


class Verdict(Enum):
    """What a run did to a quantity that the exact motion keeps."""

    EXACT = "exact"
    """The quantity was kept to rounding over the whole run."""
    BOUNDED = "bounded"
    """The error does not grow."""
    DRIFT = "DRIFT"
    """The mean error is large, or grows with time."""
    SHORT = "too short"
    """The run is too short for a verdict."""

    def __str__(self) -> str:
        return self.value


RATES = ("slope", "error", "early_slope", "early_error")
"""The entries of a Drift that are per unit of time."""


class Drift(NamedTuple):
    """How far a quantity moved from its value at the start, and whether it keeps moving.

    `early` refers to the first tenth of the run. Slopes are those of the running mean, per unit of time. Their
    standard errors come from the residuals of twenty block means, so that slow oscillations are not mistaken for
    certainty.
    """

    verdict: Verdict
    largest: float
    """The largest error in the whole run."""
    early: float
    """The largest error in the first tenth."""
    slope: float
    error: float
    """The standard error of the slope."""
    early_slope: float
    early_error: float
    end: float
    """The running mean of the error at the end of the run."""


def running_mean(
    t: Any, x: Any, window: float
) -> tuple[Float[np.ndarray, " means"], Float[np.ndarray, " means"]]:
    """The times whose window lies inside the data, and the mean of x over the window around each.

    Times must be evenly spaced, or nearly so, because the window is a number of samples. Several series with the same
    times are rows of x.
    """
    t, x = np.asarray(t, float), np.asarray(x, float)
    if t.shape != x.shape[-1:]:
        raise ValueError(f"times and values must be two rows of the same length, got {t.shape} and {x.shape}")
    if not np.all(np.diff(t) > 0):
        raise ValueError("times must increase from one value to the next")
    if not window > 0:
        raise ValueError(f"the window must be positive, got {window!r}")
    # Half a sample counts as one, with a margin, so that the rounding of times does not change the count.
    count = max(1, math.floor(window * (len(t) - 1) / (t[-1] - t[0]) + 0.5 + 1e-9)) if len(t) > 1 else 2
    if count >= len(t):
        raise ValueError(
            f"the data are shorter than the window {window:g}; run longer, or take a shorter one"
        )
    sums = np.concatenate([np.zeros((*x.shape[:-1], 1)), np.cumsum(x, axis=-1)], axis=-1)
    low, high = (count - 1) // 2, count // 2  # the middle of a window of even length lies between two samples
    kept = len(t) - count + 1
    means = (sums[..., count:] - sums[..., :-count]) / count
    return 0.5 * (t[low : low + kept] + t[high : high + kept]), means


def slope(t: Any, x: Any) -> tuple[Any, Any]:
    """The slope of a straight line through the points, and its standard error from twenty block means.

    Several series with the same times are rows of x.
    """
    t, x = np.asarray(t, float), np.asarray(x, float)
    if t.ndim != 1 or t.shape != x.shape[-1:]:
        raise ValueError(f"times and values must be two rows of the same length, got {t.shape} and {x.shape}")
    if len(t) < 2 * BLOCKS:
        raise ValueError(f"a slope with its error needs {2 * BLOCKS} points or more, got {len(t)}")
    centred, around = t - t.mean(), x - x.mean(axis=-1, keepdims=True)
    rate = around @ centred / (centred @ centred)
    times = _block_means(centred)
    means = _block_means(around) - np.multiply.outer(rate, times)  # means of the residual
    spread = times - times.mean()
    error = np.sqrt(np.sum(means**2, axis=-1) / (BLOCKS - 2) / np.sum(spread**2))
    return (float(rate), float(error)) if x.ndim == 1 else (rate, error)


def _block_means(x: np.ndarray) -> np.ndarray:
    """The means of twenty parts, as equal as possible, of the last axis."""
    each, more = divmod(x.shape[-1], BLOCKS)
    counts = np.array([each + 1] * more + [each] * (BLOCKS - more))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.add.reduceat(x, starts, axis=-1) / counts


def drift(
    t: Any, x: Any, window: float, start: float | None = None, scale: float = 1.0, early: float | None = None
) -> Drift:
    """The verdict on the quantity x(t), whose exact value is `start` (by default x[0]).

    The verdict is exact if x is never further than 5e-9 of `scale` from the start. It is drift if the running mean
    of the error exceeds 0.1 of `scale` in the first tenth (or until t[0] + `early`), or becomes twice as large after
    the first tenth as it was in it. Otherwise it is bounded.
    """
    t, x = np.asarray(t, float), np.asarray(x, float)
    if t.ndim != 1 or t.shape != x.shape:
        raise ValueError(
            f"times and values must be two rows of the same length, got {t.shape} and {x.shape}; for several series, "
            "use judged_together"
        )
    if not len(x):
        raise ValueError("there are no values to judge")
    error = x - (x[0] if start is None else start)
    if not np.all(np.isfinite(error)):
        return Drift(Verdict.DRIFT, np.inf, np.inf, *[np.nan] * 5)
    with np.errstate(over="ignore", invalid="ignore"):  # from a run that explodes
        return _judge(t, error, window, scale, early)


def _judge(t: np.ndarray, error: np.ndarray, window: float, scale: float, early: float | None) -> Drift:
    code, *numbers = _verdicts(t, error, window, scale, early)
    return Drift(VERDICTS[int(code)], *map(float, numbers))


VERDICTS = tuple(Verdict)
TOGETHER = 128
"""The number of series handled at a time, which fit into a processor's cache."""


def _verdicts(
    t: np.ndarray, error: np.ndarray, window: float, scale: Any, early: float | None = None
) -> list:
    """The entries of a Drift, with the verdict as its index in VERDICTS; arrays if `error` has several rows."""
    until = t[0] + ((t[-1] - t[0]) / 10 if early is None else early)
    first = t <= until * (1 + 1e-12)
    long, short = running_mean(t, error, window), running_mean(t[first], error[..., first], window)
    largest, soon, late, begun = (_largest(x) for x in (error, error[..., first], long[1], short[1]))
    drifts = (begun > 0.1 * scale) | (late > 2 * begun)
    code = np.where(largest <= 5e-9 * scale, 0, np.where(drifts, 2, 1))
    return [code, largest, soon, *slope(*long), *slope(*short), long[1][..., -1]]


def _largest(x: np.ndarray) -> Any:
    """The largest absolute value along the last axis."""
    return np.maximum(np.max(x, axis=-1), -np.min(x, axis=-1))


def judged(t: Any, x: np.ndarray, window: float, scale: float, start: float | None = None) -> Drift:
    """The verdict of `drift`, or "too short" for a run that ended too soon for one."""
    try:
        return drift(t, x, window, start, scale)
    except ValueError:
        error = np.abs(x - (x[0] if start is None else start)) if len(x) else np.array([np.nan])
        worst = float(np.max(error))
        return Drift(Verdict.SHORT, worst, worst, *[np.nan] * 5)


def judged_together(t: Any, x: Any, window: Any, scale: Any) -> dict[str, np.ndarray]:
    """`judged` for many series, the rows of x (N, K).

    t is (K,) or (N, K); window and scale are one number or N numbers. The result has the entries of a Drift by name,
    each of shape (N,), with the verdict as its index in VERDICTS.
    """
    t, x = np.asarray(t, float), np.asarray(x, float)
    if x.ndim != 2 or t.shape not in (x.shape, x.shape[1:]) or not x.shape[1]:
        raise ValueError(
            "judged_together takes series as the rows of x (N, K) with K of at least 1, and t of shape (K,) or (N, "
            f"K); got {x.shape} and {t.shape}"
        )
    size = len(x)
    window, scale = (np.broadcast_to(np.asarray(y, float), size) for y in (window, scale))
    found = {name: np.full(size, np.nan) for name in Drift._fields}
    error = x - x[:, :1]
    finite = np.all(np.isfinite(error), axis=1)
    found["largest"][~finite] = found["early"][~finite] = np.inf
    found["verdict"][~finite] = VERDICTS.index(Verdict.DRIFT)
    if x.shape[1] == 1:
        found["verdict"][finite] = VERDICTS.index(Verdict.SHORT)
        found["largest"][finite] = found["early"][finite] = 0.0
        return found
    length = np.broadcast_to(t[..., -1] - t[..., 0], size)
    parts = (
        window / length
    )  # in units of the run, so that runs with steps of different size are handled together
    taken = np.atleast_2d(t - t[..., :1]) / length[: t.ndim == 1 or size, None]
    own = bool(np.max(np.abs(taken - taken[0]), initial=0.0) > 1e-9)
    groups: dict[Any, list[int]] = {}
    for i in np.flatnonzero(finite):
        groups.setdefault(i if own else round(parts[i], 9), []).append(int(i))
    few = (all[k : k + TOGETHER] for all in groups.values() for k in range(0, len(all), TOGETHER))
    for rows in few:
        i = rows[0]
        times = taken[i if own else 0]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                judged_rows = _verdicts(times, error[rows], float(parts[i]), scale[rows])
        except ValueError:  # too short
            worst = np.max(np.abs(error[rows]), axis=1)
            judged_rows = [VERDICTS.index(Verdict.SHORT), worst, worst]
        for name, values in zip(Drift._fields, judged_rows, strict=False):
            found[name][rows] = values / length[rows] if name in RATES else values
    return found
