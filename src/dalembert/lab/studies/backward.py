"""The modified fields of methods on the rotating perturbed CVT, and the drift that they predict."""

from typing import NamedTuple

import numpy as np

from dalembert.diagnostics import (
    CoupledField,
    Growth,
    modified_field,
    passenger_exponents,
    predicted_growth,
    section,
)
from dalembert.diagnostics.field_analysis import SAFETY
from dalembert.lab.studies.drawing import log_axis, panels, style_of
from dalembert.lab.studies.result import Cell, Picture, Result, Table, number, plain_row
from dalembert.lab.studies.shared_runs import CVT_STEP, NAMES, Lab, Panel
from dalembert.methods import method_from_text
from dalembert.simulation import simulate
from dalembert.zoo import PendulumCVT

HARD = Panel("rotating", 0.5)
METHODS = ("dla:0.4", "dla:0.5", "dla01", "frame")
STEPS = (0.1, 0.05, 0.025, 0.0125)
MARKERS = {"dla:0.4": "^", "dla:0.5": "o", "dla01": ".", "frame": "."}
SEEN = 52
"""The number of driver states at which fields are examined: two turns at h = 0.1."""
AGREED = 0.02
"""By how much predicted and measured rates may differ, in sum: the transients of short runs leave about a hundredth."""
NONE = 1e-6
"""Rates below this count as no drift; they change an energy by less than a thousandth in the longest runs here."""


class Skewness(NamedTuple):
    """How far the passenger's matrix of a modified field is from skew, along the driver's orbit."""

    defect: np.ndarray
    """The norm of its symmetric part relative to the largest norm, one row per step size."""
    error: np.ndarray
    """The estimated error of that."""


class Measured(NamedTuple):
    """The fields of all methods, and what follows."""

    xi: np.ndarray
    skewness: dict[str, Skewness]
    growth: dict[str, Growth]
    exponents: dict[str, np.ndarray]
    """The exponents of long runs."""
    decay: tuple[np.ndarray, np.ndarray, np.ndarray]
    """The times, the passenger's energy by DLA 0.5, and the prediction from one period."""


def measure(lab: Lab) -> Measured:
    """The fields along the driver's orbit, predicted rates, and rates of long runs."""
    system, coupled = PendulumCVT(eps=HARD.eps), lab.coupled(HARD)
    start = system.start(HARD.start)
    orbit = simulate(system, method_from_text("frame"), *start, h=CVT_STEP, steps=SEEN - 1)
    xi, eta = np.asarray(orbit.q)[:, 2], np.asarray(orbit.v)[:, 2]
    skewness, growth, exponents = {}, {}, {}
    for spelling in METHODS:
        lab.step(f"modified field of {spelling}")
        method = method_from_text(spelling)
        found = []
        for h in STEPS:
            matrix, _, error = CoupledField(coupled, modified_field(system, method, h)).linear(xi, eta)
            size = np.max(np.linalg.norm(matrix, axis=(1, 2)))
            symmetric = 0.5 * (matrix + np.swapaxes(matrix, 1, 2))
            found.append(
                (np.linalg.norm(symmetric, axis=(1, 2)) / size, np.sqrt(matrix.shape[1]) * error / size)
            )
        skewness[spelling] = Skewness(*(np.array(x) for x in zip(*found, strict=True)))
        growth[spelling] = predicted_growth(coupled, modified_field(system, method, CVT_STEP), *start)
        lab.step(f"exponents of {spelling} in a long run")
        steps = lab.settings.exponent_steps
        exponents[spelling] = passenger_exponents(coupled, method, *start, CVT_STEP, steps)
    xi = np.mod(xi + np.pi, 2 * np.pi) - np.pi
    return Measured(xi, skewness, growth, exponents, _decay(lab, growth["dla:0.5"]))


def _decay(lab: Lab, growth: Growth) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The passenger's energy by DLA 0.5, once per period, and |map^n z|^2/2 for the passenger z at the section."""
    system, coupled = PendulumCVT(eps=HARD.eps), lab.coupled(HARD)
    start = system.start(HARD.start)
    steps = round(lab.settings.cvt / CVT_STEP)
    run = simulate(system, method_from_text("dla:0.5"), *start, h=CVT_STEP, steps=steps, save_every=25)
    energy = 0.5 * np.sum(np.asarray(run.q)[:, :2] ** 2 + np.asarray(run.v)[:, :2] ** 2, axis=1)
    t = np.asarray(run.t)
    assert np.allclose(
        section(coupled, *start), (start[0][2], start[1][2])
    )  # the start lies on the section itself
    values, vectors = np.linalg.eig(growth.map)
    x, v, _, _ = coupled.split(start[0], start[1])
    assert coupled.kappa is not None
    z = np.linalg.solve(vectors, np.append(np.asarray(coupled.kappa) @ np.asarray(x), float(v)))
    chosen = np.linspace(0, len(t) - 1, 600).astype(int)
    turns = np.round(t[chosen] / growth.period)
    z = (z[None] * values[None] ** turns[:, None]) @ vectors.T
    return t[chosen], energy[chosen], 0.5 * np.sum(np.abs(z) ** 2, axis=1)


def present(lab: Lab, data: Measured) -> Result:
    """The study with its three panels: along the orbit, against the step size, and what follows."""
    figure, axes = panels(1, 3, 3.3, (0.85, 0.42), 0.5)
    _draw_along(axes[0, 0], data)
    _draw_steps(axes[0, 1], data)
    _draw_decay(axes[0, 2], data)
    dla, frame = data.growth["dla:0.5"], data.growth["frame"]
    said = (
        "Backward error analysis for nonholonomic integrators is the first open problem of the paper: it asks for "
        "methods whose modified fields, on these systems, are again fibrations over integrable systems.",
    )
    skew = data.skewness["frame"]
    within = bool(np.all(skew.defect[-1] <= SAFETY * skew.error[-1]))
    powers = [_power(data.skewness[x]) for x in ("dla:0.5", "dla01")]
    same = all(_agree(data.growth[x], data.exponents[x]) for x in METHODS)
    found = (
        "The modified field of a method is the one whose exact flow its steps follow. It can be read off the steps. In "
        "that of the frame method, the matrix that rotates the passenger is skew to "
        f"{number(float(np.max(skew.defect[-1])))} at h = {STEPS[-1]}, which is {'within' if within else 'more than'} "
        "the error bar. The matrices of both DLA methods have symmetric parts of "
        f"{number(float(np.max(data.skewness['dla:0.5'].defect[0])))} and "
        f"{number(float(np.max(data.skewness['dla01'].defect[0])))} at h = 0.1, which fall with the powers "
        f"{powers[0]:.2f} and {powers[1]:.2f} of h.",
        "One turn of the modified driver gives the rates at which the passenger drifts: "
        f"{', '.join(number(x, 2) for x in dla.exponents)} per unit of time for DLA 0.5, and at most "
        f"{number(float(np.max(np.abs(frame.exponents))))} for the frame method. Long runs show "
        f"{'the same' if same else 'other'} rates.",
    )
    picture = Picture(
        "backward",
        figure,
        "Modified fields on the rotating CVT, eps = 0.5. Left: the symmetric part of the passenger's matrix at h = "
        f"{STEPS[1]}, along the driver's turn; the shaded region is the error bar for the frame method. Middle: its "
        "largest value against the step size. Right: the energy of the passenger by DLA 0.5, and what the field says "
        "after one turn.",
        "Three panels: symmetric parts of DLA methods along a turn and the frame method far below; lines of slope one "
        "and two in the step size for DLA, and a much steeper one for frame; a decaying energy with its prediction.",
    )
    table = _table(lab, data)
    return Result("backward", "Modified fields", said, found, (picture,), (table,), data, ours=True)


def _power(skew: Skewness) -> float:
    """The power of h with which the largest symmetric part falls between the two shortest steps."""
    top = np.max(skew.defect, axis=1)
    return float(np.log2(top[-2] / top[-1]))


def _drifts(growth: Growth) -> bool:
    return float(np.max(np.abs(growth.exponents))) > max(NONE, growth.error)


def _agree(growth: Growth, seen: np.ndarray) -> bool:
    """Whether predicted and measured rates have the same sum, or both are none."""
    total, other = float(np.sum(growth.exponents)), float(np.sum(seen))
    return abs(total - other) <= AGREED * abs(other) if _drifts(growth) else abs(other) < NONE


def _draw_along(ax, data: Measured) -> None:
    for spelling in METHODS:
        style, skew = style_of(spelling), data.skewness[spelling]
        mark = {"marker": MARKERS[spelling], "mfc": "none" if spelling == "dla:0.5" else style["color"]}
        ax.plot(data.xi, skew.defect[1].clip(1e-17), ls="", ms=4, color=style["color"], **mark)
    order = np.argsort(data.xi)
    ax.fill_between(
        data.xi[order],
        1e-17,
        data.skewness["frame"].error[1][order],
        color=style_of("frame")["color"],
        alpha=0.15,
        lw=0,
    )
    log_axis(ax, 1e-17, 1.0, 4)
    ax.set(xlim=(-np.pi, np.pi), xlabel=r"$\xi$", ylabel="symmetric part")
    ax.set_xticks([-np.pi, 0, np.pi], [r"$-\pi$", "0", r"$\pi$"])
    ax.set_title(f"along a turn, h = {STEPS[1]}")


def _draw_steps(ax, data: Measured) -> None:
    for spelling in METHODS:
        style = style_of(spelling)
        top = np.max(data.skewness[spelling].defect, axis=1)
        mark = {"marker": MARKERS[spelling], "mfc": "none" if spelling == "dla:0.5" else style["color"]}
        ax.plot(STEPS, top, ms=6, color=style["color"], lw=1.2, label=style["label"], **mark)
    ax.set_xscale("log")
    log_axis(ax, 1e-15, 1.0, 3)
    ax.set_xticks(STEPS, [f"{h:g}" for h in STEPS])
    ax.minorticks_off()
    ax.set(xlabel="h", ylabel="largest symmetric part")
    ax.set_title("against the step size")
    ax.legend(loc="lower right", fontsize="small")


def _draw_decay(ax, data: Measured) -> None:
    t, energy, foretold = data.decay
    ax.plot(t, energy, color=style_of("dla:0.5")["color"], lw=2.2, label="DLA 0.5, measured")
    ax.plot(t, foretold, color="#333333", lw=1.2, ls="--", label="from one turn")
    ax.set(xlim=(0, t[-1]), ylim=(0, 1.08), xlabel="t", ylabel="passenger energy E")
    ax.locator_params(axis="x", nbins=5)
    ax.set_title("what follows")
    ax.legend(loc="upper right")


def _table(lab: Lab, data: Measured) -> Table:
    rows = []
    for spelling in METHODS:
        growth, seen = data.growth[spelling], data.exponents[spelling]
        drifts, agree = _drifts(growth), _agree(growth, seen)
        rows.append(
            plain_row(
                NAMES[spelling],
                (
                    number(float(np.max(data.skewness[spelling].defect[0]))),
                    Cell(", ".join(number(x, 2) for x in growth.exponents), "drift" if drifts else "good"),
                    ", ".join(number(x, 2) for x in seen),
                    Cell("agree" if agree else "differ", "good" if agree else "drift"),
                ),
            )
        )
    caption = (
        f"The largest symmetric part at h = {STEPS[0]}, the rates that follow from one turn of the modified driver, "
        f"and those of {lab.settings.exponent_steps:,} steps, per unit of time. Rates below {NONE:g} count as none."
    )
    return Table(
        caption, ("method", "symmetric part", "predicted rates", "measured rates", "their sums"), tuple(rows)
    )
