"""The nonholonomic particle in space."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dalembert.model import System


class NonholonomicParticle(System):
    """A particle in space with z' = y x', in any potential (a function of q); it is free by default.

    Equations: [ferraro2008] section 5.1.
    """

    coordinates = ("x", "y", "z")
    step = 0.1
    field: Callable | None = eqx.field(static=True)

    def __init__(self, potential=None):
        if potential is not None and not callable(potential):
            raise ValueError(f"NonholonomicParticle: potential must be a function of q, got {potential!r}")
        self.field = potential

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        return jnp.zeros(()) if self.field is None else self.field(q)

    def constraints(self, q):
        return jnp.array([[-q[1], 0.0, 1.0]])

    def starts(self):
        return {
            "default": ([1.0, 0.6, 0.5], [1.0, 0.5, 0.6]),
            "bump": ([1.0, -2.0, 0.5], [1.0, 0.5, -2.0]),
        }

    def integrals(self):
        if self.field is not None:
            return {}
        return {"y'": lambda q, v: v[1], "x' sqrt(1 + y^2)": lambda q, v: v[0] * jnp.sqrt(1 + q[1] ** 2)}

    def generators(self, q):
        """Translations; none with a potential, which they change."""
        return jnp.eye(3) if self.field is None else jnp.zeros((3, 0))

    def sections(self):
        if self.field is not None:
            return {}
        return {
            "along (1, 0, y)": lambda q: jnp.stack([jnp.ones(()), jnp.zeros(()), q[1]]),
            "along y": lambda q: jnp.array([0.0, 1.0, 0.0]),
        }

    def solution(self, t, q0, v0):
        """The exact motion (q, v) of the free particle at times t; y' and x' sqrt(1 + y^2) are constant."""
        if self.field is not None:
            raise ValueError("NonholonomicParticle has a closed solution without a potential only")
        t = np.asarray(t, float)
        (x0, y0, z0), (u0, c, _) = np.asarray(q0, float), np.asarray(v0, float)
        y = y0 + c * t
        k = u0 * np.sqrt(1 + y0**2)
        u = k / np.sqrt(1 + y**2)
        if c == 0:
            dx, dz = u0 * t, y0 * u0 * t
        else:
            dx = k / c * (np.arcsinh(y) - np.arcsinh(y0))
            dz = k / c * (np.sqrt(1 + y**2) - np.sqrt(1 + y0**2))
        q = np.stack([x0 + dx, y, z0 + dz], axis=-1)
        return q, np.stack([u, np.full_like(t, c), y * u], axis=-1)
