"""Specs changed at random never end in a traceback; `mutations` runs with many more of them."""

from properties.mutations import ACCEPTED, BASES, REFUSED, count_outcomes, outcome, written


def test_mutated_specs():
    counts, bad = count_outcomes(60, 2)
    assert bad == []
    assert counts[REFUSED] >= 20, counts
    assert counts[ACCEPTED] >= 2, counts


def test_the_specs_themselves_are_accepted():
    assert [outcome(written(spec)) for spec in BASES[:1]] == [(ACCEPTED, "")]
