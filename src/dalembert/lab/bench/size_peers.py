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
METHODS = ("frame", "frame@4", "frame@6", "frame@8")
FINEST = 320
"""Steps per unit of time at most."""
CHILD = """
import json, sys
import dalembert, diffrax, jax, numpy
from dalembert.lab.bench import size_peers
print(json.dumps(getattr(size_peers, sys.argv[1])(*json.loads(sys.argv[2]))))
"""
ENDLESS = "not within {:g} s"


def start(trailers: int) -> tuple[zoo.Car, np.ndarray, np.ndarray]:
    """A car whose trailers make a bend, and that begins to turn."""
    car = zoo.Car(trailers=trailers)
    q0 = np.asarray(car.start("bent")[0])
    return car, q0, np.asarray(car.frame(jnp.asarray(q0)) @ np.array([1.0, 0.4]))


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


def by_diffrax(trailers: int, solver: str) -> Callable[[], np.ndarray]:
    """run() -> (q, v) after one unit of time, by diffrax; compiled in the first call."""
    import diffrax

    car, q0, v0 = start(trailers)
    term = diffrax.ODETerm(index_reduced(car))  # pyright: ignore[reportArgumentType]
    controller = diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE)

    @jax.jit
    def solve(y0):
        return diffrax.diffeqsolve(
            term, getattr(diffrax, solver)(), 0.0, 1.0, 0.01, y0, stepsize_controller=controller,
            max_steps=None,
        ).ys[-1]  # pyright: ignore # fmt: skip

    y0 = jnp.concatenate([q0, v0])
    return lambda: np.asarray(solve(y0))


def by_scipy(trailers: int, tolerance: float = TOLERANCE) -> Callable[[], np.ndarray]:
    """run() -> (q, v) after one unit of time, by SciPy and a compiled right side."""
    from scipy.integrate import solve_ivp

    car, q0, v0 = start(trailers)
    compiled, y0 = jax.jit(index_reduced(car)), np.concatenate([q0, v0])

    def field(t: float, y: np.ndarray) -> np.ndarray:
        return np.asarray(compiled(t, y, None))

    return lambda: solve_ivp(field, (0, 1), y0, "DOP853", rtol=tolerance, atol=tolerance).y[:, -1]


def by_kane(trailers: int) -> Callable[[], np.ndarray]:
    """run() -> (q, v) after one unit of time, by Kane's equations of SymPy, made into a function of NumPy.

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
    order = [list(kane.u).index(x) for x in u]
    n = count + 2

    def field(t: float, y: np.ndarray) -> np.ndarray:
        matrix, force = matrices(y)
        return np.linalg.solve(matrix, force).ravel()

    c, s = np.cos(q0[2]), np.sin(q0[2])
    speeds = np.array([c * v0[0] + s * v0[1], c * v0[1] - s * v0[0], *v0[2:]])
    y0 = np.concatenate([q0, np.empty(n)])
    y0[n + np.array(order)] = speeds

    def run() -> np.ndarray:
        end = solve_ivp(field, (0, 1), y0, "DOP853", rtol=TOLERANCE, atol=TOLERANCE).y[:, -1]
        now, w = end[:n], end[n:][order]
        ahead = np.array([np.cos(now[2]), np.sin(now[2])])
        place = w[0] * ahead + w[1] * np.array([-ahead[1], ahead[0]])
        return np.concatenate([now, place, w[2:]])

    return run


def by_us(trailers: int, spelling: str, steps: int) -> Callable[[], np.ndarray]:
    """run() -> (q, v) after one unit of time, by the library."""
    car, q0, v0 = start(trailers)
    method = method_from_text(spelling)

    def run() -> np.ndarray:
        sol = simulate(car, method, q0, v0, h=1 / steps, steps=steps, save_every=steps)
        return np.concatenate([sol.q[-1], sol.v[-1]])

    return run


def _timed(make: Callable[[], Callable[[], np.ndarray]], repeats: int) -> dict[str, Any]:
    """The seconds to the first result and of a later run, and the end state."""
    began = time.perf_counter()
    run = make()
    end = run()
    first, times = time.perf_counter() - began, []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
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
    return by_scipy(trailers, TIGHT)().tolist()


def reaching(
    spelling: str, trailers: int, exact: list[float], error: float, repeats: int
) -> list[Any] | None:
    """The fewest steps, with their error and time, whose error is at most `error`; None if none is found."""
    steps = 5
    while steps <= FINEST:
        run = by_us(trailers, spelling, steps)
        try:
            off = float(np.max(np.abs(run() - np.asarray(exact))))
        except RuntimeError:  # a step so large that its equations have no solution nearby
            off = float("inf")
        if off <= error:
            return [steps, off, _timed(lambda run=run: run, repeats)["unit"]]
        # At least one more step; otherwise as many as an order of eight suggests.
        factor = (off / error) ** (1 / 8) if np.isfinite(off) else 2.0
        steps = max(steps + 1, int(np.ceil(steps * min(factor, 2.0))))
    return None


def _one(n: int, trailers: int, settings: Settings) -> tuple[list[dict[str, Any]], str]:
    """The rows of one car, and a note on the reference."""
    limit = QUICK_LIMIT if settings.quick else LIMIT
    repeats = settings.repeats
    ask: Callable[..., Any] = functools.partial(child, CHILD, seconds=limit)
    exact = np.asarray(ask("reference", json.dumps([trailers])))
    rows = []
    for name, packages in PEERS.items():
        row: dict[str, Any] = {"case": f"Car(trailers={trailers}), {name}", "n": n, "who": name}
        rows.append(row)
        missing = [x for x in packages if importlib.util.find_spec(x) is None]
        if missing:
            row["ended"] = f"{missing[0]} is not installed"
            continue
        try:
            found = ask("peer", json.dumps([name, trailers, repeats]))
        except subprocess.TimeoutExpired:
            row["ended"] = ENDLESS.format(limit)
        except RuntimeError as error:
            row["ended"] = f"failed: {str(error).strip().splitlines()[-1][:100]}"
        else:
            off = float(np.max(np.abs(np.asarray(found.pop("end")) - exact)))
            row |= {**found, "error": off, "setting": f"tolerance {TOLERANCE:g}", "ended": "yes"}
    errors = [r["error"] for r in rows if r.get("error") is not None]
    row = {"case": f"Car(trailers={trailers}), ours", "n": n, "who": "ours"}
    if not errors:
        return [*rows, row | {"ended": "no peer to compare with"}], ""
    with tempfile.TemporaryDirectory() as folder:
        reached = {}
        for spelling in METHODS[1:2] if settings.quick else METHODS:
            given = json.dumps([spelling, trailers, exact.tolist(), min(errors), repeats])
            try:
                found = ask("reaching", given, DALEMBERT_CACHE=folder)
            except (subprocess.TimeoutExpired, RuntimeError):
                found = None
            if found is not None:
                reached[spelling] = found
    if not reached:
        return [*rows, row | {"ended": f"no error of {min(errors):.1e} with {FINEST} steps"}], ""
    spelling, (steps, error, _) = min(reached.items(), key=lambda x: x[1][2])
    row |= {"setting": f"{spelling}, h = 1/{steps}", "error": error}
    with tempfile.TemporaryDirectory() as folder:
        given = json.dumps([spelling, steps, trailers, repeats])
        try:
            found = ask("mine", given, DALEMBERT_CACHE=folder)
            again = ask("mine", given, DALEMBERT_CACHE=folder)
        except (subprocess.TimeoutExpired, RuntimeError):
            return [*rows, row | {"ended": ENDLESS.format(limit)}], ""
    row |= {"first": found["first"], "second": again["first"], "unit": found["unit"], "ended": "yes"}
    off = float(np.max(np.abs(np.asarray(found["end"]) - exact)))
    return [*rows, row], f"n = {n}: our end state differs from the reference of SciPy by {off:.1e}."


def against_others(settings: Settings) -> tuple[list[Table], list[str]]:
    """Ours and theirs on cars of several lengths, at errors no larger than the least of theirs."""
    columns = [("case", "case", ""), ("n", "n", "d"), ("setting", "setting", ""), ("error", "error", ".1e")]
    columns += [("first", "first result, s", ".2f"), ("second", "second process, s", ".2f")]
    columns += [("unit", "s per unit of time", ".1e"), ("lead", "theirs / ours", ".1f")]
    columns += [("ended", "finished", "")]
    table, notes = Table("Against what users do instead: a car that turns", columns), []
    for trailers in TRAILERS[:1] if settings.quick else TRAILERS:
        n = trailers + 3
        try:
            rows, note = _one(n, trailers, settings)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            notes.append(f"n = {n}: no reference ({str(error).strip().splitlines()[-1][:100]}).")
            continue
        ours = next(r for r in rows if r["who"] == "ours")
        for row in rows:
            if row is not ours and row.get("unit") and ours.get("unit"):
                row["lead"] = row["unit"] / ours["unit"]
                row["first_lead"] = row["first"] / ours["first"]
        table.rows += rows
        notes += [note] if note else []
    notes.append(
        f"diffrax and SciPy are given the index-reduced equations M v' - A^T lam = f, A v' = -A' v, with derivatives "
        f"by JAX, in one jit, and tolerances of {TOLERANCE:g}. SymPy derives Kane's equations, of which lambdify with "
        f"common subexpressions makes a function of NumPy. Ours is, among {', '.join(METHODS)}, the quickest with an "
        f"error of at most the least of theirs. The reference is SciPy's DOP853 with a tolerance of {TIGHT:g}. The "
        "first result is a run of one unit of time in a fresh process, after the imports."
    )
    return [table], notes
