"""Whether a discrete constraint is rigid, and whether it defines a discrete connection."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import Symmetry, System, Trait, as_arrays, lower
from dalembert.numerics import Vector, jit_fast_compile
from dalembert.reduction.cases import Chaplygin, Rule
from dalembert.reduction.classification import classify
from dalembert.reduction.measured import (
    NEAR,
    Sample,
    onto_constraint,
    place,
    samples,
    without_redundancy,
)
from dalembert.reduction.reduced import ReducedRheonomicSystem, ReducedSystem
from dalembert.reduction.steps import STEP, apart, group_parts, values

# Newton's method starts from the usual guess and from this many elements of very different sizes.
_STARTS = 6
# Group parts of steps at which the sign of the equation is looked at, for groups of one dimension: 1e-4 to 1e4.
_SCAN = 60
_HALVINGS = 60
# Roots are accurate to rounding times the condition of the equation; another root is far from the first.
_OTHER = 1e-6
# A singular value below this fraction of the largest one is a rounded zero.
_SINGULAR = 1e-9


class Rigidity(NamedTuple):
    """What `rigidity` found about a discrete constraint and a group, hypothesis by hypothesis."""

    invariant: bool
    """Whether D and D_d are invariant under the group."""
    trivial: bool
    """Whether g^q = 0: no direction of the group lies in D."""
    dimensional: bool
    """The discrete dimensional assumption, T D_d + V x V = T(Q x Q)."""
    regular: bool
    """Whether the derivative of D_d along the group keeps its sign, so that it vanishes nowhere between samples."""
    rigid: bool | None
    """Right-rigidity: no (q0, q1) and (q0, g q1) in D_d with g other than e were found. None if the dimensions already
    rule out a connection, so that it was not tested."""
    onto: bool | None
    """Whether a pair in D_d was found above every pair of shapes; None as for `rigid`."""
    twice: tuple[np.ndarray, np.ndarray, np.ndarray] | None
    """q0 and two ends q1, g q1, both of which form a pair in D_d with q0; None if D_d is rigid."""
    never: tuple[np.ndarray, np.ndarray] | None
    """q0 and the shape of q1, above which no pair in D_d was found; None if there is one everywhere."""
    words: str
    """A description in plain language."""

    @property
    def connection(self) -> bool:
        """Whether D_d defines a discrete connection: every pair of shapes has exactly one element."""
        return bool(
            self.invariant and self.trivial and self.dimensional and self.regular and self.rigid and self.onto
        )


@jit_fast_compile
def _slopes(system: System, symmetry: Symmetry, rule: Rule, given: Sample, h: Any) -> Any:
    """The derivatives of the discrete constraint at pairs in D_d, by both ends, and along the group at both ends.

    Also its values at equal ends, and at the pair.
    """

    def one(s):
        here = system.at(s.t)
        u, _ = onto_constraint(rule, here, s.q, s.v, h)
        q1 = rule.lagrangian.moved(here, s.q, u, h)
        n, none = u.shape[0], jnp.zeros(symmetry.group.dimension, s.q.dtype)

        def between(a, b):
            return rule.constraint.over_step(here, a, b, rule.lagrangian.velocity(here, a, b, h), h)

        def act(x, q):
            return symmetry.act(here, symmetry.group.exp(x), q)

        space, still = here.space, jnp.zeros(n, s.q.dtype)
        ends = jax.jacfwd(
            lambda x, y: between(space.displaced(s.q, x), space.displaced(q1, y)), argnums=(0, 1)
        )
        along = jax.jacfwd(lambda x, y: between(act(x, s.q), act(y, q1)), argnums=(0, 1))
        both = (jnp.concatenate(f(z, z), axis=1) for f, z in ((ends, still), (along, none)))
        return *both, between(s.q, s.q), between(s.q, q1)

    return jax.vmap(one)(given)


def _rank(matrices: np.ndarray, size: np.ndarray) -> int:
    """The least rank of matrices whose rows are divided by these sizes."""
    values = np.linalg.svd(matrices / size, compute_uv=False)
    return int(np.min(np.sum(values > _SINGULAR, axis=1), initial=matrices.shape[1]))


def _crossing(core: Any, given: Sample, h: Any) -> np.ndarray:
    """Where the equation of a group of one dimension changes its sign, by halving; NaN where it does not."""
    sizes = STEP / float(h) * 10.0 ** np.linspace(-3, 5, _SCAN)
    grid = np.concatenate([-sizes[::-1], [0.0], sizes])
    shared = as_arrays(core)

    def at(w):
        return np.asarray(values(shared, given, w[:, None], h))[:, 0]

    rows = np.stack([at(np.full(len(given.t), w)) for w in grid])
    change = np.isfinite(rows[:-1]) & np.isfinite(rows[1:]) & (np.sign(rows[:-1]) != np.sign(rows[1:]))
    i, each = np.argmax(change, axis=0), np.arange(rows.shape[1])
    low, high, first = grid[i], grid[i + 1], rows[i, each]
    size = np.maximum(np.abs(first), np.abs(rows[i + 1, each]))
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        same = np.sign(at(middle)) == np.sign(first)
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    root = 0.5 * (low + high)
    # At a pole the sign changes too, but the values grow.
    return np.where(np.any(change, axis=0) & (np.abs(at(root)) <= 1e-6 * size), root, np.nan)


def rigidity(
    system: System,
    method: VariationalDLA | EDLA,
    symmetry: Symmetry,
    *,
    h: float | None = None,
    at: Vector | None = None,
) -> Rigidity:
    """Tests numerically whether the discrete constraint of a method is right-rigid and defines a discrete connection.

    Equations: [cortes2003] section 4 and Proposition 2. nu : D_d/G -> Q/G x Q/G is a local diffeomorphism if D_d is
    invariant, g^D = 0 and T D_d + V x V = T(Q x Q); it is injective if D_d is right-rigid. It is one-to-one and onto,
    so that D_d defines a connection, if every pair of shapes also has an element. Pairs are taken at 512 samples whose
    shapes are up to one unit apart; elements are sought from several starts, and for groups of one dimension also
    where the equation changes its sign.
    Erratum: Proposition 2 concludes that nu is a global diffeomorphism from right-rigidity alone, which makes it
    injective only: for tanh(z1 - z0) = y (x1 - x0) it is not onto.
    """
    if method is None:
        raise ValueError(
            "rigidity needs a method with a discrete constraint, VariationalDLA() or EDLA(); got None"
        )
    found = classify(system, symmetry, method, h=h, at=at)
    system = without_redundancy(system, at)
    given, size = samples(system, symmetry, at), jnp.asarray(h or system.step or 0.1, float)
    rule = Rule(method.discrete_lagrangian, method.discrete_constraint)
    here, m = lower(system), symmetry.group.dimension
    invariant = all(found.invariance[x].holds for x in ("D", "D_d") if x in found.invariance)
    said, twice, never = [], None, None
    if not invariant:
        said.append("D or D_d is not invariant under the group, so that D_d/G is not defined")
    trivial = found.shared == 0
    if not trivial:
        said.append("some directions of the group lie in D, so that g^D is not zero")
    rows, rank, regular = 0, 0, True
    if here.constrained:
        rows, rank, regular, more = _dimensions(system, symmetry, rule, given, size)
        said += more
    n = system.velocity_dimension
    dimensional = rank == rows
    said.append(
        f"T D_d has dimension {2 * n - rows} and V x V {2 * m}; their sum has {2 * n - rows + rank} of {2 * n}, so "
        f"that the discrete dimensional assumption {'holds' if dimensional else 'fails'}"
    )
    rigid = onto = None
    if rows != m:
        above = (
            "many pairs in D_d lie above one" if rows < m else "there is no pair in D_d above almost every"
        )
        said.append(
            f"D_d/G has dimension {2 * n - rows - m}, but pairs of shapes have dimension {2 * (n - m)}: {above} pair "
            "of shapes"
        )
    elif dimensional:
        rigid, onto, words, twice, never = _counted(system, symmetry, method, given, size)
        said.append(words)
    made = Rigidity(invariant, trivial, dimensional, regular, rigid, onto, twice, never, "")
    begun = f"{system.label} with {symmetry.words} and the discrete constraint {rule.constraint.cli_name}"
    verdict = "defines a discrete connection" if made.connection else "does not define a discrete connection"
    return made._replace(
        words=f"{begun}: D_d {verdict}. " + ". ".join(x[0].upper() + x[1:] for x in said) + "."
    )


def _dimensions(
    system: System, symmetry: Symmetry, rule: Rule, given: Sample, h: Any
) -> tuple[int, int, bool, list[str]]:
    """The number of functions that give D_d, their rank along V x V, whether they are regular, and what is wrong."""
    measured = _slopes(as_arrays(system), symmetry, rule, given, h)
    ends, along, diagonal, off = (np.asarray(x, float) for x in measured)
    good = np.all(np.isfinite(ends), axis=(1, 2)) & np.all(np.isfinite(along), axis=(1, 2))
    good[NEAR:] = False
    lengths = np.linalg.norm(ends, axis=2, keepdims=True)
    good &= np.all(np.abs(off) <= 1e-8 * lengths[..., 0], axis=1)  # others could not be moved onto D_d
    if not np.any(good):
        raise ValueError(
            f"{system.label}: no pair of configurations in the discrete constraint was found near those sampled; "
            "give configurations where it is defined as at="
        )
    rows, m, said = ends.shape[1], symmetry.group.dimension, []
    rank, whole = _rank(along[good], lengths[good]), _rank(ends[good], lengths[good])
    if np.max(np.abs(diagonal[good] / lengths[good][..., 0])) > 1e-9:
        said.append("pairs of equal configurations are not in D_d")
    if whole < rows:
        said.append(
            f"D_d is not given by independent functions: their derivatives have rank {whole} of {rows}"
        )
    regular = True
    # One-forms that are computed from a frame may be discontinuous.
    if rows == m and "constraints" in lower(system).given:
        signs = np.sign(np.linalg.det(along[good][:, :, m:] / lengths[good]))
        regular = bool(np.all(signs == signs[0]))
    if not regular:
        said.append(
            "the derivative of D_d along the group has both signs, so that between these samples there are pairs at "
            "which it is singular, and the connection is only local"
        )
    return rows, rank, regular, said


def _counted(system: System, symmetry: Symmetry, method: Any, given: Sample, h: Any) -> Any:
    """Whether each pair of shapes has at most one element, and at least one; in words; and the counterexamples."""
    made = ReducedRheonomicSystem if Trait.TIMED in lower(system).traits else ReducedSystem
    core = made(system, symmetry, Chaplygin(), method)
    shared, count = as_arrays(core), len(given.t)
    roots = np.full((count, symmetry.group.dimension), np.nan)
    defined, twice, worst = np.ones(count, bool), None, (0.0, 0, roots[0])
    for turn in range(_STARTS):
        x = np.roll(given.x, turn, axis=0)
        here, parts, good = (np.asarray(a) for a in group_parts(shared, given._replace(x=x), h))
        defined &= here
        for i in range(parts.shape[1]):
            fine = good[:, i] & defined
            new = fine & ~np.isfinite(roots[:, 0])
            roots[new] = parts[new, i]
            off = np.where(fine, apart(core, given, roots, parts[:, i]), 0.0)
            at = int(np.argmax(off))
            if off[at] > worst[0]:
                worst = float(off[at]), at, parts[at, i]
    if not np.any(defined):
        raise ValueError(
            f"{system.label}: the discrete constraint is NaN or infinite at every step sampled; give "
            "configurations where it is defined as at="
        )
    missing = defined & ~np.isfinite(roots[:, 0])
    if symmetry.group.dimension == 1 and np.any(missing):
        found = _crossing(core, given, h)
        missing &= ~np.isfinite(found)
    rigid, onto, said, never = worst[0] <= _OTHER, not np.any(missing), [], None
    if rigid:
        said.append(
            f"no two pairs (q0, q1) and (q0, g q1) in D_d were found at {int(defined.sum())} samples: D_d is rigid"
        )
    else:
        _, i, other = worst
        q0, one, two = (np.asarray(x) for x in _ends(core, given, i, h, roots[i], other))
        twice = q0, one, two
        said.append(
            f"D_d is not rigid: from ({place(system, q0)}) both ({place(system, one)}) and ({place(system, two)}) are "
            "in D_d, and the group moves one to the other"
        )
    if onto:
        said.append("above every pair of shapes sampled there is a pair in D_d")
    else:
        # The nearest one says most.
        far = np.where(missing, np.max(np.abs(given.q), axis=1), np.inf)
        i = int(np.argmin(far))
        q0, q1, _ = _ends(core, given, i, h, np.zeros_like(roots[i]), np.zeros_like(roots[i]))
        shape = symmetry.split(lower(system)).shape
        never = np.asarray(q0), np.asarray(q1)[np.array(shape, int)]
        there = ", ".join(f"{system.coordinates[c]}={x:.4g}" for c, x in zip(shape, never[1], strict=True))
        said.append(
            f"from ({place(system, q0)}) to the shape ({there}) no pair in D_d was found, and so it is at "
            f"{int(missing.sum())} of {int(defined.sum())} samples: D_d/G -> Q/G x Q/G is not onto"
        )
    return rigid, onto, ". ".join(x[0].upper() + x[1:] for x in said), twice, never


def _ends(core: Any, given: Sample, i: int, h: Any, one: np.ndarray, other: np.ndarray) -> Any:
    """q0 = (r0, e) of a sample, and the ends of its step with two group parts."""
    symmetry, full = core.symmetry, lower(core.full).at(given.t[i])
    r = symmetry.shape(full, jnp.asarray(given.q[i]))
    u = (STEP / h) * given.v[i][np.array(symmetry.split(full).shape_velocity, int)]
    steps = [core.discrete.step(symmetry, full, r, u, jnp.asarray(w), h) for w in (one / h, other / h)]
    return steps[0].q0, steps[0].q1, steps[1].q1
