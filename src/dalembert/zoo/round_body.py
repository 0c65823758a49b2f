"""A ball that rotates about its centre, with any constraint on its rotation."""

import equinox as eqx
import jax.numpy as jnp

from dalembert import groups
from dalembert.model import GroupSystem, scene

GROUPS = {"SO(3)": groups.SO3(), "S^3": groups.S3()}
DISTRIBUTIONS = ("mixed", "right-invariant", "left-invariant")


class RoundBody(GroupSystem):
    """A body with three equal moments of inertia on SO(3) or S^3, that is, with a bi-invariant metric.

    Its angular velocity must be normal to a covector a(g). With "right-invariant" this is a direction fixed in space,
    with "left-invariant" a direction fixed in the body, and with "mixed" a combination of both that varies with the
    orientation. "mixed" is an arbitrary distribution, for which LieGNI still conserves the energy exactly (Theorem 1 of
    [ferraro2008]).
    """

    step = 0.1
    moment: float
    group: groups.Group = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    distribution: str = eqx.field(static=True)

    def __init__(self, group="SO(3)", distribution="mixed", moment=1.0):
        if group not in GROUPS:
            raise ValueError(f"RoundBody lives on one of: {', '.join(GROUPS)}; got {group!r}")
        if distribution not in DISTRIBUTIONS:
            raise ValueError(
                f"RoundBody has no distribution {distribution!r}; choose one of: {', '.join(DISTRIBUTIONS)}"
            )
        self.group, self.distribution, self.moment = GROUPS[group], distribution, moment

    def inertia(self):
        return self.moment * jnp.eye(3)

    def constraints(self, g):
        r = self.group.adjoint(g)
        body, space = jnp.array([0.0, 0.3, 1.0]), jnp.array([1.0, 0.2, -0.3])
        if self.distribution == "left-invariant":
            return body[None]
        turned = jnp.sum(r * space[:, None], axis=0)
        if self.distribution == "right-invariant":
            return turned[None]
        return (turned + body + jnp.sin(2 * r[0, 1]) * jnp.array([0.0, 1.0, 0.0]))[None]

    def starts(self):
        g = self.group.exp(jnp.array([0.3, -0.2, 0.5]))
        a, w = self.constraints(g)[0], jnp.array([0.5, -0.7, 0.9])
        return {"default": (g, w - a * jnp.sum(a * w) / jnp.sum(a * a))}

    def scene(self, t, q):
        """The ball and, in gold, the axis about which it must not turn at present."""
        turn, centre = self.group.adjoint(q), jnp.zeros(3)
        axis = turn @ self.constraints(q)[0]
        axis = 1.25 * axis / jnp.sqrt(jnp.sum(axis**2))
        forbidden = scene.rod(-axis, axis, 0.02, scene.GOLD)
        ball = scene.ball(centre, 0.5, turn)
        return [scene.sphere(), scene.trace(turn[:, 2]), ball, forbidden, scene.axes(centre, turn)]

    def sections(self):
        if (
            self.distribution == "right-invariant"
        ):  # horizontal symmetries: turning about axes normal to `space`
            return {
                "space axis 1": lambda g: jnp.array([0.3, 0.0, 1.0]),
                "space axis 2": lambda g: jnp.array([0.2, -1.0, 0.0]),
            }

        def section(g, i):
            a = self.constraints(g)[0]
            axis = jnp.eye(3)[i]
            return self.group.adjoint(g) @ (axis - a * a[i] / jnp.sum(a * a))

        return {f"axis {i + 1}": lambda g, i=i: section(g, i) for i in range(2)}
