"""The reductions: each takes a block of trajectories and returns the few numbers per member that are kept."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from dalembert.diagnostics import Latitude, judged_together
from dalembert.diagnostics.series import VERDICTS, judged
from dalembert.model import System, Trait, lower
from dalembert.numerics import Numbers
from dalembert.simulation import Status, Trajectory
from dalembert.sweeps.spec import named

DIRECTIONS = {"up": 1, "down": -1, "both": 0}


def crossings(
    sol: Trajectory, coordinate: str, at: float, direction: str, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The first `count` crossings of each member, and the number of all its crossings.

    Times are (N, count), configurations and velocities (N, count, n); entries are NaN where there are fewer crossings.
    Between two rows, every coordinate is the cubic with the values and derivatives of the rows. An angle crosses at
    every turn. A row on the section counts as a crossing from the row before it, but not to the row after it, so a
    start on the section does not count.
    """
    system = sol.system
    if system is None or Trait.GROUP in lower(system).traits or coordinate not in system.coordinates:
        raise ValueError(f"a section needs a coordinate of the system, got {coordinate!r}")
    if system.velocity_names != system.coordinates:
        raise ValueError(f"a section needs one velocity per coordinate, which {system.label} does not have")
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
    # Rows after a failure repeat the last good state, so they cross nothing.
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
    """The cubic with values a, b and derivatives da, db at the ends of a step, and its derivative, at fraction s."""
    c = 3 * (b - a) - step * (2 * da + db)
    d = 2 * (a - b) + step * (da + db)
    return a + s * (step * da + s * (c + s * d)), da + (2 * s * c + 3 * s * s * d) / step


def _where(a: Any, b: Any, da: Any, db: Any, step: Any, aim: Any) -> Any:
    """The fraction of the step at which the cubic reaches the aim, which lies between the ends, by bisection."""
    low, high = np.zeros_like(step), np.ones_like(step)
    rises = b >= a
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = (_cubic(a, b, da, db, step, middle)[0] < aim) == rises
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


WORDS = (*(str(each) for each in VERDICTS), "ended early")
"""The verdicts in a store, by number; the last one is for a run that failed."""


class Kept(NamedTuple):
    """One variable of the result: (N, ...) values, the names of the further dimensions, and its attributes."""

    values: Numbers
    dims: tuple[str, ...] = ()
    attrs: dict[str, Any] = {}  # noqa: RUF012
    labels: dict[str, list[str]] = {}  # noqa: RUF012
    """The labels along the further dimensions."""


def flags(words: tuple[str, ...], about: str) -> dict[str, Any]:
    """The attributes of a variable whose numbers stand for words, according to the CF conventions."""
    meanings = " ".join(word.replace(" ", "_") for word in words)
    return {"long_name": about, "flag_values": list(range(len(words))), "flag_meanings": meanings}


def status(sol: Trajectory) -> dict[str, Kept]:
    """How each run ended and how many steps succeeded. Every store has these variables."""
    words = tuple(each.name.lower() for each in Status)
    return {
        "status": Kept(sol.code.astype(np.int8), attrs=flags(words, "how the run ended")),
        "steps_done": Kept(sol.steps.astype(np.int64), attrs={"long_name": "steps that succeeded"}),
    }


def final(sol: Trajectory, spec: Any) -> dict[str, Kept]:
    """The last good state of each member, and its time."""
    system = sol.system
    assert system is not None
    names, moving = list(system.coordinates), list(system.velocity_names)
    across = "coordinate" if moving == names else "velocity"
    t = np.broadcast_to(sol.t, sol.q.shape[:2])
    end = t[:, -1] if sol.method is not None and sol.method.variable_step else t[:, 0] + sol.steps * sol.h
    return {
        "q": Kept(sol.q[:, -1], ("coordinate",), {"long_name": "last configuration"}, {"coordinate": names}),
        "v": Kept(sol.v[:, -1], (across,), {"long_name": "last velocity"}, {across: moving}),
        "t": Kept(np.asarray(end, float), attrs={"long_name": "time of the last good state"}),
    }


def _potential(system: System, q: Any, v: Any) -> Any:
    return system.potential(q)


def energy(sol: Trajectory, spec: Any) -> dict[str, Kept]:
    """The largest error, the drift and the verdict of the energy at the allowed velocity."""
    return _energy(sol, spec, False)


def own_energy(sol: Trajectory, spec: Any) -> dict[str, Kept]:
    """The largest error, the drift and the verdict of the energy at the own velocity of a method on TQ."""
    return _energy(sol, spec, True)


def _energy(sol: Trajectory, spec: Any, full: bool) -> dict[str, Kept]:
    values = np.asarray(sol.energy(full=full))
    potential = np.asarray(sol._measured("potential", _potential, sol.v))
    with np.errstate(all="ignore"):  # from a run that explodes
        kinetic = values - potential
        scale = np.max(kinetic, axis=1) + np.max(np.abs(potential - potential[:, :1]), axis=1)
    name, words = ("own_energy", "the method's own energy") if full else ("energy", "the energy")
    start = {name: Kept(values[:, 0], attrs={"long_name": f"{words} at the start"})}
    return start | kept_of(sol, spec, name, words, values, scale)


def kept_of(sol: Trajectory, spec: Any, name: str, words: str, values: Any, scale: Any) -> dict[str, Kept]:
    """The largest error, the slope and the verdict of a quantity (N, K) that the exact motion keeps."""
    times = np.asarray(sol.t)
    window = spec["window"] or (times[..., -1] - times[..., 0]) / 100
    found = judged_together(times, values, window, scale)
    failed = np.asarray(sol.code) != Status.OK.code
    verdict = np.where(failed, len(VERDICTS), found["verdict"]).astype(np.int8)
    slopes = {part: np.where(failed, np.nan, found[part]) for part in ("slope", "error")}
    return {
        f"{name}_error": Kept(found["largest"], attrs={"long_name": f"largest error of {words}"}),
        f"{name}_slope": Kept(
            slopes["slope"],
            attrs={"long_name": f"slope of the running mean of the error of {words}, per unit of time"},
        ),
        f"{name}_slope_error": Kept(slopes["error"], attrs={"long_name": "standard error of the slope"}),
        f"{name}_verdict": Kept(verdict, attrs=flags(WORDS, f"what became of {words}")),
    }


@cache
def _integral(name: str) -> Callable:
    """The system's integral of this name, as a function that also takes the system."""
    return lambda m, q, v: m.system.integrals()[name](q, v)


def integrals(sol: Trajectory, spec: Any) -> dict[str, Kept]:
    """The largest error, the drift and the verdict of every integral that the system names."""
    assert sol.system is not None
    names = list(sol.member(0).system.integrals())  # pyright: ignore[reportOptionalMemberAccess]
    if not names:
        raise ValueError(f"{sol.system.label} names no integrals; leave integrals out of reduce")
    parts = []
    for name in names:
        values = np.asarray(sol._measured(name, _integral(name), sol.v))
        scale = np.max(np.abs(values), axis=1)
        parts.append(kept_of(sol, spec, "integral", "an integral", values, scale))
    along = (("integral",), {"integral": names})
    return {
        key: Kept(np.stack([part[key].values for part in parts], -1), along[0], first.attrs, along[1])
        for key, first in parts[0].items()
    }


def constraint(sol: Trajectory, spec: Any) -> dict[str, Kept]:
    """The largest residual of the constraint, at the allowed velocity and at the method's own velocity."""
    from dalembert.simulation.trajectory import residual_at

    return {
        "constraint_error": Kept(
            np.max(sol.constraint_residual(), axis=1), attrs={"long_name": "largest entry of A(q) v"}
        ),
        "own_constraint_error": Kept(
            np.max(np.asarray(sol._measured("own", residual_at, sol.v_full)), axis=1),
            attrs={"long_name": "largest entry of A(q) v at the method's own velocity"},
        ),
    }


def latitude(sol: Trajectory, spec: Any) -> dict[str, Kept]:
    """The hidden integral of coupled systems: its value at the start, largest error, drift and verdict.

    This takes a few hundredths of a second per trajectory, since each has its own period map.
    """
    rows = [_latitude(sol.member(i), spec["window"]) for i in range(len(sol.q))]
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    failed = np.asarray(sol.code) != Status.OK.code
    said = {
        "latitude": "the latitude at the start",
        "latitude_error": "largest error of the latitude",
        "latitude_slope": "slope of the running mean of the error of the latitude, per unit of time",
    }
    kept = {name: Kept(table[name], attrs={"long_name": text}) for name, text in said.items()}
    verdict = np.where(failed, len(VERDICTS), table["verdict"]).astype(np.int8)
    return kept | {"latitude_verdict": Kept(verdict, attrs=flags(WORDS, "what became of the latitude"))}


def _latitude(run: Trajectory, window: float | None) -> dict[str, float]:
    assert run.system is not None
    found = Latitude.of(run.system, run.q[0], run.v[0], float(run.h))
    t, values = found.along(run)
    # The passenger (kappa x, v) has this length, so its latitude lies between plus and minus the length.
    length = float(np.sqrt(2 * found.coupled.passenger_energy(run.q[0], run.v[0])))
    drift = judged(t, values, window or float(run.t[-1] - run.t[0]) / 100, length, found.start)
    return {
        "latitude": found.start,
        "latitude_error": drift.largest,
        "latitude_slope": drift.slope,
        "verdict": VERDICTS.index(drift.verdict),
    }


def section(sol: Trajectory, spec: Any) -> dict[str, Kept]:
    """The Poincare section: the times and states at which a coordinate crosses a value."""
    assert sol.system is not None
    names = list(sol.system.coordinates)
    t, q, v, count = crossings(sol, **spec["section"])  # needs one velocity per coordinate
    said = "cubic interpolation between saved rows"
    return {
        "section_t": Kept(t, ("crossing",), {"long_name": "time of the crossing"}),
        "section_q": Kept(
            q,
            ("crossing", "coordinate"),
            {"long_name": f"configuration there, {said}"},
            {"coordinate": names},
        ),
        "section_v": Kept(
            v, ("crossing", "coordinate"), {"long_name": f"velocity there, {said}"}, {"coordinate": names}
        ),
        "section_count": Kept(count, attrs={"long_name": "crossings in the whole run, kept or not"}),
    }


REDUCTIONS: dict[str, Callable[[Trajectory, Any], dict[str, Kept]]] = {
    "final": final,
    "energy": energy,
    "own_energy": own_energy,
    "integrals": integrals,
    "constraint": constraint,
    "section": section,
    "latitude": latitude,
}


def users(name: str, function: Callable, sol: Trajectory) -> dict[str, Kept]:
    """The result of the user's own reduction: (N, ...) numbers, or a dictionary of such arrays by name."""
    found = function(sol)
    table = found if isinstance(found, Mapping) else {name: found}
    kept = {}
    for key, values in table.items():
        values = np.asarray(values)
        if not isinstance(key, str) or not key or "/" in key or key.startswith("."):
            raise ValueError(f"the reduction {name} names a result {key!r}; expected a text such as 'peak'")
        if values.ndim < 1 or len(values) != len(sol.q) or values.dtype.kind not in "fiub":
            raise ValueError(
                f"the reduction {name} must give {key!r} as real numbers with {len(sol.q)} members first, got "
                f"{values.dtype} of shape {values.shape}"
            )
        values = values.astype(float if values.dtype.kind == "f" else np.int64)
        kept[key] = Kept(
            values, tuple(f"{key}_{i}" for i in range(values.ndim - 1)), {"long_name": f"by {name}"}
        )
    return kept


def reduced(sol: Trajectory, spec: Any) -> dict[str, Kept]:
    """All variables that the spec asks for, by name."""
    kept = status(sol)
    for entry in spec["reduce"]:
        alias, _, name = entry.rpartition("=")
        if name in REDUCTIONS:
            more = REDUCTIONS[name](sol, spec)
        else:
            short = name.partition("#")[0].rpartition(":")[2].rpartition(".")[2]
            more = users(alias or short, spec.thing(name), sol)
        for key in more:
            if key in kept or key in map(named, spec.swept) or key in [axis.name for axis in spec.axes]:
                raise ValueError(
                    f"two things are named {key!r}, one of them a result of the reduction {name}"
                )
        kept |= more
    return kept
