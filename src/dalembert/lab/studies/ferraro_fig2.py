"""Figure 2 of [ferraro2008]: the energy of the nonholonomic particle."""

from typing import Any, NamedTuple

import numpy as np

from dalembert.discrete import Midpoint, PointConstraint, legendre_plus
from dalembert.lab.studies.drawing import legend_below, log_axis, panels
from dalembert.lab.studies.result import Cell, Picture, Result, Table, judged, number
from dalembert.lab.studies.shared_runs import Lab
from dalembert.methods import GNI, Method, VariationalDLA
from dalembert.model import System, as_arrays, lower, project
from dalembert.numerics import compiled, solve_spd
from dalembert.simulation import simulate
from dalembert.zoo import NonholonomicParticle

SOURCE = "ferraro2008"
STEP, STEPS, SHOWN = 0.1, 1000, 120
DLA = {
    "DLA, midpoint": VariationalDLA(Midpoint(), PointConstraint(0.5)),
    "DLA, left point": VariationalDLA(Midpoint(), PointConstraint(0.0)),
}
SPELLINGS = {"GNI": "gni:exact"} | {name: method.cli_name for name, method in DLA.items()}
STYLES: dict[str, dict[str, Any]] = {
    "GNI": {"color": "#56B4E9", "lw": 1.8},
    "DLA, midpoint": {"color": "#882255", "lw": 1.6},
    "DLA, left point": {"color": "#882255", "lw": 1.5, "ls": (0, (1.2, 1.2))},
    "exact": {"color": "#333333", "lw": 1.0},
}
"""The colours and lines of the methods of this paper; the colours are those of view.plots."""
EXPECTED = {"DLA, midpoint": 2.97e-4, "DLA, left point": 7e-2}
"""The relative variations that an independent program gave beforehand."""


class Run(NamedTuple):
    """The results of a run."""

    energy: np.ndarray
    """The energy of the velocity of each step."""
    differences: np.ndarray
    """The same energy from differences of the positions, which have lost digits."""
    error: np.ndarray
    """|q_k - q(t_k)|."""

    @property
    def deviation(self) -> np.ndarray:
        """E_k/E_0 - 1."""
        return self.energy / self.energy[0] - 1


class Measured(NamedTuple):
    """The runs by name, and y in the middle of each step of the exact motion."""

    t: np.ndarray
    y: np.ndarray
    runs: dict[str, Run]


def variation(energy: np.ndarray) -> float:
    """(largest - smallest)/first."""
    return float(np.ptp(energy) / energy[0])


@compiled
def _arriving(system: System, q0: Any, q1: Any, h: Any) -> Any:
    """P M^-1 D2 L_d(q0, q1), the velocity of a DLA run at q1."""
    p = legendre_plus(Midpoint(), system, q0, q1, h)
    return project(system, q1, solve_spd(system.metric(q1), p))


def from_pair(system: Any, method: Method, q0: Any, v0: Any, h: float, steps: int) -> np.ndarray:
    """The positions of a DLA run that starts from the pair (q0, q1), with q1 from the exact motion; both included."""
    q0 = np.asarray(q0, float)
    q1 = system.solution(np.array([h]), q0, v0)[0][0]
    v1 = _arriving(lower(as_arrays(system)), q0, q1, np.asarray(h))
    run = simulate(system, method, q1, v1, h=h, steps=steps - 1)
    return np.concatenate([q0[None], run.q])


def measure(lab: Lab) -> Measured:
    """The particle from the start "bump", by the three methods."""
    system = NonholonomicParticle()
    q0, v0 = (np.asarray(x, float) for x in system.start("bump"))
    t = STEP * np.arange(STEPS + 1)
    exact, _ = system.solution(t, q0, v0)
    lab.step("nonholonomic particle by gni")
    gni = simulate(system, GNI(start="exact"), q0, v0, h=STEP, steps=STEPS)
    paths = {"GNI": np.asarray(gni.q)}
    for name, method in DLA.items():
        lab.step(f"nonholonomic particle by {method.cli_name}")
        paths[name] = from_pair(system, method, q0, v0, STEP, STEPS)
    runs = {}
    for name, q in paths.items():
        differences = 0.5 * np.sum((np.diff(q, axis=0) / STEP) ** 2, axis=1)
        energy = np.asarray(gni.energy(full=True))[:-1] if name == "GNI" else differences
        runs[name] = Run(energy, differences, np.linalg.norm(q - exact, axis=1))
    return Measured(t, 0.5 * (exact[1:, 1] + exact[:-1, 1]), runs)


def bump(data: Measured) -> float:
    """The y at which the energy of the midpoint DLA is farthest from the energy of the first step."""
    return float(data.y[np.argmax(np.abs(data.runs["DLA, midpoint"].deviation))])


def left_way(data: Measured) -> str:
    """Whether the energy of the DLA with the left point rises or falls."""
    return "rises" if data.runs["DLA, left point"].deviation[-1] > 0 else "falls"


def present(lab: Lab, data: Measured) -> Result:
    """The study: the energies, close up and on a log axis."""
    figure, axes = panels(1, 2, 3.9, (0.85, 0.42))
    near, far = axes[0]
    y = data.y[:SHOWN]
    for name, run in data.runs.items():
        style = STYLES[name] | {"label": name}
        if name != "DLA, left point":
            near.plot(y, 1e4 * run.deviation[:SHOWN], **style)
        far.plot(y, np.abs(run.deviation[:SHOWN]).clip(1e-17), **style)
    near.axvline(0, color="#b5b5b5", lw=0.7, zorder=0)
    near.set(xlim=(y[0], y[-1]), xlabel="y", ylabel=r"$10^4\,(E_k/E_0 - 1)$")
    near.set_title("(a) GNI and the DLA of the midpoint")
    log_axis(far, 1e-17, 10.0, 4)
    far.axvline(0, color="#b5b5b5", lw=0.7, zorder=0)
    far.set(xlim=(y[0], y[-1]), xlabel="y", ylabel=r"$|E_k/E_0 - 1|$")
    far.set_title("(b) all three")
    legend_below(figure, far, 3)
    runs = data.runs
    gni, mid, left = (variation(run.energy) for run in runs.values())
    said = (
        "The metric of the free particle z' = y x' is invariant under translations from both sides, so "
        "that Theorem 1 applies and the GNI keeps the energy; the figure sets it against the discrete "
        "Lagrange-d'Alembert method (DLA), whose energy is not constant. The two differ in one "
        "equation: the GNI has z2 - z0 = y1 (x2 - x0), the DLA a constraint on one step, such as z2 - "
        "z1 = (x2 - x1)(y1 + y2)/2. Start and step of the figure are not printed; these are ours.",
    )
    claims = {
        "the GNI keeps the energy": gni < 1e-12,
        "the energy of the DLA is not constant": min(mid, left) > 1e-6,
    }
    found = (
        f"{judged(claims)} Over {STEPS:,} steps the energy varies by {number(gni)} of itself by the GNI, by "
        f"{number(mid, 2)} by the DLA with the constraint at the midpoint, and by {number(left, 2)} with "
        "the constraint at the left point. The energy of the second has a bump where the particle "
        f"passes y = 0 (farthest from the first step at y = {bump(data):.2f}) and returns; that of the "
        f"third {left_way(data)} there and stays: a discrete constraint that is not symmetric costs two "
        "orders.",
        "Energies are those of steps, |q1 - q0|^2/(2 h^2) for one from q0 to q1, variations are "
        "(largest - smallest)/first, and all methods start from the pair (q0, q1) with q1 on the exact "
        "motion; a start from (q0, v0) gives the same two digits. For the GNI this is the energy of its "
        "own momentum, in which no digits are lost; formed from differences of positions it would "
        f"vary by {number(variation(runs['GNI'].differences))} by rounding alone.",
    )
    picture = Picture(
        "ferraro-fig2",
        figure,
        "Energy of the free nonholonomic particle against y, which grows at a constant rate; q0 = (1, "
        "-2, 0.5), v0 = (1, 0.5, -2), h = 0.1. (a) The bump of the midpoint DLA at y = 0; the GNI is "
        "level. (b) On a log axis, with the constraint taken at the left point too.",
        "Two panels. Left: the energy of the GNI is a level line, that of the midpoint DLA has a bump "
        f"near y = 0 of {number(mid, 2)}. Right, log axis: GNI at rounding, midpoint DLA below one "
        "thousandth, left point DLA near one tenth.",
    )
    rows = tuple(
        (
            Cell(name, notes=(SPELLINGS[name],)),
            Cell(number(variation(run.energy), 2), "exact" if variation(run.energy) < 1e-12 else "drift"),
            Cell(
                "rounding" if name == "GNI" else number(EXPECTED[name], 2 if name == "DLA, midpoint" else 0)
            ),
            Cell(number(float(np.max(run.error[: SHOWN + 1])))),
            Cell(number(float(run.error[-1]))),
        )
        for name, run in runs.items()
    )
    table = Table(
        f"Relative variation of the energy over {STEPS:,} steps of h = {STEP:g}, beside the value that "
        "an independent program gave beforehand, and the distance from the exact motion: largest in the "
        "time shown, and at the end.",
        (
            "method",
            "variation",
            "expected",
            f"error to t = {SHOWN * STEP:g}",
            f"error at t = {STEPS * STEP:g}",
        ),
        rows,
    )
    title = "Ferraro et al., Figure 2: energy of the nonholonomic particle"
    return Result("ferraro-fig2", title, said, found, (picture,), (table,), data, source=SOURCE)
