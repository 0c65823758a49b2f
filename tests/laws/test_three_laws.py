"""[cortes2003] Theorem 1, by Ge and Marsden: no fixed step keeps the form, the momentum and the energy together."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import dalembert as da

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def page():
    """docs/reduction.py, whose measurements docs/reduction.md quotes."""
    sys.path.append(str(DOCS))
    spec = importlib.util.spec_from_file_location("reduction_page", DOCS / "reduction.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    yield made
    sys.path.remove(str(DOCS))


KEPT = {"gni": (True, True, False), "dd": (False, False, True), "edla": (True, True, True)}


@pytest.mark.parametrize("method", [da.GNI(), da.DiscreteGradient(), da.EDLA()], ids=lambda m: m.cli_name)
def test_what_each_method_keeps(method, page):
    """What is kept is kept to rounding; what is not is off by far more than that."""
    for value, kept in zip(page.laws_kept(method, steps=100), KEPT[method.cli_name], strict=True):
        assert value < 1e-12 if kept else value > 1e-5


def test_the_steps_of_edla_vary(page):
    """It does not contradict the theorem, because its steps are not of one size."""
    masses = page.two_masses()
    run = da.simulate(masses, da.EDLA(), [1.0, 0.2, -0.4, 0.7], [0.1, 0.8, -0.6, 0.2], h=0.05, steps=100)
    sizes = np.asarray(run.step_data["h"][1:])
    assert sizes.max() > 1.5 * sizes.min()
