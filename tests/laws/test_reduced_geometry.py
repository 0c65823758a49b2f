"""The geometry of reduction: connections, the spaces of [fernandez2008], kinds, and the exact reduced equations."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from reductions import ALONG_Z, BOTH, CASES, MOTIONS, ROLLING, ROTOR, WHEEL, Z, along, off, reduced, start

import dalembert as da
from dalembert.diagnostics import measured_order
from dalembert.diagnostics.order import exact_ends
from dalembert.groups import Product, Rn, Torus
from dalembert.model import acceleration, lower, nearest_velocity

RNG = np.random.default_rng
WHOLE = da.Symmetry(Product(Rn(2), Torus(1)), on=("x1", "x2", "x3"))


def elements(group, count, seed, size=1.0):
    return along(group.exp, RNG(seed).uniform(-size, size, (count, group.dimension)))


@pytest.mark.parametrize("name", ["particle", "two wheels", "particle with a wheel", "ball"])
def test_the_discrete_connection(name):
    """A_d = e on D_d (or at the level) and there alone; A_d(q0, k q1) = k A_d and A_d(k q0, k q1) = k A_d k^-1. alpha
    forgets the group, and is inverse to alpha_inverse both ways."""
    red, (system, symmetry, kind, method), count = reduced(name), CASES[name], 6
    group = symmetry.group
    r0, d = RNG(3).uniform(-1, 1, (2, count, red.dimension))
    r1, g, k = r0 + 0.1 * d, elements(group, count, 1), elements(group, count, 2)

    def pairs(r0, r1, g, k):
        """Pairs in D_d and not, moved and not, and what A_d is of them."""
        times, inverse, f = group.multiply, group.inverse, red.displacement(r0, r1, 0.1)
        act = lambda q: symmetry.act(system, k, q)
        q0, near = symmetry.join(system, r0, g), symmetry.join(system, r1, times(g, f))
        far, moved = symmetry.join(system, r1, times(g, times(k, f))), times(times(g, k), inverse(g))
        values = group.identity(), moved, times(k, moved), times(times(k, moved), inverse(k))
        return [(q0, near), (q0, far), (q0, act(far)), (act(q0), act(far))], values

    def missing(q0, q1):
        """Zero on D_d, or at the level."""
        ld, h = method.discrete_lagrangian, jnp.asarray(0.1)
        u = ld.velocity(lower(system), q0, q1, h)
        if kind == "horizontal":
            return (
                symmetry.generators(system, q1).T @ ld.partial_derivatives(lower(system), q0, q1, u, h)[1]
                - red.case.level
            )
        return method.discrete_constraint.over_step(lower(system), q0, q1, u, h)

    def laws(q0, q1):
        alpha = red.alpha(q0, q1, 0.1)
        back = red.alpha_inverse(*alpha, 0.1)  # the pair with g0 = e
        there = [symmetry.act(system, symmetry.element(system, q0), q) for q in back]
        return red.connection(q0, q1, 0.1), missing(q0, q1), alpha, there, red.alpha(*back, 0.1)

    given, values = along(pairs, r0, r1, g, k)
    q0, q1 = (np.concatenate([pair[i] for pair in given]) for i in (0, 1))
    connection, left, alpha, there, again = along(laws, q0, q1)
    # Rounding of products of numbers of size one; constraints and momenta divide by h.
    assert off(connection, np.concatenate(values)) < 1e-13
    left = np.abs(left).max(axis=1).reshape(4, count)
    assert left[0].max() < 1e-12
    assert left[1:].min() > 1e-2
    for ours, wanted in zip(alpha, (r0, r1, k), strict=True):
        assert off(ours[count : 2 * count], wanted) < 1e-13
        assert off(ours[3 * count :], wanted) < 1e-13
    for one, other in zip((*there, *again), (q0, q1, *alpha), strict=True):
        assert off(one, other) < 1e-13


SPACES = {  # dim g^q = dim S, dim U, dim H
    "particle, z": (Z.NonholonomicParticle(), ALONG_Z, (0, 1, 2)),
    "particle with a wheel, both": (Z.ParticleWithWheel(), BOTH, (1, 1, 2)),
    "knife edge": (Z.KnifeEdge(pull=0.0), ROLLING, (1, 1, 1)),
    "disk, R^2 x S^1": (Z.RollingDisk(), WHOLE, (1, 2, 1)),
    "two wheels": (Z.TwoWheeledRobot(), MOTIONS, (0, 3, 2)),
    "sleigh": (Z.ChaplyginSleigh(), MOTIONS, (2, 1, 0)),
}


@pytest.mark.parametrize("name", SPACES)
def test_spaces(name):
    """TQ = H + S + U, D = H + S, V = S + U, orthogonal for the kinetic metric, and S is what g^q generates."""
    system, symmetry, sizes = SPACES[name]
    q = RNG(4).uniform(-1, 1, system.dimension)
    found = da.reduction.spaces(system, symmetry, q)
    assert (found.S.shape[1], found.U.shape[1], found.H.shape[1]) == sizes
    assert found.g_q.shape == (symmetry.group.dimension, sizes[0])
    parts = lambda q: (system.metric(q), lower(system).rows(q), symmetry.generators(system, q))
    mass, forms, generators = (x[0] for x in along(parts, q[None]))
    np.testing.assert_allclose(found.H.T @ mass @ found.S, 0, atol=1e-13)  # rounding of entries of size one
    np.testing.assert_allclose(found.S.T @ mass @ found.U, 0, atol=1e-13)
    np.testing.assert_allclose(forms @ np.hstack([found.H, found.S]), 0, atol=1e-13)
    rank = lambda *parts: np.linalg.matrix_rank(np.hstack(parts), tol=1e-10)
    assert rank(found.H, found.S, found.U) == system.dimension == sum(sizes)
    assert rank(generators, found.S, found.U) == symmetry.group.dimension
    assert rank(generators @ found.g_q, found.S) == sizes[0]


LOCALLY = r"but only locally: at \(.*\) they share a direction"
NEITHER = "is neither: D .*share.*so it is not Chaplygin; .*none of them the same everywhere, so it is not horizontal"
KINDS = {
    "particle with R_z": (
        Z.NonholonomicParticle(),
        ALONG_Z,
        "Chaplygin",
        "share no direction; together.*all",
    ),
    "disk with R^2": (Z.RollingDisk(), ROLLING, "Chaplygin", "D is a connection$"),
    "two wheels with SE(2)": (Z.TwoWheeledRobot(), MOTIONS, "Chaplygin", "D is a connection$"),
    "knife edge with R_y": (Z.KnifeEdge(), da.Symmetry(Rn(1), on=("x2",)), "Chaplygin", LOCALLY),
    "sleigh with R_y": (Z.ChaplyginSleigh(), da.Symmetry(Rn(1), on=("y",)), "Chaplygin", LOCALLY),
    "wheel": (
        Z.ParticleWithWheel(),
        WHEEL,
        "horizontal",
        "these are the orbits of d/ds, whose momentum is kept$",
    ),
    "rotor": (
        Z.Snakeboard(psi="relative"),
        ROTOR,
        "horizontal",
        "the orbits of d/dpsi, whose momentum is kept$",
    ),
    "wheel and z": (
        Z.ParticleWithWheel(),
        BOTH,
        "both",
        "the orbits of d/ds.*at a level of it the rest is Chaplygin",
    ),
    "knife edge with R^2": (Z.KnifeEdge(pull=0.0), ROLLING, "neither", NEITHER),
    "disk with R^2 x S^1": (Z.RollingDisk(), WHOLE, "neither", NEITHER),
    "sleigh with SE(2)": (Z.ChaplyginSleigh(), MOTIONS, "neither", NEITHER),
    "particle with R_x x R_z": (
        Z.NonholonomicParticle(),
        da.Symmetry(Rn(2), on=("x", "z")),
        "neither",
        NEITHER,
    ),
    "heading": (
        Z.RollingDisk(),
        da.Symmetry(Torus(1), on=("xi",)),
        "neither",
        "distribution D is not invariant",
    ),
    "particle's y": (
        Z.NonholonomicParticle(),
        da.Symmetry(Rn(1), on=("y",)),
        "neither",
        "D is not invariant",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name):
    """The examples and non-examples of the specification, with the reason."""
    system, symmetry, kind, reason = KINDS[name]
    found = da.classify(system, symmetry)
    assert found.kind == kind
    assert re.search(reason, found.reason)
    if kind != "neither":
        assert found.invariant
        basis = {"Chaplygin": np.zeros((1, 0)), "horizontal": np.eye(1), "both": np.array([[0.0], [1.0]])}[
            kind
        ]
        assert found.shared == basis.shape[1]
        assert found.horizontal.shape == (symmetry.group.dimension, found.shared)
        assert kind == "Chaplygin" or np.array_equal(found.horizontal, basis)
    if "locally" in reason:  # where the blade lies across: cos = 0
        angle = float(found.reason.split("xi=" if "knife" in name else "theta=")[1].split(")")[0])
        assert abs(np.cos(angle)) < 1e-3  # printed with four digits


def states(red, group, count=6):
    """Random reduced states that the constraints allow, and elements of the group."""
    r, v = RNG(6).uniform(-1, 1, (2, count, red.dimension))
    return r, along(lambda r, v: nearest_velocity(red.at(0.7), r, v), r, v), elements(group, count, 7)


def accelerations(red, r, v, g):
    """Of the reduced system, with its forces, and of the shape of the full one at a state above; the forces."""
    symmetry, full, here = red.symmetry, red.full.at(0.7), red.at(0.7)
    lifted = red.case.velocity(symmetry, full, r, v)
    pushed = symmetry.push(full, g, symmetry.section(full, r), lifted)
    whole = acceleration(full, symmetry.join(full, r, g), pushed)[0]
    shape = np.array(symmetry.split(full).shape_velocity)
    return acceleration(here, r, v)[0], whole[shape], here.forces(r, v)


@pytest.mark.parametrize("name", ["two wheels", "particle with a wheel", "timed particle, affine"])
def test_reduced_equations_are_the_full_ones(name):
    """At random states, anywhere on the group: SE(2), a level, a constraint that is affine and changes with time."""
    red, case = reduced(name), CASES[name]
    r, v, g = states(red, case.symmetry.group)
    ours, theirs, forces = along(lambda *row: accelerations(red, *row), r, v, g)
    # Rounding; accelerations are of size one to ten.
    assert off(ours, theirs) < 1e-12
    assert np.abs(forces).max() > 1e-2
    if name == "two wheels":
        assert np.abs(np.sum(forces * v, axis=1)).max() < 1e-13  # the gyroscopic force does no work


def test_reduced_equations_in_stages():
    """First the wheel at its level, then shifts of z."""
    first = reduced("particle with a wheel")
    red = da.reduce(first, first.method, ALONG_Z)
    ours, theirs, _ = along(lambda *row: accelerations(red, *row), *states(red, ALONG_Z.group))
    assert off(ours, theirs) < 1e-12  # rounding


def test_the_gyroscopic_force_of_the_particle():
    """(1 + y^2) x'' + y x' y' = -V_x and y'' = -V_y, against those of Lagrange: F = y x' (y', -x')."""
    red = reduced("particle")
    r, v, _ = states(red, ALONG_Z.group)
    y, turned = r[:, 1:], np.stack([v[:, 1], -v[:, 0]], axis=1)
    forces = along(red.forces, r, v)
    # Rounding of numbers below one.
    assert off(forces, y * v[:, :1] * turned) < 1e-14
    assert np.abs(np.sum(forces * v, axis=1)).max() < 1e-15
    mass = along(red.metric, r)
    assert off(mass[:, 0, 0], 1 + r[:, 1] ** 2) < 1e-15


def test_exact_motions():
    """The exact reduced motion is the projection of the exact full one; the reduced method converges to it with
    order 2."""
    red, q0 = reduced("particle"), start("particle")
    full = da.simulate(red.full, da.Reference(), *q0, h=0.1, steps=20)
    sol = da.simulate(red, da.Reference(), *red.project(*q0), h=0.1, steps=20)
    # Both are accurate to 1e-14 a step.
    assert off(sol.q, red.project(full).q) < 1e-10
    assert off(sol.v, red.project(full).v) < 1e-10
    assert np.ptp(sol.energy()) < 1e-12
    order = measured_order(red, red.method, exact_ends(red, *red.project(*q0), 2.0), 0.2)
    # 2.0 to 0.1, as for the full methods.
    assert abs(order.q - 2) < 0.1
    assert abs(order.v - 2) < 0.1
