"""The car with trailers."""

import equinox as eqx
import jax.numpy as jnp

from dalembert.model import System, scene
from dalembert.zoo.chains import (
    count,
    plane_motions,
    towed_frame,
    towed_metric,
    towed_places,
    towed_rows,
    towed_velocity,
)


class Car(System):
    """A tractor with any number of trailers, none of whose axles slips sideways [laumond1993].

    (x, y) is the middle P_0 of the tractor's axle, theta0 is the tractor's heading, and theta1, theta2, ... are those
    of the trailers. With e_i = (cos(theta_i), sin(theta_i)), the middle of the next axle is

        P_(i+1) = P_i - hitch e_i - length e_(i+1),

    so that each hitch is a distance `hitch` behind an axle (0 for the standard trailer), and a distance `length`
    ahead of the next. L = sum_i m |P_i'|^2/2 + J theta_i'^2/2: every body has its mass centre in the middle of its
    axle, the same mass m and the same moment of inertia J (`turning`). With n_i = (-sin(theta_i), cos(theta_i)), the
    constraints are n_i . P_i' = 0. They are independent everywhere, because n_i . P_i' contains -length theta_i' and
    no later heading. What remains are the speed v_0 and the turning rate w_0 of the tractor; those of the trailers
    follow by

        v_(i+1) = cos(d) v_i + hitch sin(d) w_i,   length w_(i+1) = sin(d) v_i - hitch cos(d) w_i,

    where d = theta_i - theta_(i+1). On a circle, the radii of the axles' paths satisfy
    R_(i+1)^2 = R_i^2 + hitch^2 - length^2.
    """

    step = 0.05
    trailers: int = eqx.field(static=True, default=5, converter=count("Car", "trailers", 0))
    length: float = 1.0  # m
    hitch: float = 0.0  # m
    mass: float = 1.0  # kg
    turning: float = 0.2  # kg m^2

    @property
    def coordinates(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The middle of the tractor's axle, and the headings."""
        return ("x", "y", *self.angles)

    @property
    def units(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Metres, and radians for the headings."""
        return ("m", "m", *("rad" for _ in self.angles))

    @property
    def angles(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The headings."""
        return tuple(f"theta{i}" for i in range(self.trailers + 1))

    def metric(self, q):
        return towed_metric(q[2:], self.hitch, self.length, self.mass, self.turning)

    def constraints(self, q):
        return towed_rows(q[2:], self.hitch, self.length)

    def frame(self, q):
        return towed_frame(q[2:], self.hitch, self.length)

    def places(self, q):
        """The middles of the axles, shape (trailers + 1, 2)."""
        return towed_places(q[:2], q[2:], self.hitch, self.length)

    def starts(self):
        n = self.trailers + 1
        straight, bent = jnp.zeros(n + 2), jnp.concatenate([jnp.zeros(2), -0.3 * jnp.arange(n)])
        return {
            "default": (straight, self._moving(straight, [1.0, 0.4])),
            "bent": (bent, self._moving(bent, [1.0, 0.0])),
        }

    def _moving(self, q, w):
        """The velocity in which w are the speed and the turning rate of the tractor."""
        return towed_velocity(q[2:], self.hitch, self.length, w)

    def scene(self, t, q):
        """The tractor and its trailers, and the paths of the first and the last axle."""
        length, middles = jnp.asarray(self.length, float), self.places(q)
        radius, up = 0.14 * length, 0.24 * length
        parts = [scene.floor(), scene.trace(middles[0])]
        parts += [scene.trace(middles[-1], scene.GOLD)] * (self.trailers > 0)
        for i in range(self.trailers + 1):
            at, heading = middles[i], q[2 + i]
            turn = scene.about_z(heading)

            def on(forward, left, height, at=at, turn=turn):
                lengths = [jnp.asarray(x, float) for x in (forward, left, height)]
                return scene.place(at) + turn @ jnp.stack(lengths)

            for side in (-0.3, 0.3):
                wheel = on(0.0, side * length, 0.0)
                parts.append(
                    scene.wheel(
                        wheel, heading, 0.0, radius, width=0.07 * length, colour=scene.DARK, marked=False
                    )
                )
            if i == 0:
                parts.append(
                    scene.box(
                        on(0.1 * length, 0.0, up), (0.75 * length, 0.44 * length, 0.2 * length), heading
                    )
                )
                cabin = (0.3 * length, 0.4 * length, 0.2 * length)
                parts.append(scene.box(on(0.22 * length, 0.0, 2 * up - 0.06 * length), cabin, heading))
            else:
                load = (0.6 * length, 0.44 * length, 0.3 * length)
                parts.append(scene.box(on(0.0, 0.0, up + 0.05 * length), load, heading, colour=scene.LIGHT))
                parts.append(scene.rod(on(0.0, 0.0, radius), on(length, 0.0, radius), 0.025 * length))
            if i < self.trailers:
                parts.append(scene.rod(on(0.0, 0.0, radius), on(-self.hitch, 0.0, radius), 0.03 * length))
        return parts

    def generators(self, q):
        """The motions of the plane: (u, v, w) moves the axle by (u - w y, v + w x) and turns all headings by w."""
        return plane_motions(q[:2], q[2:])
