"""Random systems with symmetries: reduced, run, reconstructed and compared; those with broken ones are refused."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import dalembert as da
from dalembert.groups import SE2, Group, Rn, Torus

METHOD = da.VariationalDLA()
SHAPE = ("a", "b")
STEPS, H = 20, 0.1


class Fibred(da.System):
    """A body with body velocity xi over the shape (a, b), in a potential of the shape; all numbers are parameters, so
    that each family compiles once. With `held`, xi = X(r) r'; otherwise b' = f(r) a', and the group moves freely.

    `broken` times a bump of width one at `where` is added to the potential, along the group's first coordinate.
    """

    root: Any
    lift: Any
    wave: Any
    broken: Any
    where: Any
    of: Group = eqx.field(static=True)
    held: bool = eqx.field(static=True)

    @property
    def coordinates(self):
        return (*(f"g{i + 1}" for i in range(self.of.size)), *SHAPE)

    def body(self, q):
        """The matrix from q' to (xi, r')."""
        if not isinstance(self.of, SE2):
            return jnp.eye(self.dimension)
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        return jnp.eye(5).at[:2, :2].set(jnp.array([[c, s], [-s, c]]))

    def metric(self, q):
        root = self.root[0] + self.root[1] * jnp.sin(q[-2] + 2 * q[-1])
        return self.body(q).T @ (jnp.eye(self.dimension) + 0.2 * root @ root.T) @ self.body(q)

    def potential(self, q):
        return jnp.sum(self.wave * jnp.cos(q[-2:])) + self.broken * jnp.exp(-((q[0] - self.where) ** 2))

    def constraints(self, q):
        x = self.lift[0] + self.lift[1] * jnp.sin(q[-2] - 2 * q[-1])
        if self.held:
            return jnp.concatenate([jnp.eye(self.of.dimension), -x], axis=1) @ self.body(q)
        return jnp.concatenate([jnp.zeros(self.of.dimension), jnp.stack([-x[0, 0], 1.0])])[None]


FAMILIES = {
    "R, Chaplygin": (Rn(1), True, "chaplygin"),
    "T, horizontal": (Torus(1), False, "horizontal"),
    "R^2, abelian": (Rn(2), True, "abelian"),
    "R^2, Chaplygin": (Rn(2), True, "chaplygin"),
    "SE(2), Chaplygin": (SE2(), True, "chaplygin"),
}


def drawn(group: Group, held: bool, random: np.random.Generator) -> tuple[Fibred, np.ndarray, np.ndarray]:
    """A system and an allowed state."""
    n = group.dimension + len(SHAPE)
    root, lift = random.uniform(-1, 1, (2, n, n)), random.uniform(-1, 1, (2, group.dimension, 2))
    system = Fibred(root, lift, random.uniform(-1, 1, 2), 0.0, 0.0, group, held)
    q, v = random.uniform(-1, 1, (2, n))
    v = np.linalg.solve(np.asarray(system.body(q)), v)
    forms = np.asarray(system.constraints(jnp.asarray(q)))
    return system, q, v - np.linalg.pinv(forms) @ (forms @ v)


def reduction_attack(n: int, seed: int, families: tuple[str, ...] = tuple(FAMILIES)) -> dict[str, Any]:
    """Reduces n random systems of each family, and as many whose symmetry is broken by a bump.

    Returns how many runs were compared (`runs`) and were more than 1e-10 off (`wrong`), how many broken systems were
    refused (`refused`) or not (`accepted`), and the largest difference (`worst`).
    """
    counts: dict[str, Any] = {"runs": 0, "wrong": 0, "refused": 0, "accepted": 0, "worst": 0.0}
    for name in families:
        group, held, kind = FAMILIES[name]
        random = np.random.default_rng([seed, *name.encode()])
        for _ in range(n):
            system, q, v = drawn(group, held, random)
            symmetry = da.Symmetry(group, on=system.coordinates[: group.size])
            level = symmetry.momentum(system, q, v) if kind == "horizontal" else None
            reduced = da.reduce(system, METHOD, symmetry, kind=kind, level=level)
            full = da.simulate(system, METHOD, q, v, h=H, steps=STEPS)
            run = da.simulate(reduced, reduced.method, *reduced.project(q, v), h=H, steps=STEPS)
            again = reduced.reconstruct(run, q[: group.size])
            off = max(np.max(np.abs(again.q - full.q)), np.max(np.abs(again.v - full.v)))
            counts["runs"] += 1
            # 1e-14 is measured; random systems amplify rounding a little, and what is wrong is off by far more.
            counts["wrong"] += not off < 1e-10
            counts["worst"] = max(counts["worst"], float(off))
            size, where = 10 ** random.uniform(-8, 0), random.choice([-1, 1]) * 10 ** random.uniform(-1, 1.5)
            broken = Fibred(system.root, system.lift, system.wave, size, where, group, held)
            try:
                da.reduce(broken, METHOD, symmetry, kind=kind, level=level)
                counts["accepted"] += 1
            except ValueError as error:
                counts["refused"] += "the Lagrangian is not invariant" in str(error)
    return counts
