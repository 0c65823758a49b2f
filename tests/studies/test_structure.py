"""What a coupled system is: group, integrals, angles, reversibility, averaging; and what is none."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from equations import coupled as second
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from systems import make

import dalembert as da
from dalembert.diagnostics.coupled import CoupledSystem
from dalembert.diagnostics.coupled_structure import (
    averaging_symmetry_defect,
    least_defect,
    lie_algebra,
    rebase,
    structure,
)
from dalembert.diagnostics.floquet import averaging, real_logarithm, section
from dalembert.diagnostics.growth import nonholonomy

# Group, dimension of its algebra, F, I, theta: the corrected table of the paper.
TABLE = {
    "harmonic": ("SO(3)", 3, 0, 3, 2),
    "cvt-osc-0": ("SO(3)", 3, 0, 3, 2),
    "cvt-osc-0.5": ("SO(3)", 3, 0, 3, 2),
    "cvt-rot-0": ("SO(3)", 3, 0, 3, 2),
    "cvt-rot-0.5": ("SO(3)", 3, 0, 3, 2),
    "particle": ("SO(2)", 1, 1, 2, 2),
    "knife-0": ("R", 1, 2, 2, 1),
    "robot": ("1", 0, 3, 2, 1),
    "disk": ("1", 0, 3, 2, 1),
}
TURNING, ODD = (1, 1, -1), (-1, 1, -1)
# The involution on (kappa x, v), and where the driver is then: at a turning point, or at xi (mod pi).
REVERSAL = {
    "harmonic": (TURNING, "turning point"),
    "cvt-osc-0": (TURNING, "turning point"),
    "cvt-osc-0.5": (TURNING, "turning point"),
    "cvt-rot-0": (ODD, 0.0),
    "particle": ((1, -1), "turning point"),
    "knife-0": ((1,), np.pi / 2),
    "disk": ((1,), None),
    "robot": ((1,), None),
}


@cache
def found(name):
    """The coupled system, its structure and the averaging from the section."""
    system, q0, v0, _ = make(name)
    coupled = CoupledSystem.of(system, q0)
    return coupled, structure(coupled, q0, v0), averaging(coupled, *section(coupled, q0, v0))


@pytest.mark.parametrize("name", TABLE)
def test_table(name):
    coupled, told, averaged = found(name)
    assert (told.group, told.algebra, told.fibre, told.integrals, told.angles) == TABLE[name]
    assert told.compact
    d = len(coupled.others)
    assert told.fibre + told.integrals + told.angles == d + 3
    if name in REVERSAL:
        check_involutions(told, averaged, *REVERSAL[name])
    if name == "cvt-rot-0":  # (y, -v) is none here, about no phase
        assert all(np.max(np.abs(x.rho - np.diag(TURNING))) > 0.1 for x in told.involutions)
        with pytest.raises(ValueError, match="rebase"):
            averaging_symmetry_defect(averaged, told.involutions[0]._replace(shift=0.25))


def check_involutions(told, averaged, signs, place):
    """The one expected is there, up to its sign as a whole; by theorem 4.4 the averaging respects it."""
    matching = 0
    for involution in told.involutions:
        assert involution.defect < 1e-8
        based, at_base = rebase(averaged, involution)
        xi, eta = based.orbit.base
        there = place is None or (
            abs(eta) < 1e-6 if place == "turning point" else abs(np.sin(xi - place)) < 1e-6
        )
        same = min(np.max(np.abs(involution.rho - sign * np.diag(signs))) for sign in (1, -1)) < 1e-8
        if there and same:
            matching += 1
            assert averaging_symmetry_defect(based, at_base) < 1e-8
    assert matching


def test_the_perturbed_knife_edge_is_not_compact():
    """v grows for ever: one integral less, and the group is the same."""
    _, told, _ = found("knife-0.1")
    assert not told.compact
    assert (told.group, told.fibre, told.integrals, told.angles) == ("R", 2, 1, 1)


def test_the_perturbed_rotating_driver_is_not_reversible():
    """No linear involution about any phase: the smallest defect is far from zero."""
    _, told, averaged = found("cvt-rot-0.5")
    assert told.involutions == ()
    assert least_defect(averaged) > 1e-2


@pytest.mark.parametrize("name", ["cvt-rot-0.5", "knife-0.1"])
def test_averaging(name):
    """Theorem 4.2: w = exp(Abar theta) Phi(theta)^-1 u has w' = Abar w along the motion, here SciPy's."""
    coupled, _, averaged = found(name)
    other = second.problem(name.removeprefix("cvt-"))
    kappa, f, period = other.kappa, other.f, averaged.orbit.period
    draw = np.random.default_rng(2)
    u0 = np.append(draw.normal(size=len(kappa) + 1), 1.0)

    def rate(t, z):
        (xi, eta), y, v = z[:2], z[2:-1], z[-1]
        k = other.k(xi)
        return np.concatenate([[eta, -other.dV(xi)], kappa @ k * v, [-(kappa @ k) @ y + k @ f]])

    thetas = np.array([0.0, 0.3, 0.9, 1.4, 2.0])
    start = np.concatenate([averaged.orbit.base, u0[:-1]])
    exact = solve_ivp(rate, (0, 2 * period), start, "DOP853", thetas * period, rtol=1e-12, atol=1e-13)
    for theta, z in zip(thetas, exact.y.T, strict=True):
        u = np.append(z[2:], 1.0)
        w = averaged.change(u, theta)
        # The orbit is known to 1e-11, SciPy's tolerance is of that size too.
        assert w == pytest.approx(expm(averaged.average * theta) @ u0, abs=1e-9)
        assert averaged.back(w, theta) == pytest.approx(u, abs=1e-10)
        # Period one in theta.
        assert averaged.change(u, theta + 1) == pytest.approx(w, abs=1e-9)
    angles = np.linalg.eigvals(averaged.average).imag
    assert np.all(np.abs(angles) < np.pi)
    assert coupled.matrix(0.3).shape == (len(u0), len(u0))


def test_averaging_of_a_half_turn():
    """Theorem 4.2 needs a real logarithm, which half turns have: y' = v/2, v' = -y/2 + f1 over a period of 2 pi."""
    coupled = CoupledSystem.build(
        potential=lambda xi: 0.5 * xi**2,
        constraint=lambda xi: jnp.array([[0.0, 1.0]]),
        kappa=[[0.5, 0.0], [0.0, 0.5]],
        f=(0.4, 0.0),
    )
    averaged = averaging(coupled, 0.0, 1.0)
    rate = np.asarray(coupled.matrix(0.0))
    assert np.linalg.eigvals(averaged.orbit.rotation).real.min() == pytest.approx(-1, abs=1e-9)
    assert expm(averaged.average) == pytest.approx(averaged.orbit.map, abs=1e-10)
    assert averaged.is_compact
    assert averaged.angles == 1
    u0 = np.array([0.3, -0.7, 1.1, 1.0])
    for theta in (0.0, 0.3, 1.0, 1.7):
        u = expm(rate * theta * averaged.orbit.period) @ u0
        w = averaged.change(u, theta)
        assert w == pytest.approx(expm(averaged.average * theta) @ u0, abs=1e-9)
        assert averaged.change(u, theta + 1) == pytest.approx(w, abs=1e-9)
        assert averaged.back(w, theta) == pytest.approx(u, abs=1e-10)


def test_real_logarithms():
    """Of rotations with shifts in any dimension: the principal one, and one where a plane turns by half."""
    draw = np.random.default_rng(1)
    for size in range(1, 6):
        for half in (False, True):
            basis = np.linalg.qr(draw.normal(size=(size, size)))[0]
            angles = draw.uniform(-3, 3, size // 2)
            if half:
                angles[:] = np.pi
            turns = np.zeros((size + 1, size + 1))
            for j, angle in enumerate(angles):
                turns[2 * j, 2 * j + 1], turns[2 * j + 1, 2 * j] = -angle, angle
            turns[:size, size] = draw.normal(size=size)
            turns[:size] = np.concatenate(
                [basis @ turns[:size, :size] @ basis.T, turns[:size, size:]], axis=1
            )
            phi = expm(turns)
            found = real_logarithm(phi)
            assert expm(found) == pytest.approx(phi, abs=1e-12)
            assert found[:-1, :-1] == pytest.approx(-found[:-1, :-1].T, abs=1e-13)
            assert np.all(np.abs(np.linalg.eigvals(found).imag) <= np.pi + 1e-12)
            if not half:
                assert found == pytest.approx(turns, abs=1e-11)
    for bad in (np.diag([1.0, -1.0, 1.0]), np.diag([2.0, 0.5, 1.0])):
        with pytest.raises(ValueError, match="not a rotation"):
            real_logarithm(bad)


ROTATIONS = [
    [[0, 0, 0], [0, 0, -1], [0, 1, 0]],
    [[0, 0, 1], [0, 0, 0], [-1, 0, 0]],
    [[0, -1, 0], [1, 0, 0], [0, 0, 0]],
]


@pytest.mark.parametrize(
    ("matrices", "dimension"),
    [
        (ROTATIONS[:1], 1),
        (ROTATIONS[:2], 3),
        (ROTATIONS, 3),
        ([np.zeros((3, 3))], 0),
        ([np.diag([1, 2, 3]), np.diag([1, 4, 9]), np.diag([2, 6, 12])], 2),  # they commute, one is a sum
        ([np.eye(3, k=1), np.eye(3, k=2)], 2),
        ([[[0, 1, 0], [0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1], [0, 0, 0]]], 3),  # Heisenberg
        ([[[0, 1], [0, 0]], [[0, 0], [1, 0]]], 3),  # sl(2)
        ([[[0, 1], [1, 0]], [[1, 0], [0, 1]]], 2),
    ],
)
def test_lie_algebra(matrices, dimension):
    basis = lie_algebra(matrices)
    assert len(basis) == dimension
    flat = basis.reshape(dimension, np.size(matrices[0]))
    assert flat @ flat.T == pytest.approx(np.eye(dimension), abs=1e-12)
    for a in basis:
        for b in basis:  # closed
            rest = (a @ b - b @ a).ravel()
            assert rest - flat.T @ (flat @ rest) == pytest.approx(0, abs=1e-12)


def free_particle(constraints=None, names=("x", "y", "z")):
    given = {} if constraints is None else {"constraints": constraints}
    return da.system(coordinates=names, lagrangian=lambda q, v: 0.5 * jnp.sum(v**2), **given)


def test_growth_vectors():
    """Dimensions of D with its brackets, and what they mean in words."""
    for name, growth in (
        ("knife-0.1", (2, 3)),
        ("disk", (2, 3, 4)),
        ("snakeboard-relative", (3, 4, 5)),
    ):
        system, q0, _, _ = make(name)
        told = nonholonomy(system, q0)
        assert (told.growth, told.hidden, told.is_holonomic) == (growth, 0, False), name
        assert "every configuration" in str(told)
    none = nonholonomy(free_particle(), [0, 0, 0])
    assert none.growth == (3,)
    assert "no constraint" in str(none)
    circle = nonholonomy(free_particle(lambda q: jnp.array([[q[0], q[1], 0.0]])), [1.0, 0.5, 0.0])
    assert (circle.growth, circle.hidden, circle.is_holonomic) == ((2,), 1, True)
    assert "fewer coordinates" in str(circle)
    mixed = free_particle(
        lambda q: jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]),
        ("x", "y", "a", "z"),
    )
    some = nonholonomy(mixed, [0, 0, 0, 0])
    assert (some.growth, some.hidden, some.is_holonomic) == ((2, 3), 1, False)
    # Martinet's constraint: at y = 0 the first brackets vanish, but only there.
    flat = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.eye(3),
        constraints=lambda q: jnp.array([[-(q[1] ** 2), 0.0, 1.0]]),
    )
    told = da.nonholonomy(flat, [0.0, 0.0, 0.0])
    assert (told.growth, told.nearby, told.is_holonomic) == ((2, 2, 3), (2, 3), False)
    assert da.nonholonomy(flat, [0.0, 1.0, 0.0]).growth == (2, 3)
    assert "not completely" in str(some)
    with pytest.raises(ValueError, match="shape"):
        nonholonomy(mixed, [0, 0])


class Rubbed(da.zoo.KnifeEdge):
    """The knife edge with friction."""

    def forces(self, q, v):
        return -0.1 * v


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        (da.zoo.Snakeboard(), "3 degrees of freedom"),
        (da.zoo.ChaplyginSleigh(), "mass matrix is not constant"),
        (da.zoo.ChaplyginSleigh(coordinates="mass-centre"), "constraint holds its velocity"),
        (Rubbed(), "non-conservative forces"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_is_not_coupled(system, reason):
    with pytest.raises(ValueError, match=f"is not a coupled system.*{reason}"):
        CoupledSystem.of(system)


def blade(potential):
    """A blade with this potential of x, y and the heading."""
    return da.system(
        coordinates=("x", "y", "a"),
        metric=lambda q: jnp.eye(3),
        potential=potential,
        constraints=lambda q: jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]]),
    )


def test_what_is_not_linear():
    with pytest.raises(ValueError, match="potential couples it"):
        CoupledSystem.of(blade(lambda q: q[0] * q[2]), [0, 0, 0])
    for potential in (lambda q: q[0] ** 4, lambda q: -(q[0] ** 2)):
        coupled = CoupledSystem.of(blade(potential), [0, 0, 0])
        with pytest.raises(ValueError, match="no linear reduced system"):
            coupled.linear()


def test_building():
    coupled = CoupledSystem.build(
        potential=lambda xi: 0.5 * xi**2,
        constraint=lambda xi: jnp.stack([jnp.ones(()), xi])[None],
        kappa=[[0.0, 1.0]],
        name="Particle",
    )
    wanted = found("particle")[0]
    for xi in (-0.7, 0.2, 1.3):
        assert np.asarray(coupled.matrix(xi)) == pytest.approx(np.asarray(wanted.matrix(xi)), abs=1e-14)
    assert CoupledSystem.of(coupled) is coupled
    constraint = lambda xi: jnp.ones((1, 2))
    for given, reason in (
        ({"constraint": lambda xi: jnp.ones((1, 3))}, r"shape \(d-1, d\)"),
        ({"constraint": constraint, "f": (1, 2, 3)}, "f must act on x of length 2"),
        ({"constraint": constraint, "kappa": np.eye(3)}, "kappa must act on x of length 2"),
    ):
        with pytest.raises(ValueError, match=reason):
            CoupledSystem.build(potential=lambda xi: xi, **given)
