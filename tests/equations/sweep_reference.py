"""Every number of a sweep by a second road: one plain run a trajectory, then formulas in NumPy and SciPy.

A spec is the dictionary that the user wrote, its system given as a class. Only the random samples are taken from the
store: what is asked of them is that they do not depend on how the work was cut.
"""

import inspect
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import brentq

import dalembert as da
from dalembert.diagnostics import drift, running_mean, slope

# Members agree with single runs to rounding, 1e-16 a step. These motions are not chaotic: over the 1380 steps of the
# longest of them that grows to at most about 1e-16 * 1380^2 = 2e-10.
ROUNDING = 1e-9
VERDICTS = ["exact", "bounded", "DRIFT", "too_short", "ended_early"]


def flat(table):
    """The table with v0.xi = ... where v0 is a table of its own."""
    found = {}
    for key, given in table.items():
        found |= {f"{key}.{inner}": x for inner, x in given.items()} if key in ("q0", "v0") else {key: given}
    return found


def values(given):
    """The values of one quantity."""
    if not isinstance(given, dict):
        return list(given)
    if "values" in given:
        return list(given["values"])
    part = np.linspace(0, 1, given["count"])
    if given.get("spacing") == "log":
        return list(given["from"] * (given["to"] / given["from"]) ** part)
    return list(given["from"] + (given["to"] - given["from"]) * part)


def design(spec, data):
    """The shape of the grid, and what is chosen for each trajectory, the last dimension running fastest."""
    axes = [[{key: x} for x in values(given)] for key, given in flat(spec.get("grid", {})).items()]
    columns = {key: values(given) for key, given in flat(spec.get("list", {})).items()}
    if columns:
        axes.append([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
    drawn = flat(spec.get("random", {}))
    if drawn:
        keys = [key for key in drawn if key != "count"]
        axes.append([{key: float(data[key][i]) for key in keys} for i in range(drawn["count"])])
    chosen = [{key: x for part in parts for key, x in part.items()} for parts in itertools.product(*axes)]
    return tuple(map(len, axes)), chosen


def start_of(spec, system, chosen):
    """Start state of one trajectory."""
    given = chosen.get("start", spec.get("start"))
    q0, v0 = (given["q"], given["v"]) if isinstance(given, dict) else system.start(given)
    q0, v0 = np.array(chosen.get("q0", q0), float), np.array(chosen.get("v0", v0), float)
    for key, x in chosen.items():
        of, _, name = key.partition(".")
        if of == "q0" and name:
            q0[system.coordinates.index(name)] = x
        elif of == "v0" and name:
            v0[system.velocity_names.index(name)] = x
    if spec.get("project"):
        # The nearest in the kinetic metric: v - M^-1 A^T (A M^-1 A^T)^-1 A v.
        a, mass = (np.asarray(f(jnp.asarray(q0))) for f in (system.constraints, system.metric))
        lift = np.linalg.solve(mass, a.T)
        v0 = v0 - lift @ np.linalg.solve(a @ lift, a @ v0)
    return q0, v0


def run(spec, chosen):
    """One trajectory by a plain run."""
    if "members" in spec:
        taken = inspect.signature(spec["members"]).parameters
        made = spec["members"](**{key: np.array([chosen[key]]) for key in taken})
        chosen = {key: x for key, x in chosen.items() if key not in taken}
        chosen |= {key: x[0] for key, x in made.items()}
    kind = spec["system"]
    known = inspect.signature(kind).parameters
    system = kind(**spec.get("parameters", {}), **{key: x for key, x in chosen.items() if key in known})
    method = da.methods.method_named(chosen.get("method", spec.get("method")))
    h = float(chosen.get("h", spec.get("h", kind.step)))
    if "time" in spec:
        # Rows an odd number of steps apart; here that many steps make up the time.
        every = round(spec["time"] / (h * spec["rows"]))
        assert every % 2
        assert math.isclose(every * h * spec["rows"], spec["time"])
        steps = spec["rows"] * every
    else:
        steps, every = spec["steps"], spec.get("save_every", 1)  # of fewer than 1000 steps all are kept
    q0, v0 = start_of(spec, system, chosen)
    return da.simulate(
        system, method, q0, v0, h=h, steps=steps, save_every=every, t0=spec.get("t0", 0.0), throw=False
    )


def parts_of_energy(system, q, v):
    """Kinetic and potential energy at every row."""
    if system.group is not None:
        return 0.5 * np.einsum("ki,ij,kj->k", v, np.asarray(system.inertia()), v), np.zeros(len(v))
    mass, potential = (np.asarray(jax.vmap(f)(jnp.asarray(q))) for f in (system.metric, system.potential))
    return 0.5 * np.einsum("ki,kij,kj->k", v, mass, v), potential


def judged(spec, sol, name, x, size):
    """Start, largest error, slope of the running mean and verdict of a series."""
    found = {name: x[0], f"{name}_error": np.max(np.abs(x - x[0]))}
    window = spec.get("window", (sol.t[-1] - sol.t[0]) / 100)
    line, error, word = np.nan, np.nan, "too_short"
    if int(sol.code):
        word = "ended_early"
    else:
        try:
            word = drift(sol.t, x, window, scale=size).verdict.value
            when, mean = running_mean(sol.t, x - x[0], window)
            line, error = np.polyfit(when - when[0], mean, 1)[0], slope(when, mean)[1]
        except ValueError:
            pass  # a run without enough rows for a verdict
    return found | {
        f"{name}_slope": line,
        f"{name}_slope_error": error,
        f"{name}_verdict": VERDICTS.index(word),
    }


def crossings(sol, coordinate, at=0.0, direction="up", count=100):
    """The section: of every piece between two rows the cubic, and where it meets a level, by Brent's method."""
    i = sol.system.coordinates.index(coordinate)
    times = []
    for k in range(len(sol.t) - 1):
        a, b = sol.q[k, i], sol.q[k + 1, i]
        low, high = min(a, b), max(a, b)
        turns = range(math.floor((low - at) / 6) - 1, math.ceil((high - at) / 6) + 2)
        levels = [at + 2 * math.pi * n for n in turns] if coordinate in sol.system.angles else [at]
        piece = CubicHermiteSpline(sol.t[k : k + 2], sol.q[k : k + 2, i], sol.v[k : k + 2, i])
        for level in levels if a < b else levels[::-1]:
            up, down = a < level <= b, b < level <= a
            if (up and direction != "down") or (down and direction != "up"):
                times.append(brentq(lambda t, f=piece, x=level: f(t) - x, *sol.t[k : k + 2], xtol=1e-14))
    path = CubicHermiteSpline(sol.t, sol.q, sol.v)
    n = sol.q.shape[1]
    found = {
        "section_t": np.full(count, np.nan),
        "section_q": np.full((count, n), np.nan),
        "section_v": np.full((count, n), np.nan),
        "section_count": len(times),
    }
    for j, t in enumerate(times[:count]):
        found["section_t"][j], found["section_q"][j] = t, path(t)
        found["section_v"][j] = path.derivative()(t)
    return found


def numbers(spec, sol):
    """What is kept of one trajectory."""
    found = {"status": int(sol.code), "steps_done": int(sol.steps)}
    rows = jnp.asarray(sol.q)
    for name in spec["reduce"]:
        if name == "final":
            found |= {"q": sol.q[-1], "v": sol.v[-1], "t": sol.t[-1]}
        elif name in ("energy", "own_energy"):
            kinetic, potential = parts_of_energy(sol.system, sol.q, sol.v if name == "energy" else sol.v_full)
            size = np.max(kinetic) + np.max(np.abs(potential - potential[0]))
            found |= judged(spec, sol, name, kinetic + potential, size)
        elif name == "constraint":
            forms = np.asarray(jax.vmap(sol.system.constraints)(rows))
            for label, v in (("", sol.v), ("own_", sol.v_full)):
                found[f"{label}constraint_error"] = np.max(np.abs(np.einsum("kai,ki->ka", forms, v)))
        elif name == "integrals":
            each = []
            for function in sol.system.integrals().values():
                x = np.array([function(q, v) for q, v in zip(sol.q, sol.v, strict=True)])
                each.append(judged(spec, sol, "integral", x, np.max(np.abs(x))))
            found |= {key: np.array([one[key] for one in each]) for key in each[0] if key != "integral"}
        elif name == "section":
            found |= crossings(sol, **spec["section"])
    return found


def reference(spec, data):
    """Every variable of the result, in the shape of the grid."""
    shape, chosen = design(spec, data)
    each = [numbers(spec, run(spec, one)) for one in chosen]
    return {key: np.reshape([one[key] for one in each], (*shape, *np.shape(each[0][key]))) for key in each[0]}


def compare(data, expected):
    """Every variable that is expected: the same, numbers to rounding."""
    for key, x in expected.items():
        found = data[key].values
        assert found.shape == x.shape, key
        if x.dtype.kind == "i":
            np.testing.assert_array_equal(found, x, key)
        else:
            np.testing.assert_allclose(found, x, rtol=ROUNDING, atol=ROUNDING, err_msg=key)


def same(one, other):
    """Bit for bit the same."""
    assert set(one.variables) == set(other.variables)
    for key in one.variables:
        found, expected = one[key].values, other[key].values
        if found.dtype.kind in "fiu":
            found, expected = found.view(np.uint8), expected.view(np.uint8)
        assert np.array_equal(found, expected), key
