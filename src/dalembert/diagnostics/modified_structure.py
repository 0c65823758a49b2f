"""How well a modified field keeps each structure of the exact motion, state by state."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from dalembert.diagnostics.interpolated_field import FieldValue, ModifiedField
from dalembert.diagnostics.modified_driver import CoupledField
from dalembert.diagnostics.order import exact_acceleration
from dalembert.diagnostics.stepmap import (
    OFFSETS,
    WEIGHTS,
    place,
    place_in_frame,
    read_in_frame,
    read_place,
    reverse,
)
from dalembert.kernels import over_rows
from dalembert.model import (
    Mechanics,
    orthonormal_frame,
    tangent_directions,
    total_energy,
)
from dalembert.numerics import matvec


class Measure(NamedTuple):
    """The defect of one structure at each state, relative to the size of the terms that should cancel."""

    defect: Float[np.ndarray, " rows"]
    error: Float[np.ndarray, " rows"]
    """The estimated error of the defect."""


def scaled(defect: Any, error: Any, size: Any) -> Measure:
    """The measure relative to the largest size among all states."""
    scale = max(float(np.max(np.abs(size))), np.finfo(float).tiny)
    return Measure(np.abs(np.asarray(defect, float)) / scale, np.asarray(error, float) / scale)


def distance(f: ModifiedField, q: np.ndarray, v: np.ndarray, value: FieldValue) -> Measure:
    """How far the field is from the exact one, in the kinetic metric: of q' and v' the larger of both, relatively."""
    a = over_rows(exact_acceleration)(f.mechanics, q, v)
    sizes = [over_rows(_norm)(f.mechanics, q, x) for x in (value.q - v, value.v - a, v, a)]
    parts = [
        scaled(defect, error, size)
        for defect, error, size in zip(sizes[:2], (value.q_error, value.v_error), sizes[2:], strict=True)
    ]
    if np.max(sizes[3]) == 0:  # a free motion: accelerations are compared with speed per step
        parts[1] = scaled(sizes[1], value.v_error, sizes[2] / float(f.h))
    return Measure(*(np.maximum(one, two) for one, two in zip(*parts, strict=True)))


def tangency(f: ModifiedField, q: np.ndarray, v: np.ndarray, value: FieldValue) -> Measure:
    """The rate at which the velocity leaves the constraints along the field."""
    return _rate(f, over_rows(_tangency), q, v, value)


def energy_rate(f: ModifiedField, q: np.ndarray, v: np.ndarray, value: FieldValue) -> Measure:
    """The rate of the energy along the field.

    Where the method's own velocity lies in D, the rates of its energy and of the energy of its part in D are the same.
    """
    return _rate(f, over_rows(_energy), q, v, value)


def integral_rate(
    f: ModifiedField,
    function: Callable[[Array, Array], Array],
    q: np.ndarray,
    v: np.ndarray,
    value: FieldValue,
) -> Measure:
    """The rate of a function of q and v along the field."""

    def row(m: Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
        return _slopes(m, lambda q, v: function(q, v)[None], q, v)

    many = jax.jit(jax.vmap(row, in_axes=(None, 0, 0)))
    return _rate(f, lambda m, q, v: tuple(np.asarray(x) for x in many(m, q, v)), q, v, value)


def _norm(m: Mechanics, q: Array, x: Array) -> Array:
    return jnp.sqrt(jnp.abs(jnp.sum(x * matvec(m.metric(q), x))))


def _slopes(m: Mechanics, function: Callable, q: Array, v: Array) -> tuple[Array, Array]:
    """The derivatives of a function of (q, v), one row per value, along displacements and along velocities."""
    along = jax.jacfwd(lambda x: function(m.space.displaced(q, x), v))(
        jnp.zeros(m.velocity_dimension, q.dtype)
    )
    return along, jax.jacfwd(lambda v: function(q, v))(v)


def _tangency(m: Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    # In units of velocity: the shortest change of the velocity that satisfies the constraints again.
    forms, mass = m.forms(q, v), m.metric(q)
    unit = jnp.linalg.inv(jnp.linalg.cholesky(forms @ jnp.linalg.solve(mass, forms.T)))
    return _slopes(m, lambda q, v: unit @ m.violation(q, v), q, v)


def _energy(m: Mechanics, q: Array, v: Array) -> tuple[Array, Array]:
    return _slopes(m, lambda q, v: total_energy(m, q, v)[None], q, v)


def _rate(f: ModifiedField, slopes: Callable, q: np.ndarray, v: np.ndarray, value: FieldValue) -> Measure:
    """The rate of functions with these slopes; what q' and v' contribute may cancel."""
    along, across = slopes(f.mechanics, q, v)
    dq, dv = value.q, value.v
    rates = np.einsum("kij,kj->ki", along, dq) + np.einsum("kij,kj->ki", across, dv)
    root = np.linalg.cholesky(over_rows(_metric)(f.mechanics, q))
    sizes = [
        np.linalg.norm(np.linalg.solve(root, np.swapaxes(x, 1, 2)), axis=(1, 2)) for x in (along, across)
    ]
    errors = sizes[0] * value.q_error + sizes[1] * value.v_error
    terms = [over_rows(_norm)(f.mechanics, q, x) for x in (dq, dv)]
    return scaled(np.linalg.norm(rates, axis=1), errors, sizes[0] * terms[0] + sizes[1] * terms[1])


def _metric(m: Mechanics, q: Array) -> Array:
    return m.metric(q)


def reversal(f: ModifiedField, q: np.ndarray, v: np.ndarray, value: FieldValue) -> Measure:
    """By how much R f(R x) differs from -f(x), for the method's own reversal R of velocities."""
    shared = (f.mechanics, f.method, f.h)
    turned = over_rows(reverse)(shared, q, v)
    back = f.rows(q, turned)
    # R takes the field at R x to a vector at x.
    dq, dv = back.q, over_rows(_turned_rate)(shared, q, turned, back.q, back.v)
    parts = []
    for x, y, e1, e2 in (
        (value.q, dq, value.q_error, back.q_error),
        (value.v, dv, value.v_error, back.v_error),
    ):
        size, defect = (over_rows(_norm)(f.mechanics, q, z) for z in (x, x + y))
        parts.append(scaled(defect, e1 + e2, size) if np.max(size) > 0 else scaled(defect, e1 + e2, 1.0))
    return Measure(*(np.maximum(one, two) for one, two in zip(*parts, strict=True)))


def _turned_rate(shared: Any, q: Array, v: Array, dq: Array, dv: Array) -> Array:
    return _along(shared[0], lambda q, v: reverse(shared, q, v), q, v, dq, dv)


def _along(m: Mechanics, function: Callable, q: Array, v: Array, dq: Array, dv: Array) -> Array:
    """The derivative of a function of (q, v) along the tangent vector (dq, dv)."""
    zero = jnp.zeros((), q.dtype)

    def moved(s):
        return function(m.space.displaced(q, s * dq), v + s * dv)

    return jax.jvp(moved, (zero,), (jnp.ones_like(zero),))[1]


class Divergence(NamedTuple):
    """The divergence of the modified field and of the exact one, at each state, in units of the fields' rates."""

    modified: Measure
    exact: Measure


def divergence(f: ModifiedField, q: np.ndarray, v: np.ndarray) -> Divergence:
    """The divergence with respect to the volume of (q, w), with w the velocity in an orthonormal frame of D; of (q, u)
    for methods on TQ."""
    fewer = replace(f, terms=f.terms - 6)

    def modified(field: ModifiedField) -> Callable:
        return lambda q, v: field.rows(q, v)[:2]

    def exact(q, v):
        return v, over_rows(exact_acceleration)(f.mechanics, q, v)

    delta = 0.02
    kinds = ((modified(f), delta), (modified(f), 0.5 * delta), (modified(fewer), delta))
    coarse, fine, short = (_traces(f, each, q, v, d) for each, d in kinds)
    made, size = fine
    # What a quarter of the terms changes, for all the terms that are left out, and what half the differences change.
    doubt = np.abs(made - coarse[0]) + f.terms / 6 * np.abs(short[0] - coarse[0])
    if f.stride == 2:
        nothing = np.full(len(q), np.nan)
        return Divergence(scaled(made, doubt, size), Measure(nothing, nothing))
    true, other = (_traces(f, exact, q, v, d) for d in (0.5 * delta, delta))
    return Divergence(scaled(made, doubt, size), scaled(true[0], np.abs(true[0] - other[0]), true[1]))


def _traces(
    f: ModifiedField, field: Callable, q: np.ndarray, v: np.ndarray, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """The trace of the field's Jacobian at each state, and the size of the Jacobian."""
    m, free = f.mechanics, f.stride == 2
    b, d = over_rows(orthonormal_frame)(m, q), over_rows(tangent_directions)(m, q)
    n = d.shape[2]
    size = n + (n if free else b.shape[2])
    shifts = (np.eye(size)[:, None, :] * (delta * OFFSETS)[None, :, None]).reshape(-1, size)
    many = len(shifts)
    base, speed, frame, directions = (np.repeat(x, many, axis=0) for x in (q, v, b, d))
    shift = np.tile(shifts, (len(q), 1))
    if free:
        near = over_rows(place)(m, base, speed, directions, shift[:, :n], shift[:, n:])
        rates = over_rows(_free_rate)(m, *near, *field(*near), base, directions)
    else:
        near = over_rows(place_in_frame)(m, base, speed, frame, directions, shift[:, :n], shift[:, n:])
        rates = over_rows(_frame_rate)(m, *near, *field(*near), base, frame, directions)
    table = rates.reshape(len(q), size, len(OFFSETS), size)
    jacobian = np.einsum("kjoi,o->kij", table, WEIGHTS) / delta
    return np.trace(jacobian, axis1=1, axis2=2), np.linalg.norm(jacobian, axis=(1, 2))


def _frame_rate(
    m: Mechanics, q: Array, u: Array, dq: Array, du: Array, base: Array, b: Array, directions: Array
) -> Array:
    return _along(m, lambda q, u: read_in_frame(m, q, u, base, b, directions), q, u, dq, du)


def _free_rate(
    m: Mechanics, q: Array, u: Array, dq: Array, du: Array, base: Array, directions: Array
) -> Array:
    return _along(m, lambda q, u: read_place(m, q, u, base, directions), q, u, dq, du)


def driver_alone(
    split: CoupledField, x: np.ndarray, w: np.ndarray, xi: np.ndarray, eta: np.ndarray, rate: float
) -> Measure:
    """The change of the driver's field when its passenger is replaced by the resting one."""
    given, rest = split.at(x, w, xi, eta), split.at(0 * x, 0 * w, xi, eta)
    fastest, strongest = np.max(np.abs(rest.driver), axis=0)
    # A free driver has no acceleration of its own to compare with.
    size = np.maximum([fastest, max(strongest, rate * fastest)], np.finfo(float).tiny)
    return Measure(
        np.max(np.abs(given.driver - rest.driver) / size, axis=1),
        np.max((given.driver_error + rest.driver_error) / size, axis=1),
    )


def descends(
    split: CoupledField, x: np.ndarray, w: np.ndarray, xi: np.ndarray, eta: np.ndarray, rate: float
) -> Measure | None:
    """The change of the reduced field when the passenger moves along the kernel of kappa; None if that is zero."""
    kappa = np.asarray(split.coupled.linear()[0])
    kernel = np.linalg.svd(kappa, full_matrices=True)[2][len(kappa) :]
    if not len(kernel):
        return None
    moved = np.random.default_rng(5).normal(size=(len(x), len(kernel))) @ kernel
    one, two = split.at(x, w, xi, eta), split.at(x + moved, w, xi, eta)
    return scaled(
        np.linalg.norm(one.passenger - two.passenger, axis=1),
        one.passenger_error + two.passenger_error,
        rate * np.hypot(np.linalg.norm(x @ kappa.T, axis=1), np.linalg.norm(w, axis=1)),
    )


def linear_passenger(
    split: CoupledField,
    x: np.ndarray,
    w: np.ndarray,
    xi: np.ndarray,
    eta: np.ndarray,
    matrices: tuple,
    rate: float,
) -> Measure:
    """By how much the passenger's field differs from A z + b."""
    matrix, shift, error = matrices
    kappa = np.asarray(split.coupled.linear()[0])
    z = np.concatenate([x @ kappa.T, w], axis=1)
    given = split.at(x, w, xi, eta)
    said = np.einsum("kij,kj->ki", matrix, z) + shift
    errors = given.passenger_error + error * np.linalg.norm(z, axis=1)
    return scaled(np.linalg.norm(given.passenger - said, axis=1), errors, rate * np.linalg.norm(z, axis=1))


def in_algebra(matrices: tuple, rate: float) -> Measure:
    """The symmetric part of A, which is zero in so(m+1)."""
    matrix, _, error = matrices
    symmetric = 0.5 * (matrix + np.swapaxes(matrix, 1, 2))
    return scaled(np.linalg.norm(symmetric, axis=(1, 2)), np.sqrt(matrix.shape[1]) * error, rate)


class Form(NamedTuple):
    """A quadratic form z.G z that the passenger's equations keep at all driver states, as well as one can."""

    matrix: Float[np.ndarray, "size size"]
    """G, of norm one."""
    measure: Measure
    """The norm of A^T G + G A at each state."""
    definite: bool
    """Whether G is positive definite."""


def quadratic_form(matrices: tuple, rate: float) -> Form:
    """The positive form that is kept best: the part of the identity in the space of all forms that are kept.

    A^T G + G A = 0 is linear in G, so the kept forms at all driver states together are the kernel of one matrix. The
    singular values that the errors of A explain count as zero; if there are none, the smallest takes their place.
    """
    matrix, _, error = matrices
    size = matrix.shape[1]
    basis = []
    for i in range(size):
        for j in range(i + 1):
            g = np.zeros((size, size))
            g[i, j] = g[j, i] = 1.0 if i == j else np.sqrt(0.5)
            basis.append(g)
    basis = np.array(basis)
    changes = np.einsum("kji,ajl->kail", matrix, basis) + np.einsum("aij,kjl->kail", basis, matrix)
    table = np.moveaxis(changes, 1, -1).reshape(-1, len(basis)) / (rate * np.sqrt(len(matrix)))
    _, values, rows = np.linalg.svd(table, full_matrices=False)
    noise = 2 * np.sqrt(size * np.mean(error**2)) / rate
    kept = rows[values <= max(noise, values[-1])]
    identity = np.array([np.trace(g) for g in basis])
    best = kept.T @ (kept @ identity)
    if np.linalg.norm(best) < 1e-6 * np.linalg.norm(identity):
        best = kept[-1]
    g = np.tensordot(best / np.linalg.norm(best), basis, axes=1)
    defect = np.linalg.norm(np.swapaxes(matrix, 1, 2) @ g + g @ matrix, axis=(1, 2))
    # G comes from all states together, so the largest error of any of them is an error of its measure everywhere.
    measure = scaled(defect, np.full(len(defect), 2 * np.sqrt(size) * np.max(error)), rate)
    values = np.linalg.eigvalsh(g)
    return Form(g, measure, bool(values[0] > 1e-6 * values[-1]))
