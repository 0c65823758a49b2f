"""Writes the pictures of the explorer: python docs/screenshots.py FOLDER [NAME ...]; needs a Chromium."""

import io
import shutil
import sys
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import dalembert as da

# Methods, parameters, start, and the time that is shown.
SHOWN = {
    "RollingDisk": (["frame", "leapfrog"], {}, None, 12.3),
    "ChaplyginSleigh": (["frame", "gni"], {}, None, 6.0),
    "Snakeboard": (["frame", "leapfrog", "dla01"], {}, None, 7.0),
    "PendulumCVT": (["frame", "leapfrog", "dla01"], {"eps": 0.5}, "rotating", 2.3),
}
STEPS, SIZE, LARGEST = 10_000, (1400, 850), 200_000


def main(folder: Path, names: list[str]) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name in names or SHOWN:
            methods, parameters, start, moment = SHOWN[name]
            explorer = da.explore(name, methods, parameters=parameters, start=start, steps=STEPS)
            page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
            page.goto(explorer.url)
            page.get_by_text("constraint residual").first.wait_for(timeout=120_000)
            for close in page.locator(".mantine-Notification-closeButton").all():
                close.click()  # it says that there is no graphics card
            while not explorer.page.settled:
                time.sleep(0.1)
            explorer.page.seek(moment)
            time.sleep(6)  # without a graphics card
            picture = Image.open(io.BytesIO(page.screenshot())).convert("P", palette=Image.Palette.ADAPTIVE)
            path = folder / f"explorer-{name.lower()}.png"
            picture.save(path, optimize=True)
            assert path.stat().st_size < LARGEST, path
            print(path, path.stat().st_size)
            page.close()
            explorer.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
