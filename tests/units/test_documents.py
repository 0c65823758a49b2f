"""What the README prints runs as printed (docs/ runs when it is built); citations resolve; words are true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dalembert as da

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: str(BLOCKS.index(code)))
def test_code_blocks_run_as_printed(code, tmp_path):
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "skate.png" in code:
        energy, constraint = (float(line.split()[-1]) for line in done.stdout.splitlines())
        assert energy < 1e-12
        assert constraint < 1e-12
        assert (tmp_path / "skate.png").stat().st_size > 5000
        lines = [x for x in code.splitlines() if x.strip()]
        assert len(lines) <= 15, "the README promises a short example"


def test_citations_resolve():
    keys = set(re.findall(r"@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text()))
    cited = set()
    for path in (ROOT / "src").rglob("*.py"):
        cited |= set(re.findall(r"\[([a-z]+\d{4})\]", path.read_text()))
    assert cited
    assert cited <= keys


def test_every_public_name_has_a_docstring_and_is_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    for name in da.__all__:
        thing = getattr(da, name)
        assert thing.__doc__, name
        if name not in ("Status", "Trajectory", "Method"):
            assert name in readme, name
    for name in da.zoo.__all__:
        assert getattr(da.zoo, name).__doc__, name
        assert name in readme, name


def test_the_changelog_knows_this_version():
    assert f"## {da.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f'version = "{da.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_methods_call_no_linalg():
    for path in (ROOT / "src").rglob("*.py"):
        if path.parent.name in ("methods", "discrete", "numerics"):
            assert "jnp.linalg" not in path.read_text(), path


def test_import_is_light():
    """xarray, matplotlib, diffrax and the command line's libraries are imported only when used."""
    code = "import sys, dalembert; print([m for m in ('xarray', 'matplotlib', 'diffrax', 'zarr', 'cyclopts', 'rich') "
    code += "if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_single_precision_can_be_asked_for():
    code = "import dalembert as da; s = da.zoo.KnifeEdge();"
    code += "print(da.simulate(s, da.LeapFrog(), *s.start(), h=0.1, steps=10).q.dtype)"
    environment = {"JAX_ENABLE_X64": "0", "PATH": "", "HOME": "/"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "float32", done.stderr
