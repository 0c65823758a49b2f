"""Does a quantity drift? Running means, slopes with standard errors, and a verdict."""

from enum import Enum
from typing import Any, NamedTuple

import numpy as np

BLOCKS = 20


class Verdict(Enum):
    """What became of a quantity that the exact motion keeps."""

    EXACT = "exact"
    """Kept to rounding over the whole run."""
    BOUNDED = "bounded"
    """An error that does not grow."""
    DRIFT = "DRIFT"
    """A large mean error, or one that grows with time."""
    SHORT = "too short"
    """The run ended before anything could be said."""

    def __str__(self) -> str:
        return self.value


class Drift(NamedTuple):
    """How far a quantity went from its value at the start, and whether it goes on.

    `early` is the first tenth of the run. Slopes are of the running mean, a unit of time; standard errors come
    from the residuals of twenty block means, so that slow oscillations do not pass for certainty.
    """

    verdict: Verdict
    largest: float
    """Largest error in the whole run."""
    early: float
    """Largest error in the first tenth."""
    slope: float
    error: float
    """Standard error of the slope."""
    early_slope: float
    early_error: float
    end: float
    """The running mean of the error at the end of the run."""


def running_mean(t: Any, x: Any, window: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean over a window of this length around each time whose window lies inside the data.

    Times are evenly spaced, or nearly so: the window is a number of samples.
    """
    t, x = np.asarray(t, float), np.asarray(x, float)
    if t.shape != x.shape or t.ndim != 1:
        raise ValueError(f"times and values must be two rows of the same length, got {t.shape} and {x.shape}")
    if not np.all(np.diff(t) > 0):
        raise ValueError("times must increase from one value to the next")
    if not window > 0:
        raise ValueError(f"the window must be positive, got {window!r}")
    count = max(1, round(window * (len(t) - 1) / (t[-1] - t[0]))) if len(t) > 1 else 2
    if count >= len(t):
        raise ValueError(
            f"the data are shorter than the window {window:g}; run longer, or take a shorter one"
        )
    sums = np.concatenate([[0.0], np.cumsum(x)])
    low, high = (count - 1) // 2, count // 2  # the middle of a window of even length lies between two samples
    kept = len(t) - count + 1
    return 0.5 * (t[low : low + kept] + t[high : high + kept]), (sums[count:] - sums[:-count]) / count


def slope(t: Any, x: Any) -> tuple[float, float]:
    """The slope of a straight line through the points, and its standard error from twenty block means."""
    t, x = np.asarray(t, float), np.asarray(x, float)
    if len(t) < 2 * BLOCKS:
        raise ValueError(f"a slope with its error needs {2 * BLOCKS} points or more, got {len(t)}")
    centred = t - t.mean()
    rate = float(centred @ (x - x.mean()) / (centred @ centred))
    residual = x - x.mean() - rate * centred
    times, means = (np.array([np.mean(b) for b in np.array_split(y, BLOCKS)]) for y in (centred, residual))
    spread = times - times.mean()
    return rate, float(np.sqrt(np.sum(means**2) / (BLOCKS - 2) / np.sum(spread**2)))


def drift(
    t: Any, x: Any, window: float, start: float | None = None, scale: float = 1.0, early: float | None = None
) -> Drift:
    """The verdict on the quantity x(t), whose exact value is `start` (by default x[0]).

    Exact: never further than 5e-9 of `scale` from the start. Drift: the running mean of the error exceeds 0.1 of
    `scale` in the first tenth (or until t[0] + `early`), or becomes twice as large after it as it was in it.
    Bounded: neither.
    """
    t, x = np.asarray(t, float), np.asarray(x, float)
    if not len(x):
        raise ValueError("there are no values to judge")
    error = x - (x[0] if start is None else start)
    if not np.all(np.isfinite(error)):
        return Drift(Verdict.DRIFT, np.inf, np.inf, *[np.nan] * 5)
    with np.errstate(over="ignore", invalid="ignore"):  # of a run that explodes
        return _judge(t, error, window, scale, early)


def _judge(t: np.ndarray, error: np.ndarray, window: float, scale: float, early: float | None) -> Drift:
    until = t[0] + ((t[-1] - t[0]) / 10 if early is None else early)
    first = t <= until * (1 + 1e-12)
    long, short = running_mean(t, error, window), running_mean(t[first], error[first], window)
    largest = float(np.max(np.abs(error)))
    means = [float(np.max(np.abs(mean))) for _, mean in (long, short)]
    if largest < 5e-9 * scale:
        verdict = Verdict.EXACT
    elif means[1] > 0.1 * scale or means[0] > 2 * means[1]:
        verdict = Verdict.DRIFT
    else:
        verdict = Verdict.BOUNDED
    lines = (*slope(*long), *slope(*short))
    return Drift(verdict, largest, float(np.max(np.abs(error[first]))), *lines, float(long[1][-1]))


def judged(t: Any, x: np.ndarray, window: float, scale: float, start: float | None = None) -> Drift:
    """The verdict, also for a run that ended too soon for one."""
    try:
        return drift(t, x, window, start, scale)
    except ValueError:
        error = np.abs(x - (x[0] if start is None else start)) if len(x) else np.array([np.nan])
        worst = float(np.max(error))
        return Drift(Verdict.SHORT, worst, worst, *[np.nan] * 5)
