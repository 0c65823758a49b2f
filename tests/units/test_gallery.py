"""The gallery shows every system, and the verification table says what an audit says now."""

import json
import sys
from pathlib import Path

import pytest

import dalembert as da
from dalembert.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages():
    """The modules beside the pages, which are no package."""
    sys.path.insert(0, str(DOCS))
    try:
        import gallery_page
        import pictures
        import verification

        yield {"gallery": gallery_page, "pictures": pictures, "verification": verification}
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def table():
    return json.loads((DOCS / "verification.json").read_text())


def test_every_system_has_a_run_for_its_picture(pages):
    assert sorted(pages["pictures"].RUNS) == sorted(da.zoo.__all__)


def test_a_card_is_made_once_and_again_after_a_change(pages, tmp_path, monkeypatch):
    page, asked = pages["gallery"], []
    told = {"words": "A `disk` <upright> [modin2020].", "parameters": [], "starts": ["default"]}
    told |= {"conserved": ["energy"], "shown": "by frame"}
    monkeypatch.setattr(page, "card", lambda name, folder: asked.append(name) or told)
    made = page.make(tmp_path)
    assert list(made) == asked == list(pages["pictures"].RUNS)
    assert page.make(tmp_path) == made
    assert len(asked) == len(made), "files newer than the sources are used again"
    monkeypatch.setattr(page, "newest_source", lambda: (tmp_path / "cards.json").stat().st_mtime + 1)
    page.make(tmp_path)
    assert len(asked) == 2 * len(made)
    text = page.as_html("RollingDisk", told)
    assert "<code>disk</code> &lt;upright&gt;" in text
    assert 'href="_static/gallery/RollingDisk.html"' in text


def test_what_a_card_calls_conserved(pages):
    def kept(name, **parameters):
        system = getattr(da.zoo, name)(**parameters)
        run = da.simulate(system, da.FrameGradient(), *system.start(), h=system.step, steps=20)
        return pages["gallery"].conserved(system, run)

    assert kept("RollingDisk") == ["energy", "momentum (heading)"]
    assert kept("BallOnTurntable") == ["moving energy", "spin"]
    assert kept("TravellingWell") == ["momentum (with the well)"]


def test_the_table_has_every_system_and_every_family_of_methods(pages, table):
    verification = pages["verification"]
    assert list(table["cases"]) == list(verification.cases())
    for case, pairs in table["cases"].items():
        assert tuple(pairs) == verification.METHODS, case
    families = {method.partition(":")[0].partition("@")[0] for method in verification.METHODS}
    # The reference claims nothing. Taylor claims an order that no audit can see, because its errors are rounding
    # whatever the distance of rows is.
    assert families == set(METHODS) - {"reference", "taylor"}
    audited = {
        method for pairs in table["cases"].values() for method, pair in pairs.items() if "claims" in pair
    }
    assert audited == set(verification.METHODS), "each fits somewhere"


def test_the_table_holds_what_an_audit_says_now(pages, table):
    verification = pages["verification"]
    assert table["steps"] == verification.STEPS
    known, now = (
        table["cases"]["NonholonomicParticle"]["dla01"],
        verification.measured("NonholonomicParticle", {}, None, "dla01"),
    )
    assert now["claims"] == known["claims"]
    verdicts = [{name: x[0] for name, x in pair["integrals"].items()} for pair in (known, now)]
    assert verdicts[0] == verdicts[1]
    for cell in verification.TABLES:
        shown = [cell(pair)[1].partition("<small>")[0] for pair in (known, now)]
        assert shown[0] == shown[1], cell.__name__


def test_the_page_shows_every_pair(pages, table):
    parts = pages["verification"].parts()
    audits = sum("claims" in pair for pairs in table["cases"].values() for pair in pairs.values())
    for cell in pages["verification"].TABLES:
        text = parts[cell.__name__]
        assert text.count("<td") - text.count("&ndash;") == audits, cell.__name__
    for case, pairs in table["cases"].items():
        for method, pair in pairs.items():
            assert "refuses" in pair or not pair.get("broken") or f"{method} on {case}" in parts["problems"]


def test_an_audit_of_a_run_without_steps_says_so():
    with pytest.raises(ValueError, match="edla makes no step on KnifeEdge"):
        da.audit(da.zoo.KnifeEdge(), da.EDLA(), steps=10_000)
