"""Everything docs/errata.md says is shown by docs/errata.py, and the other way round."""

import importlib
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))  # where Python finds the script's other part, as it does when the script is run
ERRATA = importlib.import_module("errata")
PAGE = (DOCS / "errata.md").read_text()
ROWS = re.findall(r"^\|(.*)\| `([a-z0-9-]+)` \|$", PAGE, re.M)
# Numbers that are measured have a point or an exponent; those of sections and figures stand in the first column.
NUMBER = r"(?<![\w.])-?\d+(?:\.\d+(?:e-?\d+)?|e-?\d+)"
COMPARED = {
    name: text.split("|")[1:] for text, name in ROWS if PAGE.index(text) > PAGE.index("[ferraro2008]")
}


@pytest.mark.parametrize("name", ERRATA.ENTRIES)
def test_entry(name, capsys):
    ERRATA.main([name])
    said = capsys.readouterr().out
    assert len(said.splitlines()) >= 2, "it says what it measured"
    for number in re.findall(NUMBER, " ".join(COMPARED.get(name, ()))):
        assert number in re.findall(NUMBER, said), f"the page says {number}, the script does not"


def test_the_page_has_numbers():
    found = re.findall(NUMBER, " ".join(text for parts in COMPARED.values() for text in parts))
    assert {"0.00049", "-0.2400", "0.75", "0.238"} <= set(found)
    assert {"1.99", "0.04", "0.63", "0.78", "1.89", "10.98", "0.926"} <= set(found)


def test_page_and_script_agree():
    assert {name for _, name in ROWS} == set(ERRATA.ENTRIES)


def test_a_wrong_name_lists_the_choices():
    with pytest.raises(SystemExit, match=r"driver-potential.*action-scale.*where-steps-exist"):
        ERRATA.main(["nonsense"])
