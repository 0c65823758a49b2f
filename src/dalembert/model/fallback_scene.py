"""The default scene, for systems without a scene of their own."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array

from dalembert.groups import H3, S3, SE2, SE3, SO3, Group, Product, Rn, Torus
from dalembert.model import scene
from dalembert.model.traits import Trait

if TYPE_CHECKING:
    from dalembert.model.systems import Mechanics, System

# If units are given, coordinates with these units are lengths. If not, all but those with the names below are.
_LENGTHS = ("m", "mm", "cm", "dm", "km", "um", "in", "ft", "yd", "mi", "metre", "meter", "metres", "meters")
_TURNS = (
    "alpha", "angle", "azimuth", "beta", "delta", "gamma", "heading", "lean", "omega", "phi", "pitch", "psi", "roll",
    "steer", "theta", "tilt", "turn", "twist", "yaw",
)  # fmt: skip


def _is_length(system: "System", i: int) -> bool:
    """Whether a coordinate is a length, judged by its unit or, if there are no units, by its name."""
    name = system.coordinates[i]
    if name in system.angles:
        return False
    if system.units:
        return system.units[i].strip().lower() in _LENGTHS
    return not any(part.rstrip("0123456789") in _TURNS for part in name.lower().split("_"))


def default_scene(m: "Mechanics", t: Array, q: Array) -> list[scene.Part]:
    """The parts that show a system without a scene of its own.

    A system on a group with rotations is a body. Any other system is a particle whose place is its first coordinates
    that are lengths, with its trace and the directions that the constraint allows. If no coordinate is a length, each
    coordinate gets a dial.
    """
    system = m.system
    if Trait.GROUP in m.traits and (body := _body(m.space, q)):
        return body
    shown = [i for i in range(system.dimension) if _is_length(system, i)][:3]
    if not shown:
        return [
            part
            for i in range(system.dimension)
            for part in (scene.disc((2.4 * i, 0.0, 0.0), q[i], 1.0), scene.trace(_tip(2.4 * i, q[i])))
        ]
    numbers = [q[i] for i in shown]
    flat = len(numbers) < 3
    at = scene.place([*numbers, 0.0][:2] if flat else numbers)
    parts = [scene.trace(at), scene.point(at)] + [scene.floor()] * flat
    if len(shown) > 1 and system.constrained:
        parts.append(scene.tile(at, _allowed(m.at(t), q, shown), flat=flat))
    return parts


def _tip(x: float, angle: Array) -> Array:
    return jnp.stack([x + jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)])


def _allowed(now: "Mechanics", q: Array, shown: list[int]) -> Array:
    """The rates of the shown coordinates along the allowed velocities, shape (3, k)."""
    rates = jax.vmap(lambda v: now.space.velocity(q, v), 1, 1)(now.frame(q))[jnp.array(shown)]
    return jnp.concatenate([rates, jnp.zeros((3 - len(shown), rates.shape[1]))])


def _body(group: Group, q: Array) -> list[scene.Part]:
    """A block that moves with the group element; empty if the group contains no rotations."""
    at, turn, fixed = jnp.zeros(3), None, True
    start = 0
    for factor in group.factors if isinstance(group, Product) else (group,):
        g = q[start : start + factor.size]
        start += factor.size
        if isinstance(factor, SE2):
            at, turn, fixed = scene.place(g[:2], 0.1), scene.about_z(g[2]), False
        elif isinstance(factor, SE3):
            m = factor.matrix(g)
            at, turn, fixed = m[:3, 3], m[:3, :3], False
        elif isinstance(factor, SO3 | S3):
            turn = factor.adjoint(g)
        elif isinstance(factor, H3 | Rn) and not isinstance(factor, Torus):
            at, fixed = scene.place([*g, 0.0, 0.0][:3]), False
    if turn is None:
        return []
    if fixed:
        size = (1.0, 0.7, 0.35)
        return [
            scene.box(at, size, turn=turn),
            scene.axes(at, turn),
            scene.sphere(),
            scene.trace(turn[:, 2]),
        ]
    size = (0.8, 0.5, 0.2)
    return [scene.box(at, size, turn=turn, relative=True), scene.trace(at), scene.floor()]
