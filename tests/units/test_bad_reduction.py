"""What cannot be reduced is refused before anything runs, with the reason and the place."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.groups import SE2, SO3, Product, Rn, Torus

Z, V = da.zoo, da.VariationalDLA()
PLANE = da.Symmetry(Rn(2), on=("x1", "x2"))
WHEEL = da.Symmetry(Rn(1), on=("s",))
ROLLING = da.Symmetry(Product(Rn(2), Torus(1)), on=("x1", "x2", "x3"))
WELL = Z.NonholonomicParticle(lambda q: 0.5 * (q[0] ** 2 + q[1] ** 2))


@cache
def disk():
    return da.reduce(Z.RollingDisk(), V, PLANE)


@cache
def disk_run():
    return da.simulate(disk(), disk().method, *disk().start(), h=0.1, steps=5)


NOT_CHAPLYGIN = {
    "knife edge with R^2": (Z.KnifeEdge(pull=0.0), PLANE, "share one direction.*not Chaplygin"),
    "disk with R^2 x S^1": (Z.RollingDisk(), ROLLING, "share one direction.*not Chaplygin"),
    "sleigh with SE(2)": (
        Z.ChaplyginSleigh(),
        da.Symmetry(SE2(), on=("x", "y", "theta")),
        "share 2 directions.*not Chaplygin",
    ),
    "particle with R_x x R_z": (
        Z.NonholonomicParticle(),
        da.Symmetry(Rn(2), on=("x", "z")),
        "share one direction.*not Chaplygin",
    ),
}
NOT_HORIZONTAL = {
    "disk heading": (Z.RollingDisk(), da.Symmetry(Torus(1), on=("xi",))),
    "particle y": (Z.NonholonomicParticle(), da.Symmetry(Rn(1), on=("y",))),
}


@pytest.mark.parametrize("name", NOT_CHAPLYGIN)
@pytest.mark.parametrize("kind", [None, "chaplygin"])
def test_not_chaplygin(name, kind):
    system, symmetry, reason = NOT_CHAPLYGIN[name]
    with pytest.raises(ValueError, match=reason):
        da.reduce(system, V, symmetry, kind=kind)


@pytest.mark.parametrize("name", NOT_HORIZONTAL)
def test_not_horizontal_although_the_momentum_is_kept(name):
    """D depends on the coordinate, although its direction lies in D."""
    system, symmetry = NOT_HORIZONTAL[name]
    with pytest.raises(
        ValueError, match=rf"D is not invariant: it changes by .* at \({system.coordinates[0]}="
    ):
        da.reduce(system, V, symmetry, kind="horizontal", level=[1.0])


def test_what_depends_on_the_group_is_named():
    with pytest.raises(ValueError, match=r"the Lagrangian is not invariant: .*x1="):
        da.reduce(Z.KnifeEdge(), V, PLANE, kind="abelian")
    own = da.discrete.CustomLagrangian(
        lambda s, q0, q1, h: h * s.lagrangian((q0 + q1) / 2, (q1 - q0) / h) + 0.1 * h**3 * q0[2] ** 2
    )
    with pytest.raises(ValueError, match="the discrete Lagrangian is not invariant"):
        da.reduce(WELL, da.VariationalDLA(own), da.Symmetry(Rn(1), on=("z",)))
    held = da.discrete.CustomConstraint(
        lambda s, q0, q1, h: s.constraints((q0 + q1) / 2) @ (q1 - q0) / h + h**2 * jnp.stack([q0[2]])
    )
    with pytest.raises(ValueError, match="the discrete constraint is not invariant"):
        da.reduce(WELL, da.VariationalDLA(discrete_constraint=held), da.Symmetry(Rn(1), on=("z",)))


def test_symmetries():
    with pytest.raises(ValueError, match=r"needs a group such as Rn\(2\)"):
        da.Symmetry("R^2", on=("x", "y"))
    with pytest.raises(ValueError, match=r"R\^2 has 2 numbers.*on names 1"):
        da.Symmetry(Rn(2), on=("x",))
    with pytest.raises(ValueError, match="names of coordinates"):
        da.Symmetry(Rn(1), on="x")
    with pytest.raises(ValueError, match="action must be a function"):
        da.Symmetry(Rn(1), on=("x",), action=3)
    with pytest.raises(ValueError, match=r"RollingDisk has no coordinate y; it has \(x1, x2, x3, xi\)"):
        da.classify(Z.RollingDisk(), da.Symmetry(Rn(1), on=("y",)))
    numbers = da.Symmetry(SO3(), on=tuple("abcdefghi"))

    class Nine(da.System):
        coordinates = tuple("abcdefghi")

        def metric(self, q):
            return jnp.eye(9)

    with pytest.raises(ValueError, match=r"the numbers of SO\(3\) are not coordinates.*GroupSystem"):
        da.classify(Nine(), numbers)
    ball = Z.RubberBall()
    with pytest.raises(ValueError, match=r"the shape must be in factors R\^n or tori"):
        da.classify(ball, da.Symmetry(Rn(2), on=("x1", "x2")))
    with pytest.raises(ValueError, match="multiplication from the left"):
        da.classify(ball, da.Symmetry(SO3(), on=SO3().coordinates, action=lambda g, q: q))


def test_arguments_of_reduce():
    wheel = Z.ParticleWithWheel()
    with pytest.raises(ValueError, match="expected a Symmetry"):
        da.reduce(wheel, V, Rn(1))
    for method in (da.GNI(), da.DLA(), "dla"):
        with pytest.raises(ValueError, match=r"VariationalDLA\(\) and EDLA\(\)"):
            da.reduce(wheel, method, WHEEL)
    with pytest.raises(
        ValueError, match="no kind 'routh'; choose one of: chaplygin, horizontal, both, abelian"
    ):
        da.reduce(wheel, V, WHEEL, kind="routh")
    with pytest.raises(ValueError, match=r"h must be a positive number, got -0\.1"):
        da.reduce(wheel, V, WHEEL, h=-0.1)
    with pytest.raises(ValueError, match=r"give level=, such as symmetry.momentum\(system, q0, v0\)"):
        da.reduce(wheel, V, WHEEL)
    for level in ([1.0, 2.0], [np.nan]):
        with pytest.raises(ValueError, match="the level must be 1 finite numbers"):
            da.reduce(wheel, V, WHEEL, level=level)
    with pytest.raises(
        ValueError, match="a level belongs to a horizontal symmetry; this reduction is chaplygin"
    ):
        da.reduce(Z.RollingDisk(), V, PLANE, level=[0.0, 0.0])
    with pytest.raises(ValueError, match=r"kind='abelian' needs R\^n, tori"):
        da.reduce(Z.ChaplyginSleigh(), V, da.Symmetry(SE2(), on=("x", "y", "theta")), kind="abelian")
    with pytest.raises(ValueError, match=r"is both: .*Reduce by that part alone"):
        da.reduce(wheel, V, da.Symmetry(Rn(2), on=("z", "s")), kind="horizontal", level=[0.0, 1.0])
    with pytest.raises(ValueError, match="kind='abelian' reduces it"):
        da.reduce(Z.RollingDisk(), V, ROLLING)


def test_transversality():
    """Where the discrete momentum of the group does not depend on the group's part of the step."""

    def flat(system, q0, q1, h):
        d = (q1 - q0) / h
        bent = 0.5 * system.lagrangian((q0 + q1) / 2, d.at[3].set(0.0))
        return h * (bent + system.coupling * d[1] * d[3])

    own = da.VariationalDLA(da.discrete.CustomLagrangian(flat))
    with pytest.raises(ValueError, match="transversality condition fails"):
        da.reduce(Z.ParticleWithWheel(), own, WHEEL, level=[1.0])


def test_projection_and_reconstruction():
    reduced, run = disk(), disk_run()
    with pytest.raises(ValueError, match=r"q with 4 numbers and v with 4.*got shapes \(3,\) and \(4,\)"):
        reduced.project([0.0] * 3, [0.0] * 4)
    with pytest.raises(ValueError, match="a configuration and a velocity, or a run"):
        reduced.project([0.0] * 4)
    with pytest.raises(ValueError, match=r"g0 must be an element of R\^2, \(x1, x2\); got \[0.0\]"):
        reduced.reconstruct(run, [0.0])
    with pytest.raises(ValueError, match="needs one run of a reduced system"):
        reduced.reconstruct(da.simulate(Z.RollingDisk(), V, *Z.RollingDisk().start(), h=0.1, steps=2))
    other = da.reduce(WELL, V, da.Symmetry(Rn(1), on=("z",)))
    with pytest.raises(ValueError, match=r"this is a run of RollingDisk/.*, not of NonholonomicParticle/"):
        other.reconstruct(run)
    with pytest.raises(ValueError, match=r"a path of at least two shapes, one row \(x3, xi\) each"):
        reduced.phase([0.0, 1.0])
    wheel = Z.ParticleWithWheel()
    level = da.reduce(wheel, V, WHEEL, level=[0.3])
    with pytest.raises(ValueError, match=r"reduced at the level \[0.3\], but this state has the momentum"):
        level.project(*wheel.start())


def test_variable_steps_need_every_row():
    reduced = da.reduce(WELL, da.EDLA(), da.Symmetry(Rn(1), on=("z",)))
    run = da.simulate(reduced, reduced.method, *reduced.start(), h=0.05, steps=4, save_every=2)
    with pytest.raises(ValueError, match="save_every=1"):
        reduced.reconstruct(run)


def test_elements_must_be_elements():
    ball, symmetry = Z.RubberBall(), da.Symmetry(SO3(), on=SO3().coordinates)
    reduced = da.reduce(ball, da.VariationalDLA(da.discrete.Retraction("cayley")), symmetry)
    run = da.simulate(reduced, reduced.method, *reduced.start(), h=0.1, steps=2)
    with pytest.raises(ValueError, match=r"g0 must be an element of SO\(3\)"):
        reduced.reconstruct(run, np.full(9, 0.5))


def test_methods_that_do_not_fit():
    abelian = da.reduce(Z.MobileRobot(), V, ROLLING, kind="abelian")
    for method in (da.DLA(), da.FrameGradient(), V):
        with pytest.raises(
            ValueError, match=r"has more of them. Use Reference\(\), or its own method, reduced.method"
        ):
            da.simulate(abelian, method, *abelian.start(), h=0.1, steps=2)
    with pytest.raises(ValueError, match="two shapes do not say how the group moves"):
        abelian.beta0([0.1], [0.2], 0.1)
    with pytest.raises(ValueError, match="the method of a reduced system"):
        da.simulate(Z.RollingDisk(), disk().method, *Z.RollingDisk().start(), h=0.1, steps=2)
    with pytest.raises(ValueError, match=r"non-conservative forces.*FrameGradient"):
        da.simulate(disk(), da.VariationalDLA(), *disk().start(), h=0.1, steps=2)
    with pytest.raises(ValueError, match="GNI works in coordinates"):
        da.GNI(da.discrete.Retraction("exp"))
    with pytest.raises(ValueError, match="Retraction has no map 3"):
        da.discrete.Retraction(3)
    with pytest.raises(ValueError, match="VariationalDLA is defined on Lie groups"):
        da.simulate(
            Z.RollingDisk(),
            da.VariationalDLA(da.discrete.Retraction()),
            *Z.RollingDisk().start(),
            h=0.1,
            steps=2,
        )


Z_SHIFTS = da.Symmetry(Rn(1), on=("z",))
NOWHERE = Z.NonholonomicParticle(lambda q: jnp.log(-1 - q[2] ** 2))
UNFIT = {
    # Its steps are not those of the full method: the group would follow with an error of order h^2, unsaid.
    "a run by another method": (
        lambda: disk().reconstruct(da.simulate(disk(), da.FrameGradient(), *disk().start(), h=0.1, steps=2)),
        r"a run by frame does not say how the group moved; make it by reduced\.method",
    ),
    "a run of another system with these coordinates": (
        lambda: da.reduce(Z.MobileRobot(), V, PLANE).reconstruct(disk_run()),
        "this is a run of RollingDisk/",
    ),
    "a Lagrangian that is NaN wherever it is sampled": (
        lambda: da.reduce(NOWHERE, V, Z_SHIFTS),
        "the Lagrangian is NaN or infinite at every configuration sampled",
    ),
    "a full run of another system": (
        lambda: disk().project(da.simulate(WELL, V, *WELL.start(), h=0.1, steps=2)),
        "needs a run of RollingDisk; this is one of NonholonomicParticle",
    ),
    "a state that is not finite": (
        lambda: disk().project([0.0, 0.0, 0.0, np.nan], [0.0] * 4),
        "needs finite states",
    ),
    "a velocity off the constraint": (
        lambda: disk().project([0.0] * 4, [1.0, 0.0, 0.0, 0.0]),
        "the velocity violates the constraint of RollingDisk",
    ),
    "a projected run of another method": (
        lambda: disk().reconstruct(
            disk().project(
                da.simulate(Z.RollingDisk(), da.FrameGradient(), *Z.RollingDisk().start(), h=0.1, steps=2)
            )
        ),
        "a run by frame does not say how the group moved",
    ),
    "a path that is not finite": (
        lambda: disk().phase([[0.0, np.nan], [0.0, 1.0]]),
        "a path of finite numbers",
    ),
    "classify by something else": (lambda: da.classify(WELL, "z"), "expected a Symmetry.*got 'z'"),
    "classify something else": (
        lambda: da.classify("particle", Z_SHIFTS),
        "expected a System, got 'particle'",
    ),
    "classify with another method": (
        lambda: da.classify(WELL, Z_SHIFTS, da.GNI()),
        r"VariationalDLA\(\) and EDLA\(\); got 'gni'",
    ),
    "a momentum of a system that depends on time": (
        lambda: Z_SHIFTS.momentum(Z.RheonomicParticle(), *Z.RheonomicParticle().start()),
        r"RheonomicParticle depends on time: give the system at a fixed time, system\.at\(t\)",
    ),
    "h that is no number": (
        lambda: da.reduce(WELL, V, Z_SHIFTS, h="0.1"),
        r"h must be a positive number, got '0\.1'",
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_does_not_fit(what):
    call, words = UNFIT[what]
    with pytest.raises(ValueError, match=words):
        call()


def test_places_of_another_shape():
    with pytest.raises(ValueError, match="3 numbers"):
        da.reduce(WELL, V, Z_SHIFTS, at=[[0.0, 0.0]])


class Body(da.System):
    """A body in the plane, with an angle of its own inside."""

    coordinates = ("x", "y", "theta", "phi")

    def metric(self, q):
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        turn = jnp.eye(4).at[:2, :2].set(jnp.array([[c, s], [-s, c]]))
        mass = jnp.array([[2, 0, 0, 0.3], [0, 1.5, 0.4, 0], [0, 0.4, 0.8, 0.2], [0.3, 0, 0.2, 0.5]])
        return turn.T @ mass @ turn

    def potential(self, q):
        return 0.5 * q[3] ** 2


class Swing(da.System):
    """A point (x, y) and a height z with z' = (x y' - y x')/2: turning the plane is a symmetry."""

    coordinates = ("x", "y", "z")

    def metric(self, q):
        return jnp.eye(3)

    def constraints(self, q):
        return jnp.stack([0.5 * q[1], -0.5 * q[0], jnp.ones(())])[None]


def turned(g, q):
    c, s = jnp.cos(g[0]), jnp.sin(g[0])
    return jnp.stack([c * q[0] - s * q[1], s * q[0] + c * q[1], q[2]])


@pytest.mark.parametrize("kind", [None, "horizontal"])
def test_groups_that_are_not_abelian_have_no_level(kind):
    """The momentum is kept as seen from outside; the reduced steps were off by 0.2 to 1 after 20 steps."""
    body, motions = Body(), da.Symmetry(SE2(), on=("x", "y", "theta"))
    with pytest.raises(ValueError, match=r"SE\(2\) is not abelian.*abelian subgroup.*Chaplygin reduction"):
        da.reduce(body, V, motions, kind=kind, level=[0.3, 0.2, 0.5])
    both = da.Symmetry(Product(SE2(), Rn(1)), on=("x", "y", "theta", "s"))
    with pytest.raises(ValueError, match=r"SE\(2\) x R\^1 is not abelian"):
        da.reduce(Carried(), V, both, kind=kind, level=[0.1] * 4)


class Carried(Body):
    """The body with a point beside it that no force moves."""

    coordinates = (*Body.coordinates, "s")

    def metric(self, q):
        return jnp.eye(5).at[:4, :4].set(super().metric(q[:4]))


def shift(*along):
    """Translation of four coordinates, each by a function of g."""
    return lambda g, q: q + jnp.stack([f(g[0]) for f in along])


SAME, NONE = (lambda g: g), (lambda g: 0.0 * g)
NO_ACTIONS = {
    "a rotation that does not move x as an angle": (
        Swing(),
        da.Symmetry(Torus(1), on=("x",), action=turned),
        r"element\(action\(g, q\)\) = g element\(q\).*fails by .* \(relative\) at \(x=",
    ),
    "an identity that moves": (
        Body(),
        da.Symmetry(Rn(1), on=("x",), action=shift(SAME, lambda g: g + 1, NONE, NONE)),
        r"action\(e, q\) = q must hold",
    ),
    "an action only near the identity": (
        Body(),
        da.Symmetry(Rn(1), on=("x",), action=shift(SAME, jnp.sin, NONE, NONE)),
        r"action\(k, action\(g, q\)\) = action\(k g, q\)",
    ),
    "an action of another shape": (
        Body(),
        da.Symmetry(Rn(1), on=("x",), action=lambda g, q: q[:2]),
        r"must return a configuration, shape \(4,\); got \(2,\)",
    ),
}


@pytest.mark.parametrize("what", NO_ACTIONS)
def test_functions_that_are_no_action(what):
    system, symmetry, words = NO_ACTIONS[what]
    with pytest.raises(ValueError, match=words):
        da.classify(system, symmetry)


def own(function):
    """D_d of the particle by a function of its change of z, of the midpoint's y, and of the change of x."""
    return da.VariationalDLA(
        discrete_constraint=lambda s, a, b, h: jnp.stack(
            [function(b[2] - a[2], (a[1] + b[1]) / 2, b[0] - a[0]) / h]
        )
    )


def test_discrete_constraints_that_are_no_connection():
    """A step of the shape must have one group element, not two or none."""
    with pytest.raises(ValueError, match=r"A_d = e must hold on it.*both satisfy it"):
        da.reduce(WELL, own(lambda z, y, x: jnp.sin(z) - 0.3 * jnp.sin(y * x)), Z_SHIFTS)
    with pytest.raises(ValueError, match=r"no element of R\^1 was found that satisfies it"):
        da.reduce(WELL, own(lambda z, y, x: jnp.tanh(z) - y * x), Z_SHIFTS)
    bent = da.reduce(WELL, own(lambda z, y, x: z + 0.1 * z**3 - y * x), Z_SHIFTS)  # one element always
    assert not bent.case.linear


@pytest.mark.parametrize("kind", ["horizontal", "abelian"])
def test_something_must_be_left(kind):
    free = da.system(coordinates=("x", "y"), metric=lambda q: jnp.eye(2))
    with pytest.raises(ValueError, match="what is left has no coordinates"):
        da.reduce(
            free,
            V,
            da.Symmetry(Rn(2), on=("x", "y")),
            kind=kind,
            level=None if kind == "abelian" else [1.0, 0.0],
        )


BROKEN = {
    "far away": lambda q: WELL.potential(q) + jnp.exp(-((q[2] - 10) ** 2)),
    "beyond a wall": lambda q: WELL.potential(q) + jnp.maximum(q[2] - 50, 0.0),
    "by little beside the kinetic energy": lambda q: 1e-6 * WELL.potential(q) + 1e-10 * q[2],
    "where it is not defined": lambda q: WELL.potential(q) + 0 * jnp.log(q[2] + 2),
}


@pytest.mark.parametrize("how", BROKEN)
def test_symmetries_that_are_broken_elsewhere(how):
    found = da.classify(Z.NonholonomicParticle(BROKEN[how]), Z_SHIFTS)
    assert found.kind == "neither"
    assert "the Lagrangian is not invariant" in found.reason


@pytest.mark.parametrize("where", [-97.0, -61.8, -30.5, 12.3, 30.5, 44.4, 80.1, 99.0])
def test_a_small_bump_far_away_breaks_a_symmetry(where):
    """1e-8 of the well's depth and one unit wide; samples at random had missed some of these."""
    bump = Z.NonholonomicParticle(lambda q: WELL.potential(q) + 1e-8 * jnp.exp(-((q[2] - where) ** 2)))
    found = da.reduction.invariance(bump, Z_SHIFTS)
    assert not found["L"].holds
    # It says where; beyond 3.3 units the bump is below a thousand units in the last place.
    assert abs(found["L"].q[2] + found["L"].g[0] - where) < 3.3


def test_potentials_are_known_up_to_a_constant():
    assert da.classify(Z.NonholonomicParticle(lambda q: 1e8 + WELL.potential(q)), Z_SHIFTS).invariant
    assert da.classify(Z.NonholonomicParticle(lambda q: -1 / jnp.abs(q[0])), Z_SHIFTS).invariant


def test_masses_and_one_forms_of_every_size_count():
    light = da.system(
        coordinates=("x", "y", "z"),
        metric=lambda q: jnp.diag(jnp.stack([1e12, 1e-6 * (2 + jnp.sin(q[2])), 1.0])),
    )
    assert not da.classify(light, Z_SHIFTS).invariance["L"].holds
    small = da.system(
        coordinates=("x", "y", "z", "w"),
        metric=lambda q: jnp.eye(4),
        constraints=lambda q: jnp.stack(
            [jnp.stack([-q[1], 0.0, 1.0, 0.0]), 1e-12 * jnp.stack([jnp.cos(q[2]), 0.0, 0.0, 1.0])]
        ),
    )
    assert not da.classify(small, da.Symmetry(Rn(2), on=("z", "w"))).invariance["D"].holds


def test_a_run_that_leaves_the_symmetry():
    """Samples reach 100 units from the start; rows of a run are looked at wherever they are."""
    walled = Z.NonholonomicParticle(lambda q: WELL.potential(q) + jnp.maximum(q[2] - 1000, 0.0) ** 2)
    reduced = da.reduce(walled, V, Z_SHIFTS)
    run = da.simulate(reduced, reduced.method, [0.1, 0.2], [0.3, 0.4], h=0.1, steps=20)
    assert reduced.reconstruct(run, [0.0]).q.shape == (21, 3)
    with pytest.raises(ValueError, match=r"this run goes where R\^1 on \(z\) is no symmetry"):
        reduced.reconstruct(run, [1000.0])


def test_levels_and_places():
    wheel = Z.ParticleWithWheel()
    for level in ("one", 1j, [[1.0]]):
        with pytest.raises(ValueError, match="the level must be 1 finite numbers"):
            da.reduce(wheel, V, WHEEL, level=level)
    small = da.reduce(wheel, V, WHEEL, level=[1e-12])
    q0 = wheel.start()[0]
    with pytest.raises(ValueError, match="but this state has the momentum"):
        small.project(q0, [0.0, 0.0, 0.0, 1e-11])
    for at in ([[0.0, 0.0, np.nan]], "here", []):
        with pytest.raises(ValueError, match="at must be configurations"):
            da.reduce(WELL, V, Z_SHIFTS, at=at)
    abelian = da.reduce(Z.MobileRobot(), V, PLANE, kind="abelian")
    with pytest.raises(ValueError, match=r"cannot be reduced again.*Product"):
        da.reduce(abelian, abelian.method, da.Symmetry(Rn(1), on=("x3",)), kind="abelian")
