"""Poincare sections: where a coordinate crosses a value."""

from typing import Any

import numpy as np

from dalembert.model import Trait, lower, wrong
from dalembert.simulate import Trajectory
from dalembert.sweeps.axes import is_number, is_whole
from dalembert.sweeps.complaint import Complaint

ENTRIES = ("coordinate", "at", "direction", "count")
DIRECTIONS = {"up": 1, "down": -1, "both": 0}


def section_of(complaint: Complaint, given: Any, known: Any) -> dict[str, Any] | None:
    """The section of a spec, checked: coordinate, at, direction, count."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise complaint("section", f'takes a table such as {{coordinate = "xi", count = 50}}, got {given!r}')
    found = {"at": 0.0, "direction": "up", "count": 100, **given}
    for key in found:
        if key not in ENTRIES:
            raise complaint(f"section.{key}", str(wrong("entry of a section", key, ENTRIES)))
    names = known.names("q0")
    name = found.get("coordinate")
    if name is None:
        raise complaint("section.coordinate", "is missing: which coordinate crosses the section?")
    if not isinstance(name, str) or (names is not None and name not in names):
        raise complaint("section.coordinate", str(wrong("coordinate", str(name), names or ())))
    if not is_number(found["at"]):
        raise complaint("section.at", f"must be one finite number, got {found['at']!r}")
    if not isinstance(found["direction"], str) or found["direction"] not in DIRECTIONS:
        raise complaint(
            "section.direction", f"must be one of {', '.join(DIRECTIONS)}, got {found['direction']!r}"
        )
    if not is_whole(found["count"]) or found["count"] < 1:
        raise complaint("section.count", f"must be a whole number of at least 1, got {found['count']!r}")
    return {**found, "at": float(found["at"]), "count": int(found["count"])}


def crossings(
    sol: Trajectory, coordinate: str, at: float, direction: str, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Times (N, count), configurations and velocities (N, count, n) at the first crossings of each member, NaN where
    there are fewer, and how many there are.

    Between two rows every coordinate is the cubic with their values and derivatives; an angle crosses at every turn.
    A row on the section is a crossing for the rows before it, none for those after: a start there does not count.
    """
    system = sol.system
    if system is None or Trait.GROUP in lower(system).traits or coordinate not in system.coordinates:
        raise ValueError(f"a section needs a coordinate of the system, got {coordinate!r}")
    if system.velocity_names != system.coordinates:
        raise ValueError(f"a section needs velocities of coordinates, which {system.label} has not")
    i = system.coordinates.index(coordinate)
    ahead = sol.q[..., i] - at
    if coordinate in system.angles:
        below, above = (whole(ahead / (2 * np.pi)) for whole in (np.floor, np.ceil))
        up, down = np.diff(below, axis=1) > 0, np.diff(above, axis=1) < 0
        aim = at + 2 * np.pi * np.where(up, below[:, :-1] + 1, above[:, :-1] - 1)
    else:
        up = (ahead[:, :-1] < 0) & (ahead[:, 1:] >= 0)
        down = (ahead[:, :-1] > 0) & (ahead[:, 1:] <= 0)
        aim = np.full(up.shape, at)
    sign = DIRECTIONS[direction]
    found = (up & (sign >= 0)) | (down & (sign <= 0))
    # Rows after a failure repeat the last good state: they cross nothing.
    number = np.cumsum(found, axis=1) - 1
    member, row = np.nonzero(found & (number < count))
    place = number[member, row]
    size, width = len(sol.q), sol.q.shape[-1]
    t, q, v = (np.full((size, count, *tail), np.nan) for tail in ((), (width,), (width,)))
    if len(member):
        times = np.broadcast_to(sol.t, sol.q.shape[:2])
        step = times[member, row + 1] - times[member, row]
        a, b, da, db = (x[member, r] for x in (sol.q, sol.v) for r in (row, row + 1))
        s = _where(a[:, i], b[:, i], da[:, i], db[:, i], step, aim[member, row])
        t[member, place] = times[member, row] + s * step
        q[member, place], v[member, place] = _cubic(a, b, da, db, step[:, None], s[:, None])
    return t, q, v, np.sum(found, axis=1)


def _cubic(a: Any, b: Any, da: Any, db: Any, step: Any, s: Any) -> tuple[Any, Any]:
    """The cubic with values a, b and derivatives da, db at the ends of a step, and its derivative, at the part s."""
    c = 3 * (b - a) - step * (2 * da + db)
    d = 2 * (a - b) + step * (da + db)
    return a + s * (step * da + s * (c + s * d)), da + (2 * s * c + 3 * s * s * d) / step


def _where(a: Any, b: Any, da: Any, db: Any, step: Any, aim: Any) -> Any:
    """The part of the step at which the cubic meets the aim, by bisection: it is between the ends."""
    low, high = np.zeros_like(step), np.ones_like(step)
    rises = b >= a
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = (_cubic(a, b, da, db, step, middle)[0] < aim) == rises
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
