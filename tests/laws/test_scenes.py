"""Scenes obey the constraints: what rolls does not slip, what skates does not slide sideways, in every system.

Velocities come from the scene itself, by its derivative along an allowed motion.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.model import Trait, lower, nearest_allowed, onto_surface, scene

zoo = da.zoo
SYSTEMS = {name: getattr(zoo, name)() for name in zoo.__all__} | {
    "PendulumCVT, eps": zoo.PendulumCVT(eps=0.5),
    "KnifeEdge, eps": zoo.KnifeEdge(eps=0.4, pull=2.0),
    "Car, off-axle hitches": zoo.Car(length=0.8, hitch=0.3),
    "ChaplyginSleigh, mass centre": zoo.ChaplyginSleigh(2.0, 1.5, 0.4, coordinates="mass-centre"),
    "GroupSleigh, heavy": zoo.GroupSleigh(mass=2.0, offset=0.5),
    "RollerRacer, arm behind": zoo.RollerRacer(reach=0.8, arm=-0.2),
    "Snake, maximal": zoo.Snake(links=3, coordinates="maximal", half=0.4),
    "Snakeboard, absolute": zoo.Snakeboard(radius=0.7, convention="absolute", psi="relative"),
    "TwoWheeledRobot, wide": zoo.TwoWheeledRobot(radius=0.3, track=0.9),
    "BallOnTurntable, small": zoo.BallOnTurntable(rate=-0.7, radius=0.4),
    "FallingDisk, small": zoo.FallingDisk(radius=0.6),
    "ChaplyginSphere, small": zoo.ChaplyginSphere(radius=0.6),
    "RouthSphere, small": zoo.RouthSphere(radius=0.6),
    "RubberBall, small": zoo.RubberBall(radius=0.6),
    "RoundBody, S^3": zoo.RoundBody("S^3", "right-invariant"),
    "RoundBody, left": zoo.RoundBody("SO(3)", "left-invariant"),
}
# How many parts roll, skate (blades and plain wheels), and say where the constraint lets a point go.
ROLLING = {
    "RollingDisk": 1,
    "MobileRobot": 1,
    "HarmonicCVT": 1,
    "SpringParticle": 1,
    "PendulumCVT": 1,
    "TwoWheeledRobot": 2,
    "BallOnTurntable": 1,
    "RubberBall": 1,
    "FallingDisk": 1,
    "ChaplyginSphere": 1,
    "RouthSphere": 1,
    "Bicycle": 2,
}
SKATING = {
    "Car": 12,
    "KnifeEdge": 1,
    "ChaplyginSleigh": 1,
    "GroupSleigh": 1,
    "RollerRacer": 4,
    "Snake": 5,
    "Snake, maximal": 3,
    "Snakeboard": 4,
}
DIRECTED = {
    "KnifeEdge": 1,
    "ChaplyginSleigh": 1,
    "GroupSleigh": 1,
    "RollingDisk": 1,
    "MobileRobot": 1,
    "FallingDisk": 1,
}
TILED = ("NonholonomicParticle", "ParticleWithWheel", "TravellingWell", "Heisenberg")
RANDOM = 6
# Velocities and lengths of order one to ten: a few hundred roundings of 1e-16 of such sizes.
ROUNDING = 1e-12
UP = np.array([0.0, 0.0, 1.0])


def number(table, name):
    """How many such parts the system has, by its own name or by its kind."""
    return table.get(name, table[name.partition(",")[0]])


def those(table):
    """Names of systems whose kind is in the table."""
    return [name for name in SYSTEMS if name.partition(",")[0] in table]


def states(system, seed=3):
    """Times, configurations and their rates: the start, and random allowed ones."""
    q0, v0 = map(jnp.asarray, system.start())
    draw = np.random.default_rng(seed)
    t = jnp.asarray(draw.uniform(0, 3, RANDOM))
    x, u = jnp.asarray(draw.uniform(-1.2, 1.2, (2, RANDOM, system.velocity_dimension)))

    @jax.jit
    @jax.vmap
    def allowed(t, x, u):
        now = lower(system).at(t)
        q = now.space.displaced(q0, x)
        # From anywhere within reach, to all digits.
        q = jax.lax.fori_loop(0, 20, lambda _, q: onto_surface(now, q), q)
        if Trait.NONLINEAR in now.traits:
            return q, now.space.velocity(q, nearest_allowed(now, q, u))
        basis = now.frame(q)
        return q, now.space.velocity(q, now.drift(q) + basis @ u[: basis.shape[1]])

    q, rates = allowed(t, x, u)
    start = lower(system).space.velocity(q0, v0)
    return (
        jnp.concatenate([jnp.zeros(1), t]),
        jnp.concatenate([q0[None], q]),
        jnp.concatenate([start[None], rates]),
    )


def moving(system):
    """A list, one entry per state, of pairs: a part, and the rates of its place, turn and size, as NumPy arrays."""

    @jax.jit
    @jax.vmap
    def both(t, q, rates):
        return jax.jvp(system.scene, (t, q), (jnp.ones_like(t), rates))

    found = jax.tree.map(np.asarray, both(*states(system)))
    here = [jax.tree.map(lambda x, i=i: x[i], found) for i in range(1 + RANDOM)]
    return [list(zip(parts, rates, strict=True)) for parts, rates in here]


@cache
def motions(name):
    return moving(SYSTEMS[name])


def turning(part, change):
    """The matrix of the angular velocity's cross product."""
    if part.rolled is None:
        return change.turn @ part.turn.T
    x, y, z = change.rolled
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


def slips(pairs):
    """The velocity of each rolling part's lowest point, relative to the disc or the floor that it stands on."""
    found = []
    for part, change in pairs:
        if part.kind not in ("wheel", "ball"):
            continue
        axle = part.turn[:, 1] if part.kind == "wheel" else np.zeros(3)
        down = axle * (axle @ UP) - UP
        contact = part.at + part.size[0] * down / np.linalg.norm(down)
        own = change.at + turning(part, change) @ (contact - part.at)
        under = [
            (disc, its)
            for disc, its in pairs
            if disc.kind == "disc" and abs(disc.at[2] + 0.5 * disc.size[2] - contact[2]) < 1e-9
        ]
        if under:
            disc, its = under[0]
            assert np.allclose(disc.turn[:, 2], UP)
            own = own - its.at - turning(disc, its) @ (contact - disc.at)
            # The wheel of a gear is shifted along its axle, where the constraint lets it slide.
            own = own - axle * (axle @ change.at)
        else:
            assert any(p.kind == "floor" for p, _ in pairs)
            assert abs(contact[2]) < ROUNDING
        found.append(np.linalg.norm(own))
    return found


def sideways(pairs, kinds=("blade", "tyre")):
    """The velocity of each blade or plain wheel across itself."""
    return [abs(change.at @ part.turn[:, 1]) for part, change in pairs if part.kind in kinds]


def speeds(pairs, kinds):
    return [np.linalg.norm(change.at) for part, change in pairs if part.kind in kinds]


@pytest.mark.parametrize("name", those(ROLLING))
def test_what_rolls_does_not_slip(name):
    scenes = motions(name)
    found = np.array([slips(pairs) for pairs in scenes])
    assert found.shape == (1 + RANDOM, number(ROLLING, name))
    assert np.max(found) < ROUNDING
    # It does turn, so the check is not empty.
    assert all(
        np.max(np.abs(turning(p, c))) > 1e-3 for x in scenes[1:] for p, c in x if p.kind in ("wheel", "ball")
    )


@pytest.mark.parametrize("name", those(SKATING))
def test_what_skates_does_not_slide_sideways(name):
    scenes = motions(name)
    found = np.array([sideways(pairs) for pairs in scenes])
    assert found.shape == (1 + RANDOM, number(SKATING, name))
    assert np.max(found) < ROUNDING
    assert np.max([speeds(pairs, ("blade", "tyre")) for pairs in scenes]) > 0.1


@pytest.mark.parametrize("name", those(DIRECTED))
def test_points_move_along_the_lines_that_say_so(name):
    lines = [[(p, c) for p, c in pairs if p.kind == "line"] for pairs in motions(name)]
    assert all(len(pairs) == number(DIRECTED, name) for pairs in lines)
    off = [np.linalg.norm(np.cross(c.at, p.turn[:, 0])) for pairs in lines for p, c in pairs]
    assert np.max(off) < ROUNDING
    assert np.max([speeds(x, ("line",)) for x in lines]) > 0.1


@pytest.mark.parametrize("name", TILED)
def test_particles_stay_in_the_plane_of_their_tile(name):
    for pairs in motions(name):
        ((tile, change),) = [(p, c) for p, c in pairs if p.kind == "tile"]
        assert np.all(tile.size[:2] == 1.0)
        assert abs(change.at @ tile.turn[:, 2]) < ROUNDING < np.linalg.norm(change.at)


@pytest.mark.parametrize("name", those(("Suslov", "RoundBody", "Veselova")))
def test_bodies_do_not_turn_about_the_golden_axis(name):
    for pairs in motions(name):
        body, change = next((p, c) for p, c in pairs if p.kind in ("box", "ball"))
        (axis,) = [p.turn[:, 2] for p, _ in pairs if p.kind == "rod" and p.colour == scene.GOLD]
        w = turning(body, change)
        about = np.array([w[2, 1], w[0, 2], w[1, 0]])
        assert abs(about @ axis) < ROUNDING < np.linalg.norm(about)


@pytest.mark.parametrize("name", SYSTEMS)
def test_turns_are_rotations_and_sizes_are_sizes(name):
    for pairs in motions(name):
        assert pairs
        for part, _ in pairs:
            # A product of a few rotations of rounded sines and cosines.
            assert np.allclose(part.turn.T @ part.turn, np.eye(3), rtol=0, atol=1e-13), part.kind
            assert np.linalg.det(part.turn) > 0, part.kind
            assert part.at.shape == part.size.shape == (3,)
            assert np.all(np.isfinite(part.at))
            assert np.all(np.isfinite(part.size))
            assert np.all(part.size >= 0)


class Backwards(zoo.RollingDisk):
    """Rolls the wrong way."""

    def scene(self, t, q):
        return [scene.floor(), scene.wheel(q[:2], q[3], roll=q[2])]


class Askew(zoo.KnifeEdge):
    """A blade along xi, which is the allowed direction for eps = 0 only."""

    def scene(self, t, q):
        return [scene.blade(q[:2], q[2])]


def test_wrong_scenes_are_noticed():
    slip, spin = (
        np.array([f(pairs) for pairs in moving(Backwards())])
        for f in (slips, lambda pairs: speeds(pairs, ("wheel",)))
    )
    assert np.allclose(slip, 2 * spin, rtol=1e-12)  # twice the speed of the hub; rounding
    assert np.max([sideways(pairs) for pairs in moving(Askew(eps=0.0))]) < ROUNDING
    assert np.max([sideways(pairs) for pairs in moving(Askew(eps=0.4))]) > 0.01


def skate(**more):
    return da.system(
        coordinates=("x", "y", "theta"),
        angles=("theta",),
        lagrangian=lambda q, v: 0.5 * jnp.sum(v**2),
        constraints=lambda q: jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]]),
        **more,
    )


def test_the_default_scene_shows_where_a_skate_may_go():
    look = jax.jit(skate().scene)
    for angle in (0.0, 0.4, -2.0, 1.5):
        parts = look(jnp.zeros(()), jnp.array([1.0, -2.0, angle]))
        assert [p.kind for p in parts] == ["trace", "point", "floor", "tile"]
        tile = parts[-1]
        along = np.cross(tile.turn[:, 0], [np.cos(angle), np.sin(angle), 0.0])
        assert np.max(np.abs(along)) < 1e-14  # a singular vector to rounding
        assert tile.size[1] < 0.1 * tile.size[0]
        assert np.array_equal(tile.at[:2], [1.0, -2.0])


def test_the_default_scene_of_other_systems():
    free = da.system(coordinates=("x", "y", "z"), lagrangian=lambda q, v: 0.5 * jnp.sum(v**2))
    assert [p.kind for p in free.scene(jnp.zeros(()), jnp.ones(3))] == ["trace", "point"]
    dials = da.system(
        coordinates=("a", "b"), angles=("a", "b"), lagrangian=lambda q, v: 0.5 * jnp.sum(v**2)
    ).scene(jnp.zeros(()), jnp.array([0.3, -1.0]))
    discs = [p for p in dials if p.kind == "disc"]
    marks = [np.arctan2(p.turn[1, 0], p.turn[0, 0]) for p in discs]
    assert np.allclose(marks, [0.3, -1.0], rtol=0, atol=1e-15)  # rounding
    assert np.linalg.norm(discs[0].at - discs[1].at) > discs[0].size[0] + discs[1].size[0]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"coordinates": ("x", "heading", "y")}, [1.0, 3.0]),  # by its name an angle
        ({"coordinates": ("x", "wheel_angle", "y")}, [1.0, 3.0]),
        ({"coordinates": ("x", "phi2", "y")}, [1.0, 3.0]),
        ({"coordinates": ("a", "b", "c"), "units": ("m", "rad", "cm")}, [1.0, 3.0]),
        ({"coordinates": ("a", "b", "c"), "units": ("m", "C", "m")}, [1.0, 3.0]),  # a charge is no length
        (
            {"coordinates": ("phi", "b", "theta"), "units": ("m", "V", "mm")},
            [1.0, 3.0],
        ),  # units count, not names
    ],
)
def test_the_default_scene_draws_lengths_as_lengths(given, shown):
    made = da.system(**given, lagrangian=lambda q, v: 0.5 * jnp.sum(v**2))
    point = next(p for p in made.scene(jnp.zeros(()), jnp.array([1.0, 2.0, 3.0])) if p.kind == "point")
    assert np.array_equal(point.at[:2], shown)


def test_a_scene_given_to_system_is_used():
    given = skate(scene=lambda t, q: [scene.blade(q[:2], q[2] + t)])
    (part,) = given.scene(jnp.asarray(0.5), jnp.array([1.0, 2.0, 0.25]))
    assert part.kind == "blade"
    assert np.array_equal(part.at, [1.0, 2.0, 0.0])
    assert np.allclose(part.turn, scene.about_z(0.75), rtol=0, atol=0)
    sized = da.system(
        coordinates=("x", "y"),
        lagrangian=lambda q, v, p: 0.5 * jnp.sum(v**2),
        scene=lambda t, q, p: [scene.point(q, p["radius"])],
        parameters={"radius": 0.7},
    )
    assert np.array_equal(sized.scene(jnp.zeros(()), jnp.ones(2))[0].size, [0.7, 0.7, 0.7])
