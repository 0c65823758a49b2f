"""The continuously variable transmission with a harmonic driver."""

import jax.numpy as jnp

from dalembert.model import System, scene


class HarmonicCVT(System):
    """Two oscillators coupled by a gear ratio xi that oscillates by itself.

    V = (x1^2 + x2^2 + xi^2)/2, constraint x1' + xi x2' = 0 [modin2020]. The system is integrable: it conserves the
    energy of the passenger, the energy of the driver and a latitude.
    """

    coordinates = ("x1", "x2", "xi")
    step = 0.1

    def metric(self, q):
        return jnp.eye(3)

    def potential(self, q):
        return 0.5 * jnp.sum(q**2)

    def constraints(self, q):
        return jnp.array([[1.0, q[2], 0.0]])

    def starts(self):
        k = jnp.array([-0.5, 1.0]) / jnp.sqrt(1.25)
        return {"default": ([1.0, 1.0, 0.5], [*(0.3 * k), 1.0])}

    def scene(self, t, q):
        """The springs of V = xi^2/2 push the wheel to the middle; the springs of the two angles are hidden inside."""
        hub = jnp.stack([q[2], jnp.zeros(()), jnp.ones(())])
        ends = (jnp.array([side, 0.0, 1.0]) for side in (-1.9, 1.9))
        return [*transmission(q[0], q[1], q[2], 1.9), *(scene.spring(end, hub, 0.14) for end in ends)]


def transmission(x1, x2, ratio, reach):
    """The parts of a disc, turned by x2, that drives a wheel of radius 1, turned by x1.

    The wheel is at the distance `ratio` from the middle of the disc, so x1' = -ratio x2'.
    """
    left, right = (jnp.array([side, 0.0, 1.0]) for side in (-reach, reach))
    down = jnp.array([1.0, 1.0, -0.12])
    frame = [
        scene.rod(left, right, 0.05, scene.LIGHT),
        *(scene.rod(end, end * down, 0.07, scene.LIGHT) for end in (left, right)),
    ]
    wheel = scene.wheel(jnp.stack([ratio, *jnp.zeros(2)]), 0.5 * jnp.pi, roll=x1)
    return [scene.disc((0.0, 0.0, -0.06), x2, reach - 0.2, 0.12, colour=scene.LIGHT), *frame, wheel]
