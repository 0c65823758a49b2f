"""Systems with symmetries and their runs, made once for all tests of a process."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from equations.reduction_examples import EXAMPLES
from hurry import compiled

import dalembert as da
from dalembert.groups import SE2, SO3, Product, Rn, Torus
from dalembert.model import as_arrays

Z = da.zoo
WELL = lambda q: (q[0] ** 2 + q[1] ** 2) / 2


class Knife(Z.KnifeEdge):
    """The knife edge without a pull, whose heading moves in V = cos(xi)/2."""

    def potential(self, q):
        return 0.5 * jnp.cos(q[2])


def lagging(system, q0, q1, h):
    """D_d of the particle with a wheel that depends on the wheel's turn: z' = y x' + h s' y'/10 at the midpoint."""
    x, y, z, s = (q1 - q0) / h
    return jnp.stack([z - 0.5 * (q0[1] + q1[1]) * x - 0.1 * h * s * y])


class Case(NamedTuple):
    """A system, a group, and how the one is reduced by the other."""

    system: da.System
    symmetry: da.Symmetry
    kind: str = "chaplygin"
    method: da.Method = da.VariationalDLA()

    @property
    def start(self):
        return tuple(np.asarray(x, float) for x in self.system.start())


PLANE, PARTICLE = Rn(2), Z.NonholonomicParticle(WELL)
ALONG_Z, WHEEL = da.Symmetry(Rn(1), on=("z",)), da.Symmetry(Rn(1), on=("s",))
BOTH = da.Symmetry(PLANE, on=("z", "s"))
ROLLING = da.Symmetry(PLANE, on=("x1", "x2"))
MOTIONS = da.Symmetry(SE2(), on=("x", "y", "theta"))
TURNS = da.Symmetry(SO3(), on=SO3().coordinates)
ROTOR = da.Symmetry(Torus(1), on=("psi",))
OWN = da.VariationalDLA(discrete_constraint=da.discrete.CustomConstraint(lagging))
EDLA = da.EDLA(pin=False)  # asked for the last energy each time, as [cortes2003] has it
CASES = {
    "particle": Case(PARTICLE, ALONG_Z),
    "disk": Case(Z.MobileRobot(strength=0.0), ROLLING),
    "robot": Case(Z.MobileRobot(), ROLLING),
    "two wheels": Case(Z.TwoWheeledRobot(), MOTIONS),
    "particle with a wheel": Case(Z.ParticleWithWheel(), WHEEL, "horizontal"),
    "particle with a wheel, own D_d": Case(Z.ParticleWithWheel(), WHEEL, "horizontal", OWN),
    "snakeboard": Case(Z.Snakeboard(psi="relative"), ROTOR, "horizontal"),
    "robot, abelian": Case(
        Z.MobileRobot(), da.Symmetry(Product(PLANE, Torus(1)), on=("x1", "x2", "x3")), "abelian"
    ),
    "knife edge": Case(Knife(), ROLLING, "abelian"),
    "particle with a wheel, abelian": Case(Z.ParticleWithWheel(), BOTH, "abelian"),
    "particle with a wheel, own D_d, abelian": Case(Z.ParticleWithWheel(), BOTH, "abelian", OWN),
    "particle with a wheel, turns": Case(Z.ParticleWithWheel(), WHEEL, "abelian"),
    "timed particle": Case(PARTICLE, ALONG_Z, method=EDLA),
    "timed particle, modulated": Case(Z.RheonomicParticle(shake=0.0, beat=0.3), ALONG_Z, method=EDLA),
    "timed particle, affine": Case(Z.RheonomicParticle(), ALONG_Z, method=EDLA),
    "shaken particle": Case(Z.RheonomicParticle(beat=0.3), ALONG_Z),
    "ball": Case(Z.RubberBall(), TURNS, method=da.VariationalDLA(da.discrete.Retraction("cayley"))),
}
FIXED = [name for name, case in CASES.items() if not case.method.variable_step and name in EXAMPLES]
VARIABLE = [name for name, case in CASES.items() if case.method.variable_step]


def start(name):
    """q0 and v0: those of the examples written out by hand."""
    if name not in EXAMPLES:
        return CASES[name].start
    problem = EXAMPLES[name].problem
    return problem.q0.astype(float), problem.v0.astype(float)


@cache
def reduced(name):
    """The reduced system."""
    case = CASES[name]
    momentum = jax.jit(lambda q, v: case.symmetry.momentum(case.system, q, v))
    level = momentum(*start(name)) if case.kind == "horizontal" else None
    return da.reduce(case.system, case.method, case.symmetry, kind=case.kind, level=level)


class Runs(NamedTuple):
    """A reduced system, the full run, and the reduced one."""

    red: da.reduction.ReducedSystem
    full: da.Trajectory
    sol: da.Trajectory


@cache
def runs(name):
    """300 steps of h = 0.1, or 150 that begin with h = 0.05 where steps are of variable size."""
    case, red = CASES[name], reduced(name)
    size = {"h": 0.05, "steps": 150} if case.method.variable_step else {"h": 0.1, "steps": 300}
    full = da.simulate(case.system, case.method, *start(name), **size)
    return Runs(red, full, da.simulate(red, red.method, *red.project(*start(name)), **size))


@cache
def rebuilt(name):
    """The full run of the reduced one, from the element of the start."""
    red, full, sol = runs(name)
    return red.reconstruct(sol, red.symmetry.element(red.full, full.q[0]))


class Pairs(NamedTuple):
    """Over pairs of shapes: Lhat, its derivatives by r0 and r1, and the discrete forces.

    Where steps vary, derivatives and forces have their components for time first, L* being a function of (t0, r0) and
    (t1, r1), and those of the forces are minus F^-_t and F^+_t.
    """

    value: jax.Array
    first: jax.Array
    second: jax.Array
    beta0: jax.Array
    beta1: jax.Array


def over_pairs(red, rows):
    """Pairs, at rows (r0, r1, h, t)."""
    timed = red.rule.variable_step

    def one(pair):
        value, by = jax.value_and_grad(red.lagrangian_hat, argnums=(0, 1, 2, 3) if timed else (0, 1))(*pair)
        ends, forces = by[:2], (red.beta0(*pair), red.beta1(*pair))
        if timed:  # h = t1 - t0
            together = lambda a, b: jnp.concatenate([a[None], b])
            ends = together(by[3] - by[2], ends[0]), together(by[2], ends[1])
            forces = [together(-a, b) for a, b in zip(red.time_forces(*pair), forces, strict=True)]
        return Pairs(value, *ends, *forces)

    return jax.lax.map(one, rows)


_made = {}


def pairs(name, r0, r1, h=0.1, t=0.0):
    """Lhat and the forces over as many pairs as a run has; compiled once for all values of parameters."""
    h, t = (np.broadcast_to(np.asarray(x, float), len(r0)) for x in (h, t))
    given = as_arrays(reduced(name)), (r0, r1, h, t)
    key = jax.tree.structure(given)
    if key not in _made:
        _made[key] = compiled(over_pairs, *given)
    return Pairs(*(np.asarray(x) for x in _made[key](*given)))


def along(function, *rows):
    """A function at rows, one after the other, which is quicker to trace than all at once."""
    given = tuple(jnp.asarray(x) for x in rows)
    made = compiled(lambda given: jax.lax.map(lambda row: function(*row), given), given)
    return jax.tree.map(np.asarray, made(given))


def drawn(name, seed=5, increment=0.1):
    """As many random pairs as a run has, and their steps and times."""
    random = np.random.default_rng(seed)
    count = 150 if name in VARIABLE else 300
    r0, d = random.uniform(-1, 1, (2, count, reduced(name).dimension))
    h = random.uniform(0.03, 0.1, count) if name in VARIABLE else np.full(count, 0.1)
    return r0, r0 + increment * d, h, random.uniform(0, 3, count)


def off(one, other):
    """The largest difference."""
    return float(np.max(np.abs(np.asarray(one) - np.asarray(other))))
