"""Figures of one trajectory show its numbers."""

from functools import cache

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import dalembert as da
from dalembert.view import names, style

mpl.use("Agg")
Z = da.zoo


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def run(system, method=None, steps=200, start=None, h=0.1, **options):
    return da.simulate(
        system, method or da.FrameGradient(), *system.start(start), h=h, steps=steps, **options
    )


def data(line):
    return tuple(np.asarray(x, float) for x in line.get_data())


@cache
def cvt():
    return run(Z.PendulumCVT(eps=0.1), da.DLA01(), 400, "rotating")


@cache
def snake():
    return run(Z.Snakeboard(), da.VariationalDLA(), 100)


def test_running_mean_of_the_energy_is_that_of_numpy():
    ax = cvt().plot.integrals()["energy"]
    light, strong = ax.lines
    deviation = cvt().energy() - cvt().energy()[0]
    np.testing.assert_array_equal(data(light), (cvt().t, deviation))
    # A twentieth of 400 steps: windows of 20 rows, whose middle lies between two of them.
    means = np.lib.stride_tricks.sliding_window_view(deviation, 20).mean(axis=1)
    times = np.lib.stride_tricks.sliding_window_view(cvt().t, 20).mean(axis=1)
    np.testing.assert_allclose(strong.get_xdata(), times, atol=1e-11)  # sums of a few hundred numbers
    np.testing.assert_allclose(strong.get_ydata(), means, atol=1e-14)
    assert light.get_alpha() < 1
    assert light.get_linewidth() < strong.get_linewidth()
    assert light.get_color() == strong.get_color() == style.COLOURS["dla01"]


def test_integrals_are_those_of_the_system():
    panels = snake().plot.integrals()
    assert list(panels) == ["energy", "rotor speed", "steering speed"]
    chosen = snake().plot.integrals(["steering speed"])
    assert list(chosen) == ["steering speed"]
    np.testing.assert_array_equal(
        data(chosen["steering speed"].lines[0])[1], snake().v[:, 4] - snake().v[0, 4]
    )
    table = run(Z.BallOnTurntable(), da.VariationalDLA())
    panels = table.plot.integrals()
    assert list(panels) == ["energy", "moving energy", "spin"]
    moving = table.moving_energy()
    np.testing.assert_array_equal(data(panels["moving energy"].lines[0])[1], moving - moving[0])
    assert "may change" in panels["energy"].get_ylabel()
    assert "may change" not in panels["spin"].get_ylabel()
    own = cvt().plot.integrals({"square": lambda q, v: q[0] ** 2})
    np.testing.assert_allclose(data(own["square"].lines[0])[1], cvt().q[:, 0] ** 2 - cvt().q[0, 0] ** 2)


def test_integrals_of_a_system_that_depends_on_time():
    well = run(Z.TravellingWell(), da.VariationalDLA(), 50, h=0.05)
    function = lambda t, q, v: 0.4 * v[1] - 0.5 * v @ v - 0.5 * q[0] ** 2 - (q[1] - 0.4 * t) ** 2
    kept = data(well.plot.integrals({"with the well": function})["with the well"].lines[0])[1]
    # The well's own integral, by a method of order two at h = 0.05, against an energy that changes by itself.
    assert np.max(np.abs(kept)) < 0.01 * np.ptp(well.energy())


def test_log_axes_show_absolute_deviations():
    ax = cvt().plot.integrals(log=True)["energy"]
    assert ax.get_yscale() == "log"
    deviation = np.abs(cvt().energy() - cvt().energy()[0])[1:]
    np.testing.assert_array_equal(data(ax.lines[0])[1], np.maximum(deviation, style.FLOOR))


def test_no_mean_where_steps_differ_or_are_few():
    particle = run(Z.NonholonomicParticle(), da.EDLA(), 150)
    assert np.max(np.diff(particle.t)) > 4 * np.min(np.diff(particle.t))
    assert len(particle.plot.integrals()["energy"].lines) == 1
    assert len(run(Z.RollingDisk(), steps=3).plot.integrals()["energy"].lines) == 1
    kept = particle.plot.integrals("energy", full=True)["energy"].lines[0]
    assert np.max(np.abs(data(kept)[1])) < 1e-13  # EDLA keeps the energy of its own steps to rounding


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_short_runs_are_drawn(steps):
    sol = run(Z.RollingDisk(), steps=steps)
    for log in (False, True):
        sol.plot.integrals(log=log).figure.canvas.draw()
    for draw in (sol.plot.phase, sol.plot.coordinates, sol.plot.constraint, sol.plot.energy, sol.plot.path):
        figure = draw().figure
        figure.canvas.draw()
        assert len(figure.axes[0].lines[0].get_xdata()) in (steps, steps + 1)


def test_phase_portraits_wrap_angles_without_jumps():
    ax = cvt().plot.phase()
    x, y = data(ax.lines[0])
    assert np.nanmax(np.abs(x)) <= np.pi
    assert np.nanmax(np.abs(np.diff(x))) < np.pi
    turns = int(cvt().q[-1, 2] // np.pi + 1) // 2
    assert turns > 10
    assert np.count_nonzero(np.isnan(x)) == turns
    drawn = ~np.isnan(x)
    np.testing.assert_allclose(
        np.exp(1j * x[drawn]), np.exp(1j * cvt().q[:, 2]), atol=1e-12
    )  # angles up to 1e2
    np.testing.assert_array_equal(y[drawn], cvt().v[:, 2])


def test_wrapped_angles_are_in_the_half_open_interval():
    angles = np.pi * np.array([-3, -1, -0.5, 0, 1, 1.5, 3])
    np.testing.assert_allclose(names.wrapped(angles), np.pi * np.array([1, 1, -0.5, 0, 1, -0.5, 1]))


def test_phase_portraits_of_named_quantities():
    ax = snake().plot.phase("x", "theta'")
    np.testing.assert_array_equal(data(ax.lines[0]), (snake().q[:, 0], snake().v[:, 2]))
    ax = snake().plot.phase("rotor speed", "energy")
    np.testing.assert_array_equal(data(ax.lines[0]), (snake().v[:, 3], snake().energy()))
    np.testing.assert_array_equal(
        data(snake().plot.phase(y="x'").lines[0]), (snake().q[:, 0], snake().v[:, 0])
    )
    both = snake().plot.phase("psi", "phi")
    for x in data(both.lines[0]):
        assert np.nanmax(np.abs(np.diff(x))) < np.pi
    body = run(Z.Suslov(), da.LieGNI(), 50)
    np.testing.assert_array_equal(data(body.plot.phase().lines[0]), body.v[:, :2].T)
    with pytest.raises(ValueError, match='no velocity "R11\'"; give y'):
        body.plot.phase("R11")


def test_long_runs_are_dots_and_few_points():
    sol = run(Z.PendulumCVT(eps=0.1), da.LeapFrog(), 30_000, "rotating")
    dots = sol.plot.phase().lines[0]
    assert dots.get_linestyle() == "None"
    assert dots.get_marker() == "o"
    assert len(dots.get_xdata()) == len(sol.t)
    assert dots.get_rasterized()
    light, strong = sol.plot.integrals()["energy"].lines
    deviation = sol.energy() - sol.energy()[0]
    assert len(light.get_xdata()) == 2 * style.INTERVALS
    assert len(strong.get_xdata()) <= style.INTERVALS
    # Fewer points, but none of the extremes is lost.
    assert data(light)[1].min() == deviation.min()
    assert data(light)[1].max() == deviation.max()
    residual = sol.plot.constraint().lines[0]
    assert np.max(data(residual)[1]) == max(sol.constraint_residual().max(), style.FLOOR)


def test_coordinates_are_drawn_each_by_itself():
    panels = snake().plot.coordinates()
    assert list(panels) == ["x", "y", "theta", "psi", "phi"]
    for i, ax in enumerate(panels.values()):
        np.testing.assert_array_equal(data(ax.lines[0]), (snake().t, snake().q[:, i]))
    assert [ax.get_xlabel() for ax in panels.values()] == ["", "", "", "", "t"]
    assert panels["theta"].get_ylabel() == r"$\mathrm{\theta}$ (rad)"
    assert panels["x"].get_ylabel() == "x (m)"
    assert len(run(Z.Suslov(), da.LieGNI(), 5).plot.coordinates()) == 9


def test_names_are_written_as_symbols():
    assert names.symbol("x") == "x"
    assert names.symbol("x12") == "x$_{12}$"
    assert names.symbol("xi'") == r"$\mathrm{\xi}$'"
    assert names.symbol("eps") == r"$\mathrm{\epsilon}$"
    assert names.symbol("x' sqrt(1 + y^2)") == "x' sqrt(1 + y^2)"


def test_axes_that_are_given_are_used():
    _, given = plt.subplots(3)
    panels = snake().plot.integrals(ax=given)
    assert list(panels.values()) == list(given)
    _, one = plt.subplots()
    assert snake().plot.constraint(ax=one) is one
    assert not one.spines["top"].get_visible()


def test_runs_loaded_without_their_system_are_drawn(tmp_path):
    system = da.system(
        coordinates=("x", "theta"), lagrangian=lambda q, v: 0.5 * v @ v - q[0] ** 2, units=("m", "rad")
    )
    sol = da.simulate(system, da.FrameGradient(), [0.3, 0.0], [0.0, 3.0], h=0.1, steps=60)
    sol.save(tmp_path / "run.nc")
    found = da.load(tmp_path / "run.nc")
    assert found.system is None
    assert list(found.plot.integrals()) == ["energy"]
    x, _ = data(found.plot.phase("theta").lines[0])  # rad tells that it is an angle
    assert np.nanmax(np.abs(x)) <= np.pi
    assert found.plot.coordinates()["x"].get_ylabel() == "x (m)"


def test_log_axes_have_two_ticks_at_least():
    for ax in (snake().plot.constraint(), run(Z.RollingDisk(), steps=3).plot.energy()):
        low, high = ax.get_ylim()
        assert sum(low <= tick <= high for tick in ax.get_yticks()) >= 2


def free():
    system = da.system(coordinates=("x",), lagrangian=lambda q, v: 0.5 * v @ v)
    return da.simulate(system, da.FrameGradient(), [0.0], [1.0], h=0.1, steps=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: snake().plot.integrals(["spin"]),
            "Snakeboard names no integral 'spin'; choose from: energy",
        ),
        (lambda: snake().plot.integrals([]), "needs one name or more"),
        (lambda: snake().plot.integrals({"all": lambda q, v: v}), r"one number per state, got shape \(5,\)"),
        (lambda: snake().plot.integrals({"x": 3}), "must be a function"),
        (lambda: snake().plot.integrals(ax=plt.subplots()[1]), "3 curves to draw .* ax holds 1"),
        (lambda: snake().plot.phase("z"), 'no velocity "z\'"'),
        (lambda: snake().plot.phase("z", "x"), "no quantity 'z'; choose from: x, y"),
        (lambda: snake().plot.coordinates(["z"]), "no coordinate 'z'; choose from: x, y"),
        (lambda: snake().plot.coordinates([]), "no coordinate"),
        (lambda: free().plot.constraint(), "has no constraint"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
