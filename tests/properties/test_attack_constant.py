"""Random systems with constant mass matrices, angles, and units that differ widely: what is wrong is said."""

import pytest
from properties.attack import LONG, MEMBERS, SEED, Members, check, compare
from properties.families import EVERY, FAMILIES, of_kinds


@pytest.mark.parametrize(
    "family",
    of_kinds("constant metric", "angles", "scales"),
    ids=lambda x: x.name.replace(" ", "-"),
)
def test_what_is_wrong_is_said(family):
    check(family)


def bare(method):
    """The method without its options, but composed or not."""
    return method.partition(":")[0].partition("@")[0]


def test_every_method_meets_every_kind_that_it_takes():
    assert MEMBERS * sum(1 for family in FAMILIES if family.takes) >= 300
    for kind in {family.kind for family in FAMILIES}:
        families = of_kinds(kind)
        takes = {bare(method) for family in families for method in family.takes if method in EVERY}
        missing = takes - {bare(method) for family in families for method in family.methods}
        # What these compile takes ten seconds each; they meet the kinds of which these are variants.
        if kind in ("angles", "scales", "charts", "reduced"):
            missing -= set(LONG)
        assert not missing, f"{kind}: no family is run by {', '.join(sorted(missing))}"


def test_the_attack_sees_a_wrong_term():
    members = Members(FAMILIES[0], 2, SEED)
    assert compare(members, 0, "leapfrog") is None
    members.parameters[1]["stiff"] = members.parameters[1]["stiff"] * 1.001
    assert "order 2 is claimed" in compare(members, 1, "leapfrog")
