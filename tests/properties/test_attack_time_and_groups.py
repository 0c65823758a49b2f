"""Random systems that depend on time, on Lie groups, in charts, reduced, and others: what is wrong is said."""

import pytest
from properties.attack import check
from properties.families import of_kinds


@pytest.mark.parametrize(
    "family",
    of_kinds("time", "general Lagrangian", "groups", "charts", "reduced"),
    ids=lambda x: x.name.replace(" ", "-"),
)
def test_what_is_wrong_is_said(family):
    check(family)
