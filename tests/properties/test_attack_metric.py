"""Random systems with mass matrices that depend on q, forces, affine constraints: what is wrong is said."""

import pytest
from properties.attack import check
from properties.families import of_kinds


@pytest.mark.parametrize(
    "family",
    of_kinds("metric of q", "positions", "nonlinear", "forces", "affine"),
    ids=lambda x: x.name.replace(" ", "-"),
)
def test_what_is_wrong_is_said(family):
    check(family)
