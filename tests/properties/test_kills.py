"""A sweep that is killed twice at random moments; `kills` runs with many more of them."""

from properties.kills import kill_sweeps


def test_killed_twice():
    counts = kill_sweeps(2, 4)
    assert counts == {"kills": 2, "lost": 0, "wrong": 0, "hangs": 0}
