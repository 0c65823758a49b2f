"""Everything docs/errata.md says is shown by docs/errata.py, and the other way round."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("errata", DOCS / "errata.py")
assert SPEC is not None
assert SPEC.loader is not None
ERRATA = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ERRATA)


@pytest.mark.parametrize("name", ERRATA.ENTRIES)
def test_entry(name, capsys):
    ERRATA.main([name])
    assert len(capsys.readouterr().out.splitlines()) >= 2, "it says what it measured"


def test_page_and_script_agree():
    named = set(re.findall(r"\| `([a-z0-9-]+)` \|$", (DOCS / "errata.md").read_text(), re.M))
    assert named == set(ERRATA.ENTRIES)


def test_a_wrong_name_lists_the_choices():
    with pytest.raises(SystemExit, match="driver-potential"):
        ERRATA.main(["nonsense"])
