"""Section naive: the same methods in plain JAX, as a first version would be written."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert import zoo
from dalembert.lab.bench.tables import RATIO, Section, Settings, Table, compared, interleaved
from dalembert.methods import DLA, LeapFrog, State
from dalembert.model import System, as_arrays
from dalembert.simulation import ensemble, simulate
from dalembert.simulation.engines import Native, Xla

NEWTON = 5
"""The fixed number of iterations of Newton's method."""


def leapfrog(system: System, q0: Array, v0: Array, h: Array, steps: int) -> tuple[Array, Array]:
    """The last (q, v) of the leap-frog, started with the constraint force at the start."""

    def acceleration(q):
        return -jnp.linalg.solve(system.metric(q), jax.grad(system.potential)(q))

    def projected(q, u):
        a, mass = system.constraints(q), system.metric(q)
        force = jnp.linalg.solve(a @ jnp.linalg.solve(mass, a.T), a @ u)
        return u - jnp.linalg.solve(mass, a.T @ force)

    def reaction(q, v):
        a, mass = system.constraints(q), system.metric(q)
        turning = jax.jvp(system.constraints, (q,), (v,))[1] @ v
        force = jnp.linalg.solve(a @ jnp.linalg.solve(mass, a.T), -turning - a @ acceleration(q))
        return jnp.linalg.solve(mass, a.T @ force)

    def step(state, _):
        q, u, _ = state
        half = u + h / 2 * acceleration(q)
        q = q + h * half
        full = half + h / 2 * acceleration(q)
        v = projected(q, full)
        return (q, 2 * v - full, v), None

    (q, _, v), _ = lax.scan(step, (q0, v0 + h / 2 * reaction(q0, v0), v0), length=steps)
    return q, v


def dla_half(system: System, q0: Array, v0: Array, h: Array, steps: int) -> tuple[Array, Array]:
    """The last (q, v) of DLA(1/2): Newton's method on velocity and multiplier together."""

    def step(state, _):
        q, v = state
        middle, n = q + h / 2 * v, q.size

        def equations(unknown):
            new, force = unknown[:n], unknown[n:]
            end = middle + h / 2 * new
            slope = jax.grad(system.potential)(q) + jax.grad(system.potential)(end)
            momentum = system.metric(q) @ (new - v) + h / 2 * slope - h * system.constraints(middle).T @ force
            return jnp.concatenate([momentum, system.constraints(end) @ new])

        def newton(unknown, _):
            return unknown - jnp.linalg.solve(jax.jacfwd(equations)(unknown), equations(unknown)), None

        start = jnp.concatenate([v, jnp.zeros(system.constraints(q).shape[0])])
        unknown, _ = lax.scan(newton, start, length=NEWTON)
        return (middle + h / 2 * unknown[:n], unknown[:n]), None

    return lax.scan(step, (q0, v0), length=steps)[0]


def _xla_and_native(system: System, method: Any, start: Any, h: float, steps: int) -> list[Callable[[], Any]]:
    made = (as_arrays(system), as_arrays(method), jnp.asarray(h))

    def by(engine: Any) -> Callable[[], Any]:
        def call() -> Any:
            loop = engine(*made)
            loop.begin(State(jnp.asarray(start[0], float), jnp.asarray(start[1], float), jnp.zeros(())))
            return loop.run(steps, steps)

        return call

    return [by(Native), by(Xla)]


def against_plain_jax(settings: Settings) -> Section:
    """Section naive."""
    h, steps = 0.1, 2_000 if settings.quick else 20_000
    few = 50 if settings.quick else 300
    section = Section(
        "naive",
        "The same methods in plain JAX, as a first version would be written (jit, lax.scan, jnp.linalg.solve, "
        f"{NEWTON} Newton iterations, vmap for the ensemble), h = {h}. One trajectory of {steps:,} steps by "
        f"da.simulate, 1,000 members of {few:,} steps by da.ensemble on all cores. The second "
        "table compares the library's two engines: machine code, and XLA, for everything that kernels cannot have.",
    )
    columns = [("case", "case", ""), ("ours", "ours, s", ".2g"), ("theirs", "plain JAX, s", ".2g")]
    columns += [
        ("times", "plain JAX / ours", ".1f"),
        ("spread", "spread", ".0%"),
        ("difference", "difference", ".0e"),
    ]
    table = Table("Against plain JAX", columns)
    columns = [("case", "case", ""), ("ours", "machine code, s", ".2g"), ("theirs", "XLA engine, s", ".2g")]
    engines = Table(
        "The two engines, one trajectory", [*columns, ("times", "XLA / machine code", ".1f"), RATIO[-1]]
    )
    for title, system in (("cvt", zoo.PendulumCVT(eps=0.5)), ("snakeboard", zoo.Snakeboard())):
        q0, v0 = (np.asarray(x, float) for x in system.start())
        q, v = np.tile(q0, (1000, 1)), v0 * np.linspace(0.7, 1.3, 1000)[:, None]
        for label, method, plain in (("leapfrog", LeapFrog(), leapfrog), ("dla_half", DLA(0.5), dla_half)):
            one = jax.jit(lambda q, v, s=system, f=plain: f(s, q, v, jnp.asarray(h), steps))
            all_ = jax.jit(jax.vmap(lambda q, v, s=system, f=plain: f(s, q, v, jnp.asarray(h), few)))

            def ours(s=system, m=method, q=q0, v=v0) -> Any:
                return simulate(s, m, q, v, h=h, steps=steps, save_every=steps)

            def ours_many(s=system, m=method, q=q, v=v) -> Any:
                return ensemble(s, m, q, v, h=h, steps=few, save_every=few, devices="cpu")

            pairs = {
                "one": (ours, lambda f=one, q=q0, v=v0: jax.block_until_ready(f(q, v)), lambda s: s.q[-1]),
                "1,000": (
                    ours_many,
                    lambda f=all_, q=q, v=v: jax.block_until_ready(f(q, v)),
                    lambda s: s.q[:, -1],
                ),
            }
            for size, (mine, theirs, last) in pairs.items():
                difference = float(np.max(np.abs(last(mine()) - np.asarray(theirs()[0]))))
                calls = {"ours": mine, "theirs": theirs}
                times = interleaved(calls, settings.repeats, settings.patience, warm=False)
                row = compared(times["ours"], times["theirs"])
                row |= {
                    "case": f"{title}_{label}, {size}",
                    "times": 1 / row["ratio"],
                    "difference": difference,
                }
                table.rows.append(row)
            native, xla = _xla_and_native(system, method, (q0, v0), h, steps)
            times = interleaved({"ours": native, "theirs": xla}, settings.repeats)
            row = compared(times["ours"], times["theirs"])
            engines.rows.append({"case": f"{title}_{label}", **row, "times": 1 / row["ratio"]})
    section.tables = [table, engines]
    return section
