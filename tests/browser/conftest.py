"""A browser for the tests, and pages that write down what they ask for and complain about."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class QuietPage:
    """A page of the browser, the addresses it asked for and the errors in its console."""

    page: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def watch(self) -> "QuietPage":
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        return self


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium, started once."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser on the PATH: {', '.join(NAMES)}")
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Any, pixels: float = 1.0) -> Iterator[QuietPage]:
    """A new page, 1280 x 800, with `pixels` of the picture to a pixel of the page."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme="light", device_scale_factor=pixels
    )
    yield QuietPage(context.new_page()).watch()
    context.close()


@pytest.fixture
def quiet_page(browser) -> Iterator[QuietPage]:
    """A new page; its `requests` and `errors` grow while the test runs."""
    with opened(browser) as page:
        yield page
