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


def first_pair_of_the_path():
    """With (q_j, q_{j+1}) in D_d from j = 1 only, the first pair of a path may violate the constraint."""
    particle, q = _particle()
    off = 0.05
    path = [q[0], q[1].at[2].add(off)]

    def held(a, b):
        return constraint_value(PointConstraint(), particle, a, b, (b - a) / 0.1, 0.1)

    def equations(y, before, here):
        after, lam = y[:3], y[3:]
        leaving = partial_derivatives(Midpoint(), particle, here, after, (after - here) / 0.1, 0.1)[0]
        arriving = partial_derivatives(Midpoint(), particle, before, here, (here - before) / 0.1, 0.1)[1]
        return jnp.concatenate([leaving + arriving - particle.constraints(here).T @ lam, held(here, after)])

    worst = 0.0
    for _ in range(20):
        y = jnp.concatenate([2 * path[-1] - path[-2], jnp.zeros(1)])
        for _ in range(8):
            slope = jax.jacfwd(equations)(y, *path[-2:])
            y = y - jnp.linalg.solve(slope, equations(y, *path[-2:]))
        worst = max(worst, float(jnp.max(jnp.abs(equations(y, *path[-2:])))))
        path.append(y[:3])
    reduced = da.reduce(particle, da.VariationalDLA(), SHIFT)
    path = jnp.stack(path)
    moved = [
        float(path[i + 1, 2] - path[i, 2] - reduced.displacement(path[i, :2], path[i + 1, :2], 0.1)[0])
        for i in (0, 9)
    ]
    _say("particle with z' = y x': a path of 21 steps whose first pair is off D_d by", off)
    _say(f"    every printed condition (equations at j >= 1, pairs from j = 1) holds to {worst:.0e}")
    _say(
        f"    the group moves by F(r0, r1) plus {moved[0]:.2f} in the first step, and plus {moved[1]:.0e} in the tenth"
    )
    assert worst < ROUNDING
    assert abs(moved[0] - off) < ROUNDING
    assert abs(moved[1]) < ROUNDING


def _own(function):
    """D_d of the particle by a function of its change of z and of y (x1 - x0)."""

    def held(system, q0, q1, h):
        return jnp.stack([function(q1[2] - q0[2], (q0[1] + q1[1]) / 2 * (q1[0] - q0[0])) / h])

    return da.VariationalDLA(discrete_constraint=held)


def right_rigidity():
    """Right-rigidity makes D_d/G -> Q/G x Q/G injective; it need not be onto: tanh(z1 - z0) = y (x1 - x0)."""
    particle = _particle()[0]
    found = {}
    for name, method in (
        ("z1 - z0 = y (x1 - x0)", da.VariationalDLA()),
        ("tanh(z1 - z0) = y (x1 - x0)", _own(lambda z, s: jnp.tanh(z) - s)),
        ("sin(z1 - z0) = sin(y (x1 - x0))/3", _own(lambda z, s: 3 * jnp.sin(z) - jnp.sin(s))),
    ):
        made = da.reduction.rigidity(particle, method, SHIFT)
        found[name] = made.dimensional, made.rigid, made.onto, made.connection
        _say(f"{name}: right-rigid {made.rigid}, onto {made.onto}")
        if made.never is not None:
            q0, shape = made.never
            needed = (q0[1] + shape[1]) / 2 * (shape[0] - q0[0])
            _say(
                f"    from y = {q0[1]:.2f} to y = {shape[1]:.2f}, the hyperbolic tangent would have to be {needed:.2f}"
            )
            assert abs(needed) > 1
    _say("from y = 2 with x1 - x0 = 0.6, and y fixed: it would have to be 1.2")
    assert list(found.values()) == [
        (True, True, True, True),
        (True, True, False, False),
        (True, False, True, False),
    ]
    said = ""
    try:
        da.reduce(particle, _own(lambda z, s: jnp.tanh(z) - s), SHIFT)
    except ValueError as error:
        said = str(error).split(". But ")[1].split(",")[0]
    _say("da.reduce refuses it:", said)
    assert "no element of R^1 was found" in said
