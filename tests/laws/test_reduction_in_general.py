"""Both kinds of reduction in one call, discrete connections of the user's own, and the abelian reduction theorem."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reductions import BOTH, CASES, WHEEL, along, off, reduced, runs, start

import dalembert as da
from dalembert.discrete import Midpoint
from dalembert.groups import SE2, SO3, Product, Rn
from dalembert.model import lower
from dalembert.reduction.stages import part, rest

Z, V = da.zoo, da.VariationalDLA()
WHEELED, ALONG_Z = Z.ParticleWithWheel(), da.Symmetry(Rn(1), on=("z",))
LEVEL = np.asarray(WHEEL.momentum(WHEELED, *WHEELED.start()))
H = 0.1


@cache
def both():
    return da.reduce(WHEELED, V, BOTH, level=LEVEL)


def test_both_kinds_in_one_call():
    """First the wheel at its level, then z: the reduced run is the projected one, the way back is the full run."""
    red, (q0, v0) = both(), WHEELED.start()
    assert red.coordinates == ("x", "y")
    assert "First: ParticleWithWheel with R^1 on (s) is horizontal" in red.words
    assert "Then: ParticleWithWheel/(R^1 on (s)) with R^1 on (z) is Chaplygin" in red.words
    full = da.simulate(WHEELED, V, q0, v0, h=H, steps=200)
    run = da.simulate(red, red.method, *red.project(q0, v0), h=H, steps=200)
    # Rounding of 200 steps, as in the other reductions.
    assert off(run.q, red.project(full).q) < 1e-11
    assert off(run.v, red.project(full).v) < 1e-11
    back = red.reconstruct(run, q0[2:])
    assert back.system.label == WHEELED.label
    assert off(back.q, full.q) < 1e-11
    assert off(back.v, full.v) < 1e-11
    assert np.ptp(full.q[:, 2:], axis=0).min() > 0.5  # both parts of the group do move
    from_e = red.reconstruct(run)
    assert off(from_e.q[:, 2:] + q0[2:], full.q[:, 2:]) < 1e-11


def test_the_stages_of_an_action():
    """Both parts of a group that is given as a function: translations of z with y, and of s, on what is left."""
    coupled = da.Symmetry(
        Rn(2), on=("z", "s"), action=lambda g, q: q + jnp.stack([g[1], 0 * g[0], g[0], g[1]])
    )
    first = part(coupled, (1,))
    second = rest(coupled, first, WHEELED, (1,))
    q = jnp.array([0.1, 0.2, 0.3, 0.4])
    assert (first.on, second.on) == (("s",), ("z",))
    np.testing.assert_allclose(first.act(WHEELED, jnp.array([0.5]), q), [0.6, 0.2, 0.3, 0.9], atol=1e-15)
    assert second.action is not None
    r = first.shape(WHEELED, q)  # x is 0.1 - 0.4 where s is moved back to zero
    np.testing.assert_allclose(r, [-0.3, 0.2, 0.3], atol=1e-15)
    np.testing.assert_allclose(second.action(jnp.array([0.5]), r), [-0.3, 0.2, 0.8], atol=1e-15)
    plane = da.Symmetry(Product(SE2(), Rn(1)), on=("x", "y", "theta", "s"))
    assert part(plane, (0, 1, 2)).on == ("x", "y", "theta")
    with pytest.raises(ValueError, match=r"only some directions of its factor SE\(2\) are horizontal"):
        part(plane, (2, 3))


class Mixed(da.System):
    """z' - s' = y x', where what is horizontal is d/dz + d/ds."""

    coordinates = ("x", "y", "z", "s")

    def metric(self, q):
        return jnp.eye(4)

    def constraints(self, q):
        return jnp.stack([jnp.stack([-q[1], 0.0 * q[1], 1.0 + 0 * q[1], -1.0 + 0 * q[1]])])


def test_what_both_refuses():
    with pytest.raises(ValueError, match=r"Give level=, the momentum of the horizontal part, R\^1 on \(s\)"):
        da.reduce(WHEELED, V, BOTH)
    with pytest.raises(
        ValueError, match=r"the level must be 1 finite numbers, the momentum of R\^1 on \(s\)"
    ):
        da.reduce(WHEELED, V, BOTH, level=[0.1, 0.2])
    with pytest.raises(
        ValueError, match=r"horizontal part is along d/dz \+ d/ds, which is not one of its coordinates"
    ):
        da.reduce(Mixed(), V, BOTH, level=[0.1])
    with pytest.raises(ValueError, match="it cannot be reduced as both"):
        da.reduce(CASES["particle"].system, V, ALONG_Z, kind="both")
    with pytest.raises(ValueError, match="for one stage; reduce in two calls"):
        da.reduce(WHEELED, V, BOTH, level=LEVEL, connection=lambda q0, q1: q1[2:])
    run = da.simulate(both(), both().method, *both().start(), h=H, steps=2)
    with pytest.raises(ValueError, match=r"g0 must be an element of R\^2, \(z, s\); got \[1.0\]"):
        both().reconstruct(run, [1.0])


def by_midpoint(q0, q1):
    """A_d of the particle by hand, which is e on the midpoint D_d."""
    return jnp.stack([q1[2] - q0[2] - 0.5 * (q0[1] + q1[1]) * (q1[0] - q0[0])])


def of_the_robot(q0, q1):
    """A_d = g1 F^-1 g0^-1 on SE(2), with the displacement of two wheels of R/2 = 0.25 and R/(2 c) = 0.625."""
    group, change = SE2(), q1[3:] - q0[3:]
    ahead, turn = 0.25 * jnp.sum(change), 0.625 * (change[1] - change[0])
    f = jnp.stack([ahead * jnp.cos(turn / 2), ahead * jnp.sin(turn / 2), turn])
    return group.multiply(group.multiply(q1[:3], group.inverse(f)), group.inverse(q0[:3]))


def test_a_connection_of_the_user():
    """It replaces the search for the group's part of a step, and the motion is the same."""
    case, full = CASES["particle"], runs("particle").full
    red = da.reduce(case.system, V, case.symmetry, connection=by_midpoint)
    run = da.simulate(red, red.method, *red.project(*start("particle")), h=H, steps=50)
    # Rounding of fifty steps.
    assert off(run.q, runs("particle").sol.q[:51]) < 1e-12
    assert off(red.reconstruct(run, full.q[0, 2:]).q, full.q[:51]) < 1e-11
    assert off(red.connection(full.q[0], full.q[9], H), by_midpoint(full.q[0], full.q[9])) < 1e-14


def test_a_connection_of_the_user_on_a_group_that_is_not_abelian():
    case, usual = CASES["two wheels"], reduced("two wheels")
    red = da.reduce(case.system, V, case.symmetry, connection=of_the_robot)
    pairs = np.random.default_rng(3).uniform(-1, 1, (2, 5, 5))
    ours = along(lambda a, b: (red.connection(a, b, H), red.displacement(a[3:], b[3:], H)), *pairs)
    theirs = along(lambda a, b: (usual.connection(a, b, H), usual.displacement(a[3:], b[3:], H)), *pairs)
    for one, other in zip(ours, theirs, strict=True):
        assert off(one, other) < 1e-12  # rounding, and the tolerance of Newton's method
    assert off(ours[0], along(of_the_robot, *pairs)) < 1e-14


BAD = {
    "no function": (3, r"connection must be a function of \(q0, q1\), got 3"),
    "a number": (lambda q0, q1: q1[2] - q0[2], r"an element of R\^1, shape \(1,\); got \(\)"),
    "not equivariant": (
        lambda q0, q1: 2 * (q1[2:] - q0[2:]),
        r"A_d\(g q0, k q1\) = k A_d\(q0, q1\) g\^-1 must hold",
    ),
    "another D_d": (
        lambda q0, q1: q1[2:] - q0[2:] - q0[1] * (q1[0] - q0[0]),
        "A_d = e must hold on the discrete constraint point=0.5.* off by",
    ),
    "not everywhere": (
        lambda q0, q1: by_midpoint(q0, q1) + 0 * jnp.arctanh((q0[1] + q1[1]) / 2),
        "it is NaN or infinite from",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_connections_that_are_refused(what):
    connection, words = BAD[what]
    with pytest.raises(ValueError, match=words):
        da.reduce(CASES["particle"].system, V, ALONG_Z, connection=connection)


def test_a_level_has_a_connection_already():
    with pytest.raises(ValueError, match="the level of the momentum defines the discrete connection"):
        da.reduce(WHEELED, V, WHEEL, level=LEVEL, connection=lambda q0, q1: q1[3:] - q0[3:])


class Body(da.System):
    """A body in the plane with a hinge phi, whose position changes its mass matrix in the frame of the body."""

    coordinates = ("x", "y", "theta", "phi")

    def metric(self, q):
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        turn = jnp.eye(4).at[:2, :2].set(jnp.array([[c, s], [-s, c]]))
        zero, a, b = 0.0 * q[3], 2 + 0.3 * jnp.cos(q[3]), 0.4 * jnp.sin(q[3])
        rows = [[a, zero, zero, 0.3], [zero, 1.5, b, zero], [zero, b, 0.8, 0.2], [0.3, zero, 0.2, 0.5]]
        return turn.T @ jnp.stack([jnp.stack(jnp.broadcast_arrays(*row)) for row in rows]) @ turn

    def potential(self, q):
        return 0.5 * q[3] ** 2


class Cat(da.GroupSystem):
    """A body that turns in space, with two parts that move in it; a method on a group needs a constant mass matrix."""

    group = Product(SO3(), Rn(2))

    def inertia(self):
        own, mixed = jnp.diag(jnp.array([1.0, 1.4, 1.9])), jnp.array([[0.2, 0.1], [0.3, 0.0], [0.0, 0.25]])
        return jnp.concatenate([jnp.concatenate([own, mixed], 1), jnp.concatenate([mixed.T, jnp.eye(2)], 1)])

    def potential(self, q):
        return 0.5 * jnp.sum((q[9:] - 0.3) ** 2)


LEVELS = {
    "turning in the plane": (Body(), "x y theta", [0.1, 0.2, 0.3, 0.8], [0.4], [0.0, 0.0, 0.5], V),
    "falling cat": (
        Cat(),
        " ".join(SO3().coordinates),
        [*np.asarray(SO3().exp(jnp.array([0.3, -0.2, 0.5]))), 0.9, -0.5],
        [0.4, 0.7],
        [0.0, 0.0, 0.0],
        da.VariationalDLA(da.discrete.Retraction("cayley")),
    ),
}


@pytest.mark.parametrize("name", LEVELS)
def test_groups_that_are_not_abelian_at_levels_that_they_keep(name):
    """SE(2) keeps the momentum (0, 0, L), and every group keeps zero; the momentum then does not turn, and steps are
    those of the full system."""
    system, on, q0, change, level, method = LEVELS[name]
    symmetry = da.Symmetry(SE2() if isinstance(system, Body) else SO3(), on=tuple(on.split()))
    red = da.reduce(system, method, symmetry, level=level)
    q0, s = np.array(q0), symmetry.group.dimension
    generators, mass = (
        np.asarray(x) for x in (symmetry.generators(system, jnp.asarray(q0)), system.metric(jnp.asarray(q0)))
    )
    v0 = np.concatenate([np.zeros(s), change])
    v0 = v0 + generators @ np.linalg.solve(
        generators.T @ mass @ generators, np.array(level) - generators.T @ mass @ v0
    )
    full = da.simulate(system, method, q0, v0, h=H, steps=60)
    run = da.simulate(red, red.method, *red.project(q0, v0), h=H, steps=60)
    # Rounding of 60 steps.
    assert off(run.q, red.project(full).q) < 1e-12
    assert off(run.v, red.project(full).v) < 1e-12
    assert off(red.reconstruct(run, q0[: symmetry.group.size]).q, full.q) < 1e-12
    assert np.ptp(full.q[:, : symmetry.group.size], axis=0).max() > 0.1  # the group moves


def test_levels_that_a_group_turns():
    """The refusal names the directions that keep the level: the translation along the momentum."""
    motions = da.Symmetry(SE2(), on=("x", "y", "theta"))
    with pytest.raises(
        ValueError, match=r"Of its directions only these keep \[0.4, 0.2, 0.5\]: d/dx \+ 0.5 d/dy\. Reduce"
    ):
        da.reduce(Body(), V, motions, level=[0.4, 0.2, 0.5])
    with pytest.raises(ValueError, match="unless the whole group keeps the level, as it keeps zero"):
        da.reduce(Body(), V, motions)


def shapes_and_groups(name, connection=None, symmetry=None):
    """The abelian reduction, and for each step of the full run (r0, r1, g) by `alpha`."""
    case = CASES[name]
    red = da.reduce(
        case.system, case.method, symmetry or case.symmetry, kind="abelian", connection=connection
    )
    q = runs(name).full.q[:41]
    return red, along(lambda a, b: red.alpha(a, b, H), q[:-1], q[1:])


def terms(red, rows):
    """D1 Lhat, D2 Lhat, the betas and the momentum at rows (r0, r1, g)."""

    def one(r0, r1, g):
        by = jax.grad(lambda a, b: red.lagrangian_hat(a, b, H, g=g), argnums=(0, 1))(r0, r1)
        more = (f(r0, r1, H, g=g) for f in (red.beta0, red.beta1, red.momentum_hat))
        return *by, *more

    return along(one, *rows)


def forms_at(name, q):
    """The one-forms at (r, e) on the shape and on the group, by hand from those of the system."""
    system, symmetry = CASES[name].system, CASES[name].symmetry
    split = symmetry.split(system)
    rows = along(lower(system).rows, q)
    return rows[:, :, np.array(split.shape)], rows[:, :, np.array(split.fibre)]


def curved(q0, q1):
    """A discrete connection of R^2 on (z, s), or (x1, x2), that has nothing to do with any constraint."""
    shift = jnp.stack([jnp.sin(q1[0]) - q1[1] * q0[0], q0[1] ** 2])
    return jnp.stack([q1[2] - q0[2], q1[3] - q0[3]]) - shift


@pytest.mark.parametrize(
    ("name", "connection"),
    [
        ("knife edge", None),
        ("particle with a wheel, abelian", None),
        ("particle with a wheel, abelian", curved),
    ],
)
def test_abelian_theorem(name, connection):
    """The last paragraph of [fernandez2008] for any discrete connection, on a full run.

    D1 Lhat + D2 Lhat + beta0 + beta1 = what^T lam at each node, and the momentum keeps its components along g^q.
    """
    red, rows = shapes_and_groups(name, connection)
    first, second, beta0, beta1, p = terms(red, rows)
    total = first[1:] + second[:-1] + beta0[1:] + beta1[:-1]
    on_shape, on_group = forms_at(name, runs(name).full.q[1:40])
    size, kept = np.abs(np.stack([first, second, beta0, beta1])).max(), 0.0
    for balance, change, a, b in zip(total, p[1:] - p[:-1], on_shape, on_group, strict=True):
        u, values, v = np.linalg.svd(b)
        rank = int(np.sum(values > 1e-9))
        assert np.abs(v[rank:] @ change).max() < 1e-12  # (p_k - p_(k-1)) sigma = 0, to rounding
        what = u[:, rank:].T @ a  # the one-forms on the shape
        inside = np.linalg.svd(what)[2][len(what) :]
        # Rounding of differences of positions of size ten over steps of 0.1.
        assert np.abs(inside @ balance).max() < 1e-11 * max(size, 1)
        kept = max(kept, np.abs(change).max())
    assert kept > 1e-3  # other components of the momentum do change
    # The forces are part of the balance, except where the one-forms do not contain the shape.
    assert (np.abs(beta0[1:] + beta1[:-1]).max() > 1e-3) == (np.abs(on_shape).max() > 0)
    if connection is not None:
        other = shapes_and_groups(name)[1]
        assert off(rows[2], other[2]) > 0.1  # another connection counts the group from elsewhere


@pytest.mark.parametrize("name", ["particle", "particle with a wheel"])
def test_both_theorems_follow_from_the_abelian_one(name):
    """With the connection of D_d, or of the level, and g = e, its Lagrangian and forces are those of both theorems."""
    special, wheel = reduced(name), name != "particle"
    run = "particle with a wheel, abelian" if wheel else name  # the same system and start
    red, rows = shapes_and_groups(run, lambda q0, q1: special.connection(q0, q1, H), CASES[name].symmetry)
    assert np.abs(rows[2]).max() < 1e-12  # runs satisfy D_d, or have the momentum of the level: g = e
    e = np.zeros_like(rows[2])

    def general(a, b, g):
        return tuple(f(a, b, H, g=g) for f in (red.lagrangian_hat, red.beta0, red.beta1, red.momentum_hat))

    ours = along(general, *rows[:2], e)
    found = along(
        lambda a, b: tuple(f(a, b, H) for f in (special.lagrangian_hat, special.beta0, special.beta1)),
        *rows[:2],
    )
    for one, other in zip(ours, found, strict=False):
        assert off(one, other) < 1e-13  # rounding
    assert np.abs(np.stack(found[1:])).max() > 1e-4
    if wheel:
        assert off(ours[3], float(special.case.level[0])) < 1e-12  # the momentum is the level


def test_reduced_lagrangian_by_hand():
    """Lhat of the knife edge is the midpoint rule of the step by g."""
    red, (r0, r1, g) = shapes_and_groups("knife edge")
    system = CASES["knife edge"].system

    def value(a, b, g):
        return Midpoint()(system, jnp.concatenate([jnp.zeros(2), a]), jnp.concatenate([g, b]), H)

    ours = along(lambda a, b, g: red.lagrangian_hat(a, b, H, g=g), r0, r1, g)
    assert off(ours, along(value, r0, r1, g)) < 1e-14
    with pytest.raises(ValueError, match=r"needs the part g of alpha\(q0, q1, h\) as well"):
        red.lagrangian_hat(r0[0], r1[0], H)
    with pytest.raises(
        ValueError, match="the shapes determine the step of a Chaplygin reduction; leave out g"
    ):
        reduced("particle").beta0([0.1, 0.2], [0.1, 0.3], H, g=[0.0])
