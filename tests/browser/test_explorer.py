"""The explorer in a real browser: it opens, answers, plays, exports, and asks nothing of the world."""

import re
import time
from urllib.parse import urlparse

import numpy as np
import pytest
from browser.conftest import opened

import dalembert as da

pytest.importorskip("viser", reason="viser is not installed: pip install 'dalembert[explore]'")

# Drawing without a graphics card on a busy machine is slow; waiting ends as soon as the condition holds.
PATIENCE = 90.0


def wait(condition, what):
    """Waits until the condition holds, and returns what it gave."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {PATIENCE:g} s for {what}")


@pytest.fixture(scope="module")
def explorer():
    running = da.explore("RollingDisk", ["frame", "leapfrog"], steps=400)
    yield running
    running.close()


@pytest.fixture
def quiet_page(browser):
    # The processor draws the scene here, and a sixteenth of its pixels is enough to see that it moves.
    with opened(browser, pixels=0.25) as page:
        yield page


@pytest.fixture
def page(explorer, quiet_page):
    """The page with its first answer on it."""
    page = quiet_page.page
    page.set_default_timeout(1000 * PATIENCE)
    page.set_viewport_size({"width": 1000, "height": 700})
    page.goto(explorer.url)
    page.get_by_text("relative energy error").first.wait_for()
    wait(lambda: explorer.page.answer is not None, "the first answer")
    return page


def field(page, label):
    """The input beside a label."""
    return page.locator(
        f"xpath=//label[normalize-space()='{label}']/following::input[not(@type='hidden')][1]"
    ).first


def choose(page, label, option):
    field(page, label).click()
    page.get_by_role("option", name=option, exact=True).first.click()


def type_into(page, label, text):
    box = field(page, label)
    box.fill(text)
    box.press("Enter")
    box.blur()


def shown(explorer):
    return explorer.page.answer


def test_it_opens_answers_plays_and_stays_on_this_machine(explorer, page, quiet_page):
    assert page.get_by_text("dalembert", exact=True).first.is_visible()
    # Methods switch: the legend and the verdicts follow.
    before = shown(explorer)
    choose(page, "method 2", "dla01")
    wait(lambda: shown(explorer) is not before, "an answer to another method")
    assert [run.method.cli_name for run in shown(explorer).runs] == ["frame", "dla01"]
    wait(lambda: "dla01" in page.inner_text("body"), "the verdict on dla01")
    assert "leapfrog" not in [curve.label for curve in shown(explorer).panels[0].curves]
    # Another step size is another run.
    before = shown(explorer)
    type_into(page, "h", "0.05")
    wait(lambda: shown(explorer) is not before, "an answer to another step size")
    assert float(shown(explorer).runs[0].t[-1]) == pytest.approx(20.0, rel=1e-12)  # 400 steps: rounding
    # Play moves the disc, pause stops it.
    canvas = page.locator("canvas").first
    actor = explorer.page.stage.actors[-1]
    place, picture = np.array(actor.frame.position), canvas.screenshot()
    page.get_by_role("button", name="Play").click()
    wait(lambda: explorer.page.now > 1.0, "the time to pass")
    assert np.linalg.norm(np.array(actor.frame.position) - place) > 0.01
    wait(lambda: canvas.screenshot() != picture, "the picture to change")
    page.get_by_role("button", name="Pause").click()
    wait(lambda: not explorer.page.playing, "the pause")
    time.sleep(0.3)
    stopped = explorer.page.now
    time.sleep(0.5)
    assert explorer.page.now == stopped
    # The slider of time moves the disc as well.
    type_into(page, "time", "10")
    wait(lambda: abs(explorer.page.now - 10) < 0.1, "the slider")
    k = int(np.searchsorted(shown(explorer).film.times, explorer.page.now))
    assert np.allclose(
        explorer.page.stage.actors[-1].frame.position, shown(explorer).film.copies[1].parts[-1].at[k]
    )
    # Nothing left this machine.
    hosts = {urlparse(url).hostname for url in quiet_page.requests if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}
    assert quiet_page.errors == []


def test_a_slider_changes_the_run_and_another_system_its_controls(explorer, page):
    before = shown(explorer)
    choose(page, "system", "ChaplyginSleigh")
    wait(
        lambda: shown(explorer) is not before and shown(explorer).request.system == "ChaplyginSleigh",
        "the sleigh",
    )
    offset = field(page, "offset")
    offset.wait_for()
    before = shown(explorer)
    type_into(page, "offset", "0.3")
    wait(lambda: shown(explorer) is not before, "an answer to another offset")
    assert dict(shown(explorer).request.parameters)["offset"] == pytest.approx(
        0.3, abs=0.003
    )  # a slider's notch
    assert float(shown(explorer).runs[0].system.offset) == dict(shown(explorer).request.parameters)["offset"]


def test_a_bad_value_shows_a_message_and_the_page_lives_on(explorer, page):
    choose(page, "system", "ChaplyginSleigh")
    wait(lambda: shown(explorer).request.system == "ChaplyginSleigh", "the sleigh")
    for label, bad, words in (
        ("h", "-0.1", "h must be"),
        ("q0", "0, zero, 0", "q0 must be numbers"),
        ("v0", "1, 1, 1", "the start velocity violates"),
    ):
        good = field(page, label).input_value()
        type_into(page, label, bad)
        wait(lambda words=words: words in page.inner_text("body"), f"the message on {label}")
        before = shown(explorer)
        type_into(page, label, good)
        wait(lambda words=words: words not in page.inner_text("body"), f"the message on {label} to go")
        wait(
            lambda before=before: (
                shown(explorer) is not before or before.request.h == float(field(page, "h").input_value())
            ),
            "a run",
        )


def test_export_plays_by_itself_and_the_script_is_offered(explorer, page, browser, tmp_path):
    with page.expect_download() as download:
        page.get_by_role("button", name="Export HTML").click()
    path = tmp_path / "export.html"
    download.value.save_as(path)
    assert re.fullmatch(r"\w+\.html", download.value.suggested_filename)
    other = browser.new_page()
    asked = []
    other.on("request", lambda request: asked.append(request.url))
    other.goto(path.as_uri())
    first = other.evaluate("window.player.time")
    wait(lambda: other.evaluate("window.player.time") > first, "the exported film to play")
    assert other.evaluate("window.player.playing")
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    other.close()
    page.get_by_role("button", name="Copy as Python").click()
    page.get_by_text("import dalembert as da").wait_for()
    text = page.locator("pre", has_text="import dalembert").inner_text()
    assert f"da.zoo.{shown(explorer).request.system}(" in text
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").strip() == text.strip()
