"""The evidence for docs/errata.md on reduction, [cortes2003] and [fernandez2008]; `python docs/errata.py NAME ...`."""

import jax
import jax.numpy as jnp
import numpy as np

import dalembert as da
from dalembert.discrete import Midpoint, PointConstraint, constraint_value, partial_derivatives

SHIFT = da.Symmetry(da.groups.Rn(1), on=("z",))
# Rounding of about a hundred steps, for numbers of order one; a deliberate failure is a thousandth or more.
ROUNDING, FAILURE = 1e-12, 1e-3
H = 0.05


def _say(*words):
    print("   ", *words)


def _time_equation(reduced, t, r, sizes, with_forces):
    """The largest residual of the reduced equation of energies at the points of a run."""

    @jax.jit
    def over(t, r0, r1, h):
        def value(a, b):  # the times of both ends
            return reduced.lagrangian_hat(r0, r1, h + b - a, t + a)

        before, after = jax.grad(value, argnums=(0, 1))(jnp.zeros(()), jnp.zeros(()))
        minus, plus = reduced.time_forces(r0, r1, h, t)
        return jnp.stack([before, after, minus, plus])

    rows = jnp.asarray(r)
    found = np.asarray(jax.vmap(over)(jnp.asarray(t[:-1]), rows[:-1], rows[1:], jnp.asarray(sizes[1:])))
    before, after, minus, plus = found.T
    forces = minus[1:] + plus[:-1] if with_forces else 0.0
    return float(np.max(np.abs(before[1:] + after[:-1] - forces)))


class WithoutTimeForces(da.reduction.ReducedLagrangian):
    """The reduced equations as printed: no force in the equation of energies."""

    unchecked = True

    def spacetime_derivatives(self, system, t, q0, q1, u, h):
        before, after = super().spacetime_derivatives(system, t, q0, q1, u, h)
        minus, plus = system.system.time_forces(q0, q0 + h * u, h, t)
        return before.at[0].add(minus), after.at[0].add(plus)


def time_forces():
    """Proposition 3 sets the forces on time to zero, which is true only if F does not depend on time."""
    for beat, name in ((0.0, "z' = y x'"), (0.3, "z' = (1 + 0.3 sin t) y x'")):
        particle = da.zoo.RheonomicParticle(shake=0.0, beat=beat)
        reduced = da.reduce(particle, da.EDLA(), SHIFT)
        full = da.simulate(particle, da.EDLA(), *particle.start(), h=H, steps=60)
        path = reduced.project(full)
        right, printed = (
            _time_equation(reduced, path.t, path.q, full.step_data["h"], x) for x in (True, False)
        )
        _say(f"{name}, 60 steps of the full method: the reduced equation of energies is off by")
        _say(f"    {right:.0e} with F^-_t and F^+_t, {printed:.2g} without")
        assert right < ROUNDING
        assert printed < ROUNDING if beat == 0 else printed > FAILURE
    method = da.EDLA(WithoutTimeForces(reduced.discrete), reduced.method.discrete_constraint)
    run = da.simulate(reduced, method, path.q[0], path.v[0], h=H, steps=60, throw=False)
    whole = da.simulate(reduced, reduced.method, path.q[0], path.v[0], h=H, steps=60)
    kept = min(len(run.t), len(whole.t))
    off = float(np.max(np.abs(run.t[:kept] - whole.t[:kept])))
    _say(f"a run without them: {int(run.steps)} of 60 steps, {run.status.value}; times off by {off:.2g}")
    assert run.status is not da.Status.OK or off > FAILURE


def _particle():
    particle = da.zoo.NonholonomicParticle(lambda q: 0.5 * (q[0] ** 2 + q[1] ** 2))
    run = da.simulate(particle, da.VariationalDLA(), *particle.start(), h=0.1, steps=3)
    return particle, jnp.asarray(run.q)


def number_of_constraint_functions():
    """The number of functions phi_d^b is the codimension of D_d, not its dimension."""
    particle, q = _particle()

    def held(x):
        q0, q1 = x[:3], x[3:]
        return constraint_value(PointConstraint(), particle, q0, q1, (q1 - q0) / 0.1, 0.1)

    form = np.asarray(jax.jacfwd(held)(jnp.concatenate([q[0], q[1]])))
    codimension = int(np.linalg.matrix_rank(form))
    _say(
        f"particle with z' = y x': D_d has dimension {6 - codimension} in Q x Q, given by {len(form)} function"
    )
    assert (codimension, len(form)) == (1, 1)


def pair_of_the_constraint():
    """phi_d(q_{j-1}, q_j) = 0 does not determine q_{j+1}; phi_d must vanish at (q_j, q_{j+1})."""
    particle, q = _particle()
    forms = particle.constraints(q[1])

    def equations(y, pair):
        q2, lam = y[:3], y[3:]
        ends = (q[0], q[1]) if pair == "(q_{j-1}, q_j)" else (q[1], q2)
        momenta = partial_derivatives(Midpoint(), particle, q[1], q2, (q2 - q[1]) / 0.1, 0.1)[0]
        arrived = partial_derivatives(Midpoint(), particle, q[0], q[1], (q[1] - q[0]) / 0.1, 0.1)[1]
        held = constraint_value(PointConstraint(), particle, *ends, (ends[1] - ends[0]) / 0.1, 0.1)
        return jnp.concatenate([momenta + arrived - forms.T @ lam, held])

    for pair, wanted in (("(q_{j-1}, q_j)", 3), ("(q_j, q_{j+1})", 4)):
        slope = jax.jacfwd(lambda y, pair=pair: equations(y, pair))(jnp.concatenate([q[2], jnp.zeros(1)]))
        rank = int(np.linalg.matrix_rank(np.asarray(slope)))
        _say(f"phi_d of {pair}: the 4 equations for q_{{j+1}} and the multiplier have rank {rank}")
        assert rank == wanted
