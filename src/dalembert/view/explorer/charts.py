"""The panels as plotly figures."""

from typing import Any

import numpy as np

from dalembert.view.panels import Panel

DASHES = {"-": "solid", "--": "dash", ":": "dot"}


def chart(panel: Panel, legend: bool) -> Any:
    """One panel: log axis, one colour a method."""
    import plotly.graph_objects as go

    # As dictionaries: plotly's own classes take ten times as long.
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": curve.t.tolist(),
            "y": curve.y.tolist(),
            "name": curve.label,
            "showlegend": legend,
            "line": {"color": curve.colour, "width": 1.6, "dash": DASHES[curve.dash]},
        }
        for curve in panel.curves
    ]
    ends = np.log10(
        [f(curve.y) for curve in panel.curves for f in (np.min, np.max) if curve.y.size] or [1e-16]
    )
    low, high = np.floor(ends.min()), np.ceil(ends.max())
    decades = float(np.ceil(max(high - low, 1) / 6))
    axis = {"gridcolor": "#e6e9ef", "zeroline": False, "tickfont": {"size": 10}, "automargin": True}
    layout = {
        "title": {"text": panel.title, "font": {"size": 13}, "x": 0.02, "y": 0.97},
        "margin": {"l": 46, "r": 8, "t": 30, "b": 30},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "xaxis": {**axis, "title": {"text": "t", "standoff": 4, "font": {"size": 11}}},
        "yaxis": {
            **axis,
            "type": "log",
            "exponentformat": "power",
            "dtick": decades,
            "range": [low, high + 0.3],
        },
        "legend": {"orientation": "h", "y": 1.14, "x": 1, "xanchor": "right", "font": {"size": 10}},
    }
    return go.Figure({"data": data, "layout": layout}, skip_invalid=False)
