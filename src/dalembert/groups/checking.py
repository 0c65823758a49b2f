"""Check that the functions of a group fit together, at random elements and vectors of several sizes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.groups.base import Group
from dalembert.numerics import jit_fast_compile

SIZES = (1e-6, 1e-3, 0.1, 1.0)
"""The sizes of the random vectors, in units of `reach`; the first ones show what only large ones would hide."""


class GroupCheck(NamedTuple):
    """The largest defect of each law, relative to the numbers in it, over random elements and vectors."""

    group: str
    defects: dict[str, float]
    """A law that holds has a defect of rounding."""
    elements: int
    """The number of random elements and vectors."""
    reach: float
    """The size of the largest vectors."""

    def __str__(self) -> str:
        width = max(map(len, self.defects))
        rows = [f"{name:{width}}  {x:.1e}" for name, x in self.defects.items()]
        return "\n".join([f"{self.group}: {self.elements} elements, vectors up to {self.reach:g}", *rows])


_LAWS = {
    "associative": "(g k) l = g (k l)",
    "neutral": "g e = e g = g",
    "inverse": "g g^-1 = g^-1 g = e",
    "defect": "defect(g) = 0 for products of exponentials",
    "restore": "restore(g) = g for an element",
    "one parameter": "exp((s + t) x) = exp(s x) exp(t x)",
    "local": "local(e) = 0, and local(exp(x)) = x + O(x^2)",
    "conjugation": "g exp(x) g^-1 = exp(Ad_g x)",
    "adjoint": "Ad_{g k} = Ad_g Ad_k",
    "bracket": "ad_x = d/ds Ad_exp(s x) at s = 0",
    "antisymmetric": "[x, y] = -[y, x]",
    "Jacobi": "ad_[x, y] = ad_x ad_y - ad_y ad_x",
    "velocity": "velocity(g, x) = d/ds g exp(s x) at s = 0",
    "matrix": "matrix(g k) = matrix(g) matrix(k)",
}
_MAP_LAWS = {
    "at zero": "tau(0) = e",
    "slope at zero": "d/ds tau(s x) = x at s = 0",
    "symmetric": "tau(-x) = tau(x)^-1",
    "derivative": "d/ds tau(x + s y) = (dtau_x y) tau(x), of which d<name>_inverse(x) gives the inverse",
}


def check_group(group: Group, *, elements: int = 12, reach: float = 1.0, seed: int = 0) -> GroupCheck:
    """Refuses a group whose functions contradict each other, and returns the defects of its laws.

    It checks the shapes, the group axioms, `restore` and `defect`, exp and `local`, Ad, the bracket, the velocity, the
    matrices if they are given, and for each retraction its value and slope at zero, its symmetry and its derivative:
    at products of exponentials of random vectors, and for vectors of several sizes up to `reach` in each component. A
    map that is singular for such vectors needs a smaller `reach`. It also checks that derivatives at zero exist, where
    formulas with |x| often fail.
    """
    if not isinstance(group, Group):
        raise ValueError(
            f"check_group needs a group, such as SO3() or an object of your own class, got {group!r}"
        )
    if not isinstance(elements, int | np.integer) or isinstance(elements, bool) or elements < 1:
        raise ValueError(f"elements must be a whole number of at least 1, got {elements!r}")
    if not isinstance(reach, int | float | np.floating) or isinstance(reach, bool) or not 0 < reach < np.inf:
        raise ValueError(f"reach must be a positive number, got {reach!r}")
    _check_names(group)
    _check_shapes(group)
    random, n = np.random.default_rng(seed), group.dimension
    sizes = reach * np.resize(SIZES, elements)[:, None]
    far = jnp.asarray(random.uniform(-reach, reach, (6, elements, n)))
    near = jnp.asarray(random.uniform(-1, 1, (2, elements, n)) * sizes)
    rows = jit_fast_compile(jax.vmap(lambda far, x, y: _sides(group, far, x, y)))(
        jnp.moveaxis(far, 0, 1), near[0], far[0]
    )
    # The simplest law that fails is the one to name: the later ones contain more functions.
    of_maps = [f"{name}: {law}" for name in group.retractions for law in _MAP_LAWS]
    names = [name for name in [*_LAWS, *of_maps] if name in rows]
    defects = {name: _defect(group, name, *map(np.asarray, rows[name])) for name in names}
    for name, defect in defects.items():
        # Some dozens of products of numbers of the size that the defect is relative to.
        if not defect <= 1e3 * np.finfo(float).eps:
            law = _LAWS.get(name) or _MAP_LAWS[name.partition(": ")[2]]
            raise ValueError(
                f"{group.name}: the law {name!r} fails, {law}: the two sides differ by {defect:.2g} of their size, "
                f"for vectors of size up to {reach:g}. Correct the functions that it contains"
                + (", or give a smaller reach if a map is singular there" if ": " in name else "")
            )
    _check_curved(group, np.asarray(rows["restore"][1]), random)
    return GroupCheck(group.name, defects, int(elements), float(reach))


def _check_names(group: Group) -> None:
    for what in ("coordinates", "velocities", "angles", "retractions"):
        names = getattr(group, what)
        if not isinstance(names, tuple) or not all(isinstance(x, str) for x in names):
            raise ValueError(f"{group.name}: {what} must be a tuple of names, got {names!r}")
        if len(set(names)) != len(names):
            raise ValueError(f"{group.name}: {what} must differ from each other, got {names}")
    if not set(group.angles) <= set(group.coordinates):
        raise ValueError(
            f"{group.name}: angles must be among the coordinates {group.coordinates}, got {group.angles}"
        )
    if "exp" not in group.retractions:
        raise ValueError(f"{group.name}: retractions must contain 'exp', got {group.retractions}")


def _check_shapes(group: Group) -> None:
    number = jnp.zeros(()).dtype
    g, x = (jax.ShapeDtypeStruct((k,), number) for k in (group.size, group.dimension))
    square, element = (group.dimension,) * 2, (group.size,)
    calls: dict[str, tuple[Callable[..., Any], tuple, tuple[int, ...]]] = {
        "identity()": (group.identity, (), element),
        "multiply(g, k)": (group.multiply, (g, g), element),
        "inverse(g)": (group.inverse, (g,), element),
        "exp(x)": (group.exp, (x,), element),
        "local(g)": (group.local, (g,), (group.dimension,)),
        "adjoint(g)": (group.adjoint, (g,), square),
        "bracket(x)": (group.bracket, (x,), square),
        "restore(g)": (group.restore, (g,), element),
        "defect(g)": (group.defect, (g,), ()),
        "velocity(g, x)": (group.velocity, (g, x), element),
    }
    for name in group.retractions:
        tau, inverse = group.retraction(name)
        calls |= {f"{name}(x)": (tau, (x,), element), f"d{name}_inverse(x)": (inverse, (x,), square)}
    for text, (function, given, wanted) in calls.items():
        shape = jnp.shape(jax.eval_shape(function, *given))
        if shape != wanted:
            raise ValueError(f"{group.name}: {text} must have shape {wanted}, got {shape}")


def _sides(group: Group, far: Array, x: Array, y: Array) -> dict[str, tuple[Array, Array]]:
    """Both sides of every law, for elements made from the rows of `far`, and vectors x and y."""
    product, inverse, exp, adjoint = group.multiply, group.inverse, group.exp, group.adjoint
    e = group.identity().astype(x.dtype)
    g, k, m = (product(exp(a), exp(b)) for a, b in zip(far[:3], far[3:], strict=True))
    zero, one, nothing = jnp.zeros((), x.dtype), jnp.ones((), x.dtype), jnp.zeros_like(x)
    unit, ad_x, ad_y = jnp.eye(len(x), dtype=x.dtype), group.bracket(x), group.bracket(y)
    gk, back = product(g, k), inverse(g)
    found = {
        "associative": (product(gk, m), product(g, product(k, m))),
        "neutral": (jnp.stack([product(g, e), product(e, g)]), jnp.stack([g, g])),
        "inverse": (jnp.stack([product(g, back), product(back, g)]), jnp.stack([e, e])),
        "defect": (group.defect(gk)[None], jnp.zeros(1, x.dtype)),
        "restore": (group.restore(gk), gk),
        "one parameter": (exp(0.3 * x + 0.7 * x), product(exp(0.3 * x), exp(0.7 * x))),
        "local": (
            jnp.concatenate([group.local(e)[None], jax.jacfwd(lambda x: group.local(exp(x)))(nothing)]),
            jnp.concatenate([nothing[None], unit]),
        ),
        "conjugation": (product(product(g, exp(x)), back), exp(adjoint(g) @ x)),
        "adjoint": (adjoint(gk), adjoint(g) @ adjoint(k)),
        "bracket": (ad_x, jax.jvp(lambda s: adjoint(exp(s * x)), (zero,), (one,))[1]),
        "antisymmetric": (ad_x @ y, -ad_y @ x),
        "Jacobi": (group.bracket(ad_x @ y), ad_x @ ad_y - ad_y @ ad_x),
        "velocity": (
            group.velocity(g, x),
            jax.jvp(lambda s: product(g, exp(s * x)), (zero,), (one,))[1],
        ),
    }
    if type(group).matrix is not Group.matrix:
        found["matrix"] = group.matrix(gk), group.matrix(g) @ group.matrix(k)
    for name in group.retractions:
        tau, dtau_inverse = group.retraction(name)
        there = inverse(tau(x))
        slope = jax.jacfwd(lambda y, tau=tau, there=there: group.local(product(tau(x + y), there)))(nothing)
        found |= {
            f"{name}: at zero": (tau(nothing), e),
            f"{name}: slope at zero": (jax.jacfwd(lambda y, tau=tau: group.local(tau(y)))(nothing), unit),
            f"{name}: symmetric": (tau(-x), there),
            f"{name}: derivative": (dtau_inverse(x) @ slope, unit),
        }
    return found


def _defect(group: Group, name: str, one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference of the sides, relative to the larger of one and their size; angles up to full turns."""
    off = one - other
    if one.shape[-1] == group.size and name in (
        "associative", "neutral", "inverse", "restore", "one parameter", "conjugation",
    ):  # fmt: skip
        turning = np.array([x in group.angles for x in group.coordinates])
        off = np.where(turning, np.remainder(off + np.pi, 2 * np.pi) - np.pi, off)
    if name in ("bracket", "Jacobi", "antisymmetric", "velocity"):
        # These are of the size of the vectors, and an error in small ones must not hide behind one.
        axes = tuple(range(1, one.ndim))
        size = np.max(np.abs(one), axes) + np.max(np.abs(other), axes) + np.finfo(float).tiny
        largest = np.max(np.abs(off), axes)
        with np.errstate(invalid="ignore"):
            found = np.max(largest / size)
    else:
        found = np.max(np.abs(off)) / max(1.0, np.max(np.abs(one)), np.max(np.abs(other)))
    return float(found) if np.all(np.isfinite(off)) else np.inf


def _check_curved(group: Group, elements: np.ndarray, random: np.random.Generator) -> None:
    """Refuses a `defect` that takes any numbers for an element although the elements form a surface among them."""
    if group.size == group.dimension:
        return
    off = elements + random.uniform(-1e-6, 1e-6, elements.shape)
    defect = np.asarray(jax.vmap(group.defect)(jnp.asarray(off)))
    if not np.all(defect > 1e-9):
        raise ValueError(
            f"{group.name}: an element has {group.size} numbers but {group.dimension} dimensions, so defect(g) must "
            "show which numbers are no element; it is zero for numbers that are off by 1e-6. Define it, as the size of "
            "the equations that the numbers satisfy"
        )
    back = np.asarray(jax.vmap(lambda g: group.defect(group.restore(g)))(jnp.asarray(off)))
    if not np.all(back < 1e-9):
        raise ValueError(
            f"{group.name}: restore(g) leaves a defect of {np.max(back):.2g} for numbers that are off by 1e-6; it must "
            "lead to an element near by, by a step of Newton's method for the equations that the numbers satisfy"
        )
