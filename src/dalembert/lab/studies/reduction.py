"""Reduction by symmetry [fernandez2008]: reduced runs beside full runs, kinds of groups, and phases of loops."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm
from scipy.special import j1

from dalembert.discrete import Retraction
from dalembert.groups import SE2, SO3, Product, Rn, Torus
from dalembert.kernels import over_rows
from dalembert.lab.studies.drawing import panels
from dalembert.lab.studies.result import Cell, Picture, Result, Table, number
from dalembert.lab.studies.shared_runs import Lab
from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import Symmetry, System, as_arrays
from dalembert.reduction import ReducedRheonomicSystem, ReducedSystem, classify, reduce
from dalembert.simulation import Trajectory, simulate
from dalembert.zoo import (
    ChaplyginSleigh,
    KnifeEdge,
    MobileRobot,
    NonholonomicParticle,
    ParticleWithWheel,
    RheonomicParticle,
    RubberBall,
    Snakeboard,
    TwoWheeledRobot,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Reduced = ReducedSystem | ReducedRheonomicSystem

EQUAL, OWN = (0.1, 300), (0.05, 150)
"""h and the number of steps: with equal steps, and with steps of the size that keeps the energy (h is the first)."""
BOUNDS = {False: 1e-11, True: 1e-10}
"""The largest distance that counts as the same motion, by whether steps have their own sizes. Rounding gives 1e-13
after 300 equal steps; the rounding of h is larger by 1/h^2, about 5e-11 after 150 steps."""
PAIRS = 200
TURN = 75
"""The number of steps that take the rubber ball once around its ellipse."""

METHOD, ROLLED, ENERGY = VariationalDLA(), VariationalDLA(Retraction("exp")), EDLA()


class Problem(NamedTuple):
    """A system, a group, a method, and how to reduce it."""

    name: str
    system: System
    symmetry: Symmetry
    expected: str
    """The kind that `classify` should find."""
    method: VariationalDLA | EDLA = METHOD
    kind: str | None = None
    """The kind of reduction, if it differs from the one found."""
    quick: bool = False
    """Whether the quick study includes the problem."""
    state: tuple[Any, Any] | None = None
    """The start; None for the system's own start."""

    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """The position and the velocity at the start."""
        q0, v0 = self.state or self.system.start()
        return np.asarray(q0, float), np.asarray(v0, float)


def _bowl(q: Any) -> Any:
    return 0.5 * (q[0] ** 2 + q[1] ** 2)


def _on(*names: str, group: Any = None) -> Symmetry:
    return Symmetry(Rn(len(names)) if group is None else group, on=names)


PLANE, HEIGHT, WHEEL = _on("x1", "x2"), _on("z"), _on("s")
GLIDING = [0.0, 0.0, 0.4], [2 * np.cos(0.4), 2 * np.sin(0.4), 1.0]
"""A start of the knife edge. From its own start it only turns on the spot if no force pulls it."""
_COS, _SIN = 0.7 * np.cos(0.4), 0.7 * np.sin(0.4)
GAIT = [0.0, 0.0, -1.1, 0.0, 0.4], [_COS * np.cos(1.1), -_COS * np.sin(1.1), -_SIN, 0.9, 1.0]
"""The start of the snakeboard, turned so that it travels along x."""
ROLLING = _on("x1", "x2", "x3", group=Product(Rn(2), Torus(1)))
MOTIONS, ROTOR = _on("x", "y", "theta", group=SE2()), _on("psi", group=Torus(1))
TURNS = _on(*SO3().coordinates, group=SO3())

# The disk is the robot without its potential. Written this way, both are compiled once.
ROBOT, DISK = MobileRobot(), MobileRobot(strength=0.0)
CART, BOARD, BALL = TwoWheeledRobot(), Snakeboard(psi="relative"), RubberBall()
PARTICLE, FREE = NonholonomicParticle(_bowl), NonholonomicParticle()
WHEELED, KNIFE = ParticleWithWheel(), KnifeEdge(pull=0.0)


def problems(quick: bool) -> tuple[Problem, ...]:
    """The problems that are run."""
    every = (
        Problem("rolling disk", DISK, PLANE, "Chaplygin"),
        Problem("mobile robot", ROBOT, PLANE, "Chaplygin", quick=True),
        Problem("two-wheeled robot", CART, MOTIONS, "Chaplygin", quick=True),
        Problem("rubber ball", BALL, TURNS, "Chaplygin", ROLLED, quick=True),
        Problem("particle", PARTICLE, HEIGHT, "Chaplygin"),
        Problem("particle with wheel", WHEELED, WHEEL, "horizontal"),
        Problem("snakeboard", BOARD, ROTOR, "horizontal", quick=True, state=GAIT),
        Problem("mobile robot", ROBOT, ROLLING, "neither", kind="abelian"),
        Problem("knife edge", KNIFE, PLANE, "neither", kind="abelian", quick=True, state=GLIDING),
        Problem("particle with wheel", WHEELED, _on("z", "s"), "both", kind="abelian"),
        Problem("particle, REDLA", PARTICLE, HEIGHT, "Chaplygin", ENERGY, quick=True),
        Problem("particle that beats, REDLA", RheonomicParticle(shake=0.0, beat=0.3), HEIGHT, "Chaplygin", ENERGY),
        Problem("particle that is shaken, REDLA", RheonomicParticle(), HEIGHT, "Chaplygin", ENERGY),
    )  # fmt: skip
    return tuple(x for x in every if x.quick or not quick)


class Listed(NamedTuple):
    """A system and a group whose kind is known."""

    name: str
    system: System
    symmetry: Symmetry
    expected: str


def listed() -> tuple[Listed, ...]:
    """Examples and counterexamples, in addition to the problems that are run."""
    sleigh, heading = ChaplyginSleigh(), Torus(1)
    return (
        Listed("rolling disk", DISK, PLANE, "Chaplygin"),
        Listed("particle", PARTICLE, HEIGHT, "Chaplygin"),
        Listed("knife edge", KNIFE, _on("x2"), "Chaplygin, locally"),
        Listed("sleigh", sleigh, _on("y"), "Chaplygin, locally"),
        Listed("particle with wheel", WHEELED, WHEEL, "horizontal"),
        Listed("rolling disk", DISK, ROLLING, "neither"),
        Listed("sleigh", sleigh, MOTIONS, "neither"),
        Listed("free particle", FREE, _on("x", "z"), "neither"),
        Listed("rolling disk", DISK, _on("xi", group=heading), "neither"),
        Listed("free particle", FREE, _on("y"), "neither"),
    )


class Kind(NamedTuple):
    """The kind that was found for a group."""

    name: str
    group: str
    expected: str
    found: str
    shared: int
    """The number of directions that D and the orbits have in common."""
    spanned: bool
    """Whether D and the orbits together span all velocities."""
    invariant: bool
    reason: str


def kind_of(x: Listed | Problem) -> Kind:
    """The kind that `classify` finds."""
    found = classify(x.system, x.symmetry)
    kind = found.kind + (", locally" if "only locally" in found.reason else "")
    facts = found.shared, found.spanned, found.invariant
    return Kind(x.name, x.symmetry.words, x.expected, kind, *facts, found.reason)


class Compared(NamedTuple):
    """A full run, the reduced run, and the distances between them."""

    problem: Problem
    reduced: Reduced
    kind: Kind
    t: np.ndarray
    full: np.ndarray
    """(K, n) configurations of the full run."""
    shape: np.ndarray
    """(K, k) configurations of the reduced run."""
    back: np.ndarray
    """(K, n) configurations reconstructed from the reduced run."""
    projected: float
    """The distance of the reduced run from the full run without the group, in positions, velocities and times."""
    rebuilt: float
    """The distance of the reconstructed run from the full run."""

    @property
    def bound(self) -> float:
        """The largest distance that counts as the same motion."""
        return BOUNDS[isinstance(self.problem.method, EDLA)]


def _reduced(problem: Problem) -> Reduced:
    level = None
    if problem.expected == "horizontal":
        level = problem.symmetry.momentum(problem.system, *problem.start())
    return reduce(problem.system, problem.method, problem.symmetry, kind=problem.kind, level=level)


def _apart(one: Trajectory, other: Trajectory) -> float:
    pairs = ((one.q, other.q), (one.v, other.v), (one.t, other.t))
    return float(max(np.max(np.abs(np.asarray(a) - np.asarray(b))) for a, b in pairs))


def compare(problem: Problem, h: float | None = None, reduced: Reduced | None = None) -> Compared:
    """The comparison of both runs from the problem's start; another h and a ready-made reduced system may be given."""
    system, method = problem.system, problem.method
    first, steps = OWN if isinstance(method, EDLA) else EQUAL
    h = h or first
    reduced = reduced or _reduced(problem)
    q0, v0 = problem.start()
    full = simulate(system, method, q0, v0, h=h, steps=steps)
    run = simulate(reduced, reduced.method, *reduced.project(q0, v0), h=h, steps=steps)
    back = reduced.reconstruct(run, problem.symmetry.element(system, jnp.asarray(q0)))
    t, q, shape, rebuilt = (np.asarray(x, float) for x in (full.t, full.q, run.q, back.q))
    apart = _apart(run, reduced.project(full)), _apart(back, full)
    return Compared(problem, reduced, kind_of(problem), t, q, shape, rebuilt, *apart)


class Forces(NamedTuple):
    """The largest |beta0| and the largest |beta0 + beta1| of the discrete forces at random pairs of shapes."""

    name: str
    size: float
    sum: float


def _forces(core: Any, r0: Any, r1: Any, h: Any) -> Any:
    return core.beta0(r0, r1, h), core.beta1(r0, r1, h)


def forces_at(reduced: Reduced, r0: Any, r1: Any, h: Any) -> tuple[np.ndarray, np.ndarray]:
    """beta0 and beta1 at rows of pairs."""
    return over_rows(_forces)(as_arrays(reduced), r0, r1, h)


def forces_of(name: str, reduced: Reduced) -> Forces:
    """The forces at pairs with coordinates between -2 and 2, and steps between 0.02 and 0.5."""
    draw = np.random.default_rng(5)
    r0, r1 = draw.uniform(-2, 2, (2, PAIRS, len(reduced.coordinates)))
    before, after = forces_at(reduced, r0, r1, draw.uniform(0.02, 0.5, PAIRS))
    return Forces(name, float(np.max(np.abs(before))), float(np.max(np.abs(before + after))))


class Runs(NamedTuple):
    """All of them."""

    compared: tuple[Compared, ...]
    kinds: tuple[Kind, ...]
    forces: tuple[Forces, Forces]
    """The forces of the rolling disk and of the particle."""
    disk: Reduced
    turns: Compared
    """The comparison for the rubber ball over four closed paths of its point of contact."""

    def of(self, name: str) -> Compared:
        """The first comparison with this name."""
        return next(x for x in self.compared if x.problem.name == name)


def closing_step(ball: RubberBall) -> float:
    """The h with which TURN steps go once around: sin(pi/TURN) = h omega/2, as for leap-frog."""
    omega = np.sqrt(ball.stiffness / (ball.mass + ball.moment / ball.radius**2))
    return float(2 * np.sin(np.pi / TURN) / omega)


def make_runs(lab: Lab) -> Runs:
    """The comparisons, kinds and forces."""
    compared = []
    for problem in problems(lab.quick):
        lab.step(f"reduction, {problem.name}")
        compared.append(compare(problem))
    by_name = {x.problem.name: x for x in reversed(compared)}
    lab.step("reduction, kinds of groups")
    kinds = {(x.kind.name, x.kind.group): x.kind for x in compared if x.problem.method is not ENERGY}
    for x in listed():
        key = x.name, x.symmetry.words
        kinds[key] = kinds.get(key) or kind_of(x)
    order = ("Chaplygin", "Chaplygin, locally", "horizontal", "both", "neither")
    lab.step("reduction, discrete forces")
    disk, ball = reduce(DISK, METHOD, PLANE), by_name["rubber ball"]
    return Runs(
        tuple(compared),
        tuple(sorted(kinds.values(), key=lambda x: order.index(x.expected))),
        (forces_of("rolling disk", disk), forces_of("particle", by_name["particle, REDLA"].reduced)),
        disk,
        compare(ball.problem, closing_step(BALL), ball.reduced),
    )


POINTS = (16, 32, 64, 128)
"""The numbers of points of a loop."""
LENGTH = 257
"""The number of rows of every path. Paths are padded by standing still at the end, so that all are compiled once."""
SIZES = np.linspace(0.25, 5.5, 22)
"""The amplitudes of the heading, which go past the first zero of J1, 3.83."""
RADII = np.linspace(0.1, 2.0, 20)
"""The radii of the circles on which the ball rolls, in radii of the ball."""
CARTS = (0.8, 1.4, 2.0)
"""The amplitudes of the wheel angles whose paths are drawn."""
SHIFT, HEADING = 0.8, 1.2
"""The amplitudes of the loop of the disk: the distance rolled and the heading."""
RECTANGLE = (1.1, 0.9)
WHEELS, CIRCLE = 1.5, 0.9
"""The amplitude of the wheel angles of the cart, and the radius of the circle of the ball in radii of the ball."""


class Loop(NamedTuple):
    """A closed path of shapes, and the group elements of the smooth path and of polygons."""

    name: str
    reduced: Reduced
    path: Callable[[np.ndarray], np.ndarray]
    """The rows of shapes at angles 0 to 2 pi."""
    exact: np.ndarray
    """The group element of the smooth path."""
    polygon: Callable[[int], np.ndarray]
    """The group element of n equal steps along chords."""
    law: str


class Phase(NamedTuple):
    """A loop with more and more points."""

    name: str
    law: str
    exact: np.ndarray
    errors: tuple[float, ...]
    """The distances from the element of the smooth path, for POINTS."""
    rounding: float
    """The largest distance from the closed form for polygons."""

    @property
    def orders(self) -> tuple[float, ...]:
        """The orders of convergence, from each pair of errors."""
        return tuple(float(np.log2(a / b)) for a, b in zip(self.errors, self.errors[1:], strict=False))


def padded(path: np.ndarray) -> np.ndarray:
    """The path with its last row repeated."""
    return np.concatenate([path, np.broadcast_to(path[-1:], (LENGTH - len(path), path.shape[1]))])


def phase(reduced: Reduced, path: np.ndarray) -> np.ndarray:
    """The element of a path of up to LENGTH shapes."""
    return np.asarray(reduced.phase(padded(path)))


def angles(n: int) -> np.ndarray:
    """n + 1 equally spaced angles from 0 to 2 pi."""
    return 2 * np.pi * np.arange(n + 1) / n


def hat(w: tuple[float, float, float]) -> np.ndarray:
    """The matrix of a cross product."""
    a, b, c = w
    return np.array([[0, -c, b], [c, 0, -a], [-b, a, 0.0]])


def disk_loop(reduced: Reduced, shift: float = SHIFT, heading: float = HEADING) -> Loop:
    """The loop x3 = a cos s, xi = b sin s, which moves the disk by (0, 2 pi a J1(b)).

    Over a chord, the midpoint rule shortens x3 by sin(x)/x and xi by cos(x), with x = pi/n.
    """

    def path(s: np.ndarray) -> np.ndarray:
        return np.stack([shift * np.cos(s), heading * np.sin(s)], axis=1)

    def polygon(n: int) -> np.ndarray:
        return np.array([0, 2 * n * shift * np.sin(np.pi / n) * j1(heading * np.cos(np.pi / n))])

    exact = np.array([0, 2 * np.pi * shift * j1(heading)])
    return Loop("rolling disk, ellipse", reduced, path, exact, polygon, "x2 = 2 pi a J1(b)")


def cart_loop(reduced: Reduced, size: float) -> Loop:
    """Wheel angles on a circle, from a point where they are equal: sums roll the cart, differences turn it.

    The heading is a function of the wheel angles, so the cart comes back parallel to itself.
    """
    cart = reduced.full
    assert isinstance(cart, TwoWheeledRobot)
    way, heading = cart_amplitudes(cart, size)

    def path(s: np.ndarray) -> np.ndarray:
        return size * np.stack([np.cos(s + np.pi / 4), np.sin(s + np.pi / 4)], axis=1)

    def polygon(n: int) -> np.ndarray:
        return np.array([0, -2 * n * way * np.sin(np.pi / n) * j1(heading * np.cos(np.pi / n)), 0])

    exact = np.array([0, -2 * np.pi * way * j1(heading), 0])
    return Loop("two-wheeled robot, circle", reduced, path, exact, polygon, "y = -2 pi a J1(b)")


def cart_amplitudes(cart: TwoWheeledRobot, size: float) -> tuple[float, float]:
    """The amplitudes of the distance rolled and of the heading, for wheel angles on a circle."""
    return cart.radius * size / np.sqrt(2), cart.radius * size / (np.sqrt(2) * cart.track)


def ball_loop(reduced: Reduced, ratio: float) -> Loop:
    """The point of contact on a circle; in axes that go round with it, the ball turns at a constant rate.

    With P' = P w^, w = (rho/R) (cos s, sin s, 0), the product P Rz(s) satisfies U' = U (w0 + e3)^.
    """
    ball = reduced.full
    assert isinstance(ball, RubberBall)
    size = ratio * ball.radius

    def path(s: np.ndarray) -> np.ndarray:
        return size * np.stack([np.cos(s), np.sin(s)], axis=1)

    def polygon(n: int) -> np.ndarray:
        chord, half = 2 * ratio * np.sin(np.pi / n), np.pi / n
        step = expm(hat((chord * np.cos(half), chord * np.sin(half), 0))) @ expm(hat((0, 0, 2 * half)))
        return np.linalg.matrix_power(step, n).ravel()

    exact = expm(2 * np.pi * hat((ratio, 0, 1))).ravel()
    return Loop("rubber ball, circle", reduced, path, exact, polygon, "exp 2 pi (rho/R, 0, 1)")


def converge(loop: Loop) -> Phase:
    """The phase of the loop for POINTS."""
    found = [phase(loop.reduced, loop.path(angles(n))) for n in POINTS]
    off = [float(np.linalg.norm(g - loop.polygon(n))) for n, g in zip(POINTS, found, strict=True)]
    errors = tuple(float(np.linalg.norm(g - loop.exact)) for g in found)
    return Phase(loop.name, loop.law, loop.exact, errors, max(off))


def rectangle(a: float, b: float, n: int) -> np.ndarray:
    """A path that takes x3 to a, xi to b, x3 back and xi back, with n steps per side."""
    corners = np.array([[0, 0], [a, 0], [a, b], [0, b], [0, 0]])
    at = np.linspace(0, 4, 4 * n + 1)
    return np.stack([np.interp(at, range(5), x) for x in corners.T], axis=1)


def turned(element: np.ndarray) -> float:
    """The angle of a rotation, 0 to pi."""
    r = element.reshape(3, 3)
    sine = np.linalg.norm([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]]) / 2
    return float(np.arctan2(sine, (np.trace(r) - 1) / 2))


def ball_angle(ratio: np.ndarray) -> np.ndarray:
    """The angle of exp 2 pi (rho/R, 0, 1), which has length 2 pi sqrt(1 + (rho/R)^2), brought to 0 to pi."""
    whole = 2 * np.pi * np.sqrt(1 + ratio**2)
    return np.abs((whole + np.pi) % (2 * np.pi) - np.pi)


class Turns(NamedTuple):
    """The rubber ball by itself, four times around an ellipse."""

    open: float
    """The largest distance of the point of contact from its start after a turn."""
    found: float
    """The distance of the rotation of the full run after one turn from the phase of the ellipse."""
    again: float
    """The distance of the rotation after four turns from the fourth power of that phase."""
    angle: float
    """The angle of the rotation after one turn."""


def turns_of(run: Compared) -> Turns:
    """The full run against the phase of the points k/TURN of an ellipse, which come from no run."""
    ball = run.problem.system
    assert isinstance(ball, RubberBall)
    q0, v0 = run.problem.start()
    h, step = float(run.t[1]), 2 * np.pi / TURN
    s = angles(TURN)
    ellipse = np.outer(np.cos(s), q0[-2:]) + np.outer(np.sin(s), v0[-2:] * h / np.sin(step))
    one = phase(run.reduced, ellipse).reshape(3, 3)
    turn = [q[:9].reshape(3, 3) for q in run.full[::TURN]]
    away = np.abs(run.full[::TURN, -2:] - q0[-2:])
    return Turns(
        float(np.max(away)),
        float(np.linalg.norm(turn[1] - turn[0] @ one)),
        float(np.linalg.norm(turn[4] - turn[0] @ np.linalg.matrix_power(one, 4))),
        turned(one),
    )


class Phases(NamedTuple):
    """All of them."""

    loops: tuple[Phase, ...]
    corner: tuple[np.ndarray, float]
    """The group element of a rectangle of the disk, and its distance from (-a (1 - cos b), a sin b)."""
    turns: Turns
    disk: np.ndarray
    """The displacement of the disk over 2 pi a, for headings SIZES."""
    cart: np.ndarray
    """Minus the displacement of the cart, likewise."""
    ball: np.ndarray
    """The angle of the ball for RADII."""
    paths: tuple[np.ndarray, ...]
    """(K, 3) the positions of the cart along the loops of CARTS."""


def make_phases(runs: Runs) -> Phases:
    """The phases: their convergence, their dependence on size, and paths."""
    disk, cart, ball = runs.disk, runs.of("two-wheeled robot").reduced, runs.of("rubber ball").reduced
    full = cart.full
    assert isinstance(full, TwoWheeledRobot)
    loops = tuple(converge(x) for x in (disk_loop(disk), cart_loop(cart, WHEELS), ball_loop(ball, CIRCLE)))
    a, b = RECTANGLE
    corner = phase(disk, rectangle(a, b, 10))
    off = float(np.linalg.norm(corner - [-a * (1 - np.cos(b)), a * np.sin(b)]))
    s = angles(256)

    def moved(loop: Loop) -> np.ndarray:
        return phase(loop.reduced, loop.path(s))

    way, heading = cart_amplitudes(full, 1.0)
    sideways = [moved(cart_loop(cart, x / heading))[1] / (way * x / heading) for x in SIZES]
    paths = [cart_loop(cart, x).path(s[::4]) for x in CARTS]
    return Phases(
        loops,
        (corner, off),
        turns_of(runs.turns),
        np.array([moved(disk_loop(disk, 1.0, x))[1] for x in SIZES]) / (2 * np.pi),
        -np.array(sideways) / (2 * np.pi),
        np.array([turned(moved(ball_loop(ball, x))) for x in RADII]),
        tuple(np.array([phase(cart, p[: k + 1]) for k in range(len(p))]) for p in paths),
    )


SHAPE, GROUP, OTHER = "#0072B2", "#D55E00", "#117733"
"""The colours of the reduced motion, of what is reconstructed from it, and of a second curve."""
SETS = ("#0072B2", "#D55E00", "#117733")
DOTS: dict[str, Any] = {
    "ls": "",
    "marker": "o",
    "ms": 3.4,
    "mfc": "white",
    "mec": "#333333",
    "mew": 0.7,
    "zorder": 3,
}
START: dict[str, Any] = {"ls": "", "marker": "s", "color": "#333333", "ms": 5, "zorder": 4}
EVERY = 6
"""The number of steps of the full run between dots."""


def draw_motions(runs: Runs) -> "Figure":
    """The figure of four systems, with shapes on the left and the full motion on the right."""
    from matplotlib.lines import Line2D

    figure, axes = panels(4, 2, 12.8, (0.85, 0.85), bottom=0.95)
    _draw_cart(axes[0], runs.of("two-wheeled robot"))
    _draw_robot(axes[1], runs.of("mobile robot"))
    _draw_board(axes[2], runs.of("snakeboard"))
    _draw_ball(axes[3], runs.turns)
    entries = (
        ({"color": SHAPE, "lw": 1.4}, "reduced run"),
        ({"color": GROUP, "lw": 1.4}, "reconstructed from it"),
        (DOTS, "full run"),
        (START, "start"),
    )
    handles = [Line2D([], [], label=words, **style) for style, words in entries]
    figure.legend(handles=handles, loc="lower center", ncol=4, columnspacing=1.8, handlelength=2.2)
    return figure


def draw_phases(runs: Runs, phases: Phases) -> "Figure":
    """The figure of loops of the cart and their effects, and of the dependence on the size of a loop."""
    figure, axes = panels(2, 2, 7.2, (0.85, 0.85), bottom=0.6)
    _draw_loops(axes[0], runs.of("two-wheeled robot"), phases)
    _draw_shift(axes[1, 0], phases)
    _draw_angle(axes[1, 1], phases)
    return figure


def _square(ax: Any, title: str, labels: tuple[str, str]) -> None:
    ax.set(xlabel=labels[0], ylabel=labels[1])
    ax.set_aspect("equal", adjustable="datalim")
    ax.locator_params(nbins=8)
    ax.set_title(title)


def _carts(ax: Any, q: np.ndarray, size: float, colour: str) -> None:
    """Draws triangles that point where the cart is heading."""
    corners = size * np.array([[1.3, 0.0], [-0.7, 0.6], [-0.7, -0.6]])
    for x, y, theta in q[:, :3]:
        c, s = np.cos(theta), np.sin(theta)
        at = corners @ np.array([[c, s], [-s, c]]) + [x, y]
        ax.fill(*at.T, facecolor="white", edgecolor=colour, lw=0.9, zorder=3)


def _draw_cart(axes: Any, run: Compared) -> None:
    left, right = axes
    left.plot(*run.shape.T, color=SHAPE, lw=1.4)
    left.plot(*run.full[::EVERY, 3:].T, **DOTS)
    left.plot(*run.shape[0], **START)
    _square(left, "(a) two-wheeled robot: wheel angles", (r"$\psi_1$ [rad]", r"$\psi_2$ [rad]"))
    right.plot(*run.back[:, :2].T, color=GROUP, lw=1.4)
    _carts(right, run.full[2 * EVERY :: 2 * EVERY], 0.07, "#333333")
    right.plot(*run.back[0, :2], **START)
    _square(right, "(b) its path, with headings of the full run", ("x [m]", "y [m]"))


def _draw_robot(axes: Any, run: Compared) -> None:
    left, right = axes
    left.plot(*run.shape.T, color=SHAPE, lw=1.4)
    left.plot(*run.full[::EVERY, 2:].T, **DOTS)
    left.plot(*run.shape[0], **START)
    left.set(xlabel=r"rolling angle $x_3$ [rad]", ylabel=r"heading $\xi$ [rad]")
    left.set_title("(c) mobile robot: rolling and heading")
    right.plot(*run.back[:, :2].T, color=GROUP, lw=1.4)
    right.plot(*run.full[::EVERY, :2].T, **DOTS)
    right.plot(*run.back[0, :2], **START)
    _square(right, "(d) its path", (r"$x_1$", r"$x_2$"))


def _draw_board(axes: Any, run: Compared) -> None:
    left, right = axes
    left.plot(*run.shape[:, :2].T, color=SHAPE, lw=1.4)
    for x, y, theta in run.shape[::10, :3]:
        dx, dy = 0.4 * np.cos(theta), 0.4 * np.sin(theta)
        left.plot([x - dx, x + dx], [y - dy, y + dy], color="#9a9a9a", lw=1.0, zorder=1)
    left.plot(*run.full[::EVERY, :2].T, **DOTS)
    left.plot(*run.shape[0, :2], **START)
    _square(left, "(e) snakeboard without its rotor", ("x [m]", "y [m]"))
    theta, psi = run.back[:, 2], run.back[:, 3]
    right.plot(run.t, psi, color=GROUP, lw=1.4, label=r"$\psi$, from the board")
    right.plot(run.t, psi + theta, color=OTHER, lw=1.4, label=r"$\psi + \theta$, in space")
    right.plot(run.t[::EVERY], run.full[::EVERY, 3], **DOTS)
    right.set(xlim=(0, run.t[-1]), xlabel="t", ylabel="angle of the rotor [rad]")
    right.legend(loc="upper left", handlelength=1.8)
    right.set_title("(f) the rotor")


def _draw_ball(axes: Any, run: Compared) -> None:
    left, right = axes
    contact, one = run.back[:, -2:], run.shape[: TURN + 1]
    left.plot(*one.T, color=SHAPE, lw=1.4)
    left.plot(*run.full[: TURN + 1 : 3, -2:].T, **DOTS)
    left.plot(*one[0], **START)
    _square(left, "(g) rubber ball: point of contact", (r"$x_1$", r"$x_2$"))
    # P takes directions of space to those of the ball. Its last row is the place of the mark, which starts on top.
    mark = run.back[:, 6:9]
    at, above = contact + mark[:, :2], mark[:, 2] > 0
    below = ~above | ~np.append(above[1:], True) | ~np.append(True, above[:-1])  # up to the points above
    right.plot(*contact.T, color="#b5b5b5", lw=1.0, zorder=1)
    right.plot(*np.where(above[:, None], at, np.nan).T, color=GROUP, lw=1.4, label="above the centre")
    right.plot(
        *np.where(below[:, None], at, np.nan).T, color=GROUP, lw=1.1, ls=(0, (1.2, 1.4)), label="below"
    )
    places = ((7, -11), (-12, 3), (7, -3), (-12, 5), (7, -3))  # of the numbers, beside the curves
    for turn, ((x, y), place) in enumerate(zip(at[::TURN], places, strict=True)):
        right.plot(x, y, **(START if turn == 0 else DOTS | {"ms": 5.5}))
        right.annotate(str(turn), (x, y), xytext=place, textcoords="offset points", zorder=5)
    right.legend(loc="upper left", handlelength=1.8, fontsize=8.5)
    _square(right, "(h) a mark on it, over four turns", (r"$x_1$", r"$x_2$"))


def _draw_loops(axes: Any, run: Compared, phases: Phases) -> None:
    left, right = axes
    s = angles(128)
    for i, (size, path, colour) in enumerate(zip(CARTS, phases.paths, SETS, strict=True)):
        loop, path = cart_loop(run.reduced, size).path(s), path + np.array([0.9 * i, 0.0, 0.0])
        left.plot(*loop.T, color=colour, lw=1.4)
        left.plot(*loop[0], "s", color=colour, ms=5)
        left.annotate("", loop[36], loop[34], arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.2})
        right.plot(*path[:, :2].T, color=colour, lw=1.4)
        _carts(right, path[4:-1:4], 0.06, colour)
        right.plot(*path[0, :2], "s", color=colour, ms=5, zorder=4)
        right.plot(*path[-1, :2], "o", color=colour, ms=5.5, zorder=4)
    _square(left, "(a) two-wheeled robot: loops of the wheel angles", (r"$\psi_1$ [rad]", r"$\psi_2$ [rad]"))
    _square(right, "(b) what they do, from squares to dots", ("x [m]", "y [m]"))


def _draw_shift(ax: Any, phases: Phases) -> None:
    b = np.linspace(0, SIZES[-1], 300)
    ax.axhline(0, color="#b5b5b5", lw=0.7, zorder=0)
    ax.plot(b, j1(b), color="#333333", lw=1.1, label=r"$J_1(b)$")
    ax.plot(SIZES, phases.disk, "o", color=SHAPE, ms=6, mfc="white", label="disk")
    ax.plot(SIZES, phases.cart, "x", color=GROUP, ms=4.5, label="two-wheeled robot")
    ax.set(xlim=(0, SIZES[-1] + 0.1), xlabel="amplitude b of the heading [rad]", ylabel=r"shift/$(2\pi a)$")
    ax.legend(loc="upper right", handlelength=1.8)
    ax.set_title("(c) sideways in one loop")


def _draw_angle(ax: Any, phases: Phases) -> None:
    ratio = np.linspace(0, RADII[-1], 400)
    ax.plot(ratio, np.degrees(ball_angle(ratio)), color="#333333", lw=1.1, label="closed form")
    ax.plot(RADII, np.degrees(phases.ball), "o", color=OTHER, ms=5, mfc="white", label="256 steps")
    ax.set(xlim=(0, RADII[-1] + 0.05), ylim=(0, 190), yticks=range(0, 181, 45), xticks=np.arange(0, 2.1, 0.5))
    ax.set(xlabel=r"radius of the circle $\rho/R$", ylabel="angle of the ball [degrees]")
    ax.legend(loc="upper left", handlelength=1.8)
    ax.set_title("(d) rubber ball: turned by a circle")


SOURCE = "fernandez2008"
# The bound for rounding, which is 2e-15 to 3e-14 in 75 to 300 steps of the ball, and 1.3e-13 in the angle of the
# rotor, which reaches 20.
KEPT = 1e-12


class Measured(NamedTuple):
    """All of it."""

    runs: Runs
    phases: Phases

    @property
    def rotor(self) -> float:
        """The distance of the rotor of the full snakeboard from the law psi + theta = const + t mu/J0."""
        run = self.runs.of("snakeboard")
        board, (q0, v0) = run.problem.system, run.problem.start()
        assert isinstance(board, Snakeboard)
        level = float(run.problem.symmetry.momentum(board, q0, v0)[0])
        angle = run.full[:, 2] + run.full[:, 3]
        return float(np.max(np.abs(angle - angle[0] - run.t * level / board.rotor)))


def measure(lab: Lab) -> Measured:
    """The runs, then the phases."""
    runs = make_runs(lab)
    lab.step("reduction, geometric phases")
    return Measured(runs, make_phases(runs))


def most(data: Measured, own: bool) -> tuple[float, float]:
    """The largest distances of projected and of reconstructed runs, with equal steps or with those of EDLA."""
    runs = [x for x in data.runs.compared if isinstance(x.problem.method, EDLA) == own]
    return max(x.projected for x in runs), max(x.rebuilt for x in runs)


def present(lab: Lab, data: Measured) -> Result:
    """The study with its two figures and four tables."""
    runs, phases = data.runs, data.phases
    equal, own = most(data, own=False), most(data, own=True)
    disk, particle = runs.forces
    right = sum(x.found == x.expected for x in runs.kinds)
    orders = [p for loop in phases.loops for p in loop.orders]
    steps, spent = EQUAL[1], OWN[1]
    said = (
        "The paper states that a discrete nonholonomic system with an abelian symmetry can be reduced, and that the "
        "reduced equations, whose forces beta0 and beta1 come from the constraint, have the same motions. It has "
        "neither an example nor a run. If the theorem holds in arithmetic, a reduced run and a full run without its "
        "group agree to rounding, and the group follows from the shapes: g1 = g0 F(r0, r1). When the shapes return, "
        "the group need not; the difference is the geometric phase. Proposition 3 of Cort\u00e9s (2003) says the same "
        "about steps that keep the energy (REDLA); it leaves out forces on time, which are needed if the "
        "constraint depends on time.",
    )
    found = (
        f"The motions are the same. Over {steps} steps reduced runs are within {number(equal[0])} of the full ones "
        f"without their group, and reconstructed runs within {number(equal[1])} of the full ones; with the steps of "
        f"REDLA, whose sizes round more, within {number(own[0])} and {number(own[1])} over {spent}. This holds for "
        "groups that do not commute too, SE(2) of the two-wheeled robot and SO(3) of the rubber ball. "
        f"{right} of {len(runs.kinds)} pairs of a system and a group are found to be of the expected kind.",
        "For the disk by the midpoint rule beta0 + beta1 = 0 at any two shapes, to "
        f"{number(disk.sum / disk.size)} of beta0 at {PAIRS} random pairs. So forces drop out of uniform "
        "motion, and the shapes go straight on. This does not hold for every system: for the particle the sum comes to "
        f"{number(particle.sum / particle.size)} times beta0.",
        "Loops of shapes move the group as they should. If the heading goes to and fro by b while the disk or the "
        "cart rolls to and fro by a, each moves sideways by 2 pi a J1(b) per loop, although it cannot slip: most "
        "for b = 1.84, not at all for b = 3.83. A ball that rolls once around a circle of radius rho is turned by "
        "the rotation exp 2 pi (rho/R, 0, 1), and for rho = 1.73 R comes back as it was. Polygons of n points are "
        f"off by O(1/n^2) (orders {min(orders):.3f} to {max(orders):.3f}), and have closed forms of their own, which "
        f"are met to {number(max(x.rounding for x in phases.loops))}.",
        f"In its harmonic bowl the ball goes round an ellipse by itself. With h = {float(runs.turns.t[1]):.5f} that "
        f"takes {TURN} steps exactly: the point of contact is back to {number(phases.turns.open)}, the ball is "
        f"turned by {np.degrees(phases.turns.angle):.1f} degrees, which is the phase of the ellipse to "
        f"{number(phases.turns.found)}, and after four turns by its fourth power.",
    )
    title = "Reduction by symmetry: the same motions, and what loops leave behind"
    tables = (_compared(data, lab.quick), _kinds(data), _loops(data), _laws(data))
    return Result("reduction", title, said, found, _pictures(data), tables, data, ours=True, source=SOURCE)


def _pictures(data: Measured) -> tuple[Picture, Picture]:
    motions = Picture(
        "reduction",
        draw_motions(data.runs),
        "Reduced motions on the left, reconstructed motions on the right, and dots of the full runs; 300 "
        f"steps of h = {EQUAL[0]:g}, the ball {float(data.runs.turns.t[1]):.4f}. (a), (b) Two-wheeled robot with "
        "springs on its wheels, over SE(2). (c), (d) Mobile robot, over R^2. (e), (f) Snakeboard without its rotor, "
        "bars the board, and the angle of the rotor, which follows from the level of its momentum; in space it turns "
        "evenly. (g), (h) Rubber ball in a bowl, over SO(3): the point of contact closes an ellipse (grey) four "
        "times, a mark that was on top does not come back. Seen from above, numbers count turns.",
        "Eight panels in pairs. Looping wheel angles and a path of a cart with cusps; a waving heading and a path of "
        "stacked loops; a zigzag of the snakeboard and its rotor angle, which climbs in steps along a straight line; "
        "an ellipse, and a mark on the ball that is elsewhere after each turn. Dots of full runs lie on all curves.",
    )
    loops = Picture(
        "reduction-phases",
        draw_phases(data.runs, data.phases),
        "What loops of shapes leave behind. (a) Circles of the wheel angles, from the squares. (b) The cart along "
        "them, three starts side by side, triangles pointing ahead: it ends parallel to itself and beside where it "
        "was. (c) That shift against the amplitude b of the heading, over 2 pi times the amplitude a of the way "
        "rolled, with 256 steps; the disk moves along x2, the cart along -y. (d) The rotation of the ball by a "
        "circle of contact: its whole angle is 2 pi times the root of 1 + (rho/R)^2, brought to 0 to 180 degrees.",
        "Four panels: three circles; three paths that each end sideways of their start; points of disk and cart on "
        "the Bessel function J1, which passes zero at 3.83; the angle of the ball, which rises to 180 degrees at "
        "1.12 and is zero again at 1.73.",
    )
    return motions, loops


def group_words(run: Compared) -> str:
    """The group and the coordinates on which it acts; the nine numbers of a rotation are left out."""
    symmetry = run.problem.symmetry
    return symmetry.words if len(symmetry.on) < 4 else symmetry.group.name


def _within(x: float, bound: float) -> Cell:
    return Cell(number(x), "exact" if x < bound else "drift")


def _compared(data: Measured, quick: bool) -> Table:
    rows = []
    for x in data.runs.compared:
        agrees = x.kind.found == x.problem.expected
        done = x.problem.kind or x.kind.found
        rows.append(
            (
                Cell(x.problem.name),
                Cell(group_words(x)),
                Cell(x.kind.found, "good" if agrees else "differs"),
                Cell(done.lower()),
                Cell(f"{len(x.problem.system.coordinates)} to {len(x.reduced.coordinates)}"),
                _within(x.projected, x.bound),
                _within(x.rebuilt, x.bound),
            )
        )
    count = f" This quick run has {len(problems(True))} of {len(problems(False))} cases." if quick else ""
    caption = (
        f"Runs of {EQUAL[1]} steps of h = {EQUAL[0]:g}, and of {OWN[1]} steps of the reduced EDLA (REDLA), the first "
        f"of h = {OWN[0]:g}: kind of the group, how it was reduced, and how many numbers a position has. "
        "Then the largest distance between the reduced run and the full one without its group, and between the "
        f"reconstructed run and the full one, in positions, velocities and times. Expected: less than "
        f"{number(BOUNDS[False], 0)}, for REDLA {number(BOUNDS[True], 0)}.{count}"
    )
    columns = ("system", "group", "kind", "reduced as", "numbers", "reduced", "rebuilt")
    return Table(caption, columns, tuple(rows))


def _kinds(data: Measured) -> Table:
    rows = []
    for x in data.runs.kinds:
        tone = "good" if x.found == x.expected else "differs"
        group = x.group if len(x.group) < 40 else x.group.partition(" on ")[0]
        notes = () if x.found == x.expected else (f"expected {x.expected}",)
        answers = ("yes" if y else "no" for y in (x.spanned, x.invariant))
        rows.append(
            (Cell(x.name), Cell(group), Cell(x.found, tone, notes), Cell(str(x.shared)),
             *map(Cell, answers))
        )  # fmt: skip
    caption = (
        "What classify says about a group: Chaplygin if the constraint D and the orbits V of the group share no "
        "direction and span all velocities; horizontal if the directions that they share are orbits of one subgroup; "
        "locally if that fails at some configurations. A heading, and y of the particle, have momenta that are kept, "
        "but D changes with them, so they are not symmetries."
    )
    return Table(caption, ("system", "group", "found", "shared", "spans", "invariant"), tuple(rows))


def _loops(data: Measured) -> Table:
    rows = []
    for x in data.phases.loops:
        least = min(x.orders)
        rows.append(
            (
                Cell(x.name),
                Cell(x.law),
                *(Cell(number(e)) for e in x.errors),
                # The errors are series in 1/n^2, whose next term changes the order by 0.01 with 16 points.
                Cell(f"{x.orders[-1]:.3f}", "good" if abs(least - 2) < 0.05 else "differs"),
                _within(x.rounding, KEPT),
            )
        )
    caption = (
        "Phases of loops with n points against their closed forms, the order from the last two, and their distance "
        f"from the closed forms for n chords. Disk: x3 = a cos s, xi = b sin s, a = {SHIFT:g}, b = {HEADING:g}; "
        f"cart: wheel angles on a circle of radius {WHEELS:g}, a and b the amplitudes of way and heading; ball: a "
        f"circle of radius {CIRCLE:g} R. Expected: order 2, and rounding."
    )
    columns = ("loop", "closed form", *(f"n = {n}" for n in POINTS), "order", "from polygon's")
    return Table(caption, columns, tuple(rows))


def _laws(data: Measured) -> Table:
    disk, particle = data.runs.forces
    turns, (a, b) = data.phases.turns, RECTANGLE
    entries = (
        (f"disk, beta0 + beta1 = 0 at {PAIRS} pairs, over beta0", disk.sum / disk.size),
        (f"disk, rectangle {a:g} x {b:g}: (-a (1 - cos b), a sin b)", data.phases.corner[1]),
        ("snakeboard, psi + theta = const + t mu/J0", data.rotor),
        (f"rubber ball, point of contact back after {TURN} steps", turns.open),
        ("rubber ball, full run turned by the phase of the ellipse", turns.found),
        ("rubber ball, after four turns by its fourth power", turns.again),
    )
    rows = [(Cell(name), _within(off, KEPT), Cell("rounding")) for name, off in entries]
    ratio = particle.sum / particle.size
    rows.append(
        (Cell("particle, beta0 + beta1 over beta0"), Cell(number(ratio), "good" if ratio > 0.1 else "differs"),
         Cell("not zero"))
    )  # fmt: skip
    caption = (
        "Exact laws: the largest deviation, which should be rounding; the last row is one that does not hold."
    )
    return Table(caption, ("law", "deviation", "expected"), tuple(rows))
