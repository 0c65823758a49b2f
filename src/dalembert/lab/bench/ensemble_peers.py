"""The ensemble of the comparison with other solvers: a thousand rotating CVTs."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dalembert.lab.bench.solvers import Entry, Problem, cvt, heyoka_system, missing
from dalembert.methods import method_from_text
from dalembert.simulation import ensemble
from dalembert.simulation.ensembles import cores

MEMBERS, TIME = 1000, 100.0
TITLE = f"An ensemble of {MEMBERS:,} PendulumCVT, start velocities differing by 60 %, to t = {TIME:g}"
OURS = {
    "leapfrog": (0.05, 0.01), "dla01": (0.05, 0.01), "dla01@4": (0.2, 0.1, 0.05), "dla01@8": (0.2, 0.1, 0.05),
    "frame": (0.05,), "frame@4": (0.1,), "frame@6": (0.1,), "frame@8": (0.2,),
    "frame:gauss=3": (0.4, 0.2), "frame:gauss=4": (0.4, 0.2),
}  # fmt: skip
ALONE = 4
"""The number of members on which SciPy, which has no batch form, is measured; its time is scaled up."""
GIVEN = (
    "In the ensemble: ours is da.ensemble on all cores; heyoka is taylor_adaptive_batch (as many members side "
    "by side as a vector register holds), one integrator per core, in threads; diffrax is vmap of the solve, on "
    f"as many cores as XLA uses; SciPy is measured on {ALONE} members on one core, its time multiplied by "
    f"{MEMBERS}/{ALONE} and divided by the number of cores."
)


def starts(problem: Problem) -> np.ndarray:
    """The reduced starts, (members, 5)."""
    y0 = np.tile(problem.y0, (MEMBERS, 1))
    y0[:, 3:] *= np.linspace(0.9, 1.5, MEMBERS)[:, None]
    return y0


def heyoka(problem: Problem, tolerance: float, **options: Any) -> Any:
    """run() -> the last reduced states (members, 5)."""
    import heyoka as package  # pyright: ignore[reportMissingImports]

    wide = package.recommended_simd_size()
    y0, threads = starts(problem), cores()
    first = np.repeat(problem.y0[:, None], wide, axis=1)
    made = [
        package.taylor_adaptive_batch(heyoka_system(problem), first, tol=tolerance, **options)
        for _ in range(threads)
    ]
    blocks = [list(range(k * wide, MEMBERS, wide * threads)) for k in range(threads)]

    def run() -> np.ndarray:
        end = np.empty_like(y0)

        def work(integrator: Any, places: list[int]) -> None:
            for a in places:
                chosen = np.minimum(np.arange(a, a + wide), MEMBERS - 1)
                integrator.set_time(0.0)
                integrator.state[:] = y0[chosen].T
                integrator.propagate_until(TIME)
                end[chosen] = integrator.state.T

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, made, blocks))
        return end

    return run


def diffrax(problem: Problem, name: str) -> Any:
    """run(rtol) -> the last reduced states (members, 5)."""
    import diffrax as package
    import jax
    import jax.numpy as jnp

    term = package.ODETerm(lambda t, y, args: jnp.stack(problem.field(y, jnp.sin, jnp.cos)))

    def solve(y0, rtol):
        controller = package.PIDController(rtol=rtol, atol=rtol)
        solver = getattr(package, name)()
        found = package.diffeqsolve(
            term, solver, 0.0, TIME, 0.01, y0, stepsize_controller=controller, max_steps=None
        )
        assert found.ys is not None
        return found.ys[-1]

    y0 = starts(problem)
    compiled = jax.jit(jax.vmap(solve, (0, None))).lower(y0, 1e-6).compile()
    return lambda rtol: np.asarray(compiled(y0, rtol))


def scipy(problem: Problem, rtol: float) -> np.ndarray:
    """The last reduced states of a few members, one after the other."""
    from scipy.integrate import solve_ivp

    def field(t: float, y: np.ndarray) -> list[float]:
        return problem.field(y.tolist(), math.sin, math.cos)

    chosen = starts(problem)[:: MEMBERS // ALONE]
    ends = [solve_ivp(field, (0.0, TIME), y, method="DOP853", rtol=rtol, atol=rtol).y[:, -1] for y in chosen]
    return np.array(ends)


def ours(problem: Problem, spelling: str, h: float, some: slice = slice(None)) -> Any:
    """run() -> the last states (members, 6)."""
    method, steps = method_from_text(spelling), round(TIME / h)
    y0 = starts(problem)[some]
    q0, v0 = y0[:, :3], problem.states(y0)[:, 3:]

    def run(steps: int = steps, h: float = TIME / steps) -> np.ndarray:
        sol = ensemble(problem.system, method, q0, v0, h=h, steps=steps, save_every=steps, devices="cpu")
        return np.concatenate([sol.q[:, -1], sol.v[:, -1]], axis=1)

    run(1)  # compiles
    return run


def everyone(quick: bool) -> tuple[list[Entry], np.ndarray, str]:
    """The entries, the exact end states, and a sentence on their accuracy."""
    problem, here = cvt(TIME), missing()
    few = slice(None, None, MEMBERS // 10)
    fine = ours(problem, "dla01@8", 0.025, few)()
    if "heyoka" not in here:
        exact, word = (
            problem.states(heyoka(problem, 1e-18, high_accuracy=True)()),
            "heyoka with tolerance 1e-18",
        )
    else:
        exact, word = ours(problem, "dla01@8", 0.05)(), "dla01@8 with h = 0.05"
    apart = np.max(np.abs(exact[few] - fine))
    words = f"Reference: {word}; dla01@8 with h = 0.025 agrees with it to {apart:.1e} on ten members."
    wanted = {"frame@4": (0.1,), "leapfrog": (0.05,)} if quick else OURS
    entries = [
        Entry("ours", s, f"h = {h:g}", ours(problem, s, h), compiles=False)
        for s, sizes in wanted.items()
        for h in sizes
    ]
    if "heyoka" not in here:
        for tolerance in (1e-6,) if quick else (1e-6, 1e-9, 1e-12, 1e-15):
            run = heyoka(problem, tolerance)
            entries.append(
                Entry("heyoka", "Taylor", f"tol = {tolerance:g}", lambda f=run: problem.states(f()), False)
            )
    if "diffrax" not in here:
        for name, tolerances in {"Tsit5": (1e-6,), "Dopri8": (1e-9,)}.items():
            solve = diffrax(problem, name)
            for rtol in (1e-6,) if quick else tolerances:
                run = lambda f=solve, r=rtol: problem.states(f(r))  # noqa: E731
                entries.append(Entry("diffrax", name, f"rtol = {rtol:g}", run, compiles=False))
    if "scipy" not in here:
        for rtol in (1e-6,) if quick else (1e-6, 1e-12):
            run = lambda r=rtol: _with(exact, problem.states(scipy(problem, r)))  # noqa: E731
            scale = MEMBERS / ALONE / cores()
            entries.append(Entry("scipy", "DOP853", f"rtol = {rtol:g}", run, compiles=False, scale=scale))
    return entries, exact, words


def _with(exact: np.ndarray, some: np.ndarray) -> np.ndarray:
    """The exact states, with those of the few members that were run replaced by their results."""
    end = exact.copy()
    end[:: MEMBERS // ALONE] = some
    return end
