"""Running means, slopes with standard errors, and verdicts, against brute force and by hand."""

import numpy as np
import pytest
from equations import coupled as second

from dalembert.diagnostics.series import (
    BLOCKS,
    VERDICTS,
    Verdict,
    drift,
    judged,
    judged_together,
    running_mean,
    slope,
)


def noise(count, seed=0):
    return np.random.default_rng(seed).normal(size=count)


@pytest.mark.parametrize(
    ("spacing", "window", "count"), [(0.1, 0.3, 3), (0.1, 0.5, 5), (2.0, 30, 15), (0.5, 0.6, 1)]
)
def test_running_mean_by_brute_force(spacing, window, count):
    """An odd number of samples: the mean of those around each time whose window is inside."""
    t, x = spacing * np.arange(60), noise(60)
    times, means = running_mean(t, x, window)
    half = count // 2
    assert len(times) == 60 - count + 1
    for time, mean in zip(times, means, strict=True):
        i = round(time / spacing)
        assert time == t[i]
        assert mean == pytest.approx(np.mean(x[i - half : i + half + 1]), abs=1e-14)


def test_running_mean_of_an_even_number():
    """The middle of the window lies between two samples; all of them lie inside the data."""
    t, x = np.arange(20.0), noise(20)
    times, means = running_mean(t, x, 4)
    assert times == pytest.approx(np.arange(1.5, 18))
    assert means == pytest.approx([np.mean(x[i - 2 : i + 2]) for i in range(2, 19)], abs=1e-14)


def test_running_mean_of_uneven_times():
    """Samples are counted by their mean spacing."""
    t = np.cumsum(1 + 0.01 * noise(50))
    x = noise(50, 1)
    times, means = running_mean(t, x, 5)
    assert np.array_equal(times, t[2:-2])
    assert means == pytest.approx(np.convolve(x, np.full(5, 0.2), "valid"), abs=1e-14)


def test_second_road():
    """The windows written by hand are closed intervals of time; here they hold the same samples."""
    t, x = 0.1 * np.arange(4000), np.cumsum(noise(4000))
    for window in (0.2, 3.0):  # closed: one sample more than window / spacing
        times, means = second.running_mean(t, x, window)
        ours = running_mean(t, x, window + 0.1)
        assert times == pytest.approx(ours[0])
        # Ours are differences of sums that reach 2e5, known to 1e-10 or so.
        assert means == pytest.approx(ours[1], abs=1e-10)
        rate, error = slope(*ours)
        assert (rate, error) == pytest.approx(second.drift(t, x, window), rel=1e-9)


def test_slope_of_a_line():
    """Exact for a line, whatever the times."""
    t = np.cumsum(np.random.default_rng(3).uniform(0.5, 1.5, 500))
    rate, error = slope(t, 3.0 - 0.25 * t)
    assert rate == pytest.approx(-0.25, rel=1e-13)
    assert error < 1e-13


def test_slope_by_brute_force():
    t, x = np.arange(403.0), noise(403)
    rate, error = slope(t, x)
    fit = np.polyfit(t, x, 1)
    assert rate == pytest.approx(fit[0], rel=1e-9)
    parts = np.array_split(np.arange(403), BLOCKS)
    means = [np.mean(x[p] - np.polyval(fit, t[p])) for p in parts]
    middles = np.array([np.mean(t[p]) for p in parts])
    wanted = np.sqrt(np.sum(np.square(means)) / (BLOCKS - 2) / np.sum((middles - middles.mean()) ** 2))
    assert error == pytest.approx(wanted, rel=1e-9)


def test_standard_errors_are_honest():
    """Lines with noise, also with slow noise: the slope is within its error as often as it should be."""
    t = np.arange(2000.0)
    for smooth in (1, 25):
        away = []
        for seed in range(200):
            x = 0.01 * t + np.convolve(noise(2000 + smooth - 1, seed), np.full(smooth, 1.0), "valid")
            rate, error = slope(t, x)
            away.append((rate - 0.01) / error)
        # Student's distribution with 18 degrees: a spread of 1.06; 200 draws know it to five per cent.
        assert 0.85 < np.std(away) < 1.3
        assert abs(np.mean(away)) < 0.3


def test_verdicts():
    t = np.linspace(0, 1000, 5001)
    wave = np.sin(0.7 * t)
    assert drift(t, 1 + 4.9e-9 * wave, 30).verdict is Verdict.EXACT
    assert drift(t, 1 + 6e-9 * wave, 30).verdict is Verdict.BOUNDED
    assert drift(t, 5 + 0.3 * wave, 30).verdict is Verdict.BOUNDED  # its mean is small
    assert drift(t, 1e-6 * t, 30).verdict is Verdict.DRIFT  # small, but it grows
    assert drift(t, 5 + 0.11 * np.minimum(t, 1), 30).verdict is Verdict.DRIFT  # over 0.1 in the mean at once
    assert drift(t, 5 + 0.09 * np.minimum(t, 1), 30).verdict is Verdict.BOUNDED
    assert [str(v) for v in (Verdict.EXACT, Verdict.BOUNDED, Verdict.DRIFT)] == ["exact", "bounded", "DRIFT"]


def test_growth_is_of_the_mean():
    """Twice the mean of the first part, and no less, makes a drift."""
    t = np.linspace(0, 1000, 10_001)
    for factor, verdict in ((1.95, Verdict.BOUNDED), (2.05, Verdict.DRIFT)):
        x = np.where(t <= 120, 0.01, 0.01 * factor)
        assert drift(t, x, 10, start=0.0).verdict is verdict


def test_where_the_first_part_ends():
    """A tenth of the run by default, else until t[0] + early; the scale of the quantity counts."""
    t = 50 + np.linspace(0, 1000, 10_001)
    x = np.where(t < 250, 0.0, 0.2) + 0.01 * np.sin(t)
    usual, longer = drift(t, x, 10), drift(t, x, 10, early=300)
    assert usual.early < 0.02 < usual.largest
    assert longer.early > 0.2
    assert usual.verdict is longer.verdict is Verdict.DRIFT
    assert drift(t, x, 10, early=300, scale=10).verdict is Verdict.BOUNDED
    assert drift(t, x, 10, scale=1e9).verdict is Verdict.EXACT
    # Five quantities of the two parts: the same as of the parts alone.
    first = t <= 150
    error = x - x[0]
    assert usual.early == np.max(np.abs(error[first]))
    assert (usual.early_slope, usual.early_error) == pytest.approx(
        slope(*running_mean(t[first], error[first], 10))
    )
    assert (usual.slope, usual.error) == pytest.approx(slope(*running_mean(t, error, 10)))
    assert usual.end == pytest.approx(running_mean(t, error, 10)[1][-1])


def test_start():
    """The exact value may be another than the first one."""
    t = np.arange(1000.0)
    x = 2 + 0.01 * np.cos(t)
    assert drift(t, x, 30).largest == pytest.approx(0.02, rel=1e-4)
    assert drift(t, x, 30, start=2.0).largest == pytest.approx(0.01, rel=1e-4)
    assert drift(t, x, 30, start=1.0).verdict is Verdict.DRIFT


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_drifts(bad):
    t = np.arange(1000.0)
    x = np.zeros(1000)
    x[700] = bad
    found = drift(t, x, 30)
    assert found.verdict is Verdict.DRIFT
    assert found.largest == np.inf
    assert np.isnan(found.slope)


def test_explosions_are_drifts_without_warnings(recwarn):
    t = np.arange(1000.0)
    assert drift(t, np.exp(np.minimum(0.7 * t, 600)), 30).verdict is Verdict.DRIFT
    assert not len(recwarn)


@pytest.mark.parametrize("same", [True, False], ids=["one time", "own times"])
def test_many_series_at_once_are_judged_as_one_by_one(same):
    """Kinds: rounding, a bounded error, a drift, one that is not finite; with steps of one size, or of many."""
    draw = np.random.default_rng(5)
    h = np.full(40, 0.1) if same else draw.uniform(0.05, 0.2, 40)
    t = 3.0 + np.multiply.outer(h, np.append(np.arange(700), 699.5))
    grows = np.where(np.arange(40) % 4 == 2, 1e-3, 0.0)[:, None]
    size = np.where(np.arange(40) % 4 == 0, 1e-12, 1e-2)[:, None]
    x = 2.0 + size * draw.normal(size=t.shape) + grows * t
    x[7, 300] = np.nan
    window = (t[:, -1] - t[:, 0]) / 80
    found = judged_together(t[0] if same else t, x, window, np.ones(40))
    for i in range(40):
        one = judged(t[i], x[i], window[i], 1.0)
        assert VERDICTS[int(found["verdict"][i])] is one.verdict
        for name in one._fields[1:]:
            # the same sums in another order: rounding of numbers of size one, and of slopes of that over the run
            np.testing.assert_allclose(found[name][i], getattr(one, name), rtol=1e-9, atol=1e-14)
    assert {VERDICTS[int(k)] for k in found["verdict"]} == {Verdict.EXACT, Verdict.BOUNDED, Verdict.DRIFT}
    short = judged_together(t[:, :50], x[:, :50], window, np.ones(40))
    assert {VERDICTS[int(k)] for k in short["verdict"]} == {Verdict.SHORT}


def test_bad_input():
    t, x = np.arange(100.0), np.zeros(100)
    with pytest.raises(ValueError, match="same length"):
        running_mean(t, x[:-1], 3)
    with pytest.raises(ValueError, match="same length"):
        running_mean(t[None], x[None], 3)
    for window in (0, -1.0, np.nan):
        with pytest.raises(ValueError, match="must be positive"):
            running_mean(t, x, window)
    with pytest.raises(ValueError, match="shorter than the window"):
        running_mean(t, x, 100)
    with pytest.raises(ValueError, match="shorter than the window"):
        running_mean(t[:1], x[:1], 1)
    with pytest.raises(ValueError, match="40 points or more, got 39"):
        slope(t[:39], x[:39])
    with pytest.raises(ValueError, match="no values"):
        drift([], [], 3)
    with pytest.raises(ValueError, match="shorter than the window"):
        drift(t, x, 30)  # the first tenth is
