"""The nonholonomic particle with a wheel."""

import jax.numpy as jnp

from dalembert.model import System, scene


class ParticleWithWheel(System):
    """A particle with z' = y x' that carries a wheel with angle s.

    L = (x'^2 + y'^2 + z'^2)/2 + J (1 + x^2/2) s'^2/2 + c y' s' - k (x^2 + y^2)/2. The momentum of the wheel is
    conserved, because s is a horizontal symmetry, and z makes the rest a Chaplygin system.
    """

    coordinates = ("x", "y", "z", "s")
    step = 0.1
    inertia: float = 0.6
    coupling: float = 0.2
    stiffness: float = 1.0

    def lagrangian(self, q, v):
        wheel = self.inertia * (1 + 0.5 * q[0] ** 2) * v[3] ** 2
        kinetic = 0.5 * (v[0] ** 2 + v[1] ** 2 + v[2] ** 2 + wheel) + self.coupling * v[1] * v[3]
        return kinetic - 0.5 * self.stiffness * (q[0] ** 2 + q[1] ** 2)

    def constraints(self, q):
        return jnp.array([[-q[1], 0.0, 1.0, 0.0]])

    def starts(self):
        return {"default": ([1.0, 0.6, 0.5, 0.0], [1.0, 0.5, 0.6, 0.8])}

    def scene(self, t, q):
        return [*super().scene(t, q), scene.disc(q[:3], q[3], 0.9, 0.12, relative=True)]

    def generators(self, q):
        """Translations of z, and turns of the wheel."""
        return jnp.eye(4)[:, 2:]

    def sections(self):
        return {"wheel": lambda q: jnp.array([0.0, 1.0])}
