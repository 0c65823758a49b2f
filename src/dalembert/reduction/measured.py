"""Measures whether a group is a symmetry of a system and of its discretisation, and finds where it fails."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import (
    TOLERANCE,
    Mechanics,
    Symmetry,
    System,
    Trait,
    as_arrays,
    independent_rows,
    lower,
)
from dalembert.numerics import Vector, jit_fast_compile, matmul, matvec, solve_spd
from dalembert.reduction.cases import Rule

NAMES = {
    "L": "the Lagrangian",
    "D": "the constraint distribution D",
    "L_d": "the discrete Lagrangian",
    "D_d": "the discrete constraint",
}
# The numbers of samples near the given places, and at distances of 0.001 to 100 from them, which show changes far away
# or on a small scale. One compiled function handles them all; compiling it takes longer than running it.
NEAR, _FAR = 24, 488
# Further elements move the NEAR samples along each direction of the group, up to _REACH either way. They are about 0.1
# apart, which shows what is broken in places as small as that. They come in batches, so that nothing is compiled again.
_BATCHES, _REACH = 4, 100.0
# Rounding and its consequences stay below this fraction of the arguments, a thousand units in the last place.
ROUNDING = 1e3 * float(jnp.finfo(float).eps)


class Sample(NamedTuple):
    """A state, a time, and elements of the group."""

    t: Any
    q: Any
    v: Any
    x: Any
    """Elements of the algebra."""
    g: Any
    """The group elements exp(x)."""


class Invariance(NamedTuple):
    """The largest change of a quantity under the group, relative to its size, and where it occurs."""

    change: float
    q: np.ndarray
    g: np.ndarray

    @property
    def holds(self) -> bool:
        """Whether the change is only rounding."""
        return self.change <= TOLERANCE


def _places(system: System, at: Any) -> np.ndarray:
    """The configurations to sample around."""
    given = [q for q, _ in system.starts().values()] if at is None else at
    try:
        places = np.atleast_2d(np.asarray(given, float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"at must be configurations, rows of {system.dimension} numbers: {error}") from None
    if at is None and not places.size:
        zero = np.asarray(lower(system).space.identity())
        places = zero[None]
    if places.ndim != 2 or places.shape[1] != system.dimension or not places.size:
        raise ValueError(
            f"at must be configurations of {system.dimension} numbers each; got shape {np.shape(places)}"
        )
    if not np.all(np.isfinite(places)):
        raise ValueError(f"at must be configurations of finite numbers; got {places.tolist()}")
    space = lower(system).space
    if Trait.GROUP in lower(system).traits:
        off = max(float(space.defect(jnp.asarray(x))) for x in places)
        if not off < TOLERANCE:
            raise ValueError(f"at must be elements of {space.name}; one is off by {off:.3g}")
    return places


def without_redundancy(system: System, at: Any = None) -> System:
    """The system without the one-forms that follow from others at its start states, or at the configurations `at`."""
    if not isinstance(system, System) or Trait.HOLONOMIC in lower(system).traits:
        return system
    return independent_rows(system, _places(system, at)[0])


def samples(system: System, symmetry: Symmetry, at: Any = None) -> Sample:
    """Fixed samples around the start states of a system, or around the configurations `at`, the NEAR ones first."""
    if Trait.HOLONOMIC in lower(system).traits:
        raise ValueError(
            f"symmetries are measured and reduced for constraints on velocities alone, but {system.label} gives "
            "position constraints; use coordinates that solve them"
        )
    if Trait.NONLINEAR in lower(system).traits:
        raise ValueError(
            "symmetries are measured and reduced for constraints that are linear in the velocity, but "
            f"{system.label} gives nonlinear(q, v)"
        )
    places = _places(system, at)
    random, far = np.random.default_rng(7), np.random.default_rng(8)
    n, size = system.velocity_dimension, symmetry.group.dimension
    bases = places[np.arange(NEAR + _FAR) % len(places)]

    def drawn(count: int, low: float, high: float, factor: Any = 1.0) -> np.ndarray:
        """NEAR rows of size about one, and _FAR rows of sizes from 10^low to 10^high."""
        sizes = 10 ** far.uniform(low, high, (_FAR, 1))
        return np.concatenate(
            [random.uniform(-1, 1, (NEAR, count)) * factor, far.uniform(-1, 1, (_FAR, count)) * sizes]
        )

    shifts = drawn(n, -3, 2, np.where(np.arange(NEAR) % 2, 3.0, 1.0)[:, None])
    # Body rotations stay below half a turn per step, beyond which two elements do not determine the velocity.
    v = drawn(n, -3, 1)
    t = np.concatenate([random.uniform(0, 3, NEAR), 10 ** far.uniform(-1, 2, _FAR)])
    x = drawn(size, -3, 2)
    q = np.array(_displaced(system, bases, shifts))
    count = min(len(places), NEAR)
    q[:count] = places[:count]
    return Sample(t, q, v, x, np.asarray(_elements(symmetry, x)))


def _walks(symmetry: Symmetry, given: Sample) -> list[Sample]:
    """Batches of samples, as large as the given ones and with the same NEAR ones first, along the group."""
    rows = np.concatenate([np.arange(NEAR), np.arange(_FAR) % NEAR])
    made = []
    for direction in np.eye(symmetry.group.dimension):
        for distances in np.linspace(-_REACH, _REACH, _BATCHES * _FAR).reshape(_FAR, _BATCHES).T:
            x = np.concatenate([given.x[:NEAR], distances[:, None] * direction])
            q, v = given.q[rows], given.v[rows]
            made.append(Sample(given.t[rows], q, v, x, np.asarray(_elements(symmetry, x))))
    return made


@jit_fast_compile
def _displaced(system: System, q: Array, x: Array) -> Array:
    return jax.vmap(lower(system).space.displaced)(q, x)


@jit_fast_compile
def _elements(symmetry: Symmetry, x: Array) -> Array:
    return jax.vmap(symmetry.group.exp)(x)


def _relative(change: Array, size: Array) -> Array:
    """The largest change, where each change is relative to its own size."""
    return jnp.max(jnp.abs(change) / (jnp.abs(size) + jnp.finfo(float).tiny), initial=0.0)


def place(system: System, q: Any) -> str:
    """A configuration as text, such as x=1, y=2."""
    return ", ".join(f"{c}={value:.4g}" for c, value in zip(system.coordinates, q, strict=True))


@jit_fast_compile
def _actions(system: System, symmetry: Symmetry, s: Sample) -> Any:
    """The defect of each identity of a group action, coordinate by coordinate, relative to the numbers in it."""
    group = symmetry.group

    def one(q, g, k):
        moved, both = symmetry.act(system, g, q), group.multiply(k, g)
        still, there = symmetry.act(system, group.identity(), q), symmetry.act(system, k, moved)
        size = jnp.abs(q) + jnp.abs(moved) + jnp.abs(there)
        on = symmetry.element(system, size)
        return (
            _relative(still - q, size),
            _relative(there - symmetry.act(system, both, q), size),
            _relative(
                symmetry.element(system, moved) - group.multiply(g, symmetry.element(system, q)),
                on + jnp.abs(g),
            ),
        )

    return jax.vmap(one)(s.q, s.g, jnp.roll(s.g, 1, axis=0))


def check_action(system: System, symmetry: Symmetry, given: Sample) -> None:
    """Raises ValueError if a function is not an action of the group, or does not multiply the numbers of `on` by g."""
    symmetry.split(system)
    if symmetry.action is None:  # multiplication from the left, which is an action
        return
    said = f"Symmetry {symmetry.words} on {system.label}: "
    g, q = (jax.ShapeDtypeStruct((n,), jnp.zeros(()).dtype) for n in (symmetry.group.size, system.dimension))
    made: Any = jax.eval_shape(symmetry.action, g, q)
    if getattr(made, "shape", None) != (system.dimension,):
        raise ValueError(
            f"{said}action(g, q) must return a configuration, shape ({system.dimension},); got "
            f"{getattr(made, 'shape', made)}"
        )
    on = ", ".join(symmetry.on)
    identities = (
        "action(e, q) = q must hold for the identity e",
        "action(k, action(g, q)) = action(k g, q) must hold",
        f"It must multiply the element that the coordinates of `on` are, element(action(g, q)) = g element(q), where "
        f"element(q) is ({on}) of q",
    )
    found = np.stack([np.asarray(x, float) for x in _actions(as_arrays(system), symmetry, given)])
    if not np.any(np.all(np.isfinite(found), axis=0)):
        raise ValueError(f"{said}action(g, q) is NaN or infinite at every configuration sampled")
    for words, off in zip(identities, np.where(np.isfinite(found), found, 0.0), strict=True):
        worst = int(np.argmax(off))
        if off[worst] > TOLERANCE:  # rounding is 1e-14, even at far samples
            g, k = (", ".join(f"{x:.4g}" for x in given.g[i]) for i in (worst, worst - 1))
            raise ValueError(
                f"{said}the action is not one that a symmetry can have. {words}; this fails by {off[worst]:.2g} "
                f"(relative) at ({place(system, given.q[worst])}) for the elements g = ({g}), k = ({k}). Change the "
                "action, or name in `on` the coordinates that it moves like the numbers of a group element"
            )


def _measured(system: System, symmetry: Symmetry, t: Array, q: Array, g: Array) -> dict[str, Array]:
    """The changes of L and D from q to g q; infinite where they are defined at q but not at g q."""
    here = system.at(t)
    q1 = symmetry.act(here, g, q)
    # Two other points that rounding cannot distinguish from q1 show the effect of rounding.
    shake = ROUNDING * (jnp.abs(q) + jnp.abs(q1))
    signs = jnp.where(jnp.arange(q.shape[0]) % 2, 1.0, -1.0)
    points = jnp.stack([q, q1, q1 + shake, q1 + signs * shake])
    energies = jax.vmap(here.potential)(points)
    masses = jax.vmap(here.metric)(points)
    push = jax.vmap(lambda x: symmetry.push(here, g, q, x), 1, 1)
    moved = push(jnp.eye(masses.shape[-1], dtype=q.dtype))
    masses = jnp.concatenate([masses[:1], jax.vmap(lambda m: matmul(moved.T, matmul(m, moved)))(masses[1:])])
    unit = jnp.sqrt(jnp.diagonal(masses[0]))
    found = {"V": energies, "L": _beyond_rounding(masses, unit[:, None] * unit[None, :])}
    if here.constrained:
        frame = push(here.frame(q))
        forms = jax.vmap(lambda x: here.rows(x))(points[1:])
        size = matvec(jnp.abs(forms[0]), jnp.max(jnp.abs(frame), axis=1))[:, None]
        left = jax.vmap(lambda a: matmul(a, frame))(forms)
        found["D"] = _beyond_rounding(jnp.concatenate([jnp.zeros_like(left[:1]), left]), size)
        if Trait.AFFINE in here.traits:  # an allowed velocity stays allowed
            a, b = here.rows(q), here.offsets(q)
            drift = symmetry.push(here, g, q, matvec(a.T, solve_spd(matmul(a, a.T), b)))
            there = jax.vmap(lambda x: here.offsets(x))(points[1:])
            left = jax.vmap(lambda a: matvec(a, drift))(forms) - there
            size = matvec(jnp.abs(forms[0]), jnp.abs(drift)) + jnp.abs(there[0])
            off = _beyond_rounding(jnp.concatenate([jnp.zeros_like(left[:1]), left]), size)
            found["D"] = jnp.maximum(found["D"], off)
    return found


def _beyond_rounding(values: Array, size: Array, floor: Array | float = 0.0) -> Array:
    """The difference of the second of four values from the first, beyond the rounding that the other two show.

    Rounding is the difference of the third and fourth value from the second. The result is infinite if only the first
    value is finite.
    """
    first, second = values[0], values[1]
    noise = jnp.max(jnp.abs(values[2:] - second), axis=0) + ROUNDING * (jnp.abs(first) + floor)
    change = _relative(jnp.maximum(jnp.abs(second - first) - noise, 0.0), size)
    lost = jnp.all(jnp.isfinite(first)) & jnp.all(
        jnp.any(~jnp.isfinite(values[1:]).reshape(values.shape[0] - 1, -1), axis=1)
    )
    return jnp.where(lost, jnp.inf, change)


@jit_fast_compile
def continuous(system: System, symmetry: Symmetry, t: Array, q: Array, g: Array) -> Any:
    """The changes of L and D from q to g q, at as many rows as there are samples, with the near ones first."""
    found = jax.vmap(lambda t, q, g: _measured(system, symmetry, t, q, g))(t, q, g)
    energies = found.pop("V")
    # A potential is known up to a constant. Its change is compared with its differences between places, and not with
    # the kinetic energy, which may have any size.
    above = jnp.abs(energies[:, :2] - energies[:1, :1])
    usual = jnp.nan_to_num(jnp.nanmedian(above[:NEAR, 0]))
    change = jax.vmap(lambda v, size: _beyond_rounding(v, size, usual))(energies, jnp.sum(above, axis=1))
    return {**found, "L": jnp.maximum(found["L"], change)}


def onto_constraint(rule: Rule, here: Mechanics, q: Array, u: Array, h: Array) -> tuple[Array, Array]:
    """The velocity nearest to u whose step from q satisfies the discrete constraint, and the derivative of that."""
    if not here.constrained:
        return u, jnp.zeros((0, u.shape[0]), q.dtype)

    def over(u):
        return rule.constraint.over_step(here, q, rule.lagrangian.moved(here, q, u, h), u, h)

    def nearer(_, carry):
        u, _ = carry
        slope = jax.jacfwd(over)(u)
        return u - matvec(slope.T, solve_spd(matmul(slope, slope.T), over(u))), slope

    slope = jnp.zeros((here.rows(q).shape[0], u.shape[0]), q.dtype)
    return lax.fori_loop(0, 6, nearer, (u, slope))


@jit_fast_compile
def _discrete(system: System, symmetry: Symmetry, rule: Rule, s: Sample, h: Array) -> Any:
    def one(s):
        here = system.at(s.t)
        ld, constraint = rule.lagrangian, rule.constraint

        def over(q, u):
            return constraint.over_step(here, q, ld.moved(here, q, u, h), u, h)

        u, slope = onto_constraint(rule, here, s.q, s.v, h)
        q1 = ld.moved(here, s.q, u, h)
        there = symmetry.act(here, s.g, s.q), symmetry.act(here, s.g, q1)
        w = ld.velocity(here, *there, h)
        first, second = ld.over_step(here, s.q, q1, u, h), ld.over_step(here, *there, w, h)
        # The velocity of a step is a difference of configurations, whose rounding is divided by h.
        lost = ROUNDING * jnp.max(jnp.abs(jnp.stack([s.q, q1, *there]))) / h
        p = matvec(jnp.abs(here.metric(s.q)), jnp.abs(u) + lost)
        noise = h * lost * jnp.sum(p) + ROUNDING * jnp.abs(first)
        size = jnp.abs(first) + jnp.abs(h) * jnp.sum(jnp.abs(u) * p)
        found = {"L_d": _relative(jnp.maximum(jnp.abs(second - first) - noise, 0.0), size)}
        if here.constrained:
            size = matvec(jnp.abs(slope), jnp.abs(u))
            noise = jnp.sum(jnp.abs(slope), axis=1) * lost
            off = _relative(jnp.maximum(jnp.abs(constraint.over_step(here, *there, w, h)) - noise, 0.0), size)
            began = _relative(over(s.q, u), size + noise)
            # A sample that could not be moved onto the constraint says nothing.
            found["D_d"] = jnp.where(began < 0.1 * TOLERANCE, off, jnp.nan)
        return found

    return jax.vmap(one)(s)


def check_arguments(system: System, symmetry: Symmetry) -> None:
    """Refuses what is no system or no symmetry."""
    if not isinstance(system, System):
        raise ValueError(f"expected a System, got {system!r}")
    if not isinstance(symmetry, Symmetry):
        raise ValueError(f"expected a Symmetry, such as Symmetry(Rn(2), on=('x', 'y')); got {symmetry!r}")
    lower(system).refuse_indefinite("the study of a symmetry")


def invariance(
    system: System,
    symmetry: Symmetry,
    method: VariationalDLA | EDLA | None = None,
    *,
    h: float | None = None,
    at: Vector | None = None,
) -> dict[str, Invariance]:
    """The changes of L and D under the group, and of L_d and D_d if a method is given, measured at fixed samples.

    `at` gives configurations to sample around instead of the start states. h is the step size of L_d and D_d.
    """
    check_arguments(system, symmetry)
    if method is not None and not isinstance(method, VariationalDLA | EDLA):
        raise ValueError(
            "symmetries are measured only for methods with a discrete Lagrangian and a discrete constraint, "
            f"VariationalDLA() and EDLA(); got {getattr(method, 'cli_name', method)!r}"
        )
    if h is not None and not (isinstance(h, int | float) and 0 < h < np.inf):
        raise ValueError(f"h must be a positive number, got {h!r}")
    symmetry.split(system)
    system = without_redundancy(system, at)
    given = samples(system, symmetry, at)
    check_action(system, symmetry, given)
    batches = [given, *_walks(symmetry, given)]
    measured = [continuous(as_arrays(system), symmetry, s.t, s.q, s.g) for s in batches]
    found = {name: np.concatenate([x[name] for x in measured]) for name in measured[0]}
    if method is not None:
        rule = Rule(method.discrete_lagrangian, method.discrete_constraint)
        size = jnp.asarray(h or system.step or 0.1, float)
        found.update(_discrete(as_arrays(system), symmetry, rule, given, size))
    for name in [x for x in NAMES if x in found]:
        if np.all(np.isnan(found[name])):
            raise ValueError(
                f"{system.label}: {NAMES[name]} is NaN or infinite at every configuration sampled; give "
                "configurations where it is defined as at="
            )
    return worst(found, *(np.concatenate(x) for x in ([s.q for s in batches], [s.g for s in batches])))


def worst(found: Any, q: np.ndarray, g: np.ndarray) -> dict[str, Invariance]:
    """The largest change of every quantity, and where it occurs. NaN marks places where the system is not defined."""
    made = {}
    for name in [x for x in NAMES if x in found]:
        change = np.nan_to_num(np.asarray(found[name], float), nan=0.0, posinf=np.inf)
        at = int(np.argmax(change))
        made[name] = Invariance(float(change[at]), np.asarray(q[at]), np.asarray(g[at]))
    return made


def complaint(system: System, symmetry: Symmetry, found: dict[str, Invariance]) -> str | None:
    """A sentence that says what is not invariant, and where; None if everything is."""
    broken = [name for name, x in found.items() if not x.holds]
    if not broken:
        return None
    said = []
    for name in broken:
        x = found[name]
        moved = ", ".join(f"{value:.4g}" for value in x.g)
        changed = (
            f"it changes by {x.change:.2g} (relative)"
            if np.isfinite(x.change)
            else "it becomes NaN or infinite"
        )
        said.append(
            f"{NAMES[name]} is not invariant: {changed} at ({place(system, x.q)}) under the element ({moved})"
        )
    return "; ".join(said)
