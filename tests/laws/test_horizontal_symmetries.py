"""Horizontal symmetries are found from the group and the constraints, and their momenta are conserved along runs."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.diagnostics.discrete import momentum_residuals
from dalembert.groups import SE2, Product, Rn, Torus

Z, RNG = da.zoo, np.random.default_rng
MOTIONS = da.Symmetry(SE2(), on=("x", "y", "theta"))


class Lopsided(Z.RollingDisk):
    """A rolling disk whose roll and turn share a moment of inertia, on a slope: its heading is no longer steady."""

    def metric(self, q):
        return jnp.eye(4).at[2, 3].set(0.4).at[3, 2].set(0.4)

    def potential(self, q):
        return 0.7 * q[0] - 0.2 * jnp.cos(q[2])


class Rounded(da.System):
    """Nothing depends on theta, but the formula of the mass matrix does, so that its derivative is only rounding."""

    coordinates = ("x", "y", "theta")

    def metric(self, q):
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        turn = jnp.array([[c, -s], [s, c]])
        return 0.3 * jnp.eye(3).at[:2, :2].set(turn.T @ turn)


def mass(n):
    return lambda q: jnp.eye(n)


def free(names, forms=None, **more):
    """A system of unit masses with these one-forms."""
    given = (
        {}
        if forms is None
        else {"constraints": lambda q: jnp.stack([jnp.stack(jnp.broadcast_arrays(*row)) for row in forms(q)])}
    )
    more.setdefault("metric", mass(len(names)))
    return da.system(coordinates=tuple(names), **given, **more)


class Case(NamedTuple):
    """A system, a group, and what is to be found: dim g^q and the numbers of directions, or the columns themselves."""

    system: da.System
    symmetry: da.Symmetry
    dimension: int
    horizontal: list
    lagrangian: list
    distribution: list
    conserved: list | None = None


ONE, ALL2, ALL3 = [[1.0]], np.eye(2).tolist(), np.eye(3).tolist()
EVERY = np.eye(4).tolist()
DISK = da.Symmetry(Product(Rn(2), Torus(2)), on=("x1", "x2", "x3", "xi"))
CASES = {
    # D is not invariant under the heading, and its momentum is conserved all the same.
    "disk": Case(Z.RollingDisk(), DISK, 2, [EVERY[3]], EVERY, EVERY[:3]),
    "heading alone": Case(Z.RollingDisk(), da.Symmetry(Torus(1), on=("xi",)), 1, ONE, ONE, []),
    "lopsided disk": Case(Lopsided(), DISK, 2, [EVERY[3]], [EVERY[1], EVERY[3]], EVERY[:3]),
    "particle": Case(
        Z.NonholonomicParticle(),
        da.Symmetry(Rn(3), on=("x", "y", "z")),
        2,
        [ALL3[1]],
        ALL3,
        [ALL3[0], ALL3[2]],
    ),
    # A horizontal symmetry that the Lagrangian breaks, by little: nothing is conserved.
    "particle in another field": Case(
        Z.NonholonomicParticle(lambda q: 0.5 * q[0] ** 2 + 1e-10 * q[1]),
        da.Symmetry(Rn(1), on=("y",)),
        1,
        ONE,
        [],
        [],
        [],
    ),
    "particle with a wheel": Case(
        Z.ParticleWithWheel(), da.Symmetry(Rn(2), on=("z", "s")), 1, [ALL2[1]], ALL2, ALL2
    ),
    "sleigh": Case(Z.ChaplyginSleigh(coordinates="mass-centre"), MOTIONS, 2, [], ALL3, ALL3),
    "sleigh as a group": Case(Z.GroupSleigh(), da.Symmetry(SE2(), on=SE2().coordinates), 2, [], ALL3, ALL3),
    "driven particle": Case(Z.RheonomicParticle(), da.Symmetry(Rn(1), on=("z",)), 0, [], ONE, ONE),
    "a sum of directions": Case(
        free("xyz", lambda q: [(1.0, -1.0, q[2])]),
        da.Symmetry(Rn(2), on=("x", "y")),
        1,
        [[1.0, 1.0]],
        ALL2,
        ALL2,
    ),
    "in very different units": Case(
        free("xyz", lambda q: [(1e-6, -1e6, q[2])], metric=lambda q: jnp.diag(jnp.array([1e-12, 1e12, 1.0]))),
        da.Symmetry(Rn(2), on=("x", "y")),
        1,
        [[1.0, 1e-12]],
        ALL2,
        ALL2,
    ),
    "friction along it": Case(
        free("xyz", lambda q: [(-q[1], 0.0, 1.0)], forces=lambda q, v: -0.1 * v),
        da.Symmetry(Rn(1), on=("y",)),
        1,
        ONE,
        ONE,
        [],
        [],
    ),
    "no constraints": Case(Rounded(), MOTIONS, 3, ALL3, ALL3, ALL3, ALL3),
    "affine": Case(
        free("xyz", lambda q: [(-q[1], 0.0, 1.0)], offsets=lambda q: jnp.stack([jnp.sin(q[0])])),
        da.Symmetry(Rn(2), on=("x", "z")),
        1,
        [],
        ALL2,
        [[0.0, 1.0]],
    ),
}


@cache
def found(name):
    case = CASES[name]
    return da.horizontal_symmetries(case.system, case.symmetry)


@pytest.mark.parametrize("name", CASES)
def test_spaces_of_directions(name):
    """Against what the formulas of each system say."""
    case, made = CASES[name], found(name)
    assert made.dimension == case.dimension
    size = case.symmetry.group.dimension
    expected = {x: getattr(case, x) for x in ("horizontal", "lagrangian", "distribution", "conserved")}
    if expected["conserved"] is None:  # every horizontal symmetry of these systems keeps L
        expected["conserved"] = expected["horizontal"]
    for which, rows in expected.items():
        columns = np.array(rows, float).reshape(-1, size).T
        # Entries are simple numbers, known to rounding; the cut is far from all singular values.
        np.testing.assert_allclose(getattr(made, which), columns, rtol=1e-12, atol=1e-14, err_msg=which)
    assert made.margin > 1000
    assert "undecided" not in made.words


def test_words():
    said = found("disk").words
    assert "has dimension 2 of 4" in said
    assert "D is invariant under d/dx1, d/dx2, d/dx3." in said
    assert said.endswith("the Lagrangian is invariant: d/dxi.")
    assert "no horizontal symmetry keeps the Lagrangian" in found("particle in another field").words
    assert "and along which no force acts" in found("friction along it").words


HANDS = {  # the sections of the papers, and of the sleigh: y' cos - x' sin = a theta' for (u - w y, v + w x, w)
    "disk": lambda q: np.array([[0, 0, 0, 1.0], [-np.cos(q[3]), -np.sin(q[3]), 1.0, 0.0]]).T,
    "particle": lambda q: np.array([[0, 1.0, 0], [1.0, 0, q[1]]]).T,
}


@pytest.mark.parametrize("name", HANDS)
def test_sections(name):
    """The columns are those of the papers, everywhere, and the horizontal symmetries come first."""
    made, places = found(name), RNG(1).uniform(-50, 50, (20, CASES[name].system.dimension))
    for q in places:
        np.testing.assert_allclose(
            made.sections(q), HANDS[name](q), atol=1e-12
        )  # rounding of numbers up to 50


def test_sections_of_the_sleigh():
    """They span the kernel of the one-form on the plane's motions, which a null space by hand gives."""
    sleigh, made = CASES["sleigh"].system, found("sleigh")
    places = RNG(2).uniform(-5, 5, (20, 3))
    for q, basis in zip(places, np.asarray(jax.vmap(made.sections)(places)), strict=True):
        motions = np.array([[1.0, 0, -q[1]], [0, 1.0, q[0]], [0, 0, 1.0]])
        form = np.array([[np.sin(q[2]), -np.cos(q[2]), sleigh.offset]]) @ motions
        assert np.linalg.matrix_rank(basis) == 2
        size = np.abs(form).max() * np.abs(basis).max()  # some of the sections have poles
        assert np.abs(form @ basis).max() < 1e-13 * size


class Found(Lopsided):
    """The lopsided disk in no field, with the generators and the sections that were found."""

    def potential(self, q):
        return jnp.zeros(())

    def generators(self, q):
        return DISK.generators(self, q)

    def sections(self):
        return {name: (lambda q, i=i: SECTIONS(q)[:, i]) for i, name in enumerate(("heading", "rolling"))}


SECTIONS = da.horizontal_symmetries(Lopsided(), DISK).sections


@pytest.mark.parametrize("method", [da.GNI()], ids=["GNI"])
def test_momentum_equation_of_found_sections(method):
    """[ferraro2008] Theorem 2 for both sections, one of which is not constant."""
    system = Found()
    run = da.simulate(system, method, *system.start(), h=0.1, steps=20)
    residuals = momentum_residuals(system, method, 0.1, run.q, run.v_full)
    assert set(residuals) == {"heading", "rolling"}
    for values in residuals.values():
        assert np.max(np.abs(values)) < 1e-13  # rounding, relative to the momenta


@pytest.mark.parametrize("method", [da.VariationalDLA(), da.GNI(), da.EDLA()], ids=lambda m: m.cli_name)
def test_momenta_along_runs(method):
    """The heading's momentum of the lopsided disk is kept, although D is not invariant and the heading is not steady.

    The momentum is 0.4 x3' + xi', by hand.
    """
    made, system = found("lopsided disk"), CASES["lopsided disk"].system
    run = da.simulate(system, method, *system.start(), h=0.05, steps=60)
    values = made.momentum(run.q, run.v)
    np.testing.assert_allclose(values[:, 0], 0.4 * run.v[:, 2] + run.v[:, 3], rtol=1e-14)
    assert np.ptp(run.v[:, 3]) > 0.1
    # Rounding of sixty steps; EDLA's steps solve an equation of energies that loses a few digits.
    assert np.ptp(values[:, 0]) < 1e-12
    other = 0.4 * run.v[:, 3] + run.v[:, 2]  # the rolling momentum, which no horizontal symmetry keeps
    assert np.ptp(other) > 0.1


def test_not_every_method_keeps_it():
    """The wheel's momentum: FrameGradient, which is not made from a discrete Lagrangian, changes it."""
    made, system = found("particle with a wheel"), CASES["particle with a wheel"].system
    off = {}
    for method in (da.VariationalDLA(), da.FrameGradient()):
        run = da.simulate(system, method, *system.start(), h=0.05, steps=60)
        off[method.cli_name] = np.ptp(made.momentum(run.q, run.v))
    assert off["dla-variational"] < 1e-13  # rounding
    assert off["frame"] > 1e-5


def test_places_where_the_dimension_changes():
    """A surface, which lies between samples, and a set of codimension two."""
    knife = da.horizontal_symmetries(Z.KnifeEdge(), da.Symmetry(Rn(1), on=("x2",)))
    assert knife.dimension == 0
    assert len(knife.changes) == 3
    for change in knife.changes:
        assert change.dimension == 1
        assert (
            abs(np.cos(change.q[2])) < 1e-10
        )  # the blade lies across; Newton's method converges to rounding
    assert "larger at some configurations: 1 at (x1=" in knife.words
    line = free("xyzuw", lambda q: [(0.0, 0.0, -q[0], 1.0, 0.0), (0.0, 0.0, -q[1], 0.0, 1.0)])
    point = da.horizontal_symmetries(line, da.Symmetry(Rn(1), on=("z",)), at=[[0.5, -0.3, 0.0, 0.0, 0.0]])
    assert point.dimension == 0
    assert point.changes
    for change in point.changes:
        assert np.abs(change.q[:2]).max() < 1e-8  # as near as counts as the same
        assert change.dimension == 1
    for name in ("disk", "sleigh", "particle with a wheel", "a sum of directions"):
        assert found(name).changes == ()  # the constraints on the group's directions are regular there


@pytest.mark.parametrize(("coupling", "dimension", "said"), [(1e-6, 0, False), (1e-12, 1, True)])
def test_what_cannot_be_decided_is_said(coupling, dimension, said):
    """z' + coupling sin(y) x' = 0 and y' = z' with x: x is horizontal if the coupling is rounding."""
    system = free("xyz", lambda q: [(coupling * jnp.sin(q[1]) * jnp.ones(()), 0.0, 1.0)])
    made = da.horizontal_symmetries(system, da.Symmetry(Rn(2), on=("x", "z")))
    assert made.horizontal.shape[1] == dimension
    assert ("undecided" in made.words) == said


def test_what_is_refused():
    with pytest.raises(ValueError, match="expected a System, got 'disk'"):
        da.horizontal_symmetries("disk", DISK)
    with pytest.raises(ValueError, match="expected a Symmetry"):
        da.horizontal_symmetries(Z.RollingDisk(), Rn(2))
    with pytest.raises(ValueError, match="RollingDisk has no coordinate y"):
        da.horizontal_symmetries(Z.RollingDisk(), da.Symmetry(Rn(1), on=("y",)))
    with pytest.raises(ValueError, match="at must be configurations"):
        da.horizontal_symmetries(Z.RollingDisk(), DISK, at=[[0.0, np.nan, 0.0, 0.0]])
    undefined = free("xyz", lambda q: [(jnp.log(-1.0 - q[0] ** 2), 0.0, 1.0)])
    with pytest.raises(ValueError, match="at every configuration sampled"):
        da.horizontal_symmetries(undefined, da.Symmetry(Rn(1), on=("z",)))
