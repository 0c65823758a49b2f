"""Maps of sweeps: the right cell has the right colour, and what cannot be drawn is refused."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray

import dalembert as da
from dalembert.view.maps import ENDED, _edges

mpl.use("Agg")


@pytest.fixture
def data():
    """Two methods, three values of a parameter, four steps; one trajectory ended early."""
    values = np.array([10.0**-k for k in range(24)]).reshape(2, 3, 4)
    values[0, 0, 0] = -3.0  # the sign does not matter
    status = np.zeros((2, 3, 4), np.int8)
    status[1, 2, 3] = 2
    dims = ("integrator", "eps", "h")
    return xarray.Dataset(
        {"slope": (dims, values, {"long_name": "slope of something"}), "status": (dims, status)},
        coords={
            "integrator": ["frame", "leapfrog"],
            "eps": [0.0, 0.5, 1.0],
            "h": ("h", [0.1, 0.2, 0.3, 0.4], {"units": "s", "long_name": "step size"}),
        },
    )


def test_panels_cells_and_labels(data):
    axes = da.sweep_map(data, "slope", x="eps", y="h", limits=(1e-20, 1.0))
    assert [ax.get_title(loc="left") for ax in axes] == ["frame", "leapfrog"]
    shown = [ax.collections[0].get_array().reshape(4, 3) for ax in axes]
    np.testing.assert_array_equal(shown[0], np.abs(data.slope.values[0].T))
    assert shown[0][0, 0] == 3.0
    assert np.ma.getmaskarray(shown[1]).sum() == 1
    assert np.ma.getmaskarray(shown[1])[3, 2], "the trajectory that ended early is grey"
    assert mpl.colors.to_hex(axes[1].get_facecolor()) == ENDED
    assert axes[0].get_ylabel() == "step size h (s)"
    bar = axes[0].figure.axes[-1]
    assert bar.get_ylabel() == "slope of something"


def test_a_panel_below_the_limits_says_how_far(data):
    axes = da.sweep_map(data, "slope", x="eps", y="h", limits=(1e-6, 1.0))
    assert [text.get_text() for text in axes[1].texts] == ["at most 1.0e-12"]
    assert not axes[0].texts


def test_linear_colours_show_the_sign(data):
    axes = da.sweep_map(data.sel(integrator="frame"), "slope", x="eps", y="h", log=False)
    assert len(axes) == 1
    assert axes[0].collections[0].get_array().reshape(4, 3)[0, 0] == -3.0


def test_cells_end_half_way_between_values():
    np.testing.assert_allclose(_edges(np.array([1.0, 2.0, 4.0])), [0.5**0.5, 2**0.5, 8**0.5, 32**0.5])
    np.testing.assert_allclose(_edges(np.array([0.0, 1.0, 3.0])), [-0.5, 0.5, 2.0, 4.0])
    np.testing.assert_allclose(_edges(np.array([2.0])), [1.5, 2.5])


def test_what_cannot_be_drawn_is_refused(data):
    with pytest.raises(ValueError, match="no 'slop'; choose from: slope, status"):
        da.sweep_map(data, "slop", x="eps", y="h")
    with pytest.raises(ValueError, match="no dimension 'mass'; choose from: integrator, eps, h"):
        da.sweep_map(data, "slope", x="mass", y="h")
    with pytest.raises(ValueError, match=r"further dimension 'integrator'; choose one value, data.sel"):
        da.sweep_map(data, "slope", x="eps", y="h", panels=None)
    with pytest.raises(ValueError, match="2 panels, got 1 axes"):
        da.sweep_map(data, "slope", x="eps", y="h", axes=[object()])
