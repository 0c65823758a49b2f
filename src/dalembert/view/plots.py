"""Figures of one trajectory, and energy errors of several runs in one figure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from dalembert import groups
from dalembert.simulation import Trajectory
from dalembert.view import names as named
from dalembert.view.style import (
    COLOURS,
    FLOOR,
    Panels,
    axes,
    draw_deviation,
    draw_residual,
    envelope,
    extremes,
    log_ticks,
    mean_window,
    method_style,
    name_deviation,
    short_numbers,
    stacked,
    title,
    width_of,
)

__all__ = ["COLOURS", "Plots", "compare_energies", "method_style"]

# Ticks of an angle from -pi to pi.
TURN = [r"-$\mathrm{\pi}$", r"-$\mathrm{\pi}$/2", "0", r"$\mathrm{\pi}$/2", r"$\mathrm{\pi}$"]
# Phase portraits of more rows than this are drawn with dots.
DOTS = 3000
# Lines through more points than this are drawn as pixels, so that vector files stay small.
PIXELS = 20_000


def _of_quaternions(q: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(groups.S3().adjoint)(jnp.asarray(q)))


# Rotation matrices from the rows of a run, by the group's name.
ROTATIONS = {"SO(3)": lambda q: q.reshape(-1, 3, 3), "S^3": _of_quaternions}
# The columns are the directions across the picture, up, and towards the eye, which looks from (2, 1, 1).
_EYE = np.array([2.0, 1.0, 1.0]) / np.sqrt(6)
_ACROSS = np.cross([0, 0, 1], _EYE) / np.linalg.norm(np.cross([0, 0, 1], _EYE))
SIGHT = np.stack([_ACROSS, np.cross(_EYE, _ACROSS), _EYE], axis=1)


class Plots:
    """The figures of one trajectory. Each method draws into `ax`, or into a new figure, and returns the axes."""

    def __init__(self, trajectory: Trajectory):
        self.trajectory = trajectory

    def energy(self, ax: Axes | None = None, full: bool = False, **style: Any) -> Axes:
        """The relative energy error against time on a log axis, or the energy balance if work is done.

        If forces, time or affine constraints change the energy, a pale curve shows its change, and the other curve
        shows the change less the work done, which is the error.
        """
        sol = self.trajectory
        ax = axes(ax)
        energy = np.asarray(sol.energy(full=full))
        driven = sol.system is not None and not named.keeps_energy(sol)
        change = energy - energy[0]
        size = abs(energy[0]) or (float(np.max(np.abs(change))) if driven else 0.0)
        style = {"lw": 1.3, **method_style(named.method_name(sol)), **style}
        t = np.asarray(sol.t[1:])

        def draw(values: np.ndarray, **more: Any) -> None:
            ax.semilogy(*envelope(t, np.maximum(np.abs(values[1:]) / (size or 1.0), FLOOR)), **style | more)

        of = "" if not size else " / |E(0)|" if energy[0] else " / largest change"
        ylabel = f"|E - E(0)|{of}"
        if driven:
            draw(change, alpha=0.35, label="change of energy")
            draw(change - np.asarray(sol.work()), label="less the work done")
            ax.legend(frameon=False, fontsize="small")
            ylabel = f"energy{of}"
        else:
            draw(change)
        ax.set(xlabel="t", ylabel=ylabel)
        log_ticks(ax)
        what = (
            "energy balance" if driven else "energy error" if named.keeps_energy(sol) else "change of energy"
        )
        title(ax, f"{what}, {named.system_name(sol)}, {named.step_words(sol)}")
        return ax

    def steps(self, ax: Axes | None = None, **style: Any) -> Axes:
        """The size of each step against the time at which it ends, for methods whose steps differ."""
        sol = self.trajectory
        if "h" not in sol.step_data:
            raise ValueError(
                f"the steps of {named.method_name(sol)} are equal, h = {float(sol.h):g}; those of EDLA() differ"
            )
        ax = axes(ax)
        style = {"lw": 1.3, **method_style(named.method_name(sol)), **style}
        h, t = np.asarray(sol.step_data["h"])[1:], np.asarray(sol.t)[1:]
        ax.plot(t, h, **style)
        if len(h) and np.max(h) > 20 * np.min(h):
            ax.set_yscale("log")
        elif len(h) and np.ptp(h) < 1e-6 * np.max(h):  # differences at rounding are not shown
            ax.set_ylim(0.5 * np.max(h), 1.5 * np.max(h))
        ax.set(xlabel="t", ylabel="h")
        title(ax, f"step size, {named.system_name(sol)}, {named.step_words(sol)}")
        return ax

    def axis(self, which: int = 3, ax: Axes | None = None, **style: Any) -> Axes:
        """The direction of axis 1, 2 or 3 of a body on SO(3) or S^3, drawn on the unit sphere.

        The sphere is seen obliquely from above, and the curve is fainter behind it.
        """
        sol = self.trajectory
        group = named.group_name(sol)
        if group not in ROTATIONS:
            raise ValueError(
                f"axis draws rotations, but configurations of {named.system_name(sol)} are none; use path(x, y)"
            )
        if which not in (1, 2, 3):
            raise ValueError(f"a body has the axes 1, 2 and 3, got {which!r}")
        ax = axes(ax, (4.8, 4.6))
        ends = np.asarray(ROTATIONS[group](np.asarray(sol.q)))[:, :, which - 1]
        across, up, towards = (ends @ SIGHT).T
        style = {
            "lw": width_of(len(ends), 1.4, 0.3),
            "rasterized": len(ends) > PIXELS,
            **method_style(named.method_name(sol)),
            **style,
        }
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
        title(ax, f"{named.system_name(sol)}, body axis {which}, {named.span_words(sol)} (start marked)")
        return ax

    def path(self, x: str | None = None, y: str | None = None, ax: Axes | None = None, **style: Any) -> Axes:
        """One coordinate against another, by name.

        The default is the first two coordinates, or the third axis of a rotating body.
        """
        sol = self.trajectory
        if x is None and y is None and named.group_name(sol) in ROTATIONS:
            return self.axis(ax=ax, **style)
        names = named.coordinates(sol)
        if len(names) < 2:
            raise ValueError(
                f"path needs two coordinates, but {named.system_name(sol)} has one; plot sol.t against sol.q"
            )
        x, y = x or names[0], y or names[1]
        for name in (x, y):
            if name not in names:
                raise ValueError(f"no coordinate {name!r}; choose from: {', '.join(names)}")
        ax = axes(ax, (4.8, 4.4))
        xs, ys = sol.q[:, names.index(x)], sol.q[:, names.index(y)]
        style = {
            "lw": width_of(len(xs)),
            "rasterized": len(xs) > PIXELS,
            **method_style(named.method_name(sol)),
            **style,
        }
        ax.plot(xs, ys, **style)
        ax.plot(xs[:1], ys[:1], "o", ms=6, color="black", zorder=3)
        ax.set(xlabel=named.with_unit(sol, x), ylabel=named.with_unit(sol, y))
        title(ax, f"{named.system_name(sol)}, {named.span_words(sol)} (start marked)")
        if not {x, y} & set(named.angles(sol)):  # an angle has no length to compare
            ax.set_aspect("equal", adjustable="datalim")
        short_numbers(ax, 4)
        return ax

    def integrals(
        self,
        names: Sequence[str] | Mapping[str, Callable] | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        log: bool = False,
        window: float | None = None,
        full: bool = False,
        **style: Any,
    ) -> Panels:
        """Deviations from the start against time, one row per quantity.

        The quantities are the energy, the moving energy of affine constraints, and the integrals that the system
        names. Strong lines are their running means over `window` units of time. `names` chooses some of them, or maps
        names to your own functions of (q, v) or (t, q, v). `log=True` draws absolute values on a log axis. `full=True`
        draws the energy of the method's own velocity.
        """
        sol = self.trajectory
        found = named.integrals(sol, names, full)
        panels = _rows(ax, [x.name for x in found])
        style = method_style(named.method_name(sol)) | style
        window = mean_window(sol.t, window)
        for x in found:
            draw_deviation(panels[x.name], sol.t, x.values, style, log, window)
            name_deviation(panels[x.name], x, log)
        what = "deviation from the start" + (f", strong: mean over {window:.3g}" if window else "")
        words = f"{named.system_name(sol)}, {named.step_words(sol)}"
        title(panels[found[0].name], f"{words}: {what}" if len(words + what) < 72 else f"{words}\n{what}")
        return panels

    def phase(self, x: str | None = None, y: str | None = None, ax: Axes | None = None, **style: Any) -> Axes:
        """A phase portrait: a coordinate against its velocity, or two quantities by name, such as "xi" and "xi'".

        Angles lie in (-pi, pi]. The default is the first angle, else the first coordinate, or the first two velocities
        of a body on a group. Long runs are drawn with dots.
        """
        sol = self.trajectory
        x, y = named.phase_names(sol, x, y)
        turning = [name in named.angles(sol) for name in (x, y)]
        xs, ys = (
            named.wrapped(values) if angle else values
            for values, angle in zip((named.quantity(sol, x), named.quantity(sol, y)), turning, strict=True)
        )
        ax = axes(ax, (4.8, 4.4))
        style = {**method_style(named.method_name(sol)), **style}
        if len(xs) > DOTS:
            size = max(1.5 * (DOTS / len(xs)) ** 0.5, 0.5)
            dots = {"ls": "", "marker": "o", "mew": 0, "ms": size, "rasterized": len(xs) > PIXELS}
            ax.plot(xs, ys, **{**style, **dots})
        else:
            jumping = [values for values, angle in zip((xs, ys), turning, strict=True) if angle]
            ax.plot(*named.broken(xs, ys, *jumping), **{"lw": 1.0, **style})
        ax.plot(xs[:1], ys[:1], "o", ms=6, color="black", zorder=3)
        for values, angle, axis in zip((xs, ys), turning, (ax.xaxis, ax.yaxis), strict=True):
            if angle and np.ptp(values) > np.pi:
                axis.set_ticks(np.pi * np.arange(-1, 1.1, 0.5), TURN)
        ax.set(xlabel=named.with_unit(sol, x), ylabel=named.with_unit(sol, y))
        title(ax, f"{named.system_name(sol)}, {named.span_words(sol)} (start marked)")
        return ax

    def coordinates(
        self, names: Sequence[str] | None = None, ax: Axes | Sequence[Axes] | None = None, **style: Any
    ) -> Panels:
        """Every coordinate, or every one in `names`, against time in its own axes."""
        sol = self.trajectory
        known = named.coordinates(sol)
        chosen = list(known) if names is None else [names] if isinstance(names, str) else list(names)
        for name in chosen or [""]:
            if name not in known:
                raise ValueError(f"no coordinate {name!r}; choose from: {', '.join(known)}")
        columns = 1 if len(chosen) < 6 else 2 if len(chosen) % 3 else 3
        panels = _rows(ax, chosen, columns, 1.2)
        style = {"lw": 1.2, **method_style(named.method_name(sol)), **style}
        for name, panel in panels.items():
            panel.plot(*extremes(sol.t, np.asarray(sol.q)[:, known.index(name)]), **style)
            panel.set_ylabel(named.with_unit(sol, name))
            panel.margins(y=0.1)
        title(panels[chosen[0]], f"{named.system_name(sol)}, {named.step_words(sol)}")
        return panels

    def scene(self, t: Any = None, times: Any = None, view: Any = "oblique", ax: Axes | None = None) -> Axes:
        """The path in space with the body at several times; see `dalembert.view.stills.scene`.

        `view` is "oblique", "top", "side" or (azimuth, elevation) in degrees.
        """
        from dalembert.view.stills import scene

        return scene(self.trajectory, t=t, times=times, view=view, ax=ax)

    def constraint(self, ax: Axes | None = None, **style: Any) -> Axes:
        """The largest entry of A(q) v, or of A(q) v - b(q), against time on a log axis."""
        sol = self.trajectory
        if sol.system is not None and not sol.system.constrained:
            raise ValueError(f"{named.system_name(sol)} has no constraint, so there is no residual to draw")
        ax = axes(ax)
        draw_residual(ax, sol.t, sol.constraint_residual(), method_style(named.method_name(sol)) | style)
        title(ax, f"constraint residual, {named.system_name(sol)}, {named.step_words(sol)}")
        return ax


def _rows(
    ax: Axes | Sequence[Axes] | None, names: Sequence[str], columns: int = 1, height: float = 1.7
) -> Panels:
    """One axes per name: new ones below each other, or the given ones."""
    if ax is None:
        return Panels(zip(names, stacked(len(names), columns, height)[1], strict=True))
    given = [ax] if isinstance(ax, Axes) else list(ax)
    if len(given) != len(names):
        raise ValueError(
            f"there are {len(names)} curves to draw ({', '.join(names)}), each in its own axes, but ax holds "
            f"{len(given)}; give as many axes, or fewer names"
        )
    for one in given:
        axes(one).set_xlabel("t")
    return Panels(zip(names, given, strict=True))


def compare_energies(runs: Mapping[str, Trajectory], ax: Axes | None = None, full: bool = True) -> Axes:
    """The energy errors of several runs in one picture, labelled by their keys."""
    ax = axes(ax)
    for name, run in runs.items():
        run.plot.energy(ax=ax, full=full, label=name)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    return ax
