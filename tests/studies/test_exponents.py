"""The passenger's step as a matrix: isometries where claimed, Lyapunov exponents where not."""

from functools import cache

import numpy as np
import pytest
from equations import coupled as second
from studies.suite import METHODS

import dalembert as da
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.stepmap import passenger_exponents, passenger_matrices, step_jacobian

H = 0.1
START = {"osc": "oscillating", "rot": "rotating"}
ON_TQ = ("LF", "DD", "DDS")


@cache
def coupled_of(eps: float) -> CoupledSystem:
    system = da.zoo.PendulumCVT(eps=eps)
    return CoupledSystem.of(system, system.start("rotating")[0])


def drivers(count=16):
    """Driver states all around, fast and slow, both ways."""
    draw = np.random.default_rng(8)
    return draw.uniform(-np.pi, np.pi, count), draw.uniform(-3, 3, count)


def matrices(name, eps=0.5, h=H, states=None):
    xi, eta = drivers() if states is None else states
    return passenger_matrices(coupled_of(eps), METHODS[name], h, xi, eta, name not in ON_TQ)


def away(m, form):
    """How far M^T G M is from G."""
    return float(np.max(np.abs(np.einsum("kji,jl,klm->kim", m, form, m) - form)))


@pytest.mark.parametrize("name", ["FIB-EP", "FIB-SV"])
def test_fibred_methods_rotate_the_passenger(name):
    m = matrices(name)
    assert m.shape == (16, 3, 3)
    assert away(m, np.eye(3)) < 1e-13
    assert np.linalg.det(m) == pytest.approx(1.0, abs=1e-13)


def test_methods_on_tq_reflect_the_passenger():
    """DDS is in O(4), leap-frog keeps G = diag(1 - h^2/4, 1); both have determinant -1."""
    for name, weight in (("DDS", 1.0), ("LF", 1 - H**2 / 4)):
        m = matrices(name)
        assert m.shape == (16, 4, 4)
        assert away(m, np.diag([weight, weight, 1.0, 1.0])) < 1e-13
        assert np.linalg.det(m) == pytest.approx(-1.0, abs=1e-13)
    assert away(matrices("LF"), np.eye(4)) > 1e-4


def test_dla_is_no_isometry():
    """|M^T M - 1| up to 1e-2 for DLA^1/2 at h = 0.1: the faster the driver, the larger."""
    assert 1e-3 < away(matrices("DLA0.5"), np.eye(3)) < 1e-2


@pytest.mark.parametrize("name", ["DLA0.5", "DLA01", "FIB-SV", "FIB-EP"])
def test_second_road_to_the_matrices(name):
    """The reduced step formulas, written out by hand."""
    xi, eta = drivers()
    other = second.problem("rot-0.5")
    wanted = [second.passenger_matrix(other, name, a, b, H) for a, b in zip(xi, eta, strict=True)]
    assert np.max(np.abs(matrices(name) - wanted)) < 1e-13


@pytest.mark.parametrize("name", ["DDS", "LF"])
def test_passenger_part_of_the_jacobian(name):
    """Derivatives of the whole step by differences: the passenger's block is its matrix, and the driver of
    leap-frog (Verlet) is symplectic."""
    xi, eta = (x[:8] for x in drivers())
    draw = np.random.default_rng(9)
    q = np.concatenate([draw.normal(size=(8, 2)), xi[:, None]], axis=1)
    u = np.concatenate([draw.normal(size=(8, 2)), eta[:, None]], axis=1)
    full = step_jacobian(coupled_of(0.5).system, METHODS[name], H, q, u, on_constraint=False)
    passenger = [0, 1, 3, 4]
    block = full[:, passenger][:, :, passenger]
    # Differences of order six with steps of 0.02: truncation of some 1e-10.
    assert np.max(np.abs(block - matrices(name, states=(xi, eta)))) < 1e-9
    driver = full[:, [2, 5]]
    assert np.max(np.abs(driver[:, :, passenger])) < 1e-9
    if name == "LF":
        assert np.linalg.det(driver[:, :, [2, 5]]) == pytest.approx(1.0, abs=1e-9)


def test_the_driver_of_dla_is_not_symplectic():
    """Only conjugate to a symplectic map: det - 1 is some 2e-3 at h = 0.1; for DLA01 and Verlet it is 0."""
    xi, eta = drivers()
    q = np.stack([0 * xi, 0 * xi, xi], axis=1)
    u = np.stack([0 * xi, 0 * xi, eta], axis=1)
    for name, low, high in (("DLA0.5", 5e-4, 8e-3), ("DLA01", 0, 1e-9), ("FIB-SV", 0, 1e-9)):
        full = step_jacobian(coupled_of(0.5).system, METHODS[name], H, q, u)
        # The driver moves by itself: |det| of the whole is its own times that of the passenger's matrix.
        driver = np.abs(np.linalg.det(full)) / np.abs(np.linalg.det(matrices(name)))
        assert low <= np.max(np.abs(driver - 1)) <= high, name


def exponents(name, kind, eps, h, steps):
    coupled = coupled_of(eps)
    q0, v0 = coupled.system.start(START[kind])
    return passenger_exponents(coupled, METHODS[name], q0, v0, h, steps, name not in ON_TQ)


@pytest.mark.parametrize(
    ("eps", "h", "steps", "expected", "half"),
    [
        (0.5, 0.1, 30_000, (-0.91e-4, -1.26e-4, -1.26e-4), 0.005e-4),
        (0.5, 0.05, 30_000, (-2.30e-5, -3.18e-5, -3.18e-5), 0.005e-5),
        (0.1, 0.1, 45_000, (-1.8e-5, -2.5e-5, -2.5e-5), 0.05e-5),  # small ones need more time
    ],
)
def test_exponents_of_dla(eps, h, steps, expected, half):
    """Negative for the rotating driver without symmetry, of second order in h: within 3 per cent."""
    found = exponents("DLA0.5", "rot", eps, h, steps)
    assert np.all(np.abs(found - expected) <= 0.03 * np.abs(expected) + half), found


def test_second_road_to_the_exponents():
    """Both roads begin with nearly the same basis; what that leaves dies out like 1/T."""
    found = exponents("DLA0.5", "rot", 0.5, H, 10_000)
    wanted = second.exponents(second.problem("rot-0.5"), "DLA0.5", H, 1000)
    assert found == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(("kind", "eps"), [("rot", 0.0), ("osc", 0.0), ("osc", 0.5)])
def test_no_exponents_where_dla_is_reversible(kind, eps):
    """Below 3e-7 over T = 2e4: a bounded factor c, so c/T at shorter times."""
    time = 1000
    found = exponents("DLA0.5", kind, eps, H, round(time / H))
    assert np.max(np.abs(found)) < 3e-7 * 2e4 / time


def test_no_exponents_of_isometries():
    steps = 100
    for name in ("FIB-EP", "DDS"):  # a few roundings in each step of 0.1
        assert np.max(np.abs(exponents(name, "rot", 0.5, H, steps))) < 5e-15
    # Leap-frog is an isometry of another form: a bounded factor again, of the size of h^2/8.
    assert np.max(np.abs(exponents("LF", "rot", 0.5, H, steps))) < H**2 / 8 / (steps * H)
