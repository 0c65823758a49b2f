"""How constraints and group orbits meet: the spaces g^q, S, U, H, and Chaplygin, horizontal, both or neither."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from dalembert.methods import EDLA, VariationalDLA
from dalembert.model import Symmetry, System, Trait, as_arrays, lower
from dalembert.numerics import Vector, jit_fast_compile
from dalembert.reduction.measured import (
    NEAR,
    Invariance,
    check_action,
    check_arguments,
    complaint,
    invariance,
    place,
    samples,
    without_redundancy,
)
from dalembert.reduction.subspaces import SAME, echelon, named


class Spaces(NamedTuple):
    """The spaces of [fernandez2008] at a configuration.

    Columns are orthonormal for the kinetic metric; those of g_q are orthonormal in the usual sense.
    """

    g_q: np.ndarray
    """(s, k) the algebra elements whose generators lie in D."""
    S: np.ndarray
    """(n, k) the intersection of D and V: the allowed velocities along the orbit."""
    U: np.ndarray
    """(n, s - k) the rest of V, the space of directions along the orbit."""
    H: np.ndarray
    """(n, r - k) the rest of D."""


class Classification(NamedTuple):
    """How a group acts on a constrained system: `kind` is 'Chaplygin', 'horizontal', 'both' or 'neither'."""

    kind: str
    reason: str
    """The reason for the kind, in words."""
    invariance: dict[str, Invariance]
    horizontal: np.ndarray
    """(s, k) a basis of the algebra elements whose generators lie in D everywhere."""
    shared: int
    """The least dimension of S, the intersection of D and V, over the samples."""
    spanned: bool
    """Whether D and V span all velocities, which is the dimension assumption."""

    @property
    def invariant(self) -> bool:
        """Whether every measured quantity is invariant."""
        return all(x.holds for x in self.invariance.values())


@jit_fast_compile
def _geometry(system: System, symmetry: Symmetry, t: Any, q: Any) -> Any:
    def one(t, q):
        here = system.at(t)
        return here.frame(q), here.rows(q), symmetry.generators(here, q), here.metric(q)

    return jax.vmap(one)(t, q)


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of the columns."""
    u, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return u[:, sizes > SAME * max(sizes.max(initial=0.0), np.finfo(float).tiny)]


def _without(space: np.ndarray, part: np.ndarray) -> np.ndarray:
    """A basis of the vectors in `space` that are orthogonal to its subspace `part`; both have orthonormal columns."""
    u, sizes, _ = np.linalg.svd(space - part @ (part.T @ space), full_matrices=False)
    return u[:, sizes > 0.5]


def spaces_at(frame: np.ndarray, generators: np.ndarray, mass: np.ndarray) -> Spaces:
    """The spaces at a configuration with this frame of D, these generators and this mass matrix."""
    root = np.linalg.cholesky(mass).T  # |root x| is the length of x in the kinetic metric
    allowed, orbit = _orthonormal(root @ frame), _orthonormal(root @ generators)
    # The singular values are the sines of the angles between D and V: zero where they share a direction.
    normal = orbit - allowed @ (allowed.T @ orbit)
    _, sines, turn = np.linalg.svd(normal, full_matrices=True)
    sines = np.concatenate([sines, np.zeros(turn.shape[0] - len(sines))])
    shared = orbit @ turn[sines < SAME].T
    back = np.linalg.solve
    xi = np.linalg.lstsq(root @ generators, shared, rcond=None)[0]
    parts = (shared, _without(orbit, shared), _without(allowed, shared))
    return Spaces(_orthonormal(xi) if xi.shape[1] else xi, *(back(root, x) for x in parts))


def spaces(system: System, symmetry: Symmetry, q: Any, t: float = 0.0) -> Spaces:
    """g^q, S, U and H at a configuration: TQ = H + S + U, D = H + S, V = S + U."""
    check_arguments(system, symmetry)
    check_action(system, symmetry, samples(system, symmetry))
    q = np.asarray(q, float)
    if q.shape != (system.dimension,):
        raise ValueError(f"spaces needs one configuration of {system.dimension} numbers, got shape {q.shape}")
    frame, _, generators, mass = geometry(system, symmetry, np.array([t]), q[None])
    return spaces_at(frame[0], generators[0], mass[0])


def geometry(system: System, symmetry: Symmetry, t: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
    """A frame of D, the one-forms, the generators and the mass matrix at rows of configurations."""
    return [np.asarray(x, float) for x in _geometry(as_arrays(system), symmetry, t, q)]


def horizontal(
    system: System, symmetry: Symmetry, at: Vector | None = None
) -> Float[np.ndarray, "n directions"]:
    """(s, k) a basis of the algebra elements that generate allowed velocities at every sampled configuration."""
    given = samples(system, symmetry, at)
    check_action(system, symmetry, given)
    _, forms, generators, _ = geometry(system, symmetry, given.t, given.q)
    return _constant(forms, generators)


def _constant(forms: np.ndarray, generators: np.ndarray) -> np.ndarray:
    """The algebra elements whose generators are annihilated by every one-form at every sample, in echelon form."""
    good = np.all(np.isfinite(forms), axis=(1, 2)) & np.all(np.isfinite(generators), axis=(1, 2))
    said = (forms[good] @ generators[good]).reshape(-1, generators.shape[2])
    # Each row is divided by its own size, so that one-forms of different sizes count equally.
    sizes = (np.abs(forms[good]) @ np.abs(generators[good])).reshape(said.shape).max(axis=1, initial=0.0)
    size, said = generators.shape[2], said[sizes > 0] / sizes[sizes > 0, None]
    if not said.size:
        return np.eye(size)
    _, sizes, turn = np.linalg.svd(said, full_matrices=True)
    sizes = np.concatenate([sizes, np.zeros(size - len(sizes))])
    rows = turn[sizes <= SAME * max(sizes.max(), np.finfo(float).tiny)]
    return echelon(rows).T


def classify(
    system: System,
    symmetry: Symmetry,
    method: VariationalDLA | EDLA | None = None,
    *,
    h: float | None = None,
    at: Vector | None = None,
) -> Classification:
    """Whether a group makes a system Chaplygin, is a horizontal symmetry of it, both, or neither, and why.

    Chaplygin: D and the orbits share no direction and span all velocities, so that D is a connection. Horizontal: the
    directions they share are the orbits of one subgroup. Both: they are the orbits of a proper subgroup, and D and the
    orbits span all velocities, so that the rest is Chaplygin. The spaces are measured at samples around the start
    states, or around `at`. If a method is given, its discrete Lagrangian and constraint must be invariant too.
    """
    found = invariance(system, symmetry, method, h=h, at=at)
    system = without_redundancy(system, at)
    given = samples(system, symmetry, at)
    frames, forms, generators, masses = geometry(system, symmetry, given.t, given.q)
    constant = _constant(forms, generators)
    frames, forms, generators, masses = (x[:NEAR] for x in (frames, forms, generators, masses))
    good = [np.all(np.isfinite(x).reshape(len(x), -1), axis=1) for x in (frames, forms, generators, masses)]
    kept = np.flatnonzero(np.all(good, axis=0))
    every = [spaces_at(frames[i], generators[i], masses[i]) for i in kept]
    sizes = [x.S.shape[1] for x in every]
    shared = min(sizes)  # at some configurations they may share more
    n, s = system.velocity_dimension, symmetry.group.dimension
    rank = frames.shape[2]
    spanned = rank + s - shared == n
    k = constant.shape[1]
    count = {0: "no direction", 1: "one direction"}.get(shared, f"{shared} directions")
    said = [f"D (dimension {rank}) and the orbits V (dimension {s}) share {count}"]
    words = complaint(system, symmetry, found)
    where = None
    if words is not None:
        kind = "neither"
        said = [words, *([f"besides, {said[0]}"] if shared else [])]
    elif not shared and spanned:
        kind = "Chaplygin"
        said.append("together they span all velocities, so that D is a connection")
        if max(sizes):
            where = given.q[kept[int(np.argmax(sizes))]]
        else:
            where = _singular(system, symmetry, given.t[kept], given.q[kept], forms[kept], generators[kept])
    elif shared and k == shared:
        kind = "both" if spanned and k < s else "horizontal"
        basis = ", ".join(named(row, symmetry) for row in constant.T)
        said.append(f"these are the orbits of {basis}, whose momentum is kept")
        if kind == "both":
            said.append("all velocities are spanned, so that at a level of it the rest is Chaplygin")
    else:
        kind = "neither"
        if shared:
            same = f"only {k} of them the same everywhere" if k else "none of them the same everywhere"
            said.append(
                f"so it is not Chaplygin; as directions of the group, {same}, so it is not horizontal"
            )
        else:
            said.append(
                f"together they span {rank + s - shared} of {n} velocities, so that the dimension assumption "
                "D + V = TQ fails and it is not Chaplygin"
            )
    if where is not None:
        said.append(f"but only locally: at ({place(system, where)}) they share a direction")
    reason = f"{system.label} with {symmetry.words} is {kind}: {'; '.join(said)}"
    return Classification(kind, reason, found, constant, shared, spanned)


def _singular(
    system: System,
    symmetry: Symmetry,
    t: np.ndarray,
    q: np.ndarray,
    forms: np.ndarray,
    generators: np.ndarray,
) -> np.ndarray | None:
    """A configuration between samples where D and V share a direction; None if none is found."""
    m = lower(system)
    if "constraints" not in m.given or forms.shape[1] != generators.shape[2]:
        return None  # one-forms computed from a frame may be discontinuous
    signs = np.sign(np.linalg.det(forms @ generators))
    if np.all(signs == signs[0]) or Trait.GROUP in m.traits:
        return None
    a, b = q[0], q[int(np.argmax(signs != signs[0]))]
    for _ in range(50):
        middle = 0.5 * (a + b)
        _, form, generator, _ = geometry(system, symmetry, t[:1], middle[None])
        a, b = (middle, b) if np.sign(np.linalg.det(form[0] @ generator[0])) == signs[0] else (a, middle)
    return 0.5 * (a + b)
