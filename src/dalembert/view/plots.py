"""Figures of one trajectory, and of several methods side by side."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from dalembert.model import groups
from dalembert.simulate import Trajectory

# One colour a method, throughout; chosen to stay apart for colour-blind readers.
COLOURS = {
    "frame": "#0072B2",
    "dd": "#009E73",
    "leapfrog": "#D55E00",
    "dla": "#CC79A7",
    "dla01": "#E69F00",
    "gni": "#56B4E9",
    "lie-gni": "#56B4E9",
    "dla-variational": "#882255",
    "edla": "#117733",
    "reference": "#333333",
}
# Below this a relative error is rounding; log axes end here.
FLOOR = 1e-17
# A curve with more points than this is drawn as the largest value in each of so many intervals.
INTERVALS = 600


def _axes(ax: Axes | None, size: tuple[float, float] = (7.0, 3.6)) -> Axes:
    if ax is None:
        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def method_style(spelling: str) -> dict[str, Any]:
    """Colour by family; dashed for compositions, dotted for variants that are not the usual one."""
    body, composed, _ = spelling.partition("@")
    family, _, option = body.partition(":")
    usual = option in ("", "0.5", "half-kick", "momentum")
    return {
        "color": COLOURS.get(family),
        "ls": "--" if composed else "-" if usual else ":",
        "label": spelling,
    }


def _label(trajectory: Trajectory) -> str:
    if trajectory.method is not None:
        return trajectory.method.spelling
    return (trajectory.stored or {}).get("method", "stored run")


def _system(trajectory: Trajectory) -> str:
    if trajectory.system is not None:
        return type(trajectory.system).__name__
    return (trajectory.stored or {}).get("system", "stored run").rpartition(":")[2]


def _step(trajectory: Trajectory) -> str:
    return f"{'first ' * ('h' in trajectory.told)}h = {float(trajectory.h):.4g}"


def _coordinates(trajectory: Trajectory) -> tuple[str, ...]:
    if trajectory.system is not None:
        return trajectory.system.coordinates
    return tuple((trajectory.stored or {})["coordinates"])


def _group(trajectory: Trajectory) -> str | None:
    if trajectory.system is not None:
        return None if trajectory.system.group is None else trajectory.system.group.name
    return (trajectory.stored or {}).get("group")


def _of_quaternions(q: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(groups.S3().adjoint)(jnp.asarray(q)))


# Rotation matrices from the rows of a run, by the group's name.
ROTATIONS = {"SO(3)": lambda q: q.reshape(-1, 3, 3), "S^3": _of_quaternions}
# Columns: what lies across the picture, up, and towards the eye, which looks from (2, 1, 1).
_EYE = np.array([2.0, 1.0, 1.0]) / np.sqrt(6)
_ACROSS = np.cross([0, 0, 1], _EYE) / np.linalg.norm(np.cross([0, 0, 1], _EYE))
SIGHT = np.stack([_ACROSS, np.cross(_EYE, _ACROSS), _EYE], axis=1)


def _envelope(t: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The curve itself where it is short; else its largest value in each of many intervals."""
    if len(t) <= 2 * INTERVALS:
        return t, y
    starts = np.linspace(0, len(t), INTERVALS, endpoint=False).astype(int)
    return t[starts], np.maximum.reduceat(y, starts)


class Plots:
    """The pictures of one trajectory; each method draws into `ax`, or a new figure, and returns the axes."""

    def __init__(self, trajectory: Trajectory):
        self.trajectory = trajectory

    def energy(self, ax: Axes | None = None, full: bool = False, **style: Any) -> Axes:
        """The relative energy error against time, on a log axis; where the exact energy changes too, its change."""
        sol = self.trajectory
        ax = _axes(ax)
        energy = np.asarray(sol.energy(full=full))
        scale = abs(energy[0]) or 1.0
        error = np.abs(energy - energy[0]) / scale
        style = {"lw": 1.3, **method_style(_label(sol)), **style}
        ax.semilogy(*_envelope(np.asarray(sol.t[1:]), np.maximum(error[1:], FLOOR)), **style)
        ax.set(xlabel="t", ylabel="|E - E(0)| / |E(0)|" if energy[0] else "|E - E(0)|")
        kept = sol.system is None or not (sol.system.timed or sol.system.affine)
        what = "energy error" if kept else "change of energy"
        ax.set_title(f"{what}, {_system(sol)}, {_step(sol)}", loc="left")
        return ax

    def steps(self, ax: Axes | None = None, **style: Any) -> Axes:
        """The size of each step against the time at which it ends, for methods whose steps differ."""
        sol = self.trajectory
        if "h" not in sol.told:
            raise ValueError(
                f"the steps of {_label(sol)} are equal, h = {float(sol.h):g}; those of EDLA() differ"
            )
        ax = _axes(ax)
        style = {"lw": 1.3, **method_style(_label(sol)), **style}
        h, t = np.asarray(sol.told["h"])[1:], np.asarray(sol.t)[1:]
        ax.plot(t, h, **style)
        if len(h) and np.max(h) > 20 * np.min(h):
            ax.set_yscale("log")
        elif len(h) and np.ptp(h) < 1e-6 * np.max(h):  # rounding is no picture
            ax.set_ylim(0.5 * np.max(h), 1.5 * np.max(h))
        ax.set(xlabel="t", ylabel="h")
        ax.set_title(f"step size, {_system(sol)}, {_step(sol)}", loc="left")
        return ax

    def axis(self, which: int = 3, ax: Axes | None = None, **style: Any) -> Axes:
        """Of a body on SO(3) or S^3: where its axis 1, 2 or 3 points, on the unit sphere seen from above and aside;
        fainter behind the sphere."""
        sol = self.trajectory
        group = _group(sol)
        if group not in ROTATIONS:
            raise ValueError(
                f"axis draws rotations, configurations of {_system(sol)} are not; use path(x, y)"
            )
        if which not in (1, 2, 3):
            raise ValueError(f"a body has the axes 1, 2 and 3, got {which!r}")
        ax = _axes(ax, (4.8, 4.6))
        ends = np.asarray(ROTATIONS[group](np.asarray(sol.q)))[:, :, which - 1]
        across, up, towards = (ends @ SIGHT).T
        width = float(np.clip(1.4 * (400 / len(ends)) ** 0.5, 0.3, 1.4))
        style = {"lw": width, **method_style(_label(sol)), **style}
        ax.add_patch(Circle((0, 0), 1, fill=False, color="0.75", lw=1))
        hidden = towards < 0
        for part, fade in ((~hidden, 1.0), (hidden, 0.35)):
            x, y = (np.where(part, c, np.nan) for c in (across, up))
            ax.plot(x, y, **style | {"alpha": fade, "label": style.get("label") if fade == 1 else None})
        ax.plot(across[:1], up[:1], "o", ms=6, color="black", zorder=3)
        for axis, name in zip(SIGHT, "xyz", strict=True):
            ax.plot([0, axis[0]], [0, axis[1]], color="0.85", lw=0.8, zorder=0)
            ax.annotate(name, 1.12 * axis[:2], ha="center", va="center", color="0.4")
        ax.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), xticks=[], yticks=[], aspect="equal")
        ax.spines[:].set_visible(False)
        ax.set_title(
            f"{_system(sol)}, body axis {which}, t = {sol.t[0]:g} to {sol.t[-1]:g} (start marked)", loc="left"
        )
        return ax

    def path(self, x: str | None = None, y: str | None = None, ax: Axes | None = None, **style: Any) -> Axes:
        """One coordinate against another, by name; the first two by default, the third axis of a rotating body."""
        sol = self.trajectory
        if x is None and y is None and _group(sol) in ROTATIONS:
            return self.axis(ax=ax, **style)
        names = _coordinates(sol)
        if len(names) < 2:
            raise ValueError(f"path needs two coordinates, {_system(sol)} has one; plot sol.t against sol.q")
        x, y = x or names[0], y or names[1]
        for name in (x, y):
            if name not in names:
                raise ValueError(f"no coordinate {name!r}; choose from: {', '.join(names)}")
        ax = _axes(ax, (4.8, 4.4))
        xs, ys = sol.q[:, names.index(x)], sol.q[:, names.index(y)]
        # Long paths are drawn thin, so that their texture stays visible.
        width = float(np.clip(1.2 * (400 / len(xs)) ** 0.5, 0.15, 1.2))
        style = {"lw": width, **method_style(_label(sol)), **style}
        ax.plot(xs, ys, **style)
        ax.plot(xs[:1], ys[:1], "o", ms=6, color="black", zorder=3)
        ax.set(xlabel=x, ylabel=y)
        ax.set_title(f"{_system(sol)}, t = {sol.t[0]:g} to {sol.t[-1]:g} (start marked)", loc="left")
        ax.set_aspect("equal", adjustable="datalim")
        return ax


def compare_energies(runs: Mapping[str, Trajectory], ax: Axes | None = None, full: bool = True) -> Axes:
    """The energy errors of several runs in one picture, labelled by their keys."""
    ax = _axes(ax)
    for name, run in runs.items():
        run.plot.energy(ax=ax, full=full, label=name)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    return ax
