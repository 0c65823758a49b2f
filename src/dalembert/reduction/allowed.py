"""Finds the symmetry directions that constraints allow: the spaces g^q, the bundle g^D and horizontal symmetries."""

from itertools import combinations
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.kernels import over_rows
from dalembert.model import Mechanics, Symmetry, System, Trait, as_arrays, lower
from dalembert.numerics import Vector, jit_fast_compile, matmul, matvec, solve_spd
from dalembert.reduction.measured import (
    NEAR,
    ROUNDING,
    Sample,
    check_action,
    check_arguments,
    place,
    samples,
    without_redundancy,
)
from dalembert.reduction.subspaces import SAME, echelon, named

# Singular values below this fraction of the largest one count as zero. Those of what is zero are about 1e-15, and those
# of what is not are usually above 1e-3. If one is nearer to the threshold than the factor _CLEAR, the report says so.
_ZERO = 1e-11
_CLEAR = 100.0
# Newton's method for places where the dimension changes: a few steps of limited length, then quadratic convergence.
_ITERATIONS = 30
# The number of such places that are reported. They usually fill a surface, and a few of them show it.
_PLACES = 3
# A rate counts as zero if it is below this multiple of what rounding changes in it.
_NOISE = 10


class Sections(eqx.Module):
    """A basis of sections of the bundle g^D, as a function of q (and t): the columns of an (s, k) matrix.

    Each column has a one in a row of its own, and no other column has a number there, in the basis of the algebra that
    begins with the horizontal symmetries. The columns are therefore smooth wherever the other rows determine the rest.
    """

    system: System
    symmetry: Symmetry
    basis: Array
    """(s, s) a basis of the algebra, of which the horizontal symmetries are the first columns."""
    free: tuple[int, ...] = eqx.field(static=True)
    """The columns of this basis that belong to the sections."""

    def __call__(self, q: Any, t: Any = 0.0) -> Array:
        here, q = lower(self.system).at(t), jnp.asarray(q, float)
        bound = tuple(i for i in range(self.basis.shape[1]) if i not in self.free)
        made = self.basis[:, np.array(self.free, int)]
        if not bound or not self.free:
            return made
        said = matmul(here.rows(q), matmul(self.symmetry.generators(here, q), self.basis))
        left, right = said[:, np.array(bound)], said[:, np.array(self.free)]
        rest = solve_spd(matmul(left.T, left), -matmul(left.T, right))
        return made + matmul(self.basis[:, np.array(bound)], rest)


class Change(NamedTuple):
    """A configuration at which g^q is larger than almost everywhere."""

    q: np.ndarray
    dimension: int


class HorizontalSymmetries(NamedTuple):
    """What `horizontal_symmetries` found. Columns of the matrices are elements of the algebra, in echelon form."""

    dimension: int
    """The dimension of g^q = {xi : xi_Q(q) in D_q} at almost all configurations, which is the rank of g^D."""
    changes: tuple[Change, ...]
    """Some configurations at which g^q is larger, the nearest to the start states first; empty if none was found."""
    sections: Sections
    """A basis of sections of g^D; the horizontal symmetries come first."""
    horizontal: np.ndarray
    """(s, k) the horizontal symmetries: the elements xi whose generators lie in D at every configuration."""
    lagrangian: np.ndarray
    """(s, k) the elements under which the Lagrangian is invariant, a subalgebra."""
    distribution: np.ndarray
    """(s, k) the elements under which the constraints are invariant, a subalgebra. A horizontal symmetry need not be
    one of them."""
    conserved: np.ndarray
    """(s, k) the horizontal symmetries under which the Lagrangian is invariant and along which no force acts."""
    margin: float
    """The least factor between a singular value and the threshold below which it counts as zero, over the equations
    for these four spaces. The dimensions are undecided if it is less than 100."""
    words: str
    """A description in plain language."""

    def momentum(self, q: Any, v: Any, t: Any = 0.0) -> np.ndarray:
        """(rows, k) the momenta <dL/dv, xi_Q> of the elements in `conserved`, at rows of states.

        The exact motion keeps them, and so do VariationalDLA, GNI and EDLA, if the discrete Lagrangian is invariant.
        """
        q, v = np.atleast_2d(np.asarray(q, float)), np.atleast_2d(np.asarray(v, float))
        times = np.broadcast_to(np.asarray(t, float), len(q))
        shared = as_arrays(self.sections.system), self.sections.symmetry, jnp.asarray(self.conserved)
        return over_rows(_momenta)(shared, times, q, v)


def _momenta(shared: Any, t: Array, q: Array, v: Array) -> Array:
    system, symmetry, elements = shared
    here = lower(system).at(t)
    return matvec(matmul(symmetry.generators(here, q), elements).T, here.momentum(q, v))


def _rates(here: Mechanics, symmetry: Symmetry, q: Array, v: Array) -> dict[str, tuple[Array, Array]]:
    """The rates at which quantities change along each generator, (rows, s), and the sizes of the terms in them.

    `allowed` holds the one-forms on the generators, `L` the rates of kinetic energy (of all of L that is not the
    potential) and potential, `D` those of the one-forms on a frame of D and of the affine offsets, and `forces` the
    power of the forces.
    """
    n, none = v.shape[0], jnp.zeros(symmetry.group.dimension, q.dtype)
    generators = symmetry.generators(here, q)
    still = jnp.zeros_like(v)
    sizes = jnp.abs(generators)

    def moved(x):
        g = symmetry.group.exp(x)
        return symmetry.act(here, g, q), jax.vmap(lambda u: symmetry.push(here, g, q, u), 1, 1)(jnp.eye(n))

    def along(function):
        """The rates of function(q, push) and its value."""
        return jax.jacfwd(lambda x: function(*moved(x)))(none)

    turned = jnp.abs(along(lambda _, push: push))  # (n, n, s)

    def energy(q, v):
        return here.lagrangian(q, v) - here.lagrangian(q, still)

    def slope(function):
        return jnp.abs(here.space.gradient(function, q))

    rest = jnp.abs(here.momentum(q, v) - here.momentum(q, still))
    kinetic = matvec(sizes.T, slope(lambda x: energy(x, v))) + jnp.einsum(
        "i,ijk,j->k", rest, turned, jnp.abs(v)
    )
    found = {
        "L": (
            jnp.stack(
                [
                    along(lambda x, push: energy(x, matvec(push, v))),
                    along(lambda x, _: here.lagrangian(x, still)),
                ]
            ),
            jnp.stack([kinetic, matvec(sizes.T, slope(lambda x: here.lagrangian(x, still)))]),
        )
    }
    if here.constrained:
        forms, frame = here.rows(q), here.frame(q)
        found["allowed"] = matmul(forms, generators), matmul(jnp.abs(forms), sizes)
        columns, offsets = frame, jnp.zeros(forms.shape[0], q.dtype)
        if Trait.AFFINE in here.traits:
            columns = jnp.concatenate([frame, here.drift(q)[:, None]], axis=1)
            offsets = jnp.abs(along(lambda x, _: here.offsets(x)))

        def said(x, push):
            value = matmul(here.rows(x), matmul(push, columns))
            return value.at[:, -1].add(-here.offsets(x)) if Trait.AFFINE in here.traits else value

        size = jnp.einsum("aik,ij->ajk", jnp.abs(along(lambda x, _: here.rows(x))), jnp.abs(columns))
        size = size + jnp.einsum("ai,ilk,lj->ajk", jnp.abs(forms), turned, jnp.abs(columns))
        if Trait.AFFINE in here.traits:
            size = size.at[:, -1].add(offsets)
        s = none.shape[0]
        found["D"] = along(said).reshape(-1, s), size.reshape(-1, s)
    if Trait.FORCED in here.traits:
        force = here.forces(q, v)
        found["forces"] = matvec(generators.T, force)[None], matvec(sizes.T, jnp.abs(force))[None]
    return found


@jit_fast_compile
def _all_rates(system: System, symmetry: Symmetry, s: Sample) -> Any:
    """The rates at every sample, without what is only rounding, and the kinetic lengths of the generators."""

    def one(s):
        here = lower(system).at(s.t)
        # Nearby points, which rounding cannot distinguish from q, show how much of a rate is rounding.
        shake = ROUNDING * (jnp.abs(s.q) + ROUNDING)
        signs = jnp.where(jnp.arange(s.q.shape[0]) % 2, 1.0, -1.0)
        points = jnp.stack([s.q, s.q + shake, s.q - shake, s.q + signs * shake])
        found = jax.vmap(lambda q: _rates(here, symmetry, q, s.v))(points)
        generators = symmetry.generators(here, s.q)
        lengths = jnp.sqrt(jnp.sum(generators * matmul(here.metric(s.q), generators), axis=0))

        def beyond(rates, sizes):
            noise = jnp.max(jnp.abs(rates[1:] - rates[0]), axis=0) + ROUNDING * sizes[0]
            return jnp.where(jnp.abs(rates[0]) > _NOISE * noise, rates[0], 0.0), sizes[0]

        return {name: beyond(*x) for name, x in found.items()}, lengths

    return jax.vmap(one)(s)


def _kernel(parts: list[Any], scale: np.ndarray) -> tuple[np.ndarray, float]:
    """The elements on which all rates vanish, in echelon form, and how clear that is (see `margin`).

    Rates are measured per kinetic length of the generators, and each row is divided by the size of its own terms, so
    that no row is too small to count.
    """
    s = len(scale)
    rates, sizes = (np.concatenate([x[i].reshape(-1, s) for x in parts]) * scale for i in (0, 1))
    sizes = sizes.max(axis=1, initial=0.0)
    good = np.all(np.isfinite(rates), axis=1) & np.isfinite(sizes) & (sizes > 0)
    said = rates[good] / sizes[good, None]
    if not np.any(said):
        return np.eye(s), np.inf
    _, values, turn = np.linalg.svd(said, full_matrices=len(said) < s)
    values = np.concatenate([values, np.zeros(s - len(values))]) / values[0]
    zero = values <= _ZERO
    margin = min(values[~zero].min() / _ZERO, _ZERO / max(values[zero].max(initial=0.0), np.finfo(float).eps))
    rows = echelon(turn[zero]) * scale
    first = np.argmax(rows != 0, axis=1)
    return (rows / rows[np.arange(len(rows)), first, None]).T, float(margin)


class Cosines(NamedTuple):
    """The one-forms on the generators, each divided by its kinetic length, at rows of configurations."""

    values: Any
    """(rows, m, s) the cosines."""
    slopes: Any
    """(rows, m, s, n) their derivatives along the velocities."""
    lengths: Any
    """(rows, s) the kinetic lengths of the generators."""
    gram: Any
    """(rows, m, m) the cosines of the one-forms with each other."""


@jit_fast_compile
def _cosines(system: System, symmetry: Symmetry, t: Array, q: Array) -> Any:
    def one(t, q):
        here = lower(system).at(t)

        def parts(x):
            at = here.space.displaced(q, x)
            forms, generators, mass = here.rows(at), symmetry.generators(here, at), here.metric(at)
            raised = solve_spd(mass, forms.T)
            forms_lengths = jnp.sqrt(jnp.sum(forms * raised.T, axis=1))
            lengths = jnp.sqrt(jnp.sum(generators * matmul(mass, generators), axis=0))
            outer = forms_lengths[:, None] * forms_lengths
            return (
                matmul(forms, generators) / (forms_lengths[:, None] * lengths),
                lengths,
                matmul(forms, raised) / outer,
            )

        zero = jnp.zeros(here.velocity_dimension, q.dtype)
        values, lengths, gram = parts(zero)
        return Cosines(values, jax.jacfwd(lambda x: parts(x)[0])(zero), lengths, gram)

    return jax.vmap(one)(t, q)


def _measured(system: System, symmetry: Symmetry, t: np.ndarray, q: np.ndarray) -> Cosines:
    return Cosines(*(np.asarray(x, float) for x in _cosines(as_arrays(system), symmetry, t, q)))


@jit_fast_compile
def _displaced(system: System, q: Array, x: Array) -> Array:
    return jax.vmap(lower(system).space.displaced)(q, x)


def _changes(
    system: System, symmetry: Symmetry, t: np.ndarray, q: np.ndarray, usual: int, met: list[Change]
) -> tuple[Change, ...]:
    """Configurations at which g^q is larger than usual: those met already, and those that Newton's method finds.

    The matrix of the one-forms on the generators loses rank where the block that belongs to its smallest singular
    values vanishes. Each step solves the linearised equation for this block. Such places may form a surface of any
    codimension.
    """
    s = symmetry.group.dimension
    if usual == s:
        return ()
    shared, rank, begun = as_arrays(system), s - usual, q
    for _ in range(_ITERATIONS):
        said, slopes = _measured(system, symmetry, t, q)[:2]
        step = np.zeros((len(q), slopes.shape[-1]))
        for i in range(len(q)):
            if not (np.all(np.isfinite(said[i])) and np.all(np.isfinite(slopes[i]))):
                continue
            left, _, right = np.linalg.svd(said[i])
            left, right = left[:, rank - 1 :], right[rank - 1 :].T
            slope = np.einsum("ap,akn,kr->prn", left, slopes[i], right).reshape(-1, slopes.shape[-1])
            step[i] = -np.linalg.lstsq(slope, (left.T @ said[i] @ right).ravel(), rcond=1e-10)[0]
        lengths = np.linalg.norm(step, axis=1, keepdims=True)
        q = np.asarray(_displaced(shared, q, step * np.minimum(1.0, 1.0 / np.maximum(lengths, 1e-300))))
    sizes = _dimensions(system, symmetry, t, q)
    found = [*met, *(Change(x, size) for x, size in zip(q, sizes, strict=True) if size > usual)]
    far = [np.linalg.norm(x.q - begun[0]) for x in found]
    kept: list[Change] = []
    for i in np.argsort(far):
        if all(np.linalg.norm(found[i].q - x.q) > 1e-3 for x in kept) and len(kept) < _PLACES:
            kept.append(found[i])
    return tuple(kept)


def _dimensions(system: System, symmetry: Symmetry, t: np.ndarray, q: np.ndarray) -> list[int]:
    """The dimension of g^q at rows of configurations; -1 where the system is not defined, or D itself changes."""
    made = []
    here = _measured(system, symmetry, t, q)
    for values, gram in zip(here.values, here.gram, strict=True):
        if (
            not (np.all(np.isfinite(values)) and np.all(np.isfinite(gram)))
            or np.linalg.eigvalsh(gram)[0] < SAME
        ):
            made.append(-1)
        else:
            made.append(values.shape[1] - int(np.sum(np.linalg.svd(values, compute_uv=False) > SAME)))
    return made


def _bound(said: np.ndarray, fixed: int, rank: int) -> tuple[int, ...]:
    """The columns that the others determine best, at the worst of the samples; the first `fixed` are not among them."""
    s = said.shape[2]

    def worst(chosen):
        return min(np.linalg.svd(x[:, chosen], compute_uv=False)[-1] for x in said)

    # Later columns first, so that sections begin like those of coordinate directions.
    return max(combinations(range(fixed, s), rank), key=worst, default=()) if rank else ()


def horizontal_symmetries(
    system: System, symmetry: Symmetry, *, at: Vector | None = None
) -> HorizontalSymmetries:
    """Finds the spaces g^q, sections of the bundle g^D, and the horizontal symmetries of a group and a system.

    Equations: [cortes2003] section 4, [ferraro2008] section 4.5: g^q = {xi : xi_Q(q) in D_q}; a horizontal symmetry is
    a constant section of g^D. Its momentum is conserved if the Lagrangian is invariant, even if D is not. Which
    elements keep L, and which keep D, is measured separately. All these are linear equations for xi at each
    configuration, and they are solved together over 512 configurations around the start states, or around `at`.
    Affine constraints count with their linear part in g^q, and with their offsets in the invariance.
    """
    check_arguments(system, symmetry)
    symmetry.split(system)
    system = without_redundancy(system, at)
    given = samples(system, symmetry, at)
    check_action(system, symmetry, given)
    found, lengths = _all_rates(as_arrays(system), symmetry, given)
    rates = {name: tuple(np.asarray(x, float) for x in pair) for name, pair in found.items()}
    near = np.asarray(lengths, float)[:NEAR]
    near = near[np.all(np.isfinite(near), axis=1)]
    scale = 1 / np.sqrt(np.mean(near**2, axis=0))
    s = symmetry.group.dimension
    allowed, power = ([rates[x]] if x in rates else [] for x in ("allowed", "forces"))
    none = [(np.zeros((0, s)), np.zeros((0, s)))]
    horizontal, first = _kernel(allowed or none, scale)
    lagrangian, second = _kernel([rates["L"]], scale)
    distribution, third = _kernel([rates["D"]] if "D" in rates else none, scale)
    conserved, fourth = _kernel([*allowed, rates["L"], *power], scale)
    margin = min(first, second, third, fourth)
    sizes = np.array(_dimensions(system, symmetry, given.t, given.q)) if allowed else np.full(len(given.t), s)
    if not len(near) or not np.any(sizes >= 0):
        raise ValueError(
            f"{system.label}: its mass matrix or its constraints are NaN, infinite or dependent at every configuration "
            "sampled; give configurations where they are defined as at="
        )
    usual = int(sizes[sizes >= 0].min())
    changes = ()
    if allowed:
        begun = np.flatnonzero(sizes[:NEAR] >= 0)
        met = [Change(given.q[i], int(sizes[i])) for i in np.flatnonzero(sizes > usual)]
        changes = _changes(system, symmetry, given.t[begun], given.q[begun], usual, met)
    basis, k = _completed(horizontal), horizontal.shape[1]
    bound: tuple[int, ...] = ()
    if allowed:
        here = _measured(system, symmetry, given.t[:NEAR], given.q[:NEAR])
        said = (here.values * here.lengths[:, None] @ basis)[sizes[:NEAR] == usual]
        size = np.sqrt(np.mean(said**2, axis=(0, 1)))
        bound = _bound(said / np.where(size > 0, size, 1.0), k, s - usual)
    free = tuple(i for i in range(s) if i not in bound)
    made = HorizontalSymmetries(
        usual,
        changes,
        Sections(system, symmetry, jnp.asarray(basis), free),
        horizontal,
        lagrangian,
        distribution,
        conserved,
        margin,
        "",
    )
    return made._replace(
        words=_words(system, symmetry, made, int(np.sum(sizes >= 0)), Trait.FORCED in lower(system).traits)
    )


def _completed(horizontal: np.ndarray) -> np.ndarray:
    """A basis of the algebra: the horizontal symmetries, and the unit vectors that their first entries leave."""
    s = len(horizontal)
    first = {int(np.argmax(column != 0)) for column in horizontal.T}
    return np.hstack([horizontal, np.eye(s)[:, [i for i in range(s) if i not in first]]])


def _listed(elements: np.ndarray, symmetry: Symmetry) -> str:
    """The span of elements, in words."""
    if elements.shape[1] == len(elements):
        return "the whole group"
    return ", ".join(named(x, symmetry) for x in elements.T) or "no direction of the group"


def _words(system: System, symmetry: Symmetry, found: HorizontalSymmetries, count: int, forced: bool) -> str:
    """What was found, in plain language."""
    k, s = found.dimension, symmetry.group.dimension
    said = [
        f"{system.label} with {symmetry.words}: g^q, the directions of the group whose generators lie in D, has "
        f"dimension {k} of {s} at almost all of the {count} configurations sampled"
    ]
    if found.changes:
        where = "; ".join(f"{x.dimension} at ({place(system, x.q)})" for x in found.changes)
        said.append(f"it is larger at some configurations: {where}")
    else:
        said.append("no configuration was found at which it is larger")
    if found.horizontal.shape[1]:
        said.append(
            f"horizontal symmetries, whose generators lie in D everywhere: {_listed(found.horizontal, symmetry)}"
        )
    else:
        said.append("there is no horizontal symmetry")
    said.append(f"the Lagrangian is invariant under {_listed(found.lagrangian, symmetry)}")
    if lower(system).constrained:
        said.append(f"D is invariant under {_listed(found.distribution, symmetry)}")
    along = ", and along which no force acts" if forced else ""
    if found.conserved.shape[1]:
        said.append(
            f"conserved are the momenta of the horizontal symmetries under which the Lagrangian is invariant{along}: "
            f"{_listed(found.conserved, symmetry)}"
        )
    else:
        said.append(
            f"no momentum is conserved for this reason: no horizontal symmetry keeps the Lagrangian{along}"
        )
    if found.margin < _CLEAR:
        said.append(
            f"these dimensions are undecided: a singular value is within a factor of {found.margin:.3g} of the "
            f"threshold {_ZERO:g}, below which it counts as zero"
        )
    return ". ".join(x[0].upper() + x[1:] for x in said) + "."
