"""Maps of a sweep: one quantity over two of its dimensions, a panel per method."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dalembert.view.names import symbol
from dalembert.view.style import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAP = "viridis"
ENDED = "#b8b8b8"
"""The colour of trajectories that ended early or have not been computed yet."""


def sweep_map(
    data: Any,
    variable: str,
    x: str,
    y: str,
    *,
    panels: str | None = "integrator",
    log: bool = True,
    limits: tuple[float, float] | None = None,
    label: str | None = None,
    axes: "Sequence[Axes] | None" = None,
) -> "list[Axes]":
    """Draws `variable` of a sweep's dataset over its dimensions x and y, with one panel per value along `panels`.

    The variable must have no further dimension: first choose one value along it, or reduce it (`data.sel(...)`,
    `data.max("sample")`). Colours are logarithmic in the absolute value, within `limits`, which are the same for all
    panels; `log=False` shows the values as they are. A panel whose values all lie below the limits states its largest
    value. Grey marks trajectories that ended early or are still missing.
    """
    table = _table(data, variable, x, y, panels)
    values = table.values.astype(float)
    status = data["status"] if "status" in data and set(data["status"].dims) == set(table.dims) else None
    if status is not None:
        values = np.where(status.transpose(*table.dims).values == 0, values, np.nan)
    values = np.abs(values) if log else values
    names = [""] if panels not in table.dims else [str(name) for name in table[panels].values]
    made = _axes(len(names)) if axes is None else list(axes)
    if len(made) != len(names):
        raise ValueError(f"the map has {len(names)} panels, got {len(made)} axes")
    norm = _norm(values, log, limits)
    mesh = None
    for ax, name, part in zip(made, names, values if values.ndim == 3 else [values], strict=True):
        ax.set_facecolor(ENDED)
        edges = [_edges(table[key].values) for key in (x, y)]
        shown = np.maximum(part, norm.vmin) if log else part
        mesh = ax.pcolormesh(*edges, np.ma.masked_invalid(shown), norm=norm, cmap=MAP, rasterized=True)
        if log and np.nanmax(part, initial=0.0) < norm.vmin:
            most = f"at most {np.nanmax(part, initial=0.0):.1e}"
            ax.text(0.5, 0.5, most, transform=ax.transAxes, color="white", ha="center", va="center")
        ax.set_xlabel(_label(table, x))
        title(ax, name)
    made[0].set_ylabel(_label(table, y))
    assert mesh is not None
    about = label or data[variable].attrs.get("long_name", variable)
    bar = made[0].figure.colorbar(mesh, ax=made, label=about, extend="both" if log else "neither", pad=0.015)
    bar.outline.set_visible(False)
    return made


def _table(data: Any, variable: str, x: str, y: str, panels: str | None) -> Any:
    """The variable with the dimensions (panels, y, x)."""
    if variable not in data:
        raise ValueError(f"the sweep has no {variable!r}; choose from: {', '.join(map(str, data.data_vars))}")
    table = data[variable]
    for key in (x, y):
        if key not in table.dims or key not in table.coords:
            raise ValueError(f"{variable} has no dimension {key!r}; choose from: {', '.join(table.dims)}")
    kept = [panels] if panels in table.dims else []
    more = [dim for dim in table.dims if dim not in (x, y, *kept)]
    if more:
        raise ValueError(
            f"{variable} has the further dimension {more[0]!r}; choose one value, data.sel({more[0]}=...), or reduce "
            f"it, data.max({more[0]!r})"
        )
    return table.transpose(*kept, y, x)


def _axes(count: int) -> "list[Axes]":
    import matplotlib.pyplot as plt

    _, made = plt.subplots(
        1, count, figsize=(1.4 + 2.7 * count, 3.2), sharey=True, layout="constrained", squeeze=False
    )
    return list(made[0])


def _norm(values: np.ndarray, log: bool, limits: tuple[float, float] | None) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    good = values[np.isfinite(values) & ((values > 0) | (not log))]
    if limits is None:
        low, high = (float(good.min()), float(good.max())) if good.size else (0.1, 1.0)
        low = max(low, 1e-17) if log else low
        limits = (low, high if high > low else low + 1.0)
    return (LogNorm if log else Normalize)(*limits)


def _edges(centres: np.ndarray) -> np.ndarray:
    """The borders between cells: half way between values, or at their geometric mean if values grow by a factor."""
    centres = np.asarray(centres, float)
    if len(centres) < 2:
        return centres[0] + np.array([-0.5, 0.5])
    grows = bool(np.all(centres > 0)) and np.ptp(np.diff(np.log(centres))) < np.ptp(np.diff(centres)) * 1e-6
    scaled = np.log(centres) if grows else centres
    inner = (scaled[1:] + scaled[:-1]) / 2
    ends = (2 * scaled[0] - inner[0], 2 * scaled[-1] - inner[-1])
    edges = np.concatenate([[ends[0]], inner, [ends[1]]])
    return np.exp(edges) if grows else edges


def _label(table: Any, key: str) -> str:
    unit = table[key].attrs.get("units")
    name = table[key].attrs.get("long_name", key)
    text = symbol(key) if name == key else f"{name} {symbol(key)}"
    return f"{text} ({unit})" if unit else text
