"""The documentation is built once, with every example on it, and looked at as it came out."""

import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import dalembert as da

DOCS = Path(__file__).parents[2] / "docs"
PARTS = (da, da.zoo, da.groups, da.discrete, da.diagnostics, da.reduction)
REASON = "the documentation is built with the extra `docs`: pip install '.[docs]'"
# What a browser fetches by itself; a link that a reader may follow is something else.
FETCHED = (
    r"<(?:script|img|iframe|source|video|embed|link)\b[^>]*?\b(?:src|href|srcset|data)=[\"']?([^\"'\s>]+)"
)
OUTSIDE = re.compile(r"^(?:[a-z]+:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason=REASON)
    pytest.importorskip("myst_nb", reason=REASON)
    out = tmp_path_factory.mktemp("docs")
    # Warnings are errors: so are examples that fail, and pages that the table of contents does not reach.
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    return out


def test_every_public_name_is_in_the_reference(site):
    *_, packed = (
        (site / "objects.inv").read_bytes().split(b"\n", 4)
    )  # four lines of text, then names and places
    lines = zlib.decompress(packed).decode().splitlines()
    there = {line.split()[0] for line in lines if line.split()[1].startswith("py:")}
    wanted = {f"dalembert.{name}" for name in da.__all__}
    for part in PARTS[1:]:
        wanted |= {f"dalembert.{part.__name__.split('.')[-1]}.{name}" for name in part.__all__}
    assert wanted <= there, f"not in docs/api: {sorted(wanted - there)}"


def test_pages_ask_for_nothing_from_outside(site):
    pages = [*site.rglob("*.html")]
    assert pages
    for page in pages:
        asked = [x for x in re.findall(FETCHED, page.read_text()) if OUTSIDE.match(x)]
        assert asked == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text()), style.name


def test_every_page_is_built_and_in_the_contents(site):
    contents = (site / "index.html").read_text()
    for page in (p.relative_to(DOCS) for p in DOCS.rglob("*") if p.suffix in (".md", ".rst")):
        if page.name == "index.md" or any(part.startswith("_") for part in page.parts):
            continue
        assert (site / page).with_suffix(".html").exists(), page
        assert f'href="{page.with_suffix(".html")}"' in contents, f"{page} is not in the contents of index.md"


def test_citations_and_results_are_shown(site):
    method = (site / "api" / "methods.html").read_text()
    assert re.search(r'href="[./]*references\.html#[^"]+"', method), "[modin2020] is a link to the references"
    assert ":cite:" not in method
    page = (site / "audit.html").read_text()
    assert "[modin2020]" not in page
    assert "cell_output" in page
