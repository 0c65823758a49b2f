"""The runs of the study of reduction: full ones beside reduced ones, and which groups are of which kind."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.discrete import Retraction
from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import Symmetry, System, as_arrays, lower
from dalembert.model.groups import SE2, SO3, Product, Rn, Torus
from dalembert.numerics import over_rows
from dalembert.reduction import ReducedRheonomicSystem, ReducedSystem, classify, reduce
from dalembert.simulate import Trajectory, simulate
from dalembert.studies.lab import Lab
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

Reduced = ReducedSystem | ReducedRheonomicSystem

EQUAL, OWN = (0.1, 300), (0.05, 150)
"""h and how many steps: where they are equal, and where they have the size that keeps the energy (h is the first)."""
BOUNDS = {False: 1e-11, True: 1e-10}
"""What counts as the same motion, by whether steps have a size of their own. Rounding gives 1e-13 after 300 equal
steps; that of h is larger by 1/h^2, about 5e-11 after 150."""
PAIRS = 200
TURN = 75
"""Steps that take the rubber ball once around its ellipse."""

METHOD, ROLLED, ENERGY = VariationalDLA(), VariationalDLA(Retraction("exp")), EDLA()


class Problem(NamedTuple):
    """A system, a group, a method, and how to reduce it."""

    name: str
    system: System
    symmetry: Symmetry
    expected: str
    """What `classify` should find."""
    method: VariationalDLA | EDLA = METHOD
    kind: str | None = None
    """How to reduce it, where that is not what was found."""
    quick: bool = False
    """Whether the quick study has it."""
    state: tuple[Any, Any] | None = None
    """Where it starts; None for the start of the system."""

    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity."""
        q0, v0 = self.state or self.system.start()
        return np.asarray(q0, float), np.asarray(v0, float)


def _bowl(q: Any) -> Any:
    return 0.5 * (q[0] ** 2 + q[1] ** 2)


def _on(*names: str, group: Any = None) -> Symmetry:
    return Symmetry(Rn(len(names)) if group is None else group, on=names)


PLANE, HEIGHT, WHEEL = _on("x1", "x2"), _on("z"), _on("s")
GLIDING = [0.0, 0.0, 0.4], [2 * np.cos(0.4), 2 * np.sin(0.4), 1.0]
"""A start of the knife edge, whose own only turns on the spot where nothing pulls."""
_COS, _SIN = 0.7 * np.cos(0.4), 0.7 * np.sin(0.4)
GAIT = [0.0, 0.0, -1.1, 0.0, 0.4], [_COS * np.cos(1.1), -_COS * np.sin(1.1), -_SIN, 0.9, 1.0]
"""That of the snakeboard, turned so that it travels along x."""
ROLLING = _on("x1", "x2", "x3", group=Product(Rn(2), Torus(1)))
MOTIONS, ROTOR = _on("x", "y", "theta", group=SE2()), _on("psi", group=Torus(1))
TURNS = _on(*SO3().coordinates, group=SO3())

# The disk is the robot without its potential: written so, both are compiled once.
ROBOT, DISK = MobileRobot(), MobileRobot(strength=0.0)
CART, BOARD, BALL = TwoWheeledRobot(), Snakeboard(psi="relative"), RubberBall()
PARTICLE, FREE = NonholonomicParticle(_bowl), NonholonomicParticle()
WHEELED, KNIFE = ParticleWithWheel(), KnifeEdge(pull=0.0)


def problems(quick: bool) -> tuple[Problem, ...]:
    """What is run."""
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
    """Examples and non-examples, beside those that are run."""
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
    """What was found of a group."""

    name: str
    group: str
    expected: str
    found: str
    shared: int
    """How many directions D and the orbits have in common."""
    spanned: bool
    """Whether together they are all velocities."""
    invariant: bool
    reason: str


def kind_of(x: Listed | Problem) -> Kind:
    """What `classify` says."""
    found = classify(x.system, x.symmetry)
    kind = found.kind + (", locally" if "only locally" in found.reason else "")
    facts = found.shared, found.spanned, found.invariant
    return Kind(x.name, x.symmetry.words, x.expected, kind, *facts, found.reason)


class Compared(NamedTuple):
    """A full run, the reduced one, and the way between them."""

    problem: Problem
    reduced: Reduced
    kind: Kind
    t: np.ndarray
    full: np.ndarray
    """(K, n) configurations of the full run."""
    shape: np.ndarray
    """(K, k) those of the reduced run."""
    back: np.ndarray
    """(K, n) those that were made from it."""
    projected: float
    """How far the reduced run is from the full one without the group: positions, velocities and times."""
    rebuilt: float
    """How far the reconstructed run is from the full one."""

    @property
    def bound(self) -> float:
        """What counts as the same."""
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
    """Both runs from the start of the system; another h, and what is reduced already, may be given."""
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
    """The discrete forces at random pairs of shapes: the largest |beta0|, and the largest |beta0 + beta1|."""

    name: str
    size: float
    sum: float


def _forces(core: Any, r0: Any, r1: Any, h: Any) -> Any:
    return core.beta0(r0, r1, h), core.beta1(r0, r1, h)


def forces_at(reduced: Reduced, r0: Any, r1: Any, h: Any) -> tuple[np.ndarray, np.ndarray]:
    """beta0 and beta1 at rows of pairs."""
    return over_rows(_forces)(lower(as_arrays(reduced)), r0, r1, h)


def forces_of(name: str, reduced: Reduced) -> Forces:
    """At pairs with coordinates between -2 and 2, and steps between 0.02 and 0.5."""
    draw = np.random.default_rng(5)
    r0, r1 = draw.uniform(-2, 2, (2, PAIRS, len(reduced.coordinates)))
    before, after = forces_at(reduced, r0, r1, draw.uniform(0.02, 0.5, PAIRS))
    return Forces(name, float(np.max(np.abs(before))), float(np.max(np.abs(before + after))))


class Runs(NamedTuple):
    """All of them."""

    compared: tuple[Compared, ...]
    kinds: tuple[Kind, ...]
    forces: tuple[Forces, Forces]
    """Of the rolling disk, and of the particle."""
    disk: Reduced
    turns: Compared
    """The rubber ball over four closed paths of its point of contact."""

    def of(self, name: str) -> Compared:
        """The first comparison of this name."""
        return next(x for x in self.compared if x.problem.name == name)


def closing_step(ball: RubberBall) -> float:
    """The h with which TURN steps are once around: sin(pi/TURN) = h omega/2, as for leap-frog."""
    omega = np.sqrt(ball.stiffness / (ball.mass + ball.moment / ball.radius**2))
    return float(2 * np.sin(np.pi / TURN) / omega)


def make_runs(lab: Lab) -> Runs:
    """Comparisons, kinds and forces."""
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
