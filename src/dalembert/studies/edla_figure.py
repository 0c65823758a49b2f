"""The figure of the study of EDLA."""

from typing import TYPE_CHECKING, Any

import numpy as np

from dalembert.studies.drawing import log_axis, panels
from dalembert.studies.edla_runs import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "edla": "#117733",
    "edla:continuation": "#DDAA33",
    "dla-variational": "#882255",
    "frame": "#0072B2",
}
"""Those of view.plots; the continuation of EDLA has one of its own."""
SETS = ("#0072B2", "#D55E00", "#117733", "#882255", "#8a8a8a")
MARKS = ("o", "s", "^", "v", "D")
DASHED: dict[str, Any] = {"color": "#333333", "lw": 1.0, "ls": (0, (4, 3)), "zorder": 1}


def words(name: str) -> str:
    """A name as the figure writes it."""
    changes = (
        ("|q|^2", r"$|q|^2$"), ("x^2 + y^2", r"$x^2+y^2$"), ("y^2", r"$y^2$"), ("xi", r"$\xi$"), ("x3'", r"$x_3'$")
    )  # fmt: skip
    for old, new in changes:
        if old in name:
            name = name.replace(old, new)
            if old.startswith("x^2"):
                break
    return name.replace("-cos", "\N{MINUS SIGN}cos")


def draw(data: Measured) -> "Figure":
    """Six panels."""
    figure, axes = panels(3, 2, 9.6, (0.85, 0.82), bottom=0.6)
    _draw_going(axes[0, 0], data)
    _draw_energy(axes[0, 1], data)
    _draw_ending(axes[1, 0], data)
    _draw_scan(axes[1, 1], data)
    _draw_rivals(axes[2, 0], data)
    _draw_law(axes[2, 1], data)
    return figure


def _draw_going(ax: Any, data: Measured) -> None:
    for x, colour in zip(data.going, SETS, strict=True):
        (t, rho), _, (s, fine) = x.ratios
        ax.plot(t[t < 20], rho[t < 20], color=colour, lw=1.4, label=words(x.problem.name))
        some = np.flatnonzero(s < 20)[::40]
        ax.plot(s[some], fine[some], ".", color=colour, ms=4.5)
    ax.set(xlim=(0, 20), xlabel="t", ylabel=r"$h(t)/h_0$", ylim=(0.5, 4.3))
    ax.legend(loc="upper left", ncol=2, columnspacing=1.0, handlelength=1.4, fontsize=8.5)
    ax.set_title("(a) step sizes where G keeps its sign")


def _draw_energy(ax: Any, data: Measured) -> None:
    for x, colour in zip(data.going, SETS, strict=True):
        some = np.unique(np.geomspace(1, len(x.plus) - 1, 90).astype(int))
        error = np.abs(x.plus / x.plus[0] - 1)[some].clip(1e-17)
        ax.plot(some, error, ".", color=colour, ms=4)
    dla = data.rivals[data.going[0].problem.name][1]
    error = dla.curve[1].clip(1e-17)
    ax.plot(np.arange(1, len(error)), error[1:], color=COLOURS["dla-variational"], lw=1.2)
    ax.text(1.3, 2e-7, "DLA, equal steps", color=COLOURS["dla-variational"], va="bottom")
    ax.text(1.3, 3e-15, "EDLA", color="#333333", va="bottom")
    log_axis(ax, 1e-17, 1e-1, 4)
    ax.set(xscale="log", xlim=(1, None), xlabel="step", ylabel=r"$|E/E_0 - 1|$")
    ax.set_title("(b) energies there")


def _draw_ending(ax: Any, data: Measured) -> None:
    for x, colour, mark in zip(data.ending, SETS, MARKS, strict=False):
        t, rho = (np.append(a, last) for a, last in zip(x.ratio, (x.run.end, x.ratio[1][-1]), strict=True))
        style = {"color": colour, "marker": mark, "markevery": [-1], "ms": 5, "lw": 1.4}
        ax.plot(t / x.zero, rho, **style, label=words(x.problem.name))
    ax.axvline(1, **DASHED, label="zero of G")
    ax.set(xlim=(0, 1.05), xlabel="t/(time of the zero of G)", ylabel=r"$h(t)/h_0$")
    ax.legend(loc="upper left", handlelength=1.8, fontsize=8.5)
    ax.set_title("(c) step sizes where G changes sign")


def _draw_scan(ax: Any, data: Measured) -> None:
    for x, colour, mark in zip(data.ending, SETS, MARKS, strict=False):
        style = {"color": colour, "ls": "", "marker": mark, "ms": 4}
        away = [max(abs(y.end / x.zero - 1), 1e-5) for y in x.tried(over=False)]
        ax.plot([y.h0 for y in x.tried(over=False)], away, **style)
        over = [y.h0 for y in x.tried(over=True)]
        ax.plot(over, np.full(len(over), 1.2 if mark == "s" else 0.6), **style | {"mfc": "white"})
    ax.axhline(0.05, color="#b5b5b5", lw=0.8, zorder=0)
    log_axis(ax, 1e-5, 3.0, 1)
    ax.set(xscale="log", xlabel=r"$h_0$", ylabel="|end/zero of G \N{MINUS SIGN} 1|")
    ax.text(0.01, 0.055, "5 percent", transform=ax.get_yaxis_transform(), va="bottom", fontsize=8.5)
    ax.set_title("(d) where the runs of (c) end; open: got over")


def _draw_rivals(ax: Any, data: Measured) -> None:
    _, to_end, past = data.rivals.values()
    names = {
        "edla": "EDLA",
        "edla:continuation": "EDLA, continuation",
        "dla-variational": "DLA",
        "frame": "frame",
    }
    for x in (*past, to_end[0]):
        t, error = x.curve
        ax.plot(t, error.clip(1e-17), color=COLOURS[x.method], lw=1.4, label=names[x.method])
    t, error = to_end[0].curve
    ax.plot(t[-1], max(error[-1], 1e-17), "o", color=COLOURS["edla"], ms=5)
    ax.axvline(data.ending[0].zero, **DASHED, label="zero of G")
    log_axis(ax, 1e-17, 1e-2, 4)
    ax.set(xlim=(0, past[0].end), xlabel="t", ylabel=r"$|E/E_0 - 1|$")
    ax.legend(loc="center right", bbox_to_anchor=(1.0, 0.42), handlelength=1.8, fontsize=8.5)
    ax.set_title(r"(e) energies on V = $y^2$/2 across the zero")


def _draw_law(ax: Any, data: Measured) -> None:
    laws = data.laws
    y = np.linspace(laws.y[0], laws.y[-1], 200)
    ax.plot(y, np.sqrt(1 + y**2), color="#333333", lw=1.1, label=r"$\sqrt{1 + y^2}$")
    ax.plot(
        laws.y[::4], laws.h[::4] / laws.kappa, "o", color=COLOURS["edla"], ms=4.5, mfc="white", label="EDLA"
    )
    ax.set(xlabel="y in the middle of the step", ylabel=r"$h_k/\kappa$")
    ax.legend(loc="upper left", handlelength=1.8)
    ax.set_title("(f) free particle")
