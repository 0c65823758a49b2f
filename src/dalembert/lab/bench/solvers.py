"""The entries of the comparison with other solvers: ours at several step sizes, peers at several tolerances."""

import dataclasses
import importlib.util
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dalembert import zoo
from dalembert.methods import method_from_text
from dalembert.model import System
from dalembert.simulation import simulate

ROWS = 101
"""The number of equally spaced times, including the start, at which states are compared."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A system, a start, and the same motion as an ODE in five unknowns."""

    name: str
    system: System
    q0: np.ndarray
    v0: np.ndarray
    y0: np.ndarray
    """The start of the reduced equations."""
    time: float
    field: Callable[[Any, Callable, Callable], list[Any]]
    """field(y, sin, cos): the reduced equations, for any type that the given sin and cos accept."""
    states: Callable[[np.ndarray], np.ndarray]
    """The function from reduced unknowns (..., 5) to (q, v), (..., 6)."""
    words: str

    @property
    def times(self) -> np.ndarray:
        """The times of comparison."""
        return np.linspace(0, self.time, ROWS)


def cvt(time: float, eps: float = 0.5) -> Problem:
    """The pendulum CVT, rotating; unknowns x1, x2, xi and the velocities of x2 and xi."""
    system = zoo.PendulumCVT(eps=eps)
    q0, v0 = (np.asarray(x, float) for x in system.start("rotating"))

    def field(y, sin, cos):
        x1, x2, xi, v2, v3 = y
        s, c = sin(xi), cos(xi)
        force = (x1 + s * x2 - c * v3 * v2) / (1.0 + s * s)
        return [-1.0 * s * v2, v2, v3, s * force - x2, -1.0 * (s + eps * (1.0 - 2.0 * s * s))]

    def states(y):
        x1, x2, xi, v2, v3 = np.moveaxis(y, -1, 0)
        return np.stack([x1, x2, xi, -np.sin(xi) * v2, v2, v3], axis=-1)

    words = f"PendulumCVT(eps={eps}), rotating start, to t = {time:g}"
    return Problem("cvt", system, q0, v0, np.array([*q0, *v0[1:]]), time, field, states, words)


def sleigh(time: float) -> Problem:
    """The Chaplygin sleigh; unknowns x, y, theta of the mass centre, speed of the blade and turning rate."""
    system = zoo.ChaplyginSleigh(coordinates="mass-centre")
    m, i, a = (float(x) for x in (system.mass, system.inertia, system.offset))
    q0, v0 = (np.asarray(x, float) for x in system.start())

    def field(y, sin, cos):
        _, _, theta, u, w = y
        s, c = sin(theta), cos(theta)
        return [u * c - a * w * s, u * s + a * w * c, w, a * w * w, -m * a / (i + m * a**2) * u * w]

    def states(y):
        x, z, theta, u, w = np.moveaxis(y, -1, 0)
        s, c = np.sin(theta), np.cos(theta)
        return np.stack([x, z, theta, u * c - a * w * s, u * s + a * w * c, w], axis=-1)

    words = f'ChaplyginSleigh(coordinates="mass-centre"), default start, to t = {time:g}'
    return Problem("sleigh", system, q0, v0, np.array([*q0, v0[0], v0[2]]), time, field, states, words)


OURS = {
    "leapfrog": (0.1, 0.05, 0.02, 0.01, 0.005),
    "dla01": (0.1, 0.05, 0.02, 0.01, 0.005),
    "dla01@4": (0.2, 0.15, 0.12, 0.1, 0.05, 0.025),
    "dla01@6": (0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.025),
    "dla01@8": (0.5, 0.4, 1 / 3, 0.3, 0.25, 2 / 9, 0.2, 0.15, 0.125, 0.1, 0.05, 0.025),
    "frame": (0.1, 0.05, 0.02, 0.01),
    "frame@4": (0.2, 0.1, 0.05, 0.025),
    "frame@6": (0.2, 0.1, 0.05, 0.025),
    "frame@8": (0.2, 0.1, 0.05, 0.025),
    "frame:gauss=2": (0.2, 0.1, 0.05, 0.025),
    "frame:gauss=3": (0.4, 0.2, 0.1, 0.05),
    "frame:gauss=4": (0.5, 0.4, 0.2, 0.1),
    "frame:gauss=5": (0.5, 0.4, 0.2, 0.1),
    **{f"taylor:{10.0**-k:g}": (math.inf,) for k in (4, 6, 8, 10, 12, 14)},
    "taylor": (math.inf,),
}
"""Methods and their step sizes; infinity stands for the distance between the times of comparison."""
HEYOKA = (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15)
DIFFRAX = {"Tsit5": (1e-6, 1e-9, 1e-11), "Dopri8": (1e-6, 1e-9, 1e-12, 1e-14)}
SCIPY = {"DOP853": (1e-6, 1e-9, 1e-12), "Radau": (1e-3,)}
LONG, TIGHT = 1000, 1e-10
"""SciPy's tolerances below TIGHT are left out for times above LONG: they take tens of seconds."""
GIVEN = {
    "ours": "da.simulate with the system as the library states it (Lagrangian and one-forms; the library finds the "
    "multipliers itself); steps of equal size, but for Taylor's own. "
    "Its checks of the input are made once per start, in the call that "
    "compiles.",
    "heyoka": "taylor_adaptive on the reduced equations, one integrator per tolerance, reset and run with "
    "propagate_grid (its own dense output); default settings "
    "otherwise, angles not wrapped.",
    "diffrax": "diffeqsolve in one jit on the reduced equations, PIDController with atol = rtol, steps clipped "
    "to the times of comparison, max_steps=None.",
    "scipy": "solve_ivp on the reduced equations as a Python function on floats, atol = rtol, t_eval at the times of "
    "comparison; "
    f"tolerances below {TIGHT:g} only for times up to {LONG}, Radau at a loose tolerance only.",
}
"""A description of what each solver was given."""
CODE = "heyoka", "diffrax", "scipy"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One solver at one setting; `run()` returns the states (rows, 6) at the times of comparison."""

    who: str
    solver: str
    setting: str
    run: Callable[[], np.ndarray]
    compiles: bool = True
    """Whether the first call is slower than the others."""
    scale: float = 1.0
    """The factor by which its time is multiplied if it runs only a part."""


def missing() -> dict[str, str]:
    """The peers that cannot run here, with the reason."""
    return {
        name: f"{name} is not installed (pip install dalembert[bench])"
        for name in CODE
        if importlib.util.find_spec(name) is None
    }


def ours(problem: Problem, spellings: Any = None, sizes: Any = None) -> list[Entry]:
    """Entries for the library's methods."""
    entries = []
    for spelling in spellings or OURS:
        method = method_from_text(spelling)
        # A whole number of steps lies between two times of comparison, so steps are at most as large as requested.
        rows = ROWS - 1
        for every in dict.fromkeys(
            max(1, math.ceil(problem.time / rows / h - 1e-9)) for h in sizes or OURS[spelling]
        ):
            steps = rows * every

            def run(method=method, steps=steps, every=every) -> np.ndarray:
                sol = simulate(
                    problem.system, method, problem.q0, problem.v0,
                    h=problem.time / steps, steps=steps, save_every=every,
                )  # fmt: skip
                return np.concatenate([sol.q, sol.v], axis=1)

            entries.append(Entry("ours", spelling, f"h = {problem.time / steps:.3g}", run))
    return entries


def heyoka_system(problem: Problem) -> Any:
    """The reduced equations as heyoka's expressions."""
    import heyoka  # pyright: ignore[reportMissingImports]

    unknowns = heyoka.make_vars(*(f"y{k}" for k in range(len(problem.y0))))
    return list(zip(unknowns, problem.field(unknowns, heyoka.sin, heyoka.cos), strict=True))


def heyoka_exact(problem: Problem) -> tuple[np.ndarray, str]:
    """The motion in extended precision if the machine has it, else in compensated double, and the precision used."""
    import heyoka  # pyright: ignore[reportMissingImports]

    try:
        wide, eps = np.longdouble, np.finfo(np.longdouble).eps
        tolerance = wide(max(1e3 * float(eps), 1e-22))
        start = [wide(x) for x in problem.y0]
        made = heyoka.taylor_adaptive(heyoka_system(problem), start, tol=tolerance, fp_type=wide)
        found = made.propagate_grid(problem.times.astype(wide))[-1]
        word = f"heyoka in {np.finfo(wide).nmant}-bit arithmetic"
    except (TypeError, ValueError, NotImplementedError, OverflowError):
        made = heyoka.taylor_adaptive(heyoka_system(problem), problem.y0, tol=1e-18, high_accuracy=True)
        found, word = made.propagate_grid(problem.times)[-1], "heyoka in compensated double precision"
    return np.asarray(problem.states(np.asarray(found)), float), word


def heyoka(problem: Problem, tolerances: Any = HEYOKA) -> list[Entry]:
    """Entries for heyoka's Taylor method."""
    import heyoka as package  # pyright: ignore[reportMissingImports]

    equations = heyoka_system(problem)

    @lru_cache
    def integrator(tolerance: float) -> Any:
        return package.taylor_adaptive(equations, problem.y0, tol=tolerance)

    def run(tolerance: float) -> np.ndarray:
        made = integrator(tolerance)
        made.time = 0.0
        made.state[:] = problem.y0
        return problem.states(made.propagate_grid(problem.times)[-1])

    return [Entry("heyoka", "Taylor", f"tol = {t:g}", lambda t=t: run(t)) for t in tolerances]


def diffrax(problem: Problem, tolerances: Any = None) -> list[Entry]:
    """Entries for diffrax's Runge-Kutta methods in JAX."""
    import diffrax as package
    import jax
    import jax.numpy as jnp

    term = package.ODETerm(lambda t, y, args: jnp.stack(problem.field(y, jnp.sin, jnp.cos)))
    ts = jnp.asarray(problem.times)

    def compiled(solver: Any) -> Callable:
        def solve(y0, rtol):
            controller = package.ClipStepSizeController(
                package.PIDController(rtol=rtol, atol=rtol), step_ts=ts
            )
            return package.diffeqsolve(
                term, solver, ts[0], ts[-1], 0.01, y0,
                saveat=package.SaveAt(ts=ts), stepsize_controller=controller, max_steps=None,
            ).ys  # fmt: skip

        return jax.jit(solve)

    entries = []
    for name, settings in DIFFRAX.items():
        solve = compiled(getattr(package, name)())
        for rtol in settings if tolerances is None else tolerances:
            run = lambda f=solve, r=rtol: problem.states(np.asarray(f(problem.y0, r)))  # noqa: E731
            entries.append(Entry("diffrax", name, f"rtol = {rtol:g}", run))
    return entries


def scipy(problem: Problem, tolerances: Any = None) -> list[Entry]:
    """Entries for SciPy's Runge-Kutta method of order 8 and its stiff method."""
    from scipy.integrate import solve_ivp

    def field(t: float, y: np.ndarray) -> list[float]:
        return problem.field(y.tolist(), math.sin, math.cos)

    def run(name: str, rtol: float) -> np.ndarray:
        span = (0.0, problem.time)
        found = solve_ivp(field, span, problem.y0, method=name, rtol=rtol, atol=rtol, t_eval=problem.times)
        return problem.states(found.y.T)

    return [
        Entry("scipy", name, f"rtol = {rtol:g}", lambda n=name, r=rtol: run(n, r), compiles=False)
        for name, settings in SCIPY.items()
        for rtol in (settings if tolerances is None else tolerances)
        if not (problem.time > LONG and rtol < TIGHT)
    ]


def everyone(problem: Problem, quick: bool) -> list[Entry]:
    """All entries that can run here."""
    here = [x for x in CODE if x not in missing()]
    if quick:
        some = ours(problem, ("leapfrog", "dla01", "frame", "frame@4", "dla01@8"), (0.1, 0.05))
        peers = {"heyoka": (1e-6, 1e-12), "diffrax": (1e-6,), "scipy": (1e-4,)}
        makers = {"heyoka": heyoka, "diffrax": diffrax, "scipy": scipy}
        return [*some, *(e for name in here for e in makers[name](problem, peers[name]))]
    makers = {"heyoka": heyoka, "diffrax": diffrax, "scipy": scipy}
    return [*ours(problem), *(e for name in here for e in makers[name](problem))]
