"""Damage on disk is noticed: bits turned over at random; `bitflips` runs with many more of them."""

import pytest
from properties.bitflips import flip_sweep, flip_trajectory


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_bits_of_a_trajectory(suffix):
    counts = flip_trajectory(60, 1, suffix)
    assert counts["silent"] == counts["traceback"] == 0, counts
    assert counts["refused"] >= 50, counts  # the rest are bits that say nothing


def test_bits_of_a_sweep():
    counts = flip_sweep(60, 2)
    assert counts["silent"] == counts["traceback"] == 0, counts
    assert counts["refused"] >= 10, counts
    assert counts["recomputed"] >= 10, counts
