"""The report in a browser that can reach nothing: every picture must decode, and nothing may be asked for."""

import os
import re
import shutil
import subprocess

import pytest

from dalembert.lab.studies import reproduce

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")

# Put at the end of a copy of the page: what the browser made of the images, and what it asked for.
PROBE = """<pre id="probe"></pre><script>
addEventListener("load", () => {
  const images = [...document.images].map(i => i.complete && i.naturalWidth > 0 ? "decoded" : "broken");
  const asked = performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:"));
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  document.getElementById("probe").textContent =
    `images=${images.join(",")} asked=${asked.length} overflow=${wide}`;
});
</script>"""


def browse(page, folder, *options):
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=5000",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}",
        *options,
        page.as_uri(),
    ]
    environment = os.environ | {"HOME": str(folder)}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment
    ).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    outcome = reproduce(("fig4", "fig5"), quick=True, folder=folder)
    text = outcome.report.read_text(encoding="utf-8")
    (folder / "probe.html").write_text(text.replace("</main>", PROBE + "</main>"), encoding="utf-8")
    return folder


@pytest.mark.parametrize("width", [1280, 500])
def test_pictures_decode_and_nothing_is_asked_for(folder, width):
    dom = browse(folder / "probe.html", folder, f"--window-size={width},1000", "--dump-dom")
    told = re.search(r"images=(\S+) asked=(\d+) overflow=(-?\d+)", dom)
    assert told is not None
    assert told[1].split(",") == ["decoded", "decoded"]
    assert told[2] == "0"
    assert int(told[3]) <= 0, "the page itself must not scroll sideways"


def test_screenshot(folder):
    browse(folder / "report.html", folder, "--window-size=1280,2400", f"--screenshot={folder / 'page.png'}")
    assert (folder / "page.png").stat().st_size > 50_000
