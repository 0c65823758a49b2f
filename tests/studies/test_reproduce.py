"""The studies in their quick form: verdicts as corrected, files, and a report that stands alone."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from command_line import called, program

import dalembert as da
from dalembert.lab.studies import STUDIES, chosen, maps, reproduce
from dalembert.lab.studies.shared_runs import KNIFE_EPS, METHODS, PANELS, Panel
from dalembert.lab.studies.table1 import involution_names
from dalembert.methods import method_from_text

HARD = Panel("rotating", 0.5)


@pytest.fixture(scope="module")
def page(outcome):
    return outcome.report.read_text(encoding="utf-8")


def expected(integral, panel, method):
    """The corrected verdicts: DD drifts with the rotating perturbed driver alone."""
    if method.startswith("frame") and integral != "latitude":
        return "exact"
    if method.startswith("frame") or method == "leapfrog:momentum":
        return "bounded"
    if method == "dd":
        return "DRIFT" if panel == HARD else "bounded"
    if integral == "h":
        return "bounded"
    return "DRIFT" if method == "dla:0.4" or panel == HARD else "bounded"


@pytest.mark.parametrize(("study", "integral"), [("fig6", "E"), ("fig7", "h"), ("fig8", "latitude")])
def test_verdicts_on_the_cvt(outcome, study, integral):
    runs = outcome.results[study].data
    for method in METHODS:
        for panel in PANELS:
            kept = runs[method][panel]
            assert str(kept.drift.verdict) == expected(integral, panel, method), (method, panel)
            assert np.all(np.isfinite(kept.mean))


def test_knife_edge(outcome):
    runs = outcome.results["fig4"].data
    wanted = {
        "dla:0.5": (5.06e-2, 20.0),
        "dla01": (5.06e-2, 20.0),
        "leapfrog:momentum": (0.197, 42.0),
        "dla:0.4": (32.5, 108.0),
    }
    for method, values in wanted.items():
        for eps, value in zip(KNIFE_EPS, values, strict=True):
            assert runs[method, eps].on.largest == pytest.approx(value, rel=0.02), (method, eps)
    for method in ("dd", "frame", "frame@4"):
        for eps in KNIFE_EPS:
            assert str(runs[method, eps].kept.drift.verdict) == "exact"
    for eps in KNIFE_EPS:
        assert str(runs["leapfrog:momentum", eps].own.verdict) == "exact"
    verdicts = [
        str(runs[m, 0.1].kept.drift.verdict) for m in ("dla:0.5", "dla:0.4", "dla01", "leapfrog:momentum")
    ]
    assert verdicts == ["DRIFT"] * 4
    assert [str(runs[m, 0.0].kept.drift.verdict) for m in METHODS[:4]] == [
        "bounded",
        "DRIFT",
        "bounded",
        "bounded",
    ]


def test_period_maps(outcome):
    portraits = outcome.results["fig5"].data.portraits
    hard = portraits[HARD]
    assert hard.period == pytest.approx(2.626366714265, abs=1e-11)
    assert hard.angle == pytest.approx(2.128720420674, abs=1e-11)
    assert hard.latitude == pytest.approx(-0.920199418654, abs=1e-11)
    assert portraits[Panel("oscillating", 0.0)].period == pytest.approx(10.312368453393, abs=1e-10)
    assert portraits[Panel("rotating", 0.0)].mirror < 1e-12 < 0.1 < hard.mirror


def test_structure(outcome):
    found = outcome.results["table1"].data
    assert [found[n].fibre for n in ("knife edge", "mobile robot", "rolling disk")] == [2, 3, 3]
    assert involution_names(found["pendulum CVT, rotating"]) == ["(-y1, y2, -v)"]
    assert "(y, -v)" in involution_names(found["pendulum CVT, oscillating"])
    assert not found["pendulum CVT, rotating, eps = 0.5"].involutions
    assert not found["knife edge, eps = 0.1"].compact
    tones = [cell.tone for row in outcome.results["table1"].tables[0].rows for cell in row]
    assert tones.count("differs") == 3


def test_fibration_and_reversibility(outcome):
    found = outcome.results["table34"].data
    for (method, system), defects in found.items():
        keeps = (method, system) != ("dd", "pendulum CVT")
        assert (defects.fibration < 1e-12) == keeps, (method, system)
        assert (defects.reversibility < 1e-12) == (method != "dla:0.4"), (method, system)
    assert found["leapfrog:momentum", "pendulum CVT"].plain > 0.1


def test_resonance(outcome):
    data = outcome.results["resonance"].data
    for name, sweep in data.sweeps.items():
        assert np.all(np.isfinite(sweep.worst)), name
    near = {n: s.worst[np.abs(s.ratio - 14) < 0.25].max() for n, s in data.sweeps.items()}
    assert near["leap-frog"] > 0.4
    assert near["DD with separate gradients"] > 0.2
    assert data.sweeps["frame"].worst.max() < 1e-9


def test_maps(outcome):
    """Against single runs, and the period against the one that the orbit of the driver has."""
    data = outcome.results["maps"].data
    system = da.zoo.PendulumCVT(eps=maps.EPS)
    coupled = da.CoupledSystem.of(system)
    q0, _ = system.start("rotating")
    for energy in (2.6, 4.0, 8.0):
        found = da.diagnostics.orbit(coupled, 0.0, np.sqrt(2 * energy)).period
        # the orbit is closed by a root search to 1e-10
        assert maps.period(np.array([energy]))[0] == pytest.approx(found, rel=1e-9)
    table = data.resonance
    assert not np.any(table["status"])
    assert table["passenger_error"].sel(integrator="frame").max() < 1e-9
    for name in ("leapfrog:momentum", "frame"):
        one = table.sel(integrator=name).isel(driver_energy=7, ratio=60)
        energy, ratio = float(one.driver_energy), float(one.ratio)
        h = float(maps.period(np.array([energy]))[0]) / ratio
        v0 = [0.0, 0.0, np.sqrt(2 * energy)]
        run = da.simulate(system, method_from_text(name), q0, v0, h=h, steps=data.sizes.steps)
        passenger = 0.5 * np.sum(run.q[:, :2] ** 2 + run.v[:, :2] ** 2, axis=1)
        worst = np.max(np.abs(passenger - passenger[0]))
        # an ensemble agrees with a single run to rounding, which a thousand steps multiply
        assert float(one.passenger_error) == pytest.approx(worst, rel=1e-6, abs=1e-12)
    errors = table["passenger_error"].sel(integrator="dd:average")
    near = errors.where(np.abs(table.ratio - 10) < 0.3, drop=True).max("ratio")
    beside = errors.where(np.abs(table.ratio - 29) < 0.3, drop=True).max("ratio")
    assert np.all(near > 5 * beside), "resonant steps are worse at every energy"


def test_mechanism(outcome):
    data = outcome.results["mechanism"].data
    assert data.modified.max() < 1e-12 < 1e-2 < data.energy.max()
    leapfrog, dla = data.cocycles["leapfrog:momentum"], data.cocycles["dla:0.5"]
    assert leapfrog.defect.max() < 1e-13
    assert leapfrog.determinant == pytest.approx(-1, abs=1e-12)
    assert dla.defect.max() > 1e-3
    assert np.sum(data.exponents["dla:0.5", HARD]) == pytest.approx(-3.43e-4, rel=0.02)
    assert np.max(np.abs(data.exponents["leapfrog:momentum", HARD])) < 1e-5
    levels = data.parasitic["leapfrog:momentum"]
    assert levels[-1] == pytest.approx(levels[0], rel=5e-3)
    _, energy, foretold = data.decay
    assert np.max(np.abs(energy - foretold)) < 0.05


def test_modified_fields(outcome):
    """Rates from one turn agree with those of 8,192 steps, whose transients leave about a hundredth of their sum."""
    data = outcome.results["backward"].data
    for spelling in ("dla:0.4", "dla:0.5", "dla01"):
        growth, seen = data.growth[spelling], data.exponents[spelling]
        assert np.sum(growth.exponents) == pytest.approx(np.sum(seen), rel=0.02)
        assert np.max(data.skewness[spelling].defect[-1]) > 1e3 * np.max(data.skewness[spelling].error[-1])
    assert np.abs(data.growth["frame"].exponents).max() < 1e-9
    frame = data.skewness["frame"]
    assert np.all(frame.defect[-1] <= 4 * frame.error[-1])
    halved = [np.log2(x.defect.max(axis=1)[-2] / x.defect.max(axis=1)[-1]) for x in data.skewness.values()]
    assert halved[:3] == pytest.approx([1, 2, 2], abs=0.1)  # the next power of h still matters
    _, energy, foretold = data.decay
    assert (
        np.max(np.abs(energy - foretold)) < 0.05
    )  # of the order h^2, by which the energy oscillates, and phases


def test_files(outcome):
    assert outcome.missing == ()
    assert tuple(outcome.results) == tuple(STUDIES)
    drawn = {name for name in STUDIES if not name.startswith("table") and name != "maps"}
    drawn |= {"reduction-phases", "map-drift", "map-resonance"}
    assert {p.stem for r in outcome.results.values() for p in r.pictures} == drawn
    for name in drawn:
        for suffix in ("png", "svg"):
            assert (outcome.report.parent / f"{name}.{suffix}").stat().st_size > 10_000


class Reader(HTMLParser):
    """Collects what matters; complains about tags that do not match."""

    VOID = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.open, self.images, self.figures, self.captions, self.ids = [], [], 0, 0, set()
        self.addresses, self.links = [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids.add(given.get("id"))
        self.addresses += [given[k] for k in ("src", "href") if given.get(k)]
        self.figures += tag == "figure"
        self.captions += tag == "figcaption"
        if tag == "img":
            self.images.append(given)
        assert tag not in ("script", "link", "iframe")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_stands_alone(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert reader.figures == reader.captions == len(reader.images) == 17
    assert all(len(image["alt"]) > 40 for image in reader.images)
    for address in reader.addresses:
        assert address.startswith(("data:", "#"))
        assert not address.startswith("#") or address[1:] in reader.ids
    text = re.sub(r'src="data:[^"]*"', "", page)
    assert not re.search(r"https?://|url\(|@import", text)


def test_wrong_name(tmp_path):
    with pytest.raises(ValueError, match=r"no study 'fig9'. Choose from: fig4, fig5"):
        chosen(("fig9",))
    told = called("reproduce", "fig9", cwd=tmp_path)
    assert told.returncode == 1
    assert "Choose from: fig4" in told.stderr


def test_one_study_from_the_command_line(tmp_path):
    told = program("reproduce", "fig4", "--quick", "--out", str(tmp_path / "out"))
    assert told.returncode == 0, told.stderr
    assert "Figure 4" in told.stdout
    assert "report.html" in told.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"fig4.png", "fig4.svg", "report.html"}


def test_interrupted_work_is_reported(tmp_path):
    def interrupt(result):
        if result.name == "fig5":
            raise KeyboardInterrupt

    outcome = reproduce(("fig4", "fig5", "fig6"), quick=True, folder=tmp_path, finished=interrupt)
    assert set(outcome.results) >= {"fig4", "fig5"}
    assert "fig6" in outcome.missing or "fig6" in outcome.results
    if outcome.missing:
        assert "Interrupted. Not finished: fig6" in outcome.report.read_text()


def test_the_second_process_tells_the_same(outcome, tmp_path):
    """Words and tables arrive whole, and its figures are in the folder."""
    here = outcome.results["table34"]
    there = reproduce(("fig4", "table34"), quick=True, folder=tmp_path).results["table34"]
    assert there._replace(data=None, tables=()) == here._replace(data=None, tables=())

    def shape(tables):
        """All but the numbers, whose last digits depend on how the compiler was asked to work."""
        return [(t.caption, t.columns, t.groups, [[c.tone for c in row] for row in t.rows]) for t in tables]

    assert shape(there.tables) == shape(here.tables)
    assert (tmp_path / "fig4.svg").exists()


def test_without_the_second_process(tmp_path, monkeypatch):
    monkeypatch.setattr("dalembert.lab.studies.run.SCRIPT", "raise SystemExit")
    outcome = reproduce(("fig4", "table34"), quick=True, folder=tmp_path)
    assert tuple(outcome.results) == ("fig4", "table34")
