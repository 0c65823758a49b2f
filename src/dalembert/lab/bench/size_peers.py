"""Large systems against what users do instead: equations of motion by JAX or SymPy, and a Runge-Kutta method."""

import functools
import importlib.util
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert import zoo
from dalembert.lab.bench.tables import Settings, Table, child
from dalembert.methods import method_from_text
from dalembert.model import System
from dalembert.simulation import simulate

TRAILERS = (1, 5, 10, 20, 40)
TOLERANCE, TIGHT = 1e-8, 1e-13
"""The tolerances of the peers and of the reference, absolute and relative."""
LIMIT, QUICK_LIMIT = 200.0, 60.0
"""Seconds after which a measuring process is ended."""
PEERS = {
    "diffrax Tsit5": ("diffrax",), "diffrax Dopri8": ("diffrax",), "scipy DOP853": ("scipy",),
    "sympy Kane, scipy DOP853": ("sympy", "scipy"),
}  # fmt: skip
"""The peers, and the packages that they need."""
METHODS = ("frame", "frame@4", "frame@6", "frame@8", "frame:gauss=2", "frame:gauss=3", "frame:gauss=4")
FINEST = 320
"""Steps per unit of time at most."""
CHILD = """
import json, sys
import dalembert, diffrax, jax, numpy
from dalembert.lab.bench import size_peers
print(json.dumps(getattr(size_peers, sys.argv[1])(*json.loads(sys.argv[2]))))
"""
SPAN = 10
"""The units of time of the runs whose error and duration count; the first result is a run of one unit."""
Run = Callable[[int], np.ndarray]
"""run(time) -> (q, v) at that time."""
ENDLESS = "not within {:g} s"


def start(trailers: int) -> tuple[zoo.Car, np.ndarray, np.ndarray]:
    """A car whose trailers make a bend, and that begins to turn."""
    car = zoo.Car(trailers=trailers)
    q0 = jnp.asarray(car.start("bent")[0])
    return car, np.asarray(q0), np.asarray(car.frame(q0) @ np.array([1.0, 0.4]))


def index_reduced(system: System) -> Callable[[Any, Any, Any], jax.Array]:
    """The right side of y' = f(t, y, args), y = (q, v): M v' - A^T lam = dL/dq - (dp/dq) v and A v' = -A' v."""

    def lagrangian(q, v):
        return 0.5 * v @ system.metric(q) @ v - system.potential(q)

    def field(t: Any, y: Any, args: Any) -> jax.Array:
        q, v = jnp.split(y, 2)
        mass, rows = system.metric(q), system.constraints(q)
        transport = jax.jvp(lambda x: jax.grad(lagrangian, argnums=1)(x, v), (q,), (v,))[1]
        force = jax.grad(lagrangian)(q, v) - transport
        turning = jax.jvp(lambda x: system.constraints(x) @ v, (q,), (v,))[1]
        k = rows.shape[0]
        matrix = jnp.block([[mass, -rows.T], [rows, jnp.zeros((k, k))]])
        return jnp.concatenate([v, jnp.linalg.solve(matrix, jnp.concatenate([force, -turning]))[: len(q)]])

    return field


def by_diffrax(trailers: int, solver: str) -> Run:
    """Runs by diffrax; compiled in the first call."""
    import diffrax

    car, q0, v0 = start(trailers)
    term = diffrax.ODETerm(index_reduced(car))  # pyright: ignore[reportArgumentType]
    controller = diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE)

    @jax.jit
    def solve(time):
        return diffrax.diffeqsolve(
            term, getattr(diffrax, solver)(), 0.0, time, 0.01, y0, stepsize_controller=controller,
            max_steps=None,
        ).ys[-1]  # pyright: ignore # fmt: skip

    y0 = jnp.concatenate([q0, v0])
    return lambda time: np.asarray(solve(float(time)))


def by_scipy(trailers: int, tolerance: float = TOLERANCE) -> Run:
    """Runs by SciPy and a compiled right side."""
    from scipy.integrate import solve_ivp

    car, q0, v0 = start(trailers)
    compiled, y0 = jax.jit(index_reduced(car)), np.concatenate([q0, v0])

    def field(t: float, y: np.ndarray) -> np.ndarray:
        return np.asarray(compiled(t, y, None))

    return lambda time: solve_ivp(field, (0, time), y0, "DOP853", rtol=tolerance, atol=tolerance).y[:, -1]


def by_kane(trailers: int) -> Run:
    """Runs by Kane's equations of SymPy, made into a function of NumPy.

    The speeds are those of the tractor along and across itself, and the turning rates. Those across and those of the
    trailers depend on the others.
    """
    from scipy.integrate import solve_ivp
    from sympy import lambdify
    from sympy.physics.mechanics import (
        KanesMethod,
        Point,
        ReferenceFrame,
        RigidBody,
        dynamicsymbols,
        inertia,
    )

    car, q0, v0 = start(trailers)
    length, hitch, mass, turning = (float(x) for x in (car.length, car.hitch, car.mass, car.turning))
    count = trailers + 1
    q = dynamicsymbols(f"q:{count + 2}")
    u = dynamicsymbols(f"u:{count + 2}")
    ground, origin = ReferenceFrame("N"), Point("O")
    origin.set_vel(ground, 0)
    frames, bodies, rows = [], [], []
    for i in range(count):
        frame = ground.orientnew(f"F{i}", "Axis", [q[2 + i], ground.z])
        frame.set_ang_vel(ground, u[2 + i] * ground.z)
        if i == 0:
            middle = origin.locatenew("P0", q[0] * ground.x + q[1] * ground.y)
            middle.set_vel(ground, u[0] * frame.x + u[1] * frame.y)
        else:
            before = bodies[-1].masscenter
            joint = before.locatenew(f"H{i}", -hitch * frames[-1].x)
            joint.v2pt_theory(before, ground, frames[-1])
            middle = joint.locatenew(f"P{i}", -length * frame.x)
            middle.v2pt_theory(joint, ground, frame)
        frames.append(frame)
        central = inertia(frame, 0, 0, turning)
        bodies.append(RigidBody(f"B{i}", middle, frame, mass, (central, middle)))
        rows.append(middle.vel(ground).dot(frame.y))
    velocity = bodies[0].masscenter.pos_from(origin).dt(ground)
    moving = u[0] * frames[0].x + u[1] * frames[0].y
    kinematic = [(velocity - moving).dot(frames[0].x), (velocity - moving).dot(frames[0].y)]
    kinematic += [q[2 + i].diff() - u[2 + i] for i in range(count)]
    free, dependent = [u[0], u[2]], [u[1], *u[3:]]
    kane = KanesMethod(
        ground, q_ind=q, u_ind=free, kd_eqs=kinematic, u_dependent=dependent, velocity_constraints=rows
    )
    kane.kanes_equations(bodies, [])
    unknowns = [*kane.q, *kane.u]
    matrices = lambdify([unknowns], [kane.mass_matrix_full, kane.forcing_full], cse=True)
    order = [[*kane.u].index(x) for x in u]
    n = count + 2

    def field(t: float, y: np.ndarray) -> np.ndarray:
        matrix, force = matrices(y)
        return np.linalg.solve(matrix, force).ravel()

    c, s = np.cos(q0[2]), np.sin(q0[2])
    speeds = np.array([c * v0[0] + s * v0[1], c * v0[1] - s * v0[0], *v0[2:]])
    y0 = np.concatenate([q0, np.empty(n)])
    y0[n + np.array(order)] = speeds

    def run(time: int) -> np.ndarray:
        end = solve_ivp(field, (0, time), y0, "DOP853", rtol=TOLERANCE, atol=TOLERANCE).y[:, -1]
        now, w = end[:n], end[n:][order]
        ahead = np.array([np.cos(now[2]), np.sin(now[2])])
        place = w[0] * ahead + w[1] * np.array([-ahead[1], ahead[0]])
        return np.concatenate([now, place, w[2:]])

    return run


def by_us(trailers: int, spelling: str, steps: int) -> Run:
    """Runs by the library."""
    car, q0, v0 = start(trailers)
    method = method_from_text(spelling)

    def run(time: int) -> np.ndarray:
        sol = simulate(car, method, q0, v0, h=1 / steps, steps=time * steps, save_every=time * steps)
        return np.concatenate([sol.q[-1], sol.v[-1]])

    return run


def _timed(make: Callable[[], Run], repeats: int) -> dict[str, Any]:
    """The seconds to the first result, those of a later run per unit of time, and its end state."""
    began = time.perf_counter()
    run = make()
    run(1)
    first = time.perf_counter() - began
    end, times = run(SPAN), []
    for _ in range(repeats):
        began = time.perf_counter()
        run(SPAN)
        times.append((time.perf_counter() - began) / SPAN)
    return {"first": first, "unit": float(np.median(times)), "end": end.tolist()}


def peer(name: str, trailers: int, repeats: int) -> dict[str, Any]:
    """One peer, measured in this process."""
    if name.startswith("diffrax"):
        return _timed(lambda: by_diffrax(trailers, name.split()[1]), repeats)
    return _timed(lambda: (by_kane if name.startswith("sympy") else by_scipy)(trailers), repeats)


def mine(spelling: str, steps: int, trailers: int, repeats: int) -> dict[str, Any]:
    """Our run, measured in this process."""
    return _timed(lambda: by_us(trailers, spelling, steps), repeats)


def reference(trailers: int) -> list[float]:
    """The end state at a tight tolerance."""
    return by_scipy(trailers, TIGHT)(SPAN).tolist()


def tried(spelling: str, trailers: int, exact: list[float], error: float, repeats: int) -> list[list[Any]]:
    """Steps per unit of time, their error and their time: from few steps on, until the error is at most `error`."""
    steps, found = 2, []
    while steps <= FINEST and not (found and found[-1][1] <= error):
        run = by_us(trailers, spelling, steps)
        try:
            off = float(np.max(np.abs(run(SPAN) - np.asarray(exact))))
        except RuntimeError:  # a step so large that its equations have no solution nearby
            off = float("nan")
        if np.isfinite(off):
            found.append([steps, off, _timed(lambda run=run: run, repeats)["unit"]])
        steps = int(np.ceil(1.25 * steps))
    return found


def _theirs(
    name: str, trailers: int, exact: np.ndarray, ask: Callable[..., Any], repeats: int
) -> dict[str, Any]:
    """The row of one peer."""
    missing = [x for x in PEERS[name] if importlib.util.find_spec(x) is None]
    if missing:
        return {"ended": f"{missing[0]} is not installed"}
    try:
        found = ask("peer", json.dumps([name, trailers, repeats]))
    except subprocess.TimeoutExpired as error:
        return {"ended": ENDLESS.format(error.timeout)}
    except RuntimeError as error:
        return {"ended": f"failed: {str(error).strip().splitlines()[-1][:100]}"}
    off = float(np.max(np.abs(np.asarray(found.pop("end")) - exact)))
    return {**found, "error": off, "ended": "yes"}


def _one(n: int, trailers: int, settings: Settings) -> tuple[list[dict[str, Any]], str]:
    """The rows of one car, and a note on the reference."""
    limit, repeats = QUICK_LIMIT if settings.quick else LIMIT, settings.repeats
    ask: Callable[..., Any] = functools.partial(child, CHILD, seconds=limit)
    exact = np.asarray(ask("reference", json.dumps([trailers])))
    rows: list[dict[str, Any]] = []
    for name in PEERS:
        row = {"case": f"Car(trailers={trailers}), {name}", "n": n, "who": name}
        rows.append(row | _theirs(name, trailers, exact, ask, repeats))
    done = [r for r in rows if r.get("error") is not None]
    if not done:
        return rows, ""
    least = min(r["error"] for r in done)
    reached: list[tuple[str, list[Any]]] = []
    for spelling in METHODS[1:2] if settings.quick else METHODS:
        given = json.dumps([spelling, trailers, exact.tolist(), least, repeats])
        try:
            reached += [(spelling, x) for x in ask("tried", given)]
        except (subprocess.TimeoutExpired, RuntimeError):
            continue
    firsts: dict[str, dict[str, Any]] = {}
    for row in done:
        fitting = [x for x in reached if x[1][1] <= row["error"]]
        if not fitting:
            row["setting"] = f"none with {FINEST} steps or fewer within {limit:g} s"
            continue
        spelling, (steps, row["our_error"], row["our_unit"]) = min(fitting, key=lambda x: x[1][2])
        row["setting"], row["lead"] = f"{spelling}, h = 1/{steps}", row["unit"] / row["our_unit"]
        if spelling not in firsts:
            firsts[spelling] = _our_first(ask, spelling, steps, trailers)
        row |= firsts[spelling]
        if row.get("our_first"):
            row["first_lead"] = row["first"] / row["our_first"]
    if not reached:
        return rows, f"n = {n}: ours did not finish within {limit:g} s."
    return (
        rows,
        f"n = {n}: our most accurate run differs from the reference by {min(x[1][1] for x in reached):.1e}.",
    )


def _our_first(ask: Callable[..., Any], spelling: str, steps: int, trailers: int) -> dict[str, Any]:
    """The seconds to our first result, with nothing kept on disk and then with what that process left there."""
    with tempfile.TemporaryDirectory() as folder:
        given = json.dumps([spelling, steps, trailers, 1])
        try:
            found = [ask("mine", given, DALEMBERT_CACHE=folder)["first"] for _ in range(2)]
        except (subprocess.TimeoutExpired, RuntimeError):
            return {}
    return {"our_first": found[0], "our_second": found[1]}


def against_others(settings: Settings) -> tuple[list[Table], list[str]]:
    """Ours and theirs on cars of several lengths, at errors no larger than the least of theirs."""
    columns = [("case", "case", ""), ("n", "n", "d"), ("error", "error", ".1e")]
    columns += [("first", "first result, s", ".2f"), ("unit", "s per unit of time", ".1e")]
    columns += [
        ("setting", "ours", ""),
        ("our_error", "error", ".1e"),
        ("our_first", "first result, s", ".2f"),
    ]
    columns += [("our_second", "second process, s", ".2f"), ("our_unit", "s per unit of time", ".1e")]
    columns += [("first_lead", "first: theirs / ours", ".2f"), ("lead", "per unit: theirs / ours", ".2f")]
    columns += [("ended", "theirs finished", "")]
    table, notes = Table("Against what users do instead: a car that turns", columns), []
    for trailers in TRAILERS[:1] if settings.quick else TRAILERS:
        n = trailers + 3
        try:
            rows, note = _one(n, trailers, settings)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            notes.append(f"n = {n}: no reference ({str(error).strip().splitlines()[-1][:100]}).")
            continue
        table.rows += rows
        notes += [note] if note else []
    notes.append(
        f"diffrax and SciPy are given the index-reduced equations M v' - A^T lam = f, A v' = -A' v, with derivatives "
        f"by JAX, in one jit, and tolerances of {TOLERANCE:g}. SymPy derives Kane's equations, of which lambdify with "
        f"common subexpressions makes a function of NumPy. Against each of them stands, among {', '.join(METHODS)} and "
        f"step sizes tried in turn, the quickest of ours whose error is no larger. The error is that of the state at "
        f"t = {SPAN}, against SciPy's DOP853 with a tolerance of {TIGHT:g}; the run to t = {SPAN} is also the one that "
        "is timed per unit of time. The first result is a run of one unit of time in a fresh process, after the "
        "imports."
    )
    return [table], notes
