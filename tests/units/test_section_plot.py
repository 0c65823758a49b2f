"""Sections of coupled systems: the exact motion lies on the circles, and what cannot be drawn is refused."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import dalembert as da

mpl.use("Agg")
CVT = da.zoo.PendulumCVT(eps=0.5)
Q0, V0 = (np.asarray(x) for x in CVT.start("rotating"))


def run(method, part=1.0, steps=400, v0=V0):
    return da.simulate(CVT, method, Q0 * part, v0, h=0.2, steps=steps)


def test_curves_and_panels():
    runs = [run(da.Reference(), 1.0, 100), run(da.Reference(), 0.5, 100), run(da.DLA(0.5))]
    shown = da.section_plot(runs)
    assert [ax.get_title(loc="left") for ax in shown.axes] == ["reference", "dla:0.5"]
    exact, half, dla = shown.curves
    # The reference is accurate to 1e-12; the period map to 1e-11.
    assert np.hypot(*exact.points.T) == pytest.approx(exact.radius, abs=1e-10)
    assert half.radius == pytest.approx(exact.radius / 2, rel=1e-12)
    assert half.points == pytest.approx(exact.points / 2, abs=1e-10)
    assert np.max(np.abs(np.hypot(*dla.points.T) - dla.radius)) > 1e-2
    lines = shown.axes[0].get_lines()
    assert len(lines) == 4
    assert np.hypot(*lines[0].get_data()) == pytest.approx(exact.radius)
    assert np.array_equal(np.transpose(lines[1].get_data()), exact.points)
    assert len(shown.axes[1].get_lines()) == 2
    plt.close("all")


def test_given_axes_and_refusals():
    _, ax = plt.subplots()
    sol = run(da.FrameGradient(), steps=60)
    assert da.section_plot([sol], axes=[ax]).axes == [ax]
    with pytest.raises(ValueError, match="one run or more"):
        da.section_plot([])
    with pytest.raises(ValueError, match="1 panels, got 2 axes"):
        da.section_plot([sol], axes=[ax, ax])
    with pytest.raises(ValueError, match="same driver energy"):
        da.section_plot([sol, run(da.FrameGradient(), steps=60, v0=V0 * 1.1)])
    knife = da.zoo.KnifeEdge()
    with pytest.raises(ValueError, match="no latitude"):
        da.section_plot([da.simulate(knife, da.FrameGradient(), *knife.start(), h=0.1, steps=20)])
    plt.close("all")
