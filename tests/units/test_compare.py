"""Several runs in one figure, and errors against work."""

from dataclasses import replace
from functools import cache

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

import dalembert as da
from dalembert.diagnostics.order import PLATEAU
from dalembert.view.comparison import compare
from dalembert.view.precision import work_precision
from dalembert.view.style import COLOURS, run_styles

mpl.use("Agg")
Z = da.zoo
SYSTEM = Z.PendulumCVT(eps=0.1)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def run(method, h=0.1, system=SYSTEM, time=10.0, **options):
    return da.simulate(system, method, *system.start(), h=h, steps=round(time / h), **options)


METHODS = {
    "dla:0.5": da.DLA(0.5),
    "leapfrog": da.LeapFrog(),
    "frame": da.FrameGradient(),
    "frame@4": da.Composition(da.FrameGradient(), 4),
}


@cache
def runs():
    """One run a method, made when first looked at."""
    return [run(method) for method in METHODS.values()]


def labelled(ax):
    """Lines by label; matplotlib gives those without one a name with an underscore."""
    return {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}


def legend(panels):
    (box,) = panels.figure.legends
    return dict(zip([x.get_text() for x in box.get_texts()], box.get_lines(), strict=True))


def test_one_colour_a_method_in_all_panels_and_the_legend():
    panels = compare(runs())
    assert list(panels) == ["path", "energy", "constraint"]
    shown = legend(panels)
    assert list(shown) == list(METHODS)
    for ax in panels.values():
        lines = labelled(ax)
        assert list(lines) == list(METHODS)
        for label, line in lines.items():
            family = label.partition("@")[0].partition(":")[0]
            assert to_rgb(line.get_color()) == to_rgb(shown[label].get_color()) == to_rgb(COLOURS[family])
            assert line.get_linestyle() == shown[label].get_linestyle() == ("--" if "@" in label else "-")


def test_panels_show_the_runs():
    panels = compare(runs())
    for label, sol in zip(METHODS, runs(), strict=True):
        path, energy, constraint = (labelled(panels[name])[label] for name in panels)
        np.testing.assert_array_equal(np.asarray(path.get_data()), sol.q[:, :2].T)
        own = sol.energy(full=True)
        error = np.maximum(np.abs(own - own[0])[1:] / abs(own[0]), 1e-17)
        np.testing.assert_array_equal(energy.get_ydata(), error)
        np.testing.assert_array_equal(constraint.get_ydata(), np.maximum(sol.constraint_residual(), 1e-17))
    low, high = panels["constraint"].get_xlim()
    assert low <= 0
    assert panels["energy"].get_xlim() == (low, high)
    allowed = compare(runs(), "energy", full=False)["energy"]
    v = runs()[1].energy()
    np.testing.assert_array_equal(labelled(allowed)["leapfrog"].get_ydata(), np.abs(v - v[0])[1:] / abs(v[0]))


def test_larger_steps_of_a_method_are_paler():
    steps = (0.4, 0.1, 0.2)
    panels = compare([run(da.FrameGradient(), h) for h in steps] + [run(da.LeapFrog())])
    lines = labelled(panels["energy"])
    assert list(lines) == [*(f"frame, h = {h:g}" for h in steps), "leapfrog, h = 0.1"]
    brightness = [sum(to_rgb(line.get_color())) for line in lines.values()][:3]
    assert brightness[0] > brightness[2] > brightness[1]
    assert to_rgb(lines["frame, h = 0.1"].get_color()) == to_rgb(COLOURS["frame"])
    # A pale colour is the same hue: a mixture with white.
    pale, full = (1 - np.array(to_rgb(x)) for x in (lines["frame, h = 0.4"].get_color(), COLOURS["frame"]))
    np.testing.assert_allclose(pale / pale.sum(), full / full.sum(), atol=1e-12)


def test_methods_of_other_people_have_colours_of_their_own():
    found = run_styles(["mine", "frame", "yours", "mine"], [0.1, 0.1, 0.1, 0.1])
    assert found[0]["color"] == found[3]["color"]
    assert len({style["color"] for style in found}) == 3
    assert not {found[0]["color"], found[2]["color"]} & set(COLOURS.values())


def test_labels():
    mapping = compare({"one": runs()[0], "two": runs()[1]}, "path")
    assert list(legend(mapping)) == list(labelled(mapping["path"])) == ["one", "two"]
    assert list(legend(compare(runs()[:2], "energy", labels=["a", "b"]))) == ["a", "b"]
    assert list(legend(compare([runs()[0], runs()[0]], "energy"))) == ["dla:0.5 (1)", "dla:0.5 (2)"]


def test_integrals_of_all_runs_in_one_axes_each():
    system = Z.Snakeboard()
    found = [run(method, system=system) for method in (da.VariationalDLA(), da.FrameGradient())]
    panels = compare(found, "integrals")
    assert list(panels) == ["energy", "rotor speed", "steering speed"]
    for ax in panels.values():
        assert len(ax.lines) == 4  # curve and running mean of either
    curve = panels["energy"].lines[0].get_ydata()
    np.testing.assert_array_equal(curve, found[0].energy(full=True) - found[0].energy(full=True)[0])


def test_the_path_takes_coordinates_and_rotations():
    ax = compare(runs()[:2], "path", x="x1", y="xi")["path"]
    np.testing.assert_array_equal(labelled(ax)["leapfrog"].get_ydata(), runs()[1].q[:, 2])
    body = Z.Suslov()
    panels = compare([run(method, system=body) for method in (da.LieGNI(), da.LieGNI("cayley"))])
    assert np.nanmax(np.hypot(*labelled(panels["path"])["lie-gni"].get_data())) < 1 + 1e-9  # on the sphere


def test_free_systems_have_no_residual_and_one_coordinate_no_path():
    system = da.system(coordinates=("x",), lagrangian=lambda q, v: 0.5 * v @ v - q[0] ** 2)
    sol = da.simulate(system, da.FrameGradient(), [0.3], [1.0], h=0.1, steps=20)
    assert list(compare([sol])) == ["energy"]


def test_loaded_runs_are_compared_by_what_their_files_tell(tmp_path):
    paths = []
    for k, eps in enumerate((0.1, 0.1, 0.5)):
        paths.append(tmp_path / f"{k}.nc")
        run(da.FrameGradient(), 0.1 * (1 + k), Z.PendulumCVT(eps=eps)).save(paths[-1])
    known = [da.load(path) for path in paths]
    assert len(labelled(compare(known[:2])["path"])) == 2
    unknown = [replace(sol, system=None) for sol in known]
    assert len(labelled(compare(unknown[:2])["energy"])) == 2
    for sols in (known, unknown):
        with pytest.raises(ValueError, match=r"runs of one system; entry 0 is of .*entry 2 of"):
            compare(sols)


def many():
    q0, v0 = (np.asarray(x) for x in SYSTEM.start())
    return da.ensemble(SYSTEM, da.FrameGradient(), q0, np.linspace(0.5, 1, 3)[:, None] * v0, h=0.1, steps=5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare([]), "one trajectory or more, got none"),
        (lambda: compare({}), "one trajectory or more, got none"),
        (lambda: compare(runs()[0]), "needs a list of trajectories, got one"),
        (lambda: compare([runs()[0], 3]), "entry 1 is 3"),
        (
            lambda: compare([runs()[0], many()]),
            r"entry 1 is an ensemble; compare its members: sol.member\(0\)",
        ),
        (
            lambda: compare([runs()[0], run(da.FrameGradient(), system=Z.HarmonicCVT())]),
            "entry 1 of HarmonicCVT",
        ),
        (lambda: compare([runs()[0], run(da.FrameGradient(), system=Z.PendulumCVT(eps=0.5))]), "one system"),
        (lambda: compare(runs(), "speed"), "one of all, path, energy, constraint, integrals; got 'speed'"),
        (lambda: compare(runs(), labels=["a"]), "there are 4 runs but 1 labels"),
        (lambda: compare({"a": runs()[0]}, labels=["b"]), "the keys of the mapping already"),
    ],
)
def test_what_cannot_be_compared_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


STEPS = (0.4, 0.2, 0.1, 0.05, 0.025)


def test_work_and_precision():
    methods = [da.DLA(0.5), da.FrameGradient(), METHODS["frame@4"]]
    ax, curves = work_precision(SYSTEM, methods, h=STEPS, t=4.0)
    assert list(curves) == ["dla:0.5", "frame", "frame@4"]
    for label, order in (("dla:0.5", 2), ("frame", 2), ("frame@4", 4)):
        assert abs(curves[label].order - order) < 0.1  # the steps are not infinitely small
    np.testing.assert_array_equal(curves["frame"].steps, [10, 20, 40, 80, 160])
    np.testing.assert_array_equal(curves["frame"].work, curves["frame"].steps)
    np.testing.assert_array_equal(curves["frame@4"].work, 5 * curves["frame@4"].steps)  # Suzuki's five stages
    lines = {line.get_label().partition(",")[0]: line for line in ax.lines}
    for label, curve in curves.items():
        np.testing.assert_array_equal(lines[label].get_data(), (curve.work, curve.error))
        assert lines[label].get_label() == f"{label}, order {curve.order:.2f}"
    assert ax.get_xscale() == ax.get_yscale() == "log"
    exact = run(da.Reference(), 0.5, time=4.0)
    rough = run(da.FrameGradient(), 0.4, time=4.0)
    gap = np.sqrt(np.mean((rough.q[-1] - exact.q[-1]) ** 2)) / np.max(np.abs(exact.q[-1] - exact.q[0]))
    # Both references are exact to some 1e-13; the error itself is about 1e-2.
    np.testing.assert_allclose(curves["frame"].error[0], gap, rtol=1e-9)


def test_orders_are_fitted_above_rounding():
    methods = [da.Composition(da.FrameGradient(), order) for order in (8, 10)]
    steps = [0.5**k for k in range(1, 7)]
    ax, curves = work_precision(SYSTEM, methods, h=steps, t=8.0)
    eighth, tenth = curves.values()
    assert np.count_nonzero(eighth.error > PLATEAU) == 3
    # The coarsest step is long for order eight, where the slope is 8.6; with the plateau it would be below 6.
    assert 7.4 < eighth.order < 9
    everything = np.polyfit(np.log(eighth.h), np.log(eighth.error), 1)[0]
    assert everything < 6
    assert np.count_nonzero(tenth.error > PLATEAU) == 2
    assert np.isnan(tenth.order)  # two points are no fit
    assert ax.lines[1].get_label() == "frame@10"
    assert ax.texts[0].get_text() == "rounding"


def test_closed_solutions_own_functions_and_velocities():
    particle = Z.NonholonomicParticle()
    q0, v0 = particle.start("bump")
    options = {"h": STEPS[:4], "t": 2.0, "q0": q0, "v0": v0}
    closed = work_precision(particle, [da.VariationalDLA()], **options).curves["dla-variational"]
    same = work_precision(particle, [da.VariationalDLA()], reference=particle.solution, **options)
    np.testing.assert_array_equal(closed.error, same.curves["dla-variational"].error)
    adaptive = work_precision(particle, [da.VariationalDLA()], reference=da.Reference(), **options)
    # The references agree to 1e-12 or better, of errors near 1e-4.
    np.testing.assert_allclose(closed.error, adaptive.curves["dla-variational"].error, rtol=1e-6)
    shifted = lambda t, q, v: tuple(x + 1.0 for x in particle.solution(t, q, v))
    far = work_precision(particle, [da.VariationalDLA()], reference=shifted, of="v", **options)
    assert np.all(far.curves["dla-variational"].error > 0.1)


def test_variable_steps_are_measured_where_they_end():
    particle = Z.NonholonomicParticle()
    curve = work_precision(particle, [da.EDLA()], h=STEPS[:4], t=2.0).curves["edla"]
    assert abs(curve.order - 2) < 0.2  # an end at another time would leave an error of order one


def test_times_are_multiples_of_the_first_and_steps_have_their_sizes():
    options = {"h": (0.4, 0.2), "t": 2.0}
    ax, curves = work_precision(SYSTEM, {"a": da.DLA01(), "b": da.LeapFrog()}, against="time", **options)
    assert curves["a"].work[0] == 1
    assert np.all(curves["b"].work > 0)
    assert ax.get_xlabel() == "time, relative to a at its largest step"
    ax, curves = work_precision(SYSTEM, [da.DLA01()], against="h", **options)
    # Even numbers of steps: six for the five of 0.4, or four.
    np.testing.assert_allclose(curves["dla01"].work * curves["dla01"].steps, 2.0)
    assert np.all(curves["dla01"].steps % 2 == 0)
    assert np.isnan(curves["dla01"].order)  # two points are no fit
    assert ax.lines[0].get_label() == "dla01"


def test_runs_that_fail_are_left_out():
    particle = Z.NonholonomicParticle()
    # Where the steps of EDLA grow, those that began small are lost before the large ones.
    ax, curves = work_precision(particle, [da.EDLA()], h=(0.4, 0.1), t=30.0)
    assert len(curves["edla"].error) == len(curves["edla"].h) == len(ax.lines[0].get_xdata()) == 1
    assert curves["edla"].h[0] > 0.3
    ax, curves = work_precision(SYSTEM, [da.EDLA(), da.FrameGradient()], h=(2.0, 1.0), t=20.0)
    assert len(curves["edla"].error) == 0
    assert len(curves["frame"].error) == 2
    assert ax.lines[0].get_label() == "edla, no run reached the end"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: work_precision(SYSTEM, [], h=STEPS, t=1.0), "one method or more"),
        (
            lambda: work_precision(SYSTEM, ["frame"], h=STEPS, t=1.0),
            r"methods such as FrameGradient\(\), got 'frame'",
        ),
        (lambda: work_precision(SYSTEM, [da.DLA01()], h=[], t=1.0), "list of positive step sizes"),
        (lambda: work_precision(SYSTEM, [da.DLA01()], h=[0.1, -1], t=1.0), "list of positive step sizes"),
        (lambda: work_precision(SYSTEM, [da.DLA01()], h=[2.0], t=1.0), "at most t = 1, got h = 2"),
        (lambda: work_precision(SYSTEM, [da.DLA01()], h=STEPS, t=0.0), "t must be a positive time, got 0.0"),
        (lambda: work_precision(SYSTEM, [da.DLA01()], [0, 0, 0], h=STEPS, t=1.0), "q0 and v0, or neither"),
        (lambda: work_precision(SYSTEM, [da.DLA01()], h=STEPS, t=1.0, reference=3), "a method or a function"),
        (
            lambda: work_precision(SYSTEM, [da.DLA01()], h=STEPS, t=1.0, against="cost"),
            "one of steps, time, h",
        ),
        (lambda: work_precision(SYSTEM, [da.LieGNI()], h=STEPS, t=1.0), "group"),
    ],
)
def test_bad_input_of_work_precision_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
