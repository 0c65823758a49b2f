"""What chains of bodies share: how many bodies there are, where they are, and wheels that do not slip sideways."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def count(system: str, name: str, least: int) -> Callable[[Any], int]:
    """A converter for the number of bodies of a chain; it refuses what is not a whole number of at least `least`."""

    def whole(given: Any) -> int:
        number = isinstance(given, int | float | np.integer) and not isinstance(given, bool)
        if not number or given % 1 != 0 or given < least:
            raise ValueError(f"{system}: {name} must be a whole number, at least {least}; got {given!r}")
        return int(given)

    return whole


def directions(headings: Array) -> tuple[Array, Array]:
    """The unit vectors along the headings and to their left, shape (number, 2) each."""
    c, s = jnp.cos(headings), jnp.sin(headings)
    return jnp.stack([c, s], axis=1), jnp.stack([-s, c], axis=1)


def levers(number: int) -> tuple[np.ndarray, np.ndarray]:
    """The matrices A and B with which the axles are P_i = P_0 - sum_j (hitch A + length B)_ij e_j.

    The next axle is P_(i+1) = P_i - hitch e_i - length e_(i+1), where e_j is the direction of body j.
    """
    before, behind = np.tri(number, k=-1), np.tri(number)
    behind[:, 0] = 0.0
    return before, behind


def towed_places(place: Array, headings: Array, hitch: Any, length: Any) -> Array:
    """The axles' middles P_i, shape (number, 2)."""
    before, behind = levers(len(headings))
    ahead, _ = directions(headings)
    return place - (hitch * before + length * behind) @ ahead


def towed_metric(headings: Array, hitch: Any, length: Any, mass: Any, turning: Any) -> Array:
    """The mass matrix of equal bodies in the coordinates P_0 and the headings.

    `turning` is the moment of inertia about the axle's middle, which is the mass centre.
    """
    number = len(headings)
    before, behind = levers(number)
    ahead, aside = directions(headings)
    carried = (-mass * hitch * before.sum(0) - mass * length * behind.sum(0))[:, None] * aside
    both = before.T @ behind
    # Products of constant matrices, so that the work grows with the square of the number and not with its cube.
    squares = (
        hitch**2 * (before.T @ before) + hitch * length * (both + both.T) + length**2 * (behind.T @ behind)
    )
    turned = mass * squares * (ahead @ ahead.T) + turning * np.eye(number)
    return jnp.block([[number * mass * np.eye(2), carried.T], [carried, turned]])


def towed_rows(headings: Array, hitch: Any, length: Any) -> Array:
    """One row per body: the velocity of its axle's middle to the left, in the coordinates P_0 and the headings."""
    before, behind = levers(len(headings))
    _, aside = directions(headings)
    return jnp.concatenate([aside, -(hitch * before + length * behind) * (aside @ aside.T)], axis=1)


def towed_frame(headings: Array, hitch: Any, length: Any) -> Array:
    """Two columns: the motions in which the speed and the turning rate of the first body are (1, 0) and (0, 1).

    If the hitch before a body has the velocity u, the body turns at the rate n . u/length, and the hitch behind it has
    the velocity (e e^T - (hitch/length) n n^T) u.
    """
    ahead, aside = directions(headings)
    passed = ahead[1:, :, None] * ahead[1:, None] - hitch / length * aside[1:, :, None] * aside[1:, None]
    first = jnp.stack([ahead[0], -hitch * aside[0]], axis=1)
    _, hitches = jax.lax.scan(lambda u, r: (r @ u, u), first, passed)
    rates = jnp.einsum("ik,ikc->ic", aside[1:], hitches) / length
    still = jnp.zeros(2)
    return jnp.concatenate([jnp.stack([ahead[0], still], axis=1), jnp.array([[0.0, 1.0]]), rates])


@jax.jit
def _velocity(headings: Array, hitch: Array, length: Array, w: Array) -> Array:
    return towed_frame(headings, hitch, length) @ w


def towed_velocity(headings: Array, hitch: Any, length: Any, w: Any) -> Array:
    """The velocity in which w are the speed and the turning rate of the first body.

    It is compiled in one piece, which takes a fifth of the time that its operations take one by one.
    """
    return _velocity(*(jnp.asarray(x, float) for x in (headings, hitch, length, w)))


def plane_motions(place: Array, headings: Array) -> Array:
    """SE(2) in the coordinates P_0 and the headings: (u, v, w) moves them by (u - w y, v + w x, w, ..., w)."""
    turn = jnp.concatenate([jnp.stack([-place[1], place[0]]), jnp.ones_like(headings)])
    return jnp.stack([*jnp.eye(len(turn))[:2], turn], axis=1)
