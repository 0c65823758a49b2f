"""What the README prints runs as printed (docs/ runs when it is built); citations resolve; words are true."""

import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import dalembert as da

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_of_the_readme_prints_what_it_says(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    printed = re.search(r"It prints\n\n((?:    .*\n)+)", README)
    assert printed
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line.strip() for line in printed[1].splitlines()]
    assert (tmp_path / "skate.png").stat().st_size > 5000
    assert len([x for x in code.splitlines() if x.strip()]) <= 15, "the README promises a short example"


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link


def test_citations_resolve():
    keys = set(re.findall(r"@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text()))
    cited = set()
    for path in (ROOT / "src").rglob("*.py"):
        cited |= set(re.findall(r"\[([a-z]+\d{4})\]", path.read_text()))
    assert cited
    assert cited <= keys


def test_every_public_name_has_a_docstring():
    for name in da.__all__:
        assert getattr(da, name).__doc__, name
    for name in da.zoo.__all__:
        assert getattr(da.zoo, name).__doc__, name


def test_the_package_shows_its_public_names_and_nothing_else():
    assert set(dir(da)) == {*da.__all__, "__version__"}


def test_no_module_shares_its_name_with_a_function_inside_it():
    """So that `import dalembert.simulation.engines` gives the module, whatever the package exports."""
    for found in pkgutil.walk_packages(da.__path__, "dalembert."):
        module = import_module(found.name)
        name = found.name.rpartition(".")[2]
        inside = getattr(module, name, None)
        assert not (callable(inside) and getattr(inside, "__module__", None) == found.name), found.name
        assert getattr(import_module(found.name.rpartition(".")[0]), name) is module, found.name


def test_the_changelog_knows_this_version():
    assert f"## {da.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_methods_call_no_linalg():
    for path in (ROOT / "src").rglob("*.py"):
        if path.parent.name in ("methods", "discrete", "numerics"):
            assert "jnp.linalg" not in path.read_text(), path


def test_import_is_light():
    """What a run of one's own system does not need is imported only when used."""
    others = ("xarray", "matplotlib", "diffrax", "zarr", "cyclopts", "rich")
    others += tuple(
        f"dalembert.{part}" for part in ("zoo", "bodies", "diagnostics", "reduction", "view", "sweeps")
    )
    code = f"import sys, dalembert as da; before = [m for m in {others} if m in sys.modules]\n"
    code += "assert all(hasattr(da, name) for name in da.__all__); print(before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_single_precision_can_be_asked_for():
    code = "import dalembert as da; s = da.zoo.KnifeEdge();"
    code += "print(da.simulate(s, da.LeapFrog(), *s.start(), h=0.1, steps=10).q.dtype)"
    environment = {"JAX_ENABLE_X64": "0", "PATH": "", "HOME": "/"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "float32", done.stderr
