"""The animation's page in a browser: it plays from a file, asks for nothing, and does what its controls say."""

import io
import time

import matplotlib.image
import numpy as np
import pytest

import dalembert as da
from dalembert.view.animation import animate


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two runs, shown to t = 20 of 60."""
    disk = da.zoo.RollingDisk()
    runs = [da.simulate(disk, m, *disk.start(), h=0.1, steps=600) for m in (da.FrameGradient(), da.DLA01())]
    path = tmp_path_factory.mktemp("player") / "run.html"
    animate(runs, path, t=(0.0, 20.0), labels=["frame", "<b>bold</b>"])
    return path


@pytest.fixture
def opened(quiet_page, file):
    quiet_page.page.goto(file.as_uri())
    until(quiet_page.page, "window.player !== undefined")
    yield quiet_page
    assert quiet_page.errors == []
    assert quiet_page.requests == [file.as_uri()]


def until(page, expression, seconds=15.0):
    """Waits from outside: the page's own rules forbid the code that Playwright would leave in it to watch."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"waited {seconds} s for {expression}"
        time.sleep(0.02)


def picture(page, what="#view"):
    """(height, width, 3) what one sees of an element."""
    return matplotlib.image.imread(io.BytesIO(page.locator(what).screenshot()))[:, :, :3]


def drawn(page):
    """Waits until everything asked for so far has been drawn."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def hidden_hint(page):
    until(page, "getComputedStyle(document.getElementById('hint')).opacity === '0'")


def held(page, t):
    """The page at this time, not playing."""
    if page.evaluate("player.playing"):
        page.click("#play")
    page.evaluate(f"player.seek({t})")
    until(page, f"document.getElementById('clock').value.startsWith('t = {t:g}')")
    return page


def test_it_plays_by_itself_and_pauses(opened):
    page = opened.page
    assert page.title() == "RollingDisk"
    assert page.evaluate("player.playing")
    until(page, "player.time > 0.2")
    page.click("#play")
    assert page.evaluate("player.playing") is False
    stopped = page.evaluate("player.time")
    page.wait_for_timeout(200)
    assert page.evaluate("player.time") == stopped
    assert page.get_by_role("button", name="play").count() == 1
    before = picture(page)
    page.get_by_role("button", name="play").click()
    until(page, f"Math.abs(player.time - {stopped}) > 1")
    page.click("#play")
    assert np.abs(picture(page) - before).max() > 0.1, "nothing moved"


def test_slider_keys_and_speed(opened):
    page = held(opened.page, 5.0)
    slider = page.get_by_role("slider", name="time")
    assert slider.get_attribute("aria-valuetext").startswith("t = 5.00 of 20 (run goes to 60)")
    slider.evaluate("s => { s.value = s.max / 2; s.dispatchEvent(new Event('input')); }")
    assert page.evaluate("player.time") == pytest.approx(10.0, abs=1e-5)  # float32 times
    frame = page.evaluate("player.frame")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("player.frame") == frame + 2
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("player.frame") == frame + 1
    page.keyboard.press("End")
    assert page.evaluate("player.time") == pytest.approx(20.0, abs=1e-5)
    page.keyboard.press("Home")
    assert page.evaluate("player.time") == 0
    page.select_option("#speed", "4")
    page.locator("body").press(" ")
    assert page.evaluate("player.playing")
    page.keyboard.press(" ")
    assert not page.evaluate("player.playing")


def test_without_loop_it_ends_at_the_end(opened):
    page = held(opened.page, 19.5)
    page.uncheck("#loop")
    page.click("#play")
    until(page, "!player.playing")
    assert page.evaluate("player.time") == pytest.approx(20.0, abs=1e-5)  # float32 times
    page.check("#loop")
    page.click("#play")
    until(page, "player.playing && player.time < 19")


def test_drag_and_wheel_change_the_view_and_a_double_click_resets_it(opened):
    page = held(opened.page, 8.0)
    page.mouse.move(400, 350)
    page.mouse.down()
    page.mouse.up()
    hidden_hint(page)
    home = picture(page)
    page.mouse.down()
    page.mouse.move(520, 300, steps=4)
    page.mouse.up()
    drawn(page)
    turned = picture(page)
    assert np.abs(turned - home).max() > 0.1
    page.mouse.wheel(0, -400)
    drawn(page)
    assert np.abs(picture(page) - turned).max() > 0.1
    page.mouse.dblclick(400, 350)
    drawn(page)
    np.testing.assert_array_equal(picture(page), home)


def test_dark_mode_and_labels_as_text(opened):
    page = held(opened.page, 8.0)
    assert page.locator("#legend li").all_text_contents() == ["frame", "<b>bold</b>"]
    assert page.locator("#legend li b").count() == 0
    assert page.locator(".plot").count() >= 2
    light = picture(page, "body")
    page.emulate_media(color_scheme="dark")
    drawn(page)
    dark = picture(page, "body")
    assert np.median(light) > 0.9
    assert np.median(dark) < 0.2
    assert dark.max() > 0.7, "nothing can be seen in the dark"


def test_who_asks_for_less_motion_gets_a_still(opened, file):
    page = opened.page
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    until(page, "window.player !== undefined")
    assert not page.evaluate("player.playing")
    opened.requests.pop()  # the reload


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits(opened, width):
    page = opened.page
    page.set_viewport_size({"width": width, "height": 844})
    drawn(page)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    view, panels = page.locator("#view").bounding_box(), page.locator("#panels").bounding_box()
    beside = panels["x"] >= view["x"] + view["width"]
    below = panels["y"] >= view["y"] + view["height"]
    assert (beside, below) == ((True, False) if width > 760 else (False, True))


def test_fingers_zoom(browser, file):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(file.as_uri())
    until(page, "window.player !== undefined")
    held(page, 8.0)
    before = picture(page)
    client = context.new_cdp_session(page)
    for kind, gap in (("touchStart", 40), ("touchMove", 60), ("touchMove", 120)):
        points = [{"x": 195 - gap, "y": 250, "id": 0}, {"x": 195 + gap, "y": 250, "id": 1}]
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    hidden_hint(page)
    drawn(page)
    assert np.abs(picture(page) - before).mean() > 0.002  # the hint alone changes less
    context.close()


def test_in_a_notebook_it_plays_too(quiet_page, tmp_path, file):
    disk = da.zoo.RollingDisk()
    shown = da.simulate(disk, da.FrameGradient(), *disk.start(), h=0.1, steps=100).animate()
    path = tmp_path / "cell.html"
    path.write_text(f"<!doctype html><body>{shown._repr_html_()}</body>", encoding="utf-8")
    quiet_page.page.goto(path.as_uri())
    frame = quiet_page.page.frames[1]
    until(frame, "window.player && player.time > 0.2")
    assert quiet_page.errors == []
    assert [x for x in quiet_page.requests if not x.startswith("about:")] == [path.as_uri()]
