"""The exact motion, as closely as double precision allows."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from dalembert.discrete.lagrangians import plain
from dalembert.methods.base import Claims, Method, Report, State
from dalembert.model import Mechanics, System, Trait, acceleration, nearest_velocity, onto_surface


class Reference(Method):
    """The index-reduced equations of motion, solved by an adaptive Runge-Kutta method of order 8 (diffrax Dopri8).

    Equations: q' = v, v' = M^-1 (dL/dq - (d/dq dL/dv) v + F + A^T lam), with lam from d/dt (A v) = 0; on a group
    q' = q v with the body velocity v. After each step of size h, q is projected onto the surface of the position
    constraints, if there are any, and the velocity onto D. The method takes
    every system, including Lagrangians that are not quadratic in v. It conserves nothing by construction: it is
    accurate, but only for a while.
    Memory: the size of the last inner step.
    """

    rtol: float = eqx.field(default=1e-14, static=True, converter=plain)
    atol: float = eqx.field(default=1e-15, static=True, converter=plain)
    supports = Method.supports | {
        Trait.GROUP,
        Trait.EXTRA_VELOCITIES,
        Trait.TIMED,
        Trait.AFFINE,
        Trait.FORCED,
        Trait.VARYING_MASS,
        Trait.GENERAL_LAGRANGIAN,
        Trait.HOLONOMIC,
        Trait.NONLINEAR,
        Trait.INDEFINITE,
    }
    native = False

    def __check_init__(self):
        for x, most in ((self.rtol, 1.0), (self.atol, float(np.finfo(float).max))):
            # A relative tolerance above one would allow errors as large as the motion itself.
            if not isinstance(x, int | float) or isinstance(x, bool) or not 0 < x <= most:
                raise ValueError(
                    "Reference needs positive tolerances, rtol of at most 1, got "
                    f"rtol={self.rtol!r}, atol={self.atol!r}"
                )

    @property
    def cli_name(self) -> str:
        usual = (self.rtol, self.atol) == (1e-14, 1e-15)
        return "reference" if usual else f"reference:{self.rtol!r},{self.atol!r}"

    def init(self, m: Mechanics, state: State, h: Array) -> Array:
        return jnp.asarray(0.5 * h, state.q.dtype)

    def step(self, m: Mechanics, state: State, memory: Array, h: Array):
        import diffrax  # the import takes 0.6 s, and nothing else needs it

        def field(t: Any, y: State, args: Any) -> State:
            here = m.at(None if state.t is None else state.t + t)
            return State(here.space.velocity(y.q, y.v), acceleration(here, y.q, y.v)[0])

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Dopri8(),
            t0=0.0,
            t1=h,
            dt0=memory,
            y0=State(state.q, state.v),
            stepsize_controller=diffrax.PIDController(rtol=self.rtol, atol=self.atol),
            max_steps=4096,
            throw=False,
            adjoint=diffrax.DirectAdjoint(),  # the one that differentiates forward and in reverse
        )
        assert solution.ys is not None
        q1, v1 = solution.ys.q[-1], solution.ys.v[-1]
        steps = solution.stats["num_steps"]
        ok = solution.result == diffrax.RESULTS.successful
        q1 = m.space.restore(q1)
        new = state.moved(q1, v1, h)
        there = m.at(new.t)
        q1 = onto_surface(there, q1)
        state = new._replace(q=q1, v=nearest_velocity(there, q1, v1))
        inner = h / jnp.maximum(solution.stats["num_accepted_steps"], 1)
        report = Report(jnp.zeros(()), steps.astype(jnp.int32), ok)
        return state, jnp.asarray(inner, memory.dtype), report

    def claims(self, system: System) -> Claims:
        return Claims(order=8, energy=False, reversible=False, on_constraint=True)
